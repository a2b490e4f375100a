//! Lists of actions, each kept once however many rules have it.

use super::validate;
use crate::rule::Actions;
use flow::Action;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Lists of actions in use, so that rules with equal ones share one.
#[derive(Default)]
pub(in crate::control) struct ActionLists {
    set: HashSet<Interned>,
    swept_len: usize,
}

#[derive(PartialEq, Eq)]
struct Interned(Arc<Actions>);

impl Borrow<[Action]> for Interned {
    fn borrow(&self) -> &[Action] {
        &self.0.list
    }
}

impl Hash for Interned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.list.hash(state);
    }
}

impl ActionLists {
    pub fn intern(&mut self, list: &[Action]) -> Arc<Actions> {
        if let Some(found) = self.set.get(list) {
            return found.0.clone();
        }
        let actions = Arc::new(validate::compile(list));
        self.set.insert(Interned(actions.clone()));
        actions
    }

    /// Forgets lists that no rule has any more, when there may be many.
    pub fn sweep(&mut self) {
        if self.set.len() > 2 * self.swept_len + 1024 {
            self.set.retain(|a| Arc::strong_count(&a.0) > 1);
            self.swept_len = self.set.len();
        }
    }
}

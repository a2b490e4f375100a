//! Action lists, each stored once however many rules use it.
//!
//! They are kept in shards, so that neither the growth of a table nor the search for unused lists causes a
//! noticeable pause, even with a million different lists.

use super::validate;
use crate::rule::Actions;
use flow::Action;
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

const SHARDS: usize = 128;
/// A shard is swept once it has twice as many lists as after its last sweep, plus this many.
const SPARE: usize = 16;
/// Lists examined per shard in one sweep.
const SWEPT_AT_ONCE: usize = 8 << 10;

/// Action lists in use, so that rules with equal ones share one.
pub(in crate::control) struct ActionLists {
    shards: [Shard; SHARDS],
    hasher: RandomState,
    /// The next shard to sweep.
    next: usize,
}

#[derive(Default)]
struct Shard {
    lists: HashTable<Arc<Actions>>,
    swept_len: usize,
}

impl Default for ActionLists {
    fn default() -> ActionLists {
        ActionLists { shards: std::array::from_fn(|_| Shard::default()), hasher: RandomState::new(), next: 0 }
    }
}

impl ActionLists {
    pub fn intern(&mut self, list: &[Action]) -> Arc<Actions> {
        let hash = self.hasher.hash_one(list);
        // The map uses the lowest and the highest bits.
        let lists = &mut self.shards[(hash >> 32) as usize % SHARDS].lists;
        if let Some(found) = lists.find(hash, |actions| actions.list[..] == *list) {
            return found.clone();
        }
        let actions = Arc::new(validate::compile(list));
        lists.insert_unique(hash, actions.clone(), |actions| self.hasher.hash_one(&actions.list[..]));
        actions
    }

    /// Frees lists that no rule uses any more, in shards where there may be many.
    pub fn sweep(&mut self) {
        let mut left = SWEPT_AT_ONCE;
        for _ in 0..SHARDS {
            let Shard { lists, swept_len } = &mut self.shards[self.next];
            self.next = (self.next + 1) % SHARDS;
            if lists.len() <= 2 * *swept_len + SPARE {
                continue;
            }
            let before = lists.len();
            lists.retain(|actions| Arc::strong_count(actions) > 1);
            *swept_len = lists.len();
            left = left.saturating_sub(before);
            if left == 0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::OfPort;

    fn list(n: u32) -> [Action; 2] {
        let port = OfPort((n % 60_000) as u16 + 1);
        [
            Action::Output { port, max_len: 0 },
            Action::Output { port: OfPort((n / 60_000) as u16 + 1), max_len: 0 },
        ]
    }

    #[test]
    fn equal_lists_are_one_and_those_that_nobody_has_go_some_at_a_time() {
        let mut lists = ActionLists::default();
        let len = |lists: &ActionLists| lists.shards.iter().map(|shard| shard.lists.len()).sum::<usize>();
        let kept: Vec<_> = (0..1_000).map(|n| lists.intern(&list(n))).collect();
        assert!((0..1_000).all(|n| Arc::ptr_eq(&lists.intern(&list(n)), &kept[n as usize])));
        (1_000..200_000).for_each(|n| drop(lists.intern(&list(n))));
        assert_eq!(len(&lists), 200_000);
        let mut sweeps = 0;
        let mut before = len(&lists);
        while {
            lists.sweep();
            len(&lists) < before
        } {
            assert!(
                before - len(&lists) < SWEPT_AT_ONCE + 2 * 200_000 / SHARDS,
                "{} at once",
                before - len(&lists)
            );
            before = len(&lists);
            sweeps += 1;
        }
        assert_eq!((before, sweeps > 10), (1_000, true), "{sweeps} sweeps");
        assert!((0..1_000).all(|n| Arc::ptr_eq(&lists.intern(&list(n)), &kept[n as usize])));
    }
}

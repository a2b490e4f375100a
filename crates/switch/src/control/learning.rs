//! Counts of the rules that `learn` creates, which limits and `delete_learned` need.
//!
//! Only cookies that some `learn` action with a limit or with `delete_learned` names are counted, so that
//! other flow-mods cost no more than a look at an empty table.

use crate::rule::Rule;
use crate::topology::BridgeIdx;
use std::collections::HashMap;

/// A cookie in a table of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Learned {
    pub bridge: BridgeIdx,
    pub table_id: u8,
    pub cookie: u64,
}

#[derive(Default)]
struct Counts {
    /// Rules that learn with a limit.
    limiting: u32,
    /// Rules that learn with `delete_learned`.
    deleting: u32,
    /// Rules with the cookie in the table.
    rules: u32,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Learning {
    counts: HashMap<Learned, Counts>,
    /// Cookies for which the last rule that learns with `delete_learned` is gone.
    orphans: Vec<Learned>,
    /// Rules that could not be learned.
    pub refused: u64,
}

impl Learning {
    /// Records a rule that was put in place. `count` counts the rules with a cookie, including this one.
    pub fn added(&mut self, rule: &Rule, count: impl Fn(Learned) -> u32) {
        if !self.counts.is_empty()
            && let Some(counts) = self.counts.get_mut(&own(rule))
        {
            counts.rules += 1;
        }
        for learn in &rule.actions.learns {
            let of = Learned { bridge: rule.bridge, table_id: learn.table_id, cookie: learn.cookie };
            let counts =
                self.counts.entry(of).or_insert_with(|| Counts { rules: count(of), ..Counts::default() });
            counts.limiting += u32::from(learn.limits);
            counts.deleting += u32::from(learn.deletes);
        }
    }

    /// Records a rule that was removed.
    pub fn removed(&mut self, rule: &Rule) {
        if self.counts.is_empty() {
            return;
        }
        if let Some(counts) = self.counts.get_mut(&own(rule)) {
            counts.rules = counts.rules.saturating_sub(1);
        }
        for learn in &rule.actions.learns {
            let of = Learned { bridge: rule.bridge, table_id: learn.table_id, cookie: learn.cookie };
            let Some(counts) = self.counts.get_mut(&of) else { continue };
            counts.limiting -= u32::from(learn.limits);
            counts.deleting -= u32::from(learn.deletes);
            if learn.deletes && counts.deleting == 0 {
                self.orphans.push(of);
            }
            if counts.limiting == 0 && counts.deleting == 0 {
                self.counts.remove(&of);
            }
        }
    }

    /// How many rules have a cookie, if it is counted; otherwise 0.
    pub fn count(&self, of: Learned) -> u32 {
        self.counts.get(&of).map_or(0, |counts| counts.rules)
    }

    /// The cookies whose rules must go, since no rule learns them any more.
    pub fn take_orphans(&mut self) -> Vec<Learned> {
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.retain(|of| self.counts.get(of).is_none_or(|counts| counts.deleting == 0));
        orphans.sort_unstable();
        orphans.dedup();
        orphans
    }
}

fn own(rule: &Rule) -> Learned {
    Learned { bridge: rule.bridge, table_id: rule.table_id, cookie: rule.cookie }
}

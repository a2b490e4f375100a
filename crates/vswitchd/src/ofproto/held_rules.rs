//! Rules that dumps have found but not written yet. They are counted for all dumps together, since clients
//! that do not read their replies hold them indefinitely.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use switch::{Rule, SlotStats};

/// Rules that one dump holds until it has found all.
const HELD_MAX: usize = 65_536;
/// Rules that all dumps hold together: some 40 bytes each, thus 20 megabytes.
const HELD_BY_ALL_MAX: usize = 8 * HELD_MAX;
/// Rules that are put in order within one turn.
const ORDERED_MAX: usize = 4_096;

/// Rules that a dump has found but not written yet.
pub(crate) struct HeldRules {
    rules: VecDeque<HeldRule>,
    by_all: HeldByAll,
}

/// How many rules all dumps hold.
pub(crate) type HeldByAll = Rc<Cell<usize>>;

/// A rule, what it had counted when it was found, and when it was last learned, 0 for never.
pub(crate) type HeldRule = (Arc<Rule>, SlotStats, u64);

impl HeldRules {
    pub fn new(by_all: &HeldByAll) -> HeldRules {
        HeldRules { rules: VecDeque::new(), by_all: by_all.clone() }
    }

    /// Whether that is too much, for this dump or for all of them.
    pub fn is_full(&self) -> bool {
        self.rules.len() > HELD_MAX || self.is_full_by_all()
    }

    /// Whether all dumps together hold too much.
    pub fn is_full_by_all(&self) -> bool {
        self.by_all.get() >= HELD_BY_ALL_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn push(&mut self, rule: HeldRule) {
        self.by_all.set(self.by_all.get() + 1);
        self.rules.push_back(rule);
    }

    /// Sorts them if they are few: by table, then oldest first, and within one age by time of change.
    pub fn put_in_order(&mut self) {
        if self.rules.len() <= ORDERED_MAX {
            let rules = self.rules.make_contiguous();
            rules.sort_by_key(|(rule, ..)| (rule.table_id, rule.created_ms, rule.serial()));
        }
    }

    /// Takes the first ones out.
    pub fn take(&mut self, count: usize) -> impl Iterator<Item = HeldRule> {
        let count = count.min(self.rules.len());
        self.by_all.set(self.by_all.get() - count);
        self.rules.drain(..count)
    }

    pub fn clear(&mut self) {
        drop(self.take(usize::MAX));
        self.rules = VecDeque::new();
    }
}

impl Drop for HeldRules {
    fn drop(&mut self) {
        self.clear();
    }
}

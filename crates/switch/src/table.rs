//! One OpenFlow table: a classifier and the slots of its counters.

use crate::rule::{Actions, Rule};
use base::Version;
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use flow::classifier::{Classifier, forget_conj_id};
use flow::{Key, Mask};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the classifier stores of a rule: whatever a translation needs is beside the matched words, so that a
/// lookup among a million rules does not wait for another cache line.
#[derive(Clone)]
pub(crate) struct Entry {
    pub rule: Arc<Rule>,
    pub actions: Arc<Actions>,
    pub slot: u32,
}

pub(crate) struct Table {
    pub rules: Classifier<Entry>,
    /// Counts packets that a rule matched.
    pub matched_slot: u32,
    /// Counts packets that matched no rule.
    pub missed_slot: u32,
    /// Some rule is, or was, a clause of a conjunction.
    conjunctive: AtomicBool,
}

impl Table {
    pub fn new(domain: Arc<Domain>, secret: HashKey, matched_slot: u32, missed_slot: u32) -> Table {
        Table {
            rules: Classifier::new(domain, secret),
            matched_slot,
            missed_slot,
            conjunctive: AtomicBool::new(false),
        }
    }

    /// To be called before a rule is added that is a clause of a conjunction. Relaxed: a reader that sees the
    /// rule has read its version, which is published afterwards (Release).
    pub fn expect_conjunctions(&self) {
        self.conjunctive.store(true, Ordering::Relaxed);
    }

    /// The rule of the highest priority that matches at a version. Adds to `mask` the bits that decided it,
    /// and to `steps` how much it has tried.
    #[inline]
    pub fn lookup<'g>(
        &'g self,
        version: Version,
        key: &Key,
        mask: &mut Mask,
        reader: &'g Reader,
        steps: &mut u32,
    ) -> Option<&'g Entry> {
        let found = if self.conjunctive.load(Ordering::Relaxed) {
            let clauses = |entry: &'g Entry| &*entry.actions.clauses;
            self.rules.lookup_conjunctive(version, key, mask, reader, steps, clauses)
        } else {
            self.rules.lookup(version, key, mask, reader, steps)
        };
        forget_conj_id(mask);
        found.map(|r| r.data())
    }
}

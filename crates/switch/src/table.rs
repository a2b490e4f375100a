//! One OpenFlow table: a classifier and the slots of its counters.

use crate::rule::{Actions, Rule};
use base::Version;
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use flow::classifier::Classifier;
use flow::{Key, Mask};
use std::sync::Arc;

/// What the classifier keeps of a rule: what a translation needs lies beside the matched words, so that a
/// look-up among a million rules does not wait for another line of memory.
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
    /// Counts packets that none matched.
    pub missed_slot: u32,
}

impl Table {
    pub fn new(domain: Arc<Domain>, secret: HashKey, matched_slot: u32, missed_slot: u32) -> Table {
        Table { rules: Classifier::new(domain, secret), matched_slot, missed_slot }
    }

    /// The rule of the highest priority that matches at a version. Adds to `mask` the bits that decided it.
    #[inline]
    pub fn lookup<'g>(
        &'g self,
        version: Version,
        key: &Key,
        mask: &mut Mask,
        reader: &'g Reader,
    ) -> Option<&'g Entry> {
        self.rules.lookup(version, key, mask, reader).map(|r| r.data())
    }
}

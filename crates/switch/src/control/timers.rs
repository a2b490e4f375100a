//! When rules may expire, by idle and hard timeout.
//!
//! A rule's deadline is put into a bucket of a tenth of a second. When a bucket's time comes, each of its
//! entries is checked: an idle deadline that traffic has postponed goes into a later bucket. So a rule is
//! checked about once per idle timeout, whatever the traffic, and a rule without timeouts never. Entries of
//! removed rules are recognised by their serial number and skipped; when most entries are stale, all stale
//! ones are dropped, some in each tick.

use super::events::RemovedReason;
use crate::rule::Rule;
use crate::topology::BridgeIdx;
use std::collections::BTreeMap;

const BUCKET_MS: u64 = 100;
/// Entries per tick that are checked for removed rules.
pub(super) const SORTED_AT_ONCE: usize = 32 << 10;

/// A rule's entry.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub bridge: BridgeIdx,
    pub table_id: u8,
    pub idx: u32,
    pub serial: u64,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Timers {
    buckets: BTreeMap<u64, Vec<Entry>>,
    pub len: usize,
    /// Length after stale entries were last dropped.
    swept_len: usize,
    /// Where dropping continues: a bucket, and the position in it.
    pub sorting: Option<(u64, usize)>,
}

impl Timers {
    pub fn put(&mut self, entry: Entry, deadline_ms: u64) {
        self.buckets.entry(deadline_ms.div_ceil(BUCKET_MS)).or_default().push(entry);
        self.len += 1;
    }

    pub fn rule(&mut self, rule: &Rule) {
        if let Some(deadline) = deadline(rule, 0, 0) {
            let Rule { bridge, table_id, idx, serial, .. } = *rule;
            self.put(Entry { bridge, table_id, idx, serial }, deadline.0);
        }
    }

    pub fn next_ms(&self) -> Option<u64> {
        self.buckets.first_key_value().map(|(bucket, _)| bucket * BUCKET_MS)
    }

    /// Takes up to `max` due entries, the earliest first.
    pub fn take_due(&mut self, now_ms: u64, max: usize) -> Vec<Entry> {
        let mut due = Vec::new();
        while let Some(mut first) = self.buckets.first_entry()
            && *first.key() <= now_ms / BUCKET_MS
            && due.len() < max
        {
            let bucket = first.get_mut();
            due.extend(bucket.drain(bucket.len().saturating_sub(max - due.len())..));
            if bucket.is_empty() {
                first.remove();
            }
        }
        self.len -= due.len();
        due
    }

    /// Drops some entries of removed rules when there may be many.
    pub fn sort_out(&mut self, is_there: impl Fn(Entry) -> bool) {
        let many = self.len > 2 * self.swept_len + 4096;
        let Some((first, from)) = self.sorting.or(many.then_some((0, 0))) else { return };
        let mut looks = 0;
        self.sorting = None;
        // An empty bucket is removed when its time comes.
        for (&number, entries) in self.buckets.range_mut(first..) {
            let mut at = if number == first { from } else { 0 };
            while at < entries.len() && looks < SORTED_AT_ONCE {
                looks += 1;
                if is_there(entries[at]) {
                    at += 1;
                } else {
                    entries.swap_remove(at);
                    self.len -= 1;
                }
            }
            if at < entries.len() {
                self.sorting = Some((number, at));
                return;
            }
        }
        self.swept_len = self.len;
    }
}

/// When and why the rule expires, given when it was last used and last learned.
pub(super) fn deadline(rule: &Rule, last_used_ms: u64, learned_ms: u64) -> Option<(u64, RemovedReason)> {
    let (idle_s, hard_s) = (u64::from(rule.timeouts.idle_s()), u64::from(rule.timeouts.hard_s()));
    let hard =
        (hard_s > 0).then(|| (rule.modified_ms.max(learned_ms) + hard_s * 1000, RemovedReason::HardTimeout));
    let idle = (idle_s > 0).then(|| {
        let used = last_used_ms.max(rule.unused_since_ms);
        (used + idle_s * 1000, RemovedReason::IdleTimeout)
    });
    hard.into_iter().chain(idle).min_by_key(|d| d.0)
}

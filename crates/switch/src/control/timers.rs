//! Expiry: rules by idle and hard timeout, and addresses by age, whose order [`super::mac_records`] keeps.
//!
//! A rule's deadline is put into a bucket of a tenth of a second. When a bucket's time comes each of its
//! entries is looked at: an idle deadline that traffic has moved on goes into a later bucket. So a rule is
//! looked at about once per idle timeout, whatever the traffic, and a rule without timeouts never. Entries of
//! what is gone meanwhile are recognised by their serial number and skipped; when most are, all are sorted
//! out.

use super::{Control, Inner, RemovedReason};
use crate::rule::Rule;
use crate::slots::SlotReader;
use crate::switch::FinTimeout;
use crate::topology::BridgeIdx;
use std::collections::BTreeMap;
use std::sync::Arc;

const BUCKET_MS: u64 = 100;
/// Rules looked at at once, so that a turn stays near a millisecond.
const EXPIRED_AT_ONCE: usize = 1_000;

/// A rule's.
#[derive(Clone, Copy)]
struct Entry {
    bridge: BridgeIdx,
    table_id: u8,
    idx: u32,
    serial: u64,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Timers {
    buckets: BTreeMap<u64, Vec<Entry>>,
    len: usize,
    /// Length after the last sorting out.
    swept_len: usize,
}

impl Timers {
    fn put(&mut self, entry: Entry, deadline_ms: u64) {
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

    /// Takes up to `max` entries whose time has come, the earliest first.
    fn take_due(&mut self, now_ms: u64, max: usize) -> Vec<Entry> {
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
}

/// When the rule ends if it was last used and last learned then, and why.
fn deadline(rule: &Rule, last_used_ms: u64, learned_ms: u64) -> Option<(u64, RemovedReason)> {
    let (idle_s, hard_s) = (u64::from(rule.timeouts.idle_s()), u64::from(rule.timeouts.hard_s()));
    let hard =
        (hard_s > 0).then(|| (rule.modified_ms.max(learned_ms) + hard_s * 1000, RemovedReason::HardTimeout));
    let idle = (idle_s > 0).then(|| {
        let used = last_used_ms.max(rule.unused_since_ms);
        (used + idle_s * 1000, RemovedReason::IdleTimeout)
    });
    hard.into_iter().chain(idle).min_by_key(|d| d.0)
}

impl Control {
    /// Removes addresses and some rules whose time has come, as one version each kind. `slots` says when each
    /// was last used, flows that workers have not folded yet included. Whether there are more rules: call it
    /// again then, with the same time.
    pub fn expire(&mut self, now_ms: u64, slots: &dyn SlotReader) -> bool {
        self.enter_to_change();
        let inner = &mut self.inner;
        let mut rules = Vec::new();
        let due = inner.timers.take_due(now_ms, EXPIRED_AT_ONCE);
        let has_more = due.len() == EXPIRED_AT_ONCE;
        for entry in due {
            let Entry { bridge, table_id, idx, serial } = entry;
            let Some(rule) = inner.rule_at(bridge, table_id, idx, serial) else { continue };
            let learned_ms = rule.learn_slot.map_or(0, |slot| slots.read(slot).last_used_ms);
            match deadline(&rule, inner.slots.last_used_ms(rule.slot, slots), learned_ms) {
                Some((at, reason)) if at <= now_ms => rules.push((rule, reason)),
                Some((at, _)) => inner.timers.put(entry, at),
                None => {}
            }
        }
        let mut forgotten = false;
        for bridge in (0..inner.bridges.len() as u32).map(BridgeIdx) {
            forgotten |= inner.age_macs(bridge, now_ms, slots, &self.reader);
        }
        if forgotten {
            inner.publish();
        }
        inner.expire_rules(rules, now_ms, &self.reader);
        inner.sort_out_timers();
        has_more
    }
}

impl Inner {
    /// A packet that ends a TCP connection has passed a rule with `fin_timeout`. A rule that went or was
    /// modified meanwhile is left alone.
    pub(super) fn lower_timeouts(&mut self, fin: FinTimeout) {
        let FinTimeout { bridge, table_id, idx, serial, idle_s, hard_s } = fin;
        if let Some(rule) = self.rule_at(bridge, table_id, idx, serial)
            && rule.timeouts.lower(idle_s, hard_s)
        {
            self.timers.rule(&rule);
        }
    }

    fn expire_rules(
        &mut self,
        rules: Vec<(Arc<Rule>, RemovedReason)>,
        now_ms: u64,
        reader: &base::rcu::Reader,
    ) {
        if !rules.is_empty() {
            self.remove_expired(rules, now_ms, reader);
        }
    }

    /// Drops entries of rules that are gone, when there may be many.
    fn sort_out_timers(&mut self) {
        if self.timers.len <= 2 * self.timers.swept_len + 4096 {
            return;
        }
        let mut buckets = std::mem::take(&mut self.timers.buckets);
        for bucket in buckets.values_mut() {
            bucket.retain(|entry| {
                let Entry { bridge, table_id, idx, serial } = *entry;
                self.rule_at(bridge, table_id, idx, serial).is_some()
            });
        }
        buckets.retain(|_, bucket| !bucket.is_empty());
        self.timers.len = buckets.values().map(Vec::len).sum();
        self.timers.swept_len = self.timers.len;
        self.timers.buckets = buckets;
    }
}

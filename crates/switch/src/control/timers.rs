//! Expiry: rules by idle and hard timeout, and addresses by age ([`super::mac_records`] keeps them in order).
//!
//! A rule's deadline is put into a bucket of a tenth of a second. When a bucket's time comes, each of its
//! entries is checked: an idle deadline that traffic has postponed goes into a later bucket. So a rule is
//! checked about once per idle timeout, whatever the traffic, and a rule without timeouts never. Entries of
//! removed rules are recognised by their serial number and skipped; when most entries are stale, all stale
//! ones are dropped, some in each tick.

use super::{Control, Inner, RemovedReason};
use crate::effect::FinTimeout;
use crate::rule::Rule;
use crate::slots::SlotReader;
use crate::topology::BridgeIdx;
use std::collections::BTreeMap;
use std::sync::Arc;

const BUCKET_MS: u64 = 100;
/// Rules, and addresses, checked at once, so that a turn takes about a millisecond.
const EXPIRED_AT_ONCE: usize = 1_000;

/// Entries per tick that are checked for removed rules.
const SORTED_AT_ONCE: usize = 32 << 10;

/// A rule's entry.
#[derive(Clone, Copy)]
struct Entry {
    bridge: BridgeIdx,
    table_id: u8,
    idx: u32,
    serial: u64,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Timers {
    buckets: BTreeMap<u64, Vec<Entry>>,
    len: usize,
    /// Length after stale entries were last dropped.
    swept_len: usize,
    /// Where dropping continues: a bucket, and the position in it.
    sorting: Option<(u64, usize)>,
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

    /// Takes up to `max` due entries, the earliest first.
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

/// When and why the rule expires, given when it was last used and last learned.
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
    /// Removes some expired addresses and rules, as one version for each kind. `slots` tells when each was
    /// last used, including flows that workers have not folded yet. Returns whether there may be more; if so,
    /// call it again with the same time.
    pub fn expire(&mut self, now_ms: u64, slots: &dyn SlotReader) -> bool {
        self.enter_to_change();
        let inner = &mut self.inner;
        let mut rules = Vec::new();
        let due = inner.timers.take_due(now_ms, EXPIRED_AT_ONCE);
        let has_more_rules = due.len() == EXPIRED_AT_ONCE;
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
        let (mut forgotten, mut looks) = (false, EXPIRED_AT_ONCE);
        for bridge in (0..inner.bridges.len() as u32).map(BridgeIdx) {
            forgotten |= inner.age_macs(bridge, now_ms, &mut looks, slots, &self.reader);
        }
        if forgotten {
            inner.publish();
        }
        inner.expire_rules(rules, now_ms, &self.reader);
        has_more_rules || looks == 0
    }
}

impl Inner {
    /// A packet that ends a TCP connection has matched a rule with `fin_timeout`. Does nothing if the rule
    /// was removed or modified meanwhile.
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

    /// Drops some entries of removed rules when there may be many. Not during a transaction, which may
    /// restore rules.
    pub(super) fn sort_out_timers(&mut self) {
        let Timers { len, swept_len, sorting, .. } = self.timers;
        let Some((first, from)) = sorting.or((len > 2 * swept_len + 4096).then_some((0, 0))) else {
            return;
        };
        let mut buckets = std::mem::take(&mut self.timers.buckets);
        let (mut looks, mut gone, mut goes_on_at) = (0, 0, None);
        // An empty bucket is removed when its time comes.
        for (&number, entries) in buckets.range_mut(first..) {
            let mut at = if number == first { from } else { 0 };
            while at < entries.len() && looks < SORTED_AT_ONCE {
                looks += 1;
                let Entry { bridge, table_id, idx, serial } = entries[at];
                if self.rule_at(bridge, table_id, idx, serial).is_some() {
                    at += 1;
                } else {
                    entries.swap_remove(at);
                    gone += 1;
                }
            }
            if at < entries.len() {
                goes_on_at = Some((number, at));
                break;
            }
        }
        let timers = &mut self.timers;
        (timers.buckets, timers.len, timers.sorting) = (buckets, len - gone, goes_on_at);
        if goes_on_at.is_none() {
            timers.swept_len = timers.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::control::{Change, Control, FlowMod};
    use crate::topology::BridgeConfig;
    use base::hash::HashKey;
    use base::rcu::Domain;
    use flow::{FieldId, Match};

    #[test]
    fn deadlines_of_rules_that_are_gone_go_some_at_a_time_and_the_others_stay() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let rule = |n: u32| FlowMod {
            hard_timeout_s: 5,
            new_cookie: Some(u64::from(!n.is_multiple_of(100))),
            ..FlowMod::add(Match::any().with(FieldId::NwSrc, n.into()), Vec::new())
        };
        let rules = 3 * super::SORTED_AT_ONCE as u32;
        let all: Vec<FlowMod> = (0..rules).map(rule).collect();
        control.change_all(all.iter().map(|rule| (bridge, Change::Flow(rule))), 0).unwrap();
        let most = FlowMod { cookie: 1, cookie_mask: u64::MAX, ..FlowMod::delete(Match::any()) };
        control.flow_mod(bridge, &most, 0).unwrap();
        let mut turns = 0;
        let kept = rules.div_ceil(100) as usize;
        while control.inner.timers.len > kept {
            let before = control.inner.timers.len;
            control.tick(0);
            assert!(before - control.inner.timers.len <= super::SORTED_AT_ONCE);
            turns += 1;
            assert!(turns < 100, "{} left", control.inner.timers.len);
        }
        assert_eq!((control.inner.timers.len, turns >= 3), (kept, true));
        assert!(control.inner.timers.sorting.is_none());
        let none = |_: u32| crate::slots::SlotStats::default();
        while control.expire(6_000, &none) {}
        assert_eq!(control.table_stats(bridge)[0].active, 0, "those that stayed have expired");
    }
}

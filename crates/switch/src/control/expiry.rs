//! Expiry: rules by idle and hard timeout ([`super::timers`] has their deadlines), and addresses by age
//! ([`super::mac_records`] keeps them in order).

use super::state::{Control, Inner};
use super::timers::{Entry, deadline};
use crate::effect::FinTimeout;
use crate::slots::SlotReader;
use crate::topology::BridgeIdx;

/// Rules, and addresses, checked at once, so that a turn takes about a millisecond.
const EXPIRED_AT_ONCE: usize = 1_000;

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
        if !rules.is_empty() {
            inner.remove_expired(rules, now_ms, &self.reader);
        }
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

    /// Not during a transaction, which may restore rules.
    pub(super) fn sort_out_timers(&mut self) {
        let mut timers = std::mem::take(&mut self.timers);
        timers.sort_out(|of| self.rule_at(of.bridge, of.table_id, of.idx, of.serial).is_some());
        self.timers = timers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::timers::SORTED_AT_ONCE;
    use crate::control::{Change, FlowMod};
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
        let rules = 3 * SORTED_AT_ONCE as u32;
        let all: Vec<FlowMod> = (0..rules).map(rule).collect();
        control.change_all(all.iter().map(|rule| (bridge, Change::Flow(rule))), 0).unwrap();
        let most = FlowMod { cookie: 1, cookie_mask: u64::MAX, ..FlowMod::delete(Match::any()) };
        control.flow_mod(bridge, &most, 0).unwrap();
        let mut turns = 0;
        let kept = rules.div_ceil(100) as usize;
        while control.inner.timers.len > kept {
            let before = control.inner.timers.len;
            control.tick(0);
            assert!(before - control.inner.timers.len <= SORTED_AT_ONCE);
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

//! The control side of one table: its rules by place, and their limits.

use super::cookies::Cookies;
use super::eviction::{Evictable, GivenUp, TableLimits};
use crate::rule::Rule;
use crate::slots::SlotReader;
use std::sync::Arc;

/// The control side of one table.
pub(super) struct RuleStore {
    pub matched_slot: u32,
    pub missed_slot: u32,
    /// By place; `None` for a free place.
    pub rules: Vec<Option<Arc<Rule>>>,
    free: Vec<u32>,
    /// Bytes on the heap that the rules take.
    rule_bytes: usize,
    /// Rules that clients see.
    pub shown: usize,
    /// Rules that are removed but still linked.
    pub vanishing: usize,
    pub limits: TableLimits,
    /// The limits that apply once rules are ordered, and how many places are.
    pub coming: Option<(TableLimits, usize)>,
    pub evictable: Evictable,
    /// Orders of earlier limits, to be freed.
    pub given_up: Vec<GivenUp>,
    /// Those that clients see, if some `learn` action counts what it learns here.
    cookies: Option<Cookies>,
}

impl RuleStore {
    pub fn new(matched_slot: u32, missed_slot: u32) -> RuleStore {
        RuleStore {
            matched_slot,
            missed_slot,
            rules: Vec::new(),
            free: Vec::new(),
            rule_bytes: 0,
            shown: 0,
            vanishing: 0,
            limits: TableLimits::default(),
            coming: None,
            evictable: Evictable::default(),
            given_up: Vec::new(),
            cookies: None,
        }
    }

    /// From now on, knows the rules of each cookie.
    pub fn index_cookies(&mut self) {
        let rules = &self.rules;
        self.cookies.get_or_insert_with(|| Cookies::of(rules));
    }

    /// How many rules have a cookie, if that is known; otherwise 0.
    pub fn count_of_cookie(&self, cookie: u64) -> u32 {
        self.cookies.as_ref().map_or(0, |cookies| cookies.count(cookie))
    }

    /// A rule with a cookie, if that is known.
    pub fn rule_of_cookie(&self, cookie: u64) -> Option<&Arc<Rule>> {
        self.rules[self.cookies.as_ref()?.first(cookie)? as usize].as_ref()
    }

    /// Allocates a free place.
    pub fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.rules.push(None);
            (self.rules.len() - 1) as u32
        })
    }

    /// Puts a rule at its place.
    pub fn put(&mut self, rule: &Arc<Rule>) {
        self.rules[rule.idx as usize] = Some(rule.clone());
        self.rule_bytes += bytes_of(rule);
        self.shown += usize::from(!rule.flags.hidden);
        if !rule.flags.hidden {
            self.evictable.add(rule, &self.limits);
            self.cookies.iter_mut().for_each(|cookies| cookies.add(rule));
        }
    }

    /// Puts back a rule whose place was vacated, and possibly reused and vacated again.
    pub fn put_back(&mut self, rule: &Arc<Rule>) {
        let at = self.free.iter().rposition(|i| *i == rule.idx).expect("its place is free again");
        self.free.remove(at);
        self.put(rule);
    }

    pub fn vacate(&mut self, idx: u32) {
        if let Some(rule) = self.rules[idx as usize].take() {
            self.rule_bytes -= bytes_of(&rule);
            self.shown -= usize::from(!rule.flags.hidden);
            self.evictable.remove(rule.serial);
            if !rule.flags.hidden {
                self.cookies.iter_mut().for_each(|cookies| cookies.remove(&rule));
            }
            self.free.push(idx);
        }
    }

    /// Bytes that rules and their places take.
    pub fn memory_bytes(&self) -> usize {
        self.rule_bytes
            + self.rules.capacity() * size_of::<Option<Arc<Rule>>>()
            + self.cookies.as_ref().map_or(0, Cookies::memory_bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.free.len() == self.rules.len()
    }

    pub fn is_full(&self) -> bool {
        self.limits.rules_max.is_some_and(|max| self.shown >= max as usize)
    }

    /// Before `wanted` rules are added: learns which of the rules that they would evict were used.
    pub fn note_use(&mut self, wanted: usize, slots: &dyn SlotReader) {
        let rules_max = self.limits.rules_max.map_or(usize::MAX, |max| max as usize);
        let evicted = wanted.saturating_sub(rules_max.saturating_sub(self.shown));
        if self.limits.evicts && evicted > 0 {
            self.evictable.note_use(evicted, &self.rules, slots);
        }
    }

    /// Whether there are more rules than allowed.
    pub fn is_over(&self) -> bool {
        self.limits.rules_max.is_some_and(|max| self.shown > max as usize)
    }
}

/// Bytes on the heap that a rule takes.
pub(super) fn bytes_of(rule: &Rule) -> usize {
    // Each `Arc` and each box costs the allocator 8 bytes more, rounded up to 16.
    let heap = |n: usize| (n + 8).next_multiple_of(16);
    heap(size_of::<Rule>() + 16) + heap(rule.matching.values().len() * 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::flow_mod::RULES_MAX;
    use crate::control::{Control, FlowMod, FlowModError};
    use crate::topology::BridgeConfig;
    use base::hash::HashKey;
    use base::rcu::Domain;
    use flow::{FieldId, Match};

    #[test]
    fn a_switch_that_was_full_once_takes_rules_again() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let rest = RULES_MAX - control.inner.slots.in_use();
        let mut all = control.inner.slots.allocate_many(rest);
        let add = |n: u32| FlowMod::add(Match::any().with(FieldId::NwSrc, n.into()), Vec::new());
        assert_eq!(control.flow_mod(bridge, &add(1), 0).unwrap_err(), FlowModError::TableFull);
        control.recycle_slots(all.take(2));
        assert!(control.flow_mod(bridge, &add(1), 0).is_ok());
    }

    #[test]
    fn bytes_of_rules_are_those_of_the_rules_that_there_are() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let narrow = Match::any().with(FieldId::NwSrc, 1);
        let wide = narrow.clone().with(FieldId::EthSrc, 2).with(FieldId::TpSrc, 3);
        let add = |matching: &Match| FlowMod::add(matching.clone(), Vec::new());
        let mut bytes = Vec::new();
        // The second of equal rules takes the place of the first.
        for change in [add(&narrow), add(&wide), add(&wide), FlowMod::delete(Match::any())] {
            control.flow_mod(bridge, &change, 0).unwrap();
            let store = &control.inner.bridges[0].as_ref().unwrap().tables[&0];
            let walked: usize = store.rules.iter().flatten().map(|rule| bytes_of(rule)).sum();
            assert_eq!(store.rule_bytes, walked);
            bytes.push(walked);
        }
        assert!(
            bytes[0] > 0 && bytes[1] > 2 * bytes[0] && bytes[2] == bytes[1] && bytes[3] == 0,
            "{bytes:?}"
        );
    }
}

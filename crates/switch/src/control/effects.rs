//! The effects of translations: what packets teach, of addresses and of rules.

use super::change::Change;
use super::state::{Control, Inner};
use crate::changelog::word_table;
use crate::effect::{Effect, LearnedRule};
use crate::flow_mod::FlowModError;
use crate::refused::{KEPT_MS, Learned, Refusal, Refused};
use crate::slots::{SlotReader, unused};
use crate::topology::BridgeIdx;
use base::rcu::Reader;

impl Control {
    /// Applies effects of translations, as one version; as none if they change nothing. `slots` has the
    /// counters: which addresses and rules of a full table are in use and stay.
    pub fn apply_with(&mut self, effects: &[Effect], now_ms: u64, slots: &dyn SlotReader) {
        self.enter();
        let mut changed = false;
        for effect in effects {
            if self.defers(effect) {
                continue;
            }
            if let Effect::Learn { bridge, vlan, mac, port } = effect {
                let word = word_table::mac(*vlan, *mac);
                changed |= self.inner.learn(*bridge, word, *port, now_ms, slots, &self.reader);
                continue;
            }
            // What was learned before belongs to an earlier version.
            if matches!(effect, Effect::LearnRule(_)) && std::mem::take(&mut changed) {
                self.inner.publish();
            }
            if let Effect::LearnRule(learned) = effect
                && let Some(control) = self.inner.bridge_mut(learned.bridge)
                && let Some(store) = control.tables.get_mut(&learned.flow_mod.table_id)
            {
                store.note_use(1, slots);
            }
            self.inner.apply_to_rules(effect, now_ms, &self.reader);
        }
        if changed {
            self.inner.publish();
        }
    }

    /// The same where nothing is known of use: addresses give way in the order in which they were learned.
    pub fn apply(&mut self, effects: &[Effect], now_ms: u64) {
        self.apply_with(effects, now_ms, &unused);
    }

    /// The number of rules with a cookie in a table, if some `learn` action needs that number; otherwise 0.
    pub fn learned_count(&self, bridge: BridgeIdx, table_id: u8, cookie: u64) -> u32 {
        self.inner.learned_count(Learned { bridge, table_id, cookie })
    }

    /// How often a rule could not be learned: its limit was reached, its table full, or the bridge gone.
    pub fn learn_refused(&self) -> u64 {
        self.inner.learning.refused
    }
}

impl Inner {
    /// Applies effects of a translation to rules.
    pub(super) fn apply_to_rules(&mut self, effect: &Effect, now_ms: u64, reader: &Reader) {
        match effect {
            Effect::FinTimeout(fin) => self.lower_timeouts(*fin),
            Effect::LearnRule(learned) => self.learn_rule(learned, now_ms, reader),
            &Effect::LimitReached { bridge, table_id, cookie, limit } => {
                self.refuse(Refusal::Limit(Learned { bridge, table_id, cookie }, limit), now_ms);
            }
            // These change no rules.
            Effect::Learn { .. } | Effect::ToLearn(_) | Effect::LearnedAgain(_) | Effect::Failed(_) => {}
        }
    }

    /// Adds or modifies a rule as a translation requests.
    fn learn_rule(&mut self, learned: &LearnedRule, now_ms: u64, reader: &Reader) {
        let LearnedRule { bridge, flow_mod, limit } = learned;
        let of = Learned {
            bridge: *bridge,
            table_id: flow_mod.table_id,
            cookie: flow_mod.new_cookie.unwrap_or(0),
        };
        if *limit != 0 {
            self.index_cookies(*bridge, of.table_id);
            if self.learned_count(of) >= *limit {
                return self.refuse(Refusal::Limit(of, *limit), now_ms);
            }
        }
        match self.change_all([(*bridge, Change::Flow(flow_mod))], now_ms, reader) {
            Ok(_) => {}
            Err((_, FlowModError::TableFull)) => self.refuse(Refusal::Full(*bridge, of.table_id), now_ms),
            Err(_) => self.learning.refused += 1,
        }
    }

    /// Has workers know what cannot be learned.
    fn refuse(&mut self, refusal: Refusal, now_ms: u64) {
        let learning = &mut self.learning;
        learning.refused += 1;
        learning.refused_since_ms.get_or_insert(now_ms);
        if learning.refused_now.add(refusal) {
            self.switch.refused.publish(learning.refused_now.clone());
        }
    }

    /// Has workers ask again for what was refused a while ago.
    pub(super) fn retry_learning(&mut self, now_ms: u64) {
        if self.learning.refused_since_ms.is_some_and(|since_ms| now_ms >= since_ms + KEPT_MS) {
            self.forget_refusals();
            self.publish();
        }
    }

    /// From the coming version on, workers ask again for what was refused.
    pub(super) fn forget_refusals(&mut self) {
        if self.learning.refused_since_ms.take().is_none() {
            return;
        }
        let refused = std::mem::take(&mut self.learning.refused_now);
        self.switch.refused.publish(Refused::default());
        let version = self.coming();
        for bridge in refused.bridges() {
            self.log.word(word_table::ports(bridge.0), word_table::REFUSED, version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{RuleFilter, TableLimits};
    use crate::flow_mod::FlowMod;
    use crate::slots::SlotStats;
    use crate::topology::BridgeConfig;
    use base::hash::HashKey;
    use base::rcu::Domain;
    use flow::{Action, FieldId, Match};

    #[test]
    fn a_learned_rule_evicts_none_that_is_in_use() {
        let (_, mut control) = Control::new(Domain::new(), HashKey::from_seed(5));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let limits = TableLimits { rules_max: Some(2), evicts: true, groups: Vec::new() };
        assert!(control.set_table_limits(bridge, 0, &limits, 0, &unused, &mut || false));
        let learned = |address: u128| {
            let mut matching = Match::any();
            matching.set_masked(FieldId::EthDst, address, FieldId::EthDst.ones());
            let flow_mod = FlowMod { idle_timeout_s: 10, ..FlowMod::add(matching, Vec::<Action>::new()) };
            [Effect::LearnRule(Box::new(LearnedRule { bridge, flow_mod, limit: 0 }))]
        };
        control.apply(&learned(1), 0);
        control.apply(&learned(2), 1_000);
        let slot_of_first = control.rules(bridge, &RuleFilter::default())[0].slot;
        let in_use = |slot| SlotStats {
            last_used_ms: if slot == slot_of_first { 5_000 } else { 0 },
            ..SlotStats::default()
        };
        control.apply_with(&learned(3), 6_000, &in_use);
        let left = control.rules(bridge, &RuleFilter::default());
        let mut left: Vec<u128> =
            left.iter().map(|r| r.matching.to_match().key.get(FieldId::EthDst)).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 3]);
    }
}

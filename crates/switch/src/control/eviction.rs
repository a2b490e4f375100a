//! How many rules a table may hold, and which of them makes room when it is full.
//!
//! Rules that never end by themselves are never evicted. The others stand in groups, by the values of some
//! fields of what they match (`Flow_Table`'s `groups`; without any they are all of one group). The largest
//! group loses a rule first, so that nobody's rules drive out those of others; in a group the least important
//! rule goes first, and of those the one that would end soonest.
//!
//! When an idle rule ends depends on traffic, which the order notes once a second at most
//! ([`Control::note_use`]), as Open vSwitch does. Source: ovs-vswitchd.conf.db(5), Flow_Table.

use super::flow_mod::{Batch, FlowModError};
use super::{Control, Inner, RemovedReason};
use crate::rule::Rule;
use crate::slots::SlotReader;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use flow::action::SubField;
use std::collections::{BTreeSet, HashMap};

/// How often the order follows the use of rules.
const NOTE_USE_MS: u64 = 1_000;

/// What is configured of a table.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TableLimits {
    /// Rules at most.
    pub rules_max: Option<u32>,
    /// At the limit, whether a rule is evicted to make room for a new one, which is refused otherwise.
    pub evicts: bool,
    /// The fields by which rules are grouped.
    pub groups: Vec<SubField>,
}

/// Least first: importance, when the rule would end, then the order in which rules came.
type Rank = (u16, u64, u64, u32);

/// The order of a table's rules that can be evicted. Empty where nothing is evicted.
#[derive(Default)]
pub(super) struct Evictable {
    groups: HashMap<Vec<u128>, BTreeSet<Rank>>,
    /// Groups by their size.
    sizes: BTreeSet<(usize, Vec<u128>)>,
    /// Where each rule stands, by its serial number.
    ranks: HashMap<u64, (Vec<u128>, Rank)>,
    noted_ms: u64,
}

/// When a rule ends if nothing uses it from now on, in milliseconds.
fn ends_ms(rule: &Rule, last_used_ms: u64) -> Option<u64> {
    let (idle_s, hard_s) = (u64::from(rule.timeouts.idle_s()), u64::from(rule.timeouts.hard_s()));
    let hard = (hard_s > 0).then(|| rule.modified_ms + hard_s * 1000);
    let idle = (idle_s > 0).then(|| last_used_ms.max(rule.created_ms) + idle_s * 1000);
    hard.into_iter().chain(idle).min()
}

fn group_of(rule: &Rule, fields: &[SubField]) -> Vec<u128> {
    if fields.is_empty() {
        return Vec::new();
    }
    let matching = rule.matching.to_match();
    let bits = |sub: &SubField| {
        let ones = if sub.count >= 128 { u128::MAX } else { (1 << sub.count) - 1 };
        matching.get_mf(sub.field).0 >> sub.offset & ones
    };
    fields.iter().map(bits).collect()
}

impl Evictable {
    fn change(&mut self, group: &[u128], change: impl FnOnce(&mut BTreeSet<Rank>)) {
        let ranks = self.groups.entry(group.to_vec()).or_default();
        let before = ranks.len();
        change(ranks);
        let after = ranks.len();
        self.sizes.remove(&(before, group.to_vec()));
        if after == 0 {
            self.groups.remove(group);
        } else {
            self.sizes.insert((after, group.to_vec()));
        }
    }

    pub fn add(&mut self, rule: &Rule, limits: &TableLimits, last_used_ms: u64) {
        let Some(ends) = ends_ms(rule, last_used_ms).filter(|_| limits.evicts) else { return };
        let rank = (rule.importance, ends, rule.serial, rule.idx);
        let group = group_of(rule, &limits.groups);
        self.change(&group, |ranks| {
            ranks.insert(rank);
        });
        self.ranks.insert(rule.serial, (group, rank));
    }

    pub fn remove(&mut self, serial: u64) {
        if let Some((group, rank)) = self.ranks.remove(&serial) {
            self.change(&group, |ranks| {
                ranks.remove(&rank);
            });
        }
    }

    /// Forgets all, but not when use was last noted.
    pub fn clear(&mut self) {
        *self = Evictable { noted_ms: self.noted_ms, ..Evictable::default() };
    }

    /// The place and serial number of the rule that goes first.
    fn first(&self) -> Option<(u32, u64)> {
        let (_, group) = self.sizes.last()?;
        self.groups[group].first().map(|&(_, _, serial, idx)| (idx, serial))
    }
}

impl Control {
    /// Sets how many rules a table may hold. Where rules are evicted, those that are too many go at once.
    pub fn set_table_limits(&mut self, bridge: BridgeIdx, table_id: u8, limits: TableLimits, now_ms: u64) {
        self.reader.quiescent();
        let (inner, reader) = (&mut self.inner, &self.reader);
        if inner.bridge(bridge).is_none() {
            return;
        }
        let store = inner.table(bridge, table_id);
        if store.limits == limits {
            return;
        }
        store.limits = limits;
        store.order_evictable(|_| 0);
        let mut batch = Batch::default();
        while inner.table(bridge, table_id).is_over()
            && inner.evict_rule(bridge, table_id, &mut batch, reader).is_ok()
        {}
        inner.remove_orphans(&mut batch, reader);
        inner.put_in_force(batch, now_ms);
    }

    /// Notes when rules were last used, in those tables of a bridge that evict rules and are full. `slots`
    /// has the counters.
    pub fn note_use(&mut self, bridge: BridgeIdx, now_ms: u64, slots: &dyn SlotReader) {
        let Some(control) = self.inner.bridge(bridge) else { return };
        for store in control.tables.values_mut() {
            let is_due = now_ms.saturating_sub(store.evictable.noted_ms) >= NOTE_USE_MS;
            if store.limits.evicts && store.is_full() && is_due {
                store.order_evictable(|rule| slots.read(rule.slot).last_used_ms);
                store.evictable.noted_ms = now_ms;
            }
        }
    }
}

impl Inner {
    /// Makes room in a table that is full, if there is a rule that can go.
    pub(super) fn make_room_for_rule(
        &mut self,
        bridge: BridgeIdx,
        table_id: u8,
        batch: &mut Batch,
        reader: &Reader,
    ) -> Result<(), FlowModError> {
        if self.table(bridge, table_id).is_full() {
            self.evict_rule(bridge, table_id, batch, reader)
        } else {
            Ok(())
        }
    }

    fn evict_rule(
        &mut self,
        bridge: BridgeIdx,
        table_id: u8,
        batch: &mut Batch,
        reader: &Reader,
    ) -> Result<(), FlowModError> {
        let first = self.table(bridge, table_id).evictable.first();
        let rule = first.and_then(|(idx, serial)| self.rule_at(bridge, table_id, idx, serial));
        let rule = rule.ok_or(FlowModError::TableFull)?;
        self.remove(rule, Some(RemovedReason::Eviction), false, batch, reader);
        Ok(())
    }
}

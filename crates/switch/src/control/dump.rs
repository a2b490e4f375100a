//! Data for statistics: rules by filter, in pieces; tables; memory.

use super::state::Control;
use crate::flow_mod::TABLE_ALL;
use crate::rule::Rule;
use crate::shape::MiniMatch;
use crate::topology::BridgeIdx;
use base::OfPort;
use flow::Match;
use std::sync::Arc;

/// Which rules a request selects.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleFilter {
    /// The table, or [`TABLE_ALL`].
    pub table_id: u8,
    /// Rules within this match.
    pub matching: Match,
    /// With these bits of the cookie ...
    pub cookie: u64,
    /// ... under this mask.
    pub cookie_mask: u64,
    /// Rules that output to this port.
    pub out_port: Option<OfPort>,
    /// Rules that use this group.
    pub out_group: Option<u32>,
    /// Include the switch's own rules.
    pub hidden: bool,
}

impl Default for RuleFilter {
    fn default() -> Self {
        RuleFilter {
            table_id: TABLE_ALL,
            matching: Match::any(),
            cookie: 0,
            cookie_mask: 0,
            out_port: None,
            out_group: None,
            hidden: false,
        }
    }
}

/// Where a dump continues. Starts with `Cursor::default()`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cursor {
    table: u16,
    idx: usize,
}

/// A table's counters' slots and size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStats {
    /// The table.
    pub table_id: u8,
    /// Rules in it.
    pub active: usize,
    /// Counts packets that matched.
    pub matched_slot: u32,
    /// Counts packets that did not; look-ups are the sum of both.
    pub missed_slot: u32,
}

impl Control {
    /// Calls `each` with rules, visiting at most `places` places, starting at `cursor`. `None` once all were
    /// visited. Rules added or removed between two calls may or may not be included; all others are, exactly
    /// once. Ordered by table, then roughly by time of addition.
    pub fn dump(
        &self,
        bridge: BridgeIdx,
        filter: &RuleFilter,
        cursor: Cursor,
        mut places: usize,
        mut each: impl FnMut(&Arc<Rule>),
    ) -> Option<Cursor> {
        let control = self.inner.bridge(bridge)?;
        let within = MiniMatch::of(&filter.matching);
        let wanted = |rule: &Rule| {
            rule.matching.is_within(&within)
                && (rule.cookie ^ filter.cookie) & filter.cookie_mask == 0
                && (filter.hidden || !rule.flags.hidden)
                && filter.out_port.is_none_or(|p| rule.actions.outputs_to(p))
                && filter.out_group.is_none_or(|g| rule.actions.uses_group(g))
        };
        let Cursor { table, mut idx } = cursor;
        let first = u8::try_from(table).ok()?;
        let tables = control.tables.range(first..);
        for (id, store) in tables.filter(|(id, _)| filter.table_id == TABLE_ALL || **id == filter.table_id) {
            if u16::from(*id) != table {
                idx = 0;
            }
            while idx < store.rules.len() {
                if places == 0 {
                    return Some(Cursor { table: u16::from(*id), idx });
                }
                if let Some(rule) = &store.rules[idx]
                    && wanted(rule)
                {
                    each(rule);
                }
                idx += 1;
                places -= 1;
            }
        }
        None
    }

    /// All rules within a filter, at once.
    pub fn rules(&self, bridge: BridgeIdx, filter: &RuleFilter) -> Vec<Arc<Rule>> {
        let mut all = Vec::new();
        let left = self.dump(bridge, filter, Cursor::default(), usize::MAX, |rule| all.push(rule.clone()));
        debug_assert!(left.is_none());
        all
    }

    /// The tables that have ever contained a rule, and table 0.
    pub fn table_stats(&self, bridge: BridgeIdx) -> Vec<TableStats> {
        let Some(control) = self.inner.bridge(bridge) else { return Vec::new() };
        let stats = control.tables.iter().map(|(id, store)| TableStats {
            table_id: *id,
            active: store.shown,
            matched_slot: store.matched_slot,
            missed_slot: store.missed_slot,
        });
        stats.collect()
    }

    /// How many rules of a table clients see.
    pub fn flow_count(&self, bridge: BridgeIdx, table_id: u8) -> usize {
        let store = self.inner.bridge(bridge).and_then(|control| control.tables.get(&table_id));
        store.map_or(0, |store| store.shown)
    }

    /// Memory used by the rules of all bridges, including everything that belongs to them except workers'
    /// counters.
    pub fn rules_memory_bytes(&self) -> usize {
        let mut bytes = 0;
        for control in self.inner.bridges.iter().flatten() {
            for (id, store) in &control.tables {
                let table = control.state.table(*id).expect("a table with a store was made");
                bytes += table.rules.memory_bytes(&self.reader);
                bytes += store.memory_bytes();
            }
        }
        bytes
    }
}

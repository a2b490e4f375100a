//! Setting a table's limit, and evicting rules of a full table in the order of [`super::eviction`].

use super::change::{Batch, SlotAfter, Transaction};
use super::events::RemovedReason;
use super::eviction::TableLimits;
use super::state::{Control, Inner};
use crate::slots::SlotReader;
use crate::topology::BridgeIdx;
use base::rcu::Reader;

/// Places whose rules are ordered between two checks whether the turn is over.
const ORDERED_AT_ONCE: usize = 256;
/// Rules evicted per version when a limit is lowered.
const EVICTED_AT_ONCE: usize = 256;
/// Entries of a discarded order that are freed between two checks whether the turn is over.
const FREED_AT_ONCE: usize = 256;

impl Control {
    /// Does a turn, which ends soon after `is_over` returns true, of setting a table's limit. If rules are
    /// evicted, the surplus ones go, some hundred per version; until all rules are in order there is no
    /// limit. `slots` has the counters. Returns whether it is done; if not, call it again. Readers in pieces
    /// see it as a transaction ([`Self::transactions`]).
    pub fn set_table_limits(
        &mut self,
        bridge: BridgeIdx,
        table_id: u8,
        limits: &TableLimits,
        now_ms: u64,
        slots: &dyn SlotReader,
        is_over: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.enter_to_change();
        let (inner, reader) = (&mut self.inner, &self.reader);
        if inner.bridge_mut(bridge).is_none() {
            return true;
        }
        let store = inner.table(bridge, table_id);
        if store.coming.as_ref().map_or(&store.limits, |(coming, _)| coming) != limits {
            store.limits = TableLimits { rules_max: None, ..limits.clone() };
            store.given_up.push(store.evictable.give_up());
            store.coming = Some((limits.clone(), 0));
            self.transactions += 1;
        }
        while let Some(given_up) = store.given_up.last_mut() {
            if given_up.by_ref().take(FREED_AT_ONCE).count() < FREED_AT_ONCE {
                store.given_up.pop();
            } else if is_over() {
                return false;
            }
        }
        while let Some((coming, ordered)) = &mut store.coming {
            let end = store.rules.len().min(*ordered + ORDERED_AT_ONCE);
            store.evictable.order(&store.rules[*ordered..end], &store.limits, slots);
            *ordered = end;
            if end == store.rules.len() || !store.limits.evicts {
                store.limits = std::mem::take(coming);
                store.coming = None;
            } else if is_over() {
                return false;
            }
        }
        loop {
            let mut transaction = Transaction::new(None, now_ms);
            let may_go_on = (0..EVICTED_AT_ONCE).all(|_| {
                inner.table(bridge, table_id).is_over()
                    && inner.evict_rule(bridge, table_id, &mut transaction.batch, reader).is_some()
            });
            inner.complete(transaction, reader);
            if !may_go_on || is_over() {
                return !may_go_on;
            }
        }
    }

    /// Notes which rules were used, in those tables of a bridge that evict rules if `wanted` are added. Call
    /// it before adding them. `slots` has the counters.
    pub fn note_use(&mut self, bridge: BridgeIdx, wanted: usize, slots: &dyn SlotReader) {
        let Some(control) = self.inner.bridge_mut(bridge) else { return };
        control.tables.values_mut().for_each(|store| store.note_use(wanted, slots));
    }
}

impl Inner {
    /// Evicts a rule of a table. `None`: there is none that can be.
    pub(super) fn evict_rule(
        &mut self,
        bridge: BridgeIdx,
        table_id: u8,
        batch: &mut Batch,
        reader: &Reader,
    ) -> Option<()> {
        let (idx, serial) = self.table(bridge, table_id).evictable.first()?;
        let rule = self.rule_at(bridge, table_id, idx, serial)?;
        self.remove(rule, Some(RemovedReason::Eviction), SlotAfter::Retired, batch, reader);
        Some(())
    }
}

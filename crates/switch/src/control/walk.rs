//! What loose commands select: the rules within a match, a few at once or a whole table in pieces.
//!
//! If few masks have candidates, rules are found by mask. If there may be more than some hundred rules, the
//! places of a table are visited one by one, and the walk can pause anywhere: a removed rule leaves its place
//! free, and a modified one takes the old one's place at once.

use super::change::{Made, Pace, SlotAfter, Transaction, Walk};
use super::events::RemovedReason;
use super::state::Inner;
use crate::flow_mod::{Command, FlowMod, FlowModError, TABLE_ALL};
use crate::rule::Rule;
use crate::shape::MiniMatch;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use std::sync::Arc;

/// Maximum number of rules collected at once.
const AT_ONCE_MAX: usize = 1_000;
/// Places visited per small step.
pub(super) const PLACES_PER_STEP: usize = 256;
/// Masks compared per small step.
const MASKS_PER_STEP: usize = 16;

impl FlowMod {
    /// Whether a loose or strict command selects this rule, given that the match fits.
    pub(super) fn selects(&self, rule: &Rule) -> bool {
        let deletes = matches!(self.command, Command::Delete | Command::DeleteStrict);
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.flags.hidden || !rule.flags.hidden)
            && (!deletes || self.out_port.is_none_or(|p| rule.actions.outputs_to(p)))
            && (!deletes || self.out_group.is_none_or(|g| rule.actions.uses_group(g)))
    }
}

impl Inner {
    /// Calls `each`, which takes so many steps beside those of the rule, for the rules that a loose command
    /// selects, and returns their number; `None`: the turn is over.
    #[expect(clippy::too_many_arguments, reason = "what a command is, and what a turn consists of")]
    pub(super) fn for_each_within(
        &mut self,
        bridge: BridgeIdx,
        fm: &FlowMod,
        own_steps: usize,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
        mut each: impl FnMut(&mut Inner, Arc<Rule>, &mut Transaction) -> Result<(), FlowModError>,
    ) -> Result<Option<usize>, FlowModError> {
        let Walk::Rules { mut table, mut idx, mut found } = transaction.walk else {
            let masks = self.count_masks(bridge, fm.table_id, reader);
            pace.count(masks / MASKS_PER_STEP);
            let within = self.count_within(bridge, fm, reader);
            transaction.look_at(masks + within.min(AT_ONCE_MAX))?;
            if within <= AT_ONCE_MAX {
                let selected = self.select(bridge, fm, reader);
                let small_steps: usize = selected.iter().map(|rule| rule.actions.steps() + own_steps).sum();
                if small_steps <= AT_ONCE_MAX || selected.len() == 1 {
                    let count = selected.len();
                    for rule in selected {
                        each(self, rule, transaction)?;
                    }
                    return Ok(Some(count));
                }
            }
            transaction.walk = Walk::Rules { table: 0, idx: 0, found: 0 };
            return self.for_each_within(bridge, fm, own_steps, transaction, pace, reader, each);
        };
        let within = MiniMatch::of(&fm.matching);
        let is_wanted = |rule: &Rule| rule.matching.is_within(&within) && fm.selects(rule);
        while let Some((id, rules)) = self.rules_from(bridge, fm.table_id, table) {
            if u16::from(id) != table {
                (table, idx) = (u16::from(id), 0);
            }
            let end = rules.len().min(idx + PLACES_PER_STEP);
            let next = rules[idx..end].iter().position(|rule| rule.as_deref().is_some_and(is_wanted));
            transaction.look_at(next.map_or(end - idx, |at| at + 1))?;
            let mut steps = 1;
            match next {
                Some(at) => {
                    idx += at;
                    let rule = rules[idx].clone().expect("it was looked at");
                    (idx, found) = (idx + 1, found + 1);
                    steps = rule.actions.steps() + own_steps;
                    each(self, rule, transaction)?;
                }
                None if end == rules.len() => (table, idx) = (table + 1, 0),
                None => idx = end,
            }
            if pace.is_over_after(steps) {
                transaction.walk = Walk::Rules { table, idx, found };
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// The first table from this one on that a command covers, and its rules.
    fn rules_from(&self, bridge: BridgeIdx, table_id: u8, from: u16) -> Option<(u8, &[Option<Arc<Rule>>])> {
        let control = self.bridge(bridge)?;
        let first = u8::try_from(from).ok()?;
        let mut tables = control.tables.range(first..);
        let (id, store) = tables.find(|(id, _)| table_id == TABLE_ALL || **id == table_id)?;
        Some((*id, &store.rules))
    }

    /// Deletes everything within a match.
    pub(super) fn delete_within(
        &mut self,
        bridge: BridgeIdx,
        fm: &FlowMod,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Made, FlowModError> {
        let delete = |inner: &mut Inner, rule: Arc<Rule>, transaction: &mut Transaction| {
            inner.remove(
                rule,
                Some(RemovedReason::Delete),
                SlotAfter::Retired,
                &mut transaction.batch,
                reader,
            );
            Ok(())
        };
        match self.for_each_within(bridge, fm, 0, transaction, pace, reader, delete) {
            Ok(None) => Ok(Made::InPart),
            Ok(Some(_)) => Ok(Made::Whole),
            Err(error) => Err(error),
        }
    }
}

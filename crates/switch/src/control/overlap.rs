//! Additions that must not overlap a rule of their priority (OFPFF_CHECK_OVERLAP).
//!
//! Rules are looked at mask by mask, those of most masks none at all (see [`flow::Classifier`]). If it may be
//! very many, the places of the table are visited one by one instead, since that can pause anywhere, as the
//! walk of loose commands does.

use super::change::{Made, Pace, Transaction, Walk};
use super::state::Inner;
use super::walk::PLACES_PER_STEP;
use crate::flow_mod::{Command, FlowMod, FlowModError};
use crate::shape::MiniMatch;
use crate::topology::BridgeIdx;
use base::rcu::Reader;

/// Maximum number of rules looked at without a pause: about a millisecond.
const AT_ONCE_MAX: usize = 1 << 14;

impl Inner {
    /// At how many rules a flow-mod looks to see whether the one that it adds overlaps them, at most.
    pub(super) fn overlap_looks(&self, bridge: BridgeIdx, fm: &FlowMod, reader: &Reader) -> usize {
        let adds = !matches!(fm.command, Command::Delete | Command::DeleteStrict);
        let control = self.bridge(bridge).filter(|_| adds && fm.flags.check_overlap);
        let Some(control) = control else { return 0 };
        let table_id = fm.added_to();
        let (Some(table), Some(store)) = (control.state.table(table_id), control.tables.get(&table_id))
        else {
            return 0;
        };
        match table.rules.overlap_looks(&fm.matching, fm.priority, AT_ONCE_MAX, reader) {
            few if few <= AT_ONCE_MAX => few,
            _ => store.rules.len(),
        }
    }

    /// Whether the rule that a flow-mod adds to an existing table overlaps another one, which is an error.
    pub(super) fn check_overlap(
        &self,
        bridge: BridgeIdx,
        fm: &FlowMod,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Made, FlowModError> {
        let (control, table_id) = (self.bridge(bridge).expect("the caller has looked"), fm.added_to());
        let mut at = 0;
        if let Walk::Overlap(next) = transaction.walk {
            at = next;
        } else {
            let rules = &control.state.table(table_id).expect("it exists").rules;
            let looks = rules.overlap_looks(&fm.matching, fm.priority, AT_ONCE_MAX, reader);
            if looks <= AT_ONCE_MAX {
                transaction.look_at(looks)?;
                pace.count(looks / PLACES_PER_STEP);
                let overlapped = rules.find_overlap(&fm.matching, fm.priority, self.coming(), reader);
                return if overlapped.is_some() { Err(FlowModError::Overlap) } else { Ok(Made::Whole) };
            }
        }
        // Those that the coming version shows.
        let rules = &control.tables.get(&table_id).expect("it exists").rules;
        let new = MiniMatch::of(&fm.matching);
        while at < rules.len() {
            let end = rules.len().min(at + PLACES_PER_STEP);
            transaction.look_at(end - at)?;
            let mut of_priority = rules[at..end].iter().flatten().filter(|rule| rule.priority == fm.priority);
            if of_priority.any(|rule| rule.matching.overlaps(&new)) {
                return Err(FlowModError::Overlap);
            }
            at = end;
            if pace.is_over() {
                transaction.walk = Walk::Overlap(at);
                return Ok(Made::InPart);
            }
        }
        Ok(Made::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::rule::RuleFlags;
    use crate::topology::BridgeConfig;
    use base::hash::HashKey;
    use base::rcu::Domain;
    use flow::{FieldId, Match};
    use openflow::ErrorKind;

    /// Each of a bundle of a hundred thousand looked at a million rules, and nobody counted them.
    #[test]
    fn a_transaction_may_look_at_so_many_rules() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let port = |port: u128| Match::any().with(FieldId::InPort, port);
        for rules in [1_000, AT_ONCE_MAX as u128 + 1_000] {
            for n in 0..rules {
                let fm = FlowMod::add(port(1).with(FieldId::EthSrc, n), Vec::new());
                control.flow_mod(bridge, &fm, 0).unwrap();
            }
            let flags = RuleFlags { check_overlap: true, ..RuleFlags::default() };
            let fm = FlowMod { flags, ..FlowMod::add(port(2).with(FieldId::EthDst, 1), Vec::new()) };
            let Control { inner, reader, .. } = &mut control;
            for (at, is_refused) in [(0, false), (1, true)] {
                let mut transaction = Transaction::new(None, 0);
                transaction.look_at((1 << 29) - 500).unwrap();
                transaction.at = at;
                let checked = inner.check_overlap(bridge, &fm, &mut transaction, &mut Pace::none(), reader);
                let refused = FlowModError::Refused(ErrorKind::OFPBFC_MSG_FAILED);
                assert_eq!(checked, if is_refused { Err(refused) } else { Ok(Made::Whole) }, "{rules}");
            }
        }
    }
}

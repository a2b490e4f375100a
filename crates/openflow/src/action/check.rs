//! Whether actions are compatible with a match: the part of a flow-mod's validity that no single part of it
//! shows.
//!
//! An action that reads or writes a field needs what the field requires, either from the match or from
//! earlier actions. OpenFlow 1.0's own actions are the exception: they do nothing to packets without the
//! header in question, so a flow with one can still be expressed in that version. Sources: OpenFlow 1.3
//! sections 5.12 and 6.4; ovs-actions(7), "Error handling".

use super::checker::Checker;
use super::table::check;
use crate::error::ErrorKind::{self, *};
use crate::version::Version;
use flow::{Action, Match};

/// Checks the actions of a rule. `table_id` is the rule's table, if known; goto-table must go forwards from
/// it.
pub fn check_actions(
    version: Version,
    matching: &Match,
    actions: &[Action],
    table_id: Option<u8>,
) -> Result<(), ErrorKind> {
    let is_inconsistent = is_inconsistent(version, matching, actions, table_id)?;
    if is_inconsistent { Err(OFPBAC_MATCH_INCONSISTENT) } else { Ok(()) }
}

/// The same of the actions before one that is known to be wrong. What OpenFlow 1.0 allows, and other versions
/// refuse, is reported after that one, as in Open vSwitch.
pub fn check_actions_before(
    version: Version,
    matching: &Match,
    actions: &[Action],
    table_id: Option<u8>,
) -> Result<(), ErrorKind> {
    is_inconsistent(version, matching, actions, table_id).map(|_| ())
}

/// Whether an action lacks what OpenFlow 1.0 does without and `version` does not.
fn is_inconsistent(
    version: Version,
    matching: &Match,
    actions: &[Action],
    table_id: Option<u8>,
) -> Result<bool, ErrorKind> {
    let mut checker = Checker::new(matching, table_id, check);
    checker.server = Some(version);
    checker.list(actions)?;
    Ok(checker.is_inconsistent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::action::{Ct, CtZone, Nat, NatSide, SubField};
    use flow::{FieldId, Mf};

    fn set(field: Mf) -> Action {
        Action::SetField { field, value: 1, mask: field.ones() }
    }

    fn load(field: Mf) -> Action {
        Action::Load { target: SubField { field, offset: 0, count: 1 }, value: 1, as_set_field: false }
    }

    fn push() -> Action {
        Action::PushVlan(0x8100)
    }

    fn tci(value: u128) -> Action {
        Action::SetField { field: Mf::VlanTci, value, mask: 0xffff }
    }

    #[test]
    fn clauses_of_conjunctions_stand_beside_notes_alone() {
        let clause = Action::Conjunction { id: 1, clause: 0, n_clauses: 2 };
        let check = |actions: &[Action]| check_actions(Version::V13, &Match::any(), actions, None);
        assert_eq!(check(&[clause.clone(), Action::Note(vec![1]), clause.clone()]), Ok(()));
        assert_eq!(check(&[Action::Exit, clause.clone()]), Err(NXBAC_BAD_CONJUNCTION));
        assert_eq!(check(&[clause, Action::Exit]), Err(NXBAC_BAD_CONJUNCTION));
    }

    #[test]
    fn translations_are_to_addresses_of_the_packets_family() {
        let to = |is_ipv6| {
            let nat = Nat { side: Some(NatSide::Dst), addresses: Some((1, 1)), is_ipv6, ..Nat::default() };
            let actions = vec![Action::Nat(nat)];
            let (zone, table) = (CtZone::Is(0), None);
            Action::Ct(Box::new(Ct { commit: true, force: false, zone, table, alg: 0, actions }))
        };
        for (eth_type, is_ipv6) in [(0x800, false), (0x86dd, true)] {
            let of = Match::any().with(FieldId::EthType, eth_type);
            let check = |action| check_actions(Version::V13, &of, &[action], None);
            assert_eq!(check(to(is_ipv6)), Ok(()));
            assert_eq!(check(to(!is_ipv6)), Err(OFPBAC_MATCH_INCONSISTENT));
        }
    }

    #[test]
    fn fields_need_their_prerequisites_as_matched_or_made() {
        let any = Match::any();
        let ip = Match::any().with(FieldId::EthType, 0x800);
        let udp = ip.clone().with(FieldId::NwProto, 17);
        let bad = Err(OFPBAC_MATCH_INCONSISTENT);
        type Verdict = Result<(), ErrorKind>;
        // Match, actions, verdict in 1.0, in 1.3.
        let cases: [(&Match, Vec<Action>, Verdict, Verdict); 18] = [
            (&any, vec![set(Mf::NwSrc)], Ok(()), bad),
            (&ip, vec![set(Mf::NwSrc)], Ok(()), Ok(())),
            (&any, vec![load(Mf::NwSrc)], bad, bad),
            (&any, vec![load(Mf::Reg(3)), set(Mf::EthDst)], Ok(()), Ok(())),
            (&ip, vec![set(Mf::UdpDst)], bad, bad),
            (&udp, vec![set(Mf::UdpDst), Action::SetTpDst(3)], Ok(()), Ok(())),
            (&ip, vec![Action::SetTpDst(3)], Ok(()), bad),
            (&any, vec![Action::PopVlan], Ok(()), bad),
            (&any, vec![Action::FinTimeout { idle_timeout_s: 1, hard_timeout_s: 0 }], Ok(()), bad),
            (&any, vec![push(), push(), Action::PopVlan, Action::PopVlan], Ok(()), Ok(())),
            (&any, vec![push(), Action::PopVlan, Action::PopVlan], Ok(()), bad),
            (&any, vec![tci(0x1005), Action::PopVlan], Ok(()), Ok(())),
            (&any, vec![tci(5), Action::PopVlan], Ok(()), bad),
            (&any, vec![Action::PushVlan(0x8100), set(Mf::VlanVid), Action::PopVlan], Ok(()), Ok(())),
            (&any, vec![Action::PushVlan(0x8100), Action::PopVlan, set(Mf::VlanPcp)], bad, bad),
            (&udp, vec![Action::PushMpls(0x8847), set(Mf::UdpDst)], bad, bad),
            (&udp, vec![Action::PushMpls(0x8847), set(Mf::MplsTc), Action::PopMpls(0x800)], Ok(()), Ok(())),
            (&ip, vec![Action::Clone(vec![Action::PushMpls(0x8847)]), set(Mf::NwTtl)], Ok(()), Ok(())),
        ];
        for (m, actions, v10, v13) in cases {
            assert_eq!(check_actions(Version::V10, m, &actions, None), v10, "{actions:?}");
            assert_eq!(check_actions(Version::V13, m, &actions, None), v13, "{actions:?}");
        }
    }

    #[test]
    fn tables_are_left_forwards_only() {
        let check =
            |next, table_id| check_actions(Version::V13, &Match::any(), &[Action::GotoTable(next)], table_id);
        assert_eq!(check(3, Some(2)), Ok(()));
        assert_eq!(check(3, None), Ok(()));
        assert_eq!(check(3, Some(3)), Err(OFPBIC_BAD_TABLE_ID));
        assert_eq!(check(254, Some(253)), Ok(()));
        assert_eq!(check(255, None), Err(OFPBIC_BAD_TABLE_ID));
    }

    #[test]
    fn tags_are_bounded_and_connections_are_not_written() {
        let check = |actions: &[Action]| check_actions(Version::V13, &Match::any(), actions, None);
        assert_eq!(check(&[push(), push()]), Ok(()));
        assert_eq!(check(&[push(), push(), push()]), Err(OFPBAC_BAD_TAG));
        assert_eq!(check(&[push(), push(), Action::PopVlan, push()]), Ok(()));
        for field in [Mf::CtMark, Mf::CtLabel] {
            assert_eq!(check(&[set(field)]), Err(OFPBAC_BAD_SET_ARGUMENT));
            assert_eq!(check(&[load(field)]), Err(OFPBAC_BAD_SET_ARGUMENT));
        }
    }
}

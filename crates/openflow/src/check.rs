//! Whether actions make sense after a match: the part of a flow-mod's validity that no single part of it shows.
//!
//! An action that reads or writes a field needs what the field requires, as matched or as made by the actions before
//! it. OpenFlow 1.0's own actions are the exception: they do nothing to packets without the header in question.
//! Sources: OpenFlow 1.3 section 6.4; ovs-actions(7), "Error handling".

use crate::error::ErrorKind::{self, *};
use crate::version::Version;
use flow::{Action, FieldId, Match, Mf};
use std::borrow::Cow;

/// Checks the actions of a rule. `table_id` is the rule's table, where one is known, which goto-table must leave
/// forwards.
pub fn check_actions(
    version: Version,
    matching: &Match,
    actions: &[Action],
    table_id: Option<u8>,
) -> Result<(), ErrorKind> {
    let tags = usize::from(matching.key.get64(FieldId::VlanTci) & TAGGED as u64 != 0);
    Checker { version, now: Cow::Borrowed(matching), tags, table_id, in_set: false }.check(actions)
}

/// Bit of a tag's word that says that there is one.
const TAGGED: u128 = 0x1000;
/// VLAN tags that are looked at.
const TAGS_MAX: usize = 2;

struct Checker<'a> {
    version: Version,
    /// What is known of the packet where the next action applies.
    now: Cow<'a, Match>,
    /// VLAN tags that it is known to have there.
    tags: usize,
    table_id: Option<u8>,
    /// In an action set: other tables may have changed the packet when it is carried out.
    in_set: bool,
}

impl Checker<'_> {
    fn check(&mut self, actions: &[Action]) -> Result<(), ErrorKind> {
        actions.iter().try_for_each(|action| self.check_action(action))
    }

    /// Of 1.0's own actions, the standard does not ask. Of what else has no field to name, nobody asks in an action set.
    fn needs(&self, mf: Mf) -> Result<(), ErrorKind> {
        if self.version == Version::V10 || self.in_set { Ok(()) } else { self.field(mf) }
    }

    fn field(&self, mf: Mf) -> Result<(), ErrorKind> {
        if self.now.has_prereq(mf) { Ok(()) } else { Err(OFPBAC_MATCH_INCONSISTENT) }
    }

    fn nested(&self, actions: &[Action], in_set: bool) -> Result<(), ErrorKind> {
        let now = Cow::Borrowed(&*self.now);
        let Checker { version, tags, table_id, .. } = *self;
        Checker { version, now, tags, table_id, in_set }.check(actions)
    }

    fn check_action(&mut self, action: &Action) -> Result<(), ErrorKind> {
        match action {
            Action::SetField { field, value, .. } => self.check_set_field(*field, *value)?,
            Action::Load { target, value } => {
                self.set(target.field)?;
                if target.field == Mf::VlanTci {
                    self.tci(u128::from(*value) << target.offset);
                }
            }
            Action::StackPop(target) | Action::CheckPktLarger { target, .. } => self.target(target.field)?,
            Action::StackPush(source) | Action::OutputReg { source, .. } => self.field(source.field)?,
            Action::Move { source, target } => {
                self.field(source.field)?;
                self.set(target.field)?;
            }
            Action::SetVlanVid { push_vlan_if_needed, .. }
            | Action::SetVlanPcp { push_vlan_if_needed, .. } => {
                if !push_vlan_if_needed {
                    self.needs(Mf::VlanPcp)?;
                }
                self.tagged(self.tags.max(1));
            }
            Action::PushVlan(_) if self.tags >= TAGS_MAX => return Err(OFPBAC_BAD_TAG),
            Action::PushVlan(_) => self.tagged(self.tags + 1),
            Action::PopVlan => {
                self.needs(Mf::VlanPcp)?;
                self.tagged(self.tags.saturating_sub(1));
            }
            Action::SetTpSrc(_) | Action::SetTpDst(_) => {
                self.needs(Mf::TcpSrc)
                    .or_else(|_| self.needs(Mf::UdpSrc))
                    .or_else(|_| self.needs(Mf::SctpSrc))?;
            }
            Action::SetNwTtl(_) | Action::DecTtl(_) => self.needs(Mf::NwTtl)?,
            Action::FinTimeout { .. } => self.needs(Mf::TcpSrc)?,
            Action::DecNshTtl => self.field(Mf::NshTtl)?,
            Action::SetMplsLabel(_) | Action::SetMplsTc(_) | Action::SetMplsTtl(_) | Action::DecMplsTtl => {
                self.needs(Mf::MplsLabel)?;
            }
            Action::PushMpls(eth_type) => self.eth_type(*eth_type),
            Action::PopMpls(eth_type) => {
                self.needs(Mf::MplsLabel)?;
                self.eth_type(*eth_type);
            }
            Action::Resubmit { ct: true, .. } => self.field(Mf::CtTpSrc)?,
            Action::GotoTable(next) => self.check_goto(*next)?,
            Action::Clone(actions) => self.nested(actions, self.in_set)?,
            Action::WriteActions(actions) => self.nested(actions, true)?,
            // These ask nothing of the match.
            Action::Output { .. }
            | Action::OutputTrunc { .. }
            | Action::Controller { .. }
            | Action::Enqueue { .. }
            | Action::SetOption { .. }
            | Action::DeleteField(_)
            | Action::SetTunnel { .. }
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::Resubmit { ct: false, .. }
            | Action::WriteMetadata { .. }
            | Action::ClearActions
            | Action::Sample { .. }
            | Action::CtClear
            | Action::Note(_)
            | Action::Exit
            | Action::Conjunction { .. }
            | Action::Group(_)
            | Action::Meter(_) => {}
        }
        Ok(())
    }

    fn check_goto(&self, next: u8) -> Result<(), ErrorKind> {
        let back = self.table_id.is_some_and(|table_id| next <= table_id);
        if back || next == 0xff { Err(OFPBIC_BAD_TABLE_ID) } else { Ok(()) }
    }

    fn check_set_field(&mut self, field: Mf, value: u128) -> Result<(), ErrorKind> {
        match field {
            Mf::EthSrc | Mf::EthDst | Mf::NwSrc | Mf::NwDst | Mf::NwTos if self.version == Version::V10 => {}
            _ => self.set(field)?,
        }
        if field == Mf::VlanTci {
            self.tci(value);
        }
        Ok(())
    }

    /// A field that is set, other than from the stack.
    fn set(&self, field: Mf) -> Result<(), ErrorKind> {
        match field {
            // They are the connection's, and set where it is tracked.
            Mf::CtMark | Mf::CtLabel => Err(OFPBAC_BAD_SET_ARGUMENT),
            _ => self.target(field),
        }
    }

    fn target(&self, field: Mf) -> Result<(), ErrorKind> {
        match field {
            // The identifier is of a tag that must be there, other than in a match.
            Mf::VlanVid => self.field(Mf::VlanPcp),
            _ => self.field(field),
        }
    }

    /// The whole tag's word is set: there is a tag or not, as it says.
    fn tci(&mut self, value: u128) {
        let tags = if value & TAGGED != 0 { self.tags.max(1) } else { self.tags.saturating_sub(1) };
        self.tagged(tags);
    }

    fn tagged(&mut self, tags: usize) {
        self.tags = tags;
        let tci = if tags > 0 { TAGGED } else { 0 };
        if u128::from(self.now.key.get64(FieldId::VlanTci)) & TAGGED != tci {
            self.now.to_mut().set_masked(FieldId::VlanTci, tci, TAGGED);
        }
    }

    /// Another Ethernet type: nothing further is known of what follows it.
    fn eth_type(&mut self, eth_type: u16) {
        let now = self.now.to_mut();
        now.set_masked(FieldId::EthType, eth_type.into(), 0xffff);
        now.set_masked(FieldId::NwProto, 0, 0);
        now.set_masked(FieldId::TpSrc, 0, 0);
        now.set_masked(FieldId::TpDst, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::action::SubField;

    fn set(field: Mf) -> Action {
        Action::SetField { field, value: 1, mask: field.ones() }
    }

    fn load(field: Mf) -> Action {
        Action::Load { target: SubField { field, offset: 0, count: 1 }, value: 1 }
    }

    fn push() -> Action {
        Action::PushVlan(0x8100)
    }

    fn tci(value: u128) -> Action {
        Action::SetField { field: Mf::VlanTci, value, mask: 0xffff }
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

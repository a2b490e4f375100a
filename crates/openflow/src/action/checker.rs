//! What is known about a packet while actions are checked one after the other.

use super::body::output_port;
use crate::error::ErrorKind::{self, *};
use crate::text::{Protocols, Remark};
use crate::version::Version;
use base::OfPort;
use flow::{Action, FieldId, Match, Mf};
use std::borrow::Cow;

/// Bit of a tag's word that means "present".
const TAGGED: u128 = 0x1000;
/// VLAN tags that are looked at.
const TAGS_MAX: usize = 2;

/// What is known about the packet when the next action is applied.
pub(super) struct Checker<'a> {
    packet: Cow<'a, Match>,
    /// VLAN tags that it is known to have.
    tags: usize,
    table_id: Option<u8>,
    /// In an action set: other tables may have changed the packet before it is executed, so requirements that
    /// name no field are not checked.
    in_set: bool,
    /// Within `ct`, where fields of the connection are set.
    pub in_ct: bool,
    /// The next action is one of OpenFlow 1.0's own, in its own form.
    lenient: bool,
    /// On the switch's side, the version of the controller, which sees to the rest.
    pub server: Option<Version>,
    /// There was an inconsistency that the controller's version refuses.
    pub is_inconsistent: bool,
    /// The encodings that can express all actions so far.
    pub protocols: Protocols,
    /// The first of what the stock tools log of fields that cannot be read or written.
    pub remark: Option<Remark>,
    /// Checks an action by its row.
    check: Check,
}

type Check = fn(&Action, &mut Checker) -> Result<(), ErrorKind>;

/// How an action uses a field, in the words of the stock tools.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Source,
    Destination,
    SetField,
}

impl Use {
    fn remark(self, field: Mf, lack: &str) -> Remark {
        let (module, words) = match self {
            Use::Source => ("meta_flow", "source field"),
            Use::Destination => ("meta_flow", "destination field"),
            Use::SetField => ("ofp_actions", "set_field"),
        };
        let name = match field {
            Mf::NwSrc => "ip_src".to_string(),
            Mf::NwDst => "ip_dst".to_string(),
            field => field.name(),
        };
        Remark { module, text: format!("{words} {name} {lack}") }
    }
}

/// What is known from outside, for actions within another action.
pub(super) struct Outside<'a> {
    packet: Cow<'a, Match>,
    tags: usize,
    in_set: bool,
}

impl<'a> Checker<'a> {
    pub fn new(matching: &'a Match, table_id: Option<u8>, check: Check) -> Checker<'a> {
        let tags = usize::from(matching.key.get64(FieldId::VlanTci) & TAGGED as u64 != 0);
        let packet = Cow::Borrowed(matching);
        let protocols = Protocols::ANY;
        Checker {
            packet,
            tags,
            table_id,
            in_set: false,
            in_ct: false,
            lenient: false,
            server: None,
            is_inconsistent: false,
            protocols,
            remark: None,
            check,
        }
    }

    /// Checks a list of actions.
    pub fn list(&mut self, actions: &[Action]) -> Result<(), ErrorKind> {
        let is_clause = |action: &Action| matches!(action, Action::Conjunction { .. });
        if actions.iter().any(is_clause)
            && actions.iter().any(|action| !is_clause(action) && !matches!(action, Action::Note(_)))
        {
            return Err(NXBAC_BAD_CONJUNCTION);
        }
        actions.iter().try_for_each(|action| {
            let lenient = self.server == Some(Version::V10)
                && matches!(
                    action,
                    Action::SetField {
                        field: Mf::EthSrc | Mf::EthDst | Mf::NwSrc | Mf::NwDst | Mf::NwTos,
                        ..
                    }
                );
            self.action(action, lenient)
        })
    }

    /// Checks one action. `lenient`: OpenFlow 1.0 takes it without its prerequisites.
    pub fn action(&mut self, action: &Action, lenient: bool) -> Result<(), ErrorKind> {
        self.lenient = lenient;
        (self.check)(action, self)
    }

    /// Enters the actions within an action.
    pub fn enter(&mut self, in_set: bool) -> Outside<'a> {
        let outside = Outside { packet: self.packet.clone(), tags: self.tags, in_set: self.in_set };
        self.in_set |= in_set;
        outside
    }

    /// Leaves them: they changed nothing for the actions after.
    pub fn leave(&mut self, outside: Outside<'a>) {
        Outside { packet: self.packet, tags: self.tags, in_set: self.in_set } = outside;
    }

    /// Checks the actions within an action, on the switch's side; the parser has checked them one by one.
    pub fn nested(&mut self, actions: &[Action], in_set: bool) -> Result<(), ErrorKind> {
        if self.server.is_none() {
            return Ok(());
        }
        let outside = self.enter(in_set);
        self.list(actions)?;
        self.leave(outside);
        Ok(())
    }

    /// Like [`Self::nested`], for the actions within `ct`.
    pub fn nested_in_ct(&mut self, actions: &[Action]) -> Result<(), ErrorKind> {
        self.in_ct = true;
        let result = self.nested(actions, false);
        self.in_ct = false;
        result
    }

    /// The field's value, if the rule matches it.
    pub fn matched(&self, field: FieldId) -> u64 {
        self.packet.key.get64(field)
    }

    /// Handles an inconsistency that OpenFlow 1.0 allows and other versions refuse.
    pub fn inconsistent(&mut self) -> Result<(), ErrorKind> {
        self.only_in(Protocols::OF10_ANY);
        self.is_inconsistent |= self.server.is_some_and(|version| version > Version::V10);
        Ok(())
    }

    /// Only these encodings can say it.
    pub fn only_in(&mut self, protocols: Protocols) {
        self.protocols = self.protocols.intersect(protocols);
    }

    /// Checks a requirement of an action that names no field.
    pub fn needs(&mut self, met: bool) -> Result<(), ErrorKind> {
        if met || self.in_set { Ok(()) } else { self.inconsistent() }
    }

    /// Whether the packet begins with an Ethernet header.
    pub fn is_ethernet(&self) -> bool {
        self.matched(FieldId::PacketType) == 0
    }

    pub fn is_ip(&self) -> bool {
        matches!(self.packet.eth_type(), 0x800 | 0x86dd)
    }

    pub fn is_ipv6(&self) -> bool {
        self.packet.eth_type() == 0x86dd
    }

    pub fn is_mpls(&self) -> bool {
        matches!(self.packet.eth_type(), 0x8847 | 0x8848)
    }

    pub fn is_nsh(&self) -> bool {
        self.packet.has_prereq(Mf::NshTtl)
    }

    pub fn has_connection(&self) -> bool {
        self.packet.has_connection()
    }

    pub fn has_vlan(&self) -> bool {
        self.tags > 0
    }

    /// Protocol above IP; 0 if unknown.
    pub fn nw_proto(&self) -> u64 {
        if self.is_ip() { self.packet.key.get64(FieldId::NwProto) } else { 0 }
    }

    /// A field that is read.
    pub fn reads(&mut self, field: Mf) -> Result<(), ErrorKind> {
        self.has(field).inspect_err(|_| self.lacks(Use::Source, field))
    }

    /// A field that must be there.
    pub fn has(&self, field: Mf) -> Result<(), ErrorKind> {
        if self.packet.has_prereq(field) { Ok(()) } else { Err(OFPBAC_MATCH_INCONSISTENT) }
    }

    /// A field that is written.
    pub fn writes(&mut self, field: Mf) -> Result<(), ErrorKind> {
        self.changes(field, Use::Destination)
    }

    fn changes(&mut self, field: Mf, as_what: Use) -> Result<(), ErrorKind> {
        if !field.row().writable {
            self.is_read_only(field);
            return Err(OFPBAC_BAD_SET_ARGUMENT);
        }
        self.has(field).inspect_err(|_| self.lacks(as_what, field))
    }

    /// Remarks that a field that should be written cannot be.
    pub fn is_read_only(&mut self, field: Mf) {
        self.remark.get_or_insert_with(|| Use::Destination.remark(field, "is not writable"));
    }

    /// Remarks that a learned rule's packets do not have a field that it should match or write.
    pub fn lacks_target(&mut self, field: Mf, matches: bool) {
        self.lacks(if matches { Use::Source } else { Use::Destination }, field);
    }

    fn lacks(&mut self, as_what: Use, field: Mf) {
        self.remark.get_or_insert_with(|| as_what.remark(field, "lacks correct prerequisites"));
    }

    /// A field that another one's bits are copied to.
    pub fn moves_to(&mut self, field: Mf) -> Result<(), ErrorKind> {
        if self.is_anothers(field) { Err(OFPBAC_BAD_SET_ARGUMENT) } else { self.writes(field) }
    }

    /// A field that is set to a value; `lenient` where OpenFlow 1.0 has an action for it.
    pub fn sets(&mut self, field: Mf) -> Result<(), ErrorKind> {
        match field {
            field if self.is_anothers(field) => Err(OFPBAC_BAD_SET_ARGUMENT),
            field if self.lenient => {
                if self.packet.has_prereq(field) {
                    Ok(())
                } else {
                    self.inconsistent()
                }
            }
            // Setting the identifier requires a tag, except in a match or when bits are copied.
            Mf::VlanVid if !self.has_vlan() => {
                self.lacks(Use::SetField, field);
                Err(OFPBAC_MATCH_INCONSISTENT)
            }
            field => self.changes(field, Use::SetField),
        }
    }

    /// Whether the field belongs to the connection and is set where that is tracked.
    fn is_anothers(&self, field: Mf) -> bool {
        matches!(field, Mf::CtMark | Mf::CtLabel) && !self.in_ct
    }

    /// The whole tag's word is set: there is a tag or not, as it says.
    pub fn set_tci(&mut self, value: u128) {
        let tags = if value & TAGGED != 0 { self.tags.max(1) } else { self.tags.saturating_sub(1) };
        self.tagged(tags);
    }

    /// There is a tag now, even if there was none before.
    pub fn has_tag_now(&mut self) {
        self.tagged(self.tags.max(1));
    }

    pub fn pushes_tag(&mut self) -> Result<(), ErrorKind> {
        if self.tags >= TAGS_MAX {
            return Err(OFPBAC_BAD_TAG);
        }
        self.tagged(self.tags + 1);
        Ok(())
    }

    pub fn pops_tag(&mut self) {
        self.tagged(self.tags.saturating_sub(1));
    }

    fn tagged(&mut self, tags: usize) {
        self.tags = tags;
        let tci = if tags > 0 { TAGGED } else { 0 };
        if u128::from(self.packet.key.get64(FieldId::VlanTci)) & TAGGED != tci {
            self.packet.to_mut().set_masked(FieldId::VlanTci, tci, TAGGED);
        }
    }

    /// Another Ethernet type: nothing further is known of what follows it.
    pub fn eth_type(&mut self, eth_type: u16) {
        let packet = self.packet.to_mut();
        packet.set_masked(FieldId::EthType, eth_type.into(), 0xffff);
        packet.set_masked(FieldId::NwProto, 0, 0);
        packet.set_masked(FieldId::TpSrc, 0, 0);
        packet.set_masked(FieldId::TpDst, 0, 0);
    }

    /// The packet now starts with another header: after an Ethernet header its type is known, otherwise
    /// nothing is.
    pub fn begins_with(&mut self, packet_type: u32) {
        if packet_type >> 16 == 1 {
            self.eth_type(packet_type as u16);
        }
        self.packet.to_mut().set_masked(FieldId::PacketType, packet_type.into(), u32::MAX.into());
    }

    /// The first header is gone. Behind one of Ethernet is what it names; what is behind another is known
    /// once it was taken off.
    pub fn loses_first_header(&mut self) {
        const UNKNOWN: u32 = 0xffff;
        let next = match self.matched(FieldId::PacketType) {
            0 => 1 << 16 | self.matched(FieldId::EthType) as u32,
            _ => UNKNOWN,
        };
        let packet = self.packet.to_mut();
        if next == UNKNOWN {
            packet.set_masked(FieldId::EthType, 0xffff, 0xffff);
        }
        packet.set_masked(FieldId::PacketType, next.into(), u32::MAX.into());
    }

    pub fn goes_to(&self, next: u8) -> Result<(), ErrorKind> {
        let back = self.table_id.is_some_and(|table_id| next <= table_id);
        if back || next == 0xff { Err(OFPBIC_BAD_TABLE_ID) } else { Ok(()) }
    }

    pub fn outputs_to(&self, port: OfPort) -> Result<(), ErrorKind> {
        output_port(port).map(drop)
    }
}

/// Whether the action sets something that only `ct` may set.
pub(crate) fn sets_connection(action: &Action) -> bool {
    target(action).is_some_and(is_of_connection)
}

/// The field that an action sets, if it is one that only sets.
pub(super) fn target(action: &Action) -> Option<Mf> {
    match action {
        Action::SetField { field, .. } => Some(*field),
        Action::Load { target, .. } | Action::Move { target, .. } => Some(target.field),
        _ => None,
    }
}

pub(super) fn is_of_connection(field: Mf) -> bool {
    matches!(field, Mf::CtMark | Mf::CtLabel)
}

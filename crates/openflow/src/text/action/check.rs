//! Whether actions agree with what the flow matches: a field is set only where the match (and the actions before) say that
//! the packet has it. OpenFlow 1.3 section 5.12 and 6.4; OpenFlow 1.0 lets most of it pass, so that a flow that breaks
//! a rule can often still be said in that version.

use crate::text::Protocols;
use base::OfPort;
use flow::action::SubField;
use flow::{Action, FieldId, Match, Mf};

/// The match as the actions so far have changed it, and what was found wrong.
pub(super) struct Checker {
    packet: Match,
    table: Option<u8>,
    /// In an action set: other tables may have changed the packet by the time it is carried out, so that what
    /// an action requires without naming a field is not asked for.
    in_set: bool,
    /// Name of the error of the first action that no version takes.
    pub error: Option<&'static str>,
    /// Those that take all actions so far.
    pub protocols: Protocols,
}

const INCONSISTENT: &str = "OFPBAC_MATCH_INCONSISTENT";

impl Checker {
    pub fn new(matching: &Match, table: Option<u8>) -> Checker {
        Checker { packet: matching.clone(), table, in_set: false, error: None, protocols: Protocols::ANY }
    }

    fn refuse(&mut self, error: &'static str) {
        self.error.get_or_insert(error);
    }

    /// Begins an action set; gives what holds outside of it.
    pub fn enter_set(&mut self) -> (Match, bool) {
        (self.packet.clone(), std::mem::replace(&mut self.in_set, true))
    }

    /// Ends an action set, which changes nothing for the actions after it.
    pub fn leave_set(&mut self, outside: (Match, bool)) {
        (self.packet, self.in_set) = outside;
    }

    /// Only OpenFlow 1.0 takes it.
    fn only_of10(&mut self) {
        if self.in_set {
            return;
        }
        self.protocols = self.protocols.intersect(Protocols::OF10_ANY);
    }

    fn is_ip(&self) -> bool {
        matches!(self.packet.eth_type(), 0x800 | 0x86dd)
    }

    fn has_vlan(&self) -> bool {
        self.packet.key.get64(FieldId::VlanTci) & 0x1000 != 0
    }

    /// `mod_vlan_vid` need not push a tag where there is one already.
    pub fn with_known_vlan(&self, action: Action) -> Action {
        match action {
            Action::SetVlanVid { vid, .. } if self.has_vlan() => {
                Action::SetVlanVid { vid, push_vlan_if_needed: false }
            }
            Action::SetVlanPcp { pcp, .. } if self.has_vlan() => {
                Action::SetVlanPcp { pcp, push_vlan_if_needed: false }
            }
            action => action,
        }
    }

    #[allow(clippy::collapsible_match)] // One arm a kind of action reads better than guards.
    /// Looks at an action. `lenient`: OpenFlow 1.0 takes it without its prerequisites.
    pub fn check(&mut self, action: &Action, lenient: bool) {
        match *action {
            Action::Output { port, .. } => self.port(port),
            Action::OutputTrunc { port, .. } => match port {
                OfPort::CONTROLLER
                | OfPort::TABLE
                | OfPort::NORMAL
                | OfPort::FLOOD
                | OfPort::ALL
                | OfPort::NONE => {
                    self.refuse("OFPBAC_BAD_OUT_PORT");
                }
                port => self.port(port),
            },
            Action::OutputReg { source, .. } | Action::StackPush(source) => self.read(source),
            Action::SetField { field, .. } if lenient => {
                if !self.packet.has_prereq(field) {
                    self.only_of10();
                }
            }
            Action::SetField { field, .. } => self.write(field),
            Action::SetTpSrc(_) | Action::SetTpDst(_) => {
                let proto = self.packet.key.get64(FieldId::NwProto);
                if !self.is_ip() || !matches!(proto, 6 | 17 | 132) {
                    self.only_of10();
                }
            }
            Action::SetNwTtl(_) | Action::DecTtl(_) => {
                if !self.is_ip() {
                    self.only_of10();
                }
            }
            Action::Load { target, .. } | Action::StackPop(target) => self.write(target.field),
            Action::Move { source, target } => {
                self.read(source);
                self.write(target.field);
            }
            Action::SetVlanVid { push_vlan_if_needed, .. }
            | Action::SetVlanPcp { push_vlan_if_needed, .. } => {
                if !self.has_vlan() && !push_vlan_if_needed {
                    self.only_of10();
                }
                self.packet.set_mf(Mf::VlanTci, 0x1000, 0x1000);
            }
            Action::PushVlan(_) => {
                self.protocols = self.protocols.intersect(Protocols::OF11_UP);
                self.packet.set_mf(Mf::VlanTci, 0x1000, 0x1000);
            }
            Action::PopVlan => {
                if !self.has_vlan() {
                    self.only_of10();
                }
                self.packet.set_mf(Mf::VlanTci, 0, 0);
            }
            Action::PushMpls(eth_type) | Action::PopMpls(eth_type) => {
                let is_mpls = matches!(self.packet.eth_type(), 0x8847 | 0x8848);
                if matches!(action, Action::PopMpls(_)) && !is_mpls {
                    self.only_of10();
                }
                self.packet.set_mf(Mf::EthType, eth_type.into(), 0xffff);
            }
            Action::SetMplsLabel(_) | Action::SetMplsTc(_) | Action::SetMplsTtl(_) | Action::DecMplsTtl => {
                if !matches!(self.packet.eth_type(), 0x8847 | 0x8848) {
                    self.only_of10();
                }
            }
            Action::DecNshTtl => {
                if self.packet.eth_type() != 0x894f {
                    self.only_of10();
                }
            }
            Action::FinTimeout { .. } => {
                if !self.is_ip() || self.packet.key.get64(FieldId::NwProto) != 6 {
                    self.only_of10();
                }
            }
            Action::CheckPktLarger { target, .. } => self.write(target.field),
            Action::GotoTable(table) => {
                if self.table.is_some_and(|own| own != 0xff && own >= table) {
                    self.refuse("OFPBIC_BAD_TABLE_ID");
                }
            }
            // Only what may be there or not can be deleted: a tunnel option.
            Action::DeleteField(field) if !matches!(field, Mf::TunMetadata(_)) => {
                self.refuse("OFPBAC_BAD_ARGUMENT");
            }
            Action::Meter(_) => self.protocols = self.protocols.intersect(Protocols::OF13_UP),
            Action::Enqueue { port, .. } => {
                if port >= OfPort::MAX && port != OfPort::IN_PORT && port != OfPort::LOCAL {
                    self.refuse("OFPBAC_BAD_OUT_PORT");
                }
            }
            _ => {}
        }
    }

    fn port(&mut self, port: OfPort) {
        if port >= OfPort::MAX && port < OfPort::IN_PORT || port == OfPort::NONE {
            self.refuse("OFPBAC_BAD_OUT_PORT");
        }
    }

    fn read(&mut self, source: SubField) {
        if !self.packet.has_prereq(source.field) {
            self.refuse(INCONSISTENT);
        }
    }

    fn write(&mut self, target: Mf) {
        if !target.row().writable {
            self.refuse("OFPBAC_BAD_SET_ARGUMENT");
        } else if !self.packet.has_prereq(target) || target == Mf::VlanVid && !self.has_vlan() {
            self.refuse(INCONSISTENT);
        }
    }
}

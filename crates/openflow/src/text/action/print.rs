//! Actions as `ovs-ofctl` prints them.

use crate::message::TABLE_ALL;
use crate::text::field::{display_name, write_subfield, write_value};
use crate::text::value::{write_dotted_hex, write_ethernet, write_hex};
use crate::text::{PortNames, put};
use crate::version::Version;
use base::OfPort;
use flow::action::{PacketInReason, SampleDirection, SubField};
use flow::options::Wide;
use flow::{Action, Mf};
use std::net::Ipv4Addr;

/// A list of actions in text: `drop` where it is empty.
pub fn actions_text(actions: &[Action], version: Version, ports: &PortNames) -> String {
    let mut out = String::new();
    write_actions(&mut out, actions, version, ports);
    out
}

/// Appends a list of actions. The version is that of the message that they came in: OpenFlow 1.0 writes
/// `mod_dl_src:..` what later versions write as `set_field:..->eth_src`.
pub fn write_actions(out: &mut String, actions: &[Action], version: Version, ports: &PortNames) {
    if actions.is_empty() {
        out.push_str("drop");
    }
    for (i, action) in actions.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        Writer { out, version, ports }.action(action);
    }
}

/// The name of a reason in the `controller` action and in packet-in messages.
pub(in crate::text) fn reason_name(reason: PacketInReason) -> &'static str {
    match reason {
        PacketInReason::NoMatch => "no_match",
        PacketInReason::Action => "action",
        PacketInReason::InvalidTtl => "invalid_ttl",
        PacketInReason::ActionSet => "action_set",
        PacketInReason::Group => "group",
        PacketInReason::PacketOut => "packet_out",
    }
}

struct Writer<'a> {
    out: &'a mut String,
    version: Version,
    ports: &'a PortNames,
}

impl Writer<'_> {
    fn action(&mut self, action: &Action) {
        let out = &mut *self.out;
        match *action {
            Action::Output { port, max_len } => self.output(port, max_len),
            Action::OutputReg { source, .. } => self.named_subfield("output:", source),
            Action::OutputTrunc { port, max_len } => {
                out.push_str("output(port=");
                self.ports.write(out, port);
                put!(out, ",max_len={max_len})");
            }
            Action::Controller { .. } => self.controller(action),
            Action::Enqueue { port, queue } => {
                out.push_str("enqueue:");
                self.ports.write(out, port);
                put!(out, ":{queue}");
            }
            Action::SetField { field, value, mask } => self.set_field(field, value, mask),
            Action::SetOption { idx, ref value, ref mask } => {
                put!(out, "set_field:{value}");
                if **mask != Wide::ONES {
                    put!(out, "/{mask}");
                }
                put!(out, "->tun_metadata{idx}");
            }
            Action::SetTpSrc(port) => put!(out, "mod_tp_src:{port}"),
            Action::SetTpDst(port) => put!(out, "mod_tp_dst:{port}"),
            Action::SetNwTtl(ttl) => put!(out, "mod_nw_ttl:{ttl}"),
            Action::Load { target, value } => {
                out.push_str("load:");
                write_hex(out, value.into());
                self.named_subfield("->", target);
            }
            Action::Move { source, target } => {
                self.named_subfield("move:", source);
                self.named_subfield("->", target);
            }
            Action::StackPush(source) => self.named_subfield("push:", source),
            Action::StackPop(target) => self.named_subfield("pop:", target),
            Action::SetVlanVid { vid, push_vlan_if_needed } => {
                put!(out, "{}_vlan_vid:{vid}", if push_vlan_if_needed { "mod" } else { "set" });
            }
            Action::SetVlanPcp { pcp, push_vlan_if_needed } => {
                put!(out, "{}_vlan_pcp:{pcp}", if push_vlan_if_needed { "mod" } else { "set" });
            }
            Action::PushVlan(tpid) => put!(out, "push_vlan:{tpid:#x}"),
            Action::PopVlan => {
                out.push_str(if self.version == Version::V10 { "strip_vlan" } else { "pop_vlan" })
            }
            Action::PushMpls(eth_type) => put!(out, "push_mpls:0x{eth_type:04x}"),
            Action::PopMpls(eth_type) => put!(out, "pop_mpls:0x{eth_type:04x}"),
            Action::SetMplsLabel(label) => put!(out, "set_mpls_label({label})"),
            Action::SetMplsTc(tc) => put!(out, "set_mpls_tc({tc})"),
            Action::SetMplsTtl(ttl) => put!(out, "set_mpls_ttl({ttl})"),
            Action::DecMplsTtl => out.push_str("dec_mpls_ttl"),
            Action::DecTtl(ref ids) => dec_ttl(out, ids),
            Action::DecNshTtl => out.push_str("dec_nsh_ttl"),
            Action::SetTunnel { id, wide } => {
                out.push_str(if wide || id > u32::MAX.into() { "set_tunnel64:" } else { "set_tunnel:" });
                put!(out, "{id:#x}");
            }
            Action::SetQueue(queue) => put!(out, "set_queue:{queue}"),
            Action::PopQueue => out.push_str("pop_queue"),
            Action::Resubmit { in_port, table, ct } => self.resubmit(in_port, table, ct),
            Action::GotoTable(table) => put!(out, "goto_table:{table}"),
            Action::WriteMetadata { value, mask } => {
                out.push_str("write_metadata:");
                put!(out, "{value:#x}");
                if mask != u64::MAX {
                    put!(out, "/{mask:#x}");
                }
            }
            Action::WriteActions(ref actions) => self.nested("write_actions(", actions),
            Action::ClearActions => out.push_str("clear_actions"),
            Action::Clone(ref actions) => self.nested("clone(", actions),
            Action::Sample { .. } => self.sample(action),
            Action::FinTimeout { idle_timeout_s, hard_timeout_s } => {
                fin_timeout(out, idle_timeout_s, hard_timeout_s)
            }
            Action::CtClear => out.push_str("ct_clear"),
            Action::DeleteField(field) => put!(out, "delete_field:{}", field.name()),
            Action::CheckPktLarger { length, target } => {
                put!(out, "check_pkt_larger({length})");
                self.named_subfield("->", target);
            }
            Action::Note(ref bytes) => {
                out.push_str("note:");
                write_dotted_hex(out, bytes);
            }
            Action::Exit => out.push_str("exit"),
            Action::Conjunction { id, clause, n_clauses } => {
                put!(out, "conjunction({id},{}/{n_clauses})", u16::from(clause) + 1);
            }
            Action::Group(id) => put!(out, "group:{id}"),
            Action::Meter(id) => put!(out, "meter:{id}"),
        }
    }

    fn named_subfield(&mut self, before: &str, sub: SubField) {
        self.out.push_str(before);
        write_subfield(self.out, sub);
    }

    fn nested(&mut self, name: &str, actions: &[Action]) {
        self.out.push_str(name);
        write_actions(self.out, actions, self.version, self.ports);
        self.out.push(')');
    }

    fn output(&mut self, port: OfPort, max_len: u16) {
        if port < OfPort::MAX {
            self.out.push_str("output:");
        }
        self.ports.write(self.out, port);
        if port == OfPort::CONTROLLER {
            put!(self.out, ":{max_len}");
        }
    }

    fn controller(&mut self, action: &Action) {
        let Action::Controller { max_len, reason, id, ref userdata, meter_id, pause } = *action else {
            return;
        };
        let out = &mut *self.out;
        if reason == PacketInReason::Action && id == 0 && userdata.is_empty() && meter_id.is_none() && !pause
        {
            put!(out, "CONTROLLER:{max_len}");
            return;
        }
        out.push_str("controller(");
        if reason != PacketInReason::Action {
            put!(out, "reason={},", reason_name(reason));
        }
        if max_len != u16::MAX {
            put!(out, "max_len={max_len},");
        }
        if id != 0 {
            put!(out, "id={id},");
        }
        if !userdata.is_empty() {
            out.push_str("userdata=");
            write_dotted_hex(out, userdata);
            out.push(',');
        }
        if pause {
            out.push_str("pause,");
        }
        if let Some(id) = meter_id {
            put!(out, "meter_id={id},");
        }
        out.pop();
        out.push(')');
    }

    fn set_field(&mut self, field: Mf, value: u128, mask: u128) {
        let out = &mut *self.out;
        if self.version <= Version::V11 && mask == field.ones() {
            match field {
                Mf::EthSrc | Mf::EthDst => {
                    out.push_str(if field == Mf::EthSrc { "mod_dl_src:" } else { "mod_dl_dst:" });
                    return write_ethernet(out, value as u64);
                }
                Mf::NwSrc => return put!(out, "mod_nw_src:{}", Ipv4Addr::from_bits(value as u32)),
                Mf::NwDst => return put!(out, "mod_nw_dst:{}", Ipv4Addr::from_bits(value as u32)),
                Mf::NwTos => return put!(out, "mod_nw_tos:{value}"),
                Mf::IpDscp => return put!(out, "mod_nw_tos:{}", value << 2),
                _ => {}
            }
        }
        out.push_str("set_field:");
        write_value(out, field, value, mask, self.ports);
        put!(out, "->{}", display_name(if field == Mf::InPortOxm { Mf::InPort } else { field }));
    }

    fn resubmit(&mut self, in_port: Option<OfPort>, table: Option<u8>, ct: bool) {
        let out = &mut *self.out;
        let table = table.filter(|&t| t != TABLE_ALL);
        if let (Some(port), None, false) = (in_port, table, ct) {
            out.push_str("resubmit:");
            return self.ports.write(out, port);
        }
        out.push_str("resubmit(");
        if let Some(port) = in_port {
            self.ports.write(out, port);
        }
        out.push(',');
        if let Some(table) = table {
            put!(out, "{table}");
        }
        out.push_str(if ct { ",ct)" } else { ")" });
    }

    fn sample(&mut self, action: &Action) {
        let Action::Sample {
            probability,
            collector_set_id,
            obs_domain_id,
            obs_point_id,
            sampling_port,
            direction,
        } = *action
        else {
            return;
        };
        let out = &mut *self.out;
        put!(out, "sample(probability={probability},collector_set_id={collector_set_id}");
        put!(out, ",obs_domain_id={obs_domain_id},obs_point_id={obs_point_id}");
        if sampling_port != OfPort::NONE {
            out.push_str(",sampling_port=");
            self.ports.write(out, sampling_port);
        }
        out.push_str(match direction {
            SampleDirection::Default => ")",
            SampleDirection::Ingress => ",ingress)",
            SampleDirection::Egress => ",egress)",
        });
    }
}

fn dec_ttl(out: &mut String, ids: &[u16]) {
    out.push_str("dec_ttl");
    if ids.is_empty() || ids == [0] {
        return;
    }
    for (i, id) in ids.iter().enumerate() {
        put!(out, "{}{id}", if i == 0 { "(" } else { "," });
    }
    out.push(')');
}

fn fin_timeout(out: &mut String, idle_s: u16, hard_s: u16) {
    out.push_str("fin_timeout(");
    if idle_s != 0 {
        put!(out, "idle_timeout={idle_s},");
    }
    if hard_s != 0 {
        put!(out, "hard_timeout={hard_s},");
    }
    if out.ends_with(',') {
        out.pop();
    }
    out.push(')');
}

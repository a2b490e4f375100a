//! Writing actions and instructions.
//!
//! Every action is written in the version's own form where it has one, else in Nicira's. What neither has (a meter in
//! OpenFlow 1.0) is left out: a switch shows what the version can say.

use super::nicira::{put_field, write_nicira, write_set_as_loads};
use super::{instruction, of10, of12};
use crate::codec::bytes::Put;
use crate::codec::matching::{write_entry, write_option};
use crate::version::Version;
use base::OfPort;
use flow::action::SubField;
use flow::options::{OptionMatch, Wide};
use flow::{Action, FieldId, Match, Mf};

/// Appends actions. The match that comes before them, where there is one, says which transport protocol
/// `mod_tp_src` means, and whether there is a VLAN tag.
pub(in crate::codec) fn write_actions(
    out: &mut Vec<u8>,
    version: Version,
    matching: Option<&Match>,
    actions: &[Action],
) {
    for action in actions {
        let written = if version == Version::V10 {
            write_of10(out, action)
        } else {
            write_of12(out, version, matching, action)
        };
        if !written {
            write_nicira(out, version, action);
        }
    }
}

/// An action of so many bytes: header, body, zeros.
fn put(out: &mut Vec<u8>, kind: u16, length: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let end = out.len() + usize::from(length);
    out.u16(kind);
    out.u16(length);
    body(out);
    out.zeros(end - out.len());
}

fn write_of10(out: &mut Vec<u8>, action: &Action) -> bool {
    match *action {
        Action::Output { port, max_len } => put(out, of10::OUTPUT, 8, |o| {
            o.u16(port.0);
            o.u16(max_len);
        }),
        Action::Enqueue { port, queue } => put(out, of10::ENQUEUE, 16, |o| {
            o.u16(port.0);
            o.zeros(6);
            o.u32(queue);
        }),
        Action::SetVlanVid { vid, .. } => put(out, of10::SET_VLAN_VID, 8, |o| o.u16(vid)),
        Action::SetVlanPcp { pcp, .. } => put(out, of10::SET_VLAN_PCP, 8, |o| o.u8(pcp)),
        Action::PopVlan => put(out, of10::STRIP_VLAN, 8, |_| ()),
        Action::SetTpSrc(port) => put(out, of10::SET_TP_SRC, 8, |o| o.u16(port)),
        Action::SetTpDst(port) => put(out, of10::SET_TP_DST, 8, |o| o.u16(port)),
        Action::SetNwTtl(ttl) => write_set_as_loads(out, Version::V10, Mf::NwTtl, ttl.into(), 0xff),
        Action::SetField { field, value, mask } => {
            if mask != field.ones() || !write_set10(out, field, value) {
                write_set_as_loads(out, Version::V10, field, value, mask);
            }
        }
        // In 1.0 a tag is pushed by setting what is in it; sets of actions and meters are not known.
        Action::PushVlan(_) | Action::WriteActions(_) | Action::ClearActions | Action::Meter(_) => {}
        _ => return false,
    }
    true
}

/// The field set exactly, if OpenFlow 1.0 has an action for it.
fn write_set10(out: &mut Vec<u8>, field: Mf, value: u128) -> bool {
    match field {
        Mf::EthSrc => put(out, of10::SET_DL_SRC, 16, |o| o.number(value, 6)),
        Mf::EthDst => put(out, of10::SET_DL_DST, 16, |o| o.number(value, 6)),
        Mf::NwSrc => put(out, of10::SET_NW_SRC, 8, |o| o.u32(value as u32)),
        Mf::NwDst => put(out, of10::SET_NW_DST, 8, |o| o.u32(value as u32)),
        Mf::NwTos => put(out, of10::SET_NW_TOS, 8, |o| o.u8(value as u8)),
        Mf::IpDscp => put(out, of10::SET_NW_TOS, 8, |o| o.u8((value as u8) << 2)),
        Mf::TcpSrc | Mf::UdpSrc => put(out, of10::SET_TP_SRC, 8, |o| o.u16(value as u16)),
        Mf::TcpDst | Mf::UdpDst => put(out, of10::SET_TP_DST, 8, |o| o.u16(value as u16)),
        Mf::VlanVid => put(out, of10::SET_VLAN_VID, 8, |o| o.u16(value as u16 & 0xfff)),
        Mf::VlanPcp => put(out, of10::SET_VLAN_PCP, 8, |o| o.u8(value as u8)),
        _ => return false,
    }
    true
}

fn put_set_field(out: &mut Vec<u8>, version: Version, field: Mf, value: u128, mask: u128) {
    put_set(out, |out| write_entry(out, field, version.minor(), value, mask));
}

fn put_set(out: &mut Vec<u8>, entry: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(of12::SET_FIELD);
    out.u16(0);
    entry(out);
    out.pad8(start);
    out.set_u16(start + 2, (out.len() - start) as u16);
}

fn write_of12(out: &mut Vec<u8>, version: Version, matching: Option<&Match>, action: &Action) -> bool {
    let set =
        |out: &mut Vec<u8>, field: Mf, value: u128| put_set_field(out, version, field, value, field.ones());
    let set_queue = |out: &mut Vec<u8>, queue: u32| put(out, of12::SET_QUEUE, 8, |o| o.u32(queue));
    let push_vlan = |out: &mut Vec<u8>, tpid: u16| put(out, of12::PUSH_VLAN, 8, |o| o.u16(tpid));
    let tagged = matching.is_some_and(|m| m.key.get64(FieldId::VlanTci) & 0x1000 != 0);
    let output = |out: &mut Vec<u8>, port: OfPort, max_len: u16| {
        put(out, of12::OUTPUT, 16, |o| {
            o.u32(port.to_u32());
            o.u16(max_len);
        });
    };
    if version == Version::V11
        && let Some(written) = write_of11(out, action)
    {
        return written;
    }
    match *action {
        Action::Move { source, target } if version >= Version::V15 => {
            put_copy_field(out, version, source, target)
        }
        Action::Meter(meter) if version >= Version::V15 => put(out, of12::METER, 8, |o| o.u32(meter)),
        Action::Output { port, max_len } => output(out, port, max_len),
        Action::Enqueue { port, queue } => {
            set_queue(out, queue);
            output(out, port, 0);
            write_nicira(out, version, &Action::PopQueue);
        }
        Action::SetField { field, value, mask } if mask == field.ones() || version >= Version::V15 => {
            // Of what only NXM has (nw_tos), OXM has the same under another name.
            match field {
                Mf::NwTos => set(out, Mf::IpDscp, value >> 2),
                field => put_set_field(out, version, field, value, mask),
            }
        }
        Action::SetField { field, value, mask } => write_set_as_loads(out, version, field, value, mask),
        Action::SetOption { idx, ref value, ref mask } if **mask == Wide::ONES => {
            let option = OptionMatch { idx, value: **value, mask: **mask, bytes: None };
            put_set(out, |out| write_option(out, version.minor(), &option));
        }
        Action::SetTunnel { id, .. } => set(out, Mf::TunId, id.into()),
        Action::SetVlanVid { vid, push_vlan_if_needed } => {
            if push_vlan_if_needed && !tagged {
                push_vlan(out, 0x8100);
            }
            set(out, Mf::VlanVid, u128::from(vid | 0x1000));
        }
        Action::SetVlanPcp { pcp, push_vlan_if_needed } => {
            if push_vlan_if_needed && !tagged {
                push_vlan(out, 0x8100);
            }
            set(out, Mf::VlanPcp, pcp.into());
        }
        Action::SetTpSrc(port) => set(out, transport_field(matching, true), port.into()),
        Action::SetTpDst(port) => set(out, transport_field(matching, false), port.into()),
        Action::SetNwTtl(ttl) => put(out, of12::SET_NW_TTL, 8, |o| o.u8(ttl)),
        Action::PushVlan(tpid) => push_vlan(out, tpid),
        Action::PopVlan => put(out, of12::POP_VLAN, 8, |_| ()),
        Action::PushMpls(eth_type) => put(out, of12::PUSH_MPLS, 8, |o| o.u16(eth_type)),
        Action::PopMpls(eth_type) => put(out, of12::POP_MPLS, 8, |o| o.u16(eth_type)),
        Action::SetMplsLabel(label) => set(out, Mf::MplsLabel, label.into()),
        Action::SetMplsTc(tc) => set(out, Mf::MplsTc, tc.into()),
        Action::SetMplsTtl(ttl) => put(out, of12::SET_MPLS_TTL, 8, |o| o.u8(ttl)),
        Action::DecMplsTtl => put(out, of12::DEC_MPLS_TTL, 8, |_| ()),
        Action::DecTtl(ref ids) if ids.is_empty() => put(out, of12::DEC_NW_TTL, 8, |_| ()),
        Action::SetQueue(queue) => set_queue(out, queue),
        Action::Group(group) => put(out, of12::GROUP, 8, |o| o.u32(group)),
        // Instructions, when they turn up among actions (in a packet-out), have no form.
        Action::WriteActions(_) | Action::ClearActions | Action::Meter(_) => {}
        _ => return false,
    }
    true
}

/// What OpenFlow 1.1 has in place of set-field; `None`: it is as in later versions.
fn write_of11(out: &mut Vec<u8>, action: &Action) -> Option<bool> {
    match *action {
        Action::SetVlanVid { vid, .. } => put(out, of12::SET_VLAN_VID, 8, |o| o.u16(vid)),
        Action::SetVlanPcp { pcp, .. } => put(out, of12::SET_VLAN_PCP, 8, |o| o.u8(pcp)),
        Action::SetTpSrc(port) => put(out, of12::SET_TP_SRC, 8, |o| o.u16(port)),
        Action::SetTpDst(port) => put(out, of12::SET_TP_DST, 8, |o| o.u16(port)),
        Action::SetMplsLabel(label) => put(out, of12::SET_MPLS_LABEL, 8, |o| o.u32(label)),
        Action::SetMplsTc(tc) => put(out, of12::SET_MPLS_TC, 8, |o| o.u8(tc)),
        Action::SetTunnel { .. } => return Some(false),
        Action::SetOption { .. } => return Some(false),
        Action::SetField { field, value, mask } => {
            if mask != field.ones() || !write_set11(out, field, value) {
                write_set_as_loads(out, Version::V11, field, value, mask);
            }
        }
        _ => return None,
    }
    Some(true)
}

/// The field set exactly, if OpenFlow 1.1 has an action for it.
fn write_set11(out: &mut Vec<u8>, field: Mf, value: u128) -> bool {
    match field {
        Mf::EthSrc => put(out, of12::SET_DL_SRC, 16, |o| o.number(value, 6)),
        Mf::EthDst => put(out, of12::SET_DL_DST, 16, |o| o.number(value, 6)),
        Mf::NwSrc => put(out, of12::SET_NW_SRC, 8, |o| o.u32(value as u32)),
        Mf::NwDst => put(out, of12::SET_NW_DST, 8, |o| o.u32(value as u32)),
        Mf::NwTos => put(out, of12::SET_NW_TOS, 8, |o| o.u8(value as u8)),
        Mf::IpDscp => put(out, of12::SET_NW_TOS, 8, |o| o.u8((value as u8) << 2)),
        Mf::NwEcn => put(out, of12::SET_NW_ECN, 8, |o| o.u8(value as u8)),
        Mf::TcpSrc | Mf::UdpSrc | Mf::SctpSrc => put(out, of12::SET_TP_SRC, 8, |o| o.u16(value as u16)),
        Mf::TcpDst | Mf::UdpDst | Mf::SctpDst => put(out, of12::SET_TP_DST, 8, |o| o.u16(value as u16)),
        Mf::MplsLabel => put(out, of12::SET_MPLS_LABEL, 8, |o| o.u32(value as u32)),
        Mf::MplsTc => put(out, of12::SET_MPLS_TC, 8, |o| o.u8(value as u8)),
        Mf::VlanVid => put(out, of12::SET_VLAN_VID, 8, |o| o.u16(value as u16 & 0xfff)),
        Mf::VlanPcp => put(out, of12::SET_VLAN_PCP, 8, |o| o.u8(value as u8)),
        _ => return false,
    }
    true
}

fn put_copy_field(out: &mut Vec<u8>, version: Version, source: SubField, target: SubField) {
    let start = out.len();
    out.u16(of12::COPY_FIELD);
    out.u16(0);
    [source.count, source.offset, target.offset, 0].into_iter().for_each(|n| out.u16(n));
    put_field(out, source.field, version.minor());
    put_field(out, target.field, version.minor());
    out.pad8(start);
    out.set_u16(start + 2, (out.len() - start) as u16);
}

/// Which field `mod_tp_src` or `mod_tp_dst` sets: that of the protocol matched, else TCP's.
fn transport_field(matching: Option<&Match>, source: bool) -> Mf {
    let (src, dst) = match matching.map(|m| m.key.get64(FieldId::NwProto)) {
        Some(17) => (Mf::UdpSrc, Mf::UdpDst),
        Some(132) => (Mf::SctpSrc, Mf::SctpDst),
        _ => (Mf::TcpSrc, Mf::TcpDst),
    };
    if source { src } else { dst }
}

/// Appends actions as the instructions of OpenFlow 1.1 and later.
pub(in crate::codec) fn write_instructions(
    out: &mut Vec<u8>,
    version: Version,
    matching: &Match,
    actions: &[Action],
) {
    let is_instruction = |action: &Action| {
        matches!(
            action,
            Action::Meter(_)
                | Action::ClearActions
                | Action::WriteActions(_)
                | Action::WriteMetadata { .. }
                | Action::GotoTable(_)
        )
    };
    for action in actions {
        if let Action::Meter(meter) = *action {
            put(out, instruction::METER, 8, |o| o.u32(meter));
        }
    }
    if !actions.iter().all(is_instruction) {
        let start = out.len();
        out.u16(instruction::APPLY_ACTIONS);
        out.zeros(6);
        // Runs of actions between instructions, so that none is copied.
        for run in actions.split(is_instruction) {
            write_actions(out, version, Some(matching), run);
        }
        out.set_u16(start + 2, (out.len() - start) as u16);
    }
    for action in actions {
        match action {
            Action::ClearActions => put(out, instruction::CLEAR_ACTIONS, 8, |_| ()),
            Action::WriteActions(set) => {
                let start = out.len();
                out.u16(instruction::WRITE_ACTIONS);
                out.zeros(6);
                write_actions(out, version, Some(matching), set);
                out.set_u16(start + 2, (out.len() - start) as u16);
            }
            Action::WriteMetadata { value, mask } => put(out, instruction::WRITE_METADATA, 24, |o| {
                o.zeros(4);
                o.u64(*value);
                o.u64(*mask);
            }),
            Action::GotoTable(table) => put(out, instruction::GOTO_TABLE, 8, |o| o.u8(*table)),
            _ => {}
        }
    }
}

//! Nicira's actions: reading and writing the bodies.

use super::decode::{append_actions, as_set_error, mpls_type, output_port, read_set_field};
use super::encode::write_actions;
use super::{EXPERIMENTER, NICIRA, controller2, nx};
use crate::codec::bytes::{Put, Reader};
use crate::codec::matching::{read_header, write_entry, write_header, write_option};
use crate::error::ErrorKind::{self, *};
use crate::version::Version;
use base::OfPort;
use flow::action::{PacketInReason, SampleDirection, SubField};
use flow::mf::NxmHeader;
use flow::options::{OptionMatch, Wide};
use flow::{Action, Mf};

/// The body of an action, after the subtype.
pub(super) fn read_nicira(
    version: Version,
    subtype: u16,
    b: &mut Reader,
    depth: u8,
) -> Result<Action, ErrorKind> {
    if nx::UNSUPPORTED.contains(&subtype) {
        return Err(OFPBAC_BAD_VENDOR_TYPE);
    }
    let action = match subtype {
        nx::RESUBMIT => {
            let port = b.u16()?;
            b.skip(4)?;
            Action::Resubmit { in_port: unless_in_port(port), table: None, ct: false }
        }
        nx::RESUBMIT_TABLE | nx::RESUBMIT_TABLE_CT => {
            let (port, table) = (b.u16()?, b.u8()?);
            b.zeros(3, NXBAC_MUST_BE_ZERO)?;
            let table = (table != 0xff).then_some(table);
            Action::Resubmit { in_port: unless_in_port(port), table, ct: subtype == nx::RESUBMIT_TABLE_CT }
        }
        nx::SET_TUNNEL => {
            b.skip(2)?;
            Action::SetTunnel { id: b.u32()?.into(), wide: false }
        }
        nx::SET_TUNNEL64 => {
            b.skip(6)?;
            Action::SetTunnel { id: b.u64()?, wide: true }
        }
        nx::SET_QUEUE => {
            b.skip(2)?;
            Action::SetQueue(b.u32()?)
        }
        nx::POP_QUEUE => padded(b, 6, Action::PopQueue)?,
        nx::REG_MOVE => {
            let (count, source, target) = (b.u16()?, b.u16()?, b.u16()?);
            let source = subfield(b, source, count, false)?;
            let target = subfield(b, target, count, true)?;
            b.zeros(b.len(), NXBAC_MUST_BE_ZERO)?;
            Action::Move { source, target }
        }
        nx::REG_LOAD => {
            let ofs_nbits = b.u16()?;
            let target = subfield(b, ofs_nbits >> 6, (ofs_nbits & 0x3f) + 1, true)?;
            let value = b.u64()?;
            if target.count < 64 && value >> target.count != 0 {
                return Err(OFPBAC_BAD_ARGUMENT);
            }
            load(target, value)
        }
        nx::REG_LOAD2 => read_set_field(b, true)?,
        nx::NOTE => Action::Note(b.take(b.len())?.to_vec()),
        nx::OUTPUT_REG | nx::OUTPUT_REG2 => read_output_reg(b, subtype)?,
        nx::EXIT => padded(b, 6, Action::Exit)?,
        nx::DEC_TTL => padded(b, 6, Action::DecTtl(Vec::new()))?,
        nx::DEC_TTL_CNT_IDS => {
            let n = usize::from(b.u16()?);
            b.zeros(4, NXBAC_MUST_BE_ZERO)?;
            let mut ids = b.sub(2 * n)?;
            b.skip(b.len())?;
            Action::DecTtl((0..n).map(|_| ids.u16()).collect::<Result<_, _>>()?)
        }
        nx::FIN_TIMEOUT => {
            let (idle_timeout_s, hard_timeout_s) = (b.u16()?, b.u16()?);
            padded(b, 2, Action::FinTimeout { idle_timeout_s, hard_timeout_s })?
        }
        nx::CONTROLLER => {
            let (max_len, id, reason) = (b.u16()?, b.u16()?, b.u8()?);
            b.zeros(1, NXBAC_MUST_BE_ZERO)?;
            controller(max_len, id, reason_from_wire(reason)?)
        }
        nx::CONTROLLER2 => read_controller2(b)?,
        nx::WRITE_METADATA => {
            b.zeros(6, NXBAC_MUST_BE_ZERO)?;
            Action::WriteMetadata { value: b.u64()?, mask: b.u64()? }
        }
        nx::PUSH_MPLS => {
            let eth_type = mpls_type(b.u16()?)?;
            padded(b, 4, Action::PushMpls(eth_type))?
        }
        nx::POP_MPLS => {
            let eth_type = b.u16()?;
            padded(b, 4, Action::PopMpls(eth_type))?
        }
        nx::SET_MPLS_TTL => {
            let ttl = b.u8()?;
            padded(b, 5, Action::SetMplsTtl(ttl))?
        }
        nx::DEC_MPLS_TTL => padded(b, 6, Action::DecMplsTtl)?,
        nx::SET_MPLS_LABEL => {
            b.skip(2)?;
            Action::SetMplsLabel(in_range(b.u32()?, 0xf_ffff)?)
        }
        nx::SET_MPLS_TC => {
            let tc = in_range(b.u8()?.into(), 7)? as u8;
            padded(b, 5, Action::SetMplsTc(tc))?
        }
        nx::STACK_PUSH | nx::STACK_POP => {
            let offset = b.u16()?;
            let header = read_header(b).map_err(as_set_error)?;
            let count = b.u16()?;
            b.skip(b.len())?;
            let field = checked_subfield(header, offset, count, subtype == nx::STACK_POP)?;
            if subtype == nx::STACK_PUSH { Action::StackPush(field) } else { Action::StackPop(field) }
        }
        nx::SAMPLE | nx::SAMPLE2 | nx::SAMPLE3 => read_sample(b, subtype)?,
        nx::CONJUNCTION => {
            let (clause, n_clauses, id) = (b.u8()?, b.u8()?, b.u32()?);
            if !(2..=64).contains(&n_clauses) || clause >= n_clauses {
                return Err(NXBAC_BAD_CONJUNCTION);
            }
            Action::Conjunction { id, clause, n_clauses }
        }
        nx::OUTPUT_TRUNC => {
            let (port, max_len) = (OfPort(b.u16()?), b.u32()?);
            // An Ethernet header must be left.
            if max_len < 14 {
                return Err(OFPBAC_BAD_ARGUMENT);
            }
            Action::OutputTrunc { port: output_port(port)?, max_len }
        }
        nx::GROUP => {
            b.skip(2)?;
            Action::Group(b.u32()?)
        }
        nx::CLONE => {
            b.skip(6)?;
            let mut actions = Vec::new();
            append_actions(version, b.sub(b.len())?, &mut actions, depth + 1)?;
            Action::Clone(actions)
        }
        nx::CT_CLEAR => padded(b, 6, Action::CtClear)?,
        nx::DEC_NSH_TTL => padded(b, 6, Action::DecNshTtl)?,
        nx::CHECK_PKT_LARGER => {
            let (length, offset) = (b.u16()?, b.u16()?);
            let target = subfield(b, offset, 1, true)?;
            b.skip(b.len())?;
            Action::CheckPktLarger { length, target }
        }
        nx::DELETE_FIELD => {
            let header = read_header(b).map_err(as_set_error)?;
            b.skip(b.len())?;
            match Mf::from_nxm(header).ok_or(OFPBAC_BAD_SET_TYPE)? {
                field @ Mf::TunMetadata(_) => Action::DeleteField(field),
                _ => return Err(OFPBAC_BAD_ARGUMENT),
            }
        }
        _ => return Err(OFPBAC_BAD_VENDOR_TYPE),
    };
    b.end()?;
    Ok(action)
}

/// A load, which into a tunnel option is a masked set-field.
fn load(target: SubField, value: u64) -> Action {
    match target.field {
        Mf::TunMetadata(idx) => Action::SetOption {
            idx,
            value: Box::new(Wide::from(u128::from(value)).shl(target.offset)),
            mask: Box::new(Wide::low(target.count).shl(target.offset)),
        },
        _ => Action::Load { target, value },
    }
}

fn padded(b: &mut Reader, n: usize, action: Action) -> Result<Action, ErrorKind> {
    b.skip(n)?;
    Ok(action)
}

fn in_range(n: u32, max: u32) -> Result<u32, ErrorKind> {
    if n <= max { Ok(n) } else { Err(OFPBAC_BAD_ARGUMENT) }
}

/// In resubmit, IN_PORT means "leave it".
fn unless_in_port(port: u16) -> Option<OfPort> {
    (port != OfPort::IN_PORT.0).then_some(OfPort(port))
}

fn controller(max_len: u16, id: u16, reason: PacketInReason) -> Action {
    Action::Controller { max_len, reason, id, userdata: Vec::new(), meter_id: None, pause: false }
}

pub(in crate::codec) fn reason_from_wire(number: u8) -> Result<PacketInReason, ErrorKind> {
    match number {
        0 => Ok(PacketInReason::NoMatch),
        1 => Ok(PacketInReason::Action),
        2 => Ok(PacketInReason::InvalidTtl),
        3 => Ok(PacketInReason::ActionSet),
        4 => Ok(PacketInReason::Group),
        5 => Ok(PacketInReason::PacketOut),
        _ => Err(NXBRC_BAD_REASON),
    }
}

/// Reads a header, and checks the bits of its field.
pub(super) fn subfield(b: &mut Reader, offset: u16, count: u16, write: bool) -> Result<SubField, ErrorKind> {
    let header = read_header(b).map_err(as_set_error)?;
    checked_subfield(header, offset, count, write)
}

fn checked_subfield(header: NxmHeader, offset: u16, count: u16, write: bool) -> Result<SubField, ErrorKind> {
    let field = Mf::from_nxm(header).ok_or(OFPBAC_BAD_SET_TYPE)?;
    let row = field.row();
    // A tunnel option is as long as the bridge's table says; some say its length here, others the greatest.
    let fits = matches!(field, Mf::TunMetadata(_)) || header.payload_length() == Some(row.bytes.into());
    if header.has_mask() || !fits {
        return Err(OFPBAC_BAD_SET_LEN);
    }
    let in_field = count >= 1 && u32::from(offset) + u32::from(count) <= u32::from(row.subfield_bits);
    if !in_field || (write && !row.writable) {
        return Err(OFPBAC_BAD_SET_ARGUMENT);
    }
    Ok(SubField { field, offset, count })
}

fn read_output_reg(b: &mut Reader, subtype: u16) -> Result<Action, ErrorKind> {
    let ofs_nbits = b.u16()?;
    let (offset, count) = (ofs_nbits >> 6, (ofs_nbits & 0x3f) + 1);
    if subtype == nx::OUTPUT_REG {
        let source = subfield(b, offset, count, false)?;
        let max_len = b.u16()?;
        b.zeros(6, NXBAC_MUST_BE_ZERO)?;
        return Ok(Action::OutputReg { source, max_len });
    }
    let max_len = b.u16()?;
    let source = subfield(b, offset, count, false)?;
    b.zeros(b.len(), NXBAC_MUST_BE_ZERO)?;
    Ok(Action::OutputReg { source, max_len })
}

fn read_sample(b: &mut Reader, subtype: u16) -> Result<Action, ErrorKind> {
    let probability = b.u16()?;
    let (collector_set_id, obs_domain_id, obs_point_id) = (b.u32()?, b.u32()?, b.u32()?);
    let (mut sampling_port, mut direction) = (OfPort::NONE, SampleDirection::Default);
    if subtype != nx::SAMPLE {
        sampling_port = OfPort(b.u16()?);
        let number = if subtype == nx::SAMPLE3 { b.u8()? } else { 0 };
        direction = match number {
            0 => SampleDirection::Default,
            1 => SampleDirection::Ingress,
            2 => SampleDirection::Egress,
            _ => return Err(OFPBAC_BAD_ARGUMENT),
        };
        b.zeros(b.len(), NXBAC_MUST_BE_ZERO)?;
    }
    if probability == 0 {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    Ok(Action::Sample {
        probability,
        collector_set_id,
        obs_domain_id,
        obs_point_id,
        sampling_port,
        direction,
    })
}

fn read_controller2(b: &mut Reader) -> Result<Action, ErrorKind> {
    b.zeros(6, NXBAC_MUST_BE_ZERO)?;
    let (mut max_len, mut id, mut reason) = (u16::MAX, 0, PacketInReason::Action);
    let (mut userdata, mut pause, mut meter_id) = (Vec::new(), false, None);
    *b = b.with_error(OFPBPC_BAD_LEN);
    while !b.is_empty() {
        let (kind, length) = (b.u16()?, usize::from(b.u16()?));
        let mut value = b.sub(length.checked_sub(4).ok_or(OFPBPC_BAD_LEN)?)?;
        b.skip((length.next_multiple_of(8) - length).min(b.len()))?;
        match kind {
            controller2::MAX_LEN => max_len = value.u16()?,
            controller2::CONTROLLER_ID => id = value.u16()?,
            controller2::REASON => reason = reason_from_wire(value.u8()?)?,
            controller2::USERDATA => userdata = value.take(value.len())?.to_vec(),
            controller2::PAUSE => pause = true,
            controller2::METER_ID => meter_id = Some(value.u32()?),
            _ => return Err(OFPBPC_BAD_TYPE),
        }
    }
    Ok(Action::Controller { max_len, reason, id, userdata, meter_id, pause })
}

/// Writes the header of a Nicira action, the body as `body` does, and the padding to a multiple of 8.
pub(super) fn put_nicira(out: &mut Vec<u8>, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(EXPERIMENTER);
    out.u16(0);
    out.u32(NICIRA);
    out.u16(subtype);
    body(out);
    if out.len() - start < 16 {
        out.zeros(16 - (out.len() - start));
    }
    out.pad8(start);
    out.set_u16(start + 2, (out.len() - start) as u16);
}

pub(super) fn put_field(out: &mut Vec<u8>, field: Mf, minor: u8) {
    if let Some(wire) = field.wire(minor) {
        write_header(out, NxmHeader::new(wire, false, field.row().bytes.into()));
    }
}

fn is_long(field: Mf, minor: u8) -> bool {
    field.wire(minor).is_some_and(|wire| wire.class == 0xffff)
}

fn ofs_nbits(sub: SubField) -> u16 {
    sub.offset << 6 | (sub.count - 1) & 0x3f
}

/// Actions that have the same Nicira form in every version. `false`: this one has none.
pub(super) fn write_nicira(out: &mut Vec<u8>, version: Version, action: &Action) -> bool {
    let minor = version.minor();
    let mut put = |subtype, body: &dyn Fn(&mut Vec<u8>)| put_nicira(out, subtype, |o| body(o));
    match action {
        Action::OutputReg { source, max_len } if is_long(source.field, minor) => put(nx::OUTPUT_REG2, &|o| {
            o.u16(ofs_nbits(*source));
            o.u16(*max_len);
            put_field(o, source.field, minor);
        }),
        Action::OutputReg { source, max_len } => put(nx::OUTPUT_REG, &|o| {
            o.u16(ofs_nbits(*source));
            put_field(o, source.field, minor);
            o.u16(*max_len);
            o.zeros(6);
        }),
        Action::OutputTrunc { port, max_len } => put(nx::OUTPUT_TRUNC, &|o| {
            o.u16(port.0);
            o.u32(*max_len);
        }),
        Action::Controller { max_len, reason, id, userdata, meter_id, pause } => {
            if userdata.is_empty() && meter_id.is_none() && !pause {
                put(nx::CONTROLLER, &|o| {
                    o.u16(*max_len);
                    o.u16(*id);
                    o.u8(*reason as u8);
                });
            } else {
                put(nx::CONTROLLER2, &|o| {
                    write_controller2(o, (*max_len, *id, *reason), userdata, *meter_id, *pause)
                });
            }
        }
        Action::Load { target, value } if is_long(target.field, minor) => put(nx::REG_LOAD2, &|o| {
            let mask = ones(target.count) << target.offset;
            write_entry(o, target.field, minor, u128::from(*value) << target.offset, mask);
        }),
        Action::SetOption { idx, value, mask } => put(nx::REG_LOAD2, &|o| {
            let option = OptionMatch { idx: *idx, value: **value, mask: **mask, bytes: None };
            write_option(o, minor, &option);
        }),
        Action::Load { target, value } => put(nx::REG_LOAD, &|o| {
            o.u16(ofs_nbits(*target));
            put_field(o, target.field, minor);
            o.u64(*value);
        }),
        Action::Move { source, target } => put(nx::REG_MOVE, &|o| {
            o.u16(source.count);
            o.u16(source.offset);
            o.u16(target.offset);
            put_field(o, source.field, minor);
            put_field(o, target.field, minor);
        }),
        Action::StackPush(sub) | Action::StackPop(sub) => {
            let push = matches!(action, Action::StackPush(_));
            put(if push { nx::STACK_PUSH } else { nx::STACK_POP }, &|o| {
                o.u16(sub.offset);
                put_field(o, sub.field, minor);
                o.u16(sub.count);
                o.zeros(if is_long(sub.field, minor) { 2 } else { 6 });
            });
        }
        Action::SetTunnel { id, wide: false } => put(nx::SET_TUNNEL, &|o| {
            o.zeros(2);
            o.u32(*id as u32);
        }),
        Action::SetTunnel { id, wide: true } => put(nx::SET_TUNNEL64, &|o| {
            o.zeros(6);
            o.u64(*id);
        }),
        Action::SetQueue(id) | Action::Group(id) => {
            let subtype = if let Action::SetQueue(_) = action { nx::SET_QUEUE } else { nx::GROUP };
            put(subtype, &|o| {
                o.zeros(2);
                o.u32(*id);
            });
        }
        Action::PopQueue => put(nx::POP_QUEUE, &|_| ()),
        Action::Resubmit { in_port, table, ct } => {
            let port = in_port.unwrap_or(OfPort::IN_PORT).0;
            match (table, ct) {
                (None, false) => put(nx::RESUBMIT, &|o| o.u16(port)),
                (table, ct) => put(if *ct { nx::RESUBMIT_TABLE_CT } else { nx::RESUBMIT_TABLE }, &|o| {
                    o.u16(port);
                    o.u8(table.unwrap_or(0xff));
                }),
            }
        }
        Action::GotoTable(table) => put(nx::RESUBMIT_TABLE, &|o| {
            o.u16(OfPort::IN_PORT.0);
            o.u8(*table);
        }),
        Action::PushMpls(eth_type) => put(nx::PUSH_MPLS, &|o| o.u16(*eth_type)),
        Action::PopMpls(eth_type) => put(nx::POP_MPLS, &|o| o.u16(*eth_type)),
        Action::SetMplsLabel(label) => put(nx::SET_MPLS_LABEL, &|o| {
            o.zeros(2);
            o.u32(*label);
        }),
        Action::SetMplsTc(tc) => put(nx::SET_MPLS_TC, &|o| o.u8(*tc)),
        Action::SetMplsTtl(ttl) => put(nx::SET_MPLS_TTL, &|o| o.u8(*ttl)),
        Action::DecMplsTtl => put(nx::DEC_MPLS_TTL, &|_| ()),
        Action::DecTtl(ids) if ids.is_empty() => put(nx::DEC_TTL, &|_| ()),
        Action::DecTtl(ids) => put(nx::DEC_TTL_CNT_IDS, &|o| {
            o.u16(ids.len() as u16);
            o.zeros(4);
            ids.iter().for_each(|&id| o.u16(id));
        }),
        Action::DecNshTtl => put(nx::DEC_NSH_TTL, &|_| ()),
        Action::WriteMetadata { value, mask } => put(nx::WRITE_METADATA, &|o| {
            o.zeros(6);
            o.u64(*value);
            o.u64(*mask);
        }),
        Action::Clone(actions) => put(nx::CLONE, &|o| {
            o.zeros(6);
            write_actions(o, version, None, actions);
        }),
        Action::Sample {
            probability,
            collector_set_id,
            obs_domain_id,
            obs_point_id,
            sampling_port,
            direction,
        } => {
            let subtype = match (*sampling_port, *direction) {
                (OfPort::NONE, SampleDirection::Default) => nx::SAMPLE,
                (_, SampleDirection::Default) => nx::SAMPLE2,
                _ => nx::SAMPLE3,
            };
            put(subtype, &|o| {
                o.u16(*probability);
                o.u32(*collector_set_id);
                o.u32(*obs_domain_id);
                o.u32(*obs_point_id);
                if subtype != nx::SAMPLE {
                    o.u16(sampling_port.0);
                    o.u8(*direction as u8);
                }
            });
        }
        Action::Note(bytes) => put(nx::NOTE, &|o| o.extend_from_slice(bytes)),
        Action::Exit => put(nx::EXIT, &|_| ()),
        Action::FinTimeout { idle_timeout_s, hard_timeout_s } => put(nx::FIN_TIMEOUT, &|o| {
            o.u16(*idle_timeout_s);
            o.u16(*hard_timeout_s);
        }),
        Action::CtClear => put(nx::CT_CLEAR, &|_| ()),
        Action::Conjunction { id, clause, n_clauses } => put(nx::CONJUNCTION, &|o| {
            o.u8(*clause);
            o.u8(*n_clauses);
            o.u32(*id);
        }),
        Action::CheckPktLarger { length, target } => put(nx::CHECK_PKT_LARGER, &|o| {
            o.u16(*length);
            o.u16(target.offset);
            put_field(o, target.field, minor);
        }),
        // Open vSwitch wants it padded to 24 bytes.
        Action::DeleteField(field) => put(nx::DELETE_FIELD, &|o| {
            put_field(o, *field, minor);
            o.zeros(10);
        }),
        _ => return false,
    }
    true
}

/// `count` one-bits at the bottom.
fn ones(count: u16) -> u128 {
    if count >= 128 { u128::MAX } else { (1 << count) - 1 }
}

/// A set-field as the loads of its runs of mask bits, from the lowest, at most 64 bits each; with an experimenter's
/// field, which NXAST_REG_LOAD has no room for, as NXAST_REG_LOAD2.
pub(super) fn write_set_as_loads(out: &mut Vec<u8>, version: Version, field: Mf, value: u128, mask: u128) {
    let minor = version.minor();
    if is_long(field, minor) {
        return put_nicira(out, nx::REG_LOAD2, |o| write_entry(o, field, minor, value, mask));
    }
    let mut left = mask;
    while left != 0 {
        let offset = left.trailing_zeros() as u16;
        let count = ((left >> offset).trailing_ones() as u16).min(64);
        let target = SubField { field, offset, count };
        let value = (value >> offset & ones(count)) as u64;
        write_nicira(out, version, &Action::Load { target, value });
        left &= !(ones(count) << offset);
    }
}

fn write_controller2(
    out: &mut Vec<u8>,
    (max_len, id, reason): (u16, u16, PacketInReason),
    userdata: &[u8],
    meter_id: Option<u32>,
    pause: bool,
) {
    out.zeros(6);
    let mut property = |kind: u16, value: &[u8]| {
        let start = out.len();
        out.u16(kind);
        out.u16(4 + value.len() as u16);
        out.extend_from_slice(value);
        out.pad8(start);
    };
    if max_len != u16::MAX {
        property(controller2::MAX_LEN, &max_len.to_be_bytes());
    }
    if id != 0 {
        property(controller2::CONTROLLER_ID, &id.to_be_bytes());
    }
    if reason != PacketInReason::Action {
        property(controller2::REASON, &[reason as u8]);
    }
    if !userdata.is_empty() {
        property(controller2::USERDATA, userdata);
    }
    if pause {
        property(controller2::PAUSE, &[]);
    }
    if let Some(meter_id) = meter_id {
        property(controller2::METER_ID, &meter_id.to_be_bytes());
    }
}

//! Packet-in and packet-out.

use super::bytes::{Put, Reader};
use super::flows::NONE32;
use super::kind::{Kind, NICIRA, nxt};
use super::matching::{
    read_entries, read_nxm_match, read_oxm_match, read_pipeline_match, write_entries, write_nxm_match,
    write_oxm_match,
};
use crate::action::{read_actions, reason_from_wire, write_actions};
use crate::error::ErrorKind::{self, *};
use crate::message::{PacketIn, PacketInForm, PacketOut};
use crate::version::Version;
use base::OfPort;
use flow::action::PacketInReason;
use flow::{FieldId, Match};

/// Properties of NXT_PACKET_IN2 (NXPINT_*).
mod property {
    pub const PACKET: u16 = 0;
    pub const FULL_LEN: u16 = 1;
    pub const BUFFER_ID: u16 = 2;
    pub const TABLE_ID: u16 = 3;
    pub const COOKIE: u16 = 4;
    pub const REASON: u16 = 5;
    pub const METADATA: u16 = 6;
    pub const USERDATA: u16 = 7;
    pub const CONTINUATION: u16 = 8;
}

fn empty(form: PacketInForm) -> Box<PacketIn> {
    Box::new(PacketIn {
        form,
        buffer_id: None,
        total_len: 0,
        reason: PacketInReason::Action,
        table_id: 0,
        cookie: u64::MAX,
        metadata: Match::any(),
        data: Vec::new(),
        userdata: Vec::new(),
        continuation: Vec::new(),
    })
}

/// The number of a reason: versions before 1.4 have the first three. (The standard's 1.0 has two; Open
/// vSwitch uses the one for the TTL there, too.)
fn reason_to_wire(version: Version, reason: PacketInReason) -> u8 {
    let last = match version {
        Version::V10 | Version::V11 | Version::V12 | Version::V13 => PacketInReason::InvalidTtl,
        _ => PacketInReason::PacketOut,
    };
    if reason as u8 <= last as u8 { reason as u8 } else { PacketInReason::Action as u8 }
}

fn buffer(number: u32) -> Option<u32> {
    (number != NONE32).then_some(number)
}

pub(super) fn read_packet_in(version: Version, r: &mut Reader) -> Result<Box<PacketIn>, ErrorKind> {
    let mut p = empty(PacketInForm::Standard);
    if version == Version::V11 {
        return read_packet_in11(p, r);
    }
    p.buffer_id = buffer(r.u32()?);
    p.total_len = r.u16()?.into();
    if version == Version::V10 {
        p.metadata = Match::any().with(FieldId::InPort, r.u16()?.into());
        p.reason = reason_from_wire(r.u8()?)?;
        r.skip(1)?;
    } else {
        p.reason = reason_from_wire(r.u8()?)?;
        p.table_id = r.u8()?;
        if version >= Version::V13 {
            p.cookie = r.u64()?;
        }
        p.metadata = read_oxm_match(r)?;
        r.skip(2)?;
    }
    p.data = r.take(r.len())?.to_vec();
    Ok(p)
}

/// OpenFlow 1.1's, with the ports before the length.
fn read_packet_in11(mut p: Box<PacketIn>, r: &mut Reader) -> Result<Box<PacketIn>, ErrorKind> {
    p.buffer_id = buffer(r.u32()?);
    let in_port = OfPort::from_u32(r.u32()?).ok_or(OFPBRC_BAD_PORT)?;
    r.skip(4)?;
    p.metadata = Match::any().with(FieldId::InPort, in_port.0.into());
    p.total_len = r.u16()?.into();
    p.reason = reason_from_wire(r.u8()?)?;
    p.table_id = r.u8()?;
    p.data = r.take(r.len())?.to_vec();
    Ok(p)
}

/// NXT_PACKET_IN.
pub(super) fn read_nx_packet_in(r: &mut Reader) -> Result<Box<PacketIn>, ErrorKind> {
    let mut p = empty(PacketInForm::Nxt);
    p.buffer_id = buffer(r.u32()?);
    p.total_len = r.u16()?.into();
    p.reason = reason_from_wire(r.u8()?)?;
    p.table_id = r.u8()?;
    p.cookie = r.u64()?;
    let match_len = r.u16()?;
    r.skip(6)?;
    p.metadata = read_nxm_match(r, match_len, None)?;
    r.skip(2)?;
    p.data = r.take(r.len())?.to_vec();
    Ok(p)
}

/// NXT_PACKET_IN2 and NXT_RESUME.
pub(super) fn read_packet_in2(r: &mut Reader) -> Result<Box<PacketIn>, ErrorKind> {
    let mut p = empty(PacketInForm::Nxt2);
    p.reason = PacketInReason::NoMatch;
    let mut full_len = None;
    *r = r.with_error(OFPBPC_BAD_LEN);
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        let mut value = r.sub(length.checked_sub(4).ok_or(OFPBPC_BAD_LEN)?)?;
        r.skip((length.next_multiple_of(8) - length).min(r.len()))?;
        match kind {
            property::PACKET => p.data = value.rest().to_vec(),
            property::FULL_LEN => full_len = Some(value.u32()?),
            property::BUFFER_ID => p.buffer_id = buffer(value.u32()?),
            property::TABLE_ID => p.table_id = value.u8()?,
            property::COOKIE => {
                value.skip(4)?;
                p.cookie = value.u64()?;
            }
            property::REASON => p.reason = reason_from_wire(value.u8()?)?,
            property::METADATA => p.metadata = read_entries(value, None)?,
            property::USERDATA => p.userdata = value.rest().to_vec(),
            property::CONTINUATION => p.continuation = value.rest().to_vec(),
            _ => return Err(OFPBPC_BAD_TYPE),
        }
    }
    if p.data.is_empty() {
        return Err(OFPBRC_BAD_LEN);
    }
    p.total_len = full_len.unwrap_or(p.data.len() as u32);
    Ok(p)
}

pub(super) fn write_packet_in(version: Version, out: &mut Vec<u8>, p: &PacketIn) -> Kind {
    let total_len = p.total_len.min(0xffff) as u16;
    let buffer_id = p.buffer_id.unwrap_or(NONE32);
    match p.form {
        PacketInForm::Nxt2 => {
            out.u32(NICIRA);
            out.u32(nxt::PACKET_IN2);
            write_packet_in2(version, out, p);
            return Kind::Experimenter;
        }
        PacketInForm::Nxt => {
            out.u32(NICIRA);
            out.u32(nxt::PACKET_IN);
            out.u32(buffer_id);
            out.u16(total_len);
            out.u8(p.reason as u8);
            out.u8(p.table_id);
            out.u64(p.cookie);
            let length_at = out.len();
            out.zeros(8);
            let length = write_nxm_match(out, &p.metadata, 0, (0, 0));
            out.set_u16(length_at, length);
            out.zeros(2);
            out.extend_from_slice(data_in_message(p));
            return Kind::Experimenter;
        }
        PacketInForm::Standard => {}
    }
    out.u32(buffer_id);
    if version == Version::V11 {
        out.u32(p.in_port().to_u32());
        out.u32(p.in_port().to_u32());
        out.u16(total_len);
        out.u8(reason_to_wire(version, p.reason));
        out.u8(p.table_id);
        out.extend_from_slice(data_in_message(p));
        return Kind::PacketIn;
    }
    out.u16(total_len);
    if version == Version::V10 {
        out.u16(p.in_port().0);
        out.u8(reason_to_wire(version, p.reason));
        out.u8(0);
    } else {
        out.u8(reason_to_wire(version, p.reason));
        out.u8(p.table_id);
        if version >= Version::V13 {
            out.u64(p.cookie);
        }
        write_oxm_match(out, &p.metadata, version.minor());
        out.zeros(2);
    }
    out.extend_from_slice(data_in_message(p));
    Kind::PacketIn
}

/// As much of a packet as a message has room for: beside it, userdata and a continuation, all takes less than
/// 1,500 bytes.
fn data_in_message(p: &PacketIn) -> &[u8] {
    let room = 64_000usize.saturating_sub(p.userdata.len() + p.continuation.len());
    &p.data[..p.data.len().min(room)]
}

pub(super) fn write_packet_in2(version: Version, out: &mut Vec<u8>, p: &PacketIn) {
    let mut put = |kind: u16, value: &[u8]| {
        let start = out.len();
        out.u16(kind);
        out.u16(4 + value.len() as u16);
        out.extend_from_slice(value);
        out.pad8(start);
    };
    let data = data_in_message(p);
    put(property::PACKET, data);
    if p.total_len as usize != data.len() {
        put(property::FULL_LEN, &p.total_len.to_be_bytes());
    }
    if let Some(buffer_id) = p.buffer_id {
        put(property::BUFFER_ID, &buffer_id.to_be_bytes());
    }
    put(property::TABLE_ID, &[p.table_id]);
    if p.cookie != u64::MAX {
        let mut cookie = vec![0; 4];
        cookie.u64(p.cookie);
        put(property::COOKIE, &cookie);
    }
    put(property::REASON, &[p.reason as u8]);
    let mut metadata = Vec::new();
    // As in Open vSwitch, with OpenFlow 1.2's fields in earlier versions too.
    write_entries(&mut metadata, &p.metadata, version.minor().max(2), (0, 0));
    put(property::METADATA, &metadata);
    if !p.userdata.is_empty() {
        put(property::USERDATA, &p.userdata);
    }
    if !p.continuation.is_empty() {
        put(property::CONTINUATION, &p.continuation);
    }
}

/// The input port that a packet-out may give.
fn packet_out_port(port: OfPort) -> Result<OfPort, ErrorKind> {
    match port {
        OfPort::LOCAL | OfPort::CONTROLLER | OfPort::NONE => Ok(port),
        port if port < OfPort::MAX => Ok(port),
        _ => Err(OFPBRC_BAD_PORT),
    }
}

pub(super) fn read_packet_out(version: Version, r: &mut Reader) -> Result<PacketOut, ErrorKind> {
    let buffer_id = buffer(r.u32()?);
    if version >= Version::V15 {
        return read_packet_out15(version, buffer_id, r);
    }
    let in_port = match version {
        Version::V10 => OfPort(r.u16()?),
        _ => OfPort::from_u32(r.u32()?).ok_or(OFPBAC_BAD_OUT_PORT)?,
    };
    let actions_len = r.u16()?;
    if version != Version::V10 {
        r.skip(6)?;
    }
    let actions = read_actions(version, r.sub(actions_len.into())?)?;
    let in_port = packet_out_port(in_port)?;
    let data = r.take(r.len())?;
    Ok(PacketOut {
        buffer_id,
        in_port,
        metadata: Match::any(),
        actions,
        data: if buffer_id.is_none() { data.to_vec() } else { Vec::new() },
    })
}

/// OpenFlow 1.5's form, in which a match gives the input port and other pipeline fields.
fn read_packet_out15(
    version: Version,
    buffer_id: Option<u32>,
    r: &mut Reader,
) -> Result<PacketOut, ErrorKind> {
    let actions_len = r.u16()?;
    r.skip(2)?;
    let mut metadata = read_pipeline_match(r)?;
    let (port, mask) = metadata.get_mf(flow::Mf::InPort);
    if mask == 0 {
        return Err(OFPBRC_BAD_PORT);
    }
    metadata.set_masked(FieldId::InPort, 0, 0);
    let actions = read_actions(version, r.sub(actions_len.into())?)?;
    let in_port = packet_out_port(OfPort(port as u16))?;
    let data = r.take(r.len())?;
    let data = if buffer_id.is_none() { data.to_vec() } else { Vec::new() };
    Ok(PacketOut { buffer_id, in_port, metadata, actions, data })
}

pub(super) fn write_packet_out(version: Version, out: &mut Vec<u8>, p: &PacketOut) {
    out.u32(p.buffer_id.unwrap_or(NONE32));
    match version {
        Version::V10 => out.u16(p.in_port.0),
        Version::V15 => {}
        _ => out.u32(p.in_port.to_u32()),
    }
    let length_at = out.len();
    match version {
        Version::V10 => out.zeros(2),
        Version::V15 => {
            out.zeros(4);
            let mut metadata = p.metadata.clone();
            metadata.set_masked(FieldId::InPort, p.in_port.0.into(), 0xffff);
            write_oxm_match(out, &metadata, version.minor());
        }
        _ => out.zeros(8),
    }
    let start = out.len();
    write_actions(out, version, None, &p.actions);
    let length = (out.len() - start) as u16;
    out.set_u16(length_at, length);
    if p.buffer_id.is_none() {
        out.extend_from_slice(&p.data);
    }
}

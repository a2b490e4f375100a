//! Experimenters' messages: Nicira's (NXT_*), bundles, lost roles and the table of tunnel options.

use super::bytes::{Put, Reader};
use super::header::{Codec, HEADER_LEN};
use super::kind::{Kind, NICIRA, ONF, nxt, onft};
use super::{asynchronous, ct_flush, flows, group, length, packet, switch};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    AsyncChange, BundleAdd, BundleControl, BundleControlType, BundleFlags, FlowForm, Message, PacketInForm,
    TlvMap, TlvTable, TlvTableCommand, TlvTableMod,
};
use crate::version::Version;
use flow::options::OPTIONS_MAX;

/// NXT_SET_FLOW_FORMAT's numbers.
const FLOW_FORMAT_OF10: u32 = 0;
const FLOW_FORMAT_NXM: u32 = 2;

pub(super) fn read(codec: &Codec, r: &mut Reader, xid: u32) -> Result<Message, ErrorKind> {
    let (vendor, subtype) = (r.u32()?, r.u32()?);
    let message = match vendor {
        NICIRA => read_nicira(codec, subtype, r)?,
        ONF if codec.version == Version::V13 => match subtype {
            onft::BUNDLE_CONTROL => Message::BundleControl(read_bundle_control(r)?),
            onft::BUNDLE_ADD => Message::BundleAdd(read_bundle_add(codec, r, xid)?),
            onft::FLOW_MONITOR => Message::FlowMonitorCancel(r.u32()?),
            onft::FLOW_MONITOR_PAUSED => Message::FlowMonitorPaused,
            onft::FLOW_MONITOR_RESUMED => Message::FlowMonitorResumed,
            onft::ROLE_STATUS => Message::RoleStatus(switch::read_role_status(r)?),
            onft::REQUESTFORWARD => read_request_forward(codec, r)?,
            _ => return Err(OFPBRC_BAD_SUBTYPE),
        },
        ONF => return Err(OFPBRC_BAD_SUBTYPE),
        _ => return Err(OFPBRC_BAD_VENDOR),
    };
    r.end()?;
    Ok(message)
}

fn read_nicira(codec: &Codec, subtype: u32, r: &mut Reader) -> Result<Message, ErrorKind> {
    let v = codec.version;
    Ok(match subtype {
        nxt::ROLE_REQUEST => Message::RoleRequest(switch::read_nx_role(r)?),
        nxt::ROLE_REPLY => Message::RoleReply(switch::read_nx_role(r)?),
        nxt::SET_FLOW_FORMAT if v == Version::V10 => Message::SetFlowFormat(match r.u32()? {
            FLOW_FORMAT_OF10 => FlowForm::Standard,
            FLOW_FORMAT_NXM => FlowForm::Nxm,
            _ => return Err(OFPBRC_EPERM),
        }),
        nxt::FLOW_MOD => Message::FlowMod(flows::read_nx_flow_mod(codec, r)?),
        nxt::FLOW_REMOVED => Message::FlowRemoved(flows::read_nx_flow_removed(r)?),
        nxt::FLOW_MOD_TABLE_ID => {
            let set = r.u8()?;
            r.skip(7)?;
            Message::FlowModTableId(set != 0)
        }
        nxt::SET_PACKET_IN_FORMAT => Message::SetPacketInFormat(match r.u32()? {
            0 => PacketInForm::Standard,
            1 => PacketInForm::Nxt,
            2 => PacketInForm::Nxt2,
            _ => return Err(OFPBRC_EPERM),
        }),
        nxt::PACKET_IN => Message::PacketIn(packet::read_nx_packet_in(r)?),
        nxt::FLOW_AGE => Message::FlowAge,
        nxt::SET_ASYNC_CONFIG => Message::SetAsync(asynchronous::read_bitmaps(codec.version, r)?),
        nxt::SET_ASYNC_CONFIG2 if v <= Version::V13 => {
            Message::SetAsync(asynchronous::read_properties(v, r)?)
        }
        nxt::SET_CONTROLLER_ID => {
            r.zeros(6, NXBRC_MUST_BE_ZERO)?;
            Message::SetControllerId(r.u16()?)
        }
        nxt::FLOW_MONITOR_CANCEL if v <= Version::V12 => Message::FlowMonitorCancel(r.u32()?),
        nxt::FLOW_MONITOR_PAUSED if v <= Version::V12 => Message::FlowMonitorPaused,
        nxt::FLOW_MONITOR_RESUMED if v <= Version::V12 => Message::FlowMonitorResumed,
        nxt::TLV_TABLE_MOD => {
            let command = match r.u16()? {
                0 => TlvTableCommand::Add,
                1 => TlvTableCommand::Delete,
                2 => TlvTableCommand::Clear,
                _ => return Err(NXTTMFC_BAD_COMMAND),
            };
            r.skip(6)?;
            Message::TlvTableMod(TlvTableMod { command, maps: read_tlv_maps(r)? })
        }
        nxt::TLV_TABLE_REQUEST => Message::TlvTableRequest,
        nxt::TLV_TABLE_REPLY => {
            let (max_option_space, max_fields) = (r.u32()?, r.u16()?);
            r.skip(10)?;
            Message::TlvTableReply(TlvTable { max_option_space, max_fields, maps: read_tlv_maps(r)? })
        }
        nxt::RESUME => Message::Resume(packet::read_packet_in2(r)?),
        nxt::CT_FLUSH_ZONE => {
            r.zeros(6, NXBRC_MUST_BE_ZERO)?;
            Message::CtFlushZone(r.u16()?)
        }
        nxt::CT_FLUSH => Message::CtFlush(Box::new(ct_flush::read(r)?)),
        nxt::PACKET_IN2 => Message::PacketIn(packet::read_packet_in2(r)?),
        nxt::GROUP_MOD if v == Version::V10 => Message::GroupMod(group::read_group_mod(codec.version, r)?),
        nxt::REQUESTFORWARD if v <= Version::V12 => read_request_forward(codec, r)?,
        _ => return Err(OFPBRC_BAD_SUBTYPE),
    })
}

fn read_tlv_maps(r: &mut Reader) -> Result<Vec<TlvMap>, ErrorKind> {
    let mut maps = Vec::new();
    while !r.is_empty() {
        let (option_class, option_type, option_len) = (r.u16()?, r.u8()?, r.u8()?);
        let index = r.u16()?;
        r.skip(2)?;
        if option_len % 4 != 0 || option_len > 124 {
            return Err(NXTTMFC_BAD_OPT_LEN);
        }
        if usize::from(index) >= OPTIONS_MAX {
            return Err(NXTTMFC_BAD_FIELD_IDX);
        }
        maps.push(TlvMap { option_class, option_type, option_len, index });
    }
    Ok(maps)
}

fn write_tlv_maps(out: &mut Vec<u8>, maps: &[TlvMap]) {
    for map in maps {
        out.u16(map.option_class);
        out.u8(map.option_type);
        out.u8(map.option_len);
        out.u16(map.index);
        out.zeros(2);
    }
}

/// Encodes the body of a message that is sent as an experimenter's; `None` if the version does not have it.
pub(super) fn write(codec: &Codec, out: &mut Vec<u8>, message: &Message) -> Option<()> {
    let onf = match message {
        Message::BundleControl(_) => Some(onft::BUNDLE_CONTROL),
        Message::BundleAdd(_) => Some(onft::BUNDLE_ADD),
        Message::RoleStatus(_) => Some(onft::ROLE_STATUS),
        Message::RequestForward(..) if codec.version == Version::V13 => Some(onft::REQUESTFORWARD),
        Message::FlowMonitorCancel(_) if codec.version == Version::V13 => Some(onft::FLOW_MONITOR),
        Message::FlowMonitorPaused if codec.version == Version::V13 => Some(onft::FLOW_MONITOR_PAUSED),
        Message::FlowMonitorResumed if codec.version == Version::V13 => Some(onft::FLOW_MONITOR_RESUMED),
        _ => None,
    };
    if let Some(subtype) = onf {
        if codec.version != Version::V13 {
            return None;
        }
        out.u32(ONF);
        out.u32(subtype);
    }
    let mut begin = |subtype: u32| {
        if onf.is_none() {
            out.u32(NICIRA);
            out.u32(subtype);
        }
    };
    match message {
        Message::BundleControl(control) => write_bundle_control(out, control),
        Message::BundleAdd(add) => write_bundle_add(codec, out, add)?,
        Message::RoleRequest(role) => {
            begin(nxt::ROLE_REQUEST);
            out.u32(switch::nx_role_number(role.role));
        }
        Message::RoleReply(role) => {
            begin(nxt::ROLE_REPLY);
            out.u32(switch::nx_role_number(role.role));
        }
        Message::SetFlowFormat(form) if codec.version == Version::V10 => {
            begin(nxt::SET_FLOW_FORMAT);
            out.u32(if *form == FlowForm::Nxm { FLOW_FORMAT_NXM } else { FLOW_FORMAT_OF10 });
        }
        Message::FlowModTableId(set) => {
            begin(nxt::FLOW_MOD_TABLE_ID);
            out.u8((*set).into());
            out.zeros(7);
        }
        Message::SetPacketInFormat(form) => {
            begin(nxt::SET_PACKET_IN_FORMAT);
            out.u32(*form as u32);
        }
        Message::FlowAge => begin(nxt::FLOW_AGE),
        Message::SetAsync(change) if change.given == AsyncChange::ALL => {
            begin(nxt::SET_ASYNC_CONFIG);
            asynchronous::write(Version::V13, out, change);
        }
        Message::SetAsync(change) if codec.version <= Version::V13 => {
            begin(nxt::SET_ASYNC_CONFIG2);
            asynchronous::write(Version::V14, out, change);
        }
        Message::SetControllerId(id) => {
            begin(nxt::SET_CONTROLLER_ID);
            out.zeros(6);
            out.u16(*id);
        }
        Message::FlowMonitorCancel(id) if codec.version <= Version::V13 => {
            begin(nxt::FLOW_MONITOR_CANCEL);
            out.u32(*id);
        }
        Message::FlowMonitorPaused if codec.version <= Version::V13 => begin(nxt::FLOW_MONITOR_PAUSED),
        Message::FlowMonitorResumed if codec.version <= Version::V13 => begin(nxt::FLOW_MONITOR_RESUMED),
        Message::TlvTableMod(table_mod) => {
            begin(nxt::TLV_TABLE_MOD);
            out.u16(table_mod.command as u16);
            out.zeros(6);
            write_tlv_maps(out, &table_mod.maps);
        }
        Message::TlvTableRequest => begin(nxt::TLV_TABLE_REQUEST),
        Message::TlvTableReply(table) => {
            begin(nxt::TLV_TABLE_REPLY);
            out.u32(table.max_option_space);
            out.u16(table.max_fields);
            out.zeros(10);
            write_tlv_maps(out, &table.maps);
        }
        Message::RoleStatus(status) => switch::write_role_status(out, status),
        Message::RequestForward(xid, request) => {
            begin(nxt::REQUESTFORWARD);
            codec.encode_into(*xid, request, out).ok()?;
        }
        Message::GroupMod(group_mod) if codec.version == Version::V10 => {
            begin(nxt::GROUP_MOD);
            group::write_group_mod(codec.version, out, group_mod);
        }
        Message::Resume(packet) => {
            begin(nxt::RESUME);
            packet::write_packet_in2(codec.version, out, packet);
        }
        Message::CtFlushZone(zone) => {
            begin(nxt::CT_FLUSH_ZONE);
            out.zeros(6);
            out.u16(*zone);
        }
        Message::CtFlush(flush) => {
            begin(nxt::CT_FLUSH);
            ct_flush::write(out, flush);
        }
        _ => return None,
    }
    Some(())
}

pub(super) fn read_bundle_control(r: &mut Reader) -> Result<BundleControl, ErrorKind> {
    let (bundle_id, kind, flags) = (r.u32()?, r.u16()?, r.u16()?);
    let kind = BundleControlType::from_wire(kind).ok_or(OFPBFC_BAD_TYPE)?;
    let flags = BundleFlags::from_bits_retain(flags);
    // Properties, none of which is known.
    r.skip(r.len())?;
    Ok(BundleControl { bundle_id, kind, flags })
}

pub(super) fn write_bundle_control(out: &mut Vec<u8>, m: &BundleControl) {
    out.u32(m.bundle_id);
    out.u16(m.kind as u16);
    out.u16(m.flags.bits());
}

/// Whether a bundle may contain the message: changes of flows, groups and ports, and packets. Other types,
/// and messages with a length that they cannot have, are refused without being decoded.
fn may_be_bundled(version: Version, kind: Kind, body: Reader) -> bool {
    let mut head = body;
    let may_be = match kind {
        Kind::FlowMod | Kind::GroupMod | Kind::PortMod | Kind::PacketOut => true,
        Kind::Experimenter => matches!((head.u32(), head.u32()), (Ok(NICIRA), Ok(nxt::FLOW_MOD))),
        _ => false,
    };
    may_be && length::check(version, kind, body).is_ok()
}

/// The group-mod or meter-mod of another controller, in a message of its own.
pub(super) fn read_request_forward(codec: &Codec, r: &mut Reader) -> Result<Message, ErrorKind> {
    let bytes = r.take(r.len())?;
    // Read as the kind it must be, so that nothing nests.
    let is_change =
        matches!(super::message_name(bytes)?.as_str(), "OFPT_GROUP_MOD" | "NXT_GROUP_MOD" | "OFPT_METER_MOD");
    if !is_change {
        return Err(OFPBFC_MSG_UNSUP);
    }
    let (xid, message) = codec.decode(bytes)?;
    Ok(Message::RequestForward(xid, Box::new(message)))
}

pub(super) fn read_bundle_add(codec: &Codec, r: &mut Reader, xid: u32) -> Result<BundleAdd, ErrorKind> {
    let bundle_id = r.u32()?;
    r.skip(2)?;
    let flags = BundleFlags::from_bits_retain(r.u16()?);
    let inner = super::Header::parse(r.rest()).ok_or(OFPBFC_MSG_BAD_LEN)?;
    if inner.version != codec.version as u8 {
        return Err(OFPBFC_BAD_VERSION);
    }
    let length = usize::from(inner.length);
    if length < HEADER_LEN || length > r.len() {
        return Err(OFPBFC_MSG_BAD_LEN);
    }
    let bytes = r.take(length)?;
    if inner.xid != xid {
        return Err(OFPBFC_MSG_BAD_XID);
    }
    let body = Reader::new(&bytes[HEADER_LEN..], OFPBRC_BAD_LEN);
    let kind = Kind::from_wire(codec.version, inner.kind);
    let kind = kind.filter(|kind| may_be_bundled(codec.version, *kind, body)).ok_or(OFPBFC_MSG_UNSUP)?;
    let message = codec.read_body(kind, body, xid)?;
    r.skip(r.len())?;
    Ok(BundleAdd { bundle_id, flags, xid, message: Box::new(message), bytes: bytes.to_vec() })
}

/// Encodes the message again; its `bytes` are only for the receiver.
pub(super) fn write_bundle_add(codec: &Codec, out: &mut Vec<u8>, m: &BundleAdd) -> Option<()> {
    out.u32(m.bundle_id);
    out.zeros(2);
    out.u16(m.flags.bits());
    codec.encode_into(m.xid, &m.message, out).ok()
}

//! The switch as a whole: hello, errors, features, configuration, roles, asynchronous messages.

use super::HEADER_LEN;
use super::bytes::{Put, Reader};
use super::port::{read_port_desc, write_port_desc};
use crate::error::{ErrorCode, ErrorKind, ErrorKind::*, ErrorNumber, OfError};
use crate::message::{
    Capabilities, FragHandling, Role, RoleReason, RoleRequest, RoleStatus, SwitchConfig, SwitchFeatures,
};
use crate::version::{Version, VersionSet};

/// The element of a hello that holds a bitmap of versions.
const VERSION_BITMAP: u16 = 1;

/// The greatest version that the first word of a bitmap can name.
const VERSION_MAX: u8 = 31;

/// Unknown or truncated elements are ignored, as the standard requires: the version in the header then
/// applies.
pub(super) fn read_hello(version: u8, mut r: Reader) -> Result<VersionSet, ErrorKind> {
    while r.len() >= 4 {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        let Some(payload) = length.checked_sub(4).filter(|&n| n <= r.len()) else { break };
        let mut body = r.sub(payload)?;
        if kind == VERSION_BITMAP && payload >= 4 {
            // Version 0 does not exist; a bitmap without other versions offers nothing.
            let versions = u64::from(body.u32()?) & !1;
            if versions != 0 {
                return Ok(VersionSet(versions));
            }
        }
        r.skip((length.next_multiple_of(8) - length).min(r.len()))?;
    }
    Ok(VersionSet::up_to(version.min(VERSION_MAX)))
}

/// Whether the bitmap of a hello contains no existing version.
pub fn names_no_version(bytes: &[u8]) -> bool {
    matches!(bytes.get(8..16), Some(&[a, b, _, _, c, d, e, f])
        if u16::from_be_bytes([a, b]) == VERSION_BITMAP && u32::from_be_bytes([c, d, e, f]) & !1 == 0)
}

/// Whether a hello contains more than a bitmap of versions, or a bitmap without any version.
pub(crate) fn unknown_in_hello(bytes: &[u8]) -> bool {
    let mut r = Reader::new(bytes.get(8..).unwrap_or_default(), OFPBRC_BAD_LEN);
    while !r.is_empty() {
        let element = |r: &mut Reader| -> Result<bool, ErrorKind> {
            let (kind, length) = (r.u16()?, usize::from(r.u16()?));
            let mut body = r.sub(length.checked_sub(4).ok_or(OFPBRC_BAD_LEN)?)?;
            r.skip((length.next_multiple_of(8) - length).min(r.len()))?;
            Ok(kind == VERSION_BITMAP && body.u32()? & !1 != 0)
        };
        if element(&mut r) != Ok(true) {
            return true;
        }
    }
    false
}

/// A bitmap is sent where the version alone would not say the same.
pub(super) fn write_hello(version: Version, out: &mut Vec<u8>, versions: VersionSet) {
    if versions == VersionSet::up_to(version as u8) {
        return;
    }
    let wide = versions.0 >> 32 != 0;
    let start = out.len();
    out.u16(VERSION_BITMAP);
    out.u16(if wide { 12 } else { 8 });
    out.u32(versions.0 as u32);
    if wide {
        out.u32((versions.0 >> 32) as u32);
    }
    out.pad8(start);
}

/// Type and code of OpenFlow 1.0's and 1.1's extension of errors (NXET_VENDOR, NXVC_VENDOR_ERROR).
const NX_ERROR: (u16, u16) = (0xb0c2, 0);
/// Type of experimenters' errors in OpenFlow 1.2 and later.
const EXPERIMENTER_ERROR: u16 = 0xffff;

pub(super) fn read_error(version: Version, r: &mut Reader) -> Result<OfError, ErrorKind> {
    let (error_type, code) = (r.u16()?, r.u16()?);
    let number = if version <= Version::V11 && (error_type, code) == NX_ERROR {
        ErrorNumber { vendor: r.u32()?, error_type: r.u16()?, code: r.u16()? }
    } else if version >= Version::V12 && error_type == EXPERIMENTER_ERROR {
        ErrorNumber { vendor: r.u32()?, error_type: code, code: 0 }
    } else {
        ErrorNumber { vendor: 0, error_type, code }
    };
    let code = ErrorKind::from_number(version, number).map_or(ErrorCode::Unknown(number), ErrorCode::Known);
    Ok(OfError { code, data: r.rest().to_vec() })
}

/// The error that says the most of what the version has, for one that it does not have.
fn nearest(kind: ErrorKind) -> ErrorKind {
    match kind {
        OFPBMC_BAD_LEN | OFPBMC_BAD_TYPE => NXBRC_NXM_INVALID,
        OFPFMFC_BAD_FLAGS => OFPFMFC_UNSUPPORTED,
        OFPGMFC_OUT_OF_GROUPS | OFPMMFC_OUT_OF_METERS => OFPBRC_BAD_TYPE,
        _ => NXBRC_UNENCODABLE_ERROR,
    }
}

/// An error that the version does not have goes as the nearest that it has, at worst NXBRC_UNENCODABLE_ERROR.
/// Data is cut where the message would exceed its length field: the room depends on the form of the code.
pub(super) fn write_error(version: Version, out: &mut Vec<u8>, error: &OfError) {
    let start = out.len();
    let number = match error.code {
        ErrorCode::Unknown(number) => Some(number),
        ErrorCode::Known(kind) => kind
            .number(version)
            .or_else(|| nearest(kind).number(version))
            .or_else(|| NXBRC_UNENCODABLE_ERROR.number(version)),
    };
    let number = number.unwrap_or(ErrorNumber { vendor: 0, error_type: 1, code: 1 });
    if number.vendor == 0 {
        out.u16(number.error_type);
        out.u16(number.code);
    } else if version <= Version::V11 {
        out.u16(NX_ERROR.0);
        out.u16(NX_ERROR.1);
        out.u32(number.vendor);
        out.u16(number.error_type);
        out.u16(number.code);
    } else {
        out.u16(EXPERIMENTER_ERROR);
        out.u16(number.error_type);
        out.u32(number.vendor);
    }
    let room = usize::from(u16::MAX) - HEADER_LEN - (out.len() - start);
    out.extend_from_slice(&error.data[..error.data.len().min(room)]);
}

/// OpenFlow 1.0's bit for spanning tree, which later versions use for group statistics.
const STP10: u32 = 1 << 3;

pub(super) fn read_features(version: Version, r: &mut Reader) -> Result<SwitchFeatures, ErrorKind> {
    let (datapath_id, n_buffers, n_tables) = (r.u64()?, r.u32()?, r.u8()?);
    let auxiliary_id = r.u8()?;
    r.skip(2)?;
    let (bits, actions) = (r.u32()?, r.u32()?);
    let v10 = version == Version::V10;
    let mut capabilities =
        Capabilities::from_bits_truncate(if v10 { bits & !STP10 } else { bits & !(1 << 31) });
    if v10 && bits & STP10 != 0 {
        capabilities |= Capabilities::STP;
    }
    let mut ports = Vec::new();
    while version <= Version::V12 && !r.is_empty() {
        ports.push(read_port_desc(version, r)?);
    }
    Ok(SwitchFeatures {
        datapath_id,
        n_buffers,
        n_tables,
        auxiliary_id: if version >= Version::V13 { auxiliary_id } else { 0 },
        capabilities,
        actions: if v10 { actions } else { 0 },
        ports,
    })
}

/// Ports that do not fit are left out, as in Open vSwitch. Its client asks for port descriptions if there is
/// no room for another port.
pub(super) fn write_features(version: Version, out: &mut Vec<u8>, m: &SwitchFeatures) {
    let start = out.len();
    let v10 = version == Version::V10;
    out.u64(m.datapath_id);
    out.u32(m.n_buffers);
    out.u8(m.n_tables);
    out.u8(if version >= Version::V13 { m.auxiliary_id } else { 0 });
    out.zeros(2);
    let all = m.capabilities;
    let mut bits = (all - Capabilities::STP).bits();
    match version {
        Version::V10 => {
            let later = Capabilities::GROUP_STATS
                | Capabilities::PORT_BLOCKED
                | Capabilities::BUNDLES
                | Capabilities::FLOW_MONITORING;
            bits &= !later.bits();
            if all.contains(Capabilities::STP) {
                bits |= STP10;
            }
        }
        Version::V11 => {}
        _ => bits &= !Capabilities::ARP_MATCH_IP.bits(),
    }
    out.u32(bits);
    out.u32(if v10 { m.actions } else { 0 });
    if version <= Version::V12 {
        for port in &m.ports {
            let end = out.len();
            write_port_desc(version, out, port);
            if out.len() - start > usize::from(u16::MAX) - HEADER_LEN {
                out.truncate(end);
                break;
            }
        }
    }
}

const FRAG_MASK: u16 = 3;
const INVALID_TTL_TO_CONTROLLER: u16 = 1 << 2;

pub(super) fn read_config(version: Version, r: &mut Reader) -> Result<SwitchConfig, ErrorKind> {
    let (flags, miss_send_len) = (r.u16()?, r.u16()?);
    let has_ttl = version <= Version::V12;
    let known = FRAG_MASK | if has_ttl { INVALID_TTL_TO_CONTROLLER } else { 0 };
    if flags & !known != 0 {
        return Err(OFPSCFC_BAD_FLAGS);
    }
    let frag = match flags & FRAG_MASK {
        0 => FragHandling::Normal,
        1 => FragHandling::Drop,
        2 => FragHandling::Reassemble,
        _ => FragHandling::NxMatch,
    };
    let invalid_ttl_to_controller = has_ttl.then_some(flags & INVALID_TTL_TO_CONTROLLER != 0);
    Ok(SwitchConfig { frag, invalid_ttl_to_controller, miss_send_len })
}

pub(super) fn write_config(version: Version, out: &mut Vec<u8>, m: &SwitchConfig) {
    let ttl = version <= Version::V12 && m.invalid_ttl_to_controller == Some(true);
    out.u16(m.frag as u16 | if ttl { INVALID_TTL_TO_CONTROLLER } else { 0 });
    out.u16(m.miss_send_len);
}

pub(super) fn read_role(r: &mut Reader) -> Result<RoleRequest, ErrorKind> {
    let role = match r.u32()? {
        0 => Role::NoChange,
        1 => Role::Equal,
        2 => Role::Primary,
        3 => Role::Secondary,
        _ => return Err(OFPRRFC_BAD_ROLE),
    };
    r.skip(4)?;
    let generation = r.u64()?;
    Ok(RoleRequest { role, generation_id: (role != Role::NoChange).then_some(generation), nicira: false })
}

/// A reply, in which the largest number means "none".
pub(super) fn read_role_reply(r: &mut Reader) -> Result<RoleRequest, ErrorKind> {
    let reply = read_role(r)?;
    Ok(RoleRequest { generation_id: reply.generation_id.filter(|id| *id != u64::MAX), ..reply })
}

pub(super) fn write_role(out: &mut Vec<u8>, m: &RoleRequest) {
    out.u32(m.role as u32);
    out.zeros(4);
    out.u64(m.generation_id.unwrap_or(u64::MAX));
}

/// NXT_ROLE_REQUEST and NXT_ROLE_REPLY.
pub(super) fn read_nx_role(r: &mut Reader) -> Result<RoleRequest, ErrorKind> {
    let role = match r.u32()? {
        0 => Role::Equal,
        1 => Role::Primary,
        2 => Role::Secondary,
        _ => return Err(OFPRRFC_BAD_ROLE),
    };
    Ok(RoleRequest { role, generation_id: None, nicira: true })
}

/// The role's number in Nicira's messages; "no change" does not exist there.
pub(super) fn nx_role_number(role: Role) -> u32 {
    match role {
        Role::NoChange | Role::Equal => 0,
        Role::Primary => 1,
        Role::Secondary => 2,
    }
}

/// OFPT_ROLE_STATUS and its extension to 1.3. All properties of the former are of experimenters.
pub(super) fn read_role_status(r: &mut Reader) -> Result<RoleStatus, ErrorKind> {
    let role = match r.u32()? {
        1 => Role::Equal,
        2 => Role::Primary,
        3 => Role::Secondary,
        _ => return Err(OFPRRFC_BAD_ROLE),
    };
    let reason = match r.u8()? {
        0 => RoleReason::PrimaryRequest,
        1 => RoleReason::Config,
        2 => RoleReason::Experimenter,
        _ => return Err(NXBRC_BAD_REASON),
    };
    r.skip(3)?;
    let generation = r.u64()?;
    r.skip(r.len())?;
    Ok(RoleStatus { role, reason, generation_id: (generation != u64::MAX).then_some(generation) })
}

pub(super) fn write_role_status(out: &mut Vec<u8>, m: &RoleStatus) {
    out.u32(m.role as u32);
    out.u8(m.reason as u8);
    out.zeros(3);
    out.u64(m.generation_id.unwrap_or(u64::MAX));
}

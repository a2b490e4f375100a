//! The two messages of rtnetlink that concern XDP: query a device's program, and replace it.
//!
//! Source: rtnetlink(7), linux/if_link.h (IFLA_XDP).

use super::sys;
use crate::PortError;
use std::os::fd::{AsRawFd, OwnedFd};

const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
pub(super) const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
pub(super) const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_FLAGS_REPLACE: u32 = 1 << 4;
const NESTED: u16 = 1 << 15;
const NLMSG_HEADER: usize = 16;
const IFINFO_HEADER: usize = 16;

/// A program that is attached to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct XdpAttached {
    pub(super) program_id: u32,
    /// XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE.
    pub(super) mode_flag: u32,
}

/// The program attached to a device, if any.
pub(super) fn xdp_attached(ifindex: u32) -> Result<Option<XdpAttached>, PortError> {
    let reply = request(libc::RTM_GETLINK, 0, ifindex, &[])?;
    Ok(parse_attached(&reply))
}

/// Replaces `expected` by `program` (none: removes it) without a link. For programs that have no link.
pub(super) fn xdp_replace(
    ifindex: u32,
    program: Option<&OwnedFd>,
    mode_flag: u32,
    expected: Option<&OwnedFd>,
) -> Result<(), PortError> {
    let mut nest = Vec::new();
    put(&mut nest, IFLA_XDP_FD, program.map_or(-1, |fd| fd.as_raw_fd()));
    let replace = if expected.is_some() { XDP_FLAGS_REPLACE } else { 0 };
    put(&mut nest, IFLA_XDP_FLAGS, (mode_flag | replace) as i32);
    if let Some(expected) = expected {
        put(&mut nest, IFLA_XDP_EXPECTED_FD, expected.as_raw_fd());
    }
    let mut attribute = Vec::new();
    attribute.extend_from_slice(&(nest.len() as u16 + 4).to_ne_bytes());
    attribute.extend_from_slice(&(IFLA_XDP | NESTED).to_ne_bytes());
    attribute.extend_from_slice(&nest);
    request(libc::RTM_SETLINK, libc::NLM_F_ACK as u16, ifindex, &attribute).map(drop)
}

fn put(buffer: &mut Vec<u8>, kind: u16, value: i32) {
    buffer.extend_from_slice(&8u16.to_ne_bytes());
    buffer.extend_from_slice(&kind.to_ne_bytes());
    buffer.extend_from_slice(&value.to_ne_bytes());
}

/// Sends one message about a device and returns the payload of the answer.
fn request(kind: u16, flags: u16, ifindex: u32, attributes: &[u8]) -> Result<Vec<u8>, PortError> {
    let call = if kind == libc::RTM_GETLINK {
        "ask for the XDP program (netlink)"
    } else {
        "replace an XDP program"
    };
    let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE, call)?;
    let mut message = Vec::with_capacity(NLMSG_HEADER + IFINFO_HEADER + attributes.len());
    message.extend_from_slice(&((NLMSG_HEADER + IFINFO_HEADER + attributes.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]); // sequence number and port: one request per socket
    message.extend_from_slice(&[0; 4]); // family and device type
    message.extend_from_slice(&ifindex.to_ne_bytes());
    message.extend_from_slice(&[0; 8]); // flags and their mask
    message.extend_from_slice(attributes);
    // SAFETY: the buffer is initialised, of the length given, and outlives the call.
    if unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) } < 0 {
        return Err(PortError::last_os(call));
    }
    let mut reply = vec![0u8; 64 * 1024];
    // SAFETY: the buffer has the length given and outlives the call.
    let len = unsafe { libc::recv(fd.as_raw_fd(), reply.as_mut_ptr().cast(), reply.len(), 0) };
    if len < 0 {
        return Err(PortError::last_os(call));
    }
    reply.truncate(len as usize);
    match u16_at(&reply, 4) {
        Some(kind) if i32::from(kind) == libc::NLMSG_ERROR => {
            let errno = u32_at(&reply, NLMSG_HEADER).map_or(libc::EPROTO, |code| -(code as i32));
            if errno != 0 { Err(PortError::Os { call: call.into(), errno }) } else { Ok(reply) }
        }
        _ => Ok(reply),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The attributes of a netlink payload.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u16_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 2)? & !NESTED;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn parse_attached(reply: &[u8]) -> Option<XdpAttached> {
    let payload = reply.get(NLMSG_HEADER + IFINFO_HEADER..)?;
    let (_, nest) = attributes(payload).find(|(kind, _)| *kind == IFLA_XDP)?;
    let find = |wanted| attributes(nest).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    if *find(IFLA_XDP_ATTACHED)?.first()? == 0 {
        return None;
    }
    let id = |wanted| find(wanted).and_then(|value| u32_at(value, 0));
    // Several modes at once have an id each; then the plain one is missing.
    if let Some(program_id) = id(IFLA_XDP_DRV_PROG_ID) {
        return Some(XdpAttached { program_id, mode_flag: XDP_FLAGS_DRV_MODE });
    }
    if let Some(program_id) = id(IFLA_XDP_SKB_PROG_ID) {
        return Some(XdpAttached { program_id, mode_flag: XDP_FLAGS_SKB_MODE });
    }
    Some(XdpAttached { program_id: id(IFLA_XDP_PROG_ID)?, mode_flag: XDP_FLAGS_DRV_MODE })
}

//! The two messages of rtnetlink that concern XDP: query a device's program, and replace it.
//!
//! Source: rtnetlink(7), linux/if_link.h (IFLA_XDP).

use crate::PortError;
use crate::netlink::{IFINFO, Message, attribute, u32_at};
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

/// A program that is attached to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct XdpAttached {
    pub(super) program_id: u32,
    /// XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE.
    pub(super) mode_flag: u32,
}

/// The program attached to a device, if any.
pub(super) fn xdp_attached(ifindex: u32) -> Result<Option<XdpAttached>, PortError> {
    let reply = Message::link(libc::RTM_GETLINK, 0, ifindex).send("ask for the XDP program (netlink)")?;
    Ok(parse_attached(&reply))
}

/// Replaces `expected` by `program` (none: removes it) without a link. For programs that have no link.
pub(super) fn xdp_replace(
    ifindex: u32,
    program: Option<&OwnedFd>,
    mode_flag: u32,
    expected: Option<&OwnedFd>,
) -> Result<(), PortError> {
    let mut message = Message::link(libc::RTM_SETLINK, libc::NLM_F_ACK, ifindex);
    message.nested(IFLA_XDP, |xdp| {
        xdp.attribute(IFLA_XDP_FD, &program.map_or(-1, |fd| fd.as_raw_fd()).to_ne_bytes());
        let replace = if expected.is_some() { XDP_FLAGS_REPLACE } else { 0 };
        xdp.attribute(IFLA_XDP_FLAGS, &(mode_flag | replace).to_ne_bytes());
        if let Some(expected) = expected {
            xdp.attribute(IFLA_XDP_EXPECTED_FD, &expected.as_raw_fd().to_ne_bytes());
        }
    });
    message.send("replace an XDP program").map(drop)
}

fn parse_attached(reply: &[u8]) -> Option<XdpAttached> {
    let nest = attribute(reply, IFINFO, IFLA_XDP)?;
    if *attribute(nest, 0, IFLA_XDP_ATTACHED)?.first()? == 0 {
        return None;
    }
    let id = |wanted| attribute(nest, 0, wanted).and_then(|value| u32_at(value, 0));
    // Several modes at once have an id each; then the plain one is missing.
    if let Some(program_id) = id(IFLA_XDP_DRV_PROG_ID) {
        return Some(XdpAttached { program_id, mode_flag: XDP_FLAGS_DRV_MODE });
    }
    if let Some(program_id) = id(IFLA_XDP_SKB_PROG_ID) {
        return Some(XdpAttached { program_id, mode_flag: XDP_FLAGS_SKB_MODE });
    }
    Some(XdpAttached { program_id: id(IFLA_XDP_PROG_ID)?, mode_flag: XDP_FLAGS_DRV_MODE })
}

//! Messages of the vhost-user protocol, front end to back end and back.
//!
//! A message is a header of three little-endian words (request, flags, length of the payload) and the
//! payload; descriptors accompany it in the socket. Everything here comes from a guest's virtual machine
//! monitor, which is not trusted: lengths and counts are checked, and an invalid message is an error with a
//! text, never a panic.
//!
//! Source: QEMU's docs/interop/vhost-user.rst.

use std::fmt;

/// Bytes of the header.
pub const HEADER_LEN: usize = 12;
/// No message of the protocol has a longer payload.
pub const PAYLOAD_MAX: usize = 4096;
/// Descriptors that a message may carry: one per memory region of SET_MEM_TABLE.
pub const FDS_MAX: usize = 8;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;

/// The first twelve bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The number of the request.
    pub request: u32,
    /// The front end expects an acknowledgement of a request that usually has none.
    pub need_reply: bool,
    /// Bytes that follow.
    pub payload_len: usize,
}

impl Header {
    /// Reads a header. Errors: a version other than 1, or a payload that no message has.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Header, MessageError> {
        let (request, flags, len) = (u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 8));
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version(flags & VERSION_MASK));
        }
        if len as usize > PAYLOAD_MAX {
            return Err(MessageError::TooLong { request, len });
        }
        Ok(Header { request, need_reply: flags & NEED_REPLY != 0, payload_len: len as usize })
    }
}

/// A message with `payload`, as a reply or as a request of the sender's own.
pub fn encode(request: u32, is_reply: bool, need_reply: bool, payload: &[u8]) -> Vec<u8> {
    let flags = VERSION | if is_reply { REPLY } else { 0 } | if need_reply { NEED_REPLY } else { 0 };
    let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
    for word in [request, flags, payload.len() as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// Numbers of the requests.
#[allow(missing_docs)] // The protocol's own names.
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_LOG_FD: u32 = 7;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SEND_RARP: u32 = 19;
    pub const NET_SET_MTU: u32 = 20;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const SET_STATUS: u32 = 39;
    pub const GET_STATUS: u32 = 40;
}

/// A region of guest memory: where the guest, and where the front end's own addresses, have it, and where in
/// the file that came with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Guest physical address.
    pub guest: u64,
    /// Length in bytes.
    pub len: u64,
    /// Address in the front end's process, by which rings are identified.
    pub user: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// SET_VRING_ADDR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VringAddr {
    /// Which vring.
    pub index: u32,
    /// Whether writes to the used ring are logged for migration.
    pub is_logged: bool,
    /// Descriptors, in the front end's addresses.
    pub desc: u64,
    /// Used ring; in the packed layout the device's event area.
    pub used: u64,
    /// Available ring; in the packed layout the driver's event area.
    pub avail: u64,
    /// Guest address of the used ring for the log; in the packed layout of no use.
    pub log: u64,
}

/// A request from the front end.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The protocol's own names, see `request`.
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<Region>),
    SetLogBase {
        len: u64,
        offset: u64,
    },
    SetLogFd,
    SetVringNum {
        index: u32,
        num: u32,
    },
    SetVringAddr(VringAddr),
    SetVringBase {
        index: u32,
        base: u32,
    },
    GetVringBase {
        index: u32,
    },
    SetVringKick {
        index: u32,
        has_fd: bool,
    },
    SetVringCall {
        index: u32,
        has_fd: bool,
    },
    SetVringErr {
        index: u32,
        has_fd: bool,
    },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable {
        index: u32,
        enable: bool,
    },
    SendRarp([u8; 6]),
    NetSetMtu(u64),
    SetBackendReqFd,
    ResetDevice,
    GetMaxMemSlots,
    AddMemReg(Region),
    RemMemReg(Region),
    SetStatus(u64),
    GetStatus,
    /// A request that this back end does not support.
    Unknown(u32),
}

impl Request {
    /// Reads a payload. Errors: a length that the request does not have, or a count beyond the protocol's
    /// bounds.
    pub fn parse(number: u32, payload: &[u8]) -> Result<Request, MessageError> {
        use request as r;
        let short = || MessageError::Length { request: number, len: payload.len() };
        let exact = |len: usize| if payload.len() == len { Ok(()) } else { Err(short()) };
        let u64_payload = || exact(8).map(|()| u64_at(payload, 0));
        let state = || exact(8).map(|()| (u32_at(payload, 0), u32_at(payload, 4)));
        // Bits 0 to 7 are the vring's number; bit 8 says that no descriptor comes with it.
        let vring_fd = || u64_payload().map(|word| ((word & 0xff) as u32, word & 0x100 == 0));
        Ok(match number {
            r::GET_FEATURES => Request::GetFeatures,
            r::SET_FEATURES => Request::SetFeatures(u64_payload()?),
            r::SET_OWNER => Request::SetOwner,
            r::RESET_OWNER => Request::ResetOwner,
            r::SET_MEM_TABLE => Request::SetMemTable(regions(payload).ok_or_else(short)?),
            r::SET_LOG_BASE => {
                exact(16)?;
                Request::SetLogBase { len: u64_at(payload, 0), offset: u64_at(payload, 8) }
            }
            r::SET_LOG_FD => Request::SetLogFd,
            r::SET_VRING_NUM => state().map(|(index, num)| Request::SetVringNum { index, num })?,
            r::SET_VRING_ADDR => {
                exact(40)?;
                Request::SetVringAddr(VringAddr {
                    index: u32_at(payload, 0),
                    is_logged: u32_at(payload, 4) & 1 != 0,
                    desc: u64_at(payload, 8),
                    used: u64_at(payload, 16),
                    avail: u64_at(payload, 24),
                    log: u64_at(payload, 32),
                })
            }
            r::SET_VRING_BASE => state().map(|(index, base)| Request::SetVringBase { index, base })?,
            r::GET_VRING_BASE => state().map(|(index, _)| Request::GetVringBase { index })?,
            r::SET_VRING_KICK => vring_fd().map(|(index, has_fd)| Request::SetVringKick { index, has_fd })?,
            r::SET_VRING_CALL => vring_fd().map(|(index, has_fd)| Request::SetVringCall { index, has_fd })?,
            r::SET_VRING_ERR => vring_fd().map(|(index, has_fd)| Request::SetVringErr { index, has_fd })?,
            r::GET_PROTOCOL_FEATURES => Request::GetProtocolFeatures,
            r::SET_PROTOCOL_FEATURES => Request::SetProtocolFeatures(u64_payload()?),
            r::GET_QUEUE_NUM => Request::GetQueueNum,
            r::SET_VRING_ENABLE => {
                state().map(|(index, enable)| Request::SetVringEnable { index, enable: enable != 0 })?
            }
            r::SEND_RARP => {
                let word = u64_payload()?.to_le_bytes();
                Request::SendRarp([word[0], word[1], word[2], word[3], word[4], word[5]])
            }
            r::NET_SET_MTU => Request::NetSetMtu(u64_payload()?),
            r::SET_BACKEND_REQ_FD => Request::SetBackendReqFd,
            r::RESET_DEVICE => Request::ResetDevice,
            r::GET_MAX_MEM_SLOTS => Request::GetMaxMemSlots,
            r::ADD_MEM_REG => Request::AddMemReg(single_region(payload).ok_or_else(short)?),
            r::REM_MEM_REG => Request::RemMemReg(single_region(payload).ok_or_else(short)?),
            r::SET_STATUS => Request::SetStatus(u64_payload()?),
            r::GET_STATUS => Request::GetStatus,
            other => Request::Unknown(other),
        })
    }

    /// How many descriptors come with it.
    pub fn fds_expected(&self) -> std::ops::RangeInclusive<usize> {
        match self {
            Request::SetMemTable(regions) => regions.len()..=regions.len(),
            Request::SetLogBase { .. } | Request::SetLogFd => 1..=1,
            Request::SetBackendReqFd | Request::AddMemReg(_) => 1..=1,
            Request::SetVringKick { has_fd, .. }
            | Request::SetVringCall { has_fd, .. }
            | Request::SetVringErr { has_fd, .. } => {
                let count = usize::from(*has_fd);
                count..=count
            }
            // Some front ends send the region's descriptor along when they take it away.
            Request::RemMemReg(_) => 0..=1,
            Request::Unknown(_) => 0..=FDS_MAX,
            _ => 0..=0,
        }
    }
}

fn regions(payload: &[u8]) -> Option<Vec<Region>> {
    let count = u32_at(payload.get(..8)?, 0) as usize;
    if count > FDS_MAX || payload.len() < 8 + count * 32 {
        return None;
    }
    Some(payload[8..].chunks_exact(32).take(count).map(region).collect())
}

fn single_region(payload: &[u8]) -> Option<Region> {
    payload.get(8..40).map(region)
}

fn region(bytes: &[u8]) -> Region {
    Region {
        guest: u64_at(bytes, 0),
        len: u64_at(bytes, 8),
        user: u64_at(bytes, 16),
        offset: u64_at(bytes, 24),
    }
}

impl Region {
    /// The wire form.
    pub fn encode(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.guest, self.len, self.user, self.offset]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl VringAddr {
    /// The wire form.
    pub fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..4].copy_from_slice(&self.index.to_le_bytes());
        bytes[4..8].copy_from_slice(&u32::from(self.is_logged).to_le_bytes());
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip([self.desc, self.used, self.avail, self.log]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Why bytes are no message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// Only version 1 exists.
    Version(u32),
    /// A payload beyond [`PAYLOAD_MAX`].
    TooLong {
        /// The request's number.
        request: u32,
        /// Its length.
        len: u32,
    },
    /// A payload of another length than the request has.
    Length {
        /// The request's number.
        request: u32,
        /// Its length.
        len: usize,
    },
    /// Other descriptors than the request has.
    Descriptors {
        /// The request's number.
        request: u32,
        /// How many came.
        count: usize,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::Version(version) => write!(f, "vhost-user version {version}, not 1"),
            MessageError::TooLong { request, len } => write!(f, "request {request} with {len} bytes"),
            MessageError::Length { request, len } => {
                write!(f, "request {request} with a payload of {len} bytes, which it does not have")
            }
            MessageError::Descriptors { request, count } => {
                write!(f, "request {request} with {count} file descriptors")
            }
        }
    }
}

impl std::error::Error for MessageError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_follows_and_refuses_what_no_message_is() {
        let bytes = encode(request::SET_FEATURES, false, true, &7u64.to_le_bytes());
        let header = Header::parse(bytes[..HEADER_LEN].try_into().unwrap()).unwrap();
        assert_eq!(header, Header { request: 2, need_reply: true, payload_len: 8 });
        let mut wrong = bytes.clone();
        wrong[4] = 2;
        assert_eq!(Header::parse(wrong[..HEADER_LEN].try_into().unwrap()), Err(MessageError::Version(2)));
        let mut long = bytes;
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Header::parse(long[..HEADER_LEN].try_into().unwrap()).is_err());
    }

    #[test]
    fn payloads_are_read_as_they_were_written() {
        let region = Region { guest: 1, len: 2, user: 3, offset: 4 };
        let mut table = vec![1, 0, 0, 0, 0, 0, 0, 0];
        table.extend_from_slice(&region.encode());
        assert_eq!(Request::parse(request::SET_MEM_TABLE, &table), Ok(Request::SetMemTable(vec![region])));
        let addr = VringAddr { index: 5, is_logged: true, desc: 1 << 40, used: 7, avail: 8, log: 9 };
        assert_eq!(Request::parse(request::SET_VRING_ADDR, &addr.encode()), Ok(Request::SetVringAddr(addr)));
        let kick = 0x103u64.to_le_bytes();
        let parsed = Request::parse(request::SET_VRING_KICK, &kick).unwrap();
        assert_eq!(parsed, Request::SetVringKick { index: 3, has_fd: false });
        assert_eq!(parsed.fds_expected(), 0..=0);
    }

    #[test]
    fn wrong_lengths_and_counts_are_errors() {
        for number in 0..64 {
            for len in 0..64 {
                // Whatever the bytes are: an error or a request, no panic.
                let _ = Request::parse(number, &vec![0xff; len]);
            }
        }
        assert!(Request::parse(request::SET_MEM_TABLE, &[9, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(Request::parse(request::SET_VRING_ADDR, &[0; 39]).is_err());
        assert!(Request::parse(request::ADD_MEM_REG, &[0; 39]).is_err());
    }
}

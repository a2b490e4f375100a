//! TCP (RFC 9293 section 3.1).

use std::fmt;

use crate::bytes::{be16, clamped, invalid, need, put16, room};
use crate::checksum::Sum;
use crate::options::{OptionBytes, Options};
use crate::{Result, WireError};

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Source port.
    pub const SRC_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DST_PORT: Range<usize> = 2..4;
    /// Sequence number.
    pub const SEQ: Range<usize> = 4..8;
    /// Acknowledgement number.
    pub const ACK: Range<usize> = 8..12;
    /// Data offset in words (4 bits) and flags (12 bits, the upper four reserved).
    pub const OFFSET_FLAGS: Range<usize> = 12..14;
    /// Window.
    pub const WINDOW: Range<usize> = 14..16;
    /// Checksum.
    pub const CHECKSUM: Range<usize> = 16..18;
    /// Urgent pointer.
    pub const URGENT: Range<usize> = 18..20;
    /// Options, if the header is longer than 20 bytes.
    pub const OPTIONS: usize = 20;
}

/// Length of the header without options, in bytes.
pub const HEADER_LEN_MIN: usize = field::OPTIONS;

/// Kinds of options.
pub mod option {
    /// Maximum segment size: 2 bytes.
    pub const MSS: u8 = 2;
    /// Window scale: 1 byte.
    pub const WINDOW_SCALE: u8 = 3;
    /// Selective acknowledgements permitted.
    pub const SACK_PERMITTED: u8 = 4;
    /// Selective acknowledgements.
    pub const SACK: u8 = 5;
    /// Timestamps: 8 bytes.
    pub const TIMESTAMPS: u8 = 8;
}

/// The 12 bits of flags, the four reserved ones among them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(u16);

#[allow(missing_docs)] // Each constant is the flag it names.
impl TcpFlags {
    pub const NONE: Self = Self(0);
    pub const FIN: Self = Self(0x001);
    pub const SYN: Self = Self(0x002);
    pub const RST: Self = Self(0x004);
    pub const PSH: Self = Self(0x008);
    pub const ACK: Self = Self(0x010);
    pub const URG: Self = Self(0x020);
    pub const ECE: Self = Self(0x040);
    pub const CWR: Self = Self(0x080);
    pub const NS: Self = Self(0x100);

    /// The low 12 bits of `bits`.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0xfff)
    }

    /// The flags as a number below 4096.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl std::ops::BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpFlags({:#05x})", self.0)
    }
}

fn check(bytes: &[u8]) -> Result<()> {
    need("tcp", bytes, HEADER_LEN_MIN)?;
    let header_len = usize::from(bytes[field::OFFSET_FLAGS.start] >> 4) * 4;
    if header_len < HEADER_LEN_MIN {
        return invalid("tcp", "data offset", header_len as u64);
    }
    need("tcp", bytes, header_len)
}

view!(
    /// A TCP segment: the whole of what IP carries.
    TcpSegment, check
);

fields!(TcpSegment {
    /// Source port.
    src_port, set_src_port: u16 at field::SRC_PORT;
    /// Destination port.
    dst_port, set_dst_port: u16 at field::DST_PORT;
    /// Sequence number.
    seq, set_seq: u32 at field::SEQ;
    /// Acknowledgement number.
    ack, set_ack: u32 at field::ACK;
    /// Window.
    window, set_window: u16 at field::WINDOW;
    /// Checksum.
    checksum, set_checksum: u16 at field::CHECKSUM;
    /// Urgent pointer.
    urgent, set_urgent: u16 at field::URGENT;
});

impl<B: AsRef<[u8]>> TcpSegment<B> {
    /// Length of the header with its options, in bytes: 20..=60.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[field::OFFSET_FLAGS.start] >> 4) * 4
    }

    /// Flags.
    pub fn flags(&self) -> TcpFlags {
        TcpFlags::from_bits(be16(self.0.as_ref(), field::OFFSET_FLAGS))
    }

    /// The options as bytes, in 0..=40.
    pub fn option_bytes(&self) -> &[u8] {
        clamped(self.0.as_ref(), field::OPTIONS, self.header_len())
    }

    /// The options.
    pub fn options(&self) -> Options<'_> {
        Options::new("tcp", self.option_bytes())
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), self.header_len(), usize::MAX)
    }

    /// Whether the checksum is valid, `pseudo` being the sum of the pseudo-header.
    pub fn is_checksum_valid(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.0.as_ref()).is_valid()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> TcpSegment<B> {
    /// Sets the flags, keeps the data offset.
    pub fn set_flags(&mut self, flags: TcpFlags) {
        let old = be16(self.0.as_ref(), field::OFFSET_FLAGS);
        put16(self.0.as_mut(), field::OFFSET_FLAGS, old & 0xf000 | flags.bits());
    }

    /// Computes and stores the checksum.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let sum = pseudo.bytes(self.0.as_ref()).finish();
        self.set_checksum(sum);
    }
}

/// The header as values. The caller, who knows the pseudo-header, handles the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags.
    pub flags: TcpFlags,
    /// Window.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: OptionBytes,
}

impl TcpRepr {
    /// A segment with ACK set and no options.
    pub fn new(src_port: u16, dst_port: u16) -> Self {
        Self {
            src_port,
            dst_port,
            seq: 1,
            ack: 1,
            flags: TcpFlags::ACK,
            window: 65_535,
            urgent: 0,
            options: OptionBytes::EMPTY,
        }
    }

    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(segment: &TcpSegment<B>) -> Result<Self> {
        let options = OptionBytes::new(segment.option_bytes()).ok_or(WireError::Invalid {
            layer: "tcp",
            field: "data offset",
            value: segment.header_len() as u64,
        })?;
        Ok(Self {
            src_port: segment.src_port(),
            dst_port: segment.dst_port(),
            seq: segment.seq(),
            ack: segment.ack(),
            flags: segment.flags(),
            window: segment.window(),
            urgent: segment.urgent(),
            options,
        })
    }

    /// Bytes that [`Self::emit`] writes: 20..=60.
    pub fn header_len(&self) -> usize {
        HEADER_LEN_MIN + self.options.len()
    }

    /// Writes the header, checksum 0, to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let header_len = self.header_len();
        let bytes = room("tcp", buffer, header_len)?;
        bytes[field::OPTIONS..].copy_from_slice(self.options.as_bytes());
        let offset = (header_len / 4) as u16;
        put16(bytes, field::OFFSET_FLAGS, offset << 12 | self.flags.bits());
        let mut segment = TcpSegment(bytes);
        segment.set_src_port(self.src_port);
        segment.set_dst_port(self.dst_port);
        segment.set_seq(self.seq);
        segment.set_ack(self.ack);
        segment.set_window(self.window);
        segment.set_checksum(0);
        segment.set_urgent(self.urgent);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;
    use crate::checksum::pseudo_v4;
    use crate::ip::IpProtocol;
    use std::net::Ipv4Addr;

    /// A SYN from 40000 to 80 with MSS 1460, followed by one byte.
    const SEGMENT: [u8; 25] = [
        0x9c, 0x40, 0x00, 0x50, 0x01, 0x02, 0x03, 0x04, 0, 0, 0, 0, 0x60, 0x02, 0xfa, 0xf0, 0, 0, 0, 0, 2, 4,
        0x05, 0xb4, 0x47,
    ];

    #[test]
    fn a_literal_segment_reads_and_writes_back() {
        let segment = TcpSegment::new(&SEGMENT[..]).unwrap();
        assert_eq!((segment.src_port(), segment.dst_port()), (40_000, 80));
        assert_eq!(segment.seq(), 0x0102_0304);
        assert_eq!(segment.flags(), TcpFlags::SYN);
        assert_eq!(segment.window(), 64_240);
        let mss = segment.options().next().unwrap().unwrap();
        assert_eq!((mss.kind, mss.data), (option::MSS, &[0x05, 0xb4][..]));
        assert_eq!(segment.payload(), [0x47]);
        let mut out = [0xff; 24];
        TcpRepr::parse(&segment).unwrap().emit(&mut out).unwrap();
        assert_eq!(out, SEGMENT[..24]);
    }

    #[test]
    fn truncations_and_short_offsets_are_errors() {
        each_prefix(&SEGMENT[..24], |short| assert!(TcpSegment::new(short).is_err()));
        let mut bytes = SEGMENT;
        bytes[12] = 0x40;
        assert!(matches!(TcpSegment::new(bytes), Err(WireError::Invalid { .. })));
    }

    #[test]
    fn flags_are_set_beside_the_offset_and_the_checksum_fits() {
        let pseudo = pseudo_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST, IpProtocol::TCP, 25);
        let mut segment = TcpSegment::new(SEGMENT).unwrap();
        segment.set_flags(TcpFlags::FIN | TcpFlags::ACK | TcpFlags::NS);
        assert_eq!(segment.flags().bits(), 0x111);
        assert!(segment.flags().contains(TcpFlags::ACK | TcpFlags::FIN));
        assert_eq!(segment.header_len(), 24);
        segment.fill_checksum(pseudo);
        assert!(segment.is_checksum_valid(pseudo));
    }
}

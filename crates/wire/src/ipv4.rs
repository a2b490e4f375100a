//! IPv4 (RFC 791).

use std::net::Ipv4Addr;

use crate::bytes::{be16, clamped, clamped_mut, invalid, len16, need, put16, room};
use crate::checksum::{self, Sum};
use crate::ip::IpProtocol;
use crate::options::{OptionBytes, Options};
use crate::{Result, WireError};

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Version (4 bits) and header length in words (4 bits).
    pub const VER_IHL: usize = 0;
    /// DSCP (6 bits) and ECN (2 bits).
    pub const TOS: usize = 1;
    /// Length of header and payload.
    pub const TOTAL_LEN: Range<usize> = 2..4;
    /// Identification.
    pub const IDENT: Range<usize> = 4..6;
    /// Flags (3 bits) and fragment offset in units of 8 bytes (13 bits).
    pub const FLAGS_OFFSET: Range<usize> = 6..8;
    /// Time to live.
    pub const TTL: usize = 8;
    /// Protocol.
    pub const PROTOCOL: usize = 9;
    /// Checksum of the header.
    pub const CHECKSUM: Range<usize> = 10..12;
    /// Source address.
    pub const SRC: Range<usize> = 12..16;
    /// Destination address.
    pub const DST: Range<usize> = 16..20;
    /// Options, if the header is longer than 20 bytes.
    pub const OPTIONS: usize = 20;
}

/// Length of the header without options, in bytes.
pub const HEADER_LEN_MIN: usize = field::OPTIONS;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

fn check(bytes: &[u8]) -> Result<()> {
    need("ipv4", bytes, HEADER_LEN_MIN)?;
    let version = bytes[field::VER_IHL] >> 4;
    if version != 4 {
        return invalid("ipv4", "version", u64::from(version));
    }
    let header_len = usize::from(bytes[field::VER_IHL] & 0xf) * 4;
    if header_len < HEADER_LEN_MIN {
        return invalid("ipv4", "header length", header_len as u64);
    }
    let total_len = usize::from(be16(bytes, field::TOTAL_LEN));
    if total_len < header_len {
        return invalid("ipv4", "total length", total_len as u64);
    }
    need("ipv4", bytes, total_len)
}

view!(
    /// An IPv4 packet. Bytes past its total length (Ethernet padding) may follow.
    Ipv4Packet, check
);

fields!(Ipv4Packet {
    /// DSCP and ECN in one byte.
    tos, set_tos: u8 at field::TOS;
    /// Length of header and payload in bytes.
    total_len, set_total_len: u16 at field::TOTAL_LEN;
    /// Identification, by which fragments are reassembled.
    ident, set_ident: u16 at field::IDENT;
    /// Flags and fragment offset, raw.
    flags_offset, set_flags_offset: u16 at field::FLAGS_OFFSET;
    /// Time to live.
    ttl, set_ttl: u8 at field::TTL;
    /// Protocol of the payload.
    protocol, set_protocol: IpProtocol at field::PROTOCOL;
    /// Checksum of the header.
    checksum, set_checksum: u16 at field::CHECKSUM;
    /// Source.
    src, set_src: Ipv4Addr at field::SRC;
    /// Destination.
    dst, set_dst: Ipv4Addr at field::DST;
});

impl<B: AsRef<[u8]>> Ipv4Packet<B> {
    /// Length of the header with its options, in bytes: 20..=60.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[field::VER_IHL] & 0xf) * 4
    }

    /// Differentiated services code point: 0..=63.
    pub fn dscp(&self) -> u8 {
        self.tos() >> 2
    }

    /// Explicit congestion notification: 0..=3.
    pub fn ecn(&self) -> u8 {
        self.tos() & 3
    }

    /// Must not be fragmented.
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset() & DONT_FRAGMENT != 0
    }

    /// Another fragment follows.
    pub fn more_fragments(&self) -> bool {
        self.flags_offset() & MORE_FRAGMENTS != 0
    }

    /// Place of this fragment, in units of 8 bytes.
    pub fn fragment_offset(&self) -> u16 {
        self.flags_offset() & OFFSET_MASK
    }

    /// Whether it is a fragment: has an offset, or more fragments follow.
    pub fn is_fragment(&self) -> bool {
        self.flags_offset() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// The options.
    pub fn options(&self) -> Options<'_> {
        Options::new("ipv4", self.option_bytes())
    }

    /// The options as bytes, in 0..=40.
    pub fn option_bytes(&self) -> &[u8] {
        clamped(self.0.as_ref(), field::OPTIONS, self.header_len())
    }

    /// What follows the header, up to the total length.
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), self.header_len(), usize::from(self.total_len()))
    }

    /// Whether the header's checksum is valid.
    pub fn is_checksum_valid(&self) -> bool {
        checksum::is_valid(clamped(self.0.as_ref(), 0, self.header_len()))
    }

    /// Sum of the pseudo-header for a transport header and payload of `len` bytes.
    pub fn pseudo(&self, len: u16) -> Sum {
        checksum::pseudo_v4(self.src(), self.dst(), self.protocol(), len)
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Ipv4Packet<B> {
    /// As [`Self::payload`], to write to.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.header_len(), usize::from(self.total_len()));
        clamped_mut(self.0.as_mut(), start, end)
    }

    /// Sets version 4 and the header length in bytes (a multiple of 4 in 20..=60).
    pub fn set_header_len(&mut self, header_len: usize) {
        self.0.as_mut()[field::VER_IHL] = 0x40 | (header_len / 4) as u8 & 0xf;
    }

    /// Computes and stores the header's checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = checksum::checksum(clamped(self.0.as_ref(), 0, self.header_len()));
        self.set_checksum(sum);
    }
}

/// The header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Repr {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// DSCP and ECN.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Identification.
    pub ident: u16,
    /// Must not be fragmented.
    pub dont_fragment: bool,
    /// Another fragment follows.
    pub more_fragments: bool,
    /// Place of this fragment, in units of 8 bytes, below 8192.
    pub fragment_offset: u16,
    /// Options.
    pub options: OptionBytes,
    /// Bytes after the header.
    pub payload_len: usize,
}

impl Ipv4Repr {
    /// A plain header: time to live 64, don't fragment, no options, no payload.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol) -> Self {
        Self {
            src,
            dst,
            protocol,
            tos: 0,
            ttl: 64,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            options: OptionBytes::EMPTY,
            payload_len: 0,
        }
    }

    /// Reads the header. Its checksum must be right.
    pub fn parse<B: AsRef<[u8]>>(packet: &Ipv4Packet<B>) -> Result<Self> {
        if !packet.is_checksum_valid() {
            return invalid("ipv4", "header checksum", u64::from(packet.checksum()));
        }
        let options = OptionBytes::new(packet.option_bytes()).ok_or(WireError::Invalid {
            layer: "ipv4",
            field: "header length",
            value: packet.header_len() as u64,
        })?;
        Ok(Self {
            src: packet.src(),
            dst: packet.dst(),
            protocol: packet.protocol(),
            tos: packet.tos(),
            ttl: packet.ttl(),
            ident: packet.ident(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
            options,
            payload_len: packet.payload().len(),
        })
    }

    /// Bytes that [`Self::emit`] writes: 20..=60.
    pub fn header_len(&self) -> usize {
        HEADER_LEN_MIN + self.options.len()
    }

    /// Writes the header with its checksum to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let header_len = self.header_len();
        let total_len = len16("ipv4", "total length", header_len + self.payload_len)?;
        if self.fragment_offset > OFFSET_MASK {
            return invalid("ipv4", "fragment offset", u64::from(self.fragment_offset));
        }
        let bytes = room("ipv4", buffer, header_len)?;
        bytes[field::OPTIONS..].copy_from_slice(self.options.as_bytes());
        let mut flags_offset = self.fragment_offset;
        if self.dont_fragment {
            flags_offset |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            flags_offset |= MORE_FRAGMENTS;
        }
        put16(bytes, field::FLAGS_OFFSET, flags_offset);
        let mut packet = Ipv4Packet(bytes);
        packet.set_header_len(header_len);
        packet.set_tos(self.tos);
        packet.set_total_len(total_len);
        packet.set_ident(self.ident);
        packet.set_ttl(self.ttl);
        packet.set_protocol(self.protocol);
        packet.set_src(self.src);
        packet.set_dst(self.dst);
        packet.fill_checksum();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;

    /// 10.0.0.1 to 10.0.0.2, UDP, with a router-alert option and two bytes of payload and two of padding.
    const PACKET: [u8; 28] = [
        0x46, 0xb9, 0x00, 0x1a, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0x7e, 0xdf, 10, 0, 0, 1, 10, 0, 0, 2,
        0x94, 4, 0, 0, 0xab, 0xcd, 0, 0,
    ];

    #[test]
    fn a_literal_packet_reads_and_writes_back() {
        let packet = Ipv4Packet::new(&PACKET[..]).unwrap();
        assert_eq!((packet.dscp(), packet.ecn()), (46, 1));
        assert_eq!(packet.header_len(), 24);
        assert_eq!(packet.payload(), [0xab, 0xcd]);
        assert!(packet.dont_fragment() && !packet.is_fragment());
        let option = packet.options().next().unwrap().unwrap();
        assert_eq!((option.kind, option.data), (0x94, &[0, 0][..]));
        assert!(packet.is_checksum_valid());
        let repr = Ipv4Repr::parse(&packet).unwrap();
        let mut out = [0; 24];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, PACKET[..24]);
    }

    #[test]
    fn truncation_at_every_length_is_an_error() {
        each_prefix(&PACKET[..26], |short| {
            assert!(matches!(Ipv4Packet::new(short), Err(WireError::Truncated { .. })));
        });
        let repr = Ipv4Repr::parse(&Ipv4Packet::new(PACKET).unwrap()).unwrap();
        each_prefix(&PACKET[..24], |short| assert!(repr.emit(&mut short.to_vec()).is_err()));
    }

    #[test]
    fn impossible_fields_are_named() {
        let with = |at: usize, value: u8| {
            let mut bytes = PACKET;
            bytes[at] = value;
            match Ipv4Packet::new(bytes).map(|_| ()) {
                Err(WireError::Invalid { field, .. }) => field,
                _ => "none",
            }
        };
        assert_eq!(with(0, 0x66), "version");
        assert_eq!(with(0, 0x44), "header length");
        assert_eq!(with(3, 23), "total length");
        let mut bytes = PACKET;
        bytes[8] = 1;
        assert!(Ipv4Repr::parse(&Ipv4Packet::new(bytes).unwrap()).is_err());
    }

    #[test]
    fn a_setter_that_lies_about_lengths_does_no_harm() {
        let mut packet = Ipv4Packet::new(PACKET).unwrap();
        packet.set_header_len(60);
        packet.set_total_len(65_535);
        assert!(packet.payload().is_empty() && packet.payload_mut().is_empty());
        assert_eq!(packet.option_bytes().len(), 8);
        packet.fill_checksum();
        packet.set_total_len(3);
        assert!(packet.payload().is_empty());
    }
}

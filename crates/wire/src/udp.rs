//! UDP (RFC 768).

use crate::Result;
use crate::bytes::{clamped, clamped_mut, invalid, len16, need, room};
use crate::checksum::Sum;

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Source port.
    pub const SRC_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DST_PORT: Range<usize> = 2..4;
    /// Length of header and payload.
    pub const LENGTH: Range<usize> = 4..6;
    /// Checksum, 0 for none.
    pub const CHECKSUM: Range<usize> = 6..8;
    /// What follows the header.
    pub const PAYLOAD: usize = 8;
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

fn check(bytes: &[u8]) -> Result<()> {
    // The length field may exceed the bytes: a first fragment carries the whole datagram's.
    need("udp", bytes, HEADER_LEN)
}

view!(
    /// A UDP datagram, or its first fragment.
    UdpPacket, check
);

fields!(UdpPacket {
    /// Source port.
    src_port, set_src_port: u16 at field::SRC_PORT;
    /// Destination port.
    dst_port, set_dst_port: u16 at field::DST_PORT;
    /// Length of header and payload in bytes.
    length, set_length: u16 at field::LENGTH;
    /// Checksum, 0 for none.
    checksum, set_checksum: u16 at field::CHECKSUM;
});

impl<B: AsRef<[u8]>> UdpPacket<B> {
    /// What follows the header, up to the length field or the end of the buffer.
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), HEADER_LEN, usize::from(self.length()))
    }

    /// Whether the checksum is valid, `pseudo` being the sum of the pseudo-header. A checksum of 0 is valid.
    pub fn is_checksum_valid(&self, pseudo: Sum) -> bool {
        let datagram = clamped(self.0.as_ref(), 0, usize::from(self.length()));
        self.checksum() == 0 || pseudo.bytes(datagram).is_valid()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> UdpPacket<B> {
    /// As [`Self::payload`], to write to.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = usize::from(self.length());
        clamped_mut(self.0.as_mut(), HEADER_LEN, end)
    }

    /// Computes and stores the checksum, never 0.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let datagram = clamped(self.0.as_ref(), 0, usize::from(self.length()));
        let sum = pseudo.bytes(datagram).finish_udp();
        self.set_checksum(sum);
    }
}

/// The header as values. The caller, who knows the pseudo-header, handles the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes after the header.
    pub payload_len: usize,
}

impl UdpRepr {
    /// Reads the header of a whole datagram: its length field must be within the bytes.
    pub fn parse<B: AsRef<[u8]>>(packet: &UdpPacket<B>) -> Result<Self> {
        let len = usize::from(packet.length());
        if len < HEADER_LEN {
            return invalid("udp", "length", len as u64);
        }
        need("udp", packet.as_bytes(), len)?;
        Ok(Self { src_port: packet.src_port(), dst_port: packet.dst_port(), payload_len: len - HEADER_LEN })
    }

    /// Bytes that [`Self::emit`] writes: 8.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, checksum 0, to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let len = len16("udp", "length", HEADER_LEN + self.payload_len)?;
        let mut packet = UdpPacket(room("udp", buffer, HEADER_LEN)?);
        packet.set_src_port(self.src_port);
        packet.set_dst_port(self.dst_port);
        packet.set_length(len);
        packet.set_checksum(0);
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

    const DATAGRAM: [u8; 12] = [0xbf, 0x00, 0x00, 0x35, 0x00, 0x0c, 0xff, 0xff, 0xaa, 0x00, 0x00, 0xff];

    #[test]
    fn a_literal_datagram_reads_and_writes_back() {
        let packet = UdpPacket::new(&DATAGRAM[..]).unwrap();
        assert_eq!((packet.src_port(), packet.dst_port()), (48_896, 53));
        assert_eq!(packet.payload(), [0xaa, 0, 0, 0xff]);
        let repr = UdpRepr::parse(&packet).unwrap();
        let mut out = DATAGRAM;
        repr.emit(&mut out).unwrap();
        assert_eq!(out[..6], DATAGRAM[..6]);
        each_prefix(&DATAGRAM, |short| match UdpPacket::new(short) {
            Ok(packet) => assert!(short.len() >= 8 && UdpRepr::parse(&packet).is_err()),
            Err(_) => assert!(short.len() < 8),
        });
    }

    #[test]
    fn checksum_is_filled_and_verified() {
        let pseudo = pseudo_v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), IpProtocol::UDP, 12);
        let mut packet = UdpPacket::new(DATAGRAM).unwrap();
        packet.fill_checksum(pseudo);
        assert!(packet.checksum() != 0 && packet.is_checksum_valid(pseudo));
        packet.payload_mut()[0] ^= 1;
        assert!(!packet.is_checksum_valid(pseudo));
        packet.set_checksum(0);
        assert!(packet.is_checksum_valid(pseudo));
    }

    #[test]
    fn a_length_below_the_header_leaves_no_payload() {
        let mut packet = UdpPacket::new(DATAGRAM).unwrap();
        packet.set_length(7);
        assert!(packet.payload().is_empty() && packet.payload_mut().is_empty());
        assert!(UdpRepr::parse(&packet).is_err());
    }
}

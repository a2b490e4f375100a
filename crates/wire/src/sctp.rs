//! SCTP's common header (RFC 9260 section 3.1).

use crate::Result;
use crate::bytes::{array, need, put, room};
use crate::crc32c::Crc32c;

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Source port.
    pub const SRC_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DST_PORT: Range<usize> = 2..4;
    /// Verification tag.
    pub const TAG: Range<usize> = 4..8;
    /// CRC32c in little-endian order.
    pub const CHECKSUM: Range<usize> = 8..12;
    /// Chunks.
    pub const PAYLOAD: usize = 12;
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

fn check(bytes: &[u8]) -> Result<()> {
    need("sctp", bytes, HEADER_LEN)
}

view!(
    /// An SCTP packet: the whole of what IP carries.
    SctpPacket, check
);

fields!(SctpPacket {
    /// Source port.
    src_port, set_src_port: u16 at field::SRC_PORT;
    /// Destination port.
    dst_port, set_dst_port: u16 at field::DST_PORT;
    /// Verification tag.
    tag, set_tag: u32 at field::TAG;
});

impl<B: AsRef<[u8]>> SctpPacket<B> {
    /// The CRC32c stored.
    pub fn checksum(&self) -> u32 {
        u32::from_le_bytes(array(self.0.as_ref(), field::CHECKSUM))
    }

    /// Chunks.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }

    /// The CRC32c that should be stored.
    pub fn compute_checksum(&self) -> u32 {
        let bytes = self.0.as_ref();
        Crc32c::new()
            .bytes(&bytes[..field::CHECKSUM.start])
            .bytes(&[0; 4])
            .bytes(&bytes[field::PAYLOAD..])
            .finish()
    }

    /// Whether the checksum is valid.
    pub fn is_checksum_valid(&self) -> bool {
        self.checksum() == self.compute_checksum()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> SctpPacket<B> {
    /// Stores a CRC32c.
    pub fn set_checksum(&mut self, checksum: u32) {
        put(self.0.as_mut(), field::CHECKSUM, &checksum.to_le_bytes());
    }

    /// Computes and stores the checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(self.compute_checksum());
    }
}

/// The header as values. The checksum is the caller's, once the chunks are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SctpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Verification tag.
    pub tag: u32,
}

impl SctpRepr {
    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(packet: &SctpPacket<B>) -> Self {
        Self { src_port: packet.src_port(), dst_port: packet.dst_port(), tag: packet.tag() }
    }

    /// Bytes that [`Self::emit`] writes: 12.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, checksum 0, to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let mut packet = SctpPacket(room("sctp", buffer, HEADER_LEN)?);
        packet.set_src_port(self.src_port);
        packet.set_dst_port(self.dst_port);
        packet.set_tag(self.tag);
        packet.set_checksum(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;

    /// COOKIE ACK from 7 to 9 with its CRC32c (computed bit by bit).
    const PACKET: [u8; 16] = [0, 7, 0, 9, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 11, 0, 0, 4];

    #[test]
    fn a_literal_packet_reads_and_writes_back() {
        let packet = SctpPacket::new(&PACKET[..]).unwrap();
        let repr = SctpRepr::parse(&packet);
        assert_eq!((repr.src_port, repr.dst_port, repr.tag), (7, 9, 0xdead_beef));
        assert_eq!(packet.payload(), [11, 0, 0, 4]);
        let mut out = [0xff; 12];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, PACKET[..12]);
        each_prefix(&PACKET[..12], |short| {
            assert!(SctpPacket::new(short).is_err());
            assert!(repr.emit(&mut short.to_vec()).is_err());
        });
    }

    #[test]
    fn checksum_is_little_endian_and_covers_all() {
        let mut packet = SctpPacket::new(PACKET).unwrap();
        packet.fill_checksum();
        assert!(packet.is_checksum_valid());
        let crc = crate::crc32c::crc32c(&PACKET).to_le_bytes();
        let bytes = packet.into_inner();
        assert_eq!(bytes[8..12], crc);
        for at in (0..8).chain(12..16) {
            let mut broken = bytes;
            broken[at] ^= 4;
            assert!(!SctpPacket::new(broken).unwrap().is_checksum_valid());
        }
    }
}

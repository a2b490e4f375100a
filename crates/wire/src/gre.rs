//! GRE (RFC 2784) with key and sequence number (RFC 2890).

use crate::Result;
use crate::bytes::{be16, be32, clamped, invalid, need, put16, put32, room};
use crate::checksum;
use crate::ethernet::EtherType;

/// Byte ranges of the header. Behind the fixed part come, each if its flag is set: checksum (4 bytes, two of
/// them reserved), key (4), sequence number (4).
pub mod field {
    use std::ops::Range;

    /// Flags (13 bits) and version (3 bits).
    pub const FLAGS: Range<usize> = 0..2;
    /// Type of the payload; 0x6558 is Ethernet.
    pub const PROTOCOL: Range<usize> = 2..4;
    /// Optional fields.
    pub const OPTIONAL: usize = 4;
}

/// Length of the header without optional fields, in bytes.
pub const HEADER_LEN_MIN: usize = field::OPTIONAL;

/// Flags.
pub mod flag {
    /// A checksum is there.
    pub const CHECKSUM: u16 = 0x8000;
    /// A key is there.
    pub const KEY: u16 = 0x2000;
    /// A sequence number is there.
    pub const SEQUENCE: u16 = 0x1000;
}

const KNOWN: u16 = flag::CHECKSUM | flag::KEY | flag::SEQUENCE;

fn header_len(flags: u16) -> usize {
    HEADER_LEN_MIN + 4 * (flags & KNOWN).count_ones() as usize
}

fn check(bytes: &[u8]) -> Result<()> {
    need("gre", bytes, HEADER_LEN_MIN)?;
    let flags = be16(bytes, field::FLAGS);
    // Source routing (0x4000) changes the layout, other versions are other protocols (ERSPAN has flags of 0
    // and its own header behind this one).
    if flags & !KNOWN != 0 {
        return invalid("gre", "flags", u64::from(flags));
    }
    need("gre", bytes, header_len(flags))
}

view!(
    /// A GRE header with its optional fields, and the packet in it.
    GreHeader, check
);

fields!(GreHeader {
    /// Flags: see [`flag`].
    flags, set_flags: u16 at field::FLAGS;
    /// Type of the payload.
    protocol, set_protocol: EtherType at field::PROTOCOL;
});

impl<B: AsRef<[u8]>> GreHeader<B> {
    /// Length of the header with its optional fields, in bytes: 4..=16.
    pub fn header_len(&self) -> usize {
        header_len(self.flags())
    }

    fn optional(&self, which: u16) -> Option<u32> {
        // Flags are in the order of their fields, so the fields before are those of the higher bits.
        let flags = self.flags();
        let at = header_len(flags & !(which | (which - 1)));
        let bytes = clamped(self.0.as_ref(), at, at + 4);
        (flags & which != 0 && bytes.len() == 4).then(|| be32(bytes, 0..4))
    }

    /// Checksum of header and payload.
    pub fn checksum(&self) -> Option<u16> {
        self.optional(flag::CHECKSUM).map(|word| (word >> 16) as u16)
    }

    /// Key.
    pub fn key(&self) -> Option<u32> {
        self.optional(flag::KEY)
    }

    /// Sequence number.
    pub fn sequence(&self) -> Option<u32> {
        self.optional(flag::SEQUENCE)
    }

    /// The inner packet.
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), self.header_len(), usize::MAX)
    }

    /// Whether the checksum is valid, or absent.
    pub fn is_checksum_valid(&self) -> bool {
        self.checksum().is_none() || checksum::is_valid(self.0.as_ref())
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> GreHeader<B> {
    /// Computes and stores the checksum, if the header has one.
    pub fn fill_checksum(&mut self) {
        if self.checksum().is_some() {
            put16(self.0.as_mut(), 4..6, 0);
            let sum = checksum::checksum(self.0.as_ref());
            put16(self.0.as_mut(), 4..6, sum);
        }
    }
}

/// The header as values. The checksum is the caller's, once the payload is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreRepr {
    /// Type of the payload.
    pub protocol: EtherType,
    /// Whether there is a checksum.
    pub has_checksum: bool,
    /// Key.
    pub key: Option<u32>,
    /// Sequence number.
    pub sequence: Option<u32>,
}

impl GreRepr {
    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(header: &GreHeader<B>) -> Self {
        Self {
            protocol: header.protocol(),
            has_checksum: header.checksum().is_some(),
            key: header.key(),
            sequence: header.sequence(),
        }
    }

    fn flags(&self) -> u16 {
        let mut flags = 0;
        if self.has_checksum {
            flags |= flag::CHECKSUM;
        }
        if self.key.is_some() {
            flags |= flag::KEY;
        }
        if self.sequence.is_some() {
            flags |= flag::SEQUENCE;
        }
        flags
    }

    /// Bytes that [`Self::emit`] writes: 4..=16.
    pub fn header_len(&self) -> usize {
        header_len(self.flags())
    }

    /// Writes the header, checksum 0, to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let bytes = room("gre", buffer, self.header_len())?;
        put16(bytes, field::FLAGS, self.flags());
        put16(bytes, field::PROTOCOL, self.protocol.0);
        let words = [self.has_checksum.then_some(0), self.key, self.sequence];
        let slots = bytes[field::OPTIONAL..].chunks_exact_mut(4);
        for (slot, word) in slots.zip(words.into_iter().flatten()) {
            put32(slot, 0..4, word);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;

    const HEADER: [u8; 18] = [0xb0, 0, 0x08, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 9, 0x45, 0];

    #[test]
    fn a_literal_header_reads_and_writes_back() {
        let header = GreHeader::new(&HEADER[..]).unwrap();
        let repr = GreRepr::parse(&header);
        assert_eq!((repr.key, repr.sequence, repr.has_checksum), (Some(0x1234), Some(9), true));
        assert_eq!((repr.protocol, header.payload()), (EtherType::IPV4, &[0x45, 0][..]));
        let mut out = [0xff; 16];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, HEADER[..16]);
        each_prefix(&HEADER[..16], |short| {
            assert!(GreHeader::new(short).is_err());
            assert!(repr.emit(&mut short.to_vec()).is_err());
        });
    }

    #[test]
    fn every_choice_of_optional_fields_survives_the_round_trip() {
        for choice in 0..8 {
            let repr = GreRepr {
                protocol: EtherType::TEB,
                has_checksum: choice & 1 != 0,
                key: (choice & 2 != 0).then_some(0xaaaa_bbbb),
                sequence: (choice & 4 != 0).then_some(0xcccc_dddd),
            };
            let mut out = vec![0xff; repr.header_len() + 3];
            repr.emit(&mut out).unwrap();
            let mut header = GreHeader::new(out).unwrap();
            header.fill_checksum();
            assert_eq!(GreRepr::parse(&header), repr);
            assert!(header.is_checksum_valid());
            assert_eq!(header.payload(), [0xff; 3]);
        }
    }

    #[test]
    fn routing_and_other_versions_are_refused() {
        for (at, bit) in [(0, 0x40), (1, 1), (0, 0x08)] {
            let mut other = HEADER;
            other[at] |= bit;
            assert!(GreHeader::new(other).is_err());
        }
        let mut header = GreHeader::new([0, 0, 8, 0]).unwrap();
        header.set_flags(flag::KEY);
        assert_eq!(header.key(), None);
    }
}

//! Geneve (RFC 8926 section 3).

use crate::Result;
use crate::bytes::{be32, clamped, invalid, need, put32, room};
use crate::ethernet::EtherType;

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Version (2 bits) and length of the options in words (6 bits).
    pub const VER_LEN: usize = 0;
    /// Control (1 bit), critical options present (1 bit), reserved.
    pub const FLAGS: usize = 1;
    /// Type of the payload; 0x6558 is Ethernet.
    pub const PROTOCOL: Range<usize> = 2..4;
    /// Network identifier (24 bits) and a reserved byte.
    pub const VNI: Range<usize> = 4..8;
    /// Options.
    pub const OPTIONS: usize = 8;
}

/// Length of the header without options, in bytes.
pub const HEADER_LEN_MIN: usize = field::OPTIONS;

/// Most bytes of options.
pub const OPTIONS_LEN_MAX: usize = 63 * 4;

/// UDP port.
pub const PORT: u16 = 6081;

/// Flags in the second byte.
pub mod flag {
    /// A control packet.
    pub const CONTROL: u8 = 0x80;
    /// An option is critical.
    pub const CRITICAL: u8 = 0x40;
}

fn check(bytes: &[u8]) -> Result<()> {
    need("geneve", bytes, HEADER_LEN_MIN)?;
    let version = bytes[field::VER_LEN] >> 6;
    if version != 0 {
        return invalid("geneve", "version", u64::from(version));
    }
    need("geneve", bytes, HEADER_LEN_MIN + usize::from(bytes[field::VER_LEN] & 0x3f) * 4)
}

view!(
    /// A Geneve header with its options, and the packet in it.
    GeneveHeader, check
);

fields!(GeneveHeader {
    /// Flags: see [`flag`].
    flags, set_flags: u8 at field::FLAGS;
    /// Type of the payload.
    protocol, set_protocol: EtherType at field::PROTOCOL;
});

impl<B: AsRef<[u8]>> GeneveHeader<B> {
    /// Length of the header with its options, in bytes: 8..=260.
    pub fn header_len(&self) -> usize {
        HEADER_LEN_MIN + usize::from(self.0.as_ref()[field::VER_LEN] & 0x3f) * 4
    }

    /// Network identifier: below 2^24.
    pub fn vni(&self) -> u32 {
        be32(self.0.as_ref(), field::VNI) >> 8
    }

    /// The options as bytes.
    pub fn option_bytes(&self) -> &[u8] {
        clamped(self.0.as_ref(), field::OPTIONS, self.header_len())
    }

    /// The options.
    pub fn options(&self) -> GeneveOptions<'_> {
        GeneveOptions::new(self.option_bytes())
    }

    /// The inner packet.
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), self.header_len(), usize::MAX)
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> GeneveHeader<B> {
    /// Sets the network identifier (its low 24 bits) and clears the reserved byte behind it.
    pub fn set_vni(&mut self, vni: u32) {
        put32(self.0.as_mut(), field::VNI, vni << 8);
    }
}

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneveOption<'a> {
    /// Namespace of the type.
    pub class: u16,
    /// Type; the upper bit says "critical".
    pub option_type: u8,
    /// Data: a multiple of 4 bytes, at most 124.
    pub data: &'a [u8],
}

/// Iterator over options. After an error it ends.
#[derive(Debug, Clone)]
pub struct GeneveOptions<'a> {
    rest: &'a [u8],
}

impl<'a> GeneveOptions<'a> {
    /// `bytes` start with an option.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn step(&mut self) -> Result<GeneveOption<'a>> {
        need("geneve option", self.rest, 4)?;
        let len = 4 + usize::from(self.rest[3] & 0x1f) * 4;
        need("geneve option", self.rest, len)?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(GeneveOption {
            class: u16::from_be_bytes([bytes[0], bytes[1]]),
            option_type: bytes[2],
            data: &bytes[4..],
        })
    }
}

impl<'a> Iterator for GeneveOptions<'a> {
    type Item = Result<GeneveOption<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}

/// The header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneveRepr<'a> {
    /// Flags: see [`flag`].
    pub flags: u8,
    /// Type of the payload.
    pub protocol: EtherType,
    /// Network identifier: below 2^24, higher bits are ignored.
    pub vni: u32,
    /// Options as bytes: a multiple of 4, at most 252.
    pub options: &'a [u8],
}

impl<'a> GeneveRepr<'a> {
    /// An Ethernet frame without options.
    pub fn new(vni: u32) -> Self {
        Self { flags: 0, protocol: EtherType::TEB, vni, options: &[] }
    }

    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(header: &'a GeneveHeader<B>) -> Self {
        Self {
            flags: header.flags(),
            protocol: header.protocol(),
            vni: header.vni(),
            options: header.option_bytes(),
        }
    }

    /// Bytes that [`Self::emit`] writes: 8..=260.
    pub fn header_len(&self) -> usize {
        HEADER_LEN_MIN + self.options.len()
    }

    /// Writes the header to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let len = self.options.len();
        if len > OPTIONS_LEN_MAX || !len.is_multiple_of(4) {
            return invalid("geneve", "options length", len as u64);
        }
        let bytes = room("geneve", buffer, self.header_len())?;
        bytes[field::VER_LEN] = (len / 4) as u8;
        bytes[field::OPTIONS..].copy_from_slice(self.options);
        let mut header = GeneveHeader(bytes);
        header.set_flags(self.flags);
        header.set_protocol(self.protocol);
        header.set_vni(self.vni);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;
    use proptest::prelude::*;

    /// Two options: class 0x0102, type 0x80, four bytes; class 0xffff, type 1, none. One byte of payload.
    const HEADER: [u8; 21] =
        [0x03, 0x40, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 0x80, 1, 0xa, 0xb, 0xc, 0xd, 0xff, 0xff, 1, 0, 0x55];

    #[test]
    fn a_literal_header_reads_and_writes_back() {
        let header = GeneveHeader::new(&HEADER[..]).unwrap();
        assert_eq!((header.vni(), header.protocol()), (7, EtherType::TEB));
        assert_eq!(header.flags(), flag::CRITICAL);
        assert_eq!(header.payload(), [0x55]);
        let options: Vec<_> = header.options().map(|o| o.unwrap()).collect();
        assert_eq!(options.len(), 2);
        assert_eq!((options[0].class, options[0].option_type), (0x0102, 0x80));
        assert_eq!(options[0].data, [0xa, 0xb, 0xc, 0xd]);
        assert_eq!((options[1].class, options[1].data), (0xffff, &[][..]));
        let mut out = [0xff; 20];
        GeneveRepr::parse(&header).emit(&mut out).unwrap();
        assert_eq!(out, HEADER[..20]);
        each_prefix(&HEADER[..20], |short| {
            assert!(GeneveHeader::new(short).is_err());
            assert!(GeneveRepr::parse(&header).emit(&mut short.to_vec()).is_err());
        });
    }

    #[test]
    fn other_versions_and_odd_options_are_errors() {
        let mut other = HEADER;
        other[0] |= 0x40;
        assert!(GeneveHeader::new(other).is_err());
        for len in [1, 2, 3, 256] {
            let options = vec![0; len];
            let repr = GeneveRepr { options: &options, ..GeneveRepr::new(1) };
            assert!(repr.emit(&mut [0; 300]).is_err());
        }
        assert_eq!(GeneveOptions::new(&[0, 0, 0, 1]).filter(Result::is_err).count(), 1);
    }

    proptest! {
        #[test]
        fn options_of_any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(GeneveOptions::new(&bytes).count() <= bytes.len() / 4 + 1);
        }
    }
}

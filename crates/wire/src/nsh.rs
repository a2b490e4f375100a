//! Network service header (RFC 8300 section 2).

use crate::Result;
use crate::bytes::{array, be16, be32, clamped, invalid, need, put, put16, put32, room};

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Version (2 bits), OAM (1), unassigned (1), time to live (6), length in words (6).
    pub const VER_TTL_LEN: Range<usize> = 0..2;
    /// Unassigned (4 bits) and type of the metadata (4 bits).
    pub const MD_TYPE: usize = 2;
    /// Next protocol.
    pub const NEXT_PROTOCOL: usize = 3;
    /// Service path identifier (24 bits) and service index (8 bits).
    pub const PATH: Range<usize> = 4..8;
    /// Context headers.
    pub const CONTEXT: usize = 8;
}

/// Length of base and service path header in bytes.
pub const HEADER_LEN_MIN: usize = field::CONTEXT;

/// Maximum length of a header.
pub const HEADER_LEN_MAX: usize = 63 * 4;

/// Types of metadata.
pub mod md_type {
    /// Four context headers of 4 bytes each.
    pub const FIXED: u8 = 1;
    /// Context headers of any length, or none.
    pub const VARIABLE: u8 = 2;
}

/// Next protocols.
pub mod next_protocol {
    /// IPv4.
    pub const IPV4: u8 = 1;
    /// IPv6.
    pub const IPV6: u8 = 2;
    /// Ethernet.
    pub const ETHERNET: u8 = 3;
    /// Another network service header.
    pub const NSH: u8 = 4;
    /// MPLS.
    pub const MPLS: u8 = 5;
}

/// Length of the context headers of type 1.
const FIXED_CONTEXT_LEN: usize = 16;

fn check(bytes: &[u8]) -> Result<()> {
    need("nsh", bytes, HEADER_LEN_MIN)?;
    let first = be16(bytes, field::VER_TTL_LEN);
    if first >> 14 != 0 {
        return invalid("nsh", "version", u64::from(first >> 14));
    }
    let len = usize::from(first & 0x3f) * 4;
    let fits = match bytes[field::MD_TYPE] & 0xf {
        md_type::FIXED => len == HEADER_LEN_MIN + FIXED_CONTEXT_LEN,
        _ => len >= HEADER_LEN_MIN,
    };
    if !fits {
        return invalid("nsh", "length", len as u64);
    }
    need("nsh", bytes, len)
}

view!(
    /// A network service header with its context headers, and the packet behind it.
    NshHeader, check
);

fields!(NshHeader {
    /// Version, OAM, time to live and length, raw.
    ver_ttl_len, set_ver_ttl_len: u16 at field::VER_TTL_LEN;
    /// Next protocol: see [`next_protocol`].
    next_protocol, set_next_protocol: u8 at field::NEXT_PROTOCOL;
    /// Service path identifier and index in one number.
    path, set_path: u32 at field::PATH;
});

impl<B: AsRef<[u8]>> NshHeader<B> {
    /// Length of the header with its context headers, in bytes: 8..=252.
    pub fn header_len(&self) -> usize {
        usize::from(self.ver_ttl_len() & 0x3f) * 4
    }

    /// Operations, administration and maintenance packet.
    pub fn oam(&self) -> bool {
        self.ver_ttl_len() & 0x2000 != 0
    }

    /// Time to live: 0..=63.
    pub fn ttl(&self) -> u8 {
        (self.ver_ttl_len() >> 6 & 0x3f) as u8
    }

    /// Type of the metadata: see [`md_type`].
    pub fn md_type(&self) -> u8 {
        self.0.as_ref()[field::MD_TYPE] & 0xf
    }

    /// Service path identifier: below 2^24.
    pub fn path_id(&self) -> u32 {
        self.path() >> 8
    }

    /// Service index.
    pub fn service_index(&self) -> u8 {
        self.path() as u8
    }

    /// Context headers as bytes.
    pub fn context_bytes(&self) -> &[u8] {
        clamped(self.0.as_ref(), field::CONTEXT, self.header_len())
    }

    /// The four context headers of metadata type 1.
    pub fn context(&self) -> Option<[u32; 4]> {
        let bytes = self.context_bytes();
        if self.md_type() != md_type::FIXED || bytes.len() != FIXED_CONTEXT_LEN {
            return None;
        }
        Some([0, 4, 8, 12].map(|at| be32(bytes, at..at + 4)))
    }

    /// The packet behind the header.
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), self.header_len(), usize::MAX)
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> NshHeader<B> {
    /// Sets the time to live (its low 6 bits), keeps the rest.
    pub fn set_ttl(&mut self, ttl: u8) {
        let kept = self.ver_ttl_len() & !0x0fc0;
        self.set_ver_ttl_len(kept | u16::from(ttl & 0x3f) << 6);
    }

    /// Sets the service path identifier (its low 24 bits), keeps the index.
    pub fn set_path_id(&mut self, path_id: u32) {
        self.set_path(path_id << 8 | self.path() & 0xff);
    }

    /// Sets the service index, keeps the path.
    pub fn set_service_index(&mut self, service_index: u8) {
        self.set_path(self.path() & !0xff | u32::from(service_index));
    }
}

/// The header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NshRepr<'a> {
    /// Operations, administration and maintenance packet.
    pub oam: bool,
    /// Time to live: 0..=63, higher bits are ignored.
    pub ttl: u8,
    /// Type of the metadata: see [`md_type`].
    pub md_type: u8,
    /// Next protocol: see [`next_protocol`].
    pub next_protocol: u8,
    /// Service path identifier: below 2^24, higher bits are ignored.
    pub path_id: u32,
    /// Service index.
    pub service_index: u8,
    /// Context headers as bytes: 16 for type 1, else a multiple of 4 up to 244.
    pub context: &'a [u8],
}

impl<'a> NshRepr<'a> {
    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(header: &'a NshHeader<B>) -> Self {
        Self {
            oam: header.oam(),
            ttl: header.ttl(),
            md_type: header.md_type(),
            next_protocol: header.next_protocol(),
            path_id: header.path_id(),
            service_index: header.service_index(),
            context: header.context_bytes(),
        }
    }

    /// Bytes that [`Self::emit`] writes: 8..=252.
    pub fn header_len(&self) -> usize {
        HEADER_LEN_MIN + self.context.len()
    }

    /// Writes the header to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let len = self.header_len();
        let fixed = self.md_type == md_type::FIXED;
        if len > HEADER_LEN_MAX || !len.is_multiple_of(4) || fixed && self.context.len() != FIXED_CONTEXT_LEN
        {
            return invalid("nsh", "length", len as u64);
        }
        if self.md_type > 0xf {
            return invalid("nsh", "metadata type", u64::from(self.md_type));
        }
        let bytes = room("nsh", buffer, len)?;
        let first = u16::from(self.oam) << 13 | u16::from(self.ttl & 0x3f) << 6 | (len / 4) as u16;
        put16(bytes, field::VER_TTL_LEN, first);
        put(bytes, field::MD_TYPE..field::PATH.start, &[self.md_type, self.next_protocol]);
        let path = self.path_id << 8 | u32::from(self.service_index);
        put32(bytes, field::PATH, path);
        bytes[field::CONTEXT..].copy_from_slice(self.context);
        Ok(())
    }
}

/// One context header of metadata type 2 (RFC 8300 section 2.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextTlv<'a> {
    /// Namespace of the type.
    pub class: u16,
    /// Type.
    pub tlv_type: u8,
    /// Data without its padding to a multiple of 4 bytes.
    pub data: &'a [u8],
}

/// Iterator over context headers of metadata type 2. After an error it ends.
#[derive(Debug, Clone)]
pub struct ContextTlvs<'a> {
    rest: &'a [u8],
}

impl<'a> ContextTlvs<'a> {
    /// `bytes` start with a context header.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn step(&mut self) -> Result<ContextTlv<'a>> {
        need("nsh context", self.rest, 4)?;
        let [class_high, class_low, tlv_type, len] = array(self.rest, 0..4);
        let len = usize::from(len & 0x7f);
        let padded = 4 + len.next_multiple_of(4);
        need("nsh context", self.rest, padded)?;
        let (bytes, rest) = self.rest.split_at(padded);
        self.rest = rest;
        Ok(ContextTlv {
            class: u16::from_be_bytes([class_high, class_low]),
            tlv_type,
            data: &bytes[4..4 + len],
        })
    }
}

impl<'a> Iterator for ContextTlvs<'a> {
    type Item = Result<ContextTlv<'a>>;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;
    use proptest::prelude::*;

    /// Time to live 63, metadata type 1, Ethernet, path 0x123456, index 255, contexts 1 to 4.
    const HEADER: [u8; 25] =
        [0x0f, 0xc6, 1, 3, 0x12, 0x34, 0x56, 0xff, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0x55];

    #[test]
    fn a_literal_header_reads_and_writes_back() {
        let header = NshHeader::new(&HEADER[..]).unwrap();
        assert_eq!((header.ttl(), header.oam(), header.md_type()), (63, false, 1));
        assert_eq!((header.path_id(), header.service_index()), (0x12_3456, 255));
        assert_eq!(header.context(), Some([1, 2, 3, 4]));
        assert_eq!(header.payload(), [0x55]);
        let mut out = [0xff; 24];
        NshRepr::parse(&header).emit(&mut out).unwrap();
        assert_eq!(out, HEADER[..24]);
        each_prefix(&HEADER[..24], |short| {
            assert!(NshHeader::new(short).is_err());
            assert!(NshRepr::parse(&header).emit(&mut short.to_vec()).is_err());
        });
    }

    #[test]
    fn impossible_lengths_and_versions_are_refused() {
        for (at, value) in [(0, 0x4f), (1, 0xc5), (1, 0xc7)] {
            let mut other = HEADER;
            other[at] = value;
            assert!(NshHeader::new(other).is_err());
        }
        let mut short = HEADER;
        (short[1], short[2]) = (0xc1, 2);
        assert!(NshHeader::new(short).is_err());
        let mut bare = HEADER;
        (bare[1], bare[2]) = (0xc2, 2);
        assert_eq!(NshHeader::new(bare).unwrap().context_bytes(), []);
    }

    #[test]
    fn parts_are_set_alone() {
        let mut header = NshHeader::new(HEADER).unwrap();
        header.set_ttl(1);
        assert_eq!(header.ver_ttl_len(), 0x0046);
        header.set_path_id(1);
        header.set_service_index(2);
        assert_eq!(header.path(), 0x0102);
    }

    #[test]
    fn context_headers_of_any_length_are_listed_without_padding() {
        let bytes = [0x01, 0x02, 3, 5, 1, 2, 3, 4, 5, 0, 0, 0, 0xff, 0xf6, 9, 0];
        let all: Vec<_> = ContextTlvs::new(&bytes).map(|tlv| tlv.unwrap()).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].class, all[0].tlv_type, all[0].data), (0x102, 3, &[1, 2, 3, 4, 5][..]));
        assert_eq!((all[1].class, all[1].tlv_type, all[1].data), (0xfff6, 9, &[][..]));
        assert_eq!(ContextTlvs::new(&bytes[..8]).filter(Result::is_err).count(), 1);
    }

    proptest! {
        #[test]
        fn context_headers_of_any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..250)) {
            prop_assert!(ContextTlvs::new(&bytes).count() <= bytes.len() / 4 + 1);
        }
    }
}

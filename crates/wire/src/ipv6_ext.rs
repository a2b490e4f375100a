//! IPv6 extension headers (RFC 8200 section 4; authentication header RFC 4302).
//!
//! A packet chooses the length of its chain, so the walk is bounded: [`EXT_HEADERS_MAX`] headers, each at
//! least 8 bytes long. A longer chain is a separate error, so that a switch can distinguish "hides its
//! transport header behind a long chain" from "truncated": a switch that passes such packets unclassified can
//! be bypassed.
//!
//! The walk ends at a fragment that is not the first (what follows is the middle of something), at ESP
//! (everything after it is encrypted) and at every protocol that is not an extension header.

use crate::bytes::{invalid, need, put16, room};
use crate::ip::IpProtocol;
use crate::{Result, WireError};

/// Maximum number of extension headers parsed in one packet. Real packets have at most a handful.
pub const EXT_HEADERS_MAX: usize = 32;

/// Byte ranges of the fragment header.
pub mod field {
    use std::ops::Range;

    /// Protocol of the next header, in all extension headers.
    pub const NEXT_HEADER: usize = 0;
    /// Length, in all extension headers but the fragment header.
    pub const LEN: usize = 1;
    /// Fragment offset in units of 8 bytes (13 bits), reserved (2), more fragments (1).
    pub const OFFSET_MORE: Range<usize> = 2..4;
    /// Identification.
    pub const IDENT: Range<usize> = 4..8;
}

/// Length of a fragment header in bytes.
pub const FRAGMENT_LEN: usize = 8;

view!(
    /// A fragment header.
    FragmentHeader, check_fragment
);

fn check_fragment(bytes: &[u8]) -> Result<()> {
    need("ipv6 fragment", bytes, FRAGMENT_LEN)
}

fields!(FragmentHeader {
    /// Protocol of the next header, in the first fragment.
    next_header, set_next_header: IpProtocol at field::NEXT_HEADER;
    /// Offset and more-fragments flag, raw.
    offset_more, set_offset_more: u16 at field::OFFSET_MORE;
    /// Identification, by which fragments are reassembled.
    ident, set_ident: u32 at field::IDENT;
});

impl<B: AsRef<[u8]>> FragmentHeader<B> {
    /// Place of this fragment, in units of 8 bytes.
    pub fn fragment_offset(&self) -> u16 {
        self.offset_more() >> 3
    }

    /// Another fragment follows.
    pub fn more_fragments(&self) -> bool {
        self.offset_more() & 1 != 0
    }
}

/// A fragment header as values, except its next header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentRepr {
    /// Place of this fragment, in units of 8 bytes: below 8192.
    pub fragment_offset: u16,
    /// Another fragment follows.
    pub more_fragments: bool,
    /// Identification.
    pub ident: u32,
}

impl FragmentRepr {
    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(header: &FragmentHeader<B>) -> Self {
        Self {
            fragment_offset: header.fragment_offset(),
            more_fragments: header.more_fragments(),
            ident: header.ident(),
        }
    }

    /// Bytes that [`Self::emit`] writes: 8.
    pub fn header_len(&self) -> usize {
        FRAGMENT_LEN
    }

    /// Writes the header to the start of `buffer`.
    pub fn emit(&self, next_header: IpProtocol, buffer: &mut [u8]) -> Result<()> {
        if self.fragment_offset > 0x1fff {
            return invalid("ipv6", "fragment offset", u64::from(self.fragment_offset));
        }
        let bytes = room("ipv6 fragment", buffer, FRAGMENT_LEN)?;
        bytes[field::LEN] = 0;
        put16(bytes, field::OFFSET_MORE, self.fragment_offset << 3 | u16::from(self.more_fragments));
        let mut header = FragmentHeader(bytes);
        header.set_next_header(next_header);
        header.set_ident(self.ident);
        Ok(())
    }
}

/// One extension header found by [`ExtHeaders`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtHeader<'a> {
    /// Its type: hop-by-hop, routing, fragment, authentication, destination options.
    pub protocol: IpProtocol,
    /// The value of its next-header field.
    pub next_header: IpProtocol,
    /// Its start, from the end of the fixed header.
    pub offset: usize,
    /// The whole header.
    pub bytes: &'a [u8],
}

impl ExtHeader<'_> {
    /// The fragment header's values, if it is one.
    pub fn fragment(&self) -> Option<FragmentRepr> {
        if self.protocol != IpProtocol::FRAGMENT {
            return None;
        }
        let header = FragmentHeader::new(self.bytes).ok()?;
        Some(FragmentRepr::parse(&header))
    }
}

/// Iterator over a chain of extension headers. After an error it ends.
#[derive(Debug, Clone)]
pub struct ExtHeaders<'a> {
    bytes: &'a [u8],
    next_header: IpProtocol,
    offset: usize,
    /// Headers that may still come.
    left: usize,
    ended: bool,
}

impl<'a> ExtHeaders<'a> {
    /// `bytes` follow the fixed header, cut to its payload length; `next_header` is its field.
    pub fn new(next_header: IpProtocol, bytes: &'a [u8]) -> Self {
        Self { bytes, next_header, offset: 0, left: EXT_HEADERS_MAX, ended: false }
    }

    /// The type of what follows the headers taken so far.
    pub fn next_header(&self) -> IpProtocol {
        self.next_header
    }

    /// Its start, from the end of the fixed header.
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn step(&mut self) -> Result<ExtHeader<'a>> {
        if self.left == 0 {
            return Err(WireError::TooManyExtHeaders);
        }
        let rest = self.bytes.get(self.offset..).unwrap_or(&[]);
        let len = header_len(self.next_header, rest)?;
        let header = ExtHeader {
            protocol: self.next_header,
            next_header: IpProtocol(rest[field::NEXT_HEADER]),
            offset: self.offset,
            bytes: &rest[..len],
        };
        self.left -= 1;
        self.offset += len;
        self.next_header = header.next_header;
        // In a later fragment, no header follows the fragment header.
        self.ended = header.fragment().is_some_and(|f| f.fragment_offset != 0);
        Ok(header)
    }
}

/// Length of the extension header at the start of `rest`, which contains all of it.
fn header_len(protocol: IpProtocol, rest: &[u8]) -> Result<usize> {
    need("ipv6 extension", rest, 8)?;
    let words = usize::from(rest[field::LEN]);
    let len = match protocol {
        IpProtocol::FRAGMENT => FRAGMENT_LEN,
        // In units of 4 bytes, less 2 (RFC 4302 section 2.2). Length 0 violates the standard; like Open
        // vSwitch, the walk continues after its 8 bytes.
        IpProtocol::AUTH => (words + 2) * 4,
        _ => (words + 1) * 8,
    };
    need("ipv6 extension", rest, len)?;
    Ok(len)
}

impl<'a> Iterator for ExtHeaders<'a> {
    type Item = Result<ExtHeader<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || !self.next_header.is_ipv6_ext() {
            return None;
        }
        let step = self.step();
        self.ended |= step.is_err();
        Some(step)
    }
}

/// Where a chain of extension headers ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upper {
    /// The protocol that follows: never an extension header, unless `fragment` is a later one (then the value
    /// of its header).
    pub protocol: IpProtocol,
    /// Its start, from the end of the fixed header.
    pub offset: usize,
    /// The last fragment header met.
    pub fragment: Option<FragmentRepr>,
}

impl Upper {
    /// In the middle of a datagram: no transport header follows.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|f| f.fragment_offset != 0)
    }

    /// Whether it is a fragment. A fragment header with offset 0 and no more fragments is a whole datagram
    /// (RFC 6946).
    pub fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|f| f.fragment_offset != 0 || f.more_fragments)
    }
}

/// Walks the whole chain. `bytes` follow the fixed header, cut to its payload length.
pub fn walk(next_header: IpProtocol, bytes: &[u8]) -> Result<Upper> {
    let mut headers = ExtHeaders::new(next_header, bytes);
    let mut fragment = None;
    for header in headers.by_ref() {
        fragment = header?.fragment().or(fragment);
    }
    Ok(Upper { protocol: headers.next_header(), offset: headers.offset(), fragment })
}

/// An extension header to write, except its next header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtRepr {
    /// Hop-by-hop options: options as bytes, padded by [`Self::emit`].
    HopByHop(Vec<u8>),
    /// Destination options: options as bytes, padded by [`Self::emit`].
    DestOpts(Vec<u8>),
    /// Routing: what follows the length field (type, segments left, data), padded with zeros.
    Routing(Vec<u8>),
    /// Fragment.
    Fragment(FragmentRepr),
    /// Authentication: what follows the length field (reserved, SPI, sequence, check value), padded with
    /// zeros.
    Auth(Vec<u8>),
}

impl ExtRepr {
    /// Its protocol number.
    pub fn protocol(&self) -> IpProtocol {
        match self {
            Self::HopByHop(_) => IpProtocol::HOP_BY_HOP,
            Self::DestOpts(_) => IpProtocol::DEST_OPTS,
            Self::Routing(_) => IpProtocol::ROUTING,
            Self::Fragment(_) => IpProtocol::FRAGMENT,
            Self::Auth(_) => IpProtocol::AUTH,
        }
    }

    /// Reads a header. Padding stays part of the bytes. `None` for other protocols and bad lengths.
    pub fn parse(header: &ExtHeader<'_>) -> Option<Self> {
        let body = header.bytes.get(2..)?;
        Some(match header.protocol {
            IpProtocol::HOP_BY_HOP => Self::HopByHop(body.to_vec()),
            IpProtocol::DEST_OPTS => Self::DestOpts(body.to_vec()),
            IpProtocol::ROUTING => Self::Routing(body.to_vec()),
            IpProtocol::FRAGMENT => Self::Fragment(header.fragment()?),
            IpProtocol::AUTH => Self::Auth(body.to_vec()),
            _ => return None,
        })
    }

    /// Bytes that [`Self::emit`] writes: a multiple of 8.
    pub fn header_len(&self) -> usize {
        match self {
            Self::Fragment(_) => FRAGMENT_LEN,
            Self::Auth(body) => (2 + body.len()).next_multiple_of(8).max(16),
            Self::HopByHop(body) | Self::DestOpts(body) | Self::Routing(body) => {
                (2 + body.len()).next_multiple_of(8)
            }
        }
    }

    /// Writes the header to the start of `buffer`.
    pub fn emit(&self, next_header: IpProtocol, buffer: &mut [u8]) -> Result<()> {
        let len = self.header_len();
        let (body, units) = match self {
            Self::Fragment(fragment) => return fragment.emit(next_header, buffer),
            Self::Auth(body) => (body, len / 4 - 2),
            Self::HopByHop(body) | Self::DestOpts(body) | Self::Routing(body) => (body, len / 8 - 1),
        };
        let Ok(units) = u8::try_from(units) else {
            return invalid("ipv6", "extension header length", len as u64);
        };
        let bytes = room("ipv6 extension", buffer, len)?;
        bytes.fill(0);
        bytes[field::NEXT_HEADER] = next_header.0;
        bytes[field::LEN] = units;
        let (body_bytes, padding) = bytes[2..].split_at_mut(body.len());
        body_bytes.copy_from_slice(body);
        // PadN: type 1, length, zeros. A single byte of padding is Pad1, a zero (RFC 8200 section 4.2).
        if let (Self::HopByHop(_) | Self::DestOpts(_), 2..) = (self, padding.len()) {
            padding[0] = 1;
            padding[1] = (padding.len() - 2) as u8;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;
    use proptest::prelude::*;

    /// Hop-by-hop (router alert), destination options of 16 bytes, first fragment, authentication, then TCP.
    const CHAIN: [u8; 48] = [
        60, 0, 5, 2, 0, 0, 1, 0, // hop-by-hop
        44, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // destination options
        51, 0, 0, 1, 0xca, 0xfe, 0xba, 0xbe, // fragment, offset 0, more
        6, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0xaa, 0xbb, 0xcc, 0xdd, // authentication
    ];

    #[test]
    fn a_literal_chain_is_walked_and_written_back() {
        let upper = walk(IpProtocol::HOP_BY_HOP, &CHAIN).unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::TCP, 48));
        assert!(upper.is_fragment() && !upper.is_later_fragment());
        assert_eq!(upper.fragment.unwrap().ident, 0xcafe_babe);
        let mut out = vec![0; 48];
        for header in ExtHeaders::new(IpProtocol::HOP_BY_HOP, &CHAIN) {
            let header = header.unwrap();
            let repr = ExtRepr::parse(&header).unwrap();
            assert_eq!(repr.protocol(), header.protocol);
            assert_eq!(repr.header_len(), header.bytes.len());
            repr.emit(header.next_header, &mut out[header.offset..]).unwrap();
        }
        assert_eq!(out, CHAIN);
    }

    #[test]
    fn a_later_fragment_ends_the_walk() {
        let mut chain = CHAIN;
        chain[27] = 0x09;
        let upper = walk(IpProtocol::HOP_BY_HOP, &chain).unwrap();
        assert!(upper.is_later_fragment());
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::AUTH, 32));
        assert_eq!(upper.fragment.unwrap().fragment_offset, 1);
    }

    #[test]
    fn an_atomic_fragment_is_no_fragment() {
        let upper = walk(IpProtocol::FRAGMENT, &[17, 0, 0, 0, 0, 0, 0, 9]).unwrap();
        assert!(upper.fragment.is_some() && !upper.is_fragment());
        assert_eq!(upper.protocol, IpProtocol::UDP);
    }

    #[test]
    fn truncation_at_every_length_is_an_error() {
        each_prefix(&CHAIN, |short| {
            assert!(matches!(walk(IpProtocol::HOP_BY_HOP, short), Err(WireError::Truncated { .. })));
        });
    }

    #[test]
    fn long_chains_are_refused_by_their_own_error() {
        let chain = |headers: usize| {
            let mut bytes = [60, 0, 1, 4, 0, 0, 0, 0].repeat(headers);
            let at = bytes.len() - 8;
            bytes[at] = 59;
            walk(IpProtocol::DEST_OPTS, &bytes)
        };
        let upper = chain(EXT_HEADERS_MAX).unwrap();
        assert_eq!(upper.protocol, IpProtocol::NO_NEXT);
        assert_eq!(chain(EXT_HEADERS_MAX + 1), Err(WireError::TooManyExtHeaders));
        assert_eq!(chain(8000), Err(WireError::TooManyExtHeaders));
    }

    #[test]
    fn an_error_ends_the_iteration() {
        let mut headers = ExtHeaders::new(IpProtocol::AUTH, &[6, 1, 0, 0, 0, 0, 0, 0]);
        assert!(headers.next().unwrap().is_err());
        assert!(headers.next().is_none());
    }

    #[test]
    fn options_are_padded_as_the_standard_says() {
        let mut out = [0xff; 16];
        ExtRepr::HopByHop(vec![5, 2, 0, 0]).emit(IpProtocol::UDP, &mut out).unwrap();
        assert_eq!(out[..8], [17, 0, 5, 2, 0, 0, 1, 0]);
        ExtRepr::DestOpts(vec![0; 5]).emit(IpProtocol::UDP, &mut out).unwrap();
        assert_eq!(out[..8], [17, 0, 0, 0, 0, 0, 0, 0]);
        ExtRepr::DestOpts(vec![0; 7]).emit(IpProtocol::UDP, &mut out).unwrap();
        assert_eq!(out, [17, 1, 0, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0]);
        let long = ExtRepr::Routing(vec![0; 2050]);
        assert!(long.emit(IpProtocol::UDP, &mut [0; 3000]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_walk_to_an_end_within_them(next in any::<u8>(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(upper) = walk(IpProtocol(next), &bytes) {
                prop_assert!(upper.offset <= bytes.len());
                prop_assert!(!upper.protocol.is_ipv6_ext() || upper.is_later_fragment());
            }
        }
    }
}

//! Neighbour discovery (RFC 4861): solicitations and advertisements with their options.

use std::net::Ipv6Addr;

use crate::bytes::{array, invalid, need, put, put32, room};
use crate::ethernet::EthAddr;
use crate::icmpv6::{Icmpv6Message, icmpv6_type};
use crate::{Result, WireError};

/// Byte ranges of solicitation and advertisement, from the start of the ICMPv6 message.
pub mod field {
    use std::ops::Range;

    /// Flags of an advertisement (router, solicited, override) in the upper three bits; otherwise reserved.
    pub const FLAGS: Range<usize> = 4..8;
    /// Target address.
    pub const TARGET: Range<usize> = 8..24;
    /// Options.
    pub const OPTIONS: usize = 24;
}

/// Length of solicitation or advertisement without options, in bytes.
pub const HEADER_LEN: usize = field::OPTIONS;

/// Kinds of options.
pub mod option {
    /// Source link-layer address.
    pub const SOURCE_LL: u8 = 1;
    /// Target link-layer address.
    pub const TARGET_LL: u8 = 2;
}

/// Length of an option that holds an Ethernet address.
const LL_OPTION_LEN: usize = 8;

fn check(bytes: &[u8]) -> Result<()> {
    need("nd", bytes, HEADER_LEN)?;
    let icmp_type = bytes[0];
    if !matches!(icmp_type, icmpv6_type::NEIGHBOR_SOLICIT | icmpv6_type::NEIGHBOR_ADVERT) {
        return invalid("nd", "type", u64::from(icmp_type));
    }
    Ok(())
}

view!(
    /// A neighbour solicitation or advertisement: the whole ICMPv6 message.
    NdMessage, check
);

fields!(NdMessage {
    /// Type: 135 for a solicitation, 136 for an advertisement.
    icmp_type, set_icmp_type: u8 at crate::icmpv6::field::TYPE;
    /// Checksum.
    checksum, set_checksum: u16 at crate::icmpv6::field::CHECKSUM;
    /// Flags of an advertisement and the reserved bits.
    flags, set_flags: u32 at field::FLAGS;
    /// Target address.
    target, set_target: Ipv6Addr at field::TARGET;
});

impl<B: AsRef<[u8]>> NdMessage<B> {
    /// A solicitation rather than an advertisement.
    pub fn is_solicit(&self) -> bool {
        self.icmp_type() == icmpv6_type::NEIGHBOR_SOLICIT
    }

    /// The options.
    pub fn options(&self) -> NdOptions<'_> {
        NdOptions::new(&self.0.as_ref()[field::OPTIONS..])
    }
}

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NdOption<'a> {
    /// Kind.
    pub kind: u8,
    /// What follows kind and length.
    pub data: &'a [u8],
}

impl NdOption<'_> {
    /// The Ethernet address of a source or target link-layer option that is 8 bytes long.
    pub fn eth_addr(&self) -> Option<EthAddr> {
        if !matches!(self.kind, option::SOURCE_LL | option::TARGET_LL) {
            return None;
        }
        self.data.try_into().ok().map(EthAddr)
    }
}

/// Iterator over options (RFC 4861 section 4.6). After an error it ends.
#[derive(Debug, Clone)]
pub struct NdOptions<'a> {
    rest: &'a [u8],
}

impl<'a> NdOptions<'a> {
    /// `bytes` start with an option.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn step(&mut self) -> Result<NdOption<'a>> {
        need("nd", self.rest, 8)?;
        let len = usize::from(self.rest[1]) * 8;
        if len == 0 {
            return invalid("nd", "option length", 0);
        }
        need("nd", self.rest, len)?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(NdOption { kind: bytes[0], data: &bytes[2..] })
    }
}

impl<'a> Iterator for NdOptions<'a> {
    type Item = Result<NdOption<'a>>;

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

/// A solicitation or an advertisement as values. The checksum is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NdRepr {
    /// A solicitation rather than an advertisement.
    pub solicit: bool,
    /// Flags of an advertisement and the reserved bits: [`NdRepr::ROUTER`] and its siblings.
    pub flags: u32,
    /// Target address.
    pub target: Ipv6Addr,
    /// Source link-layer address.
    pub source_ll: Option<EthAddr>,
    /// Target link-layer address.
    pub target_ll: Option<EthAddr>,
}

impl NdRepr {
    /// The sender is a router.
    pub const ROUTER: u32 = 0x8000_0000;
    /// The advertisement answers a solicitation.
    pub const SOLICITED: u32 = 0x4000_0000;
    /// The advertisement overrides what caches hold.
    pub const OVERRIDE: u32 = 0x2000_0000;

    /// Asks which host has `target`.
    pub fn solicit(target: Ipv6Addr, source_ll: EthAddr) -> Self {
        Self { solicit: true, flags: 0, target, source_ll: Some(source_ll), target_ll: None }
    }

    /// Says that `target_ll` has `target`, when asked.
    pub fn advert(target: Ipv6Addr, target_ll: EthAddr) -> Self {
        Self {
            solicit: false,
            flags: Self::SOLICITED | Self::OVERRIDE,
            target,
            source_ll: None,
            target_ll: Some(target_ll),
        }
    }

    /// Reads the message. Unknown options are skipped, malformed ones are an error, and so is a second
    /// address of one kind.
    pub fn parse<B: AsRef<[u8]>>(message: &NdMessage<B>) -> Result<Self> {
        let mut repr = Self {
            solicit: message.is_solicit(),
            flags: message.flags(),
            target: Ipv6Addr::from(array::<16>(message.as_bytes(), field::TARGET)),
            source_ll: None,
            target_ll: None,
        };
        for option in message.options() {
            let option = option?;
            let slot = match option.kind {
                option::SOURCE_LL => &mut repr.source_ll,
                option::TARGET_LL => &mut repr.target_ll,
                _ => continue,
            };
            let addr = option.eth_addr().ok_or(WireError::Invalid {
                layer: "nd",
                field: "link-layer address length",
                value: option.data.len() as u64,
            })?;
            if slot.replace(addr).is_some() {
                return invalid("nd", "repeated option", u64::from(option.kind));
            }
        }
        Ok(repr)
    }

    /// Bytes that [`Self::emit`] writes: 24, and 8 for each address.
    pub fn header_len(&self) -> usize {
        let options = usize::from(self.source_ll.is_some()) + usize::from(self.target_ll.is_some());
        HEADER_LEN + options * LL_OPTION_LEN
    }

    /// Writes the message, checksum 0, to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let bytes = room("nd", buffer, self.header_len())?;
        let mut header = Icmpv6Message::new(&mut *bytes)?;
        header.set_icmp_type(if self.solicit {
            icmpv6_type::NEIGHBOR_SOLICIT
        } else {
            icmpv6_type::NEIGHBOR_ADVERT
        });
        header.set_code(0);
        header.set_checksum(0);
        put32(bytes, field::FLAGS, self.flags);
        put(bytes, field::TARGET, &self.target.octets());
        let addrs = [(option::SOURCE_LL, self.source_ll), (option::TARGET_LL, self.target_ll)];
        let present = addrs.iter().filter_map(|(kind, addr)| Some((kind, (*addr)?)));
        let slots = bytes[field::OPTIONS..].chunks_exact_mut(LL_OPTION_LEN);
        for (slot, (kind, addr)) in slots.zip(present) {
            slot[..2].copy_from_slice(&[*kind, 1]);
            slot[2..].copy_from_slice(&addr.0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;
    use proptest::prelude::*;

    fn solicit() -> Vec<u8> {
        let mut bytes = vec![135, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        bytes.extend([1, 1, 0x52, 0x54, 0, 0, 0, 1]);
        bytes
    }

    #[test]
    fn a_literal_solicitation_reads_and_writes_back() {
        let bytes = solicit();
        let repr = NdRepr::parse(&NdMessage::new(&bytes[..]).unwrap()).unwrap();
        let target: Ipv6Addr = "fe80::2".parse().unwrap();
        assert_eq!(repr, NdRepr::solicit(target, EthAddr([0x52, 0x54, 0, 0, 0, 1])));
        let mut out = [0xff; 32];
        repr.emit(&mut out).unwrap();
        assert_eq!(out[..], bytes);
        each_prefix(&bytes, |short| assert!(repr.emit(&mut short.to_vec()).is_err()));
    }

    #[test]
    fn an_advertisement_with_both_addresses_survives_the_round_trip() {
        let mut repr = NdRepr::advert(Ipv6Addr::LOCALHOST, EthAddr([2; 6]));
        repr.source_ll = Some(EthAddr([4; 6]));
        repr.flags |= NdRepr::ROUTER;
        let mut out = vec![0xff; repr.header_len()];
        repr.emit(&mut out).unwrap();
        assert_eq!(out.len(), 40);
        assert_eq!(out[..8], [136, 0, 0, 0, 0xe0, 0, 0, 0]);
        assert_eq!(NdRepr::parse(&NdMessage::new(&out[..]).unwrap()), Ok(repr));
    }

    #[test]
    fn truncations_are_errors_but_for_the_option_left_off() {
        each_prefix(&solicit(), |short| {
            let parsed = NdMessage::new(short).and_then(|message| NdRepr::parse(&message));
            assert_eq!(parsed.is_ok(), short.len() == HEADER_LEN, "{}", short.len());
        });
    }

    #[test]
    fn bad_options_are_errors() {
        let parse = |options: &[u8]| {
            let mut bytes = solicit();
            bytes.truncate(HEADER_LEN);
            bytes.extend(options);
            NdRepr::parse(&NdMessage::new(bytes).unwrap())
        };
        assert!(parse(&[1, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(parse(&[1, 2, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(parse(&[[1, 2], [0; 2]].concat().repeat(4)).is_err());
        assert!(parse(&[2, 1, 9, 9, 9, 9, 9, 9].repeat(2)).is_err());
        assert!(parse(&[14, 1, 9, 9, 9, 9, 9, 9].repeat(2)).unwrap().source_ll.is_none());
        let mut other = solicit();
        other[0] = 134;
        assert!(NdMessage::new(other).is_err());
    }

    proptest! {
        #[test]
        fn options_of_any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(NdOptions::new(&bytes).count() <= bytes.len() / 8 + 1);
        }
    }
}

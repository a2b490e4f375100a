//! ICMPv6 (RFC 4443). Neighbour discovery: [`crate::nd`].

use crate::Result;
use crate::bytes::{array, clamped, need, put, room};
use crate::checksum::Sum;
use crate::icmp::echo_rest;

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Type.
    pub const TYPE: usize = 0;
    /// Code.
    pub const CODE: usize = 1;
    /// Checksum of pseudo-header and message.
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Message body; every message has at least its first four bytes.
    pub const REST: Range<usize> = 4..8;
}

/// Length of type, code and checksum in bytes.
pub const HEADER_LEN: usize = field::CHECKSUM.end;

#[allow(missing_docs)] // Each constant is the message it names.
/// Types.
pub mod icmpv6_type {
    pub const UNREACHABLE: u8 = 1;
    pub const PACKET_TOO_BIG: u8 = 2;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO_REQUEST: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const MLD_QUERY: u8 = 130;
    pub const MLD_REPORT: u8 = 131;
    pub const MLD_DONE: u8 = 132;
    pub const ROUTER_SOLICIT: u8 = 133;
    pub const ROUTER_ADVERT: u8 = 134;
    pub const NEIGHBOR_SOLICIT: u8 = 135;
    pub const NEIGHBOR_ADVERT: u8 = 136;
    pub const REDIRECT: u8 = 137;
    pub const MLD2_REPORT: u8 = 143;
}

fn check(bytes: &[u8]) -> Result<()> {
    need("icmpv6", bytes, HEADER_LEN)
}

view!(
    /// An ICMPv6 message: the whole of what IPv6 carries.
    Icmpv6Message, check
);

fields!(Icmpv6Message {
    /// Type: see [`icmpv6_type`].
    icmp_type, set_icmp_type: u8 at field::TYPE;
    /// Code.
    code, set_code: u8 at field::CODE;
    /// Checksum.
    checksum, set_checksum: u16 at field::CHECKSUM;
});

impl<B: AsRef<[u8]>> Icmpv6Message<B> {
    /// What follows the checksum.
    pub fn body(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }

    /// What follows the first four bytes of the body.
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), field::REST.end, usize::MAX)
    }

    /// Whether the checksum is valid, `pseudo` being the sum of the pseudo-header.
    pub fn is_checksum_valid(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.0.as_ref()).is_valid()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Icmpv6Message<B> {
    /// Computes and stores the checksum.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let sum = pseudo.bytes(self.0.as_ref()).finish();
        self.set_checksum(sum);
    }
}

/// Header and first four bytes of the body as values. The checksum is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icmpv6Repr {
    /// Type: see [`icmpv6_type`].
    pub icmp_type: u8,
    /// Code.
    pub code: u8,
    /// The four bytes that depend on the type.
    pub rest: [u8; 4],
}

impl Icmpv6Repr {
    /// An echo request.
    pub fn echo_request(ident: u16, sequence: u16) -> Self {
        Self { icmp_type: icmpv6_type::ECHO_REQUEST, code: 0, rest: echo_rest(ident, sequence) }
    }

    /// Identifier and sequence number, if it is an echo request or reply.
    pub fn echo(&self) -> Option<(u16, u16)> {
        let [a, b, c, d] = self.rest;
        matches!(self.icmp_type, icmpv6_type::ECHO_REQUEST | icmpv6_type::ECHO_REPLY)
            .then_some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Reads the header. A message of 4 to 7 bytes passes the view's check, but is no message.
    pub fn parse<B: AsRef<[u8]>>(message: &Icmpv6Message<B>) -> Result<Self> {
        need("icmpv6", message.as_bytes(), field::REST.end)?;
        Ok(Self {
            icmp_type: message.icmp_type(),
            code: message.code(),
            rest: array(message.as_bytes(), field::REST),
        })
    }

    /// Bytes that [`Self::emit`] writes: 8.
    pub fn header_len(&self) -> usize {
        field::REST.end
    }

    /// Writes the header, checksum 0, to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let bytes = room("icmpv6", buffer, field::REST.end)?;
        put(bytes, field::REST, &self.rest);
        let mut message = Icmpv6Message(bytes);
        message.set_icmp_type(self.icmp_type);
        message.set_code(self.code);
        message.set_checksum(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;
    use crate::checksum::pseudo_v6;
    use crate::ip::IpProtocol;
    use std::net::Ipv6Addr;

    const ECHO: [u8; 12] = [0x80, 0, 0x19, 0xb3, 0x12, 0x34, 0xab, 0xcd, 0xaa, 0, 0, 0xff];

    #[test]
    fn a_literal_echo_reads_and_writes_back() {
        let (src, dst) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let pseudo = pseudo_v6(src, dst, IpProtocol::ICMPV6, 12);
        let message = Icmpv6Message::new(&ECHO[..]).unwrap();
        assert!(message.is_checksum_valid(pseudo));
        assert!(!message.is_checksum_valid(pseudo_v6(src, Ipv6Addr::LOCALHOST, IpProtocol::ICMPV6, 12)));
        let repr = Icmpv6Repr::parse(&message).unwrap();
        assert_eq!(repr, Icmpv6Repr::echo_request(0x1234, 0xabcd));
        assert_eq!(repr.echo(), Some((0x1234, 0xabcd)));
        assert_eq!(message.payload(), &ECHO[8..]);
        assert_eq!(message.body(), &ECHO[4..]);
        let mut out = [0xff; 12];
        out[8..].copy_from_slice(message.payload());
        repr.emit(&mut out).unwrap();
        Icmpv6Message::new(&mut out[..]).unwrap().fill_checksum(pseudo);
        assert_eq!(out, ECHO);
    }

    #[test]
    fn truncations_are_errors_of_the_view_or_of_parsing() {
        each_prefix(&ECHO[..8], |short| match Icmpv6Message::new(short) {
            Ok(message) => {
                assert!(short.len() >= 4 && Icmpv6Repr::parse(&message).is_err());
                assert!(message.payload().is_empty());
            }
            Err(_) => assert!(short.len() < 4),
        });
    }
}

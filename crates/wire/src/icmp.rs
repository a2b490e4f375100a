//! ICMP for IPv4 (RFC 792).

use crate::Result;
use crate::bytes::{array, need, put, room};
use crate::checksum;

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Type.
    pub const TYPE: usize = 0;
    /// Code.
    pub const CODE: usize = 1;
    /// Checksum of the whole message.
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Depends on the type: identifier and sequence number, gateway, pointer...
    pub const REST: Range<usize> = 4..8;
    /// What follows the header.
    pub const PAYLOAD: usize = 8;
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

#[allow(missing_docs)] // Each constant is the message it names.
/// Types.
pub mod icmp_type {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const REDIRECT: u8 = 5;
    pub const ECHO_REQUEST: u8 = 8;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
}

fn check(bytes: &[u8]) -> Result<()> {
    need("icmp", bytes, HEADER_LEN)
}

view!(
    /// An ICMP message: the whole of what IPv4 carries.
    IcmpMessage, check
);

fields!(IcmpMessage {
    /// Type: see [`icmp_type`].
    icmp_type, set_icmp_type: u8 at field::TYPE;
    /// Code.
    code, set_code: u8 at field::CODE;
    /// Checksum.
    checksum, set_checksum: u16 at field::CHECKSUM;
});

impl<B: AsRef<[u8]>> IcmpMessage<B> {
    /// The four bytes that depend on the type.
    pub fn rest(&self) -> [u8; 4] {
        array(self.0.as_ref(), field::REST)
    }

    /// What follows the header: in errors, the start of the packet that caused them.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }

    /// Whether the checksum is valid.
    pub fn is_checksum_valid(&self) -> bool {
        checksum::is_valid(self.0.as_ref())
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> IcmpMessage<B> {
    /// Sets the four bytes that depend on the type.
    pub fn set_rest(&mut self, rest: [u8; 4]) {
        put(self.0.as_mut(), field::REST, &rest);
    }

    /// Computes and stores the checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = checksum::checksum(self.0.as_ref());
        self.set_checksum(sum);
    }
}

/// The header as values. The checksum is the caller's, once the payload is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpRepr {
    /// Type: see [`icmp_type`].
    pub icmp_type: u8,
    /// Code.
    pub code: u8,
    /// The four bytes that depend on the type.
    pub rest: [u8; 4],
}

impl IcmpRepr {
    /// An echo request.
    pub fn echo_request(ident: u16, sequence: u16) -> Self {
        Self { icmp_type: icmp_type::ECHO_REQUEST, code: 0, rest: echo_rest(ident, sequence) }
    }

    /// Identifier and sequence number, if it is an echo request or reply.
    pub fn echo(&self) -> Option<(u16, u16)> {
        let [a, b, c, d] = self.rest;
        matches!(self.icmp_type, icmp_type::ECHO_REQUEST | icmp_type::ECHO_REPLY)
            .then_some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(message: &IcmpMessage<B>) -> Self {
        Self { icmp_type: message.icmp_type(), code: message.code(), rest: message.rest() }
    }

    /// Bytes that [`Self::emit`] writes: 8.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, checksum 0, to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let mut message = IcmpMessage(room("icmp", buffer, HEADER_LEN)?);
        message.set_icmp_type(self.icmp_type);
        message.set_code(self.code);
        message.set_checksum(0);
        message.set_rest(self.rest);
        Ok(())
    }
}

/// Identifier and sequence number as the four bytes of an echo.
pub(crate) fn echo_rest(ident: u16, sequence: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (ident.to_be_bytes(), sequence.to_be_bytes());
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;

    const ECHO: [u8; 12] = [8, 0, 0x8e, 0xfe, 0x12, 0x34, 0xab, 0xcd, 0xaa, 0, 0, 0xff];

    #[test]
    fn a_literal_echo_reads_and_writes_back() {
        let message = IcmpMessage::new(&ECHO[..]).unwrap();
        assert!(message.is_checksum_valid());
        let repr = IcmpRepr::parse(&message);
        assert_eq!(repr, IcmpRepr::echo_request(0x1234, 0xabcd));
        assert_eq!(repr.echo(), Some((0x1234, 0xabcd)));
        assert_eq!(message.payload(), [0xaa, 0, 0, 0xff]);
        let mut out = [0xff; 12];
        out[8..].copy_from_slice(message.payload());
        repr.emit(&mut out).unwrap();
        IcmpMessage::new(&mut out[..]).unwrap().fill_checksum();
        assert_eq!(out, ECHO);
        each_prefix(&ECHO[..8], |short| {
            assert!(IcmpMessage::new(short).is_err());
            assert!(repr.emit(&mut short.to_vec()).is_err());
        });
    }

    #[test]
    fn only_echoes_have_an_identifier() {
        let mut repr = IcmpRepr::echo_request(1, 2);
        repr.icmp_type = icmp_type::UNREACHABLE;
        assert_eq!(repr.echo(), None);
    }
}

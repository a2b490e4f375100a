//! ARP for IPv4 over Ethernet (RFC 826) and RARP (RFC 903), which is the same header under another type.

use std::net::Ipv4Addr;

use crate::Result;
use crate::bytes::{be16, invalid, need, put, put16, room};
use crate::ethernet::{EthAddr, EtherType};

/// Byte ranges of the packet.
pub mod field {
    use std::ops::Range;

    /// Hardware type: 1 is Ethernet.
    pub const HARDWARE: Range<usize> = 0..2;
    /// Protocol type: 0x800 is IPv4.
    pub const PROTOCOL: Range<usize> = 2..4;
    /// Length of a hardware address: 6.
    pub const HARDWARE_LEN: usize = 4;
    /// Length of a protocol address: 4.
    pub const PROTOCOL_LEN: usize = 5;
    /// Operation.
    pub const OPERATION: Range<usize> = 6..8;
    /// Sender's hardware address.
    pub const SHA: Range<usize> = 8..14;
    /// Sender's protocol address.
    pub const SPA: Range<usize> = 14..18;
    /// Target's hardware address.
    pub const THA: Range<usize> = 18..24;
    /// Target's protocol address.
    pub const TPA: Range<usize> = 24..28;
}

/// Length of the packet in bytes.
pub const PACKET_LEN: usize = field::TPA.end;

/// Operations.
pub mod operation {
    /// Asks which host has an IPv4 address.
    pub const REQUEST: u16 = 1;
    /// I have.
    pub const REPLY: u16 = 2;
    /// RARP: what IPv4 address has this station?
    pub const REVERSE_REQUEST: u16 = 3;
    /// RARP: this one.
    pub const REVERSE_REPLY: u16 = 4;
}

fn check(bytes: &[u8]) -> Result<()> {
    need("arp", bytes, PACKET_LEN)?;
    let hardware = be16(bytes, field::HARDWARE);
    if hardware != 1 {
        return invalid("arp", "hardware type", u64::from(hardware));
    }
    let protocol = be16(bytes, field::PROTOCOL);
    if protocol != EtherType::IPV4.0 {
        return invalid("arp", "protocol type", u64::from(protocol));
    }
    let hardware_len = bytes[field::HARDWARE_LEN];
    if hardware_len != 6 {
        return invalid("arp", "hardware address length", u64::from(hardware_len));
    }
    let protocol_len = bytes[field::PROTOCOL_LEN];
    if protocol_len != 4 {
        return invalid("arp", "protocol address length", u64::from(protocol_len));
    }
    Ok(())
}

view!(
    /// An ARP or RARP packet for IPv4 over Ethernet; no other kind passes the check.
    ArpPacket, check
);

fields!(ArpPacket {
    /// The operation: see [`operation`].
    operation, set_operation: u16 at field::OPERATION;
    /// Sender's Ethernet address.
    sha, set_sha: EthAddr at field::SHA;
    /// Sender's IPv4 address.
    spa, set_spa: Ipv4Addr at field::SPA;
    /// Target's Ethernet address.
    tha, set_tha: EthAddr at field::THA;
    /// Target's IPv4 address.
    tpa, set_tpa: Ipv4Addr at field::TPA;
});

/// The packet as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpRepr {
    /// The operation: see [`operation`].
    pub operation: u16,
    /// Sender's Ethernet address.
    pub sha: EthAddr,
    /// Sender's IPv4 address.
    pub spa: Ipv4Addr,
    /// Target's Ethernet address.
    pub tha: EthAddr,
    /// Target's IPv4 address.
    pub tpa: Ipv4Addr,
}

impl ArpRepr {
    /// Asks which host has `tpa`.
    pub fn request(sha: EthAddr, spa: Ipv4Addr, tpa: Ipv4Addr) -> Self {
        Self { operation: operation::REQUEST, sha, spa, tha: EthAddr::ZERO, tpa }
    }

    /// Reads the packet.
    pub fn parse<B: AsRef<[u8]>>(packet: &ArpPacket<B>) -> Self {
        Self {
            operation: packet.operation(),
            sha: packet.sha(),
            spa: packet.spa(),
            tha: packet.tha(),
            tpa: packet.tpa(),
        }
    }

    /// Bytes that [`Self::emit`] writes: 28.
    pub fn header_len(&self) -> usize {
        PACKET_LEN
    }

    /// Writes the packet to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let bytes = room("arp", buffer, PACKET_LEN)?;
        put16(bytes, field::HARDWARE, 1);
        put16(bytes, field::PROTOCOL, EtherType::IPV4.0);
        put(bytes, field::HARDWARE_LEN..field::OPERATION.start, &[6, 4]);
        let mut packet = ArpPacket(bytes);
        packet.set_operation(self.operation);
        packet.set_sha(self.sha);
        packet.set_spa(self.spa);
        packet.set_tha(self.tha);
        packet.set_tpa(self.tpa);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WireError;
    use crate::bytes::each_prefix;

    const REQUEST: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 1, 0x52, 0x54, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

    #[test]
    fn a_literal_request_reads_and_writes_back() {
        let repr = ArpRepr::parse(&ArpPacket::new(&REQUEST[..]).unwrap());
        let (spa, tpa) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(repr, ArpRepr::request(EthAddr([0x52, 0x54, 0, 0, 0, 1]), spa, tpa));
        let mut out = [0; 28];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, REQUEST);
    }

    #[test]
    fn other_kinds_and_truncations_are_errors() {
        each_prefix(&REQUEST, |short| assert!(ArpPacket::new(short).is_err()));
        for at in [1, 2, 4, 5] {
            let mut bytes = REQUEST;
            bytes[at] ^= 0x10;
            assert!(matches!(ArpPacket::new(bytes), Err(WireError::Invalid { layer: "arp", .. })));
        }
    }
}

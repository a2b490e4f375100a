//! VXLAN (RFC 7348 section 5), with the group policy extension (draft-smith-vxlan-group-policy) and the next
//! protocol of VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe), which use bits that the RFC reserves.

use crate::Result;
use crate::bytes::{be32, need, put32, room};

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Flags.
    pub const FLAGS: usize = 0;
    /// Flags of group policy; reserved without it.
    pub const GBP_FLAGS: usize = 1;
    /// Group of the sender, with group policy.
    pub const GBP_ID: Range<usize> = 2..4;
    /// Next protocol, with GPE.
    pub const NEXT_PROTOCOL: usize = 3;
    /// Network identifier (24 bits) and a reserved byte.
    pub const VNI: Range<usize> = 4..8;
    /// The inner frame.
    pub const PAYLOAD: usize = 8;
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

/// UDP port.
pub const PORT: u16 = 4789;
/// UDP port of VXLAN-GPE.
pub const PORT_GPE: u16 = 4790;

/// Flags in the first byte.
pub mod flag {
    /// The network identifier is valid: must be set.
    pub const VNI: u8 = 0x08;
    /// Group policy.
    pub const GBP: u8 = 0x80;
    /// GPE: a next protocol is given.
    pub const NEXT_PROTOCOL: u8 = 0x04;
}

/// Next protocols of GPE.
pub mod next_protocol {
    /// IPv4.
    pub const IPV4: u8 = 1;
    /// IPv6.
    pub const IPV6: u8 = 2;
    /// Ethernet.
    pub const ETHERNET: u8 = 3;
    /// Network service header.
    pub const NSH: u8 = 4;
}

/// The largest network identifier.
pub const VNI_MAX: u32 = 0xff_ffff;

fn check(bytes: &[u8]) -> Result<()> {
    need("vxlan", bytes, HEADER_LEN)
}

view!(
    /// A VXLAN header and the frame in it.
    VxlanHeader, check
);

fields!(VxlanHeader {
    /// Flags: see [`flag`].
    flags, set_flags: u8 at field::FLAGS;
    /// Flags of group policy.
    gbp_flags, set_gbp_flags: u8 at field::GBP_FLAGS;
    /// Group of the sender, with group policy.
    gbp_id, set_gbp_id: u16 at field::GBP_ID;
    /// Next protocol, with GPE: see [`next_protocol`]. Shares its byte with the group.
    next_protocol, set_next_protocol: u8 at field::NEXT_PROTOCOL;
});

impl<B: AsRef<[u8]>> VxlanHeader<B> {
    /// Network identifier: below 2^24.
    pub fn vni(&self) -> u32 {
        be32(self.0.as_ref(), field::VNI) >> 8
    }

    /// Whether the identifier is valid, as it must be.
    pub fn is_vni_valid(&self) -> bool {
        self.flags() & flag::VNI != 0
    }

    /// The inner frame.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> VxlanHeader<B> {
    /// Sets the network identifier (its low 24 bits) and clears the reserved byte behind it.
    pub fn set_vni(&mut self, vni: u32) {
        put32(self.0.as_mut(), field::VNI, vni << 8);
    }
}

/// The header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VxlanRepr {
    /// Flags: see [`flag`].
    pub flags: u8,
    /// The three bytes behind the flags: group policy's or GPE's, else 0.
    pub extension: [u8; 3],
    /// Network identifier: below 2^24, higher bits are ignored.
    pub vni: u32,
}

impl VxlanRepr {
    /// As RFC 7348 has it.
    pub fn new(vni: u32) -> Self {
        Self { flags: flag::VNI, extension: [0; 3], vni }
    }

    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(header: &VxlanHeader<B>) -> Self {
        let [high, low] = header.gbp_id().to_be_bytes();
        Self { flags: header.flags(), extension: [header.gbp_flags(), high, low], vni: header.vni() }
    }

    /// Bytes that [`Self::emit`] writes: 8.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let mut header = VxlanHeader(room("vxlan", buffer, HEADER_LEN)?);
        let [gbp_flags, high, low] = self.extension;
        header.set_flags(self.flags);
        header.set_gbp_flags(gbp_flags);
        header.set_gbp_id(u16::from_be_bytes([high, low]));
        header.set_vni(self.vni);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;

    const HEADER: [u8; 9] = [0x88, 0x40, 0x12, 0x34, 0xab, 0xcd, 0xef, 0, 0x55];

    #[test]
    fn a_literal_header_reads_and_writes_back() {
        let header = VxlanHeader::new(&HEADER[..]).unwrap();
        assert!(header.is_vni_valid());
        assert_eq!((header.vni(), header.gbp_id(), header.gbp_flags()), (0xab_cdef, 0x1234, 0x40));
        assert_eq!(header.payload(), [0x55]);
        let repr = VxlanRepr::parse(&header);
        let mut out = [0xff; 8];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, HEADER[..8]);
        each_prefix(&HEADER[..8], |short| {
            assert!(VxlanHeader::new(short).is_err());
            assert!(repr.emit(&mut short.to_vec()).is_err());
        });
    }

    #[test]
    fn a_plain_header_is_flag_and_identifier() {
        let mut out = [0xff; 8];
        VxlanRepr::new(0xff00_0001).emit(&mut out).unwrap();
        assert_eq!(out, [8, 0, 0, 0, 0, 0, 1, 0]);
    }
}

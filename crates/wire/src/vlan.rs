//! VLAN tags (IEEE 802.1Q clause 9): the four bytes behind a tag's Ethernet type 0x8100 or 0x88a8.

use std::fmt;

use crate::Result;
use crate::bytes::{need, room};
use crate::ethernet::EtherType;

/// Byte ranges of what follows the tag's own type.
pub mod field {
    use std::ops::Range;

    /// Tag control information: priority (3 bits), drop eligible (1 bit), VLAN (12 bits).
    pub const TCI: Range<usize> = 0..2;
    /// Type of what follows the tag.
    pub const TYPE: Range<usize> = 2..4;
    /// What follows the tag.
    pub const PAYLOAD: usize = 4;
}

/// Length of a tag in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

/// A VLAN identifier: 0..=4095, 0 being "priority only" and 4095 reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VlanId(u16);

impl VlanId {
    /// `None` from 4096 on.
    pub const fn new(vid: u16) -> Option<Self> {
        if vid < 4096 { Some(Self(vid)) } else { None }
    }

    /// The low 12 bits of a tag's control information.
    pub const fn from_tci(tci: u16) -> Self {
        Self(tci & 0xfff)
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A tag as values: its own type and control information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// 0x8100 (customer) or 0x88a8 (service).
    pub tpid: EtherType,
    /// Priority code point: 0..=7, higher bits are ignored.
    pub pcp: u8,
    /// Drop eligible.
    pub dei: bool,
    /// VLAN.
    pub vid: VlanId,
}

impl VlanTag {
    /// A customer tag (0x8100) of priority 0.
    pub const fn customer(vid: VlanId) -> Self {
        Self::from_tci(EtherType::VLAN, vid.0)
    }

    /// A service tag (0x88a8) of priority 0.
    pub const fn service(vid: VlanId) -> Self {
        Self::from_tci(EtherType::QINQ, vid.0)
    }

    /// From control information.
    pub const fn from_tci(tpid: EtherType, tci: u16) -> Self {
        Self { tpid, pcp: (tci >> 13) as u8, dei: tci & 0x1000 != 0, vid: VlanId::from_tci(tci) }
    }

    /// The control information.
    pub const fn tci(self) -> u16 {
        (self.pcp as u16) << 13 | (self.dei as u16) << 12 | self.vid.0
    }
}

fn check(bytes: &[u8]) -> Result<()> {
    need("vlan", bytes, HEADER_LEN)
}

view!(
    /// What follows a tag's type: control information, next type, payload.
    VlanHeader, check
);

fields!(VlanHeader {
    /// Tag control information.
    tci, set_tci: u16 at field::TCI;
    /// Type of what follows the tag.
    ethertype, set_ethertype: EtherType at field::TYPE;
});

impl<B: AsRef<[u8]>> VlanHeader<B> {
    /// VLAN.
    pub fn vid(&self) -> VlanId {
        VlanId::from_tci(self.tci())
    }

    /// Priority code point: 0..=7.
    pub fn pcp(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// Drop eligible.
    pub fn dei(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// What follows the tag.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> VlanHeader<B> {
    /// Sets the VLAN, keeps the rest.
    pub fn set_vid(&mut self, vid: VlanId) {
        self.set_tci(self.tci() & 0xf000 | vid.0);
    }

    /// Sets the priority (its low three bits), keeps the rest.
    pub fn set_pcp(&mut self, pcp: u8) {
        self.set_tci(self.tci() & 0x1fff | u16::from(pcp) << 13);
    }
}

/// A tag and the type behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanRepr {
    /// Tag control information.
    pub tci: u16,
    /// Type of what follows the tag.
    pub ethertype: EtherType,
}

impl VlanRepr {
    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(header: &VlanHeader<B>) -> Self {
        Self { tci: header.tci(), ethertype: header.ethertype() }
    }

    /// Bytes that [`Self::emit`] writes: 4.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let mut header = VlanHeader(room("vlan", buffer, HEADER_LEN)?);
        header.set_tci(self.tci);
        header.set_ethertype(self.ethertype);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;

    const TAG: [u8; 5] = [0xb0, 0x64, 0x08, 0x00, 0x45];

    #[test]
    fn a_literal_tag_reads_and_writes_back() {
        let header = VlanHeader::new(&TAG[..]).unwrap();
        assert_eq!((header.pcp(), header.dei(), header.vid().get()), (5, true, 100));
        assert_eq!(header.ethertype(), EtherType::IPV4);
        assert_eq!(header.payload(), [0x45]);
        let mut out = [0; 4];
        VlanRepr::parse(&header).emit(&mut out).unwrap();
        assert_eq!(out, TAG[..4]);
        each_prefix(&TAG[..4], |short| {
            assert!(VlanHeader::new(short).is_err());
            assert!(VlanRepr::parse(&header).emit(&mut short.to_vec()).is_err());
        });
    }

    #[test]
    fn parts_of_the_tag_are_set_alone() {
        let mut header = VlanHeader::new(TAG).unwrap();
        header.set_vid(VlanId::new(4095).unwrap());
        assert_eq!(header.tci(), 0xbfff);
        header.set_pcp(2);
        assert_eq!(header.tci(), 0x5fff);
    }

    #[test]
    fn tags_convert_to_control_information_and_back() {
        for tci in [0, 0x0fff, 0x1000, 0xe000, 0xb064, 0xffff] {
            assert_eq!(VlanTag::from_tci(EtherType::VLAN, tci).tci(), tci);
        }
        assert_eq!(VlanId::new(4096), None);
    }
}

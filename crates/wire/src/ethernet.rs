//! Ethernet II (IEEE 802.3 clause 3): addresses, types, the 14-byte header, and the 802.2 SNAP header after a
//! length field.

pub use crate::ids::{EthAddr, EthAddrParseError, EtherType};

use crate::Result;
use crate::bytes::{need, room};

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Destination address.
    pub const DST: Range<usize> = 0..6;
    /// Source address.
    pub const SRC: Range<usize> = 6..12;
    /// Type, or a length if below 0x600.
    pub const TYPE: Range<usize> = 12..14;
    /// What follows the header.
    pub const PAYLOAD: usize = 14;
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

fn check(bytes: &[u8]) -> Result<()> {
    need("ethernet", bytes, HEADER_LEN)
}

view!(
    /// An Ethernet frame, without preamble and frame check sequence.
    EthernetFrame, check
);

fields!(EthernetFrame {
    /// Destination.
    dst, set_dst: EthAddr at field::DST;
    /// Source.
    src, set_src: EthAddr at field::SRC;
    /// Type of what follows: a VLAN tag's, if there is one.
    ethertype, set_ethertype: EtherType at field::TYPE;
});

impl<B: AsRef<[u8]>> EthernetFrame<B> {
    /// Everything after the header, padding included.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }

    /// The type that an 802.2 SNAP header of organisation 0 carries behind a length field (RFC 1042).
    pub fn snap_type(&self) -> Option<EtherType> {
        if !self.ethertype().is_length() {
            return None;
        }
        match self.payload() {
            [0xaa, 0xaa, 0x03, 0, 0, 0, high, low, ..] => {
                let snap = EtherType(u16::from_be_bytes([*high, *low]));
                (!snap.is_length()).then_some(snap)
            }
            _ => None,
        }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> EthernetFrame<B> {
    /// As [`Self::payload`], to write to.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[HEADER_LEN..]
    }
}

/// The header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthernetRepr {
    /// Destination.
    pub dst: EthAddr,
    /// Source.
    pub src: EthAddr,
    /// Type of what follows.
    pub ethertype: EtherType,
}

impl EthernetRepr {
    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(frame: &EthernetFrame<B>) -> Self {
        Self { dst: frame.dst(), src: frame.src(), ethertype: frame.ethertype() }
    }

    /// Bytes that [`Self::emit`] writes: 14.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let mut frame = EthernetFrame(room("ethernet", buffer, HEADER_LEN)?);
        frame.set_dst(self.dst);
        frame.set_src(self.src);
        frame.set_ethertype(self.ethertype);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;

    const FRAME: [u8; 16] = [0x33, 0x33, 0, 0, 0, 1, 0x52, 0x54, 0, 0x12, 0x34, 0x56, 0x86, 0xdd, 0x60, 0];

    #[test]
    fn a_literal_frame_reads_and_writes_back() {
        let frame = EthernetFrame::new(&FRAME[..]).unwrap();
        assert_eq!(frame.dst().to_string(), "33:33:00:00:00:01");
        assert_eq!(frame.src().to_string(), "52:54:00:12:34:56");
        assert_eq!(frame.ethertype(), EtherType::IPV6);
        assert_eq!(frame.payload(), [0x60, 0]);
        let mut out = [0; 14];
        EthernetRepr::parse(&frame).emit(&mut out).unwrap();
        assert_eq!(out, FRAME[..14]);
        each_prefix(&FRAME[..14], |short| {
            assert!(EthernetFrame::new(short).is_err());
            assert!(EthernetRepr::parse(&frame).emit(&mut short.to_vec()).is_err());
        });
    }

    #[test]
    fn setters_write_where_getters_read() {
        let mut frame = EthernetFrame::new([0; 14]).unwrap();
        frame.set_dst(EthAddr([1, 2, 3, 4, 5, 6]));
        frame.set_src(EthAddr::BROADCAST);
        frame.set_ethertype(EtherType::ARP);
        assert_eq!(frame.dst(), EthAddr([1, 2, 3, 4, 5, 6]));
        assert_eq!(frame.into_inner(), [1, 2, 3, 4, 5, 6, 255, 255, 255, 255, 255, 255, 0x08, 0x06]);
    }

    #[test]
    fn snap_carries_a_type_only_for_organisation_zero() {
        let mut frame = vec![0; 14];
        frame[13] = 10;
        frame.extend([0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 1, 2]);
        let snap = |bytes: &[u8]| EthernetFrame::new(bytes).unwrap().snap_type();
        assert_eq!(snap(&frame), Some(EtherType::IPV4));
        for len in 14..22 {
            assert_eq!(snap(&frame[..len]), None);
        }
        frame[17] = 1;
        assert_eq!(snap(&frame), None);
    }

    #[test]
    fn addresses_parse_and_print() {
        let text = "0a:1b:2c:3d:4e:5f";
        let addr: EthAddr = text.parse().unwrap();
        assert_eq!(addr, EthAddr([0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f]));
        assert_eq!(addr.to_string(), text);
        assert_eq!("A:1B:2c:3d:4e:5f".parse(), Ok(addr));
        assert_eq!(EthAddr::from_u64(addr.to_u64()), addr);
        assert_eq!(addr.to_u64(), 0x0a1b_2c3d_4e5f);
        for bad in [
            "",
            "1:2:3:4:5",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:",
            "+1:2:3:4:5:6",
            "100:2:3:4:5:6",
            "g:2:3:4:5:6",
            "1-2-3-4-5-6",
            " 1:2:3:4:5:6",
        ] {
            assert_eq!(bad.parse::<EthAddr>(), Err(EthAddrParseError), "{bad:?}");
        }
    }

    #[test]
    fn addresses_know_their_kind() {
        let kind = |text: &str| {
            let addr: EthAddr = text.parse().unwrap();
            (addr.is_broadcast(), addr.is_multicast(), addr.is_local(), addr.is_reserved())
        };
        assert_eq!(kind("ff:ff:ff:ff:ff:ff"), (true, true, true, false));
        assert_eq!(kind("01:80:c2:00:00:0e"), (false, true, false, true));
        assert_eq!(kind("01:80:c2:00:00:10"), (false, true, false, false));
        assert_eq!(kind("52:54:00:00:00:01"), (false, false, true, false));
        assert!(EthAddr::ZERO.is_unicast() && EthAddr::ZERO.is_zero());
    }
}

//! IPv6's fixed header (RFC 8200 section 3). Extension headers: [`crate::ipv6_ext`].

use std::net::Ipv6Addr;

use crate::Result;
use crate::bytes::{be16, clamped, clamped_mut, invalid, len16, need, room};
use crate::checksum::{self, Sum};
use crate::ip::IpProtocol;
use crate::ipv6_ext::{ExtHeaders, Upper};

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    pub const VER_TC_FLOW: Range<usize> = 0..4;
    /// Bytes after the fixed header.
    pub const PAYLOAD_LEN: Range<usize> = 4..6;
    /// Protocol of the next header.
    pub const NEXT_HEADER: usize = 6;
    /// Hop limit.
    pub const HOP_LIMIT: usize = 7;
    /// Source address.
    pub const SRC: Range<usize> = 8..24;
    /// Destination address.
    pub const DST: Range<usize> = 24..40;
    /// Extension headers and payload.
    pub const PAYLOAD: usize = 40;
}

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

/// The largest flow label.
pub const FLOW_LABEL_MAX: u32 = 0xf_ffff;

fn check(bytes: &[u8]) -> Result<()> {
    need("ipv6", bytes, HEADER_LEN)?;
    let version = bytes[0] >> 4;
    if version != 6 {
        return invalid("ipv6", "version", u64::from(version));
    }
    // A jumbogram (payload length 0 with an option, RFC 2675) counts as empty.
    let payload_len = usize::from(be16(bytes, field::PAYLOAD_LEN));
    need("ipv6", bytes, HEADER_LEN + payload_len)
}

view!(
    /// An IPv6 packet. Bytes past its payload length (Ethernet padding) may follow.
    Ipv6Packet, check
);

fields!(Ipv6Packet {
    /// Version, traffic class and flow label, raw.
    ver_tc_flow, set_ver_tc_flow: u32 at field::VER_TC_FLOW;
    /// Bytes after the fixed header, extension headers included.
    payload_len, set_payload_len: u16 at field::PAYLOAD_LEN;
    /// Protocol of the next header.
    next_header, set_next_header: IpProtocol at field::NEXT_HEADER;
    /// Hop limit.
    hop_limit, set_hop_limit: u8 at field::HOP_LIMIT;
    /// Source.
    src, set_src: Ipv6Addr at field::SRC;
    /// Destination.
    dst, set_dst: Ipv6Addr at field::DST;
});

impl<B: AsRef<[u8]>> Ipv6Packet<B> {
    /// Traffic class: DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        (self.ver_tc_flow() >> 20) as u8
    }

    /// Differentiated services code point: 0..=63.
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Explicit congestion notification: 0..=3.
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Flow label: below 2^20.
    pub fn flow_label(&self) -> u32 {
        self.ver_tc_flow() & FLOW_LABEL_MAX
    }

    /// What follows the fixed header, up to the payload length.
    pub fn payload(&self) -> &[u8] {
        let end = HEADER_LEN + usize::from(self.payload_len());
        clamped(self.0.as_ref(), HEADER_LEN, end)
    }

    /// The extension headers, one by one.
    pub fn ext_headers(&self) -> ExtHeaders<'_> {
        ExtHeaders::new(self.next_header(), self.payload())
    }

    /// Walks all extension headers: what follows them, where, and whether the packet is a fragment.
    pub fn upper(&self) -> Result<Upper> {
        crate::ipv6_ext::walk(self.next_header(), self.payload())
    }

    /// Sum of the pseudo-header for a transport header of `protocol` and payload, `len` bytes together. With
    /// an unfinished routing header, another destination must be summed: see RFC 8200 section 8.1.
    pub fn pseudo(&self, protocol: IpProtocol, len: u32) -> Sum {
        checksum::pseudo_v6(self.src(), self.dst(), protocol, len)
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Ipv6Packet<B> {
    /// As [`Self::payload`], to write to.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = HEADER_LEN + usize::from(self.payload_len());
        clamped_mut(self.0.as_mut(), HEADER_LEN, end)
    }

    /// Sets the traffic class, keeps version and flow label.
    pub fn set_traffic_class(&mut self, traffic_class: u8) {
        let kept = self.ver_tc_flow() & !0x0ff0_0000;
        self.set_ver_tc_flow(kept | u32::from(traffic_class) << 20);
    }

    /// Sets the flow label (its low 20 bits), keeps version and traffic class.
    pub fn set_flow_label(&mut self, flow_label: u32) {
        let kept = self.ver_tc_flow() & !FLOW_LABEL_MAX;
        self.set_ver_tc_flow(kept | flow_label & FLOW_LABEL_MAX);
    }
}

/// The fixed header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
    /// Protocol of the next header.
    pub next_header: IpProtocol,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label: below 2^20, higher bits are ignored.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Bytes after the fixed header.
    pub payload_len: usize,
}

impl Ipv6Repr {
    /// A plain header: hop limit 64, no payload.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol) -> Self {
        Self { src, dst, next_header, traffic_class: 0, flow_label: 0, hop_limit: 64, payload_len: 0 }
    }

    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(packet: &Ipv6Packet<B>) -> Self {
        Self {
            src: packet.src(),
            dst: packet.dst(),
            next_header: packet.next_header(),
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            hop_limit: packet.hop_limit(),
            payload_len: packet.payload().len(),
        }
    }

    /// Bytes that [`Self::emit`] writes: 40.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let payload_len = len16("ipv6", "payload length", self.payload_len)?;
        let mut packet = Ipv6Packet(room("ipv6", buffer, HEADER_LEN)?);
        packet.set_ver_tc_flow(0x6000_0000);
        packet.set_traffic_class(self.traffic_class);
        packet.set_flow_label(self.flow_label);
        packet.set_payload_len(payload_len);
        packet.set_next_header(self.next_header);
        packet.set_hop_limit(self.hop_limit);
        packet.set_src(self.src);
        packet.set_dst(self.dst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WireError;
    use crate::bytes::each_prefix;

    fn packet() -> Vec<u8> {
        let mut bytes = vec![0x6b, 0x91, 0x23, 0x45, 0, 2, 17, 63];
        bytes.extend(Ipv6Addr::LOCALHOST.octets());
        bytes.extend("ff02::1:2".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend([0xab, 0xcd, 0, 0]);
        bytes
    }

    #[test]
    fn a_literal_packet_reads_and_writes_back() {
        let bytes = packet();
        let view = Ipv6Packet::new(&bytes[..]).unwrap();
        assert_eq!((view.traffic_class(), view.flow_label()), (0xb9, 0x1_2345));
        assert_eq!((view.dscp(), view.ecn()), (46, 1));
        assert_eq!((view.next_header(), view.hop_limit()), (IpProtocol::UDP, 63));
        assert_eq!(view.payload(), [0xab, 0xcd]);
        assert_eq!(view.src(), Ipv6Addr::LOCALHOST);
        let mut out = [0xff; 40];
        Ipv6Repr::parse(&view).emit(&mut out).unwrap();
        assert_eq!(out, bytes[..40]);
    }

    #[test]
    fn truncations_and_other_versions_are_errors() {
        let bytes = packet();
        each_prefix(&bytes[..42], |short| assert!(Ipv6Packet::new(short).is_err()));
        let mut other = bytes.clone();
        other[0] = 0x4b;
        assert!(matches!(Ipv6Packet::new(other), Err(WireError::Invalid { .. })));
    }

    #[test]
    fn parts_of_the_first_word_are_set_alone() {
        let mut view = Ipv6Packet::new(packet()).unwrap();
        view.set_traffic_class(0x5a);
        assert_eq!(view.ver_tc_flow(), 0x65a1_2345);
        view.set_flow_label(0xffff_ffff);
        assert_eq!(view.ver_tc_flow(), 0x65af_ffff);
        view.set_hop_limit(1);
        assert_eq!(view.hop_limit(), 1);
        view.set_payload_len(65_535);
        assert_eq!(view.payload().len(), 4);
    }
}

//! Composes whole frames with right lengths and checksums, for tests, the demo and benchmarks.
//!
//! ```
//! use wire::{Compose, EthAddr, VlanId};
//!
//! let frame = Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]))
//!     .vlan(VlanId::new(100).unwrap())
//!     .ipv4("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
//!     .udp(1000, 2000)
//!     .frame_len(64)
//!     .build()
//!     .unwrap();
//! assert_eq!(frame.len(), 64);
//! ```
//!
//! Layers are named from the outside in; naming a layer again replaces it (VLAN tags and MPLS entries add
//! up). [`Compose::frame_len`] stretches the payload to fill the frame (ARP and a bare Ethernet frame get
//! padding), with zeros or, after [`Compose::payload`], with zeros behind that payload.
//!
//! A fragment other than the first has no transport header, only its protocol number and the payload. A
//! first fragment's transport checksum covers what it carries, not the whole datagram, which is not known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::arp::ArpRepr;
use crate::bytes::{invalid, need, room};
use crate::checksum::{self, Sum};
use crate::ethernet::{self, EthAddr, EtherType, EthernetRepr};
use crate::icmp::{IcmpMessage, IcmpRepr};
use crate::icmpv6::{Icmpv6Message, Icmpv6Repr};
use crate::igmp::{IgmpMessage, IgmpRepr};
use crate::ip::IpProtocol;
use crate::ipv4::Ipv4Repr;
use crate::ipv6::Ipv6Repr;
use crate::ipv6_ext::{ExtRepr, FragmentRepr};
use crate::mpls::{self, MplsRepr};
use crate::nd::NdRepr;
use crate::options::OptionBytes;
use crate::sctp::{SctpPacket, SctpRepr};
use crate::tcp::{TcpFlags, TcpRepr, TcpSegment};
use crate::udp::{UdpPacket, UdpRepr};
use crate::vlan::{self, VlanId, VlanRepr, VlanTag};
use crate::{Result, WireError};

/// Shortest Ethernet frame without its frame check sequence.
pub const FRAME_LEN_MIN: usize = 60;

/// Longest frame that [`Compose::build`] makes: more than IP's 64 KiB behind any sensible tags.
pub const FRAME_LEN_MAX: usize = 1 << 17;

/// The network layer of a frame under composition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Net {
    /// Only payload, of this type.
    Raw(EtherType),
    Arp(ArpRepr, EtherType),
    Ipv4(Ipv4Repr),
    Ipv6(Ipv6Repr, Vec<ExtRepr>),
}

/// The transport layer of a frame under composition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// Only payload, of this protocol.
    Raw(IpProtocol),
    Udp(UdpRepr),
    Tcp(TcpRepr),
    Sctp(SctpRepr),
    Icmp(IcmpRepr),
    Icmpv6(Icmpv6Repr),
    Nd(NdRepr),
    Igmp(IgmpRepr),
}

/// A frame under composition. See the module for the order of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compose {
    src: EthAddr,
    dst: EthAddr,
    vlans: Vec<VlanTag>,
    mpls: Vec<MplsRepr>,
    net: Net,
    transport: Transport,
    udp_checksum: bool,
    payload: Vec<u8>,
    frame_len: Option<usize>,
}

impl Compose {
    /// An Ethernet frame; without a further layer its type is 0x88b5, for local experiments.
    pub fn ethernet(src: EthAddr, dst: EthAddr) -> Self {
        Self {
            src,
            dst,
            vlans: Vec::new(),
            mpls: Vec::new(),
            net: Net::Raw(EtherType(0x88b5)),
            transport: Transport::Raw(IpProtocol::NO_NEXT),
            udp_checksum: true,
            payload: Vec::new(),
            frame_len: None,
        }
    }

    /// Adds a customer tag (0x8100) behind the tags there are.
    #[must_use]
    pub fn vlan(self, vid: VlanId) -> Self {
        self.vlan_tag(VlanTag::customer(vid))
    }

    /// Adds a service tag (0x88a8) behind the tags there are.
    #[must_use]
    pub fn service_vlan(self, vid: VlanId) -> Self {
        self.vlan_tag(VlanTag::service(vid))
    }

    /// Adds a tag behind the tags there are.
    #[must_use]
    pub fn vlan_tag(mut self, tag: VlanTag) -> Self {
        self.vlans.push(tag);
        self
    }

    /// Adds a label behind those there are, of class 0 and time to live 64; the last has the bottom bit.
    #[must_use]
    pub fn mpls(self, label: u32) -> Self {
        self.mpls_entry(label, 0, 64)
    }

    /// Adds a label stack entry behind those there are; the last has the bottom bit.
    #[must_use]
    pub fn mpls_entry(mut self, label: u32, tc: u8, ttl: u8) -> Self {
        self.mpls.push(MplsRepr { label, tc, bos: false, ttl });
        self
    }

    /// Payload of this type right behind the Ethernet header and tags.
    #[must_use]
    pub fn ethertype(mut self, ethertype: EtherType) -> Self {
        self.net = Net::Raw(ethertype);
        self
    }

    /// ARP.
    #[must_use]
    pub fn arp(mut self, arp: ArpRepr) -> Self {
        self.net = Net::Arp(arp, EtherType::ARP);
        self
    }

    /// RARP.
    #[must_use]
    pub fn rarp(mut self, rarp: ArpRepr) -> Self {
        self.net = Net::Arp(rarp, EtherType::RARP);
        self
    }

    /// IPv4 with time to live 64.
    #[must_use]
    pub fn ipv4(self, src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        self.ipv4_repr(Ipv4Repr::new(src, dst, IpProtocol::NO_NEXT))
    }

    /// IPv4 with all fields but protocol and length, which follow from the other layers.
    #[must_use]
    pub fn ipv4_repr(mut self, ipv4: Ipv4Repr) -> Self {
        self.net = Net::Ipv4(ipv4);
        self
    }

    /// IPv6 with hop limit 64.
    #[must_use]
    pub fn ipv6(self, src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        self.ipv6_repr(Ipv6Repr::new(src, dst, IpProtocol::NO_NEXT))
    }

    /// IPv6 with all fields but next header and length, which follow from the other layers.
    #[must_use]
    pub fn ipv6_repr(mut self, ipv6: Ipv6Repr) -> Self {
        self.net = Net::Ipv6(ipv6, Vec::new());
        self
    }

    /// IPv4 or IPv6, as the addresses are. `Err(Invalid)` if they are of two kinds.
    pub fn ip(self, src: IpAddr, dst: IpAddr) -> Result<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Ok(self.ipv4(src, dst)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Ok(self.ipv6(src, dst)),
            (_, IpAddr::V4(_)) => invalid("ip", "version", 4),
            (_, IpAddr::V6(_)) => invalid("ip", "version", 6),
        }
    }

    /// Adds an extension header behind those there are. Without IPv6 before it, nothing happens.
    #[must_use]
    pub fn ext_header(mut self, ext: ExtRepr) -> Self {
        if let Net::Ipv6(_, exts) = &mut self.net {
            exts.push(ext);
        }
        self
    }

    /// DSCP and ECN of the IP header before this call.
    #[must_use]
    pub fn tos(mut self, tos: u8) -> Self {
        match &mut self.net {
            Net::Ipv4(ipv4) => ipv4.tos = tos,
            Net::Ipv6(ipv6, _) => ipv6.traffic_class = tos,
            Net::Raw(_) | Net::Arp(..) => {}
        }
        self
    }

    /// Time to live or hop limit of the IP header before this call.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        match &mut self.net {
            Net::Ipv4(ipv4) => ipv4.ttl = ttl,
            Net::Ipv6(ipv6, _) => ipv6.hop_limit = ttl,
            Net::Raw(_) | Net::Arp(..) => {}
        }
        self
    }

    /// Makes the IP packet before this call a fragment: in IPv4's header, in an extension header of IPv6.
    #[must_use]
    pub fn fragment(mut self, fragment: FragmentRepr) -> Self {
        match &mut self.net {
            Net::Ipv4(ipv4) => {
                ipv4.dont_fragment = false;
                ipv4.more_fragments = fragment.more_fragments;
                ipv4.fragment_offset = fragment.fragment_offset;
                ipv4.ident = fragment.ident as u16;
            }
            Net::Ipv6(_, exts) => exts.push(ExtRepr::Fragment(fragment)),
            Net::Raw(_) | Net::Arp(..) => {}
        }
        self
    }

    /// Options of the IPv4 header before this call, padded to a multiple of 4; at most 40 bytes.
    pub fn ipv4_options(mut self, options: &[u8]) -> Result<Self> {
        let Some(bytes) = OptionBytes::new(options) else {
            return invalid("ipv4", "options length", options.len() as u64);
        };
        if let Net::Ipv4(ipv4) = &mut self.net {
            ipv4.options = bytes;
        }
        Ok(self)
    }

    /// Payload of this protocol right behind the IP header.
    #[must_use]
    pub fn protocol(self, protocol: IpProtocol) -> Self {
        self.transport(Transport::Raw(protocol))
    }

    /// UDP.
    #[must_use]
    pub fn udp(self, src_port: u16, dst_port: u16) -> Self {
        self.transport(Transport::Udp(UdpRepr { src_port, dst_port, payload_len: 0 }))
    }

    /// Leaves UDP's checksum 0: none, as traffic generators do.
    #[must_use]
    pub fn udp_checksum_zero(mut self) -> Self {
        self.udp_checksum = false;
        self
    }

    /// TCP with ACK set.
    #[must_use]
    pub fn tcp(self, src_port: u16, dst_port: u16) -> Self {
        self.tcp_repr(TcpRepr::new(src_port, dst_port))
    }

    /// TCP with all fields.
    #[must_use]
    pub fn tcp_repr(self, tcp: TcpRepr) -> Self {
        self.transport(Transport::Tcp(tcp))
    }

    /// Flags of the TCP header before this call.
    #[must_use]
    pub fn tcp_flags(mut self, flags: TcpFlags) -> Self {
        if let Transport::Tcp(tcp) = &mut self.transport {
            tcp.flags = flags;
        }
        self
    }

    /// SCTP with verification tag 1; the payload is its chunks.
    #[must_use]
    pub fn sctp(self, src_port: u16, dst_port: u16) -> Self {
        self.transport(Transport::Sctp(SctpRepr { src_port, dst_port, tag: 1 }))
    }

    /// ICMP.
    #[must_use]
    pub fn icmp(self, icmp: IcmpRepr) -> Self {
        self.transport(Transport::Icmp(icmp))
    }

    /// ICMPv6.
    #[must_use]
    pub fn icmpv6(self, icmpv6: Icmpv6Repr) -> Self {
        self.transport(Transport::Icmpv6(icmpv6))
    }

    /// Neighbour discovery, with the hop limit of 255 that it must have. Name IPv6 before it.
    #[must_use]
    pub fn nd(self, nd: NdRepr) -> Self {
        self.ttl(255).transport(Transport::Nd(nd))
    }

    /// IGMP, with the time to live of 1 that it must have. Name IPv4 before it.
    #[must_use]
    pub fn igmp(self, igmp: IgmpRepr) -> Self {
        self.ttl(1).transport(Transport::Igmp(igmp))
    }

    /// Payload of the innermost layer.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Length of the whole frame in bytes, without frame check sequence.
    #[must_use]
    pub fn frame_len(mut self, frame_len: usize) -> Self {
        self.frame_len = Some(frame_len);
        self
    }

    fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Bytes before the payload.
    pub fn headers_len(&self) -> usize {
        let net = match &self.net {
            Net::Raw(_) => 0,
            Net::Arp(arp, _) => arp.header_len(),
            Net::Ipv4(ipv4) => ipv4.header_len(),
            Net::Ipv6(ipv6, exts) => ipv6.header_len() + exts.iter().map(ExtRepr::header_len).sum::<usize>(),
        };
        self.link_len() + net + self.transport_len()
    }

    /// Length of the frame that [`Self::build`] makes.
    pub fn total_len(&self) -> usize {
        self.frame_len.unwrap_or(self.headers_len() + self.payload.len())
    }

    /// The frame. `Err` if `frame_len` is too short for headers and payload, or a length passes its field.
    pub fn build(&self) -> Result<Vec<u8>> {
        let len = self.total_len();
        if len > FRAME_LEN_MAX {
            return invalid("frame", "length", len as u64);
        }
        let mut frame = vec![0; len];
        self.build_into(&mut frame)?;
        Ok(frame)
    }

    /// Writes the frame to the start of `buffer` and returns its length.
    pub fn build_into(&self, buffer: &mut [u8]) -> Result<usize> {
        let len = self.total_len();
        let buffer = room("frame", buffer, len)?;
        let least = self.headers_len() + self.payload.len();
        if len < least {
            return Err(WireError::Truncated { layer: "frame", need: least, have: len });
        }
        buffer.fill(0);
        let (link, rest) = buffer.split_at_mut(self.link_len());
        self.emit_link(link)?;
        self.emit_net(rest)?;
        Ok(len)
    }

    fn link_len(&self) -> usize {
        ethernet::HEADER_LEN + self.vlans.len() * vlan::HEADER_LEN + self.mpls.len() * mpls::HEADER_LEN
    }

    fn is_later_fragment(&self) -> bool {
        match &self.net {
            Net::Ipv4(ipv4) => ipv4.fragment_offset != 0,
            Net::Ipv6(_, exts) => {
                exts.iter().any(|ext| matches!(ext, ExtRepr::Fragment(f) if f.fragment_offset != 0))
            }
            Net::Raw(_) | Net::Arp(..) => false,
        }
    }

    fn has_transport(&self) -> bool {
        matches!(self.net, Net::Ipv4(_) | Net::Ipv6(..)) && !self.is_later_fragment()
    }

    fn transport_len(&self) -> usize {
        if !self.has_transport() {
            return 0;
        }
        match &self.transport {
            Transport::Raw(_) => 0,
            Transport::Udp(udp) => udp.header_len(),
            Transport::Tcp(tcp) => tcp.header_len(),
            Transport::Sctp(sctp) => sctp.header_len(),
            Transport::Icmp(icmp) => icmp.header_len(),
            Transport::Icmpv6(icmpv6) => icmpv6.header_len(),
            Transport::Nd(nd) => nd.header_len(),
            Transport::Igmp(igmp) => igmp.header_len(),
        }
    }

    fn emit_link(&self, bytes: &mut [u8]) -> Result<()> {
        let innermost = match (&self.net, self.mpls.is_empty()) {
            (_, false) => EtherType::MPLS,
            (Net::Raw(ethertype) | Net::Arp(_, ethertype), _) => *ethertype,
            (Net::Ipv4(_), _) => EtherType::IPV4,
            (Net::Ipv6(..), _) => EtherType::IPV6,
        };
        let (ethernet, mut rest) = bytes.split_at_mut(ethernet::HEADER_LEN);
        EthernetRepr {
            dst: self.dst,
            src: self.src,
            ethertype: self.vlans.first().map_or(innermost, |tag| tag.tpid),
        }
        .emit(ethernet)?;
        for (i, tag) in self.vlans.iter().enumerate() {
            let ethertype = self.vlans.get(i + 1).map_or(innermost, |next| next.tpid);
            let tci = tag.tci();
            VlanRepr { tci, ethertype }.emit(rest)?;
            rest = &mut rest[vlan::HEADER_LEN..];
        }
        for (i, entry) in self.mpls.iter().enumerate() {
            let bos = i + 1 == self.mpls.len();
            MplsRepr { bos, ..*entry }.emit(rest)?;
            rest = &mut rest[mpls::HEADER_LEN..];
        }
        Ok(())
    }

    /// `bytes` is what the frame has behind tags and labels.
    fn emit_net(&self, bytes: &mut [u8]) -> Result<()> {
        match &self.net {
            Net::Raw(_) => self.emit_payload(bytes),
            Net::Arp(arp, _) => {
                arp.emit(bytes)?;
                self.emit_payload(&mut bytes[arp.header_len()..])
            }
            Net::Ipv4(ipv4) => {
                let protocol = self.protocol_number();
                let (header, body) = bytes.split_at_mut(ipv4.header_len());
                let ipv4 = Ipv4Repr { protocol, payload_len: body.len(), ..*ipv4 };
                ipv4.emit(header)?;
                // The header's own length check has passed, so the length fits its 16 bits.
                let pseudo = checksum::pseudo_v4(ipv4.src, ipv4.dst, protocol, body.len() as u16);
                self.emit_transport(pseudo, body)
            }
            Net::Ipv6(ipv6, exts) => {
                let (header, mut body) = bytes.split_at_mut(ipv6.header_len());
                let protocol = self.protocol_number();
                let first = exts.first().map_or(protocol, ExtRepr::protocol);
                Ipv6Repr { next_header: first, payload_len: body.len(), ..*ipv6 }.emit(header)?;
                for (i, ext) in exts.iter().enumerate() {
                    let next = exts.get(i + 1).map_or(protocol, ExtRepr::protocol);
                    ext.emit(next, body)?;
                    body = &mut body[ext.header_len()..];
                }
                let pseudo = checksum::pseudo_v6(ipv6.src, ipv6.dst, protocol, body.len() as u32);
                self.emit_transport(pseudo, body)
            }
        }
    }

    fn protocol_number(&self) -> IpProtocol {
        match self.transport {
            Transport::Raw(protocol) => protocol,
            Transport::Udp(_) => IpProtocol::UDP,
            Transport::Tcp(_) => IpProtocol::TCP,
            Transport::Sctp(_) => IpProtocol::SCTP,
            Transport::Icmp(_) => IpProtocol::ICMP,
            Transport::Icmpv6(_) | Transport::Nd(_) => IpProtocol::ICMPV6,
            Transport::Igmp(_) => IpProtocol::IGMP,
        }
    }

    /// `bytes` is transport header and payload.
    fn emit_transport(&self, pseudo: Sum, bytes: &mut [u8]) -> Result<()> {
        self.emit_payload(&mut bytes[self.transport_len()..])?;
        if !self.has_transport() {
            return Ok(());
        }
        match &self.transport {
            Transport::Raw(_) => {}
            Transport::Udp(udp) => {
                let payload_len = bytes.len() - udp.header_len();
                UdpRepr { payload_len, ..*udp }.emit(bytes)?;
                if self.udp_checksum {
                    UdpPacket::new(bytes)?.fill_checksum(pseudo);
                }
            }
            Transport::Tcp(tcp) => {
                tcp.emit(bytes)?;
                TcpSegment::new(bytes)?.fill_checksum(pseudo);
            }
            Transport::Sctp(sctp) => {
                sctp.emit(bytes)?;
                SctpPacket::new(bytes)?.fill_checksum();
            }
            Transport::Icmp(icmp) => {
                icmp.emit(bytes)?;
                IcmpMessage::new(bytes)?.fill_checksum();
            }
            Transport::Icmpv6(icmpv6) => {
                icmpv6.emit(bytes)?;
                Icmpv6Message::new(bytes)?.fill_checksum(pseudo);
            }
            Transport::Nd(nd) => {
                nd.emit(bytes)?;
                Icmpv6Message::new(bytes)?.fill_checksum(pseudo);
            }
            Transport::Igmp(igmp) => {
                igmp.emit(bytes)?;
                IgmpMessage::new(bytes)?.fill_checksum();
            }
        }
        Ok(())
    }

    fn emit_payload(&self, bytes: &mut [u8]) -> Result<()> {
        need("payload", bytes, self.payload.len())?;
        bytes[..self.payload.len()].copy_from_slice(&self.payload);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRC: EthAddr = EthAddr([2, 0, 0, 0, 0, 1]);
    const DST: EthAddr = EthAddr([2, 0, 0, 0, 0, 2]);

    fn v4() -> Compose {
        Compose::ethernet(SRC, DST).ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
    }

    #[test]
    fn a_tagged_udp_frame_is_the_one_written_by_hand() {
        let frame = Compose::ethernet(SRC, DST)
            .service_vlan(VlanId::new(7).unwrap())
            .vlan(VlanId::new(100).unwrap())
            .ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
            .tos(0xb8)
            .udp(1000, 2000)
            .udp_checksum_zero()
            .payload(b"hi")
            .build()
            .unwrap();
        let mut expected = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        expected.extend([0x88, 0xa8, 0, 7, 0x81, 0, 0, 100, 8, 0]);
        expected.extend([0x45, 0xb8, 0, 30, 0, 0, 0x40, 0, 64, 17, 0x26, 0x15]);
        expected.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        expected.extend([0x03, 0xe8, 0x07, 0xd0, 0, 10, 0, 0, b'h', b'i']);
        assert_eq!(frame, expected);
    }

    #[test]
    fn labels_stand_between_tags_and_network_layer() {
        let frame = v4().mpls(16).mpls_entry(17, 5, 3).udp(1, 2).build().unwrap();
        assert_eq!(frame[12..14], [0x88, 0x47]);
        assert_eq!(frame[14..22], [0, 1, 0, 64, 0, 1, 0x1b, 3]);
        assert_eq!(frame[22], 0x45);
    }

    #[test]
    fn frame_len_stretches_the_payload_and_is_never_too_short() {
        let frame = v4().udp(1, 2).payload(b"abc").frame_len(60);
        assert_eq!(frame.headers_len(), 42);
        let bytes = frame.build().unwrap();
        assert_eq!(bytes.len(), 60);
        assert_eq!(bytes[16..18], [0, 46]);
        assert_eq!(&bytes[42..46], b"abc\0");
        assert!(frame.clone().frame_len(44).build().is_err());
        assert_eq!(frame.clone().frame_len(45).build().unwrap().len(), 45);
        assert_eq!(frame.build_into(&mut [0; 100]), Ok(60));
        assert!(frame.build_into(&mut [0; 59]).is_err());
        assert!(frame.clone().frame_len(66_000).build().is_err());
        assert!(frame.frame_len(usize::MAX).build().is_err());
    }

    #[test]
    fn arp_is_padded_behind_its_28_bytes() {
        let arp = ArpRepr::request(SRC, Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST);
        let frame = Compose::ethernet(SRC, EthAddr::BROADCAST).arp(arp);
        assert_eq!(frame.build().unwrap().len(), 42);
        let padded = frame.frame_len(FRAME_LEN_MIN).build().unwrap();
        assert_eq!(padded[12..16], [8, 6, 0, 1]);
        assert_eq!(padded[42..], [0; 18]);
    }

    #[test]
    fn a_later_fragment_has_no_transport_header() {
        let fragment = FragmentRepr { fragment_offset: 185, more_fragments: false, ident: 9 };
        let frame = v4().fragment(fragment).tcp(1, 2).payload(b"rest");
        let bytes = frame.build().unwrap();
        assert_eq!(bytes.len(), 38);
        assert_eq!(bytes[18..24], [0, 9, 0, 185, 64, 6]);
        assert_eq!(&bytes[34..], b"rest");
        let v6 = Compose::ethernet(SRC, DST)
            .ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
            .fragment(fragment)
            .udp(1, 2)
            .payload(b"rest");
        let bytes = v6.build().unwrap();
        assert_eq!(bytes[20], 44);
        assert_eq!(bytes[54..62], [17, 0, 5, 0xc8, 0, 0, 0, 9]);
        assert_eq!(&bytes[62..], b"rest");
    }

    #[test]
    fn addresses_of_two_kinds_are_refused() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        assert!(Compose::ethernet(SRC, DST).ip(v4, v6).is_err());
        assert!(Compose::ethernet(SRC, DST).ip(v6, v6).is_ok());
    }
}

//! What `emit` wrote, `parse` reads again, for any values: one line per protocol. Buffers start full of ones,
//! so that a byte left unwritten shows.

use proptest::prelude::*;
use wire::arp::{ArpPacket, ArpRepr};
use wire::ethernet::{EthernetFrame, EthernetRepr};
use wire::geneve::{GeneveHeader, GeneveRepr};
use wire::gre::{GreHeader, GreRepr};
use wire::icmp::{IcmpMessage, IcmpRepr};
use wire::icmpv6::{Icmpv6Message, Icmpv6Repr};
use wire::igmp::{IgmpMessage, IgmpRepr};
use wire::ipv4::{Ipv4Packet, Ipv4Repr};
use wire::ipv6::{Ipv6Packet, Ipv6Repr};
use wire::ipv6_ext::{FragmentHeader, FragmentRepr};
use wire::mpls::{MplsHeader, MplsRepr};
use wire::nd::{NdMessage, NdRepr};
use wire::nsh::{NshHeader, NshRepr};
use wire::sctp::{SctpPacket, SctpRepr};
use wire::tcp::{TcpFlags, TcpRepr, TcpSegment};
use wire::udp::{UdpPacket, UdpRepr};
use wire::vlan::{VlanHeader, VlanRepr};
use wire::vxlan::{VxlanHeader, VxlanRepr};
use wire::{EthAddr, EtherType, IpProtocol, OptionBytes};

/// Emits, parses through `$view` and compares; then every shorter buffer must be refused.
macro_rules! check {
    ($repr:expr, $trailing:expr, $view:ident, |$v:ident| $parsed:expr) => {{
        let repr = $repr;
        let mut buffer = vec![0xff; repr.header_len() + $trailing];
        prop_assert_eq!(repr.emit(&mut buffer), Ok(()));
        {
            let $v = $view::new(&buffer[..]).unwrap();
            prop_assert_eq!($parsed, repr);
        }
        for len in 0..repr.header_len() {
            prop_assert!(repr.emit(&mut buffer[..len]).is_err());
        }
    }};
}

fn options() -> impl Strategy<Value = OptionBytes> {
    prop::collection::vec(any::<u8>(), 0..=40).prop_map(|bytes| OptionBytes::new(&bytes).unwrap())
}

proptest! {
    #[test]
    fn link_layers(a in any::<[u8; 6]>(), b in any::<[u8; 6]>(), v in any::<(u16, u16, u32)>(), ip in any::<(u32, u32)>()) {
        let (src, dst, ethertype) = (EthAddr(a), EthAddr(b), EtherType(v.0));
        check!(EthernetRepr { dst, src, ethertype }, 0, EthernetFrame, |v| EthernetRepr::parse(&v));
        check!(VlanRepr { tci: v.1, ethertype }, 0, VlanHeader, |v| VlanRepr::parse(&v));
        let mpls = MplsRepr { label: v.2 >> 12, tc: (v.0 & 7) as u8, bos: v.0 & 8 != 0, ttl: v.1 as u8 };
        check!(mpls, 0, MplsHeader, |v| MplsRepr::parse(&v));
        let arp = ArpRepr { operation: v.0, sha: src, spa: ip.0.into(), tha: dst, tpa: ip.1.into() };
        check!(arp, 0, ArpPacket, |v| ArpRepr::parse(&v));
    }

    #[test]
    fn network_layers(
        v4 in any::<(u32, u32, u8, u8, u8, u16)>(), v6 in any::<(u128, u128)>(), flags in any::<(bool, bool)>(),
        offset in 0u16..8192, options in options(), ident in any::<u32>(), payload_len in 0usize..500,
    ) {
        let ipv4 = Ipv4Repr {
            src: v4.0.into(), dst: v4.1.into(), protocol: IpProtocol(v4.2), tos: v4.3, ttl: v4.4, ident: v4.5,
            dont_fragment: flags.0, more_fragments: flags.1, fragment_offset: offset, options, payload_len,
        };
        check!(ipv4, payload_len, Ipv4Packet, |v| Ipv4Repr::parse(&v).unwrap());
        let ipv6 = Ipv6Repr {
            src: v6.0.into(), dst: v6.1.into(), next_header: IpProtocol(v4.2), traffic_class: v4.3,
            flow_label: ident >> 12, hop_limit: v4.4, payload_len,
        };
        check!(ipv6, payload_len, Ipv6Packet, |v| Ipv6Repr::parse(&v));
        let fragment = FragmentRepr { fragment_offset: offset, more_fragments: flags.1, ident };
        let mut bytes = [0xff; 8];
        fragment.emit(IpProtocol(v4.2), &mut bytes).unwrap();
        let header = FragmentHeader::new(bytes).unwrap();
        prop_assert_eq!((FragmentRepr::parse(&header), header.next_header().0), (fragment, v4.2));
    }

    #[test]
    fn transport_layers(
        ports in any::<(u16, u16)>(), words in any::<(u32, u32)>(), rest in any::<[u8; 4]>(),
        tcp in any::<(u16, u16, u16)>(), options in options(), payload_len in 0usize..500,
    ) {
        let (src_port, dst_port) = ports;
        let segment = TcpRepr {
            src_port, dst_port, seq: words.0, ack: words.1, flags: TcpFlags::from_bits(tcp.0),
            window: tcp.1, urgent: tcp.2, options,
        };
        check!(segment, 3, TcpSegment, |v| TcpRepr::parse(&v).unwrap());
        let udp = UdpRepr { src_port, dst_port, payload_len };
        check!(udp, payload_len, UdpPacket, |v| UdpRepr::parse(&v).unwrap());
        let sctp = SctpRepr { src_port, dst_port, tag: words.0 };
        check!(sctp, 0, SctpPacket, |v| SctpRepr::parse(&v));
        let [icmp_type, code] = src_port.to_be_bytes();
        check!(IcmpRepr { icmp_type, code, rest }, 0, IcmpMessage, |v| IcmpRepr::parse(&v));
        let icmpv6 = Icmpv6Repr { icmp_type, code, rest };
        check!(icmpv6, 0, Icmpv6Message, |v| Icmpv6Repr::parse(&v).unwrap());
        let igmp = IgmpRepr { igmp_type: icmp_type, max_response: code, group: rest.into() };
        check!(igmp, 0, IgmpMessage, |v| IgmpRepr::parse(&v));
    }

    #[test]
    fn neighbour_discovery(
        solicit in any::<bool>(), flags in any::<u32>(), target in any::<u128>(),
        source in any::<Option<[u8; 6]>>(), answer in any::<Option<[u8; 6]>>(),
    ) {
        let (source_ll, target_ll) = (source.map(EthAddr), answer.map(EthAddr));
        let nd = NdRepr { solicit, flags, target: target.into(), source_ll, target_ll };
        check!(nd, 0, NdMessage, |v| NdRepr::parse(&v).unwrap());
    }

    #[test]
    fn tunnels(
        v in any::<(u8, u8, u32, u16)>(), extension in any::<[u8; 3]>(), gre in any::<(bool, Option<u32>, Option<u32>)>(),
        words in prop::collection::vec(any::<[u8; 4]>(), 0..=61), fixed in any::<bool>(),
    ) {
        let vni = v.2 >> 8;
        let vxlan = VxlanRepr { flags: v.0, extension, vni };
        check!(vxlan, 1, VxlanHeader, |v| VxlanRepr::parse(&v));
        let options = words.as_flattened();
        let geneve = GeneveRepr { flags: v.0, protocol: EtherType(v.3), vni, options };
        check!(geneve, 1, GeneveHeader, |v| GeneveRepr::parse(&v));
        let gre = GreRepr { protocol: EtherType(v.3), has_checksum: gre.0, key: gre.1, sequence: gre.2 };
        check!(gre, 1, GreHeader, |v| GreRepr::parse(&v));
        let nsh = NshRepr {
            oam: gre.has_checksum, ttl: v.0 & 0x3f, md_type: if fixed { 1 } else { 2 }, next_protocol: v.1,
            path_id: vni, service_index: v.0, context: if fixed { &[7; 16] } else { options },
        };
        check!(nsh, 1, NshHeader, |v| NshRepr::parse(&v));
    }
}

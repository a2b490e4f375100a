//! Against an independent parser: what `wire::Compose` builds, etherparse and extraction read alike.

use crate::extract::ingress;
use etherparse::{Ipv6ExtensionSlice, LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use flow::{Depth, FieldId, Key, extract};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::arp::ArpRepr;
use wire::icmp::IcmpRepr;
use wire::icmpv6::Icmpv6Repr;
use wire::igmp::IgmpRepr;
use wire::ipv6_ext::{ExtRepr, FragmentRepr};
use wire::vlan::VlanTag;
use wire::{Compose, EthAddr, EtherType, IpProtocol};

fn vlans() -> impl Strategy<Value = Vec<VlanTag>> {
    let tpid = prop_oneof![Just(EtherType::VLAN), Just(EtherType::QINQ)];
    vec((tpid, any::<u16>()).prop_map(|(tpid, tci)| VlanTag::from_tci(tpid, tci)), 0..3)
}

fn with_transport(compose: Compose, kind: u8, a: u16, b: u16) -> Compose {
    let rest = [1, 2, 3, 4];
    match kind {
        0 => compose.udp(a, b),
        1 => compose.tcp(a, b),
        2 => compose.sctp(a, b),
        // Not timestamps, of which etherparse wants the one length that they shall have.
        3 => compose.icmp(IcmpRepr {
            icmp_type: if matches!(a as u8, 13 | 14) { 8 } else { a as u8 },
            code: b as u8,
            rest,
        }),
        4 => compose.icmpv6(Icmpv6Repr { icmp_type: a as u8, code: b as u8, rest }),
        5 => compose.igmp(IgmpRepr {
            igmp_type: 0x16,
            max_response: 0,
            group: Ipv4Addr::new(224, 1, b as u8, 7),
        }),
        7 => compose.protocol(IpProtocol::NO_NEXT),
        _ => compose.protocol(IpProtocol::GRE),
    }
}

fn ipv4() -> impl Strategy<Value = Compose> {
    let fragment = proptest::option::of((prop_oneof![Just(0), 0..8000u16], any::<bool>()));
    let addresses = (any::<u32>(), any::<u32>());
    (
        any::<[u8; 12]>(),
        vlans(),
        addresses,
        any::<[u8; 2]>(),
        fragment,
        0..11usize,
        transport(&[0, 1, 2, 3, 5, 6]),
    )
        .prop_map(|(macs, vlans, (src, dst), [tos, ttl], fragment, options, (kind, a, b))| {
            let mut compose =
                start(macs, vlans).ipv4(Ipv4Addr::from(src), Ipv4Addr::from(dst)).tos(tos).ttl(ttl);
            if let Some((fragment_offset, more_fragments)) = fragment {
                compose = compose.fragment(FragmentRepr { fragment_offset, more_fragments, ident: 7 });
            }
            compose = compose.ipv4_options(&vec![1; options * 4]).expect("at most 40 bytes");
            with_transport(compose, kind, a, b)
        })
}

fn ipv6() -> impl Strategy<Value = Compose> {
    let fragment = proptest::option::of((prop_oneof![Just(0), 0..8000u16], any::<bool>()));
    let addresses = (any::<u128>(), any::<u128>());
    (
        any::<[u8; 12]>(),
        vlans(),
        addresses,
        any::<[u8; 2]>(),
        fragment,
        extensions(),
        transport(&[0, 1, 2, 4, 6, 7]),
    )
        .prop_map(|(macs, vlans, (src, dst), [tos, ttl], fragment, extensions, (kind, a, b))| {
            let mut compose =
                start(macs, vlans).ipv6(Ipv6Addr::from(src), Ipv6Addr::from(dst)).tos(tos).ttl(ttl);
            for extension in extensions {
                compose = compose.ext_header(extension);
            }
            if let Some((fragment_offset, more_fragments)) = fragment {
                compose = compose.fragment(FragmentRepr { fragment_offset, more_fragments, ident: 7 });
            }
            with_transport(compose, kind, a, b)
        })
}

/// Extension headers in any order, but hop-by-hop options, which etherparse wants first. Destination options
/// come a second time behind a routing header alone: of others the standard does not say in which order they
/// are.
fn extensions() -> impl Strategy<Value = Vec<ExtRepr>> {
    (any::<bool>(), vec(0..3u8, 0..4)).prop_map(|(hop_by_hop, kinds)| {
        let mut all = vec![];
        if hop_by_hop {
            all.push(ExtRepr::HopByHop(vec![0; 14]));
        }
        for kind in kinds {
            let destinations = all.iter().filter(|e| matches!(e, ExtRepr::DestOpts(_))).count();
            let may_come =
                destinations == 0 || destinations == 1 && matches!(all.last(), Some(ExtRepr::Routing(_)));
            all.push(match kind {
                0 if may_come => ExtRepr::DestOpts(vec![0; 6]),
                1 => ExtRepr::Auth(vec![0; 10]),
                _ => ExtRepr::Routing(vec![0; 22]),
            });
        }
        all
    })
}

/// OpenFlow's bits of the headers that etherparse finds, in their order.
fn extension_bits(found: &[Ipv6ExtensionSlice], no_next_header: bool) -> u128 {
    /// RFC 8200 section 4.1.
    const ORDER: [u32; 6] = [HOP, DEST, ROUTER, FRAG, AUTH, DEST];
    const AUTH: u32 = 2;
    const DEST: u32 = 3;
    const FRAG: u32 = 4;
    const ROUTER: u32 = 5;
    const HOP: u32 = 6;
    let mut bits: Vec<u32> = found
        .iter()
        .map(|header| match header {
            Ipv6ExtensionSlice::HopByHop(_) => HOP,
            Ipv6ExtensionSlice::Routing(_) => ROUTER,
            Ipv6ExtensionSlice::Fragment(_) => FRAG,
            Ipv6ExtensionSlice::DestinationOptions(_) => DEST,
            Ipv6ExtensionSlice::Authentication(_) => AUTH,
        })
        .collect();
    let mut all = bits.iter().fold(u128::from(no_next_header), |all, bit| all | 1 << bit);
    let is_repeated = |bit: &u32| *bit != DEST && bits.iter().filter(|other| *other == bit).count() > 1;
    all |= u128::from(bits.iter().any(is_repeated)) << 7;
    // In order is what is left of the order where headers are left out.
    bits.dedup_by(|a, b| a == b && *a != DEST);
    let mut order = ORDER.iter();
    all | u128::from(!bits.iter().all(|bit| order.any(|other| other == bit))) << 8
}

fn arp() -> impl Strategy<Value = Compose> {
    (any::<[u8; 12]>(), vlans(), 0..256u16, any::<[u32; 2]>()).prop_map(
        |(macs, vlans, operation, [spa, tpa])| {
            let (sha, tha) = (EthAddr([1, 2, 3, 4, 5, 6]), EthAddr([7, 8, 9, 10, 11, 12]));
            start(macs, vlans).arp(ArpRepr { operation, sha, spa: spa.into(), tha, tpa: tpa.into() })
        },
    )
}

fn transport(kinds: &'static [u8]) -> impl Strategy<Value = (u8, u16, u16)> {
    (proptest::sample::select(kinds), any::<u16>(), any::<u16>())
}

fn start(macs: [u8; 12], vlans: Vec<VlanTag>) -> Compose {
    let (src, dst) = macs.split_at(6);
    let address = |bytes: &[u8]| EthAddr(bytes.try_into().expect("6 of 12 bytes"));
    vlans.into_iter().fold(Compose::ethernet(address(src), address(dst)), Compose::vlan_tag)
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |acc, &byte| acc << 8 | u128::from(byte))
}

/// The key as far as etherparse can fill it.
fn theirs(frame: &[u8]) -> Key {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a well-formed frame");
    let Some(LinkSlice::Ethernet2(eth)) = sliced.link else { panic!("no Ethernet in {frame:02x?}") };
    let mut key = Key::default();
    let mut eth_type = eth.ether_type().0;
    key.set(FieldId::EthDst, number(&eth.destination()));
    key.set(FieldId::EthSrc, number(&eth.source()));
    let places = [(FieldId::VlanTpid, FieldId::VlanTci), (FieldId::VlanTpid2, FieldId::VlanTci2)];
    for (ext, (tpid, tci)) in sliced.link_exts.iter().zip(places) {
        let LinkExtSlice::Vlan(tag) = ext else { panic!("not a VLAN tag: {ext:?}") };
        key.set(tpid, eth_type.into());
        let pcp = u128::from(tag.priority_code_point().value());
        key.set(tci, pcp << 13 | 0x1000 | u128::from(tag.vlan_identifier().value()));
        eth_type = tag.ether_type().0;
    }
    key.set(FieldId::EthType, eth_type.into());
    match &sliced.net {
        Some(NetSlice::Arp(arp)) => {
            key.set(FieldId::NwProto, arp.operation().0.into());
            key.set(FieldId::ArpSha, number(arp.sender_hw_addr()));
            key.set(FieldId::NwSrc, number(arp.sender_protocol_addr()));
            key.set(FieldId::ArpTha, number(arp.target_hw_addr()));
            key.set(FieldId::NwDst, number(arp.target_protocol_addr()));
        }
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let later = header.fragments_offset().value() != 0;
            key.set(FieldId::NwSrc, number(&header.source()));
            key.set(FieldId::NwDst, number(&header.destination()));
            key.set(FieldId::NwTos, u128::from(header.dcp().value() << 2 | header.ecn().value()));
            key.set(FieldId::NwTtl, header.ttl().into());
            key.set(FieldId::NwProto, header.protocol().0.into());
            key.set(FieldId::NwFrag, u128::from(later) << 1 | u128::from(later || header.more_fragments()));
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            key.set(FieldId::Ipv6Src, number(&header.source()));
            key.set(FieldId::Ipv6Dst, number(&header.destination()));
            key.set(FieldId::Ipv6Label, header.flow_label().value().into());
            key.set(FieldId::NwTos, header.traffic_class().into());
            key.set(FieldId::NwTtl, header.hop_limit().into());
            key.set(FieldId::NwProto, ip.payload().ip_number.0.into());
            let extensions: Vec<_> = ip.extensions().clone().into_iter().collect();
            let mut later = false;
            for extension in &extensions {
                if let Ipv6ExtensionSlice::Fragment(fragment) = extension {
                    later = fragment.fragment_offset().value() != 0;
                    let bits = u128::from(later) << 1 | u128::from(later || fragment.more_fragments());
                    key.set(FieldId::NwFrag, bits);
                }
            }
            let no_next_header = !later && ip.payload().ip_number.0 == 59;
            key.set(FieldId::Ipv6ExtHdr, extension_bits(&extensions, no_next_header));
        }
        None => panic!("no network layer in {frame:02x?}"),
    }
    let (src, dst, flags): (u16, u16, u16) = match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let flags = tcp.slice();
            let flags = u16::from_be_bytes([flags[12] & 0xf, flags[13]]);
            (tcp.source_port(), tcp.destination_port(), flags)
        }
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port(), 0),
        Some(TransportSlice::Icmpv4(icmp)) => (icmp.type_u8().into(), icmp.code_u8().into(), 0),
        Some(TransportSlice::Icmpv6(icmp)) => (icmp.type_u8().into(), icmp.code_u8().into(), 0),
        Some(TransportSlice::Igmp(igmp)) => {
            let bytes = igmp.slice();
            key.set(FieldId::IgmpGroup, number(&bytes[4..8]));
            (bytes[0].into(), bytes[1].into(), 0)
        }
        None => (0, 0, 0),
    };
    key.set(FieldId::TpSrc, src.into());
    key.set(FieldId::TpDst, dst.into());
    key.set(FieldId::TcpFlags, flags.into());
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases("flow::extract_agrees_with_etherparse", 4_000)))]
    #[test]
    fn what_is_composed_is_read_as_etherparse_reads_it(compose in prop_oneof![3 => ipv4(), 3 => ipv6(), 1 => arp()]) {
        let frame = compose.payload(&[0x55; 24]).build().unwrap();
        let expected = theirs(&frame);
        let mut key = Key::default();
        extract(&frame, frame.len(), &ingress(Depth::Everything), &mut key).unwrap();
        // What etherparse does not read: SCTP, neighbour discovery, what is behind the header of a
        // first fragment; and it keeps the protocol of a later fragment of IPv6.
        let first_of_more = key.get(FieldId::NwFrag) == 1;
        let later_v6 = key.get(FieldId::EthType) == 0x86dd && key.get(FieldId::NwFrag) == 3;
        for &f in FieldId::ALL {
            let unread = match f {
                FieldId::InPort | FieldId::DpPort => true,
                FieldId::NwProto => later_v6,
                FieldId::TpSrc | FieldId::TpDst => first_of_more || key.get(FieldId::NwProto) == 132,
                FieldId::TcpFlags | FieldId::IgmpGroup => first_of_more,
                FieldId::NdTarget | FieldId::NdReserved | FieldId::NdOptionsType | FieldId::ArpSha => {
                    key.get(FieldId::NwProto) == 58
                }
                FieldId::ArpTha => key.get(FieldId::NwProto) == 58,
                _ => false,
            };
            prop_assert!(unread || key.get(f) == expected.get(f), "{:?}: {:x}, etherparse {:x} in {:02x?}",
                f, key.get(f), expected.get(f), frame);
        }
    }
}

//! The inverse of [`extract`](crate::extract::extract): builds a frame with the fields of a key.
//!
//! What a key leaves open follows Open vSwitch's choices, because its tools and tests compare frames byte by
//! byte: a payload of the bytes 0 to 63 if a protocol carries one, no options, sequence numbers of 0.
//! Metadata is not part of a frame. Source: `ovs-ofctl compose-packet` and `netdev-dummy/receive`.

use crate::{FieldId, Key};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::arp::ArpRepr;
use wire::icmp::IcmpRepr;
use wire::icmpv6::Icmpv6Repr;
use wire::igmp::IgmpRepr;
use wire::ipv4::Ipv4Repr;
use wire::ipv6::Ipv6Repr;
use wire::ipv6_ext::FragmentRepr;
use wire::nd::NdRepr;
use wire::tcp::{TcpFlags, TcpRepr};
use wire::vlan::VlanTag;
use wire::{Compose, EthAddr, EtherType, IpProtocol, WireError};

/// What follows the headers.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// The bytes 0 to 63, where the protocol carries something.
    Usual,
    /// These bytes, where the protocol carries something.
    Bytes(&'a [u8]),
    /// Zeros up to a frame of this length, whatever the protocol; none if it is longer anyway.
    FrameLen(usize),
}

/// The bytes of [`Payload::Usual`].
const USUAL_BYTES: u8 = 64;
/// The fragments that the bits of `nw_frag` stand for.
const FIRST_FRAGMENT: FragmentRepr = FragmentRepr { fragment_offset: 0, more_fragments: true, ident: 0 };
const LATER_FRAGMENT: FragmentRepr = FragmentRepr { fragment_offset: 100, more_fragments: true, ident: 0 };
/// In a VLAN field: the tag is present.
const TAG_PRESENT: u64 = 0x1000;
/// Ethernet type of a frame that has a length instead.
const NO_ETH_TYPE: u64 = 0x5ff;
/// Bottom of the stack, in a label stack entry.
const BOTTOM: u64 = 0x100;

const IPV4: u64 = 0x0800;
const ARP: u64 = 0x0806;
const RARP: u64 = 0x8035;
const IPV6: u64 = 0x86dd;
const MPLS: u64 = 0x8847;
const MPLS_MULTICAST: u64 = 0x8848;

/// Composes an Ethernet frame.
///
/// # Errors
/// A length that its headers cannot say.
pub fn compose(key: &Key, payload: Payload<'_>) -> Result<Vec<u8>, WireError> {
    let mut frame = Compose::ethernet(eth(key, FieldId::EthSrc), eth(key, FieldId::EthDst));
    let eth_type = key.get64(FieldId::EthType);
    if eth_type == NO_ETH_TYPE {
        return frame.ethertype(EtherType(wire::ethernet::HEADER_LEN as u16)).build();
    }
    frame = frame.ethertype(EtherType(eth_type as u16));
    for (tci, tpid) in [(FieldId::VlanTci, FieldId::VlanTpid), (FieldId::VlanTci2, FieldId::VlanTpid2)] {
        let (tci, tpid) = (key.get64(tci), key.get64(tpid));
        if tci & TAG_PRESENT != 0 {
            let tpid = if tpid == 0 { EtherType::VLAN } else { EtherType(tpid as u16) };
            frame = frame.vlan_tag(VlanTag::from_tci(tpid, (tci & !TAG_PRESENT) as u16));
        }
    }
    let mut carries = false;
    match eth_type {
        IPV4 | IPV6 => (frame, carries) = with_ip(frame, key, eth_type == IPV6),
        ARP => frame = frame.arp(arp(key)),
        RARP => frame = frame.rarp(arp(key)),
        MPLS | MPLS_MULTICAST => frame = frame.payload(&labels(key)),
        _ => {}
    }
    let usual: Vec<u8> = (0..USUAL_BYTES).collect();
    match payload {
        Payload::Usual if carries => frame.payload(&usual),
        Payload::Bytes(bytes) if carries => frame.payload(bytes),
        Payload::FrameLen(len) if len > frame.total_len() => frame.frame_len(len),
        _ => frame,
    }
    .build()
}

fn eth(key: &Key, field: FieldId) -> EthAddr {
    let [_, _, address @ ..] = key.get64(field).to_be_bytes();
    EthAddr(address)
}

fn ipv4(key: &Key, field: FieldId) -> Ipv4Addr {
    Ipv4Addr::from_bits(key.get(field) as u32)
}

fn ipv6(key: &Key, field: FieldId) -> Ipv6Addr {
    Ipv6Addr::from_bits(key.get(field))
}

fn arp(key: &Key) -> ArpRepr {
    ArpRepr {
        operation: key.get(FieldId::NwProto) as u16,
        sha: eth(key, FieldId::ArpSha),
        spa: ipv4(key, FieldId::NwSrc),
        tha: eth(key, FieldId::ArpTha),
        tpa: ipv4(key, FieldId::NwDst),
    }
}

/// The label stack, to its bottom or as far as the key contains it.
fn labels(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2] {
        let entry = key.get64(field);
        bytes.extend((entry as u32).to_be_bytes());
        if entry & BOTTOM != 0 {
            break;
        }
    }
    bytes
}

/// Adds the network layer and what is above it; returns whether a payload may follow.
fn with_ip(frame: Compose, key: &Key, is_ipv6: bool) -> (Compose, bool) {
    let proto = IpProtocol(key.get(FieldId::NwProto) as u8);
    let mut frame = if is_ipv6 {
        let mut repr = Ipv6Repr::new(ipv6(key, FieldId::Ipv6Src), ipv6(key, FieldId::Ipv6Dst), proto);
        repr.flow_label = key.get(FieldId::Ipv6Label) as u32 & 0xf_ffff;
        frame.ipv6_repr(repr)
    } else {
        let repr = Ipv4Repr::new(ipv4(key, FieldId::NwSrc), ipv4(key, FieldId::NwDst), proto);
        frame.ipv4_repr(Ipv4Repr { dont_fragment: false, ..repr })
    };
    let (tos, ttl) = (key.get(FieldId::NwTos) as u8, key.get(FieldId::NwTtl) as u8);
    frame = frame.protocol(proto).tos(tos).ttl(ttl);
    match key.get(FieldId::NwFrag) {
        0 => {}
        1 => frame = frame.fragment(FIRST_FRAGMENT),
        // It starts after the transport header.
        _ => return (frame.fragment(LATER_FRAGMENT), false),
    }
    let (frame, carries) = with_transport(frame, key, is_ipv6);
    // Some of the above say a limit of their own.
    (frame.ttl(ttl), carries)
}

fn with_transport(frame: Compose, key: &Key, is_ipv6: bool) -> (Compose, bool) {
    let (src, dst) = (key.get(FieldId::TpSrc) as u16, key.get(FieldId::TpDst) as u16);
    let (icmp_type, code) = (src as u8, dst as u8);
    match (key.get(FieldId::NwProto), is_ipv6) {
        (6, _) => {
            let flags = TcpFlags::from_bits(key.get(FieldId::TcpFlags) as u16);
            let repr = TcpRepr { seq: 0, ack: 0, window: 0, flags, ..TcpRepr::new(src, dst) };
            // A segment that opens or ends a connection has no payload.
            let opens_or_ends =
                [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST].iter().any(|&f| flags.contains(f));
            (frame.tcp_repr(repr), !opens_or_ends)
        }
        (17, _) => (frame.udp(src, dst), true),
        (132, _) => (frame.sctp(src, dst), false),
        (1, false) => {
            let is_echo = code == 0 && matches!(icmp_type, 0 | 8);
            (frame.icmp(IcmpRepr { icmp_type, code, rest: [0; 4] }), is_echo)
        }
        (2, false) => {
            let group = ipv4(key, FieldId::IgmpGroup);
            (frame.igmp(IgmpRepr { igmp_type: icmp_type, max_response: code, group }), false)
        }
        (58, true) if code == 0 && matches!(icmp_type, 135 | 136) => {
            let link = |field| Some(eth(key, field)).filter(|address| address.0 != [0; 6]);
            let nd = NdRepr {
                solicit: icmp_type == 135,
                flags: key.get(FieldId::NdReserved) as u32,
                target: ipv6(key, FieldId::NdTarget),
                source_ll: link(FieldId::ArpSha),
                target_ll: link(FieldId::ArpTha),
            };
            (frame.nd(nd), false)
        }
        (58, true) => {
            let is_echo = code == 0 && matches!(icmp_type, 128 | 129);
            (frame.icmpv6(Icmpv6Repr { icmp_type, code, rest: [0; 4] }), is_echo)
        }
        _ => (frame, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Depth, Ingress, extract};
    use base::{OfPort, PortNo};

    fn key(fields: &[(FieldId, u128)]) -> Key {
        let mut key = Key::default();
        fields.iter().for_each(|&(field, value)| key.set(field, value));
        key
    }

    fn extracted(frame: &[u8]) -> Key {
        let mut key = Key::default();
        let ingress = Ingress::new(OfPort(0), PortNo(0), Depth::Everything);
        extract(frame, frame.len(), &ingress, &mut key).unwrap();
        key
    }

    #[test]
    fn a_composed_frame_has_the_fields_of_its_key() {
        use FieldId::*;
        let eth = [(EthSrc, 0x5054_0000_0005), (EthDst, 0x0123_4567_89ab)];
        let v4 = [(EthType, 0x800), (NwSrc, 0x0a00_0001), (NwDst, 0x0a00_0002), (NwTos, 0x2d), (NwTtl, 9)];
        let v6 = [
            (EthType, 0x86dd),
            (Ipv6Src, 0xfe80 << 112 | 1),
            (Ipv6Dst, 2),
            (Ipv6Label, 0xabcde),
            (NwTtl, 255),
        ];
        let ports = [(TpSrc, 1), (TpDst, 0xffff)];
        let tag = [(VlanTci, 0xb009), (VlanTpid, 0x88a8), (VlanTci2, 0x1003), (VlanTpid2, 0x8100)];
        let nd = [(NwProto, 58), (TpSrc, 135), (NdTarget, 7), (ArpSha, 0x0200_0000_0001), (NdOptionsType, 1)];
        let cases: [&[&[(FieldId, u128)]]; 15] = [
            &[&[(EthType, 0x1234)]],
            &[&[(EthType, 0x5ff)]],
            &[&tag, &[(EthType, 0x1234)]],
            &[&v4, &[(NwProto, 17)], &ports],
            &[&tag, &v4, &[(NwProto, 6), (TcpFlags, 0xfff)], &ports],
            &[&v4, &[(NwProto, 132)], &ports],
            &[&v4, &[(NwProto, 1), (TpSrc, 8)]],
            &[&v4, &[(NwProto, 2), (TpSrc, 0x16), (IgmpGroup, 0xe000_0001)]],
            &[&v4, &[(NwProto, 99)]],
            &[&v4, &[(NwProto, 17), (NwFrag, 1)], &ports],
            &[&v4, &[(NwProto, 17), (NwFrag, 3)]],
            &[&v6, &[(NwProto, 6), (TcpFlags, 0x10)], &ports],
            &[&v6, &nd],
            &[&[(EthType, 0x806), (NwProto, 1), (NwSrc, 5), (NwDst, 6), (ArpSha, 7), (ArpTha, 8)]],
            &[&[(EthType, 0x8847), (Mpls0, 0x5040), (Mpls1, 0x6140)]],
        ];
        for case in cases {
            let key = key(&[&eth, &*case.concat()].concat());
            for payload in [Payload::Usual, Payload::Bytes(&[1, 2]), Payload::FrameLen(0)] {
                let frame = compose(&key, payload).unwrap();
                let found = extracted(&frame);
                for field in case.concat().into_iter().chain(eth).map(|(field, _)| field) {
                    assert_eq!(found.get(field), key.get(field), "{field:?} of {case:?}: {frame:02x?}");
                }
            }
        }
    }

    #[test]
    fn payloads_follow_where_the_protocol_carries_one() {
        use FieldId::*;
        let lens = |fields: &[(FieldId, u128)]| {
            let key = key(&[&[(EthType, 0x800)], fields].concat());
            [Payload::Usual, Payload::Bytes(&[1]), Payload::FrameLen(50)]
                .map(|p| compose(&key, p).unwrap().len())
        };
        assert_eq!(lens(&[(NwProto, 17)]), [106, 43, 50]);
        assert_eq!(lens(&[(NwProto, 6)]), [118, 55, 54]);
        assert_eq!(lens(&[(NwProto, 6), (TcpFlags, 2)]), [54, 54, 54]);
        assert_eq!(lens(&[(NwProto, 17), (NwFrag, 3)]), [34, 34, 50]);
        assert_eq!(lens(&[(NwProto, 99)]), [34, 34, 50]);
        assert!(compose(&key(&[(EthType, 0x800), (NwProto, 17)]), Payload::FrameLen(70_000)).is_err());
    }
}

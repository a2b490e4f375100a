//! Every change, on every kind of packet: the field that was set has its new value, no other field has
//! another, the checksums verify. Extraction and the header views of `wire` are the judges.

mod encap;

use super::*;
use flow::extract::{Ingress, extract};
use flow::{Depth, Key};
use packet::{Pool, PoolConfig};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::compose::Compose;
use wire::ethernet::EthAddr;
use wire::vlan::VlanId;

const SRC: EthAddr = EthAddr([2, 0, 0, 0, 0, 1]);
const DST: EthAddr = EthAddr([2, 0, 0, 0, 0, 2]);

fn cache() -> PoolCache {
    Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap().cache()
}

/// A packet on its way, with its layers.
struct Edited {
    packet: Packet,
    layers: Layers,
}

impl std::ops::Deref for Edited {
    type Target = Packet;
    fn deref(&self) -> &Packet {
        &self.packet
    }
}

impl std::ops::DerefMut for Edited {
    fn deref_mut(&mut self) -> &mut Packet {
        &mut self.packet
    }
}

fn packet(cache: &mut PoolCache, frame: &[u8]) -> Edited {
    let mut packet = cache.alloc().unwrap();
    packet.fill(frame).unwrap();
    Edited { packet, layers: Layers::UNKNOWN }
}

/// Applies a change, after which the layers are what a walk over the changed packet finds.
fn apply(p: &mut Edited, action: &DpAction) -> Edit {
    let done = super::apply(&mut p.packet, &mut p.layers, action);
    p.layers.know(p.packet.data(), p.packet.len(), TAGS_MAX);
    if p.layers.are_known() && p.layers.tags <= TAGS_MAX {
        assert_eq!(Some(p.layers), Layers::of(p.data(), p.len(), TAGS_MAX), "{action:?}");
    }
    done
}

fn key_of(frame: &[u8]) -> Key {
    let ingress = Ingress::new(base::OfPort(1), base::PortNo(1), Depth::Everything);
    let mut key = Key::default();
    let _ = extract(frame, frame.len(), &ingress, &mut key).expect("a whole frame");
    key
}

fn eth() -> Compose {
    Compose::ethernet(SRC, DST)
}

fn v4() -> Compose {
    eth().ipv4(Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(192, 168, 7, 9))
}

fn v6() -> Compose {
    eth().ipv6("2001:db8::1".parse().unwrap(), "fe80::77:1".parse().unwrap())
}

/// Frames of all kinds, with the fields that can be set in each.
fn kinds() -> Vec<(&'static str, Vec<u8>, Vec<FieldId>)> {
    use FieldId::*;
    let build = |c: Compose| c.payload(b"some payload").build().unwrap();
    let addresses4 = [EthSrc, EthDst, NwSrc, NwDst, NwTos, NwTtl];
    let addresses6 = [EthSrc, EthDst, Ipv6Src, Ipv6Dst, NwTos, NwTtl, Ipv6Label];
    let with = |base: &[FieldId], more: &[FieldId]| [base, more].concat();
    let solicit = wire::nd::NdRepr::solicit("fe80::5".parse().unwrap(), SRC);
    let tag = wire::vlan::VlanId::new(5).unwrap();
    vec![
        ("tcp4", build(v4().tcp(1000, 80)), with(&addresses4, &[TpSrc, TpDst])),
        ("udp4", build(v4().udp(1000, 53)), with(&addresses4, &[TpSrc, TpDst])),
        ("udp4 without checksum", build(v4().udp(9, 9).udp_checksum_zero()), with(&addresses4, &[TpSrc])),
        ("sctp4", build(v4().sctp(1000, 53)), with(&addresses4, &[TpSrc, TpDst])),
        ("tcp6", build(v6().tcp(1000, 80)), with(&addresses6, &[TpSrc, TpDst])),
        ("udp6", build(v6().udp(1000, 53)), with(&addresses6, &[TpSrc, TpDst])),
        (
            "tagged tcp4",
            build(eth().vlan(tag).ipv4([1, 2, 3, 4].into(), [5, 6, 7, 8].into()).tcp(1, 2)),
            with(&addresses4, &[VlanTci, TpSrc]),
        ),
        (
            "arp",
            eth()
                .arp(wire::arp::ArpRepr::request(SRC, Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::new(5, 6, 7, 8)))
                .build()
                .unwrap(),
            vec![EthSrc, NwSrc, NwDst, ArpSha, ArpTha],
        ),
        (
            "nd",
            eth().ipv6("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap()).nd(solicit).build().unwrap(),
            with(&addresses6, &[NdTarget, ArpSha, NdReserved]),
        ),
        (
            "mpls",
            build(eth().mpls(100).mpls(200).ipv4([1, 2, 3, 4].into(), [5, 6, 7, 8].into()).udp(1, 2)),
            vec![EthDst, Mpls0, Mpls1],
        ),
    ]
}

/// Bits of a field that a test may change without making the frame another kind of frame.
fn free_bits(field: FieldId) -> u128 {
    match field {
        FieldId::VlanTci => 0xefff,
        FieldId::Ipv6Label => 0xf_ffff,
        // The bottom-of-stack bit says how many entries there are.
        FieldId::Mpls0 | FieldId::Mpls1 => 0xffff_feff,
        f => f.ones(),
    }
}

fn checksums_hold(frame: &[u8]) {
    let parsed = etherparse::SlicedPacket::from_ethernet(frame).expect("still well-formed");
    use etherparse::{NetSlice, TransportSlice};
    let (v4, v6) = match &parsed.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum, "IPv4 header");
            (Some(header), None)
        }
        Some(NetSlice::Ipv6(ip)) => (None, Some(ip.header().to_header())),
        _ => (None, None),
    };
    match (&parsed.transport, v4, v6) {
        (Some(TransportSlice::Tcp(t)), Some(ip), _) => {
            assert_eq!(t.to_header().calc_checksum_ipv4(&ip, t.payload()).unwrap(), t.checksum());
        }
        (Some(TransportSlice::Tcp(t)), _, Some(ip)) => {
            assert_eq!(t.to_header().calc_checksum_ipv6(&ip, t.payload()).unwrap(), t.checksum());
        }
        (Some(TransportSlice::Udp(u)), Some(ip), _) if u.checksum() != 0 => {
            assert_eq!(u.to_header().calc_checksum_ipv4(&ip, u.payload()).unwrap(), u.checksum());
        }
        (Some(TransportSlice::Udp(u)), _, Some(ip)) => {
            assert_eq!(u.to_header().calc_checksum_ipv6(&ip, u.payload()).unwrap(), u.checksum());
        }
        (Some(TransportSlice::Icmpv6(i)), _, Some(ip)) => {
            assert!(i.is_checksum_valid(ip.source, ip.destination));
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases("datapath::edit", 500)))]

    #[test]
    fn a_set_field_changes_itself_alone_and_the_checksums_follow(value: u128, bits: u128) {
        let mut cache = cache();
        for (kind, frame, fields) in kinds() {
            for field in fields {
                let mask = bits & free_bits(field);
                let mut p = packet(&mut cache, &frame);
                apply(&mut p, &DpAction::Set { field, value, mask }).unwrap_or_else(|e| panic!("{kind} {field:?}: {e:?}"));
                let mut expected = key_of(&frame);
                expected.set_masked(field, value, mask);
                let got = key_of(p.data());
                for &other in FieldId::ALL {
                    prop_assert_eq!(got.get(other), expected.get(other), "{} {:?}: {:?}", kind, field, other);
                }
                if kind != "mpls" {
                    checksums_hold(p.data());
                }
                if kind == "sctp4" {
                    let crc = wire::crc32c::crc32c;
                    let mut sctp = p.data()[34..].to_vec();
                    let stored = u32::from_le_bytes(sctp[8..12].try_into().unwrap());
                    sctp[8..12].fill(0);
                    prop_assert_eq!(crc(&sctp), stored);
                }
                cache.free(p.packet);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_change_panic(frame in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..120, n in 0usize..FieldId::ALL.len(), value: u128) {
        let mut cache = cache();
        let mut samples: Vec<Vec<u8>> = kinds().into_iter().map(|k| k.1).collect();
        samples.push(frame);
        for mut sample in samples {
            sample.truncate(cut.max(1));
            let mut p = packet(&mut cache, &sample);
            let field = FieldId::ALL[n];
            let before = p.data().to_vec();
            if apply(&mut p, &DpAction::Set { field, value, mask: field.ones() }).is_err() {
                prop_assert_eq!(p.data(), &before[..], "a refused change leaves the packet as it was: {:?}", field);
            }
            for action in [DpAction::PopVlan, DpAction::PushVlan { tpid: 0x8100, tci: 0x1005 }, DpAction::PopMpls { eth_type: 0x800 }, DpAction::PushMpls { eth_type: 0x8847, lse: 0x100 }] {
                let _ = apply(&mut p, &action);
            }
            cache.free(p.packet);
        }
    }
}

#[test]
fn tags_and_labels_are_pushed_in_front_and_popped_again() {
    let mut cache = cache();
    let frame = v4().udp(1, 2).payload(b"x").build().unwrap();
    let mut p = packet(&mut cache, &frame);
    p.flags.set(PacketFlags::CSUM_PARTIAL);
    p.csum_start = 34;
    apply(&mut p, &DpAction::PushVlan { tpid: 0x8100, tci: 0x1000 | 7 }).unwrap();
    apply(&mut p, &DpAction::PushVlan { tpid: 0x88a8, tci: 0x1000 | 9 }).unwrap();
    assert_eq!(p.csum_start, 42);
    let key = key_of(p.data());
    assert_eq!((key.get(FieldId::VlanTci), key.get(FieldId::VlanTci2)), (0x1009, 0x1007));
    assert_eq!(key.get(FieldId::TpDst), 2);
    apply(&mut p, &DpAction::PopVlan).unwrap();
    apply(&mut p, &DpAction::PopVlan).unwrap();
    apply(&mut p, &DpAction::PopVlan).unwrap();
    assert_eq!((p.data(), p.csum_start), (&frame[..], 34));
    apply(&mut p, &DpAction::PushMpls { eth_type: 0x8847, lse: 100 << 12 | 0x100 | 64 }).unwrap();
    assert_eq!(key_of(p.data()).get(FieldId::Mpls0), 100 << 12 | 0x100 | 64);
    apply(&mut p, &DpAction::PopMpls { eth_type: 0x0800 }).unwrap();
    assert_eq!(p.data(), &frame[..]);
    assert_eq!(apply(&mut p, &DpAction::PopMpls { eth_type: 0x0800 }), Err(DOES_NOT_FIT));
    cache.free(p.packet);
}

#[test]
fn what_lies_behind_pushed_tags_can_still_be_changed() {
    let mut cache = cache();
    let tag = wire::vlan::VlanId::new(5).unwrap();
    let frame =
        eth().vlan(tag).vlan(tag).ipv4([1, 2, 3, 4].into(), [5, 6, 7, 8].into()).udp(1, 2).build().unwrap();
    let mut packet = packet(&mut cache, &frame);
    apply(&mut packet, &DpAction::PushVlan { tpid: 0x88a8, tci: 0x1007 }).unwrap();
    for (field, value) in [(FieldId::NwTtl, 9), (FieldId::TpDst, 77)] {
        apply(&mut packet, &DpAction::Set { field, value, mask: field.ones() }).unwrap();
    }
    apply(&mut packet, &DpAction::PopVlan).unwrap();
    let key = key_of(packet.data());
    assert_eq!((key.get64(FieldId::NwTtl), key.get64(FieldId::TpDst)), (9, 77));
    assert_eq!(key.get64(FieldId::EthDst), key_of(&frame).get64(FieldId::EthDst));
    checksums_hold(packet.data());
    cache.free(packet.packet);
}

#[test]
fn an_unfinished_checksum_stays_the_sum_of_the_pseudo_header() {
    let mut cache = cache();
    let frame = v4().tcp(1, 2).payload(b"abc").build().unwrap();
    let mut p = packet(&mut cache, &frame);
    let (src, dst) = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(192, 168, 7, 9));
    let sum = |src, dst| wire::checksum::pseudo_v4(src, dst, wire::ip::IpProtocol::TCP, 23).fold();
    p.data_mut()[50..52].copy_from_slice(&sum(src, dst).to_be_bytes());
    p.flags.set(PacketFlags::CSUM_PARTIAL);
    (p.csum_start, p.csum_offset) = (34, 16);
    let new = Ipv4Addr::new(172, 16, 200, 1);
    let set = |field, value: u32| DpAction::Set { field, value: value.into(), mask: u32::MAX.into() };
    apply(&mut p, &set(FieldId::NwSrc, new.to_bits())).unwrap();
    apply(&mut p, &DpAction::Set { field: FieldId::TpSrc, value: 99, mask: 0xffff }).unwrap();
    assert_eq!(p.data()[50..52], sum(new, dst).to_be_bytes());
    cache.free(p.packet);
}

#[test]
fn the_outer_checksum_of_a_tunnel_is_finished_where_the_inner_one_is_not() {
    let mut cache = cache();
    let inner = v4().tcp(1, 2).payload(b"abc").build().unwrap();
    let inner_sum = 14 + 20 + 8 + 8 + 50;
    let whole = |src: Ipv4Addr, port: u16| {
        let payload: Vec<u8> = [8, 0, 0, 0, 0, 0, 5, 0].into_iter().chain(inner.iter().copied()).collect();
        let eth = Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
        eth.ipv4(src, [10, 9, 8, 7].into()).udp(port, 4789).payload(&payload).build().unwrap()
    };
    let (src, new) = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(172, 16, 200, 1));
    let mut p = packet(&mut cache, &whole(src, 5000));
    let finished: [u8; 2] = p.data()[inner_sum..inner_sum + 2].try_into().unwrap();
    // Its sender has left it to the device, and computed the outer one so that it will fit.
    p.data_mut()[inner_sum..inner_sum + 2].copy_from_slice(&[0x12, 0x34]);
    p.flags.set(PacketFlags::CSUM_PARTIAL);
    (p.csum_start, p.csum_offset) = (inner_sum as u16 - 16, 16);
    apply(
        &mut p,
        &DpAction::Set { field: FieldId::NwSrc, value: new.to_bits().into(), mask: u32::MAX.into() },
    )
    .unwrap();
    apply(&mut p, &DpAction::Set { field: FieldId::TpSrc, value: 99, mask: 0xffff }).unwrap();
    p.data_mut()[inner_sum..inner_sum + 2].copy_from_slice(&finished);
    assert_eq!(p.data(), whole(new, 99));
    cache.free(p.packet);
}

#[test]
fn a_later_fragment_keeps_its_payload_when_its_address_changes() {
    let mut cache = cache();
    let mut frame = v4().udp(1, 2).payload(&[7; 64]).build().unwrap();
    frame[20..22].copy_from_slice(&0x0010u16.to_be_bytes());
    let mut p = packet(&mut cache, &frame);
    apply(&mut p, &DpAction::Set { field: FieldId::NwDst, value: 1, mask: u32::MAX.into() }).unwrap();
    assert_eq!(p.data()[34..], frame[34..]);
    let before = p.data().to_vec();
    apply(&mut p, &DpAction::Set { field: FieldId::TpDst, value: 1, mask: 0xffff }).unwrap();
    assert_eq!(p.data(), before);
    cache.free(p.packet);
}

#[test]
fn ipv6_addresses_behind_extension_headers_are_changed_with_the_checksum() {
    let mut cache = cache();
    let mut frame = v6().udp(5, 6).payload(b"0123456789").build().unwrap();
    // A hop-by-hop header of eight bytes (PadN) between the two.
    let hop = [17, 0, 1, 4, 0, 0, 0, 0];
    frame.splice(54..54, hop);
    frame[20] = 0;
    let len = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&len.to_be_bytes());
    let mut p = packet(&mut cache, &frame);
    let new: Ipv6Addr = "2001:db8:ffff::5".parse().unwrap();
    apply(&mut p, &DpAction::Set { field: FieldId::Ipv6Dst, value: new.to_bits(), mask: u128::MAX }).unwrap();
    assert_eq!(key_of(p.data()).get(FieldId::Ipv6Dst), new.to_bits());
    let udp = &p.data()[62..];
    let src: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let pseudo = wire::checksum::pseudo_v6(src, new, wire::ip::IpProtocol::UDP, udp.len() as u32);
    assert!(pseudo.bytes(udp).is_valid());
    cache.free(p.packet);
}

/// What extraction walks over, changes walk over too: else a flow's packets would leave without them.
#[test]
fn a_header_behind_many_extension_headers_or_tags_is_changed_as_it_is_read() {
    let mut cache = cache();
    for count in [31usize, 32, 33, 150] {
        let mut frame = v6().udp(5, 6).payload(b"0123456789").build().unwrap();
        let options: Vec<u8> =
            (1..=count).flat_map(|n| [if n == count { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]).collect();
        frame.splice(54..54, options);
        frame[20] = 60;
        let len = (frame.len() - 54) as u16;
        frame[18..20].copy_from_slice(&len.to_be_bytes());
        let changes =
            [(FieldId::NwTtl, 7), (FieldId::Ipv6Src, 5), (FieldId::Ipv6Dst, 9), (FieldId::TpDst, 77)];
        let mut p = packet(&mut cache, &frame);
        for (field, value) in changes {
            apply(&mut p, &DpAction::Set { field, value, mask: field.ones() }).unwrap();
            assert_eq!(key_of(p.data()).get(field), value, "{field:?} behind {count}");
        }
        let udp = &p.data()[54 + 8 * count..];
        let pseudo = wire::checksum::pseudo_v6(
            Ipv6Addr::from(5),
            Ipv6Addr::from(9),
            wire::ip::IpProtocol::UDP,
            udp.len() as u32,
        );
        assert!(pseudo.bytes(udp).is_valid(), "behind {count}");
        cache.free(p.packet);
    }
    // More tags than any key knows, pushed by the same list.
    let mut p = packet(&mut cache, &v4().udp(5, 6).payload(b"0123456789").build().unwrap());
    for _ in 0..12 {
        apply(&mut p, &DpAction::PushVlan { tpid: 0x8100, tci: 5 }).unwrap();
    }
    apply(&mut p, &DpAction::Set { field: FieldId::NwTtl, value: 7, mask: 0xff }).unwrap();
    for _ in 0..12 {
        apply(&mut p, &DpAction::PopVlan).unwrap();
    }
    assert_eq!(key_of(p.data()).get(FieldId::NwTtl), 7);
    cache.free(p.packet);
}

#[test]
fn the_type_of_a_neighbours_option_is_set_with_the_checksum() {
    let mut cache = cache();
    let solicit = wire::nd::NdRepr::solicit("fe80::5".parse().unwrap(), SRC);
    let frame =
        eth().ipv6("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap()).nd(solicit).build().unwrap();
    assert_eq!(key_of(&frame).get(FieldId::NdOptionsType), 1);
    let mut p = packet(&mut cache, &frame);
    let set = DpAction::Set { field: FieldId::NdOptionsType, value: 2, mask: 0xff };
    apply(&mut p, &set).unwrap();
    let key = key_of(p.data());
    assert_eq!((key.get(FieldId::NdOptionsType), key.get(FieldId::ArpSha)), (2, 0));
    assert_ne!(key.get(FieldId::ArpTha), 0);
    let (src, dst) = ("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap());
    let message = &p.data()[54..];
    let pseudo = wire::checksum::pseudo_v6(src, dst, wire::ip::IpProtocol::ICMPV6, message.len() as u32);
    assert!(pseudo.bytes(message).is_valid());
    cache.free(p.packet);
}

#[test]
fn what_pads_a_frame_is_no_option_of_a_neighbours_message() {
    let mut cache = cache();
    let solicit =
        wire::nd::NdRepr { source_ll: None, ..wire::nd::NdRepr::solicit("fe80::5".parse().unwrap(), SRC) };
    let mut frame =
        eth().ipv6("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap()).nd(solicit).build().unwrap();
    frame.extend([1, 1, 0, 0, 0, 0, 0, 0]);
    let mut p = packet(&mut cache, &frame);
    for (field, value) in [(FieldId::ArpSha, 5), (FieldId::NdOptionsType, 2)] {
        apply(&mut p, &DpAction::Set { field, value, mask: field.ones() }).unwrap();
        assert_eq!(p.data(), frame, "{field:?}");
    }
    cache.free(p.packet);
}

#[test]
fn what_no_packet_has_cannot_be_set() {
    let mut cache = cache();
    let mut p = packet(&mut cache, &v4().udp(5, 6).payload(b"0123456789").build().unwrap());
    for field in [FieldId::Reg0, FieldId::Metadata, FieldId::CtMark, FieldId::TunId, FieldId::EthType] {
        let set = DpAction::Set { field, value: 1, mask: field.ones() };
        assert_eq!(apply(&mut p, &set), Err(DropReason::ActionNotApplicable), "{field:?}");
    }
    cache.free(p.packet);
}

#[test]
fn a_frame_that_is_cut_is_no_segment_any_more() {
    let mut cache = cache();
    let mut p = packet(&mut cache, &[1; 1500]);
    p.flags = PacketFlags::GSO_TCP;
    p.gso_size = 1448;
    let cut = truncate(p.packet, &mut p.layers, 1400, &mut cache);
    assert_eq!((cut.len(), cut.gso_size, cut.flags == PacketFlags::default()), (1400, 0, true));
    cache.free(cut);
}

#[test]
fn what_will_be_segmented_is_cut_only_below_the_length_of_a_segment() {
    let mut cache = cache();
    for (frame, flag, headers) in
        [(v4().tcp(1, 2), PacketFlags::GSO_TCP, 54), (v6().udp(1, 2), PacketFlags::GSO_UDP, 62)]
    {
        let frame = frame.payload(&[7; 1300]).build().unwrap();
        for max in [headers + 499, headers + 500, 1200] {
            let mut p = packet(&mut cache, &frame);
            p.gso_size = 500;
            p.flags.set(flag);
            p.flags.set(PacketFlags::CSUM_PARTIAL);
            let cut = truncate(p.packet, &mut p.layers, max, &mut cache);
            let is_whole = max >= headers + 500;
            let (len, gso_size) = if is_whole { (frame.len(), 500) } else { (max, 0) };
            assert_eq!((cut.len(), cut.gso_size, cut.flags.has(flag)), (len, gso_size, is_whole), "{max}");
            cache.free(cut);
        }
    }
}

#[test]
fn an_unfinished_checksum_that_begins_in_front_of_what_is_removed_is_forgotten() {
    let mut cache = cache();
    let frame = eth().vlan(VlanId::new(7).unwrap()).payload(&[7; 100]).build().unwrap();
    for (start, kept) in [(0, None), (12, None), (15, None), (16, Some(12)), (38, Some(34))] {
        let mut p = packet(&mut cache, &frame);
        p.flags = PacketFlags::GSO_TCP;
        p.flags.set(PacketFlags::CSUM_PARTIAL);
        (p.csum_start, p.gso_size) = (start, 50);
        apply(&mut p, &DpAction::PopVlan).unwrap();
        let left = p.flags.has(PacketFlags::CSUM_PARTIAL).then_some(p.csum_start);
        assert_eq!((left, p.gso_size), (kept, if kept.is_some() { 50 } else { 0 }), "{start}");
        assert_eq!(p.flags.is_empty(), kept.is_none());
        cache.free(p.packet);
    }
}

#[test]
fn a_frame_is_cut_across_its_segments_and_nothing_leaks() {
    let mut cache = cache();
    for max in [1, 14, 60, 1000, 1001, 1500, 2499, 2500, 9000] {
        let mut p = packet(&mut cache, &[1; 1000]);
        for byte in [2u8, 3, 4] {
            let tail = packet(&mut cache, &[byte; 500]);
            p.append(tail.packet);
        }
        let cut = truncate(p.packet, &mut p.layers, max, &mut cache);
        assert_eq!(cut.len(), max.clamp(14, 2500));
        assert_eq!(cut.segments().map(<[u8]>::len).sum::<usize>(), cut.len());
        cache.free(cut);
        assert_eq!(cache.pool().stats().free, 64, "cut to {max}");
    }
}

#[test]
fn headers_that_are_not_read_are_not_set() {
    let mut cache = cache();
    let frame = v4().udp(1, 2).payload(&[7; 64]).build().unwrap();
    let broken = |at: usize, bytes: &[u8]| {
        let mut frame = frame.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut arp = frame[..42].to_vec();
    arp[12..22].copy_from_slice(&[8, 6, 0, 6, 8, 0, 6, 4, 0, 1]);
    let mut op_300 = arp.clone();
    op_300[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 1, 44]);
    let cases = [
        ("header of 16 bytes", broken(14, &[0x44])),
        ("header of 60 bytes in 40", broken(14, &[0x4f, 0, 0, 40])),
        ("longer than the frame", broken(16, &[1, 0])),
        ("shorter than its header", broken(16, &[0, 19])),
        ("protocol 0", broken(23, &[0])),
        ("cut off", frame[..32].to_vec()),
        ("ARP of another hardware", arp),
        ("ARP with opcode 300", op_300),
    ];
    for (what, frame) in cases {
        let mut p = packet(&mut cache, &frame);
        for field in
            [FieldId::NwSrc, FieldId::NwDst, FieldId::NwTos, FieldId::NwTtl, FieldId::TpDst, FieldId::ArpSha]
        {
            if (what, field) == ("protocol 0", FieldId::NwTtl) {
                continue;
            }
            apply(&mut p, &DpAction::Set { field, value: 1, mask: field.ones() }).unwrap();
        }
        assert_eq!(p.data(), frame, "{what}");
        cache.free(p.packet);
    }
    let mut p = packet(&mut cache, &frame);
    apply(&mut p, &DpAction::Set { field: FieldId::NwSrc, value: 1, mask: u32::MAX.into() }).unwrap();
    assert_ne!(p.data(), frame);
    cache.free(p.packet);
}

/// A packet that kept its time to live would go round for ever.
#[test]
fn a_time_to_live_is_set_whatever_the_protocol() {
    let mut cache = cache();
    let header_sum = |frame: &[u8]| {
        let words = frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        sum % 0xffff
    };
    for protocol in [0, 1, 17, 59, 255] {
        let mut frame = v4().udp(1, 2).payload(&[7; 64]).build().unwrap();
        // The checksum follows by the difference.
        let sum = u16::from_be_bytes([frame[24], frame[25]]);
        let sum = (u32::from(sum) + u32::from(frame[23]) + (0xffff - protocol)) % 0xffff;
        frame[23] = protocol as u8;
        frame[24..26].copy_from_slice(&(sum as u16).to_be_bytes());
        let before = header_sum(&frame);
        let mut p = packet(&mut cache, &frame);
        apply(&mut p, &DpAction::Set { field: FieldId::NwTtl, value: 9, mask: 0xff }).unwrap();
        assert_eq!((p.data()[22], header_sum(p.data())), (9, before), "protocol {protocol}");
        cache.free(p.packet);
    }
}

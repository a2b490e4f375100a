//! Extraction, held against a plain second extraction, against etherparse, and against what the stock
//! `ovs-ofctl` makes of the same packets.

mod counterpart;
mod independent;
mod long;
mod packets;
mod plain;
mod reference;

use base::{OfPort, PortNo};
use flow::extract::head_is_enough;
use flow::key::{B_CT, BLOCKS};
use flow::{Depth, FieldId, Ingress, Key, extract, extract_keeping_metadata};
use packets::Random;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::Layers;

const IN_PORT: OfPort = OfPort(0x1234);
const DP_PORT: PortNo = PortNo(0x5678);

fn ingress(depth: Depth) -> Ingress {
    Ingress::new(IN_PORT, DP_PORT, depth)
}

/// What a packet fresh from its port has beside its bytes.
fn fresh_metadata() -> Key {
    let mut key = Key::default();
    key.set(FieldId::InPort, IN_PORT.0.into());
    key.set(FieldId::DpPort, DP_PORT.0.into());
    key
}

/// A key with rubbish in every block.
fn stale_key(rng: &mut Random) -> Key {
    let mut key = Key::default();
    for b in 0..BLOCKS {
        key.put(b, std::array::from_fn(|_| rng.next()));
    }
    if rng.one_in(2) {
        key.set_present(rng.next() as u16 & ((1 << BLOCKS) - 1));
    }
    key
}

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Extraction of a packet fresh from its port into `key`, checked against the reference.
fn check(frame: &[u8], depth: Depth, key: &mut Key) {
    let vlan_limit = 2;
    let offsets = extract(frame, frame.len(), &ingress(depth), key);
    match reference::extract(frame, depth, vlan_limit, &fresh_metadata()) {
        Some(expected) => {
            assert!(offsets.is_some(), "{depth:?} {}: refused", hex(frame));
            assert_same(key, &expected, frame, depth);
        }
        None => {
            assert_eq!(offsets, None, "{depth:?} {}: accepted", hex(frame));
            assert_eq!(*key, Key::default());
        }
    }
    // One walk, whoever makes it: extraction by a straight path, or somebody who has but the bytes.
    let walked = Layers::of(frame, frame.len(), vlan_limit as u8);
    assert_eq!(offsets, walked.map(|walked| if depth < Depth::Transport { Layers::UNKNOWN } else { walked }));
}

fn assert_same(key: &Key, expected: &Key, frame: &[u8], depth: Depth) {
    for &f in FieldId::ALL {
        assert_eq!(key.get(f), expected.get(f), "{f:?} at {depth:?} of {}", hex(frame));
    }
    assert_eq!(key, expected, "bits outside all fields at {depth:?} of {}", hex(frame));
}

#[test]
fn agrees_with_the_reference_while_depth_changes_and_keys_are_reused() {
    let mut keys: Vec<Key> = vec![Key::default(); 32];
    for seed in 0..testkit::cases("flow::extract_agrees_with_reference", 6_000) {
        let mut rng = Random(u64::from(seed));
        let mut depth = rng.pick(&Depth::ALL);
        for key in &mut keys {
            if rng.one_in(4) {
                depth = rng.pick(&Depth::ALL);
            }
            if rng.one_in(16) {
                *key = stale_key(&mut rng);
            }
            check(&packets::any(&mut rng), depth, key);
        }
    }
}

#[test]
fn every_depth_equals_everything_with_deeper_fields_zeroed() {
    let (mut deep, mut key) = (Key::default(), Key::default());
    for seed in 0..testkit::cases("flow::extract_depths_agree", 30_000) {
        let mut rng = Random(u64::from(seed) | 1 << 40);
        let frame = packets::any(&mut rng);
        let everything = extract(&frame, frame.len(), &ingress(Depth::Everything), &mut deep);
        for depth in Depth::ALL {
            let offsets = extract(&frame, frame.len(), &ingress(depth), &mut key);
            let expected = everything.map(|o| if depth < Depth::Transport { Layers::UNKNOWN } else { o });
            assert_eq!(offsets, expected, "{depth:?} {}", hex(&frame));
            for &f in FieldId::ALL {
                let expected = if f.depth() <= depth { deep.get(f) } else { 0 };
                assert_eq!(key.get(f), expected, "{f:?} at {depth:?} of {}", hex(&frame));
            }
        }
    }
}

#[test]
fn every_prefix_of_every_kind_of_packet_agrees_with_the_reference() {
    let mut key = Key::default();
    for seed in 0..testkit::cases("flow::extract_prefixes", 600) {
        let mut rng = Random(u64::from(seed) | 2 << 40);
        let frame = packets::well_formed(&mut rng);
        for len in 0..=frame.len() {
            check(&frame[..len], rng.pick(&Depth::ALL), &mut key);
            // A header may end in the middle of the first segment only if the frame does: but it must not be
            // read.
            let _ = extract(&frame[..len], frame.len(), &ingress(Depth::Everything), &mut key);
            let _ = extract(&frame[..len], usize::MAX, &ingress(Depth::Everything), &mut key);
            let _ = extract(&frame[..len], 0, &ingress(Depth::Everything), &mut key);
        }
    }
}

#[test]
fn a_head_that_is_said_to_be_enough_yields_what_the_whole_frame_does() {
    let (mut whole, mut key) = (Key::default(), Key::default());
    let mut judged = [0; 2];
    for seed in 0..testkit::cases("flow::extract_heads", 30_000) {
        let mut rng = Random(u64::from(seed) | 6 << 40);
        let mut frame = packets::any(&mut rng);
        let behind = rng.below(600);
        frame.extend(rng.bytes(behind));
        if let (true, Some(l3)) = (rng.one_in(2), frame.len().checked_sub(14).filter(|l3| *l3 >= 40)) {
            // What was appended belongs to the packet.
            let (at, len) = if frame[12] == 8 { (16, l3) } else { (18, l3 - 40) };
            frame[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
        }
        let cut = rng.below(frame.len().min(256) + 1);
        let is_enough = head_is_enough(&frame[..cut]);
        judged[usize::from(is_enough)] += 1;
        for depth in Depth::ALL.into_iter().filter(|_| is_enough) {
            let offsets = extract(&frame, frame.len(), &ingress(depth), &mut whole);
            assert_eq!(
                extract(&frame[..cut], frame.len(), &ingress(depth), &mut key),
                offsets,
                "{}",
                hex(&frame)
            );
            assert_same(&key, &whole, &frame, depth);
        }
    }
    assert!(judged.iter().all(|n| *n > 100), "{judged:?}");
}

#[test]
fn vlan_limit_bounds_the_tags_that_are_looked_behind() {
    let mut key = Key::default();
    for seed in 0..testkit::cases("flow::extract_vlan_limit", 6_000) {
        let mut rng = Random(u64::from(seed) | 3 << 40);
        let frame = packets::any(&mut rng);
        let limit = rng.below(3);
        let ingress = ingress(Depth::Everything).with_vlan_limit(limit as u8);
        if extract(&frame, frame.len(), &ingress, &mut key).is_some() {
            let expected = reference::extract(&frame, Depth::Everything, limit, &fresh_metadata()).unwrap();
            assert_same(&key, &expected, &frame, Depth::Everything);
        }
    }
}

#[test]
fn metadata_survive_extraction_where_they_shall() {
    for seed in 0..testkit::cases("flow::extract_keeps_metadata", 6_000) {
        let mut rng = Random(u64::from(seed) | 4 << 40);
        let frame = packets::any(&mut rng);
        let depth = rng.pick(&Depth::ALL);
        let mut key = stale_key(&mut rng);
        key.set(FieldId::PacketType, 0);
        let before = key.clone();
        let mut metadata = before.clone();
        metadata.set_present(before.present() & !((1 << B_CT) - 1));
        for &f in FieldId::ALL {
            if f.depth() == Depth::Metadata && f.place().block == 0 {
                metadata.set(f, before.get(f));
            }
        }
        metadata.set(FieldId::EthType, 0);
        metadata.set(FieldId::NwFrag, 0);
        let offsets = extract_keeping_metadata(&frame, frame.len(), &ingress(depth), &mut key);
        // Bits of words 0, 6 and 7 that belong to no field stay too: nobody sets them.
        for word in [0, 6, 7] {
            metadata.set_word(0, word, before.word(0, word));
        }
        match reference::extract(&frame, depth, 2, &metadata) {
            Some(expected) => {
                assert!(offsets.is_some());
                assert_same(&key, &expected, &frame, depth);
            }
            None => {
                assert_eq!(offsets, None);
                assert_same(&key, &metadata, &frame, depth);
            }
        }
    }
}

#[test]
fn a_packet_of_another_packet_type_starts_with_the_header_that_it_names() {
    let (mut key, mut expected) = (Key::default(), Key::default());
    for seed in 0..testkit::cases("flow::extract_packet_type", 6_000) {
        let mut rng = Random(u64::from(seed) | 5 << 40);
        let frame = packets::any(&mut rng);
        // The same bytes behind an Ethernet header, extracted in the usual way.
        let Some(eth_type) = frame.get(12..14).filter(|t| t[0] >= 6) else { continue };
        let eth_type = u32::from(u16::from_be_bytes([eth_type[0], eth_type[1]]));
        let plain = ingress(Depth::Everything).with_vlan_limit(0);
        let whole = extract(&frame, frame.len(), &plain, &mut expected).unwrap();
        for f in [FieldId::EthDst, FieldId::EthSrc] {
            expected.set(f, 0);
        }
        key.clear();
        key.set(FieldId::PacketType, u128::from(1 << 16 | eth_type));
        key.set(FieldId::InPort, IN_PORT.0.into());
        key.set(FieldId::DpPort, DP_PORT.0.into());
        expected.set(FieldId::PacketType, u128::from(1 << 16 | eth_type));
        let offsets = extract_keeping_metadata(&frame[14..], frame.len() - 14, &plain, &mut key).unwrap();
        assert_same(&key, &expected, &frame, Depth::Everything);
        assert_eq!(offsets, whole.shifted(-14));
    }
}

#[test]
fn the_headers_of_a_chained_frame_are_found_in_its_first_segment() {
    let (mut key, mut expected) = (Key::default(), Key::default());
    for seed in 0..testkit::cases("flow::extract_chained", 6_000) {
        let mut rng = Random(u64::from(seed) | 6 << 40);
        let mut frame = packets::well_formed(&mut rng);
        let headers = frame.len();
        frame.resize(headers + 3000, 7);
        // With the length fields saying otherwise the tail is padding, as long as it stays below 64 KiB.
        let whole = extract(&frame, frame.len(), &ingress(Depth::Everything), &mut expected);
        let first = extract(&frame[..headers], frame.len(), &ingress(Depth::Everything), &mut key);
        assert_eq!(whole, first);
        assert_same(&key, &expected, &frame[..headers], Depth::Everything);
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

const MACS: &str = "010203040506a1a2a3a4a5a6";
const UDP: &str = "450000200000000040110000_0a0000010a000002_000100020008_0000_00000000";
const IPV6_UDP: &str = concat!(
    "60000000000c1140_fe800000000000000000000000000001_fe800000000000000000000000000002",
    "_000100020008_0000_00000000"
);

#[test]
fn layers_point_at_the_headers() {
    let mut key = Key::default();
    let mut at = |frame: &str| {
        let bytes = bytes(frame);
        let layers = extract(&bytes, bytes.len(), &ingress(Depth::Everything), &mut key)?;
        Some((layers.l2_5, layers.l4, layers.payload))
    };
    let udp = UDP.replace('_', "");
    assert_eq!(at(&format!("{MACS}0800{udp}")), Some((14, 34, 42)));
    assert_eq!(at(&format!("{MACS}810000010800{udp}")), Some((18, 38, 46)));
    assert_eq!(at(&format!("{MACS}88a800028100000108004600{}", &udp[4..])), Some((22, 46, 54)));
    let later = udp.replacen("00000000", "00000001", 1);
    assert_eq!(at(&format!("{MACS}0800{later}")), Some((14, 0, 0)));
    let cut = udp.replacen("45000020", "4500001b", 1);
    assert_eq!(at(&format!("{MACS}0800{cut}")), Some((14, 34, 0)), "7 bytes of UDP");
    assert_eq!(at(&format!("{MACS}88cc")), Some((14, 0, 0)));
    assert_eq!(at(MACS), None);
    let options = |words: usize| {
        let header = format!("6000000001083c40{}", "00".repeat(32));
        let behind = format!("11{:02x}{}{}", words - 1, "00".repeat(words * 8 - 2), "00".repeat(64));
        format!("{MACS}86dd{header}{behind}{}", "00".repeat(64))
    };
    assert_eq!(at(&options(25)), Some((14, 254, 262)));
    assert_eq!(at(&options(26)), Some((14, 262, 270)));
}

#[test]
fn more_than_64_kib_behind_the_ip_payload_is_no_padding() {
    let mut key = Key::default();
    for (eth_type, packet, field) in [("0800", UDP, FieldId::NwSrc), ("86dd", IPV6_UDP, FieldId::Ipv6Src)] {
        // Long enough for the straight paths, which leave such lengths to the general one.
        let head = bytes(&format!("{MACS}{eth_type}{}{}", packet.replace('_', ""), "00".repeat(60)));
        let packet_len = packet.replace('_', "").len() / 2;
        for (padding, read) in [(0xffff, true), (0x1_0000, false), (0x10_0000, false)] {
            let frame_len = 14 + packet_len + padding;
            for depth in [Depth::Network, Depth::Everything] {
                let offsets = extract(&head, frame_len, &ingress(depth), &mut key).unwrap();
                assert_eq!(key.get(field) != 0, read, "{eth_type} and {padding} bytes at {depth:?}");
                assert_eq!(offsets.l4 != 0, read && depth == Depth::Everything);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases("flow::extract_mutations", 20_000)))]

    /// As the seeded tests, with mutations that shrink to the bytes that matter.
    #[test]
    fn mutated_packets_agree_with_the_reference(
        seed in any::<u64>(),
        overwrites in vec((0..120usize, any::<u8>()), 0..6),
        cut in proptest::option::of(0..160usize),
        depths in any::<[u8; 2]>(),
    ) {
        let mut frame = packets::well_formed(&mut Random(seed));
        for (at, byte) in overwrites {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        if let Some(cut) = cut {
            frame.truncate(cut);
        }
        let mut key = stale_key(&mut Random(seed));
        for depth in depths {
            check(&frame, Depth::ALL[usize::from(depth) % 5], &mut key);
        }
    }
}

//! A long plain packet's packed key stands for its key: equal packed, equal keys, at every depth, read by
//! vectors or not.

use super::packets::{self, Random};
use super::{hex, ingress};
use base::wide::{Lanes, Wide};
use flow::extract::{LongKey, LongReader, extract, long_key, origin_of_long, plain_key};
use flow::{Depth, Ingress, Key};

/// The highest number that a key has room for.
const ORIGIN: u64 = (1 << flow::extract::PLAIN_ORIGIN_BITS) - 1;

/// The packed key of a frame of this length that begins with these bytes, which is the same in both ways.
fn packed(head: &[u8], len: usize, ingress: &Ingress, origin: u64) -> Option<LongKey> {
    let packed = long_key(head, len, ingress, origin);
    if let Some(wide) = Wide::here() {
        let by_vectors = wide.run(|| LongReader::new(ingress, origin).read(wide, head, len));
        assert_eq!(by_vectors, packed, "{ingress:?} {len} {}", hex(head));
    }
    packed
}

/// A frame's packed key, if it is a long plain packet, and its whole key.
fn keys((head, len): (&[u8], usize), ingress: &Ingress) -> Option<(LongKey, Key)> {
    let packed = packed(head, len, ingress, ORIGIN)?;
    assert_eq!(origin_of_long(&packed), ORIGIN);
    assert_eq!(plain_key(head, len, ingress.depth(), 0), None, "plain and long: {}", hex(head));
    let mut key = Key::default();
    let _ = extract(head, len, ingress, &mut key).expect("whole");
    Some((packed, key))
}

/// With all tags in it one that is looked behind, as often as not.
fn candidate(rng: &mut Random) -> Vec<u8> {
    let mut frame = packets::any(rng);
    if frame.len() > 14 && rng.one_in(2) {
        let tag = [0x81, 0, rng.next() as u8, rng.next() as u8];
        frame.splice(12..12, tag);
    }
    frame
}

#[test]
fn equal_packed_keys_mean_equal_keys_and_equal_keys_equal_packed_ones() {
    let (mut pairs, mut equal, mut long) = (0, 0, [0; 4]);
    for seed in 0..testkit::cases("flow::long_key", 20_000) {
        let mut rng = Random(u64::from(seed) | 3 << 40);
        let frame = candidate(&mut rng);
        let limit = rng.pick(&[0, 1, 2, 2]);
        let like: Vec<Vec<u8>> = (0..6)
            .map(|n| {
                let mut frame = frame.clone();
                if n > 0 {
                    packets::mutate(&mut rng, &mut frame);
                }
                frame
            })
            .collect();
        // Of a few, only the first segment is at hand.
        let heads: Vec<&[u8]> =
            like.iter().map(|f| if rng.one_in(8) { &f[..f.len() / 2] } else { f }).collect();
        for depth in Depth::ALL {
            let ingress = ingress(depth).with_vlan_limit(limit);
            let all: Vec<_> =
                heads.iter().zip(&like).filter_map(|(head, f)| keys((head, f.len()), &ingress)).collect();
            for (n, (packed, key)) in all.iter().enumerate() {
                long[usize::from(key.get(flow::FieldId::EthType) == 0x86dd) * 2
                    + usize::from(key.get(flow::FieldId::VlanTci) != 0)] += 1;
                for (other, other_key) in &all[..n] {
                    assert_eq!(
                        packed == other,
                        key == other_key,
                        "{depth:?} {limit} seed {seed} {like:02x?}"
                    );
                    pairs += 1;
                    equal += usize::from(packed == other);
                }
            }
        }
    }
    // What it proves depends on how many there were: of IPv4 and IPv6, with a tag seen and without.
    assert!(pairs > 10_000 && equal > pairs / 10 && equal < pairs * 9 / 10, "{equal} of {pairs}");
    assert!(long.iter().all(|n| *n > 500), "{long:?}");
}

#[test]
fn keys_of_different_numbers_differ() {
    let frame = tcp_over_ipv6(true);
    for depth in Depth::ALL {
        let of = |origin| packed(&frame, frame.len(), &ingress(depth), origin).expect("long");
        for bit in 0..flow::extract::PLAIN_ORIGIN_BITS {
            assert_ne!(of(0), of(1 << bit), "{depth:?} {bit}");
        }
    }
}

fn tagged(rest: &[&[u8]]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x20, 7];
    rest.iter().for_each(|bytes| frame.extend_from_slice(bytes));
    frame
}

/// Behind a tag.
fn udp_over_ipv4() -> Vec<u8> {
    let ip = [0x45, 0, 0, 32, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    tagged(&[&[8, 0], &ip, &[4, 0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4], &[0; 14]])
}

/// With a tag or without.
fn tcp_over_ipv6(is_tagged: bool) -> Vec<u8> {
    let ip = [0x6a, 0xbc, 0xde, 0xf0, 0, 24, 6, 64];
    let mut frame = tagged(&[&[0x86, 0xdd], &ip, &[0x20; 32], &[4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2]]);
    frame.extend([0x50, 0x12, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    if !is_tagged {
        frame.drain(12..16);
    }
    frame
}

/// The same frame with these bytes from here on.
fn with(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn ordinary_packets_are_long_at_every_depth_and_odd_ones_at_none() {
    let (v4, v6, tagged_v6) = (udp_over_ipv4(), tcp_over_ipv6(false), tcp_over_ipv6(true));
    let is_long = |frame: &[u8], ingress: &Ingress| packed(frame, frame.len(), ingress, 0).is_some();
    let ordinary = [
        v4.clone(),
        v6.clone(),
        tagged_v6.clone(),
        // A priority tag; the bit of the old format indicator.
        with(&v4, 14, &[0xe0, 0]),
        with(&v4, 14, &[0x30, 7]),
        with(&tagged_v6, 14, &[0x10, 0]),
    ];
    let odd = [
        // Another TPID, a second tag, a type that is none.
        with(&v4, 12, &[0x88, 0xa8]),
        with(&v4, 16, &[0x81, 0]),
        with(&v4, 16, &[0, 46]),
        // Options, a fragment, the last of them, more than there is, less than a header.
        with(&v4, 18, &[0x46]),
        with(&v4, 24, &[0x20]),
        with(&v4, 25, &[1]),
        with(&v4, 20, &[0, 60]),
        with(&v4, 20, &[0, 19]),
        // Extension headers; a fragment's; another version.
        with(&v6, 20, &[0]),
        with(&v6, 20, &[60]),
        with(&v6, 20, &[44]),
        with(&v6, 14, &[0x4a]),
        // A jumbogram, more than there is, less than TCP's header; an odd header of TCP.
        with(&v6, 18, &[0, 0]),
        with(&v6, 18, &[0, 25]),
        with(&tagged_v6, 22, &[0, 19]),
        with(&v6, 66, &[0]),
        with(&v6, 66, &[0x40]),
        with(&v6, 66, &[0x70]),
    ];
    for depth in Depth::ALL {
        let ingress = ingress(depth);
        for (n, frame) in ordinary.iter().enumerate() {
            assert!(is_long(frame, &ingress), "{depth:?} {n}");
            let is_seen = n == 1 || is_long(frame, &ingress.with_vlan_limit(1));
            let is_passed = n != 1 && is_long(frame, &ingress.with_vlan_limit(0));
            assert!(is_seen && !is_passed, "{depth:?} {n}");
        }
        for (n, frame) in odd.iter().enumerate() {
            assert!(!is_long(frame, &ingress), "{depth:?} {n}");
        }
        // What is cut off.
        for frame in [&v4, &v6, &tagged_v6] {
            let (whole, whole_key) = keys((frame, frame.len()), &ingress).expect("long");
            for end in 0..frame.len() {
                let Some((cut, key)) = keys((&frame[..end], frame.len()), &ingress) else { continue };
                assert!(cut == whole && key == whole_key, "{depth:?} {end}");
                assert!(end >= frame.len() - 4 || frame == &v4, "{depth:?} {end}");
            }
        }
    }
}

#[test]
fn a_tag_of_zeros_is_seen_from_the_depth_of_ethernet_on() {
    let (bare, tagged) = (tcp_over_ipv6(false), with(&tcp_over_ipv6(true), 14, &[0, 0]));
    for depth in Depth::ALL {
        let [(a, key_of_a), (b, key_of_b)] =
            [&bare, &tagged].map(|frame| keys((frame, frame.len()), &ingress(depth)).expect("long"));
        assert_eq!((a == b, key_of_a == key_of_b), (depth < Depth::Ethernet, depth < Depth::Ethernet));
    }
}

//! A plain packet's packed key stands for its key: equal packed, equal keys, at every depth.

use base::{OfPort, PortNo};
use flow::extract::{Ingress, PlainKey, extract, may_open_tcp, opens_tcp, plain_key, plain_mask};
use flow::{Depth, FieldId, Key, Mask};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use wire::compose::Compose;
use wire::ethernet::EthAddr;

fn frames() -> Vec<Vec<u8>> {
    let v4 = |a, b| {
        let eth = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
        eth.ipv4(Ipv4Addr::from_bits(a), Ipv4Addr::from_bits(b))
    };
    let whole = |c: Compose| c.payload(&[7; 30]).build().unwrap();
    vec![whole(v4(1, 2).udp(3, 4)), whole(v4(1, 2).tcp(3, 4)), whole(v4(9, 2).udp(3, 5))]
}

/// A frame's packed key at a depth, if it is plain, and its whole key.
fn keys(frame: &[u8], depth: Depth) -> Option<(PlainKey, Key)> {
    let packed = plain_key(frame, frame.len(), depth, 0)?;
    let mut key = Key::default();
    let _ = extract(frame, frame.len(), &Ingress::new(OfPort(1), PortNo(1), depth), &mut key).expect("whole");
    Some((packed, key))
}

/// A mask of some bits of some of these fields.
fn mask_of(fields: &[(usize, u128)]) -> Mask {
    let mut mask = Mask::wild();
    for &(n, bits) in fields {
        mask.set(FieldId::ALL[n % FieldId::ALL.len()], bits);
    }
    mask
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases("flow::plain_key", 3_000)))]

    #[test]
    fn equal_packed_keys_mean_equal_keys_and_equal_keys_equal_packed_ones(
        which in 0usize..3,
        changes in proptest::collection::vec((0usize..72, any::<u8>()), 0..4),
        others in proptest::collection::vec((0usize..72, any::<u8>()), 0..4),
    ) {
        let changed = |changes: &[(usize, u8)]| {
            let mut frame = frames()[which].clone();
            for &(at, byte) in changes {
                let n = frame.len();
                frame[at % n] = byte;
            }
            frame
        };
        let (a, b) = (changed(&changes), changed(&others));
        for depth in Depth::ALL {
            let (Some((x, key_of_a)), Some((y, key_of_b))) = (keys(&a, depth), keys(&b, depth)) else { continue };
            prop_assert_eq!(x == y, key_of_a == key_of_b, "{:?}", depth);
            for (key, frame) in [(x, &a), (y, &b)] {
                prop_assert!(depth < Depth::Transport || !opens_tcp(&key) || may_open_tcp(frame));
            }
        }
    }

    #[test]
    fn packets_agree_under_a_mask_if_their_packed_keys_agree_under_its_packed_form(
        which in (0usize..3, 0usize..3),
        (change, other) in ((0usize..54, any::<u8>()), (0usize..54, any::<u8>())),
        fields in proptest::collection::vec((any::<usize>(), any::<u128>()), 0..4),
    ) {
        let changed = |which: usize, (at, byte): (usize, u8)| {
            let mut frame = frames()[which].clone();
            frame[at] = byte;
            frame
        };
        let (a, b) = (changed(which.0, change), changed(which.1, other));
        let mask = mask_of(&fields);
        for depth in Depth::ALL {
            let (Some((x, key_of_a)), Some((y, key_of_b))) = (keys(&a, depth), keys(&b, depth)) else { continue };
            let packed = plain_mask(&mask);
            let agree = (0..4).all(|w| (x[w] ^ y[w]) & packed[w] == 0);
            prop_assert_eq!(agree, key_of_a.equal_under(&key_of_b, &mask), "{:?} {:?}", depth, mask);
        }
    }
}

#[test]
fn most_generated_frames_are_plain_and_no_odd_one_is() {
    for frame in frames() {
        assert!(plain_key(&frame, frame.len(), Depth::Everything, 0).is_some());
        let mut fragment = frame.clone();
        fragment[20] |= 0x20;
        assert_eq!(plain_key(&fragment, fragment.len(), Depth::Metadata, 0), None);
        let mut options = frame.clone();
        options[14] = 0x46;
        assert_eq!(plain_key(&options, options.len(), Depth::Metadata, 0), None);
        let mut cut = frame.clone();
        cut[17] = 0xff;
        assert_eq!(plain_key(&cut, cut.len(), Depth::Network, 0), None);
    }
}

#[test]
fn behind_the_ip_packet_may_be_as_much_padding_as_extraction_takes() {
    for frame in frames() {
        let padded = |count: usize| [&frame[..], &vec![0; count]].concat();
        let (packed, key) = keys(&frame, Depth::Everything).unwrap();
        for count in [1, 100, 40_000, 0xffff] {
            assert_eq!(keys(&padded(count), Depth::Everything), Some((packed, key.clone())), "{count}");
        }
        for count in [0x1_0000, 0x1_0001, 0x2_0000] {
            assert_eq!(keys(&padded(count), Depth::Everything), None, "{count}");
            let mut of_more = Key::default();
            let (more, ingress) = (padded(count), Ingress::new(OfPort(1), PortNo(1), Depth::Everything));
            let _ = extract(&more, more.len(), &ingress, &mut of_more).expect("whole");
            assert_ne!(of_more, key, "{count}: extraction takes no such padding");
        }
    }
}

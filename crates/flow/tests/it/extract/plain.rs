//! A plain packet's packed key stands for its key: equal packed, equal keys, at every depth.

use base::{OfPort, PortNo};
use flow::extract::{Ingress, extract, plain_key};
use flow::{Depth, Key};
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
            let ingress = Ingress::new(OfPort(1), PortNo(1), depth);
            let (x, y) = (plain_key(&a, a.len(), depth, 0), plain_key(&b, b.len(), depth, 0));
            let (Some(x), Some(y)) = (x, y) else { continue };
            let mut keys = [Key::default(), Key::default()];
            let _ = extract(&a, a.len(), &ingress, &mut keys[0]).expect("whole");
            let _ = extract(&b, b.len(), &ingress, &mut keys[1]).expect("whole");
            prop_assert_eq!(x == y, keys[0] == keys[1], "{:?}", depth);
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

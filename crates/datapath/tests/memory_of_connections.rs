//! What connections cost in memory, as the system counts it: in a process of its own.

use base::hash::HashKey;
use datapath::conntrack::seen::{Seen, Segment};
use datapath::conntrack::tuple::Tuple;
use datapath::conntrack::{Moment, Nat, Request, Tracker, Tracking, nat, state};
use std::time::Duration;

const CONNECTIONS: u32 = 1_000_000;
const BYTES_MAX: u64 = 250_000_000;

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_million_connections_take_at_most_250_megabytes_translated_or_not() {
    let without = resident();
    for is_translated in [false, true] {
        // What makes memory ready ahead may have that of the tracker before for some milliseconds more.
        for _ in 0..1_000 {
            if resident() < without + 10_000_000 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let tracker = Tracker::with_secret(HashKey::from_seed(1)).unwrap();
        let before = resident();
        let shown = nat::Range {
            side: nat::Side::Src,
            addresses: Some((0xc633_6400, 0xc633_64ff)),
            is_ipv6: false,
            ports: None,
            is_persistent: false,
            is_hash: false,
            is_random: false,
        };
        let nat = is_translated.then_some(Nat::New(shown));
        let request = Request { commit: true, nat, ..Request::default() };
        let packet = |n: u32, is_back: bool| {
            let client = Tuple {
                src: 0x0a00_0000 + u128::from(n / 16),
                dst: 0xc000_0201,
                src_port: 1024 + (n % 64_500) as u16,
                dst_port: 53,
                protocol: 17,
                is_ipv6: false,
            };
            if is_back { client.reversed() } else { client }
        };
        let track = |tuple: Tuple, request: &Request| {
            let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
            let mut may_begin = || true;
            let mut moment = Moment::new(1_000, 1, &mut may_begin);
            let seen = Seen { tuple, is_error: false, is_plain: false, tcp: Segment::default() };
            tracker.track(Some(&seen), request, &mut tracking, &mut original, &mut moment).unwrap();
            tracking.state
        };
        for n in 0..CONNECTIONS {
            assert_eq!(track(packet(n, false), &request) & state::NEW, state::NEW);
        }
        let bytes = resident() - before;
        assert_eq!(tracker.count(), CONNECTIONS);
        println!("translated: {is_translated}: {} MB", bytes / 1_000_000);
        assert!(bytes <= BYTES_MAX, "translated: {is_translated}: {bytes} bytes");
        // The measure sees what there is: no entry is smaller than its tuples.
        assert!(bytes >= u64::from(CONNECTIONS) * 100, "{bytes} bytes");
        if !is_translated {
            let answered = (0..CONNECTIONS)
                .step_by(97)
                .all(|n| track(packet(n, true), &Request::default()) & state::ESTABLISHED != 0);
            assert!(answered, "each is found");
        }
    }
}

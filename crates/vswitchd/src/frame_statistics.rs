//! The `statistics` of an interface that tell frames by size, by kind of address and by queue, with Open
//! vSwitch's keys.

use packet::{FrameCounts, QueueCounts};

/// Keys of a queue's sizes, and which of the interface's keys each goes into.
const SIZES: [(&str, &str); packet::port::FRAME_SIZES] = [
    ("undersize_packets", "1_to_64_packets"),
    ("size_64_packets", "1_to_64_packets"),
    ("size_65_127_packets", "65_to_127_packets"),
    ("size_128_255_packets", "128_to_255_packets"),
    ("size_256_511_packets", "256_to_511_packets"),
    ("size_512_1023_packets", "512_to_1023_packets"),
    ("size_1024_1518_packets", "1024_to_1522_packets"),
    // Named so there too, though all from 1519 bytes on are meant.
    ("size_1519_max_packets", "1523_to_max_packets"),
];

/// What does not happen here: an IOTLB is asked for no address, and no copy outlasts its burst.
const NEVER: [&str; 4] = ["inflight_completed", "inflight_submitted", "iotlb_hits", "iotlb_misses"];

/// All of a port's pairs of queues. Empty where the port does not count so.
pub fn frame_statistics(pairs: &[QueueCounts]) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    if pairs.is_empty() {
        return all;
    }
    for prefix in ["rx", "tx"] {
        let of = |pair: &QueueCounts| if prefix == "rx" { pair.rx } else { pair.tx };
        let sum = |f: &dyn Fn(FrameCounts) -> u64| pairs.iter().map(|pair| f(of(pair))).sum::<u64>();
        all.push((format!("{prefix}_multicast_packets"), sum(&|c| c.multicast)));
        all.push((format!("{prefix}_broadcast_packets"), sum(&|c| c.broadcast)));
        for (n, (_, key)) in SIZES.iter().enumerate().skip(1) {
            // The smallest two share a key.
            let from = if n == 1 { 0 } else { n };
            all.push((format!("{prefix}_{key}"), sum(&|c| c.sizes[from..=n].iter().sum())));
        }
        for (n, counts) in pairs.iter().map(of).enumerate() {
            let mut tell = |key: &str, value: u64| all.push((format!("{prefix}_q{n}_{key}"), value));
            tell("good_packets", counts.packets);
            tell("good_bytes", counts.bytes);
            tell("multicast_packets", counts.multicast);
            tell("broadcast_packets", counts.broadcast);
            tell("guest_notifications", counts.notifications);
            SIZES.iter().zip(counts.sizes).for_each(|((key, _), value)| tell(key, value));
            NEVER.iter().for_each(|key| tell(key, 0));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn queues_have_their_own_keys_and_the_interface_the_sums() {
        let rx = FrameCounts {
            packets: 36,
            sizes: [1, 2, 3, 4, 5, 6, 7, 8],
            multicast: 9,
            broadcast: 10,
            ..FrameCounts::default()
        };
        let tx = FrameCounts { packets: 11, bytes: 660, notifications: 12, ..FrameCounts::default() };
        let first = QueueCounts { rx, ..QueueCounts::default() };
        let statistics = frame_statistics(&[first, QueueCounts { rx, tx }]);
        let map: BTreeMap<&str, u64> = statistics.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(map.len(), statistics.len(), "a key comes once");
        // Those that Open vSwitch 3.1 with DPDK shows of a guest's port with a pair of queues, beside those
        // of all ports.
        assert_eq!(map.len(), 2 * (9 + 2 * 17));
        for (key, value) in [
            ("rx_1_to_64_packets", 6),
            ("rx_65_to_127_packets", 6),
            ("rx_1024_to_1522_packets", 14),
            ("rx_1523_to_max_packets", 16),
            ("rx_multicast_packets", 18),
            ("rx_broadcast_packets", 20),
            ("rx_q0_undersize_packets", 1),
            ("rx_q1_size_64_packets", 2),
            ("rx_q1_size_1519_max_packets", 8),
            ("rx_q0_good_packets", 36),
            ("tx_q0_good_packets", 0),
            ("tx_q1_good_packets", 11),
            ("tx_q1_good_bytes", 660),
            ("tx_q1_guest_notifications", 12),
            ("tx_q1_iotlb_hits", 0),
        ] {
            assert_eq!(map.get(key), Some(&value), "{key}");
        }
        assert!(frame_statistics(&[]).is_empty());
    }
}

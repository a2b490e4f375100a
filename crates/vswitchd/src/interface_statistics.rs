//! The `statistics` of an interface, with Open vSwitch's keys, including those that count frames by size, by
//! kind of address and by queue.

use crate::plane::ForwardingPlane;
use crate::port_record::PortRecord;
use base::DropReason;
use packet::{FrameCounts, QueueCounts};

/// A queue's size keys, and the interface keys to which each adds.
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

/// What never happens here: an IOTLB is not asked for addresses, and no copy outlasts its burst.
const NEVER: [&str; 4] = ["inflight_completed", "inflight_submitted", "iotlb_hits", "iotlb_misses"];

impl ForwardingPlane {
    /// All statistics of a port; none if its device is gone.
    pub(crate) fn interface_statistics(&self, record: &PortRecord) -> Vec<(String, u64)> {
        let named = |all: &[(&str, u64)]| all.iter().map(|(key, value)| (key.to_string(), *value)).collect();
        if let Some((rx, tx)) = self.patch_totals(record) {
            return named(&[
                ("rx_bytes", rx.bytes),
                ("rx_packets", rx.packets),
                ("tx_bytes", tx.bytes),
                ("tx_packets", tx.packets),
            ]);
        }
        let Some(port) = self.dp.port(record.port_no) else { return Vec::new() };
        let s = self.dp.port_stats(record.port_no);
        let dropped = |reason: DropReason| {
            self.dp.port_counters(record.port_no).iter().map(|c| c.drops.get(reason)).sum::<u64>()
        };
        let mut all = vec![
            ("collisions", s.collisions),
            ("ovs_rx_qos_drops", dropped(DropReason::PolicerDrop)),
            ("ovs_tx_failure_drops", s.tx_dropped),
            ("ovs_tx_mtu_exceeded_drops", s.tx_mtu_drops),
            ("ovs_tx_qos_drops", 0),
            ("rx_bytes", s.rx_bytes),
            ("rx_crc_err", s.rx_crc_errors),
            ("rx_dropped", s.rx_dropped),
            ("rx_errors", s.rx_errors),
            ("rx_frame_err", s.rx_frame_errors),
            ("rx_missed_errors", s.rx_missed_errors),
            ("rx_over_err", s.rx_over_errors),
            ("rx_packets", s.rx_packets),
            ("tx_bytes", s.tx_bytes),
            ("tx_dropped", s.tx_dropped),
            ("tx_errors", s.tx_errors),
            ("tx_packets", s.tx_packets),
        ];
        if record.interface.is_guests() {
            all.push(("ovs_tx_retries", s.tx_retries));
            all.push(("rx_lent_packets", s.rx_lent_packets));
            // No offload that a guest requests is invalid: what cannot be offloaded is done in software.
            all.push(("ovs_tx_invalid_hwol_drops", 0));
            // A ring has no such counters.
            let of_wires = ["collisions", "rx_crc_err", "rx_frame_err", "rx_missed_errors", "rx_over_err"];
            all.retain(|(key, _)| !of_wires.contains(key));
        }
        let mut all: Vec<(String, u64)> = named(&all);
        let pairs = port.queue_counts();
        if record.interface.is_dummy() {
            all.extend(dummy_statistics(s.rx_packets, &pairs));
        } else {
            all.extend(frame_statistics(&pairs));
        }
        all
    }
}

/// What Open vSwitch's dummies count besides the frames of all queues: two keys stand for counters that only
/// some devices have.
fn dummy_statistics(rx_packets: u64, pairs: &[QueueCounts]) -> Vec<(String, u64)> {
    let own = ["rx_custom_packets_1", "rx_custom_packets_2"].map(|key| (key.to_owned(), rx_packets));
    let of_queue = |prefix: &str, n: usize, c: FrameCounts| {
        [(format!("{prefix}_q{n}_bytes"), c.bytes), (format!("{prefix}_q{n}_packets"), c.packets)]
    };
    let rx = pairs.iter().enumerate().flat_map(|(n, pair)| of_queue("rx", n, pair.rx));
    let tx = pairs.iter().enumerate().flat_map(|(n, pair)| of_queue("tx", n, pair.tx));
    own.into_iter().chain(rx).chain(tx).collect()
}

/// The counts of all of a port's queue pairs. Empty if the port has no such counts.
fn frame_statistics(pairs: &[QueueCounts]) -> Vec<(String, u64)> {
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

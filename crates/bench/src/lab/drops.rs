//! What several counters count of the same lost frame: those of the kernel, of the switch, and the
//! generator's.

use super::switch::Twice;
use std::collections::BTreeMap;

/// Counters, as they are read.
pub type Counts = BTreeMap<String, u64>;

/// Removes drops that several counters count from all but one of them.
///
/// 1. A veth pair whose receiving end has no queue counts a frame that the receiver has no room for at both
///    ends: as a failed transmission, and as a failed reception.
/// 2. A device that refuses a generator's frame counts it; the generator counts it as not sent.
/// 3. An AF_XDP socket without room: kernel and switch both count.
/// 4. A device that reports a dropped frame to a switch: kernel and switch both count.
/// 5. A device that refuses a frame which the switch sends again (a tap that is full, a veth whose other end
///    is down): the kernel counts a drop, although there is none.
pub fn count_once(dropped: &mut Counts, ports: usize, twice: Twice, refused: &Counts) {
    let get = |dropped: &Counts, name: &str| dropped.get(name).copied().unwrap_or(0);
    let take = |dropped: &mut Counts, name: &str, count: u64| {
        if let Some(value) = dropped.get_mut(name) {
            *value = value.saturating_sub(count);
        }
    };
    let (mut into, mut out_of) = (0, 0);
    for n in 0..ports {
        for interface in ["p", "vm"] {
            into += get(dropped, &format!("kernel {interface}{n}: rx_dropped"));
            out_of += get(dropped, &format!("kernel {interface}{n}: tx_dropped"));
        }
        if !twice.xdp {
            let sent_in_vain = get(dropped, &format!("kernel e{n}: tx_dropped"));
            take(dropped, &format!("kernel p{n}: rx_dropped"), sent_in_vain);
        }
        let sent_in_vain = get(dropped, &format!("kernel p{n}: tx_dropped"));
        take(dropped, &format!("kernel e{n}: rx_dropped"), sent_in_vain);
        let known = refused.get(&format!("e{n}")).copied().unwrap_or(0);
        take(dropped, &format!("kernel e{n}: tx_dropped"), known);
        if twice.again {
            dropped.remove(&format!("kernel vm{n}: tx_dropped"));
            dropped.remove(&format!("kernel p{n}: tx_dropped"));
        }
    }
    if twice.rx {
        take(dropped, "switch: rx_dropped", into);
    }
    if twice.tx {
        take(dropped, "switch: tx_error", out_of);
    }
    dropped.retain(|_, count| *count > 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        pairs.iter().map(|(name, n)| (name.to_string(), *n)).collect()
    }

    fn once(pairs: &[(&str, u64)], twice: Twice, refused: &[(&str, u64)]) -> Counts {
        let mut dropped = counts(pairs);
        count_once(&mut dropped, 2, twice, &counts(refused));
        dropped
    }

    #[test]
    fn a_frame_that_is_sent_again_is_no_drop() {
        // Of 82,720 frames 40,082 came: all but the tap's refusals are drops.
        let all = [
            ("kernel p0: packet ring full", 23_739),
            ("kernel vm1: packet ring full", 7_271),
            ("kernel vm1: tx_dropped", 12_961),
            ("switch port 2: tx_dropped", 11_628),
        ];
        let ring = Twice { again: true, ..Twice::default() };
        assert_eq!(once(&all, ring, &[]).values().sum::<u64>(), 82_720 - 40_082);
        assert_eq!(once(&all, Twice::default(), &[]), counts(&all));
        // While a link was down, of 40,000 frames 13 were not sent and 35,021 came.
        let down = [("kernel p1: tx_dropped", 579), ("switch port 2: tx_dropped", 4_966)];
        assert_eq!(once(&down, ring, &[]).values().sum::<u64>(), 40_000 - 13 - 35_021);
    }

    #[test]
    fn a_drop_that_kernel_and_socket_count_is_one_drop() {
        let all = [("kernel p0: rx_dropped", 10), ("switch: rx_dropped", 12), ("switch: tx_queue_full", 7)];
        let xdp = Twice { rx: true, xdp: true, ..Twice::default() };
        let left = [("kernel p0: rx_dropped", 10), ("switch: rx_dropped", 2), ("switch: tx_queue_full", 7)];
        assert_eq!(once(&all, xdp, &[]), counts(&left));
        let tap = [("kernel vm1: rx_dropped", 4), ("switch: rx_dropped", 4)];
        assert_eq!(once(&tap, xdp, &[]), counts(&[("kernel vm1: rx_dropped", 4)]));
        // A packet socket's own drops are in no other counter.
        assert_eq!(once(&all, Twice { tx: true, ..Twice::default() }, &[]), counts(&all));
    }

    #[test]
    fn a_pair_that_drops_counts_at_both_ends_and_whoever_was_told_counts_too() {
        let all = [("kernel e0: tx_dropped", 5), ("kernel p0: rx_dropped", 5), ("kernel p1: tx_dropped", 3)];
        let none = Twice::default();
        assert_eq!(
            once(&all, none, &[("e0", 4)]),
            counts(&[("kernel e0: tx_dropped", 1), ("kernel p1: tx_dropped", 3)])
        );
        let told = [("kernel p1: tx_dropped", 3), ("kernel e1: rx_dropped", 3), ("switch: tx_error", 4)];
        let left = [("kernel p1: tx_dropped", 3), ("switch: tx_error", 1)];
        assert_eq!(once(&told, Twice { tx: true, ..none }, &[]), counts(&left));
    }
}

//! Counters of ports, workers and flows.

use super::*;

/// Totals of a counter slot over all workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotTotals {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// When it was last used, on the datapath's clock; 0 for never.
    pub last_used_ms: u64,
}

/// A driver's count of packets that it dropped for one reason.
type DriverDrops = fn(&PortStats) -> u64;

/// Reasons for which drivers drop packets that no worker sees, or sees no more.
pub(super) const BY_DRIVERS: [(DropReason, DriverDrops); 8] = [
    // Drops with counters of their own are also in `tx_dropped`.
    (DropReason::TxError, |s| {
        s.tx_errors + s.tx_dropped.saturating_sub(s.tx_mtu_drops + s.tx_quota_drops + s.tx_down_drops)
    }),
    (DropReason::TxPortDown, |s| s.tx_down_drops),
    (DropReason::TxMtuExceeded, |s| s.tx_mtu_drops),
    (DropReason::TxQuota, |s| s.tx_quota_drops),
    (DropReason::RxDropped, |s| s.rx_dropped.saturating_sub(s.rx_gso_size_drops + s.rx_gso_segments_drops)),
    (DropReason::RxError, |s| s.rx_errors),
    (DropReason::RxGsoSize, |s| s.rx_gso_size_drops),
    (DropReason::RxGsoSegments, |s| s.rx_gso_segments_drops),
];

/// A driver's count of packets dropped for a reason. Only drivers that have such a count are asked.
fn dropped_by_driver(port: &dyn Port, reason: DropReason) -> u64 {
    BY_DRIVERS.iter().find(|(by, _)| *by == reason).map_or(0, |(_, of)| of(&port.stats()))
}

/// How many slots beyond those in use are kept ready.
const SLOTS_AHEAD: u32 = 4096;

impl<P: Pipeline> Datapath<P> {
    /// What a port has moved, as its driver counts it. `tx_dropped` includes packets that it refused when a
    /// worker tried to send them ([`DropReason::TxQueueFull`]). Zeros if there is no such port.
    pub fn port_stats(&self, no: PortNo) -> PortStats {
        let mut stats = self.port(no).map(|port| port.stats()).unwrap_or_default();
        stats.tx_dropped += self.port_counters(no).iter().map(|c| c.tx_drops.get()).sum::<u64>();
        stats
    }

    /// A port's counters, one set per worker.
    pub fn port_counters(&self, no: PortNo) -> &[Arc<PortCounters>] {
        self.ports.get(&no).map_or(&[], |e| &e.counters)
    }

    /// Packets dropped for a reason by all workers, on the way to them, and by the drivers of present and
    /// removed ports.
    pub fn drops(&self, reason: DropReason) -> u64 {
        let by_drivers: u64 =
            self.ports.values().map(|entry| dropped_by_driver(entry.port.as_ref(), reason)).sum();
        self.drops_but_by_drivers(reason) + by_drivers
    }

    /// [`Self::drops`] for each reason. Asks each driver once, since that may be a system call.
    pub fn all_drops(&self) -> Vec<(DropReason, u64)> {
        let of_drivers: Vec<PortStats> = self.ports.values().map(|entry| entry.port.stats()).collect();
        let with_drivers = |reason: DropReason| {
            let count = BY_DRIVERS.iter().find(|(by, _)| *by == reason).map(|(_, of)| of);
            let by_drivers: u64 = count.map_or(0, |of| of_drivers.iter().map(of).sum());
            (reason, self.drops_but_by_drivers(reason) + by_drivers)
        };
        DropReason::ALL.iter().copied().map(with_drivers).collect()
    }

    /// Drops by workers, before any got the packet, and by the drivers of removed ports.
    fn drops_but_by_drivers(&self, reason: DropReason) -> u64 {
        let ended = self.retired.iter().map(|r| r.stats.drops.get(reason));
        let by_workers: u64 = self.workers.iter().map(|w| w.stats.drops.get(reason)).chain(ended).sum();
        let by_gone = self.dropped_by_gone.get(&reason.name()).copied().unwrap_or(0);
        by_workers + self.dropped_here.get(reason) + by_gone
    }

    /// Packets that came in at a port and were dropped for a reason, including drops by its driver.
    pub fn port_drops(&self, no: PortNo, reason: DropReason) -> u64 {
        let by_workers: u64 = self.port_counters(no).iter().map(|c| c.drops.get(reason)).sum();
        by_workers + self.port(no).map_or(0, |port| dropped_by_driver(port, reason))
    }

    /// Ensures that crediting slots below `count`, and a few thousand more, neither allocates nor faults. The
    /// pipeline's owner calls it after each change, and before a change that may take more slots than that.
    pub fn reserve_slots(&mut self, count: u32) {
        let count = count.saturating_add(SLOTS_AHEAD);
        for w in &self.workers {
            w.slots.reserve(count);
        }
        self.slots_reserved = self.slots_reserved.max(count);
    }

    /// What a slot has counted so far: everything that was folded, see [`Self::request_fold`].
    pub fn slot(&self, idx: u32) -> SlotTotals {
        let mut sum = SlotTotals::default();
        let tables = self.workers.iter().map(|w| &w.slots).chain(self.retired.iter().map(|r| &r.slots));
        for slot in tables.filter_map(|slots| slots.peek(idx)) {
            sum.packets += slot.packets.get();
            sum.bytes += slot.bytes.get();
            sum.last_used_ms = sum.last_used_ms.max(slot.last_used_ms.get());
        }
        sum
    }

    /// Zeroes a slot so that it can be reused. Only after a fold that was requested when no flow could credit
    /// the slot any more.
    pub fn clear_slot(&self, idx: u32) {
        for slots in self.workers.iter().map(|w| &w.slots).chain(self.retired.iter().map(|r| &r.slots)) {
            slots.clear(idx);
        }
    }

    /// Asks every worker to fold the counters of all flows into their slots. See [`Self::fold_done`].
    pub fn request_fold(&mut self) -> u64 {
        self.folds += 1;
        for w in &self.workers {
            w.shared.fold_wanted.raise(self.folds);
            w.bell.ring();
        }
        self.folds
    }

    /// Whether every worker has folded since that request.
    pub fn fold_done(&self, ticket: u64) -> bool {
        self.workers.iter().all(|w| w.shared.fold_done.reached() >= ticket)
    }

    /// Requests a fold and waits for it. False if the time runs out.
    pub fn fold(&mut self, timeout: Duration) -> bool {
        let ticket = self.request_fold();
        let end = Instant::now() + timeout;
        while !self.fold_done(ticket) {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_refuses_has_one_reason_whatever_it_is_counted_as() {
        let stats = PortStats {
            rx_dropped: 100,
            rx_errors: 7,
            rx_gso_size_drops: 20,
            rx_gso_segments_drops: 3,
            tx_dropped: 50,
            tx_errors: 9,
            tx_mtu_drops: 11,
            tx_quota_drops: 12,
            tx_down_drops: 13,
            ..PortStats::default()
        };
        let sum: u64 = BY_DRIVERS.iter().map(|(_, of)| of(&stats)).sum();
        assert_eq!(sum, 100 + 7 + 50 + 9);
        let of = |reason| BY_DRIVERS.iter().find(|(by, _)| *by == reason).map(|(_, of)| of(&stats));
        assert_eq!((of(DropReason::RxError), of(DropReason::TxError)), (Some(7), Some(9 + 50 - 36)));
    }
}

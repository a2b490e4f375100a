//! Counters of one queue: written by the worker that owns the queue, read by any thread.

use crate::virtio_net::BadHeader;
use base::Counter;
use packet::PortStats;

/// What one queue has moved, in one direction.
#[derive(Default, Debug)]
#[repr(align(64))]
pub struct QueueStats {
    /// Frames that passed.
    pub packets: Counter,
    /// Their bytes.
    pub bytes: Counter,
    /// Frames that this queue dropped (no buffer, device full for good).
    pub dropped: Counter,
    /// Frames that the device refused or delivered broken.
    pub errors: Counter,
    /// Frames dropped because they were longer than the MTU; they count as `dropped` too.
    pub mtu_drops: Counter,
    /// Frames dropped for a `gso_size` that is too small; they count as `dropped` too, as do the next two.
    pub gso_size_drops: Counter,
    /// Frames dropped because they would have become too many.
    pub gso_segments_drops: Counter,
    /// Frames dropped because those that wait hold the port's share of the pool.
    pub quota_drops: Counter,
    /// Frames dropped because the device is down; they count as `dropped` too.
    pub down_drops: Counter,
    /// How often a full device was tried again.
    pub retries: Counter,
    /// Frames whose payload went from its sender's memory straight into its receiver's.
    pub lent: Counter,
}

impl QueueStats {
    /// Counts `packets` frames of `bytes` together.
    #[inline(always)]
    pub fn passed(&self, packets: u64, bytes: u64) {
        self.packets.add(packets);
        self.bytes.add(bytes);
    }

    /// Counts a received frame that was refused for its header.
    #[cold]
    pub fn refused(&self, why: BadHeader) {
        let limit = match why {
            BadHeader::Nonsense => return self.errors.add(1),
            BadHeader::GsoSize => &self.gso_size_drops,
            BadHeader::GsoSegments => &self.gso_segments_drops,
        };
        limit.add(1);
        self.dropped.add(1);
    }

    /// Counts a frame for a device that is down.
    pub fn to_down(&self) {
        self.dropped.add(1);
        self.down_drops.add(1);
    }

    /// Counts a packet for which the port's share of the pool has no room.
    pub fn over_quota(&self) {
        self.dropped.add(1);
        self.quota_drops.add(1);
    }

    /// Counts one frame as too long to send.
    pub fn too_long(&self) {
        self.dropped.add(1);
        self.mtu_drops.add(1);
    }
}

/// Sums a port's queues.
pub(crate) fn sum<'a>(
    rx: impl IntoIterator<Item = &'a QueueStats>,
    tx: impl IntoIterator<Item = &'a QueueStats>,
) -> PortStats {
    let mut total = PortStats::default();
    for q in rx {
        total.rx_packets += q.packets.get();
        total.rx_bytes += q.bytes.get();
        total.rx_dropped += q.dropped.get();
        total.rx_errors += q.errors.get();
        total.rx_lent_packets += q.lent.get();
        total.rx_gso_size_drops += q.gso_size_drops.get();
        total.rx_gso_segments_drops += q.gso_segments_drops.get();
    }
    for q in tx {
        total.tx_packets += q.packets.get();
        total.tx_bytes += q.bytes.get();
        total.tx_dropped += q.dropped.get();
        total.tx_errors += q.errors.get();
        total.tx_mtu_drops += q.mtu_drops.get();
        total.tx_quota_drops += q.quota_drops.get();
        total.tx_down_drops += q.down_drops.get();
        total.tx_retries += q.retries.get();
    }
    total
}

//! The interface between a worker and a port's driver.
//!
//! A driver is three objects: the [`Port`], which the control thread configures and queries; its receive
//! queues, each polled by one worker; and its transmit queues. Queues are given out once and then belong to
//! the worker; only counters and flags are shared with the `Port`.
//!
//! Traps: `rx_burst` is called in a tight loop and must cost next to nothing when there are no packets. A
//! queue that can be waited on returns a descriptor from `wait_fd`, and `arm` then asks the driver to make
//! that descriptor readable for packets that have *already* arrived as well as for new ones; otherwise a
//! wake-up is lost.

use crate::lent::Lent;
use crate::rx_queue::RxQueue;
use crate::{Batch, Packet, PoolCache};
use std::collections::BTreeMap;

/// One transmit queue. Belongs to one worker, or is [shared](crate::SharedTx) where a port has fewer than
/// there are workers.
pub trait TxQueue: Send {
    /// Takes packets from the front of `batch` and leaves those that did not fit, in order. The driver frees
    /// the packets when it is done with them, and counts those that it sent. A packet that can never be sent
    /// (longer than the MTU) is taken, freed and counted in `PortStats`.
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch);

    /// Whether it copies lent tails directly, by `tx_write`.
    fn takes_lent(&self) -> bool {
        false
    }

    /// Writes packets, some with lent tails, as `tx_burst` does, once; leaves all of them to `tx_burst` if it
    /// can tell that they are not that simple. Returns how many it took from the front, for the caller to
    /// free. The receiver sees none of them before `tx_publish`, which the worker must call when their sender
    /// has its buffers back.
    fn tx_write(&mut self, _batch: &[Packet], _lent: &mut Lent<'_>) -> usize {
        0
    }

    /// Shows the receiver what was written. Does nothing if nothing was.
    fn tx_publish(&mut self) {}

    /// Whether it would accept `packets` now, as far as it can tell cheaply. A worker asks if the queue has
    /// refused some, so as not to receive packets that it would only have to drop. True if it cannot tell.
    fn has_room(&mut self, _packets: usize) -> bool {
        true
    }

    /// Called once per worker loop in which something was sent: rings the doorbell, reclaims transmitted
    /// packets.
    fn flush(&mut self, _cache: &mut PoolCache) {}

    /// Whether buffers are still in flight that only another `flush` reclaims.
    fn has_pending(&self) -> bool {
        false
    }

    /// No worker has the queue for the time being: drops and counts what waits in it for its receiver. It can
    /// be used again.
    fn set_aside(&mut self, _cache: &mut PoolCache) {}

    /// The worker gives the queue up: waits briefly for what is in flight and takes back buffers. Those that
    /// the device has even then come back with the port's end.
    fn close(&mut self, _cache: &mut PoolCache) {}
}

/// A port's state as the network sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// Frames pass.
    Up,
    /// They do not.
    Down,
}

/// Counters of a port, summed over its queues, since it was created. All except `dropped` and `errors` count
/// frames that actually passed; bytes are frame bytes without the checksum.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[allow(missing_docs)] // The names are those of RFC 2863 and of Open vSwitch's Interface statistics.
pub struct PortStats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_dropped: u64,
    pub rx_errors: u64,
    pub rx_over_errors: u64,
    pub rx_crc_errors: u64,
    pub rx_frame_errors: u64,
    pub rx_missed_errors: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_dropped: u64,
    pub tx_errors: u64,
    pub tx_mtu_drops: u64,
    pub tx_retries: u64,
    /// Of `rx_dropped`: segments with too small a `gso_size`.
    pub rx_gso_size_drops: u64,
    /// Of `rx_dropped`: segments that would have become too many frames.
    pub rx_gso_segments_drops: u64,
    /// Of `tx_dropped`: packets for a device that is down.
    pub tx_down_drops: u64,
    /// Of `tx_dropped`: packets beyond the port's share of the pool.
    pub tx_quota_drops: u64,
    /// Received frames whose payload was copied once, from its sender's memory into its receiver's.
    pub rx_lent_packets: u64,
    pub collisions: u64,
}

/// Frames are counted in this many size classes.
pub const FRAME_SIZES: usize = 8;

/// The counts of one queue of a port, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FrameCounts {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames of less than 64 bytes, of 64, and to 127, 255, 511, 1023, 1518, and longer ones.
    pub sizes: [u64; FRAME_SIZES],
    /// Frames to a group's address, broadcast not counted.
    pub multicast: u64,
    /// Frames to everybody.
    pub broadcast: u64,
    /// How often the guest was notified.
    pub notifications: u64,
}

/// The same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueCounts {
    /// Into the switch.
    pub rx: FrameCounts,
    /// Out of the switch.
    pub tx: FrameCounts,
}

/// A port's status, for the control side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// Whether frames can pass.
    pub link: LinkState,
    /// Whether it is administratively up.
    pub admin_up: bool,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Largest network-layer packet in bytes (1500 for a plain Ethernet).
    pub mtu: u32,
    /// Link speed in bits per second, 0 where unknown or without meaning.
    pub speed_bps: u64,
    /// The kernel's interface index, 0 if there is none; for a guest's port, a number derived from its name.
    pub ifindex: u32,
    /// Driver-specific keys and values for the `status` column (the mode that AF_XDP chose, why a port does
    /// not work).
    pub details: Vec<(String, String)>,
    /// Why the port does not work, if it does not.
    pub error: Option<String>,
}

impl PortStatus {
    /// Of one that is up, and has nothing else to tell.
    pub fn up(mac: [u8; 6], mtu: u32) -> PortStatus {
        PortStatus {
            link: LinkState::Up,
            admin_up: true,
            mac,
            mtu,
            speed_bps: 0,
            ifindex: 0,
            details: Vec::new(),
            error: None,
        }
    }
}

/// A port, from the control thread's side. Dropping it removes what it made in the kernel, but for a device
/// that shall outlive the process; that may take the kernel long.
pub trait Port: Send {
    /// The port type of Open vSwitch's naming (`afxdp`, `tap`, `dummy`, ...).
    fn kind(&self) -> &'static str;

    /// The receive queues; later calls return those that the device has got since (a guest decides how many
    /// it uses).
    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>>;

    /// How many of the receive queues, counting from the last, are no longer useful: their workers drop them.
    /// `take_rx_queues` may give them out again. (For a guest that is gone.)
    fn give_up_rx_queues(&mut self) -> usize {
        0
    }

    /// Whether the receive queue can receive now: a guest may have disabled it.
    fn is_rx_enabled(&self, _queue: usize) -> bool {
        true
    }

    /// `count` transmit queues, or as many as the device has (at least one), once.
    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>>;

    /// Counters, exact once traffic stops.
    fn stats(&self) -> PortStats;

    /// The counts of each pair of queues, for ports whose statistics distinguish them.
    fn queue_counts(&self) -> Vec<QueueCounts> {
        Vec::new()
    }

    /// The present status. May ask the kernel.
    fn status(&self) -> PortStatus;

    /// Sets the port up or down administratively.
    fn set_admin_up(&mut self, up: bool) -> Result<(), String>;

    /// Sets the MTU in bytes. Error text where the device cannot.
    fn set_mtu(&mut self, mtu: u32) -> Result<(), String>;

    /// Sets the Ethernet address. Error text where the device cannot.
    fn set_mac(&mut self, _mac: [u8; 6]) -> Result<(), String> {
        Err(format!("the address of a port of type {} is not the switch's to set", self.kind()))
    }

    /// Applies new options to the running port: true if they are in force, false if the port must be reopened
    /// for them, in which case nothing has changed. `options` are all of them, and valid for the type.
    fn set_options(&mut self, _options: &BTreeMap<String, String>) -> Result<bool, String> {
        Ok(false)
    }

    /// The NUMA node of its packets: the device's, or that of a guest's memory. `None` if it has none.
    fn numa_node(&self) -> Option<usize> {
        None
    }

    /// The index of the kernel device that the port has created and that must be removed when the port is
    /// released for good: before the port is dropped, and many together, which costs the kernel little more
    /// than one.
    fn own_device(&self) -> Option<u32> {
        None
    }

    /// A command of the tests' ports (`netdev-dummy/receive`); others refuse it.
    fn as_dummy(&self) -> Option<&dyn DummyControl> {
        None
    }
}

/// A handle with which tests inject and observe frames at a `dummy` port.
pub trait DummyControl: Send + Sync {
    /// Queues a frame as if it had been received at the first queue. False where the queue (of 10,000 frames)
    /// is full.
    fn inject(&self, frame: &[u8]) -> bool {
        self.inject_at(0, frame) == Some(true)
    }
    /// The same at another queue; `None` if the port has no queue with that number.
    fn inject_at(&self, queue: usize, frame: &[u8]) -> Option<bool>;
    /// Frames that wait to be received.
    fn waiting(&self) -> usize;
    /// Whether the other end of its cable is connected (`options:stream`); `None`: the port connects to
    /// nothing.
    fn is_connected(&self) -> Option<bool>;
    /// Takes the frames sent since the last call (the last 10,000 are kept).
    fn take_sent(&self) -> Vec<Vec<u8>>;
}

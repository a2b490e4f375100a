//! Counters on the packet path. Every counter has one writer, the worker, and is read in place.
//!
//! The balance of a worker at rest: `rx + copies = tx + packet_ins + surplus + sum of drops`.

use base::{Counter, DropReason};

/// Stages whose cycles are sampled, in the order in which a packet passes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The driver's receive call.
    Rx,
    /// Reading keys from packets.
    Extract,
    /// Exact-match lookup.
    Exact,
    /// Megaflow lookup.
    Megaflow,
    /// Actions of packets that hit.
    Execute,
    /// Translation, installation and execution of packets that missed.
    Miss,
    /// The driver's transmit call.
    Tx,
}

impl Stage {
    /// How many there are.
    pub const COUNT: usize = 7;
    /// The names of all.
    pub const NAMES: [&'static str; Stage::COUNT] =
        ["rx", "extract", "exact", "megaflow", "execute", "miss", "tx"];
}

/// Counters of one worker.
#[derive(Default, Debug)]
pub struct WorkerStats {
    /// Packets received from ports, and packets sent by the control thread.
    pub rx: Counter,
    /// Copies made (several outputs, packet-ins, samples).
    pub copies: Counter,
    /// Packets that a port's driver accepted.
    pub tx: Counter,
    /// Packets sent to the control thread.
    pub packet_ins: Counter,
    /// Copies left over at the end of an action list that had delivered others.
    pub surplus: Counter,
    /// Packets dropped, by reason.
    pub drops: Drops,
    /// Lookups answered by the exact tier.
    pub exact_hits: Counter,
    /// Lookups answered by the megaflow tier.
    pub megaflow_hits: Counter,
    /// Masks searched for megaflow hits and for misses.
    pub masks_searched: Counter,
    /// Lookups answered by translation.
    pub misses: Counter,
    /// Flows that a change has affected.
    pub touched: Counter,
    /// Flows whose effects were refused, and which were therefore not cached.
    pub effects_refused: Counter,
    /// Flows that were not cached for lack of room or because they must not be.
    pub not_cached: Counter,
    /// Translations that read deeper than extraction had: the pipeline reported a wrong depth.
    pub depth_misses: Counter,
    /// Packets looked up by their whole keys because their port has too many origins (see `cache::origins`).
    pub origins_full: Counter,
    /// Packets recirculated.
    pub recirculations: Counter,
    /// Those among them that did not wait for another round, see `process::tracked`.
    pub followed: Counter,
    /// Loops that moved packets.
    pub busy_loops: Counter,
    /// Loops that moved none.
    pub idle_loops: Counter,
    /// TSC cycles of loops that moved packets.
    pub busy_cycles: Counter,
    /// TSC cycles of polling without packets.
    pub idle_cycles: Counter,
    /// The most CPU time in nanoseconds that one pass of the loop took, if [`crate::Config::measure_passes`]
    /// is set: too high by at most 100 us. The reader may set it to 0.
    pub longest_pass_ns: Counter,
    /// How often a receive queue was held back because the only output that it feeds was full.
    pub held_back: Counter,
    /// How often it went to sleep.
    pub sleeps: Counter,
    /// TSC cycles spent asleep.
    pub sleep_cycles: Counter,
    /// The time stamp counter at its start.
    pub began: Counter,
    /// Gauge: megaflows.
    pub megaflows: Counter,
    /// Gauge: exact entries.
    pub exact_entries: Counter,
    /// Gauge: distinct masks.
    pub masks: Counter,
    /// Gauge: bytes of the caches in use.
    pub cache_bytes: Counter,
    /// Entries evicted.
    pub evictions: Counter,
    /// Cycles in the sampled bursts, by stage.
    pub stage_cycles: [Counter; Stage::COUNT],
    /// Packets in the sampled bursts.
    pub stage_packets: Counter,
}

/// What a receive queue costs its workers.
#[derive(Default, Debug)]
pub struct QueueLoad {
    /// TSC cycles from reception to the last action, for bursts with packets, also refused ones.
    pub cycles: Counter,
    /// Packets received.
    pub packets: Counter,
}

/// Drop counters by reason.
#[derive(Debug)]
pub struct Drops([Counter; DropReason::COUNT]);

impl Default for Drops {
    fn default() -> Self {
        Drops(std::array::from_fn(|_| Counter::new()))
    }
}

impl Drops {
    /// Counts packets.
    #[inline]
    pub fn add(&self, reason: DropReason, packets: u64) {
        self.0[reason as usize].add(packets);
    }

    /// Packets dropped for a reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].get()
    }

    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}

/// Counters of one port on one worker.
#[derive(Default, Debug)]
pub struct PortCounters {
    /// Packets received.
    pub rx_packets: Counter,
    /// Their bytes.
    pub rx_bytes: Counter,
    /// Packets that the driver accepted.
    pub tx_packets: Counter,
    /// Their bytes.
    pub tx_bytes: Counter,
    /// Packets that came in here and were dropped, by reason.
    pub drops: Drops,
    /// Packets that were to leave here and were dropped (they are also in the input port's `drops`).
    pub tx_drops: Counter,
}

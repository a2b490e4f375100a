//! What is counted on the packet path. Every counter has one writer, the worker, and is read in place.
//!
//! The account of a worker: `rx + copies = tx + packet_ins + surplus + sum of drops`, once it is at rest.

use base::{Counter, DropReason};

/// Stages whose cycles are sampled, in the order of a packet's way.
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
    /// How many.
    pub const COUNT: usize = 7;
    /// All, with their names.
    pub const NAMES: [&'static str; Stage::COUNT] =
        ["rx", "extract", "exact", "megaflow", "execute", "miss", "tx"];
}

/// Counters of one worker.
#[derive(Default, Debug)]
pub struct WorkerStats {
    /// Packets received from ports, and those that the control thread sent.
    pub rx: Counter,
    /// Copies made (several outputs, packet-ins, samples).
    pub copies: Counter,
    /// Packets handed to a port's driver that took them.
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
    /// Masks searched for those and for misses.
    pub masks_searched: Counter,
    /// Lookups answered by translation.
    pub misses: Counter,
    /// Flows found to be touched by a change.
    pub touched: Counter,
    /// Flows whose effects were refused, and which were therefore not cached.
    pub effects_refused: Counter,
    /// Flows that were not cached for lack of room or because they must not be.
    pub not_cached: Counter,
    /// Translations that read deeper than extraction had: the pipeline's depth was wrong.
    pub depth_misses: Counter,
    /// Packets looked up by their whole keys since their port has too many origins (see `cache::origins`).
    pub origins_full: Counter,
    /// Packets that went round again.
    pub recirculations: Counter,
    /// Of them, those that did so without waiting for another round, see `process::tracked`.
    pub followed: Counter,
    /// Loops, those that moved packets alone.
    pub busy_loops: Counter,
    /// Loops that moved none.
    pub idle_loops: Counter,
    /// TSC cycles of loops that moved packets.
    pub busy_cycles: Counter,
    /// TSC cycles of polling in vain.
    pub idle_cycles: Counter,
    /// Most CPU time in nanoseconds that a pass of the loop took, [`crate::Config::measure_passes`] given: at
    /// most 100 us too much. The reader may set it to 0.
    pub longest_pass_ns: Counter,
    /// Times that a receive queue was held back because the one output that it feeds was full.
    pub held_back: Counter,
    /// Times it went to sleep.
    pub sleeps: Counter,
    /// TSC cycles that it slept.
    pub sleep_cycles: Counter,
    /// The time stamp counter when it began.
    pub began: Counter,
    /// Gauge: megaflows.
    pub megaflows: Counter,
    /// Gauge: exact entries.
    pub exact_entries: Counter,
    /// Gauge: distinct masks.
    pub masks: Counter,
    /// Gauge: bytes of the caches in use.
    pub cache_bytes: Counter,
    /// Entries that had to give way.
    pub evictions: Counter,
    /// Cycles in the sampled bursts, by stage.
    pub stage_cycles: [Counter; Stage::COUNT],
    /// Packets in the sampled bursts.
    pub stage_packets: Counter,
}

/// What a receive queue has cost its workers.
#[derive(Default, Debug)]
pub struct QueueLoad {
    /// TSC cycles from reception to the last action, of bursts with packets.
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

    /// Packets dropped.
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
    /// Packets that the driver took.
    pub tx_packets: Counter,
    /// Their bytes.
    pub tx_bytes: Counter,
    /// Packets that came in here and were dropped, by reason.
    pub drops: Drops,
    /// Packets that were to go out here and were dropped (they are in the input port's `drops` too).
    pub tx_drops: Counter,
}

//! The figures: one snapshot of everything that the switch counts, taken in one pass, with a name for each
//! number. Texts of commands, `crosspoint/figures` (JSON), `crosspoint top` and the demo are views of it.
//!
//! Counters only grow, so rates are differences of two snapshots. A recreated worker or port starts at zero.

use base::DropReason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Grows when a field changes its meaning or goes. New fields may come without.
pub const VERSION: u32 = 1;

/// See the module documentation.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// [`VERSION`].
    pub version: u32,
    /// When they were taken, in milliseconds on the switch's clock.
    pub now_ms: u64,
    /// One entry per worker.
    pub workers: Vec<Worker>,
    /// One entry per receive queue.
    pub queues: Vec<Queue>,
    /// One entry per port with a device.
    pub ports: Vec<Port>,
    /// Packets that were dropped, by reason; reasons without any are left out.
    pub drops: Vec<Drop>,
    /// Rules, and what is cached of them.
    pub flows: Flows,
    /// Packet buffers.
    pub buffers: Buffers,
    /// Maximum number of packets that a worker receives from a queue at once.
    #[serde(default)]
    pub burst: usize,
    /// OpenFlow.
    pub controllers: Controllers,
    /// Transactions with the database.
    pub database: Database,
}

/// A worker.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Worker {
    /// Its number.
    pub worker: usize,
    /// The worker's processor.
    pub core: usize,
    /// The NUMA node of that processor.
    pub numa: usize,
    /// What the worker has counted.
    pub counters: WorkerCounters,
}

/// What a worker has counted since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WorkerCounters {
    /// Packets received.
    pub rx: u64,
    /// Packets sent.
    pub tx: u64,
    /// Packets that went round again.
    pub recirculations: u64,
    /// Lookups answered by the exact-match tier.
    pub exact_hits: u64,
    /// Lookups answered by megaflows.
    pub megaflow_hits: u64,
    /// Lookups answered by translation.
    pub misses: u64,
    /// Packets that could not be translated.
    pub lost: u64,
    /// Masks searched for megaflows.
    pub masks_searched: u64,
    /// Loops that moved packets.
    pub busy_loops: u64,
    /// TSC cycles of those loops.
    pub busy_cycles: u64,
    /// Loops that moved no packets.
    pub idle_loops: u64,
    /// TSC cycles of those loops.
    pub idle_cycles: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// TSC cycles that it slept.
    pub sleep_cycles: u64,
    /// The time stamp counter: when these were read, or, as a difference, how long they took.
    pub tsc: u64,
}

/// A receive queue.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Queue {
    /// Its port's name.
    pub port: String,
    /// Its number there.
    pub queue: usize,
    /// The worker that polls it.
    pub worker: usize,
    /// Share of its worker's time over the last minute, in percent.
    pub usage_percent: u64,
}

/// A port's traffic, as its driver counts it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Port {
    /// The datapath's number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Its driver's details, as in the column `status` of its interface.
    #[serde(default)]
    pub status: BTreeMap<String, String>,
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets lost before they were received.
    pub rx_dropped: u64,
    /// Packets received and unusable.
    pub rx_errors: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that it did not take.
    pub tx_dropped: u64,
    /// Packets that it could not send.
    pub tx_errors: u64,
}

/// Packets dropped for one reason.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Drop {
    /// The reason's name.
    pub reason: String,
    /// How many.
    pub packets: u64,
    /// The same by the port that they came in at. The rest is of ports that are gone.
    pub ports: Vec<(String, u64)>,
}

/// Rules, and what is cached of them.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Flows {
    /// Rules of all bridges.
    pub rules: u64,
    /// Megaflows of all workers.
    pub megaflows: u64,
    /// Entries of their exact-match tiers.
    pub exact_entries: u64,
    /// Bytes of their caches.
    pub cache_bytes: u64,
}

/// Packet buffers.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Buffers {
    /// Bytes of all.
    pub bytes: u64,
    /// How many are free.
    pub free: u64,
}

/// OpenFlow.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Controllers {
    /// Connections, those of tools included.
    pub connections: u64,
    /// Messages received.
    pub received: u64,
    /// Messages refused.
    pub refused: u64,
    /// Packet-ins sent.
    pub packet_ins: u64,
    /// Packet-ins lost because there was no room.
    pub packet_ins_lost: u64,
    /// Connections cut with output that their peers did not take.
    pub cut: u64,
}

/// Transactions with the database.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Database {
    /// Committed.
    pub committed: u64,
    /// Refused.
    pub failed: u64,
    /// Times that the switch was made what the rows say.
    pub reconfigurations: u64,
}

impl Figures {
    /// Parses the output of `crosspoint/figures`. The error is a sentence.
    pub fn parse(text: &str) -> Result<Figures, String> {
        let figures: Figures = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match figures.version {
            VERSION => Ok(figures),
            other => Err(format!("the switch has figures of version {other}, this program reads {VERSION}")),
        }
    }

    /// The same as text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names are JSON")
    }
}

impl WorkerCounters {
    /// Reads the current values.
    pub(crate) fn of(w: &datapath::WorkerStats) -> WorkerCounters {
        WorkerCounters {
            rx: w.rx.get(),
            tx: w.tx.get(),
            recirculations: w.recirculations.get(),
            exact_hits: w.exact_hits.get(),
            megaflow_hits: w.megaflow_hits.get(),
            misses: w.misses.get(),
            lost: w.drops.get(DropReason::TranslationError),
            masks_searched: w.masks_searched.get(),
            busy_loops: w.busy_loops.get(),
            busy_cycles: w.busy_cycles.get(),
            idle_loops: w.idle_loops.get(),
            idle_cycles: w.idle_cycles.get(),
            sleeps: w.sleeps.get(),
            sleep_cycles: w.sleep_cycles.get(),
            tsc: base::clock::tsc(),
        }
    }

    /// The increase since. A counter that went back belongs to another worker, and counts from zero.
    pub fn since(&self, before: &WorkerCounters) -> WorkerCounters {
        let d = |of: fn(&WorkerCounters) -> u64| of(self).checked_sub(of(before)).unwrap_or(of(self));
        WorkerCounters {
            rx: d(|c| c.rx),
            tx: d(|c| c.tx),
            recirculations: d(|c| c.recirculations),
            exact_hits: d(|c| c.exact_hits),
            megaflow_hits: d(|c| c.megaflow_hits),
            misses: d(|c| c.misses),
            lost: d(|c| c.lost),
            masks_searched: d(|c| c.masks_searched),
            busy_loops: d(|c| c.busy_loops),
            busy_cycles: d(|c| c.busy_cycles),
            idle_loops: d(|c| c.idle_loops),
            idle_cycles: d(|c| c.idle_cycles),
            sleeps: d(|c| c.sleeps),
            sleep_cycles: d(|c| c.sleep_cycles),
            tsc: d(|c| c.tsc),
        }
    }

    /// Cycles without packets, asleep or not.
    pub fn idle(&self) -> u64 {
        self.idle_cycles + self.sleep_cycles
    }

    /// Lookups in all.
    pub fn lookups(&self) -> u64 {
        self.exact_hits + self.megaflow_hits + self.misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_another_version_is_refused() {
        let figures = Figures {
            version: VERSION,
            drops: vec![Drop { reason: "no_rule".into(), packets: 3, ports: vec![("p1".into(), 2)] }],
            ..Figures::default()
        };
        assert_eq!(Figures::parse(&figures.to_json()), Ok(figures.clone()));
        let newer = Figures { version: VERSION + 1, ..figures };
        assert!(Figures::parse(&newer.to_json()).unwrap_err().contains("version 2"));
        assert!(Figures::parse("{}").is_err());
    }

    #[test]
    fn a_counter_that_went_back_counts_from_zero() {
        let before = WorkerCounters { rx: 10, tx: 5, ..WorkerCounters::default() };
        let now = WorkerCounters { rx: 4, tx: 8, ..WorkerCounters::default() };
        let since = now.since(&before);
        assert_eq!((since.rx, since.tx), (4, 3));
    }
}

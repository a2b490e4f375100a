//! The switch's counters: of its [figures](vswitchd::figures), those that the demo shows.

use super::lab::{GUEST_PORT, PORTS};
use std::fs;
use std::time::Instant;
use vswitchd::figures::{Figures, WorkerCounters};

/// Counters at a moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The moment.
    pub at: Instant,
    /// CPU time of the switch's process, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the guest's process, in nanoseconds.
    pub guest_cpu_ns: u64,
    /// Packets by the tier that knew what to do.
    pub lookups: Lookups,
    /// Packets per port.
    pub ports: Vec<Port>,
}

/// Lookups, summed over workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lookups {
    /// Found in the exact-match tier.
    pub exact: u64,
    /// Found among the megaflows.
    pub megaflow: u64,
    /// Translated.
    pub missed: u64,
}

impl Lookups {
    /// The lookups since an earlier sample.
    pub fn since(&self, before: &Lookups) -> Lookups {
        Lookups {
            exact: self.exact.saturating_sub(before.exact),
            megaflow: self.megaflow.saturating_sub(before.megaflow),
            missed: self.missed.saturating_sub(before.missed),
        }
    }

    /// The sum of all lookups.
    pub fn total(&self) -> u64 {
        self.exact + self.megaflow + self.missed
    }
}

/// A port's counters.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Packets received.
    pub rx: u64,
    /// Packets that the port's ring had no room for.
    pub rx_dropped: u64,
    /// Packets sent.
    pub tx: u64,
}

/// Drops: reason, packets, and the same by input port.
pub type Drops = Vec<(String, u64, Vec<(String, u64)>)>;

/// Lookups of all workers.
pub fn lookups(figures: &Figures) -> Lookups {
    let sum = |of: fn(&WorkerCounters) -> u64| figures.workers.iter().map(|w| of(&w.counters)).sum();
    Lookups { exact: sum(|c| c.exact_hits), megaflow: sum(|c| c.megaflow_hits), missed: sum(|c| c.misses) }
}

/// The ports that carry packets, which the bridge's own does not.
pub fn ports(figures: &Figures) -> Vec<Port> {
    let is_shown = |name: &str| name == GUEST_PORT || PORTS.contains(&name);
    let shown = figures.ports.iter().filter(|port| is_shown(&port.name));
    let ports = shown.map(|port| Port {
        name: port.name.clone(),
        rx: port.rx_packets,
        rx_dropped: port.rx_dropped,
        tx: port.tx_packets,
    });
    ports.collect()
}

/// Drops by reason and port.
pub fn drops(figures: Figures) -> Drops {
    figures.drops.into_iter().map(|drop| (drop.reason, drop.packets, drop.ports)).collect()
}

/// CPU time of all threads of a process, from the scheduler.
pub fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    times.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vswitchd::figures::Worker;

    #[test]
    fn lookups_are_summed_over_workers() {
        let counters =
            WorkerCounters { exact_hits: 4, megaflow_hits: 3, misses: 3, ..WorkerCounters::default() };
        let worker = Worker { counters, ..Worker::default() };
        let counted = lookups(&Figures { workers: vec![worker.clone(), worker], ..Figures::default() });
        assert_eq!(counted, Lookups { exact: 8, megaflow: 6, missed: 6 });
        assert_eq!((counted.total(), counted.since(&counted).total()), (20, 0));
    }

    #[test]
    fn this_process_uses_cpu_time() {
        assert!(cpu_ns(std::process::id()) > 0);
        assert_eq!(cpu_ns(u32::MAX), 0);
    }
}

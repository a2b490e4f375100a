//! The switch's counters, read from the texts of its control commands. Those are an interface: what
//! monitoring scripts read, the demo can read.

use super::lab::{GUEST_PORT, PORTS};
use std::fs;
use std::time::Instant;

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
    /// What has come since.
    pub fn since(&self, before: &Lookups) -> Lookups {
        Lookups {
            exact: self.exact.saturating_sub(before.exact),
            megaflow: self.megaflow.saturating_sub(before.megaflow),
            missed: self.missed.saturating_sub(before.missed),
        }
    }

    /// All of them.
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

/// From `dpif-netdev/pmd-stats-show`.
pub fn lookups(text: &str) -> Lookups {
    let sum = |key: &str| {
        let values = text.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        values.filter_map(|value| value.trim().parse::<u64>().ok()).sum()
    };
    Lookups {
        exact: sum("emc hits"),
        megaflow: sum("megaflow hits"),
        missed: sum("miss with success upcall") + sum("miss with failed upcall"),
    }
}

/// From `dpctl/show -s`: the ports that carry packets, which the bridge's own does not.
pub fn ports(text: &str) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("port ") {
            let name = rest.split_whitespace().nth(1).unwrap_or_default().trim_end_matches(':');
            ports.push(Port { name: name.into(), ..Port::default() });
        } else if let (Some(port), Some(rest)) = (ports.last_mut(), line.strip_prefix("RX packets:")) {
            port.rx = leading(rest);
            port.rx_dropped = rest.split("dropped:").nth(1).map_or(0, leading);
        } else if let (Some(port), Some(rest)) = (ports.last_mut(), line.strip_prefix("TX packets:")) {
            port.tx = leading(rest);
        }
    }
    ports.retain(|port| port.name == GUEST_PORT || PORTS.contains(&port.name.as_str()));
    ports
}

/// From `crosspoint/drops`.
pub fn drops(text: &str) -> Drops {
    let mut drops = Drops::new();
    for line in text.lines() {
        let Some((name, count)) = line.trim().rsplit_once(": ") else { continue };
        let count = leading(count);
        if !line.starts_with(' ') {
            drops.push((name.into(), count, Vec::new()));
        } else if let Some((_, _, ports)) = drops.last_mut() {
            ports.push((name.into(), count));
        }
    }
    drops
}

/// The number that a text begins with; 0 where there is none.
fn leading(text: &str) -> u64 {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}

/// CPU time of all threads of a process, by the scheduler's own account.
pub fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    times.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_are_summed_over_workers() {
        let worker = "pmd thread numa_id 0 core_id 0:\n  packets received: 9\n  emc hits: 4\n  smc hits: 70\n  \
                      megaflow hits: 3\n  avg. subtable lookups per megaflow hit: 1.00\n  \
                      miss with success upcall: 2\n  miss with failed upcall: 1\n";
        let counted = lookups(&worker.repeat(2));
        assert_eq!(counted, Lookups { exact: 8, megaflow: 6, missed: 6 });
        assert_eq!((counted.total(), counted.since(&counted).total()), (20, 0));
    }

    #[test]
    fn ports_are_read_with_their_counters() {
        let text = "netdev@ovs-netdev:\n  lookups: hit:1 missed:2 lost:0\n  flows: 3\n  port 100: cp-demo-br0 (internal)\n    \
                    RX packets:0 errors:0 dropped:0 overruns:0 frame:0\n    TX packets:7 errors:0 dropped:0\n  \
                    port 1: cp-demo-p1 (afxdp: xdp-mode=native)\n    \
                    RX packets:12 errors:0 dropped:34 overruns:0 frame:0\n    \
                    TX packets:56 errors:0 dropped:0 aborted:? carrier:?\n    collisions:0\n    RX bytes:1  TX bytes:2\n";
        assert_eq!(ports(text), [Port { name: "cp-demo-p1".into(), rx: 12, rx_dropped: 34, tx: 56 }]);
        assert_eq!(ports(""), []);
    }

    #[test]
    fn drops_are_read_by_reason_and_port() {
        let text = "table_miss: 1000\n  p1: 999\n  p2: 1\ntx_queue_full: 3\n";
        let ports = vec![("p1".to_string(), 999), ("p2".to_string(), 1)];
        assert_eq!(
            drops(text),
            [("table_miss".to_string(), 1000, ports), ("tx_queue_full".into(), 3, vec![])]
        );
    }

    #[test]
    fn this_process_uses_cpu_time() {
        assert!(cpu_ns(std::process::id()) > 0);
        assert_eq!(cpu_ns(u32::MAX), 0);
    }
}

//! What a running switch says of itself, read from the texts of its commands.
//!
//! The texts are the ones that `ovs-appctl` prints, so that one program can look at a switch of another
//! version; what cannot be read is an error that names the command and the line, never a zero.

use std::time::Instant;
use vswitchd::unixctl::Client;

/// Its counters at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// By worker.
    pub workers: Vec<Worker>,
    /// Receive queues.
    pub queues: Vec<Queue>,
    /// Ports of the datapath.
    pub ports: Vec<Port>,
    /// Packets dropped, by reason.
    pub drops: Vec<(String, u64)>,
}

/// One worker's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // As `dpif-netdev/pmd-stats-show` names them.
pub struct Worker {
    /// The number of its processor.
    pub core: String,
    pub received: u64,
    pub exact_hits: u64,
    pub megaflow_hits: u64,
    pub misses: u64,
    pub idle_cycles: u64,
    pub busy_cycles: u64,
}

/// One receive queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Its worker's processor.
    pub core: String,
    /// Whose.
    pub port: String,
    /// Its number there.
    pub number: u32,
    /// Share of its worker's time in the last minute, in per cent.
    pub usage: u32,
}

/// One port's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // As `dpctl/show -s` names them.
pub struct Port {
    pub name: String,
    pub kind: String,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    /// Dropped and erroneous.
    pub rx_lost: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_lost: u64,
}

impl Sample {
    /// Asks a switch. The error is a sentence.
    pub fn take(client: &mut Client) -> Result<Sample, String> {
        let at = Instant::now();
        let mut ask = |command: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|a| (*a).to_string()).collect();
            let refused = |text: String| format!("{command}: {}", text.trim());
            client.run(command, &args).map_err(|e| e.to_string())?.map_err(refused)
        };
        Ok(Sample {
            at,
            workers: workers(&ask("dpif-netdev/pmd-stats-show", &[])?)?,
            queues: queues(&ask("dpif-netdev/pmd-rxq-show", &[])?)?,
            ports: ports(&ask("dpctl/show", &["-s"])?)?,
            drops: drops(&ask("crosspoint/drops", &[])?)?,
        })
    }
}

fn odd(command: &str, line: &str) -> String {
    format!("{command}: `{}` cannot be parsed", line.trim())
}

/// The number after `name`, up to what is no digit.
fn number_after(line: &str, name: &str) -> Option<u64> {
    let rest = line.split_once(name)?.1.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The processor of a line that begins a worker's part.
fn core_of(line: &str) -> Option<&str> {
    line.strip_prefix("pmd thread ")?.split_once("core_id ")?.1.strip_suffix(':')
}

fn workers(text: &str) -> Result<Vec<Worker>, String> {
    const COMMAND: &str = "dpif-netdev/pmd-stats-show";
    let mut all: Vec<Worker> = Vec::new();
    for line in text.lines() {
        if let Some(core) = core_of(line) {
            all.push(Worker { core: core.to_string(), ..Worker::default() });
            continue;
        }
        let Some(worker) = all.last_mut() else { return Err(odd(COMMAND, line)) };
        let Some((name, _)) = line.trim().split_once(':') else { return Err(odd(COMMAND, line)) };
        let place = match name {
            "packets received" => &mut worker.received,
            "emc hits" => &mut worker.exact_hits,
            "megaflow hits" => &mut worker.megaflow_hits,
            "miss with success upcall" => &mut worker.misses,
            "idle cycles" => &mut worker.idle_cycles,
            "processing cycles" => &mut worker.busy_cycles,
            _ => continue,
        };
        *place = number_after(line, ": ").ok_or_else(|| odd(COMMAND, line))?;
    }
    Ok(all)
}

fn queues(text: &str) -> Result<Vec<Queue>, String> {
    const COMMAND: &str = "dpif-netdev/pmd-rxq-show";
    let (mut all, mut core) = (Vec::new(), None);
    for line in text.lines() {
        if let Some(new) = core_of(line) {
            core = Some(new.to_string());
        }
        let Some(rest) = line.trim().strip_prefix("port: ") else { continue };
        let queue = || {
            let number = number_after(rest, "queue-id: ")?;
            let usage = number_after(rest, "pmd usage: ")?;
            let port = rest.split_whitespace().next()?.to_string();
            Some(Queue { core: core.clone()?, port, number: number as u32, usage: usage as u32 })
        };
        all.push(queue().ok_or_else(|| odd(COMMAND, line))?);
    }
    Ok(all)
}

fn ports(text: &str) -> Result<Vec<Port>, String> {
    const COMMAND: &str = "dpctl/show";
    let mut all: Vec<Port> = Vec::new();
    for line in text.lines() {
        let words = line.trim();
        if let Some(rest) = words.strip_prefix("port ") {
            let named = || {
                let (name, kind) = rest.split_once(": ")?.1.split_once(" (")?;
                let kind = kind.split([':', ')']).next()?;
                Some(Port { name: name.into(), kind: kind.into(), ..Port::default() })
            };
            all.push(named().ok_or_else(|| odd(COMMAND, line))?);
            continue;
        }
        let Some(port) = all.last_mut() else { continue };
        let lost = || Some(number_after(words, "errors:")? + number_after(words, "dropped:")?);
        let read = || {
            if words.starts_with("RX packets:") {
                let (packets, lost) = (number_after(words, "packets:")?, lost()?);
                Some(Port { rx_packets: packets, rx_lost: lost, ..port.clone() })
            } else if words.starts_with("TX packets:") {
                let (packets, lost) = (number_after(words, "packets:")?, lost()?);
                Some(Port { tx_packets: packets, tx_lost: lost, ..port.clone() })
            } else if words.starts_with("RX bytes:") {
                let (rx, tx) = (number_after(words, "RX bytes:")?, number_after(words, "TX bytes:")?);
                Some(Port { rx_bytes: rx, tx_bytes: tx, ..port.clone() })
            } else {
                Some(port.clone())
            }
        };
        *port = read().ok_or_else(|| odd(COMMAND, line))?;
    }
    Ok(all)
}

fn drops(text: &str) -> Result<Vec<(String, u64)>, String> {
    // Indented lines say by which port.
    let reasons = text.lines().filter(|line| !line.starts_with(' '));
    let read = |line: &str| {
        let (reason, count) = line.split_once(": ")?;
        Some((reason.to_string(), count.trim().parse().ok()?))
    };
    reasons.map(|line| read(line).ok_or_else(|| odd("crosspoint/drops", line))).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const STATS: &str = "pmd thread numa_id 0 core_id 1:
  packets received: 2000
  packet recirculations: 0
  emc hits: 1500
  smc hits: 0
  megaflow hits: 400
  miss with success upcall: 100
  miss with failed upcall: 0
  avg. packets per output batch: 12.50
  idle cycles: 3000 (75.00%)
  processing cycles: 1000 (25.00%)
pmd thread numa_id 0 core_id 3:
  packets received: 0
";
    const QUEUES: &str = "Displaying last 60 seconds pmd usage %
pmd thread numa_id 0 core_id 1:
  isolated : false
  port: p1                queue-id:  0 (enabled)   pmd usage: 12 %
  port: vm1               queue-id:  1 (enabled)   pmd usage:  0 %
";
    const PORTS: &str = "netdev@ovs-netdev:
  lookups: hit:3 missed:1 lost:0
  flows: 1
  port 1: p1 (tap)
    RX packets:10 errors:1 dropped:2 overruns:0 frame:0
    TX packets:20 errors:0 dropped:5 aborted:? carrier:?
    collisions:0
    RX bytes:1000  TX bytes:2000
  port 2: vm1 (dpdkvhostuserclient: mode=client, status=connected)
    RX packets:0 errors:0 dropped:0 overruns:0 frame:0
    TX packets:0 errors:0 dropped:0 aborted:? carrier:?
    collisions:0
    RX bytes:0  TX bytes:0
";
    const DROPS: &str = "tx_queue_full: 7\n  p1: 3\n  vm1: 4\nrx_truncated: 1\n  p1: 1\n";

    /// A sample made of the texts above.
    pub fn sample(at: Instant) -> Sample {
        Sample {
            at,
            workers: workers(STATS).unwrap(),
            queues: queues(QUEUES).unwrap(),
            ports: ports(PORTS).unwrap(),
            drops: drops(DROPS).unwrap(),
        }
    }

    #[test]
    fn the_texts_of_a_switch_are_read() {
        let s = sample(Instant::now());
        let first = Worker {
            core: "1".into(),
            received: 2000,
            exact_hits: 1500,
            megaflow_hits: 400,
            misses: 100,
            idle_cycles: 3000,
            busy_cycles: 1000,
        };
        assert_eq!(s.workers, [first, Worker { core: "3".into(), ..Worker::default() }]);
        let queue = |port: &str, number, usage| Queue { core: "1".into(), port: port.into(), number, usage };
        assert_eq!(s.queues, [queue("p1", 0, 12), queue("vm1", 1, 0)]);
        let p1 = Port {
            name: "p1".into(),
            kind: "tap".into(),
            rx_packets: 10,
            rx_bytes: 1000,
            rx_lost: 3,
            tx_packets: 20,
            tx_bytes: 2000,
            tx_lost: 5,
        };
        assert_eq!(s.ports[0], p1);
        assert_eq!((&*s.ports[1].name, &*s.ports[1].kind), ("vm1", "dpdkvhostuserclient"));
        assert_eq!(s.drops, [("tx_queue_full".to_string(), 7), ("rx_truncated".to_string(), 1)]);
    }

    #[test]
    fn what_makes_no_sense_is_an_error_that_says_where() {
        assert_eq!(
            workers("pmd thread numa_id 0 core_id 1:\n  emc hits: many\n").unwrap_err(),
            "dpif-netdev/pmd-stats-show: `emc hits: many` cannot be parsed"
        );
        assert!(workers("  emc hits: 1\n").is_err());
        assert!(queues("  port: p1 queue-id: 0 (enabled) pmd usage: 1 %\n").is_err(), "no worker");
        assert!(ports("  port 1: p1 (tap)\n    RX packets:x errors:0 dropped:0\n").is_err());
        assert!(drops("tx_queue_full\n").is_err());
    }
}

//! DPDK's testpmd in its io mode on the peer's devices: the floor of what it can do, with no switch.

use crate::machine::conditions::{self, BURST};
use crate::machine::huge_pages::HugePages;
use crate::machine::lease;
use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::rig::WORKER_CPU;
use crate::process::{Process, TempDir};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long it may take until it forwards, and from one report to the next.
const PATIENCE: Duration = Duration::from_secs(60);

/// What it forwarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Packets from the source to the sink.
    pub packets: u64,
    /// TSC cycles of the forwarding thread's CPU time.
    pub cycles_per_packet: f64,
    /// Its rate.
    pub packets_per_wall_second: f64,
}

/// A report of testpmd.
#[derive(Clone, Copy)]
struct Reading {
    packets: u64,
    cpu_ns: u64,
    at: Instant,
}

/// Forwards for this time.
pub fn measure(pcap: &Path, time: Duration) -> Result<Floor, String> {
    let _pages = HugePages::provide()?;
    let dir = TempDir::new("testpmd")?;
    let lcores = format!("0,{WORKER_CPU}");
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", pcap.display());
    let burst = format!("--burst={BURST}");
    let mut command = Command::new("dpdk-testpmd");
    command
        .args([
            "-l",
            &lcores,
            "--no-pci",
            "--huge-unlink",
            "--file-prefix=crosspoint-floor",
            "--vdev",
            &source,
        ])
        .args(["--vdev", "net_null0,no-rx=1", "--", "--forward-mode=io", "--nb-cores=1", "--auto-start"])
        .args(["--total-num-mbufs=270000", "--stats-period", "1", &burst])
        .current_dir(&dir.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(dir.0.join("stderr")).map_err(|e| format!("testpmd's messages: {e}"))?);
    lease::keep_dpdk_files_in(&dir.0, &mut command);
    let mut process = Process::spawn(&mut command)?;
    let output = BufReader::new(process.0.stdout.take().ok_or("testpmd's output")?);
    let (sender, lines) = channel();
    // Ends with the process.
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let thread = format!("rte-worker-{WORKER_CPU}");
    let mut watch = None;
    let readings = readings(&lines, time.as_secs().max(1) as usize + 3, PATIENCE, || {
        if watch.is_none() {
            conditions::note("testpmd", process.id(), BURST);
            watch = Some(Watch::start(&[std::process::id()]));
        }
        let cpu = process.thread_cpu_ns(&thread);
        cpu.or_else(|| process.thread_cpu_ns(&format!("lcore-worker-{WORKER_CPU}")))
            .ok_or("testpmd has no forwarding thread".into())
    })
    .map_err(|why| with_last_words(why, &fs::read_to_string(dir.0.join("stderr")).unwrap_or_default()))?;
    if let Some(watched) = watch.map(Watch::end) {
        // It is subtracted from the cost of the other one.
        ["testpmd", "ovs-dpdk"].into_iter().for_each(|switch| turns::note(switch, watched));
    }
    match (readings.get(1), readings.last()) {
        (Some(first), Some(last)) if last.packets > first.packets => Ok(floor(first, last)),
        _ => Err("dpdk-testpmd forwarded nothing".into()),
    }
}

/// An error with what testpmd said last, which says what it lacks.
fn with_last_words(why: String, said: &str) -> String {
    match said.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
        Some(last) => format!("{why}; it said last: {last}"),
        None => why,
    }
}

/// What was forwarded from one report to a later one.
fn floor(first: &Reading, last: &Reading) -> Floor {
    let packets = last.packets - first.packets;
    let cycles = (last.cpu_ns - first.cpu_ns) as f64 * base::clock::tsc_hz() as f64 / 1e9;
    Floor {
        packets,
        cycles_per_packet: cycles / packets as f64,
        packets_per_wall_second: packets as f64 / (last.at - first.at).as_secs_f64(),
    }
}

/// So many reports. The source's account comes first in each report; the sink's has
/// no packets received.
fn readings(
    lines: &Receiver<String>,
    count: usize,
    patience: Duration,
    mut cpu_ns: impl FnMut() -> Result<u64, String>,
) -> Result<Vec<Reading>, String> {
    let (mut all, mut end) = (Vec::new(), Instant::now() + patience);
    while all.len() < count {
        let left = end.saturating_duration_since(Instant::now());
        // Reports of nothing come, too.
        let line = lines.recv_timeout(left).ok().filter(|_| !left.is_zero());
        let line =
            line.ok_or_else(|| format!("dpdk-testpmd has ended, or forwarded nothing for {patience:?}"))?;
        let received =
            line.trim().strip_prefix("RX-packets:").and_then(|rest| rest.split_whitespace().next());
        let packets: u64 = received.and_then(|n| n.parse().ok()).unwrap_or(0);
        if packets > 0 {
            all.push(Reading { packets, cpu_ns: cpu_ns()?, at: Instant::now() });
            end = Instant::now() + patience;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_forwards_nothing_is_not_waited_for_without_end() {
        let (sender, lines) = channel();
        let mut cpu = 0;
        let mut read = |count, patience| {
            readings(&lines, count, patience, || {
                cpu += 5;
                Ok(cpu)
            })
        };
        for line in ["  RX-packets: 40  RX-missed: 0", "  RX-packets: 0", "  RX-packets: 90 RX-missed: 0"] {
            sender.send(line.to_string()).unwrap();
        }
        let two = read(2, Duration::from_secs(60)).unwrap();
        assert_eq!([0, 1].map(|n| (two[n].packets, two[n].cpu_ns)), [(40, 5), (90, 10)]);
        let quiet = std::thread::spawn(move || while sender.send("  RX-packets: 0".to_string()).is_ok() {});
        assert!(read(1, Duration::from_millis(20)).err().unwrap().contains("forwarded nothing"));
        drop(lines);
        quiet.join().unwrap();
    }

    #[test]
    fn why_testpmd_ended_is_in_its_own_words() {
        let said = "EAL: Detected CPU lcores: 2\nEAL: Cannot get hugepage information.\n\n";
        let why = with_last_words("dpdk-testpmd has ended".into(), said);
        assert_eq!(why, "dpdk-testpmd has ended; it said last: EAL: Cannot get hugepage information.");
        assert_eq!(with_last_words("x".into(), ""), "x");
    }

    #[test]
    fn the_floor_has_a_rate_by_either_clock() {
        let at = Instant::now();
        let first = Reading { packets: 1_000, cpu_ns: 0, at };
        let last = Reading { packets: 5_000, cpu_ns: 1_000_000_000, at: at + Duration::from_secs(2) };
        let floor = floor(&first, &last);
        assert_eq!((floor.packets, floor.packets_per_wall_second), (4_000, 2_000.0));
        assert_eq!(floor.cycles_per_packet, base::clock::tsc_hz() as f64 / 4_000.0);
    }
}

//! DPDK's testpmd in its io mode on the peer's devices: the floor of what it can do, with no switch.

use crate::machine::conditions::{self, BURST};
use crate::machine::huge_pages::HugePages;
use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::rig::WORKER_CPU;
use crate::process::{Process, TempDir};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long it may take until it forwards, and from one report to the next.
const PATIENCE: Duration = Duration::from_secs(60);

/// TSC cycles of the forwarding thread's CPU time per packet from the source to the sink.
pub fn measure(pcap: &Path, time: Duration) -> Result<f64, String> {
    let _pages = HugePages::provide()?;
    let dir = TempDir::new("testpmd")?;
    let lcores = format!("0,{WORKER_CPU}");
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", pcap.display());
    let burst = format!("--burst={BURST}");
    let mut command = Command::new("dpdk-testpmd");
    command
        .args(["-l", &lcores, "--no-pci", "--file-prefix=crosspoint-floor", "--vdev", &source])
        .args(["--vdev", "net_null0,no-rx=1", "--", "--forward-mode=io", "--nb-cores=1", "--auto-start"])
        .args(["--total-num-mbufs=270000", "--stats-period", "1", &burst])
        .current_dir(&dir.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
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
    })?;
    if let Some(watched) = watch.map(Watch::end) {
        // It is subtracted from the cost of the other one.
        ["testpmd", "ovs-dpdk"].into_iter().for_each(|switch| turns::note(switch, watched));
    }
    let (first, last) = match (readings.get(1), readings.last()) {
        (Some(first), Some(last)) if last.0 > first.0 => (first, last),
        _ => return Err("dpdk-testpmd forwarded nothing".into()),
    };
    Ok((last.1 - first.1) as f64 * base::clock::tsc_hz() as f64 / 1e9 / (last.0 - first.0) as f64)
}

/// Packets and CPU time of so many reports. The source's account comes first in each report; the sink's has
/// no packets received.
fn readings(
    lines: &Receiver<String>,
    count: usize,
    patience: Duration,
    mut cpu_ns: impl FnMut() -> Result<u64, String>,
) -> Result<Vec<(u64, u64)>, String> {
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
            all.push((packets, cpu_ns()?));
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
        assert_eq!(read(2, Duration::from_secs(60)), Ok(vec![(40, 5), (90, 10)]));
        let quiet = std::thread::spawn(move || while sender.send("  RX-packets: 0".to_string()).is_ok() {});
        assert!(read(1, Duration::from_millis(20)).unwrap_err().contains("forwarded nothing"));
        drop(lines);
        quiet.join().unwrap();
    }
}

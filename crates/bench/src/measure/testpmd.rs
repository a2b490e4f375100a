//! DPDK's testpmd in its io mode on the peer's devices: the floor of what it can do, with no switch.

use crate::machine::huge_pages::{self, HugePages};
use crate::measure::rig::WORKER_CPU;
use crate::process::{Process, TempDir};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// TSC cycles of the forwarding thread's CPU time per packet from the source to the sink.
pub fn measure(pcap: &Path, time: Duration) -> Result<f64, String> {
    let _pages = HugePages::provide()?;
    let dir = TempDir::new("testpmd")?;
    let lcores = format!("0,{WORKER_CPU}");
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", pcap.display());
    let mut command = Command::new("dpdk-testpmd");
    command
        .args(["-l", &lcores, "--no-pci", "--file-prefix=crosspoint-floor", "--vdev", &source])
        .args(["--vdev", "net_null0,no-rx=1", "--", "--forward-mode=io", "--nb-cores=1", "--auto-start"])
        .args(["--total-num-mbufs=270000", "--stats-period", "1"])
        .current_dir(&dir.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut process = Process::spawn(&mut command)?;
    let lines = BufReader::new(process.0.stdout.take().ok_or("testpmd's output")?).lines();
    let thread = format!("rte-worker-{WORKER_CPU}");
    let seconds = time.as_secs().max(1) + 2;
    let mut readings: Vec<(u64, u64)> = Vec::new();
    for line in lines {
        let line = line.map_err(|e| e.to_string())?;
        // The source's account comes first in each report; the sink's has no packets received.
        let Some(rest) = line.trim().strip_prefix("RX-packets:") else { continue };
        let packets: u64 = rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
        if packets == 0 {
            continue;
        }
        if readings.is_empty() {
            huge_pages::note("testpmd", process.id());
        }
        let cpu = process
            .thread_cpu_ns(&thread)
            .or_else(|| process.thread_cpu_ns(&format!("lcore-worker-{WORKER_CPU}")))
            .ok_or("testpmd has no forwarding thread")?;
        readings.push((packets, cpu));
        if readings.len() as u64 > seconds {
            break;
        }
    }
    let (first, last) = match (readings.get(1), readings.last()) {
        (Some(first), Some(last)) if last.0 > first.0 => (first, last),
        _ => return Err("dpdk-testpmd forwarded nothing".into()),
    };
    Ok((last.1 - first.1) as f64 * base::clock::tsc_hz() as f64 / 1e9 / (last.0 - first.0) as f64)
}

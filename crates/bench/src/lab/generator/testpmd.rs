//! `dpdk-testpmd` in its mode `flowgen` on a packet socket: as many frames as it can. It cannot be held to a
//! rate and numbers nothing, so what comes back is counted by the kernel.

use super::{Generator, Load};
use crate::daemon::in_namespace;
use crate::lab::net::Net;
use crate::lab::traffic::Sent;
use crate::process::Process;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// See the module's text.
pub struct Testpmd;

impl Generator for Testpmd {
    fn name(&self) -> &'static str {
        "testpmd"
    }

    fn refuses(&self, load: &Load) -> Option<String> {
        if !Path::new("/usr/bin/dpdk-testpmd").exists() {
            return Some("dpdk-testpmd is missing: install dpdk-dev".into());
        }
        let paced = load.rate.is_some() || load.burst.is_some();
        paced.then(|| "dpdk-testpmd cannot be held to a rate".to_string())
    }

    fn offer(&self, net: &Net, outputs: &[String], load: &Load) -> Result<Sent, String> {
        let mut command = in_namespace(Some(&net.outside), Path::new("/usr/bin/dpdk-testpmd"));
        command.args(["--no-pci", "--no-huge", "-m", "128", "--no-telemetry", "--no-shconf", "-l", "0,1"]);
        command.arg(format!("--file-prefix=xpb-gen-{}", std::process::id()));
        command.args(["--vdev=net_af_packet0,iface=e0", "--", "--forward-mode=flowgen", "--nb-cores=1"]);
        command.args([format!("--flowgen-flows={}", load.flows), format!("--txpkts={}", load.size - 4)]);
        command.args(["--auto-start", "--total-num-mbufs=4096"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let before = counts(net, outputs)?;
        let start = Instant::now();
        let mut process = Process::spawn(&mut command)?;
        std::thread::sleep(Duration::from_secs_f64(load.seconds));
        let cpu_s = process.cpu_ns() as f64 / 1e9;
        if let Some(mut stdin) = process.0.stdin.take() {
            // It ends by itself, and is ended below where it does not.
            let _ = stdin.write_all(b"stop\nquit\n");
        }
        let end = Instant::now() + Duration::from_secs(5);
        while process.0.try_wait().is_ok_and(|s| s.is_none()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let seconds = start.elapsed().as_secs_f64();
        drop(process);
        let after = counts(net, outputs)?;
        let mut sent = Sent { seconds, cpu_s, ..Sent::default() };
        sent.account.offered = after.0 - before.0;
        sent.account.received = after.1 - before.1;
        sent.account.copies = outputs.len() as u64;
        sent.received_in_time = sent.account.received;
        Ok(sent)
    }
}

/// Packets sent on `e0`, packets received at the outputs.
fn counts(net: &Net, outputs: &[String]) -> Result<(u64, u64), String> {
    let of = |interface: &str, direction: &str| {
        let path = format!("/sys/class/net/{interface}/statistics/{direction}_packets");
        let text = net.on(&net.outside, &format!("cat {path}"))?;
        text.trim().parse::<u64>().map_err(|_| format!("{path}: {text}"))
    };
    let received = outputs.iter().map(|o| of(o, "rx")).sum::<Result<u64, String>>()?;
    Ok((of("e0", "tx")?, received))
}

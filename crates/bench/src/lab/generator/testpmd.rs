//! `dpdk-testpmd` on a packet socket: as many frames as it can, of several flows (`flowgen`) or of one
//! (`txonly`). It cannot be held to a rate and numbers nothing, so what comes back is counted by the kernel.

use super::{Generator, Load, Offering, Stage};
use crate::daemon::in_namespace;
use crate::lab::meter::Meter;
use crate::lab::testpmd::threads;
use crate::lab::topology::{End, Topology};
use crate::lab::traffic::Sent;
use crate::lab::traffic::pattern::Pattern;
use crate::process::{Process, missing, run};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "/usr/bin/dpdk-testpmd";
/// Its own start, before it sends.
const START: Duration = Duration::from_millis(500);

/// How it sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Several flows.
    Flowgen,
    /// One flow.
    Txonly,
}

/// See the module documentation.
pub struct Testpmd {
    /// Its name on the command line.
    pub name: &'static str,
    /// How it sends.
    pub mode: Mode,
}

impl Generator for Testpmd {
    fn name(&self) -> &str {
        self.name
    }

    fn refuses_topology(&self, topology: &Topology, is_paced: bool) -> Option<String> {
        if !Path::new(PROGRAM).exists() {
            return Some(missing(PROGRAM));
        }
        if is_paced {
            return Some("dpdk-testpmd cannot be held to a rate".into());
        }
        let is_guest =
            topology.ports.contains(&End::Station) || !topology.has_switch() && topology.has_guests();
        (is_guest || topology.sources != [0])
            .then(|| "dpdk-testpmd is a generator at one network interface only".into())
    }

    fn refuses_flows(&self, load: &Load, _topology: &Topology) -> Option<String> {
        (self.mode == Mode::Txonly && load.flows > 1)
            .then(|| format!("{} sends one flow, not {}", self.name, load.flows))
    }

    fn refuses(&self, load: &Load, _stage: &Stage) -> Option<String> {
        if load.rate.is_some() || load.burst.is_some() {
            return Some("dpdk-testpmd cannot be held to a rate".into());
        }
        (load.pattern != Pattern::default()).then(|| format!("dpdk-testpmd cannot send {}", load.pattern))
    }

    /// It uses its own addresses.
    fn sends_pattern(&self) -> bool {
        false
    }

    fn start(&self, stage: &Stage) -> Result<Box<dyn Offering>, String> {
        let names = stage.interfaces().ok_or("network interfaces only")?;
        let outputs = stage.outputs.iter().map(|n| names[*n].to_string()).collect();
        let namespace = stage.net.outside.clone();
        Ok(Box::new(Started {
            mode: self.mode,
            namespace,
            outputs,
            copies: stage.copies,
            cpu: stage.cpu,
            load: None,
        }))
    }
}

struct Started {
    mode: Mode,
    namespace: String,
    outputs: Vec<String>,
    copies: u64,
    cpu: Option<usize>,
    load: Option<Begun>,
}

/// A load that is being offered.
struct Begun {
    process: Process,
    seconds: f64,
    /// Who is metered.
    pids: Vec<u32>,
    before: (u64, u64),
}

impl Started {
    /// Packets sent on `e0`, packets received at the outputs.
    fn counts(&self) -> Result<(u64, u64), String> {
        let of = |interface: &str, direction: &str| {
            let path = format!("/sys/class/net/{interface}/statistics/{direction}_packets");
            let text = run(Command::new("ip").args(["netns", "exec", &self.namespace, "cat", &path]))?;
            text.trim().parse::<u64>().map_err(|_| format!("{path}: {text}"))
        };
        let received = self.outputs.iter().map(|o| of(o, "rx")).sum::<Result<u64, String>>()?;
        Ok((of("e0", "tx")?, received))
    }
}

impl Offering for Started {
    fn begin(&mut self, load: &Load, pids: &[u32]) -> Result<(), String> {
        let mut command = in_namespace(Some(&self.namespace), Path::new(PROGRAM));
        command.args(["--no-pci", "--no-huge", "-m", "128", "--no-telemetry", "--no-shconf"]);
        command.arg(threads(self.cpu));
        command.arg(format!("--file-prefix=xpb-gen-{}", std::process::id()));
        command.args(["--vdev=net_af_packet0,iface=e0", "--", "--nb-cores=1", "--auto-start"]);
        command.args([format!("--txpkts={}", load.size - 4), "--total-num-mbufs=4096".into()]);
        match self.mode {
            Mode::Flowgen => {
                command.args(["--forward-mode=flowgen".into(), format!("--flowgen-flows={}", load.flows)])
            }
            Mode::Txonly => command.arg("--forward-mode=txonly"),
        };
        // Its prompt waits on this pipe for as long as it lives.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let before = self.counts()?;
        let (process, seconds, pids) = (Process::spawn(&mut command)?, load.seconds, pids.to_vec());
        self.load = Some(Begun { process, seconds, pids, before });
        Ok(())
    }

    fn finish(&mut self) -> Result<Sent, String> {
        let Begun { mut process, seconds, pids, before } = self.load.take().ok_or("nothing was offered")?;
        let start = Instant::now();
        // It takes a while before it sends: its time counts from the first frame.
        let mut first = self.counts()?;
        while first.0 == before.0 && start.elapsed() < START * 20 {
            std::thread::sleep(Duration::from_millis(5));
            first = self.counts()?;
        }
        let cpu_before = process.cpu_ns();
        let meter = Meter::start(&pids);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let used = meter.end();
        let cpu_s = process.cpu_ns().saturating_sub(cpu_before) as f64 / 1e9;
        let last = self.counts()?;
        let seconds = used.seconds();
        if let Some(mut stdin) = process.0.stdin.take() {
            // It normally ends by itself; if not, it is killed below.
            let _ = stdin.write_all(b"stop\nquit\n");
        }
        let end = Instant::now() + Duration::from_secs(5);
        while process.is_alive() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(process);
        std::thread::sleep(Duration::from_millis(200));
        let after = self.counts()?;
        let mut sent = Sent { seconds, cpu_s, used, ..Sent::default() };
        sent.account.offered = after.0 - before.0;
        sent.account.received = after.1 - before.1;
        sent.account.copies = self.copies;
        sent.received_in_time = last.1 - first.1;
        sent.sent_pps = (last.0 - first.0) as f64 / seconds;
        Ok(sent)
    }

    fn again(&mut self) -> Result<Option<Sent>, String> {
        Ok(None)
    }
}

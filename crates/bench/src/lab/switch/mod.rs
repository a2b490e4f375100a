//! Switches under test: each is started, configured, asked what it is, and removed.

pub mod bridge;
pub mod crosspoint;
#[cfg(test)]
mod example;
pub mod ip_forward;
pub mod list;
pub mod loops;
pub mod ovs;
pub mod rules;
pub mod testpmd;
pub mod vpp;

use super::net::Net;
use super::processors::allowed;
use super::topology::{End, Topology, Vnic};
use super::traffic::pattern::Pattern;
use crate::daemon::Daemon;
pub use crate::machine::conditions::BURST;
use crate::machine::freeze;
use crate::process::Process;
pub use crate::result::{BATCH, GUEST_OFFLOADS, HUGE_PAGES};
use host::doctor::mask;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requirements for a switch.
pub struct Ask<'a> {
    /// The packets' way.
    pub topology: &'a Topology,
    /// How guests are attached, if there are any.
    pub vnic: Vnic,
    /// The contents of the frames.
    pub pattern: &'a Pattern,
    /// Whether they are the generator's own instead.
    pub is_foreign: bool,
    /// For every port.
    pub mtu: u16,
}

impl Ask<'_> {
    /// Whether it needs vhost-user.
    pub fn needs_vhost_user(&self) -> bool {
        self.topology.has_guests() && self.vnic == Vnic::VhostUser
    }
}

/// What a switch needs to start.
pub struct Setup<'a> {
    /// Its namespace, with an interface for each NIC of the topology.
    pub net: &'a Net,
    /// The packets' way.
    pub topology: &'a Topology,
    /// The sockets on which guests listen, by the port's index.
    pub sockets: &'a BTreeMap<usize, PathBuf>,
    /// Flows; there is a rule for each of them and each hop where the switch has such rules.
    pub flows: u32,
    /// What distinguishes the flows.
    pub pattern: &'a Pattern,
    /// Whether the frames are the generator's own, which match no flow's rule.
    pub is_foreign: bool,
    /// For every port.
    pub mtu: u16,
    /// Workers, and queues of each port; a switch that has one alone says so in its conditions.
    pub workers: usize,
    /// Whether the processors on which this thread may run are the switch's alone. If not, nobody's workers
    /// stay bound: the test bed sets free those of switches that can only bind them.
    pub has_processors: bool,
}

/// The default MTU, which need not be set.
pub const MTU_USUAL: u16 = 1500;

impl Setup<'_> {
    /// The processors of the workers: without that of the control thread, if there are enough.
    pub fn worker_cpus(&self) -> Vec<usize> {
        worker_cpus(self.workers, &allowed())
    }

    /// The same as a mask.
    pub fn mask(&self) -> String {
        mask(&self.worker_cpus().into_iter().collect())
    }

    /// The processor of the control thread.
    pub fn control_cpu(&self) -> usize {
        control_cpu(&allowed())
    }

    /// The name of a port: that of its interface, if it has one.
    pub fn port(&self, index: usize) -> String {
        match self.topology.ports[index] {
            End::Nic | End::Idle => format!("p{index}"),
            End::Guest | End::Station => format!("vm{index}"),
        }
    }
}

/// Drops that are in two counters at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Twice {
    /// Drops by the kernel on the way into the switch are in the switch's `rx_dropped` too.
    pub rx: bool,
    /// Drops by the kernel on the way out are in the switch's `tx_error` too, since the kernel reports them.
    pub tx: bool,
    /// The switch's interfaces have an XDP program, so the kernel queues nothing before them.
    pub xdp: bool,
    /// The switch resends frames that a device refuses: the kernel counts each attempt, but nothing is lost.
    pub again: bool,
}

/// What forwards, which says with what its figures can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwards {
    /// Threads of its own, by its table.
    Process,
    /// The kernel, on the time of whoever sends.
    Kernel,
    /// A program that looks nothing up: the practical limit of a machine, not a switch.
    Floor,
}

/// A kind of switch.
pub trait Switch {
    /// Its name on the command line and in stored results.
    fn name(&self) -> &str;

    /// The same for readers who do not know that name.
    fn words(&self) -> &str {
        self.name()
    }

    /// What forwards.
    fn forwards(&self) -> Forwards {
        Forwards::Process
    }

    /// Why it cannot do this here, if it cannot: what it lacks, or what is not installed.
    fn refuses(&self, ask: &Ask) -> Option<String>;

    /// A caution for readers of any of its figures.
    fn caution(&self) -> Option<&'static str> {
        None
    }

    /// Whether its rules are OpenFlow rules, and can be changed over OpenFlow.
    fn takes_openflow(&self) -> bool {
        false
    }

    /// Starts it.
    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String>;
}

/// A switch that forwards, until it is dropped.
pub trait Running {
    /// Version and options, as reported by the switch itself if it does so.
    fn identity(&self) -> BTreeMap<String, String>;

    /// Workers, queues, batch, huge pages and everything else that must be equal in compared switches. Called
    /// once frames are forwarded. The kernel has none of its own.
    fn conditions(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Its daemon, if it supports OpenFlow.
    fn daemon(&self) -> Option<&Daemon> {
        None
    }

    /// Its process; none for a switch in the kernel.
    fn process(&self) -> Option<&Process> {
        None
    }

    /// The same.
    fn process_mut(&mut self) -> Option<&mut Process> {
        None
    }

    /// The process with the threads that forward; none if the kernel does.
    fn forwarder(&self) -> Option<u32> {
        self.process().map(Process::id)
    }

    /// Drops that it counts itself, `switch: REASON`.
    fn dropped(&self) -> Result<BTreeMap<String, u64>, String>;

    /// Which of its drops others count too.
    fn twice(&self) -> Twice {
        Twice::default()
    }

    /// Hits and misses of its caches, by tier, if it has any.
    fn caches(&self) -> Result<BTreeMap<String, u64>, String> {
        Ok(BTreeMap::new())
    }

    /// Packets received by each of its workers, if it has several and reports them.
    fn spread(&self) -> Result<Vec<u64>, String> {
        Ok(Vec::new())
    }

    /// Blocks its control thread for this many milliseconds: in a process, the first thread.
    fn block(&mut self, ms: u64) -> Result<(), String> {
        let process = self.process().ok_or("it is part of the kernel and has no control thread")?;
        let _frozen = freeze::first_thread(process.id())?;
        std::thread::sleep(Duration::from_millis(ms));
        Ok(())
    }

    /// Ends its process as `kill -9` does.
    fn kill(&mut self) -> Result<(), String> {
        self.process_mut().ok_or("it is part of the kernel and cannot be killed")?.kill()
    }
}

/// Of those on which the switch may run, which a cpuset or the generator's own processor may have left.
fn worker_cpus(workers: usize, allowed: &[usize]) -> Vec<usize> {
    let first = usize::from(workers < allowed.len());
    let own: Vec<usize> = allowed.iter().copied().skip(first).take(workers.max(1)).collect();
    if own.is_empty() { vec![control_cpu(allowed)] } else { own }
}

/// The first one, also if the kernel did not tell any.
fn control_cpu(allowed: &[usize]) -> usize {
    allowed.first().copied().unwrap_or(0)
}

/// For values that a switch, or the kernel for it, does not report.
pub const NOT_TOLD: &str = "not told";

/// The workers of a daemon that polls, and the queues of each of its ports at network interfaces, as it tells
/// them: they may be fewer than it was asked for.
pub fn workers_and_queues(daemon: &Daemon) -> [(&'static str, String); 2] {
    let said = daemon.appctl(&["dpif-netdev/pmd-rxq-show"]).unwrap_or_default();
    let [workers, queues] = workers_and_queues_in(&said);
    [("workers", workers), ("queues", queues)]
}

fn workers_and_queues_in(said: &str) -> [String; 2] {
    let lines = || said.lines().map(str::trim);
    let workers = lines().filter(|line| line.starts_with("pmd thread ")).count();
    let mut queues: BTreeMap<&str, usize> = BTreeMap::new();
    let ports = lines().filter(|line| !line.contains("(disabled)"));
    for port in ports.filter_map(|line| line.strip_prefix("port: ")?.split_whitespace().next()) {
        *queues.entry(port).or_default() += 1;
    }
    // A guest's are as many as it has, if anything else has some.
    if queues.keys().any(|port| !port.starts_with("vm")) {
        queues.retain(|port, _| !port.starts_with("vm"));
    }
    let numbers: BTreeSet<usize> = queues.into_values().collect();
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    [workers.to_string(), numbers.join("; ")].map(|told| match told.as_str() {
        "" | "0" => NOT_TOLD.into(),
        _ => told,
    })
}

/// The offloads among the features that a switch has agreed on with each guest, as `status:features` of the
/// ports has them.
pub fn guest_offloads(features: impl Iterator<Item = Option<String>>) -> String {
    let of = |text: Option<String>| text.and_then(|text| offloads_among(&text)).unwrap_or(NOT_TOLD.into());
    features.map(of).collect::<BTreeSet<String>>().into_iter().collect::<Vec<_>>().join("; ")
}

/// Virtio 1.2, section 5.1.3: what spares a guest or the switch checksums, segments and buffers.
fn offloads_among(features: &str) -> Option<String> {
    let bits = u64::from_str_radix(features.strip_prefix("0x")?, 16).ok()?;
    let names = [
        (0, "csum"),
        (1, "guest_csum"),
        (7, "guest_tso4"),
        (8, "guest_tso6"),
        (11, "host_tso4"),
        (12, "host_tso6"),
        (15, "mrg_rxbuf"),
    ];
    let on: Vec<&str> = names.iter().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, name)| *name).collect();
    Some(if on.is_empty() { "none".into() } else { on.join(" ") })
}

/// Why DPDK's driver for the topology's interfaces cannot do this.
pub fn too_long_for_dpdk(ask: &Ask) -> Option<String> {
    (ask.mtu > MTU_USUAL).then(|| format!("DPDK's net_af_packet takes no MTU of {}", ask.mtu))
}

/// Why a program cannot be used.
pub fn missing(program: &str, package: &str) -> Option<String> {
    (!Path::new(program).exists()).then(|| format!("{program} is missing: install {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_told_by_name() {
        let told =
            ["0x0000000150008000", "0x1", "0x150000000", "0x0000000000001883", "no"].map(offloads_among);
        let expected = ["mrg_rxbuf", "csum", "none", "csum guest_csum guest_tso4 host_tso4 host_tso6"];
        assert_eq!(told[..4], expected.map(|text| Some(text.to_string())));
        assert_eq!(told[4], None);
        let all = [Some("0x8000".to_string()), None, Some("0x8000".to_string())];
        assert_eq!(guest_offloads(all.into_iter()), "mrg_rxbuf; not told");
    }

    #[test]
    fn workers_and_queues_are_those_that_the_switch_has() {
        let thread = |core: u8, rest: &str| {
            format!("pmd thread numa_id 0 core_id {core}:\n  isolated : false\n{rest}")
        };
        let port = |name: &str, queue: u8, state: &str| {
            format!("  port: {name:<16}  queue-id: {queue:>2} ({state})   pmd usage: NOT AVAIL\n")
        };
        let head = "Displaying last 60 seconds pmd usage %\n".to_string();
        let of = |parts: &[String]| workers_and_queues_in(&(head.clone() + &parts.concat()));
        let first = thread(1, &[port("dp0", 0, "enabled"), port("vm1", 0, "enabled")].concat());
        let second = thread(2, &[port("dp0", 1, "enabled"), port("dp2", 0, "enabled")].concat());
        assert_eq!(of(std::slice::from_ref(&first)), ["1", "1"]);
        // It has one, since it was not given two.
        assert_eq!(of(&[first, second, thread(3, "  overhead:  0 %\n")]), ["3", "1; 2"]);
        assert_eq!(of(&[thread(1, &port("vm0", 0, "enabled")), port("vm0", 1, "disabled")]), ["1", "1"]);
        assert_eq!(of(&[]), [NOT_TOLD, NOT_TOLD]);
    }

    #[test]
    fn workers_leave_the_first_processor_alone_where_there_are_enough() {
        let of = |workers, allowed: &[usize]| mask(&worker_cpus(workers, allowed).into_iter().collect());
        let first = |workers, cpus| of(workers, &(0..cpus).collect::<Vec<_>>());
        let all = [(1, 1), (1, 2), (2, 2), (2, 4), (4, 8)].map(|(w, c)| first(w, c));
        assert_eq!(all, ["0x1", "0x2", "0x3", "0x6", "0x1e"]);
        // A cpuset leaves some out.
        assert_eq!([1, 2, 3, 4].map(|workers| of(workers, &[0, 2, 5])), ["0x4", "0x24", "0x25", "0x25"]);
        assert_eq!([of(1, &[4, 5]), of(2, &[4, 70])], ["0x20", "0x400000000000000010"]);
        assert_eq!([4, 0], [control_cpu(&[4, 5]), control_cpu(&[])]);
        assert_eq!(of(1, &[]), "0x1");
    }
}

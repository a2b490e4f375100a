//! Crosspoint: this program, or another version of it (`crosspoint@PATH`).

use super::{
    Ask, BATCH, BURST, GUEST_OFFLOADS, HUGE_PAGES, MTU_USUAL, NOT_TOLD, Running, Setup, Switch, Twice,
    guest_offloads, rules, workers_and_queues,
};
use crate::daemon::Daemon;
use crate::machine::huge_pages;
use crate::process::Process;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use vswitchd::figures::{Figures, WorkerCounters};

/// See the module documentation.
pub struct Crosspoint {
    name: String,
    program: PathBuf,
    /// Whether ports at network interfaces are of type `afxdp`, or packet sockets.
    xdp: bool,
    /// Options of ports at guests, `,KEY=VALUE`.
    guest_options: &'static str,
    /// More options of the switch.
    flags: &'static [&'static str],
    /// Workers, and receive queues of ports at network interfaces, at least.
    workers: usize,
}

/// Until the switch has looked at its ports.
const LOOKS: Duration = Duration::from_secs(3);

impl Crosspoint {
    /// `crosspoint`: this program with AF_XDP. `crosspoint-af_packet`: by packet sockets.
    pub fn this(name: &str, xdp: bool) -> Result<Crosspoint, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        Ok(Crosspoint { name: name.into(), program, xdp, guest_options: "", flags: &[], workers: 1 })
    }

    /// The same with these options of ports at guests.
    pub fn with_guest_options(self, guest_options: &'static str) -> Crosspoint {
        Crosspoint { guest_options, ..self }
    }

    /// The same with these options of the switch.
    pub fn with_flags(self, flags: &'static [&'static str]) -> Crosspoint {
        Crosspoint { flags, ..self }
    }

    /// The same with this many workers and receive queues.
    pub fn with_workers(self, workers: usize) -> Crosspoint {
        Crosspoint { workers, ..self }
    }

    /// `crosspoint@PATH`.
    pub fn other(path: &str) -> Crosspoint {
        let name = format!("crosspoint@{path}");
        // A bare name would be looked up in PATH.
        let program = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        Crosspoint { name, program, xdp: true, guest_options: "", flags: &[], workers: 1 }
    }

    /// Versions of before 2026-11-29 do not: their batch is 64.
    fn takes_rx_burst(&self) -> bool {
        let help = Command::new(&self.program).args(["switch", "--help"]).output();
        help.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("--rx-burst"))
    }
}

impl Switch for Crosspoint {
    fn name(&self) -> &str {
        &self.name
    }

    fn refuses(&self, _ask: &Ask) -> Option<String> {
        (!self.program.exists()).then(|| format!("{} is missing", self.program.display()))
    }

    fn takes_openflow(&self) -> bool {
        true
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let mut args = Vec::new();
        let workers = self.workers.max(setup.workers);
        for index in 0..setup.topology.ports.len() {
            let name = setup.port(index);
            let kind = match setup.sockets.get(&index) {
                Some(path) => {
                    format!("dpdkvhostuserclient,vhost-server-path={}{}", path.display(), self.guest_options)
                }
                None => {
                    let kind = if self.xdp { "afxdp" } else { "system,driver=af_packet" };
                    if workers > 1 { format!("{kind},n_rxq={workers}") } else { kind.to_string() }
                }
            };
            let mtu = if setup.mtu == MTU_USUAL { String::new() } else { format!(",mtu={}", setup.mtu) };
            args.extend(["--port".to_string(), format!("{name},type={kind},ofport={}{mtu}", index + 1)]);
        }
        if self.takes_rx_burst() {
            args.extend(["--rx-burst".to_string(), BURST.to_string()]);
        }
        args.extend(match setup.has_processors {
            true => ["--pmd-cpu-mask".into(), Setup { workers, ..*setup }.mask()],
            // They are bound to no processor.
            false => ["--workers".into(), workers.to_string()],
        });
        let args: Vec<&str> = args.iter().map(String::as_str).chain(self.flags.iter().copied()).collect();
        let daemon = Daemon::crosspoint_of(&self.program, Some(&setup.net.switch), &args)?;
        rules::load(&daemon, setup)?;
        let version = Command::new(&self.program).arg("--version").output().map_err(|e| e.to_string())?;
        let version = String::from_utf8_lossy(&version.stdout).trim().to_string();
        let guests = setup.sockets.keys().map(|n| n + 1).collect();
        Ok(Box::new(Started { daemon, version, xdp: self.xdp, guests }))
    }
}

struct Started {
    daemon: Daemon,
    version: String,
    xdp: bool,
    /// Numbers of its vhost-user ports.
    guests: Vec<usize>,
}

impl Started {
    /// Its snapshot of all figures.
    fn figures(&self) -> Result<Figures, String> {
        Figures::parse(&self.daemon.appctl(&["crosspoint/figures"])?)
    }

    fn guest_offloads(&self) -> Option<(&'static str, String)> {
        let start = Instant::now();
        loop {
            let figures = self.figures().unwrap_or_default();
            let features = |n: &usize| {
                let name = format!("vm{}", n - 1);
                figures.ports.iter().find(|port| port.name == name)?.status.get("features").cloned()
            };
            let told = guest_offloads(self.guests.iter().map(features));
            // It checks its ports periodically. An older version never reports this.
            if figures.burst == 0 || !told.contains(NOT_TOLD) || start.elapsed() > LOOKS {
                return (!self.guests.is_empty()).then_some((GUEST_OFFLOADS, told));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let port_type = if self.xdp { "afxdp" } else { "system,driver=af_packet" };
        let pairs = [("version", self.version.as_str()), ("port_type", port_type)];
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).into()
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let mut all = workers_and_queues(&self.daemon).to_vec();
        all.push((HUGE_PAGES, huge_pages::taken_by(self.daemon.process.id())));
        // Older versions tell neither.
        let burst = self.figures().ok().map(|figures| figures.burst).filter(|burst| *burst > 0);
        all.push((BATCH, burst.map_or(NOT_TOLD.into(), |burst| burst.to_string())));
        all.extend(self.guest_offloads());
        all
    }

    fn daemon(&self) -> Option<&Daemon> {
        Some(&self.daemon)
    }

    fn process(&self) -> Option<&Process> {
        Some(&self.daemon.process)
    }

    fn process_mut(&mut self) -> Option<&mut Process> {
        Some(&mut self.daemon.process)
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        let of_guests = self.daemon.port_drops(&self.guests)?;
        let drops = self.figures()?.drops.into_iter();
        let mut drops = drops.map(|drop| (format!("switch: {}", drop.reason), drop.packets)).collect();
        split_by_guest(&mut drops, of_guests);
        Ok(drops)
    }

    /// An AF_XDP socket and the device both count a frame that finds the socket's ring full; a packet socket
    /// is notified when a frame was dropped after it.
    fn twice(&self) -> Twice {
        Twice { rx: self.xdp, tx: !self.xdp, xdp: self.xdp, again: false }
    }

    fn caches(&self) -> Result<BTreeMap<String, u64>, String> {
        let workers = self.figures()?.workers;
        let sum =
            |tier: fn(&WorkerCounters) -> u64| workers.iter().map(|worker| tier(&worker.counters)).sum();
        let tiers = [
            ("exact", sum(|counters| counters.exact_hits)),
            ("megaflow", sum(|counters| counters.megaflow_hits)),
            ("miss", sum(|counters| counters.misses)),
        ];
        Ok(tiers.map(|(tier, packets)| (tier.to_string(), packets)).into())
    }

    fn spread(&self) -> Result<Vec<u64>, String> {
        Ok(self.figures()?.workers.iter().map(|worker| worker.counters.rx).collect())
    }
}

/// Subtracts packets for which guests' ports had no room from the sum of all ports, and names them by port,
/// as for Open vSwitch.
fn split_by_guest(drops: &mut BTreeMap<String, u64>, of_guests: BTreeMap<String, u64>) {
    for (name, count) in of_guests.into_iter().filter(|(name, _)| name.ends_with(": tx_dropped")) {
        let Some(all) = drops.get_mut(RING_FULL) else { return };
        let count = count.min(*all);
        *all -= count;
        drops.insert(name, count);
    }
}

/// Drops at ports whose rings have no room.
const RING_FULL: &str = "switch: tx_queue_full";

/// Whether a path names a version of Crosspoint.
pub fn is_program(path: &str) -> bool {
    // A file without execute permission does not count.
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_guests_are_named_by_their_ports() {
        let mut drops = [("switch: rx_dropped".into(), 3), ("switch: tx_queue_full".into(), 12)].into();
        let of_guests = [("switch port 2: rx_dropped", 5), ("switch port 2: tx_dropped", 10)];
        split_by_guest(&mut drops, of_guests.map(|(name, count)| (name.to_string(), count)).into());
        let pairs =
            [("switch port 2: tx_dropped", 10), ("switch: rx_dropped", 3), ("switch: tx_queue_full", 2)];
        assert_eq!(drops, pairs.map(|(name, count)| (name.to_string(), count)).into());
    }
}

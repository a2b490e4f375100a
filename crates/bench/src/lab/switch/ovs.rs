//! Debian's Open vSwitch: with its kernel datapath, or with its user-space datapath on the default netdev
//! (packet sockets), on AF_XDP with or without a polling thread, or on DPDK's packet sockets and vhost-user
//! with polling threads.

use super::{
    Ask, BATCH, BURST, Forwards, GUEST_OFFLOADS, HUGE_PAGES, MTU_USUAL, Running, Setup, Switch, Twice,
    guest_offloads, missing, rules, too_long_for_dpdk, workers_and_queues,
};
use crate::daemon::{Daemon, OVS, OVS_DPDK};
use crate::lab::net::{SocketReader, lost_in_ring};
use crate::machine::huge_pages::{self, HugePages};
use crate::process::Process;
use host::doctor::mask;
use std::collections::BTreeMap;
use std::path::Path;

/// The type of its ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The default.
    System,
    /// `afxdp-nonpmd`.
    Afxdp,
    /// `afxdp`.
    AfxdpPolled,
    /// `dpdk` with virtual devices.
    Dpdk,
    /// The kernel datapath.
    Kernel,
}

/// See the module documentation.
pub struct Ovs {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its ports.
    pub kind: Kind,
}

impl Switch for Ovs {
    fn name(&self) -> &str {
        self.name
    }

    fn words(&self) -> &str {
        match self.kind {
            Kind::System => "Open vSwitch in user space",
            Kind::Afxdp => "Open vSwitch with AF_XDP",
            Kind::AfxdpPolled => "Open vSwitch with AF_XDP, polling",
            Kind::Dpdk => "Open vSwitch with DPDK",
            Kind::Kernel => "Open vSwitch's kernel datapath",
        }
    }

    fn forwards(&self) -> Forwards {
        if self.kind == Kind::Kernel { Forwards::Kernel } else { Forwards::Process }
    }

    fn refuses(&self, ask: &Ask) -> Option<String> {
        if self.kind == Kind::Dpdk {
            return too_long_for_dpdk(ask).or_else(|| missing(OVS_DPDK, "openvswitch-switch-dpdk"));
        }
        if ask.needs_vhost_user() {
            return Some("vhost-user needs Open vSwitch with DPDK".into());
        }
        if self.kind == Kind::AfxdpPolled && ask.topology.has_guests() {
            return Some("no counter has all that its polling thread loses at taps".into());
        }
        if self.kind == Kind::Kernel
            && let Some(why) = lacks_module()
        {
            return Some(why);
        }
        missing(OVS, "openvswitch-switch")
    }

    fn takes_openflow(&self) -> bool {
        true
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let (pages, daemon) = match self.kind {
            Kind::Dpdk => (
                Some(HugePages::provide()?),
                Daemon::open_vswitch_dpdk(
                    Some(&setup.net.switch),
                    &setup.mask(),
                    &mask(&[setup.control_cpu()].into()),
                )?,
            ),
            Kind::Kernel => (None, Daemon::open_vswitch(Some(&setup.net.switch), "system")?),
            _ => (None, Daemon::open_vswitch(Some(&setup.net.switch), "netdev")?),
        };
        if self.kind == Kind::AfxdpPolled {
            let mask = format!("other_config:pmd-cpu-mask={}", setup.mask());
            daemon.vsctl(&["set", "open_vswitch", ".", &mask])?;
        }
        for index in 0..setup.topology.ports.len() {
            let (port, ofport) = (setup.port(index), format!("ofport_request={}", index + 1));
            let mut add = vec!["add-port".to_string(), "br0".into(), port.clone()];
            add.extend(["--", "set", "interface", &port, &ofport].map(String::from));
            if setup.mtu != MTU_USUAL {
                add.push(format!("mtu_request={}", setup.mtu));
            }
            match (self.kind, setup.sockets.get(&index)) {
                (_, Some(path)) => {
                    add.push("type=dpdkvhostuserclient".into());
                    add.push(format!("options:vhost-server-path={}", path.display()));
                }
                (Kind::System | Kind::Kernel, None) => {}
                (Kind::Afxdp, None) => add.push("type=afxdp-nonpmd".into()),
                (Kind::AfxdpPolled, None) => {
                    add.push("type=afxdp".into());
                    add.push(format!("options:n_rxq={}", setup.workers));
                }
                (Kind::Dpdk, None) => {
                    add.push("type=dpdk".into());
                    // In quotes: the value is one string of the database's syntax, commas and all. A DPDK
                    // port cannot have the name of its kernel interface.
                    add[2] = format!("dp{index}");
                    add[6] = format!("dp{index}");
                    let pairs = format!("qpairs={}", setup.workers);
                    add.push(format!("options:dpdk-devargs=\"net_af_packet{index},iface={port},{pairs}\""));
                    add.push(format!("options:n_rxq={}", setup.workers));
                }
            }
            let add: Vec<&str> = add.iter().map(String::as_str).collect();
            daemon.vsctl(&add)?;
            let error = daemon.vsctl(&["get", "interface", add[2], "error"])?;
            if error.trim() != "[]" {
                return Err(format!("Open vSwitch refuses {port}: {}", error.trim()));
            }
        }
        rules::load(&daemon, setup)?;
        let said = daemon.appctl(&["version"])?;
        let version = said.lines().next().unwrap_or_default().to_string();
        let sockets = setup.net.socket_reader();
        let guests: Vec<usize> = setup.sockets.keys().map(|n| n + 1).collect();
        let ports = (0..setup.topology.ports.len()).filter(|n| !setup.sockets.contains_key(n));
        let interfaces = ports.map(|n| (n, setup.port(n))).collect();
        let (kind, _pages) = (self.kind, pages);
        Ok(Box::new(Started { daemon, version, kind, sockets, guests, interfaces, _pages }))
    }
}

/// Why this machine's kernel has no datapath, if it has none.
fn lacks_module() -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let module = format!("/lib/modules/{release}/kernel/net/openvswitch");
    let is_there = ["/sys/module/openvswitch", &module].iter().any(|path| Path::new(path).exists());
    let uml = "the step kernel-datapath.uml measures it in user-mode-linux";
    (!is_there).then(|| format!("the kernel {release} has no module openvswitch; {uml}"))
}

struct Started {
    // Dropped before its pages are given back.
    daemon: Daemon,
    version: String,
    kind: Kind,
    sockets: SocketReader,
    /// Numbers of its vhost-user ports.
    guests: Vec<usize>,
    /// The other ports' indices and interfaces.
    interfaces: Vec<(usize, String)>,
    _pages: Option<HugePages>,
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let port_type = match self.kind {
            Kind::System | Kind::Kernel => "system",
            Kind::Afxdp => "afxdp-nonpmd",
            Kind::AfxdpPolled => "afxdp",
            Kind::Dpdk => "dpdk (net_af_packet)",
        };
        let datapath = if self.kind == Kind::Kernel { "system" } else { "netdev" };
        let pairs = [("version", self.version.as_str()), ("port_type", port_type), ("datapath", datapath)];
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).into()
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        if self.kind == Kind::Kernel {
            return Vec::new();
        }
        let mut all = match self.kind {
            Kind::Dpdk | Kind::AfxdpPolled => workers_and_queues(&self.daemon).to_vec(),
            // Nothing polls: its one thread serves all.
            _ => vec![("workers", "1".into()), ("queues", "1".into())],
        };
        all.push((BATCH, BURST.to_string()));
        all.push((HUGE_PAGES, huge_pages::taken_by(self.daemon.process.id())));
        if !self.guests.is_empty() {
            let features = |n: &usize| {
                let port = format!("vm{}", n - 1);
                let told = self.daemon.vsctl(&["get", "interface", &port, "status:features"]).ok()?;
                Some(told.trim().trim_matches('"').to_string())
            };
            all.push((GUEST_OFFLOADS, guest_offloads(self.guests.iter().map(features))));
        }
        all
    }

    fn forwarder(&self) -> Option<u32> {
        // The daemon has the packets of new flows alone there.
        (self.kind != Kind::Kernel).then(|| self.daemon.process.id())
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

    /// Counters of ports at kernel interfaces are the kernel's, which are read there; packet sockets have
    /// their own, and so have guests' ports.
    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        match self.kind {
            Kind::System => self.sockets.drops(),
            Kind::Afxdp | Kind::AfxdpPolled => {
                let mut drops = BTreeMap::new();
                for (index, interface) in &self.interfaces {
                    // Packets that the device refused, which the kernel counts, and packets for which the
                    // socket's ring had no room.
                    let device = self.sockets.refused()?.get(interface).copied().unwrap_or(0);
                    let name = format!("switch port {}: tx_dropped", index + 1);
                    let both = self.daemon.port_drops(&[index + 1])?.get(&name).copied().unwrap_or(0);
                    drops.insert(name, both.saturating_sub(device));
                }
                Ok(drops)
            }
            Kind::Kernel => Ok(lost(&self.daemon.appctl(&["dpctl/show"])?)),
            Kind::Dpdk => {
                let mut drops = self.daemon.port_drops(&self.guests)?;
                let received = self.sockets.received()?;
                for (index, interface) in &self.interfaces {
                    let kernel = |counts: &BTreeMap<String, u64>| counts.get(interface).copied().unwrap_or(0);
                    let (came, went) = self.daemon.port_packets(index + 1)?;
                    let left = kernel(&self.sockets.sent()?);
                    drops.extend(lost_in_ring(interface, (kernel(&received), came), (went, left)));
                    let of_port = self.daemon.port_drops(&[index + 1])?;
                    drops.extend(of_port.into_iter().filter(|(name, _)| name.ends_with("tx_dropped")));
                }
                Ok(drops)
            }
        }
    }

    fn caches(&self) -> Result<BTreeMap<String, u64>, String> {
        match self.kind {
            Kind::Kernel => Ok(kernel_lookups(&self.daemon.appctl(&["dpctl/show"])?)),
            _ => Ok(lookups(&self.daemon.appctl(&["dpif-netdev/pmd-stats-show"])?)),
        }
    }

    fn twice(&self) -> Twice {
        // A frame that a device refused stays in the packet ring, and is tried with the next.
        let xdp = matches!(self.kind, Kind::Afxdp | Kind::AfxdpPolled);
        Twice { xdp, again: self.kind == Kind::Dpdk, ..Twice::default() }
    }
}

/// Lookups of all threads of the user-space datapath by the tier that answered them, as `pmd-stats-show`
/// names them. A simple match is one by port, protocol and VLAN alone, of rules that say no more.
fn lookups(text: &str) -> BTreeMap<String, u64> {
    let tiers = [
        ("simple match hits:", "simple"),
        ("emc hits:", "exact"),
        ("smc hits:", "signature"),
        ("megaflow hits:", "megaflow"),
        ("miss with success upcall:", "miss"),
        ("miss with failed upcall:", "miss"),
    ];
    let mut sums = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        for (name, tier) in tiers {
            let count = line.strip_prefix(name).and_then(|rest| rest.trim().parse::<u64>().ok());
            *sums.entry(tier.to_string()).or_insert(0) += count.unwrap_or(0);
        }
    }
    sums
}

/// Those of the kernel datapath, whose one table is of megaflows.
fn kernel_lookups(text: &str) -> BTreeMap<String, u64> {
    let line = text.lines().find(|line| line.trim().starts_with("lookups:")).unwrap_or_default();
    let count = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok());
    let tiers = [("megaflow", "hit:"), ("miss", "missed:")];
    tiers.into_iter().filter_map(|(tier, name)| Some((tier.to_string(), count(name)?))).collect()
}

/// Packets of new flows for which the upcall queue had no room.
fn lost(text: &str) -> BTreeMap<String, u64> {
    let count = text.split_whitespace().find_map(|word| word.strip_prefix("lost:")?.parse().ok());
    BTreeMap::from([("switch: lost".to_string(), count.unwrap_or(0))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_datapath_lost_is_read() {
        let text = "system@ovs-system:\n  lookups: hit:1 missed:22 lost:3\n  flows: 0\n";
        assert_eq!(lost(text), BTreeMap::from([("switch: lost".to_string(), 3)]));
        let told = [("megaflow", 1), ("miss", 22)].map(|(tier, n)| (tier.to_string(), n));
        assert_eq!(kernel_lookups(text), told.into());
    }

    #[test]
    fn lookups_of_all_threads_are_summed_by_tier() {
        let text = "pmd thread numa_id 0 core_id 1:\n  packets received: 100\n  simple match hits: 4\n  \
                    emc hits: 70\n  smc hits: 0\n  megaflow hits: 20\n  \
                    avg. subtable lookups per megaflow hit: 1.00\n  miss with success upcall: 5\n  \
                    miss with failed upcall: 1\nmain thread:\n  packets received: 9\n  emc hits: 8\n  \
                    megaflow hits: 1\n";
        let told = [("simple", 4), ("exact", 78), ("signature", 0), ("megaflow", 21), ("miss", 6)];
        assert_eq!(lookups(text), told.map(|(tier, n)| (tier.to_string(), n)).into());
        assert!(lookups("").values().all(|n| *n == 0));
    }
}

//! `dpdk-testpmd` on packet sockets and, for guests, vhost-user: the practical limit of a program that only
//! forwards each port to the next. `io` does nothing to frames, `mac` writes their addresses, `macswap` swaps
//! them.

use super::{
    Ask, BATCH, BURST, Forwards, GUEST_OFFLOADS, HUGE_PAGES, NOT_TOLD, Running, Setup, Switch, Twice,
    guest_offloads, missing, too_long_for_dpdk,
};
use crate::daemon::in_namespace;
use crate::lab::net::{SocketReader, lost_in_ring};
use crate::lab::testpmd;
use crate::lab::traffic::pattern::Protocol;
use crate::machine::huge_pages;
use crate::process::{Process, TempDir};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;

/// See the module documentation.
pub struct Testpmd {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its forwarding mode.
    pub mode: &'static str,
}

/// Huge pages of 2 MB for its 256 MB.
const PAGES: usize = 128;

impl Switch for Testpmd {
    fn name(&self) -> &str {
        self.name
    }

    fn forwards(&self) -> Forwards {
        Forwards::Floor
    }

    fn refuses(&self, ask: &Ask) -> Option<String> {
        if !ask.topology.is_chain() && !ask.topology.is_pair() {
            return Some("testpmd forwards each port to the next one only".into());
        }
        if self.mode != "io" && matches!(ask.pattern.protocol, Protocol::Pcap(_)) {
            return Some(format!(
                "testpmd's mode {} writes Ethernet addresses, and frames of a capture are known by their bytes \
                 alone; its mode io leaves them as they are",
                self.mode
            ));
        }
        too_long_for_dpdk(ask).or_else(|| missing(testpmd::PROGRAM, "dpdk-dev"))
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let mut command = in_namespace(Some(&setup.net.switch), Path::new("stdbuf"));
        command.args(testpmd::ANSWERS_AT_ONCE);
        command.args(["--no-pci", "-m", "256", "--no-telemetry", "-v"]);
        command.arg(match setup.has_processors {
            true => testpmd::lcores(&[setup.control_cpu()], &setup.worker_cpus()[..1]),
            false => testpmd::threads(None),
        });
        // As in Open vSwitch with DPDK. In memory: it leaves no file in hugetlbfs.
        command.args(if huge_pages::are_free(PAGES) {
            &["--in-memory"][..]
        } else {
            &["--no-huge", "--no-shconf"]
        });
        command.arg(format!("--file-prefix=xpb-sw-{}", std::process::id()));
        for index in 0..setup.topology.ports.len() {
            command.arg(match setup.sockets.get(&index) {
                Some(path) => format!("--vdev=net_vhost{index},iface={},client=1", path.display()),
                None => format!("--vdev=net_af_packet{index},iface={}", setup.port(index)),
            });
        }
        command.args(["--", "--port-topology=chained", "--nb-cores=1"]);
        command.args(["--interactive", "--auto-start", &format!("--burst={BURST}")]);
        command.args([format!("--forward-mode={}", self.mode), "--total-num-mbufs=8192".into()]);
        let dir = TempDir::new("testpmd")?;
        let stderr = File::create(dir.0.join("stderr")).map_err(|e| format!("testpmd's messages: {e}"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let process = Process::spawn(&mut command)?;
        let ports = (0..setup.topology.ports.len()).filter(|n| !setup.sockets.contains_key(n));
        let interfaces = ports.map(|n| (n, setup.port(n))).collect();
        let (sockets, guests) = (setup.net.socket_reader(), setup.sockets.len());
        Ok(Box::new(Started { process, mode: self.mode, sockets, guests, interfaces, dir }))
    }
}

struct Started {
    process: Process,
    mode: &'static str,
    sockets: SocketReader,
    guests: usize,
    /// Indices and interfaces of its packet sockets.
    interfaces: Vec<(usize, String)>,
    dir: TempDir,
}

impl Started {
    /// DPDK's messages.
    fn said(&self) -> String {
        std::fs::read_to_string(self.dir.0.join("stderr")).unwrap_or_default()
    }
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let said = self.said();
        let version = version(&said).unwrap_or(NOT_TOLD);
        let pairs = [
            ("kind", "dpdk-testpmd"),
            ("version", version),
            ("mode", self.mode),
            ("port_type", "net_af_packet"),
        ];
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).into()
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let pages = huge_pages::taken_by(self.process.id());
        let mut all = vec![("workers", "1".into()), ("queues", "1".into()), (HUGE_PAGES, pages)];
        all.push((BATCH, BURST.to_string()));
        if self.guests > 0 {
            all.push((GUEST_OFFLOADS, guest_offloads(agreed(&self.said(), self.guests).into_iter())));
        }
        all
    }

    fn process(&self) -> Option<&Process> {
        Some(&self.process)
    }

    fn process_mut(&mut self) -> Option<&mut Process> {
        Some(&mut self.process)
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        let mut drops = self.sockets.drops()?;
        // Before testpmd's own, so that what comes meanwhile is not taken for lost.
        let kernel = self.sockets.received()?;
        let own = testpmd::counted(&self.process)?;
        let left = self.sockets.sent()?;
        drops.extend(own.dropped.into_iter().map(|(why, n)| (format!("switch: {why}"), n)));
        for (index, interface) in &self.interfaces {
            let of = |counts: Option<&u64>| counts.copied().unwrap_or(0);
            let came = (of(kernel.get(interface)), of(own.received.get(index)));
            let went = (of(own.sent.get(index)), of(left.get(interface)));
            drops.extend(lost_in_ring(interface, came, went));
        }
        Ok(drops)
    }

    fn twice(&self) -> Twice {
        // A frame that a device refused stays in the packet ring, and is tried with the next.
        Twice { again: true, ..Twice::default() }
    }
}

/// DPDK's, of which it is a part: with `-v` its first messages tell it.
fn version(said: &str) -> Option<&str> {
    said.split_once("RTE Version: '")?.1.split('\'').next()
}

/// The features that it has agreed on with each of so many guests, as DPDK's messages have them. A guest that
/// connects again agrees again.
fn agreed(said: &str, guests: usize) -> Vec<Option<String>> {
    let mut by_socket = BTreeMap::new();
    for line in said.lines() {
        if let Some((socket, features)) = line.split_once(" negotiated Virtio features: ") {
            by_socket.insert(socket, features.trim().to_string());
        }
    }
    let mut all: Vec<Option<String>> = by_socket.into_values().map(Some).collect();
    all.resize(guests.max(all.len()), None);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::switch::list;
    use crate::lab::topology::{Vnic, find};

    #[test]
    fn frames_of_a_capture_are_not_sent_where_their_bytes_would_change() {
        let (topology, pattern) = (find("P2P").unwrap(), &"pcap=x".parse().unwrap());
        let ask = Ask { topology, vnic: Vnic::Tap, pattern, is_foreign: false, mtu: 1500 };
        for (name, writes) in
            [("testpmd-io", false), ("testpmd-mac", true), ("testpmd-macswap", true), ("ip-forward", true)]
        {
            let refused = list::find(name).unwrap().refuses(&ask);
            assert_eq!(
                refused.is_some_and(|why| why.contains("capture") || why.contains("pcap=x")),
                writes,
                "{name}"
            );
        }
    }

    #[test]
    fn its_version_is_that_of_dpdk_as_it_tells_it() {
        let said = "EAL: Detected NUMA nodes: 1\nEAL: RTE Version: 'DPDK 22.11.11'\nEAL: more\n";
        assert_eq!((version(said), version("EAL: more\n")), (Some("DPDK 22.11.11"), None));
    }

    #[test]
    fn the_features_of_each_guest_are_the_last_ones_that_were_agreed_on() {
        let line = |vm: u8, features: &str| {
            format!("VHOST_CONFIG: (/tmp/vm{vm}) negotiated Virtio features: {features}\n")
        };
        let said = [line(1, "0x1"), line(2, "0x150008000"), "EAL: more\n".into(), line(1, "0x8000")].concat();
        let told = |guests| guest_offloads(agreed(&said, guests).into_iter());
        assert_eq!((told(2), told(3)), ("mrg_rxbuf".to_string(), "mrg_rxbuf; not told".to_string()));
    }
}

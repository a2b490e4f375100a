//! The kernel's bridge, which floods. Hops that have no port in common have a bridge each. Past one guest
//! there is one bridge: its ends are isolated from each other, so that what comes in by the first goes to the
//! guest alone, and nothing is flooded to the first, so that what comes back goes on alone.
//!
//! In both directions each end has a bridge, with a macvlan device of the guest's interface: what comes back
//! tells its direction by its destination alone, and a macvlan device takes what is for its address.

use super::{Ask, Forwards, Running, Setup, Switch};
use crate::lab::net::{MAC, MAC_BACK};
use crate::lab::topology::{End, Hop, Topology};
use crate::lab::traffic::pattern::{Protocol, Vary};
use std::collections::BTreeMap;
use std::path::Path;

/// See the module documentation.
pub struct Bridge;

impl Switch for Bridge {
    fn name(&self) -> &str {
        "bridge"
    }

    fn words(&self) -> &str {
        "the kernel's bridge"
    }

    fn forwards(&self) -> Forwards {
        Forwards::Kernel
    }

    fn refuses(&self, ask: &Ask) -> Option<String> {
        if ask.needs_vhost_user() {
            return Some(
                "the kernel's bridge has no vhost-user; a guest behind a tap device it can have".into(),
            );
        }
        if ask.topology.is_pair() {
            return None;
        }
        let is_own = matches!(ask.pattern.protocol, Protocol::Pcap(_)) || ask.pattern.vary == Vary::L2;
        if !ask.topology.backward.is_empty() && (ask.is_foreign || is_own) {
            return Some(
                "the addresses by which the kernel's bridge tells directions apart are those of the built-in \
                 generator, which this traffic does not have"
                    .into(),
            );
        }
        (guests(ask.topology) > 1)
            .then(|| "the kernel's bridge takes one guest between two ports, and no chain of guests".into())
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let topology = setup.topology;
        let filters = filters(Path::new(FILTERS));
        if !filters.is_empty() {
            setup.net.on(&setup.net.switch, &format!("sysctl -qw {}", filters.join(" ")))?;
        }
        if !topology.is_pair() && !topology.backward.is_empty() {
            both_ways(setup)?;
            return Ok(Box::new(InKernel("bridge")));
        }
        let mut lines = String::new();
        let all = (0..topology.ports.len()).collect();
        let bridges: Vec<Vec<usize>> = match guests(topology) > 0 || topology.is_pair() {
            true => vec![all],
            false => topology.hops.iter().map(|hop| [&[hop.from], hop.to].concat()).collect(),
        };
        for (n, ports) in bridges.iter().enumerate() {
            lines += &format!("link add br{n} type bridge stp_state 0\n");
            for index in ports {
                let port = setup.port(*index);
                lines += &format!("link set {port} master br{n}\n");
                // Interfaces have the frames' addresses, and the bridge must not keep those for itself.
                lines += &format!("link set {port} address 02:00:00:00:0f:{index:02x}\n");
            }
            lines += &format!("link set br{n} address 02:00:00:00:1f:{n:02x}\nlink set br{n} up\n");
        }
        setup.net.batch(&setup.net.switch, &lines)?;
        if !topology.is_pair() {
            direct(setup, &bridges)?;
        }
        Ok(Box::new(InKernel("bridge")))
    }
}

/// Where br_netfilter's switches are, in kernels that have it.
const FILTERS: &str = "/proc/sys/net/bridge";

/// Settings without which every frame goes through the hooks of iptables, and is checked as a router checks
/// it: each namespace begins with them on.
fn filters(dir: &Path) -> Vec<String> {
    let names = ["iptables", "ip6tables", "arptables"].map(|tables| format!("bridge-nf-call-{tables}"));
    let there = names.into_iter().filter(|name| dir.join(name).exists());
    there.map(|name| format!("net.bridge.{name}=0")).collect()
}

/// The number of guests that send back what comes.
fn guests(topology: &Topology) -> usize {
    topology.ports.iter().filter(|end| **end == End::Guest).count()
}

/// Has packets go the topology's way, whatever their addresses.
fn direct(setup: &Setup, bridges: &[Vec<usize>]) -> Result<(), String> {
    let topology = setup.topology;
    let set = |port: usize, what: &str| {
        setup.net.on(&setup.net.switch, &format!("bridge link set dev {} {what}", setup.port(port)))
    };
    for port in bridges.iter().flatten() {
        set(*port, "learning off")?;
        if guests(topology) > 0 && topology.ports[*port] != End::Guest {
            set(*port, "isolated on")?;
        }
        if guests(topology) > 0 && topology.sources.contains(port) {
            set(*port, "flood off")?;
        }
    }
    Ok(())
}

/// A bridge for each end, with what the guest sends there.
fn both_ways(setup: &Setup) -> Result<(), String> {
    let is_from_guest = |hop: &&Hop| setup.topology.ports[hop.from] == End::Guest;
    for hop in setup.topology.hops.iter().filter(is_from_guest) {
        let (guest, n) = (setup.port(hop.from), hop.to[0]);
        let end = setup.port(n);
        let address = if hop.is_back { MAC_BACK } else { MAC };
        let lines = [
            format!("link add br{n} type bridge stp_state 0"),
            format!("link set br{n} address 02:00:00:00:1f:{n:02x}"),
            format!("link set br{n} up"),
            format!("link add to{n} link {guest} type macvlan mode private"),
            format!("link set to{n} address {address}"),
            format!("link set to{n} up master br{n}"),
            format!("link set {end} address 02:00:00:00:0f:{n:02x}"),
            format!("link set {end} master br{n}"),
        ];
        setup.net.batch(&setup.net.switch, &lines.join("\n"))?;
        // What is for the macvlan device's address goes on to the end, and is not the bridge's own.
        for what in [
            format!("fdb del {address} dev to{n} master"),
            format!("link set dev to{n} learning off"),
            format!("link set dev {end} learning off"),
        ] {
            setup.net.on(&setup.net.switch, &format!("bridge {what}"))?;
        }
    }
    Ok(())
}

/// A switch that is part of the kernel, and goes with its namespace.
pub struct InKernel(pub &'static str);

impl Running for InKernel {
    fn identity(&self) -> BTreeMap<String, String> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        [
            ("version".to_string(), format!("Linux {}", kernel.trim())),
            ("kind".to_string(), self.0.to_string()),
        ]
        .into()
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        Ok(BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::topology::{Vnic, find};

    #[test]
    fn hooks_are_turned_off_where_the_kernel_has_them() {
        let dir = crate::process::TempDir::new("filters").unwrap();
        assert!(filters(&dir.0).is_empty());
        std::fs::write(dir.0.join("bridge-nf-call-iptables"), "1").unwrap();
        assert_eq!(filters(&dir.0), ["net.bridge.bridge-nf-call-iptables=0"]);
    }

    #[test]
    fn both_directions_go_through_a_guest_if_their_addresses_are_known() {
        let refused = |traffic: &str, is_foreign| {
            let (topology, pattern) = (find("PVP-both").unwrap(), &traffic.parse().unwrap());
            Bridge.refuses(&Ask { topology, vnic: Vnic::Tap, pattern, is_foreign, mtu: 1500 }).is_some()
        };
        assert_eq!(["udp", "udp+vlan+ipv6", "tcp-syn+l4"].map(|traffic| refused(traffic, false)), [false; 3]);
        assert_eq!(["udp+l2", "pcap=x"].map(|traffic| refused(traffic, false)), [true; 2]);
        assert!(refused("udp", true));
    }
}

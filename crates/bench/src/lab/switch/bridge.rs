//! The kernel's bridge, which floods. Hops that have no port in common have a bridge each. Past one guest
//! there is one bridge: its ends are isolated from each other, so that what comes in by the first goes to the
//! guest alone, and nothing is flooded to the first, so that what comes back goes on alone.

use super::{Ask, BATCH, Forwards, HUGE_PAGES, Running, Setup, Switch};
use crate::lab::topology::{End, Topology};
use std::collections::BTreeMap;

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
        if !ask.topology.backward.is_empty() {
            return Some("with more than two ports the kernel's bridge takes one direction only".into());
        }
        (relays(ask.topology) > 1)
            .then(|| "the kernel's bridge takes one guest between two ports, and no chain of guests".into())
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let topology = setup.topology;
        let mut lines = String::new();
        let all = (0..topology.ports.len()).collect();
        let bridges: Vec<Vec<usize>> = match relays(topology) > 0 || topology.is_pair() {
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

/// Ports by which packets go out and come in again.
fn relays(topology: &Topology) -> usize {
    let comes_in = |n: &usize| topology.hops.iter().any(|hop| hop.from == *n);
    let goes_out = |n: &usize| topology.hops.iter().any(|hop| hop.to.contains(n));
    (0..topology.ports.len()).filter(|n| comes_in(n) && goes_out(n)).count()
}

/// Has packets go the topology's way, whatever their addresses.
fn direct(setup: &Setup, bridges: &[Vec<usize>]) -> Result<(), String> {
    let topology = setup.topology;
    let set = |port: usize, what: &str| {
        setup.net.on(&setup.net.switch, &format!("bridge link set dev {} {what}", setup.port(port)))
    };
    for port in bridges.iter().flatten() {
        set(*port, "learning off")?;
        if relays(topology) > 0 && topology.ports[*port] != End::Guest {
            set(*port, "isolated on")?;
        }
        if relays(topology) > 0 && topology.sources.contains(port) {
            set(*port, "flood off")?;
        }
    }
    Ok(())
}

/// What nobody can set in a switch that is part of the kernel.
pub fn in_kernel() -> Vec<(&'static str, String)> {
    let weight = std::fs::read_to_string("/proc/sys/net/core/dev_weight").unwrap_or_default();
    vec![(BATCH, weight.trim().to_string()), (HUGE_PAGES, "takes none".into())]
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

    fn inherent(&self) -> Vec<(&'static str, String)> {
        in_kernel()
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        Ok(BTreeMap::new())
    }
}

//! The kernel's bridge. It has one path between two ports, so it takes topologies of two only.

use super::{Running, Setup, Switch};
use crate::lab::topology::Topology;
use std::collections::BTreeMap;

/// See the module's text.
pub struct Bridge;

impl Switch for Bridge {
    fn name(&self) -> &str {
        "bridge"
    }

    fn refuses(&self, topology: &Topology) -> Option<String> {
        (topology.name != "P2P")
            .then(|| "the kernel's bridge forwards between two interfaces only".to_string())
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let net = setup.net;
        for line in [
            "ip link add br0 type bridge stp_state 0",
            "ip link set p0 master br0",
            "ip link set p1 master br0",
            // The address of `p0` is that of the frames: the bridge must not keep them for itself.
            "ip link set p0 address 02:00:00:00:0f:00",
            "ip link set br0 address 02:00:00:00:0f:01",
            "sysctl -qw net.ipv6.conf.br0.disable_ipv6=1",
            "ip link set br0 up",
        ] {
            net.on(&net.switch, line)?;
        }
        Ok(Box::new(InKernel("bridge")))
    }
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

    fn cpu_ns(&self) -> Option<u64> {
        None
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        Ok(BTreeMap::new())
    }

    fn is_alive(&mut self) -> bool {
        true
    }
}

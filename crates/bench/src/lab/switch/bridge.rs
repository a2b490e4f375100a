//! The kernel's bridge. It learns where an address is, so it takes topologies of two ports only.

use super::{Ask, BATCH, HUGE_PAGES, Running, Setup, Switch};
use std::collections::BTreeMap;

/// See the module documentation.
pub struct Bridge;

impl Switch for Bridge {
    fn name(&self) -> &str {
        "bridge"
    }

    fn refuses(&self, ask: &Ask) -> Option<String> {
        if ask.needs_vhost_user() {
            return Some(
                "the kernel's bridge has no vhost-user; a guest behind a tap device it can have".into(),
            );
        }
        (!ask.topology.is_pair())
            .then(|| "the kernel's bridge goes by learned addresses: it takes two ports only".to_string())
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let net = setup.net;
        let mut lines = String::from("link add br0 type bridge stp_state 0\n");
        for index in 0..setup.topology.ports.len() {
            let port = setup.port(index);
            lines += &format!("link set {port} master br0\n");
            // Interfaces have the frames' addresses, and the bridge must not keep those for itself.
            lines += &format!("link set {port} address 02:00:00:00:0f:{index:02x}\n");
        }
        lines += "link set br0 address 02:00:00:00:0f:ff\nlink set br0 up\n";
        net.batch(&net.switch, &lines)?;
        Ok(Box::new(InKernel("bridge")))
    }
}

/// Conditions that cannot be set in a switch inside the kernel.
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

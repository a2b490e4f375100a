//! Debian's Open vSwitch: its user-space datapath on the default netdev (packet sockets) or on AF_XDP without
//! polling threads.

use super::{Running, Setup, Switch, missing, rules};
use crate::daemon::Daemon;
use crate::lab::topology::Topology;
use crate::process::run;
use std::collections::BTreeMap;
use std::process::Command;

const PROGRAM: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";

/// See the module's text.
pub struct Ovs {
    /// As it is typed.
    pub name: &'static str,
    /// The type of its ports; `system` is the default.
    pub port_type: &'static str,
}

impl Switch for Ovs {
    fn name(&self) -> &str {
        self.name
    }

    fn refuses(&self, topology: &Topology) -> Option<String> {
        if topology.has_guests() {
            return Some("vhost-user needs Open vSwitch with DPDK".into());
        }
        missing(PROGRAM, "openvswitch-switch")
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let daemon = Daemon::open_vswitch(Some(&setup.net.switch), "netdev")?;
        for index in 0..setup.topology.ports.len() {
            let (port, ofport) = (setup.port(index), format!("ofport_request={}", index + 1));
            let kind = format!("type={}", self.port_type);
            let mut add = vec!["add-port", "br0", &port, "--", "set", "interface", &port, &ofport];
            if self.port_type != "system" {
                add.push(&kind);
            }
            daemon.vsctl(&add)?;
            let error = daemon.vsctl(&["get", "interface", &port, "error"])?;
            if error.trim() != "[]" {
                return Err(format!("Open vSwitch refuses {port}: {}", error.trim()));
            }
        }
        daemon.add_rules(&rules::text(setup))?;
        let said = run(Command::new(PROGRAM).arg("--version"))?;
        let version = said.lines().next().unwrap_or_default().to_string();
        Ok(Box::new(Started { daemon, version, port_type: self.port_type }))
    }
}

struct Started {
    daemon: Daemon,
    version: String,
    port_type: &'static str,
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let pairs =
            [("version", self.version.as_str()), ("port_type", self.port_type), ("datapath", "netdev")];
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).into()
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(self.daemon.cpu_ns())
    }

    /// Its ports' counters are the kernel's, which are read there.
    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        Ok(BTreeMap::new())
    }

    fn is_alive(&mut self) -> bool {
        self.daemon.is_alive()
    }
}

//! `dpdk-testpmd` on packet sockets: the practical limit of a program that only forwards. `io` does nothing
//! to frames, `mac` writes their addresses, `macswap` swaps them.

use super::{Running, Setup, Switch, missing};
use crate::daemon::in_namespace;
use crate::lab::topology::Topology;
use crate::process::Process;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

const PROGRAM: &str = "/usr/bin/dpdk-testpmd";

/// See the module's text.
pub struct Testpmd {
    /// As it is typed.
    pub name: &'static str,
    /// Its forwarding mode.
    pub mode: &'static str,
}

impl Switch for Testpmd {
    fn name(&self) -> &str {
        self.name
    }

    fn refuses(&self, topology: &Topology) -> Option<String> {
        if topology.name != "P2P" {
            return Some("testpmd forwards between pairs of ports".into());
        }
        missing(PROGRAM, "dpdk-dev")
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let mut command = in_namespace(Some(&setup.net.switch), Path::new(PROGRAM));
        command.args(["--no-pci", "--no-huge", "-m", "128", "--no-telemetry", "--no-shconf", "-l", "0,1"]);
        command.arg(format!("--file-prefix=xpb-sw-{}", std::process::id()));
        command.args(["--vdev=net_af_packet0,iface=p0", "--vdev=net_af_packet1,iface=p1", "--"]);
        command.arg(format!("--forward-mode={}", self.mode));
        command.args(["--nb-cores=1", "--auto-start", "--total-num-mbufs=4096"]);
        // Its prompt waits on this pipe for as long as it lives.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn(&mut command)?;
        Ok(Box::new(Started { process, mode: self.mode }))
    }
}

struct Started {
    process: Process,
    mode: &'static str,
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let pairs = [("kind", "dpdk-testpmd"), ("mode", self.mode), ("port_type", "net_af_packet")];
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).into()
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(self.process.cpu_ns())
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        Ok(BTreeMap::new())
    }

    fn is_alive(&mut self) -> bool {
        self.process.0.try_wait().is_ok_and(|status| status.is_none())
    }
}

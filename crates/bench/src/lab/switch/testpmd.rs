//! `dpdk-testpmd` on packet sockets and, for guests, vhost-user: the practical limit of a program that only
//! forwards each port to the next. `io` does nothing to frames, `mac` writes their addresses, `macswap` swaps
//! them.

use super::{Ask, Running, Setup, Switch, missing, too_long_for_dpdk};
use crate::daemon::in_namespace;
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

    fn refuses(&self, ask: &Ask) -> Option<String> {
        if !ask.topology.is_chain() && !ask.topology.is_pair() {
            return Some("testpmd forwards each port to the next one only".into());
        }
        too_long_for_dpdk(ask).or_else(|| missing(PROGRAM, "dpdk-dev"))
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let mut command = in_namespace(Some(&setup.net.switch), Path::new(PROGRAM));
        command.args(["--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--no-shconf", "-l", "0,1"]);
        command.arg(format!("--file-prefix=xpb-sw-{}", std::process::id()));
        for index in 0..setup.topology.ports.len() {
            command.arg(match setup.sockets.get(&index) {
                Some(path) => format!("--vdev=net_vhost{index},iface={},client=1", path.display()),
                None => format!("--vdev=net_af_packet{index},iface={}", setup.port(index)),
            });
        }
        command.args(["--", "--port-topology=chained", "--nb-cores=1", "--auto-start"]);
        command.args([format!("--forward-mode={}", self.mode), "--total-num-mbufs=8192".into()]);
        // Its prompt waits on this pipe for as long as it lives.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn(&mut command)?;
        Ok(Box::new(Started { process, mode: self.mode, sockets: setup.net.socket_reader() }))
    }
}

struct Started {
    process: Process,
    mode: &'static str,
    sockets: crate::lab::net::SocketReader,
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let pairs = [("kind", "dpdk-testpmd"), ("mode", self.mode), ("port_type", "net_af_packet")];
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).into()
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        vec![("workers", "1".into()), ("queues", "1".into())]
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(self.process.cpu_ns())
    }

    fn pid(&self) -> Option<u32> {
        Some(self.process.0.id())
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        self.sockets.drops()
    }

    fn kill(&mut self) -> Result<(), String> {
        self.process.0.kill().map_err(|e| e.to_string())
    }

    fn is_alive(&mut self) -> bool {
        self.process.0.try_wait().is_ok_and(|status| status.is_none())
    }
}

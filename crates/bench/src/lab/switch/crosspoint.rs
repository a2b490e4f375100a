//! Crosspoint: this program, or another version of it (`crosspoint@PATH`).

use super::{Running, Setup, Switch, rules};
use crate::daemon::Daemon;
use crate::lab::topology::Topology;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// See the module's text.
pub struct Crosspoint {
    name: String,
    program: PathBuf,
    /// The type of ports at network interfaces: `afxdp`, or `system` with an option.
    port_type: &'static str,
}

impl Crosspoint {
    /// `crosspoint`: this program with AF_XDP. `crosspoint-af_packet`: by packet sockets.
    pub fn this(name: &str, port_type: &'static str) -> Result<Crosspoint, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        Ok(Crosspoint { name: name.into(), program, port_type })
    }

    /// `crosspoint@PATH`.
    pub fn other(path: &str) -> Crosspoint {
        Crosspoint { name: format!("crosspoint@{path}"), program: path.into(), port_type: "afxdp" }
    }
}

impl Switch for Crosspoint {
    fn name(&self) -> &str {
        &self.name
    }

    fn refuses(&self, _topology: &Topology) -> Option<String> {
        (!self.program.exists()).then(|| format!("{} is missing", self.program.display()))
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let mut args = Vec::new();
        for index in 0..setup.topology.ports.len() {
            let name = setup.port(index);
            let kind = match setup.sockets.get(&index) {
                Some(path) => format!("dpdkvhostuserclient,vhost-server-path={}", path.display()),
                None => self.port_type.to_string(),
            };
            args.extend(["--port".to_string(), format!("{name},type={kind},ofport={}", index + 1)]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let daemon = Daemon::crosspoint_of(&self.program, Some(&setup.net.switch), &args)?;
        daemon.add_rules(&rules::text(setup))?;
        let version = Command::new(&self.program).arg("--version").output().map_err(|e| e.to_string())?;
        let version = String::from_utf8_lossy(&version.stdout).trim().to_string();
        Ok(Box::new(Started {
            daemon,
            version,
            port_type: self.port_type,
            ports: setup.topology.ports.len(),
        }))
    }
}

struct Started {
    daemon: Daemon,
    version: String,
    port_type: &'static str,
    ports: usize,
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let pairs = [("version", self.version.as_str()), ("port_type", self.port_type)];
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).into()
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(self.daemon.cpu_ns())
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        self.daemon.port_drops(self.ports)
    }

    fn is_alive(&mut self) -> bool {
        self.daemon.is_alive()
    }
}

/// Whether a path names a version of Crosspoint.
pub fn is_program(path: &str) -> bool {
    Path::new(path).is_file()
}

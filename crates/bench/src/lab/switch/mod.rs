//! Switches under test: each is started, configured, asked what it is, and removed.

pub mod bridge;
pub mod crosspoint;
pub mod ip_forward;
pub mod list;
pub mod ovs;
pub mod rules;
pub mod testpmd;

use super::net::Net;
use super::topology::Topology;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a switch is started for.
pub struct Setup<'a> {
    /// Its namespace, with an interface for each NIC of the topology.
    pub net: &'a Net,
    /// The packets' way.
    pub topology: &'a Topology,
    /// The sockets on which guests listen, by the port's index.
    pub sockets: &'a BTreeMap<usize, PathBuf>,
    /// Flows; there is a rule for each of them and each hop where the switch has such rules.
    pub flows: u32,
}

impl Setup<'_> {
    /// The name of a port.
    pub fn port(&self, index: usize) -> String {
        if self.sockets.contains_key(&index) { format!("vm{index}") } else { format!("p{index}") }
    }
}

/// A kind of switch.
pub trait Switch {
    /// As it is typed and stored.
    fn name(&self) -> &str;

    /// Why it cannot do this here, if it cannot: what it lacks, or what is not installed.
    fn refuses(&self, topology: &Topology) -> Option<String>;

    /// Starts it.
    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String>;
}

/// A switch that forwards, until it is dropped.
pub trait Running {
    /// Version and options, as the switch itself tells them where it does.
    fn identity(&self) -> BTreeMap<String, String>;

    /// CPU time of its threads in nanoseconds; none for a switch in the kernel.
    fn cpu_ns(&self) -> Option<u64>;

    /// Drops that it counts itself and the kernel does not.
    fn dropped(&self) -> Result<BTreeMap<String, u64>, String>;

    /// Whether it still runs.
    fn is_alive(&mut self) -> bool;
}

/// Why a program cannot be used.
pub fn missing(program: &str, package: &str) -> Option<String> {
    (!Path::new(program).exists()).then(|| format!("{program} is missing: install {package}"))
}

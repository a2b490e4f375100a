//! A switch on a database, in a network namespace of its own, with a veth pair to another one that plays the
//! network.

use crate::common::{Namespace, Process, RunDir, daemon_in, namespace, run_dir, wait_within};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest that anything here may take: an emulated machine on a processor that many share is slow.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Runs a command to its end; what it said, if it succeeded.
#[track_caller]
pub fn ok(command: &mut Command) -> String {
    crate::common::run(command).ok()
}

#[track_caller]
pub fn wait_for(what: &str, done: impl FnMut() -> bool) {
    wait_within(PATIENCE, what, done);
}

/// A database, the switch on it, and the network beside it.
pub struct Rig {
    pub dir: RunDir,
    switch: Option<Process>,
    _server: Process,
    inside: Namespace,
    /// The network: its interface is `net0`, whose other end `net` may be a port.
    pub network: Namespace,
}

impl std::ops::Deref for Rig {
    type Target = RunDir;

    fn deref(&self) -> &RunDir {
        &self.dir
    }
}

impl Rig {
    /// Starts a switch with bridge `br0`, and the network with this address.
    pub fn start(address: &str) -> Rig {
        let (inside, network) = (namespace(), namespace());
        inside.ip(&format!("link add net type veth peer name net0 netns {}", network.name()));
        inside.ip("link set net up");
        network.ip(&format!("addr add {address} dev net0"));
        network.ip("link set net0 up");
        let dir = run_dir();
        let server = dir.serve_database();
        let mut rig = Rig { dir, switch: None, _server: server, inside, network };
        rig.vsctl("--no-wait init");
        rig.start_switch();
        rig.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        rig
    }

    /// A veth pair between this switch's namespace and another's, under the same name in both.
    pub fn join(&self, other: &Rig, name: &str) {
        self.inside.ip(&format!("link add {name} type veth peer name {name} netns {}", other.inside.name()));
        self.inside.ip(&format!("link set {name} up"));
        other.inside.ip(&format!("link set {name} up"));
    }

    pub fn start_switch(&mut self) {
        std::fs::write(self.file("log"), "").unwrap();
        let args = [&self.database(), "--pool-size", "8192"];
        self.switch = Some(Process::start(&mut daemon_in(&self.inside, &self.dir, &args)));
        wait_for("the switch to run", || self.log().contains("(Open vSwitch)"));
    }

    /// Ends the switch by `kill -9`.
    pub fn kill_switch(&mut self) {
        drop(self.switch.take());
    }

    pub fn log(&self) -> String {
        self.read("log")
    }

    /// What a column of an interface holds.
    #[track_caller]
    pub fn interface(&self, name: &str, column: &str) -> String {
        self.vsctl(&format!("get interface {name} {column}")).trim_matches('"').to_owned()
    }

    /// Starts a ping from the network, every 20 ms until it is stopped, with times, into a file.
    pub fn ping_on(&self, address: &str, file: &Path) -> Process {
        let to = std::fs::File::create(file).unwrap();
        let mut command = self.network.command("ping");
        // One that is late for seconds still counts as come.
        command.args(["-D", "-n", "-O", "-i", "0.02", "-W", "20", address]);
        Process::start(command.stdout(to.try_clone().unwrap()).stderr(to))
    }
}

/// When replies of a ping came, in seconds, with their sequence numbers.
pub fn replies(file: &Path) -> Vec<(f64, u32)> {
    let text = std::fs::read_to_string(file).unwrap();
    let reply = |line: &str| {
        let time = line.strip_prefix('[')?.split(']').next()?.parse().ok()?;
        if !line.contains(" bytes from ") {
            return None;
        }
        let seq = line.split("icmp_seq=").nth(1)?.split(' ').next()?.parse().ok()?;
        Some((time, seq))
    };
    text.lines().filter_map(reply).collect()
}

/// The longest time without a reply, in seconds.
pub fn longest_gap(replies: &[(f64, u32)]) -> f64 {
    replies.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(0.0, f64::max)
}

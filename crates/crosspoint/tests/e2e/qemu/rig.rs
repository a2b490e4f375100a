//! A switch on a database, in a network namespace of its own, with a veth pair to another one that plays the
//! network.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest that anything here may take: an emulated machine on a processor that many share is slow.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A network namespace, removed with the value and all devices in it.
pub struct Namespace(pub String);

impl Namespace {
    pub fn new() -> Namespace {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cp-vm-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        ok(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Namespace(name);
        namespace.ip("link set lo up");
        namespace
    }

    /// `ip` within it, words separated by blanks.
    #[track_caller]
    pub fn ip(&self, words: &str) {
        ok(Command::new("ip").args(["-n", &self.0]).args(words.split_whitespace()));
    }

    /// A command within it. Its process replaces that of `ip`, so its id is the child's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program).stdin(Stdio::null());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What fails here shows in the next `ip netns`.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Runs a command to its end; what it said, if it succeeded.
#[track_caller]
pub fn ok(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{errors}");
    text
}

/// A child that is ended by its id with the value.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A database, the switch on it, and the network beside it.
pub struct Rig {
    pub dir: TempDir,
    switch: Option<Process>,
    _server: Process,
    inside: Namespace,
    /// The network: its interface is `net0`, whose other end `net` may be a port.
    pub network: Namespace,
}

impl Rig {
    /// Starts a switch with bridge `br0`, and the network with this address.
    pub fn start(address: &str) -> Rig {
        let (inside, network) = (Namespace::new(), Namespace::new());
        inside.ip(&format!("link add net type veth peer name net0 netns {}", network.0));
        inside.ip("link set net up");
        network.ip(&format!("addr add {address} dev net0"));
        network.ip("link set net0 up");
        let dir = tempfile::Builder::new().prefix("crosspoint-vm-").tempdir().unwrap();
        let db = dir.path().join("conf.db");
        ok(Command::new("ovsdb-tool").arg("create").arg(&db).arg("/usr/share/openvswitch/vswitch.ovsschema"));
        let log = std::fs::File::create(dir.path().join("server.log")).unwrap();
        let server = Command::new("ovsdb-server")
            .arg(&db)
            .arg(format!("--remote=punix:{}", dir.path().join("db.sock").display()))
            .arg(format!("--unixctl={}", dir.path().join("server.ctl").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut rig = Rig { dir, switch: None, _server: Process(server), inside, network };
        wait_for("the database server", || testkit::listens(rig.path("db.sock")));
        rig.vsctl("--no-wait init");
        rig.start_switch();
        rig.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        rig
    }

    /// A veth pair between this switch's namespace and another's, under the same name in both.
    pub fn join(&self, other: &Rig, name: &str) {
        self.inside.ip(&format!("link add {name} type veth peer name {name} netns {}", other.inside.0));
        self.inside.ip(&format!("link set {name} up"));
        other.inside.ip(&format!("link set {name} up"));
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    pub fn start_switch(&mut self) {
        let log = std::fs::File::create(self.path("log")).unwrap();
        let remote = format!("unix:{}", self.path("db.sock").display());
        let binary = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
        let mut command = self.inside.command(binary);
        command.args(["switch", &remote, "--pool-size", "8192"]).env("OVS_RUNDIR", self.dir.path());
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.switch = Some(Process(child));
        wait_for("the switch to run", || self.log().contains("(Open vSwitch)"));
    }

    /// Ends the switch by `kill -9`.
    pub fn kill_switch(&mut self) {
        drop(self.switch.take());
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn run(&self, program: &str, args: &[&str]) -> String {
        ok(Command::new(program).args(args).env("OVS_RUNDIR", self.dir.path()))
    }

    /// `ovs-vsctl`, words separated by blanks.
    #[track_caller]
    pub fn vsctl(&self, words: &str) -> String {
        let db = format!("--db=unix:{}", self.path("db.sock").display());
        let words: Vec<&str> = words.split_whitespace().collect();
        self.run("ovs-vsctl", &[&["--timeout=60", &db], &words[..]].concat()).trim().to_owned()
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
        Process(command.stdout(to.try_clone().unwrap()).stderr(to).spawn().unwrap())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.switch.take());
        if std::thread::panicking() {
            eprintln!("the switch's log:\n{}", self.log());
        }
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

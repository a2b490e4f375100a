//! A switch under test: the real binary on a run directory of its own, spoken to by the stock tools.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest that anything here may take on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The stock programs that the binary can be called as.
pub const PROGRAMS: [&str; 8] = [
    "ovsdb-server",
    "ovsdb-client",
    "ovsdb-tool",
    "ovs-vswitchd",
    "ovs-appctl",
    "ovs-dpctl",
    "ovs-ofctl",
    "ovs-vsctl",
];

/// A UDP packet as `netdev-dummy/receive` takes it: 106 bytes.
pub const UDP: &str = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
    ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";

/// What a program said.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Said {
    /// Its standard output; panics if it failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Both outputs; panics if it did not fail.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_ne!(self.code, Some(0), "{self:?}");
        self.out + &self.err
    }
}

/// A network namespace of its own: device names are nobody else's. It lasts as long as a process that sleeps
/// in it.
pub struct Namespace(Child);

impl Namespace {
    pub fn new() -> Namespace {
        let child = Command::new("unshare").args(["--net", "sleep", "100000"]).spawn().unwrap();
        let namespace = Namespace(child);
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        wait_for("the namespace", || of(&namespace.pid()).is_some_and(|ns| Some(ns) != of("self")));
        namespace
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Switch {
    pub dir: tempfile::TempDir,
    child: Option<Child>,
}

pub fn binary() -> PathBuf {
    testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"))
}

/// A run directory with nothing in it.
pub fn run_dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("crosspoint-e2e-").tempdir().unwrap()
}

/// The daemon on a run directory, its log in `log` there.
pub fn daemon(dir: &Path, args: &[&str]) -> Command {
    let log = std::fs::File::options().append(true).create(true).open(dir.join("log")).unwrap();
    let mut command = Command::new(binary());
    command
        .arg("switch")
        .args(args)
        .env("OVS_RUNDIR", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command
}

impl Switch {
    /// Starts one with these flags, and waits until it serves.
    pub fn start(args: &[&str]) -> Switch {
        Switch::start_in(run_dir(), args)
    }

    pub fn start_in(dir: tempfile::TempDir, args: &[&str]) -> Switch {
        let mut args = args.to_vec();
        if !args.contains(&"--pool-size") {
            args.extend(["--pool-size", "4096"]);
        }
        // For the commands of tests.
        if !args.iter().any(|a| a.starts_with("--enable-dummy")) {
            args.push("--enable-dummy");
        }
        let child = daemon(dir.path(), &args).spawn().unwrap();
        let mut switch = Switch { dir, child: Some(child) };
        wait_for("the switch to run", || {
            if let Some(status) = switch.child.as_mut().unwrap().try_wait().unwrap() {
                panic!("the switch ended with {status}: {}", switch.log());
            }
            switch.log().contains("(Open vSwitch)")
        });
        switch
    }

    /// Bridge br0 in secure mode with dummy ports p1 to p3.
    pub fn dummy() -> Switch {
        Switch::dummy_with(&[])
    }

    pub fn dummy_with(more: &[&str]) -> Switch {
        let mut args = vec![
            "--bridge",
            "br0,fail-mode=secure",
            "--port",
            "p1,type=dummy,ofport=1",
            "--port",
            "p2,type=dummy,ofport=2",
            "--port",
            "p3,type=dummy,ofport=3",
        ];
        args.extend(more);
        Switch::start(&args)
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub fn run(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Said {
        let output = Command::new(program)
            .args(args)
            .env("OVS_RUNDIR", self.dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Said {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }

    pub fn ofctl(&self, args: &[&str]) -> Said {
        self.run("ovs-ofctl", args)
    }

    /// Our own client in the place of the stock one.
    pub fn own_ofctl(&self, args: &[&str]) -> Said {
        self.run(binary(), &[&["ofctl"], args].concat())
    }

    pub fn appctl(&self, args: &[&str]) -> Said {
        self.run("ovs-appctl", args)
    }

    #[track_caller]
    pub fn add_flow(&self, flow: &str) {
        self.ofctl(&["add-flow", "br0", flow]).ok();
    }

    #[track_caller]
    pub fn receive(&self, port: &str, packet: &str) {
        self.appctl(&["netdev-dummy/receive", port, packet]).ok();
    }

    /// Frames that a dummy port has sent, `count` of them, waited for.
    #[track_caller]
    pub fn sent(&self, port: &str, count: usize) -> Vec<String> {
        let mut frames = Vec::new();
        wait_for("frames to be sent", || {
            let text = self.appctl(&["netdev-dummy/sent", port]).ok();
            frames.extend(text.lines().map(str::to_string));
            frames.len() >= count
        });
        assert_eq!(frames.len(), count);
        frames
    }

    /// `dump-flows` without its first line and without what changes from call to call.
    #[track_caller]
    pub fn flows(&self, args: &[&str]) -> Vec<String> {
        let args = [&["dump-flows", "br0"], args].concat();
        self.ofctl(&args).ok().lines().filter(|l| l.starts_with(' ')).map(without_times).collect()
    }

    /// Bytes that lie in a socket of ours to be read.
    pub fn unread(&self, stream: &impl std::os::fd::AsFd) -> u64 {
        rustix::io::ioctl_fionread(stream).unwrap()
    }

    /// A number of `dump-ports`: `rx pkts` or `tx pkts` of a port.
    #[track_caller]
    pub fn packets(&self, port: &str, direction: &str) -> u64 {
        let text = self.ofctl(&["dump-ports", "br0", port]).ok();
        let at = text.find(&format!("{direction} pkts=")).unwrap();
        let digits: String = text[at + 8..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    /// Sends a signal and waits for the end.
    pub fn end_by(&mut self, signal: &str) -> std::process::ExitStatus {
        let mut child = self.child.take().unwrap();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        child.wait().unwrap()
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.take().unwrap().wait().unwrap()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the switch's log:\n{}", self.log());
        }
    }
}

#[track_caller]
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A line of `dump-flows` without durations and ages.
pub fn without_times(line: &str) -> String {
    let parts = line.trim().split(", ");
    let kept = parts.filter(|p| !["duration=", "idle_age=", "hard_age="].iter().any(|t| p.starts_with(t)));
    kept.collect::<Vec<_>>().join(", ")
}

/// The blocks of commands in a document: those marked `sh`.
pub fn shell_blocks(document: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in document.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => script += &format!("{line}\n"),
            _ => {}
        }
    }
    script
}

//! A switch under test: the real binary on a run directory of its own, spoken to by the stock tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
pub use testkit::lab::{
    Namespace, PATIENCE, Process, RunDir, SCHEMA, Said, accept, free_port, kill, namespace, run, run_dir,
    wait_for, wait_within,
};

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

/// The binary under test.
pub fn binary() -> PathBuf {
    testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"))
}

/// A directory `bin` in `dir` with the binary under every stock name.
pub fn links(dir: &Path) -> PathBuf {
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in PROGRAMS {
        std::os::unix::fs::symlink(binary(), bin.join(name)).unwrap();
    }
    bin
}

/// A running switch. The stock programs are run on it as on its [`RunDir`].
pub struct Switch {
    pub dir: RunDir,
    child: Option<Process>,
}

impl std::ops::Deref for Switch {
    type Target = RunDir;

    fn deref(&self) -> &RunDir {
        &self.dir
    }
}

/// The daemon on a run directory, its log in `log` there.
pub fn daemon(dir: &RunDir, args: &[&str]) -> Command {
    let mut command = dir.command(binary());
    command.arg("switch").args(args).stdout(Stdio::null()).stderr(dir.log());
    command
}

/// The daemon with less than usual of what this `ulimit` limits.
pub fn daemon_limited(dir: &RunDir, limit: &str, args: &[&str]) -> Command {
    daemon_after(dir, &format!("ulimit {limit}"), args)
}

/// The daemon in the process of a shell that has run this.
pub fn daemon_after(dir: &RunDir, before: &str, args: &[&str]) -> Command {
    let inner = daemon(dir, args);
    let mut command = dir.command("sh");
    command.stdout(Stdio::null()).stderr(dir.log());
    command.arg("-c").arg(format!("{before} && exec \"$0\" \"$@\""));
    command.arg(inner.get_program()).args(inner.get_args());
    command
}

/// The daemon in a network namespace.
pub fn daemon_in(namespace: &Namespace, dir: &RunDir, args: &[&str]) -> Command {
    let mut command = namespace.command(binary());
    dir.lead(command.arg("switch").args(args)).stdout(Stdio::null()).stderr(dir.log());
    command
}

impl Switch {
    /// Starts one with these flags, and waits until it serves. Without `--bridge` and `--port` it serves a
    /// database of its own: `switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy")`.
    pub fn start(args: &[&str]) -> Switch {
        Switch::start_in(run_dir(), args)
    }

    pub fn start_in(dir: RunDir, args: &[&str]) -> Switch {
        let mut args = args.to_vec();
        if !args.contains(&"--pool-size") {
            args.extend(["--pool-size", "4096"]);
        }
        // For the commands of tests.
        if !args.iter().any(|a| a.starts_with("--enable-dummy")) {
            args.push("--enable-dummy");
        }
        let command = daemon(&dir, &args);
        Switch::begin(dir, command)
    }

    /// Starts one by this command, and waits until it serves.
    pub fn begin(dir: RunDir, mut command: Command) -> Switch {
        let child = Process::start(&mut command);
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
        self.read("log")
    }

    /// Our own client in the place of the stock one.
    pub fn own_ofctl(&self, args: &[&str]) -> Said {
        self.run(binary(), &[&["ofctl"], args].concat())
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

    /// Sends a signal, such as `TERM`, and waits for the end.
    pub fn end_by(&mut self, signal: &str) -> std::process::ExitStatus {
        self.child.take().unwrap().end_by(signal)
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.take().unwrap().wait().unwrap()
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

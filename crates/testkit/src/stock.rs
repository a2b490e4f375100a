//! A stock Open vSwitch with its dummy datapath, as a counterpart: configured by `ovs-vsctl`, given frames by
//! its control socket, what it sends read from the capture files of its dummy ports.
//!
//! Its caches are emptied before each frame, so what it does is what its translation says at that moment.
//! Needs Debian's openvswitch-switch.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest that it may take to start, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);
const DAEMON: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// See the module's text. Its processes end and its directory goes with it.
pub struct Stock {
    dir: PathBuf,
    children: Vec<Child>,
    control: UnixStream,
    /// Per port that is watched, how much of its capture file was read.
    read: BTreeMap<String, usize>,
}

impl Stock {
    /// Starts one without bridges. `name` keeps the directories of tests apart.
    pub fn start(name: &str) -> Stock {
        let dir = std::env::temp_dir().join(format!("oracle-stock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory for the run");
        let db = dir.join("conf.db");
        let tool =
            command(&dir, "ovsdb-tool").args(["create".as_ref(), db.as_os_str(), SCHEMA.as_ref()]).status();
        assert!(tool.expect("ovsdb-tool, of openvswitch-switch").success());
        let server = command(&dir, "ovsdb-server")
            .arg("--remote=punix:db.sock")
            .arg(&db)
            .spawn()
            .expect("ovsdb-server");
        wait_for_socket(&dir.join("db.sock"));
        run(command(&dir, "ovs-vsctl").args(["--no-wait", "init"]));
        let remote = format!("unix:{}", dir.join("db.sock").display());
        let args = ["--enable-dummy=override", "--disable-system", "--unixctl=control", &remote];
        let daemon = command(&dir, DAEMON).args(args).spawn().expect("ovs-vswitchd");
        let path = dir.join("control");
        wait_for_socket(&path);
        let control = UnixStream::connect(&path).expect("it listens");
        Stock { dir, children: vec![server, daemon], control, read: BTreeMap::new() }
    }

    /// Runs `ovs-vsctl` and waits until the switch has done what it says. Parts of a command are separated by
    /// blanks.
    pub fn vsctl(&self, commands: &str) {
        run(command(&self.dir, "ovs-vsctl").arg("--timeout=60").args(commands.split_whitespace()));
    }

    /// Runs `ovs-ofctl`.
    pub fn ofctl(&self, args: &[&str]) -> String {
        run(command(&self.dir, "ovs-ofctl").args(args))
    }

    /// Runs `ovs-ofctl`, whatever comes of it: what it says, on both outputs, and whether it succeeded.
    pub fn try_ofctl(&self, args: &[&str]) -> (String, bool) {
        let mut command = command(&self.dir, "ovs-ofctl");
        let output = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let output = output.expect("ovs-ofctl, of openvswitch-common");
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (texts.concat(), output.status.success())
    }

    /// Where a dummy port of this name is to write what it sends, for its `options:tx_pcap`.
    pub fn capture(&self, port: &str) -> PathBuf {
        self.dir.join(format!("{port}.pcap"))
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs a command on its control socket. Panics if it fails.
    pub fn appctl(&mut self, method: &str, params: &[&str]) -> String {
        let params: Vec<String> = params.iter().map(|p| format!("{p:?}")).collect();
        let request = format!("{{\"id\":0,\"method\":\"{method}\",\"params\":[{}]}}", params.join(","));
        self.control.write_all(request.as_bytes()).expect("it reads");
        let mut reply = Vec::new();
        let mut buffer = [0; 4096];
        // A reply is one object, whose texts hold no braces here.
        while reply.last() != Some(&b'}') {
            let n = self.control.read(&mut buffer).expect("it answers");
            assert!(n > 0, "the switch closed its control socket");
            reply.extend(&buffer[..n]);
        }
        let reply = String::from_utf8(reply).expect("JSON");
        assert!(reply.contains("\"error\":null"), "{method} {params:?}: {reply}");
        reply
    }

    /// Receives a frame at a dummy port. When this returns, all that comes of it has been sent.
    pub fn receive(&mut self, port: &str, frame: &[u8]) {
        self.appctl("revalidator/purge", &[]);
        let before = self.received();
        let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
        self.appctl("netdev-dummy/receive", &[port, &hex]);
        // Its main loop takes packets, translates and sends them, all in one turn, and answers commands in
        // between.
        let end = Instant::now() + PATIENCE;
        while self.received() == before {
            assert!(Instant::now() < end, "a frame was not received by {port}");
        }
    }

    /// Packets that the datapath has taken from its ports.
    fn received(&mut self) -> u64 {
        let text = self.appctl("dpif-netdev/pmd-stats-show", &[]);
        let counts = text.split("packets received: ").skip(1);
        counts
            .map(|t| t.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0))
            .sum()
    }

    /// What a port has sent since the last call.
    pub fn take_sent(&mut self, port: &str) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(self.capture(port)).unwrap_or_default();
        let at = self.read.entry(port.to_owned()).or_insert(24);
        let mut frames = vec![];
        while let Some(header) = bytes.get(*at..*at + 16) {
            let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
            let Some(frame) = bytes.get(*at + 16..*at + 16 + length) else { break };
            frames.push(frame.to_vec());
            *at += 16 + length;
        }
        frames
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn command(dir: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for variable in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, dir);
    }
    command
}

fn run(command: &mut Command) -> String {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("the stock programs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn wait_for_socket(path: &Path) {
    let end = Instant::now() + PATIENCE;
    while !crate::listens(path) {
        assert!(Instant::now() < end, "nobody listens at {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

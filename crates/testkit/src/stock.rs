//! A stock Open vSwitch with its dummy datapath, as a counterpart: configured by `ovs-vsctl`, given frames by
//! its control socket, what it sends read from the capture files of its dummy ports.
//!
//! Its caches are emptied before each frame, so what it does is what its translation says at that moment.
//! Needs Debian's openvswitch-switch.

use crate::lab::{PATIENCE, Process, RunDir, run_dir, wait_for};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

const DAEMON: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";

/// See the module documentation. Its processes end and its directory goes with it.
pub struct Stock {
    dir: RunDir,
    _children: [Process; 2],
    control: UnixStream,
    /// Per port that is watched, how much of its capture file was read.
    read: BTreeMap<String, usize>,
}

impl Stock {
    /// Starts one without bridges.
    pub fn start() -> Stock {
        let dir = run_dir();
        let server = dir.serve_database();
        dir.vsctl("--no-wait init");
        let args = ["--enable-dummy=override", "--disable-system", "--unixctl=control", &dir.database()];
        let daemon = Process::silent(dir.command(DAEMON).args(args));
        let mut control = None;
        wait_for("the switch", || {
            control = UnixStream::connect(dir.file("control")).ok();
            control.is_some()
        });
        let control = control.expect("waited for");
        Stock { dir, _children: [server, daemon], control, read: BTreeMap::new() }
    }

    /// Runs `ovs-vsctl` and waits until the switch has done what it says. Parts of a command are separated by
    /// blanks.
    pub fn vsctl(&self, commands: &str) {
        self.dir.vsctl(commands);
    }

    /// Runs `ovs-ofctl`.
    pub fn ofctl(&self, args: &[&str]) -> String {
        self.dir.ofctl(args).ok()
    }

    /// Runs `ovs-ofctl`, which may fail: returns its combined output, and whether it succeeded.
    pub fn try_ofctl(&self, args: &[&str]) -> (String, bool) {
        let said = self.dir.ofctl(args);
        let succeeded = said.succeeded();
        (said.out + &said.err, succeeded)
    }

    /// Where a dummy port of this name is to write what it sends, for its `options:tx_pcap`.
    pub fn capture(&self, port: &str) -> PathBuf {
        self.dir.file(format!("{port}.pcap"))
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where programs find it.
    pub fn run_dir(&self) -> &RunDir {
        &self.dir
    }

    /// Runs a command on its control socket. Panics if it fails.
    pub fn appctl(&mut self, method: &str, params: &[&str]) -> String {
        let reply = self.try_appctl(method, params);
        assert!(reply.contains("\"error\":null"), "{method} {params:?}: {reply}");
        reply
    }

    /// The same, with the reply to what fails.
    pub fn try_appctl(&mut self, method: &str, params: &[&str]) -> String {
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
        String::from_utf8(reply).expect("JSON")
    }

    /// Receives a frame at a dummy port. When this returns, all resulting packets have been sent.
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

//! Hosts in network namespaces, and controllers that others wrote: os-ken's applications and Faucet. Short
//! tests of the end-to-end program and long ones of `make interop` share it.
//!
//! Needs root for network namespaces.

pub mod rest;

use crate::common::{PATIENCE, wait_for};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub use testkit::lab::free_port;

/// Namespaces of the test's own, removed with it. Each has a device eth0, the other end of which is a port
/// for a switch.
pub struct Hosts {
    names: Vec<String>,
    /// The ends here, one of each host.
    pub ends: Vec<String>,
}

impl Hosts {
    /// Hosts with these addresses: `10.77.0.1/24`. Host n has the Ethernet address 02:00:00:00:00:n, counted
    /// from 1.
    pub fn new(addresses: &[&str]) -> Hosts {
        // Names that were not used before: a namespace's devices go some time after it.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let first = NEXT.fetch_add(addresses.len(), Ordering::Relaxed);
        let id = std::process::id();
        let numbers = first..first + addresses.len();
        let hosts = Hosts {
            names: numbers.clone().map(|n| format!("cp-ctl-{id}-{n}")).collect(),
            ends: numbers.map(|n| format!("cpc{}x{n}", id % 100_000)).collect(),
        };
        for (n, address) in addresses.iter().enumerate() {
            let (host, end) = (&hosts.names[n], &hosts.ends[n]);
            for command in [
                format!("ip netns add {host}"),
                format!("ip link add {end} type veth peer name eth0 netns {host}"),
                format!("ip link set {end} up"),
                format!("ip -n {host} link set eth0 address 02:00:00:00:00:{:02x}", n + 1),
                format!("ip -n {host} addr add {address} dev eth0"),
                format!("ip -n {host} link set lo up"),
                format!("ip -n {host} link set eth0 up"),
            ] {
                let words: Vec<&str> = command.split(' ').collect();
                let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
                assert!(output.status.success(), "{command}: {output:?}");
            }
        }
        hosts
    }

    /// Values of `--port` that make a host's end, counted from 0, port `n + 1` of a bridge.
    pub fn port(&self, n: usize, bridge: &str) -> String {
        format!("{},type=system,ofport={},bridge={bridge}", self.ends[n], n + 1)
    }

    fn command(&self, n: usize, words: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[n]]).args(words.split(' ')).stdin(Stdio::null());
        command
    }

    /// Runs a program in a host.
    pub fn run(&self, n: usize, words: &str) -> Output {
        self.command(n, words).output().unwrap()
    }

    /// Starts a program in a host.
    pub fn spawn(&self, n: usize, words: &str) -> Running {
        Running(self.command(n, words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Whether at least one of three pings is answered.
    pub fn pings(&self, n: usize, address: &str) -> bool {
        self.run(n, &format!("ping -c 3 -i 0.2 -W 2 {address}")).status.success()
    }

    /// Waits until pings pass.
    #[track_caller]
    pub fn reaches(&self, n: usize, address: &str) {
        wait_for(&format!("a ping from host {} to {address}", n + 1), || self.pings(n, address));
    }

    /// Whether no ping of three passes.
    pub fn is_cut_off(&self, n: usize, address: &str) -> bool {
        !self.run(n, &format!("ping -c 3 -i 0.2 -W 1 {address}")).status.success()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Directory of this file.
fn here() -> PathBuf {
    testkit::root().join("crates/crosspoint/tests/controllers_rig")
}

/// The text of a controller's log, of the name that was given to what started it.
pub fn log_of(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap_or_default()
}

/// Applications of os-ken at work.
pub struct Applications {
    _process: Running,
    /// Where they await switches.
    pub port: u16,
    rest_port: u16,
    dir: PathBuf,
}

impl Applications {
    /// Starts applications by their names. They log to `applications.log` in this directory.
    pub fn start(dir: &Path, names: &[&str]) -> Applications {
        let site = testkit::venv("applications").join("lib");
        let python = std::fs::read_dir(&site).unwrap().flatten().next().expect("a Python's directory").path();
        let (port, rest_port) = (free_port(), free_port());
        let log = std::fs::File::create(dir.join("applications.log")).unwrap();
        let child = Command::new(testkit::python())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(here().join("applications.py"))
            .arg(python.join("site-packages/os_ken/app"))
            .args(names)
            .args(["--ofp-listen-host=127.0.0.1", "--wsapi-host=127.0.0.1", "--observe-links"])
            .args([format!("--ofp-tcp-listen-port={port}"), format!("--wsapi-port={rest_port}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Applications { _process: Running(child.unwrap()), port, rest_port, dir: dir.to_owned() }
    }

    pub fn log(&self) -> String {
        log_of(&self.dir, "applications.log")
    }

    /// Asks by HTTP; `None` where the answer is no success.
    pub fn try_ask(&self, method: &str, path: &str, body: &Value) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}{path}", self.rest_port);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--noproxy", "*", "--max-time", "30", "--request", method, &url]);
        if !body.is_null() {
            curl.args(["--data", &body.to_string()]);
        }
        let output = curl.output().expect("curl");
        if !output.status.success() {
            return None;
        }
        Some(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
    }

    /// Asks by HTTP, which succeeds.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.try_ask(method, path, body);
        answer.unwrap_or_else(|| panic!("{method} {path} {body} failed: {}", self.log()))
    }

    /// What a resource says.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null)
    }

    /// Waits until a resource says something of which this holds.
    #[track_caller]
    pub fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut said = Value::Null;
        let end = Instant::now() + PATIENCE;
        while !holds(&said) {
            assert!(Instant::now() < end, "{path} says {said} at the end; {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
            said = self.try_ask("GET", path, &Value::Null).unwrap_or(Value::Null);
        }
        said
    }

    /// Panics where an application raised an exception, or a switch refused something.
    #[track_caller]
    pub fn are_content(&self) {
        let log = self.log();
        for bad in ["Traceback", "EventOFPErrorMsg", "malformed"] {
            assert!(!log.contains(bad), "{log}");
        }
    }
}

/// Faucet at work.
pub struct Faucet {
    _process: Running,
    /// Where it awaits switches.
    pub port: u16,
    dir: PathBuf,
}

impl Faucet {
    /// Starts it with a configuration, with its logs in this directory.
    pub fn start(dir: &Path, configuration: &str) -> Faucet {
        let venv = testkit::venv("faucet");
        std::fs::write(dir.join("faucet.yaml"), configuration).unwrap();
        let port = free_port();
        let log = std::fs::File::create(dir.join("faucet.out")).unwrap();
        let child = Command::new(venv.join("bin/osken-manager"))
            .args(["--ofp-listen-host=127.0.0.1", &format!("--ofp-tcp-listen-port={port}"), "faucet.faucet"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("FAUCET_CONFIG", dir.join("faucet.yaml"))
            .env("FAUCET_LOG", dir.join("faucet.log"))
            .env("FAUCET_EXCEPTION_LOG", dir.join("faucet.exceptions"))
            .env("FAUCET_PROMETHEUS_ADDR", "127.0.0.1")
            .env("FAUCET_PROMETHEUS_PORT", free_port().to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Faucet { _process: Running(child.unwrap()), port, dir: dir.to_owned() }
    }

    /// Waits until it has configured a switch.
    #[track_caller]
    pub fn configures(&self, switch: &str) {
        let what = format!("{switch} Configuring");
        wait_for("Faucet to configure the switch", || log_of(&self.dir, "faucet.log").contains(&what));
    }

    /// Panics where it raised an exception, or a switch refused something.
    #[track_caller]
    pub fn is_content(&self) {
        let exceptions = log_of(&self.dir, "faucet.exceptions");
        assert!(exceptions.trim().is_empty(), "{exceptions}");
        let log = log_of(&self.dir, "faucet.log");
        // It says so to any switch: ports come up before it has configured them.
        let is_bad = |line: &str| line.contains(" ERROR ") && !line.contains("DP not up");
        assert!(!log.lines().any(is_bad) && !log.contains("OFPErrorMsg"), "{log}");
    }
}

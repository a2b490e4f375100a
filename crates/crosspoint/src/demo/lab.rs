//! The demo's surroundings: namespaces, veth pairs, run directory. The commands that are shown create them;
//! drop removes them.
//!
//! Names are fixed and start with one prefix, so that the remains of a killed demo are found and nothing else
//! is ever touched. A second demo at the same time would take the first one's for such remains: so the demo
//! holds an abstract socket, which the kernel releases however its owner ends.

use super::command::{RUN_DIR, Shell};
use super::error::DemoError;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The prefix of all names.
const PREFIX: &str = "cp-demo-";
/// Namespace of the first host, and of the second.
pub const HOSTS: [&str; 2] = ["cp-demo-a", "cp-demo-b"];
/// The bridge. Its own port is a device of this name, so it has the prefix too.
pub const BRIDGE: &str = "cp-demo-br0";
/// Our ends of the veth pairs: ports 1 and 2 of the bridge.
pub const PORTS: [&str; 2] = ["cp-demo-p1", "cp-demo-p2"];
/// The port that the guest is behind: port 3 of the bridge.
pub const GUEST_PORT: &str = "vhost1";
/// The hosts' addresses.
pub const ADDRESSES: [&str; 2] = ["10.213.0.1", "10.213.0.2"];
const NETNS_DIR: &str = "/run/netns";

/// See the module documentation.
pub struct Lab {
    _lock: UnixListener,
}

impl Lab {
    /// Removes an earlier demo's leftovers, and creates everything again.
    pub fn build(shell: &Shell) -> Result<Lab, DemoError> {
        let lab = Lab { _lock: lock()? };
        for gone in sweep() {
            shell.say(&format!("removed what an earlier demo left behind: {gone}"));
        }
        fs::create_dir(RUN_DIR).map_err(|e| DemoError::new(format!("{RUN_DIR}: {e}")))?;
        for n in 0..2 {
            let (host, port, address) = (HOSTS[n], PORTS[n], ADDRESSES[n]);
            shell.run(&format!("ip netns add {host}"))?;
            shell.run(&format!("ip link add {port} type veth peer name eth0 netns {host}"))?;
            if Path::new("/proc/sys/net/ipv6").exists() {
                // Kernels announce themselves by IPv6 at both ends; the drops shown at the end should only be
                // the demo's.
                shell.run(&format!("sysctl -qw net.ipv6.conf.{port}.disable_ipv6=1"))?;
                shell.run(&format!("ip netns exec {host} sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1"))?;
            }
            shell.run(&format!("ip link set {port} up"))?;
            shell.run(&format!("ip -n {host} addr add {address}/24 dev eth0"))?;
            shell.run(&format!("ip -n {host} link set eth0 up"))?;
        }
        Ok(lab)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        sweep();
    }
}

fn lock() -> Result<UnixListener, DemoError> {
    let address = SocketAddr::from_abstract_name(PREFIX)?;
    UnixListener::bind_addr(&address).map_err(|e| match e.kind() {
        ErrorKind::AddrInUse => DemoError::new("another demo is running; wait for its end"),
        _ => DemoError::from(e),
    })
}

/// Removes everything that has the demo's names. Returns what there was.
fn sweep() -> Vec<String> {
    let mut gone = Vec::new();
    if end_stale_switch() {
        gone.push("a running switch".into());
    }
    for port in names(Path::new("/sys/class/net")) {
        if quietly(&["ip", "link", "del", &port]) {
            gone.push(port);
        }
    }
    for host in names(Path::new(NETNS_DIR)) {
        if quietly(&["ip", "netns", "del", &host]) {
            gone.push(host);
        }
    }
    if fs::remove_dir_all(RUN_DIR).is_ok() {
        gone.push(RUN_DIR.into());
    }
    gone
}

/// The entries of a directory that have the prefix.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(PREFIX)).collect()
}

/// Not through [`Shell`]: this works while the demo is being stopped. It has its own process group, so that a
/// second Ctrl-C does not end it half-way.
fn quietly(words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command.status().is_ok_and(|status| status.success())
}

/// Ends a switch that uses our run directory. A switch normally ends with its demo; this covers the moment in
/// between, and a switch that was started there manually.
fn end_stale_switch() -> bool {
    let Some(pid) = stale_switch() else { return false };
    let _ = kill_process(pid, Signal::KILL);
    let start = Instant::now();
    while test_kill_process(pid).is_ok() && start.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn stale_switch() -> Option<Pid> {
    let pid: i32 = fs::read_to_string(format!("{RUN_DIR}/ovs-vswitchd.pid")).ok()?.trim().parse().ok()?;
    // The number may be another process's by now.
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let ours = format!("OVS_RUNDIR={RUN_DIR}");
    environment.split(|&b| b == 0).any(|variable| variable == ours.as_bytes()).then(|| Pid::from_raw(pid))?
}

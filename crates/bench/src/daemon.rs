//! Daemons that the benchmark runs: ours (this binary's `switch`) and Debian's Open vSwitch, each with its
//! own run directory, configured by the stock tools, ended by process id.

use crate::process::{MISSING, Process, TempDir, run, wait_for, wait_for_listener};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Debian's Open vSwitch.
pub const OVS: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
/// The same with DPDK.
pub const OVS_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Has the C library take a program's memory, packets and all, from huge pages if some are free: all compared
/// switches have them, and of itself Open vSwitch takes some with DPDK alone.
const ON_HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2");

/// A switch that runs as a process.
pub struct Daemon {
    /// The switch's.
    pub process: Process,
    /// The name in its control socket.
    target: String,
    _database: Option<Process>,
    dir: TempDir,
}

/// A command in a network namespace, or in this one.
pub fn in_namespace(namespace: Option<&str>, program: &Path) -> Command {
    match namespace {
        // It executes the program, so the child's id is the program's.
        Some(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

impl Daemon {
    /// Our own, with the bridge `br0` and two ports without traffic: 1 and 2.
    pub fn crosspoint_with_ports() -> Result<Daemon, String> {
        Daemon::crosspoint(None, &["--port", "p1,type=dummy,ofport=1", "--port", "p2,type=dummy,ofport=2"])
    }

    /// Debian's Open vSwitch with the same, on its dummy datapath.
    pub fn open_vswitch_with_ports() -> Result<Daemon, String> {
        let stock = Daemon::open_vswitch(None, "dummy")?;
        for port in ["p1", "p2"] {
            let ofport = format!("ofport_request={}", &port[1..]);
            let set = ["--", "set", "interface", port, "type=dummy", &ofport];
            stock.vsctl(&[&["add-port", "br0", port], &set[..]].concat())?;
        }
        Ok(stock)
    }

    /// Our own, with these arguments to `switch`, and a bridge `br0`.
    pub fn crosspoint(namespace: Option<&str>, args: &[&str]) -> Result<Daemon, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        Daemon::crosspoint_of(&program, namespace, args)
    }

    /// The same of another version of this program.
    pub fn crosspoint_of(program: &Path, namespace: Option<&str>, args: &[&str]) -> Result<Daemon, String> {
        let dir = TempDir::new("ours")?;
        let mut command = in_namespace(namespace, program);
        // Secure: no rule but those that are added.
        command.args(["switch", "--bridge", "br0,fail-mode=secure"]).args(args);
        let process = spawn(&mut command, &dir.0)?;
        let daemon = Daemon { process, target: "ovs-vswitchd".into(), _database: None, dir };
        daemon.wait_for_bridge()?;
        Ok(daemon)
    }

    /// Debian's Open vSwitch with a bridge `br0` of its user-space datapath (`netdev`) or of its dummy one.
    pub fn open_vswitch(namespace: Option<&str>, datapath_type: &str) -> Result<Daemon, String> {
        let dummy: &[&str] = &["--enable-dummy=override", "--disable-system"];
        let args = if datapath_type == "dummy" { dummy } else { &[] };
        let huge = (datapath_type == "netdev").then_some(ON_HUGE_PAGES);
        Daemon::stock(namespace, OVS, "openvswitch-switch", args, &[], datapath_type, huge)
    }

    /// The same with DPDK: a polling thread on each processor of the mask, the others on those of the other.
    pub fn open_vswitch_dpdk(namespace: Option<&str>, mask: &str, control: &str) -> Result<Daemon, String> {
        let mask = format!("other_config:pmd-cpu-mask={mask}");
        let prefix = format!("--no-pci --file-prefix=xpb-ovs-{}", std::process::id());
        let settings = [
            "other_config:dpdk-init=true",
            &format!("other_config:dpdk-lcore-mask={control}"),
            "other_config:dpdk-alloc-mem=1024",
            &mask,
            &format!("other_config:dpdk-extra=\"{prefix}\""),
        ];
        Daemon::stock(namespace, OVS_DPDK, "openvswitch-switch-dpdk", &[], &settings, "netdev", None)
    }

    fn stock(
        namespace: Option<&str>,
        program: &str,
        package: &str,
        args: &[&str],
        settings: &[&str],
        datapath_type: &str,
        environment: Option<(&str, &str)>,
    ) -> Result<Daemon, String> {
        if !Path::new(program).exists() {
            return Err(format!("{program} is not there: install {package} (make bench does)"));
        }
        let dir = TempDir::new("stock")?;
        let db = dir.0.join("conf.db");
        run(Command::new("ovsdb-tool").arg("create").arg(&db).arg(SCHEMA))?;
        let mut server = Command::new("ovsdb-server");
        server.arg(&db).arg(format!("--remote=punix:{}/db.sock", dir.0.display()));
        let database = spawn(&mut server, &dir.0)?;
        wait_for(&dir.0.join("db.sock"))?;
        let socket = format!("unix:{}/db.sock", dir.0.display());
        let vsctl = |args: &[&str]| {
            run(Command::new("ovs-vsctl")
                .arg(format!("--db={socket}"))
                .args(["--retry", "--timeout=30", "--no-wait"])
                .args(args))
        };
        vsctl(&["init"])?;
        if !settings.is_empty() {
            vsctl(&[&["set", "Open_vSwitch", "."][..], settings].concat())?;
        }
        let mut command = in_namespace(namespace, Path::new(program));
        command.arg(&socket).arg("--pidfile").args(args).envs(environment);
        let process = spawn(&mut command, &dir.0)?;
        let target = program.rsplit('/').next().unwrap_or(program).to_string();
        let daemon = Daemon { process, target, _database: Some(database), dir };
        let kind = format!("datapath_type={datapath_type}");
        daemon.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", &kind, "fail-mode=secure"])?;
        daemon.wait_for_bridge()?;
        Ok(daemon)
    }

    fn wait_for_bridge(&self) -> Result<(), String> {
        wait_for_listener(&self.dir.0.join("br0.mgmt")).map_err(|e| self.explained(e))
    }

    /// An error with the daemon's last output.
    fn explained(&self, error: String) -> String {
        // The daemon has no part in it.
        if error.contains(MISSING) {
            return error;
        }
        let said = std::fs::read_to_string(self.dir.0.join("stderr")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        format!("{error}; the daemon said: {}", lines[lines.len().saturating_sub(3)..].join(" / "))
    }

    /// Runs `ovs-vsctl` on its database.
    pub fn vsctl(&self, args: &[&str]) -> Result<String, String> {
        let db = format!("--db=unix:{}/db.sock", self.dir.0.display());
        run(Command::new("ovs-vsctl").arg(db).arg("--timeout=30").args(args))
    }

    /// Runs the stock `ovs-ofctl`.
    pub fn ofctl(&self, args: &[&str]) -> Result<String, String> {
        run(Command::new("ovs-ofctl").env("OVS_RUNDIR", &self.dir.0).args(args))
            .map_err(|e| self.explained(e))
    }

    /// Runs `crosspoint ofctl`.
    pub fn own_ofctl(&self, args: &[&str]) -> Result<String, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        run(Command::new(program).arg("ofctl").env("OVS_RUNDIR", &self.dir.0).args(args))
            .map_err(|e| self.explained(e))
    }

    /// A connection for OpenFlow to `br0`.
    pub fn openflow(&self) -> Result<UnixStream, String> {
        let path = self.dir.0.join("br0.mgmt");
        UnixStream::connect(&path).map_err(|e| self.explained(format!("{}: {e}", path.display())))
    }

    /// An error unless `br0` has this many rules.
    pub fn has_rules(&self, rules: usize) -> Result<(), String> {
        let text = self.ofctl(&["dump-aggregate", "br0"])?;
        let expected = format!("flow_count={rules}");
        match text.trim().ends_with(&expected) {
            true => Ok(()),
            false => Err(format!("expected {expected}, got: {}", text.trim())),
        }
    }

    /// The drop counters of these ports: `switch port 1: rx_dropped`.
    pub fn port_drops(&self, ports: &[usize]) -> Result<BTreeMap<String, u64>, String> {
        let mut drops = BTreeMap::new();
        for port in ports {
            let text = self.ofctl(&["dump-ports", "br0", &port.to_string()])?;
            for direction in ["rx", "tx"] {
                let line = text.lines().find_map(|l| l.split_once(&format!("{direction} pkts=")));
                let count = line.and_then(|(_, rest)| {
                    rest.split("drop=").nth(1)?.split(',').next()?.trim().parse::<u64>().ok()
                });
                drops.insert(format!("switch port {port}: {direction}_dropped"), count.unwrap_or(0));
            }
        }
        Ok(drops)
    }

    /// Packets that a port has received, and that it has sent.
    pub fn port_packets(&self, port: usize) -> Result<(u64, u64), String> {
        let text = self.ofctl(&["dump-ports", "br0", &port.to_string()])?;
        let count = |name: &str| text.split(name).nth(1)?.split(',').next()?.trim().parse().ok();
        let counts = count("rx pkts=").zip(count("tx pkts="));
        counts
            .ok_or_else(|| format!("the switch does not tell what port {port} has received and sent: {text}"))
    }

    /// Runs `ovs-appctl` on the switch.
    pub fn appctl(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new("ovs-appctl");
        command.env("OVS_RUNDIR", &self.dir.0).args(["-T", "10", "-t", &self.target]).args(args);
        run(&mut command).map_err(|e| self.explained(e))
    }

    /// Memory that it has in use, in bytes.
    pub fn rss_bytes(&self) -> Result<u64, String> {
        status_bytes(self.process.id(), "VmRSS:")
    }
}

impl Drop for Daemon {
    /// Lets it take back what it did to kernel interfaces, which it cannot when it is killed.
    fn drop(&mut self) {
        if !self.process.is_alive() {
            return;
        }
        let mut exit = Command::new("ovs-appctl");
        exit.env("OVS_RUNDIR", &self.dir.0).args(["-T", "5", "-t", &self.target, "exit"]);
        if self._database.is_some() {
            exit.arg("--cleanup");
        }
        let _ = run(&mut exit);
        let end = Instant::now() + Duration::from_secs(5);
        while self.process.is_alive() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn spawn(command: &mut Command, dir: &Path) -> Result<Process, String> {
    let log = File::create(dir.join("stderr")).map_err(|e| e.to_string())?;
    command.env("OVS_RUNDIR", dir).env("OVS_DBDIR", dir).env("OVS_LOGDIR", dir).current_dir(dir);
    Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))
}

/// A figure of a process's status in bytes.
pub fn status_bytes(pid: u32, name: &str) -> Result<u64, String> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    let kb = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kb.map(|kb| kb * 1024).ok_or_else(|| format!("{path} has no {name}"))
}

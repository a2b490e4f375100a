//! Debian's Open vSwitch with its user-space datapath on DPDK, run for comparison: a database server and a
//! daemon of our own in a directory of our own, controlled by the stock tools, stopped (SIGSTOP) while
//! another switch is measured.
//!
//! Its cache has room for all flows, as ours has: by default its limit begins at 10,000 flows, grows by 1,000
//! a look at them, and falls to a fraction where a look took long, which a stop in the middle of one does.
//! Flows that were idle while it was stopped stay, too.

use crate::machine::conditions::{self, BURST};
use crate::machine::huge_pages::HugePages;
use crate::machine::lease;
use crate::machine::turns::turn;
use crate::measure::rig::{Sample, WARM_UP_CPU_NS_MAX, WARM_UP_LOOK, WORKER_CPU, limit_bursts};
use crate::process::{Process, TempDir, run, wait_for};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Named by us: the daemon's own name for it has the program's name and process id in it.
const CONTROL_SOCKET: &str = "peer.ctl";

/// Cached flows for which it has room: twice those of a million connections, which have two each.
const FLOWS_MAX: &str = "4000000";
/// How long a flow may be idle, in milliseconds: an hour, in which all others have had their turn.
const IDLE_MAX_MS: &str = "3600000";

/// Open vSwitch with DPDK.
pub struct OvsDpdk {
    daemon: Process,
    _database: Process,
    dir: TempDir,
    _pages: HugePages,
    sources: usize,
    /// The sources that [`Self::set_sources`] has created.
    source_names: Vec<String>,
}

impl OvsDpdk {
    /// Starts it with a bridge `br0`, one polling thread, and a sink as port 2. From then on, our own switch
    /// has its batch.
    pub fn start() -> Result<OvsDpdk, String> {
        if !Path::new(DAEMON).exists() {
            return Err(format!("{DAEMON} is not there: install openvswitch-switch-dpdk (make bench does)"));
        }
        limit_bursts(BURST)?;
        let pages = HugePages::provide()?;
        let dir = TempDir::new("peer")?;
        let db = dir.0.join("conf.db");
        run(Command::new("ovsdb-tool").arg("create").arg(&db).arg(SCHEMA))?;
        let socket = format!("punix:{}/db.sock", dir.0.display());
        let database = spawn(
            Command::new("ovsdb-server").arg(&db).arg(format!("--remote={socket}")).arg("--pidfile"),
            &dir.0,
        )?;
        wait_for(&dir.0.join("db.sock"))?;
        let peer = |args: &[&str]| vsctl(&dir.0, args);
        let mask = format!("{:#x}", 1 << WORKER_CPU);
        peer(&["--no-wait", "init"])?;
        peer(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-init=true",
            "other_config:dpdk-lcore-mask=0x1",
            "other_config:dpdk-alloc-mem=1536",
            &format!("other_config:pmd-cpu-mask={mask}"),
            &format!("other_config:flow-limit={FLOWS_MAX}"),
            &format!("other_config:max-idle={IDLE_MAX_MS}"),
            "other_config:dpdk-extra=\"--no-pci --file-prefix=crosspoint-peer\"",
        ])?;
        let database_socket = format!("unix:{}/db.sock", dir.0.display());
        let control = format!("--unixctl={}", dir.0.join(CONTROL_SOCKET).display());
        let mut command = Command::new(DAEMON);
        command.arg(database_socket).args(["--pidfile", "--log-file"]).arg(control);
        let daemon = spawn(&mut command, &dir.0)?;
        let peer_up =
            OvsDpdk { daemon, _database: database, dir, _pages: pages, sources: 0, source_names: Vec::new() };
        peer_up.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"])?;
        peer_up.add_dpdk_port("sink", "net_null0,no-rx=1", 2)?;
        peer_up.make_room()?;
        conditions::note("ovs-dpdk", peer_up.daemon.0.id(), BURST);
        Ok(peer_up)
    }

    fn vsctl(&self, args: &[&str]) -> Result<String, String> {
        vsctl(&self.dir.0, args)
    }

    fn appctl(&self, args: &[&str]) -> Result<String, String> {
        let target = self.dir.0.join(CONTROL_SOCKET);
        run(Command::new("ovs-appctl").arg("-t").arg(target).args(args))
    }

    /// The output of the stock `ovs-ofctl` with these arguments.
    pub fn ofctl(&self, args: &[&str]) -> Result<String, String> {
        run(Command::new("ovs-ofctl").env("OVS_RUNDIR", &self.dir.0).args(args))
    }

    fn add_dpdk_port(&self, name: &str, devargs: &str, ofport: u16) -> Result<(), String> {
        // In quotes: the value is one string of the database's syntax, commas and all.
        let device = format!("options:dpdk-devargs=\"{devargs}\"");
        let number = format!("ofport_request={ofport}");
        let interface = ["set", "interface", name, "type=dpdk", &device, &number];
        self.vsctl(&[&["add-port", "br0", name, "--"][..], &interface].concat())?;
        let error = self.vsctl(&["get", "interface", name, "error"])?;
        if error.trim() != "[]" {
            return Err(format!("the peer's port {name}: {}", error.trim()));
        }
        Ok(())
    }

    /// Gives its cache room for all flows now. What the database says is only how far it may grow.
    fn make_room(&self) -> Result<(), String> {
        self.appctl(&["upcall/set-flow-limit", FLOWS_MAX]).map(drop)
    }

    /// Replaces all rules by those of a file in `ovs-ofctl`'s syntax. Its cache is then empty: flows of
    /// before would stay as long as they may be idle.
    pub fn set_rules(&self, text: &str) -> Result<(), String> {
        let file = self.dir.0.join("rules");
        std::fs::write(&file, text).map_err(|e| e.to_string())?;
        self.ofctl(&["del-flows", "br0"])?;
        self.ofctl(&["add-flows", "br0", &file.to_string_lossy()])?;
        self.appctl(&["revalidator/purge"]).map(drop)
    }

    /// Teaches it where an address is, as a static entry.
    pub fn set_mac(&self, port: &str, mac: &str) -> Result<(), String> {
        self.appctl(&["fdb/add", "br0", port, "0", mac]).map(drop)
    }

    /// Replaces the source, port 1, by one that replays this file. The device's number is new each time: DPDK
    /// may still hold the old one.
    pub fn set_source(&mut self, pcap: &Path) -> Result<(), String> {
        self.drop_source()?;
        self.sources += 1;
        let devargs = format!("net_pcap{},rx_pcap={},infinite_rx=1", self.sources, pcap.display());
        self.add_dpdk_port("source", &devargs, 1)
    }

    /// Takes the source away.
    pub fn drop_source(&mut self) -> Result<(), String> {
        self.vsctl(&["--if-exists", "del-port", "br0", "source"]).map(drop)
    }

    /// From now on its thread polls only ports that are assigned to it. A new port is polled before all parts
    /// of the peer know it, and packets received meanwhile are dropped.
    pub fn isolate(&self) -> Result<(), String> {
        self.assign(["sink"].into_iter())
    }

    /// Replaces the sources by one for each number and file: their packets come in by turns. They replay
    /// their files from memory again and again, or read them to the end once. Only after [`Self::isolate`].
    pub fn set_sources(&mut self, sources: &[(u16, &Path)], repeats: bool) -> Result<(), String> {
        let infinite = if repeats { ",infinite_rx=1" } else { "" };
        for name in std::mem::take(&mut self.source_names) {
            self.drop_port(&name)?;
        }
        for (number, pcap) in sources {
            self.sources += 1;
            let name = format!("source{number}");
            let devargs = format!("net_pcap{},rx_pcap={}{infinite}", self.sources, pcap.display());
            self.add_dpdk_port(&name, &devargs, *number)?;
            self.source_names.push(name);
        }
        self.assign(self.source_names.iter().map(String::as_str))
    }

    /// Makes its thread poll these ports, all from one moment on.
    fn assign<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let affinity = format!("other_config:pmd-rxq-affinity=0:{WORKER_CPU}");
        let args = names.flat_map(|name| ["--", "set", "interface", name, &affinity]);
        self.vsctl(&args.collect::<Vec<_>>()).map(drop)
    }

    /// Stops the packet sources. The ports stay: otherwise the counts of its cached flows would not reach the
    /// rules.
    pub fn stop_sources(&self) -> Result<(), String> {
        let stop = |name| ["--", "remove", "interface", name, "other_config", "pmd-rxq-affinity"];
        let args = self.source_names.iter().map(String::as_str).flat_map(stop);
        self.vsctl(&args.collect::<Vec<_>>()).map(drop)
    }

    /// Packets received by its polling thread, from all ports.
    pub fn packets_received(&self) -> Result<u64, String> {
        Ok(self.reading()?.0[0] as u64)
    }

    /// Packets of each rule, by cookie, up to now.
    pub fn rule_packets(&self) -> Result<Vec<(u64, u64)>, String> {
        // Cached flows are folded into rules by its revalidators.
        self.appctl(&["revalidator/wait"])?;
        let text = self.ofctl(&["--no-names", "dump-flows", "br0"])?;
        let of = |line: &str, name: &str| {
            let value = line.split(name).nth(1)?.split(',').next()?;
            match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => value.parse().ok(),
            }
        };
        let rules = text.lines().filter_map(|line| Some((of(line, "cookie=")?, of(line, "n_packets=")?)));
        Ok(rules.collect())
    }

    /// Connections that its tracker has.
    pub fn connections(&self) -> Result<u64, String> {
        let text = self.appctl(&["dpctl/ct-get-nconns"])?;
        text.trim().parse().map_err(|_| format!("the peer's number of connections: {}", text.trim()))
    }

    /// Makes its tracker forget all connections.
    pub fn flush_connections(&self) -> Result<(), String> {
        self.appctl(&["dpctl/flush-conntrack"]).map(drop)
    }

    /// A sink under this number.
    pub fn add_sink(&self, ofport: u16) -> Result<(), String> {
        self.add_dpdk_port("sink", "net_null1,no-rx=1", ofport)
    }

    /// Adds a vhost-user port that connects to this socket.
    pub fn add_vhost(&self, name: &str, socket: &Path, ofport: u16) -> Result<(), String> {
        let path = format!("options:vhost-server-path={}", socket.display());
        let number = format!("ofport_request={ofport}");
        let interface = ["set", "interface", name, "type=dpdkvhostuserclient", &path, &number];
        self.vsctl(&[&["add-port", "br0", name, "--"][..], &interface].concat()).map(drop)
    }

    /// Removes a port.
    pub fn drop_port(&self, name: &str) -> Result<(), String> {
        self.vsctl(&["--if-exists", "del-port", "br0", name]).map(drop)
    }

    /// Counters of ports, all as the datapath has them now: a port, a direction (`RX`, `TX`) and a name
    /// (`packets`, `dropped`) of each.
    pub fn port_counters<const N: usize>(&self, wanted: [(&str, &str, &str); N]) -> Result<[u64; N], String> {
        let text = self.appctl(&["dpctl/show", "-s"])?;
        let mut values = [0; N];
        for (value, (port, direction, name)) in values.iter_mut().zip(wanted) {
            *value = port_counter(&text, port, direction, name)
                .ok_or_else(|| format!("the peer's statistics have no {direction} {name} of {port}"))?;
        }
        Ok(values)
    }

    /// CPU time of the polling thread in nanoseconds, and its cycles spent on packets and in vain.
    pub fn busy_reading(&self) -> Result<(u64, u64, u64), String> {
        let text = self.appctl(&["dpif-netdev/pmd-stats-show"])?;
        let cpu = self.daemon.thread_cpu_ns("pmd-c").ok_or("the peer has no polling thread")?;
        let number = |name: &str| {
            let line = text.lines().find(|l| l.trim().starts_with(name))?;
            line.split(": ").nth(1)?.split_whitespace().next()?.parse::<u64>().ok()
        };
        let busy = number("processing cycles").ok_or("the peer does not say how busy it is")?;
        Ok((cpu, busy, number("idle cycles").unwrap_or(0)))
    }

    /// Stops it from running at all, between two looks at its cached flows.
    pub fn pause(&self) -> Result<(), String> {
        self.appctl(&["revalidator/wait"])?;
        self.daemon.pause();
        Ok(())
    }

    /// Lets it run on, with room for all flows even if the last look at them was slow.
    pub fn resume(&self) -> Result<(), String> {
        self.daemon.resume();
        self.make_room()
    }

    /// Lets it run until its caches have settled: no misses for a while, or as long as
    /// [ours](crate::measure::rig::Rig::warm_up) would be given.
    pub fn warm_up(&self, least: Duration) -> Result<(), String> {
        std::thread::sleep(least);
        let start = self.reading()?.1;
        loop {
            let before = self.lookups()?.1;
            std::thread::sleep(WARM_UP_LOOK);
            if self.lookups()?.1 == before || self.reading()?.1 - start > WARM_UP_CPU_NS_MAX {
                return Ok(());
            }
        }
    }

    /// Packets received by its polling thread, and those that no cache knew.
    pub fn lookups(&self) -> Result<(u64, u64), String> {
        let counts = self.reading()?.0;
        Ok((counts[0] as u64, (counts[4] + counts[5]) as u64))
    }

    /// Measures its polling thread for a while, which is a turn.
    pub fn measure(&self, time: Duration) -> Result<Sample, String> {
        turn("ovs-dpdk", || self.sample(time))
    }

    fn sample(&self, time: Duration) -> Result<Sample, String> {
        let (before, start) = (self.reading()?, Instant::now());
        std::thread::sleep(time);
        let (after, seconds) = (self.reading()?, start.elapsed().as_secs_f64());
        let packets = (after.0[0] - before.0[0]) as u64;
        let share = |n: usize| (after.0[n] - before.0[n]) as f64 / (packets as f64).max(1.0);
        let cpu_ns = (after.1 - before.1) as f64;
        Ok(Sample {
            packets,
            cycles_per_packet: cpu_ns * base::clock::tsc_hz() as f64 / 1e9 / (packets as f64).max(1.0),
            packets_per_wall_second: packets as f64 / seconds,
            exact_ratio: share(1) + share(6),
            megaflow_ratio: share(2) + share(3),
            miss_ratio: share(4) + share(5),
        })
    }

    /// Packets received, hits of its tiers, misses, and packets of rules that say no more than the port,
    /// which it looks up exactly in a table of their own; CPU time of the polling thread in nanoseconds.
    fn reading(&self) -> Result<([i64; 7], u64), String> {
        let text = self.appctl(&["dpif-netdev/pmd-stats-show"])?;
        let cpu = self.daemon.thread_cpu_ns("pmd-c").ok_or("the peer has no polling thread")?;
        let number = |name: &str| {
            let line = text.lines().find(|l| l.trim().starts_with(name))?;
            line.split(": ").nth(1)?.split_whitespace().next()?.parse::<i64>().ok()
        };
        let names = [
            "packets received",
            "emc hits",
            "smc hits",
            "megaflow hits",
            "miss with success upcall",
            "miss with failed upcall",
            "simple match hits",
        ];
        let mut values = [0; 7];
        for (value, name) in values.iter_mut().zip(names) {
            *value = number(name).ok_or_else(|| format!("the peer's statistics have no `{name}`"))?;
        }
        Ok((values, cpu))
    }
}

/// A port's counter in what `dpctl/show -s` prints.
fn port_counter(text: &str, port: &str, direction: &str, name: &str) -> Option<u64> {
    let lines = text.lines().skip_while(|line| !line.contains(&format!(": {port} ")));
    let line = lines.skip(1).take(4).find(|line| line.trim().starts_with(direction))?;
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
}

fn vsctl(dir: &Path, args: &[&str]) -> Result<String, String> {
    let db = format!("--db=unix:{}/db.sock", dir.display());
    run(Command::new("ovs-vsctl").arg(db).args(["--retry", "--timeout=60"]).args(args))
}

fn spawn(command: &mut Command, dir: &Path) -> Result<Process, String> {
    let log = std::fs::File::create(dir.join("stderr")).map_err(|e| e.to_string())?;
    command.env("OVS_RUNDIR", dir).env("OVS_DBDIR", dir).env("OVS_LOGDIR", dir).current_dir(dir);
    lease::keep_dpdk_files_in(dir, command);
    Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_the_port_and_direction() {
        let port = |name: &str, n: u64| {
            format!(
                "  port 1: {name} (dpdk: configured_rx_queues=1)\n    RX packets:{n}1 errors:0 dropped:{n}2 \
                 overruns:? frame:?\n    TX packets:{n}3 errors:0 dropped:{n}4 aborted:? carrier:?\n    \
                 collisions:?\n    RX bytes:60 TX bytes:0\n"
            )
        };
        let text = [port("sink", 1), port("vhost", 2)].concat();
        let read = |port, direction, name| port_counter(&text, port, direction, name);
        assert_eq!((read("sink", "RX", "packets"), read("sink", "TX", "dropped")), (Some(11), Some(14)));
        assert_eq!((read("vhost", "TX", "packets"), read("vhost", "RX", "dropped")), (Some(23), Some(22)));
        assert_eq!((read("source", "RX", "packets"), read("sink", "RX", "overruns")), (None, None));
    }
}

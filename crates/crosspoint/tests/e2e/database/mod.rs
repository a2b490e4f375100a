//! The switch configured through a database, by the stock `ovs-vsctl`: what the rows say it becomes, what
//! happened is written back, and nothing else is disturbed.

mod devices;
mod embedded;
mod ports;
mod settings;
mod written_back;

use crate::common::{
    Namespace, Process, RunDir, SCHEMA, Said, UDP, binary, daemon, daemon_in, namespace, run, run_dir,
    wait_for,
};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Stands between the switch and its database, and holds back what the switch says while it is told to.
struct Valve {
    state: Arc<(Mutex<ValveState>, Condvar)>,
}

#[derive(Default)]
struct ValveState {
    is_shut: bool,
    /// A transaction of the switch's waits.
    holds: bool,
}

impl Valve {
    /// Listens on `valve.sock` in the directory for one connection, which it passes on to `db.sock`.
    fn start(dir: &Path) -> Valve {
        let listener = UnixListener::bind(dir.join("valve.sock")).unwrap();
        let server = dir.join("db.sock");
        let state = Arc::new((Mutex::new(ValveState::default()), Condvar::new()));
        let its = state.clone();
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = UnixStream::connect(server).unwrap();
            let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
            let (mut client, mut server, mut buffer) = (client, server, vec![0; 1 << 16]);
            while let Ok(n @ 1..) = client.read(&mut buffer) {
                let (lock, changed) = &*its;
                let mut state = lock.lock().unwrap();
                state.holds = state.is_shut && String::from_utf8_lossy(&buffer[..n]).contains("\"transact\"");
                while state.holds && state.is_shut {
                    state = changed.wait(state).unwrap();
                }
                drop(state);
                if server.write_all(&buffer[..n]).is_err() {
                    return;
                }
            }
        });
        Valve { state }
    }

    fn set_shut(&self, is_shut: bool) {
        self.state.0.lock().unwrap().is_shut = is_shut;
        self.state.1.notify_all();
    }

    fn holds(&self) -> bool {
        self.state.0.lock().unwrap().holds
    }
}

/// A switch on an external database.
struct Rig {
    dir: RunDir,
    switch: Option<Process>,
    _server: Process,
    namespace: Namespace,
}

impl std::ops::Deref for Rig {
    type Target = RunDir;

    fn deref(&self) -> &RunDir {
        &self.dir
    }
}

impl Rig {
    fn start() -> Rig {
        let dir = run_dir();
        let server = dir.serve_database();
        let mut rig = Rig { dir, switch: None, _server: server, namespace: namespace() };
        rig.try_vsctl(&["--no-wait", "init"]).ok();
        rig.start_switch();
        rig
    }

    fn start_switch(&mut self) {
        self.start_switch_at("db.sock");
    }

    /// With its database behind another socket.
    fn start_switch_at(&mut self, socket: &str) {
        std::fs::write(self.file("log"), "").unwrap();
        let remote = format!("unix:{}", self.file(socket).display());
        let args = [&remote, "--enable-dummy", "--pool-size", "4096"];
        self.switch = Some(Process::start(&mut daemon_in(&self.namespace, &self.dir, &args)));
        wait_for("the switch to run", || self.log().contains("(Open vSwitch)"));
    }

    fn stop_switch(&mut self, signal: &str) {
        self.switch.take().unwrap().end_by(signal);
    }

    fn log(&self) -> String {
        self.read("log")
    }

    /// How long the switch has run on a processor, in hundredths of a second.
    fn processor_ticks(&self) -> u64 {
        let pid = self.switch.as_ref().unwrap().id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11);
        fields.take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// What a column of a row holds.
    #[track_caller]
    fn get(&self, table: &str, row: &str, column: &str) -> String {
        self.try_vsctl(&["get", table, row, column]).ok().trim().to_string()
    }

    /// `ip` in the switch's network namespace.
    fn ip(&self, args: &[&str]) -> Said {
        run(self.namespace.command("ip").args(args))
    }

    /// Bridge br0 on dummies.
    fn add_bridge(&self) {
        self.try_vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]).ok();
    }

    fn add_dummy(&self, name: &str) {
        self.try_vsctl(&["add-port", "br0", name, "--", "set", "interface", name, "type=dummy"]).ok();
    }

    /// Ports NAME1 to NAMEn on br0 in one transaction, after another command in the same; how long it took.
    fn add_ports(&self, first: &[&str], name: &str, count: usize, kind: &str) -> Duration {
        let mut args: Vec<String> = first.iter().copied().map(String::from).collect();
        for n in 1..=count {
            let name = format!("{name}{n}");
            let kind = format!("type={kind}");
            let add = ["--", "add-port", "br0", &name, "--", "set", "interface", &name, &kind];
            args.extend(add.map(String::from));
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let start = Instant::now();
        self.try_vsctl(&args).ok();
        start.elapsed()
    }

    fn receive(&self, port: &str) {
        self.appctl(&["netdev-dummy/receive", port, UDP]).ok();
    }

    fn sent(&self, port: &str) -> usize {
        self.appctl(&["netdev-dummy/sent", port]).ok().lines().count()
    }
}

#[test]
fn bridges_and_ports_come_and_go_with_their_rows_under_traffic() {
    let rig = Rig::start();
    rig.add_bridge();
    assert!(rig.file("br0.mgmt").exists() && rig.file("br0.snoop").exists());
    rig.add_dummy("p1");
    rig.add_dummy("p2");
    assert_eq!(rig.get("interface", "p1", "ofport"), "1");
    let show = rig.run("ovs-ofctl", &["show", "br0"]).ok();
    assert!(show.contains(" 1(p1)") && show.contains(" 2(p2)") && show.contains(" LOCAL(br0)"), "{show}");
    let flows = rig.run("ovs-ofctl", &["dump-flows", "br0"]).ok();
    assert!(flows.contains("priority=0 actions=NORMAL"), "{flows}");
    let mut sent = 0;
    for n in 0..10 {
        rig.receive("p1");
        let name = format!("q{n}");
        rig.add_dummy(&name);
        rig.receive("p1");
        rig.try_vsctl(&["del-port", &name]).ok();
        wait_for("both packets", || {
            sent += rig.sent("p2");
            sent == 2 * (n + 1)
        });
    }
    rig.try_vsctl(&["del-br", "br0"]).ok();
    assert!(!rig.file("br0.mgmt").exists());
    assert_eq!(rig.appctl(&["ofproto/list"]).ok(), "");
    assert!(rig.run("ovs-ofctl", &["show", "br0"]).code != Some(0));
}

#[test]
fn a_restart_keeps_port_numbers_and_a_killed_switch_comes_back_as_it_was() {
    let mut rig = Rig::start();
    rig.add_bridge();
    for name in ["c", "a", "b"] {
        rig.add_dummy(name);
    }
    // Otherwise dummies have addresses in the order in which a process makes them.
    rig.try_vsctl(&[
        "set",
        "interface",
        "a",
        "mac=\"02:00:00:00:00:0a\"",
        "--",
        "set",
        "interface",
        "b",
        "mac=\"02:00:00:00:00:0b\"",
    ])
    .ok();
    rig.try_vsctl(&["del-port", "c"]).ok();
    let before = rig.run("ovs-ofctl", &["show", "br0"]).ok();
    for signal in ["TERM", "KILL"] {
        rig.stop_switch(signal);
        rig.start_switch();
        wait_for("the bridge", || {
            rig.file("br0.mgmt").exists() && rig.appctl(&["ofproto/list"]).out == "br0\n"
        });
        wait_for("the ports", || {
            let now = rig.run("ovs-ofctl", &["show", "br0"]);
            now.out.lines().skip(1).eq(before.lines().skip(1))
        });
        assert_eq!(rig.get("interface", "a", "ofport"), "2");
    }
}

#[test]
fn a_database_that_goes_away_is_waited_for_and_the_switch_runs_on() {
    let dir = run_dir();
    let remote = dir.database();
    let switch = Process::start(&mut daemon(&dir, &[&remote, "--enable-dummy", "--pool-size", "4096"]));
    let log = || dir.read("log");
    wait_for("the first attempt", || log().contains("connection attempt failed (No such file or directory)"));
    let server = dir.serve_database();
    dir.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    assert_eq!(dir.appctl(&["ofproto/list"]).ok(), "br0\n");
    drop(server);
    let _ = std::fs::remove_file(dir.path().join("db.sock"));
    wait_for("the loss", || log().contains("|INFO|") && log().contains("connection closed by peer"));
    assert_eq!(dir.appctl(&["ofproto/list"]).ok(), "br0\n");
    let _server = dir.serve_database();
    dir.vsctl("add-br br1 -- set bridge br1 datapath_type=dummy");
    assert_eq!(dir.appctl(&["ofproto/list"]).ok(), "br0\nbr1\n");
    // A second switch on the same database keeps its hands off.
    let other = run_dir();
    let _second = Process::start(&mut daemon(&other, &[&remote, "--enable-dummy", "--pool-size", "4096"]));
    wait_for("the second to see the lock", || {
        other.read("log").contains("another ovs-vswitchd process is running")
    });
    assert!(!other.path().join("br0.mgmt").exists());
    drop(switch);
    wait_for("the second to take over", || other.path().join("br0.mgmt").exists());
}

#[test]
fn a_switch_that_loses_its_lock_leaves_bridges_and_devices_to_the_new_owner() {
    let rig = Rig::start();
    rig.try_vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]).ok();
    rig.try_vsctl(&["add-port", "br0", "a", "--", "set", "interface", "a", "type=internal"]).ok();
    let index = || {
        let shown = rig.ip(&["-o", "link", "show", "a"]).ok();
        shown.split(':').next().map(String::from)
    };
    let (before, is_served) = (index(), || rig.file("br0.mgmt").exists());
    let thief = Process::silent(rig.command("ovsdb-client").args(["steal", &rig.database(), "ovs_vswitchd"]));
    wait_for("the bridge to go", || !is_served() && rig.appctl(&["ofproto/list"]).ok().is_empty());
    assert!(rig.log().contains("another ovs-vswitchd process is running, disabling this process"));
    assert_eq!(index(), before, "the device is the new owner's");
    // It waits for the lock without work to do.
    let since = rig.processor_ticks();
    std::thread::sleep(Duration::from_secs(2));
    let ran = rig.processor_ticks() - since;
    assert!(ran < 100, "it ran for {ran} of 200 ticks");
    drop(thief);
    wait_for("the bridge to return", || is_served() && rig.get("interface", "a", "error") == "[]");
    assert_eq!(index(), before);
    rig.try_vsctl(&["del-port", "a"]).ok();
    rig.ip(&["link", "show", "a"]).failed();
}

#[test]
fn what_the_database_got_while_a_switch_was_without_its_lock_is_there_when_it_has_it_again() {
    let rig = Rig::start();
    let port = |name: &str, bridge: &str| {
        let words = ["--no-wait", "add-port", bridge, name, "--", "set", "interface", name, "type=dummy"];
        rig.try_vsctl(&words).ok();
    };
    rig.try_vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]).ok();
    (0..3).for_each(|n| port(&format!("old{n}"), "br0"));
    for round in 0..2 {
        let thief =
            Process::silent(rig.command("ovsdb-client").args(["steal", &rig.database(), "ovs_vswitchd"]));
        wait_for("the bridges to go", || rig.appctl(&["ofproto/list"]).ok().is_empty());
        let bridge = format!("more{round}");
        let add = ["--no-wait", "add-br", &bridge, "--", "set", "bridge", &bridge, "datapath_type=dummy"];
        rig.try_vsctl(&add).ok();
        for n in 0..100 {
            port(&format!("p{round}_{n}"), if n % 2 == 0 { "br0" } else { &bridge });
        }
        rig.try_vsctl(&["--no-wait", "del-port", &format!("old{round}")]).ok();
        rig.try_vsctl(&["--no-wait", "set", "bridge", "br0", "other_config:mac-table-size=100"]).ok();
        assert_eq!(rig.appctl(&["ofproto/list"]).ok(), "", "it has no lock");
        drop(thief);
        // Returns when all of it is in force.
        rig.try_vsctl(&["set", "bridge", &bridge, "other_config:mac-table-size=200"]).ok();
        let shown = rig.appctl(&["dpctl/show"]).ok();
        for n in 0..100 {
            let name = format!("p{round}_{n}");
            assert!(shown.contains(&format!(": {name} (")), "{name}: {shown}");
            assert_ne!(rig.get("interface", &name, "ofport"), "[]", "{name}");
        }
        assert!(!shown.contains(&format!(": old{round} (")) && shown.contains(": old2 ("), "{shown}");
        assert!(rig.appctl(&["fdb/stats-show", "br0"]).ok().contains("table: 0/100\n"));
        assert!(rig.appctl(&["fdb/stats-show", &bridge]).ok().contains("table: 0/200\n"));
    }
}

#[test]
fn the_commands_of_the_pvp_set_up_work_as_printed() {
    let rig = Rig::start();
    rig.try_vsctl(&["set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=0x3c"]).ok();
    rig.try_vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]).ok();
    let socket = rig.file("vhost0.sock");
    rig.try_vsctl(&[
        "add-port",
        "br0",
        "vhost0",
        "--",
        "set",
        "Interface",
        "vhost0",
        "type=dpdkvhostuserclient",
        &format!("options:vhost-server-path={}", socket.display()),
        "--",
        "set",
        "Interface",
        "vhost0",
        "ofport_request=2",
    ])
    .ok();
    rig.try_vsctl(&["set", "interface", "vhost0", "options:n_rxq=4"]).ok();
    assert_eq!(rig.get("interface", "vhost0", "ofport"), "2");
    assert_eq!(rig.get("interface", "vhost0", "error"), "[]");
    let cpus = std::thread::available_parallelism().unwrap().get();
    let shown = rig.appctl(&["dpif-netdev/pmd-rxq-show"]).ok();
    if cpus <= 2 {
        assert!(shown.contains("names only processors that are not there"), "{shown}");
        assert!(rig.log().contains("the default workers run"));
    }
    assert!(shown.contains("pmd thread numa_id 0 core_id"), "{shown}");
    // Its own port is a device of the kernel's.
    rig.ip(&["link", "show", "br0"]).ok();
    rig.try_vsctl(&["set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=0x1"]).ok();
    let shown = rig.appctl(&["dpif-netdev/pmd-rxq-show"]).ok();
    assert!(shown.contains("pmd thread numa_id 0 core_id 0:") && !shown.contains("not there"), "{shown}");
    rig.try_vsctl(&["del-br", "br0"]).ok();
    rig.ip(&["link", "show", "br0"]).failed();
}

#[test]
fn a_configuration_in_force_while_another_write_is_under_way_is_told_nevertheless() {
    let mut rig = Rig::start();
    rig.stop_switch("TERM");
    let valve = Valve::start(rig.dir.path());
    rig.start_switch_at("valve.sock");
    rig.add_bridge();
    rig.add_dummy("p1");
    // The switch writes statistics, and hears no answer for now.
    valve.set_shut(true);
    wait_for("statistics to be on their way", || {
        rig.receive("p1");
        valve.holds()
    });
    std::thread::scope(|scope| {
        let rig = &rig;
        let add = ["--timeout=60", "add-port", "br0", "p2", "--", "set", "interface", "p2", "type=dummy"];
        let added = scope.spawn(move || rig.try_vsctl(&add));
        wait_for("the new port to be there", || rig.appctl(&["dpctl/show"]).ok().contains(" p2 "));
        assert!(!added.is_finished(), "the database was not told yet");
        valve.set_shut(false);
        added.join().unwrap().ok();
    });
}

#[test]
fn a_bundle_that_nobody_touches_is_forgotten_after_the_time_that_is_configured() {
    use openflow::message::{BundleControl, BundleControlType, BundleFlags};
    use openflow::{Codec, Message, Version};
    let rig = Rig::start();
    rig.add_bridge();
    rig.try_vsctl(&["set", "Open_vSwitch", ".", "other_config:bundle-idle-timeout=3"]).ok();
    // Of no use: it stays at 3.
    rig.try_vsctl(&["set", "Open_vSwitch", ".", "other_config:bundle-idle-timeout=0"]).ok();
    let mut stream = UnixStream::connect(rig.file("br0.mgmt")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let codec = Codec::new(Version::V13);
    let send = |stream: &mut UnixStream, xid: u32, message: &Message| {
        stream.write_all(&codec.encode(xid, message).unwrap()).unwrap();
    };
    let receive = |stream: &mut UnixStream| {
        let mut bytes = vec![0; 8];
        stream.read_exact(&mut bytes).unwrap();
        bytes.resize(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 0);
        stream.read_exact(&mut bytes[8..]).unwrap();
        codec.decode(&bytes).unwrap()
    };
    stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    receive(&mut stream);
    rig.appctl(&["time/stop"]).ok();
    let control =
        |kind| Message::BundleControl(BundleControl { bundle_id: 7, kind, flags: BundleFlags::empty() });
    send(&mut stream, 2, &control(BundleControlType::OpenRequest));
    assert_eq!(receive(&mut stream).0, 2);
    rig.appctl(&["time/warp", "2000"]).ok();
    // A touch, after which it waits as long again.
    send(&mut stream, 3, &control(BundleControlType::CloseRequest));
    assert_eq!(receive(&mut stream).0, 3);
    rig.appctl(&["time/warp", "2000"]).ok();
    send(&mut stream, 4, &Message::BarrierRequest);
    assert_eq!(receive(&mut stream), (4, Message::BarrierReply));
    rig.appctl(&["time/warp", "1500"]).ok();
    let (xid, error) = receive(&mut stream);
    assert_eq!(xid, 2);
    assert!(format!("{error:?}").contains("OFPBFC_TIMEOUT"), "{error:?}");
    send(&mut stream, 5, &control(BundleControlType::CommitRequest));
    let (xid, error) = receive(&mut stream);
    assert!(xid == 5 && format!("{error:?}").contains("OFPBFC_BAD_ID"), "{error:?}");
}

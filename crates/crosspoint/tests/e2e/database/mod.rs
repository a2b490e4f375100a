//! The switch configured through a database, by the stock `ovs-vsctl`: what the rows say it becomes, what
//! happened is written back, and nothing else is disturbed.

mod ports;
mod settings;

use crate::common::{Namespace, Said, UDP, binary, daemon, run_dir, wait_for};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A stock `ovsdb-server` with an empty database in a directory.
struct Server {
    child: Child,
}

impl Server {
    fn start(dir: &Path) -> Server {
        let db = dir.join("conf.db");
        if !db.exists() {
            let schema = "/usr/share/openvswitch/vswitch.ovsschema";
            let made = Command::new("ovsdb-tool").arg("create").arg(&db).arg(schema).status().unwrap();
            assert!(made.success());
        }
        let log = std::fs::File::options().append(true).create(true).open(dir.join("server.log")).unwrap();
        let child = Command::new("ovsdb-server")
            .arg(&db)
            .arg(format!("--remote=punix:{}", dir.join("db.sock").display()))
            .arg(format!("--unixctl={}", dir.join("server.ctl").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        wait_for("the database server", || testkit::listens(dir.join("db.sock")));
        Server { child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
    dir: TempDir,
    switch: Option<Child>,
    _server: Server,
    namespace: Namespace,
}

impl Rig {
    fn start() -> Rig {
        let dir = run_dir();
        let server = Server::start(dir.path());
        let mut rig = Rig { dir, switch: None, _server: server, namespace: Namespace::new() };
        rig.vsctl(&["--no-wait", "init"]).ok();
        rig.start_switch();
        rig
    }

    fn start_switch(&mut self) {
        self.start_switch_at("db.sock");
    }

    /// With its database behind another socket.
    fn start_switch_at(&mut self, socket: &str) {
        std::fs::write(self.dir.path().join("log"), "").unwrap();
        let remote = format!("unix:{}", self.dir.path().join(socket).display());
        let log = std::fs::File::options().append(true).open(self.dir.path().join("log")).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.namespace.pid(), "-n"]).arg(binary());
        command.args(["switch", &remote, "--enable-dummy", "--pool-size", "4096"]);
        command.env("OVS_RUNDIR", self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.switch = Some(command.spawn().unwrap());
        wait_for("the switch to run", || self.log().contains("(Open vSwitch)"));
    }

    fn stop_switch(&mut self, signal: &str) {
        let mut child = self.switch.take().unwrap();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        child.wait().unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn run(&self, program: &str, args: &[&str]) -> Said {
        let output = Command::new(program).args(args).env("OVS_RUNDIR", self.dir.path()).output().unwrap();
        Said {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }

    fn vsctl(&self, args: &[&str]) -> Said {
        let db = format!("--db=unix:{}", self.dir.path().join("db.sock").display());
        self.run("ovs-vsctl", &[&["--timeout=30", &db], args].concat())
    }

    /// What a column of a row holds.
    #[track_caller]
    fn get(&self, table: &str, row: &str, column: &str) -> String {
        self.vsctl(&["get", table, row, column]).ok().trim().to_string()
    }

    /// `ip` in the switch's network namespace.
    fn ip(&self, args: &[&str]) -> Said {
        self.run("nsenter", &[&["-t", &self.namespace.pid(), "-n", "ip"], args].concat())
    }

    fn appctl(&self, args: &[&str]) -> Said {
        self.run("ovs-appctl", args)
    }

    /// Bridge br0 on dummies.
    fn add_bridge(&self) {
        self.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]).ok();
    }

    fn add_dummy(&self, name: &str) {
        self.vsctl(&["add-port", "br0", name, "--", "set", "interface", name, "type=dummy"]).ok();
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
        self.vsctl(&args).ok();
        start.elapsed()
    }

    fn receive(&self, port: &str) {
        self.appctl(&["netdev-dummy/receive", port, UDP]).ok();
    }

    fn sent(&self, port: &str) -> usize {
        self.appctl(&["netdev-dummy/sent", port]).ok().lines().count()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mut child) = self.switch.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the switch's log:\n{}", self.log());
        }
    }
}

#[test]
fn bridges_and_ports_come_and_go_with_their_rows_under_traffic() {
    let rig = Rig::start();
    rig.add_bridge();
    assert!(rig.dir.path().join("br0.mgmt").exists() && rig.dir.path().join("br0.snoop").exists());
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
        rig.vsctl(&["del-port", &name]).ok();
        wait_for("both packets", || {
            sent += rig.sent("p2");
            sent == 2 * (n + 1)
        });
    }
    rig.vsctl(&["del-br", "br0"]).ok();
    assert!(!rig.dir.path().join("br0.mgmt").exists());
    assert_eq!(rig.appctl(&["ofproto/list"]).ok(), "");
    assert!(rig.run("ovs-ofctl", &["show", "br0"]).code != Some(0));
}

#[test]
fn what_happened_is_written_back_before_the_client_is_told_that_it_is_in_force() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.vsctl(&[
        "add-port",
        "br0",
        "p1",
        "--",
        "set",
        "interface",
        "p1",
        "type=dummy",
        "ofport_request=7",
        "mtu_request=1400",
    ])
    .ok();
    // No waiting here: ovs-vsctl has waited.
    for (column, value) in [
        ("ofport", "7"),
        ("error", "[]"),
        ("admin_state", "up"),
        ("link_state", "up"),
        ("mtu", "1400"),
        ("link_resets", "0"),
        ("duplex", "[]"),
        ("link_speed", "[]"),
        ("lacp_current", "[]"),
        ("ifindex", "0"),
    ] {
        assert_eq!(rig.get("interface", "p1", column), value, "{column}");
    }
    assert!(rig.get("interface", "p1", "mac_in_use").contains(':'));
    // The bridge's own port follows the smallest.
    assert_eq!(rig.get("interface", "br0", "mtu"), "1400");
    assert_eq!(rig.get("interface", "br0", "ofport"), "65534");
    let root = |column: &str| rig.get("open_vswitch", ".", column);
    assert_eq!(root("cur_cfg"), root("next_cfg"));
    assert_eq!((root("dpdk_initialized"), root("dpdk_version")), ("false".into(), "none".into()));
    assert_eq!(root("datapath_types"), "[dummy, netdev, system]");
    let types = root("iface_types");
    assert!(["afxdp", "internal", "patch", "system", "tap"].iter().all(|t| types.contains(t)), "{types}");
    assert_eq!(root("db_version"), "\"8.3.1\"");
    assert!(!root("ovs_version").is_empty());
    assert_eq!(root("system_type"), "[]");
    // The datapath's row is filled in where somebody made one.
    rig.vsctl(&[
        "--",
        "--id=@d",
        "create",
        "Datapath",
        "datapath_version=0",
        "--",
        "set",
        "open_vswitch",
        ".",
        "datapaths:netdev=@d",
    ])
    .ok();
    wait_for("capabilities", || {
        let listed = rig.vsctl(&["--columns=capabilities", "list", "Datapath"]).ok();
        listed.contains("recirc=\"true\"")
            && listed.contains("ct_state=\"true\"")
            && listed.contains("tnl_push_pop=\"false\"")
    });
    rig.appctl(&["netdev-dummy/set-admin-state", "p1", "down"]).ok();
    wait_for("the link to be down", || rig.get("interface", "p1", "link_state") == "down");
    assert_eq!(rig.get("interface", "p1", "admin_state"), "down");
    assert_eq!(rig.get("interface", "p1", "link_resets"), "1");
}

#[test]
fn statistics_have_the_names_that_exporters_read() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    rig.add_dummy("p2");
    rig.vsctl(&["set", "open_vswitch", ".", "other_config:enable-statistics=true"]).ok();
    for _ in 0..3 {
        rig.receive("p1");
    }
    wait_for("the packets in the statistics", || {
        rig.get("interface", "p1", "statistics:rx_packets") == "3"
            && rig.get("interface", "p2", "statistics:tx_packets") == "3"
    });
    assert_eq!(rig.get("interface", "p1", "statistics:rx_bytes"), "318");
    let all = rig.get("interface", "p1", "statistics");
    for key in [
        "collisions",
        "rx_crc_err",
        "rx_dropped",
        "rx_errors",
        "rx_frame_err",
        "rx_missed_errors",
        "rx_over_err",
        "tx_bytes",
        "tx_dropped",
        "tx_errors",
        "ovs_tx_failure_drops",
        "ovs_rx_qos_drops",
        "ovs_tx_qos_drops",
        "ovs_tx_mtu_exceeded_drops",
    ] {
        assert!(all.contains(&format!("{key}=0")) || key == "tx_bytes", "{key}: {all}");
    }
    wait_for("statistics of the machine", || {
        rig.get("open_vswitch", ".", "statistics").contains("load_average")
    });
    let machine = rig.get("open_vswitch", ".", "statistics");
    for key in ["cpu=", "memory=", "process_ovs-vswitchd=", "file_systems="] {
        assert!(machine.contains(key), "{key}: {machine}");
    }
    rig.vsctl(&["set", "open_vswitch", ".", "other_config:enable-statistics=false"]).ok();
    wait_for("no statistics", || rig.get("open_vswitch", ".", "statistics") == "{}");
}

#[test]
fn errors_are_shown_where_they_belong_and_previous_settings_stay() {
    let rig = Rig::start();
    rig.add_bridge();
    // With receive queues that workers poll.
    rig.vsctl(&["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy-pmd"]).ok();
    let said = rig.vsctl(&["add-port", "br0", "nosuchdevice"]);
    let expected = "could not open network device nosuchdevice (No such device)";
    assert!(said.err.contains(expected), "{said:?}");
    assert!(rig.get("interface", "nosuchdevice", "error").contains(expected));
    assert_eq!(rig.get("interface", "nosuchdevice", "ofport"), "-1");
    assert!(rig.vsctl(&["show"]).ok().contains(expected));
    // The others forward as before.
    rig.add_dummy("p2");
    rig.receive("p1");
    wait_for("a packet", || rig.sent("p2") == 1);

    rig.vsctl(&["set", "interface", "p1", "options:n_rxq=2"]).ok();
    let queues = || rig.appctl(&["dpif-netdev/pmd-rxq-show"]).ok().matches("port: p1 ").count();
    assert_eq!(queues(), 2);
    rig.vsctl(&["set", "interface", "p1", "options:n_rxq=plenty"]).ok();
    assert!(rig.get("interface", "p1", "error").contains("n_rxq=plenty"));
    assert_eq!((queues(), rig.get("interface", "p1", "ofport").as_str()), (2, "1"));
    rig.vsctl(&["set", "interface", "p1", "options:n_rxq=1"]).ok();
    assert_eq!((rig.get("interface", "p1", "error").as_str(), queues()), ("[]", 1));

    // What is ignored is our own to say.
    rig.appctl(&["vlog/set", "bridge:dbg"]).ok();
    rig.vsctl(&["set", "bridge", "br0", "other_config:mac-table-size=20"]).ok();
    rig.vsctl(&["set", "bridge", "br0", "other_config:mac-table-size=many", "other_config:no-such-key=1"])
        .ok();
    let fdb = rig.appctl(&["fdb/stats-show", "br0"]).ok();
    assert!(fdb.contains("/20\n"), "{fdb}");
    rig.vsctl(&["set", "bridge", "br0", "other_config:dp-desc=x"]).ok();
    let log = rig.log();
    assert_eq!(log.matches("other_config:no-such-key is not known").count(), 1, "{log}");
    assert_eq!(log.matches("mac-table-size=many is not a number").count(), 1, "{log}");

    // What a device refuses does not cost the port, neither now nor when it is opened with it.
    let mtu = ["set", "interface", "mtu1", "type=internal", "mtu_request=65536"];
    rig.vsctl(&[&["add-port", "br0", "mtu1", "--"][..], &mtu].concat());
    assert!(rig.get("interface", "mtu1", "error").contains("could not set mtu_request"));
    assert_ne!(rig.get("interface", "mtu1", "ofport"), "-1");
    assert_eq!(rig.get("interface", "mtu1", "mtu"), "1500");
    rig.vsctl(&["del-port", "mtu1"]).ok();

    rig.vsctl(&[
        "add-port",
        "br0",
        "loose",
        "--",
        "set",
        "interface",
        "loose",
        "type=patch",
        "options:peer=end",
    ]);
    let error = rig.get("interface", "loose", "error");
    assert_eq!(error, "\"No usable peer 'end' exists in 'netdev' datapath.\"");
    assert_eq!(rig.get("interface", "loose", "ifindex"), "0");
    rig.vsctl(&[
        "add-port",
        "br0",
        "end",
        "--",
        "set",
        "interface",
        "end",
        "type=patch",
        "options:peer=loose",
    ])
    .ok();
    wait_for("the cable", || rig.get("interface", "loose", "error") == "[]");

    let said = rig.vsctl(&["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=quantum"]);
    assert!(said.err.contains("datapath_type=quantum is not known"), "{said:?}");
    assert!(rig.appctl(&["ofproto/list"]).ok() == "br0\n");
}

#[test]
fn packets_through_a_cable_count_at_both_of_its_ends() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    rig.vsctl(&["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy"]).ok();
    for (bridge, end, other) in [("br0", "pa", "pb"), ("br1", "pb", "pa")] {
        let peer = format!("options:peer={other}");
        rig.vsctl(&["add-port", bridge, end, "--", "set", "interface", end, "type=patch", &peer]).ok();
    }
    (0..5).for_each(|_| rig.receive("p1"));
    for (bridge, end, counted) in [("br0", "pa", "tx"), ("br1", "pb", "rx")] {
        let line = |direction: &str| {
            let text = rig.run("ovs-ofctl", &["dump-ports", bridge, end]).ok();
            text.lines().find(|l| l.contains(&format!("{direction} pkts="))).unwrap().trim().to_string()
        };
        wait_for("what passed the cable", || line(counted).contains(&format!("{counted} pkts=5, bytes=")));
        let none = if counted == "tx" { "rx" } else { "tx" };
        assert!(line(none).contains(&format!("{none} pkts=0, bytes=0, drop=?, errs=?")), "{}", line(none));
    }
}

#[test]
fn a_restart_keeps_port_numbers_and_a_killed_switch_comes_back_as_it_was() {
    let mut rig = Rig::start();
    rig.add_bridge();
    for name in ["c", "a", "b"] {
        rig.add_dummy(name);
    }
    // Otherwise dummies have addresses in the order in which a process makes them.
    rig.vsctl(&[
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
    rig.vsctl(&["del-port", "c"]).ok();
    let before = rig.run("ovs-ofctl", &["show", "br0"]).ok();
    for signal in ["-TERM", "-KILL"] {
        rig.stop_switch(signal);
        rig.start_switch();
        wait_for("the bridge", || {
            rig.dir.path().join("br0.mgmt").exists() && rig.appctl(&["ofproto/list"]).out == "br0\n"
        });
        wait_for("the ports", || {
            let now = rig.run("ovs-ofctl", &["show", "br0"]);
            now.out.lines().skip(1).eq(before.lines().skip(1))
        });
        assert_eq!(rig.get("interface", "a", "ofport"), "2");
    }
}

#[test]
fn devices_of_the_switch_outlive_it_with_their_addresses_and_are_taken_up_not_doubled() {
    let mut rig = Rig::start();
    let add = |rig: &Rig, name: &str, kind: &str| {
        let kind = format!("type={kind}");
        rig.vsctl(&["add-port", "br0", name, "--", "set", "interface", name, &kind]).ok();
    };
    rig.ip(&["tuntap", "add", "dev", "other", "mode", "tap"]).ok();
    rig.vsctl(&["add-br", "br0"]).ok();
    add(&rig, "int1", "internal");
    add(&rig, "tap1", "tap");
    rig.ip(&["addr", "add", "192.0.2.1/24", "dev", "br0"]).ok();
    assert!(rig.get("interface", "br0", "status").contains("driver_version="));
    let (speed, duplex) = (rig.get("interface", "br0", "link_speed"), rig.get("interface", "br0", "duplex"));
    assert_eq!(duplex, if speed == "[]" { "[]" } else { "full" });
    let index = |rig: &Rig, name: &str| rig.get("interface", name, "ifindex");
    let before = ["br0", "int1", "tap1"].map(|name| index(&rig, name));
    let devices = |rig: &Rig| {
        let text = rig.ip(&["-o", "link", "show"]).ok();
        let names = text.lines().filter_map(|line| line.split(": ").nth(1));
        names.map(String::from).filter(|name| name != "lo").collect::<Vec<_>>()
    };
    let address = |rig: &Rig| rig.ip(&["addr", "show", "br0"]).ok().contains("192.0.2.1/24");
    let all = devices(&rig);

    for signal in ["-KILL", "-TERM"] {
        rig.stop_switch(signal);
        assert_eq!(devices(&rig), all, "after {signal}");
        assert!(address(&rig));
        // What it knew of before is known anew before anything is told to be in force.
        rig.vsctl(&["--no-wait", "clear", "interface", "br0", "ifindex"]).ok();
        rig.start_switch();
        rig.vsctl(&["set", "bridge", "br0", "external_ids:again=1"]).ok();
        assert_eq!(["br0", "int1", "tap1"].map(|name| index(&rig, name)), before, "after {signal}");
        assert_eq!(rig.get("interface", "br0", "error"), "[]");
        assert_eq!(devices(&rig), all);
        assert!(address(&rig));
    }

    // What is no longer wanted when it starts goes, and nothing else.
    rig.appctl(&["exit"]).ok();
    assert!(rig.switch.take().unwrap().wait().unwrap().success());
    assert_eq!(devices(&rig), all);
    rig.vsctl(&["--no-wait", "del-port", "br0", "int1"]).ok();
    rig.start_switch();
    wait_for("the device to go", || !devices(&rig).contains(&"int1".into()));
    rig.vsctl(&["set", "bridge", "br0", "external_ids:again=2"]).ok();
    assert_eq!(index(&rig, "br0"), before[0]);
    assert!(address(&rig));

    // A port that goes takes its device with it, and one of the same name that comes at once is another one.
    rig.vsctl(&[
        "del-port",
        "br0",
        "tap1",
        "--",
        "add-port",
        "br0",
        "int2",
        "--",
        "set",
        "interface",
        "int2",
        "type=tap",
    ])
    .ok();
    wait_for("the device to go", || !devices(&rig).contains(&"tap1".into()));
    let old = index(&rig, "int2");
    rig.vsctl(&["set", "interface", "int2", "type=internal"]).ok();
    assert_ne!(index(&rig, "int2"), old);
    assert_eq!(rig.get("interface", "int2", "error"), "[]");

    rig.appctl(&["exit", "--cleanup"]).ok();
    assert!(rig.switch.take().unwrap().wait().unwrap().success());
    assert_eq!(devices(&rig), ["other"]);
}

#[test]
fn while_many_devices_go_the_switch_answers_and_one_of_their_names_comes_again() {
    const PORTS: usize = 100;
    let rig = Rig::start();
    let made = rig.add_ports(&["add-br", "br0"], "int", PORTS, "internal");
    assert_eq!(rig.get("interface", "int100", "ofport"), "100");
    let count =
        |rig: &Rig| rig.ip(&["-o", "link", "show"]).ok().lines().filter(|l| l.contains(": int")).count();
    assert_eq!(count(&rig), PORTS);
    let start = Instant::now();
    rig.vsctl(&["--no-wait", "del-br", "br0"]).ok();
    // The kernel is at it for a while; the control thread is not.
    let mut longest = Duration::ZERO;
    wait_for("the bridge to go", || {
        let start = Instant::now();
        let shown = rig.appctl(&["dpif/show"]).ok();
        longest = longest.max(start.elapsed());
        !shown.contains("br0")
    });
    let again = ["add-br", "br0", "--", "add-port", "br0", "int100", "--", "set", "interface", "int100"];
    rig.vsctl(&[&again[..], &["type=internal"]].concat()).ok();
    assert_eq!(rig.get("interface", "int100", "error"), "[]");
    // Who is told that it is in force finds it so.
    assert_eq!(count(&rig), 1);
    println!("{PORTS} internal ports in {made:?}, gone in {:?}, longest answer {longest:?}", start.elapsed());
    assert!(rig.appctl(&["memory/show"]).ok().contains("devices-leaving:0 "));
}

#[test]
fn a_database_that_goes_away_is_waited_for_and_the_switch_runs_on() {
    let dir = run_dir();
    let remote = format!("unix:{}", dir.path().join("db.sock").display());
    let mut switch = daemon(dir.path(), &[&remote, "--enable-dummy", "--pool-size", "4096"]).spawn().unwrap();
    let log = || std::fs::read_to_string(dir.path().join("log")).unwrap();
    wait_for("the first attempt", || log().contains("connection attempt failed (No such file or directory)"));
    let server = Server::start(dir.path());
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).env("OVS_RUNDIR", dir.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let db = format!("--db={remote}");
    run(
        "ovs-vsctl",
        &["--timeout=30", &db, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"],
    );
    assert_eq!(run("ovs-appctl", &["ofproto/list"]), "br0\n");
    drop(server);
    let _ = std::fs::remove_file(dir.path().join("db.sock"));
    wait_for("the loss", || log().contains("|INFO|") && log().contains("connection closed by peer"));
    assert_eq!(run("ovs-appctl", &["ofproto/list"]), "br0\n");
    let _server = Server::start(dir.path());
    run(
        "ovs-vsctl",
        &["--timeout=30", &db, "add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy"],
    );
    assert_eq!(run("ovs-appctl", &["ofproto/list"]), "br0\nbr1\n");
    // A second switch on the same database keeps its hands off.
    let other = run_dir();
    let mut second =
        daemon(other.path(), &[&remote, "--enable-dummy", "--pool-size", "4096"]).spawn().unwrap();
    let second_log = || std::fs::read_to_string(other.path().join("log")).unwrap();
    wait_for("the second to see the lock", || {
        second_log().contains("another ovs-vswitchd process is running")
    });
    assert!(!other.path().join("br0.mgmt").exists());
    let _ = switch.kill();
    let _ = switch.wait();
    wait_for("the second to take over", || other.path().join("br0.mgmt").exists());
    let _ = second.kill();
    let _ = second.wait();
}

#[test]
fn the_commands_of_the_pvp_set_up_work_as_printed() {
    let rig = Rig::start();
    rig.vsctl(&["set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=0x3c"]).ok();
    rig.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]).ok();
    let socket = rig.dir.path().join("vhost0.sock");
    rig.vsctl(&[
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
    rig.vsctl(&["set", "interface", "vhost0", "options:n_rxq=4"]).ok();
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
    rig.vsctl(&["set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=0x1"]).ok();
    let shown = rig.appctl(&["dpif-netdev/pmd-rxq-show"]).ok();
    assert!(shown.contains("pmd thread numa_id 0 core_id 0:") && !shown.contains("not there"), "{shown}");
    rig.vsctl(&["del-br", "br0"]).ok();
    rig.ip(&["link", "show", "br0"]).failed();
}

#[test]
fn a_port_comes_when_its_device_appears() {
    let rig = Rig::start();
    rig.add_bridge();
    let (one, other) = ("veth0", "veth1");
    let ip = |args: &[&str]| drop(rig.ip(args).ok());
    rig.vsctl(&["add-port", "br0", one]);
    assert_eq!(rig.get("interface", one, "ofport"), "-1");
    ip(&["link", "add", one, "type", "veth", "peer", "name", other]);
    ip(&["link", "set", one, "up"]);
    wait_for("the port", || rig.get("interface", one, "ofport") == "1");
    assert_eq!(rig.get("interface", one, "error"), "[]");
    assert_ne!(rig.get("interface", one, "ifindex"), "0");
    ip(&["link", "del", one]);
    wait_for("the error", || rig.get("interface", one, "error").contains(one));
    ip(&["link", "add", one, "type", "veth", "peer", "name", other]);
    wait_for("the port again", || rig.get("interface", one, "error") == "[]");
    assert_eq!(rig.get("interface", one, "ofport"), "1");
}

#[test]
fn a_device_that_is_replaced_at_once_is_taken_up_by_its_name() {
    let rig = Rig::start();
    rig.add_bridge();
    let replace = "link del veth0\nlink add veth0 type veth peer name veth1\nlink set veth0 up\n";
    let batch = rig.dir.path().join("batch");
    std::fs::write(&batch, replace).unwrap();
    rig.ip(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]).ok();
    rig.vsctl(&["add-port", "br0", "veth0"]).ok();
    // While it is gone the row has no index.
    let mut indexes = vec!["0".to_owned(), "[]".to_owned(), rig.get("interface", "veth0", "ifindex")];
    for _ in 0..3 {
        rig.ip(&["-batch", batch.to_str().unwrap()]).ok();
        wait_for("the new device", || !indexes.contains(&rig.get("interface", "veth0", "ifindex")));
        assert_eq!(rig.get("interface", "veth0", "error"), "[]");
        assert_eq!(rig.get("interface", "veth0", "ofport"), "1");
        indexes.push(rig.get("interface", "veth0", "ifindex"));
    }
}

/// The same without a database: what flags asked for comes again.
#[test]
fn a_port_of_the_command_line_comes_again_with_its_device() {
    let (dir, namespace) = (run_dir(), Namespace::new());
    let ip = |args: &str| {
        let mut command = Command::new("nsenter");
        command.args(["-t", &namespace.pid(), "-n", "ip"]).args(args.split(' '));
        assert!(command.status().unwrap().success(), "{args}");
    };
    ip("link add veth0 type veth peer name veth1");
    ip("link set veth0 up");
    let mut command = Command::new("nsenter");
    command.args(["-t", &namespace.pid(), "-n"]).arg(binary());
    command.args(["switch", "--bridge", "br0", "--port", "p1,type=afxdp,ifname=veth0,ofport=5"]);
    command.args(["--pool-size", "4096"]).env("OVS_RUNDIR", dir.path()).stdin(Stdio::null());
    let mut switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).env("OVS_RUNDIR", dir.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let target = dir.path().join(format!("ovs-vswitchd.{}.ctl", switch.id()));
    let port = || {
        let text = run("ovs-appctl", &["-t", target.to_str().unwrap(), "dpctl/show"]);
        text.lines().find(|l| l.contains(": p1 (")).unwrap_or_default().to_string()
    };
    wait_for("the port", || port().contains("xdp-mode="));
    ip("link del veth0");
    wait_for("the error", || port().contains("error=") && !port().contains("xdp-mode="));
    ip("link add veth0 type veth peer name veth1");
    wait_for("the port again", || port().contains("xdp-mode="));
    assert!(run("ovs-ofctl", &["show", "br0"]).contains(" 5(p1): "));
    switch.kill().unwrap();
    switch.wait().unwrap();
}

#[test]
fn a_thousand_ports_come_in_one_transaction() {
    let rig = Rig::start();
    rig.add_bridge();
    let took = rig.add_ports(&[], "p", 1000, "dummy");
    assert_eq!(rig.get("interface", "p1000", "ofport"), "1000");
    // How long it takes the switch is tested where nothing else takes time (reconcile's tests).
    println!("a thousand ports in {took:?}");
    let all: Vec<&str> = ["--", "del-br", "br0"].to_vec();
    rig.vsctl(&all).ok();
    assert_eq!(rig.appctl(&["dpif/show"]).ok().lines().count(), 1);
}

#[test]
fn keys_that_others_read_are_kept_as_they_are_and_nobody_complains_of_them() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    for (table, row, column, value) in [
        ("open_vswitch", ".", "external_ids:hostname", "h1"),
        ("open_vswitch", ".", "external_ids:rundir", "r1"),
        ("bridge", "br0", "external_ids:bridge-id", "b7"),
        ("port", "p1", "external_ids:fake-bridge-xs-network", "n1"),
        ("port", "p1", "other_config:transient", "true"),
        ("interface", "p1", "external_ids:attached-mac", "m1"),
        ("interface", "p1", "external_ids:iface-id", "i1"),
        ("interface", "p1", "external_ids:iface-status", "active"),
        ("interface", "p1", "external_ids:vm-id", "v1"),
    ] {
        rig.vsctl(&["set", table, row, &format!("{column}={value}")]).ok();
        assert_eq!(rig.get(table, row, column).trim_matches('"'), value, "{column}");
    }
    let log = rig.log();
    assert!(!log.contains("is not known") && !log.contains("|WARN|"), "{log}");
}

#[test]
fn a_datapaths_row_says_what_it_can_do() {
    let rig = Rig::start();
    rig.add_bridge();
    let row = ["--id=@d", "create", "datapath", "datapath_version=x"];
    rig.vsctl(&[&["--"], &row[..], &["--", "set", "open_vswitch", ".", "datapaths:netdev=@d"]].concat()).ok();
    let has =
        |pair: &str| rig.vsctl(&["--bare", "--columns=capabilities", "list", "datapath"]).ok().contains(pair);
    for pair in [
        "check_pkt_len=true",
        "clone=true",
        "ct_clear=true",
        "ct_eventmask=true",
        "ct_label=true",
        "ct_mark=true",
        "ct_orig_tuple=true",
        "ct_orig_tuple6=true",
        "ct_state=true",
        "ct_state_nat=true",
        "ct_timeout=true",
        "ct_zero_snat=true",
        "ct_zone=true",
        "explicit_drop_action=true",
        "lb_output_action=false",
        "masked_set_action=true",
        "max_hash_alg=0",
        "max_vlan_headers=2",
        "nd_ext=true",
        "recirc=true",
        "sample_nesting=10",
        "tnl_push_pop=false",
        "trunc=true",
        "ufid=true",
    ] {
        wait_for(pair, || has(pair));
    }
}

#[test]
fn description_and_serial_number_of_a_bridge_are_what_its_row_says() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.vsctl(&["set", "bridge", "br0", "other_config:dp-desc=the first", "other_config:dp-sn=S7"]).ok();
    let said = rig.run("ovs-ofctl", &["dump-desc", "br0"]).ok();
    assert!(said.contains("Serial Num: S7") && said.contains("DP Description: the first"), "{said}");
    rig.vsctl(&["set", "bridge", "br0", "other_config:hwaddr=\"02:00:00:00:00:aa\""]).ok();
    assert_eq!(rig.get("bridge", "br0", "datapath_id"), "\"00000200000000aa\"");
    assert_eq!(rig.get("interface", "br0", "mac_in_use"), "\"02:00:00:00:00:aa\"");
    rig.vsctl(&["set", "bridge", "br0", "other_config:datapath-id=0x77"]).ok();
    assert_eq!(rig.get("bridge", "br0", "datapath_id"), "\"0000000000000077\"");
    let said = rig.run("ovs-ofctl", &["show", "br0"]).ok();
    assert!(said.contains("dpid:0000000000000077"), "{said}");
}

#[test]
fn what_becomes_of_a_controller_is_in_its_row() {
    let rig = Rig::start();
    rig.add_bridge();
    let socket = rig.dir.path().join("controller.sock");
    let target = format!("unix:{}", socket.display());
    rig.vsctl(&["set-controller", "br0", &target]).ok();
    let get = |column: &str| rig.vsctl(&["get", "controller", "br0", column]).ok().trim().to_string();
    wait_for("the failure in the row", || get("status").contains("last_error=\"No such file or directory\""));
    assert_eq!((get("is_connected").as_str(), get("role").as_str()), ("false", "[]"));
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    wait_for("an attempt", || !get("status:state").contains("BACKOFF"));
    rig.vsctl(&["del-controller", "br0"]).ok();
    assert!(rig.run("ovs-ofctl", &["dump-flows", "br0"]).ok().contains("actions=NORMAL"));
}

/// The switch that serves its database itself, in a directory.
fn embedded(dir: &Path, log: &str) -> Child {
    let log = std::fs::File::options().append(true).create(true).open(dir.join(log)).unwrap();
    let mut command = Command::new("unshare");
    command.arg("--net").arg(binary()).args(["switch", "--enable-dummy", "--pool-size", "4096"]);
    command
        .env("OVS_RUNDIR", dir)
        .env("OVS_DBDIR", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().unwrap()
}

#[test]
fn without_arguments_it_serves_its_own_database_and_takes_over_what_a_killed_one_left() {
    let dir = run_dir();
    let path = |name: &str| dir.path().join(name);
    let log = || std::fs::read_to_string(path("log")).unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).env("OVS_RUNDIR", dir.path()).output().unwrap();
        Said {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    };
    let mut switch = embedded(dir.path(), "log");
    wait_for("the switch to run", || log().contains("(Open vSwitch)"));
    let pid = switch.id();
    for name in ["conf.db", "db.sock", "ovs-vswitchd.pid", "ovsdb-server.pid"] {
        assert!(path(name).exists(), "{name}");
    }
    assert!(
        path(&format!("ovs-vswitchd.{pid}.ctl")).exists()
            && path(&format!("ovsdb-server.{pid}.ctl")).exists()
    );
    let add = ["--timeout=30", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"];
    run("ovs-vsctl", &add).ok();
    let add = [
        "--timeout=30",
        "add-port",
        "br0",
        "p1",
        "--",
        "set",
        "interface",
        "p1",
        "type=dummy",
        "ofport_request=9",
    ];
    run("ovs-vsctl", &add).ok();
    assert!(run("ovs-ofctl", &["show", "br0"]).ok().contains(" 9(p1)"));
    run("ovs-appctl", &["-t", "ovsdb-server", "list-commands"]).ok();
    // A second one disturbs nothing.
    let second = embedded(dir.path(), "second.log").wait().unwrap();
    assert!(!second.success());
    run("ovs-vsctl", &["--timeout=30", "br-exists", "br0"]).ok();

    switch.kill().unwrap();
    switch.wait().unwrap();
    assert!(path("db.sock").exists());
    std::fs::write(path("log"), "").unwrap();
    let mut switch = embedded(dir.path(), "log");
    wait_for("the switch to run again", || log().contains("(Open vSwitch)"));
    wait_for("the port", || run("ovs-ofctl", &["show", "br0"]).out.contains(" 9(p1)"));
    assert!(Command::new("kill").arg(switch.id().to_string()).status().unwrap().success());
    assert!(switch.wait().unwrap().success());
    for name in ["db.sock", "ovs-vswitchd.pid", "ovsdb-server.pid", "br0.mgmt"] {
        assert!(!path(name).exists(), "{name}");
    }
    // As the stock switch does, it warns that a signal ends it.
    let is_bad = |l: &str| {
        (l.contains("|WARN|") || l.contains("|ERR|"))
            && !l.contains("terminating with signal 15 (Terminated)")
    };
    assert!(!log().lines().any(is_bad), "{}", log());
}

#[test]
fn a_database_that_nobody_has_initialised_gets_its_first_row_and_the_switch_runs() {
    let dir = run_dir();
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    run_in(dir.path(), "ovsdb-tool", &["create", "conf.db", schema]).ok();
    let mut command = Command::new("unshare");
    command.arg("--net").arg(binary()).args(["switch", "--detach", "--enable-dummy", "--pool-size", "4096"]);
    command.args(["--log-file=log", "-vconsole:off"]).env("OVS_LOGDIR", dir.path());
    command.env("OVS_RUNDIR", dir.path()).env("OVS_DBDIR", dir.path()).stdin(Stdio::null());
    let started = command.output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let vsctl = |args: &[&str]| run_in(dir.path(), "ovs-vsctl", &[&["--timeout=30"], args].concat());
    assert_eq!(vsctl(&["get", "Open_vSwitch", ".", "cur_cfg"]).ok(), "0\n");

    // What it reads of daemons' pid files for its statistics costs it the locks of neither of its own.
    vsctl(&["set", "Open_vSwitch", ".", "other_config:enable-statistics=true"]).ok();
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        let key = format!("statistics:process_{daemon}");
        wait_for(&key, || vsctl(&["--if-exists", "get", "Open_vSwitch", ".", &key]).out.contains(','));
    }
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        run_in(dir.path(), "ovs-appctl", &["-t", daemon, "version"]).ok();
    }
    run_in(dir.path(), "ovs-appctl", &["exit"]).ok();
    wait_for("its end", || !dir.path().join("ovs-vswitchd.pid").exists());
    let added = run_in(dir.path(), "ovsdb-tool", &["show-log", "conf.db"]).ok();
    assert!(added.contains("first row"), "{added}");
}

#[test]
fn an_argument_that_is_no_database_is_refused() {
    for argument in ["nonsense", "punix:/tmp/x", "unix:"] {
        let output = Command::new(binary()).args(["switch", argument]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn a_configuration_in_force_while_another_write_is_under_way_is_told_nevertheless() {
    let mut rig = Rig::start();
    rig.stop_switch("-TERM");
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
        let added = scope.spawn(move || rig.vsctl(&add));
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
    rig.vsctl(&["set", "Open_vSwitch", ".", "other_config:bundle-idle-timeout=3"]).ok();
    // Of no use: it stays at 3.
    rig.vsctl(&["set", "Open_vSwitch", ".", "other_config:bundle-idle-timeout=0"]).ok();
    let mut stream = UnixStream::connect(rig.dir.path().join("br0.mgmt")).unwrap();
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

/// The switch with its own database in a directory, on this machine's network.
fn self_contained(dir: &Path, more: &[&str]) -> Child {
    let args = [&["--enable-dummy", "--pool-size", "4096"], more].concat();
    let child = daemon(dir, &args).env("OVS_DBDIR", dir).spawn().unwrap();
    wait_for("the database's socket", || testkit::listens(dir.join("db.sock")));
    child
}

/// Runs a program with the switch's sockets in `dir`, and in that directory.
fn run_in(dir: &Path, program: &str, args: &[&str]) -> Said {
    let output = Command::new(program).args(args).env("OVS_RUNDIR", dir).current_dir(dir).output().unwrap();
    Said {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
    }
}

#[test]
fn exit_to_the_embedded_server_ends_the_process_that_it_is_part_of() {
    let dir = run_dir();
    let mut switch = self_contained(dir.path(), &[]);
    let appctl = |args: &[&str]| run_in(dir.path(), "ovs-appctl", args);
    wait_for("the switch", || appctl(&["version"]).code == Some(0));
    assert_eq!(
        appctl(&["-t", "ovsdb-server", "version"]).ok(),
        "ovsdb-server (Open vSwitch) 3.1.0\nCrosspoint 0.1.0\n"
    );
    assert_eq!(
        appctl(&["-t", "ovs-vswitchd", "version"]).ok(),
        "ovs-vswitchd (Open vSwitch) 3.1.0\nCrosspoint 0.1.0\n"
    );
    // A manager that can be neither reached nor listened for says so in its row.
    let vsctl = |args: &[&str]| run_in(dir.path(), "ovs-vsctl", &[&["--timeout=30"], args].concat());
    vsctl(&["set-manager", "foo:x"]).ok();
    let status = |key: &str| vsctl(&["--if-exists", "get", "manager", "foo:x", &format!("status:{key}")]).out;
    wait_for("its status", || status("last_error").contains("foo:x"));
    assert_eq!(status("state"), "BACKOFF\n");
    assert_eq!(appctl(&["-t", "ovsdb-server", "exit"]).ok(), "");
    assert!(switch.wait().unwrap().success());
    for name in ["db.sock", "ovs-vswitchd.pid", "ovsdb-server.pid"] {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
}

#[test]
fn managers_reach_the_embedded_server_over_tls() {
    let pki = run_dir();
    for words in
        [&["init"][..], &["-u", "req+sign", "ctl", "controller"], &["-u", "req+sign", "sc", "switch"]]
    {
        run_in(pki.path(), "ovs-pki", &[&["--dir=pki", "--log=log"], words].concat()).ok();
    }
    let file = |name: &str| pki.path().join(name).display().to_string();
    let keys = [file("ctl-privkey.pem"), file("ctl-cert.pem"), file("pki/switchca/cacert.pem")];
    let options = ["private-key", "certificate", "ca-cert"];
    let of_table = ["private_key", "certificate", "ca_cert"].map(|c| format!("db:Open_vSwitch,SSL,{c}"));
    let given = |values: &[String; 3]| -> Vec<String> {
        options.iter().zip(values).map(|(option, value)| format!("--{option}={value}")).collect()
    };
    // From the table without being told, and when told; from files.
    for (flags, is_in_table) in [(vec![], true), (given(&of_table), true), (given(&keys), false)] {
        let dir = run_dir();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut switch = self_contained(dir.path(), &flags);
        let vsctl = |args: &[&str]| run_in(dir.path(), "ovs-vsctl", &[&["--timeout=30"], args].concat());
        if is_in_table {
            vsctl(&["set-ssl", &keys[0], &keys[1], &keys[2]]).ok();
        }
        let target = "pssl:0:127.0.0.1";
        vsctl(&["set-manager", target]).ok();
        let port = || {
            let port = vsctl(&["--if-exists", "get", "manager", target, "status:bound_port"]).out;
            port.trim().trim_matches('"').parse::<u16>().ok()
        };
        wait_for("the port", || port().is_some());
        let remote = format!("ssl:127.0.0.1:{}", port().unwrap());
        let (key, certificate) = (file("sc-privkey.pem"), file("sc-cert.pem"));
        let ca = file("pki/controllerca/cacert.pem");
        let list = ["-t", "20", "-p", &key, "-c", &certificate, "-C", &ca, "list-dbs", &remote];
        assert_eq!(run_in(dir.path(), "ovsdb-client", &list).ok(), "Open_vSwitch\n_Server\n");
        switch.kill().unwrap();
        switch.wait().unwrap();
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_in_the_stock_servers_words() {
    let (ours, stock) = (run_dir(), run_dir());
    let _server = Server::start(stock.path());
    let mut switch = self_contained(ours.path(), &[]);
    let socket = |dir: &Path| UnixStream::connect(dir.join("db.sock")).unwrap();
    // The first answers to come, as many as are asked for.
    let answers = |dir: &Path, requests: &str, count: usize| -> Vec<serde_json::Value> {
        let mut stream = socket(dir);
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        stream.write_all(requests.as_bytes()).unwrap();
        let messages = serde_json::Deserializer::from_reader(stream).into_iter();
        // The stock server leaves out a result that is none.
        messages
            .take(count)
            .map(|m| m.unwrap())
            .map(|m: serde_json::Value| serde_json::json!([m["id"], m["error"]]))
            .collect()
    };
    let insert = |more: &str| {
        format!(
            r#"{{"method":"transact","id":1,"params":["Open_vSwitch",{{"op":"insert","table":"Bridge",{more}}}]}}"#
        )
    };
    for more in [
        r#""row":{"name":"x"},"uuid-name":"i i""#,
        r#""row":{"name":"x"},"uuid-name":"1i""#,
        r#""row":{"name":"x"},"uuid-name":"""#,
        r#""row":{"ports":["named-uuid","a b"]}"#,
    ] {
        let request = insert(more);
        assert_eq!(answers(ours.path(), &request, 1), answers(stock.path(), &request, 1), "{more}");
    }
    let wait = r#"{"method":"transact","id":7,"params":["Open_vSwitch",{"op":"wait","table":"Bridge","timeout":60000,
        "columns":["name"],"until":"==","where":[],"rows":[{"name":"zz"}]}]}"#;
    let requests = format!("{wait}{wait}{{\"method\":\"echo\",\"id\":7,\"params\":[]}}");
    let (mine, theirs) = (answers(ours.path(), &requests, 2), answers(stock.path(), &requests, 2));
    assert_eq!(mine, theirs);
    assert!(mine[0].to_string().contains("duplicate request ID"), "{mine:?}");
    switch.kill().unwrap();
    switch.wait().unwrap();
}

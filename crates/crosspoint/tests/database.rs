//! The switch configured through a database, by the stock `ovs-vsctl`: what the rows say it becomes, what happened is
//! written back, and nothing else is disturbed.

mod common;

use common::{Said, UDP, binary, daemon, run_dir, wait_for};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
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
        wait_for("the database server", || dir.join("db.sock").exists());
        Server { child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A switch on an external database.
struct Rig {
    dir: TempDir,
    switch: Option<Child>,
    _server: Server,
}

impl Rig {
    fn start() -> Rig {
        let dir = run_dir();
        let server = Server::start(dir.path());
        let mut rig = Rig { dir, switch: None, _server: server };
        rig.vsctl(&["--no-wait", "init"]).ok();
        rig.start_switch();
        rig
    }

    fn start_switch(&mut self) {
        std::fs::write(self.dir.path().join("log"), "").unwrap();
        let remote = format!("unix:{}", self.dir.path().join("db.sock").display());
        let log = std::fs::File::options().append(true).open(self.dir.path().join("log")).unwrap();
        // In a network namespace of its own: device names are nobody else's.
        let mut command = Command::new("unshare");
        command.arg("--net").arg(binary()).args(["switch", &remote, "--enable-dummy", "--pool-size", "4096"]);
        command.env("OVS_RUNDIR", self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.switch = Some(command.spawn().unwrap());
        wait_for("the switch to run", || self.log().contains("is running"));
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
        let pid = self.switch.as_ref().unwrap().id().to_string();
        self.run("nsenter", &[&["-t", &pid, "-n", "ip"], args].concat())
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
        listed.contains("recirc=\"true\"") && listed.contains("ct_state=\"false\"")
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
    rig.add_dummy("p1");
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

    rig.vsctl(&["set", "bridge", "br0", "other_config:mac-table-size=20"]).ok();
    rig.vsctl(&["set", "bridge", "br0", "other_config:mac-table-size=many", "other_config:no-such-key=1"])
        .ok();
    let fdb = rig.appctl(&["fdb/stats-show", "br0"]).ok();
    assert!(fdb.contains("/20\n"), "{fdb}");
    rig.vsctl(&["set", "bridge", "br0", "other_config:dp-desc=x"]).ok();
    let log = rig.log();
    assert_eq!(log.matches("other_config:no-such-key is not known").count(), 1, "{log}");
    assert_eq!(log.matches("mac-table-size=many is not a number").count(), 1, "{log}");

    let said = rig.vsctl(&["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=quantum"]);
    assert!(said.err.contains("datapath_type=quantum is not known"), "{said:?}");
    assert!(rig.appctl(&["ofproto/list"]).ok() == "br0\n");
}

#[test]
fn a_restart_keeps_port_numbers_and_a_killed_switch_comes_back_as_it_was() {
    let mut rig = Rig::start();
    rig.add_bridge();
    for name in ["c", "a", "b"] {
        rig.add_dummy(name);
    }
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
    wait_for("the loss", || log().contains("connection dropped"));
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
fn a_thousand_ports_come_in_one_transaction() {
    let rig = Rig::start();
    rig.add_bridge();
    let mut args: Vec<String> = Vec::new();
    for n in 1..=1000 {
        let name = format!("p{n}");
        let add = ["--", "add-port", "br0", &name, "--", "set", "interface", &name, "type=dummy"];
        args.extend(add.map(String::from));
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let start = Instant::now();
    rig.vsctl(&args).ok();
    let took = start.elapsed();
    assert_eq!(rig.get("interface", "p1000", "ofport"), "1000");
    // How long it takes the switch is tested where nothing else takes time (reconcile's tests).
    println!("a thousand ports in {took:?}");
    let all: Vec<&str> = ["--", "del-br", "br0"].to_vec();
    rig.vsctl(&all).ok();
    assert_eq!(rig.appctl(&["dpif/show"]).ok().lines().count(), 1);
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
    wait_for("the switch to run", || log().contains("is running"));
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
    wait_for("the switch to run again", || log().contains("is running"));
    wait_for("the port", || run("ovs-ofctl", &["show", "br0"]).out.contains(" 9(p1)"));
    assert!(Command::new("kill").arg(switch.id().to_string()).status().unwrap().success());
    assert!(switch.wait().unwrap().success());
    for name in ["db.sock", "ovs-vswitchd.pid", "ovsdb-server.pid", "br0.mgmt"] {
        assert!(!path(name).exists(), "{name}");
    }
    assert!(!log().lines().any(|l| l.contains("|WARN|") || l.contains("|ERR|")), "{}", log());
}

#[test]
fn an_argument_that_is_no_database_is_refused() {
    for argument in ["nonsense", "punix:/tmp/x", "unix:"] {
        let output = Command::new(binary()).args(["switch", argument]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

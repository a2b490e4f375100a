//! Restarts, kills and limits as bad days bring them.

use crate::common::{
    Process, RunDir, SCHEMA, Switch, UDP, binary, daemon, daemon_after, daemon_limited, run, run_dir,
    wait_for,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// A switch on a database server of its own, with a bridge `br0` and dummy ports; both can be killed.
struct Pair {
    server: Option<Process>,
    switch: Option<Process>,
    dir: RunDir,
}

impl std::ops::Deref for Pair {
    type Target = RunDir;

    fn deref(&self) -> &RunDir {
        &self.dir
    }
}

impl Pair {
    fn start(ports: &[&str]) -> Pair {
        let dir = run_dir();
        dir.run("ovsdb-tool", &["create", "conf.db", SCHEMA]).ok();
        let mut pair = Pair { server: None, switch: None, dir };
        pair.start_server();
        pair.vsctl("--no-wait init");
        pair.start_switch();
        let mut words = "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure".to_owned();
        for (name, number) in ports.iter().zip(1..) {
            words += &format!(
                " -- add-port br0 {name} -- set interface {name} type=dummy ofport_request={number}"
            );
        }
        pair.vsctl(&words);
        pair
    }

    fn start_server(&mut self) {
        let mut command = self.dir.command(binary());
        command.args(["ovsdb-server", "conf.db", "--unixctl=server.ctl", "-vconsole:off"]);
        command.arg("--remote=punix:db.sock");
        self.server = Some(Process::silent(&mut command));
        wait_for("the server", || self.connect().is_some());
    }

    fn start_switch(&mut self) {
        let args = [&self.database(), "--enable-dummy", "--pool-size", "4096"];
        self.switch = Some(Process::start(&mut daemon(&self.dir, &args)));
    }

    fn connect(&self) -> Option<UnixStream> {
        UnixStream::connect(self.file("db.sock")).ok()
    }

    /// The names of the bridge's ports, as OpenFlow shows them.
    fn shown(&self) -> BTreeSet<String> {
        let shown = self.ofctl(&["show", "br0"]).out;
        let name = |line: &str| Some(line.split_once('(')?.1.split_once("): addr:")?.0.to_owned());
        shown.lines().filter_map(name).filter(|name| name != "br0").collect()
    }
}

#[test]
fn the_wait_for_rules_begins_with_a_start_and_no_packet_meets_half_of_them() {
    let mut pair = Pair::start(&["p1", "p2", "p3"]);
    let rules = "priority=1,actions=output:3\npriority=2,ip,actions=output:2\n";
    let (first, both) = (pair.file("first"), pair.file("both"));
    std::fs::write(&first, rules.lines().next().unwrap()).unwrap();
    std::fs::write(&both, rules).unwrap();
    let add = |pair: &Pair, file: &std::path::Path| {
        pair.ofctl(&["add-flows", "br0", file.to_str().unwrap()]).ok();
    };
    let receive = |pair: &Pair| {
        pair.appctl(&["netdev-dummy/receive", "p1", UDP]).ok();
    };
    let sent = |pair: &Pair, port| pair.appctl(&["netdev-dummy/sent", port]).ok().lines().count();
    add(&pair, &both);
    // For the next start: the running switch goes on.
    pair.vsctl("set open_vswitch . other_config:flow-restore-wait=true");
    receive(&pair);
    wait_for("the frame", || sent(&pair, "p2") == 1);

    // The second start is killed with half of its rules.
    for file in [&first, &both] {
        pair.switch = None;
        pair.start_switch();
        wait_for("the ports", || pair.shown().len() == 3);
        receive(&pair);
        add(&pair, file);
        receive(&pair);
        wait_for("drops", || pair.appctl(&["crosspoint/drops"]).ok().contains("flow_restore_wait: 2"));
        assert_eq!((sent(&pair, "p2"), sent(&pair, "p3")), (0, 0));
    }
    pair.vsctl("remove open_vswitch . other_config flow-restore-wait");
    receive(&pair);
    wait_for("the frame", || sent(&pair, "p2") == 1);
    assert_eq!(sent(&pair, "p3"), 0);
}

#[test]
fn a_configuration_that_was_read_takes_effect_though_the_server_is_gone() {
    const PORTS: usize = 2_000;
    let mut pair = Pair::start(&["p1"]);
    let mut words = String::from("--no-wait del-port p1");
    for n in 1..=PORTS {
        words += &format!(" -- add-port br0 q{n} -- set interface q{n} type=dummy");
    }
    pair.vsctl(&words);
    wait_for("the first ports", || !pair.shown().is_empty() && !pair.shown().contains("p1"));
    pair.server = None;
    wait_for("all ports", || pair.shown().len() == PORTS);
    pair.start_server();
    pair.vsctl("add-port br0 p2 -- set interface p2 type=dummy");
    assert_eq!(pair.shown().len(), PORTS + 1);
}

#[test]
fn rules_that_are_restored_stay_though_no_controller_is_called_for_long() {
    let mut pair = Pair::start(&["p1"]);
    let controller = format!("unix:{}", pair.file("nobody").display());
    pair.vsctl(&format!("set bridge br0 fail_mode=standalone -- set-controller br0 {controller}"));
    pair.vsctl("set open_vswitch . other_config:flow-restore-wait=true");
    pair.switch = None;
    pair.start_switch();
    wait_for("the ports", || pair.shown().len() == 1);
    let is_there = |pair: &Pair| pair.ofctl(&["dump-flows", "br0"]).ok().contains("in_port=1 actions=drop");
    pair.ofctl(&["add-flow", "br0", "in_port=1,actions=drop"]).ok();
    pair.appctl(&["time/warp", "100000", "1000"]).ok();
    assert!(is_there(&pair));
    pair.vsctl("remove open_vswitch . other_config flow-restore-wait");
    assert!(is_there(&pair));
    // From now on it counts.
    pair.appctl(&["time/warp", "100000", "1000"]).ok();
    wait_for("the end of the rules", || !is_there(&pair));
}

#[test]
fn too_few_descriptors_or_addresses_are_told_and_no_panic() {
    let told = |limit: &str, args: &[&str]| {
        let dir = run_dir();
        let mut command = daemon_limited(&dir, limit, args);
        let status = Process::start(&mut command).wait().unwrap();
        let log = dir.read("log");
        assert_eq!(status.code(), Some(1), "{limit}: {log}");
        assert!(!log.contains("panicked"), "{limit}: {log}");
        log
    };
    for descriptors in 6..14 {
        let log = told(&format!("-n {descriptors}"), &["unix:db.sock", "--enable-dummy"]);
        assert!(log.contains("Too many open files"), "{descriptors}: {log}");
    }
    let log = told("-v 1000000", &["unix:db.sock", "--enable-dummy"]);
    assert!(log.contains("raise the limit of address space (ulimit -v"), "{log}");

    let dir = run_dir();
    dir.run("ovsdb-tool", &["create", "conf.db", SCHEMA]).ok();
    for descriptors in 6..12 {
        let mut command = dir.command("sh");
        command.arg("-c").arg(format!("ulimit -n {descriptors} && exec \"$0\" ovsdb-server conf.db"));
        let log = dir.file(format!("{descriptors}.log"));
        let status = Process::logged(command.arg(binary()), &log).wait().unwrap();
        let log = std::fs::read_to_string(log).unwrap();
        assert_eq!(status.code(), Some(1), "{descriptors}: {log}");
        assert!(log.contains("Too many open files") && !log.contains("panicked"), "{descriptors}: {log}");
    }
}

/// A control group whose processes get no huge pages, though the kernel has some, as in a container that
/// asked for none.
struct NoHugePages {
    root: PathBuf,
    group: PathBuf,
    /// The kernel's own limit before.
    surplus: String,
}

const SURPLUS: &str = "/proc/sys/vm/nr_overcommit_hugepages";

impl NoHugePages {
    fn new(dir: &RunDir) -> NoHugePages {
        let root = dir.file("groups");
        std::fs::create_dir(&root).unwrap();
        let path = root.to_str().unwrap();
        dir.run("mount", &["-t", "cgroup2", "none", path]).ok();
        let mut limit = "hugetlb.2MB.max";
        if std::fs::read_to_string(root.join("cgroup.controllers")).unwrap().contains("hugetlb") {
            std::fs::write(root.join("cgroup.subtree_control"), "+hugetlb").unwrap();
        } else {
            dir.run("umount", &[path]).ok();
            dir.run("mount", &["-t", "cgroup", "-o", "hugetlb", "none", path]).ok();
            limit = "hugetlb.2MB.limit_in_bytes";
        }
        let group = root.join(format!("crosspoint-test-{}", std::process::id()));
        let surplus = std::fs::read_to_string(SURPLUS).unwrap();
        let groups = NoHugePages { root, group, surplus };
        std::fs::create_dir(&groups.group).unwrap();
        std::fs::write(groups.group.join(limit), "0").unwrap();
        let more: u64 = groups.surplus.trim().parse::<u64>().unwrap() + 16;
        std::fs::write(SURPLUS, more.to_string()).unwrap();
        groups
    }

    /// How often it has refused a page.
    fn refusals(&self) -> u64 {
        let read = |name| std::fs::read_to_string(self.group.join(name));
        let text = read("hugetlb.2MB.events").or_else(|_| read("hugetlb.2MB.failcnt")).unwrap();
        text.split_whitespace().last().unwrap().parse().unwrap()
    }
}

impl Drop for NoHugePages {
    fn drop(&mut self) {
        // Also after a failure: what cannot be undone was not done.
        let _ = std::fs::write(SURPLUS, &self.surplus);
        let _ = std::fs::remove_dir(&self.group);
        run(std::process::Command::new("umount").arg(&self.root)).ok();
    }
}

#[test]
fn a_switch_to_which_a_control_group_grants_no_huge_pages_uses_ordinary_ones() {
    let groups_dir = run_dir();
    let groups = NoHugePages::new(&groups_dir);
    let dir = run_dir();
    let args = ["--bridge", "br0", "--port", "p1,type=dummy", "--port", "p2,type=dummy"];
    let args = [&args[..], &["--enable-dummy", "--pool-size", "4096"]].concat();
    let join = format!("echo $$ > {}/cgroup.procs", groups.group.display());
    let command = daemon_after(&dir, &join, &args);
    let switch = Switch::begin(dir, command);
    switch.receive("p1", UDP);
    switch.sent("p2", 1);
    assert!(groups.refusals() > 0, "the kernel offered no huge page");
}

#[test]
fn a_client_with_too_few_descriptors_says_so_and_works_with_enough() {
    let switch = Switch::start(&[]);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    for args in ["vsctl show", "ovsdb-client list-dbs", "ofctl show br0", "ofctl -O OpenFlow10 ping br0"] {
        let mut has_refused = false;
        for descriptors in 4.. {
            let mut command = switch.command("sh");
            command.arg("-c").arg(format!("ulimit -n {descriptors} && exec \"$0\" {args}"));
            let said = run(command.arg(binary()));
            let context = format!("{args}, {descriptors} descriptors: {said:?}");
            if said.succeeded() {
                break;
            }
            assert!(said.code == Some(1) && said.err.contains("Too many open files"), "{context}");
            assert!(descriptors < 64, "{context}");
            has_refused = true;
        }
        assert!(has_refused, "{args}: four descriptors suffice");
    }
}

#[test]
fn without_a_log_at_its_usual_place_a_daemon_runs_and_opens_it_when_told_to() {
    let dir = run_dir();
    let logs = dir.file("logs");
    let mut command = daemon(&dir, &["--log-file", "--enable-dummy", "--pool-size", "4096"]);
    command.env("OVS_LOGDIR", &logs);
    let switch = Switch::begin(dir, command);
    let said = format!("|vlog|WARN|failed to open {}/ovs-vswitchd.log for logging: No such", logs.display());
    assert!(switch.log().contains(&said), "{}", switch.log());
    let refused = switch.appctl(&["vlog/reopen"]).failed();
    assert!(refused.starts_with("No such file or directory\n"), "as stock: {refused}");
    std::fs::create_dir(&logs).unwrap();
    switch.appctl(&["vlog/reopen"]).ok();
    let log = std::fs::read_to_string(logs.join("ovs-vswitchd.log")).unwrap();
    assert!(log.contains("|vlog|INFO|opened log file"), "{log}");

    // The file that it has stays open, and says why, until there is another.
    let moved = logs.with_file_name("moved");
    std::fs::rename(&logs, &moved).unwrap();
    let refused = switch.appctl(&["vlog/reopen"]).failed();
    assert!(refused.starts_with("No such file or directory\n"), "as stock: {refused}");
    let kept = std::fs::read_to_string(moved.join("ovs-vswitchd.log")).unwrap();
    assert!(kept.contains(&said) && !kept.contains("closing log file"), "{kept}");

    // A file that was named is wanted.
    let dir = run_dir();
    let mut command = daemon(&dir, &["--log-file=no/x.log", "--enable-dummy"]);
    let status = Process::start(command.stdout(Stdio::null())).wait().unwrap();
    assert_eq!((status.code(), dir.read("log").contains("no/x.log for logging: No such")), (Some(1), true));
}

/// A client of the database that adds and removes ports of the bridge, and counts its transactions in the
/// bridge and in the root.
struct Client {
    stream: UnixStream,
    replies: serde_json::StreamDeserializer<'static, serde_json::de::IoRead<BufReader<UnixStream>>, Value>,
}

/// The ports of the bridge, and how many transactions made them.
type Configuration = (BTreeSet<String>, u64);

impl Client {
    fn new(pair: &Pair) -> Client {
        let stream = pair.connect().unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Client { stream, replies: serde_json::Deserializer::from_reader(reader).into_iter() }
    }

    /// The results of these operations; none if the server was killed first.
    fn transact(&mut self, operations: &[Value]) -> Option<Vec<Value>> {
        let params = [&[json!("Open_vSwitch")], operations].concat();
        let request = json!({"id": 1, "method": "transact", "params": params});
        self.stream.write_all(request.to_string().as_bytes()).ok()?;
        let reply = self.replies.next()?.ok()?;
        let results = reply["result"].as_array().unwrap_or_else(|| panic!("{reply}"));
        assert!(results.iter().all(|result| result.get("error").is_none()), "{reply}");
        Some(results.clone())
    }

    fn select(&mut self, table: &str, column: &str) -> Vec<Value> {
        let select = json!({"op": "select", "table": table, "where": [], "columns": [column]});
        let results = self.transact(&[select]).expect("the server lives");
        results[0]["rows"].as_array().unwrap().iter().map(|row| row[column].clone()).collect()
    }

    /// What the database says, whose parts must agree.
    fn configuration(&mut self) -> Configuration {
        let mut names = |table: &str| -> BTreeSet<String> {
            let rows = self.select(table, "name");
            rows.iter().map(|n| n.as_str().unwrap().to_owned()).filter(|n| n != "br0").collect()
        };
        let ports = names("Port");
        assert_eq!(names("Interface"), ports, "rows of half a transaction");
        let mut counted = |table: &str| -> u64 {
            let ids = self.select(table, "external_ids");
            let n = ids[0][1].as_array().unwrap().iter().find(|pair| pair[0] == "n");
            n.map_or(0, |pair| pair[1].as_str().unwrap().parse().unwrap())
        };
        let n = counted("Bridge");
        assert_eq!(counted("Open_vSwitch"), n, "half a transaction");
        (ports, n)
    }

    /// Adds the port, or removes it if it is there. Returns whether that was answered.
    fn toggle(&mut self, port: &str, (ports, n): &Configuration) -> bool {
        let row = json!([["name", "==", port]]);
        let mut operations = if ports.contains(port) {
            let find = json!({"op": "select", "table": "Port", "where": row, "columns": ["_uuid"]});
            let Some(found) = self.transact(&[find]) else { return false };
            let uuid = &found[0]["rows"][0]["_uuid"];
            vec![
                json!({"op": "mutate", "table": "Bridge", "where": [], "mutations": [["ports", "delete", uuid]]}),
            ]
        } else {
            let add = json!(["ports", "insert", ["named-uuid", "p"]]);
            vec![
                json!({"op": "insert", "table": "Interface", "uuid-name": "i", "row": {"name": port, "type": "dummy"}}),
                json!({"op": "insert", "table": "Port", "uuid-name": "p",
                       "row": {"name": port, "interfaces": ["named-uuid", "i"]}}),
                json!({"op": "mutate", "table": "Bridge", "where": [], "mutations": [add]}),
            ]
        };
        for table in ["Bridge", "Open_vSwitch"] {
            let count = json!(["map", [["n", (n + 1).to_string()]]]);
            let mutations =
                json!([["external_ids", "delete", ["set", ["n"]]], ["external_ids", "insert", count]]);
            operations.push(json!({"op": "mutate", "table": table, "where": [], "mutations": mutations}));
        }
        let mutations = json!([["next_cfg", "+=", 1]]);
        operations
            .push(json!({"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": mutations}));
        self.transact(&operations).is_some()
    }
}

/// `configuration` with the port added or removed.
fn toggled(port: &str, (ports, n): &Configuration) -> Configuration {
    let mut ports = ports.clone();
    if !ports.remove(port) {
        ports.insert(port.to_owned());
    }
    (ports, n + 1)
}

#[test]
fn whoever_is_killed_nothing_committed_is_lost_and_the_switch_comes_to_what_is_wanted() {
    let rounds = testkit::cases(
        "crosspoint::whoever_is_killed_nothing_committed_is_lost_and_the_switch_comes_to_what_is_wanted",
        8,
    );
    let mut pair = Pair::start(&[]);
    let mut now: Configuration = (BTreeSet::new(), 0);
    for round in 0..rounds {
        // 0: the server, 1: the switch, 2: both, of which one starts first.
        let (kills_server, kills_switch) = (round % 3 != 1, round % 3 != 0);
        let lifetime = Duration::from_micros(u64::from(round) * 7919 % 300_000);
        let server = pair.server.take_if(|_| kills_server);
        let switch = pair.switch.take_if(|_| kills_switch);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(lifetime);
            drop((server, switch));
        });
        let mut client = Client::new(&pair);
        let mut maybe = now.clone();
        for step in 0_u32.. {
            if killer.is_finished() && !kills_server {
                break;
            }
            let port = format!("p{}", (round * 13 + step * 7) % 16);
            maybe = toggled(&port, &now);
            if !client.toggle(&port, &now) {
                break;
            }
            now = maybe.clone();
        }
        killer.join().unwrap();
        let switch_first = kills_switch && round % 2 == 0;
        if switch_first {
            pair.start_switch();
        }
        if kills_server {
            pair.start_server();
        }
        if kills_switch && !switch_first {
            pair.start_switch();
        }

        let mut client = Client::new(&pair);
        let there = client.configuration();
        assert!(there == now || there == maybe, "round {round}: {there:?}, answered {now:?}, sent {maybe:?}");
        now = there;
        wait_for("the ports", || pair.shown() == now.0);
        wait_for("cur_cfg", || {
            client.select("Open_vSwitch", "cur_cfg") == client.select("Open_vSwitch", "next_cfg")
        });
    }
    assert!(now.1 > u64::from(rounds), "it hardly ever lived: {}", now.1);
}

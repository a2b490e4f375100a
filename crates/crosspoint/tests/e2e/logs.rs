//! What the switch logs, beside the stock one.

use crate::common::{Process, RunDir, SCHEMA, Switch, accept, free_port, links, run_dir, wait_for};
use crate::pair::Pair;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Shutdown, TcpListener};
use std::path::Path;

/// What a log says at INFO and above, without times, numbers and the run directory.
fn told(log: &str, dir: &str) -> BTreeSet<String> {
    let important = |line: &&str| ["|INFO|", "|WARN|", "|ERR|", "|EMER|"].iter().any(|l| line.contains(l));
    let plain = |line: &str| {
        let text = line.splitn(3, '|').nth(2).unwrap_or_default().replace(dir, "DIR");
        let mut words = String::new();
        for c in text.chars() {
            match c {
                '0'..='9' if words.ends_with('N') => {}
                '0'..='9' => words.push('N'),
                _ => words.push(c),
            }
        }
        // A bridge without one has a datapath ID by chance.
        match words.split_once("using datapath ID ") {
            Some((head, _)) => head.to_owned() + "using datapath ID",
            None => words,
        }
    };
    log.lines().filter(important).map(plain).collect()
}

/// What the stock switch says of what we do not have: threads for upcalls and revalidation, a limit on
/// sleeps, and several kinds of datapaths (that a bridge could not be made for want of one, both say).
const NOT_OURS: &[&str] = &[
    "ofproto_dpif_upcall|INFO|",
    "dpif_netdev|INFO|PMD max sleep request is",
    "dpif_netdev|INFO|PMD load based sleeps are",
    "ofproto|WARN|unknown datapath type ",
    "ofproto|WARN|could not create datapath ",
];

/// What goes on for long is told now and then.
#[test]
fn memory_flow_mods_and_fail_open_are_told_as_by_the_stock_switch() {
    let log_of = |pair: Pair| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        pair.vsctl(&format!("set-controller br0 tcp:127.0.0.1:{port} -- set-fail-mode br0 standalone"));
        let controller = accept(&listener);
        for flow in ["add in_port=1,actions=drop", "delete in_port=1", "modify table=1,actions=drop"] {
            std::fs::write(pair.file("flows"), format!("{flow}\n").repeat(3)).unwrap();
            let file = pair.file("flows");
            for more in [&[][..], &["--bundle"]] {
                let add = [&["add-flows", "br0", file.to_str().unwrap()], more].concat();
                assert!(pair.run("ovs-ofctl", &add).succeeded());
            }
        }
        assert!(pair.run("ovs-ofctl", &["del-flows", "br0"]).succeeded());
        drop((controller, listener));
        assert_eq!(pair.appctl(&["time/stop"]).1, Some(0));
        let mut lines = BTreeSet::new();
        wait_for("what goes on to be told", || {
            assert_eq!(pair.appctl(&["time/warp", "5000", "1000"]).1, Some(0));
            let log = std::fs::read_to_string(pair.file("log")).unwrap();
            lines = told(&log, "DIR");
            lines.iter().any(|line| line.starts_with("fail_open|INFO|"))
        });
        let usage = |line: &String| line.contains("ports:N") && line.contains("rules:N");
        assert!(lines.iter().any(usage), "{lines:#?}");
        let is_of = |line: &String| line.contains("flow_mods") || line.contains("fail_open|");
        lines.retain(|line| is_of(line) || line.contains("peak resident set size after"));
        lines
    };
    let (ours, stock) = (log_of(Pair::ours()), log_of(Pair::stock()));
    assert_eq!(ours, stock);
    assert!(ours.len() >= 6, "{ours:#?}");
}

#[test]
fn at_info_and_above_the_log_says_what_the_stock_switch_says() {
    let log_of = |pair: &Pair| {
        let vsctl = |words: &str| {
            let words: Vec<&str> = ["--timeout=30"].into_iter().chain(words.split(' ')).collect();
            let done = pair.run("ovs-vsctl", &words);
            assert!(done.succeeded(), "{done:?}");
        };
        vsctl("del-port p2");
        vsctl("set interface p1 ofport_request=55");
        vsctl("set interface p1 type=internal");
        vsctl("set bridge br0 protocols=OpenFlow10,OpenFlow13");
        // Configuration that is ignored shows in the database, not here.
        vsctl("set bridge br0 other_config:nonsense=1 -- set interface p1 options:nonsense=1");
        vsctl("add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure -- del-br br0");
        vsctl("add-br br2 -- set bridge br2 datapath_type=dummy fail_mode=secure protocols=OpenFlow15");
        assert!(!pair.run("ovs-ofctl", &["show", "br2"]).succeeded());
        vsctl("--no-wait add-br a/b -- set bridge a/b datapath_type=dummy");
        vsctl("--no-wait add-br br3 -- set bridge br3 datapath_type=bogus");
        vsctl("del-br a/b -- del-br br3");
        let done = pair.run("ovs-appctl", &["exit", "--cleanup"]);
        assert!(done.succeeded(), "{done:?}");
        let log = || std::fs::read_to_string(pair.file("log")).unwrap();
        wait_for("the bridge to be gone", || log().contains("bridge br0: deleted interface br0"));
        told(&log(), &format!("{}/", pair.path().display()))
    };
    let (ours, mut stock) = (log_of(&Pair::ours()), log_of(&Pair::stock()));
    // A client that finds no common version may be gone before the stock switch answers.
    stock.insert("rconn|WARN|brN<->unix#N: connection dropped (Protocol error)".to_owned());
    stock.remove("rconn|WARN|brN<->unix#N: connection dropped (Broken pipe)");
    let more: Vec<_> = ours.difference(&stock).collect();
    assert!(more.is_empty(), "we say {more:#?}\nthe stock switch says {stock:#?}");
    let is_lacking = |line: &&String| !NOT_OURS.iter().any(|start| line.starts_with(start));
    let less: Vec<_> = stock.difference(&ours).filter(is_lacking).collect();
    assert!(less.is_empty(), "the stock switch says {less:#?}\nwe say {ours:#?}");
    let first = |set: &BTreeSet<String>| set.iter().any(|l| l.contains("ovs-vswitchd (Open"));
    assert!(first(&ours) && first(&stock));
}

/// What a log tells of connections.
fn told_of_connections(dir: &RunDir, log: &str) -> BTreeSet<String> {
    let all = told(&std::fs::read_to_string(dir.file(log)).unwrap(), &dir.path().to_string_lossy());
    let of = ["reconnect|", "rconn|", "replication|", "connmgr|"];
    // How many flow-mods came, the stock switch tells now and then.
    let is_of = |line: &String| of.iter().any(|m| line.starts_with(m)) && !line.contains(" flow_mods ");
    all.into_iter().filter(is_of).collect()
}

fn times_told(dir: &RunDir, log: &str, text: &str) -> usize {
    std::fs::read_to_string(dir.file(log)).unwrap().matches(text).count()
}

fn wait_until_told(dir: &RunDir, log: &str, text: &str) {
    wait_for(text, || times_told(dir, log, text) > 0);
}

#[test]
fn lost_controllers_and_databases_are_logged_as_by_the_stock_switch() {
    let log_of = |mut pair: Pair| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let next = || {
            let mut stream = accept(&listener);
            stream.write_all(&[1, 0, 0, 8, 0, 0, 0, 1]).unwrap();
            stream
        };
        let target = format!("set-controller br0 tcp:127.0.0.1:{port}");
        pair.vsctl(&format!("{target} -- set controller br0 max_backoff=4000"));
        let waits = |pair: &Pair, text: &str| wait_until_told(pair, "log", text);
        let times = |pair: &Pair, text: &str| times_told(pair, "log", text);
        let first = next();
        waits(&pair, &format!("tcp:127.0.0.1:{port}: connected"));
        assert!(pair.appctl(&["bridge/reconnect", "br0"]).1 == Some(0));
        waits(&pair, ": disconnecting");
        let second = next();
        wait_for("the controller again", || times(&pair, &format!("{port}: connected")) == 2);
        // What it has not read would make an end at once a reset.
        second.shutdown(Shutdown::Write).unwrap();
        waits(&pair, "connection closed by peer");
        drop((first, second, listener));
        waits(&pair, "continuing to retry connections");
        pair.server = None;
        waits(&pair, "db.sock: waiting 2 seconds before reconnect");
        let _server = pair.serve_database();
        wait_for("the database again", || times(&pair, "db.sock: connected") == 2);
        for refused in ["actions=group:5", "actions=meter:9,drop"] {
            let add = ["-O", "OpenFlow13", "add-flow", "br0", refused];
            assert!(!pair.run("ovs-ofctl", &add).succeeded());
        }
        let service = format!("ptcp:{}:127.0.0.1", free_port());
        pair.vsctl(&format!("set-controller br0 {service} -- set controller br0 type=service"));
        pair.vsctl("set bridge br0 protocols=OpenFlow10,OpenFlow13");
        waits(&pair, &format!("Changes to controller \"{service}\" expects re-initialization"));
        pair.vsctl("del-controller br0");
        waits(&pair, "removed service controller");
        told_of_connections(&pair, "log")
    };
    let (ours, stock) = (log_of(Pair::ours()), log_of(Pair::stock()));
    assert_eq!(ours, stock);
    assert!(ours.iter().any(|line| line.contains("error reply to OFPT_FLOW_MOD message")), "{ours:#?}");
    assert!(ours.contains("rconn|INFO|brN<->tcp:N.N.N.N:N: waiting N seconds before reconnect"), "{ours:#?}");
}

#[test]
fn lost_sources_and_remotes_are_logged_as_by_the_stock_server() {
    let log_of = |program: &Path| {
        let dir = run_dir();
        let source = dir.serve_database();
        std::fs::copy(dir.file("conf.db"), dir.file("backup.db")).unwrap();
        let sync = format!("--sync-from={}", dir.database());
        let nobody = format!("--remote=unix:{}", dir.file("nobody").display());
        let mut backup = dir.command(program);
        backup.args(["backup.db", &sync, &nobody, "--unixctl=backup.ctl", "--no-chdir"]);
        let _backup = Process::logged(&mut backup, dir.file("backup.log"));
        wait_until_told(&dir, "backup.log", "db.sock: connected");
        wait_until_told(&dir, "backup.log", "Resetting the database");
        drop(source);
        // The last that either says of each.
        for remote in ["db.sock", "nobody"] {
            wait_until_told(&dir, "backup.log", &format!("{remote}: continuing to reconnect"));
        }
        told_of_connections(&dir, "backup.log")
    };
    let dir = run_dir();
    let ours = links(dir.path()).join("ovsdb-server");
    assert_eq!(log_of(&ours), log_of(Path::new("ovsdb-server")));
}

#[test]
fn a_server_that_is_to_copy_itself_logs_so_as_the_stock_server_does() {
    let log_of = |program: &Path| {
        let dir = run_dir();
        dir.run("ovsdb-tool", &["create", "own.db", SCHEMA]).ok();
        let own = dir.file("own.sock");
        let (remote, sync) =
            (format!("--remote=punix:{}", own.display()), format!("--sync-from=unix:{}", own.display()));
        let mut server = dir.command(program);
        server.args(["own.db", &remote, &sync, "--unixctl=own.ctl", "--no-chdir"]);
        let _server = Process::logged(&mut server, dir.file("own.log"));
        wait_until_told(&dir, "own.log", "Self replicating is not allowed");
        let mut lines = told(&std::fs::read_to_string(dir.file("own.log")).unwrap(), "DIR");
        lines.retain(|line| line.contains("Self replicating"));
        lines
    };
    let dir = run_dir();
    let ours = links(dir.path()).join("ovsdb-server");
    assert_eq!(log_of(&ours), log_of(Path::new("ovsdb-server")));
}

#[test]
fn messages_of_controllers_are_logged_while_vconn_is_at_debug() {
    let switch = Switch::dummy();
    switch.add_flow("priority=7,actions=drop");
    assert!(!switch.log().contains("OFPT_FLOW_MOD"), "{}", switch.log());
    switch.appctl(&["vlog/set", "vconn:dbg"]).ok();
    switch.add_flow("priority=8,actions=drop");
    let has = |text: &str| wait_for(text, || switch.log().contains(text));
    has("|vconn|DBG|unix#");
    has(
        ": negotiated OpenFlow version 0x01 (we support version 0x06 and earlier, peer supports version 0x01)\n",
    );
    has("ADD priority=8 actions=drop\n");
    has("sent (Success): OFPT_BARRIER_REPLY (xid=0x");
    switch.appctl(&["vlog/set", "vconn:info"]).ok();
    switch.add_flow("priority=9,actions=drop");
    switch.appctl(&["version"]).ok();
    assert!(!switch.log().contains("ADD priority=9"), "{}", switch.log());
}

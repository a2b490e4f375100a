//! The daemon as a process: how it starts, what it leaves behind, what it logs, and that packets do not need
//! its control thread.

use crate::common::{Switch, UDP, binary, daemon, daemon_limited, run_dir, wait_for};

fn files(switch: &Switch) -> Vec<String> {
    let names = std::fs::read_dir(switch.dir.path()).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<String> = names.map(|n| n.into_string().unwrap()).filter(|n| n != "log").collect();
    names.sort();
    names
}

/// Every line has five parts, and a level below WARN.
fn assert_quiet(log: &str) {
    for (n, line) in log.lines().enumerate() {
        let parts: Vec<&str> = line.splitn(5, '|').collect();
        assert_eq!(parts.len(), 5, "{line}");
        let (date, time) = parts[0].split_once('T').unwrap();
        // To the second, as at the console of the stock switch.
        assert_eq!((date.len(), time.len(), time.ends_with('Z')), (10, 9, true), "{line}");
        assert_eq!(parts[1], format!("{:05}", n + 1), "{line}");
        // As the stock switch does, it warns that a signal ends it.
        let ends = parts[2] == "fatal_signal" && parts[4].starts_with("terminating with signal");
        assert!(["INFO", "DBG"].contains(&parts[3]) || ends, "{line}");
    }
}

#[test]
fn a_clean_start_run_and_stop_warns_of_the_signal_alone_and_leaves_nothing_behind() {
    for signal in ["TERM", "INT", "HUP"] {
        let mut switch = Switch::dummy();
        assert_eq!(
            files(&switch),
            ["br0.mgmt", "br0.snoop", &format!("ovs-vswitchd.{}.ctl", switch.pid()), "ovs-vswitchd.pid"]
        );
        switch.add_flow("in_port=1,actions=output:2");
        switch.receive("p1", UDP);
        switch.sent("p2", 1);
        assert!(switch.end_by(signal).success());
        assert!(files(&switch).is_empty(), "{:?}", files(&switch));
        let log = switch.log();
        assert_quiet(&log);
        for part in ["added interface p1 on port 1", "/br0.mgmt", "terminating with signal"] {
            assert!(log.contains(part), "{part} is missing:\n{log}");
        }
    }
}

#[test]
fn the_command_exit_is_answered_and_ends_it() {
    let mut switch = Switch::dummy();
    assert_eq!(switch.appctl(&["exit"]).ok(), "");
    assert!(switch.wait().success());
    assert!(files(&switch).is_empty());
    assert_quiet(&switch.log());
}

#[test]
fn a_second_switch_on_one_run_directory_is_refused_and_disturbs_nothing() {
    let switch = Switch::dummy();
    let before = switch.log();
    let second = switch.run(binary(), &["switch", "--bridge", "br9"]).failed();
    assert!(second.contains("ovs-vswitchd.pid: already running as pid "), "{second}");
    assert!(!switch.dir.path().join("br9.mgmt").exists());
    switch.ofctl(&["show", "br0"]).ok();
    assert_eq!(switch.log(), before);
}

#[test]
fn after_a_kill_the_next_start_takes_over_what_is_stale() {
    let mut switch = Switch::dummy();
    let pid = switch.pid();
    switch.end_by("KILL");
    let left = |name: &str| switch.dir.path().join(name);
    let control = format!("ovs-vswitchd.{pid}.ctl");
    assert!(left("br0.mgmt").exists() && left(&control).exists());
    // What is a live process's, another program's, or no socket is none of the switch's business.
    let others = [
        format!("ovs-vswitchd.{}.ctl", std::process::id()),
        format!("ovs-other.{pid}.ctl"),
        "ovs-vswitchd.4000000.ctl".to_owned(),
    ];
    for name in &others[..2] {
        drop(std::os::unix::net::UnixListener::bind(left(name)).unwrap());
    }
    std::fs::write(left(&others[2]), "").unwrap();
    let dir = std::mem::replace(&mut switch.dir, run_dir());
    std::fs::remove_file(dir.path().join("log")).unwrap();
    std::fs::write(switch.dir.path().join("log"), "").unwrap();
    let again = Switch::start_in(dir, &["--bridge", "br0"]);
    again.ofctl(&["show", "br0"]).ok();
    assert_quiet(&again.log());
    let files = files(&again);
    assert!(!files.contains(&control), "{files:?}");
    assert!(others.iter().all(|name| files.contains(name)), "{files:?}");
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing_behind() {
    for (args, why) in [
        (&["--bridge", "br0", "--port", "p1,type=nonesuch"][..], "unknown port type \"nonesuch\""),
        (&["--bridge", "br0", "--port", "p1,type=dummy,colour=red"], "colour"),
        (&["--bridge", "br0", "--port", "p1,type=null,size=x"], "option size=x: expected 14 to 65535"),
        (&["--bridge", "br0,fail-mode=open"], "fail-mode=open: "),
        (&["--bridge", "br0", "--port", "p1,type=dummy", "--port", "p1,type=dummy"], "p1 is given twice"),
        (&["--port", "p1,type=dummy"], "add --bridge NAME"),
        (&["--bridge", "br0", "--workers", "0"], "1 to 256"),
        (&["--bridge", "br0", "--pmd-cpu-mask", "xyz"], "not a CPU mask"),
        (&["--bridge", "br0", "--verbose", "nonesuch:dbg"], "no destination, level, or module"),
        (&["--no-such-flag"], "--no-such-flag"),
    ] {
        let dir = run_dir();
        let status = daemon(&dir, args).status().unwrap();
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(!status.success() && log.contains(why), "{args:?}: {log}");
        assert!(!log.contains("|bridge|"), "it has not begun to start after {args:?}: {log}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the log is there after {args:?}");
    }
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced() {
    let dir = run_dir();
    std::fs::write(dir.path().join("br0.mgmt"), "mine").unwrap();
    assert!(!daemon(&dir, &["--bridge", "br0"]).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(dir.path().join("br0.mgmt")).unwrap(), "mine");
}

#[test]
fn the_stock_appctl_and_ours_say_the_same() {
    let switch = Switch::dummy();
    let ctl = switch.dir.path().join(format!("ovs-vswitchd.{}.ctl", switch.pid()));
    for args in [&["version"][..], &["list-commands"], &["dpctl/show"], &["vlog/list"], &["coverage/show"]] {
        let theirs = switch.appctl(args).ok();
        if args[0] != "coverage/show" {
            assert_eq!(switch.run(binary(), &[&["appctl"], args].concat()).ok(), theirs);
            let by_path = [&["-t", ctl.to_str().unwrap()], args].concat();
            assert_eq!(switch.appctl(&by_path).ok(), theirs);
        }
        assert!(theirs.ends_with('\n'));
    }
    assert_eq!(
        switch.appctl(&["dpctl/show"]).ok(),
        "dummy@ovs-dummy:\n  lookups: hit:0 missed:0 lost:0\n  flows: 0\n  port 0: ovs-dummy (dummy-internal)\n  port 1: p1 (dummy)\n  \
         port 2: p2 (dummy)\n  port 3: p3 (dummy)\n  port 100: br0 (dummy-internal)\n"
    );
    for (args, error) in [
        (
            &["nonesuch"][..],
            "\"nonesuch\" is not a valid command (use \"list-commands\" to see a list of valid",
        ),
        (&["fdb/show"], "\"fdb/show\" command requires at least 1 arguments"),
        (&["version", "x"], "\"version\" command takes at most 0 arguments"),
        (&["fdb/show", "nobr"], "no such bridge"),
        (&["netdev-dummy/receive", "nope", "00"], "no such dummy netdev"),
        (&["netdev-dummy/receive", "p1", "zz"], "syntax error at zz"),
        (&["coverage/read-counter", "foo"], "No such counter"),
        (&["dpctl/show", "a"], "ovs-vswitchd: opening datapath a failed (No such device)"),
        (&["vlog/set", "nosuch:dbg"], "no destination, level, or module \"nosuch\""),
    ] {
        let theirs = switch.appctl(args);
        assert_eq!(theirs.code, Some(2));
        assert!(theirs.err.starts_with(error), "{theirs:?}");
        let ours = switch.run(binary(), &[&["appctl"], args].concat());
        assert_eq!((ours.code, ours.err.lines().next()), (Some(2), theirs.err.lines().next()));
    }
}

#[test]
fn levels_change_while_it_runs_and_a_log_file_is_written_and_reopened() {
    let dir = run_dir();
    let file = dir.path().join("switch.log");
    let path = file.to_str().unwrap().to_string();
    let switch = Switch::start_in(dir, &["--bridge", "br0", &format!("--log-file={path}")]);
    wait_for("the first line", || {
        std::fs::read_to_string(&file).unwrap().contains("|connmgr|INFO|br0: added service controller")
    });
    switch.appctl(&["vlog/set", "unixctl:file:dbg"]).ok();
    switch.appctl(&["version"]).ok();
    assert!(std::fs::read_to_string(&file).unwrap().contains("|unixctl|DBG|received request version"));
    assert!(!switch.log().contains("|DBG|"));
    let moved = file.with_extension("old");
    std::fs::rename(&file, &moved).unwrap();
    switch.appctl(&["vlog/reopen"]).ok();
    switch.appctl(&["version"]).ok();
    assert!(std::fs::read_to_string(&file).unwrap().contains("received request version"));
}

/// The port's name in `dump-ports`, then packets received, of the null ports.
#[test]
fn known_and_new_flows_are_forwarded_while_the_control_thread_is_held() {
    let switch = Switch::start(&[
        "--bridge",
        "br0,fail-mode=secure",
        "--port",
        "known,type=null,size=64,rate=2000,ofport=1",
        "--port",
        "new,type=null,size=64,rate=2000,flows=1000000,ofport=2",
        "--port",
        "sink,type=null,ofport=3",
    ]);
    // Reading the addresses makes each pair of them a flow of its own.
    let read = "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_IP_DST[]->NXM_NX_REG1[]";
    switch.add_flow("in_port=1,actions=output:3");
    switch.add_flow(&format!("in_port=2,ip,actions={read},output:3"));
    let misses =
        || -> u64 { switch.appctl(&["coverage/read-counter", "xlate_actions"]).ok().trim().parse().unwrap() };
    wait_for("both flows", || switch.packets("1", "rx") > 100 && misses() > 100);
    let before = (switch.packets("1", "rx"), switch.packets("2", "rx"), misses());
    switch.appctl(&["crosspoint/block", "5000"]).ok();
    let after = (switch.packets("1", "rx"), switch.packets("2", "rx"), misses());
    // On a busy machine a source may not keep its rate; half of it is far more than what happens around the
    // block.
    assert!(after.0 - before.0 > 5_000, "{before:?} {after:?}");
    assert!(after.1 - before.1 > 5_000, "{before:?} {after:?}");
    assert!(after.2 - before.2 > 5_000, "{before:?} {after:?}");
    switch.appctl(&["netdev-dummy/set-admin-state", "up"]).ok();
    switch.ofctl(&["mod-port", "br0", "known", "down"]).ok();
    switch.ofctl(&["mod-port", "br0", "new", "down"]).ok();
    let drops = || switch.appctl(&["crosspoint/drops"]).ok();
    let lost = || -> u64 { drops().lines().filter(|l| !l.starts_with(' ')).map(count_of).sum() };
    wait_for("all to be accounted for", || {
        let received = switch.packets("1", "rx") + switch.packets("2", "rx");
        received == switch.packets("3", "tx") + lost()
    });
    // What came in while a port was being taken down may be dropped for that; nothing else may.
    let drops = drops();
    let allowed = ["table_miss", "rx_port_config", "no_output", "action_drop"];
    let is_allowed = |l: &str| allowed.iter().any(|a| l.starts_with(a));
    assert!(drops.lines().filter(|l| !l.starts_with(' ')).all(is_allowed), "{drops}");
}

fn count_of(line: &str) -> u64 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn rules_nest_as_deep_as_in_a_worker_where_little_stack_is_left_to_the_process() {
    let dir = run_dir();
    let ports = ["--port", "p1,type=dummy,ofport=1", "--port", "p2,type=dummy,ofport=2"];
    let args = [&["--enable-dummy", "--pool-size", "4096", "--bridge", "br0,fail-mode=secure"], &ports[..]];
    let command = daemon_limited(&dir, "-s 512", &args.concat());
    let switch = Switch::begin(dir, command);
    // Each of 60 rules leads to the next from within 16 copies.
    let copied = |inner: &str| format!("{}{inner}{}", "clone(".repeat(16), ")".repeat(16));
    let next = |n: u32| format!("reg0={n},actions=set_field:{}->reg0,{}\n", n + 1, copied("resubmit(,0)"));
    let rules = (0..60).map(next).collect::<String>() + "reg0=60,actions=output:2\n";
    std::fs::write(switch.dir.file("rules"), rules).unwrap();
    switch.ofctl(&["add-flows", "br0", switch.dir.file("rules").to_str().unwrap()]).ok();
    let trace = switch.appctl(&["ofproto/trace", "br0", "in_port=1"]).ok();
    assert!(trace.ends_with("Datapath actions: 2\n"), "{trace}");
    let frame = "50540000000750540000000512340000";
    switch.ofctl(&["packet-out", "br0", &format!("in_port=1,packet={frame},actions=table")]).ok();
    assert_eq!(switch.sent("p2", 1).len(), 1);
}

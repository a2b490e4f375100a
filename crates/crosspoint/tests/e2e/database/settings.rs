//! Settings that hold by the time `ovs-vsctl` returns, and what the rows say of those that have no effect.

use super::*;

#[test]
fn columns_of_features_that_do_not_exist_are_named_in_the_status() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    rig.try_vsctl(&["set", "bridge", "br0", "stp_enable=true", "rstp_enable=true"]).ok();
    rig.try_vsctl(&["set", "port", "p1", "lacp=active", "--", "set", "interface", "p1", "lldp:enable=true"])
        .ok();
    assert_eq!(rig.get("bridge", "br0", "status:ignored"), "\"rstp_enable stp_enable\"");
    assert_eq!(rig.get("port", "p1", "status:ignored"), "lacp");
    assert_eq!(rig.get("interface", "p1", "status:ignored"), "lldp");
    rig.try_vsctl(&[
        "--id=@q",
        "create",
        "qos",
        "type=linux-htb",
        "--",
        "set",
        "port",
        "p1",
        "qos=@q",
        "lacp=[]",
    ])
    .ok();
    assert_eq!(rig.get("port", "p1", "status:ignored"), "qos");
    rig.try_vsctl(&["set", "bridge", "br0", "stp_enable=false", "rstp_enable=false"]).ok();
    assert_eq!(rig.get("bridge", "br0", "status"), "{}");
}

#[test]
fn queues_are_where_they_shall_be_when_vsctl_returns() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.try_vsctl(&["set", "open_vswitch", ".", "other_config:pmd-cpu-mask=3"]).ok();
    rig.try_vsctl(&["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy-pmd"]).ok();
    for core in ["0", "1", "0", "1"] {
        let affinity = format!("other_config:pmd-rxq-affinity=0:{core}");
        rig.try_vsctl(&["set", "interface", "p1", &affinity]).ok();
        let shown = rig.appctl(&["dpif-netdev/pmd-rxq-show"]).ok();
        let of_core = shown.split("pmd thread ").find(|worker| worker.contains("port: p1 "));
        assert!(of_core.is_some_and(|worker| worker.contains(&format!("core_id {core}:"))), "{shown}");
    }
}

#[test]
fn a_datapath_id_of_zero_restores_the_default_and_a_shorter_interval_holds_at_once() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    let default = rig.get("bridge", "br0", "datapath_id");
    rig.try_vsctl(&["set", "bridge", "br0", "other_config:datapath-id=00000000000000aa"]).ok();
    assert_eq!(rig.get("bridge", "br0", "datapath_id"), "\"00000000000000aa\"");
    rig.try_vsctl(&["set", "bridge", "br0", "other_config:datapath-id=0"]).ok();
    assert_eq!(rig.get("bridge", "br0", "datapath_id"), default);

    let interval = |ms: &str| {
        rig.try_vsctl(&["set", "open_vswitch", ".", &format!("other_config:stats-update-interval={ms}")])
            .ok();
    };
    let received = || rig.get("interface", "p1", "statistics:rx_packets");
    rig.receive("p1");
    // What is due already is still told; the next time is in ten hours.
    interval("36000000");
    wait_for("statistics", || received() == "1");
    rig.receive("p1");
    interval("5000");
    wait_for("statistics once more", || received() == "2");
}

#[test]
fn a_check_of_a_database_lists_what_has_no_effect() {
    let rig = Rig::start();
    rig.try_vsctl(&["add-br", "br0"]).ok();
    let check = || {
        let output = Command::new(binary()).arg("check").arg(rig.file("conf.db")).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    assert_eq!(check(), (String::new(), Some(0)));
    rig.try_vsctl(&["--no-wait", "set", "bridge", "br0", "stp_enable=true"]).ok();
    rig.try_vsctl(&["--no-wait", "add-port", "br0", "v1", "--", "set", "interface", "v1", "type=vxlan"]).ok();
    rig.try_vsctl(&["--no-wait", "add-bond", "br0", "b0", "m1", "m2"]).ok();
    for (name, set) in [
        ("n1", ["type=null", "options:size=13"]),
        ("n2", ["type=null", "options:size=60"]),
        ("q1", ["type=patch", "options:peer=q1"]),
        ("q2", ["type=patch", "other_config:none=1"]),
    ] {
        rig.try_vsctl(
            &[&["--no-wait", "add-port", "br0", name, "--", "set", "interface", name], &set[..]].concat(),
        )
        .ok();
    }
    let metrics = "other_config:pmd-perf-metrics=true";
    rig.try_vsctl(&["--no-wait", "set", "open_vswitch", ".", metrics]).ok();
    let samples =
        ["--id=@x", "create", "IPFIX", r#"targets="10.0.0.1:4739""#, "--", "--id=@b", "get", "bridge", "br0"];
    let set = ["--", "create", "Flow_Sample_Collector_Set", "id=7", "bridge=@b", "ipfix=@x"];
    rig.try_vsctl(&[&["--no-wait", "--"], &samples[..], &set[..]].concat()).ok();
    let (said, code) = check();
    assert_eq!(code, Some(1), "{said}");
    // One line for a bridge that is refused, and it says why.
    rig.try_vsctl(&["--no-wait", "add-br", "t0", "--", "set", "bridge", "t0", "datapath_type=dummy"]).ok();
    let (refused, _) = check();
    let about: Vec<&str> = refused.lines().filter(|line| line.contains("t0")).collect();
    assert_eq!(about.len(), 1, "{refused}");
    assert!(about[0].starts_with("bridge t0: ") && !refused.contains("Address family"), "{refused}");
    // A device may come later.
    assert!(!said.contains("interface n2") && !said.contains("interface m1"), "{said}");
    for expected in [
        "interface n1: option size=13: expected 14 to 65535\n",
        "interface q1: patch peer must not be self\n",
        "interface q2: patch type requires valid 'peer' argument\n",
        "Open_vSwitch: other_config:pmd-perf-metrics=true has no effect: detailed metrics",
        "Flow_Sample_Collector_Set 7: ipfix has no effect: IPFIX is not implemented\n",
        "bridge br0: stp_enable has no effect: spanning tree is not implemented\n",
        "interface v1: type vxlan is unknown or not implemented\n",
        "interface m2: bonds are not implemented: of the interfaces of port b0, only m1 is used\n",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let none = Command::new(binary()).args(["check", "/nowhere/conf.db"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn hidden_rules_are_not_among_those_that_tables_count() {
    let rig = Rig::start();
    rig.add_bridge();
    // It is in band: the bridge has rules of its own for it.
    rig.try_vsctl(&["set-fail-mode", "br0", "secure", "--", "set-controller", "br0", "tcp:192.0.2.1:6653"])
        .ok();
    rig.run("ovs-ofctl", &["add-flow", "br0", "in_port=1,actions=drop"]).ok();
    wait_for("the bridge's own rules", || rig.appctl(&["bridge/dump-flows", "br0"]).ok().lines().count() > 1);
    let tables = rig.run("ovs-ofctl", &["dump-tables", "br0"]).ok();
    assert!(tables.contains("table 0:\n    active=1, "), "{tables}");
}

#[test]
fn a_zone_has_the_timeouts_that_the_database_gives_it() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    let words = "-- --id=@m create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:netdev=@m";
    rig.try_vsctl(&words.split(' ').collect::<Vec<_>>()).ok();
    rig.try_vsctl(&["add-zone-tp", "netdev", "zone=5", "udp_first=17"]).ok();
    let flow = "ip,actions=ct(commit,zone=5),ct(commit,zone=6)";
    rig.run("ovs-ofctl", &["add-flow", "br0", flow]).ok();
    let timeouts = || {
        rig.receive("p1");
        let dump = || rig.appctl(&["dpctl/dump-conntrack", "-s"]).ok();
        wait_for("both connections", || dump().lines().count() == 2);
        let dump = dump();
        let of = |zone: &str| {
            let line = dump.lines().find(|line| line.contains(zone)).unwrap();
            let after = line.split("timeout=").nth(1).unwrap();
            after.split(',').next().unwrap().trim().parse::<u32>().unwrap()
        };
        rig.appctl(&["dpctl/flush-conntrack"]).ok();
        (of("zone=5"), of("zone=6"))
    };
    let (own, default) = timeouts();
    assert!(own <= 17 && (18..=60).contains(&default), "{own} {default}");
    rig.try_vsctl(&["del-zone-tp", "netdev", "zone=5"]).ok();
    assert!(timeouts().0 > 17);
}

//! Datapaths and flows put in by hand, and megaflows that are not: what tests do to a switch of dummies.

use crate::common::{Process, Switch, UDP, binary, daemon, run_dir, wait_for};
use std::process::Command;

const FLOW: &str = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07)";

fn appctl(switch: &Switch, args: &[&str]) -> String {
    switch.appctl(args).ok()
}

/// Lines of `dpctl/dump-flows` that are flows.
fn dump(switch: &Switch, args: &[&str]) -> Vec<String> {
    let text = switch.appctl(&[&["dpctl/dump-flows"], args].concat()).ok();
    text.lines().filter(|line| line.contains("actions:")).map(String::from).collect()
}

#[test]
fn without_megaflows_each_flow_matches_all_of_its_packet() {
    let switch = Switch::dummy();
    switch.add_flow("in_port=1,actions=output:2");
    let other = UDP.replace("src=1,", "src=9,");
    let receive_both = || {
        switch.receive("p1", UDP);
        switch.receive("p1", &other);
    };
    receive_both();
    assert_eq!(dump(&switch, &[]).len(), 1);
    assert_eq!(appctl(&switch, &["upcall/disable-megaflows"]), "megaflows disabled\n");
    assert!(dump(&switch, &[]).is_empty(), "flows of before are gone");
    receive_both();
    let flows = dump(&switch, &[]);
    assert_eq!(flows.len(), 2, "{flows:?}");
    assert!(flows.iter().all(|flow| flow.contains("udp(src=") && flow.contains("ttl=64")), "{flows:?}");
    assert_eq!(appctl(&switch, &["upcall/enable-megaflows"]), "megaflows enabled\n");
    receive_both();
    assert_eq!(dump(&switch, &[]).len(), 1);
}

#[test]
fn a_flow_is_found_by_the_ufid_that_a_dump_shows() {
    let switch = Switch::dummy();
    switch.add_flow("in_port=1,actions=output:2");
    switch.receive("p1", UDP);
    let line = dump(&switch, &["-m"]).remove(0);
    let ufid = line.split(", ").next().unwrap();
    let found = appctl(&switch, &["dpctl/get-flow", ufid]);
    assert!(found.starts_with("recirc_id(0),in_port(1)") && found.ends_with("actions:2\n"), "{found}");
    assert_eq!(appctl(&switch, &["dpif/get-flow", ufid]), found);
    let unknown = "ufid:00000000-0000-0000-0000-000000000000";
    assert!(switch.appctl(&["dpctl/get-flow", unknown]).failed().contains("No such file or directory"));
    assert!(switch.appctl(&["dpctl/get-flow", "x"]).failed().contains("UFID is required"));
}

#[test]
fn a_datapath_made_by_hand_forwards_by_the_flows_put_in_and_counts_them() {
    let switch = Switch::dummy();
    appctl(&switch, &["dpctl/add-dp", "dummy@dp0", "a,type=dummy", "b,type=dummy,port_no=7"]);
    appctl(&switch, &["dpctl/add-flow", "dummy@dp0", FLOW, "push_vlan(vid=5),b,9"]);
    let twice = switch.appctl(&["dpctl/add-flow", "dummy@dp0", FLOW, "1"]).failed();
    assert!(twice.contains("updating flow table (File exists)"), "{twice}");
    let other = UDP.replace("00:05", "00:99");
    appctl(&switch, &["netdev-dummy/receive", "a", UDP]);
    appctl(&switch, &["netdev-dummy/receive", "a", &other]);
    let sent = appctl(&switch, &["netdev-dummy/sent", "b"]);
    assert_eq!(&sent[24..32], "81000005", "{sent}");
    assert_eq!(appctl(&switch, &["netdev-dummy/sent", "b"]), "");
    let flows = dump(&switch, &["dummy@dp0"]);
    assert!(flows[0].contains("packets:1, bytes:") && flows[0].contains("used:0."), "{flows:?}");
    assert!(flows[0].ends_with("actions:push_vlan(vid=5,pcp=0),7,9"), "{flows:?}");
    // One packet was of no flow, and a copy was for a port that is not there.
    let shown = appctl(&switch, &["dpctl/show", "dp0"]);
    assert!(shown.contains("lookups: hit:1 missed:1 lost:2\n  flows: 1\n"), "{shown}");
    assert!(shown.contains("  port 1: a (dummy)\n  port 7: b (dummy)\n"), "{shown}");
    let ufid = dump(&switch, &["-m", "dp0"])[0].split(", ").next().unwrap().to_string();
    assert!(appctl(&switch, &["dpctl/get-flow", "dp0", &ufid]).contains("packets:1"));
    // The bridges' flows are not its own.
    assert!(dump(&switch, &[]).is_empty());
    assert_eq!(appctl(&switch, &["dpctl/dump-dps"]), "dummy@dp0\ndummy@ovs-dummy\n");
    let busy = switch.appctl(&["dpctl/del-dp", "dummy@ovs-dummy"]).failed();
    assert!(busy.contains("Device or resource busy"), "{busy}");
    for n in 1..8 {
        appctl(&switch, &["dpctl/add-dp", &format!("dummy@dp{n}")]);
    }
    assert!(switch.appctl(&["dpctl/add-dp", "dummy@dp8"]).failed().contains("at most 8"));
    appctl(&switch, &["dpctl/del-dp", "dp0"]);
    assert!(switch.appctl(&["netdev-dummy/receive", "a", UDP]).failed().contains("no such dummy netdev"));
}

#[test]
fn a_file_adds_modifies_and_deletes_flows() {
    let switch = Switch::dummy();
    let dir = run_dir();
    let file = dir.path().join("flows");
    let path = file.to_str().unwrap();
    appctl(&switch, &["dpctl/add-dp", "dp0"]);
    std::fs::write(
        &file,
        "# ports\nadd in_port(1) 2\nin_port(2) 1\nmodify in_port(1) 3\ndelete in_port(2)\n",
    )
    .unwrap();
    appctl(&switch, &["dpctl/add-flows", "dp0", path]);
    let flows = dump(&switch, &["dp0"]);
    assert!(flows.len() == 1 && flows[0].ends_with("actions:3"), "{flows:?}");
    std::fs::write(&file, "in_port(5) 1\n").unwrap();
    assert!(switch.appctl(&["dpctl/mod-flows", "dp0", path]).failed().contains("No such file or directory"));
    appctl(&switch, &["dpctl/mod-flows", "--may-create", "dp0", path]);
    assert_eq!(dump(&switch, &["dp0"]).len(), 2);
    std::fs::write(&file, "in_port(5)\n").unwrap();
    appctl(&switch, &["dpctl/del-flows", "dp0", path]);
    assert_eq!(dump(&switch, &["dp0"]).len(), 1);
    appctl(&switch, &["dpctl/del-flows", "dp0"]);
    assert!(dump(&switch, &["dp0"]).is_empty());
}

#[test]
fn on_the_bridges_a_flow_by_hand_holds_from_pause_to_resume() {
    let switch = Switch::dummy();
    switch.add_flow("in_port=1,actions=output:2");
    let add = |flow: &str| switch.appctl(&["dpctl/add-flow", flow, "p3"]);
    let refused = add(FLOW).failed();
    assert!(
        refused.contains("Operation not permitted") && refused.contains("revalidator/pause"),
        "{refused}"
    );
    switch.receive("p1", UDP);
    assert_eq!(switch.sent("p2", 1).len(), 1);
    appctl(&switch, &["revalidator/pause"]);
    assert!(add("eth()").failed().contains("updating flow table (Invalid argument)"));
    add(FLOW).ok();
    let flows = dump(&switch, &["--names"]);
    assert!(flows.last().unwrap().ends_with("actions:p3"), "{flows:?}");
    switch.receive("p1", UDP);
    assert_eq!(switch.sent("p3", 1).len(), 1);
    switch.receive("p1", &UDP.replace("00:05", "00:99"));
    assert_eq!(switch.sent("p2", 1).len(), 1, "another packet goes by the tables");
    appctl(&switch, &["revalidator/resume"]);
    switch.receive("p1", UDP);
    assert_eq!(switch.sent("p2", 1).len(), 1);
}

#[test]
fn a_switch_without_dummies_has_none_of_it() {
    let dir = run_dir();
    let _child = Process::start(&mut daemon(&dir, &["--pool-size", "4096"]));
    let ask = |program: &str, args: &[&str]| {
        let said = Command::new(program).args(args).env("OVS_RUNDIR", dir.path()).output().unwrap();
        (said.status.success(), String::from_utf8(said.stderr).unwrap())
    };
    wait_for("the switch", || ask("ovs-appctl", &["version"]).0);
    for command in ["dpctl/add-dp", "dpctl/add-flow", "revalidator/pause"] {
        let (_, text) = ask("ovs-appctl", &[command, "dummy@dp0"]);
        assert!(text.contains("is not a valid command"), "{text}");
    }
    let (_, text) = ask(binary().to_str().unwrap(), &["dpctl", "add-dp", "dp0"]);
    assert!(text.contains("bridges are added with ovs-vsctl add-br"), "{text}");
}

//! Dummies as Open vSwitch's tests drive them: cables, captures, commands, what is logged of packets and
//! flows.

use crate::common::{self, Switch, UDP, wait_for};

/// Two bridges with a cable between p1 of one and p2 of the other; what p2 receives is captured.
fn cabled() -> Switch {
    let dir = common::run_dir();
    let socket = dir.path().join("cable.sock");
    let listens = format!("p1,type=dummy,bridge=br0,ofport=1,pstream=punix:{}", socket.display());
    let connects =
        format!("p2,type=dummy,bridge=br1,ofport=2,stream=unix:{},rxq_pcap=rx.pcap", socket.display());
    let capture = format!(",tx_pcap={}", dir.path().join("p3.pcap").display());
    let connects = connects.replace("rx.pcap", &dir.path().join("p2.pcap").display().to_string());
    Switch::start_in(
        dir,
        &[
            "--bridge",
            "br0,fail-mode=secure,local=dummy",
            "--bridge",
            "br1,fail-mode=secure,local=dummy",
            "--port",
            &listens,
            "--port",
            &connects,
            "--port",
            &format!("p3,type=dummy,bridge=br1,ofport=3{capture}"),
            "--port",
            "p4,type=dummy,bridge=br0,ofport=4",
        ],
    )
}

#[test]
fn a_cable_carries_frames_both_ways_and_captures_hold_them() {
    let switch = cabled();
    wait_for("the cable", || switch.appctl(&["netdev-dummy/conn-state", "p2"]).ok() == "p2: connected\n");
    assert_eq!(switch.appctl(&["netdev-dummy/conn-state"]).ok(), "p2: connected\n");
    assert_eq!(switch.appctl(&["netdev-dummy/conn-state", "p4"]).ok(), "p4: unknown\n");
    for (bridge, flow) in [
        ("br0", "in_port=4,actions=1"),
        ("br0", "in_port=1,actions=4"),
        ("br1", "in_port=2,actions=3,in_port"),
    ] {
        switch.ofctl(&["add-flow", bridge, flow]).ok();
    }
    switch.receive("p4", UDP);
    let there = switch.sent("p3", 1);
    // Back by the same cable.
    assert_eq!(switch.sent("p4", 1), there);
    let bytes: Vec<u8> = there[0]
        .as_bytes()
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect();
    for file in ["p2.pcap", "p3.pcap"] {
        let capture = std::fs::read(switch.dir.path().join(file)).unwrap();
        let records = ports::pcap::file::parse(&capture).unwrap();
        assert_eq!(records.iter().map(|r| r.frame).collect::<Vec<_>>(), [&bytes[..]], "{file}");
    }
    let shown = switch.appctl(&["dpif/show"]).ok();
    assert!(
        shown.starts_with("dummy@ovs-dummy: ") && shown.contains("p2 2/2: (dummy: stream=unix:/"),
        "{shown}"
    );
}

#[test]
fn a_dumped_flow_does_not_count_the_packet_that_made_it_and_both_are_logged() {
    let switch = Switch::dummy();
    switch.add_flow("ip,actions=2");
    switch.appctl(&["vlog/set", "dpif:dbg", "dpif_netdev:dbg"]).ok();
    let dumped = || switch.appctl(&["dpctl/dump-flows"]).ok();
    switch.receive("p1", UDP);
    let key = "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)";
    assert_eq!(
        dumped(),
        format!("flow-dump from the main thread:\n{key}, packets:0, bytes:0, used:never, actions:2\n")
    );
    switch.receive("p1", &format!("{UDP} "));
    switch.appctl(&["netdev-dummy/receive", "p1", UDP, "--len", "200"]).ok();
    assert!(dumped().contains(&format!("{key}, packets:2, bytes:306, used:")), "{}", dumped());
    assert_eq!(switch.flows(&[])[0], "cookie=0x0, table=0, n_packets=3, n_bytes=412, ip actions=output:2");
    let log = switch.log();
    assert_eq!(log.matches("dummy@ovs-dummy: miss upcall:\nskb_priority(0),").count(), 1, "{log}");
    assert!(log.contains("in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,"), "{log}");
    assert_eq!(log.matches(&format!("flow_add: {key}, actions:2\n")).count(), 1, "{log}");
}

#[test]
fn frames_enter_at_the_queue_that_is_named() {
    let switch = Switch::start(&[
        "--bridge",
        "br0,fail-mode=secure,local=dummy",
        "--port",
        "p1,type=dummy,ofport=1,n_rxq=2",
        "--port",
        "p2,type=dummy,ofport=2",
    ]);
    switch.add_flow("in_port=1,actions=2");
    switch.appctl(&["netdev-dummy/receive", "p1", "--qid", "1", UDP]).ok();
    switch.sent("p2", 1);
    let refused = switch.appctl(&["netdev-dummy/receive", "p1", "--qid", "2", UDP]).failed();
    assert!(refused.contains("bad rx queue id."), "{refused}");
}

#[test]
fn without_dummies_there_are_no_commands_for_tests() {
    let dir = common::run_dir();
    let _child = common::Process::start(&mut common::daemon(
        &dir,
        &["--bridge", "br0,local=dummy", "--pool-size", "4096"],
    ));
    let appctl = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        let output = std::process::Command::new("ovs-appctl")
            .args(words)
            .env("OVS_RUNDIR", dir.path())
            .output()
            .unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    wait_for("the switch", || appctl("dpif/show").starts_with("netdev@ovs-netdev: "));
    for command in ["time/stop", "time/warp 10", "crosspoint/block 1", "netdev-dummy/receive br0 00"] {
        assert!(appctl(command).contains("is not a valid command"), "{command}");
    }
}

/// The control thread translates a packet from which a rule is learned, and a worker carries on with it.
#[test]
fn a_packet_that_teaches_a_rule_keeps_its_mark_and_its_hash() {
    let switch = Switch::dummy();
    let bucket =
        "bucket=actions=load:5->NXM_NX_PKT_MARK[],move:NXM_NX_DP_HASH[0..15]->NXM_OF_UDP_SRC[],ct(table=1)";
    let group = format!("group_id=1,type=select,{bucket}");
    switch.ofctl(&["-O", "OpenFlow15", "add-group", "br0", &group]).ok();
    switch.add_flow("table=0,in_port=1,udp,actions=group:1");
    switch.add_flow("table=1,udp,actions=learn(table=9,NXM_OF_ETH_SRC[]),ct(table=2,zone=2)");
    switch.add_flow("table=2,pkt_mark=5,udp,actions=move:NXM_NX_DP_HASH[0..15]->NXM_OF_UDP_DST[],2");
    switch.receive("p1", UDP);
    wait_for("a learned rule", || switch.flows(&["table=9"]).len() == 1);
    let sent = &switch.sent("p2", 1)[0];
    let (before, after) = (&sent[68..72], &sent[72..76]);
    assert_eq!(before, after, "the hash in place of the ports, before the rule was learned and after");
    assert_ne!(after, "0000");
}

/// The limit allows one rule, so the second packet asks for another in every round.
#[test]
fn a_packet_that_asks_for_a_rule_in_every_round_is_dropped_after_the_last_one() {
    let switch = Switch::dummy();
    switch.add_flow(
        "table=0,udp,actions=learn(table=9,limit=1,eth_type=0x800,nw_proto=17,NXM_OF_UDP_SRC[]),ct(table=0)",
    );
    for src in ["src=1,", "src=3,"] {
        switch.receive("p1", &UDP.replace("src=1,", src));
    }
    wait_for("both drops", || switch.appctl(&["crosspoint/drops"]).ok().contains("recirc_depth: 2"));
    assert_eq!(switch.flows(&["table=9"]).len(), 1);
}

#[test]
fn a_trace_that_generates_its_packet_teaches_rules_and_neither_forwards_nor_counts_it() {
    let switch = Switch::dummy();
    switch
        .add_flow("table=0,actions=learn(table=1,hard_timeout=10,dl_dst=dl_src,output:in_port),resubmit(,1)");
    switch.add_flow("table=1,priority=0,actions=2");
    // Without a packet it teaches nothing, and says so.
    let said = switch.appctl(&["ofproto/trace", "ovs-dummy", UDP]).ok();
    assert!(said.contains("\n     >> suppressing side effects, so learn action ignored\n"), "{said}");
    assert_eq!(switch.flows(&["table=1"]).len(), 1);
    for _ in 0..2 {
        switch.appctl(&["ofproto/trace", "ovs-dummy", UDP, "-generate"]).ok();
    }
    let flows = switch.flows(&["table=1"]);
    assert_eq!(flows.len(), 2, "{flows:?}");
    assert!(flows.iter().all(|flow| flow.contains("n_packets=0")), "{flows:?}");
    let shown = switch.appctl(&["dpctl/dump-flows"]).ok();
    assert!(!shown.contains("in_port(1)"), "{shown}");
}

//! The management socket, spoken to by the stock `ovs-ofctl`, command by command.

use crate::common::{PATIENCE, Process, Switch, UDP, wait_for};
use flow::{Action, FieldId, Match};
use openflow::message::{
    FlowEvent, FlowMod, FlowMonitorFlags, FlowMonitorRequest, FlowUpdate, Message, StatsBody, StatsReply,
    StatsRequest, TABLE_ALL,
};
use openflow::{Codec, ErrorKind, Version};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// The rule of the PVP test, as its scripts write it, and as it is shown.
const PVP: &str = "in_port=1,eth_type(0x800),nw_src=10.0.0.1,nw_dst=10.0.0.2,action=2";

const PVP_SHOWN: &str = "ip,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2 actions=output:2";

fn shown(table: u8, packets: u64, rest: &str) -> String {
    format!("cookie=0x0, table={table}, n_packets={packets}, n_bytes={}, {rest}", packets * 106)
}

#[test]
fn a_rule_forwards_a_packet_and_counts_it_exactly() {
    let switch = Switch::dummy();
    switch.add_flow(PVP);
    switch.receive("p1", UDP);
    switch.receive("p1", UDP);
    let frames = switch.sent("p2", 2);
    assert_eq!(frames[0].len(), 2 * 106);
    assert!(frames[0].starts_with("505400000007505400000005080045"));
    assert_eq!(switch.flows(&[]), [shown(0, 2, PVP_SHOWN)]);
    assert_eq!((switch.packets("1", "rx"), switch.packets("2", "tx"), switch.packets("3", "tx")), (2, 2, 0));
    let flows = switch.appctl(&["dpctl/dump-flows"]).ok();
    assert!(flows.starts_with("flow-dump from the main thread:\n"), "{flows}");
    let key = "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,frag=no)";
    assert!(flows.contains(&format!("{key}, packets:1, bytes:106, used:")), "{flows}");
    assert!(flows.ends_with("s, actions:2\n"), "{flows}");
    assert_eq!(switch.appctl(&["crosspoint/drops"]).ok(), "");
}

#[test]
fn show_describes_the_switch_and_its_ports_in_both_versions() {
    let switch = Switch::start(&[
        "--bridge",
        "br0,datapath-id=0xabc",
        "--port",
        "p1,type=dummy,ofport=7,mac=02:00:00:00:00:07",
    ]);
    let text = switch.ofctl(&["show", "br0"]).ok();
    for part in [
        "dpid:0000000000000abc\nn_tables:254, n_buffers:0\n\
         capabilities: FLOW_STATS TABLE_STATS PORT_STATS QUEUE_STATS ARP_MATCH_IP\n",
        " 7(p1): addr:02:00:00:00:00:07\n     config:     0\n     state:      0\n",
        " LOCAL(br0): addr:",
        "frags=normal miss_send_len=0",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let text = switch.ofctl(&["-O", "OpenFlow13", "show", "br0"]).ok();
    assert!(text.contains("OFPST_PORT_DESC reply (OF1.3)") && text.contains("state:      LIVE"), "{text}");
    let text = switch.ofctl(&["dump-ports-desc", "br0"]).ok();
    assert!(text.contains(" 7(p1): addr:02:00:00:00:00:07"), "{text}");
    // A bridge that is in standalone mode says so by a rule.
    assert_eq!(switch.flows(&[]), ["cookie=0x0, table=0, n_packets=0, n_bytes=0, priority=0 actions=NORMAL"]);
}

#[test]
fn rules_are_added_modified_and_deleted_loosely_and_strictly() {
    let switch = Switch::dummy();
    let file = switch.dir.path().join("flows");
    std::fs::write(
        &file,
        "priority=5,ip,nw_dst=1.2.3.4,actions=output:1\n# a comment\ntable=3,arp,actions=drop\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    switch.ofctl(&["add-flows", "br0", file]).ok();
    switch.add_flow("priority=6,ip,nw_dst=1.2.3.4,actions=output:2");
    switch.ofctl(&["--strict", "mod-flows", "br0", "priority=5,ip,nw_dst=1.2.3.4,actions=drop"]).ok();
    let all = |second: &str| {
        vec![
            shown(0, 0, "priority=5,ip,nw_dst=1.2.3.4 actions=drop"),
            shown(0, 0, &format!("priority=6,ip,nw_dst=1.2.3.4 actions={second}")),
            shown(3, 0, "arp actions=drop"),
        ]
    };
    assert_eq!(switch.flows(&[]), all("output:2"));
    assert_eq!(switch.flows(&["table=3"]), [shown(3, 0, "arp actions=drop")]);
    let named = switch.ofctl(&["--names", "dump-flows", "br0", "out_port=p2"]).ok();
    assert!(named.trim_end().ends_with("priority=6,ip,nw_dst=1.2.3.4 actions=output:p2"), "{named}");
    assert!(
        switch.ofctl(&["dump-aggregate", "br0"]).ok().contains("packet_count=0 byte_count=0 flow_count=3")
    );
    switch.ofctl(&["--strict", "del-flows", "br0", "priority=7,ip,nw_dst=1.2.3.4"]).ok();
    assert_eq!(switch.flows(&[]).len(), 3);
    switch.ofctl(&["mod-flows", "br0", "ip,actions=NORMAL"]).ok();
    assert!(switch.flows(&[])[..2].iter().all(|f| f.ends_with("actions=NORMAL")));
    switch.ofctl(&["--strict", "del-flows", "br0", "priority=6,ip,nw_dst=1.2.3.4"]).ok();
    assert_eq!(switch.flows(&[]).len(), 2);
    // Files and switch compared, and made equal.
    // (In OpenFlow 1.0 the stock tool itself refuses to replace by a file that names tables.)
    let of13 = |args: &[&str]| switch.ofctl(&[&["-O", "OpenFlow13"], args].concat());
    let differ = of13(&["diff-flows", "br0", file]);
    assert_eq!(differ.code, Some(2));
    assert!(differ.out.contains("+priority=5,ip,nw_dst=1.2.3.4 actions=output:1"), "{differ:?}");
    of13(&["replace-flows", "br0", file]).ok();
    assert_eq!(of13(&["diff-flows", "br0", file]).ok(), "");
    let other = switch.dir.path().join("other");
    std::fs::write(&other, "in_port=1,actions=output:2\nip,actions=drop\n").unwrap();
    let other = other.to_str().unwrap();
    of13(&["--bundle", "replace-flows", "br0", other]).ok();
    assert_eq!(of13(&["diff-flows", "br0", other]).ok(), "");
    switch.ofctl(&["replace-flows", "br0", other]).ok();
    assert_eq!(switch.ofctl(&["diff-flows", "br0", other]).ok(), "");
    switch.ofctl(&["del-flows", "br0"]).ok();
    assert!(switch.flows(&[]).is_empty());
}

#[test]
fn openflow_13_has_instructions_and_its_own_replies() {
    let switch = Switch::dummy();
    let of13 = |args: &[&str]| switch.ofctl(&[&["-O", "OpenFlow13"], args].concat()).ok();
    of13(&["add-flow", "br0", "priority=9,udp,actions=set_field:63->nw_ttl,goto_table:2"]);
    of13(&["add-flow", "br0", "table=2,in_port=1,actions=write_actions(output:2)"]);
    let flows = of13(&["dump-flows", "br0"]);
    assert!(flows.contains("actions=set_field:63->nw_ttl,goto_table:2"), "{flows}");
    assert!(flows.contains("table=2, n_packets=0, n_bytes=0, in_port=1 actions=write_actions(output:2)"));
    switch.receive("p1", UDP);
    let frame = switch.sent("p2", 1).remove(0);
    assert_eq!(&frame[2 * 22..2 * 23], "3f", "the time to live in {frame}");
    assert!(of13(&["dump-aggregate", "br0"]).contains("packet_count=2 byte_count=212 flow_count=2"));
    let tables = of13(&["dump-tables", "br0"]);
    assert!(tables.contains("  table 0:\n    active=1, lookup=1, matched=1\n"), "{tables}");
    assert!(of13(&["dump-ports", "br0", "2"]).contains("tx pkts=1, bytes=106"));
    assert!(of13(&["dump-table-features", "br0"]).contains("table 0"));
    assert!(of13(&["dump-ports-desc", "br0"]).contains("2(p2)"));
}

#[test]
fn tables_ports_and_queues_are_counted() {
    let switch = Switch::dummy();
    switch.add_flow("table=0,in_port=1,actions=resubmit(,5)");
    switch.receive("p1", UDP);
    switch.receive("p2", UDP);
    wait_for("two drops", || {
        switch.appctl(&["crosspoint/drops"]).ok() == "action_drop: 1\n  p1: 1\ntable_miss: 1\n  p2: 1\n"
    });
    switch.appctl(&["revalidator/wait"]).ok();
    let tables = switch.ofctl(&["dump-tables", "br0"]).ok();
    assert!(
        tables.contains("table 0:\n    active=1, lookup=2, matched=1\n    max_entries=1000000\n"),
        "{tables}"
    );
    let ports = switch.ofctl(&["dump-ports", "br0"]).ok();
    assert!(ports.starts_with("OFPST_PORT reply (xid=0x2): 4 ports\n"), "{ports}");
    assert_eq!((switch.packets("1", "rx"), switch.packets("2", "rx")), (1, 1));
    let queues = switch.ofctl(&["queue-stats", "br0", "1"]).ok();
    assert!(queues.contains("port 1 queue 0: bytes=?, pkts=?"), "{queues}");
}

#[test]
fn a_port_that_is_taken_down_neither_receives_nor_sends_and_comes_back() {
    let switch = Switch::dummy();
    switch.add_flow("in_port=1,actions=output:2");
    switch.ofctl(&["mod-port", "br0", "p2", "down"]).ok();
    let text = switch.ofctl(&["show", "br0"]).ok();
    assert!(text.contains("config:     PORT_DOWN\n     state:      LINK_DOWN"), "{text}");
    switch.receive("p1", UDP);
    wait_for("the drop", || switch.appctl(&["crosspoint/drops"]).ok().contains("p1: 1"));
    switch.ofctl(&["mod-port", "br0", "2", "up"]).ok();
    switch.receive("p1", UDP);
    switch.sent("p2", 1);
    switch.ofctl(&["mod-port", "br0", "p2", "no-flood"]).ok();
    assert!(switch.ofctl(&["show", "br0"]).ok().contains("config:     NO_FLOOD"));
}

#[test]
fn packet_out_sends_and_normal_learns() {
    let switch = Switch::dummy();
    let frame = "packet=50540000000750540000000508004500";
    switch.ofctl(&["packet-out", "br0", &format!("in_port=1,{frame},actions=output:2")]).ok();
    assert_eq!(switch.sent("p2", 1), ["50540000000750540000000508004500"]);
    switch.add_flow("actions=NORMAL");
    switch.ofctl(&["packet-out", "br0", &format!("in_port=3,{frame},actions=TABLE")]).ok();
    switch.sent("p1", 1);
    switch.sent("p2", 1);
    let fdb = || switch.appctl(&["fdb/show", "br0"]).ok();
    assert!(
        fdb().starts_with(" port  VLAN  MAC                Age\n    3     0  50:54:00:00:00:05    "),
        "{}",
        fdb()
    );
    // An answer goes to the port where the address was seen, and nowhere else.
    switch.receive("p1", "505400000005505400000007080045000000");
    switch.sent("p3", 1);
    assert_eq!(switch.appctl(&["netdev-dummy/sent", "p2"]).ok(), "");
    assert!(switch.appctl(&["fdb/stats-show", "br0"]).ok().contains("table: 2/8192"));
    assert_eq!(switch.appctl(&["fdb/flush", "br0"]).ok(), "table successfully flushed\n");
    assert_eq!(fdb().lines().count(), 1);
}

#[test]
fn a_trace_says_what_would_happen_to_a_packet() {
    let switch = Switch::dummy();
    switch.add_flow(PVP);
    let trace = |args: &[&str]| switch.appctl(&[&["ofproto/trace", "br0"], args].concat());
    let text = trace(&["in_port=1,ip,nw_src=10.0.0.1,nw_dst=10.0.0.2"]).ok();
    for part in [
        "Flow: ip,in_port=1,",
        "\nbridge(\"br0\")\n-------------\n 0. ip,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2, priority 32768\n    output:2\n",
        "\nFinal flow: unchanged\n",
        "\nMegaflow: recirc_id=0,eth,ip,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_frag=no\n",
        "\nDatapath actions: 2\n",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(trace(&["in_port=p1", "505400000007505400000005080045"]).ok().contains("Datapath actions: drop"));
    // From a port that is not there, no rule but the table's miss is met.
    assert!(trace(&["in_port=9"]).ok().ends_with("\nDatapath actions: drop\n"));
    let refused = trace(&["in_port=1,nonesuch"]).failed();
    assert!(
        refused.contains("Bad openflow flow syntax: in_port=1,nonesuch: unknown field nonesuch"),
        "{refused}"
    );
}

/// A stock program that prints what it hears until it is killed.
struct Listener {
    _child: Process,
    file: std::path::PathBuf,
}

impl Listener {
    fn start(switch: &Switch, args: &[&str]) -> Listener {
        let file = switch.dir.path().join(args[0]);
        let child = Process::logged(switch.command("ovs-ofctl").args(args), &file);
        Listener { _child: child, file }
    }

    fn heard(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap()
    }
}

#[test]
fn a_monitor_hears_of_packets_ports_and_removed_rules() {
    let switch = Switch::dummy();
    let monitor = Listener::start(&switch, &["monitor", "br0", "65534"]);
    let marker = "50540000000750540000000508004500aabb";
    // The monitor has asked for packets when one that matches nothing arrives there.
    wait_for("a packet-in", || {
        switch.receive("p2", marker);
        monitor.heard().contains("in_port=2 (via no_match) data_len=18 (unbuffered)")
    });
    switch.add_flow("in_port=1,idle_timeout=1,send_flow_rem,cookie=0x5,actions=controller:20");
    switch.receive("p1", UDP);
    wait_for("an action's packet-in", || {
        monitor.heard().contains("cookie=0x5 total_len=106 in_port=1 (via action) data_len=106 (unbuffered)")
    });
    switch.ofctl(&["mod-port", "br0", "p3", "down"]).ok();
    wait_for("the port's status", || monitor.heard().contains("OFPT_PORT_STATUS (xid=0x0): MOD: 3(p3)"));
    wait_for("the flow's end, with its last counters", || {
        let heard = monitor.heard();
        heard.contains("OFPT_FLOW_REMOVED")
            && heard.contains("reason=idle")
            && heard.contains("pkts1 bytes106")
    });
}

#[test]
fn timeouts_remove_rules_to_the_second_and_traffic_keeps_them() {
    let switch = Switch::dummy();
    let start = Instant::now();
    switch.add_flow("in_port=1,hard_timeout=3,actions=output:2");
    switch.add_flow("in_port=2,idle_timeout=2,actions=output:1");
    switch.add_flow("in_port=3,idle_timeout=2,actions=output:1");
    let there = |port: &str| switch.flows(&[]).iter().any(|f| f.contains(&format!("in_port={port} ")));
    let mut gone = [None, None];
    while gone.contains(&None) && start.elapsed() < PATIENCE {
        switch.receive("p2", UDP);
        for (n, port) in ["1", "3"].into_iter().enumerate() {
            let asked = start.elapsed();
            if gone[n].is_none() && !there(port) {
                gone[n] = Some(asked);
            }
        }
    }
    // From below exact; from above as fast as this test looks, on a busy machine.
    let [hard, idle] = gone.map(|g| g.expect("the rules end").as_secs_f64());
    assert!((2.7..6.0).contains(&hard) && (1.7..5.0).contains(&idle), "{hard} {idle}");
    assert!(there("2"), "traffic keeps the rule");
}

#[test]
fn bad_requests_are_answered_by_the_standards_errors_and_the_connection_lives() {
    let switch = Switch::dummy();
    for (flow, error) in [
        ("actions=group:5", "OFPBAC_BAD_OUT_GROUP"),
        ("table=254,actions=drop", "OFPBRC_EPERM"),
        ("table=5,actions=goto_table:5", "OFPBIC_BAD_TABLE_ID"),
    ] {
        let said = switch.ofctl(&["add-flow", "br0", flow]).failed();
        assert!(said.contains(error), "{flow}: {said}");
    }
    switch.add_flow("check_overlap,priority=5,ip,nw_src=10.0.0.0/8,actions=1");
    let overlap =
        switch.ofctl(&["add-flow", "br0", "check_overlap,priority=5,ip,nw_dst=10.0.0.0/8,actions=1"]);
    assert!(overlap.failed().contains("OFPFMFC_OVERLAP"));
    // A rule file with an error names file and line, and nothing of it is added.
    let file = switch.dir.path().join("bad");
    std::fs::write(&file, "in_port=2,actions=1\nin_port=3,actions=nonesuch\n").unwrap();
    let said = switch.ofctl(&["add-flows", "br0", file.to_str().unwrap()]).failed();
    assert!(said.contains("bad:2: unknown action nonesuch"), "{said}");
    assert_eq!(switch.flows(&[]).len(), 1);
}

/// The stock tool knows neither field.
#[test]
fn extension_headers_and_the_physical_port_are_matched() {
    let switch = Switch::dummy();
    let ours = |args: &[&str]| switch.run(crate::common::binary(), &[&["ofctl"], args].concat());
    for flow in [
        "priority=9,ipv6,ipv6_exthdr=hop,actions=2",
        "priority=8,ipv6,ipv6_exthdr=+hop-unseq,actions=2,3",
        "priority=7,ipv6,ipv6_exthdr=0x1/0x1,actions=3",
    ] {
        ours(&["add-flow", "br0", flow]).ok();
        ours(&["-O", "OpenFlow13", "add-flow", "br0", flow]).ok();
    }
    let rules = [
        "priority=9,ipv6,ipv6_exthdr=hop actions=output:2",
        "priority=8,ipv6,ipv6_exthdr=+hop-unseq actions=output:2,output:3",
        "priority=7,ipv6,ipv6_exthdr=+nonext actions=output:3",
    ];
    let dump = |version: &str| ours(&["-O", version, "dump-flows", "br0"]).ok();
    for version in ["OpenFlow10", "OpenFlow13"] {
        let flows = dump(version);
        assert!(rules.iter().all(|rule| flows.contains(rule)), "{flows}");
    }
    for bad in ["ipv6_exthdr=+nonesuch", "ipv6_exthdr=0x200", "ipv6_exthdr=hop-dest"] {
        ours(&["add-flow", "br0", &format!("ipv6,{bad},actions=2")]).failed();
    }
    // Fixed header, then the chain: what follows, each header of eight bytes with padding as its options.
    let receive = |chain: &[u8]| {
        let mut frame = "50540000000750540000000586dd60000000".to_owned();
        frame += &format!("{:04x}{:02x}40", (chain.len() - 1) * 8 + 20, chain[0]);
        frame += &format!("{:032x}{:032x}", 1, 2);
        chain[1..].iter().for_each(|next| frame += &format!("{next:02x}00010400000000"));
        frame += &"00".repeat(20);
        switch.receive("p1", &frame);
    };
    let sent = |port: &str, count: usize| assert_eq!(switch.sent(port, count).len(), count, "{port}");
    receive(&[0, 253]); // Hop-by-hop options alone.
    sent("p2", 1);
    receive(&[0, 60, 253]); // And destination options.
    sent("p2", 1);
    sent("p3", 1);
    receive(&[59]); // No next header.
    sent("p3", 1);
    receive(&[253]); // None: no rule.
    receive(&[60, 0, 253]); // Hop-by-hop options that are not the first are none.
    receive(&[60, 0, 59]);
    sent("p3", 1);
    let counts: Vec<String> = switch
        .run(crate::common::binary(), &["ofctl", "--sort=priority", "dump-flows", "br0"])
        .ok()
        .lines()
        .filter_map(|line| line.split("n_packets=").nth(1)?.split(',').next().map(str::to_owned))
        .collect();
    assert_eq!(counts, ["2", "1", "1"]);
    let cached = switch.appctl(&["dpctl/dump-flows"]).ok();
    assert!(cached.contains("exthdr="), "{cached}");
    // That tables say that they can match them disturbs no client that does not know them.
    switch.ofctl(&["-O", "OpenFlow13", "dump-table-features", "br0"]).ok();
}

/// Raw bytes, since no stock tool sends such.
#[test]
fn malformed_messages_are_answered_one_by_one_on_a_connection_that_lives() {
    let switch = Switch::dummy();
    let mut stream = std::os::unix::net::UnixStream::connect(switch.dir.path().join("br0.mgmt")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let message = |kind: u8, xid: u8, body: &[u8]| {
        let length = (8 + body.len()) as u16;
        [&[4, kind][..], &length.to_be_bytes(), &[0, 0, 0, xid], body].concat()
    };
    // A match of 16 bytes: its header, one OXM, padding.
    let flow_mod = |xid: u8, oxm: &[u8]| {
        let mut body = vec![0; 40];
        body[22..24].copy_from_slice(&[0x80, 0]); // Priority.
        body[24..36].fill(0xff); // No buffer, any port, any group.
        body.extend([0, 1, 0, (4 + oxm.len()) as u8]);
        body.extend(oxm);
        body.resize((body.len() + 8).next_multiple_of(8) - 8, 0);
        message(14, xid, &body)
    };
    let mut all = message(0, 1, &[]);
    all.extend(message(99, 2, &[]));
    all.extend(message(7, 3, b"xx"));
    all.extend(flow_mod(4, &[0x80, 0, 0xfe, 1, 0])); // No such field.
    all.extend(flow_mod(5, &[0x80, 0, 11 << 1, 4, 10, 0, 0, 1])); // An IPv4 address without the Ethernet type.
    all.extend(message(20, 6, &[]));
    let in_port = [0x80, 0, 0, 4, 0, 0, 0, 1];
    let in_phy_port = |port: u8| [0x80, 0, 1 << 1, 4, 0, 0, 0, port];
    all.extend(flow_mod(7, &in_phy_port(1))); // Below which port?
    all.extend(flow_mod(8, &[in_port, in_phy_port(2)].concat())); // No such packet comes.
    all.extend(flow_mod(9, &[in_port, in_phy_port(1)].concat()));
    all.extend(flow_mod(10, &[0x80, 0, 37 << 1, 3, 0, 0, 1])); // PBB is not there.
    all.extend(flow_mod(11, &[0x80, 0, 5 << 1, 2, 0x86, 0xdd, 0x80, 0, 39 << 1, 2, 0, 0x41]));
    all.extend(message(20, 12, &[]));
    stream.write_all(&all).unwrap();
    let mut answers = Vec::new();
    while answers.len() < 10 {
        let mut head = [0; 8];
        stream.read_exact(&mut head).unwrap();
        let mut body = vec![0; usize::from(u16::from_be_bytes([head[2], head[3]])) - 8];
        stream.read_exact(&mut body).unwrap();
        let error = (head[1] == 1).then(|| (body[1], body[3]));
        answers.push((head[1], head[7], error));
    }
    assert_eq!(
        answers[1..],
        [
            (1, 2, Some((1, 1))), // OFPBRC_BAD_TYPE
            (1, 3, Some((1, 6))), // OFPBRC_BAD_LEN
            (1, 4, Some((4, 6))), // OFPBMC_BAD_FIELD
            (1, 5, Some((4, 9))), // OFPBMC_BAD_PREREQ
            (21, 6, None),
            (1, 7, Some((4, 9))),  // OFPBMC_BAD_PREREQ
            (1, 8, Some((4, 7))),  // OFPBMC_BAD_VALUE
            (1, 10, Some((4, 6))), // OFPBMC_BAD_FIELD
            (21, 12, None)
        ]
    );
    let flows = switch.run(crate::common::binary(), &["ofctl", "--no-stats", "dump-flows", "br0"]).ok();
    assert!(flows.contains(" in_port=1 actions=drop"), "{flows}");
    assert!(flows.contains(" ipv6,ipv6_exthdr=nonext|hop actions=drop"), "{flows}");
}

#[test]
fn a_client_that_never_reads_does_not_disturb_others() {
    let switch = Switch::dummy();
    let flows: String = (0..20_000)
        .map(|n| format!("in_port=1,ip,nw_src=10.0.{}.{},actions=2\n", n / 250, n % 250))
        .collect();
    let file = switch.dir.path().join("flows");
    std::fs::write(&file, flows).unwrap();
    switch.ofctl(&["add-flows", "br0", file.to_str().unwrap()]).ok();
    assert!(switch.ofctl(&["dump-aggregate", "br0"]).ok().contains("flow_count=20000"));
    let mut stream = std::os::unix::net::UnixStream::connect(switch.dir.path().join("br0.mgmt")).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.write_all(&[1, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    // Dumps of all flows, as many as the socket takes.
    let mut request = vec![1, 16, 0, 56, 0, 0, 0, 2, 0, 1, 0, 0];
    request.extend([0x00, 0x3f, 0xff, 0xff]);
    request.resize(52, 0);
    request.extend([0xff, 0, 0xff, 0xff]);
    while stream.write_all(&request).is_ok() {}
    assert_eq!(switch.flows(&[]).len(), 20_000);
    let memory = std::fs::read_to_string(format!("/proc/{}/status", switch.pid())).unwrap();
    let resident = memory.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    let kilobytes: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 150_000, "{resident}");
}

/// A client that sends and reads messages of OpenFlow 1.0, one by one.
pub struct Client(std::os::unix::net::UnixStream);

impl Client {
    pub fn connect(switch: &Switch) -> Client {
        let stream = std::os::unix::net::UnixStream::connect(switch.dir.path().join("br0.mgmt")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(stream);
        client.0.write_all(&[1, 0, 0, 8, 0, 0, 0, 1]).unwrap();
        assert!(matches!(client.receive().1, Message::Hello(_)));
        client
    }

    pub fn send(&mut self, xid: u32, message: &Message) {
        self.0.write_all(&Codec::new(Version::V10).encode(xid, message).unwrap()).unwrap();
    }

    pub fn receive(&mut self) -> (u32, Message) {
        let mut bytes = vec![0; 8];
        self.0.read_exact(&mut bytes).unwrap();
        bytes.resize(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 0);
        self.0.read_exact(&mut bytes[8..]).unwrap();
        let version = Version::from_wire(bytes[0]).unwrap();
        Codec::new(version).decode(&bytes).unwrap()
    }

    pub fn watch(&mut self, xid: u32, id: u32, flags: FlowMonitorFlags) {
        let matching = Match::any();
        let request = FlowMonitorRequest {
            id,
            flags,
            out_port: None,
            out_group: None,
            table_id: TABLE_ALL,
            matching,
            command: Default::default(),
        };
        self.send(xid, &Message::StatsRequest(StatsRequest::FlowMonitor(vec![request])));
    }

    /// The events of the next message.
    pub fn events(&mut self) -> (u32, Vec<FlowUpdate>) {
        match self.receive() {
            (xid, Message::StatsReply(StatsReply { body: StatsBody::FlowMonitor(events), .. })) => {
                (xid, events)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn error(&mut self) -> (u32, Option<ErrorKind>) {
        match self.receive() {
            (xid, Message::Error(error)) => (xid, error.kind()),
            other => panic!("{other:?}"),
        }
    }
}

const EVENTS: FlowMonitorFlags =
    FlowMonitorFlags::ADD.union(FlowMonitorFlags::DELETE).union(FlowMonitorFlags::MODIFY);

#[test]
fn who_watches_flows_hears_of_its_own_changes_in_short_and_can_stop() {
    let switch = Switch::dummy();
    let mut client = Client::connect(&switch);
    let add = |port| {
        let mut m = Match::any();
        m.set_masked(FieldId::InPort, port, 0xffff);
        let actions = vec![Action::Output { port: base::OfPort(2), max_len: 0 }];
        Message::FlowMod(Box::new(FlowMod { matching: m, actions, ..FlowMod::add() }))
    };
    client.watch(10, 1, EVENTS);
    assert_eq!(client.events(), (10, vec![]), "what there is was not asked for");
    client.watch(11, 1, EVENTS);
    assert_eq!(client.error(), (11, Some(ErrorKind::OFPMOFC_MONITOR_EXISTS)));
    client.watch(12, 2, FlowMonitorFlags::ACTIONS);
    assert_eq!(client.error(), (12, Some(ErrorKind::OFPMOFC_BAD_FLAGS)));
    client.send(77, &add(1));
    assert_eq!(client.events(), (0, vec![FlowUpdate::Abbreviated { xid: 77 }]));
    client.watch(13, 2, EVENTS | FlowMonitorFlags::OWN | FlowMonitorFlags::INITIAL);
    let (xid, events) = client.events();
    assert!(
        matches!(&events[..], [FlowUpdate::Full(e)] if e.event == FlowEvent::Added && e.actions.is_empty())
    );
    assert_eq!(xid, 13);
    client.send(78, &add(3));
    let (_, events) = client.events();
    assert!(matches!(&events[..], [FlowUpdate::Full(e)] if e.matching.key.get64(FieldId::InPort) == 3));
    for id in [1, 2] {
        client.send(14, &Message::FlowMonitorCancel(id));
    }
    client.send(15, &Message::FlowMonitorCancel(2));
    assert_eq!(client.error(), (15, Some(ErrorKind::OFPMOFC_UNKNOWN_MONITOR)));
    client.send(79, &add(4));
    client.send(80, &Message::BarrierRequest);
    assert_eq!(client.receive(), (80, Message::BarrierReply), "nothing of the addition");
}

#[test]
fn who_watches_flows_and_does_not_read_is_paused_and_then_brought_up_to_date() {
    let switch = Switch::dummy();
    let mut client = Client::connect(&switch);
    client.watch(10, 1, EVENTS);
    assert_eq!(client.events(), (10, vec![]));
    let flow = |n: u32| format!("in_port=1,ip,nw_src=10.0.{}.{}", n / 250, n % 250);
    let write = |name: &str, lines: String| {
        let file = switch.dir.path().join(name);
        std::fs::write(&file, lines).unwrap();
        file.to_str().unwrap().to_string()
    };
    let all = write("all", (0..10_000).map(|n| flow(n) + ",actions=2\n").collect());
    let some = write("some", (0..5_000).map(|n| format!("delete_strict {}\n", flow(2 * n))).collect());
    switch.ofctl(&["add-flows", "br0", &all]).ok();
    switch.ofctl(&["add-flows", "br0", &some]).ok();
    switch.ofctl(&["mod-flows", "br0", &(flow(1) + ",actions=3")]).ok();
    // Now it reads, and knows what the switch has.
    let mut modified = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    let (mut is_paused, mut pauses) = (false, 0);
    while !(known.len() == 5_000 && pauses > 0 && !is_paused) {
        match client.receive().1 {
            Message::FlowMonitorPaused => {
                is_paused = true;
                pauses += 1;
            }
            Message::FlowMonitorResumed => is_paused = false,
            Message::StatsReply(StatsReply { body: StatsBody::FlowMonitor(events), .. }) => {
                for event in events {
                    let FlowUpdate::Full(event) = event else { panic!("of others' changes in short") };
                    let source = event.matching.key.get64(FieldId::NwSrc);
                    match event.event {
                        FlowEvent::Added => assert!(known.insert(source), "told once"),
                        FlowEvent::Deleted => assert!(known.remove(&source), "it was told of before"),
                        FlowEvent::Modified => modified.push(source),
                        other => panic!("{other:?}"),
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(known.iter().all(|source| (source & 0xff) % 2 == 1), "those with even numbers are deleted");
    assert_eq!(modified, [0x0a00_0001], "it was added before the pause, and modified meanwhile");
    switch.ofctl(&["del-flows", "br0", "ip,nw_src=10.0.0.1"]).ok();
    let (_, events) = client.events();
    assert!(
        matches!(&events[..], [FlowUpdate::Full(e)] if e.event == FlowEvent::Deleted),
        "it goes on: {events:?}"
    );
}

#[test]
fn a_bridge_with_more_ports_than_its_features_hold_is_shown_whole() {
    let switch = Switch::start(&[]);
    let port = |n: u32| format!(" -- add-port br0 q{n} -- set interface q{n} type=dummy");
    let ports: String = (1..=1_400).map(port).collect();
    switch.vsctl(&format!("add-br br0 -- set bridge br0 datapath_type=dummy{ports}"));
    for version in ["OpenFlow10", "OpenFlow12", "OpenFlow13"] {
        let show = ["-O", version, "show", "br0"];
        for said in [switch.ofctl(&show).ok(), switch.own_ofctl(&show).ok()] {
            assert_eq!(said.matches("addr:").count(), 1_401, "{version}: {said}");
        }
    }
    // The client needs to know them to find one by its name.
    assert!(switch.own_ofctl(&["dump-ports", "br0", "q1400"]).ok().contains("rx pkts=0"));
}

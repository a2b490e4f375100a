//! Commands of the control socket that are about the datapath's inside, side by side with a stock
//! `ovs-vswitchd --enable-dummy` that is configured the same.

use crate::common::{Switch, UDP, wait_for};
use crate::pair::Pair;

#[test]
fn actions_of_the_datapath_lookups_and_numbers_of_ports_are_as_in_the_stock_switch() {
    let (ours, stock) = (Pair::ours(), Pair::stock());
    let both = |args: &[&str]| {
        let (ours, stock) = (ours.appctl(args), stock.appctl(args));
        assert_eq!(ours, stock, "{args:?}: ours is on the left");
        ours
    };
    for lists in [
        &["1"][..],
        &[""],
        &["drop", "push_vlan(vid=1,pcp=0),2,pop_vlan", "trunc(100),3"],
        &["-m", "1, 2"],
        &["--names", "2"],
    ] {
        assert_eq!(both(&[&["dpctl/parse-actions"], lists].concat()).1, Some(0));
    }
    both(&["dpctl/parse-actions"]);
    let refused = |args: &[&str], why: &str| {
        assert_eq!(stock.appctl(args).1, Some(2), "{args:?}");
        let (text, code) = ours.appctl(args);
        assert!(code == Some(2) && text.contains(why), "{args:?}: {text}");
    };
    refused(&["dpctl/parse-actions", "nonesuch", "1"], "(syntax error at nonesuch (an action here is a port");
    // The stock switch leaves out what a flow does not match; of the actions both make the same.
    let flow = "in_port(1),eth(),eth_type(0x8100),vlan(vid=9,pcp=1),encap(eth_type(0xabcd))";
    let normalized = |pair: &Pair, actions: &str| {
        let (text, code) = pair.appctl(&["dpctl/normalize-actions", flow, actions]);
        (text.lines().filter(|line| !line.starts_with("input flow: ")).collect::<String>(), code)
    };
    for actions in ["5,3,pop_vlan,2,7,1", "drop", "pop_vlan,push_vlan(vid=20,pcp=3),4", "nonesuch"] {
        let (mine, theirs) = (normalized(&ours, actions), normalized(&stock, actions));
        assert_eq!(mine, theirs, "{actions}");
    }
    both(&["dpctl/normalize-actions", "1"]);
    both(&["dpctl/normalize-actions", "x", "1"]);

    // One lookup function, whose priority is kept.
    let set = "dpif-netdev/subtable-lookup-prio-set";
    for (name, priority) in [("generic", "4"), ("generic", "0"), ("generic", "255"), ("generic", "300")] {
        both(&[set, name, priority]);
    }
    both(&[set, "generic"]);
    both(&[set, "generic", "-1"]);
    assert_eq!(both(&[set, "generic", "7"]).1, Some(0));
    let generic = |pair: &Pair| {
        let text = pair.appctl(&["dpif-netdev/subtable-lookup-info-get"]).0;
        text.lines()
            .find_map(|l| l.strip_prefix("  generic ")?.split_once("Priority").map(|l| l.1.to_string()))
    };
    assert_eq!((generic(&ours), generic(&stock)), (Some(": 7)".into()), Some(": 7)".into())));
    refused(&[set, "nonesuch", "3"], "error, subtable lookup function not found");
    assert_eq!(ours.appctl(&[set, "generic", "x"]).1, Some(2));

    // Iterations are not supervised, and whoever asks for it is told so. Bad options are those of the stock.
    let log = |args: &[&'static str]| [&["dpif-netdev/pmd-perf-log-set"], args].concat();
    for args in
        [&[][..], &["off"], &["nope"], &["on", "-b"], &["on", "-b", "x"], &["on", "-us", "-1"], &["-z"]]
    {
        both(&log(args));
    }
    let (text, code) = ours.appctl(&log(&["on", "-b", "10", "-a", "10", "-e", "-us", "500", "-q", "256"]));
    assert!(code == Some(2) && text.contains("iterations are not supervised"), "{text}");

    // A port of the datapath gets another number: its OpenFlow number stays, and packets go there.
    let change = |args: [&'static str; 3]| [&["dpif-dummy/change-port-number"], &args[..]].concat();
    for pair in [&ours, &stock] {
        pair.ofctl(&["add-flow", "br0", "in_port=1,actions=output:2"]).ok();
    }
    assert_eq!(both(&change(["ovs-dummy", "p2", "25"])), (String::new(), Some(0)));
    for args in [
        ["ovs-dummy", "p2", "25"],
        ["ovs-dummy", "p1", "25"],
        ["ovs-dummy", "nope", "26"],
        ["nope", "p1", "26"],
        ["ovs-dummy", "p1", "x"],
        ["ovs-dummy", "p1", "4294967295"],
    ] {
        assert_eq!(both(&change(args)).1, Some(2));
    }
    both(&["dpif/show"]);
    let last = |pair: &Pair| {
        let text = pair.appctl(&["ofproto/trace", "br0", "in_port=1"]).0;
        text.lines().last().unwrap_or_default().to_string()
    };
    for pair in [&ours, &stock] {
        wait_for("the new number", || last(pair) == "Datapath actions: 25");
        assert_eq!(pair.appctl(&["netdev-dummy/receive", "p1", UDP]).1, Some(0));
        wait_for("the flow", || pair.appctl(&["dpctl/dump-flows"]).0.contains("actions:25"));
    }
}

#[test]
fn a_datapath_flow_whose_actions_change_goes_on_counting() {
    let (ours, stock) = (Pair::ours(), Pair::stock());
    let frame = "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x1234)";
    for (pair, is_stock) in [(&ours, false), (&stock, true)] {
        let receive = |count: usize| {
            for _ in 0..count {
                assert_eq!(pair.appctl(&["netdev-dummy/receive", "p1", frame]).1, Some(0));
            }
        };
        let shows = |counted: &str, actions: &str| {
            let text = pair.appctl(&["dpctl/dump-flows"]).0;
            text.lines().any(|l| l.contains("(0x1234)") && l.contains(counted) && l.contains(actions))
        };
        pair.ofctl(&["del-flows", "br0"]).ok();
        pair.ofctl(&["add-flow", "br0", "in_port=1,actions=mod_vlan_vid:3,output:2"]).ok();
        receive(3);
        wait_for("two packets", || shows("packets:2, bytes:28,", "vid=3"));
        pair.ofctl(&["add-flow", "br0", "priority=60000,in_port=1,actions=mod_vlan_vid:4,output:2"]).ok();
        // The stock switch changes its flow when a revalidator comes by; here the next packet does.
        wait_for("the change", || !is_stock || shows("packets:2, bytes:28,", "vid=4"));
        receive(3);
        wait_for("five packets", || shows("packets:5, bytes:70,", "vid=4"));
        // Rules have counted each packet once.
        // The stock switch credits the new rule with packets of the old one.
        wait_for("both rules to have counted their packets", || {
            let rules = pair.ofctl(&["dump-flows", "br0"]).ok();
            is_stock || rules.matches("n_packets=3, n_bytes=42").count() == 2
        });
    }
}

#[test]
fn a_dump_shows_the_packet_that_made_each_flow_as_the_stock_switch_does() {
    let ipv4 = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
                ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=4,ttl=63,frag=no),tcp(src=5,dst=80),tcp_flags(syn)";
    let ipv6 = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x86dd),\
                ipv6(src=fe80::1,dst=fe80::2,label=0x9,proto=17,tclass=0,hlimit=64,frag=no),udp(src=5,dst=53)";
    let tagged = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x8100),vlan(vid=9,pcp=3),\
                  encap(eth_type(0x1234))";
    // What a rule asks for: nothing of the packet, a part of an address, a tag. The stock switch always
    // matches a tag.
    for (rule, packets) in [
        ("in_port=1", &[ipv4, ipv6][..]),
        ("in_port=1,ip,nw_src=192.168.0.0/30", &[ipv4]),
        ("in_port=1,dl_dst=00:00:00:00:00:00/01:00:00:00:00:00", &[ipv4, ipv6]),
        ("in_port=1,dl_vlan=9", &[tagged]),
    ] {
        // Each time anew: a lookup may still pass by the masks of rules that were deleted a moment ago.
        let (ours, stock) = (Pair::ours(), Pair::stock());
        let shown = |pair: &Pair, args: &[&str]| {
            let text = pair.appctl(args).0;
            let flows = text.lines().filter(|line| line.contains("in_port"));
            // Each switch has unique ids of its own, and the stock switch says more of its own lookups.
            let common = |line: &str| {
                let line = line.split(", dp-extra-info:").next().unwrap_or_default();
                match line.split_once(' ') {
                    Some((id, rest)) if id.starts_with("ufid:") => rest.to_string(),
                    _ => line.to_string(),
                }
            };
            let mut flows: Vec<_> = flows.map(common).collect();
            flows.sort();
            flows
        };
        for pair in [&ours, &stock] {
            pair.ofctl(&["del-flows", "br0"]).ok();
            pair.ofctl(&["add-flow", "br0", &format!("{rule},actions=2")]).ok();
            for packet in packets {
                assert_eq!(pair.appctl(&["netdev-dummy/receive", "p1", packet]).1, Some(0));
            }
            wait_for("the flows", || shown(pair, &["dpctl/dump-flows"]).len() == packets.len());
        }
        for args in
            [&["dpctl/dump-flows"][..], &["dpctl/dump-flows", "-m"], &["dpif/dump-flows", "-m", "br0"]]
        {
            assert_eq!(shown(&ours, args), shown(&stock, args), "{rule}, {args:?}: ours is on the left");
        }
    }
}

#[test]
fn workers_go_on_with_their_old_limit_if_there_is_no_room_for_the_new_one() {
    let switch = Switch::start(&[]);
    let ports = ["p1", "p2"].map(|p| format!("-- add-port br0 {p} -- set interface {p} type=dummy"));
    switch.vsctl(&format!("add-br br0 -- set bridge br0 datapath_type=dummy {}", ports.join(" ")));
    switch.add_flow("in_port=1,actions=2");
    let shown = |command: &str| switch.appctl(&[command]).ok();
    let limit =
        || shown("upcall/show").split_once("(limit ").unwrap().1.split_once(')').unwrap().0.to_owned();
    let before = limit();
    // Address space for what there is, and for little more.
    let pages = std::fs::read_to_string(format!("/proc/{}/statm", switch.pid())).unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let limits = [format!("--pid={}", switch.pid()), format!("--as={}:", pages * 4096 + (1 << 30))];
    switch.run("prlimit", &[&limits[0], &limits[1]]).ok();
    switch.vsctl("set open_vswitch . other_config:flow-limit=16000000");
    wait_for("the refusal", || switch.log().contains("the workers could not be changed"));
    switch.receive("p1", UDP);
    switch.sent("p2", 1);
    assert_eq!(limit(), before, "what is in force is shown");
    // Other changes of the workers do not wait for it.
    assert!(!shown("dpif-netdev/pmd-stats-show").contains("core_id 1"));
    switch.vsctl("set open_vswitch . other_config:pmd-cpu-mask=2");
    wait_for("the other place", || shown("dpif-netdev/pmd-stats-show").contains("core_id 1"));
    assert_eq!(limit(), before);
    switch.run("prlimit", &[&limits[0], "--as=unlimited:"]).ok();
    switch.appctl(&["upcall/set-flow-limit", "18446744073709551615"]).ok();
    switch.receive("p1", UDP);
    switch.sent("p2", 1);
    assert_eq!(limit(), "16777216");
}

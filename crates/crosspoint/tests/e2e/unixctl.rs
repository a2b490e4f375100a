//! The control socket's commands, side by side with a stock `ovs-vswitchd --enable-dummy` that is configured
//! the same.

use crate::common::{Switch, UDP, binary, wait_for};
use crate::pair::Pair;
use std::io::Write;
use std::os::unix::net::UnixStream;

#[test]
fn clients_that_read_nothing_give_way_to_the_operator() {
    let switch = Switch::dummy();
    let control = switch.file(format!("ovs-vswitchd.{}.ctl", switch.pid()));
    let request = br#"{"id":0,"method":"list-commands","params":[]}"#.repeat(2_000);
    let deaf: Vec<_> = (0..150)
        .map(|_| {
            let mut client = UnixStream::connect(&control).unwrap();
            client.set_nonblocking(true).unwrap();
            // What does not fit is not needed.
            let _ = client.write(&request);
            client
        })
        .collect();
    let said = switch.run("timeout", &["30", "ovs-appctl", "version"]);
    assert!(said.out.contains("(Open vSwitch)"), "{said:?}");
    drop(deaf);
}

#[test]
fn help_and_documents_name_the_commands_that_the_switch_lists() {
    let switch = Switch::dummy();
    let listed = switch.appctl(&["list-commands"]).ok();
    let usage_of = |name: &str| {
        let lines = listed.lines().filter_map(|line| line.trim_start().split_once(' '));
        lines.into_iter().find(|(other, _)| *other == name).map(|(_, usage)| usage.trim().to_lowercase())
    };
    let help = switch.run(binary(), &["appctl", "--help"]).ok();
    let sections = help.split_once("Commands of every daemon").unwrap().1.split_once("\nOptions").unwrap().0;
    let mut seen = 0;
    // `fdb/show BRIDGE`: the words are those of the list, though fewer and in other letters.
    let rows = sections.lines().filter_map(|line| line.strip_prefix("  "));
    for line in rows.filter(|line| !line.starts_with(' ')) {
        let command = line.split("  ").next().unwrap();
        let mut words = command.split(' ');
        let usage = usage_of(words.next().unwrap()).unwrap_or_else(|| panic!("no command {command}"));
        for word in words {
            let word = word.trim_matches(['[', ']', '.']).to_lowercase();
            assert!(usage.contains(&word), "{command}: list-commands says {usage:?}");
        }
        seen += 1;
    }
    assert!(seen > 15, "{help}");
    let guide = std::fs::read_to_string(testkit::root().join("docs/from-open-vswitch.md")).unwrap();
    let own = listed.split_whitespace().filter(|word| word.starts_with("crosspoint/"));
    let missing: Vec<_> = own.filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/from-open-vswitch.md has no {missing:?}");
}

#[test]
fn a_command_of_a_feature_that_there_is_not_says_so() {
    let switch = Switch::dummy();
    for (command, feature) in [("stp/show", "stp"), ("bfd/show", "bfd"), ("ovs/route/show", "ovs/route")] {
        let said = switch.appctl(&[command]);
        let expected = format!("\"{command}\" is not a valid command: {feature} is not supported\n");
        assert!(said.err.starts_with(&expected) && said.code == Some(2), "{said:?}");
    }
}

#[test]
fn commands_say_what_the_stock_switch_says() {
    let (ours, stock) = (Pair::ours(), Pair::stock());
    let both = |args: &[&str]| {
        let (ours, stock) = (ours.appctl(args), stock.appctl(args));
        assert_eq!(ours, stock, "{args:?}: ours is on the left");
        ours.0
    };
    for pair in [&ours, &stock] {
        for flow in ["in_port=1,actions=output:2", "priority=0,actions=NORMAL"] {
            pair.ofctl(&["add-flow", "br0", flow]).ok();
        }
    }
    for command in [
        "ct-set-maxconns nosuch 10",
        "ct-get-maxconns nosuch",
        "ct-get-nconns nosuch",
        "ct-enable-tcp-seq-chk nosuch",
        "ct-get-tcp-seq-chk nosuch",
        "ipf-set-enabled nosuch v4",
        "ipf-set-min-frag nosuch v4 500",
        "ipf-set-max-nfrags nosuch 500",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        both(&[&[format!("dpctl/{}", words[0]).as_str()], &words[1..]].concat());
    }
    both(&["dpctl/show"]);
    both(&["dpif/show"]);
    both(&["dpctl/dump-dps"]);
    both(&["dpif/dump-dps"]);
    both(&["ofproto/list"]);
    both(&["ofproto/list-tunnels"]);
    both(&["fdb/show", "br0"]);
    both(&["fdb/stats-show", "br0"]);
    both(&["fdb/flush", "br0"]);
    both(&["fdb/show", "br9"]);
    both(&["fdb/show"]);
    both(&["fdb/add", "br0", "p1", "0", "50:54:00:00:00:21"]);
    both(&["fdb/add", "br0", "p2", "10", "50:54:00:00:00:22"]);
    both(&["fdb/add", "br0", "p2", "0", "50:54:00:00:00:21"]);
    both(&["fdb/add", "br0", "br0", "0", "50:54:00:00:00:23"]);
    for [bridge, port, mac] in
        [["br9", "p1", "50:54:00:00:00:21"], ["br0", "p9", "50:54:00:00:00:21"], ["br0", "p1", "50:54"]]
    {
        both(&["fdb/add", bridge, port, "0", mac]);
    }
    both(&["fdb/flush"]);
    both(&["fdb/stats-show", "br0"]);
    let addresses = |pair: &Pair| {
        let mut lines: Vec<_> = pair.appctl(&["fdb/show", "br0"]).0.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    assert_eq!(addresses(&ours), addresses(&stock));
    assert_eq!(addresses(&ours).len(), 4);
    both(&["fdb/del", "br0", "0", "50:54:00:00:00:21"]);
    both(&["fdb/del", "br0", "0", "50:54:00:00:00:21"]);
    both(&["fdb/del", "br0", "10", "50:54:00:00:00:22"]);
    both(&["fdb/del", "br0", "0", "50:54:00:00:00:23"]);
    both(&["fdb/del", "br9", "0", "50:54:00:00:00:23"]);
    both(&["fdb/del", "br0", "0", "50"]);
    both(&["fdb/stats-clear", "br0"]);
    both(&["fdb/stats-clear"]);
    both(&["fdb/stats-clear", "br9"]);
    both(&["fdb/stats-show", "br0"]);
    both(&["fdb/stats-show", "br9"]);
    both(&["fdb/flush", "br9"]);
    // Rules of the stock switch's own pipeline are not ours to have.
    let rules = |pair: &Pair, args: &[&str]| {
        let text = pair.appctl(&[&["bridge/dump-flows"], args].concat()).0;
        let lines = text.lines().filter(|l| !l.contains("table_id=254"));
        let mut lines: Vec<_> = lines.map(|l| l.split_once("s, ").unwrap().1.to_string()).collect();
        lines.sort();
        lines
    };
    for args in [&["br0"][..], &["--offload-stats", "br0"]] {
        assert_eq!(rules(&ours, args), rules(&stock, args));
    }
    assert!(rules(&ours, &["br0"]).iter().any(|l| l == "n_packets=0, n_bytes=0, in_port=1,actions=output:2"));
    // Managers are reached through the bridges, unless their rows say otherwise.
    let own_rules = |pair: &Pair| {
        let mut rules = rules(pair, &["br0"]);
        rules.retain(|rule| rule.contains("priority=18000"));
        rules
    };
    for (command, count) in [
        ("set-manager tcp:10.9.9.9 ssl:10.9.9.7:7000 ptcp:0", 11),
        ("set manager tcp:10.9.9.9 connection_mode=out-of-band", 7),
        ("set bridge br0 other_config:disable-in-band=true", 0),
        ("set bridge br0 other_config:disable-in-band=false", 7),
        ("del-manager", 0),
    ] {
        for pair in [&ours, &stock] {
            let words: Vec<&str> = command.split(' ').collect();
            pair.run("ovs-vsctl", &words).ok();
            wait_for("the switch's own rules", || own_rules(pair).len() == count);
        }
        assert_eq!(own_rules(&ours), own_rules(&stock), "{command}");
    }
    both(&["bridge/dump-flows", "br9"]);
    both(&["bridge/reconnect"]);
    both(&["bridge/reconnect", "br0"]);
    both(&["bridge/reconnect", "br9"]);
    both(&["qos/show", "p1"]);
    both(&["qos/show", "br0"]);
    both(&["qos/show", "p9"]);
    both(&["qos/show-types", "p1"]);
    both(&["qos/show-types", "p9"]);
    both(&["dpif-netdev/pmd-stats-clear"]);
    both(&["vlog/list-pattern"]);
    // The shape of a line of coverage, with what it counts aside.
    let coverage = |pair: &Pair| {
        // The stock switch collects its threads' counts every few seconds.
        let shown = || pair.appctl(&["coverage/show"]).0;
        wait_for("the count of commands", || shown().contains("\nunixctl_received "));
        let text = shown();
        let head = text.lines().next().unwrap().split("hash=").next().unwrap().to_string();
        let line = text.lines().find(|l| l.starts_with("unixctl_received ")).unwrap();
        let shape = line.chars().map(|c| if c.is_ascii_digit() { ' ' } else { c }).collect::<String>();
        (head, shape.trim_end().to_string(), text.lines().last().unwrap().ends_with(" events never hit"))
    };
    assert_eq!(coverage(&ours), coverage(&stock));
    both(&["nonesuch"]);
    both(&["list-commands", "x"]);
    both(&["version", "x"]);
    both(&["coverage/read-counter", "nonesuch"]);
    both(&["ofproto/trace", "br0", "in_port=1,ip,nw_src=1.2.3.4"]);
    // Source and destination are both 0, and a trace learns nothing from it.
    let same = |pair: &Pair| pair.appctl(&["ofproto/trace", "br0", "in_port=2"]).0.contains("flooding");
    assert_eq!((same(&ours), same(&stock)), (true, true));
    // Ports are flooded to in an order of their own, and the tag is part of what NORMAL decides by here.
    let flood = ["ofproto/trace", "br0", "in_port=2,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07"];
    let steps = |pair: &Pair| pair.appctl(&flood).0.split("\nMegaflow").next().unwrap().to_string();
    assert_eq!(steps(&ours), steps(&stock));
    both(&["ofproto/trace", "br9", "in_port=1"]);
    both(&["ofproto/trace", UDP]);
    both(&["ofproto/trace", "in_port=1", "505400000002505400000001080645"]);
    both(&["ofproto/trace", "ovs-dummy", "in_port(42)"]);
    both(&["ofproto/trace", "ovs-dummy", "recirc_id(0x42)"]);
    let from_controller =
        |actions| ["ofproto/trace-packet-out", "br0", "in_port=2,dl_src=50:54:00:00:00:05", actions];
    both(&from_controller("output:1,output:3"));
    both(&from_controller("nonesuch"));
    both(&["netdev-dummy/receive", "nope", "00"]);
    both(&["netdev-dummy/set-admin-state", "p3", "down"]);
    both(&["netdev-dummy/set-admin-state", "p3", "sideways"]);
    for [name, address] in [
        ["p1", "10.0.0.1/24"],
        ["p1", "10.0.0.1/255.255.0.0"],
        ["p1", "10.0.0.1/33"],
        ["p1", "10.0.0"],
        ["none", "10.0.0.1/24"],
    ] {
        both(&["netdev-dummy/ip4addr", name, address]);
    }
    for address in ["fd00::1/64", "fd00::1/129", "fd00:::1"] {
        both(&["netdev-dummy/ip6addr", "p1", address]);
    }
    both(&["vlog/set", "nonesuch:dbg"]);
    both(&["vlog/set", "PATTERN:x:y"]);
    both(&["vlog/reopen"]);
    both(&["netdev-dummy/receive", "p1", UDP]);
    for pair in [&ours, &stock] {
        wait_for("the flow", || pair.appctl(&["dpctl/dump-flows"]).0.contains("in_port(1)"));
    }
    let without_head = |pair: &Pair| {
        let text = pair.appctl(&["dpctl/dump-flows"]).0;
        // The stock switch does not count the packet that made the flow.
        let lines = text.lines().filter(|l| !l.starts_with("flow-dump"));
        let flow =
            |l: &str| l.split(", packets:").next().unwrap().to_string() + l.rsplit(", ").next().unwrap();
        lines.map(flow).collect::<Vec<_>>()
    };
    assert_eq!(without_head(&ours), without_head(&stock));
    // What the first packet cost is there, and gone after.
    let packets = |pair: &Pair| {
        let text = pair.appctl(&["dpif-netdev/pmd-stats-show"]).0;
        text.lines().filter_map(|l| l.strip_prefix("  packets received: ")?.parse::<u64>().ok()).sum::<u64>()
    };
    assert_eq!(packets(&ours), 1);
    both(&["dpif-netdev/pmd-stats-clear"]);
    assert_eq!(packets(&ours), 0);
    // Sizes of caches are told ten times a second.
    wait_for("the flow in upcall/show", || {
        let upcalls = ours.appctl(&["upcall/show"]).0;
        upcalls.contains("\n  flows         : (current 1) (limit ") && upcalls.contains("(keys 1)\n")
    });
    both(&["time/stop"]);
    both(&["time/warp", "100"]);
    both(&["time/warp", "x"]);
    both(&["time/warp", "0"]);
    both(&["revalidator/wait"]);
    both(&["revalidator/purge"]);
    // What translation can do without, and what is no measure of it.
    for (feature, values) in
        [("clone", &["false", "true", "x"][..]), ("sample_nesting", &["2", "11", "10"]), ("x", &["1"])]
    {
        for value in values {
            both(&["dpif/set-dp-features", "br0", feature, value]);
            both(&["dpif/set-dp-features", "br0", feature]);
        }
    }
    // A number, whatever it counts.
    let number = ours.appctl(&["coverage/read-counter", "xlate_actions"]);
    assert_eq!((number.1, number.0.trim().parse::<u64>().is_ok()), (Some(0), true));
    // Usages are the stock one's; some commands take less here, and say so.
    let list = |pair: &Pair| pair.appctl(&["list-commands"]).0;
    let stock_list = list(&stock);
    let name = |line: &str| line.trim().split(' ').next().unwrap_or_default().to_string();
    let takes_less = ["dpctl/del-flows", "dpif-netdev/pmd-perf-show"];
    for line in list(&ours).lines().skip(1).filter(|l| !takes_less.contains(&name(l).as_str())) {
        let theirs = stock_list.lines().find(|l| name(l) == name(line));
        assert!(theirs.is_none_or(|l| l.trim_end() == line.trim_end()), "{line}\n{theirs:?}");
    }
    // Commands of what is not supported, by their first word, are all that is missing.
    let unsupported =
        ["autoattach", "bfd", "bond", "cfm", "lacp", "mdb", "ovs", "rstp", "stp", "tnl", "netdev-dummy"];
    let own_list = list(&ours);
    for line in stock_list.lines().skip(1) {
        let group = name(line).split('/').next().unwrap_or_default().to_string();
        let is_there = own_list.lines().any(|l| name(l) == name(line));
        assert!(is_there || unsupported.contains(&group.as_str()), "{line}");
    }
    assert_eq!(ours.appctl(&["exit", "--cleanup"]), (String::new(), Some(0)));
}

#[test]
fn vlans_ports_and_refusals_are_told_in_the_stock_switchs_words() {
    let (ours, stock) = (Pair::ours(), Pair::stock());
    let vsctl = |words: &str| {
        for pair in [&ours, &stock] {
            let set = pair.run("ovs-vsctl", &words.split(' ').collect::<Vec<_>>());
            set.ok();
        }
    };
    let both = |args: &[&str]| {
        let (ours, stock) = (ours.appctl(args), stock.appctl(args));
        assert_eq!(ours, stock, "{args:?}: ours is on the left");
        ours.0
    };
    // What a flow of ours is cached for may be less than with the stock switch.
    let trace = |flow: &str| {
        let flow = format!("{flow},dl_src=50:54:00:00:00:05");
        let shown = |pair: &Pair| {
            let (text, code) = pair.appctl(&["ofproto/trace", "br0", &flow]);
            let lines = text.lines().filter(|l| !l.starts_with("Megaflow: "));
            (lines.map(|l| format!("{l}\n")).collect::<String>(), code)
        };
        let (ours, stock) = (shown(&ours), shown(&stock));
        assert_eq!(ours, stock, "{flow}: ours is on the left");
        ours.0
    };
    vsctl("set port p1 tag=10 -- set port p3 tag=10 vlan_mode=native-untagged");
    for pair in [&ours, &stock] {
        pair.ofctl(&["add-flow", "br0", "actions=NORMAL"]).ok();
    }
    let place_addresses = || {
        for (port, mac) in [("p1", "07"), ("p2", "08"), ("p3", "09")] {
            for pair in [&ours, &stock] {
                let mac = format!("50:54:00:00:00:{mac}");
                assert_eq!(pair.appctl(&["fdb/add", "br0", port, "10", &mac]).1, Some(0));
            }
        }
    };
    place_addresses();
    // A tag that goes, one that comes, and one that keeps its priority.
    for (flow, actions) in [
        ("in_port=p2,dl_dst=50:54:00:00:00:07,dl_vlan=10", "pop_vlan,1"),
        ("in_port=p2,dl_dst=50:54:00:00:00:09,dl_vlan=10,dl_vlan_pcp=3", "pop_vlan,3"),
        ("in_port=p1,dl_dst=50:54:00:00:00:08", "push_vlan(vid=10,pcp=0),2"),
        ("in_port=p1,dl_dst=50:54:00:00:00:08,vlan_tci=0x7000", "pop_vlan,push_vlan(vid=10,pcp=3),2"),
    ] {
        let text = trace(flow);
        assert!(text.contains("\nFinal flow: unchanged\n"), "{text}");
        assert!(text.ends_with(&format!("\nDatapath actions: {actions}\n")), "{text}");
    }
    // What is not forwarded, and why.
    trace("in_port=p1,dl_dst=50:54:00:00:00:07,dl_vlan=10");
    trace("in_port=99,dl_dst=50:54:00:00:00:07");
    vsctl("set port p1 protected=true -- set port p2 protected=true");
    // The stock switch forgets them where a port changes.
    place_addresses();
    trace("in_port=p2,dl_dst=50:54:00:00:00:07,dl_vlan=10");
    vsctl("set port p1 protected=false -- set port p2 protected=false trunks=20");
    trace("in_port=p2,dl_dst=50:54:00:00:00:07,dl_vlan=10");
    trace("in_port=p2,dl_dst=50:54:00:00:00:07");
    vsctl("set port p2 trunks=20 tag=30 vlan_mode=native-tagged");
    trace("in_port=p2,dl_dst=50:54:00:00:00:07,dl_vlan=10");
    vsctl("set port p2 trunks=[] cvlans=20 vlan_mode=dot1q-tunnel");
    trace("in_port=p2,dl_dst=50:54:00:00:00:07,dl_vlan=10");
    vsctl("set port p2 cvlans=[] tag=[] vlan_mode=[]");
    place_addresses();
    for bad in [
        "foo",
        "foo=1",
        "in_port=1,foo",
        "in_port=p9",
        "in_port=1,dl_dst=5",
        ",",
        "",
        "in_port",
        "nw_src=1.2.3.4",
        "udp,tp_src=5",
        "tcp,,,udp",
        "tcp,tp_src=5,tp_src=5",
        "tcp,nw_src=1.2.3.4/24",
        "tcp tp_dst",
        "ct_state=+trk",
        "reg0[0..3]=1",
    ] {
        both(&["ofproto/trace", "br0", bad]);
    }
    both(&["ofproto/trace"]);
    both(&["ofproto/trace", "br0"]);
    both(&["ofproto/trace", "br0", "tcp", "zz"]);
    both(&["ofproto/trace", "br0", "tcp", "1", "2", "3"]);

    // The same of a flow that is cached, and what shows it.
    let tagged = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:08),eth_type(0x8100),vlan(vid=0,pcp=3),\
        encap(eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2))";
    both(&["netdev-dummy/receive", "p1", tagged]);
    let flows = |pair: &Pair, filter: &[&str]| {
        let (text, code) = pair.appctl(&[&["dpctl/dump-flows"], filter].concat());
        let flows = text.lines().filter(|l| l.contains("in_port(")).count();
        (flows, if code == Some(0) { String::new() } else { text })
    };
    for pair in [&ours, &stock] {
        wait_for("the flow", || flows(pair, &[]).0 == 1);
        let text = pair.appctl(&["dpctl/dump-flows"]).0;
        assert!(text.trim_end().ends_with("actions:pop_vlan,push_vlan(vid=10,pcp=3),2"), "{text}");
        assert!(pair.appctl(&["dpctl/show"]).0.contains("\n  flows: 1\n"));
    }
    for (filter, count) in [
        ("filter=in_port=1", 1),
        ("filter=in_port=p1,udp", 1),
        ("filter=in_port=2", 0),
        ("filter=vlan_tci=0x7000", 1),
        ("filter=dl_vlan=10", 0),
        ("filter=dl_src=50:54:00:00:00:05", 1),
        ("filter=dl_src=50:54:00:00:00:06", 0),
        // The flow does not look at it, so some of its packets may match.
        ("filter=ip,nw_dst=10.9.9.9", 1),
        ("filter=arp", 0),
        ("type=ovs", 1),
        ("type=ovs,tc", 1),
        ("type=non-offloaded", 1),
        ("type=offloaded", 0),
        ("type=dpdk", 0),
        ("pmd=77", 0),
    ] {
        assert_eq!(flows(&ours, &[filter]), (count, String::new()), "{filter}");
        assert_eq!(flows(&stock, &[filter]), (count, String::new()), "{filter}");
    }
    for pair in [&ours, &stock] {
        assert_eq!(flows(pair, &["filter=udp", "type=ovs", "ovs-dummy"]).0, 1);
    }
    for bad in [&["filter=foo"][..], &["type=foo"], &["nodp"], &["filter=udp", "filter=tcp"]] {
        both(&[&["dpctl/dump-flows"], bad].concat());
    }
    assert_eq!(ours.appctl(&["dpctl/dump-flows", "pmd=x"]).1, Some(2));

    // Dummies with queues.
    vsctl("add-port br0 p5 -- set interface p5 type=dummy-pmd options:n_rxq=3 options:n_txq=2");
    vsctl("add-port br0 p6 -- set interface p6 type=dummy-pmd");
    for pair in [&ours, &stock] {
        let text = pair.appctl(&["dpctl/show"]).0;
        let shown: Vec<&str> =
            text.lines().filter_map(|l| l.split_once("(dummy-pmd: ")).map(|l| l.1).collect();
        let queues = |n| {
            format!(
                "configured_rx_queues={n}, configured_tx_queues=1, requested_rx_queues={n}, requested_tx_queues=1)"
            )
        };
        let several = queues(3).replace("tx_queues=1", "tx_queues=2");
        assert_eq!(shown, [several, queues(1)], "{text}");
        let text = pair.appctl(&["dpif-netdev/pmd-rxq-show"]).0;
        let polled = |port: &str| text.lines().filter(|l| l.contains(&format!("port: {port} "))).count();
        assert_eq!((polled("p5"), polled("p6")), (3, 1), "{text}");
    }
    vsctl("del-port p5 -- del-port p6");

    // Dummies' commands, levels of logs, and counters that scripts read.
    vsctl("add-port br0 p9 -- set interface p9 type=internal");
    both(&["dpif/show"]);
    both(&["netdev-dummy/set-admin-state", "nope", "up"]);
    both(&["netdev-dummy/receive", "p1", "--qid", "5", "00"]);
    both(&["vlog/disable-rate-limit", "bridge"]);
    let bridge = |pair: &Pair| {
        let text = pair.appctl(&["vlog/list"]).0;
        text.lines().find(|l| l.starts_with("bridge ")).map(str::to_string)
    };
    assert_eq!(bridge(&ours), bridge(&stock));
    assert!(bridge(&ours).is_some_and(|l| l.ends_with("(rate limiting disabled)")), "{:?}", bridge(&ours));
    // Without words, everything is logged.
    both(&["vlog/set"]);
    assert_eq!(bridge(&ours), bridge(&stock));
    assert!(bridge(&ours).is_some_and(|l| l.matches("DBG").count() == 3), "{:?}", bridge(&ours));
    both(&["vlog/set", "info"]);
    for (counter, least) in [
        ("netdev_received", 1),
        ("netdev_sent", 1),
        ("flow_extract", 1),
        ("txn_success", 1),
        ("unixctl_replied", 1),
        ("mac_learning_learned", 1),
        ("bridge_reconfigure", 1),
        ("dpif_port_add", 2),
        ("ofproto_update_port", 1),
    ] {
        for pair in [&ours, &stock] {
            wait_for(counter, || {
                let text = pair.appctl(&["coverage/read-counter", counter]).0;
                text.trim().parse::<u64>().is_ok_and(|count| count >= least)
            });
        }
    }
}

/// What becomes of fragments, in each of the modes.
#[test]
fn fragments_are_matched_as_the_stock_switch_matches_them() {
    let (ours, stock) = (Pair::ours(), Pair::stock());
    let udp = |fragment: &str| {
        let ip = format!("450000240001{fragment}40110000c0a80001c0a80002");
        format!("5054000000075054000000050800{ip}04d20035001000000000000000000000")
    };
    // Whole, first, later.
    let frames = [udp("0000"), udp("2000"), udp("00ff")];
    for pair in [&ours, &stock] {
        for flow in ["priority=2,udp,tp_dst=53,actions=2", "priority=1,udp,tp_dst=0,actions=3"] {
            pair.ofctl(&["add-flow", "br0", flow]).ok();
        }
    }
    let mut seen = Vec::new();
    for mode in ["normal", "nx-match", "drop", "normal"] {
        let after = [&ours, &stock].map(|pair| {
            let set = pair.ofctl(&["set-frags", "br0", mode]);
            set.ok();
            let got = pair.ofctl(&["get-frags", "br0"]).ok();
            assert_eq!(got.trim(), mode);
            for frame in &frames {
                assert_eq!(pair.appctl(&["netdev-dummy/receive", "p1", frame]).1, Some(0));
            }
            let counts = || {
                let text = pair.ofctl(&["dump-flows", "br0"]).ok();
                let count = |rule: &str| {
                    let line = text.lines().find(|l| l.contains(rule)).unwrap();
                    line.split("n_packets=")
                        .nth(1)
                        .unwrap()
                        .split(',')
                        .next()
                        .unwrap()
                        .parse::<u64>()
                        .unwrap()
                };
                [count("tp_dst=53"), count("tp_dst=0")]
            };
            pair.appctl(&["revalidator/wait"]);
            counts()
        });
        assert_eq!(after[0], after[1], "{mode}: ours is on the left, by destination port 53 and 0");
        seen.push(after[0]);
    }
    // One is whole each time; a first fragment has its ports in one mode; drop takes both fragments.
    assert_eq!(seen, [[1, 2], [3, 3], [4, 3], [5, 5]]);
}

#[test]
fn upcall_commands_limit_flows_and_say_what_cannot_be_switched() {
    let (ours, stock) = (Pair::ours(), Pair::stock());
    let both = |args: &[&str]| {
        let (ours, stock) = (ours.appctl(args), stock.appctl(args));
        assert_eq!(ours, stock, "{args:?}: ours is on the left");
    };
    both(&["upcall/set-flow-limit", "70000"]);
    both(&["upcall/set-flow-limit"]);
    both(&["upcall/disable-ufid"]);
    both(&["upcall/enable-megaflows"]);
    both(&["upcall/enable-megaflows", "x"]);
    both(&["upcall/dump-wait"]);
    let shown = |ours: &Pair| ours.appctl(&["upcall/show"]).0;
    let limit = || shown(&ours).split("(limit ").nth(1).map(|l| l.split(')').next().unwrap().to_string());
    assert_eq!(limit().as_deref(), Some("70000"));
    assert_eq!(ours.appctl(&["upcall/set-flow-limit", "many"]).1, Some(2));
    assert_eq!(limit().as_deref(), Some("70000"));
    // The configuration has the last word, when it changes.
    let set = ["set", "open_vswitch", ".", "other_config:flow-limit=5000"];
    assert!(ours.run("ovs-vsctl", &set).succeeded());
    assert_eq!(limit().as_deref(), Some("5000"));
    // It is kept: of a hundred flows there are 64 at most.
    both(&["upcall/set-flow-limit", "64"]);
    assert!(ours.run("ovs-ofctl", &["add-flow", "br0", "udp,tp_src=1,actions=2"]).succeeded());
    let flows = || {
        let text = ours.appctl(&["dpctl/dump-flows"]).0;
        text.lines().filter(|l| l.contains("in_port(1)")).count()
    };
    assert!(ours.run("ovs-ofctl", &["add-flow", "br0", "priority=5,in_port=1,actions=NORMAL"]).succeeded());
    for n in 0..100 {
        let packet = UDP
            .replace("dst=50:54:00:00:00:07", &format!("dst=50:54:00:00:01:{n:02x}"))
            .replace("src=1,", "src=7,");
        assert_eq!(ours.appctl(&["netdev-dummy/receive", "p1", &packet]).1, Some(0));
    }
    wait_for("all packets", || {
        let stats = ours.appctl(&["dpif-netdev/pmd-stats-show"]).0;
        stats.contains("\n  packets received: 100\n")
    });
    let count = flows();
    assert!((32..=64).contains(&count), "{count}");
    // What cannot be switched says so, and why.
    let (text, code) = ours.appctl(&["upcall/enable-ufid"]);
    assert!(code == Some(2) && text.contains("-m shows UFIDs"), "{text}");
    assert!(shown(&ours).contains("ufid enabled : false"));
}

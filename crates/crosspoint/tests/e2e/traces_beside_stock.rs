//! `ofproto/trace` beside the stock switch's, line by line; and where packets go that action sets and buckets
//! have tracked.

use crate::actions_beside_stock::{Both, ethernet, ipv4, udp};

const UDP_FLOW: &str = "in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=7,udp_dst=9";

/// A trace without the numbers of packets that come back, which either switch gives as it likes.
fn numberless(text: &str) -> String {
    ["recirc(0x", "recirc_id=0x", "recirc_id="].iter().fold(text.to_owned(), |text, before| {
        let mut parts = text.split(before);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + "N" + part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
    })
}

/// The same groups and rules to both, and the same text of each trace from both.
fn same_traces(both: &mut Both, groups: &[&str], rules: &[&str], flows: &[&str]) {
    both.rules("OpenFlow15", &[]);
    both.verdict(&["-O", "OpenFlow15", "del-groups", "br0"]).unwrap();
    for group in groups {
        both.verdict(&["-O", "OpenFlow15", "add-group", "br0", group]).unwrap();
    }
    both.rules("OpenFlow15", rules);
    for flow in flows {
        let [ours, stock] = both.appctl_both("ofproto/trace", &["br0", flow]).map(|text| numberless(&text));
        assert_eq!(ours, stock, "ours and the stock switch's: {rules:?}, {flow}");
    }
}

#[test]
fn traces_are_those_of_the_stock_switch() {
    let mut both = Both::start();
    let nd = "in_port=1,icmp6,ipv6_src=fe80::1,ipv6_dst=fe80::2,icmpv6_type=135,nd_target=fe80::3";
    same_traces(&mut both, &[], &["actions=output:2"], &[UDP_FLOW, nd]);
    // Registers, metadata and fields of tunnels are no part of a megaflow that came through none.
    let matched =
        ["reg0=0,metadata=0,tun_id=0,pkt_mark=0,actions=write_metadata:0,goto_table:1", "table=1,actions=9"];
    same_traces(&mut both, &[], &matched, &[UDP_FLOW]);
    same_traces(&mut both, &[], &["actions=controller(max_len=60)"], &[UDP_FLOW]);
    same_traces(
        &mut both,
        &[],
        &["ip,actions=push_mpls:0x8847,output:2"],
        &["in_port=1,udp,nw_tos=20,nw_ecn=3"],
    );
    // An action set that sends the packet nowhere is not carried out.
    let nowhere =
        ["actions=write_actions(set_field:5->reg0),goto_table:1", "table=1,priority=0,actions=drop"];
    same_traces(&mut both, &[], &nowhere, &[UDP_FLOW]);
    let groups = ["group_id=1,type=all,bucket=actions=drop,bucket=actions=output:2"];
    same_traces(&mut both, &groups, &["actions=group:1"], &[UDP_FLOW]);
    for set in ["ct(commit)", "ct(table=2)", "ct_clear", "ct_clear,ct(commit),group:1", "ct(commit),ct_clear"]
    {
        let rules = [
            &format!("udp,actions=write_actions({set}),goto_table:1"),
            "table=1,actions=drop",
            "table=2,actions=2",
        ];
        same_traces(&mut both, &groups, &rules, &[UDP_FLOW]);
    }
    let nat = [
        "group_id=1,type=indirect,bucket=actions=ct(commit,table=1,nat(dst=10.0.0.5:80),exec(set_field:2->ct_mark))",
    ];
    same_traces(&mut both, &nat, &["udp,actions=group:1", "table=1,actions=output:2"], &[UDP_FLOW]);
}

/// Load balancers of OVN are such buckets.
#[test]
fn sets_and_buckets_have_packets_tracked_and_translated_as_in_the_stock_switch() {
    let mut both = Both::start();
    let mut udp = udp();
    udp[6..8].fill(0);
    let frames = [("udp without a checksum", ethernet(0x800, &ipv4(17, 0, 64, &udp)))];
    let back = "table=1,ct_state=+trk+new+dnat,udp,nw_dst=10.0.0.5,tp_dst=80,actions=output:2";
    let bucket = "ct(commit,table=1,zone=3,nat(dst=10.0.0.5:80),exec(set_field:2->ct_mark))";
    for kind in ["indirect", "all", "select,selection_method=dp_hash"] {
        both.rules("OpenFlow15", &[]);
        both.verdict(&["-O", "OpenFlow15", "del-groups", "br0"]).unwrap();
        let group = format!("group_id=1,type={kind},bucket=actions={bucket}");
        both.verdict(&["-O", "OpenFlow15", "add-group", "br0", &group]).unwrap();
        both.rules(
            "OpenFlow15",
            &["table=0,udp,actions=group:1", back, "table=1,priority=0,actions=output:3"],
        );
        both.appctl_both("dpctl/flush-conntrack", &[]);
        both.same_fates(kind, &frames);
        let [ours, stock] = both.appctl_both("dpctl/dump-conntrack", &["zone=3"]);
        assert_eq!(ours, stock, "{kind}");
        assert!(ours.contains("mark=2"), "{ours}");
    }
    both.verdict(&["-O", "OpenFlow15", "del-groups", "br0"]).unwrap();
    let set = format!("table=0,udp,actions=write_actions({bucket})");
    both.rules("OpenFlow15", &[&set, back, "table=1,priority=0,actions=output:3"]);
    both.appctl_both("dpctl/flush-conntrack", &[]);
    both.same_fates("an action set", &frames);
}

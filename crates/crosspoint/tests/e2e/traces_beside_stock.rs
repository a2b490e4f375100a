//! `ofproto/trace` beside the stock switch's, line by line; and where packets go that action sets and buckets
//! have tracked.

use crate::actions_beside_stock::{Both, ethernet, ipv4, udp};
use crate::common::PATIENCE;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub const UDP_FLOW: &str = "in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=7,udp_dst=9";

/// A trace without the numbers of packets that come back, which either switch gives as it likes.
fn numberless(text: &str) -> String {
    ["recirc(0x", "recirc_id=0x", "recirc_id="].iter().fold(text.to_owned(), |text, before| {
        let mut parts = text.split(before);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + "N" + part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
    })
}

/// The same groups and rules to both, and the same text of each trace from both.
pub fn same_traces(both: &mut Both, groups: &[&str], rules: &[&str], flows: &[&str]) {
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
    // Longer and shorter packets have nothing to do, each.
    same_traces(&mut both, &[], &["actions=check_pkt_larger(60)->NXM_NX_REG0[0]"], &[UDP_FLOW]);
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
    let queued = "actions=write_actions(set_queue:1,set_field:02:00:00:00:00:07->eth_dst,output:2)";
    both.rules("OpenFlow15", &[queued]);
    same_steps(&mut both, UDP_FLOW);
    same_traces(&mut both, &[], &["actions=2"], &["in_port=1,ip,nw_src=10.0.0.1,nw_proto=2,nw_ttl=1"]);
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

/// Only a packet is learned from, given or made up, and only where its address is not known.
#[test]
fn what_a_trace_learns_is_told_as_in_the_stock_switch() {
    let mut both = Both::start();
    both.rules("OpenFlow10", &["in_port=3,actions=NORMAL,NORMAL", "actions=NORMAL"]);
    let mut learned = 0;
    for args in [
        &["in_port=1,dl_src=02:00:00:00:00:01"][..],
        &["in_port=1,dl_src=02:00:00:00:00:01", "-generate"],
        &["in_port=1,dl_src=02:00:00:00:00:01", "-generate"],
        &["in_port=2,dl_src=02:00:00:00:00:01,dl_vlan=7", "-generate"],
        &["in_port=3,dl_src=02:00:00:00:00:03", "-generate"],
        &["in_port=1,dl_src=01:00:00:00:00:01", "-generate"],
        &["in_port=1", "02000000000202000000000508004500"],
        &["in_port=2,dl_src=02:00:00:00:00:05,dl_dst=02:00:00:00:00:01", "-generate"],
    ] {
        let told = both.appctl_both("ofproto/trace", &[&["br0"], args].concat());
        // Ports are flooded in any order.
        let [ours, stock] = told.map(|text| text.split("\nMegaflow:").next().unwrap_or_default().to_owned());
        assert_eq!(ours, stock, "{args:?}");
        learned += ours.matches("-> learned that 02:00:00:00:00:0").count();
    }
    assert_eq!(learned, 5);
}

/// The match of a tag has its presence; an absent one is not shown. Bits without a tag are those of one that
/// comes.
#[test]
fn tags_are_shown_as_in_the_stock_switch() {
    let mut both = Both::start();
    let flows = ["in_port=1,ip", "in_port=1,ip,dl_vlan=5,dl_vlan_pcp=2", "in_port=1"];
    same_traces(&mut both, &[], &["dl_vlan=5,actions=2"], &flows);
    same_traces(&mut both, &[], &["vlan_tci=5/0x0fff,actions=2", "priority=1,actions=3"], &flows);
    same_traces(&mut both, &[], &["vlan_tci=0/0x1000,actions=2", "priority=1,actions=3"], &flows);
    same_traces(&mut both, &[], &["vlan_tci=0,actions=2", "priority=1,actions=3"], &flows);
    let bits = ["actions=load:1->NXM_OF_VLAN_TCI[13..15],load:1->NXM_OF_VLAN_TCI[12],output:2"];
    same_traces(&mut both, &[], &bits, &flows[..1]);
    same_traces(&mut both, &[], &["actions=load:1->NXM_OF_VLAN_TCI[13..15],output:2"], &flows[..1]);
}

/// A connection that listens to packet-ins of Nicira's second form, of the given version.
fn listener(dir: &Path, version: u8) -> UnixStream {
    let mut stream = UnixStream::connect(dir.join("br0.mgmt")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[version, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    stream.write_all(&[version, 9, 0, 12, 0, 0, 0, 2, 0, 0, 0xff, 0xff]).unwrap();
    let format = [0, 0, 0x23, 0x20, 0, 0, 0, 16, 0, 0, 0, 2];
    stream.write_all(&[&[version, 4, 0, 20, 0, 0, 0, 3][..], &format].concat()).unwrap();
    stream.write_all(&[version, 2, 0, 8, 0, 0, 0, 4]).unwrap();
    while message(&mut stream).0 != 3 {}
    stream
}

/// The type of the next message, and what follows its header.
fn message(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - 8];
    stream.read_exact(&mut body).unwrap();
    (header[1], body)
}

/// The packet has been changed by what comes before, and the fields have the version's numbers.
#[test]
fn controllers_are_told_of_a_generated_packet_as_by_the_stock_switch() {
    let mut both = Both::start();
    let tells = "load:9->NXM_NX_REG0[],load:2->OXM_OF_METADATA[],controller";
    for version in [1, 4, 6] {
        for actions in [
            format!("dec_ttl,{tells}"),
            format!("mod_dl_src:02:00:00:00:00:07,2,{tells},mod_dl_dst:02:00:00:00:00:08,3"),
            format!("clone(dec_ttl,2,{tells}),3"),
            format!("push_mpls:0x8847,push_vlan:0x8100,2,{tells}"),
        ] {
            let rule = format!("ip,actions={actions}");
            both.rules("OpenFlow13", &[&rule]);
            let mut listeners = both.directories().map(|dir| listener(dir, version));
            both.appctl_both("ofproto/trace", &["br0", UDP_FLOW, "-generate"]);
            let [ours, stock] = listeners.each_mut().map(|stream| {
                loop {
                    let (kind, body) = message(stream);
                    if kind == 4 {
                        return body;
                    }
                }
            });
            assert_eq!(ours, stock, "1.{}, {actions}", version - 1);
        }
    }
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

/// A clone executes its copy of the set, and what a bucket's tables write stays. (Open vSwitch 3.1 aborts at
/// a packet that is to be tracked while its action set is not empty.)
#[test]
fn clones_and_buckets_have_the_action_sets_of_the_stock_switch() {
    let mut both = Both::start();
    let groups = [
        "group_id=1,type=all,bucket=actions=resubmit(,1)",
        "group_id=2,type=all,bucket=actions=resubmit(,1),bucket=actions=resubmit(,3)",
        "group_id=4,type=all,bucket=actions=resubmit(,4),bucket=actions=output:3",
    ];
    let writes = "table=1,actions=write_actions(set_field:02:00:00:00:00:07->eth_dst,output:2)";
    let set_before = "table=0,udp,actions=write_actions(output:9),goto_table:2";
    for group in groups {
        both.verdict(&["-O", "OpenFlow15", "add-group", "br0", group]).unwrap();
    }
    for rules in [
        &["actions=clone(resubmit(,1))", writes][..],
        &["actions=clone(resubmit(,1),clone(3)),4", writes],
        &[set_before, "table=2,udp,actions=clone(push_vlan:0x8100,3),4"],
        &["actions=group:1", writes],
        &["actions=group:2,4", writes, "table=3,actions=write_actions(output:3)"],
        &[
            set_before,
            "table=2,udp,actset_output=9,actions=write_actions(set_field:8->udp_src),goto_table:3",
            "table=3,udp,actset_output=9,actions=write_actions(group:4),goto_table:6",
            "table=6,udp,actset_output=unset,actions=write_actions(output:2),goto_table:7",
            "table=7,udp,actset_output=unset,actions=4",
        ],
        &["actions=group:4,pop:NXM_NX_REG0[],4", "table=4,actions=push:NXM_OF_IN_PORT[]"],
        &["actions=clone(resubmit(,4)),pop:NXM_NX_REG0[],4", "table=4,actions=push:NXM_OF_IN_PORT[]"],
    ] {
        both.rules("OpenFlow15", rules);
        // How resubmits within copies are indented, and which bits of a copy are matched, differs.
        let [ours, stock] = both.appctl_both("ofproto/trace", &["br0", UDP_FLOW]).map(|text| {
            let is_told =
                |line: &&str| line.starts_with("Datapath actions: ") || line.contains("action set is");
            text.lines().filter(is_told).map(|line| numberless(line.trim())).collect::<Vec<_>>()
        });
        assert_eq!(ours, stock, "ours and the stock switch's: {rules:?}");
    }
}

/// A mask of all bits of a field is told from none where the field does not fill its bytes.
#[test]
fn loads_reach_part_of_any_field_in_openflow_15_too() {
    let mut both = Both::start();
    let rules = [
        "mpls,actions=load:1->OXM_OF_MPLS_LABEL[0..2],load:1->OXM_OF_MPLS_TC[],set_field:4->mpls_label,2",
        "udp,actions=load:1->NXM_NX_IP_TTL[0..2],load:1->OXM_OF_IP_DSCP[0..2],load:0->NXM_NX_IP_ECN[0],2",
        "udp6,actions=load:7->NXM_NX_IPV6_LABEL[],set_field:7->ipv6_label,load:1->OXM_OF_IP_DSCP[],2",
        "vlan_tci=0x1000/0x1000,arp,actions=load:1->OXM_OF_VLAN_PCP[0],load:2->OXM_OF_VLAN_PCP[],2",
        "reg0=1,actions=load:3->NXM_OF_IN_PORT[0..1],in_port",
        "reg0=2,actions=move:NXM_NX_REG1[0..2]->OXM_OF_VLAN_VID[0..2],pop:OXM_OF_VLAN_VID[],2",
        "icmp6,icmp_type=135,nw_frag=later,actions=2",
        "icmp,icmp_type=8,nw_frag=yes,actions=2",
    ];
    both.rules("OpenFlow15", &rules);
    for version in ["OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        let [ours, stock] = both.texts(&["-O", version, "--no-stats", "dump-flows", "br0"]);
        assert_eq!(ours, stock, "{version}");
        assert!(ours.contains("mpls_tc") || ours.contains("MPLS_TC"), "{ours}");
    }
    for flow in ["udp,nw_tos=252,nw_ttl=64", "udp6", "dl_vlan=3,arp"] {
        same_steps(&mut both, &format!("in_port=1,{flow}"));
    }
}

#[test]
fn groups_have_the_actions_of_the_stock_switch() {
    let mut both = Both::start();
    // What outputs otherwise than `output` is no part of a set.
    for bucket in [
        "output:NXM_NX_REG0[]",
        "set_field:2->reg0,output:NXM_NX_REG0[],output:3",
        "output(port=2,max_len=100)",
        "controller(userdata=01)",
        "controller",
        "dec_mpls_ttl,output:3",
        "set_field:1->mpls_label,output:3",
        // What cannot be done to a bucket's copy is no matter of the packet's.
        "encap(ethernet),output:3",
        "push_vlan:0x8100,decap,output:3",
    ] {
        let group = format!("group_id=1,type=all,bucket=actions={bucket}");
        same_traces(&mut both, &[&group], &["actions=group:1,output:4"], &[UDP_FLOW]);
    }
    both.rules("OpenFlow15", &[]);
    both.verdict(&["-O", "OpenFlow15", "del-groups", "br0"]).unwrap();
    // A port of no protocol in particular.
    let group = "group_id=1,type=all,bucket=actions=mod_tp_src:53,mod_tp_dst:54,output:2";
    both.verdict(&["-O", "OpenFlow13", "add-group", "br0", group]).unwrap();
    for version in ["OpenFlow11", "OpenFlow13", "OpenFlow15"] {
        let texts = both.texts(&["-O", version, "dump-groups", "br0"]);
        // The clients log when they say what is deprecated.
        let line = |line: &str| line.split_once('|').map_or(line, |(_, rest)| rest).to_string();
        let [ours, stock] = texts.map(|text| text.lines().map(line).collect::<Vec<_>>());
        assert_eq!(ours, stock, "{version}");
    }
}

#[test]
fn traces_tell_of_limits_headers_and_tunnels_as_the_stock_switch_does() {
    let mut both = Both::start();
    let learn = |src: &str| {
        format!(
            "learn(table=3,limit=1,priority=5,result_dst=NXM_NX_REG3[0],eth_src=00:00:00:00:00:{src},\
             load:1->NXM_NX_REG1[])"
        )
    };
    let rules = [
        format!("actions={},resubmit(,1)", learn("01")),
        format!("table=1,actions={},output:2", learn("02")),
    ];
    both.rules("OpenFlow15", &[&rules[0], &rules[1]]);
    let frame: String =
        ethernet(0x800, &ipv4(17, 0, 64, &udp())).iter().map(|b| format!("{b:02x}")).collect();
    for _ in 0..2 {
        let [ours, stock] =
            both.appctl_both("ofproto/trace", &["br0", "in_port=1", &frame]).map(|text| megaflowless(&text));
        assert_eq!(ours, stock);
        assert!(ours.contains("-> Limit exceeded, learn failed"), "{ours}");
    }
    let vlan = "in_port=1,udp,dl_vlan=4";
    for actions in ["encap(ethernet),output:3", "decap,output:3"] {
        let rule = format!("actions={actions}");
        same_traces(&mut both, &[], &[&rule], &[UDP_FLOW, vlan]);
    }
    // A packet that waits for a controller is told under the cookie of the rule that it came to first.
    let paused =
        ["cookie=5,actions=resubmit(,1)", "table=1,cookie=6,actions=controller(userdata=01,pause),2"];
    let tracked = [
        "cookie=5,udp,actions=ct(table=1)",
        "table=1,cookie=6,actions=resubmit(,2),3",
        "table=2,cookie=7,actions=controller(userdata=01,pause),2",
    ];
    for rules in [&paused[..], &tracked] {
        same_traces(&mut both, &[], rules, &[UDP_FLOW]);
        let [ours, stock] =
            both.appctl_both("ofproto/trace", &["br0", "in_port=1", &frame]).map(|text| megaflowless(&text));
        assert_eq!(ours, stock, "{rules:?}");
        assert!(ours.contains("continuation=1"), "{ours}");
    }
    both.rules("OpenFlow15", &["actions=set_field:10.0.0.5->tun_dst,2"]);
    for flags in ["0", "oam"] {
        let flow = format!("in_port=1,udp,tun_dst=1.2.3.4,tun_src=4.3.2.1,tun_flags={flags}");
        same_steps(&mut both, &flow);
    }
}

/// Options of traces, with one hyphen or two as in ovs-vswitchd(8), and what they refuse.
#[test]
fn options_of_traces_are_those_of_the_stock_switch() {
    let mut both = Both::start();
    let learn = "table=1,udp,actions=learn(table=2,eth_type=0x800,nw_proto=17,NXM_OF_UDP_SRC[],output:NXM_OF_IN_PORT[]),output:2";
    both.rules("OpenFlow15", &["udp,actions=resubmit(,1)", learn]);
    let learned = |both: &Both| {
        let texts = both.texts(&["-O", "OpenFlow15", "--no-stats", "dump-flows", "br0", "table=2"]);
        assert_eq!(texts[0], texts[1]);
        texts[0].contains("actions=output:1")
    };
    let same = |both: &mut Both, command: &str, options: &[&str], after: &[&str]| {
        let args = [options, &["br0", UDP_FLOW], after].concat();
        let [ours, stock] = both.appctl_both(command, &args).map(|text| megaflowless(&text));
        assert_eq!(ours, stock, "{command} {args:?}");
        ours
    };
    for options in [
        &["-names"][..],
        &["--names"],
        &["-consistent"],
        &["--consistent"],
        &["--foo"],
        &["--l7", "0102"],
        &["--l7", "zz"],
        &["--l7-len", "100"],
        &["--l7-len", "70000"],
        &["--l7-len", "-1"],
        &["-l7", "01"],
        &["-ct-next", "trk"],
    ] {
        same(&mut both, "ofproto/trace", options, &[]);
    }
    same(&mut both, "ofproto/trace", &["--generate"], &["505400000002505400000001080645"]);
    for actions in ["pop_vlan", "pop_mpls:0x800", "set_field:1->tcp_src", "set_field:1->udp_src", "2"] {
        for options in [&[][..], &["-consistent"], &["--consistent"]] {
            same(&mut both, "ofproto/trace-packet-out", options, &[actions]);
        }
    }
    assert!(!learned(&both), "a trace without a packet taught a rule");
    for options in [&["-generate"][..], &["--generate", "--l7", "0102"], &["--l7-len", "5", "--generate"]] {
        same(&mut both, "ofproto/trace", options, &[]);
        assert!(learned(&both), "{options:?}");
        both.verdict(&["-O", "OpenFlow15", "del-flows", "br0", "table=2"]).unwrap();
    }
    same(&mut both, "ofproto/trace-packet-out", &["--generate"], &["resubmit(,1)"]);
    assert!(learned(&both), "of a packet-out");
}

/// A rule on a field of Ethernet or above is one on Ethernet frames: what `encap` and `decap` make is another
/// type of packet, which rules name by `packet_type`.
#[test]
fn rules_on_frames_let_other_types_of_packets_pass_as_in_the_stock_switch() {
    let mut both = Both::start();
    let rules = [
        "ip,in_port=1,actions=encap(nsh(md_type=1)),resubmit(,1),resubmit(,2),resubmit(,3),resubmit(,4),resubmit(,5)",
        "in_port=2,ip,actions=encap(mpls),resubmit(,5)",
        "in_port=3,ip,actions=decap(),resubmit(,6),resubmit(,7),resubmit(,8)",
        "table=1,dl_type=0x894f,actions=note:01",
        "table=2,vlan_tci=0,actions=note:02",
        "table=3,dl_src=00:00:00:00:00:00,actions=note:03",
        "table=4,dl_type=0x894f,nsh_mdtype=1,actions=note:04",
        "table=4,priority=1,packet_type=(1,0x894f),nsh_mdtype=1,actions=note:05",
        "table=5,mpls,actions=note:06",
        "table=5,priority=1,packet_type=(1,0x8847),actions=note:07",
        "table=6,ip,actions=note:08",
        "table=6,priority=5,packet_type=(1,0x800),actions=note:09",
        "table=7,priority=9,ip,nw_src=10.0.0.1,actions=conjunction(1,1/2)",
        "table=7,priority=9,packet_type=(1,0x800),nw_src=10.0.0.1,actions=conjunction(1,1/2)",
        "table=7,priority=9,packet_type=(1,0x800),nw_dst=10.0.0.2,actions=conjunction(1,2/2)",
        "table=7,priority=9,conj_id=1,ip,actions=note:0a",
        "table=7,priority=3,conj_id=1,actions=note:0b",
        "table=8,reg0=0,actions=note:0c",
    ];
    both.rules("OpenFlow15", &rules);
    for port in 1..=3 {
        let flow = UDP_FLOW.replace("in_port=1", &format!("in_port={port}"));
        let traces = both.appctl_both("ofproto/trace", &["br0", &flow]);
        // The packet's fields at the end are the same, but fields that it has not are shown as 0 by either.
        let steps = |text: &String| numberless(text.split("Final flow").next().unwrap_or(""));
        assert_eq!(steps(&traces[0]), steps(&traces[1]), "ours and the stock switch's, {flow}");
    }
    // The type may be said of frames, too, but nothing shows it.
    for (command, matching) in [
        ("add-flow", "table=9,packet_type=(0,0),ip,actions=4"),
        ("add-flow", "table=9,ip,actions=5"),
        ("add-flow", "table=9,packet_type=(0,0),actions=6"),
        ("add-flow", "table=9,check_overlap,packet_type=(1,0x86dd),ipv6_src=::1,actions=7"),
        ("add-flow", "table=9,actions=8"),
    ] {
        both.verdict(&["-O", "OpenFlow15", command, "br0", matching]).unwrap();
    }
    let dump = |within: &str| both.texts(&["-O", "OpenFlow15", "--no-stats", "dump-flows", "br0", within]);
    for within in ["table=9", "table=9,packet_type=(0,0)", "table=9,ip", "table=9,packet_type=(1,0x86dd)", ""]
    {
        let [ours, stock] = dump(within);
        assert_eq!(ours, stock, "{within}");
    }
    both.verdict(&["-O", "OpenFlow15", "del-flows", "br0", "packet_type=(0,0)"]).unwrap();
    let [ours, stock] = dump("");
    assert_eq!(ours, stock);
}

/// A trace without what Open vSwitch says of connections that a packet without an Ethernet header has not.
fn connectionless(text: &str) -> String {
    let zero = ["ct_nw_src=0.0.0.0,ct_nw_dst=0.0.0.0,", "ct_ipv6_src=::,ct_ipv6_dst=::,"];
    zero.iter().fold(text.to_owned(), |text, of_none| text.replace(of_none, ""))
}

/// Tags and addresses belong to an Ethernet header: without one they are neither set nor shown.
#[test]
fn packets_without_an_ethernet_header_go_as_in_the_stock_switch() {
    let mut both = Both::start();
    both.rules("OpenFlow15", &[]);
    let inconsistent = Err("OFPBAC_MATCH_INCONSISTENT".to_owned());
    for packet_type in ["(1,0x800)", "(1,0x86dd)", "(1,0x88cc)"] {
        for (actions, expected) in [("mod_vlan_pcp:2", &inconsistent), ("push_vlan:0x8100", &Ok(()))] {
            let flow = format!("packet_type={packet_type},actions={actions},output:2");
            assert_eq!(&both.verdict(&["-O", "OpenFlow15", "add-flow", "br0", &flow]), expected, "{flow}");
        }
    }
    let v4 = "packet_type=(1,0x800),nw_proto=17,nw_src=10.0.0.1,nw_ttl=64,tp_src=7,tp_dst=9";
    let v6 = "packet_type=(1,0x86dd),ipv6_src=fe80::1,nw_ttl=9";
    let arp = "packet_type=(1,0x806),arp_op=1,arp_spa=1.2.3.4";
    for actions in [
        "push_vlan:0x8100",
        "mod_vlan_pcp:2",
        "mod_vlan_vid:5",
        "move:eth_src->eth_dst",
        "move:vlan_tci->reg0[0..15]",
        "encap(ethernet),decap(),push_vlan:0x8100",
    ] {
        for end in ["output:3", "encap(ethernet),output:3"] {
            let is_undone = actions.starts_with("encap") && end == "output:3";
            both.rules("OpenFlow15", &[&format!("actions={actions},{end}")]);
            for flow in [v4, v6, arp, "packet_type=(1,0x88cc)"] {
                let traces = both.appctl_both("ofproto/trace", &["br0", &format!("in_port=1,{flow}")]);
                let texts = traces.map(|text| connectionless(&numberless(&text)));
                // A tag that is pushed first is in front of no header; the stock switch shows it behind one.
                // To a packet that it drops it gives a header first.
                let [ours, stock] = match (is_undone, end) {
                    (true, _) => texts.map(|text| of_line(&text, "Final flow")),
                    (false, "output:3") => texts,
                    _ => texts.map(|text| of_line(&text, "Datapath actions")),
                };
                assert_eq!(ours, stock, "ours and the stock switch's: {actions},{end}, {flow}");
            }
        }
    }
    for actions in ["dec_ttl", "set_field:9->ip_dscp"] {
        let after = format!("table=1,packet_type=(1,0x800),actions={actions},encap(ethernet),output:2");
        both.rules("OpenFlow15", &["ip,actions=decap(),resubmit(,1)", &after]);
        both.same_fates(actions, &[("UDP", ethernet(0x800, &ipv4(17, 0, 64, &udp())))]);
    }
}

/// The line of a trace that begins so.
fn of_line(text: &str, start: &str) -> String {
    text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned()
}

/// A stack whose bottom is not given ends where nothing more is given.
#[test]
fn labels_without_a_bottom_are_pushed_and_popped_as_in_the_stock_switch() {
    let mut both = Both::start();
    let stack =
        |labels: &[[u8; 4]]| ethernet(0x8847, &[&labels.concat(), &ipv4(17, 0, 64, &udp())[..]].concat());
    let (label, bottom) = ([0, 1, 0, 64], [0, 2, 1, 64]);
    let frames = [
        ("one label", stack(&[bottom])),
        ("two labels", stack(&[label, bottom])),
        ("three labels", stack(&[label, label, bottom])),
        ("labels that are zero", stack(&[[0; 4], [0, 0, 1, 0]])),
        ("labels that are zero below another", stack(&[label, [0; 4], [0; 4], bottom])),
    ];
    let deep = stack(&[label, label, label, label, bottom]);
    let deep: String = deep.iter().map(|b| format!("{b:02x}")).collect();
    for actions in
        ["push_mpls:0x8847", "push_mpls:0x8847,push_mpls:0x8847", "pop_mpls:0x800", "pop_mpls:0x8847"]
    {
        both.rules("OpenFlow13", &[&format!("mpls,actions={actions},output:3")]);
        for given in ["mpls_label=4,mpls_bos=0,mpls_ttl=3", "mpls_bos=0", "mpls_label=4,mpls_bos=1"] {
            same_steps(&mut both, &format!("in_port=1,mpls,{given}"));
        }
        both.same_fates(actions, &frames);
        if actions != "pop_mpls:0x8847" {
            let [ours, stock] = both.appctl_both("ofproto/trace", &["br0", "in_port=1", &deep]);
            assert_eq!(megaflowless(&ours), megaflowless(&stock), "{actions}");
        }
    }
}

#[test]
fn deleted_options_and_context_headers_are_told_as_in_the_stock_switch() {
    let mut both = Both::start();
    both.verdict(&["add-tlv-map", "br0", "{class=0xffff,type=0,len=4}->tun_metadata0"]).unwrap();
    both.rules("OpenFlow15", &["tun_metadata0=1,actions=delete_field:tun_metadata0,output:2"]);
    for given in ["tun_metadata0=1", "tun_metadata0=2", "tun_dst=1.2.3.4,tun_metadata0=1", "reg0=1"] {
        same_steps(&mut both, &format!("in_port=1,{given}"));
    }
    both.rules("OpenFlow15", &["actions=set_field:2->tun_metadata0,output:2"]);
    same_steps(&mut both, "in_port=1");
    for kind in [1, 2] {
        both.rules("OpenFlow15", &["actions=output:2"]);
        same_steps(
            &mut both,
            &format!("in_port=1,dl_type=0x894f,nsh_mdtype={kind},nsh_np=3,nsh_spi=4,nsh_c1=5"),
        );
    }
}

/// The same trace but for the bits that a megaflow holds: there are fewer than in Open vSwitch's.
fn same_steps(both: &mut Both, flow: &str) {
    let [ours, stock] = both.appctl_both("ofproto/trace", &["br0", flow]).map(|text| megaflowless(&text));
    assert_eq!(ours, stock, "ours and the stock switch's, {flow}");
}

fn megaflowless(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("Megaflow:"));
    numberless(&lines.collect::<Vec<_>>().join("\n"))
}

/// A part of a tuple is of all zones, a whole one of zone 0. The other end's names a connection, too, unless
/// that is translated.
#[test]
fn tuples_without_a_zone_remove_the_connections_that_they_remove_in_the_stock_switch() {
    let mut both = Both::start();
    const WHOLE: &str = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=53,ct_tp_dst=4660";
    const OTHER_END: &str =
        "ct_nw_src=10.0.0.2,ct_nw_dst=10.0.0.1,ct_nw_proto=17,ct_tp_src=4660,ct_tp_dst=53";
    const ICMP: &str = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=1";
    let mut udp = udp();
    udp[6..8].fill(0);
    // An echo request of identifier 7.
    let ping = [8, 0, 0xf7, 0xf7, 0, 7, 0, 1];
    let frames = [
        ("udp without a checksum", ethernet(0x800, &ipv4(17, 0, 64, &udp))),
        ("ping", ethernet(0x800, &ipv4(1, 0, 64, &ping))),
    ];
    let mut left = Vec::new();
    for args in [
        &[WHOLE][..],
        &["ct_nw_proto=17"],
        &["ct_nw_proto=6"],
        &["zone=5", "ct_nw_proto=17"],
        &["", "ct_nw_proto=17"],
        &["zone=0", ""],
        // Of ICMP the addresses are a whole one, in which what is missing is 0.
        &[ICMP],
        &["zone=5", ICMP],
        &[&format!("{ICMP},icmp_id=7")],
        &[&format!("{ICMP},icmp_id=7,icmp_type=8")],
        &[&format!("{ICMP},icmp_id=7,icmp_type=8"), "icmp_id=7"],
        &[OTHER_END],
        &["zone=5", OTHER_END],
        &["ct_nw_src=10.0.0.2,ct_nw_dst=10.0.0.1,ct_nw_proto=1,icmp_id=7"],
        &["zone=6", OTHER_END],
        &["zone=6", &OTHER_END.replace("10.0.0.1", "10.9.9.9")],
        &["zone=6", WHOLE],
    ] {
        both.appctl_both("dpctl/flush-conntrack", &[]);
        for zone in ["0", "5", "6,nat(src=10.9.9.9)"] {
            both.rules("OpenFlow10", &[&format!("ip,actions=ct(commit,zone={zone})")]);
            both.same_fates("committed", &frames);
        }
        let [ours, stock] = both.appctl_both("dpctl/flush-conntrack", args);
        assert_eq!(ours, stock, "{args:?}");
        let [ours, stock] = both.appctl_both("dpctl/dump-conntrack", &[]);
        let sorted = |text: &str| -> Vec<String> {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ours), sorted(&stock), "{args:?}");
        left.push(ours.lines().count());
    }
    assert_eq!(left, [5, 3, 6, 5, 3, 4, 6, 6, 6, 5, 5, 5, 5, 5, 6, 6, 5]);
    for args in [&["foo"][..], &["zone=foo"], &["nosuch", "zone=1"], &["zone=1"]] {
        let [ours, stock] = both.appctl_both("dpctl/ct-get-limits", args);
        assert_eq!(ours, stock, "{args:?}");
    }
}

#[test]
fn connections_are_committed_behind_the_last_output_as_in_the_stock_switch() {
    let mut both = Both::start();
    let mut udp = udp();
    udp[6..8].fill(0);
    let frames = [("udp", ethernet(0x800, &ipv4(17, 0, 64, &udp)))];
    let mut committed = 0;
    for actions in [
        "output:2,ct(commit)",
        "output:2,output:3,ct(commit,zone=1,exec(set_field:1->ct_mark))",
        "ct(table=1,zone=5),ct(commit,zone=5)",
        "ct(table=1),output:2,ct(commit,zone=5)",
        "clone(ct(commit,zone=1),output:2),ct(commit,zone=2)",
        "output:2,ct(commit,zone=1),output:3,ct(commit,zone=2)",
        "controller,ct(commit,nat(src=10.9.9.9))",
        "ct(commit,nat(src=10.9.9.9),exec(set_field:1->ct_mark),nat(src=10.9.9.8))",
        "output:2,ct(zone=1)",
    ] {
        both.appctl_both("dpctl/flush-conntrack", &[]);
        both.rules("OpenFlow13", &[&format!("ip,actions={actions}"), "table=1,actions=output:3"]);
        // One way by a translation, the other by a cached flow.
        for _ in 0..2 {
            both.same_fates(actions, &frames);
        }
        let [ours, stock] = both.appctl_both("dpctl/dump-conntrack", &[]).map(|text| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        });
        assert_eq!(ours, stock, "{actions}");
        committed += ours.len();
    }
    assert_eq!(committed, 10);
}

#[test]
fn words_of_commands_are_taken_and_refused_as_by_the_stock_switch() {
    let mut both = Both::start();
    const PACKET: &str = "000000000002000000000001080045000014000000004011000000000000";
    const BROKEN: &str = "in_port(1),eth(src=00:00:00:00:00:01";
    both.rules("OpenFlow10", &["ct_state=+trk,ct_mark=5,ip,tun_dst=1.2.3.4,actions=output:2"]);
    for (command, args) in [
        ("dpctl/dump-conntrack", &["--foo"][..]),
        ("dpctl/dump-conntrack", &["-ms"]),
        ("dpctl/dump-conntrack", &["-mx"]),
        ("dpctl/ct-stats-show", &["-s"]),
        ("dpctl/ct-bkts", &["nosuch", "gt=5"]),
        ("dpctl/ct-set-maxconns", &["-5"]),
        ("dpctl/ipf-set-max-nfrags", &["-1"]),
        ("dpctl/del-flows", &["-x"]),
        ("ofproto/trace", &["br0", "in_port=1", "0000"]),
        ("ofproto/trace", &["br0", "in_port=1", "000"]),
        ("ofproto/trace", &[BROKEN]),
        ("ofproto/trace-packet-out", &["br0", "in_port=1,tcp", "group:9"]),
        ("ofproto/trace-packet-out", &["br0", "in_port=1,tcp", "meter:9"]),
        ("ofproto/trace-packet-out", &["br0", "in_port=1,tcp", "pop_mpls:0x800"]),
        // A flow says of a packet what its bytes do not.
        ("ofproto/trace", &["br0", "in_port=1,ct_state=trk,ct_mark=5,ct_zone=3,tun_id=7,pkt_mark=6", PACKET]),
        ("ofproto/trace", &["br0", "in_port=1,ct_state=trk,ct_mark=5,tun_dst=1.2.3.4", PACKET]),
        ("ofproto/trace", &["br0", "in_port=1,ct_state=trk,ct_mark=4,tun_id=7,reg3=5", PACKET]),
    ] {
        let [ours, stock] = both.appctl_both(command, args).map(|text| megaflowless(text.trim_end()));
        assert_eq!(ours, stock, "ours and the stock switch's: {command} {args:?}");
    }
}

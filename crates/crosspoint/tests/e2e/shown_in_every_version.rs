//! Rules that were added by one version of OpenFlow and are shown by another: the stock client reads all that
//! our switch says, and it is what the stock switch says.

use crate::actions_beside_stock::Both;

const VERSIONS: [&str; 6] =
    ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];

/// With the version that adds each.
const RULES: &[(&str, &str)] = &[
    ("OpenFlow15", "in_port=1,dl_vlan=7,actions=pop_vlan,push_vlan:0x88a8,set_field:4100->vlan_vid,output:2"),
    // A meter is an instruction in 1.3 and 1.4, an action in 1.5, and nothing before.
    ("OpenFlow13", "table=1,actions=meter:1,output:2"),
    ("OpenFlow15", "table=1,actions=meter:1,write_metadata:5/15,goto_table:3"),
    // Matches that `ofp_match` of OpenFlow 1.1 has no fields for.
    ("OpenFlow15", "table=2,tcp,tcp_flags=+syn-ack,actions=output:2"),
    (
        "OpenFlow15",
        "table=2,icmp6,icmp_type=135,nd_target=fe80::/64,actions=set_field:fe80::2->nd_target,output:2",
    ),
    ("OpenFlow15", "table=2,udp6,udp_dst=5,actions=output:2"),
    ("OpenFlow15", "table=2,ipv6,nw_tos=16,actions=output:2"),
    ("OpenFlow15", "table=2,sctp6,sctp_src=5,actions=output:2"),
    ("OpenFlow15", "table=2,tun_id=5,actions=output:2"),
    ("OpenFlow15", "table=2,ip,nw_frag=first,actions=NORMAL"),
    ("OpenFlow15", "table=2,packet_type=(1,0x800),actions=output:2"),
    ("OpenFlow15", "table=2,vlan_tci=0x1000/0x1000,actions=output:2"),
    ("OpenFlow10", "table=2,pkt_mark=3,reg0=5/15,xxreg2=0x123456789,metadata=3,actions=output:2"),
    ("OpenFlow10", "table=2,tcp,tp_dst=0x50/0xff0,actions=output:2"),
    // What pushes a tag where there is none.
    ("OpenFlow10", "table=3,actions=mod_vlan_vid:4,mod_vlan_pcp:3,output:2"),
    ("OpenFlow10", "table=3,actions=mod_vlan_pcp:3,mod_vlan_vid:4,output:2"),
    ("OpenFlow10", "table=3,dl_vlan=5,actions=mod_vlan_pcp:3,strip_vlan,mod_vlan_vid:4,output:2"),
    ("OpenFlow10", "table=3,actions=strip_vlan,mod_vlan_vid:4,mod_vlan_vid:5,output:2"),
    ("OpenFlow15", "table=3,arp,arp_op=1,actions=move:arp_sha->arp_tha,set_field:2->arp_op,IN_PORT"),
    (
        "OpenFlow15",
        "table=3,ip,actions=dec_ttl,ct(commit,zone=5,nat(src=1.2.3.4),exec(set_field:7->ct_mark)),resubmit(,3)",
    ),
    (
        "OpenFlow15",
        "table=3,actions=write_actions(group:1,push_vlan:0x8100,dec_ttl,set_queue:2),goto_table:4",
    ),
    ("OpenFlow15", "table=3,actions=clear_actions,write_actions(output:2),write_metadata:1,goto_table:4"),
];

#[test]
fn the_stock_client_reads_every_rule_in_every_version_as_it_reads_the_stock_switchs() {
    let both = Both::start();
    both.verdict(&["-O", "OpenFlow13", "add-meter", "br0", "meter=1,kbps,band=type=drop,rate=1000"]).unwrap();
    both.verdict(&["-O", "OpenFlow13", "add-group", "br0", "group_id=1,type=all,bucket=output:2"]).unwrap();
    let mut differences = String::new();
    for (of, rule) in RULES {
        both.rules(of, &[rule]);
        for version in VERSIONS {
            let said = both.texts(&["-O", version, "--no-stats", "dump-flows", "br0"]);
            if said[0] != said[1] {
                differences += &format!("{rule} by {of}, shown by {version}:\n{}{}", said[0], said[1]);
            }
        }
    }
    assert!(differences.is_empty(), "ours and the stock switch's:\n{differences}");
}

/// By Nicira's extension `write_metadata` may stand anywhere on the wire.
#[test]
fn instructions_out_of_order_are_refused_as_by_the_stock_switch() {
    let both = Both::start();
    for version in ["OpenFlow10", "OpenFlow11", "OpenFlow13"] {
        let add = |actions| both.verdict(&["-O", version, "add-flow", "br0", actions]);
        let refused = add("table=1,actions=write_metadata:5,goto_table:2");
        assert_eq!(refused.is_err(), version == "OpenFlow10", "it is a resubmit behind it: {refused:?}");
        add("table=1,in_port=1,actions=output:2,write_metadata:5").unwrap();
    }
}

/// OVN's load balancers choose so.
#[test]
fn groups_that_choose_by_a_method_are_taken_and_shown_as_by_the_stock_switch() {
    let both = Both::start();
    let methods = [
        "selection_method=hash",
        "selection_method=hash,fields(ip_src,tcp_dst)",
        "selection_method=hash,fields(eth_src,ip_src=255.0.255.0,ipv6_src=::ff,reg0)",
        "selection_method=dp_hash,selection_method_param=5",
        "selection_method=unheard_of",
    ];
    for (n, method) in methods.into_iter().enumerate() {
        for (of, kind) in [("OpenFlow15", "select"), ("OpenFlow10", "select"), ("OpenFlow15", "all")] {
            let weight = if kind == "select" { "weight:5," } else { "" };
            let group =
                format!("group_id={},type={kind},{method},bucket={weight}output:1,bucket=output:2", n + 1);
            let _ = both.verdict(&["-O", of, "del-groups", "br0"]);
            let _ = both.verdict(&["-O", of, "add-group", "br0", &group]);
            for version in ["OpenFlow10", "OpenFlow13", "OpenFlow15"] {
                let [ours, stock] = both.texts(&["-O", version, "dump-groups", "br0"]);
                assert_eq!(ours, stock, "ours and the stock switch's, by {version}: {group} by {of}");
            }
        }
    }
    both.verdict(&[
        "-O",
        "OpenFlow15",
        "add-group",
        "br0",
        "group_id=1,type=select,selection_method=hash,fields=ip_src,bucket=output:2",
    ])
    .unwrap();
}

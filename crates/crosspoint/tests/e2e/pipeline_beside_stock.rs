//! Steps of the pipeline beside the stock switch: conjunctive matches, packets by their length, lookups by
//! connection, network service headers, stacks of tags.

use crate::actions_beside_stock::{Both, ethernet, ipv4, udp};

/// An IPv4 packet from 10.0.0.`src` to 10.0.0.`dst`.
fn packet(src: u8, dst: u8) -> Vec<u8> {
    let mut packet = ipv4(17, 0, 64, &udp());
    (packet[15], packet[19]) = (src, dst);
    packet[10..12].fill(0);
    let sum = wire::checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    ethernet(0x800, &packet)
}

#[test]
fn conjunctions_choose_as_the_stock_switch_does_and_take_effect_with_the_next_packet() {
    let mut both = Both::start();
    let pairs = |both: &mut Both, what: &str| {
        for src in 0..5 {
            for dst in 0..5 {
                both.same_fates(what, &[(&format!("from {src} to {dst}"), packet(src, dst))]);
            }
        }
    };
    both.rules(
        "OpenFlow10",
        &[
            "conj_id=1,priority=2,actions=2",
            "conj_id=3,in_port=1,actions=3",
            "priority=50,ip,nw_src=10.0.0.1,actions=conjunction(1,1/2),note:01.02",
            "priority=50,ip,nw_src=10.0.0.2/31,actions=conjunction(1,1/2),conjunction(3,2/2)",
            "priority=50,ip,nw_dst=10.0.0.1,actions=conjunction(1,2/2)",
            "priority=50,ip,nw_dst=10.0.0.3,actions=conjunction(3,1/2)",
            "priority=40,ip,nw_src=10.0.0.1,actions=conjunction(3,2/2)",
            "priority=40,ip,nw_dst=10.0.0.4,actions=conjunction(3,1/2)",
            "priority=45,ip,nw_src=10.0.0.1,nw_dst=10.0.0.3,actions=2,3",
            "priority=30,ip,nw_dst=10.0.0.1,actions=3",
            "priority=1,actions=drop",
        ],
    );
    pairs(&mut both, "two conjunctions");
    let change = |both: &Both, command: &str, flow: &str| {
        both.verdict(&["-O", "OpenFlow10", command, "br0", flow]).unwrap();
    };
    change(&both, "add-flow", "priority=50,ip,nw_dst=10.0.0.2,actions=conjunction(1,2/2)");
    pairs(&mut both, "a clause is met in one way more");
    change(&both, "add-flow", "priority=50,ip,nw_src=10.0.0.1,actions=3");
    pairs(&mut both, "a plain rule takes the place of a clause");
    change(&both, "del-flows", "conj_id=3,in_port=1");
    pairs(&mut both, "nobody asks for a conjunction any more");
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow14"] {
        for actions in ["conjunction(1,1/2),note:01", "conjunction(1,2/64)"] {
            let flow = format!("ip,nw_src=10.9.9.9,actions={actions}");
            both.verdict(&["-O", version, "add-flow", "br0", &flow]).unwrap();
        }
    }
}

/// A recirculated packet carries all registers and metadata; `conj_id` is none of them, whatever they say.
#[test]
fn a_conjunction_s_rule_changes_for_tracked_packets_with_the_next_one() {
    let mut both = Both::start();
    both.rules(
        "OpenFlow10",
        &[
            "table=0,ip,actions=load:7->NXM_NX_REG0[],ct(table=1)",
            "table=1,priority=100,ip,nw_src=10.0.0.1,actions=conjunction(5,1/2)",
            "table=1,priority=100,ip,nw_dst=10.0.0.2,actions=conjunction(5,2/2)",
            "table=1,priority=90,ip,conj_id=5,actions=2",
        ],
    );
    let send = |both: &mut Both, what: &str| {
        for _ in 0..3 {
            both.same_fates(what, &[("from 1 to 2", packet(1, 2)), ("from 3 to 2", packet(3, 2))]);
        }
    };
    send(&mut both, "the conjunction's rule outputs");
    for (command, flow) in [
        ("mod-flows", "table=1,conj_id=5,actions=3"),
        ("del-flows", "table=1,conj_id=5"),
        ("add-flow", "table=1,priority=90,ip,conj_id=5,actions=2"),
    ] {
        both.verdict(&["-O", "OpenFlow10", command, "br0", flow]).unwrap();
        send(&mut both, command);
    }
}

/// Lists wait when a packet must be read or hashed again before they go on.
#[test]
fn what_waits_goes_on_in_its_own_list_as_in_the_stock_switch() {
    let mut both = Both::start();
    // An action that ends the action set early ends what waited behind it.
    both.rules("OpenFlow13", &["mpls,actions=write_actions(pop_mpls:0x0800,dec_ttl,output:2)"]);
    for ttl in [1, 2] {
        let mut inner = ipv4(17, 0, ttl, &udp());
        inner[10..12].fill(0);
        let sum = wire::checksum::checksum(&inner[..20]);
        inner[10..12].copy_from_slice(&sum.to_be_bytes());
        let labelled = [&[0, 1, 1, 64][..], &inner].concat();
        both.same_fates("a label before a TTL", &[("labelled", ethernet(0x8847, &labelled))]);
    }
    // A second wait, in a list below, leaves the outer list its own table.
    let groups = [(1, 2), (2, 20)].map(|(id, buckets)| {
        let bucket = ",bucket=actions=set_field:1->reg1";
        format!("group_id={id},type=select,selection_method=dp_hash{}", bucket.repeat(buckets))
    });
    for group in &groups {
        both.verdict(&["-O", "OpenFlow15", "add-group", "br0", group]).unwrap();
    }
    both.rules(
        "OpenFlow13",
        &[
            "table=0,in_port=1,actions=resubmit(,1),resubmit:7",
            "table=0,in_port=7,actions=output:3",
            "table=1,in_port=1,actions=group:1,group:2",
            "table=1,in_port=7,actions=output:2",
        ],
    );
    both.same_fates("two groups that need a hash", &[("from 1 to 2", packet(1, 2))]);
}

/// What `exec` reads of mark and label is what the packet has.
#[test]
fn a_connection_s_label_is_set_from_its_mark_as_by_the_stock_switch() {
    let mut both = Both::start();
    both.rules(
        "OpenFlow13",
        &[
            "table=0,ip,actions=ct(commit,zone=1,exec(load:5->NXM_NX_CT_MARK[])),ct(table=1,zone=1)",
            "table=1,ip,actions=ct(commit,zone=1,exec(move:NXM_NX_CT_MARK[0..15]->NXM_NX_CT_LABEL[0..15])),\
             ct(table=2,zone=1)",
            "table=2,priority=1,ip,ct_label=5,actions=output:2",
            "table=2,priority=0,actions=output:3",
        ],
    );
    // Without a checksum, which is not that of these addresses.
    let mut frame = packet(1, 2);
    frame[40..42].fill(0);
    for _ in 0..2 {
        both.same_fates("mark to label", &[("from 1 to 2", frame.clone())]);
    }
}

#[test]
fn packets_go_by_their_length_as_in_the_stock_switch() {
    let mut both = Both::start();
    let udp = packet(1, 2);
    let length = udp.len();
    let longer = |by: usize| {
        let mut frame = [udp.clone(), vec![0; by]].concat();
        frame[16..18].copy_from_slice(&((length - 14 + by) as u16).to_be_bytes());
        frame[24..26].fill(0);
        let sum = wire::checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let frames = || {
        let mut frames = vec![("as long as the limit", longer(0)), ("longer by one", longer(1))];
        frames.push(("much longer", longer(900)));
        frames.push(("longer by its padding", [udp.clone(), vec![0; 20]].concat()));
        frames
    };
    let check = format!("check_pkt_larger({length})->NXM_NX_REG0[0]");
    let larger = "table=1,priority=2,ip,reg0=1/1";
    for rules in [
        vec![
            format!("actions={check},resubmit(,1),mod_dl_src:02:00:00:00:00:07,3"),
            format!("{larger},actions=2"),
        ],
        vec![
            format!("actions=mod_dl_dst:02:00:00:00:00:01,{check},resubmit(,1)"),
            format!("{larger},actions=mod_nw_src:10.0.0.9,2,resubmit(,2)"),
            "table=1,actions=resubmit(,2)".to_string(),
            "table=2,actions=3".to_string(),
        ],
        // What has led to the list goes on with the packet as it was.
        vec![
            "actions=resubmit(,3),mod_nw_tos:8,2".to_string(),
            format!("table=3,actions={check},mod_nw_dst:10.0.0.77,resubmit(,1)"),
            format!("{larger},actions=3"),
        ],
        vec![format!("actions={check}")],
        vec![
            format!("actions={check},resubmit(,1)"),
            format!("{larger},actions=clone(dec_ttl,2),mod_vlan_vid:5,3"),
        ],
        // Frames that one rule makes longer.
        vec![format!("actions=mod_vlan_vid:5,{check},resubmit(,1)"), format!("{larger},actions=2,3")],
        vec![
            format!("actions={check},check_pkt_larger(500)->NXM_NX_REG0[1],resubmit(,1)"),
            "table=1,reg0=3/3,actions=2".to_string(),
            "table=1,reg0=1/3,actions=3".to_string(),
            "table=1,reg0=0/3,actions=2,3".to_string(),
        ],
    ] {
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        // The test's own marker goes through the same tables.
        both.rules("OpenFlow10", &rules);
        both.same_fates(&rules.join("; "), &frames());
    }
    for bad in ["check_pkt_larger(100)->NXM_NX_REG0[0..1]", "check_pkt_larger(100)->NXM_NX_CT_STATE[0]"] {
        let (ours, stock) =
            (both.ours(&["add-flow", "br0", &format!("actions={bad}")]), both.stock_says(bad));
        assert!(!ours.1 && !stock, "{bad}: {}", ours.0);
    }
}

/// A rule may say of the last label that another one follows.
#[test]
fn labels_are_popped_as_in_the_stock_switch_whatever_is_said_to_follow() {
    let mut both = Both::start();
    let frame = |eth_type: u16, labels: u32| {
        let entry = |n: u32| ((100 + n) << 12 | u32::from(n + 1 == labels) << 8 | 64).to_be_bytes();
        let stack: Vec<u8> = (0..labels).flat_map(entry).collect();
        ethernet(eth_type, &[stack, ipv4(17, 0, 64, &udp())].concat())
    };
    let frames = [
        ("one label", frame(0x8847, 1)),
        ("one of multicast", frame(0x8848, 1)),
        ("two labels", frame(0x8847, 2)),
        ("three labels", frame(0x8847, 3)),
    ];
    for actions in [
        "pop_mpls:0x8848,pop_mpls:0x800",
        "pop_mpls:0x8847,pop_mpls:0x8848,pop_mpls:0x800",
        "pop_mpls:0x8847,push_mpls:0x8847",
        "pop_mpls:0x8847,dec_mpls_ttl",
        "pop_mpls:0x8848,push_vlan:0x8100,pop_mpls:0x800",
        "pop_mpls:0x8848,resubmit(,1),resubmit(,2)",
        "pop_mpls:0x800",
        "pop_mpls:0x800,resubmit(,1)",
    ] {
        let rules = |eth_type| format!("dl_type={eth_type},actions={actions},2");
        let rules = [
            &rules(0x8847),
            &rules(0x8848),
            "table=1,mpls,actions=pop_mpls:0x800,3",
            "table=1,ip,actions=dec_ttl,3",
            "table=2,dl_type=0x8848,actions=3",
        ];
        both.rules("OpenFlow13", &rules);
        both.same_fates(actions, &frames);
    }
}

#[test]
fn a_resubmit_by_connection_looks_up_the_original_direction() {
    let mut both = Both::start();
    both.rules(
        "OpenFlow10",
        &[
            "table=0,priority=5,udp,actions=ct(table=1,zone=4)",
            "table=1,ct_state=+new,udp,actions=ct(commit,zone=4),resubmit(,2,ct)",
            "table=1,ct_state=+est,udp,actions=resubmit(,2),resubmit(,2,ct)",
            "table=2,priority=9,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=4660,actions=2",
            "table=2,priority=8,udp,nw_src=10.0.0.2,actions=3",
            "table=2,priority=7,ct_state=+est,ip,ct_nw_src=10.0.0.2,actions=2,3",
        ],
    );
    // Ports of the answer are the other way round.
    let mut answer = packet(2, 1);
    let ports: Vec<u8> = answer[34..38].to_vec();
    answer[34..36].copy_from_slice(&ports[2..]);
    answer[36..38].copy_from_slice(&ports[..2]);
    both.same_fates(
        "by connection",
        &[
            ("the first", packet(1, 2)),
            ("the answer", answer),
            ("another", packet(1, 2)),
            ("from 3", packet(3, 4)),
        ],
    );
}

/// A frame with a network service header and an IPv4 packet behind it.
fn nsh(ttl: u8, md_type: u8) -> Vec<u8> {
    let words: u16 = if md_type == 1 { 6 } else { 2 };
    let mut header = (u16::from(ttl) << 6 | words).to_be_bytes().to_vec();
    header.extend([md_type, 1, 0, 0x12, 0x34, 255]);
    if md_type == 1 {
        header.extend((1..=16).map(|byte| byte * 3));
    }
    ethernet(0x894f, &[header, ipv4(17, 0, 64, &udp())].concat())
}

#[test]
fn network_service_headers_are_changed_as_in_the_stock_switch() {
    let mut both = Both::start();
    let frames = [
        ("type 1", nsh(63, 1)),
        ("type 2", nsh(5, 2)),
        ("TTL 2", nsh(2, 1)),
        ("TTL 1", nsh(1, 1)),
        ("TTL 0", nsh(0, 1)),
        ("no such header", packet(1, 2)),
    ];
    let nsh = "dl_type=0x894f";
    for rules in [
        vec![format!(
            "{nsh},actions=set_field:2->nsh_flags,set_field:254->nsh_si,set_field:0x44332211->nsh_c1,2"
        )],
        vec![format!("{nsh},actions=set_field:0x123->nsh_spi,set_field:9->nsh_ttl,2,set_field:7->nsh_si,3")],
        vec![format!(
            "{nsh},nsh_mdtype=1,actions=set_field:1->nsh_c2,set_field:2->nsh_c3,set_field:3->nsh_c4,2"
        )],
        vec![format!("{nsh},actions=2,dec_nsh_ttl,3")],
        vec![format!("{nsh},actions=dec_nsh_ttl,dec_nsh_ttl,2"), "priority=1,actions=3".to_string()],
        // What the pipeline has set is what it matches.
        vec![
            format!("{nsh},actions=set_field:0xab->nsh_si,goto_table:1"),
            format!("table=1,{nsh},nsh_si=0xab,actions=clone(set_field:1->nsh_si,2),3"),
        ],
    ] {
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        both.rules("OpenFlow13", &rules);
        both.same_fates(&rules.join("; "), &frames);
    }
}

#[test]
fn rules_look_behind_one_tag_as_in_the_stock_switch() {
    let mut both = Both::start();
    let tagged = |tags: &[u16]| {
        let mut frame = packet(1, 2);
        for tag in tags.iter().rev() {
            frame.splice(12..12, [&[0x81, 0][..], &tag.to_be_bytes()].concat());
        }
        frame
    };
    let frames = || {
        vec![
            ("no tag", tagged(&[])),
            ("one tag", tagged(&[10])),
            ("two tags", tagged(&[10, 0x2014])),
            ("three tags", tagged(&[10, 20, 30])),
        ]
    };
    let rules: [&[&str]; 3] = [
        &["in_port=1,ip,actions=2", "in_port=1,dl_vlan=10,dl_type=0x8100,actions=3"],
        &["in_port=1,dl_vlan=10,actions=pop_vlan,2,pop_vlan,3"],
        &[
            "in_port=1,dl_vlan=10,actions=pop_vlan,resubmit(,1)",
            "table=1,ip,actions=dec_ttl,2",
            "table=1,actions=3",
        ],
    ];
    for rules in rules {
        both.rules("OpenFlow10", rules);
        both.same_fates(&format!("{rules:?}"), &frames());
    }
}

/// Rules for TCP to ports from 1 on, and those that they lead to.
const TRACED: [&str; 16] = [
    "tcp,tp_dst=1,actions=ct(table=1,zone=5)",
    "tcp,tp_dst=2,actions=clone(dec_ttl,output:2),write_actions(output:3),goto_table:6",
    "tcp,tp_dst=3,actions=clear_actions,write_actions(output:3),write_metadata:3",
    "tcp,tp_dst=4,actions=push_mpls:0x8847,set_field:5->mpls_label,dec_mpls_ttl,2",
    "tcp,tp_dst=5,actions=move:in_port[]->reg1[0..15],load:2->reg0[0..15],push:reg0[],pop:reg2[],output:reg2[0..15]",
    "tcp,tp_dst=6,actions=move:reg0[0..3]->reg1[4..7],push:tp_dst[],pop:reg3[0..15]",
    "tcp,tp_dst=7,actions=dec_ttl,dec_ttl,dec_ttl,2",
    "tcp,tp_dst=8,actions=output:1,IN_PORT",
    "tcp,tp_dst=9,actions=enqueue:2:3,set_queue:5,output:3,pop_queue,output:3",
    "tcp,tp_dst=10,actions=resubmit(,6),write_actions(set_field:7->ip_dscp,output:2)",
    "tcp,tp_dst=11,actions=bundle_load(eth_src,0,active_backup,ofport,reg0[0..15],members:2,3),output:reg0[0..15]",
    "mpls,actions=goto_table:4",
    "table=1,tcp,ct_state=+trk+new,actions=ct(commit,zone=5),output:2",
    "table=4,cookie=0x1200000000000012,mpls,actions=pop_mpls:0x0800,dec_ttl,set_field:9->reg1,output:2,goto_table:6",
    "table=6,actions=set_field:5->metadata,goto_table:7",
    "table=7,actions=resubmit(3,8)",
];

/// But for the megaflow, of which ours holds the bits that decided.
#[test]
fn traces_tell_of_each_step_what_those_of_the_stock_switch_tell() {
    let mut both = Both::start();
    both.rules("OpenFlow14", &TRACED);
    for port in 1..=11 {
        let packet = format!(
            "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=7,tp_dst={port},nw_ttl=2,\
             dl_src=50:00:00:00:00:01,dl_dst=50:00:00:00:00:02"
        );
        let [ours, stock] = both.appctl_both("ofproto/trace", &["br0", &packet]).map(|text| {
            let told = text.lines().filter(|line| !line.starts_with("Megaflow"));
            told.map(|line| without_numbers_of_rounds(line) + "\n").collect::<String>()
        });
        if port == 7 {
            // How its packet-in goes to the control thread is the switch's own affair.
            let steps = |text: &str| text.split("Datapath actions").next().unwrap_or_default().to_owned();
            assert_eq!(steps(&ours), steps(&stock), "ours and the stock switch's");
            continue;
        }
        assert_eq!(ours, stock, "ours and the stock switch's");
    }
}

/// A packet goes on behind a label with what was left of the list. (Of a cookie, the stock switch shows the
/// bytes in the order in which its machine has them.)
#[test]
fn traces_of_packets_that_go_on_tell_what_those_of_the_stock_switch_tell() {
    let mut both = Both::start();
    both.rules("OpenFlow14", &TRACED);
    let frozen = both.appctl_both("ofproto/trace", &["br0", "in_port=1,mpls,mpls_bos=1,mpls_ttl=9"]);
    let ids = frozen.map(|text| {
        let (_, id) = text.rsplit_once("recirc(").unwrap_or_else(|| panic!("no recirculation in {text}"));
        id.split(')').next().unwrap_or_default().to_owned()
    });
    let mut trace = |n: usize| {
        let packet = format!("recirc_id={},in_port=1,icmp,nw_ttl=8,nw_src=1.2.3.4", ids[n]);
        let text = both.appctl_both("ofproto/trace", &["br0", &packet])[n].clone();
        let told = text.lines().filter(|line| !line.starts_with("Megaflow"));
        told.map(|line| without_numbers_of_rounds(line) + "\n").collect::<String>()
    };
    assert_eq!(trace(0), trace(1), "ours and the stock switch's");
}

/// `recirc(0x5)` and `recirc_id=0x5` without the number, which each switch gives out as it likes.
fn without_numbers_of_rounds(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("recirc") {
        let from = rest[at..].find("0x").map_or(rest.len(), |hex| at + hex + 2);
        out += &rest[..from];
        rest = rest[from..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    out + rest
}

/// The lines of `dump-group-stats`, without durations.
fn group_statistics(both: &Both) -> [String; 2] {
    both.texts(&["-O", "OpenFlow15", "dump-group-stats", "br0"]).map(|text| {
        text.split(',').filter(|word| !word.starts_with("duration")).collect::<Vec<_>>().join(",")
    })
}

#[test]
fn counters_of_groups_go_on_and_begin_anew_as_in_the_stock_switch() {
    let mut both = Both::start();
    let frame = [("a packet", packet(1, 2))];
    let of = |command: &str, group: &str| ["-O", "OpenFlow15", command, "br0", group].map(str::to_owned);
    let steps = [
        of(
            "add-group",
            "group_id=1,type=all,bucket=bucket_id=1,actions=output:2,bucket=bucket_id=2,actions=output:3",
        ),
        of("insert-buckets", "group_id=1,command_bucket_id=1,bucket=bucket_id=7,actions=output:2"),
        of("remove-buckets", "group_id=1,command_bucket_id=1"),
        // A bucket of the same number is not the same bucket.
        of("insert-buckets", "group_id=1,command_bucket_id=last,bucket=bucket_id=1,actions=output:3"),
        of("mod-group", "group_id=1,type=all,bucket=bucket_id=2,actions=output:3"),
        of("remove-buckets", "group_id=1,command_bucket_id=all"),
    ];
    for (n, step) in steps.iter().enumerate() {
        let step: Vec<&str> = step.iter().map(String::as_str).collect();
        both.verdict(&step).unwrap();
        if n == 0 {
            both.rules("OpenFlow13", &["in_port=1,ip,actions=group:1"]);
        }
        both.same_fates(step[4], &frame);
        both.appctl_both("revalidator/purge", &[]);
        let [ours, stock] = group_statistics(&both);
        assert_eq!(ours, stock, "{step:?}");
    }
}

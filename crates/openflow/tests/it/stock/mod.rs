//! The stock `ovs-ofctl` as an independent reader and writer of the protocol.
//!
//! What it sends is decoded and encoded again here, and must read the same to it; its commands run against a
//! small switch on this crate's [`Connection`], and must print what that switch says. Needs
//! /usr/bin/ovs-ofctl (Debian's openvswitch-switch, or its openvswitch-common).

mod commands;
mod switch;

use openflow::{Codec, Header, Message, Version};
use std::path::{Path, PathBuf};
use std::process::Command;
use switch::Switch;

/// A directory of the test's own, removed at its end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("openflow-stock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Output and errors of `ovs-ofctl`, and whether it succeeded.
fn ofctl(args: &[&str]) -> (bool, String) {
    let output = Command::new("/usr/bin/ovs-ofctl")
        .arg("--timeout=10")
        // Its log goes without times, so that two runs say the same.
        .arg("--verbose=PATTERN:console:%c|%p|%m")
        .args(args)
        .output()
        .expect("/usr/bin/ovs-ofctl, of the package openvswitch-switch, is needed");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn ofctl_ok(args: &[&str]) -> String {
    let (ok, text) = ofctl(args);
    assert!(ok, "ovs-ofctl {args:?}: {text}");
    text
}

/// What `ovs-ofctl` says of messages.
fn read_by_stock(dir: &Path, messages: &[Vec<u8>]) -> Vec<String> {
    let file = dir.join("messages");
    std::fs::write(&file, messages.concat()).unwrap();
    let text = ofctl_ok(&["ofp-parse", file.to_str().unwrap()]);
    // Each begins with its type; further lines of one are indented or empty.
    let mut parts: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("OFP") || line.starts_with("NX") || line.starts_with("ONF") || parts.is_empty() {
            parts.push(String::new());
        }
        let part = parts.last_mut().unwrap();
        part.push_str(line);
        part.push('\n');
    }
    parts
}

const MATCHES: &[&str] = &[
    "",
    "in_port=1",
    "in_port=LOCAL,priority=0",
    "table=3,cookie=0x1234,idle_timeout=5,hard_timeout=6,send_flow_rem,in_port=2",
    "dl_src=00:01:02:03:04:05,dl_dst=ff:ff:ff:ff:ff:ff",
    "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
    "dl_vlan=5,dl_vlan_pcp=3",
    "dl_vlan=5",
    "dl_vlan_pcp=3",
    "dl_vlan=0xffff",
    "vlan_tci=0x1005/0x1fff",
    "vlan_tci=0x1000/0x1000",
    "vlan_tci=0",
    "dl_type=0x1234",
    "ip,nw_src=10.0.0.1,nw_dst=10.0.0.0/8,nw_tos=32,nw_ttl=64,nw_ecn=2",
    "ip,nw_src=10.0.0.1/255.0.0.255",
    "ip,nw_proto=47,ip_frag=yes",
    "ip,ip_frag=not_later",
    "tcp,tp_src=80,tp_dst=0x1000/0xff00,tcp_flags=+syn-ack",
    "udp,tp_dst=53",
    "sctp,tp_src=1,tp_dst=2",
    "icmp,icmp_type=8,icmp_code=0",
    "ipv6,ipv6_src=fd00::1,ipv6_dst=fd00::/16,ipv6_label=0x12345",
    "icmp6,icmp_type=1,icmp_code=2",
    "icmp6,icmp_type=135,nd_target=fd00::1,nd_sll=00:01:02:03:04:05",
    "icmp6,icmp_type=136,nd_target=fd00::/64,nd_tll=00:01:02:03:04:05",
    "icmp6,icmp_type=136,icmp_code=0,nd_reserved=3,nd_options_type=2",
    "tcp6,tp_dst=443",
    "arp,arp_op=2,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_sha=00:01:02:03:04:05,arp_tha=00:01:02:03:04:06",
    "rarp,arp_op=3",
    "mpls,mpls_label=5,mpls_tc=3,mpls_bos=1,mpls_ttl=9",
    "reg0=1,reg7=0x10/0xf0,reg15=3",
    "xreg1=0x1234567890abcdef",
    "xxreg0=0x1/0xff",
    "metadata=5/7,tun_id=3,pkt_mark=4",
    "tun_src=1.2.3.4,tun_dst=1.2.3.0/24,tun_flags=+oam",
    "tun_ipv6_src=fd00::1,tun_ipv6_dst=fd00::2",
    "tun_gbp_id=3,tun_gbp_flags=1",
    "tun_erspan_ver=1,tun_erspan_idx=0x5",
    "tun_erspan_dir=1,tun_erspan_hwid=3",
    "ct_state=+trk-new,ct_zone=3,ct_mark=4,ct_label=5,ip",
    "ct_state=+trk+est,ip,ct_nw_src=1.2.3.4,ct_nw_dst=1.2.3.5,ct_nw_proto=6,ct_tp_src=1,ct_tp_dst=2",
    "ct_state=+trk+est,ipv6,ct_ipv6_src=fd00::1,ct_ipv6_dst=fd00::2",
    "conj_id=5",
    "dp_hash=0x3/0xff",
    "recirc_id=0",
    "packet_type=(1,0x800)",
    "packet_type=(1,0x894f),nsh_spi=3,nsh_si=4,nsh_mdtype=1,nsh_np=3,nsh_flags=1,nsh_ttl=5,nsh_c1=1,nsh_c4=4",
    "actset_output=3",
];

/// (match that the actions need, actions, in 1.0, in 1.3).
const ACTIONS: &[(&str, &str, bool, bool)] = &[
    ("", "drop", true, true),
    ("", "output:1,LOCAL,IN_PORT,NORMAL,FLOOD,ALL,CONTROLLER:128", true, true),
    ("", "enqueue:1:2", true, true),
    (
        "ip",
        "mod_dl_src:00:01:02:03:04:05,mod_dl_dst:00:01:02:03:04:06,mod_nw_src:1.2.3.4,mod_nw_dst:1.2.3.5",
        true,
        true,
    ),
    ("tcp", "mod_nw_tos:32,mod_nw_ecn:2,mod_nw_ttl:3,mod_tp_src:4,mod_tp_dst:5,1", true, true),
    ("udp", "mod_tp_src:4,mod_tp_dst:5,1", true, true),
    ("", "mod_vlan_vid:3,1,strip_vlan,2", true, false),
    ("", "mod_vlan_vid:3,mod_vlan_pcp:5,1", true, false),
    ("", "push_vlan:0x88a8,set_field:4099->vlan_vid,set_field:3->vlan_pcp,pop_vlan,1", false, true),
    ("tcp", "resubmit:3,resubmit(1,2),resubmit(,4)", true, true),
    ("tcp,ct_state=+trk-inv", "resubmit(,2,ct)", true, true),
    ("", "set_tunnel:5,set_tunnel64:6,set_queue:3,pop_queue", true, true),
    ("", "move:NXM_NX_REG0[0..5]->NXM_NX_REG1[3..8],move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]", true, true),
    ("", "move:NXOXM_ET_ERSPAN_VER[]->NXM_NX_REG1[0..3]", true, true),
    ("", "load:5->NXM_NX_REG3[1..10],load:0x1->OXM_OF_METADATA[],load:1->NXOXM_ET_ERSPAN_VER[0]", true, true),
    ("", "note:01.02.03,note:01.02.03.04.05.06.07.08", true, true),
    (
        "",
        "output:NXM_NX_REG3[0..15],output:NXM_NX_DP_HASH[0..15],output:NXOXM_ET_ERSPAN_IDX[0..15]",
        true,
        true,
    ),
    ("", "exit", true, true),
    ("ip", "dec_ttl,dec_ttl(1,2)", true, true),
    ("tcp", "fin_timeout(idle_timeout=3,hard_timeout=4)", true, true),
    ("", "controller(reason=invalid_ttl,max_len=100,id=3),controller(userdata=01.02,pause)", true, true),
    ("", "controller(userdata=01.02.03.04.05,max_len=3,reason=no_match,id=7,meter_id=9)", true, true),
    ("", "write_metadata:5/7", true, true),
    ("ip", "push_mpls:0x8847,set_field:5->mpls_label,pop_mpls:0x800", true, true),
    ("mpls", "set_mpls_ttl(3),set_mpls_label(4),set_mpls_tc(2),dec_mpls_ttl", true, true),
    ("", "push:NXM_NX_REG3[1..5],pop:NXM_NX_REG3[1..5],push:NXOXM_ET_ERSPAN_VER[]", true, true),
    ("", "sample(probability=3,collector_set_id=4,obs_domain_id=5,obs_point_id=6)", true, true),
    (
        "",
        "sample(probability=3,collector_set_id=4,obs_domain_id=5,obs_point_id=6,sampling_port=1)",
        true,
        true,
    ),
    (
        "",
        "sample(probability=3,collector_set_id=4,obs_domain_id=5,obs_point_id=6,sampling_port=1,egress)",
        true,
        true,
    ),
    ("ip", "set_field:1.2.3.4->nw_src,set_field:00:01:02:03:04:05->eth_src,set_field:3->reg1", true, true),
    (
        "ipv6",
        "set_field:fd00::1->ipv6_src,set_field:fd00::/ffff::->ipv6_dst,set_field:0x12345->ipv6_label",
        true,
        true,
    ),
    (
        "arp",
        "set_field:1->arp_op,set_field:1.2.3.4->arp_spa,set_field:00:01:02:03:04:05->arp_sha",
        true,
        true,
    ),
    (
        "",
        "set_field:3/7->reg1,set_field:0xf0f/0xf0f->metadata,set_field:5->xxreg1,set_field:1->tun_erspan_ver",
        true,
        true,
    ),
    ("", "conjunction(3,1/2),conjunction(3,2/2)", true, true),
    ("", "output(port=1,max_len=100)", true, true),
    ("", "clone(output:1,clone(set_field:1->reg0,2)),3", true, true),
    ("", "ct_clear", true, true),
    ("", "check_pkt_larger(1400)->NXM_NX_REG0[3],1", true, true),
    ("", "goto_table:30", true, true),
    ("", "group:5", true, true),
    (
        "",
        "meter:3,1,clear_actions,write_actions(output:1,set_field:3->reg1),write_metadata:1,goto_table:30",
        false,
        true,
    ),
    ("packet_type=(1,0x894f)", "dec_nsh_ttl", false, true),
    (
        "",
        "learn(table=1,hard_timeout=10,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
         output:NXM_OF_IN_PORT[])",
        true,
        true,
    ),
    (
        "",
        "learn(table=7,idle_timeout=1,hard_timeout=2,fin_idle_timeout=3,fin_hard_timeout=4,priority=5,cookie=0x123,\
         send_flow_rem,delete_learned,limit=9,result_dst=reg0[3],in_port=99,reg1[3..7]=5,metadata=0xff,\
         load:NXM_OF_IN_PORT[]->NXM_NX_REG1[16..31],load:0x12->NXM_NX_REG2[0..7])",
        true,
        true,
    ),
    (
        "tcp",
        "learn(table=2,eth_type=0x800,ip_proto=6,ip_src=10.1.2.3,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],\
         NXM_OF_TCP_DST[]=NXM_OF_TCP_SRC[],load:5->NXM_OF_ETH_SRC[])",
        true,
        true,
    ),
    ("", "learn(eth_type=0x86dd,ipv6_src=fd00::1,limit=1,load:1->NXM_NX_REG0[])", true, true),
    (
        "",
        "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[]),multipath(symmetric_l4,3,hrw,4,5,reg1[0..2])",
        true,
        true,
    ),
    (
        "",
        "multipath(symmetric_l3l4+udp,1024,hash_threshold,7,0,reg0[3..10]),multipath(nw_src,2,iter_hash,9,9,reg7[])",
        true,
        true,
    ),
    (
        "",
        "bundle(symmetric_l4,0,hrw,ofport,members:4,8),bundle(eth_src,0,active_backup,ofport,members:)",
        true,
        true,
    ),
    ("", "bundle_load(nw_dst,60,hrw,ofport,NXM_NX_REG1[0..15],slaves:1,2,3,LOCAL)", true, true),
    (
        "",
        "encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210))),encap(ethernet)",
        false,
        true,
    ),
    ("", "encap(nsh(md_type=1)),encap(mpls),decap(),decap(packet_type(ns=1,type=0x894f))", false, true),
];

fn flows(version: Version) -> String {
    let mut text = String::new();
    for m in MATCHES {
        text += &format!("{m}{}actions=1\n", if m.is_empty() { "" } else { "," });
    }
    for (m, actions, v10, v13) in ACTIONS {
        if if version == Version::V10 { *v10 } else { *v13 } {
            text += &format!("{m}{}actions={actions}\n", if m.is_empty() { "" } else { "," });
        }
    }
    text
}

/// The flow-mods that stock `ovs-ofctl` sends for a file of flows.
fn flow_mods(dir: &TempDir, version: Version, command: &str, flows: &str) -> Vec<Vec<u8>> {
    let switch = Switch::start(dir.join("mgmt"), version);
    let file = dir.join("flows");
    std::fs::write(&file, flows).unwrap();
    ofctl_ok(&["-O", version.name(), command, &switch.target(), file.to_str().unwrap()]);
    switch.stop().flow_mods
}

#[test]
fn flow_mods_of_the_stock_client_are_read_and_written_so_that_it_reads_the_same() {
    for version in [Version::V10, Version::V13] {
        let dir = TempDir::new(&format!("flow-mods-{version}"));
        let sent = flow_mods(&dir, version, "add-flows", &flows(version));
        assert_eq!(sent.len(), flows(version).lines().count());
        // The file has tables in it, so the client asked for them in OpenFlow 1.0 too.
        let codec = Codec { version, flow_mod_table_id: version == Version::V10 };
        let again: Vec<_> = sent.iter().map(|bytes| again(&codec, bytes)).collect();
        let (theirs, ours) = (read_by_stock(&dir.0, &sent), read_by_stock(&dir.0, &again));
        assert_eq!(theirs.len(), sent.len());
        for (i, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            assert_eq!(theirs, ours, "sent {:02x?}\nours {:02x?}", sent[i], again[i]);
        }
    }
}

/// Decodes and encodes.
fn again(codec: &Codec, bytes: &[u8]) -> Vec<u8> {
    let (xid, message) = codec.decode(bytes).unwrap_or_else(|e| panic!("{e}: {bytes:02x?}"));
    codec.encode(xid, &message).unwrap()
}

#[test]
fn commands_other_than_add_are_read_and_written_so_that_the_stock_client_reads_the_same() {
    let flows = "delete table=2,ip,out_port=3\n\
        delete_strict priority=5,in_port=1\n\
        modify cookie=5/-1,ip,actions=2\n\
        modify_strict priority=7,udp,actions=3\n\
        delete cookie=0x10/0xf0\n\
        add check_overlap,in_port=1,actions=2\n";
    for version in [Version::V10, Version::V13] {
        let dir = TempDir::new(&format!("commands-{version}"));
        let sent = flow_mods(&dir, version, "add-flows", flows);
        assert_eq!(sent.len(), 6);
        let codec = Codec { version, flow_mod_table_id: version == Version::V10 };
        let decode = |bytes: &Vec<u8>| match codec.decode(bytes).unwrap() {
            (_, Message::FlowMod(flow_mod)) => flow_mod,
            (_, other) => panic!("{other:?}"),
        };
        assert_eq!(decode(&sent[0]).table_id, 2);
        assert_eq!(decode(&sent[0]).out_port, Some(base::OfPort(3)));
        assert_eq!((decode(&sent[2]).cookie, decode(&sent[2]).cookie_mask), (5, u64::MAX));
        assert_eq!(decode(&sent[2]).new_cookie, None);
        assert_eq!(decode(&sent[4]).cookie_mask, 0xf0);
        let again: Vec<_> = sent.iter().map(|bytes| again(&codec, bytes)).collect();
        assert_eq!(read_by_stock(&dir.0, &sent), read_by_stock(&dir.0, &again));
    }
}

#[test]
fn bytes_of_the_stock_client_are_as_expected() {
    let dir = TempDir::new("literal");
    let sent =
        flow_mods(&dir, Version::V10, "add-flows", "in_port=1,eth_type(0x800),nw_src=10.0.0.1,action=2\n");
    let expected =
        "0038 20ee 0001 000000000000 000000000000 0000 00 00 0800 00 00 0000 0a000001 00000000 0000 0000";
    let hex: String = sent[0][8..48].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, expected.replace(' ', "").replace("003820ee", "003800ee"));
    assert_eq!(Header::parse(&sent[0]).unwrap().length, 80);
    assert_eq!(sent[0][72..], [0, 0, 0, 8, 0, 2, 0, 0]);
}

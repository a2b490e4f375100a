//! Commands that read matches as messages have them, beside the stock client's.

use super::{masked, ours};
use std::io::Write;
use std::process::{Command, Stdio};

/// What a client says to lines on its standard input.
fn said(mut client: Command, words: &[&str], input: &str) -> String {
    client.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = client.spawn().unwrap();
    // Whoever refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    masked(&child.wait_with_output().unwrap())
}

#[track_caller]
fn same(words: &[&str], input: &str) -> String {
    let stock = said(Command::new("ovs-ofctl"), words, input);
    assert_eq!(said(ours(), words, input), stock, "{words:?}\n{input}");
    stock
}

const ENTRIES: &str = "# What may stand between entries.

<any>
  NXM_OF_ETH_TYPE(0800) ,NXM_OF_IN_PORT(0003),  # the order is ours
# Prerequisites, values and masks.
NXM_OF_TCP_SRC(1234)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_PROTO(06) NXM_OF_TCP_SRC_W(1200/ff00) NXM_NX_TCP_FLAGS(0fff)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_TOS(07)
NXM_OF_ETH_TYPE(86dd) NXM_NX_IPV6_SRC_W(fd000000000000000000000000000000/ffff0000000000000000000000000000)
NXM_OF_ETH_SRC_W(0a0b0c0d0e0f/ffff00000000)
NXM_OF_ETH_SRC(0a0b0c0d0e0f) NXM_OF_ETH_SRC(0a0b0c0d0e0f)
NXM_OF_VLAN_TCI_W(1005/1fff) NXM_NX_REG3_W(00000700/00000f00) NXM_NX_TUN_ID(0000000000000007)
NXM_OF_ETH_TYPE(0800) NXM_NX_CT_STATE(00000021) NXM_NX_CT_ZONE(0007)
NXM_NX_DP_HASH(01020304)
OXM_OF_METADATA_W(00000000000000aa/00000000000000ff), OXM_OF_PKT_REG1(1122334455667788)
NXM_OF_IN_PORT(0001) 02030404(01020304)
NXM_OF_IN_PORT(0001) ffff02080000abcd(11112222)
";

#[test]
fn entries_come_back_as_from_the_stock_client() {
    // Without --strict the stock client leaves out entries whose prerequisites lack, too; we refuse them.
    let refused = |line: &&str| line.starts_with("NXM_OF_TCP_SRC");
    let loose: String =
        ENTRIES.lines().filter(|line| !refused(line)).map(|line| format!("{line}\n")).collect();
    for (strict, input) in [(&["--strict"][..], ENTRIES), (&[], loose.as_str())] {
        let words = |command: &[&'static str]| [strict, command].concat();
        let nxm = same(&words(&["parse-nxm"]), input);
        assert_eq!(nxm, same(&words(&["parse-nx-match"]), input));
        assert_eq!(nxm.contains("OFPBMC_BAD_FIELD"), !strict.is_empty(), "{nxm}");
        assert_eq!(nxm.contains("OFPBMC_BAD_PREREQ"), !strict.is_empty(), "{nxm}");
        assert!(nxm.contains("OFPBMC_BAD_VALUE") && nxm.contains("OFPBMC_DUP_FIELD"), "{nxm}");
        for version in ["OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
            same(&words(&["-m", "parse-oxm", version]), input);
        }
    }
    same(&["-m", "parse-nxm"], "NXM_OF_IN_PORT(0001) NXM_NX_COOKIE_W(00000000000000aa/00000000000000ff)\n");
    for wrong in [
        "NXM_OF_IN_PORT",
        "NXM_OF_IN_PORT(0001",
        "FOO(12)",
        "1234(22)",
        "NXM_OF_IN_PORT(000102)",
        "NXM_OF_IN_PORT(zz)",
        "NXM_NX_COOKIE(11)",
        "01020304(11/33)",
        "ffff020800002320(11)",
        "NXM_OF_IP_SRC_W(c0a80000/ff)",
        "NXM_OF_IP_SRC_W(c0a80000/ffff000000)",
        "NXM_OF_IP_SRC_W(c0a80000)",
        "NXM_OF_IP_SRC(c0a80000/ffff0000)",
        "NXM_OF_IN_PORT(0001) NXM_OF_ETH_TYPE(0800zz)",
    ] {
        same(&["parse-nxm"], &format!("{wrong}\n"));
    }
    same(&["parse-nxm"], "NXM_OF_ETH_TYPE( 08 00 )\n");
    for version in ["OpenFlow10", "OpenFlow11", "7"] {
        same(&["parse-oxm", version], "");
    }
}

#[test]
fn fixed_matches_come_back_as_from_the_stock_client() {
    let match10 = "\
003820fe 0003 xxxxxxxxxxxx xxxxxxxxxxxx xxxx xx xx xxxx xx xx xxxx xxxxxxxx xxxxxxxx xxxx xxxx
# No tag.
003820fd xxxx xxxxxxxxxxxx xxxxxxxxxxxx ffff xx xx xxxx xx xx xxxx xxxxxxxx xxxxxxxx xxxx xxxx
# TCP to a network, and ports without a protocol.
0034204f xxxx xxxxxxxxxxxx xxxxxxxxxxxx xxxx xx xx 0800 xx 06 xxxx xxxxxxxx c0a80000 xxxx 0050
0038207f xxxx xxxxxxxxxxxx xxxxxxxxxxxx xxxx xx xx xxxx xx xx xxxx xxxxxxxx xxxxxxxx xxxx 0050
";
    let said = same(&["parse-ofp10-match"], match10);
    assert!(said.contains("normal: "), "{said}");
    let tail = "00000000 00 000000 0000000000000000ffffffffffffffff";
    let addresses = "000000000000ffffffffffff 000000000000ffffffffffff";
    let match11 = format!(
        "0000 0058 fffffffe 000003fe {addresses} 0000 00 00 0000 00 00 \
         00000000ffffffff 00000000ffffffff 0000 0000 {tail}\n\
         # A port that does not exist, and a TOS with bits of the ECN.\n\
         0000 0058 00100000 000003fe {addresses} 0000 00 00 0000 00 00 \
         00000000ffffffff 00000000ffffffff 0000 0000 {tail}\n\
         0000 0058 00000000 000003e7 {addresses} 0000 00 00 0800 07 00 \
         00000000ffffffff 00000000ffffffff 0000 0000 {tail}\n"
    );
    let said = same(&["parse-ofp11-match"], &match11);
    assert!(said.contains("bad ofp11_match: OFPBMC_BAD_VALUE"), "{said}");
    same(&["parse-ofp10-match"], "00\n");
    same(&["parse-ofp11-match"], "0000\n");
}

#[test]
fn tags_come_back_as_from_the_stock_client() {
    for tag in ["0 0", "0 ffff", "1005 1fff", "7000 f000", "3005 ffff", "0 0fff", "0 1000", "1001 1001"] {
        let words: Vec<&str> = std::iter::once("check-vlan").chain(tag.split(' ')).collect();
        same(&words, "");
    }
}

/// Of a file full of the same mistake as many are explained as the stock client explains, and no more.
#[test]
fn what_normalization_changed_is_explained_for_the_first_matches() {
    let matches =
        "0038207f xxxx xxxxxxxxxxxx xxxxxxxxxxxx xxxx xx xx xxxx xx xx xxxx xxxxxxxx xxxxxxxx xxxx 0050\n";
    let explained = |mut command: Command| {
        let mut child = command
            .arg("parse-ofp10-match")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(matches.repeat(9).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stderr).unwrap().matches("normalization changed").count()
    };
    assert_eq!(explained(Command::new("ovs-ofctl")), 5);
    assert_eq!(explained(ours()), 5);
}

/// What a flow says of a transport that it does not match is explained as by the stock client.
#[test]
fn what_normalization_left_out_is_named_as_by_the_stock_client() {
    let named = |mut command: Command, flow: &str| {
        let said = command.args(["parse-flow", &format!("{flow},actions=drop")]).output().unwrap();
        let said = String::from_utf8(said.stderr).unwrap();
        said.lines().find_map(|line| line.split_once(" pre: ")).map(|(_, before)| before.to_owned())
    };
    for flow in [
        "icmp_type=8",
        "icmp_type=8,icmp_code=1",
        "icmpv6_type=135",
        "ip,icmp_code=3",
        "tp_src=80",
        "tp_src=0x50/0xf0",
        "ip,tp_dst=3",
        "tcp_flags=+syn,nw_src=1.2.3.4",
    ] {
        let before = named(ours(), flow);
        assert!(before.is_some(), "{flow}");
        assert_eq!(before, named(Command::new("ovs-ofctl"), flow), "{flow}");
    }
    // Flags alone are left out without a word.
    for flow in ["tcp_flags=+syn", "ip,tcp_flags=+syn", "udp,tcp_flags=2"] {
        assert_eq!([named(ours(), flow), named(Command::new("ovs-ofctl"), flow)], [None, None], "{flow}");
    }
}

/// Flows of each protocol, with the fields that a frame of it has.
const PROTOCOLS: &[&str] = &[
    "",
    "dl_type=0x1234",
    "dl_type=0x05ff",
    "arp,arp_op=2,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_sha=02:00:00:00:00:01,arp_tha=02:00:00:00:00:02",
    "rarp,arp_op=1,arp_sha=02:00:00:00:00:01",
    "mpls,mpls_label=77,mpls_tc=3,mpls_ttl=9,mpls_bos=1",
    "mplsm,mpls_label=0xfffff",
    "ip,nw_proto=99,nw_src=10.0.0.1",
    "ip,nw_frag=later,nw_proto=17,nw_dst=10.0.0.2",
    "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=1,tcp_dst=65535",
    "tcp,tcp_flags=syn|ack",
    "tcp,tcp_flags=0xff8",
    "udp,nw_tos=184,nw_ecn=3,nw_ttl=255,udp_src=7,udp_dst=8",
    "sctp,nw_frag=later,nw_dst=255.255.255.255",
    "icmp,icmp_type=8",
    "icmp,icmp_type=8,icmp_code=1",
    "icmp,icmp_type=3,icmp_code=4",
    "ipv6,nw_proto=50,ipv6_src=fe80::1,ipv6_label=0xabcde",
    "tcp6,ipv6_src=fe80::1,ipv6_dst=ff02::1,nw_tos=8,nw_ecn=1,nw_ttl=64,tcp_dst=80",
    "udp6,ipv6_dst=::1",
    "icmp6,icmpv6_type=129",
    "icmp6,icmpv6_type=1,icmpv6_code=3",
    "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::7",
    "icmp6,icmpv6_type=136,icmpv6_code=1",
];

#[test]
fn packets_are_composed_as_by_the_stock_client() {
    for protocol in PROTOCOLS {
        for link in [
            "dl_src=50:54:00:00:00:05",
            "dl_dst=ff:ff:ff:ff:ff:ff,dl_vlan=9,dl_vlan_pcp=5",
            "vlan_tci=0x1fff",
        ] {
            let flow = format!("{link},{protocol}");
            for payload in [&[][..], &["00"], &["de ad be ef"], &["xyz"]] {
                same(&[&["compose-packet", &flow], payload].concat(), "");
            }
        }
    }
    // What a frame cannot say is named, and what is no flow is refused.
    for flow in
        ["in_port=3", "tun_id=5,udp", "udp,tcp", "nonesuch=3", "tcp,nw_src=10.0.0.0/8", "udp,tp_src=1"]
    {
        same(&["compose-packet", flow], "");
    }
    same(&["compose-packet"], "");
    // The stock client takes an option of neighbour discovery for a difference, and gives SCTP no checksum.
    let nd = "icmp6,icmpv6_type=136,icmpv6_code=0,nd_target=::1,nd_tll=02:00:00:00:00:01";
    for (flow, is_same) in [(nd, 6), ("sctp,nw_dst=255.255.255.255,sctp_src=9", 2)] {
        let lines = |client: Command| -> Vec<String> {
            said(client, &["compose-packet", flow], "").lines().take(is_same).map(str::to_string).collect()
        };
        assert_eq!(lines(ours()), lines(Command::new("ovs-ofctl")), "{flow}");
    }
}

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
    for wrong in ["NXM_OF_IN_PORT\n", "NXM_OF_IN_PORT(0001\n", "FOO(12)\n", "1234(22)\n"] {
        same(&["parse-nxm"], wrong);
    }
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

//! The stock `ovs-ofctl parse-pcap` prints the flow of each packet of a file: Open vSwitch's own extraction,
//! of which ours must be the equal. Every field that it prints is compared.

use crate::extract::packets::{self, Random};
use crate::extract::{hex, ingress};
use flow::{Depth, FieldId, Key, extract};
use std::collections::HashSet;
use std::process::Command;

const FLAG_NAMES: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

/// A pcap file with the frames, nanoseconds and addresses being of no interest.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65535, 1] {
        out.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = frame.len() as u32;
        for word in [0, 0, len, len] {
            out.extend(word.to_le_bytes());
        }
        out.extend(frame);
    }
    out
}

#[test]
fn the_stock_ovs_ofctl_reads_the_same_fields() {
    let count = testkit::cases("flow::extract_agrees_with_ovs_ofctl", 30_000);
    let mut rng = Random(7 << 40);
    let frames: Vec<Vec<u8>> =
        (0..count).map(|_| packets::any(&mut rng)).filter(|frame| frame.len() >= 14).collect();
    let file = std::env::temp_dir().join(format!("flow-extract-{}.pcap", std::process::id()));
    std::fs::write(&file, pcap(&frames)).unwrap();
    let output = Command::new("ovs-ofctl")
        .arg("parse-pcap")
        .arg(&file)
        .output()
        .expect("ovs-ofctl is installed (package openvswitch-common)");
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), frames.len(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut key = Key::default();
    let mut compared = HashSet::new();
    for (frame, line) in frames.iter().zip(lines) {
        extract(frame, frame.len(), &ingress(Depth::Everything), &mut key).unwrap();
        for item in line.split(',').filter(|item| !item.starts_with("in_port=")) {
            if let Err(ours) = compare(&key, item, line) {
                panic!("{}: {item}, ours {ours}\nin {line}", hex(frame));
            }
            compared.insert(item.split('=').next().unwrap().to_owned());
        }
    }
    for name in ["tp_src", "tcp_flags", "nd_tll", "mpls_lse2", "nsh_c4", "arp_tha", "dl_vlan1", "ipv6_label"]
    {
        assert!(compared.contains(name), "{name} was never printed");
    }
}

/// `Err` with our text where an item of the printed flow is not what we have.
fn compare(key: &Key, item: &str, line: &str) -> Result<(), String> {
    let get = |f: FieldId| key.get64(f);
    let Some((name, theirs)) = item.split_once('=') else {
        let (eth_type, proto) = protocol(item);
        let ours = (get(FieldId::EthType), get(FieldId::NwProto));
        let same = eth_type == ours.0 && proto.is_none_or(|proto| proto == ours.1);
        return if same { Ok(()) } else { Err(format!("{ours:x?}")) };
    };
    let tci = |f: FieldId| get(f) & 0xefff;
    let number = |n: u64| n.to_string();
    let mac = |f: FieldId| {
        get(f).to_be_bytes()[2..].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
    };
    let v4 = |f: FieldId| std::net::Ipv4Addr::from(get(f) as u32).to_string();
    let v6 = |f: FieldId| std::net::Ipv6Addr::from(key.get(f)).to_string();
    let ours = match name {
        "vlan_tci" => format!("0x{:04x}", get(FieldId::VlanTci)),
        "vlan_tci1" => format!("0x{:04x}", get(FieldId::VlanTci2)),
        "dl_vlan" => number(tci(FieldId::VlanTci) & 0xfff),
        "dl_vlan_pcp" => number(tci(FieldId::VlanTci) >> 13),
        "dl_vlan1" => number(tci(FieldId::VlanTci2) & 0xfff),
        "dl_vlan_pcp1" => number(tci(FieldId::VlanTci2) >> 13),
        "dl_src" => mac(FieldId::EthSrc),
        "dl_dst" => mac(FieldId::EthDst),
        "dl_type" => format!("0x{:04x}", get(FieldId::EthType)),
        "nw_src" | "arp_spa" => v4(FieldId::NwSrc),
        "nw_dst" | "arp_tpa" => v4(FieldId::NwDst),
        "ipv6_src" => return same_address(theirs, key.get(FieldId::Ipv6Src), v6(FieldId::Ipv6Src)),
        "ipv6_dst" => return same_address(theirs, key.get(FieldId::Ipv6Dst), v6(FieldId::Ipv6Dst)),
        "nd_target" => return same_address(theirs, key.get(FieldId::NdTarget), v6(FieldId::NdTarget)),
        "ipv6_label" => format!("0x{:05x}", get(FieldId::Ipv6Label)),
        "nw_proto" | "arp_op" => number(get(FieldId::NwProto)),
        "nw_tos" => number(get(FieldId::NwTos) & 0xfc),
        "nw_ecn" => number(get(FieldId::NwTos) & 3),
        "nw_ttl" => number(get(FieldId::NwTtl)),
        "nw_frag" => ["no", "first", "?", "later"][get(FieldId::NwFrag) as usize].to_owned(),
        "tp_src" | "icmp_type" => number(get(FieldId::TpSrc)),
        "tp_dst" | "icmp_code" => number(get(FieldId::TpDst)),
        "tcp_flags" => {
            let flags = get(FieldId::TcpFlags);
            let names: Vec<_> = (0..12).filter(|i| flags >> i & 1 == 1).map(|i| FLAG_NAMES[i]).collect();
            if names.is_empty() { "0".to_owned() } else { names.join("|") }
        }
        "arp_sha" | "nd_sll" => mac(FieldId::ArpSha),
        "arp_tha" | "nd_tll" => mac(FieldId::ArpTha),
        "mpls_label" => number(get(FieldId::Mpls0) >> 12),
        "mpls_tc" => number(get(FieldId::Mpls0) >> 9 & 7),
        "mpls_bos" => number(get(FieldId::Mpls0) >> 8 & 1),
        "mpls_ttl" => number(get(FieldId::Mpls0) & 0xff),
        "mpls_lse1" => number(get(FieldId::Mpls1)),
        "mpls_lse2" => number(get(FieldId::Mpls2)),
        "nsh_flags" => number(get(FieldId::NshFlags)),
        "nsh_ttl" => number(get(FieldId::NshTtl)),
        "nsh_mdtype" => number(get(FieldId::NshMdtype)),
        "nsh_np" => number(get(FieldId::NshNp)),
        "nsh_spi" => format!("0x{:x}", get(FieldId::NshSpi)),
        "nsh_si" => number(get(FieldId::NshSi)),
        "nsh_c1" => format!("0x{:x}", get(FieldId::NshC1)),
        "nsh_c2" => format!("0x{:x}", get(FieldId::NshC2)),
        "nsh_c3" => format!("0x{:x}", get(FieldId::NshC3)),
        "nsh_c4" => format!("0x{:x}", get(FieldId::NshC4)),
        other => panic!("{other} is new here: {line}"),
    };
    if ours == theirs { Ok(()) } else { Err(ours) }
}

fn same_address(theirs: &str, ours: u128, ours_text: String) -> Result<(), String> {
    let theirs: std::net::Ipv6Addr = theirs.parse().unwrap();
    if u128::from(theirs) == ours { Ok(()) } else { Err(ours_text) }
}

/// Ethernet type and protocol that a keyword stands for.
fn protocol(keyword: &str) -> (u64, Option<u64>) {
    match keyword {
        "ip" => (0x0800, None),
        "tcp" => (0x0800, Some(6)),
        "udp" => (0x0800, Some(17)),
        "icmp" => (0x0800, Some(1)),
        "sctp" => (0x0800, Some(132)),
        "ipv6" => (0x86dd, None),
        "tcp6" => (0x86dd, Some(6)),
        "udp6" => (0x86dd, Some(17)),
        "icmp6" => (0x86dd, Some(58)),
        "sctp6" => (0x86dd, Some(132)),
        "arp" => (0x0806, None),
        "rarp" => (0x8035, None),
        "mpls" => (0x8847, None),
        "mplsm" => (0x8848, None),
        other => panic!("unknown keyword {other}"),
    }
}

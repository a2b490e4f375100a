//! The stock client's commands against the switch of this test.

use crate::stock::switch::Switch;
use crate::stock::{TempDir, ofctl, ofctl_ok};
use openflow::message::*;
use openflow::{Message, Version};

fn check(text: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(text.contains(wanted), "{wanted:?} is missing in:\n{text}");
    }
    assert!(!text.contains("***"), "not understood:\n{text}");
}

/// (command, further arguments, what its output must contain in 1.0, and in 1.3).
#[allow(clippy::type_complexity)]
const COMMANDS: &[(&str, &[&str], &[&str], &[&str])] = &[
    (
        "show",
        &[],
        &[
            "dpid:0000123456789abc",
            "n_tables:254",
            "1(eth-one): addr:00:01:02:03:04:05",
            "current:    10GB-FD COPPER",
            "miss_send_len=128",
        ],
        &[
            "1(eth-one): addr:00:01:02:03:04:05",
            "supported:  1GB-FD AUTO_NEG",
            "speed: 10000 Mbps now, 1000 Mbps max",
        ],
    ),
    ("dump-desc", &[], &["Manufacturer: Crosspoint", "DP Description: br0"], &["Software: 0.1"]),
    ("dump-tables", &[], &["table 0", "active=3, lookup=10, matched=9"], &["active=3, lookup=10, matched=9"]),
    (
        "dump-aggregate",
        &[],
        &["packet_count=5 byte_count=300 flow_count=0"],
        &["packet_count=5 byte_count=300"],
    ),
    ("dump-ports", &[], &["rx pkts=11, bytes=?", "LOCAL"], &["tx pkts=?, bytes=22", "duration=4s"]),
    ("dump-ports-desc", &[], &["1(eth-one)"], &["1(eth-one)"]),
    ("queue-stats", &[], &["port 1 queue 2: bytes=3, pkts=4, errors=5"], &["duration=6s"]),
    ("queue-get-config", &["1"], &["queue 3: min_rate:10.0%"], &["queue 3: min_rate:10.0%"]),
    ("dump-flows", &[], &[], &[]),
    ("get-frags", &[], &["normal"], &["normal"]),
    ("dump-tlv-map", &[], &["max option space=256"], &["max option space=256"]),
    ("probe", &[], &[], &[]),
    ("ping", &["2"], &["bytes from"], &["bytes from"]),
];

#[test]
fn requests_of_the_stock_client_are_answered_so_that_it_understands() {
    for version in [Version::V10, Version::V13] {
        let dir = TempDir::new(&format!("requests-{version}"));
        let switch = Switch::start(dir.join("mgmt"), version);
        let target = switch.target();
        for (command, rest, v10, v13) in COMMANDS {
            let args: Vec<&str> =
                ["-O", version.name(), command, &target].iter().chain(*rest).copied().collect();
            check(&ofctl_ok(&args), if version == Version::V10 { v10 } else { v13 });
        }
        if version == Version::V13 {
            let features = ofctl_ok(&["-O", "OpenFlow13", "dump-table-features", &target]);
            check(&features, &["table 0", "(\"table1\")", "max_entries=1000000", "tcp_flags", "goto_table"]);
            for command in
                ["dump-groups", "dump-group-stats", "dump-group-features", "dump-meters", "meter-features"]
            {
                check(&ofctl_ok(&["-O", "OpenFlow13", command, &target]), &[]);
            }
        }
    }
}

#[test]
fn dumped_flows_are_those_that_were_added() {
    for version in [Version::V10, Version::V13] {
        let dir = TempDir::new(&format!("dump-{version}"));
        let switch = Switch::start(dir.join("mgmt"), version);
        let target = switch.target();
        let file = dir.join("flows");
        std::fs::write(&file, crate::stock::flows(version)).unwrap();
        let file = file.to_str().unwrap();
        ofctl_ok(&["-O", version.name(), "add-flows", &target, file]);
        let dump = ofctl_ok(&["-O", version.name(), "dump-flows", &target]);
        check(&dump, &["n_packets=7, n_bytes=420", "duration=3.500s", "table=3, "]);
        assert_eq!(
            dump.lines().filter(|line| line.contains("actions=")).count(),
            crate::stock::flows(version).lines().count()
        );
        // Compared by the client itself. It finds a difference where the version has another form for what
        // the text says (also against Open vSwitch), and between its readings of fragment bits from text and
        // from the wire.
        let (_, difference) = ofctl(&["-O", version.name(), "diff-flows", file, &target]);
        let excused: &[&str] = match version {
            Version::V10 => &["nw_frag=", "set_field:", "load:"],
            _ => &[
                "nw_frag=",
                "vlan_tci=0x0000",
                "set_mpls_label",
                "->mpls_label",
                "->ipv6_dst",
                "IPV6_DST",
                "udp actions=",
            ],
        };
        let is_excused = |line: &str| excused.iter().any(|part| line.contains(part));
        let changed: Vec<&str> =
            difference.lines().filter(|l| l.starts_with(['+', '-']) && !is_excused(l)).collect();
        assert!(changed.is_empty(), "{version}: {changed:#?}");
    }
}

#[test]
fn a_dump_of_many_flows_is_split_and_complete() {
    const N: usize = 5_000;
    for version in [Version::V10, Version::V13] {
        let dir = TempDir::new(&format!("many-{version}"));
        let switch = Switch::start(dir.join("mgmt"), version);
        let file = dir.join("flows");
        let flows: String = (0..N).map(|i| format!("reg0={i},ip,nw_src=10.0.0.1,actions=2\n")).collect();
        std::fs::write(&file, flows).unwrap();
        ofctl_ok(&["-O", version.name(), "add-flows", &switch.target(), file.to_str().unwrap()]);
        let dump = ofctl_ok(&["-O", version.name(), "dump-flows", &switch.target()]);
        assert_eq!(dump.lines().filter(|line| line.contains("actions=output:2")).count(), N);
    }
}

#[test]
fn errors_print_by_name() {
    for version in [Version::V10, Version::V13] {
        let dir = TempDir::new(&format!("errors-{version}"));
        let switch = Switch::start(dir.join("mgmt"), version);
        let (ok, text) =
            ofctl(&["-O", version.name(), "add-flow", &switch.target(), "table=77,in_port=1,actions=2"]);
        assert!(!ok && text.contains("OFPT_ERROR") && text.contains("OFPFMFC_TABLE_FULL"), "{text}");
        assert!(text.contains("OFPT_FLOW_MOD") || text.contains("NXT_FLOW_MOD"), "{text}");
    }
}

#[test]
fn counters_of_ports_read_as_the_stock_client_reads_them() {
    use base::OfPort;
    let dir = TempDir::new("counters");
    let mut by_size = PortStats::unknown(OfPort(1));
    by_size.frames = std::array::from_fn(|n| n as u64 + 100);
    let mut few = PortStats { rx_crc_err: 5, ..PortStats::unknown(OfPort(11)) };
    few.frames[14] = 7;
    few.frames[20] = 8;
    few.custom = ["a", "b_1", "", "rx_q0_good_packets", "e"].map(|name| (name.to_owned(), 9)).into();
    let body = StatsBody::Port(vec![by_size, few, PortStats::unknown(OfPort::LOCAL)]);
    for version in Version::ALL {
        let reply = Message::StatsReply(StatsReply { more: false, body: body.clone() });
        let bytes = openflow::Codec::new(version).encode(1, &reply).unwrap();
        let stock = crate::stock::read_by_stock(&dir.0, std::slice::from_ref(&bytes));
        let ours = openflow::text::bytes_text(&bytes, &openflow::text::PortNames::default(), 0);
        assert_eq!(ours.trim_end(), stock[0].trim_end(), "{version}");
        assert_eq!(ours.contains("CUSTOM"), version >= Version::V14);
    }
}

fn with_header(version: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (8 + body.len() as u16).to_be_bytes();
    [&[version, kind, length[0], length[1], 0, 0, 0, 2], body].concat()
}

#[test]
fn what_is_odd_in_a_message_reads_as_the_stock_client_reads_it() {
    use openflow::text::{PortNames, bytes_text, parse_flow_mod, parse_group_mod};
    let mut messages = Vec::new();
    // A packet-in with more of its packet than there is.
    for buffer in [5u32, u32::MAX] {
        let body = [&buffer.to_be_bytes()[..], &[0, 10, 0, 1, 0, 0], &[0; 20]].concat();
        messages.push(with_header(1, 10, &body));
    }
    for rate in [0u16, 1000, 1001, 65_534, 65_535] {
        let [high, low] = rate.to_be_bytes();
        let queue = [0, 0, 0, 3, 0, 24, 0, 0, 0, 1, 0, 16, 0, 0, 0, 0, high, low, 0, 0, 0, 0, 0, 0];
        messages.push(with_header(1, 21, &[&[0, 1, 0, 0, 0, 0, 0, 0][..], &queue].concat()));
    }
    for flags in [[0, 0], [0, 3], [8, 1], [0xf0, 4]] {
        messages.push(with_header(5, 33, &[&[0, 0, 0, 5, 0, 0][..], &flags].concat()));
    }
    // Flags of statistics: the kind, and in OpenFlow 1.1 and later padding behind them.
    for (version, request) in [(1, 16), (2, 18), (4, 18), (6, 18)] {
        for flags in [[0, 0], [0, 1], [0, 2], [0, 3], [0x80, 1]] {
            let padding: &[u8] = if version > 1 { &[0; 4] } else { &[] };
            let body = |kind| [&[0, kind][..], &flags, padding].concat();
            messages.push(with_header(version, request, &body(0)));
            messages.push(with_header(version, request + 1, &body(1)));
            messages.push(with_header(version, request + 1, &[body(0), vec![0; 1056]].concat()));
            if version > 1 {
                let port = [&body(4)[..], &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]].concat();
                messages.push(with_header(version, request, &port));
            }
        }
    }
    let none = PortNames::none();
    let delete = parse_flow_mod("out_group=5,ip", FlowModCommand::Delete, none).unwrap().flow_mod;
    let delete = Message::FlowMod(Box::new(delete));
    messages.push(openflow::Codec::new(Version::V13).encode(2, &delete).unwrap());
    for fields in [
        "fields(eth_src=ff:ff:ff:00:00:00)",
        "fields=eth_src",
        "fields(ip_src=255.255.0.0,reg0=0xff)",
        "fields(tcp_src,ip_src,eth_dst,eth_src)",
    ] {
        let text = format!("group_id=1,type=select,selection_method=hash,{fields},bucket=output:1");
        let (group, _) = parse_group_mod(&text, GroupCommand::Add, none).unwrap();
        let group = Message::GroupMod(Box::new(group));
        messages.push(openflow::Codec::new(Version::V15).encode(2, &group).unwrap());
    }
    let dir = TempDir::new("odd");
    let stock = crate::stock::read_by_stock(&dir.0, &messages);
    assert_eq!(stock.len(), messages.len(), "{stock:?}");
    for (bytes, stock) in messages.iter().zip(stock) {
        assert_eq!(bytes_text(bytes, none, 0).trim_end(), stock.trim_end());
    }
}

#[test]
fn the_table_of_errors_is_the_stock_clients() {
    use openflow::error::OfError;
    let dir = TempDir::new("errors");
    for version in Version::ALL {
        let codec = openflow::Codec::new(version);
        let kinds: Vec<_> =
            openflow::ErrorKind::ALL.iter().filter(|kind| kind.number(version).is_some()).collect();
        let request = codec.encode(1, &Message::FeaturesRequest).unwrap();
        let messages: Vec<_> = kinds
            .iter()
            .map(|kind| codec.encode(1, &Message::Error(OfError::new(**kind, &request))).unwrap())
            .collect();
        let texts = crate::stock::read_by_stock(&dir.0, &messages);
        // Each error is followed by the request that it carries.
        let names: Vec<&str> =
            texts.iter().filter(|t| t.starts_with("OFPT_ERROR")).map(|t| t.as_str()).collect();
        assert_eq!(names.len(), kinds.len(), "{version}");
        for (kind, text) in kinds.iter().zip(names) {
            let twin = openflow::ErrorKind::from_number(version, kind.number(version).unwrap()).unwrap();
            assert!(text.contains(kind.name()) || text.contains(twin.name()), "{version} {kind}: {text}");
        }
    }
}

#[test]
fn a_monitor_is_set_up_and_sees_flows_and_packets() {
    let dir = TempDir::new("monitor");
    let switch = Switch::start(dir.join("mgmt"), Version::V10);
    // The switch sends no more than the initial flows; the timeout ends the command.
    let (_, text) =
        ofctl(&["--timeout=2", "-O", "OpenFlow10", "monitor", &switch.target(), "65534", "watch:"]);
    check(
        &text,
        &[
            "NXST_FLOW_MONITOR reply",
            "event=ADDED table=2 cookie=0x3 in_port=4 actions=output:6",
            "event=ABBREV xid=0x77",
        ],
    );
    let state = switch.stop();
    let set = state.messages.iter().find_map(|m| if let Message::SetConfig(c) = m { Some(*c) } else { None });
    assert_eq!(set.unwrap().miss_send_len, 65534);
}

#[test]
fn bundles_packet_outs_and_port_mods_arrive() {
    for version in [Version::V10, Version::V13] {
        let dir = TempDir::new(&format!("rest-{version}"));
        let switch = Switch::start(dir.join("mgmt"), version);
        let target = switch.target();
        let v = version.name();
        ofctl_ok(&[
            "-O",
            v,
            "packet-out",
            &target,
            "in_port=1,packet=0001020304050607080910111213,actions=output:2",
        ]);
        ofctl_ok(&["-O", v, "mod-port", &target, "1", "no-forward"]);
        ofctl_ok(&["-O", v, "set-frags", &target, "drop"]);
        if version == Version::V13 {
            ofctl_ok(&["-O", v, "--bundle", "add-flow", &target, "in_port=1,actions=2"]);
        }
        let state = switch.stop();
        let has = |test: &dyn Fn(&Message) -> bool| state.messages.iter().any(test);
        assert!(has(
            &|m| matches!(m, Message::PacketOut(p) if p.in_port.0 == 1 && p.data.len() == 14 && p.actions.len() == 1)
        ));
        assert!(has(
            &|m| matches!(m, Message::PortMod(p) if p.mask == PortConfig::NO_FWD && p.config == PortConfig::NO_FWD)
        ));
        assert!(has(&|m| matches!(m, Message::SetConfig(c) if c.frag == FragHandling::Drop)));
        assert_eq!(state.flow_mods.len(), usize::from(version == Version::V13));
    }
}

//! Connection tracking beside the stock switch: the same random packets of some connections get the same
//! state, mark and translated addresses from both, step by step. And what its commands say.

use crate::actions_beside_stock::{Both, ethernet};
use crate::common::{Switch, wait_for};
use crate::fragments::fragment_v4;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::checksum::{Sum, checksum, pseudo_v4, pseudo_v6};
use wire::ip::IpProtocol;

/// Shows state and mark in the destination address, where both switches' frames can be compared.
pub const SHOW: &str =
    "move:NXM_NX_CT_STATE[0..7]->NXM_OF_ETH_DST[0..7],move:NXM_NX_CT_MARK[0..7]->NXM_OF_ETH_DST[8..15]";

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.next() as usize % all.len()]
    }
}

pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header.extend(src.octets());
    header.extend(dst.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, payload.to_vec()].concat()
}

/// Puts the checksum into a transport packet at `at`.
pub fn summed(mut bytes: Vec<u8>, at: usize, pseudo: Sum) -> Vec<u8> {
    let sum = pseudo.bytes(&bytes).finish();
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

pub fn udp(from: u16, to: u16, data: &[u8], pseudo: impl Fn(usize) -> Sum) -> Vec<u8> {
    let len = (8 + data.len()) as u16;
    let bytes = [&from.to_be_bytes()[..], &to.to_be_bytes(), &len.to_be_bytes(), &[0, 0], data].concat();
    let pseudo = pseudo(bytes.len());
    summed(bytes, 6, pseudo)
}

fn tcp(
    from: u16,
    to: u16,
    (seq, ack): (u32, u32),
    flags: u8,
    data: &[u8],
    pseudo: impl Fn(usize) -> Sum,
) -> Vec<u8> {
    // A SYN says its window scale.
    let options: &[u8] = if flags & 2 != 0 { &[3, 3, 2, 1] } else { &[] };
    let offset = (20 + options.len() as u8) << 2;
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([offset, flags, 0x10, 0, 0, 0, 0, 0]);
    bytes.extend(options);
    bytes.extend(data);
    let pseudo = pseudo(bytes.len());
    summed(bytes, 16, pseudo)
}

pub fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    summed([&[kind, code, 0, 0], rest].concat(), 2, Sum::new())
}

/// One random packet of a few connections, some of them odd.
fn packet(r: &mut Random, net: u8) -> Vec<u8> {
    let client = Ipv4Addr::new(10, net, 0, 1 + (r.next() % 2) as u8);
    let server = Ipv4Addr::new(10, 1, 1, 1);
    // What is translated is answered to its new address.
    let shown = if net == 7 && !r.next().is_multiple_of(8) { Ipv4Addr::new(10, 9, 9, 1) } else { client };
    let is_back = r.next().is_multiple_of(2);
    let (src, dst) = if is_back { (server, shown) } else { (client, server) };
    let port = r.of(&[4000u16, 5000]);
    let (from, to) = if is_back { (80, port) } else { (port, 80) };
    let pseudo = |protocol| move |len| pseudo_v4(src, dst, IpProtocol(protocol), len as u16);
    let data = vec![0x55; (r.next() % 30) as usize];
    let payload = match r.next() % 8 {
        0 => return [ipv4(src, dst, 17, &udp(from, to, &data, pseudo(17))), vec![]].concat(),
        1 => {
            let kind = if is_back { 0 } else { 8 };
            return ipv4(src, dst, 1, &icmp(kind, 0, &[&[0x12, 0x34, 0, 1], &data[..]].concat()));
        }
        2 => {
            // An error about what went the other way.
            let quoted = if r.next().is_multiple_of(2) {
                ipv4(dst, src, 17, &udp(to, from, &[], |len| pseudo_v4(dst, src, IpProtocol(17), len as u16)))
            } else {
                ipv4(
                    dst,
                    src,
                    6,
                    &tcp(to, from, (1000, 0), 2, &[], |len| pseudo_v4(dst, src, IpProtocol(6), len as u16)),
                )
            };
            return ipv4(src, dst, 1, &icmp(3, 1, &[&[0; 4][..], &quoted].concat()));
        }
        3 if r.next().is_multiple_of(3) => return ipv4(src, dst, 47, &[0, 0, 8, 0, 1, 2, 3, 4]),
        _ => {
            let numbers = [1000, 1001, 1002, 1030, 1100, 70_000, 3_000_000_000];
            let (seq, ack) = (r.of(&numbers), r.of(&numbers));
            let flags = r.of(&[2, 2, 0x12, 0x12, 0x10, 0x10, 0x10, 0x18, 0x11, 4, 0x14, 0, 0x3f, 1]);
            // A connection that is opened again: the stock switch holds its translated port until it sweeps,
            // and gives another one meanwhile. So translated connections do not end here.
            let flags = if net == 7 { r.of(&[2, 0x12, 0x10, 0x18]) } else { flags };
            tcp(from, to, (seq, ack), flags, &data, pseudo(6))
        }
    };
    ipv4(src, dst, 6, &payload)
}

fn packet_v6(r: &mut Random) -> Vec<u8> {
    let (a, b): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let is_back = r.next().is_multiple_of(2);
    let (src, dst) = if is_back { (b, a) } else { (a, b) };
    let (from, to) = if is_back { (80, 4000) } else { (4000, 80) };
    let pseudo = |protocol| move |len| pseudo_v6(src, dst, IpProtocol(protocol), len as u32);
    let (protocol, payload) = match r.next() % 3 {
        0 => (17, udp(from, to, &[1, 2, 3], pseudo(17))),
        1 => {
            let bytes = vec![if is_back { 129 } else { 128 }, 0, 0, 0, 0x12, 0x34, 0, 1];
            (58, summed(bytes, 2, pseudo(58)(8)))
        }
        _ => (6, tcp(from, to, (1000, 1001), r.of(&[2, 0x12, 0x10, 0x11, 4]), &[], pseudo(6))),
    };
    let mut bytes = vec![0x60, 0, 0, 0, 0, payload.len() as u8, protocol, 64];
    bytes.extend(src.octets());
    bytes.extend(dst.octets());
    [bytes, payload].concat()
}

/// Both switches, which track in zone 5, and translate in zone 6.
pub fn both_tracking() -> Both {
    let mut both = Both::start();
    // On a slow machine a connection ends between two packets, and in the stock switch later than its time.
    both.stop_time();
    let track = |zone: u8, more: &str| format!("ct(table={zone},zone={zone}{more})");
    let show = |zone: u8| format!("table={zone},priority=10,actions={SHOW},output:2");
    let commit = |zone: u8, family: &str, more: &str| {
        format!(
            "table={zone},priority=20,ct_state=+new+trk,{family},actions={SHOW},ct(commit,zone={zone}{more}),output:2"
        )
    };
    let mark = ",exec(set_field:0x7->ct_mark)";
    let rules = [
        format!("priority=10,ip,actions={}", track(5, "")),
        format!("priority=10,ipv6,actions={}", track(5, "")),
        format!("priority=20,ip,nw_src=10.7.0.0/16,actions={}", track(6, ",nat")),
        format!("priority=20,ip,nw_dst=10.7.0.0/16,actions={}", track(6, ",nat")),
        format!("priority=20,ip,nw_dst=10.9.9.0/24,actions={}", track(6, ",nat")),
        show(5),
        show(6),
        commit(5, "ip", mark),
        commit(5, "ipv6", mark),
        commit(6, "ip", ",nat(src=10.9.9.1)"),
    ];
    both.rules("OpenFlow13", &rules.iter().map(String::as_str).collect::<Vec<_>>());
    both
}

pub fn random_frame(r: &mut Random) -> Vec<u8> {
    match r.next() % 6 {
        0 => ethernet(0x86dd, &packet_v6(r)),
        1 | 2 => ethernet(0x0800, &packet(r, 7)),
        _ => ethernet(0x0800, &packet(r, 2)),
    }
}

pub const SEED: u64 = 0x1234_5678_9abc_def1;
const STEPS: u32 = 500;

#[test]
fn random_packets_get_the_same_state_and_translation_from_the_stock_switch() {
    let mut both = both_tracking();
    let mut r = Random(SEED);
    for step in 0..testkit::cases("crosspoint::conntrack_beside_stock", STEPS) {
        let frame = random_frame(&mut r);
        both.same_fates(&format!("step {step}"), &[("random", frame)]);
    }
}

/// The oracle's must-fail twin: mistakes that are planted in our switch alone are found by the same packets.
#[test]
fn planted_mistakes_of_the_tracker_are_found() {
    type Plant = fn(&Both);
    let plants: [(&str, Plant); 3] = [
        ("no window is checked", |both| {
            both.appctl_ours(&["dpctl/ct-disable-tcp-seq-chk"]);
        }),
        ("a zone has no room", |both| {
            both.appctl_ours(&["dpctl/ct-set-limits", "zone=5,limit=1"]);
        }),
        ("another address is given", |both| {
            let rule = format!(
                "table=6,priority=20,ct_state=+new+trk,ip,actions={SHOW},ct(commit,zone=6,nat(src=10.9.9.2)),output:2"
            );
            let (said, is_done) = both.ours(&["-O", "OpenFlow13", "add-flow", "br0", &rule]);
            assert!(is_done, "{said}");
        }),
    ];
    for (mistake, plant) in plants {
        let mut both = both_tracking();
        plant(&both);
        let mut r = Random(SEED);
        let found = (0..STEPS).find(|_| both.differ(&random_frame(&mut r)));
        assert!(found.is_some(), "{mistake}: {STEPS} packets do not show it");
    }
}

/// A TCP segment between two hosts.
fn segment(
    [src, dst]: [&str; 2],
    [from, to]: [u16; 2],
    numbers: (u32, u32),
    flags: u8,
    text: &str,
) -> Vec<u8> {
    let text = text.as_bytes();
    if let (Ok(src), Ok(dst)) = (src.parse::<Ipv4Addr>(), dst.parse::<Ipv4Addr>()) {
        let pseudo = |len| pseudo_v4(src, dst, IpProtocol(6), len as u16);
        return ethernet(0x0800, &ipv4(src, dst, 6, &tcp(from, to, numbers, flags, text, pseudo)));
    }
    let (src, dst): (Ipv6Addr, Ipv6Addr) = (src.parse().unwrap(), dst.parse().unwrap());
    let pseudo = |len| pseudo_v6(src, dst, IpProtocol(6), len as u32);
    let payload = tcp(from, to, numbers, flags, text, pseudo);
    let mut bytes = vec![0x60, 0, 0, 0, 0, payload.len() as u8, 6, 64];
    bytes.extend(src.octets());
    bytes.extend(dst.octets());
    ethernet(0x86dd, &[bytes, payload].concat())
}

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
const PSH_ACK: u8 = 0x18;

/// Rules of a firewall that helps FTP and TFTP, and translates new connections as `nat` says.
fn helping(family: &str, nat: &str) -> Vec<String> {
    vec![
        format!("{family},actions=ct(table=5,zone=5,nat)"),
        format!(
            "table=5,priority=20,ct_state=+new-rel+trk,{}6,tp_dst=21,actions={SHOW},\
             ct(commit,zone=5,alg=ftp,{nat},exec(set_field:9->ct_mark)),output:2",
            if family == "ip" { "ip,nw_proto=" } else { "ipv6,nw_proto=" }
        ),
        format!(
            "table=5,priority=20,ct_state=+new-rel+trk,{}17,tp_dst=69,actions={SHOW},\
             ct(commit,zone=5,alg=tftp,{nat}),output:2",
            if family == "ip" { "ip,nw_proto=" } else { "ipv6,nw_proto=" }
        ),
        format!(
            "table=5,priority=20,ct_state=+new+rel+trk,{family},actions={SHOW},ct(commit,zone=5,nat),output:3"
        ),
        format!("table=5,priority=10,actions={SHOW},output:2"),
    ]
}

/// What becomes of a frame: the port that it leaves by, its state, and the frame.
type Fate = (&'static str, u8, Vec<u8>);

/// One conversation, packet by packet.
fn converse(switch: &Switch, what: &str, packets: Vec<(Vec<u8>, Fate)>) {
    let hex = |frame: &[u8]| -> String { frame.iter().map(|byte| format!("{byte:02x}")).collect() };
    for (n, (frame, (port, state, becomes))) in packets.into_iter().enumerate() {
        switch.receive("p1", &hex(&frame));
        let sent = switch.sent(port, 1).remove(0);
        assert_eq!(&sent[10..12], format!("{state:02x}"), "{what}, state of packet {n}");
        // The destination address shows state and mark.
        assert_eq!(&sent[12..], &hex(&becomes)[12..], "{what}, packet {n}");
    }
}

pub const NEW: u8 = 0x21;
pub const EST: u8 = 0x22;
pub const RPL: u8 = 0x08;
const REL: u8 = 0x04;
pub const SNAT: u8 = 0x40;
pub const DNAT: u8 = 0x80;

fn helper_switch(family: &str, nat: &str) -> Switch {
    let port = |n: u8| format!("p{n},type=dummy,ofport={n},mtu=9000");
    let [one, two, three] = [1, 2, 3].map(port);
    let switch = Switch::start(&[
        "--bridge",
        "br0,fail-mode=secure",
        "--port",
        &one,
        "--port",
        &two,
        "--port",
        &three,
    ]);
    helping(family, nat).iter().for_each(|rule| switch.add_flow(rule));
    switch
}

#[test]
fn an_active_transfer_through_source_translation_arrives() {
    let (client, server, shown) = ("10.0.0.1", "10.0.0.2", "10.9.9.123");
    let switch = helper_switch("ip", &format!("nat(src={shown})"));
    let (to, back) = ([client, server], [server, shown]);
    let (out, home) = ([shown, server], [server, client]);
    let (ports, rports, data) = ([4000, 21], [21, 4000], [20, 4097]);
    let (port, becomes) = ("PORT 10,0,0,1,16,1\r\n", "PORT 10,9,9,123,16,1\r\n");
    // What the server acknowledges is two bytes longer than what the client has sent.
    let (end, grown) = (1001 + port.len() as u32, 1001 + becomes.len() as u32);
    // More than a chunk of the pool holds.
    let banner = "230 welcome\r\n".repeat(300);
    let long = 5009 + banner.len() as u32;
    let there = |numbers, flags, text, state| {
        (segment(to, ports, numbers, flags, text), ("p2", state, segment(out, ports, numbers, flags, text)))
    };
    converse(
        &switch,
        "active",
        vec![
            there((1000, 0), SYN, "", NEW),
            (
                segment(back, rports, (5000, 1001), SYN_ACK, ""),
                ("p2", EST | RPL | DNAT, segment(home, rports, (5000, 1001), SYN_ACK, "")),
            ),
            there((1001, 5001), ACK, "", EST | SNAT),
            (
                segment(to, ports, (1001, 5001), PSH_ACK, port),
                ("p2", EST | SNAT, segment(out, ports, (1001, 5001), PSH_ACK, becomes)),
            ),
            // Sent again, it is changed again, and counted once.
            (
                segment(to, ports, (1001, 5001), PSH_ACK, port),
                ("p2", EST | SNAT, segment(out, ports, (1001, 5001), PSH_ACK, becomes)),
            ),
            (
                segment(back, rports, (5001, grown), PSH_ACK, "200 ok\r\n"),
                ("p2", EST | RPL | DNAT, segment(home, rports, (5001, end), PSH_ACK, "200 ok\r\n")),
            ),
            (
                segment(back, data, (7000, 0), SYN, ""),
                ("p3", NEW | REL, segment(home, data, (7000, 0), SYN, "")),
            ),
            (
                segment([client, server], [4097, 20], (9000, 7001), SYN_ACK, ""),
                ("p2", EST | REL | RPL | SNAT, segment(out, [4097, 20], (9000, 7001), SYN_ACK, "")),
            ),
            (
                segment(to, ports, (end, 5009), PSH_ACK, "LIST\r\n"),
                ("p2", EST | SNAT, segment(out, ports, (grown, 5009), PSH_ACK, "LIST\r\n")),
            ),
            (
                segment(back, rports, (5009, grown + 6), PSH_ACK, &banner),
                ("p2", EST | RPL | DNAT, segment(home, rports, (5009, end + 6), PSH_ACK, &banner)),
            ),
            (
                segment(to, ports, (end + 6, long), PSH_ACK, &banner),
                ("p2", EST | SNAT, segment(out, ports, (grown + 6, long), PSH_ACK, &banner)),
            ),
            // The connection that was expected has come, and others may.
            (
                segment(back, [21000, 4097], (1, 0), SYN, ""),
                ("p3", NEW | REL, segment(home, [21000, 4097], (1, 0), SYN, "")),
            ),
            (
                segment(back, [21000, 4098], (1, 0), SYN, ""),
                ("p2", NEW, segment(back, [21000, 4098], (1, 0), SYN, "")),
            ),
        ],
    );
    // A segment in fragments, of which the first has the sequence number.
    let after = end + 6 + banner.len() as u32;
    let cut = |ends: [&str; 2], seq| {
        let frame = segment(ends, ports, (seq, long), PSH_ACK, &banner[..1500]);
        let ends = ends.map(|end| end.parse().unwrap());
        let payload = &frame[34..];
        [(0, true, &payload[..1200]), (1200, false, &payload[1200..])]
            .map(|(start, more, part)| fragment_v4(ends, (6, 77), start, more, part))
    };
    let hex = |frame: &[u8]| -> String { frame.iter().map(|byte| format!("{byte:02x}")).collect() };
    cut(to, after).iter().for_each(|frame| switch.receive("p1", &hex(frame)));
    let sent = switch.sent("p2", 2);
    let wanted = cut(out, after + 2);
    for (sent, wanted) in sent.iter().zip(&wanted) {
        assert_eq!(sent[12..], hex(wanted)[12..], "shifted by what the line before it has grown");
    }
    let dump = switch.appctl(&["dpctl/dump-conntrack"]).ok();
    assert!(dump.contains("helper=ftp"), "{dump}");
    assert_eq!(dump.matches("mark=9").count(), 3, "the others have the mark of the first: {dump}");
}

#[test]
fn a_passive_transfer_through_destination_translation_arrives() {
    let (client, vip, real) = ("10.0.0.1", "10.8.8.8", "10.0.0.200");
    let switch = helper_switch("ip", &format!("nat(dst={real})"));
    let (to, back, ports, rports) = ([client, vip], [real, client], [4010, 21], [21, 4010]);
    let (inside, outside) = ([client, real], [vip, client]);
    let (says, becomes) = (
        "227 Entering Passive Mode (10,0,0,200,16,2).\r\n",
        "227 Entering Passive Mode (10,8,8,8,16,2).\r\n",
    );
    converse(
        &switch,
        "passive",
        vec![
            (segment(to, ports, (1000, 0), SYN, ""), ("p2", NEW, segment(inside, ports, (1000, 0), SYN, ""))),
            (
                segment(back, rports, (5000, 1001), SYN_ACK, ""),
                ("p2", EST | RPL | SNAT, segment(outside, rports, (5000, 1001), SYN_ACK, "")),
            ),
            (
                segment(back, rports, (5001, 1001), PSH_ACK, says),
                ("p2", EST | RPL | SNAT, segment(outside, rports, (5001, 1001), PSH_ACK, becomes)),
            ),
            (
                segment(to, ports, (1001, 5001 + becomes.len() as u32), ACK, ""),
                ("p2", EST | DNAT, segment(inside, ports, (1001, 5001 + says.len() as u32), ACK, "")),
            ),
            (
                segment(to, [4011, 4098], (100, 0), SYN, ""),
                ("p3", NEW | REL, segment(inside, [4011, 4098], (100, 0), SYN, "")),
            ),
            (
                segment(back, [4098, 4011], (300, 101), SYN_ACK, ""),
                ("p2", EST | REL | RPL | SNAT, segment(outside, [4098, 4011], (300, 101), SYN_ACK, "")),
            ),
        ],
    );
}

#[test]
fn transfers_over_ipv6_are_expected() {
    let (client, server, shown) = ("2001:db8::1", "2001:db8::2", "2001:db8::9:9:123");
    let switch = helper_switch("ipv6", &format!("nat(src={shown})"));
    let (to, back, ports, rports) = ([client, server], [server, shown], [4020, 21], [21, 4020]);
    let (out, home) = ([shown, server], [server, client]);
    let (eprt, becomes) = ("EPRT |2|2001:db8::1|4099|\r\n", "EPRT |2|2001:db8::9:9:123|4099|\r\n");
    let epsv = "229 Extended Passive Mode Entered (|||4100|)\r\n";
    let end = 1001 + becomes.len() as u32;
    converse(
        &switch,
        "IPv6",
        vec![
            (segment(to, ports, (1000, 0), SYN, ""), ("p2", NEW, segment(out, ports, (1000, 0), SYN, ""))),
            (
                segment(back, rports, (5000, 1001), SYN_ACK, ""),
                ("p2", EST | RPL | DNAT, segment(home, rports, (5000, 1001), SYN_ACK, "")),
            ),
            (
                segment(to, ports, (1001, 5001), PSH_ACK, eprt),
                ("p2", EST | SNAT, segment(out, ports, (1001, 5001), PSH_ACK, becomes)),
            ),
            (
                segment(back, [20, 4099], (7000, 0), SYN, ""),
                ("p3", NEW | REL, segment(home, [20, 4099], (7000, 0), SYN, "")),
            ),
            (
                segment(back, rports, (5001, end), PSH_ACK, epsv),
                (
                    "p2",
                    EST | RPL | DNAT,
                    segment(home, rports, (5001, 1001 + eprt.len() as u32), PSH_ACK, epsv),
                ),
            ),
            (
                segment(to, [4021, 4100], (1, 0), SYN, ""),
                ("p3", NEW | REL, segment(out, [4021, 4100], (1, 0), SYN, "")),
            ),
        ],
    );
}

#[test]
fn a_line_for_a_third_host_is_invalid_and_expects_nothing() {
    let switch = helper_switch("ip", "nat");
    let (to, back) = (["10.0.0.1", "10.0.0.2"], ["10.0.0.2", "10.0.0.1"]);
    let same = |frame: Vec<u8>, port, state| (frame.clone(), (port, state, frame));
    converse(
        &switch,
        "third host",
        vec![
            same(segment(to, [4000, 21], (1000, 0), SYN, ""), "p2", NEW),
            same(segment(back, [21, 4000], (5000, 1001), SYN_ACK, ""), "p2", EST | RPL),
            same(segment(to, [4000, 21], (1001, 5001), PSH_ACK, "PORT 10,0,0,7,16,1\r\n"), "p2", 0x30),
            same(segment(["10.0.0.2", "10.0.0.7"], [20, 4097], (1, 0), SYN, ""), "p2", NEW),
            same(segment(to, [4000, 21], (1001, 5001), PSH_ACK, "PORT 10,0,0,1,16,1\r\n"), "p2", EST),
            same(segment(back, [20, 4097], (1, 0), SYN, ""), "p3", NEW | REL),
        ],
    );
    let dump = switch.appctl(&["dpctl/dump-conntrack", "-m"]).ok();
    let parent = ",parent=(src=10.0.0.1,dst=10.0.0.2,sport=4000,dport=21)";
    assert!(dump.contains("helper=ftp") && dump.contains(parent), "{dump}");
}

/// A line is read in a segment that comes as a whole; of the same segment in fragments, only the addresses
/// are translated, and nobody expects what it announces.
#[test]
fn a_line_in_fragments_goes_on_as_it_is_and_expects_nothing() {
    let (client, server, shown) = ("10.0.0.1", "10.0.0.2", "10.9.9.123");
    let (to, back, out, home) = ([client, server], [server, shown], [shown, server], [server, client]);
    let more = "NOOP\r\n".repeat(160);
    let [(line, read), (unread, _)] = [(16, 1), (16, 2)].map(|(high, low)| {
        let line = |address: &str| format!("PORT {address},{high},{low}\r\n{more}");
        (line("10,0,0,1"), line("10,9,9,123"))
    });
    let switch = helper_switch("ip", &format!("nat(src={shown})"));
    switch.appctl(&["dpctl/ipf-set-min-frag", "v4", "400"]).ok();
    let (ports, rports) = ([4000, 21], [21, 4000]);
    let there = |numbers, flags, text: &str, state, becomes: &str| {
        (
            segment(to, ports, numbers, flags, text),
            ("p2", state, segment(out, ports, numbers, flags, becomes)),
        )
    };
    converse(
        &switch,
        "before the fragments",
        vec![
            there((1000, 0), SYN, "", NEW, ""),
            (
                segment(back, rports, (5000, 1001), SYN_ACK, ""),
                ("p2", EST | RPL | DNAT, segment(home, rports, (5000, 1001), SYN_ACK, "")),
            ),
            there((1001, 5001), ACK, "", EST | SNAT, ""),
        ],
    );
    let cut = |ends: [&str; 2]| {
        let frame = segment(ends, ports, (1001, 5001), PSH_ACK, &unread);
        let ends = ends.map(|end| end.parse().unwrap());
        let (first, last) = frame[34..].split_at(600);
        [fragment_v4(ends, (6, 78), 0, true, first), fragment_v4(ends, (6, 78), 600, false, last)]
    };
    let hex = |frame: &[u8]| -> String { frame.iter().map(|byte| format!("{byte:02x}")).collect() };
    cut(to).iter().for_each(|frame| switch.receive("p1", &hex(frame)));
    for (n, (sent, wanted)) in switch.sent("p2", 2).iter().zip(&cut(out)).enumerate() {
        assert_eq!(&sent[10..12], format!("{:02x}", EST | SNAT), "fragment {n}");
        assert_eq!(sent[12..], hex(wanted)[12..], "fragment {n}");
    }
    let data = |port, to, becomes: [&str; 2], state| {
        let frame = |ends| segment(ends, [20, port], (7000, 0), SYN, "");
        (frame(back), (to, state, frame(becomes)))
    };
    let end = 1001 + unread.len() as u32;
    converse(
        &switch,
        "after the fragments",
        vec![
            data(4098, "p2", back, NEW),
            // What comes behind has the numbers that it had, so nothing has grown.
            there((end, 5001), PSH_ACK, &line, EST | SNAT, &read),
            data(4097, "p3", home, NEW | REL),
        ],
    );
}

#[test]
fn what_a_tftp_server_sends_from_another_port_is_related() {
    let switch = helper_switch("ip", "nat(src=10.9.9.1:7000)");
    let datagram = |[src, dst]: [&str; 2], [from, to]: [u16; 2], data: &[u8]| {
        let (src, dst): (Ipv4Addr, Ipv4Addr) = (src.parse().unwrap(), dst.parse().unwrap());
        let pseudo = |len| pseudo_v4(src, dst, IpProtocol(17), len as u16);
        ethernet(0x0800, &ipv4(src, dst, 17, &udp(from, to, data, pseudo)))
    };
    let (to, out) = (["10.0.0.1", "10.0.0.2"], ["10.9.9.1", "10.0.0.2"]);
    let (back, home) = (["10.0.0.2", "10.9.9.1"], ["10.0.0.2", "10.0.0.1"]);
    let (request, data): (&[u8], &[u8]) = (b"\0\x01file\0octet\0", b"\0\x03\0\x01data");
    converse(
        &switch,
        "TFTP",
        vec![
            (datagram(to, [3000, 69], request), ("p2", NEW, datagram(out, [7000, 69], request))),
            (datagram(back, [3456, 7000], data), ("p3", NEW | REL, datagram(home, [3456, 3000], data))),
            (
                datagram(to, [3000, 3456], b"\0\x04\0\x01"),
                ("p2", EST | REL | RPL | SNAT, datagram(out, [7000, 3456], b"\0\x04\0\x01")),
            ),
            (datagram(back, [3457, 7001], data), ("p2", NEW, datagram(back, [3457, 7001], data))),
        ],
    );
}

#[test]
fn commands_show_limit_and_flush_connections() {
    let switch = Switch::dummy();
    for flow in [
        "table=0,ip,actions=ct(table=1,zone=3)",
        "table=1,ct_state=+new+trk,ip,actions=ct(commit,zone=3,exec(set_field:0x12->ct_mark,set_field:0x5->ct_label)),2",
        "table=1,ct_state=+est+trk,ip,actions=3",
    ] {
        switch.add_flow(flow);
    }
    let send = |src: Ipv4Addr, dst: Ipv4Addr, from: u16, to: u16| {
        let pseudo = |len| pseudo_v4(src, dst, IpProtocol(17), len as u16);
        let frame = ethernet(0x0800, &ipv4(src, dst, 17, &udp(from, to, &[b'x'; 18], pseudo)));
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        switch.receive("p1", &hex);
    };
    let dump = |args: &[&str]| switch.appctl(&[&["dpctl/dump-conntrack"], args].concat()).ok();
    let counter = |name| switch.appctl(&["coverage/read-counter", name]).ok().trim().parse::<u32>().unwrap();
    let nconns = || switch.appctl(&["dpctl/ct-get-nconns"]).ok().trim().parse::<u32>().unwrap();
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    send(a, b, 1000, 53);
    wait_for("the connection", || nconns() == 1);
    assert_eq!(
        dump(&[]),
        "udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1000,dport=53),\
         reply=(src=10.0.0.2,dst=10.0.0.1,sport=53,dport=1000),zone=3,mark=18,labels=0x5\n"
    );
    let detailed = dump(&["-m", "-s", "zone=3"]);
    assert!(detailed.contains(",id=0,zone=3,status=0,timeout=5"), "{detailed}");
    assert_eq!(dump(&["zone=4"]), "");
    send(b, a, 53, 1000);
    assert_eq!(switch.sent("p3", 1).len(), 1, "an answer is established");
    (0..3).for_each(|_| send(b, a, 53, 1000));
    assert_eq!(switch.sent("p3", 3).len(), 3);
    assert_ne!(counter("datapath_followed"), 0, "packets of a known flow leave without another round");

    assert_eq!(switch.appctl(&["dpctl/ct-get-maxconns"]).ok(), "3000000\n");
    switch.appctl(&["dpctl/ct-set-limits", "default=0", "zone=3,limit=1"]).ok();
    assert_eq!(switch.appctl(&["dpctl/ct-get-limits"]).ok(), "default limit=0\nzone=3,limit=1,count=1\n");
    send(a, b, 1001, 53);
    assert_eq!(switch.sent("p2", 2).len(), 2);
    assert_eq!(nconns(), 1, "the zone is full of answered ones");
    assert_eq!((counter("conntrack_zone_full"), counter("conntrack_full")), (1, 0));
    switch.appctl(&["dpctl/ct-del-limits", "zone=3"]).ok();
    send(a, b, 1001, 53);
    send(a, b, 1002, 53);
    wait_for("three connections", || nconns() == 3);
    let stats = switch.appctl(&["dpctl/ct-stats-show"]).ok();
    assert_eq!(stats, "Connections Stats:\n    Total: 3\n  UDP: 3\n");
    assert!(switch.appctl(&["dpctl/ct-bkts"]).ok().contains("Current Connections: 3\n"));

    let one = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=1001,ct_tp_dst=53";
    switch.appctl(&["dpctl/flush-conntrack", "zone=3", one]).ok();
    assert_eq!(nconns(), 2);
    let again = switch.appctl(&["dpctl/flush-conntrack", "zone=3", one]).failed();
    assert!(again.contains("failed to flush conntrack"), "{again}");
    let bad = switch.appctl(&["dpctl/flush-conntrack", "ct_tp_src=1"]).failed();
    assert!(bad.contains("port is set without protocol"), "{bad}");
    switch.appctl(&["dpctl/flush-conntrack", "mark=1"]).ok();
    assert_eq!(nconns(), 2);
    switch.ofctl(&["ct-flush-zone", "br0", "4"]).ok();
    assert_eq!(nconns(), 2);
    switch.ofctl(&["ct-flush-zone", "br0", "3"]).ok();
    assert_eq!(nconns(), 0);
    send(a, b, 1003, 53);
    send(a, b, 1004, 53);
    wait_for("two connections", || nconns() == 2);
    let of = |port: u16| format!("ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src={port}");
    switch.ofctl(&["ct-flush", "br0", &(of(1003) + ",ct_tp_dst=53")]).ok();
    assert_eq!(nconns(), 2, "who names a connection and no zone means zone 0");
    switch.ofctl(&["ct-flush", "br0", "zone=3", &of(1003)]).ok();
    assert_eq!(nconns(), 1);
    switch.own_ofctl(&["ct-flush", "br0", "zone=3", "", "ct_nw_src=10.0.0.9,ct_nw_proto=17"]).ok();
    assert_eq!(nconns(), 1, "nobody answers from there");
    switch.own_ofctl(&["ct-flush", "br0", "zone=3", "", "ct_nw_src=10.0.0.2,ct_nw_proto=17"]).ok();
    assert_eq!(nconns(), 0);
    send(a, b, 1005, 53);
    wait_for("another connection", || nconns() == 1);
    switch.appctl(&["dpctl/flush-conntrack"]).ok();
    assert_eq!(nconns(), 0);
    switch.appctl(&["dpctl/ct-disable-tcp-seq-chk"]).ok();
    assert_eq!(switch.appctl(&["dpctl/ct-get-tcp-seq-chk"]).ok(), "TCP sequence checking: disabled\n");
}

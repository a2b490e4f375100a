//! Connection tracking beside the stock switch: the same random packets of some connections get the same
//! state, mark and translated addresses from both, step by step. And what its commands say.

use crate::actions_beside_stock::{Both, ethernet};
use crate::common::{Switch, wait_for};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::checksum::{Sum, checksum, pseudo_v4, pseudo_v6};
use wire::ip::IpProtocol;

/// Shows state and mark in the destination address, where both switches' frames can be compared.
const SHOW: &str =
    "move:NXM_NX_CT_STATE[0..7]->NXM_OF_ETH_DST[0..7],move:NXM_NX_CT_MARK[0..7]->NXM_OF_ETH_DST[8..15]";

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.next() as usize % all.len()]
    }
}

fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
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
fn summed(mut bytes: Vec<u8>, at: usize, pseudo: Sum) -> Vec<u8> {
    let sum = pseudo.bytes(&bytes).finish();
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn udp(from: u16, to: u16, data: &[u8], pseudo: impl Fn(usize) -> Sum) -> Vec<u8> {
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

fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    summed([&[kind, code, 0, 0], rest].concat(), 2, Sum::new())
}

/// One random packet of a few connections, some of them odd.
fn packet(r: &mut Random, net: u8) -> Vec<u8> {
    let client = Ipv4Addr::new(10, net, 0, 1 + (r.next() % 2) as u8);
    let server = Ipv4Addr::new(10, 1, 1, 1);
    // What is translated is answered to its new address.
    let shown = if net == 7 && r.next() % 8 != 0 { Ipv4Addr::new(10, 9, 9, 1) } else { client };
    let is_back = r.next() % 2 == 0;
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
            let quoted = if r.next() % 2 == 0 {
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
        3 if r.next() % 3 == 0 => return ipv4(src, dst, 47, &[0, 0, 8, 0, 1, 2, 3, 4]),
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
    let is_back = r.next() % 2 == 0;
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

#[test]
fn random_packets_get_the_same_state_and_translation_from_the_stock_switch() {
    let mut both = Both::start("conntrack");
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
    let mut r = Random(0x1234_5678_9abc_def1);
    for step in 0..testkit::cases("crosspoint::conntrack_beside_stock", 500) {
        let frame = match r.next() % 6 {
            0 => ethernet(0x86dd, &packet_v6(&mut r)),
            1 | 2 => ethernet(0x0800, &packet(&mut r, 7)),
            _ => ethernet(0x0800, &packet(&mut r, 2)),
        };
        both.same_fates(&format!("step {step}"), &[("random", frame)]);
    }
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
        let frame = ethernet(0x0800, &ipv4(src, dst, 17, &udp(from, to, b"x", pseudo)));
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        switch.receive("p1", &hex);
    };
    let dump = |args: &[&str]| switch.appctl(&[&["dpctl/dump-conntrack"], args].concat()).ok();
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

    assert_eq!(switch.appctl(&["dpctl/ct-get-maxconns"]).ok(), "3000000\n");
    switch.appctl(&["dpctl/ct-set-limits", "default=0", "zone=3,limit=1"]).ok();
    assert_eq!(switch.appctl(&["dpctl/ct-get-limits"]).ok(), "default limit=0\nzone=3,limit=1,count=1\n");
    send(a, b, 1001, 53);
    assert_eq!(switch.sent("p2", 2).len(), 2);
    assert_eq!(nconns(), 1, "the zone is full of answered ones");
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
    wait_for("another connection", || nconns() == 1);
    switch.appctl(&["dpctl/flush-conntrack"]).ok();
    assert_eq!(nconns(), 0);
    switch.appctl(&["dpctl/ct-disable-tcp-seq-chk"]).ok();
    assert_eq!(switch.appctl(&["dpctl/ct-get-tcp-seq-chk"]).ok(), "TCP sequence checking: disabled\n");
}

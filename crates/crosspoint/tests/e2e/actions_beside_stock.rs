//! Actions beside the stock switch: which rules and packet-outs both take and which they refuse, and with
//! which error; and what both make of whole, odd and broken packets.

use crate::common::{Switch, wait_for};
use flow::Mf;
use flow::mf::Prereq;
use std::path::Path;
use testkit::stock::Stock;

/// Both switches, with a bridge br0 and dummy ports p1 to p3 each.
pub struct Both {
    ours: Switch,
    stock: Stock,
}

/// What comes of a request: what was said, or the error.
pub type Verdict = Result<(), String>;

impl Both {
    pub fn start() -> Both {
        let stock = Stock::start();
        let mut commands =
            "add-br br0 -- set Bridge br0 fail_mode=secure datapath_type=dummy other_config:hwaddr=02:00:00:00:00:01 \
             protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"
                .to_string();
        for n in 1..=3 {
            let pcap = stock.capture(&format!("p{n}"));
            commands += &format!(
                " -- add-port br0 p{n} -- set Interface p{n} type=dummy ofport_request={n} options:tx_pcap={}",
                pcap.display()
            );
        }
        stock.vsctl(&commands);
        Both { ours: Switch::dummy(), stock }
    }

    pub fn directories(&self) -> [&Path; 2] {
        [self.ours.dir.path(), self.stock.dir()]
    }

    pub fn ours(&self, args: &[&str]) -> (String, bool) {
        let said = self.ours.ofctl(args);
        (said.out + &said.err, said.code == Some(0))
    }

    /// Whether the stock switch takes a rule with these actions.
    pub fn stock_says(&self, actions: &str) -> bool {
        self.stock.try_ofctl(&["add-flow", "br0", &format!("actions={actions}")]).1
    }

    /// The same request to both. Each must say the same.
    #[track_caller]
    pub fn verdict(&self, args: &[&str]) -> Verdict {
        let (ours, stock) = (self.ours(args), self.stock.try_ofctl(args));
        let verdicts = (verdict(&ours), verdict(&stock));
        assert_eq!(
            verdicts.0, verdicts.1,
            "ours and the stock switch's, of {args:?}:\n{}\n{}",
            ours.0, stock.0
        );
        verdicts.0
    }

    /// What the stock client prints for ours and for the stock switch, its lines sorted, those that it logs
    /// without their time.
    pub fn texts(&self, args: &[&str]) -> [String; 2] {
        [self.ours(args).0, self.stock.try_ofctl(args).0].map(|text| {
            let brief = |line: &'_ str| line.rsplit_once("|WARN|").map_or(line, |(_, said)| said).to_owned();
            let mut lines: Vec<String> = text.lines().map(brief).collect();
            lines.sort_unstable();
            lines.join("\n") + "\n"
        })
    }

    #[track_caller]
    pub fn rules(&self, of: &str, rules: &[&str]) {
        self.verdict(&["-O", of, "del-flows", "br0"]).unwrap();
        for rule in rules {
            self.verdict(&["-O", of, "add-flow", "br0", rule]).unwrap_or_else(|e| panic!("{rule}: {e}"));
        }
        self.verdict(&["-O", of, "add-flow", "br0", "priority=65535,dl_type=0x88b5,actions=2,3"]).unwrap();
    }

    /// What each switch sends out of p2 and p3 for a frame at p1.
    fn fates(&mut self, frame: &[u8]) -> [[Vec<String>; 2]; 2] {
        self.stock.receive("p1", frame);
        let stock = ["p2", "p3"].map(|p| self.stock.take_sent(p).iter().map(|f| hex(f)).collect());
        let end = hex(&ethernet(0x88b5, &[0; 46]));
        self.ours.receive("p1", &hex(frame));
        let mut ours: [Vec<String>; 2] = Default::default();
        // The first may overtake the frame, being of another flow of the same burst. The second comes a burst
        // later.
        for ends in 1..=2 {
            self.ours.receive("p1", &end);
            for (port, frames) in ["p2", "p3"].into_iter().zip(&mut ours) {
                wait_for("the last frame", || {
                    let text = self.ours.appctl(&["netdev-dummy/sent", port]).ok();
                    frames.extend(text.lines().map(str::to_owned));
                    frames.iter().filter(|f| **f == end).count() == ends
                });
            }
        }
        ours.iter_mut().for_each(|frames| frames.retain(|f| *f != end));
        [ours, stock]
    }

    /// Whether the switches differ in what they make of a frame.
    pub fn differ(&mut self, frame: &[u8]) -> bool {
        let [ours, stock] = self.fates(frame);
        ours != stock
    }

    /// From now on nothing expires.
    pub fn stop_time(&mut self) {
        self.stock.appctl("time/stop", &[]);
        self.appctl_ours(&["time/stop"]);
    }

    /// What a command says on our switch and on the stock switch.
    pub fn appctl_both(&mut self, command: &str, args: &[&str]) -> [String; 2] {
        let ours: Vec<&str> = [command].iter().chain(args).copied().collect();
        let reply = self.stock.try_appctl(command, args);
        // A text in JSON.
        let said = |from: &str, to: &str| {
            let text = reply.split_once(from).and_then(|(_, rest)| rest.split_once(to));
            text.map(|(text, _)| text.replace("\\n", "\n").replace("\\\"", "\""))
        };
        let stock = said("\"result\":\"", "\",\"error\":null").or_else(|| said("\"error\":\"", "\"}"));
        let stock = stock.unwrap_or_else(|| panic!("the stock switch says {reply}"));
        let ours = self.ours.appctl(&ours);
        // The client adds a line about the switch.
        let is_said = |line: &&str| !line.ends_with("server returned an error");
        let refusal = || ours.err.lines().filter(is_said).map(|line| format!("{line}\n")).collect();
        [if ours.code == Some(0) { ours.out.clone() } else { refusal() }, stock]
    }

    pub fn appctl_ours(&self, args: &[&str]) -> String {
        self.ours.appctl(args).ok()
    }

    #[track_caller]
    pub fn same_fates(&mut self, what: &str, frames: &[(&str, Vec<u8>)]) {
        for (name, frame) in frames {
            let [ours, stock] = self.fates(frame);
            assert_eq!(ours, stock, "ours and the stock switch's: {what}, {name}, {}", hex(frame));
        }
    }
}

/// The name of the error, if it is one.
fn verdict((text, success): &(String, bool)) -> Verdict {
    if let Some((_, error)) = text.split_once("OFPT_ERROR") {
        let name = error.split_once("): ").map_or(error, |(_, name)| name);
        return Err(name.lines().next().unwrap_or_default().to_owned());
    }
    // What the client itself refuses says nothing of the switch.
    assert!(*success, "the client says: {text}");
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn ethernet(eth_type: u16, payload: &[u8]) -> Vec<u8> {
    let addresses = [0x50, 0x54, 0, 0, 0, 7, 0x50, 0x54, 0, 0, 0, 5];
    [&addresses[..], &eth_type.to_be_bytes(), payload].concat()
}

/// An IPv4 packet; `fragment` is the word with flags and offset.
pub fn ipv4(protocol: u8, fragment: u16, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut header = [0x45, 0xb8, 0, 0, 0, 7, 0, 0, ttl, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    let sum = wire::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header[..], payload].concat()
}

fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; 40];
    header[0] = 0x6b;
    header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    header[6] = protocol;
    header[7] = 64;
    header[8] = 0xfd;
    header[23] = 1;
    header[24] = 0xfd;
    header[39] = 2;
    [&header[..], payload].concat()
}

pub fn udp() -> Vec<u8> {
    [&[0, 53, 0x12, 0x34, 0, 26, 0xab, 0xcd][..], &[7; 18]].concat()
}

fn tcp(flags: u8) -> Vec<u8> {
    [&[0, 80, 0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 16, 0, 0xab, 0xcd, 0, 0][..], &[7; 8]].concat()
}

fn sctp() -> Vec<u8> {
    [&[0, 90, 0x12, 0x34, 0, 0, 0, 1, 1, 2, 3, 4][..], &[0, 3, 0, 20], &[7; 16]].concat()
}

fn arp(hardware: u16, op: u16) -> Vec<u8> {
    let mut bytes =
        vec![0, 1, 8, 0, 6, 4, 0, 1, 0x50, 0x54, 0, 0, 0, 5, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    bytes[..2].copy_from_slice(&hardware.to_be_bytes());
    bytes[6..8].copy_from_slice(&op.to_be_bytes());
    bytes.extend([0; 18]);
    ethernet(0x806, &bytes)
}

/// Packets with every header that actions change.
pub fn whole_packets() -> Vec<(&'static str, Vec<u8>)> {
    let v4 = |packet: Vec<u8>| ethernet(0x800, &packet);
    let v6 = |packet: Vec<u8>| ethernet(0x86dd, &packet);
    vec![
        ("UDP", v4(ipv4(17, 0, 64, &udp()))),
        ("TCP", v4(ipv4(6, 0, 64, &tcp(0x10)))),
        ("TCP with FIN", v4(ipv4(6, 0x4000, 64, &tcp(0x11)))),
        ("SCTP", v4(ipv4(132, 0, 64, &sctp()))),
        (
            "ICMP",
            v4(ipv4(
                1,
                0,
                64,
                &[8, 0, 0xf7, 0xff, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8],
            )),
        ),
        ("protocol 99", v4(ipv4(99, 0, 64, &[9; 30]))),
        ("a first fragment", v4(ipv4(17, 0x2000, 64, &udp()))),
        ("a later fragment", v4(ipv4(17, 0x2005, 64, &udp()))),
        ("TTL 1", v4(ipv4(17, 0, 1, &udp()))),
        ("UDP without checksum", v4(ipv4(17, 0, 64, &[&udp()[..6], &[0, 0], &udp()[8..]].concat()))),
        ("UDP over IPv6", v6(ipv6(17, &udp()))),
        ("TCP over IPv6", v6(ipv6(6, &tcp(0x12)))),
        ("SCTP over IPv6", v6(ipv6(132, &sctp()))),
        ("ICMPv6", v6(ipv6(58, &[128, 0, 0xf7, 0xff, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]))),
        ("ARP", arp(1, 1)),
        ("tagged UDP", ethernet(0x8100, &[&[0x60, 10, 8, 0][..], &ipv4(17, 0, 64, &udp())].concat())),
        ("MPLS", ethernet(0x8847, &[&[0, 0x10, 0x01, 0x40][..], &ipv4(17, 0, 64, &udp())].concat())),
        ("something else", ethernet(0x88cc, &[5; 46])),
    ]
}

#[test]
fn fields_are_read_and_written_at_their_full_width() {
    let mut both = Both::start();
    let answer = "arp,arp_op=1,actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:00:00:00:00:09,\
        load:2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],load:0x020000000009->NXM_NX_ARP_SHA[],\
        push:NXM_OF_ARP_SPA[],move:NXM_OF_ARP_TPA[]->NXM_OF_ARP_SPA[],pop:NXM_OF_ARP_TPA[],2,IN_PORT";
    let packets = || whole_packets().into_iter().chain([("an ARP reply", arp(1, 2))]).collect::<Vec<_>>();
    both.rules("OpenFlow10", &[answer]);
    both.same_fates("the ARP responder", &packets());
    for actions in [
        "move:NXM_OF_ARP_OP[]->NXM_NX_REG0[0..15],resubmit(,1)",
        "push:NXM_OF_ARP_OP[],pop:NXM_NX_REG0[0..15],resubmit(,1)",
        "load:2->NXM_OF_ARP_OP[],move:NXM_OF_ARP_OP[0..15]->NXM_NX_REG0[0..15],resubmit(,1)",
        "load:300->NXM_OF_ARP_OP[],2",
        "load:1->NXM_OF_ARP_OP[8..15],2",
        "move:OXM_OF_IN_PORT[]->NXM_NX_REG0[],resubmit(,1)",
        "push:OXM_OF_IN_PORT[],pop:NXM_NX_REG0[],resubmit(,1)",
        "load:2->NXM_NX_REG0[],move:NXM_NX_REG0[]->OXM_OF_IN_PORT[],IN_PORT,3",
        "load:0xfffffffe->OXM_OF_IN_PORT[],move:OXM_OF_IN_PORT[]->NXM_NX_REG0[],resubmit(,1)",
        "load:0->OXM_OF_IN_PORT[],2",
        "load:0->NXM_OF_IN_PORT[],output:OXM_OF_IN_PORT[],3",
        "output:OXM_OF_IN_PORT[],3",
        "output:0,3",
    ] {
        let rules = [
            &format!("arp,actions={actions}"),
            "table=1,reg0=1,actions=2",
            "table=1,reg0=2,actions=3",
            "table=1,reg0=0xfffffffe,actions=2,3",
        ];
        both.rules("OpenFlow10", &rules);
        both.same_fates(actions, &[("an ARP request", arp(1, 1)), ("an ARP reply", arp(1, 2))]);
    }
    both.rules("OpenFlow13", &["arp,actions=set_field:2->arp_op,2"]);
    both.same_fates("set_field:2->arp_op", &packets());
    // Each field that actions may write, as a whole; registers beside, since two fields of one width take
    // each other's bits.
    for field in Mf::simple().filter(|f| f.row().writable) {
        let (Some(name), width) = (field.wire_name(), field.row().subfield_bits) else { continue };
        let matching = match field.row().prereq {
            Prereq::Vlan => "dl_vlan=10",
            Prereq::Arp => "arp",
            Prereq::Ipv4 | Prereq::Ip => "ip",
            Prereq::Ipv6 => "ipv6",
            Prereq::Mpls => "mpls",
            Prereq::Tcp => "tcp",
            Prereq::Udp => "udp",
            Prereq::Sctp => "sctp",
            Prereq::Icmpv4 => "icmp",
            Prereq::Icmpv6 => "icmp6",
            Prereq::Nd | Prereq::NdSolicit => "icmp6,icmp_type=135,icmp_code=0",
            Prereq::NdAdvert => "icmp6,icmp_type=136,icmp_code=0",
            // What is not there needs no width.
            Prereq::Nsh | Prereq::Ct => continue,
            Prereq::None | Prereq::Ethernet if field == Mf::VlanVid => "dl_vlan=10",
            Prereq::None | Prereq::Ethernet => "in_port=1",
        };
        if matches!(field, Mf::CtMark | Mf::CtLabel) {
            continue; // Not outside of `ct`.
        }
        let register = if width > 64 { "NXM_NX_XXREG1" } else { "OXM_OF_PKT_REG1" };
        let top = width - 1;
        let flow = format!(
            "{matching},actions=move:{register}[0..{top}]->{name}[],move:{name}[]->{register}[0..{top}],push:{name}[],\
             pop:{name}[0..{top}],2"
        );
        let verdict = both.verdict(&["-O", "OpenFlow13", "add-flow", "br0", &flow]);
        assert_eq!(verdict, Ok(()), "{flow}");
    }
}

#[test]
fn transport_ports_and_ttls_are_set_as_by_the_stock_switch() {
    let mut both = Both::start();
    for actions in [
        "mod_tp_src:4242,2",
        "mod_tp_dst:4242,2",
        "2,mod_tp_src:1,mod_tp_dst:2,3",
        "mod_tp_dst:4660,2",
        "ct_clear,2",
    ] {
        both.rules("OpenFlow10", &[&format!("actions={actions}")]);
        both.same_fates(actions, &whole_packets());
    }
    for (matching, actions) in [
        ("ip", "mod_nw_ttl:9,2"),
        ("ipv6", "mod_nw_ttl:9,2"),
        ("ip", "write_actions(mod_nw_ttl:7,output:3)"),
        ("tcp", "write_actions(ct_clear,output:3),goto_table:1"),
        ("tcp", "mod_tp_src:5,mod_tp_dst:6,2"),
        ("sctp", "mod_tp_src:5,2"),
        ("udp6", "mod_tp_src:5,2"),
    ] {
        both.rules("OpenFlow13", &[&format!("{matching},actions={actions}")]);
        both.same_fates(actions, &whole_packets());
    }
}

/// Packets whose headers contradict themselves or their length, or end early.
fn broken_packets() -> Vec<(&'static str, Vec<u8>)> {
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = ethernet(0x800, &ipv4(17, 0, 64, &udp()));
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut cut_tcp = ethernet(0x800, &ipv4(6, 0, 64, &tcp(2)[..12]));
    cut_tcp.extend([0; 20]);
    let mut long_tcp = ethernet(0x800, &ipv4(6, 0, 64, &tcp(2)));
    long_tcp[46] = 0xf0;
    let mut v6 = ethernet(0x86dd, &ipv6(17, &udp()));
    v6[18] = 9;
    vec![
        ("a header of 16 bytes", with(14, &[0x44])),
        ("a header of 60 bytes where there are fewer", with(14, &[0x4f])),
        ("a total length beyond the frame", with(16, &[9, 0])),
        ("a total length below the header", with(16, &[0, 19])),
        ("protocol 0", with(23, &[0])),
        ("a header that is cut off", with(0, &[])[..32].to_vec()),
        ("a TCP header that is cut off", cut_tcp),
        ("a TCP header longer than the packet", long_tcp),
        ("an IPv6 payload beyond the frame", v6),
        ("an ARP packet of another hardware", arp(6, 1)),
        ("an ARP packet with opcode 300", arp(1, 300)),
        ("an ARP packet that is cut off", arp(1, 1)[..36].to_vec()),
    ]
}

#[test]
fn what_has_not_been_read_is_left_alone() {
    let mut both = Both::start();
    for (matching, actions) in [
        ("ip", "mod_nw_src:1.2.3.4,2"),
        ("ip", "mod_nw_dst:1.2.3.4,mod_nw_tos:4,2"),
        ("arp", "load:0x01020304->NXM_OF_ARP_SPA[],2"),
        ("tcp", "mod_tp_dst:9,2"),
        ("in_port=1", "mod_nw_src:1.2.3.4,mod_nw_dst:1.2.3.5,mod_nw_tos:8,2"),
        ("in_port=1", "mod_tp_src:1,mod_tp_dst:2,2"),
        ("in_port=1", "strip_vlan,2"),
        ("in_port=1", "set_mpls_ttl:9,2"),
    ] {
        both.rules("OpenFlow10", &[&format!("{matching},actions={actions}")]);
        // Where an address changes, the stock switch takes the payload of a later fragment for a header with
        // a checksum.
        let whole = whole_packets().into_iter().filter(|(name, _)| *name != "a later fragment");
        let all: Vec<_> = broken_packets().into_iter().chain(whole).collect();
        both.same_fates(&format!("{matching},{actions}"), &all);
    }
    for (matching, actions) in [("ip", "set_field:7->nw_ttl,2"), ("ipv6", "set_field:fd00::7->ipv6_src,2")] {
        both.rules("OpenFlow13", &[&format!("{matching},actions={actions}")]);
        // The stock switch leaves the TTL of such a packet as it is, which then goes round for ever.
        let is_compared = |name: &str| name != "protocol 0" || !actions.contains("nw_ttl");
        let broken: Vec<_> = broken_packets().into_iter().filter(|(name, _)| is_compared(name)).collect();
        both.same_fates(&format!("{matching},{actions}"), &broken);
    }
}

#[test]
fn a_pop_of_a_label_leaves_what_the_stock_switch_leaves() {
    let stacks: Vec<_> = ["one", "two", "three", "four", "five"]
        .into_iter()
        .enumerate()
        .map(|(above, name)| {
            let labels = [[0, 0x10, 0, 64].repeat(above), vec![0, 0x20, 1, 64]].concat();
            (name, ethernet(0x8847, &[labels, ipv4(17, 0, 64, &udp())].concat()))
        })
        .collect();
    let mut both = Both::start();
    for actions in [
        "pop_mpls:0x800,2",
        "3,pop_mpls:0x86dd,2",
        "pop_mpls:0x1234,2",
        "pop_mpls:0x800,dec_ttl,2",
        "pop_mpls:0x800,push_mpls:0x8847,2",
        "set_field:77->mpls_label,pop_mpls:0x800,2",
    ] {
        both.rules("OpenFlow13", &[&format!("mpls,actions={actions}")]);
        both.same_fates(actions, &stacks);
    }
    // The stock switch pops no label of more than three.
    for actions in ["pop_mpls:0x8847,2", "pop_mpls:0x8848,pop_mpls:0x800,2"] {
        both.rules("OpenFlow13", &[&format!("mpls,actions={actions}")]);
        both.same_fates(actions, &stacks[1..3]);
    }
}

#[test]
fn rules_are_taken_and_refused_by_version_as_by_the_stock_switch() {
    let both = Both::start();
    let inconsistent = Err("OFPBAC_MATCH_INCONSISTENT".to_owned());
    let not_permitted = Err("OFPBRC_EPERM".to_owned());
    for (flow, expected) in [
        ("in_port=1,actions=mod_nw_src:1.2.3.4,2", &Ok(())),
        ("in_port=1,actions=mod_nw_dst:1.2.3.4,2", &Ok(())),
        ("in_port=1,actions=mod_nw_tos:4,2", &Ok(())),
        ("in_port=1,actions=mod_nw_ecn:1,2", &inconsistent),
        ("in_port=1,actions=mod_nw_ttl:1,2", &inconsistent),
        ("in_port=1,actions=dec_ttl,2", &Ok(())),
        ("in_port=1,actions=pop_mpls:0x800,2", &Ok(())),
        ("in_port=1,actions=set_mpls_ttl:5,dec_mpls_ttl,2", &Ok(())),
        ("in_port=1,actions=strip_vlan,2", &Ok(())),
        ("in_port=1,actions=mod_tp_src:5,2", &Ok(())),
        ("ip,actions=push_mpls:0x8847,dec_ttl,2", &Ok(())),
        ("recirc_id=1,actions=2", &not_permitted),
        ("recirc_id=0,in_port=3,actions=2", &Ok(())),
        ("dp_hash=1,actions=2", &not_permitted),
        ("actions=output:0", &Ok(())),
        ("actions=load:0->NXM_OF_IN_PORT[],2", &Ok(())),
        ("actions=load:0->OXM_OF_IN_PORT[],2", &Ok(())),
    ] {
        assert_eq!(&both.verdict(&["add-flow", "br0", flow]), expected, "{flow}");
    }
    for flow in ["mod-flows recirc_id=1,actions=2", "mod-flows dp_hash=1/1,actions=2"] {
        let (command, flow) = flow.split_once(' ').unwrap();
        assert_eq!(both.verdict(&[command, "br0", flow]), not_permitted, "{flow}");
    }
    let arp = "packet=ffffffffffff50540000000508060001080006040001505400000005c0a80001000000000000c0a80002";
    for (of, actions, expected) in [
        ("OpenFlow10", "dec_ttl,2", &Ok(())),
        ("OpenFlow10", "load:5->NXM_NX_IP_TTL[],2", &inconsistent),
        ("OpenFlow13", "dec_ttl,2", &inconsistent),
        ("OpenFlow13", "pop_vlan,2", &inconsistent),
        ("OpenFlow13", "set_field:1.2.3.4->arp_spa,2", &Ok(())),
        ("OpenFlow13", "set_field:1.2.3.4->ip_src,2", &inconsistent),
    ] {
        let out = format!("in_port=1,{arp},actions={actions}");
        assert_eq!(&both.verdict(&["-O", of, "packet-out", "br0", &out]), expected, "{out}");
    }
    for of in ["OpenFlow10", "OpenFlow13"] {
        let args = ["-O", of, "dump-ports", "br0", "99"];
        let (ours, stock) = (both.ours(&args), both.stock.try_ofctl(&args));
        assert_eq!(ours, stock);
        assert!(ours.0.contains("0 ports") && ours.1, "{ours:?}");
    }
}

#[test]
fn action_sets_hold_what_those_of_the_stock_switch_hold() {
    let both = Both::start();
    let mut refused = 0;
    for actions in [
        "output:2",
        "enqueue:2:1",
        "set_queue:1",
        "pop_queue",
        "pop_vlan",
        "push_vlan:0x8100",
        "mod_vlan_vid:5",
        "load:5->NXM_NX_REG0[0..3]",
        "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
        "push:NXM_NX_REG0[]",
        "pop:NXM_NX_REG0[]",
        "resubmit(,1)",
        "controller",
        "controller(reason=no_match)",
        "output:NXM_NX_REG0[]",
        "output(port=2,max_len=100)",
        "NORMAL",
        "dec_ttl",
        "dec_ttl(1,2)",
        "dec_mpls_ttl",
        "set_mpls_ttl(5)",
        "set_mpls_label(5)",
        "push_mpls:0x8847",
        "pop_mpls:0x800",
        "set_tunnel:5",
        "note:01.02",
        "exit",
        "sample(probability=1,collector_set_id=1)",
        "clone(2)",
        "conjunction(1,1/2)",
        "ct_clear",
        "fin_timeout(idle_timeout=1)",
        "check_pkt_larger(100)->NXM_NX_REG0[0]",
        "output:2,output:3",
    ] {
        for matching in ["ip", "mpls", "in_port=1"] {
            let flow = format!("{matching},actions=write_actions({actions})");
            refused += u32::from(both.verdict(&["-O", "OpenFlow13", "add-flow", "br0", &flow]).is_err());
        }
    }
    assert!(refused > 30, "{refused}");
    for (flow, taken) in [
        ("in_port=1,actions=goto_table:254", true),
        ("table=253,actions=goto_table:254", true),
        ("dl_type=0x894f,nsh_ttl=63,actions=2", true),
        ("dl_type=0x894f,nsh_ttl=64,actions=2", false),
        ("dl_type=0x894f,nsh_ttl=255,actions=2", false),
    ] {
        assert_eq!(both.verdict(&["-O", "OpenFlow13", "add-flow", "br0", flow]).is_ok(), taken, "{flow}");
    }
    for bit in ["no-stp", "stp", "no-receive-stp", "receive-stp", "no-flood", "flood"] {
        both.verdict(&["mod-port", "br0", "p1", bit]).unwrap();
        let config = |(text, _): (String, bool)| {
            let port = text.split("1(p1)").nth(1).unwrap().split("config:").nth(1).unwrap();
            port.lines().next().unwrap().to_owned()
        };
        let args = ["show", "br0"];
        assert_eq!(config(both.ours(&args)), config(both.stock.try_ofctl(&args)), "{bit}");
    }
}

#[test]
fn the_end_of_a_connection_lowers_timeouts_as_in_the_stock_switch() {
    let mut both = Both::start();
    let timeouts = |text: &str| {
        let rule = text.lines().find(|line| line.contains("fin_timeout")).expect("the rule");
        let fields = rule.split(" actions=").next().unwrap().split(", ");
        fields.filter(|field| field.contains("_timeout=")).collect::<Vec<_>>().join(",")
    };
    let v4 = |packet: Vec<u8>| ethernet(0x800, &packet);
    let end = v4(ipv4(6, 0, 64, &tcp(0x11)));
    let reset6 = ethernet(0x86dd, &ipv6(6, &tcp(0x04)));
    let (short, long) = ("fin_timeout(idle_timeout=300)", "fin_timeout(idle_timeout=400,hard_timeout=500)");
    for (of, matching, action, frame, lowered) in [
        ("OpenFlow10", "idle_timeout=600", short, &end, "idle_timeout=300"),
        ("OpenFlow10", "idle_timeout=600", short, &reset6, "idle_timeout=300"),
        ("OpenFlow10", "idle_timeout=600", short, &v4(ipv4(6, 0, 64, &tcp(0x12))), "idle_timeout=600"),
        ("OpenFlow10", "idle_timeout=600", short, &v4(ipv4(17, 0, 64, &udp())), "idle_timeout=600"),
        ("OpenFlow10", "idle_timeout=600", short, &v4(ipv4(6, 0x2005, 64, &tcp(0x11))), "idle_timeout=600"),
        ("OpenFlow13", "idle_timeout=300,tcp", long, &end, "idle_timeout=300,hard_timeout=500"),
        ("OpenFlow13", "tcp6", long, &reset6, "idle_timeout=400,hard_timeout=500"),
    ] {
        let rule = format!("{matching},actions={action},2");
        both.rules(of, &[&rule]);
        both.same_fates(&rule, &[("a packet", frame.clone())]);
        assert_eq!(timeouts(&both.stock.ofctl(&["dump-flows", "br0"])), lowered, "stock: {rule}");
        wait_for(&format!("{lowered} of {rule}"), || {
            timeouts(&both.ours(&["dump-flows", "br0"]).0) == lowered
        });
    }
}

#[test]
fn a_frame_travels_in_a_service_header_and_comes_out_as_it_went_in() {
    let switch = Switch::dummy();
    let add = |flow: &str| switch.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", flow]).ok();
    add("in_port=1,actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,encap(ethernet),\
         set_field:11:22:33:44:55:66->eth_dst,2");
    add("in_port=2,dl_type=0x894f,nsh_spi=0x1234,actions=decap(),decap(),1");
    let within = "505400000007505400000005080045000014000000004011000000000000000000000000";
    // Once by translation, once by the cached flow.
    for _ in 0..2 {
        switch.receive("p1", within);
        let header = "112233445566000000000000894f0fc60103001234ff00000000000000000000000000000000";
        let outer = format!("{header}{within}");
        assert_eq!(switch.sent("p2", 1), [outer.as_str()]);
        switch.receive("p2", &outer);
        assert_eq!(switch.sent("p1", 1), [within]);
    }
    // A header that is cut off is none.
    switch.receive("p2", "112233445566000000000000894f0fc60103001234ff00000000");
    switch.receive("p1", within);
    switch.sent("p2", 1);
    assert_eq!(switch.sent("p1", 0), Vec::<String>::new());
}

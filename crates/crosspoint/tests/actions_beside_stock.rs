//! Actions beside the stock switch: which rules and packet-outs both take and which they refuse, and with which error; and
//! what both make of whole, odd and broken packets.

mod common;

use common::{Switch, wait_for};
use testkit::stock::Stock;

/// Both switches, with a bridge br0 and dummy ports p1 to p3 each.
struct Both {
    ours: Switch,
    stock: Stock,
}

/// What comes of a request: what was said, or the error.
type Verdict = Result<(), String>;

impl Both {
    fn start(name: &str) -> Both {
        let stock = Stock::start(name);
        let mut commands =
            "add-br br0 -- set Bridge br0 fail_mode=secure datapath_type=dummy other_config:hwaddr=02:00:00:00:00:01 \
             protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14"
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

    fn ours(&self, args: &[&str]) -> (String, bool) {
        let said = self.ours.ofctl(args);
        (said.out + &said.err, said.code == Some(0))
    }

    /// The same request to both. Each must say the same.
    #[track_caller]
    fn verdict(&self, args: &[&str]) -> Verdict {
        let (ours, stock) = (self.ours(args), self.stock.try_ofctl(args));
        let verdicts = (verdict(&ours), verdict(&stock));
        assert_eq!(
            verdicts.0, verdicts.1,
            "ours and the stock switch's, of {args:?}:\n{}\n{}",
            ours.0, stock.0
        );
        verdicts.0
    }

    #[track_caller]
    fn rules(&self, of: &str, rules: &[&str]) {
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
        self.ours.receive("p1", &end);
        let ours = ["p2", "p3"].map(|p| {
            let mut frames: Vec<String> = vec![];
            wait_for("the last frame", || {
                frames.extend(self.ours.appctl(&["netdev-dummy/sent", p]).ok().lines().map(str::to_owned));
                frames.last() == Some(&end)
            });
            frames.pop();
            frames
        });
        [ours, stock]
    }

    #[track_caller]
    fn same_fates(&mut self, what: &str, frames: &[(&str, Vec<u8>)]) {
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

fn ethernet(eth_type: u16, payload: &[u8]) -> Vec<u8> {
    let addresses = [0x50, 0x54, 0, 0, 0, 7, 0x50, 0x54, 0, 0, 0, 5];
    [&addresses[..], &eth_type.to_be_bytes(), payload].concat()
}

/// An IPv4 packet; `fragment` is the word with flags and offset.
fn ipv4(protocol: u8, fragment: u16, ttl: u8, payload: &[u8]) -> Vec<u8> {
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

fn udp() -> Vec<u8> {
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
fn whole_packets() -> Vec<(&'static str, Vec<u8>)> {
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
fn transport_ports_and_ttls_are_set_as_by_the_stock_switch() {
    let mut both = Both::start("set-ports");
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

#[test]
fn what_is_not_carried_out_is_refused_as_such_and_harms_nobody() {
    let switch = Switch::dummy();
    for flow in [
        "tcp,actions=fin_timeout(idle_timeout=3),2",
        "actions=check_pkt_larger(100)->NXM_NX_REG0[0],2",
        "actions=clone(check_pkt_larger(100)->NXM_NX_REG0[0],2)",
    ] {
        let said = switch.ofctl(&["add-flow", "br0", flow]).failed();
        assert!(said.contains("OFPBAC_BAD_TYPE"), "{said}");
    }
    let frame = "packet=50540000000750540000000508004500";
    for actions in ["check_pkt_larger(100)->NXM_NX_REG0[0]", "dec_ttl,check_pkt_larger(100)->NXM_NX_REG0[0]"]
    {
        let said =
            switch.ofctl(&["packet-out", "br0", &format!("in_port=1,{frame},actions={actions}")]).failed();
        assert!(said.contains("OFPBAC_BAD_TYPE"), "{said}");
    }
    switch.add_flow("in_port=1,actions=2");
    switch.receive("p1", common::UDP);
    switch.sent("p2", 1);
}

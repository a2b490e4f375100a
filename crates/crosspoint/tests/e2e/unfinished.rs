//! Packets that guests leave to be finished (checksums, segmentation) through all that changes packets: what
//! each receiver gets is summed and put together again here, by code of this file alone.

use crate::common::{Switch, wait_for};
use crate::controller::Controller;
use guest::{Guest, GuestConfig, QueuePair};
use openflow::message::{Message, SwitchConfig};
use openflow::{Event, Version};
use ports::vhost_user::features::device as d;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use wire::compose::Compose;
use wire::ethernet::EthAddr;
use wire::tcp::TcpFlags;
use wire::vlan::VlanId;

const SEQUENCE: u32 = u32::MAX - 1_500;
const ID: u16 = 0xfffe;
const FIN: u8 = 1;
const PSH: u8 = 8;
const ACK: u8 = 16;
const CWR: u8 = 128;

/// What is sent: a packet as a driver leaves it to its device.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Kind {
    is_v6: bool,
    is_tcp: bool,
    is_tagged: bool,
    len: usize,
    /// 0: the checksum alone is left.
    gso_size: u16,
}

impl Kind {
    fn all() -> Vec<Kind> {
        let sizes =
            [(1, 0), (400, 0), (1_400, 0), (1_001, 1_000), (5_001, 999), (40_000, 1_400), (60_000, 1_400)];
        let mut all = Vec::new();
        for n in 0..8 {
            for (len, gso_size) in sizes {
                let (is_v6, is_tcp, is_tagged) = (n & 1 != 0, n & 2 != 0, n & 4 != 0);
                all.push(Kind { is_v6, is_tcp, is_tagged, len, gso_size });
            }
        }
        all
    }

    fn addresses(&self) -> [IpAddr; 2] {
        if self.is_v6 {
            ["fd00::1", "fd00::2"].map(|a| a.parse::<Ipv6Addr>().unwrap().into())
        } else {
            ["10.0.0.1", "10.0.0.2"].map(|a| a.parse::<Ipv4Addr>().unwrap().into())
        }
    }

    fn payload(&self) -> Vec<u8> {
        (0..self.len).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    /// The virtio-net header and the frame. `port` tells connections apart.
    fn build(&self, port: u16) -> ([u8; 12], Vec<u8>) {
        let [src, dst] = self.addresses();
        let mut compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
        if self.is_tagged {
            compose = compose.vlan(VlanId::new(7).unwrap());
        }
        let compose = compose.ip(src, dst).unwrap();
        let flags = TcpFlags::from_bits(u16::from(FIN | PSH | ACK | CWR));
        let compose =
            if self.is_tcp { compose.tcp(port, 80).tcp_flags(flags) } else { compose.udp(port, 80) };
        let mut frame = compose.payload(&self.payload()).build().unwrap();
        let places = places(&frame);
        if !self.is_v6 {
            frame[places.l3 + 4..places.l3 + 6].copy_from_slice(&ID.to_be_bytes());
            frame[places.l3 + 10..places.l3 + 12].fill(0);
            let sum = !sum(&frame[places.l3..places.l4]);
            frame[places.l3 + 10..places.l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        if self.is_tcp {
            frame[places.l4 + 4..places.l4 + 8].copy_from_slice(&SEQUENCE.to_be_bytes());
        }
        let mut header = unfinish(&mut frame);
        if self.gso_size > 0 {
            header[1] = match (self.is_tcp, self.is_v6) {
                (true, false) => 1,
                (true, true) => 4,
                (false, _) => 5,
            } | if self.is_tcp { 0x80 } else { 0 };
            header[2..4].copy_from_slice(&(places.payload as u16).to_ne_bytes());
            header[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        }
        (header, frame)
    }
}

/// Takes a frame's checksum away; the header that says so.
fn unfinish(frame: &mut [u8]) -> [u8; 12] {
    let places = places(frame);
    let pseudo = places.pseudo(frame);
    frame[places.sum..places.sum + 2].copy_from_slice(&pseudo.to_be_bytes());
    let mut header = [0; 12];
    header[0] = 1;
    header[6..8].copy_from_slice(&(places.l4 as u16).to_ne_bytes());
    header[8] = (places.sum - places.l4) as u8;
    header
}

/// The folded sum of the words, in network order.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |b| u64::from(*b)));
    let mut total: u64 = words.sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Where the headers of a frame are.
struct Places {
    tags: Vec<u16>,
    is_v6: bool,
    is_tcp: bool,
    l3: usize,
    l4: usize,
    sum: usize,
    payload: usize,
}

fn places(frame: &[u8]) -> Places {
    let (mut at, mut tags) = (12, Vec::new());
    while matches!(word(frame, at), 0x8100 | 0x88a8) {
        tags.push(word(frame, at + 2) & 0xfff);
        at += 4;
    }
    let is_v6 = word(frame, at) == 0x86dd;
    assert!(is_v6 || word(frame, at) == 0x0800, "{frame:02x?}");
    let l3 = at + 2;
    let l4 = l3 + if is_v6 { 40 } else { 4 * usize::from(frame[l3] & 15) };
    let is_tcp = frame[if is_v6 { l3 + 6 } else { l3 + 9 }] == 6;
    let payload = l4 + if is_tcp { 4 * usize::from(frame[l4 + 12] >> 4) } else { 8 };
    Places { tags, is_v6, is_tcp, l3, l4, sum: l4 + if is_tcp { 16 } else { 6 }, payload }
}

impl Places {
    fn pseudo(&self, frame: &[u8]) -> u16 {
        let addresses = if self.is_v6 { self.l3 + 8..self.l3 + 40 } else { self.l3 + 12..self.l3 + 20 };
        let mut bytes = frame[addresses].to_vec();
        bytes.extend(((frame.len() - self.l4) as u32).to_be_bytes());
        bytes.extend([0, if self.is_tcp { 6 } else { 17 }]);
        sum(&bytes)
    }
}

/// A packet as it was received, its frames put together again.
#[derive(PartialEq, Debug)]
struct Whole {
    tags: Vec<u16>,
    addresses: [IpAddr; 2],
    ports: [u16; 2],
    macs: Vec<u8>,
    ttl: u8,
    payload: Vec<u8>,
}

/// Where the headers are of a frame that is finished: lengths and checksums are right.
fn checked(frame: &[u8]) -> Places {
    let at = places(frame);
    let (ip, l4) = (&frame[at.l3..], &frame[at.l4..]);
    if at.is_v6 {
        assert_eq!(usize::from(word(ip, 4)), ip.len() - 40, "length of IPv6");
    } else {
        assert_eq!(usize::from(word(ip, 2)), ip.len(), "length of IPv4");
        assert_eq!(sum(&ip[..at.l4 - at.l3]), 0xffff, "checksum of IPv4");
    }
    let total = u32::from(at.pseudo(frame)) + u32::from(sum(l4));
    assert_eq!((total & 0xffff) + (total >> 16), 0xffff, "checksum: {frame:02x?}");
    assert!(at.is_tcp || usize::from(word(l4, 4)) == l4.len(), "length of UDP");
    at
}

/// Puts frames together, which are finished, after a look at each.
fn together(frames: &[Vec<u8>], gso_size: u16) -> Whole {
    let mut whole: Option<Whole> = None;
    for (n, frame) in frames.iter().enumerate() {
        let at = checked(frame);
        let is_last = n + 1 == frames.len();
        let ip = &frame[at.l3..];
        let address = |at: usize, len: usize| -> IpAddr {
            match len {
                4 => Ipv4Addr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap()).into(),
                _ => Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap()).into(),
            }
        };
        let (addresses, ttl) = if at.is_v6 {
            ([address(8, 16), address(24, 16)], ip[7])
        } else {
            assert_eq!(word(ip, 4), ID.wrapping_add(n as u16), "identification");
            ([address(12, 4), address(16, 4)], ip[8])
        };
        let l4 = &frame[at.l4..];
        let payload = &frame[at.payload..];
        let done = whole.as_ref().map_or(0, |whole| whole.payload.len());
        if at.is_tcp {
            let sequence = u32::from_be_bytes(l4[4..8].try_into().unwrap());
            assert_eq!(sequence, SEQUENCE.wrapping_add(done as u32), "sequence number");
            let first = if n == 0 { CWR } else { 0 };
            let last = if is_last { FIN | PSH } else { 0 };
            assert_eq!(l4[13], ACK | first | last, "flags of frame {n}");
        }
        assert!(gso_size == 0 && is_last || payload.len() <= usize::from(gso_size));
        assert!(is_last || payload.len() == usize::from(gso_size));
        let part = Whole {
            tags: at.tags,
            addresses,
            ports: [word(l4, 0), word(l4, 2)],
            macs: frame[..12].to_vec(),
            ttl,
            payload: payload.to_vec(),
        };
        match &mut whole {
            None => whole = Some(part),
            Some(whole) => {
                let (before, now) = (std::mem::take(&mut whole.payload), part.payload.clone());
                assert_eq!(Whole { payload: vec![], ..part }, *whole, "headers of frame {n}");
                whole.payload = [before, now].concat();
            }
        }
    }
    whole.unwrap()
}

/// Finishes what a guest's device was given: the checksum as its header says. The segment is one frame still.
fn finish(header: &[u8], frame: &[u8], kind: &Kind) -> Vec<u8> {
    let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let at = places(frame);
    assert_eq!(header[0], 1, "{header:?}");
    assert_eq!((usize::from(number(6)), usize::from(number(8))), (at.l4, at.sum - at.l4));
    assert_eq!(word(frame, at.sum), at.pseudo(frame), "the sum of the pseudo-header");
    assert_eq!(number(4), kind.gso_size);
    if kind.gso_size > 0 {
        let (sent, _) = kind.build(1);
        assert_eq!((header[1], usize::from(number(2))), (sent[1], at.payload));
    }
    let mut frame = frame.to_vec();
    let sum = match !sum(&frame[at.l4..]) {
        0 => 0xffff,
        sum => sum,
    };
    frame[at.sum..at.sum + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

struct Rig {
    switch: Switch,
    _guests: Vec<Guest>,
    /// Who sends, who takes nothing unfinished, who takes everything.
    pairs: Vec<QueuePair>,
}

impl Rig {
    fn new() -> Rig {
        let port = |n: u32| format!("g{n},type=dpdkvhostuser,ofport={n}");
        let dummy = "p4,type=dummy,ofport=4";
        let ports = [port(1), port(2), port(3)];
        let args = ["--bridge", "br0,fail-mode=secure", "--pool-size", "8192", "--port", &ports[0], "--port"];
        let args = [&args[..], &[&ports[1], "--port", &ports[2], "--port", dummy]].concat();
        let switch = Switch::start(&args);
        let taking =
            d::GUEST_CSUM | d::GUEST_TSO4 | d::GUEST_TSO6 | d::GUEST_ECN | d::GUEST_USO4 | d::GUEST_USO6;
        let mut guests: Vec<Guest> = [0, 0, taking]
            .iter()
            .enumerate()
            .map(|(n, features)| {
                let features = d::MRG_RXBUF | features;
                let config = GuestConfig { ring_size: 512, features, ..GuestConfig::default() };
                Guest::connect(&switch.file(format!("g{}", n + 1)), &config).unwrap()
            })
            .collect();
        guests.iter_mut().for_each(|guest| guest.synchronise().unwrap());
        let pairs = guests.iter_mut().map(|guest| guest.take_pairs().remove(0)).collect();
        Rig { switch, _guests: guests, pairs }
    }

    /// Sends a packet, and waits for so many bytes of payload at ports 2, 3 and 4, or at those of them that
    /// get some. The frames, finished.
    fn pass(&mut self, kind: &Kind, port: u16) -> [Vec<Vec<u8>>; 3] {
        let (header, frame) = kind.build(port);
        let frames = if kind.gso_size == 0 { 1 } else { kind.len.div_ceil(kind.gso_size.into()) };
        self.pass_frame(&header, &frame, kind, frames)
    }

    fn pass_frame(
        &mut self,
        header: &[u8; 12],
        frame: &[u8],
        kind: &Kind,
        frames: usize,
    ) -> [Vec<Vec<u8>>; 3] {
        wait_for("room in the ring", || self.pairs[0].send_with_header(header, frame));
        let (mut plain, mut whole) = (Vec::new(), Vec::new());
        wait_for(&format!("{kind:?} to come"), || {
            self.pairs[1].receive(64, |frame| plain.push(frame.to_vec()));
            self.pairs[2].receive_with_headers(64, |header, frame| whole.push(finish(header, frame, kind)));
            plain.len() >= frames && !whole.is_empty()
        });
        let shown = self.switch.sent("p4", frames);
        let shown = shown.iter().map(|hex| {
            let hex: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
            hex.chunks(2)
                .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
                .collect()
        });
        [plain, whole, shown.collect()]
    }
}

/// What is done to a packet, and what a packet becomes.
struct Way {
    name: &'static str,
    rules: &'static str,
    change: fn(&mut Whole, &Kind),
    /// Whether it is for these packets.
    takes: fn(&Kind) -> bool,
}

fn is_any(_: &Kind) -> bool {
    true
}

const WAYS: [Way; 8] = [
    Way { name: "as it is", rules: "in_port=1,actions=2,3,4\n", change: |_, _| (), takes: is_any },
    Way {
        name: "checked for its length",
        rules: "table=0,in_port=1,actions=check_pkt_larger(1486)->NXM_NX_REG0[0],resubmit(,1)\n\
                table=1,reg0=0,actions=2,3,4\n",
        change: |_, _| (),
        takes: is_any,
    },
    Way {
        name: "translated",
        rules: "table=0,in_port=1,ip,actions=ct(commit,nat(src=10.77.0.1),table=1)\n\
                table=0,in_port=1,ipv6,actions=ct(commit,nat(src=fd77::1),table=1)\n\
                table=1,ct_state=+trk+new-inv,actions=2,3,4\n",
        change: |whole, kind| {
            whole.addresses[0] =
                if kind.is_v6 { "fd77::1".parse().unwrap() } else { "10.77.0.1".parse().unwrap() };
        },
        takes: is_any,
    },
    Way {
        name: "set",
        rules: "in_port=1,tcp,actions=set_field:10.5.5.5->ip_src,set_field:10.6.6.6->ip_dst,set_field:8080->tcp_dst,\
                set_field:7->tcp_src,dec_ttl,2,3,4\n\
                in_port=1,udp,actions=set_field:10.5.5.5->ip_src,set_field:10.6.6.6->ip_dst,set_field:8080->udp_dst,\
                set_field:7->udp_src,dec_ttl,2,3,4\n\
                in_port=1,tcp6,actions=set_field:fd05::5->ipv6_src,set_field:fd06::6->ipv6_dst,\
                set_field:8080->tcp_dst,set_field:7->tcp_src,dec_ttl,2,3,4\n\
                in_port=1,udp6,actions=set_field:fd05::5->ipv6_src,set_field:fd06::6->ipv6_dst,\
                set_field:8080->udp_dst,set_field:7->udp_src,dec_ttl,2,3,4\n",
        change: |whole, kind| {
            whole.addresses = if kind.is_v6 { ["fd05::5", "fd06::6"] } else { ["10.5.5.5", "10.6.6.6"] }
                .map(|address| address.parse().unwrap());
            whole.ports = [7, 8080];
            whole.ttl -= 1;
        },
        takes: is_any,
    },
    Way {
        name: "tagged twice more",
        rules: "in_port=1,actions=push_vlan:0x8100,set_field:4105->vlan_vid,push_vlan:0x88a8,\
                set_field:4106->vlan_vid,2,3,4\n",
        change: |whole, _| {
            whole.tags.splice(..0, [10, 9]);
        },
        takes: |kind| !kind.is_tagged,
    },
    Way {
        name: "untagged",
        rules: "in_port=1,dl_vlan=7,actions=pop_vlan,2,3,4\n",
        change: |whole, _| whole.tags.clear(),
        takes: |kind| kind.is_tagged,
    },
    Way {
        name: "labelled and not, within clones, groups, meters and other tables",
        rules: "table=0,in_port=1,ip,actions=meter:1,clone(set_field:10.1.1.1->ip_src,push_vlan:0x8100,resubmit(,2)),\
                push_mpls:0x8847,set_field:77->mpls_label,pop_mpls:0x0800,resubmit(,1)\n\
                table=0,in_port=1,ipv6,actions=meter:1,clone(set_field:fd01::1->ipv6_src,push_vlan:0x8100,resubmit(,2)),\
                push_mpls:0x8847,set_field:77->mpls_label,pop_mpls:0x86dd,resubmit(,1)\n\
                table=1,actions=group:5\n\
                table=3,actions=2,3,4\n",
        change: |whole, _| whole.macs[0] = 0x0a,
        takes: |kind| !kind.is_tagged,
    },
    Way {
        name: "tracked, then sent back and translated",
        rules: "table=0,in_port=1,ip,actions=ct(commit,zone=3,nat(dst=10.88.0.1:99),table=1)\n\
                table=0,in_port=1,ipv6,actions=ct(commit,zone=3,nat(dst=[fd88::1]:99),table=1)\n\
                table=1,ip,ct_state=+trk+new-inv,actions=push_vlan:0x8100,set_field:4200->vlan_vid,\
                ct(zone=4,table=2)\n\
                table=1,ipv6,ct_state=+trk+new-inv,actions=push_vlan:0x8100,set_field:4200->vlan_vid,\
                ct(zone=4,table=2)\n\
                table=2,ct_state=+trk-inv,dl_vlan=104,actions=pop_vlan,2,3,4\n",
        change: |whole, kind| {
            whole.addresses[1] =
                if kind.is_v6 { "fd88::1".parse().unwrap() } else { "10.88.0.1".parse().unwrap() };
            whole.ports[1] = 99;
        },
        takes: |kind| !kind.is_tagged,
    },
];

#[test]
fn unfinished_packets_are_right_at_every_receiver_whatever_was_done_to_them() {
    let mut rig = Rig::new();
    rig.switch
        .ofctl(&["-O", "OpenFlow13", "add-meter", "br0", "meter=1,kbps,band=type=drop,rate=100000000"])
        .ok();
    let group = "group_id=5,type=select,bucket=actions=set_field:0a:00:00:00:00:02->eth_dst,resubmit(,3)";
    rig.switch.ofctl(&["-O", "OpenFlow13", "add-group", "br0", group]).ok();
    for way in &WAYS {
        std::fs::write(rig.switch.file("rules"), way.rules).unwrap();
        let rules = rig.switch.file("rules").display().to_string();
        rig.switch.ofctl(&["-O", "OpenFlow13", "--bundle", "replace-flows", "br0", &rules]).ok();
        for (n, kind) in Kind::all().iter().enumerate().filter(|(_, kind)| (way.takes)(kind)) {
            // Of a new flow, and of a cached one.
            for again in 0..2 {
                let port = 1_000 + n as u16 + if way.rules.contains("commit") { 500 * again } else { 0 };
                let name = format!("{}: {kind:?}", way.name);
                let [plain, whole, shown] = rig.pass(kind, port);
                let mut wanted = Whole {
                    tags: if kind.is_tagged { vec![7] } else { vec![] },
                    addresses: kind.addresses(),
                    ports: [port, 80],
                    macs: vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1],
                    ttl: 64,
                    payload: kind.payload(),
                };
                (way.change)(&mut wanted, kind);
                assert!(together(&plain, kind.gso_size) == wanted, "{name}, without offloads");
                assert!(together(&whole, u16::MAX) == wanted, "{name}, with offloads");
                assert!(together(&shown, kind.gso_size) == wanted, "{name}, at the dummy");
            }
        }
    }
}

/// What a controller sees can be sent out again as it is, and what is learned from loses nothing.
#[test]
fn unfinished_packets_are_finished_for_controllers_and_whole_where_they_are_learned_from() {
    let mut rig = Rig::new();
    let socket = rig.switch.file("br0.mgmt");
    let mut controller = Controller::connect(&socket, Version::V13);
    let config =
        SwitchConfig { frag: Default::default(), invalid_ttl_to_controller: None, miss_send_len: u16::MAX };
    controller.send(&Message::SetConfig(config));
    controller.heard();
    for (n, kind) in Kind::all().iter().filter(|kind| !kind.is_tagged).enumerate() {
        let port = 3_000 + n as u16;
        let frames = if kind.gso_size == 0 { 1 } else { kind.len.div_ceil(kind.gso_size.into()) };
        rig.switch.ofctl(&["del-flows", "br0"]).ok();
        rig.switch.add_flow("in_port=1,actions=controller(max_len=65535)");
        let (header, frame) = kind.build(port);
        assert!(rig.pairs[0].send_with_header(&header, &frame));
        let mut seen = Vec::new();
        wait_for(&format!("{kind:?} to be told"), || {
            let events = controller.events_for(Duration::from_millis(20));
            seen.extend(events.into_iter().filter_map(|event| match event {
                Event::Message { message: Message::PacketIn(packet), .. } => Some(packet.data),
                _ => None,
            }));
            seen.len() >= frames
        });
        let payload = together(&seen, kind.gso_size).payload;
        assert!(payload == kind.payload(), "{kind:?} at the controller");

        rig.switch.ofctl(&["del-flows", "br0"]).ok();
        rig.switch.add_flow("in_port=1,actions=learn(table=9,eth_type=0x0800,NXM_OF_IN_PORT[]),2,3,4");
        let ends = rig.pass(kind, port);
        for (frames, gso_size) in ends.iter().zip([kind.gso_size, u16::MAX, kind.gso_size]) {
            assert!(together(frames, gso_size).payload == kind.payload(), "{kind:?} learned from");
        }
    }
}

/// A line of FTP becomes longer where its address is translated, and what follows it is shifted.
#[test]
fn lines_of_ftp_in_unfinished_packets_are_translated_and_what_follows_is_shifted() {
    let mut rig = Rig::new();
    rig.switch.add_flow("table=0,in_port=1,tcp,actions=ct(commit,alg=ftp,nat(src=10.77.200.100),table=1)");
    rig.switch.add_flow("table=1,ct_state=+trk-inv,actions=2,3,4");
    rig.switch.add_flow("table=0,in_port=4,tcp,actions=ct(nat,table=2)");
    rig.switch.add_flow("table=2,ct_state=+trk+est-inv,actions=1");
    let frame = |is_reply: bool, flags: u8, sequence: u32, ack: u32, payload: &[u8]| {
        let eth = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
        let tcp = match is_reply {
            false => eth.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).tcp(4_000, 21),
            true => eth.ipv4([10, 0, 0, 2].into(), [10, 77, 200, 100].into()).tcp(21, 4_000),
        };
        let tcp = tcp.tcp_flags(TcpFlags::from_bits(flags.into())).payload(payload);
        let mut frame = tcp.build().unwrap();
        let at = places(&frame);
        frame[at.l4 + 4..at.l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        frame[at.l4 + 8..at.l4 + 12].copy_from_slice(&ack.to_be_bytes());
        frame[at.sum..at.sum + 2].fill(0);
        let total = u32::from(at.pseudo(&frame)) + u32::from(sum(&frame[at.l4..]));
        let finished = !(((total & 0xffff) + (total >> 16)) as u16);
        frame[at.sum..at.sum + 2].copy_from_slice(&finished.to_be_bytes());
        frame
    };
    let kind = |gso_size| Kind { is_v6: false, is_tcp: true, is_tagged: false, len: 0, gso_size };
    let send = |rig: &mut Rig, flags: u8, sequence, payload: &[u8], gso_size: u16| {
        let mut frame = frame(false, flags, sequence, if flags == 2 { 0 } else { 501 }, payload);
        let mut header = unfinish(&mut frame);
        let mut frames = 1;
        if gso_size > 0 {
            (header[1], header[2]) = (0x81, 54);
            header[4..6].copy_from_slice(&gso_size.to_ne_bytes());
            frames = payload.len().div_ceil(gso_size.into());
        }
        let ends = rig.pass_frame(&header, &frame, &kind(gso_size), frames);
        ends.map(|frames| {
            let mut came = Vec::new();
            let mut first = None;
            for frame in &frames {
                let at = checked(frame);
                assert_eq!(frame[at.l3 + 12..at.l3 + 16], [10, 77, 200, 100]);
                let number = u32::from_be_bytes(frame[at.l4 + 4..at.l4 + 8].try_into().unwrap());
                let first = *first.get_or_insert(number);
                assert_eq!(number, first.wrapping_add(came.len() as u32));
                came.extend_from_slice(&frame[at.payload..]);
            }
            (first.unwrap(), String::from_utf8(came).unwrap())
        })
    };
    for (sequence, came) in send(&mut rig, 2, 100, b"", 0) {
        assert_eq!((sequence, &came[..]), (100, ""));
    }
    let answer: String = frame(true, 0x12, 500, 101, b"").iter().map(|byte| format!("{byte:02x}")).collect();
    rig.switch.receive("p4", &answer);
    wait_for("the answer", || rig.pairs[0].receive(8, |_| ()) > 0);
    let (line, told) = ("PORT 10,0,0,1,4,5\r\n", "PORT 10,77,200,100,4,5\r\n");
    for (sequence, came) in send(&mut rig, 0x18, 101, line.as_bytes(), 0) {
        assert_eq!((sequence, &came[..]), (101, told));
    }
    let next = 101 + line.len() as u32;
    let shifted = 101 + told.len() as u32;
    for (payload, gso_size) in [("NOOP\r\n".to_string(), 0), ("x".repeat(9_000), 1_000)] {
        for (sequence, came) in send(&mut rig, 0x98, next, payload.as_bytes(), gso_size) {
            assert!(sequence == shifted && came == payload, "{sequence}, {} bytes", came.len());
        }
    }
}

#[test]
fn packets_of_controllers_may_be_as_long_as_the_mtu() {
    let switch =
        Switch::start(&["--bridge", "br0,fail-mode=secure", "--port", "p1,type=dummy,ofport=1,mtu=9000"]);
    for len in [1_514, 2_000, 9_014] {
        let frame = Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
        let frame = frame.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).udp(1, 2).frame_len(len);
        let hex: String = frame.build().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        switch
            .ofctl(&["packet-out", "br0", &format!("in_port=controller packet={hex} actions=output:1")])
            .ok();
        assert_eq!(switch.sent("p1", 1), [hex]);
    }
}

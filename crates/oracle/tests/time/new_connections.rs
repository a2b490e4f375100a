//! A flood of new connections at one port, beside what other ports want of the tracker: shares, ceilings, and
//! how what is over goes away. Time is stopped: a millisecond is as many turns of the worker as the test
//! takes. In each of them there are packets, or shares would begin anew.

use base::{DropReason, PortNo};
use datapath::Config;
use datapath::conntrack::share::SHARED;
use flow::action::{Ct, CtZone};
use flow::{Action, FieldId, Match};
use oracle::home::{bridge_of, output};
use oracle::port::Link;
use oracle::rig::{Rig, pool_is_whole};
use std::net::Ipv4Addr;
use switch::control::FlowMod;
use wire::IpProtocol;
use wire::checksum::{checksum, pseudo_v4};

const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
const FLOOD: PortNo = PortNo(1);
const CLIENT: PortNo = PortNo(2);
const SERVER: PortNo = PortNo(3);
const SERVER_ADDRESS: u32 = 0x0a00_0001;
/// Bursts that the flood has ready in every millisecond: 2 million packets a second.
const FLOOD_BURSTS: u64 = 32;

/// A segment without data. `client` is the address, from which the port is 2,000.
fn segment(client: u32, is_back: bool, flags: u8) -> Vec<u8> {
    let ends = [(client, 2_000u16), (SERVER_ADDRESS, 80)];
    let [(src, from), (dst, to)] = if is_back { [ends[1], ends[0]] } else { ends };
    // A handshake, whose acknowledgements fit.
    let (seq, ack): (u32, u32) = match flags {
        SYN => (100, 0),
        SYN_ACK => (500, 101),
        _ => {
            if is_back {
                (501, 101)
            } else {
                (101, 501)
            }
        }
    };
    let mut tcp = [from.to_be_bytes(), to.to_be_bytes()].concat();
    tcp.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    tcp.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
    let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
    let sum = pseudo_v4(src, dst, IpProtocol(6), tcp.len() as u16).bytes(&tcp).finish();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend([src.octets(), dst.octets()].concat());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &tcp].concat()
}

/// What begins a connection: a segment, or a datagram of a byte.
fn opening(client: u32, is_udp: bool) -> Vec<u8> {
    let mut frame = segment(client, false, SYN);
    if is_udp {
        let udp = [2_000u16, 80, 9, 0].map(u16::to_be_bytes).concat();
        frame.truncate(34);
        frame.extend(udp);
        frame.push(b'.');
        frame[16..18].copy_from_slice(&29u16.to_be_bytes());
        frame[23] = 17;
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// A firewall that lets connections to port 3 begin at ports 1 and 2, each of which has a zone of its own;
/// and a flood at port 1, which begins with `flood`.
struct Firewall {
    rig: Rig<switch::Switch>,
    flood: u32,
    is_udp: bool,
    flooded: u64,
    clients: u32,
    /// Of the client, that are answered.
    established: Vec<u32>,
}

/// Clients whose connections are looked at again have these addresses; the flood's are above.
const CLIENTS: u32 = 0x0b00_0000;

/// Nobody tracks what comes from here.
const UNTRACKED: u32 = 0x0d00_0001;

/// What comes from here on is tracked twice before it is committed.
const CHAINED: u32 = 0x0f00_0000;

/// What comes from here is tracked in a zone without connections.
const UNCOMMITTED: u32 = 0x0e00_0001;

impl Firewall {
    fn new(is_udp: bool) -> Firewall {
        let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
        let config = Config { hash_seed: Some(5), ..Config::default() };
        let rig = Rig::with_links(switch, domain, config, &[FLOOD, CLIENT, SERVER], Link::of_device);
        let ct = |zone, commit, table| {
            Action::Ct(Box::new(Ct {
                commit,
                force: false,
                zone: CtZone::Is(zone),
                table,
                alg: 0,
                actions: vec![],
            }))
        };
        let ip = || Match::any().with(FieldId::EthType, 0x800);
        let of_flood = || ip().with_masked(FieldId::NwSrc, 0x0c00_0000, 0xff00_0000);
        let new =
            |at: PortNo| ip().with(FieldId::InPort, at.0.into()).with_masked(FieldId::CtState, 0x21, 0x21);
        let established =
            |at: PortNo| ip().with(FieldId::InPort, at.0.into()).with_masked(FieldId::CtState, 0x22, 0x22);
        for (table_id, priority, matching, actions) in [
            (0, 1, ip(), vec![ct(2, false, Some(1))]),
            (0, 2, of_flood(), vec![ct(1, false, Some(1))]),
            (1, 1, new(FLOOD), vec![ct(1, true, None), output(3)]),
            (1, 1, new(CLIENT), vec![ct(2, true, None), output(3)]),
            (1, 2, established(CLIENT), vec![output(3)]),
            (1, 2, established(SERVER), vec![output(2)]),
            (1, 2, established(FLOOD), vec![output(2)]),
            (0, 3, ip().with(FieldId::NwSrc, UNTRACKED.into()), vec![output(2)]),
            (0, 3, ip().with(FieldId::NwSrc, UNCOMMITTED.into()), vec![ct(3, false, Some(2))]),
            (2, 1, ip().with_masked(FieldId::CtState, 0x21, 0x21), vec![output(2)]),
            (
                0,
                3,
                ip().with_masked(FieldId::NwSrc, CHAINED.into(), 0xff00_0000),
                vec![ct(4, false, Some(3))],
            ),
            (3, 1, ip(), vec![ct(5, false, Some(4))]),
            (4, 1, new(FLOOD), vec![ct(5, true, None), output(3)]),
        ] {
            let rule = FlowMod { table_id, priority, ..FlowMod::add(matching, actions) };
            control.flow_mod(bridge, &rule, 0).unwrap();
        }
        Firewall { rig, flood: 0x0c00_0000, is_udp, flooded: 0, clients: CLIENTS, established: vec![] }
    }

    /// One millisecond. The flood has as much as it can; everybody else's packets must come through.
    fn millisecond(&mut self, is_flooding: bool) {
        base::clock::warp(1);
        if is_flooding {
            for _ in 0..FLOOD_BURSTS {
                let first = self.flood;
                self.flood += packet::BURST as u32;
                self.flooded += packet::BURST as u64;
                let burst = (first..self.flood).map(|client| opening(client, self.is_udp)).collect();
                self.rig.links[&FLOOD].receive(burst);
            }
        }
        // A new connection, whole, and a packet each way of one that there is already.
        let new = self.clients;
        self.clients += 1;
        self.cross(CLIENT, &[segment(new, false, SYN)], "a new connection");
        self.cross(SERVER, &[segment(new, true, SYN_ACK)], "its answer");
        self.cross(CLIENT, &[segment(new, false, ACK)], "what follows");
        self.established.push(new);
        let old = self.established[new as usize * 7 % self.established.len()];
        self.cross(CLIENT, &[segment(old, false, ACK)], "an established connection");
        self.cross(SERVER, &[segment(old, true, ACK)], "and back");
        while !self.rig.links[&FLOOD].is_received() {
            self.rig.worker.turn();
        }
    }

    /// Packets that come in at one of the two ports leave by the other.
    #[track_caller]
    fn cross(&mut self, from: PortNo, frames: &[Vec<u8>], what: &str) {
        let to = if from == CLIENT { SERVER } else { CLIENT };
        self.rig.links[&to].take_sent();
        self.rig.receive(from, frames.to_vec());
        let sent = self.rig.links[&to].take_sent();
        for frame in frames {
            assert!(sent.contains(frame), "{what} is lost after {} ms", self.clients - CLIENTS);
        }
    }

    fn count(&self) -> u32 {
        self.rig.dp.tracker().count()
    }

    fn refused(&self, name: &str) -> u64 {
        self.rig.dp.tracker().refused().iter().find(|(n, _)| *n == name).unwrap().1
    }

    fn end(self) {
        self.rig.end().unwrap();
        pool_is_whole().unwrap();
    }
}

#[test]
fn a_flood_begins_its_ports_share_of_connections_and_others_begin_what_they_want() {
    let _time = crate::stopped_time();
    for is_udp in [false, true] {
        its_share_is_begun(Firewall::new(is_udp));
    }
}

fn its_share_is_begun(mut firewall: Firewall) {
    const MS: u64 = 40;
    (0..MS).for_each(|_| firewall.millisecond(true));
    // The first millisecond is over before the worker knows of another port.
    let (clients, share) = (firewall.established.len() as u64, u64::from(SHARED));
    let begun = u64::from(firewall.count()) - clients;
    let dropped = firewall.rig.dp.drops(DropReason::CtPortShare);
    assert_eq!(begun + dropped, firewall.flooded, "what was not begun was counted");
    let first = FLOOD_BURSTS * packet::BURST as u64;
    assert!((share * (MS - 1)..=share * MS + first).contains(&begun), "{begun} begun in {MS} ms");
    assert_eq!(firewall.rig.drops(), [(DropReason::CtPortShare, dropped)], "nothing else was lost");
    firewall.end();
}

#[test]
fn a_port_that_exceeds_its_share_keeps_its_connections_and_its_answers_and_loses_openings_at_once() {
    let _time = crate::stopped_time();
    for is_udp in [false, true] {
        all_but_openings_pass(Firewall::new(is_udp));
    }
}

fn all_but_openings_pass(mut firewall: Firewall) {
    firewall.millisecond(false);
    let tagged = |frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    for client in CLIENTS + 0x1000..CLIENTS + 0x1010 {
        firewall.millisecond(true);
        // Its server is behind the flooded port.
        firewall.cross(CLIENT, &[segment(client, false, SYN)], "a new connection");
        firewall.cross(FLOOD, &[segment(client, true, SYN_ACK)], "the flooded port's answer");
        firewall.cross(CLIENT, &[segment(client, false, ACK)], "what follows");
        firewall.cross(FLOOD, &[segment(client, true, ACK)], "a connection of the flooded port");
        firewall.cross(FLOOD, &[opening(UNTRACKED, firewall.is_udp)], "an opening that no rule tracks");
        firewall.cross(FLOOD, &[opening(UNCOMMITTED, firewall.is_udp)], "one that no rule commits");
        let figures = |firewall: &Firewall| {
            let dropped = firewall.rig.dp.drops(DropReason::CtPortShare);
            (dropped, firewall.rig.dp.worker_stats(0).recirculations.get())
        };
        let (dropped, recirculated) = figures(&firewall);
        let opening = opening(firewall.flood + 1, firewall.is_udp);
        firewall.rig.receive(FLOOD, vec![opening.clone(), tagged(opening)]);
        assert_eq!(figures(&firewall), (dropped + 2, recirculated), "another round is spared");
        // Where packets are tracked several times, each `ct` learns it from the next.
        for n in 0..3 {
            firewall.rig.receive(FLOOD, vec![self::opening(CHAINED + n, firewall.is_udp)]);
        }
        let (dropped, recirculated) = figures(&firewall);
        let both = [CHAINED + 3, firewall.flood + 1];
        let both = both.map(|client| self::opening(client, firewall.is_udp));
        firewall.rig.receive(FLOOD, both.to_vec());
        assert_eq!(figures(&firewall), (dropped + 2, recirculated), "two rounds are spared, and one still");
    }
    // The same millisecond; and the next one, which the worker knows of when it has had its turn.
    for (ms, why) in
        [(0, "a worker without packets has time to spare"), (1, "each millisecond has its share")]
    {
        firewall.millisecond(true);
        let began = firewall.count();
        let opening = opening(firewall.flood + 2, firewall.is_udp);
        let open = |firewall: &mut Firewall| {
            firewall.rig.receive(FLOOD, vec![opening.clone()]);
            firewall.count() - began
        };
        assert_eq!(open(&mut firewall), 0, "the share is exceeded");
        base::clock::warp(ms);
        if ms == 0 {
            firewall.rig.settle();
        } else {
            firewall.cross(CLIENT, &[segment(CLIENTS, false, ACK)], "an established connection");
        }
        assert_eq!(open(&mut firewall), 1, "{why}");
    }
    firewall.end();
}

#[test]
fn at_the_ceiling_of_all_and_of_a_zone_the_flood_takes_from_itself() {
    let _time = crate::stopped_time();
    for zone in [None, Some(1)] {
        let mut firewall = Firewall::new(false);
        const CEILING: u32 = 1_000;
        match zone {
            None => firewall.rig.dp.tracker().set_limit(CEILING),
            Some(zone) => firewall.rig.dp.tracker().set_zone_limit(zone, Some(CEILING)),
        }
        for ms in 0..60 {
            firewall.millisecond(true);
            let clients = firewall.established.len() as u32;
            let bounded = firewall.count() - if zone.is_some() { clients } else { 0 };
            assert!(bounded <= CEILING, "{zone:?}: {bounded} after {ms} ms");
        }
        let evicted = firewall.refused("conntrack_evicted");
        assert!(evicted > 4_000, "{evicted} gave way");
        assert_eq!((firewall.refused("conntrack_full"), firewall.refused("conntrack_zone_full")), (0, 0));
        // Each that gave way was of the flood: whoever was answered is there, the first and the last.
        for client in firewall.established.clone() {
            firewall.cross(CLIENT, &[segment(client, false, ACK)], "an answered connection");
        }
        firewall.end();
    }
}

#[test]
fn what_a_flood_leaves_behind_is_cleared_away_step_by_step_and_everybody_is_served_meanwhile() {
    let _time = crate::stopped_time();
    let mut firewall = Firewall::new(false);
    (0..100).for_each(|_| firewall.millisecond(true));
    let full = firewall.count();
    assert!(full > 10_000, "{full}");
    // A SYN that nobody answers is forgotten after 30 s. No millisecond clears away more than its turn.
    base::clock::warp(31_500);
    firewall.rig.worker.turn();
    let mut before = full;
    for ms in 0.. {
        assert!(ms < 2_000, "{before} of {full} are still there");
        firewall.millisecond(false);
        let now = firewall.count();
        assert!(before.saturating_sub(now) <= 1_100, "{} at once, after {ms} ms", before - now);
        before = now;
        if now <= firewall.established.len() as u32 {
            break;
        }
    }
    firewall.end();
}

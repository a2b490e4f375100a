//! Packets of connections are forwarded, translated and counted through the caches, where most are followed
//! without another round, as where each is tracked and translated by itself.

use base::PortNo;
use datapath::conntrack::dump::Connection as Connected;
use datapath::{Config, ExactTier, Pipeline};
use flow::action::{Ct, CtZone, Nat, NatSide, SubField};
use flow::{Action, FieldId, Match, Mf};
use oracle::common::chance::Chance;
use oracle::home::{bridge_of, output};
use oracle::pipelines::{Mistake, Mistaken};
use oracle::rig::{Pair, Rig, pool_is_whole};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use switch::control::FlowMod;
use wire::IpProtocol;
use wire::checksum::{checksum, pseudo_v4};

const INSIDE: PortNo = PortNo(1);
const OUTSIDE: PortNo = PortNo(2);
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const PUBLIC: u32 = 0x0900_0001;

/// One connection, and what its ends have said.
struct Connection {
    is_tcp: bool,
    client: u32,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
    has_opened: [bool; 2],
}

impl Connection {
    fn new(number: u32, chance: &mut Chance) -> Connection {
        Connection {
            is_tcp: chance.below(4) > 0,
            client: 0x0a00_0000 + number,
            next: [chance.next() as u32, chance.next() as u32],
            has_opened: [false; 2],
        }
    }

    /// Whether an end may send several packets in a burst, none of which changes the connection's state.
    fn is_open(&self) -> bool {
        self.has_opened == [true; 2]
    }

    /// The next packet from an end, with `number` at its end. One that is alone in its burst may be any, and
    /// even one that does not fit.
    fn packet(
        &mut self,
        (from, is_alone): (usize, bool),
        number: u64,
        is_translated: bool,
        chance: &mut Chance,
    ) -> Vec<u8> {
        let client = if is_translated && from == 1 { PUBLIC } else { self.client };
        // Ports tell connections apart, so that translation need not choose any.
        let port = 1024 + (self.client & 0xff) as u16;
        let ends = [(client, port), (0x0b00_0001 + (self.client & 3), 80)];
        let [(src, src_port), (dst, dst_port)] = [ends[from], ends[1 - from]];
        let mut l4 = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
        let protocol = if self.is_tcp { 6 } else { 17 };
        let wrong = chance.below(120);
        let (is_sum_wrong, is_header_wrong) = (wrong == 0, wrong == 1);
        // Behind the number: sums are taken by the length, which may be odd.
        let more = if chance.one_in(2) { chance.below(150) as u32 } else { 0 };
        if self.is_tcp {
            let flags = match (self.has_opened[from], chance.below(20)) {
                (_, 0) if is_alone => 0x11,
                (_, 1) if is_alone => 0x14,
                (false, _) => SYN | if from == 1 { ACK } else { 0 },
                (true, 2) if is_alone => SYN,
                (true, 3..8) => ACK | 8,
                _ => ACK,
            };
            let len = if flags & SYN != 0 { 1 } else { 8 + more };
            let stray = if is_alone && chance.one_in(5) { chance.next() as u32 } else { 0 };
            let (seq, ack) = (self.next[from].wrapping_add(stray), self.next[1 - from]);
            self.next[from] = self.next[from].wrapping_add(len);
            l4.extend(
                [seq.to_be_bytes(), if flags & ACK != 0 { ack.to_be_bytes() } else { [0; 4] }].concat(),
            );
            l4.extend([0x50, flags, 0x40, 0, 0, 0, 0, 0]);
        } else {
            l4.extend([0, 16 + more as u8, 0, 0]);
        }
        self.has_opened[from] = true;
        l4.extend(number.to_be_bytes());
        l4.extend((0..more).map(|_| chance.next() as u8));
        let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
        if self.is_tcp || chance.one_in(2) {
            let sum = pseudo_v4(src, dst, IpProtocol(protocol), l4.len() as u16).bytes(&l4).finish();
            let at = if self.is_tcp { 16 } else { 6 };
            l4[at..at + 2].copy_from_slice(&(sum ^ u16::from(is_sum_wrong)).to_be_bytes());
        }
        let mut ip = vec![0x45, 0, 0, 20 + l4.len() as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        ip.extend([src.octets(), dst.octets()].concat());
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&(sum ^ u16::from(is_header_wrong)).to_be_bytes());
        let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &l4].concat();
        // What fills a frame belongs to no sum.
        frame.resize(frame.len().max(60), if chance.one_in(2) { 0xa5 } else { 0 });
        frame
    }
}

/// Frames by port, addresses, protocol and ports.
type Sent = BTreeMap<(PortNo, Vec<u8>), Vec<Vec<u8>>>;

const PROTOCOL: usize = 23;
const TCP_FLAGS: usize = 47;

/// Which packets of a port came out in which order, of each direction of a connection.
fn by_connection(sent: &BTreeMap<PortNo, Vec<Vec<u8>>>) -> Sent {
    let mut all = Sent::new();
    for (port, frames) in sent {
        for frame in frames {
            all.entry((*port, frame[PROTOCOL..38].to_vec())).or_default().push(frame.clone());
        }
    }
    all
}

/// Whether the same came out: in the same order, unless some of it had to be translated, which lets others
/// pass.
fn agree(found: &Sent, wanted: &Sent, is_known: bool) -> bool {
    let sorted = |sent: &Sent| {
        let mut sent = sent.clone();
        sent.values_mut().for_each(|frames| frames.sort_by_key(|frame| number(frame)));
        sent
    };
    found == wanted || !is_known && sorted(found) == sorted(wanted)
}

/// A frame's number.
fn number(frame: &[u8]) -> u32 {
    let at = if frame[PROTOCOL] == 6 { 58 } else { 46 };
    u32::from_be_bytes(*frame[at..].first_chunk().expect("a number"))
}

/// What came out of each direction of a connection in only one of two ways: TCP flags and numbers.
fn differences(found: &Sent, wanted: &Sent) -> String {
    let all: BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let of = |sent: &Sent, key| -> Vec<String> {
        let frames = sent.get(key).into_iter().flatten();
        let what = |f: &[u8]| if f[PROTOCOL] == 6 { format!("{:x}", f[TCP_FLAGS]) } else { "udp".into() };
        frames.map(|frame| format!("{} {}", what(frame), number(frame))).collect()
    };
    let differing = all.into_iter().filter(|key| found.get(key) != wanted.get(key));
    differing
        .map(|key| format!("{key:02x?}: {:?}\n and uncached {:?}\n", of(found, key), of(wanted, key)))
        .collect()
}

fn ct(zone: u16, commit: bool, table: Option<u8>, actions: Vec<Action>) -> Action {
    Action::Ct(Box::new(Ct { commit, force: false, zone: CtZone::Is(zone), table, alg: 0, actions }))
}

/// Random rules of one kind: tables 0, 1 and 2 in this order, each of which asks the tracker, or not.
struct Rules {
    is_translated: bool,
    zones: [u16; 2],
}

impl Rules {
    fn nat(&self, is_new: bool) -> Vec<Action> {
        if !self.is_translated {
            return vec![];
        }
        let address = u128::from(PUBLIC);
        let nat = Nat {
            side: is_new.then_some(NatSide::Src),
            addresses: is_new.then_some((address, address)),
            is_ipv6: false,
            ports: None,
            is_persistent: false,
            is_hash: false,
            is_random: false,
        };
        vec![Action::Nat(nat)]
    }

    /// One more, which may replace another.
    fn draw(&self, chance: &mut Chance) -> FlowMod {
        let ip = || Match::any().with(FieldId::EthType, 0x800);
        let at = |port: PortNo| ip().with(FieldId::InPort, port.0.into());
        let state = |m: Match, bits: u128| m.with_masked(FieldId::CtState, bits, bits);
        let (from, to) = if chance.one_in(2) { (INSIDE, OUTSIDE) } else { (OUTSIDE, INSIDE) };
        let output = || output(to.0 as u16);
        let [first, second] = self.zones;
        let mark = Action::Load {
            target: SubField { field: Mf::CtMark, offset: 0, count: 32 },
            value: chance.below(3),
            as_set_field: false,
        };
        let (table_id, matching, actions) = match chance.below(9) {
            0 => (0, ip(), vec![ct(first, false, Some(1), self.nat(false))]),
            1 => (0, at(from), vec![ct(first, false, Some(1), self.nat(false))]),
            2 => {
                let marked = [self.nat(true), if chance.one_in(3) { vec![mark] } else { vec![] }].concat();
                (1, state(at(INSIDE), 0x21), vec![ct(first, true, None, marked), self::output(2)])
            }
            3 => (1, state(at(from), 0x22), vec![output()]),
            4 => (1, state(at(from), 0x22).with(FieldId::CtMark, chance.below(3).into()), vec![output()]),
            5 => (1, state(at(from), 0x22), vec![ct(second, false, Some(2), vec![])]),
            6 => (2, state(at(from), 0x21), vec![ct(second, true, None, vec![]), output()]),
            7 => (2, state(at(from), 0x22), vec![output()]),
            _ => {
                let host = 0x0b00_0001 + u128::from(chance.below(4));
                (1, state(ip(), 0x22).with(FieldId::NwDst, host), vec![])
            }
        };
        FlowMod { table_id, priority: chance.below(3) as i32, ..FlowMod::add(matching, actions) }
    }
}

/// A rule for openings, perhaps of those to one host alone.
fn draw_for_openings(rules: &Rules, chance: &mut Chance) -> FlowMod {
    if !chance.one_in(3) {
        return rules.draw(chance);
    }
    let matching = Match::any().with(FieldId::EthType, 0x800).with_masked(FieldId::CtState, 0x21, 0x21);
    let commits = || ct(rules.zones[0], true, None, rules.nat(true));
    let actions = match chance.below(4) {
        0 => vec![],
        1 => vec![output(2)],
        2 => vec![commits()],
        _ => vec![commits(), output(2)],
    };
    let host = 0x0b00_0001 + u128::from(chance.below(4));
    let matching = matching.with(FieldId::NwDst, host);
    // No tie with other rules: in one, the cached choice and a new one may differ.
    FlowMod { table_id: 1, priority: 3, ..FlowMod::add(matching, actions) }
}

/// All connections, but for how long they may be silent.
fn connections<P: Pipeline>(rig: &Rig<P>) -> Vec<String> {
    let all = rig.dp.tracker().all_connections(&Default::default(), rig.dp.now_ms());
    let mut all: Vec<_> = all.into_iter().map(|c| format!("{:?}", Connected { timeout_s: 0, ..c })).collect();
    all.sort();
    all
}

/// Gives both switches a burst: both send the same, and have the same connections then.
fn same_comes_out(pair: &mut Pair, port: PortNo, burst: Vec<Vec<u8>>) -> Result<(), String> {
    let misses = |rig: &Rig<Mistaken>| rig.dp.worker_stats(0).misses.get();
    let before = misses(&pair.cached);
    pair.receive(port, burst);
    let Pair { cached, plain } = pair;
    let [found, wanted] = [cached.take_sent(), plain.take_sent()].map(|sent| by_connection(&sent));
    let is_known = misses(cached) == before;
    if !agree(&found, &wanted, is_known) || cached.drops() != plain.drops() {
        let drops = [cached.drops(), plain.drops()];
        return Err(format!("{}dropped {drops:?}", differences(&found, &wanted)));
    }
    let [ours, theirs] = [connections(cached), connections(plain)];
    if let Some((ours, theirs)) = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs) {
        return Err(format!("{ours:?}\n and uncached {theirs:?}"));
    }
    if ours.len() != theirs.len() {
        return Err(format!("{} connections, and uncached {}", ours.len(), theirs.len()));
    }
    Ok(())
}

/// Bursts of openings, among which are few other packets. Returns the rounds that packets took, and those
/// that they took at once.
fn run_openings(seed: u64, mistake: Mistake) -> Result<(u64, u64), String> {
    let chance = &mut Chance::new(seed);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2]);
    let exact_tier = *chance.pick(&[ExactTier::On, ExactTier::Off]);
    let config = Config { hash_seed: Some(seed), exact_tier, ..Config::default() };
    let mut pair = Pair::new(&switch, mistake, &domain, config, &[INSIDE, OUTSIDE]);
    let zones = if chance.one_in(4) { [5, 5] } else { [5, 6] };
    let rules = Rules { is_translated: chance.one_in(2), zones };
    for _ in 0..40 {
        control.flow_mod(bridge, &draw_for_openings(&rules, chance), 0).map_err(|e| format!("{e:?}"))?;
    }
    let mut all: Vec<Connection> = vec![];
    // The next client of each host. Addresses and ports tell 256 clients apart.
    let mut next = [0, 1, 2, 3];
    let mut number = 0;
    for round in 0..20 {
        let mut burst = vec![];
        let of_one_host = (!chance.one_in(4)).then(|| chance.below(4) as usize);
        for _ in 0..chance.below(12) + 1 {
            let host = of_one_host.unwrap_or(chance.below(4) as usize);
            if next[host] < 256 && (all.is_empty() || !chance.one_in(32)) {
                all.push(Connection { is_tcp: !chance.one_in(64), ..Connection::new(next[host], chance) });
                next[host] += 4;
            }
            let at = if chance.one_in(32) { chance.below(all.len() as u64) as usize } else { all.len() - 1 };
            // Now and then the opening is sent again, also in the same burst.
            all[at].has_opened[0] &= chance.one_in(2);
            number += 1;
            burst.push(all[at].packet((0, false), number, rules.is_translated, chance));
        }
        same_comes_out(&mut pair, INSIDE, burst).map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
        if chance.one_in(6) {
            control.flow_mod(bridge, &draw_for_openings(&rules, chance), 0).map_err(|e| format!("{e:?}"))?;
        }
        if chance.one_in(40) {
            pair.cached.dp.flush_flows();
        }
        control.tick(0);
    }
    pair.same_counts(control.slot_count()).map_err(|e| format!("seed {seed}: {e}"))?;
    let rounds = pair.plain.dp.worker_stats(0).recirculations.get();
    let followed = pair.cached.dp.worker_stats(0).followed.get();
    pair.end()?;
    Ok((rounds, followed))
}

#[test]
fn openings_that_do_not_wait_for_their_next_round_go_where_it_leads() {
    let (mut rounds, mut followed) = (0, 0);
    for seed in 0..u64::from(testkit::cases("oracle::openings", 48)) {
        let (more_rounds, more_followed) =
            run_openings(seed, Mistake::None).unwrap_or_else(|e| panic!("{e}"));
        (rounds, followed) = (rounds + more_rounds, followed + more_followed);
    }
    pool_is_whole().unwrap();
    assert!(followed > rounds / 20, "only {followed} of {rounds} rounds were taken at once");
}

#[test]
fn a_stale_version_of_what_openings_hit_lately_is_found() {
    assert!((0..48).any(|seed| run_openings(seed, Mistake::StaleVersion).is_err()));
}

/// Packets, and those that were followed.
fn run(seed: u64, mistake: Mistake) -> Result<(u64, u64), String> {
    let chance = &mut Chance::new(seed);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2]);
    let config = Config {
        hash_seed: Some(seed),
        is_baseline: seed % 2 == 1,
        exact_tier: ExactTier::On,
        ..Config::default()
    };
    let mut pair = Pair::new(&switch, mistake, &domain, config, &[INSIDE, OUTSIDE]);
    let zones = if chance.one_in(4) { [5, 5] } else { [5, 6] };
    let rules = Rules { is_translated: chance.one_in(2), zones };
    let mut all: Vec<Connection> = (0..24).map(|n| Connection::new(n, chance)).collect();
    let mut number = 0;
    for _ in 0..40 {
        control.flow_mod(bridge, &rules.draw(chance), 0).map_err(|e| format!("{e:?}"))?;
    }
    for round in 0..60 {
        let from = chance.below(2) as usize;
        let mut few: Vec<usize> = (0..chance.below(8) + 1).map(|_| chance.below(24) as usize).collect();
        let mut burst = vec![];
        for _ in 0..chance.below(packet::BURST as u64) + 1 {
            if few.is_empty() {
                break;
            }
            let at = chance.below(few.len() as u64) as usize;
            let connection = few[at];
            let is_first = !burst.iter().any(|(n, _)| *n == connection);
            let is_alone = is_first && (!all[connection].is_open() || chance.one_in(8));
            if is_alone {
                few.retain(|n| *n != connection);
            }
            number += 1;
            let frame = all[connection].packet((from, is_alone), number, rules.is_translated, chance);
            burst.push((connection, frame));
        }
        let burst: Vec<Vec<u8>> = burst.into_iter().map(|(_, frame)| frame).collect();
        let port = [INSIDE, OUTSIDE][from];
        same_comes_out(&mut pair, port, burst).map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
        if chance.one_in(12) {
            control.flow_mod(bridge, &rules.draw(chance), 0).map_err(|e| format!("{e:?}"))?;
        }
        if chance.one_in(20) {
            let client = chance.below(24) as usize;
            all[client] = Connection::new(client as u32, chance);
        }
        if chance.one_in(40) {
            pair.cached.dp.flush_flows();
        }
        control.tick(0);
    }
    pair.same_counts(control.slot_count()).map_err(|e| format!("seed {seed}: {e}"))?;
    let stats = pair.plain.dp.worker_stats(0);
    let rounds = stats.recirculations.get();
    let followed = pair.cached.dp.worker_stats(0).followed.get();
    pair.end()?;
    Ok((rounds, followed))
}

#[test]
fn packets_that_are_followed_go_where_the_long_way_leads() {
    let (mut rounds, mut followed) = (0, 0);
    for seed in 0..u64::from(testkit::cases("oracle::tracked", 24)) {
        let (more_rounds, more_followed) = run(seed, Mistake::None).unwrap_or_else(|e| panic!("{e}"));
        (rounds, followed) = (rounds + more_rounds, followed + more_followed);
    }
    pool_is_whole().unwrap();
    assert!(followed > rounds / 20, "only {followed} of {rounds} were followed");
}

#[test]
fn a_stale_version_of_what_is_followed_is_found() {
    assert!((0..24).any(|seed| run(seed, Mistake::StaleVersion).is_err()));
}

/// A megaflow that goes leaves its place to the next one, while the trails of other rounds' flows still name
/// the place.
#[test]
fn a_trail_does_not_lead_to_another_megaflow_in_the_place_of_its_own() {
    for is_first in [true, false] {
        let chance = &mut Chance::new(1);
        let (domain, switch, mut control, bridge) = bridge_of(&[1, 2]);
        let config = Config { hash_seed: Some(1), exact_tier: ExactTier::On, ..Config::default() };
        let mut rig = Rig::new(switch, domain, config, &[INSIDE, OUTSIDE]);
        let ip = || Match::any().with(FieldId::EthType, 0x800);
        let state = |bits: u128| ip().with_masked(FieldId::CtState, bits, bits);
        let from = |host: u32| state(0x22).with(FieldId::NwSrc, host.into());
        let tracked = |matching, actions| FlowMod { table_id: 1, ..FlowMod::add(matching, actions) };
        let mut all = [0, 1].map(|n| Connection { is_tcp: true, ..Connection::new(n, chance) });
        let hosts = [all[0].client, all[1].client];
        let rules = [
            FlowMod::add(ip(), vec![ct(5, false, Some(1), vec![])]),
            tracked(state(0x21), vec![ct(5, true, None, vec![]), output(2)]),
            tracked(state(0x2a), vec![output(1)]),
            tracked(from(hosts[0]), vec![output(2)]),
            tracked(from(hosts[1]), vec![]),
        ];
        for rule in rules {
            control.flow_mod(bridge, &rule, 0).unwrap();
        }
        // As their ends send it: nothing that does not fit.
        let mut numbers = 1..;
        let mut next = |n: usize, from: usize| {
            all[n].packet((from, false), numbers.next().expect("without end"), false, &mut Chance::new(2))
        };
        for n in [0, 1] {
            rig.receive(INSIDE, vec![next(n, 0)]);
            rig.receive(OUTSIDE, vec![next(n, 1)]);
        }
        for _ in 0..4 {
            rig.receive(INSIDE, vec![next(0, 0)]);
        }
        assert!(rig.dp.worker_stats(0).followed.get() > 0);
        control.flow_mod(bridge, &tracked(from(hosts[0]), vec![output(2), output(2)]), 0).unwrap();
        rig.take_sent();
        let order = if is_first { [0, 1] } else { [1, 0] };
        rig.receive(INSIDE, order.map(|n| next(n, 0)).to_vec());
        rig.receive(INSIDE, vec![next(0, 0)]);
        let sent = rig.take_sent();
        assert_eq!(sent.get(&OUTSIDE).map(Vec::len), Some(4), "what the changed rule says of two packets");
        rig.end().unwrap();
    }
}

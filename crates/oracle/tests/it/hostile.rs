//! A hostile tenant's packets, which lie about their lengths, quote, announce and fragment, through the
//! tracker: as with caches so without, nothing panics, and nothing is lost uncounted.

use base::PortNo;
use datapath::conntrack::dump::Connection as Connected;
use datapath::{Config, ExactTier, Pipeline};
use flow::action::{Ct, CtZone, Nat, NatSide};
use flow::{Action, FieldId, Match};
use oracle::common::chance::Chance;
use oracle::home::{bridge_of, output};
use oracle::pipelines::Mistake;
use oracle::rig::{Pair, Rig, pool_is_whole};
use std::net::{Ipv4Addr, Ipv6Addr};
use switch::control::FlowMod;
use wire::IpProtocol;
use wire::checksum::{Sum, checksum, pseudo_v4, pseudo_v6};

const INSIDE: PortNo = PortNo(1);
const OUTSIDE: PortNo = PortNo(2);
const CLIENT: u32 = 0x0a00_0001;
const SERVER: u32 = 0x0b00_0001;
const PUBLIC: u32 = 0x0900_0001;
const FTP: u16 = 21;
const TFTP: u16 = 69;

/// What a server or a client might say, true and not.
const LINES: [&str; 10] = [
    "PORT 10,0,0,1,4,5\r\n",
    "PORT 10,0,0,1,255,255\r\n",
    "PORT 1,1,1,1,1,1\r\n",
    "EPRT |1|10.0.0.1|2000|\r\n",
    "227 Entering (11,0,0,1,9,9).\r\n",
    "227 (9,0,0,1,250,250)\r\n",
    "229 Extended (|||5000|)\r\n",
    "PORT 999999,",
    "EPRT |2|2001::1|2000|\r\n",
    "229 (|||65535|)\r\n",
];

fn either<T: Copy>(chance: &mut Chance, all: &[T]) -> T {
    all[chance.below(all.len() as u64) as usize]
}

/// A segment, a datagram or a message, summed.
fn transport(protocol: u8, ports: (u16, u16), pseudo: Sum, chance: &mut Chance) -> Vec<u8> {
    let mut l4 = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    let mut payload = match chance.below(4) {
        0 | 1 => either(chance, &LINES).as_bytes().to_vec(),
        2 => vec![0, 1, b'x', 0],
        _ => vec![7; chance.below(2600) as usize],
    };
    let sum_at = match protocol {
        6 => {
            let flags = either(chance, &[2, 2, 0x12, 0x12, 0x10, 0x10, 0x18, 0x18, 0x11, 4, 0x14, 0]);
            let near = |chance: &mut Chance| 1000 + chance.below(3) as u32 * 20;
            let seq = if chance.one_in(6) { u32::MAX - 5 } else { near(chance) };
            l4.extend([seq.to_be_bytes(), near(chance).to_be_bytes()].concat());
            let mut options = vec![];
            match chance.below(5) {
                0 => options.extend([3, 3, 200, 1]),
                1 => options.extend([1, 1, 5, 18, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0]),
                2 => options.extend([5, 255, 3, 0]),
                3 => options.extend([3, 1, 0, 255]),
                _ => {}
            }
            let words = if chance.one_in(12) { chance.below(16) as u8 } else { 5 + options.len() as u8 / 4 };
            l4.extend([words << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
            l4.append(&mut options);
            Some(16)
        }
        17 => {
            let len = 8 + payload.len() as u16;
            let len = if chance.one_in(12) { either(chance, &[0, 7, 8, len + 1, 0xffff]) } else { len };
            l4.extend([len.to_be_bytes(), [0; 2]].concat());
            (!chance.one_in(4)).then_some(6)
        }
        _ => {
            l4 = vec![either(chance, &[0, 8, 128, 129]), 0, 0, 0];
            l4.extend([ports.0.to_be_bytes(), [0, 1]].concat());
            Some(2)
        }
    };
    if chance.one_in(8) {
        payload.truncate(chance.below(4) as usize);
    }
    l4.append(&mut payload);
    if let Some(at) = sum_at.filter(|_| !chance.one_in(25)) {
        let pseudo = if protocol == 1 { Sum::new() } else { pseudo };
        let sum = pseudo.u32(l4.len() as u32).bytes(&l4).finish();
        l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    l4
}

fn ipv4(src: u32, dst: u32, protocol: u8, fragment: u16, l4: &[u8], chance: &mut Chance) -> Vec<u8> {
    let options = if chance.one_in(12) { 4 * chance.below(4) as usize } else { 0 };
    let len = (20 + options + l4.len()) as u16;
    let len =
        if chance.one_in(15) { either(chance, &[0, 19, 20, 27, len - 1, len + 1, 0xffff]) } else { len };
    let version = if chance.one_in(40) { chance.next() as u8 } else { 0x45 + options as u8 / 4 };
    let mut ip = vec![version, 0];
    ip.extend([len.to_be_bytes(), [0, 9], fragment.to_be_bytes(), [64, protocol], [0; 2]].concat());
    ip.extend([src.to_be_bytes(), dst.to_be_bytes()].concat());
    ip.resize(20 + options, 1);
    let sum = checksum(&ip);
    if !chance.one_in(30) {
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    ip.extend(l4);
    ip
}

fn ipv6(src: u32, dst: u32, protocol: u8, l4: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    let headers: &[u8] = match chance.below(8) {
        0 => &[0, 0, 1, 4, 0, 0, 0, 0],
        1 => &[0, 9, 1, 4, 0, 0, 0, 0],
        _ => &[],
    };
    let len = (headers.len() + l4.len()) as u16;
    let len = if chance.one_in(15) { either(chance, &[0, 7, len + 1, 0xffff]) } else { len };
    ip.extend([len.to_be_bytes(), [if headers.is_empty() { protocol } else { 60 }, 64]].concat());
    let wide = |v4: u32| (0x2001 << 112 | u128::from(v4)).to_be_bytes();
    ip.extend([wide(src), wide(dst)].concat());
    if let [_, rest @ ..] = headers {
        ip.push(protocol);
        ip.extend(rest);
    }
    ip.extend(l4);
    ip
}

/// Packets of one end: a datagram, perhaps in fragments, or an error that quotes one.
fn frames(from: usize, chance: &mut Chance) -> Vec<Vec<u8>> {
    let is_v6 = chance.one_in(5);
    let protocol = either(chance, &[6, 6, 6, 17, 17, if is_v6 { 58 } else { 1 }]);
    let client_port = either(chance, &[1024, 1024, 1025, 20, 0]);
    let server_port = either(chance, &[FTP, FTP, TFTP, 80, 1029, 2313]);
    let mut ends = [(CLIENT, client_port), (SERVER, server_port)];
    if from == 1 && !chance.one_in(3) {
        ends[0].0 = PUBLIC;
    }
    let is_error = chance.one_in(7);
    let way = from ^ usize::from(is_error);
    let [(src, src_port), (dst, dst_port)] = [ends[way], ends[1 - way]];
    let wide = |v4: u32| Ipv6Addr::from_bits(0x2001 << 112 | u128::from(v4));
    let pseudo = |src: u32, dst: u32, protocol: u8| match is_v6 {
        true => pseudo_v6(wide(src), wide(dst), IpProtocol(protocol), 0),
        false => pseudo_v4(Ipv4Addr::from(src), Ipv4Addr::from(dst), IpProtocol(protocol), 0),
    };
    let mut l4 = transport(protocol, (src_port, dst_port), pseudo(src, dst, protocol), chance);
    let mut packets = if is_v6 {
        vec![ipv6(src, dst, protocol, &l4, chance)]
    } else if !is_error && chance.one_in(4) {
        l4.resize(2400 + chance.below(9) as usize, 3);
        let cut = either(chance, &[1200, 1184, 1208, 1600]);
        vec![
            ipv4(src, dst, protocol, 0x2000, &l4[..cut], chance),
            ipv4(src, dst, protocol, cut as u16 / 8, &l4[cut..], chance),
        ]
    } else {
        vec![ipv4(src, dst, protocol, 0x4000, &l4, chance)]
    };
    if is_error {
        packets[0].truncate(20 + chance.below(100) as usize);
        let mut l4 =
            vec![if is_v6 { either(chance, &[1, 2, 3, 4]) } else { either(chance, &[3, 4, 5, 11, 12]) }];
        l4.extend([0; 7]);
        l4.append(&mut packets[0]);
        let (to, protocol) = if is_v6 { (src, 58) } else { (src, 1) };
        let start = if is_v6 { pseudo(dst, to, 58).u32(l4.len() as u32) } else { Sum::new() };
        let sum = start.bytes(&l4).finish();
        l4[2..4].copy_from_slice(&sum.to_be_bytes());
        packets[0] = match is_v6 {
            true => ipv6(dst, to, protocol, &l4, chance),
            false => ipv4(dst, to, protocol, 0, &l4, chance),
        };
    }
    if chance.one_in(4) {
        packets.reverse();
    }
    let tags: &[u8] = match chance.below(12) {
        0 => &[0x81, 0, 0, 5],
        1 => &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6],
        2 => &[0x88, 0x47, 0, 1, 1, 64],
        _ => &[],
    };
    let eth_type: &[u8] = if tags.first_chunk() == Some(&[0x88, 0x47]) {
        &[]
    } else if is_v6 {
        &[0x86, 0xdd]
    } else {
        &[8, 0]
    };
    let to_frame = |ip: Vec<u8>| {
        let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], tags, eth_type, &ip].concat();
        if chance.one_in(20) {
            frame.truncate(14 + chance.below(60) as usize);
        }
        if chance.one_in(3) {
            frame.resize(frame.len().max(60), 0);
        }
        if chance.one_in(25) {
            let at = chance.below(frame.len() as u64) as usize;
            frame[at] = chance.next() as u8;
        }
        frame
    };
    packets.into_iter().map(to_frame).collect()
}

fn nat(side: Option<NatSide>, chance: &mut Chance) -> Vec<Action> {
    let address = side.map(|_| u128::from(PUBLIC));
    let ports = side.and_then(|_| either(chance, &[None, None, Some((1024, 1025)), Some((65_535, 65_535))]));
    vec![Action::Nat(Nat {
        side,
        addresses: address.map(|address| (address, address)),
        is_ipv6: false,
        ports,
        is_persistent: false,
        is_hash: side.is_some(),
        is_random: false,
    })]
}

fn rules(chance: &mut Chance) -> Vec<FlowMod> {
    let v4 = || Match::any().with(FieldId::EthType, 0x800);
    let v6 = || Match::any().with(FieldId::EthType, 0x86dd);
    let at = |m: Match, port: PortNo| m.with(FieldId::InPort, port.0.into());
    let state = |m: Match, bits: u128| m.with_masked(FieldId::CtState, bits, bits);
    let table = |table_id, m, actions| FlowMod { table_id, ..FlowMod::add(m, actions) };
    let ct = |zone: u16, commit: bool, force: bool, table, alg, actions| {
        Action::Ct(Box::new(Ct { commit, force, zone: CtZone::Is(zone), table, alg, actions }))
    };
    let is_translated = !chance.one_in(3);
    let known = |chance: &mut Chance| if is_translated { nat(None, chance) } else { vec![] };
    let mut all = vec![];
    for family in [v4(), v6()] {
        let is_v4 = family == v4();
        let first = if is_v4 { known(chance) } else { vec![] };
        all.push(table(0, family.clone(), vec![ct(5, false, false, Some(1), 0, first)]));
        for (from, to) in [(INSIDE, OUTSIDE), (OUTSIDE, INSIDE)] {
            let side = either(chance, &[NatSide::Src, NatSide::Dst]);
            let new = if is_v4 && is_translated { nat(Some(side), chance) } else { vec![] };
            let force = chance.one_in(4);
            let out = || output(to.0 as u16);
            for (priority, protocol, alg) in [(1, None, 0), (2, Some(6), FTP), (2, Some(17), TFTP)] {
                let m = state(at(family.clone(), from), 0x21);
                let m = protocol.map_or(m.clone(), |protocol| m.with(FieldId::NwProto, protocol));
                let actions = vec![ct(5, true, force, None, alg, new.clone()), out()];
                all.push(FlowMod { priority, ..table(1, m, actions) });
            }
            let related = known(chance);
            all.push(FlowMod {
                priority: 9,
                ..table(
                    1,
                    state(at(family.clone(), from), 0x25),
                    vec![ct(5, true, false, None, 0, if is_v4 { related } else { vec![] }), out()],
                )
            });
            let next = match chance.below(3) {
                0 => vec![ct(6, chance.one_in(2), false, Some(2), 0, vec![])],
                1 => vec![Action::CtClear, ct(7, false, false, Some(2), 0, vec![])],
                _ => vec![out()],
            };
            all.push(table(1, state(at(family.clone(), from), 0x22), next));
            all.push(table(1, state(at(family.clone(), from), 0x30), vec![out()]));
            all.push(table(2, at(family.clone(), from), vec![out()]));
        }
    }
    all
}

fn connections<P: Pipeline>(rig: &Rig<P>) -> Vec<String> {
    let all = rig.dp.tracker().all_connections(&Default::default(), rig.dp.now_ms());
    let mut all: Vec<_> = all.into_iter().map(|c| format!("{:?}", Connected { timeout_s: 0, ..c })).collect();
    all.sort();
    all
}

/// How many packets were sent.
fn run(seed: u64) -> Result<usize, String> {
    let chance = &mut Chance::new(seed);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2]);
    let config = Config { hash_seed: Some(seed), exact_tier: ExactTier::On, ..Config::default() };
    let mut pair = Pair::new(&switch, Mistake::None, &domain, config, &[INSIDE, OUTSIDE]);
    for rule in rules(chance) {
        control.flow_mod(bridge, &rule, 0).map_err(|e| format!("seed {seed}: {e:?}"))?;
    }
    let mut sent = 0;
    for round in 0..200 {
        let from = chance.below(2) as usize;
        let burst = frames(from, chance);
        // One by one: those of a burst that are known pass others.
        for frame in burst {
            let told = format!("seed {seed}, round {round}: {:02x?}", &frame[..frame.len().min(90)]);
            pair.receive([INSIDE, OUTSIDE][from], vec![frame]);
            let fates = pair.same_fates().map_err(|e| format!("{told}\n{e}"))?;
            sent += fates.values().map(Vec::len).sum::<usize>();
            let (ours, theirs) = (connections(&pair.cached), connections(&pair.plain));
            if ours != theirs {
                return Err(format!("{told}\n{ours:#?}\n and uncached {theirs:#?}"));
            }
        }
        if chance.one_in(50) {
            pair.cached.dp.flush_flows();
        }
    }
    pair.same_counts(control.slot_count()).map_err(|e| format!("seed {seed}: {e}"))?;
    let Pair { cached, plain } = pair;
    end(cached)?;
    end(plain)?;
    Ok(sent)
}

/// Ends a rig, in which fragments may wait for others that never come.
fn end<P: Pipeline>(mut rig: Rig<P>) -> Result<(), String> {
    rig.settle();
    let mut waiting = vec![];
    while rig.dp.tracker().fragments().expire(u64::MAX, |packet| waiting.push(packet)) {}
    let count = waiting.len() as u64;
    waiting.into_iter().for_each(|packet| rig.dp.free(packet));
    let s = rig.dp.worker_stats(0);
    let went = s.tx.get() + s.drops.total() + count;
    if s.rx.get() + s.copies.get() == went {
        Ok(())
    } else {
        Err(format!("{went} went, {count} wait: {s:?}"))
    }
}

#[test]
fn packets_that_lie_to_the_tracker_fare_alike_with_caches_and_without() {
    let seeds = u64::from(testkit::cases("oracle::hostile", 24));
    let sent: usize = (0..seeds).map(|seed| run(seed).unwrap_or_else(|e| panic!("{e}"))).sum();
    pool_is_whole().unwrap();
    assert!(sent as u64 > seeds * 20, "only {sent} packets came through");
}

//! Packets behind a VLAN tag and of IPv6, ordinary and odd, meet the flows that they would without caches:
//! whatever the processor has, however deep they are read, while rules change and more tags are looked behind
//! or fewer.

use base::PortNo;
use datapath::{Config, ExactTier};
use flow::{Action, FieldId, Match};
use oracle::common::chance::Chance;
use oracle::home::{bridge_of, output};
use oracle::pipelines::{Mistake, Mistaken, Uncached};
use oracle::rig::{Pair, Rig, pool_is_whole};
use packet::BURST;
use std::sync::Arc;
use switch::control::{Command, FlowMod};

/// Most have the first.
fn mostly<T: Copy>(chance: &mut Chance, all: &[T]) -> T {
    if chance.one_in(4) { *chance.pick(all) } else { all[0] }
}

fn transport(chance: &mut Chance) -> (u8, Vec<u8>) {
    let protocol = *chance.pick(&[6, 6, 17, 17, 17, 58, 1, 132]);
    let ports = [0, mostly(chance, &[53, 80]), 1, mostly(chance, &[53, 80])];
    let mut l4 = ports.to_vec();
    match protocol {
        6 => {
            let flags = mostly(chance, &[0x10, 0x02, 0x12, 0x18]);
            let words = mostly(chance, &[5, 5, 8, 0, 4, 15]);
            l4.extend([0, 0, 0, chance.below(9) as u8, 0, 0, 0, 1, words << 4, flags, 1, 0, 0, 0, 0, 0]);
            l4.extend([0; 12]);
        }
        _ => l4.extend([0, 8, 0, 0]),
    }
    if chance.one_in(20) {
        l4.truncate(chance.below(12) as usize);
    }
    (protocol, l4)
}

fn ipv4(chance: &mut Chance) -> Vec<u8> {
    let (protocol, l4) = transport(chance);
    let options = mostly(chance, &[0, 0, 0, 4]);
    let len = (20 + options + l4.len()) as u16;
    let len = mostly(chance, &[len, len, len, 0, 19, 20, len.saturating_sub(1), len + 1, 0xffff]);
    let fragment = mostly(chance, &[0x4000u16, 0, 0x8000, 0x2000, 0x2005, 0x0001]);
    let mut ip = vec![0x45 + options as u8 / 4, mostly(chance, &[0, 0x28])];
    ip.extend([len.to_be_bytes(), [chance.below(3) as u8, 7], fragment.to_be_bytes()].concat());
    ip.extend([mostly(chance, &[64, 1]), protocol, chance.below(3) as u8, 0, 10, 0, 0]);
    ip.extend([chance.below(3) as u8, 10, 0, 0, 9]);
    ip.resize(20 + options, 1);
    ip.extend(l4);
    ip
}

fn ipv6(chance: &mut Chance) -> Vec<u8> {
    let (protocol, l4) = transport(chance);
    let (next, extension): (u8, Vec<u8>) = match mostly(chance, &[0, 0, 1, 2, 3]) {
        1 => (mostly(chance, &[0, 60, 43]), vec![protocol, 0, 1, 4, 0, 0, 0, 0]),
        2 => (44, vec![protocol, 0, 0, mostly(chance, &[1, 0, 8]), 0, 0, 0, 9]),
        3 => (mostly(chance, &[59, 44, 0]), vec![]),
        _ => (protocol, vec![]),
    };
    let len = (extension.len() + l4.len()) as u16;
    let len = mostly(chance, &[len, len, len, 0, 7, 8, len.saturating_sub(1), len + 1, 0xffff]);
    let version = mostly(chance, &[0x60, 0x60, 0x62, 0x40]);
    let mut ip = vec![version, mostly(chance, &[0, 0x80]), 0, mostly(chance, &[0, 5])];
    ip.extend(len.to_be_bytes());
    ip.extend([next, mostly(chance, &[64, 1])]);
    ip.extend([0x20; 15]);
    ip.extend([chance.below(3) as u8]);
    ip.extend([0x21; 15]);
    ip.extend([mostly(chance, &[9, 8])]);
    ip.extend(extension);
    ip.extend(l4);
    ip
}

fn frame(chance: &mut Chance) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, mostly(chance, &[1, 3])];
    for _ in 0..*chance.pick(&[0, 1, 1, 1, 1, 2]) {
        frame.extend(mostly(chance, &[[0x81, 0], [0x81, 0], [0x88, 0xa8], [0x91, 0]]));
        // A priority tag, and the bit of the old format indicator.
        frame.extend(mostly(chance, &[[0, 10], [0x10, 10], [0x60, 10], [0, 0], [0, 20]]));
    }
    let is_ipv6 = chance.one_in(2);
    let (eth_type, network) = if is_ipv6 { ([0x86, 0xdd], ipv6(chance)) } else { ([8, 0], ipv4(chance)) };
    frame.extend(mostly(chance, &[eth_type, eth_type, eth_type, [8, 6], [0x86, 0xdd], [8, 0]]));
    frame.extend(network);
    // Padding, or none.
    if !chance.one_in(3) {
        frame.resize(frame.len().max(60) + chance.below(5) as usize, 0);
    }
    if chance.one_in(25) {
        frame.truncate(14 + chance.below(60) as usize);
    }
    frame
}

/// A condition that some packets meet.
fn condition(chance: &mut Chance) -> Match {
    let any = Match::any();
    let (v4, v6) = (any.clone().with(FieldId::EthType, 0x800), any.clone().with(FieldId::EthType, 0x86dd));
    let of_protocol = |m: Match, chance: &mut Chance| m.with(FieldId::NwProto, *chance.pick(&[6, 17]));
    match chance.below(14) {
        0 => any.with(FieldId::EthSrc, 0x0200_0000_0003),
        1 => any.with_masked(FieldId::VlanTci, 0x100a, 0x1fff),
        2 => any.with_masked(FieldId::VlanTci, 0x7000, 0xf000),
        3 => any.with_masked(FieldId::VlanTci, 0, 0x1000),
        4 => v4.with(FieldId::NwSrc, 0x0a00_0001),
        5 => v4.with(FieldId::NwTos, 0x28),
        6 => v6.with_masked(FieldId::Ipv6Src, 1, 0xff),
        7 => v6.with_masked(FieldId::Ipv6Dst, 8, 0xff),
        8 => v6.with(FieldId::Ipv6Label, 5),
        9 => v6.with(FieldId::NwTtl, 1),
        10 => v6.with(FieldId::NwTos, 8),
        11 => of_protocol(v6, chance).with(FieldId::TpDst, 0x150),
        12 => of_protocol(v4, chance).with(FieldId::TpSrc, 53),
        _ => v6.with(FieldId::NwProto, 6).with_masked(FieldId::TcpFlags, 2, 2),
    }
}

fn actions(matching: &Match, chance: &mut Chance) -> Vec<Action> {
    let is_tagged = matching.key.get64(FieldId::VlanTci) & 0x1000 != 0;
    let is_ip = matching.mask.get(FieldId::EthType) != 0;
    let change = match chance.below(6) {
        0..3 if is_tagged => Some(Action::PopVlan),
        3 if is_ip => Some(Action::DecTtl(None)),
        _ => None,
    };
    change.into_iter().chain([output(2 + chance.below(3) as u16)]).collect()
}

/// Packets, and those of them that hit the exact tier.
fn world(seed: u64, is_baseline: bool) -> [u64; 2] {
    let chance = &mut Chance::new(seed);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    let config =
        Config { exact_tier: ExactTier::On, hash_seed: Some(seed), is_baseline, ..Config::default() };
    let ports = [1, 2, 3, 4].map(PortNo);
    // Without the exact tier, each packet is read for itself.
    let by_itself = Config { exact_tier: ExactTier::Off, ..config };
    let mut pair = Pair {
        cached: Rig::new(Mistaken::new(switch.clone(), Mistake::None), domain.clone(), config, &ports),
        plain: Rig::new(Arc::new(Uncached(switch.clone())), domain.clone(), by_itself, &ports),
    };
    let kinds: Vec<Vec<u8>> = (0..60).map(|_| frame(chance)).collect();
    let mut rules = vec![];
    for n in 0..12 {
        if chance.one_in(3) && !rules.is_empty() {
            let n = chance.below(rules.len() as u64) as usize;
            let (priority, matching) = rules.swap_remove(n);
            control
                .flow_mod(
                    bridge,
                    &FlowMod { command: Command::DeleteStrict, priority, ..FlowMod::delete(matching) },
                    0,
                )
                .unwrap();
        } else {
            // No two have the same: which of them holds where both match is undefined.
            let (priority, matching) = (n * 7 % 12, condition(chance));
            let fm = FlowMod { priority, ..FlowMod::add(matching.clone(), actions(&matching, chance)) };
            control.flow_mod(bridge, &fm, 0).unwrap();
            rules.push((priority, matching));
        }
        if chance.one_in(5) {
            switch.set_vlan_limit(*chance.pick(&[0, 1, 2, 2]));
        }
        for _ in 0..6 {
            let len = *chance.pick(&[1, 2, 7, BURST]);
            let mut burst: Vec<Vec<u8>> = vec![];
            while burst.len() < len {
                let kind = chance.pick(&kinds);
                let times = mostly(chance, &[1, 2, 3]);
                // What extraction does not read differs.
                burst.extend((0..times.min(len - burst.len())).map(|n| [&kind[..], &[n as u8]].concat()));
            }
            pair.receive(PortNo(1), burst);
            pair.same_fates().unwrap_or_else(|e| panic!("{seed} {is_baseline}: {e}"));
        }
    }
    pair.same_counts(control.slot_count()).unwrap_or_else(|e| panic!("{seed} {is_baseline}: {e}"));
    let stats = pair.cached.dp.worker_stats(0);
    let counts = [stats.rx.get(), stats.exact_hits.get()];
    pair.end().unwrap();
    counts
}

#[test]
fn long_plain_packets_meet_the_flows_that_they_would_without_caches() {
    let (mut packets, mut hits) = (0, 0);
    for seed in 0..u64::from(testkit::cases("oracle::long", 60)) {
        let of = [false, true].map(|is_baseline| world(seed, is_baseline));
        packets += of[0][0] + of[1][0];
        hits += of[0][1] + of[1][1];
        assert_eq!(of[0], of[1], "{seed}: as many hits whatever the processor has");
    }
    assert!(hits > packets / 4, "{hits} of {packets} hit the exact tier");
    pool_is_whole().unwrap();
}

/// A frame in which one field has another value, and that value; behind a tag if so.
fn variants(tag: &[u8]) -> Vec<(Vec<u8>, Vec<u8>, FieldId, u128)> {
    let l3 = 14 + tag.len();
    let of = |eth_type: [u8; 2], network: &[u8]| {
        [&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1], tag, &eth_type, network, &[0; 30]].concat()
    };
    let tcp = [0, 53, 1, 53, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    let v4 = [0x45, 0, 0, 40, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9];
    let v6 = [[0x60, 0, 0, 0, 0, 20, 6, 64].as_slice(), &[0x20; 32]].concat();
    let (v4, v6) = (of([8, 0], &[&v4[..], &tcp].concat()), of([0x86, 0xdd], &[&v6[..], &tcp].concat()));
    let address = |at: usize| u128::from_be_bytes([0x20; 16]) ^ 1 << (8 * (15 - at));
    let mut all = vec![];
    for (frame, l4, is_ipv6) in [(v4, l3 + 20, false), (v6, l3 + 40, true)] {
        let mut places = vec![
            (5, 1, FieldId::EthDst, 0x0200_0000_0008),
            (11, 1, FieldId::EthSrc, 0x0200_0000_0000),
            (l4 + 1, 1, FieldId::TpSrc, 52),
            (l4 + 3, 1, FieldId::TpDst, 0x134),
            (l4 + 13, 2, FieldId::TcpFlags, 0x12),
        ];
        if is_ipv6 {
            places.extend([(l3 + 7, 1, FieldId::NwTtl, 65), (l3 + 3, 1, FieldId::Ipv6Label, 1)]);
            places.extend((0..16).map(|n| (l3 + 8 + n, 1, FieldId::Ipv6Src, address(n))));
            places.extend((0..16).map(|n| (l3 + 24 + n, 1, FieldId::Ipv6Dst, address(n))));
        } else {
            places.extend([(l3 + 1, 4, FieldId::NwTos, 4), (l3 + 8, 1, FieldId::NwTtl, 65)]);
            places.push((l3 + 15, 1, FieldId::NwSrc, 0x0a00_0000));
            places.push((l3 + 19, 1, FieldId::NwDst, 0x0a00_0008));
        }
        all.extend(places.into_iter().map(|(at, bit, field, value)| {
            let mut other = frame.clone();
            other[at] ^= bit;
            (frame.clone(), other, field, value)
        }));
    }
    all
}

#[test]
fn consecutive_packets_that_differ_in_one_field_go_their_own_ways() {
    let tagged = variants(&[0x81, 0, 0, 10]);
    for (is_baseline, (frame, other, field, value)) in [false, true]
        .into_iter()
        .flat_map(|is| tagged.clone().into_iter().chain(variants(&[])).map(move |v| (is, v)))
    {
        let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
        let config =
            Config { exact_tier: ExactTier::On, hash_seed: Some(3), is_baseline, ..Config::default() };
        let mut pair = Pair::new(&switch, Mistake::None, &domain, config, &[1, 2, 3].map(PortNo));
        let eth_type = if frame[12..].starts_with(&[0x86, 0xdd]) || frame[16..].starts_with(&[0x86, 0xdd]) {
            0x86dd
        } else {
            0x800
        };
        let of_tcp = Match::any().with(FieldId::EthType, eth_type).with(FieldId::NwProto, 6);
        for (priority, matching, port) in [(2, of_tcp.with(field, value), 3), (1, Match::any(), 2)] {
            let fm = FlowMod { priority, ..FlowMod::add(matching, vec![output(port)]) };
            control.flow_mod(bridge, &fm, 0).unwrap();
        }
        for _ in 0..3 {
            pair.receive(
                PortNo(1),
                [&frame, &frame, &other, &other, &frame, &other].map(Vec::clone).to_vec(),
            );
            let sent = pair.same_fates().unwrap_or_else(|e| panic!("{field:?} {value:x}: {e}"));
            assert_eq!([2, 3].map(|port| sent[&PortNo(port)].len()), [3, 3], "{field:?} {value:x}");
        }
        pair.end().unwrap();
    }
}

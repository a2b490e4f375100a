//! Random `encap` and `decap` of NSH, MPLS and Ethernet: what leaves, through the caches and without, is what
//! a plain model makes of a packet that is a list of headers.
//!
//! Each rule is for packets of one kind and number, so the model knows which of them a packet gets. What
//! comes out of an NSH may be a frame or an IPv4 packet, which the rules of the second table tell apart.

use base::PortNo;
use datapath::{Config, ExactTier};
use flow::{FieldId, Match};
use openflow::text::{ActionsIn, PortNames, parse_actions};
use oracle::common::chance::Chance;
use oracle::home::{bridge_of, udp_frame};
use oracle::pipelines::Mistake;
use oracle::rig::{Pair, pool_is_whole};
use std::collections::{BTreeMap, HashMap};
use switch::control::FlowMod;

/// Rules of each kind, and destinations.
const NUMBERS: u64 = 4;
const IPV4: u128 = 0x1_0800;

/// A header, or all of an IPv4 packet.
#[derive(Clone, PartialEq, Debug)]
enum Part {
    Ethernet {
        dst: u64,
        src: u64,
    },
    /// Path and first context header.
    Nsh {
        spi: u32,
        c1: u32,
    },
    Mpls {
        label: u32,
    },
    Ipv4(Vec<u8>),
    /// To who writes a rule: an IPv4 packet or a frame.
    Either,
}
use Part::*;

/// A packet, outermost header first.
type Parts = Vec<Part>;

fn bytes_of(parts: &[Part]) -> Vec<u8> {
    let Some((first, rest)) = parts.split_first() else { return vec![] };
    let next = rest.first();
    let header = match first {
        Ethernet { dst, src } => {
            let eth_type: u16 = match next {
                Some(Nsh { .. }) => 0x894f,
                Some(Mpls { .. }) => 0x8847,
                _ => 0x0800,
            };
            [&dst.to_be_bytes()[2..], &src.to_be_bytes()[2..], &eth_type.to_be_bytes()].concat()
        }
        Nsh { spi, c1 } => {
            // RFC 8300: Ethernet is 3, NSH 4, MPLS 5.
            let protocol = match next {
                Some(Ethernet { .. }) => 3,
                Some(Nsh { .. }) => 4,
                Some(Mpls { .. }) => 5,
                _ => 1,
            };
            let mut header = vec![0x0f, 0xc6, 1, protocol];
            header.extend((spi << 8 | 0xff).to_be_bytes());
            header.extend(c1.to_be_bytes());
            header.resize(24, 0);
            header
        }
        // The bottom of the stack; time to live 64.
        Mpls { label } => (label << 12 | 0x100 | 64).to_be_bytes().to_vec(),
        Ipv4(bytes) => bytes.clone(),
        Either => unreachable!("no packet has it"),
    };
    [header, bytes_of(rest)].concat()
}

/// One action, as text and as the model's.
#[derive(Clone, PartialEq, Debug)]
enum Step {
    Encap(Part),
    Decap,
    /// Of the first header.
    SetDst(u64),
    SetSpi(u32),
    SetC1(u32),
    SetLabel(u32),
    Output(u32),
    /// To the second table.
    On,
}

/// A step as text, for a packet with these headers. What lies behind a label only the action says.
fn text_of(step: &Step, before: &[Part]) -> String {
    match step {
        Step::Encap(Ethernet { .. }) => "encap(ethernet)".to_string(),
        Step::Encap(Mpls { .. }) => "encap(mpls)".to_string(),
        Step::Encap(_) => "encap(nsh(md_type=1))".to_string(),
        Step::Decap => match before {
            [Mpls { .. }, Ethernet { .. }, ..] => "decap(packet_type(ns=0,type=0))".to_string(),
            [Mpls { .. }, Nsh { .. }, ..] => "decap(packet_type(ns=1,type=0x894f))".to_string(),
            [Mpls { .. }, ..] => "decap(packet_type(ns=1,type=0x800))".to_string(),
            _ => "decap".to_string(),
        },
        Step::SetDst(dst) => format!("load:{dst:#x}->NXM_OF_ETH_DST[]"),
        Step::SetSpi(spi) => format!("set_field:{spi}->nsh_spi"),
        Step::SetC1(c1) => format!("set_field:{c1}->nsh_c1"),
        Step::SetLabel(label) => format!("set_field:{label}->mpls_label"),
        Step::Output(port) => format!("output:{port}"),
        Step::On => "resubmit(,1)".to_string(),
    }
}

/// A random step that a packet with these headers can take.
fn draw(parts: &[Part], chance: &mut Chance) -> Step {
    let number = chance.below(1 << 16) as u32;
    match (&parts[0], chance.below(4)) {
        (Either, _) => Step::On,
        (Ethernet { .. }, 0) => Step::Encap(Nsh { spi: 0, c1: 0 }),
        (Ethernet { .. }, 1) => Step::Encap(Mpls { label: 0 }),
        (Ethernet { .. }, 2) => Step::SetDst(0x0200_0000_0000 + u64::from(number)),
        (Ethernet { .. } | Nsh { .. } | Mpls { .. }, 3) => Step::Decap,
        (Nsh { .. }, 1) => Step::SetSpi(number),
        (Nsh { .. }, 2) => Step::SetC1(number),
        (Mpls { .. }, 1 | 2) => Step::SetLabel(number),
        (Ipv4(_), 1) => Step::Encap(Nsh { spi: 0, c1: 0 }),
        (Ipv4(_), 2) => Step::Encap(Mpls { label: 0 }),
        _ => Step::Encap(Ethernet { dst: 0, src: 0 }),
    }
}

/// Steps and their text, for packets with these headers.
fn draw_steps(mut parts: Parts, chance: &mut Chance) -> (Vec<Step>, String) {
    let (mut steps, mut text) = (vec![], vec![]);
    let mut take = |step: Step, parts: &mut Parts| {
        text.push(text_of(&step, parts));
        apply(&step, parts);
        steps.push(step);
    };
    for _ in 0..chance.below(6) + 1 {
        let step = draw(&parts, chance);
        let is_last = step == Step::On;
        take(step, &mut parts);
        if is_last {
            return (steps, text.join(","));
        }
    }
    if parts[0] == Either || chance.one_in(4) {
        take(Step::On, &mut parts);
    } else {
        // Where it does not begin with Ethernet, it is dropped at times.
        if !matches!(parts[0], Ethernet { .. }) && !chance.one_in(4) {
            take(Step::Encap(Ethernet { dst: 0, src: 0 }), &mut parts);
        }
        take(Step::Output(2 + chance.below(2) as u32), &mut parts);
    }
    (steps, text.join(","))
}

/// What a step makes of the headers.
fn apply(step: &Step, parts: &mut Parts) {
    match (step, &mut parts[0]) {
        (Step::Encap(part), _) => parts.insert(0, part.clone()),
        (Step::Decap, _) => drop(parts.remove(0)),
        (Step::SetDst(new), Ethernet { dst, .. }) => *dst = *new,
        (Step::SetSpi(new), Nsh { spi, .. }) => *spi = *new,
        (Step::SetC1(new), Nsh { c1, .. }) => *c1 = *new,
        (Step::SetLabel(new), Mpls { label }) => *label = *new,
        (Step::Output(_) | Step::On, _) => {}
        (_, part) => panic!("{step:?} of {part:?}"),
    }
}

/// Kinds of packets: which parts come in, and which a rule may count on.
const KINDS: u64 = 3;

fn packet_of(kind: u64, number: u64, ip: Vec<u8>, is_frame: bool) -> Parts {
    let ethernet = Ethernet { dst: 0x0200_0000_0002, src: 0x0200_0000_0001 };
    match kind {
        0 => vec![ethernet, Ipv4(ip)],
        1 => {
            let nsh = Nsh { spi: number as u32, c1: 7 };
            let within = if is_frame { vec![ethernet.clone(), Ipv4(ip)] } else { vec![Ipv4(ip)] };
            [vec![ethernet, nsh], within].concat()
        }
        _ => vec![ethernet, Mpls { label: 16 + number as u32 }, Ipv4(ip)],
    }
}

fn match_of(kind: u64, number: u64) -> Match {
    let of = |eth_type| Match::any().with(FieldId::EthType, eth_type);
    match kind {
        0 => of(0x800).with(FieldId::NwDst, 0x0a00_0000 + u128::from(number)),
        1 => of(0x894f).with(FieldId::NshSpi, number.into()),
        _ => of(0x8847).with_masked(FieldId::Mpls0, (16 + u128::from(number)) << 12, 0xffff_f000),
    }
}

/// An IPv4 packet to a destination, with its number.
fn ip_packet(destination: u64, number: u64) -> Vec<u8> {
    let mut ip = udp_frame()[14..].to_vec();
    ip[19] = destination as u8;
    let end = ip.len() - 8;
    ip[end..].copy_from_slice(&number.to_be_bytes());
    ip
}

/// What a run covered.
#[derive(Default, Debug)]
struct Coverage {
    rounds: u64,
    hits: u64,
    sent: u64,
    refused: u64,
    rules: u64,
}

fn run(seed: u64, mistake: Mistake) -> Result<Coverage, String> {
    let chance = &mut Chance::new(seed);
    let ports = [1, 2, 3].map(PortNo);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let exact_tier = *chance.pick(&[ExactTier::On, ExactTier::Off]);
    let config = Config { hash_seed: Some(seed), exact_tier, ..Config::default() };
    let mut pair = Pair::new(&switch, mistake, &domain, config, &ports);
    let mut covered = Coverage::default();
    let mut add = |table_id, matching, actions: &str| {
        let list = parse_actions(actions, ActionsIn::Flow, PortNames::none()).expect(actions);
        control.flow_mod(bridge, &FlowMod { table_id, ..FlowMod::add(matching, list) }, 0).is_ok()
    };
    // By the destination, of a frame and of a packet that begins with IPv4: where it goes.
    let mut second = HashMap::new();
    let mut first: HashMap<(u64, u64), Vec<Step>> = HashMap::new();
    let mut texts = HashMap::new();
    let mut number = 0;
    for round in 0..24 {
        for _ in 0..if round == 0 { 24 } else { 2 } {
            let at = (chance.below(KINDS), chance.below(NUMBERS));
            let within = if at.0 == 1 { vec![Either] } else { vec![Ipv4(vec![])] };
            let mut parts = packet_of(at.0, at.1, vec![], false);
            parts.pop();
            parts.extend(within);
            let (steps, text) = draw_steps(parts, chance);
            covered.rules += 1;
            if add(0, match_of(at.0, at.1), &text) {
                first.insert(at, steps);
                texts.insert(at, text);
            } else {
                covered.refused += 1;
            }
            let (destination, port) = (chance.below(NUMBERS), 2 + chance.below(2) as u32);
            let ip = Match::any()
                .with(FieldId::EthType, 0x800)
                .with(FieldId::NwDst, 0x0a00_0000 + u128::from(destination));
            let is_frame = chance.one_in(2);
            let is_added = match is_frame {
                true => add(1, ip.with(FieldId::PacketType, 0), &format!("output:{port}")),
                false => {
                    add(1, ip.with(FieldId::PacketType, IPV4), &format!("encap(ethernet),output:{port}"))
                }
            };
            assert!(is_added, "a rule of the second table");
            second.insert((destination, is_frame), port);
        }
        let mut burst = vec![];
        let mut wanted: BTreeMap<PortNo, Vec<Vec<u8>>> = ports.iter().map(|p| (*p, vec![])).collect();
        let mut fates = HashMap::new();
        for _ in 0..packet::BURST {
            number += 1;
            let at = (chance.below(KINDS), chance.below(NUMBERS));
            let destination = if at.0 == 0 { at.1 } else { chance.below(NUMBERS) };
            let mut parts = packet_of(at.0, at.1, ip_packet(destination, number), chance.one_in(2));
            let frame = bytes_of(&parts);
            burst.push(frame.clone());
            let mut sent = None;
            for step in first.get(&at).into_iter().flatten() {
                apply(step, &mut parts);
                match (step, &parts[..]) {
                    (Step::Output(port), [Ethernet { .. }, ..]) => sent = Some(*port),
                    (Step::On, [Ethernet { .. }, Ipv4(_)]) => {
                        sent = second.get(&(destination, true)).copied();
                    }
                    (Step::On, [Ipv4(_)]) => {
                        sent = second.get(&(destination, false)).copied();
                        parts.insert(0, Ethernet { dst: 0, src: 0 });
                    }
                    _ => {}
                }
            }
            if let Some(port) = sent {
                let out = bytes_of(&parts);
                covered.sent += 1;
                wanted.get_mut(&PortNo(port)).expect("a port").push(out);
            }
            fates.insert(number, (at, frame, sent, parts));
        }
        pair.receive(PortNo(1), burst);
        let uncached = pair.same_fates().map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
        wanted.values_mut().for_each(|frames| frames.sort());
        if uncached != wanted {
            let of = |frames: &BTreeMap<PortNo, Vec<Vec<u8>>>, number: u64| {
                let is_of = |frame: &&Vec<u8>| frame.ends_with(&number.to_be_bytes());
                let all =
                    frames.iter().filter_map(|(port, all)| Some((*port, all.iter().find(is_of)?.clone())));
                all.collect::<Vec<_>>()
            };
            let (n, (at, frame, sent, parts)) =
                fates.iter().find(|(n, _)| of(&uncached, **n) != of(&wanted, **n)).expect("one that differs");
            return Err(format!(
                "seed {seed}, round {round}: {at:?} {:?}\n of {frame:02x?}\n gives {:02x?}\n and by the model \
                 {sent:?} {:02x?} {parts:?}",
                texts.get(at),
                of(&uncached, *n),
                bytes_of(parts)
            ));
        }
    }
    control.tick(0);
    pair.same_counts(control.slot_count()).map_err(|e| format!("seed {seed}: {e}"))?;
    let stats = pair.cached.dp.worker_stats(0);
    covered.rounds = stats.recirculations.get();
    covered.hits = stats.exact_hits.get() + stats.megaflow_hits.get();
    pair.end()?;
    Ok(covered)
}

#[test]
fn headers_are_pushed_and_popped_as_the_model_says() {
    let mut all = Coverage::default();
    for seed in 0..u64::from(testkit::cases("oracle::encapsulated", 60)) {
        let covered = run(seed, Mistake::None).unwrap_or_else(|e| panic!("{e}"));
        all.rounds += covered.rounds;
        all.hits += covered.hits;
        all.sent += covered.sent;
        all.refused += covered.refused;
        all.rules += covered.rules;
    }
    pool_is_whole().unwrap();
    println!("{all:?}");
    assert!(all.rounds > 1_000 && all.hits > 10_000 && all.sent > 10_000, "{all:?}");
    assert!(all.refused < all.rules / 10, "{all:?}");
}

fn must_be_found(mistake: Mistake) {
    let is_found = (0..60).any(|seed| run(seed, mistake).is_err());
    assert!(is_found, "{mistake:?} was not found in 60 runs");
}

#[test]
fn a_packet_type_that_a_flow_forgot_is_found() {
    must_be_found(Mistake::PacketTypeForgotten);
}

#[test]
fn a_stale_version_of_what_is_encapsulated_is_found() {
    must_be_found(Mistake::StaleVersion);
}

//! Many distinct masks: what a packet costs, which tier served it, and whether the exact-match tier pays.
//!
//! Mask (a, b) is a rule for `nw_src` under a prefix of `a` bits and `nw_dst` under one of `b`. The prefixes
//! of each field branch off one path (1, 01, 001, ...), so they do not overlap, every packet matches one
//! rule, and the tries of the classifier decide after `a` and `b` bits: one megaflow, with one mask, for each
//! rule (`wide`). With `per_flow` the rules' actions also read the UDP ports, in which the flows differ: the
//! number of masks is the same, and each flow is a megaflow.
//!
//! The prefixes of two addresses give a thousand masks. For more, rules also have a prefix of the UDP
//! destination port.
//!
//! Two switches take turns: one uses the exact-match tier, the other does not.

use crate::measure::frames::{Order, sequence};
use crate::measure::rig::{Rig, Sample};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, Rates, SINK, SOURCE};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::{Failure, count, up_to};
use datapath::{CacheConfig, Config, ExactTier};
use flow::{FieldId, Match, Mf};
use std::net::Ipv4Addr;
use std::time::Duration;
use switch::control::FlowMod;

/// The most masks that are asked for.
const MASKS_MAX: usize = 10_000;
/// With more masks than this, rules also need a prefix of the port; the addresses' prefixes give 1024.
const MASKS_OF_ADDRESSES: usize = 1_000;

/// Lengths of the prefixes that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Lengths {
    src: u32,
    dst: u32,
    /// 0: the rule matches no port.
    port: u32,
}

/// How many flows a megaflow serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Megaflows {
    /// One megaflow for all flows of a rule.
    Wide,
    /// One.
    PerFlow,
}

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of distinct masks in the rules, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = up_to::<MASKS_MAX>,
        default_value = "1,2,8,32,128,1k,10k"
    )]
    masks: Vec<usize>,
    /// Numbers of flows, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1k,100k,1m")]
    flows: Vec<usize>,
    /// What the megaflows are; both where it is not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    megaflows: Vec<Megaflows>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    /// `on` or `off`.
    exact_tier: &'static str,
    masks: usize,
    flows: usize,
    megaflows: Megaflows,
    cycles_per_packet: f64,
    #[serde(flatten)]
    rates: Rates,
    emc_hit_ratio: f64,
    megaflow_hit_ratio: f64,
    miss_ratio: f64,
    /// Masks and megaflows in the worker's caches at the end.
    cached_masks: u64,
    cached_megaflows: u64,
    runs: u32,
    raw: Vec<f64>,
}

const WAYS: [(&str, ExactTier); 2] = [("on", ExactTier::On), ("off", ExactTier::Off)];

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let dir = TempDir::new("masks")?;
    let kinds = match args.megaflows.as_slice() {
        [] => vec![Megaflows::Wide, Megaflows::PerFlow],
        given => given.to_vec(),
    };
    if args.masks.iter().min() > args.flows.iter().max() {
        return Err(Failure::Usage("--masks: at most as many as --flows".into()));
    }
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    for megaflows in kinds {
        for &flows in &args.flows {
            for &masks in args.masks.iter().filter(|&&m| m <= flows) {
                let pcap = dir.0.join("flows.pcap");
                let prefixes = prefixes(masks);
                let order = sequence(flows, Order::Shuffled);
                trial::write_frames(&pcap, order.into_iter().map(|n| frame(&prefixes, n)))?;
                let source = trial::source(SOURCE, &pcap);
                let new = point(args, &source, &prefixes, flows, megaflows)?;
                let raw = |n: usize| new[n].raw.iter();
                let ratios: Vec<f64> = raw(0).zip(raw(1)).map(|(on, off)| on / off).collect();
                goals.at_most(
                    &format!("{megaflows:?} {masks} masks {flows} flows: on/off"),
                    &ratios,
                    crate::goals::EXACT_TIER_MOST,
                );
                rows.extend(new);
            }
        }
    }
    Ok(args.common.finish(rows, goals)?)
}

/// Both ways, in turns.
fn point(
    args: &Args,
    source: &ports::PortSpec,
    prefixes: &[Lengths],
    flows: usize,
    megaflows: Megaflows,
) -> Result<Vec<Row>, String> {
    let mut rigs = Vec::new();
    for (_, exact_tier) in WAYS {
        // Cached flows must survive the turns of the others.
        let cache = CacheConfig { max_idle_ms: 600_000, ..CacheConfig::default() };
        let mut rig = Rig::new(Config { cache, exact_tier, ..Config::default() })?;
        rig.add_port(&trial::sink(SINK))?;
        rig.add_rules(&rules(prefixes, megaflows))?;
        rigs.push(rig);
    }
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); WAYS.len()];
    for turn in 0..args.common.runs {
        for (rig, samples) in rigs.iter_mut().zip(&mut samples) {
            rig.add_port(source)?;
            let settle_ms = args.common.turn_ms * if turn == 0 { 4 } else { 1 };
            rig.warm_up(Duration::from_millis(settle_ms.min(4_000)));
            samples.push(rig.measure(args.common.turn()));
            rig.detach(SOURCE)?;
        }
    }
    let mut rows = Vec::new();
    for ((rig, samples), (name, _)) in rigs.iter().zip(&samples).zip(WAYS) {
        let of = |f: fn(&Sample) -> f64| median(&samples.iter().map(f).collect::<Vec<_>>());
        let stats = rig.datapath.worker_stats(0);
        let row = Row {
            switch: "crosspoint",
            exact_tier: name,
            masks: prefixes.len(),
            flows,
            megaflows,
            cycles_per_packet: of(|s| s.cycles_per_packet),
            rates: Rates::of_samples(samples),
            emc_hit_ratio: of(|s| s.exact_ratio),
            megaflow_hit_ratio: of(|s| s.megaflow_ratio),
            miss_ratio: of(|s| s.miss_ratio),
            cached_masks: stats.masks.get(),
            cached_megaflows: stats.megaflows.get(),
            runs: samples.len() as u32,
            raw: samples.iter().map(|s| s.cycles_per_packet).collect(),
        };
        println!(
            "{megaflows:?} {:>4} masks {flows:>7} flows, exact tier {name:<4}: {:>7.1} cycles/packet; exact {:.3} megaflow {:.3} miss {:.4}; {} masks, {} megaflows cached",
            row.masks,
            row.cycles_per_packet,
            row.emc_hit_ratio,
            row.megaflow_hit_ratio,
            row.miss_ratio,
            row.cached_masks,
            row.cached_megaflows,
        );
        rows.push(row);
    }
    Ok(rows)
}

/// The prefix lengths with the most addresses, this many of them.
fn prefixes(masks: usize) -> Vec<Lengths> {
    let ports = if masks <= MASKS_OF_ADDRESSES { 0..=0 } else { 1..=10 };
    let pairs = (1..=32).flat_map(|src| (1..=32).map(move |dst| (src, dst)));
    let all = pairs.flat_map(|(src, dst)| ports.clone().map(move |port| Lengths { src, dst, port }));
    let mut all: Vec<Lengths> = all.collect();
    all.sort_by_key(|lengths| (lengths.src + lengths.dst + lengths.port, lengths.src, lengths.dst));
    all.truncate(masks);
    all
}

/// The prefix of `len` bits that branches off the path of zeros at its last bit.
fn prefix(len: u32) -> u32 {
    1 << (32 - len)
}

fn prefix_mask(len: u32) -> u32 {
    u32::MAX << (32 - len)
}

/// The same for a port, which has 16 bits.
fn port_prefix(len: u32) -> u16 {
    1 << (16 - len)
}

fn port_mask(len: u32) -> u16 {
    u16::MAX << (16 - len)
}

fn rules(prefixes: &[Lengths], megaflows: Megaflows) -> Vec<FlowMod> {
    let actions = || match megaflows {
        Megaflows::Wide => trial::to_sink(),
        Megaflows::PerFlow => trial::reading(&[(Mf::UdpSrc, 16), (Mf::UdpDst, 16)]),
    };
    let matching = |&Lengths { src, dst, port }: &Lengths| {
        let matching = Match::any()
            .with(FieldId::InPort, SOURCE.0.into())
            .with(FieldId::EthType, 0x0800)
            .with(FieldId::NwProto, 17)
            .with_masked(FieldId::NwSrc, prefix(src).into(), prefix_mask(src).into())
            .with_masked(FieldId::NwDst, prefix(dst).into(), prefix_mask(dst).into());
        match port {
            0 => matching,
            _ => matching.with_masked(FieldId::TpDst, port_prefix(port).into(), port_mask(port).into()),
        }
    };
    prefixes.iter().map(|pair| FlowMod::add(matching(pair), actions())).collect()
}

/// The frame of flow `n`: masks in turn, each flow with its own addresses and ports. The narrowest masks have
/// fewer addresses than their share of a million flows: the remaining flows use the widest.
fn frame(prefixes: &[Lengths], n: usize) -> Vec<u8> {
    let mut lengths = prefixes[n % prefixes.len()];
    let mut within = (n / prefixes.len()) as u64;
    if within >> (64 - lengths.src - lengths.dst).min(63) > 0 {
        lengths = prefixes[n % prefixes.len().min(32)];
        // Above all that these have themselves.
        within = (1 << 30) + n as u64;
    }
    let (src_bits, dst_bits) = (32 - lengths.src, 32 - lengths.dst);
    let low = |bits: u32, value: u64| (value & ((1u64 << bits) - 1)) as u32;
    let src = prefix(lengths.src) | low(src_bits, within);
    let dst = prefix(lengths.dst) | low(dst_bits, within >> src_bits);
    let port = match lengths.port {
        0 => (n >> 16) as u16,
        len => port_prefix(len) | low(16 - len, (n >> 16) as u64) as u16,
    };
    trial::frame(Ipv4Addr::from_bits(src), Ipv4Addr::from_bits(dst), n as u16, port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Of flow `n`, with its destination port.
    fn addresses(prefixes: &[Lengths], n: usize) -> (u32, u32, u16) {
        let f = frame(prefixes, n);
        let word = |at: usize| u32::from_be_bytes(f[at..at + 4].try_into().expect("four bytes"));
        (word(26), word(30), u16::from_be_bytes([f[36], f[37]]))
    }

    #[test]
    fn masks_are_distinct_and_every_flow_matches_the_rule_of_one() {
        for count in [1, 2, 8, 32, 128, 1000, 10_000] {
            let pairs = prefixes(count);
            assert_eq!(pairs.iter().collect::<HashSet<_>>().len(), count);
            for n in (0..1_000_000).step_by(7919) {
                let (src, dst, port) = addresses(&pairs, n);
                let fits = |one: &&Lengths| {
                    src & prefix_mask(one.src) == prefix(one.src)
                        && dst & prefix_mask(one.dst) == prefix(one.dst)
                        && (one.port == 0 || port & port_mask(one.port) == port_prefix(one.port))
                };
                assert_eq!(pairs.iter().filter(fits).count(), 1, "flow {n} of {count} masks");
            }
        }
    }

    #[test]
    fn a_million_flows_of_a_thousand_masks_have_addresses_of_their_own() {
        let pairs = prefixes(1000);
        let pair = |(src, dst, _)| (src, dst);
        let all: HashSet<_> = (0..1_000_000).map(|n| pair(addresses(&pairs, n))).collect();
        assert_eq!(all.len(), 1_000_000);
    }
}

//! Attempts to take more than a fair share: a port that opens new flows at full speed, and flows whose keys
//! collide under a hash without a secret.

use crate::machine::turns::turn;
use crate::measure::frames::{Order, frame, sequence};
use crate::measure::rig::{Rig, settle};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, Meter, SINK, SOURCE};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use base::PortNo;
use datapath::{CacheConfig, Config};
use flow::{FieldId, Match};
use std::net::Ipv4Addr;
use std::time::Duration;
use switch::control::FlowMod;

/// The port that opens new flows.
const FLOODER: PortNo = PortNo(3);

/// The offender that takes more than its share.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Beside {
    /// A port that opens new flows as fast as it can.
    NewFlows,
    /// A guest that stops reading while packets come for it as fast as they can.
    StoppedGuest,
}

/// Arguments of `fairness`.
#[derive(clap::Args)]
pub struct FairnessArgs {
    /// Beside whom an established flow is measured.
    #[arg(long, value_enum, default_value = "new-flows")]
    beside: Beside,
    /// Flows that the flooding port goes through; twice as many as the cache holds, so each is new when it
    /// comes.
    #[arg(long, value_parser = count, default_value = "1m")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct FairnessRow {
    switch: &'static str,
    what: &'static str,
    new_flows_per_s: f64,
    alone_packets_per_s: f64,
    beside_packets_per_s: f64,
    /// Rate during the flood relative to the rate alone, by the worker's CPU time.
    kept_ratio: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// `fairness`.
pub fn run_fairness(args: &FairnessArgs) -> Result<(), String> {
    if args.beside == Beside::StoppedGuest {
        return crate::measure::stopped::run(&args.common);
    }
    let dir = TempDir::new("fairness")?;
    let (one, many) = (dir.0.join("one.pcap"), dir.0.join("many.pcap"));
    trial::write_frames(&one, std::iter::once(frame(0)))?;
    trial::write_frames(&many, (0..args.flows).map(frame))?;
    let cache = CacheConfig { flow_limit: (args.flows / 2).max(64), ..CacheConfig::default() };
    let mut rig = Rig::new(Config { cache, ..Config::default() })?;
    rig.add_port(&trial::sink(SINK))?;
    rig.add_port(&trial::source(SOURCE, &one))?;
    rig.add_port(&trial::source(FLOODER, &many))?;
    rig.detach(FLOODER)?;
    let established = Match::any().with(FieldId::InPort, SOURCE.0.into());
    rig.add_rules(&[FlowMod::add(established, trial::to_sink()), trial::every_pair_a_flow(FLOODER)])?;
    rig.warm_up(settle(1_000, args.common.turn_ms));
    let (mut alone, mut beside, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.common.runs {
        alone.push(rate_of_source(&mut rig, args.common.turn()).0);
        rig.add_port(&trial::source(FLOODER, &many))?;
        rig.run_for(Duration::from_millis(300));
        let (rate, misses) = rate_of_source(&mut rig, args.common.turn());
        beside.push(rate);
        new.push(misses);
        rig.detach(FLOODER)?;
        rig.run_for(Duration::from_millis(100));
    }
    let raw: Vec<f64> = beside.iter().zip(&alone).map(|(b, a)| b / a).collect();
    let row = FairnessRow {
        switch: "crosspoint",
        what: "fairness",
        new_flows_per_s: median(&new),
        alone_packets_per_s: median(&alone),
        beside_packets_per_s: median(&beside),
        kept_ratio: median(&raw),
        runs: args.common.runs,
        raw,
    };
    println!(
        "an established flow: {:.2} million packets/s alone, {:.2} beside {:.2} million new flows/s: keeps {:.3}",
        row.alone_packets_per_s / 1e6,
        row.beside_packets_per_s / 1e6,
        row.new_flows_per_s / 1e6,
        row.kept_ratio
    );
    let mut goals = Goals::default();
    goals.at_least("rate that an established flow keeps", &row.raw, crate::goals::FAIRNESS_LEAST);
    goals.at_least("new flows per second beside it", &[row.new_flows_per_s], 1.0);
    args.common.finish([row].into_iter().collect(), goals)
}

/// Packets of the established flow, and misses, per second of the worker's CPU time.
fn rate_of_source(rig: &mut Rig, time: Duration) -> (f64, f64) {
    let received =
        |rig: &Rig| rig.datapath.port_counters(SOURCE).iter().map(|c| c.rx_packets.get()).sum::<u64>();
    let before = received(rig);
    let sample = rig.measure(time);
    let after = received(rig);
    let cpu_s = sample.packets as f64 * sample.cycles_per_packet / base::clock::tsc_hz() as f64;
    ((after - before) as f64 / cpu_s, sample.packets as f64 * sample.miss_ratio / cpu_s)
}

/// Arguments of `collide`.
#[derive(clap::Args)]
pub struct CollideArgs {
    /// Flows of each kind.
    #[arg(long, value_parser = count, default_value = "100k")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct CollideRow {
    switch: &'static str,
    what: &'static str,
    /// The hash under which the keys of all flows are equal; `none` for addresses at random.
    colliding_under: &'static str,
    flows: usize,
    cycles_per_packet: f64,
    new_flow_cycles: f64,
    /// As a ratio to addresses at random in the same turns.
    ratio: f64,
    runs: u32,
    raw: Vec<f64>,
    raw_new_flow_cycles: Vec<f64>,
}

/// The polynomials, reflected.
const POLYNOMIALS: [(&str, u32); 2] = [("crc32", 0xedb8_8320), ("crc32c", 0x82f6_3b78)];

/// `collide`: flows whose address pairs give the whole key the same CRC, wherever the pair is in it and in
/// either byte order.
pub fn run_collide(args: &CollideArgs) -> Result<(), String> {
    let dir = TempDir::new("collide")?;
    let mut kinds: Vec<(&'static str, Vec<u64>)> = vec![("none", random_words(args.flows))];
    for (name, polynomial) in POLYNOMIALS {
        kinds.push((name, colliding_words(polynomial, args.flows)));
    }
    let mut rig = Rig::new(Config::default())?;
    rig.add_port(&trial::sink(SINK))?;
    let mut sources = Vec::new();
    for (name, words) in &kinds {
        let pcap = dir.0.join(name);
        let order = sequence(words.len(), Order::Shuffled);
        let frames = order.iter().map(|&n| {
            let (src, dst) = pair(words[n]);
            trial::frame(src, dst, 1024, 1025)
        });
        trial::write_frames(&pcap, frames)?;
        // The same flows once, for what it costs to see them for the first time.
        sources.push((trial::source(SOURCE, &pcap), trial::source(SOURCE, &pcap).with("loop", "false")));
        rig.add_port(&sources[0].0)?;
        rig.detach(SOURCE)?;
        let rules: Vec<FlowMod> =
            words.iter().map(|&w| FlowMod::add(matching(w), trial::to_sink())).collect();
        rig.add_rules(&rules)?;
    }
    let mut hits = vec![Vec::new(); kinds.len()];
    let mut first = vec![Vec::new(); kinds.len()];
    for _ in 0..args.common.runs {
        for (n, (looped, once)) in sources.iter().enumerate() {
            rig.datapath.flush_flows();
            rig.run_for(Duration::from_millis(200));
            let before = Meter::read(&rig);
            rig.add_port(once)?;
            turn("crosspoint", || {
                while Meter::read(&rig).since(&before).packets < args.flows as u64 {
                    rig.run_for(Duration::from_millis(2));
                }
            });
            first[n].push(Meter::read(&rig).since(&before).cycles_per_packet);
            rig.detach(SOURCE)?;
            rig.add_port(looped)?;
            rig.warm_up(Duration::from_millis(args.common.turn_ms.min(2_500)));
            hits[n].push(rig.measure(args.common.turn()).cycles_per_packet);
            rig.detach(SOURCE)?;
        }
    }
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    for (n, (name, words)) in kinds.iter().enumerate() {
        let against = |raw: &[Vec<f64>]| raw[n].iter().zip(&raw[0]).map(|(a, b)| a / b).collect::<Vec<f64>>();
        println!(
            "collisions under {name:<6}: {:>6.1} cycles/packet, {:.3} times none; {:>6.0} for a new flow, {:.3} times none",
            median(&hits[n]),
            median(&against(&hits)),
            median(&first[n]),
            median(&against(&first))
        );
        if n > 0 {
            goals.at_most(
                &format!("cost of flows that collide under {name}"),
                &against(&hits),
                crate::goals::COLLIDE_MOST,
            );
            goals.at_most(
                &format!("new flows that collide under {name}"),
                &against(&first),
                crate::goals::COLLIDE_MOST,
            );
        }
        rows.push(CollideRow {
            switch: "crosspoint",
            what: "collide",
            colliding_under: name,
            flows: words.len(),
            cycles_per_packet: median(&hits[n]),
            new_flow_cycles: median(&first[n]),
            ratio: median(&against(&hits)),
            runs: args.common.runs,
            raw: hits[n].clone(),
            raw_new_flow_cycles: first[n].clone(),
        });
    }
    args.common.finish(rows, goals)
}

fn pair(word: u64) -> (Ipv4Addr, Ipv4Addr) {
    (Ipv4Addr::from_bits((word >> 32) as u32), Ipv4Addr::from_bits(word as u32))
}

fn matching(word: u64) -> Match {
    let (src, dst) = pair(word);
    Match::any()
        .with(FieldId::InPort, SOURCE.0.into())
        .with(FieldId::EthType, 0x0800)
        .with(FieldId::NwSrc, src.to_bits().into())
        .with(FieldId::NwDst, dst.to_bits().into())
}

fn random_words(count: usize) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut seen = std::collections::HashSet::new();
    std::iter::from_fn(|| Some(next())).filter(|w| seen.insert(*w)).take(count).collect()
}

/// The CRC register after these bytes, from 0: linear in the bytes, so words whose difference gives 0 collide
/// in any message.
fn crc(polynomial: u32, bytes: [u8; 8]) -> u32 {
    let mut state = 0u32;
    for byte in bytes {
        state ^= u32::from(byte);
        for _ in 0..8 {
            state = if state & 1 == 1 { (state >> 1) ^ polynomial } else { state >> 1 };
        }
    }
    state
}

/// Distinct words with the same CRC, in the byte order of the key and, if the dimensions suffice, in that of
/// the packet: 64 bits of address less 32 of the CRC leave 2^32 words, so the order is that of the key, which
/// the packet's reversed words share.
fn colliding_words(polynomial: u32, count: usize) -> Vec<u64> {
    // Gaussian elimination over the bits of the word: which sums of bits have the CRC 0.
    let mut pivots: Vec<(u32, u64)> = Vec::new();
    let mut kernel = Vec::new();
    for bit in 0..64 {
        let mut word = 1u64 << bit;
        let mut value = crc(polynomial, word.to_le_bytes());
        for &(pivot, combination) in &pivots {
            if value >> (31 - pivot.leading_zeros()) & 1 == 1 {
                (value, word) = (value ^ pivot, word ^ combination);
            }
        }
        if value == 0 {
            kernel.push(word);
        } else {
            pivots.push((value, word));
            // From the highest bit down, so that no step restores what an earlier one removed.
            pivots.sort_unstable_by_key(|&(value, _)| std::cmp::Reverse(value));
        }
    }
    let sum = |n: usize| {
        let chosen = kernel.iter().enumerate().filter(|(i, _)| n >> i & 1 == 1);
        chosen.fold(0x0a00_0001_0b00_0001u64, |word, (_, delta)| word ^ delta)
    };
    (0..count).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_that_shall_collide_do_and_are_distinct() {
        for (_, polynomial) in POLYNOMIALS {
            let words = colliding_words(polynomial, 10_000);
            assert_eq!(words.iter().collect::<HashSet<_>>().len(), 10_000);
            let values: HashSet<u32> = words.iter().map(|w| crc(polynomial, w.to_le_bytes())).collect();
            assert_eq!(values.len(), 1);
        }
        let others: HashSet<u32> =
            random_words(1_000).iter().map(|w| crc(POLYNOMIALS[1].1, w.to_le_bytes())).collect();
        assert!(others.len() > 990);
    }

    #[test]
    fn the_crc_is_the_known_one() {
        // From 0xffffffff and complemented, "12345678" has these; linear, so the start adds its own share.
        let start = |polynomial| crc(polynomial, [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        let full = |polynomial| !(crc(polynomial, *b"12345678") ^ start(polynomial));
        assert_eq!(full(0xedb8_8320), 0x9ae0_daaf);
        assert_eq!(full(0x82f6_3b78), 0x6087_809a);
    }
}

//! Tuple space explosion: a guest sends few packets, each of which leaves a separate mask in the caches. How
//! much throughput is left for others at 100, 1,000 and 10,000 of them per second?
//!
//! The rules are those of an access list that the attacker's tenant may have: one prefix each of source
//! address, destination address and both ports is allowed, the rest is dropped. A packet that differs from
//! each prefix in a different bit is decided by that bit, so its megaflow has a separate mask: 32 x 32 x 16 x
//! 16 of them.

use crate::measure::frames::{Order, exact_match, write_pcap};
use crate::measure::rig::{Rig, settle};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE, per_cpu_second};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use base::PortNo;
use datapath::{CacheConfig, Config};
use flow::{FieldId, Match};
use std::net::Ipv4Addr;
use std::path::Path;
use switch::control::FlowMod;

const ATTACKER: PortNo = PortNo(3);
/// Packets of the trace: each has a mask of its own.
const TRACE: usize = 8_192;
/// The prefixes that the access list allows.
const ALLOWED: (u32, u32, u16, u16) = (0x0a00_0001, 0x0b00_0001, 12_345, 80);

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Packets per second of the trace.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "100,1k,10k")]
    rates: Vec<usize>,
    /// Flows of the others.
    #[arg(long, value_parser = count, default_value = "1k")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    attack_pps: usize,
    flows: usize,
    cycles_per_packet: f64,
    cached_masks: f64,
    packets_per_cpu_second: f64,
    /// As a ratio to the rate before the attack.
    kept_ratio: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("explosion")?;
    let (normal, attack) = (dir.0.join("normal.pcap"), dir.0.join("attack.pcap"));
    write_pcap(&normal, args.flows, Order::Shuffled)?;
    let mut rows = Rows::default();
    for &rate in &args.rates {
        let interval_ns = 1_000_000_000 / rate as u64;
        let trace = (0..TRACE).map(|n| (n as u64 * interval_ns, attack_frame(n)));
        trial::write_timed_frames(&attack, trace)?;
        let (mut kept, mut costs, mut masks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.common.runs {
            let (alone, beside, count) = turn(args, rate, &normal, &attack)?;
            kept.push(alone / beside);
            costs.push(beside);
            masks.push(count);
        }
        println!("{rate} packets/s of the trace: {:.3} of the throughput is left", median(&kept));
        rows.push(Row {
            switch: "crosspoint",
            attack_pps: rate,
            flows: args.flows,
            cycles_per_packet: median(&costs),
            cached_masks: median(&masks),
            packets_per_cpu_second: per_cpu_second(median(&costs)),
            kept_ratio: median(&kept),
            runs: args.common.runs,
            raw: kept,
        });
    }
    args.common.finish(rows, Goals::default())
}

/// Cycles per packet before and during the attack, and the masks that it left.
fn turn(args: &Args, rate: usize, normal: &Path, attack: &Path) -> Result<(f64, f64, f64), String> {
    let mut rig = Rig::new(Config::default())?;
    rig.add_port(&trial::sink(SINK))?;
    rig.add_port(&trial::source(SOURCE, normal))?;
    rig.add_port(&trial::sink(ATTACKER))?;
    let mut rules: Vec<FlowMod> =
        (0..args.flows).map(|n| FlowMod::add(exact_match(n), trial::to_sink())).collect();
    rules.extend(access_list());
    rig.add_rules(&rules)?;
    rig.detach(ATTACKER)?;
    rig.warm_up(settle(1_500, args.common.turn_ms));
    let alone = rig.measure(args.common.turn()).cycles_per_packet;
    let source = trial::source(ATTACKER, attack).with("timed", "true");
    rig.add_port(&source)?;
    rig.run_for(settle(growing_ms(rate), args.common.turn_ms));
    let beside = rig.measure(args.common.turn()).cycles_per_packet;
    Ok((alone, beside, rig.datapath.worker_stats(0).masks.get() as f64))
}

/// How long its masks become more: until all are there, or until the first ones expire while others come.
fn growing_ms(rate: usize) -> u64 {
    (TRACE * 1_000 / rate).min(CacheConfig::default().max_idle_ms as usize) as u64
}

/// Allow one of each, drop the rest.
fn access_list() -> Vec<FlowMod> {
    let (src, dst, src_port, dst_port) = ALLOWED;
    let of = |fields: Match| {
        let fields = fields.with(FieldId::InPort, ATTACKER.0.into()).with(FieldId::EthType, 0x0800);
        FlowMod { priority: 100, ..FlowMod::add(fields, trial::to_sink()) }
    };
    let udp = || Match::any().with(FieldId::NwProto, 17);
    let rest = Match::any().with(FieldId::InPort, ATTACKER.0.into());
    vec![
        of(Match::any().with(FieldId::NwSrc, src.into())),
        of(Match::any().with(FieldId::NwDst, dst.into())),
        of(udp().with(FieldId::TpSrc, src_port.into())),
        of(udp().with(FieldId::TpDst, dst_port.into())),
        FlowMod { priority: 1, ..FlowMod::add(rest, Vec::new()) },
    ]
}

/// The `n`-th packet differs from what is allowed in one bit of each field: the bits count up like digits.
fn attack_frame(n: usize) -> Vec<u8> {
    let (src, dst, src_port, dst_port) = ALLOWED;
    let (a, b, c, d) = (n % 32, n / 32 % 32, n / 1024 % 16, n / 16_384 % 16);
    trial::frame(
        Ipv4Addr::from_bits(src ^ 1 << a),
        Ipv4Addr::from_bits(dst ^ 1 << b),
        src_port ^ 1 << c,
        dst_port ^ 1 << d,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_is_measured_once_it_has_all_the_masks_that_it_can_keep() {
        assert_eq!([100, 1_000, 10_000].map(growing_ms), [10_000, 8_192, 819]);
    }

    #[test]
    fn no_packet_of_the_trace_is_allowed_and_each_differs_elsewhere() {
        let frames: std::collections::BTreeSet<_> = (0..TRACE).map(attack_frame).collect();
        assert_eq!(frames.len(), TRACE);
        let (src, dst, ..) = ALLOWED;
        for frame in frames {
            assert!(frame[26..30] != src.to_be_bytes() && frame[30..34] != dst.to_be_bytes());
        }
    }
}

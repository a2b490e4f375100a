//! The contribution of each part that makes the switch fast: the same traffic with caches of several sizes,
//! with and without the exact-match tier, and with batches of several sizes. One setting differs at a time,
//! and all variants take turns. (The contribution of transmit retries shows between two processes; see the
//! suite.)

use crate::measure::frames::{Order, exact_match, write_pcap};
use crate::measure::limited::Limited;
use crate::measure::rig::{Rig, Sample, settle};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use datapath::{CacheConfig, Config, ExactTier};
use std::path::Path;
use switch::control::FlowMod;

/// Capacities of the caches in flows, when these vary. 0: no caches. The last one holds all flows.
const CACHES: [usize; 5] = [0, 64, 1_000, 8_000, 2_000_000];
/// Packets per poll, when these vary.
const BATCHES: [usize; 3] = [1, 4, 32];

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Flows with traffic, one rule for each.
    #[arg(long, value_parser = count, default_value = "10k")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: &'static str,
    /// The setting of `what`.
    setting: String,
    flows: usize,
    cycles_per_packet: f64,
    emc_hit_ratio: f64,
    megaflow_hit_ratio: f64,
    miss_ratio: f64,
    /// As a ratio to the default switch.
    ratio: f64,
    runs: u32,
    raw: Vec<f64>,
}

struct Variant {
    what: &'static str,
    setting: String,
    batch: usize,
    rig: Rig,
    samples: Vec<Sample>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("ablation")?;
    let pcap = dir.0.join("flows.pcap");
    write_pcap(&pcap, args.flows, Order::Shuffled)?;
    let mut variants = vec![variant(args, "nothing", String::from("as it is"), Config::default(), 32)?];
    for flows in CACHES {
        let cache = CacheConfig { flow_limit: flows, ..CacheConfig::default() };
        variants.push(variant(args, "cache", flows.to_string(), Config { cache, ..Config::default() }, 32)?);
    }
    for (name, exact_tier) in [("on", ExactTier::On), ("off", ExactTier::Off)] {
        variants.push(variant(
            args,
            "exact_tier",
            name.into(),
            Config { exact_tier, ..Config::default() },
            32,
        )?);
    }
    for batch in BATCHES {
        variants.push(variant(args, "batch", batch.to_string(), Config::default(), batch)?);
    }
    for _ in 0..args.common.runs {
        for variant in &mut variants {
            let sample = turn(variant, &pcap, args)?;
            variant.samples.push(sample);
        }
    }
    let whole: Vec<f64> = variants[0].samples.iter().map(|s| s.cycles_per_packet).collect();
    let rows: Rows<Row> = variants.iter().map(|variant| row(variant, args, &whole)).collect();
    args.common.finish(rows, Goals::default())
}

fn variant(
    args: &Args,
    what: &'static str,
    setting: String,
    config: Config,
    batch: usize,
) -> Result<Variant, String> {
    let mut rig = Rig::new(config)?;
    rig.add_port(&trial::sink(SINK))?;
    let rules: Vec<FlowMod> =
        (0..args.flows).map(|n| FlowMod::add(exact_match(n), trial::to_sink())).collect();
    // The rules name the source, which must have been there.
    rig.add_port(&trial::sink(SOURCE))?;
    rig.detach(SOURCE)?;
    rig.add_rules(&rules)?;
    Ok(Variant { what, setting, batch, rig, samples: Vec::new() })
}

fn turn(variant: &mut Variant, pcap: &Path, args: &Args) -> Result<Sample, String> {
    let rig = &mut variant.rig;
    let port = ports::open(&trial::source(SOURCE, pcap), rig.datapath.pool()).map_err(|e| e.to_string())?;
    let port = Box::new(Limited::new(port, variant.batch));
    rig.datapath.add_port(SOURCE, port).map_err(|e| e.to_string())?;
    // Caches that do not hold all flows never settle.
    rig.run_for(settle(1_500, args.common.turn_ms));
    let sample = rig.measure(args.common.turn());
    rig.detach(SOURCE)?;
    Ok(sample)
}

fn row(variant: &Variant, args: &Args, whole: &[f64]) -> Row {
    let of = |f: fn(&Sample) -> f64| median(&variant.samples.iter().map(f).collect::<Vec<_>>());
    let raw: Vec<f64> = variant.samples.iter().map(|s| s.cycles_per_packet).collect();
    let ratios: Vec<f64> = raw.iter().zip(whole).map(|(this, whole)| this / whole).collect();
    println!(
        "{} {}: {:.1} cycles/packet, {:.2} times",
        variant.what,
        variant.setting,
        median(&raw),
        median(&ratios)
    );
    Row {
        switch: "crosspoint",
        what: variant.what,
        setting: variant.setting.clone(),
        flows: args.flows,
        cycles_per_packet: median(&raw),
        emc_hit_ratio: of(|s| s.exact_ratio),
        megaflow_hit_ratio: of(|s| s.megaflow_ratio),
        miss_ratio: of(|s| s.miss_ratio),
        ratio: median(&ratios),
        runs: args.common.runs,
        raw,
    }
}

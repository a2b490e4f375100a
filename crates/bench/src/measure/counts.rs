//! Counters under traffic: how long until the current counts of all flows are in their rules' counters?
//!
//! A dump of rules requests them before it answers, so this bounds the age of what it shows. One rule for
//! each flow, all flows active.

use crate::goals::{COUNTS_MOST_MS, COUNTS_OF_MANY_MOST_MS};
use crate::machine::turns::turn;
use crate::measure::frames::{Order, add_exact_rules, write_pcap};
use crate::measure::rig::Rig;
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use datapath::Config;
use std::time::{Duration, Instant};

/// Wishes in each turn.
const WISHES: usize = 10;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Flows, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "100k,1m")]
    flows: Vec<usize>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    flows: usize,
    /// Median of all waits.
    wait_ms: f64,
    /// The longest.
    longest_wait_ms: f64,
    runs: u32,
    /// Each wait.
    raw: Vec<f64>,
}

/// The longest that counters may be late.
fn limit_ms(flows: usize) -> f64 {
    if flows <= 100_000 { COUNTS_MOST_MS } else { COUNTS_OF_MANY_MOST_MS }
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("counts")?;
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    for &flows in &args.flows {
        let pcap = dir.0.join("flows.pcap");
        write_pcap(&pcap, flows, Order::Sequential)?;
        let mut rig = Rig::new(Config::default())?;
        rig.add_port(&trial::sink(SINK))?;
        add_exact_rules(&mut rig, flows)?;
        rig.add_port(&trial::source(SOURCE, &pcap))?;
        rig.warm_up(Duration::from_millis(2_000));
        let mut raw = Vec::new();
        for _ in 0..args.common.runs as usize * WISHES {
            let start = Instant::now();
            if !turn("crosspoint", || rig.datapath.fold(Duration::from_secs(30))) {
                return Err(format!("{flows} flows: counters did not come within 30 s"));
            }
            raw.push(start.elapsed().as_secs_f64() * 1e3);
            rig.run_for(Duration::from_millis(50));
        }
        let row = Row {
            switch: "crosspoint",
            flows,
            wait_ms: median(&raw),
            longest_wait_ms: raw.iter().copied().fold(0.0, f64::max),
            runs: raw.len() as u32,
            raw,
        };
        println!(
            "{flows} flows: counters are {:.1} ms late, {:.1} at most",
            row.wait_ms, row.longest_wait_ms
        );
        goals.never_above(&format!("{flows} flows, ms"), &row.raw, limit_ms(flows));
        rows.push(row);
    }
    args.common.finish(rows, goals)
}

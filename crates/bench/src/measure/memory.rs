//! Memory: what a million rules and a million active flows on one worker take.
//!
//! The resident set of this process is read before anything, with the rules, and with the flows active. It
//! holds the switch, the packet pool, and the frames of the source (which are subtracted, being the
//! benchmark's own).

use crate::machine::turns::turn;
use crate::measure::frames::{Order, add_exact_rules, write_pcap};
use crate::measure::rig::Rig;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::process::TempDir;
use crate::units::{Failure, count};
use datapath::Config;
use std::time::Duration;

/// A source holds each of these frames in a line of this many bytes.
const LINE_BYTES: usize = 64;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rules.
    #[arg(long, value_parser = count, default_value = "1m")]
    rules: usize,
    /// Active flows.
    #[arg(long, value_parser = count, default_value = "1m")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    rules: usize,
    flows: usize,
    rss_at_start_bytes: u64,
    rss_with_rules_bytes: u64,
    rss_with_flows_bytes: u64,
    /// With rules and flows, less the benchmark's own frames.
    rss_of_switch_bytes: u64,
    peak_rss_bytes: u64,
    pool_bytes: usize,
    /// Bytes that the switch accounts for each rule.
    bytes_per_rule: f64,
    /// Bytes that the worker accounts for each flow in its caches (all tiers together): those that the caches
    /// do not hold cost nothing.
    bytes_per_cached_flow: f64,
    megaflows: u64,
    exact_entries: u64,
    runs: u32,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.flows > args.rules {
        return Err(Failure::Usage("--flows: at most as many as --rules".into()));
    }
    let dir = TempDir::new("memory")?;
    let pcap = dir.0.join("flows.pcap");
    write_pcap(&pcap, args.flows, Order::Sequential)?;
    let at_start = status_bytes("VmRSS:")?;
    let mut rig = Rig::new(Config::default())?;
    rig.add_port(&trial::sink(SINK))?;
    add_exact_rules(&mut rig, args.rules)?;
    rig.run_for(Duration::from_millis(300));
    let with_rules = status_bytes("VmRSS:")?;
    rig.add_port(&trial::source(SOURCE, &pcap))?;
    turn("crosspoint", || {
        rig.warm_up(Duration::from_millis(args.common.turn_ms.max(1_000)));
        rig.run_for(Duration::from_millis(500));
    });
    let with_flows = status_bytes("VmRSS:")?;
    let stats = rig.datapath.worker_stats(0);
    let own = (args.flows.max(4096) * LINE_BYTES) as u64;
    let row = Row {
        switch: "crosspoint",
        rules: args.rules,
        flows: args.flows,
        rss_at_start_bytes: at_start,
        rss_with_rules_bytes: with_rules,
        rss_with_flows_bytes: with_flows,
        rss_of_switch_bytes: with_flows.saturating_sub(own),
        peak_rss_bytes: status_bytes("VmHWM:")?,
        pool_bytes: rig.datapath.pool().len_bytes(),
        bytes_per_rule: rig.control.rules_memory_bytes() as f64 / args.rules as f64,
        bytes_per_cached_flow: stats.cache_bytes.get() as f64 / (stats.megaflows.get() as f64).max(1.0),
        megaflows: stats.megaflows.get(),
        exact_entries: stats.exact_entries.get(),
        runs: 1,
    };
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{} rules: {:.0} bytes each; {} active flows: {:.0} bytes each ({} megaflows, {} exact entries); resident {:.0} MB at the start, {:.0} with the rules, {:.0} with the flows ({:.0} without the source's frames)",
        row.rules,
        row.bytes_per_rule,
        row.flows,
        row.bytes_per_cached_flow,
        row.megaflows,
        row.exact_entries,
        mb(at_start),
        mb(with_rules),
        mb(with_flows),
        mb(row.rss_of_switch_bytes)
    );
    let mut goals = Goals::default();
    goals.never_above("resident bytes", &[row.rss_of_switch_bytes as f64], crate::goals::MEMORY_MOST_BYTES);
    goals.at_least("megaflows cached", &[row.megaflows.max(row.exact_entries) as f64], args.flows as f64);
    Ok(args.common.finish([row].into_iter().collect(), goals)?)
}

/// A figure of /proc/self/status.
fn status_bytes(name: &str) -> Result<u64, String> {
    crate::daemon::status_bytes(std::process::id(), name)
}

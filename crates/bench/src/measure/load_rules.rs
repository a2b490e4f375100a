//! Many rules loaded by the stock `ovs-ofctl add-flows`: how long, and how much memory?
//!
//! Our daemon and Debian's ovs-vswitchd on its dummy datapath get the same file in the same run. The time is
//! the client's, from its start to its end, its own parsing included; the memory is what the daemon has in
//! use more than before, and in all.

use crate::daemon::Daemon;
use crate::measure::frames::addresses;
use crate::measure::trial::{Common, Goals};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

/// Our time in ratio to the peer's. The client, which waits for the answer to each rule, is part of both.
const TIME_GOAL: f64 = 0.4;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rules in the file.
    #[arg(long, value_parser = count, default_value = "1m")]
    rules: usize,
    /// Load them into Debian's ovs-vswitchd as well.
    #[arg(long, value_name = "SWITCH", value_parser = ["ovs-vswitchd"])]
    peer: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    rules: usize,
    seconds: f64,
    rules_per_second: f64,
    rss_before_bytes: u64,
    rss_after_bytes: u64,
    bytes_per_rule: f64,
    runs: u32,
    /// Each run's seconds.
    raw: Vec<f64>,
}

struct Loaded {
    seconds: f64,
    before: u64,
    after: u64,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("load")?;
    let file = dir.0.join("rules");
    write_rules(&file, args.rules).map_err(|e| format!("{}: {e}", file.display()))?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..args.common.runs {
        ours.push(load(Daemon::crosspoint_with_ports()?, &file, args.rules)?);
        if args.peer.is_some() {
            theirs.push(load(Daemon::open_vswitch_with_ports()?, &file, args.rules)?);
        }
    }
    let mut goals = Goals::default();
    let mut rows = vec![row("crosspoint", args.rules, &ours)];
    if args.peer.is_some() {
        let times: Vec<f64> = ours.iter().zip(&theirs).map(|(o, t)| o.seconds / t.seconds).collect();
        goals.at_most("time in ratio to ovs-vswitchd's", &times, TIME_GOAL);
        let sizes: Vec<f64> =
            ours.iter().zip(&theirs).map(|(o, t)| o.after as f64 / t.after as f64).collect();
        goals.at_most("memory in ratio to ovs-vswitchd's", &sizes, 1.0);
        rows.push(row("ovs-vswitchd", args.rules, &theirs));
    }
    args.common.finish(rows, goals)
}

fn write_rules(path: &Path, rules: usize) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for n in 0..rules {
        let (src, dst) = addresses(n);
        writeln!(file, "ip,in_port=1,nw_src={src},nw_dst={dst},actions=output:2")?;
    }
    file.flush()
}

fn load(daemon: Daemon, file: &Path, rules: usize) -> Result<Loaded, String> {
    let before = daemon.rss_bytes()?;
    let start = Instant::now();
    daemon.ofctl(&["add-flows", "br0", &file.to_string_lossy()])?;
    let seconds = start.elapsed().as_secs_f64();
    let after = daemon.rss_bytes()?;
    daemon.has_rules(rules)?;
    Ok(Loaded { seconds, before, after })
}

fn row(switch: &'static str, rules: usize, loads: &[Loaded]) -> Row {
    let raw: Vec<f64> = loads.iter().map(|l| l.seconds).collect();
    let bytes = |f: fn(&Loaded) -> u64| loads.iter().map(f).max().unwrap_or(0);
    let (before, after) = (bytes(|l| l.before), bytes(|l| l.after));
    let row = Row {
        switch,
        rules,
        seconds: median(&raw),
        rules_per_second: rules as f64 / median(&raw),
        rss_before_bytes: before,
        rss_after_bytes: after,
        bytes_per_rule: after.saturating_sub(before) as f64 / rules as f64,
        runs: loads.len() as u32,
        raw,
    };
    println!(
        "{switch:<12} {rules} rules: {:.2} s, {:.0} MB resident, {:.0} bytes per rule",
        row.seconds,
        row.rss_after_bytes as f64 / 1e6,
        row.bytes_per_rule
    );
    row
}

//! Many rules loaded by a client: how long, and how much memory?
//!
//! Our daemon and Debian's ovs-vswitchd on its dummy datapath get the same files in the same run. The time is
//! the client's, from its start to its end, its own parsing included; beside it stands what the switch itself
//! spent. The memory is what the daemon has in use more than before, and in all.

use crate::daemon::Daemon;
use crate::goals::bound;
use crate::measure::frames::addresses;
use crate::measure::trial::{Common, Goals};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rules in the file.
    #[arg(long, value_parser = count, default_value = "1m")]
    rules: usize,
    /// How the client changes them, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "add,bundle,diff,replace")]
    what: Vec<What>,
    /// Whose client: the stock ovs-ofctl for both switches, or each switch's own.
    #[arg(long, value_enum, default_value = "stock")]
    client: Client,
    /// Load them into Debian's ovs-vswitchd as well.
    #[arg(long, value_name = "SWITCH", value_parser = ["ovs-vswitchd"])]
    peer: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// A command of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum What {
    /// `add-flows` into an empty table.
    Add,
    /// `--bundle add-flows` into an empty table.
    Bundle,
    /// `diff-flows` between the file and a switch that has its rules.
    Diff,
    /// `--bundle replace-flows`: all rules stay, each with other actions.
    Replace,
}

impl What {
    /// As in rows.
    fn name(self) -> &'static str {
        match self {
            What::Add => "add",
            What::Bundle => "bundle",
            What::Diff => "diff",
            What::Replace => "replace",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Client {
    Stock,
    Own,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: What,
    client: Client,
    rules: usize,
    seconds: f64,
    /// CPU time of the switch in them.
    switch_cpu_seconds: f64,
    rules_per_second: f64,
    rss_before_bytes: u64,
    rss_after_bytes: u64,
    bytes_per_rule: f64,
    runs: u32,
    /// Each run's seconds, and the same for other figures.
    raw: Vec<f64>,
    raw_switch_cpu_seconds: Vec<f64>,
    raw_rss_after_bytes: Vec<f64>,
    raw_bytes_per_rule: Vec<f64>,
}

/// One command, as it went.
struct Done {
    seconds: f64,
    cpu_seconds: f64,
    before: u64,
    after: u64,
}

/// The same matches twice: the first rules send to port 2, the second ones drop.
struct Files {
    first: PathBuf,
    second: PathBuf,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("load")?;
    let files = Files { first: dir.0.join("first"), second: dir.0.join("second") };
    for (file, actions) in [(&files.first, "output:2"), (&files.second, "drop")] {
        write_rules(file, args.rules, actions).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let (mut goals, mut rows) = (Goals::default(), Vec::new());
    for &what in &args.what {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..args.common.runs {
            let daemon = Daemon::crosspoint_with_ports()?;
            ours.push(change(args, what, &daemon, args.client == Client::Own, &files)?);
            if args.peer.is_some() {
                theirs.push(change(args, what, &Daemon::open_vswitch_with_ports()?, false, &files)?);
            }
        }
        rows.push(row("crosspoint", args, what, &ours));
        if args.peer.is_some() {
            let ratios = |figure: fn(&Done) -> f64| -> Vec<f64> {
                ours.iter().zip(&theirs).map(|(o, t)| figure(o) / figure(t)).collect()
            };
            let rules = args.rules.to_string();
            let bound = |figure| bound("load-rules", &[("what", what.name()), ("rules", &rules)], figure);
            if let Some(goal) = bound("seconds") {
                goals.at_most("time in ratio to ovs-vswitchd's", &ratios(|done| done.seconds), goal);
            }
            if let Some(goal) = bound("rss_after_bytes") {
                goals.at_most("memory in ratio to ovs-vswitchd's", &ratios(|done| done.after as f64), goal);
            }
            rows.push(row("ovs-vswitchd", args, what, &theirs));
        }
    }
    args.common.finish(rows, goals)
}

fn write_rules(path: &Path, rules: usize, actions: &str) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for n in 0..rules {
        let (src, dst) = addresses(n);
        writeln!(file, "ip,in_port=1,nw_src={src},nw_dst={dst},actions={actions}")?;
    }
    file.flush()
}

/// Brings a switch to where the command starts, and measures the command.
fn change(args: &Args, what: What, daemon: &Daemon, by_ours: bool, files: &Files) -> Result<Done, String> {
    let client = |words: &[&str]| if by_ours { daemon.own_ofctl(words) } else { daemon.ofctl(words) };
    let [first, second] = [&files.first, &files.second].map(|file| file.to_string_lossy());
    if matches!(what, What::Diff | What::Replace) {
        daemon.ofctl(&["--bundle", "add-flows", "br0", &first])?;
    }
    let words: &[&str] = match what {
        What::Add => &["add-flows", "br0", &first],
        What::Bundle => &["--bundle", "add-flows", "br0", &first],
        What::Diff => &["diff-flows", "br0", &first],
        What::Replace => &["--bundle", "replace-flows", "br0", &second],
    };
    let (before, cpu_ns, start) = (daemon.rss_bytes()?, daemon.process.cpu_ns(), Instant::now());
    client(words)?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = (daemon.process.cpu_ns() - cpu_ns) as f64 / 1e9;
    let after = daemon.rss_bytes()?;
    daemon.has_rules(args.rules)?;
    Ok(Done { seconds, cpu_seconds, before, after })
}

fn row(switch: &'static str, args: &Args, what: What, done: &[Done]) -> Row {
    let figures = |figure: fn(&Done) -> f64| done.iter().map(figure).collect::<Vec<f64>>();
    let (raw, raw_switch_cpu_seconds) = (figures(|done| done.seconds), figures(|done| done.cpu_seconds));
    let bytes = |figure: fn(&Done) -> u64| done.iter().map(figure).max().unwrap_or(0);
    let (before, after) = (bytes(|done| done.before), bytes(|done| done.after));
    let (rules, client) = (args.rules, args.client);
    let of_rule = |done: &Done| done.after.saturating_sub(done.before) as f64 / rules as f64;
    let row = Row {
        switch,
        what,
        client,
        rules,
        seconds: median(&raw),
        switch_cpu_seconds: median(&raw_switch_cpu_seconds),
        rules_per_second: rules as f64 / median(&raw),
        rss_before_bytes: before,
        rss_after_bytes: after,
        bytes_per_rule: after.saturating_sub(before) as f64 / rules as f64,
        runs: done.len() as u32,
        raw,
        raw_switch_cpu_seconds,
        raw_rss_after_bytes: figures(|done| done.after as f64),
        raw_bytes_per_rule: done.iter().map(of_rule).collect(),
    };
    println!(
        "{switch:<12} {what:?}, {rules} rules: {:.2} s ({:.2} s of the switch's CPU time), {:.0} MB resident",
        row.seconds,
        row.switch_cpu_seconds,
        row.rss_after_bytes as f64 / 1e6,
    );
    row
}

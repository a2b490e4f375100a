//! Many rules loaded, shown and deleted by a client: how long, how much memory, and how long do others wait?
//!
//! Our daemon and Debian's ovs-vswitchd on its dummy datapath get the same files in the same run. The time is
//! the client's, from its start to its end, its own parsing included; beside it stands what the switch itself
//! spent. The memory is what the daemon has in use more than before, and in all. Meanwhile an echo request of
//! another connection is due every [`INTERVAL`]; one that has to wait for the answer to the last one waits
//! from when it was due.

use crate::connection::{Connection, encode};
use crate::daemon::Daemon;
use crate::goals::bound;
use crate::machine::turns::turn;
use crate::measure::frames::addresses;
use crate::measure::rows::Rows;
use crate::measure::trial::{Common, Goals};
use crate::process::TempDir;
use crate::stats::{median, p99};
use crate::units::count;
use openflow::message::Message;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// From one echo request to the next: longer than a switch takes that serves others in between, so that only
/// one that falls silent gets behind.
const INTERVAL: Duration = Duration::from_millis(10);

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rules in the file.
    #[arg(long, value_parser = count, default_value = "1m")]
    rules: usize,
    /// What the client does with them, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "add,bundle,diff,replace,dump,delete")]
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
    /// `dump-flows`.
    Dump,
    /// `del-flows`.
    Delete,
}

impl What {
    /// As in rows.
    fn name(self) -> &'static str {
        match self {
            What::Add => "add",
            What::Bundle => "bundle",
            What::Diff => "diff",
            What::Replace => "replace",
            What::Dump => "dump",
            What::Delete => "delete",
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
    /// What the switch takes for rules that it had not before.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_rule: Option<f64>,
    /// How long another connection waited for answers to echo requests meanwhile; the longest of all.
    echo_p99_ms: f64,
    echo_max_ms: f64,
    runs: u32,
    /// Each run's seconds, and the same for other figures.
    raw: Vec<f64>,
    raw_switch_cpu_seconds: Vec<f64>,
    raw_rss_after_bytes: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    raw_bytes_per_rule: Vec<f64>,
    raw_echo_p99_ms: Vec<f64>,
    raw_echo_max_ms: Vec<f64>,
}

/// One command, as it went.
struct Done {
    seconds: f64,
    cpu_seconds: f64,
    before: u64,
    after: u64,
    echo_p99_ms: f64,
    echo_max_ms: f64,
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
    let (mut goals, mut rows) = (Goals::default(), Rows::default());
    for &what in &args.what {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..args.common.runs {
            let daemon = Daemon::crosspoint_with_ports()?;
            let change = |daemon: &Daemon, by_ours| change(args, what, daemon, by_ours, &files);
            ours.push(turn("crosspoint", || change(&daemon, args.client == Client::Own))?);
            if args.peer.is_some() {
                let daemon = Daemon::open_vswitch_with_ports()?;
                theirs.push(turn("ovs-vswitchd", || change(&daemon, false))?);
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
            if let Some(goal) = bound("echo_p99_ms") {
                let waits: Vec<f64> = ours.iter().map(|done| done.echo_p99_ms).collect();
                goals.never_above("p99 of another connection's echoes in ms", &waits, goal);
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
    if !matches!(what, What::Add | What::Bundle) {
        daemon.ofctl(&["--bundle", "add-flows", "br0", &first])?;
    }
    let words: &[&str] = match what {
        What::Add => &["add-flows", "br0", &first],
        What::Bundle => &["--bundle", "add-flows", "br0", &first],
        What::Diff => &["diff-flows", "br0", &first],
        What::Replace => &["--bundle", "replace-flows", "br0", &second],
        What::Dump => &["dump-flows", "br0"],
        What::Delete => &["del-flows", "br0"],
    };
    let mut connection = Connection::open(daemon)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (before, cpu_ns, start) = (daemon.rss_bytes()?, daemon.process.cpu_ns(), Instant::now());
        let echoes = scope.spawn(|| echoes(&mut connection, &is_over));
        let said = client(words);
        let seconds = start.elapsed().as_secs_f64();
        let cpu_seconds = (daemon.process.cpu_ns() - cpu_ns) as f64 / 1e9;
        let after = daemon.rss_bytes();
        is_over.store(true, Ordering::Relaxed);
        let waits_ms = echoes.join().expect("asking does not panic")?;
        said?;
        let after = after?;
        daemon.has_rules(if what == What::Delete { 0 } else { args.rules })?;
        let (echo_p99_ms, echo_max_ms) = (p99(&waits_ms), waits_ms.iter().copied().fold(0.0, f64::max));
        Ok(Done { seconds, cpu_seconds, before, after, echo_p99_ms, echo_max_ms })
    })
}

/// How long requests wait for their answers from when they are due, in ms; one at least.
fn echoes(connection: &mut Connection, is_over: &AtomicBool) -> Result<Vec<f64>, String> {
    let mut request = Vec::new();
    encode(1, &Message::EchoRequest(Vec::new()), &mut request)?;
    let (mut waits, mut due) = (Vec::new(), Instant::now());
    while waits.is_empty() || !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        match connection.ask(&request)? {
            Message::EchoReply(_) => waits.push(due.elapsed().as_secs_f64() * 1e3),
            other => return Err(format!("an echo request is answered by {}", other.name())),
        }
        due += INTERVAL;
    }
    Ok(waits)
}

fn row(switch: &'static str, args: &Args, what: What, done: &[Done]) -> Row {
    let figures = |figure: fn(&Done) -> f64| done.iter().map(figure).collect::<Vec<f64>>();
    let (raw, raw_switch_cpu_seconds) = (figures(|done| done.seconds), figures(|done| done.cpu_seconds));
    let bytes = |figure: fn(&Done) -> u64| done.iter().map(figure).max().unwrap_or(0);
    let (before, after) = (bytes(|done| done.before), bytes(|done| done.after));
    let (rules, client) = (args.rules, args.client);
    let of_rule = |done: &Done| done.after.saturating_sub(done.before) as f64 / rules as f64;
    let raw_bytes_per_rule: Vec<f64> =
        done.iter().filter(|_| matches!(what, What::Add | What::Bundle)).map(of_rule).collect();
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
        bytes_per_rule: (!raw_bytes_per_rule.is_empty()).then(|| median(&raw_bytes_per_rule)),
        echo_p99_ms: median(&figures(|done| done.echo_p99_ms)),
        echo_max_ms: figures(|done| done.echo_max_ms).into_iter().fold(0.0, f64::max),
        runs: done.len() as u32,
        raw,
        raw_switch_cpu_seconds,
        raw_rss_after_bytes: figures(|done| done.after as f64),
        raw_bytes_per_rule,
        raw_echo_p99_ms: figures(|done| done.echo_p99_ms),
        raw_echo_max_ms: figures(|done| done.echo_max_ms),
    };
    println!(
        "{switch:<12} {what:?}, {rules} rules: {:.2} s ({:.2} s of the switch's CPU time), {:.0} MB resident; \
         echoes waited {:.1} ms (p99), {:.0} at most",
        row.seconds,
        row.switch_cpu_seconds,
        row.rss_after_bytes as f64 / 1e6,
        row.echo_p99_ms,
        row.echo_max_ms,
    );
    row
}

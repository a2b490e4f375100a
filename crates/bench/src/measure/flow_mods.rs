//! How many flow-mods per second the control half takes: each in a version of its own, many in one bundle,
//! and one bundle that replaces all rules; and how many a whole switch takes over one OpenFlow connection,
//! whose client sends them all without waiting and then asks for a barrier. Traffic does not run; what
//! changes cost it is what `coupling` and `replace` ask.

use crate::connection::{Connection, with_barrier};
use crate::daemon::Daemon;
use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::frames::exact_match;
use crate::measure::rig::Rig;
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::stats::median;
use crate::units::count;
use datapath::Config;
use flow::Match;
use openflow::message::FlowMod as OfFlowMod;
use std::time::Instant;
use switch::control::FlowMod;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Send as many to Debian's ovs-vswitchd, in turns with ours.
    #[arg(long, value_name = "SWITCH", value_parser = ["ovs-vswitchd"])]
    peer: Option<String>,
    /// Rules that are added, one flow-mod each.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1k,100k")]
    rules: Vec<usize>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: &'static str,
    rules: usize,
    flow_mods_made_per_s: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let mut rows = Rows::default();
    for &rules in &args.rules {
        let mut rates: [(&str, Vec<f64>); 3] =
            [("single", Vec::new()), ("bundle", Vec::new()), ("replace", Vec::new())];
        for _ in 0..args.common.runs {
            let adds: Vec<FlowMod> =
                (0..rules).map(|n| FlowMod::add(exact_match(n), trial::to_sink())).collect();
            let mut rig = rig()?;
            let watch = Watch::start(&[std::process::id()]);
            let start = Instant::now();
            for (n, add) in adds.iter().enumerate() {
                let now_ms = rig.datapath.now_ms();
                rig.control.flow_mod(rig.bridge, add, now_ms).map_err(|e| format!("{e:?}"))?;
                // A daemon has its other turns between messages too.
                if n % 256 == 0 {
                    rig.pump();
                }
            }
            rates[0].1.push(rules as f64 / start.elapsed().as_secs_f64());
            let mut rig = self::rig()?;
            let start = Instant::now();
            rig.add_rules(&adds)?;
            rates[1].1.push(rules as f64 / start.elapsed().as_secs_f64());
            let mut all = vec![FlowMod::delete(Match::any())];
            all.extend(adds);
            let start = Instant::now();
            rig.add_rules(&all)?;
            rates[2].1.push((2 * rules) as f64 / start.elapsed().as_secs_f64());
            turns::note("crosspoint", watch.end());
        }
        for (what, raw) in rates {
            rows.push(row("crosspoint", what, rules, raw));
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let messages = pipelined(rules)?;
        for _ in 0..args.common.runs {
            let rate = |switch, daemon: &Daemon| {
                turns::turn(switch, || send(daemon, &messages, rules)).map(|seconds| rules as f64 / seconds)
            };
            ours.push(rate("crosspoint", &Daemon::crosspoint_with_ports()?)?);
            if args.peer.is_some() {
                theirs.push(rate("ovs-vswitchd", &Daemon::open_vswitch_with_ports()?)?);
            }
        }
        rows.push(row("crosspoint", "pipelined", rules, ours));
        if args.peer.is_some() {
            rows.push(row("ovs-vswitchd", "pipelined", rules, theirs));
        }
    }
    args.common.finish(rows, Goals::default())
}

fn row(switch: &'static str, what: &'static str, rules: usize, raw: Vec<f64>) -> Row {
    let rate = median(&raw);
    println!("{switch:<12} {what}, {rules} rules: {rate:.0} flow-mods/s");
    Row { switch, what, rules, flow_mods_made_per_s: rate, runs: raw.len() as u32, raw }
}

/// Additions of this many rules followed by a barrier, as bytes of OpenFlow 1.3.
fn pipelined(rules: usize) -> Result<Vec<u8>, String> {
    let add = |n| {
        let (matching, actions) = (exact_match(n), trial::to_sink());
        OfFlowMod { table_id: 0, matching, actions, ..OfFlowMod::add() }
    };
    with_barrier((0..rules).map(add))
}

/// Sends these to a switch. Seconds from the first byte to the answer of the barrier.
fn send(daemon: &Daemon, messages: &[u8], rules: usize) -> Result<f64, String> {
    let mut connection = Connection::open(daemon)?;
    let start = Instant::now();
    connection.until_barrier(messages)?;
    let seconds = start.elapsed().as_secs_f64();
    daemon.has_rules(rules)?;
    Ok(seconds)
}

fn rig() -> Result<Rig, String> {
    let mut rig = Rig::new(Config::default())?;
    // The rules name both.
    rig.add_port(&trial::sink(SINK))?;
    rig.add_port(&trial::sink(SOURCE))?;
    Ok(rig)
}

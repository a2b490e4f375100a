//! How long until a rule change is obeyed, and until a statistics request is answered, while traffic runs
//! (OFLOPS's questions). The change sends a flow's packets to the other of two sinks; it is over with the
//! first packet that comes there.

use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::rig::{Rig, settle};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, SOURCE};
use crate::stats::{median, p99};
use crate::units::count;
use base::{OfPort, PortNo};
use datapath::Config;
use flow::{Action, FieldId, Match};
use ports::PortSpec;
use std::time::{Duration, Instant};
use switch::control::FlowMod;

const SINKS: [PortNo; 2] = [PortNo(2), PortNo(3)];
/// Changes and requests in a turn.
const TIMES: usize = 50;
/// Longer than this nothing takes.
const TIME: Duration = Duration::from_secs(5);

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rules in the table, of other flows.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "10,1k,100k")]
    rules: Vec<usize>,
    /// Flows with traffic.
    #[arg(long, value_parser = count, default_value = "1k")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: &'static str,
    rules: usize,
    flows: usize,
    effect_us: f64,
    effect_p99_us: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let mut rows = Rows::default();
    for &rules in &args.rules {
        let mut rig = rig(rules, args)?;
        let (mut changes, mut requests) = (Vec::new(), Vec::new());
        // As one turn: each takes microseconds.
        let watch = Watch::start(&[std::process::id()]);
        for n in 0..args.common.runs as usize * TIMES {
            changes.push(change(&mut rig, SINKS[(n + 1) % 2])?);
            requests.push(request(&mut rig)?);
            rig.run_for(Duration::from_millis(1));
        }
        turns::note("crosspoint", watch.end());
        for (what, times) in [("flow_mod", changes), ("statistics", requests)] {
            rows.push(row(what, rules, args, times));
        }
    }
    args.common.finish(rows, Goals::default())
}

fn rule(to: PortNo) -> FlowMod {
    let fields = Match::any().with(FieldId::InPort, SOURCE.0.into());
    FlowMod::add(fields, vec![Action::Output { port: OfPort(to.0 as u16), max_len: 0 }])
}

fn rig(rules: usize, args: &Args) -> Result<Rig, String> {
    let mut rig = Rig::new(Config::default())?;
    for sink in SINKS {
        rig.add_port(&trial::sink(sink))?;
    }
    let source = PortSpec::new("source", "null", SOURCE).with("size", "60");
    rig.add_port(&source.with("flows", &args.flows.to_string()))?;
    // For a port that exists but receives nothing.
    let other = |n: usize| {
        let fields = crate::measure::frames::exact_match(n).with(FieldId::InPort, SINKS[0].0.into());
        FlowMod::add(fields, trial::to_sink())
    };
    let mut mods: Vec<FlowMod> = (0..rules).map(other).collect();
    mods.push(rule(SINKS[0]));
    rig.add_rules(&mods)?;
    rig.warm_up(settle(1_000, args.common.turn_ms));
    Ok(rig)
}

/// Microseconds from the flow-mod to the first packet that obeys it.
fn change(rig: &mut Rig, to: PortNo) -> Result<f64, String> {
    let arrived = |rig: &Rig| rig.datapath.port_stats(to).tx_packets;
    let (before, start) = (arrived(rig), Instant::now());
    rig.add_rules(&[rule(to)])?;
    while arrived(rig) == before {
        if start.elapsed() > TIME {
            return Err(format!("no packet obeyed a changed rule within {} s", TIME.as_secs()));
        }
        std::hint::spin_loop();
    }
    Ok(start.elapsed().as_nanos() as f64 / 1e3)
}

/// Microseconds until all counters are folded, as a request for them waits.
fn request(rig: &mut Rig) -> Result<f64, String> {
    let start = Instant::now();
    match rig.datapath.fold(TIME) {
        true => Ok(start.elapsed().as_nanos() as f64 / 1e3),
        false => Err(format!("counters did not come within {} s", TIME.as_secs())),
    }
}

fn row(what: &'static str, rules: usize, args: &Args, times: Vec<f64>) -> Row {
    let middle = median(&times);
    // A median for each turn: changes follow each other too closely to be turns of their own.
    let raw = times.chunks(TIMES).map(median).collect();
    let p99 = p99(&times);
    println!("{what} with {rules} rules: {middle:.0} us, p99 {p99:.0} us");
    Row {
        switch: "crosspoint",
        what,
        rules,
        flows: args.flows,
        effect_us: middle,
        effect_p99_us: p99,
        runs: args.common.runs,
        raw,
    }
}

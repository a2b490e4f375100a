//! How many flow-mods per second the control half takes: each in a version of its own, many in one bundle,
//! and one bundle that replaces all rules. Traffic does not run; what changes cost it is what `coupling` and
//! `replace` ask.

use crate::measure::p2p::exact_match;
use crate::measure::rig::Rig;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::stats::median;
use crate::units::count;
use datapath::Config;
use flow::Match;
use std::time::Instant;
use switch::control::FlowMod;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
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
    let mut rows = Vec::new();
    for &rules in &args.rules {
        let mut rates: [(&str, Vec<f64>); 3] =
            [("single", Vec::new()), ("bundle", Vec::new()), ("replace", Vec::new())];
        for _ in 0..args.common.runs {
            let adds: Vec<FlowMod> =
                (0..rules).map(|n| FlowMod::add(exact_match(n), trial::to_sink())).collect();
            let mut rig = rig()?;
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
        }
        for (what, raw) in rates {
            println!("{what}, {rules} rules: {:.0} flow-mods/s", median(&raw));
            let (switch, rate) = ("crosspoint", median(&raw));
            rows.push(Row { switch, what, rules, flow_mods_made_per_s: rate, runs: args.common.runs, raw });
        }
    }
    args.common.finish(rows, Goals::default())
}

fn rig() -> Result<Rig, String> {
    let mut rig = Rig::new(Config::default())?;
    // The rules name both.
    rig.add_port(&trial::sink(SINK))?;
    rig.add_port(&trial::sink(SOURCE))?;
    Ok(rig)
}

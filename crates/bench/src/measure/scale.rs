//! From one worker to two: how much more do two do?
//!
//! Each worker has a source and a sink in memory of its own; tables, pool and everything else they share. One
//! worker's cost per packet is measured while the other has nothing to do, then both are measured at once, in
//! turns. What two workers achieve together is the sum of their packets per second of their own CPU time, in
//! ratio to what one achieves alone: where they share nothing that is written per packet, it is 2.

use crate::measure::frames::{Order, addresses, sequence};
use crate::measure::p2p::exact_match;
use crate::measure::rig::{self, DRIVER_CPU, Rig, WORKER_CPU};
use crate::measure::trial::{self, Common, Goals, Meter, per_cpu_second};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use base::PortNo;
use datapath::Config;
use flow::{FieldId, Match};
use std::path::Path;
use std::time::Duration;
use switch::control::FlowMod;

/// What two workers do in ratio to one, at the least.
const GOAL: f64 = 1.9;
/// Sources and sinks, by worker.
const SOURCES: [PortNo; 2] = [PortNo(1), PortNo(3)];
const SINKS: [PortNo; 2] = [PortNo(2), PortNo(4)];

/// What the packets meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
enum Load {
    /// Four flows of each source, one rule for each.
    FourFlows,
    /// As many flows as `--flows` says at each source, each a cached flow of its own.
    ManyFlows,
    /// The same packets, all in one cached flow.
    OneMegaflow,
}

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// What the packets meet.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "four_flows,many_flows,one_megaflow")]
    load: Vec<Load>,
    /// Flows of each source where there are many.
    #[arg(long, value_parser = count, default_value = "500k")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    load: Load,
    /// Of both sources together.
    flows: usize,
    /// Of the first worker alone.
    alone_cycles_per_packet: f64,
    /// Of each, both at work.
    both_cycles_per_packet: [f64; 2],
    miss_ratio: f64,
    /// Two workers' packets per CPU-second in ratio to one's.
    scaling: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("scale")?;
    let mut goals = Goals::default();
    let mut rows = Vec::new();
    for &load in &args.load {
        rows.push(row(args, load, &dir.0, &mut goals)?);
    }
    args.common.finish(rows, goals)
}

fn rules(load: Load, flows: usize) -> Vec<FlowMod> {
    let output = |no: PortNo| vec![flow::Action::Output { port: base::OfPort(no.0 as u16), max_len: 0 }];
    let pairs = || SOURCES.into_iter().zip(SINKS);
    match load {
        Load::FourFlows => {
            let rule = |(source, sink): (PortNo, PortNo), n: usize| {
                FlowMod::add(exact_match(n).with(FieldId::InPort, source.0.into()), output(sink))
            };
            pairs().flat_map(|pair| (0..flows).map(move |n| rule(pair, n))).collect()
        }
        Load::ManyFlows => pairs()
            .map(|(source, sink)| {
                let mut rule = trial::every_pair_a_flow(source);
                rule.actions.pop();
                rule.actions.extend(output(sink));
                rule
            })
            .collect(),
        Load::OneMegaflow => pairs()
            .map(|(source, sink)| {
                FlowMod::add(Match::any().with(FieldId::InPort, source.0.into()), output(sink))
            })
            .collect(),
    }
}

fn row(args: &Args, load: Load, dir: &Path, goals: &mut Goals) -> Result<Row, String> {
    let flows = if load == Load::FourFlows { 4 } else { args.flows };
    let mut rig = Rig::new(Config::default())?;
    rig.datapath.start_worker(Some(DRIVER_CPU)).map_err(|e| e.to_string())?;
    let mut sources = Vec::new();
    for ((source, sink), n) in SOURCES.into_iter().zip(SINKS).zip(0..) {
        let pcap = dir.join(format!("{n}.pcap"));
        // The same addresses at both: the flows differ by their ports.
        let frame = |n: usize| {
            let (src, dst) = addresses(n);
            trial::frame(src, dst, 1024, 1025)
        };
        trial::write_frames(&pcap, sequence(flows, Order::Shuffled).into_iter().map(frame))?;
        rig.add_port(&trial::sink(sink))?;
        sources.push(trial::source(source, &pcap));
    }
    rig.add_rules(&rules(load, flows))?;
    // A queue goes to the worker that has the fewest, so each gets one of two.
    for source in &sources {
        rig.add_port(source)?;
    }
    let warm_up = rig::settle(if flows > 10_000 { 4_000 } else { 1_500 }, args.common.turn_ms);
    rig.run_for(warm_up);
    settle(&mut rig)?;
    let (mut alone, mut both, mut ratios, mut misses) =
        (Vec::new(), [Vec::new(), Vec::new()], Vec::new(), 0.0f64);
    for _ in 0..args.common.runs {
        rig.detach(SOURCES[1])?;
        rig.run_for(Duration::from_millis(200));
        let one = measure(&mut rig, args.common.turn());
        rig.add_port(&sources[1])?;
        rig.run_for(Duration::from_millis(if flows > 10_000 { 1_500 } else { 300 }));
        settle(&mut rig)?;
        let two = measure(&mut rig, args.common.turn());
        let busy =
            |samples: &[crate::measure::rig::Sample; 2]| samples.iter().filter(|s| s.packets > 1_000).count();
        if busy(&one) != 1 || busy(&two) != 2 {
            return Err("the two sources are not one with each worker".into());
        }
        let one = one.into_iter().find(|s| s.packets > 1_000).ok_or("nobody worked")?;
        alone.push(one.cycles_per_packet);
        let rates = two.map(|s| per_cpu_second(s.cycles_per_packet));
        ratios.push((rates[0] + rates[1]) / per_cpu_second(one.cycles_per_packet));
        for (all, sample) in both.iter_mut().zip(two) {
            all.push(sample.cycles_per_packet);
            misses = misses.max(sample.miss_ratio);
        }
    }
    let scaling = median(&ratios);
    println!(
        "{load:?}, {} flows: one worker {:.1} cycles/packet, two {:.1} and {:.1}; miss {misses:.4}: two do {scaling:.2} times what one does",
        2 * flows,
        median(&alone),
        median(&both[0]),
        median(&both[1]),
    );
    goals.at_least(&format!("two workers in ratio to one, {load:?}"), &ratios, GOAL);
    Ok(Row {
        switch: "crosspoint",
        load,
        flows: 2 * flows,
        alone_cycles_per_packet: median(&alone),
        both_cycles_per_packet: [median(&both[0]), median(&both[1])],
        miss_ratio: misses,
        scaling,
        runs: args.common.runs,
        raw: ratios,
    })
}

fn meters(rig: &Rig) -> [Meter; 2] {
    [0, 1].map(|n| Meter::of(rig.datapath.worker_stats(n), rig.datapath.worker_thread_id(n)))
}

fn measure(rig: &mut Rig, time: Duration) -> [crate::measure::rig::Sample; 2] {
    let before = meters(rig);
    rig.run_for(time);
    let after = meters(rig);
    [after[0].since(&before[0]), after[1].since(&before[1])]
}

/// Runs until neither worker misses, for some seconds at most.
fn settle(rig: &mut Rig) -> Result<(), String> {
    for _ in 0..100 {
        let sample = measure(rig, Duration::from_millis(200));
        if sample.iter().all(|s| s.miss_ratio < 1e-4) {
            return Ok(());
        }
    }
    Err(format!(
        "the caches of the workers on processors {DRIVER_CPU} and {WORKER_CPU} did not get warm in 20 s"
    ))
}

//! From one worker to several: how much more do they achieve?
//!
//! Each worker has its own source and sink in memory; they share tables, pool and everything else. One
//! worker's cost per packet is measured while the others have nothing to do, then all are measured at once,
//! in turns. What they achieve together is the sum of their packets per second of their own CPU time, as a
//! ratio to what one achieves alone: if n workers share nothing that is written per packet, it is n.

use crate::lab::meter::processors;
use crate::machine::turns::turn;
use crate::measure::frames::{Order, exact_match, write_pcap};
use crate::measure::rig::{self, DRIVER_CPU, Rig, Sample, WORKER_CPU};
use crate::measure::rows::Rows;
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

/// A worker with fewer packets in a turn had no source.
pub const PACKETS_OF_BUSY: u64 = 1_000;

/// The rules and flows that the packets match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
enum Load {
    /// Four flows of each source, one rule for each.
    FourFlows,
    /// The number of flows from `--flows` at each source, each cached separately.
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
    /// Numbers of workers; from two to as many as there are processors where it is not given.
    #[arg(long, value_delimiter = ',', value_parser = workers, conflicts_with = "beyond")]
    workers: Vec<usize>,
    /// One worker more than there are processors: two of them take turns, and the row is marked.
    #[arg(long)]
    beyond: bool,
    /// Flows of each source where there are many.
    #[arg(long, value_parser = count, default_value = "500k")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

/// A number of workers that this machine has processors for.
pub fn workers(text: &str) -> Result<usize, String> {
    let most = cpus();
    let number = text.parse().ok().filter(|n| (2..=most).contains(n));
    number.ok_or_else(|| format!("must be 2 to {most}, the processors of this machine"))
}

/// Processors, or two on a machine with one. A rig binds this thread to one of them, which changes nothing.
pub fn cpus() -> usize {
    processors().max(2)
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    load: Load,
    workers: usize,
    /// For all sources together.
    flows: usize,
    /// For the first worker alone.
    alone_cycles_per_packet: f64,
    /// For each, while all are running.
    both_cycles_per_packet: Vec<f64>,
    miss_ratio: f64,
    /// All workers' packets per CPU-second as a ratio to one's.
    scaling: f64,
    /// Whether two of the workers take turns on one processor.
    shares_processor: bool,
    runs: u32,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("scale")?;
    let mut goals = Goals::default();
    let mut rows = Rows::default();
    let numbers = match args.workers.as_slice() {
        _ if args.beyond => vec![cpus() + 1],
        [] => (2..=cpus()).collect(),
        given => given.to_vec(),
    };
    for &load in &args.load {
        for &workers in &numbers {
            rows.push(row(args, load, workers, &dir.0, &mut goals)?);
        }
    }
    args.common.finish(rows, goals)
}

/// Source and sink of each worker.
fn ports(workers: usize) -> impl Iterator<Item = (PortNo, PortNo)> {
    (0..workers as u32).map(|n| (PortNo(2 * n + 1), PortNo(2 * n + 2)))
}

fn rules(load: Load, workers: usize, flows: usize) -> Vec<FlowMod> {
    let output = |no: PortNo| vec![flow::Action::Output { port: base::OfPort(no.0 as u16), max_len: 0 }];
    match load {
        Load::FourFlows => {
            let rule = |(source, sink): (PortNo, PortNo), n: usize| {
                FlowMod::add(exact_match(n).with(FieldId::InPort, source.0.into()), output(sink))
            };
            ports(workers).flat_map(|pair| (0..flows).map(move |n| rule(pair, n))).collect()
        }
        Load::ManyFlows => ports(workers)
            .map(|(source, sink)| {
                let mut rule = trial::every_pair_a_flow(source);
                rule.actions.pop();
                rule.actions.extend(output(sink));
                rule
            })
            .collect(),
        Load::OneMegaflow => ports(workers)
            .map(|(source, sink)| {
                FlowMod::add(Match::any().with(FieldId::InPort, source.0.into()), output(sink))
            })
            .collect(),
    }
}

fn row(args: &Args, load: Load, workers: usize, dir: &Path, goals: &mut Goals) -> Result<Row, String> {
    let flows = if load == Load::FourFlows { 4 } else { args.flows };
    let mut rig = Rig::new(Config::default())?;
    // The rig's own worker is on its processor already; one that finds none free shares the first.
    for cpu in (0..cpus()).filter(|cpu| *cpu != WORKER_CPU).cycle().take(workers - 1) {
        rig.datapath.start_worker(Some(cpu)).map_err(|e| e.to_string())?;
    }
    let pcap = dir.join("flows.pcap");
    // The same addresses at all sources: the flows differ by their ports.
    write_pcap(&pcap, flows, Order::Shuffled)?;
    for (_, sink) in ports(workers) {
        rig.add_port(&trial::sink(sink))?;
    }
    let sources: Vec<PortNo> = ports(workers).map(|(source, _)| source).collect();
    // A queue goes to the worker that has the fewest, so each gets one.
    for source in &sources {
        rig.add_port(&trial::source(*source, &pcap))?;
    }
    rig.add_rules(&rules(load, workers, flows))?;
    let warm_up = rig::settle(if flows > 10_000 { 4_000 } else { 1_500 }, args.common.turn_ms);
    rig.run_for(warm_up);
    settle(&mut rig, workers)?;
    let (mut alone, mut each) = (Vec::new(), vec![Vec::new(); workers]);
    let (mut ratios, mut misses) = (Vec::new(), 0.0f64);
    for _ in 0..args.common.runs {
        for source in &sources[1..] {
            rig.detach(*source)?;
        }
        rig.run_for(Duration::from_millis(200));
        let one = turn("crosspoint", || measure(&mut rig, workers, args.common.turn()));
        for source in &sources[1..] {
            rig.add_port(&trial::source(*source, &pcap))?;
        }
        rig.run_for(Duration::from_millis(if flows > 10_000 { 1_500 } else { 300 }));
        settle(&mut rig, workers)?;
        let all = turn("crosspoint", || measure(&mut rig, workers, args.common.turn()));
        let busy = |samples: &[Sample]| samples.iter().filter(|s| s.packets > PACKETS_OF_BUSY).count();
        if busy(&one) != 1 || busy(&all) != workers {
            return Err(format!("the {workers} sources are not one with each worker"));
        }
        let one = one.into_iter().find(|s| s.packets > PACKETS_OF_BUSY).ok_or("nobody worked")?;
        alone.push(one.cycles_per_packet);
        let together: f64 = all.iter().map(|s| per_cpu_second(s.cycles_per_packet)).sum();
        ratios.push(together / per_cpu_second(one.cycles_per_packet));
        for (costs, sample) in each.iter_mut().zip(all) {
            costs.push(sample.cycles_per_packet);
            misses = misses.max(sample.miss_ratio);
        }
    }
    let scaling = median(&ratios);
    let costs: Vec<f64> = each.iter().map(|costs| median(costs)).collect();
    let text: Vec<String> = costs.iter().map(|cost| format!("{cost:.1}")).collect();
    println!(
        "{load:?}, {} flows: one worker {:.1} cycles/packet, {workers} {}; miss {misses:.4}: {workers} do {scaling:.2} times what one does",
        workers * flows,
        median(&alone),
        text.join(" "),
    );
    let shares_processor = workers > cpus();
    if !shares_processor {
        let goal = crate::goals::SCALING_LEAST * workers as f64;
        goals.at_least(&format!("{workers} workers in ratio to one, {load:?}"), &ratios, goal);
    }
    Ok(Row {
        switch: "crosspoint",
        load,
        workers,
        flows: workers * flows,
        alone_cycles_per_packet: median(&alone),
        both_cycles_per_packet: costs,
        miss_ratio: misses,
        scaling,
        shares_processor,
        runs: args.common.runs,
        raw: ratios,
    })
}

fn meters(rig: &Rig, workers: usize) -> Vec<Meter> {
    let of = |n| Meter::of(rig.datapath.worker_stats(n), rig.datapath.worker_thread_id(n));
    (0..workers).map(of).collect()
}

/// Runs for a while and measures each worker.
pub fn measure(rig: &mut Rig, workers: usize, time: Duration) -> Vec<Sample> {
    let before = meters(rig, workers);
    rig.run_for(time);
    meters(rig, workers).iter().zip(&before).map(|(after, before)| after.since(before)).collect()
}

/// Runs until no worker misses, for some seconds at most.
fn settle(rig: &mut Rig, workers: usize) -> Result<(), String> {
    for _ in 0..100 {
        let samples = measure(rig, workers, Duration::from_millis(200));
        if samples.iter().all(|s| s.miss_ratio < 1e-4) {
            return Ok(());
        }
    }
    Err(format!(
        "the caches of {workers} workers (processor {DRIVER_CPU} drives them) did not get warm in 20 s"
    ))
}

//! Several flows over several workers (Emmerich et al., Fig. 6): what do they achieve together?
//!
//! One port has a receive queue for each flow, like a NIC that spreads flows over its queues; the queues are
//! distributed over the workers. With fewer flows than workers, some workers have nothing to do. The flows
//! match one rule: in one megaflow, or in one for each of them. Each worker has its own caches, so a megaflow
//! that all flows share is in the cache of each worker that has some of them.
//!
//! The figure is the sum of the busy workers' packets per second of their own CPU time, as a ratio to one
//! worker's with one flow in the same turn.

use crate::machine::turns;
use crate::measure::rig::{Rig, Sample, WORKER_CPU};
use crate::measure::rows::Rows;
use crate::measure::scale::{PACKETS_OF_BUSY, cpus, measure, workers};
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE, per_cpu_second};
use crate::stats::median;
use datapath::Config;
use flow::{FieldId, Match};
use ports::PortSpec;
use std::time::Duration;
use switch::control::FlowMod;

/// Until every worker knows its flows.
const WARM_UP: Duration = Duration::from_millis(100);
/// Numbers up to this one are all tried, further ones in powers of two.
const ALL_UP_TO: usize = 8;

/// How flows are cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Megaflows {
    /// All flows in one.
    One,
    /// One for each.
    PerFlow,
}

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Workers, and flows, at most: as many as there are processors where it is not given.
    #[arg(long, value_parser = workers)]
    most: Option<usize>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    megaflows: Megaflows,
    workers: usize,
    flows: usize,
    /// The mean over all workers that had flows.
    cycles_per_packet: f64,
    ratio_to_one: f64,
    miss_ratio: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let numbers = numbers(args.most.unwrap_or(cpus()));
    let mut rows = Rows::default();
    for megaflows in [Megaflows::One, Megaflows::PerFlow] {
        let cells: Vec<(usize, usize)> =
            numbers.iter().flat_map(|workers| numbers.iter().map(|flows| (*workers, *flows))).collect();
        let mut turns: Vec<Vec<Turn>> = cells.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.common.runs {
            for ((workers, flows), turns) in cells.iter().zip(&mut turns) {
                turns.push(turn(megaflows, *workers, *flows, args.common.turn())?);
            }
        }
        // The first cell is one worker with one flow.
        let ones: Vec<f64> = turns[0].iter().map(|turn| turn.rate).collect();
        for ((workers, flows), turns) in cells.into_iter().zip(&turns) {
            rows.push(row(megaflows, workers, flows, turns, &ones));
        }
    }
    args.common.finish(rows, Goals::default())
}

/// 1 to `most`.
fn numbers(most: usize) -> Vec<usize> {
    (1..=most).filter(|n| *n <= ALL_UP_TO || n.is_power_of_two() || *n == most).collect()
}

/// The results of all busy workers.
struct Turn {
    /// Packets per second of their CPU time, added up.
    rate: f64,
    cycles_per_packet: f64,
    miss_ratio: f64,
}

fn turn(megaflows: Megaflows, workers: usize, flows: usize, time: Duration) -> Result<Turn, String> {
    let mut rig = Rig::new(Config::default())?;
    // The rig's own worker is on its processor already.
    for cpu in (0..cpus()).filter(|cpu| *cpu != WORKER_CPU).cycle().take(workers - 1) {
        rig.datapath.start_worker(Some(cpu)).map_err(|e| e.to_string())?;
    }
    rig.add_port(&trial::sink(SINK))?;
    let count = flows.to_string();
    let source = PortSpec::new("source", "null", SOURCE).with("size", "60");
    rig.add_port(&source.with("flows", &count).with("n_rxq", &count))?;
    let rule = match megaflows {
        Megaflows::One => FlowMod::add(Match::any().with(FieldId::InPort, SOURCE.0.into()), trial::to_sink()),
        Megaflows::PerFlow => trial::every_pair_a_flow(SOURCE),
    };
    rig.add_rules(&[rule])?;
    rig.run_for(WARM_UP);
    let samples = turns::turn("crosspoint", || measure(&mut rig, workers, time));
    let cached: u64 = (0..workers).map(|n| rig.datapath.worker_stats(n).megaflows.get()).sum();
    check(megaflows, workers, flows, &samples, cached)?;
    let busy: Vec<&Sample> = samples.iter().filter(|s| s.packets > PACKETS_OF_BUSY).collect();
    let packets: f64 = busy.iter().map(|s| s.packets as f64).sum();
    Ok(Turn {
        rate: busy.iter().map(|s| per_cpu_second(s.cycles_per_packet)).sum(),
        cycles_per_packet: busy.iter().map(|s| s.cycles_per_packet * s.packets as f64).sum::<f64>() / packets,
        miss_ratio: busy.iter().map(|s| s.miss_ratio).fold(0.0, f64::max),
    })
}

/// An error unless the flows went to as many workers as can have some, and are cached as they should be.
fn check(
    megaflows: Megaflows,
    workers: usize,
    flows: usize,
    samples: &[Sample],
    cached: u64,
) -> Result<(), String> {
    let busy = samples.iter().filter(|s| s.packets > PACKETS_OF_BUSY).count();
    let expected = workers.min(flows);
    if busy != expected {
        return Err(format!("{flows} flows went to {busy} of {workers} workers, not to {expected}"));
    }
    let expected = if megaflows == Megaflows::One { expected } else { flows } as u64;
    if cached != expected {
        return Err(format!("{cached} megaflows are cached by {workers} workers, not {expected}"));
    }
    Ok(())
}

fn row(megaflows: Megaflows, workers: usize, flows: usize, turns: &[Turn], ones: &[f64]) -> Row {
    let raw: Vec<f64> = turns.iter().zip(ones).map(|(turn, one)| turn.rate / one).collect();
    let of = |figure: fn(&Turn) -> f64| median(&turns.iter().map(figure).collect::<Vec<_>>());
    let row = Row {
        switch: "crosspoint",
        megaflows,
        workers,
        flows,
        cycles_per_packet: of(|turn| turn.cycles_per_packet),
        ratio_to_one: median(&raw),
        miss_ratio: of(|turn| turn.miss_ratio),
        runs: raw.len() as u32,
        raw,
    };
    println!(
        "megaflows {megaflows:?}: {workers} workers, {flows} flows: {:.1} cycles/packet, {:.2} times one worker with one flow",
        row.cycles_per_packet, row.ratio_to_one
    );
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_small_numbers_are_tried_and_of_great_ones_few() {
        assert_eq!(numbers(2), [1, 2]);
        assert_eq!(numbers(28), [1, 2, 3, 4, 5, 6, 7, 8, 16, 28]);
    }

    #[test]
    fn flows_that_are_not_where_they_should_be_give_no_figure() {
        let sample = |packets| Sample {
            packets,
            cycles_per_packet: 50.0,
            packets_per_wall_second: 1e6,
            exact_ratio: 1.0,
            megaflow_ratio: 0.0,
            miss_ratio: 0.0,
        };
        let busy = [sample(1 << 20), sample(1 << 20)];
        assert_eq!(check(Megaflows::One, 2, 2, &busy, 2), Ok(()));
        assert_eq!(check(Megaflows::PerFlow, 2, 3, &busy, 3), Ok(()));
        assert_eq!(check(Megaflows::One, 2, 1, &[sample(1 << 20), sample(0)], 1), Ok(()));
        assert!(check(Megaflows::One, 2, 2, &[sample(1 << 20), sample(0)], 1).is_err());
        assert!(check(Megaflows::PerFlow, 2, 3, &busy, 2).is_err());
    }
}

//! Where a worker runs: bound to a processor of its own, free to move, next to another thread on the same
//! processor, next to a busy sibling of its core if the machine has one, and next to a busy processor of
//! another core. The cost of a packet is given as the scheduler sees it (CPU time of the thread) and as the
//! clock does, with all interruptions.

use crate::lab::meter::processors;
use crate::machine::turns::turn as watched_turn;
use crate::measure::rig::{Rig, WORKER_CPU, settle};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, Meter, SINK, SOURCE, cycles};
use crate::stats::median;
use crate::units::count;
use datapath::Config;
use flow::{FieldId, Match};
use ports::PortSpec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use switch::control::FlowMod;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Flows.
    #[arg(long, value_parser = count, default_value = "100")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: &'static str,
    flows: usize,
    cycles_per_packet: f64,
    wall_cycles_per_packet: f64,
    packets_per_s: f64,
    /// Share of time for which the worker had a processor.
    cpu_switch: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// A thread that does nothing but run, until it is dropped.
struct Busy {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Busy {
    fn on(cpu: usize) -> Busy {
        let end = Arc::new(AtomicBool::new(false));
        let its = end.clone();
        let spin = move || {
            packet::thread::pin(cpu);
            while !its.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        Busy { end, thread: Some(std::thread::spawn(spin)) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The processors that share a core with this one.
fn sibling(cpu: usize) -> Option<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    siblings_of(&std::fs::read_to_string(path).ok()?).into_iter().find(|n| *n != cpu)
}

/// `0,4` or `0-1`.
fn siblings_of(list: &str) -> Vec<usize> {
    let part = |text: &str| -> Option<Vec<usize>> {
        match text.split_once('-') {
            Some((from, to)) => Some((from.parse().ok()?..=to.parse().ok()?).collect()),
            None => Some(vec![text.parse().ok()?]),
        }
    };
    list.trim().split(',').filter_map(part).flatten().collect()
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let mut ways = vec![("pinned", Some(WORKER_CPU), None), ("free", None, None)];
    ways.push(("contended", Some(WORKER_CPU), Some(WORKER_CPU)));
    let shared = sibling(WORKER_CPU);
    match shared {
        Some(cpu) => ways.push(("busy_sibling", Some(WORKER_CPU), Some(cpu))),
        None => println!("no processor shares a core with processor {WORKER_CPU}: that case is left out"),
    }
    // A virtual machine may not know which of its processors share a core.
    match (0..processors()).find(|cpu| *cpu != WORKER_CPU && Some(*cpu) != shared) {
        Some(cpu) => ways.push(("busy_other_core", Some(WORKER_CPU), Some(cpu))),
        None => println!("there is no other core: that case is left out"),
    }
    let mut rigs = ways.iter().map(|(_, cpu, _)| rig(*cpu)).collect::<Result<Vec<_>, _>>()?;
    let mut turns: Vec<Vec<[f64; 4]>> = vec![Vec::new(); ways.len()];
    for _ in 0..args.common.runs {
        for ((rig, (_, _, busy)), turns) in rigs.iter_mut().zip(&ways).zip(&mut turns) {
            let source = PortSpec::new("source", "null", SOURCE).with("size", "60");
            rig.add_port(&source.with("flows", &args.flows.to_string()))?;
            let busy = busy.map(Busy::on);
            rig.warm_up(settle(500, args.common.turn_ms));
            turns.push(watched_turn("crosspoint", || turn(rig, args)));
            drop(busy);
            rig.detach(SOURCE)?;
        }
    }
    let rows: Rows<Row> = ways.iter().zip(&turns).map(|((what, ..), turns)| row(what, args, turns)).collect();
    args.common.finish(rows, Goals::default())
}

/// Cycles per packet by CPU time and by the clock, packets per second, share of a processor.
fn turn(rig: &mut Rig, args: &Args) -> [f64; 4] {
    let (before, start) = (Meter::read(rig), Instant::now());
    rig.run_for(args.common.turn());
    let sample = Meter::read(rig).since(&before);
    let elapsed = start.elapsed();
    let packets = sample.packets.max(1) as f64;
    let wall = cycles(elapsed.as_nanos() as u64) / packets;
    let rate = packets / elapsed.as_secs_f64();
    [sample.cycles_per_packet, wall, rate, sample.cycles_per_packet / wall]
}

fn rig(cpu: Option<usize>) -> Result<Rig, String> {
    let mut rig = Rig::on(Config::default(), cpu)?;
    rig.add_port(&trial::sink(SINK))?;
    // The rule names the source, which must have been there.
    rig.add_port(&trial::sink(SOURCE))?;
    rig.detach(SOURCE)?;
    let rule = Match::any().with(FieldId::InPort, SOURCE.0.into());
    rig.add_rules(&[FlowMod::add(rule, trial::to_sink())])?;
    Ok(rig)
}

fn row(what: &'static str, args: &Args, turns: &[[f64; 4]]) -> Row {
    let of = |n: usize| turns.iter().map(|t| t[n]).collect::<Vec<f64>>();
    let raw = of(0);
    println!("{what}: {:.1} cycles/packet by CPU time, {:.1} by the clock", median(&raw), median(&of(1)));
    Row {
        switch: "crosspoint",
        what,
        flows: args.flows,
        cycles_per_packet: median(&raw),
        wall_cycles_per_packet: median(&of(1)),
        packets_per_s: median(&of(2)),
        cpu_switch: median(&of(3)),
        runs: args.common.runs,
        raw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_siblings_are_read() {
        assert_eq!((siblings_of("0,4\n"), siblings_of("2-3")), (vec![0, 4], vec![2, 3]));
    }
}

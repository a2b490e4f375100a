//! Packets of ever new flows: translation and installation.
//!
//! Every packet is the first of its flow. The rules are exact ones (`ip,in_port,nw_src,nw_dst`) for other
//! flows, and one of low priority for all IPv4 whose actions read both addresses: each pair is a separate
//! megaflow, which no other packet hits. The capture is replayed once, and the worker's CPU time for exactly
//! these packets is measured.
//!
//! Two figures: `cold`, on memory that the worker has never touched, and `warm`, after the flows were flushed
//! once. The goal applies to the warm one, since a switch is started once.

use crate::goals;
use crate::machine::turns::turn;
use crate::measure::frames::{exact_match, frame};
use crate::measure::rig::{Rig, Sample};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, Meter, Rates, SINK, SOURCE, per_cpu_second};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use datapath::Config;
use std::path::Path;
use std::time::{Duration, Instant};
use switch::control::FlowMod;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of exact rules, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "10,100k")]
    rules: Vec<usize>,
    /// New flows in each run.
    #[arg(long, value_parser = count, default_value = "1m")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    rules: usize,
    new_flows: usize,
    memory: &'static str,
    cycles_per_packet: f64,
    #[serde(flatten)]
    rates: Rates,
    miss_ratio: f64,
    runs: u32,
    /// Each run's packets per second of CPU time.
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("misses")?;
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    for &rules in &args.rules {
        let pcap = dir.0.join("new.pcap");
        trial::write_frames(&pcap, (rules..rules + args.flows).map(frame))?;
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        for _ in 0..args.common.runs {
            let mut rig = rig(rules)?;
            cold.push(turn("crosspoint", || replay_once(&mut rig, &pcap, args.flows))?);
            rig.datapath.flush_flows();
            rig.run_for(Duration::from_millis(300));
            warm.push(turn("crosspoint", || replay_once(&mut rig, &pcap, args.flows))?);
        }
        for (memory, samples) in [("cold", &cold), ("warm", &warm)] {
            let row = row(rules, args.flows, memory, samples);
            println!(
                "{rules:>7} rules, {memory}: {:>7.0} cycles/packet, {:>5.2} million/s of CPU time, {:.4} missed",
                row.cycles_per_packet,
                row.rates.per_cpu_second() / 1e6,
                row.miss_ratio
            );
            if memory == "warm" {
                let labels = [("memory", memory), ("rules", &*rules.to_string())];
                if let Some(goal) = goals::bound("misses", &labels, "packets_per_cpu_second") {
                    goals.at_least(&format!("new flows per second with {rules} rules"), &row.raw, goal);
                }
            }
            goals.at_least(&format!("packets that missed with {rules} rules"), &[row.miss_ratio], 0.999);
            rows.push(row);
        }
    }
    args.common.finish(rows, goals)
}

fn rig(rules: usize) -> Result<Rig, String> {
    let mut rig = Rig::new(Config::default())?;
    rig.add_port(&trial::sink(SINK))?;
    let mut mods: Vec<FlowMod> = (0..rules).map(|n| FlowMod::add(exact_match(n), trial::to_sink())).collect();
    mods.push(trial::every_pair_a_flow(SOURCE));
    rig.add_rules(&mods)?;
    rig.run_for(Duration::from_millis(200));
    Ok(rig)
}

/// The worker sleeps before and after, so all the CPU time between belongs to these packets. It counts a
/// burst when it has received it and again when it has looked it up; a reading between the two would lack the
/// last burst's misses.
fn replay_once(rig: &mut Rig, pcap: &Path, packets: usize) -> Result<Sample, String> {
    let source = trial::source(SOURCE, pcap).with("loop", "false");
    let before = Meter::read(rig);
    rig.add_port(&source)?;
    let end = Instant::now() + Duration::from_secs(60);
    while (Meter::read(rig).looked_up_since(&before) as usize) < packets {
        if Instant::now() > end {
            return Err("the worker did not get through the capture in 60 s".into());
        }
        rig.pump();
        std::thread::sleep(Duration::from_micros(200));
    }
    let sample = Meter::read(rig).since(&before);
    rig.detach(SOURCE)?;
    Ok(sample)
}

fn row(rules: usize, new_flows: usize, memory: &'static str, samples: &[Sample]) -> Row {
    let of = |f: fn(&Sample) -> f64| median(&samples.iter().map(f).collect::<Vec<_>>());
    let cycles_per_packet = of(|s| s.cycles_per_packet);
    Row {
        switch: "crosspoint",
        rules,
        new_flows,
        memory,
        cycles_per_packet,
        rates: Rates::of_samples(samples),
        miss_ratio: of(|s| s.miss_ratio),
        runs: samples.len() as u32,
        raw: samples.iter().map(|s| per_cpu_second(s.cycles_per_packet)).collect(),
    }
}

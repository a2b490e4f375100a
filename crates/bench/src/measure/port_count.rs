//! Many ports, traffic on two of them: does a packet cost more for the idle ones?
//!
//! The two that carry traffic are sources and sinks at once, each sends to the other. The others have a
//! receive queue each, which the worker must look at. The numbers of ports take turns, and each is compared
//! with two ports in the same turn.

use crate::measure::limited::Limited;
use crate::measure::rig::{Rig, Sample};
use crate::measure::rows::Rows;
use crate::measure::trial::{Common, Goals};
use crate::stats::median;
use crate::units::{count, up_to};
use base::PortNo;
use datapath::Config;
use flow::{Action, FieldId, Match};
use ports::PortSpec;
use std::time::Duration;
use switch::control::FlowMod;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of ports, separated by commas; 2 is always among them.
    #[arg(long, value_delimiter = ',', value_parser = up_to::<4096>, default_value = "2,4,8,64,512")]
    ports: Vec<usize>,
    /// Type of the idle ports: `null` or `dummy`.
    #[arg(long, value_parser = ["null", "dummy"], default_value = "null")]
    idle: String,
    /// Packets per poll at most.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=32))]
    batch: u8,
    /// Flows in each direction.
    #[arg(long, value_parser = count, default_value = "100")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    ports: usize,
    idle_type: String,
    batch: u8,
    flows: usize,
    cycles_per_packet: f64,
    /// As a ratio to two ports in the same turns.
    ratio_to_two: f64,
    runs: u32,
    raw: Vec<f64>,
    raw_ratio_to_two: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let mut counts: Vec<usize> = args.ports.iter().copied().filter(|&n| n > 2).collect();
    counts.insert(0, 2);
    let mut rigs = counts.iter().map(|&n| rig(args, n)).collect::<Result<Vec<_>, _>>()?;
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); counts.len()];
    for _ in 0..args.common.runs {
        for (rig, samples) in rigs.iter_mut().zip(&mut samples) {
            for no in [1, 2] {
                let pool = rig.datapath.pool();
                let port = ports::open(&busy(args, no), pool).map_err(|e| e.to_string())?;
                let port = Box::new(Limited::new(port, usize::from(args.batch)));
                rig.datapath.add_port(PortNo(no), port).map_err(|e| e.to_string())?;
            }
            rig.warm_up(Duration::from_millis(args.common.turn_ms.min(500)));
            samples.push(rig.measure(args.common.turn()));
            for no in [1, 2] {
                rig.detach(PortNo(no))?;
            }
        }
    }
    let raw = |n: usize| samples[n].iter().map(|s| s.cycles_per_packet).collect::<Vec<f64>>();
    let two = raw(0);
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    for (n, &ports) in counts.iter().enumerate() {
        let raw = raw(n);
        let ratios: Vec<f64> = raw.iter().zip(&two).map(|(many, two)| many / two).collect();
        println!("{ports:>4} ports: {:>6.1} cycles/packet, {:.3} times two", median(&raw), median(&ratios));
        if n > 0 {
            goals.at_most(&format!("cost with {ports} ports"), &ratios, crate::goals::IDLE_PORTS_MOST);
        }
        rows.push(Row {
            switch: "crosspoint",
            ports,
            idle_type: args.idle.clone(),
            batch: args.batch,
            flows: args.flows,
            cycles_per_packet: median(&raw),
            ratio_to_two: median(&ratios),
            runs: args.common.runs,
            raw,
            raw_ratio_to_two: ratios,
        });
    }
    args.common.finish(rows, goals)
}

/// A port that sends at full speed and takes what comes.
fn busy(args: &Args, no: u32) -> PortSpec {
    let spec = PortSpec::new(&format!("busy{no}"), "null", PortNo(no));
    spec.with("size", "60").with("flows", &args.flows.to_string())
}

fn rig(args: &Args, ports: usize) -> Result<Rig, String> {
    let mut rig = Rig::new(Config::default())?;
    for no in 3..=ports as u32 {
        rig.add_port(&PortSpec::new(&format!("idle{no}"), &args.idle, PortNo(no)))?;
    }
    // The rules name the ports, which must be there: they are attached and detached in turns.
    for no in [1, 2] {
        rig.add_port(&busy(args, no))?;
        rig.detach(PortNo(no))?;
    }
    let to = |port: u16| vec![Action::Output { port: base::OfPort(port), max_len: 0 }];
    let from = |port: u128| Match::any().with(FieldId::InPort, port);
    rig.add_rules(&[FlowMod::add(from(1), to(2)), FlowMod::add(from(2), to(1))])?;
    Ok(rig)
}

//! A flood of packets that open connections, at one port: what do established connections of other ports
//! keep, and does a neighbour still get new connections?
//!
//! The rules are the firewall's of `conntrack`. Established traffic comes from memory as fast as the worker
//! takes it, so it loses all the time that the flood takes. Each packet of the flood has a tuple of its own.
//! The neighbour opens a thousand connections per second before the flood and during it.
//!
//! For comparison, the same packets come again and a rule without `ct` drops them: what they cost then, they
//! cost any switch that receives them.

use super::establish;
use super::sides::{Ours, Side};
use super::traffic::{self, FLOODED, FROM_INSIDE, FROM_OUTSIDE, Kind, NEIGHBOUR, NEIGHBOURLY, Rules};
use crate::goals::bound;
use crate::machine::turns::turn as watched_turn;
use crate::measure::rig::settle;
use crate::measure::rows::Rows;
use crate::measure::trial::{Common, Goals};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::{count, up_to};
use base::DropReason;
use std::time::Duration;

/// New connections of the neighbour per second.
const NEIGHBOUR_PER_S: usize = 1_000;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// What its packets open, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp")]
    of: Vec<Kind>,
    /// Opening packets per second, separated by commas; k and m stand for thousands and millions.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "100k,1m")]
    rates: Vec<usize>,
    /// Established connections.
    #[arg(long, value_parser = up_to::<4_000_000>, default_value = "10k")]
    connections: usize,
    #[command(flatten)]
    common: Common,
}

/// What becomes of the flood.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    /// It is tracked.
    Flood,
    /// A rule drops it.
    DroppedFlood,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: What,
    of: Kind,
    flood_pps: usize,
    connections: usize,
    packets_per_cpu_second: f64,
    /// Established packets per second of CPU time, in ratio to those before the flood.
    kept_ratio: f64,
    /// Connections that the neighbour got, in ratio to those that it tried to open.
    opened_ratio: f64,
    /// Packets of the flood that were dropped because its port had used up its share.
    refused_ratio: f64,
    runs: u32,
    raw: Vec<f64>,
    raw_packets_per_cpu_second: Vec<f64>,
    raw_opened_ratio: Vec<f64>,
}

/// The counters of one moment.
#[derive(Clone, Copy)]
struct Reading {
    cpu_ns: u64,
    established: u64,
    opened: u64,
    tried: u64,
    flooded: u64,
    refused: u64,
}

/// What happened between two readings.
struct Window {
    /// Established packets per second of CPU time.
    established_per_s: f64,
    opened_ratio: f64,
    refused_ratio: f64,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    for (&of, &rate) in args.of.iter().flat_map(|of| args.rates.iter().map(move |r| (of, r))) {
        let flood = (of, rate);
        let mut kept_of = [(What::Flood, Vec::new()), (What::DroppedFlood, Vec::new())];
        let mut windows = [Vec::new(), Vec::new()];
        for _ in 0..args.common.runs {
            for ((what, kept), windows) in kept_of.iter_mut().zip(&mut windows) {
                let (alone, beside) = turn(args, flood, *what)?;
                kept.push(beside.established_per_s / alone.established_per_s);
                windows.push(beside);
            }
        }
        for ((what, kept), windows) in kept_of.into_iter().zip(&windows) {
            rows.push(row(args, flood, what, kept, windows));
        }
    }
    for row in rows.iter().filter(|row| row.what == What::Flood) {
        let rate = row.flood_pps.to_string();
        let bound = |figure| bound("conntrack", &[("what", "flood"), ("flood_pps", &rate)], figure);
        if let Some(goal) = bound("kept_ratio") {
            goals.at_least("established throughput that is left", &row.raw, goal);
        }
        if let Some(goal) = bound("opened_ratio") {
            goals.at_least("connections of the neighbour that were opened", &row.raw_opened_ratio, goal);
        }
    }
    args.common.finish(rows, goals)
}

fn row(args: &Args, (kind, rate): (Kind, usize), what: What, kept: Vec<f64>, windows: &[Window]) -> Row {
    let raw = |figure: fn(&Window) -> f64| windows.iter().map(figure).collect::<Vec<f64>>();
    let of = |figure| median(&raw(figure));
    let row = Row {
        switch: "crosspoint",
        what,
        of: kind,
        flood_pps: rate,
        connections: args.connections,
        packets_per_cpu_second: of(|window| window.established_per_s),
        kept_ratio: median(&kept),
        opened_ratio: of(|window| window.opened_ratio),
        refused_ratio: of(|window| window.refused_ratio),
        runs: args.common.runs,
        raw: kept,
        raw_packets_per_cpu_second: raw(|window| window.established_per_s),
        raw_opened_ratio: raw(|window| window.opened_ratio),
    };
    println!(
        "{rate} packets/s that open {}{}: {:.3} of the established throughput is left, {:.4} of the neighbour's \
         connections were opened, {:.3} of the flood was refused",
        kind.name(),
        if what == What::DroppedFlood { ", dropped by a rule" } else { "" },
        row.kept_ratio,
        row.opened_ratio,
        row.refused_ratio
    );
    row
}

/// Before the flood, and during it.
fn turn(args: &Args, (of, rate): (Kind, usize), what: What) -> Result<(Window, Window), String> {
    let dir = TempDir::new("flood")?;
    let time = args.common.turn();
    let pause = settle(1_000, args.common.turn_ms);
    let established = traffic::established(&dir.0, args.connections, Rules::Firewall)?;
    // Nobody else has these tuples.
    let first = args.connections;
    let neighbour = traffic::opening_at(
        &dir.0,
        (NEIGHBOUR, Kind::Tcp),
        first,
        (NEIGHBOUR_PER_S, 3 * (2 * time + 2 * pause)),
    )?;
    let first = first + neighbour.frames as usize;
    let flood = traffic::opening_at(&dir.0, (FLOODED, of), first, (rate, 2 * (time + pause)))?;
    let dropped = if what == What::DroppedFlood { traffic::DROPPING } else { "" };
    let mut side = Ours::new(&[&*Rules::Firewall.text(), &of.rules(), dropped].concat())?;
    establish(&mut side, Rules::Firewall, &established, args.connections, &dir.0)?;
    side.add(&established, true)?;
    side.add_timed(&neighbour)?;
    side.0.warm_up(pause);
    let alone = window(&mut side, time)?;
    side.add_timed(&flood)?;
    side.0.run_for(pause);
    let beside = window(&mut side, time)?;
    Ok((alone, beside))
}

fn window(side: &mut Ours, time: Duration) -> Result<Window, String> {
    let before = read(side)?;
    watched_turn("crosspoint", || side.0.run_for(time));
    let after = read(side)?;
    let of = |figure: fn(&Reading) -> u64| (figure(&after) - figure(&before)) as f64;
    let window = Window {
        established_per_s: of(|r| r.established) / (of(|r| r.cpu_ns) / 1e9),
        opened_ratio: of(|r| r.opened) / of(|r| r.tried),
        refused_ratio: of(|r| r.refused) / of(|r| r.flooded).max(1.0),
    };
    match window.established_per_s > 0.0 && of(|r| r.tried) > 0.0 {
        true => Ok(window),
        false => Err("no packets of established connections, or none of the neighbour, arrived".into()),
    }
}

fn read(side: &mut Ours) -> Result<Reading, String> {
    let counts = side.counts()?;
    let datapath = &side.0.datapath;
    let by_rule = |cookie: u64| counts.by_rule[cookie as usize];
    Ok(Reading {
        cpu_ns: base::clock::cpu_time_ns(datapath.worker_thread_id(0)).unwrap_or(0),
        established: by_rule(FROM_INSIDE) + by_rule(FROM_OUTSIDE),
        opened: by_rule(NEIGHBOURLY),
        tried: datapath.port_stats(NEIGHBOUR).rx_packets,
        flooded: datapath.port_stats(FLOODED).rx_packets,
        refused: datapath.port_drops(FLOODED, DropReason::CtPortShare),
    })
}

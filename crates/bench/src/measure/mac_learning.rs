//! Learning addresses: how many per second, and what NORMAL still forwards while a share of the frames has a
//! new source address.
//!
//! A capture is replayed once; that share of its frames has an address of its own, and the others share one;
//! all go to a known address. The share is verified by what the table has learned in the end.

use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::rig::{self, Rig, settle};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, Meter, SINK, SOURCE, per_cpu_second};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use base::OfPort;
use datapath::Config;
use flow::{Action, Match};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use switch::control::FlowMod;
use switch::{BridgeConfig, Effect};
use wire::compose::Compose;
use wire::ethernet::EthAddr;

const TO: EthAddr = EthAddr([2, 0, 0, 0, 0, 2]);
/// A capture is worked off within this, or something is wrong.
const TIME: Duration = Duration::from_secs(120);

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Frames of each turn.
    #[arg(long, value_parser = count, default_value = "1m")]
    frames: usize,
    /// Percentages of them with a new source address.
    #[arg(long, value_delimiter = ',', default_value = "0,1,10,50,100", value_parser = clap::value_parser!(u8).range(0..=100))]
    new: Vec<u8>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    new_percent: u8,
    frames: usize,
    cycles_per_packet: f64,
    packets_per_cpu_second: f64,
    /// Per second, until the table was full.
    learned_per_s: f64,
    /// As a ratio to the number of new addresses sent.
    learned_ratio: f64,
    miss_ratio: f64,
    runs: u32,
    raw: Vec<f64>,
    raw_learned_per_s: Vec<f64>,
    raw_learned_ratio: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("macs")?;
    let mut rows = Rows::default();
    for &percent in &args.new {
        let pcap = dir.0.join(format!("{percent}.pcap"));
        trial::write_frames(&pcap, (0..args.frames).map(|n| frame(n, percent)))?;
        let turns =
            (0..args.common.runs).map(|_| turn(&pcap, args, percent)).collect::<Result<Vec<_>, _>>()?;
        let raw = |n: usize| turns.iter().map(|t| t[n]).collect::<Vec<_>>();
        let of = |n: usize| median(&raw(n));
        println!(
            "{percent} % new addresses: {:.0} cycles/packet, {:.0} learned/s, {:.3} of them",
            of(0),
            of(1),
            of(2)
        );
        rows.push(Row {
            switch: "crosspoint",
            new_percent: percent,
            frames: args.frames,
            cycles_per_packet: of(0),
            packets_per_cpu_second: per_cpu_second(of(0)),
            learned_per_s: of(1),
            learned_ratio: of(2),
            miss_ratio: of(3),
            runs: args.common.runs,
            raw: raw(0),
            raw_learned_per_s: raw(1),
            raw_learned_ratio: raw(2),
        });
    }
    args.common.finish(rows, Goals::default())
}

/// Whether frame `n` has an address of its own: the share is spread evenly.
fn is_new(n: usize, percent: u8) -> bool {
    (n + 1) * usize::from(percent) / 100 > n * usize::from(percent) / 100
}

fn frame(n: usize, percent: u8) -> Vec<u8> {
    let [_, a, b, c] = (n as u32).to_be_bytes();
    let from = if is_new(n, percent) { EthAddr([6, 1, 0, a, b, c]) } else { EthAddr([2, 0, 0, 0, 0, 1]) };
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let udp = Compose::ethernet(from, TO).ipv4(src, dst).udp(1024, 1025).udp_checksum_zero();
    udp.frame_len(60).build().expect("headers of 42 bytes in a frame of 60")
}

/// Cycles per packet, addresses learned per second, their share, misses.
fn turn(pcap: &Path, args: &Args, percent: u8) -> Result<[f64; 4], String> {
    let bridge = BridgeConfig { mac_table_size: args.frames + 16, ..BridgeConfig::new("br0") };
    let mut rig = Rig::with_bridge(Config::default(), Some(rig::WORKER_CPU), bridge)?;
    rig.add_port(&trial::sink(SINK))?;
    let normal = Action::Output { port: OfPort::NORMAL, max_len: 0 };
    rig.add_rules(&[FlowMod::add(Match::any(), vec![normal])])?;
    let known = Effect::Learn { bridge: rig.bridge, vlan: 0, mac: TO.to_u64(), port: SINK };
    let now_ms = rig.datapath.now_ms();
    rig.control.apply(&[known], now_ms);
    rig.run_for(settle(200, args.common.turn_ms));
    let new = (0..args.frames).filter(|n| is_new(*n, percent)).count();
    let learned = |rig: &Rig| rig.control.fdb_stats(rig.bridge).current.saturating_sub(1);
    let watch = Watch::start(&[std::process::id()]);
    let (before, start) = (Meter::read(&rig), Instant::now());
    rig.add_port(&trial::source(SOURCE, pcap).with("loop", "false"))?;
    let mut seconds = None;
    while (Meter::read(&rig).looked_up_since(&before) as usize) < args.frames {
        if start.elapsed() > TIME {
            return Err(format!("{} frames did not go through within {} s", args.frames, TIME.as_secs()));
        }
        rig.pump();
        if learned(&rig) >= new {
            seconds.get_or_insert(start.elapsed().as_secs_f64());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let sample = Meter::read(&rig).since(&before);
    let seconds = seconds.unwrap_or(start.elapsed().as_secs_f64());
    turns::note("crosspoint", watch.end());
    rig.run_for(Duration::from_millis(100));
    // A control thread that got no processor meanwhile has yet to learn what waits for it.
    while rig.pump() {}
    let count = learned(&rig).min(new) as f64;
    let share = if new == 0 { 1.0 } else { count / new as f64 };
    Ok([sample.cycles_per_packet, count / seconds, share, sample.miss_ratio])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_new_addresses_is_what_was_asked_for_and_each_is_new() {
        for (percent, count) in [(0, 0), (1, 10), (50, 500), (100, 1_000)] {
            let new: Vec<usize> = (0..1_000).filter(|n| is_new(*n, percent)).collect();
            assert_eq!(new.len(), count);
            let macs: std::collections::BTreeSet<_> =
                new.iter().map(|n| frame(*n, percent)[6..12].to_vec()).collect();
            assert_eq!(macs.len(), count);
        }
    }
}

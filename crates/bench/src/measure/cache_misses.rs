//! Misses of the processor's caches per packet, by the number of flows: why a packet costs more with many
//! flows.
//!
//! One worker in memory, whose passes are run manually, with one rule per flow. The command runs itself once
//! for each number of flows, so that none finds what another left in the caches. The processor's own counters
//! are used if the kernel and the hypervisor give access to them. Otherwise the command runs under valgrind's
//! callgrind, which simulates two levels of caches of this processor's sizes; those rows say so. Both count
//! whole passes of the worker: the source in memory, the lookup and the output.
//!
//! Source: perf_event_open(2); valgrind's manual, "Callgrind", cache simulation.

use crate::machine::turns::turn;
use crate::measure::frames::{Order, exact_match, write_pcap};
use crate::measure::rig::pool;
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::process::{self, TempDir};
use crate::units::count;
use base::OfPort;
use base::hash::HashKey;
use base::rcu::Domain;
use datapath::{Config, Datapath, SteppedWorker};
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware};
use perf_event::{Builder, Counter, Group};
use serde::{Deserialize, Serialize};
use std::io;
use std::process::Command;
use switch::control::FlowMod;
use switch::{BridgeConfig, BridgeIdx, Control, PortSpec, Switch};

/// Packets that are counted at least.
const PACKETS_MIN: usize = 4_096;
/// The functions within which callgrind counts.
const COUNTED: &str = "*cache_misses::counted_turns*";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of flows, each with a rule of its own. Simulated, 100k take half a minute, a million seven
    /// minutes.
    #[arg(long, value_parser = count, value_delimiter = ',', default_value = "1,10,100,1k,10k,100k")]
    flows: Vec<usize>,
    /// Simulate, also where the processor's counters can be read.
    #[arg(long)]
    simulate: bool,
    /// Be the program that is counted, of the first number of flows.
    #[arg(long, hide = true)]
    counted: bool,
    #[command(flatten)]
    common: Common,
}

/// Counts over all counted packets.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Counts {
    instructions: u64,
    first_level_misses: u64,
    last_level_misses: u64,
}

/// The output of the counted program.
#[derive(Serialize, Deserialize)]
struct Counted {
    packets: u64,
    /// Counts of the processor, or why it did not count.
    processor: Result<Counts, String>,
}

#[derive(Serialize)]
struct Row {
    switch: &'static str,
    flows: usize,
    /// How it was counted: `processor`, or `simulated`.
    caches: &'static str,
    instructions_per_packet: f64,
    first_level_misses_per_packet: f64,
    last_level_misses_per_packet: f64,
    packets: u64,
    runs: u32,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    if args.counted {
        // Callgrind makes all slow: sweeps once a second would be made fifty times as often.
        base::clock::stop();
        let counted = be_counted(args.flows[0])?;
        println!("{}", serde_json::to_string(&counted).map_err(|e| e.to_string())?);
        return Ok(());
    }
    let mut rows = Rows::default();
    let mut is_told = args.simulate;
    for &flows in &args.flows {
        let by_processor = || turn("crosspoint", || by_processor(flows));
        let by_processor = if args.simulate { Err("not asked for".into()) } else { by_processor()? };
        let (caches, packets, counts) = match by_processor {
            Ok((packets, counts)) => ("processor", packets, counts),
            Err(why) => {
                if !std::mem::replace(&mut is_told, true) {
                    println!("the processor's counters cannot be read ({why}): misses are simulated");
                }
                let (packets, counts) = turn("crosspoint", || simulated(flows))?;
                ("simulated", packets, counts)
            }
        };
        let each = |n: u64| n as f64 / packets.max(1) as f64;
        let row = Row {
            switch: "crosspoint",
            flows,
            caches,
            instructions_per_packet: each(counts.instructions),
            first_level_misses_per_packet: each(counts.first_level_misses),
            last_level_misses_per_packet: each(counts.last_level_misses),
            packets,
            runs: 1,
        };
        println!(
            "{flows} flows: {:.2} misses of the first level and {:.2} of the last per packet, {:.0} instructions ({caches})",
            row.first_level_misses_per_packet, row.last_level_misses_per_packet, row.instructions_per_packet
        );
        rows.push(row);
    }
    args.common.finish(rows, Goals::default())
}

fn itself(flows: usize, mut command: Command) -> Result<Counted, String> {
    let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    let args = ["bench", "cache-misses", "--counted", "--flows", &flows.to_string()].map(String::from);
    if command.get_program() == "valgrind" {
        command.arg(program);
    } else {
        command = Command::new(program);
    }
    let run = command.args(args).output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => process::missing("valgrind"),
        _ => format!("{}: {e}", command.get_program().display()),
    })?;
    if !run.status.success() {
        return Err(format!("{flows} flows: {}: {}", run.status, String::from_utf8_lossy(&run.stderr)));
    }
    serde_json::from_slice(&run.stdout).map_err(|e| format!("{flows} flows: {e}"))
}

fn by_processor(flows: usize) -> Result<Result<(u64, Counts), String>, String> {
    let counted = itself(flows, Command::new(""))?;
    Ok(counted.processor.map(|counts| (counted.packets, counts)))
}

fn simulated(flows: usize) -> Result<(u64, Counts), String> {
    let dir = TempDir::new("cache-misses")?;
    let out = dir.0.join("out");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--quiet", "--cache-sim=yes", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", out.display()));
    let counted = itself(flows, valgrind)?;
    let text = std::fs::read_to_string(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let counts = totals(&text).ok_or("callgrind's file has no totals")?;
    match counts.instructions {
        0 => Err(format!("callgrind counted nothing: is there a function {COUNTED}?")),
        _ => Ok((counted.packets, counts)),
    }
}

/// The sums that a file of callgrind's ends with.
fn totals(text: &str) -> Option<Counts> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let events: Vec<&str> = line("events: ")?.split_whitespace().collect();
    let totals: Vec<u64> = line("totals: ")?.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    // Events at the end that never happened are left out.
    let of = |name: &str| {
        let at = events.iter().position(|event| *event == name)?;
        Some(totals.get(at).copied().unwrap_or(0))
    };
    Some(Counts {
        instructions: of("Ir")?,
        first_level_misses: of("D1mr")? + of("D1mw")?,
        last_level_misses: of("DLmr")? + of("DLmw")?,
    })
}

/// Counters of the processor for this thread.
struct Counters {
    group: Group,
    instructions: Counter,
    first_level: Counter,
    last_level: Counter,
}

impl Counters {
    fn open() -> io::Result<Counters> {
        let mut group = Group::new()?;
        let instructions = group.add(&Builder::new(Hardware::INSTRUCTIONS))?;
        let first = Cache { which: CacheId::L1D, operation: CacheOp::READ, result: CacheResult::MISS };
        let first_level = group.add(&Builder::new(first))?;
        let last_level = group.add(&Builder::new(Hardware::CACHE_MISSES))?;
        Ok(Counters { group, instructions, first_level, last_level })
    }

    fn read(&mut self) -> io::Result<Counts> {
        let counts = self.group.read()?;
        Ok(Counts {
            instructions: counts[&self.instructions],
            first_level_misses: counts[&self.first_level],
            last_level_misses: counts[&self.last_level],
        })
    }
}

/// Forwards packets, first until the caches know all flows, and then so that they are counted.
fn be_counted(flows: usize) -> Result<Counted, String> {
    let dir = TempDir::new("cache-misses")?;
    let pcap = dir.0.join("flows.pcap");
    let mut world = World::new(flows)?;
    world.add_port(&trial::sink(SINK))?;
    write_pcap(&pcap, flows, Order::Sequential)?;
    world.add_port(&trial::source(SOURCE, &pcap))?;
    let packets = flows.max(PACKETS_MIN) as u64;
    // The second time, the exact-match tier answers what megaflows answered the first time.
    counted_by_nobody(&mut world, 2 * packets);
    let misses = world.misses();
    let mut counters = Counters::open();
    if let Ok(counters) = &mut counters {
        counters.group.enable().map_err(|e| format!("counters: {e}"))?;
    }
    let before = world.received();
    counted_turns(&mut world, packets);
    let processor = counters.and_then(|mut counters| {
        counters.group.disable()?;
        counters.read()
    });
    if world.misses() != misses {
        return Err(format!("{} packets were translated while they were counted", world.misses() - misses));
    }
    Ok(Counted { packets: world.received() - before, processor: processor.map_err(|e| no_counters(&e)) })
}

/// Why the processor's counters cannot be read.
fn no_counters(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "this machine has none".into(),
        io::ErrorKind::PermissionDenied => "sysctl kernel.perf_event_paranoid forbids it".into(),
        _ => error.to_string(),
    }
}

/// See [`COUNTED`].
#[inline(never)]
fn counted_turns(world: &mut World, packets: u64) {
    world.receive(packets);
}

/// The same outside what is counted.
#[inline(never)]
fn counted_by_nobody(world: &mut World, packets: u64) {
    world.receive(std::hint::black_box(packets));
}

/// A switch of one worker, whose turns are taken by hand.
struct World {
    worker: SteppedWorker<Switch>,
    datapath: Datapath<Switch>,
    control: Control,
    bridge: BridgeIdx,
}

impl World {
    fn new(flows: usize) -> Result<World, String> {
        let domain = Domain::new();
        let (switch, mut control) = Control::new(domain.clone(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let config = Config { hash_seed: Some(1), ..Config::default() };
        let mut datapath = Datapath::new(pool()?, switch, domain, config).map_err(|e| e.to_string())?;
        let worker = datapath.stepped_worker().map_err(|e| e.to_string())?;
        let rules: Vec<FlowMod> =
            (0..flows).map(|n| FlowMod::add(exact_match(n), trial::to_sink())).collect();
        control.flow_mods(rules.iter().map(|fm| (bridge, fm)), 0).map_err(|e| format!("{e:?}"))?;
        datapath.reserve_slots(control.slot_count());
        Ok(World { worker, datapath, control, bridge })
    }

    fn add_port(&mut self, spec: &ports::PortSpec) -> Result<(), String> {
        let no = spec.port_no;
        let port = PortSpec::new(no, OfPort(no.0 as u16), &spec.name);
        self.control.add_port(self.bridge, port).map_err(|e| format!("{e:?}"))?;
        let port = ports::open(spec, self.datapath.pool()).map_err(|e| e.to_string())?;
        self.datapath.reserve_slots(self.control.slot_count());
        self.datapath.add_port(no, port).map_err(|e| e.to_string())
    }

    fn received(&self) -> u64 {
        self.datapath.worker_stats(0).rx.get()
    }

    fn misses(&self) -> u64 {
        self.datapath.worker_stats(0).misses.get()
    }

    /// Runs passes until this many more packets have arrived.
    fn receive(&mut self, packets: u64) {
        let end = self.received() + packets;
        while self.received() < end {
            self.worker.turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_callgrind_are_read_by_their_names() {
        let text = "version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nfn=x\n1 2\n\ntotals: 900 400 200 3 40 20 1 9\n";
        let expected = Counts { instructions: 900, first_level_misses: 60, last_level_misses: 9 };
        assert_eq!(totals(text), Some(expected));
        assert_eq!(totals("events: Ir Dr\ntotals: 5 6\n"), None, "no caches were simulated");
    }

    #[test]
    fn packets_are_answered_by_the_caches_while_they_are_counted() {
        let counted = be_counted(100).unwrap();
        assert!((PACKETS_MIN as u64..PACKETS_MIN as u64 + 64).contains(&counted.packets));
        if let Ok(counts) = counted.processor {
            assert!(counts.instructions > 10 * counted.packets, "{counts:?}");
        }
    }
}

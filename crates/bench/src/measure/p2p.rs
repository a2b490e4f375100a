//! Port to port in memory: the price of switching.
//!
//! A source replays a capture of 60-byte UDP frames from memory, each packet copied into a fresh buffer; a
//! sink counts. With `--peer ovs-dpdk` the same is measured on Open vSwitch's user-space datapath and on
//! testpmd, in turns. What is compared is the switching cost: total cycles per packet less those of the same
//! source and sink with no switch between.

use crate::goals;
use crate::machine::turns::turn;
use crate::measure::frames::{self, DST_MAC, Order, addresses, exact_match};
use crate::measure::io_floor;
use crate::measure::ovs_dpdk::OvsDpdk;
use crate::measure::rig::{Rig, Sample, settle};
use crate::measure::rows::Rows;
use crate::measure::testpmd::{self, Floor};
use crate::measure::trial::{Common, Goals};
use crate::process::TempDir;
use crate::result::MISSES_MAX;
use crate::stats::median;
use crate::units::{Failure, count};
use base::PortNo;
use datapath::Config;
use flow::{Action, FieldId, Match};
use ports::PortSpec;
use std::path::Path;
use std::time::Duration;
use switch::Effect;
use switch::control::FlowMod;

/// The peer's packet memory holds no more packets than this.
const PEER_FLOWS_MAX: usize = 250_000;
/// The rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Rules {
    /// One rule: `in_port=1 actions=2`.
    InPort,
    /// One rule per flow: `ip,in_port,nw_src,nw_dst`.
    Exact,
    /// One rule: `actions=NORMAL`, the destination known.
    Normal,
    /// One rule for a prefix of 16 bits of the source address, which holds all flows.
    Prefix,
    /// One rule for each source address.
    PerSource,
}

/// The switch to measure for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Peer {
    /// Debian's Open vSwitch with DPDK, and testpmd as its floor.
    OvsDpdk,
}

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The rules.
    #[arg(long, value_enum, default_value = "in_port")]
    rules: Rules,
    /// Numbers of flows, separated by commas; k and m stand for thousands and millions.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1,10,1k,10k")]
    flows: Vec<usize>,
    /// In what order flows follow each other; both where it is not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    order: Vec<Order>,
    /// Measure another switch beside ours, in turns.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize, Clone)]
struct Row {
    switch: &'static str,
    rules: Rules,
    order: Order,
    flows: usize,
    cycles_per_packet: f64,
    io_cycles_per_packet: f64,
    packets_per_cpu_second: f64,
    packets_per_wall_second: f64,
    emc_hit_ratio: f64,
    megaflow_hit_ratio: f64,
    miss_ratio: f64,
    runs: u32,
    /// Packets of all turns together.
    packets: u64,
    /// Each turn's cycles per packet.
    raw: Vec<f64>,
    /// Each turn's of the source and sink alone.
    raw_io: Vec<f64>,
    raw_packets_per_wall_second: Vec<f64>,
}

impl Row {
    fn is_lookup_figure(&self) -> bool {
        self.miss_ratio <= MISSES_MAX
    }

    fn switching_cost(&self) -> f64 {
        self.cycles_per_packet - self.io_cycles_per_packet
    }
}

/// The goal for this figure.
fn goal(rules: Rules, flows: usize, figure: &str) -> Option<f64> {
    let rules = match rules {
        Rules::InPort => "in_port",
        Rules::Exact => "exact",
        Rules::Normal => "normal",
        Rules::Prefix => "prefix",
        Rules::PerSource => "per_source",
    };
    goals::bound("p2p", &[("rules", rules), ("flows", &flows.to_string())], figure)
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.rules == Rules::Prefix && args.flows.iter().any(|flows| *flows > 1 << 16) {
        return Err(Failure::Usage(
            "--rules prefix: at most 65536 --flows, as many as the prefix has addresses".into(),
        ));
    }
    let dir = TempDir::new("p2p")?;
    let orders = match args.order.as_slice() {
        [] => vec![Order::Sequential, Order::Shuffled],
        given => given.to_vec(),
    };
    let mut peer = match args.peer {
        Some(Peer::OvsDpdk) => Some(OvsDpdk::start()?),
        None => None,
    };
    let mut rows = Rows::default();
    let mut goals = Goals::default();
    for order in orders {
        let mut ours_at_ten = None;
        for &flows in &args.flows {
            // One flow has one order.
            let pcap = dir.0.join(format!("{flows}.pcap"));
            frames::write_pcap(&pcap, flows, order)?;
            let of_peer = peer.as_mut().filter(|_| flows <= PEER_FLOWS_MAX);
            let new = point(args, order, flows, &pcap, of_peer)?;
            for row in &new {
                print_row(row);
            }
            compare(&new, &mut goals);
            let ours = &new[0];
            if flows == 10 {
                ours_at_ten = Some(ours.raw.clone());
            }
            let flat = goal(args.rules, flows, "cycles_per_packet to flows=10");
            if let (Some(ten), Some(goal)) = (&ours_at_ten, flat) {
                let ratios: Vec<f64> = ours.raw.iter().zip(ten).map(|(all, ten)| all / ten).collect();
                goals.at_most(&format!("{flows} flows {order:?} in ratio to ten"), &ratios, goal);
            }
            rows.extend(new);
            let _ = std::fs::remove_file(pcap);
        }
    }
    Ok(args.common.finish(rows, goals)?)
}

fn print_row(row: &Row) {
    println!(
        "{:<10} {:?} {:?} {:>7} flows: {:>8.1} cycles/packet, io {:>6.1}, switching {:>8.1}; exact {:.3} megaflow {:.3} miss {:.4}{}",
        row.switch,
        row.rules,
        row.order,
        row.flows,
        row.cycles_per_packet,
        row.io_cycles_per_packet,
        row.switching_cost(),
        row.emc_hit_ratio,
        row.megaflow_hit_ratio,
        row.miss_ratio,
        if row.is_lookup_figure() { "" } else { " (misses: no lookup figure)" },
    );
}

fn compare(rows: &[Row], goals: &mut Goals) {
    let find = |name: &str| rows.iter().find(|r| r.switch == name);
    let (Some(ours), Some(theirs)) = (find("crosspoint"), find("ovs-dpdk")) else { return };
    if let Some(missed) = [ours, theirs].into_iter().find(|row| !row.is_lookup_figure()) {
        println!("    no ratio of switching costs, since {} missed its caches", missed.switch);
        return;
    }
    let costs = |row: &Row| row.raw.iter().zip(&row.raw_io).map(|(all, io)| all - io).collect::<Vec<f64>>();
    let ratios: Vec<f64> = costs(ours).iter().zip(costs(theirs)).map(|(o, t)| o / t).collect();
    let ratio = ours.switching_cost() / theirs.switching_cost();
    println!("    switching cost in ratio to the peer's: {ratio:.3}");
    if let Some(goal) = goal(ours.rules, ours.flows, "switching_cycles_per_packet") {
        let what = format!("{:?} {:?} {} flows, in ratio to the peer's", ours.rules, ours.order, ours.flows);
        goals.at_most(&what, &ratios, goal);
    }
}

/// All switches at one number of flows.
fn point(
    args: &Args,
    order: Order,
    flows: usize,
    pcap: &Path,
    mut peer: Option<&mut OvsDpdk>,
) -> Result<Vec<Row>, String> {
    let time = args.common.turn();
    let source = PortSpec::new("source", "pcap", PortNo(1))
        .with("rx_file", &pcap.to_string_lossy())
        .with("loop", "true")
        .with_files_beside([pcap]);
    let sink = PortSpec::new("sink", "null", PortNo(2));
    if let Some(peer) = &mut peer {
        peer.resume()?;
        peer.drop_source()?;
        peer.set_rules(&rules_text(args.rules, flows))?;
        peer.pause()?;
    }
    let mut rig = Rig::new(Config::default())?;
    rig.add_port(&sink)?;
    rig.add_port(&source)?;
    rig.add_rules(&rules(args.rules, flows))?;
    if args.rules == Rules::Normal {
        let known = Effect::Learn { bridge: rig.bridge, vlan: 0, mac: DST_MAC.to_u64(), port: PortNo(2) };
        let now_ms = rig.datapath.now_ms();
        rig.control.apply(&[known], now_ms);
    }
    if let Some(peer) = &mut peer {
        rig.detach(PortNo(1))?;
        peer.resume()?;
        peer.set_source(pcap)?;
        if args.rules == Rules::Normal {
            peer.set_mac("sink", &DST_MAC.to_string())?;
        }
        peer.warm_up(Duration::from_secs(2))?;
        peer.pause()?;
        rig.add_port(&source)?;
    }
    rig.warm_up(settle(if flows > 10_000 { 4_000 } else { 1_500 }, args.common.turn_ms));
    let (mut ours, mut our_floors) = (Vec::new(), Vec::new());
    let (mut theirs, mut their_floors) = (Vec::new(), Vec::new());
    for _ in 0..args.common.runs {
        ours.push(rig.measure(time));
        // Without its source our worker sleeps and its caches stay as they are.
        rig.detach(PortNo(1))?;
        our_floors.push(turn("crosspoint", || io_floor::measure(&source, &sink, time))?);
        if let Some(peer) = &mut peer {
            peer.resume()?;
            peer.warm_up(Duration::from_millis(300))?;
            theirs.push(peer.measure(time)?);
            peer.pause()?;
            their_floors.push(testpmd::measure(pcap, time)?);
        }
        rig.add_port(&source)?;
        rig.warm_up(settle(if flows > 10_000 { 1_500 } else { 400 }, args.common.turn_ms));
    }
    let mut rows = vec![row("crosspoint", args.rules, order, flows, &our_floors, &ours)];
    if peer.is_some() {
        let alone = |floor: &Floor| Sample {
            packets: floor.packets,
            cycles_per_packet: floor.cycles_per_packet,
            packets_per_wall_second: floor.packets_per_wall_second,
            exact_ratio: 0.0,
            megaflow_ratio: 0.0,
            miss_ratio: 0.0,
        };
        let floors: Vec<Sample> = their_floors.iter().map(alone).collect();
        let costs: Vec<f64> = floors.iter().map(|floor| floor.cycles_per_packet).collect();
        rows.push(row("ovs-dpdk", args.rules, order, flows, &costs, &theirs));
        rows.push(row("testpmd", args.rules, order, flows, &costs, &floors));
    }
    Ok(rows)
}

fn row(
    switch: &'static str,
    rules: Rules,
    order: Order,
    flows: usize,
    io: &[f64],
    samples: &[Sample],
) -> Row {
    let of = |f: fn(&Sample) -> f64| median(&samples.iter().map(f).collect::<Vec<_>>());
    let cycles_per_packet = of(|s| s.cycles_per_packet);
    Row {
        switch,
        rules,
        order,
        flows,
        cycles_per_packet,
        io_cycles_per_packet: median(io),
        packets_per_cpu_second: base::clock::tsc_hz() as f64 / cycles_per_packet,
        packets_per_wall_second: of(|s| s.packets_per_wall_second),
        emc_hit_ratio: of(|s| s.exact_ratio),
        megaflow_hit_ratio: of(|s| s.megaflow_ratio),
        miss_ratio: of(|s| s.miss_ratio),
        runs: samples.len() as u32,
        packets: samples.iter().map(|s| s.packets).sum(),
        raw: samples.iter().map(|s| s.cycles_per_packet).collect(),
        raw_io: io.to_vec(),
        raw_packets_per_wall_second: samples.iter().map(|s| s.packets_per_wall_second).collect(),
    }
}

fn rules(rules: Rules, flows: usize) -> Vec<FlowMod> {
    let to_sink = || vec![Action::Output { port: base::OfPort(2), max_len: 0 }];
    match rules {
        Rules::InPort => vec![FlowMod::add(Match::any().with(FieldId::InPort, 1), to_sink())],
        Rules::Normal => {
            let normal = Action::Output { port: base::OfPort::NORMAL, max_len: 0 };
            vec![FlowMod::add(Match::any(), vec![normal])]
        }
        Rules::Exact => (0..flows).map(|n| FlowMod::add(exact_match(n), to_sink())).collect(),
        Rules::Prefix => {
            let (first, _) = addresses(0);
            let prefix = source_match().with_masked(FieldId::NwSrc, first.to_bits().into(), 0xffff_0000);
            vec![FlowMod::add(prefix, to_sink())]
        }
        Rules::PerSource => {
            let of = |n| source_match().with(FieldId::NwSrc, addresses(n).0.to_bits().into());
            (0..flows).map(|n| FlowMod::add(of(n), to_sink())).collect()
        }
    }
}

fn source_match() -> Match {
    Match::any().with(FieldId::InPort, 1).with(FieldId::EthType, 0x0800)
}

fn rules_text(rules: Rules, flows: usize) -> String {
    match rules {
        Rules::InPort => "in_port=1,actions=output:2\n".into(),
        Rules::Normal => "actions=NORMAL\n".into(),
        Rules::Prefix => "ip,in_port=1,nw_src=10.0.0.0/16,actions=output:2\n".into(),
        Rules::PerSource => {
            let rule = |n| format!("ip,in_port=1,nw_src={},actions=output:2\n", addresses(n).0);
            (0..flows).map(rule).collect()
        }
        Rules::Exact => (0..flows)
            .map(|n| {
                let (src, dst) = addresses(n);
                format!("ip,in_port=1,nw_src={src},nw_dst={dst},actions=output:2\n")
            })
            .collect(),
    }
}

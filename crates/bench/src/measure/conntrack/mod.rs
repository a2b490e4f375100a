//! Connection tracking: what does a packet of an established connection cost, and a new connection?
//!
//! A stateful firewall of five rules, and the same with source translation. Sources in memory replay bare TCP
//! segments, from both ends of the requested number of connections; a sink counts. They are compared, in
//! turns, with the same packets under the same rules without `ct` (`stateless`), and with Open vSwitch's
//! user-space tracker with the same sources and sink.
//!
//! For both switches a first turn does not count, neither for established packets nor for new connections: in
//! it the caches learn the flows, two million of them for a million connections, and memory is touched for
//! the first time. A switch does both once; the figures show the steady state.
//!
//! No figure is taken on trust: after each turn the rules' counters must show that every packet was
//! classified correctly (established, or new), and the sink's that each arrived. Otherwise the measurement
//! ends with an error.
//!
//! The peer's packet memory is too small for the segments of a million connections, and it cannot play a
//! capture once from memory: it reads those captures from files. The additional cost of that is measured
//! without `ct`, and subtracted (`source_cycles_per_packet`).

pub mod flood;
mod sides;
mod traffic;

use crate::goals;
use crate::machine::turns::turn;
use crate::measure::p2p::Peer;
use crate::measure::rows::Rows;
use crate::measure::trial::{Common, Goals, per_cpu_second};
use crate::process::TempDir;
use crate::result::MISSES_MAX;
use crate::stats::median;
use crate::units::up_to;
use sides::{Cost, Counts, Ours, Side, Theirs};
use std::path::Path;
use std::time::{Duration, Instant};
use traffic::{FROM_INSIDE, FROM_OUTSIDE, OPENING, OTHERS, Rules, Source};

/// Connections for which a packet's cost is compared between file and memory, and frames in the file.
const COMPARED: (usize, usize) = (100_000, 400_000);
/// How long counters may lag behind the packets.
const COUNTED_WITHIN: Duration = Duration::from_secs(2);

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of established connections, separated by commas; k and m stand for thousands and millions.
    #[arg(long, value_delimiter = ',', value_parser = up_to::<4_000_000>, default_value = "1,10k,1m")]
    connections: Vec<usize>,
    /// New connections in each turn.
    #[arg(long, value_parser = up_to::<4_000_000>, default_value = "1m")]
    new: usize,
    /// The rules, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "firewall,snat")]
    rules: Vec<Rules>,
    /// Measure another switch beside ours, in turns.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    #[command(flatten)]
    common: Common,
}

/// The kind of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    /// Packets without connection tracking.
    Stateless,
    /// Of connections that both ends have acknowledged.
    Established,
    /// Each opens a connection.
    New,
}

impl What {
    /// As in a label.
    fn name(self) -> &'static str {
        match self {
            What::Stateless => "stateless",
            What::Established => "established",
            What::New => "new",
        }
    }
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: What,
    rules: Rules,
    connections: usize,
    cycles_per_packet: f64,
    packets_per_cpu_second: f64,
    /// None if packets came from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_per_wall_second: Option<f64>,
    /// Rate of established packets in ratio to that of the same packets without `ct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_stateless: Option<f64>,
    /// The cost that was subtracted because packets came from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_cycles_per_packet: Option<f64>,
    miss_ratio: f64,
    runs: u32,
    /// Each turn's packets per second of CPU time.
    raw: Vec<f64>,
    raw_cycles: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    raw_packets_per_wall_second: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    raw_stateless: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("conntrack")?;
    let mut theirs = match args.peer {
        Some(Peer::OvsDpdk) => Some(Theirs::start()?),
        None => None,
    };
    let most = args.connections.iter().copied().max().unwrap_or(0).max(args.new);
    if let Some(theirs) = &mut theirs {
        theirs.of_file = cost_of_file(theirs, args, &dir.0, most)?;
    }
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    for &connections in &args.connections {
        established(args, connections, &dir.0, theirs.as_mut(), &mut rows)?;
    }
    for &rules in args.rules.iter().filter(|rules| **rules != Rules::Stateless) {
        new(args, rules, &dir.0, theirs.as_mut(), &mut rows)?;
    }
    judge(&rows, &mut goals);
    args.common.finish(rows, goals)
}

/// The additional cost of a packet for the peer from a file, relative to memory.
fn cost_of_file(theirs: &mut Theirs, args: &Args, dir: &Path, most: usize) -> Result<f64, String> {
    let connections = most.min(COMPARED.0);
    theirs.set_rules(&Rules::Stateless.text())?;
    let in_memory = traffic::repeated(dir, connections, connections)?;
    let in_file = traffic::repeated(dir, connections, COMPARED.1)?;
    let mut more = Vec::new();
    for _ in 0..args.common.runs {
        let memory = theirs.turn(std::slice::from_ref(&in_memory), args.common.turn())?;
        more.push(theirs.play(std::slice::from_ref(&in_file))?.cycles - memory.cycles);
    }
    let more = median(&more).max(0.0);
    println!("ovs-dpdk: a packet from a file costs {more:.1} cycles more than one from memory");
    Ok(more)
}

/// Established packets under all rules, and without `ct`.
fn established(
    args: &Args,
    connections: usize,
    dir: &Path,
    mut theirs: Option<&mut Theirs>,
    rows: &mut Rows<Row>,
) -> Result<(), String> {
    let time = args.common.turn();
    let plain_sources = traffic::established(dir, connections, Rules::Stateless)?;
    let mut plain = Ours::new(&Rules::Stateless.text())?;
    if let Some(theirs) = &mut theirs {
        theirs.set_rules(&Rules::Stateless.text())?;
    }
    let turns = learnt(args.common.runs, || {
        let of_ours = checked(&mut plain, What::Stateless, |plain| plain.turn(&plain_sources, time))?;
        let theirs = theirs.as_mut();
        let of_theirs = theirs
            .map(|theirs| checked(*theirs, What::Stateless, |theirs| theirs.turn(&plain_sources, time)));
        Ok((of_ours, of_theirs.transpose()?))
    })?;
    let (ours, of_peer) = by_side(&turns);
    let row = |switch, rules, costs: &[Cost]| row(switch, What::Established, rules, connections, costs);
    let stateless = |row: Row| Row { what: What::Stateless, ..row };
    add(rows, stateless(row(plain.name(), Rules::Stateless, &ours)));
    let from_file = |theirs: &Theirs, sources: &[Source]| (!Theirs::holds(sources)).then_some(theirs.of_file);
    if let Some(theirs) = &theirs {
        let mut peer_row = stateless(row(theirs.name(), Rules::Stateless, &of_peer));
        peer_row.source_cycles_per_packet = from_file(theirs, &plain_sources);
        add(rows, peer_row);
    }
    for &rules in args.rules.iter().filter(|rules| **rules != Rules::Stateless) {
        let sources = traffic::established(dir, connections, rules)?;
        let mut side = Ours::new(&rules.text())?;
        establish(&mut side, rules, &sources, connections, dir)?;
        if let Some(theirs) = &mut theirs {
            theirs.set_rules(&rules.text())?;
            establish(*theirs, rules, &sources, connections, dir)?;
        }
        let turns = learnt(args.common.runs, || {
            let without = plain.turn(&plain_sources, time)?;
            let with = checked(&mut side, What::Established, |side| side.turn(&sources, time))?;
            let theirs = theirs.as_mut();
            let of_theirs = theirs
                .map(|theirs| checked(*theirs, What::Established, |theirs| theirs.turn(&sources, time)));
            Ok((without.cycles / with.cycles, (with, of_theirs.transpose()?)))
        })?;
        let (ratios, turns): (Vec<f64>, Vec<_>) = turns.into_iter().unzip();
        let (ours, of_peer) = by_side(&turns);
        let ratio_to_stateless = Some(median(&ratios));
        add(rows, Row { ratio_to_stateless, raw_stateless: ratios, ..row(side.name(), rules, &ours) });
        if let Some(theirs) = &theirs {
            let source_cycles_per_packet = from_file(theirs, &sources);
            add(rows, Row { source_cycles_per_packet, ..row(theirs.name(), rules, &of_peer) });
        }
    }
    Ok(())
}

/// Opens this many connections, answers them, and acknowledges the answers: a half-open one would not survive
/// another switch's long turn.
fn establish(
    side: &mut dyn Side,
    rules: Rules,
    acknowledging: &[Source],
    connections: usize,
    dir: &Path,
) -> Result<(), String> {
    let (opening, answering) =
        (traffic::opening(dir, connections)?, traffic::answering(dir, connections, rules)?);
    checked(side, What::New, |side| side.play(&[opening]))?;
    checked(side, What::Established, |side| side.play(&[answering]))?;
    checked(side, What::Established, |side| side.play(acknowledging))?;
    known(side, connections)
}

/// Connections as fast as they can be opened.
fn new(
    args: &Args,
    rules: Rules,
    dir: &Path,
    mut theirs: Option<&mut Theirs>,
    rows: &mut Rows<Row>,
) -> Result<(), String> {
    let opening = [traffic::opening(dir, args.new)?];
    let mut side = Ours::new(&rules.text())?;
    if let Some(theirs) = &mut theirs {
        theirs.set_rules(&rules.text())?;
    }
    let once = |side: &mut dyn Side| {
        side.forget()?;
        let cost = checked(side, What::New, |side| turn(side.name(), || side.play(&opening)))?;
        known(side, args.new)?;
        Ok::<Cost, String>(cost)
    };
    let turns = learnt(args.common.runs, || {
        Ok((once(&mut side)?, theirs.as_mut().map(|theirs| once(*theirs)).transpose()?))
    })?;
    let (ours, of_peer) = by_side(&turns);
    add(rows, row(side.name(), What::New, rules, args.new, &ours));
    if let Some(theirs) = &theirs {
        let source_cycles_per_packet = Some(theirs.of_file);
        let of_peer = row(theirs.name(), What::New, rules, args.new, &of_peer);
        add(rows, Row { source_cycles_per_packet, ..of_peer });
    }
    Ok(())
}

/// So many turns of both sides, behind a first one that does not count: see the module documentation.
fn learnt<T>(runs: u32, mut turn: impl FnMut() -> Result<T, String>) -> Result<Vec<T>, String> {
    turn()?;
    (0..runs).map(|_| turn()).collect()
}

/// Our costs, and the peer's if there is one.
fn by_side<T: Copy>(turns: &[(T, Option<T>)]) -> (Vec<T>, Vec<T>) {
    (turns.iter().map(|turn| turn.0).collect(), turns.iter().filter_map(|turn| turn.1).collect())
}

/// Runs `work` with packets of a kind; an error unless all packets received were classified correctly, and
/// arrived. Packets in flight have two seconds to be counted.
fn checked<T>(
    side: &mut dyn Side,
    what: What,
    work: impl FnOnce(&mut dyn Side) -> Result<T, String>,
) -> Result<T, String> {
    let before = side.counts()?;
    let result = work(side)?;
    let end = Instant::now() + COUNTED_WITHIN;
    loop {
        let counts = side.counts()?.since(&before);
        match add_up(what, &counts) {
            Ok(()) => return Ok(result),
            Err(why) if Instant::now() > end => return Err(format!("{}: {why}", side.name())),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Whether all received packets of a kind were classified correctly, and arrived.
fn add_up(what: What, counts: &Counts) -> Result<(), String> {
    let Counts { received, sent, by_rule } = *counts;
    let of = |cookie: u64| by_rule[cookie as usize];
    let judged = match what {
        What::New => of(OPENING),
        What::Stateless | What::Established => of(FROM_INSIDE) + of(FROM_OUTSIDE),
    };
    if received > 0 && judged == received && sent == received {
        return Ok(());
    }
    Err(format!(
        "of {received} {} packets {sent} arrived; the rules judged {} new, {} established from inside, {} from \
         outside, {} neither",
        what.name(),
        of(OPENING),
        of(FROM_INSIDE),
        of(FROM_OUTSIDE),
        of(OTHERS),
    ))
}

/// An error unless the switch has this many connections.
fn known(side: &dyn Side, connections: usize) -> Result<(), String> {
    match side.connections()? {
        count if count == connections as u64 => Ok(()),
        count => Err(format!("{} knows {count} connections, not {connections}", side.name())),
    }
}

fn row(switch: &'static str, what: What, rules: Rules, connections: usize, costs: &[Cost]) -> Row {
    let cycles: Vec<f64> = costs.iter().map(|cost| cost.cycles).collect();
    let cycles_per_packet = median(&cycles);
    let wall: Vec<f64> = costs.iter().filter_map(|cost| cost.per_wall_second).collect();
    Row {
        switch,
        what,
        rules,
        connections,
        cycles_per_packet,
        packets_per_cpu_second: per_cpu_second(cycles_per_packet),
        packets_per_wall_second: (!wall.is_empty()).then(|| median(&wall)),
        ratio_to_stateless: None,
        source_cycles_per_packet: None,
        miss_ratio: median(&costs.iter().map(|cost| cost.miss_ratio).collect::<Vec<_>>()),
        runs: costs.len() as u32,
        raw: cycles.iter().map(|cost| per_cpu_second(*cost)).collect(),
        raw_cycles: cycles,
        raw_packets_per_wall_second: wall,
        raw_stateless: Vec::new(),
    }
}

fn add(rows: &mut Rows<Row>, row: Row) {
    let of_stateless = row.ratio_to_stateless.map(|ratio| format!("; {ratio:.2} of stateless"));
    println!(
        "{:<10} {:<11} {:<9} {:>7} connections: {:>7.1} cycles/packet, {:>6.2} million/s of CPU time{}",
        row.switch,
        row.what.name(),
        row.rules.name(),
        row.connections,
        row.cycles_per_packet,
        row.packets_per_cpu_second / 1e6,
        of_stateless.unwrap_or_default(),
    );
    rows.push(row);
}

/// Holds each row to the goals that are about it.
fn judge(rows: &[Row], goals: &mut Goals) {
    let is_about = |a: &Row, b: &Row| (a.what, a.rules, a.connections) == (b.what, b.rules, b.connections);
    for ours in rows.iter().filter(|row| row.switch == "crosspoint") {
        let what = ours.what.name();
        let labels =
            [("what", what), ("rules", ours.rules.name()), ("connections", &ours.connections.to_string())];
        let load = format!("{what} {} {}", ours.rules.name(), ours.connections);
        let bound = |figure| goals::bound("conntrack", &labels, figure);
        let theirs = rows.iter().find(|row| row.switch != ours.switch && is_about(row, ours));
        // A new connection may have a new flow, but packets of established ones have known flows.
        let misses = |row: &Row| ours.what != What::New && row.miss_ratio > MISSES_MAX;
        let theirs = theirs.filter(|theirs| !misses(theirs) && !misses(ours));
        if let (Some(theirs), Some(goal)) = (theirs, bound("cycles_per_packet")) {
            let pairs = theirs.raw_cycles.iter().zip(&ours.raw_cycles);
            let times: Vec<f64> = pairs.map(|(theirs, ours)| theirs / ours).collect();
            goals.at_least(&format!("{load}: rate in ratio to {}'s", theirs.switch), &times, goal);
        }
        if let Some(goal) = bound("packets_per_cpu_second") {
            goals.at_least(&format!("{load}: packets per CPU-second"), &ours.raw, goal);
        }
        if let Some(goal) = bound("ratio_to_stateless") {
            goals.at_least(&format!("{load}: rate in ratio to stateless"), &ours.raw_stateless, goal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_in_which_caches_learn_the_flows_counts_for_neither_side() {
        let mut costs = [(814.0, Some(900.0)), (227.0, Some(700.0)), (239.0, None)].into_iter();
        let turns = learnt(2, || costs.next().ok_or_else(|| "too many turns".to_string())).unwrap();
        assert_eq!(by_side(&turns), (vec![227.0, 239.0], vec![700.0]));
    }

    #[test]
    fn rates_are_told_by_either_clock_but_not_the_rate_of_a_file() {
        let of = |cycles, per_wall_second| Cost { cycles, per_wall_second, miss_ratio: 0.0 };
        let row = |costs: &[Cost]| row("x", What::Established, Rules::Firewall, 10, costs);
        let memory = row(&[of(200.0, Some(4e6)), of(210.0, Some(3e6)), of(400.0, Some(2e6))]);
        assert_eq!((memory.cycles_per_packet, memory.packets_per_wall_second), (210.0, Some(3e6)));
        assert_eq!(memory.raw_packets_per_wall_second, [4e6, 3e6, 2e6]);
        let file = row(&[of(200.0, None)]);
        assert_eq!((file.packets_per_wall_second, file.raw.len()), (None, 1));
    }

    #[test]
    fn packets_that_were_judged_otherwise_or_did_not_arrive_do_not_add_up() {
        let told = |what, received, sent, by_rule| add_up(what, &Counts { received, sent, by_rule });
        assert!(told(What::Established, 10, 10, [0, 10, 0, 6, 4, 0, 0, 0]).is_ok());
        assert!(told(What::New, 10, 10, [0, 10, 10, 0, 0, 0, 0, 0]).is_ok());
        let one_is_new = told(What::Established, 10, 10, [0, 10, 1, 5, 4, 0, 0, 0]).unwrap_err();
        assert!(one_is_new.contains("judged 1 new, 5 established from inside, 4"), "{one_is_new}");
        assert!(told(What::Established, 10, 9, [0, 10, 0, 5, 4, 1, 0, 0]).is_err(), "one is neither");
        assert!(told(What::New, 10, 9, [0, 10, 10, 0, 0, 0, 0, 0]).is_err(), "one did not arrive");
        assert!(told(What::New, 0, 0, [0; 8]).is_err(), "none came");
    }
}

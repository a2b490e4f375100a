//! Crosspoint compared with its peers: every figure that both have under the same load in the same run, how
//! many times as good Crosspoint is, and how significant that is.

use crate::compare::{Verdict, between};
use crate::result::{Better, Point, Run};

/// The figures by which a switch is judged: of each group, the first that both have. A switch that is cheaper
/// and slower is shown as both.
pub const JUDGED: &[&[&str]] = &[
    // The cost of a packet.
    &[
        "switching_cycles_per_packet",
        "machine_cycles_per_packet",
        "cycles_per_packet",
        "machine_cycles_per_packet_with_generator",
    ],
    // How many.
    &[
        "lossless_pps",
        "burst_frames",
        "rate_pps",
        "mpps",
        "packets_per_s",
        "rules_per_second",
        "learned_per_s",
    ],
    // How long.
    &["reset_ms", "latency_p99_us", "effect_us", "seconds"],
    &["latency_p50_us"],
    &["at_1_latency_p50_us"],
    &["at_1_latency_p99_us"],
    &["at_10_latency_p50_us"],
    &["at_10_latency_p99_us"],
    &["at_50_latency_p50_us"],
    &["at_50_latency_p99_us"],
    &["at_90_latency_p50_us"],
    &["at_90_latency_p99_us"],
    &["rules_back_ms"],
    &["barrier_max_ms"],
    // How much memory.
    &["bytes_per_rule"],
    &["bytes_per_cached_flow"],
    &["value"],
];

/// Two figures of one turn each that differ by less than this factor are called alike.
const ALIKE: f64 = 1.1;
/// An older run with this many turns is preferred to a newer one with fewer: it has a spread.
const ENOUGH: usize = 2;

/// How well a comparison is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The 95 % confidence interval of the ratio excludes 1.
    Surely,
    /// One turn.
    Once,
}

/// The result of a comparison for Crosspoint.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is better.
    Better(Shown),
    /// It is worse.
    Worse(Shown),
    /// The interval includes 1, or the values of one turn are close.
    Alike,
    /// No statement is possible, for this reason.
    None(String),
}

/// One comparison with a peer.
pub struct Beside<'a> {
    /// The run of both.
    pub run: &'a Run,
    /// Crosspoint.
    pub ours: &'a Point,
    /// The peer.
    pub peer: &'a Point,
    /// The figure's name.
    pub figure: &'static str,
    /// How many times as good Crosspoint is: above 1 if it is better.
    pub factor: f64,
    /// See there.
    pub outcome: Outcome,
}

impl Beside<'_> {
    /// Turns of the one that has fewer.
    pub fn turns(&self) -> usize {
        let of = |point: &Point| point.metrics.get(self.figure).map_or(0, |m| m.values.len());
        of(self.ours).min(of(self.peer))
    }
}

/// Whether it forwards without any lookup: the practical limit of a machine, not a switch.
pub fn is_floor(switch: &str) -> bool {
    switch.starts_with("testpmd") || switch.starts_with("loop-")
}

/// The points of the suite that stand for their load: of several runs the newest that has enough turns.
pub fn newest<'a>(runs: &'a [Run], suite: &str) -> Vec<(&'a Run, &'a Point)> {
    let turns = |point: &Point| point.metrics.values().map(|m| m.values.len()).max().unwrap_or(0).min(ENOUGH);
    let mut order: Vec<&Run> = runs.iter().collect();
    order.sort_by(|a, b| (&a.info.started, &a.name).cmp(&(&b.info.started, &b.name)));
    let mut found: Vec<(&Run, &Point)> = Vec::new();
    for run in order {
        for point in run.points.iter().filter(|p| p.suite == suite) {
            match found.iter_mut().find(|(_, there)| there.key() == point.key()) {
                Some(there) if turns(point) >= turns(there.1) => *there = (run, point),
                Some(_) => {}
                None => found.push((run, point)),
            }
        }
    }
    found
}

/// Every point of ours that represents its load, with each peer's under the same load in the same run.
pub fn compared<'a>(runs: &'a [Run], suite: &str) -> Vec<Beside<'a>> {
    let mut all = Vec::new();
    for (run, ours) in newest(runs, suite).into_iter().filter(|(_, p)| p.switch == "crosspoint") {
        let peers = run.points.iter().filter(|p| {
            (&p.suite, &p.labels) == (&ours.suite, &ours.labels)
                && !p.switch.starts_with("crosspoint")
                && p.switch != "none"
        });
        for peer in peers {
            let has = |name: &&&str| ours.metrics.contains_key(**name) && peer.metrics.contains_key(**name);
            for figure in JUDGED.iter().filter_map(|names| names.iter().find(has)) {
                // What was offered at a fixed rate arrives, where neither loses any.
                let is_offered = ours.labels.contains_key("offered_pps")
                    && *figure == "rate_pps"
                    && !loses(ours)
                    && !loses(peer);
                // A value without a unit is a count, which describes the load.
                let is_judged = ours.metrics[*figure].better != Better::Neither
                    && ours.labels.get("unit").is_none_or(|unit| !unit.is_empty());
                if is_judged && !is_offered {
                    all.push(beside(run, ours, peer, figure));
                }
            }
        }
    }
    all
}

/// Whether it loses more than one packet in a hundred.
fn loses(point: &Point) -> bool {
    point.metrics.get("loss").is_some_and(|loss| loss.median() > 0.01)
}

fn beside<'a>(run: &'a Run, ours: &'a Point, peer: &'a Point, figure: &'static str) -> Beside<'a> {
    let (of_ours, of_peer) = (&ours.metrics[figure], &peer.metrics[figure]);
    let ratio = of_ours.median() / of_peer.median();
    let factor = if of_ours.better == Better::Higher { ratio } else { 1.0 / ratio };
    let once = of_ours.values.len() < 2 || of_peer.values.len() < 2;
    let outcome = match between(peer, ours, figure) {
        Verdict::Better(..) => Outcome::Better(Shown::Surely),
        Verdict::Worse(..) => Outcome::Worse(Shown::Surely),
        Verdict::Same(..) => Outcome::Alike,
        Verdict::None(_) if once && crate::compare::refusal_of(ours, peer, figure).is_none() => {
            match factor {
                _ if of_ours.median() <= 0.0 || of_peer.median() <= 0.0 => {
                    Outcome::None("a value is not above 0".into())
                }
                _ if ours.labels.contains_key("offered_per_s") && figure.starts_with("machine") => {
                    Outcome::None("the kernel counts time by the tick, too coarse for one short turn".into())
                }
                f if f >= ALIKE => Outcome::Better(Shown::Once),
                f if f <= 1.0 / ALIKE => Outcome::Worse(Shown::Once),
                _ => Outcome::Alike,
            }
        }
        Verdict::None(why) => Outcome::None(why),
    };
    Beside { run, ours, peer, figure, factor, outcome }
}

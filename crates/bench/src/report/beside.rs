//! Crosspoint compared with its peers: every figure that both have under the same load in the same run, how
//! many times as good Crosspoint is, and how significant that is.

use crate::compare::{Verdict, between, refusal_of};
use crate::lab::switch::Forwards;
use crate::lab::switch::list::forwards;
use crate::lab::trial;
use crate::lab::trial::list::TRIALS;
use crate::result::judged::{Judged, Question};
use crate::result::rows;
use crate::result::{Better, CPU_TIME, GENERATOR_TIME, Metric, Point, Run};
use std::sync::LazyLock;

/// The figures by which a switch is judged, by what they say: of each group, the first that both have. A
/// switch that is cheaper and slower is shown as both.
pub fn judged() -> &'static [Vec<Judged>] {
    static ALL: LazyLock<Vec<Vec<Judged>>> = LazyLock::new(|| {
        let of_trials = TRIALS.iter().flat_map(|trial| trial.judged());
        let mut figures: Vec<Judged> = Vec::new();
        for figure in rows::JUDGED.iter().cloned().chain(of_trials).chain(trial::JUDGED.iter().cloned()) {
            if !figures.iter().any(|there| there.name == figure.name) {
                figures.push(figure);
            }
        }
        let (own, others): (Vec<_>, Vec<_>) = figures.into_iter().partition(|f| f.question == Question::Own);
        let group = |question| others.iter().filter(|f| f.question == question).cloned().collect();
        let groups = [Question::Cost, Question::Rate, Question::Time].map(group);
        groups.into_iter().chain(own.into_iter().map(|figure| vec![figure])).collect()
    });
    &ALL
}

/// The figures of a point for which one direction is better: first those by which switches are judged.
pub fn first_figures(point: &Point) -> Vec<(&str, &Metric)> {
    let judged = judged().iter().flatten().filter_map(|f| Some((&*f.name, point.metrics.get(&*f.name)?)));
    let others = point.metrics.iter().map(|(name, m)| (name.as_str(), m));
    let mut seen: Vec<(&str, &Metric)> = Vec::new();
    for (name, metric) in judged.chain(others) {
        if metric.better != Better::Neither && !seen.iter().any(|(n, _)| *n == name) {
            seen.push((name, metric));
        }
    }
    seen
}

/// Two figures of one turn each that differ by less than this factor are called alike.
pub const ALIKE: f64 = 1.1;
/// The share of a fixed load that may be lost if it counts as arrived.
const LOSS_MAX: f64 = 0.001;
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
    forwards(switch) == Forwards::Floor
}

/// The points of the suite that stand for their load.
pub fn newest<'a>(runs: &'a [Run], suite: &str) -> Vec<(&'a Run, &'a Point)> {
    let of_run =
        |run: &'a Run| run.points.iter().filter(|p| p.suite == suite).map(move |p| (run, p)).collect();
    standing(runs, of_run, |(_, point)| point, |(_, a), (_, b)| a.key() == b.key())
}

/// Of what several runs have of the same, the newest that has enough turns. One whose CPU time was charged by
/// an older rule stands for nothing that was measured anew.
fn standing<'a, T>(
    runs: &'a [Run],
    of_run: impl Fn(&'a Run) -> Vec<T>,
    point: impl Fn(&T) -> &'a Point,
    is_same: impl Fn(&T, &T) -> bool,
) -> Vec<T> {
    let turns = |point: &Point| point.metrics.values().map(|m| m.values.len()).max().unwrap_or(0).min(ENOUGH);
    let charge = |point: &Point| [CPU_TIME, GENERATOR_TIME].map(|name| point.conditions.get(name).cloned());
    let mut order: Vec<&Run> = runs.iter().collect();
    order.sort_by(|a, b| (&a.info.started, &a.name).cmp(&(&b.info.started, &b.name)));
    let mut found: Vec<T> = Vec::new();
    for new in order.into_iter().flat_map(of_run) {
        match found.iter_mut().find(|there| is_same(there, &new)) {
            Some(there) => {
                let (old, point) = (point(there), point(&new));
                if turns(point) >= turns(old) || charge(point) != charge(old) {
                    *there = new;
                }
            }
            None => found.push(new),
        }
    }
    found
}

/// Every point of ours, with each peer's under the same load in the same run. A newer run of ours alone takes
/// no comparison away.
pub fn compared<'a>(runs: &'a [Run], suite: &str) -> Vec<Beside<'a>> {
    let is_peer = |p: &&Point| !p.switch.starts_with("crosspoint") && p.switch != "none";
    let of_run = |run: &'a Run| {
        let ours = run.points.iter().filter(|p| p.suite == suite && p.switch == "crosspoint");
        let peers = |ours: &'a Point| {
            let is_like = |p: &&Point| (&p.suite, &p.labels) == (&ours.suite, &ours.labels);
            run.points.iter().filter(is_like).filter(is_peer).map(move |peer| (run, ours, peer))
        };
        ours.flat_map(peers).collect()
    };
    let is_same = |(_, a, of_a): &(&Run, &Point, &Point), (_, b, of_b): &(&Run, &Point, &Point)| {
        (a.key(), &of_a.switch) == (b.key(), &of_b.switch)
    };
    let mut all = Vec::new();
    for (run, ours, peer) in standing(runs, of_run, |(_, ours, _)| ours, is_same) {
        let has =
            |figure: &&Judged| [ours, peer].iter().all(|point| point.metrics.contains_key(&*figure.name));
        for figure in judged().iter().filter_map(|group| group.iter().find(has)) {
            let figure = &*figure.name;
            // What was offered at a fixed rate arrives, where neither loses any; changes at one are made.
            let is_offered = match figure {
                "rate_pps" => ours.labels.contains_key("offered_pps") && !loses(ours) && !loses(peer),
                "flow_mods_made_per_s" => ours.labels.contains_key("flow_mods_per_s"),
                _ => false,
            };
            // A value without a unit is a count, which describes the load.
            let is_judged = ours.metrics[figure].better != Better::Neither
                && ours.labels.get("unit").is_none_or(|unit| !unit.is_empty());
            if is_judged && !is_offered && !is_rate_turned_round(ours, peer, figure) {
                all.push(beside(run, ours, peer, figure));
            }
        }
    }
    all
}

/// Whether a figure is a cost that says what a rate with a verdict says already: as many packets as go were
/// sent, and the switch was busy all the time.
fn is_rate_turned_round(ours: &Point, peer: &Point, figure: &str) -> bool {
    let is_at_full_speed = match ours.labels.get("trial") {
        Some(trial) => trial == "max-rate",
        None => ours.suite == "pvp" && !ours.labels.contains_key("loss_allowed"),
    };
    let has_verdict = |rate: &&str| {
        let has = |point: &Point| point.metrics.contains_key(*rate);
        has(ours) && has(peer) && refusal_of(ours, peer, rate).is_none()
    };
    is_at_full_speed && figure.contains("cycles") && ["rate_pps", "mpps"].iter().any(has_verdict)
}

/// Whether it loses more than one packet in a thousand. Of a fixed load the rate then says how many: the loss
/// itself is often nothing in one of two switches, of which there is no ratio.
fn loses(point: &Point) -> bool {
    point.metrics.get("loss").is_some_and(|loss| loss.median() > LOSS_MAX)
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
        Verdict::None(_) if once && refusal_of(ours, peer, figure).is_none() => match factor {
            _ if of_ours.median() <= 0.0 || of_peer.median() <= 0.0 => {
                Outcome::None("a value is not above 0".into())
            }
            _ if ours.labels.contains_key("offered_per_s") && figure.starts_with("machine") => {
                Outcome::None("the kernel counts time by the tick, too coarse for one short turn".into())
            }
            f if f >= ALIKE => Outcome::Better(Shown::Once),
            f if f <= 1.0 / ALIKE => Outcome::Worse(Shown::Once),
            _ => Outcome::Alike,
        },
        Verdict::None(why) => Outcome::None(why),
    };
    Beside { run, ours, peer, figure, factor, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn every_trial_s_own_figures_are_judged_and_no_two_have_one_name() {
        let names: Vec<&str> = judged().iter().flatten().map(|figure| &*figure.name).collect();
        let distinct: std::collections::BTreeSet<&&str> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        let of_trials: Vec<Judged> = TRIALS.iter().flat_map(|trial| trial.judged()).collect();
        assert!(of_trials.iter().all(|figure| names.contains(&&*figure.name)));
        assert!(names.contains(&"at_90_latency_p99_us") && names.contains(&"bytes_per_rule"), "{names:?}");
    }

    #[test]
    fn a_run_with_a_spread_stands_before_a_newer_one_without_unless_its_cpu_time_was_charged_otherwise() {
        let run = |started: &str, turns: usize, charge: Option<&str>| {
            let mut point = Point { suite: "latency".into(), ..Point::default() };
            point.metrics.insert("rate_pps".into(), Metric::new("", Better::Higher, vec![1.0; turns]));
            point.conditions.extend(charge.map(|charge| (CPU_TIME.into(), charge.into())));
            let mut run = Run { points: vec![point], ..Run::default() };
            run.info.started = started.into();
            run
        };
        let stands = |runs: [Run; 2]| newest(&runs, "latency")[0].0.info.started.clone();
        assert_eq!(stands([run("1", 2, None), run("2", 1, None)]), "1");
        assert_eq!(stands([run("1", 2, None), run("2", 1, Some("while sending"))]), "2");
        assert_eq!(stands([run("2", 1, Some("while sending")), run("1", 2, None)]), "2");
    }

    #[test]
    fn a_newer_run_of_ours_alone_hides_no_comparison() {
        let point = |switch: &str, cost: f64| {
            let mut point = Point { suite: "p2p".into(), switch: switch.into(), ..Point::default() };
            let metric = Metric::new("cycles", Better::Lower, vec![cost]);
            point.metrics.insert("cycles_per_packet".into(), metric);
            point
        };
        let run = |started: &str, points| {
            let mut run = Run { points, ..Run::default() };
            run.info.started = started.into();
            run
        };
        let older = run("1", vec![point("crosspoint", 9.0), point("bridge", 1.0), point("ovs", 3.0)]);
        let newer = run("2", vec![point("crosspoint", 2.0), point("ovs", 4.0)]);
        let runs = [older, newer, run("3", vec![point("crosspoint", 1.0)])];
        let all = compared(&runs, "p2p");
        let pairs: Vec<(&str, f64)> = all.iter().map(|b| (&*b.peer.switch, b.factor)).collect();
        assert_eq!(pairs, [("bridge", 1.0 / 9.0), ("ovs", 2.0)]);
    }

    #[test]
    fn the_first_figures_of_a_point_are_those_by_which_it_is_judged() {
        let mut point = Point::default();
        let figures = [("barrier_us", Better::Lower), ("cpu", Better::Neither), ("effect_us", Better::Lower)];
        point
            .metrics
            .extend(figures.map(|(name, better)| (name.into(), Metric::new("us", better, vec![1.0]))));
        let first: Vec<&str> = first_figures(&point).iter().map(|(name, _)| *name).collect();
        assert_eq!(first, ["effect_us", "barrier_us"]);
    }

    #[test]
    fn a_fixed_load_is_judged_where_some_of_it_is_lost_and_changes_where_their_rate_is_free() {
        let point = |switch: &str, loss: f64, fixed: &[&str]| {
            let mut point = Point { suite: "load-curve".into(), switch: switch.into(), ..Point::default() };
            point.labels.extend(fixed.iter().map(|label| (label.to_string(), "10".into())));
            let of = |value| Metric::new("", Better::Higher, vec![value]);
            point.metrics.insert("rate_pps".into(), of(1.0 - loss));
            point.metrics.insert("flow_mods_made_per_s".into(), of(10.0));
            point.metrics.insert("loss".into(), Metric::new("ratio", Better::Lower, vec![loss]));
            point
        };
        let figures = |loss: f64, fixed: &[&str]| -> Vec<&str> {
            let points = vec![point("crosspoint", 0.0, fixed), point("ovs-dpdk", loss, fixed)];
            let runs = [Run { points, ..Run::default() }];
            compared(&runs, "load-curve").iter().map(|beside| beside.figure).collect()
        };
        assert_eq!(figures(0.0005, &["offered_pps", "flow_mods_per_s"]), [""; 0]);
        assert_eq!(figures(0.005, &["offered_pps", "flow_mods_per_s"]), ["rate_pps"]);
        assert_eq!(figures(0.0, &[]), ["rate_pps", "flow_mods_made_per_s"]);
    }

    #[test]
    fn of_figures_that_say_the_same_one_is_compared_and_each_latency_for_itself() {
        let names = [
            "lossless_pps",
            "rate_pps",
            "cycles_per_packet",
            "machine_cycles_per_packet",
            "at_1_latency_p50_us",
            "at_1_latency_p99_us",
        ];
        let point = |switch: &str| {
            let mut point = Point { suite: "latency".into(), switch: switch.into(), ..Point::default() };
            let metric = |name: &str| (name.to_string(), Metric::new("", Better::Lower, vec![1.0]));
            point.metrics.extend(names.iter().map(|name| metric(name)));
            point
        };
        let runs = [Run { points: vec![point("crosspoint"), point("ovs-dpdk")], ..Run::default() }];
        let figures: Vec<&str> = compared(&runs, "latency").iter().map(|beside| beside.figure).collect();
        let judged =
            ["machine_cycles_per_packet", "lossless_pps", "at_1_latency_p50_us", "at_1_latency_p99_us"];
        assert_eq!(figures, judged);
    }
}

//! `crosspoint bench goals DIR`: each goal of the project beside its figure.
//!
//! A goal holds where the bound of its figure's 95 % confidence interval does, not the median alone.

use crate::compare::refusal;
use crate::result::{Point, Run};
use crate::stats::{bounds, median};
use std::collections::BTreeMap;

/// A goal, as data.
pub struct Goal {
    suite: &'static str,
    /// The points that it is about: these labels.
    labels: &'static [(&'static str, &'static str)],
    figure: Figure,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Figure {
    /// A figure of Crosspoint's.
    Own(&'static str),
    /// A figure of Crosspoint's in ratio to a peer's.
    Ratio(&'static str, &'static str),
    /// The peer's in ratio to Crosspoint's: how many times cheaper.
    Times(&'static str, &'static str),
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Every turn is at most this.
    Never(f64),
    /// The median is at most this.
    Median(f64),
}

use Bound::{AtLeast, AtMost, Median, Never};
use Figure::{Own, Ratio, Times};

const fn goal(
    suite: &'static str,
    labels: &'static [(&'static str, &'static str)],
    figure: Figure,
    bound: Bound,
) -> Goal {
    Goal { suite, labels, figure, bound }
}

const SWITCHING: Figure = Ratio("switching_cycles_per_packet", "ovs-dpdk");
const BUSY: Figure = Times("cycles_per_packet", "ovs-dpdk");
const RATE: Figure = Ratio("mpps", "ovs-dpdk");

/// All of them. Measurements hold the same ones under `--assert`.
pub const GOALS: &[Goal] = &[
    goal("p2p", &[("rules", "in_port")], SWITCHING, AtMost(0.3)),
    goal("p2p", &[("rules", "normal")], SWITCHING, AtMost(0.4)),
    goal("p2p", &[("rules", "exact"), ("flows", "1")], SWITCHING, AtMost(0.45)),
    goal("p2p", &[("rules", "exact"), ("flows", "10")], SWITCHING, AtMost(0.45)),
    goal("p2p", &[("rules", "exact"), ("flows", "1000")], SWITCHING, AtMost(0.25)),
    goal("p2p", &[("rules", "exact"), ("flows", "10000")], SWITCHING, AtMost(0.12)),
    goal("p2p", &[("rules", "exact"), ("flows", "100000")], SWITCHING, AtMost(0.02)),
    goal("p2p", &[("rules", "exact"), ("flows", "250000")], SWITCHING, AtMost(0.02)),
    goal("pvp", &[("path", "loopback"), ("size", "64"), ("flows", "10")], BUSY, AtLeast(1.6)),
    goal("pvp", &[("path", "loopback"), ("size", "64"), ("flows", "1000")], BUSY, AtLeast(2.5)),
    goal("pvp", &[("path", "loopback"), ("size", "64"), ("flows", "10000")], BUSY, AtLeast(5.0)),
    goal("pvp", &[("path", "loopback"), ("size", "1518"), ("flows", "10")], BUSY, AtLeast(1.3)),
    goal("pvp", &[("path", "loopback"), ("size", "1518"), ("flows", "1000")], BUSY, AtLeast(1.5)),
    goal("pvp", &[("path", "loopback"), ("size", "1518"), ("flows", "10000")], BUSY, AtLeast(2.5)),
    goal("pvp", &[("path", "guest-to-guest"), ("size", "64")], BUSY, AtLeast(1.5)),
    goal("pvp", &[("loss_allowed", "0.0")], RATE, AtLeast(1.0)),
    goal("misses", &[("memory", "warm")], Own("packets_per_cpu_second"), AtLeast(1e6)),
    goal("ports-and-batches", &[], Own("ratio_to_two"), AtMost(1.05)),
    goal("coupling", &[("flow_mods_per_s", "1000")], Own("throughput_ratio"), AtLeast(0.8)),
    goal("expiry", &[], Own("throughput_ratio"), AtLeast(0.95)),
    goal("flow-mod", &[], Own("throughput_ratio"), AtLeast(0.5)),
    goal("flow-mod", &[], Own("longest_pass_ms"), Never(1.0)),
    goal("fairness", &[("what", "fairness")], Own("kept_ratio"), AtLeast(0.5)),
    goal("fairness", &[("what", "stopped_guest")], Own("kept_ratio"), AtLeast(0.95)),
    goal("memory", &[("rules", "1000000")], Own("rss_of_switch_bytes"), Never(1.5e9)),
    goal("counts", &[("flows", "100000")], Own("wait_ms"), Never(200.0)),
    goal("counts", &[("flows", "1000000")], Own("wait_ms"), Never(1_000.0)),
    goal("load-rules", &[], Ratio("seconds", "ovs-vswitchd"), AtMost(0.125)),
    goal("load-rules", &[], Ratio("rss_after_bytes", "ovs-vswitchd"), AtMost(1.0)),
    goal("cores", &[], Own("scaling"), AtLeast(1.9)),
    goal("wake", &[("what", "wake")], Own("added_us"), Median(15.0)),
    goal("wake", &[("what", "guest")], Own("added_us"), Median(30.0)),
    goal("wake", &[("what", "idle")], Own("cpu_share"), Median(0.01)),
    goal("ports-config", &[("kind", "dummy")], Own("all_ms"), Never(5_000.0)),
    goal("ports-config", &[("kind", "internal")], Own("all_ms"), Never(5_000.0)),
    goal("ports-config", &[("kind", "dummy")], Own("one_ms"), Never(20.0)),
    goal("ports-config", &[("kind", "internal")], Own("one_ms"), Never(20.0)),
    goal("ovsdb", &[("what", "pipelined transactions")], Own("value"), AtLeast(20_000.0)),
    goal("ovsdb", &[("what", "pipelined transactions")], Ratio("value", "ovsdb-server"), AtLeast(2.0)),
];

/// A goal beside a figure.
pub struct Held {
    /// Suite and load.
    pub what: String,
    /// The figure's name, and what it is in ratio to.
    pub figure: String,
    /// Median.
    pub value: f64,
    /// The bound that is judged.
    pub bound: f64,
    /// `at least 1.5`.
    pub goal: String,
    /// `held`, `missed`, or why there is no verdict.
    pub verdict: String,
}

/// Each goal at each point of a run that it is about.
pub fn of_run(run: &Run) -> Vec<Held> {
    GOALS.iter().flat_map(|goal| run.points.iter().filter_map(|point| held(goal, point, run))).collect()
}

fn held(goal: &Goal, point: &Point, run: &Run) -> Option<Held> {
    let is_about = |(name, value): &(&str, &str)| {
        point
            .labels
            .get(*name)
            .is_some_and(|v| v == value || v.parse::<f64>().ok().is_some_and(|v| value.parse() == Ok(v)))
    };
    if point.suite != goal.suite || point.switch != "crosspoint" || !goal.labels.iter().all(is_about) {
        return None;
    }
    // Rates at a loss that is allowed are no test at wire speed.
    let is_search = point.labels.contains_key("loss_allowed");
    if is_search != goal.labels.iter().any(|(name, _)| *name == "loss_allowed") {
        return None;
    }
    let peer = |name: &str| run.points.iter().find(|p| p.key() == (goal.suite, name, &point.labels));
    let (figure, values, refused) = match goal.figure {
        Own(metric) => (metric.to_string(), point.metrics.get(metric)?.values.clone(), None),
        Ratio(metric, name) | Times(metric, name) => {
            let peer = peer(name)?;
            let (ours, theirs) = (point.metrics.get(metric)?, peer.metrics.get(metric)?);
            let turned = matches!(goal.figure, Times(..));
            let (over, under) = if turned { (theirs, ours) } else { (ours, theirs) };
            let values = ratios(&over.values, &under.values);
            let text =
                if turned { format!("{name}'s {metric} / ours") } else { format!("{metric} / {name}'s") };
            // The cost per packet is the switch's also where the guest is the limit.
            let is_cost = metric.contains("cycles");
            (text, values, refusal(point, peer).filter(|why| !(is_cost && why.starts_with("the limit"))))
        }
    };
    let (bound, text, is_held) = match goal.bound {
        AtLeast(goal) => {
            let low = bounds(&values).0;
            (low, format!("at least {goal}"), low >= goal)
        }
        AtMost(goal) => {
            let high = bounds(&values).1;
            (high, format!("at most {goal}"), high <= goal)
        }
        Never(goal) => {
            let most = values.iter().copied().fold(f64::NAN, f64::max);
            (most, format!("never above {goal}"), most <= goal)
        }
        Median(goal) => (median(&values), format!("median at most {goal}"), median(&values) <= goal),
    };
    let verdict = match refused {
        Some(why) => format!("no verdict: {why}"),
        None if values.len() < 2 && !matches!(goal.bound, Never(_) | Median(_)) => {
            format!("{}, by one turn", if is_held { "held" } else { "missed" })
        }
        None => if is_held { "held" } else { "missed" }.into(),
    };
    let value = median(&values);
    Some(Held {
        what: format!("{} {}", point.suite, point.load()),
        figure,
        value,
        bound,
        goal: text,
        verdict,
    })
}

/// Turn by turn where both have as many, since they alternated; of the medians where they do not.
fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    if over.len() == under.len() {
        return over.iter().zip(under).map(|(o, u)| o / u).collect();
    }
    vec![median(over) / median(under)]
}

/// How many goals of each verdict.
pub fn summary(held: &[Held]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for one in held {
        let verdict =
            ["held", "missed"].into_iter().find(|v| one.verdict.starts_with(v)).unwrap_or("no verdict");
        *counts.entry(verdict).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::list::find;
    use std::path::Path;

    #[test]
    fn every_goal_is_of_a_suite() {
        for goal in GOALS {
            assert!(find(goal.suite).is_some(), "{}", goal.suite);
        }
    }

    #[test]
    fn goals_are_found_in_committed_runs() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
        let run = crate::result::store::read(&runs.join("2026-11-22-rest")).unwrap();
        let held = of_run(&run);
        let one = held.iter().find(|h| h.what == "p2p flows=1000 order=shuffled rules=exact").unwrap();
        // bench/README.md: 0.335 beside a goal of 0.25.
        assert!(
            (one.value - 0.335).abs() < 0.005 && one.verdict == "missed",
            "{} {}",
            one.value,
            one.verdict
        );
        assert!(held.iter().any(|h| h.verdict == "held"));
        assert!(held.iter().any(|h| h.what.starts_with("pvp") && h.what.contains("loss_allowed")));
    }
}

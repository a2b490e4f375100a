//! `crosspoint bench goals DIR`: each goal of the project with its figure.
//!
//! A goal is met if the bound of its figure's 95 % confidence interval meets it, not only the median.

use crate::compare::refusal_of;
use crate::result::{Point, Run};
use crate::stats::{lower_bound, median, upper_bound_by_inverses};
use std::collections::BTreeMap;

/// A goal, as data.
pub struct Goal {
    suite: &'static str,
    /// The points that it is about: these labels. `|` stands between values of which a point has one.
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
    /// A figure of Crosspoint's in ratio to its own where this label has another value.
    ToOther(&'static str, &'static str, &'static str),
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
use Figure::{Own, Ratio, Times, ToOther};

// Bounds that measurements check by name; those of figures at certain points they look up ([`bound`]).

/// The cost with the exact-match tier, in ratio to the cost without it.
pub const EXACT_TIER_MOST: f64 = 1.1;
/// The cost with many idle ports, in ratio to the cost with two.
pub const IDLE_PORTS_MOST: f64 = 1.05;
/// Throughput while rules of other flows change, in ratio to steady state.
pub const CHURN_LEAST: f64 = 0.8;
/// Throughput while all rules are replaced, and the worker's longest pass in ms of CPU time.
pub const REPLACE_LEAST: f64 = 0.5;
/// See there.
pub const PASS_MOST_MS: f64 = 1.0;
/// Throughput while cached flows expire.
pub const EXPIRY_LEAST: f64 = 0.95;
/// What an established flow keeps beside a port that opens flows.
pub const FAIRNESS_LEAST: f64 = 0.5;
/// What another port keeps when a guest stops reading.
pub const STOPPED_GUEST_LEAST: f64 = 0.95;
/// The cost of flows that collide, in ratio to random ones.
pub const COLLIDE_MOST: f64 = 1.1;
/// Resident bytes of the switch with a million rules.
pub const MEMORY_MOST_BYTES: f64 = 1.5e9;
/// How late counters are with 100,000 flows, in ms.
pub const COUNTS_MOST_MS: f64 = 200.0;
/// The same with a million.
pub const COUNTS_OF_MANY_MOST_MS: f64 = 1_000.0;
/// What one more worker adds, in ratio to the first.
pub const SCALING_LEAST: f64 = 0.95;
/// What waking adds to a bare wake.
pub const WAKE_MOST_US: f64 = 15.0;
/// What a guest's ping adds to two of them.
pub const GUEST_WAKE_MOST_US: f64 = 30.0;
/// The share of a processor that an idle switch uses.
pub const IDLE_MOST: f64 = 0.01;
/// A thousand more ports, in ms.
pub const PORTS_MOST_MS: f64 = 5_000.0;
/// One more port, in ms.
pub const ONE_PORT_MOST_MS: f64 = 20.0;
/// Ports of type `afxdp`, in ratio to the kernel's part.
pub const ATTACH_MOST: f64 = 1.1;
/// Transactions of the database per second.
pub const TRANSACTIONS_LEAST: f64 = 20_000.0;
/// The same in ratio to the stock server's.
pub const TRANSACTIONS_TIMES_LEAST: f64 = 2.0;
/// Other figures of the database in ratio to the stock server's.
pub const DATABASE_MOST: f64 = 1.0;
/// The longest transaction during compaction, in ms.
pub const PAUSE_MOST_MS: f64 = 50.0;

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

const COST: Figure = ToOther("cycles_per_packet", "flows", "10");

const COLLIDING: &[(&str, &str)] = &[("colliding_under", "crc32|crc32c")];
const COMPACTION: &[(&str, &str)] = &[("what", "longest transaction during compaction")];
const DATABASE: &str = "ovsdb-server";

/// All goals. Measurements look theirs up here ([`bound`]).
pub const GOALS: &[Goal] = &[
    goal("p2p", &[("rules", "in_port")], SWITCHING, AtMost(0.2)),
    goal("p2p", &[("rules", "normal")], SWITCHING, AtMost(0.2)),
    goal("p2p", &[("rules", "exact"), ("flows", "1")], SWITCHING, AtMost(0.2)),
    goal("p2p", &[("rules", "exact"), ("flows", "10")], SWITCHING, AtMost(0.33)),
    goal("p2p", &[("rules", "exact"), ("flows", "1000")], SWITCHING, AtMost(0.18)),
    goal("p2p", &[("rules", "exact"), ("flows", "10000")], SWITCHING, AtMost(0.09)),
    goal("p2p", &[("rules", "exact"), ("flows", "100000")], SWITCHING, AtMost(0.005)),
    goal("p2p", &[("rules", "exact"), ("flows", "250000")], SWITCHING, AtMost(0.005)),
    goal("p2p", &[("rules", "exact"), ("flows", "10000")], COST, AtMost(1.1)),
    goal("p2p", &[("rules", "exact"), ("flows", "100000")], COST, AtMost(1.2)),
    goal("p2p", &[("rules", "exact"), ("flows", "1000000")], COST, AtMost(1.5)),
    goal("pvp", &[("path", "loopback"), ("size", "64"), ("flows", "10")], BUSY, AtLeast(2.1)),
    goal("pvp", &[("path", "loopback"), ("size", "64"), ("flows", "1000")], BUSY, AtLeast(3.2)),
    goal("pvp", &[("path", "loopback"), ("size", "64"), ("flows", "10000")], BUSY, AtLeast(6.0)),
    goal("pvp", &[("path", "loopback"), ("size", "1518"), ("flows", "10")], BUSY, AtLeast(1.7)),
    goal("pvp", &[("path", "loopback"), ("size", "1518"), ("flows", "1000")], BUSY, AtLeast(2.9)),
    goal("pvp", &[("path", "loopback"), ("size", "1518"), ("flows", "10000")], BUSY, AtLeast(4.2)),
    // 90 % of the packets per CPU-second.
    goal("pvp", &[("path", "loopback"), ("flows", "10000")], COST, AtMost(1.11)),
    goal("pvp", &[("path", "guest-to-guest"), ("size", "64"), ("flows", "10")], BUSY, AtLeast(2.0)),
    goal("pvp", &[("loss_allowed", "0.0")], RATE, AtLeast(1.1)),
    goal("misses", &[("memory", "warm"), ("rules", "10")], Own("packets_per_cpu_second"), AtLeast(1.5e6)),
    goal("misses", &[("memory", "warm"), ("rules", "100000")], Own("packets_per_cpu_second"), AtLeast(1.3e6)),
    goal("masks", &[("attack_pps", "1000")], Own("kept_ratio"), AtLeast(0.9)),
    goal("conntrack", &[("what", "established"), ("connections", "10000")], BUSY, AtLeast(3.0)),
    goal("conntrack", &[("what", "established"), ("connections", "1000000")], BUSY, AtLeast(10.0)),
    goal("conntrack", &[("what", "new")], BUSY, AtLeast(3.0)),
    goal("conntrack", &[("what", "new")], Own("packets_per_cpu_second"), AtLeast(700_000.0)),
    goal("conntrack", &[("what", "established")], Own("ratio_to_stateless"), AtLeast(0.6)),
    goal("conntrack", &[("what", "flood"), ("flood_pps", "1000000")], Own("kept_ratio"), AtLeast(0.9)),
    goal("conntrack", &[("what", "flood")], Own("opened_ratio"), AtLeast(0.99)),
    goal("ports-and-batches", &[], Own("ratio_to_two"), AtMost(IDLE_PORTS_MOST)),
    goal("coupling", &[("flow_mods_per_s", "1000")], Own("throughput_ratio"), AtLeast(CHURN_LEAST)),
    goal("expiry", &[], Own("throughput_ratio"), AtLeast(EXPIRY_LEAST)),
    goal("flow-mod", &[], Own("throughput_ratio"), AtLeast(REPLACE_LEAST)),
    goal(
        "flow-mod",
        &[("what", "pipelined"), ("rules", "100000")],
        Own("flow_mods_made_per_s"),
        AtLeast(500_000.0),
    ),
    goal("flow-mod", &[], Own("longest_pass_ms"), Never(PASS_MOST_MS)),
    goal("fairness", &[("what", "fairness")], Own("kept_ratio"), AtLeast(FAIRNESS_LEAST)),
    goal("fairness", &[("what", "stopped_guest")], Own("kept_ratio"), AtLeast(STOPPED_GUEST_LEAST)),
    goal("memory", &[("rules", "1000000")], Own("rss_of_switch_bytes"), Never(MEMORY_MOST_BYTES)),
    // With few flows, a switch's fixed memory outweighs the cost of each flow.
    goal("memory", &[("flows", "1000000")], Own("bytes_per_cached_flow"), Never(80.0)),
    goal("counts", &[("flows", "100000")], Own("wait_ms"), Never(COUNTS_MOST_MS)),
    goal("counts", &[("flows", "1000000")], Own("wait_ms"), Never(COUNTS_OF_MANY_MOST_MS)),
    goal(
        "load-rules",
        &[("what", "add"), ("rules", "1000000")],
        Ratio("seconds", "ovs-vswitchd"),
        AtMost(0.4),
    ),
    goal(
        "load-rules",
        &[("what", "bundle|diff|replace"), ("rules", "1000000")],
        Ratio("seconds", "ovs-vswitchd"),
        AtMost(0.125),
    ),
    // Memory that deleted rules had, both switches free later.
    goal(
        "load-rules",
        &[("what", "add|bundle|diff|replace|dump"), ("rules", "1000000")],
        Ratio("rss_after_bytes", "ovs-vswitchd"),
        AtMost(1.0),
    ),
    goal(
        "load-rules",
        &[("what", "bundle|dump|delete"), ("rules", "1000000")],
        Own("echo_p99_ms"),
        Never(10.0),
    ),
    goal("cores", &[("workers", "2")], Own("scaling"), AtLeast(2.0 * SCALING_LEAST)),
    goal("wake", &[("what", "wake")], Own("added_us"), Median(WAKE_MOST_US)),
    goal("wake", &[("what", "guest")], Own("added_us"), Median(GUEST_WAKE_MOST_US)),
    goal("wake", &[("what", "idle")], Own("cpu_share"), Median(IDLE_MOST)),
    goal("ports-config", &[("kind", "dummy")], Own("all_ms"), Never(PORTS_MOST_MS)),
    goal("ports-config", &[("kind", "internal")], Own("all_ms"), Never(PORTS_MOST_MS)),
    goal("ports-config", &[("kind", "dummy")], Own("one_ms"), Never(ONE_PORT_MOST_MS)),
    goal("ports-config", &[("kind", "internal")], Own("one_ms"), Never(ONE_PORT_MOST_MS)),
    goal("ports-config", &[("kind", "afxdp")], Own("ratio_to_kernel"), AtMost(ATTACH_MOST)),
    goal(
        "masks",
        &[("exact_tier", "on")],
        ToOther("cycles_per_packet", "exact_tier", "off"),
        AtMost(EXACT_TIER_MOST),
    ),
    goal("collide", COLLIDING, ToOther("cycles_per_packet", "colliding_under", "none"), AtMost(COLLIDE_MOST)),
    goal("collide", COLLIDING, ToOther("new_flow_cycles", "colliding_under", "none"), AtMost(COLLIDE_MOST)),
    goal("ovsdb", &[("what", "pipelined transactions")], Own("value"), AtLeast(TRANSACTIONS_LEAST)),
    goal("ovsdb", &[("unit", "/s")], Ratio("value", DATABASE), AtLeast(TRANSACTIONS_TIMES_LEAST)),
    goal("ovsdb", &[("unit", "ms, median")], Ratio("value", DATABASE), AtMost(DATABASE_MOST)),
    goal("ovsdb", &[("what", "start|memory after start")], Ratio("value", DATABASE), AtMost(DATABASE_MOST)),
    goal("ovsdb", COMPACTION, Ratio("value", DATABASE), AtMost(DATABASE_MOST)),
    goal("ovsdb", COMPACTION, Own("value"), Never(PAUSE_MOST_MS)),
    goal("mac-learning", &[("by", "learn")], Own("learned_per_s"), AtLeast(100_000.0)),
];

/// A goal with a figure.
pub struct Held {
    /// Suite and load.
    pub what: String,
    /// The figure's name, and the denominator of a ratio.
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

/// The bound for figures with this name at the point with these labels, if a goal covers it.
pub fn bound(suite: &str, labels: &[(&str, &str)], figure: &str) -> Option<f64> {
    let is_about = |goal: &&Goal| {
        let has = |(name, value): &(&str, &str)| labels.iter().any(|(n, v)| n == name && is_one_of(v, value));
        goal.suite == suite && goal.figure.name() == figure && goal.labels.iter().all(has)
    };
    GOALS.iter().find(is_about).map(|goal| match goal.bound {
        AtLeast(goal) | AtMost(goal) | Never(goal) | Median(goal) => goal,
    })
}

/// Whether a label has a value of a goal's.
fn is_one_of(label: &str, values: &str) -> bool {
    values.split('|').any(|value| is_same(label, value))
}

/// Texts, or numbers however they are written.
fn is_same(a: &str, b: &str) -> bool {
    a == b || a.parse::<f64>().is_ok_and(|a| b.parse() == Ok(a))
}

impl Figure {
    /// The name by which measurements look up its goal. A ratio to a peer has the name of the figure itself.
    fn name(self) -> String {
        match self {
            Own(metric) | Ratio(metric, _) | Times(metric, _) => metric.into(),
            ToOther(metric, label, value) => format!("{metric} to {label}={value}"),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            AtLeast(goal) => write!(f, "at least {goal}"),
            AtMost(goal) => write!(f, "at most {goal}"),
            Never(goal) => write!(f, "never above {goal}"),
            Median(goal) => write!(f, "median at most {goal}"),
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}", self.suite)?;
        self.labels.iter().try_for_each(|(label, value)| write!(f, " {label}={value}"))?;
        let of = match self.figure {
            Ratio(metric, peer) => format!("{metric} / {peer}'s"),
            Times(metric, peer) => format!("{peer}'s {metric} / ours"),
            figure => figure.name(),
        };
        write!(f, ": {of} {}", self.bound)
    }
}

/// Each goal at each point of a run that it applies to.
pub fn of_run(run: &Run) -> Vec<Held> {
    GOALS.iter().flat_map(|goal| of_goal(goal, run)).collect()
}

fn of_goal<'a>(goal: &'a Goal, run: &'a Run) -> impl Iterator<Item = Held> + 'a {
    run.points.iter().filter_map(move |point| held(goal, point, run))
}

/// The goals of which a run has no figure: the suite was not measured, or not beside the peer.
pub fn not_measured(run: &Run) -> impl Iterator<Item = &'static Goal> {
    GOALS.iter().filter(|goal| of_goal(goal, run).next().is_none())
}

fn held(goal: &Goal, point: &Point, run: &Run) -> Option<Held> {
    let is_about =
        |(name, value): &(&str, &str)| point.labels.get(*name).is_some_and(|v| is_one_of(v, value));
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
        Own(metric) => {
            (metric.to_string(), point.metrics.get(metric)?.values.clone(), limited(&[point], metric))
        }
        ToOther(metric, label, value) => {
            let mut labels = point.labels.clone();
            labels.insert(label.into(), value.into());
            let few = run.points.iter().find(|p| p.key() == (goal.suite, "crosspoint", &labels))?;
            let (of_many, of_few) = (point.metrics.get(metric)?, few.metrics.get(metric)?);
            let refused = limited(&[point, few], metric);
            (goal.figure.name(), ratios(&of_many.values, &of_few.values), refused)
        }
        Ratio(metric, name) | Times(metric, name) => {
            let peer = peer(name)?;
            let (ours, theirs) = (point.metrics.get(metric)?, peer.metrics.get(metric)?);
            let turned = matches!(goal.figure, Times(..));
            let (over, under) = if turned { (theirs, ours) } else { (ours, theirs) };
            let values = ratios(&over.values, &under.values);
            let text =
                if turned { format!("{name}'s {metric} / ours") } else { format!("{metric} / {name}'s") };
            (text, values, refusal_of(point, peer, metric))
        }
    };
    let (bound, is_held) = match goal.bound {
        AtLeast(goal) => {
            let low = lower_bound(&values);
            // A ratio to a rate of nothing is none.
            (low, low.is_finite() && low >= goal)
        }
        AtMost(goal) => {
            // As `--assert` judges.
            let high = upper_bound_by_inverses(&values.iter().map(|v| 1.0 / v).collect::<Vec<f64>>());
            (high, high <= goal)
        }
        Never(goal) => {
            let most = values.iter().copied().fold(f64::NAN, f64::max);
            (most, most <= goal)
        }
        Median(goal) => (median(&values), median(&values) <= goal),
    };
    let verdict = match refused {
        Some(why) => format!("no verdict: {why}"),
        None if values.len() < 2 && !matches!(goal.bound, Never(_) | Median(_)) => {
            format!("{} by one turn", if is_held { "held" } else { "missed" })
        }
        None => if is_held { "held" } else { "missed" }.into(),
    };
    let value = median(&values);
    Some(Held {
        what: format!("{} {}", point.suite, point.load()),
        figure,
        value,
        bound,
        goal: goal.bound.to_string(),
        verdict,
    })
}

/// Why a figure says nothing of the switch. What a packet costs is taken from the switch's own busy cycles,
/// whatever limited the rate.
fn limited(points: &[&Point], metric: &str) -> Option<String> {
    if metric.contains("cycles") {
        return None;
    }
    points.iter().find_map(|point| Some(format!("the limit was {}", point.limit_of(metric)?)))
}

/// Turn by turn if both have the same number, since they alternated; otherwise of the medians.
fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    if over.len() == under.len() {
        return over.iter().zip(under).map(|(o, u)| o / u).collect();
    }
    vec![median(over) / median(under)]
}

/// How many goals of each verdict.
pub fn summary(held: &[Held]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for one in held {
        *counts.entry(one.verdict.split(':').next().unwrap_or_default()).or_default() += 1;
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
    fn goals_of_connection_tracking_are_judged_turn_by_turn() {
        let text = r#"{"command": "crosspoint bench conntrack",
            "batch": {"crosspoint": 32, "ovs-dpdk": 32}, "rows": [
            {"switch": "crosspoint", "what": "established", "rules": "snat", "connections": 10000,
             "cycles_per_packet": 200, "packets_per_cpu_second": 10, "ratio_to_stateless": 0.5,
             "raw": [10, 10], "raw_cycles": [199, 201], "raw_stateless": [0.49, 0.51]},
            {"switch": "ovs-dpdk", "what": "established", "rules": "snat", "connections": 10000,
             "cycles_per_packet": 800, "packets_per_cpu_second": 2.5, "raw": [2.5, 2.5], "raw_cycles": [796, 804]},
            {"switch": "crosspoint", "what": "new", "rules": "snat", "connections": 1000, "cycles_per_packet": 1000,
             "packets_per_cpu_second": 2000000, "raw": [2000000, 2000000], "raw_cycles": [1000, 1000]}]}"#;
        let points = crate::result::rows::RowFile::parse(text).unwrap().points().unwrap();
        let held = of_run(&Run { points, ..Run::default() });
        let verdicts: Vec<(&str, &str)> = held.iter().map(|h| (&*h.figure, &*h.verdict)).collect();
        let expected = [
            ("ovs-dpdk's cycles_per_packet / ours", "held"),
            ("packets_per_cpu_second", "held"),
            ("ratio_to_stateless", "missed"),
        ];
        assert_eq!(verdicts, expected);
        let labels = [("what", "established"), ("rules", "firewall"), ("connections", "1000000")];
        assert_eq!(bound("conntrack", &labels, "cycles_per_packet"), Some(10.0));
        assert_eq!(bound("conntrack", &[("what", "stateless")], "cycles_per_packet"), None);
    }

    #[test]
    fn a_goal_may_be_about_several_values_of_a_label() {
        let of =
            |what: &str, rules: &str| bound("load-rules", &[("what", what), ("rules", rules)], "seconds");
        let million = ["add", "bundle", "diff", "replace", "other"].map(|what| of(what, "1000000"));
        assert_eq!(million, [Some(0.4), Some(0.125), Some(0.125), Some(0.125), None]);
        assert_eq!(of("bundle", "1000"), None);
    }

    #[test]
    fn every_goal_is_shown_with_a_figure_or_as_not_measured() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
        let run = crate::result::store::read(&runs.join("2026-11-22")).unwrap();
        let (held, missing) = (of_run(&run), not_measured(&run).map(Goal::to_string).collect::<Vec<_>>());
        let has = |suite: &str, figure: &str| {
            held.iter().any(|h| h.what.starts_with(suite) && h.figure.contains(figure))
        };
        assert!(has("masks", "to exact_tier=off") && has("ports-config", "ratio_to_kernel"));
        assert!(has("ovsdb", "value / ovsdb-server's"));
        assert!(
            missing.contains(
                &"collide colliding_under=crc32|crc32c: new_flow_cycles to colliding_under=none at most 1.1"
                    .into()
            ),
            "{missing:#?}"
        );
        assert_eq!(not_measured(&Run::default()).count(), GOALS.len());
    }

    #[test]
    fn goals_are_found_in_committed_runs() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
        let run = crate::result::store::read(&runs.join("2026-11-29-pvp")).unwrap();
        let held = of_run(&run);
        let one = held.iter().find(|h| h.what == "p2p flows=1000 order=shuffled rules=exact").unwrap();
        // bench/runs/README.md says 0.203.
        assert!(
            (one.value - 0.203).abs() < 0.005 && one.verdict == "missed",
            "{} {}",
            one.value,
            one.verdict
        );
        assert!(held.iter().any(|h| h.verdict == "held"));
        assert!(held.iter().any(|h| h.what.starts_with("pvp") && h.what.contains("loss_allowed")));
    }
}

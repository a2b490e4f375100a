//! The results of a run, as stored and as every reader of runs sees them. docs/benchmarking.md describes the
//! files.
//!
//! A run is a directory: `run.json` with the machine and the commands, one file of points for each step under
//! `points/`, and the rows that measurements wrote under `raw/`. A point is one switch under one load; its
//! figures are kept turn by turn.

pub mod account;
#[cfg(test)]
mod documented;
pub mod judged;
pub mod rows;
pub mod store;

use crate::machine::fingerprint::Fingerprint;
use crate::machine::watch::{Watched, widest};
use crate::stats::{bounds, median};
use account::Account;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name and version of the format. A reader refuses another number.
pub const SCHEMA: &str = "crosspoint-bench/1";

/// The share of packets that no cache knows up to which a cost is one of packets of known flows.
pub const MISSES_MAX: f64 = 0.001;

/// A condition: sizes of huge pages that the switch has taken.
pub const HUGE_PAGES: &str = "huge pages";
/// A condition: packets that the switch takes at once.
pub const BATCH: &str = "batch";
/// A condition: what spares work among the features that the switch has agreed on with guests.
pub const GUEST_OFFLOADS: &str = "guest offloads";

/// A condition: the part of a trial whose CPU time is charged to its packets. Trials of before 2026-11-28
/// lack it: they charged the preparation of frames, and the wait for late ones, too.
pub const CPU_TIME: &str = "cpu time";
/// From the first frame to the last one.
pub const WHILE_SENDING: &str = "while frames are sent";
/// A condition: what of the generator's time is not charged to the machine. Where it is missing, that is all
/// of its CPU time, in which kernel interfaces also forward.
pub const GENERATOR_TIME: &str = "generator's time";
/// Its waits, its work on frames that came back, and what sending takes with no switch between.
pub const OWN_WORK: &str = "its own work and waits";
/// A condition: which processes had processors of their own.
pub const PROCESSORS: &str = "processors";

/// The command that this process was started by, as a user repeats it: wherever the program lies.
pub fn command() -> String {
    command_of(std::env::args())
}

fn command_of(args: impl Iterator<Item = String>) -> String {
    std::iter::once("crosspoint".into()).chain(args.skip(1)).collect::<Vec<_>>().join(" ")
}

/// `run.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, in UTC.
    pub started: String,
    /// The command that made it.
    pub command: String,
    /// `quick`, `normal`, `full`, `demo`, or `committed` for runs from before there were suites.
    pub mode: String,
    /// The machine.
    pub machine: Fingerprint,
    /// A digest of each build of Crosspoint that takes part, by the name of the switch.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<String, String>,
    /// A digest of the capture that is sent (`--traffic pcap=FILE`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<String>,
    /// Warnings for readers of any figure, a sentence each.
    pub warnings: Vec<String>,
    /// Packets per second that generator and guest can do alone here, by what is alone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub calibration: BTreeMap<String, f64>,
    /// Steps that failed or could not be run here, and why.
    pub failed: BTreeMap<String, String>,
}

/// Which of two values of a figure is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The smaller.
    Lower,
    /// The greater.
    Higher,
    /// Neither: it describes the load.
    Neither,
}

/// One figure of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// `cycles`, `Mpps`, `1/s`, `ms`, `us`, `bytes`, `ratio`.
    pub unit: String,
    /// The better direction.
    pub better: Better,
    /// One value for each turn, or the median alone where turns were not kept.
    pub values: Vec<f64>,
}

impl Metric {
    /// A figure of some turns.
    pub fn new(unit: &str, better: Better, values: Vec<f64>) -> Metric {
        Metric { unit: unit.into(), better, values }
    }

    /// The middle of its turns.
    pub fn median(&self) -> f64 {
        median(&self.values)
    }

    /// The greatest of its turns.
    pub fn highest(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The 95 % confidence interval of its mean.
    pub fn interval(&self) -> (f64, f64) {
        bounds(&self.values)
    }
}

/// One switch under one load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    /// The suite that it belongs to.
    pub suite: String,
    /// The switch.
    pub switch: String,
    /// What distinguishes it from other points of the suite: topology, size, flows.
    pub labels: BTreeMap<String, String>,
    /// What must be equal for two switches to be compared: workers, queues, descriptors, batch, MTU,
    /// offloads, huge pages, options of the guest. A point from before a condition was recorded lacks it, and
    /// is compared only with points that lack it too.
    pub conditions: BTreeMap<String, String>,
    /// In points of before 2026-11-29, conditions that could not be set in this switch: between two such
    /// points they are named with a ratio, and do not prevent one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inherent: BTreeMap<String, String>,
    /// Version and options, as the switch tells them.
    pub identity: BTreeMap<String, String>,
    /// The figures, by name.
    pub metrics: BTreeMap<String, Metric>,
    /// The fate of every packet, in trials with a generator.
    pub account: Option<Account>,
    /// What limited the rate, if not the switch: then no figure is the switch's.
    pub limit: Option<String>,
    /// What limited the latency, if not the switch: then no latency is the switch's. Points of before
    /// 2026-11-29 lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_limit: Option<String>,
    /// The machine's state meanwhile.
    pub watched: Option<Watched>,
    /// Warnings to accompany the figures.
    pub warnings: Vec<String>,
    /// What the figures say in words: `memory does not drift`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<String>,
    /// The command that repeats it.
    pub command: String,
}

impl Point {
    /// Its labels in one line.
    pub fn load(&self) -> String {
        let pairs: Vec<String> = self.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(" ")
    }

    /// The same for readers, with what makes it easier than its labels say: a million flows have one rule for
    /// each port, where fewer have one for each flow and direction.
    pub fn load_with_rules(&self) -> String {
        let flows = self.labels.get("flows").and_then(|flows| flows.parse::<u32>().ok());
        let is_by_port = self.conditions.get("rules").is_some_and(|kind| kind == "per port");
        let note = if is_by_port && flows > Some(1) { " (one rule per port)" } else { "" };
        self.load() + note
    }

    /// The identity of a point, the same in two runs.
    pub fn key(&self) -> (&str, &str, &BTreeMap<String, String>) {
        (&self.suite, &self.switch, &self.labels)
    }

    /// What limited a figure, if not the switch.
    pub fn limit_of(&self, figure: &str) -> Option<&str> {
        let of_time = self.latency_limit.as_deref().filter(|why| limits_time(why, figure));
        self.limit.as_deref().or(of_time)
    }

    /// Whether its figures are the switch's own.
    pub fn is_of_switch(&self) -> bool {
        self.limit.is_none() && self.account.as_ref().is_none_or(Account::adds_up)
    }
}

/// From this share of the time on, waiting for a processor is in the latency of half of the packets. Less is
/// in that of fewer.
const MEDIAN_WAITED_MIN: f64 = 10.0;

/// Whether a limit of the latency is one of this figure: of any time that a packet or an answer took, but of
/// a median only where the switch waited for long.
fn limits_time(why: &str, figure: &str) -> bool {
    const TIMES: [&str; 4] = ["latency", "effect_", "statistics_", "barrier_"];
    let is_median =
        figure.contains("_p50_") || matches!(figure, "effect_us" | "statistics_us" | "barrier_us");
    let waited = why.strip_suffix(" % of the time").and_then(|why| why.rsplit(' ').next()?.parse().ok());
    TIMES.iter().any(|time| figure.contains(time))
        && (!is_median || waited.is_none_or(|percent: f64| percent >= MEDIAN_WAITED_MIN))
}

/// A run as readers see it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The path of the run.
    pub name: String,
    /// About it.
    pub info: RunInfo,
    /// All points, in the order of their steps.
    pub points: Vec<Point>,
}

impl Run {
    /// Cycles for handing a cache line to another processor and back, over all points: the least and the
    /// most.
    pub fn handover_cycles(&self) -> Option<(f64, f64)> {
        self.points.iter().filter_map(|point| point.watched?.handover_cycles).reduce(widest)
    }

    /// Its name in a graph or a table: the end of its path, as long as it takes to be no other run's.
    pub fn short_name(&self, runs: &[Run]) -> &str {
        let path = self.name.trim_end_matches('/');
        let others = || runs.iter().map(|run| run.name.trim_end_matches('/')).filter(|other| *other != path);
        let is_of_another =
            |end: &str| others().any(|other| other == end || other.ends_with(&format!("/{end}")));
        let mut ends = path.rmatch_indices('/').map(move |(at, _)| &path[at + 1..]).chain([path]);
        ends.find(|end| !end.is_empty() && !is_of_another(end)).unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_program_and_not_where_it_lies() {
        let args = ["target/release/crosspoint", "bench", "run", "p2p"].map(String::from);
        assert_eq!(command_of(args.into_iter()), "crosspoint bench run p2p");
    }

    #[test]
    fn a_wait_for_a_processor_limits_times_and_medians_only_where_it_is_long() {
        let limited = |percent: u32, figure: &str| {
            let why = format!("a processor: the switch waited for one for {percent} % of the time");
            Point { latency_limit: Some(why), ..Point::default() }.limit_of(figure).is_some()
        };
        for figure in ["at_10_latency_p99_us", "latency_max_us", "effect_p99_us", "barrier_max_ms"] {
            assert!(limited(1, figure), "{figure}");
        }
        for figure in ["latency_p50_us", "at_1_latency_p50_us", "effect_us", "statistics_us"] {
            assert!(!limited(9, figure) && limited(10, figure), "{figure}");
        }
        assert!(!limited(50, "cycles_per_packet") && !limited(50, "effects_timed_ratio"));
    }

    #[test]
    fn runs_whose_directories_have_the_same_last_name_are_told_apart() {
        let of = |names: &[&str]| {
            let runs: Vec<Run> =
                names.iter().map(|name| Run { name: name.to_string(), ..Run::default() }).collect();
            runs.iter().map(|run| run.short_name(&runs).to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["bench/runs/x/", "bench/runs/y"]), ["x", "y"]);
        assert_eq!(of(&["a/run/", "b/run", "c"]), ["a/run", "b/run", "c"]);
        // The end of one is the whole of the other.
        assert_eq!(of(&["run", "/tmp/a/run", "/tmp/b/a/run"]), ["run", "tmp/a/run", "b/a/run"]);
        assert_eq!(of(&["/"]), ["/"]);
    }
}

//! What a suite is: a question, the steps that answer it, and the graphs that show the answer. A suite is
//! data; [`list`] has all of them.

use crate::lab::guest::Rings;
use crate::lab::topology::{self, Topology};

pub mod control;
pub mod list;
pub mod measured;
pub mod notes;
pub mod offered;
pub mod parts;

/// How long a run takes the time for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Seconds a step: shows that it runs; the figures say little.
    Quick,
    /// Minutes a step.
    Normal,
    /// Five minutes a point.
    Full,
}

impl Mode {
    /// Its name in stored results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Quick => "quick",
            Mode::Normal => "normal",
            Mode::Full => "full",
        }
    }
}

/// See the module documentation.
pub struct Suite {
    /// Its name on the command line.
    pub name: &'static str,
    /// The group of suites that it belongs to.
    pub group: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// In this order.
    pub steps: &'static [Step],
    /// The graphs of its results.
    pub plots: &'static [Plot],
}

/// A part of a suite that is run, stored and resumed as a whole.
pub enum Step {
    /// A measurement in a process of its own.
    Measure(Measure),
    /// Trials on test beds.
    Grid(Grid),
    /// This program against the versions of it that the run names, in turns; it fails if this one is worse.
    Builds(&'static str),
}

/// Every combination of these. All switches see the same load in turns before the next load begins.
pub struct Grid {
    /// The step's name within its suite.
    pub step: &'static str,
    /// Names of topologies.
    pub topologies: &'static [&'static str],
    /// Names of switches; those that are not here, or cannot do a topology, are left out and named.
    pub switches: &'static [&'static str],
    /// Names of guests, for topologies that have some.
    pub guests: &'static [&'static str],
    /// How the rings of guests are.
    pub rings: Rings,
    /// Workers of each switch, and queues of each port; fewer where the machine has too few processors.
    pub workers: usize,
    /// The generator.
    pub generator: &'static str,
    /// Bytes of a frame with its check sequence.
    pub sizes: &'static [u16],
    /// Numbers of flows.
    pub flows: &'static [u32],
    /// Minimum number of rules in the table; rules for other flows than the traffic's fill it up. 0: none.
    pub rules: &'static [u32],
    /// Offered frames per second, for trials that do not look for a rate; 0: as many as go.
    pub rates: &'static [u64],
    /// The traffic pattern, as for `--traffic`.
    pub traffic: &'static [&'static str],
    /// Names of trials.
    pub trials: &'static [&'static str],
}

/// `crosspoint bench NAME ARGUMENT…`.
pub struct Measure {
    /// The step's name within its suite.
    pub step: &'static str,
    /// The measurement and the arguments that say what is measured.
    pub what: &'static str,
    /// How often and how long, by default.
    pub normal: &'static str,
    /// Replaces both, for a quick run.
    pub quick: &'static str,
    /// The other switch that it can measure in turns with ours.
    pub peer: Option<Peer>,
    /// Others that it always measures beside ours.
    pub beside: &'static [&'static str],
}

/// A switch that a measurement compares with ours.
#[derive(Clone, Copy)]
pub struct Peer {
    /// As for `--switch`.
    pub switch: &'static str,
    /// The argument that asks for it.
    pub argument: &'static str,
    /// The program that must be there.
    pub program: &'static str,
    /// The package that it is in.
    pub package: &'static str,
    /// Whether it runs as root alone.
    pub needs_root: bool,
}

impl Peer {
    /// Why it cannot be measured here, if it is not installed.
    pub fn missing(&self) -> Option<String> {
        let Peer { switch, program, package, .. } = self;
        if !std::path::Path::new(program).exists() {
            return Some(format!("{switch} was not measured: {program} is missing, install {package}"));
        }
        let is_refused = self.needs_root && !rustix::process::geteuid().is_root();
        is_refused.then(|| format!("{switch} was not measured: it needs huge pages, run this as root"))
    }
}

impl Step {
    /// Its name within its suite.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Measure(measure) => measure.step,
            Step::Grid(grid) => grid.step,
            Step::Builds(step) => step,
        }
    }

    /// Whether it can have a point of one of these switches. Versions of ours take part wherever ours does,
    /// and a step without a switch has its point whatever is named.
    pub fn measures(&self, switches: &[String]) -> bool {
        let has = |names: &[&str]| {
            let name =
                |s: &String| if s.starts_with("crosspoint@") { "crosspoint".into() } else { s.clone() };
            switches.iter().map(name).any(|s| names.contains(&s.as_str()))
        };
        match self {
            Step::Builds(_) => has(&["crosspoint"]),
            Step::Measure(measure) => {
                let peer = measure.peer.map(|peer| peer.switch);
                has(&["crosspoint"]) || has(peer.as_slice()) || has(measure.beside)
            }
            Step::Grid(grid) => {
                let has_switch = |name: &&str| topology::find(name).is_some_and(Topology::has_switch);
                has(grid.switches) || !grid.topologies.iter().any(has_switch)
            }
        }
    }
}

impl Measure {
    /// The command's arguments.
    pub fn arguments(&self, mode: Mode, with_peer: bool) -> Vec<&'static str> {
        let name = self.what.split(' ').next().unwrap_or_default();
        let text = match mode {
            Mode::Quick => vec![name, self.quick],
            Mode::Normal => vec![self.what, self.normal],
            Mode::Full => vec![self.what, FULL],
        };
        let peer = self.peer.filter(|_| with_peer).map(|peer| peer.argument);
        text.into_iter().chain(peer).flat_map(str::split_whitespace).collect()
    }
}

/// Five turns of a minute.
const FULL: &str = "--runs 5 --turn-ms 60000";

/// A graph: one line for each value of `series`.
pub struct Plot {
    /// Above it.
    pub title: &'static str,
    /// The figure on the vertical axis.
    pub metric: &'static str,
    /// The label on the horizontal axis.
    pub x: &'static str,
    /// The labels that tell lines apart; the switch always does.
    pub series: &'static [&'static str],
    /// Labels and values of the points that it shows. No text: the points that lack the label.
    pub only: &'static [(&'static str, &'static str)],
    /// Values of x are powers.
    pub log: bool,
    /// A line that no switch can exceed, drawn if there is one.
    pub limit: Option<Limit>,
    /// Bars by switch in place of lines. The figure's name may have a star, which stands for a family of
    /// figures; `x` then says what the star stands for.
    pub bars: bool,
}

/// The upper bound of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// 10 Gbit/s of frames of the size on the horizontal axis, in packets per second.
    TenGigabitPps,
    /// The offered load itself.
    Offered,
}

impl Plot {
    /// A line for each switch.
    pub const fn new(title: &'static str, metric: &'static str, x: &'static str) -> Plot {
        Plot { title, metric, x, series: &[], only: &[], log: false, limit: None, bars: false }
    }

    /// A bar for each switch.
    pub const fn bars(title: &'static str, metric: &'static str) -> Plot {
        Plot { bars: true, ..Plot::new(title, metric, "") }
    }

    /// What a star in the figure's name stands for: `at * %`.
    pub const fn family(self, x: &'static str) -> Plot {
        Plot { x, ..self }
    }

    /// Lines, or bars, for these labels too.
    pub const fn by(self, series: &'static [&'static str]) -> Plot {
        Plot { series, ..self }
    }

    /// These points only.
    pub const fn only(self, only: &'static [(&'static str, &'static str)]) -> Plot {
        Plot { only, ..self }
    }

    /// Powers on the horizontal axis.
    pub const fn log(self) -> Plot {
        Plot { log: true, ..self }
    }

    /// With a theoretical maximum.
    pub const fn limit(self, limit: Limit) -> Plot {
        Plot { limit: Some(limit), ..self }
    }
}

//! The loads of a suite's grid: each is run on all its switches in turns, so that a slow minute of the
//! machine hits all.

use crate::lab::bed::Bed;
use crate::lab::generator::{self, Load as Offer};
use crate::lab::guest;
use crate::lab::switch::{self, Switch};
use crate::lab::topology::{self, Topology};
use crate::lab::trial::{self, Outcome, Times, Trial};
use crate::result::Point;
use crate::suite::{Grid, Mode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// One combination of a grid, for all its switches.
pub struct Load {
    grid: &'static Grid,
    topology: &'static str,
    guest: &'static str,
    size: u16,
    flows: u32,
    rate: u64,
    trial: &'static str,
    switches: Vec<String>,
}

/// What became of a load.
#[derive(Default)]
pub struct Measured {
    /// A point for each switch.
    pub points: Vec<Point>,
    /// Why switches were left out.
    pub refused: Vec<String>,
    /// Switches that failed, and why.
    pub failed: BTreeMap<String, String>,
}

/// Every combination; for a quick run the first value of each of sizes, flows and rates.
pub fn loads(grid: &'static Grid, mode: Mode, wanted: &[String]) -> Vec<Load> {
    let few = mode == Mode::Quick;
    let some = |len: usize| if few { len.min(1) } else { len };
    let mut switches: Vec<String> = grid.switches.iter().map(|s| s.to_string()).collect();
    if !wanted.is_empty() {
        switches.retain(|s| wanted.contains(s));
        // Versions of ours take part wherever ours does.
        switches.extend(wanted.iter().filter(|s| s.starts_with("crosspoint@")).cloned());
    }
    let mut loads = Vec::new();
    for topology in grid.topologies {
        let has_guests = topology::find(topology).is_some_and(Topology::has_guests);
        let guests = if has_guests { grid.guests } else { &grid.guests[..1] };
        for guest in guests {
            for size in &grid.sizes[..some(grid.sizes.len())] {
                for flows in &grid.flows[..some(grid.flows.len())] {
                    for rate in &grid.rates[..some(grid.rates.len())] {
                        for trial in grid.trials {
                            loads.push(Load {
                                grid,
                                topology,
                                guest,
                                size: *size,
                                flows: *flows,
                                rate: *rate,
                                trial,
                                switches: switches.clone(),
                            });
                        }
                    }
                }
            }
        }
    }
    loads
}

fn times(mode: Mode) -> Times {
    match mode {
        Mode::Quick => Times { turns: 1, seconds: 0.3 },
        Mode::Normal => Times { turns: 5, seconds: 2.0 },
        Mode::Full => Times { turns: 5, seconds: 60.0 },
    }
}

impl Load {
    /// The part of a file's name that tells it from other loads of its step.
    pub fn id(&self) -> String {
        format!("{}.{}.{}.{}.{}.{}", self.topology, self.guest, self.size, self.flows, self.rate, self.trial)
    }

    /// Runs it on all switches in turns, until it is interrupted.
    pub fn run(&self, suite: &str, mode: Mode, interrupted: &AtomicBool) -> Measured {
        let mut measured = Measured::default();
        let (Some(topology), Some(trial)) = (topology::find(self.topology), trial::list::find(self.trial))
        else {
            measured.failed.insert("all".into(), "the suite names what there is not".into());
            return measured;
        };
        let mut points: Vec<(String, Option<Box<dyn Switch>>, Outcome, Point)> = Vec::new();
        let names = if topology.ports.is_empty() { vec!["none".to_string()] } else { self.switches.clone() };
        for name in names {
            let found = if name == "none" { Ok(None) } else { switch::list::find(&name).map(Some) };
            let refused = match &found {
                Ok(Some(switch)) => switch.refuses(topology),
                Ok(None) => None,
                Err(why) => Some(why.clone()),
            };
            let refused = refused
                .or_else(|| guest::list::find(self.guest)?.refuses().filter(|_| topology.has_guests()));
            match (found, refused) {
                (Ok(switch), None) => {
                    let name = switch.as_ref().map_or(name, |switch| switch.name().to_string());
                    points.push((name, switch, Outcome::default(), Point::default()));
                }
                (_, why) => {
                    let why = why.unwrap_or_default();
                    measured.refused.push(format!("{name} was not measured with {}: {why}", self.topology));
                }
            }
        }
        let times = times(mode);
        for turn in 0..times.turns {
            for (name, switch, outcome, point) in &mut points {
                if measured.failed.contains_key(name) || interrupted.load(Ordering::Relaxed) {
                    continue;
                }
                eprint!("  turn {} of {}, {name}: ", turn + 1, times.turns);
                match self.turn(topology, trial, switch.as_deref(), times.seconds, outcome, point) {
                    Ok(()) => eprintln!("{}", live(outcome)),
                    Err(why) => {
                        eprintln!("failed");
                        measured.failed.insert(name.clone(), why);
                    }
                }
            }
        }
        for (name, _, outcome, point) in points.into_iter().filter(|(_, _, o, _)| !o.metrics.is_empty()) {
            measured.points.push(self.point(suite, name, outcome, point));
        }
        measured
    }

    fn turn(
        &self,
        topology: &Topology,
        trial: &dyn Trial,
        switch: Option<&dyn Switch>,
        seconds: f64,
        outcome: &mut Outcome,
        point: &mut Point,
    ) -> Result<(), String> {
        let guest = guest::list::find(self.guest).ok_or("the suite names no guest that there is")?;
        let generator =
            generator::list::find(self.grid.generator).ok_or("the suite names no generator that there is")?;
        let mut bed = Bed::start(topology, switch, guest, generator, self.flows)?;
        let rate = Some(self.rate).filter(|rate| *rate > 0);
        let load = Offer { size: self.size, flows: self.flows, rate, seconds, burst: None };
        let new = trial.run(&mut bed, &load, Times { turns: 1, seconds })?;
        outcome.add(new);
        point.conditions = bed.conditions().clone();
        point.identity = bed.identity();
        Ok(())
    }

    fn point(&self, suite: &str, switch: String, outcome: Outcome, mut point: Point) -> Point {
        point.suite = suite.into();
        point.switch = switch;
        let topology = topology::find(self.topology);
        let mut labels = vec![
            ("topology", self.topology.to_string()),
            ("size", self.size.to_string()),
            ("flows", self.flows.to_string()),
            ("trial", self.trial.to_string()),
            ("copies", topology.map_or(1, Topology::copies).to_string()),
        ];
        if self.rate > 0 {
            labels.push(("offered_pps", self.rate.to_string()));
        }
        if topology.is_some_and(Topology::has_guests) {
            labels.push(("guest", self.guest.to_string()));
        }
        point.labels = labels.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        point.warnings.extend(outcome.watched.warning());
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if cpus < 4 {
            point.warnings.push(format!("generator, switch and guest share {cpus} processors"));
        }
        point.metrics = outcome.metrics;
        point.account = Some(outcome.account);
        point.limit = outcome.limit;
        point.watched = Some(outcome.watched);
        point.command = format!("crosspoint bench run {suite} --switch {}", point.switch);
        point
    }
}

/// The figure that an operator looks for first.
fn live(outcome: &Outcome) -> String {
    let names = ["lossless_pps", "burst_frames", "rate_pps"];
    let found = names.iter().find_map(|name| Some((name, outcome.metrics.get(*name)?.values.last()?)));
    found.map(|(name, value)| format!("{name} {}", crate::stats::short(*value))).unwrap_or_default()
}

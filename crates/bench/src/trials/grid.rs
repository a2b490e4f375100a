//! From a suite's grid to its loads.

use super::{Load, Wanted, cpus, workers_here};
use crate::lab::cable::Cable;
use crate::lab::topology::{self, Topology};
use crate::lab::traffic::pattern::Pattern;
use crate::suite::{Grid, Mode};
use std::collections::BTreeSet;

/// Every combination that differs; for a quick run the first value of each of sizes, flows, rates and
/// traffic. A curve is one of three loads at least.
pub fn loads(grid: &'static Grid, mode: Mode, wanted: &Wanted) -> Vec<Load> {
    let few = mode == Mode::Quick;
    let some = |len: usize| if few { len.min(1) } else { len };
    let mut switches: Vec<String> = grid.switches.iter().map(|s| s.to_string()).collect();
    if !wanted.switches.is_empty() {
        switches.retain(|s| wanted.switches.contains(s));
        // Versions of ours take part wherever ours does, as its default: not beside other forms of it.
        let versions = wanted.switches.iter().filter(|s| s.starts_with("crosspoint@"));
        switches.extend(versions.filter(|_| grid.switches.contains(&"crosspoint")).cloned());
    }
    let own = grid.traffic[..some(grid.traffic.len())].iter().map(|text| text.parse());
    // A test parses each suite's patterns.
    let patterns: Vec<Pattern> = match &wanted.traffic {
        Some(pattern) => vec![pattern.clone()],
        None => own.filter_map(Result::ok).collect(),
    };
    let frames: Vec<Option<usize>> = patterns.iter().map(Pattern::frames_of_capture).collect();
    let options = options(mode, wanted);
    let mut loads = Vec::new();
    for topology in grid.topologies {
        let has_guests = topology::find(topology).is_some_and(Topology::has_guests);
        let guests = if has_guests { grid.guests } else { &grid.guests[..1] };
        for guest in guests {
            for (pattern, frames) in patterns.iter().zip(&frames) {
                for size in &grid.sizes[..some(grid.sizes.len())] {
                    for (flows, rules) in tables(grid, few) {
                        for rate in rates(grid, few) {
                            for trial in grid.trials {
                                loads.push(Load {
                                    step: grid.step,
                                    turns: wanted.turns,
                                    options: options.clone(),
                                    topology,
                                    guest,
                                    rings: grid.rings,
                                    workers_wanted: wanted.workers.is_none().then_some(grid.workers),
                                    workers: wanted.workers.unwrap_or(workers_here(grid.workers, cpus())),
                                    generator: wanted.generator.clone().unwrap_or(grid.generator.into()),
                                    pattern: pattern.clone(),
                                    size: (*size).max(pattern.size_min()),
                                    flows,
                                    frames: *frames,
                                    rules,
                                    rate,
                                    trial,
                                    switches: switches.clone(),
                                    cables: wanted.cables.clone(),
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    // A mix, a capture and frames that headers make longer are the same at several sizes of the grid.
    let mut seen = BTreeSet::new();
    loads.retain(|load: &Load| seen.insert(load.labels()));
    loads
}

/// Numbers of flows, and of rules with each.
fn tables(grid: &Grid, few: bool) -> Vec<(u32, u32)> {
    let rules = |flows: &u32| grid.rules.iter().map(|rules| (*flows, *rules)).collect::<Vec<_>>();
    let all: Vec<(u32, u32)> = grid.flows.iter().flat_map(rules).collect();
    if few { all[..all.len().min(1)].to_vec() } else { all }
}

/// The rates of a grid: for a quick run of a curve the lowest, one in the middle and the highest.
fn rates(grid: &Grid, few: bool) -> Vec<u64> {
    match grid.rates {
        [first, .., last] if few && grid.rates.len() > 3 && grid.trials == ["fixed"] => {
            vec![*first, grid.rates[grid.rates.len() / 2], *last]
        }
        [first, ..] if few => vec![*first],
        all => all.to_vec(),
    }
}

/// The other requests besides suites and switches, in command-line form.
fn options(mode: Mode, wanted: &Wanted) -> String {
    let mut options = match mode {
        Mode::Quick => " --quick".to_string(),
        Mode::Normal => String::new(),
        Mode::Full => " --full".to_string(),
    };
    let given = [
        ("generator", wanted.generator.clone()),
        ("traffic", wanted.traffic.as_ref().map(Pattern::to_string)),
        ("workers", wanted.workers.map(|n| n.to_string())),
        ("turns", wanted.turns.map(|n| n.to_string())),
    ];
    for (name, value) in given {
        options.extend(value.map(|value| format!(" --{name} {value}")));
    }
    options
        .extend(wanted.cables.iter().map(|Cable { outside, switch }| format!(" --nic {outside}={switch}")));
    options
}

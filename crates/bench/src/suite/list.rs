//! All suites, as data. docs/benchmarking.md describes how to add one.

use super::{Suite, control, measured, offered};

/// See the module documentation.
pub fn suites() -> impl Iterator<Item = &'static Suite> + Clone {
    measured::SUITES.iter().chain(control::SUITES).chain(offered::SUITES)
}

/// The suite of this name.
pub fn find(name: &str) -> Option<&'static Suite> {
    suites().find(|suite| suite.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::traffic::pattern::Pattern;
    use crate::suite::Step;
    use std::collections::BTreeSet;

    #[test]
    fn names_of_suites_and_of_their_steps_are_unique() {
        let names: BTreeSet<_> = suites().map(|s| s.name).collect();
        assert_eq!(names.len(), suites().count());
        for suite in suites() {
            let steps: BTreeSet<_> = suite.steps.iter().map(Step::name).collect();
            assert_eq!(steps.len(), suite.steps.len(), "{}", suite.name);
            for grid in suite.steps.iter().filter_map(|s| if let Step::Grid(g) = s { Some(g) } else { None })
            {
                assert!(grid.topologies.iter().all(|t| crate::lab::topology::find(t).is_some()));
                assert!(grid.trials.iter().all(|t| crate::lab::trial::list::find(t).is_some()));
                assert!(grid.guests.iter().all(|g| crate::lab::guest::list::find(g).is_some()));
                assert!(grid.switches.iter().all(|s| crate::lab::switch::list::NAMES.contains(s)));
                assert!(crate::lab::generator::list::find(grid.generator).is_ok());
                assert!(grid.traffic.iter().all(|t| t.parse::<Pattern>().is_ok()));
            }
            assert!(suite.question.ends_with('?') && !suite.steps.is_empty());
            assert!(!suite.plots.is_empty(), "{} draws nothing", suite.name);
        }
    }

    #[test]
    fn a_full_run_measures_the_same_as_a_normal_one_for_longer() {
        let all = suites().flat_map(|suite| suite.steps);
        for measure in all.filter_map(|s| if let Step::Measure(m) = s { Some(m) } else { None }) {
            let words: Vec<&str> = measure.normal.split(' ').collect();
            let names: Vec<&str> = words.iter().step_by(2).copied().collect();
            // Turns of versions alternate, so that their number must be known, unless there are none.
            let is_right = matches!(names[..], [""] | ["--runs"] | ["--runs", "--turn-ms"]);
            assert!(is_right, "{}: {words:?}", measure.step);
        }
    }
}

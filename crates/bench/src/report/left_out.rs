//! Warnings of runs, and what they left out.

use crate::result::Run;
use std::collections::BTreeMap;

/// What suites could not measure on their machine: switch, the suites, and the reason, grouped by reason.
pub fn left_out(runs: &[Run]) -> Vec<(&str, Vec<&str>, &str)> {
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for warning in runs.iter().flat_map(|run| &run.info.warnings) {
        // `suite: switch was not measured with TOPOLOGY: reason`, and without suite and topology.
        let Some((what, rest)) = warning.split_once(NOT_MEASURED) else { continue };
        let (suite, switch) = what.split_once(": ").unwrap_or(("", what));
        let why = rest.split_once(": ").map_or(rest, |(_, why)| why);
        let suites = reasons.entry((switch, why)).or_default();
        if !suite.is_empty() && !suites.contains(&suite) {
            suites.push(suite);
        }
    }
    reasons.into_iter().map(|((switch, why), suites)| (switch, suites, why)).collect()
}

/// The warnings of runs, except about what they left out, each once. Of those that differ in a share alone,
/// the one with the greatest.
pub fn warnings(runs: &[Run]) -> Vec<&str> {
    let mut warnings: Vec<&str> = Vec::new();
    for warning in runs.iter().flat_map(|run| &run.info.warnings).filter(|w| !w.contains(NOT_MEASURED)) {
        let share = share_of(warning);
        let like = |there: &&mut &str| match (&share, share_of(there)) {
            (Some((text, _)), Some((other, _))) => *text == other,
            _ => **there == warning,
        };
        match warnings.iter_mut().find(like) {
            Some(there) if share.as_ref().map(|s| s.1) > share_of(there).map(|s| s.1) => {
                *there = warning;
            }
            Some(_) => {}
            None => warnings.push(warning),
        }
    }
    warnings
}

/// A warning without the share of the time in it, and that share in percent.
fn share_of(warning: &str) -> Option<(String, f64)> {
    let (before, after) = warning.split_once(" % of ")?;
    let (text, number) = before.rsplit_once(' ')?;
    Some((format!("{text} {after}"), number.parse().ok()?))
}

/// Part of the warnings about switches that were left out.
const NOT_MEASURED: &str = " was not measured";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_warnings_that_differ_in_a_share_the_greatest_is_told() {
        let run = |warnings: &[&str]| {
            let mut run = Run::default();
            run.info.warnings = warnings.iter().map(|warning| warning.to_string()).collect();
            run
        };
        let took = |share: &str| format!("A hypervisor took {share} % of the processors' time since boot.");
        let runs = [
            run(&[&took("0.2"), "quick"]),
            run(&[&took("1.5"), "x: y was not measured"]),
            run(&[&took("0.3"), "quick"]),
        ];
        assert_eq!(warnings(&runs), [took("1.5").as_str(), "quick"]);
    }
}

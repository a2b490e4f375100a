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

/// The warnings of runs, except about what they left out, each once.
pub fn warnings(runs: &[Run]) -> Vec<&str> {
    let mut warnings: Vec<&str> = Vec::new();
    for warning in runs.iter().flat_map(|run| &run.info.warnings) {
        if !warning.contains(NOT_MEASURED) && !warnings.contains(&warning.as_str()) {
            warnings.push(warning);
        }
    }
    warnings
}

/// Part of the warnings about switches that were left out.
const NOT_MEASURED: &str = " was not measured";

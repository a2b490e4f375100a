//! The packet path costs what bench/instructions.txt says, in instructions per packet, which noise does not
//! reach.

use std::collections::BTreeMap;
use std::process::Command;

/// A figure that moves by a greater share than this, either way, is told.
const TOLERANCE: f64 = 0.02;
const TABLE: &str = include_str!("../../../bench/instructions.txt");
const WHAT_TO_DO: &str = "The instructions per packet are not those that are committed. If you did not mean to change the cost of \
     the packet path, find out what did. If you did, renew the figures and say in the commit why they changed:\n    \
     cargo run --release -p oracle --bin instructions > bench/instructions.txt\n\
     A new compiler changes them too.";

/// Figures by case.
fn figures(table: &str) -> BTreeMap<&str, f64> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let (case, figure) = line.split_once(' ').unwrap_or_else(|| panic!("case and figure: {line:?}"));
        (case, figure.trim().parse().unwrap_or_else(|e| panic!("{line:?}: {e}")))
    })
    .collect()
}

/// What differs between the tables, a line for each.
fn differences(committed: &str, measured: &str) -> Vec<String> {
    let (committed, measured) = (figures(committed), figures(measured));
    let mut cases: Vec<&str> = committed.keys().chain(measured.keys()).copied().collect();
    cases.sort_unstable();
    cases.dedup();
    cases
        .into_iter()
        .filter_map(|case| match (committed.get(case), measured.get(case)) {
            (Some(was), Some(is)) => {
                let change = is / was - 1.0;
                let is_same = change.abs() <= TOLERANCE;
                (!is_same).then(|| format!("{case}: {was} committed, {is} now ({:+.1} %)", change * 100.0))
            }
            (was, is) => Some(format!("{case}: {was:?} committed, {is:?} now")),
        })
        .collect()
}

#[test]
fn the_packet_path_takes_the_instructions_that_are_committed() {
    // A release: figures of another build say nothing.
    let run = Command::new(env!("CARGO"))
        .args(["run", "--release", "--quiet", "--package", "oracle", "--bin", "instructions"])
        .current_dir(testkit::root())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}: {}", run.status, String::from_utf8_lossy(&run.stderr));
    let differences = differences(TABLE, std::str::from_utf8(&run.stdout).unwrap());
    assert!(differences.is_empty(), "{}\n{WHAT_TO_DO}", differences.join("\n"));
}

#[test]
fn a_second_lookup_costs_at_most_1_3_times_the_first() {
    let figures = figures(TABLE);
    let second = figures["recirculated"] - figures["label"];
    let first = figures["everything"];
    assert!(second <= 1.3 * first, "{second:.0} instructions after {first:.0}");
}

#[test]
fn a_change_beyond_two_in_a_hundred_and_a_case_that_comes_or_goes_are_told() {
    let committed = "# cases\na   100.0\nb  1000.0\n";
    assert!(differences(committed, "# cases\na 101.9\nb 980.1\n").is_empty());
    assert_eq!(differences(committed, "a 102.1\nb 979.9\n").len(), 2);
    assert_eq!(differences(committed, "a 100.0\nb NaN\n").len(), 1);
    assert_eq!(differences(committed, "a 100.0\n").len(), 1);
    assert_eq!(differences(committed, "a 100.0\nb 1000.0\nc 1.0\n").len(), 1);
}

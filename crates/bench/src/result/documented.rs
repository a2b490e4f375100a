//! The table of figures in docs/figures.md, against the program and all committed runs.

use super::store;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The unit and the better direction of a figure.
type Kind = (String, String);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the table: each name with the kinds that it may have.
fn documented() -> BTreeMap<String, BTreeSet<Kind>> {
    let text = fs::read_to_string(root().join("docs/figures.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.strip_suffix('`')?.to_string();
        let (unit, better) = (cells.next()?.to_string(), cells.next()?);
        Some((name, better.split(" or ").map(|better| (unit.clone(), better.into())).collect()))
    };
    let rows: Vec<(String, BTreeSet<Kind>)> = text.lines().filter_map(row).collect();
    let count = rows.len();
    let table = BTreeMap::from_iter(rows);
    assert_eq!(table.len(), count, "a figure is described twice");
    table
}

/// A name as the table has it: `at_50_latency_p50_us` is `at_N_latency_p50_us`.
fn family(name: &str) -> String {
    let number = name.strip_prefix("at_").and_then(|rest| rest.split_once('_'));
    match number.filter(|(number, _)| number.parse::<u32>().is_ok()) {
        Some((_, rest)) => format!("at_N_{rest}"),
        None => name.into(),
    }
}

#[test]
fn every_figure_is_documented_with_its_unit_and_direction() {
    let documented = documented();
    let mut used = BTreeMap::<String, BTreeSet<Kind>>::new();
    let runs = fs::read_dir(root().join("bench/runs")).unwrap().flatten().map(|entry| entry.path());
    for dir in runs.filter(|path| path.is_dir()) {
        for point in store::read(&dir).unwrap().points {
            for (name, metric) in point.metrics {
                let better = format!("{:?}", metric.better).to_lowercase();
                used.entry(family(&name)).or_default().insert((metric.unit, better));
            }
        }
    }
    // Its rows have units of their own.
    used.remove("value").unwrap();
    for (name, kinds) in &used {
        let table = documented.get(name).unwrap_or_else(|| panic!("docs/figures.md does not have {name}"));
        assert!(kinds.is_subset(table), "docs/figures.md says {table:?} of {name}, runs have {kinds:?}");
    }
    for (name, unit, better) in super::rows::FIGURES {
        let kind = (unit.to_string(), format!("{better:?}").to_lowercase());
        let kinds = documented.get(*name).unwrap_or_else(|| panic!("docs/figures.md does not have {name}"));
        assert!(kinds.contains(&kind), "docs/figures.md says {kinds:?} of {name}, which is {kind:?}");
        used.entry(name.to_string()).or_default();
    }
    // No committed run has it: no burst there was lost.
    used.entry(crate::lab::trial::back_to_back::BUFFER.to_string()).or_default();
    // Nor this one yet.
    used.entry(crate::lab::trial::soak::LENGTH.to_string()).or_default();
    let nobodys: Vec<&String> =
        documented.keys().filter(|name| *name != "value" && !used.contains_key(*name)).collect();
    assert!(nobodys.is_empty(), "docs/figures.md describes what nothing yields: {nobodys:?}");
}

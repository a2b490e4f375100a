//! The report of runs: tables as CSV, and one HTML page that needs nothing else.

pub mod bars;
pub mod beside;
pub mod knee;
pub mod left_out;
pub mod markdown;
pub mod open;
pub mod page;
pub mod plain;
pub mod plot;
pub mod reasons;
pub mod style;

use crate::goals;
use crate::result::store::{self, write_whole};
use crate::result::{Point, Run};
use crate::units::Failure;
use std::path::{Path, PathBuf};

/// Writes `report.html` and `points.csv` for these runs, by default into the first one's directory. Returns
/// the page's path.
pub fn run(dirs: &[PathBuf], out: Option<&Path>) -> Result<PathBuf, Failure> {
    let runs = read(dirs)?;
    let to = out.or(dirs.first().map(PathBuf::as_path)).unwrap_or(Path::new("."));
    std::fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    write_whole(&to.join("points.csv"), csv(&runs)?.as_bytes())?;
    let held: Vec<_> = runs.iter().map(goals::of_run).collect();
    let html = to.join("report.html");
    write_whole(&html, page::page(&runs, &held).as_bytes())?;
    Ok(html)
}

/// Writes these runs as text in Markdown.
pub fn markdown(dirs: &[PathBuf], file: &Path) -> Result<(), Failure> {
    let written = store::replace(file, markdown::text(&read(dirs)?).as_bytes());
    written.map_err(|e| Failure::Check(format!("{}: {e}", file.display())))
}

/// Reads the runs. A directory given twice is refused: its points would count twice.
fn read(dirs: &[PathBuf]) -> Result<Vec<Run>, Failure> {
    let mut seen: Vec<PathBuf> = Vec::new();
    let one = |dir: &PathBuf| {
        let run = store::read(dir)?;
        let path = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
        if seen.contains(&path) {
            return Err(format!("{} is given twice: give each run once", dir.display()));
        }
        seen.push(path);
        Ok(run)
    };
    dirs.iter().map(one).collect::<Result<_, String>>().map_err(Failure::Usage)
}

/// The columns, which docs/benchmarking.md describes.
const COLUMNS: [&str; 14] = [
    "run", "suite", "switch", "load", "figure", "unit", "better", "median", "low_95", "high_95", "turns",
    "limit", "adds_up", "values",
];

/// A line for each figure of each point, with its turns.
pub fn csv(runs: &[Run]) -> Result<String, String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).map_err(|e| e.to_string())?;
    for (run, point) in runs.iter().flat_map(|run| run.points.iter().map(move |p| (run, p))) {
        for (name, metric) in &point.metrics {
            let (low, high) = metric.interval();
            let values: Vec<String> = metric.values.iter().map(f64::to_string).collect();
            let record = [
                run.name.clone(),
                point.suite.clone(),
                point.switch.clone(),
                point.load(),
                name.clone(),
                metric.unit.clone(),
                format!("{:?}", metric.better).to_lowercase(),
                metric.median().to_string(),
                low.to_string(),
                high.to_string(),
                metric.values.len().to_string(),
                point.limit_of(name).unwrap_or_default().to_string(),
                adds_up(point),
                values.join(" "),
            ];
            writer.write_record(&record).map_err(|e| e.to_string())?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

fn adds_up(point: &Point) -> String {
    let told = point.account.as_ref().map(|account| match (account.adds_up(), account.is_checked()) {
        (false, _) => "no",
        (true, false) => "not checked",
        (true, true) => "yes",
    });
    told.unwrap_or("").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_described() {
        let docs = include_str!("../../../../docs/benchmarking.md");
        let table =
            docs.split("`points.csv` has these columns").nth(1).unwrap().split("\n\n#").next().unwrap();
        for column in COLUMNS {
            assert!(table.contains(&format!("`{column}`")), "{column}");
        }
    }
}

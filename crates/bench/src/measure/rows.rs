//! The file that a measurement writes: the command, the machine, the rows.

use crate::machine::conditions::{Conditions, noted};
use crate::machine::fingerprint::Fingerprint;
use crate::machine::turns;
use crate::machine::watch::Watched;
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The contents of a JSON file: the command, the machine, and the rows.
#[derive(Serialize)]
pub struct Report<R: Serialize> {
    /// As typed.
    pub command: String,
    /// Where they were measured.
    pub machine: Fingerprint,
    /// What each switch was given.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Results.
    rows: Vec<WatchedRow<R>>,
}

/// A row with what the machine did in the turns that it was made of.
#[derive(Serialize)]
struct WatchedRow<R> {
    #[serde(flatten)]
    row: R,
    #[serde(skip_serializing_if = "Option::is_none")]
    watched: Option<Watched>,
}

/// Rows. Each is added right after the turns that it is made of, before any of another row's.
pub struct Rows<R> {
    rows: Vec<R>,
    watched: Vec<Option<Watched>>,
}

impl<R> Default for Rows<R> {
    fn default() -> Rows<R> {
        Rows { rows: Vec::new(), watched: Vec::new() }
    }
}

impl<R: Serialize> Rows<R> {
    /// Adds one, with the turns of its switch.
    pub fn push(&mut self, row: R) {
        let fields = serde_json::to_value(&row).unwrap_or_default();
        let switch = ["switch", "server"].iter().find_map(|name| fields.get(name)).and_then(Value::as_str);
        let watched = turns::of_row(switch.unwrap_or_default());
        debug_assert!(watched.is_some(), "no turn of {switch:?} was watched");
        self.rows.push(row);
        self.watched.push(watched);
    }
}

impl<R: Serialize> Extend<R> for Rows<R> {
    fn extend<T: IntoIterator<Item = R>>(&mut self, rows: T) {
        rows.into_iter().for_each(|row| self.push(row));
    }
}

impl<R: Serialize> FromIterator<R> for Rows<R> {
    fn from_iter<T: IntoIterator<Item = R>>(iter: T) -> Rows<R> {
        let mut rows = Rows::default();
        rows.extend(iter);
        rows
    }
}

impl<R> Deref for Rows<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        &self.rows
    }
}

/// A `--json` argument: a file that can be written. It is tried at once, not when hours of turns are over;
/// what it holds stays until there is something new, and a new one is made only then.
pub fn json_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let tried = if path.exists() {
        std::fs::File::options().write(true).open(&path).map(drop)
    } else {
        std::fs::File::create_new(&path).and_then(|_| std::fs::remove_file(&path))
    };
    tried.map(|()| path).map_err(|e| e.to_string())
}

/// Writes the report to a file.
pub fn write_json<R: Serialize>(path: &Path, rows: Rows<R>) -> io::Result<()> {
    let command = crate::result::command();
    let rows = rows.rows.into_iter().zip(rows.watched);
    let rows = rows.map(|(row, watched)| WatchedRow { row, watched }).collect();
    let report = Report { command, machine: Fingerprint::here(), conditions: noted(), rows };
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    std::fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_refused_before_anything_runs() {
        let dir = crate::process::TempDir::new("report").unwrap();
        let old = dir.0.join("old.json");
        std::fs::write(&old, "as it was").unwrap();
        let new = dir.0.join("new.json");
        let of = |path: &Path| json_file(path.to_str().unwrap());
        assert_eq!((of(&old), of(&new)), (Ok(old.clone()), Ok(new.clone())));
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "as it was");
        assert!(!new.exists());
        assert!(of(&dir.0).is_err() && of(&dir.0.join("missing/x.json")).is_err());
    }

    #[test]
    fn a_row_is_written_with_what_the_machine_did_in_its_turns() {
        #[derive(Serialize)]
        struct Row {
            switch: &'static str,
            cycles_per_packet: f64,
        }
        let mut rows = Rows::default();
        turns::note("ours", Watched { seconds: 2.0, steal: 0.5, ..Watched::default() });
        rows.push(Row { switch: "ours", cycles_per_packet: f64::NAN });
        assert_eq!(rows[0].switch, "ours");
        let dir = crate::process::TempDir::new("rows").unwrap();
        let path = dir.0.join("rows.json");
        write_json(&path, rows).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let report = serde_json::from_str::<Value>(&text).unwrap();
        let row = &report["rows"][0];
        for field in ["cpu", "cpus", "caches", "mitigations", "huge_pages", "governor", "isolated"] {
            assert!(!report["machine"][field].is_null(), "{field} in {report}");
        }
        let expected = serde_json::json!({"seconds": 2.0, "steal": 0.5, "busy": 0.0, "preemptions": 0});
        assert_eq!(
            (&row["switch"], &row["cycles_per_packet"], &row["watched"]),
            (&"ours".into(), &Value::Null, &expected)
        );
    }

    #[test]
    fn processors_are_all_that_are_online() {
        let all = Fingerprint::here().cpus;
        let bound = std::thread::spawn(|| {
            packet::thread::pin(0);
            Fingerprint::here().cpus
        });
        assert_eq!(bound.join().unwrap(), all);
        assert!(std::thread::available_parallelism().unwrap().get() <= all);
    }
}

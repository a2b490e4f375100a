//! The file that a measurement writes: the command, the machine, the rows.

use crate::machine::huge_pages::noted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The contents of a JSON file: the command, the machine, and the rows.
#[derive(Serialize)]
pub struct Report<R: Serialize> {
    /// As typed.
    pub command: String,
    /// Processor, kernel, TSC rate.
    pub machine: Machine,
    /// Sizes of huge pages that each switch has taken, as recorded.
    pub huge_pages: BTreeMap<&'static str, String>,
    /// Results.
    pub rows: Vec<R>,
}

/// The machine.
#[derive(Serialize)]
pub struct Machine {
    /// Model name of the first processor.
    pub cpu: String,
    /// Number of processors that are online, whichever of them the benchmark's threads are bound to.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// TSC cycles per second.
    pub tsc_hz: u64,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find(|l| l.starts_with("model name"));
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpu: model.and_then(|l| l.split(": ").nth(1)).unwrap_or("unknown").to_string(),
            cpus: cpuinfo.lines().filter(|l| l.starts_with("processor")).count().max(1),
            kernel: kernel.trim().to_string(),
            tsc_hz: base::clock::tsc_hz(),
        }
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
pub fn write_json<R: Serialize>(path: &Path, rows: Vec<R>) -> io::Result<()> {
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let report = Report { command, machine: Machine::here(), huge_pages: noted(), rows };
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
    fn processors_are_all_that_are_online() {
        let all = Machine::here().cpus;
        let bound = std::thread::spawn(|| {
            packet::thread::pin(0);
            Machine::here().cpus
        });
        assert_eq!(bound.join().unwrap(), all);
        assert!(std::thread::available_parallelism().unwrap().get() <= all);
    }
}

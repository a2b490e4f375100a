//! The report of what `crosspoint demo` has shown, in the format of any other run.

use crate::machine::fingerprint::Fingerprint;
use crate::report;
use crate::result::store::{Store, check_replaceable};
use crate::result::{Better, Metric, Point, RunInfo, SCHEMA};
use crate::units::now_utc;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A stream from host to host through a guest.
pub struct Shown {
    /// Bytes of a frame, frame check sequence included.
    pub size: u16,
    /// Flows.
    pub flows: u32,
    /// Packets per second that arrived.
    pub packets_per_s: f64,
    /// Share of the packets that did not arrive, 0 to 1.
    pub loss: f64,
    /// Processors that the switch used.
    pub cpu_switch: f64,
    /// Processors that the guest used.
    pub cpu_guest: f64,
    /// CPU time of the switch per packet that arrived, in nanoseconds.
    pub cpu_ns_per_packet: f64,
    /// Round trips of single packets in microseconds: p50 and p99.
    pub round_trip_us: [f64; 2],
}

/// The mode of the runs that are written here.
const MODE: &str = "demo";

/// Fails if a directory holds a run of another kind: to be asked before the demonstration.
pub fn check_drawable(dir: &Path) -> Result<(), String> {
    check_replaceable(dir, MODE)
}

/// Writes a run into a directory, in place of an earlier demo's, and draws it. Returns the page's path. An
/// error where the directory holds a run of another kind, or cannot be written.
pub fn draw(dir: &Path, streams: &[Shown]) -> Result<PathBuf, String> {
    let machine = Fingerprint::here();
    let info = RunInfo {
        schema: SCHEMA.into(),
        started: now_utc(),
        command: crate::result::command(),
        mode: MODE.into(),
        warnings: machine.warnings(),
        machine,
        ..RunInfo::default()
    };
    let mut store = Store::replace(dir, info)?;
    store.warn("A demonstration of a second or two for each stream: do not quote its figures.".into())?;
    store.put("pvp.demo", &streams.iter().map(point).collect::<Vec<_>>(), &BTreeMap::new())?;
    report::run(&[dir.to_path_buf()], None).map_err(|e| e.to_string())
}

fn point(shown: &Shown) -> Point {
    let labels = [
        ("path", "host to host".to_string()),
        ("guest", "builtin".to_string()),
        ("size", shown.size.to_string()),
        ("flows", shown.flows.to_string()),
    ];
    let cycles = shown.cpu_ns_per_packet * base::clock::tsc_hz() as f64 / 1e9;
    let figures = [
        ("mpps", "Mpps", Better::Higher, shown.packets_per_s / 1e6),
        ("loss", "ratio", Better::Lower, shown.loss),
        ("cycles_per_packet", "cycles", Better::Lower, cycles),
        ("cpu_switch", "processors", Better::Neither, shown.cpu_switch),
        ("cpu_guest", "processors", Better::Neither, shown.cpu_guest),
        ("round_trip_p50_us", "us", Better::Lower, shown.round_trip_us[0]),
        ("round_trip_p99_us", "us", Better::Lower, shown.round_trip_us[1]),
    ];
    Point {
        suite: "pvp".into(),
        switch: "crosspoint".into(),
        labels: labels.map(|(name, value)| (name.to_string(), value)).into(),
        metrics: figures
            .map(|(name, unit, better, value)| (name.to_string(), Metric::new(unit, better, vec![value])))
            .into(),
        warnings: vec!["sender, switch, guest and receiver share the processors".into()],
        command: "crosspoint demo".into(),
        ..Point::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_is_drawn_anew_in_the_same_place_and_overwrites_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let shown = |flows| Shown {
            size: 64,
            flows,
            packets_per_s: 250_000.0,
            loss: 0.01,
            cpu_switch: 0.5,
            cpu_guest: 0.4,
            cpu_ns_per_packet: 400.0,
            round_trip_us: [70.0, 90.0],
        };
        draw(dir.path(), &[shown(10)]).unwrap();
        // The earlier one was on another kernel.
        let info = dir.path().join("run.json");
        let kernel = format!("\"kernel\": \"{}", Fingerprint::here().kernel);
        let older = std::fs::read_to_string(&info).unwrap().replace(&kernel, "\"kernel\": \"6.1");
        std::fs::write(&info, older).unwrap();
        let page = draw(dir.path(), &[shown(10), shown(1_000)]).unwrap();
        let text = std::fs::read_to_string(page).unwrap();
        assert!(text.contains("<section id=\"pvp\">") && text.contains("data-points=\"2\""), "{text}");
        let other = std::fs::read_to_string(&info).unwrap().replace("\"demo\"", "\"full\"");
        std::fs::write(&info, other).unwrap();
        let why = draw(dir.path(), &[shown(10)]).unwrap_err();
        assert!(why.contains("begun as a full run"), "{why}");
    }
}

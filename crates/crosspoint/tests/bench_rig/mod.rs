//! Runs `crosspoint bench`, and reads what it stores. Not every program that tests it needs all of this.
#![allow(dead_code)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

/// They pin their threads: one at a time.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")));
    command.arg("bench").args(args);
    command
}

/// Exit code, standard output, standard error.
pub fn run(args: &[&str]) -> (i32, String, String) {
    let (_, code, out, said) = run_with_id(args);
    (code, out, said)
}

/// Process id, exit code, standard output, standard error.
pub fn run_with_id(args: &[&str]) -> (u32, i32, String, String) {
    let child = bench(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (id, status.code().unwrap(), text(stdout), text(stderr))
}

pub fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The points of a run whose steps begin so.
pub fn points_in(run: &Path, step: &str) -> Vec<Value> {
    let files = fs::read_dir(run.join("points")).unwrap().flatten();
    let of_step = files.filter(|f| f.file_name().to_string_lossy().starts_with(step));
    of_step.flat_map(|f| json(&f.path()).as_array().unwrap().clone()).collect()
}

/// Offered = received + lost, with what was lost by who lost it, to a packet in ten thousand: counters of
/// kernel and switch are not read at one moment.
pub fn assert_adds_up(point: &Value) {
    let of = |field: &str| point["account"][field].as_u64().unwrap();
    let dropped: u64 =
        point["account"]["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    let owed = of("offered") * of("copies");
    let explained = of("received") + of("not_sent") * of("copies") + dropped;
    assert!(explained.abs_diff(owed) <= 1 + owed / 10_000, "{point}");
}

/// Runs suites briefly and returns all points.
pub fn points_of(args: &[&str]) -> Vec<Value> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let (code, _, said) = run(&[&["run", "--quick", "--out", out.to_str().unwrap()][..], args].concat());
    assert_eq!(code, 0, "{said}");
    points_in(&out, "")
}

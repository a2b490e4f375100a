//! `scripts/interop-tests` with a cargo that is a small script: what is run again, and what is not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A directory with a cargo that prints the log of its first or second run, and ends with the same status.
struct Runs(PathBuf);

/// A run: its log, and cargo's status.
type Run = (&'static str, u8);

impl Runs {
    fn new(name: &str, runs: &[Run]) -> Runs {
        let dir = std::env::temp_dir().join(format!("tidy-interop-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (n, (log, status)) in runs.iter().enumerate() {
            fs::write(dir.join(format!("log{n}")), log).unwrap();
            fs::write(dir.join(format!("status{n}")), status.to_string()).unwrap();
        }
        let cargo = "#!/bin/sh\nn=$(cat $M/calls 2>/dev/null | wc -l)\necho \"${*#*--exact}\" >>$M/calls\n\
                     cat $M/log$n\nexit $(cat $M/status$n)\n";
        fs::write(dir.join("cargo"), cargo).unwrap();
        fs::set_permissions(dir.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.join("log"), "").unwrap();
        Runs(dir)
    }

    /// Whether it passes.
    fn run(&self) -> bool {
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap());
        let mut script = Command::new(testkit::root().join("scripts/interop-tests"));
        let output = script.arg(self.0.join("log")).env("PATH", path).env("M", &self.0).output().unwrap();
        output.status.success()
    }

    /// The tests that each call of cargo named.
    fn named(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.0.join("calls")).unwrap();
        calls.lines().map(|call| call.trim().to_string()).collect()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PASSED: Run = ("Program x interop\ntest a ... ok <1.0s>\ntest result: ok. 1 passed; 0 failed\n", 0);
const ONE_FAILED: Run = (
    "Program x interop\ntest a ... FAILED <1.0s>\ntest b ... ok <1.0s>\ntest result: FAILED. 1 passed; 1 failed\n",
    101,
);

#[test]
fn a_test_that_fails_is_run_once_more() {
    let runs = Runs::new("failed", &[ONE_FAILED, PASSED]);
    assert!(!runs.run());
    assert!(runs.run());
    assert_eq!(runs.named(), ["", "a"]);
}

#[test]
fn after_a_test_that_hung_or_killed_its_program_nothing_passes() {
    const HUNG: Run =
        ("Program x interop\ntest a ... FAILED <1.0s>\ntest b has been running for over 60 seconds\n", 124);
    const ABORTED: Run = (
        "Program x interop\ntest a ... FAILED <1.0s>\nProgram y interop\ntest c ... ok <1.0s>\n\
         test result: ok. 1 passed; 0 failed\n",
        101,
    );
    for (name, first) in [("hung", HUNG), ("aborted", ABORTED), ("built", ("error: linking failed\n", 101))] {
        let runs = Runs::new(name, &[first, PASSED]);
        assert!(!runs.run() && !runs.run(), "{name}");
        assert_eq!(runs.named(), [""], "{name}");
    }
}

//! A script in network, process and mount namespaces of its own, with which all that it starts ends.

use crate::common::{RunDir, links, run, run_dir};
use std::process::Command;

/// Whose switch and database the stock names mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Programs {
    Ours,
    Stock,
}

/// Runs a script of this directory, with another for all that the programs write. What it said.
#[track_caller]
pub fn in_namespaces(programs: Programs, interpreter: &str, script: &str) -> String {
    let dir = run_dir();
    let mut path = std::env::var("PATH").unwrap();
    if programs == Programs::Ours {
        path = format!("{}:{path}", links(dir.path()).display());
    }
    let here = testkit::root().join("crates/crosspoint/tests/interop");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "300", "unshare", "--net", "--pid", "--fork", "--kill-child"]);
    command.args(["--mount", "--mount-proc", interpreter]).arg(here.join(script)).env("PATH", path);
    let said = run(RunDir::lead(&dir, &mut command));
    assert!(said.succeeded(), "{script} with {programs:?}: {said:?}");
    said.out
}

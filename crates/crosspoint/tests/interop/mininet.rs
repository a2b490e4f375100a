//! Mininet builds networks of namespaces and switches by `ovs-vsctl`, with `ovs-testcontroller` in charge of
//! them.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

/// Runs a script in network, process and mount namespaces of its own, with our programs under the stock names
/// first on the path, and a directory of its own for all that they write. What it printed.
fn in_namespaces(script: &str) -> String {
    let dir = tempfile::Builder::new().prefix("crosspoint-interop-").tempdir().unwrap();
    let binary = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let names =
        ["ovs-appctl", "ovs-dpctl", "ovs-ofctl", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool"];
    for name in names {
        symlink(&binary, dir.path().join(name)).unwrap();
    }
    let here = testkit::root().join("crates/crosspoint/tests/interop");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let said = Command::new("timeout")
        .args(["--kill-after=10", "300", "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount"])
        .args(["--mount-proc", "bash"])
        .arg(here.join(script))
        .env("PATH", path)
        .envs(["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"].map(|name| (name, dir.path())))
        .current_dir(&here)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let log = std::fs::read_to_string(dir.path().join("ovs-vswitchd.log")).unwrap_or_default();
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{script}: {}\n{text}\n{errors}\nthe switch's log:\n{log}", said.status);
    text
}

#[test]
fn hosts_of_mininet_reach_each_other_through_one_switch_and_through_many() {
    let said = in_namespaces("mininet.sh");
    for topology in ["single,4", "linear,4", "tree,2,3"] {
        assert!(said.contains(&format!("{topology}: all hosts answer, TCP passes")), "{said}");
    }
}

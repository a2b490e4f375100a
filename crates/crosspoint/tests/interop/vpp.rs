//! The adapter for FD.io's VPP, beside a stand-in that keeps what it was told and forwards.

use crate::bench_rig::{ONE_AT_A_TIME, assert_adds_up, bench, json, points_in};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::sync::PoisonError;

/// Runs a step with the stand-in in the place of VPP.
fn run(dir: &Path, step: &str) -> Output {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for name in ["vpp", "vppctl"] {
        fs::write(dir.join(name), include_str!("vpp.py")).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let out = dir.join("run");
    let mut command = bench(&["run", step, "--quick", "--switch", "vpp", "--out", out.to_str().unwrap()]);
    command.env("CROSSPOINT_VPP", dir).output().unwrap()
}

#[test]
fn vpp_is_told_what_its_documentation_has_and_its_packets_are_accounted_for() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), "forwarding-table.nic");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let told = fs::read_to_string(dir.path().join("told")).unwrap();
    let wanted = "show version\n\
                  create host-interface name p0\nset interface state host-p0 up\n\
                  create host-interface name p1\nset interface state host-p1 up\n\
                  set interface l2 xconnect host-p0 host-p1\n";
    assert!(told.starts_with(wanted), "{told}");
    let points = points_in(&dir.path().join("run"), "forwarding-table");
    let point = &points[0];
    assert_eq!((points.len(), point["switch"].as_str()), (1, Some("vpp")), "{said}");
    assert!(point["account"]["received"].as_u64().unwrap() > 1_000, "{point}");
    assert_adds_up(point);
    assert_eq!(point["identity"]["version"], "vpp v99.01-stand-in built by nobody on nowhere");
    assert_eq!(point["conditions"]["workers"], "1", "{point}");
    assert_eq!(point["conditions"]["batch"], "256", "{point}");
    // Nobody has tried it with a VPP, which every report says.
    let warnings = json(&dir.path().join("run/run.json"))["warnings"].to_string();
    assert!(warnings.contains("tried with a stand-in alone"), "{warnings}");
    let report = fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    assert!(report.contains("tried with a stand-in alone"));
}

#[test]
fn what_vpp_refuses_fails_the_load_in_its_words() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["create host-interface", "set interface l2 xconnect"] {
        fs::write(dir.path().join("refuses"), command).unwrap();
        let output = run(dir.path(), "forwarding-table.nic");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("VPP refuses ") && said.contains(&format!("{command}: failed")), "{said}");
        fs::remove_dir_all(dir.path().join("run")).unwrap();
    }
    // A cross-connect has one end.
    let output = run(dir.path(), "native-vs-poll-mode.guest");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("VPP's cross-connect leads from each port to one other"), "{said}");
}

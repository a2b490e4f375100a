//! The tutorial, run as it is written: every block of commands of docs/tutorial.md, in a network namespace of
//! its own.

use crate::common::{binary, run_dir, shell_blocks};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn every_command_of_the_tutorial_works() {
    let tutorial = testkit::root().join("docs/tutorial.md");
    let commands = shell_blocks(&fs::read_to_string(tutorial).unwrap());
    assert!(commands.lines().count() > 40, "{commands}");
    let dir = run_dir();
    let path = |name: &str| dir.path().join(name);
    // The reader's directory is one of this test's own, and so are the names of namespaces.
    let commands = commands.replace("/tmp/tutorial", &path("t").display().to_string());
    let machine = "mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip link set lo up\n";
    let end = "for f in $OVS_RUNDIR/*.pid; do kill $(cat $f 2>/dev/null) 2>/dev/null || true; done";
    fs::write(path("script"), format!("set -e\ntrap '{end}' EXIT\n{machine}set -x\n{commands}")).unwrap();
    let output = fs::File::create(path("output")).unwrap();
    let status = Command::new("unshare")
        .args(["--net", "--mount", "bash"])
        .arg(path("script"))
        .env("CROSSPOINT", binary())
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .status()
        .unwrap();
    let said = fs::read_to_string(path("output")).unwrap();
    let log = fs::read_to_string(path("t/ovs-vswitchd.log")).unwrap_or_default();
    assert!(status.success(), "{said}\n{log}");
    // Guests print what they saw: frames in order, none missing.
    for part in ["3 packets transmitted, 3 received", "action_drop", "missing 0 reordered 0"] {
        assert!(said.contains(part), "{part} is missing:\n{said}\n{log}");
    }
    // One ping in the wrong VLAN, one against a rule, one without a controller.
    assert_eq!(said.matches("100% packet loss").count(), 3, "{said}\n{log}");
}

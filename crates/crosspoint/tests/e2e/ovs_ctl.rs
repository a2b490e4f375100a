//! Debian's own `ovs-ctl`, unmodified, drives our links: start, status, version, restart with the flows saved
//! and restored, stop.

use crate::common::{RunDir, links, run_dir, wait_for};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SCRIPTS: &str = "/usr/share/openvswitch/scripts";

/// A system of its own in a directory.
struct System {
    dir: RunDir,
}

impl System {
    fn new() -> System {
        let dir = run_dir();
        for part in ["run", "db", "log", "data", "etc/openvswitch"] {
            fs::create_dir_all(dir.path().join(part)).unwrap();
        }
        let system = System { dir };
        links(system.dir.path());
        // The kernel's module is loaded with modprobe, which is not ours to try on this machine.
        script(&system.path("bin/modprobe"), "exit 0");
        for name in ["scripts", "vswitch.ovsschema"] {
            let data = Path::new("/usr/share/openvswitch").join(name);
            std::os::unix::fs::symlink(data, system.path("data").join(name)).unwrap();
        }
        system
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, program: impl AsRef<Path>, args: &[&str]) -> Output {
        let output = self.dir.path().join("output");
        // Into a file: a pipe would be held open by what goes to the background.
        let file = fs::File::create(&output).unwrap();
        let mut command = Command::new(program.as_ref());
        let status = command
            .args(args)
            .env("PATH", format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap()))
            .env("OVS_BINDIR", self.path("bin"))
            .env("OVS_SBINDIR", self.path("bin"))
            .env("OVS_RUNDIR", self.path("run"))
            .env("OVS_DBDIR", self.path("db"))
            .env("OVS_LOGDIR", self.path("log"))
            .env("OVS_PKGDATADIR", self.path("data"))
            .env("OVS_SYSCONFDIR", self.path("etc"))
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .status()
            .unwrap();
        Output { status, stdout: fs::read(output).unwrap(), stderr: Vec::new() }
    }

    #[track_caller]
    fn ok(&self, program: impl AsRef<Path>, args: &[&str]) -> String {
        let output = self.run(program, args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{args:?}: {text}\n{}", self.logs());
        text
    }

    #[track_caller]
    fn ctl(&self, args: &[&str]) -> String {
        self.ok(Path::new(SCRIPTS).join("ovs-ctl"), args)
    }

    fn ours(&self, name: &str) -> std::path::PathBuf {
        self.path("bin").join(name)
    }

    fn logs(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path("log").join(name)).unwrap_or_default();
        read("ovs-vswitchd.log") + &read("ovsdb-server.log")
    }

    fn pid(&self, daemon: &str) -> String {
        fs::read_to_string(self.path("run").join(format!("{daemon}.pid"))).unwrap().trim().to_string()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        for daemon in ["ovs-vswitchd", "ovsdb-server"] {
            if let Ok(pid) = fs::read_to_string(self.path("run").join(format!("{daemon}.pid"))) {
                let _ = Command::new("kill").arg(pid.trim()).status();
            }
        }
    }
}

fn script(path: &Path, body: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn debians_ovs_ctl_starts_restarts_and_stops_our_daemons_unmodified() {
    let system = System::new();
    let start = ["--system-id=random", "--no-record-hostname"];
    let dummy = "--ovs-vswitchd-options=--enable-dummy=override";
    let said = system.ctl(&[&["start", dummy][..], &start].concat());
    assert!(said.contains("Starting ovsdb-server") && said.contains("Starting ovs-vswitchd"), "{said}");
    let id = fs::read_to_string(system.path("etc/openvswitch/system-id.conf")).unwrap();
    let vsctl = |args: &[&str]| system.ok(system.ours("ovs-vsctl"), &[&["--timeout=30"], args].concat());
    let stored = vsctl(&["get", "Open_vSwitch", ".", "external_ids:system-id"]);
    assert_eq!(stored.trim().trim_matches('"'), id.trim());
    assert_eq!(vsctl(&["get", "Open_vSwitch", ".", "ovs_version"]).trim(), "\"3.1.0\"");

    let status = system.ctl(&["status"]);
    for daemon in ["ovsdb-server", "ovs-vswitchd"] {
        assert!(status.contains(&format!("{daemon} is running with pid {}", system.pid(daemon))), "{status}");
        // What the script compares to know that the process is the daemon.
        let comm = fs::read_to_string(format!("/proc/{}/comm", system.pid(daemon))).unwrap();
        assert_eq!(comm.trim(), daemon);
    }
    let version = system.ctl(&["version"]);
    assert!(version.contains("ovs-vswitchd (Open vSwitch) 3.1.0"), "{version}");
    // A second start finds both running.
    let again = system.ctl(&[&["start"][..], &start].concat());
    assert!(
        again.contains("ovsdb-server is already running")
            && again.contains("ovs-vswitchd is already running")
    );

    let ports = "--may-exist add-br br0 -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=7";
    vsctl(&ports.split(' ').collect::<Vec<_>>());
    let ofctl = |args: &[&str]| system.ok(system.ours("ovs-ofctl"), args);
    ofctl(&["del-flows", "br0"]);
    ofctl(&["add-flow", "br0", "priority=77,in_port=7,actions=drop"]);
    let flows = || ofctl(&["--no-stats", "--no-names", "dump-flows", "br0"]);
    let before = (system.pid("ovs-vswitchd"), flows());
    assert!(before.1.contains("priority=77"), "{}", before.1);

    // The script asks in the newest version that a bridge speaks, groups first.
    vsctl(&["set", "bridge", "br0", "protocols=OpenFlow10,OpenFlow13,OpenFlow15"]);
    let said = system.ctl(&[&["restart", dummy][..], &start].concat());
    assert!(said.contains("Saving flows") && said.contains("Restoring saved flows"), "{said}");
    assert!(!said.contains("ovs-ofctl"), "{said}");
    let groups = ofctl(&["-O", "OpenFlow13", "dump-groups", "br0"]);
    assert_eq!(groups, "OFPST_GROUP_DESC reply (OF1.3) (xid=0x2):\n");
    fs::write(system.path("groups"), "# none\n\n").unwrap();
    let file = system.path("groups").display().to_string();
    assert_eq!(ofctl(&["-O", "OpenFlow15", "add-groups", "br0", &file, "--bundle"]), "");
    fs::write(system.path("groups"), "group_id=1,type=all,bucket=output:1\n").unwrap();
    assert_eq!(ofctl(&["-O", "OpenFlow15", "add-groups", "br0", &file, "--bundle"]), "");
    let groups = ofctl(&["-O", "OpenFlow13", "dump-groups", "br0"]);
    assert!(groups.contains("group_id=1,type=all,bucket="), "{groups}");
    assert_ne!(system.pid("ovs-vswitchd"), before.0);
    wait_for("the flows", || flows().contains("priority=77"));
    assert_eq!(flows().lines().filter(|l| l.contains("actions")).count(), 1);
    assert_eq!(fs::read_to_string(system.path("etc/openvswitch/system-id.conf")).unwrap(), id);

    let said = system.ctl(&["stop"]);
    assert!(said.contains("Exiting ovs-vswitchd") && said.contains("Exiting ovsdb-server"), "{said}");
    assert!(!system.run(Path::new(SCRIPTS).join("ovs-ctl"), &["status"]).status.success());
    assert_eq!(
        fs::read_dir(system.path("run"))
            .unwrap()
            .filter(|e| {
                let name = e.as_ref().unwrap().file_name().into_string().unwrap();
                name.ends_with(".pid") || name.ends_with(".ctl")
            })
            .count(),
        0
    );
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        let log = fs::read_to_string(system.path("log").join(format!("{daemon}.log"))).unwrap();
        let loud: Vec<&str> = log.lines().filter(|l| l.contains("|ERR|") || l.contains("|EMER|")).collect();
        assert!(loud.is_empty(), "{loud:#?}");
    }
}

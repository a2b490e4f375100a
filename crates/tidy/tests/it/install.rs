//! `scripts/install` against a machine made of small scripts: what it installs, that nothing can start
//! meanwhile or at the next boot, and that it leaves what was there as it was.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory that stands for the machine: `bin` goes before the real programs, `installed` has one file
/// per installed package, `log` says what was called.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let machine =
            Machine(std::env::temp_dir().join(format!("tidy-install-{name}-{}", std::process::id())));
        for directory in ["bin", "installed", "units"] {
            fs::create_dir_all(machine.0.join(directory)).unwrap();
        }
        machine.write(
            "packages.txt",
            "there | test | is there\nnew | test lint | is missing\nother | lint | no\n",
        );
        machine.write("installed/there", "");
        machine.program("id", "echo 0");
        machine.program(
            "dpkg-query",
            "case $# in 2) for f in $M/installed/*; do echo \"$(basename $f) installed\"; done ;;
             *) [ -e $M/installed/$3 ] && printf installed ;; esac",
        );
        machine.program(
            "apt-get",
            "echo \"apt-get $*\" >>$M/log; cat $M/policy >$M/policy_seen; [ ! -e $M/broken ] || exit 100
             for a in $*; do case $a in new) touch $M/installed/new ;; esac; done",
        );
        machine.program(
            "dpkg",
            "printf '%s\\n' /lib/systemd/system /lib/systemd/system/$2.service /lib/systemd/system/$2@.service /etc/init.d/$2",
        );
        machine.program("update-rc.d", "echo \"update-rc.d $*\" >>$M/log");
        machine
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.0.join(file)).ok()
    }

    fn program(&self, name: &str, body: &str) {
        let path = self.0.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn install(&self, arguments: &[&str]) -> Output {
        let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
        Command::new(testkit::root().join("scripts/install"))
            .args(arguments)
            .env("PATH", path)
            .env("M", &self.0)
            .env("CROSSPOINT_PACKAGES", self.0.join("packages.txt"))
            .env("CROSSPOINT_POLICY_RC_D", self.0.join("policy"))
            .env("CROSSPOINT_UNIT_DIR", self.0.join("units"))
            .env_remove("CROSSPOINT_NO_INSTALL")
            .output()
            .unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Left behind it would only take room in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn what_is_missing_is_installed_and_nothing_starts_by_it() {
    let machine = Machine::new("missing");
    let output = machine.install(&["test"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("is missing"), "it says so before: {}", text(&output));
    let log = machine.read("log").unwrap();
    assert!(log.contains("install -y --no-install-recommends new\n"), "{log}");
    assert!(machine.read("policy_seen").unwrap().contains("exit 101"));
    assert_eq!(machine.read("policy"), None, "it is taken away again");
    assert_eq!(fs::read_link(machine.0.join("units/new.service")).unwrap(), PathBuf::from("/dev/null"));
    assert!(!machine.0.join("units/new@.service").exists());
    assert!(!machine.0.join("units/there.service").is_symlink(), "what was there before is not touched");
    assert!(log.contains("update-rc.d new disable"), "{log}");
}

#[test]
fn what_is_there_needs_neither_apt_nor_root() {
    let machine = Machine::new("there");
    machine.write("installed/new", "");
    machine.program("id", "echo 1000");
    let output = machine.install(&["test"]);
    assert!(output.status.success());
    assert_eq!((text(&output), machine.read("log")), (String::new(), None));
}

#[test]
fn without_root_it_names_the_command_and_changes_nothing() {
    let machine = Machine::new("user");
    machine.program("id", "echo 1000");
    let output = machine.install(&["test"]);
    assert!(!output.status.success());
    assert!(text(&output).contains("sudo scripts/install test"), "{}", text(&output));
    assert_eq!(machine.read("log"), None);
}

#[test]
fn a_dry_run_changes_nothing() {
    let machine = Machine::new("dry");
    let output = machine.install(&["--dry-run", "lint"]);
    assert!(output.status.success());
    assert!(text(&output).contains("install -y --no-install-recommends new other"), "{}", text(&output));
    assert_eq!(machine.read("log"), None);
}

#[test]
fn a_policy_of_the_user_is_restored_also_after_failure_and_after_being_killed() {
    let machine = Machine::new("policy");
    machine.write("policy", "the user's");
    machine.write("broken", "");
    assert!(!machine.install(&["test"]).status.success());
    assert_eq!(machine.read("policy").as_deref(), Some("the user's"));
    assert!(machine.read("policy_seen").unwrap().contains("exit 101"));

    // As a run leaves it that was killed: ours in place, the user's aside.
    fs::remove_file(machine.0.join("broken")).unwrap();
    fs::rename(machine.0.join("policy"), machine.0.join("policy.before-crosspoint")).unwrap();
    machine.write("policy", &machine.read("policy_seen").unwrap());
    assert!(machine.install(&["test"]).status.success());
    assert_eq!(machine.read("policy").as_deref(), Some("the user's"));
    assert_eq!(machine.read("policy.before-crosspoint"), None);
}

//! Runs that are killed, interrupted or in part fail: what they leave is given back, and they can be resumed.

use crate::bench_rig::{ONE_AT_A_TIME, bench, json, points_in, run};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::lab::wait_for;

#[test]
fn what_a_killed_run_leaves_is_given_back_by_the_next_and_it_can_be_resumed() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (dir, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let out = dir.path().join("run");
    let out = out.to_str().unwrap();
    let args = ["run", "io-loop", "counts", "--quick", "--out", out];
    let mut runner = bench(&args).env("TMPDIR", tmp.path()).output_in(dir.path());
    let journal = || {
        let lease = fs::read_dir(tmp.path())
            .unwrap()
            .flatten()
            .find(|e| e.file_name().to_string_lossy().starts_with("crosspoint-bench-lease-"))?;
        fs::read_to_string(lease.path().join("journal")).ok()
    };
    let namespaces = || -> Vec<String> {
        let journal = journal().unwrap_or_default();
        journal.lines().filter_map(|l| l.strip_prefix("namespace ")).map(str::to_string).collect()
    };
    wait_for("two namespaces", || {
        let made = namespaces();
        made.len() >= 2 && made.iter().all(|n| Path::new("/run/netns").join(n).exists())
    });
    let made = namespaces();
    runner.kill().unwrap();
    runner.wait().unwrap();
    let (code, _, said) = {
        let output = bench(&["run", "counts", "--quick", "--out", out, "--resume"])
            .env("TMPDIR", tmp.path())
            .output()
            .unwrap();
        (output.status.code().unwrap(), (), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("given back after a run that was killed"), "{said}");
    for name in made {
        assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is still there\n{said}");
    }
    let left: Vec<_> = fs::read_dir(tmp.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Starts a command whose output goes to files.
trait OutputIn {
    fn output_in(&mut self, dir: &Path) -> std::process::Child;
}

impl OutputIn for Command {
    fn output_in(&mut self, dir: &Path) -> std::process::Child {
        let file = |name: &str| fs::File::create(dir.join(name)).unwrap();
        self.stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap()
    }
}

/// A program that is `real` as soon as `PATH.mended` exists.
fn broken_version(dir: &Path, real: &Path) -> (String, std::path::PathBuf) {
    let program = dir.join("version");
    let text = format!("#!/bin/sh\n[ -e $0.mended ] || exit 9\nexec {} \"$@\"\n", real.display());
    write_program(&program, &text);
    (format!("crosspoint@{}", program.display()), dir.join("version.mended"))
}

fn write_program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_run_that_is_resumed_measures_again_what_failed_with_one_switch() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let (version, mended) =
        broken_version(dir.path(), &testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")));
    let args =
        ["run", "forwarding-table.nic", "--quick", "--switch", "bridge", "--switch", &version, "--out"];
    let args = [&args[..], &[out.to_str().unwrap()]].concat();
    let (code, _, said) = run(&args);
    let points = || points_in(&out, "forwarding-table.nic.P2P").len();
    assert_eq!((code, points()), (1, 1), "{said}");
    let failed = || json(&out.join("run.json"))["failed"].as_object().unwrap().clone();
    assert!(failed().keys().all(|step| step.ends_with(&version)) && failed().len() == 1, "{:?}", failed());
    let again = [&args[..], &["--resume"]].concat();
    let (code, _, said) = run(&again);
    let before = |said: &str| said.matches("measured before").count();
    assert_eq!((code, failed().len(), before(&said)), (1, 1, 0), "{said}");
    fs::write(mended, "").unwrap();
    let (code, _, said) = run(&again);
    assert_eq!((code, failed().len()), (0, 0), "{said}");
    assert_eq!((points(), before(&said)), (2, 0), "{said}");
    let (code, _, said) = run(&again);
    assert_eq!((code, before(&said)), (0, 1), "{said}");
    // One that could not be measured then, and can be by now.
    let load = fs::read_dir(out.join("points")).unwrap().flatten().map(|e| e.path());
    let load = load.into_iter().find(|path| path.to_string_lossy().contains(".P2P.")).unwrap();
    let one = json(&load).as_array().unwrap()[..1].to_vec();
    fs::write(&load, Value::Array(one).to_string()).unwrap();
    let (code, _, said) = run(&again);
    assert_eq!((code, before(&said), points()), (0, 0, 2), "{said}");
}

#[test]
fn a_switch_that_dies_in_a_trial_is_named_and_what_others_did_is_kept() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    // It ends as soon as traffic is under way.
    let program = dir.path().join("dying");
    let text = format!(
        "#!/bin/sh\n[ $1 = switch ] && [ $2 != --help ] || exec {0} \"$@\"\n{0} \"$@\" &\n\
         until awk 'NR > 2 && ($3 > 500 || $11 > 500) {{ n = 1 }} END {{ exit !n }}' /proc/net/dev; do sleep 0.02; done\n\
         kill -9 $!\nexit 9\n",
        ours.display()
    );
    write_program(&program, &text);
    let (version, out) = (format!("crosspoint@{}", program.display()), dir.path().join("run"));
    let args =
        ["run", "forwarding-table.nic", "--quick", "--switch", "bridge", "--switch", &version, "--out"];
    let (code, _, said) = run(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert_eq!(code, 1, "{said}");
    let failed = json(&out.join("run.json"))["failed"].as_object().unwrap().clone();
    let [(step, why)] = &failed.iter().collect::<Vec<_>>()[..] else { panic!("{failed:?}") };
    assert!(step.ends_with(&version) && why.as_str().unwrap().contains("the switch has died"), "{failed:?}");
    assert!(said.contains("the switch has died"), "{said}");
    let kept = points_in(&out, "forwarding-table.nic.P2P");
    assert!(kept.len() == 1 && kept[0]["switch"] == "bridge", "{kept:?}");
}

#[test]
fn a_run_that_is_resumed_keeps_its_verdict_and_its_build() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    // It knows one bench, in which it is much faster.
    let other = dir.path().join("faster");
    let text = format!(
        "#!/bin/sh\n[ $2 = misses ] || {{ echo 'unexpected argument' >&2; exit 2; }}\n\
         {} \"$@\" || exit\nfor last; do :; done\nsed -i 's/^\\( *[0-9.]*\\)\\(,*\\)$/\\1e30\\2/' $last\n",
        ours.display()
    );
    write_program(&other, &text);
    let version = format!("crosspoint@{}", other.display());
    let args = ["run", "regression", "--quick", "--switch", &version, "--out", out.to_str().unwrap()];
    let (code, _, said) = run(&args);
    assert!(code == 1 && said.contains("slower than "), "{code} {said}");
    let again = [&args[..], &["--resume"]].concat();
    let (code, _, said) = run(&again);
    assert!(code == 1 && said.contains("slower than ") && said.contains("measured before"), "{code} {said}");
    // Another build would mix its figures with those of this one.
    write_program(&other, &(text + "# mended\n"));
    let (code, _, said) = run(&again);
    assert!(code == 2 && said.contains("faster is another build by now"), "{code} {said}");
}

/// A version that leaves a process behind, which holds its output open and is in no record.
fn leaving_version(dir: &Path, then: &str) -> (String, std::path::PathBuf) {
    let program = dir.join("leaving");
    write_program(&program, &format!("#!/bin/sh\nsleep 300 &\necho $! >$0.pid\n{then}\n"));
    (format!("crosspoint@{}", program.display()), dir.join("leaving.pid"))
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_run_waits_for_nobody_who_holds_the_output_of_a_program_that_has_ended() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (dir, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let (version, pid) = leaving_version(dir.path(), &format!("exec {} \"$@\"", ours.display()));
    let out = dir.path().join("run");
    let start = std::time::Instant::now();
    let mut command = bench(&["run", "p2p.exact", "--quick", "--switch", &version, "--out"]);
    let output = command.arg(&out).env("TMPDIR", tmp.path()).output().unwrap();
    // What is left behind would hold it for five minutes.
    assert!(start.elapsed().as_secs() < 120, "{:?}", start.elapsed());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!is_alive(&fs::read_to_string(pid).unwrap()) && is_empty(tmp.path()));
}

#[test]
fn a_comparison_of_builds_that_is_interrupted_or_killed_leaves_nothing() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (dir, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (version, file) = leaving_version(dir.path(), "wait");
    let out = dir.path().join("run");
    let pid = || fs::read_to_string(&file).ok().filter(|pid| pid.ends_with('\n'));
    let run_until = |signal: &str| {
        let _ = fs::remove_file(&file);
        let _ = fs::remove_dir_all(&out);
        let mut command = bench(&["run", "regression", "--quick", "--switch", &version, "--out"]);
        let mut runner = command.arg(&out).env("TMPDIR", tmp.path()).output_in(dir.path());
        wait_for("a process of the version", || pid().is_some());
        let start = std::time::Instant::now();
        assert!(Command::new("kill").args([signal, &runner.id().to_string()]).status().unwrap().success());
        let status = runner.wait().unwrap();
        (status.code(), start.elapsed(), fs::read_to_string(dir.path().join("stderr")).unwrap())
    };
    for signal in ["-TERM", "-INT"] {
        let (code, took, said) = run_until(signal);
        assert!(code == Some(1) && said.contains("interrupted; what was measured is in"), "{code:?} {said}");
        assert!(took.as_secs() < 3, "{took:?}");
        assert!(!is_alive(&pid().unwrap()) && is_empty(tmp.path()), "{said}");
    }
    run_until("-KILL");
    assert!(is_alive(&pid().unwrap()) && !is_empty(tmp.path()));
    let mut next = bench(&["run", "counts", "--quick", "--out"]);
    let output = next.arg(dir.path().join("next")).env("TMPDIR", tmp.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let line = format!("given back after a run that was killed: process {}", pid().unwrap().trim());
    assert!(output.status.success() && said.contains(&line), "{said}");
    assert!(!is_alive(&pid().unwrap()) && is_empty(tmp.path()), "{said}");
}

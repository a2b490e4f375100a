//! `crosspoint guest` and the daemon, as a user starts them: a switch that is killed and comes again under running guests.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that is ended by its id when the test ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only where it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn crosspoint(dir: &Path) -> Command {
    let mut command = Command::new(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")));
    command.env("OVS_RUNDIR", dir).stdin(Stdio::null());
    command
}

fn switch(dir: &Path) -> Process {
    let log = std::fs::File::options().create(true).append(true).open(dir.join("switch.log")).unwrap();
    let port = |n: u32, kind: &str, option: &str| {
        format!("vhost{n},type={kind},ofport={n},{option}={}", dir.join(format!("guest{n}")).display())
    };
    let child = crosspoint(dir)
        .args(["switch", "--bridge", "br0"])
        .args(["--port", &port(1, "dpdkvhostuserclient", "vhost-server-path")])
        .args(["--port", &port(2, "dpdkvhostuserclient", "vhost-server-path")])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    Process(child)
}

fn guest(dir: &Path, n: u32, args: &[&str]) -> Process {
    let log = std::fs::File::create(dir.join(format!("guest{n}.log"))).unwrap();
    let child = crosspoint(dir)
        .args(["guest", "--listen"])
        .args(args)
        .arg(dir.join(format!("guest{n}")))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    Process(child)
}

fn said(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).unwrap_or_default()
}

fn wait_for(what: &str, dir: &Path, mut f: impl FnMut() -> bool) {
    let start = Instant::now();
    while !f() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{what}\n{}\n{}\n{}",
            said(dir, "switch.log"),
            said(dir, "guest1.log"),
            said(dir, "guest2.log")
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn numbered_frames_cross_from_guest_to_guest_and_again_after_the_switch_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for layout in [&[][..], &["--packed"]] {
        let first = switch(dir);
        let checker = guest(dir, 2, &[&["--mode", "check"], layout].concat());
        let attached = |n: u32| said(dir, &format!("guest{n}.log")).matches("attached").count();
        wait_for("the checker attaches", dir, || attached(2) == 1);
        let source = guest(dir, 1, &[&["--mode", "source"], layout].concat());
        wait_for("the source attaches", dir, || attached(1) == 1);
        std::thread::sleep(Duration::from_millis(300));
        drop(first);
        let _second = switch(dir);
        wait_for("both attach again", dir, || attached(1) == 2 && attached(2) == 2);
        std::thread::sleep(Duration::from_millis(300));
        for process in [source, checker] {
            let pid = process.0.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
            let mut process = process;
            assert!(process.0.wait().unwrap().success());
        }
        let number = |n: u32, name: &str| -> u64 {
            let text = said(dir, &format!("guest{n}.log"));
            let line = text.lines().last().unwrap_or_default();
            let mut words = line.split_whitespace().skip_while(|word| *word != name).skip(1);
            words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
        };
        // What the full receive ring did not take is missing; nothing comes twice or late.
        assert!(number(2, "received") > 0 && number(1, "sent") >= number(2, "received"));
        assert_eq!(number(2, "reordered"), 0, "{}", said(dir, "guest2.log"));
    }
}

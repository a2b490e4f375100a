//! `--timeout` and `OVS_CTL_TIMEOUT` of all clients: they die of SIGALRM as the stock programs do, in the
//! background too, and leave no files behind.

use super::rig::{Server, link, words};
use crate::common::{Process, Said, Switch, kill, run_dir, wait_for};
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LIMIT: &str = "OVS_CTL_TIMEOUT";

/// The clients compared with the stock programs, each with words that nobody answers, and the option.
const WAITING: [(&str, &str, &str); 4] = [
    ("ovs-vsctl", "--db=unix:DIR/silent list-br", "-t"),
    ("ovs-appctl", "-t DIR/silent version", "-T"),
    ("ovs-ofctl", "dump-flows unix:DIR/silent", "-t"),
    ("ovsdb-client", "list-dbs unix:DIR/silent", "-t"),
];

/// How a program ended, signal included, which a shell tells from no exit code.
fn ended(command: &mut Command) -> (Said, Option<i32>) {
    use std::os::unix::process::ExitStatusExt;
    let output = command.env("OVS_SYSLOG_METHOD", "null").stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let said = Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    (said, output.status.signal())
}

#[test]
fn every_client_dies_of_sigalrm_where_nobody_answers() {
    let dir = run_dir();
    let _silent = UnixListener::bind(dir.file("silent")).unwrap();
    let links = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for (name, line, option) in WAITING {
            let (dir, links) = (&dir, &links);
            scope.spawn(move || {
                let words = words(&line.replace("DIR", &dir.path().to_string_lossy()));
                let call = |program: &Path, limit: &str, options: &[&str]| {
                    let mut command = dir.command(program);
                    let (mut said, signal) = ended(command.env(LIMIT, limit).args(options).args(&words));
                    // Without the time.
                    said.err = said.err.split_once('|').map_or(said.err.clone(), |(_, rest)| rest.into());
                    (said, signal)
                };
                let both = |limit: &str, options: &[&str]| {
                    let theirs = call(Path::new(name), limit, options);
                    assert_eq!(call(&link(links.path(), name), limit, options), theirs, "{name} {options:?}");
                    theirs
                };
                for (limit, options) in [("", &[option, "1"][..]), ("1", &[]), ("60", &["--timeout=1"])] {
                    let (said, signal) = both(limit, options);
                    assert_eq!(signal, Some(14), "{name} {options:?}: {said:?}");
                }
                for wrong in ["x", "0", "-1", "4294967296"] {
                    assert_eq!(both("1", &[option, wrong]).0.code, Some(1));
                }
            });
        }
    });
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["silent"]);
}

#[test]
fn dpctl_dies_of_it_too_where_the_switch_hangs() {
    let switch = Switch::dummy();
    let dpctl = link(switch.path(), "ovs-dpctl");
    kill("STOP", switch.pid());
    let (said, signal) = ended(switch.command(&dpctl).args(["-t", "1", "show"]));
    let (by_variable, by_signal) = ended(switch.command(&dpctl).env(LIMIT, "1").arg("show"));
    kill("CONT", switch.pid());
    assert_eq!((signal, by_signal), (Some(14), Some(14)), "{said:?} {by_variable:?}");
    let [theirs, ours] =
        [PathBuf::from("ovs-dpctl"), dpctl].map(|program| switch.run(program, &["-t", "x", "show"]));
    assert_eq!(ours, theirs);
}

/// What goes to the background ends there, with its pid file and its control socket.
#[test]
fn a_client_in_the_background_ends_in_time_and_leaves_no_files() {
    let server = Server::start();
    let switch = Switch::dummy();
    let links = tempfile::tempdir().unwrap();
    let database = format!("monitor {} Bridge name", server.method());
    let target = format!("monitor unix:{}", switch.file("br0.mgmt").display());
    std::thread::scope(|scope| {
        for (name, line) in [("ovsdb-client", &database), ("ovs-ofctl", &target)] {
            for program in [PathBuf::from(name), link(links.path(), name)] {
                // Long enough for all of them to start at once.
                for (limit, options) in [("", &["-t", "10"][..]), ("10", &[])] {
                    let program = program.clone();
                    scope.spawn(move || ends_in_the_background(name, &program, limit, options, line));
                }
            }
        }
    });
}

fn ends_in_the_background(name: &str, program: &Path, limit: &str, options: &[&str], line: &str) {
    let dir = run_dir();
    let mut command = dir.command(program);
    command.env(LIMIT, limit).env("OVS_SYSLOG_METHOD", "null").args(options).args(words(line));
    command.args(["--detach", "--no-chdir", "--pidfile"]).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
    let pid = fs::read_to_string(dir.file(format!("{name}.pid"))).unwrap();
    let socket = dir.file(format!("{name}.{}.ctl", pid.trim()));
    assert!(socket.exists(), "{name} has a control socket");
    let state = format!("/proc/{}/stat", pid.trim());
    wait_for("its end", || fs::read_to_string(&state).map_or(true, |state| state.contains(") Z ")));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let files = left.iter().filter(|name| !name.to_string_lossy().ends_with(".~lock~"));
    assert_eq!(files.count(), 0, "{}: {left:?}", program.display());
}

/// A signal removes the control socket as well.
#[test]
fn a_signal_leaves_no_control_socket() {
    let switch = Switch::dummy();
    let links = tempfile::tempdir().unwrap();
    for program in [PathBuf::from("ovs-ofctl"), link(links.path(), "ovs-ofctl")] {
        let dir = run_dir();
        let mut command = dir.command(program);
        command.args(["monitor", &format!("unix:{}", switch.file("br0.mgmt").display())]);
        let monitor = Process::silent(&mut command);
        let socket = dir.file(format!("ovs-ofctl.{}.ctl", monitor.id()));
        wait_for("its control socket", || socket.exists());
        assert!(!monitor.end_by("TERM").success());
        assert!(!socket.exists());
    }
}

#[test]
fn a_database_server_on_another_machine_that_falls_silent_is_given_up() {
    let dir = run_dir();
    // The system accepts the connection, and nobody reads what comes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let db = format!("--db=tcp:{}", silent.local_addr().unwrap());
    let links = tempfile::tempdir().unwrap();
    let call = |program: &Path| ended(dir.command(program).args([&db, "list-br"])).0;
    let (theirs, ours) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| call(Path::new("ovs-vsctl")));
        let ours = call(&link(links.path(), "ovs-vsctl"));
        (theirs.join().unwrap(), ours)
    });
    // What it says after the time.
    let told = |said: &Said| said.err.split_once("|reconnect|").map(|(_, told)| told.to_owned());
    assert_eq!((ours.code, &ours.out, told(&ours)), (theirs.code, &theirs.out, told(&theirs)));
    assert!(told(&ours).is_some_and(|told| told.contains("no response to inactivity probe")), "{ours:?}");
}

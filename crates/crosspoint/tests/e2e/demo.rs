//! `crosspoint demo` end to end: its figures, and that it leaves nothing behind, however it ends.
//!
//! The demo's names are fixed, so only one runs at a time: the tests take turns, also with those of other
//! processes.

use crate::common::wait_for;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

static TURN: Mutex<()> = Mutex::new(());

/// Ends with the test. The file is that of a lock which another run of these tests, in another tree, waits
/// for.
struct Turn {
    _file: fs::File,
    _guard: MutexGuard<'static, ()>,
}

fn take_turn() -> Turn {
    assert!(geteuid().is_root(), "the demo makes network namespaces: run its tests as root");
    let guard = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let file = fs::File::create("/run/crosspoint-demo-tests.lock").unwrap();
    file.lock().unwrap();
    Turn { _file: file, _guard: guard }
}

/// The binary that users run where `make test` names it, else the one built beside this test.
fn binary() -> String {
    std::env::var("CROSSPOINT_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_crosspoint").into())
}

fn start() -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(binary());
    command.args(["demo", "--quick"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

/// Reads until a line that begins with `wanted`; panics with everything read where none comes.
fn read_until(stdout: &mut BufReader<ChildStdout>, wanted: &str) -> String {
    let mut text = String::new();
    loop {
        let before = text.len();
        assert_ne!(stdout.read_line(&mut text).unwrap(), 0, "no line {wanted:?} in\n{text}");
        if text[before..].starts_with(wanted) {
            return text;
        }
    }
}

/// The rest of the output, the exit code, and what it said on standard error.
fn end(mut child: Child, mut stdout: BufReader<ChildStdout>) -> (String, Option<i32>, String) {
    let (mut text, mut errors) = (String::new(), String::new());
    stdout.read_to_string(&mut text).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (text, child.wait().unwrap().code(), errors)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

fn names_in(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("cp-demo")).collect()
}

/// Namespaces, interfaces and run directories with the demo's prefix.
fn left_behind() -> Vec<String> {
    ["/run/netns", "/sys/class/net", "/run"].iter().flat_map(|dir| names_in(dir)).collect()
}

/// Processes that have the demo's run directory in their environment: its switch and its traffic.
fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_string_lossy().parse::<u32>().ok());
    let ours = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&b| b == 0).any(|variable| variable == b"OVS_RUNDIR=/run/cp-demo")
    };
    let command = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pids.filter(ours).map(command).collect()
}

fn assert_nothing_is_left() {
    assert_eq!(left_behind(), [""; 0]);
    assert_eq!(processes(), [""; 0]);
}

/// The cells of the table's row that begins with these.
fn row(text: &str, first: &[&str]) -> Vec<String> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()
    };
    let mut rows = text.lines().filter(|line| line.starts_with('|')).map(cells);
    rows.find(|row| row.iter().zip(first).all(|(cell, wanted)| cell == wanted))
        .unwrap_or_else(|| panic!("no row {first:?} in\n{text}"))
}

fn number(cell: &str) -> f64 {
    let plain = cell.trim_end_matches(" %").replace(',', "");
    plain.parse().unwrap_or_else(|_| panic!("{cell:?} is not a number"))
}

#[test]
fn the_demo_shows_sane_figures_and_leaves_nothing_behind() {
    let _turn = take_turn();
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["demo", "--quick", "--report"]).arg(dir.path()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (text, code, errors) = end(child, stdout);
    assert_eq!(code, Some(0), "{errors}\n{text}");
    assert_nothing_is_left();
    // make demo asks for a report, whose path comes last.
    let page = dir.path().join("report.html");
    assert_eq!(text.lines().last(), Some(&*format!("report: {}", page.display())), "{text}");
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("<section id=\"pvp\">") && html.contains("data-points=\"3\""), "{html}");
    let script = fs::read_to_string(testkit::root().join("scripts/demo")).unwrap();
    assert!(script.contains(" demo --report "), "{script}");

    // By the stock tools, which make test installs; nothing is configured by flags.
    for command in [
        "ovs-vsctl --timeout=20 --db=unix:/run/cp-demo/db.sock add-br cp-demo-br0 ",
        "ovs-vsctl --timeout=20 --db=unix:/run/cp-demo/db.sock add-port cp-demo-br0 vhost1 ",
        "ovs-ofctl add-flows cp-demo-br0 /run/cp-demo/10000-flows.txt",
    ] {
        assert!(text.contains(&format!("\n   $ {command}")), "no {command:?} in\n{text}");
    }
    assert!(text.contains("\n   $ crosspoint switch &\n"), "{text}");
    assert!(text.contains("ping: 3 of 3 answered"), "{text}");
    let tcp = text.lines().find(|line| line.starts_with("TCP (")).unwrap();
    let rate = tcp.split(": ").nth(1).unwrap().trim_end_matches(" Gbit/s");
    assert!(number(rate) > 0.01, "{tcp}");
    for (size, flows) in
        ["64", "1518"].iter().flat_map(|size| ["10", "1,000", "10,000"].map(|flows| (*size, flows)))
    {
        let cells: Vec<f64> = row(&text, &[size, flows]).iter().map(|cell| number(cell)).collect();
        let [_, _, mpps, loss, switch, guest, cpu_ns, exact, megaflow, missed, p50, p99, p999] = cells[..]
        else {
            panic!("thirteen columns were expected in\n{text}")
        };
        assert!(mpps >= 0.001, "{flows} flows pass at {mpps} Mpps");
        assert!(loss < 10.0, "{flows} flows lose {loss} %");
        for cpu in [switch, guest] {
            assert!((0.01..4.0).contains(&cpu), "{flows} flows take {cpu} processors");
        }
        assert!((10.0..1e6).contains(&cpu_ns), "{flows} flows cost {cpu_ns} ns of CPU per packet");
        assert!(
            (99.0..=101.0).contains(&(exact + megaflow + missed)),
            "every packet was looked up once: {text}"
        );
        assert!(exact + megaflow > 10.0, "the caches answer: {text}");
        assert!(p50 > 1.0 && p50 <= p99 && p99 <= p999, "round trips of {flows} flows: {p50} {p99} {p999}");
    }
    // Besides those that no rule matches, the hosts' kernels may send of their own accord.
    assert!(number(&row(&text, &["table_miss"])[1]) >= 1_000.0, "{text}");
}

#[test]
fn what_is_interrupted_cleans_up() {
    let _turn = take_turn();
    for (stage, signal_no) in
        [("== 2/8", Signal::INT), ("== 3/8", Signal::INT), ("== 7/8", Signal::INT), ("== 6/8", Signal::TERM)]
    {
        let (child, mut stdout) = start();
        read_until(&mut stdout, stage);
        if stage == "== 7/8" {
            read_until(&mut stdout, "   $ ip netns exec cp-demo-a");
        }
        signal(&child, signal_no);
        let start = Instant::now();
        let (_, code, errors) = end(child, stdout);
        assert_eq!(code, Some(130), "{errors}");
        assert!(errors.contains("interrupted"), "{errors}");
        assert!(start.elapsed() < Duration::from_secs(10), "it took {:?} to end", start.elapsed());
        assert_nothing_is_left();
    }
}

#[test]
fn after_kill_9_processes_end_and_the_next_run_removes_the_rest() {
    let _turn = take_turn();
    let (child, mut stdout) = start();
    read_until(&mut stdout, "== 7/8");
    read_until(&mut stdout, "   $ ip netns exec cp-demo-a");
    assert!(!processes().is_empty(), "the switch is among them");
    signal(&child, Signal::KILL);
    let (_, code, _) = end(child, stdout);
    assert_eq!(code, None);
    wait_for("all processes to end", || processes().is_empty());
    assert!(!left_behind().is_empty(), "nothing could remove the namespaces");

    // Something of somebody else's, whose name only looks similar.
    let foreign = "cpdemo-other";
    ip(&["netns", "add", foreign]);
    let (child, stdout) = start();
    let (text, code, errors) = end(child, stdout);
    let foreign_is_there = Path::new("/run/netns").join(foreign).exists();
    ip(&["netns", "del", foreign]);
    assert_eq!(code, Some(0), "{errors}\n{text}");
    assert!(text.contains("removed what an earlier demo left behind: cp-demo-a"), "{text}");
    assert!(foreign_is_there);
    assert_nothing_is_left();
}

#[test]
fn a_second_demo_at_the_same_time_is_refused_and_disturbs_nothing() {
    let _turn = take_turn();
    let (first, mut first_out) = start();
    read_until(&mut first_out, "== 5/8");
    let (second, second_out) = start();
    let (_, code, errors) = end(second, second_out);
    assert_eq!(code, Some(1));
    assert!(errors.contains("another demo is running"), "{errors}");
    assert!(!left_behind().is_empty(), "the first one's namespaces are still there");
    signal(&first, Signal::INT);
    assert_eq!(end(first, first_out).1, Some(130));
    assert_nothing_is_left();
}

#[test]
fn a_step_that_fails_says_so_and_cleans_up() {
    let _turn = take_turn();
    let mut command = Command::new(binary());
    // Without programs to run, the first command fails.
    command.args(["demo", "--quick"]).env("PATH", "/nonexistent").stdin(Stdio::null());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("ip: "), "{errors}");
    assert_nothing_is_left();
}

#[test]
fn without_the_stock_tools_and_iperf3_its_own_take_their_places() {
    let _turn = take_turn();
    let dir = std::env::temp_dir().join(format!("crosspoint-demo-path-{}", std::process::id()));
    fs::create_dir(&dir).unwrap();
    let path = std::env::var("PATH").unwrap() + ":/usr/sbin:/sbin";
    for tool in ["ip", "ping", "sysctl"] {
        let places = path.split(':').map(|place| Path::new(place).join(tool));
        let place = places.into_iter().find(|p| p.is_file()).unwrap_or_else(|| panic!("no {tool} in {path}"));
        std::os::unix::fs::symlink(place, dir.join(tool)).unwrap();
    }
    let output = Command::new(binary()).args(["demo", "--quick"]).env("PATH", &dir).output();
    fs::remove_dir_all(&dir).unwrap();
    let output = output.unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors}\n{text}");
    assert!(
        text.contains("TCP (built in): ") && text.contains("$ crosspoint ofctl add-flows cp-demo-br0 "),
        "{text}"
    );
    assert!(
        text.contains("$ crosspoint vsctl --timeout=20 --db=unix:/run/cp-demo/db.sock add-br cp-demo-br0 "),
        "{text}"
    );
    assert!(!text.contains("ovs-vsctl") && !text.contains("ovs-ofctl"), "{text}");
    assert!(number(&row(&text, &["64", "10,000"])[2]) >= 0.001, "{text}");
    assert_nothing_is_left();
}

#[test]
fn without_root_it_says_so_and_how() {
    let _turn = take_turn();
    // The user nobody may not be able to enter the build directory.
    let copy = std::env::temp_dir().join(format!("crosspoint-demo-{}", std::process::id()));
    fs::copy(binary(), &copy).unwrap();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let output = Command::new("setpriv").args(nobody).arg(&copy).arg("demo").output();
    fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("needs root") && errors.contains("make demo"), "{errors}");
}

fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
}

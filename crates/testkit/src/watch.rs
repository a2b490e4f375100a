//! Names the test that hangs, and what it waits for: libtest waits for ever. What such a test and its
//! neighbours made, such as namespaces, is left to who looks for the reason.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, Once};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Seconds that a test may take. Unset, it may take any time.
const LONGEST: &str = "CROSSPOINT_LONGEST_TEST_S";

/// The tests that run.
static RUNNING: LazyLock<Mutex<HashMap<ThreadId, (String, Instant)>>> = LazyLock::new(Mutex::default);

/// A test's place in [`RUNNING`], which goes with its thread.
struct Place;

impl Place {
    fn take() -> Place {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a test without a name").to_owned();
        RUNNING.lock().unwrap().insert(thread.id(), (name, Instant::now()));
        Place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.lock().unwrap().remove(&std::thread::current().id());
    }
}

/// Watches the test of this thread, from its first call on. If the test takes longer than it may, the
/// program ends, with what there is to know of it.
pub(crate) fn this_test() {
    static WATCHER: Once = Once::new();
    let Ok(longest) = std::env::var(LONGEST) else { return };
    WATCHER.call_once(|| {
        let seconds =
            longest.parse().unwrap_or_else(|_| panic!("{LONGEST} is a number of seconds: {longest}"));
        std::thread::spawn(move || end_hung(Duration::from_secs(seconds)));
    });
    thread_local!(static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) });
    PLACE.with(|place| {
        place.borrow_mut().get_or_insert_with(Place::take);
    });
}

fn end_hung(longest: Duration) {
    let hung = loop {
        std::thread::sleep(Duration::from_secs(1));
        let running = RUNNING.lock().unwrap();
        if let Some((name, _)) = running.values().find(|(_, since)| since.elapsed() > longest) {
            break name.clone();
        }
    };
    let (processes, pids) = descendants();
    // Past libtest, which keeps what a test prints until its end.
    let text = format!("\nHANG: {hung} runs for over {longest:?}\n{}{processes}", threads());
    std::io::stderr().write_all(text.as_bytes()).expect("standard error takes a few lines");
    // Some of them may have ended meanwhile.
    let _ = Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status();
    std::process::exit(101);
}

/// What each thread of this program waits for, as the kernel says it.
fn threads() -> String {
    let mut text = String::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let [name, place, call] =
            ["comm", "wchan", "syscall"].map(|file| std::fs::read_to_string(task.path().join(file)));
        let word = |file: std::io::Result<String>| file.unwrap_or_default().trim().to_owned();
        let _ = writeln!(text, "HANG: thread {}: {}, call {}", word(name), word(place), word(call));
    }
    text
}

/// The programs that were started here, and those that they started: a line for each, and their ids.
fn descendants() -> (String, Vec<String>) {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in parentheses, may contain anything. The state and the parent follow it.
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).map(str::to_owned);
        processes.push((entry.file_name().to_string_lossy().into_owned(), parent.unwrap_or_default(), entry));
    }
    let (mut text, mut found) = (String::new(), vec![std::process::id().to_string()]);
    let mut next = 0;
    while let Some(pid) = found.get(next).cloned() {
        for (child, _, entry) in processes.iter().filter(|(_, parent, _)| *parent == pid) {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            let _ = writeln!(text, "HANG: process {child} of {pid}: {}", line.replace('\0', " "));
            found.push(child.clone());
        }
        next += 1;
    }
    (text, found.split_off(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs itself, hanging.
    #[test]
    fn a_hung_test_is_named_with_what_it_waits_for() {
        if std::env::var_os(LONGEST).is_some_and(|longest| longest == "0") {
            let mut program = Command::new("sleep").arg("86399").spawn().unwrap();
            this_test();
            program.wait().unwrap();
            unreachable!("it is ended");
        }
        let mut hangs = Command::new(std::env::current_exe().unwrap());
        hangs.args(["--exact", "watch::tests::a_hung_test_is_named_with_what_it_waits_for"]);
        let said = crate::lab::run(hangs.env(LONGEST, "0"));
        assert_eq!(said.code, Some(101), "{said:?}");
        for line in ["HANG: watch::tests::a_hung_test_is_named", "HANG: thread watch::tests::", "sleep 86399"]
        {
            assert!(said.err.contains(line), "{said:?}");
        }
    }
}

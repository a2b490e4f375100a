//! A run as the operating system sees it: the programs that it starts, and what ends it early. An operator's
//! interruption ends them within a moment, and whatever the run has taken is released.

use crate::machine::huge_pages;
use crate::machine::lease::{self, Lease};
use crate::machine::watch::{Watch, Watched};
use crate::process::Process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often a program's end and the operator's interruption are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// How long the last lines of a program that has ended may take. A process that it left behind may hold its
/// end of the pipe for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// See the module documentation. Dropped, everything is released.
pub struct Session {
    lease: Lease,
    interrupted: Arc<AtomicBool>,
}

/// A program that has ended.
pub struct Ended {
    /// Its exit.
    pub status: ExitStatus,
    /// Its standard error.
    pub said: String,
    /// The machine meanwhile.
    pub watched: Watched,
}

impl Session {
    /// Releases first what runs that were killed have left.
    pub fn open() -> Result<Session, String> {
        for line in lease::sweep().into_iter().chain(huge_pages::sweep()) {
            eprintln!("given back after a run that was killed: {line}");
        }
        let lease = lease::open()?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // By `nohup`, which lets a run outlive its terminal.
            if signal == SIGHUP && is_ignored(signal) {
                continue;
            }
            signal_hook::flag::register(signal, interrupted.clone()).map_err(|e| e.to_string())?;
        }
        Ok(Session { lease, interrupted })
    }

    /// Whether the operator has interrupted the run.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Runs `act`, which waits for processes of this run and looks at the flag. An interruption that only the
    /// runner received is passed on to them, and to those started meanwhile: so a turn ends early.
    pub fn until_interrupted<R>(&self, act: impl FnOnce(&AtomicBool) -> R) -> R {
        // Dropped when `act` returns.
        let (doing, is_doing) = channel::<()>();
        let hand_on = move || {
            let mut told = BTreeSet::new();
            while is_doing.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if self.is_interrupted() {
                    lease::interrupt(self.lease.dir(), &mut told);
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(hand_on);
            let _doing = doing;
            act(&self.interrupted)
        })
    }

    /// Runs a program to its end, or to the operator's interruption. If its standard output is a pipe, its
    /// lines are shown as they come: standard output of the runner is for the report's path alone.
    pub fn run(&self, command: &mut Command) -> Result<Ended, String> {
        let mut child = Process::spawn(command.stdin(Stdio::null()).stderr(Stdio::piped()))?;
        let mut watch = Watch::start(&[child.id()]);
        let (tell, told) = channel();
        if let Some(pipe) = child.0.stderr.take() {
            let tell = tell.clone();
            thread::spawn(move || lines(pipe).all(|line| tell.send(line).is_ok()));
        }
        if let Some(pipe) = child.0.stdout.take() {
            thread::spawn(move || {
                let _until_here = tell;
                lines(pipe).for_each(|line| eprintln!("  {}", line.trim_start()));
            });
        } else {
            drop(tell);
        }
        let status = loop {
            if let Some(status) = child.0.try_wait().map_err(|e| e.to_string())? {
                break status;
            }
            if self.is_interrupted() {
                return Err("interrupted".into());
            }
            thread::sleep(LOOK);
            watch.look();
        };
        let watched = watch.end();
        let until = Instant::now() + LAST_WORDS;
        let line = || told.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let said: Vec<String> = std::iter::from_fn(line).collect();
        Ok(Ended { status, said: said.join("\n"), watched })
    }
}

impl Session {
    /// Runs a program to its end, or to the operator's interruption, with this one's output.
    pub fn run_shown(&self, command: &mut Command) -> Result<ExitStatus, String> {
        let mut child = Process::spawn(command.stdin(Stdio::null()))?;
        loop {
            if self.is_interrupted() {
                return Err("interrupted".into());
            }
            if let Some(status) = child.0.try_wait().map_err(|e| e.to_string())? {
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Before the huge pages that those may still hold.
        self.lease.give_back();
        huge_pages::sweep();
    }
}

/// Whether a signal was ignored when this process was started.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn lines(pipe: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).trim_end_matches('\r').to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempDir;

    /// It runs itself once more: a session is one of its whole process.
    #[test]
    fn a_terminal_that_goes_ends_a_run_and_what_it_started_unless_nohup_ignores_that() {
        const DIR: &str = "CROSSPOINT_BENCH_TEST_SESSION";
        if let Some(dir) = std::env::var_os(DIR) {
            let session = Session::open().unwrap();
            let started = std::path::Path::new(&dir).join("started");
            let own = std::process::id();
            let text = format!("sleep 600 & echo $! > {}; kill -HUP {own}; sleep 1", started.display());
            let result = session.run_shown(Command::new("sh").args(["-c", &text]));
            drop(session);
            let left = std::fs::read_to_string(started).unwrap().trim().parse().unwrap();
            assert_eq!(lease::started(left), None, "a process is left");
            std::process::exit(i32::from(result.is_ok()));
        }
        let dir = TempDir::new("session").unwrap();
        let name =
            "session::tests::a_terminal_that_goes_ends_a_run_and_what_it_started_unless_nohup_ignores_that";
        let itself = std::env::current_exe().unwrap();
        let code = |command: &mut Command| {
            let output = command.args(["--exact", name]).env(DIR, &dir.0).env("TMPDIR", &dir.0).output();
            let output = output.unwrap();
            output.status.code().unwrap_or_else(|| panic!("{output:?}"))
        };
        assert_eq!(code(&mut Command::new(&itself)), 0, "it was interrupted");
        assert_eq!(code(Command::new("nohup").arg(&itself)), 1, "it ran to its end");
    }
}

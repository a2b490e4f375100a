//! `--monitor`: a process that waits for the daemon to end, and restarts it if it crashed.

use super::outputs::{Kept, fatal};
use super::stage::{self, Ready};
use crate::log::{self, os_text};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// Signals that indicate a bug rather than a request: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGPIPE,
/// SIGALRM, SIGXCPU, SIGXFSZ.
const CRASHES: [i32; 9] = [4, 6, 7, 8, 11, 13, 14, 24, 25];
/// Least time between two starts after crashes.
const PAUSE: Duration = Duration::from_secs(10);

/// Runs until the daemon ends by itself. It stays in the directory in which it was started, where the daemon
/// that it starts again finds files by the same relative names.
pub fn run(mut ready: Ready, detached: bool, kept: Kept) -> ExitCode {
    let mut crashes = 0;
    let memory = match stage::new_memory() {
        Ok(memory) => memory,
        Err(e) => return fatal("daemon_unix", &os_text(&e)),
    };
    let mut restarted: Option<Instant> = None;
    loop {
        let mut starting = match stage::start("daemon", Some(&memory)) {
            Ok(starting) => starting,
            Err(e) => {
                return fatal("daemon_unix", &format!("could not start the daemon ({})", os_text(&e)));
            }
        };
        let mut status = match starting.wait() {
            Ok(None) => None,
            Ok(Some(status)) if crashes == 0 => return stage::convey(status),
            Ok(Some(status)) => Some(status),
            Err(e) => return fatal("daemon_unix", &os_text(&e)),
        };
        let pid = starting.child.id();
        if crashes == 0 {
            if detached {
                stage::leave_terminal(kept);
            }
            ready.tell();
        }
        let status = match status.take() {
            Some(status) => status,
            None => match starting.child.wait() {
                Ok(status) => status,
                Err(e) => return fatal("daemon_unix", &os_text(&e)),
            },
        };
        // The file that was opened when this process began may have been moved away since.
        let _ = log::reopen_file();
        if !is_crash(status) {
            tracing::info!(target: "daemon_unix", "pid {pid} died, {}, exiting", stage::describe(status));
            return ExitCode::SUCCESS;
        }
        crashes += 1;
        let crash = format!("{crashes} crashes: pid {pid} died, {}", stage::describe(status));
        let early = restarted.map(|at| PAUSE.saturating_sub(at.elapsed())).unwrap_or_default();
        if !early.is_zero() {
            tracing::warn!(target: "daemon_unix", "{crash}, waiting until 10 seconds since last restart");
            std::thread::sleep(early);
        }
        tracing::error!(target: "daemon_unix", "{crash}, restarting");
        restarted = Some(Instant::now());
    }
}

fn is_crash(status: ExitStatus) -> bool {
    status.signal().is_some_and(|signal| CRASHES.contains(&signal))
}

//! Ends by signals, as the stock clients end: with a line in the log, without leaving the pid file or sockets
//! behind, and by the signal. The alarm clock of `--timeout` is one of them.

use std::time::{Duration, Instant};

use crate::daemonize::{remove_own_pid_files, signal_name};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use unix_socket::remove_own_sockets;

/// When a client gives up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// That of `--timeout`, from now on. Without the option it is that of `OVS_CTL_TIMEOUT`.
    pub fn new(timeout: Option<Duration>) -> Option<Deadline> {
        let of_environment = || {
            let seconds = std::env::var("OVS_CTL_TIMEOUT").ok()?.trim_start().parse::<u32>().ok()?;
            (seconds > 0).then(|| Duration::from_secs(seconds.into()))
        };
        Some(Deadline(Instant::now() + timeout.or_else(of_environment)?))
    }
}

/// From now on SIGTERM, SIGINT, SIGHUP and SIGALRM end this process cleanly, except those that it was started
/// to ignore, as with `nohup`; and the last ends it at the deadline. Call it once, after going to the
/// background if it does.
pub fn end_well(deadline: Option<Deadline>) {
    let ignored = ignored();
    let ends = [SIGTERM, SIGINT, SIGHUP, SIGALRM].into_iter();
    // If the handlers cannot be installed, signals end the process in the default way.
    if let Ok(mut signals) = Signals::new(ends.filter(|signal| ignored >> (signal - 1) & 1 == 0)) {
        std::thread::spawn(move || signals.forever().next().map(end_by));
    }
    if let Some(Deadline(at)) = deadline {
        std::thread::spawn(move || {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            end_by(SIGALRM);
        });
    }
}

fn end_by(signal: i32) {
    tracing::warn!(target: "fatal_signal", "terminating with signal {signal} ({})", signal_name(signal));
    remove_own_sockets();
    remove_own_pid_files();
    let _ = emulate_default_handler(signal);
}

/// The signals that this process ignores, a bit each, signal 1 lowest. Source: proc_pid_status(5).
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

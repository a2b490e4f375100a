//! Ends by signals, as the stock clients end: with a line in the log, without leaving the pid file behind,
//! and by the signal.

use crate::daemonize::{remove_own_pid_files, signal_name};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// From now on SIGTERM, SIGINT and SIGHUP end this process cleanly, except those that it was started to
/// ignore, as with `nohup`. Call it once, after going to the background if it does.
pub fn end_well() {
    let ignored = ignored();
    let ends = [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    // If the handlers cannot be installed, signals end the process in the default way.
    let Ok(mut signals) = Signals::new(ends) else { return };
    std::thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        tracing::warn!(target: "fatal_signal", "terminating with signal {signal} ({})", signal_name(signal));
        remove_own_pid_files();
        let _ = emulate_default_handler(signal);
    });
}

/// The signals that this process ignores, a bit each, signal 1 lowest. Source: proc_pid_status(5).
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

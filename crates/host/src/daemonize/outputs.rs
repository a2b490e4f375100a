//! Where a daemon says what goes wrong, from its start in the foreground to its life in the background.

use crate::log::{self, Destination};
use crate::program;
use std::process::ExitCode;

/// Outputs that are kept in the background, because the program prints its results there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Kept {
    /// None.
    #[default]
    Nothing,
    /// The standard output.
    Stdout,
    /// The standard error output; the log does not go there any more.
    Stderr,
    /// Both.
    Both,
}

/// Reports why the program ends: on stderr, in the log file and in syslog. Returns the exit code of a
/// failure.
pub fn fatal(module: &'static str, text: &str) -> ExitCode {
    eprintln!("{}: {text}", program::name());
    log::emergency(module, text);
    ExitCode::FAILURE
}

/// Turns the console off once the terminal has been left.
pub(super) fn silence_console() {
    let off = log::Setting::everything_at(Destination::Console, log::Level::Off);
    log::set(&off);
}

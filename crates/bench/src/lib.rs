//! The built-in benchmark: suites of experiments on this switch and others, results with the machine that
//! they were measured on, and reports.
//!
//! A [suite](suite) is data. Its steps are measurements ([`measure`]) and trials with a generator, a switch
//! and guests ([`lab`]). [`run`](mod@run) runs them and stores [results](result) point by point; [`report`],
//! [`compare`] and [`goals`] read what is stored, also the files of runs before there were suites. Files
//! import one way, which a test of this crate checks.
//!
//! Costs are in TSC cycles per packet per CPU second of the worker's thread: the thread's CPU time, not wall
//! time, so that a shared machine's interruptions do not count. Figures that are compared are measured in one
//! run, in turns.

#[macro_use]
extern crate host;

/// Prints a line. A reader that goes away takes neither the verdict with it nor what is still to be measured.
macro_rules! println {
    ($($arg:tt)*) => { host::output::out_and_go_on(format_args!("{}\n", format_args!($($arg)*))) };
}

mod cli;
mod compare;
mod connection;
mod daemon;
mod documents;
mod estimate;
mod goals;
mod lab;
mod machine;
mod measure;
mod process;
mod report;
mod result;
mod run;
mod session;
mod shown;
mod stats;
mod suite;
mod trials;
mod turns;
mod units;

pub use cli::{Args, completed, run};
/// Kernels and file systems in memory that virtual machines boot, for tests that need them too.
pub use lab::guest::system as guest_system;
/// The report of a demonstration.
pub use shown::{Shown, check_drawable, draw};
/// As reports and the demonstration show numbers.
pub use units::grouped;

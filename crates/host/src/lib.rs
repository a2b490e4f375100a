//! What every program of ours needs from its machine: the log, becoming a daemon, pid files, users, signals,
//! processors and their NUMA nodes, figures of the system, files of databases, and the option parser that the
//! programs with a stock name share.
//!
//! Nothing here knows what a program is for, and nothing runs in an event loop: calls block, as what they ask
//! of the system does.

#[macro_use]
pub mod output;

pub mod daemonize;
pub mod database_file;
pub mod doctor;
pub mod getopt;
pub mod log;
pub mod manual;
pub mod numa;
pub mod program;
pub mod rundir;
pub mod signals;
pub mod sysstats;
pub mod usage;

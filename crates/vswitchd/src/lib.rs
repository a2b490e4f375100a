//! The daemon: takes a configuration, makes bridges and ports of it, listens on the management and control sockets, and
//! keeps the control thread's schedule.
//!
//! Everything runs in one thread, the control thread, as tasks of a tokio runtime; packets are the workers' business,
//! which never wait for it. All its state is one structure; tasks borrow it between two awaits and never
//! across one, so a handler is a plain function that sees a consistent state and can be tested without a socket.

#[macro_use]
pub mod output;

mod check;
mod clock;
mod commands;
mod conffile;
pub mod config;
pub mod configdb;
pub mod controllers;
mod daemon;
pub mod daemonize;
mod devices;
mod frame_statistics;
pub mod getopt;
pub(crate) mod janitor;
mod listeners;
pub mod log;
mod numa;
pub mod odp;
mod ofconn;
pub mod ovsdb;
pub(crate) mod placement;
pub mod program;
pub mod reconcile;
pub mod rundir;
mod schedule;
mod service;
mod state;
pub mod stream;
mod sysstats;
pub mod unixctl;
mod writeback;

pub use check::check;
pub use config::Config;
pub use daemon::{NAME, StartError, run};
pub use state::{SetupError, Vswitch};

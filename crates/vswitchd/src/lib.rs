//! The daemon: takes a configuration, creates bridges and ports from it, listens on the management and
//! control sockets, and runs the control thread's schedule.
//!
//! Everything runs in one thread, the control thread, as tasks of a tokio runtime; packets are handled by the
//! workers, which never wait for it. All its state is one structure. Tasks borrow it between two awaits and
//! never across one, so a handler is a plain function that sees a consistent state and can be tested without
//! a socket.

mod check;
mod command_state;
mod commands;
mod conffile;
pub mod config;
pub mod configdb;
mod connections;
pub mod controllers;
mod ct_flushes;
mod daemon;
mod device_manager;
mod devices;
mod failures;
pub mod figures;
mod finals;
mod hand_datapath;
mod history;
mod interface_statistics;
pub(crate) mod janitor;
mod keepalive;
mod line;
mod listeners;
mod logged_flows;
mod machine;
mod memory_watch;
pub mod odp;
mod ofconn;
pub(crate) mod ofproto;
pub mod ovsdb;
pub(crate) mod own_changes;
mod placement;
mod plane;
mod port_record;
mod port_watch;
pub mod reconcile;
mod schedule;
mod scheduler;
mod service;
mod slow_path;
mod snapshot;
mod state;
mod tls;
mod workers;
mod writeback;

pub use check::check;
pub use config::Config;
pub use daemon::{NAME, StartError, run};
pub use state::{SetupError, Vswitch};

//! The machine that runs the benchmark: its properties, its state during a trial, and what a run has taken
//! from it.

pub mod conditions;
pub mod fingerprint;
pub mod freeze;
pub mod handover;
pub mod huge_pages;
pub mod interface;
pub mod lease;
pub mod turns;
pub mod wake_cost;
pub mod watch;

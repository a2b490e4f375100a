//! The machine that is measured on: what it is, what it does meanwhile, and what of it is on loan.

pub mod fingerprint;
pub mod freeze;
pub mod huge_pages;
pub mod lease;
pub mod wake_cost;
pub mod watch;

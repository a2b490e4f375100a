//! The benchmark that is built in: rigs in memory around the real datapath and the real switch, traffic made to measure,
//! peers (Open vSwitch with DPDK, testpmd) run beside them on the same machine, and results as rows of JSON.
//!
//! Costs are in TSC cycles per packet per CPU-second of the worker's thread: the thread's CPU time, not wall time,
//! so that a shared machine's interruptions do not count. What is compared is measured in one run, in turns.

mod afxdp_bridge;
mod churn;
mod cli;
mod counts;
mod daemons;
mod fairness;
mod frames;
mod generate;
mod guests;
mod io_floor;
mod load_rules;
mod masks;
mod memory;
mod misses;
mod ovsdb;
mod p2p;
mod peer;
mod port_count;
mod ports_config;
mod pvp;
mod report;
mod rig;
mod scale;
mod stopped;
mod testpmd;
mod trial;
mod wake;

pub use cli::{Args, run};

//! Tables and translation through their public interface.

mod common;
mod encapsulation;
mod eviction;
mod forwarding;
mod groups;
mod learning;
mod normal;
mod options;
mod oracles;
mod rig;
mod rules;
mod transactions;

//! Tables and translation through their public interface.

mod common;
mod encapsulation;
mod eviction;
mod forwarding;
mod groups;
mod learning;
mod limits;
mod mac_eviction;
mod normal;
mod options;
mod oracles;
mod overlap;
mod patch_cables;
mod rig;
mod rules;
mod transactions;

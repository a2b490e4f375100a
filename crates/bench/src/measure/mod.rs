//! One measurement a file: each answers one question with rows of its own shape.
//!
//! A measurement runs in a process of its own (`crosspoint bench NAME --json FILE`); suites run them that
//! way, and [`crate::result::rows`] reads what they wrote, today's files and those of committed runs alike.

pub mod ablation;
pub mod cache_misses;
pub mod churn;
pub mod conntrack;
pub mod core_grid;
pub mod counts;
pub mod explosion;
pub mod fairness;
pub mod flow_mods;
pub mod frames;
pub mod generate;
pub mod io_floor;
pub mod kernel_datapath;
pub mod learned_rules;
pub mod limited;
pub mod load_rules;
pub mod mac_learning;
pub mod masks;
pub mod memory;
pub mod misses;
pub mod ovs_dpdk;
pub mod ovsdb;
pub mod p2p;
pub mod pinning;
pub mod port_count;
pub mod ports_config;
pub mod pvp;
pub mod pvp_guests;
pub mod pvp_types;
pub mod rig;
pub mod rows;
pub mod rule_to_effect;
pub mod scale;
pub mod stopped;
pub mod testpmd;
pub mod trial;
pub mod wake;

//! Software that others wrote, at length, against the real binary, and the benchmark's longest trials.
//! `make interop` runs this program; `cargo test` leaves it out, since it takes minutes.

#[path = "../bench_rig/mod.rs"]
mod bench_rig;
#[allow(dead_code, unused_imports)]
#[path = "../e2e/common/mod.rs"]
mod common;
#[allow(dead_code)]
#[path = "../controllers_rig/mod.rs"]
mod controllers_rig;
mod faucet;
mod firewall;
#[path = "../firewall_rig/mod.rs"]
mod firewall_rig;
mod mininet;
mod namespaces;
mod ovn;
mod rest;
mod trials;
mod vpp;

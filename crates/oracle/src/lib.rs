//! The oracles: random switches and random packets through the real worker and its caches, held against the
//! same switch without caches, and against a plain model of a switch that shares nothing with it.
//!
//! This library is what the tests in `tests/` share: frames made of keys ([`frames`]), ports in memory
//! ([`port`]), a datapath whose turns the test takes, so that a run replays from its seed ([`rig`]), the
//! pipeline with mistakes put in on purpose and the one that must not be cached ([`pipelines`]), and the
//! comparison itself ([`check`](mod@check)).

// They are the tests' of `switch`, documented and named as in tests.
#[allow(missing_docs, clippy::should_implement_trait)]
#[path = "../../switch/tests/it/common/mod.rs"]
pub mod common;

pub mod check;
pub mod flood;
pub mod frames;
pub mod home;
pub mod pipelines;
pub mod port;
pub mod rig;

//! The foundation of every other crate: identifiers that must not be mixed, the vocabulary of drop reasons,
//! counters with one writer, versions of the forwarding state, and read-copy-update with the concurrent
//! containers built on it.
//!
//! Invariants: nothing here knows a protocol or does I/O; all `unsafe` code for read-copy-update is here. A
//! counter has exactly one writing thread; any thread may read it.
#![allow(unsafe_code)]

mod ahead;
pub mod clock;
pub mod counter;
pub mod drop_reason;
pub mod hash;
pub mod heap;
pub mod ids;
pub mod lanes;
mod mapping;
pub mod multimap;
mod os_error;
pub mod rcu;
pub mod region;
pub mod slab;
pub mod slots;
pub mod started;
pub mod suggest;
mod watermark;
pub mod wide;

pub use counter::Counter;
pub use drop_reason::DropReason;
pub use ids::{OfPort, PortNo, Version, WorkerIdx};
pub use os_error::os_text;
pub use watermark::Watermark;

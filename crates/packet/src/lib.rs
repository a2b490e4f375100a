//! Packets in memory: the pool they live in, the handle that owns one, the batch they travel in, and the
//! traits between the worker and a port's driver.
//!
//! A packet's bytes are in one chunk (or, for jumbo frames, a chain of chunks) of a [`Pool`], which is one
//! mapping for the whole life of the process, so that AF_XDP can use it as its UMEM. The handle, [`Packet`],
//! is a small value that is moved through batches, without reference counts: its holder owns the bytes, and
//! returns them through a [`PoolCache`]. Losing a handle leaks a chunk (the pool's accounts show it) and is
//! otherwise harmless.
//!
//! One viewpoint: `rx` always means into the switch.
#![allow(unsafe_code)]

mod allocation;
pub mod batch;
pub mod buffer;
mod flag;
pub mod lent;
pub mod pool;
pub mod port;
mod rx_queue;
mod share;
mod shared_tx;
mod tails;
pub mod thread;
pub mod wait;

pub use buffer::{Packet, PacketFlags};
pub use lent::Lent;
pub use pool::{LINE_BYTES, Line, Pool, PoolCache, PoolConfig, PoolStats};
pub use port::{DummyControl, FrameCounts, LinkState, Port, PortStats, PortStatus, QueueCounts, TxQueue};
pub use rx_queue::{RxOutcome, RxQueue};
pub use share::Share;
pub use shared_tx::SharedTx;

/// Packets per batch: enough to hide memory latency behind each other, few enough to stay in L1.
pub const BURST: usize = 64;

/// Up to [`BURST`] packets that are moved together.
pub type Batch = arrayvec::ArrayVec<Packet, BURST>;

//! The fast path: workers that poll receive queues, caches that remember the pipeline's decisions, and the
//! execution of its actions on packets.
//!
//! This crate knows no drivers (ports come in as [`packet::RxQueue`] and [`packet::TxQueue`]) and no
//! OpenFlow: [`Pipeline`] decides what happens to a packet. The crate `switch` implements it, and so does the
//! linear pipeline of the tests. The worker's loop neither allocates nor locks once it is warm.

pub mod action;
mod awaited;
mod cache;
#[allow(missing_docs)] // Names are those of ovs-fields(7), ovs-actions(7) and the RFCs.
pub mod conntrack;
mod context;
pub mod control;
mod depths;
pub mod edit;
mod execute;
pub mod hash;
mod input;
mod loan;
pub mod meter;
pub mod packet_type;
pub mod pipeline;
pub mod placement;
mod ports;
mod process;
mod promotion;
mod recirculation;
mod rounds;
mod run;
mod schedule;
mod stamp;
pub mod stats;
mod transmission;
pub mod watch;
mod worker;

pub use action::{DpAction, PacketInSpec};
pub use awaited::Overdue;
pub use cache::{CacheConfig, DumpedFlow, FLOW_LIMIT_MAX};
pub use context::PacketIn;
pub use control::{
    Config, Datapath, DatapathError, Event, FlowPiece, Removal, SlotTotals, WORKER_STACK_BYTES, worker_name,
};
pub use input::{ExactTier, PortView};
pub use pipeline::{FlowView, Pipeline, Rewrite, Scratch, Translation};
pub use stats::{PortCounters, WorkerStats};
pub use watch::Visit;
pub use worker::{Clock, SteppedWorker};

//! The switch proper: bridges and ports, OpenFlow tables, MAC learning, and the translation of a packet's key
//! into the datapath's actions. Pure: no I/O, no clock, no `unsafe`; time and counters come in as arguments.
//!
//! Two halves. [`Switch`] is shared by the workers, which translate on it without a lock (it implements
//! [`datapath::Pipeline`]). [`Control`] is the only writer: it takes flow-mods, ports and bridges, the
//! effects of translations, and the passing of time, and publishes each change as one version. Nothing that a
//! worker may still use is freed before a grace period.
//!
//! A change is made in this order: it is put in place invisibly, logged in the [`changelog`], the depth of
//! extraction is widened if necessary, and then the version is incremented.

mod bridge_idx;
pub mod by_hand;
pub mod changelog;
pub mod control;
mod effect;
pub mod features;
mod flow_mod;
mod frozen;
mod group;
mod mac;
mod meter;
mod numbered;
mod pipeline;
mod refused;
pub mod rule;
pub mod shape;
pub mod slots;
mod switch;
mod table;
pub mod topology;
pub mod trace;
mod translate;

pub use control::{Control, Replaced};
pub use effect::{Effect, FinTimeout};
pub use group::{Group, selection_log};
pub use meter::Meter;
pub use rule::{Actions, Rule, RuleFlags, Timeouts};
pub use slots::{RetiredSlots, SlotReader, SlotStats};
pub use switch::Switch;
pub use topology::{
    BridgeConfig, BridgeIdx, Fragments, PortConfig, PortKind, PortSpec, PriorityTags, VlanColumns,
    VlanConfig, VlanMode, VlanSet,
};
pub use translate::continuation::{Rest, decode as read_continuation, encode as write_continuation};
pub use translate::{DEPTH_MAX, LearnedCounts, RESUBMITS_MAX};

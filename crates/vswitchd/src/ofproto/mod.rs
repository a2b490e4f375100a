//! One ofproto per bridge: OpenFlow's side of a bridge, a state machine without I/O.
//!
//! Files: `bridge` has the [`Ofproto`] itself; `conn` a connection, with its `bundles`, `monitors`,
//! `packets`, `pending` requests, `held_rules` of dumps and `flow_mod_log`; `news` has unrequested messages;
//! `link` is an active row of table Controller, `settings` interprets it, `sched` limits its packets;
//! `fail_open` and `in_band` are what a bridge does by itself, with `own_rule`s, and `next_hops` what all of
//! them know for that; `tables` and `table_features` describe its tables; `continuation` is a paused packet's
//! remaining work.

mod bridge;
mod bundles;
mod conn;
mod continuation;
pub(crate) mod fail_open;
mod flow_mod_log;
mod held_rules;
mod in_band;
pub(crate) mod journal;
mod link;
mod monitors;
mod news;
mod next_hops;
mod own_rule;
mod packets;
mod pending;
mod sched;
mod settings;
pub(crate) mod table_features;
mod tables;

pub(crate) use bridge::{Ofproto, tell_of_new_versions};
pub(crate) use bundles::{Bundle, Change as BundleChange, Charge, Kind as BundleKind, free_some};
pub(crate) use conn::{INVALID_TTL, LinkOf, OfConn, Purpose};
pub(crate) use continuation::head;
pub(crate) use flow_mod_log::FlowModCounts;
pub(crate) use held_rules::HeldByAll;
pub use link::ControllerStatus;
pub(crate) use link::{Kind as LinkKind, Link, SILENT};
pub(crate) use monitors::{Monitor, Own, Report, flags_of};
pub(crate) use news::{Asynchronous, PortSet, Source};
pub(crate) use next_hops::NextHops;
pub(crate) use own_rule::OwnRule;
pub(crate) use packets::PacketNews;
pub(crate) use pending::{
    Commit, Dump, Held, Listed, Listing, LongChange, LongKind, Missed, Output, Pending,
};
pub(crate) use tables::VacancyWatch;

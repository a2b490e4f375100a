//! Requests of OpenFlow connections, handled: each by its [`OfConn`](crate::ofproto::OfConn), with what of
//! the switch it asks for.
//!
//! Files: `turn` takes a connection's messages one after the other; `request` is what handlers get and say;
//! `requests` handles messages; `flow_mods` changes of rules, `groups` of groups, `meters` of meters,
//! `bundle` of many at once; `ct_flush` reads what is to be flushed of the tracker; `statistics` answers
//! requests for statistics, `dump` the long ones; `options` holds the table of tunnel options; `monitors`
//! tells who watches flows; `resume` goes on with paused packets; `tables` configures tables.

mod bundle;
mod changes;
mod ct_flush;
mod dump;
mod flow_mods;
mod groups;
mod listing;
mod meters;
mod monitors;
mod options;
mod request;
mod requests;
mod resume;
mod statistics;
mod tables;
mod turn;

pub(crate) use ct_flush::filter_of;
pub(crate) use request::Served;

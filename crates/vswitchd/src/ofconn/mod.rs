//! Handles requests of OpenFlow connections: each through its [`OfConn`](crate::ofproto::OfConn), with access
//! to the parts of the switch that it needs.
//!
//! Files: `turn` handles a connection's messages in order; `request` has the handlers' parameters and
//! results; `requests` handles messages; `flow_mods` changes rules, `groups` groups, `meters` meters,
//! `bundle` many at once; `ct_flush` parses what connections to flush; `statistics` answers requests for
//! statistics, `dump` the long ones; `options` has the table of tunnel options; `monitors` notifies those who
//! watch flows; `resume` continues with paused packets; `tables` configures tables.

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

//! The database that configures the switch, as RFC 7047 describes it: schemas, values, transactions, monitors, the
//! sessions of its clients, and the format of its log file.
//!
//! No sockets, no files and no clock: bytes come in and go out by calls, the time is an argument, and a log is written
//! to whatever implements a trait. The daemon (crate `vswitchd`) has the rest.

pub mod jsonrpc;
pub mod reconnect;

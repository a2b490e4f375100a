//! What command-line clients of a database have in common, without I/O:
//! [JSON](json) and [tables](table) in every output format.
//!
//! [`vsctl`](crate::vsctl) and [`ovsdb-client`](crate::ovsdb_client) use it. Output and errors are an
//! interface: they are the stock tools', and tests run both.
//!
//! Source: ovs-vsctl(8), ovsdb-client(1).

pub mod json;
pub mod table;

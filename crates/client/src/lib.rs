//! The clients: `vsctl`, `ofctl`, `appctl`, `dpctl`, `ovsdb-client` and `ovsdb-tool`, each a module with
//! `run` for its command line and `manual` for its description. None of them needs the daemon's code.

#[macro_use]
extern crate host;

pub mod appctl;
pub mod ctl;
pub mod dpctl;
pub mod ofctl;
pub mod ovsdb_client;
pub mod ovsdb_tool;
pub mod pcap;
pub mod tcpdump;
pub mod vsctl;

mod database;

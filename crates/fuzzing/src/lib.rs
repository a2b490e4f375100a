//! The bodies of all fuzz targets, one function per parser, in one table.
//!
//! cargo-fuzz runs them from `fuzz/` with libFuzzer and AddressSanitizer; the ordinary tests replay the
//! committed corpus `fuzz/corpus/TARGET/` through the same functions, so that a found input stays fixed.
//! A body takes any bytes, and panics if and only if there is a bug: besides "does not panic" it
//! asserts what it can (what was parsed is written back the same, two parsers agree). It is deterministic.
//!
//! Adding a target is described in `fuzz/README.md`; the test of this crate checks that the table, the
//! binaries of `fuzz/Cargo.toml` and the corpora agree.

pub mod clients;
pub mod conntrack;
pub mod datapath;
pub mod flow;
pub mod openflow;
pub mod ovsdb;
pub mod ovsdb_log;
pub mod ovsdb_server;
pub mod ports;
pub mod switch;
pub mod vswitchd;
pub mod wire;

/// One fuzz target.
pub struct Target {
    /// Its name: that of the function, of the binary in `fuzz/` and of the directory of its corpus.
    pub name: &'static str,
    /// Its body.
    pub run: fn(&[u8]),
}

/// Every fuzz target of the project, by name.
pub const TARGETS: &[Target] = &[
    // One row per target keeps additions from touching each other.
    Target { name: "conntrack_helper", run: conntrack::conntrack_helper },
    Target { name: "conntrack_packets", run: conntrack::conntrack_packets },
    Target { name: "flow_extract", run: flow::flow_extract },
    Target { name: "ofctl_capture", run: clients::ofctl_capture },
    Target { name: "openflow_connection", run: openflow::openflow_connection },
    Target { name: "openflow_message", run: openflow::openflow_message },
    Target { name: "openflow_text", run: openflow::openflow_text },
    Target { name: "ovsdb_jsonrpc", run: ovsdb_server::ovsdb_jsonrpc },
    Target { name: "ovsdb_monitor", run: ovsdb_server::ovsdb_monitor },
    Target { name: "ovsdb_replica", run: clients::ovsdb_replica },
    Target { name: "ovsdb_log", run: ovsdb_log::ovsdb_log },
    Target { name: "ovsdb_schema", run: ovsdb::ovsdb_schema },
    Target { name: "ovsdb_session", run: ovsdb_server::ovsdb_session },
    Target { name: "ovsdb_text", run: ovsdb::ovsdb_text },
    Target { name: "ovsdb_transaction", run: ovsdb::ovsdb_transaction },
    Target { name: "packet_edits", run: datapath::packet_edits },
    Target { name: "ports_pcap", run: ports::ports_pcap },
    Target { name: "ports_vhost_message", run: ports::ports_vhost_message },
    Target { name: "ports_vhost_rings", run: ports::ports_vhost_rings },
    Target { name: "ports_virtio_net", run: ports::ports_virtio_net },
    Target { name: "switch_continuation", run: switch::switch_continuation },
    Target { name: "unixctl_request", run: vswitchd::unixctl_request },
    Target { name: "vsctl_command", run: clients::vsctl_command },
    Target { name: "wire_frame", run: wire::wire_frame },
];

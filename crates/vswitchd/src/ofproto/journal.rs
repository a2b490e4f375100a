//! The log of OpenFlow messages: with `vconn` at DBG, every message of every connection in both directions,
//! in the format of `ovs-ofctl ofp-print`.
//!
//! Active only while enabled: `ovs-appctl vlog/set vconn:dbg` also affects existing connections.

use super::conn::OfConn;
use openflow::Version;
use openflow::connection::CloseReason;
use openflow::text::{PortNames, bytes_text};

/// Keeps messages for the log, or does not any more.
pub fn keep(conn: &OfConn) {
    let is_wanted = tracing::event_enabled!(target: "vconn", tracing::Level::DEBUG);
    conn.connection().set_journal(is_wanted);
}

/// Logs what was kept.
pub fn log(conn: &OfConn) {
    let messages = conn.connection().take_journal();
    for message in messages {
        let what = if message.is_sent { "sent (Success)" } else { "received" };
        let text = bytes_text(&message.bytes, PortNames::none(), 0);
        tracing::debug!(
            target: "vconn",
            has_lines = true,
            "{}: {what}: {}",
            conn.name,
            text.trim_end_matches('\n')
        );
    }
}

/// Logs why a connection ended, if no version could be negotiated. A controller's link reports all other
/// reasons itself.
pub fn closed(conn: &OfConn, reason: &CloseReason) {
    let CloseReason::NoCommonVersion(theirs) = reason else { return };
    let (ours, _) = conn.connection().offers();
    let (ours, theirs) = (ours.describe(), theirs.describe());
    tracing::warn!(
        target: "vconn",
        "{}: version negotiation failed (we support {ours}, peer supports {theirs})",
        conn.name
    );
    if conn.link.is_none() {
        tracing::warn!(
            target: "rconn",
            "{}<->{}: connection dropped (Protocol error)",
            conn.bridge, conn.name
        );
    }
}

/// Logs which version is spoken, and why.
pub fn negotiated(conn: &OfConn, version: Version) {
    let (ours, theirs) = conn.connection().offers();
    tracing::debug!(
        target: "vconn",
        "{}: negotiated OpenFlow version 0x{:02x} (we support {}, peer supports {})",
        conn.name,
        version as u8,
        ours.describe(),
        theirs.describe()
    );
}

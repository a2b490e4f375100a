//! The clients of a server: what it keeps of each.

use super::output::Output;
use crate::Principal;
use crate::execute::Reply;
use crate::monitor::MonitorId;
use crate::monitor::history::Position;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// While more than this waits to be sent, a client is sent no update and its requests are not to be read.
pub const OUTPUT_BYTES_FULL: usize = 256 << 10;

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub(crate) u64);

/// Something for each of several clients. Looked at several times for every message, so not by the standard
/// library's hash, which is made for keys that others choose.
pub type BySession<T> = hashbrown::HashMap<SessionId, T>;

/// The time, as given by the owner of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// For measuring intervals.
    pub at: Instant,
    /// The time of day in milliseconds since 1970, which goes into the log.
    pub date_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) output: Output,
    pub(super) read_only: bool,
    /// The role that its remote gives it; empty: no restrictions.
    pub(super) role: String,
    /// Its identity, from its certificate.
    pub(super) client: Option<String>,
    /// Is notified of databases that come and go, and need not be disconnected then.
    pub(super) is_change_aware: bool,
    /// Keyed by the text of their ids.
    pub(super) monitors: BTreeMap<String, SessionMonitor>,
    /// Its waiting transactions, in all databases.
    pub(super) waiting: usize,
    /// Replies that its monitors' updates must precede, in order.
    pub(super) held: VecDeque<Held>,
    /// Bytes kept for it, besides its output.
    pub(super) kept: usize,
    pub(super) is_closing: bool,
}

impl Session {
    pub(super) fn principal(&self) -> Principal<'_> {
        Principal { role: &self.role, client: self.client.as_deref() }
    }
}

#[derive(Debug)]
pub(super) struct SessionMonitor {
    pub(super) database: String,
    pub(super) id: MonitorId,
    pub(super) charge: MonitorCharge,
}

/// The bytes charged for a monitor. A change of conditions replaces those of the tables that it names alone.
#[derive(Debug)]
pub(super) struct MonitorCharge {
    /// Besides its tables.
    pub(super) base: usize,
    pub(super) tables: BTreeMap<String, usize>,
}

/// The reply to a transaction, which waits until the session's monitors have told what it changed.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) database: String,
    /// How far they must have come.
    pub(super) position: Position,
    pub(super) request: Value,
    pub(super) reply: Reply,
    /// The bytes charged for it.
    pub(super) bytes: usize,
}

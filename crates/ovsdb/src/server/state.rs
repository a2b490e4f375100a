//! What a server keeps. Each subject has its structure here, and its methods in a file of its own: so none of
//! these files imports another's.

use super::lock::Locks;
use super::session::{BySession, Now, Session, SessionId};
use crate::execute::{Outcome, Reply};
use crate::json::Json;
use crate::monitor::{MonitorId, Monitors};
use crate::schema::TableIdx;
use crate::storage::{CommitNo, Storage};
use crate::{Changes, Database, Uuid, UuidGenerator};
use hashbrown::HashMap;
use serde_json::Value;
use serde_json::value::RawValue;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The name of the database about databases.
pub const SERVER_DATABASE: &str = "_Server";

/// A server.
pub struct Server {
    /// When it started.
    pub(super) start: Instant,
    pub(super) id: Uuid,
    pub(super) ids: UuidGenerator,
    pub(super) databases: BTreeMap<String, Hosted>,
    /// Databases came, went or were converted since `_Server` was made to say so.
    pub(super) own_is_stale: bool,
    pub(super) sessions: BySession<Session>,
    pub(super) next_session: u64,
    pub(super) locks: Locks,
    /// Transactions that are not in the log yet.
    pub(super) group: Group,
    /// What telling monitors has cost since [`Server::flush`] began.
    pub(super) tell_work: usize,
    /// The session whose monitors were told last.
    pub(super) told_last: SessionId,
    /// Sessions with output that they do not know of.
    pub(super) ready: BTreeSet<SessionId>,
    /// Clients may change nothing: this is a backup.
    pub(super) read_only: bool,
    pub(super) monitor_cond_disabled: bool,
    /// Databases and tables whose changes are logged.
    pub(super) logged: BTreeSet<(String, String)>,
    pub(super) log_lines: Vec<String>,
    pub(super) refused_by_disk: Vec<(String, std::io::Error)>,
    pub(super) counters: Counters,
    pub(super) budget: Budget,
}

/// Counts of events, for `coverage/show` and tests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Requests and notifications handled.
    pub messages: u64,
    /// Transactions that changed something.
    pub commits: u64,
    /// Transactions refused or without a change.
    pub others: u64,
    /// Updates sent.
    pub updates: u64,
    /// Sessions ended because what they missed cost too much.
    pub sessions_too_far_behind: u64,
}

/// What clients take, of what they may: see [budget](super::budget).
#[derive(Debug, Default)]
pub(super) struct Budget {
    pub(super) limits: Limits,
    /// For all sessions.
    pub(super) kept: usize,
    /// Transactions that wait.
    pub(super) waiting: usize,
    /// Bytes that the owner has read but not handed over.
    pub(super) unread: Cell<usize>,
    /// What the request takes that is being executed, at most.
    pub(super) request: usize,
}

/// How much there may be, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Per session: memory kept and buffered for it, and the results of a transaction.
    pub session_bytes: usize,
    /// For all sessions together, including memory that requests build. Half of it may be kept.
    pub total_bytes: usize,
    /// Per waiting transaction: it is retried whenever its tables change.
    pub waiting_bytes: usize,
    /// Locks that one session owns or awaits.
    pub locks: usize,
    /// Transactions of all sessions that wait.
    pub waiting: usize,
    /// Monitors of all sessions: each is looked at after each change.
    pub monitors: usize,
}

/// A database with all that hangs on it.
pub(super) struct Hosted {
    pub(super) number: DatabaseNo,
    /// Where commits are stored; `None`: in memory only.
    pub(super) storage: Option<Storage>,
    pub(super) last_commit: CommitNo,
    pub(super) database: Database,
    pub(super) model: Model,
    pub(super) monitors: Monitors,
    /// Whose each monitor is, and the text of its id.
    pub(super) owners: HashMap<MonitorId, (SessionId, String)>,
    pub(super) waiting: Vec<Waiting>,
    pub(super) unsynced: VecDeque<Unsynced>,
    /// Tables that changed since [`Server::flush`] looked last.
    pub(super) changed: BTreeSet<TableIdx>,
    /// Waiting transactions were tried on changes that have been reverted: all must be tried again.
    pub(super) was_reverted: bool,
    /// Counts commits and conversions.
    pub(super) version: u64,
    /// Its schema as JSON.
    pub(super) schema_json: Box<RawValue>,
}

/// A database while it is served: one that is added again, or converted, counts as another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatabaseNo(pub(super) u64);

/// The model of a database in `_Server` (ovsdb-server(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// One server has it, or an active one and its backups.
    Standalone,
    /// It belongs to another server, and is only read here.
    Relay,
}

/// A transaction that waits for the database to change, or for time to pass.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) session: SessionId,
    pub(super) request: Value,
    /// Parameters except the database's name.
    pub(super) operations: Vec<Json<'static>>,
    pub(super) since: Instant,
    pub(super) due: Option<Instant>,
    /// The tables that decide; a change of one makes it stale.
    pub(super) tables: BTreeSet<TableIdx>,
    /// It must be attempted again.
    pub(super) is_stale: bool,
    /// What another attempt costs, in rows and the like.
    pub(super) work: usize,
    /// The bytes charged for it.
    pub(super) bytes: usize,
}

/// A reply that waits for the disk.
#[derive(Debug)]
pub(super) struct Unsynced {
    pub(super) commit: u64,
    pub(super) session: SessionId,
    pub(super) request: Value,
    pub(super) reply: Reply,
    /// The bytes charged for it.
    pub(super) bytes: usize,
}

/// Transactions that share a write of the log: see [group](super::group).
#[derive(Default)]
pub(super) struct Group {
    /// The database that they change; meaningless if the group is empty.
    pub(super) database: String,
    pub(super) members: Vec<Member>,
    /// The messages of its members, one after the other.
    pub(super) messages: String,
    pub(super) parts: usize,
}

pub(super) struct Member {
    pub(super) now: Now,
    pub(super) session: SessionId,
    pub(super) request: Value,
    pub(super) since: Instant,
    pub(super) again: Again,
    pub(super) changes: Arc<Changes>,
    pub(super) outcome: Outcome,
}

/// What is needed to run a transaction again.
pub(super) enum Again {
    /// Its position in the group's messages. Copying the text costs less than keeping its parsed form.
    Message(Range<usize>),
    /// It has waited, and its text is no longer available.
    Operations(Vec<Json<'static>>),
}

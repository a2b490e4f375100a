//! Memory that clients make the server use, in bytes, and its limits.
//!
//! *Kept* is memory that outlives a request: waiting transactions, replies that wait for the disk, locks and
//! monitors. It is charged to the session when it is allocated and released when it is freed. *Buffered* is
//! input and output that the owner of the server holds; it is measured. *Built* is memory that a request
//! allocates while it runs; it is bounded by what the other two leave. Committed rows are charged to no
//! session: they are the database. A request that exceeds a budget is refused with the error "resources
//! exhausted".

use super::session::{MonitorCharge, Session, SessionId};
use super::state::{Budget, Limits, Server};
use crate::Error;
use crate::execute::Room;
use serde_json::Value;
use serde_json::value::RawValue;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            session_bytes: 256 << 20,
            total_bytes: 1 << 30,
            waiting_bytes: 1 << 20,
            locks: 4_096,
            waiting: 10_000,
            monitors: 20_000,
        }
    }
}

/// Memory for a lock besides two copies of its name: entries in queues and maps.
const LOCK_BYTES: usize = 256;
/// Memory for a monitor besides its request.
const MONITOR_BYTES: usize = 1_024;
/// Memory for a table of it, besides its request.
const MONITOR_TABLE_BYTES: usize = 256;
/// A monitor keeps what it was asked for as its conditions, columns and names.
const MONITOR_BYTES_PER_BYTE: usize = 6;
/// Memory for a waiting transaction besides its operations.
const WAITING_BYTES: usize = 256;
/// Requests up to this are not looked at before they are read.
const SMALL_BYTES: usize = 64 << 10;

/// What parsed JSON takes besides its text, at most, in bytes for each character that is not in a string. A
/// list has room for four from the start, and then for twice as many as are in it.
struct Tree {
    /// `[`: an array with an element.
    array: usize,
    /// `{`: an object, with `:` one with a member.
    object: usize,
    /// `,`: another element or, with `:`, another member.
    comma: usize,
    /// `:`.
    colon: usize,
}

/// Of [`Json`](crate::json::Json), whose strings are the text's, and whose objects are lists.
const JSON: Tree = Tree { array: 160, object: 208, comma: 64, colon: 48 };
/// Of [`Value`], whose strings have memory of their own, and whose objects are trees, in leaves of eleven.
const VALUE: Tree = Tree { array: 192, object: 640, comma: 96, colon: 128 };

pub(super) fn exhausted(what: impl Into<String>) -> Error {
    Error::new("resources exhausted", what.into())
}

impl Server {
    /// Other bounds than the usual ones.
    pub fn set_limits(&mut self, limits: Limits) {
        self.budget.limits = limits;
    }

    /// Its bounds.
    pub fn limits(&self) -> Limits {
        self.budget.limits
    }

    /// Tells how many bytes of requests the owner holds that are not complete.
    pub fn set_unread_bytes(&self, bytes: usize) {
        self.budget.unread.set(bytes);
    }

    /// Memory kept for clients, in bytes, excluding unsent output and unread input.
    pub fn kept_bytes(&self) -> usize {
        self.budget.kept
    }

    /// Charges a session for something to be kept.
    pub(super) fn keep(&mut self, id: SessionId, bytes: usize) -> Result<(), Error> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        let limits = self.budget.limits;
        let of_session = session.kept + session.output.len() + bytes;
        if of_session > limits.session_bytes {
            let details = format!("a session may take {} bytes of memory", limits.session_bytes);
            return Err(exhausted(details));
        }
        // The other half is for data in transit: a session that keeps much must not end those that read their
        // replies.
        let kept_bytes = limits.total_bytes / 2;
        if self.budget.kept + bytes > kept_bytes {
            let details = format!("all sessions together may keep {kept_bytes} bytes of memory");
            return Err(exhausted(details));
        }
        session.kept += bytes;
        self.budget.kept += bytes;
        Ok(())
    }

    /// Charges a session for what has been built already; what it asks for next is refused instead.
    pub(super) fn keep_anyway(&mut self, id: SessionId, bytes: usize) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.kept += bytes;
            self.budget.kept += bytes;
        }
    }

    /// Something that was charged is gone.
    pub(super) fn release(&mut self, id: SessionId, bytes: usize) {
        // The charges of a session that has ended were released with it.
        if let Some(session) = self.sessions.get_mut(&id) {
            debug_assert!(session.kept >= bytes);
            session.kept -= bytes;
            self.budget.kept -= bytes;
        }
    }

    pub(super) fn release_all(&mut self, session: &Session) {
        self.budget.kept -= session.kept;
    }

    /// The memory that a request takes while it is executed. `Err`: that would be too much.
    pub(super) fn check_request(&self, text: &str) -> Result<usize, Error> {
        self.check_tree(text, &JSON)
    }

    /// Charges the request for its parameters, read as [`Value`]. `Err`: that would be too much.
    pub(super) fn check_params(&mut self, params: &RawValue) -> Result<(), Error> {
        self.budget.request = self.check_tree(params.get(), &VALUE)?;
        Ok(())
    }

    fn check_tree(&self, text: &str, tree: &Tree) -> Result<usize, Error> {
        if text.len() <= SMALL_BYTES {
            return Ok(0);
        }
        let free = self.budget.limits.total_bytes.saturating_sub(self.budget.kept);
        let bytes = tree.bytes(text);
        if bytes > free {
            return Err(exhausted(format!("the request takes more than {free} bytes of memory")));
        }
        Ok(bytes)
    }
}

impl Budget {
    /// How many bytes a transaction of a session may build.
    pub(super) fn room(&self, session: &Session, output_bytes: usize) -> Room {
        let of_session = self.limits.session_bytes.saturating_sub(session.kept + session.output.len());
        let all = self.kept + self.unread.get() + output_bytes + self.request;
        let all = self.limits.total_bytes.saturating_sub(all);
        Room { values: of_session.min(all), all }
    }
}

/// The charge for a lock.
pub(super) fn lock_bytes(name: &str) -> usize {
    LOCK_BYTES + 2 * name.len()
}

impl MonitorCharge {
    /// For a monitor with this text as its id, and for the tables that `requests` say something of.
    pub(super) fn of(key: &str, requests: &Value) -> MonitorCharge {
        let says_nothing = |json: &Value| json.as_array().is_some_and(Vec::is_empty);
        let named = requests.as_object().into_iter().flatten().filter(|(_, json)| !says_nothing(json));
        let tables = named.map(|(name, json)| {
            let bytes = name.len() + json.to_string().len();
            (name.clone(), MONITOR_TABLE_BYTES + MONITOR_BYTES_PER_BYTE * bytes)
        });
        MonitorCharge { base: MONITOR_BYTES + MONITOR_BYTES_PER_BYTE * key.len(), tables: tables.collect() }
    }

    /// All of it.
    pub(super) fn bytes(&self) -> usize {
        self.base + self.tables.values().sum::<usize>()
    }

    /// Puts what was charged for changes in the place of what they replace. Returns how much that was.
    pub(super) fn replace(&mut self, new: MonitorCharge) -> usize {
        let old = std::mem::replace(&mut self.base, new.base);
        let tables = new.tables.into_iter();
        old + tables.filter_map(|(name, bytes)| self.tables.insert(name, bytes)).sum::<usize>()
    }
}

/// The charge for a transaction while it waits.
pub(super) fn waiting_bytes(request: &Value, operations: &[crate::json::Json<'_>]) -> usize {
    let operations =
        size_of_val(operations) + operations.iter().map(crate::json::Json::heap_bytes).sum::<usize>();
    WAITING_BYTES + id_bytes(request) + operations
}

/// The charge for the id of a request that is kept.
pub(super) fn id_bytes(id: &Value) -> usize {
    match id {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => VALUE.bytes(&id.to_string()),
    }
}

impl Tree {
    /// The memory of a JSON text once it is parsed, at most.
    fn bytes(&self, text: &str) -> usize {
        let (mut in_string, mut escaped, mut bytes) = (false, false, text.len());
        let next = text.bytes().skip(1).chain([0]);
        for (byte, next) in text.bytes().zip(next) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'[' if next != b']' => bytes += self.array,
                b'{' if next != b'}' => bytes += self.object,
                b',' => bytes += self.comma,
                b':' => bytes += self.colon,
                _ => {}
            }
        }
        bytes
    }
}

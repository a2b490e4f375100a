//! The operations of a `transact` request (RFC 7047 section 5.2, ovsdb-server(7)).

use serde_json::Value;

use crate::changes::Changes;
use crate::database::Database;
use crate::error::Error;
use crate::uuid::UuidGenerator;

/// What a transaction needs to know from outside.
pub struct Context<'a> {
    /// Gives rows their UUIDs and versions.
    pub ids: &'a mut UuidGenerator,
    /// Whether the client holds the lock of that name, for `assert`.
    pub has_lock: &'a dyn Fn(&str) -> bool,
    /// Milliseconds since the request came in: what the timeouts of `wait` count from. 0 at the first try.
    pub elapsed_ms: u64,
    /// Refuse every operation that changes anything, as for `_Server` and on a backup.
    pub read_only: bool,
}

/// How far a transaction came.
#[derive(Debug)]
pub enum Execution {
    /// It is over, in force or refused.
    Done(Outcome),
    /// A `wait` does not hold yet, and nothing was changed: try again when a table changed, and at the latest when
    /// `elapsed_ms` is this (`None`: it waits for ever).
    Pending {
        /// Milliseconds since the request came in.
        retry_at_ms: Option<u64>,
    },
}

/// A transaction that is over.
#[derive(Debug)]
pub struct Outcome {
    /// The "result" of the reply: one element for each operation, null after one that failed, and one more where the commit
    /// failed.
    pub reply: Value,
    /// What it changed: nothing where it failed, and where it only read.
    pub changes: Changes,
    /// Whether it asked to be on disk before it is answered (`commit` with `durable`).
    pub durable: bool,
    /// The texts of its `comment` operations, joined by newlines, for the log.
    pub comment: Option<String>,
}

impl Database {
    /// Runs the operations of a `transact` request: its parameters after the database's name. Either all of them are in force
    /// then or none. Where the log cannot be written afterwards, [`Database::revert`] takes the changes back.
    pub fn execute(&mut self, operations: &[Value], context: &mut Context<'_>) -> Execution {
        let _ = context;
        let mut reply = vec![Value::Null; operations.len()];
        let refused = Error::new("not supported", "operations are not read yet").to_json();
        if let Some(first) = reply.first_mut() {
            *first = refused;
        }
        Execution::Done(Outcome {
            reply: Value::Array(reply),
            changes: Changes::default(),
            durable: false,
            comment: None,
        })
    }
}

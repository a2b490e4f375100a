//! The operations of a `transact` request (RFC 7047 section 5.2, ovsdb-server(7)).
//!
//! Operations run one after the other in one [`Transaction`], each seeing the effects of earlier ones; the
//! first that fails ends the transaction, which then changes nothing. At the end the checks of the commit may
//! still reject the whole. Nothing here recurses: the parser bounds how deep a request nests.

mod condition;
mod mutation;
mod operations;
mod rbac;
mod reply;

use crate::schema::TableIdx;
use serde_json::Value;
use std::collections::BTreeSet;

pub use condition::Condition;
pub(crate) use condition::{Clause, Function, VALUE_BYTES, elements_cost};
#[cfg(test)]
pub(crate) use condition::{ELEMENT_WORK, ROW_WORK};
#[cfg(test)]
pub(crate) use operations::CHANGE_WORK;
pub use rbac::Principal;
pub use reply::{OpResult, Reply, RowText};

use crate::changes::Changes;
use crate::database::{Database, Transaction};
use crate::error::Error;
use crate::json::Json;
use crate::symbols::Symbols;
use crate::types::{Members, What};
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
    /// The requester.
    pub principal: Principal<'a>,
    /// How many bytes the transaction may build. Asked when there are many, since the answer may take a look
    /// at every client. `None`: as many as it likes.
    pub room: Option<&'a dyn Fn() -> Room>,
}

/// How many bytes a transaction may build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Results of `select`, and the values that it sets.
    pub values: usize,
    /// These, and the rows that it inserts.
    pub all: usize,
}

/// How far a transaction came.
#[derive(Debug)]
pub enum Execution {
    /// It is over, in force or refused.
    Done(Outcome),
    /// A `wait` does not hold yet, and nothing was changed: try again when a table changed, and at the latest
    /// when `elapsed_ms` is this (`None`: it waits for ever).
    Pending {
        /// Milliseconds since the request came in.
        retry_at_ms: Option<u64>,
        /// The tables to wait for: while none of them changes, it keeps waiting.
        tables: BTreeSet<TableIdx>,
        /// What another attempt costs, in rows examined.
        work: usize,
    },
}

/// A transaction that is over.
#[derive(Debug)]
pub struct Outcome {
    /// The "result" of the reply: one element for each operation, null after one that failed, and one more
    /// where the commit failed.
    pub reply: Reply,
    /// Its changes: empty if it failed or only read.
    pub changes: Changes,
    /// Whether it asked to be on disk before the reply (`commit` with `durable`).
    pub durable: bool,
    /// The texts of its `comment` operations, joined by newlines, for the log.
    pub comment: Option<String>,
}

/// Why a transaction stops.
enum Stop {
    /// An operation failed.
    Failed(Error),
    /// A `wait` does not hold, and has until then.
    Waits { until_ms: Option<u64> },
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// A transaction in progress.
struct Run<'db, 'c> {
    transaction: Transaction<'db>,
    symbols: Symbols<'c>,
    has_lock: &'c dyn Fn(&str) -> bool,
    principal: Principal<'c>,
    elapsed_ms: u64,
    durable: bool,
    comment: Option<String>,
    tables: BTreeSet<TableIdx>,
    work: usize,
    built: Built<'c>,
}

/// The memory that a transaction builds.
struct Built<'c> {
    values: usize,
    rows: usize,
    /// The space granted so far.
    allowed: Room,
    room: Option<&'c dyn Fn() -> Room>,
}

/// What one transaction may cost, in clauses that rows are compared with: about a second.
pub(crate) const WORK_MAX: usize = 64_000_000;
/// A transaction builds as much without asking.
const BUILT_BYTES_FREE: usize = 1 << 20;
/// Memory for a row that is new, besides what is in it: its places among the table's rows and the changes,
/// and its result.
const NEW_ROW_BYTES: usize = 256;

impl Built<'_> {
    /// So many bytes more of values. `Err`: there is no room for them.
    fn add(&mut self, bytes: usize) -> Result<(), Error> {
        self.values += bytes;
        self.check()
    }

    /// So many bytes of values, in place of others.
    fn replace(&mut self, freed: usize, taken: usize) -> Result<(), Error> {
        self.values = (self.values + taken).saturating_sub(freed);
        self.check()
    }

    /// A row more, which has so many columns, besides their values.
    fn add_row(&mut self, columns: usize) -> Result<(), Error> {
        self.rows += NEW_ROW_BYTES + columns * size_of::<crate::Datum>();
        self.check()
    }

    fn check(&mut self) -> Result<(), Error> {
        let (values, all) = (self.values, self.values + self.rows);
        if values <= self.allowed.values && all <= self.allowed.all {
            return Ok(());
        }
        let Room { values: of_values, all: of_all } =
            self.room.map_or(Room { values: usize::MAX, all: usize::MAX }, |room| room());
        self.allowed = Room { values: of_values.max(BUILT_BYTES_FREE), all: of_all.max(BUILT_BYTES_FREE) };
        let limit = if values > self.allowed.values { self.allowed.values } else { self.allowed.all };
        if values <= self.allowed.values && all <= self.allowed.all {
            return Ok(());
        }
        let details = format!("the transaction takes more than {limit} bytes of memory");
        Err(Error::new("resources exhausted", details))
    }
}

impl Database {
    /// Runs the operations of a `transact` request: its parameters after the database's name. Either all of
    /// them take effect or none. If the log cannot be written afterwards, [`Database::revert`] undoes the
    /// changes.
    pub fn execute(&mut self, operations: &[Value], context: &mut Context<'_>) -> Execution {
        let operations: Vec<Json<'_>> = operations.iter().map(Json::from).collect();
        self.run(&operations, context)
    }

    /// As [`Database::execute`], for JSON that was parsed only to be read once.
    pub fn run(&mut self, operations: &[Json<'_>], context: &mut Context<'_>) -> Execution {
        let mut run = Run {
            transaction: self.begin(),
            symbols: Symbols::new(context.ids),
            has_lock: context.has_lock,
            principal: context.principal,
            elapsed_ms: context.elapsed_ms,
            durable: false,
            comment: None,
            tables: BTreeSet::new(),
            work: 0,
            built: Built {
                values: 0,
                rows: 0,
                allowed: Room { values: BUILT_BYTES_FREE, all: BUILT_BYTES_FREE },
                room: context.room,
            },
        };
        let mut reply = Vec::with_capacity(operations.len());
        for (index, operation) in operations.iter().enumerate() {
            match run.operation(operation, (index + 1, operations.len()), context.read_only) {
                Ok(result) => reply.push(result),
                Err(Stop::Waits { until_ms }) => {
                    let Run { tables, work, .. } = run;
                    return Execution::Pending { retry_at_ms: until_ms, tables, work };
                }
                Err(Stop::Failed(error)) => {
                    reply.push(OpResult::Failed(error));
                    reply.resize_with(operations.len(), || OpResult::NotRun);
                    return Execution::Done(Outcome::refused(reply));
                }
            }
        }
        let Run { transaction, durable, comment, .. } = run;
        match transaction.commit(context.ids) {
            Ok(changes) => Execution::Done(Outcome { reply: Reply(reply), changes, durable, comment }),
            Err(error) => {
                reply.push(OpResult::Failed(error));
                Execution::Done(Outcome::refused(reply))
            }
        }
    }
}

impl Outcome {
    fn refused(reply: Vec<OpResult>) -> Outcome {
        Outcome { reply: Reply(reply), changes: Changes::default(), durable: false, comment: None }
    }
}

impl Run<'_, '_> {
    fn operation(
        &mut self,
        json: &Json<'_>,
        (number, total): (usize, usize),
        read_only: bool,
    ) -> Result<OpResult, Stop> {
        self.work += 1;
        let mut members = Members::of(json, What::Operation(number, total))?;
        let name = members.string("op")?.ok_or_else(|| members.missing("op"))?;
        if read_only && matches!(name, "insert" | "update" | "mutate" | "delete" | "commit") {
            let details = format!("{name} operation not allowed when database server is in read only mode");
            return Err(Error::new("not allowed", details).into());
        }
        match name {
            "insert" => Ok(self.insert(members)?),
            "select" => Ok(self.select(members)?),
            "update" => Ok(self.update(members)?),
            "mutate" => Ok(self.mutate(members)?),
            "delete" => Ok(self.delete(members)?),
            "wait" => self.wait(members),
            "commit" => Ok(self.commit(members)?),
            "abort" => {
                members.finish()?;
                Err(Error::new("aborted", "aborted by request").into())
            }
            "comment" => Ok(self.comment(members)?),
            "assert" => Ok(self.assert(members)?),
            _ => Err(members.failed(&format!("No operation \"{name}\"")).into()),
        }
    }

    fn commit(&mut self, mut members: Members<'_>) -> Result<OpResult, Error> {
        let durable = members.boolean("durable")?.ok_or_else(|| members.missing("durable"))?;
        members.finish()?;
        self.durable |= durable;
        Ok(OpResult::Done)
    }

    fn comment(&mut self, mut members: Members<'_>) -> Result<OpResult, Error> {
        let comment = members.string("comment")?.ok_or_else(|| members.missing("comment"))?;
        members.finish()?;
        match &mut self.comment {
            None => self.comment = Some(comment.to_owned()),
            Some(earlier) => {
                earlier.push('\n');
                earlier.push_str(comment);
            }
        }
        Ok(OpResult::Done)
    }

    fn assert(&mut self, mut members: Members<'_>) -> Result<OpResult, Error> {
        let lock = members.id("lock")?.ok_or_else(|| members.missing("lock"))?;
        members.finish()?;
        if !(self.has_lock)(lock) {
            return Err(Error::new("not owner", format!("Asserted lock {lock} not held.")));
        }
        Ok(OpResult::Done)
    }
}

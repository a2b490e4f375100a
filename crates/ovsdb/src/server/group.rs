//! Transactions that share a write of the log.
//!
//! A transaction that changes a database is in force at once, and joins the *group*: it is written to the log, told to monitors and
//! answered when the group is [settled](Server::settle), at the latest by [`Server::flush`]. So what many clients ask for in one turn
//! of the owner's loop costs one write. Until then nobody is told anything that the group has a part in: whatever is not
//! a transaction to the same database, and a transaction that changes nothing, settles the group before it.
//!
//! Where the write fails, nothing of the group is in the log: it is all taken back, and its transactions run again, each alone with
//! its own write, so that each gets the answer that it would have got alone.

use super::databases::Hosted;
use super::transactions::{Unsynced, Waiting};
use super::{Now, Server, SessionId};
use crate::Changes;
use crate::execute::Outcome;
use crate::log::transaction::Note;
use crate::storage::io_error;
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Instant;

/// Transactions of a group.
const MEMBERS_MAX: usize = 256;
/// Rows that a group changes, and results that its replies have, before it is settled: they wait in memory.
const PARTS_MAX: usize = 1_024;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Group {
    /// What they change; without meaning where there are none.
    database: String,
    members: Vec<Member>,
    parts: usize,
}

struct Member {
    now: Now,
    session: SessionId,
    request: Value,
    since: Instant,
    again: Again,
    changes: Arc<Changes>,
    outcome: Outcome,
}

/// What it takes to run a transaction again.
enum Again {
    /// The parameters of its request. To copy their text costs less than to keep what was made of it.
    Params(Box<RawValue>),
    /// It has waited, and its text is gone.
    Operations(Vec<Value>),
}

impl Member {
    fn into_waiting(self) -> Waiting {
        let Member { session, request, since, again, .. } = self;
        let operations = match again {
            Again::Operations(operations) => operations,
            Again::Params(params) => {
                let mut params: Vec<Value> =
                    serde_json::from_str(params.get()).expect("it was read when it came");
                // The database's name.
                params.remove(0);
                params
            }
        };
        Waiting { session, request, operations, since, due: None }
    }
}

impl Server {
    /// Makes a transaction, whose changes are in force, one of the group.
    pub(super) fn join_group(
        &mut self,
        now: Now,
        name: &str,
        transaction: Waiting,
        params: Option<&RawValue>,
        mut outcome: Outcome,
    ) {
        debug_assert!(self.group.members.is_empty() || self.group.database == name);
        if self.group.members.is_empty() && self.group.database != name {
            name.clone_into(&mut self.group.database);
        }
        let changes = Arc::new(std::mem::take(&mut outcome.changes));
        let results = outcome.reply.as_array().map_or(0, Vec::len);
        // What was selected may be long, and is not kept waiting.
        let has_rows = |result: &Value| result.get("rows").is_some();
        let is_long = outcome.reply.as_array().is_some_and(|results| results.iter().any(has_rows));
        self.group.parts += changes.len() + results;
        let Waiting { session, request, operations, since, .. } = transaction;
        let again = match params {
            Some(params) => Again::Params(params.to_owned()),
            None => Again::Operations(operations),
        };
        self.group.members.push(Member { now, session, request, since, again, changes, outcome });
        if is_long || self.group.members.len() >= MEMBERS_MAX || self.group.parts >= PARTS_MAX {
            self.settle();
        }
    }

    /// Settles the group if it changes another database than this.
    pub(super) fn settle_unless_of(&mut self, name: &str) {
        if self.group.database != name {
            self.settle();
        }
    }

    /// Writes the group to the log and answers its transactions. False: that failed, so that its transactions ran again, and what was
    /// read of the database before may not be true.
    pub(super) fn settle(&mut self) -> bool {
        if self.group.members.is_empty() {
            return true;
        }
        let mut members = std::mem::take(&mut self.group.members);
        let name = std::mem::take(&mut self.group.database);
        self.group.parts = 0;
        let hosted = self.databases.get_mut(&name).expect("its group is settled before it goes");
        let written = hosted.log(members.iter().map(|m| {
            let note = Note { date_ms: m.now.date_ms, comment: m.outcome.comment.as_deref() };
            (&*m.changes, note)
        }));
        let settled = match written {
            Ok(()) => {
                members.drain(..).for_each(|member| self.committed(&name, member));
                true
            }
            Err(error) => {
                for member in members.iter().rev() {
                    hosted.database.revert(&member.changes);
                }
                // Who waits for something has seen what is not there any more.
                hosted.has_changed = true;
                if members.len() == 1 {
                    let Member { session, request, mut outcome, .. } = members.remove(0);
                    self.counters.others += 1;
                    if let Value::Array(results) = &mut outcome.reply {
                        results.push(io_error(&error).to_json());
                    }
                    self.answer(session, &request, &outcome.reply);
                    self.ready.insert(session);
                } else {
                    for member in members.drain(..) {
                        self.attempt(member.now, &name, member.into_waiting(), None);
                        self.settle();
                    }
                }
                false
            }
        };
        // Their memory is used again: there may be thousands of groups a second.
        self.group.members = members;
        self.group.database = name;
        settled
    }

    /// A transaction is in the log: tells it, and answers it.
    fn committed(&mut self, name: &str, member: Member) {
        let Member { session, request, changes, outcome, .. } = member;
        let hosted = self.databases.get_mut(name).expect("it was written to");
        hosted.committed(&mut self.ids, &changes);
        self.counters.commits += 1;
        self.log_changes(name, &changes);
        self.answer_when_durable(name, outcome.durable, Unsynced::new(session, request, outcome.reply));
        self.ready.insert(session);
    }
}

impl Hosted {
    /// Makes changes known that are in the log.
    pub(super) fn committed(&mut self, ids: &mut crate::UuidGenerator, changes: &Arc<Changes>) {
        self.monitors.commit(ids.next_uuid(), changes.clone());
        self.has_changed = true;
        self.version += 1;
    }
}

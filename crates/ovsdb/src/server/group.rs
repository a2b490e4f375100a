//! Transactions that share a write of the log.
//!
//! A transaction that changes a database takes effect at once and joins the *group*: it is written to the
//! log, reported to monitors and answered when the group is [settled](Server::settle), at the latest by
//! [`Server::flush`]. So transactions from many clients in one turn of the owner's loop cost one write. Until
//! then nothing that depends on the group is sent: any request other than a transaction on the same database,
//! and a transaction that changes nothing, first settles the group.
//!
//! If the write fails, nothing of the group is in the log: all of it is undone, and its transactions run
//! again, each with a write of its own, so that each gets the answer that it would have got alone.

use super::session::Now;
use super::state::{Again, Hosted, Member, Server, Unsynced};
use super::transactions::{Attempt, Operations};
use crate::Changes;
use crate::execute::{OpResult, Outcome};
use crate::json::Json;
use crate::jsonrpc::Received;
use crate::log::transaction::Note;
use crate::storage::io_error;
use std::sync::Arc;

/// Transactions of a group.
const MEMBERS_MAX: usize = 256;
/// Total size of a group's messages at which it is settled.
const MESSAGES_BYTES_MAX: usize = 1 << 20;
/// The memory for messages that is kept between groups.
const MESSAGES_BYTES_KEPT: usize = 64 << 10;
/// Rows that a group changes, and results that its replies have, before it is settled: they wait in memory.
const PARTS_MAX: usize = 1_024;

impl Server {
    /// Makes a transaction, whose changes are in force, one of the group.
    pub(super) fn join_group(&mut self, now: Now, name: &str, attempt: Attempt<'_>, mut outcome: Outcome) {
        let group = &mut self.group;
        debug_assert!(group.members.is_empty() || group.database == name);
        if group.members.is_empty() && group.database != name {
            name.clone_into(&mut group.database);
        }
        let changes = Arc::new(std::mem::take(&mut outcome.changes));
        // Selected rows may be long, and are not kept.
        let is_long = outcome.reply.0.iter().any(|result| matches!(result, OpResult::Rows(_)));
        group.parts += changes.len() + outcome.reply.0.len();
        let Attempt { session, request, since, operations } = attempt;
        let again = match operations {
            Operations::Read(message, _) => {
                let start = group.messages.len();
                group.messages.push_str(message);
                Again::Message(start..group.messages.len())
            }
            Operations::Kept(operations) => Again::Operations(operations),
        };
        group.members.push(Member { now, session, request, since, again, changes, outcome });
        let is_long = is_long || group.messages.len() > MESSAGES_BYTES_MAX;
        if is_long || group.members.len() >= MEMBERS_MAX || group.parts >= PARTS_MAX {
            self.settle();
        }
    }

    /// Settles the group if it changes another database than this.
    pub(super) fn settle_unless_of(&mut self, name: &str) {
        if self.group.database != name {
            self.settle();
        }
    }

    /// Writes the group to the log and answers its transactions. False: that failed, so that its transactions
    /// ran again, and what was read of the database before may not be true.
    pub(super) fn settle(&mut self) -> bool {
        if self.group.members.is_empty() {
            return true;
        }
        let mut members = std::mem::take(&mut self.group.members);
        let name = std::mem::take(&mut self.group.database);
        let mut messages = std::mem::take(&mut self.group.messages);
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
                // A waiting transaction has seen data that no longer exists.
                hosted.was_reverted = true;
                if members.len() == 1 {
                    let Member { session, request, mut outcome, .. } = members.remove(0);
                    self.counters.others += 1;
                    outcome.reply.0.push(OpResult::Failed(io_error(&error)));
                    self.answer(&name, session, request, outcome.reply);
                    self.ready.insert(session);
                    self.refused_by_disk.push((name.clone(), error));
                } else {
                    for member in members.drain(..) {
                        self.run_again(&name, member, &messages);
                        self.settle();
                    }
                }
                false
            }
        };
        // Their memory is used again: there may be thousands of groups a second.
        messages.clear();
        if messages.capacity() <= MESSAGES_BYTES_KEPT {
            self.group.messages = messages;
        }
        self.group.members = members;
        self.group.database = name;
        settled
    }

    fn run_again(&mut self, name: &str, member: Member, messages: &str) {
        let Member { now, session, request, since, again, .. } = member;
        let params;
        let operations = match again {
            Again::Operations(operations) => Operations::Kept(operations),
            Again::Message(range) => {
                let message = &messages[range];
                params = params_of(message);
                // Behind the database's name.
                Operations::Read(message, &params[1..])
            }
        };
        self.attempt(now, name, Attempt { session, request, since, operations });
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

/// The parameters of a transaction that was read before.
fn params_of(message: &str) -> Vec<Json<'_>> {
    let params = match Received::parse(message) {
        Ok(Received::Request { params, .. }) => serde_json::from_str(params.get()).ok(),
        _ => None,
    };
    params.expect("it was read when it came")
}

impl Hosted {
    /// Makes changes known that are in the log.
    pub(super) fn committed(&mut self, ids: &mut crate::UuidGenerator, changes: &Arc<Changes>) {
        self.monitors.commit(ids.next_uuid(), changes.clone());
        // Only waiting transactions need to know.
        if !self.waiting.is_empty() {
            self.changed.extend(changes.by_table().map(|(table, _)| table));
        }
        self.version += 1;
    }
}

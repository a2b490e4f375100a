//! Transactions: at once, waiting for a condition, waiting for the disk.

use super::budget::{exhausted, id_bytes, waiting_bytes};
use super::requests::no_database;
use super::session::{Now, SessionId};
use super::state::{Hosted, SERVER_DATABASE, Server, Unsynced, Waiting};
use crate::error::syntax_error;
use crate::execute::{Context, Execution, OpResult, Outcome, Reply};
use crate::json::Json;
use crate::jsonrpc::ID_BYTES_MAX;
use crate::log::transaction::Note;
use crate::{Changes, Error, Transaction, UuidGenerator};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Transactions of one session that wait.
pub(super) const WAITING_MAX: usize = 1_000;
/// How much [`Server::flush`] attempts again at once, in rows examined: some milliseconds. The rest follows
/// after other work.
const RETRY_WORK: usize = 10_000;
/// What an attempt of a transaction that waits may cost, in clauses that rows are compared with.
pub(super) const WAITING_WORK_MAX: usize = 1_000_000;
/// Bytes of operations that cost as much as a row.
const BYTES_PER_ROW: usize = 64;

/// A transaction to run, for the first time or again.
pub(super) struct Attempt<'a> {
    pub(super) session: SessionId,
    pub(super) request: Value,
    pub(super) since: Instant,
    pub(super) operations: Operations<'a>,
}

/// What a transaction asks for.
pub(super) enum Operations<'a> {
    /// Just parsed from the text of its message.
    Read(&'a str, &'a [Json<'a>]),
    /// It has waited, and its text is no longer available.
    Kept(Vec<Json<'static>>),
}

impl Operations<'_> {
    fn as_slice(&self) -> &[Json<'_>] {
        match self {
            Operations::Read(_, operations) => operations,
            Operations::Kept(operations) => operations,
        }
    }

    fn into_kept(self) -> Vec<Json<'static>> {
        match self {
            Operations::Read(_, operations) => operations.iter().cloned().map(Json::into_owned).collect(),
            Operations::Kept(operations) => operations,
        }
    }
}

impl Unsynced {
    /// A reply, whose commit is not known yet.
    pub(super) fn new(session: SessionId, request: Value, reply: Reply) -> Unsynced {
        Unsynced { commit: 0, session, request, reply, bytes: 0 }
    }
}

/// Why changes of the server's own were not committed.
#[derive(Debug)]
pub enum NotCommitted {
    /// The database refuses them.
    Refused(Error),
    /// The log cannot be written.
    Log(std::io::Error),
    /// There is no such database.
    NoDatabase,
}

impl std::fmt::Display for NotCommitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotCommitted::Refused(error) => error.fmt(f),
            NotCommitted::Log(error) => write!(f, "the log cannot be written: {error}"),
            NotCommitted::NoDatabase => f.write_str("no such database"),
        }
    }
}

impl std::error::Error for NotCommitted {}

impl Server {
    /// A transaction whose parameters were not read with its message.
    pub(super) fn transact_params(
        &mut self,
        now: Now,
        session: SessionId,
        message: &str,
        params: &RawValue,
        request: Value,
    ) {
        match serde_json::from_str::<Vec<Json<'_>>>(params.get()) {
            Ok(params) => self.transact(now, session, message, &params, request),
            // The message was read whole, so it is JSON; numbers can still be out of every range.
            Err(e) => {
                let error = Error::new("syntax error", e.to_string()).to_json();
                self.reply_error(session, &request, &error);
            }
        }
    }

    /// The reply to a transaction in which U+FFFD stands for what is no text, if that is in more than
    /// comments.
    pub(super) fn refused_for_text(&self, params: &RawValue, error: &Error) -> Option<Reply> {
        let params: Vec<Json<'_>> = serde_json::from_str(params.get()).ok()?;
        let [Json::String(name), operations @ ..] = params.as_slice() else { return None };
        if !self.databases.contains_key(&**name) {
            return None;
        }
        let is_comment = |operation: &Json<'_>| {
            let members = operation.as_object().unwrap_or_default();
            members.iter().any(|(name, value)| name == "op" && value.as_str() == Some("comment"))
        };
        let is_refused = |operation: &Json<'_>| !is_comment(operation) && operation.has('\u{fffd}');
        let at = operations.iter().position(is_refused)?;
        let mut results = vec![OpResult::NotRun; operations.len()];
        results[at] = OpResult::Failed(error.clone());
        Some(Reply(results))
    }

    /// A transaction. `message` is the text that it was read from.
    pub(super) fn transact(
        &mut self,
        now: Now,
        session: SessionId,
        message: &str,
        params: &[Json<'_>],
        request: Value,
    ) {
        // Its answer would be indistinguishable from the other's.
        let is_pending = |waiting: &Waiting| waiting.session == session && waiting.request == request;
        let waits = self.sessions.get(&session).is_some_and(|session| session.waiting > 0);
        if waits && self.databases.values().any(|hosted| hosted.waiting.iter().any(is_pending)) {
            let error = syntax_error(&params, "transact: duplicate request ID").to_json();
            return self.reply_error(session, &request, &error);
        }
        let (name, operations) = match params {
            [Json::String(name), operations @ ..] if self.databases.contains_key(&**name) => {
                (name, operations)
            }
            _ => {
                let error = no_database("transact", params.first().and_then(Json::as_str), &params);
                return self.reply_error(session, &request, &error);
            }
        };
        let operations = Operations::Read(message, operations);
        self.attempt(now, name, Attempt { session, request, since: now.at, operations });
    }

    /// Runs a transaction; if it has to wait, keeps it.
    pub(super) fn attempt(&mut self, now: Now, name: &str, attempt: Attempt<'_>) {
        let session = attempt.session;
        self.settle_unless_of(name);
        let Some(state) = self.sessions.get(&session) else { return };
        let read_only = state.read_only || self.read_only || name == SERVER_DATABASE;
        let too_many = state.waiting >= WAITING_MAX || self.budget.waiting >= self.budget.limits.waiting;
        let locks = &self.locks;
        let sessions = &self.sessions;
        let budget = &self.budget;
        let room = || budget.room(state, sessions.values().map(|s| s.output.cost()).sum());
        let hosted = self.databases.get_mut(name).expect("its name was found");
        let mut context = Context {
            ids: &mut self.ids,
            has_lock: &|lock: &str| locks.owns(session, lock),
            elapsed_ms: now.at.saturating_duration_since(attempt.since).as_millis() as u64,
            read_only,
            principal: state.principal(),
            room: Some(&room),
        };
        match hosted.database.run(attempt.operations.as_slice(), &mut context) {
            Execution::Done(outcome) => self.finish(now, name, attempt, outcome),
            Execution::Pending { .. } if too_many => {
                let limit = self.budget.limits.waiting;
                let details =
                    format!("{WAITING_MAX} transactions of one session may wait, and {limit} of all");
                self.reply_error(session, &attempt.request, &exhausted(details).to_json());
            }
            Execution::Pending { retry_at_ms, tables, work } => {
                let Attempt { request, since, operations, .. } = attempt;
                let due = retry_at_ms.map(|ms| since + Duration::from_millis(ms));
                let bytes = waiting_bytes(&request, operations.as_slice());
                if let Err(error) = self.may_wait(session, bytes, work) {
                    return self.reply_error(session, &request, &error.to_json());
                }
                let operations = operations.into_kept();
                let work = work + bytes / BYTES_PER_ROW;
                let hosted = self.databases.get_mut(name).expect("its name was found");
                let is_stale = false;
                hosted.waiting.push(Waiting {
                    session,
                    request,
                    operations,
                    since,
                    due,
                    tables,
                    is_stale,
                    work,
                    bytes,
                });
            }
        }
    }

    /// Charges a session for a transaction that must wait.
    fn may_wait(&mut self, session: SessionId, bytes: usize, work: usize) -> Result<(), Error> {
        if work > WAITING_WORK_MAX {
            let details = format!(
                "a transaction that waits compares rows with {work} clauses, and may with {WAITING_WORK_MAX}"
            );
            return Err(exhausted(details));
        }
        let limit = self.budget.limits.waiting_bytes;
        if bytes > limit {
            let details =
                format!("a transaction that waits may take {limit} bytes of memory, and not {bytes}");
            return Err(exhausted(details));
        }
        self.keep(session, bytes)?;
        if let Some(session) = self.sessions.get_mut(&session) {
            session.waiting += 1;
            self.budget.waiting += 1;
        }
        Ok(())
    }

    fn finish(&mut self, now: Now, name: &str, attempt: Attempt<'_>, outcome: Outcome) {
        if !outcome.changes.is_empty() {
            return self.join_group(now, name, attempt, outcome);
        }
        if !self.settle() {
            // What it saw is not so.
            return self.attempt(now, name, attempt);
        }
        self.counters.others += 1;
        let Attempt { session, request, .. } = attempt;
        self.answer_when_durable(name, outcome.durable, Unsynced::new(session, request, outcome.reply));
    }

    /// Answers a transaction; if it asked to be `durable`, once the last commit is durable.
    pub(super) fn answer_when_durable(&mut self, name: &str, durable: bool, mut unsynced: Unsynced) {
        let hosted = self.databases.get_mut(name).expect("its name was found");
        if durable && let Some(commit) = hosted.want_durable() {
            unsynced.commit = commit;
            unsynced.bytes = unsynced.reply.bytes() + id_bytes(&unsynced.request);
            let (session, bytes) = (unsynced.session, unsynced.bytes);
            hosted.unsynced.push_back(unsynced);
            return self.keep_anyway(session, bytes);
        }
        self.answer(name, unsynced.session, unsynced.request, unsynced.reply);
    }

    /// Lines for the log, where an operator has asked for them.
    pub(super) fn log_changes(&mut self, name: &str, changes: &Changes) {
        if self.logged.is_empty() {
            return;
        }
        let Some(hosted) = self.databases.get(name) else { return };
        for change in changes {
            let table = hosted.database.schema().table(change.table);
            if !self.logged.contains(&(name.to_owned(), table.name.clone())) {
                continue;
            }
            let what = match (&change.old, &change.new) {
                (None, _) => "inserted".to_owned(),
                (_, None) => "deleted".to_owned(),
                (Some(old), Some(new)) => {
                    let columns = old.changed_columns(new).map(|c| table.column(c).name.as_str());
                    format!("modified ({})", columns.collect::<Vec<_>>().join(", "))
                }
            };
            self.log_lines.push(format!("{name}:{} row {} {what}", table.name, change.uuid));
        }
    }

    /// Cancels a waiting transaction of a session.
    pub(super) fn cancel(&mut self, session: SessionId, params: &RawValue) {
        // No transaction has a longer id, and so many values need not be read.
        if params.get().len() > 2 * ID_BYTES_MAX {
            return;
        }
        let Ok(params) = serde_json::from_str::<Vec<Value>>(params.get()) else { return };
        let [request] = params.as_slice() else { return };
        let is_meant = |w: &Waiting| w.session == session && w.request == *request;
        let found = self.databases.values_mut().find_map(|hosted| {
            let at = hosted.waiting.iter().position(is_meant)?;
            Some(hosted.waiting.remove(at))
        });
        if let Some(found) = found {
            self.waits_no_more(session, found.bytes);
            self.reply_error(session, request, &Value::from("canceled"));
        }
    }

    pub(super) fn waits_no_more(&mut self, session: SessionId, bytes: usize) {
        self.release(session, bytes);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.waiting -= 1;
            self.budget.waiting -= 1;
        }
    }

    /// Completes the consequences of all messages handled since the last call: transactions are written to
    /// the log together and answered, those that waited for a change are tried again, and monitors are
    /// updated. If that is much, some is left for the next call ([`Self::has_stale`]), so that other work
    /// need not wait.
    pub fn flush(&mut self, now: Now) {
        self.tell_work = 0;
        self.settle();
        self.update_own_database(now);
        let mut work = 0;
        for name in self.databases.keys().cloned().collect::<Vec<_>>() {
            // A transaction that waited may change what another waits for.
            while work < RETRY_WORK
                && let Some(hosted) = self.databases.get_mut(&name)
                && hosted.mark_stale()
            {
                let stale = hosted.take_waiting(&mut work, |waiting| waiting.is_stale);
                self.retry(now, &name, stale);
                self.settle();
            }
        }
        self.tell_all();
    }

    /// Some waiting transactions must be tried again, or some monitors told: call [`Self::flush`] after other
    /// work has had its turn.
    pub fn has_stale(&self) -> bool {
        let has_stale = |hosted: &Hosted| {
            let is_due = hosted.was_reverted || !hosted.changed.is_empty();
            !hosted.waiting.is_empty() && (is_due || hosted.waiting.iter().any(|w| w.is_stale))
        };
        self.has_untold() || self.databases.values().any(has_stale)
    }

    /// Tries transactions again whose time has come. If there are many, some are left: then the next timeout
    /// is due at once.
    pub fn handle_timeout(&mut self, now: Now) {
        let mut work = 0;
        for name in self.databases.keys().cloned().collect::<Vec<_>>() {
            let hosted = self.databases.get_mut(&name).expect("just listed");
            let due = hosted.take_waiting(&mut work, |w| w.due.is_some_and(|due| due <= now.at));
            self.retry(now, &name, due);
        }
        self.settle();
    }

    fn retry(&mut self, now: Now, name: &str, waiting: Vec<Waiting>) {
        for Waiting { session, request, operations, since, bytes, .. } in waiting {
            self.waits_no_more(session, bytes);
            let operations = Operations::Kept(operations);
            self.attempt(now, name, Attempt { session, request, since, operations });
            self.ready.insert(session);
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.databases.values().flat_map(|h| &h.waiting).filter_map(|w| w.due).min()
    }

    /// Commits the server's own changes to a database: the status of a connection, or what a backup receives.
    /// Monitors see them like any others.
    pub fn commit_own(
        &mut self,
        now: Now,
        name: &str,
        change: impl FnOnce(&mut Transaction<'_>, &mut UuidGenerator) -> Result<(), Error>,
    ) -> Result<(), NotCommitted> {
        self.settle();
        let hosted = self.databases.get_mut(name).ok_or(NotCommitted::NoDatabase)?;
        let mut transaction = hosted.database.begin();
        change(&mut transaction, &mut self.ids).map_err(NotCommitted::Refused)?;
        let changes = transaction.commit(&mut self.ids).map_err(NotCommitted::Refused)?;
        if changes.is_empty() {
            return Ok(());
        }
        let changes: Arc<Changes> = Arc::new(changes);
        let note = Note { date_ms: now.date_ms, comment: None };
        if let Err(error) = hosted.log([(&*changes, note)]) {
            hosted.database.revert(&changes);
            return Err(NotCommitted::Log(error));
        }
        hosted.committed(&mut self.ids, &changes);
        Ok(())
    }

    /// Answers a database's transactions up to a commit that waited for the disk; with an error if it failed.
    pub(super) fn synced(&mut self, name: &str, upto: u64, failure: Option<&Error>) {
        while let Some(hosted) = self.databases.get_mut(name)
            && hosted.unsynced.front().is_some_and(|u| u.commit <= upto)
        {
            let Unsynced { session, request, mut reply, bytes, .. } =
                hosted.unsynced.pop_front().expect("just seen");
            self.release(session, bytes);
            reply.0.extend(failure.cloned().map(OpResult::Failed));
            self.answer(name, session, request, reply);
            self.ready.insert(session);
        }
    }
}

impl Hosted {
    /// Takes those out that have their turn, as long as there was little work.
    fn take_waiting(&mut self, work: &mut usize, has_turn: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let (taken, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|waiting| {
            let is_taken = *work < RETRY_WORK && has_turn(waiting);
            *work += if is_taken { waiting.work } else { 0 };
            is_taken
        });
        self.waiting = waiting;
        taken
    }

    /// Marks the transactions that must be tried again. Returns whether there are any.
    fn mark_stale(&mut self) -> bool {
        let changed = std::mem::take(&mut self.changed);
        let all = std::mem::take(&mut self.was_reverted);
        if all || !changed.is_empty() {
            for waiting in &mut self.waiting {
                waiting.is_stale |= all || !waiting.tables.is_disjoint(&changed);
            }
        }
        self.waiting.iter().any(|waiting| waiting.is_stale)
    }
}

//! A database server without sockets: several databases, and the sessions of its clients.
//!
//! The owner (crate `vswitchd`) moves bytes: a client's input goes into [`Server::handle_text`] message by
//! message, the output for it is in [`Server::output`], and [`Server::take_ready`] names the sessions that
//! got output through others' actions. The owner calls [`Server::flush`] after handling the available input,
//! so that many transactions share a write of the log, and their changes are reported to monitors once;
//! [`Server::handle_timeout`] when [`Server::next_timeout`] is due; [`Server::drained`] when a client has
//! read its output.
//!
//! Invariants:
//! - A client gets the changes made by its own transaction before the transaction's reply.
//! - A transaction that asked to be durable is answered once it is durable; others once they, and everything
//!   that they may have seen, are in the log ([group](self::group)).
//! - A client that does not read its output gets no more from monitors until it has, not even of its own
//!   transaction, whose reply waits meanwhile, and its requests should not be read
//!   ([`Server::may_read`]): its pending output is bounded by the answer to one request.
//! - `_Server` is up to date when [`Server::flush`] returns.
//!
//! Source: RFC 7047 section 4, ovsdb-server(7), ovsdb-server(5).

mod budget;
mod databases;
mod group;
mod lock;
mod monitors;
mod output;
mod own;
mod requests;
mod session;
mod state;
mod transactions;

pub use databases::{NoSuchDatabase, StorageNews};
pub use lock::LockCounts;
pub use output::Output;
pub use session::{BySession, Now, OUTPUT_BYTES_FULL, SessionId};
pub use state::{Counters, DatabaseNo, Limits, Model, SERVER_DATABASE, Server};
pub use transactions::NotCommitted;

use crate::jsonrpc::{self, BadMessage, Message, Received, Transact};
use crate::{Error, Uuid, UuidGenerator};
use lock::{Locks, News};
use serde::Serialize;
use serde_json::Value;
use session::Session;
use state::{Budget, Group};
use std::collections::{BTreeMap, BTreeSet};

/// The longest request that is read though it is not UTF-8. It is copied for that, to three times its length
/// at most, and nothing but a command line has such bytes.
const NOT_UTF8_BYTES_MAX: usize = 16 << 20;

impl Server {
    /// Without databases but its own. `ids` gives rows and commits their UUIDs.
    pub fn new(now: Now, mut ids: UuidGenerator) -> Server {
        let mut server = Server {
            start: now.at,
            id: ids.next_uuid(),
            ids,
            databases: BTreeMap::new(),
            own_is_stale: false,
            sessions: BySession::new(),
            next_session: 0,
            locks: Locks::default(),
            group: Group::default(),
            tell_work: 0,
            told_last: SessionId(0),
            ready: BTreeSet::new(),
            read_only: false,
            monitor_cond_disabled: false,
            logged: BTreeSet::new(),
            log_lines: Vec::new(),
            refused_by_disk: Vec::new(),
            counters: Counters::default(),
            budget: Budget::default(),
        };
        server.add_own_database(now);
        server
    }

    /// The answer to `get_server_id`.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Counts of events.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The generator of UUIDs.
    pub fn ids(&mut self) -> &mut UuidGenerator {
        &mut self.ids
    }

    /// Whether clients may only read.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Makes it a backup, where clients only read, or an active server again. Clients that do not follow such
    /// changes are disconnected, so that they look again.
    pub fn set_read_only(&mut self, read_only: bool) {
        if std::mem::replace(&mut self.read_only, read_only) != read_only {
            self.close_unaware_sessions();
        }
    }

    /// A client has connected.
    pub fn connect(&mut self, read_only: bool) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, Session { read_only, ..Session::default() });
        id
    }

    /// A client is gone.
    pub fn disconnect(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.release_all(&session);
        for monitor in session.monitors.into_values() {
            if let Some(hosted) = self.databases.get_mut(&monitor.database) {
                hosted.remove_monitor(monitor.id);
            }
        }
        for hosted in self.databases.values_mut() {
            hosted.forget(id);
        }
        self.budget.waiting -= session.waiting;
        for name in self.locks.of(id) {
            let news = self.locks.unlock(id, &name).flatten();
            self.tell_locks(news);
        }
        self.ready.remove(&id);
    }

    /// The number of clients.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// The number of monitors.
    pub fn monitor_count(&self) -> usize {
        self.databases.values().map(|h| h.monitors.len()).sum()
    }

    /// Locks that a session owns, and that it waits for.
    pub fn lock_counts(&self, id: SessionId) -> LockCounts {
        self.locks.counts(id)
    }

    /// Handles the text of a message from a client. Its replies are in the client's output after the next
    /// [`Self::flush`], except those that wait.
    ///
    /// # Errors
    /// It is not a valid message, and the connection must be closed.
    pub fn handle_text(&mut self, now: Now, id: SessionId, text: &str) -> Result<(), BadMessage> {
        self.budget.request = match self.check_request(text) {
            Ok(bytes) => bytes,
            Err(error) => return self.refuse_unread(id, text, &error),
        };
        let handled = self.handle_checked(now, id, text);
        self.budget.request = 0;
        handled
    }

    /// As [`Self::handle_text`], for bytes that need not be UTF-8: clients send command lines as they are, in
    /// comments too. Elsewhere the request is refused, with the words of the stock server.
    pub fn handle_bytes(&mut self, now: Now, id: SessionId, bytes: &[u8]) -> Result<(), BadMessage> {
        let bad = match std::str::from_utf8(bytes) {
            Ok(text) => return self.handle_text(now, id, text),
            Err(bad) => &bytes[bad.valid_up_to()..][..bad.error_len().unwrap_or(1)],
        };
        let bad: String = bad.iter().map(|byte| format!(" {byte:#04x}")).collect();
        let error = Error::constraint(format!("not a valid UTF-8 string: invalid UTF-8 sequence{bad}"));
        if bytes.len() > NOT_UTF8_BYTES_MAX {
            return Err(BadMessage::NotJson(error.to_string()));
        }
        let text = String::from_utf8_lossy(bytes);
        if let Err(error) = self.check_request(&text) {
            return self.refuse_unread(id, &text, &error);
        }
        let Received::Request { method, params, id: request } = Received::parse(&text)? else {
            return self.handle_text(now, id, &text);
        };
        match &*method {
            "echo" => return self.handle_text(now, id, &text),
            "transact" => match self.refused_for_text(params, &error) {
                None => return self.handle_text(now, id, &text),
                Some(reply) => {
                    self.settle();
                    self.reply(id, &request, &reply);
                }
            },
            _ => {
                self.settle();
                self.reply_error(id, &request, &error.to_json());
            }
        }
        self.counters.messages += 1;
        Ok(())
    }

    fn handle_checked(&mut self, now: Now, id: SessionId, text: &str) -> Result<(), BadMessage> {
        if let Some(Transact { params, id: request }) = Transact::parse(text) {
            self.counters.messages += 1;
            self.transact(now, id, text, &params, request);
            return Ok(());
        }
        match Received::parse(text)? {
            Received::Request { method, params, id: request } => {
                self.counters.messages += 1;
                match &*method {
                    "transact" => self.transact_params(now, id, text, params, request),
                    _ => self.handle_request(now, id, &method, params, request),
                }
            }
            Received::Other(message) => return self.handle_other(id, message),
        }
        Ok(())
    }

    /// Answers a request with an error, without parsing more than its id.
    fn refuse_unread(&mut self, id: SessionId, text: &str, error: &Error) -> Result<(), BadMessage> {
        match Received::parse(text)? {
            Received::Request { id: request, .. } => {
                self.counters.messages += 1;
                self.settle();
                self.reply_error(id, &request, &error.to_json());
                Ok(())
            }
            Received::Other(message) => self.handle_other(id, message),
        }
    }

    /// A message that is no request.
    fn handle_other(&mut self, id: SessionId, message: Message) -> Result<(), BadMessage> {
        self.counters.messages += 1;
        match message {
            Message::Notification { method, params } if method == "cancel" => self.cancel(id, &params),
            // An unknown notification needs no answer.
            Message::Notification { .. } | Message::Request { .. } => {}
            // The answer to a probe.
            Message::Reply { id, .. } if id == "echo" => {}
            Message::Reply { .. } => return Err(BadMessage::Unexpected("reply")),
            Message::Error { .. } => return Err(BadMessage::Unexpected("error")),
        }
        Ok(())
    }

    /// The output for a client.
    ///
    /// # Panics
    /// If there is no such session.
    pub fn output(&mut self, id: SessionId) -> &mut Output {
        &mut self.sessions.get_mut(&id).expect("the session lives").output
    }

    /// Whether more of a client's requests should be read.
    pub fn may_read(&self, id: SessionId) -> bool {
        let may_read = |s: &Session| s.output.len() < OUTPUT_BYTES_FULL && s.held.is_empty() && !s.is_closing;
        self.sessions.get(&id).is_some_and(may_read)
    }

    /// Whether a client that has taken all it was sent waits for a reply that must wait for others' news.
    pub fn is_kept_waiting(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|s| s.output.is_empty() && !s.held.is_empty())
    }

    /// Whether a client has been sent everything.
    pub fn is_sent(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_none_or(|s| s.output.is_empty() && s.held.is_empty())
    }

    /// Whether a client must be disconnected once all is sent.
    pub fn is_closing(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_none_or(|s| s.is_closing)
    }

    /// Whether nothing is kept for a client besides replies that it does not take: no monitor, no lock, no
    /// waiting transaction.
    pub fn is_idle(&self, id: SessionId) -> bool {
        let is_idle = |s: &Session| s.monitors.is_empty() && s.waiting == 0 && s.kept == 0;
        self.sessions.get(&id).is_some_and(is_idle)
    }

    /// Disconnects a client, once its output is sent.
    pub fn close(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_closing = true;
            self.ready.insert(id);
        }
    }

    /// Sessions that have got output, or must be closed, through others' actions.
    pub fn take_ready(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.ready)
    }

    /// The memory, in bytes, that what waits to be sent takes, of all clients.
    pub fn output_bytes(&self) -> usize {
        self.sessions.values().map(|s| s.output.cost()).sum()
    }

    /// Ends the clients that take most memory, without what waits for them, as long as all together take too
    /// much. Returns how many.
    pub fn keep_to_budget(&mut self) -> usize {
        let is_over = |s: &Session| s.is_closing && s.output.is_empty();
        let cost = |s: &Session| s.output.cost() + s.kept;
        let mut total: usize = self.sessions.values().filter(|s| !is_over(s)).map(cost).sum();
        let mut ended = 0;
        while total > self.budget.limits.total_bytes
            && let Some((&id, session)) =
                self.sessions.iter().filter(|(_, s)| !is_over(s)).max_by_key(|(_, s)| cost(s))
        {
            total -= cost(session);
            ended += 1;
            self.close(id);
            self.discard_output(id);
        }
        ended
    }

    /// Changes whether a client may only read.
    pub fn set_session_read_only(&mut self, id: SessionId, read_only: bool) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.read_only = read_only;
        }
    }

    /// Sets a client's identity, from its certificate.
    pub fn set_session_client(&mut self, id: SessionId, client: Option<String>) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.client = client;
        }
    }

    /// Gives a client a role, which says what it may change in databases with the table `RBAC_Role`. Empty:
    /// it may change everything.
    pub fn set_session_role(&mut self, id: SessionId, role: &str) {
        if let Some(session) = self.sessions.get_mut(&id) {
            role.clone_into(&mut session.role);
        }
    }

    /// Answers `monitor_cond` and `monitor_cond_since` as a server does that does not know them, for tests of
    /// clients.
    pub fn disable_monitor_cond(&mut self) {
        self.monitor_cond_disabled = true;
    }

    /// Starts or stops logging the changes of a table.
    pub fn set_logged(&mut self, database: &str, table: &str, on: bool) {
        let name = (database.to_owned(), table.to_owned());
        if on {
            self.logged.insert(name)
        } else {
            self.logged.remove(&name)
        };
    }

    /// Whether the changes of a table are logged.
    pub fn is_logged(&self, database: &str, table: &str) -> bool {
        self.logged.contains(&(database.to_owned(), table.to_owned()))
    }

    /// Lines for the log that [`Self::set_logged`] has asked for, since the last call.
    pub fn take_log_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log_lines)
    }

    /// The databases of the transactions that could not be written since this was called last, and why.
    pub fn take_refused_by_disk(&mut self) -> Vec<(String, std::io::Error)> {
        std::mem::take(&mut self.refused_by_disk)
    }

    /// Discards the output for a client that must be disconnected because of it.
    pub fn discard_output(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.output = Output::default();
            let bytes = std::mem::take(&mut session.held).iter().map(|held| held.bytes).sum();
            self.release(id, bytes);
        }
    }

    /// Sends a message to one client.
    fn send(&mut self, id: SessionId, message: &Message) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.output.write(|out| message.write(out));
        }
    }

    fn reply(&mut self, id: SessionId, request: &Value, result: &impl Serialize) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.output.write(|out| jsonrpc::write_reply(out, request, result));
        }
    }

    fn reply_error(&mut self, id: SessionId, request: &Value, error: &Value) {
        let error = jsonrpc::raw(error);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.output.write(|out| jsonrpc::write_error(out, request, &error));
        }
    }

    fn tell_locks(&mut self, news: Option<News>) {
        let (id, method, name) = match news {
            None => return,
            Some(News::Locked(id, name)) => (id, "locked", name),
            Some(News::Stolen(id, name)) => (id, "stolen", name),
        };
        self.send(id, &Message::notification(method, &[name]));
        self.ready.insert(id);
    }

    /// Clients that are not notified of such changes look again when they reconnect.
    fn close_unaware_sessions(&mut self) {
        let unaware = self.sessions.iter().filter(|(_, s)| !s.is_change_aware).map(|(id, _)| *id);
        for id in unaware.collect::<Vec<_>>() {
            self.close(id);
        }
    }
}

#[cfg(test)]
mod tests;

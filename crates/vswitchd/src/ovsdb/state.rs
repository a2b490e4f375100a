//! State shared by the tasks of a server: the server itself, sleeping tasks, and work to do.

use super::incomplete::Incomplete;
use host::database_file::now_ms;
use ovsdb::server::{BySession, DatabaseNo, Now, Server, SessionId, StorageNews};
use ovsdb::storage::Done;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use transport::Tls;
use transport::unixctl::Exit;

/// Minimum interval between two sums of pending output.
const BUDGET_INTERVAL: Duration = Duration::from_millis(50);

/// See the [module](self).
pub(super) struct State {
    pub(super) server: RefCell<Server>,
    /// Databases by name, and the files that they came from.
    pub(super) files: RefCell<HashMap<String, PathBuf>>,
    /// Files that are opened from now on get whole values, no differences.
    pub(super) whole_values: Cell<bool>,
    pub(super) tls: Arc<Tls>,
    /// There is something for the flusher.
    pub(super) work: Notify,
    /// The reported status of connections may have changed.
    pub(super) status_is_old: Cell<bool>,
    wakers: RefCell<BySession<Waker>>,
    incomplete: RefCell<Incomplete>,
    budget_checked: Cell<Option<Instant>>,
    pub(super) counters: Cell<Counters>,
    /// Notified when the server should end.
    pub(super) exit: Rc<Exit>,
    /// Outgoing connections must still wait.
    connects_later: Cell<bool>,
    connects_now: Notify,
    /// A compaction, or another job, ended.
    pub(super) job_done: Notify,
    /// Databases whose last compaction failed, and why.
    pub(super) not_compacted: RefCell<HashMap<String, String>>,
}

/// What was lost.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counters {
    /// Connections accepted or made.
    pub(super) connections: u64,
    /// Connections ended because what they sent is no JSON-RPC, or too long.
    pub(super) bad_streams: u64,
    /// Connections ended because too much output was pending, or they sent too much of a request.
    pub(super) over_budget: u64,
    /// Connections ended because the client did not answer a probe.
    pub(super) silent: u64,
    /// Connections ended by the server before all was sent, because the client took it too slowly.
    pub(super) cut: u64,
}

impl State {
    pub(super) fn new(server: Server, tls: Arc<Tls>, connects_later: bool) -> Rc<State> {
        Rc::new(State {
            server: RefCell::new(server),
            files: RefCell::default(),
            whole_values: Cell::default(),
            tls,
            work: Notify::new(),
            status_is_old: Cell::new(false),
            wakers: RefCell::default(),
            incomplete: RefCell::default(),
            budget_checked: Cell::new(None),
            counters: Cell::default(),
            exit: Rc::default(),
            connects_later: Cell::new(connects_later),
            connects_now: Notify::new(),
            job_done: Notify::new(),
            not_compacted: RefCell::default(),
        })
    }

    /// Returns when connections out may be made.
    pub(super) async fn may_connect(&self) {
        while self.connects_later.get() {
            self.connects_now.notified().await;
        }
    }

    /// From now on, outgoing connections are allowed.
    pub(super) fn connect_out(&self) {
        self.connects_later.set(false);
        self.connects_now.notify_waiters();
    }

    /// There is something for the flusher.
    pub(super) fn has_work(&self) {
        self.work.notify_one();
    }

    /// Records that the reported status of a connection may have changed.
    pub(super) fn status_changed(&self) {
        self.status_is_old.set(true);
        self.has_work();
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        count(&mut counters);
        self.counters.set(counters);
    }

    /// The connection of `id` sleeps until it can read or write, or `waker` is woken.
    pub(super) fn sleeps(&self, id: SessionId, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        match wakers.get_mut(&id) {
            Some(old) => old.clone_from(waker),
            None => {
                wakers.insert(id, waker.clone());
            }
        }
    }

    /// A connection is gone.
    pub(super) fn forget(&self, id: SessionId) {
        self.wakers.borrow_mut().remove(&id);
        let mut incomplete = self.incomplete.borrow_mut();
        incomplete.remove(id);
        self.server.borrow().set_unread_bytes(incomplete.bytes());
    }

    /// Wakes connections that others have given something to send.
    pub(super) fn wake(&self, ids: &BTreeSet<SessionId>) {
        let wakers = self.wakers.borrow();
        ids.iter().filter_map(|id| wakers.get(id)).for_each(Waker::wake_by_ref);
    }

    /// Ends the connections with the most pending output, as long as the total is too much.
    pub(super) fn keep_to_budget(&self) {
        // Summing up looks at each client, so it is not done in each turn: there may be thousands a second.
        let at = Instant::now();
        if self.budget_checked.get().is_some_and(|checked| at < checked + BUDGET_INTERVAL) {
            return;
        }
        self.budget_checked.set(Some(at));
        let ended = self.server.borrow_mut().keep_to_budget();
        self.count(|c| c.over_budget += ended as u64);
    }

    /// A connection keeps so many bytes of an incomplete request. Where that is too much with all others,
    /// the connections that keep most are told to end.
    pub(super) fn keeps_incomplete(&self, id: SessionId, bytes: usize, must_go: &Rc<Notify>) {
        let (server, mut incomplete) = (self.server.borrow(), self.incomplete.borrow_mut());
        incomplete.set(id, bytes, must_go);
        incomplete.keep_to(server.limits().total_bytes.saturating_sub(server.kept_bytes()));
        server.set_unread_bytes(incomplete.bytes());
    }

    /// Passes disk work to other threads.
    pub(super) fn start_jobs(self: &Rc<State>) {
        loop {
            let next = self.server.borrow_mut().poll_job(now());
            let Some((of, job)) = next else { return };
            let state = self.clone();
            tokio::task::spawn_local(async move {
                match tokio::task::spawn_blocking(move || job.run()).await {
                    Ok(done) => state.job_done(of, done),
                    // It panicked; whoever waits for its result would wait for ever.
                    Err(error) => {
                        tracing::error!(target: "ovsdb_file", "work on a database file failed: {error}");
                        state.exit.tell_without_reply();
                    }
                }
            });
        }
    }

    fn job_done(&self, of: DatabaseNo, done: Done) {
        let news = self.server.borrow_mut().handle_done(now(), of, done);
        for (name, news) in news {
            match news {
                StorageNews::Compacted(before, after) => {
                    self.not_compacted.borrow_mut().remove(&name);
                    tracing::debug!(target: "ovsdb_file", "{name}: compacted from {before} to {after} bytes");
                }
                StorageNews::NotCompacted(error) => {
                    let why = transport::reason(&error);
                    tracing::warn!(target: "ovsdb_file", "{name}: could not be compacted: {why}");
                    self.not_compacted.borrow_mut().insert(name, why);
                }
                StorageNews::NotDurable(error) => {
                    let why = transport::reason(&error);
                    tracing::error!(target: "ovsdb_file", "{name}: could not be made durable: {why}");
                }
            }
        }
        self.job_done.notify_waiters();
        self.has_work();
    }
}

/// The time, as a server wants it.
pub(super) fn now() -> Now {
    Now { at: Instant::now(), date_ms: now_ms() }
}

//! A server with where it listens and what it follows, and the task that does what follows from all the
//! others' work.
//!
//! Connections handle what they have read and send their replies themselves. Everything that concerns others
//! (updates of monitors, transactions that waited, locks, work for the disk, columns that say where to
//! listen) is done by the *flusher*, which runs after the connections that were ready: so the more there is
//! to do, the more of it is done at once.

use super::config_file::ConfigFile;
use super::memory;
use super::remotes::Remotes;
use super::replication::Replication;
use super::state::{State, now};
use std::cell::RefCell;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::TlsFiles;

/// How often what is due by time is looked at: compaction, and the status of connections.
const INTERVAL: Duration = Duration::from_millis(1_000);
/// How long requests are gathered before what follows from them is done, while more keep coming.
const GATHER_MAX: Duration = Duration::from_micros(200);

/// See the [module](self).
pub(super) struct Service {
    pub(super) state: Rc<State>,
    pub(super) remotes: Remotes,
    pub(super) replication: Rc<Replication>,
    pub(super) config_file: RefCell<Option<ConfigFile>>,
    /// Where a monitor keeps what is served.
    memory: RefCell<Option<Arc<File>>>,
}

impl Service {
    pub(super) fn new(state: Rc<State>, tls: TlsFiles) -> Rc<Service> {
        Rc::new(Service {
            remotes: Remotes::new(state.clone(), tls),
            replication: Replication::new(state.clone()),
            state,
            config_file: RefCell::default(),
            memory: RefCell::default(),
        })
    }

    /// From now on, what is served is kept there.
    pub(super) fn remember_in(&self, memory: Option<Arc<File>>) {
        *self.memory.borrow_mut() = memory;
        self.remember();
    }

    /// What is served has changed.
    pub(super) fn remember(&self) {
        if let Some(file) = &*self.memory.borrow()
            && let Err(error) = memory::keep(file, &self.state, &self.remotes, &self.replication)
        {
            tracing::warn!(target: "ovsdb_server", "could not report databases and remotes to the monitor process: {error}");
        }
    }

    /// Makes the server have what a configuration file says, and nothing else.
    pub(super) async fn apply(&self, file: &ConfigFile) -> Result<(), String> {
        file.apply(&self.state, &self.remotes, &self.replication).await
    }

    /// The flusher.
    pub(super) async fn flush(self: Rc<Service>) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = self.state.server.borrow().next_timeout();
            let timeout = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.state.work.notified() => {}
                () = timeout => self.state.server.borrow_mut().handle_timeout(now()),
                _ = interval.tick() => {}
            }
            self.gather().await;
            self.flush_once();
        }
    }

    /// Lets connections that are ready come first, and again as long as they have something: the more
    /// requests are handled together, the fewer writes of the log and wake-ups each costs.
    async fn gather(&self) {
        let begin = Instant::now();
        loop {
            let before = self.state.server.borrow().counters().messages;
            tokio::task::yield_now().await;
            if self.state.server.borrow().counters().messages == before || begin.elapsed() >= GATHER_MAX {
                return;
            }
        }
    }

    /// All that follows from what was handled.
    pub(super) fn flush_once(&self) {
        let state = &self.state;
        state.server.borrow_mut().flush(now());
        self.remotes.follow_columns();
        self.remotes.write_status();
        state.keep_to_budget();
        state.start_jobs();
        let mut server = state.server.borrow_mut();
        // Columns that were written are told in the same go.
        server.flush(now());
        for line in server.take_log_lines() {
            tracing::info!(target: "transaction", "{line}");
        }
        for (name, error) in server.take_refused_by_disk() {
            let path = state.files.borrow().get(&name).map(|path| path.display().to_string());
            let (file, why) = (path.unwrap_or(name), transport::reason(&error));
            tracing::error!(target: "ovsdb_server", "I/O error: {file}: write failed ({why})");
        }
        let ready = server.take_ready();
        if server.has_stale() {
            // After those that are ready.
            state.has_work();
        }
        drop(server);
        state.wake(&ready);
    }
}

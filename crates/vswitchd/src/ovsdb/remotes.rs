//! Where a server listens and connects: what the command line and `ovsdb-server/add-remote` say, and what
//! columns of its databases say, such as `Open_vSwitch.manager_options`, whose rows' `is_connected` and
//! `status` tell the truth.

use super::columns::ColumnName;
use super::remote_options::{Overrides, RemoteOptions};
use super::session::{End, converse};
use super::state::{State, now};
use super::tls_sources::TlsSources;
use ovsdb::server::{LockCounts, SessionId};
use ovsdb::{Datum, Row, TableIdx, TableSchema};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use transport::reconnect::{Options, Reconnect};
use transport::{
    ActiveTarget, Idlers, Incoming, Keep, Listener, OVSDB_PORT, PassiveTarget, Place, Places, Stream,
    StreamError, Target, accept, keep_connected,
};

/// How often the seconds in `status` are written.
const STATUS_INTERVAL: Duration = Duration::from_millis(2_500);
/// After listening failed.
const LISTEN_RETRY: Duration = Duration::from_secs(2);

/// All remotes of a server.
#[derive(Default)]
pub(super) struct Remotes {
    /// As they were given, with what was given along.
    configured: BTreeMap<String, Overrides>,
    pub(super) tls: TlsSources,
    /// By target.
    running: BTreeMap<String, Rc<Remote>>,
    /// Versions of the databases whose columns were read.
    seen: HashMap<String, u64>,
    status_written: Option<Instant>,
    status_is_old: bool,
    /// Warned about already.
    warned: BTreeSet<String>,
}

/// A target that is listened on or connected to.
pub(super) struct Remote {
    target: Target,
    options: RefCell<RemoteOptions>,
    changed: Notify,
    stopped: Cell<bool>,
    /// Of a target that connects; one that listens has one for each connection.
    reconnect: Rc<RefCell<Reconnect>>,
    connections: RefCell<BTreeMap<SessionId, Rc<RefCell<Reconnect>>>>,
    bound_port: Cell<Option<u16>>,
    last_error: RefCell<Option<String>>,
    state: std::rc::Weak<State>,
}

/// One connection of a remote, as it sees itself.
pub(super) struct Connection {
    /// For logs.
    pub(super) name: String,
    remote: Option<Rc<Remote>>,
    reconnect: Rc<RefCell<Reconnect>>,
    /// Those that give way to others where descriptors are short, if this is one of them.
    pub(super) idlers: Option<Rc<Idlers>>,
}

impl Connection {
    /// Of the switch itself, over a pair of sockets.
    pub(super) fn internal(name: &str) -> Rc<Connection> {
        let options = Options { probe_interval: None, passive: true, ..Options::default() };
        let reconnect = Rc::new(RefCell::new(Reconnect::new(options, Instant::now())));
        Rc::new(Connection { name: name.into(), remote: None, reconnect, idlers: None })
    }

    pub(super) fn reconnect(&self) -> Rc<RefCell<Reconnect>> {
        self.reconnect.clone()
    }

    pub(super) fn options(&self) -> RemoteOptions {
        match &self.remote {
            Some(remote) => remote.options.borrow().clone(),
            None => RemoteOptions::internal(),
        }
    }

    pub(super) fn connected(&self, id: SessionId) {
        if let Some(remote) = &self.remote {
            remote.connections.borrow_mut().insert(id, self.reconnect.clone());
            remote.status_changed();
        }
    }

    pub(super) fn disconnected(&self, id: SessionId) {
        if let Some(remote) = &self.remote {
            remote.connections.borrow_mut().remove(&id);
            remote.status_changed();
        }
    }

    /// Its options have changed.
    pub(super) async fn changed(&self) {
        match &self.remote {
            Some(remote) => remote.changed.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Remotes {
    /// Adds remotes as they are written on the command line, and listens: what cannot be had is an error.
    pub(super) async fn add(state: &Rc<State>, text: &str, overrides: Overrides) -> Result<(), String> {
        if let Some(column) = ColumnName::parse(text) {
            column?.find(&state.server.borrow())?;
        } else {
            let target = Target::parse(text, OVSDB_PORT)?;
            if state.remotes.borrow().configured.get(text) == Some(&overrides) {
                return Ok(());
            }
            if state.remotes.borrow().running.contains_key(text) {
                // Only how it is served changes, or a column has named it before.
                let mut remotes = state.remotes.borrow_mut();
                remotes.configured.insert(text.to_owned(), overrides);
                remotes.seen.clear();
                drop(remotes);
                state.has_work();
                return Ok(());
            }
            let listener = match &target {
                Target::Passive(passive) => match Listener::bind(passive, Some(&state.tls)).await {
                    Ok(listener) => Some(listener),
                    // Keys and certificates may be columns, and come later.
                    Err(StreamError::Tls(_)) => None,
                    Err(why) => return Err(format!("{text}: listen failed: {why}")),
                },
                Target::Active(_) => None,
            };
            let options = RemoteOptions::new(&target, overrides.clone(), None);
            let remote = Remote::start(state, target, options, listener);
            state.remotes.borrow_mut().running.insert(text.to_owned(), remote);
        }
        let mut remotes = state.remotes.borrow_mut();
        remotes.configured.insert(text.to_owned(), overrides);
        remotes.seen.clear();
        drop(remotes);
        state.has_work();
        Ok(())
    }

    /// Removes a remote; its clients are disconnected. False: there is none.
    pub(super) fn remove(state: &Rc<State>, text: &str) -> bool {
        let mut remotes = state.remotes.borrow_mut();
        let removed = remotes.configured.remove(text).is_some();
        remotes.seen.clear();
        drop(remotes);
        Remotes::follow_columns(state);
        state.has_work();
        removed
    }

    /// As they were given, in order.
    pub(super) fn list(&self) -> impl Iterator<Item = &str> {
        self.configured.keys().map(String::as_str)
    }

    /// Drops all connections; clients may connect again, and those that we connect to are connected to again.
    pub(super) fn reconnect(state: &State) {
        for remote in state.remotes.borrow().running.values() {
            remote.close_connections();
        }
        state.has_work();
    }

    /// Whatever columns say has changed: listens and connects where they say now.
    pub(super) fn follow_columns(state: &Rc<State>) {
        if !Remotes::have_changed(state) {
            return;
        }
        TlsSources::follow(state);
        let mut wanted: BTreeMap<String, (Target, RemoteOptions)> = BTreeMap::new();
        let mut complaints = Vec::new();
        {
            let server = state.server.borrow();
            let remotes = state.remotes.borrow();
            let mut named: Vec<(String, bool, Overrides)> = Vec::new();
            for (text, overrides) in &remotes.configured {
                match ColumnName::parse(text) {
                    None => named.push((text.clone(), false, overrides.clone())),
                    Some(Ok(column)) => {
                        // A database that was removed has no remotes any more.
                        let found = column.find(&server).map(|c| c.remotes()).unwrap_or_default();
                        named.extend(found.into_iter().map(|remote| (remote.target, true, remote.overrides)));
                    }
                    Some(Err(why)) => complaints.push(why),
                }
            }
            // Where two name one target, the one that was given by itself counts.
            named.sort_by_key(|(_, is_of_column, _)| *is_of_column);
            for (text, _, overrides) in named {
                match Target::parse(&text, OVSDB_PORT) {
                    Ok(target) => {
                        let before = remotes.running.get(&text).map(|remote| remote.options.borrow());
                        let options = RemoteOptions::new(&target, overrides, before.as_deref());
                        let role = options.role.clone();
                        let (_, counts) = wanted.entry(text).or_insert((target, options));
                        // But for a role, which restricts, whoever gives it.
                        if counts.role.is_empty() {
                            counts.role = role;
                        }
                    }
                    Err(why) => complaints.push(why),
                }
            }
        }
        let mut remotes = state.remotes.borrow_mut();
        for why in complaints {
            if remotes.warned.insert(why.clone()) {
                tracing::warn!(target: "ovsdb_server", "a remote cannot be used: {why}");
            }
        }
        let gone: Vec<String> =
            remotes.running.keys().filter(|t| !wanted.contains_key(*t)).cloned().collect();
        let gone: Vec<Rc<Remote>> = gone.iter().filter_map(|text| remotes.running.remove(text)).collect();
        for (text, (target, options)) in wanted {
            match remotes.running.get(&text) {
                Some(remote) => remote.set_options(options),
                None => {
                    let remote = Remote::start(state, target, options, None);
                    remotes.running.insert(text, remote);
                }
            }
        }
        remotes.status_is_old = true;
        drop(remotes);
        gone.iter().for_each(|remote| remote.stop());
    }

    /// Whether a database whose columns are read has changed; notes that it was looked at.
    fn have_changed(state: &State) -> bool {
        let server = state.server.borrow();
        let mut remotes = state.remotes.borrow_mut();
        let tls = &remotes.tls;
        let texts = tls.sources().into_iter().flatten().chain(remotes.configured.keys());
        let names: BTreeSet<String> =
            texts.filter_map(|text| Some(ColumnName::parse(text)?.ok()?.database)).collect();
        let seen: HashMap<String, u64> = names
            .into_iter()
            .map(|name| {
                let version = server.database_version(&name).map_or(0, |version| version + 1);
                (name, version)
            })
            .chain([(String::new(), remotes.configured.len() as u64)])
            .collect();
        if remotes.seen == seen {
            return false;
        }
        remotes.seen = seen;
        true
    }

    /// Writes `is_connected` and `status` of the rows that remotes come from: where something happened, and
    /// now and then for the seconds in it.
    pub(super) fn write_status(state: &Rc<State>) {
        let at = Instant::now();
        let mut remotes = state.remotes.borrow_mut();
        let is_due = remotes.status_written.is_none_or(|written| at >= written + STATUS_INTERVAL);
        if !is_due && !remotes.status_is_old {
            return;
        }
        remotes.status_written = Some(at);
        remotes.status_is_old = false;
        let columns: Vec<ColumnName> =
            remotes.configured.keys().filter_map(|text| ColumnName::parse(text)?.ok()).collect();
        drop(remotes);
        for column in columns {
            let rows = {
                let server = state.server.borrow();
                let Ok(found) = column.find(&server) else { continue };
                let remotes = state.remotes.borrow();
                let changed = found.remotes().into_iter().filter_map(|column| {
                    let (is_connected, status) = match remotes.running.get(&column.target) {
                        Some(remote) => (remote.is_connected(), remote.status(at)),
                        None => (false, never_runs(&column.target)?),
                    };
                    let (table, row) = column.row?;
                    let schema = found.database.schema().table(table);
                    Some((table, with_status(schema, &row, is_connected, status)?))
                });
                changed.collect::<Vec<(TableIdx, Row)>>()
            };
            if rows.is_empty() {
                continue;
            }
            let written = state.server.borrow_mut().commit_own(now(), &column.database, |transaction, _| {
                rows.into_iter().for_each(|(table, row)| transaction.replace(table, row));
                Ok(())
            });
            if let Err(why) = written {
                tracing::warn!(target: "ovsdb_server", "{}: status not written: {why}", column.text());
            }
            state.has_work();
        }
    }
}

/// The row with its status brought up to date; `None` where it is already, or has no such columns.
fn with_status(
    schema: &TableSchema,
    row: &Row,
    is_connected: bool,
    status: BTreeMap<String, String>,
) -> Option<Row> {
    let mut new = row.clone();
    let mut set = |name: &str, datum: Datum| {
        if let Some(column) = schema.find(name) {
            new.set(column, datum);
        }
    };
    set("is_connected", Datum::scalar(is_connected));
    set("status", Datum::map(status));
    let has_changed = row.changed_columns(&new).next().is_some();
    has_changed.then_some(new)
}

/// The status of a target that can be neither connected to nor listened on; `None` of one that can.
fn never_runs(target: &str) -> Option<BTreeMap<String, String>> {
    let why = Target::parse(target, OVSDB_PORT).err()?;
    Some([("state", "BACKOFF".to_owned()), ("last_error", why)].map(|(k, v)| (k.to_owned(), v)).into())
}

impl Remote {
    fn start(
        state: &Rc<State>,
        target: Target,
        options: RemoteOptions,
        listener: Option<Listener>,
    ) -> Rc<Remote> {
        let passive = matches!(target, Target::Passive(_));
        let reconnect = Reconnect::new(options.reconnect(passive), Instant::now());
        let remote = Rc::new(Remote {
            target,
            options: RefCell::new(options),
            changed: Notify::new(),
            stopped: Cell::new(false),
            reconnect: Rc::new(RefCell::new(reconnect)),
            connections: RefCell::default(),
            bound_port: Cell::new(None),
            last_error: RefCell::default(),
            state: Rc::downgrade(state),
        });
        match remote.target.clone() {
            Target::Passive(target) => {
                tokio::task::spawn_local(remote.clone().listen(state.clone(), target, listener));
            }
            Target::Active(target) => {
                let mut outgoing =
                    Outgoing { remote: remote.clone(), state: state.clone(), target, is_to_tell: true };
                remote.reconnect.borrow_mut().enable(Instant::now());
                tokio::task::spawn_local(async move { keep_connected(&mut outgoing).await });
            }
        }
        remote
    }

    fn set_options(&self, options: RemoteOptions) {
        let before = self.options.replace(options.clone());
        if before == options {
            return;
        }
        if before.dscp != options.dscp {
            // Connections have it from their beginning.
            self.close_connections();
        }
        let times = options.reconnect(matches!(self.target, Target::Passive(_)));
        self.reconnect.borrow_mut().set_options(times);
        self.connections.borrow().values().for_each(|reconnect| reconnect.borrow_mut().set_options(times));
        if let Some(state) = self.state.upgrade() {
            let mut server = state.server.borrow_mut();
            for id in self.connections.borrow().keys() {
                server.set_session_read_only(*id, options.read_only);
                server.set_session_role(*id, &options.role);
            }
        }
        self.changed.notify_waiters();
    }

    fn stop(&self) {
        self.stopped.set(true);
        self.close_connections();
        self.changed.notify_waiters();
    }

    fn close_connections(&self) {
        let Some(state) = self.state.upgrade() else { return };
        let mut server = state.server.borrow_mut();
        self.connections.borrow().keys().for_each(|id| server.close(*id));
        drop(server);
        state.has_work();
    }

    fn status_changed(&self) {
        if let Some(state) = self.state.upgrade() {
            state.remotes.borrow_mut().status_is_old = true;
            state.has_work();
        }
    }

    async fn listen(self: Rc<Remote>, state: Rc<State>, target: PassiveTarget, first: Option<Listener>) {
        let mut listener = first;
        while !self.stopped.get() {
            let bound = match listener.take() {
                Some(bound) => bound,
                None => match Listener::bind(&target, Some(&state.tls)).await {
                    Ok(bound) => bound,
                    Err(why) => {
                        self.listen_failed(&target, &why).await;
                        continue;
                    }
                },
            };
            self.bound_port.set(bound.bound_port());
            *self.last_error.borrow_mut() = None;
            self.status_changed();
            tracing::debug!(target: "ovsdb_server", "listening on {target}");
            self.accept(&state, &bound).await;
        }
        self.bound_port.set(None);
    }

    async fn listen_failed(&self, target: &PassiveTarget, why: &StreamError) {
        let text = why.to_string();
        if self.last_error.borrow().as_deref() != Some(&text) {
            tracing::error!(target: "ovsdb_jsonrpc_server", "{target}: listen failed: {text}");
        }
        *self.last_error.borrow_mut() = Some(text);
        self.status_changed();
        tokio::select! {
            () = tokio::time::sleep(LISTEN_RETRY) => {}
            () = self.changed.notified() => {}
        }
    }

    /// Takes connections until the remote is stopped.
    async fn accept(self: &Rc<Remote>, state: &Rc<State>, listener: &Listener) {
        let failed = |why: &str| tracing::warn!(target: "ovsdb_jsonrpc_server", "{}: accept failed: {why}", listener.target());
        let serve = |incoming: Incoming, place: Place| {
            let (remote, state) = (self.clone(), state.clone());
            tokio::task::spawn_local(async move {
                let name = incoming.name.clone();
                match incoming.establish().await {
                    Ok(stream) if !remote.stopped.get() => remote.serve(&state, stream, name, &place).await,
                    Ok(_) => {}
                    Err(StreamError::Bootstrapped(path)) => {
                        tracing::debug!(target: "stream_ssl", "{name}: saved its CA certificate to {}", path.display());
                    }
                    Err(why) => tracing::warn!(target: "stream_ssl", "{name}: {why}"),
                }
            });
        };
        let stopped = async {
            while !self.stopped.get() {
                self.changed.notified().await;
            }
        };
        let places = Places::unlimited();
        tokio::select! {
            never = accept(listener, &places, failed, serve) => match never {},
            () = stopped => {}
        }
    }

    /// Serves a connection that came in.
    async fn serve(self: &Rc<Remote>, state: &Rc<State>, stream: Stream, name: String, place: &Place) {
        let at = Instant::now();
        let reconnect = Rc::new(RefCell::new(Reconnect::new(self.options.borrow().reconnect(true), at)));
        reconnect.borrow_mut().enable(at);
        reconnect.borrow_mut().connected(at);
        let connection = Rc::new(Connection {
            name,
            remote: Some(self.clone()),
            reconnect: reconnect.clone(),
            idlers: Some(place.idlers()),
        });
        stream.set_dscp(self.options.borrow().dscp);
        converse(state, stream, &connection, &reconnect).await;
    }

    fn is_connected(&self) -> bool {
        !self.connections.borrow().is_empty()
    }

    /// The keys of `status` (ovs-vswitchd.conf.db(5), Manager).
    fn status(&self, at: Instant) -> BTreeMap<String, String> {
        let mut status = BTreeMap::new();
        let connections = self.connections.borrow();
        let only = match &self.target {
            Target::Active(_) => None,
            Target::Passive(_) if connections.len() == 1 => connections.values().next().cloned(),
            Target::Passive(_) => None,
        };
        let own = self.reconnect.borrow();
        let one = only.as_ref().map(|r| r.borrow());
        let shown: Option<&Reconnect> = match &self.target {
            Target::Active(_) => Some(&own),
            Target::Passive(_) => one.as_deref(),
        };
        if let Some(reconnect) = shown {
            status.insert("state".into(), reconnect.state().name().into());
            let seconds = |since: Instant| at.saturating_duration_since(since).as_secs().to_string();
            if let Some(since) = reconnect.connected_at() {
                status.insert("sec_since_connect".into(), seconds(since));
            }
            if let Some(since) = reconnect.disconnected_at() {
                status.insert("sec_since_disconnect".into(), seconds(since));
            }
            if let Some(error) = reconnect.last_error() {
                status.insert("last_error".into(), error.into());
            }
        }
        if let Some(error) = self.last_error.borrow().as_ref() {
            status.insert("last_error".into(), error.clone());
        }
        if connections.len() > 1 {
            status.insert("n_connections".into(), connections.len().to_string());
        }
        if let Some(port) = self.bound_port.get() {
            status.insert("bound_port".into(), port.to_string());
        }
        if let Some(state) = self.state.upgrade() {
            let server = state.server.borrow();
            let counts: Vec<_> = connections.keys().map(|id| server.lock_counts(*id)).collect();
            let sum = |of: fn(&LockCounts) -> usize| -> usize { counts.iter().map(of).sum() };
            for (key, count) in [
                ("locks_held", sum(|c| c.held)),
                ("locks_waiting", sum(|c| c.waiting)),
                ("locks_lost", sum(|c| c.lost)),
            ] {
                if count > 0 {
                    status.insert(key.into(), count.to_string());
                }
            }
        }
        status
    }
}

/// A remote that connects.
struct Outgoing {
    remote: Rc<Remote>,
    state: Rc<State>,
    target: ActiveTarget,
    /// Whether the log lacks why the last connection ended.
    is_to_tell: bool,
}

impl Keep for Outgoing {
    type Link = Stream;
    type Done = std::convert::Infallible;

    fn name(&self) -> String {
        self.target.to_string()
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Reconnect) -> T) -> Option<T> {
        let done = (!self.remote.stopped.get()).then(|| f(&mut self.remote.reconnect.borrow_mut()));
        self.remote.status_changed();
        done
    }

    async fn connect(&mut self) -> Result<Stream, String> {
        let stream = Stream::connect(&self.target, Some(&self.state.tls)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        stream.set_dscp(self.remote.options.borrow().dscp);
        Ok(stream)
    }

    async fn converse(&mut self, stream: Stream) -> ControlFlow<Self::Done, Option<String>> {
        if self.remote.stopped.get() {
            return ControlFlow::Continue(None);
        }
        let reconnect = self.remote.reconnect.clone();
        let (name, remote) = (self.name(), Some(self.remote.clone()));
        let connection = Rc::new(Connection { name, remote, reconnect: reconnect.clone(), idlers: None });
        let end = converse(&self.state, stream, &connection, &reconnect).await;
        // Of all others the session has told.
        self.is_to_tell = matches!(end, End::Closed | End::ByServer | End::Os(_));
        ControlFlow::Continue(end.text())
    }

    fn tell_end(&mut self, why: Option<&str>) {
        if self.is_to_tell {
            transport::tell_end(&self.name(), why, None);
        }
    }

    async fn changed(&mut self) {
        self.remote.changed.notified().await;
    }
}

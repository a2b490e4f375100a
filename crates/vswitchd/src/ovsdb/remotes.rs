//! Where a server listens and connects, as given by the command line, by `ovsdb-server/add-remote`, and by
//! columns of its databases such as `Open_vSwitch.manager_options`. The columns `is_connected` and `status`
//! of those rows are kept up to date.

use super::columns::ColumnName;
use super::connection::{Connection, Shared};
use super::remote_options::{Overrides, RemoteOptions};
use super::session::{End, converse};
use super::state::{State, now};
use super::tls_sources;
use ovsdb::server::LockCounts;
use ovsdb::{AtomType, BaseType, ColumnType, Datum, Row, TableIdx, TableSchema};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use transport::reconnect::Reconnect;
use transport::{
    ActiveTarget, Incoming, Keep, Listener, OVSDB_PORT, PassiveTarget, Place, Places, Stream, StreamError,
    Target, TlsFiles, accept, keep_connected,
};

/// How often the seconds in `status` are written.
const STATUS_INTERVAL: Duration = Duration::from_millis(2_500);
/// After listening failed.
const LISTEN_RETRY: Duration = Duration::from_secs(2);

/// All remotes of a server, and its TLS files, which may also be named by columns.
pub(super) struct Remotes {
    state: Rc<State>,
    tls: TlsFiles,
    known: RefCell<Known>,
}

/// Where a server currently listens and connects.
#[derive(Default)]
struct Known {
    /// As given, with their overrides.
    configured: BTreeMap<String, Overrides>,
    /// By target.
    running: BTreeMap<String, Rc<Remote>>,
    /// Versions of the databases whose columns were read.
    seen: HashMap<String, u64>,
    /// The targets that were named when they were, in order.
    named: Vec<String>,
    status_written: Option<Instant>,
    /// Warned about already.
    warned: BTreeSet<String>,
}

/// A target that is listened on or connected to.
struct Remote {
    target: Target,
    shared: Rc<Shared>,
    stopped: Cell<bool>,
    /// For a target to connect to; a listening target has one for each connection.
    reconnect: Rc<RefCell<Reconnect>>,
    bound_port: Cell<Option<u16>>,
    last_error: RefCell<Option<String>>,
}

impl Remotes {
    /// Starts without remotes.
    pub(super) fn new(state: Rc<State>, tls: TlsFiles) -> Remotes {
        state.tls.set_files(tls_sources::files(&tls, &state.server.borrow()));
        Remotes { state, tls, known: RefCell::default() }
    }

    /// Refuses invalid names of columns for TLS; for the start of a server that got them as options.
    pub(super) fn check_tls(&self) -> Result<(), String> {
        tls_sources::check(&self.tls, &self.state.server.borrow())
    }

    /// Adds remotes in the form of the command line, and listens. A remote that cannot be used is an error.
    pub(super) async fn add(&self, text: &str, overrides: Overrides) -> Result<(), String> {
        if let Some(column) = ColumnName::parse(text) {
            column?.find(&self.state.server.borrow())?;
        } else {
            let target = Target::parse(text, OVSDB_PORT)?;
            if self.known.borrow().configured.get(text) == Some(&overrides) {
                return Ok(());
            }
            if self.known.borrow().running.contains_key(text) {
                // Only how it is served changes, or a column has named it before.
                let mut known = self.known.borrow_mut();
                known.configured.insert(text.to_owned(), overrides);
                known.seen.clear();
                drop(known);
                self.state.has_work();
                return Ok(());
            }
            let listener = match &target {
                Target::Passive(passive) => match Listener::bind(passive, Some(&self.state.tls)).await {
                    Ok(listener) => Some(listener),
                    // Keys and certificates may be columns, and come later.
                    Err(StreamError::Tls(_)) => None,
                    Err(why) => return Err(format!("{text}: listen failed: {why}")),
                },
                Target::Active(_) => None,
            };
            let options = RemoteOptions::new(&target, overrides.clone(), None);
            let remote = Remote::start(&self.state, target, options, listener);
            self.known.borrow_mut().running.insert(text.to_owned(), remote);
        }
        let mut known = self.known.borrow_mut();
        known.configured.insert(text.to_owned(), overrides);
        known.seen.clear();
        drop(known);
        self.state.has_work();
        Ok(())
    }

    /// Removes a remote and disconnects its clients. False: it does not exist.
    pub(super) fn remove(&self, text: &str) -> bool {
        let mut known = self.known.borrow_mut();
        let removed = known.configured.remove(text).is_some();
        known.seen.clear();
        drop(known);
        self.follow_columns();
        self.state.has_work();
        removed
    }

    /// As given, in order.
    pub(super) fn list(&self) -> Vec<String> {
        self.known.borrow().configured.keys().cloned().collect()
    }

    /// Drops all connections; clients may connect again, and those that we connect to are connected to again.
    pub(super) fn reconnect(&self) {
        for remote in self.known.borrow().running.values() {
            remote.close_connections();
        }
        self.state.has_work();
    }

    /// Columns may have changed: listens and connects as they say now.
    pub(super) fn follow_columns(&self) {
        if !self.have_changed() {
            return;
        }
        self.state.tls.set_files(tls_sources::files(&self.tls, &self.state.server.borrow()));
        let mut wanted: BTreeMap<String, (Target, RemoteOptions)> = BTreeMap::new();
        let mut complaints = Vec::new();
        let targets: Vec<String>;
        {
            let server = self.state.server.borrow();
            let known = self.known.borrow();
            let mut named: Vec<(String, bool, Overrides)> = Vec::new();
            for (text, overrides) in &known.configured {
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
            // If two name the same target, the explicit one takes precedence.
            named.sort_by_key(|(_, is_of_column, _)| *is_of_column);
            targets = named.iter().map(|(text, ..)| text.clone()).collect();
            for (text, _, overrides) in named {
                match Target::parse(&text, OVSDB_PORT) {
                    Ok(target) => {
                        let before = known.running.get(&text).map(|remote| remote.shared.options.borrow());
                        let options = RemoteOptions::new(&target, overrides, before.as_deref());
                        let role = options.role.clone();
                        let (_, counts) = wanted.entry(text).or_insert((target, options));
                        // Except for a role, which restricts clients whatever its source.
                        if counts.role.is_empty() {
                            counts.role = role;
                        }
                    }
                    Err(why) => complaints.push(why),
                }
            }
        }
        let mut known = self.known.borrow_mut();
        for why in complaints {
            if known.warned.insert(why.clone()) {
                tracing::warn!(target: "ovsdb_server", "a remote cannot be used: {why}");
            }
        }
        let gone: Vec<String> = known.running.keys().filter(|t| !wanted.contains_key(*t)).cloned().collect();
        for text in &gone {
            tracing::info!(target: "ovsdb_jsonrpc_server", "{text}: remote deconfigured");
        }
        let gone: Vec<Rc<Remote>> = gone.iter().filter_map(|text| known.running.remove(text)).collect();
        let mut is_changed = known.named != targets;
        known.named = targets;
        for (text, (target, options)) in wanted {
            match known.running.get(&text) {
                Some(remote) => is_changed |= remote.set_options(options),
                None => {
                    let remote = Remote::start(&self.state, target, options, None);
                    known.running.insert(text, remote);
                    is_changed = true;
                }
            }
        }
        // Most changes of a database are of something else, and a status is about all connections.
        if is_changed {
            self.state.status_is_old.set(true);
        }
        drop(known);
        gone.iter().for_each(|remote| remote.stop());
    }

    /// Whether a database with configuring columns has changed; records that it was checked.
    fn have_changed(&self) -> bool {
        let server = self.state.server.borrow();
        let mut known = self.known.borrow_mut();
        let texts = tls_sources::sources(&self.tls).chain(known.configured.keys().map(String::as_str));
        let names: BTreeSet<String> =
            texts.filter_map(|text| Some(ColumnName::parse(text)?.ok()?.database)).collect();
        let seen: HashMap<String, u64> = names
            .into_iter()
            .map(|name| {
                let version = server.database_version(&name).map_or(0, |version| version + 1);
                (name, version)
            })
            .chain([(String::new(), known.configured.len() as u64)])
            .collect();
        if known.seen == seen {
            return false;
        }
        known.seen = seen;
        true
    }

    /// Writes `is_connected` and `status` of the rows that remotes come from: where something happened, and
    /// now and then for the seconds in it.
    pub(super) fn write_status(&self) {
        let at = Instant::now();
        let mut known = self.known.borrow_mut();
        let is_due = known.status_written.is_none_or(|written| at >= written + STATUS_INTERVAL);
        if !self.state.status_is_old.take() && !is_due {
            return;
        }
        known.status_written = Some(at);
        let columns: Vec<ColumnName> =
            known.configured.keys().filter_map(|text| ColumnName::parse(text)?.ok()).collect();
        drop(known);
        for column in columns {
            let rows = {
                let server = self.state.server.borrow();
                let Ok(found) = column.find(&server) else { continue };
                let known = self.known.borrow();
                let changed = found.remotes().into_iter().filter_map(|column| {
                    let (is_connected, status) = match known.running.get(&column.target) {
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
            let written =
                self.state.server.borrow_mut().commit_own(now(), &column.database, |transaction, _| {
                    rows.into_iter().for_each(|(table, row)| transaction.replace(table, row));
                    Ok(())
                });
            if let Err(why) = written {
                tracing::warn!(target: "ovsdb_server", "{}: status not written: {why}", column.text());
            }
            self.state.has_work();
        }
    }
}

/// The row with an updated status; `None` if it is up to date, or has no such columns. Those of other types
/// than the Manager table's are somebody else's, and would hold what the file cannot be read with.
fn with_status(
    schema: &TableSchema,
    row: &Row,
    is_connected: bool,
    status: BTreeMap<String, String>,
) -> Option<Row> {
    let mut new = row.clone();
    let mut set = |name: &str, takes: fn(&ColumnType) -> bool, datum: Datum| {
        if let Some(column) = schema.find(name).filter(|column| takes(&schema.column(*column).kind)) {
            new.set(column, datum);
        }
    };
    set("is_connected", is_boolean, Datum::scalar(is_connected));
    set("status", is_any_text_by_name, Datum::map(status));
    let has_changed = row.changed_columns(&new).next().is_some();
    has_changed.then_some(new)
}

fn is_boolean(kind: &ColumnType) -> bool {
    is_any(&kind.key, AtomType::Boolean) && kind.value.is_none()
}

fn is_any_text_by_name(kind: &ColumnType) -> bool {
    let is_any_text = |base| is_any(base, AtomType::String);
    is_any_text(&kind.key)
        && kind.value.as_ref().is_some_and(is_any_text)
        && (kind.min, kind.max) == (0, u32::MAX)
}

fn is_any(base: &BaseType, kind: AtomType) -> bool {
    base.kind == kind && !base.has_constraints()
}

/// The status of a target that can be neither connected to nor listened on; `None` for any other.
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
            shared: Rc::new(Shared {
                options: RefCell::new(options),
                changed: Notify::new(),
                connections: RefCell::default(),
                state: Rc::downgrade(state),
            }),
            stopped: Cell::new(false),
            reconnect: Rc::new(RefCell::new(reconnect)),
            bound_port: Cell::new(None),
            last_error: RefCell::default(),
        });
        match remote.target.clone() {
            Target::Passive(target) => {
                tokio::task::spawn_local(remote.clone().listen(state.clone(), target, listener));
            }
            Target::Active(target) => {
                let mut outgoing =
                    Outgoing { remote: remote.clone(), state: state.clone(), target, is_to_tell: true };
                remote.reconnect.borrow_mut().enable(Instant::now());
                tokio::task::spawn_local(async move {
                    outgoing.state.may_connect().await;
                    keep_connected(&mut outgoing).await
                });
            }
        }
        remote
    }

    /// Whether they are others than before.
    fn set_options(&self, options: RemoteOptions) -> bool {
        let before = self.shared.options.replace(options.clone());
        if before == options {
            return false;
        }
        if before.dscp != options.dscp {
            // Connections have it from their beginning.
            self.close_connections();
        }
        let times = options.reconnect(matches!(self.target, Target::Passive(_)));
        self.reconnect.borrow_mut().set_options(times);
        self.shared
            .connections
            .borrow()
            .values()
            .for_each(|reconnect| reconnect.borrow_mut().set_options(times));
        if let Some(state) = self.shared.state.upgrade() {
            let mut server = state.server.borrow_mut();
            for id in self.shared.connections.borrow().keys() {
                server.set_session_read_only(*id, options.read_only);
                server.set_session_role(*id, &options.role);
            }
        }
        self.shared.changed.notify_waiters();
        true
    }

    fn stop(&self) {
        self.stopped.set(true);
        self.close_connections();
        self.shared.changed.notify_waiters();
    }

    fn close_connections(&self) {
        let Some(state) = self.shared.state.upgrade() else { return };
        let mut server = state.server.borrow_mut();
        self.shared.connections.borrow().keys().for_each(|id| server.close(*id));
        drop(server);
        state.has_work();
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
            self.shared.status_changed();
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
        self.shared.status_changed();
        tokio::select! {
            () = tokio::time::sleep(LISTEN_RETRY) => {}
            () = self.shared.changed.notified() => {}
        }
    }

    /// Takes connections until the remote is stopped.
    async fn accept(self: &Rc<Remote>, state: &Rc<State>, listener: &Listener) {
        let failed = |why: &str| tracing::warn!(target: "ovsdb_jsonrpc_server", "{}: accept failed: {why}", listener.target());
        let serve = |incoming: Incoming, place: Place| {
            let (remote, state) = (self.clone(), state.clone());
            tokio::task::spawn_local(async move {
                let name = incoming.name.clone();
                match place.establish(incoming).await {
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
                self.shared.changed.notified().await;
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
        let reconnect =
            Rc::new(RefCell::new(Reconnect::new(self.shared.options.borrow().reconnect(true), at)));
        reconnect.borrow_mut().enable(at);
        reconnect.borrow_mut().connected(at);
        let connection =
            Connection { name, remote: Some(self.shared.clone()), reconnect, idlers: Some(place.idlers()) };
        stream.set_dscp(self.shared.options.borrow().dscp);
        converse(state, stream, &connection).await;
    }

    fn is_connected(&self) -> bool {
        !self.shared.connections.borrow().is_empty()
    }

    /// The keys of `status` (ovs-vswitchd.conf.db(5), Manager).
    fn status(&self, at: Instant) -> BTreeMap<String, String> {
        let mut status = BTreeMap::new();
        let connections = self.shared.connections.borrow();
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
        if let Some(state) = self.shared.state.upgrade() {
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
    /// Whether the log still lacks the reason why the last connection ended.
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
        self.remote.shared.status_changed();
        done
    }

    async fn connect(&mut self) -> Result<Stream, String> {
        let stream = Stream::connect(&self.target, Some(&self.state.tls)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        stream.set_dscp(self.remote.shared.options.borrow().dscp);
        Ok(stream)
    }

    async fn converse(&mut self, stream: Stream) -> ControlFlow<Self::Done, Option<String>> {
        if self.remote.stopped.get() {
            return ControlFlow::Continue(None);
        }
        let reconnect = self.remote.reconnect.clone();
        let (name, remote) = (self.name(), Some(self.remote.shared.clone()));
        let connection = Connection { name, remote, reconnect, idlers: None };
        let end = converse(&self.state, stream, &connection).await;
        // The session has reported all other reasons.
        self.is_to_tell = matches!(end, End::Closed | End::ByServer | End::Os(_));
        ControlFlow::Continue(end.text())
    }

    fn tell_end(&mut self, why: Option<&str>) {
        if self.is_to_tell {
            transport::tell_end(&self.name(), why, None);
        }
    }

    fn changed(&self) -> impl Future<Output = ()> + use<> {
        let shared = self.remote.shared.clone();
        async move { shared.changed.notified().await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::server::{Model, Server};
    use ovsdb::{ColumnIdx, Database, Schema, Uuid, UuidGenerator};
    use serde_json::json;
    use std::sync::Arc;
    use transport::Tls;

    #[test]
    fn a_change_of_something_else_is_no_reason_to_ask_for_the_status_of_all_connections() {
        let schema = json!({"name": "D", "version": "1.0.0", "tables": {
            "Manager": {"isRoot": true, "columns": {"target": {"type": "string"}}},
            "Other": {"isRoot": true, "columns": {"i": {"type": "integer"}}}}});
        let mut server = Server::new(now(), UuidGenerator::from_seed(1));
        server.add_in_memory(Database::new(Schema::from_json(&schema).unwrap()), Model::Standalone);
        let state = State::new(server, Arc::new(Tls::new(TlsFiles::default())), true);
        let remotes = Remotes::new(state.clone(), TlsFiles::default());
        let insert = |table: &str, value: Datum| {
            let commit = |transaction: &mut ovsdb::Transaction<'_>, ids: &mut UuidGenerator| {
                let table = transaction.database().schema().find(table).unwrap();
                let mut row = transaction.new_row(table, ids.next_uuid());
                row.set(ColumnIdx::FIRST, value);
                transaction.insert(table, row)
            };
            state.server.borrow_mut().commit_own(now(), "D", commit).unwrap();
            remotes.follow_columns();
            state.status_is_old.take()
        };
        tokio::task::LocalSet::new().block_on(&transport::runtime().unwrap(), async {
            remotes.add("db:D,Manager,target", Overrides::default()).await.unwrap();
            assert!(insert("Manager", Datum::scalar("tcp:192.0.2.1:1")));
            assert!(!insert("Other", Datum::scalar(1)));
            assert!(insert("Manager", Datum::scalar("no target")), "its status says so");
            assert!(!insert("Other", Datum::scalar(2)));
        });
    }

    #[test]
    fn a_status_is_written_only_to_columns_that_take_any() {
        let written = |is_connected: serde_json::Value, status: serde_json::Value| {
            let columns = json!({"is_connected": {"type": is_connected}, "status": {"type": status}});
            let schema = json!({"name": "D", "version": "1.0.0", "tables": {"T": {"columns": columns}}});
            let schema = Schema::from_json(&schema).unwrap();
            let table = &schema.tables()[0];
            let status = BTreeMap::from([("state".to_owned(), "ACTIVE".to_owned())]);
            let row = Row::new(table, Uuid::ZERO);
            with_status(table, &row, true, status).map(|new| row.changed_columns(&new).count())
        };
        let map = |max: serde_json::Value| json!({"key": "string", "value": "string", "min": 0, "max": max});
        assert_eq!(written(json!("boolean"), map(json!("unlimited"))), Some(2));
        assert_eq!(written(json!({"key": "boolean", "min": 0}), json!("string")), Some(1));
        assert_eq!(written(json!("string"), map(json!(2))), None);
        let few = json!({"key": {"type": "string", "enum": ["set", ["state"]]}, "value": "string",
            "min": 0, "max": "unlimited"});
        assert_eq!(written(json!({"key": "boolean", "value": "boolean", "min": 0}), few), None);
    }
}

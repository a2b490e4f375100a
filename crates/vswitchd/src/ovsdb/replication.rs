//! Active-backup: a backup is a client of the active server, does what that one's transactions did, and lets
//! its own clients only read (ovsdb-server(1), "Active-Backup Options").
//!
//! A backup asks for all of each database that both have by `monitor`, puts the first reply in the place of
//! what it has, and then follows the updates, each in one transaction. Where the connection ends it begins
//! again. What it cannot follow, as another schema, stops it for that database, or for all, with the reason
//! in the log and in `sync-status`.

use super::state::{State, now};
use ovsdb::jsonrpc::Message;
use ovsdb::server::SERVER_DATABASE;
use ovsdb::{Datum, Schema, TableIdx, Uuid};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use transport::jsonrpc::Connection;
use transport::reconnect::{Action, Options, Reconnect, SILENT};
use transport::{ActiveTarget, Keep, OVSDB_PORT, Stream, clock, keep_connected};

/// Silence of the active server after which it is probed.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Longest wait where no probe is due.
const FOR_EVER: Duration = Duration::from_secs(3_600);

/// What is set, and how it goes.
pub(super) struct Replication {
    source: Option<String>,
    /// Tables that are not followed, by database.
    exclude: BTreeMap<String, BTreeSet<String>>,
    exclude_text: String,
    probe_interval: Option<Duration>,
    task: Option<AbortHandle>,
    progress: Progress,
}

/// How far a backup is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Progress {
    Connecting,
    NotConnected,
    /// These databases.
    Replicating(Vec<String>),
    Failed,
}

impl Default for Replication {
    fn default() -> Replication {
        Replication {
            source: None,
            exclude: BTreeMap::new(),
            exclude_text: String::new(),
            probe_interval: Some(PROBE_INTERVAL),
            task: None,
            progress: Progress::NotConnected,
        }
    }
}

impl Replication {
    /// The active server, if one is set.
    pub(super) fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Sets the active server; a backup follows this one from now on.
    pub(super) fn set_source(state: &Rc<State>, source: &str) -> Result<(), String> {
        ActiveTarget::parse(source, OVSDB_PORT)?;
        state.replication.borrow_mut().source = Some(source.to_owned());
        if Replication::is_backup(state) {
            Replication::start(state)?;
        }
        Ok(())
    }

    /// `DB:TABLE[,DB:TABLE]…`.
    pub(super) fn set_exclude(state: &Rc<State>, text: &str) -> Result<(), String> {
        let mut exclude: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for word in text.split(',').filter(|w| !w.is_empty()) {
            let Some((database, table)) = word.split_once(':') else {
                return Err(format!("{word}: not of the form DATABASE:TABLE"));
            };
            exclude.entry(database.into()).or_default().insert(table.into());
        }
        let mut replication = state.replication.borrow_mut();
        // In order, as the stock server prints them.
        let pairs = exclude.iter().flat_map(|(db, tables)| tables.iter().map(move |t| format!("{db}:{t}")));
        replication.exclude_text = pairs.collect::<Vec<_>>().join(",");
        replication.exclude = exclude;
        drop(replication);
        if Replication::is_backup(state) {
            Replication::start(state)?;
        }
        Ok(())
    }

    pub(super) fn exclude_text(&self) -> &str {
        &self.exclude_text
    }

    pub(super) fn set_probe_interval(state: &Rc<State>, interval: Option<Duration>) -> Result<(), String> {
        state.replication.borrow_mut().probe_interval = interval;
        if Replication::is_backup(state) {
            Replication::start(state)?;
        }
        Ok(())
    }

    fn is_backup(state: &State) -> bool {
        state.replication.borrow().task.is_some()
    }

    /// Becomes a backup, or begins anew as one. False: no active server is set.
    pub(super) fn start(state: &Rc<State>) -> Result<bool, String> {
        let source = state.replication.borrow().source.clone();
        let Some(source) = source else { return Ok(false) };
        let target = ActiveTarget::parse(&source, OVSDB_PORT)?;
        let mut replication = state.replication.borrow_mut();
        if let Some(task) = replication.task.take() {
            task.abort();
        }
        replication.progress = Progress::Connecting;
        replication.task = Some(tokio::task::spawn_local(follow(state.clone(), target)).abort_handle());
        drop(replication);
        state.server.borrow_mut().set_read_only(true);
        state.has_work();
        Ok(true)
    }

    /// Becomes active.
    pub(super) fn stop(state: &State) {
        if let Some(task) = state.replication.borrow_mut().task.take() {
            task.abort();
        }
        state.server.borrow_mut().set_read_only(false);
        state.has_work();
    }

    /// The text of `ovsdb-server/sync-status`.
    pub(super) fn status(&self) -> String {
        if self.task.is_none() {
            return "state: active\n".into();
        }
        let source = self.source.as_deref().unwrap_or_default();
        let rest = match &self.progress {
            Progress::Connecting => format!("connecting: {source}"),
            Progress::NotConnected => format!("not connected to {source}"),
            Progress::Failed => format!("Replication to ({source}) failed\n"),
            Progress::Replicating(names) => {
                let mut text = format!("replicating: {source}\ndatabase: {}", names.join(", "));
                if !self.exclude_text.is_empty() {
                    text += &format!("\nexclude: {}", self.exclude_text);
                }
                text
            }
        };
        format!("state: backup\n{rest}\n")
    }

    fn is_excluded(&self, database: &str, table: &str) -> bool {
        self.exclude.get(database).is_some_and(|tables| tables.contains(table))
    }
}

/// Why following ended.
enum Failure {
    /// The connection did; it is made again.
    Connection(String),
    /// It cannot be followed at all.
    Impossible(String),
    /// The active server is this very one.
    Itself,
    /// It has no database that this one could follow.
    NothingInCommon,
}

/// Follows the active server until it is told otherwise.
async fn follow(state: Rc<State>, target: ActiveTarget) {
    let options = Options { probe_interval: state.replication.borrow().probe_interval, ..Options::default() };
    let mut reconnect = Reconnect::new(options, clock::now());
    reconnect.enable(clock::now());
    keep_connected(&mut Source { state, target, reconnect }).await;
}

/// The active server as a backup sees it.
struct Source {
    state: Rc<State>,
    target: ActiveTarget,
    reconnect: Reconnect,
}

impl Keep for Source {
    type Link = Connection;
    type Done = ();

    fn name(&self) -> String {
        self.target.to_string()
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Reconnect) -> T) -> Option<T> {
        Some(f(&mut self.reconnect))
    }

    async fn connect(&mut self) -> Result<Connection, String> {
        self.state.replication.borrow_mut().progress = Progress::Connecting;
        let stream = Stream::connect(&self.target, Some(&self.state.tls)).await;
        Ok(Connection::new(self.name(), stream.map_err(|error| error.to_string())?))
    }

    async fn converse(&mut self, connection: Connection) -> ControlFlow<(), Option<String>> {
        let (state, target) = (&self.state, &self.target);
        let heard = connection.heard();
        let mut peer = Peer { connection, reconnect: &mut self.reconnect, heard, next: 0 };
        match try_replicate(state, &mut peer).await {
            Ok(never) => match never {},
            Err(Failure::Connection(why)) => {
                state.replication.borrow_mut().progress = Progress::NotConnected;
                ControlFlow::Continue(Some(why))
            }
            Err(Failure::Itself) => {
                tracing::warn!(target: "replication", "Self replicating is not allowed");
                // It has what it would copy, and there is nobody to change it but its own clients.
                Replication::stop(state);
                ControlFlow::Break(())
            }
            Err(Failure::NothingInCommon) => {
                tracing::warn!(target: "replication", "Nothing to replicate.");
                Replication::stop(state);
                ControlFlow::Break(())
            }
            Err(Failure::Impossible(why)) => {
                tracing::error!(target: "replication", "{target}: {why}; not replicating");
                state.replication.borrow_mut().progress = Progress::Failed;
                ControlFlow::Break(())
            }
        }
    }
}

/// A connection to the active server.
struct Peer<'a> {
    connection: Connection,
    reconnect: &'a mut Reconnect,
    heard: Instant,
    next: u64,
}

impl Peer<'_> {
    async fn say(&mut self, message: &Message) -> Result<(), Failure> {
        self.connection.send(message).await.map_err(Failure::Connection)
    }

    /// Tells when something last came.
    fn listened(&mut self) {
        if self.connection.heard() > self.heard {
            self.heard = self.connection.heard();
            self.reconnect.heard(self.heard);
        }
    }

    /// The next message. Echo requests are answered, and a silent server is probed, meanwhile.
    async fn hear(&mut self) -> Result<Message, Failure> {
        loop {
            let silent = self.reconnect.deadline();
            let message = tokio::select! {
                message = self.connection.receive() => message.map_err(Failure::Connection)?,
                () = clock::sleep_until(silent.unwrap_or_else(|| clock::now() + FOR_EVER)) => {
                    self.listened();
                    match self.reconnect.run(clock::now()) {
                        Some(Action::Disconnect) => {
                            return Err(Failure::Connection(SILENT.into()));
                        }
                        Some(Action::Probe) => self.say(&Message::request("echo", &json!([]), "echo")).await?,
                        _ => {}
                    }
                    continue;
                }
            };
            self.listened();
            match message {
                Message::Request { method, params, id } if method == "echo" => {
                    self.say(&Message::Reply { result: params, id }).await?;
                }
                Message::Reply { id, .. } if id == "echo" => {}
                message => return Ok(message),
            }
        }
    }

    /// The result of a request. Nothing else is expected meanwhile.
    async fn ask(&mut self, method: &str, params: Value) -> Result<Result<Value, Value>, Failure> {
        self.next += 1;
        let id = Value::from(self.next);
        self.say(&Message::request(method, &params, id.clone())).await?;
        loop {
            match self.hear().await? {
                Message::Reply { result, id: of } if of == id => {
                    return parse(result.get()).map(Ok);
                }
                Message::Error { error, id: of } if of == id => return parse(error.get()).map(Err),
                // Updates of databases that were asked for before come only once all was asked.
                _ => {}
            }
        }
    }
}

fn parse(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|e| Failure::Connection(e.to_string()))
}

async fn try_replicate(state: &Rc<State>, peer: &mut Peer<'_>) -> Result<std::convert::Infallible, Failure> {
    let own_id = state.server.borrow().id().to_string();
    if peer.ask("get_server_id", json!([])).await? == Ok(Value::from(own_id)) {
        return Err(Failure::Itself);
    }
    let theirs = match peer.ask("list_dbs", json!([])).await? {
        Ok(names) => names,
        Err(error) => return Err(Failure::Impossible(format!("list_dbs: {error}"))),
    };
    let theirs: Vec<String> =
        theirs.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let mut followed = Vec::new();
    for name in theirs.iter().filter(|name| *name != SERVER_DATABASE) {
        let Some(mine) = state.server.borrow().database(name).map(|d| d.schema().clone()) else { continue };
        let schema = peer.ask("get_schema", json!([name])).await?;
        let Some(theirs) = schema.ok().and_then(|json| Schema::from_json(&json).ok()) else {
            tracing::warn!(target: "replication", "{name} has no schema that can be read and is not replicated");
            continue;
        };
        let differs = theirs.version != mine.version || theirs.tables() != mine.tables();
        if differs {
            tracing::info!(
                target: "replication",
                "Schema version mismatch, checking if {name} can still be replicated or not."
            );
        }
        if !holds(&mine, &theirs) {
            tracing::info!(target: "replication", "{name} cannot be replicated.");
            continue;
        }
        if differs {
            tracing::info!(target: "replication", "{name} can be replicated.");
        }
        followed.push((name.clone(), theirs));
    }
    if followed.is_empty() {
        return Err(Failure::NothingInCommon);
    }
    // Updates of the first may come before the reply for the last; what is told twice is the same.
    let mut ids = BTreeMap::new();
    for (name, schema) in &followed {
        let requests = requests(state, name, schema);
        peer.next += 1;
        let id = Value::from(peer.next);
        let params = json!([name, ["replication", name], requests]);
        peer.say(&Message::request("monitor", &params, id.clone())).await?;
        ids.insert(id.to_string(), name.clone());
    }
    let mut running = BTreeSet::new();
    loop {
        match peer.hear().await? {
            Message::Reply { result, id } => {
                let Some(name) = ids.get(&id.to_string()) else { continue };
                tracing::info!(target: "replication", "Monitor request received. Resetting the database");
                apply(state, name, &parse(result.get())?, true)?;
                running.insert(name.clone());
                if running.len() == followed.len() {
                    let names = running.iter().cloned().collect();
                    tracing::debug!(target: "replication", "replicating {}", running.iter().cloned().collect::<Vec<_>>().join(", "));
                    state.replication.borrow_mut().progress = Progress::Replicating(names);
                }
            }
            Message::Error { error, .. } => {
                return Err(Failure::Impossible(format!("monitor: {}", error.get())));
            }
            Message::Notification { method, params } if method == "update" => {
                let params = parse(params.get())?;
                if let Some(name) = params[0][1].as_str() {
                    apply(state, name, &params[1], false)?;
                }
            }
            Message::Notification { .. } | Message::Request { .. } => {}
        }
    }
}

/// Whether a database of schema `mine` can hold what one of schema `theirs` has: it has all tables and
/// columns, of the same types.
fn holds(mine: &Schema, theirs: &Schema) -> bool {
    theirs.tables().iter().all(|table| {
        let Some(own) = mine.find(&table.name).map(|idx| mine.table(idx)) else {
            tracing::info!(target: "replication", "Table {} is not in the local schema.", table.name);
            return false;
        };
        table.named_columns().all(|(_, column)| {
            let same = own.find(&column.name).is_some_and(|idx| own.column(idx).kind == column.kind);
            if !same {
                tracing::info!(
                    target: "replication",
                    "Column {} mismatch in local db schema table {}.", column.name, table.name
                );
            }
            same
        })
    })
}

/// All tables that are followed, with all columns.
fn requests(state: &State, name: &str, schema: &Schema) -> Value {
    let replication = state.replication.borrow();
    let tables = schema.tables().iter().filter(|t| !replication.is_excluded(name, &t.name));
    let request = |table: &ovsdb::TableSchema| {
        let columns: Vec<&str> = table.named_columns().map(|(_, c)| c.name.as_str()).collect();
        (table.name.clone(), json!([{"columns": columns}]))
    };
    Value::Object(tables.map(request).collect::<Map<String, Value>>())
}

/// Does what `<table-updates>` say. The first ones stand for all that the database has in the tables that are
/// followed.
fn apply(state: &Rc<State>, name: &str, updates: &Value, first: bool) -> Result<(), Failure> {
    let impossible = |why: String| Failure::Impossible(format!("{name}: {why}"));
    let excluded = state.replication.borrow().exclude.get(name).cloned().unwrap_or_default();
    let empty = Map::new();
    let updates = updates.as_object().unwrap_or(&empty);
    let mut problem = None;
    let committed = state.server.borrow_mut().commit_own(now(), name, |transaction, _| {
        let schema = transaction.database().schema().clone();
        if first {
            for (table, table_schema) in schema.tables_with_idx() {
                if excluded.contains(&table_schema.name) {
                    continue;
                }
                let told = updates.get(&table_schema.name).and_then(Value::as_object).unwrap_or(&empty);
                let gone: Vec<Uuid> = transaction
                    .database()
                    .rows(table)
                    .map(|row| row.uuid())
                    .filter(|uuid| !told.contains_key(&uuid.to_string()))
                    .collect();
                for uuid in gone {
                    transaction.delete(table, uuid);
                }
            }
        }
        for (table_name, rows) in updates {
            let Some(table) = schema.find(table_name) else { continue };
            for (uuid, update) in rows.as_object().unwrap_or(&empty) {
                match apply_row(transaction, &schema, table, uuid, update)? {
                    Ok(()) => {}
                    Err(why) => problem = Some(why),
                }
            }
        }
        Ok(())
    });
    state.has_work();
    committed.map_err(|e| impossible(e.to_string()))?;
    problem.map_or(Ok(()), |why| Err(impossible(why)))
}

fn apply_row(
    transaction: &mut ovsdb::Transaction<'_>,
    schema: &Schema,
    table: TableIdx,
    uuid: &str,
    update: &Value,
) -> Result<Result<(), String>, ovsdb::Error> {
    let Some(uuid) = Uuid::parse(uuid) else { return Ok(Err(format!("{uuid}: not a UUID"))) };
    let Some(new) = update.get("new").and_then(Value::as_object) else {
        transaction.delete(table, uuid);
        return Ok(Ok(()));
    };
    let old = transaction.database().row(table, uuid).cloned();
    let is_new = old.is_none();
    let mut row = old.unwrap_or_else(|| transaction.new_row(table, uuid));
    for (name, value) in new {
        let Some(column) = schema.table(table).find(name) else { continue };
        row.set(column, Datum::from_json(value, &schema.table(table).column(column).kind, None)?);
    }
    if is_new {
        transaction.insert(table, row)?;
    } else {
        transaction.replace(table, row);
    }
    Ok(Ok(()))
}

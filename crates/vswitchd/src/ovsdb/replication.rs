//! Active-backup: a backup is a client of the active server, repeats that server's transactions, and allows
//! its own clients only to read (ovsdb-server(1), "Active-Backup Options").
//!
//! A backup requests the whole of each common database by `monitor`, replaces its own contents by the first
//! reply, and then follows the updates, each in one transaction. When the connection ends, it starts again.
//! If it cannot follow, for example because of a different schema, it stops for that database, or for all,
//! with the reason in the log and in `sync-status`.

use super::state::{State, now};
use ovsdb::jsonrpc::Message;
use ovsdb::server::SERVER_DATABASE;
use ovsdb::{Datum, Schema, TableIdx, Transaction, Uuid};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
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

/// Whether a server is a backup, and of which server.
pub(super) struct Replication {
    state: Rc<State>,
    settings: RefCell<Settings>,
}

/// The settings, and the state.
struct Settings {
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

impl Default for Settings {
    fn default() -> Settings {
        Settings {
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
    /// Starts as an active server.
    pub(super) fn new(state: Rc<State>) -> Rc<Replication> {
        Rc::new(Replication { state, settings: RefCell::default() })
    }

    /// The active server, if one is set.
    pub(super) fn source(&self) -> Option<String> {
        self.settings.borrow().source.clone()
    }

    /// Sets the active server; a backup follows this one from now on.
    pub(super) fn set_source(self: &Rc<Self>, source: &str) -> Result<(), String> {
        ActiveTarget::parse(source, OVSDB_PORT)?;
        self.settings.borrow_mut().source = Some(source.to_owned());
        self.begin_anew()
    }

    /// `DB:TABLE[,DB:TABLE]…`.
    pub(super) fn set_exclude(self: &Rc<Self>, text: &str) -> Result<(), String> {
        let mut exclude: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for word in text.split(',').filter(|w| !w.is_empty()) {
            let Some((database, table)) = word.split_once(':') else {
                return Err(format!("{word}: not of the form DATABASE:TABLE"));
            };
            exclude.entry(database.into()).or_default().insert(table.into());
        }
        let mut settings = self.settings.borrow_mut();
        // Sorted, as the stock server prints them.
        let pairs = exclude.iter().flat_map(|(db, tables)| tables.iter().map(move |t| format!("{db}:{t}")));
        settings.exclude_text = pairs.collect::<Vec<_>>().join(",");
        settings.exclude = exclude;
        drop(settings);
        self.begin_anew()
    }

    pub(super) fn exclude_text(&self) -> String {
        self.settings.borrow().exclude_text.clone()
    }

    pub(super) fn set_probe_interval(self: &Rc<Self>, interval: Option<Duration>) -> Result<(), String> {
        self.settings.borrow_mut().probe_interval = interval;
        self.begin_anew()
    }

    /// Restarts a backup with the present settings.
    fn begin_anew(self: &Rc<Self>) -> Result<(), String> {
        let is_backup = self.settings.borrow().task.is_some();
        if is_backup { self.start().map(drop) } else { Ok(()) }
    }

    /// Becomes a backup, or restarts as one. False: no active server is set.
    pub(super) fn start(self: &Rc<Self>) -> Result<bool, String> {
        let Some(source) = self.source() else { return Ok(false) };
        let target = ActiveTarget::parse(&source, OVSDB_PORT)?;
        let mut settings = self.settings.borrow_mut();
        if let Some(task) = settings.task.take() {
            task.abort();
        }
        settings.progress = Progress::Connecting;
        settings.task = Some(tokio::task::spawn_local(self.clone().follow(target)).abort_handle());
        drop(settings);
        self.state.server.borrow_mut().set_read_only(true);
        self.state.has_work();
        Ok(true)
    }

    /// Becomes active.
    pub(super) fn stop(&self) {
        if let Some(task) = self.settings.borrow_mut().task.take() {
            task.abort();
        }
        self.state.server.borrow_mut().set_read_only(false);
        self.state.has_work();
    }

    /// The text of `ovsdb-server/sync-status`.
    pub(super) fn status(&self) -> String {
        let Settings { source, exclude_text, task, progress, .. } = &*self.settings.borrow();
        if task.is_none() {
            return "state: active\n".into();
        }
        let source = source.as_deref().unwrap_or_default();
        let rest = match progress {
            Progress::Connecting => format!("connecting: {source}"),
            Progress::NotConnected => format!("not connected to {source}"),
            Progress::Failed => format!("Replication to ({source}) failed\n"),
            Progress::Replicating(names) => {
                let mut text = format!("replicating: {source}\ndatabase: {}", names.join(", "));
                if !exclude_text.is_empty() {
                    text += &format!("\nexclude: {exclude_text}");
                }
                text
            }
        };
        format!("state: backup\n{rest}\n")
    }

    fn goes(&self, progress: Progress) {
        self.settings.borrow_mut().progress = progress;
    }

    /// Follows the active server until told otherwise.
    async fn follow(self: Rc<Self>, target: ActiveTarget) {
        let probe_interval = self.settings.borrow().probe_interval;
        let mut reconnect = Reconnect::new(Options { probe_interval, ..Options::default() }, clock::now());
        reconnect.enable(clock::now());
        self.state.may_connect().await;
        keep_connected(&mut Source { replication: self, target, reconnect }).await;
    }
}

impl Settings {
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
    /// It has no database that this server could follow.
    NothingInCommon,
}

/// The active server as a backup sees it.
struct Source {
    replication: Rc<Replication>,
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
        self.replication.goes(Progress::Connecting);
        let stream = Stream::connect(&self.target, Some(&self.replication.state.tls)).await;
        Ok(Connection::new(self.name(), stream.map_err(|error| error.to_string())?))
    }

    async fn converse(&mut self, connection: Connection) -> ControlFlow<(), Option<String>> {
        let (replication, target) = (&self.replication, &self.target);
        let heard = connection.heard();
        let mut peer = Peer { connection, reconnect: &mut self.reconnect, heard, next: 0 };
        match try_replicate(replication, &mut peer).await {
            Ok(never) => match never {},
            Err(Failure::Connection(why)) => {
                replication.goes(Progress::NotConnected);
                ControlFlow::Continue(Some(why))
            }
            Err(Failure::Itself) => {
                tracing::error!(
                    target: "ovsdb_error",
                    "unexpected ovsdb error: Server ID check failed: Self replicating is not allowed"
                );
                // It has what it would copy, and there is nobody to change it but its own clients.
                replication.stop();
                ControlFlow::Break(())
            }
            Err(Failure::NothingInCommon) => {
                tracing::warn!(target: "replication", "Nothing to replicate.");
                replication.stop();
                ControlFlow::Break(())
            }
            Err(Failure::Impossible(why)) => {
                tracing::error!(target: "replication", "{target}: {why}; not replicating");
                replication.goes(Progress::Failed);
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
                () = clock::sleep_until(silent) => {
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

async fn try_replicate(
    replication: &Replication,
    peer: &mut Peer<'_>,
) -> Result<std::convert::Infallible, Failure> {
    let state = &replication.state;
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
            tracing::warn!(target: "replication", "{name} is not replicated: its schema is invalid");
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
    // Updates of the first database may arrive before the reply for the last; applying a change twice does no
    // harm.
    let mut ids = BTreeMap::new();
    for (name, schema) in &followed {
        let requests = requests(replication, name, schema);
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
                apply(replication, name, &parse(result.get())?, true)?;
                running.insert(name.clone());
                if running.len() == followed.len() {
                    let names = running.iter().cloned().collect();
                    tracing::debug!(target: "replication", "replicating {}", running.iter().cloned().collect::<Vec<_>>().join(", "));
                    replication.goes(Progress::Replicating(names));
                }
            }
            Message::Error { error, .. } => {
                return Err(Failure::Impossible(format!("monitor: {}", error.get())));
            }
            Message::Notification { method, params } if method == "update" => {
                let params = parse(params.get())?;
                // Of no other one, least of all of the server's own.
                if let Some(name) = params[0][1].as_str()
                    && followed.iter().any(|(followed, _)| followed == name)
                {
                    apply(replication, name, &params[1], false)?;
                }
            }
            Message::Notification { .. } | Message::Request { .. } => {}
        }
    }
}

/// Whether a database with schema `mine` can store everything of one with schema `theirs`: it has all tables
/// and columns, with the same types.
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
fn requests(replication: &Replication, name: &str, schema: &Schema) -> Value {
    let settings = replication.settings.borrow();
    let tables = schema.tables().iter().filter(|t| !settings.is_excluded(name, &t.name));
    let request = |table: &ovsdb::TableSchema| {
        let columns: Vec<&str> = table.named_columns().map(|(_, c)| c.name.as_str()).collect();
        (table.name.clone(), json!([{"columns": columns}]))
    };
    Value::Object(tables.map(request).collect::<Map<String, Value>>())
}

/// Applies `<table-updates>`, all or nothing. The first ones contain everything in the followed tables of the
/// database.
fn apply(replication: &Replication, name: &str, updates: &Value, first: bool) -> Result<(), Failure> {
    let state = &replication.state;
    let excluded = replication.settings.borrow().exclude.get(name).cloned().unwrap_or_default();
    let committed = state.server.borrow_mut().commit_own(now(), name, |transaction, _| {
        if first {
            delete_others(transaction, updates, &excluded)?;
        }
        apply_updates(transaction, updates)
    });
    state.has_work();
    committed.map_err(|e| Failure::Impossible(format!("{name}: {e}")))
}

/// Deletes the rows that these updates do not have.
fn delete_others(
    transaction: &mut Transaction<'_>,
    updates: &Value,
    excluded: &BTreeSet<String>,
) -> Result<(), ovsdb::Error> {
    let updates = object(updates, "<table-updates>")?;
    let schema = transaction.database().schema().clone();
    for (table, table_schema) in schema.tables_with_idx() {
        if excluded.contains(&table_schema.name) {
            continue;
        }
        let told = match updates.get(&table_schema.name) {
            Some(rows) => Some(object(rows, "<table-update>")?),
            None => None,
        };
        let is_gone = |uuid: &Uuid| told.is_none_or(|rows| !rows.contains_key(&uuid.to_string()));
        let rows = transaction.database().rows(table).map(|row| row.uuid());
        for uuid in rows.filter(is_gone).collect::<Vec<_>>() {
            transaction.delete(table, uuid);
        }
    }
    Ok(())
}

fn apply_updates(transaction: &mut Transaction<'_>, updates: &Value) -> Result<(), ovsdb::Error> {
    let schema = transaction.database().schema().clone();
    for (table_name, rows) in object(updates, "<table-updates>")? {
        let Some(table) = schema.find(table_name) else { continue };
        for (uuid, update) in object(rows, "<table-update>")? {
            let uuid = Uuid::parse(uuid).ok_or_else(|| wrong(&format!("{uuid}: not a UUID")))?;
            apply_row(transaction, &schema, table, uuid, object(update, "<row-update>")?)?;
        }
    }
    Ok(())
}

fn apply_row(
    transaction: &mut Transaction<'_>,
    schema: &Schema,
    table: TableIdx,
    uuid: Uuid,
    update: &Map<String, Value>,
) -> Result<(), ovsdb::Error> {
    let new = match (update.get("new"), update.get("old")) {
        (Some(new), _) => object(new, "<row>")?,
        (None, Some(_)) => {
            transaction.delete(table, uuid);
            return Ok(());
        }
        (None, None) => return Err(wrong("a <row-update> with neither an old nor a new row")),
    };
    let old = transaction.database().row(table, uuid).cloned();
    let is_new = old.is_none();
    let mut row = old.unwrap_or_else(|| transaction.new_row(table, uuid));
    for (name, value) in new {
        let column = schema.table(table).find(name).filter(|column| !column.is_internal());
        let Some(column) = column else { continue };
        row.set(column, Datum::from_json(value, &schema.table(table).column(column).kind, None)?);
    }
    if is_new {
        transaction.insert(table, row)?;
    } else {
        transaction.replace(table, row);
    }
    Ok(())
}

fn object<'a>(json: &'a Value, what: &str) -> Result<&'a Map<String, Value>, ovsdb::Error> {
    json.as_object().ok_or_else(|| wrong(&format!("a {what} that is not an object")))
}

fn wrong(details: &str) -> ovsdb::Error {
    ovsdb::Error::new("syntax error", details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::{Database, UuidGenerator};

    #[test]
    fn updates_are_applied_whole_or_not_at_all() {
        let schema = json!({"name": "D", "version": "1.0.0", "tables": {
            "C": {"columns": {"k": {"type": "string"}}}, "X": {"columns": {"k": {"type": "string"}}}}});
        let mut database = Database::new(Schema::from_json(&schema).unwrap());
        let mut ids = UuidGenerator::from_seed(1);
        let [one, two] = [(); 2].map(|()| ids.next_uuid().to_string());
        let excluded = BTreeSet::from(["X".to_owned()]);
        let mut follow = |updates: Value, first: bool| {
            let mut transaction = database.begin();
            if first {
                delete_others(&mut transaction, &updates, &excluded).map_err(|e| e.to_string())?;
            }
            apply_updates(&mut transaction, &updates).map_err(|e| e.to_string())?;
            transaction.commit(&mut ids).map_err(|e| e.to_string())?;
            let rows = |table| {
                let rows = database.rows(TableIdx(table)).map(|row| (row.uuid(), row.to_owned()));
                let k = |row: ovsdb::Row| {
                    row.get(database.schema().table(TableIdx(table)).find("k").unwrap()).clone()
                };
                rows.map(|(uuid, row)| (uuid.to_string(), k(row))).collect::<BTreeMap<_, _>>()
            };
            Ok::<_, String>((rows(0), rows(1)))
        };
        let row = |k: &str| json!({"new": {"k": k}});
        let (c, x) = follow(json!({"C": {&one: row("a")}, "X": {&two: row("x")}}), false).unwrap();
        let before = (c.clone(), x.clone());
        assert_eq!((c[&one].as_str(), x[&two].as_str()), (Some("a"), Some("x")));
        for nonsense in [
            json!([1, 2]),
            json!(null),
            json!({"C": null}),
            json!({"C": [1]}),
            json!({"C": {&two: null}}),
            json!({"C": {&two: {}}}),
            json!({"C": {&two: {"new": 1}}}),
            json!({"C": {&two: row("b"), "zz": row("c")}}),
            json!({"C": {&one: {"old": {}}, "zz": row("c")}}),
            json!({"C": {&two: {"new": {"k": 1}}}}),
        ] {
            for first in [false, true] {
                follow(nonsense.clone(), first).unwrap_err();
                assert_eq!(follow(json!({}), false).unwrap(), before, "after {nonsense}");
            }
        }
        // What is no column that can be set keeps its value.
        let named = json!({"new": {"k": "b", "_uuid": ["uuid", one]}});
        let (c, x) = follow(json!({"C": {&two: named}}), true).unwrap();
        assert_eq!((c.len(), c[&two].as_str(), x.len()), (1, Some("b"), 1));
        let (c, _) = follow(json!({"C": {&two: {"old": {"k": "b"}}}}), false).unwrap();
        assert!(c.is_empty());
    }
}

//! A client's copy of chosen tables and columns of a database, kept up to date by a monitor, and the
//! transactions that change the database through it.
//!
//! [`Replica`] is a state machine over JSON-RPC messages: messages from the server go in through
//! [`Replica::handle`], messages to send come out of [`Replica::poll_transmit`], and the owner reports when a
//! connection begins and ends. It requests the schema, then monitors with `monitor_cond_since` or, if the
//! server does not know that, with `monitor_cond` or `monitor`. It keeps its contents when the connection is
//! lost; the next one brings only what changed since, or everything. Either way, [`Replica::take_changes`]
//! returns, row by row, what has changed since its last call.
//!
//! ```text
//! connected -> get_schema -> monitor_cond_since -> synced -- update3 --> synced
//!                   ^        (monitor_cond, monitor)           |
//!                   +------------- monitor_canceled -----------+
//! ```
//!
//! A [`Transaction`] is a set of intended changes to the replica; reads through it see them.
//! [`Replica::commit`] sends it; its [`Outcome`] arrives with the server's reply. [`Outcome::TryAgain`] means
//! that something the transaction relied on had changed: build it again from the replica's new contents.
//!
//! Invariants: rows are always those of a committed state of the database, never a mix of two; an update that
//! does not fit the contents is an error, after which the next connection fetches everything again.
//!
//! Source: RFC 7047 section 4.1; ovsdb-server(7), "Monitor_cond_since"; ovsdb(7).

mod commit;
mod transaction;
mod update;

use commit::compose;
pub use commit::{Committed, Outcome, Ticket};
pub use transaction::Transaction;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::jsonrpc::Message;
use crate::{Row, RowChange, RowMap, Schema, TableIdx, Uuid};

/// Which tables and columns to copy. Tables and columns that the server's schema lacks are left out silently:
/// [`Replica::missing`] names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// By table, the columns.
    tables: BTreeMap<String, BTreeSet<String>>,
    everything: bool,
}

impl Selection {
    /// All columns of all tables.
    pub fn everything() -> Selection {
        Selection { everything: true, ..Selection::default() }
    }

    /// Nothing yet.
    pub fn new() -> Selection {
        Selection::default()
    }

    /// With the rows of `table`, though perhaps none of their columns.
    pub fn add_table(&mut self, table: &str) {
        self.tables.entry(table.to_owned()).or_default();
    }

    /// With one column.
    pub fn add_column(&mut self, table: &str, column: &str) {
        self.tables.entry(table.to_owned()).or_default().insert(column.to_owned());
    }

    /// The columns of `table` that `schema` has and this selects, without `_uuid` and `_version`. `None`: not
    /// even its rows.
    fn columns<'a>(&'a self, schema: &'a Schema, table: TableIdx) -> Option<Vec<&'a str>> {
        let table = schema.table(table);
        if self.everything {
            return Some(table.named_columns().map(|(_, column)| column.name.as_str()).collect());
        }
        let columns = self.tables.get(&table.name)?.iter().map(String::as_str);
        Some(columns.filter(|name| table.find(name).is_some_and(|column| !column.is_internal())).collect())
    }

    /// What this selects and `schema` lacks: tables (`None`) and columns.
    fn missing(&self, schema: &Schema) -> Vec<(String, Option<String>)> {
        let mut missing = Vec::new();
        for (name, columns) in &self.tables {
            let Some(table) = schema.find(name) else {
                missing.push((name.clone(), None));
                continue;
            };
            let columns = columns.iter().filter(|column| schema.table(table).find(column).is_none());
            missing.extend(columns.map(|column| (name.clone(), Some(column.clone()))));
        }
        missing
    }
}

/// Why the server cannot be followed on this connection. The owner must close it, and may reconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It sent something that its protocol does not allow, or that contradicts what it sent before. A
    /// sentence.
    Protocol(String),
    /// It refused something that a replica needs: no such database, no permission. A sentence.
    Refused(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Protocol(why) => write!(f, "the server does not follow the protocol: {why}"),
            Error::Refused(why) => write!(f, "the server refuses: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// How the server tells of changes: the newest method that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    CondSince,
    Cond,
    Plain,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::CondSince => "monitor_cond_since",
            Method::Cond => "monitor_cond",
            Method::Plain => "monitor",
        }
    }

    fn older(self) -> Option<Method> {
        match self {
            Method::CondSince => Some(Method::Cond),
            Method::Cond => Some(Method::Plain),
            Method::Plain => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No connection.
    Disconnected,
    /// Waits for the schema.
    Schema,
    /// Waits for the first rows.
    Monitor(Method),
    /// Follows.
    Synced,
}

/// The purpose of a request that is not answered yet.
#[derive(Debug)]
enum Pending {
    /// Its answer does not matter.
    Ignored,
    Schema,
    Monitor(Method),
    Lock,
    Transaction(commit::InFlight),
}

/// The name that this client gives to its monitor, and gets back with each update.
const MONITOR: &str = "replica";

/// A copy. See the [module](self).
#[derive(Debug)]
pub struct Replica {
    database: String,
    selection: Selection,
    state: State,
    next_id: u64,
    pending: HashMap<u64, Pending>,
    transmit: VecDeque<Message>,
    schema: Option<Arc<Schema>>,
    schema_json: Option<Value>,
    /// Indexed by [`TableIdx`].
    tables: Vec<RowMap>,
    /// Rows that differ from when [`Replica::take_changes`] was last called, as they were then.
    before: BTreeMap<(TableIdx, Uuid), Option<Row>>,
    /// The last transaction that the rows include, as `monitor_cond_since` names them.
    last_transaction: Uuid,
    /// Counts changes of the rows.
    changes_seen: u64,
    /// Counts schemas.
    generation: u64,
    lock: Option<Lock>,
    next_ticket: u64,
    outcomes: BTreeMap<Ticket, Outcome>,
}

#[derive(Debug)]
struct Lock {
    name: String,
    is_held: bool,
    is_contended: bool,
}

impl Replica {
    /// A copy of `selection` of the database called `database`, empty until a server was connected to.
    pub fn new(database: &str, selection: Selection) -> Replica {
        Replica {
            database: database.to_owned(),
            selection,
            state: State::Disconnected,
            next_id: 0,
            pending: HashMap::new(),
            transmit: VecDeque::new(),
            schema: None,
            schema_json: None,
            tables: Vec::new(),
            before: BTreeMap::new(),
            last_transaction: Uuid::ZERO,
            changes_seen: 0,
            generation: 0,
            lock: None,
            next_ticket: 0,
            outcomes: BTreeMap::new(),
        }
    }

    /// A replica with given rows, as if a server had sent them: for tests and fuzzing, without a connection.
    /// What it wants to send is ignored.
    pub fn with_rows(schema: Arc<Schema>, rows: impl IntoIterator<Item = (TableIdx, Row)>) -> Replica {
        let mut replica = Replica::new(&schema.name, Selection::everything());
        replica.tables = vec![RowMap::default(); schema.tables().len()];
        replica.schema = Some(schema);
        replica.state = State::Synced;
        replica.changes_seen = 1;
        for (table, row) in rows {
            replica.tables[table.index()].insert(row);
        }
        replica
    }

    /// The name of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// A connection to a server was made: begins to follow it.
    pub fn connected(&mut self) {
        self.disconnected();
        // So that a conversion of the schema comes as a message, and not as the end of the connection.
        self.request("set_db_change_aware", json!([true]), Pending::Ignored);
        self.ask_for_schema();
        if let Some(lock) = &self.lock {
            let name = lock.name.clone();
            self.request("lock", json!([name]), Pending::Lock);
        }
    }

    /// The connection is gone. Rows stay; transactions in flight have the outcome [`Outcome::TryAgain`],
    /// though the server may have committed them.
    pub fn disconnected(&mut self) {
        self.state = State::Disconnected;
        self.transmit.clear();
        for (_, pending) in std::mem::take(&mut self.pending) {
            if let Pending::Transaction(in_flight) = pending {
                self.outcomes.insert(in_flight.ticket, Outcome::TryAgain);
            }
        }
        if let Some(lock) = &mut self.lock {
            lock.is_held = false;
        }
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<Message> {
        self.transmit.pop_front()
    }

    /// Takes a message from the server.
    ///
    /// # Errors
    /// Where the server cannot be followed any further. Close the connection and call
    /// [`Replica::disconnected`].
    pub fn handle(&mut self, message: Message) -> Result<(), Error> {
        let result = match message {
            Message::Request { method, params, id } => {
                let reply = match method.as_str() {
                    "echo" => Message::Reply { result: params, id },
                    _ => Message::error(&json!({"error": "unknown method"}), id),
                };
                self.transmit.push_back(reply);
                Ok(())
            }
            Message::Notification { method, params } => self.notification(&method, &params),
            Message::Reply { result, id } => match self.take_pending(&id) {
                Some(pending) => self.reply(pending, &result),
                None => Ok(()),
            },
            Message::Error { error, id } => match self.take_pending(&id) {
                Some(pending) => self.error(pending, &error),
                None => Ok(()),
            },
        };
        if matches!(result, Err(Error::Protocol(_))) {
            // The contents may be wrong: the next connection fetches everything.
            self.last_transaction = Uuid::ZERO;
        }
        result
    }

    /// Whether the rows are those of the server that is connected.
    pub fn is_synced(&self) -> bool {
        self.state == State::Synced
    }

    /// Counts the changes of rows and schema: it differs from an earlier value if and only if something came
    /// since. Zero until a server's rows were here for the first time.
    pub fn changes_seen(&self) -> u64 {
        self.changes_seen
    }

    /// Counts schemas: after a change, indices of tables and columns have new meanings, and
    /// [`Replica::take_changes`] returns every row as new.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The server's schema, once it is known.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.schema.as_ref()
    }

    /// What the selection names and the server's schema lacks: tables, and columns of tables.
    pub fn missing(&self) -> Vec<(String, Option<String>)> {
        self.schema.as_ref().map(|schema| self.selection.missing(schema)).unwrap_or_default()
    }

    /// The rows of `table`. Columns that are not selected hold their defaults.
    pub fn table(&self, table: TableIdx) -> &RowMap {
        &self.tables[table.index()]
    }

    /// A row.
    pub fn row(&self, table: TableIdx, uuid: Uuid) -> Option<&Row> {
        self.tables.get(table.index())?.get(uuid)
    }

    /// Rows that differ since the last call: their versions then and now, by table and UUID. A row that
    /// changed and changed back is not among them.
    pub fn take_changes(&mut self) -> Vec<RowChange> {
        let mut changes = Vec::with_capacity(self.before.len());
        for ((table, uuid), old) in std::mem::take(&mut self.before) {
            let new = self.row(table, uuid).cloned();
            if old != new {
                changes.push(RowChange { table, uuid, old, new });
            }
        }
        changes
    }

    /// Wants the lock called `name`, and keeps wanting it over connections. Transactions from now on require
    /// it.
    pub fn request_lock(&mut self, name: &str) {
        self.lock = Some(Lock { name: name.to_owned(), is_held: false, is_contended: false });
        if self.state != State::Disconnected {
            self.request("lock", json!([name]), Pending::Lock);
        }
    }

    /// Whether the lock that was asked for is ours.
    pub fn has_lock(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.is_held)
    }

    /// Whether another client has the lock that was asked for.
    pub fn is_lock_contended(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.is_contended)
    }

    /// Begins a transaction on the present rows. Panics if no schema is known yet.
    pub fn begin(&self) -> Transaction {
        let schema = self.schema.clone().expect("a transaction is begun after the first rows came");
        Transaction::new(schema, self.tables.clone())
    }

    /// Sends a transaction. Its outcome is available at once if there is nothing to change or no connection.
    pub fn commit(&mut self, transaction: &Transaction) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        if transaction.is_unchanged() {
            self.outcomes.insert(ticket, Outcome::Unchanged);
            return ticket;
        }
        if self.state == State::Disconnected {
            self.outcomes.insert(ticket, Outcome::TryAgain);
            return ticket;
        }
        let mut operations = vec![Value::from(self.database())];
        if let Some(lock) = &self.lock {
            operations.push(json!({"op": "assert", "lock": lock.name}));
        }
        let in_flight = compose(transaction, ticket, &mut operations);
        self.request("transact", Value::Array(operations), Pending::Transaction(in_flight));
        ticket
    }

    /// The outcome of a transaction, once it is known; returned once.
    pub fn take_outcome(&mut self, ticket: Ticket) -> Option<Outcome> {
        self.outcomes.remove(&ticket)
    }

    fn request(&mut self, method: &str, params: Value, pending: Pending) {
        self.next_id += 1;
        self.pending.insert(self.next_id, pending);
        self.transmit.push_back(Message::request(method, &params, self.next_id));
    }

    fn take_pending(&mut self, id: &Value) -> Option<Pending> {
        self.pending.remove(&id.as_u64()?)
    }

    fn ask_for_schema(&mut self) {
        self.state = State::Schema;
        self.request("get_schema", json!([self.database]), Pending::Schema);
    }

    fn ask_for_rows(&mut self, method: Method) {
        let Some(schema) = &self.schema else { return };
        let mut requests = Map::new();
        for (table, table_schema) in schema.tables_with_idx() {
            if let Some(columns) = self.selection.columns(schema, table) {
                requests.insert(table_schema.name.clone(), json!([{"columns": columns}]));
            }
        }
        let mut params = json!([self.database, MONITOR, requests]);
        if method == Method::CondSince {
            params.as_array_mut().expect("it was just made").push(json!(self.last_transaction.to_string()));
        }
        self.state = State::Monitor(method);
        self.request(method.name(), params, Pending::Monitor(method));
    }

    fn notification(&mut self, method: &str, params: &RawValue) -> Result<(), Error> {
        match method {
            "update" | "update2" | "update3" if self.state == State::Synced => {
                self.apply_notification(method, params)?;
            }
            // The schema changed, or the database is gone.
            "monitor_canceled" if parse(params)?.get(0).and_then(Value::as_str) == Some(MONITOR) => {
                self.ask_for_schema();
            }
            "locked" | "stolen" => {
                let params = parse(params)?;
                if let Some(lock) = &mut self.lock
                    && params.get(0).and_then(Value::as_str) == Some(&lock.name)
                {
                    lock.is_held = method == "locked";
                    lock.is_contended = !lock.is_held;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn reply(&mut self, pending: Pending, result: &RawValue) -> Result<(), Error> {
        match pending {
            Pending::Ignored => {}
            Pending::Schema => self.take_schema(parse(result)?)?,
            Pending::Monitor(method) => self.take_rows(method, result)?,
            Pending::Lock => {
                let locked = parse(result)?.get("locked").and_then(Value::as_bool).unwrap_or(false);
                if let Some(lock) = &mut self.lock {
                    lock.is_held = locked;
                    lock.is_contended = !locked;
                }
            }
            Pending::Transaction(in_flight) => {
                let ticket = in_flight.ticket;
                let outcome = in_flight.outcome(&parse(result)?);
                self.outcomes.insert(ticket, outcome);
            }
        }
        Ok(())
    }

    fn error(&mut self, pending: Pending, error: &RawValue) -> Result<(), Error> {
        match pending {
            // Old servers do not know what is merely a wish.
            Pending::Ignored => Ok(()),
            Pending::Monitor(method) => match method.older() {
                Some(older) if error.get().contains("unknown method") => {
                    self.ask_for_rows(older);
                    Ok(())
                }
                _ => Err(Error::Refused(format!("{}: {}", method.name(), error.get()))),
            },
            Pending::Schema => Err(Error::Refused(format!("schema of {}: {}", self.database, error.get()))),
            Pending::Lock => Err(Error::Refused(format!("lock: {}", error.get()))),
            Pending::Transaction(in_flight) => {
                // Transactions are "canceled" when the schema is converted under them.
                let canceled =
                    error.get() == "\"canceled\"" || error.get().contains("\"error\":\"canceled\"");
                let outcome =
                    if canceled { Outcome::TryAgain } else { Outcome::Error(parse(error)?.to_string()) };
                self.outcomes.insert(in_flight.ticket, outcome);
                Ok(())
            }
        }
    }

    fn take_schema(&mut self, json: Value) -> Result<(), Error> {
        if self.schema_json.as_ref() != Some(&json) {
            let schema = Schema::from_json(&json).map_err(|e| Error::Protocol(e.to_string()))?;
            self.tables = vec![RowMap::default(); schema.tables().len()];
            self.before.clear();
            self.last_transaction = Uuid::ZERO;
            self.schema = Some(Arc::new(schema));
            self.schema_json = Some(json);
            self.generation += 1;
        }
        self.ask_for_rows(Method::CondSince);
        Ok(())
    }
}

fn parse(json: &RawValue) -> Result<Value, Error> {
    serde_json::from_str(json.get()).map_err(|e| Error::Protocol(e.to_string()))
}

#[cfg(test)]
mod tests;

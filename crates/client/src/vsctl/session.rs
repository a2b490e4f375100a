//! One invocation: connect, copy rows, run the commands, commit, print, wait for the switch.
//!
//! ```text
//! copy -> run -> commit -> print -> wait until cur_cfg >= next_cfg
//!   ^      |       |
//!   +------+-------+   where it waits for a condition, or what it relied on had changed
//! ```
//!
//! Output that cannot be written is remembered until the end: the change is made, and its effect is awaited.
//! A lost connection ends the call, unless it is already waiting for the switch or `--retry` is given.

use std::ops::ControlFlow;
use std::time::Duration;

use super::commands::{self, Command, Output, Ran, Settings, Stop};
use crate::ctl::table::Printer;
use host::database_file::ids;
use host::program;
use ovsdb::jsonrpc::Message;
use ovsdb::replica::{Committed, Outcome, Replica, Selection, Ticket};
use ovsdb::{Uuid, UuidGenerator};

use super::options::{End, Global, say};
use crate::database;
use transport::jsonrpc::Connection;
use transport::reconnect::{Action, Options, Reconnect, SILENT};
use transport::{Keep, clock, keep_connected};

/// Between attempts to connect.
const BACKOFF: Duration = Duration::from_secs(1);

pub(super) struct Session<'a> {
    global: Global,
    commands: &'a [Command],
    comment: String,
    replica: Replica,
    uuids: UuidGenerator,
    state: State,
    /// Whether missing tables and columns were reported.
    said_missing: bool,
    reconnect: Reconnect,
    /// Why the output could not be written.
    unwritten: Option<std::io::Error>,
    /// Why there is no connection, and it is not to be made again.
    failure: Option<String>,
}

enum State {
    /// Run the commands once there are rows that they have not seen.
    Rows { seen: u64 },
    /// The server has the transaction.
    Committing { ticket: Ticket, ran: Box<Ran>, seen: u64 },
    /// Wait until the switch has reached this configuration.
    Waiting { next_cfg: i64, new_interfaces: Vec<Uuid> },
}

impl Keep for Session<'_> {
    type Link = Connection;
    type Done = Result<(), End>;

    fn name(&self) -> String {
        self.global.db.clone()
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Reconnect) -> T) -> Option<T> {
        self.failure.is_none().then(|| f(&mut self.reconnect))
    }

    async fn connect(&mut self) -> Result<Connection, String> {
        tracing::debug!(target: "reconnect", "{}: entering CONNECTING", self.global.db);
        let connected = database::connect(&self.global.db, self.global.tls.as_ref()).await;
        connected.inspect_err(|error| self.lost(error))
    }

    async fn converse(&mut self, connection: Connection) -> ControlFlow<Self::Done, Option<String>> {
        tracing::debug!(target: "reconnect", "{}: entering ACTIVE", self.global.db);
        match self.follow(connection).await {
            Ok(None) => ControlFlow::Break(Ok(())),
            Ok(Some(error)) => {
                self.lost(&error);
                ControlFlow::Continue(Some(error))
            }
            Err(end) => ControlFlow::Break(Err(end)),
        }
    }

    fn tell_end(&mut self, why: Option<&str>) {
        transport::tell_end(&self.global.db, why, self.reconnect.options().probe_interval);
    }

    fn failed(&mut self, why: &str) {
        self.reconnect.failed(clock::now(), why);
        tracing::info!(target: "reconnect", "{}: connection attempt failed ({why})", self.global.db);
        tracing::debug!(target: "reconnect", "{}: entering BACKOFF", self.global.db);
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(
        global: Global,
        commands: &'a [Command],
        selection: Selection,
        comment: String,
    ) -> Self {
        let mut times = Options { backoff_min: BACKOFF, backoff_max: BACKOFF, ..Options::default() };
        // On this machine, a server that has gone is known to have gone.
        if global.db.split(',').all(|method| ["unix:", "punix:"].iter().any(|kind| method.starts_with(kind)))
        {
            times.probe_interval = None;
        }
        let mut reconnect = Reconnect::new(times, clock::now());
        reconnect.enable(clock::now());
        Session {
            global,
            commands,
            comment,
            replica: Replica::new("Open_vSwitch", selection),
            uuids: ids(),
            state: State::Rows { seen: 0 },
            said_missing: false,
            reconnect,
            unwritten: None,
            failure: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), End> {
        tracing::debug!(target: "reconnect", "{}: entering BACKOFF", self.global.db);
        match keep_connected(&mut self).await {
            Some(result) => match self.unwritten {
                Some(error) => host::output::unwritten(&error),
                None => result,
            },
            None => Err(End::Fatal(format!(
                "{}: database connection failed ({})",
                self.global.db,
                self.failure.unwrap_or_default()
            ))),
        }
    }

    /// There is no connection.
    fn lost(&mut self, why: &str) {
        self.replica.disconnected();
        if let State::Committing { seen, .. } = self.state {
            // It is unknown whether it was committed; it is retried only if that was requested.
            self.state = State::Rows { seen };
        }
        if !self.global.retries && !matches!(self.state, State::Waiting { .. }) {
            // Of silence, the log says all.
            self.failure = Some(if why == SILENT { "" } else { why }.to_owned());
        }
    }

    /// Until the end (`None`), or until the connection is lost.
    async fn follow(&mut self, mut connection: Connection) -> Result<Option<String>, End> {
        self.replica.connected();
        loop {
            if self.step()? {
                return Ok(None);
            }
            while let Some(message) = self.replica.poll_transmit() {
                connection.queue(&message);
            }
            if self.has_outcome_at_once() {
                continue;
            }
            let message = match self.hear(&mut connection).await {
                Ok(message) => message,
                Err(error) => return Ok(Some(error)),
            };
            if let Err(error) = self.replica.handle(message) {
                return Ok(Some(error.to_string()));
            }
        }
    }

    /// The next message. A server that is silent for too long is probed, and then given up.
    async fn hear(&mut self, connection: &mut Connection) -> Result<Message, String> {
        let mut heard = connection.heard();
        loop {
            let silent = clock::sleep_until(self.reconnect.deadline());
            let message = tokio::select! {
                message = connection.receive() => Some(message),
                () = silent => None,
            };
            if connection.heard() > heard {
                heard = connection.heard();
                self.reconnect.heard(heard);
            }
            if let Some(message) = message {
                return message;
            }
            match self.reconnect.run(clock::now()) {
                Some(Action::Disconnect) => return Err(SILENT.into()),
                Some(Action::Probe) => connection.queue(&Message::request("echo", &[(); 0], "echo")),
                _ => {}
            }
        }
    }

    /// Nothing to change needs no answer from the server.
    fn has_outcome_at_once(&self) -> bool {
        matches!(&self.state, State::Committing { ran, .. } if ran.transaction.is_unchanged())
    }

    /// Takes the next step. Returns whether all is done.
    fn step(&mut self) -> Result<bool, End> {
        match &mut self.state {
            State::Rows { seen } => {
                if self.replica.is_synced() && self.replica.changes_seen() != *seen {
                    self.say_missing();
                    return self.run_commands();
                }
            }
            State::Committing { ticket, .. } => {
                if let Some(outcome) = self.replica.take_outcome(*ticket) {
                    return self.committed(outcome);
                }
            }
            State::Waiting { next_cfg, new_interfaces } => {
                if let Some(current) = current_cfg(&self.replica)
                    && current >= *next_cfg
                {
                    report_errors(&self.replica, new_interfaces);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn say_missing(&mut self) {
        if std::mem::replace(&mut self.said_missing, true) {
            return;
        }
        let database = self.replica.database();
        for (table, column) in self.replica.missing() {
            match column {
                None => tracing::warn!(target: "ovsdb_idl",
                    "{database} database lacks {table} table (database needs upgrade?)"),
                Some(column) => tracing::warn!(target: "ovsdb_idl",
                    "{table} table in {database} database lacks {column} column (database needs upgrade?)"),
            }
        }
    }

    fn run_commands(&mut self) -> Result<bool, End> {
        let seen = self.replica.changes_seen();
        let settings = Settings {
            comment: self.comment.clone(),
            is_dry_run: self.global.is_dry_run,
            counts: self.global.waits,
        };
        let mut warnings = Vec::new();
        let ran = commands::run(self.commands, &self.replica, &settings, &mut self.uuids, &mut warnings);
        say(&mut warnings);
        match ran {
            Ok(ran) => {
                let ticket = self.replica.commit(&ran.transaction);
                self.state = State::Committing { ticket, ran: Box::new(ran), seen };
                // There may be an outcome already.
                self.step()
            }
            Err(Stop::TryAgain) => {
                self.state = State::Rows { seen };
                Ok(false)
            }
            Err(Stop::Exit(code)) => Err(End::Exit(code)),
            Err(Stop::Fatal(text)) => Err(End::Fatal(text)),
        }
    }

    fn committed(&mut self, outcome: Outcome) -> Result<bool, End> {
        let State::Committing { ran, seen, .. } = std::mem::replace(&mut self.state, State::Rows { seen: 0 })
        else {
            return Ok(false);
        };
        let committed = match outcome {
            Outcome::Unchanged => None,
            Outcome::Success(committed) => Some(committed),
            Outcome::TryAgain => {
                self.state = State::Rows { seen };
                return self.step();
            }
            Outcome::NotLocked => return Err(End::Fatal("database not locked".into())),
            Outcome::Error(error) => {
                tracing::warn!(target: "ovsdb_idl", "transaction error: {error}");
                return Err(End::Fatal(format!("transaction error: {error}")));
            }
        };
        let new_interfaces: Vec<Uuid> =
            ran.new_interfaces.iter().filter_map(|uuid| committed.as_ref()?.uuid_of(*uuid)).collect();
        self.print(*ran, committed.as_ref());
        match committed.and_then(|committed| committed.incremented) {
            Some(next_cfg) if self.global.waits && !self.global.is_dry_run => {
                self.state = State::Waiting { next_cfg, new_interfaces };
                self.step()
            }
            _ => Ok(true),
        }
    }

    fn print(&mut self, ran: Ran, committed: Option<&Committed>) {
        let mut printer = Printer::new();
        let mut text = String::new();
        for output in commands::outputs(ran, committed) {
            match output {
                Output::Table(table) => text.push_str(&printer.print(&table, &self.global.style)),
                Output::Text(output) if self.global.oneline => {
                    let line = output.strip_suffix('\n').unwrap_or(&output);
                    text.push_str(&line.replace('\\', "\\\\").replace('\n', "\\n"));
                    text.push('\n');
                }
                Output::Text(output) => text.push_str(&output),
            }
        }
        self.unwritten = host::output::try_out(&text).err();
    }
}

fn current_cfg(replica: &Replica) -> Option<i64> {
    let schema = replica.schema()?;
    let table = schema.find("Open_vSwitch")?;
    let column = schema.table(table).find("cur_cfg")?;
    replica.is_synced().then(|| replica.table(table).iter().next()?.get(column).as_integer()).flatten()
}

/// Prints the switch's errors about new interfaces.
fn report_errors(replica: &Replica, new_interfaces: &[Uuid]) {
    let Some(schema) = replica.schema() else { return };
    let Some(table) = schema.find("Interface") else { return };
    let column = |name: &str| schema.table(table).find(name);
    let (Some(name), Some(ofport), Some(error)) = (column("name"), column("ofport"), column("error")) else {
        return;
    };
    let mut is_any = false;
    for uuid in new_interfaces {
        let Some(row) = replica.row(table, *uuid) else { continue };
        let port = row.get(ofport).as_integer();
        if port.is_some_and(|port| port != -1) {
            continue;
        }
        is_any = true;
        let name = row.get(name).as_str().unwrap_or_default();
        let program = program::name();
        match row.get(error).as_str() {
            Some(error) => eprintln!(
                "{program}: Error detected while setting up '{name}': {error}.  See ovs-vswitchd log for details."
            ),
            None => eprintln!(
                "{program}: Error detected while setting up '{name}'.  See ovs-vswitchd log for details."
            ),
        }
    }
    if is_any {
        eprintln!(
            "{}: The default log directory is \"{}\".",
            program::name(),
            program::log_directory().display()
        );
    }
}

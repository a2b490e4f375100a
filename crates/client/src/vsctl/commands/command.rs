//! Commands: their command-line syntax, and the context in which they run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model::Model;
use super::names::{self, RecordName};
use crate::ctl::table::Table;
use host::usage::unknown_command;
use ovsdb::replica::{Selection, Transaction};
use ovsdb::text::Reader;
use ovsdb::{
    Atom, AtomType, BaseType, ColumnIdx, ColumnSchema, ColumnType, Datum, RefKind, Schema, TableIdx, Uuid,
    UuidGenerator,
};

/// A known command.
pub struct Spec {
    /// Its name.
    pub name: &'static str,
    /// Fewest arguments.
    pub min: usize,
    /// Most arguments; `usize::MAX` is without limit.
    pub max: usize,
    /// Its arguments, as `--commands` describes them.
    pub args: &'static str,
    /// Its options, separated by commas; those with an argument end in `=`.
    pub options: &'static str,
    /// Whether it may change the database.
    pub writes: bool,
    /// Names the tables and columns that it needs, and refuses what can be refused without a database.
    pub prepare: fn(&mut Prepare<'_>) -> Result<(), String>,
    /// Does it.
    pub run: fn(&mut Context<'_>) -> Result<(), Stop>,
}

/// A command that was given.
#[derive(Clone)]
pub struct Command {
    /// Which.
    pub spec: &'static Spec,
    /// With their dashes, and their arguments.
    pub options: BTreeMap<String, Option<String>>,
    /// The arguments after its name.
    pub args: Vec<String>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", self.spec.name, self.options, self.args)
    }
}

/// Splits what follows the program's options at each `--`. `options` are those of the first command that were
/// among the program's.
pub fn parse_chain(
    args: &[String],
    mut options: BTreeMap<String, Option<String>>,
    specs: &'static [Spec],
) -> Result<Vec<Command>, String> {
    let mut commands = Vec::new();
    for words in args.split(|arg| arg == "--") {
        if !words.is_empty() {
            commands.push(parse_command(words, std::mem::take(&mut options), specs)?);
        } else if !options.is_empty() {
            return Err("missing command name (use --help for help)".into());
        }
    }
    if commands.is_empty() {
        return Err("missing command name (use --help for help)".into());
    }
    Ok(commands)
}

fn parse_command(
    words: &[String],
    mut options: BTreeMap<String, Option<String>>,
    specs: &'static [Spec],
) -> Result<Command, String> {
    let name_at = words.iter().position(|word| !word.starts_with('-')).unwrap_or(words.len());
    for option in &words[..name_at] {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (option.as_str(), None),
        };
        if options.insert(key.to_owned(), value).is_some() {
            return Err(format!("'{option}' option specified multiple times"));
        }
    }
    let Some(name) = words.get(name_at) else {
        return Err("missing command name (use --help for help)".into());
    };
    let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
        return Err(unknown_command(name, specs.iter().map(|spec| spec.name)));
    };
    for (option, value) in &options {
        let known = spec.options.split(',').find(|known| known.trim_end_matches('=') == option);
        match (known.map(|known| known.ends_with('=')), value) {
            (None, _) => return Err(format!("'{name}' command has no '{option}' option")),
            (Some(true), None) => {
                return Err(format!("missing argument to '{option}' option on '{name}' command"));
            }
            (Some(false), Some(_)) => {
                return Err(format!("'{option}' option on '{name}' does not accept an argument"));
            }
            _ => {}
        }
    }
    let args = &words[name_at + 1..];
    if args.len() < spec.min {
        return Err(format!("'{name}' command requires at least {} arguments", spec.min));
    }
    if args.len() > spec.max {
        let hint = match args.iter().any(|arg| arg.starts_with('-')) {
            true => " (note that options must precede command names and follow a \"--\" argument)",
            false => "",
        };
        return Err(format!("'{name}' command takes at most {} arguments{hint}", spec.max));
    }
    Ok(Command { spec, options, args: args.to_vec() })
}

/// The input of a command's check before there is a connection.
pub struct Prepare<'a> {
    /// The schema that this program knows.
    pub schema: &'a Schema,
    /// The tables and columns that it needs.
    pub selection: &'a mut Selection,
    /// The command.
    pub command: &'a Command,
    /// What to warn of.
    pub warnings: &'a mut Vec<Warning>,
}

impl Prepare<'_> {
    /// An argument, counted from 0 after the command's name.
    pub fn arg(&self, index: usize) -> &str {
        &self.command.args[index]
    }

    /// Needs columns of a table.
    pub fn need(&mut self, table: &str, columns: &[&str]) {
        self.selection.add_table(table);
        for column in columns {
            self.selection.add_column(table, column);
        }
    }

    /// The table that `name` means; needs what its records are named by.
    pub fn table(&mut self, name: &str) -> Result<TableIdx, String> {
        let table = names::table(self.schema, name)?;
        let table_name = self.schema.table(table).name.clone();
        self.selection.add_table(&table_name);
        for record in names::record_names(&table_name) {
            match record {
                RecordName::Only => {}
                RecordName::By(column) => self.need(&table_name, &[column]),
                RecordName::Via { table, name, column } => self.need(table, &[name, column]),
            }
        }
        Ok(table)
    }

    /// The column of `table` that `name` means, which it then needs.
    pub fn column(&mut self, table: TableIdx, name: &str) -> Result<ColumnIdx, String> {
        let column = names::column(self.schema, table, name)?;
        let table = self.schema.table(table);
        self.selection.add_column(&table.name, &table.column(column).name);
        Ok(column)
    }

    /// Says something that is no error.
    pub fn warn(&mut self, module: &'static str, text: String) {
        self.warnings.push(Warning { module, text });
    }
}

/// A message besides the output, in the form of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Which part says it.
    pub module: &'static str,
    /// What.
    pub text: String,
}

/// Why a run ends before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An error: its text, without the program's name.
    Fatal(String),
    /// The answer is the exit code, at once and without output.
    Exit(u8),
    /// A condition that it waits for does not hold yet: run everything again when the rows change.
    TryAgain,
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Fatal(text)
    }
}

/// A name such as `@port` of this run.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// The UUID that it stands for.
    pub uuid: Uuid,
    /// `--id` defined it.
    pub is_created: bool,
    /// A column that keeps rows alive refers to it.
    pub has_strong: bool,
    /// A column that does not refers to it.
    pub has_weak: bool,
}

/// The state that the commands of a run share, and the running command.
pub struct Context<'a> {
    /// The changes of all commands.
    pub txn: Transaction,
    /// The one row of the table Open_vSwitch.
    pub root: Uuid,
    /// Names of new rows.
    pub symbols: BTreeMap<String, Symbol>,
    /// Makes UUIDs.
    pub uuids: &'a mut UuidGenerator,
    /// The command that runs.
    pub command: &'a Command,
    /// No other command follows: the server checks its result, as in Open vSwitch.
    pub is_last: bool,
    /// The output of the running command.
    pub output: String,
    /// Or the table that it prints.
    pub table: Option<Table>,
    /// The row that it created, whose UUID is printed once it is known.
    pub created: Option<Uuid>,
    /// What to warn of.
    pub warnings: Vec<Warning>,
    /// Bridges, ports and interfaces by name; `None` where rows changed since.
    pub model: Option<Model>,
    /// Interfaces that `add-br`, `add-port`, `add-bond` and `add-bond-iface` made.
    pub new_interfaces: Vec<Uuid>,
    /// The set of bridges and their ports are what the transaction relies on.
    pub ports_verified: bool,
}

impl Context<'_> {
    /// An argument, counted from 0 after the command's name.
    pub fn arg(&self, index: usize) -> &str {
        &self.command.args[index]
    }

    /// Whether an option such as `--may-exist` was given.
    pub fn has(&self, option: &str) -> bool {
        self.command.options.contains_key(option)
    }

    /// The argument of an option.
    pub fn option(&self, option: &str) -> Option<&str> {
        self.command.options.get(option)?.as_deref()
    }

    /// Appends a line to the output.
    pub fn line(&mut self, text: impl std::fmt::Display) {
        use std::fmt::Write;
        let _ = writeln!(self.output, "{text}");
    }

    /// Says something that is no error.
    pub fn warn(&mut self, module: &'static str, text: String) {
        self.warnings.push(Warning { module, text });
    }

    /// The database's schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.txn.schema().clone()
    }

    /// The table called exactly `name`.
    pub fn table_idx(&self, name: &str) -> Result<TableIdx, Stop> {
        let schema = self.txn.schema();
        schema.find(name).ok_or_else(|| {
            Stop::Fatal(format!("{} database lacks {name} table (database needs upgrade?)", schema.name))
        })
    }

    /// The column called exactly `name`, of the table called exactly `table`.
    pub fn column_idx(&self, table: &str, name: &str) -> Result<(TableIdx, ColumnIdx), Stop> {
        let schema = self.txn.schema();
        let idx = self.table_idx(table)?;
        let column = schema.table(idx).find(name).ok_or_else(|| {
            Stop::Fatal(format!(
                "{table} table in {} database lacks {name} column (database needs upgrade?)",
                schema.name
            ))
        })?;
        Ok((idx, column))
    }

    /// The value of a column of a row.
    pub fn get(&self, table: &str, uuid: Uuid, column: &str) -> Result<&Datum, Stop> {
        let (table, column) = self.column_idx(table, column)?;
        Ok(self.txn.get(table, uuid, column))
    }

    /// The string in a column of a row; empty if there is none.
    pub fn string(&self, table: &str, uuid: Uuid, column: &str) -> Result<String, Stop> {
        Ok(self.get(table, uuid, column)?.as_str().unwrap_or_default().to_owned())
    }

    /// The rows that a column of a row refers to.
    pub fn references(&self, table: &str, uuid: Uuid, column: &str) -> Result<Vec<Uuid>, Stop> {
        Ok(self.get(table, uuid, column)?.keys().filter_map(Atom::as_uuid).collect())
    }

    /// Sets a column of a row.
    pub fn set(&mut self, table: &str, uuid: Uuid, column: &str, datum: Datum) -> Result<(), Stop> {
        let (table, column) = self.column_idx(table, column)?;
        if self.txn.row(table, uuid).is_some() {
            self.txn.write(table, uuid, column, datum);
        }
        Ok(())
    }

    /// Adds to a column of a row.
    pub fn add(&mut self, table: &str, uuid: Uuid, column: &str, datum: Datum) -> Result<(), Stop> {
        let (table, column) = self.column_idx(table, column)?;
        if self.txn.row(table, uuid).is_some() {
            self.txn.add(table, uuid, column, datum);
        }
        Ok(())
    }

    /// Removes from a column of a row.
    pub fn remove(&mut self, table: &str, uuid: Uuid, column: &str, datum: Datum) -> Result<(), Stop> {
        let (table, column) = self.column_idx(table, column)?;
        if self.txn.row(table, uuid).is_some() {
            self.txn.remove(table, uuid, column, datum);
        }
        Ok(())
    }

    /// Inserts a row.
    pub fn insert(&mut self, table: &str) -> Result<Uuid, Stop> {
        let table = self.table_idx(table)?;
        let uuid = self.uuids.next_uuid();
        self.txn.insert(table, uuid);
        Ok(uuid)
    }

    /// Deletes a row.
    pub fn delete(&mut self, table: &str, uuid: Uuid) -> Result<(), Stop> {
        let table = self.table_idx(table)?;
        self.txn.delete(table, uuid);
        Ok(())
    }

    /// Makes the transaction rely on the value of a column of a row.
    pub fn verify(&mut self, table: &str, uuid: Uuid, column: &str) -> Result<(), Stop> {
        let (table, column) = self.column_idx(table, column)?;
        self.txn.verify(table, uuid, column);
        Ok(())
    }

    /// The UUID of a name such as `@port`, which need not be defined yet.
    pub fn symbol(&mut self, name: &str) -> &mut Symbol {
        let uuids = &mut *self.uuids;
        self.symbols.entry(name.to_owned()).or_insert_with(|| Symbol {
            uuid: uuids.next_uuid(),
            is_created: false,
            has_strong: false,
            has_weak: false,
        })
    }

    /// Reads a value for a column.
    pub fn parse(&mut self, text: &str, of: &ColumnType) -> Result<Datum, Stop> {
        self.read(of, |reader| reader.datum(text, of))
    }

    /// Reads the value of a key of a map.
    pub fn parse_pair(&mut self, key: &str, value: &str, column: &ColumnSchema) -> Result<Datum, Stop> {
        let of = &column.kind;
        let value_of = of.value.as_ref().expect("the column is a map");
        self.read(of, |reader| {
            let key = reader.atom(key, &of.key)?;
            Ok(Datum::map([(key, reader.atom(value, value_of)?)]))
        })
    }

    /// Reads the key of a map.
    pub fn parse_key(&mut self, key: &str, of: &BaseType) -> Result<Atom, Stop> {
        let set = ColumnType { key: of.clone(), value: None, min: 1, max: 1 };
        let datum = self.read(&set, |reader| Ok(Datum::scalar(reader.atom(key, of)?)))?;
        Ok(datum.as_atom().cloned().unwrap_or_else(|| of.kind.default_atom()))
    }

    fn read(
        &mut self,
        of: &ColumnType,
        read: impl FnOnce(&mut Reader<'_>) -> Result<Datum, String>,
    ) -> Result<Datum, Stop> {
        let is_weak = of
            .bases()
            .filter(|base| base.kind == AtomType::Uuid)
            .all(|base| base.reference().is_some_and(|reference| reference.kind == RefKind::Weak));
        let mut used = Vec::new();
        let mut names = |name: &str| {
            let symbol = self.symbol(name);
            if is_weak {
                symbol.has_weak = true;
            } else {
                symbol.has_strong = true;
            }
            used.push(name.to_owned());
            symbol.uuid
        };
        Ok(read(&mut Reader::with_names(&mut names))?)
    }
}

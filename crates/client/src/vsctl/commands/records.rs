//! Records found by what a command line calls them.
//!
//! Source: ovs-vsctl(8), "Identifying Tables, Records, and Columns".

use super::command::{Context, Stop};
use super::names::{RecordName, record_names};
use ovsdb::{Atom, Row, TableIdx, UUID_LEN, Uuid};

impl Context<'_> {
    /// The row that `name` refers to. `Ok(None)`: there is none, which is an error only if it `must_exist`.
    pub fn record(&mut self, table: TableIdx, name: &str, must_exist: bool) -> Result<Option<Row>, Stop> {
        let row = record(self, table, name)?;
        if row.is_none() && must_exist {
            return Err(Stop::Fatal(format!(
                "no row \"{name}\" in table {}",
                self.txn.schema().table(table).name
            )));
        }
        Ok(row)
    }
}

/// The row that `text` names: a UUID, a name of this run, one of the table's [`record_names`], or the start
/// of a UUID.
fn record(ctx: &mut Context<'_>, table: TableIdx, text: &str) -> Result<Option<Row>, Stop> {
    if let Some(uuid) = Uuid::parse(text)
        && let Some(row) = ctx.txn.row(table, uuid)
    {
        return Ok(Some(row.clone()));
    }
    if text.starts_with('@')
        && let Some(symbol) = ctx.symbols.get(text).filter(|symbol| symbol.is_created)
    {
        return Ok(ctx.txn.row(table, symbol.uuid).cloned());
    }
    let table_name = ctx.txn.schema().table(table).name.clone();
    for name in record_names(&table_name) {
        if let Some(row) = record_by(ctx, table, *name, text)? {
            return Ok(Some(row));
        }
    }
    let digits = text.len();
    if !(4..UUID_LEN).contains(&digits) || !is_uuid_start(text) {
        return Ok(None);
    }
    let mut matches = ctx.txn.table(table).iter().filter(|row| row.uuid().to_string().starts_with(text));
    match (matches.next(), matches.next()) {
        (Some(one), Some(other)) => Err(Stop::Fatal(format!(
            "{table_name} contains 2 or more rows whose UUIDs begin with {text}: at least {} and {}",
            one.uuid(),
            other.uuid()
        ))),
        (found, _) => Ok(found.cloned()),
    }
}

fn is_uuid_start(text: &str) -> bool {
    text.bytes().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

fn record_by(
    ctx: &mut Context<'_>,
    table: TableIdx,
    name: RecordName,
    text: &str,
) -> Result<Option<Row>, Stop> {
    match name {
        RecordName::Only => {
            let mut rows = ctx.txn.table(table).iter();
            let only = rows.next().filter(|_| text == ".");
            Ok(only.filter(|_| rows.next().is_none()).cloned())
        }
        RecordName::By(column) => named_row(ctx, table, column, text),
        RecordName::Via { table: from, name, column } => {
            let (from, column) = ctx.column_idx(from, column)?;
            let Some(row) = named_row(ctx, from, name, text)? else { return Ok(None) };
            ctx.txn.verify(from, row.uuid(), column);
            let uuid = row.get(column).as_uuid();
            Ok(uuid.and_then(|uuid| ctx.txn.row(table, uuid)).cloned())
        }
    }
}

fn named_row(ctx: &mut Context<'_>, table: TableIdx, column: &str, text: &str) -> Result<Option<Row>, Stop> {
    let schema = ctx.schema();
    let table_schema = schema.table(table);
    let Some(column) = table_schema.find(column) else { return Ok(None) };
    let is_named = |row: &&Row| match row.get(column).as_atom() {
        Some(Atom::String(name)) => name == text,
        Some(Atom::Integer(id)) => text.parse() == Ok(*id),
        _ => false,
    };
    let mut rows = ctx.txn.table(table).iter().filter(is_named);
    let found = rows.next().cloned();
    if found.is_some() && rows.next().is_some() {
        return Err(Stop::Fatal(format!("multiple rows in {} match \"{text}\"", table_schema.name)));
    }
    drop(rows);
    if let Some(row) = &found {
        ctx.txn.verify(table, row.uuid(), column);
    }
    Ok(found)
}

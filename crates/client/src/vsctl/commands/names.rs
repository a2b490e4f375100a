//! What the words on a command line mean: tables, columns and records, in full or abbreviated.
//!
//! Source: ovs-vsctl(8), "Identifying Tables, Records, and Columns".

use super::command::{Context, Stop};
use ovsdb::{Atom, ColumnIdx, Row, Schema, TableIdx, UUID_LEN, Uuid};

/// A way to name records of a table beside their UUIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordName {
    /// `.`: the only one.
    Only,
    /// By the value of a column.
    By(&'static str),
    /// The record that `column` of a row of `table` refers to, whose column `name` has the value.
    Via {
        /// The table that refers.
        table: &'static str,
        /// Its column that is compared.
        name: &'static str,
        /// Its column that refers.
        column: &'static str,
    },
}

/// The ways to name records of `table`.
pub fn record_names(table: &str) -> &'static [RecordName] {
    macro_rules! via {
        ($table:literal, $column:literal) => {
            &[RecordName::Via { table: $table, name: "name", column: $column }]
        };
    }
    match table {
        "AutoAttach" => via!("Bridge", "auto_attach"),
        "Bridge" | "Flow_Table" | "Interface" | "Mirror" | "Port" => &[RecordName::By("name")],
        "Controller" => via!("Bridge", "controller"),
        "Flow_Sample_Collector_Set" => &[RecordName::By("id")],
        "IPFIX" => via!("Bridge", "ipfix"),
        "Manager" => &[RecordName::By("target")],
        "NetFlow" => via!("Bridge", "netflow"),
        "Open_vSwitch" | "SSL" => &[RecordName::Only],
        "QoS" => via!("Port", "qos"),
        "sFlow" => via!("Bridge", "sflow"),
        _ => &[],
    }
}

/// How well `text` names `name`: not at all, as the start of it, or in full. Case does not count, and `-` is
/// `_`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    No,
    Start,
    Full,
    Exact,
}

fn match_name(name: &str, text: &str) -> Match {
    let same = |(a, b): (u8, u8)| {
        let plain = |c: u8| if c == b'-' { b'_' } else { c.to_ascii_lowercase() };
        plain(a) == plain(b)
    };
    if name == text {
        Match::Exact
    } else if text.is_empty() || text.len() > name.len() || !name.bytes().zip(text.bytes()).all(same) {
        Match::No
    } else if text.len() == name.len() {
        Match::Full
    } else {
        Match::Start
    }
}

/// The places of the names that `text` matches best.
fn best<'a>(names: impl Iterator<Item = &'a str>, text: &str) -> Vec<(usize, &'a str)> {
    let mut best = Match::Start;
    let mut found = Vec::new();
    for (index, name) in names.enumerate() {
        let matched = match_name(name, text);
        if matched > best {
            best = matched;
            found.clear();
        }
        if matched == best {
            found.push((index, name));
        }
    }
    found
}

fn join(found: &[(usize, &str)]) -> String {
    found.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// The table that `text` means.
pub fn table(schema: &Schema, text: &str) -> Result<TableIdx, String> {
    let found = best(schema.tables().iter().map(|table| table.name.as_str()), text);
    match found[..] {
        [(index, _)] => Ok(TableIdx(index as u16)),
        [] => Err(format!("unknown table \"{text}\"")),
        _ => Err(format!("\"{text}\" matches multiple table names: {}", join(&found))),
    }
}

/// The column of `table` that `text` means.
pub fn column(schema: &Schema, table: TableIdx, text: &str) -> Result<ColumnIdx, String> {
    let table = schema.table(table);
    let found = best(table.named_columns().map(|(_, column)| column.name.as_str()), text);
    match found[..] {
        [(index, _)] => Ok(ColumnIdx(ColumnIdx::FIRST.0 + index as u16)),
        [] => Err(format!("{} does not contain a column whose name matches \"{text}\"", table.name)),
        _ => Err(format!(
            "{} contains more than one column whose name matches \"{text}\": {}",
            table.name,
            join(&found)
        )),
    }
}

/// The row that `text` names: a UUID, a name of this run, one of the table's [`record_names`], or the start
/// of a UUID.
pub fn record(ctx: &mut Context<'_>, table: TableIdx, text: &str) -> Result<Option<Row>, Stop> {
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

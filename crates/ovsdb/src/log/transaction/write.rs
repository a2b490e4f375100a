//! Writing records, straight into bytes.

use super::read::is_composite;
use crate::atom::Atom;
use crate::changes::{Changes, RowChange};
use crate::database::Snapshot;
use crate::datum::Datum;
use crate::log::frame::write_decimal;
use crate::row::Row;
use crate::schema::{Schema, TableSchema};
use crate::types::ColumnType;
use crate::uuid::Uuid;

/// The contents of a record besides its rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Note<'a> {
    /// When it was committed, in milliseconds since 1970.
    pub date_ms: u64,
    /// The texts of its `comment` operations, joined by newlines.
    pub comment: Option<&'a str>,
}

/// How the values of a row that was there before are written, in columns of sets and maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Values {
    /// As differences, where Open vSwitch 3.1 reads them.
    #[default]
    Differences,
    /// As they are now, for versions before 2.16.
    Whole,
}

/// Appends the record of a transaction: JSON with its newline. False, with nothing appended, if it changed
/// nothing that is stored in a file.
pub fn encode(out: &mut Vec<u8>, schema: &Schema, changes: &Changes, note: Note<'_>, values: Values) -> bool {
    let start = out.len();
    out.push(b'{');
    let is_diff = values == Values::Differences
        && !changes.iter().any(|change| is_too_long(schema.table(change.table), change));
    for (table_idx, rows) in changes.by_table() {
        let table = schema.table(table_idx);
        let mut is_open = false;
        for change in rows.iter().filter(|change| is_kept(table, change)) {
            if !is_open {
                key(out, &table.name);
                out.push(b'{');
                is_open = true;
            }
            uuid_key(out, change.uuid);
            match (&change.old, &change.new) {
                (_, None) => out.extend_from_slice(b"null"),
                (None, Some(new)) => write_row(out, table, new),
                (Some(old), Some(new)) => write_change(out, table, old, new, is_diff),
            }
        }
        if is_open {
            out.push(b'}');
        }
    }
    if out.len() == start + 1 {
        out.truncate(start);
        return false;
    }
    finish(out, note, is_diff);
    true
}

/// The record of everything that a database holds.
pub fn encode_snapshot(snapshot: &Snapshot, note: Note<'_>) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (table_idx, table) in snapshot.schema().tables_with_idx() {
        if snapshot.row_count(table_idx) == 0 {
            continue;
        }
        key(&mut out, &table.name);
        out.push(b'{');
        for row in snapshot.rows(table_idx) {
            uuid_key(&mut out, row.uuid());
            write_row(&mut out, table, row);
        }
        out.push(b'}');
    }
    finish(&mut out, note, false);
    out
}

/// The first record of a log.
pub fn encode_schema(schema: &Schema) -> Vec<u8> {
    format!("{}\n", schema.to_json()).into_bytes()
}

fn is_kept(table: &TableSchema, change: &RowChange) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.changed_columns(new).any(|column| !table.column(column).is_ephemeral),
        _ => true,
    }
}

/// Whether a difference may have more elements than its column: Open vSwitch 3.1 does not read that.
fn is_too_long(table: &TableSchema, change: &RowChange) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
    old.changed_columns(new).any(|idx| {
        let kind = &table.column(idx).kind;
        is_composite(kind) && old.get(idx).len() + new.get(idx).len() > kind.max as usize
    })
}

fn finish(out: &mut Vec<u8>, note: Note<'_>, is_diff: bool) {
    // Scripts cut it out together with the comma behind it.
    if is_diff {
        key(out, "_is_diff");
        out.extend_from_slice(b"true");
    }
    key(out, "_date");
    write_decimal(out, note.date_ms);
    if let Some(comment) = note.comment.filter(|text| !text.is_empty()) {
        key(out, "_comment");
        write_string(out, comment);
    }
    out.extend_from_slice(b"}\n");
}

/// The name of a member, with a comma before it unless it is the first.
fn key(out: &mut Vec<u8>, name: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    write_string(out, name);
    out.push(b':');
}

fn uuid_key(out: &mut Vec<u8>, uuid: Uuid) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(&uuid.text());
    out.extend_from_slice(b"\":");
}

fn write_row(out: &mut Vec<u8>, table: &TableSchema, row: &Row) {
    out.push(b'{');
    for (idx, column) in table.named_columns().filter(|(_, column)| !column.is_ephemeral) {
        let datum = row.get(idx);
        if *datum != column.default {
            key(out, &column.name);
            write_datum(out, &column.kind, datum);
        }
    }
    out.push(b'}');
}

fn write_change(out: &mut Vec<u8>, table: &TableSchema, old: &Row, new: &Row, is_diff: bool) {
    out.push(b'{');
    for idx in old.changed_columns(new) {
        let column = table.column(idx);
        if column.is_ephemeral {
            continue;
        }
        key(out, &column.name);
        if is_diff && is_composite(&column.kind) {
            write_datum(out, &column.kind, &old.get(idx).symmetric_difference(new.get(idx)));
        } else {
            write_datum(out, &column.kind, new.get(idx));
        }
    }
    out.push(b'}');
}

fn write_datum(out: &mut Vec<u8>, kind: &ColumnType, datum: &Datum) {
    if kind.is_map() {
        out.extend_from_slice(b"[\"map\",[");
        for (index, (k, v)) in datum.as_map().iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"[" } else { b",[" });
            write_atom(out, k);
            out.push(b',');
            write_atom(out, v);
            out.push(b']');
        }
        out.extend_from_slice(b"]]");
    } else if let Some(atom) = datum.as_atom() {
        write_atom(out, atom);
    } else {
        out.extend_from_slice(b"[\"set\",[");
        for (index, atom) in datum.as_set().iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_atom(out, atom);
        }
        out.extend_from_slice(b"]]");
    }
}

fn write_atom(out: &mut Vec<u8>, atom: &Atom) {
    match atom {
        Atom::String(text) => write_string(out, text),
        Atom::Uuid(uuid) => {
            out.extend_from_slice(b"[\"uuid\",\"");
            out.extend_from_slice(&uuid.text());
            out.extend_from_slice(b"\"]");
        }
        Atom::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Atom::Integer(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Atom::Real(_) => out.extend_from_slice(atom.to_json().to_string().as_bytes()),
    }
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string is written to memory");
}

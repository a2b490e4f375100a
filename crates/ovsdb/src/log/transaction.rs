//! Transactions as records of a log: what is written for one that was committed, and how it is done again.
//!
//! A record is `{TABLE: {UUID: ROW or null}, "_date": ms, "_comment": text, "_is_diff": true}`. A row that is
//! new has its columns except for those with their default; null deletes it; of a changed row the changed
//! columns are there, with `_is_diff` as differences (of columns that may hold more than one element, see
//! [`Datum::symmetric_difference`]), without it as they are now. Ephemeral columns are left out. We write
//! differences, as the stock server does since 2.16, and read both.
//!
//! Writing goes straight into bytes and reading straight into rows, without a tree of JSON between: a file of
//! 100,000 rows is one record of tens of megabytes.
//!
//! Source: ovsdb(5), "Standalone Format".

use crate::atom::{Atom, AtomType, Real};
use crate::changes::{Changes, RowChange};
use crate::database::{Database, Snapshot};
use crate::datum::{Datum, Duplicate};
use crate::error::Error;
use crate::log::frame::write_decimal;
use crate::row::Row;
use crate::schema::{ColumnIdx, ColumnSchema, Schema, TableIdx, TableSchema};
use crate::types::{BaseType, ColumnType};
use crate::uuid::{Uuid, UuidGenerator};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// What a record says besides its rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Note<'a> {
    /// When it was committed, in milliseconds since 1970.
    pub date_ms: u64,
    /// The texts of its `comment` operations, joined by newlines.
    pub comment: Option<&'a str>,
}

/// Appends the record of a transaction: JSON with its newline. False where it changed nothing that is kept in
/// a file, and nothing is appended.
pub fn encode(out: &mut Vec<u8>, schema: &Schema, changes: &Changes, note: Note<'_>) -> bool {
    let start = out.len();
    out.push(b'{');
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
                (Some(old), Some(new)) => write_difference(out, table, old, new),
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
    finish(out, note, true);
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

fn write_difference(out: &mut Vec<u8>, table: &TableSchema, old: &Row, new: &Row) {
    out.push(b'{');
    for idx in old.changed_columns(new) {
        let column = table.column(idx);
        if column.is_ephemeral {
            continue;
        }
        key(out, &column.name);
        if is_composite(&column.kind) {
            write_datum(out, &column.kind, &old.get(idx).symmetric_difference(new.get(idx)));
        } else {
            write_datum(out, &column.kind, new.get(idx));
        }
    }
    out.push(b'}');
}

/// Whether a column's changes are told as differences.
fn is_composite(kind: &ColumnType) -> bool {
    kind.max > 1
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

/// How records are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unknown {
    /// A table or column that the schema does not have is an error: the file is damaged, or not of this
    /// schema.
    #[default]
    Refused,
    /// What the schema does not have is left out: the file is being converted to another schema.
    LeftOut,
}

/// Does a recorded transaction again. Nothing is checked between rows: it was when it was committed.
///
/// # Errors
/// What is wrong with the record: JSON, a name, a value, a row that it deletes and that is not there. Part of
/// it may be in `database` then.
pub fn apply(
    database: &mut Database,
    body: &[u8],
    ids: &mut UuidGenerator,
    unknown: Unknown,
) -> Result<(), Error> {
    let members: Members<'_> = serde_json::from_slice(body).map_err(json_error)?;
    let is_diff = match members.meta("_is_diff") {
        None => false,
        Some(value) => serde_json::from_str(value.get()).map_err(json_error)?,
    };
    for (name, rows) in &members.0 {
        if name.starts_with('_') {
            continue; // What is not a table is for people, and later versions may add some.
        }
        let Some(table) = database.schema().find(name) else {
            match unknown {
                Unknown::Refused => {
                    return Err(Error::new("unknown table", format!("No table named {name}.")));
                }
                Unknown::LeftOut => continue,
            }
        };
        let schema = database.schema().clone();
        let mut seed = serde_json::Deserializer::from_str(rows.get());
        let table = Rows { table, schema: schema.table(table), database, ids, is_diff, unknown };
        table.deserialize(&mut seed).map_err(json_error)?;
    }
    Ok(())
}

/// What of a record is read without its rows, for `show-log` and the like.
#[derive(Debug, Default)]
pub struct Summary {
    /// `_date`, in milliseconds since 1970.
    pub date_ms: Option<u64>,
    /// `_comment`.
    pub comment: Option<String>,
    /// `_is_diff`.
    pub is_diff: bool,
}

/// Reads what a record says besides its rows. Members of another type than they should be count as absent.
pub fn summary(body: &[u8]) -> Result<Summary, Error> {
    let members: Members<'_> = serde_json::from_slice(body).map_err(json_error)?;
    let date = members.meta("_date").and_then(|value| serde_json::from_str::<u64>(value.get()).ok());
    Ok(Summary {
        // Before milliseconds there were seconds, which are smaller.
        date_ms: date.map(|date| if date < 1 << 32 { date * 1000 } else { date }),
        comment: members.meta("_comment").and_then(|value| serde_json::from_str(value.get()).ok()),
        is_diff: members.meta("_is_diff").is_some_and(|value| value.get() == "true"),
    })
}

fn json_error(error: serde_json::Error) -> Error {
    // Errors of ours come through serde as text; positions within a table's rows would mislead.
    Error::new("syntax error", error.to_string())
}

/// A record's members, unread.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn meta(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(member, _)| member == name).map(|(_, value)| *value)
    }
}

impl<'de: 'a, 'a> de::Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        struct AsMap;
        impl<'de> Visitor<'de> for AsMap {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(AsMap).map(Members)
    }
}

/// The rows of one table: `{UUID: ROW or null, …}`, put into the database one by one.
struct Rows<'a> {
    table: TableIdx,
    schema: &'a TableSchema,
    database: &'a mut Database,
    ids: &'a mut UuidGenerator,
    is_diff: bool,
    unknown: Unknown,
}

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of rows of table {}", self.schema.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(uuid) = map.next_key_seed(UuidText)? {
            let old = self.database.row(self.table, uuid);
            let (was_there, mut row) = match old {
                Some(row) => (true, row.clone()),
                None => (false, Row::new(self.schema, uuid)),
            };
            let columns = Columns {
                table: self.schema,
                row: &mut row,
                is_diff: self.is_diff && was_there,
                unknown: self.unknown,
            };
            if map.next_value_seed(OrNull(columns))?.is_some() {
                row.set(ColumnIdx::VERSION, Datum::scalar(self.ids.next_uuid()));
                self.database.load(self.table, uuid, Some(row));
            } else if was_there {
                self.database.load(self.table, uuid, None);
            } else {
                return Err(de::Error::custom(format_args!("row {uuid} is deleted and does not exist")));
            }
        }
        Ok(())
    }
}

/// `null`, or what the seed reads.
struct OrNull<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for OrNull<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for OrNull<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row or null")
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// A row: `{COLUMN: VALUE, …}`, set in a row that has defaults or its older values.
struct Columns<'a> {
    table: &'a TableSchema,
    row: &'a mut Row,
    is_diff: bool,
    unknown: Unknown,
}

impl<'de> DeserializeSeed<'de> for Columns<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Columns<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a row of table {}", self.table.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(found) = map.next_key_seed(ColumnName(self.table))? {
            let idx = match found {
                Ok(idx) => idx,
                Err(_) if self.unknown == Unknown::LeftOut => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Err(name) => {
                    let table = &self.table.name;
                    return Err(de::Error::custom(format_args!("No column \"{name}\" in table {table}.")));
                }
            };
            let column = self.table.column(idx);
            let is_diff = self.is_diff && is_composite(&column.kind);
            let datum = map.next_value_seed(Value { column, is_diff })?;
            let datum = if is_diff { self.row.get(idx).apply_difference(&datum) } else { datum };
            if is_diff && !has_allowed_size(&column.kind, datum.len()) {
                let name = &column.name;
                return Err(de::Error::custom(format_args!(
                    "column {name} does not take {} members",
                    datum.len()
                )));
            }
            self.row.set(idx, datum);
        }
        Ok(())
    }
}

fn has_allowed_size(kind: &ColumnType, size: usize) -> bool {
    (kind.min as usize..=kind.max as usize).contains(&size)
}

/// The name of a column that the schema has, or what else it says.
struct ColumnName<'a>(&'a TableSchema);

impl<'de> DeserializeSeed<'de> for ColumnName<'_> {
    type Value = Result<ColumnIdx, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for ColumnName<'_> {
    type Value = Result<ColumnIdx, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a column")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let found = self.0.find(name).filter(|idx| !idx.is_internal());
        Ok(found.ok_or_else(|| name.to_owned()))
    }
}

/// The text of a UUID.
struct UuidText;

impl<'de> DeserializeSeed<'de> for UuidText {
    type Value = Uuid;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Uuid, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for UuidText {
    type Value = Uuid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UUID")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Uuid, E> {
        Uuid::parse(text).ok_or_else(|| E::custom(format_args!("\"{text}\" is not a valid UUID")))
    }
}

/// The value of a column, or a difference of any size.
struct Value<'a> {
    column: &'a ColumnSchema,
    is_diff: bool,
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Datum;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Datum, D::Error> {
        let column = self.column;
        let kind = &column.kind;
        let datum = match deserializer.deserialize_any(ValueVisitor(kind))? {
            Read::Atom(atom) => Ok(Datum::scalar(atom)),
            Read::Set(atoms) => Datum::unique_set(atoms),
            Read::Map(pairs) => Datum::unique_map(pairs),
        };
        let name = &column.name;
        let datum = datum
            .map_err(|Duplicate| de::Error::custom(format_args!("column {name} holds something twice")))?;
        if !self.is_diff && !has_allowed_size(kind, datum.len()) {
            return Err(de::Error::custom(format_args!(
                "column {name} does not take {} members",
                datum.len()
            )));
        }
        Ok(datum)
    }
}

/// A value as it was read.
enum Read {
    Atom(Atom),
    Set(Vec<Atom>),
    Map(Vec<(Atom, Atom)>),
}

struct ValueVisitor<'a>(&'a ColumnType);

impl ValueVisitor<'_> {
    fn atom<E: de::Error>(self, read: impl FnOnce(AtomType) -> Option<Atom>) -> Result<Read, E> {
        if self.0.is_map() {
            return Err(E::custom("expected a map"));
        }
        atom(&self.0.key, read).map(Read::Atom)
    }
}

impl<'de> Visitor<'de> for ValueVisitor<'_> {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", if self.0.is_map() { "a map" } else { "an atom or a set" })
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Read, E> {
        self.atom(|kind| read_bool(kind, value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Read, E> {
        self.atom(|kind| read_integer(kind, value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Read, E> {
        self.atom(|kind| read_unsigned(kind, value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Read, E> {
        self.atom(|kind| read_float(kind, value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Read, E> {
        self.atom(|kind| read_string(kind, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Read, A::Error> {
        let kind = self.0;
        let wrong = || de::Error::custom("expected a set, a map or a UUID");
        let read = match seq.next_element_seed(Tag)?.ok_or_else(wrong)? {
            Tagged::Set if !kind.is_map() => {
                Read::Set(seq.next_element_seed(Elements(AtomSeed(&kind.key)))?.ok_or_else(wrong)?)
            }
            Tagged::Map => {
                let value = kind.value.as_ref().ok_or_else(wrong)?;
                Read::Map(seq.next_element_seed(Elements(PairSeed(&kind.key, value)))?.ok_or_else(wrong)?)
            }
            Tagged::Uuid if !kind.is_map() && kind.key.kind == AtomType::Uuid => {
                Read::Atom(Atom::Uuid(seq.next_element_seed(UuidText)?.ok_or_else(wrong)?))
            }
            Tagged::Set | Tagged::Uuid => return Err(wrong()),
        };
        if seq.next_element::<IgnoredAny>()?.is_some() {
            return Err(wrong());
        }
        Ok(read)
    }
}

/// What an array says that it is.
enum Tagged {
    Set,
    Map,
    Uuid,
}

struct Tag;

impl<'de> DeserializeSeed<'de> for Tag {
    type Value = Tagged;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tagged, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Tag {
    type Value = Tagged;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"set\", \"map\" or \"uuid\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Tagged, E> {
        match text {
            "set" => Ok(Tagged::Set),
            "map" => Ok(Tagged::Map),
            "uuid" => Ok(Tagged::Uuid),
            _ => Err(E::custom(format_args!("\"{text}\" is no kind of value"))),
        }
    }
}

/// An array of what the seed reads.
struct Elements<S>(S);

impl<'de, S: DeserializeSeed<'de> + Copy> DeserializeSeed<'de> for Elements<S> {
    type Value = Vec<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, S: DeserializeSeed<'de> + Copy> Visitor<'de> for Elements<S> {
    type Value = Vec<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element_seed(self.0)? {
            elements.push(element);
        }
        Ok(elements)
    }
}

/// A pair of a map: an array of two.
#[derive(Clone, Copy)]
struct PairSeed<'a>(&'a BaseType, &'a BaseType);

impl<'de> DeserializeSeed<'de> for PairSeed<'_> {
    type Value = (Atom, Atom);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for PairSeed<'_> {
    type Value = (Atom, Atom);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pair of key and value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let key = seq.next_element_seed(AtomSeed(self.0))?;
        let value = seq.next_element_seed(AtomSeed(self.1))?;
        let more = seq.next_element::<IgnoredAny>()?.is_some();
        match (key, value) {
            (Some(key), Some(value)) if !more => Ok((key, value)),
            _ => Err(de::Error::custom("expected a pair of key and value")),
        }
    }
}

/// A single atom of a type.
#[derive(Clone, Copy)]
struct AtomSeed<'a>(&'a BaseType);

impl<'de> DeserializeSeed<'de> for AtomSeed<'_> {
    type Value = Atom;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Atom, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AtomSeed<'_> {
    type Value = Atom;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.kind)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Atom, E> {
        atom(self.0, |kind| read_bool(kind, value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Atom, E> {
        atom(self.0, |kind| read_integer(kind, value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Atom, E> {
        atom(self.0, |kind| read_unsigned(kind, value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Atom, E> {
        atom(self.0, |kind| read_float(kind, value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Atom, E> {
        atom(self.0, |kind| read_string(kind, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Atom, A::Error> {
        let wrong = || de::Error::custom("expected an atom");
        let Some(Tagged::Uuid) = seq.next_element_seed(Tag)? else { return Err(wrong()) };
        let uuid = seq.next_element_seed(UuidText)?.ok_or_else(wrong)?;
        if seq.next_element::<IgnoredAny>()?.is_some() || self.0.kind != AtomType::Uuid {
            return Err(wrong());
        }
        Ok(Atom::Uuid(uuid))
    }
}

/// An atom within its constraints.
fn atom<E: de::Error>(base: &BaseType, read: impl FnOnce(AtomType) -> Option<Atom>) -> Result<Atom, E> {
    let atom = read(base.kind).ok_or_else(|| E::custom(format_args!("expected {}", base.kind)))?;
    if base.has_constraints() {
        base.check(&atom).map_err(E::custom)?;
    }
    Ok(atom)
}

fn read_bool(kind: AtomType, value: bool) -> Option<Atom> {
    (kind == AtomType::Boolean).then_some(Atom::Boolean(value))
}

fn read_integer(kind: AtomType, value: i64) -> Option<Atom> {
    match kind {
        AtomType::Integer => Some(Atom::Integer(value)),
        AtomType::Real => Real::new(value as f64).map(Atom::Real),
        _ => None,
    }
}

fn read_unsigned(kind: AtomType, value: u64) -> Option<Atom> {
    match i64::try_from(value) {
        Ok(value) => read_integer(kind, value),
        Err(_) if kind == AtomType::Real => Real::new(value as f64).map(Atom::Real),
        Err(_) => None,
    }
}

fn read_float(kind: AtomType, value: f64) -> Option<Atom> {
    match kind {
        AtomType::Real => Real::new(value).map(Atom::Real),
        AtomType::Integer => {
            let limit = 2f64.powi(63);
            let is_whole = value.fract() == 0.0 && (-limit..limit).contains(&value);
            is_whole.then_some(Atom::Integer(value as i64))
        }
        _ => None,
    }
}

fn read_string(kind: AtomType, value: &str) -> Option<Atom> {
    (kind == AtomType::String && !value.contains('\0')).then(|| Atom::string(value))
}

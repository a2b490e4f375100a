//! Reading records, straight into rows.

use crate::atom::{Atom, AtomType, Real};
use crate::database::Database;
use crate::datum::{Datum, Duplicate};
use crate::row::Row;
use crate::schema::{ColumnIdx, ColumnSchema, TableIdx, TableSchema};
use crate::types::{BaseType, ColumnType};
use crate::uuid::{Uuid, UuidGenerator};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// A record's members, unread.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    pub(super) fn meta(&self, name: &str) -> Option<&'a RawValue> {
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
pub(super) struct Rows<'a> {
    pub(super) table: TableIdx,
    pub(super) schema: &'a TableSchema,
    pub(super) database: &'a mut Database,
    pub(super) ids: &'a mut UuidGenerator,
    pub(super) is_diff: bool,
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
            let columns = Columns { table: self.schema, row: &mut row, is_diff: self.is_diff && was_there };
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

/// Whether a column's changes are recorded as differences.
pub(super) fn is_composite(kind: &ColumnType) -> bool {
    kind.max > 1
}

fn has_allowed_size(kind: &ColumnType, size: usize) -> bool {
    (kind.min as usize..=kind.max as usize).contains(&size)
}

/// The index of a column of the schema, or the name of anything else.
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
        let datum = match deserializer.deserialize_any(ValueVisitor { kind })? {
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

/// A value as it was parsed.
enum Read {
    Atom(Atom),
    Set(Vec<Atom>),
    Map(Vec<(Atom, Atom)>),
}

struct ValueVisitor<'a> {
    kind: &'a ColumnType,
}

impl<'a> ValueVisitor<'a> {
    fn seed(&self, base: &'a BaseType) -> AtomSeed<'a> {
        AtomSeed { base }
    }

    fn atom<E: de::Error>(self, read: impl FnOnce(AtomType) -> Option<Atom>) -> Result<Read, E> {
        if self.kind.is_map() {
            return Err(E::custom("expected a map"));
        }
        self.seed(&self.kind.key).atom(read).map(Read::Atom)
    }
}

impl<'de> Visitor<'de> for ValueVisitor<'_> {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", if self.kind.is_map() { "a map" } else { "an atom or a set" })
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
        let kind = self.kind;
        let wrong = || de::Error::custom("expected a set, a map or a UUID");
        let read = match seq.next_element_seed(Tag)?.ok_or_else(wrong)? {
            Tagged::Set if !kind.is_map() => {
                Read::Set(seq.next_element_seed(Elements(self.seed(&kind.key)))?.ok_or_else(wrong)?)
            }
            Tagged::Map => {
                let value = kind.value.as_ref().ok_or_else(wrong)?;
                let pair = PairSeed(self.seed(&kind.key), self.seed(value));
                Read::Map(seq.next_element_seed(Elements(pair))?.ok_or_else(wrong)?)
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

/// The type that an array is tagged with.
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
            _ => Err(E::custom(format_args!("\"{text}\" is not a kind of value"))),
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
struct PairSeed<'a>(AtomSeed<'a>, AtomSeed<'a>);

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
        let key = seq.next_element_seed(self.0)?;
        let value = seq.next_element_seed(self.1)?;
        let more = seq.next_element::<IgnoredAny>()?.is_some();
        match (key, value) {
            (Some(key), Some(value)) if !more => Ok((key, value)),
            _ => Err(de::Error::custom("expected a pair of key and value")),
        }
    }
}

/// A single atom of a type, within its constraints or its default: rows that were there when their column
/// came have that, and later records may show it.
#[derive(Clone, Copy)]
struct AtomSeed<'a> {
    base: &'a BaseType,
}

impl AtomSeed<'_> {
    fn atom<E: de::Error>(self, read: impl FnOnce(AtomType) -> Option<Atom>) -> Result<Atom, E> {
        let base = self.base;
        let atom = read(base.kind).ok_or_else(|| E::custom(format_args!("expected {}", base.kind)))?;
        if base.has_constraints() && atom != base.kind.default_atom() {
            base.check(&atom).map_err(E::custom)?;
        }
        Ok(atom)
    }
}

impl<'de> DeserializeSeed<'de> for AtomSeed<'_> {
    type Value = Atom;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Atom, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AtomSeed<'_> {
    type Value = Atom;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base.kind)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Atom, E> {
        self.atom(|kind| read_bool(kind, value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Atom, E> {
        self.atom(|kind| read_integer(kind, value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Atom, E> {
        self.atom(|kind| read_unsigned(kind, value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Atom, E> {
        self.atom(|kind| read_float(kind, value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Atom, E> {
        self.atom(|kind| read_string(kind, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Atom, A::Error> {
        let wrong = || de::Error::custom("expected an atom");
        let Some(Tagged::Uuid) = seq.next_element_seed(Tag)? else { return Err(wrong()) };
        let uuid = seq.next_element_seed(UuidText)?.ok_or_else(wrong)?;
        if seq.next_element::<IgnoredAny>()?.is_some() || self.base.kind != AtomType::Uuid {
            return Err(wrong());
        }
        Ok(Atom::Uuid(uuid))
    }
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

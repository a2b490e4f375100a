//! A short notation for schemas, one line for each type and the columns that have it.
//!
//! ```text
//! schema NAME VERSION "CKSUM"
//! table NAME [root] [rows<=N] [unique(COLUMN …)]…
//!   TYPE [fixed] [ephemeral]  COLUMN …
//! ```
//!
//! TYPE is KEY or KEY=VALUE, followed by the number of elements: nothing for exactly one, `?` for none or
//! one, `*` for any number, `*N` for up to N, `+` for at least one. KEY and VALUE are `integer`, `real`,
//! `boolean`, `string` or `uuid`; `integer(MIN..MAX)`, where either bound may be left out; `string{WORD …}`
//! for one of those words; `&TABLE` for a strong and `~TABLE` for a weak reference; `vlan` for
//! `integer(0..4095)`, `u32` for `integer(0..4294967295)`. `map` is `string=string*`, `counts` is
//! `string=integer*`. `fixed` columns are immutable once the row is inserted. Lines that begin with `#` are
//! comments.

use crate::atom::AtomType;
use crate::datum::Datum;
use crate::schema::{ColumnSchema, Schema, TableSchema};
use crate::types::{BaseType, ColumnType, Constraint, RefKind, Reference, UNLIMITED};

/// Reads a schema in this notation; `Err` with the line that is wrong.
pub fn schema(text: &str) -> Result<Schema, String> {
    let mut header = None;
    let mut tables: Vec<TableText> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let bad = || format!("cannot read: {line}");
        if let Some(rest) = line.strip_prefix("schema ") {
            let (names, cksum) = rest.split_once(" \"").ok_or_else(bad)?;
            let (name, version) = names.split_once(' ').ok_or_else(bad)?;
            header = Some((name, version, cksum.trim_end_matches('"').to_owned()));
        } else if let Some(rest) = line.strip_prefix("table ") {
            tables.push(TableText::parse(rest).ok_or_else(bad)?);
        } else {
            let columns = columns(line).ok_or_else(bad)?;
            tables.last_mut().ok_or_else(bad)?.columns.extend(columns);
        }
    }
    let (name, version, cksum) = header.ok_or("there is no line \"schema\"")?;
    let tables: Result<Vec<TableSchema>, _> = tables.into_iter().map(TableText::build).collect();
    let tables = tables.map_err(|error| error.to_string())?;
    Schema::new(name, version, Some(cksum), tables).map_err(|error| error.to_string())
}

struct TableText<'a> {
    name: &'a str,
    is_root: bool,
    max_rows: u32,
    indexes: Vec<Vec<String>>,
    columns: Vec<ColumnSchema>,
}

impl<'a> TableText<'a> {
    fn parse(line: &'a str) -> Option<TableText<'a>> {
        let (name, mut rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut table =
            TableText { name, is_root: false, max_rows: u32::MAX, indexes: Vec::new(), columns: Vec::new() };
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("root") {
                table.is_root = true;
                rest = after;
            } else if let Some(after) = rest.strip_prefix("unique(") {
                let (names, after) = after.split_once(')')?;
                table.indexes.push(names.split(' ').map(str::to_owned).collect());
                rest = after;
            } else {
                let after = rest.strip_prefix("rows<=")?;
                let (count, after) = after.split_once(' ').unwrap_or((after, ""));
                table.max_rows = count.parse().ok()?;
                rest = after;
            }
            rest = rest.trim_start();
        }
        Some(table)
    }

    fn build(self) -> Result<TableSchema, crate::Error> {
        let mut table = TableSchema::new(self.name, self.is_root, self.columns, &self.indexes)?;
        table.max_rows = self.max_rows;
        Ok(table)
    }
}

fn columns(line: &str) -> Option<Vec<ColumnSchema>> {
    let (kind, rest) = column_type(line)?;
    let (mut is_mutable, mut is_ephemeral) = (true, false);
    let mut columns = Vec::new();
    for word in rest.split_whitespace() {
        match word {
            "fixed" if columns.is_empty() => is_mutable = false,
            "ephemeral" if columns.is_empty() => is_ephemeral = true,
            name => {
                columns.push(ColumnSchema {
                    is_mutable,
                    is_ephemeral,
                    ..ColumnSchema::new(name, kind.clone())
                });
            }
        }
    }
    (!columns.is_empty()).then_some(columns)
}

fn column_type(text: &str) -> Option<(ColumnType, &str)> {
    let string = || BaseType::new(AtomType::String);
    if let Some(rest) = text.strip_prefix("map ") {
        return Some((ColumnType { key: string(), value: Some(string()), min: 0, max: UNLIMITED }, rest));
    }
    if let Some(rest) = text.strip_prefix("counts ") {
        let value = Some(BaseType::new(AtomType::Integer));
        return Some((ColumnType { key: string(), value, min: 0, max: UNLIMITED }, rest));
    }
    let (key, rest) = base_type(text)?;
    let (value, rest) = match rest.strip_prefix('=') {
        Some(rest) => base_type(rest).map(|(value, rest)| (Some(value), rest))?,
        None => (None, rest),
    };
    let (count, rest) = rest.split_once(' ')?;
    let (min, max) = match count {
        "" => (1, 1),
        "?" => (0, 1),
        "*" => (0, UNLIMITED),
        "+" => (1, UNLIMITED),
        _ => (0, count.strip_prefix('*')?.parse().ok()?),
    };
    Some((ColumnType { key, value, min, max }, rest))
}

fn base_type(text: &str) -> Option<(BaseType, &str)> {
    let word_end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '&' | '~'))
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(word_end);
    let refers = |table: &str, kind| Constraint::Reference(Reference { table: table.into(), kind });
    let of = |kind, constraint| Some((BaseType { constraint, ..BaseType::new(kind) }, rest));
    match word {
        "vlan" => of(AtomType::Integer, Constraint::Integer(0, 4095)),
        "u32" => of(AtomType::Integer, Constraint::Integer(0, u32::MAX.into())),
        _ if word.starts_with('&') => of(AtomType::Uuid, refers(&word[1..], RefKind::Strong)),
        _ if word.starts_with('~') => of(AtomType::Uuid, refers(&word[1..], RefKind::Weak)),
        _ => constrained(BaseType::new(AtomType::from_name(word)?), rest),
    }
}

fn constrained(base: BaseType, rest: &str) -> Option<(BaseType, &str)> {
    if let Some(inside) = rest.strip_prefix('(') {
        let (bounds, rest) = inside.split_once(')')?;
        let (min, max) = bounds.split_once("..")?;
        let bound = |text: &str, open: i64| if text.is_empty() { Some(open) } else { text.parse().ok() };
        let constraint = Constraint::Integer(bound(min, i64::MIN)?, bound(max, i64::MAX)?);
        return Some((BaseType { constraint, ..base }, rest));
    }
    if let Some(inside) = rest.strip_prefix('{') {
        let (words, rest) = inside.split_once('}')?;
        return Some((BaseType { allowed: Some(Datum::set(words.split(' '))), ..base }, rest));
    }
    Some((base, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_becomes_what_it_stands_for() {
        let text = "schema S 1.0.0 \"1 2\"\ntable T root rows<=5 unique(a) unique(b c)\n\
                    # a comment\n string fixed a\n integer(-1..)? b c\n ~T=string{x y}*7 ephemeral d\n";
        let expected = serde_json::json!({"name": "S", "version": "1.0.0", "cksum": "1 2", "tables": {"T": {
            "maxRows": 5, "indexes": [["a"], ["b", "c"]], "columns": {
                "a": {"type": "string", "mutable": false},
                "b": {"type": {"key": {"type": "integer", "minInteger": -1}, "min": 0}},
                "c": {"type": {"key": {"type": "integer", "minInteger": -1}, "min": 0}},
                "d": {"type": {"key": {"type": "uuid", "refTable": "T", "refType": "weak"},
                    "value": {"type": "string", "enum": ["set", ["x", "y"]]}, "min": 0, "max": 7}, "ephemeral": true}}}}});
        assert_eq!(schema(text).unwrap().to_json(), expected);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for bad in ["table T what", " strange a", " integer(5) a", " string", " string* "] {
            let text = format!("schema S 1.0.0 \"1 2\"\ntable U\n{bad}\n");
            assert_eq!(schema(&text).unwrap_err(), format!("cannot read: {}", bad.trim()));
        }
    }
}

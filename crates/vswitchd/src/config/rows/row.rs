//! Rows at one moment, a row with access to columns by name, and a row whose values are being checked.

use ovsdb::{Database, Datum, Row, RowMap, Schema, TableIdx, TableSchema, Uuid};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

/// A row whose columns are found by name.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    /// Its table.
    pub(super) schema: &'a TableSchema,
    /// The row.
    pub row: &'a Row,
}

impl<'a> RowRef<'a> {
    /// A column. `None` where the schema does not have it.
    pub fn get(&self, column: &str) -> Option<&'a Datum> {
        Some(self.row.get(self.schema.find(column)?))
    }

    /// A column's text; `None` if it is empty.
    pub fn text(&self, column: &str) -> Option<&'a str> {
        self.get(column)?.as_str()
    }

    /// A column's integer.
    pub fn integer(&self, column: &str) -> Option<i64> {
        self.get(column)?.as_integer()
    }

    /// A column's boolean; false if it is empty.
    pub fn flag(&self, column: &str) -> bool {
        self.get(column).and_then(Datum::as_bool).unwrap_or(false)
    }

    /// A column's integers.
    pub fn integers(&self, column: &str) -> impl Iterator<Item = i64> + use<'a> {
        self.get(column).into_iter().flat_map(|d| d.as_set()).filter_map(|a| a.as_integer())
    }

    /// The value of a key in a column of string pairs.
    pub fn value(&self, column: &str, key: &str) -> Option<&'a str> {
        self.get(column)?.get(key)
    }

    /// The pairs in a column of string pairs.
    pub fn pairs(&self, column: &str) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let pairs = self.get(column).into_iter().flat_map(|d| d.as_map());
        pairs.filter_map(|(k, v)| Some((k.as_str()?, v.as_str()?)))
    }
}

/// Rows at one moment. Copying a table's rows costs next to nothing.
pub struct Rows {
    /// The tables and columns.
    pub schema: Arc<Schema>,
    /// By [`TableIdx`].
    pub tables: Vec<RowMap>,
}

impl Rows {
    /// All rows of a database.
    pub fn of(database: &Database) -> Rows {
        let schema = database.schema().clone();
        let mut tables = vec![RowMap::default(); schema.tables().len()];
        for (idx, _) in schema.tables_with_idx() {
            for row in database.rows(idx) {
                tables[idx.index()].insert(row.clone());
            }
        }
        Rows { schema, tables }
    }

    fn table(&self, name: &str) -> Option<(TableIdx, &TableSchema)> {
        let idx = self.schema.find(name)?;
        Some((idx, self.schema.table(idx)))
    }

    /// All rows of a table.
    pub fn all<'a>(&'a self, table: &str) -> impl Iterator<Item = RowRef<'a>> {
        let found = self.table(table);
        found.into_iter().flat_map(move |(idx, schema)| {
            self.tables[idx.index()].iter().map(move |row| RowRef { schema, row })
        })
    }

    /// A row.
    pub fn get<'a>(&'a self, table: &str, uuid: Uuid) -> Option<RowRef<'a>> {
        let (idx, schema) = self.table(table)?;
        Some(RowRef { schema, row: self.tables[idx.index()].get(uuid)? })
    }

    /// The rows of `table` that a column of references names.
    pub fn referenced<'a>(
        &'a self,
        row: &RowRef<'_>,
        column: &str,
        table: &'a str,
    ) -> impl Iterator<Item = RowRef<'a>> + use<'a> {
        let uuids: Vec<Uuid> =
            row.get(column).into_iter().flat_map(|d| d.as_set()).filter_map(|a| a.as_uuid()).collect();
        uuids.into_iter().filter_map(move |uuid| self.get(table, uuid))
    }
}

/// Bytes of a wrong value that are logged: a client of the database may have written megabytes.
const VALUE_SHOWN_MAX: usize = 200;

/// A column of a row whose values are being checked. Problems go to `wrong`.
pub(super) struct Checked<'a> {
    pub row: RowRef<'a>,
    pub column: &'static str,
    pub wrong: Vec<String>,
}

impl<'a> Checked<'a> {
    pub fn of(row: &RowRef<'a>, column: &'static str) -> Checked<'a> {
        Checked { row: *row, column, wrong: Vec::new() }
    }

    /// The value of a key as parsed by `parse`: `before` if that fails, `None` if the key is missing.
    pub fn parsed<T>(
        &mut self,
        key: &str,
        expected: impl Display,
        before: Option<T>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.row.value(self.column, key)?;
        parse(value).or_else(|| {
            let shown = &value[..value.floor_char_boundary(VALUE_SHOWN_MAX)];
            let dots = if shown.len() < value.len() { "..." } else { "" };
            self.wrong.push(format!("{}:{key}={shown}{dots} is not {expected}", self.column));
            before
        })
    }

    pub fn number<T: FromStr + PartialOrd + Display>(
        &mut self,
        key: &str,
        range: RangeInclusive<T>,
        before: Option<T>,
    ) -> Option<T> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.parsed(key, expected, before, |v| v.parse().ok().filter(|n| range.contains(n)))
    }

    pub fn flag(&mut self, key: &str, before: bool) -> bool {
        self.parsed(key, "true or false", Some(before), |v| v.parse().ok()).unwrap_or(false)
    }
}

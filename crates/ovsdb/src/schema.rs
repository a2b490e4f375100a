//! Schemas: the tables and columns of a database (RFC 7047 section 3.2), as data.
//!
//! Columns 0 and 1 of every table are `_uuid` and `_version`, so that conditions, selects and monitors treat
//! them like any others. The other columns are sorted by name, and so are the tables; a [`TableIdx`] or
//! [`ColumnIdx`] is a position in that order and means nothing in another schema.

use std::fmt;

use hashbrown::HashMap;
use serde_json::{Map, Value, json};

use crate::atom::{AtomType, is_identifier};
use crate::datum::Datum;
use crate::error::{Error, syntax_error};
use crate::json::Json;
use crate::types::{ColumnType, Members, RefKind, Reference, What};

/// A place in [`Schema::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIdx(pub u16);

/// A place in [`TableSchema::columns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnIdx(pub u16);

impl TableIdx {
    /// As an index into an array.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl ColumnIdx {
    /// The column `_uuid`, of every table.
    pub const UUID: ColumnIdx = ColumnIdx(0);
    /// The column `_version`, of every table: a new UUID with each change of the row.
    pub const VERSION: ColumnIdx = ColumnIdx(1);
    /// The first column that the schema names.
    pub const FIRST: ColumnIdx = ColumnIdx(2);

    /// As an index into an array.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Whether it is `_uuid` or `_version`, which only the database sets.
    pub fn is_internal(self) -> bool {
        self < ColumnIdx::FIRST
    }
}

/// No schema has more tables, and no table more columns.
pub const NAMES_MAX: usize = 10_000;

/// A database's tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The name of databases of this schema.
    pub name: String,
    /// "X.Y.Z"; empty if the schema has none (old ones).
    pub version: String,
    /// "cksum", as given. Nothing checks it here; stock tools compare it.
    pub cksum: Option<String>,
    tables: Vec<TableSchema>,
    by_name: HashMap<String, TableIdx>,
}

/// A table's columns.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSchema {
    /// Its name.
    pub name: String,
    /// Whether rows stay without being referenced. If a schema marks no table as root, all are.
    pub is_root: bool,
    /// The maximum number of rows; `u32::MAX` if there is no limit.
    pub max_rows: u32,
    /// "mutable": whether rows may be modified at all once they are there.
    pub is_mutable: bool,
    /// Sets of columns whose values, taken together, are unique among the rows.
    pub indexes: Vec<Vec<ColumnIdx>>,
    columns: Vec<ColumnSchema>,
    by_name: HashMap<String, ColumnIdx>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSchema {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: ColumnType,
    /// Whether it may change after the row was inserted.
    pub is_mutable: bool,
    /// Whether the log leaves it out, so that it is lost when the server stops.
    pub is_ephemeral: bool,
    /// Its default value.
    pub default: Datum,
    /// What its UUIDs refer to, keys before values.
    pub references: Vec<ColumnReference>,
}

/// What the keys or the values of a column refer to, with the table found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnReference {
    /// The table that is referred to.
    pub table: TableIdx,
    /// What a reference means.
    pub kind: RefKind,
    /// Whether it is the values of a map that refer.
    pub in_values: bool,
}

impl Schema {
    /// A schema of `tables`. `Err` where names are wrong or references lead nowhere.
    pub fn new(
        name: &str,
        version: &str,
        cksum: Option<String>,
        tables: Vec<TableSchema>,
    ) -> Result<Schema, Error> {
        let mut tables = tables;
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(twice) = tables.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(Error::new("syntax error", format!("table \"{}\" is defined twice", twice[0].name)));
        }
        if tables.len() > NAMES_MAX {
            return Err(Error::new("syntax error", format!("more than {NAMES_MAX} tables")));
        }
        // Before isRoot was introduced there was no garbage collection, so if no table is marked as root, all
        // are.
        if !tables.iter().any(|table| table.is_root) {
            tables.iter_mut().for_each(|table| table.is_root = true);
        }
        let by_name: HashMap<String, TableIdx> =
            tables.iter().enumerate().map(|(i, table)| (table.name.clone(), TableIdx(i as u16))).collect();
        let is_root: Vec<bool> = tables.iter().map(|table| table.is_root).collect();
        for table in &mut tables {
            for column in &mut table.columns {
                column.references = references(&table.name, column, &by_name)?;
                // A row that only an ephemeral column kept would be gone after a restart, and with it what it
                // refers to.
                let keeps_rows = |r: &ColumnReference| r.kind == RefKind::Strong && !is_root[r.table.index()];
                if column.references.iter().any(keeps_rows) {
                    column.is_ephemeral = false;
                }
                // The database itself changes weak references, when their rows go.
                column.is_mutable |= column.references.iter().any(|r| r.kind == RefKind::Weak);
            }
        }
        Ok(Schema { name: name.to_owned(), version: version.to_owned(), cksum, tables, by_name })
    }

    /// Its tables, by name. A [`TableIdx`] is a place in it.
    pub fn tables(&self) -> &[TableSchema] {
        &self.tables
    }

    /// Its tables with their places.
    pub fn tables_with_idx(&self) -> impl Iterator<Item = (TableIdx, &TableSchema)> {
        self.tables.iter().enumerate().map(|(index, table)| (TableIdx(index as u16), table))
    }

    /// The table `table`, which is one of this schema.
    pub fn table(&self, table: TableIdx) -> &TableSchema {
        &self.tables[table.index()]
    }

    /// The table that is called `name`.
    pub fn find(&self, name: &str) -> Option<TableIdx> {
        self.by_name.get(name).copied()
    }

    /// Reads the JSON of a `<database-schema>`, with the extensions of the stock server ("cksum").
    pub fn from_json(json: &Value) -> Result<Schema, Error> {
        Schema::read(&json.into())
    }

    fn read(json: &Json<'_>) -> Result<Schema, Error> {
        let mut members = Members::of(json, What::Named("database schema"))?;
        let name = members.string("name")?.ok_or_else(|| members.missing("name"))?;
        if !is_identifier(name) {
            return Err(syntax_error(json, format!("name must be a valid id: \"{name}\"")));
        }
        let version = members.string("version")?.unwrap_or_default();
        if !version.is_empty() && !is_version(version) {
            return Err(syntax_error(json, format!("schema version \"{version}\" not in format x.y.z")));
        }
        let cksum = members.string("cksum")?.map(str::to_owned);
        let tables = members.object("tables")?.ok_or_else(|| members.missing("tables"))?;
        members.finish()?;
        let tables: Result<Vec<TableSchema>, Error> = tables
            .iter()
            .map(|(name, table)| {
                if !is_public_name(name) {
                    return Err(syntax_error(json, format!("name must be a valid id: \"{name}\"")));
                }
                TableSchema::read(name, table)
            })
            .collect();
        Schema::new(name, version, cksum, tables?)
    }

    /// Its JSON.
    pub fn to_json(&self) -> Value {
        let all_roots = self.tables.iter().all(|table| table.is_root);
        let tables: Map<String, Value> =
            self.tables.iter().map(|table| (table.name.clone(), table.to_json(all_roots))).collect();
        let mut json = json!({"name": self.name, "tables": tables});
        if !self.version.is_empty() {
            json["version"] = Value::from(self.version.as_str());
        }
        if let Some(cksum) = &self.cksum {
            json["cksum"] = Value::from(cksum.as_str());
        }
        json
    }
}

fn references(
    table: &str,
    column: &ColumnSchema,
    tables: &HashMap<String, TableIdx>,
) -> Result<Vec<ColumnReference>, Error> {
    let find = |reference: &Reference, in_values: bool| match tables.get(reference.table.as_str()) {
        Some(&table) => Ok(ColumnReference { table, kind: reference.kind, in_values }),
        None => Err(Error::new(
            "syntax error",
            format!(
                "Table {table} column {} {} refers to undefined table {}.",
                column.name,
                if in_values { "value" } else { "key" },
                reference.table
            ),
        )),
    };
    let keys = column.kind.key.reference().map(|reference| find(reference, false));
    let values = column.kind.value.as_ref().and_then(|value| value.reference());
    keys.into_iter().chain(values.map(|reference| find(reference, true))).collect()
}

/// An identifier of the schema's author: those with an underscore first are the database's own.
fn is_public_name(name: &str) -> bool {
    is_identifier(name) && !name.starts_with('_')
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()))
}

impl TableSchema {
    /// A mutable table without a limit of rows. `columns` are those of the schema, without `_uuid` and
    /// `_version`; `indexes` are by name.
    pub fn new(
        name: &str,
        is_root: bool,
        columns: Vec<ColumnSchema>,
        indexes: &[Vec<String>],
    ) -> Result<TableSchema, Error> {
        let mut named = columns;
        named.sort_by(|a, b| a.name.cmp(&b.name));
        let mut columns = vec![internal_column("_uuid", false), internal_column("_version", false)];
        columns.append(&mut named);
        if columns.len() > NAMES_MAX {
            return Err(Error::new("syntax error", format!("more than {NAMES_MAX} columns in {name}")));
        }
        let by_name: HashMap<String, ColumnIdx> = columns
            .iter()
            .enumerate()
            .map(|(i, column)| (column.name.clone(), ColumnIdx(i as u16)))
            .collect();
        if by_name.len() < columns.len() {
            return Err(Error::new("syntax error", format!("a column of table {name} is defined twice")));
        }
        let mut table = TableSchema {
            name: name.to_owned(),
            is_root,
            max_rows: u32::MAX,
            is_mutable: true,
            indexes: Vec::new(),
            columns,
            by_name,
        };
        table.indexes = indexes.iter().map(|index| table.index_of(index)).collect::<Result<_, _>>()?;
        Ok(table)
    }

    fn index_of(&self, names: &[String]) -> Result<Vec<ColumnIdx>, Error> {
        let wrong = |what: String| Error::new("syntax error", what);
        let mut index = Vec::with_capacity(names.len());
        for name in names {
            let column =
                self.find(name).ok_or_else(|| wrong(format!("{name} is not a valid column name")))?;
            if index.contains(&column) {
                return Err(wrong(format!("duplicate column name in index: {name}")));
            }
            if self.column(column).is_ephemeral {
                return Err(wrong(format!("ephemeral columns (such as {name}) may not be indexed")));
            }
            index.push(column);
        }
        if index.is_empty() {
            return Err(wrong("index must have at least one column".to_owned()));
        }
        Ok(index)
    }

    /// Its columns: `_uuid`, `_version`, then the schema's by name. A [`ColumnIdx`] is a place in it.
    pub fn columns(&self) -> &[ColumnSchema] {
        &self.columns
    }

    /// The columns that the schema names, with their places.
    pub fn named_columns(&self) -> impl Iterator<Item = (ColumnIdx, &ColumnSchema)> {
        self.columns_with_idx().skip(ColumnIdx::FIRST.index())
    }

    /// All columns with their indexes.
    pub fn columns_with_idx(&self) -> impl Iterator<Item = (ColumnIdx, &ColumnSchema)> {
        self.columns.iter().enumerate().map(|(index, column)| (ColumnIdx(index as u16), column))
    }

    /// The column `column`, which is one of this table.
    pub fn column(&self, column: ColumnIdx) -> &ColumnSchema {
        &self.columns[column.index()]
    }

    /// The column that is called `name`, `_uuid` and `_version` among them.
    pub fn find(&self, name: &str) -> Option<ColumnIdx> {
        self.by_name.get(name).copied()
    }

    fn read(name: &str, json: &Json<'_>) -> Result<TableSchema, Error> {
        let mut members = Members::of(json, What::Named("table schema"))?;
        let columns = members.object("columns")?.ok_or_else(|| members.missing("columns"))?;
        let is_mutable = members.boolean("mutable")?.unwrap_or(true);
        let max_rows = match members.integer("maxRows")? {
            None => u32::MAX,
            Some(..1) => return Err(members.error("maxRows must be at least 1")),
            Some(max) => u32::try_from(max).unwrap_or(u32::MAX),
        };
        let is_root = members.boolean("isRoot")?.unwrap_or(false);
        let indexes = indexes_from_json(members.array("indexes")?.unwrap_or_default())?;
        members.finish()?;
        if columns.is_empty() {
            return Err(syntax_error(json, "table must have at least one column"));
        }
        let columns: Result<Vec<ColumnSchema>, Error> = columns
            .iter()
            .map(|(name, column)| {
                if !is_public_name(name) {
                    return Err(syntax_error(json, format!("name must be a valid id: \"{name}\"")));
                }
                ColumnSchema::read(name, column)
            })
            .collect();
        let table = TableSchema::new(name, is_root, columns?, &indexes)?;
        Ok(TableSchema { max_rows, is_mutable, ..table })
    }

    fn to_json(&self, all_roots: bool) -> Value {
        let columns: Map<String, Value> =
            self.named_columns().map(|(_, column)| (column.name.clone(), column.to_json())).collect();
        let mut json = json!({"columns": columns});
        if !self.is_mutable {
            json["mutable"] = Value::Bool(false);
        }
        if self.is_root && !all_roots {
            json["isRoot"] = Value::Bool(true);
        }
        if self.max_rows != u32::MAX {
            json["maxRows"] = Value::from(self.max_rows);
        }
        if !self.indexes.is_empty() {
            let names = |index: &Vec<ColumnIdx>| -> Vec<&str> {
                index.iter().map(|column| self.column(*column).name.as_str()).collect()
            };
            json["indexes"] = json!(self.indexes.iter().map(names).collect::<Vec<_>>());
        }
        json
    }
}

fn indexes_from_json(json: &[Json<'_>]) -> Result<Vec<Vec<String>>, Error> {
    let wrong = |json: &Json<'_>| syntax_error(json, "array of column names expected");
    json.iter()
        .map(|index| {
            let names = index.as_array().ok_or_else(|| wrong(index))?;
            names.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(|| wrong(index))).collect()
        })
        .collect()
}

fn internal_column(name: &str, is_mutable: bool) -> ColumnSchema {
    // Neither is written to the log as a column: a row's UUID is its key there, and its version need not
    // last.
    ColumnSchema {
        is_mutable,
        is_ephemeral: true,
        ..ColumnSchema::new(name, ColumnType::scalar(AtomType::Uuid))
    }
}

impl ColumnSchema {
    /// A mutable column that is kept.
    pub fn new(name: &str, kind: ColumnType) -> ColumnSchema {
        let default = kind.default_datum();
        ColumnSchema {
            name: name.to_owned(),
            kind,
            is_mutable: true,
            is_ephemeral: false,
            default,
            references: Vec::new(),
        }
    }

    fn read(name: &str, json: &Json<'_>) -> Result<ColumnSchema, Error> {
        let mut members = Members::of(json, What::Named("schema for column"))?;
        let is_mutable = members.boolean("mutable")?.unwrap_or(true);
        let is_ephemeral = members.boolean("ephemeral")?.unwrap_or(false);
        let kind = ColumnType::read(members.need("type")?)?;
        members.finish()?;
        Ok(ColumnSchema { is_mutable, is_ephemeral, ..ColumnSchema::new(name, kind) })
    }

    fn to_json(&self) -> Value {
        let mut json = json!({"type": self.kind.to_json()});
        if !self.is_mutable {
            json["mutable"] = Value::Bool(false);
        }
        if self.is_ephemeral {
            json["ephemeral"] = Value::Bool(true);
        }
        json
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

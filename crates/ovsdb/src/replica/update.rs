//! Rows as servers send them: the first ones with the reply to a monitor request, changes with `update`,
//! `update2` and `update3`.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Error, Method, Replica, State};
use crate::{ColumnIdx, Datum, Row, RowMap, Schema, TableIdx, TableSchema, Uuid};

/// The update of one row, in both forms of `<row-update>`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RowUpdate {
    /// RFC 7047: the old row, or those of its columns that changed.
    old: Option<Map<String, Value>>,
    /// RFC 7047: the new row.
    new: Option<Map<String, Value>>,
    /// A row that was there before the monitor; columns with their default are left out.
    initial: Option<Map<String, Value>>,
    /// A new row; columns with their default are left out.
    insert: Option<Map<String, Value>>,
    /// The difference of each column that changed.
    modify: Option<Map<String, Value>>,
    /// A row that is gone: its value is null.
    #[serde(deserialize_with = "present")]
    delete: bool,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Value::deserialize(deserializer).map(|_| true)
}

/// By table, by row.
type TableUpdates = Vec<(TableIdx, Vec<(Uuid, RowUpdate)>)>;

impl Replica {
    /// The first rows. Whatever is not among them is gone, unless the server says that they continue what is
    /// here.
    pub(super) fn take_rows(&mut self, method: Method, result: &RawValue) -> Result<(), Error> {
        let mut continues = false;
        let updates = match method {
            Method::Plain | Method::Cond => self.read_updates(result)?,
            Method::CondSince => {
                let (found, last, updates): (bool, String, Box<RawValue>) = read(result)?;
                continues = found;
                self.last_transaction = Uuid::parse(&last).unwrap_or_default();
                self.read_updates(&updates)?
            }
        };
        if continues {
            self.apply(updates)?;
        } else {
            self.replace(updates)?;
        }
        self.state = State::Synced;
        self.changes_seen += 1;
        Ok(())
    }

    pub(super) fn apply_notification(&mut self, method: &str, params: &RawValue) -> Result<(), Error> {
        let updates = if method == "update3" {
            let (_, last, updates): (Value, String, Box<RawValue>) = read(params)?;
            self.last_transaction = Uuid::parse(&last).unwrap_or_default();
            updates
        } else {
            let (_, updates): (Value, Box<RawValue>) = read(params)?;
            updates
        };
        let updates = self.read_updates(&updates)?;
        self.apply(updates)?;
        self.changes_seen += 1;
        Ok(())
    }

    fn read_updates(&self, json: &RawValue) -> Result<TableUpdates, Error> {
        let Some(schema) = &self.schema else { return Ok(Vec::new()) };
        let tables: std::collections::BTreeMap<String, std::collections::BTreeMap<String, RowUpdate>> =
            read(json)?;
        tables
            .into_iter()
            .map(|(name, rows)| {
                let table = schema.find(&name).ok_or_else(|| wrong(format!("no table is called {name}")))?;
                let rows = rows.into_iter().map(|(uuid, update)| match Uuid::parse(&uuid) {
                    Some(uuid) => Ok((uuid, update)),
                    None => Err(wrong(format!("\"{uuid}\" is not a valid UUID"))),
                });
                Ok((table, rows.collect::<Result<_, Error>>()?))
            })
            .collect()
    }

    /// Replaces all rows by those of `updates`, all of which are new.
    fn replace(&mut self, updates: TableUpdates) -> Result<(), Error> {
        let Some(schema) = self.schema.clone() else { return Ok(()) };
        let mut tables = vec![RowMap::default(); schema.tables().len()];
        for (table, rows) in updates {
            for (uuid, update) in rows {
                let row = after(&schema, table, uuid, None, update)?
                    .ok_or_else(|| wrong(format!("row {uuid} is deleted before it was there")))?;
                tables[table.index()].insert(row);
            }
        }
        for (index, new) in tables.into_iter().enumerate() {
            let table = TableIdx(index as u16);
            let old = std::mem::replace(&mut self.tables[index], new);
            for row in old.iter() {
                self.before.entry((table, row.uuid())).or_insert_with(|| Some(row.clone()));
            }
            for row in self.tables[index].iter() {
                self.before.entry((table, row.uuid())).or_insert(None);
            }
        }
        Ok(())
    }

    /// Applies changes: all or, if one does not fit, none.
    fn apply(&mut self, updates: TableUpdates) -> Result<(), Error> {
        let Some(schema) = self.schema.clone() else { return Ok(()) };
        let mut changed = Vec::new();
        for (table, rows) in updates {
            for (uuid, update) in rows {
                let old = self.tables[table.index()].get(uuid);
                changed.push((table, uuid, after(&schema, table, uuid, old, update)?));
            }
        }
        for (table, uuid, new) in changed {
            let rows = &mut self.tables[table.index()];
            let old = match new {
                Some(row) => rows.insert(row),
                None => rows.remove(uuid),
            };
            self.before.entry((table, uuid)).or_insert(old);
        }
        Ok(())
    }
}

/// The row after an update: `None` if it is gone.
fn after(
    schema: &Schema,
    table: TableIdx,
    uuid: Uuid,
    old: Option<&Row>,
    update: RowUpdate,
) -> Result<Option<Row>, Error> {
    let table = schema.table(table);
    let missing = || wrong(format!("row {uuid} of table {} changes and is not there", table.name));
    let fresh = || Row::new(table, uuid);
    let row = match update {
        RowUpdate { delete: true, old: None, new: None, initial: None, insert: None, modify: None } => {
            old.ok_or_else(missing)?;
            return Ok(None);
        }
        RowUpdate { old: Some(_), new: None, initial: None, insert: None, modify: None, delete: false } => {
            old.ok_or_else(missing)?;
            return Ok(None);
        }
        RowUpdate { new: Some(new), old: was, initial: None, insert: None, modify: None, delete: false } => {
            let base = if was.is_some() { old.ok_or_else(missing)?.clone() } else { fresh() };
            set_columns(table, base, new)?
        }
        RowUpdate { initial: Some(new), old: None, new: None, insert: None, modify: None, delete: false }
        | RowUpdate { insert: Some(new), old: None, new: None, initial: None, modify: None, delete: false } => {
            set_columns(table, fresh(), new)?
        }
        RowUpdate {
            modify: Some(diff),
            old: None,
            new: None,
            initial: None,
            insert: None,
            delete: false,
        } => change_columns(table, old.ok_or_else(missing)?.clone(), diff)?,
        _ => return Err(wrong(format!("the update of row {uuid} is none of the known kinds"))),
    };
    Ok(Some(row))
}

fn set_columns(table: &TableSchema, mut row: Row, columns: Map<String, Value>) -> Result<Row, Error> {
    for (name, json) in columns {
        if let Some(column) = known_column(table, &name)? {
            row.set(column, datum(table, column, &json)?);
        }
    }
    Ok(row)
}

fn change_columns(table: &TableSchema, mut row: Row, columns: Map<String, Value>) -> Result<Row, Error> {
    for (name, json) in columns {
        if let Some(column) = known_column(table, &name)? {
            let diff = datum(table, column, &json)?;
            let kind = &table.column(column).kind;
            // Columns of at most one value are sent whole.
            let new = if kind.max == 1 { diff } else { row.get(column).apply_difference(&diff) };
            row.set(column, new);
        }
    }
    Ok(row)
}

/// `None` for `_uuid`, which the row has already, and `_version`.
fn known_column(table: &TableSchema, name: &str) -> Result<Option<ColumnIdx>, Error> {
    match table.find(name) {
        Some(column) if column.is_internal() => Ok(None),
        Some(column) => Ok(Some(column)),
        None => Err(wrong(format!("table {} has no column {name}", table.name))),
    }
}

fn datum(table: &TableSchema, column: ColumnIdx, json: &Value) -> Result<Datum, Error> {
    let column = table.column(column);
    Datum::from_json_any_size(json, &column.kind, None)
        .map_err(|e| wrong(format!("table {} column {}: {e}", table.name, column.name)))
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, Error> {
    serde_json::from_str(json.get()).map_err(|e| wrong(e.to_string()))
}

fn wrong(why: String) -> Error {
    Error::Protocol(why)
}

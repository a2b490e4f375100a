//! The operations on rows: insert, select, update, mutate, delete and wait (RFC 7047 section 5.2.1 to 5.2.6).

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::datum::Datum;
use crate::error::{Error, syntax_error};
use crate::execute::condition::{Condition, ELEMENT_WORK, elements_cost, unknown_column};
use crate::execute::mutation::Mutation;
use crate::execute::rbac::Act;
use crate::execute::{OpResult, RowText, Run, Stop, WORK_MAX};
use crate::json::Json;
use crate::row::Row;
use crate::schema::{ColumnIdx, Schema, TableIdx, TableSchema};
use crate::symbols::Symbols;
use crate::types::Members;
use crate::uuid::Uuid;

/// Changing a row costs as much as comparing it with so many clauses.
pub(crate) const CHANGE_WORK: usize = 32;
/// Memory for the selected columns of a row in a set of such, besides the columns.
const SELECTED_BYTES: usize = 64;

impl Run<'_, '_> {
    pub(super) fn insert(&mut self, mut members: Members<'_>) -> Result<OpResult, Error> {
        let (table, schema) = self.table(&mut members)?;
        let json = members.need("row")?;
        let name = members.id("uuid-name")?;
        let given_uuid = members.string("uuid")?;
        let uuid = match given_uuid {
            None => None,
            Some(text) => Some(Uuid::parse(text).ok_or_else(|| syntax_error(&text, "bad uuid"))?),
        };
        members.finish()?;
        let table_schema = schema.table(table);
        let uuid = match name {
            Some(name) => self.symbols.define(name, uuid)?,
            None => uuid.unwrap_or_else(|| self.symbols.fresh()),
        };
        self.transaction.check_name(table, uuid).map_err(|error| {
            let syntax = given_uuid.map(|text| Value::from(text).to_string());
            Error { syntax, ..error }
        })?;
        self.built.add_row(table_schema.columns().len())?;
        let mut row = Row::new(table_schema, uuid);
        let mut given = Vec::new();
        for (column, datum) in row_from_json(table_schema, json, &mut self.symbols)? {
            if !column.is_internal() {
                given.push(column);
                self.built.add(stored_bytes(&datum))?;
                row.set(column, datum);
            }
        }
        // A default may be outside the constraints: then the column must be given.
        for (column, column_schema) in table_schema.named_columns() {
            if column_schema.kind.min > 0 && !given.contains(&column) {
                check_default(column_schema)?;
            }
        }
        self.may(table, Act::Insert, std::slice::from_ref(&row))?;
        row.set(ColumnIdx::VERSION, Datum::scalar(self.symbols.fresh()));
        self.transaction.insert(table, row)?;
        Ok(OpResult::Inserted(uuid))
    }

    pub(super) fn select(&mut self, mut members: Members<'_>) -> Result<OpResult, Error> {
        let (table, schema) = self.table(&mut members)?;
        let table_schema = schema.table(table);
        let condition = self.condition(&mut members, table_schema)?;
        let selected_columns = columns(&mut members, table_schema, "columns")?;
        let sort = columns(&mut members, table_schema, "sort")?;
        members.finish()?;
        let mut columns = selected_columns.unwrap_or_else(|| all(table_schema));
        // Rows with equal selected columns count once; they are sorted by UUID, unless another order is
        // requested.
        let mut rows = self.matching(table, &condition)?;
        if let Some(sort) = &sort {
            self.spend_on_comparing(&rows, sort)?;
            rows.sort_by(|a, b| {
                let by_column = sort.iter().map(|column| a.get(*column).cmp(b.get(*column)));
                by_column.fold(Ordering::Equal, Ordering::then)
            });
        }
        let mut seen = BTreeSet::new();
        let can_repeat = !columns.contains(&ColumnIdx::UUID);
        if can_repeat {
            self.spend_on_comparing(&rows, &columns)?;
        }
        // Members are written by name, as everywhere.
        columns.sort_by_key(|column| &table_schema.column(*column).name);
        let mut found = Vec::new();
        for row in rows {
            if can_repeat && !seen.insert(selected(&row, &columns)) {
                continue;
            }
            let selected = Selected { table: table_schema, row: &row, columns: &columns };
            let text = RowText(crate::jsonrpc::raw(&selected));
            // Once here, and once in the reply's text.
            self.built.add(2 * text.bytes())?;
            found.push(text);
        }
        Ok(OpResult::Rows(found))
    }

    pub(super) fn update(&mut self, mut members: Members<'_>) -> Result<OpResult, Error> {
        let (table, schema) = self.table(&mut members)?;
        let table_schema = schema.table(table);
        let json = members.need("row")?;
        let new = row_from_json(table_schema, json, &mut self.symbols)?;
        for (column, _) in &new {
            if !table_schema.column(*column).is_mutable {
                let details = format!(
                    "Cannot update immutable column {} in table {}.",
                    table_schema.column(*column).name,
                    table_schema.name
                );
                return Err(Error { syntax: members.error("").syntax, ..Error::constraint(details) });
            }
        }
        let condition = self.condition(&mut members, table_schema)?;
        members.finish()?;
        let rows = self.matching(table, &condition)?;
        let elements: usize = new.iter().map(|(_, datum)| datum.len()).sum();
        self.spend(rows.len() * (CHANGE_WORK + elements * ELEMENT_WORK))?;
        let columns: Vec<ColumnIdx> = new.iter().map(|(column, _)| *column).collect();
        self.may(table, Act::Update(&columns), &rows)?;
        let mut count = 0;
        for mut row in rows {
            count += 1;
            let old = row.clone();
            for (column, datum) in &new {
                if row.get(*column) != datum {
                    row.set(*column, datum.clone());
                }
            }
            if !row.is_same(&old) {
                self.charge(table, &old, &row)?;
                self.transaction.replace(table, row);
            }
        }
        Ok(OpResult::Count(count))
    }

    pub(super) fn mutate(&mut self, mut members: Members<'_>) -> Result<OpResult, Error> {
        let (table, schema) = self.table(&mut members)?;
        let table_schema = schema.table(table);
        let mutations = members.array("mutations")?.ok_or_else(|| members.missing("mutations"))?;
        let mutations: Result<Vec<Mutation>, Error> = mutations
            .iter()
            .map(|mutation| Mutation::read(table_schema, mutation, Some(&mut self.symbols)))
            .collect();
        let mutations = mutations?;
        let condition = self.condition(&mut members, table_schema)?;
        members.finish()?;
        let rows = self.matching(table, &condition)?;
        let columns: Vec<ColumnIdx> = mutations.iter().map(Mutation::column).collect();
        self.may(table, Act::Mutate(&columns), &rows)?;
        let mut count = 0;
        for mut row in rows {
            count += 1;
            let old = row.clone();
            for mutation in &mutations {
                let elements = row.get(mutation.column()).len() + mutation.argument_len();
                self.spend(CHANGE_WORK + elements * ELEMENT_WORK)?;
                mutation.apply(table_schema, &mut row)?;
            }
            if !row.is_same(&old) {
                self.charge(table, &old, &row)?;
                self.transaction.replace(table, row);
            }
        }
        Ok(OpResult::Count(count))
    }

    pub(super) fn delete(&mut self, mut members: Members<'_>) -> Result<OpResult, Error> {
        let (table, schema) = self.table(&mut members)?;
        let condition = self.condition(&mut members, schema.table(table))?;
        members.finish()?;
        let rows = self.matching(table, &condition)?;
        self.spend(rows.len() * CHANGE_WORK)?;
        self.may(table, Act::Delete, &rows)?;
        let mut count = 0;
        for row in rows {
            count += 1;
            self.transaction.delete(table, row.uuid());
        }
        Ok(OpResult::Count(count))
    }

    pub(super) fn wait(&mut self, mut members: Members<'_>) -> Result<OpResult, Stop> {
        let (table, schema) = self.table(&mut members)?;
        let table_schema = schema.table(table);
        let timeout_ms = match members.integer("timeout")? {
            None => None,
            Some(ms) => {
                Some(u64::try_from(ms).map_err(|_| syntax_error(&ms, "timeout must be nonnegative"))?)
            }
        };
        let condition = self.condition(&mut members, table_schema)?;
        let columns = columns(&mut members, table_schema, "columns")?.unwrap_or_else(|| all(table_schema));
        let until = members.string("until")?.ok_or_else(|| members.missing("until"))?;
        let wants_equal = match until {
            "==" => true,
            "!=" => false,
            _ => {
                let details = "\"until\" must be \"==\" or \"!=\"";
                return Err(syntax_error(&until, details).into());
            }
        };
        let rows = members.array("rows")?.ok_or_else(|| members.missing("rows"))?;
        members.finish()?;
        let row_bytes = SELECTED_BYTES + columns.len() * size_of::<Datum>();
        let mut bytes = 0;
        let mut expected = BTreeSet::new();
        for json in rows {
            self.spend(1 + columns.len())?;
            let mut row = Row::new(table_schema, Uuid::ZERO);
            let mut given_bytes = row_bytes;
            for (column, datum) in row_from_json(table_schema, json, &mut self.symbols)? {
                given_bytes += datum.heap_bytes();
                row.set(column, datum);
            }
            self.built.add(given_bytes)?;
            bytes += given_bytes;
            expected.insert(selected(&row, &columns));
        }
        let rows = self.matching(table, &condition)?;
        self.spend_on_comparing(&rows, &columns)?;
        self.built.add(rows.len() * row_bytes)?;
        bytes += rows.len() * row_bytes;
        let found: BTreeSet<Vec<Datum>> = rows.iter().map(|row| selected(row, &columns)).collect();
        self.built.replace(bytes, 0)?;
        if (found == expected) == wants_equal {
            return Ok(OpResult::Done);
        }
        match timeout_ms {
            Some(timeout_ms) if timeout_ms <= self.elapsed_ms => {
                let details = match self.elapsed_ms {
                    0 => "\"where\" clause test failed".to_owned(),
                    elapsed_ms => format!("\"wait\" timed out after {elapsed_ms} ms"),
                };
                Err(Error::new("timed out", details).into())
            }
            until_ms => Err(Stop::Waits { until_ms }),
        }
    }

    /// Whether the client's role permits it. `Err`: "permission error".
    fn may(&self, table: TableIdx, act: Act<'_>, rows: &[Row]) -> Result<(), Error> {
        self.principal.check(self.transaction.database(), table, act, rows)
    }

    /// The operation's table. The schema comes along, so that it can be read while the transaction is written
    /// to.
    fn table(&mut self, members: &mut Members<'_>) -> Result<(TableIdx, std::sync::Arc<Schema>), Error> {
        let name = members.string("table")?.ok_or_else(|| members.missing("table"))?;
        let schema = std::sync::Arc::clone(self.transaction.database().schema());
        match schema.find(name) {
            Some(table) => {
                self.tables.insert(table);
                Ok((table, schema))
            }
            None => Err(members.failed(&format!("No table named {name}."))),
        }
    }

    fn condition(&mut self, members: &mut Members<'_>, table: &TableSchema) -> Result<Condition, Error> {
        let json = members.need("where")?;
        if json.as_array().is_none() {
            return Err(members.wrong_type("where"));
        }
        Condition::read(table, json, Some(&mut self.symbols))
    }

    /// The rows of `table` that satisfy all of `condition`: found by name or by a unique index if possible,
    /// otherwise by checking each. `Err`: that would take too long.
    fn matching(&mut self, table: TableIdx, condition: &Condition) -> Result<Vec<Row>, Error> {
        let database = self.transaction.database();
        let equalities: Vec<(ColumnIdx, &Datum)> = condition.equalities().collect();
        if let Some((_, name)) = equalities.iter().find(|(column, _)| *column == ColumnIdx::UUID) {
            let row = name.as_uuid().and_then(|uuid| database.row(table, uuid)).cloned();
            self.spend(condition.cost())?;
            return Ok(row.into_iter().filter(|row| condition.matches_all(row)).collect());
        }
        if !equalities.is_empty()
            && let Some(rows) = database.find_by_index(table, &equalities)
        {
            let rows: Vec<Row> = rows.into_iter().cloned().collect();
            self.spend(rows.len() * condition.cost())?;
            return Ok(rows.into_iter().filter(|row| condition.matches_all(row)).collect());
        }
        self.spend(database.row_count(table) * condition.cost())?;
        let rows = self.transaction.database().rows(table);
        Ok(rows.filter(|row| condition.matches_all(row)).cloned().collect())
    }

    /// Counts the work for sorting rows by these columns, or for telling apart those in which they differ:
    /// each may be compared with several, and with all of its elements.
    fn spend_on_comparing(&mut self, rows: &[Row], columns: &[ColumnIdx]) -> Result<(), Error> {
        let times = 1 + rows.len().checked_ilog2().unwrap_or(0) as usize;
        rows.iter().try_for_each(|row| {
            let elements: usize = columns.iter().map(|column| elements_cost(row.get(*column))).sum();
            self.spend(columns.len() + times * elements)
        })
    }

    /// Counts work, in clauses that rows are compared with. `Err` "resources exhausted": it is too much for
    /// one transaction, and so for one turn.
    fn spend(&mut self, work: usize) -> Result<(), Error> {
        self.work = self.work.saturating_add(work);
        if self.work > WORK_MAX {
            let details = format!("the transaction compares rows with more than {WORK_MAX} clauses");
            return Err(Error::new("resources exhausted", details));
        }
        Ok(())
    }

    /// Counts the memory for what an operation changes in a row. What this transaction itself had put there
    /// is free again; what was there before is kept until the end.
    fn charge(&mut self, table: TableIdx, old: &Row, new: &Row) -> Result<(), Error> {
        let first = self.transaction.first_version(table, old.uuid());
        let (mut freed, mut taken) = (0, 0);
        for column in old.changed_columns(new) {
            let is_own = first.is_some_and(|row| row.is_none_or(|row| row.get(column) != old.get(column)));
            freed += if is_own { stored_bytes(old.get(column)) } else { 0 };
            taken += stored_bytes(new.get(column));
        }
        self.built.replace(freed, taken)
    }
}

/// The memory of a value that is set, and what its record in the log takes more: a control character is six
/// bytes there.
fn stored_bytes(datum: &Datum) -> usize {
    datum.heap_bytes() + datum.escape_bytes()
}

fn check_default(column: &crate::schema::ColumnSchema) -> Result<(), Error> {
    column.default.keys().try_for_each(|key| column.kind.key.check(key))?;
    match &column.kind.value {
        Some(base) => column.default.values().try_for_each(|value| base.check(value)),
        None => Ok(()),
    }
}

/// Reads the columns of a `<row>`.
fn row_from_json(
    table: &TableSchema,
    json: &Json<'_>,
    symbols: &mut Symbols<'_>,
) -> Result<Vec<(ColumnIdx, Datum)>, Error> {
    let members = json.as_object().ok_or_else(|| syntax_error(json, "row must be JSON object"))?;
    members
        .iter()
        .map(|(name, value)| {
            let column = table.find(name).ok_or_else(|| unknown_column(json, table, name))?;
            Ok((column, Datum::read(value, &table.column(column).kind, Some(&mut *symbols))?))
        })
        .collect()
}

/// The requested columns of a row, by name.
struct Selected<'a> {
    table: &'a TableSchema,
    row: &'a Row,
    columns: &'a [ColumnIdx],
}

impl Serialize for Selected<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(self.columns.len()))?;
        for column in self.columns {
            let schema = self.table.column(*column);
            members.serialize_entry(&schema.name, &self.row.get(*column).to_json(&schema.kind))?;
        }
        members.end()
    }
}

fn selected(row: &Row, columns: &[ColumnIdx]) -> Vec<Datum> {
    columns.iter().map(|column| row.get(*column).clone()).collect()
}

fn all(table: &TableSchema) -> Vec<ColumnIdx> {
    table.columns_with_idx().map(|(column, _)| column).collect()
}

/// A member that names columns. `None`: it is not there.
fn columns(
    members: &mut Members<'_>,
    table: &TableSchema,
    member: &str,
) -> Result<Option<Vec<ColumnIdx>>, Error> {
    let Some(names) = members.array(member)? else { return Ok(None) };
    let mut columns = Vec::with_capacity(names.len());
    let mut seen = BTreeSet::new();
    // Errors are about the whole array, as with the stock server.
    let wrong = |details: &str| syntax_error(&names, details);
    for json in names {
        let name = json.as_str().ok_or_else(|| wrong("array of distinct column names expected"))?;
        let column = table.find(name).ok_or_else(|| wrong(&format!("{name} is not a valid column name")))?;
        if !seen.insert(column) {
            return Err(wrong("array of distinct column names expected"));
        }
        columns.push(column);
    }
    Ok(Some(columns))
}

//! From a transaction to the operations of RFC 7047 section 5.2, and from their results to an outcome.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::transaction::{EditKind, Transaction, Write};
use crate::{Atom, AtomType, ColumnIdx, ColumnType, Datum, TableIdx, Uuid};

/// Names a transaction that was committed, to ask for its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to change, and nothing was sent.
    Unchanged,
    /// It took effect.
    Success(Committed),
    /// Something that it relied on had changed, or the connection was lost before the server answered. Build
    /// it again.
    TryAgain,
    /// Another client has the lock.
    NotLocked,
    /// The server refuses it: its JSON, members `error` and `details` as a rule.
    Error(String),
}

/// The server's results for a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    uuids: BTreeMap<Uuid, Uuid>,
    /// What the column of [`Transaction::increment`] became.
    pub incremented: Option<i64>,
}

impl Committed {
    /// The UUID in the database of a row that the transaction inserted as `uuid`.
    pub fn uuid_of(&self, uuid: Uuid) -> Option<Uuid> {
        self.uuids.get(&uuid).copied()
    }
}

/// A transaction on its way: where its results will be.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) ticket: Ticket,
    operations: usize,
    /// The places of inserts, and what they insert.
    inserts: Vec<(usize, Uuid)>,
    /// The place of the select that tells the incremented value, and the column's name.
    increment: Option<(usize, String)>,
}

/// The operations of `transaction`, in the order: what it relies on, its changes, the increment, comments.
pub(super) fn compose(transaction: &Transaction, ticket: Ticket, operations: &mut Vec<Value>) -> InFlight {
    let schema = &transaction.schema;
    let name = |table: TableIdx| schema.table(table).name.as_str();
    let mut in_flight = InFlight { ticket, operations: 0, inserts: Vec::new(), increment: None };

    let mut waits: BTreeMap<(TableIdx, Uuid), Vec<ColumnIdx>> = BTreeMap::new();
    for (table, uuid, column) in &transaction.verified {
        waits.entry((*table, *uuid)).or_default().push(*column);
    }
    for ((table, uuid), columns) in waits {
        let Some(row) = transaction.base[table.index()].get(uuid) else { continue };
        let columns = || columns.iter().map(|c| (schema.table(table).column(*c), row.get(*c)));
        let row: Map<String, Value> =
            columns().map(|(column, datum)| (column.name.clone(), datum.to_json(&column.kind))).collect();
        let names: Vec<&str> = columns().map(|(column, _)| column.name.as_str()).collect();
        operations.push(json!({
            "op": "wait", "table": name(table), "timeout": 0, "where": this_row(uuid),
            "columns": names, "until": "==", "rows": [row],
        }));
    }

    for ((table, uuid), edit) in &transaction.edits {
        let table_schema = schema.table(*table);
        let mut whole = Map::new();
        let mut mutations = Vec::new();
        for (column, write) in &edit.columns {
            let column_schema = table_schema.column(*column);
            match write {
                Write::Whole => {
                    let datum = transaction.get(*table, *uuid, *column);
                    let is_default = *datum == column_schema.default;
                    if !(is_default && matches!(edit.kind, EditKind::Insert { .. })) {
                        whole.insert(
                            column_schema.name.clone(),
                            datum_json(transaction, datum, &column_schema.kind),
                        );
                    }
                }
                Write::Part { delete, insert } => {
                    for delete in delete {
                        let of = if delete.as_map().is_empty() {
                            set_of(&column_schema.kind)
                        } else {
                            column_schema.kind.clone()
                        };
                        mutations.push(json!([
                            column_schema.name,
                            "delete",
                            elements_json(transaction, delete, &of)
                        ]));
                    }
                    if !insert.is_empty() {
                        let elements = elements_json(transaction, insert, &column_schema.kind);
                        mutations.push(json!([column_schema.name, "insert", elements]));
                    }
                }
            }
        }
        match edit.kind {
            // A row that only references keep is deleted by the server once there are none.
            EditKind::Delete if !table_schema.is_root => {}
            EditKind::Delete => {
                operations.push(json!({"op": "delete", "table": name(*table), "where": this_row(*uuid)}));
            }
            EditKind::Insert { is_named } => {
                in_flight.inserts.push((operations.len() - 1, *uuid));
                let mut operation = json!({"op": "insert", "table": name(*table), "row": whole});
                if is_named {
                    operation["uuid-name"] = Value::from(symbol(*uuid));
                } else {
                    operation["uuid"] = Value::from(uuid.to_string());
                }
                operations.push(operation);
            }
            EditKind::Change => {
                if !whole.is_empty() {
                    operations.push(json!({
                        "op": "update", "table": name(*table), "where": this_row(*uuid), "row": whole,
                    }));
                }
                if !mutations.is_empty() {
                    operations.push(json!({
                        "op": "mutate", "table": name(*table), "where": this_row(*uuid), "mutations": mutations,
                    }));
                }
            }
        }
    }

    if let Some((table, uuid, column)) = transaction.increment
        && transaction.row(table, uuid).is_some()
    {
        let column = schema.table(table).column(column).name.clone();
        let this = json!([["_uuid", "==", uuid_json(transaction, uuid)]]);
        operations.push(json!({
            "op": "mutate", "table": name(table), "where": this, "mutations": [[column, "+=", 1]],
        }));
        in_flight.increment = Some((operations.len() - 1, column.clone()));
        operations.push(json!({"op": "select", "table": name(table), "where": this, "columns": [column]}));
    }
    if !transaction.comments.is_empty() {
        operations.push(json!({"op": "comment", "comment": transaction.comments.join("\n")}));
    }
    if transaction.is_dry_run {
        operations.push(json!({"op": "abort"}));
    }
    in_flight.operations = operations.len() - 1;
    in_flight
}

impl InFlight {
    /// What the server's array of results means.
    pub(super) fn outcome(self, results: &Value) -> Outcome {
        let Some(results) = results.as_array() else {
            return Outcome::Error(results.to_string());
        };
        for result in results {
            match result.get("error").and_then(Value::as_str) {
                None | Some("aborted") => {}
                Some("timed out") => return Outcome::TryAgain,
                Some("not owner") => return Outcome::NotLocked,
                Some(_) => return Outcome::Error(result.to_string()),
            }
        }
        if results.len() < self.operations {
            return Outcome::Error(format!("{} results for {} operations", results.len(), self.operations));
        }
        let mut committed = Committed::default();
        for (place, uuid) in self.inserts {
            let inserted = results[place].pointer("/uuid/1").and_then(Value::as_str).and_then(Uuid::parse);
            let Some(inserted) = inserted else {
                return Outcome::Error(format!("\"insert\" reply \"uuid\" is missing: {}", results[place]));
            };
            committed.uuids.insert(uuid, inserted);
        }
        if let Some((place, column)) = self.increment {
            committed.incremented =
                results[place].pointer(&format!("/rows/0/{column}")).and_then(Value::as_i64);
        }
        Outcome::Success(committed)
    }
}

fn this_row(uuid: Uuid) -> Value {
    json!([["_uuid", "==", ["uuid", uuid.to_string()]]])
}

/// The name of a new row within its transaction.
fn symbol(uuid: Uuid) -> String {
    format!("row{}", uuid.to_string().replace('-', "_"))
}

/// New rows are referred to by name, wherever they are inserted.
fn uuid_json(transaction: &Transaction, uuid: Uuid) -> Value {
    let is_named = |table: &TableIdx| {
        let edit = transaction.edits.get(&(*table, uuid));
        edit.is_some_and(|edit| edit.kind == EditKind::Insert { is_named: true })
    };
    let mut tables = transaction.schema.tables_with_idx().map(|(table, _)| table);
    if tables.any(|table| is_named(&table)) {
        json!(["named-uuid", symbol(uuid)])
    } else {
        json!(["uuid", uuid.to_string()])
    }
}

fn atom_json(transaction: &Transaction, atom: &Atom) -> Value {
    match atom {
        Atom::Uuid(uuid) => uuid_json(transaction, *uuid),
        other => other.to_json(),
    }
}

fn datum_json(transaction: &Transaction, datum: &Datum, of: &ColumnType) -> Value {
    let has_uuids = of.bases().any(|base| base.kind == AtomType::Uuid);
    match datum.as_set() {
        _ if !has_uuids => datum.to_json(of),
        [atom] if !of.is_map() => atom_json(transaction, atom),
        _ => elements_json(transaction, datum, of),
    }
}

/// Written as a set or a map even if there is a single element.
fn elements_json(transaction: &Transaction, datum: &Datum, of: &ColumnType) -> Value {
    let json = |atom| atom_json(transaction, atom);
    if of.is_map() {
        let pairs: Vec<Value> = datum.as_map().iter().map(|(k, v)| json!([json(k), json(v)])).collect();
        json!(["map", pairs])
    } else {
        let atoms: Vec<Value> = datum.as_set().iter().map(json).collect();
        json!(["set", atoms])
    }
}

fn set_of(kind: &ColumnType) -> ColumnType {
    ColumnType { value: None, ..kind.clone() }
}

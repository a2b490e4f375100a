//! Transactions, and rows as a whole: dump, backup, restore.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Read};
use std::iter;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::ctl::table::{Cell, Table};
use ovsdb::log::{Magic, Reader, frame, transaction};
use ovsdb::{AtomType, ColumnIdx, ColumnSchema, Database, Datum, Schema, TableSchema, Uuid, UuidGenerator};
use serde_json::{Map, Value, json};

use super::call::Call;
use super::schema::{column_named, table_named};

/// The transaction that is the argument: an array that begins with the name of a database.
fn read_transaction(call: &Call<'_>) -> Result<Vec<Value>, String> {
    let text = &call.args[0];
    let json: Value = serde_json::from_str(text).map_err(|error| format!("\"{text}\": {error}"))?;
    match json {
        Value::Array(operations) if operations.first().is_some_and(Value::is_string) => Ok(operations),
        _ => Err("not a valid OVSDB query".into()),
    }
}

async fn send(call: &mut Call<'_>, operations: Vec<Value>) -> Result<Value, String> {
    let reply = call.server.try_call("transact", Value::Array(operations)).await?;
    reply.map_err(|error| format!("transaction returned error: {}", crate::ctl::json::to_text(&error, false)))
}

pub(super) async fn transact(call: &mut Call<'_>) -> Result<(), String> {
    let operations = read_transaction(call)?;
    // Then a waiting client is notified of a conversion of the database, instead of losing the connection.
    if call.global.change_aware == Some(true) {
        call.server.try_call("set_db_change_aware", json!([true])).await?.ok();
    }
    // It may wait indefinitely.
    call.daemon.complete();
    let results = send(call, operations).await?;
    call.print_json(&results);
    Ok(())
}

pub(super) async fn query(call: &mut Call<'_>) -> Result<(), String> {
    let mut operations = read_transaction(call)?;
    operations.push(json!({"op": "abort"}));
    let mut results = send(call, operations).await?;
    if let Some(results) = results.as_array_mut()
        && results.last().is_some_and(|last| last["error"] == "aborted")
    {
        results.pop();
    }
    call.print_json(&results);
    Ok(())
}

/// The rows of tables, with the columns of each, as of one moment. By a monitor: a database may have more
/// than the results of a transaction may take.
async fn select(
    call: &mut Call<'_>,
    tables: &[(&TableSchema, Vec<&ColumnSchema>)],
) -> Result<Vec<Vec<Vec<Datum>>>, String> {
    let mut requests = Map::new();
    for (table, columns) in tables {
        // Rows come by their UUIDs.
        let names = columns.iter().map(|column| column.name.as_str()).filter(|name| *name != "_uuid");
        let select = json!({"initial": true, "insert": false, "delete": false, "modify": false});
        let request = json!({"columns": names.collect::<Vec<_>>(), "select": select});
        requests.insert(table.name.clone(), request);
    }
    let mut updates = call.server.call("monitor", json!([call.database, null, requests])).await?;
    let read_table = |(table, columns): &(&TableSchema, Vec<&ColumnSchema>)| {
        let wrong =
            || format!("{} table reply is not an object of objects with a \"new\" member", table.name);
        let rows = match updates.get_mut(&table.name).map(Value::take) {
            None => return Ok(Vec::new()),
            Some(Value::Object(rows)) => rows,
            Some(_) => return Err(wrong()),
        };
        let read = |(uuid, mut update): (String, Value)| {
            let row = update.get_mut("new").ok_or_else(wrong)?;
            row.as_object_mut().ok_or_else(wrong)?.insert("_uuid".into(), json!(["uuid", uuid]));
            read_row(table, columns, row)
        };
        rows.into_iter().map(read).collect()
    };
    tables.iter().map(read_table).collect()
}

fn read_row(table: &TableSchema, columns: &[&ColumnSchema], row: &Value) -> Result<Vec<Datum>, String> {
    columns
        .iter()
        .map(|column| {
            let json = row.get(&column.name).ok_or_else(|| {
                format!("row in table {} response lacks {} column", table.name, column.name)
            })?;
            Datum::from_json(json, &column.kind, None).map_err(|error| error.to_string())
        })
        .collect()
}

pub(super) async fn dump(call: &mut Call<'_>) -> Result<(), String> {
    let schema = call.server.schema(&call.database).await?;
    let mut tables: Vec<(&TableSchema, Vec<&ColumnSchema>)> = Vec::new();
    match call.args {
        [] => tables.extend(schema.tables().iter().map(|table| (table, all_columns(table)))),
        [name, columns @ ..] => {
            let table = table_named(&schema, name, || format!("No table \"{name}\" found."))?;
            let mut found = all_columns(table);
            if !columns.is_empty() {
                found.clear();
                for column in columns {
                    let otherwise = || format!("Table \"{name}\" has no column {column}.");
                    found.push(column_named(table, column, otherwise)?);
                }
                found.sort_by(|a, b| a.name.cmp(&b.name));
                found.dedup_by(|a, b| a.name == b.name);
            }
            tables.push((table, found));
        }
    }
    let selected = select(call, &tables).await?;
    for ((table, columns), mut rows) in tables.into_iter().zip(selected) {
        // By everything but UUIDs, which are random, so that the same contents look the same.
        let by_uuid = |n: &usize| columns[*n].kind.key.kind == AtomType::Uuid;
        let (uuids, others): (Vec<usize>, Vec<usize>) = (0..columns.len()).partition(by_uuid);
        rows.sort_by(|a, b| {
            let in_order = others.iter().chain(&uuids).map(|n| a[*n].cmp(&b[*n]));
            in_order.fold(Ordering::Equal, Ordering::then)
        });
        let cells = |row: Vec<Datum>| {
            row.into_iter()
                .zip(&columns)
                .map(|(datum, column)| Cell::Datum(datum, column.kind.clone()))
                .collect()
        };
        let table = Table {
            caption: Some(format!("{} table", table.name)),
            headings: columns.iter().map(|column| column.name.clone()).collect(),
            rows: rows.into_iter().map(cells).collect(),
            timestamp: None,
        };
        call.print_table(&table);
    }
    Ok(())
}

/// All columns but `_version`.
fn all_columns(table: &TableSchema) -> Vec<&ColumnSchema> {
    table.columns_with_idx().filter(|(idx, _)| *idx != ColumnIdx::VERSION).map(|(_, column)| column).collect()
}

pub(super) async fn backup(call: &mut Call<'_>) -> Result<(), String> {
    if std::io::stdout().is_terminal() {
        return Err("not writing backup to a terminal; please redirect stdout to a file".into());
    }
    let schema = call.server.schema(&call.database).await?;
    let tables: Vec<(&TableSchema, Vec<&ColumnSchema>)> = schema
        .tables()
        .iter()
        .map(|table| {
            let kept = table.columns_with_idx().filter(|(idx, column)| {
                *idx == ColumnIdx::UUID || !(idx.is_internal() || column.is_ephemeral)
            });
            (table, kept.map(|(_, column)| column).collect())
        })
        .collect();
    let selected = select(call, &tables).await?;
    let mut body = Map::new();
    for ((table, columns), rows) in tables.into_iter().zip(selected) {
        let mut by_uuid = Map::new();
        for row in rows {
            let uuid = row[0].as_uuid().unwrap_or_default();
            let members = columns
                .iter()
                .zip(&row)
                .skip(1)
                .map(|(column, datum)| (column.name.clone(), datum.to_json(&column.kind)));
            by_uuid.insert(uuid.to_string(), Value::Object(members.collect()));
        }
        if !by_uuid.is_empty() {
            body.insert(table.name.clone(), Value::Object(by_uuid));
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    body.insert("_date".into(), Value::from(now.as_millis() as u64));
    body.insert("_comment".into(), Value::from("produced by \"ovsdb-client backup\""));
    use std::io::Write;
    let mut stdout = host::output::stdout();
    for json in [schema.to_json(), Value::Object(body)] {
        let record = frame::record(Magic::Standalone, format!("{json}\n").as_bytes());
        stdout.write_all(&record).map_err(|error| transport::reason(&error))?;
    }
    stdout.flush().map_err(|error| transport::reason(&error))
}

pub(super) async fn restore(call: &mut Call<'_>) -> Result<(), String> {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        return Err("not reading backup from a terminal; please redirect stdin from a file".into());
    }
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).map_err(|error| transport::reason(&error))?;
    let backup = read_backup(&bytes)?;
    let schema = call.server.schema(&call.database).await?;
    if !call.global.force {
        check_same(&backup, &schema)?;
    }
    let operations = replace_all(&call.database, &backup, &schema);
    call.server.transact(operations).await?;
    Ok(())
}

/// The database in a file's bytes.
fn read_backup(bytes: &[u8]) -> Result<Database, String> {
    let failed = |why: &dyn std::fmt::Display| format!("ovsdb error: /dev/stdin: {why}");
    let mut reader = Reader::new(&bytes).map_err(|error| failed(&error))?;
    let mut ids = UuidGenerator::from_seed(0);
    let mut database: Option<Database> = None;
    while let Some(record) = reader.next_record().map_err(|error| match error {
        ovsdb::log::ReadError::Io { error, .. } => failed(&error),
        ovsdb::log::ReadError::Damaged(damage) => failed(&damage),
    })? {
        if record.magic != Magic::Standalone {
            return Err(failed(&"unexpected file format"));
        }
        match &mut database {
            None => {
                let json: Value = serde_json::from_slice(record.body).map_err(|error| failed(&error))?;
                database = Some(Database::new(Schema::from_json(&json).map_err(|error| failed(&error))?));
            }
            Some(database) => {
                transaction::apply(database, record.body, &mut ids).map_err(|error| failed(&error))?
            }
        }
    }
    database.ok_or_else(|| failed(&"cannot identify file type"))
}

fn check_same(backup: &Database, schema: &Schema) -> Result<(), String> {
    let has = backup.schema();
    if has.to_json() == schema.to_json() {
        return Ok(());
    }
    let difference = if has.version == schema.version {
        format!("backup schema and database schema are both version {} but still differ", has.version)
    } else {
        format!(
            "backup schema has version \"{}\" but database schema has version \"{}\"",
            has.version, schema.version
        )
    };
    Err(format!(
        "{difference} (use --force to override differences, or \"ovsdb-client convert\" to change the schema)"
    ))
}

/// The transaction that deletes all rows and inserts those of `backup`, which refer to each other by name.
fn replace_all(database: &str, backup: &Database, schema: &Schema) -> Value {
    let mut operations = vec![Value::from(database)];
    for table in schema.tables() {
        operations.push(json!({"op": "delete", "table": table.name, "where": []}));
    }
    let known = backup.schema().clone();
    let uuids: BTreeSet<String> = known
        .tables_with_idx()
        .flat_map(|(table, _)| backup.rows(table))
        .map(|row| row.uuid().to_string())
        .collect();
    for (table, table_schema) in known.tables_with_idx() {
        for row in backup.rows(table) {
            let columns = table_schema.named_columns().filter(|(_, column)| !column.is_ephemeral);
            let members = columns.map(|(idx, column)| {
                let (kind, json) = (&column.kind, row.get(idx).to_json(&column.kind));
                // A pair of strings may look like a UUID.
                let mut atoms = iter::once(&kind.key).chain(&kind.value);
                let json = match atoms.any(|atom| atom.kind == AtomType::Uuid) {
                    true => by_name(json, &uuids),
                    false => json,
                };
                (column.name.clone(), json)
            });
            operations.push(json!({
                "op": "insert", "table": table_schema.name, "uuid-name": symbol(&row.uuid().to_string()),
                "row": members.collect::<Map<String, Value>>(),
            }));
        }
    }
    operations.push(json!({"op": "comment", "comment": "ovsdb-client restore"}));
    Value::Array(operations)
}

fn symbol(uuid: &str) -> String {
    format!("row{}", uuid.replace('-', "_"))
}

/// The same JSON with `["named-uuid", …]` for the UUIDs of rows that are inserted.
fn by_name(json: Value, uuids: &BTreeSet<String>) -> Value {
    let Value::Array(elements) = json else { return json };
    match &elements[..] {
        [Value::String(class), Value::String(uuid)] if class == "uuid" && uuids.contains(uuid) => {
            debug_assert!(Uuid::parse(uuid).is_some());
            json!(["named-uuid", symbol(uuid)])
        }
        _ => Value::Array(elements.into_iter().map(|element| by_name(element, uuids)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_restored_by_name_and_pairs_that_look_like_them_as_they_are() {
        let (bridge, root) = ("12345678-1234-4234-8234-123456789abc", "22345678-1234-4234-8234-123456789abc");
        let record = json!({
            "Bridge": {bridge: {"name": "br0", "external_ids": ["map", [["uuid", bridge]]]}},
            "Open_vSwitch": {root: {"bridges": ["uuid", bridge]}},
        });
        let mut backup = Database::new(Schema::open_vswitch());
        let mut ids = UuidGenerator::from_seed(0);
        let body = record.to_string();
        transaction::apply(&mut backup, body.as_bytes(), &mut ids).unwrap();
        let operations = replace_all("Open_vSwitch", &backup, backup.schema());
        let row = |table: &str| {
            let is_insert = |op: &&Value| op["op"] == "insert" && op["table"] == table;
            operations.as_array().unwrap().iter().find(is_insert).unwrap()["row"].clone()
        };
        let name = symbol(bridge);
        assert_eq!(row("Open_vSwitch")["bridges"], json!(["named-uuid", name]));
        assert_eq!(row("Bridge")["external_ids"], json!(["map", [["uuid", bridge]]]));
    }
}

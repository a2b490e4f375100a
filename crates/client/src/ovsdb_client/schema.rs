//! Databases and their schemas.

use crate::ctl::table::{Cell, Table};
use base::suggest;
use ovsdb::{ColumnSchema, Schema, TableSchema};
use serde_json::{Value, json};

use super::call::{Call, print};

pub(super) async fn list_dbs(call: &mut Call<'_>) -> Result<(), String> {
    for name in call.server.list_dbs().await? {
        print(&format!("{name}\n"));
    }
    Ok(())
}

pub(super) async fn get_schema(call: &mut Call<'_>) -> Result<(), String> {
    let schema = call.server.schema(&call.database).await?;
    call.print_json(&schema.to_json());
    Ok(())
}

pub(super) async fn get_schema_version(call: &mut Call<'_>) -> Result<(), String> {
    let schema = call.server.schema(&call.database).await?;
    print(&format!("{}\n", schema.version));
    Ok(())
}

pub(super) async fn get_schema_cksum(call: &mut Call<'_>) -> Result<(), String> {
    let schema = call.server.schema(&call.database).await?;
    print(&format!("{}\n", schema.cksum.unwrap_or_default()));
    Ok(())
}

pub(super) async fn list_tables(call: &mut Call<'_>) -> Result<(), String> {
    let schema = call.server.schema(&call.database).await?;
    call.print_table(&Table {
        headings: vec!["Table".into()],
        rows: schema.tables().iter().map(|table| vec![Cell::Text(table.name.clone())]).collect(),
        ..Table::default()
    });
    Ok(())
}

pub(super) async fn list_columns(call: &mut Call<'_>) -> Result<(), String> {
    let schema = call.server.schema(&call.database).await?;
    let only = call.args.first();
    let mut table = Table { headings: vec!["Column".into(), "Type".into()], ..Table::default() };
    if only.is_none() {
        table.headings.insert(0, "Table".into());
    }
    for of in schema.tables().iter().filter(|table| only.is_none_or(|name| *name == table.name)) {
        for column in of.columns() {
            let mut row = vec![Cell::Text(column.name.clone()), Cell::Json(column.kind.to_json())];
            if only.is_none() {
                row.insert(0, Cell::Text(of.name.clone()));
            }
            table.rows.push(row);
        }
    }
    call.print_table(&table);
    Ok(())
}

/// The schema in the file that is the last argument.
fn read_schema(call: &Call<'_>) -> Result<(Schema, Value), String> {
    let path = &call.args[0];
    let failed = |error: String| format!("failed to read schema: {error}");
    let text = std::fs::read_to_string(path).map_err(|error| {
        let reason = transport::reason(&error);
        failed(format!("\"{path}\" could not be read as JSON (error opening \"{path}\": {reason})"))
    })?;
    let json: Value = serde_json::from_str(&text)
        .map_err(|error| failed(format!("\"{path}\" could not be read as JSON ({error})")))?;
    let schema = Schema::from_json(&json).map_err(|error| failed(error.to_string()))?;
    Ok((schema, json))
}

pub(super) async fn convert(call: &mut Call<'_>) -> Result<(), String> {
    let (schema, json) = read_schema(call)?;
    if call.global.change_aware != Some(false) {
        call.server.try_call("set_db_change_aware", json!([true])).await?.ok();
    }
    call.server.call("convert", json!([schema.name, json])).await?;
    Ok(())
}

pub(super) async fn needs_conversion(call: &mut Call<'_>) -> Result<(), String> {
    let (wanted, _) = read_schema(call)?;
    let has = call.server.schema(&wanted.name).await?;
    let differs = has.to_json() != wanted.to_json();
    print(if differs { "yes\n" } else { "no\n" });
    Ok(())
}

/// The table of that name. The error names the nearest one.
pub(super) fn table_named<'a>(
    schema: &'a Schema,
    name: &str,
    otherwise: impl FnOnce() -> String,
) -> Result<&'a TableSchema, String> {
    let known = schema.tables().iter().map(|table| &table.name);
    let table = schema.find(name).map(|table| schema.table(table));
    table.ok_or_else(|| otherwise() + &suggest::line(name, known))
}

/// The same for a column.
pub(super) fn column_named<'a>(
    table: &'a TableSchema,
    name: &str,
    otherwise: impl FnOnce() -> String,
) -> Result<&'a ColumnSchema, String> {
    let known = table.columns().iter().map(|column| &column.name);
    let column = table.find(name).map(|column| table.column(column));
    column.ok_or_else(|| otherwise() + &suggest::line(name, known))
}

/// Follows the server's own database until the state is there.
pub(super) async fn wait(call: &mut Call<'_>) -> Result<(), String> {
    let [database, state] = call.args else { return Ok(()) };
    if !matches!(state.as_str(), "added" | "connected" | "removed") {
        return Err(format!("{state}: unknown state"));
    }
    let columns = json!({"Database": [{"columns": ["name", "connected"]}]});
    let mut rows = std::collections::BTreeMap::new();
    let mut updates = call.server.call("monitor", json!(["_Server", "wait", columns])).await?;
    loop {
        for (uuid, update) in updates.get("Database").and_then(Value::as_object).into_iter().flatten() {
            match update.get("new") {
                Some(new) => rows.insert(uuid.clone(), new.clone()),
                None => rows.remove(uuid),
            };
        }
        let found = rows.values().find(|row| row["name"] == database.as_str());
        let is_there = match (state.as_str(), found) {
            ("removed", found) => found.is_none(),
            ("connected", Some(row)) => row["connected"] == true,
            (_, found) => found.is_some(),
        };
        if is_there {
            return Ok(());
        }
        let (_, params) = call.server.notification().await?;
        updates = params.get(1).cloned().unwrap_or_default();
    }
}

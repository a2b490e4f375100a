//! Follows rows: the first ones as a table, then a table for each change.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::ctl::table::{Cell, Table};
use ovsdb::{ColumnSchema, Datum, Schema, TableSchema, Uuid};
use serde_json::{Map, Value, json};

use super::call::{Call, print};
use super::control::{self, Control, Next};
use super::rpc::Heard;
use super::schema::{column_named, table_named};

/// The columns of a table that are monitored.
struct Followed<'a> {
    table: &'a TableSchema,
    /// In display order.
    columns: Vec<&'a ColumnSchema>,
    request: Value,
}

pub(super) async fn run(call: &mut Call<'_>, command: &str) -> Result<(), String> {
    let schema = call.server.schema(&call.database).await?;
    let mut words = call.args;
    let mut last_id = Uuid::ZERO;
    if command == "monitor-cond-since"
        && let Some(id) = Uuid::parse(&words[0])
    {
        last_id = id;
        words = &words[1..];
    }
    let mut conditions = None;
    if command != "monitor" {
        let text = &words[0];
        let json: Value = serde_json::from_str(text).map_err(|error| format!("\"{text}\": {error}"))?;
        conditions = Some(json);
        words = &words[1..];
    }
    let Some((table, groups)) = words.split_first() else {
        return Err(format!("invalid syntax for '{command}' (use --help for help)"));
    };
    let all = table == "ALL";
    let mut followed = Vec::new();
    if all && conditions.is_some() {
        return Err("ALL tables are not allowed with condition".into());
    } else if all {
        for table in schema.tables() {
            followed.push(follow(call, table, groups, None)?);
        }
    } else {
        let found = table_named(&schema, table, || {
            format!("{}: {} does not have a table named \"{table}\"", call.server.method, call.database)
        })?;
        followed.push(follow(call, found, groups, conditions.as_ref())?);
    }
    follow_changes(call, command, &followed, all, last_id, &schema).await
}

/// The columns and the monitor request for `groups` of columns; all columns if there are none.
fn follow<'a>(
    call: &Call<'_>,
    table: &'a TableSchema,
    groups: &[String],
    conditions: Option<&Value>,
) -> Result<Followed<'a>, String> {
    let mut columns: Vec<&ColumnSchema> = Vec::new();
    let mut requests = Vec::new();
    let everything = [String::new()];
    for group in if groups.is_empty() { &everything } else { groups } {
        let mut select = Map::new();
        let mut names = Vec::new();
        for word in group.split([',', ' ']).filter(|word| !word.is_empty()) {
            if let Some(kind) = word.strip_prefix('!')
                && matches!(kind, "initial" | "insert" | "delete" | "modify")
            {
                select.insert(kind.to_owned(), Value::Bool(false));
                continue;
            }
            names.push(column_named(table, word, || {
                format!(
                    "{}: table \"{}\" in {} does not have a column named \"{word}\"",
                    call.server.method, table.name, call.database
                )
            })?);
        }
        if names.is_empty() {
            names = table.named_columns().map(|(_, column)| column).collect();
            names.extend(table.columns().iter().filter(|column| column.name == "_version"));
        }
        for column in &names {
            if columns.iter().any(|known| known.name == column.name) {
                return Err(format!(
                    "{}: column \"{}\" mentioned multiple times",
                    call.server.method, column.name
                ));
            }
            columns.push(column);
        }
        let names: Vec<&str> = names.iter().map(|column| column.name.as_str()).collect();
        let mut request = json!({"columns": names, "select": select});
        if let Some(conditions) = conditions {
            request["where"] = conditions.clone();
        }
        requests.push(request);
    }
    Ok(Followed { table, columns, request: Value::Array(requests) })
}

async fn follow_changes(
    call: &mut Call<'_>,
    command: &str,
    followed: &[Followed<'_>],
    captions: bool,
    last_id: Uuid,
    schema: &Schema,
) -> Result<(), String> {
    if call.global.change_aware != Some(false) {
        // A server that does not know it disconnects us when the schema changes.
        call.server.try_call("set_db_change_aware", json!([true])).await?.ok();
    }
    let requests: Map<String, Value> =
        followed.iter().map(|followed| (followed.table.name.clone(), followed.request.clone())).collect();
    let mut params = json!([schema.name, Value::Null, requests]);
    let method = command.replace('-', "_");
    if command == "monitor-cond-since" {
        params.as_array_mut().expect("it was just made").push(Value::from(last_id.to_string()));
    }
    let reply = call.server.call(&method, params).await?;
    let updates = match (command, reply.as_array().map(Vec::as_slice)) {
        ("monitor-cond-since", Some([found, last, updates])) => {
            let last = last.as_str().unwrap_or_default();
            print(&format!("found: {found}, last_id: {last}\n"));
            updates.clone()
        }
        ("monitor-cond-since", _) => return Err("<result> should have 3 elements".into()),
        _ => reply,
    };
    show(call, followed, captions, &updates, true)?;
    let mut control = Control::start(call.detached, control::MONITOR)?;
    call.daemon.complete();
    loop {
        let (method, params) = match call.server.hear(&mut control).await? {
            Heard::Notification(method, params) => (method, params),
            Heard::Reply(_) => continue,
            Heard::Asked(asked) => match call.server.obey(&mut control, asked).await? {
                Next::GoOn => continue,
                Next::End => return Ok(()),
            },
        };
        let params = params.as_array().map(Vec::as_slice).unwrap_or_default();
        match (method.as_str(), params) {
            ("update" | "update2", [Value::Null, updates]) => show(call, followed, captions, updates, false)?,
            ("update3", [Value::Null, last, updates]) => {
                print(&format!("\nlast_id: {}", last.as_str().unwrap_or_default()));
                show(call, followed, captions, updates, false)?;
            }
            ("monitor_canceled", _) => {
                return Err(format!("{}: {} database was removed", call.server.method, call.database));
            }
            _ => {}
        }
    }
}

fn show(
    call: &mut Call<'_>,
    followed: &[Followed<'_>],
    captions: bool,
    updates: &Value,
    is_first: bool,
) -> Result<(), String> {
    let updates = updates.as_object().ok_or("<table-updates> is not object")?;
    let timestamp = call.global.timestamp.then(now);
    for followed in followed {
        let Some(rows) = updates.get(&followed.table.name) else { continue };
        let rows = rows
            .as_object()
            .ok_or_else(|| format!("<table-update> for table {} is not object", followed.table.name))?;
        let mut headings = vec!["row".to_owned(), "action".to_owned()];
        headings.extend(followed.columns.iter().map(|column| column.name.clone()));
        let mut table = Table {
            caption: captions.then(|| followed.table.name.clone()),
            timestamp: timestamp.clone(),
            headings,
            rows: Vec::new(),
        };
        let sorted: BTreeMap<&String, &Value> = rows.iter().collect();
        for (uuid, update) in sorted {
            for (title, action, row) in actions(update, is_first) {
                let title = if title { uuid.clone() } else { String::new() };
                let mut cells = vec![Cell::Text(title), Cell::Text(action.to_owned())];
                for column in &followed.columns {
                    cells.push(match row.and_then(|row| row.get(&column.name)) {
                        None => Cell::Nothing,
                        Some(json) => Datum::from_json_any_size(json, &column.kind, None)
                            .map(|datum| Cell::Datum(datum, column.kind.clone()))
                            .map_err(|error| error.to_string())?,
                    });
                }
                table.rows.push(cells);
            }
        }
        call.print_table(&table);
    }
    Ok(())
}

/// The contents of an update: whether the line has the row's name, what happened, and the columns.
fn actions(update: &Value, is_first: bool) -> Vec<(bool, &'static str, Option<&Value>)> {
    match (update.get("old"), update.get("new")) {
        (Some(old), Some(new)) => return vec![(true, "old", Some(old)), (false, "new", Some(new))],
        (None, Some(new)) => return vec![(true, if is_first { "initial" } else { "insert" }, Some(new))],
        (Some(old), None) => return vec![(true, "delete", Some(old))],
        (None, None) => {}
    }
    ["initial", "insert", "modify", "delete"]
        .into_iter()
        .filter_map(|action| update.get(action).map(|row| (true, action, Some(row))))
        .collect()
}

/// The time of day as the stock client prints it, in UTC.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days as i64);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{:03}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

/// Year, month and day of a day counted from 1970-01-01, by the calendar of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_are_dates() {
        for (days, date) in
            [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (20_778, (2026, 11, 21))]
        {
            assert_eq!(civil(days), date);
        }
    }
}

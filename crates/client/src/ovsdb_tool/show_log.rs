//! `show-log`: the records of a database's log, for people.

use super::commands::{open_db, open_failure};
use super::outcome::{Failure, Outcome, Settings, default_db, show};
use host::log::os_text;
use ovsdb::log::{Damage, DamageKind, Magic, ReadError, Reader, transaction};
use ovsdb::storage::{self, OpenError};
use ovsdb::{Datum, Schema, TableSchema, text};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;

/// Names of rows, by the text of their UUIDs.
type Names = HashMap<String, String>;

pub(super) fn run(settings: &Settings, args: &[String]) -> Outcome {
    let path = args.first().map_or_else(default_db, PathBuf::from);
    let file = open_db(&path)?;
    let schema = storage::read_schema(&file).map_err(|error| match error {
        OpenError::Clustered => {
            Failure::Error(format!("{}: clustered databases are not supported", path.display()))
        }
        error => open_failure(&path, &error),
    })?;
    let failed = |kind: &str, text: String| Failure::Error(format!("{kind}: {}: {text}", path.display()));
    let mut reader = Reader::new(&file)
        .map_err(|error| failed("I/O error", format!("open failed ({})", os_text(&error))))?;
    let mut names = Names::new();
    for index in 0.. {
        let record = match reader.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(ReadError::Damaged(damage)) => return Err(failed(kind(&damage), damage.to_string())),
            Err(ReadError::Io { offset, error }) => {
                return Err(failed(
                    "I/O error",
                    format!("error reading at offset {offset} ({})", os_text(&error)),
                ));
            }
        };
        if record.magic != Magic::Standalone {
            return Err(failed("ovsdb error", "a record of a clustered database".to_owned()));
        }
        let text = match index {
            0 => schema_text(&schema),
            _ => {
                let bytes = record.body.len();
                let at = record.body_offset;
                let not_json = |error: String| {
                    failed(
                        "syntax error",
                        format!("{bytes} bytes starting at offset {at} are not valid JSON ({error})"),
                    )
                };
                let body: Map<String, Value> = serde_json::from_str(&transaction::text(record.body))
                    .map_err(|error| not_json(error.to_string()))?;
                let summary =
                    transaction::summary(record.body).map_err(|error| not_json(error.to_string()))?;
                record_text(index, &body, &summary, &schema, settings.verbosity, &mut names)
            }
        };
        show(&text)?;
    }
    Ok(())
}

fn kind(damage: &Damage) -> &'static str {
    match damage.kind {
        DamageKind::Short { .. } => "I/O error",
        DamageKind::Header { .. } | DamageKind::Hash { .. } => "syntax error",
    }
}

fn schema_text(schema: &Schema) -> String {
    let cksum = schema.cksum.as_deref().unwrap_or_default();
    format!("record 0: \"{}\" schema, version=\"{}\", cksum=\"{cksum}\"\n\n", schema.name, schema.version)
}

fn record_text(
    index: u64,
    body: &Map<String, Value>,
    summary: &transaction::Summary,
    schema: &Schema,
    verbosity: u32,
    names: &mut Names,
) -> String {
    let mut out = format!("record {index}:");
    if let Some(date_ms) = summary.date_ms {
        let _ = write!(out, " {}", date(date_ms));
    }
    if let Some(comment) = &summary.comment {
        let _ = write!(out, " \"{comment}\"");
    }
    out.push('\n');
    if verbosity == 0 {
        return out;
    }
    let start = out.len();
    for (table, rows) in body.iter().filter(|(name, _)| !name.starts_with('_')) {
        let of = schema.find(table).map(|idx| schema.table(idx));
        for (uuid, row) in rows.as_object().into_iter().flatten() {
            row_text(&mut out, (table, uuid), row, of, summary.is_diff, verbosity, names);
        }
    }
    if out.len() > start {
        out.push('\n');
    }
    out
}

fn row_text(
    out: &mut String,
    (table, uuid): (&str, &str),
    row: &Value,
    of: Option<&TableSchema>,
    is_diff: bool,
    verbosity: u32,
    names: &mut Names,
) {
    let short = uuid.get(..8).unwrap_or(uuid);
    let given = row["name"].as_str().map(|name| format!("\"{name}\""));
    match (names.get(uuid), &given) {
        (Some(name), _) => {
            let diff = if is_diff { " diff" } else { "" };
            let _ = writeln!(out, "  table {table} row {name} ({short}){diff}:");
        }
        (None, Some(name)) => drop(writeln!(out, "  table {table} insert row {name} ({short}):")),
        (None, None) => drop(writeln!(out, "  table {table} insert row {short}:")),
    }
    if row.is_null() {
        out.push_str("    delete row\n");
        names.remove(uuid);
        return;
    }
    match given {
        Some(name) => drop(names.insert(uuid.to_owned(), name)),
        None => drop(names.entry(uuid.to_owned()).or_insert_with(|| short.to_owned())),
    }
    if verbosity < 2 {
        return;
    }
    for (column, value) in row.as_object().into_iter().flatten() {
        let _ = writeln!(out, "    {column}={}", value_text(value, of, column));
    }
}

/// A value as the stock tools print it if the schema knows its type, else its JSON.
fn value_text(value: &Value, of: Option<&TableSchema>, column: &str) -> String {
    let kind = of.and_then(|table| table.find(column).map(|idx| &table.column(idx).kind));
    let read = kind.and_then(|kind| Some((Datum::from_json_any_size(value, kind, None).ok()?, kind)));
    match read {
        Some((datum, kind)) => text::Printed(&datum, kind).to_string(),
        None => value.to_string(),
    }
}

/// A time in UTC, from milliseconds since 1970: `2026-01-31 12:00:00.123`.
fn date(ms: u64) -> String {
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar from days, in years that begin in March and eras of 400 of them (H. Hinnant,
    // "chrono-Compatible Low-Level Date Algorithms").
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00.000");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00:00.000");
        assert_eq!(date(1_795_290_969_782), "2026-11-21 19:56:09.782");
        assert_eq!(date(4_107_542_399_999), "2100-02-28 23:59:59.999");
        assert_eq!(date(4_107_542_400_000), "2100-03-01 00:00:00.000");
    }
}

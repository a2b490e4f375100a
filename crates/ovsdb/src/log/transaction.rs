//! Transactions as records of a log: encodes a committed transaction, and replays a record.
//!
//! A record is `{TABLE: {UUID: ROW or null}, "_date": ms, "_comment": text, "_is_diff": true}`. A new row has
//! its columns except those with their default; null deletes a row; a changed row has the changed columns:
//! with `_is_diff` as differences (for columns that may have more than one element, see
//! [`Datum::symmetric_difference`]), without it as their new values. Ephemeral columns are left out. We write
//! differences, as the stock server does since 2.16, unless one might have more elements than its column may:
//! version 3.1 does not read such a file, not even its own. We read both.
//!
//! Rows are encoded directly to bytes and decoded directly from them, without a tree of JSON between: a file
//! of 100,000 rows is one record of tens of megabytes.
//!
//! Source: ovsdb(5), "Standalone Format".

mod read;
mod write;

pub use write::{Note, Values, encode, encode_schema, encode_snapshot};

use crate::database::Database;
use crate::error::Error;
use crate::uuid::UuidGenerator;
use read::{Members, Rows};
use serde::de::DeserializeSeed;
use std::borrow::Cow;

/// Replays a recorded transaction. Constraints between rows are not checked: they were when it was committed.
///
/// # Errors
/// What is wrong with the record: JSON, a name, a value, or a row that it deletes and that does not exist.
/// Part of it may then be in `database`.
pub fn apply(database: &mut Database, body: &[u8], ids: &mut UuidGenerator) -> Result<(), Error> {
    let text = text(body);
    let members: Members<'_> = serde_json::from_str(&text).map_err(json_error)?;
    let is_diff = match members.meta("_is_diff") {
        None => false,
        Some(value) => serde_json::from_str(value.get()).map_err(json_error)?,
    };
    for (name, rows) in &members.0 {
        if name.starts_with('_') {
            continue; // What is not a table is for people, and later versions may add some.
        }
        let Some(table) = database.schema().find(name) else {
            return Err(Error::new("unknown table", format!("No table named {name}.")));
        };
        let schema = database.schema().clone();
        let mut seed = serde_json::Deserializer::from_str(rows.get());
        let table = Rows { table, schema: schema.table(table), database, ids, is_diff };
        table.deserialize(&mut seed).map_err(json_error)?;
    }
    Ok(())
}

/// The parts of a record that are read without its rows, for `show-log` and the like.
#[derive(Debug, Default)]
pub struct Summary {
    /// `_date`, in milliseconds since 1970.
    pub date_ms: Option<u64>,
    /// `_comment`.
    pub comment: Option<String>,
    /// `_is_diff`.
    pub is_diff: bool,
}

/// Reads what a record says besides its rows. Members of another type than they should be count as absent.
pub fn summary(body: &[u8]) -> Result<Summary, Error> {
    let text = text(body);
    let members: Members<'_> = serde_json::from_str(&text).map_err(json_error)?;
    let date = members.meta("_date").and_then(|value| serde_json::from_str::<u64>(value.get()).ok());
    Ok(Summary {
        // Before milliseconds there were seconds, which are smaller.
        date_ms: date.map(|date| if date < 1 << 32 { date * 1000 } else { date }),
        comment: members.meta("_comment").and_then(|value| serde_json::from_str(value.get()).ok()),
        is_diff: members.meta("_is_diff").is_some_and(|value| value.get() == "true"),
    })
}

/// A record as text. The stock server writes into a comment whatever the command line of a client had; rows
/// it takes only with strings in UTF-8.
pub fn text(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(body)
}

fn json_error(error: serde_json::Error) -> Error {
    // Errors of ours come through serde as text; positions within a table's rows would mislead.
    Error::new("syntax error", error.to_string())
}

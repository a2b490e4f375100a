//! `column[:key]` with or without an operator and a value, as arguments of `get`, `set`, `find` and
//! `wait-until` have it.

use super::command::{Context, Stop};
use super::names;
use ovsdb::text::word;
use ovsdb::{Atom, ColumnIdx, Datum, Row, Schema, TableIdx};

/// The operators of `find` and `wait-until`.
pub const OPERATORS: &[&str] =
    &["=", "!=", "<", ">", "<=", ">=", "{=}", "{!=}", "{<}", "{>}", "{<=}", "{>=}", "{in}", "{not-in}"];

/// An argument in its parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// The column as written.
    pub column: &'a str,
    /// After a colon.
    pub key: Option<&'a str>,
    /// The operator, and the text that follows it.
    pub value: Option<(&'static str, &'a str)>,
}

/// Splits an argument. If there are `operators`, one of them must follow with a value; otherwise nothing may
/// follow.
pub fn split<'a>(text: &'a str, operators: &'static [&'static str]) -> Result<Argument<'a>, String> {
    let (column, mut rest) = word(text)?;
    if column.is_empty() {
        return Err(format!("{text}: missing column name"));
    }
    let mut key = None;
    if let Some(after) = rest.strip_prefix(':') {
        let (found, after) = word(after)?;
        key = Some(found);
        rest = after;
    }
    if operators.is_empty() {
        return match rest {
            "" => Ok(Argument { column, key, value: None }),
            _ => Err(format!("{text}: trailing garbage \"{rest}\" in argument")),
        };
    }
    let found = operators.iter().filter(|operator| rest.starts_with(**operator)).max_by_key(|o| o.len());
    match found.map(|operator| (*operator, &rest[operator.len()..])) {
        Some((operator, value)) if !value.is_empty() => {
            Ok(Argument { column, key, value: Some((operator, value)) })
        }
        _ => Err(format!("{text}: argument does not end in {} followed by a value.", either(operators))),
    }
}

fn either(operators: &[&str]) -> String {
    match operators {
        [only] => format!("\"{only}\""),
        [rest @ .., last] => {
            let quoted: Vec<String> = rest.iter().map(|operator| format!("\"{operator}\"")).collect();
            format!("{}, or \"{last}\"", quoted.join(", "))
        }
        [] => String::new(),
    }
}

/// An argument and its column.
pub fn split_for<'a>(
    schema: &Schema,
    table: TableIdx,
    text: &'a str,
    operators: &'static [&'static str],
) -> Result<(ColumnIdx, Argument<'a>), String> {
    let argument = split(text, operators)?;
    Ok((names::column(schema, table, argument.column)?, argument))
}

/// Whether `row` satisfies the condition `text`. Names in values are those of the run.
pub fn holds(ctx: &mut Context<'_>, table: TableIdx, row: &Row, text: &str) -> Result<bool, Stop> {
    let schema = ctx.schema();
    let (idx, argument) = split_for(&schema, table, text, OPERATORS)?;
    let column = schema.table(table).column(idx);
    let (operator, value) = argument.value.expect("an operator was required");
    let held = row.get(idx);
    let Some(key) = argument.key else {
        let wanted = ctx.parse(value, &column.kind)?;
        return Ok(compare(operator, held, &wanted));
    };
    let Some(value_type) = &column.kind.value else {
        return Err(Stop::Fatal(format!("cannot specify key to check for non-map column {}", column.name)));
    };
    let key = ctx.parse_key(key, &column.kind.key)?;
    // A key's value is compared as a set.
    let set = ovsdb::ColumnType { key: value_type.clone(), value: None, min: 0, max: ovsdb::UNLIMITED };
    let wanted = ctx.parse(value, &set)?;
    match held.value_of(&key) {
        Some(held) => Ok(compare(operator, &Datum::scalar(held.clone()), &wanted)),
        None if operator.starts_with('{') => Ok(compare(operator, &Datum::EMPTY, &wanted)),
        None => Ok(false),
    }
}

fn compare(operator: &str, held: &Datum, wanted: &Datum) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = || order(held, wanted);
    match operator {
        "=" | "{=}" => held == wanted,
        "!=" | "{!=}" => held != wanted,
        "<" => order() == Less,
        ">" => order() == Greater,
        "<=" => matches!(order(), Less | Equal),
        ">=" => matches!(order(), Greater | Equal),
        "{<}" => held.len() < wanted.len() && held.is_included_in(wanted),
        "{<=}" | "{in}" => held.is_included_in(wanted),
        "{>}" => held.len() > wanted.len() && wanted.is_included_in(held),
        "{>=}" => wanted.is_included_in(held),
        "{not-in}" => held.is_excluded_from(wanted),
        _ => false,
    }
}

/// The larger set is greater; of equal size, the first difference of their elements decides, of maps first of
/// all keys.
fn order(a: &Datum, b: &Datum) -> std::cmp::Ordering {
    let keys = |datum: &Datum| datum.keys().cloned().collect::<Vec<Atom>>();
    let values = |datum: &Datum| datum.as_map().iter().map(|(_, value)| value.clone()).collect::<Vec<Atom>>();
    a.len().cmp(&b.len()).then_with(|| keys(a).cmp(&keys(b))).then_with(|| values(a).cmp(&values(b)))
}

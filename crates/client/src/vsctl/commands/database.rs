//! Commands on the rows of any table: `list`, `find`, `get`, `set`, `add`, `remove`, `clear`, `create`,
//! `destroy`, `wait-until`, `comment`.
//!
//! Source: ovs-vsctl(8), "Database Commands".

use super::command::{Context, Prepare, Stop};
use super::condition::{OPERATORS, holds, split, split_for};
use super::names;
use crate::ctl::table::{Cell, Table};
use ovsdb::text::{Atomic, Printed, word};
use ovsdb::{ColumnIdx, ColumnType, Datum, Row, Schema, TableIdx, Uuid};

/// The operator of `set` and of a new row's settings.
pub(super) const ASSIGN: &[&str] = &["="];
const NOTHING: &[&str] = &[];

/// The columns that `--columns` names, or all but `_version`.
fn shown_columns(schema: &Schema, table: TableIdx, columns: Option<&str>) -> Result<Vec<ColumnIdx>, String> {
    let Some(columns) = columns else {
        let named = schema.table(table).named_columns().map(|(column, _)| column);
        return Ok(std::iter::once(ColumnIdx::UUID).chain(named).collect());
    };
    let names: Vec<&str> = columns.split([',', ' ', '\t', '\n']).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err("must specify at least one column name".into());
    }
    names
        .into_iter()
        .map(|name| match name.eq_ignore_ascii_case("_uuid") {
            true => Ok(ColumnIdx::UUID),
            false => names::column(schema, table, name),
        })
        .collect()
}

fn prepare_shown(prepare: &mut Prepare<'_>, table: TableIdx) -> Result<(), String> {
    let columns = prepare.command.options.get("--columns").and_then(Option::as_deref);
    let columns = shown_columns(prepare.schema, table, columns)?;
    let schema = prepare.schema.table(table);
    for column in columns {
        if !column.is_internal() {
            prepare.selection.add_column(&schema.name, &schema.column(column).name);
        }
    }
    Ok(())
}

fn show_rows(ctx: &mut Context<'_>, table: TableIdx, rows: &[Row]) -> Result<(), Stop> {
    let schema = ctx.schema();
    let columns = shown_columns(&schema, table, ctx.option("--columns"))?;
    let table = schema.table(table);
    let cell = |row: &Row, column: &ColumnIdx| {
        Cell::Datum(row.get(*column).clone(), table.column(*column).kind.clone())
    };
    ctx.table = Some(Table {
        headings: columns.iter().map(|column| table.column(*column).name.clone()).collect(),
        rows: rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect(),
        ..Table::default()
    });
    Ok(())
}

pub(super) fn prepare_list(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let table = prepare.table(&prepare.command.args[0])?;
    prepare_shown(prepare, table)
}

pub(super) fn list(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let table = names::table(ctx.txn.schema(), ctx.arg(0))?;
    let must_exist = !ctx.has("--if-exists");
    let mut rows = Vec::new();
    if ctx.command.args.len() == 1 {
        rows.extend(ctx.txn.table(table).iter().cloned());
    }
    for name in &ctx.command.args[1..] {
        rows.extend(ctx.record(table, name, must_exist)?);
    }
    show_rows(ctx, table, &rows)
}

pub(super) fn prepare_find(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let table = prepare.table(&prepare.command.args[0])?;
    prepare_shown(prepare, table)?;
    prepare_arguments(prepare, table, 1, OPERATORS)
}

/// Needs the columns of the arguments from `first` on, each with one of the operators.
pub(super) fn prepare_arguments(
    prepare: &mut Prepare<'_>,
    table: TableIdx,
    first: usize,
    operators: &'static [&'static str],
) -> Result<(), String> {
    for text in &prepare.command.args[first..] {
        // A missing column is the error, whatever follows it.
        let (column, _) = word(text)?;
        if !column.is_empty() {
            prepare.column(table, column)?;
        }
        split(text, operators)?;
    }
    Ok(())
}

pub(super) fn find(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let table = names::table(ctx.txn.schema(), ctx.arg(0))?;
    let all: Vec<Row> = ctx.txn.table(table).iter().cloned().collect();
    let mut found = Vec::new();
    for row in all {
        if all_hold(ctx, table, &row, 1)? {
            found.push(row);
        }
    }
    show_rows(ctx, table, &found)
}

fn all_hold(ctx: &mut Context<'_>, table: TableIdx, row: &Row, first: usize) -> Result<bool, Stop> {
    for text in &ctx.command.args[first..] {
        if !holds(ctx, table, row, text)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn prepare_get(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let has = |option| prepare.command.options.contains_key(option);
    if has("--id") && has("--if-exists") {
        return Err("--if-exists and --id may not be specified together".into());
    }
    let table = prepare.table(&prepare.command.args[0])?;
    for text in &prepare.command.args[2..] {
        if !text.eq_ignore_ascii_case("_uuid") {
            let argument = split(text, NOTHING)?;
            prepare.column(table, argument.column)?;
        }
    }
    Ok(())
}

pub(super) fn get(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let schema = ctx.schema();
    let table = names::table(&schema, ctx.arg(0))?;
    let if_exists = ctx.has("--if-exists");
    let name = ctx.arg(1).to_owned();
    let Some(row) = ctx.record(table, &name, !if_exists)? else { return Ok(()) };
    if let Some(id) = ctx.option("--id").map(str::to_owned) {
        define_existing(ctx, &id, row.uuid())?;
    }
    for text in &ctx.command.args[2..] {
        if text.eq_ignore_ascii_case("_uuid") {
            ctx.line(row.uuid());
            continue;
        }
        let (idx, argument) = split_for(&schema, table, text, NOTHING)?;
        let column = schema.table(table).column(idx);
        ctx.txn.verify(table, row.uuid(), idx);
        let Some(key) = argument.key else {
            ctx.line(Printed(row.get(idx), &column.kind));
            continue;
        };
        if !column.kind.is_map() {
            return Err(Stop::Fatal(format!("cannot specify key to get for non-map column {}", column.name)));
        }
        let atom = ctx.parse_key(key, &column.kind.key)?;
        match row.get(idx).value_of(&atom) {
            Some(value) => ctx.line(Atomic(value)),
            None if if_exists => ctx.line(""),
            None => {
                return Err(Stop::Fatal(format!(
                    "no key \"{key}\" in {} record \"{name}\" column {}",
                    schema.table(table).name,
                    column.name
                )));
            }
        }
    }
    Ok(())
}

fn check_id(id: &str) -> Result<(), Stop> {
    match id.starts_with('@') {
        true => Ok(()),
        false => Err(Stop::Fatal(format!("row id \"{id}\" does not begin with \"@\""))),
    }
}

/// `--id` of `get`: the name stands for an existing row.
fn define_existing(ctx: &mut Context<'_>, id: &str, uuid: Uuid) -> Result<(), Stop> {
    check_id(id)?;
    let was_known = ctx.symbols.contains_key(id);
    let symbol = ctx.symbol(id);
    if symbol.is_created {
        return Err(Stop::Fatal(format!("row id \"{id}\" may only be specified on one --id option")));
    }
    if was_known {
        return Err(Stop::Fatal(format!(
            "row id \"{id}\" specified on \"get\" command was used before it was defined"
        )));
    }
    // References to it do not matter: it exists already.
    *symbol = super::command::Symbol { uuid, is_created: true, has_strong: true, has_weak: true };
    Ok(())
}

pub(super) fn prepare_set(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let table = prepare.table(&prepare.command.args[0])?;
    prepare_arguments(prepare, table, 2, ASSIGN)?;
    for text in &prepare.command.args[2..] {
        let argument = split(text, ASSIGN)?;
        prepare.column(table, argument.column)?;
    }
    Ok(())
}

/// A column that cannot be changed can be set as long as its row is not in the database.
fn check_mutable(ctx: &Context<'_>, table: TableIdx, row: Uuid, column: ColumnIdx) -> Result<(), Stop> {
    let schema = ctx.txn.schema().table(table);
    let name = &schema.column(column).name;
    match schema.column(column).is_mutable || ctx.txn.is_new(table, row) {
        true => Ok(()),
        false => Err(Stop::Fatal(format!("cannot modify read-only column {name} in table {}", schema.name))),
    }
}

pub(super) fn set(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let Some((table, row)) = row_to_change(ctx)? else { return Ok(()) };
    for text in &ctx.command.args[2..] {
        let (column, _) = split_for(&ctx.schema(), table, text, ASSIGN)?;
        check_mutable(ctx, table, row.uuid(), column)?;
        set_column(ctx, table, row.uuid(), text)?;
    }
    Ok(())
}

/// The table and row of the first two arguments.
fn row_to_change(ctx: &mut Context<'_>) -> Result<Option<(TableIdx, Row)>, Stop> {
    let table = names::table(ctx.txn.schema(), ctx.arg(0))?;
    let must_exist = !ctx.has("--if-exists");
    let name = ctx.arg(1).to_owned();
    ctx.model = None;
    Ok(ctx.record(table, &name, must_exist)?.map(|row| (table, row)))
}

/// Does what `column[:key]=value` says to a row.
pub(super) fn set_column(ctx: &mut Context<'_>, table: TableIdx, uuid: Uuid, text: &str) -> Result<(), Stop> {
    let schema = ctx.schema();
    let (idx, argument) = split_for(&schema, table, text, ASSIGN)?;
    let column = schema.table(table).column(idx);
    let (_, value) = argument.value.expect("an operator was required");
    match argument.key {
        None => {
            let datum = ctx.parse(value, &column.kind)?;
            ctx.txn.write(table, uuid, idx, datum);
        }
        Some(_) if !column.kind.is_map() => {
            return Err(Stop::Fatal(format!("cannot specify key to set for non-map column {}", column.name)));
        }
        Some(key) => {
            let pair = ctx.parse_pair(key, value, column)?;
            ctx.txn.set_pairs(table, uuid, idx, pair);
        }
    }
    Ok(())
}

pub(super) fn prepare_column(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let table = prepare.table(&prepare.command.args[0])?;
    prepare.column(table, &prepare.command.args[2])?;
    Ok(())
}

pub(super) fn add(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let Some((table, row)) = row_to_change(ctx)? else { return Ok(()) };
    let schema = ctx.schema();
    let idx = names::column(&schema, table, ctx.arg(2))?;
    check_mutable(ctx, table, row.uuid(), idx)?;
    let kind = &schema.table(table).column(idx).kind;
    let any_size = ColumnType { min: 1, max: ovsdb::UNLIMITED, ..kind.clone() };
    // Of two pairs with the same key the first counts.
    let mut datum = Datum::EMPTY;
    for text in &ctx.command.args[3..] {
        datum = datum.union(&ctx.parse(text, &any_size)?);
    }
    // The manual says that a pair whose key is there is not replaced; the stock program replaces it.
    match kind.is_map() {
        true => ctx.txn.set_pairs(table, row.uuid(), idx, datum),
        false => ctx.txn.add(table, row.uuid(), idx, datum),
    }
    let len = ctx.txn.get(table, row.uuid(), idx).len();
    if len > kind.max as usize && !ctx.is_last {
        return Err(Stop::Fatal(format!(
            "\"add\" operation would put {len} {} in column {} of table {} but the maximum number is {}",
            if kind.is_map() { "pairs" } else { "values" },
            schema.table(table).column(idx).name,
            schema.table(table).name,
            kind.max
        )));
    }
    Ok(())
}

pub(super) fn remove(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let Some((table, row)) = row_to_change(ctx)? else { return Ok(()) };
    let schema = ctx.schema();
    let idx = names::column(&schema, table, ctx.arg(2))?;
    check_mutable(ctx, table, row.uuid(), idx)?;
    let column = schema.table(table).column(idx);
    let any_size = ColumnType { min: 1, max: ovsdb::UNLIMITED, ..column.kind.clone() };
    let keys = ColumnType { value: None, ..any_size.clone() };
    let mut left = row.get(idx).clone();
    for text in &ctx.command.args[3..] {
        let gone = match ctx.parse(text, &any_size) {
            Err(_) if column.kind.is_map() => ctx.parse(text, &keys)?,
            gone => gone?,
        };
        left = left.filter(|key, value| match gone.value_of(key) {
            Some(pair) => value != Some(pair),
            None => !gone.as_set().contains(key),
        });
    }
    if left.len() < column.kind.min as usize {
        return Err(Stop::Fatal(format!(
            "\"remove\" operation would put {} {} in column {} of table {} but the minimum number is {}",
            left.len(),
            if column.kind.is_map() { "pairs" } else { "values" },
            column.name,
            schema.table(table).name,
            column.kind.min
        )));
    }
    ctx.txn.verify(table, row.uuid(), idx);
    ctx.txn.write(table, row.uuid(), idx, left);
    Ok(())
}

pub(super) fn prepare_clear(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let table = prepare.table(&prepare.command.args[0])?;
    for name in &prepare.command.args[2..] {
        prepare.column(table, name)?;
    }
    Ok(())
}

pub(super) fn clear(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let Some((table, row)) = row_to_change(ctx)? else { return Ok(()) };
    let schema = ctx.schema();
    for name in &ctx.command.args[2..] {
        let idx = names::column(&schema, table, name)?;
        check_mutable(ctx, table, row.uuid(), idx)?;
        let column = schema.table(table).column(idx);
        if column.kind.min > 0 {
            return Err(Stop::Fatal(format!(
                "\"clear\" operation cannot be applied to column {} of table {}, which is not allowed to be empty",
                column.name,
                schema.table(table).name
            )));
        }
        ctx.txn.write(table, row.uuid(), idx, Datum::EMPTY);
    }
    Ok(())
}

pub(super) fn prepare_create(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let table = prepare.table(&prepare.command.args[0])?;
    let schema = prepare.schema.table(table);
    if !prepare.command.options.contains_key("--id") && !schema.is_root {
        let text = format!(
            "applying \"create\" command to table {} without --id option will have no effect",
            schema.name
        );
        prepare.warn("db_ctl_base", text);
    }
    Ok(())
}

pub(super) fn create(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let schema = ctx.schema();
    let table = names::table(&schema, ctx.arg(0))?;
    let id = ctx.option("--id").map(str::to_owned);
    ctx.model = None;
    let wanted = id.as_deref().and_then(Uuid::parse);
    let uuid = match (&id, wanted) {
        (_, Some(wanted)) => wanted,
        (None, _) => ctx.uuids.next_uuid(),
        (Some(id), None) => {
            check_id(id)?;
            let symbol = ctx.symbol(id);
            if symbol.is_created {
                return Err(Stop::Fatal(format!("row id \"{id}\" may only be specified on one --id option")));
            }
            symbol.is_created = true;
            // Rows of a root table stay without a reference.
            symbol.has_strong |= schema.table(table).is_root;
            symbol.uuid
        }
    };
    match wanted {
        Some(_) => ctx.txn.insert_with_uuid(table, uuid),
        None => ctx.txn.insert(table, uuid),
    }
    for text in &ctx.command.args[1..] {
        set_column(ctx, table, uuid, text)?;
    }
    ctx.created = Some(uuid);
    Ok(())
}

pub(super) fn prepare_destroy(prepare: &mut Prepare<'_>) -> Result<(), String> {
    prepare.table(&prepare.command.args[0])?;
    let has = |option| prepare.command.options.contains_key(option);
    let has_records = prepare.command.args.len() > 1;
    if has("--all") && has_records {
        return Err("--all and records argument should not be specified together".into());
    }
    if has("--all") && has("--if-exists") {
        return Err("--all and --if-exists should not be specified together".into());
    }
    if !has("--all") && !has_records {
        let text = "either --all or records argument should be specified";
        prepare.warn("db_ctl_base", text.into());
    }
    Ok(())
}

pub(super) fn destroy(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let table = names::table(ctx.txn.schema(), ctx.arg(0))?;
    ctx.model = None;
    if ctx.has("--all") {
        let all: Vec<Uuid> = ctx.txn.table(table).iter().map(Row::uuid).collect();
        all.into_iter().for_each(|uuid| ctx.txn.delete(table, uuid));
    }
    let must_exist = !ctx.has("--if-exists");
    for name in &ctx.command.args[1..] {
        if let Some(row) = ctx.record(table, name, must_exist)? {
            ctx.txn.delete(table, row.uuid());
        }
    }
    Ok(())
}

pub(super) fn prepare_wait_until(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let table = prepare.table(&prepare.command.args[0])?;
    prepare_arguments(prepare, table, 2, OPERATORS)
}

pub(super) fn wait_until(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let table = names::table(ctx.txn.schema(), ctx.arg(0))?;
    let name = ctx.arg(1).to_owned();
    match ctx.record(table, &name, false)? {
        Some(row) if all_hold(ctx, table, &row, 2)? => Ok(()),
        _ => Err(Stop::TryAgain),
    }
}

pub(super) fn prepare_nothing(_: &mut Prepare<'_>) -> Result<(), String> {
    Ok(())
}

/// The arguments of every command are in the transaction's comment anyway.
pub(super) fn comment(_: &mut Context<'_>) -> Result<(), Stop> {
    Ok(())
}

//! `show`: the configuration as a tree, from the root row down.
//!
//! Source: ovs-vsctl(8), "show".

use super::command::{Context, Prepare, Stop};
use ovsdb::text::Printed;
use ovsdb::{Atom, Datum, TableIdx, Uuid};

/// Tables, what their rows are called by, and the columns that are shown.
const SHOWN: &[(&str, Option<&str>, &[&str])] = &[
    ("Open_vSwitch", None, &["manager_options", "bridges", "ovs_version"]),
    ("Bridge", Some("name"), &["controller", "fail_mode", "datapath_type", "ports"]),
    ("Port", Some("name"), &["tag", "trunks", "interfaces"]),
    ("Interface", Some("name"), &["type", "options", "error"]),
    ("Controller", Some("target"), &["is_connected"]),
    ("Manager", Some("target"), &["is_connected"]),
];

pub(super) fn prepare(prepare: &mut Prepare<'_>) -> Result<(), String> {
    for (table, name, columns) in SHOWN {
        prepare.need(table, columns);
        if let Some(name) = name {
            prepare.need(table, &[name]);
        }
    }
    Ok(())
}

pub(super) fn show(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let table = ctx.table_idx("Open_vSwitch")?;
    let rows: Vec<Uuid> = ctx.txn.table(table).iter().map(ovsdb::Row::uuid).collect();
    let mut path = Vec::new();
    for uuid in rows {
        show_row(ctx, table, uuid, 0, &mut path)?;
    }
    Ok(())
}

fn show_row(
    ctx: &mut Context<'_>,
    table: TableIdx,
    uuid: Uuid,
    depth: usize,
    path: &mut Vec<&'static str>,
) -> Result<(), Stop> {
    let schema = ctx.schema();
    let table_schema = schema.table(table);
    let Some((name, name_column, columns)) = SHOWN.iter().find(|(name, ..)| *name == table_schema.name)
    else {
        return Ok(());
    };
    let indent = depth * 4;
    match name_column {
        None => ctx.line(format_args!("{:indent$}{uuid}", "")),
        Some(column) => {
            let (_, column) = ctx.column_idx(name, column)?;
            let title = Printed(ctx.txn.get(table, uuid, column), &table_schema.column(column).kind);
            let title = title.to_string();
            ctx.line(format_args!("{:indent$}{name} {title}", ""));
        }
    }
    path.push(name);
    for column in *columns {
        let Some(idx) = table_schema.find(column) else { continue };
        let column_schema = table_schema.column(idx);
        let datum = ctx.txn.get(table, uuid, idx).clone();
        let below = column_schema.references.first().filter(|reference| {
            let below = schema.table(reference.table).name.as_str();
            !path.contains(&below) && SHOWN.iter().any(|(name, ..)| *name == below)
        });
        if let Some(reference) = below {
            for child in datum.keys().filter_map(Atom::as_uuid) {
                if ctx.txn.row(reference.table, child).is_some() {
                    show_row(ctx, reference.table, child, depth + 1, path)?;
                }
            }
        } else if !is_default(&datum, &column_schema.default) {
            let text = Printed(&datum, &column_schema.kind).to_string();
            ctx.line(format_args!("{:1$}{column}: {text}", "", indent + 4));
        }
    }
    path.pop();
    Ok(())
}

fn is_default(datum: &Datum, default: &Datum) -> bool {
    datum == default
}

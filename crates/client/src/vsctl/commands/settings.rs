//! Controllers, managers, the fail mode, TLS, and the mappings of Auto-Attach.

use super::command::{Context, Prepare, Stop};
use ovsdb::{Datum, Row, Uuid};

pub(super) fn prepare_controllers(prepare: &mut Prepare<'_>) -> Result<(), String> {
    super::bridges::prepare(prepare)?;
    prepare.need("Controller", &["target", "inactivity_probe"]);
    Ok(())
}

pub(super) fn get_controller(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.bridge(&name)?;
    ctx.verify("Bridge", bridge.row, "controller")?;
    print_targets(ctx, "Bridge", bridge.row, "controller", "Controller")
}

fn print_targets(ctx: &mut Context<'_>, table: &str, row: Uuid, column: &str, to: &str) -> Result<(), Stop> {
    let mut targets = Vec::new();
    for uuid in ctx.references(table, row, column)? {
        ctx.verify(to, uuid, "target")?;
        targets.push(ctx.string(to, uuid, "target")?);
    }
    targets.sort();
    targets.into_iter().for_each(|target| ctx.line(target));
    Ok(())
}

/// Replaces the rows of `to` that a column refers to by new ones for `targets`.
fn set_targets(
    ctx: &mut Context<'_>,
    (table, row, column): (&str, Uuid, &str),
    to: &str,
    targets: &[String],
) -> Result<(), Stop> {
    ctx.verify(table, row, column)?;
    for old in ctx.references(table, row, column)? {
        ctx.delete(to, old)?;
    }
    let probe = ctx.option("--inactivity-probe").map(super::zones::leading_integer);
    let mut rows = Vec::new();
    for target in targets {
        if !is_connection_method(target) {
            ctx.warn("vsctl", format!("target type \"{target}\" is possibly erroneous"));
        }
        let new = ctx.insert(to)?;
        ctx.set(to, new, "target", Datum::scalar(target.as_str()))?;
        if let Some(probe) = probe {
            ctx.set(to, new, "inactivity_probe", Datum::scalar(probe))?;
        }
        rows.push(new);
    }
    ctx.set(table, row, column, Datum::set(rows))
}

fn is_connection_method(target: &str) -> bool {
    ["tcp:", "ssl:", "unix:", "ptcp:", "pssl:", "punix:"].iter().any(|kind| target.starts_with(kind))
}

pub(super) fn del_controller(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.real_bridge(&name)?;
    if !ctx.references("Bridge", bridge.row, "controller")?.is_empty() {
        set_targets(ctx, ("Bridge", bridge.row, "controller"), "Controller", &[])?;
    }
    Ok(())
}

pub(super) fn set_controller(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.real_bridge(&name)?;
    let targets = ctx.command.args[1..].to_vec();
    set_targets(ctx, ("Bridge", bridge.row, "controller"), "Controller", &targets)
}

pub(super) fn get_fail_mode(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.bridge(&name)?;
    ctx.verify("Bridge", bridge.row, "fail_mode")?;
    let mode = ctx.string("Bridge", bridge.row, "fail_mode")?;
    if !mode.is_empty() {
        ctx.line(mode);
    }
    Ok(())
}

pub(super) fn del_fail_mode(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.real_bridge(&name)?;
    ctx.set("Bridge", bridge.row, "fail_mode", Datum::EMPTY)
}

pub(super) fn set_fail_mode(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (name, mode) = (ctx.arg(0).to_owned(), ctx.arg(1).to_owned());
    let bridge = ctx.real_bridge(&name)?;
    if !matches!(mode.as_str(), "standalone" | "secure") {
        return Err(Stop::Fatal("fail-mode must be \"standalone\" or \"secure\"".into()));
    }
    ctx.set("Bridge", bridge.row, "fail_mode", Datum::scalar(mode))
}

pub(super) fn prepare_managers(prepare: &mut Prepare<'_>) -> Result<(), String> {
    prepare.need("Open_vSwitch", &["manager_options"]);
    prepare.need("Manager", &["target", "inactivity_probe"]);
    Ok(())
}

pub(super) fn get_manager(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let root = ctx.root;
    ctx.verify("Open_vSwitch", root, "manager_options")?;
    print_targets(ctx, "Open_vSwitch", root, "manager_options", "Manager")
}

pub(super) fn del_manager(ctx: &mut Context<'_>) -> Result<(), Stop> {
    set_managers(ctx, &[])
}

pub(super) fn set_manager(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let targets = ctx.command.args.clone();
    set_managers(ctx, &targets)
}

fn set_managers(ctx: &mut Context<'_>, targets: &[String]) -> Result<(), Stop> {
    let root = ctx.root;
    // Unreferenced ones would be collected anyway, but their targets must be free at once.
    let table = ctx.table_idx("Manager")?;
    let all: Vec<Uuid> = ctx.txn.table(table).iter().map(Row::uuid).collect();
    let referred = ctx.references("Open_vSwitch", root, "manager_options")?;
    for stray in all.into_iter().filter(|uuid| !referred.contains(uuid)) {
        ctx.delete("Manager", stray)?;
    }
    set_targets(ctx, ("Open_vSwitch", root, "manager_options"), "Manager", targets)
}

pub(super) fn prepare_ssl(prepare: &mut Prepare<'_>) -> Result<(), String> {
    prepare.need("Open_vSwitch", &["ssl"]);
    prepare.need("SSL", &["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"]);
    Ok(())
}

pub(super) fn get_ssl(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let root = ctx.root;
    ctx.verify("Open_vSwitch", root, "ssl")?;
    let Some(&ssl) = ctx.references("Open_vSwitch", root, "ssl")?.first() else { return Ok(()) };
    for column in ["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"] {
        ctx.verify("SSL", ssl, column)?;
    }
    for (title, column) in
        [("Private key", "private_key"), ("Certificate", "certificate"), ("CA Certificate", "ca_cert")]
    {
        let text = ctx.string("SSL", ssl, column)?;
        ctx.line(format_args!("{title}: {text}"));
    }
    let bootstrap = ctx.get("SSL", ssl, "bootstrap_ca_cert")?.as_bool() == Some(true);
    ctx.line(format_args!("Bootstrap: {bootstrap}"));
    Ok(())
}

pub(super) fn del_ssl(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let root = ctx.root;
    for ssl in ctx.references("Open_vSwitch", root, "ssl")? {
        ctx.verify("Open_vSwitch", root, "ssl")?;
        ctx.delete("SSL", ssl)?;
        ctx.set("Open_vSwitch", root, "ssl", Datum::EMPTY)?;
    }
    Ok(())
}

pub(super) fn set_ssl(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let root = ctx.root;
    ctx.verify("Open_vSwitch", root, "ssl")?;
    for old in ctx.references("Open_vSwitch", root, "ssl")? {
        ctx.delete("SSL", old)?;
    }
    let ssl = ctx.insert("SSL")?;
    for (index, column) in ["private_key", "certificate", "ca_cert"].into_iter().enumerate() {
        let value = Datum::scalar(ctx.arg(index));
        ctx.set("SSL", ssl, column, value)?;
    }
    let bootstrap = ctx.has("--bootstrap");
    ctx.set("SSL", ssl, "bootstrap_ca_cert", Datum::scalar(bootstrap))?;
    ctx.set("Open_vSwitch", root, "ssl", Datum::scalar(ssl))
}

pub(super) fn prepare_auto_attach(prepare: &mut Prepare<'_>) -> Result<(), String> {
    super::bridges::prepare(prepare)?;
    prepare.need("Bridge", &["auto_attach"]);
    prepare.need("AutoAttach", &["mappings"]);
    Ok(())
}

fn number(text: &str) -> Result<i64, Stop> {
    text.parse().map_err(|_| Stop::Fatal(format!("Invalid argument {text}")))
}

pub(super) fn add_aa_mapping(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (isid, vlan) = (number(ctx.arg(1))?, number(ctx.arg(2))?);
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.bridge(&name)?;
    let row = match ctx.references("Bridge", bridge.row, "auto_attach")?.first() {
        Some(&row) => row,
        None => {
            let row = ctx.insert("AutoAttach")?;
            ctx.set("Bridge", bridge.row, "auto_attach", Datum::scalar(row))?;
            row
        }
    };
    let (table, column) = ctx.column_idx("AutoAttach", "mappings")?;
    ctx.txn.set_pairs(table, row, column, Datum::map([(isid, vlan)]));
    Ok(())
}

pub(super) fn del_aa_mapping(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (isid, vlan) = (number(ctx.arg(1))?, number(ctx.arg(2))?);
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.bridge(&name)?;
    if let Some(&row) = ctx.references("Bridge", bridge.row, "auto_attach")?.first() {
        ctx.remove("AutoAttach", row, "mappings", Datum::map([(isid, vlan)]))?;
    }
    Ok(())
}

pub(super) fn get_aa_mapping(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.bridge(&name)?;
    ctx.verify("Bridge", bridge.row, "auto_attach")?;
    if let Some(&row) = ctx.references("Bridge", bridge.row, "auto_attach")?.first() {
        let mappings = ctx.get("AutoAttach", row, "mappings")?.clone();
        for (isid, vlan) in mappings.as_map() {
            ctx.line(format_args!("{isid:?} {vlan:?}"));
        }
    }
    Ok(())
}

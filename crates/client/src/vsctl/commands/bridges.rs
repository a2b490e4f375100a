//! `init`, `emer-reset`, and the commands on bridges.

use super::command::{Context, Prepare, Stop};
use super::model::Bridge;
use super::zones::leading_integer;
use ovsdb::{Datum, Row, Uuid};

/// The input of the [model](super::model).
pub(super) fn prepare(prepare: &mut Prepare<'_>) -> Result<(), String> {
    prepare.need("Open_vSwitch", &["bridges"]);
    prepare.need("Bridge", &["name", "controller", "fail_mode", "ports"]);
    prepare.need("Port", &["name", "fake_bridge", "tag", "interfaces"]);
    prepare.need("Interface", &["name", "ofport", "error"]);
    Ok(())
}

/// The root row is made for every command.
pub(super) fn init(_: &mut Context<'_>) -> Result<(), Stop> {
    Ok(())
}

/// Columns that `emer-reset` clears, by table.
const CLEARED: &[(&str, &[&str])] = &[
    ("Open_vSwitch", &["manager_options", "ssl"]),
    ("Bridge", &["controller", "fail_mode", "flood_vlans", "ipfix", "mirrors", "netflow", "sflow"]),
];
/// Columns of Interface that `emer-reset` sets to 0.
const ZEROED: &[&str] = &["ingress_policing_rate", "ingress_policing_burst"];
/// Tables that `emer-reset` empties.
const EMPTIED: &[&str] = &["Mirror", "NetFlow", "sFlow", "IPFIX"];

pub(super) fn prepare_emer_reset(prepare: &mut Prepare<'_>) -> Result<(), String> {
    for (table, columns) in CLEARED {
        prepare.need(table, columns);
    }
    prepare.need("Bridge", &["other_config"]);
    prepare.need("Port", &["other_config"]);
    prepare.need("Interface", ZEROED);
    for table in EMPTIED {
        prepare.need(table, &[]);
    }
    Ok(())
}

pub(super) fn emer_reset(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let schema = ctx.schema();
    ctx.model = None;
    let rows = |ctx: &Context<'_>, table: &str| -> Vec<Uuid> {
        let table = schema.find(table);
        table.map(|table| ctx.txn.table(table).iter().map(Row::uuid).collect()).unwrap_or_default()
    };
    for (table, columns) in CLEARED {
        for row in rows(ctx, table) {
            for column in *columns {
                if !ctx.get(table, row, column)?.is_empty() {
                    ctx.set(table, row, column, Datum::EMPTY)?;
                }
            }
        }
    }
    for row in rows(ctx, "Bridge") {
        let config = ctx.get("Bridge", row, "other_config")?;
        let kept = config.filter(|key, _| key.as_str() == Some("hwaddr"));
        if kept != *config {
            ctx.set("Bridge", row, "other_config", kept)?;
        }
    }
    for row in rows(ctx, "Port") {
        if !ctx.get("Port", row, "other_config")?.is_empty() {
            ctx.set("Port", row, "other_config", Datum::EMPTY)?;
        }
    }
    for row in rows(ctx, "Interface") {
        for column in ZEROED {
            if ctx.get("Interface", row, column)?.as_integer() != Some(0) {
                ctx.set("Interface", row, column, Datum::scalar(0))?;
            }
        }
    }
    for table in EMPTIED {
        for row in rows(ctx, table) {
            ctx.delete(table, row)?;
        }
    }
    Ok(())
}

pub(super) fn add_br(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let may_exist = ctx.has("--may-exist");
    if name.is_empty() {
        return Err(Stop::Fatal("bridge name must not be empty string".into()));
    }
    let (parent, vlan) = match &ctx.command.args[1..] {
        [] => (None, 0),
        [parent, vlan] => (Some(parent.clone()), leading_integer(vlan)),
        _ => return Err(Stop::Fatal("'add-br' command takes exactly 1 or 3 arguments".into())),
    };
    if parent.is_some() && !(0..=4095).contains(&vlan) {
        return Err(Stop::Fatal("add-br: vlan must be between 0 and 4095".into()));
    }
    if may_exist && let Some(bridge) = ctx.model()?.bridges.get(&name).cloned() {
        return check_existing(&name, &bridge, parent.as_deref(), vlan);
    }
    ctx.check_conflicts(&name, &format!("cannot create a bridge named {name}"))?;

    let interface = ctx.insert("Interface")?;
    ctx.set("Interface", interface, "name", Datum::scalar(name.as_str()))?;
    ctx.set("Interface", interface, "type", Datum::scalar("internal"))?;
    ctx.new_interfaces.push(interface);
    let port = ctx.insert("Port")?;
    ctx.set("Port", port, "name", Datum::scalar(name.as_str()))?;
    ctx.set("Port", port, "interfaces", Datum::scalar(interface))?;
    match parent {
        None => {
            let bridge = ctx.insert("Bridge")?;
            ctx.set("Bridge", bridge, "name", Datum::scalar(name.as_str()))?;
            ctx.set("Bridge", bridge, "ports", Datum::scalar(port))?;
            let root = ctx.root;
            ctx.add("Open_vSwitch", root, "bridges", Datum::scalar(bridge))?;
        }
        Some(parent) => {
            let model = ctx.model()?;
            let missing = || Stop::Fatal(format!("parent bridge {parent} does not exist"));
            let bridge = model.bridges.get(&parent).cloned().ok_or_else(missing)?;
            if bridge.fake.is_some() {
                return Err(Stop::Fatal("cannot create bridge with fake bridge as parent".into()));
            }
            if let Some(other) = model.child_on(&parent, vlan) {
                return Err(Stop::Fatal(format!(
                    "bridge {parent} already has a child VLAN bridge {other} on VLAN {vlan}"
                )));
            }
            ctx.set("Port", port, "fake_bridge", Datum::scalar(true))?;
            ctx.set("Port", port, "tag", Datum::scalar(vlan))?;
            ctx.add("Bridge", bridge.row, "ports", Datum::scalar(port))?;
        }
    }
    ctx.model = None;
    Ok(())
}

/// `--may-exist`: whether what is there is what was asked for.
fn check_existing(name: &str, bridge: &Bridge, parent: Option<&str>, vlan: i64) -> Result<(), Stop> {
    let problem = match (parent, &bridge.fake) {
        (None, None) => return Ok(()),
        (None, Some(_)) => {
            format!("\"--may-exist add-br {name}\" but {name} is a VLAN bridge for VLAN {}", bridge.vlan)
        }
        (Some(parent), fake) => {
            let asked = format!("\"--may-exist add-br {name} {parent} {vlan}\" but {name}");
            match fake {
                None => format!("{asked} is not a VLAN bridge"),
                Some((other, _)) if other != parent => format!("{asked} has the wrong parent {other}"),
                Some(_) if bridge.vlan != vlan => {
                    format!("{asked} is a VLAN bridge for the wrong VLAN {}", bridge.vlan)
                }
                Some(_) => return Ok(()),
            }
        }
    };
    Err(Stop::Fatal(problem))
}

pub(super) fn del_br(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    if ctx.has("--if-exists") && !ctx.model()?.bridges.contains_key(&name) {
        return Ok(());
    }
    let bridge = ctx.bridge(&name)?;
    delete_bridge(ctx, &name, &bridge)
}

fn delete_bridge(ctx: &mut Context<'_>, name: &str, bridge: &Bridge) -> Result<(), Stop> {
    if let Some((_, own_port)) = bridge.fake {
        let ports: Vec<Uuid> =
            ctx.model()?.ports.values().filter(|port| port.bridge == name).map(|port| port.row).collect();
        for port in ports.into_iter().chain([own_port]) {
            ctx.delete_port(bridge.row, port)?;
        }
        return Ok(());
    }
    // Its ports in the database are those of its fake bridges, too.
    for port in ctx.references("Bridge", bridge.row, "ports")? {
        for interface in ctx.references("Port", port, "interfaces")? {
            ctx.delete("Interface", interface)?;
        }
        ctx.delete("Port", port)?;
    }
    let root = ctx.root;
    ctx.remove("Open_vSwitch", root, "bridges", Datum::scalar(bridge.row))?;
    ctx.delete("Bridge", bridge.row)?;
    ctx.model = None;
    Ok(())
}

pub(super) fn list_br(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (real, fake) = (ctx.has("--real"), ctx.has("--fake"));
    let bridges = ctx.model()?.bridges.clone();
    for (name, bridge) in bridges {
        if real == fake || fake == bridge.fake.is_some() {
            ctx.line(name);
        }
    }
    Ok(())
}

pub(super) fn br_exists(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    match ctx.model()?.bridges.contains_key(&name) {
        true => Ok(()),
        false => Err(Stop::Exit(2)),
    }
}

pub(super) fn br_to_vlan(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.bridge(&name)?;
    ctx.line(bridge.vlan);
    Ok(())
}

pub(super) fn br_to_parent(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.bridge(&name)?;
    ctx.line(bridge.fake.map_or(name, |(parent, _)| parent));
    Ok(())
}

pub(super) fn prepare_external_id(prepare: &mut Prepare<'_>) -> Result<(), String> {
    self::prepare(prepare)?;
    prepare.need("Bridge", &["external_ids"]);
    prepare.need("Port", &["external_ids"]);
    Ok(())
}

/// Where the external IDs of a bridge are: table, row, and the prefix of their keys.
fn external_ids(ctx: &mut Context<'_>) -> Result<(&'static str, Uuid, &'static str), Stop> {
    let name = ctx.arg(0).to_owned();
    let bridge = ctx.bridge(&name)?;
    Ok(match bridge.fake {
        None => ("Bridge", bridge.row, ""),
        Some((_, port)) => ("Port", port, "fake-bridge-"),
    })
}

pub(super) fn br_set_external_id(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (table, row, prefix) = external_ids(ctx)?;
    let key = format!("{prefix}{}", ctx.arg(1));
    match ctx.command.args.get(2) {
        Some(value) => {
            let (table, column) = ctx.column_idx(table, "external_ids")?;
            ctx.txn.set_pairs(table, row, column, Datum::map([(key, value.clone())]));
        }
        None => ctx.remove(table, row, "external_ids", Datum::scalar(key))?,
    }
    Ok(())
}

pub(super) fn br_get_external_id(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (table, row, prefix) = external_ids(ctx)?;
    ctx.verify(table, row, "external_ids")?;
    let ids = ctx.get(table, row, "external_ids")?.clone();
    if let Some(key) = ctx.command.args.get(1) {
        if let Some(value) = ids.get(&format!("{prefix}{key}")) {
            ctx.line(value);
        }
        return Ok(());
    }
    for (key, value) in ids.as_map() {
        let (Some(key), Some(value)) = (key.as_str(), value.as_str()) else { continue };
        if let Some(key) = key.strip_prefix(prefix) {
            ctx.line(format_args!("{key}={value}"));
        }
    }
    Ok(())
}

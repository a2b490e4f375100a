//! The commands on ports, bonds and interfaces.

use super::command::{Context, Prepare, Stop};
use super::database::{ASSIGN, prepare_arguments, set_column};
use ovsdb::Datum;

fn first_settings(args: &[String], from: usize) -> usize {
    args.iter().skip(from).position(|arg| arg.contains('=')).map_or(args.len(), |at| from + at)
}

fn prepare_settings(prepare: &mut Prepare<'_>, first: usize) -> Result<(), String> {
    super::bridges::prepare(prepare)?;
    let port = prepare.schema.find("Port").ok_or("the schema has no table Port")?;
    prepare_arguments(prepare, port, first, ASSIGN)
}

pub(super) fn prepare_add_port(prepare: &mut Prepare<'_>) -> Result<(), String> {
    prepare_settings(prepare, 2)
}

pub(super) fn add_port(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let [bridge, port, settings @ ..] = &ctx.command.args[..] else { return Ok(()) };
    let new = NewPort {
        bridge,
        port,
        interfaces: std::slice::from_ref(port),
        settings,
        fake_interface: false,
        what: "add-port",
    };
    add(ctx, &new)
}

pub(super) fn prepare_add_bond(prepare: &mut Prepare<'_>) -> Result<(), String> {
    let first = first_settings(&prepare.command.args, 2);
    // Too few interfaces is the error, whatever follows them.
    if first < 4 { super::bridges::prepare(prepare) } else { prepare_settings(prepare, first) }
}

pub(super) fn add_bond(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let args = &ctx.command.args;
    let first = first_settings(args, 2);
    let interfaces = &args[2..first];
    if interfaces.len() < 2 {
        return Err(Stop::Fatal(format!(
            "add-bond requires at least 2 interfaces, but only {} were specified",
            interfaces.len()
        )));
    }
    let new = NewPort {
        bridge: &args[0],
        port: &args[1],
        interfaces,
        settings: &args[first..],
        fake_interface: ctx.has("--fake-iface"),
        what: "add-bond",
    };
    add(ctx, &new)
}

/// What `add-port` and `add-bond` should create.
struct NewPort<'a> {
    bridge: &'a str,
    port: &'a str,
    interfaces: &'a [String],
    settings: &'a [String],
    fake_interface: bool,
    what: &'static str,
}

fn add(ctx: &mut Context<'_>, new: &NewPort<'_>) -> Result<(), Stop> {
    let may_exist = ctx.has("--may-exist");
    if new.port.is_empty() {
        return Err(Stop::Fatal("port name must not be empty string".into()));
    }
    if new.interfaces.iter().any(String::is_empty) {
        return Err(Stop::Fatal("interface name must not be empty string".into()));
    }
    if may_exist && let Some(port) = ctx.model()?.ports.get(new.port).cloned() {
        return check_existing(ctx, new, &port.bridge);
    }
    ctx.check_conflicts(new.port, &format!("cannot create a port named {}", new.port))?;
    for (n, interface) in new.interfaces.iter().enumerate() {
        let refused = format!("cannot create an interface named {interface}");
        ctx.check_conflicts(interface, &refused)?;
        if new.interfaces[..n].contains(interface) {
            return Err(Stop::Fatal(format!("{refused} twice")));
        }
    }
    let bridge = ctx.bridge(new.bridge)?;

    let mut rows = Vec::new();
    for name in new.interfaces {
        let row = ctx.insert("Interface")?;
        ctx.set("Interface", row, "name", Datum::scalar(name.as_str()))?;
        ctx.new_interfaces.push(row);
        rows.push(row);
    }
    let port = ctx.insert("Port")?;
    ctx.set("Port", port, "name", Datum::scalar(new.port))?;
    ctx.set("Port", port, "interfaces", Datum::set(rows))?;
    if new.fake_interface {
        ctx.set("Port", port, "bond_fake_iface", Datum::scalar(true))?;
    }
    if bridge.fake.is_some() {
        ctx.set("Port", port, "tag", Datum::scalar(bridge.vlan))?;
    }
    let table = ctx.table_idx("Port")?;
    for setting in new.settings {
        set_column(ctx, table, port, setting)?;
    }
    ctx.add("Bridge", bridge.row, "ports", Datum::scalar(port))?;
    // Rebuilding the model for each of a thousand ports would take too long.
    if let Some(mut model) = ctx.model.take() {
        let parent = bridge.fake.map_or(new.bridge.to_owned(), |(parent, _)| parent);
        ctx.add_to_model(&mut model, &parent, port)?;
        ctx.model = Some(model);
    }
    Ok(())
}

/// `--may-exist`: whether what is there is what was asked for.
fn check_existing(ctx: &mut Context<'_>, new: &NewPort<'_>, on_bridge: &str) -> Result<(), Stop> {
    let mut wanted: Vec<&str> = new.interfaces.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    let model = ctx.model()?;
    let has: Vec<&str> = model.interfaces_of(new.port).map(|(name, _)| name).collect();
    let words = match new.what {
        "add-port" => String::new(),
        _ => format!(" {}", new.interfaces.join(" ")),
    };
    let asked = format!("\"--may-exist {} {} {}{words}\"", new.what, new.bridge, new.port);
    if on_bridge != new.bridge {
        return Err(Stop::Fatal(format!(
            "{asked} but {} is actually attached to bridge {on_bridge}",
            new.port
        )));
    }
    if has != wanted {
        return Err(Stop::Fatal(format!(
            "{asked} but {} actually has interface(s) {}",
            new.port,
            has.join(", ")
        )));
    }
    Ok(())
}

pub(super) fn del_port(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let must_exist = !ctx.has("--if-exists");
    let with_interface = ctx.has("--with-iface");
    let target = ctx.command.args.last().cloned().unwrap_or_default();
    let on = (ctx.command.args.len() == 2).then(|| ctx.arg(0).to_owned());
    let model = ctx.model()?;
    let mut name = model.ports.contains_key(&target).then(|| target.clone());
    if name.is_none() && with_interface {
        name = model.interfaces.get(&target).map(|interface| interface.port.clone());
    }
    let Some(name) = name else {
        if must_exist && model.bridges.contains_key(&target) {
            return Err(Stop::Fatal(format!(
                "cannot delete port {target} because it is the local port for bridge {target} (deleting this port requires deleting the entire bridge)"
            )));
        }
        if !must_exist {
            return Ok(());
        }
        let what = if with_interface { "port or interface" } else { "port" };
        return Err(Stop::Fatal(format!("no {what} named {target}")));
    };
    let port = ctx.port(&name)?;
    if let Some(on) = on {
        let bridge = ctx.bridge(&on)?;
        if port.bridge != on {
            let holder = ctx.bridge(&port.bridge)?;
            let is_child = holder.fake.is_some_and(|(parent, _)| parent == on);
            return Err(Stop::Fatal(match is_child && bridge.fake.is_none() {
                true => format!(
                    "bridge {on} does not have a port {target} (although its child bridge {} does)",
                    port.bridge
                ),
                false => format!("bridge {on} does not have a port {target}"),
            }));
        }
    }
    let bridge = ctx.bridge(&port.bridge)?;
    ctx.delete_port(bridge.row, port.row)
}

pub(super) fn list_ports(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    ctx.bridge(&name)?;
    let names: Vec<String> = ctx
        .model()?
        .ports
        .iter()
        .filter(|(_, port)| port.bridge == name)
        .map(|(port, _)| port.clone())
        .collect();
    names.into_iter().for_each(|name| ctx.line(name));
    Ok(())
}

pub(super) fn port_to_br(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let port = ctx.port(&name)?;
    ctx.line(port.bridge);
    Ok(())
}

pub(super) fn list_ifaces(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    ctx.bridge(&name)?;
    let model = ctx.model()?;
    let is_here = |port: &str| model.ports.get(port).is_some_and(|port| port.bridge == name);
    let names: Vec<String> = model
        .interfaces
        .iter()
        .filter(|(interface, found)| is_here(&found.port) && **interface != name)
        .map(|(interface, _)| interface.clone())
        .collect();
    names.into_iter().for_each(|name| ctx.line(name));
    Ok(())
}

pub(super) fn iface_to_br(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let interface = ctx.interface(&name)?;
    let port = ctx.port(&interface.port)?;
    ctx.line(port.bridge);
    Ok(())
}

pub(super) fn add_bond_iface(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (bond, name) = (ctx.arg(0).to_owned(), ctx.arg(1).to_owned());
    let port = ctx.port(&bond)?;
    if ctx.has("--may-exist")
        && let Some(interface) = ctx.model()?.interfaces.get(&name).cloned()
    {
        return match interface.port == bond {
            true => Ok(()),
            false => Err(Stop::Fatal(format!(
                "\"--may-exist add-bond-iface {bond} {name}\" but {name} is actually attached to port {}",
                interface.port
            ))),
        };
    }
    ctx.check_conflicts(&name, &format!("cannot create an interface named {name}"))?;
    let row = ctx.insert("Interface")?;
    ctx.set("Interface", row, "name", Datum::scalar(name))?;
    ctx.new_interfaces.push(row);
    ctx.add("Port", port.row, "interfaces", Datum::scalar(row))?;
    ctx.model = None;
    Ok(())
}

pub(super) fn del_bond_iface(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.command.args.last().cloned().unwrap_or_default();
    if ctx.has("--if-exists") && !ctx.model()?.interfaces.contains_key(&name) {
        return Ok(());
    }
    let interface = ctx.interface(&name)?;
    if ctx.command.args.len() == 2 {
        let bond = ctx.arg(0).to_owned();
        ctx.port(&bond)?;
        if bond != interface.port {
            return Err(Stop::Fatal(format!("port {bond} does not have an interface {name}")));
        }
    }
    if ctx.model()?.interfaces_of(&interface.port).count() < 2 {
        return Err(Stop::Fatal(format!("cannot delete last interface from port {}", interface.port)));
    }
    let port = ctx.port(&interface.port)?;
    ctx.remove("Port", port.row, "interfaces", Datum::scalar(interface.row))?;
    ctx.delete("Interface", interface.row)?;
    ctx.model = None;
    Ok(())
}

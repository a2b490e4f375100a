//! Timeout policies of conntrack zones, and what a datapath can do.

use super::command::{Context, Prepare, Stop};
use ovsdb::text::Atomic;
use ovsdb::{Atom, Datum, Uuid};

pub(super) fn prepare(prepare: &mut Prepare<'_>) -> Result<(), String> {
    prepare.need("Open_vSwitch", &["datapaths"]);
    prepare.need("Datapath", &["ct_zones", "capabilities"]);
    prepare.need("CT_Zone", &["timeout_policy"]);
    prepare.need("CT_Timeout_Policy", &["timeouts"]);
    Ok(())
}

/// A number as C's `strtol` reads it: what is no number is 0, and what follows one is ignored.
pub(super) fn leading_integer(text: &str) -> i64 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let magnitude = digits[..end].parse::<i64>().unwrap_or(if end == 0 { 0 } else { i64::MAX });
    if text.starts_with('-') { -magnitude } else { magnitude }
}

fn datapath(ctx: &Context<'_>, name: &str) -> Result<Option<Uuid>, Stop> {
    let datapaths = ctx.get("Open_vSwitch", ctx.root, "datapaths")?;
    Ok(datapaths.value_of(&Atom::from(name)).and_then(Atom::as_uuid))
}

/// `zone=N`; anything else means zone 0, as with the stock tool.
fn zone_id(text: &str) -> i64 {
    text.strip_prefix("zone=").map_or(0, leading_integer)
}

fn zone(ctx: &Context<'_>, datapath: Uuid, id: i64) -> Result<Option<Uuid>, Stop> {
    let zones = ctx.get("Datapath", datapath, "ct_zones")?;
    Ok(zones.value_of(&Atom::Integer(id)).and_then(Atom::as_uuid))
}

fn missing(name: &str) -> Stop {
    Stop::Fatal(format!("datapath {name} does not exist"))
}

pub(super) fn add_zone_tp(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (name, id) = (ctx.arg(0).to_owned(), zone_id(ctx.arg(1)));
    let datapath = datapath(ctx, &name)?.ok_or_else(|| missing(&name))?;
    let policies = &ctx.command.args[2..];
    let existing = zone(ctx, datapath, id)?;
    if existing.is_some() && !ctx.has("--may-exist") {
        return Err(Stop::Fatal(format!("zone id {id} already exists")));
    }
    let pairs = policies.iter().map(|policy| {
        let (key, value) = policy.split_once('=').unwrap_or((policy, ""));
        (key.to_owned(), leading_integer(value))
    });
    let timeouts = Datum::map(pairs.collect::<std::collections::BTreeMap<_, _>>());
    let policy = ctx.insert("CT_Timeout_Policy")?;
    ctx.set("CT_Timeout_Policy", policy, "timeouts", timeouts)?;
    let zone = match existing {
        Some(zone) => zone,
        None => {
            let zone = ctx.insert("CT_Zone")?;
            ctx.add("Datapath", datapath, "ct_zones", Datum::map([(Atom::Integer(id), Atom::Uuid(zone))]))?;
            zone
        }
    };
    ctx.set("CT_Zone", zone, "timeout_policy", Datum::scalar(policy))
}

pub(super) fn del_zone_tp(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let (name, id) = (ctx.arg(0).to_owned(), zone_id(ctx.arg(1)));
    let datapath = datapath(ctx, &name)?.ok_or_else(|| missing(&name))?;
    match zone(ctx, datapath, id)? {
        Some(_) => ctx.remove("Datapath", datapath, "ct_zones", Datum::scalar(id)),
        None if ctx.has("--if-exists") => Ok(()),
        None => Err(Stop::Fatal(format!("zone id {id} does not exist"))),
    }
}

pub(super) fn list_zone_tp(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let datapath =
        datapath(ctx, &name)?.ok_or_else(|| Stop::Fatal(format!("datapath: {name} record not found")))?;
    let zones = ctx.get("Datapath", datapath, "ct_zones")?.clone();
    for (id, zone) in zones.as_map() {
        let zone = zone.as_uuid().unwrap_or_default();
        let policy = ctx.references("CT_Zone", zone, "timeout_policy")?.first().copied();
        let text = match policy {
            None => "system default".to_owned(),
            Some(policy) => {
                let timeouts = ctx.get("CT_Timeout_Policy", policy, "timeouts")?;
                let pairs: Vec<String> = timeouts
                    .as_map()
                    .iter()
                    .map(|(key, value)| format!("{}={}", Atomic(key), Atomic(value)))
                    .collect();
                pairs.join(" ")
            }
        };
        ctx.line(format_args!("Zone:{}, Timeout Policies: {text}", Atomic(id)));
    }
    Ok(())
}

pub(super) fn list_dp_cap(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let name = ctx.arg(0).to_owned();
    let datapath =
        datapath(ctx, &name)?.ok_or_else(|| Stop::Fatal(format!("datapath \"{name}\" record not found")))?;
    let capabilities = ctx.get("Datapath", datapath, "capabilities")?.clone();
    let text = |atom: &Atom| atom.as_str().unwrap_or_default().to_owned();
    let pairs: Vec<String> =
        capabilities.as_map().iter().map(|(key, value)| format!("{}={}", text(key), text(value))).collect();
    ctx.line(pairs.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::leading_integer;

    #[test]
    fn numbers_are_read_as_atoi_reads_them() {
        for (text, number) in
            [("10", 10), (" 7x", 7), ("x", 0), ("", 0), ("-3", -3), ("99999999999999999999", i64::MAX)]
        {
            assert_eq!(leading_integer(text), number, "{text}");
        }
    }
}

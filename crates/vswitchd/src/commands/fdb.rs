//! `fdb/*`: the addresses that a bridge has learned or was given.

use crate::ofproto::Ofproto;
use crate::state::Vswitch;
use base::OfPort;
use openflow::text::{parse_ethernet, write_ethernet};
use std::fmt::Write;
use switch::{BridgeIdx, Replaced};

type Answer = Result<String, String>;

fn bridge<'a>(vswitch: &'a Vswitch, name: &str) -> Result<&'a Ofproto, String> {
    vswitch.bridge_named(name).ok_or_else(|| "no such bridge".into())
}

/// A bridge, or all.
fn bridges(vswitch: &Vswitch, args: &[String]) -> Result<Vec<BridgeIdx>, String> {
    match args.first() {
        Some(name) => Ok(vec![bridge(vswitch, name)?.idx]),
        None => Ok(vswitch.bridges.keys().copied().collect()),
    }
}

pub fn show(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let idx = bridge(vswitch, &args[0])?.idx;
    let entries =
        vswitch.plane.control.fdb_show(idx, vswitch.plane.now_ms(), &|slot| vswitch.plane.slot(slot));
    let mut text = " port  VLAN  MAC                Age\n".to_string();
    for e in entries {
        let port = match vswitch.devices.ports.get(&e.port) {
            Some(p) if p.of_port == OfPort::LOCAL => "LOCAL".to_string(),
            Some(p) => p.of_port.0.to_string(),
            None => "?".into(),
        };
        let _ = write!(text, "{port:>5}  {:>4}  ", e.vlan);
        write_ethernet(&mut text, e.mac);
        let _ = match e.age_ms {
            Some(ms) => writeln!(text, "  {:>3}", ms / 1000),
            None => writeln!(text, "  static"),
        };
    }
    Ok(text)
}

/// VLAN and address.
fn word(vlan: &str, mac: &str) -> Result<(u16, u64), String> {
    let vlan = vlan.parse().ok().filter(|vlan| *vlan <= 4_095).ok_or("bad VLAN")?;
    let mac = parse_ethernet(mac).ok_or("bad MAC address")?;
    Ok((vlan, mac))
}

/// `fdb/add BRIDGE PORT VLAN MAC`: the address is there for good.
pub fn add(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let idx = bridge(vswitch, &args[0])?.idx;
    let port = vswitch.devices.port_named(&args[1]).filter(|p| p.bridge == idx).map(|p| p.port_no);
    let port = port.ok_or("software error, odp port is present but no ofp port")?;
    let (vlan, mac) = word(&args[2], &args[3])?;
    let now_ms = vswitch.plane.now_ms();
    let before = vswitch.plane.control.fdb_add(idx, vlan, mac, port, now_ms).map_err(|_| "no such port")?;
    vswitch.plane.dp.reserve_slots(vswitch.plane.control.slot_count());
    let number = |before: &Replaced| vswitch.devices.ports.get(&before.port).map(|p| p.of_port.0);
    Ok(match before.and_then(|before| Some((before.is_static, number(&before)?))) {
        Some((true, port)) => format!("Overriding already existing static entry on {port}"),
        Some((false, port)) => format!("Overriding already existing dynamic entry on {port}"),
        None => String::new(),
    })
}

/// `fdb/del BRIDGE VLAN MAC`: takes back what `fdb/add` gave.
pub fn del(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let idx = bridge(vswitch, &args[0])?.idx;
    let (vlan, mac) = word(&args[1], &args[2])?;
    if vswitch.plane.control.fdb_del(idx, vlan, mac) {
        Ok(String::new())
    } else {
        Err("could not find static mac entry".into())
    }
}

pub fn flush(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    for idx in bridges(vswitch, args)? {
        vswitch.plane.control.fdb_flush(idx);
    }
    Ok("table successfully flushed".into())
}

pub fn stats_show(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let name = &args[0];
    let idx = bridge(vswitch, name)?.idx;
    let stats = vswitch.plane.control.fdb_stats(idx);
    let max = vswitch.plane.control.topology().bridge(idx).map_or(0, |b| b.config.mac_table_size);
    Ok(format!(
        "Statistics for bridge \"{name}\":\n  \
         Current/maximum MAC entries in the table: {}/{max}\n  \
         Current static MAC entries in the table : {}\n  \
         Total number of learned MAC entries     : {}\n  \
         Total number of expired MAC entries     : {}\n  \
         Total number of evicted MAC entries     : {}\n  \
         Total number of port moved MAC entries  : {}\n",
        stats.current, stats.statics, stats.learned, stats.expired, stats.evicted, stats.moved
    ))
}

pub fn stats_clear(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    for idx in bridges(vswitch, args)? {
        vswitch.plane.control.fdb_clear_stats(idx);
    }
    Ok("statistics successfully cleared".into())
}

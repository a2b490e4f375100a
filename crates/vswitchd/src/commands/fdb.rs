//! `fdb/*`: the addresses that a bridge has learned or was given.

use crate::plane::ForwardingPlane;
use crate::state::Vswitch;
use base::OfPort;
use openflow::text::{parse_ethernet, write_ethernet};
use std::fmt::Write;
use switch::topology::Bridge;
use switch::{BridgeIdx, Replaced};

/// Addresses forgotten in one turn.
const FORGOTTEN_AT_ONCE: usize = 1_000;

type Answer = Result<String, String>;

fn bridge<'a>(plane: &'a ForwardingPlane, name: &str) -> Result<&'a Bridge, String> {
    plane.control.topology().bridge_by_name(name).map(|b| &**b).ok_or_else(|| "no such bridge".into())
}

/// A bridge, or all.
fn bridges(plane: &ForwardingPlane, args: &[String]) -> Result<Vec<BridgeIdx>, String> {
    match args.first() {
        Some(name) => Ok(vec![bridge(plane, name)?.idx]),
        None => Ok(plane.control.topology().bridges().map(|b| b.idx).collect()),
    }
}

pub fn show(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let idx = bridge(plane, &args[0])?.idx;
    let entries = plane.control.fdb_show(idx, plane.now_ms(), &|slot| plane.slot(slot));
    let mut text = " port  VLAN  MAC                Age\n".to_string();
    for e in entries {
        let port = match plane.port_spec(e.port) {
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
pub fn add(plane: &mut ForwardingPlane, args: &[String]) -> Answer {
    let bridge = bridge(plane, &args[0])?;
    let port = bridge.ports().find(|p| p.spec.name == args[1]).map(|p| p.spec.port_no);
    let (idx, port) = (bridge.idx, port.ok_or("software error, odp port is present but no ofp port")?);
    let (vlan, mac) = word(&args[2], &args[3])?;
    let now_ms = plane.now_ms();
    let before = plane.control.fdb_add(idx, vlan, mac, port, now_ms).map_err(|_| "no such port")?;
    plane.dp.reserve_slots(plane.control.slot_count());
    let number = |before: &Replaced| plane.port_spec(before.port).map(|p| p.of_port.0);
    Ok(match before.and_then(|before| Some((before.is_static, number(&before)?))) {
        Some((true, port)) => format!("Overriding already existing static entry on {port}"),
        Some((false, port)) => format!("Overriding already existing dynamic entry on {port}"),
        None => String::new(),
    })
}

/// `fdb/del BRIDGE VLAN MAC`: takes back what `fdb/add` gave.
pub fn del(plane: &mut ForwardingPlane, args: &[String]) -> Answer {
    let idx = bridge(plane, &args[0])?.idx;
    let (vlan, mac) = word(&args[1], &args[2])?;
    let is_gone = plane.control.fdb_del(idx, vlan, mac);
    is_gone.then(String::new).ok_or_else(|| "could not find static mac entry".into())
}

/// Forgets what was learned until now. A table may hold a million addresses.
pub fn flush(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let all = bridges(&vswitch.plane, args)?;
    vswitch.begin(async move |shared| {
        for idx in all {
            let mut left = shared.borrow().plane.control.fdb_learned(idx);
            while left > 0 {
                shared.borrow_mut().plane.control.fdb_flush(idx, FORGOTTEN_AT_ONCE);
                left = left.saturating_sub(FORGOTTEN_AT_ONCE);
                tokio::task::yield_now().await;
            }
        }
        Ok("table successfully flushed".into())
    });
    Ok(String::new())
}

pub fn stats_show(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let name = &args[0];
    let idx = bridge(plane, name)?.idx;
    let stats = plane.control.fdb_stats(idx);
    let max = plane.control.topology().bridge(idx).map_or(0, |b| b.config.mac_table_size);
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

pub fn stats_clear(plane: &mut ForwardingPlane, args: &[String]) -> Answer {
    for idx in bridges(plane, args)? {
        plane.control.fdb_clear_stats(idx);
    }
    Ok("statistics successfully cleared".into())
}

//! `fdb/*`: the addresses that a bridge has learned or was given.

use crate::plane::ForwardingPlane;
use crate::state::Vswitch;
use base::OfPort;
use openflow::text::{parse_ethernet, write_ethernet};
use std::collections::BTreeMap;
use std::fmt::Write;
use switch::topology::Bridge;
use switch::{BridgeIdx, Replaced};

/// Addresses that are looked at, or written, in one turn.
const AT_ONCE: usize = 1_000;
/// An address that waits to be written takes about as much memory.
const ENTRY_BYTES: usize = 64;

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

/// A table may hold a million addresses.
pub fn show(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let (idx, now_ms) = (bridge(&vswitch.plane, &args[0])?.idx, vswitch.plane.now_ms());
    let name = args[0].clone();
    vswitch.begin_long(async move |shared, growing| {
        let (mut at, mut sorted) = (Some(0), BTreeMap::new());
        while at.is_some() {
            {
                let plane = &shared.borrow().plane;
                if !plane.is_there(idx, &name) {
                    break;
                }
                let slots = |slot| plane.slot(slot);
                for e in plane.control.fdb_some(idx, &mut at, AT_ONCE, now_ms, &slots) {
                    // The addresses of a port that is gone are being forgotten.
                    sorted.extend(plane.port_spec(e.port).map(|p| (e.rank(), (p.of_port, e))));
                }
            }
            growing.reaches(sorted.len() * ENTRY_BYTES);
            tokio::task::yield_now().await;
        }
        let mut text = " port  VLAN  MAC                Age\n".to_string();
        while !sorted.is_empty() {
            for (of_port, e) in (0..AT_ONCE).map_while(|_| Some(sorted.pop_first()?.1)) {
                let _ = match of_port {
                    OfPort::LOCAL => write!(text, "LOCAL  {:>4}  ", e.vlan),
                    of_port => write!(text, "{:>5}  {:>4}  ", of_port.0, e.vlan),
                };
                write_ethernet(&mut text, e.mac);
                let _ = match e.age_ms {
                    Some(ms) => writeln!(text, "  {:>3}", ms / 1000),
                    None => writeln!(text, "  static"),
                };
            }
            growing.reaches(sorted.len() * ENTRY_BYTES + text.capacity());
            tokio::task::yield_now().await;
        }
        Ok(text)
    });
    Ok(String::new())
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
    all.iter().for_each(|idx| vswitch.plane.control.fdb_flush(*idx));
    vswitch.begin(async move |shared| {
        while all.iter().any(|idx| shared.borrow().plane.control.is_forgetting(*idx)) {
            shared.borrow_mut().plane.control.collect();
            tokio::task::yield_now().await;
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

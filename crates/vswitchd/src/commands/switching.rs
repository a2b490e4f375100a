//! `fdb/*` and `ofproto/*`: what a bridge has learned and decides.

use crate::state::{Bridge, Vswitch};
use std::fmt::Write;

fn bridge<'a>(vswitch: &'a Vswitch, name: &str) -> Result<&'a Bridge, String> {
    vswitch.bridge_named(name).ok_or_else(|| "no such bridge".into())
}

pub fn fdb_show(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let idx = bridge(vswitch, &args[0])?.idx;
    let entries = vswitch.control.fdb_show(idx, vswitch.now_ms(), &|slot| vswitch.slot(slot));
    let mut text = " port  VLAN  MAC                Age\n".to_string();
    for e in entries {
        let port = match vswitch.ports.get(&e.port) {
            Some(p) if p.of_port == base::OfPort::LOCAL => "LOCAL".to_string(),
            Some(p) => p.of_port.0.to_string(),
            None => "?".into(),
        };
        let m = e.mac.to_be_bytes();
        let _ = writeln!(
            text,
            "{port:>5}  {:>4}  {:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}  {:>3}",
            e.vlan,
            m[2],
            m[3],
            m[4],
            m[5],
            m[6],
            m[7],
            e.age_ms / 1000
        );
    }
    Ok(text)
}

pub fn fdb_flush(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let bridges = match args.first() {
        Some(name) => vec![bridge(vswitch, name)?.idx],
        None => vswitch.bridges.keys().copied().collect(),
    };
    bridges.into_iter().for_each(|idx| vswitch.control.fdb_flush(idx));
    Ok("table successfully flushed".into())
}

pub fn fdb_stats(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let name = &args[0];
    let idx = bridge(vswitch, name)?.idx;
    let stats = vswitch.control.fdb_stats(idx);
    let max = vswitch.control.topology().bridge(idx).map_or(0, |b| b.config.mac_table_size);
    Ok(format!(
        "Statistics for bridge \"{name}\":\n  \
         Current/maximum MAC entries in the table: {}/{max}\n  \
         Current static MAC entries in the table : 0\n  \
         Total number of learned MAC entries     : {}\n  \
         Total number of expired MAC entries     : {}\n  \
         Total number of evicted MAC entries     : {}\n  \
         Total number of port moved MAC entries  : {}\n",
        stats.current, stats.learned, stats.expired, stats.evicted, stats.moved
    ))
}

pub fn list(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    Ok(vswitch.bridges.values().map(|b| format!("{}\n", b.name)).collect())
}

//! `fdb/*` and `ofproto/*`: what a bridge has learned and decides.

use crate::odp;
use crate::state::{Bridge, Vswitch};
use base::{OfPort, PortNo};
use datapath::Pipeline;
use flow::{Depth, FieldId, Ingress, Key, extract};
use openflow::text::{PortNames, parse_match};
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

/// `ofproto/trace BRIDGE FLOW [PACKET] [--names]`: FLOW in OpenFlow's syntax, and, where PACKET is given, only for its metadata.
pub fn trace(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let (options, rest): (Vec<_>, Vec<_>) = args.iter().map(String::as_str).partition(|a| a.starts_with('-'));
    if let Some(unknown) = options.iter().find(|o| !["--names", "--no-names"].contains(o)) {
        return Err(format!("{unknown}: unknown option"));
    }
    let (name, text, packet) = match rest[..] {
        [name, text] => (name, text, None),
        [name, text, packet] => (name, text, Some(packet)),
        _ => return Err("expected a bridge, a flow, and at most one packet".into()),
    };
    let bridge = vswitch.bridge_named(name).ok_or("Unknown bridge name")?.idx;
    let mut names = PortNames::default();
    vswitch.ports_of(bridge).for_each(|p| names.insert(p.of_port, &p.name));
    let metadata = parse_match(text, &names).map_err(|e| e.to_string())?.key;
    let in_port = OfPort(metadata.get64(FieldId::InPort) as u16);
    let port_no = vswitch.port_numbered(bridge, in_port).map(|p| p.port_no);
    // A flow from no port of the bridge has none to start in.
    let port_no: PortNo = port_no.ok_or_else(|| format!("in_port={}: no such port in {name}", in_port.0))?;
    let mut key = metadata;
    if let Some(packet) = packet {
        let frame = odp::frame(packet).map_err(|e| e.to_string())?;
        let mut of_frame = Key::default();
        let ingress = Ingress::new(in_port, port_no, Depth::Everything);
        extract(&frame, frame.len(), &ingress, &mut of_frame).ok_or("the packet is too short")?;
        key = of_frame;
    }
    key.set(FieldId::DpPort, u128::from(port_no.0));
    let shown = if options.contains(&"--names") { &names } else { PortNames::none() };
    let reader = vswitch.domain.register();
    let version = vswitch.switch.version();
    Ok(switch::trace::trace(&vswitch.switch, version, &key, shown, &reader).0)
}

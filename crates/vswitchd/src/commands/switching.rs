//! `fdb/*` and `ofproto/*`: what a bridge has learned and decides.

use crate::odp;
use crate::state::{Bridge, Vswitch};
use base::{OfPort, PortNo};
use datapath::Pipeline;
use flow::{Depth, FieldId, Ingress, Key, extract};
use openflow::text::{PortNames, parse_match};
use std::fmt::Write;
use switch::BridgeIdx;

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

/// `ofproto/trace BRIDGE FLOW [PACKET]`: FLOW in OpenFlow's syntax, and, where PACKET is given, only for its metadata.
/// `ofproto/trace [DATAPATH] FLOW [PACKET]`: FLOW in the datapath's syntax, whose input port says which bridge.
pub fn trace(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let (options, rest): (Vec<_>, Vec<_>) = args.iter().map(String::as_str).partition(|a| a.starts_with('-'));
    // A packet that there is none of is made from the flow in any case.
    if let Some(unknown) = options.iter().find(|o| !["--names", "--no-names", "-generate"].contains(o)) {
        return Err(format!("{unknown}: unknown option"));
    }
    let (flow, packet) = match rest[..] {
        [flow] | [_, flow] if is_datapath_flow(flow) => (from_datapath(vswitch, flow)?, None),
        [flow, packet] | [_, flow, packet] if is_datapath_flow(flow) => {
            (from_datapath(vswitch, flow)?, Some(packet))
        }
        [name, text] => (from_bridge(vswitch, name, text)?, None),
        [name, text, packet] => (from_bridge(vswitch, name, text)?, Some(packet)),
        _ => return Err("expected a bridge, a flow, and at most one packet".into()),
    };
    let Traced { bridge, in_port, port_no, mut key } = flow;
    if let Some(packet) = packet {
        let frame = odp::frame(packet).map_err(|e| e.to_string())?;
        key = key_of(&frame, in_port, port_no)?;
    }
    key.set(FieldId::DpPort, u128::from(port_no.0));
    let mut names = PortNames::default();
    vswitch.ports_of(bridge).for_each(|p| names.insert(p.of_port, &p.name));
    let shown = if options.contains(&"--names") { &names } else { PortNames::none() };
    let reader = vswitch.domain.register();
    let version = vswitch.switch.version();
    Ok(switch::trace::trace(&vswitch.switch, version, &key, shown, &reader).0)
}

/// Where a trace starts.
struct Traced {
    bridge: BridgeIdx,
    in_port: OfPort,
    port_no: PortNo,
    key: Key,
}

/// `in_port(1),eth(...)`, as opposed to `in_port=1,...`.
fn is_datapath_flow(text: &str) -> bool {
    text.contains("in_port(")
}

fn from_bridge(vswitch: &Vswitch, name: &str, text: &str) -> Result<Traced, String> {
    let bridge = vswitch.bridge_named(name).ok_or_else(|| format!("{name}: unknown bridge"))?.idx;
    let mut names = PortNames::default();
    vswitch.ports_of(bridge).for_each(|p| names.insert(p.of_port, &p.name));
    let key = parse_match(text, &names).map_err(|e| e.to_string())?.key;
    let in_port = OfPort(key.get64(FieldId::InPort) as u16);
    let port_no = vswitch.port_numbered(bridge, in_port).map(|p| p.port_no);
    // A flow from no port of the bridge has none to start in.
    let port_no = port_no.ok_or_else(|| format!("in_port={}: no such port in {name}", in_port.0))?;
    Ok(Traced { bridge, in_port, port_no, key })
}

fn from_datapath(vswitch: &Vswitch, text: &str) -> Result<Traced, String> {
    let after = text.split("in_port(").nth(1).unwrap_or_default();
    let port = after.split(')').next().unwrap_or_default();
    let record = match port.parse() {
        Ok(number) => vswitch.ports.get(&PortNo(number)),
        Err(_) => vswitch.port_named(port),
    };
    let record = record.ok_or_else(|| format!("in_port({port}): no such port in the datapath"))?;
    let frame = odp::frame(text).map_err(|e| e.to_string())?;
    let key = key_of(&frame, record.of_port, record.port_no)?;
    Ok(Traced { bridge: record.bridge, in_port: record.of_port, port_no: record.port_no, key })
}

fn key_of(frame: &[u8], in_port: OfPort, port_no: PortNo) -> Result<Key, String> {
    let mut key = Key::default();
    let ingress = Ingress::new(in_port, port_no, Depth::Everything);
    extract(frame, frame.len(), &ingress, &mut key).ok_or("the packet is too short")?;
    Ok(key)
}

//! The stock `ovs-ofctl` as oracle: it reads a flow, encodes it, decodes it and prints it. So do we.

use openflow::message::FlowModCommand;
use openflow::text::{Parsed, PortNames, Protocols, parse_flow_mod, write_flow_mod};
use openflow::{Codec, Message, Version};
use std::process::Command;

pub const STOCK: &str = "ovs-ofctl";

/// What the stock tool prints of a flow: without the name of the message, or the error.
pub fn stock(version: Version, flow: &str) -> Result<String, String> {
    let output = Command::new(STOCK)
        .args(["-O", version.name(), "parse-flow", flow])
        .output()
        .expect("ovs-ofctl of openvswitch-common is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // Log lines come before the one that counts.
        let last = errors.lines().last().unwrap_or("");
        return Err(last.strip_prefix("ovs-ofctl: ").unwrap_or(last).to_string());
    }
    let line = text.lines().find(|line| line.contains("_FLOW_MOD ")).unwrap_or("");
    let (_, line) = line.split_once("(xid=0x1): ").ok_or_else(|| text.clone())?;
    Ok(line.to_string())
}

/// The encodings in which the stock tool can say a flow, or the error.
pub fn usable_by_stock(flow: &str) -> Result<String, String> {
    let output = Command::new(STOCK).args(["parse-flow", flow]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match text.lines().find_map(|line| line.strip_prefix("usable protocols: ")) {
        Some(usable) => Ok(usable.to_string()),
        None => Err(errors.lines().last().unwrap_or("").trim_start_matches("ovs-ofctl: ").to_string()),
    }
}

/// What the stock tool prints of many flows, which share an encoding.
pub fn stock_all(version: Version, flows: &[String]) -> Vec<String> {
    let file =
        std::env::temp_dir().join(format!("crosspoint-text-{}-{}", std::process::id(), version.name()));
    std::fs::write(&file, flows.join("\n")).unwrap();
    let output = Command::new(STOCK).args(["-O", version.name(), "parse-flows"]).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once("_FLOW_MOD "));
    lines
        .filter_map(|(_, line)| line.split_once("(xid=0x")?.1.split_once("): "))
        .map(|(_, l)| l.to_string())
        .collect()
}

/// The same by our own means.
pub fn ours(version: Version, flow: &str) -> Result<String, String> {
    let parsed = parse_flow_mod(flow, FlowModCommand::Add, PortNames::none()).map_err(|e| e.message)?;
    through_the_wire(version, parsed)
}

/// Encodes, decodes and prints.
pub fn through_the_wire(version: Version, parsed: Parsed) -> Result<String, String> {
    let usable = parsed.protocols.intersect(Protocols::of_versions(openflow::VersionSet::only(version)));
    let Some(protocol) = usable.iter().next() else { return Err("no usable protocol".to_string()) };
    let codec = Codec { flow_mod_table_id: protocol.has_table_id_extension(), ..Codec::new(version) };
    let flow_mod = parsed.in_protocol(protocol);
    let bytes = codec.encode(1, &Message::FlowMod(Box::new(flow_mod))).map_err(|e| e.to_string())?;
    match (Codec { flow_mod_table_id: true, ..codec }).decode(&bytes) {
        Ok((_, Message::FlowMod(flow_mod))) => {
            let mut out = String::new();
            write_flow_mod(&mut out, &flow_mod, version, PortNames::none());
            Ok(out)
        }
        Ok((_, other)) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

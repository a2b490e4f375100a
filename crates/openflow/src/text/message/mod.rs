//! Messages as `ovs-ofctl` prints what it receives: a line of name, version and transaction id, then what they say.

mod packet;
mod port;
mod stats;

pub use packet::packet_text;
pub use port::write_port_desc;

use super::action::{reason_name, write_actions};
use super::flow::{write_duration, write_flow_mod};
use super::matching::write_match;
use super::{PortNames, put};
use crate::codec::{Codec, HEADER_LEN, Header};
use crate::error::{ErrorKind, OfError};
use crate::message::{
    BundleControl, BundleControlType, BundleFlags, Capabilities, DEFAULT_PRIORITY, FlowForm, FlowRemoved,
    FlowRemovedReason, FragHandling, Message, PacketIn, PacketOut, PortMod, PortReason, PortStatus, Role,
    SwitchConfig, SwitchFeatures, TlvMap, TlvTableCommand, TlvTableMod,
};
use crate::version::{Version, VersionSet};

/// How messages are written.
#[derive(Clone, Copy, Debug)]
pub struct MessageStyle<'a> {
    /// Version that the message came in.
    pub version: Version,
    /// Names of ports.
    pub ports: &'a PortNames,
    /// How much of it: from 1 (`-m`) on with bytes in full.
    pub verbosity: u8,
}

/// A message in text; ends with a newline.
pub fn message_text(xid: u32, message: &Message, style: MessageStyle) -> String {
    let mut out = String::new();
    out.push_str(message.name());
    match message {
        Message::StatsRequest(_) => out.push_str(" request"),
        Message::StatsReply(_) => out.push_str(" reply"),
        _ => {}
    }
    // A hello says its version by its header, which is the greatest that it offers.
    let version = match message {
        Message::Hello(versions) => versions.greatest().unwrap_or(style.version),
        _ => style.version,
    };
    write_version_and_xid(&mut out, version, xid);
    body(&mut out, message, style);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn write_version_and_xid(out: &mut String, version: Version, xid: u32) {
    if version != Version::V10 {
        put!(out, " ({})", version.short_name());
    }
    put!(out, " (xid={xid:#x}):");
}

/// A message that could not be read, in text: the error and all its bytes.
pub fn unreadable_text(bytes: &[u8], error: ErrorKind) -> String {
    let mut out = String::new();
    match Header::parse(bytes) {
        Some(header) => {
            put!(out, "type {}", header.kind);
            write_version_and_xid(
                &mut out,
                Version::from_wire(header.version).unwrap_or(Version::V10),
                header.xid,
            );
        }
        None => out.push_str("message:"),
    }
    put!(out, " ***decode error: {}***\n", error.name());
    write_hex_dump(&mut out, bytes);
    out
}

fn body(out: &mut String, message: &Message, style: MessageStyle) {
    match message {
        Message::Hello(versions) => hello(out, *versions),
        Message::Error(e) => error(out, e, style),
        Message::EchoRequest(data) | Message::EchoReply(data) => {
            put!(out, " {} bytes of payload\n", data.len());
            if style.verbosity > 1 {
                write_hex_dump(out, data);
            }
        }
        Message::FeaturesReply(features) => switch_features(out, features, style),
        Message::GetConfigReply(config) | Message::SetConfig(config) => switch_config(out, config),
        Message::PacketIn(packet) | Message::Resume(packet) => packet_in(out, packet, style),
        Message::FlowRemoved(removed) => flow_removed(out, removed, style),
        Message::PortStatus(status) => port_status(out, status),
        Message::PacketOut(packet) => packet_out(out, packet, style),
        Message::FlowMod(flow_mod) => {
            out.push(' ');
            write_flow_mod(out, flow_mod, style.version, style.ports);
        }
        Message::PortMod(port_mod) => port_mod_text(out, port_mod, style),
        Message::StatsRequest(request) => stats::write_request(out, request, style),
        Message::StatsReply(reply) => stats::write_reply(out, reply, style),
        Message::RoleRequest(role) | Message::RoleReply(role) => {
            role_text(out, role.role, role.generation_id);
        }
        Message::RoleStatus(status) => {
            role_text(out, status.role, status.generation_id);
            let reasons = ["primary_request", "configuration_changed", "experimenter_data_changed"];
            put!(out, " reason={}", reasons[status.reason as usize % 3]);
        }
        Message::FlowModTableId(on) => put!(out, " {}", if *on { "enable" } else { "disable" }),
        Message::SetFlowFormat(form) => {
            put!(out, " format={}", if *form == FlowForm::Nxm { "nxm" } else { "openflow10" });
        }
        Message::SetPacketInFormat(form) => {
            put!(out, " format={}", ["openflow10", "nxt_packet_in", "nxt_packet_in2"][*form as usize % 3]);
        }
        Message::SetControllerId(id) => put!(out, " id={id}"),
        Message::FlowMonitorCancel(id) => put!(out, " id={id}"),
        Message::CtFlushZone(zone) => put!(out, " zone_id={zone}"),
        Message::BundleControl(control) => bundle_control(out, control),
        Message::BundleAdd(add) => {
            put!(out, "\n bundle_id={:#x} flags=", add.bundle_id);
            bundle_flags(out, add.flags);
            out.push('\n');
            out.push_str(&message_text(add.xid, &add.message, style));
        }
        Message::TableMod(table_mod) => {
            put!(out, " table_id={}", table_name(table_mod.table_id));
            put!(out, ", flow_miss_config={:#x}", table_mod.config);
        }
        Message::GetAsyncReply(config) | Message::SetAsync(config) => put!(out, " {config:?}"),
        Message::TlvTableReply(table) => {
            put!(out, "\n max option space={} max fields={}", table.max_option_space, table.max_fields);
            let used: u32 = table.maps.iter().map(|map| u32::from(map.option_len)).sum();
            put!(out, "\n allocated option space={used}\n\n");
            tlv_maps(out, &table.maps);
        }
        Message::TlvTableMod(TlvTableMod { command: TlvTableCommand::Clear, .. }) => out.push_str("\n CLEAR"),
        Message::TlvTableMod(table_mod) => {
            let adds = table_mod.command == TlvTableCommand::Add;
            put!(out, "\n {}", if adds { "ADD" } else { "DEL" });
            tlv_maps(out, &table_mod.maps);
        }
        Message::QueueGetConfigRequest { port } => {
            put!(out, " port={}", port.map_or_else(|| "ANY".to_string(), |p| style.ports.text(p)));
        }
        Message::QueueGetConfigReply { queues, .. } => {
            for queue in queues {
                put!(out, "\n port={} queue {}:", style.ports.text(queue.port), queue.queue_id);
                for (name, rate) in [("min_rate", queue.min_rate), ("max_rate", queue.max_rate)] {
                    if let Some(rate) = rate {
                        put!(out, " {name}:{}.{}%", rate / 10, rate % 10);
                    }
                }
            }
        }
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest
        | Message::FlowAge
        | Message::FlowMonitorPaused
        | Message::FlowMonitorResumed
        | Message::TlvTableRequest => {}
    }
}

fn table_name(table_id: u8) -> String {
    if table_id == 0xff { "ALL".to_string() } else { table_id.to_string() }
}

/// Appends which tunnel options are which fields, as ovs-ofctl(8) shows it.
fn tlv_maps(out: &mut String, maps: &[TlvMap]) {
    out.push_str(
        " mapping table:\n  class  type  length  match field\n ------  ----  ------  --------------",
    );
    for map in maps {
        let hex = |n: u16| if n == 0 { "0".to_string() } else { format!("{n:#x}") };
        let (class, kind) = (hex(map.option_class), hex(map.option_type.into()));
        put!(out, "\n {class:>6} {kind:>5} {:>7}  tun_metadata{}", map.option_len, map.index);
    }
}

fn hello(out: &mut String, versions: VersionSet) {
    out.push_str("\n version bitmap: ");
    let all: Vec<String> =
        (0..64).filter(|v| versions.0 >> v & 1 != 0).map(|v: u64| format!("0x{v:02x}")).collect();
    out.push_str(&all.join(", "));
    out.push('\n');
}

fn error(out: &mut String, error: &OfError, style: MessageStyle) {
    put!(out, " {error}\n");
    if let Some(ErrorKind::OFPHFC_INCOMPATIBLE | ErrorKind::OFPHFC_EPERM) = error.kind() {
        out.push_str(&String::from_utf8_lossy(&error.data));
        out.push('\n');
        return;
    }
    // The beginning of the request that the error answers.
    let Some(header) = Header::parse(&error.data) else {
        return write_hex_dump(out, &error.data);
    };
    let whole = usize::from(header.length);
    let version = Version::from_wire(header.version).unwrap_or(style.version);
    let codec = Codec { flow_mod_table_id: true, ..Codec::new(version) };
    if whole == error.data.len()
        && let Ok((xid, message)) = codec.decode(&error.data)
        && !matches!(message, Message::Error(_))
    {
        out.push_str(&message_text(xid, &message, MessageStyle { version, ..style }));
        return;
    }
    out.push_str(type_name(version, header.kind));
    write_version_and_xid(out, version, header.xid);
    if whole > error.data.len() && error.data.len() >= HEADER_LEN {
        put!(out, "\n(***truncated to {} bytes from {whole}***)", error.data.len());
    }
    out.push('\n');
    write_hex_dump(out, &error.data);
}

/// The name of a message of which only the header can be read.
fn type_name(version: Version, kind: u8) -> &'static str {
    match (version, kind) {
        (_, 0) => "OFPT_HELLO",
        (_, 1) => "OFPT_ERROR",
        (_, 2) => "OFPT_ECHO_REQUEST",
        (_, 4) => "OFPT_EXPERIMENTER",
        (_, 5) => "OFPT_FEATURES_REQUEST",
        (_, 7) => "OFPT_GET_CONFIG_REQUEST",
        (_, 9) => "OFPT_SET_CONFIG",
        (_, 13) => "OFPT_PACKET_OUT",
        (_, 14) => "OFPT_FLOW_MOD",
        (Version::V10, 15) => "OFPT_PORT_MOD",
        (Version::V10, 16) | (_, 18) => "OFPST request",
        (_, 15) => "OFPT_GROUP_MOD",
        (_, 16) => "OFPT_PORT_MOD",
        (_, 17) => "OFPT_TABLE_MOD",
        (_, 29) => "OFPT_METER_MOD",
        _ => "message",
    }
}

fn switch_features(out: &mut String, features: &SwitchFeatures, style: MessageStyle) {
    const CAPABILITIES: [(Capabilities, &str); 11] = [
        (Capabilities::FLOW_STATS, "FLOW_STATS"),
        (Capabilities::TABLE_STATS, "TABLE_STATS"),
        (Capabilities::PORT_STATS, "PORT_STATS"),
        (Capabilities::GROUP_STATS, "GROUP_STATS"),
        (Capabilities::IP_REASM, "IP_REASM"),
        (Capabilities::QUEUE_STATS, "QUEUE_STATS"),
        (Capabilities::ARP_MATCH_IP, "ARP_MATCH_IP"),
        (Capabilities::PORT_BLOCKED, "PORT_BLOCKED"),
        (Capabilities::BUNDLES, "BUNDLES"),
        (Capabilities::FLOW_MONITORING, "FLOW_MONITORING"),
        (Capabilities::STP, "STP"),
    ];
    put!(out, " dpid:{:016x}\n", features.datapath_id);
    put!(out, "n_tables:{}, n_buffers:{}", features.n_tables, features.n_buffers);
    if features.auxiliary_id != 0 {
        put!(out, ", auxiliary_id:{}", features.auxiliary_id);
    }
    out.push_str("\ncapabilities:");
    for (_, name) in CAPABILITIES.iter().filter(|(c, _)| features.capabilities.contains(*c)) {
        put!(out, " {name}");
    }
    out.push('\n');
    if style.version == Version::V10 {
        const ACTIONS: [(u32, &str); 12] = [
            (0, "output"),
            (11, "enqueue"),
            (1, "set_vlan_vid"),
            (2, "set_vlan_pcp"),
            (3, "strip_vlan"),
            (4, "mod_dl_src"),
            (5, "mod_dl_dst"),
            (6, "mod_nw_src"),
            (7, "mod_nw_dst"),
            (8, "mod_nw_tos"),
            (9, "mod_tp_src"),
            (10, "mod_tp_dst"),
        ];
        out.push_str("actions:");
        for (_, name) in ACTIONS.iter().filter(|(bit, _)| features.actions >> bit & 1 != 0) {
            put!(out, " {name}");
        }
        out.push('\n');
    }
    port::write_port_descs(out, &features.ports);
}

/// As `get-frags`, `set-frags` and messages name them.
pub fn frag_name(frag: FragHandling) -> &'static str {
    match frag {
        FragHandling::Normal => "normal",
        FragHandling::Drop => "drop",
        FragHandling::Reassemble => "reassemble",
        FragHandling::NxMatch => "nx-match",
    }
}

fn switch_config(out: &mut String, config: &SwitchConfig) {
    put!(out, " frags={}", frag_name(config.frag));
    if config.invalid_ttl_to_controller == Some(true) {
        out.push_str(" invalid_ttl_to_controller");
    }
    put!(out, " miss_send_len={}\n", config.miss_send_len);
}

fn packet_in(out: &mut String, packet: &PacketIn, style: MessageStyle) {
    if packet.table_id != 0 {
        put!(out, " table_id={}", packet.table_id);
    }
    if packet.cookie != u64::MAX {
        put!(out, " cookie={:#x}", packet.cookie);
    }
    put!(out, " total_len={} ", packet.total_len);
    write_match(out, &packet.metadata, DEFAULT_PRIORITY, style.ports);
    put!(out, " (via {}) data_len={}", reason_name(packet.reason), packet.data.len());
    match packet.buffer_id {
        None => out.push_str(" (unbuffered)"),
        Some(id) => put!(out, " buffer=0x{id:08x}"),
    }
    if packet.buffer_id.is_none() && packet.total_len as usize != packet.data.len() {
        put!(out, " (***total_len != data_len***)");
    }
    out.push('\n');
    if !packet.userdata.is_empty() {
        out.push_str(" userdata=");
        super::value::write_dotted_hex(out, &packet.userdata);
        out.push('\n');
    }
    if !packet.continuation.is_empty() {
        put!(out, " continuation: {} bytes\n", packet.continuation.len());
    }
    out.push_str(&packet_text(&packet.data));
    out.push('\n');
    if style.verbosity > 1 {
        write_hex_dump(out, &packet.data);
    }
}

fn packet_out(out: &mut String, packet: &PacketOut, style: MessageStyle) {
    put!(out, " in_port={} actions=", style.ports.text(packet.in_port));
    write_actions(out, &packet.actions, style.version, style.ports);
    match packet.buffer_id {
        Some(id) => put!(out, " buffer=0x{id:08x}"),
        None => {
            put!(out, " data_len={}", packet.data.len());
            if !packet.data.is_empty() {
                put!(out, "\n{}", packet_text(&packet.data));
            }
        }
    }
    out.push('\n');
}

/// As in flow-removed and flow monitors.
fn removed_reason(reason: FlowRemovedReason) -> &'static str {
    match reason {
        FlowRemovedReason::IdleTimeout => "idle",
        FlowRemovedReason::HardTimeout => "hard",
        FlowRemovedReason::Delete => "delete",
        FlowRemovedReason::GroupDelete => "group_delete",
        FlowRemovedReason::MeterDelete => "meter_delete",
        FlowRemovedReason::Eviction => "eviction",
    }
}

fn flow_removed(out: &mut String, removed: &FlowRemoved, style: MessageStyle) {
    out.push(' ');
    write_match(out, &removed.matching, removed.priority, style.ports);
    put!(out, " reason={}", removed_reason(removed.reason));
    if style.version > Version::V10 || removed.form == FlowForm::Nxm {
        put!(out, " table_id={}", removed.table_id);
    }
    if removed.cookie != 0 {
        put!(out, " cookie:{:#x}", removed.cookie);
    }
    out.push_str(" duration");
    write_duration(out, removed.duration_s, removed.duration_ns);
    put!(out, " idle{}", removed.idle_timeout);
    if removed.hard_timeout != 0 {
        put!(out, " hard{}", removed.hard_timeout);
    }
    put!(out, " pkts{} bytes{}\n", removed.packet_count, removed.byte_count);
}

fn port_status(out: &mut String, status: &PortStatus) {
    let what = match status.reason {
        PortReason::Add => "ADD",
        PortReason::Delete => "DEL",
        PortReason::Modify => "MOD",
    };
    put!(out, " {what}:");
    write_port_desc(out, &status.desc);
}

fn port_mod_text(out: &mut String, m: &PortMod, style: MessageStyle) {
    put!(out, " port: {}: addr:", style.ports.text(m.port));
    let address = m.hw_addr.iter().fold(0u64, |acc, b| acc << 8 | u64::from(*b));
    super::value::write_ethernet(out, address);
    out.push_str("\n     config: ");
    port::write_config(out, m.config);
    out.push_str("     mask:   ");
    port::write_config(out, m.mask);
    out.push_str("     advertise: ");
    if m.advertise.is_empty() {
        out.push_str("UNCHANGED\n");
    } else {
        port::write_features(out, m.advertise);
    }
}

fn role_text(out: &mut String, role: Role, generation_id: Option<u64>) {
    let name = match role {
        Role::NoChange => "nochange",
        Role::Equal => "equal",
        Role::Primary => "primary",
        Role::Secondary => "secondary",
    };
    put!(out, " role={name}");
    if let Some(id) = generation_id {
        put!(out, " generation_id={id}");
    }
}

fn bundle_control(out: &mut String, control: &BundleControl) {
    let kind = match control.kind {
        BundleControlType::OpenRequest => "OPEN_REQUEST",
        BundleControlType::OpenReply => "OPEN_REPLY",
        BundleControlType::CloseRequest => "CLOSE_REQUEST",
        BundleControlType::CloseReply => "CLOSE_REPLY",
        BundleControlType::CommitRequest => "COMMIT_REQUEST",
        BundleControlType::CommitReply => "COMMIT_REPLY",
        BundleControlType::DiscardRequest => "DISCARD_REQUEST",
        BundleControlType::DiscardReply => "DISCARD_REPLY",
    };
    put!(out, "\n bundle_id={:#x} type={kind} flags=", control.bundle_id);
    bundle_flags(out, control.flags);
    out.push('\n');
}

fn bundle_flags(out: &mut String, flags: BundleFlags) {
    let names = [(BundleFlags::ATOMIC, "atomic"), (BundleFlags::ORDERED, "ordered")];
    let set: Vec<&str> = names.iter().filter(|(f, _)| flags.contains(*f)).map(|(_, name)| *name).collect();
    if set.is_empty() { out.push('0') } else { out.push_str(&set.join(" ")) }
}

/// Appends bytes, sixteen a line: offset, hexadecimal, text.
pub fn write_hex_dump(out: &mut String, bytes: &[u8]) {
    for (i, line) in bytes.chunks(16).enumerate() {
        put!(out, "{:08x} ", i * 16);
        for n in 0..16 {
            let separator = if n == 8 { '-' } else { ' ' };
            match line.get(n) {
                Some(b) => put!(out, "{separator}{b:02x}"),
                None => out.push_str("   "),
            }
        }
        out.push_str(" |");
        for n in 0..16 {
            let c = line.get(n).map_or(' ', |&b| if (0x20..0x7f).contains(&b) { b as char } else { '.' });
            out.push(c);
        }
        out.push_str("|\n");
    }
}

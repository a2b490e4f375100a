//! Messages in the format in which `ovs-ofctl` prints them: a line of name, version and transaction id, then
//! the contents.

mod asynchronous;
mod features;
mod group;
mod packet;
mod port;
mod raw_match;
mod stats;
mod table;
mod words;

use packet::typed_packet_text;
pub use packet::{packet_differences, packet_flow_text, packet_text};
pub use port::write_port_desc;
pub use words::MessageStyle;
use words::{hexadecimal, removed_reason};

use super::flow::{write_duration, write_flow_mod, write_flow_mod_of};
use super::matching::write_match;
use super::{PortNames, put};
use crate::action::{check_actions, reason_name, write_actions_text as write_actions};
use crate::codec::{Codec, Header, message_name};
use crate::error::{ErrorKind, OfError};
use crate::message::{
    BundleControl, BundleControlType, BundleFlags, Capabilities, DEFAULT_PRIORITY, FlowForm, FlowRemoved,
    FragHandling, Message, PacketIn, PacketOut, PortMod, PortReason, PortStatus, Role, RoleReason,
    RoleRequest, StatsBody, StatsReply, StatsRequest, SwitchConfig, SwitchFeatures, TABLE_ALL, TableStatus,
    TlvMap, TlvTableCommand, TlvTableMod,
};
use crate::version::{Version, VersionSet};
pub use features::write_table_features;
use flow::FieldId;

/// A message in text; ends with a newline.
pub fn message_text(xid: u32, message: &Message, style: MessageStyle) -> String {
    let mut out = name_in(style.version, message);
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

/// The text of bytes that should be one message, ending with a newline: the message, or what is wrong with
/// it.
pub fn bytes_text(bytes: &[u8], ports: &PortNames, verbosity: u8) -> String {
    let mut out = String::new();
    let header = match Header::parse(bytes) {
        None if bytes.is_empty() => return "OpenFlow message is empty\n".into(),
        None => {
            put!(out, "OpenFlow packet too short (only {} bytes):\n", bytes.len());
            write_hex_dump(&mut out, bytes);
            return out;
        }
        Some(header) => header,
    };
    let name = message_name(bytes);
    let known = Version::from_wire(header.version);
    let head = |out: &mut String, name: &str| {
        out.push_str(name);
        match known {
            Some(version) => write_version_and_xid(out, version, header.xid),
            None => put!(out, " (OF 0x{:02x}) (xid={:#x}):", header.version, header.xid),
        }
    };
    let whole = usize::from(header.length);
    if whole != bytes.len() {
        if whole > bytes.len() {
            if let Ok(name) = &name {
                head(&mut out, name);
                out.push('\n');
            }
            put!(out, "(***truncated to {} bytes from {whole}***)\n", bytes.len());
        } else {
            put!(out, "(***only uses {whole} bytes out of {}***)\n", bytes.len());
        }
        write_hex_dump(&mut out, bytes);
        return out;
    }
    let version = known.unwrap_or(Version::V10);
    let codec = Codec { flow_mod_table_id: true, ..Codec::new(version) };
    let error = match name {
        Ok(name) => match codec.decode(bytes).and_then(|decoded| consistent(version, decoded)) {
            // Too short for its type, as a message of fixed size may be: none of it is shown.
            Err(ErrorKind::OFPBRC_BAD_LEN) => ErrorKind::OFPBRC_BAD_LEN,
            decoded => {
                head(&mut out, &name);
                let error = match decoded {
                    Ok((_, Message::Hello(versions))) => {
                        hello(&mut out, versions);
                        let extra = crate::codec::unknown_in_hello(bytes);
                        if extra {
                            out.push_str(" unknown data in hello:\n");
                            write_hex_dump(&mut out, bytes);
                        }
                        None
                    }
                    Ok((_, message)) => {
                        let style = MessageStyle { version, ports, verbosity };
                        match (&message, raw_match::text(bytes, &name, style)) {
                            (Message::FlowMod(flow_mod), Some(matching)) => {
                                out.push(' ');
                                write_flow_mod_of(&mut out, flow_mod, &matching, version, ports);
                            }
                            (Message::StatsRequest(_) | Message::StatsReply(_), _) => {
                                let start = out.len();
                                body(&mut out, &message, style);
                                stats::write_flags(&mut out, start, bytes, version);
                            }
                            _ => body(&mut out, &message, style),
                        }
                        None
                    }
                    Err(error) => Some(error),
                };
                match error {
                    None => {
                        out.truncate(out.trim_end_matches(' ').len());
                        if !out.ends_with('\n') {
                            out.push('\n');
                        }
                        if verbosity >= 4 {
                            write_hex_dump(&mut out, bytes);
                        }
                        return out;
                    }
                    Some(error) => {
                        out.push(' ');
                        error
                    }
                }
            }
        },
        Err(error) => error,
    };
    put!(out, "***decode error: {}***\n", error.name());
    write_hex_dump(&mut out, bytes);
    out
}

/// A message as it was read, or why a switch would refuse it: a rule's actions do not fit its match.
fn consistent(version: Version, decoded: (u32, Message)) -> Result<(u32, Message), ErrorKind> {
    if let Message::FlowMod(flow_mod) = &decoded.1 {
        let table = Some(flow_mod.table_id).filter(|table| *table != TABLE_ALL);
        check_actions(version, &flow_mod.matching, &flow_mod.actions, table)?;
    }
    Ok(decoded)
}

/// The name that a message has in a version: where the standard lacks it, that of the extension.
fn name_in(version: Version, message: &Message) -> String {
    let name = message.name();
    let onf = version == Version::V13;
    match message {
        Message::GroupMod(_) if version == Version::V10 => name.replacen("OFPT", "NXT", 1),
        Message::BundleControl(_) | Message::BundleAdd(_) if onf => name.replacen("OFPT", "ONFT", 1),
        Message::RoleStatus(_) | Message::RequestForward(..) if onf => name.replacen("OFPT", "ONFT", 1),
        Message::RequestForward(..) if version < Version::V13 => name.replacen("OFPT", "NXT", 1),
        Message::FlowMonitorCancel(_) | Message::FlowMonitorPaused | Message::FlowMonitorResumed if onf => {
            name.replacen("NXT", "ONFT", 1)
        }
        Message::SetAsync(_) if version < Version::V13 => "NXT_SET_ASYNC_CONFIG".into(),
        Message::RoleRequest(role) | Message::RoleReply(role) if role.nicira => {
            name.replacen("OFPT", "NXT", 1)
        }
        Message::StatsRequest(
            StatsRequest::Group(_) | StatsRequest::GroupDesc(_) | StatsRequest::GroupFeatures,
        ) if version == Version::V10 => name.replacen("OFPST", "NXST", 1),
        Message::StatsReply(StatsReply {
            body: StatsBody::Group(_) | StatsBody::GroupDesc(_) | StatsBody::GroupFeatures(_),
            ..
        }) if version == Version::V10 => name.replacen("OFPST", "NXST", 1),
        Message::StatsRequest(StatsRequest::FlowMonitor(_))
        | Message::StatsReply(StatsReply { body: StatsBody::FlowMonitor(_), .. })
            if onf =>
        {
            name.replacen("NXST", "ONFST", 1)
        }
        Message::StatsRequest(StatsRequest::FlowMonitor(_))
        | Message::StatsReply(StatsReply { body: StatsBody::FlowMonitor(_), .. })
            if version >= Version::V14 =>
        {
            name.replacen("NXST", "OFPST", 1)
        }
        _ => name.into(),
    }
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
            if style.verbosity > 0 {
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
            role_text(out, role);
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
        Message::CtFlush(flush) => put!(out, " {}", super::ct_flush_text(flush)),
        Message::BundleControl(control) => bundle_control(out, control),
        Message::BundleAdd(add) => {
            put!(out, "\n bundle_id={} flags=", hexadecimal(add.bundle_id));
            bundle_flags(out, add.flags);
            out.push('\n');
            out.push_str(&match add.bytes.as_slice() {
                [] => message_text(add.xid, &add.message, style),
                bytes => bytes_text(bytes, style.ports, style.verbosity),
            });
        }
        Message::TableMod(table_mod) => {
            match table_mod.table_id {
                TABLE_ALL => out.push_str(" table_id: ALL_TABLES"),
                table_id => put!(out, " table_id={table_id}"),
            }
            table::table_config(out, table_mod, style.version);
        }
        Message::GroupMod(group_mod) => group::write_group_mod(out, group_mod, style),
        Message::MeterMod(meter_mod) => group::write_meter_mod(out, meter_mod),
        Message::RoleStatus(status) => {
            role_name(out, status.role, status.generation_id);
            out.push_str(match status.reason {
                RoleReason::PrimaryRequest => " reason=primary_request",
                RoleReason::Config => " reason=configuration_changed",
                RoleReason::Experimenter => " reason=experimenter_data_changed",
            });
        }
        Message::RequestForward(_, request) => match &**request {
            Message::MeterMod(meter_mod) => {
                out.push_str(" reason=meter_mod");
                group::write_meter_mod(out, meter_mod);
            }
            request => {
                out.push_str(" reason=group_mod");
                body(out, request, style);
            }
        },
        Message::TableStatus(status) => {
            let down = status.reason == TableStatus::VACANCY_DOWN;
            put!(out, " reason={}", if down { "VACANCY_DOWN" } else { "VACANCY_UP" });
            put!(out, "\ntable_desc:-");
            stats::table_desc(out, &status.desc);
        }
        Message::GetAsyncReply(config) => asynchronous::write(out, config),
        Message::SetAsync(change) => asynchronous::write(out, &change.config),
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
        Message::QueueGetConfigReply { port, queues } => {
            if queues.is_empty() {
                put!(out, " port={}", port.map_or_else(|| "ANY".to_string(), |p| style.ports.text(p)));
            }
            port::queue_configs(out, queues, style);
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
        for &byte in &error.data {
            match byte {
                b'\\' => out.push_str("\\\\"),
                0x20..0x7f => out.push(byte.into()),
                _ => put!(out, "\\{byte:03o}"),
            }
        }
        out.push('\n');
        return;
    }
    // The beginning of the request that the error answers. An error within an error is not decoded, so there
    // is no nesting.
    match Header::parse(&error.data) {
        Some(header) if header.kind != 1 => {
            out.push_str(&bytes_text(&error.data, style.ports, style.verbosity))
        }
        _ => write_hex_dump(out, &error.data),
    }
}

fn switch_features(out: &mut String, features: &SwitchFeatures, style: MessageStyle) {
    const CAPABILITIES: [(Capabilities, &str); 11] = [
        (Capabilities::FLOW_STATS, "FLOW_STATS"),
        (Capabilities::TABLE_STATS, "TABLE_STATS"),
        (Capabilities::PORT_STATS, "PORT_STATS"),
        (Capabilities::GROUP_STATS, "GROUP_STATS"),
        (Capabilities::STP, "STP"),
        (Capabilities::IP_REASM, "IP_REASM"),
        (Capabilities::QUEUE_STATS, "QUEUE_STATS"),
        (Capabilities::ARP_MATCH_IP, "ARP_MATCH_IP"),
        (Capabilities::PORT_BLOCKED, "PORT_BLOCKED"),
        (Capabilities::BUNDLES, "BUNDLES"),
        (Capabilities::FLOW_MONITORING, "FLOW_MONITORING"),
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
        put!(out, "actions: {}\n", words::action_names(Version::V10, features.actions));
    }
    port::write_port_descs(out, &features.ports);
}

/// The words in `get-frags`, `set-frags` and messages.
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
    let total_len = packet.total_len as usize;
    if packet.buffer_id.is_none() && total_len != packet.data.len() {
        out.push_str(" (***total_len != data_len***)");
    } else if total_len < packet.data.len() {
        out.push_str(" (***total_len < data_len***)");
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
    out.push_str(&typed_packet_text(&packet.data, packet_type(&packet.metadata)));
    out.push('\n');
    if style.verbosity > 1 {
        write_plain_dump(out, &packet.data);
    }
}

/// Type of the packet that comes with this metadata.
fn packet_type(metadata: &flow::Match) -> u32 {
    metadata.key.get64(FieldId::PacketType) as u32
}

fn packet_out(out: &mut String, packet: &PacketOut, style: MessageStyle) {
    let mut metadata = packet.metadata.clone();
    metadata.set_masked(FieldId::InPort, packet.in_port.0.into(), 0xffff);
    out.push(' ');
    write_match(out, &metadata, DEFAULT_PRIORITY, style.ports);
    out.push_str(" actions=");
    write_actions(out, &packet.actions, style.version, style.ports);
    match packet.buffer_id {
        Some(id) => put!(out, " buffer=0x{id:08x}"),
        None => {
            put!(out, " data_len={}", packet.data.len());
            if !packet.data.is_empty() {
                put!(out, "\n{}", typed_packet_text(&packet.data, packet_type(&packet.metadata)));
                if style.verbosity > 1 {
                    out.push('\n');
                    write_plain_dump(out, &packet.data);
                }
            }
        }
    }
    if !out.ends_with('\n') {
        out.push('\n');
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

fn role_text(out: &mut String, role: &RoleRequest) {
    role_name(out, role.role, role.generation_id);
}

fn role_name(out: &mut String, role: Role, generation_id: Option<u64>) {
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
    put!(out, "\n bundle_id={} type={kind} flags=", hexadecimal(control.bundle_id));
    bundle_flags(out, control.flags);
    out.push('\n');
}

fn bundle_flags(out: &mut String, flags: BundleFlags) {
    let names = [(BundleFlags::ATOMIC, "atomic"), (BundleFlags::ORDERED, "ordered")];
    let set = names.iter().filter(|(f, _)| flags.contains(*f)).map(|(_, name)| name.to_string());
    let unknown = flags.bits() & !BundleFlags::all().bits();
    let set: Vec<String> = set.chain((unknown != 0).then(|| format!("{unknown:#x}"))).collect();
    if set.is_empty() { out.push('0') } else { out.push_str(&set.join(" ")) }
}

/// Appends bytes, sixteen a line: offset, hexadecimal.
fn write_plain_dump(out: &mut String, bytes: &[u8]) {
    for (i, line) in bytes.chunks(16).enumerate() {
        put!(out, "{:08x} ", i * 16);
        for (n, byte) in line.iter().enumerate() {
            put!(out, "{}{byte:02x}", if n == 8 { '-' } else { ' ' });
        }
        out.push('\n');
    }
}

/// Appends bytes, sixteen a line: offset, hexadecimal, text.
pub fn write_hex_dump(out: &mut String, bytes: &[u8]) {
    for (i, line) in bytes.chunks(16).enumerate() {
        put!(out, "{:08x} ", i * 16);
        for n in 0..16 {
            let separator = if n == 8 { '-' } else { ' ' };
            match line.get(n) {
                None if n == 8 && line.len() == n => out.push_str("-  "),
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

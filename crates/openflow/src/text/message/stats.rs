//! Statistics requests and replies.

use super::features::write_table_features;
use super::words::{MessageStyle, removed_reason, table_name};
use super::{group, port, table};
use crate::action::write_actions_text as write_actions;
use crate::message::{
    DEFAULT_PRIORITY, FlowEvent, FlowMonitorCommand, FlowMonitorFlags, FlowMonitorRequest, FlowStatsRequest,
    FlowUpdate, FlowUpdateFull, GROUP_ALL, IpfixStats, StatsBody, StatsReply, StatsRequest, SwitchDesc,
    TABLE_ALL, TableDesc,
};
use crate::text::flow::{FlowStyle, write_flow};
use crate::text::matching::write_match;
use crate::text::put;
use crate::version::Version;

pub(super) fn write_request(out: &mut String, request: &StatsRequest, style: MessageStyle) {
    match request {
        StatsRequest::Flow(r) | StatsRequest::Aggregate(r) => flow_request(out, r, style),
        StatsRequest::Port(port) => {
            put!(out, " port_no={}", port.map_or_else(|| "ANY".to_string(), |p| style.ports.text(p)));
        }
        StatsRequest::PortDesc(port) => {
            put!(out, " port={}", port.map_or_else(|| "ANY".to_string(), |p| style.ports.text(p)));
        }
        StatsRequest::QueueDesc { port, queue_id } => {
            put!(out, " port={}", port.map_or_else(|| "ANY".to_string(), |p| style.ports.text(p)));
            if let Some(queue) = queue_id {
                put!(out, " queue={queue}");
            }
        }
        StatsRequest::Queue { port, queue_id } => {
            let port = port.map_or_else(|| "ANY".to_string(), |p| style.ports.text(p));
            let queue = queue_id.map_or_else(|| "ALL".to_string(), |q| q.to_string());
            put!(out, " port={port} queue={queue}");
        }
        // Asked with the number that means no group in particular, the stock tool shows that.
        StatsRequest::Group(id) => put!(out, " group_id={}", group::group_name(id.unwrap_or(GROUP_ALL))),
        StatsRequest::GroupDesc(id) => put!(out, " group_id={}", group::group_name(id.unwrap_or(GROUP_ALL))),
        StatsRequest::Meter(id) | StatsRequest::MeterConfig(id) => put!(out, " {}", group::meter_name(*id)),
        StatsRequest::FlowMonitor(monitors) => {
            for monitor in monitors {
                flow_monitor(out, monitor, style);
            }
        }
        StatsRequest::TableFeatures { features, more } if !features.is_empty() => {
            out.push_str(if *more { MORE } else { "" });
            write_table_features(out, features, style.version);
        }
        _ => {}
    }
}

fn flow_request(out: &mut String, r: &FlowStatsRequest, style: MessageStyle) {
    if r.table_id != TABLE_ALL {
        put!(out, " table={}", r.table_id);
    }
    if let Some(port) = r.out_port {
        put!(out, " out_port={}", style.ports.text(port));
    }
    out.push(' ');
    write_match(out, &r.matching, DEFAULT_PRIORITY, style.ports);
}

/// Shows all flags of a message of statistics, of which a body's text, at `start`, shows those that it knows.
pub(super) fn write_flags(out: &mut String, start: usize, bytes: &[u8], version: Version) {
    let (Some(kind), Some(&[high, low])) = (bytes.get(1), bytes.get(10..12).and_then(|b| b.first_chunk()))
    else {
        return;
    };
    let flags = u16::from_be_bytes([high, low]);
    let is_reply = *kind == if version == Version::V10 { 17 } else { 19 };
    // Requests have come in parts since OpenFlow 1.3.
    let known = flags & u16::from(is_reply || version >= Version::V13);
    if flags == 0 {
        return;
    }
    let shown = if out[start..].starts_with(MORE) { MORE.len() } else { 0 };
    let mut text = String::from(if known != 0 { MORE } else { " flags=" });
    if flags != known {
        put!(text, "[***unknown flags 0x{:04x}***]", flags & !known);
    }
    out.replace_range(start..start + shown, &text);
}

const MORE: &str = " flags=[more]";

pub(super) fn write_reply(out: &mut String, reply: &StatsReply, style: MessageStyle) {
    if reply.more {
        out.push_str(MORE);
    }
    match &reply.body {
        StatsBody::Desc(desc) => switch_desc(out, desc),
        StatsBody::Flow { flows, .. } => {
            let style = FlowStyle { version: style.version, ports: style.ports, stats: true };
            for flow in flows {
                out.push_str("\n ");
                write_flow(out, flow.as_ref(), style);
            }
        }
        StatsBody::Aggregate { stats, .. } => put!(
            out,
            " packet_count={} byte_count={} flow_count={}",
            stats.packet_count,
            stats.byte_count,
            stats.flow_count
        ),
        StatsBody::Table(tables) => {
            let tables = tables.iter().map(|t| (&t.features, Some(t)));
            super::features::write_tables(out, tables, style.version);
        }
        StatsBody::Port(stats) => port::write_stats(out, stats, style.version, style.ports),
        StatsBody::Queue(stats) => port::write_queue_stats(out, stats, style.ports),
        StatsBody::PortDesc(descs) => {
            out.push('\n');
            port::write_port_descs(out, descs);
        }
        StatsBody::FlowMonitor(updates) => updates.iter().for_each(|update| flow_update(out, update, style)),
        StatsBody::Group(groups) => group::write_group_stats(out, groups),
        StatsBody::GroupDesc(groups) => group::write_group_descs(out, groups, style),
        StatsBody::Meter(meters) => group::write_meter_stats(out, meters),
        StatsBody::MeterConfig(meters) => group::write_meter_configs(out, meters),
        StatsBody::TableDesc(tables) => tables.iter().for_each(|t| table_desc(out, t)),
        StatsBody::QueueDesc(queues) => port::queue_configs(out, queues, style),
        StatsBody::IpfixBridge(stats) => {
            out.push_str("\n  bridge ipfix: ");
            ipfix(out, stats, 16);
        }
        StatsBody::IpfixFlow(all) => {
            put!(out, " {} ids\n", all.len());
            for stats in all {
                put!(out, "  id {:3}: ", stats.collector_set_id);
                ipfix(out, stats, 10);
            }
        }
        StatsBody::GroupFeatures(features) => group::write_group_features(out, features, style.version),
        StatsBody::MeterFeatures(f) => group::write_meter_features(out, f),
        StatsBody::TableFeatures(features) => {
            super::features::write_table_features(out, features, style.version)
        }
    }
}

pub(super) fn table_desc(out: &mut String, desc: &TableDesc) {
    put!(out, "\n  table {}", table_name(desc.0.table_id));
    out.push_str(":\n");
    table::table_desc(out, &desc.0);
}

fn ipfix(out: &mut String, s: &IpfixStats, indent: usize) {
    put!(out, "flows={}, current flows={}, sampled pkts={}, ", s.total_flows, s.current_flows, s.packets);
    put!(out, "ipv4 ok={}, ipv6 ok={}, tx pkts={}\n", s.ipv4_packets, s.ipv6_packets, s.tx_packets);
    put!(out, "{:indent$}pkts errs={}, ipv4 errs={}, ", "", s.error_packets, s.ipv4_error_packets);
    put!(out, "ipv6 errs={}, tx errs={}\n", s.ipv6_error_packets, s.tx_errors);
}

fn flow_monitor(out: &mut String, monitor: &FlowMonitorRequest, style: MessageStyle) {
    const NAMES: [(FlowMonitorFlags, &str); 6] = [
        (FlowMonitorFlags::INITIAL, "initial"),
        (FlowMonitorFlags::ADD, "add"),
        (FlowMonitorFlags::DELETE, "delete"),
        (FlowMonitorFlags::MODIFY, "modify"),
        (FlowMonitorFlags::ACTIONS, "actions"),
        (FlowMonitorFlags::OWN, "own"),
    ];
    put!(out, "\n id={}", monitor.id);
    match monitor.command {
        FlowMonitorCommand::Add | FlowMonitorCommand::Modify => {}
        FlowMonitorCommand::Delete => return out.push_str(" command=delete"),
    }
    let names: Vec<&str> =
        NAMES.iter().filter(|(flag, _)| monitor.flags.contains(*flag)).map(|row| row.1).collect();
    put!(out, " flags={}", if names.is_empty() { "0".to_string() } else { names.join(",") });
    if let Some(port) = monitor.out_port {
        put!(out, " out_port={}", style.ports.text(port));
    }
    if let Some(group) = monitor.out_group {
        put!(out, " out_group={group}");
    }
    if monitor.table_id != TABLE_ALL {
        put!(out, " table={}", monitor.table_id);
    }
    let before = out.len();
    write_match(out, &monitor.matching, DEFAULT_PRIORITY, style.ports);
    if out.len() > before {
        out.insert(before, ' ');
    }
}

fn switch_desc(out: &mut String, desc: &SwitchDesc) {
    put!(out, "\nManufacturer: {}\n", desc.manufacturer);
    put!(out, "Hardware: {}\n", desc.hardware);
    put!(out, "Software: {}\n", desc.software);
    put!(out, "Serial Num: {}\n", desc.serial_number);
    put!(out, "DP Description: {}\n", desc.datapath);
}

fn flow_update(out: &mut String, update: &FlowUpdate, style: MessageStyle) {
    match update {
        FlowUpdate::Paused => out.push_str("\n event=PAUSED"),
        FlowUpdate::Resumed => out.push_str("\n event=RESUMED"),
        FlowUpdate::Abbreviated { xid } => put!(out, "\n event=ABBREV xid={xid:#x}"),
        FlowUpdate::Full(full) => flow_update_full(out, full, style),
    }
}

fn flow_update_full(out: &mut String, full: &FlowUpdateFull, style: MessageStyle) {
    out.push_str("\n event=");
    match full.event {
        FlowEvent::Initial => out.push_str("INITIAL"),
        FlowEvent::Added => out.push_str("ADDED"),
        FlowEvent::Modified => out.push_str("MODIFIED"),
        FlowEvent::Deleted => put!(out, "DELETED reason={}", removed_reason(full.reason)),
    }
    put!(out, " table={}", full.table_id);
    if full.idle_timeout != 0 {
        put!(out, " idle_timeout={}", full.idle_timeout);
    }
    if full.hard_timeout != 0 {
        put!(out, " hard_timeout={}", full.hard_timeout);
    }
    put!(out, " cookie={}", if full.cookie == 0 { "0".to_string() } else { format!("{:#x}", full.cookie) });
    let before = out.len();
    write_match(out, &full.matching, DEFAULT_PRIORITY, style.ports);
    if out.len() > before {
        out.insert(before, ' ');
    }
    // They are sent only if the monitor asks for them.
    if !full.actions.is_empty() {
        out.push_str(" actions=");
        write_actions(out, &full.actions, style.version, style.ports);
    }
}

//! Statistics requests and replies.

use super::{MessageStyle, port, removed_reason, table_name};
use crate::codec::OFPFW_ALL;
use crate::message::{
    DEFAULT_PRIORITY, FlowEvent, FlowStatsRequest, FlowUpdate, FlowUpdateFull, StatsBody, StatsReply,
    StatsRequest, SwitchDesc, TABLE_ALL, TableStats,
};
use crate::text::action::write_actions;
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
        StatsRequest::Queue { port, queue_id } => {
            let port = port.map_or_else(|| "ALL".to_string(), |p| style.ports.text(p));
            let queue = queue_id.map_or_else(|| "ALL".to_string(), |q| q.to_string());
            put!(out, " port={port} queue={queue}");
        }
        StatsRequest::Group(id) | StatsRequest::GroupDesc(id) => {
            put!(out, " group_id={}", id.map_or_else(|| "ALL".to_string(), |id| id.to_string()));
        }
        StatsRequest::Meter(id) | StatsRequest::MeterConfig(id) => {
            put!(out, " meter={}", id.map_or_else(|| "all".to_string(), |id| id.to_string()));
        }
        StatsRequest::FlowMonitor(monitors) => {
            for monitor in monitors {
                put!(
                    out,
                    "\n id={} flags={:?} table={}",
                    monitor.id,
                    monitor.flags,
                    table_name(monitor.table_id)
                );
                out.push(' ');
                write_match(out, &monitor.matching, DEFAULT_PRIORITY, style.ports);
            }
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
    if r.cookie_mask != 0 {
        put!(out, " cookie={:#x}/{:#x}", r.cookie, r.cookie_mask);
    }
    out.push(' ');
    write_match(out, &r.matching, DEFAULT_PRIORITY, style.ports);
}

pub(super) fn write_reply(out: &mut String, reply: &StatsReply, style: MessageStyle) {
    if reply.more {
        out.push_str(" flags=[more]");
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
        StatsBody::Table(tables) => table_stats(out, tables, style.version),
        StatsBody::Port(stats) => port::write_stats(out, stats, style.version, style.ports),
        StatsBody::Queue(stats) => port::write_queue_stats(out, stats, style.ports),
        StatsBody::PortDesc(descs) => {
            out.push('\n');
            port::write_port_descs(out, descs);
        }
        StatsBody::FlowMonitor(updates) => updates.iter().for_each(|update| flow_update(out, update, style)),
        StatsBody::Group | StatsBody::GroupDesc | StatsBody::Meter | StatsBody::MeterConfig => {}
        StatsBody::GroupFeatures(features) => put!(out, "\n {features:?}"),
        StatsBody::MeterFeatures(f) => put!(
            out,
            "\nmax_meter:{} max_bands:{} max_color:{}\nband_types: {:#x}\ncapabilities: {:#x}",
            f.max_meters,
            f.max_bands,
            f.max_color,
            f.band_types,
            f.capabilities
        ),
        StatsBody::TableFeatures(features) => {
            for f in features {
                put!(out, "\n  table {} (\"{}\"):\n    max_entries={}", f.table_id, f.name, f.max_entries);
            }
        }
    }
}

fn switch_desc(out: &mut String, desc: &SwitchDesc) {
    put!(out, "\nManufacturer: {}\n", desc.manufacturer);
    put!(out, "Hardware: {}\n", desc.hardware);
    put!(out, "Software: {}\n", desc.software);
    put!(out, "Serial Num: {}\n", desc.serial_number);
    put!(out, "DP Description: {}\n", desc.datapath);
}

/// Tables, with what is as in the table before left out, and runs of equal tables in one line.
fn table_stats(out: &mut String, tables: &[TableStats], version: Version) {
    out.push('\n');
    let of10 = version <= Version::V12;
    let mut i = 0;
    while i < tables.len() {
        let t = &tables[i];
        let before = i.checked_sub(1).map(|b| &tables[b]);
        if i > 0 {
            out.push('\n');
        }
        if before.is_some_and(|b| same(t, b)) {
            let run = tables[i..].iter().take_while(|other| same(other, t)).count();
            let last = &tables[i + run - 1];
            if run == 1 {
                put!(out, "  table {}: ditto\n", t.table_id);
            } else {
                put!(out, "  tables {}...{}: ditto\n", t.table_id, last.table_id);
            }
            i += run;
            continue;
        }
        put!(out, "  table {}", t.table_id);
        if !t.name.is_empty() && t.name != format!("table{}", t.table_id) {
            put!(out, " (\"{}\")", t.name);
        }
        put!(out, ":\n    active={}, ", t.active_count);
        put!(out, "lookup={}, matched={}\n", t.lookup_count, t.matched_count);
        if of10 && before.is_some_and(|b| (b.wildcards, b.max_entries) == (t.wildcards, t.max_entries)) {
            out.push_str("    (same features)\n");
        } else if of10 {
            put!(out, "    max_entries={}\n    matching:\n", t.max_entries);
            matching_fields(out, t.wildcards);
        }
        i += 1;
    }
}

/// Whether a table differs from another one by its number alone. Names of the form `table5` are numbers.
fn same(a: &TableStats, b: &TableStats) -> bool {
    let own_name = |t: &TableStats| t.name.is_empty() || t.name == format!("table{}", t.table_id);
    own_name(a)
        && own_name(b)
        && (a.wildcards, a.max_entries, a.active_count, a.lookup_count, a.matched_count)
            == (b.wildcards, b.max_entries, b.active_count, b.lookup_count, b.matched_count)
}

/// Fields that OpenFlow 1.0 can match, in groups: those that can be left out, and those that must be matched.
fn matching_fields(out: &mut String, wildcards: u32) {
    const FIELDS: [(&str, &str, u32); 12] = [
        ("in_port", "", 1 << 0),
        ("eth_", "src", 1 << 2),
        ("eth_", "dst", 1 << 3),
        ("eth_", "type", 1 << 4),
        ("vlan_", "vid", 1 << 1),
        ("vlan_", "pcp", 1 << 20),
        ("ip_", "src", 0x3f << 8),
        ("ip_", "dst", 0x3f << 14),
        ("nw_", "proto", 1 << 5),
        ("nw_", "tos", 1 << 21),
        ("tcp_", "src", 1 << 6),
        ("tcp_", "dst", 1 << 7),
    ];
    for (title, wanted) in [("must exact match", false), ("exact match or wildcard", true)] {
        let fields: Vec<_> =
            FIELDS.iter().filter(|f| ((wildcards & OFPFW_ALL) & f.2 != 0) == wanted).collect();
        if fields.is_empty() {
            continue;
        }
        put!(out, "      {title}:");
        for group in fields.chunk_by(|a, b| a.0 == b.0) {
            let names: Vec<&str> = group.iter().map(|f| f.1).collect();
            match names[..] {
                [one] => put!(out, " {}{one}", group[0].0),
                _ => put!(out, " {}{{{}}}", group[0].0, names.join(",")),
            }
        }
        out.push('\n');
    }
}

fn flow_update(out: &mut String, update: &FlowUpdate, style: MessageStyle) {
    match update {
        FlowUpdate::Abbreviated { xid } => put!(out, "\n event=ABBREV xid={xid:#x}"),
        FlowUpdate::Full(full) => flow_update_full(out, full, style),
    }
}

fn flow_update_full(out: &mut String, full: &FlowUpdateFull, style: MessageStyle) {
    out.push_str("\n event=");
    match full.event {
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
    // None are sent unless the monitor asks for them.
    if !full.actions.is_empty() {
        out.push_str(" actions=");
        write_actions(out, &full.actions, style.version, style.ports);
    }
}

//! Groups and meters.

use super::features::in_order;
use super::words::{MessageStyle, action_names, bit_names};
use crate::action::write_actions_text as write_actions;
use crate::message::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BandType, GROUP_ALL, GROUP_ANY, GroupCommand, GroupDesc,
    GroupFeatures, GroupMod, GroupStats, GroupType, METER_ALL, METER_CONTROLLER, METER_SLOWPATH,
    MeterCommand, MeterConfig, MeterFeatures, MeterFlags, MeterMod, MeterStats,
};
use crate::text::field::{display_name, write_value};
use crate::text::flow::write_duration;
use crate::text::put;
use crate::version::Version;
use flow::Mf;

pub(super) fn write_group_mod(out: &mut String, m: &GroupMod, style: MessageStyle) {
    let command = GroupCommand::ALL.iter().find(|(command, _)| *command == m.command);
    put!(out, "\n {} ", command.map_or("", |(_, name)| name));
    let on_buckets = matches!(m.command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket);
    if on_buckets {
        put!(out, "command_bucket_id:{},", bucket_name(m.command_bucket_id));
    }
    write_group(out, &m.group, !on_buckets, style);
}

fn bucket_name(id: u32) -> String {
    match id {
        BUCKET_FIRST => "first".into(),
        BUCKET_LAST => "last".into(),
        BUCKET_ALL => "all".into(),
        id => id.to_string(),
    }
}

/// A group's name in messages, including the reserved numbers.
pub(super) fn group_name(id: u32) -> String {
    match id {
        GROUP_ALL => "ALL".into(),
        GROUP_ANY => "ANY".into(),
        id => id.to_string(),
    }
}

fn write_group(out: &mut String, group: &GroupDesc, with_type: bool, style: MessageStyle) {
    put!(out, "group_id={}", group.group_id);
    if with_type {
        let kind = GroupType::ALL.iter().find(|(kind, _)| *kind == group.kind);
        put!(out, ",type={}", kind.map_or("", |(_, name)| name));
    }
    if !group.selection.method.is_empty() {
        put!(out, ",selection_method={}", group.selection.method);
        if group.selection.param != 0 {
            put!(out, ",selection_method_param={}", group.selection.param);
        }
        write_selection_fields(out, &group.selection.fields, style);
    }
    for bucket in &group.buckets {
        out.push_str(",bucket=");
        if style.version >= Version::V15 || style.version == Version::V10 {
            put!(out, "bucket_id:{},", bucket.id);
        }
        if bucket.weight != u16::from(group.kind == GroupType::Select) {
            put!(out, "weight:{},", bucket.weight);
        }
        if let Some(port) = bucket.watch_port {
            out.push_str("watch_port:");
            style.ports.write(out, port);
            out.push(',');
        }
        if let Some(watched) = bucket.watch_group {
            put!(out, "watch_group:{watched},");
        }
        out.push_str("actions=");
        write_actions(out, &bucket.actions, style.version, style.ports);
    }
}

/// The fields that are hashed, in the order of ovs-fields(7).
fn write_selection_fields(out: &mut String, fields: &[(Mf, u128)], style: MessageStyle) {
    let mut ordered: Vec<&(Mf, u128)> = fields.iter().collect();
    ordered.sort_by_cached_key(|(field, _)| in_order().position(|other| other == *field));
    let is_one = fields.len() == 1;
    for (i, (field, mask)) in ordered.into_iter().enumerate() {
        out.push_str(match i {
            0 if is_one => ",fields=",
            0 => ",fields(",
            _ => ",",
        });
        out.push_str(&display_name(*field));
        if *mask != field.ones() {
            out.push('=');
            write_value(out, *field, *mask, field.ones(), style.ports);
        }
    }
    out.push_str(if fields.len() > 1 { ")" } else { "" });
}

pub(super) fn write_group_descs(out: &mut String, groups: &[GroupDesc], style: MessageStyle) {
    for group in groups {
        out.push_str("\n ");
        write_group(out, group, true, style);
    }
}

pub(super) fn write_group_stats(out: &mut String, groups: &[GroupStats]) {
    for group in groups {
        put!(out, "\n group_id={},", group.group_id);
        if group.duration_s != u32::MAX {
            out.push_str("duration=");
            write_duration(out, group.duration_s, group.duration_ns);
            out.push(',');
        }
        let (packets, bytes) = group.counts;
        put!(out, "ref_count={},packet_count={packets},byte_count={bytes}", group.ref_count);
        for (i, (packets, bytes)) in group.buckets.iter().enumerate() {
            // A switch that does not count says so.
            if *packets != u64::MAX {
                put!(out, ",bucket{i}:packet_count={packets},byte_count={bytes}");
            }
        }
    }
}

pub(super) fn write_group_features(out: &mut String, f: &GroupFeatures, version: Version) {
    put!(out, "\n Group table:\n    Types:  {:#x}\n    Capabilities:  {:#x}\n", f.types, f.capabilities);
    for (i, name) in ["all", "select", "indirect", "fast failover"].into_iter().enumerate() {
        if f.types >> i & 1 != 0 {
            put!(out, "    {name} group:\n       max_groups={:#x}\n", f.max_groups[i]);
            put!(out, "       actions: {}\n", action_names(version, f.actions[i]));
        }
    }
}

fn write_meter_id(out: &mut String, id: u32, separator: char) {
    put!(out, "meter{separator}");
    match id {
        METER_CONTROLLER => out.push_str("controller"),
        METER_SLOWPATH => out.push_str("slowpath"),
        METER_ALL => out.push_str("all"),
        id => put!(out, "{id}"),
    }
}

/// The name of a request's meter in messages.
pub(super) fn meter_name(id: Option<u32>) -> String {
    let mut out = String::new();
    write_meter_id(&mut out, id.unwrap_or(METER_ALL), '=');
    out
}

const FLAGS: [(MeterFlags, &str); 4] = [
    (MeterFlags::KBPS, "kbps"),
    (MeterFlags::PKTPS, "pktps"),
    (MeterFlags::BURST, "burst"),
    (MeterFlags::STATS, "stats"),
];

fn write_meter(out: &mut String, meter: &MeterConfig) {
    write_meter_id(out, meter.meter_id, '=');
    out.push(' ');
    let mut unknown = meter.flags;
    for (_, name) in FLAGS.iter().filter(|(flag, _)| meter.flags.contains(*flag)) {
        put!(out, "{name} ");
    }
    FLAGS.iter().for_each(|(flag, _)| unknown.remove(*flag));
    if !unknown.is_empty() {
        put!(out, "flags:{:#x} ", unknown.bits());
    }
    out.push_str("bands=");
    for band in &meter.bands {
        let kind = match band.kind {
            BandType::Drop => "drop",
            BandType::DscpRemark { .. } => "dscp_remark",
        };
        put!(out, "\ntype={kind} rate={}", band.rate);
        if meter.flags.contains(MeterFlags::BURST) {
            put!(out, " burst_size={}", band.burst_size);
        }
        if let BandType::DscpRemark { prec_level } = band.kind {
            put!(out, " prec_level={prec_level}");
        }
    }
    out.push('\n');
}

pub(super) fn write_meter_mod(out: &mut String, m: &MeterMod) {
    out.push_str(match m.command {
        MeterCommand::Add => " ADD ",
        MeterCommand::Modify => " MOD ",
        MeterCommand::Delete => " DEL ",
    });
    write_meter(out, &m.meter);
}

pub(super) fn write_meter_configs(out: &mut String, meters: &[MeterConfig]) {
    for meter in meters {
        out.push('\n');
        write_meter(out, meter);
    }
}

pub(super) fn write_meter_stats(out: &mut String, meters: &[MeterStats]) {
    for meter in meters {
        out.push('\n');
        write_meter_id(out, meter.meter_id, ':');
        let (packets, bytes) = meter.counts;
        put!(
            out,
            " flow_count:{} packet_in_count:{packets} byte_in_count:{bytes} duration:",
            meter.flow_count
        );
        write_duration(out, meter.duration_s, meter.duration_ns);
        out.push_str(" bands:\n");
        for (i, (packets, bytes)) in meter.bands.iter().enumerate() {
            put!(out, "{i}: packet_count:{packets} byte_count:{bytes}\n");
        }
    }
}

pub(super) fn write_meter_features(out: &mut String, f: &MeterFeatures) {
    put!(out, "\nmax_meter:{} max_bands:{} max_color:{}\n", f.max_meters, f.max_bands, f.max_color);
    put!(out, "band_types: {}\n", bit_names(f.band_types, &[(1 << 1, "drop"), (1 << 2, "dscp_remark")], " "));
    let capabilities = FLAGS.map(|(flag, name)| (u32::from(flag.bits()), name));
    put!(out, "capabilities: {}\n", bit_names(f.capabilities, &capabilities, " "));
}

//! Statistics: requests and replies.

use super::bytes::{Put, Reader};
use super::flows::{
    NONE32, filter_port16, filter_port32, port16, port32, read_flow_stats, read_flow_stats_request,
    read_reason, write_flow_stats, write_flow_stats_request,
};
use super::kind::{Kind, NICIRA, StatsKind, nxst};
use super::matching::{read_nxm_match, write_nxm_match};
use super::{action, port};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    AggregateStats, FlowEvent, FlowForm, FlowMonitorFlags, FlowMonitorRequest, FlowRemovedReason, FlowUpdate,
    FlowUpdateFull, GroupFeatures, MeterFeatures, StatsBody, StatsReply, StatsRequest, SwitchDesc,
    TableFeatures, TableInstructionFeatures, TableStats,
};
use crate::version::Version;

/// OFPSF_REPLY_MORE, and OFPMPF_REQ_MORE of table features requests.
pub(crate) const MORE: u16 = 1;
/// OFPG_ALL. OFPG_ANY is all ones, and accepted too.
const GROUP_ALL: u32 = 0xffff_fffc;

/// Where the flags are, counted from the beginning of the message.
pub(crate) const FLAGS_AT: usize = 10;

fn read_head(version: Version, r: &mut Reader) -> Result<(StatsKind, bool), ErrorKind> {
    let (number, flags) = (r.u16()?, r.u16()?);
    if version != Version::V10 {
        r.skip(4)?;
    }
    Ok((StatsKind::from_wire(version, number).ok_or(OFPBRC_BAD_STAT)?, flags & MORE != 0))
}

fn write_head(version: Version, out: &mut Vec<u8>, kind: StatsKind, more: bool) -> Option<()> {
    out.u16(kind.to_wire(version)?);
    out.u16(if more { MORE } else { 0 });
    if version != Version::V10 {
        out.zeros(4);
    }
    Some(())
}

fn read_nicira_head(version: Version, r: &mut Reader) -> Result<u32, ErrorKind> {
    if r.u32()? != NICIRA {
        return Err(OFPBRC_BAD_VENDOR);
    }
    let subtype = r.u32()?;
    if version == Version::V10 {
        r.skip(4)?;
    }
    Ok(subtype)
}

fn write_nicira_head(version: Version, out: &mut Vec<u8>, subtype: u32, more: bool) -> Option<()> {
    write_head(version, out, StatsKind::Experimenter, more)?;
    out.u32(NICIRA);
    out.u32(subtype);
    if version == Version::V10 {
        out.zeros(4);
    }
    Some(())
}

fn read_number_filter(r: &mut Reader, all: u32) -> Result<Option<u32>, ErrorKind> {
    let number = r.u32()?;
    r.skip(4)?;
    Ok((number != all && number != NONE32).then_some(number))
}

pub(super) fn read_request(version: Version, r: &mut Reader) -> Result<StatsRequest, ErrorKind> {
    let (kind, more) = read_head(version, r)?;
    Ok(match kind {
        StatsKind::Desc => StatsRequest::Desc,
        StatsKind::Flow => StatsRequest::Flow(read_flow_stats_request(version, FlowForm::Standard, r)?),
        StatsKind::Aggregate => {
            StatsRequest::Aggregate(read_flow_stats_request(version, FlowForm::Standard, r)?)
        }
        StatsKind::Table => StatsRequest::Table,
        StatsKind::Port => StatsRequest::Port(port::read_port_stats_request(version, r)?),
        StatsKind::Queue => {
            let (port, queue_id) = port::read_queue_stats_request(version, r)?;
            StatsRequest::Queue { port, queue_id }
        }
        StatsKind::Group => StatsRequest::Group(read_number_filter(r, GROUP_ALL)?),
        StatsKind::GroupDesc if version >= Version::V15 => {
            StatsRequest::GroupDesc(read_number_filter(r, GROUP_ALL)?)
        }
        StatsKind::GroupDesc => StatsRequest::GroupDesc(None),
        StatsKind::GroupFeatures => StatsRequest::GroupFeatures,
        StatsKind::Meter => StatsRequest::Meter(read_number_filter(r, NONE32)?),
        StatsKind::MeterConfig => StatsRequest::MeterConfig(read_number_filter(r, NONE32)?),
        StatsKind::MeterFeatures => StatsRequest::MeterFeatures,
        StatsKind::TableFeatures => {
            StatsRequest::TableFeatures { features: read_list(r, read_table_features)?, more }
        }
        StatsKind::PortDesc if version >= Version::V15 => {
            let port = filter_port32(r.u32()?, OFPBRC_BAD_PORT)?;
            r.skip(4)?;
            StatsRequest::PortDesc(port)
        }
        StatsKind::PortDesc => StatsRequest::PortDesc(None),
        StatsKind::Experimenter => match read_nicira_head(version, r)? {
            nxst::FLOW => StatsRequest::Flow(read_flow_stats_request(version, FlowForm::Nxm, r)?),
            nxst::AGGREGATE => StatsRequest::Aggregate(read_flow_stats_request(version, FlowForm::Nxm, r)?),
            nxst::FLOW_MONITOR => StatsRequest::FlowMonitor(read_list(r, read_flow_monitor)?),
            nxst::IPFIX_BRIDGE => StatsRequest::IpfixBridge,
            nxst::IPFIX_FLOW => StatsRequest::IpfixFlow,
            _ => return Err(OFPBRC_BAD_SUBTYPE),
        },
    })
}

fn read_list<T>(
    r: &mut Reader,
    mut read: impl FnMut(&mut Reader) -> Result<T, ErrorKind>,
) -> Result<Vec<T>, ErrorKind> {
    let mut list = Vec::new();
    while !r.is_empty() {
        list.push(read(r)?);
    }
    Ok(list)
}

pub(super) fn write_request(version: Version, out: &mut Vec<u8>, request: &StatsRequest) -> Option<Kind> {
    let (kind, subtype) = match request {
        StatsRequest::Desc => (StatsKind::Desc, 0),
        StatsRequest::Flow(flows) if flows.form == FlowForm::Nxm => (StatsKind::Experimenter, nxst::FLOW),
        StatsRequest::Aggregate(flows) if flows.form == FlowForm::Nxm => {
            (StatsKind::Experimenter, nxst::AGGREGATE)
        }
        StatsRequest::Flow(_) => (StatsKind::Flow, 0),
        StatsRequest::Aggregate(_) => (StatsKind::Aggregate, 0),
        StatsRequest::Table => (StatsKind::Table, 0),
        StatsRequest::Port(_) => (StatsKind::Port, 0),
        StatsRequest::Queue { .. } => (StatsKind::Queue, 0),
        StatsRequest::Group(_) => (StatsKind::Group, 0),
        StatsRequest::GroupDesc(_) => (StatsKind::GroupDesc, 0),
        StatsRequest::GroupFeatures => (StatsKind::GroupFeatures, 0),
        StatsRequest::Meter(_) => (StatsKind::Meter, 0),
        StatsRequest::MeterConfig(_) => (StatsKind::MeterConfig, 0),
        StatsRequest::MeterFeatures => (StatsKind::MeterFeatures, 0),
        StatsRequest::TableFeatures { .. } => (StatsKind::TableFeatures, 0),
        StatsRequest::PortDesc(_) => (StatsKind::PortDesc, 0),
        StatsRequest::FlowMonitor(_) => (StatsKind::Experimenter, nxst::FLOW_MONITOR),
        StatsRequest::IpfixBridge => (StatsKind::Experimenter, nxst::IPFIX_BRIDGE),
        StatsRequest::IpfixFlow => (StatsKind::Experimenter, nxst::IPFIX_FLOW),
    };
    let more = matches!(request, StatsRequest::TableFeatures { more: true, .. });
    if kind == StatsKind::Experimenter {
        write_nicira_head(version, out, subtype, more)?;
    } else {
        write_head(version, out, kind, more)?;
    }
    let mut filter = |number: Option<u32>, all: u32| {
        out.u32(number.unwrap_or(all));
        out.zeros(4);
    };
    match request {
        StatsRequest::Flow(request) | StatsRequest::Aggregate(request) => {
            write_flow_stats_request(version, out, request);
        }
        StatsRequest::Port(port) => port::write_port_stats_request(version, out, *port),
        StatsRequest::Queue { port, queue_id } => {
            port::write_queue_stats_request(version, out, *port, *queue_id)
        }
        StatsRequest::Group(group) => filter(*group, GROUP_ALL),
        StatsRequest::GroupDesc(group) if version >= Version::V15 => filter(*group, GROUP_ALL),
        StatsRequest::Meter(meter) | StatsRequest::MeterConfig(meter) => filter(*meter, NONE32),
        StatsRequest::TableFeatures { features, .. } => {
            features.iter().for_each(|f| write_table_features(version, out, f));
        }
        StatsRequest::PortDesc(port) if version >= Version::V15 => {
            out.u32(port32(*port));
            out.zeros(4);
        }
        StatsRequest::FlowMonitor(monitors) => monitors.iter().for_each(|m| write_flow_monitor(out, m)),
        _ => {}
    }
    Some(Kind::StatsRequest)
}

pub(super) fn read_reply(version: Version, r: &mut Reader) -> Result<StatsReply, ErrorKind> {
    let (kind, more) = read_head(version, r)?;
    let body = match kind {
        StatsKind::Desc => StatsBody::Desc(SwitchDesc {
            manufacturer: r.text(256)?,
            hardware: r.text(256)?,
            software: r.text(256)?,
            serial_number: r.text(32)?,
            datapath: r.text(256)?,
        }),
        StatsKind::Flow => read_flows(version, FlowForm::Standard, r)?,
        StatsKind::Aggregate => read_aggregate(FlowForm::Standard, r)?,
        StatsKind::Table => StatsBody::Table(read_list(r, |r| read_table_stats(version, r))?),
        StatsKind::Port => StatsBody::Port(read_list(r, |r| port::read_port_stats(version, r))?),
        StatsKind::Queue => StatsBody::Queue(read_list(r, |r| port::read_queue_stats(version, r))?),
        StatsKind::Group => StatsBody::Group,
        StatsKind::GroupDesc => StatsBody::GroupDesc,
        StatsKind::GroupFeatures => StatsBody::GroupFeatures(GroupFeatures {
            types: r.u32()?,
            capabilities: r.u32()?,
            max_groups: [r.u32()?, r.u32()?, r.u32()?, r.u32()?],
            actions: [r.u32()?, r.u32()?, r.u32()?, r.u32()?],
        }),
        StatsKind::Meter => StatsBody::Meter,
        StatsKind::MeterConfig => StatsBody::MeterConfig,
        StatsKind::MeterFeatures => {
            let features = MeterFeatures {
                max_meters: r.u32()?,
                band_types: r.u32()?,
                capabilities: r.u32()?,
                max_bands: r.u8()?,
                max_color: r.u8()?,
            };
            r.skip(2)?;
            StatsBody::MeterFeatures(features)
        }
        StatsKind::TableFeatures => StatsBody::TableFeatures(read_list(r, read_table_features)?),
        StatsKind::PortDesc => StatsBody::PortDesc(read_list(r, |r| port::read_port_desc(version, r))?),
        StatsKind::Experimenter => match read_nicira_head(version, r)? {
            nxst::FLOW => read_flows(version, FlowForm::Nxm, r)?,
            nxst::AGGREGATE => read_aggregate(FlowForm::Nxm, r)?,
            nxst::FLOW_MONITOR => StatsBody::FlowMonitor(read_list(r, |r| read_flow_update(version, r))?),
            _ => return Err(OFPBRC_BAD_SUBTYPE),
        },
    };
    Ok(StatsReply { more, body })
}

/// Appends the head of a reply of this kind, from the statistics type on.
pub(crate) fn begin_reply(version: Version, out: &mut Vec<u8>, body: &StatsBody, more: bool) -> Option<()> {
    let kind = match body {
        StatsBody::Desc(_) => StatsKind::Desc,
        StatsBody::Flow { form: FlowForm::Nxm, .. } => {
            return write_nicira_head(version, out, nxst::FLOW, more);
        }
        StatsBody::Aggregate { form: FlowForm::Nxm, .. } => {
            return write_nicira_head(version, out, nxst::AGGREGATE, more);
        }
        StatsBody::FlowMonitor(_) => return write_nicira_head(version, out, nxst::FLOW_MONITOR, more),
        StatsBody::Flow { .. } => StatsKind::Flow,
        StatsBody::Aggregate { .. } => StatsKind::Aggregate,
        StatsBody::Table(_) => StatsKind::Table,
        StatsBody::Port(_) => StatsKind::Port,
        StatsBody::Queue(_) => StatsKind::Queue,
        StatsBody::Group => StatsKind::Group,
        StatsBody::GroupDesc => StatsKind::GroupDesc,
        StatsBody::GroupFeatures(_) => StatsKind::GroupFeatures,
        StatsBody::Meter => StatsKind::Meter,
        StatsBody::MeterConfig => StatsKind::MeterConfig,
        StatsBody::MeterFeatures(_) => StatsKind::MeterFeatures,
        StatsBody::TableFeatures(_) => StatsKind::TableFeatures,
        StatsBody::PortDesc(_) => StatsKind::PortDesc,
    };
    write_head(version, out, kind, more)
}

pub(super) fn write_reply(version: Version, out: &mut Vec<u8>, reply: &StatsReply) -> Option<Kind> {
    begin_reply(version, out, &reply.body, reply.more)?;
    match &reply.body {
        StatsBody::Desc(desc) => {
            [&desc.manufacturer, &desc.hardware, &desc.software]
                .into_iter()
                .for_each(|text| out.text(text, 256));
            out.text(&desc.serial_number, 32);
            out.text(&desc.datapath, 256);
        }
        StatsBody::Flow { form, flows } => {
            flows.iter().for_each(|flow| write_flow_stats(version, *form, out, &flow.as_ref()));
        }
        StatsBody::Aggregate { stats, .. } => {
            out.u64(stats.packet_count);
            out.u64(stats.byte_count);
            out.u32(stats.flow_count);
            out.zeros(4);
        }
        StatsBody::Table(tables) => tables.iter().for_each(|t| write_table_stats(version, out, t)),
        StatsBody::Port(ports) => ports.iter().for_each(|p| port::write_port_stats(version, out, p)),
        StatsBody::Queue(queues) => queues.iter().for_each(|q| port::write_queue_stats(version, out, q)),
        StatsBody::Group | StatsBody::GroupDesc | StatsBody::Meter | StatsBody::MeterConfig => {}
        StatsBody::GroupFeatures(f) => {
            out.u32(f.types);
            out.u32(f.capabilities);
            [f.max_groups, f.actions].concat().into_iter().for_each(|n| out.u32(n));
        }
        StatsBody::MeterFeatures(f) => {
            [f.max_meters, f.band_types, f.capabilities].into_iter().for_each(|n| out.u32(n));
            out.u8(f.max_bands);
            out.u8(f.max_color);
            out.zeros(2);
        }
        StatsBody::TableFeatures(tables) => tables.iter().for_each(|t| write_table_features(version, out, t)),
        StatsBody::PortDesc(ports) => ports.iter().for_each(|p| port::write_port_desc(version, out, p)),
        StatsBody::FlowMonitor(updates) => updates.iter().for_each(|u| write_flow_update(version, out, u)),
    }
    Some(Kind::StatsReply)
}

fn read_flows(version: Version, form: FlowForm, r: &mut Reader) -> Result<StatsBody, ErrorKind> {
    Ok(StatsBody::Flow { form, flows: read_list(r, |r| read_flow_stats(version, form, r))? })
}

fn read_aggregate(form: FlowForm, r: &mut Reader) -> Result<StatsBody, ErrorKind> {
    let stats = AggregateStats { packet_count: r.u64()?, byte_count: r.u64()?, flow_count: r.u32()? };
    r.skip(4)?;
    Ok(StatsBody::Aggregate { form, stats })
}

fn read_table_stats(version: Version, r: &mut Reader) -> Result<TableStats, ErrorKind> {
    let mut t = TableStats {
        table_id: r.u8()?,
        name: String::new(),
        wildcards: 0,
        max_entries: 0,
        active_count: 0,
        lookup_count: 0,
        matched_count: 0,
    };
    r.skip(3)?;
    if version == Version::V10 {
        t.name = r.text(32)?;
        (t.wildcards, t.max_entries) = (r.u32()?, r.u32()?);
    }
    t.active_count = r.u32()?;
    t.lookup_count = r.u64()?;
    t.matched_count = r.u64()?;
    Ok(t)
}

pub(crate) fn write_table_stats(version: Version, out: &mut Vec<u8>, t: &TableStats) {
    out.u8(t.table_id);
    out.zeros(3);
    if version == Version::V10 {
        out.text(&t.name, 32);
        out.u32(t.wildcards);
        out.u32(t.max_entries);
    }
    out.u32(t.active_count);
    out.u64(t.lookup_count);
    out.u64(t.matched_count);
}

fn read_flow_monitor(r: &mut Reader) -> Result<FlowMonitorRequest, ErrorKind> {
    let id = r.u32()?;
    let flags = FlowMonitorFlags::from_bits(r.u16()?).ok_or(OFPMOFC_BAD_FLAGS)?;
    let (out_port, match_len, table_id) = (filter_port16(r.u16()?), r.u16()?, r.u8()?);
    r.zeros(5, NXBRC_MUST_BE_ZERO)?;
    let events = FlowMonitorFlags::ADD | FlowMonitorFlags::DELETE | FlowMonitorFlags::MODIFY;
    if !flags.intersects(events | FlowMonitorFlags::INITIAL) {
        return Err(OFPMOFC_BAD_FLAGS);
    }
    Ok(FlowMonitorRequest { id, flags, out_port, table_id, matching: read_nxm_match(r, match_len, None)? })
}

fn write_flow_monitor(out: &mut Vec<u8>, m: &FlowMonitorRequest) {
    out.u32(m.id);
    out.u16(m.flags.bits());
    out.u16(port16(m.out_port));
    let length_at = out.len();
    out.u16(0);
    out.u8(m.table_id);
    out.zeros(5);
    let length = write_nxm_match(out, &m.matching, 0, (0, 0));
    out.set_u16(length_at, length);
}

/// NXFME_ABBREV.
const ABBREVIATED: u16 = 3;

fn read_flow_update(version: Version, r: &mut Reader) -> Result<FlowUpdate, ErrorKind> {
    let (length, event) = (usize::from(r.u16()?), r.u16()?);
    let mut r = r.sub(length.checked_sub(4).ok_or(OFPBRC_BAD_LEN)?)?;
    let event = match event {
        0 => FlowEvent::Added,
        1 => FlowEvent::Deleted,
        2 => FlowEvent::Modified,
        ABBREVIATED => {
            let xid = r.u32()?;
            r.end()?;
            return Ok(FlowUpdate::Abbreviated { xid });
        }
        _ => return Err(NXBRC_FM_BAD_EVENT),
    };
    let reason = match r.u16()? {
        reason if event == FlowEvent::Deleted => read_reason(reason.min(255) as u8)?,
        _ => FlowRemovedReason::IdleTimeout,
    };
    let (priority, idle_timeout, hard_timeout, match_len) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
    let table_id = r.u8()?;
    r.skip(1)?;
    let cookie = r.u64()?;
    let matching = read_nxm_match(&mut r, match_len, None)?;
    let actions = action::read_actions(version, r)?;
    Ok(FlowUpdate::Full(Box::new(FlowUpdateFull {
        event,
        reason,
        priority,
        idle_timeout,
        hard_timeout,
        table_id,
        cookie,
        matching,
        actions,
    })))
}

pub(crate) fn write_flow_update(version: Version, out: &mut Vec<u8>, update: &FlowUpdate) {
    let start = out.len();
    out.u16(0);
    match update {
        FlowUpdate::Abbreviated { xid } => {
            out.u16(ABBREVIATED);
            out.u32(*xid);
        }
        FlowUpdate::Full(u) => {
            out.u16(u.event as u16);
            out.u16(if u.event == FlowEvent::Deleted { u.reason as u16 } else { 0 });
            [u.priority, u.idle_timeout, u.hard_timeout].into_iter().for_each(|n| out.u16(n));
            let length_at = out.len();
            out.u16(0);
            out.u8(u.table_id);
            out.u8(0);
            out.u64(u.cookie);
            let length = write_nxm_match(out, &u.matching, 0, (0, 0));
            out.set_u16(length_at, length);
            action::write_actions(out, version, Some(&u.matching), &u.actions);
        }
    }
    let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
    out.set_u16(start, length);
}

/// Properties of table features; the one after each is the same for the table-miss flow.
mod feature {
    pub const INSTRUCTIONS: u16 = 0;
    pub const NEXT_TABLES: u16 = 2;
    pub const WRITE_ACTIONS: u16 = 4;
    pub const APPLY_ACTIONS: u16 = 6;
    pub const MATCH: u16 = 8;
    pub const WILDCARDS: u16 = 10;
    pub const WRITE_SET_FIELD: u16 = 12;
    pub const APPLY_SET_FIELD: u16 = 14;
    pub const EXPERIMENTER: u16 = 0xfffe;
}

fn read_table_features(r: &mut Reader) -> Result<TableFeatures, ErrorKind> {
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(2).ok_or(OFPBPC_BAD_LEN)?)?.with_error(OFPBPC_BAD_LEN);
    let table_id = r.u8()?;
    r.skip(5)?;
    let mut t = TableFeatures {
        table_id,
        name: r.text(32)?,
        metadata_match: r.u64()?,
        metadata_write: r.u64()?,
        config: r.u32()?,
        max_entries: r.u32()?,
        nonmiss: TableInstructionFeatures::default(),
        miss: None,
        matchable: Vec::new(),
        wildcards: Vec::new(),
    };
    let mut miss = TableInstructionFeatures::default();
    let mut seen = 0u32;
    r = r.with_error(OFPBPC_BAD_LEN);
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        let mut body = r.sub(length.checked_sub(4).ok_or(OFPBPC_BAD_LEN)?)?;
        r.skip((length.next_multiple_of(8) - length).min(r.len()))?;
        if kind >= feature::EXPERIMENTER {
            continue;
        }
        if kind < 16 {
            if seen & 1 << kind != 0 {
                return Err(OFPBPC_BAD_TYPE);
            }
            seen |= 1 << kind;
        }
        let target = if kind % 2 == 1 { &mut miss } else { &mut t.nonmiss };
        match kind & !1 {
            feature::INSTRUCTIONS => target.instructions = read_type_bits(&mut body)?,
            feature::NEXT_TABLES => target.next_tables = body.rest().to_vec(),
            feature::WRITE_ACTIONS => target.write_actions = read_type_bits(&mut body)?,
            feature::APPLY_ACTIONS => target.apply_actions = read_type_bits(&mut body)?,
            feature::MATCH => t.matchable = read_list(&mut body, read_feature_header)?,
            feature::WILDCARDS => t.wildcards = read_list(&mut body, read_feature_header)?,
            feature::WRITE_SET_FIELD => target.write_set_fields = read_list(&mut body, read_feature_header)?,
            feature::APPLY_SET_FIELD => target.apply_set_fields = read_list(&mut body, read_feature_header)?,
            _ => return Err(OFPBPC_BAD_TYPE),
        }
    }
    const MISS_KINDS: u32 = 0b1010_0000_1010_1010;
    t.miss = (seen & MISS_KINDS != 0).then_some(miss);
    Ok(t)
}

fn read_feature_header(r: &mut Reader) -> Result<u64, ErrorKind> {
    super::matching::read_header(r).map(|header| header.0)
}

/// A list of types (each with a length of its own, 4 or, with an experimenter, 8) as a bitmap.
fn read_type_bits(r: &mut Reader) -> Result<u32, ErrorKind> {
    let mut bits = 0;
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        r.skip(length.checked_sub(4).ok_or(OFPBPC_BAD_LEN)?)?;
        bits |= 1 << kind.min(31);
    }
    Ok(bits)
}

pub(crate) fn write_table_features(version: Version, out: &mut Vec<u8>, t: &TableFeatures) {
    debug_assert!(version >= Version::V13);
    let start = out.len();
    out.u16(0);
    out.u8(t.table_id);
    out.zeros(5);
    out.text(&t.name, 32);
    out.u64(t.metadata_match);
    out.u64(t.metadata_write);
    out.u32(t.config);
    out.u32(t.max_entries);
    let mut property = |kind: u16, body: &dyn Fn(&mut Vec<u8>)| {
        let start = out.len();
        out.u16(kind);
        out.u16(0);
        body(out);
        let length = (out.len() - start) as u16;
        out.set_u16(start + 2, length);
        out.pad8(start);
    };
    let types = |bits: u32| {
        move |out: &mut Vec<u8>| {
            for kind in (0..31u16).filter(|kind| bits & 1 << kind != 0) {
                out.u16(kind);
                out.u16(4);
            }
        }
    };
    let headers = |list: &[u64], out: &mut Vec<u8>| {
        list.iter().for_each(|&header| super::matching::write_header(out, flow::mf::NxmHeader(header)));
    };
    for (odd, f) in [(0, Some(&t.nonmiss)), (1, t.miss.as_ref())] {
        let Some(f) = f else { continue };
        property(feature::INSTRUCTIONS + odd, &types(f.instructions));
        property(feature::NEXT_TABLES + odd, &|out| out.extend_from_slice(&f.next_tables));
        property(feature::WRITE_ACTIONS + odd, &types(f.write_actions));
        property(feature::APPLY_ACTIONS + odd, &types(f.apply_actions));
        property(feature::WRITE_SET_FIELD + odd, &|out| headers(&f.write_set_fields, out));
        property(feature::APPLY_SET_FIELD + odd, &|out| headers(&f.apply_set_fields, out));
    }
    property(feature::MATCH, &|out| headers(&t.matchable, out));
    property(feature::WILDCARDS, &|out| headers(&t.wildcards, out));
    let length = (out.len() - start) as u16;
    out.set_u16(start, length);
}

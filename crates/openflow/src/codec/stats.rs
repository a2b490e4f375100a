//! Statistics: requests and replies.

use super::bytes::{Put, Reader, read_list};
use super::flows::{
    NONE32, filter_port32, port32, read_flow_stats, read_flow_stats_request, write_flow_stats,
    write_flow_stats_request,
};
use super::kind::{Kind, NICIRA, ONF, StatsKind, nxst, onft};
use super::{features, group, meter, monitor, oxs, port, table, table_stats};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    AggregateStats, FlowForm, GROUP_ALL, GroupFeatures, IpfixStats, MeterFeatures, StatsBody, StatsReply,
    StatsRequest, SwitchDesc,
};
use crate::version::Version;

/// OFPSF_REPLY_MORE, and OFPMPF_REQ_MORE of table features requests.
pub(crate) const MORE: u16 = 1;

/// Position of the flags in the message.
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
    let (vendor, subtype) = (r.u32()?, r.u32()?);
    match vendor {
        NICIRA => {}
        ONF if version >= Version::V11 => return Err(OFPBRC_BAD_SUBTYPE),
        _ => return Err(OFPBRC_BAD_VENDOR),
    }
    if version == Version::V10 {
        r.skip(4)?;
    }
    Ok(subtype)
}

/// The head of the flow monitor of OpenFlow 1.3's extension.
fn write_onf_monitor_head(version: Version, out: &mut Vec<u8>, more: bool) -> Option<()> {
    write_head(version, out, StatsKind::Experimenter, more)?;
    out.u32(ONF);
    out.u32(onft::FLOW_MONITOR);
    Some(())
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
    Ok((number != all).then_some(number))
}

pub(super) fn read_request(version: Version, r: &mut Reader) -> Result<StatsRequest, ErrorKind> {
    let (kind, more) = read_head(version, r)?;
    Ok(match kind {
        StatsKind::Desc => StatsRequest::Desc,
        StatsKind::Flow => StatsRequest::Flow(read_flow_stats_request(version, FlowForm::Standard, r)?),
        StatsKind::Aggregate => {
            let request = read_flow_stats_request(version, FlowForm::Standard, r)?;
            // In OpenFlow 1.5 the request may list the sums it wants; all are sent anyway.
            r.skip(if version >= Version::V15 { r.len() } else { 0 })?;
            StatsRequest::Aggregate(request)
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
        StatsKind::TableFeatures => StatsRequest::TableFeatures {
            features: read_list(r, |r| features::read_table_features(version, r))?,
            more,
        },
        StatsKind::PortDesc if version >= Version::V15 => {
            let port = filter_port32(r.u32()?)?;
            r.skip(4)?;
            StatsRequest::PortDesc(port)
        }
        StatsKind::PortDesc => StatsRequest::PortDesc(None),
        StatsKind::TableDesc => StatsRequest::TableDesc,
        StatsKind::QueueDesc => {
            let (port, queue_id) = port::read_queue_stats_request(version, r)?;
            StatsRequest::QueueDesc { port, queue_id }
        }
        StatsKind::FlowMonitor => {
            StatsRequest::FlowMonitor(read_list(r, |r| monitor::read_request(version, r))?)
        }
        StatsKind::Experimenter if is_onf_monitor(version, r) => {
            r.skip(8)?;
            StatsRequest::FlowMonitor(read_list(r, |r| monitor::read_request(version, r))?)
        }
        StatsKind::Experimenter => match read_nicira_head(version, r)? {
            nxst::FLOW if version == Version::V10 => {
                StatsRequest::Flow(read_flow_stats_request(version, FlowForm::Nxm, r)?)
            }
            nxst::AGGREGATE if version == Version::V10 => {
                StatsRequest::Aggregate(read_flow_stats_request(version, FlowForm::Nxm, r)?)
            }
            nxst::FLOW_MONITOR if version <= Version::V12 => {
                StatsRequest::FlowMonitor(read_list(r, monitor::read_nx_request)?)
            }
            nxst::IPFIX_BRIDGE => StatsRequest::IpfixBridge,
            nxst::IPFIX_FLOW => StatsRequest::IpfixFlow,
            nxst::GROUP if version == Version::V10 => StatsRequest::Group(read_number_filter(r, GROUP_ALL)?),
            nxst::GROUP_DESC if version == Version::V10 => {
                StatsRequest::GroupDesc(read_number_filter(r, GROUP_ALL)?)
            }
            // The standard's own start with OpenFlow 1.2.
            nxst::GROUP_FEATURES if version <= Version::V11 => StatsRequest::GroupFeatures,
            _ => return Err(OFPBRC_BAD_SUBTYPE),
        },
    })
}

/// Whether an experimenter's statistics are the flow monitor of OpenFlow 1.3's extension.
fn is_onf_monitor(version: Version, r: &Reader) -> bool {
    let mut head = *r;
    version == Version::V13 && head.u32() == Ok(ONF) && head.u32() == Ok(onft::FLOW_MONITOR)
}

pub(super) fn write_request(version: Version, out: &mut Vec<u8>, request: &StatsRequest) -> Option<Kind> {
    let (kind, subtype) = match request {
        StatsRequest::Desc => (StatsKind::Desc, 0),
        StatsRequest::Flow(flows) | StatsRequest::Aggregate(flows)
            if flows.form == FlowForm::Nxm && version != Version::V10 =>
        {
            return None;
        }
        StatsRequest::Flow(flows) if flows.form == FlowForm::Nxm => (StatsKind::Experimenter, nxst::FLOW),
        StatsRequest::Aggregate(flows) if flows.form == FlowForm::Nxm => {
            (StatsKind::Experimenter, nxst::AGGREGATE)
        }
        StatsRequest::Flow(_) => (StatsKind::Flow, 0),
        StatsRequest::Aggregate(_) => (StatsKind::Aggregate, 0),
        StatsRequest::Table => (StatsKind::Table, 0),
        StatsRequest::Port(_) => (StatsKind::Port, 0),
        StatsRequest::Queue { .. } => (StatsKind::Queue, 0),
        StatsRequest::Group(_) if version == Version::V10 => (StatsKind::Experimenter, nxst::GROUP),
        StatsRequest::GroupDesc(_) if version == Version::V10 => (StatsKind::Experimenter, nxst::GROUP_DESC),
        StatsRequest::GroupFeatures if version <= Version::V11 => {
            (StatsKind::Experimenter, nxst::GROUP_FEATURES)
        }
        StatsRequest::Group(_) => (StatsKind::Group, 0),
        StatsRequest::GroupDesc(_) => (StatsKind::GroupDesc, 0),
        StatsRequest::GroupFeatures => (StatsKind::GroupFeatures, 0),
        StatsRequest::Meter(_) => (StatsKind::Meter, 0),
        StatsRequest::MeterConfig(_) => (StatsKind::MeterConfig, 0),
        StatsRequest::MeterFeatures => (StatsKind::MeterFeatures, 0),
        StatsRequest::TableFeatures { .. } => (StatsKind::TableFeatures, 0),
        StatsRequest::PortDesc(_) => (StatsKind::PortDesc, 0),
        StatsRequest::TableDesc => (StatsKind::TableDesc, 0),
        StatsRequest::QueueDesc { .. } => (StatsKind::QueueDesc, 0),
        StatsRequest::FlowMonitor(_) if version >= Version::V14 => (StatsKind::FlowMonitor, 0),
        StatsRequest::FlowMonitor(_) => (StatsKind::Experimenter, nxst::FLOW_MONITOR),
        StatsRequest::IpfixBridge => (StatsKind::Experimenter, nxst::IPFIX_BRIDGE),
        StatsRequest::IpfixFlow => (StatsKind::Experimenter, nxst::IPFIX_FLOW),
    };
    let more = matches!(request, StatsRequest::TableFeatures { more: true, .. });
    if matches!(request, StatsRequest::FlowMonitor(_)) && version == Version::V13 {
        write_onf_monitor_head(version, out, more)?;
    } else if kind == StatsKind::Experimenter {
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
        StatsRequest::Queue { port, queue_id } | StatsRequest::QueueDesc { port, queue_id } => {
            port::write_queue_stats_request(version, out, *port, *queue_id)
        }
        StatsRequest::Group(group) => filter(*group, GROUP_ALL),
        StatsRequest::GroupDesc(group) if version >= Version::V15 || version == Version::V10 => {
            filter(*group, GROUP_ALL);
        }
        StatsRequest::Meter(meter) | StatsRequest::MeterConfig(meter) => filter(*meter, NONE32),
        StatsRequest::TableFeatures { features, .. } => {
            features.iter().for_each(|f| features::write_table_features(version, out, f));
        }
        StatsRequest::PortDesc(port) if version >= Version::V15 => {
            out.u32(port32(*port));
            out.zeros(4);
        }
        StatsRequest::FlowMonitor(monitors) => {
            monitors.iter().for_each(|m| monitor::write_request(version, out, m));
        }
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
        StatsKind::Aggregate if version >= Version::V15 => read_aggregate15(r)?,
        StatsKind::Aggregate => read_aggregate(FlowForm::Standard, r)?,
        StatsKind::Table => StatsBody::Table(read_list(r, |r| table_stats::read(version, r))?),
        StatsKind::Port => StatsBody::Port(read_list(r, |r| port::read_port_stats(version, r))?),
        StatsKind::Queue => StatsBody::Queue(read_list(r, |r| port::read_queue_stats(version, r))?),
        StatsKind::Group => StatsBody::Group(read_list(r, |r| group::read_group_stats(version, r))?),
        StatsKind::GroupDesc => StatsBody::GroupDesc(read_list(r, |r| group::read_group_desc(version, r))?),
        StatsKind::GroupFeatures => read_group_features(r)?,
        StatsKind::Meter => StatsBody::Meter(read_list(r, meter::read_meter_stats)?),
        StatsKind::MeterConfig => StatsBody::MeterConfig(read_list(r, meter::read_meter_config)?),
        StatsKind::TableDesc => StatsBody::TableDesc(read_list(r, table::read_table_desc)?),
        StatsKind::QueueDesc => StatsBody::QueueDesc(read_list(r, port::read_queue_desc)?),
        StatsKind::FlowMonitor => StatsBody::FlowMonitor(read_list(r, |r| monitor::read_update(version, r))?),
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
        StatsKind::TableFeatures => {
            StatsBody::TableFeatures(read_list(r, |r| features::read_table_features(version, r))?)
        }
        StatsKind::PortDesc => StatsBody::PortDesc(read_list(r, |r| port::read_port_desc(version, r))?),
        StatsKind::Experimenter if is_onf_monitor(version, r) => {
            r.skip(8)?;
            StatsBody::FlowMonitor(read_list(r, |r| monitor::read_update(version, r))?)
        }
        StatsKind::Experimenter => match read_nicira_head(version, r)? {
            nxst::FLOW => read_flows(version, FlowForm::Nxm, r)?,
            nxst::AGGREGATE => read_aggregate(FlowForm::Nxm, r)?,
            nxst::FLOW_MONITOR => {
                StatsBody::FlowMonitor(read_list(r, |r| monitor::read_nx_update(version, r))?)
            }
            nxst::IPFIX_BRIDGE => StatsBody::IpfixBridge(read_ipfix(r)?),
            nxst::IPFIX_FLOW => StatsBody::IpfixFlow(read_list(r, read_ipfix)?),
            nxst::GROUP if version == Version::V10 => {
                StatsBody::Group(read_list(r, |r| group::read_group_stats(version, r))?)
            }
            nxst::GROUP_DESC if version == Version::V10 => {
                StatsBody::GroupDesc(read_list(r, |r| group::read_group_desc(version, r))?)
            }
            nxst::GROUP_FEATURES if version <= Version::V11 => read_group_features(r)?,
            _ => return Err(OFPBRC_BAD_SUBTYPE),
        },
    };
    Ok(StatsReply { more, body })
}

/// Encodes the header of a reply of this kind, from the statistics type on.
pub(crate) fn begin_reply(version: Version, out: &mut Vec<u8>, body: &StatsBody, more: bool) -> Option<()> {
    let kind = match body {
        StatsBody::Desc(_) => StatsKind::Desc,
        StatsBody::Flow { form: FlowForm::Nxm, .. } => {
            return write_nicira_head(version, out, nxst::FLOW, more);
        }
        StatsBody::Aggregate { form: FlowForm::Nxm, .. } => {
            return write_nicira_head(version, out, nxst::AGGREGATE, more);
        }
        StatsBody::FlowMonitor(_) if version >= Version::V14 => StatsKind::FlowMonitor,
        StatsBody::FlowMonitor(_) if version == Version::V13 => {
            return write_onf_monitor_head(version, out, more);
        }
        StatsBody::FlowMonitor(_) => return write_nicira_head(version, out, nxst::FLOW_MONITOR, more),
        StatsBody::IpfixBridge(_) => return write_nicira_head(version, out, nxst::IPFIX_BRIDGE, more),
        StatsBody::IpfixFlow(_) => return write_nicira_head(version, out, nxst::IPFIX_FLOW, more),
        StatsBody::Group(_) if version == Version::V10 => {
            return write_nicira_head(version, out, nxst::GROUP, more);
        }
        StatsBody::GroupDesc(_) if version == Version::V10 => {
            return write_nicira_head(version, out, nxst::GROUP_DESC, more);
        }
        StatsBody::GroupFeatures(_) if version <= Version::V11 => {
            return write_nicira_head(version, out, nxst::GROUP_FEATURES, more);
        }
        StatsBody::TableDesc(_) => StatsKind::TableDesc,
        StatsBody::QueueDesc(_) => StatsKind::QueueDesc,
        StatsBody::Flow { .. } => StatsKind::Flow,
        StatsBody::Aggregate { .. } => StatsKind::Aggregate,
        StatsBody::Table(_) => StatsKind::Table,
        StatsBody::Port(_) => StatsKind::Port,
        StatsBody::Queue(_) => StatsKind::Queue,
        StatsBody::Group(_) => StatsKind::Group,
        StatsBody::GroupDesc(_) => StatsKind::GroupDesc,
        StatsBody::GroupFeatures(_) => StatsKind::GroupFeatures,
        StatsBody::Meter(_) => StatsKind::Meter,
        StatsBody::MeterConfig(_) => StatsKind::MeterConfig,
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
        StatsBody::Aggregate { form: FlowForm::Standard, stats } if version >= Version::V15 => {
            let oxs = oxs::Oxs {
                flow_count: Some(stats.flow_count),
                packet_count: (stats.packet_count != u64::MAX).then_some(stats.packet_count),
                byte_count: (stats.byte_count != u64::MAX).then_some(stats.byte_count),
                ..oxs::Oxs::default()
            };
            oxs::write(out, oxs);
        }
        StatsBody::Aggregate { stats, .. } => {
            out.u64(stats.packet_count);
            out.u64(stats.byte_count);
            out.u32(stats.flow_count);
            out.zeros(4);
        }
        StatsBody::Table(tables) => tables.iter().for_each(|t| table_stats::write(version, out, t)),
        StatsBody::Port(ports) => ports.iter().for_each(|p| port::write_port_stats(version, out, p)),
        StatsBody::Queue(queues) => queues.iter().for_each(|q| port::write_queue_stats(version, out, q)),
        StatsBody::Group(groups) => groups.iter().for_each(|g| group::write_group_stats(version, out, g)),
        StatsBody::GroupDesc(groups) => groups.iter().for_each(|g| group::write_group_desc(version, out, g)),
        StatsBody::Meter(meters) => meters.iter().for_each(|m| meter::write_meter_stats(out, m)),
        StatsBody::MeterConfig(meters) => meters.iter().for_each(|m| meter::write_meter_config(out, m)),
        StatsBody::TableDesc(tables) => tables.iter().for_each(|t| table::write_table_desc(out, t)),
        StatsBody::QueueDesc(queues) => queues.iter().for_each(|q| port::write_queue_desc(out, q)),
        StatsBody::IpfixBridge(stats) => write_ipfix(out, stats),
        StatsBody::IpfixFlow(all) => all.iter().for_each(|stats| write_ipfix(out, stats)),
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
        StatsBody::TableFeatures(tables) => {
            tables.iter().for_each(|t| features::write_table_features(version, out, t))
        }
        StatsBody::PortDesc(ports) => ports.iter().for_each(|p| port::write_port_desc(version, out, p)),
        StatsBody::FlowMonitor(updates) => {
            updates.iter().for_each(|u| monitor::write_update(version, out, u))
        }
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

/// OpenFlow 1.5's form.
fn read_aggregate15(r: &mut Reader) -> Result<StatsBody, ErrorKind> {
    let oxs = oxs::read(r)?;
    let stats = AggregateStats {
        packet_count: oxs.packet_count.unwrap_or(u64::MAX),
        byte_count: oxs.byte_count.unwrap_or(u64::MAX),
        flow_count: oxs.flow_count.unwrap_or(0),
    };
    Ok(StatsBody::Aggregate { form: FlowForm::Standard, stats })
}

fn read_group_features(r: &mut Reader) -> Result<StatsBody, ErrorKind> {
    Ok(StatsBody::GroupFeatures(GroupFeatures {
        types: r.u32()?,
        capabilities: r.u32()?,
        max_groups: [r.u32()?, r.u32()?, r.u32()?, r.u32()?],
        actions: [r.u32()?, r.u32()?, r.u32()?, r.u32()?],
    }))
}

fn read_ipfix(r: &mut Reader) -> Result<IpfixStats, ErrorKind> {
    let stats = IpfixStats {
        total_flows: r.u64()?,
        current_flows: r.u64()?,
        packets: r.u64()?,
        ipv4_packets: r.u64()?,
        ipv6_packets: r.u64()?,
        error_packets: r.u64()?,
        ipv4_error_packets: r.u64()?,
        ipv6_error_packets: r.u64()?,
        tx_packets: r.u64()?,
        tx_errors: r.u64()?,
        collector_set_id: r.u32()?,
    };
    r.skip(4)?;
    Ok(stats)
}

fn write_ipfix(out: &mut Vec<u8>, s: &IpfixStats) {
    let counters = [
        s.total_flows,
        s.current_flows,
        s.packets,
        s.ipv4_packets,
        s.ipv6_packets,
        s.error_packets,
        s.ipv4_error_packets,
        s.ipv6_error_packets,
        s.tx_packets,
        s.tx_errors,
    ];
    counters.into_iter().for_each(|n| out.u64(n));
    out.u32(s.collector_set_id);
    out.zeros(4);
}

//! Names of messages from their bytes, even if the body cannot be decoded.

use super::header::{HEADER_LEN, Header};
use super::kind::{Kind, NICIRA, ONF, StatsKind, nxst, nxt, onft};
use crate::error::ErrorKind::{self, *};
use crate::version::Version;

pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Hello => "OFPT_HELLO",
        Kind::Error => "OFPT_ERROR",
        Kind::EchoRequest => "OFPT_ECHO_REQUEST",
        Kind::EchoReply => "OFPT_ECHO_REPLY",
        Kind::FeaturesRequest => "OFPT_FEATURES_REQUEST",
        Kind::FeaturesReply => "OFPT_FEATURES_REPLY",
        Kind::GetConfigRequest => "OFPT_GET_CONFIG_REQUEST",
        Kind::GetConfigReply => "OFPT_GET_CONFIG_REPLY",
        Kind::SetConfig => "OFPT_SET_CONFIG",
        Kind::PacketIn => "OFPT_PACKET_IN",
        Kind::FlowRemoved => "OFPT_FLOW_REMOVED",
        Kind::PortStatus => "OFPT_PORT_STATUS",
        Kind::PacketOut => "OFPT_PACKET_OUT",
        Kind::FlowMod => "OFPT_FLOW_MOD",
        Kind::GroupMod => "OFPT_GROUP_MOD",
        Kind::PortMod => "OFPT_PORT_MOD",
        Kind::TableMod => "OFPT_TABLE_MOD",
        Kind::BarrierRequest => "OFPT_BARRIER_REQUEST",
        Kind::BarrierReply => "OFPT_BARRIER_REPLY",
        Kind::QueueGetConfigRequest => "OFPT_QUEUE_GET_CONFIG_REQUEST",
        Kind::QueueGetConfigReply => "OFPT_QUEUE_GET_CONFIG_REPLY",
        Kind::RoleRequest => "OFPT_ROLE_REQUEST",
        Kind::RoleReply => "OFPT_ROLE_REPLY",
        Kind::GetAsyncRequest => "OFPT_GET_ASYNC_REQUEST",
        Kind::GetAsyncReply => "OFPT_GET_ASYNC_REPLY",
        Kind::SetAsync => "OFPT_SET_ASYNC",
        Kind::MeterMod => "OFPT_METER_MOD",
        Kind::RoleStatus => "OFPT_ROLE_STATUS",
        Kind::TableStatus => "OFPT_TABLE_STATUS",
        Kind::RequestForward => "OFPT_REQUESTFORWARD",
        Kind::BundleControl => "OFPT_BUNDLE_CONTROL",
        Kind::BundleAdd => "OFPT_BUNDLE_ADD_MESSAGE",
        // Named below, by what they hold.
        Kind::Experimenter | Kind::StatsRequest | Kind::StatsReply => "",
    }
}

pub(super) fn stats_name(kind: StatsKind) -> &'static str {
    match kind {
        StatsKind::Desc => "OFPST_DESC",
        StatsKind::Flow => "OFPST_FLOW",
        StatsKind::Aggregate => "OFPST_AGGREGATE",
        StatsKind::Table => "OFPST_TABLE",
        StatsKind::Port => "OFPST_PORT",
        StatsKind::Queue => "OFPST_QUEUE",
        StatsKind::Group => "OFPST_GROUP",
        StatsKind::GroupDesc => "OFPST_GROUP_DESC",
        StatsKind::GroupFeatures => "OFPST_GROUP_FEATURES",
        StatsKind::Meter => "OFPST_METER",
        StatsKind::MeterConfig => "OFPST_METER_CONFIG",
        StatsKind::MeterFeatures => "OFPST_METER_FEATURES",
        StatsKind::TableFeatures => "OFPST_TABLE_FEATURES",
        StatsKind::PortDesc => "OFPST_PORT_DESC",
        StatsKind::TableDesc => "OFPST_TABLE_DESC",
        StatsKind::QueueDesc => "OFPST_QUEUE_DESC",
        StatsKind::FlowMonitor => "OFPST_FLOW_MONITOR",
        StatsKind::Experimenter => "",
    }
}

/// Experimenters' messages: vendor, subtype, name.
pub(super) const EXPERIMENTERS: [(u32, u32, &str); 31] = [
    (NICIRA, nxt::ROLE_REQUEST, "NXT_ROLE_REQUEST"),
    (NICIRA, nxt::ROLE_REPLY, "NXT_ROLE_REPLY"),
    (NICIRA, nxt::SET_FLOW_FORMAT, "NXT_SET_FLOW_FORMAT"),
    (NICIRA, nxt::FLOW_MOD, "NXT_FLOW_MOD"),
    (NICIRA, nxt::FLOW_REMOVED, "NXT_FLOW_REMOVED"),
    (NICIRA, nxt::FLOW_MOD_TABLE_ID, "NXT_FLOW_MOD_TABLE_ID"),
    (NICIRA, nxt::SET_PACKET_IN_FORMAT, "NXT_SET_PACKET_IN_FORMAT"),
    (NICIRA, nxt::PACKET_IN, "NXT_PACKET_IN"),
    (NICIRA, nxt::FLOW_AGE, "NXT_FLOW_AGE"),
    (NICIRA, nxt::SET_ASYNC_CONFIG, "NXT_SET_ASYNC_CONFIG"),
    (NICIRA, nxt::SET_CONTROLLER_ID, "NXT_SET_CONTROLLER_ID"),
    (NICIRA, nxt::FLOW_MONITOR_CANCEL, "NXT_FLOW_MONITOR_CANCEL"),
    (NICIRA, nxt::FLOW_MONITOR_PAUSED, "NXT_FLOW_MONITOR_PAUSED"),
    (NICIRA, nxt::FLOW_MONITOR_RESUMED, "NXT_FLOW_MONITOR_RESUMED"),
    (NICIRA, nxt::TLV_TABLE_MOD, "NXT_TLV_TABLE_MOD"),
    (NICIRA, nxt::TLV_TABLE_REQUEST, "NXT_TLV_TABLE_REQUEST"),
    (NICIRA, nxt::TLV_TABLE_REPLY, "NXT_TLV_TABLE_REPLY"),
    (NICIRA, nxt::SET_ASYNC_CONFIG2, "NXT_SET_ASYNC_CONFIG2"),
    (NICIRA, nxt::RESUME, "NXT_RESUME"),
    (NICIRA, nxt::CT_FLUSH_ZONE, "NXT_CT_FLUSH_ZONE"),
    (NICIRA, nxt::PACKET_IN2, "NXT_PACKET_IN2"),
    (NICIRA, nxt::GROUP_MOD, "NXT_GROUP_MOD"),
    (NICIRA, nxt::CT_FLUSH, "NXT_CT_FLUSH"),
    (NICIRA, nxt::REQUESTFORWARD, "NXT_REQUESTFORWARD"),
    (ONF, onft::BUNDLE_CONTROL, "ONFT_BUNDLE_CONTROL"),
    (ONF, onft::BUNDLE_ADD, "ONFT_BUNDLE_ADD_MESSAGE"),
    (ONF, onft::FLOW_MONITOR, "ONFT_FLOW_MONITOR_CANCEL"),
    (ONF, onft::FLOW_MONITOR_PAUSED, "ONFT_FLOW_MONITOR_PAUSED"),
    (ONF, onft::FLOW_MONITOR_RESUMED, "ONFT_FLOW_MONITOR_RESUMED"),
    (ONF, onft::ROLE_STATUS, "ONFT_ROLE_STATUS"),
    (ONF, onft::REQUESTFORWARD, "ONFT_REQUESTFORWARD"),
];

/// Experimenters' statistics, likewise.
pub(super) const EXPERIMENTERS_STATS: [(u32, u32, &str); 9] = [
    (NICIRA, nxst::FLOW, "NXST_FLOW"),
    (NICIRA, nxst::AGGREGATE, "NXST_AGGREGATE"),
    (NICIRA, nxst::FLOW_MONITOR, "NXST_FLOW_MONITOR"),
    (NICIRA, nxst::IPFIX_BRIDGE, "NXST_IPFIX_BRIDGE"),
    (NICIRA, nxst::IPFIX_FLOW, "NXST_IPFIX_FLOW"),
    (NICIRA, nxst::GROUP, "NXST_GROUP"),
    (NICIRA, nxst::GROUP_DESC, "NXST_GROUP_DESC"),
    (NICIRA, nxst::GROUP_FEATURES, "NXST_GROUP_FEATURES"),
    (ONF, onft::FLOW_MONITOR, "ONFST_FLOW_MONITOR"),
];

/// The name of the message that starts with these bytes, such as `OFPT_FLOW_MOD` or `OFPST_DESC request`. An
/// error if its type is unknown, or if it ends before its type.
pub fn message_name(bytes: &[u8]) -> Result<String, ErrorKind> {
    let header = Header::parse(bytes).ok_or(OFPBRC_BAD_LEN)?;
    if header.kind == 0 {
        return Ok(kind_name(Kind::Hello).into());
    }
    let version = Version::from_wire(header.version).ok_or(OFPBRC_BAD_TYPE)?;
    let kind = Kind::from_wire(version, header.kind).ok_or(OFPBRC_BAD_TYPE)?;
    let number = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.first_chunk::<4>());
        word.map(|word| u32::from_be_bytes(*word)).ok_or(OFPBRC_BAD_LEN)
    };
    let experimenter = |table: &[(u32, u32, &'static str)], at: usize, unknown: ErrorKind| {
        let (vendor, subtype) = (number(at)?, number(at + 4)?);
        if !table.iter().any(|row| row.0 == vendor) {
            return Err(unknown);
        }
        let row = table.iter().find(|row| (row.0, row.1) == (vendor, subtype));
        row.map(|row| row.2).ok_or(OFPBRC_BAD_SUBTYPE)
    };
    match kind {
        Kind::Experimenter => experimenter(&EXPERIMENTERS, HEADER_LEN, OFPBRC_BAD_VENDOR).map(String::from),
        Kind::StatsRequest | Kind::StatsReply => {
            let number = (number(HEADER_LEN)? >> 16) as u16;
            let stats = StatsKind::from_wire(version, number).ok_or(OFPBRC_BAD_STAT)?;
            let name = match stats {
                StatsKind::Experimenter => {
                    let at = HEADER_LEN + if version == Version::V10 { 4 } else { 8 };
                    experimenter(&EXPERIMENTERS_STATS, at, OFPBRC_BAD_VENDOR)?
                }
                known => stats_name(known),
            };
            Ok(format!("{name} {}", if kind == Kind::StatsRequest { "request" } else { "reply" }))
        }
        known => Ok(kind_name(known).into()),
    }
}

//! The lengths of messages: a fixed part, and what may follow. A request with another length is refused
//! before its contents are examined, as in Open vSwitch; and of what only a switch says, a switch examines
//! nothing but the length.

use super::bytes::Reader;
use super::kind::{Kind, NICIRA, ONF, StatsKind, nxst, nxt, onft};
use crate::error::ErrorKind::{self, OFPBRC_BAD_LEN};
use crate::version::Version;

/// What may follow the fixed part.
enum Rest {
    Nothing,
    Bytes,
    /// A multiple of 8 bytes.
    Words,
    /// A multiple of so many bytes.
    Each(usize),
}

use Rest::*;

/// Refuses a body that is too short or too long for its type. What the switch sends is not checked here.
pub(super) fn check(version: Version, kind: Kind, body: Reader) -> Result<(), ErrorKind> {
    let v = version;
    let (fixed, rest) = match kind {
        Kind::FeaturesRequest | Kind::GetConfigRequest | Kind::BarrierRequest | Kind::GetAsyncRequest => {
            (0, Nothing)
        }
        Kind::SetConfig => (4, Nothing),
        Kind::PacketOut if (Version::V11..Version::V15).contains(&v) => (16, Bytes),
        Kind::PacketOut => (8, Bytes),
        Kind::FlowMod if v == Version::V10 => (64, Words),
        Kind::FlowMod => (40, Words),
        Kind::GroupMod if v >= Version::V15 => (16, Words),
        Kind::GroupMod | Kind::MeterMod | Kind::BundleControl => (8, Words),
        Kind::BundleAdd => (8, Bytes),
        Kind::PortMod if v == Version::V10 => (24, Nothing),
        Kind::PortMod if v < Version::V14 => (32, Nothing),
        Kind::PortMod => (24, Words),
        Kind::TableMod if v < Version::V14 => (8, Nothing),
        Kind::TableMod => (8, Words),
        Kind::QueueGetConfigRequest => (if v == Version::V10 { 4 } else { 8 }, Nothing),
        Kind::RoleRequest => (16, Nothing),
        Kind::SetAsync if v == Version::V13 => (24, Nothing),
        Kind::SetAsync => (0, Words),
        Kind::StatsRequest => return statistics(version, body),
        Kind::Experimenter => return extension(version, body),
        _ => return Ok(()),
    };
    fits(body.len(), fixed, rest)
}

fn fits(length: usize, fixed: usize, rest: Rest) -> Result<(), ErrorKind> {
    let more = length.checked_sub(fixed).ok_or(OFPBRC_BAD_LEN)?;
    let fits = match rest {
        Nothing => more == 0,
        Bytes => true,
        Words => more % 8 == 0,
        Each(bytes) => more % bytes == 0,
    };
    if fits { Ok(()) } else { Err(OFPBRC_BAD_LEN) }
}

fn statistics(version: Version, mut r: Reader) -> Result<(), ErrorKind> {
    let v10 = version == Version::V10;
    let number = r.u16()?;
    r.skip(if v10 { 2 } else { 6 })?;
    let (fixed, rest) = match StatsKind::from_wire(version, number) {
        Some(StatsKind::Flow | StatsKind::Aggregate) if v10 => (44, Nothing),
        Some(StatsKind::Flow | StatsKind::Aggregate) => (32, Words),
        Some(StatsKind::Port | StatsKind::Queue | StatsKind::Group) => (8, Nothing),
        Some(StatsKind::Meter | StatsKind::MeterConfig | StatsKind::QueueDesc) => (8, Nothing),
        Some(StatsKind::GroupDesc | StatsKind::PortDesc) if version >= Version::V15 => (8, Nothing),
        Some(StatsKind::TableFeatures | StatsKind::FlowMonitor) => (0, Words),
        Some(StatsKind::Experimenter) => {
            let (vendor, subtype) = (r.u32()?, r.u32()?);
            let (fixed, rest) = match subtype {
                _ if vendor != NICIRA => return Ok(()),
                nxst::FLOW | nxst::AGGREGATE if v10 => (8, Words),
                nxst::GROUP | nxst::GROUP_DESC if v10 => (8, Nothing),
                nxst::GROUP_FEATURES if version <= Version::V11 => (0, Nothing),
                nxst::FLOW_MONITOR if version <= Version::V12 => (0, Words),
                nxst::IPFIX_BRIDGE | nxst::IPFIX_FLOW => (0, Nothing),
                _ => return Ok(()),
            };
            // OpenFlow 1.0 has padding behind the subtype.
            (if v10 { fixed + 4 } else { fixed }, rest)
        }
        Some(_) => (0, Nothing),
        None => return Ok(()),
    };
    fits(r.len(), fixed, rest)
}

fn extension(version: Version, mut r: Reader) -> Result<(), ErrorKind> {
    let (vendor, subtype) = (r.u32()?, r.u32()?);
    let (fixed, rest) = match subtype {
        onft::BUNDLE_CONTROL if vendor == ONF && version == Version::V13 => (8, Words),
        _ if vendor != NICIRA => return Ok(()),
        nxt::ROLE_REQUEST | nxt::SET_PACKET_IN_FORMAT => (4, Nothing),
        nxt::SET_FLOW_FORMAT if version == Version::V10 => (4, Nothing),
        nxt::FLOW_MONITOR_CANCEL if version <= Version::V12 => (4, Nothing),
        nxt::FLOW_MOD => (32, Words),
        nxt::FLOW_MOD_TABLE_ID | nxt::SET_CONTROLLER_ID | nxt::CT_FLUSH_ZONE => (8, Nothing),
        nxt::FLOW_AGE | nxt::TLV_TABLE_REQUEST => (0, Nothing),
        nxt::SET_ASYNC_CONFIG => (24, Nothing),
        nxt::SET_ASYNC_CONFIG2 if version <= Version::V13 => (0, Words),
        nxt::RESUME => (0, Words),
        nxt::TLV_TABLE_MOD => (8, Words),
        nxt::CT_FLUSH => (8, Words),
        nxt::GROUP_MOD if version == Version::V10 => (16, Words),
        _ => return Ok(()),
    };
    fits(r.len(), fixed, rest)
}

/// Refuses a body that is too short or too long for its type, if only a switch sends messages of this type.
/// `None` if others do, or nobody.
pub(super) fn check_of_switch(version: Version, kind: Kind, body: Reader) -> Option<Result<(), ErrorKind>> {
    let v = version;
    let (fixed, rest) = match kind {
        Kind::FeaturesReply if v == Version::V10 => (24, Each(48)),
        Kind::FeaturesReply if v <= Version::V12 => (24, Each(64)),
        Kind::FeaturesReply => (24, Nothing),
        Kind::GetConfigReply => (4, Nothing),
        Kind::PacketIn if v == Version::V10 => (10, Bytes),
        Kind::PacketIn if v == Version::V12 => (8, Bytes),
        Kind::PacketIn => (16, Bytes),
        Kind::FlowRemoved if v == Version::V10 => (80, Nothing),
        Kind::FlowRemoved if v < Version::V15 => (40, Words),
        Kind::FlowRemoved => (16, Words),
        Kind::PortStatus if v == Version::V10 => (56, Nothing),
        Kind::PortStatus if v < Version::V14 => (72, Nothing),
        Kind::PortStatus => (48, Words),
        Kind::BarrierReply => (0, Nothing),
        Kind::QueueGetConfigReply | Kind::TableStatus | Kind::RequestForward => (8, Words),
        Kind::RoleReply => (16, Nothing),
        Kind::GetAsyncReply if v == Version::V13 => (24, Nothing),
        Kind::GetAsyncReply => (0, Words),
        Kind::RoleStatus => (16, Words),
        Kind::StatsReply => return statistics_of_switch(version, body),
        Kind::Experimenter => return extension_of_switch(version, body),
        _ => return None,
    };
    Some(fits(body.len(), fixed, rest))
}

fn statistics_of_switch(version: Version, mut r: Reader) -> Option<Result<(), ErrorKind>> {
    let (v, v10) = (version, version == Version::V10);
    let number = r.u16().ok()?;
    r.skip(if v10 { 2 } else { 6 }).ok()?;
    let (fixed, rest) = match StatsKind::from_wire(v, number)? {
        StatsKind::Desc => (1056, Nothing),
        StatsKind::Flow => (0, Bytes),
        StatsKind::Aggregate if v >= Version::V15 => (0, Bytes),
        StatsKind::Aggregate => (24, Nothing),
        StatsKind::Table => match v {
            Version::V10 => (0, Each(64)),
            Version::V11 => (0, Each(88)),
            Version::V12 => (0, Each(128)),
            _ => (0, Each(24)),
        },
        StatsKind::Port if v < Version::V13 => (0, Each(104)),
        StatsKind::Port if v == Version::V13 => (0, Each(112)),
        StatsKind::Queue if v < Version::V13 => (0, Each(32)),
        StatsKind::Queue if v == Version::V13 => (0, Each(40)),
        StatsKind::PortDesc if v10 => (0, Each(48)),
        StatsKind::PortDesc if v < Version::V14 => (0, Each(64)),
        StatsKind::GroupFeatures => (40, Nothing),
        StatsKind::MeterFeatures => (16, Nothing),
        StatsKind::TableFeatures => (64, Words),
        StatsKind::TableDesc => (8, Words),
        StatsKind::Port | StatsKind::Queue | StatsKind::PortDesc => (0, Words),
        StatsKind::Group | StatsKind::GroupDesc | StatsKind::QueueDesc => (0, Words),
        StatsKind::Meter | StatsKind::MeterConfig | StatsKind::FlowMonitor => (0, Words),
        StatsKind::Experimenter => {
            let (fixed, rest) = match (r.u32().ok()?, r.u32().ok()?) {
                (NICIRA, nxst::FLOW) if v10 => (0, Bytes),
                (NICIRA, nxst::AGGREGATE) if v10 => (24, Nothing),
                (NICIRA, nxst::GROUP | nxst::GROUP_DESC) if v10 => (0, Words),
                (NICIRA, nxst::GROUP_FEATURES) if v <= Version::V11 => (40, Nothing),
                (NICIRA, nxst::FLOW_MONITOR) if v <= Version::V12 => (0, Words),
                (NICIRA, nxst::IPFIX_BRIDGE) => (88, Nothing),
                (NICIRA, nxst::IPFIX_FLOW) => (0, Each(88)),
                (ONF, onft::FLOW_MONITOR) if v == Version::V13 => (0, Words),
                _ => return None,
            };
            // OpenFlow 1.0 has padding behind the subtype.
            (if v10 { fixed + 4 } else { fixed }, rest)
        }
    };
    Some(fits(r.len(), fixed, rest))
}

fn extension_of_switch(version: Version, mut r: Reader) -> Option<Result<(), ErrorKind>> {
    let (fixed, rest) = match (r.u32().ok()?, r.u32().ok()?) {
        (NICIRA, nxt::ROLE_REPLY) => (4, Nothing),
        (NICIRA, nxt::FLOW_REMOVED) => (40, Words),
        (NICIRA, nxt::PACKET_IN) => (24, Bytes),
        (NICIRA, nxt::PACKET_IN2) => (0, Words),
        (NICIRA, nxt::TLV_TABLE_REPLY) => (16, Words),
        (NICIRA, nxt::REQUESTFORWARD) if version <= Version::V12 => (8, Words),
        (ONF, onft::REQUESTFORWARD) if version == Version::V13 => (8, Words),
        (ONF, onft::ROLE_STATUS) if version == Version::V13 => (16, Words),
        _ => return None,
    };
    Some(fits(r.len(), fixed, rest))
}

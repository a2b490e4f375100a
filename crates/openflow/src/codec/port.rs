//! Ports and queues.

use super::bytes::{Put, Reader};
use super::flows::{NONE32, filter_port16, filter_port32, port32};
use super::property::{EXPERIMENTER, read_property, unknown_property, write_property};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    Message, PortConfig, PortDesc, PortFeatures, PortMod, PortReason, PortState, PortStats, PortStatus,
    QueueConfig, QueueStats,
};
use crate::version::Version;
use base::OfPort;

fn read_port(version: Version, r: &mut Reader) -> Result<OfPort, ErrorKind> {
    if version == Version::V10 {
        return Ok(OfPort(r.u16()?));
    }
    OfPort::from_u32(r.u32()?).ok_or(OFPBAC_BAD_OUT_PORT)
}

fn write_port(version: Version, out: &mut Vec<u8>, port: OfPort) {
    if version == Version::V10 { out.u16(port.0) } else { out.u32(port.to_u32()) }
}

/// OpenFlow 1.0 numbers what comes after 10 Gb/s from bit 7 on, later versions from bit 11 on.
const FEATURES10_SHARED: u32 = 0x7f;

fn features_from_wire(version: Version, bits: u32) -> PortFeatures {
    let bits = if version == Version::V10 { bits & FEATURES10_SHARED | (bits & 0xf80) << 4 } else { bits };
    PortFeatures::from_bits_truncate(bits)
}

fn features_to_wire(version: Version, features: PortFeatures) -> u32 {
    let bits = features.bits();
    if version == Version::V10 { bits & FEATURES10_SHARED | bits >> 4 & 0xf80 } else { bits }
}

fn config_mask(version: Version) -> PortConfig {
    match version {
        Version::V10 => PortConfig::all(),
        _ => PortConfig::PORT_DOWN | PortConfig::NO_RECV | PortConfig::NO_FWD | PortConfig::NO_PACKET_IN,
    }
}

fn state_mask(version: Version) -> PortState {
    match version {
        Version::V10 => PortState::LINK_DOWN | PortState::STP_LEARN | PortState::STP_FORWARD,
        _ => PortState::LINK_DOWN | PortState::BLOCKED | PortState::LIVE,
    }
}

/// A name ends at the first character that is not to be printed.
fn port_name(r: &mut Reader) -> Result<String, ErrorKind> {
    let mut name = r.text(16)?;
    name.truncate(name.find(|c: char| c.is_control()).unwrap_or(name.len()));
    Ok(name)
}

/// The property of Ethernet ports, of descriptions, counters and changes (OFPPDPT_ETHERNET and the like).
const ETHERNET: u16 = 0;

/// `ofp_port` of OpenFlow 1.4 and later: features are a property.
fn read_port_desc14(r: &mut Reader) -> Result<PortDesc, ErrorKind> {
    let v = Version::V14;
    let (port, length) = (read_port(v, r)?, usize::from(r.u16()?));
    let mut r = r.sub(length.checked_sub(6).ok_or(OFPBRC_BAD_LEN)?)?;
    r.skip(2)?;
    let hw_addr = r.array()?;
    r.skip(2)?;
    let name = port_name(&mut r)?;
    let config = PortConfig::from_bits_truncate(r.u32()?) & config_mask(v);
    let state = PortState::from_bits_truncate(r.u32()?) & state_mask(v);
    let none = PortFeatures::empty();
    let mut desc = PortDesc {
        port,
        hw_addr,
        name,
        config,
        state,
        current: none,
        advertised: none,
        supported: none,
        peer: none,
        current_speed_kbps: 0,
        max_speed_kbps: 0,
    };
    while !r.is_empty() {
        let (kind, mut value) = read_property(&mut r)?;
        if kind == ETHERNET {
            value.skip(4)?;
            for features in [&mut desc.current, &mut desc.advertised, &mut desc.supported, &mut desc.peer] {
                *features = features_from_wire(v, value.u32()?);
            }
            (desc.current_speed_kbps, desc.max_speed_kbps) = (value.u32()?, value.u32()?);
        }
    }
    Ok(desc)
}

fn write_port_desc14(out: &mut Vec<u8>, p: &PortDesc) {
    let v = Version::V14;
    let start = out.len();
    write_port(v, out, p.port);
    out.zeros(4);
    out.extend_from_slice(&p.hw_addr);
    out.zeros(2);
    out.text(&p.name, 16);
    out.u32((p.config & config_mask(v)).bits());
    out.u32((p.state & state_mask(v)).bits());
    write_property(out, ETHERNET, |out| {
        out.zeros(4);
        for features in [p.current, p.advertised, p.supported, p.peer] {
            out.u32(features_to_wire(v, features));
        }
        out.u32(p.current_speed_kbps);
        out.u32(p.max_speed_kbps);
    });
    out.set_u16(start + 4, (out.len() - start) as u16);
}

/// `ofp_phy_port`, or `ofp_port`.
pub(super) fn read_port_desc(version: Version, r: &mut Reader) -> Result<PortDesc, ErrorKind> {
    if version >= Version::V14 {
        return read_port_desc14(r);
    }
    let v10 = version == Version::V10;
    let port = read_port(version, r)?;
    r.skip(if v10 { 0 } else { 4 })?;
    let hw_addr = r.array()?;
    r.skip(if v10 { 0 } else { 2 })?;
    let name = port_name(r)?;
    let config = PortConfig::from_bits_truncate(r.u32()?) & config_mask(version);
    let state = PortState::from_bits_truncate(r.u32()?) & state_mask(version);
    let mut features = || r.u32().map(|bits| features_from_wire(version, bits));
    let (current, advertised, supported, peer) = (features()?, features()?, features()?, features()?);
    let (current_speed_kbps, max_speed_kbps) =
        if v10 { (current.max_speed_kbps(), supported.max_speed_kbps()) } else { (r.u32()?, r.u32()?) };
    Ok(PortDesc {
        port,
        hw_addr,
        name,
        config,
        state,
        current,
        advertised,
        supported,
        peer,
        current_speed_kbps,
        max_speed_kbps,
    })
}

pub(super) fn write_port_desc(version: Version, out: &mut Vec<u8>, p: &PortDesc) {
    if version >= Version::V14 {
        return write_port_desc14(out, p);
    }
    let v10 = version == Version::V10;
    write_port(version, out, p.port);
    out.zeros(if v10 { 0 } else { 4 });
    out.extend_from_slice(&p.hw_addr);
    out.zeros(if v10 { 0 } else { 2 });
    out.text(&p.name, 16);
    out.u32((p.config & config_mask(version)).bits());
    out.u32((p.state & state_mask(version)).bits());
    [p.current, p.advertised, p.supported, p.peer]
        .into_iter()
        .for_each(|f| out.u32(features_to_wire(version, f)));
    if !v10 {
        out.u32(p.current_speed_kbps);
        out.u32(p.max_speed_kbps);
    }
}

pub(super) fn read_port_status(version: Version, r: &mut Reader) -> Result<PortStatus, ErrorKind> {
    let reason = match r.u8()? {
        0 => PortReason::Add,
        1 => PortReason::Delete,
        2 => PortReason::Modify,
        _ => return Err(NXBRC_BAD_REASON),
    };
    r.skip(7)?;
    Ok(PortStatus { reason, desc: read_port_desc(version, r)? })
}

pub(super) fn write_port_status(version: Version, out: &mut Vec<u8>, m: &PortStatus) {
    out.u8(m.reason as u8);
    out.zeros(7);
    write_port_desc(version, out, &m.desc);
}

pub(super) fn read_port_mod(version: Version, r: &mut Reader) -> Result<PortMod, ErrorKind> {
    let v10 = version == Version::V10;
    let port = read_port(version, r)?;
    r.skip(if v10 { 0 } else { 4 })?;
    let hw_addr = r.array()?;
    r.skip(if v10 { 0 } else { 2 })?;
    let (config, mask) = (r.u32()?, r.u32()?);
    let config = PortConfig::from_bits_truncate(config) & config_mask(version);
    let mask = PortConfig::from_bits_truncate(mask) & config_mask(version);
    if version >= Version::V14 {
        let (mut advertise, mut unknown) = (PortFeatures::empty(), None);
        while !r.is_empty() {
            match read_property(r)? {
                (ETHERNET, mut value) => advertise = features_from_wire(version, value.u32()?),
                // As in the stock switch, which does not know the properties of optical ports either.
                (kind, value) => _ = unknown.get_or_insert_with(|| unknown_property(kind, value)),
            }
        }
        return Ok(PortMod { port, hw_addr, config: config & mask, mask, advertise, unknown });
    }
    let advertise = features_from_wire(version, r.u32()?);
    r.skip(4)?;
    Ok(PortMod { port, hw_addr, config: config & mask, mask, advertise, unknown: None })
}

pub(super) fn write_port_mod(version: Version, out: &mut Vec<u8>, m: &PortMod) {
    let v10 = version == Version::V10;
    write_port(version, out, m.port);
    out.zeros(if v10 { 0 } else { 4 });
    out.extend_from_slice(&m.hw_addr);
    out.zeros(if v10 { 0 } else { 2 });
    out.u32((m.config & config_mask(version)).bits());
    out.u32((m.mask & config_mask(version)).bits());
    if version >= Version::V14 {
        if !m.advertise.is_empty() {
            write_property(out, ETHERNET, |out| out.u32(features_to_wire(version, m.advertise)));
        }
        return;
    }
    out.u32(features_to_wire(version, m.advertise));
    out.zeros(4);
}

pub(super) fn read_port_stats_request(version: Version, r: &mut Reader) -> Result<Option<OfPort>, ErrorKind> {
    if version == Version::V10 {
        let port = filter_port16(r.u16()?);
        r.skip(6)?;
        return Ok(port);
    }
    let port = filter_port32(r.u32()?)?;
    r.skip(4)?;
    Ok(port)
}

pub(super) fn write_port_stats_request(version: Version, out: &mut Vec<u8>, port: Option<OfPort>) {
    write_port(version, out, port.unwrap_or(OfPort::NONE));
    out.zeros(if version == Version::V10 { 6 } else { 4 });
}

/// The counters, in the order of the wire.
fn port_counters(s: &mut PortStats) -> [&mut u64; 12] {
    [
        &mut s.rx_packets,
        &mut s.tx_packets,
        &mut s.rx_bytes,
        &mut s.tx_bytes,
        &mut s.rx_dropped,
        &mut s.tx_dropped,
        &mut s.rx_errors,
        &mut s.tx_errors,
        &mut s.rx_frame_err,
        &mut s.rx_over_err,
        &mut s.rx_crc_err,
        &mut s.collisions,
    ]
}

/// Counters before those of Ethernet, in OpenFlow 1.4 and later.
const COUNTERS_COMMON: usize = 8;

/// Intel's number as an experimenter, and what it tells of ports. Open vSwitch: `openflow/intel-ext.h`.
const INTEL: u32 = 0xaa01;
const INTEL_FRAMES: u32 = 1;
const INTEL_CUSTOM: u32 = 2;

/// An OpenFlow 1.4 entry without a device's own counters, but with the header of these.
const STATS14_BYTES: usize = 80 + 40 + 184 + 24;

/// Maximum size of a device's own counters and their count: what a message has room for besides its header,
/// the rest of the entry and padding.
const CUSTOM_BYTES_MAX: usize = 0xffff - 16 - STATS14_BYTES - 8;

fn read_port_stats14(r: &mut Reader) -> Result<PortStats, ErrorKind> {
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(2).ok_or(OFPBRC_BAD_LEN)?)?;
    r.skip(2)?;
    let mut s = PortStats { port: read_port(Version::V14, &mut r)?, ..PortStats::unknown(OfPort::NONE) };
    (s.duration_s, s.duration_ns) = (r.u32()?, r.u32()?);
    for counter in port_counters(&mut s).into_iter().take(COUNTERS_COMMON) {
        *counter = r.u64()?;
    }
    while !r.is_empty() {
        let (kind, mut value) = read_property(&mut r)?;
        match kind {
            ETHERNET => {
                value.skip(4)?;
                for counter in port_counters(&mut s).into_iter().skip(COUNTERS_COMMON) {
                    *counter = value.u64()?;
                }
                value.end()?;
            }
            EXPERIMENTER if value.u32()? == INTEL => match value.u32()? {
                INTEL_FRAMES => {
                    value.skip(4)?;
                    for counter in &mut s.frames {
                        *counter = value.u64()?;
                    }
                    value.end()?;
                }
                INTEL_CUSTOM => s.custom = read_custom_counters(&mut value)?,
                _ => {}
            },
            _ => {}
        }
    }
    Ok(s)
}

/// Their number, and each with its name's length, name and value, without padding.
fn read_custom_counters(r: &mut Reader) -> Result<Vec<(String, u64)>, ErrorKind> {
    r.skip(2)?;
    let count = r.u16()?;
    let mut read = || {
        let length = usize::from(r.u8()?);
        let name = r.text(length)?;
        Ok((name, r.u64()?))
    };
    (0..count).map(|_| read()).collect()
}

/// The device's own counters for which OpenFlow 1.4 and later have room.
fn custom_that_fit(counters: &[(String, u64)]) -> impl Iterator<Item = &(String, u64)> {
    // Their number.
    let mut bytes = 2;
    counters.iter().filter(move |(name, _)| {
        let fits = name.len() <= usize::from(u8::MAX) && bytes + 9 + name.len() <= CUSTOM_BYTES_MAX;
        bytes += if fits { 9 + name.len() } else { 0 };
        fits
    })
}

impl PortStats {
    /// How many of a device's own counters a reply omits because there is no room.
    pub fn custom_left_out(&self, version: Version) -> usize {
        if version < Version::V14 { 0 } else { self.custom.len() - custom_that_fit(&self.custom).count() }
    }
}

fn write_custom_counters(out: &mut Vec<u8>, counters: &[(String, u64)]) {
    out.zeros(2);
    let count_at = out.len();
    out.u16(0);
    let mut count = 0;
    for (name, value) in custom_that_fit(counters) {
        out.u8(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out.u64(*value);
        count += 1;
    }
    out.set_u16(count_at, count);
}

/// Maximum size of an entry.
pub(crate) fn port_stats_bytes_max(s: &PortStats) -> usize {
    let custom: usize = s.custom.iter().map(|(name, _)| 9 + name.len()).sum();
    STATS14_BYTES + custom.min(CUSTOM_BYTES_MAX)
}

fn write_port_stats14(out: &mut Vec<u8>, s: &mut PortStats) {
    let start = out.len();
    out.zeros(4);
    write_port(Version::V14, out, s.port);
    out.u32(s.duration_s);
    out.u32(s.duration_ns);
    let counters = port_counters(s);
    counters[..COUNTERS_COMMON].iter().for_each(|counter| out.u64(**counter));
    write_property(out, ETHERNET, |out| {
        out.zeros(4);
        counters[COUNTERS_COMMON..].iter().for_each(|counter| out.u64(**counter));
    });
    write_property(out, EXPERIMENTER, |out| {
        out.u32(INTEL);
        out.u32(INTEL_FRAMES);
        out.zeros(4);
        s.frames.iter().for_each(|counter| out.u64(*counter));
    });
    if !s.custom.is_empty() {
        write_property(out, EXPERIMENTER, |out| {
            out.u32(INTEL);
            out.u32(INTEL_CUSTOM);
            write_custom_counters(out, &s.custom);
        });
    }
    out.set_u16(start, (out.len() - start) as u16);
}

pub(super) fn read_port_stats(version: Version, r: &mut Reader) -> Result<PortStats, ErrorKind> {
    if version >= Version::V14 {
        return read_port_stats14(r);
    }
    let mut s = PortStats { port: read_port(version, r)?, ..PortStats::unknown(OfPort::NONE) };
    r.skip(if version == Version::V10 { 6 } else { 4 })?;
    for counter in port_counters(&mut s) {
        *counter = r.u64()?;
    }
    if version >= Version::V13 {
        (s.duration_s, s.duration_ns) = (r.u32()?, r.u32()?);
    }
    Ok(s)
}

pub(super) fn write_port_stats(version: Version, out: &mut Vec<u8>, stats: &PortStats) {
    let mut s = stats.clone();
    if version >= Version::V14 {
        return write_port_stats14(out, &mut s);
    }
    write_port(version, out, s.port);
    out.zeros(if version == Version::V10 { 6 } else { 4 });
    port_counters(&mut s).into_iter().for_each(|counter| out.u64(*counter));
    if version >= Version::V13 {
        out.u32(s.duration_s);
        out.u32(s.duration_ns);
    }
}

/// A filter of queues: any port is OFPP_ALL in OpenFlow 1.0 and OFPP_ANY later, any queue all ones.
pub(super) fn read_queue_stats_request(
    version: Version,
    r: &mut Reader,
) -> Result<(Option<OfPort>, Option<u32>), ErrorKind> {
    let port = read_port(version, r)?;
    r.skip(if version == Version::V10 { 2 } else { 0 })?;
    let queue = r.u32()?;
    // OpenFlow 1.0 has no number for any port, and all of them stand for it.
    let any = port == OfPort::NONE || port == OfPort::ALL && version == Version::V10;
    Ok(((!any).then_some(port), (queue != NONE32).then_some(queue)))
}

pub(super) fn write_queue_stats_request(
    version: Version,
    out: &mut Vec<u8>,
    port: Option<OfPort>,
    queue_id: Option<u32>,
) {
    if version == Version::V10 {
        out.u16(port.unwrap_or(OfPort::ALL).0);
        out.zeros(2);
    } else {
        out.u32(port32(port));
    }
    out.u32(queue_id.unwrap_or(NONE32));
}

pub(super) fn read_queue_stats(version: Version, r: &mut Reader) -> Result<QueueStats, ErrorKind> {
    if version >= Version::V14 {
        // A length and room for properties; there are none.
        let length = usize::from(r.u16()?);
        let mut r = r.sub(length.checked_sub(2).ok_or(OFPBRC_BAD_LEN)?)?;
        r.skip(6)?;
        return read_queue_stats(Version::V13, &mut r);
    }
    let port = read_port(version, r)?;
    r.skip(if version == Version::V10 { 2 } else { 0 })?;
    let queue_id = r.u32()?;
    let (tx_bytes, tx_packets, tx_errors) = (r.u64()?, r.u64()?, r.u64()?);
    let (duration_s, duration_ns) =
        if version >= Version::V13 { (r.u32()?, r.u32()?) } else { (u32::MAX, u32::MAX) };
    Ok(QueueStats { port, queue_id, tx_bytes, tx_packets, tx_errors, duration_s, duration_ns })
}

pub(super) fn write_queue_stats(version: Version, out: &mut Vec<u8>, s: &QueueStats) {
    if version >= Version::V14 {
        out.u16(QUEUE_STATS14_LEN);
        out.zeros(6);
    }
    write_port(version, out, s.port);
    out.zeros(if version == Version::V10 { 2 } else { 0 });
    out.u32(s.queue_id);
    [s.tx_bytes, s.tx_packets, s.tx_errors].into_iter().for_each(|n| out.u64(n));
    if version >= Version::V13 {
        out.u32(s.duration_s);
        out.u32(s.duration_ns);
    }
}

pub(super) fn read_queue_config_request(version: Version, r: &mut Reader) -> Result<Message, ErrorKind> {
    let port = if version == Version::V10 { filter_port16(r.u16()?) } else { filter_port32(r.u32()?)? };
    r.skip(if version == Version::V10 { 2 } else { 4 })?;
    // LOCAL included, and in OpenFlow 1.0, which has no number for all ports, 0xffff.
    let can_be_all = version != Version::V10;
    if port.map_or(!can_be_all, |port| port.0 >= OfPort::MAX.0) {
        return Err(OFPQOFC_BAD_PORT);
    }
    Ok(Message::QueueGetConfigRequest { port })
}

pub(super) fn write_queue_config_request(version: Version, out: &mut Vec<u8>, port: Option<OfPort>) {
    write_port(version, out, port.unwrap_or(OfPort::NONE));
    out.zeros(if version == Version::V10 { 2 } else { 4 });
}

/// Bytes of an entry of OpenFlow 1.4's and later queue statistics.
const QUEUE_STATS14_LEN: u16 = 48;

/// An entry of OFPST_QUEUE_DESC.
pub(super) fn read_queue_desc(r: &mut Reader) -> Result<QueueConfig, ErrorKind> {
    let (port, queue_id) = (read_port(Version::V14, r)?, r.u32()?);
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(10).ok_or(OFPBRC_BAD_LEN)?)?;
    r.skip(6)?;
    let mut queue = QueueConfig { port, queue_id, min_rate: None, max_rate: None };
    while !r.is_empty() {
        let (kind, mut value) = read_property(&mut r)?;
        set_rate(&mut queue, kind, &mut value)?;
    }
    Ok(queue)
}

pub(super) fn write_queue_desc(out: &mut Vec<u8>, queue: &QueueConfig) {
    let start = out.len();
    write_port(Version::V14, out, queue.port);
    out.u32(queue.queue_id);
    out.zeros(8);
    for (kind, rate) in [(QUEUE_MIN_RATE, queue.min_rate), (QUEUE_MAX_RATE, queue.max_rate)] {
        if let Some(rate) = rate {
            write_property(out, kind, |out| {
                out.u16(rate);
                out.zeros(2);
            });
        }
    }
    out.set_u16(start + 8, (out.len() - start) as u16);
}

/// Takes a rate; properties of other kinds say nothing that is known.
fn set_rate(queue: &mut QueueConfig, kind: u16, value: &mut Reader) -> Result<(), ErrorKind> {
    let target = match kind {
        QUEUE_MIN_RATE => &mut queue.min_rate,
        QUEUE_MAX_RATE => &mut queue.max_rate,
        _ => return Ok(()),
    };
    *target = Some(value.u16()?).filter(|&rate| rate != RATE_UNSET);
    Ok(())
}

/// The rate of a queue that has none (OFPQ_MIN_RATE_UNCFG).
const RATE_UNSET: u16 = 0xffff;

/// Properties of a queue: rates in tenths of a percent; above 1000 they are disabled.
const QUEUE_MIN_RATE: u16 = 1;
const QUEUE_MAX_RATE: u16 = 2;

pub(super) fn read_queue_config_reply(version: Version, r: &mut Reader) -> Result<Message, ErrorKind> {
    // Since OpenFlow 1.2 each queue says its port.
    let (v10, short) = (version == Version::V10, version <= Version::V11);
    let port = read_port(version, r)?;
    r.skip(if v10 { 6 } else { 4 })?;
    if !r.len().is_multiple_of(8) {
        return Err(OFPBRC_BAD_LEN);
    }
    let mut queues = Vec::new();
    while !r.is_empty() {
        let mut queue = QueueConfig { port, queue_id: r.u32()?, min_rate: None, max_rate: None };
        // The port of the queue is that of the message.
        r.skip(if short { 0 } else { 4 })?;
        let length = usize::from(r.u16()?);
        r.skip(if short { 2 } else { 6 })?;
        let mut properties = r.sub(length.checked_sub(if short { 8 } else { 16 }).ok_or(OFPBRC_BAD_LEN)?)?;
        while !properties.is_empty() {
            let (kind, length) = (properties.u16()?, usize::from(properties.u16()?));
            let mut value = properties.sub(length.checked_sub(4).ok_or(OFPBRC_BAD_LEN)?)?;
            value.skip(4.min(value.len()))?;
            set_rate(&mut queue, kind, &mut value)?;
        }
        queues.push(queue);
    }
    Ok(Message::QueueGetConfigReply { port: (port != OfPort::NONE).then_some(port), queues })
}

pub(super) fn write_queue_config_reply(
    version: Version,
    out: &mut Vec<u8>,
    port: Option<OfPort>,
    queues: &[QueueConfig],
) {
    let (v10, short) = (version == Version::V10, version <= Version::V11);
    write_port(version, out, port.unwrap_or(OfPort::NONE));
    out.zeros(if v10 { 6 } else { 4 });
    for queue in queues {
        let start = out.len();
        out.u32(queue.queue_id);
        if !short {
            write_port(version, out, queue.port);
        }
        let length_at = out.len();
        out.zeros(if short { 4 } else { 8 });
        for (kind, rate) in [(QUEUE_MIN_RATE, queue.min_rate), (QUEUE_MAX_RATE, queue.max_rate)] {
            if let Some(rate) = rate {
                out.u16(kind);
                out.u16(16);
                out.zeros(4);
                out.u16(rate);
                out.zeros(6);
            }
        }
        let length = (out.len() - start) as u16;
        out.set_u16(length_at, length);
    }
}

//! Meters on the wire. Source: OpenFlow 1.3 sections 7.3.4.4 and 7.3.5.

use super::bytes::{Put, Reader, read_list};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    Band, BandType, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterConfig, MeterFlags,
    MeterMod, MeterStats,
};

/// OFPMBT_DROP and OFPMBT_DSCP_REMARK.
const DROP: u16 = 1;
const DSCP_REMARK: u16 = 2;
/// Length of a band of any type.
const BAND_LEN: usize = 16;

fn read_bands(mut r: Reader) -> Result<Vec<Band>, ErrorKind> {
    let mut bands = Vec::new();
    r = r.with_error(OFPBRC_BAD_LEN);
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        if length != BAND_LEN {
            return Err(OFPBRC_BAD_LEN);
        }
        let mut body = r.sub(BAND_LEN - 4)?;
        let (rate, burst_size, prec_level) = (body.u32()?, body.u32()?, body.u8()?);
        let kind = match kind {
            DROP => BandType::Drop,
            DSCP_REMARK => BandType::DscpRemark { prec_level },
            _ => return Err(OFPMMFC_BAD_BAND),
        };
        bands.push(Band { kind, rate, burst_size });
    }
    Ok(bands)
}

fn write_bands(out: &mut Vec<u8>, bands: &[Band]) {
    for band in bands {
        let (kind, prec_level) = match band.kind {
            BandType::Drop => (DROP, 0),
            BandType::DscpRemark { prec_level } => (DSCP_REMARK, prec_level),
        };
        out.u16(kind);
        out.u16(BAND_LEN as u16);
        out.u32(band.rate);
        out.u32(band.burst_size);
        out.u8(prec_level);
        out.zeros(3);
    }
}

pub(super) fn read_meter_mod(r: &mut Reader) -> Result<MeterMod, ErrorKind> {
    let command = match r.u16()? {
        0 => MeterCommand::Add,
        1 => MeterCommand::Modify,
        2 => MeterCommand::Delete,
        _ => return Err(OFPMMFC_BAD_COMMAND),
    };
    let flags = MeterFlags::from_bits_retain(r.u16()?);
    let mut meter = MeterConfig { meter_id: r.u32()?, flags, bands: Vec::new() };
    if command == MeterCommand::Delete {
        r.skip(r.len())?;
        return Ok(MeterMod { command, meter: MeterConfig { flags: MeterFlags::empty(), ..meter } });
    }
    // Unknown ones are for the switch to refuse: a request that is forwarded is shown with them.
    if flags.contains(MeterFlags::KBPS | MeterFlags::PKTPS) {
        return Err(OFPMMFC_BAD_FLAGS);
    }
    meter.bands = read_bands(*r)?;
    r.skip(r.len())?;
    let is_number = (1..=METER_MAX).contains(&meter.meter_id);
    if !is_number && meter.meter_id != METER_CONTROLLER && meter.meter_id != METER_SLOWPATH {
        return Err(OFPMMFC_INVALID_METER);
    }
    Ok(MeterMod { command, meter })
}

pub(super) fn write_meter_mod(out: &mut Vec<u8>, m: &MeterMod) {
    out.u16(m.command as u16);
    out.u16(m.meter.flags.bits());
    out.u32(m.meter.meter_id);
    write_bands(out, &m.meter.bands);
}

pub(super) fn read_meter_config(r: &mut Reader) -> Result<MeterConfig, ErrorKind> {
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(2).ok_or(OFPBRC_BAD_LEN)?)?;
    let (flags, meter_id) = (MeterFlags::from_bits_retain(r.u16()?), r.u32()?);
    Ok(MeterConfig { meter_id, flags, bands: read_bands(r)? })
}

pub(super) fn write_meter_config(out: &mut Vec<u8>, m: &MeterConfig) {
    let start = out.len();
    out.u16(0);
    out.u16(m.flags.bits());
    out.u32(m.meter_id);
    write_bands(out, &m.bands);
    out.set_u16(start, (out.len() - start) as u16);
}

pub(super) fn read_meter_stats(r: &mut Reader) -> Result<MeterStats, ErrorKind> {
    let (meter_id, length) = (r.u32()?, usize::from(r.u16()?));
    let mut r = r.sub(length.checked_sub(6).ok_or(OFPBRC_BAD_LEN)?)?;
    r.skip(6)?;
    Ok(MeterStats {
        meter_id,
        flow_count: r.u32()?,
        counts: (r.u64()?, r.u64()?),
        duration_s: r.u32()?,
        duration_ns: r.u32()?,
        bands: read_list(&mut r, |r| Ok((r.u64()?, r.u64()?)))?,
    })
}

pub(super) fn write_meter_stats(out: &mut Vec<u8>, s: &MeterStats) {
    let start = out.len();
    out.u32(s.meter_id);
    out.zeros(8);
    out.u32(s.flow_count);
    out.u64(s.counts.0);
    out.u64(s.counts.1);
    out.u32(s.duration_s);
    out.u32(s.duration_ns);
    for &(packets, bytes) in &s.bands {
        out.u64(packets);
        out.u64(bytes);
    }
    out.set_u16(start + 4, (out.len() - start) as u16);
}

//! Flow statistics of OpenFlow 1.5 (`ofp_stats`): a list of fields, each with a header as in OXM. Source:
//! OpenFlow 1.5 section 7.2.4.

use super::bytes::{Put, Reader};
use crate::error::ErrorKind::{self, *};

/// OFPXMC_OPENFLOW_BASIC of these fields.
const CLASS: u16 = 0x8002;
/// Fields (OFPXST_OFB_*).
const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

/// What the list contained; `None` for missing fields.
#[derive(Clone, Copy, Default)]
pub(super) struct Oxs {
    pub duration: Option<(u32, u32)>,
    pub idle_s: Option<u32>,
    pub flow_count: Option<u32>,
    pub packet_count: Option<u64>,
    pub byte_count: Option<u64>,
}

pub(super) fn read(r: &mut Reader) -> Result<Oxs, ErrorKind> {
    let mut oxs = Oxs::default();
    r.skip(2)?;
    let length = usize::from(r.u16()?);
    let mut fields = r.sub(length.checked_sub(4).ok_or(OFPBRC_BAD_LEN)?)?;
    r.skip((length.next_multiple_of(8) - length).min(r.len()))?;
    while !fields.is_empty() {
        let (class, field, length) = (fields.u16()?, fields.u8()? >> 1, fields.u8()?);
        let mut value = fields.sub(length.into())?;
        if class != CLASS {
            continue;
        }
        match field {
            DURATION => oxs.duration = Some((value.u32()?, value.u32()?)),
            IDLE_TIME => oxs.idle_s = Some(value.u32()?),
            FLOW_COUNT => oxs.flow_count = Some(value.u32()?),
            PACKET_COUNT => oxs.packet_count = Some(value.u64()?),
            BYTE_COUNT => oxs.byte_count = Some(value.u64()?),
            _ => {}
        }
    }
    Ok(oxs)
}

pub(super) fn write(out: &mut Vec<u8>, oxs: Oxs) {
    let start = out.len();
    out.zeros(4);
    let header = |out: &mut Vec<u8>, field: u8, length: u8| {
        out.u16(CLASS);
        out.u8(field << 1);
        out.u8(length);
    };
    if let Some((s, ns)) = oxs.duration {
        header(out, DURATION, 8);
        out.u32(s);
        out.u32(ns);
    }
    if let Some(s) = oxs.idle_s {
        header(out, IDLE_TIME, 8);
        out.u32(s);
        out.u32(0);
    }
    for (field, n) in [(PACKET_COUNT, oxs.packet_count), (BYTE_COUNT, oxs.byte_count)] {
        if let Some(n) = n {
            header(out, field, 8);
            out.u64(n);
        }
    }
    // In Open vSwitch's order.
    if let Some(n) = oxs.flow_count {
        header(out, FLOW_COUNT, 4);
        out.u32(n);
    }
    out.set_u16(start + 2, (out.len() - start) as u16);
    out.pad8(start);
}

//! NXT_CT_FLUSH: a protocol, then properties. Tuples hold properties of their own; addresses of IPv4 are
//! mapped into IPv6. Source: Open vSwitch's nicira-ext.h, `struct nx_ct_flush`.

use super::bytes::{Put, Reader};
use super::property::{read_property, write_property};
use crate::error::ErrorKind::{self, *};
use crate::message::CtFlush;
use flow::{CtTuple, CtTuples};
use std::net::{Ipv4Addr, Ipv6Addr};

const ORIGINAL: u16 = 0;
const REPLY: u16 = 1;
const ZONE: u16 = 2;
const SRC: u16 = 0;
const DST: u16 = 1;
const SRC_PORT: u16 = 2;
const DST_PORT: u16 = 3;
const ICMP_ID: u16 = 4;
const ICMP_TYPE: u16 = 5;
const ICMP_CODE: u16 = 6;
/// Bytes before the properties of a tuple.
const NESTED_PADDING: usize = 4;

pub(super) fn read(r: &mut Reader) -> Result<CtFlush, ErrorKind> {
    let protocol = Some(r.u8()?).filter(|protocol| *protocol != 0);
    let mut flush = CtFlush { zone: None, tuples: CtTuples { protocol, ..CtTuples::default() } };
    r.zeros(7, NXBRC_MUST_BE_ZERO)?;
    while !r.is_empty() {
        let (kind, mut body) = read_property(r)?;
        match kind {
            ORIGINAL => flush.tuples.original = read_tuple(&mut body, &mut flush.tuples.is_ipv6)?,
            REPLY => flush.tuples.reply = read_tuple(&mut body, &mut flush.tuples.is_ipv6)?,
            ZONE => flush.zone = Some(body.u16()?),
            _ => return Err(OFPBPC_BAD_TYPE),
        }
    }
    Ok(flush)
}

fn read_tuple(r: &mut Reader, is_ipv6: &mut Option<bool>) -> Result<CtTuple, ErrorKind> {
    r.skip(NESTED_PADDING)?;
    let mut tuple = CtTuple::default();
    while !r.is_empty() {
        let (kind, mut body) = read_property(r)?;
        match kind {
            SRC => tuple.src = read_address(&mut body, is_ipv6)?,
            DST => tuple.dst = read_address(&mut body, is_ipv6)?,
            SRC_PORT => tuple.src_port = Some(body.u16()?),
            DST_PORT => tuple.dst_port = Some(body.u16()?),
            ICMP_ID => tuple.icmp_id = Some(body.u16()?),
            ICMP_TYPE => tuple.icmp_type = Some(body.u8()?),
            ICMP_CODE => tuple.icmp_code = Some(body.u8()?),
            _ => return Err(OFPBPC_BAD_TYPE),
        }
    }
    Ok(tuple)
}

/// All addresses in a message have the same IP version. `None`: not known yet.
fn read_address(r: &mut Reader, is_ipv6: &mut Option<bool>) -> Result<Option<u128>, ErrorKind> {
    let address = Ipv6Addr::from_bits(r.number(16)?);
    if address.is_unspecified() {
        return Ok(None);
    }
    let mapped = address.to_ipv4_mapped();
    if is_ipv6.is_some_and(|before| before != mapped.is_none()) {
        return Err(OFPBPC_BAD_VALUE);
    }
    *is_ipv6 = Some(mapped.is_none());
    Ok(Some(mapped.map_or(address.to_bits(), |mapped| mapped.to_bits().into())))
}

pub(super) fn write(out: &mut Vec<u8>, flush: &CtFlush) {
    out.u8(flush.tuples.protocol.unwrap_or(0));
    out.zeros(7);
    if let Some(zone) = flush.zone {
        write_property(out, ZONE, |out| out.u16(zone));
    }
    for (kind, tuple) in [(ORIGINAL, &flush.tuples.original), (REPLY, &flush.tuples.reply)] {
        if *tuple != CtTuple::default() {
            write_property(out, kind, |out| write_tuple(out, tuple, flush.tuples.is_ipv6 == Some(true)));
        }
    }
}

fn write_tuple(out: &mut Vec<u8>, tuple: &CtTuple, is_ipv6: bool) {
    out.zeros(NESTED_PADDING);
    for (kind, address) in [(SRC, tuple.src), (DST, tuple.dst)] {
        if let Some(address) = address {
            let mapped = Ipv4Addr::from_bits(address as u32).to_ipv6_mapped().to_bits();
            write_property(out, kind, |out| out.number(if is_ipv6 { address } else { mapped }, 16));
        }
    }
    let words = [(SRC_PORT, tuple.src_port), (DST_PORT, tuple.dst_port), (ICMP_ID, tuple.icmp_id)];
    for (kind, word) in words {
        if let Some(word) = word {
            write_property(out, kind, |out| out.u16(word));
        }
    }
    for (kind, byte) in [(ICMP_TYPE, tuple.icmp_type), (ICMP_CODE, tuple.icmp_code)] {
        if let Some(byte) = byte {
            write_property(out, kind, |out| out.u8(byte));
        }
    }
}

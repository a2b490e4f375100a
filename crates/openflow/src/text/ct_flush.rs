//! Tuples of tracked connections in the syntax of `ct-flush` and `dpctl/flush-conntrack`, and their output.

use super::value::{u8_named, u16_named};
use super::{KeyValues, put};
use crate::message::CtFlush;
use flow::{CtTuple, CtTuples};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Reads `ct_nw_src=..,ct_tp_dst=..` into one of both tuples. `Err` says what is wrong.
pub fn parse_ct_tuple(text: &str, into: &mut CtTuples, is_reply: bool) -> Result<(), String> {
    for (key, value) in KeyValues::new(text) {
        if value.is_empty() {
            return Err(format!("field {key} missing value"));
        }
        let failed = || format!("failed to parse field {key}");
        let number = || u16_named(value, key).map_err(|_| failed());
        let byte = || u8_named(value, key).map_err(|_| failed());
        // Port 0 stands for any.
        let port = || number().map(|port| Some(port).filter(|&port| port != 0));
        let (is_ipv6, is_icmp) = (into.is_ipv6, into.is_icmp());
        let tuple = if is_reply { &mut into.reply } else { &mut into.original };
        let mut address = |is_src: bool, new: Option<u128>, new_is_ipv6: bool| {
            if is_ipv6.is_some_and(|before| before != new_is_ipv6) {
                return Err(format!("the L3 protocol does not match {value}"));
            }
            let place = if is_src { &mut tuple.src } else { &mut tuple.dst };
            if place.is_some() {
                return Err(format!("{key} is set multiple times"));
            }
            *place = Some(new.ok_or_else(failed)?);
            Ok(Some(new_is_ipv6))
        };
        match key {
            "ct_nw_src" | "ct_nw_dst" => {
                let new = value.parse::<Ipv4Addr>().ok().map(|a| a.to_bits().into());
                into.is_ipv6 = address(key == "ct_nw_src", new, false)?;
            }
            "ct_ipv6_src" | "ct_ipv6_dst" => {
                let new = value.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits);
                into.is_ipv6 = address(key == "ct_ipv6_src", new, true)?;
            }
            "ct_nw_proto" => into.protocol = Some(byte()?),
            "ct_tp_src" => tuple.src_port = port()?,
            "ct_tp_dst" => tuple.dst_port = port()?,
            "icmp_type" | "icmp_code" | "icmp_id" if !is_icmp => {
                return Err("invalid L4 fields".into());
            }
            "icmp_type" => tuple.icmp_type = Some(byte()?),
            "icmp_code" => tuple.icmp_code = Some(byte()?),
            "icmp_id" => tuple.icmp_id = Some(number()?),
            other => return Err(format!("invalid conntrack tuple field: {other}")),
        }
    }
    let ports = [into.original, into.reply].iter().any(|t| t.src_port.is_some() || t.dst_port.is_some());
    if into.protocol.is_none() && ports {
        return Err("port is set without protocol".into());
    }
    Ok(())
}

/// `zone=5 'ct_nw_src=10.0.0.1,…' '…'`, the stock programs' format for what to remove.
pub fn ct_flush_text(flush: &CtFlush) -> String {
    let mut out = format!("zone={} '", flush.zone.unwrap_or(0));
    write_tuple(&mut out, &flush.tuples, &flush.tuples.original);
    put!(out, ",ct_nw_proto={}' '", flush.tuples.protocol.unwrap_or(0));
    write_tuple(&mut out, &flush.tuples, &flush.tuples.reply);
    out + "'"
}

fn write_tuple(out: &mut String, all: &CtTuples, tuple: &CtTuple) {
    let address = |address: Option<u128>| match (address, all.is_ipv6) {
        (Some(address), Some(false)) => Ipv4Addr::from_bits(address as u32).to_string(),
        (address, _) => Ipv6Addr::from_bits(address.unwrap_or(0)).to_string(),
    };
    let version = if all.is_ipv6 == Some(false) { "nw" } else { "ipv6" };
    put!(out, "ct_{version}_src={},ct_{version}_dst={},", address(tuple.src), address(tuple.dst));
    if all.is_icmp() {
        let CtTuple { icmp_id, icmp_type, icmp_code, .. } = tuple;
        let byte = |byte: &Option<u8>| byte.unwrap_or(0);
        put!(
            out,
            "icmp_id={},icmp_type={},icmp_code={}",
            icmp_id.unwrap_or(0),
            byte(icmp_type),
            byte(icmp_code)
        );
    } else {
        put!(out, "ct_tp_src={},ct_tp_dst={}", tuple.src_port.unwrap_or(0), tuple.dst_port.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_hexadecimal_and_port_0_is_any() {
        let parse = |text: &str| {
            let mut tuples = CtTuples::default();
            parse_ct_tuple(text, &mut tuples, false).map(|()| tuples)
        };
        let tuples = parse("ct_nw_proto=0x6,ct_tp_src=0x50,ct_tp_dst=81").unwrap();
        let CtTuple { src_port, dst_port, .. } = tuples.original;
        assert_eq!((tuples.protocol, src_port, dst_port), (Some(6), Some(80), Some(81)));
        assert_eq!(parse("ct_nw_proto=6,ct_tp_src=5,ct_tp_src=0").unwrap().original.src_port, None);
        assert_eq!(parse("ct_tp_src=0"), Ok(CtTuples::default()));
        assert_eq!(parse("ct_nw_proto=0x100"), Err("failed to parse field ct_nw_proto".into()));
        assert_eq!(parse("ct_tp_src=5"), Err("port is set without protocol".into()));
    }
}

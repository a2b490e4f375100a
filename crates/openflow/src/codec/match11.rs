//! `ofp_match` of OpenFlow 1.1: fixed fields, a wildcard bit for each, and inverted masks. It knows IPv6 by
//! its Ethernet type alone. Source: OpenFlow 1.1 section A.2.3.

use super::bytes::{Put, Reader};
use crate::error::ErrorKind::{self, *};
use base::OfPort;
use flow::{FieldId, Match, Mf};

/// OFPMT_STANDARD, and its length.
pub(super) const TYPE: u16 = 0;
const LENGTH: u16 = 88;

const W_IN_PORT: u32 = 1 << 0;
const W_DL_VLAN: u32 = 1 << 1;
const W_DL_VLAN_PCP: u32 = 1 << 2;
const W_DL_TYPE: u32 = 1 << 3;
const W_NW_TOS: u32 = 1 << 4;
const W_NW_PROTO: u32 = 1 << 5;
const W_TP_SRC: u32 = 1 << 6;
const W_TP_DST: u32 = 1 << 7;
const W_MPLS_LABEL: u32 = 1 << 8;
const W_MPLS_TC: u32 = 1 << 9;
const W_ALL: u32 = (1 << 10) - 1;
/// Any tag, and no tag.
const VLAN_ANY: u16 = 0xfffe;
const VLAN_NONE: u16 = 0xffff;

/// Fields of the transport layer by protocol.
fn transport(m: &Match) -> Option<(Mf, Mf)> {
    if m.get_mf(Mf::EthType).0 != 0x800 {
        return None;
    }
    [
        (Mf::TcpSrc, Mf::TcpDst),
        (Mf::UdpSrc, Mf::UdpDst),
        (Mf::SctpSrc, Mf::SctpDst),
        (Mf::IcmpType, Mf::IcmpCode),
    ]
    .into_iter()
    .find(|(src, _)| m.has_prereq(*src))
}

pub(super) fn read(r: &mut Reader) -> Result<Match, ErrorKind> {
    *r = r.with_error(OFPBMC_BAD_LEN);
    let (_, length, in_port, wild) = (r.u16()?, r.u16()?, r.u32()?, r.u32()?);
    if length != LENGTH {
        return Err(OFPBMC_BAD_LEN);
    }
    let (src, src_wild, dst, dst_wild) = (r.number(6)?, r.number(6)?, r.number(6)?, r.number(6)?);
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (eth_type, tos, proto) = (r.u16()?, r.u8()?, r.u8()?);
    let (nw_src, nw_src_wild, nw_dst, nw_dst_wild) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let (tp_src, tp_dst, label, tc) = (r.u16()?, r.u16()?, r.u32()?, r.u8()?);
    r.skip(3)?;
    let (metadata, metadata_wild) = (r.u64()?, r.u64()?);

    let mut m = Match::any();
    let has = |bit: u32| wild & bit == 0;
    let mut masked = |mf: Mf, value: u128, wild: u128| {
        let mask = !wild & mf.ones();
        if mask != 0 {
            m.set_mf(mf, value & mask, mask);
        }
    };
    masked(Mf::EthSrc, src, src_wild);
    masked(Mf::EthDst, dst, dst_wild);
    masked(Mf::Metadata, metadata.into(), metadata_wild.into());
    if has(W_IN_PORT) {
        let port = OfPort::from_u32(in_port).ok_or(OFPBMC_BAD_VALUE)?;
        m.set_masked(FieldId::InPort, port.0.into(), 0xffff);
    }
    if has(W_DL_VLAN) {
        if vlan != VLAN_NONE && has(W_DL_VLAN_PCP) && pcp > 7 {
            return Err(OFPBMC_BAD_VALUE);
        }
        match vlan {
            VLAN_NONE => m.set_masked(FieldId::VlanTci, 0, 0xffff),
            VLAN_ANY if has(W_DL_VLAN_PCP) => {
                m.set_masked(FieldId::VlanTci, u128::from(pcp) << 13 | 0x1000, 0xf000);
            }
            VLAN_ANY => m.set_masked(FieldId::VlanTci, 0x1000, 0x1000),
            0..0x1000 if has(W_DL_VLAN_PCP) => {
                m.set_masked(FieldId::VlanTci, u128::from(pcp) << 13 | u128::from(vlan | 0x1000), 0xffff);
            }
            0..0x1000 => m.set_masked(FieldId::VlanTci, u128::from(vlan | 0x1000), 0x1fff),
            _ => return Err(OFPBMC_BAD_VALUE),
        }
    }
    if !has(W_DL_TYPE) {
        return Ok(m);
    }
    m.set_masked(FieldId::EthType, eth_type.into(), 0xffff);
    let is_ipv4 = eth_type == 0x800;
    let is_arp = eth_type == 0x806 || eth_type == 0x8035;
    if is_ipv4 && has(W_NW_TOS) {
        if tos & 3 != 0 {
            return Err(OFPBMC_BAD_VALUE);
        }
        m.set_mf(Mf::NwTos, tos.into(), 0xfc);
    }
    if (is_ipv4 || is_arp) && has(W_NW_PROTO) {
        m.set_masked(FieldId::NwProto, proto.into(), 0xff);
    }
    if is_ipv4 || is_arp {
        for (mf, value, wild) in [(Mf::NwSrc, nw_src, nw_src_wild), (Mf::NwDst, nw_dst, nw_dst_wild)] {
            if !wild != 0 {
                m.set_mf(mf, (value & !wild).into(), (!wild).into());
            }
        }
    }
    if is_ipv4
        && has(W_NW_PROTO)
        && let Some((src, dst)) = transport(&m)
    {
        for (mf, bit, value) in [(src, W_TP_SRC, tp_src), (dst, W_TP_DST, tp_dst)] {
            if has(bit) {
                if u128::from(value) & !mf.ones() != 0 {
                    return Err(OFPBMC_BAD_FIELD);
                }
                m.set_mf(mf, value.into(), mf.ones());
            }
        }
    }
    if eth_type == 0x8847 || eth_type == 0x8848 {
        for (mf, bit, value) in [(Mf::MplsLabel, W_MPLS_LABEL, label), (Mf::MplsTc, W_MPLS_TC, tc.into())] {
            if has(bit) {
                m.set_mf(mf, u128::from(value) & mf.ones(), mf.ones());
            }
        }
    }
    Ok(m)
}

/// Encodes the match. What it cannot express is left out; part of a tag becomes the whole tag.
pub(super) fn write(out: &mut Vec<u8>, m: &Match) {
    let mut wild = W_ALL;
    // The value of a field that is matched exactly, and 0 for any other.
    let mut exact = |mf: Mf, bit: u32| {
        let (value, mask) = m.get_mf(mf);
        if mask & mf.ones() != mf.ones() {
            return 0;
        }
        wild &= !bit;
        value & mf.ones()
    };
    let in_port = exact(Mf::InPort, W_IN_PORT);
    let eth_type = exact(Mf::EthType, W_DL_TYPE);
    let is_mpls = eth_type == 0x8847 || eth_type == 0x8848;
    let (tos, proto) = match eth_type {
        0x800 => (exact(Mf::NwTos, W_NW_TOS), exact(Mf::NwProto, W_NW_PROTO)),
        0x806 | 0x8035 => (0, exact(Mf::NwProto, W_NW_PROTO)),
        _ => (0, 0),
    };
    let (tp_src, tp_dst) = match transport(m) {
        Some((src, dst)) => (exact(src, W_TP_SRC), exact(dst, W_TP_DST)),
        None => (0, 0),
    };
    let (label, tc) =
        if is_mpls { (exact(Mf::MplsLabel, W_MPLS_LABEL), exact(Mf::MplsTc, W_MPLS_TC)) } else { (0, 0) };
    let (tci, tci_mask) = m.get_mf(Mf::VlanTci);
    let (mut vlan, mut pcp) = (0, 0);
    if tci_mask != 0 {
        wild &= !W_DL_VLAN;
        let is_untagged = tci_mask & 0x1000 != 0 && tci & 0x1000 == 0;
        vlan = match tci_mask & 0xfff {
            _ if is_untagged => VLAN_NONE,
            0 => VLAN_ANY,
            _ => tci as u16 & 0xfff,
        };
        if !is_untagged && tci_mask & 0xe000 != 0 {
            wild &= !W_DL_VLAN_PCP;
            pcp = (tci >> 13) as u8;
        }
    }
    out.u16(TYPE);
    out.u16(LENGTH);
    out.u32(if wild & W_IN_PORT == 0 { OfPort(in_port as u16).to_u32() } else { 0 });
    out.u32(wild);
    for mf in [Mf::EthSrc, Mf::EthDst] {
        let (value, mask) = m.get_mf(mf);
        out.number(value & mask, 6);
        out.number(!mask & mf.ones(), 6);
    }
    out.u16(vlan);
    out.u8(pcp);
    out.u8(0);
    out.u16(eth_type as u16);
    out.u8(tos as u8);
    out.u8(proto as u8);
    for mf in [Mf::NwSrc, Mf::NwDst] {
        let (value, mask) = if matches!(eth_type, 0x800 | 0x806 | 0x8035) { m.get_mf(mf) } else { (0, 0) };
        out.u32((value & mask) as u32);
        out.u32(!(mask as u32));
    }
    out.u16(tp_src as u16);
    out.u16(tp_dst as u16);
    out.u32(label as u32);
    out.u8(tc as u8);
    out.zeros(3);
    let (metadata, mask) = m.get_mf(Mf::Metadata);
    out.u64((metadata & mask) as u64);
    out.u64(!(mask as u64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_that_no_tag_can_have_is_refused() {
        let tagged = Match::any().with(FieldId::VlanTci, 0xf005);
        let mut bytes = Vec::new();
        write(&mut bytes, &tagged);
        // Behind the type, the input port, the addresses and the tag's id.
        let mut read_with = |priority| {
            bytes[38] = priority;
            read(&mut Reader::new(&bytes, OFPBMC_BAD_LEN))
        };
        assert_eq!(read_with(7), Ok(tagged));
        assert_eq!(read_with(8), Err(OFPBMC_BAD_VALUE));
    }
}

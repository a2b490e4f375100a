//! `ofp_match` of OpenFlow 1.0: fixed fields, and a wildcard bit or a prefix's length for each. Source:
//! OpenFlow 1.0 section 5.2.3.

use super::bytes::{Put, Reader};
use super::fields::for_each_field;
use crate::error::ErrorKind::{self, *};
use flow::{FieldId, Match, Mf};

const W_IN_PORT: u32 = 1 << 0;
const W_DL_VLAN: u32 = 1 << 1;
const W_DL_SRC: u32 = 1 << 2;
const W_DL_DST: u32 = 1 << 3;
const W_DL_TYPE: u32 = 1 << 4;
const W_NW_PROTO: u32 = 1 << 5;
const W_TP_SRC: u32 = 1 << 6;
const W_TP_DST: u32 = 1 << 7;
const W_NW_SRC_SHIFT: u32 = 8;
const W_NW_DST_SHIFT: u32 = 14;
const W_DL_VLAN_PCP: u32 = 1 << 20;
const W_NW_TOS: u32 = 1 << 21;
/// OFPFW_ALL: every wildcard bit of OpenFlow 1.0.
pub const OFPFW_ALL: u32 = (1 << 22) - 1;
/// OFP_VLAN_NONE.
const VLAN_NONE: u16 = 0xffff;

/// `ofp_match` of OpenFlow 1.0, with all that it says.
pub(super) fn read(r: &mut Reader) -> Result<Match, ErrorKind> {
    let wild = r.u32()?;
    let in_port = r.u16()?;
    let (dl_src, dl_dst) = (r.number(6)?, r.number(6)?);
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (dl_type, tos, proto) = (r.u16()?, r.u8()?, r.u8()?);
    r.skip(2)?;
    let (nw_src, nw_dst) = (r.u32()?, r.u32()?);
    let (tp_src, tp_dst) = (r.u16()?, r.u16()?);

    let mut m = Match::any();
    let has = |bit: u32| wild & bit == 0;
    if has(W_IN_PORT) {
        m.set_masked(FieldId::InPort, in_port.into(), 0xffff);
    }
    if has(W_DL_SRC) {
        m.set_mf(Mf::EthSrc, dl_src, Mf::EthSrc.ones());
    }
    if has(W_DL_DST) {
        m.set_mf(Mf::EthDst, dl_dst, Mf::EthDst.ones());
    }
    match (has(W_DL_VLAN), has(W_DL_VLAN_PCP)) {
        (true, _) if vlan == VLAN_NONE => m.set_masked(FieldId::VlanTci, 0, 0xffff),
        (true, false) => m.set_masked(FieldId::VlanTci, u128::from(vlan & 0xfff | 0x1000), 0x1fff),
        (false, true) => m.set_masked(FieldId::VlanTci, u128::from(pcp & 7) << 13 | 0x1000, 0xf000),
        (true, true) => {
            m.set_masked(
                FieldId::VlanTci,
                u128::from(pcp & 7) << 13 | u128::from(vlan & 0xfff | 0x1000),
                0xffff,
            );
        }
        (false, false) => {}
    }
    if has(W_DL_TYPE) {
        m.set_masked(FieldId::EthType, dl_type.into(), 0xffff);
    }
    for (mf, value, shift) in [(Mf::NwSrc, nw_src, W_NW_SRC_SHIFT), (Mf::NwDst, nw_dst, W_NW_DST_SHIFT)] {
        let mask = u32::MAX.checked_shl(wild >> shift & 63).unwrap_or(0);
        m.set_mf(mf, (value & mask).into(), mask.into());
    }
    if has(W_NW_PROTO) {
        m.set_masked(FieldId::NwProto, proto.into(), 0xff);
    }
    if has(W_NW_TOS) {
        m.set_mf(Mf::NwTos, tos.into(), 0xfc);
    }
    let is_icmp = m.has_prereq(Mf::IcmpType) || m.has_prereq(Mf::Icmpv6Type);
    // Types and codes of ICMP are one byte.
    let ones = if is_icmp { 0xff } else { 0xffff };
    for (field, bit, port) in [(FieldId::TpSrc, W_TP_SRC, tp_src), (FieldId::TpDst, W_TP_DST, tp_dst)] {
        if has(bit) {
            m.set_masked(field, u128::from(port) & ones, ones);
        }
    }
    Ok(m)
}

/// Reads an OpenFlow 1.0 match as a switch does: fields that have no meaning because their prerequisites are
/// missing are ignored, as the standard says, not refused.
pub(super) fn read_normalized(r: &mut Reader) -> Result<Match, ErrorKind> {
    read(r).map(|m| normalized(&m))
}

/// A match without fields whose prerequisites are missing. ICMP type and code that were partly matched as
/// ports are matched whole, since they have no masks.
pub fn normalized(m: &Match) -> Match {
    const OF_ICMP: [Mf; 4] = [Mf::IcmpType, Mf::IcmpCode, Mf::Icmpv6Type, Mf::Icmpv6Code];
    let mut out = Match { options: m.options.clone(), ..Match::any() };
    for_each_field(m, 0, |mf, value, mask| {
        out.set_mf(mf, value, if OF_ICMP.contains(&mf) { mf.ones() } else { mask });
    });
    out.imply_packet_type();
    out
}

/// Encodes an `ofp_match` of OpenFlow 1.0. What it cannot express is left out; part of a tag becomes the
/// whole tag: see [`fits`].
pub(super) fn write(out: &mut Vec<u8>, m: &Match) {
    let mut wild = 0;
    let mut field = |mf: Mf, bit: u32| -> u128 {
        let (value, mask) = m.get_mf(mf);
        if mask == mf.ones() {
            return value;
        }
        wild |= bit;
        0
    };
    let in_port = field(Mf::InPort, W_IN_PORT);
    let (src, dst) = (field(Mf::EthSrc, W_DL_SRC), field(Mf::EthDst, W_DL_DST));
    let eth_type = field(Mf::EthType, W_DL_TYPE);
    let tos = field(Mf::NwTos, W_NW_TOS);
    let proto = field(Mf::NwProto, W_NW_PROTO);
    let icmp = matches!((eth_type, proto), (0x800, 1) | (0x86dd, 58));
    let ports = if icmp { (Mf::IcmpType, Mf::IcmpCode) } else { (Mf::TcpSrc, Mf::TcpDst) };
    let (tp_src, tp_dst) = (field(ports.0, W_TP_SRC), field(ports.1, W_TP_DST));
    let mut address = |mf: Mf, shift: u32| {
        let (value, mask) = m.get_mf(mf);
        wild |= (mask as u32).trailing_zeros() << shift;
        value as u32
    };
    let (nw_src, nw_dst) = (address(Mf::NwSrc, W_NW_SRC_SHIFT), address(Mf::NwDst, W_NW_DST_SHIFT));
    let (tci, tci_mask) = m.get_mf(Mf::VlanTci);
    let (mut vlan, mut pcp) = (0, 0);
    if tci_mask & 0x1000 != 0 && tci & 0x1000 == 0 {
        vlan = VLAN_NONE;
    } else {
        if tci_mask & 0xfff != 0 {
            vlan = tci as u16 & 0xfff;
        } else {
            wild |= W_DL_VLAN;
        }
        if tci_mask & 0xe000 != 0 {
            pcp = (tci >> 13) as u8;
        } else {
            wild |= W_DL_VLAN_PCP;
        }
    }
    out.u32(wild);
    out.u16(in_port as u16);
    out.number(src, 6);
    out.number(dst, 6);
    out.u16(vlan);
    out.u8(pcp);
    out.u8(0);
    out.u16(eth_type as u16);
    out.u8(tos as u8);
    out.u8(proto as u8);
    out.zeros(2);
    out.u32(nw_src);
    out.u32(nw_dst);
    out.u16(tp_src as u16);
    out.u16(tp_dst as u16);
}

/// Whether OpenFlow 1.0's `ofp_match` can express the whole match, so that NXM is not needed.
pub fn fits(m: &Match) -> bool {
    let mut bytes = Vec::with_capacity(40);
    write(&mut bytes, m);
    read_normalized(&mut Reader::new(&bytes, OFPBMC_BAD_LEN)).is_ok_and(|back| back == *m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_takes_prefixes_and_vlans() {
        let base = Match::any().with(FieldId::EthType, 0x800);
        let cases = [
            base.clone().with_masked(FieldId::NwSrc, 0x0a00_0000, 0xff00_0000).with(FieldId::InPort, 0xfffe),
            base.clone().with(FieldId::NwProto, 17).with(FieldId::TpDst, 53),
            base.clone().with(FieldId::NwProto, 1).with_masked(FieldId::TpSrc, 8, 0xff),
            Match::any().with(FieldId::VlanTci, 0),
            Match::any().with_masked(FieldId::VlanTci, 0x1005, 0x1fff),
            Match::any().with_masked(FieldId::VlanTci, 0xb000, 0xf000),
            Match::any().with(FieldId::VlanTci, 0xb007),
        ];
        for m in cases {
            assert!(fits(&m), "{m:?}");
        }
        let not = [
            base.with_masked(FieldId::NwSrc, 1, 0xff),
            Match::any().with(FieldId::Reg0, 1),
            Match::any().with_masked(FieldId::EthDst, 1 << 40, 1 << 40),
            Match::any().with(FieldId::NwProto, 17),
        ];
        for m in not {
            assert!(!fits(&m), "{m:?}");
        }
    }

    #[test]
    fn a_match_ignores_what_lacks_its_prerequisites() {
        let mut bytes = Vec::new();
        write(&mut bytes, &Match::any().with(FieldId::NwProto, 6).with(FieldId::TpDst, 80));
        let m = read_normalized(&mut Reader::new(&bytes, OFPBMC_BAD_LEN)).unwrap();
        assert_eq!(m, Match::any());
    }
}

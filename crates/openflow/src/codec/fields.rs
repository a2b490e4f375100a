//! Which fields a match contains, in a version's terms: shared by the NXM and OXM encoders and the text form.

use flow::key::{B_CT, B_CT6, B_IPV6, B_PIPELINE, B_RARE, B_REGS, B_TUNNEL};
use flow::{FieldId, Match, Mf};

/// Calls `emit(field, value, mask)` for each field of the match, prerequisites before the fields that need
/// them. `minor` is N of OpenFlow 1.N, 0 meaning NXM: it has `vlan_tci` where later versions have `vlan_vid`
/// and `vlan_pcp`. Fields without their prerequisites have no meaning and are left out.
pub fn for_each_field(m: &Match, minor: u8, mut emit: impl FnMut(Mf, u128, u128)) {
    let mut put = |mf: Mf| {
        // nw_tos shares its bits with nw_ecn, and names only its own.
        let (value, mask) = m.get_mf(mf);
        let (value, mask) = (value & mf.ones(), mask & mf.ones());
        if mask != 0 {
            emit(mf, value, mask);
        }
    };
    let present = |block: usize| m.mask.0.has(block);
    if present(B_PIPELINE) {
        [Mf::DpHash, Mf::ConjId, Mf::ActsetOutput, Mf::SkbPriority, Mf::Metadata]
            .into_iter()
            .for_each(&mut put);
    }
    put(Mf::RecircId);
    put(Mf::PacketType);
    put(if minor == 0 { Mf::InPort } else { Mf::InPortOxm });
    put(Mf::EthSrc);
    put(Mf::EthDst);
    put(Mf::EthType);
    if minor == 0 {
        put(Mf::VlanTci);
    } else {
        put(Mf::VlanVid);
        if m.key.get64(FieldId::VlanTci) & 0x1000 != 0 {
            put(Mf::VlanPcp);
        }
    }
    network_fields(m, minor, &mut put);
    if present(B_TUNNEL) {
        tunnel_fields(&mut put);
    }
    if present(B_REGS) {
        (0..16).map(Mf::Reg).for_each(&mut put);
    }
    put(Mf::PktMark);
    put(Mf::CtState);
    put(Mf::CtZone);
    if present(B_CT) {
        put(Mf::CtMark);
        put(Mf::CtLabel);
        if m.has_prereq(Mf::CtNwProto) {
            put(Mf::CtNwProto);
            if m.eth_type() == 0x800 {
                put(Mf::CtNwSrc);
                put(Mf::CtNwDst);
            }
            put(Mf::CtTpSrc);
            put(Mf::CtTpDst);
        }
    }
    if present(B_CT6) && m.has_prereq(Mf::CtIpv6Src) {
        put(Mf::CtIpv6Src);
        put(Mf::CtIpv6Dst);
    }
}

fn network_fields(m: &Match, minor: u8, put: &mut impl FnMut(Mf)) {
    match m.eth_type() {
        0x800 => {
            put(Mf::NwSrc);
            put(Mf::NwDst);
        }
        0x86dd => {
            if m.mask.0.has(B_IPV6) {
                put(Mf::Ipv6Src);
                put(Mf::Ipv6Dst);
                put(Mf::Ipv6Label);
                put(Mf::Ipv6ExtHdr);
            }
        }
        0x806 | 0x8035 => {
            return [Mf::ArpOp, Mf::ArpSpa, Mf::ArpTpa, Mf::ArpSha, Mf::ArpTha].into_iter().for_each(put);
        }
        0x8847 | 0x8848 => {
            return [Mf::MplsLabel, Mf::MplsTc, Mf::MplsBos, Mf::MplsTtl].into_iter().for_each(put);
        }
        0x894f => {
            const NSH: [Mf; 10] = [
                Mf::NshFlags,
                Mf::NshTtl,
                Mf::NshMdtype,
                Mf::NshNp,
                Mf::NshSpi,
                Mf::NshSi,
                Mf::NshC1,
                Mf::NshC2,
                Mf::NshC3,
                Mf::NshC4,
            ];
            return NSH.into_iter().for_each(put);
        }
        _ => return,
    }
    put(Mf::IpFrag);
    put(if minor == 0 { Mf::NwTos } else { Mf::IpDscp });
    put(Mf::NwEcn);
    put(Mf::NwTtl);
    put(Mf::NwProto);
    let (src, dst) = match (m.key.get64(FieldId::NwProto), m.eth_type()) {
        (6, _) => (Mf::TcpSrc, Mf::TcpDst),
        (17, _) => (Mf::UdpSrc, Mf::UdpDst),
        (132, _) => (Mf::SctpSrc, Mf::SctpDst),
        (1, 0x800) => (Mf::IcmpType, Mf::IcmpCode),
        (58, 0x86dd) => (Mf::Icmpv6Type, Mf::Icmpv6Code),
        _ => return,
    };
    if !m.has_prereq(src) {
        return;
    }
    put(src);
    put(dst);
    if src == Mf::TcpSrc {
        put(Mf::TcpFlags);
    }
    if src == Mf::Icmpv6Type && (m.mask.0.has(B_IPV6) || m.mask.0.has(B_RARE)) {
        let nd = [Mf::NdTarget, Mf::NdReserved, Mf::NdOptionsType, Mf::NdSll, Mf::NdTll];
        nd.into_iter().filter(|&mf| m.has_prereq(mf)).for_each(put);
    }
}

fn tunnel_fields(put: &mut impl FnMut(Mf)) {
    const TUNNEL: [Mf; 14] = [
        Mf::TunId,
        Mf::TunSrc,
        Mf::TunDst,
        Mf::TunIpv6Src,
        Mf::TunIpv6Dst,
        Mf::TunFlags,
        Mf::TunGbpId,
        Mf::TunGbpFlags,
        Mf::TunErspanIdx,
        Mf::TunErspanVer,
        Mf::TunErspanDir,
        Mf::TunErspanHwid,
        Mf::TunGtpuFlags,
        Mf::TunGtpuMsgtype,
    ];
    TUNNEL.into_iter().for_each(put);
}

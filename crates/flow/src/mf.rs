//! The fields as rules and actions name them ("match fields"): each a slice of a key field, or of several.
//!
//! The key keeps one place per thing; OpenFlow names several views of it: `tp_src` of the key is `tcp_src`,
//! `udp_src`, `sctp_src`, `icmp_type` and `icmpv6_type`, each with its own prerequisites and wire codes.

use crate::field::FieldId;
use crate::key::B_REGS;
use crate::key::{Key, Mask};

macro_rules! match_fields {
    ($($id:ident = $name:literal, $field:ident, $offset:literal, $bits:literal;)*) => {
        /// A field as OpenFlow and ovs-fields(7) name it.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs)] // Each is documented in its row of the table.
        pub enum Mf {
            $($id,)*
            /// `reg0` to `reg15`.
            Reg(u8),
            /// `xreg0` to `xreg7`: reg(2N) is the high half.
            XReg(u8),
            /// `xxreg0` to `xxreg3`: reg(4N) is the highest quarter.
            XxReg(u8),
            /// `tun_metadata0` to `tun_metadata63`: placed by the bridge's table of tunnel options.
            TunMetadata(u8),
        }

        const SIMPLE: &[(Mf, &str, FieldId, u8, u8)] = &[$((Mf::$id, $name, FieldId::$field, $offset, $bits),)*];

        impl Mf {
            fn simple_idx(self) -> Option<usize> {
                #[allow(non_camel_case_types, clippy::enum_variant_names)]
                #[repr(usize)]
                enum Idx { $($id,)* }
                match self { $(Mf::$id => Some(Idx::$id as usize),)* _ => None }
            }
        }
    };
}

match_fields! {
    DpHash = "dp_hash", DpHash, 0, 32;
    RecircId = "recirc_id", RecircId, 0, 32;
    PacketType = "packet_type", PacketType, 0, 32;
    ConjId = "conj_id", ConjId, 0, 32;
    TunId = "tun_id", TunId, 0, 64;
    TunSrc = "tun_src", TunSrc, 0, 32;
    TunDst = "tun_dst", TunDst, 0, 32;
    TunIpv6Src = "tun_ipv6_src", TunIpv6Src, 0, 128;
    TunIpv6Dst = "tun_ipv6_dst", TunIpv6Dst, 0, 128;
    TunFlags = "tun_flags", TunFlags, 0, 16;
    TunTtl = "tun_ttl", TunTtl, 0, 8;
    TunTos = "tun_tos", TunTos, 0, 8;
    TunGbpId = "tun_gbp_id", TunGbpId, 0, 16;
    TunGbpFlags = "tun_gbp_flags", TunGbpFlags, 0, 8;
    TunErspanIdx = "tun_erspan_idx", TunErspanIdx, 0, 20;
    TunErspanVer = "tun_erspan_ver", TunErspanVer, 0, 4;
    TunErspanDir = "tun_erspan_dir", TunErspanDir, 0, 1;
    TunErspanHwid = "tun_erspan_hwid", TunErspanHwid, 0, 6;
    TunGtpuFlags = "tun_gtpu_flags", TunGtpuFlags, 0, 8;
    TunGtpuMsgtype = "tun_gtpu_msgtype", TunGtpuMsgtype, 0, 8;
    Metadata = "metadata", Metadata, 0, 64;
    InPort = "in_port", InPort, 0, 16;
    InPortOxm = "in_port_oxm", InPort, 0, 16;
    ActsetOutput = "actset_output", ActsetOutput, 0, 32;
    SkbPriority = "skb_priority", SkbPriority, 0, 32;
    PktMark = "pkt_mark", PktMark, 0, 32;
    CtState = "ct_state", CtState, 0, 32;
    CtZone = "ct_zone", CtZone, 0, 16;
    CtMark = "ct_mark", CtMark, 0, 32;
    CtLabel = "ct_label", CtLabel, 0, 128;
    CtNwProto = "ct_nw_proto", CtNwProto, 0, 8;
    CtNwSrc = "ct_nw_src", CtNwSrc, 0, 32;
    CtNwDst = "ct_nw_dst", CtNwDst, 0, 32;
    CtIpv6Src = "ct_ipv6_src", CtIpv6Src, 0, 128;
    CtIpv6Dst = "ct_ipv6_dst", CtIpv6Dst, 0, 128;
    CtTpSrc = "ct_tp_src", CtTpSrc, 0, 16;
    CtTpDst = "ct_tp_dst", CtTpDst, 0, 16;
    EthSrc = "eth_src", EthSrc, 0, 48;
    EthDst = "eth_dst", EthDst, 0, 48;
    EthType = "eth_type", EthType, 0, 16;
    VlanTci = "vlan_tci", VlanTci, 0, 16;
    DlVlan = "dl_vlan", VlanTci, 0, 12;
    VlanVid = "vlan_vid", VlanTci, 0, 13;
    DlVlanPcp = "dl_vlan_pcp", VlanTci, 13, 3;
    VlanPcp = "vlan_pcp", VlanTci, 13, 3;
    MplsLabel = "mpls_label", Mpls0, 12, 20;
    MplsTc = "mpls_tc", Mpls0, 9, 3;
    MplsBos = "mpls_bos", Mpls0, 8, 1;
    MplsTtl = "mpls_ttl", Mpls0, 0, 8;
    NwSrc = "nw_src", NwSrc, 0, 32;
    NwDst = "nw_dst", NwDst, 0, 32;
    Ipv6Src = "ipv6_src", Ipv6Src, 0, 128;
    Ipv6Dst = "ipv6_dst", Ipv6Dst, 0, 128;
    Ipv6Label = "ipv6_label", Ipv6Label, 0, 20;
    Ipv6ExtHdr = "ipv6_exthdr", Ipv6ExtHdr, 0, 9;
    NwProto = "nw_proto", NwProto, 0, 8;
    NwTos = "nw_tos", NwTos, 2, 6;
    IpDscp = "ip_dscp", NwTos, 2, 6;
    NwEcn = "nw_ecn", NwTos, 0, 2;
    NwTtl = "nw_ttl", NwTtl, 0, 8;
    IpFrag = "ip_frag", NwFrag, 0, 2;
    ArpOp = "arp_op", NwProto, 0, 8;
    ArpSpa = "arp_spa", NwSrc, 0, 32;
    ArpTpa = "arp_tpa", NwDst, 0, 32;
    ArpSha = "arp_sha", ArpSha, 0, 48;
    ArpTha = "arp_tha", ArpTha, 0, 48;
    TcpSrc = "tcp_src", TpSrc, 0, 16;
    TcpDst = "tcp_dst", TpDst, 0, 16;
    TcpFlags = "tcp_flags", TcpFlags, 0, 12;
    UdpSrc = "udp_src", TpSrc, 0, 16;
    UdpDst = "udp_dst", TpDst, 0, 16;
    SctpSrc = "sctp_src", TpSrc, 0, 16;
    SctpDst = "sctp_dst", TpDst, 0, 16;
    IcmpType = "icmp_type", TpSrc, 0, 8;
    IcmpCode = "icmp_code", TpDst, 0, 8;
    Icmpv6Type = "icmpv6_type", TpSrc, 0, 8;
    Icmpv6Code = "icmpv6_code", TpDst, 0, 8;
    NdTarget = "nd_target", NdTarget, 0, 128;
    NdSll = "nd_sll", ArpSha, 0, 48;
    NdTll = "nd_tll", ArpTha, 0, 48;
    NdReserved = "nd_reserved", NdReserved, 0, 32;
    NdOptionsType = "nd_options_type", NdOptionsType, 0, 8;
    NshFlags = "nsh_flags", NshFlags, 0, 8;
    NshTtl = "nsh_ttl", NshTtl, 0, 6;
    NshMdtype = "nsh_mdtype", NshMdtype, 0, 8;
    NshNp = "nsh_np", NshNp, 0, 8;
    NshSpi = "nsh_spi", NshSpi, 0, 24;
    NshSi = "nsh_si", NshSi, 0, 8;
    NshC1 = "nsh_c1", NshC1, 0, 32;
    NshC2 = "nsh_c2", NshC2, 0, 32;
    NshC3 = "nsh_c3", NshC3, 0, 32;
    NshC4 = "nsh_c4", NshC4, 0, 32;
}

impl Mf {
    /// All that need no number.
    pub fn simple() -> impl Iterator<Item = Mf> {
        SIMPLE.iter().map(|row| row.0)
    }

    /// Width in bits. 992 (124 bytes) at the most for tunnel options, whose width their table gives.
    pub fn bits(self) -> u16 {
        match self {
            Mf::Reg(_) => 32,
            Mf::XReg(_) => 64,
            Mf::XxReg(_) => 128,
            Mf::TunMetadata(_) => 992,
            simple => u16::from(SIMPLE[simple.simple_idx().expect("all others are simple")].4),
        }
    }

    /// Its principal name.
    pub fn name(self) -> String {
        match self {
            Mf::Reg(n) => format!("reg{n}"),
            Mf::XReg(n) => format!("xreg{n}"),
            Mf::XxReg(n) => format!("xxreg{n}"),
            Mf::TunMetadata(n) => format!("tun_metadata{n}"),
            simple => SIMPLE[simple.simple_idx().expect("all others are simple")].1.to_string(),
        }
    }

    /// The words of the key that it lies in: up to two of (block, word, shift, bits), the most significant first.
    /// Empty for tunnel options.
    pub fn slices(self) -> impl Iterator<Item = Slice> {
        let reg_word = |n: usize| Slice { block: B_REGS, word: n, shift: 0, bits: 64 };
        let (first, second) = match self {
            Mf::Reg(n) => {
                let shift = if n % 2 == 0 { 32 } else { 0 };
                (Some(Slice { block: B_REGS, word: usize::from(n / 2), shift, bits: 32 }), None)
            }
            Mf::XReg(n) => (Some(reg_word(n.into())), None),
            Mf::XxReg(n) => (Some(reg_word(usize::from(n) * 2)), Some(reg_word(usize::from(n) * 2 + 1))),
            Mf::TunMetadata(_) => (None, None),
            simple => {
                let (_, _, field, offset, bits) = SIMPLE[simple.simple_idx().expect("all others are simple")];
                let p = field.place();
                let (block, word) = (usize::from(p.block), usize::from(p.word));
                if p.bits == 128 {
                    let half = |word| Slice { block, word, shift: 0, bits: 64 };
                    (Some(half(word)), Some(half(word + 1)))
                } else {
                    (Some(Slice { block, word, shift: p.shift + offset, bits }), None)
                }
            }
        };
        first.into_iter().chain(second)
    }

    /// All its bits set, as a number; for fields of at most 128 bits.
    pub fn ones(self) -> u128 {
        let bits = self.bits().min(128);
        if bits == 128 { u128::MAX } else { (1 << bits) - 1 }
    }
}

/// Some bits of one word of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Block of the key.
    pub block: usize,
    /// Word of the block.
    pub word: usize,
    /// Lowest bit.
    pub shift: u8,
    /// Number of bits, 1 to 64.
    pub bits: u8,
}

impl Slice {
    fn ones(self) -> u64 {
        (u64::MAX >> (64 - self.bits)) << self.shift
    }
}

impl Key {
    /// The field's value. 0 for tunnel options.
    pub fn get_mf(&self, mf: Mf) -> u128 {
        mf.slices().fold(0, |acc, s| {
            let part = (self.word(s.block, s.word) & s.ones()) >> s.shift;
            (if s.bits == 64 { acc << 64 } else { 0 }) | u128::from(part)
        })
    }

    /// Sets the bits of `mask` of the field to those of `value`. Nothing happens for tunnel options.
    pub fn set_mf(&mut self, mf: Mf, value: u128, mask: u128) {
        let n = mf.slices().count();
        for (i, s) in mf.slices().enumerate() {
            let down = if n == 2 && i == 0 { 64 } else { 0 };
            let part = |v: u128| (((v >> down) as u64) << s.shift) & s.ones();
            let old = self.word(s.block, s.word);
            self.set_word(s.block, s.word, old & !part(mask) | part(value) & part(mask));
        }
    }
}

impl Mask {
    /// Makes the bits of `bits` of the field matter too.
    pub fn add_mf(&mut self, mf: Mf, bits: u128) {
        let old = self.0.get_mf(mf);
        self.0.set_mf(mf, old | bits, u128::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_alias_as_documented() {
        let mut key = Key::default();
        key.set_mf(Mf::XxReg(1), 0x0000_0004_0000_0005_0000_0006_0000_0007, u128::MAX);
        for n in 4..8u8 {
            assert_eq!(key.get_mf(Mf::Reg(n)), u128::from(n));
        }
        assert_eq!(key.get_mf(Mf::XReg(2)), 0x0000_0004_0000_0005);
        assert_eq!(key.get(FieldId::Reg5), 5);
    }

    #[test]
    fn set_then_get_gives_the_value_for_every_field() {
        for mf in Mf::simple() {
            let mut key = Key::default();
            key.set_mf(mf, mf.ones(), mf.ones());
            assert_eq!(key.get_mf(mf), mf.ones(), "{mf:?}");
            key.set_mf(mf, 0, 1);
            assert_eq!(key.get_mf(mf), mf.ones() - 1, "{mf:?}");
        }
    }
}

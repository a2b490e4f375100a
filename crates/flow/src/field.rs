//! The table of fields: one row for each field that OpenFlow 1.0 to 1.5 and the Nicira extensions can match,
//! from which everything else is derived: places in the key, parser and printer of the text forms, the NXM
//! and OXM codecs, prerequisites, documentation and the generators of the tests.

use crate::depth::Depth;
use crate::key::{
    B_COMMON, B_CT, B_CT6, B_IPV6, B_PIPELINE, B_RARE, B_REGS, B_TUNNEL, Key, Mask, ZERO_BLOCK,
};

/// A field's place in the key: `bits` bits of word `word` of block `block`, starting at bit `shift`. A
/// 128-bit field takes two words, the more significant one first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Block of the key.
    pub block: u8,
    /// (First) word of the block.
    pub word: u8,
    /// Lowest bit in the word. 0 for fields of 64 and 128 bits.
    pub shift: u8,
    /// Width in bits: 1 to 64, or 128.
    pub bits: u8,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $block:expr, $word:literal, $shift:literal, $bits:literal, $depth:ident;)*) => {
        /// A field of the flow key.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum FieldId { $($(#[$doc])* $id,)* }

        impl FieldId {
            /// All fields, in the order of their numbers.
            pub const ALL: &'static [FieldId] = &[$(FieldId::$id,)*];
            const PLACES: &'static [Place] = &[$(Place { block: $block as u8, word: $word, shift: $shift, bits: $bits },)*];
            const NAMES: &'static [&'static str] = &[$($name,)*];
            const DEPTHS: &'static [Depth] = &[$(Depth::$depth,)*];
        }
    };
}

fields! {
    /// Input port: the OpenFlow number (16 bits) in the bridge in which the packet is.
    InPort = "in_port", 0, 0, 0, 16, Metadata;
    /// Input port: the datapath's number. Not matchable by rules; it keeps bridges apart in the caches.
    DpPort = "dp_port", 0, 0, 16, 16, Metadata;
    /// Recirculation id: 0 for a packet that comes from a port.
    RecircId = "recirc_id", 0, 0, 32, 32, Metadata;
    /// Ethernet type behind all VLAN tags; 0x5ff for an 802.3 frame without SNAP type.
    EthType = "eth_type", 0, 1, 0, 16, Metadata;
    /// Ethernet destination.
    EthDst = "eth_dst", 0, 1, 16, 48, Ethernet;
    /// Outer VLAN tag with 0x1000 set if there is one; 0 if there is none.
    VlanTci = "vlan_tci", 0, 2, 0, 16, Ethernet;
    /// Ethernet source.
    EthSrc = "eth_src", 0, 2, 16, 48, Ethernet;
    /// IPv4 destination, or ARP target protocol address.
    NwDst = "nw_dst", 0, 3, 0, 32, Network;
    /// IPv4 source, or ARP sender protocol address.
    NwSrc = "nw_src", 0, 3, 32, 32, Network;
    /// IP fragment bits: 1 a fragment, 2 not the first.
    NwFrag = "nw_frag", 0, 4, 0, 8, Metadata;
    /// IP protocol, or the low 8 bits of the ARP opcode.
    NwProto = "nw_proto", 0, 4, 8, 8, Network;
    /// TCP flags, 12 bits.
    TcpFlags = "tcp_flags", 0, 4, 16, 16, Transport;
    /// TCP, UDP or SCTP destination port; ICMP or IGMP code.
    TpDst = "tp_dst", 0, 4, 32, 16, Transport;
    /// TCP, UDP or SCTP source port; ICMP or IGMP type.
    TpSrc = "tp_src", 0, 4, 48, 16, Transport;
    /// IP type of service: DSCP in the high 6 bits, ECN in the low 2.
    NwTos = "nw_tos", 0, 5, 0, 8, Network;
    /// IP time to live or hop limit.
    NwTtl = "nw_ttl", 0, 5, 8, 8, Network;
    /// Outer tag's TPID; 0 if there is none.
    VlanTpid = "vlan_tpid", 0, 5, 16, 16, Ethernet;
    /// Inner VLAN tag, as `VlanTci`.
    VlanTci2 = "vlan_tci2", 0, 5, 32, 16, Ethernet;
    /// Inner tag's protocol id.
    VlanTpid2 = "vlan_tpid2", 0, 5, 48, 16, Ethernet;
    /// Packet type (OpenFlow 1.5): namespace in the high half; 0 is Ethernet.
    PacketType = "packet_type", 0, 6, 0, 32, Metadata;
    /// Connection tracking state bits.
    CtState = "ct_state", 0, 6, 32, 32, Metadata;
    /// Connection tracking zone.
    CtZone = "ct_zone", 0, 7, 0, 16, Metadata;
    /// Packet mark (skb mark).
    PktMark = "pkt_mark", 0, 7, 32, 32, Metadata;

    /// IPv6 source.
    Ipv6Src = "ipv6_src", B_IPV6, 0, 0, 128, Network;
    /// IPv6 destination.
    Ipv6Dst = "ipv6_dst", B_IPV6, 2, 0, 128, Network;
    /// Neighbour discovery: target address.
    NdTarget = "nd_target", B_IPV6, 4, 0, 128, Everything;
    /// IPv6 flow label, 20 bits.
    Ipv6Label = "ipv6_label", B_IPV6, 6, 0, 32, Network;
    /// Neighbour discovery: reserved or flags word.
    NdReserved = "nd_reserved", B_IPV6, 6, 32, 32, Everything;
    /// OpenFlow 1.3's pseudo-field of IPv6 extension headers, 9 bits.
    Ipv6ExtHdr = "ipv6_exthdr", B_IPV6, 7, 0, 16, Everything;
    /// Neighbour discovery: options type (1 source, 2 target link-layer address).
    NdOptionsType = "nd_options_type", B_IPV6, 7, 16, 8, Everything;

    /// ARP sender hardware address, or neighbour discovery source link-layer address.
    ArpSha = "arp_sha", B_RARE, 0, 0, 48, Everything;
    /// ARP target hardware address, or neighbour discovery target link-layer address.
    ArpTha = "arp_tha", B_RARE, 1, 0, 48, Everything;
    /// MPLS label stack entry nearest to the Ethernet header.
    Mpls0 = "mpls_lse0", B_RARE, 2, 32, 32, Network;
    /// Second label stack entry.
    Mpls1 = "mpls_lse1", B_RARE, 2, 0, 32, Network;
    /// Third label stack entry.
    Mpls2 = "mpls_lse2", B_RARE, 3, 32, 32, Network;
    /// IGMP group address.
    IgmpGroup = "igmp_group", B_RARE, 3, 0, 32, Everything;
    /// NSH flags, 8 bits.
    NshFlags = "nsh_flags", B_RARE, 4, 56, 8, Network;
    /// NSH time to live.
    NshTtl = "nsh_ttl", B_RARE, 4, 48, 8, Network;
    /// NSH metadata type.
    NshMdtype = "nsh_mdtype", B_RARE, 4, 40, 8, Network;
    /// NSH next protocol.
    NshNp = "nsh_np", B_RARE, 4, 32, 8, Network;
    /// NSH service path id.
    NshSpi = "nsh_spi", B_RARE, 4, 8, 24, Network;
    /// NSH service index.
    NshSi = "nsh_si", B_RARE, 4, 0, 8, Network;
    /// NSH context header 1.
    NshC1 = "nsh_c1", B_RARE, 5, 32, 32, Network;
    /// NSH context header 2.
    NshC2 = "nsh_c2", B_RARE, 5, 0, 32, Network;
    /// NSH context header 3.
    NshC3 = "nsh_c3", B_RARE, 6, 32, 32, Network;
    /// NSH context header 4.
    NshC4 = "nsh_c4", B_RARE, 6, 0, 32, Network;

    /// Connection mark.
    CtMark = "ct_mark", B_CT, 0, 0, 32, Metadata;
    /// Protocol of the connection's original direction.
    CtNwProto = "ct_nw_proto", B_CT, 0, 32, 8, Metadata;
    /// Connection label.
    CtLabel = "ct_label", B_CT, 1, 0, 128, Metadata;
    /// IPv4 destination of the original direction.
    CtNwDst = "ct_nw_dst", B_CT, 3, 0, 32, Metadata;
    /// IPv4 source of the original direction.
    CtNwSrc = "ct_nw_src", B_CT, 3, 32, 32, Metadata;
    /// Destination port of the original direction.
    CtTpDst = "ct_tp_dst", B_CT, 4, 0, 16, Metadata;
    /// Source port of the original direction.
    CtTpSrc = "ct_tp_src", B_CT, 4, 16, 16, Metadata;
    /// IPv6 source of the original direction.
    CtIpv6Src = "ct_ipv6_src", B_CT6, 0, 0, 128, Metadata;
    /// IPv6 destination of the original direction.
    CtIpv6Dst = "ct_ipv6_dst", B_CT6, 2, 0, 128, Metadata;

    /// Register 0 (32 bits). `xreg0` is reg0 (high) and reg1, `xxreg0` is reg0 (highest) to reg3.
    Reg0 = "reg0", B_REGS, 0, 32, 32, Metadata;
    /// Register 1.
    Reg1 = "reg1", B_REGS, 0, 0, 32, Metadata;
    /// Register 2.
    Reg2 = "reg2", B_REGS, 1, 32, 32, Metadata;
    /// Register 3.
    Reg3 = "reg3", B_REGS, 1, 0, 32, Metadata;
    /// Register 4.
    Reg4 = "reg4", B_REGS, 2, 32, 32, Metadata;
    /// Register 5.
    Reg5 = "reg5", B_REGS, 2, 0, 32, Metadata;
    /// Register 6.
    Reg6 = "reg6", B_REGS, 3, 32, 32, Metadata;
    /// Register 7.
    Reg7 = "reg7", B_REGS, 3, 0, 32, Metadata;
    /// Register 8.
    Reg8 = "reg8", B_REGS, 4, 32, 32, Metadata;
    /// Register 9.
    Reg9 = "reg9", B_REGS, 4, 0, 32, Metadata;
    /// Register 10.
    Reg10 = "reg10", B_REGS, 5, 32, 32, Metadata;
    /// Register 11.
    Reg11 = "reg11", B_REGS, 5, 0, 32, Metadata;
    /// Register 12.
    Reg12 = "reg12", B_REGS, 6, 32, 32, Metadata;
    /// Register 13.
    Reg13 = "reg13", B_REGS, 6, 0, 32, Metadata;
    /// Register 14.
    Reg14 = "reg14", B_REGS, 7, 32, 32, Metadata;
    /// Register 15.
    Reg15 = "reg15", B_REGS, 7, 0, 32, Metadata;

    /// OpenFlow metadata.
    Metadata = "metadata", B_PIPELINE, 0, 0, 64, Metadata;
    /// Quality-of-service priority (skb priority).
    SkbPriority = "skb_priority", B_PIPELINE, 1, 32, 32, Metadata;
    /// Hash that the datapath computed.
    DpHash = "dp_hash", B_PIPELINE, 1, 0, 32, Metadata;
    /// Output port in the action set.
    ActsetOutput = "actset_output", B_PIPELINE, 2, 32, 32, Metadata;
    /// Conjunction id.
    ConjId = "conj_id", B_PIPELINE, 2, 0, 32, Metadata;
    /// Which of the 64 tunnel options are present.
    TunMetadataPresent = "tun_metadata_present", B_PIPELINE, 3, 0, 64, Metadata;

    /// Tunnel id (VNI, GRE key), 64 bits.
    TunId = "tun_id", B_TUNNEL, 0, 0, 64, Metadata;
    /// Outer IPv4 destination.
    TunDst = "tun_dst", B_TUNNEL, 1, 0, 32, Metadata;
    /// Outer IPv4 source.
    TunSrc = "tun_src", B_TUNNEL, 1, 32, 32, Metadata;
    /// Outer IPv6 source.
    TunIpv6Src = "tun_ipv6_src", B_TUNNEL, 2, 0, 128, Metadata;
    /// Outer IPv6 destination.
    TunIpv6Dst = "tun_ipv6_dst", B_TUNNEL, 4, 0, 128, Metadata;
    /// Outer type of service.
    TunTos = "tun_tos", B_TUNNEL, 6, 0, 8, Metadata;
    /// Outer time to live.
    TunTtl = "tun_ttl", B_TUNNEL, 6, 8, 8, Metadata;
    /// Tunnel flags (bit 0: OAM).
    TunFlags = "tun_flags", B_TUNNEL, 6, 16, 16, Metadata;
    /// VXLAN group-based policy id.
    TunGbpId = "tun_gbp_id", B_TUNNEL, 6, 32, 16, Metadata;
    /// VXLAN group-based policy flags.
    TunGbpFlags = "tun_gbp_flags", B_TUNNEL, 6, 48, 8, Metadata;
    /// ERSPAN version, 4 bits.
    TunErspanVer = "tun_erspan_ver", B_TUNNEL, 6, 56, 8, Metadata;
    /// ERSPAN index, 20 bits.
    TunErspanIdx = "tun_erspan_idx", B_TUNNEL, 7, 0, 32, Metadata;
    /// ERSPAN direction.
    TunErspanDir = "tun_erspan_dir", B_TUNNEL, 7, 32, 8, Metadata;
    /// ERSPAN hardware id.
    TunErspanHwid = "tun_erspan_hwid", B_TUNNEL, 7, 40, 8, Metadata;
    /// GTP-U flags.
    TunGtpuFlags = "tun_gtpu_flags", B_TUNNEL, 7, 48, 8, Metadata;
    /// GTP-U message type.
    TunGtpuMsgtype = "tun_gtpu_msgtype", B_TUNNEL, 7, 56, 8, Metadata;
}

impl FieldId {
    /// Its place in the key.
    #[inline(always)]
    pub const fn place(self) -> Place {
        Self::PLACES[self as usize]
    }

    /// Its principal name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// How deep extraction must go for it to be filled.
    pub const fn depth(self) -> Depth {
        Self::DEPTHS[self as usize]
    }

    /// All its bits set, as a number.
    pub const fn ones(self) -> u128 {
        let bits = self.place().bits;
        if bits == 128 { u128::MAX } else { (1 << bits) - 1 }
    }
}

impl Key {
    /// The field's value as a number.
    #[inline(always)]
    pub fn get(&self, field: FieldId) -> u128 {
        let p = field.place();
        let (b, w) = (p.block as usize, p.word as usize);
        if p.bits == 128 {
            return u128::from(self.word(b, w)) << 64 | u128::from(self.word(b, w + 1));
        }
        u128::from(self.word(b, w) >> p.shift) & field.ones()
    }

    /// The field's value; the field must have at most 64 bits (the high half of a wider one is cut off).
    #[inline(always)]
    pub fn get64(&self, field: FieldId) -> u64 {
        self.get(field) as u64
    }

    /// Sets the field. Bits of `value` beyond its width are ignored. Inlined, since most callers name the
    /// field: what is left is one word to change.
    #[inline(always)]
    pub fn set(&mut self, field: FieldId, value: u128) {
        let p = field.place();
        let (b, w) = (p.block as usize, p.word as usize);
        if p.bits == 128 {
            self.set_word(b, w, (value >> 64) as u64);
            self.set_word(b, w + 1, value as u64);
            return;
        }
        let ones = (field.ones() as u64) << p.shift;
        let old = self.word(b, w);
        self.set_word(b, w, old & !ones | ((value as u64) << p.shift) & ones);
    }

    /// Sets the bits of `mask` in the field to those of `value`.
    pub fn set_masked(&mut self, field: FieldId, value: u128, mask: u128) {
        let old = self.get(field);
        self.set(field, old & !mask | value & mask);
    }
}

impl Mask {
    /// The field's bits that matter.
    #[inline]
    pub fn get(&self, field: FieldId) -> u128 {
        self.0.get(field)
    }

    /// Makes exactly the bits of `bits` matter in the field.
    pub fn set(&mut self, field: FieldId, bits: u128) {
        self.0.set(field, bits);
    }

    /// Makes the bits of `bits` matter too.
    #[inline]
    pub fn add(&mut self, field: FieldId, bits: u128) {
        let old = self.0.get(field);
        self.0.set(field, old | bits);
    }

    /// Whether it has bits of the Ethernet header or of what follows it, but none of the packet type. Such a
    /// match is one on frames: what else begins with an IP header, say, is matched by its packet type.
    pub fn implies_ethernet(&self) -> bool {
        let in_frames = [FieldId::EthType, FieldId::VlanTci, FieldId::NwDst, FieldId::TpDst, FieldId::NwTos];
        let is_held = |field: FieldId| self.0.word(B_COMMON, field.place().word.into()) != 0;
        self.get(FieldId::PacketType) == 0
            && (in_frames.into_iter().any(is_held)
                || [B_IPV6, B_RARE].iter().any(|&block| self.0.block(block) != &ZERO_BLOCK))
    }

    /// Makes the whole field matter.
    #[inline]
    pub fn add_exact(&mut self, field: FieldId) {
        self.add(field, field.ones());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_fields_share_a_bit_and_none_crosses_a_word() {
        let mut taken = Mask::wild();
        for &f in FieldId::ALL {
            assert!(f.place().bits == 128 || f.place().shift + f.place().bits <= 64, "{f:?}");
            let mut one = Mask::wild();
            one.add_exact(f);
            assert!(taken.intersect(&one).is_wild(), "{f:?} overlaps another field");
            taken.unite(&one);
        }
    }

    #[test]
    fn what_is_set_is_got_and_neighbours_stay() {
        for &f in FieldId::ALL {
            let mut key = Key::default();
            for &other in FieldId::ALL {
                key.set(other, other.ones());
            }
            key.set(f, 1);
            for &other in FieldId::ALL {
                assert_eq!(key.get(other), if other == f { 1 } else { other.ones() }, "{f:?} {other:?}");
            }
        }
    }
}

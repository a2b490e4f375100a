//! The table of match fields: a row each, in the order in which matches are written on the wire and in text.
//!
//! `row(NAME, KEY FIELD, LOWEST BIT, BITS, BYTES ON THE WIRE)`, then what differs from the defaults: wire
//! names, masks, prerequisites, whether actions may write it, whether OpenFlow 1.0 itself has it, its text
//! format. Source: ovs-fields(7).

use super::row::{Format, Maskable, Mf, Prereq, Row, Wire};
use crate::field::FieldId;
use Maskable::Arbitrary;
use Prereq::{
    Arp, Ct, Ethernet, Icmpv4, Icmpv6, Ip, Ipv4, Ipv6, Mpls, Nd, NdAdvert, NdSolicit, Nsh, Sctp, Tcp, Udp,
    Vlan,
};

/// Class of the original NXM fields.
const NXM_OF: (u16, u32) = (0x0000, 0);
/// Class of Nicira's NXM fields.
const NXM_NX: (u16, u32) = (0x0001, 0);
/// Class of the standard's OXM fields.
const OXM_OF: (u16, u32) = (0x8000, 0);
/// Class of the standard's packet registers.
pub(super) const OXM_PKT_REG: (u16, u32) = (0x8001, 0);
/// Experimenter class, Nicira.
const NXOXM_ET: (u16, u32) = (0xffff, 0x0000_2320);
/// Experimenter class, network service header.
const NXOXM_NSH: (u16, u32) = (0xffff, 0x005a_d650);
/// Experimenter class, Open Networking Foundation.
const ONFOXM_ET: (u16, u32) = (0xffff, 0x4f4e_4600);
/// Class of Ericsson's fields.
const ERICOXM_OF: (u16, u32) = (0x1000, 0);

const fn row(name: &'static str, field: FieldId, offset: u8, bits: u8, bytes: u8) -> Row {
    Row {
        name,
        aliases: &[],
        field,
        offset,
        bits,
        subfield_bits: bits as u16,
        bytes,
        wires: [None; 3],
        maskable: Maskable::No,
        prereq: Prereq::None,
        writable: false,
        of10: false,
        format: Format::Decimal,
        doc: "",
    }
}

impl Row {
    const fn wire(mut self, name: &'static str, class: (u16, u32), number: u8, since: u8) -> Row {
        let mut i = 0;
        while self.wires[i].is_some() {
            i += 1;
        }
        self.wires[i] = Some(Wire { name, class: class.0, experimenter: class.1, number, since });
        self
    }

    const fn nxm(self, name: &'static str, class: (u16, u32), number: u8) -> Row {
        self.wire(name, class, number, 0)
    }

    const fn oxm(self, name: &'static str, class: (u16, u32), number: u8, since: u8) -> Row {
        self.wire(name, class, number, since)
    }

    const fn mask(mut self, maskable: Maskable) -> Row {
        self.maskable = maskable;
        self
    }

    const fn prereq(mut self, prereq: Prereq) -> Row {
        self.prereq = prereq;
        self
    }

    const fn rw(mut self) -> Row {
        self.writable = true;
        self
    }

    const fn v10(mut self) -> Row {
        self.of10 = true;
        self
    }

    const fn format(mut self, format: Format) -> Row {
        self.format = format;
        self
    }

    const fn alias(mut self, aliases: &'static [&'static str]) -> Row {
        self.aliases = aliases;
        self
    }

    const fn subfield_bits(mut self, bits: u16) -> Row {
        self.subfield_bits = bits;
        self
    }

    const fn doc(mut self, doc: &'static str) -> Row {
        self.doc = doc;
        self
    }
}

macro_rules! match_fields {
    ($($id:ident => $row:expr;)*) => {
        impl Mf {
            /// All fields except the numbered families, in order.
            pub(super) const SIMPLE: &'static [Mf] = &[$(Mf::$id,)*];
            pub(super) const ROWS: &'static [Row] = &[$($row,)*];

            pub(super) const fn simple_idx(self) -> Option<usize> {
                #[allow(clippy::enum_variant_names)]
                #[repr(usize)]
                enum Idx { $($id,)* }
                match self { $(Mf::$id => Some(Idx::$id as usize),)* _ => Option::None }
            }
        }
    };
}

match_fields! {
    DpHash => row("dp_hash", FieldId::DpHash, 0, 32, 4).nxm("NXM_NX_DP_HASH", NXM_NX, 35)
        .nxm("NXOXM_ET_DP_HASH", NXOXM_ET, 0).mask(Arbitrary)
        .format(Format::Hexadecimal)
        .doc("Hash that the datapath computed, for groups.");
    RecircId => row("recirc_id", FieldId::RecircId, 0, 32, 4).nxm("NXM_NX_RECIRC_ID", NXM_NX, 36).format(Format::Decimal)
        .doc("Recirculation id; 0 for a packet from a port. Not for OpenFlow rules.");
    PacketType => row("packet_type", FieldId::PacketType, 0, 32, 4).oxm("OXM_OF_PACKET_TYPE", OXM_OF, 44, 5)
        .format(Format::PacketType)
        .doc("Packet type: namespace in the high half; 0 is Ethernet.");
    ConjId => row("conj_id", FieldId::ConjId, 0, 32, 4).nxm("NXM_NX_CONJ_ID", NXM_NX, 37).format(Format::Decimal)
        .doc("Id of a conjunctive match all of whose clauses hold.");
    TunId => row("tun_id", FieldId::TunId, 0, 64, 8).nxm("NXM_NX_TUN_ID", NXM_NX, 16)
        .oxm("OXM_OF_TUNNEL_ID", OXM_OF, 38, 3).mask(Arbitrary).rw().format(Format::Hexadecimal).alias(&["tunnel_id"])
        .doc("Tunnel id: GRE key, VXLAN or Geneve VNI.");
    TunSrc => row("tun_src", FieldId::TunSrc, 0, 32, 4).nxm("NXM_NX_TUN_IPV4_SRC", NXM_NX, 31).mask(Arbitrary)
        .rw().format(Format::Ipv4)
        .doc("Outer IPv4 source.");
    TunDst => row("tun_dst", FieldId::TunDst, 0, 32, 4).nxm("NXM_NX_TUN_IPV4_DST", NXM_NX, 32).mask(Arbitrary)
        .rw().format(Format::Ipv4)
        .doc("Outer IPv4 destination.");
    TunIpv6Src => row("tun_ipv6_src", FieldId::TunIpv6Src, 0, 128, 16).nxm("NXM_NX_TUN_IPV6_SRC", NXM_NX, 109)
        .mask(Arbitrary).rw().format(Format::Ipv6)
        .doc("Outer IPv6 source.");
    TunIpv6Dst => row("tun_ipv6_dst", FieldId::TunIpv6Dst, 0, 128, 16).nxm("NXM_NX_TUN_IPV6_DST", NXM_NX, 110)
        .mask(Arbitrary).rw().format(Format::Ipv6)
        .doc("Outer IPv6 destination.");
    TunFlags => row("tun_flags", FieldId::TunFlags, 0, 1, 2).nxm("NXM_NX_TUN_FLAGS", NXM_NX, 104)
        .mask(Arbitrary).rw().format(Format::TunFlags)
        .doc("Tunnel flags: oam.");
    TunTtl => row("tun_ttl", FieldId::TunTtl, 0, 8, 1).format(Format::Decimal)
        .doc("Outer time to live; only for the datapath.");
    TunTos => row("tun_tos", FieldId::TunTos, 0, 8, 1).format(Format::Hexadecimal)
        .doc("Outer type of service; only for the datapath.");
    TunGbpId => row("tun_gbp_id", FieldId::TunGbpId, 0, 16, 2).nxm("NXM_NX_TUN_GBP_ID", NXM_NX, 38)
        .mask(Arbitrary).rw().format(Format::Decimal)
        .doc("VXLAN group policy id.");
    TunGbpFlags => row("tun_gbp_flags", FieldId::TunGbpFlags, 0, 8, 1).nxm("NXM_NX_TUN_GBP_FLAGS", NXM_NX, 39)
        .mask(Arbitrary).rw().format(Format::Hexadecimal)
        .doc("VXLAN group policy flags.");
    TunErspanIdx => row("tun_erspan_idx", FieldId::TunErspanIdx, 0, 20, 4)
        .nxm("NXOXM_ET_ERSPAN_IDX", NXOXM_ET, 11).mask(Arbitrary).rw().format(Format::Hexadecimal)
        .doc("ERSPAN index (version 1), 20 bits.");
    TunErspanVer => row("tun_erspan_ver", FieldId::TunErspanVer, 0, 4, 1)
        .nxm("NXOXM_ET_ERSPAN_VER", NXOXM_ET, 12).mask(Arbitrary).rw().format(Format::Decimal)
        .doc("ERSPAN version.");
    TunErspanDir => row("tun_erspan_dir", FieldId::TunErspanDir, 0, 1, 1)
        .nxm("NXOXM_ET_ERSPAN_DIR", NXOXM_ET, 13).mask(Arbitrary).rw().format(Format::Decimal)
        .doc("ERSPAN mirrored traffic's direction (version 2).");
    TunErspanHwid => row("tun_erspan_hwid", FieldId::TunErspanHwid, 0, 6, 1)
        .nxm("NXOXM_ET_ERSPAN_HWID", NXOXM_ET, 14).mask(Arbitrary).rw().format(Format::Hexadecimal)
        .doc("ERSPAN engine id (version 2), 6 bits.");
    TunGtpuFlags => row("tun_gtpu_flags", FieldId::TunGtpuFlags, 0, 8, 1)
        .nxm("NXOXM_ET_GTPU_FLAGS", NXOXM_ET, 15).mask(Arbitrary).format(Format::Hexadecimal)
        .doc("GTP-U flags.");
    TunGtpuMsgtype => row("tun_gtpu_msgtype", FieldId::TunGtpuMsgtype, 0, 8, 1)
        .nxm("NXOXM_ET_GTPU_MSGTYPE", NXOXM_ET, 16).mask(Arbitrary).format(Format::Decimal)
        .doc("GTP-U message type.");
    Metadata => row("metadata", FieldId::Metadata, 0, 64, 8).oxm("OXM_OF_METADATA", OXM_OF, 2, 2)
        .mask(Arbitrary).rw().format(Format::Hexadecimal)
        .doc("OpenFlow metadata, passed from table to table.");
    InPort => row("in_port", FieldId::InPort, 0, 16, 2).nxm("NXM_OF_IN_PORT", NXM_OF, 0).rw().v10().format(Format::Port)
        .doc("Input port, 16 bits.");
    InPortOxm => row("in_port_oxm", FieldId::InPort, 0, 16, 4).oxm("OXM_OF_IN_PORT", OXM_OF, 0, 2).rw()
        .format(Format::Port).subfield_bits(32)
        .doc("Input port, 32 bits with the reserved ones at the top.");
    ActsetOutput => row("actset_output", FieldId::ActsetOutput, 0, 32, 4)
        .oxm("ONFOXM_ET_ACTSET_OUTPUT", ONFOXM_ET, 43, 3).oxm("OXM_OF_ACTSET_OUTPUT", OXM_OF, 43, 5).format(Format::Port)
        .doc("Output port in the action set.");
    SkbPriority => row("skb_priority", FieldId::SkbPriority, 0, 32, 4).format(Format::Hexadecimal)
        .doc("Quality-of-service priority, as the kernel has it. Not for OpenFlow rules.");
    PktMark => row("pkt_mark", FieldId::PktMark, 0, 32, 4).nxm("NXM_NX_PKT_MARK", NXM_NX, 33).mask(Arbitrary)
        .rw().format(Format::Hexadecimal)
        .doc("Packet mark, as the kernel has it.");
    CtState => row("ct_state", FieldId::CtState, 0, 8, 4).subfield_bits(32).nxm("NXM_NX_CT_STATE", NXM_NX, 105).mask(Arbitrary)
        .format(Format::CtState)
        .doc("Connection tracking state.");
    CtZone => row("ct_zone", FieldId::CtZone, 0, 16, 2).nxm("NXM_NX_CT_ZONE", NXM_NX, 106).format(Format::Hexadecimal)
        .doc("Connection tracking zone.");
    CtMark => row("ct_mark", FieldId::CtMark, 0, 32, 4).nxm("NXM_NX_CT_MARK", NXM_NX, 107).mask(Arbitrary).rw()
        .format(Format::Hexadecimal)
        .doc("Connection mark.");
    CtLabel => row("ct_label", FieldId::CtLabel, 0, 128, 16).nxm("NXM_NX_CT_LABEL", NXM_NX, 108)
        .mask(Arbitrary).rw().format(Format::Hexadecimal)
        .doc("Connection label.");
    CtNwProto => row("ct_nw_proto", FieldId::CtNwProto, 0, 8, 1).nxm("NXM_NX_CT_NW_PROTO", NXM_NX, 119)
        .prereq(Ct).format(Format::Decimal)
        .doc("IP protocol of the connection's original direction.");
    CtNwSrc => row("ct_nw_src", FieldId::CtNwSrc, 0, 32, 4).nxm("NXM_NX_CT_NW_SRC", NXM_NX, 120)
        .mask(Arbitrary).prereq(Ct).format(Format::Ipv4)
        .doc("IPv4 source of the original direction.");
    CtNwDst => row("ct_nw_dst", FieldId::CtNwDst, 0, 32, 4).nxm("NXM_NX_CT_NW_DST", NXM_NX, 121)
        .mask(Arbitrary).prereq(Ct).format(Format::Ipv4)
        .doc("IPv4 destination of the original direction.");
    CtIpv6Src => row("ct_ipv6_src", FieldId::CtIpv6Src, 0, 128, 16).nxm("NXM_NX_CT_IPV6_SRC", NXM_NX, 122)
        .mask(Arbitrary).prereq(Ct).format(Format::Ipv6)
        .doc("IPv6 source of the original direction.");
    CtIpv6Dst => row("ct_ipv6_dst", FieldId::CtIpv6Dst, 0, 128, 16).nxm("NXM_NX_CT_IPV6_DST", NXM_NX, 123)
        .mask(Arbitrary).prereq(Ct).format(Format::Ipv6)
        .doc("IPv6 destination of the original direction.");
    CtTpSrc => row("ct_tp_src", FieldId::CtTpSrc, 0, 16, 2).nxm("NXM_NX_CT_TP_SRC", NXM_NX, 124)
        .mask(Arbitrary).prereq(Ct).format(Format::Decimal)
        .doc("Source port of the original direction.");
    CtTpDst => row("ct_tp_dst", FieldId::CtTpDst, 0, 16, 2).nxm("NXM_NX_CT_TP_DST", NXM_NX, 125)
        .mask(Arbitrary).prereq(Ct).format(Format::Decimal)
        .doc("Destination port of the original direction.");
    EthSrc => row("eth_src", FieldId::EthSrc, 0, 48, 6).nxm("NXM_OF_ETH_SRC", NXM_OF, 2)
        .oxm("OXM_OF_ETH_SRC", OXM_OF, 4, 2).mask(Arbitrary).prereq(Ethernet).rw().v10().format(Format::Ethernet).alias(&["dl_src"])
        .doc("Ethernet source.");
    EthDst => row("eth_dst", FieldId::EthDst, 0, 48, 6).nxm("NXM_OF_ETH_DST", NXM_OF, 1)
        .oxm("OXM_OF_ETH_DST", OXM_OF, 3, 2).mask(Arbitrary).prereq(Ethernet).rw().v10().format(Format::Ethernet).alias(&["dl_dst"])
        .doc("Ethernet destination.");
    EthType => row("eth_type", FieldId::EthType, 0, 16, 2).nxm("NXM_OF_ETH_TYPE", NXM_OF, 3)
        .oxm("OXM_OF_ETH_TYPE", OXM_OF, 5, 2).prereq(Ethernet).v10().format(Format::Hexadecimal).alias(&["dl_type"])
        .doc("Ethernet type behind VLAN tags.");
    VlanTci => row("vlan_tci", FieldId::VlanTci, 0, 16, 2).nxm("NXM_OF_VLAN_TCI", NXM_OF, 4).mask(Arbitrary)
        .prereq(Ethernet).rw().v10().format(Format::Hexadecimal)
        .doc("VLAN tag with 0x1000 set where there is one.");
    DlVlan => row("dl_vlan", FieldId::VlanTci, 0, 12, 2).prereq(Ethernet).rw().v10().format(Format::Decimal)
        .doc("VLAN id as OpenFlow 1.0 has it; 0xffff: no tag.");
    VlanVid => row("vlan_vid", FieldId::VlanTci, 0, 13, 2).oxm("OXM_OF_VLAN_VID", OXM_OF, 6, 2).mask(Arbitrary)
        .prereq(Ethernet).rw().v10().format(Format::Decimal).subfield_bits(12)
        .doc("VLAN id with 0x1000 set where there is a tag.");
    DlVlanPcp => row("dl_vlan_pcp", FieldId::VlanTci, 13, 3, 1).prereq(Ethernet).rw().v10().format(Format::Decimal)
        .doc("VLAN priority as OpenFlow 1.0 has it: matches with or without a tag.");
    VlanPcp => row("vlan_pcp", FieldId::VlanTci, 13, 3, 1).oxm("OXM_OF_VLAN_PCP", OXM_OF, 7, 2).prereq(Vlan)
        .rw().v10().format(Format::Decimal)
        .doc("VLAN priority.");
    MplsLabel => row("mpls_label", FieldId::Mpls0, 12, 20, 4).oxm("OXM_OF_MPLS_LABEL", OXM_OF, 34, 2)
        .prereq(Mpls).rw().format(Format::Decimal)
        .doc("Outermost MPLS label.");
    MplsTc => row("mpls_tc", FieldId::Mpls0, 9, 3, 1).oxm("OXM_OF_MPLS_TC", OXM_OF, 35, 2).prereq(Mpls).rw()
        .format(Format::Decimal)
        .doc("Outermost MPLS traffic class.");
    MplsBos => row("mpls_bos", FieldId::Mpls0, 8, 1, 1).oxm("OXM_OF_MPLS_BOS", OXM_OF, 36, 3).prereq(Mpls)
        .format(Format::Decimal)
        .doc("Outermost MPLS bottom-of-stack bit.");
    MplsTtl => row("mpls_ttl", FieldId::Mpls0, 0, 8, 1).nxm("NXM_NX_MPLS_TTL", NXM_NX, 30).prereq(Mpls).rw()
        .format(Format::Decimal)
        .doc("Outermost MPLS time to live.");
    NwSrc => row("nw_src", FieldId::NwSrc, 0, 32, 4).nxm("NXM_OF_IP_SRC", NXM_OF, 7)
        .oxm("OXM_OF_IPV4_SRC", OXM_OF, 11, 2).mask(Arbitrary).prereq(Ipv4).rw().v10().format(Format::Ipv4).alias(&["ip_src"])
        .doc("IPv4 source.");
    NwDst => row("nw_dst", FieldId::NwDst, 0, 32, 4).nxm("NXM_OF_IP_DST", NXM_OF, 8)
        .oxm("OXM_OF_IPV4_DST", OXM_OF, 12, 2).mask(Arbitrary).prereq(Ipv4).rw().v10().format(Format::Ipv4).alias(&["ip_dst"])
        .doc("IPv4 destination.");
    Ipv6Src => row("ipv6_src", FieldId::Ipv6Src, 0, 128, 16).nxm("NXM_NX_IPV6_SRC", NXM_NX, 19)
        .oxm("OXM_OF_IPV6_SRC", OXM_OF, 26, 2).mask(Arbitrary).prereq(Ipv6).rw().format(Format::Ipv6)
        .doc("IPv6 source.");
    Ipv6Dst => row("ipv6_dst", FieldId::Ipv6Dst, 0, 128, 16).nxm("NXM_NX_IPV6_DST", NXM_NX, 20)
        .oxm("OXM_OF_IPV6_DST", OXM_OF, 27, 2).mask(Arbitrary).prereq(Ipv6).rw().format(Format::Ipv6)
        .doc("IPv6 destination.");
    Ipv6Label => row("ipv6_label", FieldId::Ipv6Label, 0, 20, 4).nxm("NXM_NX_IPV6_LABEL", NXM_NX, 27)
        .oxm("OXM_OF_IPV6_FLABEL", OXM_OF, 28, 2).mask(Arbitrary).prereq(Ipv6).rw().format(Format::Hexadecimal)
        .doc("IPv6 flow label.");
    Ipv6ExtHdr => row("ipv6_exthdr", FieldId::Ipv6ExtHdr, 0, 9, 2).oxm("OXM_OF_IPV6_EXTHDR", OXM_OF, 39, 3)
        .mask(Arbitrary).prereq(Ipv6).format(Format::ExtHdr)
        .doc("Which IPv6 extension headers there are, and whether repeated or out of order. Not in Open vSwitch.");
    NwProto => row("nw_proto", FieldId::NwProto, 0, 8, 1).nxm("NXM_OF_IP_PROTO", NXM_OF, 6)
        .oxm("OXM_OF_IP_PROTO", OXM_OF, 10, 2).prereq(Ip).v10().format(Format::Decimal).alias(&["ip_proto"])
        .doc("IP protocol.");
    NwTos => row("nw_tos", FieldId::NwTos, 0, 8, 1).nxm("NXM_OF_IP_TOS", NXM_OF, 5).prereq(Ip).rw().v10()
        .format(Format::Decimal)
        .doc("IP type of service with the ECN bits zero: only the DSCP bits match and are set.");
    IpDscp => row("ip_dscp", FieldId::NwTos, 2, 6, 1).oxm("OXM_OF_IP_DSCP", OXM_OF, 8, 2).prereq(Ip).rw().v10()
        .format(Format::Decimal)
        .doc("DSCP, shifted right.");
    NwEcn => row("nw_ecn", FieldId::NwTos, 0, 2, 1).nxm("NXM_NX_IP_ECN", NXM_NX, 28)
        .oxm("OXM_OF_IP_ECN", OXM_OF, 9, 2).prereq(Ip).rw().format(Format::Decimal).alias(&["ip_ecn"])
        .doc("ECN bits.");
    NwTtl => row("nw_ttl", FieldId::NwTtl, 0, 8, 1).nxm("NXM_NX_IP_TTL", NXM_NX, 29).prereq(Ip).rw().format(Format::Decimal)
        .doc("IP time to live or hop limit.");
    IpFrag => row("ip_frag", FieldId::NwFrag, 0, 2, 1).nxm("NXM_NX_IP_FRAG", NXM_NX, 26).mask(Arbitrary)
        .prereq(Ip).format(Format::Frag).alias(&["nw_frag"])
        .doc("Fragment bits.");
    ArpOp => row("arp_op", FieldId::NwProto, 0, 8, 2).nxm("NXM_OF_ARP_OP", NXM_OF, 15)
        .oxm("OXM_OF_ARP_OP", OXM_OF, 21, 2).prereq(Arp).rw().v10().format(Format::Decimal).subfield_bits(16)
        .doc("ARP opcode, 1 to 255.");
    ArpSpa => row("arp_spa", FieldId::NwSrc, 0, 32, 4).nxm("NXM_OF_ARP_SPA", NXM_OF, 16)
        .oxm("OXM_OF_ARP_SPA", OXM_OF, 22, 2).mask(Arbitrary).prereq(Arp).rw().v10().format(Format::Ipv4)
        .doc("ARP sender protocol address.");
    ArpTpa => row("arp_tpa", FieldId::NwDst, 0, 32, 4).nxm("NXM_OF_ARP_TPA", NXM_OF, 17)
        .oxm("OXM_OF_ARP_TPA", OXM_OF, 23, 2).mask(Arbitrary).prereq(Arp).rw().v10().format(Format::Ipv4)
        .doc("ARP target protocol address.");
    ArpSha => row("arp_sha", FieldId::ArpSha, 0, 48, 6).nxm("NXM_NX_ARP_SHA", NXM_NX, 17)
        .oxm("OXM_OF_ARP_SHA", OXM_OF, 24, 2).mask(Arbitrary).prereq(Arp).rw().format(Format::Ethernet)
        .doc("ARP sender hardware address.");
    ArpTha => row("arp_tha", FieldId::ArpTha, 0, 48, 6).nxm("NXM_NX_ARP_THA", NXM_NX, 18)
        .oxm("OXM_OF_ARP_THA", OXM_OF, 25, 2).mask(Arbitrary).prereq(Arp).rw().format(Format::Ethernet)
        .doc("ARP target hardware address.");
    TcpSrc => row("tcp_src", FieldId::TpSrc, 0, 16, 2).nxm("NXM_OF_TCP_SRC", NXM_OF, 9)
        .oxm("OXM_OF_TCP_SRC", OXM_OF, 13, 2).mask(Arbitrary).prereq(Tcp).rw().v10().format(Format::Decimal)
        .doc("TCP source port.");
    TcpDst => row("tcp_dst", FieldId::TpDst, 0, 16, 2).nxm("NXM_OF_TCP_DST", NXM_OF, 10)
        .oxm("OXM_OF_TCP_DST", OXM_OF, 14, 2).mask(Arbitrary).prereq(Tcp).rw().v10().format(Format::Decimal)
        .doc("TCP destination port.");
    TcpFlags => row("tcp_flags", FieldId::TcpFlags, 0, 12, 2).nxm("NXM_NX_TCP_FLAGS", NXM_NX, 34)
        .oxm("ONFOXM_ET_TCP_FLAGS", ONFOXM_ET, 42, 3).oxm("OXM_OF_TCP_FLAGS", OXM_OF, 42, 5).mask(Arbitrary).prereq(Tcp).format(Format::TcpFlags)
        .doc("TCP flags.");
    UdpSrc => row("udp_src", FieldId::TpSrc, 0, 16, 2).nxm("NXM_OF_UDP_SRC", NXM_OF, 11)
        .oxm("OXM_OF_UDP_SRC", OXM_OF, 15, 2).mask(Arbitrary).prereq(Udp).rw().v10().format(Format::Decimal)
        .doc("UDP source port.");
    UdpDst => row("udp_dst", FieldId::TpDst, 0, 16, 2).nxm("NXM_OF_UDP_DST", NXM_OF, 12)
        .oxm("OXM_OF_UDP_DST", OXM_OF, 16, 2).mask(Arbitrary).prereq(Udp).rw().v10().format(Format::Decimal)
        .doc("UDP destination port.");
    SctpSrc => row("sctp_src", FieldId::TpSrc, 0, 16, 2).oxm("OXM_OF_SCTP_SRC", OXM_OF, 17, 2).mask(Arbitrary)
        .prereq(Sctp).rw().format(Format::Decimal)
        .doc("SCTP source port.");
    SctpDst => row("sctp_dst", FieldId::TpDst, 0, 16, 2).oxm("OXM_OF_SCTP_DST", OXM_OF, 18, 2).mask(Arbitrary)
        .prereq(Sctp).rw().format(Format::Decimal)
        .doc("SCTP destination port.");
    IcmpType => row("icmp_type", FieldId::TpSrc, 0, 8, 1).nxm("NXM_OF_ICMP_TYPE", NXM_OF, 13)
        .oxm("OXM_OF_ICMPV4_TYPE", OXM_OF, 19, 2).prereq(Icmpv4).rw().v10().format(Format::Decimal)
        .doc("ICMP type.");
    IcmpCode => row("icmp_code", FieldId::TpDst, 0, 8, 1).nxm("NXM_OF_ICMP_CODE", NXM_OF, 14)
        .oxm("OXM_OF_ICMPV4_CODE", OXM_OF, 20, 2).prereq(Icmpv4).rw().v10().format(Format::Decimal)
        .doc("ICMP code.");
    Icmpv6Type => row("icmpv6_type", FieldId::TpSrc, 0, 8, 1).nxm("NXM_NX_ICMPV6_TYPE", NXM_NX, 21)
        .oxm("OXM_OF_ICMPV6_TYPE", OXM_OF, 29, 2).prereq(Icmpv6).rw().format(Format::Decimal)
        .doc("ICMPv6 type.");
    Icmpv6Code => row("icmpv6_code", FieldId::TpDst, 0, 8, 1).nxm("NXM_NX_ICMPV6_CODE", NXM_NX, 22)
        .oxm("OXM_OF_ICMPV6_CODE", OXM_OF, 30, 2).prereq(Icmpv6).rw().format(Format::Decimal)
        .doc("ICMPv6 code.");
    NdTarget => row("nd_target", FieldId::NdTarget, 0, 128, 16).nxm("NXM_NX_ND_TARGET", NXM_NX, 23)
        .oxm("OXM_OF_IPV6_ND_TARGET", OXM_OF, 31, 2).mask(Arbitrary).prereq(Nd).rw().format(Format::Ipv6)
        .doc("Neighbour discovery: target.");
    NdSll => row("nd_sll", FieldId::ArpSha, 0, 48, 6).nxm("NXM_NX_ND_SLL", NXM_NX, 24)
        .oxm("OXM_OF_IPV6_ND_SLL", OXM_OF, 32, 2).mask(Arbitrary).prereq(NdSolicit).rw().format(Format::Ethernet)
        .doc("Neighbour discovery: source link-layer address.");
    NdTll => row("nd_tll", FieldId::ArpTha, 0, 48, 6).nxm("NXM_NX_ND_TLL", NXM_NX, 25)
        .oxm("OXM_OF_IPV6_ND_TLL", OXM_OF, 33, 2).mask(Arbitrary).prereq(NdAdvert).rw().format(Format::Ethernet)
        .doc("Neighbour discovery: target link-layer address.");
    NdReserved => row("nd_reserved", FieldId::NdReserved, 0, 32, 4)
        .nxm("ERICOXM_OF_ICMPV6_ND_RESERVED", ERICOXM_OF, 1).prereq(Nd).rw().format(Format::Decimal)
        .doc("Neighbour discovery: reserved or flags word.");
    NdOptionsType => row("nd_options_type", FieldId::NdOptionsType, 0, 8, 1)
        .nxm("ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE", ERICOXM_OF, 2).prereq(Nd).rw().format(Format::Decimal)
        .doc("Neighbour discovery: type of the option.");
    NshFlags => row("nsh_flags", FieldId::NshFlags, 0, 8, 1).nxm("NXOXM_NSH_FLAGS", NXOXM_NSH, 1)
        .mask(Arbitrary).prereq(Nsh).rw().format(Format::Decimal)
        .doc("NSH flags.");
    NshTtl => row("nsh_ttl", FieldId::NshTtl, 0, 6, 1).subfield_bits(8).nxm("NXOXM_NSH_TTL", NXOXM_NSH, 10).prereq(Nsh).rw()
        .format(Format::Decimal)
        .doc("NSH time to live.");
    NshMdtype => row("nsh_mdtype", FieldId::NshMdtype, 0, 8, 1).nxm("NXOXM_NSH_MDTYPE", NXOXM_NSH, 2)
        .prereq(Nsh).format(Format::Decimal)
        .doc("NSH metadata type.");
    NshNp => row("nsh_np", FieldId::NshNp, 0, 8, 1).nxm("NXOXM_NSH_NP", NXOXM_NSH, 3).prereq(Nsh).format(Format::Decimal)
        .doc("NSH next protocol.");
    NshSpi => row("nsh_spi", FieldId::NshSpi, 0, 24, 4).nxm("NXOXM_NSH_SPI", NXOXM_NSH, 4).prereq(Nsh).rw()
        .format(Format::Hexadecimal).alias(&["nsp"])
        .doc("NSH service path id.");
    NshSi => row("nsh_si", FieldId::NshSi, 0, 8, 1).nxm("NXOXM_NSH_SI", NXOXM_NSH, 5).prereq(Nsh).rw()
        .format(Format::Decimal).alias(&["nsi"])
        .doc("NSH service index.");
    NshC1 => row("nsh_c1", FieldId::NshC1, 0, 32, 4).nxm("NXOXM_NSH_C1", NXOXM_NSH, 6).mask(Arbitrary)
        .prereq(Nsh).rw().format(Format::Hexadecimal).alias(&["nshc1"])
        .doc("NSH context header 1.");
    NshC2 => row("nsh_c2", FieldId::NshC2, 0, 32, 4).nxm("NXOXM_NSH_C2", NXOXM_NSH, 7).mask(Arbitrary)
        .prereq(Nsh).rw().format(Format::Hexadecimal).alias(&["nshc2"])
        .doc("NSH context header 2.");
    NshC3 => row("nsh_c3", FieldId::NshC3, 0, 32, 4).nxm("NXOXM_NSH_C3", NXOXM_NSH, 8).mask(Arbitrary)
        .prereq(Nsh).rw().format(Format::Hexadecimal).alias(&["nshc3"])
        .doc("NSH context header 3.");
    NshC4 => row("nsh_c4", FieldId::NshC4, 0, 32, 4).nxm("NXOXM_NSH_C4", NXOXM_NSH, 9).mask(Arbitrary)
        .prereq(Nsh).rw().format(Format::Hexadecimal).alias(&["nshc4"])
        .doc("NSH context header 4.");
}

/// The rows of the numbered families, without the number in the name.
pub(super) const REG: Row = row("reg", FieldId::Reg0, 0, 32, 4)
    .nxm("NXM_NX_REG", NXM_NX, 0)
    .mask(Arbitrary)
    .rw()
    .format(Format::Hexadecimal)
    .doc("Register of 32 bits.");
pub(super) const XREG: Row = row("xreg", FieldId::Reg0, 0, 64, 8)
    .oxm("OXM_OF_PKT_REG", OXM_PKT_REG, 0, 3)
    .mask(Arbitrary)
    .rw()
    .format(Format::Hexadecimal)
    .doc("Register of 64 bits: reg(2N) is the high half.");
pub(super) const XXREG: Row = row("xxreg", FieldId::Reg0, 0, 128, 16)
    .nxm("NXM_NX_XXREG", NXM_NX, 111)
    .mask(Arbitrary)
    .rw()
    .format(Format::Hexadecimal)
    .doc("Register of 128 bits: reg(4N) is the highest quarter.");
pub(super) const TUN_METADATA: Row = row("tun_metadata", FieldId::TunMetadataPresent, 0, 64, 124)
    .nxm("NXM_NX_TUN_METADATA", NXM_NX, 40)
    .mask(Arbitrary)
    .rw()
    .format(Format::Hexadecimal)
    .subfield_bits(992)
    .doc("Tunnel option, placed by the bridge's table of them.");

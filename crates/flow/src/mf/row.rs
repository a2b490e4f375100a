//! A match field, and its properties.

use crate::field::FieldId;

/// A field as OpenFlow and ovs-fields(7) name it. Each has its documentation in its row ([`Mf::row`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Mf {
    DpHash,
    RecircId,
    PacketType,
    ConjId,
    TunId,
    TunSrc,
    TunDst,
    TunIpv6Src,
    TunIpv6Dst,
    TunFlags,
    TunTtl,
    TunTos,
    TunGbpId,
    TunGbpFlags,
    TunErspanIdx,
    TunErspanVer,
    TunErspanDir,
    TunErspanHwid,
    TunGtpuFlags,
    TunGtpuMsgtype,
    Metadata,
    InPort,
    InPortOxm,
    ActsetOutput,
    SkbPriority,
    PktMark,
    CtState,
    CtZone,
    CtMark,
    CtLabel,
    CtNwProto,
    CtNwSrc,
    CtNwDst,
    CtIpv6Src,
    CtIpv6Dst,
    CtTpSrc,
    CtTpDst,
    EthSrc,
    EthDst,
    EthType,
    VlanTci,
    DlVlan,
    VlanVid,
    DlVlanPcp,
    VlanPcp,
    MplsLabel,
    MplsTc,
    MplsBos,
    MplsTtl,
    NwSrc,
    NwDst,
    Ipv6Src,
    Ipv6Dst,
    Ipv6Label,
    Ipv6ExtHdr,
    NwProto,
    NwTos,
    IpDscp,
    NwEcn,
    NwTtl,
    IpFrag,
    ArpOp,
    ArpSpa,
    ArpTpa,
    ArpSha,
    ArpTha,
    TcpSrc,
    TcpDst,
    TcpFlags,
    UdpSrc,
    UdpDst,
    SctpSrc,
    SctpDst,
    IcmpType,
    IcmpCode,
    Icmpv6Type,
    Icmpv6Code,
    NdTarget,
    NdSll,
    NdTll,
    NdReserved,
    NdOptionsType,
    NshFlags,
    NshTtl,
    NshMdtype,
    NshNp,
    NshSpi,
    NshSi,
    NshC1,
    NshC2,
    NshC3,
    NshC4,
    /// `reg0` to `reg15`.
    Reg(u8),
    /// `xreg0` to `xreg7`: reg(2N) is the high half.
    XReg(u8),
    /// `xxreg0` to `xxreg3`: reg(4N) is the highest quarter.
    XxReg(u8),
    /// `tun_metadata0` to `tun_metadata63`: placed by the bridge's table of tunnel options.
    TunMetadata(u8),
}

/// Which masks a match may put on a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maskable {
    /// None: the field matches exactly or not at all.
    No,
    /// Any. (OpenFlow 1.0 itself allows prefixes of IPv4 addresses only; the extension any.)
    Arbitrary,
}

/// What else a match must include for a field to be meaningful.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prereq {
    /// Nothing.
    None,
    /// The packet is an Ethernet one.
    Ethernet,
    /// It has a VLAN tag.
    Vlan,
    /// ARP or RARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6.
    Ip,
    /// MPLS.
    Mpls,
    /// Network service header.
    Nsh,
    /// IPv4 or IPv6, and a valid connection tracking state.
    Ct,
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// UDP over IPv4 or IPv6.
    Udp,
    /// SCTP over IPv4 or IPv6.
    Sctp,
    /// ICMP over IPv4.
    Icmpv4,
    /// ICMPv6 over IPv6.
    Icmpv6,
    /// Neighbour solicitation or advertisement.
    Nd,
    /// Neighbour solicitation.
    NdSolicit,
    /// Neighbour advertisement.
    NdAdvert,
}

/// How a field's value is written in text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `10`.
    Decimal,
    /// `0xa`.
    Hexadecimal,
    /// `00:00:00:00:00:0a`.
    Ethernet,
    /// `10.0.0.0`.
    Ipv4,
    /// `fd00::a`.
    Ipv6,
    /// A number or the name of a port.
    Port,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Frag,
    /// `+oam-...`.
    TunFlags,
    /// `+syn-ack`.
    TcpFlags,
    /// `+trk-est`.
    CtState,
    /// `+hop-frag`.
    ExtHdr,
    /// `(1,0x800)`.
    PacketType,
}

/// A field's number on the wire in one of its namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wire {
    /// Name, such as `NXM_OF_ETH_SRC`; of numbered families without the number.
    pub name: &'static str,
    /// OXM class.
    pub class: u16,
    /// With class 0xffff: the experimenter.
    pub experimenter: u32,
    /// Number in the class, 7 bits; of numbered families the first.
    pub number: u8,
    /// Since which OpenFlow 1.N it is used; 0 for NXM.
    pub since: u8,
}

/// The properties of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// Principal name; of numbered families without the number.
    pub name: &'static str,
    /// Other names. (`tp_src` and `tp_dst`, which mean the field of whichever transport protocol is matched,
    /// are handled by the parser.)
    pub aliases: &'static [&'static str],
    /// The key field that contains it.
    pub field: FieldId,
    /// Lowest bit in that.
    pub offset: u8,
    /// Bits in that.
    pub bits: u8,
    /// Bits as actions count them: `FIELD[0..N-1]` is the whole.
    pub subfield_bits: u16,
    /// Bytes on the wire.
    pub bytes: u8,
    /// Its numbers on the wire, NXM first.
    pub wires: [Option<Wire>; 3],
    /// Which masks are allowed.
    pub maskable: Maskable,
    /// Its prerequisites.
    pub prereq: Prereq,
    /// Whether actions may write it.
    pub writable: bool,
    /// Whether OpenFlow 1.0's `ofp_match` has it.
    pub of10: bool,
    /// How it is written.
    pub format: Format,
    /// One sentence.
    pub doc: &'static str,
}

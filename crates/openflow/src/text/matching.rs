//! Matches in text.

use super::field::{
    self, CT_STATE, CT_STATE_ALL, TCP_FLAGS, TUN_FLAGS, field_names, parse_subfield, parse_value,
    write_ethernet_masked, write_flags,
};
use super::value::{self, write_hex, write_ipv4, write_ipv6};
use super::{KeyValues, PortNames, Protocols, TextError, bad, put};
pub use crate::codec::normalized;
use crate::message::DEFAULT_PRIORITY;
use base::OfPort;
use flow::key::{B_CT, B_CT6, B_IPV6, B_PIPELINE, B_RARE, B_REGS, B_TUNNEL};
use flow::mf::{Maskable, Prereq};
use flow::options::{OPTION_SPACE_BYTES, OptionMatch, Wide};
use flow::{FieldId, Match, Mf};

/// Shorthands: name, Ethernet type, IP protocol or 0.
pub(super) const SHORTHANDS: [(&str, u16, u8); 17] = [
    ("ip", 0x0800, 0),
    ("ipv4", 0x0800, 0),
    ("ip4", 0x0800, 0),
    ("arp", 0x0806, 0),
    ("icmp", 0x0800, 1),
    ("tcp", 0x0800, 6),
    ("udp", 0x0800, 17),
    ("sctp", 0x0800, 132),
    ("ipv6", 0x86dd, 0),
    ("ip6", 0x86dd, 0),
    ("icmp6", 0x86dd, 58),
    ("tcp6", 0x86dd, 6),
    ("udp6", 0x86dd, 17),
    ("sctp6", 0x86dd, 132),
    ("rarp", 0x8035, 0),
    ("mpls", 0x8847, 0),
    ("mplsm", 0x8848, 0),
];

/// Whether a word is the name of a protocol, which appears in a match without a value, like `tcp`.
pub fn is_protocol(word: &str) -> bool {
    SHORTHANDS.iter().any(|shorthand| shorthand.0 == word)
}

/// The shorthand with which an Ethernet type and IP protocol are written, and whether it says the protocol.
fn shorthand(eth_type: u16, proto: Option<u8>) -> Option<(&'static str, bool)> {
    let known = |proto: u8| SHORTHANDS.iter().find(|s| s.1 == eth_type && s.2 == proto).map(|s| s.0);
    match proto {
        Some(p) if p != 0 && known(p).is_some() => known(p).map(|name| (name, true)),
        _ => known(0).map(|name| (name, false)),
    }
}

/// A match in text, without priority.
pub fn match_text(m: &Match, ports: &PortNames) -> String {
    let mut out = String::new();
    write_match(&mut out, m, DEFAULT_PRIORITY, ports);
    out
}

/// Appends a match; a priority other than the default one comes first.
pub fn write_match(out: &mut String, m: &Match, priority: u16, ports: &PortNames) {
    let start = out.len();
    if priority != DEFAULT_PRIORITY {
        put!(out, "priority={priority},");
    }
    let mut w = Writer { out, m, ports };
    w.metadata();
    let skip = w.shorthand();
    w.pipeline();
    w.ethernet(skip);
    w.network(skip);
    w.transport();
    if out.len() > start {
        out.pop();
    }
}

/// What the shorthand already expresses.
#[derive(Clone, Copy)]
struct Said {
    eth_type: bool,
    proto: bool,
}

struct Writer<'a> {
    out: &'a mut String,
    m: &'a Match,
    ports: &'a PortNames,
}

impl Writer<'_> {
    fn has(&self, block: usize) -> bool {
        self.m.mask.0.has(block)
    }

    /// Value and mask of a field that is matched at least in part.
    fn get(&self, mf: Mf) -> Option<(u128, u128)> {
        let (value, mask) = self.m.get_mf(mf);
        // nw_tos shares its bits with nw_ecn, and names only its own.
        (mask & mf.ones() != 0).then_some((value & mf.ones(), mask & mf.ones()))
    }

    /// `name=DECIMAL`, or `name=0x../0x..` under a mask.
    fn decimal(&mut self, name: &str, mf: Mf) {
        if let Some((value, mask)) = self.get(mf) {
            put!(self.out, "{name}=");
            if mask == mf.ones() {
                put!(self.out, "{value},");
            } else {
                put!(self.out, "{value:#x}/{mask:#x},");
            }
        }
    }

    /// `name=0x..[/0x..]`.
    fn hex(&mut self, name: &str, mf: Mf) {
        if let Some((value, mask)) = self.get(mf) {
            put!(self.out, "{name}=");
            write_hex(self.out, value);
            if mask != mf.ones() {
                put!(self.out, "/{mask:#x}");
            }
            self.out.push(',');
        }
    }

    fn ipv4(&mut self, name: &str, mf: Mf) {
        if let Some((value, mask)) = self.get(mf) {
            put!(self.out, "{name}=");
            write_ipv4(self.out, value as u32, mask as u32);
            self.out.push(',');
        }
    }

    fn ipv6(&mut self, name: &str, mf: Mf) {
        if let Some((value, mask)) = self.get(mf) {
            put!(self.out, "{name}=");
            write_ipv6(self.out, value, mask);
            self.out.push(',');
        }
    }

    fn ethernet_address(&mut self, name: &str, mf: Mf) {
        if let Some((value, mask)) = self.get(mf) {
            put!(self.out, "{name}=");
            write_ethernet_masked(self.out, value as u64, mask as u64);
            self.out.push(',');
        }
    }

    fn metadata(&mut self) {
        self.hex("pkt_mark", Mf::PktMark);
        self.hex("recirc_id", Mf::RecircId);
        if self.has(B_PIPELINE) {
            self.hex("dp_hash", Mf::DpHash);
            self.decimal("conj_id", Mf::ConjId);
            self.hex("skb_priority", Mf::SkbPriority);
            if let Some((value, _)) = self.get(Mf::ActsetOutput) {
                self.out.push_str("actset_output=");
                self.ports.write(self.out, OfPort(value as u16));
                self.out.push(',');
            }
        }
        if let Some((value, mask)) = self.get(Mf::CtState) {
            self.out.push_str("ct_state=");
            write_flags(self.out, CT_STATE, value, mask, CT_STATE_ALL, false);
            self.out.push(',');
        }
        self.decimal("ct_zone", Mf::CtZone);
        if self.has(B_CT) || self.has(B_CT6) {
            self.hex("ct_mark", Mf::CtMark);
            self.hex("ct_label", Mf::CtLabel);
            self.ipv4("ct_nw_src", Mf::CtNwSrc);
            self.ipv6("ct_ipv6_src", Mf::CtIpv6Src);
            self.ipv4("ct_nw_dst", Mf::CtNwDst);
            self.ipv6("ct_ipv6_dst", Mf::CtIpv6Dst);
            self.decimal("ct_nw_proto", Mf::CtNwProto);
            self.decimal("ct_tp_src", Mf::CtTpSrc);
            self.decimal("ct_tp_dst", Mf::CtTpDst);
        }
    }

    /// `ip`, `tcp`, `arp`, ..., or the packet type if it is not Ethernet.
    fn shorthand(&mut self) -> Said {
        let mut said = Said { eth_type: false, proto: false };
        if let Some((value, _)) = self.get(Mf::PacketType)
            && value != 0
        {
            put!(self.out, "packet_type=({},", value >> 16);
            put!(self.out, "{}),", field::packet_type_text(value & 0xffff));
        }
        if let Some((eth_type, _)) = self.get(Mf::EthType) {
            let proto = self.get(Mf::NwProto).map(|(p, _)| p as u8);
            if let Some((name, says_proto)) = shorthand(eth_type as u16, proto) {
                put!(self.out, "{name},");
                said = Said { eth_type: true, proto: says_proto };
            }
        }
        said
    }

    fn pipeline(&mut self) {
        if self.has(B_REGS) {
            const NAMES: [&str; 16] = [
                "reg0", "reg1", "reg2", "reg3", "reg4", "reg5", "reg6", "reg7", "reg8", "reg9", "reg10",
                "reg11", "reg12", "reg13", "reg14", "reg15",
            ];
            for (n, name) in NAMES.into_iter().enumerate() {
                self.hex(name, Mf::Reg(n as u8));
            }
        }
        if self.has(B_TUNNEL) {
            self.tunnel();
        }
        for option in self.m.options.iter() {
            write_option(self.out, option);
        }
        if self.has(B_PIPELINE) {
            self.hex("metadata", Mf::Metadata);
        }
        if let Some((value, _)) = self.get(Mf::InPort) {
            self.out.push_str("in_port=");
            self.ports.write(self.out, OfPort(value as u16));
            self.out.push(',');
        }
    }

    fn tunnel(&mut self) {
        self.hex("tun_id", Mf::TunId);
        self.ipv4("tun_src", Mf::TunSrc);
        self.ipv4("tun_dst", Mf::TunDst);
        self.ipv6("tun_ipv6_src", Mf::TunIpv6Src);
        self.ipv6("tun_ipv6_dst", Mf::TunIpv6Dst);
        self.decimal("tun_gbp_id", Mf::TunGbpId);
        // Without its mask.
        if let Some((value, _)) = self.get(Mf::TunGbpFlags) {
            self.out.push_str("tun_gbp_flags=");
            write_hex(self.out, value);
            self.out.push(',');
        }
        self.decimal("tun_tos", Mf::TunTos);
        self.decimal("tun_ttl", Mf::TunTtl);
        self.decimal("tun_erspan_ver", Mf::TunErspanVer);
        self.hex("tun_erspan_idx", Mf::TunErspanIdx);
        self.decimal("tun_erspan_dir", Mf::TunErspanDir);
        self.hex("tun_erspan_hwid", Mf::TunErspanHwid);
        self.hex("gtpu_flags", Mf::TunGtpuFlags);
        self.decimal("gtpu_msgtype", Mf::TunGtpuMsgtype);
        if let Some((value, mask)) = self.get(Mf::TunFlags) {
            // A whole flow, of which the bits without a name are known too, has a list of those that are set.
            let is_whole = self.m.mask.get(FieldId::TunFlags) == FieldId::TunFlags.ones();
            self.out.push_str("tun_flags=");
            write_flags(self.out, TUN_FLAGS, value, mask, Mf::TunFlags.ones(), !is_whole);
            self.out.push(',');
        }
    }

    fn ethernet(&mut self, said: Said) {
        if let Some((tci, mask)) = self.get(Mf::VlanTci) {
            self.vlan("", tci as u16, mask as u16);
        }
        let mask = self.m.mask.get(FieldId::VlanTci2) as u16;
        if mask != 0 {
            self.vlan("1", self.m.key.get64(FieldId::VlanTci2) as u16, mask);
        }
        self.ethernet_address("dl_src", Mf::EthSrc);
        self.ethernet_address("dl_dst", Mf::EthDst);
        if let Some((eth_type, _)) = self.get(Mf::EthType)
            && !said.eth_type
        {
            put!(self.out, "dl_type=0x{eth_type:04x},");
        }
    }

    fn vlan(&mut self, suffix: &str, tci: u16, mask: u16) {
        let (vid, pcp, cfi) = (mask & 0xfff, mask & 0xe000, mask & 0x1000);
        let whole = (vid == 0 || vid == 0xfff) && (pcp == 0 || pcp == 0xe000) && (vid != 0 || pcp != 0);
        if cfi != 0 && tci & 0x1000 != 0 && whole {
            if vid != 0 {
                put!(self.out, "dl_vlan{suffix}={},", tci & 0xfff);
            }
            if pcp != 0 {
                put!(self.out, "dl_vlan_pcp{suffix}={},", tci >> 13);
            }
        } else if mask == 0xffff {
            put!(self.out, "vlan_tci{suffix}=0x{tci:04x},");
        } else {
            put!(self.out, "vlan_tci{suffix}=0x{tci:04x}/0x{mask:04x},");
        }
    }

    fn network(&mut self, said: Said) {
        let eth_type = self.m.eth_type();
        let is_arp = eth_type == 0x806 || eth_type == 0x8035;
        match eth_type {
            0x86dd => {
                if self.has(B_IPV6) {
                    self.ipv6("ipv6_src", Mf::Ipv6Src);
                    self.ipv6("ipv6_dst", Mf::Ipv6Dst);
                    if let Some((value, mask)) = self.get(Mf::Ipv6Label) {
                        put!(self.out, "ipv6_label=0x{value:05x}");
                        if mask != Mf::Ipv6Label.ones() {
                            put!(self.out, "/0x{mask:05x}");
                        }
                        self.out.push(',');
                    }
                    if let Some((value, mask)) = self.get(Mf::Ipv6ExtHdr) {
                        self.out.push_str("ipv6_exthdr=");
                        field::write_extension_headers(self.out, value, mask);
                        self.out.push(',');
                    }
                }
            }
            0x894f => self.nsh(),
            _ => {
                self.ipv4(if is_arp { "arp_spa" } else { "nw_src" }, Mf::NwSrc);
                self.ipv4(if is_arp { "arp_tpa" } else { "nw_dst" }, Mf::NwDst);
            }
        }
        if !said.proto {
            self.decimal(if is_arp { "arp_op" } else { "nw_proto" }, Mf::NwProto);
        }
        if is_arp && self.has(B_RARE) {
            self.ethernet_address("arp_sha", Mf::ArpSha);
            self.ethernet_address("arp_tha", Mf::ArpTha);
        }
        if let Some((tos, _)) = self.get(Mf::NwTos) {
            put!(self.out, "nw_tos={tos},");
        }
        if let Some((ecn, _)) = self.get(Mf::NwEcn) {
            put!(self.out, "nw_ecn={ecn},");
        }
        if let Some((ttl, _)) = self.get(Mf::NwTtl) {
            put!(self.out, "nw_ttl={ttl},");
        }
        if self.has(B_RARE) {
            self.decimal("mpls_label", Mf::MplsLabel);
            self.decimal("mpls_tc", Mf::MplsTc);
            self.decimal("mpls_ttl", Mf::MplsTtl);
            self.decimal("mpls_bos", Mf::MplsBos);
            for (name, lse) in [("mpls_lse1", FieldId::Mpls1), ("mpls_lse2", FieldId::Mpls2)] {
                let mask = self.m.mask.get(lse);
                if mask != 0 {
                    let value = self.m.key.get64(lse);
                    if mask == lse.ones() {
                        put!(self.out, "{name}={value},");
                    } else {
                        put!(self.out, "{name}={value:#x}/{mask:#x},");
                    }
                }
            }
        }
        if let Some((value, mask)) = self.get(Mf::IpFrag) {
            self.out.push_str("nw_frag=");
            field::write_fragments(self.out, value, mask);
            self.out.push(',');
        }
    }

    fn nsh(&mut self) {
        match self.get(Mf::NshFlags) {
            Some((flags, 0xff)) => put!(self.out, "nsh_flags={flags},"),
            Some((flags, mask)) => put!(self.out, "nsh_flags=0x{flags:02x}/0x{mask:02x},"),
            None => {}
        }
        for mf in [Mf::NshTtl, Mf::NshMdtype, Mf::NshNp] {
            self.decimal(mf.row().name, mf);
        }
        self.prefixed("nsh_spi", Mf::NshSpi);
        self.decimal("nsh_si", Mf::NshSi);
        for mf in [Mf::NshC1, Mf::NshC2, Mf::NshC3, Mf::NshC4] {
            self.prefixed(mf.row().name, mf);
        }
    }

    /// In hexadecimal, with a prefix even for 0.
    fn prefixed(&mut self, name: &str, mf: Mf) {
        match self.get(mf) {
            Some((0, mask)) if mask == mf.ones() => put!(self.out, "{name}=0x0,"),
            Some((0, mask)) => put!(self.out, "{name}=0x0/{mask:#x},"),
            _ => self.hex(name, mf),
        }
    }

    fn transport(&mut self) {
        let eth_type = self.m.eth_type();
        let proto = self.get(Mf::NwProto).map_or(0, |(p, _)| p);
        match (eth_type, proto) {
            (0x800, 1) | (0x86dd, 58) => {
                self.icmp_field("icmp_type", FieldId::TpSrc);
                self.icmp_field("icmp_code", FieldId::TpDst);
                if eth_type == 0x86dd {
                    if self.has(B_IPV6) {
                        self.ipv6("nd_target", Mf::NdTarget);
                    }
                    if self.has(B_RARE) {
                        self.ethernet_address("nd_sll", Mf::NdSll);
                        self.ethernet_address("nd_tll", Mf::NdTll);
                    }
                    if self.has(B_IPV6) {
                        self.decimal("nd_reserved", Mf::NdReserved);
                        self.decimal("nd_options_type", Mf::NdOptionsType);
                    }
                }
            }
            (_, 6 | 17 | 132) => {
                self.decimal("tp_src", Mf::TcpSrc);
                self.decimal("tp_dst", Mf::TcpDst);
            }
            // What was given as type and code of ICMP, without ICMP.
            _ => {
                self.icmp_field("tp_src", FieldId::TpSrc);
                self.icmp_field("tp_dst", FieldId::TpDst);
            }
        }
        if proto == 6
            && (eth_type == 0x800 || eth_type == 0x86dd)
            && let Some((value, mask)) = self.get(Mf::TcpFlags)
        {
            self.out.push_str("tcp_flags=");
            write_flags(self.out, TCP_FLAGS, value, mask, Mf::TcpFlags.ones(), false);
            self.out.push(',');
        }
    }

    /// A type or code: 8 bits in rules, 16 in keys that were extracted.
    fn icmp_field(&mut self, name: &str, id: FieldId) {
        let (value, mask) = (self.m.key.get64(id), self.m.mask.get(id));
        match mask {
            0 => {}
            0xff | 0xffff => put!(self.out, "{name}={value},"),
            _ => put!(self.out, "{name}={value:#x}/{mask:#x},"),
        }
    }
}

/// Appends the match on a tunnel option. As in Open vSwitch, whose values are as long as their masks, a mask
/// of ones that is a whole number of bytes is not written.
fn write_option(out: &mut String, option: &OptionMatch) {
    let OptionMatch { idx, value, mask, bytes } = option;
    put!(out, "tun_metadata{idx}");
    if !mask.is_zero() {
        put!(out, "={value}");
        let whole = bytes.map_or(mask.byte_len(), usize::from);
        if *mask != Wide::ONES && *mask != Wide::low(whole as u16 * 8) {
            put!(out, "/{mask}");
        }
    }
    out.push(',');
}

/// Takes `tun_metadataN`, `tun_metadataN=VALUE` or `tun_metadataN=VALUE/MASK`.
fn parse_option(m: &mut Match, idx: u8, text: &str) -> Result<(), TextError> {
    let (value, mask) = match text {
        "" | "*" => (Wide::ZERO, Wide::ZERO),
        text => value::wide_masked(text, &format!("tun_metadata{idx}"))?,
    };
    set_option(m, idx, value, mask)
}

fn set_option(m: &mut Match, idx: u8, value: Wide, mask: Wide) -> Result<(), TextError> {
    if m.options.get(idx).is_some() {
        return bad!("field tun_metadata{idx} set multiple times");
    }
    m.options.set(OptionMatch { idx, value: value.and(&mask), mask, bytes: None });
    let bytes = |o: &OptionMatch| if o.mask == Wide::ONES { o.value.byte_len() } else { o.mask.byte_len() };
    let used: usize = m.options.iter().map(|o| bytes(o).next_multiple_of(4)).sum();
    if used > OPTION_SPACE_BYTES {
        return bad!(
            "field tun_metadata{idx} exceeds maximum size for tunnel metadata (used {used}, max {OPTION_SPACE_BYTES})"
        );
    }
    Ok(())
}

/// Parses one `key=value` of a match: a field or a shorthand. `Ok(None)`: it is neither.
pub(super) fn parse_field(
    m: &mut Match,
    key: &str,
    value: &str,
    ports: &PortNames,
) -> Result<Option<Protocols>, TextError> {
    if let Some(&(_, eth_type, proto)) = SHORTHANDS.iter().find(|s| s.0 == key) {
        m.set_mf(Mf::EthType, eth_type.into(), 0xffff);
        if proto != 0 {
            m.set_mf(Mf::NwProto, proto.into(), 0xff);
        }
        return Ok(Some(Protocols::ANY));
    }
    if key == "eth" {
        m.set_mf(Mf::PacketType, 0, u32::MAX.into());
        return Ok(Some(Protocols::ANY));
    }
    if key.contains('[') {
        return parse_slice(m, key, value).map(Some);
    }
    let Some(mf) = field_named(key) else { return Ok(None) };
    if let Mf::TunMetadata(idx) = mf {
        parse_option(m, idx, value)?;
        return Ok(Some(Protocols::NXM_OXM));
    }
    if value.is_empty() && mf != Mf::InPort {
        return bad!("field {key} missing value");
    }
    let (value, mask) = parse_value(mf, value, ports)?;
    set_field(m, mf, value, mask);
    Ok(Some(Protocols::of_field(mf, value, mask)))
}

/// A field by the names used in matches, including those that mean the field of whichever protocol is
/// matched.
pub fn field_named(key: &str) -> Option<Mf> {
    match key {
        "tp_src" => Some(Mf::TcpSrc),
        "tp_dst" => Some(Mf::TcpDst),
        "gtpu_flags" => Some(Mf::TunGtpuFlags),
        "gtpu_msgtype" => Some(Mf::TunGtpuMsgtype),
        // Names of the wire (NXM_NX_REG0) are for slices.
        _ if key.contains("xm_") || key.contains("XM_") => None,
        _ => Mf::from_name(key),
    }
}

/// Names of what a match may have: fields, and protocols.
pub(super) fn item_names() -> impl Iterator<Item = String> {
    field_names().chain(SHORTHANDS.map(|shorthand| shorthand.0.into()))
}

/// Takes `FIELD[FIRST..LAST]=INTEGER`, which adds to what is matched of the field.
fn parse_slice(m: &mut Match, key: &str, text: &str) -> Result<Protocols, TextError> {
    let sub = parse_subfield(key)?;
    let (mf, row) = (sub.field, sub.field.row());
    let unreadable = || TextError::new(format!("{key}: cannot parse integer value: {text}"));
    let too_large = |hex: &dyn std::fmt::Display| {
        TextError::new(format!("{key}: value {hex} does not fit into {} bits", sub.count))
    };
    if let Mf::TunMetadata(idx) = mf {
        let value = value::wide(text).flatten().ok_or_else(unreadable)?;
        if !value.is_within(&Wide::low(sub.count)) {
            return Err(too_large(&value));
        }
        let is_whole = sub.offset == 0 && sub.count == row.subfield_bits;
        let mask = if is_whole { Wide::ONES } else { Wide::low(sub.count).shl(sub.offset) };
        set_option(m, idx, value.shl(sub.offset), mask)?;
        return Ok(Protocols::NXM_OXM);
    }
    let bits = u32::from(row.bytes) * 8;
    let value =
        value::number(text, u128::MAX).filter(|n| bits >= 128 || n >> bits == 0).ok_or_else(unreadable)?;
    let ones = if sub.count >= 128 { u128::MAX } else { (1 << sub.count) - 1 };
    if value & !ones != 0 {
        return Err(too_large(&format_args!("{value:#x}")));
    }
    let (value, mask) = (value << sub.offset, ones << sub.offset & mf.ones());
    // Slices of some fields are as wide as their place in a message, the field itself is not.
    if !mf.is_valid(value) {
        return bad!("{text} is not a valid value for field {}", field::display_name(mf));
    }
    let (old, old_mask) = m.get_mf(mf);
    m.set_mf(mf, old & !mask | value & mask, old_mask | mask);
    let is_exact = mask == mf.ones();
    if matches!(mf, Mf::DlVlan | Mf::DlVlanPcp) || !is_exact && row.maskable == Maskable::No {
        return Ok(Protocols::NONE);
    }
    Ok(Protocols::of_field(mf, value, mask))
}

/// Fields that occurred in a match, with their positions, to check at the end that their prerequisites are
/// there. Most fields without prerequisites are left out ([`normalized`]); but without these fields a rule
/// would match unintended packets.
#[derive(Default)]
pub(super) struct Requiring(Vec<(Mf, usize)>);

impl Requiring {
    /// A key of a match.
    pub(super) fn note(&mut self, key: &str, offset: usize) {
        if let Some(mf) = Mf::from_name(key.split('[').next().unwrap_or(""))
            && matches!(mf.row().prereq, Prereq::Ct | Prereq::Nsh)
        {
            self.0.push((mf, offset));
        }
    }

    /// The match is complete.
    pub(super) fn check(&self, m: &Match) -> Result<(), TextError> {
        for &(mf, offset) in &self.0 {
            if m.get_mf(mf).1 != 0 && !m.has_prereq(mf) {
                let why = format!("{}: what it requires is not matched (OFPBMC_BAD_PREREQ)", mf.name());
                return Err(TextError::new(why).after(offset));
            }
        }
        Ok(())
    }
}

/// Sets a field, with the meaning that the VLAN fields have in matches.
fn set_field(m: &mut Match, mf: Mf, value: u128, mask: u128) {
    let exact = mask == mf.ones();
    match mf {
        _ if mask == 0 => m.set_mf(mf, 0, 0),
        // OpenFlow 1.0: no tag, or a tag with that id.
        Mf::DlVlan if value == 0xffff => m.set_mf(Mf::VlanTci, 0, 0xffff),
        Mf::DlVlan => set_vlan_bits(m, value & 0xfff | 0x1000, 0x1fff),
        Mf::VlanVid if exact && value & 0x1000 == 0 && value == 0 => m.set_mf(Mf::VlanTci, 0, 0xffff),
        Mf::VlanVid => set_vlan_bits(m, value & 0x1fff, mask & 0x1fff),
        Mf::DlVlanPcp | Mf::VlanPcp => set_vlan_bits(m, (value & 7) << 13 | 0x1000, 0xf000),
        _ => m.set_mf(mf, value & mf.ones(), mask),
    }
}

fn set_vlan_bits(m: &mut Match, bits: u128, mask: u128) {
    let (old, old_mask) = m.get_mf(Mf::VlanTci);
    m.set_mf(Mf::VlanTci, old & !mask | bits & mask, old_mask | mask);
}

/// Parses a text that consists of one match, and normalises it.
pub fn parse_match(text: &str, ports: &PortNames) -> Result<Match, TextError> {
    let mut m = Match::any();
    let (mut items, mut requiring) = (KeyValues::new(text), Requiring::default());
    while let Some((key, value)) = items.next() {
        let known = parse_field(&mut m, key, value, ports).map_err(|e| e.after(items.offset()))?;
        requiring.note(key, items.offset());
        if known.is_none() {
            let error = TextError::unknown(format!("unknown keyword {key}"), key, item_names());
            return Err(error.after(items.offset()));
        }
    }
    requiring.check(&m)?;
    Ok(normalized(&m))
}

//! Frames from text: hexadecimal digits, or a flow whose fields a frame is made to have.

use crate::config::mac_address;
use std::collections::HashMap;
use std::str::FromStr;
use wire::arp::ArpRepr;
use wire::icmp::IcmpRepr;
use wire::icmpv6::Icmpv6Repr;
use wire::ipv4::Ipv4Repr;
use wire::ipv6::Ipv6Repr;
use wire::ipv6_ext::FragmentRepr;
use wire::nd::NdRepr;
use wire::tcp::{TcpFlags, TcpRepr};
use wire::vlan::VlanTag;
use wire::{Compose, EthAddr, EtherType, IpProtocol};

/// Why the text is no frame, in the words of `ovs-appctl netdev-dummy/receive`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadFrame(String);

impl std::fmt::Display for BadFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn bad<T>(what: impl std::fmt::Display) -> Result<T, BadFrame> {
    Err(BadFrame(format!("syntax error at {what}")))
}

/// Payload behind the headers of a frame made from a flow, as Open vSwitch makes it.
const PAYLOAD_BYTES: u8 = 64;
/// The fragments that a flow's `frag=` stands for.
const FIRST_FRAGMENT: FragmentRepr = FragmentRepr { fragment_offset: 0, more_fragments: true, ident: 0 };
const LATER_FRAGMENT: FragmentRepr = FragmentRepr { fragment_offset: 100, more_fragments: true, ident: 0 };
/// Flags of TCP.
const FIN: u16 = 1;
const SYN: u16 = 1 << 1;
const RST: u16 = 1 << 2;
/// Deepest nesting of `encap(...)`.
const DEPTH_MAX: usize = 4;
/// Longest frame.
const FRAME_BYTES_MAX: usize = 65_535;

/// A frame of the bytes that hexadecimal `text` names, or of the flow that it describes
/// (`in_port(1),eth(src=..,dst=..),eth_type(0x0800),ipv4(...),udp(...)`).
pub fn frame(text: &str) -> Result<Vec<u8>, BadFrame> {
    if text.contains('(') {
        return compose(text, None);
    }
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| !c.is_ascii_whitespace()).map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 && digits.len() / 2 <= FRAME_BYTES_MAX => {
            let bytes: Vec<u8> = digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect();
            if bytes.len() < 14 { bad(text) } else { Ok(bytes) }
        }
        _ => bad(text),
    }
}

/// The same of a given length: a flow's frame has a payload of as many zeros as that takes, other bytes have
/// zeros behind them. A frame that is longer stays as it is.
pub fn frame_of_len(text: &str, len: usize) -> Result<Vec<u8>, BadFrame> {
    if text.contains('(') {
        return compose(text, Some(len));
    }
    let mut frame = frame(text)?;
    if len > frame.len() {
        frame.resize(len, 0);
    }
    Ok(frame)
}

/// `name(inner)`.
pub(super) struct Attribute<'a> {
    pub name: &'a str,
    pub inner: &'a str,
}

/// Splits at the commas outside parentheses.
fn attributes(text: &str) -> Result<Vec<Attribute<'_>>, BadFrame> {
    let mut list = Vec::new();
    let mut rest = text.trim_matches([',', ' ']);
    while !rest.is_empty() {
        let Some(open) = rest.find('(') else { return bad(rest) };
        let mut depth = 0usize;
        let close = rest.char_indices().skip_while(|(i, _)| *i < open).find(|(_, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => return false,
            }
            depth == 0
        });
        let Some((close, _)) = close else { return bad(rest) };
        list.push(Attribute { name: rest[..open].trim(), inner: &rest[open + 1..close] });
        rest = rest[close + 1..].trim_matches([',', ' ']);
    }
    Ok(list)
}

/// What follows the unique id that a dump may begin a flow with.
pub(super) fn without_ufid(text: &str) -> &str {
    let text = text.trim_start();
    match text.strip_prefix("ufid:").and_then(|id| id.split_once([',', ' '])) {
        Some((_, flow)) => flow,
        None => text,
    }
}

struct Members<'a>(HashMap<&'a str, &'a str>);

impl<'a> Members<'a> {
    fn parse(inner: &'a str) -> Result<Members<'a>, BadFrame> {
        let pairs = inner.split(',').filter(|p| !p.trim().is_empty());
        let pairs = pairs.map(|p| match p.split_once('=') {
            // A mask says which bits a flow looks at; a frame has them all.
            Some((key, value)) => Ok((key.trim(), value.split('/').next().unwrap_or_default().trim())),
            None => bad(p),
        });
        Ok(Members(pairs.collect::<Result<_, _>>()?))
    }

    fn number(&self, key: &str, default: u64) -> Result<u64, BadFrame> {
        self.0.get(key).map_or(Ok(default), |text| number(text))
    }

    fn parsed<T: FromStr>(&self, key: &str, default: T) -> Result<T, BadFrame> {
        self.0.get(key).map_or(Ok(default), |text| text.parse().or_else(|_| bad(text)))
    }

    fn mac(&self, key: &str) -> Result<EthAddr, BadFrame> {
        let parse = |text: &&str| mac_address(text).map_or_else(|| bad(text), Ok);
        Ok(EthAddr(self.0.get(key).map_or(Ok([0; 6]), parse)?))
    }
}

pub(super) fn number(text: &str) -> Result<u64, BadFrame> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.or_else(|_| bad(text))
}

/// A number, whatever its mask.
fn unmasked(text: &str) -> Result<u64, BadFrame> {
    number(text.split('/').next().unwrap_or_default().trim())
}

/// A frame that is being made of a flow.
struct Frame {
    frame: Compose,
    eth_type: u16,
    nw_proto: u8,
    icmp_type: u8,
    hop_limit: u8,
    /// It has a transport header, as all but later fragments may.
    may_have_transport: bool,
    has_transport: bool,
    /// Something follows the headers, unless a length is given.
    has_payload: bool,
}

fn compose(text: &str, len: Option<usize>) -> Result<Vec<u8>, BadFrame> {
    let mut all = Vec::new();
    flatten(without_ufid(text), 0, &mut all)?;
    let eth = match all.iter().find(|a| a.name == "eth") {
        Some(a) => Members::parse(a.inner)?,
        None => Members(HashMap::new()),
    };
    let mut x = Frame {
        frame: Compose::ethernet(eth.mac("src")?, eth.mac("dst")?),
        eth_type: 0,
        nw_proto: 0,
        icmp_type: 0,
        hop_limit: 0,
        may_have_transport: true,
        has_transport: false,
        has_payload: false,
    };
    for Attribute { name, inner } in &all {
        x = x.with(name, inner)?;
    }
    x.build(len)
}

/// The attributes in order, those of `encap(...)` in its place.
pub(super) fn flatten<'a>(text: &'a str, depth: usize, out: &mut Vec<Attribute<'a>>) -> Result<(), BadFrame> {
    if depth > DEPTH_MAX {
        return bad(text);
    }
    for attribute in attributes(text)? {
        if attribute.name == "encap" {
            flatten(attribute.inner, depth + 1, out)?;
        } else {
            out.push(attribute);
        }
    }
    Ok(())
}

/// Attributes that a frame does not carry.
const METADATA: &[&str] = &[
    "in_port",
    "recirc_id",
    "dp_hash",
    "skb_priority",
    "skb_mark",
    "packet_type",
    "eth",
    "ct_state",
    "ct_zone",
    "ct_mark",
    "ct_label",
    "ct_tuple4",
    "ct_tuple6",
];

impl Frame {
    /// With one more attribute.
    fn with(mut self, name: &str, inner: &str) -> Result<Frame, BadFrame> {
        match name {
            _ if METADATA.contains(&name) => {}
            "eth_type" => {
                self.eth_type = unmasked(inner)? as u16;
                self.frame = self.frame.ethertype(EtherType(self.eth_type));
            }
            "vlan" => {
                let m = Members::parse(inner)?;
                let tci = m.number("vid", 0)? & 0xfff | (m.number("pcp", 0)? & 7) << 13;
                self.frame = self.frame.vlan_tag(VlanTag::from_tci(EtherType(self.eth_type), tci as u16));
            }
            "tcp_flags" => {
                let flags = super::words::tcp_flags_of(inner.trim())
                    .map_or_else(|| unmasked(inner).map(|n| n as u16), Ok)?;
                self.frame = self.frame.tcp_flags(TcpFlags::from_bits(flags));
                // What begins or ends a connection carries nothing.
                self.has_payload = flags & (FIN | SYN | RST) == 0;
            }
            "ipv4" | "ipv6" => {
                self = self.with_ip(name == "ipv6", &Members::parse(inner)?)?;
            }
            "mpls" => {
                let m = Members::parse(inner)?;
                let (label, tc, ttl) = (m.number("label", 0)?, m.number("tc", 0)?, m.number("ttl", 64)?);
                self.frame = self.frame.mpls_entry(label as u32 & 0xf_ffff, tc as u8 & 7, ttl as u8);
            }
            "arp" => {
                let m = Members::parse(inner)?;
                let arp = ArpRepr {
                    operation: m.number("op", 0)? as u16,
                    sha: m.mac("sha")?,
                    spa: m.parsed("sip", [0, 0, 0, 0].into())?,
                    tha: m.mac("tha")?,
                    tpa: m.parsed("tip", [0, 0, 0, 0].into())?,
                };
                self.frame = if self.eth_type == 0x8035 { self.frame.rarp(arp) } else { self.frame.arp(arp) };
            }
            _ => self = self.with_transport(name, &Members::parse(inner)?)?,
        }
        Ok(self)
    }

    fn with_ip(mut self, is_ipv6: bool, m: &Members<'_>) -> Result<Frame, BadFrame> {
        let fragment = match m.0.get("frag").copied() {
            None | Some("no") => None,
            Some("first") => Some(FIRST_FRAGMENT),
            Some("later") => Some(LATER_FRAGMENT),
            Some(other) => return bad(format!("frag={other}")),
        };
        self.nw_proto = m.number("proto", 0)? as u8;
        let proto = IpProtocol(self.nw_proto);
        self.frame = if is_ipv6 {
            let (src, dst) = (m.parsed("src", [0; 16].into())?, m.parsed("dst", [0; 16].into())?);
            let mut repr = Ipv6Repr::new(src, dst, proto);
            repr.flow_label = m.number("label", 0)? as u32 & 0xf_ffff;
            let (tos, ttl) = (m.number("tclass", 0)?, m.number("hlimit", 64)?);
            self.hop_limit = ttl as u8;
            self.frame.ipv6_repr(repr).protocol(proto).tos(tos as u8).ttl(ttl as u8)
        } else {
            let (src, dst) = (m.parsed("src", [0; 4].into())?, m.parsed("dst", [0; 4].into())?);
            let repr = Ipv4Repr { dont_fragment: false, ..Ipv4Repr::new(src, dst, proto) };
            let (tos, ttl) = (m.number("tos", 0)?, m.number("ttl", 64)?);
            self.frame.ipv4_repr(repr).protocol(proto).tos(tos as u8).ttl(ttl as u8)
        };
        if let Some(fragment) = fragment {
            self.frame = self.frame.fragment(fragment);
            self.may_have_transport = fragment.fragment_offset == 0;
        }
        Ok(self)
    }

    fn with_transport(mut self, name: &str, m: &Members<'_>) -> Result<Frame, BadFrame> {
        self.has_transport = true;
        let (src, dst) = (m.number("src", 0)? as u16, m.number("dst", 0)? as u16);
        let (kind, code) = (m.number("type", 0)? as u8, m.number("code", 0)? as u8);
        let frame = self.frame;
        (self.frame, self.has_payload) = match name {
            "tcp" => {
                let flags = TcpFlags::from_bits(0);
                (frame.tcp_repr(TcpRepr { seq: 0, ack: 0, window: 0, flags, ..TcpRepr::new(src, dst) }), true)
            }
            "udp" => (frame.udp(src, dst), true),
            "sctp" => (frame.sctp(src, dst), false),
            "icmp" => {
                (frame.icmp(IcmpRepr { icmp_type: kind, code, rest: [0; 4] }), is_echo(&[0, 8], kind, code))
            }
            "icmpv6" => {
                self.icmp_type = kind;
                let icmpv6 = Icmpv6Repr { icmp_type: kind, code, rest: [0; 4] };
                (frame.icmpv6(icmpv6), is_echo(&[128, 129], kind, code))
            }
            "nd" => {
                let link = |addr: EthAddr| (addr.0 != [0; 6]).then_some(addr);
                let nd = NdRepr {
                    solicit: self.icmp_type != 136,
                    flags: 0,
                    target: m.parsed("target", [0; 16].into())?,
                    source_ll: link(m.mac("sll")?),
                    target_ll: link(m.mac("tll")?),
                };
                (frame.nd(nd).ttl(self.hop_limit), false)
            }
            _ => return bad(name),
        };
        Ok(self)
    }

    fn build(mut self, len: Option<usize>) -> Result<Vec<u8>, BadFrame> {
        // A flow that says nothing of its transport has zeros there.
        if !self.has_transport && self.may_have_transport && matches!(self.eth_type, 0x0800 | 0x86dd) {
            let name = match (self.nw_proto, self.eth_type) {
                (6, _) => Some("tcp"),
                (17, _) => Some("udp"),
                (132, _) => Some("sctp"),
                (1, 0x0800) => Some("icmp"),
                (58, 0x86dd) => Some("icmpv6"),
                _ => None,
            };
            if let Some(name) = name {
                self = self.with_transport(name, &Members(HashMap::new()))?;
            }
        }
        let payload: Vec<u8> = (0..PAYLOAD_BYTES).collect();
        let frame = match len {
            None if self.has_payload && self.may_have_transport => self.frame.payload(&payload),
            Some(len) if len > self.frame.total_len() => self.frame.frame_len(len),
            _ => self.frame,
        };
        frame.build().map_err(|e| BadFrame(e.to_string()))
    }
}

fn is_echo(kinds: &[u8], kind: u8, code: u8) -> bool {
    code == 0 && kinds.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::flow::extract::{Ingress, extract};
    use ::flow::{Depth, FieldId, Key};
    use base::{OfPort, PortNo};

    fn key(text: &str) -> Key {
        let frame = frame(text).unwrap();
        let mut key = Key::default();
        let ingress = Ingress::new(OfPort(1), PortNo(1), Depth::Everything);
        extract(&frame, frame.len(), &ingress, &mut key).unwrap();
        key
    }

    #[test]
    fn a_flow_becomes_a_frame_that_has_its_fields() {
        let key = key("in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x8100),\
                       vlan(vid=9,pcp=3),encap(eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0x10,\
                       ttl=64,frag=no),tcp(src=1,dst=0x50),tcp_flags(0x2))");
        for (field, value) in [
            (FieldId::EthSrc, 0x5054_0000_0005),
            (FieldId::VlanTci, 0x7009),
            (FieldId::EthType, 0x800),
            (FieldId::NwDst, 0x0a00_0002),
            (FieldId::NwTos, 0x10),
            (FieldId::TpDst, 80),
            (FieldId::TcpFlags, 2),
        ] {
            assert_eq!(key.get(field), value, "{field:?}");
        }
    }

    #[test]
    fn what_a_dump_prints_of_a_flow_becomes_a_frame_with_its_values() {
        let frag = |text: &str| {
            let v4 = "in_port(1),eth_type(0x0800/0xffff),ipv4(src=10.0.0.1/255.0.0.0,proto=17/0,tos=0/0,ttl=64/0,frag=";
            key(&format!("{v4}{text}),udp(src=1/0,dst=53)")).get(FieldId::NwFrag)
        };
        assert_eq!((frag("no"), frag("first"), frag("later")), (0, 1, 3));
        assert!(frame("eth_type(0x0800),ipv4(proto=17,frag=some)").is_err());
        let tcp = |flags: &str| {
            let ip = "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1/0.0.0.0,proto=6,tos=0/0x3,frag=no),tcp(src=1,dst=2)";
            key(&format!("skb_mark(0/0),ct_state(0/0),{ip},tcp_flags({flags})")).get(FieldId::TcpFlags)
        };
        assert_eq!((tcp("syn|ack"), tcp("ack"), tcp("-fin+syn"), tcp("0x2/0x3")), (0x12, 0x10, 2, 2));
        let v6 = key(
            "in_port(1),eth_type(0x86dd),ipv6(src=fc00::1/::,dst=fc00::2,proto=17,frag=later),udp(src=1,dst=2)",
        );
        assert_eq!((v6.get(FieldId::Ipv6Dst) as u16, v6.get(FieldId::NwFrag)), (2, 3));
    }

    #[test]
    fn a_udp_flow_has_the_length_that_open_vswitch_gives_it() {
        let text = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
                    ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
        assert_eq!(frame(text).unwrap().len(), 106);
        let lens = |ip: &str| frame(&format!("eth_type(0x0800),ipv4(ttl=64,{ip}")).unwrap().len();
        // Headers alone, where Open vSwitch knows of no payload.
        assert_eq!(
            [lens("proto=16)"), lens("proto=6)"), lens("proto=6),tcp(),tcp_flags(rst)")],
            [34, 118, 54]
        );
        assert_eq!([lens("proto=1),icmp(type=8)"), lens("proto=1),icmp(type=3)")], [106, 42]);
        assert_eq!(frame("eth(),eth_type(0x1234)").unwrap().len(), 14);
        assert_eq!(frame_of_len(text, 60).unwrap().len(), 60);
    }

    #[test]
    fn hexadecimal_is_taken_as_it_is_and_nonsense_is_refused() {
        assert_eq!(frame("5054 00000007 505400000005 0800 4500").unwrap().len(), 16);
        for text in
            ["zz", "", "505", "50540000000750540000000508", "eth(", "eth(src=1)", "nosuch(1)", "éth(x)", ")("]
        {
            assert!(frame(text).is_err(), "{text}");
        }
        assert_eq!(frame("zz").unwrap_err().to_string(), "syntax error at zz");
        assert!(frame(&"encap(".repeat(1000)).is_err());
    }
}

//! Frames from text: hexadecimal digits, or a flow whose fields a frame is made to have.

use crate::config::mac_address;
use ::flow::compose::{Payload, compose};
use ::flow::{FieldId, Key};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

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

/// Where the tags and the labels of a flow go, from the outside in.
const TAGS: [(FieldId, FieldId); 2] =
    [(FieldId::VlanTci, FieldId::VlanTpid), (FieldId::VlanTci2, FieldId::VlanTpid2)];
const LABELS: [FieldId; 3] = [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2];
/// In a VLAN field: there is a tag.
const TAG_PRESENT: u64 = 0x1000;
/// In a label's entry.
const BOTTOM_OF_STACK: u128 = 0x100;
/// Deepest nesting of `encap(...)`.
const DEPTH_MAX: usize = 4;
/// Longest frame.
const FRAME_BYTES_MAX: usize = 65_535;

/// A frame of the bytes that hexadecimal `text` names, or of the flow that it describes
/// (`in_port(1),eth(src=..,dst=..),eth_type(0x0800),ipv4(...),udp(...)`).
pub fn frame(text: &str) -> Result<Vec<u8>, BadFrame> {
    if text.contains('(') {
        return described(text, Payload::Usual);
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
        return described(text, Payload::FrameLen(len));
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

    /// An Ethernet address as a number.
    fn mac(&self, key: &str) -> Result<u128, BadFrame> {
        let parse = |text: &&str| mac_address(text).map_or_else(|| bad(text), Ok);
        let address = self.0.get(key).map_or(Ok([0; 6]), parse)?;
        Ok(address.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
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

/// A key that is being made of a flow's attributes.
#[derive(Default)]
struct Described {
    key: Key,
    tags: usize,
    labels: usize,
}

fn described(text: &str, payload: Payload<'_>) -> Result<Vec<u8>, BadFrame> {
    let mut all = Vec::new();
    flatten(without_ufid(text), 0, &mut all)?;
    let mut flow = Described::default();
    for Attribute { name, inner } in &all {
        flow.take(name, inner)?;
    }
    if let Some(last) = flow.labels.checked_sub(1) {
        flow.key.set_masked(LABELS[last], BOTTOM_OF_STACK, BOTTOM_OF_STACK);
    }
    compose(&flow.key, payload).map_err(|e| BadFrame(e.to_string()))
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
    "ct_state",
    "ct_zone",
    "ct_mark",
    "ct_label",
    "ct_tuple4",
    "ct_tuple6",
];

impl Described {
    /// Takes one more attribute.
    fn take(&mut self, name: &str, inner: &str) -> Result<(), BadFrame> {
        match name {
            _ if METADATA.contains(&name) => {}
            "eth_type" => self.set(FieldId::EthType, unmasked(inner)?),
            "tcp_flags" => {
                let flags = super::words::tcp_flags_of(inner.trim())
                    .map_or_else(|| unmasked(inner).map(|n| n as u16), Ok)?;
                self.set(FieldId::TcpFlags, flags.into());
            }
            _ => self.take_members(name, &Members::parse(inner)?)?,
        }
        Ok(())
    }

    fn take_members(&mut self, name: &str, m: &Members<'_>) -> Result<(), BadFrame> {
        let implied = match name {
            "ipv4" => 0x0800,
            "ipv6" => 0x86dd,
            "arp" => 0x0806,
            _ => 0,
        };
        if self.key.get(FieldId::EthType) == 0 {
            self.set(FieldId::EthType, implied);
        }
        match name {
            "eth" => {
                self.key.set(FieldId::EthSrc, m.mac("src")?);
                self.key.set(FieldId::EthDst, m.mac("dst")?);
            }
            "vlan" => {
                let Some(&(tci, tpid)) = TAGS.get(self.tags) else { return bad(name) };
                self.tags += 1;
                self.set(tci, m.number("vid", 0)? & 0xfff | (m.number("pcp", 0)? & 7) << 13 | TAG_PRESENT);
                // Its type stands before it, that of what it carries behind it.
                self.key.set(tpid, self.key.get(FieldId::EthType));
            }
            "mpls" => {
                let Some(&label) = LABELS.get(self.labels) else { return bad(name) };
                self.labels += 1;
                let (number, class, ttl) = (m.number("label", 0)?, m.number("tc", 0)?, m.number("ttl", 64)?);
                self.set(label, (number & 0xf_ffff) << 12 | (class & 7) << 9 | ttl & 0xff);
            }
            "ipv4" => {
                self.key.set(FieldId::NwSrc, m.parsed("src", Ipv4Addr::UNSPECIFIED)?.to_bits().into());
                self.key.set(FieldId::NwDst, m.parsed("dst", Ipv4Addr::UNSPECIFIED)?.to_bits().into());
                self.ip(m, "tos", "ttl")?;
            }
            "ipv6" => {
                self.key.set(FieldId::Ipv6Src, m.parsed("src", Ipv6Addr::UNSPECIFIED)?.to_bits());
                self.key.set(FieldId::Ipv6Dst, m.parsed("dst", Ipv6Addr::UNSPECIFIED)?.to_bits());
                self.set(FieldId::Ipv6Label, m.number("label", 0)?);
                self.ip(m, "tclass", "hlimit")?;
            }
            "arp" => {
                self.set(FieldId::NwProto, m.number("op", 0)?);
                self.key.set(FieldId::NwSrc, m.parsed("sip", Ipv4Addr::UNSPECIFIED)?.to_bits().into());
                self.key.set(FieldId::NwDst, m.parsed("tip", Ipv4Addr::UNSPECIFIED)?.to_bits().into());
                self.key.set(FieldId::ArpSha, m.mac("sha")?);
                self.key.set(FieldId::ArpTha, m.mac("tha")?);
            }
            "tcp" | "udp" | "sctp" => {
                self.set(FieldId::TpSrc, m.number("src", 0)?);
                self.set(FieldId::TpDst, m.number("dst", 0)?);
            }
            "icmp" | "icmpv6" => {
                self.set(FieldId::TpSrc, m.number("type", 0)?);
                self.set(FieldId::TpDst, m.number("code", 0)?);
            }
            "nd" => {
                self.key.set(FieldId::NdTarget, m.parsed("target", Ipv6Addr::UNSPECIFIED)?.to_bits());
                self.key.set(FieldId::ArpSha, m.mac("sll")?);
                self.key.set(FieldId::ArpTha, m.mac("tll")?);
            }
            _ => return bad(name),
        }
        Ok(())
    }

    /// What both versions of IP have, two of them by names of their own.
    fn ip(&mut self, m: &Members<'_>, tos: &str, ttl: &str) -> Result<(), BadFrame> {
        self.set(FieldId::NwProto, m.number("proto", 0)?);
        self.set(FieldId::NwTos, m.number(tos, 0)?);
        self.set(FieldId::NwTtl, m.number(ttl, 64)?);
        self.set(
            FieldId::NwFrag,
            match m.0.get("frag").copied() {
                None | Some("no") => 0,
                Some("first") => 1,
                Some("later") => 3,
                Some(other) => return bad(format!("frag={other}")),
            },
        );
        Ok(())
    }

    fn set(&mut self, field: FieldId, value: u64) {
        self.key.set(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::flow::Depth;
    use ::flow::extract::{Ingress, extract};
    use base::{OfPort, PortNo};

    fn key(text: &str) -> Key {
        let frame = frame(text).unwrap();
        let mut key = Key::default();
        let ingress = Ingress::new(OfPort(1), PortNo(1), Depth::Everything);
        extract(&frame, frame.len(), &ingress, &mut key).unwrap();
        key
    }

    #[test]
    fn headers_behind_no_type_are_of_their_own() {
        for (text, eth_type) in [
            (
                "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1)",
                0x800,
            ),
            ("eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),ipv6(src=::1,dst=::2,proto=17)", 0x86dd),
            ("eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),arp(sip=10.0.0.1,tip=10.0.0.2,op=1)", 0x806),
        ] {
            assert_eq!(key(text).get(FieldId::EthType), eth_type, "{text}");
        }
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

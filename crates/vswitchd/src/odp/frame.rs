//! Frames from text: hexadecimal digits, or a flow whose fields a frame is made to have.

use crate::config::mac_address;
use std::collections::HashMap;
use std::str::FromStr;
use wire::arp::ArpRepr;
use wire::icmp::IcmpRepr;
use wire::icmpv6::Icmpv6Repr;
use wire::ipv6::Ipv6Repr;
use wire::ipv6_ext::FragmentRepr;
use wire::tcp::TcpFlags;
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

fn bad<T>(what: impl std::fmt::Display) -> Result<T, BadFrame> {
    Err(BadFrame(format!("syntax error at {what}")))
}

/// Payload behind the headers of a frame made from a flow, as Open vSwitch makes it.
const PAYLOAD_BYTES: usize = 64;
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
        return compose(text);
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

/// `name(inner)`.
struct Attribute<'a> {
    name: &'a str,
    inner: &'a str,
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

fn number(text: &str) -> Result<u64, BadFrame> {
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

fn compose(text: &str) -> Result<Vec<u8>, BadFrame> {
    let mut all = Vec::new();
    flatten(text, 0, &mut all)?;
    let eth = match all.iter().find(|a| a.name == "eth") {
        Some(a) => Members::parse(a.inner)?,
        None => Members(HashMap::new()),
    };
    let mut frame = Compose::ethernet(eth.mac("src")?, eth.mac("dst")?).payload(&[0; PAYLOAD_BYTES]);
    let mut eth_type = 0;
    for attribute in &all {
        let Attribute { name, inner } = attribute;
        frame = match *name {
            "eth_type" => {
                eth_type = unmasked(inner)? as u16;
                frame.ethertype(EtherType(eth_type))
            }
            "vlan" => {
                let m = Members::parse(inner)?;
                let tci = m.number("vid", 0)? & 0xfff | (m.number("pcp", 0)? & 7) << 13;
                frame.vlan_tag(VlanTag::from_tci(EtherType(eth_type), tci as u16))
            }
            _ => layer(frame, name, inner, eth_type)?,
        };
    }
    frame.build().map_err(|e| BadFrame(e.to_string()))
}

/// The attributes in order, those of `encap(...)` in its place.
fn flatten<'a>(text: &'a str, depth: usize, out: &mut Vec<Attribute<'a>>) -> Result<(), BadFrame> {
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

fn layer(frame: Compose, name: &str, inner: &str, eth_type: u16) -> Result<Compose, BadFrame> {
    // What a frame does not carry.
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
    ];
    if METADATA.contains(&name) {
        return Ok(frame);
    }
    if name == "tcp_flags" {
        let flags =
            super::tcp_flags_of(inner.trim()).map_or_else(|| unmasked(inner).map(|n| n as u16), Ok)?;
        let frame = frame.tcp_flags(TcpFlags::from_bits(flags));
        // What begins or ends a connection carries nothing.
        return Ok(if flags & (FIN | SYN | RST) != 0 { frame.payload(&[]) } else { frame });
    }
    let m = Members::parse(inner)?;
    let fragmented = |frame: Compose| match m.0.get("frag").copied() {
        None | Some("no") => Ok(frame),
        Some("first") => Ok(frame.fragment(FIRST_FRAGMENT)),
        Some("later") => Ok(frame.fragment(LATER_FRAGMENT)),
        Some(other) => bad(format!("frag={other}")),
    };
    let ports = |m: &Members<'_>| -> Result<(u16, u16), BadFrame> {
        Ok((m.number("src", 0)? as u16, m.number("dst", 0)? as u16))
    };
    Ok(match name {
        "ipv4" => fragmented(
            frame
                .ipv4(m.parsed("src", [0, 0, 0, 0].into())?, m.parsed("dst", [0, 0, 0, 0].into())?)
                .protocol(IpProtocol(m.number("proto", 0)? as u8))
                .tos(m.number("tos", 0)? as u8)
                .ttl(m.number("ttl", 64)? as u8),
        )?,
        "ipv6" => {
            let (src, dst) = (m.parsed("src", [0; 16].into())?, m.parsed("dst", [0; 16].into())?);
            let mut repr = Ipv6Repr::new(src, dst, IpProtocol(m.number("proto", 0)? as u8));
            repr.flow_label = m.number("label", 0)? as u32 & 0xf_ffff;
            fragmented(
                frame
                    .ipv6_repr(repr)
                    .protocol(IpProtocol(m.number("proto", 0)? as u8))
                    .tos(m.number("tclass", 0)? as u8)
                    .ttl(m.number("hlimit", 64)? as u8),
            )?
        }
        "arp" => {
            let arp = ArpRepr {
                operation: m.number("op", 0)? as u16,
                sha: m.mac("sha")?,
                spa: m.parsed("sip", [0, 0, 0, 0].into())?,
                tha: m.mac("tha")?,
                tpa: m.parsed("tip", [0, 0, 0, 0].into())?,
            };
            let frame = frame.payload(&[]);
            if eth_type == 0x8035 { frame.rarp(arp) } else { frame.arp(arp) }
        }
        "tcp" => ports(&m).map(|(src, dst)| frame.tcp(src, dst))?,
        "udp" => ports(&m).map(|(src, dst)| frame.udp(src, dst))?,
        "sctp" => ports(&m).map(|(src, dst)| frame.sctp(src, dst))?,
        "icmp" => frame.icmp(IcmpRepr {
            icmp_type: m.number("type", 0)? as u8,
            code: m.number("code", 0)? as u8,
            rest: [0; 4],
        }),
        "icmpv6" => frame.icmpv6(Icmpv6Repr {
            icmp_type: m.number("type", 0)? as u8,
            code: m.number("code", 0)? as u8,
            rest: [0; 4],
        }),
        "mpls" => frame.mpls_entry(
            m.number("label", 0)? as u32 & 0xf_ffff,
            m.number("tc", 0)? as u8 & 7,
            m.number("ttl", 64)? as u8,
        ),
        _ => return bad(name),
    })
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

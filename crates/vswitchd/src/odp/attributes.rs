//! Flows in text consist of attributes, such as `ipv4(src=10.0.0.1,frag=no)`. This table lists them, the
//! field of each member, and the format of its value. Flows and frames are parsed with it.

use super::words::{CT_STATES, TCP_FLAGS, either};
use ::flow::FieldId;
use openflow::text::parse_ethernet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Deepest nesting of `encap(...)`.
const DEPTH_MAX: usize = 4;

/// Why the text is no frame, in the words of `ovs-appctl netdev-dummy/receive`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadFrame(pub(super) String);

impl std::fmt::Display for BadFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn bad<T>(what: impl std::fmt::Display) -> Result<T, BadFrame> {
    Err(BadFrame(format!("syntax error at {what}")))
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

/// The text after the unique id with which a flow in a dump may begin.
pub(super) fn without_ufid(text: &str) -> &str {
    let text = text.trim_start();
    match text.strip_prefix("ufid:").and_then(|id| id.split_once([',', ' '])) {
        Some((_, flow)) => flow,
        None => text,
    }
}

/// The attributes in order; those in `encap(...)` take its place.
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

pub(super) fn number(text: &str) -> Result<u64, BadFrame> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.or_else(|_| bad(text))
}

/// How a value is written.
pub(super) type Read = fn(&str) -> Option<u128>;

pub(super) fn any_number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn mac(text: &str) -> Option<u128> {
    parse_ethernet(text).map(u128::from)
}

fn ipv4(text: &str) -> Option<u128> {
    text.parse::<Ipv4Addr>().ok().map(|a| u128::from(u32::from(a)))
}

fn ipv6(text: &str) -> Option<u128> {
    text.parse::<Ipv6Addr>().ok().map(u128::from)
}

/// Fragment bits by name.
fn frag(text: &str) -> Option<u128> {
    [("no", 0), ("first", 1), ("later", 3)].iter().find(|(name, _)| *name == text).map(|(_, bits)| *bits)
}

fn tcp_flags(text: &str) -> Option<u128> {
    either(text, &TCP_FLAGS).or_else(|| any_number(text))
}

fn ct_state(text: &str) -> Option<u128> {
    either(text, &CT_STATES).or_else(|| any_number(text))
}

/// Attributes that are one value.
pub(super) const SCALARS: &[(&str, FieldId, Read)] = &[
    ("skb_priority", FieldId::SkbPriority, any_number),
    ("skb_mark", FieldId::PktMark, any_number),
    ("ct_state", FieldId::CtState, ct_state),
    ("ct_zone", FieldId::CtZone, any_number),
    ("ct_mark", FieldId::CtMark, any_number),
    ("ct_label", FieldId::CtLabel, any_number),
    ("recirc_id", FieldId::RecircId, any_number),
    ("dp_hash", FieldId::DpHash, any_number),
    ("tcp_flags", FieldId::TcpFlags, tcp_flags),
];

/// Members of attributes: attribute, member, field, how it is written.
pub(super) const MEMBERS: &[(&str, &str, FieldId, Read)] = &[
    ("eth", "src", FieldId::EthSrc, mac),
    ("eth", "dst", FieldId::EthDst, mac),
    ("ipv4", "src", FieldId::NwSrc, ipv4),
    ("ipv4", "dst", FieldId::NwDst, ipv4),
    ("ipv4", "proto", FieldId::NwProto, any_number),
    ("ipv4", "tos", FieldId::NwTos, any_number),
    ("ipv4", "ttl", FieldId::NwTtl, any_number),
    ("ipv4", "frag", FieldId::NwFrag, frag),
    ("ipv6", "src", FieldId::Ipv6Src, ipv6),
    ("ipv6", "dst", FieldId::Ipv6Dst, ipv6),
    ("ipv6", "label", FieldId::Ipv6Label, any_number),
    ("ipv6", "proto", FieldId::NwProto, any_number),
    ("ipv6", "tclass", FieldId::NwTos, any_number),
    ("ipv6", "hlimit", FieldId::NwTtl, any_number),
    ("ipv6", "frag", FieldId::NwFrag, frag),
    ("arp", "sip", FieldId::NwSrc, ipv4),
    ("arp", "tip", FieldId::NwDst, ipv4),
    ("arp", "op", FieldId::NwProto, any_number),
    ("arp", "sha", FieldId::ArpSha, mac),
    ("arp", "tha", FieldId::ArpTha, mac),
    ("nd", "target", FieldId::NdTarget, ipv6),
    ("nd", "sll", FieldId::ArpSha, mac),
    ("nd", "tll", FieldId::ArpTha, mac),
    ("tcp", "src", FieldId::TpSrc, any_number),
    ("tcp", "dst", FieldId::TpDst, any_number),
    ("udp", "src", FieldId::TpSrc, any_number),
    ("udp", "dst", FieldId::TpDst, any_number),
    ("sctp", "src", FieldId::TpSrc, any_number),
    ("sctp", "dst", FieldId::TpDst, any_number),
    ("icmp", "type", FieldId::TpSrc, any_number),
    ("icmp", "code", FieldId::TpDst, any_number),
    ("icmpv6", "type", FieldId::TpSrc, any_number),
    ("icmpv6", "code", FieldId::TpDst, any_number),
];

/// A value and its mask.
pub(super) fn masked(text: &str, field: FieldId, read: Read) -> Result<(u128, u128), BadFrame> {
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    // The mask of a name is a number.
    let read_mask = |text: &str| read(text.trim()).or_else(|| any_number(text.trim()));
    let parsed = (read(value.trim()), mask.map_or(Some(field.ones()), read_mask));
    match parsed {
        (Some(value), Some(mask)) if value <= field.ones() && mask <= field.ones() => Ok((value, mask)),
        _ => bad(text),
    }
}

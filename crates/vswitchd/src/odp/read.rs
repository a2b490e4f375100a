//! Flows and actions of the datapath from text, as `dpctl/add-flow` takes them: a key under a mask, where
//! `frame` makes a packet of the same words.

use super::frame::{Attribute, BadFrame, bad, flatten, number, without_ufid};
use super::words::{CT_STATES, TCP_FLAGS, either, signed};
use crate::config::mac_address;
use ::flow::{FieldId, Key, Mask};
use base::PortNo;
use datapath::DpAction;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A port by its name.
pub type PortByName<'a> = &'a dyn Fn(&str) -> Option<PortNo>;

/// How a value is written.
type Read = fn(&str) -> Option<u128>;

fn any_number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn mac(text: &str) -> Option<u128> {
    mac_address(text).map(|b| b.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
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
const SCALARS: &[(&str, FieldId, Read)] = &[
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
const MEMBERS: &[(&str, &str, FieldId, Read)] = &[
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

/// A tag is there.
const TAG_PRESENT: u128 = 0x1000;

/// A flow that is being read.
struct Flow<'a> {
    key: Key,
    mask: Mask,
    /// The Ethernet type last read.
    eth_type: (u128, u128),
    tags: usize,
    ports: PortByName<'a>,
}

/// Reads a flow. What it does not name does not matter; a value without a mask matters whole. It is of
/// packets that come from a port unless it names a recirculation id.
pub fn read_flow(text: &str, ports: PortByName<'_>) -> Result<(Key, Mask), BadFrame> {
    let mut all = Vec::new();
    flatten(without_ufid(text), 0, &mut all)?;
    let mut flow = Flow { key: Key::default(), mask: Mask::wild(), eth_type: (0, 0), tags: 0, ports };
    flow.mask.add_exact(FieldId::RecircId);
    for attribute in &all {
        flow.add(attribute)?;
    }
    flow.set(FieldId::EthType, flow.eth_type.0, flow.eth_type.1);
    Ok((flow.key.masked(&flow.mask), flow.mask.canonical()))
}

/// A value and the bits of it that matter.
fn masked(text: &str, field: FieldId, read: Read) -> Result<(u128, u128), BadFrame> {
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    // The mask of a name is a number.
    let read_mask = |text: &str| read(text.trim()).or_else(|| any_number(text.trim()));
    let parsed = (read(value.trim()), mask.map_or(Some(field.ones()), read_mask));
    match parsed {
        (Some(value), Some(mask)) if value <= field.ones() && mask <= field.ones() => Ok((value, mask)),
        _ => bad(text),
    }
}

impl Flow<'_> {
    fn set(&mut self, field: FieldId, value: u128, mask: u128) {
        self.key.set(field, value & mask);
        self.mask.set(field, mask);
    }

    fn add(&mut self, attribute: &Attribute<'_>) -> Result<(), BadFrame> {
        let Attribute { name, inner } = attribute;
        if let Some((_, field, read)) = SCALARS.iter().find(|(scalar, ..)| scalar == name) {
            let names: &[&str] = if *field == FieldId::CtState { &CT_STATES } else { &TCP_FLAGS };
            let is_signed = inner.starts_with(['+', '-']);
            let (value, mask) = match signed(inner, names).filter(|_| is_signed) {
                Some(bits) => bits,
                None => masked(inner, *field, *read)?,
            };
            self.set(*field, value, mask);
            return Ok(());
        }
        match *name {
            "in_port" => {
                let (text, mask) = inner.split_once('/').map_or((*inner, None), |(t, m)| (t, Some(m)));
                let by_number = number(text.trim()).ok().filter(|n| *n < 1 << 16).map(|n| PortNo(n as u32));
                let Some(port) = by_number.or_else(|| (self.ports)(text.trim())) else { return bad(text) };
                let ones = FieldId::DpPort.ones();
                let mask = mask.map_or(Ok(u64::MAX), |mask| number(mask.trim()))?;
                self.set(FieldId::DpPort, u128::from(port.0), u128::from(mask) & ones);
                Ok(())
            }
            "packet_type" => {
                let parts = inner.strip_prefix("ns=").and_then(|rest| rest.split_once(",id="));
                let Some((namespace, id)) = parts else { return bad(inner) };
                let (namespace, id) = (number(namespace)?, number(id)?);
                if namespace > 0xffff || id > 0xffff {
                    return bad(inner);
                }
                let ones = FieldId::PacketType.ones();
                self.set(FieldId::PacketType, u128::from(namespace << 16 | id), ones);
                Ok(())
            }
            "eth_type" => {
                self.eth_type = masked(inner, FieldId::EthType, any_number)?;
                Ok(())
            }
            "vlan" => self.vlan(inner),
            "mpls" => self.parts(
                inner,
                FieldId::Mpls0,
                &[("label", 12, 0xf_ffff), ("tc", 9, 7), ("bos", 8, 1), ("ttl", 0, 0xff)],
            ),
            _ if MEMBERS.iter().any(|(of, ..)| of == name) => self.members(name, inner),
            _ => bad(name),
        }
    }

    fn members(&mut self, name: &str, inner: &str) -> Result<(), BadFrame> {
        for member in inner.split(',').map(str::trim).filter(|member| !member.is_empty()) {
            let Some((key, text)) = member.split_once('=') else { return bad(member) };
            let row = MEMBERS.iter().find(|(of, member, ..)| *of == name && *member == key.trim());
            let Some((_, _, field, read)) = row else { return bad(member) };
            let (value, mask) = masked(text, *field, *read)?;
            self.set(*field, value, mask);
        }
        Ok(())
    }

    /// Numbers that share a field: name, lowest bit, bits.
    fn parts(&mut self, inner: &str, field: FieldId, parts: &[(&str, u32, u128)]) -> Result<(), BadFrame> {
        let (mut value, mut mask) = (self.key.get(field), self.mask.get(field));
        for member in inner.split(',').map(str::trim).filter(|member| !member.is_empty()) {
            let Some((key, text)) = member.split_once('=') else { return bad(member) };
            let row = parts.iter().find(|(name, ..)| *name == key.trim());
            let Some((_, shift, ones)) = row else { return bad(member) };
            let (v, m) = text.split_once('/').map_or((text, None), |(v, m)| (v, Some(m)));
            let (v, m) = (number(v.trim())?, m.map_or(Ok(u64::MAX), |m| number(m.trim()))?);
            value |= (u128::from(v) & ones) << shift;
            mask |= (u128::from(m) & ones) << shift;
        }
        self.set(field, value, mask);
        Ok(())
    }

    fn vlan(&mut self, inner: &str) -> Result<(), BadFrame> {
        let (tpid, tci) = match self.tags {
            0 => (FieldId::VlanTpid, FieldId::VlanTci),
            1 => (FieldId::VlanTpid2, FieldId::VlanTci2),
            _ => return bad("vlan"),
        };
        self.tags += 1;
        let (value, mask) = std::mem::take(&mut self.eth_type);
        self.set(tpid, value, mask);
        self.set(tci, TAG_PRESENT, TAG_PRESENT);
        self.parts(inner, tci, &[("vid", 0, 0xfff), ("pcp", 13, 7), ("cfi", 12, 1)])
    }
}

/// Reads actions: ports by number or name, `drop`, `trunc(N)` before a port, `push_vlan(..)`, `pop_vlan`.
pub fn read_actions(text: &str, ports: PortByName<'_>) -> Result<Vec<DpAction>, BadFrame> {
    let (mut list, mut max_bytes) = (Vec::new(), None);
    let mut rest = text.trim();
    if rest == "drop" {
        return Ok(list);
    }
    while !rest.is_empty() {
        let end = match (rest.find(','), rest.find('(')) {
            (comma, Some(open)) if comma.is_none_or(|comma| open < comma) => {
                rest.find(')').map_or(rest.len(), |close| close + 1)
            }
            (comma, _) => comma.unwrap_or(rest.len()),
        };
        let word = rest[..end].trim();
        rest = rest[end..].trim_start_matches([',', ' ']);
        if let Some(inner) = word.strip_prefix("trunc(").and_then(|w| w.strip_suffix(')')) {
            max_bytes = Some(number(inner)?.clamp(14, 65_535) as u32);
        } else if let Some(inner) = word.strip_prefix("push_vlan(").and_then(|w| w.strip_suffix(')')) {
            list.push(push_vlan(inner)?);
        } else if word == "pop_vlan" {
            list.push(DpAction::PopVlan);
        } else {
            let by_number = number(word).ok().filter(|n| *n < 1 << 16).map(|n| PortNo(n as u32));
            let Some(port) = by_number.or_else(|| ports(word)) else {
                return bad(format!("{word} (an action here is a port, drop, trunc, push_vlan or pop_vlan)"));
            };
            list.push(match max_bytes.take() {
                Some(max_bytes) => DpAction::OutputTrunc { port, max_bytes },
                None => DpAction::Output(port),
            });
        }
    }
    Ok(list)
}

fn push_vlan(inner: &str) -> Result<DpAction, BadFrame> {
    let (mut tpid, mut tci) = (0x8100, TAG_PRESENT as u16);
    for member in inner.split(',').map(str::trim).filter(|member| !member.is_empty()) {
        let Some((name, value)) = member.split_once('=') else { return bad(member) };
        let value = number(value)?;
        match name {
            "tpid" if matches!(value, 0x8100 | 0x88a8) => tpid = value as u16,
            "vid" if value < 1 << 12 => tci |= value as u16,
            "pcp" if value < 8 => tci |= (value as u16) << 13,
            "cfi" if value == 1 => {}
            _ => return bad(member),
        }
    }
    Ok(DpAction::PushVlan { tpid, tci })
}

#[cfg(test)]
mod tests {
    use super::super::{ActionContext, actions, hand_flow, numbers};
    use super::*;

    fn none(_: &str) -> Option<PortNo> {
        None
    }

    /// What is read from the text, shown.
    fn again(text: &str) -> String {
        let (key, mask) = read_flow(text, &none).unwrap();
        hand_flow(&key, &mask, &numbers, false)
    }

    #[test]
    fn a_flow_is_read_as_it_is_shown() {
        for text in [
            "recirc_id(0),in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x1234)",
            "skb_mark(0x1/0x3),recirc_id(0x7),in_port(2),packet_type(ns=0,id=0),eth_type(0x0800),\
             ipv4(src=10.0.0.0/255.0.0.0,proto=6,ttl=64,frag=no),tcp(dst=80),tcp_flags(syn|ack)",
            "recirc_id(0),in_port(1),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x86dd),\
             ipv6(dst=2001:db8::1,proto=58,frag=later),icmpv6(type=135,code=0),nd(target=fe80::1))",
            "recirc_id(0),in_port(1),eth_type(0x8847),mpls(label=16/0xfffff,tc=0/1,ttl=64/0xff,bos=1/1)",
            "recirc_id(0),in_port(1),eth_type(0x0806),arp(sip=10.0.0.1,op=1,sha=00:00:00:00:00:09)",
        ] {
            assert_eq!(again(text), text);
        }
        let with_id = "ufid:01-ab, recirc_id(0),in_port(1)";
        assert_eq!(again(with_id), "recirc_id(0),in_port(1)");
        assert_eq!(
            again("in_port(1),eth(),eth_type(0x0800),ipv4()"),
            "recirc_id(0),in_port(1),eth_type(0x0800)"
        );
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        let read = |text: &str| read_flow(text, &|name| (name == "p1").then_some(PortNo(3))).map(|f| f.0);
        for text in
            ["in_port(", "in_port(p2)", "x(1)", "eth(src=1)", "ipv4(src)", "ct_zone(65536)", "eth_type(1/q)"]
        {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read("in_port(p1)").unwrap().get(FieldId::DpPort), 3);
    }

    #[test]
    fn actions_are_read_as_they_are_shown() {
        let (key, _) = read_flow("eth_type(0x0800)", &none).unwrap();
        for text in ["drop", "3", "1,2", "push_vlan(vid=5,pcp=1),2,pop_vlan,3", "trunc(100),4"] {
            let list = read_actions(text, &none).unwrap();
            assert_eq!(actions(&list, ActionContext::of(&key), &numbers), text);
        }
        for text in ["set(ipv4(ttl=1))", "p1", "trunc(x),1", "push_vlan(vid=4096)", "70000"] {
            assert!(read_actions(text, &none).is_err(), "{text}");
        }
    }
}

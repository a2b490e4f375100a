//! Parses datapath flows and actions, as in `dpctl/add-flow`, into a key and a mask; `frame` makes a packet
//! from the same text.

use super::attributes::{
    Attribute, BadFrame, MEMBERS, Read, SCALARS, any_number, bad, flatten, masked, number, without_ufid,
};
use super::words::{CT_STATES, TCP_FLAGS, signed};
use ::flow::{FieldId, Key, Mask};
use base::PortNo;
use datapath::DpAction;

/// A port by its name.
pub type PortByName<'a> = &'a dyn Fn(&str) -> Option<PortNo>;

/// A tag is there.
const TAG_PRESENT: u128 = 0x1000;

/// The fields for the tags and labels of a flow, from the outside in.
const TAGS: [(FieldId, FieldId); 2] =
    [(FieldId::VlanTci, FieldId::VlanTpid), (FieldId::VlanTci2, FieldId::VlanTpid2)];
pub(super) const LABELS: [FieldId; 3] = [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2];

/// A flow being parsed: values as written, and their masks.
pub(super) struct Flow<'a> {
    pub key: Key,
    mask: Mask,
    /// The Ethernet type last read.
    pub eth_type: (u128, u128),
    tags: usize,
    pub labels: usize,
    /// The default TTL of a header.
    ttl: u128,
    ports: PortByName<'a>,
}

/// Reads a flow. What it does not name does not matter; a value without a mask matters whole. It is of
/// packets that come from a port unless it names a recirculation id.
pub fn read_flow(text: &str, ports: PortByName<'_>) -> Result<(Key, Mask), BadFrame> {
    let mut all = Vec::new();
    flatten(without_ufid(text), 0, &mut all)?;
    let mut flow = Flow::new(0, ports);
    flow.mask.add_exact(FieldId::RecircId);
    for attribute in &all {
        flow.add(attribute)?;
    }
    flow.set(FieldId::EthType, flow.eth_type.0, flow.eth_type.1);
    Ok((flow.key.masked(&flow.mask), flow.mask.canonical()))
}

/// What a flow says about its packet besides the headers: recirculation id, connection tracking result, and
/// so on. Masks are ignored.
pub fn metadata(text: &str) -> Result<Vec<(FieldId, u128)>, BadFrame> {
    let mut all = Vec::new();
    flatten(without_ufid(text), 0, &mut all)?;
    let scalars = SCALARS.iter().filter(|(_, field, _)| *field != FieldId::TcpFlags);
    let read = |(name, field, read): &(&str, FieldId, Read)| {
        let attribute = all.iter().find(|attribute| attribute.name == *name)?;
        let value = match signed(attribute.inner, &CT_STATES) {
            Some((value, _)) if attribute.inner.starts_with(['+', '-']) => Ok(value),
            _ => masked(attribute.inner, *field, *read).map(|(value, _)| value),
        };
        Some(value.map(|value| (*field, value)))
    };
    scalars.filter_map(read).collect()
}

impl<'a> Flow<'a> {
    /// A flow of which nothing has been parsed yet.
    pub fn new(ttl: u128, ports: PortByName<'a>) -> Flow<'a> {
        let (mut key, mask) = (Key::default(), Mask::wild());
        key.set(FieldId::NwTtl, ttl);
        Flow { key, mask, eth_type: (0, 0), tags: 0, labels: 0, ttl, ports }
    }

    fn set(&mut self, field: FieldId, value: u128, mask: u128) {
        self.key.set(field, value);
        self.mask.set(field, mask);
    }

    /// Takes one more attribute.
    pub fn add(&mut self, attribute: &Attribute<'_>) -> Result<(), BadFrame> {
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
            "mpls" => self.mpls(inner),
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
            value = value & !(ones << shift) | (u128::from(v) & ones) << shift;
            mask |= (u128::from(m) & ones) << shift;
        }
        self.set(field, value, mask);
        Ok(())
    }

    fn mpls(&mut self, inner: &str) -> Result<(), BadFrame> {
        let Some(&label) = LABELS.get(self.labels) else { return bad("mpls") };
        self.labels += 1;
        self.key.set(label, self.ttl);
        self.parts(inner, label, &[("label", 12, 0xf_ffff), ("tc", 9, 7), ("bos", 8, 1), ("ttl", 0, 0xff)])
    }

    /// Its type comes before it, that of its payload after it.
    fn vlan(&mut self, inner: &str) -> Result<(), BadFrame> {
        let Some(&(tci, tpid)) = TAGS.get(self.tags) else { return bad("vlan") };
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
        let end = match rest.find([',', '(']) {
            Some(open) if rest[open..].starts_with('(') => {
                rest.find(')').map_or(rest.len(), |close| close + 1)
            }
            comma => comma.unwrap_or(rest.len()),
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

//! A flow's masked key. Bits that the mask leaves out are shown as they were in the packet that created the
//! flow, as in Open vSwitch.

use super::words::{
    CT_STATES, PortNames, TCP_FLAGS, decimal, hex, ipv4, ipv6, mac, numbers, port, tcp_flags,
};
use ::flow::{FieldId, Key, Mask};
use base::PortNo;

type Show = fn(u128) -> String;

/// Bits of the field of fragments.
const FRAG_ANY: u128 = 1;
const FRAG_LATER: u128 = 2;

const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_ARP: u16 = 0x0806;
const ETH_TYPE_RARP: u16 = 0x8035;
const ETH_TYPE_IPV6: u16 = 0x86dd;
const ETH_TYPE_NSH: u16 = 0x894f;
const ETH_TYPE_MPLS: [u16; 2] = [0x8847, 0x8848];

/// Shows a flow. `verbose` shows fields that do not matter too, with a mask of zero.
pub fn flow(key: &Key, mask: &Mask, names: PortNames<'_>, verbose: bool) -> String {
    Text { key, mask, verbose, of: Of::Cache, parts: Vec::new() }.all(names)
}

/// Shows a flow that was put in by hand, as [`super::read_flow`] reads it.
pub fn hand_flow(key: &Key, mask: &Mask, names: PortNames<'_>, verbose: bool) -> String {
    Text { key, mask, verbose, of: Of::Hand, parts: Vec::new() }.all(names)
}

/// The unique id of a flow: the same for the same key and mask, on every worker, and after a restart.
pub fn ufid(key: &Key, mask: &Mask) -> String {
    // Two halves of FNV-1a: it identifies flows, and is not meant to resist deliberate collisions.
    let text = flow(&key.masked(mask), mask, &numbers, false);
    let half = |basis: u64| {
        text.bytes().fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let (high, low) = (half(0xcbf2_9ce4_8422_2325), half(0x6c62_272e_07bb_0142));
    format!(
        "ufid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// A mask for showing every field of a packet.
fn exact_mask() -> Mask {
    let mut mask = Mask::wild();
    FieldId::ALL.iter().for_each(|field| mask.add_exact(*field));
    mask
}

/// Shows the whole packet.
pub fn packet(key: &Key, names: PortNames<'_>) -> String {
    let mask = &exact_mask();
    Text { key, mask, verbose: false, of: Of::Packet, parts: Vec::new() }.all(names)
}

/// Where a flow comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// There is no mask: it is of one packet.
    Packet,
    /// The caches, which hold no packets but those of Ethernet.
    Cache,
    /// Added manually.
    Hand,
}

struct Text<'a> {
    key: &'a Key,
    mask: &'a Mask,
    verbose: bool,
    of: Of,
    parts: Vec<String>,
}

/// One member of an attribute: its name, its field, and how its value and its mask look.
type Member = (&'static str, FieldId, Show, Show);

impl Text<'_> {
    fn all(mut self, names: PortNames<'_>) -> String {
        self.metadata(names);
        self.ethernet();
        self.network();
        let depth = self.vlan_depth();
        self.parts.join(",") + &")".repeat(depth)
    }

    fn get(&self, field: FieldId) -> (u128, u128) {
        (self.key.get(field) & self.mask.get(field), self.mask.get(field))
    }

    fn value(&self, field: FieldId, show: Show, show_mask: Show) -> Option<String> {
        let (value, mask) = self.get(field);
        if mask == field.ones() {
            Some(show(value))
        } else if mask != 0 || self.verbose {
            Some(format!("{}/{}", show(self.key.get(field)), show_mask(mask)))
        } else {
            None
        }
    }

    /// `name(value)`.
    fn scalar(&mut self, name: &str, field: FieldId, show: Show) {
        if let Some(value) = self.value(field, show, hex) {
            self.parts.push(format!("{name}({value})"));
        }
    }

    /// `name(member=value,...)`, left out if no member is matched.
    fn group(&mut self, name: &str, members: &[Member]) {
        let shown = |(n, f, s, m): &Member| self.value(*f, *s, *m).map(|v| format!("{n}={v}"));
        let members: Vec<_> = members.iter().filter_map(shown).collect();
        if !members.is_empty() {
            self.parts.push(format!("{name}({})", members.join(",")));
        }
    }

    fn metadata(&mut self, names: PortNames<'_>) {
        use FieldId::*;
        self.scalar("skb_priority", SkbPriority, hex);
        self.scalar("skb_mark", PktMark, hex);
        self.connection_state();
        self.scalar("ct_zone", CtZone, hex);
        self.scalar("ct_mark", CtMark, hex);
        self.scalar("ct_label", CtLabel, hex);
        self.scalar("recirc_id", RecircId, hex);
        self.scalar("dp_hash", DpHash, hex);
        let in_port = PortNo(self.key.get64(DpPort) as u32);
        self.parts.push(format!("in_port({})", port(in_port, names)));
        if self.of != Of::Hand || self.mask.get(PacketType) != 0 {
            let packet_type = self.key.get64(PacketType);
            let (namespace, id) = (packet_type >> 16, packet_type & 0xffff);
            self.parts.push(match namespace {
                0 => format!("packet_type(ns=0,id={id})"),
                _ => format!("packet_type(ns={namespace},id={id:#x})"),
            });
        }
    }

    /// `ct_state(-new+est+trk)`; without masks, `ct_state(est|trk)`.
    fn connection_state(&mut self) {
        const NAMES: [&str; 8] = CT_STATES;
        let (value, mask) = self.get(FieldId::CtState);
        let is_set = |bit: usize, word: u128| word >> bit & 1 != 0;
        let text: String = match mask {
            0 if !self.verbose => return,
            0 => "0/0".into(),
            _ if self.of == Of::Packet || self.verbose => {
                let set: Vec<_> = (0..8).filter(|bit| is_set(*bit, value)).map(|bit| NAMES[bit]).collect();
                let set = if set.is_empty() { "0".into() } else { set.join("|") };
                if self.of == Of::Packet { set } else { format!("{set}/{}", hex(mask & 0xff)) }
            }
            _ => {
                let sign = |bit| if is_set(bit, value) { '+' } else { '-' };
                let shown = (0..8).filter(|bit| is_set(*bit, mask));
                shown.map(|bit| format!("{}{}", sign(bit), NAMES[bit])).collect()
            }
        };
        self.parts.push(format!("ct_state({text})"));
    }

    fn ethernet(&mut self) {
        use FieldId::*;
        self.group("eth", &[("src", EthSrc, mac, mac), ("dst", EthDst, mac, mac)]);
        for (tpid, tci) in [(VlanTpid, VlanTci), (VlanTpid2, VlanTci2)] {
            if !self.has_tag(tpid, tci) {
                break;
            }
            let (shown, is_known) = (self.key.get(tpid), self.mask.get(tpid) | self.mask.get(tci) != 0);
            let shown = if shown == 0 { 0x8100 } else { shown };
            self.parts.push(format!("eth_type({shown:#06x}{})", if is_known { "" } else { "/0x0000" }));
            let tag = self.vlan(tci);
            self.parts.push(format!("{tag},encap("));
        }
        let (eth_type, eth_mask) = self.get(EthType);
        if eth_mask != 0 {
            let text = match eth_mask {
                0xffff => format!("eth_type({eth_type:#06x})"),
                _ => format!("eth_type({eth_type:#06x}/{eth_mask:#06x})"),
            };
            self.parts.push(text);
        }
        self.open_encaps();
    }

    fn has_tag(&self, tpid: FieldId, tci: FieldId) -> bool {
        // A tag with matched bits that show that it is present.
        let is_tagged = self.get(tci).0 != 0 || self.key.get(tci) & 0x1000 != 0;
        is_tagged && (self.verbose || self.mask.get(tpid) != 0 || self.mask.get(tci) != 0)
    }

    fn vlan_depth(&self) -> usize {
        use FieldId::*;
        match (self.has_tag(VlanTpid, VlanTci), self.has_tag(VlanTpid2, VlanTci2)) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        }
    }

    fn vlan(&self, tci: FieldId) -> String {
        let (value, mask) = (self.key.get(tci), self.mask.get(tci));
        let part = |name: &str, shift: u32, ones: u128| {
            let (v, m) = (value >> shift & ones, mask >> shift & ones);
            match m {
                0 if v == 0 && !self.verbose => None,
                _ if m == ones => Some(format!("{name}={v}")),
                _ => Some(format!("{name}={v}/{m:#x}")),
            }
        };
        let parts: Vec<_> = [part("vid", 0, 0xfff), part("pcp", 13, 7)].into_iter().flatten().collect();
        format!("vlan({})", parts.join(","))
    }

    /// What follows a tag is inside `encap(`, so no comma may come after that.
    fn open_encaps(&mut self) {
        let mut joined: Vec<String> = Vec::new();
        for part in self.parts.drain(..) {
            match joined.last_mut() {
                Some(last) if last.ends_with("encap(") => last.push_str(&part),
                _ => joined.push(part),
            }
        }
        self.parts = joined;
    }

    fn network(&mut self) {
        use FieldId::*;
        let (eth_type, eth_mask) = self.get(EthType);
        if eth_mask != 0xffff {
            return;
        }
        match eth_type as u16 {
            ETH_TYPE_IPV4 => {
                self.ip("ipv4", [("src", NwSrc, ipv4, ipv4), ("dst", NwDst, ipv4, ipv4)], "tos", "ttl");
                self.transport(false);
            }
            ETH_TYPE_IPV6 => {
                self.ip(
                    "ipv6",
                    [("src", Ipv6Src, ipv6, ipv6), ("dst", Ipv6Dst, ipv6, ipv6)],
                    "tclass",
                    "hlimit",
                );
                self.transport(true);
            }
            ETH_TYPE_ARP | ETH_TYPE_RARP => self.group(
                "arp",
                &[
                    ("sip", NwSrc, ipv4, ipv4),
                    ("tip", NwDst, ipv4, ipv4),
                    ("op", NwProto, decimal, hex),
                    ("sha", ArpSha, mac, mac),
                    ("tha", ArpTha, mac, mac),
                ],
            ),
            t if ETH_TYPE_MPLS.contains(&t) => self.mpls(),
            ETH_TYPE_NSH => self.group(
                "nsh",
                &[
                    ("flags", NshFlags, decimal, hex),
                    ("ttl", NshTtl, decimal, hex),
                    ("mdtype", NshMdtype, decimal, hex),
                    ("np", NshNp, decimal, hex),
                    ("spi", NshSpi, hex, hex),
                    ("si", NshSi, decimal, hex),
                    ("c1", NshC1, hex, hex),
                    ("c2", NshC2, hex, hex),
                    ("c3", NshC3, hex, hex),
                    ("c4", NshC4, hex, hex),
                ],
            ),
            _ => {}
        }
    }

    fn ip(&mut self, name: &str, addresses: [Member; 2], tos: &'static str, ttl: &'static str) {
        use FieldId::*;
        // Open vSwitch's keys do not include extension headers: they are shown only if they are matched.
        let label: &[Member] = match name {
            "ipv6" if self.mask.get(Ipv6ExtHdr) != 0 => {
                &[("label", Ipv6Label, hex, hex), ("exthdr", Ipv6ExtHdr, hex, hex)]
            }
            "ipv6" => &[("label", Ipv6Label, hex, hex)],
            _ => &[],
        };
        let rest: [Member; 3] =
            [("proto", NwProto, decimal, hex), (tos, NwTos, hex, hex), (ttl, NwTtl, decimal, hex)];
        let members = addresses.iter().chain(label).chain(&rest);
        let shown = members.filter_map(|(n, f, s, m)| self.value(*f, *s, *m).map(|v| format!("{n}={v}")));
        let mut parts: Vec<String> = shown.collect();
        let (frag, frag_mask) = self.get(NwFrag);
        if frag_mask & (FRAG_ANY | FRAG_LATER) != 0 {
            let frag = match frag & (FRAG_ANY | FRAG_LATER) {
                0 => "no",
                FRAG_ANY => "first",
                _ => "later",
            };
            parts.push(format!("frag={frag}"));
        }
        if !parts.is_empty() {
            self.parts.push(format!("{name}({})", parts.join(",")));
        }
    }

    fn transport(&mut self, is_ipv6: bool) {
        use FieldId::*;
        let (proto, proto_mask) = (self.key.get(NwProto), self.mask.get(NwProto));
        if proto_mask != 0xff && !self.verbose {
            return;
        }
        let ports: [Member; 2] = [("src", TpSrc, decimal, hex), ("dst", TpDst, decimal, hex)];
        match proto {
            6 => {
                self.group("tcp", &ports);
                // Each flag that matters with a sign, unless all do.
                let (value, mask) = self.get(TcpFlags);
                if mask == TcpFlags.ones() {
                    self.scalar("tcp_flags", TcpFlags, tcp_flags);
                } else if mask == 0 {
                    self.parts.extend(self.verbose.then(|| "tcp_flags(0/0)".to_string()));
                } else {
                    let of = |(bit, name): (usize, &&str)| match (mask >> bit & 1, value >> bit & 1) {
                        (0, _) => String::new(),
                        (_, 0) => format!("-{name}"),
                        _ => format!("+{name}"),
                    };
                    let flags: String = TCP_FLAGS.iter().enumerate().map(of).collect();
                    self.parts.push(format!("tcp_flags({flags})"));
                }
            }
            17 => self.group("udp", &ports),
            132 => self.group("sctp", &ports),
            1 if !is_ipv6 => self.icmp("icmp"),
            58 if is_ipv6 => {
                self.icmp("icmpv6");
                let (kind, kind_mask) = self.get(TpSrc);
                if kind_mask & 0xff == 0xff && (kind == 135 || kind == 136) {
                    self.group(
                        "nd",
                        &[
                            ("target", NdTarget, ipv6, ipv6),
                            ("sll", ArpSha, mac, mac),
                            ("tll", ArpTha, mac, mac),
                        ],
                    );
                }
            }
            _ => {}
        }
    }

    /// Type and code, of eight bits each, in place of ports.
    fn icmp(&mut self, name: &str) {
        let member = |name: &str, field| {
            let (value, mask) = self.get(field);
            match mask & 0xff {
                0xff => Some(format!("{name}={}", value & 0xff)),
                0 if !self.verbose => None,
                mask => Some(format!("{name}={}/{}", self.key.get(field) & 0xff, hex(mask))),
            }
        };
        let members = [member("type", FieldId::TpSrc), member("code", FieldId::TpDst)];
        let members: Vec<String> = members.into_iter().flatten().collect();
        if !members.is_empty() {
            self.parts.push(format!("{name}({})", members.join(",")));
        }
    }

    /// All known entries of the stack; without masks if all bits of all of them are matched.
    fn mpls(&mut self) {
        const BOTTOM_OF_STACK: u128 = 0x100;
        let all = [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2].map(|field| self.key.get(field));
        let masks = [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2].map(|field| self.mask.get(field));
        let last = all.iter().position(|lse| lse & BOTTOM_OF_STACK != 0);
        let last = last.or(masks.iter().rposition(|mask| *mask != 0));
        let Some(count) = last.map(|last| last + 1) else { return };
        let is_exact = masks[..count].iter().all(|mask| *mask == u128::from(u32::MAX));
        let parts = |lse: u128| (lse >> 12, lse >> 9 & 7, lse & 0xff, lse >> 8 & 1);
        let shown = all[..count].iter().zip(masks).map(|(lse, mask)| {
            let (label, tc, ttl, bos) = parts(*lse);
            let (label_mask, tc_mask, ttl_mask, bos_mask) = parts(mask);
            if is_exact {
                return format!("label={label},tc={tc},ttl={ttl},bos={bos}");
            }
            format!(
                "label={label}/{label_mask:#x},tc={tc}/{tc_mask:x},ttl={ttl}/{ttl_mask:#x},bos={bos}/{bos_mask:x}"
            )
        });
        self.parts.push(format!("mpls({})", shown.collect::<Vec<_>>().join(",")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(fields: &[(FieldId, u128)]) -> Key {
        let mut key = Key::default();
        fields.iter().for_each(|(f, v)| key.set(*f, *v));
        key
    }

    fn mask(fields: &[(FieldId, u128)]) -> Mask {
        let mut mask = Mask::wild();
        fields.iter().for_each(|(f, m)| mask.add(*f, *m));
        mask
    }

    #[test]
    fn a_flow_shows_what_matters_as_open_vswitch_does() {
        use FieldId::*;
        let key = key(&[
            (DpPort, 1),
            (EthType, 0x800),
            (NwSrc, 0x0a00_0001),
            (NwDst, 0x0a00_0002),
            (NwProto, 17),
            (TpDst, 53),
        ]);
        let mut of = vec![
            (RecircId, RecircId.ones()),
            (DpPort, DpPort.ones()),
            (EthType, 0xffff),
            (NwFrag, 3),
            (NwSrc, 0xffff_ffff),
            (NwDst, 0xffff_ff00),
        ];
        assert_eq!(
            flow(&key, &mask(&of), &numbers, false),
            "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),\
             ipv4(src=10.0.0.1,dst=10.0.0.2/255.255.255.0,frag=no)"
        );
        of.extend([(NwProto, 0xff), (TpDst, 0xffff), (NwTos, 0xfc)]);
        let text = flow(&key, &mask(&of), &|_| Some("p1".into()), false);
        assert!(text.contains("in_port(p1)"), "{text}");
        assert!(text.ends_with("proto=17,tos=0/0xfc,frag=no),udp(dst=53)"), "{text}");
    }

    #[test]
    fn flags_of_tcp_have_names_and_signs_where_not_all_matter() {
        use FieldId::*;
        let key = key(&[(EthType, 0x800), (NwProto, 6), (TcpFlags, 0x12)]);
        let shown = |flags: u128| {
            flow(&key, &mask(&[(EthType, 0xffff), (NwProto, 0xff), (TcpFlags, flags)]), &numbers, false)
        };
        assert!(shown(TcpFlags.ones()).ends_with("tcp_flags(syn|ack)"), "{}", shown(TcpFlags.ones()));
        assert!(shown(0x13).ends_with("tcp_flags(-fin+syn+ack)"), "{}", shown(0x13));
        let flags = |text: &str| crate::odp::words::either(text, &crate::odp::words::TCP_FLAGS);
        assert_eq!((flags("syn|ack"), flags("x")), (Some(0x12), None));
    }

    #[test]
    fn what_is_behind_a_tag_stands_in_encap() {
        use FieldId::*;
        let key = key(&[(VlanTpid, 0x8100), (VlanTci, 0x1005), (EthType, 0x806), (NwProto, 1)]);
        let mask =
            mask(&[(RecircId, RecircId.ones()), (VlanTci, 0x1fff), (EthType, 0xffff), (NwProto, 0xff)]);
        assert_eq!(
            flow(&key, &mask, &numbers, false),
            "recirc_id(0),in_port(0),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5),\
             encap(eth_type(0x0806),arp(op=1))"
        );
    }
}

//! `multipath` and `bundle`: one of several links or ports, chosen by a hash of the packet.
//!
//! The inputs of the hash decide, so their bits are in the flow's mask. Open vSwitch leaves the choice of
//! hash open.

use super::Xlate;
use crate::changelog::word_table;
use crate::trace::Sink;
use base::OfPort;
use base::hash::HashKey;
use flow::action::{Bundle, HashFields, LinkChoice, MemberChoice, Multipath};
use flow::{FieldId, Mf};

/// With more links than this, highest random weight costs too much, and iterated hashing is used instead.
const HRW_LINKS_MAX: u32 = 64;
/// Attempts of iterated hashing; each finds a link with a probability of at least one half.
const TRIES: u64 = 64;

impl<'a, S: Sink> Xlate<'a, S> {
    #[inline(never)]
    pub(super) fn multipath(&mut self, multipath: &Multipath) {
        let key = HashKey::from_seed(multipath.basis.into());
        let hash = self.hash_of(multipath.fields, &key);
        let links = u32::from(multipath.max_link) + 1;
        let link = match multipath.algorithm {
            LinkChoice::ModuloN => hash as u32 % links,
            LinkChoice::HashThreshold => ((u64::from(hash as u32) * u64::from(links)) >> 32) as u32,
            LinkChoice::Hrw if links <= HRW_LINKS_MAX => heaviest(0..links, hash, &key).unwrap_or(0),
            LinkChoice::Hrw => iterated(hash, links, 0, &key),
            LinkChoice::IterHash => iterated(hash, links, multipath.arg, &key),
        };
        self.write_sub(&multipath.target, link.into());
        self.report_bits(&multipath.target);
    }

    #[inline(never)]
    pub(super) fn bundle_action(&mut self, bundle: &Bundle) {
        let mut up = bundle.members.iter().enumerate().filter(|(_, port)| self.is_link_up(**port));
        let chosen = match bundle.algorithm {
            MemberChoice::ActiveBackup => up.next().map(|(_, port)| *port),
            MemberChoice::Hrw => {
                let up: Vec<(usize, OfPort)> = up.map(|(i, port)| (i, *port)).collect();
                let key = HashKey::from_seed(bundle.basis.into());
                let hash = if bundle.members.len() > 1 { self.hash_of(bundle.fields, &key) } else { 0 };
                let best = heaviest(up.iter().map(|(i, _)| *i as u32), hash, &key);
                up.iter().find(|(i, _)| Some(*i as u32) == best).map(|(_, port)| *port)
            }
        };
        for port in &bundle.members {
            self.visit_word(word_table::ports(self.bridge.idx.0), word_table::port(port.0));
        }
        let chosen = chosen.unwrap_or(OfPort::NONE);
        match &bundle.target {
            Some(target) => {
                self.write_sub(target, chosen.0.into());
                self.report_bits(target);
            }
            None => self.output_action(chosen, 0),
        }
    }

    /// Whether a member can be chosen; the bridge's own port and reserved ports always can.
    fn is_link_up(&self, port: OfPort) -> bool {
        match port {
            OfPort::NONE => false,
            OfPort::IN_PORT | OfPort::TABLE | OfPort::NORMAL | OfPort::FLOOD | OfPort::ALL => true,
            port => self.bridge.port(port).is_some_and(|p| p.spec.link_up && !p.spec.config.port_down),
        }
    }

    /// The hash of what `fields` selects.
    fn hash_of(&mut self, fields: HashFields, key: &HashKey) -> u64 {
        let mut hash = 0;
        let mut add = |value: u128| {
            hash = key.word(key.word(hash, value as u64), (value >> 64) as u64);
        };
        match fields {
            HashFields::EthSrc => add(self.read(FieldId::EthSrc).into()),
            HashFields::NwSrc => add(self.source()),
            HashFields::NwDst => add(self.destination()),
            HashFields::SymmetricL3 => {
                add(self.source() ^ self.destination());
            }
            HashFields::SymmetricL4 => {
                add((self.read(FieldId::EthSrc) ^ self.read(FieldId::EthDst)).into());
                add((self.read(FieldId::VlanTci) & 0xfff | (self.read(FieldId::VlanTci2) & 0xfff) << 16)
                    .into());
                add(self.read(FieldId::EthType).into());
                add(self.source() ^ self.destination());
                // Not UDP ports: tunnels over UDP use different ones in each direction.
                add(self.ports(false));
            }
            HashFields::SymmetricL3L4 | HashFields::SymmetricL3L4Udp => {
                add(self.source() ^ self.destination());
                add(self.ports(fields == HashFields::SymmetricL3L4Udp));
            }
        }
        hash
    }

    /// The source IP address; 0 for anything else.
    fn source(&mut self) -> u128 {
        match self.read(FieldId::EthType) {
            0x0800 => self.read(FieldId::NwSrc).into(),
            0x86dd => {
                self.need_mf(Mf::Ipv6Src, u128::MAX);
                self.key.get(FieldId::Ipv6Src)
            }
            _ => 0,
        }
    }

    /// The destination IP address; 0 for anything else.
    fn destination(&mut self) -> u128 {
        match self.read(FieldId::EthType) {
            0x0800 => self.read(FieldId::NwDst).into(),
            0x86dd => {
                self.need_mf(Mf::Ipv6Dst, u128::MAX);
                self.key.get(FieldId::Ipv6Dst)
            }
            _ => 0,
        }
    }

    /// The transport protocol and both ports, the same in both directions.
    fn ports(&mut self, with_udp: bool) -> u128 {
        if !self.is_ip() {
            return 0;
        }
        let proto = self.read(FieldId::NwProto);
        let has_ports = matches!(proto, 6 | 132) || with_udp && proto == 17;
        let ports = if has_ports && !self.is_later_fragment() {
            self.read(FieldId::TpSrc) ^ self.read(FieldId::TpDst)
        } else {
            0
        };
        (proto << 16 | ports).into()
    }
}

/// The link with the highest random weight: when a link goes, only its own packets move.
fn heaviest(links: impl Iterator<Item = u32>, hash: u64, key: &HashKey) -> Option<u32> {
    links.max_by_key(|link| key.word(hash, u64::from(*link) + 1))
}

/// Rehashes until the remainder is a link.
fn iterated(hash: u64, links: u32, modulo: u32, key: &HashKey) -> u32 {
    let modulo = if modulo < links || modulo / 2 > links { links.next_power_of_two() } else { modulo };
    (0..TRIES)
        .map(|i| (key.word(hash, i) % u64::from(modulo)) as u32)
        .find(|link| *link < links)
        .unwrap_or(hash as u32 % links)
}

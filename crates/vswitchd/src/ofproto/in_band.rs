//! Rules that let a bridge reach its controllers through its own ports, whatever controllers do: DHCP and ARP
//! of the bridge's own port, ARP for the controllers' addresses, and their TCP connections, all switched by
//! NORMAL.
//!
//! The switch itself owns these rules: their priority is above all others, and OpenFlow can neither see nor
//! change them. Priorities are Open vSwitch's, as in `ovs-appctl bridge/dump-flows`.
//!
//! ARP of the first host on the way to a controller, a router or the controller itself, passes by its
//! Ethernet address: a router may ask for the switch under an address that no other rule knows.

use super::own_rule::OwnRule;
use base::OfPort;
use flow::{FieldId, Match};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

const FROM_LOCAL_DHCP: i32 = 180_000;
const TO_LOCAL_ARP: i32 = 180_001;
const FROM_LOCAL_ARP: i32 = 180_002;
const TO_NEXT_HOP_ARP: i32 = 180_003;
const FROM_NEXT_HOP_ARP: i32 = 180_004;
const TO_REMOTE_ARP: i32 = 180_005;
const FROM_REMOTE_ARP: i32 = 180_006;
const TO_REMOTE_TCP: i32 = 180_007;
const FROM_REMOTE_TCP: i32 = 180_008;

/// The purpose of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Local(u64),
    NextHop(u64),
    Address(Ipv4Addr),
    Remote(SocketAddrV4),
}

/// The rules that are there, by what they are for.
#[derive(Default)]
pub(crate) struct InBand {
    there: BTreeSet<What>,
    /// Their queue.
    queue_id: Option<u32>,
}

/// What to do.
#[derive(Default)]
pub(crate) struct Changes {
    pub removed: Vec<OwnRule>,
    pub added: Vec<OwnRule>,
}

impl InBand {
    /// The bridge's address and the controllers that are reached through it are these, and packets to and
    /// from them leave by this queue. `next_hop` says the Ethernet address of the first host on the way to an
    /// address, as far as known.
    pub fn run(
        &mut self,
        mac: [u8; 6],
        remotes: BTreeSet<SocketAddrV4>,
        queue_id: Option<u32>,
        next_hop: impl FnMut(Ipv4Addr) -> Option<[u8; 6]>,
    ) -> Changes {
        let number = |mac: [u8; 6]| mac.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let addresses: BTreeSet<Ipv4Addr> = remotes.iter().map(|remote| *remote.ip()).collect();
        let mut wanted = BTreeSet::new();
        if !remotes.is_empty() {
            wanted.insert(What::Local(number(mac)));
        }
        wanted.extend(addresses.iter().copied().map(What::Address));
        wanted.extend(addresses.into_iter().filter_map(next_hop).map(number).map(What::NextHop));
        wanted.extend(remotes.into_iter().map(What::Remote));
        let is_queue_new = std::mem::replace(&mut self.queue_id, queue_id) != queue_id;
        if wanted == self.there && !is_queue_new {
            return Changes::default();
        }
        let is_added = |what: &&What| is_queue_new || !self.there.contains(what);
        let rules = |what| rules(what, queue_id);
        let changes = Changes {
            removed: self.there.difference(&wanted).flat_map(rules).collect(),
            added: wanted.iter().filter(is_added).flat_map(rules).collect(),
        };
        self.there = wanted;
        changes
    }
}

fn rules(what: &What, queue_id: Option<u32>) -> Vec<OwnRule> {
    let ip = |ip: Ipv4Addr| u128::from(u32::from(ip));
    let arp = |operation| Match::any().with(FieldId::EthType, 0x806).with(FieldId::NwProto, operation);
    let over = |proto| Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwProto, proto);
    let rule = |priority, matching| OwnRule { priority, matching, queue_id };
    match *what {
        What::Local(mac) => vec![
            rule(
                FROM_LOCAL_DHCP,
                over(17)
                    .with(FieldId::InPort, OfPort::LOCAL.0.into())
                    .with(FieldId::EthSrc, mac.into())
                    .with(FieldId::TpSrc, 68)
                    .with(FieldId::TpDst, 67),
            ),
            rule(TO_LOCAL_ARP, arp(2).with(FieldId::EthDst, mac.into())),
            rule(FROM_LOCAL_ARP, arp(1).with(FieldId::EthSrc, mac.into())),
        ],
        What::NextHop(mac) => vec![
            rule(TO_NEXT_HOP_ARP, arp(2).with(FieldId::EthDst, mac.into())),
            rule(FROM_NEXT_HOP_ARP, arp(1).with(FieldId::EthSrc, mac.into())),
        ],
        What::Address(address) => vec![
            rule(TO_REMOTE_ARP, arp(2).with(FieldId::NwDst, ip(address))),
            rule(FROM_REMOTE_ARP, arp(1).with(FieldId::NwSrc, ip(address))),
        ],
        What::Remote(remote) => vec![
            rule(
                TO_REMOTE_TCP,
                over(6).with(FieldId::NwDst, ip(*remote.ip())).with(FieldId::TpDst, remote.port().into()),
            ),
            rule(
                FROM_REMOTE_TCP,
                over(6).with(FieldId::NwSrc, ip(*remote.ip())).with(FieldId::TpSrc, remote.port().into()),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> SocketAddrV4 {
        text.parse().unwrap()
    }

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn nothing_known(_: Ipv4Addr) -> Option<[u8; 6]> {
        None
    }

    #[test]
    fn rules_come_and_go_with_controllers_and_addresses() {
        let mut in_band = InBand::default();
        let none = in_band.run(MAC, BTreeSet::new(), None, nothing_known);
        assert!(none.added.is_empty(), "no controller, no rules");
        let first = BTreeSet::from([remote("10.0.0.1:6653")]);
        let changes = in_band.run(MAC, first.clone(), None, nothing_known);
        assert_eq!((changes.added.len(), changes.removed.len()), (7, 0));
        let both = BTreeSet::from([remote("10.0.0.1:6653"), remote("10.0.0.1:6654")]);
        let changes = in_band.run(MAC, both, None, nothing_known);
        assert_eq!((changes.added.len(), changes.removed.len()), (2, 0), "the address is known");
        let other_mac = [2, 0, 0, 0, 0, 2];
        let changes = in_band.run(other_mac, first, None, nothing_known);
        assert_eq!((changes.added.len(), changes.removed.len()), (3, 5));
        assert_eq!(in_band.run(other_mac, BTreeSet::new(), None, nothing_known).removed.len(), 7);
    }

    #[test]
    fn all_rules_come_again_with_another_queue() {
        let mut in_band = InBand::default();
        let remotes = BTreeSet::from([remote("10.0.0.1:6653")]);
        in_band.run(MAC, remotes.clone(), None, nothing_known);
        let changes = in_band.run(MAC, remotes.clone(), Some(3), nothing_known);
        assert_eq!((changes.added.len(), changes.removed.len()), (7, 0));
        assert!(changes.added.iter().all(|rule| rule.queue_id == Some(3)));
        assert!(in_band.run(MAC, remotes, Some(3), nothing_known).added.is_empty());
    }

    #[test]
    fn the_first_host_on_the_way_has_rules_and_may_change() {
        let mut in_band = InBand::default();
        let remotes = || BTreeSet::from([remote("10.0.0.1:6653")]);
        let router = |n: u8| move |_| Some([2, 0, 0, 0, 1, n]);
        assert_eq!(in_band.run(MAC, remotes(), None, nothing_known).added.len(), 7);
        let found = in_band.run(MAC, remotes(), None, router(1)).added;
        let priorities: Vec<i32> = found.iter().map(|rule| rule.priority).collect();
        assert_eq!(priorities, [TO_NEXT_HOP_ARP, FROM_NEXT_HOP_ARP]);
        assert!(in_band.run(MAC, remotes(), None, router(1)).added.is_empty());
        let changes = in_band.run(MAC, remotes(), None, router(2));
        assert_eq!((changes.added.len(), changes.removed.len()), (2, 2));
        assert_eq!(in_band.run(MAC, BTreeSet::new(), None, router(2)).removed.len(), 9);
    }
}

//! Which addresses give way where a bridge knows as many as it may.

use crate::rig::*;
use std::cell::Cell;
use std::collections::HashSet;

/// How many addresses the bridge may know.
const SIZE: u64 = 400;
/// The first address behind port 101, which is learned before all others and is used all the time.
const GATEWAY: u64 = 1;

/// A bridge whose port 101 has most of the addresses.
fn rig_with_uplink() -> Rig {
    let mut r = rig();
    r.add(0, 0, Match::any(), vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }]);
    let mut config = r.control.topology().bridge(r.br).unwrap().config.clone();
    config.mac_table_size = SIZE as usize;
    r.control.set_bridge(r.br, config).unwrap();
    let effects: Vec<Effect> = (GATEWAY..GATEWAY + 300).map(|mac| r.learn(mac, 101)).collect();
    r.control.apply(&effects, 1_000);
    r
}

impl Rig {
    fn learn(&self, mac: u64, port: u32) -> Effect {
        Effect::Learn { bridge: self.br, vlan: 0, mac, port: PortNo(port) }
    }

    /// The slots that a packet from an address behind port 101 credits.
    fn credits(&self, mac: u64) -> Vec<u32> {
        let mut from = packet(101);
        from.set(FieldId::EthSrc, mac.into());
        self.translate(&from).credits.to_vec()
    }

    fn to(&self, mac: u64) -> Vec<DpAction> {
        let mut to = packet(104);
        to.set(FieldId::EthSrc, 1 << 40);
        to.set(FieldId::EthDst, mac.into());
        self.actions(&to)
    }

    fn behind(&self, port: u32) -> HashSet<u64> {
        let all = self.control.fdb_show(self.br, 0, &|_: u32| SlotStats::default());
        all.iter().filter(|entry| entry.port == PortNo(port)).map(|entry| entry.mac).collect()
    }
}

fn used(last_used_ms: u64) -> SlotStats {
    SlotStats { last_used_ms, ..SlotStats::default() }
}

#[test]
fn an_address_in_use_stays_however_many_are_invented_behind_its_port_or_another() {
    for port in [102, 101] {
        let mut r = rig_with_uplink();
        let of_gateway = r.credits(GATEWAY);
        for n in 0..20 * SIZE {
            // Counters are told once a second. Meanwhile a flood fills the table several times.
            let now_ms = 2_000 + n;
            let slots =
                |slot| if of_gateway.contains(&slot) { used(now_ms / 1_000 * 1_000) } else { used(0) };
            let invented = r.learn(1 << 32 | n, port);
            r.control.apply_with(&[invented], now_ms, &slots);
            assert_eq!(r.to(GATEWAY), [out(1)], "after {n} at {port}");
        }
        assert_eq!(r.control.fdb_stats(r.br).current, SIZE as usize);
        if port == 102 {
            assert_eq!(r.behind(101).len(), SIZE as usize / 2, "as many as the other");
        }
    }
}

#[test]
fn addresses_that_were_used_since_they_were_learned_give_way_after_those_that_were_not() {
    let mut r = rig_with_uplink();
    // Every third of them was used at some time, long ago.
    let is_used = |mac: u64| mac.is_multiple_of(3);
    let slots_used: HashSet<u32> =
        (1..=300).filter(|mac| is_used(*mac)).flat_map(|mac| r.credits(mac)).collect();
    let slots = |slot| if slots_used.contains(&slot) { used(2_000) } else { used(0) };
    for n in 0..200 {
        let invented = r.learn(1 << 32 | n, 102);
        r.control.apply_with(&[invented], 100_000 + n, &slots);
    }
    let left = r.behind(101);
    assert_eq!(left.len(), 200);
    let lost = (1..=300).filter(|mac| is_used(*mac) && !left.contains(mac)).count();
    assert_eq!(lost, 0, "of 100");
}

#[test]
fn where_all_addresses_are_in_use_one_gives_way_after_few_looks() {
    let mut r = rig_with_uplink();
    let (of_gateway, looks) = (r.credits(GATEWAY), Cell::new(0));
    for n in 0..5 * SIZE {
        let now_ms = 2_000 + n;
        let slots = |slot| {
            looks.set(looks.get() + 1);
            used(if of_gateway.contains(&slot) { now_ms } else { now_ms - 1 })
        };
        let invented = r.learn(1 << 32 | n, 102 + (n % 2) as u32);
        r.control.apply_with(&[invented], now_ms, &slots);
        assert_eq!(r.to(GATEWAY), [out(1)], "it is the one used last, after {n}");
    }
    let stats = r.control.fdb_stats(r.br);
    assert_eq!((stats.current, stats.evicted), (SIZE as usize, 300 + 4 * SIZE));
    assert!(looks.get() <= 16 * stats.evicted, "{} looks for {}", looks.get(), stats.evicted);
}

//! NORMAL: learning, VLANs, addresses that an operator gave.

use crate::rig::*;

#[test]
fn normal_learns_floods_and_forwards() {
    let mut r = rig();
    r.add(0, 0, Match::any(), vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }]);
    let mut there = packet(101);
    there.set(FieldId::EthSrc, 0xaa);
    there.set(FieldId::EthDst, 0xbb);
    let t = r.translate(&there);
    assert_eq!(t.actions, [out(2), out(3), out(4)]);
    assert_eq!(t.effects, [Effect::Learn { bridge: r.br, vlan: 0, mac: 0xaa, port: PortNo(101) }]);
    let seen = r.switch.version();
    r.control.apply(&t.effects, 0);
    let mut back = packet(103);
    back.set(FieldId::EthSrc, 0xbb);
    back.set(FieldId::EthDst, 0xaa);
    let u = r.translate(&back);
    assert_eq!(u.actions, [out(1)]);
    r.control.apply(&u.effects, 0);
    // The flooding flow looked for an address that is known now.
    let view = FlowView { key: &there, mask: &t.mask, visits: &t.visits, rewrites: &t.rewrites };
    assert!(r.switch.touched(view, seen, r.switch.version(), &r.reader));
    assert_eq!(r.actions(&there), [out(3)]);
    assert!(r.translate(&there).effects.is_empty());
    // It moves.
    let mut moved = back.clone();
    moved.set(FieldId::DpPort, 104);
    let t = r.translate(&moved);
    r.control.apply(&t.effects, 0);
    assert_eq!(r.actions(&there), [out(4)]);
    assert_eq!(r.control.fdb_stats(r.br).moved, 1);
    // It ages.
    r.control.expire(299_900, &|_| SlotStats::default());
    assert_eq!(r.actions(&there), [out(4)]);
    r.control.expire(300_100, &|_| SlotStats::default());
    assert_eq!(r.actions(&there), [out(2), out(3), out(4)]);
}

#[test]
fn an_address_that_was_given_to_a_port_stays_there_until_it_is_taken_back() {
    let mut r = rig();
    r.add(0, 0, Match::any(), vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }]);
    let mut there = packet(101);
    there.set(FieldId::EthSrc, 0xaa);
    there.set(FieldId::EthDst, 0xbb);
    let t = r.translate(&there);
    let (seen, none) = (r.switch.version(), |_: u32| SlotStats::default());
    assert_eq!(r.control.fdb_add(r.br, 0, 0xbb, PortNo(103), 0), Ok(None));
    let view = FlowView { key: &there, mask: &t.mask, visits: &t.visits, rewrites: &t.rewrites };
    assert!(r.switch.touched(view, seen, r.switch.version(), &r.reader), "a cached flow floods");
    assert_eq!(r.actions(&there), [out(3)]);
    // Seen elsewhere, long unseen, or one too many: it stays.
    let learn = |mac, port| Effect::Learn { bridge: r.br, vlan: 0, mac, port: PortNo(port) };
    let (moved, one, two) = (learn(0xbb, 104), learn(0xcc, 101), learn(0xdd, 102));
    let again = learn(0xdd, 102);
    r.control.apply(&[moved], 0);
    r.control.expire(1_000_000, &none);
    r.control.fdb_flush(r.br);
    let mut config = r.control.topology().bridge(r.br).unwrap().config.clone();
    config.mac_table_size = 2;
    r.control.set_bridge(r.br, config).unwrap();
    r.control.apply(&[one, two], 0);
    assert_eq!(r.actions(&there), [out(3)]);
    let stats = r.control.fdb_stats(r.br);
    assert_eq!((stats.current, stats.statics, stats.moved, stats.evicted), (2, 1, 0, 1));
    assert_eq!(stats.moves_refused, 1);
    let shown = r.control.fdb_show(r.br, 5_000, &none);
    assert_eq!(
        shown.iter().map(|e| (e.mac, e.age_ms)).collect::<Vec<_>>(),
        [(0xbb, None), (0xdd, Some(5_000))]
    );
    // The operator moves it, and takes it back.
    let replaced = |port, is_static| Ok(Some(Replaced { port: PortNo(port), is_static }));
    assert_eq!(r.control.fdb_add(r.br, 0, 0xbb, PortNo(104), 0), replaced(103, true));
    assert_eq!(r.control.fdb_add(r.br, 0, 0xbb, PortNo(104), 0), Ok(None), "nothing changes");
    assert_eq!(r.control.fdb_add(r.br, 0, 0xdd, PortNo(104), 0), replaced(102, false), "it was learned");
    assert!(r.control.fdb_del(r.br, 0, 0xdd));
    r.control.apply(&[again], 0);
    assert_eq!(r.actions(&there), [out(4)]);
    assert!(r.control.fdb_add(r.br, 0, 0xbb, PortNo(999), 0).is_err());
    assert!(!r.control.fdb_del(r.br, 0, 0xdd), "that one was learned");
    assert!(r.control.fdb_del(r.br, 0, 0xbb));
    assert_eq!(r.actions(&there), [out(2), out(3), out(4)]);
    r.control.fdb_clear_stats(r.br);
    assert_eq!(r.control.fdb_stats(r.br).learned, 0);
}

#[test]
fn new_ageing_times_and_table_sizes_hold_at_once() {
    let mut r = rig();
    let none = |_: u32| SlotStats::default();
    let bridge = r.br;
    let learn = |mac: u64| Effect::Learn { bridge, vlan: 0, mac, port: PortNo(101 + (mac % 4) as u32) };
    let effects: Vec<Effect> = (0..100).map(learn).collect();
    r.control.apply(&effects, 10_000);
    let set = |r: &mut Rig, aging_s: u32, size: usize| {
        let mut config = r.control.topology().bridge(r.br).unwrap().config.clone();
        (config.mac_aging_s, config.mac_table_size) = (aging_s, size);
        r.control.set_bridge(r.br, config).unwrap();
    };
    assert_eq!(r.control.next_deadline_ms(), Some(310_000));
    set(&mut r, 300, 10);
    let stats = r.control.fdb_stats(r.br);
    assert_eq!((stats.current, stats.evicted), (10, 90));
    r.control.apply(&[learn(1_000)], 20_000);
    let known = |r: &Rig| r.control.fdb_show(r.br, 20_000, &none).iter().map(|e| e.mac).collect::<Vec<_>>();
    assert_eq!(known(&r).len(), 10);
    assert!(known(&r).contains(&1_000), "the newcomer has a place");
    set(&mut r, 15, 10);
    assert_eq!(r.control.next_deadline_ms(), Some(25_000));
    r.control.expire(24_999, &none);
    assert_eq!(known(&r).len(), 10);
    r.control.expire(25_000, &none);
    assert_eq!(known(&r), [1_000]);
    // Longer again, before the last one's time has come.
    set(&mut r, 60, 10);
    r.control.expire(79_999, &none);
    assert_eq!(known(&r), [1_000]);
    let seen = |_: u32| SlotStats { last_used_ms: 70_000, ..SlotStats::default() };
    r.control.expire(80_000, &seen);
    assert_eq!(r.control.next_deadline_ms(), Some(130_000));
    r.control.expire(130_000, &none);
    assert_eq!(known(&r), [0; 0], "nobody has said since that it was used");
}

#[test]
fn vlan_modes_tag_and_untag() {
    let mut r = rig();
    r.add(0, 0, Match::any(), vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }]);
    let spec = |n: u16, mode, tag| PortSpec {
        vlan: VlanConfig { mode, tag, ..VlanConfig::default() },
        ..PortSpec::new(PortNo(100 + u32::from(n)), OfPort(n), &format!("p{n}"))
    };
    r.control.modify_port(spec(1, VlanMode::Access, 10)).unwrap();
    r.control.modify_port(spec(3, VlanMode::NativeUntagged, 10)).unwrap();
    r.control.modify_port(spec(4, VlanMode::Access, 20)).unwrap();
    let push = DpAction::PushVlan { tpid: 0x8100, tci: 0x100a };
    assert_eq!(r.actions(&packet(101)), [push, out(2), DpAction::PopVlan, out(3)]);
    // From the trunk, tagged 10.
    let mut tagged = packet(102);
    tagged.set(FieldId::VlanTci, 0x100a);
    tagged.set(FieldId::VlanTpid, 0x8100);
    assert_eq!(r.actions(&tagged), [DpAction::PopVlan, out(1), out(3)]);
    // An access port takes no tag.
    tagged.set(FieldId::DpPort, 101);
    assert_eq!(r.actions(&tagged), [DpAction::Drop(DropReason::VlanViolation)]);
    // A tunnel puts its own tag around.
    r.control.modify_port(spec(1, VlanMode::Dot1qTunnel, 30)).unwrap();
    let actions = r.actions(&tagged);
    assert_eq!(actions[..2], [DpAction::PushVlan { tpid: 0x88a8, tci: 0x101e }, out(2)]);
}

/// Addresses that make more than one turn.
const MANY: u64 = 2_500;

/// A rig whose bridge has learned many addresses behind port 103, and one behind port 104.
fn with_many() -> Rig {
    let mut r = rig();
    let mut config = r.control.topology().bridge(r.br).unwrap().config.clone();
    config.mac_table_size = 10_000;
    r.control.set_bridge(r.br, config).unwrap();
    r.add(0, 0, Match::any(), vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }]);
    let learn = |mac, port| Effect::Learn { bridge: r.br, vlan: 0, mac, port: PortNo(port) };
    let mut effects: Vec<Effect> = (1..=MANY).map(|mac| learn(mac, 103)).collect();
    effects.push(learn(0xbbbb, 104));
    r.control.apply(&effects, 0);
    r
}

fn to(mac: u64) -> Key {
    let mut key = packet(101);
    key.set(FieldId::EthDst, mac.into());
    key
}

/// How many addresses the bridge knows after each turn, until nothing changes.
fn counts(r: &mut Rig) -> Vec<usize> {
    let mut counts = vec![r.control.fdb_stats(r.br).current];
    while r.control.is_forgetting(r.br) {
        assert_eq!(r.control.collect(), Left::More);
        counts.push(r.control.fdb_stats(r.br).current);
    }
    counts
}

#[test]
fn the_addresses_behind_a_port_that_goes_are_forgotten_in_turns_and_lead_nowhere_meanwhile() {
    let mut r = with_many();
    assert_eq!(r.actions(&to(MANY)), [out(3)]);
    r.control.remove_port(PortNo(103)).unwrap();
    assert_eq!(r.actions(&to(1)), [out(2), out(4)]);
    assert_eq!(r.actions(&to(MANY)), [out(2), out(4)]);
    assert!(r.control.is_remembered(PortNo(103)) && !r.control.is_remembered(PortNo(104)));
    // One that is seen elsewhere meanwhile stays.
    let moved = Effect::Learn { bridge: r.br, vlan: 0, mac: MANY, port: PortNo(102) };
    r.control.apply(&[moved], 0);
    // Few go at once even so.
    r.control.remove_port(PortNo(104)).unwrap();
    assert!(!r.control.is_remembered(PortNo(104)));
    assert!(r.control.is_remembered(PortNo(103)));
    assert_eq!(counts(&mut r).last(), Some(&1));
    assert!(!r.control.is_remembered(PortNo(103)));
    assert_eq!(r.actions(&to(MANY)), [out(2)]);
}

#[test]
fn addresses_that_age_together_go_in_turns() {
    let mut r = with_many();
    let none = |_: u32| SlotStats::default();
    let mut counts = Vec::new();
    while r.control.expire(300_100, &none) {
        counts.push(r.control.fdb_stats(r.br).current);
    }
    assert_eq!(counts, [MANY as usize + 1 - 1_000, MANY as usize + 1 - 2_000]);
    assert_eq!(r.control.fdb_stats(r.br).current, 0);
}

#[test]
fn changed_settings_let_addresses_go_in_turns() {
    for change in [
        |config: &mut BridgeConfig| config.mac_table_size = 10,
        |config: &mut BridgeConfig| config.flood_vlans = [7].into_iter().collect(),
    ] {
        let mut r = with_many();
        let mut config = r.control.topology().bridge(r.br).unwrap().config.clone();
        change(&mut config);
        let size = config.mac_table_size;
        r.control.set_bridge(r.br, config).unwrap();
        // A newcomer has a place even so, and does not hold up everybody.
        let newcomer = Effect::Learn { bridge: r.br, vlan: 0, mac: 0xcccc, port: PortNo(102) };
        r.control.apply(&[newcomer], 1_000);
        let counts = counts(&mut r);
        assert!(counts.len() > 2 && counts[0] > 1_000, "{counts:?}");
        assert_eq!(*counts.last().unwrap(), if size == 10 { 10 } else { 1 });
        assert_eq!(r.actions(&to(0xcccc)), [out(2)]);
    }
    let mut r = with_many();
    let vlan = VlanConfig { mode: VlanMode::Access, tag: 5, ..VlanConfig::default() };
    r.control.modify_port(PortSpec { vlan, ..PortSpec::new(PortNo(103), OfPort(3), "p3") }).unwrap();
    let counts = counts(&mut r);
    assert!(counts.len() > 2 && counts[0] > 1_000, "{counts:?}");
    assert_eq!(counts.last(), Some(&1), "the one behind the other port");
}

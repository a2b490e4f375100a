//! Rules that make much of one packet: what a flow of theirs takes is bounded, in memory and in time.

use base::{DropReason, PortNo};
use datapath::{CacheConfig, Config};
use flow::action::SubField;
use flow::{Action, FieldId, Match, Mf};
use oracle::home::{bridge_of, numbered_frame, output};
use oracle::rig::{Rig, pool_is_whole};
use packet::BURST;
use switch::Switch;
use switch::control::FlowMod;

fn config() -> Config {
    let cache = CacheConfig { flow_limit: 1024, max_idle_ms: 60_000 };
    Config { cache, hash_seed: Some(1), ..Config::default() }
}

fn again(table: u8) -> Action {
    Action::Resubmit { in_port: None, table: Some(table), ct: false }
}

fn reg(n: u8) -> SubField {
    SubField { field: Mf::Reg(n), offset: 0, count: 32 }
}

fn load(n: u8) -> Action {
    Action::Load { target: reg(n), value: 1, as_set_field: false }
}

/// IP packets from ports 1 and 3 go to port 2, after so many lookups with many rewritten words.
fn rewriting(lookups: usize) -> Rig<Switch> {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let mut rule = |table_id, matching, actions| {
        control.flow_mod(bridge, &FlowMod { table_id, ..FlowMod::add(matching, actions) }, 0).unwrap();
    };
    let source = SubField { field: Mf::NwSrc, offset: 0, count: 32 };
    let mut list = vec![Action::Move { source, target: reg(0) }];
    list.extend((1..16).map(load));
    list.extend(vec![again(2); lookups.div_ceil(1_000)]);
    list.push(output(2));
    rule(0, Match::any().with(FieldId::EthType, 0x800), list);
    rule(2, Match::any(), [load(15), again(1)].into_iter().cycle().take(2 * lookups.min(1_000)).collect());
    rule(1, Match::any(), vec![]);
    Rig::new(switch, domain, config(), &[1, 2, 3].map(PortNo))
}

/// Packets from so many sources come in at a port, so many at once, and all go out of port 2. How many
/// megaflows there are then, and the bytes of the caches.
fn cached(rig: &mut Rig<Switch>, port: u32, sources: usize, at_once: usize) -> (u64, u64) {
    for first in (0..sources).step_by(at_once) {
        let frame = |n: usize| numbered_frame((first + n) as u64, u64::from(port), 0);
        rig.receive(PortNo(port), (0..at_once).map(frame).collect());
        let sent = rig.links[&PortNo(2)].take_sent();
        assert!(sent == (0..at_once).map(frame).collect::<Vec<_>>(), "{} were sent", sent.len());
    }
    // The gauges follow within a tenth of a second.
    let end = rig.dp.now_ms() + 250;
    while rig.dp.now_ms() < end {
        rig.worker.turn();
    }
    let stats = rig.dp.worker_stats(0);
    (stats.megaflows.get(), stats.cache_bytes.get())
}

#[test]
fn large_flows_take_bounded_memory_and_those_of_one_port_leave_room_for_those_of_another() {
    // 16 KiB for each flow that there may be.
    let bound = 16 << 20;
    let mut rig = rewriting(100);
    let (none, before) = cached(&mut rig, 2, 0, 1);
    let (first, bytes) = cached(&mut rig, 1, 1_024, BURST);
    assert!(none == 0 && (100..900).contains(&first), "{first} megaflows");
    assert!((bound / 3..bound).contains(&(bytes - before)), "{bytes} bytes");
    let (second, bytes) = cached(&mut rig, 3, 1_024, BURST);
    assert!(second > first + first / 3, "{second} megaflows after {first}");
    assert!(bytes - before < bound, "{bytes} bytes");
    rig.end().unwrap();
    pool_is_whole().unwrap();
}

#[test]
fn a_flow_that_takes_too_much_alone_is_not_cached() {
    let mut rig = rewriting(4_000);
    let (flows, bytes) = cached(&mut rig, 1, BURST, 1);
    assert!(flows == 0 && bytes < 1 << 20, "{flows} megaflows, {bytes} bytes");
    assert_eq!(rig.dp.worker_stats(0).not_cached.get(), BURST as u64);
    rig.end().unwrap();
    pool_is_whole().unwrap();
}

#[test]
fn a_burst_whose_packets_take_long_takes_a_bounded_time() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let mut rule = |table_id, matching, actions| {
        control.flow_mod(bridge, &FlowMod { table_id, ..FlowMod::add(matching, actions) }, 0).unwrap();
    };
    let source = SubField { field: Mf::NwSrc, offset: 0, count: 32 };
    let mut list = vec![Action::Move { source, target: reg(0) }];
    list.extend(vec![again(1); 4_000]);
    list.push(output(2));
    rule(0, Match::any().with(FieldId::InPort, 1).with(FieldId::EthType, 0x800), list);
    rule(0, Match::any().with(FieldId::InPort, 3), vec![output(2)]);
    // Each lookup tries all of these masks, which no packet matches.
    for n in 1..=500 {
        let mask = 1 << 40 | n;
        rule(1, Match::any().with_masked(FieldId::EthSrc, mask, mask), vec![]);
    }
    let mut rig = Rig::new(switch, domain, config(), &[1, 2, 3].map(PortNo));
    for round in 1..=2 {
        rig.receive(PortNo(1), (0..BURST as u64).map(|n| numbered_frame(n, 0, 0)).collect());
        // One packet is translated as far as it may take, and the others of the burst are not.
        let others = BURST as u64 - 1;
        let drops = [(DropReason::ResubmitLimit, round), (DropReason::TranslationTime, round * others)];
        assert_eq!(rig.drops(), drops);
        rig.receive(PortNo(3), (0..BURST as u64).map(|n| numbered_frame(n, 0, 0)).collect());
        assert_eq!(rig.links[&PortNo(2)].take_sent().len(), BURST);
    }
    let counters = &rig.dp.port_counters(PortNo(1))[0];
    assert_eq!(counters.drops.get(DropReason::TranslationTime), 2 * (BURST as u64 - 1));
    rig.end().unwrap();
    pool_is_whole().unwrap();
}

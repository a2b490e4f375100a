//! Rules whose actions nest as deep as translation lets them, on half of a worker's stack.

use datapath::{Config, WORKER_STACK_BYTES};
use flow::action::{Ct, CtZone, SubField};
use flow::{Action, FieldId, Match, Mf};
use openflow::message::{Band, BandType, MeterCommand, MeterConfig, MeterFlags, MeterMod};
use oracle::home::{Home, output};
use switch::control::FlowMod;

/// What leaves ports 2 and 3 of a burst into port 1, by these rules: table, match and actions.
fn sent(rules: Vec<(u8, Match, Vec<Action>)>) -> [u64; 2] {
    let run = move || {
        let mut home = Home::new(Config { hash_seed: Some(1), ..Config::default() });
        let band = Band { kind: BandType::Drop, rate: 1_000_000, burst_size: 0 };
        let meter = MeterConfig { meter_id: 1, flags: MeterFlags::PKTPS, bands: vec![band] };
        let meter_mod = MeterMod { command: MeterCommand::Add, meter };
        home.control.meter_mod(home.bridge, &meter_mod, 0).expect("a meter");
        for (table_id, matching, actions) in rules {
            let rule = FlowMod { table_id, ..FlowMod::add(matching, actions) };
            home.control.flow_mod(home.bridge, &rule, 0).expect("a rule");
        }
        home.flood(1, 1);
        home.settle();
        [1, 2].map(|n: usize| home.floods[n].sent())
    };
    let thread = std::thread::Builder::new().stack_size(WORKER_STACK_BYTES / 2);
    thread.spawn(run).expect("a thread").join().expect("no panic")
}

fn resubmit(table: u8) -> Action {
    Action::Resubmit { in_port: None, table: Some(table), ct: false }
}

const BURST: u64 = packet::BURST as u64;

fn ip() -> Match {
    Match::any().with(FieldId::EthType, 0x800)
}

fn track() -> Action {
    track_and(true)
}

fn track_and(commit: bool) -> Action {
    let zone = CtZone::Is(1);
    Action::Ct(Box::new(Ct { commit, force: false, zone, table: None, alg: 0, actions: vec![] }))
}

#[test]
fn copies_within_copies_that_cannot_be_undone() {
    // Tracking cannot be undone, and what is around the copy uses the packet afterwards. Each copy makes two
    // levels: its own, and that of its rest after tracking.
    let target = SubField { field: Mf::Reg(0), offset: 0, count: 32 };
    let copied = |inner: Vec<Action>| vec![Action::Clone([vec![track()], inner].concat()), output(3)];
    let hops = |hops: u64, copies: usize| {
        let rules = (0..=hops).map(|n| {
            let next = Action::Load { target, value: n + 1, as_set_field: false };
            let inner = if n == hops { vec![output(2)] } else { vec![next, resubmit(0)] };
            (0, ip().with(FieldId::Reg0, n.into()), (0..copies).fold(inner, |inner, _| copied(inner)))
        });
        sent(rules.collect())
    };
    assert_eq!(hops(3, 2), [BURST, 8 * BURST]);
    assert_eq!(hops(63, 1), [BURST, 64 * BURST], "128 levels");
    assert_eq!(hops(63, 2), [0, 0], "256 levels");
}

#[test]
fn tracking_again_and_again() {
    let times = |n| sent(vec![(0, ip(), [vec![track(); n], vec![output(2)]].concat())]);
    assert_eq!(times(128), [BURST, 0]);
    assert_eq!(times(129), [0, 0]);
    // A list that outputs nothing is executed up to its last meter.
    let metered = vec![(0, ip(), [vec![track_and(false); 2_000], vec![Action::Meter(1)]].concat())];
    assert_eq!(sent(metered), [0, 0]);
}

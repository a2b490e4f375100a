//! What a queue is charged for: by that, queues are served and placed.

use crate::threads::{links, wait_sent};
use base::PortNo;
use base::rcu::Domain;
use datapath::{Config, Datapath};
use flow::{FieldId, Match};
use oracle::home::{bridge_of, output, udp_frame};
use oracle::port::Link;
use oracle::rig::{Rig, pool};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::Switch;
use switch::control::FlowMod;
use testkit::lab::wait_for;

/// Packets of port 1 go to port 3, those of port 2 to port 4.
fn from_two_to_two() -> (Arc<Domain>, Arc<Switch>) {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    for (from, to) in [(1, 3), (2, 4)] {
        let at = Match::any().with(FieldId::InPort, from);
        control.flow_mod(bridge, &FlowMod::add(at, vec![output(to)]), 0).unwrap();
    }
    (domain, switch)
}

#[test]
fn what_sending_costs_is_charged_to_the_queue_that_the_packets_came_from() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.start_worker(None).unwrap();
    let links = links(&mut dp, &[1, 2, 3]);
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(2)]), 0).unwrap();
    let cost = base::clock::tsc_hz() / 10_000;
    links[1].set_flush_cycles(cost);
    for _ in 0..50 {
        links[0].receive(vec![udp_frame(); 8]);
        wait_sent(&links[1..2], 8);
    }
    let charged = || dp.rx_loads(PortNo(1))[0].cycles.get();
    let end = Instant::now() + Duration::from_secs(10);
    while charged() < 50 * cost {
        assert!(Instant::now() < end, "{} cycles of {} are charged", charged(), 50 * cost);
        std::thread::yield_now();
    }
    assert_eq!(dp.rx_loads(PortNo(3))[0].cycles.get(), 0);
}

#[test]
fn a_queue_is_charged_for_sending_what_came_from_it() {
    // Long bursts are charged for what they cost, shorter ones for their share of what waits when the pass
    // ends.
    for (dear, cheap) in [(32, 32), (24, 1)] {
        let (domain, switch) = from_two_to_two();
        let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
        dp.start_worker(None).unwrap();
        let links = [3, 4, 1, 2].map(|no| Link::of_device(PortNo(no)));
        links[0].set_transmit_cycles(2_000_000);
        const BURSTS: usize = 1_000;
        for _ in 0..BURSTS {
            links[2].receive(vec![udp_frame(); dear]);
            links[3].receive(vec![udp_frame(); cheap]);
        }
        for (no, link) in [3, 4, 1, 2].into_iter().zip(&links) {
            dp.add_port(PortNo(no), link.port()).unwrap();
        }
        wait_for("the cheap queue's packets to be sent", || links[3].is_received());
        let bursts = links[0].take_sent().len() / dear;
        assert!((1..BURSTS / 2).contains(&bursts), "{bursts} bursts of {dear}, {BURSTS} of {cheap}");
    }
}

#[test]
fn a_long_burst_sends_shorter_ones_off_at_their_own_queues_expense() {
    const DEAR: u64 = 2_000_000;
    let (domain, switch) = from_two_to_two();
    let ports = [1, 2, 3, 4].map(PortNo);
    let mut rig = Rig::with_links(switch, domain, Config::default(), &ports, Link::of_device);
    rig.links[&PortNo(3)].set_transmit_cycles(DEAR);
    let load = |rig: &Rig<switch::Switch>, no| rig.dp.rx_loads(PortNo(no))[0].cycles.get();
    let mut turn = |bursts: [usize; 2]| {
        let before = [1, 2].map(|no| load(&rig, no));
        for (no, packets) in [1, 2].into_iter().zip(bursts) {
            if packets > 0 {
                rig.links[&PortNo(no)].receive(vec![udp_frame(); packets]);
            }
        }
        rig.worker.turn();
        [load(&rig, 1) - before[0], load(&rig, 2) - before[1]]
    };
    // The first one is polled first from the second turn on.
    turn([24, 0]);
    turn([0, 32]);
    // A queue that has cost much waits until others have had as much. The least of some turns, since a thread
    // that loses its processor in a burst is charged for that too.
    let turns = std::iter::repeat_with(|| turn([24, 32])).filter(|[dear, _]| *dear > 0).take(5);
    let [dear, cheap] = turns.min_by_key(|[_, cheap]| *cheap).unwrap();
    assert!(dear >= DEAR && cheap < DEAR / 2, "{dear} {cheap}");
}

#[test]
fn a_queue_all_of_whose_packets_are_refused_is_charged_for_that_and_waits_for_others() {
    const DEAR: u64 = 2_000_000;
    const BURSTS: usize = 100;
    let (domain, switch) = from_two_to_two();
    let ports = [1, 2, 3, 4].map(PortNo);
    let mut rig = Rig::with_links(switch, domain, Config::default(), &ports, Link::of_device);
    rig.links[&PortNo(1)].set_refuse_cycles(DEAR);
    let neighbour = &rig.links[&PortNo(2)];
    for _ in 0..BURSTS {
        neighbour.receive(vec![udp_frame(); 32]);
    }
    let end = Instant::now() + Duration::from_secs(10);
    while !neighbour.is_received() {
        assert!(Instant::now() < end, "the neighbour waits for ever");
        rig.worker.turn();
    }
    // The neighbour costs more than usual where the thread loses its processor: as much is the other's share.
    let [refused, neighbour] = [1, 2].map(|no| rig.dp.rx_loads(PortNo(no))[0].cycles.get());
    assert!((DEAR..2 * (neighbour + DEAR)).contains(&refused), "{refused} cycles, its neighbour {neighbour}");
}

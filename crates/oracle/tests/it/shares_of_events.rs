//! Several workers have more packets for controllers than the control thread takes at a time: it takes some
//! from each, so none waits until the others have nothing left.

use base::PortNo;
use datapath::{Config, Datapath, Event, SteppedWorker};
use flow::Match;
use oracle::flood::Flood;
use oracle::home::{bridge_of, output, udp_frame};
use oracle::rig::pool;
use std::collections::BTreeSet;
use switch::Switch;
use switch::control::FlowMod;

const CONTROLLER: u16 = 0xfffd;

#[test]
fn events_are_taken_from_all_workers() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(CONTROLLER)]), 0).unwrap();
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.reserve_slots(64);
    let mut workers: Vec<SteppedWorker<Switch>> = (0..3).map(|_| dp.stepped_worker().unwrap()).collect();
    // A queue goes to the worker that has the fewest.
    let floods = [1, 2, 3].map(PortNo).map(|no| {
        let (flood, port) = Flood::new(no, udp_frame(), 1);
        dp.add_port(no, port).unwrap();
        flood.set_bursts(20);
        flood
    });
    while floods.iter().any(|flood| flood.bursts_left() > 0) {
        workers.iter_mut().for_each(|worker| _ = worker.turn());
    }
    let events = dp.events(30);
    let from: Vec<PortNo> = events
        .into_iter()
        .map(|event| {
            let Event::PacketIn(packet_in) = event else { panic!("nothing else happens") };
            let port = packet_in.packet.in_port;
            dp.free(packet_in.packet);
            port
        })
        .collect();
    assert!(dp.has_events() && from.len() <= 30, "{}", from.len());
    assert_eq!(BTreeSet::from_iter(from).len(), 3);
    while dp.has_events() {
        for event in dp.events(usize::MAX) {
            let Event::PacketIn(packet_in) = event else { panic!("nothing else happens") };
            dp.free(packet_in.packet);
        }
    }
}

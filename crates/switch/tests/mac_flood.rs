//! Hosts that make up addresses without end.

use base::hash::HashKey;
use base::rcu::Domain;
use base::{OfPort, PortNo};
use switch::control::Left;
use switch::{BridgeConfig, Control, Effect, PortSpec};
use testkit::alloc::{Counting, live_bytes};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn memory_stays_flat_however_many_addresses_are_learned() {
    const PORTS: u32 = 200;
    let (_, mut control) = Control::new(Domain::new(), HashKey::from_seed(5));
    let bridge = control.add_bridge(BridgeConfig::new("br0"));
    for n in 1..=PORTS {
        control.add_port(bridge, PortSpec::new(PortNo(n), OfPort(n as u16), "p")).unwrap();
    }
    let batches = u64::from(testkit::cases("switch::mac_flood_batches", 500));
    let mut address = 0;
    // What the control thread does: addresses as they come, and some ten times a second the rest.
    let mut flood = |control: &mut Control, batches: u64| {
        for batch in 0..batches {
            let effects: Vec<Effect> = (0..4_096)
                .map(|_| {
                    address += 1;
                    let port = PortNo(1 + (address % u64::from(PORTS)) as u32);
                    Effect::Learn { bridge, vlan: 0, mac: address, port }
                })
                .collect();
            control.apply(&effects, 1_000 + batch);
            control.tick(1_000 + batch);
            while control.collect() == Left::More {}
            let slots = control.take_retired_slots();
            control.recycle_slots(slots);
        }
    };
    flood(&mut control, 50);
    let before = live_bytes();
    flood(&mut control, batches);
    let grown = live_bytes() - before;
    println!("{grown} bytes more after {} addresses", batches * 4_096);
    assert!(grown < 1 << 20, "{grown} bytes more after {} addresses", batches * 4_096);
    assert_eq!(control.fdb_stats(bridge).current, 8_192);
}

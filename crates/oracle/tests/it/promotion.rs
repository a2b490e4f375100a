//! The exact tier, and ports whose packets are nearly all the only ones of their flow.

use base::PortNo;
use datapath::{Config, ExactTier};
use flow::{FieldId, Match};
use oracle::home::{bridge_of, numbered_frame, output};
use oracle::rig::{Rig, pool_is_whole};
use std::time::{Duration, Instant};
use switch::control::FlowMod;

#[test]
fn sparse_flows_leave_the_exact_tier_to_others_and_one_of_many_packets_among_them_has_its_entry() {
    const PACKETS: u64 = 64_000;
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let config = Config { exact_tier: ExactTier::On, hash_seed: Some(3), ..Config::default() };
    let mut rig = Rig::new(switch, domain, config, &[1, 2, 3].map(PortNo));
    // By the first rule, addresses are read. All packets share the second one's megaflow.
    let other = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwSrc, 0xf000_0001);
    for fm in [
        FlowMod { priority: 2, ..FlowMod::add(other, vec![output(2)]) },
        FlowMod { priority: 1, ..FlowMod::add(Match::any(), vec![output(3)]) },
    ] {
        control.flow_mod(bridge, &fm, 0).unwrap();
    }
    let burst = |first: u64| (first..first + 32).map(|n| numbered_frame(n, n, 0)).collect::<Vec<_>>();
    for first in (0..PACKETS).step_by(32) {
        rig.receive(PortNo(1), burst(first));
        assert_eq!(rig.take_sent()[&PortNo(3)].len(), 32);
    }
    // The worker tells how many entries there are from time to time.
    let end = Instant::now() + Duration::from_secs(10);
    let entries = |rig: &Rig<switch::Switch>| rig.dp.worker_stats(0).exact_entries.get();
    while entries(&rig) < PACKETS / 16 && Instant::now() < end {
        rig.worker.turn();
    }
    assert!((PACKETS / 16..PACKETS / 3).contains(&entries(&rig)), "{} entries", entries(&rig));
    let mut hits = |bursts| {
        let before = rig.dp.worker_stats(0).exact_hits.get();
        for _ in 0..bursts {
            rig.receive(PortNo(1), vec![numbered_frame(PACKETS, PACKETS, 0); 32]);
            assert_eq!(rig.take_sent()[&PortNo(3)].len(), 32);
        }
        rig.dp.worker_stats(0).exact_hits.get() - before
    };
    // One burst in 16, by chance, of which the first makes the entry.
    let first = hits(640);
    assert!((15 * 32..70 * 32).contains(&first), "{first} hits");
    hits(12_000);
    assert_eq!(hits(10), 320, "the port's flows are sparse no more");
    rig.end().unwrap();
    pool_is_whole().unwrap();
}

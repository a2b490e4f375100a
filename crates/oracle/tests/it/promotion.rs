//! The exact tier, and ports whose packets are nearly all the only ones of their flow.

use base::PortNo;
use datapath::{Config, ExactTier};
use flow::{FieldId, Match};
use oracle::home::{bridge_of, numbered_frame, output};
use oracle::rig::{Rig, pool_is_whole};
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
    rig.worker.turn();
    let stats = rig.dp.worker_stats(0);
    let (entries, hits) = (stats.exact_entries.get(), stats.exact_hits.get());
    assert!((PACKETS / 16..PACKETS / 3).contains(&entries), "{entries} entries of {PACKETS} flows");
    assert_eq!(hits, 0);
    for _ in 0..40 {
        rig.receive(PortNo(1), vec![numbered_frame(PACKETS, PACKETS, 0); 32]);
        assert_eq!(rig.take_sent()[&PortNo(3)].len(), 32);
    }
    let hits = rig.dp.worker_stats(0).exact_hits.get();
    assert!(hits >= 32, "{hits} hits");
    rig.end().unwrap();
    pool_is_whole().unwrap();
}

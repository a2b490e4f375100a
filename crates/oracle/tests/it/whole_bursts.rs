//! Bursts of which all packets go to one port leave as a whole, others do not, and the vector instructions of
//! some processors change nothing.

use base::PortNo;
use datapath::{Config, ExactTier};
use flow::{FieldId, Match};
use oracle::home::{bridge_of, numbered_frame, output};
use oracle::rig::{Rig, pool_is_whole};
use packet::BURST;
use switch::control::FlowMod;

/// Flows to port 2, and after them one to port 3.
const FLOWS: u64 = 7;

#[test]
fn each_packet_of_a_burst_leaves_in_order_to_its_port_whatever_the_processor_has() {
    for is_baseline in [false, true] {
        let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
        let config =
            Config { exact_tier: ExactTier::On, hash_seed: Some(3), is_baseline, ..Config::default() };
        let mut rig = Rig::new(switch, domain, config, &[1, 2, 3].map(PortNo));
        let stray =
            Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwSrc, (0x0b00_0000 + FLOWS).into());
        for fm in [
            FlowMod { priority: 2, ..FlowMod::add(stray, vec![output(3)]) },
            FlowMod { priority: 1, ..FlowMod::add(Match::any(), vec![output(2)]) },
        ] {
            control.flow_mod(bridge, &fm, 0).unwrap();
        }
        // Each flow has its entry before the first packet that counts.
        (0..4).for_each(|_| rig.receive(PortNo(1), (0..=FLOWS).map(|n| numbered_frame(n, 0, 0)).collect()));
        rig.take_sent();
        let hits_before = rig.dp.worker_stats(0).exact_hits.get();
        let mut number = 0;
        for len in [BURST, 5, BURST, BURST - 1, 1, BURST] {
            for stray_at in [None, Some(0), Some(len / 2), Some(len - 1)] {
                let frames = Vec::from_iter((0..len).map(|n| {
                    number += 1;
                    numbered_frame(if Some(n) == stray_at { FLOWS } else { number % FLOWS }, 0, number)
                }));
                rig.receive(PortNo(1), frames.clone());
                let sent = rig.take_sent();
                let (strays, others): (Vec<_>, Vec<_>) =
                    frames.into_iter().enumerate().partition(|(n, _)| Some(*n) == stray_at);
                let bytes =
                    |frames: Vec<(usize, Vec<u8>)>| Vec::from_iter(frames.into_iter().map(|(_, f)| f));
                assert_eq!(sent[&PortNo(2)], bytes(others), "{len} with a stray at {stray_at:?}");
                assert_eq!(sent[&PortNo(3)], bytes(strays), "{len} with a stray at {stray_at:?}");
            }
        }
        assert_eq!(rig.dp.worker_stats(0).exact_hits.get() - hits_before, number, "all hit the exact tier");
        rig.end().unwrap();
        pool_is_whole().unwrap();
    }
}

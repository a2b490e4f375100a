//! Packets that go round again (behind an MPLS label lies what only a second look can read) are forwarded and
//! counted through the caches as without them, while the rules of either round change.

use base::PortNo;
use datapath::{Config, ExactTier};
use flow::action::SubField;
use flow::{Action, FieldId, Match, Mf};
use oracle::common::chance::Chance;
use oracle::home::{bridge_of, output, udp_frame};
use oracle::pipelines::Mistake;
use oracle::rig::{Pair, Rig, pool_is_whole};
use switch::control::FlowMod;

/// An IPv4 packet behind a label, numbered.
fn labelled(label: u32, destination: u32, number: u64) -> Vec<u8> {
    let plain = udp_frame();
    let mut frame = plain[..12].to_vec();
    frame.extend([0x88, 0x47]);
    frame.extend((label << 12 | 1 << 8 | 64).to_be_bytes());
    frame.extend(&plain[14..]);
    frame[34..38].copy_from_slice(&destination.to_be_bytes());
    let end = frame.len() - 8;
    frame[end..].copy_from_slice(&number.to_be_bytes());
    frame
}

fn run(seed: u64, mistake: Mistake) -> Result<u64, String> {
    let chance = &mut Chance::new(seed);
    let ports = [1, 2, 3, 4].map(PortNo);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    let exact_tier = *chance.pick(&[ExactTier::On, ExactTier::Off]);
    let config =
        Config { hash_seed: Some(seed), is_baseline: seed % 2 == 1, exact_tier, ..Config::default() };
    let mut pair = Pair::new(&switch, mistake, &domain, config, &ports);
    let mut number = 0;
    for round in 0..12 {
        for _ in 0..2 {
            let label = 16 + chance.below(3) as u128;
            let mpls = Match::any().with(FieldId::EthType, 0x8847).with_masked(
                FieldId::Mpls0,
                label << 12,
                0xfffff000,
            );
            let remember = Action::Load {
                target: SubField { field: Mf::Reg(1), offset: 0, count: 8 },
                value: chance.below(3),
                as_set_field: false,
            };
            let on = Action::Resubmit { in_port: None, table: Some(1), ct: false };
            let actions = vec![remember, Action::PopMpls(0x800), on];
            let first = FlowMod { priority: chance.below(2) as i32, ..FlowMod::add(mpls, actions) };
            let prefix = u128::from(u32::MAX << chance.below(4));
            let inner = Match::any()
                .with(FieldId::EthType, 0x800)
                .with_masked(FieldId::NwDst, 0x0a00_0000 + u128::from(chance.below(8)), prefix)
                .with(FieldId::Reg1, chance.below(3).into());
            let port = output(2 + chance.below(3) as u16);
            let second = FlowMod {
                table_id: 1,
                priority: chance.next() as u16 as i32,
                ..FlowMod::add(inner, vec![port])
            };
            for fm in [first, second] {
                control.flow_mod(bridge, &fm, 0).map_err(|e| format!("{e:?}"))?;
            }
        }
        for _ in 0..3 {
            let burst: Vec<Vec<u8>> = (0..chance.below(packet::BURST as u64) + 1)
                .map(|_| {
                    number += 1;
                    labelled(16 + chance.below(4) as u32, 0x0a00_0000 + chance.below(8) as u32, number)
                })
                .collect();
            pair.receive(PortNo(1), burst);
            pair.same_fates().map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
        }
        control.tick(0);
    }
    pair.same_counts(control.slot_count()).map_err(|e| format!("seed {seed}: {e}"))?;
    let rounds = pair.cached.dp.worker_stats(0).recirculations.get();
    pair.end()?;
    Ok(rounds)
}

#[test]
fn caches_forward_what_goes_round_again_as_translation_does() {
    let mut rounds = 0;
    for seed in 0..u64::from(testkit::cases("oracle::recirculated", 60)) {
        rounds += run(seed, Mistake::None).unwrap_or_else(|e| panic!("{e}"));
    }
    pool_is_whole().unwrap();
    assert!(rounds > 10_000, "only {rounds} rounds");
}

#[test]
fn a_stale_version_of_what_goes_round_again_is_found() {
    assert!((0..60).any(|seed| run(seed, Mistake::StaleVersion).is_err()));
}

/// What goes with a packet beside its bytes is its own, also where its flow was first told of another packet.
#[test]
fn a_packet_in_has_the_mark_of_its_own_packet() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2]);
    let mut rig = Rig::new(switch, domain, Config::default(), &[1, 2].map(PortNo));
    let bits = |field, count| SubField { field, offset: 0, count };
    let remember = Action::Move { source: bits(Mf::MplsLabel, 20), target: bits(Mf::PktMark, 20) };
    let on = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    let mpls = Match::any().with(FieldId::EthType, 0x8847);
    let first = FlowMod::add(mpls, vec![remember, Action::PopMpls(0x800), on]);
    let inner = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwDst, 0x0a00_0001);
    let tell = Action::Output { port: base::OfPort::CONTROLLER, max_len: 128 };
    let second = FlowMod { table_id: 1, ..FlowMod::add(inner, vec![tell]) };
    for fm in [first, second] {
        control.flow_mod(bridge, &fm, 0).unwrap();
    }
    for number in 0..3 {
        let labels = 16 + 4 * number..20 + 4 * number;
        rig.receive(PortNo(1), labels.clone().map(|l| labelled(l, 0x0a00_0001, l.into())).collect());
        let marks: Vec<u32> = rig.events().1.iter().map(|told| told.pkt_mark).collect();
        assert_eq!(marks, labels.collect::<Vec<u32>>());
    }
    rig.end().unwrap();
    pool_is_whole().unwrap();
}

/// Packets whose bytes are the same when they go round again are told apart by what goes with them, in the
/// caches too.
#[test]
fn packets_that_differ_in_their_mark_alone_go_their_own_ways() {
    for exact_tier in [ExactTier::On, ExactTier::Off] {
        let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
        let config = Config { exact_tier, ..Config::default() };
        let mut rig = Rig::new(switch, domain, config, &[1, 2, 3].map(PortNo));
        let bits = |field, count| SubField { field, offset: 0, count };
        let remember = Action::Move { source: bits(Mf::MplsLabel, 20), target: bits(Mf::PktMark, 20) };
        let on = Action::Resubmit { in_port: None, table: Some(1), ct: false };
        let mpls = Match::any().with(FieldId::EthType, 0x8847);
        let first = FlowMod::add(mpls, vec![remember, Action::PopMpls(0x800), on]);
        let marked = |mark: u128, port| {
            let inner = Match::any().with(FieldId::PktMark, mark);
            FlowMod { table_id: 1, ..FlowMod::add(inner, vec![output(port)]) }
        };
        for fm in [first, marked(16, 2), marked(17, 3)] {
            control.flow_mod(bridge, &fm, 0).unwrap();
        }
        for _ in 0..4 {
            let burst = [16, 17, 17, 16, 18].map(|label| labelled(label, 0x0a00_0001, 7)).to_vec();
            rig.receive(PortNo(1), burst);
            let sent = rig.take_sent();
            assert_eq!([2, 3].map(|port| sent[&PortNo(port)].len()), [2, 2], "{exact_tier:?}");
        }
        let hits = rig.dp.worker_stats(0).exact_hits.get();
        assert_eq!(hits > 0, exact_tier == ExactTier::On);
        rig.end().unwrap();
    }
    pool_is_whole().unwrap();
}

/// Who makes each packet's mark another has them looked up by their whole keys, and costs nobody else a flow.
#[test]
fn a_port_whose_packets_all_differ_in_their_mark_degrades_alone() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let config = Config { exact_tier: ExactTier::On, ..Config::default() };
    let mut rig = Rig::new(switch, domain, config, &[1, 2, 3].map(PortNo));
    let bits = |field, count| SubField { field, offset: 0, count };
    let remember = Action::Move { source: bits(Mf::MplsLabel, 20), target: bits(Mf::PktMark, 20) };
    let on = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    let mpls = Match::any().with(FieldId::EthType, 0x8847);
    let first = FlowMod::add(mpls, vec![remember, Action::PopMpls(0x800), on]);
    let second = FlowMod { table_id: 1, ..FlowMod::add(Match::any(), vec![output(3)]) };
    let straight = FlowMod::add(Match::any().with(FieldId::InPort, 2), vec![output(3)]);
    for fm in [first, second, straight] {
        control.flow_mod(bridge, &fm, 0).unwrap();
    }
    // Translated, found among the megaflows, found in the exact tier.
    for _ in 0..3 {
        for start in (0..1024).step_by(32) {
            rig.receive(PortNo(1), (start..start + 32).map(|l| labelled(16 + l, 0x0a00_0001, 7)).collect());
        }
        assert_eq!(rig.take_sent()[&PortNo(3)].len(), 1024);
    }
    let stats = rig.dp.worker_stats(0);
    let beyond = stats.origins_full.get();
    assert!((3 * (1024 - 256)..3 * 1024).contains(&beyond), "{beyond} packets were looked up by whole keys");
    assert!(stats.exact_hits.get() >= 3 * 1024 - 1, "they are found so: {}", stats.exact_hits.get());
    rig.receive(PortNo(2), vec![udp_frame(); 32]);
    rig.receive(PortNo(2), vec![udp_frame(); 32]);
    assert_eq!(rig.dp.worker_stats(0).origins_full.get(), beyond);
    rig.end().unwrap();
    pool_is_whole().unwrap();
}

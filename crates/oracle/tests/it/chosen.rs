//! Packets that a select group spreads go to the same buckets through the caches as without them, by the
//! datapath's hash in another round or by fields of the packet, while groups and rules change.

use base::PortNo;
use datapath::{Config, ExactTier};
use flow::{Action, FieldId, Match, Mf};
use openflow::message::{BUCKET_ALL, Bucket, GroupCommand, GroupDesc, GroupMod, GroupSelection, GroupType};
use oracle::common::chance::Chance;
use oracle::home::{bridge_of, numbered_frame, output};
use oracle::pipelines::Mistake;
use oracle::rig::{Pair, pool_is_whole};
use std::collections::BTreeSet;
use switch::control::FlowMod;

const GROUPS: u64 = 2;

/// How the groups of a run choose.
#[derive(Clone, Copy, PartialEq, Debug)]
enum By {
    /// The datapath's hash.
    DpHash,
    /// Some fields.
    Fields,
}

/// What a run covered.
#[derive(Default, Debug)]
struct Coverage {
    rounds: u64,
    hits: u64,
    touched: u64,
    /// Ports that packets were sent to.
    ports: BTreeSet<PortNo>,
}

/// A group whose buckets lead to different ports.
fn group(group_id: u32, by: By, chance: &mut Chance) -> GroupDesc {
    let first = chance.below(3) as u16;
    let bucket = |id: u16, weight| Bucket {
        id: id.into(),
        weight,
        actions: vec![output(2 + (first + id) % 3)],
        ..Bucket::default()
    };
    let buckets = (0..chance.below(3) as u16 + 1).map(|id| bucket(id, *chance.pick(&[1, 1, 2, 7]))).collect();
    let selection = match by {
        By::DpHash => GroupSelection::default(),
        By::Fields => GroupSelection {
            method: "hash".to_string(),
            fields: [(Mf::NwSrc, Mf::NwSrc.ones()), (Mf::NwDst, chance.below(8).into())].into(),
            ..GroupSelection::default()
        },
    };
    GroupDesc { group_id, kind: GroupType::Select, buckets, selection }
}

fn run(seed: u64, by: By, mistake: Mistake) -> Result<Coverage, String> {
    let chance = &mut Chance::new(seed);
    let ports = [1, 2, 3, 4].map(PortNo);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    let exact_tier = *chance.pick(&[ExactTier::On, ExactTier::Off]);
    let config = Config { hash_seed: Some(seed), exact_tier, ..Config::default() };
    let mut pair = Pair::new(&switch, mistake, &domain, config, &ports);
    let (mut number, mut covered) = (0, Coverage::default());
    for round in 0..12 {
        for id in 1..=GROUPS as u32 {
            if round > 0 && chance.one_in(2) {
                continue;
            }
            let command = if round == 0 { GroupCommand::Add } else { GroupCommand::Modify };
            let change = GroupMod { command, command_bucket_id: BUCKET_ALL, group: group(id, by, chance) };
            control.group_mod(bridge, &change, 0).expect("a group");
        }
        let prefix = u128::from(u32::MAX << chance.below(4));
        let to_group = Match::any().with(FieldId::EthType, 0x800).with_masked(
            FieldId::NwDst,
            0x0a00_0000 + u128::from(chance.below(8)),
            prefix,
        );
        let actions = vec![Action::Group(chance.below(GROUPS) as u32 + 1)];
        // Of rules that overlap at one priority, either may be used.
        let rule = FlowMod { priority: chance.next() as u16 as i32, ..FlowMod::add(to_group, actions) };
        control.flow_mod(bridge, &rule, 0).expect("a rule");
        for _ in 0..4 {
            let mut burst = vec![];
            for _ in 0..chance.below(packet::BURST as u64) + 1 {
                number += 1;
                burst.push(numbered_frame(chance.below(24), chance.below(8), number));
            }
            pair.receive(PortNo(1), burst);
            let sent = pair.same_fates().map_err(|e| format!("seed {seed}, {by:?}, round {round}: {e}"))?;
            let used = sent.iter().filter(|(_, frames)| !frames.is_empty());
            covered.ports.extend(used.map(|(port, _)| *port));
        }
        control.tick(0);
    }
    pair.same_counts(control.slot_count()).map_err(|e| format!("seed {seed}, {by:?}: {e}"))?;
    let stats = pair.cached.dp.worker_stats(0);
    covered.rounds = stats.recirculations.get();
    covered.hits = stats.exact_hits.get() + stats.megaflow_hits.get();
    covered.touched = stats.touched.get();
    pair.end()?;
    Ok(covered)
}

#[test]
fn caches_spread_packets_over_buckets_as_translation_does() {
    for by in [By::DpHash, By::Fields] {
        let mut all = Coverage::default();
        for seed in 0..u64::from(testkit::cases("oracle::chosen", 40)) {
            let covered = run(seed, by, Mistake::None).unwrap_or_else(|e| panic!("{e}"));
            all.rounds += covered.rounds;
            all.hits += covered.hits;
            all.touched += covered.touched;
            all.ports.extend(covered.ports);
        }
        assert_eq!(all.ports, [2, 3, 4].map(PortNo).into(), "{by:?}: {all:?}");
        assert!(all.hits > 10_000 && all.touched > 100, "{by:?}: {all:?}");
        assert_eq!(all.rounds > 10_000, by == By::DpHash, "{by:?}: {all:?}");
    }
    pool_is_whole().unwrap();
}

fn must_be_found(by: By, mistake: Mistake) {
    let is_found = (0..40).any(|seed| run(seed, by, mistake).is_err());
    assert!(is_found, "{mistake:?} was not found in 40 runs by {by:?}");
}

#[test]
fn a_hash_that_a_flow_forgot_is_found() {
    must_be_found(By::DpHash, Mistake::HashForgotten);
}

#[test]
fn a_lost_bit_of_the_fields_that_a_group_hashes_is_found() {
    must_be_found(By::Fields, Mistake::MaskBitLost);
}

#[test]
fn a_changed_group_that_a_flow_forgot_is_found() {
    must_be_found(By::DpHash, Mistake::GroupForgotten);
    must_be_found(By::Fields, Mistake::GroupForgotten);
}

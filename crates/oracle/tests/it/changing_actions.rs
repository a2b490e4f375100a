//! One rule for thousands of flows, whose actions change between ones that read other bits of the packet: the
//! caches then hold flows of former actions under many masks, and one packet may find an outdated one under
//! each.

use base::PortNo;
use datapath::{CacheConfig, Config, ExactTier};
use flow::action::SubField;
use flow::{Action, FieldId, Match, Mf};
use oracle::common::chance::Chance;
use oracle::home::{bridge_of, numbered_frame, output};
use oracle::pipelines::Mistake;
use oracle::rig::{Pair, pool_is_whole};
use switch::control::FlowMod;

const SOURCES: u64 = 8;

/// Copies the last `count` bits of an address into a MAC address.
fn copy_bits(from: Mf, to: Mf, count: u16) -> Action {
    let bits = |field| SubField { field, offset: 0, count };
    Action::Move { source: bits(from), target: bits(to) }
}

/// The rule's actions, which read so many bits of the source and of the destination.
fn actions(source_bits: u16, destination_bits: u16, port: u16) -> Vec<Action> {
    let mut actions = vec![];
    if source_bits > 0 {
        actions.push(copy_bits(Mf::NwSrc, Mf::EthSrc, source_bits));
    }
    if destination_bits > 0 {
        actions.push(copy_bits(Mf::NwDst, Mf::EthDst, destination_bits));
    }
    actions.push(output(port));
    actions
}

/// What a run covered.
#[derive(Default, Debug)]
struct Coverage {
    /// Flows found out of date.
    touched: u64,
    /// The most of them in one burst.
    touched_at_once: u64,
}

/// Through caches and without: `kinds` are the bits that the rule's actions read of source and destination,
/// in turn. The first of a turn sees most flows, the others each destination a few times.
fn run(
    seed: u64,
    mistake: Mistake,
    exact_tier: ExactTier,
    destinations: u64,
    kinds: &[(u16, u16)],
) -> Result<Coverage, String> {
    let chance = &mut Chance::new(seed);
    let ports = [1, 2, 3, 4].map(PortNo);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    let cache = CacheConfig { flow_limit: 1 << 16, ..CacheConfig::default() };
    let config = Config { cache, hash_seed: Some(seed), exact_tier, ..Config::default() };
    let mut pair = Pair::new(&switch, mistake, &domain, config, &ports);
    let (mut number, mut covered) = (0, Coverage::default());
    for change in 0..2 * kinds.len() {
        let (source_bits, destination_bits) = kinds[change % kinds.len()];
        let udp = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwProto, 17);
        let port = 2 + chance.below(3) as u16;
        let rule = FlowMod::add(udp, actions(source_bits, destination_bits, port));
        control.flow_mod(bridge, &rule, 0).map_err(|e| format!("{e:?}"))?;
        for _ in 0..if change % kinds.len() == 0 { destinations } else { destinations / 8 } {
            let mut burst = vec![];
            let repeats = chance.below(3) + 1;
            while burst.len() < packet::BURST {
                let (source, destination) = (chance.below(SOURCES), chance.below(destinations));
                for _ in 0..repeats {
                    number += 1;
                    burst.push(numbered_frame(source, destination, number));
                }
            }
            burst.truncate(packet::BURST);
            pair.receive(PortNo(1), burst);
            let touched = pair.cached.dp.worker_stats(0).touched.get();
            covered.touched_at_once = covered.touched_at_once.max(touched - covered.touched);
            covered.touched = touched;
            pair.same_fates().map_err(|e| format!("seed {seed}, change {change}: {e}"))?;
        }
        control.tick(0);
    }
    pair.same_counts(control.slot_count()).map_err(|e| format!("seed {seed}: {e}"))?;
    pair.end()?;
    Ok(covered)
}

const TIERS: [ExactTier; 2] = [ExactTier::On, ExactTier::Off];

/// One packet may find an outdated flow under every mask, so a burst finds more of them than it has packets.
#[test]
fn actions_that_read_now_the_source_now_the_destination_leave_the_worker_alive() {
    for tier in TIERS {
        let covered = run(1, Mistake::None, tier, 512, &[(32, 32), (0, 32), (32, 0)]).unwrap();
        assert!(covered.touched_at_once > packet::BURST as u64, "{tier:?}: {covered:?}");
    }
    pool_is_whole().unwrap();
}

/// Other masks with every change, more than a port may have.
fn many_masks(seed: u64) -> Vec<(u16, u16)> {
    let chance = &mut Chance::new(seed);
    (0..chance.below(36) + 4).map(|_| (chance.below(25) as u16, chance.below(25) as u16)).collect()
}

#[test]
fn flows_of_former_actions_under_many_masks_are_judged_and_counted_right() {
    let mut touched = 0;
    for seed in 0..u64::from(testkit::cases("oracle::changing_actions", 12)) {
        let tier = TIERS[seed as usize % TIERS.len()];
        let covered =
            run(seed, Mistake::None, tier, 256, &many_masks(seed)).unwrap_or_else(|e| panic!("{e}"));
        touched += covered.touched;
    }
    pool_is_whole().unwrap();
    assert!(touched > 10_000, "only {touched} outdated flows were met");
}

#[test]
fn a_stale_version_under_many_masks_is_found() {
    assert!(
        (0..12).any(|seed| {
            run(seed, Mistake::StaleVersion, ExactTier::Off, 256, &many_masks(seed)).is_err()
        })
    );
}

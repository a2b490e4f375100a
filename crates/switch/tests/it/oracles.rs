//! The oracles: translation agrees with a plain model, a flow's mask is not too wide, a change that matters
//! is never overlooked; and each of them finds a mistake that is put in on purpose.

use crate::common::chance::Chance;
use crate::common::execute::{execute, execute_at, length};
use crate::common::meters::Rates;
use crate::common::model::Fate;
use crate::common::packets::{HEADER, draw_near, is_possible, random_packet};
use crate::common::world::World;
use base::Version;
use datapath::pipeline::FlowView;
use datapath::watch::{Marks, Sort, SortTables, Watch, tables_of};
use datapath::{Pipeline, Translation};
use flow::{FieldId, Key, Mask};
use switch::Effect;
use switch::changelog::word_table;

/// A mistake put in on purpose.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mistake {
    None,
    /// One bit of the mask is lost.
    MaskBitLost,
    /// A flow of an older version is taken for one of the newest.
    StaleVersion,
    /// A change is judged on the packet at hand.
    JudgedOnPacket,
    /// What was rewritten before a lookup is forgotten.
    RewritesForgotten,
    /// That a flow went through a group is forgotten.
    GroupForgotten,
    /// That a flow's packets are metered is forgotten.
    MeterForgotten,
    /// The clock of meters stands still.
    MetersWithoutClock,
    /// What a conjunction was met by is taken for what no conjunction concerns.
    ConjIdHeld,
    /// The changes of a bundle are made one by one, up to one that is refused.
    BundleTorn,
    /// All flows of a sort are taken for one when changes are watched.
    MarksMixedUp,
}

/// A flow as a worker caches it.
struct Flow {
    key: Key,
    translation: Translation<Effect>,
    version: Version,
    set: u8,
    marks: Marks,
}

/// What a worker watches, by sort of flows.
#[derive(Default)]
struct Watches {
    sorts: Vec<(Mask, SortTables, Watch)>,
    /// Flows found untouched at a glance.
    glances: usize,
}

impl Watches {
    /// The place of the flow's sort, if it is of one.
    fn place(&mut self, flow: &Flow) -> Option<usize> {
        let (mask, tables) = (&flow.translation.mask, tables_of(&flow.translation.visits)?);
        let known = self.sorts.iter().position(|(m, t, _)| m == mask && *t == tables);
        Some(known.unwrap_or_else(|| {
            self.sorts.push((mask.clone(), tables, Watch::default()));
            self.sorts.len() - 1
        }))
    }

    fn is_untouched(&mut self, world: &World, flow: &Flow, now: Version) -> bool {
        let Some(place) = self.place(flow) else { return false };
        let (mask, tables, watch) = &mut self.sorts[place];
        let sight = world.switch.sight(Sort { mask, tables }, watch, now, &world.reader);
        let untouched = sight.is_untouched(flow.version, flow.set, &flow.marks);
        self.glances += usize::from(untouched);
        untouched
    }

    fn mark(&mut self, world: &World, flow: &mut Flow, mistake: Mistake) {
        let Some(place) = self.place(flow) else { return };
        let (mask, _, watch) = &self.sorts[place];
        let t = &flow.translation;
        let view = FlowView { key: &flow.key, mask, visits: &t.visits, rewrites: &t.rewrites };
        flow.set = watch.set;
        if mistake != Mistake::MarksMixedUp {
            flow.marks = world.switch.marks(watch, view, &world.reader);
        }
    }
}

/// One world, some packets and some changes. An error says what disagreed; else how many flows were judged at
/// a glance.
fn check(seed: u64, mistake: Mistake) -> Result<usize, String> {
    let chance = &mut Chance::new(seed);
    let mut world = World::new(chance, Rates::Tight);
    world.are_bundles_torn = mistake == Mistake::BundleTorn;
    let mut flows: Vec<Flow> = vec![];
    let mut watches = Watches::default();
    for round in 0..12 {
        for _ in 0..6 {
            let key = world.packet(chance);
            let translation = check_packet(&world, &key, chance, mistake)?;
            if !translation.uncacheable {
                let version = world.version();
                let translation = translation.clone();
                flows.push(Flow { key, translation, version, set: 0, marks: Marks::default() });
            }
            // Not always at once: effects wait in a ring.
            if chance.one_in(2) {
                world.learn(&translation.effects);
            }
        }
        check_meters(&mut world, chance, mistake).map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
        for _ in 0..chance.below(3) + 1 {
            world.change(chance);
        }
        check_flows(&world, &mut flows, &mut watches, chance, mistake)
            .map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
    }
    Ok(watches.glances)
}

/// Oracles (a) and (b) for one packet.
fn check_packet(
    world: &World,
    key: &Key,
    chance: &mut Chance,
    mistake: Mistake,
) -> Result<Translation<Effect>, String> {
    let mut translation = world.translate(key);
    let expected = world.model.fate(key, length(key));
    let found = Fate { seen: execute(key, &translation.actions), learned: learned(&translation) };
    if found != expected {
        return Err(format!(
            "{key:?}\n gives {:?}\n that is {found:?}\n but the model says {expected:?}\n in {}",
            translation.actions,
            world.model.describe()
        ));
    }
    let depth = world.switch.port_view(base::PortNo(key.get64(FieldId::DpPort) as u32)).get().1;
    if switch::shape::depth_of(&translation.mask) > depth {
        return Err(format!("{:?} is deeper than {depth:?}", translation.mask));
    }
    if mistake == Mistake::MaskBitLost {
        lose_a_bit(&mut translation.mask, chance);
    }
    for other in others_of_the_flow(world, key, &translation.mask, chance) {
        let again = world.translate(&other);
        if !same(&other, &again, &translation) {
            return Err(format!(
                "{key:?}\nand {other:?}\n agree under {:?}\n but give {:?}\n and {:?}",
                translation.mask, translation.actions, again.actions
            ));
        }
    }
    Ok(translation)
}

/// Packets at times, judged by meters on their way.
fn check_meters(world: &mut World, chance: &mut Chance, mistake: Mistake) -> Result<(), String> {
    for _ in 0..6 {
        let key = world.metered_packet(chance);
        let before = world.clocked.clone();
        let Some(expected) = world.model.fate_now(&key, length(&key), &mut world.clocked) else {
            world.clocked = before;
            continue;
        };
        let translation = world.translate(&key);
        let now_ns = if mistake == Mistake::MetersWithoutClock { 0 } else { world.clocked.now_ns };
        let seen = execute_at(&key, &translation.actions, now_ns);
        if seen != expected.seen {
            return Err(format!(
                "{key:?}\n gives {:?}\n that is {seen:?}\n but the model says {:?}\n with {before:?}\n in {}",
                translation.actions,
                expected.seen,
                world.model.describe()
            ));
        }
        world.clocked.check_counts().map_err(|e| {
            format!("{key:?} gives {:?}: {e} in {}", translation.actions, world.model.describe())
        })?;
    }
    Ok(())
}

/// What a packet teaches. That a translation failed is no part of its fate: the packet that came is in it.
fn learned(translation: &Translation<Effect>) -> Vec<Effect> {
    translation.effects.iter().filter(|e| !matches!(e, Effect::Failed(_))).cloned().collect()
}

/// Whether a flow with `cached` does to this packet what it ought to. Not by the lists of actions: one may
/// set what the other knows to be there.
fn same(packet: &Key, fresh: &Translation<Effect>, cached: &Translation<Effect>) -> bool {
    execute(packet, &fresh.actions) == execute(packet, &cached.actions)
        && learned(fresh) == learned(cached)
        && fresh.credits == cached.credits
}

fn lose_a_bit(mask: &mut Mask, chance: &mut Chance) {
    let held: Vec<FieldId> = HEADER[1..].iter().copied().filter(|f| mask.get(*f) != 0).collect();
    if !held.is_empty() {
        let field = *chance.pick(&held);
        let bits: Vec<u32> = (0..128).filter(|b| mask.get(field) >> b & 1 != 0).collect();
        let lost = 1 << *chance.pick(&bits);
        mask.set(field, mask.get(field) & !lost);
    }
}

/// Packets that agree with `key` under `mask`: one bit flipped, and all other bits those of another packet.
fn others_of_the_flow(world: &World, key: &Key, mask: &Mask, chance: &mut Chance) -> Vec<Key> {
    let mut others = vec![];
    for &f in HEADER {
        let free = f.ones() & !mask.get(f);
        let bits: Vec<u32> = (0..48).filter(|b| free >> b & 1 != 0).collect();
        for _ in 0..bits.len().min(2) {
            let mut other = key.clone();
            other.set(f, key.get(f) ^ 1 << *chance.pick(&bits));
            others.push(other);
        }
    }
    for _ in 0..6 {
        let mut like = random_packet(chance, 0);
        if let (Some(near), true) = (world.changed.last(), chance.one_in(2)) {
            draw_near(&mut like, near);
        }
        let mut other = key.clone();
        for &f in HEADER {
            other.set_masked(f, like.get(f), !mask.get(f) & f.ones());
        }
        others.push(other);
    }
    others.retain(is_possible);
    others
}

/// Oracle (c): what has not been touched still holds, for every packet of the flow.
fn check_flows(
    world: &World,
    flows: &mut Vec<Flow>,
    watches: &mut Watches,
    chance: &mut Chance,
    mistake: Mistake,
) -> Result<(), String> {
    let now = world.version();
    for flow in &mut *flows {
        let mut numbered = flow.key.clone();
        world.number_port(&mut numbered);
        if numbered != flow.key {
            // Its port has another number, so its packets are of another flow.
            flow.translation = world.translate(&numbered);
            (flow.key, flow.version, flow.set) = (numbered, now, 0);
            continue;
        }
        let t = flow.translation.clone();
        let exact = {
            let mut all = t.mask.clone();
            HEADER.iter().for_each(|f| all.add_exact(*f));
            all
        };
        let packets = others_of_the_flow(world, &flow.key, &t.mask, chance);
        // The packet at hand may be any of the flow.
        let at_hand = packets.first().unwrap_or(&flow.key);
        let view = FlowView {
            key: at_hand,
            mask: if mistake == Mistake::JudgedOnPacket { &exact } else { &t.mask },
            visits: &t.visits,
            rewrites: &t.rewrites,
        };
        let mut visits = t.visits.clone();
        if mistake == Mistake::RewritesForgotten {
            visits.iter_mut().filter(|v| v.table < 1 << 31).for_each(|v| v.rewrites_len = 0);
        }
        if mistake == Mistake::GroupForgotten {
            visits.retain(|v| (0..2).all(|bridge| v.table != word_table::groups(bridge)));
        }
        if mistake == Mistake::MeterForgotten {
            visits.retain(|v| (0..2).all(|bridge| v.table != word_table::meters(bridge)));
        }
        let mut kept = t.mask.clone();
        kept.add_exact(FieldId::ConjId);
        let mask = if mistake == Mistake::ConjIdHeld { &kept } else { view.mask };
        let view = FlowView { visits: &visits, mask, ..view };
        // Other mistakes are made where flows are judged one by one.
        let glances = matches!(mistake, Mistake::None | Mistake::MarksMixedUp);
        let untouched = glances && watches.is_untouched(world, flow, now);
        let touched = !untouched
            && mistake != Mistake::StaleVersion
            && world.switch.touched(view, flow.version, now, &world.reader);
        if touched {
            flow.translation = world.translate(&flow.key);
            (flow.version, flow.set) = (now, 0);
            continue;
        }
        flow.version = now;
        if glances && !untouched {
            watches.mark(world, flow, mistake);
        }
        for packet in packets.iter().chain([&flow.key]) {
            let mut packet = packet.clone();
            // Extraction would give the number of today.
            world.number_port(&mut packet);
            let fresh = world.translate(&packet);
            if !same(&packet, &fresh, &flow.translation) {
                return Err(format!(
                    "{packet:?}\n gives {fresh:?}\n and was not touched: its flow has {:?}",
                    flow.translation
                ));
            }
        }
    }
    if flows.len() > 60 {
        flows.drain(..20);
    }
    Ok(())
}

#[test]
fn translation_agrees_with_the_model_and_its_flows_hold_until_they_are_touched() {
    // One world can be looked at alone.
    if let Ok(seed) = std::env::var("CROSSPOINT_ORACLE_SEED") {
        check(seed.parse().expect("a number"), Mistake::None).unwrap();
    }
    let seeds = u64::from(testkit::cases("switch::oracles", 600));
    let mut glances = 0;
    for seed in 0..seeds {
        match check(seed, Mistake::None) {
            Ok(some) => glances += some as u64,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(glances > seeds, "{glances} flows in {seeds} worlds were judged at a glance");
}

fn must_be_found(mistake: Mistake) {
    let found = (0..500).any(|seed| check(seed, mistake).is_err());
    assert!(found, "{mistake:?} was not found in 500 worlds");
}

#[test]
fn a_lost_bit_of_the_mask_is_found() {
    must_be_found(Mistake::MaskBitLost);
}

#[test]
fn a_stale_version_is_found() {
    must_be_found(Mistake::StaleVersion);
}

#[test]
fn a_change_judged_on_the_packet_is_found() {
    must_be_found(Mistake::JudgedOnPacket);
}

#[test]
fn a_forgotten_rewrite_is_found() {
    must_be_found(Mistake::RewritesForgotten);
}

#[test]
fn a_group_that_a_flow_forgot_is_found() {
    must_be_found(Mistake::GroupForgotten);
}

#[test]
fn a_changed_meter_that_a_flow_forgot_is_found() {
    must_be_found(Mistake::MeterForgotten);
}

#[test]
fn a_clock_of_meters_that_stands_still_is_found() {
    must_be_found(Mistake::MetersWithoutClock);
}

#[test]
fn a_bundle_that_is_done_in_part_is_found() {
    must_be_found(Mistake::BundleTorn);
}

#[test]
fn flows_mixed_up_when_changes_are_watched_are_found() {
    must_be_found(Mistake::MarksMixedUp);
}

/// That of a recirculated packet does, and one that is cached alone. It is no mistake.
#[test]
fn a_flow_that_holds_conj_id_is_judged_as_one_that_does_not() {
    for seed in 0..200 {
        check(seed, Mistake::ConjIdHeld).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

//! The comparison: one world, its packets in bursts, changes between them, and three switches that must
//! agree.
//!
//! The same bursts go through the worker with its caches, through a worker that translates every packet by
//! itself, and through the model. After each burst the same frames must have come out of each port, those of
//! one flow in order, the same packet-ins, the same drops by reason; and at the end the same counts must lie
//! in every rule's, table's and patch port's slot.
//!
//! Effects reach the control thread late or at once, as it happens in life.

use crate::common::chance::Chance;
use crate::common::meters::Rates;
use crate::common::model::{Packet, Seen};
use crate::common::packets::{HEADER, draw_near, is_possible};
use crate::common::world::World;
use crate::frames::{build, number_of};
use crate::pipelines::{Mistake, Mistaken, Uncached};
use crate::rig::{Rig, Told, pool, pool_is_whole};
use base::{DropReason, PortNo};
use datapath::{CacheConfig, Config, ExactTier, Pipeline};
use flow::{FieldId, Key};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use switch::Effect;

/// Ports of the worlds; 177 and 277 belong to no bridge.
const PORTS: [u32; 10] = [101, 102, 103, 104, 177, 201, 202, 203, 204, 277];
const ROUNDS: u32 = 10;
/// Longer than a bridge takes to read packets less deeply once that is no longer needed.
const NARROWING_MS: u64 = 20_000;

/// What a run covered, to see that it is worth something.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)] // Counters of these names are documented in `datapath::WorkerStats`.
pub struct Coverage {
    pub packets: u64,
    pub exact_hits: u64,
    pub megaflow_hits: u64,
    pub misses: u64,
    pub touched: u64,
    pub recirculations: u64,
    pub packet_ins: u64,
    pub depth_misses: u64,
    /// Times that the depth of extraction changed at some port between two bursts.
    pub depth_changes: u64,
    /// Frames whose tails were copied from where their sender had them; of them those that were changed on
    /// the way, those that left by several ports so, and those that do not fit a chunk of the pool.
    pub straight: u64,
    pub straight_changed: u64,
    pub straight_twice: u64,
    pub straight_long: u64,
}

impl std::ops::AddAssign for Coverage {
    fn add_assign(&mut self, other: Coverage) {
        self.packets += other.packets;
        self.exact_hits += other.exact_hits;
        self.megaflow_hits += other.megaflow_hits;
        self.misses += other.misses;
        self.touched += other.touched;
        self.recirculations += other.recirculations;
        self.packet_ins += other.packet_ins;
        self.depth_misses += other.depth_misses;
        self.depth_changes += other.depth_changes;
        self.straight += other.straight;
        self.straight_changed += other.straight_changed;
        self.straight_twice += other.straight_twice;
        self.straight_long += other.straight_long;
    }
}

/// One world. An error says what disagreed.
pub fn check(seed: u64, mistake: Mistake) -> Result<Coverage, String> {
    let chance = &mut Chance::new(seed);
    let mut trial = Trial::new(seed, mistake, chance);
    for round in 0..ROUNDS {
        let step = trial.round(chance);
        step.map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
    }
    let covered = trial.end().map_err(|e| format!("seed {seed}, at the end: {e}"))?;
    pool_is_whole().map_err(|e| format!("seed {seed}: {e}"))?;
    Ok(covered)
}

struct Trial {
    world: World,
    mistake: Mistake,
    cached: Rig<Mistaken>,
    plain: Rig<Uncached>,
    /// Of the last burst.
    keys: Vec<Key>,
    /// Packets that were sent, by their numbers.
    sent: Vec<Key>,
    /// Effects that the control thread has not seen yet, in the order in which the cached worker sent them.
    pending: Vec<Effect>,
    pending_plain: HashSet<Effect>,
    /// The last number of a flow that came out of a port.
    last: HashMap<(PortNo, Key), u64>,
    drops: [Vec<(DropReason, u64)>; 2],
    depths: Vec<flow::Depth>,
    covered: Coverage,
}

impl Trial {
    fn new(seed: u64, mistake: Mistake, chance: &mut Chance) -> Trial {
        let world = World::new(chance, Rates::Ample);
        let exact_tier = *chance.pick(&[ExactTier::On, ExactTier::Off]);
        // With 64 flows at most (the least there is), eviction is part of the run.
        let cache = CacheConfig { flow_limit: *chance.pick(&[64, 1024]), ..CacheConfig::default() };
        let config = Config {
            cache,
            hash_seed: Some(seed),
            is_baseline: seed % 2 == 1,
            exact_tier,
            ..Config::default()
        };
        let domain = world.switch.domain().clone();
        let ports = PORTS.map(PortNo);
        let mistaken = Mistaken::new(world.switch.clone(), mistake);
        let uncached = Arc::new(Uncached(world.switch.clone()));
        Trial {
            mistake,
            cached: Rig::new(mistaken, domain.clone(), config, &ports),
            plain: Rig::new(uncached, domain, config, &ports),
            world,
            keys: vec![],
            sent: vec![],
            pending: vec![],
            pending_plain: HashSet::new(),
            last: HashMap::new(),
            drops: [vec![], vec![]],
            depths: vec![],
            covered: Coverage::default(),
        }
    }

    fn round(&mut self, chance: &mut Chance) -> Result<(), String> {
        for _ in 0..3 {
            self.burst(chance)?;
            if chance.one_in(3) {
                self.learn()?;
            }
        }
        if chance.one_in(2) {
            self.counts()?;
        }
        for _ in 0..chance.below(3) + 1 {
            self.world.change(chance);
        }
        if chance.one_in(12) {
            // In so long a time every reader passes by, and what was removed is unlinked.
            for ms in [0, 1, NARROWING_MS] {
                self.world.now_ms += ms;
                self.world.control.tick(self.world.now_ms);
                self.world.reader.quiescent();
                self.cached.worker.turn();
                self.plain.worker.turn();
            }
        }
        if chance.one_in(20) {
            self.cached.dp.flush_flows();
        }
        for link in self.cached.links.values() {
            link.set_straight_max(if chance.one_in(4) { chance.below(8) as usize } else { usize::MAX });
        }
        Ok(())
    }

    /// One burst through all three.
    fn burst(&mut self, chance: &mut Chance) -> Result<(), String> {
        let depths: Vec<_> = PORTS.iter().map(|p| self.world.switch.port_view(PortNo(*p)).get().1).collect();
        self.covered.depth_changes += u64::from(!self.depths.is_empty() && depths != self.depths);
        self.depths = depths;

        let keys = self.keys(chance);
        let port = PortNo(keys[0].get64(FieldId::DpPort) as u32);
        let mut burst = vec![];
        let mut numbers = vec![];
        for _ in 0..chance.below(packet::BURST as u64) + 1 {
            if chance.one_in(40) {
                burst.push(vec![0; chance.below(14) as usize]);
                continue;
            }
            let key = chance.pick(&keys);
            let number = self.sent.len() as u64;
            burst.push(build(key, &Packet::of(key).tags, number));
            numbers.push(number);
            self.sent.push(key.clone());
        }
        self.covered.packets += burst.len() as u64;
        self.cached.receive(port, burst.clone());
        self.plain.receive(port, burst);
        self.compare(&numbers)
            .map_err(|e| format!("burst at port {port}: {e}\n in {}", self.world.model.describe()))
    }

    /// The packets of a burst: those of the last one again, or others, some of them known.
    fn keys(&mut self, chance: &mut Chance) -> Vec<Key> {
        if self.keys.is_empty() || chance.one_in(2) {
            let port = PortNo(self.world.packet(chance).get64(FieldId::DpPort) as u32);
            self.keys = (0..chance.below(14) + 1).map(|_| self.key_at(port, chance)).collect();
        }
        for key in &mut self.keys {
            self.world.number_port(key);
        }
        self.keys.clone()
    }

    /// A packet that may come in at the port: any, one that was sent before, or one like it.
    fn key_at(&self, port: PortNo, chance: &mut Chance) -> Key {
        let here = |k: &&Key| k.get64(FieldId::DpPort) == u64::from(port.0);
        let before: Vec<&Key> = self.sent.iter().rev().filter(here).take(64).collect();
        for _ in 0..20 {
            let mut key = match chance.below(4) {
                0 | 1 if !before.is_empty() => (*chance.pick(&before)).clone(),
                _ => self.world.packet(chance),
            };
            key.set(FieldId::DpPort, port.0.into());
            match chance.below(3) {
                0 => {
                    let f = *chance.pick(HEADER);
                    let bits: Vec<u32> = (0..48).filter(|b| f.ones() >> b & 1 != 0).collect();
                    key.set(f, key.get(f) ^ 1 << *chance.pick(&bits));
                }
                1 => {
                    if let Some(near) = self.world.changed.last() {
                        draw_near(&mut key, near);
                    }
                }
                _ => {}
            }
            self.world.number_port(&mut key);
            if is_possible(&key) && is_buildable(&key) {
                return key;
            }
        }
        let mut key = Key::default();
        key.set(FieldId::EthType, 0x88cc);
        key.set(FieldId::DpPort, port.0.into());
        self.world.number_port(&mut key);
        key
    }

    fn compare(&mut self, numbers: &[u64]) -> Result<(), String> {
        let (frames, wanted) = (self.cached.take_sent(), self.plain.take_sent());
        let (effects, found_told) = self.cached.events();
        let (plain_effects, wanted_told) = self.plain.events();
        self.pending.extend(effects);
        self.pending_plain.extend(plain_effects);
        let (mut modelled, mut modelled_told) = (BTreeMap::<PortNo, Vec<Vec<u8>>>::new(), vec![]);
        for &number in numbers {
            let key = &self.sent[number as usize];
            let length = build(key, &Packet::of(key).tags, number).len() as u16;
            for seen in self.world.model.fate(key, length).seen {
                match seen {
                    Seen::Sent(port, p) => {
                        modelled.entry(port).or_default().push(build(&p.key, &p.tags, number));
                    }
                    Seen::Told(reason, p) => modelled_told.push((reason, build(&p.key, &p.tags, number))),
                }
            }
        }
        for port in PORTS.map(PortNo) {
            let modelled = modelled.remove(&port).unwrap_or_default();
            let (found, wanted) = (sorted(&frames[&port]), sorted(&wanted[&port]));
            same(&format!("out of port {port}"), &found, &wanted)
                .and_then(|()| same(&format!("out of port {port}, by the model"), &found, &sorted(&modelled)))
                .map_err(|(number, text)| {
                    let key = &self.sent[number as usize];
                    format!("{text}\n of {key:?}\n by {:?}", self.world.translate(key))
                })?;
            self.in_order(port, &frames[&port])?;
        }
        let brief = |told: &[Told]| {
            let one = |t: &Told| {
                (t.frame.clone(), t.spec.reason as u8, t.spec.table_id, t.spec.cookie, t.spec.bridge)
            };
            let mut all: Vec<_> = told.iter().map(one).collect();
            all.sort();
            all
        };
        if brief(&found_told) != brief(&wanted_told) {
            return Err(format!("told {found_told:?}\n and uncached {wanted_told:?}"));
        }
        let mut found_told: Vec<_> =
            found_told.iter().map(|t| (t.spec.reason as u8, t.frame.clone())).collect();
        found_told.sort();
        modelled_told.sort();
        if found_told != modelled_told {
            return Err(format!("told {found_told:?}\n and by the model {modelled_told:?}"));
        }
        let shallow = self.cached.dp.worker_stats(0).depth_misses.get();
        if shallow > 0 && self.mistake == Mistake::None {
            let wrong = numbers.iter().map(|n| &self.sent[*n as usize]).find(|key| {
                let depth = self.world.switch.port_view(PortNo(key.get64(FieldId::DpPort) as u32)).get().1;
                switch::shape::depth_of(&self.world.translate(key).mask) > depth
            });
            return Err(format!(
                "{shallow} packets were not read deeply enough, one of them {wrong:?}: {:?}",
                wrong.map(|k| self.world.translate(k))
            ));
        }
        let drops = [self.cached.drops(), self.plain.drops()];
        if drops[0] != drops[1] {
            return Err(format!(
                "dropped {:?}\n and uncached {:?}, after {:?}",
                drops[0], drops[1], self.drops
            ));
        }
        self.drops = drops;
        self.cover_straight();
        Ok(())
    }

    fn cover_straight(&mut self) {
        let mut seen = HashSet::new();
        for frame in self.cached.links.values().flat_map(|link| link.take_straight()) {
            let number = number_of(&frame).expect("it was compared");
            let key = &self.sent[number as usize];
            let covered = &mut self.covered;
            covered.straight += 1;
            covered.straight_changed += u64::from(build(key, &Packet::of(key).tags, number) != frame);
            covered.straight_twice += u64::from(!seen.insert(number));
            covered.straight_long += u64::from(frame.len() > pool().config().chunk_bytes);
        }
    }

    /// Packets that are alike come out in the order in which they came in.
    fn in_order(&mut self, port: PortNo, frames: &[Vec<u8>]) -> Result<(), String> {
        for frame in frames {
            let number = number_of(frame).ok_or("a frame without its number")?;
            let flow = self.sent[number as usize].clone();
            let last = self.last.entry((port, flow)).or_insert(0);
            if *last > number {
                return Err(format!("packet {number} left port {port} after {last} of its flow"));
            }
            *last = number;
        }
        Ok(())
    }

    /// The control thread looks at the effects.
    fn learn(&mut self) -> Result<(), String> {
        let effects = std::mem::take(&mut self.pending);
        let found: HashSet<Effect> = effects.iter().cloned().collect();
        let wanted = std::mem::take(&mut self.pending_plain);
        if found != wanted {
            return Err(format!("learned {found:?}\n and uncached {wanted:?}"));
        }
        self.world.learn(&effects);
        Ok(())
    }

    /// Once folded, every slot counts the same.
    fn counts(&mut self) -> Result<(), String> {
        self.cached.settle();
        self.plain.settle();
        let differing: Vec<String> = (0..self.world.control.slot_count())
            .map(|slot| (slot, self.cached.dp.slot(slot), self.plain.dp.slot(slot)))
            .filter(|(_, found, wanted)| (found.packets, found.bytes) != (wanted.packets, wanted.bytes))
            .map(|(slot, found, wanted)| format!("\n slot {slot}: {found:?}, uncached {wanted:?}"))
            .collect();
        if !differing.is_empty() {
            return Err(format!("{}\n in {}", differing.concat(), self.world.model.describe()));
        }
        Ok(())
    }

    fn end(mut self) -> Result<Coverage, String> {
        self.counts()?;
        let s = self.cached.dp.worker_stats(0);
        let covered = Coverage {
            exact_hits: s.exact_hits.get(),
            megaflow_hits: s.megaflow_hits.get(),
            misses: s.misses.get(),
            touched: s.touched.get(),
            recirculations: s.recirculations.get(),
            packet_ins: s.packet_ins.get(),
            depth_misses: s.depth_misses.get(),
            ..self.covered
        };
        self.cached.end()?;
        self.plain.end()?;
        Ok(covered)
    }
}

/// Whether a frame can be made so that it is read as this key.
fn is_buildable(key: &Key) -> bool {
    // Below 0x600 lies LLC; addresses and fragments of types that we do not build are not read.
    matches!(key.get64(FieldId::EthType), 0x800 | 0x806 | 0x86dd | 0x88cc)
        && (key.get64(FieldId::EthType) != 0x806 || key.get64(FieldId::NwProto) < 256)
        && (key.get64(FieldId::TcpFlags) < 0x1000)
}

fn sorted(frames: &[Vec<u8>]) -> Vec<&[u8]> {
    let mut all: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    all.sort_by_key(|f| (number_of(f), *f));
    all
}

/// An error says which frame differs, and names the packet.
fn same(what: &str, found: &[&[u8]], wanted: &[&[u8]]) -> Result<(), (u64, String)> {
    if found == wanted {
        return Ok(());
    }
    let at = (0..).find(|&i| found.get(i) != wanted.get(i)).expect("they differ");
    let show = |frames: &[&[u8]]| match frames.get(at) {
        None => "nothing".to_owned(),
        Some(frame) => {
            let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
            format!("packet {} as {hex}", number_of(frame).unwrap_or(0))
        }
    };
    // Of two packets, the earlier one is that which was lost or is too much.
    let differing = [found.get(at), wanted.get(at)].into_iter().flatten();
    let number = differing.filter_map(|frame| number_of(frame)).min().unwrap_or(0);
    Err((number, format!("{what}: {}\n ought to be {}", show(found), show(wanted))))
}

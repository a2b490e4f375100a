//! The log of changes, and the one question that workers ask it: has anything that this flow depends on
//! changed since?
//!
//! A change is a rule that appears or vanishes: a table, a mask, values. It affects a flow if the two agree
//! on every bit that both match in that table. For each table and mask of changes there is an array of
//! versions, indexed by a keyed hash of the masked values: the version of the last change with that hash. If
//! the change's mask is a subset of what the flow matches, all packets of the flow map to one element, and
//! one lookup answers for all changes ever. Otherwise the last [`RING`] changes with that mask are compared
//! one by one, and a flow older than those counts as affected.
//!
//! Tables of ports and MAC addresses are looked up by one exact word each (see [`Visit`]'s words in
//! [`word_table`]), so they only need an array of versions by word: see `words`.
//!
//! False positives cost a translation, false negatives misforward: when in doubt, a flow counts as affected.
//! These are bounded: the array per mask ([`BUCKETS_MAX`]), the masks per table ([`MASKS_MAX`]; the one whose
//! last change is oldest gives way and raises the floor below which every flow of that table is affected),
//! and the ring.
//!
//! Workers that meet flow after flow in a new version ask for a whole sort of flows at once: see `sight`.
//!
//! Threads: one writer, and any number of readers, which neither wait nor write. The writer logs a change
//! before it publishes its version, so a reader that acquired the version sees the change. A reader may also
//! see changes of future versions; these count as well, needlessly.

mod sight;
pub mod word_table;
mod words;

use self::words::zeros;
use crate::shape::{MiniMatch, Shape, ShapeWord};
use base::Version;
use base::hash::HashKey;
use base::rcu::{Domain, RcuCell, Reader};
use datapath::pipeline::FlowView;
use datapath::{Rewrite, Visit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How many changes per mask are kept to be compared one by one.
pub const RING: usize = 16;
/// Elements of a new array of versions.
pub const BUCKETS_MIN: usize = 256;
/// Maximum number of elements of an array of versions; 128 KiB.
pub const BUCKETS_MAX: usize = 16_384;
/// Maximum number of masks per table.
pub const MASKS_MAX: usize = 16;

/// The number under which a table of rules is logged and visited.
pub fn rule_table(bridge: u32, table_id: u8) -> u32 {
    bridge << 8 | u32::from(table_id)
}

struct Ring {
    /// Version, then words, per entry. Version `u64::MAX` means that the entry is being written.
    entries: Box<[AtomicU64]>,
    stride: usize,
    count: AtomicU64,
    /// The newest version that was overwritten.
    floor: AtomicU64,
}

impl Ring {
    fn new(words: usize) -> Ring {
        let stride = words + 1;
        let entries = (0..RING * stride).map(|_| AtomicU64::new(0)).collect();
        Ring { entries, stride, count: AtomicU64::new(0), floor: AtomicU64::new(0) }
    }

    fn push(&self, values: &[u64], version: u64) {
        let count = self.count.load(Ordering::Relaxed);
        let at = (count as usize % RING) * self.stride;
        let old = self.entries[at].load(Ordering::Relaxed);
        self.floor.store(old.max(self.floor.load(Ordering::Relaxed)), Ordering::Relaxed);
        // Release: a reader that sees "being written" also sees the floor.
        self.entries[at].store(u64::MAX, Ordering::Release);
        fence(Ordering::Release);
        for (i, v) in values.iter().enumerate() {
            self.entries[at + 1 + i].store(*v, Ordering::Relaxed);
        }
        self.entries[at].store(version, Ordering::Release);
        self.count.store(count + 1, Ordering::Relaxed);
    }

    /// Whether a change after `since` agrees with the flow on the bits that both match, or may have been
    /// forgotten.
    fn touched(&self, since: u64, shape: &[ShapeWord], flow: &FlowView<'_>, rewrites: &[Rewrite]) -> bool {
        for entry in self.entries.chunks_exact(self.stride) {
            let version = entry[0].load(Ordering::Acquire);
            if version <= since {
                continue;
            }
            if version == u64::MAX {
                return true;
            }
            let agrees = shape.iter().zip(&entry[1..]).all(|(sw, v)| {
                let (value, held) = held_word(sw, flow, rewrites);
                (value ^ v.load(Ordering::Relaxed)) & held & sw.bits == 0
            });
            fence(Ordering::Acquire);
            if agrees || entry[0].load(Ordering::Relaxed) != version {
                return true;
            }
        }
        // Read after the entries: a writer that overwrote one of them meanwhile had raised the floor first.
        self.floor.load(Ordering::Relaxed) > since
    }
}

/// The flow's value of a word, and which of its bits are the same for all packets of the flow.
#[inline(always)]
fn held_word(sw: &ShapeWord, flow: &FlowView<'_>, rewrites: &[Rewrite]) -> (u64, u64) {
    let (b, w) = (usize::from(sw.block), usize::from(sw.word));
    let (mut value, mut held) = (flow.key.word(b, w), flow.mask.0.word(b, w));
    for r in rewrites {
        if r.block == sw.block && r.word == sw.word {
            value = value & !r.mask | r.value;
            held |= r.mask;
        }
    }
    (value, held)
}

struct MaskLog {
    /// Unique; never reused for another mask's log.
    id: u64,
    shape: Arc<Shape>,
    /// What flows are compared by: the words of the shape, without the bits of `conj_id`. No packet has one,
    /// though flows that hold the whole word (recirculated ones, and those that crossed a patch cable) seem
    /// to have 0: a lookup tries each id that a conjunction gives.
    words: Box<[ShapeWord]>,
    last: AtomicU64,
    buckets: Box<[AtomicU64]>,
    ring: Ring,
}

/// Initial value for hashes of words.
const START: u64 = 0x5eed;

impl MaskLog {
    fn new(id: u64, shape: Arc<Shape>) -> MaskLog {
        let ring = Ring::new(shape.words().len());
        let words = shape.words().iter().map(|word| word.without_conj_id()).collect();
        MaskLog { id, shape, words, last: AtomicU64::new(0), buckets: zeros(BUCKETS_MIN), ring }
    }

    /// The hash of a flow's words, or of a change's.
    fn hash(&self, values: impl Iterator<Item = u64>, secret: &HashKey) -> u64 {
        self.words.iter().zip(values).fold(START, |hash, (word, value)| secret.word(hash, value & word.bits))
    }

    /// One of twice the size with the same contents.
    fn grown(&self) -> MaskLog {
        let new = MaskLog {
            id: self.id,
            shape: self.shape.clone(),
            words: self.words.clone(),
            last: AtomicU64::new(self.last.load(Ordering::Relaxed)),
            buckets: zeros(self.buckets.len() * 2),
            ring: Ring::new(self.shape.words().len()),
        };
        for (i, b) in new.buckets.iter().enumerate() {
            let old = &self.buckets[i & (self.buckets.len() - 1)];
            b.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        new.ring.floor.store(self.last.load(Ordering::Relaxed), Ordering::Relaxed);
        new
    }

    fn push(&self, values: &[u64], version: u64, secret: &HashKey) {
        let hash = self.hash(values.iter().copied(), secret);
        self.buckets[hash as usize & (self.buckets.len() - 1)].store(version, Ordering::Relaxed);
        self.ring.push(values, version);
        self.last.store(version, Ordering::Relaxed);
    }

    #[inline]
    fn touched(&self, since: u64, flow: &FlowView<'_>, rewrites: &[Rewrite], secret: &HashKey) -> bool {
        if self.last.load(Ordering::Relaxed) <= since {
            return false;
        }
        let words = &*self.words;
        let (mut hash, mut missing) = (START, 0);
        if rewrites.is_empty() {
            for sw in words {
                let (b, w) = (usize::from(sw.block), usize::from(sw.word));
                missing |= sw.bits & !flow.mask.0.word(b, w);
                hash = secret.word(hash, flow.key.word(b, w) & sw.bits);
            }
        } else {
            for sw in words {
                let (value, held) = held_word(sw, flow, rewrites);
                missing |= sw.bits & !held;
                hash = secret.word(hash, value & sw.bits);
            }
        }
        if missing == 0 {
            return self.buckets[hash as usize & (self.buckets.len() - 1)].load(Ordering::Relaxed) > since;
        }
        self.ring.touched(since, words, flow, rewrites)
    }
}

/// The changes of one table of rules.
struct TableLog {
    last: AtomicU64,
    floor: AtomicU64,
    masks: RcuCell<Vec<Arc<MaskLog>>>,
}

impl TableLog {
    #[inline]
    fn touched(
        &self,
        since: u64,
        flow: &FlowView<'_>,
        rewrites: &[Rewrite],
        secret: &HashKey,
        reader: &Reader,
    ) -> bool {
        if self.last.load(Ordering::Relaxed) <= since {
            return false;
        }
        self.floor.load(Ordering::Relaxed) > since
            || self.masks.read(reader).iter().any(|m| m.touched(since, flow, rewrites, secret))
    }
}

/// The readers' half; see the module documentation.
pub struct ChangeLog {
    secret: HashKey,
    tables: RcuCell<Vec<Option<Arc<TableLog>>>>,
    words: words::WordLogs,
    /// Flows older than this are affected whatever they visited.
    floor: AtomicU64,
}

impl ChangeLog {
    pub(crate) fn new(domain: Arc<Domain>, secret: HashKey) -> ChangeLog {
        ChangeLog {
            secret,
            tables: RcuCell::new(domain.clone(), Vec::new()),
            words: words::WordLogs::new(domain, secret),
            floor: AtomicU64::new(0),
        }
    }

    /// A visit to a word table that looked up this word.
    pub(crate) fn visit_of(&self, table: u32, word: u64) -> Visit {
        let is_mac = word_table::mac_bridge(table).is_some();
        word_table::visit(table, if is_mac { self.words.hash(table, word).into() } else { word })
    }

    /// Whether a change after `since` may affect the flow.
    #[inline]
    pub fn touched(&self, flow: &FlowView<'_>, since: Version, reader: &Reader) -> bool {
        let since = since.0;
        if self.floor.load(Ordering::Relaxed) > since {
            return true;
        }
        let tables = self.tables.read(reader);
        flow.visits.iter().any(|v: &Visit| {
            if v.table & word_table::BIT != 0 {
                return self.words.touched(v, since, reader);
            }
            let rewrites = || &flow.rewrites[usize::from(v.rewrites_start)..][..usize::from(v.rewrites_len)];
            match tables.get(v.table as usize) {
                Some(Some(log)) => log.touched(since, flow, rewrites(), &self.secret, reader),
                _ => false,
            }
        })
    }
}

/// The writer's half.
pub(crate) struct ChangeLogWriter {
    domain: Arc<Domain>,
    log: Arc<ChangeLog>,
    tables: Vec<Option<WriterTable>>,
    words: words::WordWriter,
    /// Number of mask logs ever created.
    made: u64,
}

struct WriterTable {
    shared: Arc<TableLog>,
    masks: Vec<WriterMask>,
}

struct WriterMask {
    shared: Arc<MaskLog>,
    /// Changes since the array was created.
    changes: usize,
}

impl ChangeLogWriter {
    pub(crate) fn new(domain: Arc<Domain>, log: Arc<ChangeLog>) -> ChangeLogWriter {
        ChangeLogWriter { domain, log, tables: Vec::new(), words: Default::default(), made: 0 }
    }

    /// A rule with this match appears in or vanishes from a table in `version`, which is not yet published.
    pub(crate) fn rule(&mut self, table: u32, m: &MiniMatch, version: Version) {
        let idx = table as usize;
        if self.tables.get(idx).is_none_or(|t| t.is_none()) {
            self.add_table(idx);
        }
        let table = self.tables[idx].as_mut().expect("added above");
        let mask = match table.masks.iter().position(|x| Arc::ptr_eq(&x.shared.shape, m.shape())) {
            Some(i) => i,
            None => {
                self.made += 1;
                table.add_mask(self.made, m.shape().clone())
            }
        };
        let mask = &mut table.masks[mask];
        mask.shared.push(m.values(), version.0, &self.log.secret);
        mask.changes += 1;
        table.shared.last.store(version.0, Ordering::Relaxed);
        if mask.changes >= mask.shared.buckets.len() && mask.shared.buckets.len() < BUCKETS_MAX {
            *mask = WriterMask { shared: Arc::new(mask.shared.grown()), changes: 0 };
            table.publish();
        }
    }

    /// Everything about a table of rules changes in `version`.
    pub(crate) fn whole_table(&mut self, table: u32, version: Version) {
        let idx = table as usize;
        if self.tables.get(idx).is_none_or(|t| t.is_none()) {
            self.add_table(idx);
        }
        let shared = &self.tables[idx].as_ref().expect("added above").shared;
        shared.floor.store(version.0, Ordering::Relaxed);
        shared.last.store(version.0, Ordering::Relaxed);
    }

    fn add_table(&mut self, idx: usize) {
        if idx >= self.tables.len() {
            self.tables.resize_with(idx + 1, || None);
        }
        let shared = Arc::new(TableLog {
            last: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            masks: RcuCell::new(self.domain.clone(), Vec::new()),
        });
        self.tables[idx] = Some(WriterTable { shared, masks: Vec::new() });
        let all = self.tables.iter().map(|t| t.as_ref().map(|t| t.shared.clone())).collect();
        self.log.tables.publish(all);
    }

    /// A word of a word table changes its meaning in `version`.
    pub(crate) fn word(&mut self, table: u32, word: u64, version: Version) {
        self.words.push(&self.log.words, table, word, version);
    }

    /// Everything may have changed.
    pub(crate) fn everything(&mut self, version: Version) {
        self.log.floor.store(version.0, Ordering::Relaxed);
    }
}

impl WriterTable {
    fn add_mask(&mut self, id: u64, shape: Arc<Shape>) -> usize {
        let mask = WriterMask { shared: Arc::new(MaskLog::new(id, shape)), changes: 0 };
        let at = if self.masks.len() < MASKS_MAX {
            self.masks.push(mask);
            self.masks.len() - 1
        } else {
            let last = |m: &WriterMask| m.shared.last.load(Ordering::Relaxed);
            let (at, oldest) = (self.masks.iter().enumerate())
                .min_by_key(|(_, m)| last(m))
                .expect("there are masks, for the table is full of them");
            let floor = &self.shared.floor;
            floor.store(floor.load(Ordering::Relaxed).max(last(oldest)), Ordering::Relaxed);
            self.masks[at] = mask;
            at
        };
        self.publish();
        at
    }

    fn publish(&self) {
        self.shared.masks.publish(self.masks.iter().map(|m| m.shared.clone()).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{FieldId, Key, Mask, Match};

    pub(super) struct Fixture {
        pub domain: Arc<Domain>,
        pub log: Arc<ChangeLog>,
        pub writer: ChangeLogWriter,
        shapes: crate::shape::Shapes,
    }

    pub(super) fn fixture() -> Fixture {
        let domain = Domain::new();
        let log = Arc::new(ChangeLog::new(domain.clone(), HashKey::from_seed(1)));
        let writer = ChangeLogWriter::new(domain.clone(), log.clone());
        Fixture { domain, log, writer, shapes: Default::default() }
    }

    impl Fixture {
        pub fn change(&mut self, m: Match, version: u64) {
            let mini = self.shapes.mini(&m);
            self.writer.rule(0, &mini, Version(version));
        }

        fn touched(&self, key: &Key, mask: &Mask, rewrites: &[Rewrite], since: u64) -> bool {
            let visit = Visit { table: 0, rewrites_start: 0, rewrites_len: rewrites.len() as u16 };
            let reader = self.domain.register();
            let flow = FlowView { key, mask, visits: &[visit], rewrites };
            self.log.touched(&flow, Version(since), &reader)
        }
    }

    fn flow(port: u128, src: u128, src_mask: u128) -> (Key, Mask) {
        let m = Match::any().with(FieldId::InPort, port).with_masked(FieldId::NwSrc, src, src_mask);
        (m.key, m.mask)
    }

    #[test]
    fn a_change_within_the_flows_mask_touches_that_flow_and_older_versions_only() {
        let mut f = fixture();
        let host = |src| Match::any().with(FieldId::InPort, 1).with(FieldId::NwSrc, src);
        f.change(host(7), 5);
        let (key, mask) = flow(1, 7, 0xffff_ffff);
        assert!(f.touched(&key, &mask, &[], 4));
        assert!(!f.touched(&key, &mask, &[], 5));
        let (key, mask) = flow(1, 8, 0xffff_ffff);
        assert!(!f.touched(&key, &mask, &[], 4));
    }

    #[test]
    fn a_change_that_cuts_through_a_flow_is_judged_on_the_flow() {
        let mut f = fixture();
        f.change(Match::any().with(FieldId::NwSrc, 0x0a00_0007), 5);
        // The packet's own address is another, but the flow holds only the first byte of it.
        let (key, mask) = flow(1, 0x0a00_0001, 0xff00_0000);
        assert!(f.touched(&key, &mask, &[], 4));
        let (key, mask) = flow(1, 0x0b00_0001, 0xff00_0000);
        assert!(!f.touched(&key, &mask, &[], 4));
    }

    #[test]
    fn a_rewritten_field_counts_with_its_new_value() {
        let mut f = fixture();
        f.change(Match::any().with(FieldId::Reg0, 9), 5);
        let (key, mask) = flow(1, 1, 0);
        let reg0 = |v: u64| Rewrite { mask: 0xffff_ffff << 32, value: v << 32, block: 5, word: 0 };
        assert!(f.touched(&key, &mask, &[reg0(9)], 4));
        assert!(!f.touched(&key, &mask, &[reg0(8)], 4));
    }

    #[test]
    fn a_flow_that_seems_to_hold_conj_id_0_is_touched_by_changes_of_any_id() {
        let mut f = fixture();
        let rule = |id: u128, port: u128| Match::any().with(FieldId::ConjId, id).with(FieldId::InPort, port);
        f.change(rule(5, 1), 5);
        let place = FieldId::ConjId.place();
        // Recirculated or through a patch port: the whole word was written.
        let word = Rewrite { mask: u64::MAX, value: 0, block: place.block, word: place.word };
        let (key, mask) = flow(1, 1, 0);
        assert!(f.touched(&key, &mask, &[word], 4) && f.touched(&key, &mask, &[], 4));
        let (other, _) = flow(2, 1, 0);
        assert!(!f.touched(&other, &mask, &[word], 4), "of another port");
        // Cached alone: every bit is held.
        let mut all = mask.clone();
        all.add_word(place.block.into(), place.word.into(), u64::MAX);
        assert!(f.touched(&key, &all, &[], 4) && !f.touched(&key, &all, &[], 5));
        assert!(!f.touched(&other, &all, &[], 4));
        // Where not all other bits are held, too.
        f.change(rule(6, 1).with_masked(FieldId::NwSrc, 7, 0xff), 7);
        assert!(f.touched(&key, &all, &[], 6));
    }

    #[test]
    fn past_its_bounds_everything_older_is_touched() {
        let mut f = fixture();
        let (key, mask) = flow(1, 0x0b00_0001, 0xff00_0000);
        for i in 0..RING as u64 {
            f.change(Match::any().with(FieldId::NwSrc, 0x0a00_0000 + u128::from(i)), 5 + i);
        }
        assert!(!f.touched(&key, &mask, &[], 4));
        f.change(Match::any().with(FieldId::NwSrc, 0x0a00_1000), 100);
        assert!(f.touched(&key, &mask, &[], 4), "the first change was forgotten");
        assert!(!f.touched(&key, &mask, &[], 5));
        for i in 0..MASKS_MAX as u32 {
            let prefix = u128::from(u32::MAX << i);
            f.change(Match::any().with(FieldId::InPort, 2).with_masked(FieldId::NwDst, 0, prefix), 200);
        }
        assert!(f.touched(&key, &mask, &[], 99), "a mask gave way");
        assert!(!f.touched(&key, &mask, &[], 100));
    }

    #[test]
    fn growth_forgets_nothing() {
        let mut f = fixture();
        let host = |src| Match::any().with(FieldId::NwSrc, src);
        for i in 0..5000u64 {
            f.change(host(u128::from(i)), i + 1);
        }
        let mut needless = 0;
        for i in 0..10_000u64 {
            let (key, mask) = flow(1, u128::from(i), 0xffff_ffff);
            if i < 5000 {
                assert!(f.touched(&key, &mask, &[], i));
            } else {
                needless += u32::from(f.touched(&key, &mask, &[], 4990));
            }
        }
        assert!(needless < 200, "{needless} of 5,000 flows are translated for nothing");
    }

    #[test]
    fn words_of_ports_and_addresses_are_told_apart() {
        let mut f = fixture();
        f.writer.word(word_table::macs(1), word_table::mac(0, 5), Version(9));
        let (key, mask) = flow(1, 1, 0);
        let reader = f.domain.register();
        let touched = |table, word| {
            let visits = [f.log.visit_of(table, word)];
            let flow = FlowView { key: &key, mask: &mask, visits: &visits, rewrites: &[] };
            f.log.touched(&flow, Version(8), &reader)
        };
        assert!(touched(word_table::macs(1), word_table::mac(0, 5)));
        assert!(!touched(word_table::macs(1), word_table::mac(1, 5)));
        assert!(!touched(word_table::macs(2), word_table::mac(0, 5)));
        assert!(!touched(word_table::ports(1), 5));
        f.writer.word(word_table::ports(1), word_table::FLOOD, Version(9));
        let touched = |word| {
            let visits = [f.log.visit_of(word_table::ports(1), word)];
            let flow = FlowView { key: &key, mask: &mask, visits: &visits, rewrites: &[] };
            f.log.touched(&flow, Version(8), &reader)
        };
        assert!(touched(word_table::FLOOD));
        assert!(!touched(word_table::SETTINGS));
    }

    #[test]
    fn a_flood_of_addresses_on_one_bridge_touches_no_flow_of_another() {
        let mut f = fixture();
        let (key, mask) = flow(1, 1, 0);
        // The other bridge has addresses of its own, and learns one more now and then.
        f.writer.word(word_table::macs(2), word_table::mac(0, 1), Version(1));
        let mut version = 1;
        for address in 0..200_000 {
            version += 1;
            f.writer.word(word_table::macs(1), word_table::mac(0, address), Version(version));
        }
        let (neighbours, mut touched) = (1_000, 0);
        f.writer.word(word_table::macs(2), word_table::mac(0, 2), Version(version + 1));
        let reader = f.domain.register();
        for address in 10..10 + neighbours {
            let visits = [f.log.visit_of(word_table::macs(2), word_table::mac(0, address))];
            let flow = FlowView { key: &key, mask: &mask, visits: &visits, rewrites: &[] };
            touched += u32::from(f.log.touched(&flow, Version(1), &reader));
        }
        assert!(touched <= 10, "{touched} of {neighbours} flows of the other bridge");
    }
}

//! One worker's memory of what the pipeline decided: the exact-match tier and the megaflow tier.
//!
//! Exact match: the whole key, one probe. Megaflows: for each mask that the input port has flows of, the
//! masked key, one probe. All megaflows share one index; the mask's number is salt to the hash.
//!
//! The number of masks is bounded ([`MASKS_MAX`](masks::MASKS_MAX), and [`PORT_MASKS_MAX`] per input port).
//! Beyond the bound, a new megaflow uses an existing mask that covers its own: this narrows the flow, which
//! is always correct. If there is no such mask, the flow is cached in the exact-match tier only, as if it
//! matched every bit.
//!
//! Counters: a hit adds to its entry; [`FlowCache::fold`] moves an entry's counts to the flow's slots. A
//! sweep visits every entry in turn, folds it and removes idle ones. Entries are folded before they leave the
//! cache, so no count is lost.
//!
//! Threads: a cache belongs to one worker.

mod alone;
mod config;
pub mod counts;
mod dump;
pub mod entry;
mod firsts;
mod flush;
mod fresh;
pub mod index;
mod large;
mod lately;
mod masks;
mod memory;
pub mod origins;
mod plain;
pub mod recent;
mod room;
pub mod sorts;
pub mod trails;
mod upkeep;

use crate::action::DpAction;
use crate::pipeline::{FlowView, Pipeline, Translation};
use crate::ports::{InputIdx, PortTable};
use crate::stamp::Stamp;
use crate::watch::Marks;
use arrayvec::ArrayVec;
use base::hash::HashKey;
use base::region::{Region, prefetch_at};
use base::slots::SlotTable;
use base::wide::{Baseline, Wide};
use base::{PortNo, Version};
pub use config::{CacheConfig, FLOW_LIMIT_MAX};
pub use dump::DumpedFlow;
use entry::{
    AGE_MAX, Arena, Bodies, Decision, Entry, EntryKey, STALE_STATS_MAX, ShortVersion, StaleStats, Verdict,
    WideKey, further_blocks, verdict_of, wide_of,
};
use firsts::Firsts;
use flow::extract::{LongKey, PlainKey};
use flow::{FieldId, Key, Mask};
use flush::Flush;
use fresh::Fresh;
pub use fresh::Probed;
use index::{Index, Probe};
use large::{Large, bytes_beside};
pub use masks::{MASK_EXACT, PORT_MASKS_MAX};
use masks::{MaskEntry, Masks, PortMasks, masked_wide_equal, mega_hash, round_bit, rounds_of};
use origins::Origins;
use recent::Recents;
use sorts::{Sights, Sorts};
use std::sync::Arc;
use trails::Trails;
pub use upkeep::Judged;

/// A packet's key as the exact tier compares it.
#[derive(Clone, Copy)]
pub enum ExactKey<'a> {
    /// For a plain packet: its header bytes, with [`entry::PLAIN`] set. No extraction needed.
    Plain(PlainKey),
    /// For a long plain packet: its header bytes, with [`entry::PLAIN_ORIGIN`] in its number. Likewise.
    Long(LongKey),
    /// For any other packet.
    Whole(&'a Key),
}

impl ExactKey<'_> {
    /// Whether it says no more than the packet's bytes and origin.
    fn is_packed(&self) -> bool {
        !matches!(self, ExactKey::Whole(_))
    }
}

/// One of the two tiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Exact matches.
    Exact,
    /// Megaflows.
    Mega,
}

struct Tier {
    entries: Region<Entry>,
    /// Indexed by entry: block 0 of each key that is not in the entry itself. Uses memory only where it is
    /// touched.
    blocks: Region<StoredBlock>,
    index: Index,
    /// The first free entry, 0 for none.
    free: u32,
    free_count: u32,
    high: u32,
    hand: u32,
    /// How many entries have wanted the place of one in use.
    wanted: u32,
    /// The last entry visited in this round of the sweep.
    swept: u32,
}

impl Tier {
    fn new(limit: usize) -> std::io::Result<Tier> {
        Ok(Tier {
            entries: Region::growing(limit + 1)?,
            blocks: Region::new(limit + 1)?,
            index: Index::new(limit)?,
            free: 0,
            free_count: 0,
            high: 0,
            hand: 0,
            wanted: 0,
            swept: 0,
        })
    }

    fn live(&self) -> usize {
        (self.high - self.free_count) as usize
    }

    fn has_free(&self) -> bool {
        self.free != 0 || self.high as usize + 1 < self.entries.len()
    }

    fn take(&mut self) -> Option<u32> {
        if self.free != 0 {
            let idx = self.free;
            self.free = self.entries[idx as usize].decision.body;
            self.free_count -= 1;
            return Some(idx);
        }
        if self.high as usize + 1 < self.entries.len() {
            self.high += 1;
            self.entries.in_use(self.high as usize + 1);
            return Some(self.high);
        }
        None
    }

    fn give_back(&mut self, idx: u32) {
        self.entries[idx as usize].decision = Decision { verdict: Verdict::Unknown, body: self.free };
        self.free = idx;
        self.free_count += 1;
    }

    /// The next entry that might be evicted, in turn, because there is no room.
    fn victim(&mut self) -> u32 {
        self.hand = if self.hand >= self.high { 1 } else { self.hand + 1 };
        self.hand
    }
}

/// What the tier has beside an entry: block 0 of a whole or a masked key, or the key of a long plain packet.
#[derive(zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct StoredBlock([u64; 8]);

/// Both tiers of one worker.
pub struct FlowCache {
    config: CacheConfig,
    secret: HashKey,
    /// If the processor has these instructions, and they are to be used.
    pub wide: Option<Wide>,
    /// Where flows are counted.
    pub slots: Arc<SlotTable>,
    exact: Tier,
    mega: Tier,
    bodies: Bodies,
    arena: Arena,
    firsts: Firsts,
    large: Large,
    masks: Masks,
    sorts: Sorts,
    /// Of exact entries whose packets are tracked.
    pub trails: Trails,
    /// The ports that flows come from; index 0 stands for no port.
    inputs: Vec<InputPort>,
    recents: Recents,
    /// What the present burst has installed.
    fresh: Fresh,
    flush: Flush,
    /// The number of megaflows ever made, which provides their serial numbers.
    megaflows_made: u64,
    by_port: PortTable<InputIdx>,
    evictions: u64,
    /// Counters of megaflows that this burst found out of date. A replacement for the same packets continues
    /// from these counts, as Open vSwitch does when it modifies a datapath flow in place.
    stale_stats: ArrayVec<StaleStats, STALE_STATS_MAX>,
    now_ms: u64,
    /// The newest version that packets have seen.
    version: Version,
    /// The same when the present round of the sweep began.
    round_began: Version,
    /// The same when the last complete round began: no entry is older by more than an entry may be.
    swept: Version,
}

/// What a port's flows have in common.
#[derive(Default)]
struct InputPort {
    masks: PortMasks,
    origins: Origins,
}

/// Where [`FlowCache::install`] put a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Installed {
    /// In the megaflow tier, as this entry.
    Megaflow(u32),
    /// Alone in the exact tier.
    Exact(u32),
}

impl FlowCache {
    /// Reserves the address space of a cache.
    pub fn new(config: CacheConfig, secret: HashKey, wide: Option<Wide>) -> std::io::Result<FlowCache> {
        let limit = config.mega_limit();
        let exact_limit = config.exact_limit();
        Ok(FlowCache {
            config,
            secret,
            wide,
            slots: Arc::default(),
            exact: Tier::new(exact_limit)?,
            mega: Tier::new(limit)?,
            // Each entry of either tier may be the only one of its flow.
            bodies: Bodies::new(limit + exact_limit)?,
            arena: Arena::new(4 * limit)?,
            firsts: Firsts::new(limit)?,
            large: Large::new(config.large_limit()),
            masks: Masks::new(),
            sorts: Sorts::new(),
            trails: Trails::new(exact_limit)?,
            inputs: vec![InputPort::default()],
            recents: Recents::new(),
            fresh: Fresh::default(),
            flush: Flush::default(),
            megaflows_made: 0,
            by_port: PortTable::new(),
            evictions: 0,
            stale_stats: ArrayVec::new(),
            now_ms: 0,
            version: Version(0),
            round_began: Version(0),
            swept: Version(0),
        })
    }

    /// Credits flows in these counters, before there is any.
    pub fn count_in(&mut self, slots: Arc<SlotTable>) {
        self.slots = slots;
    }

    // ---- exact tier

    /// The index of what is known about an input port. Allocates when a worker sees the port for the first
    /// time.
    pub fn input_of(&mut self, port: PortNo) -> InputIdx {
        let FlowCache { inputs, by_port, .. } = self;
        *by_port.get_or_insert_with(port, || {
            inputs.push(InputPort::default());
            InputIdx(inputs.len() as u32 - 1)
        })
    }

    /// Hashes a key for the exact tier, and prefetches its bucket. Returns both.
    #[inline(always)]
    pub fn exact_probe(&self, key: &ExactKey<'_>) -> (u64, u32) {
        let hash = match key {
            ExactKey::Plain(words) => self.plain_hash(words),
            ExactKey::Long(halves) => self.long_hash(halves),
            ExactKey::Whole(key) => self.whole_hash(key),
        };
        (hash, self.exact.index.prefetch(Probe::new(hash)))
    }

    fn whole_hash(&self, key: &Key) -> u64 {
        let hash = self.secret.block(&key.common().0);
        further_blocks(key, key.present())
            .fold(hash, |hash, words| self.secret.combine(hash, self.secret.block(words)))
    }

    /// The most likely entry (0: none) of a hash in its bucket. Prefetches it.
    #[inline(always)]
    pub fn exact_prefetch(&self, hash: &u64, bucket: u32) -> u32 {
        let idx = self.exact.index.peek(bucket, hash);
        prefetch_at(&self.exact.entries, idx as usize);
        idx
    }

    /// Prefetches a megaflow.
    #[inline(always)]
    pub fn mega_fetch(&self, idx: u32) {
        prefetch_at(&self.mega.entries, idx as usize);
    }

    /// The entry whose key equals this one, or 0. `likely` is the result of [`Self::exact_prefetch`].
    #[inline(always)]
    pub fn exact_find_likely(&self, likely: u32, hash: u64, key: &ExactKey<'_>) -> u32 {
        match key {
            ExactKey::Whole(key) if likely != 0 && self.is_whole(likely, hash, key) => likely,
            key => self.exact_find(hash, key),
        }
    }

    /// The entry whose key equals this one, or 0.
    #[inline(never)]
    pub fn exact_find(&self, hash: u64, key: &ExactKey<'_>) -> u32 {
        let found = match key {
            ExactKey::Plain(words) => {
                let wanted = EntryKey::plain(*words);
                self.exact
                    .index
                    .find(Probe::new(hash), |idx| self.exact.entries[idx as usize].key.equals(&wanted))
            }
            ExactKey::Long(halves) => {
                let wanted = EntryKey::long(hash, halves);
                self.exact.index.find(Probe::new(hash), |idx| {
                    self.exact.entries[idx as usize].key.equals(&wanted)
                        && self.exact.blocks[idx as usize].is_long(Baseline, halves)
                })
            }
            ExactKey::Whole(key) => {
                self.exact.index.find(Probe::new(hash), |idx| self.is_whole(idx, hash, key))
            }
        };
        found.unwrap_or(0)
    }

    #[inline(always)]
    fn is_whole(&self, idx: u32, hash: u64, key: &Key) -> bool {
        let e = &self.exact.entries[idx as usize].key;
        e.is_beside(hash, key.present(), MASK_EXACT)
            && equal(&self.exact.blocks[idx as usize].0, &key.common().0)
            && (!e.has_further() || self.further_equal(e, key))
    }

    #[inline(never)]
    fn further_equal(&self, e: &EntryKey, key: &Key) -> bool {
        let (start, len) = e.further();
        further_blocks(key, key.present()).zip(self.arena.run(start, len)).all(|(a, b)| equal(a, b))
    }

    /// All exact entries by number, the keys beside them, their trails, and what tells whether changes touch
    /// them. Entries that the index does not name are unused.
    #[inline(always)]
    pub fn exact_entries<'a, P: Pipeline>(
        &'a mut self,
        sights: Sights<'a, P>,
    ) -> (&'a mut [Entry], &'a [StoredBlock], &'a Trails, Judge<'a, P>) {
        let judge = Judge { sights, sorts: &mut self.sorts, masks: &self.masks };
        (&mut self.exact.entries, &self.exact.blocks, &self.trails, judge)
    }

    /// Caches a key whose packets all belong to the body's flow, if there is a place for it.
    pub fn insert_exact(&mut self, key: &ExactKey<'_>, hash: u64, from: &FlowRef) -> Option<u32> {
        if !self.has_place(Which::Exact) {
            return None;
        }
        let (entry_key, block) = match *key {
            ExactKey::Plain(words) => (EntryKey::plain(words), None),
            ExactKey::Long(halves) => (EntryKey::long(hash, &halves), Some(StoredBlock::of_long(&halves))),
            ExactKey::Whole(key) => {
                let further = self.arena.store(&wide_of(key, key.present()))?;
                (
                    EntryKey::beside(hash, key.present(), MASK_EXACT, further),
                    Some(StoredBlock(key.common().0)),
                )
            }
        };
        let idx = self.exact.take()?;
        self.put(Which::Exact, idx, entry_key, block, hash, from);
        Some(idx)
    }

    // ---- megaflow tier

    /// Masks the key with mask `id` into `masked` (block 0), and prefetches the bucket of its hash. Returns
    /// both.
    #[inline(always)]
    pub fn mega_probe(&self, id: u16, key: &Key, masked: &mut [u64; 8]) -> (u64, u32) {
        let m = &self.masks[usize::from(id)];
        let hash = mega_hash(m, key, &self.secret, masked);
        (hash, self.mega.index.prefetch(Probe::new(hash)))
    }

    /// The most likely entry (0: none) of a hash in its bucket. Prefetches it.
    #[inline(always)]
    pub fn mega_prefetch(&self, hash: &u64, bucket: u32) -> u32 {
        let idx = self.mega.index.peek(bucket, hash);
        prefetch_at(&self.mega.entries, idx as usize);
        prefetch_at(&self.mega.blocks, idx as usize);
        idx
    }

    /// The megaflow of mask `id` with this masked key, or 0. `likely` is the result of
    /// [`Self::mega_prefetch`].
    #[inline(always)]
    pub fn mega_find_likely(&self, likely: u32, id: u16, hash: u64, key: &Key, masked: &[u64; 8]) -> u32 {
        if likely != 0 && self.is_mega(likely, id, hash, key, masked) {
            likely
        } else {
            self.mega_find(id, hash, key, masked)
        }
    }

    /// The megaflow of mask `id` with this masked key, or 0.
    #[inline(never)]
    pub fn mega_find(&self, id: u16, hash: u64, key: &Key, masked: &[u64; 8]) -> u32 {
        self.mega.index.find(Probe::new(hash), |idx| self.is_mega(idx, id, hash, key, masked)).unwrap_or(0)
    }

    #[inline(always)]
    fn is_mega(&self, idx: u32, id: u16, hash: u64, key: &Key, masked: &[u64; 8]) -> bool {
        let (e, m) = (&self.mega.entries[idx as usize].key, &self.masks[usize::from(id)]);
        e.is_of(hash, id)
            && equal(&self.mega.blocks[idx as usize].0, masked)
            && (!e.has_further() || masked_wide_equal(m, key, &self.arena, e))
    }

    /// The masks under which an input port may have flows for packets with this recirculation id, in search
    /// order, each with its position in the port's whole list.
    #[inline(always)]
    pub fn port_masks(&self, input: InputIdx, recirc_id: u32) -> ArrayVec<(u8, u16), PORT_MASKS_MAX> {
        self.inputs[input.0 as usize].masks.of_round(round_bit(recirc_id)).collect()
    }

    /// Counts hits of the port's `n`th mask.
    #[inline]
    pub fn port_mask_hit(&mut self, input: InputIdx, n: u8, hits: u32) {
        let mask = &mut self.inputs[input.0 as usize].masks.list[usize::from(n)];
        mask.hits = mask.hits.saturating_add(hits);
    }

    /// Sorts each port's masks by hits, and halves the counts so that the order follows the traffic.
    pub fn rank_masks(&mut self) {
        for masks in self.inputs.iter_mut().map(|port| &mut port.masks) {
            masks.list.sort_by_key(|m| std::cmp::Reverse(m.hits));
            for m in &mut masks.list {
                m.hits /= 2;
            }
        }
    }

    /// Searches all the port's masks for a flow that has not been found out of date.
    pub fn mega_search(&self, input: InputIdx, key: &Key) -> u32 {
        let mut masked = [0; 8];
        for (_, id) in self.port_masks(input, key.get64(FieldId::RecircId) as u32) {
            let (hash, _) = self.mega_probe(id, key, &mut masked);
            let idx = self.mega_find(id, hash, key, &masked);
            if idx != 0 && self.mega.entries[idx as usize].decision.verdict != Verdict::Stale {
                return idx;
            }
        }
        0
    }

    /// The misses of another burst begin.
    pub fn begin_misses(&mut self) {
        self.fresh.clear();
    }

    /// The megaflow of this burst to which a key belongs, or 0.
    pub fn fresh_search(&self, key: &Key) -> (u32, Probed) {
        self.fresh.search(&self.masks, &self.secret, key, |megaflow, p| {
            // Another one of the burst may have taken its place.
            let is_there = self.mega.entries[megaflow as usize].decision.verdict != Verdict::Unknown;
            is_there && self.is_mega(megaflow, p.mask, p.hash, key, &p.masked)
        })
    }

    /// Caches a translation for all packets that agree with `key` on its mask (or on a narrower one, see the
    /// module documentation). A flow that is cached in the exact tier alone replaces any entry under `exact`.
    /// `probed` is what [`Self::fresh_search`] said of the key.
    pub fn install<'k, E>(
        &mut self,
        input: InputIdx,
        (key, probed): (&Key, &Probed),
        exact: impl FnOnce() -> ExactKey<'k>,
        t: &Translation<E>,
        at: Moment,
    ) -> Option<Installed> {
        if !self.config.caches() {
            return None;
        }
        let verdict = verdict_of(&t.actions);
        let bytes = bytes_beside(t, verdict.is_list());
        if !self.large.has_room_for(input, bytes) {
            return None;
        }
        let mask = self.mask_for(&t.mask, input).unwrap_or(MASK_EXACT);
        if mask != MASK_EXACT && !self.has_place(Which::Mega) {
            return None;
        }
        let body = self.bodies.make(t, mask, verdict.is_list())?;
        self.masks[usize::from(mask)].bodies += 1;
        let sort = self.sorts.take(mask, &mut self.masks, &t.visits);
        // A reference held here frees the body if nothing below takes one.
        let large = self.large.take(input, bytes);
        let b = self.bodies.get_mut(body);
        (b.refs, b.sort, b.large) = (1, sort, large);
        let decision = Decision { verdict, body };
        let from = FlowRef { decision, mask, sort, set: 0, marks: Marks::default(), at };
        let installed = if mask == MASK_EXACT {
            self.install_alone(&exact(), &t.mask, &from).map(Installed::Exact)
        } else {
            self.insert_mega(input, (key, probed), mask, &from).map(Installed::Megaflow)
        };
        self.release_body(body);
        installed
    }

    /// Records the length of the packet whose miss created a flow, unless the flow continues an earlier one.
    pub fn made_by(&mut self, body: u32, bytes: usize) {
        let body = self.bodies.get_mut(body);
        if body.packets == 0 {
            body.first_bytes = bytes as u32;
        }
    }

    /// Keeps the whole key of the packet whose miss created a megaflow.
    #[inline(always)]
    pub fn keep_first(&mut self, megaflow: u32, key: &Key) {
        let body = self.mega.entries[megaflow as usize].decision.body;
        let first = self.firsts.keep(megaflow, key);
        self.bodies.get_mut(body).first = first;
    }

    fn insert_mega(
        &mut self,
        input: InputIdx,
        (key, probed): (&Key, &Probed),
        mask: u16,
        from: &FlowRef,
    ) -> Option<u32> {
        let m = &self.masks[usize::from(mask)];
        let present = m.present;
        let wide = if present & !1 == 0 { WideKey::new() } else { wide_of(&key.masked(&m.mask), present) };
        let further = self.arena.store(&wide)?;
        let idx = self.mega.take()?;
        let m = &mut self.masks[usize::from(mask)];
        m.flows += 1;
        let (mut hash, mut masked) = (probed.hash, probed.masked);
        if probed.mask != mask {
            hash = mega_hash(m, key, &self.secret, &mut masked);
        }
        self.inputs[input.0 as usize].masks.add(mask, rounds_of(m, &masked));
        self.bodies.get_mut(from.decision.body).megaflow = idx;
        self.megaflows_made += 1;
        let entry_key = EntryKey::beside(hash, present, mask, further).with_serial(self.megaflows_made);
        self.put(Which::Mega, idx, entry_key, Some(StoredBlock(masked)), hash, from);
        self.fresh.add(mask, hash, idx);
        if let Some(place) = self.stale_stats.iter().position(|b| (b.mask, b.hash) == (mask, hash)) {
            let StaleStats { packets, bytes, first_bytes, .. } = self.stale_stats.swap_remove(place);
            let body = self.bodies.get_mut(from.decision.body);
            (body.packets, body.bytes, body.first_bytes) = (packets, bytes, first_bytes);
        }
        Some(idx)
    }

    /// The number of the mask under which to cache a flow: its own, or one that covers it.
    fn mask_for(&mut self, mask: &Mask, input: InputIdx) -> Option<u16> {
        let FlowCache { masks: all, inputs, secret, .. } = self;
        let port = &inputs[input.0 as usize].masks;
        let own = all.find(mask, secret);
        if let Some(n) = own
            && port.has_room_for(n)
        {
            return Some(n);
        }
        if own.is_none()
            && !port.list.is_full()
            && let Some(n) = all.add(mask, secret)
        {
            return Some(n);
        }
        // The least specific mask that covers it keeps the flow as wide as possible.
        (1..all.len())
            .filter(|&n| all[n].bodies > 0 && port.has_room_for(n as u16))
            .filter(|&n| all[n].mask.covers(mask))
            .min_by_key(|&n| all[n].mask.count_ones())
            .map(|n| n as u16)
    }

    // ---- both tiers; what they have in common beside is in `upkeep`

    /// The action list of a flow whose verdict [is one](Verdict::is_list).
    pub fn actions(&self, body: u32) -> &[DpAction] {
        self.bodies.actions(body)
    }

    /// What the change log needs to judge the flow that a packet with this key belongs to.
    pub fn view<'a>(&'a self, body: u32, key: &'a Key) -> FlowView<'a> {
        let (visits, rewrites) = self.bodies.visits(body);
        let mask = &self.masks[usize::from(self.bodies.get(body).mask)].mask;
        FlowView { key, mask, visits, rewrites }
    }

    /// Sets the time, in milliseconds of the datapath's clock.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Sets the version that packets see now. Removes everything if it is so much newer than the sweep that
    /// an entry's version could be mistaken for a newer one.
    #[inline(always)]
    pub fn set_version(&mut self, version: Version) {
        if version.0.wrapping_sub(self.swept.0) >= u64::from(u32::MAX - AGE_MAX) {
            self.forget_all(version);
        }
        self.version = version;
    }

    /// Whether new flows may soon need the places of idle ones.
    pub fn is_crowded(&self) -> bool {
        let limit = self.config.mega_limit();
        self.mega.live() > limit / 4 * 3 || self.is_exact_crowded()
    }

    /// Whether new exact entries may soon need the places of idle ones.
    #[inline(always)]
    pub fn is_exact_crowded(&self) -> bool {
        self.exact.live() > self.config.exact_limit() / 4 * 3
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.exact.live() + self.mega.live() == 0
    }

    /// Entries that a round visits.
    pub fn round_len(&self) -> u32 {
        self.exact.high + self.mega.high
    }
}

/// When something happens: a version and a time.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Version that the packet sees.
    pub version: Version,
    /// Time.
    pub now: Stamp,
}

/// A flow from which to make an exact entry.
#[derive(Clone, Copy, Debug)]
pub struct FlowRef {
    /// What happens to its packets, and its body.
    pub decision: Decision,
    /// The flow's mask.
    pub mask: u16,
    /// Its sort, see [`sorts`].
    pub sort: u16,
    /// Which set `marks` belong to; 0 for none.
    pub set: u8,
    /// See [`crate::watch`].
    pub marks: Marks,
    /// When it is made.
    pub at: Moment,
}

/// Tells whether changes touch the flows of entries.
pub struct Judge<'a, P: Pipeline> {
    sights: Sights<'a, P>,
    sorts: &'a mut Sorts,
    masks: &'a [MaskEntry],
}

impl<P: Pipeline> Judge<'_, P> {
    /// Like [`FlowCache::renew_exact`]. Not inlined, so that a loop that rarely calls it keeps its registers.
    #[inline(never)]
    pub fn renew(&mut self, e: &mut Entry) -> bool {
        self.sights.renew(self.sorts, self.masks, e)
    }
}

/// Block comparison without a branch per word.
#[inline(always)]
fn equal(a: &[u64; 8], b: &[u64; 8]) -> bool {
    (0..8).fold(0, |differing, w| differing | (a[w] ^ b[w])) == 0
}

//! The packed keys of plain packets: what they say beside the packets' bytes (their port,
//! [origin](super::origins) and depth), and how they are found.

use super::entry::{EntryKey, PLAIN_ORIGIN};
use super::index::{Index, Probe};
use super::origins::{Origin, SLOT_BITS};
use super::{FlowCache, StoredBlock};
use crate::ports::InputIdx;
use base::hash::HashKey;
use base::region::prefetch_at;
use base::wide::{Baseline, Lanes};
use flow::Depth;
use flow::extract::{LongKey, PlainKey, origin_of_plain};

/// Number of bits for a depth in a plain key.
const DEPTH_BITS: u32 = 3;

impl FlowCache {
    /// The number in plain packets' keys, which encodes their origin and the depth to which they are read.
    /// `None` if their port has run out of origin numbers: they are then looked up by their whole keys.
    #[inline(always)]
    pub fn plain_origin(&mut self, input: InputIdx, origin: Origin, depth: Depth) -> Option<u64> {
        let slot = self.inputs[input.0 as usize].origins.slot(origin, &self.secret)?;
        let number = u64::from(input.0) << SLOT_BITS | u64::from(slot);
        Some(PLAIN_ORIGIN | number << DEPTH_BITS | depth as u64)
    }

    /// What the key of a plain exact entry encodes about its packets' origin, if it is this one.
    pub fn origin_of(&self, entry: u32, input: InputIdx, origin: &Origin) -> Option<u64> {
        let key = self.exact.entries[entry as usize].key;
        let said = origin_of_plain(&key.0);
        let number = (said & !PLAIN_ORIGIN) >> DEPTH_BITS;
        let is_its = key.is_plain()
            && number >> SLOT_BITS == u64::from(input.0)
            && self.inputs[input.0 as usize].origins.is(number as u8, origin);
        is_its.then_some(said)
    }

    /// The number of entries that have the origin in a packed key.
    pub(super) fn origin_entries(&mut self, key: &EntryKey) -> Option<&mut u32> {
        let number = (key.packed_origin()? & !PLAIN_ORIGIN) >> DEPTH_BITS;
        Some(self.inputs[(number >> SLOT_BITS) as usize].origins.entries(number as u8))
    }

    /// What looks for plain packets' keys, by the instructions that [`Self::wide`] names.
    #[inline(always)]
    pub fn prober<L: Lanes>(&self, lanes: L) -> Prober<'_, L> {
        Prober { lanes, secret: self.secret, index: &self.exact.index }
    }

    /// Like [`Self::exact_probe`] for a long plain packet's key, by these instructions.
    #[inline(always)]
    pub fn long_probe<L: Lanes>(&self, lanes: L, key: &LongKey) -> (u64, u32) {
        let hash = lanes.hash_both(&self.secret, key);
        (hash, self.exact.index.prefetch(Probe::new(hash)))
    }

    pub(super) fn plain_hash(&self, words: &PlainKey) -> u64 {
        self.wide.map_or_else(|| Baseline.hash(&self.secret, words), |wide| wide.hash(&self.secret, words))
    }

    pub(super) fn long_hash(&self, halves: &LongKey) -> u64 {
        let baseline = || Baseline.hash_both(&self.secret, halves);
        self.wide.map_or_else(baseline, |wide| wide.hash_both(&self.secret, halves))
    }

    /// Like [`Self::exact_prefetch`], and prefetches the key beside the entry.
    #[inline(always)]
    pub fn exact_prefetch_both(&self, hash: &u64, bucket: u32) -> u32 {
        let idx = self.exact_prefetch(hash, bucket);
        prefetch_at(&self.exact.blocks, idx as usize);
        idx
    }
}

/// Looks for plain packets' keys. Its own copy of the secret stays in registers where many are looked for.
pub struct Prober<'a, L> {
    lanes: L,
    secret: HashKey,
    index: &'a Index,
}

impl<L: Lanes> Prober<'_, L> {
    /// Like [`FlowCache::exact_probe`].
    #[inline(always)]
    pub fn probe(&self, key: &PlainKey) -> (u64, u32) {
        let hash = self.lanes.hash(&self.secret, key);
        (hash, self.index.prefetch(Probe::new(hash)))
    }
}

impl StoredBlock {
    pub(super) fn of_long([[a, b, c, d], [e, f, g, h]]: &LongKey) -> StoredBlock {
        StoredBlock([*a, *b, *c, *d, *e, *f, *g, *h])
    }

    /// Whether it is this long plain packet's key, provided that it is the key of one.
    #[inline(always)]
    pub fn is_long<L: Lanes>(&self, lanes: L, [first, second]: &LongKey) -> bool {
        let (halves, _) = self.0.as_chunks::<4>();
        lanes.equal(&halves[0], first) && lanes.equal(&halves[1], second)
    }
}

//! The hash index of both cache tiers: from a 64-bit hash to candidate entries, in one or two cache lines.
//!
//! A bucket is one line of eight 16-bit signatures, eight 16-bit pieces of the hash, and eight entry numbers.
//! Each hash has two candidate buckets. An entry goes to the first unless that is full, so nearly every
//! lookup touches one line, and buckets can hold four entries on average without evictions. A bit per bucket
//! says whether entries that belong there are in their second bucket: so nearly every lookup that finds
//! nothing touches one line, too.
//!
//! It grows in place by linear hashing: once half full it doubles, splitting a few buckets per insertion. The
//! piece of the hash in the bucket says to which half an entry belongs, so a split touches two lines and no
//! entry. Address space for all buckets is reserved at the start and uses memory only where it is touched.
//!
//! If both buckets are full, the index first tries to move one occupant to its other bucket (its hash follows
//! from bucket, piece and signature). Only if none can move is an entry evicted.
//!
//! Invariants: `idx == 0` means a free place (entry 0 is never used); an entry is in exactly one place;
//! `piece` holds bits 8..24 of the half of the hash under which the entry was placed.

use base::lanes::equal_lanes;
use base::region::{Region, prefetch_at};

/// Places per bucket.
const WAYS: usize = 8;
/// Buckets at the start: 2^8, because splitting reads hash bits from the eighth on.
const LOG2_START: u32 = 8;
/// Bits of a word of `overflown`.
const WORD_BITS: usize = u64::BITS as usize;
/// Most buckets: the pieces hold 16 further bits.
const LOG2_MAX: u32 = 24;

#[repr(C, align(64))]
#[derive(zerocopy::FromZeros)]
struct Bucket {
    /// Four 16-bit signatures a word, compared all at once.
    sig: [u64; WAYS / 4],
    piece: [u16; WAYS],
    idx: [u32; WAYS],
}

/// The hash as the index uses it.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    first: u32,
    sig: u16,
}

impl Probe {
    /// Splits a hash. All 64 bits should be well mixed.
    #[inline(always)]
    pub fn new(hash: u64) -> Probe {
        Probe { first: hash as u32, sig: (hash >> 48) as u16 }
    }

    /// The second bucket follows from the first and the signature, as in a cuckoo filter.
    #[inline(always)]
    fn second(self) -> u32 {
        self.first ^ distance(self.sig)
    }
}

/// The odd constant makes the distance differ from signature to signature, and never 0.
#[inline(always)]
fn distance(sig: u16) -> u32 {
    (u32::from(sig) | 0x1_0000).wrapping_mul(0x9e37_79b1) >> 8
}

/// See the module documentation.
pub struct Index {
    buckets: Region<Bucket>,
    /// Bit b is set once an entry whose first bucket is b went to its second, since b was full.
    overflown: Region<u64>,
    /// `2^k - 1`: buckets below `split` use one bit more.
    mask: u32,
    split: u32,
    len: usize,
    evictions: u64,
    clock: u32,
}

/// What an insertion displaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// There was room.
    Fresh,
    /// Both buckets were full: this entry has been evicted.
    Evicted(u32),
}

impl Index {
    /// An index for at most about `entries` entries.
    pub fn new(entries: usize) -> std::io::Result<Index> {
        // Four entries per bucket on average when full.
        let log2 = (entries / 4).max(1).next_power_of_two().ilog2().clamp(LOG2_START, LOG2_MAX);
        let buckets = Region::growing(1 << log2)?;
        let overflown = Region::new((1 << log2) / WORD_BITS)?;
        Ok(Index {
            buckets,
            overflown,
            mask: (1 << LOG2_START) - 1,
            split: 0,
            len: 0,
            evictions: 0,
            clock: 0,
        })
    }

    /// Entries in it.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Insertions that evicted another entry.
    #[cfg(test)]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Bytes of the buckets in use.
    pub fn memory_bytes(&self) -> usize {
        let buckets = self.mask as usize + 1 + self.split as usize;
        buckets * size_of::<Bucket>() + buckets / 8
    }

    #[inline(always)]
    fn is_overflown(&self, b: usize) -> bool {
        self.overflown[b / WORD_BITS] >> (b % WORD_BITS) & 1 != 0
    }

    fn set_overflown(&mut self, b: usize) {
        self.overflown[b / WORD_BITS] |= 1 << (b % WORD_BITS);
    }

    #[inline(always)]
    fn bucket_of(&self, half: u32) -> usize {
        let b = half & self.mask;
        (if b < self.split { half & (self.mask << 1 | 1) } else { b }) as usize
    }

    /// Prefetches the line that a lookup needs first, and returns its bucket.
    #[inline(always)]
    pub fn prefetch(&self, probe: Probe) -> u32 {
        let bucket = self.bucket_of(probe.first);
        prefetch_at(&self.buckets, bucket);
        bucket as u32
    }

    /// The first candidate in the first bucket, which [`Self::prefetch`] returned, or else in the second, so
    /// that its entry can be prefetched; 0 if there is none, or if a free place still has its signature. Not
    /// conclusive. The hash is passed where it is, since nearly always its signature is all that is read.
    #[inline(always)]
    pub fn peek(&self, bucket: u32, hash: &u64) -> u32 {
        if let Some(line) = self.buckets.get(bucket as usize)
            && let hits = equal_lanes(&line.sig, Probe::new(*hash).sig)
            && hits != 0
        {
            line.idx_of(hits)
        } else {
            self.peek_second(bucket, hash)
        }
    }

    /// For 7 in 1,000 entries of an index that is about to grow: every third burst has one.
    #[cold]
    #[inline(never)]
    fn peek_second(&self, first: u32, hash: &u64) -> u32 {
        if !self.is_overflown(first as usize) {
            return 0;
        }
        let probe = Probe::new(*hash);
        let line = &self.buckets[self.bucket_of(probe.second())];
        match equal_lanes(&line.sig, probe.sig) {
            0 => 0,
            hits => line.idx_of(hits),
        }
    }

    /// Calls `is_it` for each candidate until it returns true, and returns that candidate.
    #[inline(always)]
    pub fn find(&self, probe: Probe, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let first = self.bucket_of(probe.first);
        if let Some(found) = self.find_in(first, probe.sig, &mut is_it) {
            return Some(found);
        }
        // A bucket that has room now may have been full earlier, and removal moves no entries.
        if !self.is_overflown(first) {
            return None;
        }
        self.find_in(self.bucket_of(probe.second()), probe.sig, &mut is_it)
    }

    #[inline(always)]
    fn find_in(&self, b: usize, sig: u16, is_it: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let bucket = &self.buckets[b];
        let mut hits = equal_lanes(&bucket.sig, sig);
        while hits != 0 {
            let way = hits.trailing_zeros() as usize / 2;
            let idx = bucket.idx[way % WAYS];
            if idx != 0 && is_it(idx) {
                return Some(idx);
            }
            hits &= !(3 << (2 * way));
        }
        None
    }

    /// Inserts entry `idx` (not 0, not in the index yet).
    pub fn insert(&mut self, probe: Probe, idx: u32) -> Inserted {
        debug_assert_ne!(idx, 0);
        self.grow();
        if self.place(probe.first, probe.sig, idx) {
            self.len += 1;
            return Inserted::Fresh;
        }
        self.set_overflown(self.bucket_of(probe.first));
        if self.place(probe.second(), probe.sig, idx) {
            self.len += 1;
            return Inserted::Fresh;
        }
        if self.make_room(probe.first) {
            let placed = self.place(probe.first, probe.sig, idx);
            debug_assert!(placed, "make_room emptied a place");
            self.len += 1;
            return Inserted::Fresh;
        }
        self.evictions += 1;
        // Clock hand over the ways: the bucket does not record when an entry was used, so any way is as good
        // as another.
        self.clock = self.clock.wrapping_add(1);
        let way = self.clock as usize % WAYS;
        let b = self.bucket_of(probe.first);
        let bucket = &mut self.buckets[b];
        let lost = bucket.idx[way];
        put(bucket, way, probe.sig, probe.first, idx);
        Inserted::Evicted(lost)
    }

    /// Puts the entry into the bucket of this half of its hash, if there is a free place.
    fn place(&mut self, half: u32, sig: u16, idx: u32) -> bool {
        let b = self.bucket_of(half);
        let bucket = &mut self.buckets[b];
        let Some(way) = bucket.idx.iter().position(|&i| i == 0) else { return false };
        put(bucket, way, sig, half, idx);
        true
    }

    /// Moves one occupant of a full bucket to its other bucket, if one of them has room there.
    fn make_room(&mut self, half: u32) -> bool {
        let b = self.bucket_of(half);
        for way in 0..WAYS {
            let bucket = &self.buckets[b];
            let (idx, sig, piece) = (bucket.idx[way], bucket.sig_at(way), bucket.piece[way]);
            // The occupant's half of the hash: its high bits are in the piece, the low eight in the bucket's
            // number.
            let its_half = u32::from(piece) << LOG2_START | b as u32 & ((1 << LOG2_START) - 1);
            let other = its_half ^ distance(sig);
            if self.bucket_of(other) != b && self.place(other, sig, idx) {
                self.buckets[b].idx[way] = 0;
                // Some of its occupants have it as their first bucket.
                self.set_overflown(b);
                return true;
            }
        }
        false
    }

    /// Removes entry `idx`, which must have been inserted under the same hash. False if it is not in the
    /// index.
    pub fn remove(&mut self, probe: Probe, idx: u32) -> bool {
        for half in [probe.first, probe.second()] {
            let b = self.bucket_of(half);
            let bucket = &mut self.buckets[b];
            if let Some(way) = bucket.idx.iter().position(|&i| i == idx) {
                bucket.idx[way] = 0;
                self.len -= 1;
                return true;
            }
        }
        false
    }

    /// Doubles the index, a few buckets per insertion. A round starts when buckets are half full on average
    /// and ends a quarter as many insertions later, so buckets that are not yet split never get much fuller
    /// than that.
    fn grow(&mut self) {
        let round = self.mask as usize + 1;
        if (self.split == 0 && self.len < round * WAYS / 2) || 2 * round > self.buckets.len() {
            return;
        }
        for _ in 0..4 {
            self.split_one();
            if self.split == 0 {
                return;
            }
        }
    }

    fn split_one(&mut self) {
        let bit = self.mask + 1;
        let (from, to) = (self.split as usize, (self.split + bit) as usize);
        let mut free = 0;
        for way in 0..WAYS {
            let old = &mut self.buckets[from];
            let (idx, sig, piece) = (old.idx[way], old.sig_at(way), old.piece[way]);
            if idx != 0 && (u32::from(piece) << LOG2_START) & bit != 0 {
                old.idx[way] = 0;
                let new = &mut self.buckets[to];
                new.set_sig(free, sig);
                (new.idx[free], new.piece[free]) = (idx, piece);
                free += 1;
            }
        }
        if self.is_overflown(from) {
            self.set_overflown(to);
        }
        self.buckets.in_use(to + 1);
        self.split += 1;
        if self.split > self.mask {
            self.mask = self.mask << 1 | 1;
            self.split = 0;
        }
    }
}

impl Bucket {
    /// The first entry of these lanes, of which there is one.
    #[inline(always)]
    fn idx_of(&self, hits: u32) -> u32 {
        self.idx[hits.trailing_zeros() as usize / 2 % WAYS]
    }

    fn sig_at(&self, way: usize) -> u16 {
        (self.sig[way / 4] >> (way % 4 * 16)) as u16
    }

    fn set_sig(&mut self, way: usize, sig: u16) {
        let shift = way % 4 * 16;
        let word = &mut self.sig[way / 4];
        *word = *word & !(0xffff << shift) | u64::from(sig) << shift;
    }
}

#[inline(always)]
fn put(bucket: &mut Bucket, way: usize, sig: u16, half: u32, idx: u32) {
    bucket.set_sig(way, sig);
    bucket.idx[way] = idx;
    bucket.piece[way] = (half >> LOG2_START) as u16;
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::hash::HashKey;

    fn hash(n: u64) -> u64 {
        HashKey::from_seed(3).block(&[n, 0, 0, 0, 0, 0, 0, 0])
    }

    fn probe(n: u64) -> Probe {
        Probe::new(hash(n))
    }

    #[test]
    fn a_million_entries_are_all_found_after_growth_and_nobody_is_evicted() {
        let mut index = Index::new(1_000_000).unwrap();
        for n in 1..=1_000_000u32 {
            assert_eq!(index.insert(probe(n.into()), n), Inserted::Fresh);
        }
        assert_eq!(index.len(), 1_000_000);
        for n in 1..=1_000_000u32 {
            assert_eq!(index.find(probe(n.into()), |idx| idx == n), Some(n), "{n}");
        }
        for n in (1..=1_000_000u32).step_by(3) {
            assert!(index.remove(probe(n.into()), n));
            assert_eq!(index.find(probe(n.into()), |idx| idx == n), None);
        }
    }

    #[test]
    fn the_likely_entry_is_the_right_one_in_either_bucket() {
        let mut index = Index::new(1_000_000).unwrap();
        // One more, and it would grow.
        let count = 256 * WAYS as u32 / 2;
        (1..=count).for_each(|n| assert_eq!(index.insert(probe(n.into()), n), Inserted::Fresh));
        let mut in_second = 0;
        for n in 1..=count {
            let first = index.prefetch(probe(n.into()));
            in_second += u32::from(!index.buckets[first as usize].idx.contains(&n));
            assert_eq!(index.peek(first, &hash(n.into())), n);
        }
        assert!((1..count / 50).contains(&in_second), "{in_second}");
        // None of an entry that is not there.
        let others = (count + 1..=2 * count).map(|n| hash(n.into()));
        let found = others.filter(|hash| index.peek(index.prefetch(Probe::new(*hash)), hash) != 0).count();
        assert!(found <= 2, "{found}");
    }

    #[test]
    fn past_its_size_it_evicts_and_says_whom() {
        let mut index = Index::new(1).unwrap();
        let places = 256 * WAYS;
        let mut inside = std::collections::HashSet::new();
        for n in 1..=(places as u32 * 2) {
            if let Inserted::Evicted(lost) = index.insert(probe(n.into()), n) {
                assert!(inside.remove(&lost));
            }
            inside.insert(n);
        }
        assert_eq!(index.len(), inside.len());
        assert!(inside.iter().all(|&n| index.find(probe(n.into()), |i| i == n).is_some()));
        assert!(index.evictions() > 0);
    }
}

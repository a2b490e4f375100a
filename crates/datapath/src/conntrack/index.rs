//! From a tuple's hash to its connection: buckets of one cache line.
//!
//! A bucket has seven places, each with 32 bits of a hash and the number of an entry. Further entries, which
//! are rare, are chained through words of their own. The bucket's first word counts its changes: a lookup
//! that finds nothing, and the count unchanged, has seen the bucket as it was at one moment. A writer has a
//! bucket to itself for some nanoseconds while it keeps the count odd. So a lookup neither waits nor writes,
//! and it touches one line.
//!
//! The number of buckets is fixed. Their memory is mapped lazily, in small pages, so that few connections
//! cost a page each. Once there are as many connections as pages, most pages are in use, and the index moves
//! into huge pages ([`Index::in_use`]): with small ones nearly every lookup would also wait for the page
//! tables.

use super::entry::Entry;
use base::region::{Region, prefetch_at};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

#[derive(zerocopy::FromZeros)]
#[repr(C, align(64))]
struct Bucket([AtomicU64; 8]);

/// The version's lowest bit: the bucket is being changed.
const CHANGING: u64 = 1;
const VERSION_STEP: u64 = 2;
/// How often a lookup starts over before it accepts what it found or did not find.
const TRIES: u32 = 16;
/// How many entries of a chain are searched.
const CHAIN_MAX: u32 = 256;

const BUCKETS_PER_PAGE: usize = 4096 / size_of::<Bucket>();

/// What a place or a link of a chain refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub entry: u32,
    pub of: Which,
}

/// Which of an entry's tuples it refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// The tuple of an untranslated connection and its reverse, which have the same hash.
    Both,
    Forward,
    Reverse,
}

impl Place {
    fn pack(self) -> u32 {
        self.entry << 2 | self.of as u32
    }

    /// 0 means none.
    fn unpack(word: u32) -> Option<Place> {
        let of = match word & 3 {
            0 => Which::Both,
            1 => Which::Forward,
            _ => Which::Reverse,
        };
        (word != 0).then_some(Place { entry: word >> 2, of })
    }

    fn is_reverse(self) -> bool {
        self.of == Which::Reverse
    }
}

/// See the module documentation.
pub(crate) struct Index {
    buckets: Region<Bucket>,
}

/// The entries that places refer to.
pub(crate) type Entries = Region<Entry>;

fn signature(hash: u64) -> u64 {
    // The low bits choose the bucket.
    hash >> 32
}

/// The first word: version (high), head of the chain (low).
fn chain(word: u64) -> u32 {
    word as u32
}

impl Index {
    /// `buckets` must be a power of two.
    pub fn new(buckets: usize) -> std::io::Result<Index> {
        assert!(buckets.is_power_of_two());
        Ok(Index { buckets: Region::scattered(buckets)? })
    }

    /// Tells the index how many places are in use.
    #[inline(always)]
    pub fn in_use(&self, places: u32) {
        if places as usize == self.buckets.len() / BUCKETS_PER_PAGE {
            self.buckets.gather();
        }
    }

    fn number(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// Prefetches the line that [`Self::find`] looks at.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_at(&self.buckets, self.number(hash));
    }

    /// The place that most likely matches, so that its entry can be prefetched.
    #[inline(always)]
    pub fn likely(&self, hash: u64) -> Option<Place> {
        let words = &self.buckets[self.number(hash)].0[1..];
        let found = words.iter().map(|word| word.load(Relaxed)).find(|word| word >> 32 == signature(hash));
        Place::unpack(found? as u32)
    }

    /// False if there is no place with that hash: most new connections need no closer look. A place does not
    /// move within its bucket, so this needs no second look either.
    #[inline(always)]
    pub fn may_have(&self, hash: u64) -> bool {
        let bucket = &self.buckets[self.number(hash)].0;
        let wanted = signature(hash);
        bucket[1..].iter().any(|word| word.load(Relaxed) >> 32 == wanted)
            || chain(bucket[0].load(Relaxed)) != 0
    }

    /// The first result of `matches` for an entry with that hash.
    #[inline]
    pub fn find<T>(
        &self,
        hash: u64,
        entries: &Entries,
        mut matches: impl FnMut(u32) -> Option<T>,
    ) -> Option<T> {
        let bucket = &self.buckets[self.number(hash)].0;
        for _ in 0..TRIES {
            let before = bucket[0].load(Acquire);
            // What is found is there, whoever changes the bucket: a place is one word, and does not move.
            // Only that nothing is there needs a bucket at rest; a writer may hold it for as long as it is
            // off its processor.
            if let Some(found) = find_in(bucket, hash, chain(before), entries, &mut matches) {
                return Some(found);
            }
            fence(Acquire);
            if before >> 32 & CHANGING == 0 && bucket[0].load(Relaxed) == before {
                return None;
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Adds a place to the index, unless `is_there` says that an existing entry with that hash has the same
    /// tuple.
    pub fn insert(
        &self,
        hash: u64,
        place: Place,
        entries: &Entries,
        is_there: impl FnMut(u32) -> bool,
    ) -> bool {
        let changing = Changing::begin(&self.buckets[self.number(hash)].0);
        let (bucket, head, mut is_there) = (changing.bucket, changing.chain, is_there);
        let same = |entry| is_there(entry).then_some(());
        if find_in(bucket, hash, head, entries, same).is_some() {
            return false;
        }
        let slot = signature(hash) << 32 | u64::from(place.pack());
        match bucket[1..].iter().find(|word| word.load(Relaxed) == 0) {
            Some(free) => free.store(slot, Relaxed),
            None => {
                entries[place.entry as usize].set_next_in_chain(place.is_reverse(), head);
                changing.end(place.pack());
            }
        }
        true
    }

    /// Removes a place from the index.
    pub fn remove(&self, hash: u64, place: Place, entries: &Entries) {
        let changing = Changing::begin(&self.buckets[self.number(hash)].0);
        let (bucket, head) = (changing.bucket, changing.chain);
        if let Some(word) = bucket[1..].iter().find(|word| word.load(Relaxed) as u32 == place.pack()) {
            return word.store(0, Relaxed);
        }
        let next_of = |place: Place| entries[place.entry as usize].next_in_chain(place.is_reverse());
        let behind = next_of(place);
        if head == place.pack() {
            return changing.end(behind);
        }
        let mut at = Place::unpack(head);
        // Bound: an entry is in a chain at most once.
        while let Some(before) = at {
            let next = next_of(before);
            if next == place.pack() {
                entries[before.entry as usize].set_next_in_chain(before.is_reverse(), behind);
                return;
            }
            at = Place::unpack(next);
        }
    }

    /// How many places are used in each bucket of one share of the index, chains included.
    pub fn occupancy(&self, entries: &Entries, share: usize, shares: usize) -> u64 {
        let each = self.buckets.len() / shares;
        let of = |bucket: &Bucket| {
            let word = |word: &AtomicU64| word.load(Relaxed);
            let places = bucket.0[1..].iter().filter(|slot| word(slot) != 0).count() as u64;
            let chained = std::iter::successors(Place::unpack(chain(word(&bucket.0[0]))), |place| {
                Place::unpack(entries[place.entry as usize].next_in_chain(place.is_reverse()))
            });
            places + chained.take(CHAIN_MAX as usize).count() as u64
        };
        self.buckets[share * each..(share + 1) * each].iter().map(of).sum()
    }
}

#[inline(always)]
fn find_in<T>(
    bucket: &[AtomicU64; 8],
    hash: u64,
    head: u32,
    entries: &Entries,
    mut matches: impl FnMut(u32) -> Option<T>,
) -> Option<T> {
    for slot in &bucket[1..] {
        let word = slot.load(Acquire);
        if word >> 32 == signature(hash)
            && let Some(place) = Place::unpack(word as u32)
            && let Some(found) = matches(place.entry)
        {
            return Some(found);
        }
    }
    let mut at = Place::unpack(head);
    for _ in 0..CHAIN_MAX {
        let place = at?;
        if let Some(found) = matches(place.entry) {
            return Some(found);
        }
        at = Place::unpack(entries[place.entry as usize].next_in_chain(place.is_reverse()));
    }
    None
}

/// A bucket that only its holder changes.
struct Changing<'a> {
    bucket: &'a [AtomicU64; 8],
    version: u64,
    chain: u32,
    new_chain: std::cell::Cell<u32>,
}

impl<'a> Changing<'a> {
    fn begin(bucket: &'a [AtomicU64; 8]) -> Changing<'a> {
        loop {
            let word = bucket[0].load(Relaxed);
            let odd = word | CHANGING << 32;
            if word != odd && bucket[0].compare_exchange_weak(word, odd, Acquire, Relaxed).is_ok() {
                // Lookups see the odd version before they see any change.
                fence(Release);
                let chain = chain(word);
                return Changing { bucket, version: word >> 32, chain, new_chain: chain.into() };
            }
            std::hint::spin_loop();
        }
    }

    /// Ends the change and sets the head of the chain.
    fn end(self, chain: u32) {
        self.new_chain.set(chain);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let version = (self.version + VERSION_STEP) & 0xffff_ffff;
        self.bucket[0].store(version << 32 | u64::from(self.new_chain.get()), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken_out_also_in_a_crowd() {
        let index = Index::new(4).unwrap();
        let entries: Entries = Region::new(200).unwrap();
        let of = |n: u32| if n.is_multiple_of(3) { Which::Reverse } else { Which::Forward };
        let place = |n: u32| Place { entry: n, of: of(n) };
        // All in one bucket: most hang on its chain.
        let hash = |n: u32| u64::from(n) << 40 | 2;
        let find = |n: u32| index.find(hash(n), &entries, |entry| (entry == n).then_some(entry));
        for n in 1..100 {
            assert!(index.insert(hash(n), place(n), &entries, |entry| entry == n));
            assert!(!index.insert(hash(n), place(n), &entries, |entry| entry == n), "twice");
        }
        assert_eq!(index.occupancy(&entries, 0, 1), 99);
        for n in (1..100).rev().step_by(2).chain((2..100).step_by(2)) {
            assert_eq!(find(n), Some(n));
            index.remove(hash(n), place(n), &entries);
            assert_eq!(find(n), None);
        }
        assert_eq!(index.occupancy(&entries, 0, 1), 0);
    }

    #[test]
    fn what_is_there_is_found_while_somebody_holds_its_bucket() {
        let index = Index::new(4).unwrap();
        let entries: Entries = Region::new(8).unwrap();
        let hash = |n: u32| u64::from(n) << 40 | 2;
        assert!(index.insert(hash(1), Place { entry: 1, of: Which::Both }, &entries, |_| false));
        let find = |n: u32| index.find(hash(n), &entries, |entry| (entry == n).then_some(entry));
        let held = Changing::begin(&index.buckets[index.number(hash(1))].0);
        assert_eq!((find(1), find(2)), (Some(1), None));
        drop(held);
        assert_eq!((find(1), find(2)), (Some(1), None));
    }
}

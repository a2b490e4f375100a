//! A set of hashes with counts: which values of the first stages does a subtable have?
//!
//! Idea: a lookup whose hash over the first stages is not in the set needs no further search, and its
//! megaflow need not match the later stages' bits. Two values with one hash only cost a needless search.
//!
//! A table of words, each with 40 bits of hash and a count of 24, with linear probing. A count of 0 frees the
//! word for the same hash only, until the table is rebuilt. Replaced tables are freed by read-copy-update.
//!
//! Threads: one writer (the classifier's mutex), any number of readers.

use base::rcu::{Domain, RcuCell, Reader};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const COUNT_BITS: u32 = 24;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const WORDS_MIN: usize = 4;

/// See the module documentation.
pub(super) struct Values {
    words: RcuCell<Box<[AtomicU64]>>,
    /// Words that are not zero. The writer's.
    used: AtomicUsize,
    /// Words with a count. The writer's.
    live: AtomicUsize,
}

/// The part of the hash that is kept; never zero.
#[inline(always)]
fn signature(hash: u64) -> u64 {
    (hash >> COUNT_BITS) | 1
}

fn empty(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// The index where the signature is or would be.
#[inline(always)]
fn position(words: &[AtomicU64], hash: u64) -> (usize, u64) {
    let mask = words.len() - 1;
    // Bits of the signature, so that `rebuild` finds the place again; not the one that is always set.
    let mut at = (hash >> (COUNT_BITS + 1)) as usize & mask;
    loop {
        let word = words[at].load(Ordering::Relaxed);
        // There is always a zero: a third of the words at least.
        if word == 0 || word >> COUNT_BITS == signature(hash) {
            return (at, word);
        }
        at = (at + 1) & mask;
    }
}

impl Values {
    pub fn new(domain: Arc<Domain>) -> Values {
        let words = RcuCell::new(domain, empty(WORDS_MIN));
        Values { words, used: AtomicUsize::new(0), live: AtomicUsize::new(0) }
    }

    /// Whether a value with this hash may be in the set.
    #[inline]
    pub fn has(&self, hash: u64, reader: &Reader) -> bool {
        position(self.words.read(reader), hash).1 & COUNT_MAX != 0
    }

    /// Writer: counts a value in.
    pub fn insert(&self, hash: u64, reader: &Reader) {
        let mut words = self.words.read(reader);
        let (mut at, mut word) = position(words, hash);
        if word == 0 && (self.used.load(Ordering::Relaxed) + 1) * 3 > words.len() * 2 {
            self.rebuild();
            words = self.words.read(reader);
            (at, word) = position(words, hash);
        }
        self.used.fetch_add(usize::from(word == 0), Ordering::Relaxed);
        self.live.fetch_add(usize::from(word & COUNT_MAX == 0), Ordering::Relaxed);
        // A count that reached its maximum stays there: the value is never taken for gone.
        let count = (word & COUNT_MAX).saturating_add(1).min(COUNT_MAX);
        words[at].store(signature(hash) << COUNT_BITS | count, Ordering::Relaxed);
    }

    /// Writer: counts a value out that was counted in.
    pub fn remove(&self, hash: u64, reader: &Reader) {
        let words = self.words.read(reader);
        let (at, word) = position(words, hash);
        let count = word & COUNT_MAX;
        assert!(count != 0, "what is counted out was counted in");
        if count != COUNT_MAX {
            words[at].store(word - 1, Ordering::Relaxed);
            self.live.fetch_sub(usize::from(count == 1), Ordering::Relaxed);
        }
    }

    fn rebuild(&self) {
        let live = self.live.load(Ordering::Relaxed);
        self.words.update(|old| {
            let new = empty(((live + 1) * 3).next_power_of_two().max(WORDS_MIN));
            for word in old {
                let word = word.load(Ordering::Relaxed);
                if word & COUNT_MAX != 0 {
                    let (at, _) = position(&new, word);
                    new[at].store(word, Ordering::Relaxed);
                }
            }
            new
        });
        self.used.store(live, Ordering::Relaxed);
    }

    pub fn memory_bytes(&self, reader: &Reader) -> usize {
        size_of_val(&**self.words.read(reader))
    }
}

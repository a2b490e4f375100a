//! Where packets come from, as a number that fits into a plain packet's key.
//!
//! Two words of the key are the same for all packets of a round: both numbers of the input port, the
//! recirculation id, the packet mark. What a plain packet's key has in their place is a number that no other
//! pair of words was ever given while the keys in the cache live. It is asked for once a round.

use base::hash::HashKey;

const BUCKETS: usize = 512;
const WAYS: usize = 8;
/// Numbers have so many bits.
const NUMBER_BITS: u32 = 24;

#[derive(Clone, Copy, Default)]
struct Origin {
    words: [u64; 2],
    /// 0 for an empty place.
    number: u32,
}

/// The origins that were met last, with their numbers.
pub struct Origins {
    buckets: Box<[[Origin; WAYS]; BUCKETS]>,
    /// The last number given.
    last: u32,
}

impl Origins {
    pub fn new() -> Origins {
        Origins { buckets: Box::new([[Origin::default(); WAYS]; BUCKETS]), last: 0 }
    }

    /// The number of packets that have these words. `None` when numbers have run out: then no key may be left
    /// that has one, and [`Self::clear`] starts again.
    #[inline]
    pub fn number(&mut self, words: [u64; 2], secret: &HashKey) -> Option<u32> {
        let bucket = &mut self.buckets[secret.word(words[0], words[1]) as usize % BUCKETS];
        if let Some(known) = bucket.iter().find(|o| o.number != 0 && o.words == words) {
            return Some(known.number);
        }
        if self.last + 1 == 1 << NUMBER_BITS {
            return None;
        }
        self.last += 1;
        // One that gives way is given another number when it is met again: its keys are then unknown, and
        // age.
        let way = bucket.iter().position(|o| o.number == 0).unwrap_or(self.last as usize % WAYS);
        bucket[way] = Origin { words, number: self.last };
        Some(self.last)
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.buckets.as_flattened_mut().fill(Origin::default());
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_never_given_twice_and_kept_by_those_that_are_met_often() {
        let (mut origins, secret) = (Origins::new(), HashKey::from_seed(3));
        let mut given = HashSet::new();
        let first = origins.number([7, 0], &secret).unwrap();
        for n in 0..3 * (BUCKETS * WAYS) as u64 {
            assert!(given.insert(origins.number([n << 32, 1], &secret).unwrap()));
            assert_eq!(origins.number([n << 32, 1], &secret).unwrap() as usize, given.len() + 1);
        }
        assert!(!given.contains(&first));
        origins.last = (1 << NUMBER_BITS) - 1;
        assert_eq!(origins.number([8, 9], &secret), None);
        origins.clear();
        assert_eq!(origins.number([8, 9], &secret), Some(1));
    }
}

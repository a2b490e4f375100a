//! Which chunks the kernel holds: the accounting that makes leaks and double use impossible to overlook.
//!
//! A lent chunk is in a ring, in the driver's hands, or in one of the kernel's lists that no ring shows, so
//! the rings alone do not tell what must come back when a socket is closed. One bit per chunk does, at two
//! instructions per packet. It also makes it sound to wrap an address that the kernel returns: only a chunk
//! that this queue lent and that has not come back is accepted.

/// A set of chunk indices.
pub(super) struct Lent {
    words: Vec<u64>,
    count: u32,
}

impl Lent {
    /// An empty set of indices below `chunks`.
    pub(super) fn new(chunks: usize) -> Lent {
        Lent { words: vec![0; chunks.div_ceil(64)], count: 0 }
    }

    /// How many are in it.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Adds a chunk that is not in it. Panics where the index is out of range.
    #[inline(always)]
    pub(super) fn add(&mut self, idx: u32) {
        self.words[idx as usize / 64] |= 1 << (idx % 64);
        self.count += 1;
    }

    /// Removes a chunk; false if it was not in the set.
    #[inline(always)]
    pub(super) fn take(&mut self, idx: u32) -> bool {
        let Some(word) = self.words.get_mut(idx as usize / 64) else { return false };
        let bit = 1 << (idx % 64);
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.count -= 1;
        true
    }

    /// Takes all out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.count = 0;
        self.words.iter_mut().enumerate().flat_map(|(w, word)| {
            let mut bits = std::mem::take(word);
            std::iter::from_fn(move || {
                if bits == 0 {
                    return None;
                }
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                Some(w as u32 * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_comes_back_once() {
        let mut lent = Lent::new(100);
        lent.add(7);
        lent.add(99);
        assert!(lent.take(7));
        assert!(!lent.take(7));
        assert!(!lent.take(8));
        assert!(!lent.take(4_000_000));
        assert_eq!(lent.count(), 1);
        assert_eq!(lent.drain().collect::<Vec<_>>(), [99]);
        assert_eq!(lent.count(), 0);
        assert!(!lent.take(99));
    }

    #[test]
    fn draining_yields_every_member_in_order() {
        let mut lent = Lent::new(256);
        let members = [0, 1, 63, 64, 127, 128, 200, 255];
        members.iter().for_each(|m| lent.add(*m));
        assert_eq!(lent.drain().collect::<Vec<_>>(), members);
        assert_eq!(lent.drain().count(), 0);
    }
}

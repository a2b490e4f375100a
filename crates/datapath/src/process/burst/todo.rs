//! Lists of a burst's packets.

use super::Row;
use crate::cache::entry::Verdict;
use packet::BURST;

/// Indices of the packets in a burst that still need a lookup. Bound: the first stage that looks them up
/// pushes each packet of a batch at most once, and later stages only remove them.
#[derive(Clone, Copy)]
pub(super) struct Todo {
    idx: [u8; BURST],
    len: usize,
}

impl Todo {
    pub fn new() -> Todo {
        Todo { idx: [0; BURST], len: 0 }
    }

    /// The first so many packets.
    pub fn all(len: usize) -> Todo {
        Todo { idx: std::array::from_fn(|i| i as u8), len }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        // Masked, so that the compiler knows that every index lies within a burst.
        self.idx[..self.len.min(BURST)].iter().map(|&i| usize::from(i) % BURST)
    }

    /// Adds a packet, unless its verdict is known from its length.
    #[inline(always)]
    pub fn push_unknown(&mut self, i: usize, row: &Row) {
        if row.decision.verdict == Verdict::Unknown {
            self.push(i);
        }
    }

    #[inline(always)]
    pub fn push(&mut self, i: usize) {
        self.idx[self.len] = i as u8;
        self.len += 1;
    }

    /// Keeps those for which `keep` returns true.
    #[inline(always)]
    pub fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let mut kept = 0;
        for n in 0..self.len.min(BURST) {
            let i = self.idx[n];
            if keep(usize::from(i) % BURST) {
                self.idx[kept] = i;
                kept += 1;
            }
        }
        self.len = kept;
    }
}

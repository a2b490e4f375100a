//! The megaflows that the present burst has installed. Its packets were looked up before that, so one that is
//! about to be translated can only belong to one of these.

use arrayvec::ArrayVec;
use packet::BURST;

/// Bits by which nearly all packets are told from the flows of the burst.
const FILTER_WORDS: usize = 4;

/// What [`fresh_search`](super::FlowCache::fresh_search) has found out about a packet's masked key, under the
/// last of the masks.
pub struct Probed {
    /// 0: there was none.
    pub(super) mask: u16,
    pub(super) hash: u64,
    /// Block 0.
    pub(super) masked: [u64; 8],
}

/// Bound of both lists: each packet of a burst is translated at most once.
#[derive(Default)]
pub(super) struct Fresh {
    /// The hash and number of each megaflow.
    pub(super) flows: ArrayVec<(u64, u32), BURST>,
    /// Their masks, each once.
    pub(super) masks: ArrayVec<u16, BURST>,
    filter: [u64; FILTER_WORDS],
}

impl Fresh {
    pub(super) fn add(&mut self, mask: u16, hash: u64, megaflow: u32) {
        debug_assert!(!self.flows.is_full(), "a burst has no more packets");
        if !self.masks.contains(&mask) {
            let _ = self.masks.try_push(mask);
        }
        let _ = self.flows.try_push((hash, megaflow));
        let (word, bit) = Fresh::place(hash);
        self.filter[word] |= bit;
    }

    fn place(hash: u64) -> (usize, u64) {
        (hash as usize / 64 % FILTER_WORDS, 1 << (hash % 64))
    }

    /// False for nearly all hashes that none of them has.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = Fresh::place(hash);
        self.filter[word] & bit != 0
    }
}

//! The megaflows that the present burst has installed. Its packets were looked up before that, so one that is
//! about to be translated can only belong to one of these.

use super::masks::{MaskEntry, mega_hash};
use arrayvec::ArrayVec;
use base::hash::HashKey;
use flow::Key;
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
    flows: ArrayVec<(u64, u32), BURST>,
    /// Their masks, each once.
    masks: ArrayVec<u16, BURST>,
    filter: [u64; FILTER_WORDS],
}

impl Fresh {
    pub(super) fn clear(&mut self) {
        self.flows.clear();
        self.masks.clear();
        self.filter = [0; FILTER_WORDS];
    }

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
    fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = Fresh::place(hash);
        self.filter[word] & bit != 0
    }

    /// The megaflow to which a key belongs, or 0. `has` knows whether the one with a number still does.
    pub(super) fn search(
        &self,
        masks: &[MaskEntry],
        secret: &HashKey,
        key: &Key,
        has: impl Fn(u32, &Probed) -> bool,
    ) -> (u32, Probed) {
        let mut probed = Probed { mask: 0, hash: 0, masked: [0; 8] };
        for &mask in &self.masks {
            let entry = &masks[usize::from(mask)];
            // If no flow of it is left, another mask may get its number.
            if entry.bodies == 0 {
                continue;
            }
            probed.mask = mask;
            probed.hash = mega_hash(entry, key, secret, &mut probed.masked);
            if !self.may_have(probed.hash) {
                continue;
            }
            let alike = self.flows.iter().filter(|(hash, _)| *hash == probed.hash);
            for &(_, megaflow) in alike {
                if has(megaflow, &probed) {
                    return (megaflow, probed);
                }
            }
        }
        (0, probed)
    }
}

//! The masks in use, which of them the flows of each input port have, and masking a key for a look-up.

use super::entry::{Arena, Entry, WIDE_BLOCKS};
use super::{PORT_MASKS_MAX, sorts::NO_SORT};
use arrayvec::ArrayVec;
use base::hash::HashKey;
use flow::{Key, Mask};

/// A mask in use, with what the lookup needs ready.
pub struct MaskEntry {
    pub mask: Mask,
    pub present: u16,
    salt: u64,
    /// Megaflows under it: it is searched while there are any.
    pub flows: u32,
    /// Bodies that name it, megaflows' and exact entries': it is given another meaning only when there are none.
    pub bodies: u32,
    /// The first of the sorts of its flows, 0 for none.
    pub first_sort: u16,
}

impl MaskEntry {
    pub fn new(mask: &Mask, id: usize) -> MaskEntry {
        let mask = mask.clone().canonical();
        // Scrambled, so that flows that differ in their masks alone do not share buckets.
        let salt = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (id as u64) << 17;
        MaskEntry { present: mask.0.present(), mask, salt, flows: 0, bodies: 0, first_sort: NO_SORT }
    }

    /// The mask of flows that are cached alone: all bits.
    pub fn exact() -> MaskEntry {
        let mut all = Mask::wild();
        for b in 0..flow::BLOCKS {
            all.0.put(b, [u64::MAX; 8]);
        }
        MaskEntry { present: all.0.present(), mask: all, salt: 0, flows: 0, bodies: 0, first_sort: NO_SORT }
    }
}

/// Masks the key into `masked` (block 0); the hash of all of it.
#[inline(always)]
pub fn mega_hash(m: &MaskEntry, key: &Key, secret: &HashKey, masked: &mut [u64; 8]) -> u64 {
    let (k, bits) = (&key.common().0, &m.mask.0.common().0);
    for w in 0..8 {
        masked[w] = k[w] & bits[w];
    }
    let mut hash = secret.block(masked) ^ m.salt;
    let mut left = m.present & !1;
    while left != 0 {
        let b = left.trailing_zeros() as usize;
        left &= left - 1;
        let (k, bits) = (&key.block(b).0, &m.mask.0.block(b).0);
        hash = secret.combine(hash, secret.block(&std::array::from_fn(|w| k[w] & bits[w])));
    }
    hash
}

/// Whether the key's further blocks are the megaflow's under its mask.
#[inline(never)]
pub fn masked_wide_equal(m: &MaskEntry, key: &Key, arena: &Arena, e: &Entry) -> bool {
    let blocks = m.mask.0.present_blocks().filter(|&b| b > 0);
    blocks.zip(arena.run(e.wide, wide_len(e.present))).all(|(b, stored)| {
        let (k, bits) = (&key.block(b).0, &m.mask.0.block(b).0);
        (0..8).all(|w| k[w] & bits[w] == stored[w])
    })
}

/// The masks of one input port's flows, the most hit first.
#[derive(Default)]
pub struct PortMasks {
    /// Those of which there are megaflows.
    pub list: ArrayVec<PortMask, PORT_MASKS_MAX>,
}

pub struct PortMask {
    pub id: u16,
    flows: u32,
    pub hits: u32,
}

impl PortMasks {
    pub fn has_room_for(&self, id: u16) -> bool {
        !self.list.is_full() || self.list.iter().any(|m| m.id == id)
    }

    pub fn add(&mut self, id: u16) {
        match self.list.iter_mut().find(|m| m.id == id) {
            Some(m) => m.flows += 1,
            // Bound: a new mask is chosen only where `has_room_for` said so or the list was not full, see `mask_for`.
            None => self.list.push(PortMask { id, flows: 1, hits: 0 }),
        }
    }

    pub fn remove(&mut self, id: u16) {
        if let Some(n) = self.list.iter().position(|m| m.id == id) {
            self.list[n].flows -= 1;
            if self.list[n].flows == 0 {
                self.list.remove(n);
            }
        }
    }
}

/// Blocks beyond the first.
#[inline(always)]
pub fn wide_len(present: u16) -> usize {
    (present & WIDE_BLOCKS).count_ones() as usize
}

/// The input port's number in a key's block 0, which every mask holds.
#[inline(always)]
pub fn dp_port(common: &[u64; 8]) -> usize {
    (common[0] >> 16 & 0xffff) as usize
}

//! The masks in use, which masks each input port's flows have, and how a key is masked for a lookup.

use super::entry::{Arena, EntryKey};
use crate::conntrack;
use arrayvec::ArrayVec;
use base::PortNo;
use base::hash::HashKey;
use flow::extract::{PlainKey, plain_mask};
use flow::{Key, Mask};

/// Maximum number of distinct masks per worker.
pub const MASKS_MAX: usize = 128;
/// Maximum number of distinct masks of flows from one input port.
pub const PORT_MASKS_MAX: usize = 32;
/// The mask number of flows that are cached alone: every bit matters.
pub const MASK_EXACT: u16 = 0;
/// The sort number of flows that belong to no sort.
pub const NO_SORT: u16 = 0;
/// Hash chains of masks: about as many as there can be masks.
const CHAINS: usize = 128;

/// All masks of a worker, indexed by number and found by hash.
pub struct Masks {
    all: Vec<MaskEntry>,
    /// By hash, the first of each chain, 0 for none.
    first: [u16; CHAINS],
    /// The one that was found last, 0 for none.
    last: u16,
}

impl Masks {
    /// Contains only [`MASK_EXACT`], which no translation asks for.
    pub fn new() -> Masks {
        let mut all = Vec::with_capacity(MASKS_MAX + 1);
        all.push(MaskEntry::exact());
        Masks { all, first: [0; CHAINS], last: 0 }
    }

    /// The number of a mask in use.
    pub fn find(&mut self, mask: &Mask, secret: &HashKey) -> Option<u16> {
        let last = &self.all[usize::from(self.last)];
        if self.last != 0 && last.bodies > 0 && last.mask == *mask {
            return Some(self.last);
        }
        let hash = hash_of(mask, secret);
        let mut n = self.first[hash as usize % CHAINS];
        while n != 0 {
            let m = &self.all[usize::from(n)];
            if m.hash == hash && m.bodies > 0 && m.mask == *mask {
                self.last = n;
                return Some(n);
            }
            n = m.next;
        }
        None
    }

    /// Allocates a number for a new mask. `None` if all are in use.
    pub fn add(&mut self, mask: &Mask, secret: &HashKey) -> Option<u16> {
        let unused = (1..self.all.len()).find(|&n| self.all[n].bodies == 0);
        let n = match unused {
            Some(n) => {
                self.unchain(n as u16);
                n
            }
            None if self.all.len() <= MASKS_MAX => {
                self.all.push(MaskEntry::exact());
                self.all.len() - 1
            }
            None => return None,
        };
        let hash = hash_of(mask, secret);
        let first = &mut self.first[hash as usize % CHAINS];
        self.all[n] = MaskEntry { hash, next: *first, ..MaskEntry::new(mask, n) };
        *first = n as u16;
        Some(n as u16)
    }

    fn unchain(&mut self, n: u16) {
        let MaskEntry { hash, next, .. } = self.all[usize::from(n)];
        let first = &mut self.first[hash as usize % CHAINS];
        if *first == n {
            *first = next;
            return;
        }
        let mut at = usize::from(*first);
        while self.all[at].next != n {
            at = usize::from(self.all[at].next);
        }
        self.all[at].next = next;
    }
}

impl std::ops::Deref for Masks {
    type Target = [MaskEntry];
    #[inline(always)]
    fn deref(&self) -> &[MaskEntry] {
        &self.all
    }
}

impl std::ops::DerefMut for Masks {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [MaskEntry] {
        &mut self.all
    }
}

/// Equal masks have equal hashes: a block of zeros counts like a missing one.
fn hash_of(mask: &Mask, secret: &HashKey) -> u64 {
    let blocks = mask.0.present_blocks().map(|b| (b, mask.0.block(b).0));
    let held = blocks.filter(|(_, words)| *words != [0; 8]);
    held.fold(0, |hash, (b, words)| secret.combine(hash, secret.block(&words) ^ b as u64))
}

/// A mask in use, with what the lookup needs ready.
pub struct MaskEntry {
    pub mask: Mask,
    pub present: u16,
    /// The same for plain packets' packed keys; `None` if these do not tell whether a packet has its bits.
    pub packed: Option<PlainKey>,
    salt: u64,
    hash: u64,
    /// The next one in its chain, 0 for none.
    next: u16,
    /// Megaflows under it. It is searched only while there are any.
    pub flows: u32,
    /// Bodies of megaflows and exact entries that refer to it. Its number is reused only when there are none.
    pub bodies: u32,
    /// The first of the sorts of its flows, 0 for none.
    pub first_sort: u16,
}

impl MaskEntry {
    pub fn new(mask: &Mask, id: usize) -> MaskEntry {
        let mask = mask.clone().canonical();
        // Scrambled, so that flows that differ only in their masks do not share buckets.
        let salt = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (id as u64) << 17;
        MaskEntry {
            present: mask.0.present(),
            packed: (!conntrack::reads_original(&mask)).then(|| plain_mask(&mask)),
            mask,
            salt,
            hash: 0,
            next: 0,
            flows: 0,
            bodies: 0,
            first_sort: NO_SORT,
        }
    }

    /// The mask of flows that are cached alone: all bits.
    pub fn exact() -> MaskEntry {
        let mut all = Mask::wild();
        for b in 0..flow::BLOCKS {
            all.0.put(b, [u64::MAX; 8]);
        }
        MaskEntry {
            present: all.0.present(),
            packed: None,
            mask: all,
            salt: 0,
            hash: 0,
            next: 0,
            flows: 0,
            bodies: 0,
            first_sort: NO_SORT,
        }
    }
}

/// Masks the key's block 0 into `masked`; returns the hash of the whole masked key.
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

/// Whether the key's further blocks equal the megaflow's under its mask.
#[inline(never)]
pub fn masked_wide_equal(m: &MaskEntry, key: &Key, arena: &Arena, e: &EntryKey) -> bool {
    let blocks = m.mask.0.present_blocks().filter(|&b| b > 0);
    let (start, len) = e.further();
    blocks.zip(arena.run(start, len)).all(|(b, stored)| {
        let (k, bits) = (&key.block(b).0, &m.mask.0.block(b).0);
        (0..8).all(|w| k[w] & bits[w] == stored[w])
    })
}

/// The masks of one input port's flows, the most hit first.
#[derive(Default)]
pub struct PortMasks {
    /// The masks that currently have megaflows.
    pub list: ArrayVec<PortMask, PORT_MASKS_MAX>,
}

pub struct PortMask {
    pub id: u16,
    flows: u32,
    pub hits: u32,
    /// The rounds of recirculation in which its flows' packets are: [`round_bit`].
    rounds: u64,
}

impl PortMasks {
    #[inline(always)]
    pub fn has_room_for(&self, id: u16) -> bool {
        !self.list.is_full() || self.has(id)
    }

    /// Not inlined: with the length that the list then has, that would be a look at every place.
    #[inline(never)]
    fn has(&self, id: u16) -> bool {
        self.list.iter().any(|m| m.id == id)
    }

    /// Records a new flow with this mask, for packets in these rounds.
    pub fn add(&mut self, id: u16, rounds: u64) {
        match self.list.iter_mut().find(|m| m.id == id) {
            Some(m) => (m.flows, m.rounds) = (m.flows + 1, m.rounds | rounds),
            // Bound: a new mask is chosen only where `has_room_for` said so or the list was not full, see
            // `mask_for`.
            None => self.list.push(PortMask { id, flows: 1, hits: 0, rounds }),
        }
    }

    /// List positions and numbers of the masks that may have flows for packets in this round.
    #[inline(always)]
    pub fn of_round(&self, round: u64) -> impl Iterator<Item = (u8, u16)> {
        self.list.iter().zip(0..).filter(move |(m, _)| m.rounds & round != 0).map(|(m, n)| (n, m.id))
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

/// The bit for the rounds under one recirculation id. One id in 64 shares it.
#[inline(always)]
pub fn round_bit(recirc_id: u32) -> u64 {
    1 << (recirc_id.wrapping_mul(0x9e37_79b9) >> 26)
}

/// Like [`round_bit`], for a flow with this mask and key.
pub fn rounds_of(m: &MaskEntry, masked: &[u64; 8]) -> u64 {
    let is_whole = (m.mask.0.common().0[0] >> 32) as u32 == u32::MAX;
    if is_whole { round_bit((masked[0] >> 32) as u32) } else { u64::MAX }
}

/// The input port's number in block 0 of a key. Every mask includes it.
#[inline(always)]
pub fn dp_port(common: &[u64; 8]) -> PortNo {
    PortNo((common[0] >> 16 & 0xffff) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::FieldId;

    #[test]
    fn a_round_searches_the_masks_that_have_had_flows_of_it() {
        let recirc_id = |bits: u128| {
            let mut mask = Mask::wild();
            mask.set(FieldId::RecircId, bits);
            MaskEntry { mask, ..MaskEntry::exact() }
        };
        let (whole, part) = (recirc_id(u32::MAX.into()), recirc_id(0xff));
        let of = |m: &MaskEntry, id: u32| rounds_of(m, &[u64::from(id) << 32; 8]);
        let mut masks = PortMasks::default();
        masks.add(1, of(&whole, 0));
        masks.add(2, of(&whole, 7));
        masks.add(2, of(&whole, 8));
        masks.add(3, of(&part, 0));
        let searched = |masks: &PortMasks, id| masks.of_round(round_bit(id)).collect::<Vec<_>>();
        assert_eq!(searched(&masks, 0), [(0, 1), (2, 3)]);
        assert_eq!(searched(&masks, 7), [(1, 2), (2, 3)]);
        assert_eq!(searched(&masks, 8), [(1, 2), (2, 3)]);
        assert_eq!(searched(&masks, 9), [(2, 3)], "of all rounds");
        masks.remove(2);
        assert_eq!(searched(&masks, 8), [(1, 2), (2, 3)]);
        masks.remove(2);
        assert_eq!(searched(&masks, 7), [(1, 3)]);
    }

    #[test]
    fn masks_are_found_by_what_they_hold_and_numbers_are_given_again() {
        let secret = HashKey::from_seed(1);
        let mask = |bits: u128| {
            let mut mask = Mask::wild();
            mask.set(FieldId::NwSrc, bits);
            mask.set(FieldId::Ipv6Src, bits >> 4);
            mask
        };
        let mut masks = Masks::new();
        // Twice as many as there is room for, each half in use at a time.
        for bits in 1..=2 * MASKS_MAX as u128 {
            assert_eq!(masks.find(&mask(bits), &secret), None);
            let n = masks.add(&mask(bits), &secret).expect("half of them are in use");
            masks[usize::from(n)].bodies = 1;
            if let Some(old) = bits.checked_sub(MASKS_MAX as u128 / 2).filter(|old| *old > 0) {
                let n = masks.find(&mask(old), &secret).expect("it is in use");
                masks[usize::from(n)].bodies = 0;
                assert_eq!(masks.find(&mask(old), &secret), None);
            }
        }
        for bits in 2 * MASKS_MAX as u128 - MASKS_MAX as u128 / 2 + 1..=2 * MASKS_MAX as u128 {
            let mut padded = mask(bits);
            padded.0.block_mut(flow::key::B_TUNNEL);
            assert!(masks.find(&padded, &secret).is_some(), "{bits}");
        }
        for bits in 1_000.. {
            let Some(n) = masks.add(&mask(bits), &secret) else { break };
            masks[usize::from(n)].bodies = 1;
        }
        assert_eq!(masks.iter().filter(|m| m.bodies > 0).count(), MASKS_MAX);
    }
}

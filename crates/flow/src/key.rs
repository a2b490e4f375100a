//! The flow key: every field that a rule can match, at a fixed place in twelve blocks of 64 bytes.
//!
//! Idea: nearly every packet is described by block 0 alone (port, Ethernet, two VLAN tags, IPv4, ports,
//! flags, connection state), which is one cache line: one hash, one compare. IPv6 adds block 1, rarer
//! protocols others. `present` says which blocks hold something; the content of an absent block is
//! *unspecified* and counts as zero, so that a key can be reused for the next packet without clearing.
//!
//! A field's bits hold its number in the usual sense (an IPv4 address is the big-endian number), so a prefix
//! mask is a run of high bits of the field. Places are in [`crate::field`].
//!
//! In a mask, a 1-bit says "this bit decided". A needless 1-bit costs speed; a missing one misforwards.

/// Number of blocks.
pub const BLOCKS: usize = 12;

/// Port, Ethernet, VLAN, IPv4, transport, connection state: what nearly every packet needs.
pub const B_COMMON: usize = 0;
/// IPv6 addresses and flow label, neighbour discovery target.
pub const B_IPV6: usize = 1;
/// ARP and neighbour-discovery link-layer addresses, MPLS, IGMP, NSH.
pub const B_RARE: usize = 2;
/// Connection tracking: mark, label, original IPv4 tuple.
pub const B_CT: usize = 3;
/// Connection tracking: original IPv6 addresses.
pub const B_CT6: usize = 4;
/// The sixteen 32-bit registers.
pub const B_REGS: usize = 5;
/// Metadata and other values that only the pipeline sets.
pub const B_PIPELINE: usize = 6;
/// Tunnel header.
pub const B_TUNNEL: usize = 7;
/// First of four blocks of tunnel options (256 bytes).
pub const B_TUN_META: usize = 8;

/// The numbers of the bits that are set, ascending.
#[inline]
fn set_bits(bits: u16) -> impl Iterator<Item = usize> {
    let mut left = bits;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let b = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(b)
    })
}

/// One cache line of a key or mask: eight words.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(align(64))]
pub struct Block(pub [u64; 8]);

/// All bits zero.
pub const ZERO_BLOCK: Block = Block([0; 8]);

/// A packet's fields. See the module documentation; equality treats an absent block as zero.
#[repr(align(64))]
pub struct Key {
    blocks: [Block; BLOCKS],
    present: u16,
}

impl Default for Key {
    fn default() -> Self {
        Key { blocks: [ZERO_BLOCK; BLOCKS], present: 0 }
    }
}

impl Clone for Key {
    fn clone(&self) -> Key {
        Key { blocks: self.blocks, present: self.present }
    }

    /// Copies the present blocks alone: one or two of eleven, in most keys.
    #[inline]
    fn clone_from(&mut self, other: &Key) {
        other.present_blocks().for_each(|b| self.blocks[b] = other.blocks[b]);
        self.present = other.present;
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        set_bits(self.present | other.present).all(|b| self.block(b) == other.block(b))
    }
}
impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for b in 0..BLOCKS {
            self.block(b).0.hash(state);
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut map = f.debug_map();
        for b in self.present_blocks() {
            map.entry(&b, &format_args!("{:016x?}", self.blocks[b].0));
        }
        map.finish()
    }
}

impl Key {
    /// Bit `b` is set when block `b` is present.
    #[inline(always)]
    pub fn present(&self) -> u16 {
        self.present
    }

    /// Forgets everything, in constant time.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.present = 0;
    }

    /// Declares exactly the blocks in the bitmap present, with their existing contents. For extraction, which
    /// writes whole blocks with [`Self::put`], and for narrowing.
    #[inline(always)]
    pub fn set_present(&mut self, present: u16) {
        self.present = present;
    }

    /// Whether block `b` is present.
    #[inline(always)]
    pub fn has(&self, b: usize) -> bool {
        self.present & (1 << b) != 0
    }

    /// Block `b`, zero if it is absent.
    #[inline(always)]
    pub fn block(&self, b: usize) -> &Block {
        if self.has(b) { &self.blocks[b] } else { &ZERO_BLOCK }
    }

    /// Block 0 without looking at `present`: extraction always writes it.
    #[inline(always)]
    pub fn common(&self) -> &Block {
        &self.blocks[B_COMMON]
    }

    /// Writes a whole block and makes it present.
    #[inline(always)]
    pub fn put(&mut self, b: usize, words: [u64; 8]) {
        self.blocks[b].0 = words;
        self.present |= 1 << b;
    }

    /// Block `b` to be changed; zeroed first if it was absent.
    #[inline]
    pub fn block_mut(&mut self, b: usize) -> &mut Block {
        if !self.has(b) {
            self.blocks[b] = ZERO_BLOCK;
            self.present |= 1 << b;
        }
        &mut self.blocks[b]
    }

    /// The word at block `b`, word `w`.
    #[inline(always)]
    pub fn word(&self, b: usize, w: usize) -> u64 {
        if self.has(b) { self.blocks[b].0[w] } else { 0 }
    }

    /// Sets the word at block `b`, word `w`. Setting zero in an absent block changes nothing.
    #[inline]
    pub fn set_word(&mut self, b: usize, w: usize, value: u64) {
        if value != 0 || self.has(b) {
            self.block_mut(b).0[w] = value;
        }
    }

    /// Numbers of the present blocks, ascending.
    #[inline]
    pub fn present_blocks(&self) -> impl Iterator<Item = usize> + use<> {
        set_bits(self.present)
    }

    /// This key with every bit outside the mask cleared; exactly the mask's blocks are present.
    pub fn masked(&self, mask: &Mask) -> Key {
        let mut out = Key::default();
        for b in mask.0.present_blocks() {
            let (k, m) = (self.block(b), &mask.0.blocks[b]);
            out.put(b, std::array::from_fn(|w| k.0[w] & m.0[w]));
        }
        out
    }

    /// Whether `self` and `other` agree on every bit of the mask.
    pub fn equal_under(&self, other: &Key, mask: &Mask) -> bool {
        mask.0.present_blocks().all(|b| {
            let (x, y, m) = (self.block(b), other.block(b), &mask.0.blocks[b]);
            (0..8).all(|w| (x.0[w] ^ y.0[w]) & m.0[w] == 0)
        })
    }
}

/// Which bits of a key matter. A 1-bit means that the bit was examined.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Mask(pub Key);

impl Mask {
    /// The mask under which all keys are equal.
    pub fn wild() -> Mask {
        Mask::default()
    }

    /// Whether no bit matters.
    pub fn is_wild(&self) -> bool {
        self.0.present_blocks().all(|b| self.0.blocks[b] == ZERO_BLOCK)
    }

    /// Adds the bits of `other`.
    pub fn unite(&mut self, other: &Mask) {
        for b in other.0.present_blocks() {
            let mine = self.0.block_mut(b);
            for w in 0..8 {
                mine.0[w] |= other.0.blocks[b].0[w];
            }
        }
    }

    /// Whether every bit of `other` is in `self` too.
    pub fn covers(&self, other: &Mask) -> bool {
        other.0.present_blocks().all(|b| {
            let mine = self.0.block(b);
            (0..8).all(|w| other.0.blocks[b].0[w] & !mine.0[w] == 0)
        })
    }

    /// Adds bits of one word.
    #[inline]
    pub fn add_word(&mut self, b: usize, w: usize, bits: u64) {
        if bits != 0 {
            self.0.block_mut(b).0[w] |= bits;
        }
    }

    /// The bits that both hold.
    pub fn intersect(&self, other: &Mask) -> Mask {
        Mask(self.0.masked(other))
    }

    /// Drops blocks in which no bit is set, so that equal masks have equal `present`.
    pub fn canonical(mut self) -> Mask {
        for b in 0..BLOCKS {
            if self.0.has(b) && self.0.blocks[b] == ZERO_BLOCK {
                self.0.present &= !(1 << b);
            }
        }
        self
    }

    /// Number of 1-bits.
    pub fn count_ones(&self) -> u32 {
        self.0.present_blocks().map(|b| self.0.blocks[b].0.iter().map(|w| w.count_ones()).sum::<u32>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_block_counts_as_zero_whatever_lies_in_it() {
        let mut stale = Key::default();
        stale.put(B_IPV6, [7; 8]);
        stale.clear();
        assert_eq!(stale, Key::default());
        assert_eq!(stale.word(B_IPV6, 3), 0);
        stale.set_word(B_IPV6, 0, 1);
        assert_eq!(stale.block(B_IPV6).0, [1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn masks_unite_cover_and_intersect() {
        let mut a = Mask::wild();
        a.add_word(0, 1, 0xff);
        let mut b = a.clone();
        b.add_word(5, 0, 0xf);
        assert!(b.covers(&a) && !a.covers(&b));
        assert_eq!(b.intersect(&a).canonical(), a);
        a.unite(&b);
        assert_eq!(a, b);
        assert_eq!(a.count_ones(), 12);
    }
}

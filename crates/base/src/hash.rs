//! The keyed, non-linear hash of every table that a packet's bytes index.
//!
//! A CRC's collisions do not depend on its seed, so anyone who chooses packets could produce them; here the
//! secret enters each multiplication, and folding the 128-bit product is not linear in the input (the
//! multiply-fold of wyhash and its relatives). Not cryptographic: it withstands an attacker who sees
//! forwarding, not one who reads hashes.

/// The secret of one process (or one test). Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct HashKey([u64; 4]);

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Makes each bit of the result depend on all of `z` (the finish of splitmix64).
#[inline(always)]
pub fn mixed(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl HashKey {
    /// Expands a seed into a key. Equal seeds give equal hashes, for replays.
    pub fn from_seed(seed: u64) -> HashKey {
        let mut state = seed;
        HashKey(std::array::from_fn(|_| {
            // splitmix64: each step is a bijection of the counter, so the words differ.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed(state) | 1
        }))
    }

    /// A key from the operating system's randomness, through the standard library's hasher seed.
    pub fn random() -> HashKey {
        use std::hash::{BuildHasher, Hasher};
        HashKey::from_seed(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// The secret itself, for other hashes of the same kind.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64; 4] {
        &self.0
    }

    /// Hashes one block of 64 bytes: four independent multiplications, then a finish.
    #[inline(always)]
    pub fn block(&self, w: &[u64; 8]) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        let a = fold(w[0] ^ k0, w[1] ^ k1);
        let b = fold(w[2] ^ k1, w[3] ^ k2);
        let c = fold(w[4] ^ k2, w[5] ^ k3);
        let d = fold(w[6] ^ k3, w[7] ^ k0);
        fold(a.wrapping_add(b.rotate_left(23)) ^ k2, c.wrapping_add(d.rotate_left(41)) ^ k1)
    }

    /// Hashes 32 bytes: two independent multiplications, then a third one. Not the hash of [`Self::block`]
    /// for any block.
    #[inline(always)]
    pub fn quad(&self, w: &[u64; 4]) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        let a = fold(w[0] ^ k0, w[1] ^ k1);
        let b = fold(w[2] ^ k2, w[3] ^ k3);
        fold(a, b)
    }

    /// Continues a hash with one more word.
    #[inline(always)]
    pub fn word(&self, state: u64, w: u64) -> u64 {
        fold(state ^ w ^ self.0[0], self.0[1] ^ state.rotate_left(32))
    }

    /// Combines the hash of another block into a running one.
    #[inline(always)]
    pub fn combine(&self, state: u64, next: u64) -> u64 {
        fold(state.rotate_left(29) ^ self.0[2], next ^ self.0[3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_changes_about_half_of_the_hash() {
        let key = HashKey::from_seed(7);
        let mut total = [0; 2];
        for bit in 0..512 {
            let mut w = [0x0123_4567_89ab_cdefu64; 8];
            let quad = |w: &[u64; 8]| key.quad(w.first_chunk().expect("eight words"));
            let before = (key.block(&w), quad(&w));
            w[bit / 64] ^= 1 << (bit % 64);
            total[0] += (before.0 ^ key.block(&w)).count_ones();
            // The second half of the block is not hashed: its bits count as those of the first.
            let first_half = if bit < 256 { before.1 ^ quad(&w) } else { 0 };
            total[1] += 2 * first_half.count_ones();
        }
        let mean = total.map(|flipped| f64::from(flipped) / 512.0);
        assert!(mean.iter().all(|bits| (28.0..36.0).contains(bits)), "mean flipped bits {mean:?}");
    }

    #[test]
    fn another_key_gives_another_hash() {
        let w = [1u64; 8];
        assert_ne!(HashKey::from_seed(1).block(&w), HashKey::from_seed(2).block(&w));
    }
}

//! Eight 16-bit lanes compared at once.

/// Two bits for each of the eight lanes, from the lowest on, both set where the lane equals `wanted`.
#[inline(always)]
pub fn equal_lanes(lanes: &[u64; 2], wanted: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { equal_lanes_sse2(lanes, wanted) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        equal_lanes_scalar(lanes, wanted)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn equal_lanes_sse2(lanes: &[u64; 2], wanted: u16) -> u32 {
    use core::arch::x86_64::{_mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi16};
    // SAFETY: the two words are 16 bytes to read; this load asks for no alignment.
    let lanes = unsafe { _mm_loadu_si128(lanes.as_ptr().cast()) };
    _mm_movemask_epi8(_mm_cmpeq_epi16(lanes, _mm_set1_epi16(wanted as i16))) as u32
}

/// Whether four words in memory are equal, in fewer steps than by words.
#[inline(always)]
pub fn equal_quads(a: &[u64; 4], b: &[u64; 4]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { equal_quads_sse2(a, b) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        a == b
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn equal_quads_sse2(a: &[u64; 4], b: &[u64; 4]) -> bool {
    use core::arch::x86_64::{_mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
    let half = |words: &[u64; 4], n: usize| {
        // SAFETY: two of four words are 16 bytes to read; this load asks for no alignment.
        unsafe { _mm_loadu_si128(words[2 * n..2 * n + 2].as_ptr().cast()) }
    };
    let equal = |n| _mm_cmpeq_epi8(half(a, n), half(b, n));
    _mm_movemask_epi8(_mm_and_si128(equal(0), equal(1))) == 0xffff
}

/// The same without vectors.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn equal_lanes_scalar(lanes: &[u64; 2], wanted: u16) -> u32 {
    let lane = |n: usize| (lanes[n / 4] >> (n % 4 * 16)) as u16;
    (0..8).map(|n| if lane(n) == wanted { 3 << (2 * n) } else { 0 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_words_are_equal_only_if_all_their_bits_are() {
        let a = [1, u64::MAX, 0, 1 << 63];
        assert!(equal_quads(&a, &a));
        for bit in 0..256 {
            let mut b = a;
            b[bit / 64] ^= 1 << (bit % 64);
            assert!(!equal_quads(&a, &b), "{bit}");
        }
    }

    #[test]
    fn lanes_are_compared_exactly_with_and_without_vectors() {
        let lanes = [0x1234_0000_1235_1234, 0x8000_7fff_ffff_0000];
        for (wanted, bits) in [(0x1234, 0b1100_0011), (0, 0x0330), (0x8000, 0xc000), (0xffff, 0x0c00), (1, 0)]
        {
            assert_eq!(equal_lanes(&lanes, wanted), bits, "{wanted:x}");
            assert_eq!(equal_lanes_scalar(&lanes, wanted), bits, "{wanted:x}");
        }
    }
}

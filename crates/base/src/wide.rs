//! Instructions that most processors have and their baseline does not: AVX2, AES rounds, BMI.
//!
//! A [`Wide`] proves that this processor has them, so its methods are safe to call. Code that is generic over
//! [`Lanes`] exists twice. A loop is passed to [`Lanes::run`] as a whole: the compiler inlines nothing that
//! needs these instructions into code without them, and a call per packet costs more than they gain.
//!
//! Invariants: both implementations give the same results, except those of [`Lanes::hash`], which differ.

use crate::hash::HashKey;
use crate::lanes::equal_quads;

/// How four words are made, compared and hashed.
pub trait Lanes: Copy {
    /// Runs code, compiled with these instructions as far as it is inlined.
    fn run<R>(self, code: impl FnOnce() -> R) -> R;

    /// The sixteen bytes of each source, of which `mask` remains, with the bits of `more` set, and those of
    /// `first` in the first word. Words are little-endian.
    fn join(self, sources: [&[u8; 16]; 2], mask: &[u64; 4], more: &[u64; 4], first: u64) -> [u64; 4];

    /// Whether all bits under `mask` are those of `wanted`.
    fn matches(self, bytes: &[u8; 16], wanted: &[u8; 16], mask: &[u8; 16]) -> bool;

    /// Whether all words are equal.
    fn equal(self, a: &[u64; 4], b: &[u64; 4]) -> bool;

    /// A keyed, non-linear hash.
    fn hash(self, key: &HashKey, words: &[u64; 4]) -> u64;

    /// The same of twice as many words.
    fn hash_both(self, key: &HashKey, halves: &[[u64; 4]; 2]) -> u64;
}

/// What every processor of this kind has.
#[derive(Clone, Copy, Debug)]
pub struct Baseline;

impl Lanes for Baseline {
    #[inline(always)]
    fn run<R>(self, code: impl FnOnce() -> R) -> R {
        code()
    }

    #[inline(always)]
    fn join(self, [low, high]: [&[u8; 16]; 2], mask: &[u64; 4], more: &[u64; 4], first: u64) -> [u64; 4] {
        let halves = |bytes: &[u8; 16]| {
            let both = u128::from_le_bytes(*bytes);
            [both as u64, (both >> 64) as u64]
        };
        let ([a, b], [c, d]) = (halves(low), halves(high));
        let words = [a & mask[0], b & mask[1], c & mask[2], d & mask[3]];
        let [a, b, c, d] = words;
        [a | more[0] | first, b | more[1], c | more[2], d | more[3]]
    }

    #[inline(always)]
    fn matches(self, bytes: &[u8; 16], wanted: &[u8; 16], mask: &[u8; 16]) -> bool {
        let [bytes, wanted, mask] = [bytes, wanted, mask].map(|bytes| u128::from_ne_bytes(*bytes));
        (bytes ^ wanted) & mask == 0
    }

    #[inline(always)]
    fn equal(self, a: &[u64; 4], b: &[u64; 4]) -> bool {
        equal_quads(a, b)
    }

    #[inline(always)]
    fn hash(self, key: &HashKey, words: &[u64; 4]) -> u64 {
        key.quad(words)
    }

    #[inline(always)]
    fn hash_both(self, key: &HashKey, halves: &[[u64; 4]; 2]) -> u64 {
        let [[a, b, c, d], [e, f, g, h]] = *halves;
        key.block(&[a, b, c, d, e, f, g, h])
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::Wide;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{HashKey, Lanes};
    use core::arch::x86_64::*;

    /// Proves that the processor has these instructions.
    #[derive(Clone, Copy, Debug)]
    pub struct Wide(());

    impl Wide {
        /// If this processor has them.
        pub fn here() -> Option<Wide> {
            let has = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("aes")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("movbe");
            has.then_some(Wide(()))
        }
    }

    impl Lanes for Wide {
        #[inline(always)]
        fn run<R>(self, code: impl FnOnce() -> R) -> R {
            // SAFETY: a `Wide` exists only where `here` has found these instructions.
            unsafe { run(code) }
        }

        #[inline(always)]
        fn join(self, sources: [&[u8; 16]; 2], mask: &[u64; 4], more: &[u64; 4], first: u64) -> [u64; 4] {
            // SAFETY: as in `run`.
            unsafe { join(sources, mask, more, first) }
        }

        #[inline(always)]
        fn matches(self, bytes: &[u8; 16], wanted: &[u8; 16], mask: &[u8; 16]) -> bool {
            // SAFETY: as in `run`.
            unsafe { matches(bytes, wanted, mask) }
        }

        #[inline(always)]
        fn equal(self, a: &[u64; 4], b: &[u64; 4]) -> bool {
            // SAFETY: as in `run`.
            unsafe { equal(a, b) }
        }

        #[inline(always)]
        fn hash(self, key: &HashKey, words: &[u64; 4]) -> u64 {
            // SAFETY: as in `run`.
            unsafe { hash(key.words(), words) }
        }

        #[inline(always)]
        fn hash_both(self, key: &HashKey, halves: &[[u64; 4]; 2]) -> u64 {
            // SAFETY: as in `run`.
            unsafe { hash_both(key.words(), halves) }
        }
    }

    #[target_feature(enable = "avx2,aes,bmi1,bmi2,movbe")]
    fn run<R>(code: impl FnOnce() -> R) -> R {
        code()
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(words: &[u64; 4]) -> __m256i {
        // SAFETY: four words are 32 bytes to read; this load asks for no alignment.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load_half(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes to read; this load asks for no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn join([low, high]: [&[u8; 16]; 2], mask: &[u64; 4], more: &[u64; 4], first: u64) -> [u64; 4] {
        let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load_half(low)), load_half(high));
        let first = _mm256_zextsi128_si256(_mm_cvtsi64_si128(first as i64));
        let more = _mm256_or_si256(load(more), first);
        let joined = _mm256_or_si256(_mm256_and_si256(both, load(mask)), more);
        let mut words = [0; 4];
        // SAFETY: four words are 32 bytes to write; this store asks for no alignment.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), joined) };
        words
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn matches(bytes: &[u8; 16], wanted: &[u8; 16], mask: &[u8; 16]) -> bool {
        // In a loop, the compiler finds fewer steps for this than for `_mm_testz_si128`.
        let mask = load_half(mask);
        let [bytes, wanted] = [bytes, wanted].map(|bytes| _mm_and_si128(load_half(bytes), mask));
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)) == 0xffff
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn equal(a: &[u64; 4], b: &[u64; 4]) -> bool {
        _mm256_movemask_epi8(_mm256_cmpeq_epi64(load(a), load(b))) == -1
    }

    /// Two halves, each behind a secret, meet after some AES rounds: the first has four in all, the second
    /// three. With one round fewer, all values of four bytes of the second would share 256 places of a table.
    /// Not cryptographic, like [`HashKey::quad`]: it withstands an attacker who sees forwarding, not one who
    /// reads hashes.
    #[target_feature(enable = "avx2,aes")]
    #[inline]
    fn hash(key: &[u64; 4], words: &[u64; 4]) -> u64 {
        let key = load(key);
        finished(key, met(key, words))
    }

    /// The same of twice as many words: what the first four have become goes through one more round before it
    /// meets what the others have. These meet behind the secret's halves in the other order.
    #[target_feature(enable = "avx2,aes")]
    #[inline]
    fn hash_both(key: &[u64; 4], [first, second]: &[[u64; 4]; 2]) -> u64 {
        let key = load(key);
        let second = met(_mm256_permute4x64_epi64::<0b01_00_11_10>(key), second);
        finished(key, _mm_aesenc_si128(met(key, first), second))
    }

    /// The last two rounds.
    #[target_feature(enable = "avx2,aes")]
    #[inline]
    fn finished(key: __m256i, state: __m128i) -> u64 {
        let (k0, k1) = halves(key);
        _mm_cvtsi128_si64(_mm_aesenc_si128(_mm_aesenc_si128(state, k0), k1)) as u64
    }

    /// Two halves after one AES round each, the first after another one.
    #[target_feature(enable = "avx2,aes")]
    #[inline]
    fn met(key: __m256i, words: &[u64; 4]) -> __m128i {
        let (k0, k1) = halves(key);
        let (a, b) = halves(_mm256_xor_si256(load(words), key));
        _mm_aesenc_si128(_mm_aesenc_si128(a, k1), _mm_aesenc_si128(b, k0))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn halves(words: __m256i) -> (__m128i, __m128i) {
        (_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub use elsewhere::Wide;

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use super::{HashKey, Lanes};

    /// There is none on this kind of processor.
    #[derive(Clone, Copy, Debug)]
    pub enum Wide {}

    impl Wide {
        /// Never.
        pub fn here() -> Option<Wide> {
            None
        }
    }

    impl Lanes for Wide {
        fn run<R>(self, _: impl FnOnce() -> R) -> R {
            match self {}
        }

        fn join(self, _: [&[u8; 16]; 2], _: &[u64; 4], _: &[u64; 4], _: u64) -> [u64; 4] {
            match self {}
        }

        fn matches(self, _: &[u8; 16], _: &[u8; 16], _: &[u8; 16]) -> bool {
            match self {}
        }

        fn equal(self, _: &[u64; 4], _: &[u64; 4]) -> bool {
            match self {}
        }

        fn hash(self, _: &HashKey, _: &[u64; 4]) -> u64 {
            match self {}
        }

        fn hash_both(self, _: &HashKey, _: &[[u64; 4]; 2]) -> u64 {
            match self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(seed: u64) -> [u64; 4] {
        std::array::from_fn(|n| crate::hash::mixed(seed * 4 + n as u64 + 1))
    }

    fn bytes(words: &[u64; 2]) -> [u8; 16] {
        (u128::from(words[1]) << 64 | u128::from(words[0])).to_le_bytes()
    }

    /// Both implementations where there are two.
    fn check(test: impl Fn(&dyn Fn(&[u64; 4]) -> u64, &dyn Fn(&[u64; 4], &[u64; 4]) -> bool)) {
        let key = HashKey::from_seed(7);
        test(&|w| Baseline.hash(&key, w), &|a, b| Baseline.equal(a, b));
        if let Some(wide) = Wide::here() {
            test(&|w| wide.hash(&key, w), &|a, b| wide.equal(a, b));
        }
    }

    #[test]
    fn four_words_are_joined_alike_in_both_ways() {
        for seed in 0..100 {
            let [a, b, c, d] = words(seed);
            let (low, high) = (bytes(&[a, b]), bytes(&[c, d]));
            let (mask, more, first) = (words(seed + 1000), words(seed + 2000), words(seed + 3000)[0]);
            let joined = Baseline.join([&low, &high], &mask, &more, first);
            let expected: [u64; 4] = std::array::from_fn(|n| words(seed)[n] & mask[n] | more[n]);
            assert_eq!(joined[0], expected[0] | first);
            assert_eq!(joined[1..], expected[1..]);
            if let Some(wide) = Wide::here() {
                assert_eq!(wide.run(|| wide.join([&low, &high], &mask, &more, first)), joined);
            }
        }
    }

    #[test]
    fn bytes_match_if_they_differ_under_no_bit_of_the_mask() {
        for seed in 0..10 {
            let [a, b, c, d] = words(seed);
            let (wanted, mask) = (bytes(&[a, b]), bytes(&[c, d]));
            for bit in 0..128 {
                let mut other = wanted;
                other[bit / 8] ^= 1 << (bit % 8);
                let is_seen = mask[bit / 8] >> (bit % 8) & 1 != 0;
                assert_eq!(Baseline.matches(&other, &wanted, &mask), !is_seen);
                if let Some(wide) = Wide::here() {
                    assert_eq!(wide.matches(&other, &wanted, &mask), !is_seen);
                    assert!(wide.matches(&wanted, &wanted, &mask));
                }
            }
        }
    }

    #[test]
    fn four_words_are_equal_only_if_all_their_bits_are() {
        check(|_, equal| {
            let a = words(1);
            assert!(equal(&a, &a));
            for bit in 0..256 {
                let mut b = a;
                b[bit / 64] ^= 1 << (bit % 64);
                assert!(!equal(&a, &b), "{bit}");
            }
        });
    }

    #[test]
    fn one_flipped_bit_changes_about_half_of_the_hash_in_each_of_its_pieces() {
        check(|hash, _| {
            for piece in [0x00ff_ffff, 0xffff << 48, u64::MAX] {
                let (mut flipped, mut all) = (0, 0);
                for seed in 0..64 {
                    let a = words(seed);
                    for bit in 0..256 {
                        let mut b = a;
                        b[bit / 64] ^= 1 << (bit % 64);
                        flipped += ((hash(&a) ^ hash(&b)) & piece).count_ones();
                        all += piece.count_ones();
                    }
                }
                let share = f64::from(flipped) / f64::from(all);
                assert!((0.49..0.51).contains(&share), "{piece:x}: {share}");
            }
        });
    }

    /// Who can choose two bytes, and knows nothing of the secret, must not get into fewer places by it.
    #[test]
    fn all_values_of_two_bytes_meet_no_more_often_than_by_chance() {
        check(|hash, _| {
            let pairs = (0..32).flat_map(|one| (0..one).map(move |other| (one, other)));
            for (one, other) in pairs {
                for shift in [0, 40] {
                    let mut places = std::collections::HashSet::new();
                    for n in 0..2048_u64 {
                        let mut w = words(5);
                        w[one / 8] ^= (n % 64) << (one % 8 * 8);
                        w[other / 8] ^= (n / 64) << (other % 8 * 8);
                        places.insert(hash(&w) >> shift & 0xff_ffff);
                    }
                    // By chance an eighth of a pair meets.
                    assert!(places.len() > 2040, "{one} and {other}: {}", places.len());
                }
            }
        });
    }

    #[test]
    fn two_flipped_bits_in_different_halves_do_not_make_up_for_each_other() {
        check(|hash, _| {
            let a = words(3);
            let mut seen = std::collections::HashSet::new();
            for (one, other) in (0..128).flat_map(|one| (128..256).map(move |other| (one, other))) {
                let mut b = a;
                b[one / 64] ^= 1 << (one % 64);
                b[other / 64] ^= 1 << (other % 64);
                assert!(seen.insert(hash(&b)), "{one} and {other}");
            }
        });
    }

    /// Both implementations of the hash of eight words.
    fn check_both(test: impl Fn(&dyn Fn(&[[u64; 4]; 2]) -> u64)) {
        let key = HashKey::from_seed(7);
        test(&|halves| Baseline.hash_both(&key, halves));
        if let Some(wide) = Wide::here() {
            test(&|halves| wide.hash_both(&key, halves));
        }
    }

    fn flipped(halves: &[[u64; 4]; 2], bit: usize) -> [[u64; 4]; 2] {
        let mut other = *halves;
        other[bit / 256][bit / 64 % 4] ^= 1 << (bit % 64);
        other
    }

    #[test]
    fn one_flipped_bit_of_eight_words_changes_about_half_of_the_hash_in_each_of_its_pieces() {
        check_both(|hash| {
            for piece in [0x00ff_ffff, 0xffff << 48, u64::MAX] {
                for word in 0..8 {
                    let (mut changed, mut all) = (0, 0);
                    for seed in 0..64 {
                        let a = [words(seed), words(seed + 1000)];
                        for bit in word * 64..(word + 1) * 64 {
                            changed += ((hash(&a) ^ hash(&flipped(&a, bit))) & piece).count_ones();
                            all += piece.count_ones();
                        }
                    }
                    let share = f64::from(changed) / f64::from(all);
                    assert!((0.48..0.52).contains(&share), "{piece:x} {word}: {share}");
                }
            }
        });
    }

    #[test]
    fn two_flipped_bits_of_eight_words_do_not_make_up_for_each_other() {
        check_both(|hash| {
            let a = [words(3), words(4)];
            let mut seen = std::collections::HashSet::from([hash(&a)]);
            for (one, other) in (0..512).flat_map(|one| (one + 1..512).map(move |other| (one, other))) {
                assert!(seen.insert(hash(&flipped(&flipped(&a, one), other))), "{one} and {other}");
            }
        });
    }

    #[test]
    fn the_bytes_of_a_diagonal_have_as_many_hashes_as_values() {
        check_both(|hash| {
            for (half, lane) in [(0, 0), (0, 2), (1, 0), (1, 2)] {
                let mut seen = std::collections::HashSet::new();
                for n in 0..1u64 << 16 {
                    let [a, b, c, d] = (n.wrapping_mul(0x9e37_79b1) as u32).to_le_bytes().map(u64::from);
                    let mut halves = [words(5), words(6)];
                    halves[half][lane] ^= a | b << 40;
                    halves[half][lane + 1] ^= c << 16 | d << 56;
                    assert!(seen.insert(hash(&halves)), "{half} {lane} {n}");
                }
            }
        });
    }

    #[test]
    fn eight_words_in_another_order_have_another_hash() {
        check_both(|hash| {
            let words: [u64; 8] = std::array::from_fn(|n| crate::hash::mixed(n as u64));
            let halved = |w: &[u64; 8]| [std::array::from_fn(|n| w[n]), std::array::from_fn(|n| w[n + 4])];
            let mut seen = std::collections::HashSet::from([hash(&halved(&words))]);
            for (one, other) in (0..8).flat_map(|one| (one + 1..8).map(move |other| (one, other))) {
                let mut swapped = words;
                swapped.swap(one, other);
                assert!(seen.insert(hash(&halved(&swapped))), "{one} and {other}");
            }
        });
    }
}

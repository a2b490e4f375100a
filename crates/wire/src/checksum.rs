//! The Internet checksum (RFC 1071), its incremental update (RFC 1624) and pseudo-headers.
//!
//! Bytes are summed in native order, eight at a time, and swapped once at the end: apart from that swap, the
//! one's complement sum does not depend on byte order (RFC 1071 section 2 B), nor on the width of its words.
//! A few known words are added with their carries; over many bytes the carries collect in the upper half of a
//! 64-bit sum, so that the loop does not depend on them and vectorises.
//!
//! A needless full recomputation costs speed. An update of a wrong checksum keeps it wrong, as a switch must:
//! it must not repair (and so hide) corruption on the way.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::ip::IpProtocol;

/// A one's complement sum in progress. Every piece added except the last must have an even number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds bytes; an odd last byte counts as the upper half of a word.
    #[must_use]
    #[inline]
    pub fn bytes(self, data: &[u8]) -> Self {
        if data.len() <= FEW {
            return self.one_by_one(data);
        }
        self.many(data)
    }

    #[inline(never)]
    fn many(self, data: &[u8]) -> Self {
        // Each step adds less than 2^33, so 2^31 steps (16 GiB) fit.
        let mut sum = u64::from(self.half());
        let (words, rest) = data.as_chunks::<8>();
        for word in words {
            let word = u64::from_ne_bytes(*word);
            sum += (word & 0xffff_ffff) + (word >> 32);
        }
        Self(sum).carrying(end_of(rest))
    }

    /// Adds a known number of bytes, without a loop.
    #[inline(always)]
    #[must_use]
    pub fn array<const LEN: usize>(self, data: &[u8; LEN]) -> Self {
        self.one_by_one(data)
    }

    /// Adds bytes of which `HEAD`, an even number of at least eight, are always there: those without a loop.
    /// `None` if they are not there.
    #[inline(always)]
    #[must_use]
    pub fn head_first<const HEAD: usize>(self, data: &[u8]) -> Option<Self> {
        const { assert!(HEAD >= 8 && HEAD.is_multiple_of(2)) };
        let (head, rest) = data.split_first_chunk::<HEAD>()?;
        let sum = self.array(head);
        if rest.len() > FEW {
            return Some(sum.many(rest));
        }
        let (words, rest) = rest.as_chunks::<8>();
        let sum = words.iter().fold(sum, |sum, word| sum.carrying(u64::from_ne_bytes(*word)));
        Some(sum.carrying(last_of(data.last_chunk()?, rest.len())))
    }

    #[inline(always)]
    fn one_by_one(self, data: &[u8]) -> Self {
        let (words, rest) = data.as_chunks::<8>();
        let sum = words.iter().fold(self, |sum, word| sum.carrying(u64::from_ne_bytes(*word)));
        sum.carrying(match data.last_chunk() {
            Some(last) => last_of(last, rest.len()),
            None => end_of(rest),
        })
    }

    /// The sum with its carry, which comes in again at the other end.
    #[inline(always)]
    const fn carrying(self, word: u64) -> Self {
        let (sum, carry) = self.0.overflowing_add(word);
        Self(sum + carry as u64)
    }

    /// Adds a 16-bit field, given as a number.
    #[inline(always)]
    #[must_use]
    pub fn u16(self, value: u16) -> Self {
        self.carrying(value.to_be().into())
    }

    /// Adds a 32-bit field, given as a number.
    #[inline(always)]
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.carrying(value.to_be().into())
    }

    /// The same sum in 32 bits: each half is added to the other, and the upper one has got the carry.
    #[inline(always)]
    const fn half(self) -> u32 {
        (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32
    }

    /// The same sum in 16 bits, in the order of the bytes that were added.
    #[inline(always)]
    const fn quarter(self) -> u16 {
        let half = self.half();
        (half.wrapping_add(half.rotate_left(16)) >> 16) as u16
    }

    /// The folded sum, not complemented: what a network stack leaves in the checksum field for hardware to
    /// complete when the sum is that of the pseudo-header.
    #[inline(always)]
    pub fn fold(self) -> u16 {
        u16::from_be(self.quarter())
    }

    /// The checksum to store: the complement of the folded sum.
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// The checksum to store in a UDP header, where 0 means "none" and 0xffff replaces 0 (RFC 768).
    pub fn finish_udp(self) -> u16 {
        nonzero(self.finish())
    }

    /// Whether the summed bytes, including their checksum, are valid: whether the sum is a multiple of 0xffff
    /// other than 0, without folding it.
    #[inline(always)]
    pub fn is_valid(self) -> bool {
        // 0xffff times this is -1, and so n times 0xffff, for n from 1 to this, becomes -n. An odd factor
        // leads no two numbers to the same one.
        const INVERSE: u64 = u64::MAX / 0xffff;
        self.0.wrapping_mul(INVERSE) >= INVERSE.wrapping_neg()
    }
}

/// Up to this many bytes, starting with several at once takes longer than it saves.
const FEW: usize = 96;

/// The last `len` of eight bytes, fewer than all, as a word.
#[inline(always)]
fn last_of(bytes: &[u8; 8], len: usize) -> u64 {
    let end = u64::from_le_bytes(*bytes) >> 8 >> (56 - 8 * len);
    u64::from_ne_bytes(end.to_le_bytes())
}

/// The last bytes, fewer than eight, as a word.
#[inline(always)]
fn end_of(rest: &[u8]) -> u64 {
    let (low, rest) = match rest.split_first_chunk::<4>() {
        Some((low, rest)) => (u32::from_ne_bytes(*low), rest),
        None => (0, rest),
    };
    let high = match *rest {
        [a, b, c] => u32::from_ne_bytes([a, b, c, 0]),
        [a, b] => u32::from_ne_bytes([a, b, 0, 0]),
        [a] => u32::from_ne_bytes([a, 0, 0, 0]),
        _ => 0,
    };
    // It does not matter in which half of the word they are.
    u64::from(high) << 32 | u64::from(low)
}

/// 0xffff for 0, the other zero of one's complement: UDP's rule.
pub const fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// The checksum over `data`, whose checksum field must be zero.
pub fn checksum(data: &[u8]) -> u16 {
    Sum::new().bytes(data).finish()
}

/// Whether `data`, including its checksum, is valid.
pub fn is_valid(data: &[u8]) -> bool {
    Sum::new().bytes(data).is_valid()
}

/// The checksum after a 16-bit field changed: RFC 1624 equation 3, HC' = ~(~HC + ~m + m').
#[must_use]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    fold_update(checksum, !old as u64 + new as u64)
}

/// The checksum after a 32-bit field changed.
#[must_use]
pub const fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    fold_update(checksum, !old as u64 + new as u64)
}

/// The checksum after a 128-bit field changed (an IPv6 address as a number).
#[must_use]
pub const fn update128(checksum: u16, old: u128, new: u128) -> u16 {
    fold_update(checksum, halves(!old) + halves(new))
}

/// Sum of the four 32-bit words: below 2^34.
const fn halves(value: u128) -> u64 {
    (value as u32 as u64)
        + ((value >> 32) as u32 as u64)
        + ((value >> 64) as u32 as u64)
        + ((value >> 96) as u32 as u64)
}

/// `change` is far below 2^64, so there is no carry.
const fn fold_update(checksum: u16, change: u64) -> u16 {
    !Sum(!checksum as u64 + change).quarter()
}

/// Sum of the pseudo-header of IPv4 (RFC 9293 section 3.1). `len` counts transport header and payload.
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, len: u16) -> Sum {
    Sum::new().bytes(&src.octets()).bytes(&dst.octets()).u16(u16::from(protocol.0)).u16(len)
}

/// Sum of the pseudo-header of IPv6 (RFC 8200 section 8.1). `protocol` is the one after all extension
/// headers, `len` counts transport header and payload.
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, len: u32) -> Sum {
    Sum::new().bytes(&src.octets()).bytes(&dst.octets()).u32(len).u32(u32::from(protocol.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Word by word, as RFC 1071 says it.
    fn naive(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in data.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071_sums_up() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().bytes(&data).fold(), 0xddf2);
        assert_eq!(checksum(&data), 0x220d);
    }

    #[test]
    fn the_example_of_rfc_1624_keeps_the_right_zero() {
        // Section 4: HC = 0xdd2f, m = 0x5555, m' = 0x3285 gives 0x0000, where equation 4 gave 0xffff.
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn udp_never_stores_zero() {
        assert_eq!(Sum::new().bytes(&[0xff, 0xff]).finish(), 0);
        assert_eq!(Sum::new().bytes(&[0xff, 0xff]).finish_udp(), 0xffff);
    }

    #[test]
    fn all_ones_do_not_overflow() {
        let data = vec![0xff; 65_536];
        assert_eq!(checksum(&data), naive(&data));
    }

    #[test]
    fn sums_at_the_limits_are_valid_as_their_folded_ones_are() {
        let multiples = [0, 1, 2, 0x1_0001, u64::MAX / 0xffff - 1, u64::MAX / 0xffff].map(|n| n * 0xffff);
        for sum in multiples.iter().flat_map(|n| [n.wrapping_sub(1), *n, n.wrapping_add(1)]) {
            assert_eq!(Sum(sum).is_valid(), Sum(sum).fold() == 0xffff, "{sum:#x}");
        }
    }

    proptest! {
        #[test]
        fn a_sum_is_valid_if_the_folded_one_is(any: u64, n in 0..=u64::MAX / 0xffff) {
            prop_assert_eq!(Sum(any).is_valid(), Sum(any).fold() == 0xffff);
            prop_assert!(n == 0 || Sum(n * 0xffff).is_valid());
        }

        #[test]
        fn a_head_without_a_loop_leaves_the_sum_the_same(
            data in proptest::collection::vec(any::<u8>(), 0..200),
            before: u64,
        ) {
            let plain = Sum(before).bytes(&data).fold();
            prop_assert_eq!(Sum(before).head_first::<8>(&data).map(Sum::fold), (data.len() >= 8).then_some(plain));
            prop_assert_eq!(Sum(before).head_first::<28>(&data).map(Sum::fold), (data.len() >= 28).then_some(plain));
        }

        #[test]
        fn sums_as_the_naive_one_does(data in prop::collection::vec(any::<u8>(), 0..2000), cut in 0usize..1000) {
            prop_assert_eq!(checksum(&data), naive(&data));
            let cut = (cut * 2).min(data.len() & !1);
            let pieces = Sum::new().bytes(&data[..cut]).bytes(&data[cut..]);
            prop_assert_eq!(pieces.finish(), naive(&data));
        }

        #[test]
        fn numbers_add_as_their_bytes_do(a in any::<u16>(), b in any::<u32>()) {
            let bytes: Vec<u8> = a.to_be_bytes().into_iter().chain(b.to_be_bytes()).collect();
            prop_assert_eq!(Sum::new().u16(a).u32(b).finish(), naive(&bytes));
        }

        #[test]
        fn updates_agree_with_recomputation(
            mut data in prop::collection::vec(any::<u8>(), 40..100), new in any::<[u8; 16]>(), at in 0usize..12,
        ) {
            // Not all zero: then the sum is 0xffff in its other form, which no real header has.
            data[38] = 0x45;
            let before = checksum(&data);
            let at = at * 2;
            for width in [2, 4, 16] {
                let mut old = [0; 16];
                old[16 - width..].copy_from_slice(&data[at..at + width]);
                let mut fresh = [0; 16];
                fresh[16 - width..].copy_from_slice(&new[..width]);
                let (old, fresh) = (u128::from_be_bytes(old), u128::from_be_bytes(fresh));
                let mut changed = data.clone();
                changed[at..at + width].copy_from_slice(&new[..width]);
                let updated = match width {
                    2 => update16(before, old as u16, fresh as u16),
                    4 => update32(before, old as u32, fresh as u32),
                    _ => update128(before, old, fresh),
                };
                prop_assert_eq!(updated, checksum(&changed));
            }
        }

        #[test]
        fn an_update_keeps_a_wrong_checksum_wrong(sum in any::<u16>(), old in any::<u32>(), new in any::<u32>()) {
            // Back and forth gives the same sum, up to the two zeros of one's complement.
            let there = update32(sum, old, new);
            prop_assert_eq!(nonzero(update32(there, new, old)), nonzero(sum));
        }
    }
}

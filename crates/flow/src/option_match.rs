//! Values of tunnel options, and matches on them while no [table](crate::options) is known.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Bytes of the longest option.
pub const OPTION_BYTES_MAX: usize = 124;

/// Words of 32 bits of the longest option.
pub(crate) const WORDS: usize = OPTION_BYTES_MAX / 4;

/// Value or mask of an option: a number of up to 992 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wide {
    /// The least significant 32 bits last, so that the order is that of numbers.
    pub(crate) words: [u32; WORDS],
}

impl Wide {
    /// 0.
    pub const ZERO: Wide = Wide { words: [0; WORDS] };
    /// All 992 bits. As a mask it means all bits of the option, whatever its length.
    pub const ONES: Wide = Wide { words: [u32::MAX; WORDS] };

    /// From a big-endian number of any length; `None` if it has more than 992 bits.
    pub fn from_be_bytes(bytes: &[u8]) -> Option<Wide> {
        let (surplus, low) = bytes.split_at(bytes.len().saturating_sub(OPTION_BYTES_MAX));
        if surplus.iter().any(|b| *b != 0) {
            return None;
        }
        let mut wide = Wide::ZERO;
        for (i, b) in low.iter().rev().enumerate() {
            wide.words[WORDS - 1 - i / 4] |= u32::from(*b) << (i % 4 * 8);
        }
        Some(wide)
    }

    /// As 124 bytes, the most significant first.
    pub fn to_be_bytes(&self) -> [u8; OPTION_BYTES_MAX] {
        let mut bytes = [0; OPTION_BYTES_MAX];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(self.words) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// The `count` lowest bits set.
    pub fn low(count: u16) -> Wide {
        let mut wide = Wide::ZERO;
        for (i, word) in wide.words.iter_mut().rev().enumerate() {
            let bits = usize::from(count).saturating_sub(i * 32).min(32);
            *word = if bits == 32 { u32::MAX } else { (1 << bits) - 1 };
        }
        wide
    }

    /// The 32 bits from bit `32 * n` on.
    pub(crate) fn word(&self, n: usize) -> u32 {
        if n < WORDS { self.words[WORDS - 1 - n] } else { 0 }
    }

    /// Shifted left. Bits beyond 992 are lost.
    pub fn shl(&self, bits: u16) -> Wide {
        let (whole, part) = (usize::from(bits / 32), u32::from(bits % 32));
        let mut wide = Wide::ZERO;
        for n in whole..WORDS {
            let low = if n > whole { u64::from(self.word(n - whole - 1)) } else { 0 };
            let pair = u64::from(self.word(n - whole)) << 32 | low;
            wide.words[WORDS - 1 - n] = (pair << part >> 32) as u32;
        }
        wide
    }

    /// Shifted right.
    pub fn shr(&self, bits: u16) -> Wide {
        let (whole, part) = (usize::from(bits / 32), u32::from(bits % 32));
        let mut wide = Wide::ZERO;
        for n in 0..WORDS {
            let pair = u64::from(self.word(n + whole + 1)) << 32 | u64::from(self.word(n + whole));
            wide.words[WORDS - 1 - n] = (pair >> part) as u32;
        }
        wide
    }

    /// The bits that both have.
    pub fn and(&self, other: &Wide) -> Wide {
        Wide { words: std::array::from_fn(|i| self.words[i] & other.words[i]) }
    }

    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        *self == Wide::ZERO
    }

    /// Whether all its bits are in `mask`.
    pub fn is_within(&self, mask: &Wide) -> bool {
        self.words.iter().zip(mask.words).all(|(w, m)| w & !m == 0)
    }

    /// Bytes that it needs: 0 for zero.
    pub fn byte_len(&self) -> usize {
        let bytes = self.to_be_bytes();
        bytes.iter().position(|b| *b != 0).map_or(0, |first| OPTION_BYTES_MAX - first)
    }

    /// Its lowest 128 bits.
    pub fn low_u128(&self) -> u128 {
        (0..4).rev().fold(0, |acc, n| acc << 32 | u128::from(self.word(n)))
    }
}

impl From<u128> for Wide {
    fn from(number: u128) -> Wide {
        let mut wide = Wide::ZERO;
        for n in 0..4 {
            wide.words[WORDS - 1 - n] = (number >> (32 * n)) as u32;
        }
        wide
    }
}

/// `0x..`, or `0`.
impl fmt::Display for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = self.words.iter().skip_while(|w| **w == 0);
        match words.next() {
            None => f.write_str("0"),
            Some(first) => {
                write!(f, "{first:#x}")?;
                words.try_for_each(|w| write!(f, "{w:08x}"))
            }
        }
    }
}

impl fmt::Debug for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A match on, or the knowledge of, one option: that it is present, and the bits of `value` under `mask`.
#[derive(Clone, Copy, Debug)]
pub struct OptionMatch {
    /// N of `tun_metadataN`, below 64.
    pub idx: u8,
    /// Zero outside the mask.
    pub value: Wide,
    /// [`Wide::ONES`] for the whole option, whatever its length.
    pub mask: Wide,
    /// Bytes of the option, where a bridge's table or the wire says. On the wire, values then have that many.
    pub bytes: Option<u8>,
}

/// The length is the bridge's and no part of what is matched.
impl PartialEq for OptionMatch {
    fn eq(&self, other: &Self) -> bool {
        (self.idx, &self.value, &self.mask) == (other.idx, &other.value, &other.mask)
    }
}

impl Eq for OptionMatch {}

impl Hash for OptionMatch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.idx, &self.value, &self.mask).hash(state);
    }
}

/// The options of a match that have no place in its key, ascending by field. A single pointer, since hardly
/// any match has any.
#[allow(clippy::box_collection)]
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct OptionMatches(Option<Box<Vec<OptionMatch>>>);

impl OptionMatches {
    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All, ascending by field.
    pub fn iter(&self) -> impl Iterator<Item = &OptionMatch> {
        self.0.iter().flat_map(|all| all.iter())
    }

    /// The match on a field.
    pub fn get(&self, idx: u8) -> Option<&OptionMatch> {
        self.iter().find(|o| o.idx == idx)
    }

    /// Replaces what is matched of its field.
    pub fn set(&mut self, option: OptionMatch) {
        let all = self.0.get_or_insert_default();
        match all.binary_search_by_key(&option.idx, |o| o.idx) {
            Ok(at) => all[at] = option,
            Err(at) => all.insert(at, option),
        }
    }

    /// Matches nothing of the field any more.
    pub fn remove(&mut self, idx: u8) {
        if let Some(all) = &mut self.0 {
            all.retain(|o| o.idx != idx);
            if all.is_empty() {
                self.0 = None;
            }
        }
    }
}

//! Compact matches: the nonzero words of a mask, shared by all matches with that mask, and the values under
//! them.
//!
//! A [`flow::matching::Match`] takes 1.7 kB, because it has room for every field; a million rules need
//! something like the fifty bytes that say the same. Words are sorted by block and word, so that two matches
//! are compared by a merge.

use flow::{Depth, FieldId, Key, Mask, Match};
use std::collections::HashMap;
use std::sync::Arc;

/// Some bits of one word of the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ShapeWord {
    /// Block of the key.
    pub block: u8,
    /// Word of the block.
    pub word: u8,
    /// Which bits; never none.
    pub bits: u64,
}

impl ShapeWord {
    /// The same without the bits of `conj_id`.
    pub fn without_conj_id(self) -> ShapeWord {
        let place = FieldId::ConjId.place();
        let is_its = (self.block, self.word) == (place.block, place.word);
        let ones = (FieldId::ConjId.ones() as u64) << place.shift;
        ShapeWord { bits: if is_its { self.bits & !ones } else { self.bits }, ..self }
    }

    /// Whether it has the bits of the packet type.
    fn is_packet_type(self) -> bool {
        let place = FieldId::PacketType.place();
        (self.block, self.word) == (place.block, place.word)
    }
}

/// A mask, as its nonzero words.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    words: Box<[ShapeWord]>,
    depth: Depth,
    /// [`Mask::implies_ethernet`].
    implies_ethernet: bool,
}

fn words_of(mask: &Mask) -> Vec<ShapeWord> {
    let mut words = Vec::with_capacity(8);
    for b in mask.0.present_blocks() {
        for (w, &bits) in mask.0.block(b).0.iter().enumerate() {
            if bits != 0 {
                words.push(ShapeWord { block: b as u8, word: w as u8, bits });
            }
        }
    }
    words
}

impl Shape {
    /// The words of a mask.
    pub fn of(mask: &Mask) -> Shape {
        Shape {
            words: words_of(mask).into_boxed_slice(),
            depth: depth_of(mask),
            implies_ethernet: mask.implies_ethernet(),
        }
    }

    /// Its words, ascending.
    #[inline(always)]
    pub fn words(&self) -> &[ShapeWord] {
        &self.words
    }

    /// How deep a packet must have been read for this mask.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// The mask again.
    pub fn mask(&self) -> Mask {
        let mut mask = Mask::wild();
        for w in self.words() {
            mask.add_word(w.block.into(), w.word.into(), w.bits);
        }
        mask
    }
}

/// How deep a packet must have been read for the bits of a mask.
pub fn depth_of(mask: &Mask) -> Depth {
    let held = FieldId::ALL.iter().filter(|f| mask.get(**f) != 0);
    held.map(|f| f.depth()).max().unwrap_or(Depth::Metadata)
}

/// A compact match.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MiniMatch {
    shape: Arc<Shape>,
    /// One per word of the shape, zero outside its bits.
    values: Box<[u64]>,
}

impl MiniMatch {
    /// From a match, with a shape of its own.
    pub fn of(m: &Match) -> MiniMatch {
        MiniMatch::with_shape(Arc::new(Shape::of(&m.mask)), &m.key)
    }

    pub(crate) fn with_shape(shape: Arc<Shape>, key: &Key) -> MiniMatch {
        let values = shape.words().iter().map(|w| key.word(w.block.into(), w.word.into()) & w.bits).collect();
        MiniMatch { shape, values }
    }

    /// The words of its mask.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The values under the mask, word by word.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The full form.
    pub fn to_match(&self) -> Match {
        let mut key = Key::default();
        for (w, v) in self.shape.words().iter().zip(&self.values) {
            if *v != 0 {
                key.set_word(w.block.into(), w.word.into(), *v);
            }
        }
        Match { key, mask: self.shape.mask(), ..Match::default() }
    }

    /// As [`Match::packet_type`].
    fn packet_type(&self) -> (u64, u64) {
        let ones = FieldId::PacketType.ones() as u64;
        let matched = self.shape.words().iter().zip(&self.values).find(|(w, _)| w.is_packet_type());
        let (value, bits) = matched.map_or((0, 0), |(w, v)| (v & ones, w.bits & ones));
        (value, if self.shape.implies_ethernet { ones } else { bits })
    }

    /// Whether some key matches both.
    pub fn overlaps(&self, other: &MiniMatch) -> bool {
        let ((mine, my_bits), (others, other_bits)) = (self.packet_type(), other.packet_type());
        if (mine ^ others) & my_bits & other_bits != 0 {
            return false;
        }
        let words = self.shape.words();
        let mut at = 0;
        other.shape.words().iter().zip(&other.values).all(|(o, ov)| {
            while at < words.len() && (words[at].block, words[at].word) < (o.block, o.word) {
                at += 1;
            }
            let same = words.get(at).filter(|w| (w.block, w.word) == (o.block, o.word));
            same.is_none_or(|w| (self.values[at] ^ ov) & w.bits & o.bits == 0)
        })
    }

    /// Whether every key that matches `self` matches `other`.
    pub fn is_within(&self, other: &MiniMatch) -> bool {
        let mine = self.shape.words();
        if other.shape.implies_ethernet && !self.shape.implies_ethernet {
            let is_bare = |(w, v): (&ShapeWord, &u64)| w.is_packet_type() && *v as u32 != 0;
            if mine.iter().zip(&self.values).any(is_bare) {
                return false;
            }
        }
        let mut at = 0;
        other.shape.words().iter().zip(&other.values).all(|(o, ov)| {
            while at < mine.len() && (mine[at].block, mine[at].word) < (o.block, o.word) {
                at += 1;
            }
            let (mut bits, mut value) = (0, 0);
            if at < mine.len() && (mine[at].block, mine[at].word) == (o.block, o.word) {
                (bits, value) = (mine[at].bits, self.values[at]);
            }
            if o.bits & !bits != 0 && self.shape.implies_ethernet && o.is_packet_type() {
                bits |= FieldId::PacketType.ones() as u64;
            }
            o.bits & !bits == 0 && (value ^ ov) & o.bits == 0
        })
    }
}

/// The shapes in use, so that equal masks share one.
#[derive(Default, Debug)]
pub(crate) struct Shapes(HashMap<Box<[ShapeWord]>, Arc<Shape>>);

impl Shapes {
    pub(crate) fn mini(&mut self, m: &Match) -> MiniMatch {
        let words = words_of(&m.mask);
        let shape = match self.0.get(&words[..]) {
            Some(shared) => shared.clone(),
            None => {
                let shared = Arc::new(Shape::of(&m.mask));
                self.0.insert(words.into_boxed_slice(), shared.clone());
                shared
            }
        };
        MiniMatch::with_shape(shape, &m.key)
    }

    /// Frees shapes that are not in use.
    pub(crate) fn sweep(&mut self) {
        self.0.retain(|_, shared| Arc::strong_count(shared) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_form_says_what_the_large_one_says() {
        let all = [
            Match::any(),
            Match::any().with(FieldId::InPort, 1),
            Match::any().with(FieldId::InPort, 2).with(FieldId::NwSrc, 0x0a00_0001),
            Match::any().with_masked(FieldId::NwSrc, 0x0a00_0000, 0xff00_0000),
            Match::any().with(FieldId::Reg3, 0).with(FieldId::InPort, 1),
            Match::any().with(FieldId::Ipv6Dst, 7),
            Match::any().with(FieldId::PacketType, 0),
            Match::any().with(FieldId::PacketType, 0x0001_0800).with(FieldId::NwSrc, 0x0a00_0001),
            Match::any().with(FieldId::NwSrc, 0x0a00_0001),
            Match::any().with(FieldId::CtState, 1).with(FieldId::NwSrc, 0x0a00_0001),
        ];
        for a in &all {
            assert_eq!(MiniMatch::of(a).to_match(), *a);
            for b in &all {
                let (x, y) = (MiniMatch::of(a), MiniMatch::of(b));
                assert_eq!(x.is_within(&y), a.is_within(b), "{a:?} {b:?}");
                assert_eq!(x.overlaps(&y), a.overlaps(b), "{a:?} {b:?}");
            }
        }
    }
}

//! The rules of one mask.

use super::rule::Rule;
use crate::depth::Depth;
use crate::field::FieldId;
use crate::key::{BLOCKS, Key, Mask};
use base::hash::HashKey;
use base::multimap::{self, Multimap};
use base::rcu::{Domain, Reader};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, Weak};

/// Stages of a lookup: metadata, Ethernet, network, transport.
pub(super) const STAGES: usize = 4;
/// More than the parts of any mask: 96 words, of which some lie in several stages.
pub(super) const PARTS_MAX: usize = 128;

/// The matched bits of one word of the key that belong to one stage.
pub(super) struct Part {
    /// Not zero.
    pub mask: u64,
    block: u8,
    word: u8,
    #[allow(dead_code)] // For the staged lookup.
    pub stage: u8,
}

impl Part {
    #[inline(always)]
    pub fn block(&self) -> usize {
        usize::from(self.block)
    }

    #[inline(always)]
    pub fn word(&self) -> usize {
        usize::from(self.word)
    }
}

/// The stage in which lookups look at a field: that of the packet's layers, but neighbour discovery and the like with
/// transport, to which they belong.
fn stage_of(field: FieldId) -> usize {
    match field.depth() {
        Depth::Metadata => 0,
        Depth::Ethernet => 1,
        Depth::Network => 2,
        Depth::Transport | Depth::Everything => 3,
    }
}

/// For each word of the key, its bits by stage.
pub(super) type StageBits = [[[u64; STAGES]; 8]; BLOCKS];

/// The bits of each word that each stage looks at. Bits that belong to no field (tunnel options) are in the first.
pub(super) fn stage_bits() -> Box<StageBits> {
    let mut bits: Box<StageBits> = Box::new([[[0; STAGES]; 8]; BLOCKS]);
    for &field in FieldId::ALL {
        let mut mask = Mask::wild();
        mask.add_exact(field);
        for b in mask.0.present_blocks() {
            for w in 0..8 {
                bits[b][w][stage_of(field)] |= mask.0.word(b, w);
            }
        }
    }
    for word in bits.iter_mut().flatten() {
        word[0] |= !(word[0] | word[1] | word[2] | word[3]);
    }
    bits
}

/// The matched words of a rule or of a masked key, in the order of a subtable's parts.
pub(super) struct Words {
    words: [u64; PARTS_MAX],
    len: usize,
}

impl std::ops::Deref for Words {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.words[..self.len]
    }
}

/// Rules that share a mask.
pub(super) struct Subtable<R: Send + Sync + 'static> {
    /// Canonical.
    pub mask: Mask,
    pub mask_hash: u32,
    /// Itself, for whoever keeps it longer than a borrow.
    this: Weak<Subtable<R>>,
    /// The mask by words, those of the first stage first.
    pub parts: Box<[Part]>,
    pub rules: Multimap<Rule<R>>,
    /// How many rules there are of each priority. Only for the classifier's writer.
    priorities: Mutex<BTreeMap<i32, usize>>,
}

impl<R: Send + Sync + 'static> Subtable<R> {
    pub fn new(mask: Mask, mask_hash: u32, stages: &StageBits, domain: Arc<Domain>) -> Arc<Subtable<R>> {
        let mut parts = Vec::new();
        for stage in 0..STAGES {
            for block in mask.0.present_blocks() {
                for (word, bits) in stages[block].iter().enumerate() {
                    let mask = mask.0.word(block, word) & bits[stage];
                    if mask != 0 {
                        parts.push(Part { mask, block: block as u8, word: word as u8, stage: stage as u8 });
                    }
                }
            }
        }
        let parts = parts.into_boxed_slice();
        Arc::new_cyclic(|this| Subtable {
            mask,
            mask_hash,
            this: this.clone(),
            parts,
            rules: Multimap::new(domain),
            priorities: Mutex::default(),
        })
    }

    /// Another handle on it.
    pub fn shared(&self) -> Arc<Subtable<R>> {
        self.this.upgrade().expect("whoever borrows it has it from an `Arc`")
    }

    /// Counts a rule of this priority; whether it is higher than all there were.
    pub fn add_priority(&self, priority: i32) -> bool {
        let mut priorities = self.priorities.lock().expect("no holder panics");
        let higher = priorities.last_key_value().is_none_or(|(&max, _)| max < priority);
        *priorities.entry(priority).or_default() += 1;
        higher
    }

    /// Counts a rule of this priority away; if that changes the highest priority, the new one, `None` for no rule left.
    pub fn remove_priority(&self, priority: i32) -> Option<Option<i32>> {
        let mut priorities = self.priorities.lock().expect("no holder panics");
        let Entry::Occupied(mut count) = priorities.entry(priority) else {
            unreachable!("each rule was counted at its insertion")
        };
        *count.get_mut() -= 1;
        if *count.get() > 0 {
            return None;
        }
        count.remove();
        let max = priorities.last_key_value().map(|(&max, _)| max);
        max.is_none_or(|max| max < priority).then_some(max)
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        let priorities = self.priorities.lock().expect("no holder panics").len();
        size_of::<Self>() + size_of_val(&*self.parts) + self.rules.memory_bytes() + priorities * 16
    }

    /// The words of a key under the mask.
    pub fn words(&self, key: &Key) -> Words {
        let mut words = Words { words: [0; PARTS_MAX], len: self.parts.len() };
        for (to, part) in words.words.iter_mut().zip(&self.parts) {
            *to = key.word(part.block(), part.word()) & part.mask;
        }
        words
    }

    /// The hash of a rule's words.
    pub fn hash(&self, words: &[u64], secret: &HashKey) -> u32 {
        words.iter().fold(0, |state, &word| secret.word(state, word)) as u32
    }

    /// All rules, visible or not, that the key matches, and at the same time adds to `wc` what decided that. Without
    /// the rules that it yields, the key's other bits would not matter.
    #[inline]
    pub fn candidates<'g>(
        &'g self,
        key: &Key,
        wc: &mut Mask,
        secret: &HashKey,
        reader: &'g Reader,
    ) -> impl Iterator<Item = multimap::Entry<'g, Rule<R>>> {
        let mut hash = 0;
        for part in &self.parts {
            hash = secret.word(hash, key.word(part.block(), part.word()) & part.mask);
            wc.add_word(part.block(), part.word(), part.mask);
        }
        self.rules.find(hash as u32, reader).filter(move |entry| self.matches(entry.words, key))
    }

    #[inline]
    pub fn matches(&self, words: &[u64], key: &Key) -> bool {
        self.parts
            .iter()
            .zip(words)
            .all(|(part, &word)| key.word(part.block(), part.word()) & part.mask == word)
    }
}

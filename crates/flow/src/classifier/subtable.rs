//! The rules of one mask, and the proofs that none of them matches.
//!
//! A lookup that finds nothing in a subtable must prove that with bits of the key, and the fewer the better:
//! 1. A field in which all rules of the subtable have the same value, and the key a different one.
//! 2. A field matched by prefix (address or port), whose leading bits no rule has.
//! 3. The stages examined until the key's values occurred in no rule, without the fields in which all rules
//!    have the same value as the key.
//!
//! Each proof suffices alone, so the one that adds the fewest bits to the megaflow is used. All of them hold
//! for every linked rule, visible or not. A rule is added to the structures that narrow lookups before its
//! version is published, and removed when no reader looks up at a version that sees it.

use super::prefixes::{Arena, PrefixSet};
use super::rule::Rule;
use super::values::Values;
use crate::depth::Depth;
use crate::field::{FieldId, Place};
use crate::key::{BLOCKS, Key, Mask};
use crate::matching::Match;
use arrayvec::ArrayVec;
use base::Version;
use base::hash::HashKey;
use base::multimap::{self, Multimap};
use base::rcu::{Domain, Reader};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Stages of a lookup: metadata, Ethernet, network, transport.
const STAGES: usize = 4;
/// Keys of one prefetch: a burst of packets.
const PREFETCHED_MAX: usize = 64;
/// More than the parts of any mask: 96 words, some of which belong to several stages.
const PARTS_MAX: usize = 128;

/// The matched bits of one word of the key that belong to one stage.
pub(super) struct Part {
    /// Not zero.
    pub mask: u64,
    /// The first rule's value.
    first: u64,
    /// Bits, in whole fields, in which all rules have the first one's value. Only ever shrinks.
    agreed: AtomicU64,
    block: u8,
    word: u8,
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

/// The stage in which lookups examine a field: that of the packet's layer, except that neighbour discovery
/// and the like belong to transport.
fn stage_of(field: FieldId) -> usize {
    match field.depth() {
        Depth::Metadata => 0,
        Depth::Ethernet => 1,
        Depth::Network => 2,
        Depth::Transport | Depth::Everything => 3,
    }
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

/// A field that the subtable matches by prefix.
struct Prefixed {
    place: Place,
    /// Length of the prefixes.
    bits: u32,
    set: Prefixes,
}

enum Prefixes {
    /// Of a field of up to 32 bits.
    Narrow(PrefixSet<u64>),
    /// Of a field of 128 bits.
    Wide(PrefixSet<u128>),
}

impl Prefixed {
    fn new(field: FieldId, bits: u32) -> Prefixed {
        let place = field.place();
        let wide = place.bits > 32;
        let set =
            if wide { Prefixes::Wide(PrefixSet::new(bits)) } else { Prefixes::Narrow(PrefixSet::new(bits)) };
        Prefixed { place, bits, set }
    }

    /// The leading bits of the key's value that no rule has, as bits of the key's words.
    #[inline]
    fn proof(&self, key: &Key, arena: &Arena) -> Option<[(usize, u64); 2]> {
        let (b, w) = (usize::from(self.place.block), usize::from(self.place.word));
        match &self.set {
            Prefixes::Narrow(set) => {
                let up = 64 - self.place.shift - self.place.bits;
                let shared = set.shared_bits(key.word(b, w) << up, arena)?;
                let leading = !(u64::MAX >> 1 >> shared);
                (shared < self.bits).then_some([(w, leading >> up), (w, 0)])
            }
            Prefixes::Wide(set) => {
                let value = u128::from(key.word(b, w)) << 64 | u128::from(key.word(b, w + 1));
                let shared = set.shared_bits(value, arena)?;
                let leading = !(u128::MAX >> 1).checked_shr(shared).unwrap_or(0);
                (shared < self.bits).then_some([(w, (leading >> 64) as u64), (w + 1, leading as u64)])
            }
        }
    }

    /// Calls what counts a rule's value in or out.
    fn count(&self, word: impl Fn(u8) -> u64, insert: bool, arena: &Arena) {
        match &self.set {
            Prefixes::Narrow(set) => {
                let value = word(self.place.word) >> self.place.shift << (64 - self.place.bits);
                if insert { set.insert(value, arena) } else { set.remove(value, arena) }
            }
            Prefixes::Wide(set) => {
                let value = u128::from(word(self.place.word)) << 64 | u128::from(word(self.place.word + 1));
                if insert { set.insert(value, arena) } else { set.remove(value, arena) }
            }
        }
    }
}

/// Fields whose prefixes are tracked.
const PREFIXED: [FieldId; 6] =
    [FieldId::NwDst, FieldId::NwSrc, FieldId::Ipv6Dst, FieldId::Ipv6Src, FieldId::TpDst, FieldId::TpSrc];

/// Length of the prefix that the mask holds of the field, if it is one.
fn prefix_len(mask: &Mask, field: FieldId) -> Option<u32> {
    let width = u32::from(field.place().bits);
    let aligned = mask.get(field) << (128 - width);
    let len = aligned.leading_ones();
    (len > 0 && len == aligned.count_ones()).then_some(len)
}

/// Shared by all subtables of a classifier.
pub(super) struct Shared {
    pub domain: Arc<Domain>,
    pub secret: HashKey,
    pub arena: Arena,
    layout: Box<Layout>,
}

/// For each word of the key: its bits by stage, and its fields.
struct Layout {
    stages: [[[u64; STAGES]; 8]; BLOCKS],
    fields: [[Vec<FieldBits>; 8]; BLOCKS],
}

/// A field's bits in one word.
#[derive(Clone, Copy)]
struct FieldBits {
    bits: u64,
    /// Its leading bits are as good a proof as the whole.
    by_prefix: bool,
}

impl Shared {
    pub fn new(domain: Arc<Domain>, secret: HashKey) -> Shared {
        let mut layout = Box::new(Layout { stages: [[[0; STAGES]; 8]; BLOCKS], fields: Default::default() });
        for &field in FieldId::ALL {
            let mut mask = Mask::wild();
            mask.add_exact(field);
            for b in mask.0.present_blocks() {
                for w in 0..8 {
                    let bits = mask.0.word(b, w);
                    if bits != 0 {
                        layout.stages[b][w][stage_of(field)] |= bits;
                        let by_prefix = PREFIXED.contains(&field);
                        layout.fields[b][w].push(FieldBits { bits, by_prefix });
                    }
                }
            }
        }
        // What belongs to no field (tunnel options) is examined first, byte by byte.
        for b in 0..BLOCKS {
            for w in 0..8 {
                let rest = !layout.stages[b][w].iter().fold(0, |all, bits| all | bits);
                layout.stages[b][w][0] |= rest;
                for byte in (0..64).step_by(8).map(|shift| rest & 0xff << shift).filter(|&byte| byte != 0) {
                    layout.fields[b][w].push(FieldBits { bits: byte, by_prefix: false });
                }
            }
        }
        let arena = Arena::new(domain.clone());
        Shared { domain, secret, arena, layout }
    }

    pub fn memory_bytes(&self) -> usize {
        let fields: usize =
            self.layout.fields.iter().flatten().map(|f| f.capacity() * size_of::<FieldBits>()).sum();
        self.arena.memory_bytes() + size_of::<Layout>() + fields
    }

    fn fields(&self, part: &Part) -> &[FieldBits] {
        &self.layout.fields[part.block()][part.word()]
    }
}

/// Rules that share a mask.
pub(super) struct Subtable<R: Send + Sync + 'static> {
    /// The mask by words, those of the first stage first.
    pub parts: Box<[Part]>,
    /// For each stage: the end of its parts, and the values that rules have in the parts up to there, unless
    /// that is all.
    stages: Box<[Stage]>,
    /// Bit i is set while all rules agree in the parts up to the end of stage i, so that these need no
    /// lookup.
    agreed_stages: AtomicU8,
    pub rules: Multimap<Rule<R>>,
    prefixed: Box<[Prefixed]>,
    /// Canonical.
    pub mask: Mask,
    pub mask_hash: u32,
    /// Whether its rules match frames alone, without saying so by the packet type.
    pub implies_ethernet: bool,
    /// A reference to itself, to be kept longer than a borrow.
    this: Weak<Subtable<R>>,
    /// How many rules there are of each priority. Lookups do not ask.
    priorities: Mutex<BTreeMap<i32, usize>>,
}

/// The parts of a stage.
struct Stage {
    end: usize,
    values: Option<Values>,
}

impl<R: Send + Sync + 'static> Subtable<R> {
    /// A subtable for rules of this mask; `first` is the first's key.
    pub fn new(mask: Mask, mask_hash: u32, first: &Key, shared: &Shared) -> Arc<Subtable<R>> {
        let mut parts = Vec::new();
        let mut ends = Vec::new();
        for stage in 0..STAGES {
            for block in mask.0.present_blocks() {
                for (word, bits) in shared.layout.stages[block].iter().enumerate() {
                    let mask = mask.0.word(block, word) & bits[stage];
                    if mask != 0 {
                        let (first, agreed) = (first.word(block, word) & mask, AtomicU64::new(mask));
                        parts.push(Part { mask, first, agreed, block: block as u8, word: word as u8 });
                    }
                }
            }
            if ends.last().copied().unwrap_or(0) < parts.len() {
                ends.push(parts.len());
            }
        }
        assert!(parts.len() <= PARTS_MAX, "words lie in few stages each");
        let is_last = |end: usize| end == parts.len();
        let values = |end| (!is_last(end)).then(|| Values::new(shared.domain.clone()));
        let stages = ends.iter().map(|&end| Stage { end, values: values(end) }).collect();
        let prefixed = PREFIXED.iter().filter_map(|&field| {
            let bits = prefix_len(&mask, field)?;
            Some(Prefixed::new(field, bits))
        });
        let prefixed = prefixed.collect();
        Arc::new_cyclic(|this| Subtable {
            parts: parts.into_boxed_slice(),
            stages,
            agreed_stages: AtomicU8::new(u8::MAX),
            rules: Multimap::new(shared.domain.clone()),
            prefixed,
            implies_ethernet: mask.implies_ethernet(),
            mask,
            mask_hash,
            this: this.clone(),
            priorities: Mutex::default(),
        })
    }

    /// Another handle on it.
    pub fn shared(&self) -> Arc<Subtable<R>> {
        self.this.upgrade().expect("whoever borrows it has it from an `Arc`")
    }

    /// Whether its rules match all bits that the other match does.
    pub fn covers(&self, other: &Match) -> bool {
        let with_type = || {
            let mut mask = self.mask.clone();
            mask.add_exact(FieldId::PacketType);
            mask
        };
        self.mask.covers(&other.mask)
            || self.implies_ethernet
                && other.mask.get(FieldId::PacketType) != 0
                && with_type().covers(&other.mask)
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

    /// The best rule that `version` sees and that `key` matches, if its priority is above `floor`. Adds to
    /// `wc` what decided that.
    #[inline]
    pub fn find<'g>(
        &'g self,
        version: Version,
        key: &Key,
        floor: Option<i32>,
        wc: &mut Mask,
        look: (&Shared, &'g Reader),
    ) -> Option<multimap::Entry<'g, Rule<R>>> {
        let (shared, reader) = look;
        // 1. What all rules have in common.
        let mut masked: ArrayVec<u64, PARTS_MAX> = ArrayVec::new();
        for part in &self.parts {
            let word = key.word(part.block(), part.word());
            if (word ^ part.first) & part.agreed.load(Ordering::Relaxed) != 0 {
                self.prove_by_common_field(key, wc, shared);
                return None;
            }
            masked.push(word & part.mask);
        }
        // 2. Stage by stage.
        let agreed_stages = self.agreed_stages.load(Ordering::Relaxed);
        let (mut hash, mut start) = (0, 0);
        for (i, stage) in self.stages.iter().enumerate() {
            hash = masked[start..stage.end].iter().fold(hash, |hash, &word| shared.secret.word(hash, word));
            start = stage.end;
            if let Some(values) = &stage.values
                && agreed_stages & 1 << i == 0
                && !values.has(hash, reader)
            {
                self.prove_by_stages(start, key, wc, shared);
                return None;
            }
        }
        // 3. The rules with these words.
        let mut best: Option<multimap::Entry<'g, Rule<R>>> = None;
        let mut any = false;
        for entry in self.rules.find(hash as u32, reader).filter(|entry| *entry.words == *masked) {
            any = true;
            let bar = best.map_or(floor, |best| Some(best.value.priority));
            if bar.is_none_or(|bar| entry.value.priority > bar) && entry.value.is_visible(version) {
                best = Some(entry);
            }
        }
        if any {
            self.add_mask(wc);
        } else {
            self.prove_by_stages(self.parts.len(), key, wc, shared);
        }
        best
    }

    /// Prefetches what [`Self::find`] waits for longest, if these are so many rules that it does.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k Key>, shared: &Shared, reader: &Reader) {
        if !self.rules.is_large(reader) {
            return;
        }
        let hash = |key: &Key| {
            let words = self.parts.iter().map(|part| key.word(part.block(), part.word()) & part.mask);
            words.fold(0, |hash, word| shared.secret.word(hash, word)) as u32
        };
        let hashes: ArrayVec<u32, PREFETCHED_MAX> = keys.map(hash).take(PREFETCHED_MAX).collect();
        self.rules.prefetch(&hashes, reader);
    }

    /// The key differs in a field from what all rules have there.
    fn prove_by_common_field(&self, key: &Key, wc: &mut Mask, shared: &Shared) {
        let mut best = Proof::NONE;
        for part in &self.parts {
            let (b, w) = (part.block(), part.word());
            let different = (key.word(b, w) ^ part.first) & part.agreed.load(Ordering::Relaxed);
            if different == 0 {
                continue;
            }
            for field in shared.fields(part).iter().filter(|field| field.bits & different != 0) {
                let highest = 63 - (field.bits & different).leading_zeros();
                let reach = if field.by_prefix { u64::MAX << highest } else { u64::MAX };
                best.consider(b, [(w, field.bits & part.mask & reach), (w, 0)], wc);
            }
        }
        if best.cost == u32::MAX {
            // A rule that is not visible yet was linked since the caller's search: the whole mask is always a
            // proof.
            self.add_mask(wc);
        }
        best.add_to(wc);
    }

    fn add_mask(&self, wc: &mut Mask) {
        for part in &self.parts {
            wc.add_word(part.block(), part.word(), part.mask);
        }
    }

    /// The values of the key in `self.parts[..end]` occur in no rule.
    fn prove_by_stages(&self, end: usize, key: &Key, wc: &mut Mask, shared: &Shared) {
        // Fields in which all rules agree prove nothing: the key agrees with them.
        let needed = |part: &Part| part.mask & !part.agreed.load(Ordering::Relaxed);
        let missing = |part: &Part| needed(part) & !wc.0.word(part.block(), part.word());
        let missing = self.parts[..end].iter().map(missing).filter(|bits| *bits != 0);
        let missing: u32 = missing.map(u64::count_ones).sum();
        if missing == 0 {
            return;
        }
        let mut best = Proof::NONE;
        for prefixed in &self.prefixed {
            if let Some(words) = prefixed.proof(key, &shared.arena) {
                best.consider(prefixed.place.block.into(), words, wc);
                if best.cost == 0 {
                    // The megaflow has a proof already.
                    return;
                }
            }
        }
        if best.cost < missing {
            best.add_to(wc);
        } else {
            for part in &self.parts[..end] {
                wc.add_word(part.block(), part.word(), needed(part));
            }
        }
    }

    /// Writer: adds a rule's words to the structures that narrow lookups, before it is linked.
    pub fn learn(&self, words: &[u64], shared: &Shared, reader: &Reader) {
        for (part, word) in self.parts.iter().zip(words) {
            let agreed = part.agreed.load(Ordering::Relaxed);
            let different = (word ^ part.first) & agreed;
            if different != 0 {
                let fields = shared.fields(part).iter().filter(|field| field.bits & different != 0);
                let lost = fields.fold(0, |all, field| all | field.bits);
                part.agreed.store(agreed & !lost, Ordering::Relaxed);
            }
        }
        let (mut hash, mut start, mut all_agree) = (0, 0, true);
        for (i, stage) in self.stages.iter().enumerate() {
            for (part, &word) in self.parts[start..stage.end].iter().zip(&words[start..]) {
                hash = shared.secret.word(hash, word);
                all_agree &= part.agreed.load(Ordering::Relaxed) == part.mask;
            }
            start = stage.end;
            if let Some(values) = &stage.values {
                values.insert(hash, reader);
                if !all_agree {
                    self.agreed_stages.fetch_and(!(1 << i), Ordering::Relaxed);
                }
            }
        }
        self.count_prefixes(words, true, &shared.arena);
    }

    /// Writer: removes a rule's words again, after it was unlinked.
    pub fn forget(&self, words: &[u64], shared: &Shared, reader: &Reader) {
        let (mut hash, mut start) = (0, 0);
        for stage in &self.stages {
            hash = words[start..stage.end].iter().fold(hash, |hash, &word| shared.secret.word(hash, word));
            start = stage.end;
            if let Some(values) = &stage.values {
                values.remove(hash, reader);
            }
        }
        self.count_prefixes(words, false, &shared.arena);
    }

    fn count_prefixes(&self, words: &[u64], insert: bool, arena: &Arena) {
        for prefixed in &self.prefixed {
            let word = |w: u8| {
                let of_word = |part: &Part| (part.block, part.word) == (prefixed.place.block, w);
                let words = self.parts.iter().zip(words).filter(|(part, _)| of_word(part));
                words.fold(0, |all, (_, word)| all | word)
            };
            prefixed.count(word, insert, arena);
        }
    }

    /// Counts a rule of this priority; whether it is higher than all there were.
    pub fn add_priority(&self, priority: i32) -> bool {
        let mut priorities = self.priorities.lock().expect("no holder panics");
        let higher = priorities.last_key_value().is_none_or(|(&max, _)| max < priority);
        *priorities.entry(priority).or_default() += 1;
        higher
    }

    /// Whether there are rules of this priority.
    pub fn has_priority(&self, priority: i32) -> bool {
        self.priorities.lock().expect("no holder panics").contains_key(&priority)
    }

    /// Counts a rule of this priority away; if that changes the highest priority, the new one, `None` for no
    /// rule left.
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

    /// Bytes on the heap, those in the arena apart.
    pub fn memory_bytes(&self, reader: &Reader) -> usize {
        let priorities = self.priorities.lock().expect("no holder panics").len();
        let values = self.stages.iter().filter_map(|stage| stage.values.as_ref());
        size_of::<Self>()
            + size_of_val(&*self.parts)
            + size_of_val(&*self.stages)
            + size_of_val(&*self.prefixed)
            + values.map(|values| values.memory_bytes(reader)).sum::<usize>()
            + self.rules.memory_bytes()
            + priorities * 16
    }
}

/// Bits that prove a miss, and how many of them the mask does not have yet.
struct Proof {
    cost: u32,
    block: usize,
    words: [(usize, u64); 2],
}

impl Proof {
    const NONE: Proof = Proof { cost: u32::MAX, block: 0, words: [(0, 0); 2] };

    /// Takes these bits instead if they cost less.
    #[inline]
    fn consider(&mut self, block: usize, words: [(usize, u64); 2], wc: &Mask) {
        let missing =
            words.iter().filter(|(_, bits)| *bits != 0).map(|&(w, bits)| bits & !wc.0.word(block, w));
        let cost = missing.map(u64::count_ones).sum();
        if cost < self.cost {
            *self = Proof { cost, block, words };
        }
    }

    fn add_to(&self, wc: &mut Mask) {
        for &(word, bits) in &self.words {
            wc.add_word(self.block, word, bits);
        }
    }
}

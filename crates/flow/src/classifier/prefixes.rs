//! Sets of prefixes of one length: how many leading bits does a value share with the nearest of them?
//!
//! Idea: if no rule of a subtable has this /24, then the bits up to and including the first in which the
//! packet's address differs from the nearest /24 prove it, and the megaflow need not match all 24 of them.
//! Each subtable has a set for each field that it matches by prefix (addresses, ports); since all of a
//! subtable's prefixes have one length, rules of other lengths never lengthen the proof.
//!
//! A set is a trie over groups of four bits (path-compressed: there is a node where values diverge). A node
//! is a cache line of sixteen references; a leaf is the value with a count of its rules. All sets of a
//! classifier are in one [`Arena`], so an empty or small set costs four bytes, and a set of n random values
//! about 31 bytes each.
//!
//! Invariants: a linked node has at least two children, and every path ends in a leaf, so that a reader
//! always reaches one. A node or leaf that was unlinked is left unchanged until no reader can be in it.
//!
//! Threads: one writer (the classifier's mutex), any number of readers.

use base::rcu::Domain;
use base::slab::Slab;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Sixteen references, by the value of the four bits at the node's depth.
#[derive(zerocopy::FromZeros)]
#[repr(C, align(64))]
struct Node([AtomicU32; 16]);

/// A value of up to 32 bits in the high half, the number of its rules in the low.
type Narrow = AtomicU64;

/// A value of up to 128 bits and the number of its rules.
#[derive(zerocopy::FromZeros)]
#[repr(C)]
struct Wide {
    high: AtomicU64,
    low: AtomicU64,
    count: AtomicU64,
}

/// A reference. 0 is nothing; bit 31 marks a leaf, whose index is in the other bits; otherwise bits 26 to 30
/// are the node's depth in groups of four bits, the others its index, which is not 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ref(u32);

const LEAF: u32 = 1 << 31;
const PLACE_BITS: u32 = 26;
const NODES_MAX: u32 = 1 << PLACE_BITS;
const LEAVES_MAX: u32 = 1 << 30;

impl Ref {
    const NONE: Ref = Ref(0);
    /// Replaces a set that did not fit into the arena: it proves nothing.
    const OVERFLOWN: Ref = Ref(u32::MAX);

    fn node(depth: usize, place: u32) -> Ref {
        Ref((depth as u32) << PLACE_BITS | place)
    }

    #[inline(always)]
    fn is_leaf(self) -> bool {
        self.0 & LEAF != 0
    }

    #[inline(always)]
    fn depth(self) -> usize {
        (self.0 >> PLACE_BITS) as usize & 31
    }

    #[inline(always)]
    fn place(self) -> u32 {
        if self.is_leaf() { self.0 & !LEAF } else { self.0 & (NODES_MAX - 1) }
    }
}

/// A left-aligned value: `u64` for sets of up to 32 bits (the low half is zero), since wider ones are slow to
/// shift.
pub(super) trait Value: Copy + Eq {
    /// The four bits at a depth.
    fn group(self, depth: usize) -> usize;
    /// Number of leading bits that two have in common.
    fn shared(self, other: Self) -> u32;
    fn of_leaf(leaf: Ref, arena: &Arena) -> Self;
    fn counter(leaf: Ref, arena: &Arena) -> &AtomicU64;
    fn new_leaf(self, arena: &Arena, writer: &mut ArenaWriter) -> Option<Ref>;
    fn leave(leaf: Ref, writer: &mut ArenaWriter);
}

impl Value for u64 {
    #[inline(always)]
    fn group(self, depth: usize) -> usize {
        (self >> (60 - 4 * depth)) as usize & 15
    }
    #[inline(always)]
    fn shared(self, other: u64) -> u32 {
        (self ^ other).leading_zeros()
    }
    #[inline(always)]
    fn of_leaf(leaf: Ref, arena: &Arena) -> u64 {
        arena.narrow[leaf.place() as usize].load(Ordering::Relaxed) >> 32 << 32
    }
    fn counter(leaf: Ref, arena: &Arena) -> &AtomicU64 {
        &arena.narrow[leaf.place() as usize]
    }
    fn new_leaf(self, arena: &Arena, writer: &mut ArenaWriter) -> Option<Ref> {
        let place = writer.narrow.take(LEAVES_MAX, &arena.domain)?;
        arena.narrow.reserve(place as usize + 1);
        arena.narrow[place as usize].store(self | 1, Ordering::Relaxed);
        Some(Ref(LEAF | place))
    }
    fn leave(leaf: Ref, writer: &mut ArenaWriter) {
        writer.narrow.leaving.push(leaf.place());
    }
}

impl Value for u128 {
    #[inline(always)]
    fn group(self, depth: usize) -> usize {
        (self >> (124 - 4 * depth)) as usize & 15
    }
    #[inline(always)]
    fn shared(self, other: u128) -> u32 {
        (self ^ other).leading_zeros()
    }
    #[inline(always)]
    fn of_leaf(leaf: Ref, arena: &Arena) -> u128 {
        let wide = &arena.wide[leaf.place() as usize];
        u128::from(wide.high.load(Ordering::Relaxed)) << 64 | u128::from(wide.low.load(Ordering::Relaxed))
    }
    fn counter(leaf: Ref, arena: &Arena) -> &AtomicU64 {
        &arena.wide[leaf.place() as usize].count
    }
    fn new_leaf(self, arena: &Arena, writer: &mut ArenaWriter) -> Option<Ref> {
        let place = writer.wide.take(LEAVES_MAX, &arena.domain)?;
        arena.wide.reserve(place as usize + 1);
        let wide = &arena.wide[place as usize];
        wide.high.store((self >> 64) as u64, Ordering::Relaxed);
        wide.low.store(self as u64, Ordering::Relaxed);
        wide.count.store(1, Ordering::Relaxed);
        Some(Ref(LEAF | place))
    }
    fn leave(leaf: Ref, writer: &mut ArenaWriter) {
        writer.wide.leaving.push(leaf.place());
    }
}

/// Places that are free, or will be once readers have left them.
#[derive(Default)]
struct Places {
    /// Never used from here on.
    next: u32,
    free: Vec<u32>,
    /// Unlinked since the last ticket.
    leaving: Vec<u32>,
    /// Unlinked before the ticket was taken.
    waiting: VecDeque<(u64, Vec<u32>)>,
}

impl Places {
    fn take(&mut self, max: u32, domain: &Domain) -> Option<u32> {
        while self.free.is_empty() && self.waiting.front().is_some_and(|(ticket, _)| domain.passed(*ticket)) {
            self.free = self.waiting.pop_front().expect("there is a front").1;
        }
        self.free.pop().or_else(|| {
            let fresh = self.next;
            (fresh < max).then(|| self.next += 1)?;
            Some(fresh)
        })
    }

    fn settle(&mut self, ticket: u64) {
        if !self.leaving.is_empty() {
            self.waiting.push_back((ticket, std::mem::take(&mut self.leaving)));
        }
    }

    fn in_use(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|(_, places)| places.len()).sum();
        self.next as usize - self.free.len() - self.leaving.len() - waiting
    }
}

/// The storage for the sets of one classifier.
pub(super) struct Arena {
    domain: Arc<Domain>,
    nodes: Slab<Node>,
    narrow: Slab<Narrow>,
    wide: Slab<Wide>,
    writer: Mutex<ArenaWriter>,
}

pub(super) struct ArenaWriter {
    nodes: Places,
    narrow: Places,
    wide: Places,
}

impl Arena {
    pub fn new(domain: Arc<Domain>) -> Arena {
        // Node 0 is never used, so that no reference to a node is 0.
        let nodes = Places { next: 1, ..Places::default() };
        let writer = ArenaWriter { nodes, narrow: Places::default(), wide: Places::default() };
        Arena {
            domain,
            nodes: Slab::new(),
            narrow: Slab::new(),
            wide: Slab::new(),
            writer: Mutex::new(writer),
        }
    }

    /// Lets what was unlinked before this call be used again once all readers have been quiescent.
    pub fn settle(&self) {
        let mut writer = self.writer.lock().expect("no holder panics");
        let w = &mut *writer;
        if w.nodes.leaving.is_empty() && w.narrow.leaving.is_empty() && w.wide.leaving.is_empty() {
            return;
        }
        let ticket = self.domain.ticket();
        w.nodes.settle(ticket);
        w.narrow.settle(ticket);
        w.wide.settle(ticket);
    }

    /// Bytes of nodes and leaves that were ever used, and of the lists of free ones.
    pub fn memory_bytes(&self) -> usize {
        let writer = self.writer.lock().expect("no holder panics");
        let sizes = [
            (&writer.nodes, size_of::<Node>()),
            (&writer.narrow, size_of::<Narrow>()),
            (&writer.wide, size_of::<Wide>()),
        ];
        let lists = |p: &Places| (p.next as usize - p.in_use()) * size_of::<u32>();
        sizes.iter().map(|(places, size)| places.next as usize * size + lists(places)).sum()
    }
}

/// A set of values of `bits` bits, left-aligned in `V`, zero behind their bits.
pub(super) struct PrefixSet<V> {
    root: AtomicU32,
    bits: u8,
    _values: PhantomData<V>,
}

impl<V: Value> PrefixSet<V> {
    /// An empty set of values of 1 to 32 (`u64`) or 128 (`u128`) bits.
    pub fn new(bits: u32) -> PrefixSet<V> {
        assert!((1..=if size_of::<V>() == 8 { 32 } else { 128 }).contains(&bits));
        PrefixSet { root: AtomicU32::new(0), bits: bits as u8, _values: PhantomData }
    }

    /// Length of the longest common prefix of `value` and any of the set; the full number of bits if it is in
    /// the set (or if that is not known); `None` if the set is empty. Bits of `value` behind the set's do not
    /// matter.
    #[inline]
    pub fn shared_bits(&self, value: V, arena: &Arena) -> Option<u32> {
        let root = Ref(self.root.load(Ordering::Acquire));
        if root == Ref::NONE {
            return None;
        }
        if root == Ref::OVERFLOWN {
            return Some(self.bits.into());
        }
        let leaf = nearest(root, value, arena);
        Some(V::of_leaf(leaf, arena).shared(value).min(self.bits.into()))
    }

    /// Writer: counts a rule with this value in.
    pub fn insert(&self, value: V, arena: &Arena) {
        let root = Ref(self.root.load(Ordering::Relaxed));
        if root == Ref::OVERFLOWN {
            return;
        }
        let mut other = None;
        if root != Ref::NONE {
            let leaf = nearest(root, value, arena);
            let found = V::of_leaf(leaf, arena);
            if found == value {
                V::counter(leaf, arena).fetch_add(1, Ordering::Relaxed);
                return;
            }
            other = Some(found);
        }
        let mut writer = arena.writer.lock().expect("no holder panics");
        if self.link(root, value, other, arena, &mut writer).is_none() {
            // What is linked is lost to the arena: with 2^26 nodes, that is a minor problem.
            self.root.store(Ref::OVERFLOWN.0, Ordering::Release);
        }
    }

    /// Links a leaf for a new value; `other` is the nearest. `None` if the arena is full.
    fn link(
        &self,
        root: Ref,
        value: V,
        other: Option<V>,
        arena: &Arena,
        writer: &mut ArenaWriter,
    ) -> Option<()> {
        let leaf = value.new_leaf(arena, writer)?;
        let Some(other) = other else {
            // Release, here and below: a reader that sees the reference also sees what it refers to.
            self.root.store(leaf.0, Ordering::Release);
            return Some(());
        };
        let depth = (other.shared(value) / 4) as usize;
        // Down to where the values part: the common path.
        let mut slot = &self.root;
        let mut at = root;
        while !at.is_leaf() && at.depth() < depth {
            slot = &arena.nodes[at.place() as usize].0[value.group(at.depth())];
            at = Ref(slot.load(Ordering::Relaxed));
        }
        if !at.is_leaf() && at.depth() == depth {
            arena.nodes[at.place() as usize].0[value.group(depth)].store(leaf.0, Ordering::Release);
            return Some(());
        }
        let place = writer.nodes.take(NODES_MAX, &arena.domain)?;
        arena.nodes.reserve(place as usize + 1);
        let node = &arena.nodes[place as usize];
        for (g, child) in node.0.iter().enumerate() {
            let content = if g == value.group(depth) {
                leaf
            } else if g == other.group(depth) {
                at
            } else {
                Ref::NONE
            };
            child.store(content.0, Ordering::Relaxed);
        }
        slot.store(Ref::node(depth, place).0, Ordering::Release);
        Some(())
    }

    /// Writer: counts a rule with this value out, which was counted in.
    pub fn remove(&self, value: V, arena: &Arena) {
        let root = Ref(self.root.load(Ordering::Relaxed));
        if root == Ref::OVERFLOWN {
            return;
        }
        // The slot that refers to `node`, the node, and the slot in it that refers to the leaf.
        let mut parent: Option<(&AtomicU32, Ref)> = None;
        let mut slot = &self.root;
        let mut at = root;
        while !at.is_leaf() {
            assert!(at != Ref::NONE, "what is counted out was counted in");
            parent = Some((slot, at));
            slot = &arena.nodes[at.place() as usize].0[value.group(at.depth())];
            at = Ref(slot.load(Ordering::Relaxed));
        }
        let counter = V::counter(at, arena);
        let left = counter.load(Ordering::Relaxed) as u32 - 1;
        if left > 0 {
            counter.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let mut writer = arena.writer.lock().expect("no holder panics");
        V::leave(at, &mut writer);
        let Some((parent_slot, node)) = parent else {
            self.root.store(0, Ordering::Release);
            return;
        };
        let children = &arena.nodes[node.place() as usize].0;
        let others = children.iter().filter(|child| !std::ptr::eq(*child, slot));
        let mut others = others.map(|child| child.load(Ordering::Relaxed)).filter(|&child| child != 0);
        if let (Some(only), None) = (others.next(), others.next()) {
            // The node would have one child: the child takes its place.
            parent_slot.store(only, Ordering::Release);
            writer.nodes.leaving.push(node.place());
        } else {
            slot.store(0, Ordering::Release);
        }
    }
}

/// A leaf that shares as many leading bits with `value` as any other. Follows the value as long as possible;
/// then takes the sibling that shares the most of the four bits. If the value left the common path before
/// that, all leaves of that path diverge from it at the same bit.
#[inline]
fn nearest<V: Value>(root: Ref, value: V, arena: &Arena) -> Ref {
    let mut at = root;
    while !at.is_leaf() {
        let children = &arena.nodes[at.place() as usize].0;
        let wanted = value.group(at.depth());
        at = Ref(children[wanted].load(Ordering::Acquire));
        if at == Ref::NONE {
            // Differences in ascending order: 1 shares three bits, 2 and 3 two, 4 to 7 one, the others none.
            at = (1..16)
                .map(|difference| Ref(children[wanted ^ difference].load(Ordering::Acquire)))
                .find(|&child| child != Ref::NONE)
                .expect("a linked node has children, an unlinked one keeps them");
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shared<V: Value>(values: &[V], value: V, bits: u32) -> Option<u32> {
        values.iter().map(|v| v.shared(value).min(bits)).max()
    }

    /// Inserts (`true`) or removes values made of the numbers, and looks up near them.
    fn check<V: Value + std::fmt::Debug>(bits: u32, steps: &[(bool, u128, u32)], cut: impl Fn(u128) -> V) {
        let domain = Domain::new();
        let arena = Arena::new(domain.clone());
        let set = PrefixSet::<V>::new(bits);
        let mut values: Vec<V> = Vec::new();
        for &(insert, low, shift) in steps {
            let raw = (0x1234_5678_9abc_def0_0fed_cba9_8765_4321u128 ^ low << shift).rotate_left(shift % 7);
            let value = cut(raw);
            assert_eq!(set.shared_bits(value, &arena), shared(&values, value, bits));
            if insert || values.is_empty() {
                values.push(value);
                set.insert(value, &arena);
            } else {
                let gone = values.swap_remove(low as usize % values.len());
                set.remove(gone, &arena);
                arena.settle();
            }
            for probe in [value, cut(raw ^ 1 << 127), cut(raw ^ 1 << 100), cut(!raw)] {
                assert_eq!(set.shared_bits(probe, &arena), shared(&values, probe, bits));
            }
        }
        let any = cut(0);
        for value in values {
            set.remove(value, &arena);
        }
        assert_eq!(set.shared_bits(any, &arena), None);
        let writer = arena.writer.lock().unwrap();
        arena_is_empty(&writer);
    }

    fn arena_is_empty(writer: &ArenaWriter) {
        // Node 0 is never used.
        assert_eq!((writer.nodes.in_use(), writer.narrow.in_use(), writer.wide.in_use()), (1, 0, 0));
    }

    proptest! {
        #[test]
        fn a_set_knows_the_longest_shared_prefix(
            bits in prop_oneof![Just(1u32), Just(8), Just(13), Just(16), Just(32), Just(64), Just(128)],
            steps in proptest::collection::vec((any::<bool>(), 0u128..64, 0u32..120), 1..200),
        ) {
            let cut = |v: u128| v & !(u128::MAX.checked_shr(bits).unwrap_or(0));
            check::<u128>(bits, &steps, cut);
            if bits <= 32 {
                check::<u64>(bits, &steps, |v| (cut(v) >> 64) as u64);
            }
        }
    }

    #[test]
    fn a_place_is_used_again_only_after_every_reader_was_quiescent() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let arena = Arena::new(domain);
        let set = PrefixSet::<u64>::new(32);
        let places = |arena: &Arena| arena.writer.lock().unwrap().narrow.next;
        set.insert(1 << 63, &arena);
        set.remove(1 << 63, &arena);
        arena.settle();
        set.insert(1 << 62, &arena);
        assert_eq!(places(&arena), 2);
        reader.quiescent();
        set.insert(1 << 61, &arena);
        assert_eq!(places(&arena), 2);
    }
}

//! Sets of prefixes of one length: how many leading bits does a value share with the nearest of them?
//!
//! Idea: if no rule of a subtable has this /24, then the bits up to and including the first in which the packet's address
//! differs from the nearest /24 prove it, and the megaflow need not match all 24 of them. Each subtable has a set for
//! each field that it matches by prefix (addresses, ports); since all of a subtable's prefixes have one length, rules of
//! other lengths never lengthen the proof.
//!
//! A set is a trie over groups of four bits (path-compressed: a node stands where values part). A node is a
//! cache line of sixteen references; a leaf is the value with a count of its rules. All sets of a classifier lie in
//! one [`Arena`], so an empty or small set costs four bytes, and a set of n random values about 31 bytes each.
//!
//! Invariants: a linked node has at least two children, and every path ends in a leaf, so that a reader always
//! arrives. A node or leaf that was unlinked is left as it is until no reader can be in it.
//!
//! Threads: one writer (the classifier's mutex), any number of readers.

use base::rcu::Domain;
use base::slab::Slab;
use std::collections::VecDeque;
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

/// What a reference refers to. 0 is nothing; bit 31 marks a leaf, whose place is in the other bits; else bits 26 to 30 are the
/// node's depth in groups of four bits, the others its place, which is not 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ref(u32);

const LEAF: u32 = 1 << 31;
const PLACE_BITS: u32 = 26;
const NODES_MAX: u32 = 1 << PLACE_BITS;
const LEAVES_MAX: u32 = 1 << 30;

impl Ref {
    const NONE: Ref = Ref(0);
    /// In place of a set that did not fit in the arena: it proves nothing.
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

/// The four bits of a left-aligned value at a depth.
#[inline(always)]
fn group(value: u128, depth: usize) -> usize {
    (value >> (124 - 4 * depth)) as usize & 15
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

/// Where the sets of one classifier lie.
pub(super) struct Arena {
    domain: Arc<Domain>,
    nodes: Slab<Node>,
    narrow: Slab<Narrow>,
    wide: Slab<Wide>,
    writer: Mutex<ArenaWriter>,
}

struct ArenaWriter {
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

    #[inline(always)]
    fn child(&self, node: Ref, group: usize) -> Ref {
        Ref(self.nodes[node.place() as usize].0[group].load(Ordering::Acquire))
    }
}

/// A set of values of `bits` bits. Values are passed left-aligned, zero behind their bits.
pub(super) struct PrefixSet {
    root: AtomicU32,
    bits: u8,
}

impl PrefixSet {
    /// An empty set of values of 1 to 128 bits.
    pub fn new(bits: u32) -> PrefixSet {
        assert!((1..=128).contains(&bits));
        PrefixSet { root: AtomicU32::new(0), bits: bits as u8 }
    }

    fn is_wide(&self) -> bool {
        self.bits > 32
    }

    /// Length of the longest common prefix of `value` and any of the set; the full number of bits if it is in the set
    /// (or if that is not known); `None` if the set is empty.
    #[inline]
    pub fn shared_bits(&self, value: u128, arena: &Arena) -> Option<u32> {
        let root = Ref(self.root.load(Ordering::Acquire));
        if root == Ref::NONE {
            return None;
        }
        if root == Ref::OVERFLOWN {
            return Some(self.bits.into());
        }
        let leaf = self.nearest(root, value, arena);
        let shared = (self.value_of(leaf, arena) ^ value).leading_zeros();
        Some(shared.min(self.bits.into()))
    }

    /// A leaf that shares as many leading bits with `value` as any. Follows the value where it leads; where it leads
    /// nowhere, a sibling that shares the most of the four bits. If the value left the common path before that, all leaves
    /// of that path part from it at the same bit.
    #[inline]
    fn nearest(&self, root: Ref, value: u128, arena: &Arena) -> Ref {
        let mut at = root;
        while !at.is_leaf() {
            let wanted = group(value, at.depth());
            // Ascending differences: 1 shares three bits, 2 and 3 two, 4 to 7 one, the others none.
            at = (0..16)
                .map(|difference| arena.child(at, wanted ^ difference))
                .find(|&child| child != Ref::NONE)
                .expect("a linked node has children, an unlinked one keeps them");
        }
        at
    }

    #[inline]
    fn value_of(&self, leaf: Ref, arena: &Arena) -> u128 {
        let place = leaf.place() as usize;
        if self.is_wide() {
            let wide = &arena.wide[place];
            u128::from(wide.high.load(Ordering::Relaxed)) << 64 | u128::from(wide.low.load(Ordering::Relaxed))
        } else {
            u128::from(arena.narrow[place].load(Ordering::Relaxed) >> 32) << 96
        }
    }

    /// Writer: counts a rule with this value in.
    pub fn insert(&self, value: u128, arena: &Arena) {
        let root = Ref(self.root.load(Ordering::Relaxed));
        if root == Ref::OVERFLOWN || self.count_in(root, value, arena) {
            return;
        }
        let mut writer = arena.writer.lock().expect("no holder panics");
        if self.link(root, value, arena, &mut writer).is_none() {
            // What is linked is lost to the arena: with 2^26 nodes, that is the least of the troubles.
            self.root.store(Ref::OVERFLOWN.0, Ordering::Release);
        }
    }

    /// If the value has a leaf, counts there.
    fn count_in(&self, root: Ref, value: u128, arena: &Arena) -> bool {
        if root == Ref::NONE {
            return false;
        }
        let leaf = self.nearest(root, value, arena);
        let there = self.value_of(leaf, arena) == value;
        if there {
            self.counter_of(leaf, arena).fetch_add(1, Ordering::Relaxed);
        }
        there
    }

    fn counter_of<'a>(&self, leaf: Ref, arena: &'a Arena) -> &'a AtomicU64 {
        let place = leaf.place() as usize;
        if self.is_wide() { &arena.wide[place].count } else { &arena.narrow[place] }
    }

    fn new_leaf(&self, value: u128, arena: &Arena, writer: &mut ArenaWriter) -> Option<Ref> {
        let place = if self.is_wide() {
            let place = writer.wide.take(LEAVES_MAX, &arena.domain)?;
            arena.wide.reserve(place as usize + 1);
            let wide = &arena.wide[place as usize];
            wide.high.store((value >> 64) as u64, Ordering::Relaxed);
            wide.low.store(value as u64, Ordering::Relaxed);
            wide.count.store(1, Ordering::Relaxed);
            place
        } else {
            let place = writer.narrow.take(LEAVES_MAX, &arena.domain)?;
            arena.narrow.reserve(place as usize + 1);
            arena.narrow[place as usize].store((value >> 64) as u64 | 1, Ordering::Relaxed);
            place
        };
        Some(Ref(LEAF | place))
    }

    /// Links a leaf for a value that has none. `None` if the arena is full.
    fn link(&self, root: Ref, value: u128, arena: &Arena, writer: &mut ArenaWriter) -> Option<()> {
        let leaf = self.new_leaf(value, arena, writer)?;
        if root == Ref::NONE {
            // Release, here and below: who sees the reference sees what it refers to.
            self.root.store(leaf.0, Ordering::Release);
            return Some(());
        }
        let other = self.value_of(self.nearest(root, value, arena), arena);
        let depth = ((other ^ value).leading_zeros() / 4) as usize;
        // Down to where the values part: the common path.
        let mut slot = &self.root;
        let mut at = root;
        while !at.is_leaf() && at.depth() < depth {
            slot = &arena.nodes[at.place() as usize].0[group(value, at.depth())];
            at = Ref(slot.load(Ordering::Relaxed));
        }
        if !at.is_leaf() && at.depth() == depth {
            arena.nodes[at.place() as usize].0[group(value, depth)].store(leaf.0, Ordering::Release);
            return Some(());
        }
        let place = writer.nodes.take(NODES_MAX, &arena.domain)?;
        arena.nodes.reserve(place as usize + 1);
        let node = &arena.nodes[place as usize];
        for (g, child) in node.0.iter().enumerate() {
            let content = if g == group(value, depth) {
                leaf
            } else if g == group(other, depth) {
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
    pub fn remove(&self, value: u128, arena: &Arena) {
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
            slot = &arena.nodes[at.place() as usize].0[group(value, at.depth())];
            at = Ref(slot.load(Ordering::Relaxed));
        }
        let counter = self.counter_of(at, arena);
        let left = counter.load(Ordering::Relaxed) as u32 - 1;
        if left > 0 {
            counter.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let mut writer = arena.writer.lock().expect("no holder panics");
        let Some((parent_slot, node)) = parent else {
            self.root.store(0, Ordering::Release);
            self.leave(at, &mut writer);
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
        self.leave(at, &mut writer);
    }

    fn leave(&self, leaf: Ref, writer: &mut ArenaWriter) {
        let places = if self.is_wide() { &mut writer.wide } else { &mut writer.narrow };
        places.leaving.push(leaf.place());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shared(values: &[u128], value: u128, bits: u32) -> Option<u32> {
        values.iter().map(|v| (v ^ value).leading_zeros().min(bits)).max()
    }

    proptest! {
        #[test]
        fn a_set_knows_the_longest_shared_prefix(
            bits in prop_oneof![Just(1u32), Just(8), Just(13), Just(16), Just(32), Just(64), Just(128)],
            steps in proptest::collection::vec((any::<bool>(), 0u128..64, 0u32..120), 1..200),
        ) {
            let domain = Domain::new();
            let arena = Arena::new(domain.clone());
            let set = PrefixSet::new(bits);
            let mut values: Vec<u128> = Vec::new();
            let cut = |v: u128| v & !(u128::MAX.checked_shr(bits).unwrap_or(0));
            for (insert, low, shift) in steps {
                let value = cut((0x1234_5678_9abc_def0_0fed_cba9_8765_4321u128 ^ low << shift).rotate_left(shift % 7));
                prop_assert_eq!(set.shared_bits(value, &arena), shared(&values, value, bits));
                if insert || values.is_empty() {
                    values.push(value);
                    set.insert(value, &arena);
                } else {
                    let gone = values.swap_remove(low as usize % values.len());
                    set.remove(gone, &arena);
                    arena.settle();
                }
                for probe in [value, cut(value ^ 1 << 127), cut(value ^ 1 << 100), cut(!value)] {
                    prop_assert_eq!(set.shared_bits(probe, &arena), shared(&values, probe, bits));
                }
            }
            for value in values {
                set.remove(value, &arena);
            }
            prop_assert_eq!(set.shared_bits(0, &arena), None);
            let writer = arena.writer.lock().unwrap();
            // Node 0 is never used.
            prop_assert_eq!((writer.nodes.in_use(), writer.narrow.in_use(), writer.wide.in_use()), (1, 0, 0));
        }
    }

    #[test]
    fn a_place_is_used_again_only_after_every_reader_was_quiescent() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let arena = Arena::new(domain);
        let set = PrefixSet::new(32);
        let places = |arena: &Arena| arena.writer.lock().unwrap().narrow.next;
        set.insert(1 << 127, &arena);
        set.remove(1 << 127, &arena);
        arena.settle();
        set.insert(1 << 126, &arena);
        assert_eq!(places(&arena), 2);
        reader.quiescent();
        set.insert(1 << 125, &arena);
        assert_eq!(places(&arena), 2);
    }
}

//! What the cache tiers hold: entries of one cache line, and the bodies that they refer to.
//!
//! An [`Entry`] is the same in both tiers: what its key is compared by, its counters since the last fold, its
//! version, and what happens to its packets. The key of a plain packet fits into the entry, so a hit touches
//! only this line and the index's bucket. The packed key of a long plain packet is stored beside the entry,
//! in one line. So is any other key, and every megaflow's: block 0 in the tier, further blocks in the
//! [`Arena`]. What a hit does not need (counter slots, visited tables, action lists) is in the [`Body`],
//! shared by a megaflow and the exact entries made from it.
//!
//! Memory: every array reserves address space for its maximum size and uses memory only where it is touched.
//! A growing array has memory ready in advance. Free places are linked through themselves, so freeing
//! allocates nothing.

use super::counts::Counts;
use super::large::{LARGE_BYTES, Taken};
use crate::action::DpAction;
use crate::pipeline::{Rewrite, Translation};
use crate::stamp::Stamp;
use crate::watch::Marks;
use crate::watch::Visit;
use arrayvec::ArrayVec;
use base::region::Region;
use base::{DropReason, PortNo, Version};
use flow::extract::{
    LongKey, PLAIN_ORIGIN_BITS, PlainKey, origin_of_long, origin_of_plain, plain_with_origin,
};
use flow::{Block, Key};

/// What happens to a packet, or to all packets of a flow.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, zerocopy::FromZeros)]
pub enum Verdict {
    /// Of a packet: not yet looked up, or not yet translated. Of an entry: unused.
    Unknown = 0,
    /// Output to the datapath port with this number.
    Output(u16),
    /// Drop.
    Drop(DropReason),
    /// Execute the body's action list.
    Actions,
    /// Like `Actions`, for a list that only tracks packets and recirculates them: see [`crate::process`].
    Track,
    /// Of an entry: found to be out of date in this burst, and about to be removed.
    Stale,
}

impl Verdict {
    /// Whether the body has an action list to execute.
    #[inline(always)]
    pub fn is_list(self) -> bool {
        matches!(self, Verdict::Actions | Verdict::Track)
    }
}

/// A verdict and the body with its details: what a hit copies, in one word.
#[repr(C)]
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
pub struct Decision {
    /// What to do.
    pub verdict: Verdict,
    /// The flow's body.
    pub body: u32,
}

impl Decision {
    /// Nothing is known yet.
    pub const UNKNOWN: Decision = Decision { verdict: Verdict::Unknown, body: 0 };
}

/// What an entry is found by, in half a line. [`PLAIN`] and [`LONG`] tell which.
#[derive(Clone, Copy, PartialEq, Eq, Debug, zerocopy::FromZeros)]
#[repr(transparent)]
pub struct EntryKey(pub [u64; 4]);

/// Set in the last word of every plain key, and in no other: the highest bit of the number that it has.
pub const PLAIN: u64 = plain_with_origin(PLAIN_ORIGIN)[3];
pub const PLAIN_ORIGIN: u64 = 1 << (PLAIN_ORIGIN_BITS - 1);
/// The last word of every long plain packet's key, and of no other.
const LONG: u64 = 2;

impl EntryKey {
    /// The key that no entry has.
    pub const NONE: EntryKey = EntryKey([0, 0, 0, 1]);

    /// Of a plain packet.
    #[inline(always)]
    pub fn plain(key: PlainKey) -> EntryKey {
        debug_assert!(key[3] & PLAIN != 0);
        EntryKey(key)
    }

    /// Of a long plain packet, whose packed key is stored beside the entry: its hash, and its number.
    #[inline(always)]
    pub fn long(hash: u64, key: &LongKey) -> EntryKey {
        EntryKey([hash, 0, origin_of_long(key), LONG])
    }

    /// Whether it belongs to a long plain packet.
    #[inline(always)]
    pub fn is_long(&self) -> bool {
        self.0[3] == LONG
    }

    /// Whether it stands for the bytes of a plain packet, long or not: these tell the packet's key.
    #[inline(always)]
    pub fn is_packed(&self) -> bool {
        // All other keys have less in their last word.
        self.0[3] >= LONG
    }

    /// The number in a packed key.
    pub fn packed_origin(&self) -> Option<u64> {
        match (self.is_plain(), self.is_long()) {
            (true, _) => Some(origin_of_plain(&self.0)),
            (_, true) => Some(self.0[2]),
            _ => None,
        }
    }

    /// The key of an entry whose full key is stored beside it: its hash, the blocks that it (or its mask)
    /// has, its mask's number, and where its further blocks are in the arena, 0 if it has none.
    pub fn beside(hash: u64, present: u16, mask: u16, further: u32) -> EntryKey {
        EntryKey([hash, u64::from(further) | u64::from(present) << 32 | u64::from(mask) << 48, 0, 0])
    }

    /// Whether it belongs to a plain packet that is not long.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.0[3] & PLAIN != 0
    }

    /// Whether the full key is beside the entry and has this hash, these blocks and this mask.
    #[inline(always)]
    pub fn is_beside(&self, hash: u64, present: u16, mask: u16) -> bool {
        (self.0[0] ^ hash) | (self.0[1] >> 32 ^ u64::from(present) ^ u64::from(mask) << 16) | self.0[3] == 0
    }

    /// Whether it belongs to a megaflow with this hash and mask. The mask implies the blocks.
    #[inline(always)]
    pub fn is_of(&self, hash: u64, mask: u16) -> bool {
        (self.0[0] ^ hash) | (self.0[1] >> 48 ^ u64::from(mask)) == 0
    }

    /// Whether a key stored beside the entry has further blocks.
    #[inline(always)]
    pub fn has_further(&self) -> bool {
        self.0[1] as u32 != 0
    }

    /// The hash of a key stored beside the entry.
    pub fn hash(&self) -> u64 {
        self.0[0]
    }

    /// For a key stored beside the entry: where its further blocks are, and how many. None for a plain key.
    #[inline(always)]
    pub fn further(&self) -> (u32, usize) {
        if self.is_plain() { (0, 0) } else { (self.0[1] as u32, wide_len((self.0[1] >> 32) as u16)) }
    }

    /// The same key with a serial number unique among this worker's megaflows, which tells whether a place
    /// still holds the same megaflow.
    pub fn with_serial(self, serial: u64) -> EntryKey {
        let EntryKey([hash, rest, _, last]) = self;
        EntryKey([hash, rest, serial, last])
    }

    /// The megaflow's serial number.
    #[inline(always)]
    pub fn serial(&self) -> u64 {
        self.0[2]
    }

    /// The mask's number, for a megaflow.
    pub fn mask(&self) -> u16 {
        (self.0[1] >> 48) as u16
    }

    /// Comparison without a branch per word.
    #[inline(always)]
    pub fn equals(&self, other: &EntryKey) -> bool {
        (0..4).fold(0, |differing, w| differing | (self.0[w] ^ other.0[w])) == 0
    }
}

/// One cached flow of either tier.
#[repr(C, align(64))]
#[derive(zerocopy::FromZeros)]
pub struct Entry {
    /// What a lookup compares.
    pub key: EntryKey,
    /// Packets and bytes since the last fold.
    pub counts: Counts,
    /// What happens to its packets, and its body. In a free entry the body is the next free entry.
    pub decision: Decision,
    /// The version at which it was last known to be right.
    pub version: ShortVersion,
    /// Time of the last hit.
    pub used: Stamp,
    /// Where the flow stands among the changes that are watched for its sort, see [`crate::watch`].
    pub marks: Marks,
    /// Number of the flow's sort, as in the body; 0 for none.
    pub sort: u16,
    /// Which set of watched kinds `marks` belong to; 0 for none.
    pub set: u8,
    /// Non-zero for a flow that is cached in the exact tier alone.
    pub is_alone: u8,
}

/// The low half of a version. The sweep visits an entry about once a second and removes one that is 2^31
/// versions old, before its version could be mistaken for a newer one. If the version moves by another 2^31
/// meanwhile, [`FlowCache::set_version`](super::FlowCache::set_version) removes all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, zerocopy::FromZeros)]
#[repr(transparent)]
pub struct ShortVersion(u32);

/// How many versions ago an entry that the sweep leaves was right.
pub(super) const AGE_MAX: u32 = 1 << 31;

impl ShortVersion {
    /// From a whole version.
    #[inline(always)]
    pub fn of(version: Version) -> ShortVersion {
        ShortVersion(version.0 as u32)
    }

    /// The whole version, which is no newer than `now`.
    #[inline(always)]
    pub fn whole(self, now: Version) -> Version {
        Version(now.0 - u64::from(self.age(now)))
    }

    /// How many versions ago it was.
    #[inline(always)]
    fn age(self, now: Version) -> u32 {
        (now.0 as u32).wrapping_sub(self.0)
    }

    /// Whether the entry must be removed before its version becomes ambiguous.
    #[inline(always)]
    pub fn is_ancient(self, now: Version) -> bool {
        self.age(now) > AGE_MAX
    }
}

impl Entry {
    /// Counts packets of the flow.
    #[inline(always)]
    pub fn hit(&mut self, counts: Counts, now: Stamp) {
        self.counts.add(counts);
        self.used = now;
    }

    /// Whether it is unused.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.decision.verdict == Verdict::Unknown
    }
}

/// Where the key of the packet that created a megaflow is kept, see [`super::firsts`].
#[repr(C)]
#[derive(Clone, Copy, Default, zerocopy::FromZeros)]
pub(super) struct First {
    /// Where its further blocks are, 0 if it has none.
    pub further: u32,
    /// Which blocks it has; empty if the key is not kept.
    pub present: u16,
    _pad: u16,
}

impl First {
    pub fn new(further: u32, present: u16) -> First {
        First { further, present, _pad: 0 }
    }
}

/// Credits that fit into a body.
pub const INLINE_CREDITS: usize = 10;
/// Visits that fit into a body.
pub const INLINE_VISITS: usize = 4;

/// What a flow needs beyond a hit.
#[repr(C, align(64))]
#[derive(zerocopy::FromZeros)]
pub struct Body {
    /// Entries that refer to it: its megaflow (if that is still there) and exact entries.
    pub refs: u32,
    /// Its megaflow's entry, 0 once that is gone.
    pub megaflow: u32,
    /// Number of its overflow, 0 for none.
    pub overflow: u32,
    /// Number of the flow's mask, for judging changes.
    pub mask: u16,
    /// Number of the flow's sort, 0 for none.
    pub sort: u16,
    /// Used places of `credits`.
    pub n_credits: u8,
    /// Used places of `visits`.
    pub n_visits: u8,
    /// Bytes of the packet whose miss created the flow.
    pub first_bytes: u32,
    /// Packets folded so far.
    pub packets: u64,
    /// Bytes folded so far.
    pub bytes: u64,
    /// Counter slots.
    pub credits: [u32; INLINE_CREDITS],
    /// Tables visited.
    pub visits: [Visit; INLINE_VISITS],
    /// The key of the packet that created its megaflow, as long as that exists.
    pub(super) first: First,
    /// What it takes of the memory for large flows.
    pub(super) large: Taken,
}

/// The counts of an out-of-date megaflow, for the flow that replaces it.
#[derive(Clone, Copy)]
pub struct StaleStats {
    /// Its mask's number.
    pub mask: u16,
    /// Hash of its masked key.
    pub hash: u64,
    /// Packets folded so far.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// As in the body.
    pub first_bytes: u32,
}

/// At most this many megaflows that one burst finds out of date hand their counters to their successors. The
/// counters of any further successor start at 0.
pub const STALE_STATS_MAX: usize = 64;

/// What does not fit into a body: action lists, long chains of tables, rewritten fields.
#[derive(Default)]
pub struct Overflow {
    /// The action list, where the verdict [is one](Verdict::is_list).
    pub actions: Vec<DpAction>,
    /// All credits, if there are more than a body holds.
    pub credits: Vec<u32>,
    /// All visits, if there are more than a body holds.
    pub visits: Vec<Visit>,
    /// Rewritten words.
    pub rewrites: Vec<Rewrite>,
}

impl Overflow {
    /// Bytes of its lists.
    fn bytes(&self) -> usize {
        self.actions.capacity() * size_of::<DpAction>()
            + self.credits.capacity() * size_of::<u32>()
            + self.visits.capacity() * size_of::<Visit>()
            + self.rewrites.capacity() * size_of::<Rewrite>()
    }
}

const OVERFLOW_CHUNK: usize = 512;

/// Bodies and overflows, with their free lists.
pub struct Bodies {
    bodies: Region<Body>,
    /// The first free body, 0 for none. In a free body, `megaflow` is the next free one.
    free: u32,
    free_count: u32,
    high: u32,
    overflows: Vec<Box<[Overflow]>>,
    overflows_free: Vec<u32>,
    overflows_high: u32,
    /// Bytes of the lists in `overflows`.
    listed: usize,
}

impl Bodies {
    pub fn new(count: usize) -> std::io::Result<Bodies> {
        Ok(Bodies {
            bodies: Region::growing(count + 1)?,
            free: 0,
            free_count: 0,
            high: 0,
            overflows: Vec::with_capacity(count / OVERFLOW_CHUNK + 1),
            overflows_free: Vec::with_capacity(4096),
            // Number 0 means "none".
            overflows_high: 1,
            listed: 0,
        })
    }

    #[inline(always)]
    pub fn get(&self, idx: u32) -> &Body {
        &self.bodies[idx as usize]
    }

    #[inline(always)]
    pub fn get_mut(&mut self, idx: u32) -> &mut Body {
        &mut self.bodies[idx as usize]
    }

    pub fn prefetch(&self, idx: u32) {
        base::region::prefetch_at(&self.bodies, idx as usize);
        base::region::prefetch(&self.bodies[idx as usize].credits[INLINE_CREDITS - 1]);
    }

    pub fn overflow(&self, body: &Body) -> &Overflow {
        let n = body.overflow as usize;
        &self.overflows[n / OVERFLOW_CHUNK][n % OVERFLOW_CHUNK]
    }

    pub fn actions(&self, body: u32) -> &[DpAction] {
        let body = self.get(body);
        if body.overflow == 0 { &[] } else { &self.overflow(body).actions }
    }

    pub fn credits<'a>(&'a self, body: &'a Body) -> &'a [u32] {
        match usize::from(body.n_credits) {
            n if n <= INLINE_CREDITS => &body.credits[..n],
            _ => &self.overflow(body).credits,
        }
    }

    pub fn visits(&self, body: u32) -> (&[Visit], &[Rewrite]) {
        let body = self.get(body);
        if body.overflow == 0 {
            return (&body.visits[..usize::from(body.n_visits)], &[]);
        }
        let over = self.overflow(body);
        let n = usize::from(body.n_visits);
        (if n <= INLINE_VISITS { &body.visits[..n] } else { &over.visits }, &over.rewrites)
    }

    /// Makes a body from a translation, with no references yet. `None` when all are in use.
    pub fn make<E>(&mut self, t: &Translation<E>, mask: u16, list: bool) -> Option<u32> {
        let idx = if self.free != 0 {
            let idx = self.free;
            self.free = self.bodies[idx as usize].megaflow;
            self.free_count -= 1;
            idx
        } else if (self.high as usize) + 1 < self.bodies.len() {
            self.high += 1;
            self.bodies.in_use(self.high as usize + 1);
            self.high
        } else {
            return None;
        };
        let wide = list
            || t.credits.len() > INLINE_CREDITS
            || t.visits.len() > INLINE_VISITS
            || !t.rewrites.is_empty();
        let overflow = if wide { self.take_overflow(t, list) } else { 0 };
        let body = &mut self.bodies[idx as usize];
        (body.refs, body.megaflow, body.overflow) = (0, 0, overflow);
        (body.mask, body.sort) = (mask, 0);
        (body.packets, body.bytes, body.first_bytes, body.first) = (0, 0, 0, First::default());
        body.large = Taken::default();
        // One more than fits means "all are in the overflow".
        body.n_credits = t.credits.len().min(INLINE_CREDITS + 1) as u8;
        body.n_visits = t.visits.len().min(INLINE_VISITS + 1) as u8;
        for (to, from) in body.credits.iter_mut().zip(&t.credits) {
            *to = *from;
        }
        for (to, from) in body.visits.iter_mut().zip(&t.visits) {
            *to = *from;
        }
        Some(idx)
    }

    fn take_overflow<E>(&mut self, t: &Translation<E>, list: bool) -> u32 {
        let n = self.overflows_free.pop().unwrap_or_else(|| {
            let n = self.overflows_high;
            self.overflows_high += 1;
            n
        });
        while self.overflows.len() <= n as usize / OVERFLOW_CHUNK {
            self.overflows.push((0..OVERFLOW_CHUNK).map(|_| Overflow::default()).collect());
        }
        let over = &mut self.overflows[n as usize / OVERFLOW_CHUNK][n as usize % OVERFLOW_CHUNK];
        self.listed -= over.bytes();
        over.actions.clear();
        over.credits.clear();
        over.visits.clear();
        over.rewrites.clear();
        if list {
            over.actions.extend_from_slice(&t.actions);
        }
        if t.credits.len() > INLINE_CREDITS {
            over.credits.extend_from_slice(&t.credits);
        }
        if t.visits.len() > INLINE_VISITS {
            over.visits.extend_from_slice(&t.visits);
        }
        over.rewrites.extend_from_slice(&t.rewrites);
        self.listed += over.bytes();
        n
    }

    /// Drops one reference, and frees the body if it was the last; returns true in that case.
    pub fn release(&mut self, idx: u32) -> bool {
        let body = &mut self.bodies[idx as usize];
        body.refs -= 1;
        if body.refs > 0 {
            return false;
        }
        let overflow = body.overflow;
        if overflow != 0 {
            let n = overflow as usize;
            let over = &mut self.overflows[n / OVERFLOW_CHUNK][n % OVERFLOW_CHUNK];
            // Packet-in specifications and nested lists are freed now; lists that are not long keep their
            // capacity.
            over.actions.clear();
            let bytes = over.bytes();
            if bytes > LARGE_BYTES {
                *over = Overflow::default();
                self.listed -= bytes;
            }
            self.overflows_free.push(overflow);
        }
        self.bodies[idx as usize].megaflow = self.free;
        self.free = idx;
        self.free_count += 1;
        true
    }

    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        (self.high - self.free_count) as usize
    }

    pub fn memory_bytes(&self) -> usize {
        let overflows = self.overflows.len() * OVERFLOW_CHUNK * size_of::<Overflow>();
        self.high as usize * size_of::<Body>() + overflows + self.listed
    }
}

/// The verdict for packets with this action list.
pub fn verdict_of(actions: &[DpAction]) -> Verdict {
    match actions {
        [] => Verdict::Drop(DropReason::ActionDrop),
        // Datapath ports are numbered in 16 bits; any other number is treated as a port that is gone.
        [DpAction::Output(PortNo(port))] => u16::try_from(*port).map_or(Verdict::Actions, Verdict::Output),
        [DpAction::Drop(reason)] => Verdict::Drop(*reason),
        [DpAction::Ct(request), DpAction::Recirc(_)] if request.changes_nothing() => Verdict::Track,
        _ => Verdict::Actions,
    }
}

/// Key blocks beyond the first, in runs of 1 to 11.
pub struct Arena {
    blocks: Region<WideBlock>,
    /// By length, the first free run, 0 for none. The first word of a free run is the next one.
    free: [u32; flow::BLOCKS],
    high: u32,
}

#[derive(zerocopy::FromZeros)]
#[repr(C, align(64))]
struct WideBlock([u64; 8]);

/// Blocks beyond the first, collected to be stored or compared.
pub type WideKey = ArrayVec<[u64; 8], { flow::BLOCKS - 1 }>;

impl Arena {
    pub fn new(blocks: usize) -> std::io::Result<Arena> {
        // Number 0 means "none".
        Ok(Arena { blocks: Region::growing(blocks + 1)?, free: [0; flow::BLOCKS], high: 1 })
    }

    /// Stores a run. `None` when the arena is full, 0 for an empty run.
    pub fn store(&mut self, run: &[[u64; 8]]) -> Option<u32> {
        if run.is_empty() {
            return Some(0);
        }
        let free = self.free[run.len()];
        let start = if free != 0 {
            self.free[run.len()] = self.blocks[free as usize].0[0] as u32;
            free
        } else if self.high as usize + run.len() <= self.blocks.len() {
            let start = self.high;
            self.high += run.len() as u32;
            self.blocks.in_use(self.high as usize);
            start
        } else {
            return None;
        };
        for (to, from) in self.blocks[start as usize..].iter_mut().zip(run) {
            to.0 = *from;
        }
        Some(start)
    }

    pub fn release(&mut self, start: u32, run_len: usize) {
        if start != 0 {
            self.blocks[start as usize].0[0] = self.free[run_len].into();
            self.free[run_len] = start;
        }
    }

    #[inline(always)]
    pub fn run(&self, start: u32, len: usize) -> impl Iterator<Item = &[u64; 8]> {
        self.blocks[start as usize..start as usize + len].iter().map(|b| &b.0)
    }

    pub fn memory_bytes(&self) -> usize {
        self.high as usize * size_of::<Block>()
    }
}

/// The number of blocks beyond the first.
#[inline(always)]
pub(super) fn wide_len(present: u16) -> usize {
    (present & WIDE_BLOCKS).count_ones() as usize
}

/// Blocks beyond the first.
pub const WIDE_BLOCKS: u16 = ((1 << flow::BLOCKS) - 1) & !1;

/// The key's blocks beyond the first that `present` names.
#[inline(always)]
pub fn further_blocks(key: &Key, present: u16) -> impl Iterator<Item = &[u64; 8]> {
    let mut left = present & WIDE_BLOCKS;
    std::iter::from_fn(move || {
        let b = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (b < flow::BLOCKS).then(|| &key.block(b).0)
    })
}

/// The same, collected.
pub fn wide_of(key: &Key, present: u16) -> WideKey {
    // Bound: one block for each bit of `WIDE_BLOCKS`.
    further_blocks(key, present).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::MASK_EXACT;

    #[test]
    fn an_entry_is_one_line_a_body_two_and_a_decision_one_word() {
        assert_eq!((size_of::<Entry>(), size_of::<Body>(), size_of::<Decision>()), (64, 128, 8));
    }

    #[test]
    fn a_short_version_is_the_whole_one_across_its_wrap() {
        for (then, now) in [(0, 0), (7, 9), ((1 << 32) - 1, (1 << 32) + 5), (1 << 33, (1 << 33) + 100)] {
            assert_eq!(ShortVersion::of(Version(then)).whole(Version(now)), Version(then));
        }
        let old = ShortVersion::of(Version(5));
        assert!(!old.is_ancient(Version(5)) && !old.is_ancient(Version(5 + (1 << 31))));
        assert!(old.is_ancient(Version(6 + (1 << 31))));
    }

    #[test]
    fn keys_of_different_kinds_never_equal() {
        let plain = EntryKey::plain([0, 0, 0, PLAIN]);
        let beside = EntryKey::beside(7, 0b11, 3, 9);
        let long = EntryKey::long(7, &[[u64::MAX; 4]; 2]);
        let kinds = [plain, beside, long, EntryKey::NONE];
        for (n, a) in kinds.iter().enumerate() {
            assert!(kinds.iter().enumerate().all(|(m, b)| a.equals(b) == (n == m)));
            assert_eq!((a.is_plain(), a.is_long(), a.is_packed()), (n == 0, n == 2, n == 0 || n == 2));
            assert_eq!(a.packed_origin(), [Some(PLAIN_ORIGIN), None, Some(u64::from(u32::MAX)), None][n]);
        }
        assert!(!long.is_beside(7, 0, MASK_EXACT) && long.further() == (0, 0) && long.hash() == 7);
        assert!(beside.is_beside(7, 0b11, 3) && beside.further() == (9, 1) && beside.mask() == 3);
        assert!(
            !beside.is_beside(8, 0b11, 3) && !beside.is_beside(7, 0b10, 3) && !beside.is_beside(7, 0b11, 2)
        );
        assert!(!plain.is_beside(0, 0, 0) && plain.further() == (0, 0));
    }

    #[test]
    fn a_body_keeps_short_and_long_lists_and_is_reused_when_released() {
        let mut bodies = Bodies::new(4).unwrap();
        let mut t = Translation::<()>::default();
        t.credits.extend(0..3);
        let short = bodies.make(&t, 7, false).unwrap();
        t.credits.extend(3..20);
        t.actions.push(DpAction::PopVlan);
        let long = bodies.make(&t, 7, true).unwrap();
        assert_eq!(bodies.credits(bodies.get(short)), [0, 1, 2]);
        assert_eq!(bodies.credits(bodies.get(long)).len(), 20);
        assert_eq!(bodies.actions(long), [DpAction::PopVlan]);
        bodies.get_mut(short).refs = 1;
        bodies.release(short);
        assert_eq!(bodies.make(&t, 7, true), Some(short));
        assert_eq!(bodies.in_use(), 2);
    }
}

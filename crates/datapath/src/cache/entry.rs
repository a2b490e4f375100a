//! What the cache tiers hold: entries of two cache lines, and the bodies that they refer to.
//!
//! An [`Entry`] is the same in both tiers: the key's block 0 in the first line (masked, in the megaflow tier), and in the
//! second its counters since the last fold, version, and the action where that is a plain output or drop. So a hit
//! touches these two lines and the index's bucket, and no more. What a hit does not need (counter slots,
//! visited tables, action lists) is in the [`Body`], shared by a megaflow and the exact entries made from it.
//!
//! Memory: all arrays are mapped at their ceiling and cost what is touched; while they grow, memory is there ahead of it. Free places
//! are chained through themselves, so that giving back allocates nothing.

use crate::action::DpAction;
use crate::pipeline::{Rewrite, Translation, Visit};
use crate::stamp::Stamp;
use crate::watch::Marks;
use arrayvec::ArrayVec;
use base::region::Region;
use base::{DropReason, PortNo};
use flow::{Block, Key};

/// What an entry is, or what to do on a hit.
pub mod kind {
    /// Not in use.
    pub const FREE: u8 = 0;
    /// Output to `port`.
    pub const OUTPUT: u8 = 1;
    /// Drop for the reason in `port`.
    pub const DROP: u8 = 2;
    /// The body's overflow has the action list.
    pub const LIST: u8 = 3;
    /// Found to be out of date in this burst; about to be removed.
    pub const STALE: u8 = 4;
}

/// One cached flow of either tier.
#[repr(C, align(64))]
#[derive(zerocopy::FromZeros)]
pub struct Entry {
    /// Block 0 of the key.
    pub key: [u64; 8],
    /// Packets since the last fold.
    pub packets: u64,
    /// Bytes since the last fold.
    pub bytes: u64,
    /// The version at which it was last known to be right.
    pub version: u64,
    /// Hash under which it is in the index.
    pub hash: u64,
    /// Time of the last hit.
    pub used: Stamp,
    /// Its body.
    pub body: u32,
    /// First of the further key blocks in the arena, 0 where there are none.
    pub wide: u32,
    /// Argument of `kind`.
    pub port: u32,
    /// Which blocks the key has (exact tier), or the mask has (megaflows).
    pub present: u16,
    /// Number of the flow's mask; 0 for a flow that is cached alone.
    pub mask: u16,
    /// Number of the flow's sort, as in the body; 0 for none.
    pub sort: u16,
    /// Where the flow stands among the changes that are watched for its sort, see [`crate::watch`].
    pub marks: Marks,
    /// See [`kind`].
    pub kind: u8,
    /// Which set of watched kinds `marks` belong to; 0 for none.
    pub set: u8,
}

impl Entry {
    /// Whether it is the exact entry of a key that has no further blocks.
    #[inline(always)]
    pub fn is_of(&self, words: &[u64; 8], present: u16) -> bool {
        let differing = (0..8).fold(0, |differing, w| differing | (self.key[w] ^ words[w]));
        differing | u64::from(self.present ^ present) | u64::from(self.wide) == 0
    }

    /// Counts packets of the flow.
    #[inline(always)]
    pub fn hit(&mut self, packets: u64, bytes: u64, now: Stamp) {
        self.packets += packets;
        self.bytes += bytes;
        self.used = now;
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
    /// Its megaflow's entry, 0 when that is gone.
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
    /// Packets folded so far.
    pub packets: u64,
    /// Bytes folded so far.
    pub bytes: u64,
    /// Counter slots.
    pub credits: [u32; INLINE_CREDITS],
    /// Tables visited.
    pub visits: [Visit; INLINE_VISITS],
    _pad: [u8; 16],
}

/// What does not fit a body: lists of actions, long chains of tables, rewritten fields.
#[derive(Default)]
pub struct Overflow {
    /// The action list, where the entry's kind is [`kind::LIST`].
    pub actions: Vec<DpAction>,
    /// All credits, where there are more than a body holds.
    pub credits: Vec<u32>,
    /// All visits, where there are more than a body holds.
    pub visits: Vec<Visit>,
    /// Rewritten words.
    pub rewrites: Vec<Rewrite>,
}

const OVERFLOW_CHUNK: usize = 512;

/// Bodies and overflows, with their free lists.
pub struct Bodies {
    bodies: Region<Body>,
    /// The first free body, 0 for none. `megaflow` of a free one is the next.
    free: u32,
    free_count: u32,
    high: u32,
    overflows: Vec<Box<[Overflow]>>,
    overflows_free: Vec<u32>,
    overflows_high: u32,
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

    /// Makes a body of a translation, with no references yet. `None` when all are in use.
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
        (body.packets, body.bytes) = (0, 0);
        // One more than fits says "all are in the overflow".
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
        n
    }

    /// Takes one reference away, and the body where it was the last; then true.
    pub fn release(&mut self, idx: u32) -> bool {
        let body = &mut self.bodies[idx as usize];
        body.refs -= 1;
        if body.refs > 0 {
            return false;
        }
        let overflow = body.overflow;
        if overflow != 0 {
            let n = overflow as usize;
            // Packet-in specifications and nested lists are given back now, the lists' room is kept.
            self.overflows[n / OVERFLOW_CHUNK][n % OVERFLOW_CHUNK].actions.clear();
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
        self.high as usize * size_of::<Body>() + self.overflows.len() * OVERFLOW_CHUNK * size_of::<Overflow>()
    }
}

/// The kind and argument of an entry for an action list.
pub fn classify(actions: &[DpAction]) -> (u8, u32) {
    match actions {
        [] => (kind::DROP, DropReason::ActionDrop as u32),
        [DpAction::Output(PortNo(port))] => (kind::OUTPUT, *port),
        [DpAction::Drop(reason)] => (kind::DROP, *reason as u32),
        _ => (kind::LIST, 0),
    }
}

/// Key blocks beyond the first, in runs of 1 to 11.
pub struct Arena {
    blocks: Region<WideBlock>,
    /// By length, the first free run, 0 for none. The first word of a free one is the next.
    free: [u32; flow::BLOCKS],
    high: u32,
}

#[derive(zerocopy::FromZeros)]
#[repr(C, align(64))]
struct WideBlock([u64; 8]);

/// Blocks beyond the first, gathered to be stored or compared.
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

/// Blocks beyond the first.
pub const WIDE_BLOCKS: u16 = ((1 << flow::BLOCKS) - 1) & !1;

/// The key's blocks beyond the first, of those that `present` names.
pub fn wide_of(key: &Key, present: u16) -> WideKey {
    // Bound: one block for each bit of `WIDE_BLOCKS`.
    let mut run = WideKey::new();
    let mut left = present & WIDE_BLOCKS;
    while left != 0 {
        run.push(key.block(left.trailing_zeros() as usize).0);
        left &= left - 1;
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_bodies_are_two_lines_each() {
        assert_eq!(size_of::<Entry>(), 128);
        assert_eq!(size_of::<Body>(), 128);
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

//! A connection's entry: words that any thread may read, and change under the entry's own lock.
//!
//! The first word says whether the entry is in use, which connection it holds now (its generation), and
//! whether it is being changed. A reader that finds the word unchanged after reading the rest has read a
//! single connection. A writer holds an entry for some tens of nanoseconds; a packet that finds it held for
//! longer uses what it reads and changes nothing.
//!
//! Three cache lines, of which a connection touches as few as it can:
//!
//! 1. what the connection is, its timeout, the state of TCP's ends, and its mark: all that a packet of a
//!    known connection changes;
//! 2. what a lookup compares, and the label;
//! 3. the reverse tuple of a connection with translated addresses, and the chains of crowded buckets. Without
//!    translation the reverse tuple is the forward one reversed, and the line stays untouched.

use super::adjust::Adjustment;
use super::tcp::{Ends, Peers};
use super::tuple::{Packed, Tuple, reversed, zone_in};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

const SEQUENCE: usize = 0;
const EXPIRY: usize = 1;
/// The annex entry with what few connections have (high), the timeout policy, [`LABELLED`], and traits (low 8
/// bits).
const STATE: usize = 2;
/// What both ends may send, their windows and their states; beside the states (high) the mark.
const NUMBERS: usize = 3;
const WINDOWS: usize = 5;
const STATES: usize = 6;
/// Neighbours in the wheel's list.
const WHEEL: usize = 7;
const FORWARD: usize = 8;
const LABEL: usize = 13;
/// Neighbours in the list of half-open connections.
const HALF_OPEN: usize = 15;
/// Of a connection with [`Traits::TWO_PLACES`].
const REVERSE: usize = 16;
/// Next entries in the chains of both tuples' buckets.
const CHAINS: usize = 21;
/// In an annex entry, in place of ends and mark: two words each.
const ADJUSTMENTS: [usize; 2] = [3, 5];
const WORDS: usize = 24;

/// See the module documentation.
#[derive(zerocopy::FromZeros)]
#[repr(C, align(64))]
pub(crate) struct Entry([AtomicU64; WORDS]);

const _: () = assert!(size_of::<Entry>() == 192);

const LOCKED: u64 = 1;
const LIVE: u64 = 2;
const NEXT_GENERATION: u64 = 4;
/// How often a packet tries to lock a held entry before it gives up.
const SPINS: u32 = 500;

/// Which connection an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, zerocopy::FromZeros)]
pub(crate) struct Generation(u64);

/// Which of an entry's lists.
#[derive(Clone, Copy)]
pub(crate) enum List {
    Wheel = WHEEL as isize,
    HalfOpen = HALF_OPEN as isize,
}

/// Properties of a connection besides its tuples: bits of one word.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Traits(pub u64);

impl Traits {
    /// The other end has answered (UDP and others: a packet came back; TCP: it is established).
    pub const ANSWERED: u64 = 1;
    pub const SRC_NAT: u64 = 1 << 2;
    pub const DST_NAT: u64 = 1 << 3;
    /// Its reverse tuple has a place of its own in the index.
    pub const TWO_PLACES: u64 = 1 << 4;
    /// Expected by the helper of another.
    pub const RELATED: u64 = 1 << 5;
    pub const FTP: u64 = 1 << 6;
    pub const TFTP: u64 = 1 << 7;

    pub fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }
}

/// Traits, timeout policy, and whether there is a label, read as one word.
#[derive(Clone, Copy)]
pub(crate) struct Standing(u64);

impl Standing {
    #[inline(always)]
    pub fn has(self, traits: u64) -> bool {
        self.0 & traits != 0
    }

    #[inline(always)]
    pub fn is_labelled(self) -> bool {
        self.0 & LABELLED != 0
    }

    #[inline(always)]
    pub fn policy(self) -> u32 {
        self.0 as u32 >> POLICY_SHIFT
    }
}

/// The low bits of [`STATE`] are traits, the bits above them the policy.
const TRAITS: u64 = 0xff;
/// The label is not 0. Without this bit its words are not read.
const LABELLED: u64 = 1 << 8;
const POLICY_SHIFT: u32 = 9;
const _: () = assert!(super::timeouts::POLICIES_MAX <= 1 << (32 - POLICY_SHIFT));

impl Entry {
    /// Prefetches the line that a packet of a known connection changes.
    #[inline(always)]
    pub fn fetch_first(entries: &[Entry], idx: u32) {
        base::region::prefetch_at(entries, idx as usize);
    }

    /// Prefetches the lines that a lookup touches, including the third one for a translated connection.
    #[inline(always)]
    pub fn fetch(entries: &[Entry], idx: u32, is_translated: bool) {
        let lines = if is_translated { 3 } else { 2 };
        base::region::prefetch_lines_at(entries, idx as usize, lines);
    }

    fn get(&self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    fn set(&self, word: usize, value: u64) {
        self.0[word].store(value, Relaxed);
    }

    fn packed(&self, from: usize) -> Packed {
        std::array::from_fn(|n| self.get(from + n))
    }

    /// The connection in this entry, if there is one.
    #[inline(always)]
    pub fn generation(&self) -> Option<Generation> {
        let sequence = self.0[SEQUENCE].load(Acquire);
        (sequence & LIVE != 0).then_some(Generation(sequence & !LOCKED))
    }

    /// Whether everything read since [`Self::generation`] belongs to that connection.
    #[inline(always)]
    pub fn is_still(&self, generation: Generation) -> bool {
        fence(Acquire);
        self.get(SEQUENCE) & !LOCKED == generation.0
    }

    /// Whether a tuple is the connection's reverse one, and the generation that was compared. `None` if the
    /// tuple is neither of its two.
    #[inline(always)]
    pub fn is_reply(&self, tuple: &Packed) -> Option<(bool, Generation)> {
        let generation = self.generation()?;
        let reply = self.direction(tuple)?;
        self.is_still(generation).then_some((reply, generation))
    }

    /// Like [`Self::is_reply`], but also before the connection has begun.
    #[inline(always)]
    pub fn direction(&self, tuple: &Packed) -> Option<bool> {
        let forward = self.packed(FORWARD);
        if forward == *tuple {
            return Some(false);
        }
        let is_reverse = match self.traits().has(Traits::TWO_PLACES) {
            false => forward == reversed(tuple),
            true => self.packed(REVERSE) == *tuple,
        };
        is_reverse.then_some(true)
    }

    /// Locks the entry. `None` if it holds another connection by now, or stays locked for too long.
    #[inline(always)]
    pub fn hold(&self, generation: Generation) -> Option<Held<'_>> {
        for _ in 0..SPINS {
            let word = &self.0[SEQUENCE];
            match word.compare_exchange_weak(generation.0, generation.0 | LOCKED, Acquire, Relaxed) {
                Ok(_) => return Some(Held { entry: self, after: generation.0 }),
                Err(found) if found & !LOCKED != generation.0 => return None,
                Err(_) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// Ends the connection. False if another thread has done so, or keeps the entry locked for too long.
    pub fn end(&self, generation: Generation) -> bool {
        let Some(mut held) = self.hold(generation) else { return false };
        held.after = (generation.0 & !LIVE).wrapping_add(NEXT_GENERATION);
        true
    }

    // The following functions need exclusive access to an entry fresh from the free list.

    /// Makes the entry a connection that lookups can find.
    pub fn begin(&self) -> Generation {
        let sequence = self.get(SEQUENCE) | LIVE;
        self.0[SEQUENCE].store(sequence, Release);
        Generation(sequence)
    }

    pub fn set_forward(&self, tuple: &Packed) {
        self.set_packed(FORWARD, tuple);
    }

    /// For a connection that has [`Traits::TWO_PLACES`].
    pub fn set_reverse(&self, tuple: &Packed) {
        self.set_packed(REVERSE, tuple);
    }

    fn set_packed(&self, from: usize, tuple: &Packed) {
        tuple.iter().enumerate().for_each(|(n, word)| self.set(from + n, *word));
    }

    /// Sets what a new connection starts with: TCP's ends, mark and label, the annex entry with what few
    /// connections have (0: none), and the timeout policy. It has no traits yet.
    pub fn set_new(&self, peers: &Peers, (mark, label): (u32, u128), annex: u32, policy: u32) {
        let Ends { numbers, windows, states } = Ends::of(peers);
        self.set(NUMBERS, numbers[0]);
        self.set(NUMBERS + 1, numbers[1]);
        self.set(WINDOWS, windows);
        self.set(STATES, u64::from(mark) << 32 | u64::from(states));
        self.set(STATE, u64::from(annex) << 32 | u64::from(policy) << POLICY_SHIFT);
        if label != 0 {
            self.set_label(label);
        }
    }

    /// Sets the traits, the annex entry with what few connections have (0: none), and the timeout policy.
    pub fn set_state(&self, traits: Traits, annex: u32, policy: u32) {
        let labelled = self.get(STATE) & LABELLED;
        self.set(STATE, u64::from(annex) << 32 | u64::from(policy) << POLICY_SHIFT | labelled | traits.0);
    }

    // Lists of a shard, under the shard's lock.

    pub fn links(&self, list: List) -> (u32, u32) {
        let word = self.get(list as usize);
        ((word >> 32) as u32, word as u32)
    }

    pub fn set_links(&self, list: List, (before, after): (u32, u32)) {
        self.set(list as usize, u64::from(before) << 32 | u64::from(after));
    }

    // Chains of a bucket, under the bucket's lock; read by lookups.

    pub fn next_in_chain(&self, is_reverse: bool) -> u32 {
        (self.get(CHAINS) >> if is_reverse { 32 } else { 0 }) as u32
    }

    pub fn set_next_in_chain(&self, is_reverse: bool, next: u32) {
        // Two buckets' locks guard the two halves, so the whole word is exchanged atomically.
        let shift = if is_reverse { 32 } else { 0 };
        let put = |word: u64| Some(word & !(0xffff_ffff << shift) | u64::from(next) << shift);
        let _ = self.0[CHAINS].fetch_update(Relaxed, Relaxed, put);
    }

    // What any thread may read. It belongs to one connection if the generation is the same before and after.

    pub fn tuples(&self) -> (Tuple, Tuple, u16) {
        let (forward, zone) = Tuple::unpacked(&self.packed(FORWARD));
        (forward, self.reverse(), zone)
    }

    /// The tuple of the direction that answers.
    pub fn reverse(&self) -> Tuple {
        match self.traits().has(Traits::TWO_PLACES) {
            false => self.forward().reversed(),
            true => Tuple::unpacked(&self.packed(REVERSE)).0,
        }
    }

    /// The tuple of the direction that opened the connection.
    pub fn forward(&self) -> Tuple {
        Tuple::unpacked(&self.packed(FORWARD)).0
    }

    pub fn zone(&self) -> u16 {
        zone_in(self.get(FORWARD + 4))
    }

    pub fn expiry_ms(&self) -> u64 {
        self.get(EXPIRY)
    }

    /// Renews the timeout of a connection, never that of its successor in the entry: the value read is
    /// exchanged only if it is still there and belonged to that connection. A change that would matter little
    /// is skipped, because other workers read the word. True if the timeout now ends earlier than before, so
    /// that the wheel would look too late.
    #[inline(always)]
    pub fn expire_at(&self, generation: Generation, ms: u64) -> bool {
        self.expire_after(generation, self.get(EXPIRY), ms)
    }

    /// The same if `before` was read.
    #[inline(always)]
    pub fn expire_after(&self, generation: Generation, before: u64, ms: u64) -> bool {
        // Nearly always, one comparison. It also finds what ends earlier than before.
        ms.wrapping_sub(before) > 100 && self.expire_otherwise(generation, before, ms)
    }

    #[inline(never)]
    fn expire_otherwise(&self, generation: Generation, before: u64, ms: u64) -> bool {
        if self.is_still(generation) {
            // Another worker was faster to renew it, or has ended the connection.
            let _ = self.0[EXPIRY].compare_exchange(before, ms, Relaxed, Relaxed);
        }
        ms + 2_000 < before
    }

    /// Sets the timeout unconditionally. A reader that sees it finds that the previous connection has ended.
    pub fn set_expiry(&self, ms: u64) {
        self.0[EXPIRY].store(ms, Release);
    }

    #[inline(always)]
    pub fn standing(&self) -> Standing {
        Standing(self.get(STATE))
    }

    pub fn traits(&self) -> Traits {
        Traits(self.get(STATE) & TRAITS)
    }

    pub fn set_traits(&self, traits: Traits) {
        self.set(STATE, self.get(STATE) & !TRAITS | traits.0);
    }

    pub fn mark(&self) -> u32 {
        (self.get(STATES) >> 32) as u32
    }

    pub fn set_mark(&self, mark: u32) {
        self.set(STATES, u64::from(mark) << 32 | self.get(STATES) & 0xffff_ffff);
    }

    pub fn label(&self) -> u128 {
        if self.get(STATE) & LABELLED == 0 {
            return 0;
        }
        u128::from(self.get(LABEL)) << 64 | u128::from(self.get(LABEL + 1))
    }

    /// The label as it was at one moment. `None` while another thread may be changing it.
    pub fn label_at_rest(&self) -> Option<u128> {
        if !self.standing().is_labelled() {
            return Some(0);
        }
        let is_at_rest = || {
            fence(Acquire);
            self.0[SEQUENCE].load(Acquire) & LOCKED == 0
        };
        // The lock leaves no trace: who had it between the two looks at it has changed what is read again.
        let label = self.label();
        (is_at_rest() && self.label() == label && is_at_rest()).then_some(label)
    }

    pub fn set_label(&self, label: u128) {
        // Who sees any of it finds the entry locked.
        fence(Release);
        self.set(LABEL, (label >> 64) as u64);
        self.set(LABEL + 1, label as u64);
        let labelled = if label == 0 { 0 } else { LABELLED };
        self.set(STATE, self.get(STATE) & !LABELLED | labelled);
    }

    /// TCP's ends.
    #[inline(always)]
    pub fn ends(&self) -> Ends {
        Ends {
            numbers: [self.get(NUMBERS), self.get(NUMBERS + 1)],
            windows: self.get(WINDOWS),
            states: self.get(STATES) as u32,
        }
    }

    /// The same, as the end `from` sees them.
    #[inline(always)]
    pub fn ends_seen_from(&self, from: u32) -> Ends {
        let from = from & 1;
        Ends {
            numbers: [self.get(NUMBERS + from as usize), self.get(NUMBERS + 1 - from as usize)],
            windows: self.get(WINDOWS).rotate_left(32 * from),
            states: (self.get(STATES) as u32).rotate_left(16 * from),
        }
    }

    /// Replaces TCP's ends, as the end `from` sees them. False if another worker has changed them meanwhile.
    #[inline(never)]
    pub fn replace_ends(&self, generation: Generation, from: u32, before: &Ends, after: &Ends) -> bool {
        let Some(held) = self.hold(generation) else { return false };
        let is_as_before = held.ends_seen_from(from) == *before;
        if is_as_before {
            held.set_ends(&after.seen_from(from));
        }
        is_as_before
    }

    #[inline(always)]
    pub fn set_ends(&self, ends: &Ends) {
        self.set(NUMBERS, ends.numbers[0]);
        self.set(NUMBERS + 1, ends.numbers[1]);
        self.set(WINDOWS, ends.windows);
        self.set(STATES, self.get(STATES) >> 32 << 32 | u64::from(ends.states));
    }

    pub fn peers(&self) -> Peers {
        self.ends().peers()
    }

    pub fn set_peers(&self, peers: &Peers) {
        self.set_ends(&Ends::of(peers));
    }

    /// For an annex: how the sequence numbers of both ends are shifted.
    pub fn adjustments(&self) -> [Adjustment; 2] {
        ADJUSTMENTS.map(|at| {
            let (first, second) = (self.get(at), self.get(at + 1));
            Adjustment { position: (first >> 32) as u32, before: first as i32, after: second as i32 }
        })
    }

    pub fn set_adjustments(&self, both: &[Adjustment; 2]) {
        for (a, at) in both.iter().zip(ADJUSTMENTS) {
            self.set(at, u64::from(a.position) << 32 | u64::from(a.before as u32));
            self.set(at + 1, u64::from(a.after as u32));
        }
    }

    /// The annex entry with what few connections have (0: none), and the timeout policy.
    #[inline(always)]
    pub fn annex(&self) -> (u32, u32) {
        let word = self.get(STATE);
        ((word >> 32) as u32, word as u32 >> POLICY_SHIFT)
    }
}

/// An entry that only its holder changes.
pub(crate) struct Held<'a> {
    entry: &'a Entry,
    after: u64,
}

impl std::ops::Deref for Held<'_> {
    type Target = Entry;
    #[inline(always)]
    fn deref(&self) -> &Entry {
        self.entry
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.entry.0[SEQUENCE].store(self.after, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tcp::{Peer, Scale, State};
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_timeout_is_renewed_for_its_own_connection_alone() {
        let entry = Entry::new_zeroed();
        entry.set_expiry(1_000);
        let first = entry.begin();
        assert!(!entry.expire_at(first, 5_000));
        assert!(!entry.expire_at(first, 5_050));
        assert_eq!(entry.expiry_ms(), 5_000, "little would change");
        assert!(entry.expire_at(first, 2_000));
        assert_eq!(entry.expiry_ms(), 2_000);
        assert!(entry.end(first));
        entry.set_expiry(3_000);
        let second = entry.begin();
        entry.expire_at(first, 90_000);
        assert_eq!(entry.expiry_ms(), 3_000, "that of the one that ended");
        entry.expire_at(second, 90_000);
        assert_eq!(entry.expiry_ms(), 90_000);
    }

    #[test]
    fn what_is_written_is_read_and_an_ended_connection_is_not_found() {
        let entry = Entry::new_zeroed();
        let tuple = Tuple { src: 1 << 100, dst: 2, src_port: 3, dst_port: 4, protocol: 6, is_ipv6: true };
        let (forward, reverse) = (tuple.packed(9), tuple.reversed().packed(9));
        entry.set_forward(&forward);
        entry.set_state(Traits(Traits::FTP), 1 << 21, 1 << 16);
        assert_eq!(entry.is_reply(&forward), None, "not begun");
        let first = entry.begin();
        assert_eq!(entry.is_reply(&forward), Some((false, first)));
        assert_eq!(entry.is_reply(&reverse), Some((true, first)));
        assert_eq!(entry.is_reply(&tuple.packed(8)), None);
        let peer =
            Peer { next: 5, limit: u32::MAX, window: 7 << 20, scale: Scale::By(14), state: State::TimeWait };
        let other = Peer { scale: Scale::Unknown, ..Peer::default() };
        {
            let held = entry.hold(first).unwrap();
            held.set_peers(&[peer, other]);
            held.set_label(3 << 90 | 5);
            assert_eq!(entry.label_at_rest(), None, "there may be more to come");
            held.set_mark(17);
            held.set_peers(&[peer, other]);
            held.set_traits(Traits(Traits::TWO_PLACES | Traits::ANSWERED));
            assert!(entry.hold(first).is_none(), "held for long");
            assert_eq!(entry.is_reply(&forward), Some((false, first)), "readers do not mind");
        }
        assert_eq!((entry.peers(), entry.label(), entry.mark()), ([peer, other], 3 << 90 | 5, 17));
        assert_eq!(entry.label_at_rest(), Some(3 << 90 | 5));
        assert_eq!(
            (entry.traits().0, entry.annex()),
            (Traits::TWO_PLACES | Traits::ANSWERED, (1 << 21, 1 << 16))
        );
        assert_eq!(entry.is_reply(&reverse), None, "its reverse tuple is another now");
        let translated = Tuple { src: 77, ..tuple.reversed() };
        entry.set_reverse(&translated.packed(9));
        assert_eq!(entry.is_reply(&translated.packed(9)), Some((true, first)));
        assert_eq!(entry.tuples(), (tuple, translated, 9));
        assert!(entry.end(first) && !entry.end(first));
        assert!(entry.hold(first).is_none() && !entry.is_still(first));
        assert_ne!(entry.begin(), first);
    }

    #[test]
    fn both_chains_are_kept_apart() {
        let entry = Entry::new_zeroed();
        entry.set_next_in_chain(false, 7);
        entry.set_next_in_chain(true, u32::MAX);
        assert_eq!((entry.next_in_chain(false), entry.next_in_chain(true)), (7, u32::MAX));
        entry.set_next_in_chain(true, 0);
        assert_eq!((entry.next_in_chain(false), entry.next_in_chain(true)), (7, 0));
    }
}

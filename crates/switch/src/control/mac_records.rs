//! The addresses of one bridge, in memory proportional to their number: a removed address leaves nothing
//! behind.
//!
//! Records are in a slab. Each learned one is in two intrusive lists: its port's, for eviction, and that of
//! the tenth of a second in which it was last seen, for ageing. In its port's list it is behind all that were
//! there when it was learned, or was last found in use when it was to give way: an approximation of the order
//! of use that costs nothing while addresses are used. Times of last use are stored rather than deadlines, so
//! that a new ageing time takes effect at once. Ports are ordered by their number of addresses. Every
//! operation is at most logarithmic in the number of ports and ages.
//!
//! Static addresses, added by the operator, are in neither list: they do not age and are not evicted. They
//! are few, and kept in a set.

use super::ended::{Ended, Left};
use crate::mac::MacTable;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use base::{PortNo, Version};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// How late the counters tell of use, at most, with something to spare: workers fold them once a second.
const RECENT_MS: u64 = 3_000;
/// The resolution of times.
const BUCKET_MS: u64 = 100;
/// No record.
const NONE: u32 = u32::MAX;
/// Which of the two lists.
const OF_PORT: usize = 0;
const OF_AGE: usize = 1;

/// What is known about an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// VLAN and address.
    pub word: u64,
    pub port: PortNo,
    pub slot: u32,
    pub learned_ms: u64,
    pub is_static: bool,
    /// When it was put at the end of its port's list.
    placed_ms: u64,
    /// When it was last known to be seen, in tenths of a second.
    seen: u64,
    links: [Links; 2],
}

#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    len: usize,
}

const EMPTY: List = List { first: NONE, last: NONE, len: 0 };

impl Record {
    /// Whether one that was last used then keeps its place: it was used since it was put there, or of late.
    /// What a host has made up is not used after it was learned.
    pub fn is_in_use(&self, used_ms: u64, now_ms: u64) -> bool {
        used_ms > self.placed_ms || used_ms > self.learned_ms && now_ms < used_ms + RECENT_MS
    }
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Records {
    by_word: HashMap<u64, u32>,
    slab: Vec<Record>,
    free: Vec<u32>,
    by_port: HashMap<PortNo, List>,
    /// Ports by number of learned addresses.
    fullest: BTreeSet<(usize, PortNo)>,
    by_age: BTreeMap<u64, List>,
    statics: BTreeSet<u64>,
}

fn bucket(ms: u64) -> u64 {
    ms.div_ceil(BUCKET_MS)
}

impl List {
    fn push(&mut self, slab: &mut [Record], which: usize, n: u32) {
        slab[n as usize].links[which] = Links { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = n,
            last => slab[last as usize].links[which].after = n,
        }
        self.last = n;
        self.len += 1;
    }

    fn unlink(&mut self, slab: &mut [Record], which: usize, n: u32) {
        let Links { before, after } = slab[n as usize].links[which];
        match before {
            NONE => self.first = after,
            before => slab[before as usize].links[which].after = after,
        }
        match after {
            NONE => self.last = before,
            after => slab[after as usize].links[which].before = before,
        }
        self.len -= 1;
    }
}

impl Records {
    pub fn len(&self) -> usize {
        self.by_word.len()
    }

    pub fn get(&self, word: u64) -> Option<&Record> {
        self.by_word.get(&word).map(|n| &self.slab[*n as usize])
    }

    /// How many places there are, with an address or without.
    pub fn places(&self) -> usize {
        self.slab.len()
    }

    /// The addresses in some of the places.
    pub fn within(&self, places: Range<usize>) -> impl Iterator<Item = &Record> {
        let is_there = |n: &usize| self.by_word.get(&self.slab[*n].word) == Some(&(*n as u32));
        places.filter(is_there).map(|n| &self.slab[n])
    }

    /// Adds a new address.
    pub fn insert(&mut self, word: u64, port: PortNo, slot: u32, now_ms: u64, is_static: bool) {
        let links = [Links { before: NONE, after: NONE }; 2];
        let (learned_ms, placed_ms, seen) = (now_ms, now_ms, bucket(now_ms));
        let record = Record { word, port, slot, learned_ms, is_static, placed_ms, seen, links };
        let n = match self.free.pop() {
            Some(n) => {
                self.slab[n as usize] = record;
                n
            }
            None => {
                self.slab.push(record);
                self.slab.len() as u32 - 1
            }
        };
        self.by_word.insert(word, n);
        if is_static {
            self.statics.insert(word);
        } else {
            self.put_at_port(n);
            self.put_at_age(n);
        }
    }

    pub fn remove(&mut self, word: u64) -> Option<Record> {
        let n = self.by_word.remove(&word)?;
        let record = self.slab[n as usize];
        if record.is_static {
            self.statics.remove(&word);
        } else {
            self.take_from_port(n);
            self.take_from_age(n);
        }
        self.free.push(n);
        if self.by_word.is_empty() {
            // A table that was large once must not keep its memory for ever.
            *self = Records::default();
        }
        Some(record)
    }

    /// The static addresses.
    pub fn statics(&self) -> &BTreeSet<u64> {
        &self.statics
    }

    /// How many are not static.
    pub fn learned(&self) -> usize {
        self.len() - self.statics.len()
    }

    /// How many were learned behind a port.
    pub fn count_behind(&self, port: PortNo) -> usize {
        self.by_port.get(&port).map_or(0, |list| list.len)
    }

    /// The first address in a port's list.
    pub fn first_behind(&self, port: PortNo) -> Option<&Record> {
        self.by_port.get(&port).map(|list| &self.slab[list.first as usize])
    }

    /// The next address to evict, unless it is in use: the first of the port with the most addresses.
    pub fn first_to_give_way(&self) -> Option<&Record> {
        self.first_behind(self.fullest.last()?.1)
    }

    /// Puts a learned address at the end of its port's list.
    pub fn spare(&mut self, word: u64, now_ms: u64) {
        let Some(&n) = self.by_word.get(&word) else { return };
        let record = &mut self.slab[n as usize];
        if let Some(list) = self.by_port.get_mut(&record.port).filter(|_| !record.is_static) {
            record.placed_ms = now_ms;
            list.unlink(&mut self.slab, OF_PORT, n);
            list.push(&mut self.slab, OF_PORT, n);
        }
    }

    /// The address that has been unused longest, and the latest time at which it may have been seen.
    pub fn longest_unseen(&self) -> Option<(&Record, u64)> {
        let (seen, list) = self.by_age.first_key_value()?;
        Some((&self.slab[list.first as usize], seen * BUCKET_MS))
    }

    /// Records that a learned address was seen.
    pub fn seen(&mut self, word: u64, seen_ms: u64) {
        let Some(&n) = self.by_word.get(&word) else { return };
        if !self.slab[n as usize].is_static {
            self.take_from_age(n);
            self.slab[n as usize].seen = bucket(seen_ms);
            self.put_at_age(n);
        }
    }

    fn put_at_port(&mut self, n: u32) {
        let port = self.slab[n as usize].port;
        let list = self.by_port.entry(port).or_insert(EMPTY);
        let before = list.len;
        list.push(&mut self.slab, OF_PORT, n);
        self.fullest.remove(&(before, port));
        self.fullest.insert((before + 1, port));
    }

    fn take_from_port(&mut self, n: u32) {
        let port = self.slab[n as usize].port;
        let Some(list) = self.by_port.get_mut(&port) else { return };
        let before = list.len;
        list.unlink(&mut self.slab, OF_PORT, n);
        self.fullest.remove(&(before, port));
        if before > 1 {
            self.fullest.insert((before - 1, port));
        } else {
            self.by_port.remove(&port);
        }
    }

    fn put_at_age(&mut self, n: u32) {
        let seen = self.slab[n as usize].seen;
        self.by_age.entry(seen).or_insert(EMPTY).push(&mut self.slab, OF_AGE, n);
    }

    fn take_from_age(&mut self, n: u32) {
        let seen = self.slab[n as usize].seen;
        let Some(list) = self.by_age.get_mut(&seen) else { return };
        list.unlink(&mut self.slab, OF_AGE, n);
        if list.len == 0 {
            self.by_age.remove(&seen);
        }
    }
}

/// What `fdb/stats-show` shows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FdbStats {
    /// Addresses now.
    pub current: usize,
    /// The static ones among them.
    pub statics: usize,
    /// Addresses learned since the start.
    pub learned: u64,
    /// Addresses that aged out.
    pub expired: u64,
    /// Addresses evicted because the table was full.
    pub evicted: u64,
    /// Addresses seen at another port than before.
    pub moved: u64,
    /// Flows that began with an address which is static on another port.
    pub moves_refused: u64,
}

/// Addresses of a bridge that must be forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doomed {
    pub bridge: BridgeIdx,
    pub which: Which,
    /// How many are left, at most: what is learned meanwhile may stay.
    pub left: usize,
}

/// Which of a bridge's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// The learned ones, those first that have been unused longest.
    Learned,
    /// Those learned behind a port.
    Behind(PortNo),
    /// Those behind a port that is gone, in every bridge: those hosts will probably soon appear elsewhere,
    /// and other bridges have learned them through this one.
    BehindGone(PortNo),
    /// Those for which a smaller table has no room.
    Surplus,
}

/// The control side of one bridge's table.
#[derive(Default)]
pub(super) struct MacControl {
    pub records: Records,
    /// Words with a removed entry that is still to be unlinked.
    pub ended: Ended<u64>,
    pub stats: FdbStats,
}

impl MacControl {
    /// Whether no worker sees a removed entry.
    pub fn is_drained(&self) -> bool {
        self.ended.is_empty()
    }

    /// Unlinks at most `max` removed entries.
    pub fn collect(&mut self, macs: &MacTable, oldest: Version, max: usize, reader: &Reader) -> Left {
        self.ended.unlink(oldest, max, |word| macs.collect(word, oldest, reader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_agree_with_a_plain_model_and_leave_nothing_behind() {
        let (mut records, mut model) = (Records::default(), Vec::<(u64, PortNo, u64, bool)>::new());
        let mut random = 1u64;
        let mut next = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % n
        };
        for step in 0..200_000u64 {
            let word = next(400);
            match next(5) {
                0 | 1 if records.get(word).is_none() => {
                    let (port, is_static) = (PortNo(1 + next(5) as u32), next(20) == 0);
                    records.insert(word, port, 0, step, is_static);
                    model.push((word, port, bucket(step), is_static));
                }
                2 => {
                    records.seen(word, step);
                    if let Some(known) = model.iter_mut().find(|m| m.0 == word && !m.3) {
                        known.2 = bucket(step);
                    }
                }
                3 => {
                    records.spare(word, step);
                    if let Some(at) = model.iter().position(|m| m.0 == word && !m.3) {
                        let spared = model.remove(at);
                        model.push(spared);
                    }
                }
                _ => {
                    assert_eq!(records.remove(word).is_some(), model.iter().any(|m| m.0 == word));
                    model.retain(|m| m.0 != word);
                }
            }
            if step % 64 != 0 {
                continue;
            }
            assert_eq!(records.len(), model.len());
            let count = |port| model.iter().filter(|m| !m.3 && m.1 == port).count();
            let fullest = (1..=5).map(PortNo).map(|p| (count(p), p)).filter(|c| c.0 > 0).max();
            let first = fullest.and_then(|(_, p)| model.iter().find(|m| !m.3 && m.1 == p)).map(|m| m.0);
            assert_eq!(records.first_to_give_way().map(|record| record.word), first);
            for port in (1..=6).map(PortNo) {
                let first = model.iter().find(|m| !m.3 && m.1 == port).map(|m| m.0);
                let known = records.first_behind(port).map(|record| record.word);
                assert_eq!((records.count_behind(port), known), (count(port), first));
            }
            let half = records.places() / 2;
            let all = records.within(0..half).chain(records.within(half..records.places()));
            let all: BTreeSet<u64> = all.map(|record| record.word).collect();
            assert_eq!(all, model.iter().map(|m| m.0).collect());
            let statics: BTreeSet<u64> = model.iter().filter(|m| m.3).map(|m| m.0).collect();
            assert_eq!(*records.statics(), statics);
            let oldest = model.iter().filter(|m| !m.3).map(|m| m.2).min();
            assert_eq!(records.longest_unseen().map(|(_, seen_ms)| seen_ms / BUCKET_MS), oldest);
            assert!(records.slab.len() <= 400 && records.by_age.len() <= model.len());
        }
    }
}

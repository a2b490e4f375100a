//! A shard's lists: free entries, entries by the time at which to check them, and half-open connections.
//!
//! Timeouts: a wheel of lists, one for each second of the next eight minutes. If an entry's timeout has been
//! renewed since it was put into its list, it moves to a later list when its time comes; one with a timeout
//! longer than the wheel is checked once per turn. So a packet renews a timeout by writing one word, and
//! there is no sweep over all entries.
//!
//! Half-open connections are kept in order of arrival, to choose which gives way at a ceiling: one list per
//! zone, so that those of one zone do not hide those of another. An answered connection leaves its list when
//! the list is next searched.
//!
//! Threads: the holder of the shard's lock.

use super::entry::{Entry, List};
use super::index::Entries;

/// Lists of the wheel.
const SLOTS: usize = 512;
/// How much time one list covers.
const TICK_MS: u64 = 1_000;
/// In place of the preceding neighbour: this is the head of the slot's list.
const SLOT: u32 = 1 << 31;
/// Marks an entry that is in no list of half-open connections.
const APART: (u32, u32) = (u32::MAX, u32::MAX);
/// Below this number of half-open connections, the choice of zone is arbitrary.
const FEW: u32 = 64;
/// How many entries a shard allocates at a time.
const BLOCK: u32 = 32;

/// See the module documentation. 0 stands for no entry.
pub(crate) struct Lists {
    /// Head of the free list, linked by `after`.
    free: u32,
    wheel: Box<[u32; SLOTS]>,
    /// The tick whose list is checked next.
    tick: u64,
    /// One queue for each zone that has had any, by number: 16 bytes per zone.
    half_open: Vec<Queue>,
    /// Place in `half_open` of a queue that is at least half as long as the longest, or any queue if all are
    /// shorter than [`FEW`]. To be exact, every departure would have to look at all zones.
    longest: usize,
    /// The length of that queue when it was chosen.
    longest_was: u32,
    /// Half-open connections of all zones.
    half_open_count: u32,
    /// Blocks of entries that the shard has taken.
    blocks: u32,
}

/// Half-open connections of a zone.
#[derive(Clone, Copy, Default)]
struct Queue {
    zone: u16,
    oldest: u32,
    newest: u32,
    len: u32,
}

impl Lists {
    pub fn new() -> Lists {
        let wheel = Box::new([0; SLOTS]);
        Lists {
            free: 0,
            wheel,
            tick: 0,
            half_open: Vec::new(),
            longest: 0,
            longest_was: 0,
            half_open_count: 0,
            blocks: 0,
        }
    }

    /// Allocates an entry for exclusive use. `block` returns the first entry of the shard's block with a
    /// given number, as long as there are any.
    pub fn take(&mut self, entries: &Entries, block: impl FnOnce(u32) -> Option<u32>) -> Option<u32> {
        if self.free == 0 {
            let first = block(self.blocks)?;
            self.blocks += 1;
            // Entry 0 stands for none.
            (first.max(1)..first + BLOCK).for_each(|idx| self.give_back(idx, entries));
        }
        let idx = self.free;
        self.free = entries[idx as usize].links(List::Wheel).1;
        // Prefetched for the next caller, since it may have been freed on any processor.
        Entry::fetch(entries, self.free, false);
        Some(idx)
    }

    pub fn give_back(&mut self, idx: u32, entries: &Entries) {
        entries[idx as usize].set_links(List::Wheel, (0, self.free));
        self.free = idx;
    }

    /// How many entries [`Self::take`] asks for at a time.
    pub const BLOCK: u32 = BLOCK;

    /// Schedules the check of a new connection's timeout, and appends it to the half-open connections of its
    /// zone. The zone must not change until the entry is unlinked.
    pub fn link(&mut self, idx: u32, now_ms: u64, entries: &Entries) {
        self.link_to_wheel(idx, now_ms, entries);
        let entry = &entries[idx as usize];
        let place = self.queue_of(entry.zone());
        let queue = &mut self.half_open[place];
        entry.set_links(List::HalfOpen, (queue.newest, 0));
        match queue.newest {
            0 => queue.oldest = idx,
            last => relink(&entries[last as usize], List::HalfOpen, |links| links.1 = idx),
        }
        queue.newest = idx;
        queue.len += 1;
        self.half_open_count += 1;
        let len = queue.len;
        if len > self.half_open[self.longest].len {
            (self.longest, self.longest_was) = (place, len);
        } else if place == self.longest {
            self.longest_was = self.longest_was.max(len);
        }
    }

    /// The queue of a zone's half-open connections, created if it does not exist.
    fn queue_of(&mut self, zone: u16) -> usize {
        self.half_open.binary_search_by_key(&zone, |queue| queue.zone).unwrap_or_else(|place| {
            self.half_open.insert(place, Queue { zone, ..Queue::default() });
            if self.longest >= place && self.half_open.len() > 1 {
                self.longest += 1;
            }
            place
        })
    }

    fn link_to_wheel(&mut self, idx: u32, now_ms: u64, entries: &Entries) {
        let entry = &entries[idx as usize];
        // Never into the list that is being processed, or that would not end.
        let last = self.tick + SLOTS as u64 - 1;
        let tick = (entry.expiry_ms() / TICK_MS + 1).clamp((now_ms / TICK_MS + 1).min(last), last);
        let slot = tick as usize % SLOTS;
        let next = self.wheel[slot];
        entry.set_links(List::Wheel, (SLOT | slot as u32, next));
        if next != 0 {
            let (_, after) = entries[next as usize].links(List::Wheel);
            entries[next as usize].set_links(List::Wheel, (idx, after));
        }
        self.wheel[slot] = idx;
    }

    /// Removes a connection from all lists.
    pub fn unlink(&mut self, idx: u32, entries: &Entries) {
        self.unlink_from_wheel(idx, entries);
        self.leave_half_open(idx, entries);
    }

    fn unlink_from_wheel(&mut self, idx: u32, entries: &Entries) {
        let (before, after) = entries[idx as usize].links(List::Wheel);
        if before & SLOT != 0 {
            self.wheel[(before & !SLOT) as usize % SLOTS] = after;
        } else {
            relink(&entries[before as usize], List::Wheel, |links| links.1 = after);
        }
        if after != 0 {
            relink(&entries[after as usize], List::Wheel, |links| links.0 = before);
        }
    }

    /// Removes a connection that was answered or has ended from the half-open ones.
    pub fn leave_half_open(&mut self, idx: u32, entries: &Entries) {
        let links = entries[idx as usize].links(List::HalfOpen);
        if links == APART {
            return;
        }
        let (before, after) = links;
        let place = self.queue_of(entries[idx as usize].zone());
        let queue = &mut self.half_open[place];
        queue.len -= 1;
        self.half_open_count -= 1;
        match before {
            0 => queue.oldest = after,
            before => relink(&entries[before as usize], List::HalfOpen, |links| links.1 = after),
        }
        match after {
            0 => queue.newest = before,
            after => relink(&entries[after as usize], List::HalfOpen, |links| links.0 = before),
        }
        entries[idx as usize].set_links(List::HalfOpen, APART);
        let len = self.half_open[place].len;
        if place == self.longest && self.longest_was >= FEW && len < self.longest_was / 2 {
            (self.longest, self.longest_was) = self.longest_now();
        }
    }

    /// Whether there are half-open connections, or answered ones that have not left yet.
    pub fn has_half_open(&self) -> bool {
        self.half_open_count > 0
    }

    /// The longest queue of half-open connections, and its length.
    fn longest_now(&self) -> (usize, u32) {
        let lens = self.half_open.iter().map(|queue| queue.len);
        lens.enumerate().max_by_key(|(_, len)| *len).unwrap_or_default()
    }

    /// The oldest half-open connection (`idx` is 0), or the one after another: of a zone, or of one of the
    /// zones that have the most.
    pub fn half_open_after(&mut self, idx: u32, zone: Option<u16>, entries: &Entries) -> Option<u32> {
        let next = match (idx, zone) {
            (0, Some(zone)) => {
                let place = self.half_open.binary_search_by_key(&zone, |queue| queue.zone).ok()?;
                self.half_open[place].oldest
            }
            (0, None) if self.half_open_count == 0 => 0,
            (0, None) => {
                if self.half_open[self.longest].len == 0 {
                    (self.longest, self.longest_was) = self.longest_now();
                }
                self.half_open[self.longest].oldest
            }
            (idx, _) => entries[idx as usize].links(List::HalfOpen).1,
        };
        (next != 0).then_some(next)
    }

    /// The next entry whose time may be over. Pass it to [`Self::later`] or unlink it.
    pub fn due(&mut self, now_ms: u64) -> Option<u32> {
        let now = now_ms / TICK_MS;
        // If the wheel has not turned for a while, one turn over all lists suffices.
        self.tick = self.tick.max((now + 1).saturating_sub(SLOTS as u64));
        // Bound: `SLOTS` lists, and at most one per second passes.
        while self.tick <= now {
            match self.wheel[self.tick as usize % SLOTS] {
                0 => self.tick += 1,
                idx => return Some(idx),
            }
        }
        None
    }

    /// Schedules the next check of an entry that was due but had its timeout renewed.
    pub fn later(&mut self, idx: u32, now_ms: u64, entries: &Entries) {
        self.unlink_from_wheel(idx, entries);
        self.link_to_wheel(idx, now_ms, entries);
    }
}

fn relink(entry: &Entry, list: List, change: impl FnOnce(&mut (u32, u32))) {
    let mut links = entry.links(list);
    change(&mut links);
    entry.set_links(list, links);
}

#[cfg(test)]
mod tests {
    use super::super::tuple::Tuple;
    use super::*;
    use base::region::Region;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    // Two of them have shared a list.
    const ZONES: [u16; 3] = [0, 64, u16::MAX];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::cases("datapath::lists", 200)))]
        // Against a plain map of expiry times, and a plain queue for each of three zones.
        #[test]
        fn each_is_due_once_its_time_is_over_and_half_open_ones_keep_their_order(
            steps in prop::collection::vec((0u8..4, 0u64..700_000, 0usize..64), 1..200)
        ) {
            let entries: Entries = Region::new(8192).unwrap();
            let mut lists = Lists::new();
            let (mut model, mut queues, mut now) = (BTreeMap::new(), [const { Vec::new() }; ZONES.len()], 0);
            let leave = |queues: &mut [Vec<u32>], idx| queues.iter_mut().for_each(|queue| queue.retain(|i| *i != idx));
            for (what, ms, which) in steps {
                match what {
                    0 | 1 => {
                        let idx = lists.take(&entries, |block| Some(block * BLOCK)).unwrap();
                        prop_assert!(!model.contains_key(&idx));
                        entries[idx as usize].set_expiry(now + ms);
                        entries[idx as usize].set_forward(&Tuple::default().packed(ZONES[which % 3]));
                        lists.link(idx, now, &entries);
                        model.insert(idx, now + ms);
                        queues[which % 3].push(idx);
                    }
                    2 if !model.is_empty() => {
                        let idx = *model.keys().nth(which % model.len()).unwrap();
                        if which % 3 == 0 {
                            lists.leave_half_open(idx, &entries);
                        } else {
                            lists.unlink(idx, &entries);
                            lists.give_back(idx, &entries);
                            model.remove(&idx);
                        }
                        leave(&mut queues, idx);
                    }
                    _ => now += ms / 10,
                }
                let mut ended = Vec::new();
                while let Some(idx) = lists.due(now) {
                    if entries[idx as usize].expiry_ms() <= now {
                        lists.unlink(idx, &entries);
                        lists.give_back(idx, &entries);
                        ended.push(idx);
                    } else {
                        lists.later(idx, now, &entries);
                    }
                }
                for idx in &ended {
                    prop_assert!(model.remove(idx).unwrap() <= now);
                    leave(&mut queues, *idx);
                }
                prop_assert!(model.values().all(|expiry| *expiry + 2 * TICK_MS > now));
                let mut in_order = |zone| {
                    let mut next = |idx: u32| lists.half_open_after(idx, zone, &entries);
                    std::iter::successors(next(0), |idx| next(*idx)).collect::<Vec<_>>()
                };
                for (queue, zone) in queues.iter().zip(ZONES) {
                    prop_assert_eq!(&in_order(Some(zone)), queue);
                }
                let (chosen, longest) = (in_order(None).len(), queues.iter().map(Vec::len).max().unwrap());
                prop_assert!(chosen * 2 >= longest || chosen > 0 && longest < FEW as usize);
                prop_assert!(queues.iter().any(|queue| *queue == in_order(None)));
            }
        }
    }

    #[test]
    fn a_zone_of_the_many_half_open_connections_gives_way_though_it_stops_growing() {
        let entries: Entries = Region::new(8192).unwrap();
        let mut lists = Lists::new();
        let begin = |lists: &mut Lists, zone| {
            let idx = lists.take(&entries, |block| Some(block * BLOCK)).unwrap();
            entries[idx as usize].set_expiry(1_000);
            entries[idx as usize].set_forward(&Tuple::default().packed(zone));
            lists.link(idx, 0, &entries);
            idx
        };
        let many: Vec<u32> = (0..1_000).map(|_| begin(&mut lists, 7)).collect();
        let more: Vec<u32> = (0..1_001).map(|_| begin(&mut lists, 7 + 64)).collect();
        let zone = |idx: Option<u32>| entries[idx.unwrap() as usize].zone();
        assert_eq!(zone(lists.half_open_after(0, None, &entries)), 71);
        more.iter().take(600).for_each(|idx| lists.leave_half_open(*idx, &entries));
        assert_eq!(zone(lists.half_open_after(0, None, &entries)), 7);
        assert_eq!(lists.half_open_after(0, Some(7), &entries), Some(many[0]));
        assert_eq!(lists.half_open_after(0, Some(71), &entries), Some(more[600]));
        assert_eq!(lists.half_open_after(0, Some(8), &entries), None);
    }
}

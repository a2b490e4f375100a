//! What happens to entries, in the same way for both tiers: they are filled, judged by changes, folded, swept
//! and removed.

use super::counts::Counts;
use super::entry::{Body, Entry, EntryKey, ShortVersion, StaleStats, Verdict};
use super::flush::Place;
use super::masks::NO_SORT;
use super::masks::dp_port;
use super::sorts::Sights;
use super::{FlowCache, FlowRef, MASK_EXACT, StoredBlock, Tier, Which, index};
use crate::pipeline::Pipeline;
use crate::stamp::Stamp;
use crate::watch::Marks;
use base::Version;
use base::rcu::Reader;
use base::region::{prefetch, prefetch_at};
use flow::Key;
use index::{Inserted, Probe};

/// The result of judging an entry in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// No change touches its flow: it is right at the newest version.
    Right,
    /// It is out of date, and marked so: just now, or (`false`) earlier in the burst.
    Stale {
        /// This call was the first to find out.
        is_new: bool,
    },
}

impl FlowCache {
    #[inline(always)]
    pub(super) fn tier(&self, which: Which) -> &Tier {
        match which {
            Which::Exact => &self.exact,
            Which::Mega => &self.mega,
        }
    }

    #[inline(always)]
    pub(super) fn tier_mut(&mut self, which: Which) -> &mut Tier {
        match which {
            Which::Exact => &mut self.exact,
            Which::Mega => &mut self.mega,
        }
    }

    /// An entry.
    #[inline(always)]
    pub fn entry(&mut self, which: Which, idx: u32) -> &mut Entry {
        &mut self.tier_mut(which).entries[idx as usize]
    }

    // ---- filling

    /// Fills a place and adds it to the index. `block` is the key's first block if it does not fit into the
    /// entry.
    #[allow(clippy::too_many_arguments)] // The parts of an entry, whose line is written once.
    pub(super) fn put(
        &mut self,
        which: Which,
        idx: u32,
        key: EntryKey,
        block: Option<StoredBlock>,
        hash: u64,
        from: &FlowRef,
    ) {
        let tier = self.tier_mut(which);
        if let Some(block) = block {
            tier.blocks[idx as usize] = block;
        }
        tier.entries[idx as usize] = Entry {
            key,
            counts: Counts::default(),
            decision: from.decision,
            version: ShortVersion::of(from.at.version),
            used: from.at.now,
            marks: from.marks,
            sort: from.sort,
            set: from.set,
            is_alone: (from.mask == MASK_EXACT).into(),
        };
        self.bodies.get_mut(from.decision.body).refs += 1;
        if let Some(entries) = self.origin_entries(&key) {
            *entries += 1;
        }
        if key.is_plain() && from.decision.verdict == Verdict::Track {
            self.trails.forget(idx);
        }
        if let Inserted::Evicted(lost) = self.tier_mut(which).index.insert(Probe::new(hash), idx) {
            self.evictions += 1;
            self.end(which, lost);
        }
    }

    /// The hash under which an entry is in the index.
    fn hash_of(&self, e: &Entry) -> u64 {
        if e.key.is_plain() { self.plain_hash(&e.key.0) } else { e.key.hash() }
    }

    // ---- judging

    /// Whether what is watched proves that no later change has touched the entry's flow: then it is right at
    /// this version.
    #[inline(always)]
    pub fn renew<P: Pipeline>(&mut self, which: Which, idx: u32, sights: &mut Sights<'_, P>) -> bool {
        let e = match which {
            Which::Exact => &mut self.exact.entries[idx as usize],
            Which::Mega => &mut self.mega.entries[idx as usize],
        };
        sights.renew(&mut self.sorts, &self.masks, e)
    }

    /// Asks the pipeline whether a later change touches the entry's flow. If none does, what is watched tells
    /// from here on. `key` may be that of any packet of the flow.
    pub fn judge<P: Pipeline>(
        &mut self,
        which: Which,
        idx: u32,
        key: &Key,
        now: Version,
        pipeline: &P,
        reader: &Reader,
    ) -> Judged {
        let e = &self.tier(which).entries[idx as usize];
        if e.decision.verdict == Verdict::Stale {
            return Judged::Stale { is_new: false };
        }
        if pipeline.touched(self.view(e.decision.body, key), e.version.whole(now), now, reader) {
            let e = self.entry(which, idx);
            (e.decision.verdict, e.sort) = (Verdict::Stale, NO_SORT);
            return Judged::Stale { is_new: true };
        }
        let (set, marks) = self.marks(e, key, pipeline, reader);
        let e = self.entry(which, idx);
        (e.version, e.set, e.marks) = (ShortVersion::of(now), set, marks);
        Judged::Right
    }

    fn marks<P: Pipeline>(&self, e: &Entry, key: &Key, pipeline: &P, reader: &Reader) -> (u8, Marks) {
        if e.sort == NO_SORT {
            return (0, Marks::default());
        }
        let watch = self.sorts.watch(e.sort);
        if watch.set == e.set {
            return (e.set, e.marks);
        }
        (watch.set, pipeline.marks(watch, self.view(e.decision.body, key), reader))
    }

    // ---- counting

    /// Moves an entry's counts to the flow's slots. An exact entry also marks its megaflow as used.
    pub fn fold(&mut self, which: Which, idx: u32) {
        let e = self.entry(which, idx);
        if e.counts.is_empty() {
            return;
        }
        let counts = std::mem::take(&mut e.counts);
        let (packets, bytes) = (counts.packets(), counts.bytes());
        let (body, used) = (e.decision.body, e.used);
        let b = self.bodies.get_mut(body);
        b.packets += packets;
        b.bytes += bytes;
        let b = self.bodies.get(body);
        let used_ms = used.at_ms(self.now_ms);
        for &slot in self.bodies.credits(b) {
            self.slots.credit(slot, packets, bytes, used_ms);
        }
        let mega = b.megaflow;
        if which == Which::Exact && mega != 0 {
            let m = &mut self.mega.entries[mega as usize];
            m.used = m.used.later(used, Stamp::of(self.now_ms));
        }
    }

    // ---- removing

    /// Removes an entry after folding its counts. Exact entries made from a megaflow live on with its body.
    pub fn remove(&mut self, which: Which, idx: u32) {
        let e = &self.tier(which).entries[idx as usize];
        if !e.is_free() {
            let hash = self.hash_of(e);
            self.tier_mut(which).index.remove(Probe::new(hash), idx);
            self.end(which, idx);
        }
    }

    /// Removes an out-of-date megaflow. A flow installed for the same packets before
    /// [`Self::forget_stale_stats`] continues its counts.
    pub fn remove_stale(&mut self, idx: u32) {
        self.fold(Which::Mega, idx);
        let e = &self.mega.entries[idx as usize];
        if !e.is_free() {
            let (mask, hash) = (e.key.mask(), e.key.hash());
            let Body { packets, bytes, first_bytes, .. } = *self.bodies.get(e.decision.body);
            // If there is no room, the successor's counters start at 0.
            let _ = self.stale_stats.try_push(StaleStats { mask, hash, packets, bytes, first_bytes });
        }
        self.remove(Which::Mega, idx);
    }

    /// Forgets the counters of out-of-date megaflows, because another burst begins.
    pub fn forget_stale_stats(&mut self) {
        self.stale_stats.clear();
    }

    /// Removes an entry that the index no longer names.
    fn end(&mut self, which: Which, idx: u32) {
        self.fold(which, idx);
        let e = &self.tier(which).entries[idx as usize];
        let mega_mask = e.key.mask();
        let (body, (further, further_len)) = (e.decision.body, e.key.further());
        let key = e.key;
        if let Some(entries) = self.origin_entries(&key) {
            *entries -= 1;
        }
        if which == Which::Mega {
            let port = dp_port(&self.mega.blocks[idx as usize].0);
            let input = self.input_of(port);
            self.inputs[input.0 as usize].masks.remove(mega_mask);
            self.masks[usize::from(mega_mask)].flows -= 1;
            let body = self.bodies.get_mut(body);
            body.megaflow = 0;
            self.firsts.forget(std::mem::take(&mut body.first));
        }
        self.arena.release(further, further_len);
        self.release_body(body);
        self.tier_mut(which).give_back(idx);
    }

    pub(super) fn release_body(&mut self, body: u32) {
        let b = self.bodies.get(body);
        let (mask, sort, large) = (b.mask, b.sort, b.large);
        if self.bodies.release(body) {
            self.large.give_back(large);
            self.masks[usize::from(mask)].bodies -= 1;
            self.sorts.release(sort, &mut self.masks);
        }
    }

    /// From now on, [`Self::flush_some`] has something to remove: whatever is cached now. Dumps no longer
    /// show it.
    pub fn begin_flush(&mut self) {
        self.flush.ask(self.mega.high);
    }

    /// Whether something is still to be flushed.
    #[inline(always)]
    pub fn is_flushing(&self) -> bool {
        self.flush.is_open()
    }

    /// Visits the next `count` places that are to be flushed, and removes their entries after folding them.
    #[cold]
    #[inline(never)]
    pub fn flush_some(&mut self, count: u32) {
        for _ in 0..count {
            let (which, place) = match self.flush.take(self.exact.high) {
                Some(Place::Mega(place)) => (Which::Mega, place),
                Some(Place::Exact(place)) => (Which::Exact, place),
                None => return,
            };
            let tier = self.tier(which);
            prefetch_at(&tier.entries, (place + SWEEP_AHEAD).min(tier.high) as usize);
            self.remove(which, place);
        }
    }

    /// Removes everything, after folding it.
    pub fn flush_all(&mut self) {
        self.begin_flush();
        while self.is_flushing() {
            self.flush_some(u32::MAX);
        }
    }

    /// Removes everything, because the sweep has not kept up with the versions.
    #[cold]
    #[inline(never)]
    pub(super) fn forget_all(&mut self, now: Version) {
        self.flush_all();
        (self.round_began, self.swept) = (now, now);
    }

    // ---- sweeping

    /// Starts a new round of the sweep at the first entry.
    pub fn start_round(&mut self) {
        (self.exact.swept, self.mega.swept) = (0, 0);
        self.round_began = self.version;
    }

    /// Visits the next `count` entries of each tier: folds them, and removes ancient ones and at most
    /// `removals` idle ones, from which it subtracts. True when this completed a round, started by
    /// [`Self::start_round`], over both tiers.
    pub fn sweep(&mut self, count: u32, removals: &mut u32) -> bool {
        let is_complete =
            self.sweep_tier(Which::Exact, count, removals) && self.sweep_tier(Which::Mega, count, removals);
        if is_complete {
            self.swept = self.round_began;
        }
        is_complete
    }

    fn sweep_tier(&mut self, which: Which, count: u32, removals: &mut u32) -> bool {
        let tier = self.tier(which);
        let (start, end) = (tier.swept, (tier.swept + count).min(tier.high));
        // A visit follows pointers from the entry to the body and on to the counters: each step prefetches
        // what the next one reads, and follows it this far behind.
        let behind =
            |n: u32, steps: u32| n.checked_sub(steps * SWEEP_AHEAD).filter(|&idx| start < idx && idx <= end);
        for n in start + 1..=end + 3 * SWEEP_AHEAD {
            prefetch_at(&self.tier(which).entries, n.min(end) as usize);
            if let Some(idx) = behind(n, 1) {
                self.prefetch_body(which, idx);
            }
            if let Some(idx) = behind(n, 2) {
                self.prefetch_counters(which, idx);
            }
            let Some(idx) = behind(n, 3).filter(|&idx| !self.tier(which).entries[idx as usize].is_free())
            else {
                continue;
            };
            self.fold(which, idx);
            let e = &self.tier(which).entries[idx as usize];
            if self.is_to_go(e) && (*removals > 0 || e.version.is_ancient(self.version)) {
                *removals = removals.saturating_sub(1);
                self.remove(which, idx);
            }
        }
        let tier = self.tier_mut(which);
        tier.swept = end;
        end >= tier.high
    }

    /// Whether an entry in use has been idle for too long. A megaflow that exact entries keep alive may also
    /// be too old without having been hit itself.
    #[inline(always)]
    fn is_to_go(&self, e: &Entry) -> bool {
        e.used.age_ms(Stamp::of(self.now_ms)) > self.config.max_idle_ms || e.version.is_ancient(self.version)
    }

    /// Prefetches an entry's body, and its bucket if it is idle: nothing if it has no counts and is not idle
    /// yet, like most entries of a large cache.
    #[inline(always)]
    fn prefetch_body(&self, which: Which, idx: u32) {
        let tier = self.tier(which);
        let e = &tier.entries[idx as usize];
        let is_idle = self.is_to_go(e);
        if e.is_free() || !is_idle && e.counts.is_empty() {
            return;
        }
        self.bodies.prefetch(e.decision.body);
        if is_idle {
            tier.index.prefetch(Probe::new(self.hash_of(e)));
        }
    }

    /// Prefetches what [`Self::fold`] writes beside the entry and its body.
    #[inline(always)]
    fn prefetch_counters(&self, which: Which, idx: u32) {
        let e = &self.tier(which).entries[idx as usize];
        if e.is_free() || e.counts.is_empty() {
            return;
        }
        let body = self.bodies.get(e.decision.body);
        for slot in self.bodies.credits(body).iter().filter_map(|&slot| self.slots.peek(slot)) {
            // It may lie in two lines.
            prefetch(&slot.packets);
            prefetch(&slot.last_used_ms);
        }
        if which == Which::Exact {
            self.mega_fetch(body.megaflow);
        }
    }
}

/// By how many entries each step of a sweep is ahead of the next: about as long as memory takes.
const SWEEP_AHEAD: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheConfig;
    use crate::cache::room::tests::{install, promote};
    use base::hash::HashKey;

    const FLOWS: u32 = 1_000;

    fn cache_with_flows() -> FlowCache {
        let config = CacheConfig { flow_limit: 2 * FLOWS as usize, max_idle_ms: 10_000 };
        let mut cache = FlowCache::new(config, HashKey::from_seed(1), Default::default()).unwrap();
        assert!((0..FLOWS).all(|src| install(&mut cache, src, 0)));
        assert!((1..=FLOWS / 2).all(|megaflow| promote(&mut cache, megaflow, megaflow)));
        cache
    }

    fn shown(cache: &FlowCache) -> usize {
        let mut flows = Vec::new();
        assert_eq!(cache.dump(0, 4_000, &mut flows), None);
        flows.len()
    }

    #[test]
    fn what_was_cached_is_shown_to_nobody_and_goes_in_steps_whatever_comes_meanwhile() {
        let mut cache = cache_with_flows();
        cache.begin_flush();
        assert_eq!((cache.size().megaflows, cache.size().exact, shown(&cache)), (1_000, 500, 0));
        // Packets still find megaflows that are to go, and exact entries are made from them.
        let (mut made, mut steps) = (0, 0);
        while cache.is_flushing() {
            let before = cache.size();
            if cache.size().megaflows as u32 > FLOWS / 2 {
                assert!(promote(&mut cache, FLOWS, FLOWS + steps) && install(&mut cache, FLOWS + steps, 0));
                made += 1;
            }
            cache.flush_some(10);
            let after = cache.size();
            let gone = before.megaflows + before.exact - after.megaflows.min(before.megaflows) - after.exact;
            assert!(gone <= 10, "{gone} places at once");
            steps += 1;
        }
        assert!(made > 10 && steps > 150, "{made} {steps}");
        assert_eq!(cache.size().exact, 0, "all were made from flows that had to go");
        let left = cache.size().megaflows;
        assert!(0 < left && left <= made, "{left} of those that came meanwhile");
        assert_eq!(shown(&cache), left);
        cache.flush_all();
        assert!(cache.is_empty());
    }

    #[test]
    fn requests_that_come_before_the_last_is_done_reach_every_place() {
        let mut cache = cache_with_flows();
        for _ in 0..FLOWS / 10 {
            cache.begin_flush();
            cache.flush_some(10);
        }
        assert_eq!((cache.size().megaflows, cache.is_flushing()), (0, true));
        // A place that has been visited is asked for anew.
        assert!(install(&mut cache, 1, 0));
        cache.begin_flush();
        while cache.is_flushing() {
            cache.flush_some(10);
        }
        assert!(cache.is_empty());
    }
}

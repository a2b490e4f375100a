//! Stage 2: the exact tier, whose likely entries have been prefetched.

use super::super::*;
use super::extract::extract_plain;
use super::todo::Todo;
use super::*;
use base::wide::{Baseline, Lanes};

/// The port to which all packets go that the exact tier has answered for, if there is one.
struct OnePort {
    /// That of the first ones; none before.
    first: u32,
    is_one: bool,
}

impl OnePort {
    const NONE: u32 = u32::MAX;

    fn new() -> OnePort {
        OnePort { first: OnePort::NONE, is_one: true }
    }

    /// The next ones go to this port.
    #[inline(always)]
    fn and(&mut self, port: u16) {
        if u32::from(port) != self.first {
            self.is_one &= self.first == OnePort::NONE;
            self.first = port.into();
        }
    }

    fn get(&self) -> Option<u16> {
        u16::try_from(self.first).ok().filter(|_| self.is_one)
    }
}

impl<P: Pipeline> Process<P> {
    // 2. Exact tier; its likely entries have been prefetched. Returns the number of packets that hit.
    #[inline(never)]
    pub(super) fn exact_stage(
        &mut self,
        memory: &mut Memory,
        todo: &mut Todo,
        arrival: &Arrival,
        batch: &Batch,
        has_long: bool,
    ) -> u64 {
        let hits = match (self.cache.wide, has_long) {
            (Some(wide), false) => {
                wide.run(|| self.likely_stage::<false, _>(wide, memory, todo, arrival, batch))
            }
            (Some(wide), true) => {
                wide.run(|| self.likely_stage::<true, _>(wide, memory, todo, arrival, batch))
            }
            (None, false) => self.likely_stage::<false, _>(Baseline, memory, todo, arrival, batch),
            (None, true) => self.likely_stage::<true, _>(Baseline, memory, todo, arrival, batch),
        };
        let hits = if todo.is_empty() { hits } else { hits + self.exact_rest(memory, todo, arrival, batch) };
        if self.cache.has_alone() {
            self.note_alone(&memory.rows[..batch.len()]);
        }
        hits
    }

    // 2a. Packets whose likely entry matches. Compiled once more for batches without long plain packets.
    #[inline(always)]
    fn likely_stage<const LONG: bool, L: Lanes>(
        &mut self,
        lanes: L,
        memory: &mut Memory,
        todo: &mut Todo,
        arrival: &Arrival,
        batch: &Batch,
    ) -> u64 {
        let Memory { rows, longs, .. } = memory;
        let (rows, at) = (&mut rows[..batch.len()], arrival.at);
        // The common case: the likely entry matches, and no later change affects it. Only entries are read.
        let sights = Sights::new(&*self.pipeline, &self.reader, at.version);
        let version = ShortVersion::of(at.version);
        let (entries, beside, trails, mut judge) = self.cache.exact_entries(sights);
        let (mut hits, mut full) = (batch.len(), Counts::NONE);
        let mut to = OnePort::new();
        let mut next = 0;
        while let Some(row) = rows.get_mut(next) {
            let i = next;
            let packets = row.counts.packets() as usize;
            next += packets;
            // Entry 0, which stands for none, has no plain packet's key.
            if let Some(e) = entries.get_mut(row.likely as usize)
                && lanes.equal(&e.key.0, &row.exact.0)
                && (!LONG || !row.exact.is_long() || beside[row.likely as usize].is_long(lanes, &longs[i]))
                && (e.version == version || judge.renew(e))
            {
                e.hit(row.counts, at.now);
                full.or(e.counts);
                row.decision = e.decision;
                match e.decision.verdict {
                    Verdict::Output(port) => to.and(port),
                    verdict => {
                        to.is_one = false;
                        if verdict == Verdict::Track {
                            trails.prefetch(row.likely);
                        }
                    }
                }
            } else {
                hits -= packets;
                todo.push_unknown(i, row);
            }
        }
        if full.is_full() {
            self.fold_full(&memory.rows[..batch.len()]);
        }
        memory.to_port = to.get().filter(|_| hits == batch.len());
        hits as u64
    }

    /// Notes that the burst has hit flows that are cached in the exact tier alone, if so.
    #[cold]
    fn note_alone(&mut self, rows: &[Row]) {
        let mut next = 0;
        while let Some(row) = rows.get(next) {
            // Only what an entry decided has a body.
            if row.decision.body != 0 && self.cache.entry(Which::Exact, row.likely).is_alone != 0 {
                return self.context.input.met_alone(self.now_ms);
            }
            next += row.counts.packets() as usize;
        }
    }

    /// Folds entries that the burst has hit before their counters overflow. A row that was not looked up
    /// names an entry of an earlier burst; folding that early does no harm.
    #[cold]
    fn fold_full(&mut self, rows: &[Row]) {
        for row in rows {
            self.cache.fold(Which::Exact, row.likely);
        }
    }

    // 2b. Packets whose likely entry does not match, that are not plain, or whose flow must be judged in
    // full.
    #[inline(never)]
    fn exact_rest(&mut self, memory: &mut Memory, todo: &mut Todo, arrival: &Arrival, batch: &Batch) -> u64 {
        let (mut lookup, mut sights) = self.lookup(Which::Exact, arrival.at);
        let Memory { keys, rows, longs, stale_exact, tracking, originals, dp_hash, has_more, .. } = memory;
        let mut packets = 0;
        todo.retain(|i| {
            let row = &mut rows[i];
            let exact = exact_key(&row.exact, &longs[i], &keys[i]);
            let idx = lookup.cache.exact_find_likely(row.likely, row.hash, &exact);
            let is_packed = row.exact.is_packed();
            let extract = |key: &mut Key| {
                if is_packed {
                    extract_plain(key, &batch[i], &arrival.ingress);
                    if *has_more {
                        put_metadata(*tracking, originals.get(i), *dp_hash, key);
                    }
                }
            };
            if !lookup.answers(&mut sights, idx, row, &mut keys[i], extract, |stale| stale_exact.push(stale))
            {
                return true;
            }
            packets += row.counts.packets();
            row.likely = idx;
            false
        });
        packets
    }
}

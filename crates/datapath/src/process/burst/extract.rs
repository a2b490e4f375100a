//! Stage 1: keys from packets, to the depth that the input port's rules ask for. Packets that are alike and
//! follow one another become a run.

use super::super::*;
use super::megaflow::Lately;
use super::todo::Todo;
use super::*;
use base::wide::{Baseline, Lanes};
use flow::extract::{LongReader, plain_key_by};

/// A bucket is looked at this many packets after it was prefetched: about as long as it takes to come from
/// memory. The entries found there have the rest of the burst to come.
const PEEKED_BEHIND: usize = 20;

impl Row {
    /// Replaces the run's bucket by the most likely entry in it, and prefetches that. Returns the run's
    /// length.
    #[inline(always)]
    fn peek(&mut self, cache: &FlowCache) -> usize {
        self.likely = cache.exact_prefetch(&self.hash, self.likely);
        self.counts.packets() as usize
    }

    /// The same if its key may be beside the entry.
    #[inline(always)]
    fn peek_long(&mut self, cache: &FlowCache) -> usize {
        self.likely = cache.exact_prefetch_both(&self.hash, self.likely);
        self.counts.packets() as usize
    }
}

impl Memory {
    /// Reads the exact tier's keys of all plain packets, which are not extracted yet. Consecutive packets
    /// that are alike form a run, of which only the first is looked up: its likely entry is prefetched.
    /// Returns the other packets.
    #[inline(always)]
    pub(super) fn prepare_plain<L: Lanes>(
        &mut self,
        lanes: L,
        depth: Depth,
        cache: &FlowCache,
        batch: &Batch,
        origin: u64,
    ) -> Todo {
        let prepare = match depth {
            Depth::Metadata => Memory::prepare_depth::<0, L>,
            Depth::Ethernet => Memory::prepare_depth::<1, L>,
            Depth::Network => Memory::prepare_depth::<2, L>,
            Depth::Transport => Memory::prepare_depth::<3, L>,
            Depth::Everything => Memory::prepare_depth::<4, L>,
        };
        prepare(self, lanes, cache, batch, origin)
    }

    /// The same. Compiled once for each depth (by number), so that what a depth does not need is not even
    /// loaded.
    #[inline(never)]
    fn prepare_depth<const DEPTH: usize, L: Lanes>(
        &mut self,
        lanes: L,
        cache: &FlowCache,
        batch: &Batch,
        origin: u64,
    ) -> Todo {
        let rows = &mut self.rows;
        lanes.run(|| Memory::prepare::<DEPTH, L>(rows, lanes, cache, batch, origin))
    }

    #[inline(always)]
    fn prepare<const DEPTH: usize, L: Lanes>(
        rows: &mut [Row; BURST],
        lanes: L,
        cache: &FlowCache,
        batch: &Batch,
        origin: u64,
    ) -> Todo {
        let depth = Depth::ALL[DEPTH];
        // Where no header is read, only their last words differ.
        let are_alike = |a: &EntryKey, b: &EntryKey| match depth {
            Depth::Metadata => a.0[3] == b.0[3],
            _ => lanes.equal(&a.0, &b.0),
        };
        // The present run's first packet, and its key. Before there is one, that is like no packet's.
        let (mut first, mut last, mut peeked) = (0, EntryKey::NONE, 0);
        // Apart from plain packets, whose loop keeps all that it needs in registers.
        let mut others = Todo::new();
        let prober = cache.prober(lanes);
        let mut ahead = batch.get(AHEAD..).unwrap_or_default().iter();
        for (i, packet) in batch.iter().enumerate() {
            if let Some(ahead) = ahead.next() {
                prefetch(ahead.data());
            }
            let key = plain_key_by(lanes, packet.data(), packet.len(), depth, origin);
            let (hash, likely);
            (last, (hash, likely)) = match key.map(EntryKey::plain) {
                Some(exact) if are_alike(&exact, &last) => {
                    rows[first % BURST].counts.add(Counts::one(packet));
                    continue;
                }
                Some(exact) => (exact, prober.probe(&exact.0)),
                None => {
                    others.push(i);
                    (EntryKey::NONE, (0, 0))
                }
            };
            first = i % BURST;
            rows[first] = Row { exact: last, hash, likely, counts: Counts::one(packet), ..Row::EMPTY };
            // All runs before this one are complete.
            if i >= peeked + PEEKED_BEHIND {
                peeked += rows[peeked % BURST].peek(cache);
            }
        }
        while peeked < batch.len() {
            peeked += rows[peeked % BURST].peek(cache);
        }
        others
    }

    /// Reads the exact tier's keys of long plain packets, and extracts those of packets that are not plain.
    /// These are all others if it `were_plain` that were looked for first. Returns whether there are long
    /// ones.
    #[inline(never)]
    pub(super) fn prepare_others(
        &mut self,
        cache: &FlowCache,
        batch: &Batch,
        ingress: &Ingress,
        origin: u64,
        (others, were_plain): (Todo, bool),
    ) -> bool {
        let all = others;
        let others = match cache.wide {
            Some(wide) => wide.run(|| self.prepare_long(wide, cache, batch, ingress, origin, all)),
            None => self.prepare_long(Baseline, cache, batch, ingress, origin, all),
        };
        for i in others.iter() {
            let packet = &batch[i];
            self.rows[i] = Row { counts: Counts::one(packet), ..Row::EMPTY };
            if !were_plain && let Some(key) = plain_key(packet.data(), packet.len(), ingress.depth(), origin)
            {
                self.rows[i].exact = EntryKey::plain(key);
                (self.rows[i].hash, self.rows[i].likely) = cache.exact_probe(&ExactKey::Plain(key));
                continue;
            }
            self.extract_one(i, packet, ingress);
            self.probe_whole(i, cache);
        }
        let mut next = 0;
        for i in all.iter() {
            // Others are packets of a long one's run.
            if i >= next {
                next = i + self.rows[i].peek_long(cache);
            }
        }
        others.len() < all.len()
    }

    /// The same for those that are long. Consecutive ones that are alike become a run. Returns the others.
    #[inline(always)]
    fn prepare_long<L: Lanes>(
        &mut self,
        lanes: L,
        cache: &FlowCache,
        batch: &Batch,
        ingress: &Ingress,
        origin: u64,
        mut others: Todo,
    ) -> Todo {
        let reader = LongReader::new(ingress, origin);
        // The first packet of the last run, and where that ends; there is none yet.
        let (mut first, mut end) = (0, usize::MAX);
        others.retain(|i| {
            let packet = &batch[i];
            if let Some(ahead) = batch.get(i + AHEAD) {
                prefetch(ahead.data());
            }
            let Some(key) = reader.read(lanes, packet.data(), packet.len()) else { return true };
            let last = &self.longs[first];
            if i == end && lanes.equal(&last[0], &key[0]) && lanes.equal(&last[1], &key[1]) {
                self.rows[first].counts.add(Counts::one(packet));
            } else {
                let (hash, likely) = cache.long_probe(lanes, &key);
                let exact = EntryKey::long(hash, &key);
                self.rows[i] = Row { exact, hash, likely, counts: Counts::one(packet), ..Row::EMPTY };
                self.longs[i] = key;
                first = i;
            }
            end = i + 1;
            false
        });
        others
    }

    /// Extracts the keys of all packets, each a run of its own: if the exact tier is not used, or `exact`
    /// uses only whole keys.
    #[inline(never)]
    pub(super) fn prepare_keys(
        &mut self,
        exact: Option<&FlowCache>,
        batch: &Batch,
        ingress: &Ingress,
        lately: &mut Lately,
        todo: &mut Todo,
    ) {
        for (i, packet) in batch.iter().enumerate() {
            if let Some(ahead) = batch.get(i + AHEAD) {
                prefetch(ahead.data());
            }
            self.rows[i] = Row { counts: Counts::one(packet), ..Row::EMPTY };
            if lately.recent.is_some()
                && let Some(key) = plain_key(packet.data(), packet.len(), ingress.depth(), lately.origin)
                && lately.decides(&key, &mut self.rows[i])
            {
                self.rows[i].exact = EntryKey::plain(key);
                continue;
            }
            if ingress.packet_type() == 0 {
                self.extract_one(i, packet, ingress);
            } else {
                self.extract_bare(i, packet, ingress);
            }
            match exact {
                Some(cache) => self.probe_whole(i, cache),
                None => todo.push_unknown(i, &self.rows[i]),
            }
        }
        if let Some(cache) = exact {
            for row in &mut self.rows[..batch.len()] {
                row.peek(cache);
            }
        }
    }

    /// Extracts plain packets that the exact tier does not know, unless they belong to the megaflow that was
    /// hit lately.
    #[inline(never)]
    pub(super) fn extract_rest(
        &mut self,
        batch: &Batch,
        ingress: &Ingress,
        lately: &mut Lately,
        todo: &mut Todo,
    ) {
        todo.retain(|i| {
            let key = self.rows[i].exact;
            if !key.is_packed() {
                return true;
            }
            if let Some(recent) = lately.recent.filter(|_| key.is_plain())
                && lately.decides(&key.0, &mut self.rows[i])
            {
                self.rows[i].likely = 0;
                self.promote.push((i as u8, recent.megaflow));
                return false;
            }
            extract_plain(&mut self.keys[i], &batch[i], ingress);
            self.put_metadata(i);
            true
        });
    }

    #[inline(always)]
    fn probe_whole(&mut self, i: usize, cache: &FlowCache) {
        (self.rows[i].hash, self.rows[i].likely) = cache.exact_probe(&ExactKey::Whole(&self.keys[i]));
    }

    #[inline(always)]
    fn extract_one(&mut self, i: usize, packet: &Packet, ingress: &Ingress) {
        let key = &mut self.keys[i];
        let found = extract(packet.data(), packet.len(), ingress, key);
        self.layers[i] = found.unwrap_or_default();
        mark_depth(key, ingress.depth());
        self.put_metadata(i);
        if found.is_none() {
            self.rows[i].decision.verdict = Verdict::Drop(DropReason::RxTruncated);
        }
    }
}

impl Memory {
    /// The same for a packet that does not start with an Ethernet header; it cannot be too short for one.
    #[cold]
    fn extract_bare(&mut self, i: usize, packet: &Packet, ingress: &Ingress) {
        let key = &mut self.keys[i];
        self.layers[i] = extract_without_link(packet.data(), packet.len(), ingress, key);
        mark_depth(key, ingress.depth());
        self.put_metadata(i);
    }
}

/// Extracts the key of a plain packet that missed in the exact tier or whose flow must be judged.
#[inline(never)]
pub(super) fn extract_plain(key: &mut Key, packet: &Packet, ingress: &Ingress) {
    let found = extract(packet.data(), packet.len(), ingress, key);
    debug_assert!(found.is_some(), "a plain packet is a whole frame");
    mark_depth(key, ingress.depth());
}

/// Bits 16 to 23 of the last word of block 0 belong to no field. The exact tier's keys store the depth there,
/// so that keys of different depths are never equal. No mask includes these bits.
#[inline(always)]
fn mark_depth(key: &mut Key, depth: Depth) {
    key.block_mut(0).0[7] |= (depth as u64) << 16;
}

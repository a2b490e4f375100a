//! Stages 1 to 3: what the packets of a burst are, and which cached flows they belong to.

use super::super::*;
use super::*;

impl<P: Pipeline> Process<P> {
    /// Stages 1 to 3.
    #[inline(always)]
    pub(in crate::process) fn classify(
        &mut self,
        received: Received,
        batch: &Batch,
        clock: &mut StageClock,
    ) -> Classified {
        let Received { mut memory, arrival } = received;
        let Arrival { ingress, use_exact, .. } = arrival;
        let mut todo = Todo::new();
        match (use_exact, arrival.origin, ingress.depth()) {
            (true, Some(origin), depth) => {
                let prepare = match depth {
                    Depth::Metadata => Memory::prepare_exact::<0>,
                    Depth::Ethernet => Memory::prepare_exact::<1>,
                    Depth::Network => Memory::prepare_exact::<2>,
                    Depth::Transport => Memory::prepare_exact::<3>,
                    Depth::Everything => Memory::prepare_exact::<4>,
                };
                prepare(&mut memory, &self.cache, batch, &ingress, origin, &mut todo);
            }
            (true, None, _) => memory.prepare_keys(Some(&self.cache), batch, &ingress, &mut todo),
            (false, ..) => memory.prepare_keys(None, batch, &ingress, &mut todo),
        }
        clock.lap(Stage::Extract);
        if use_exact {
            let hits = self.exact_stage(&mut memory, &mut todo, &arrival, batch);
            self.context.stats.exact_hits.add(hits);
            self.context.input.promotion.looked_up(hits, batch.len() as u64 - hits);
        }
        for i in todo.iter() {
            if !memory.rows[i].exact.is_plain() {
                continue;
            }
            extract_plain(&mut memory.keys[i], &batch[i], &ingress);
            memory.put_metadata(i);
        }
        clock.lap(Stage::Exact);
        let hits = self.megaflow_stage(&mut memory, &mut todo, &arrival);
        self.context.stats.megaflow_hits.add(hits);
        clock.lap(Stage::Megaflow);
        Classified { memory, arrival }
    }
}

impl Memory {
    /// Reads the exact tier's keys of all packets. Plain packets are not extracted yet; consecutive packets
    /// that are alike form a run, of which only the first is looked up. Compiled once for each depth (by
    /// number), so that what a depth does not need is not even loaded.
    #[inline(never)]
    fn prepare_exact<const DEPTH: usize>(
        &mut self,
        cache: &FlowCache,
        batch: &Batch,
        ingress: &Ingress,
        origin: u64,
        todo: &mut Todo,
    ) {
        let depth = Depth::ALL[DEPTH];
        let mut first = 0;
        let mut first_key = EntryKey::NONE;
        for (i, packet) in batch.iter().enumerate() {
            if let Some(ahead) = batch.get(i + AHEAD) {
                prefetch(ahead.data());
            }
            // Tells the compiler that the index lies within a burst.
            let i = i % BURST;
            let len = packet.len() as u32;
            if let Some(plain) = plain_key(packet.data(), packet.len(), depth, origin) {
                let exact = EntryKey::plain(plain);
                if exact.equals(&first_key) {
                    self.rows[first].count += 1;
                    self.rows[first].len += len;
                    continue;
                }
                let hash = cache.exact_probe(&ExactKey::Plain(plain));
                self.rows[i] = Row { exact, hash, len, ..Row::EMPTY };
                todo.push(i);
                (first, first_key) = (i, exact);
            } else {
                self.rows[i] = Row { len, ..Row::EMPTY };
                self.extract_one(i, packet, ingress, todo);
                self.rows[i].hash = cache.exact_probe(&ExactKey::Whole(&self.keys[i]));
                (first, first_key) = (i, EntryKey::NONE);
            }
        }
    }

    /// Extracts the keys of all packets, each a run of its own: if the exact tier is not used, or `exact`
    /// uses only whole keys.
    #[inline(never)]
    fn prepare_keys(&mut self, exact: Option<&FlowCache>, batch: &Batch, ingress: &Ingress, todo: &mut Todo) {
        for (i, packet) in batch.iter().enumerate() {
            if let Some(ahead) = batch.get(i + AHEAD) {
                prefetch(ahead.data());
            }
            self.rows[i] = Row { len: packet.len() as u32, ..Row::EMPTY };
            if ingress.packet_type() == 0 {
                self.extract_one(i, packet, ingress, todo);
            } else {
                self.extract_bare(i, packet, ingress, todo);
            }
            if let Some(cache) = exact {
                self.rows[i].hash = cache.exact_probe(&ExactKey::Whole(&self.keys[i]));
            }
        }
    }

    #[inline(always)]
    fn extract_one(&mut self, i: usize, packet: &Packet, ingress: &Ingress, todo: &mut Todo) {
        let key = &mut self.keys[i];
        let found = extract(packet.data(), packet.len(), ingress, key);
        self.layers[i] = found.unwrap_or_default();
        mark_depth(key, ingress.depth());
        self.put_metadata(i);
        if found.is_some() {
            todo.push(i);
        } else {
            self.rows[i].decision.verdict = Verdict::Drop(DropReason::RxTruncated);
        }
    }
}

impl Memory {
    /// The same for a packet that does not start with an Ethernet header; it cannot be too short for one.
    #[cold]
    fn extract_bare(&mut self, i: usize, packet: &Packet, ingress: &Ingress, todo: &mut Todo) {
        let key = &mut self.keys[i];
        self.layers[i] = extract_without_link(packet.data(), packet.len(), ingress, key);
        mark_depth(key, ingress.depth());
        self.put_metadata(i);
        todo.push(i);
    }
}

/// Extracts the key of a plain packet that missed in the exact tier or whose flow must be judged.
#[inline(never)]
fn extract_plain(key: &mut Key, packet: &Packet, ingress: &Ingress) {
    let found = extract(packet.data(), packet.len(), ingress, key);
    debug_assert!(found.is_some(), "a plain packet is a whole frame");
    mark_depth(key, ingress.depth());
}

/// Indices of the packets in a burst that still need a lookup. Bound: extraction pushes each packet of a
/// batch once, and later stages only remove them.
struct Todo {
    idx: [u8; BURST],
    len: usize,
}

impl Todo {
    fn new() -> Todo {
        Todo { idx: [0; BURST], len: 0 }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> {
        // Masked, so that the compiler knows that every index lies within a burst.
        self.idx[..self.len.min(BURST)].iter().map(|&i| usize::from(i) % BURST)
    }

    #[inline(always)]
    fn push(&mut self, i: usize) {
        self.idx[self.len] = i as u8;
        self.len += 1;
    }

    /// Keeps those for which `keep` returns true.
    #[inline(always)]
    fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let mut kept = 0;
        for n in 0..self.len.min(BURST) {
            let i = self.idx[n];
            if keep(usize::from(i) % BURST) {
                self.idx[kept] = i;
                kept += 1;
            }
        }
        self.len = kept;
    }
}

impl<P: Pipeline> Process<P> {
    // 2. Exact tier; its buckets have been prefetched. Returns the number of packets that hit.
    #[inline(never)]
    fn exact_stage(&mut self, memory: &mut Memory, todo: &mut Todo, arrival: &Arrival, batch: &Batch) -> u64 {
        let (rows, at) = (&mut memory.rows, arrival.at);
        for i in todo.iter() {
            rows[i].likely = self.cache.exact_prefetch(rows[i].hash);
        }
        // The common case: the likely entry matches, and no later change affects it. Only entries are read.
        let sights = Sights::new(&*self.pipeline, &self.reader, at.version);
        let version = ShortVersion::of(at.version);
        let (entries, trails, mut judge) = self.cache.exact_entries(sights);
        let (mut packets, mut alone, mut full) = (0, 0, false);
        todo.retain(|i| {
            let row = &mut rows[i];
            let Some(e) = entries.get_mut(row.likely as usize) else { return true };
            // Entry 0, which stands for none, has no plain packet's key.
            if !e.key.equals(&row.exact) || e.version != version && !judge.renew(e) {
                return true;
            }
            packets += row.count;
            e.hit(row.count, row.len, at.now);
            alone |= e.is_alone;
            full |= e.counts.is_full();
            row.decision = e.decision;
            if e.decision.verdict == Verdict::Track {
                trails.prefetch(row.likely);
            }
            false
        });
        if alone != 0 {
            self.context.input.met_alone(self.now_ms);
        }
        if full {
            self.fold_full(&memory.rows[..batch.len()]);
        }
        let packets = u64::from(packets);
        if todo.is_empty() { packets } else { packets + self.exact_rest(memory, todo, arrival, batch) }
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
        let Memory { keys, rows, stale_exact, tracking, originals, dp_hash, has_more, .. } = memory;
        let (mut packets, mut alone) = (0, 0);
        todo.retain(|i| {
            let row = &mut rows[i];
            let plain = row.exact.is_plain();
            let exact = if plain { ExactKey::Plain(row.exact.0) } else { ExactKey::Whole(&keys[i]) };
            let idx = lookup.cache.exact_find_likely(row.likely, row.hash, &exact);
            let extract = |key: &mut Key| {
                if plain {
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
            packets += u64::from(row.count);
            row.likely = idx;
            alone |= lookup.cache.entry(Which::Exact, idx).is_alone;
            false
        });
        if alone != 0 {
            self.context.input.met_alone(self.now_ms);
        }
        packets
    }

    // 3. Megaflow tier. Returns the number of packets that hit.
    #[inline(never)]
    fn megaflow_stage(&mut self, memory: &mut Memory, todo: &mut Todo, arrival: &Arrival) -> u64 {
        if todo.is_empty() {
            return 0;
        }
        let (mut lookup, mut sights) = self.lookup(Which::Mega, arrival.at);
        let Memory { keys, rows, masked, promote, stale_mega, .. } = memory;
        let (mut searched, mut packets) = (0, 0);
        for (n, id) in lookup.cache.port_masks(arrival.input, arrival.metadata.recirc_id) {
            if todo.is_empty() {
                break;
            }
            searched += todo.len();
            for i in todo.iter() {
                rows[i].hash = lookup.cache.mega_probe(id, &keys[i], &mut masked[i]);
            }
            for i in todo.iter() {
                rows[i].likely = lookup.cache.mega_prefetch(rows[i].hash);
            }
            let before = todo.len();
            todo.retain(|i| {
                let row = &mut rows[i];
                let idx = lookup.cache.mega_find_likely(row.likely, id, row.hash, &keys[i], &masked[i]);
                let key = &mut keys[i];
                if !lookup.answers(&mut sights, idx, row, key, |_| (), |stale| stale_mega.push(stale)) {
                    return true;
                }
                packets += u64::from(row.count);
                promote.push((i as u8, idx));
                false
            });
            lookup.cache.port_mask_hit(arrival.input, n, (before - todo.len()) as u32);
        }
        lookup.stats.masks_searched.add(searched as u64);
        packets
    }

    #[inline(always)]
    fn lookup(&mut self, which: Which, at: Moment) -> (Lookup<'_, P>, Sights<'_, P>) {
        let Process { pipeline, reader, cache, context, .. } = self;
        let (pipeline, reader) = (&**pipeline, &*reader);
        let lookup = Lookup { which, at, pipeline, reader, cache, stats: &context.stats };
        (lookup, Sights::new(pipeline, reader, at.version))
    }
}

/// What is needed to decide whether a found entry applies to a packet.
struct Lookup<'a, P: Pipeline> {
    which: Which,
    at: Moment,
    pipeline: &'a P,
    reader: &'a rcu::Reader,
    cache: &'a mut FlowCache,
    stats: &'a WorkerStats,
}

impl<P: Pipeline> Lookup<'_, P> {
    /// Whether entry `idx` (0: none was found) is right for the row: of this version, or affected by no later
    /// change. If so, counts and decides the row. `extract` completes the packet's `key` if the flow must be
    /// judged in full; `stale` is called with an entry that is out of date.
    #[inline(always)]
    fn answers(
        &mut self,
        sights: &mut Sights<'_, P>,
        idx: u32,
        row: &mut Row,
        key: &mut Key,
        extract: impl FnOnce(&mut Key),
        stale: impl FnOnce(u32),
    ) -> bool {
        if idx == 0 {
            return false;
        }
        let (which, now) = (self.which, self.at.version);
        if self.cache.entry(which, idx).version != ShortVersion::of(now)
            && !self.cache.renew(which, idx, sights)
        {
            extract(key);
            let judged = self.cache.judge(which, idx, key, now, self.pipeline, self.reader);
            if let Judged::Stale { is_new } = judged {
                if is_new {
                    self.stats.touched.add(1);
                    stale(idx);
                }
                return false;
            }
        }
        let e = self.cache.entry(which, idx);
        e.hit(row.count, row.len, self.at.now);
        row.decision = e.decision;
        if e.counts.is_full() {
            self.cache.fold(which, idx);
        }
        true
    }
}

/// Bits 16 to 23 of the last word of block 0 belong to no field. The exact tier's keys store the depth there,
/// so that keys of different depths are never equal. No mask includes these bits.
#[inline(always)]
fn mark_depth(key: &mut Key, depth: Depth) {
    key.block_mut(0).0[7] |= (depth as u64) << 16;
}

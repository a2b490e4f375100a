//! Stages 1 to 3: what the packets of a burst are, and which cached flows they belong to.

use super::super::*;
use super::todo::Todo;
use super::*;
use crate::cache::recent::{Recent, Shared};
use base::wide::{Baseline, Lanes};
use flow::extract::{LongReader, plain_key_by};

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
        memory.to_port = None;
        let mut lately = Lately::NOTHING;
        let mut has_long = false;
        match (use_exact, arrival.origin, ingress.depth()) {
            (true, Some(origin), depth) => {
                // If the first packet is not untagged IPv4, most are not.
                let plain_first = batch.first().is_none_or(|p| p.data().get(12..14) == Some(&[8, 0]));
                let others = match self.cache.wide {
                    _ if !plain_first => Todo::all(batch.len()),
                    Some(wide) => memory.prepare_plain(wide, depth, &self.cache, batch, origin),
                    None => memory.prepare_plain(Baseline, depth, &self.cache, batch, origin),
                };
                if !others.is_empty() {
                    let others = (others, plain_first);
                    has_long = memory.prepare_others(&self.cache, batch, &ingress, origin, others);
                }
            }
            (true, None, _) => {
                memory.prepare_keys(Some(&self.cache), batch, &ingress, &mut lately, &mut todo);
            }
            (false, ..) => {
                lately = self.lately(&arrival);
                memory.prepare_keys(None, batch, &ingress, &mut lately, &mut todo);
            }
        }
        clock.lap(Stage::Extract);
        if use_exact {
            let hits = self.exact_stage(&mut memory, &mut todo, &arrival, batch, has_long);
            self.context.stats.exact_hits.add(hits);
            self.context.input.promotion.looked_up(hits, batch.len() as u64 - hits);
            if !todo.is_empty() {
                lately = self.lately(&arrival);
                memory.extract_rest(batch, &ingress, &mut lately, &mut todo);
            }
        }
        clock.lap(Stage::Exact);
        let hits = self.megaflow_stage(&mut memory, &mut todo, &arrival);
        self.context.stats.megaflow_hits.add(hits);
        if lately.recent.is_some() || memory.promote.len() > 1 {
            self.remember(&memory, &arrival, batch, &lately);
        }
        clock.lap(Stage::Megaflow);
        Classified { memory, arrival }
    }
}

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
    fn prepare_plain<L: Lanes>(
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
    fn prepare_others(
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
    fn prepare_keys(
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
    fn extract_rest(&mut self, batch: &Batch, ingress: &Ingress, lately: &mut Lately, todo: &mut Todo) {
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

/// The megaflow that packets like the burst's hit lately, and what it decides of the burst.
struct Lately {
    /// `None`: nothing is known.
    recent: Option<Recent>,
    /// What the burst's packed keys say about their origin, if there is a megaflow.
    origin: u64,
    /// Rows that were compared, and those that belong to it.
    compared: u32,
    decided: u32,
    /// Packets of the latter.
    hits: Counts,
}

impl Lately {
    const NOTHING: Lately = Lately { recent: None, origin: 0, compared: 0, decided: 0, hits: Counts::NONE };

    /// Whether the row, which has this packed key, belongs to the megaflow; if so, decides it.
    #[inline(always)]
    fn decides(&mut self, key: &PlainKey, row: &mut Row) -> bool {
        self.compared += 1;
        let Some(recent) = self.recent.filter(|recent| recent.has(key)) else { return false };
        row.decision = recent.decision;
        self.decided += 1;
        self.hits.add(row.counts);
        true
    }
}

impl Arrival {
    fn shared(&self) -> Shared {
        let origin = Origin::new(self.of_port, self.metadata);
        Shared { input: self.input, origin, depth: self.ingress.depth() }
    }
}

impl<P: Pipeline> Process<P> {
    /// Before packets are compared.
    #[inline(never)]
    fn lately(&mut self, arrival: &Arrival) -> Lately {
        let Some(origin) = arrival.origin else { return Lately::NOTHING };
        let Process { cache, pipeline, reader, .. } = self;
        let mut sights = Sights::new(&**pipeline, &*reader, arrival.at.version);
        let recent = cache.recent(&arrival.shared(), arrival.at, &mut sights);
        Lately { recent, origin, ..Lately::NOTHING }
    }

    /// When all packets are decided: counts those that belong to the megaflow that was hit lately, and
    /// remembers another one if only few do and others belong together.
    #[inline(never)]
    fn remember(&mut self, memory: &Memory, arrival: &Arrival, batch: &Batch, lately: &Lately) {
        let Process { cache, context, .. } = self;
        if let Some(Recent { megaflow, .. }) = lately.recent {
            let e = cache.entry(Which::Mega, megaflow);
            if lately.decided > 0 {
                e.hit(lately.hits, arrival.at.now);
                if e.counts.is_full() {
                    cache.fold(Which::Mega, megaflow);
                }
                context.stats.megaflow_hits.add(lately.hits.packets());
                context.stats.masks_searched.add(lately.decided.into());
                cache.mask_of_megaflow_hit(arrival.input, megaflow, lately.decided);
            }
            if lately.decided * KEPT_BY >= lately.compared {
                return;
            }
            cache.hit_no_longer(&arrival.shared());
        }
        if let [.., (_, before), (i, megaflow)] = memory.promote[..]
            && before == megaflow
            && let Some(origin) = arrival.origin
        {
            let i = usize::from(i);
            let (packet, depth) = (&batch[i], arrival.ingress.depth());
            if let Some(key) = plain_key(packet.data(), packet.len(), depth, origin) {
                cache.hit_lately(arrival.shared(), key, megaflow);
            }
        }
    }
}

/// A megaflow is no longer tried first if fewer than one packet in this many belongs to it: the others are
/// compared in vain.
const KEPT_BY: u32 = 4;

/// Extracts the key of a plain packet that missed in the exact tier or whose flow must be judged.
#[inline(never)]
fn extract_plain(key: &mut Key, packet: &Packet, ingress: &Ingress) {
    let found = extract(packet.data(), packet.len(), ingress, key);
    debug_assert!(found.is_some(), "a plain packet is a whole frame");
    mark_depth(key, ingress.depth());
}

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
    fn exact_stage(
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
                (rows[i].hash, rows[i].likely) = lookup.cache.mega_probe(id, &keys[i], &mut masked[i]);
            }
            for i in todo.iter() {
                rows[i].likely = lookup.cache.mega_prefetch(&rows[i].hash, rows[i].likely);
            }
            let before = todo.len();
            todo.retain(|i| {
                let row = &mut rows[i];
                let idx = lookup.cache.mega_find_likely(row.likely, id, row.hash, &keys[i], &masked[i]);
                let key = &mut keys[i];
                if !lookup.answers(&mut sights, idx, row, key, |_| (), |stale| stale_mega.push(stale)) {
                    return true;
                }
                packets += row.counts.packets();
                row.likely = 0;
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
        e.hit(row.counts, self.at.now);
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

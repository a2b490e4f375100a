//! Stages 1 to 3: what the packets of a burst are, and which cached flows they belong to.

use super::*;

impl Scratch {
    /// What the exact tier compares of one packet, whose key is there, whether or not the tier was asked.
    pub(super) fn exact_key_of(&mut self, i: usize, packet: &Packet) {
        let key = &self.keys[i];
        let (word0, last) = (key.word(0, 0), key.word(0, 7));
        let depth = Depth::ALL[(last >> 16 & 7) as usize % Depth::ALL.len()];
        match plain_words(packet.data(), packet.len(), depth) {
            Some(w) => {
                self.exact[i] = [word0, w[0], w[1], w[2], w[3], w[4], w[5], last];
                self.present[i] = PLAIN;
            }
            None => {
                self.exact[i] = key.common().0;
                self.present[i] = key.present();
            }
        }
    }

    /// What the exact tier compares, of all packets. Plain packets are not extracted yet; consecutive ones that are alike
    /// become a run, of which only the first is looked up. One function for each depth, by its
    /// number: what a depth does not look at is not even loaded.
    #[inline(never)]
    pub(super) fn prepare_exact<const DEPTH: usize>(
        &mut self,
        cache: &FlowCache,
        batch: &Batch,
        ingress: &Ingress,
        todo: &mut Todo,
    ) {
        let depth = Depth::ALL[DEPTH];
        let word0 = ingress.word0();
        // No key of another depth is equal.
        let last = ingress.word7() | (depth as u64) << 16;
        let frame = cache.plain_frame(word0, last);
        let mut first = 0;
        let mut first_is_plain = false;
        for (i, packet) in batch.iter().enumerate() {
            if let Some(ahead) = batch.get(i + AHEAD) {
                prefetch(ahead.data());
            }
            // So that the compiler sees it within a burst.
            let i = i % BURST;
            let len = packet.len() as u32;
            let plain = plain_words(packet.data(), packet.len(), depth);
            if let Some(w) = plain {
                if first_is_plain && (depth == Depth::Metadata || same_words(&self.exact[first], &w)) {
                    self.counts[first] += 1;
                    self.lens[first] += len;
                    continue;
                }
                // Hashed while the words are in registers.
                self.hashes[i] = cache.plain_probe(frame, &w);
                self.exact[i] = [word0, w[0], w[1], w[2], w[3], w[4], w[5], last];
                self.present[i] = PLAIN;
                self.verdicts[i] = MISS;
                todo.push(i);
            } else {
                self.extract_one(i, packet, ingress, todo);
                self.exact[i] = self.keys[i].common().0;
                self.present[i] = self.keys[i].present();
                self.hashes[i] = cache.exact_probe(&self.exact_key(i));
            }
            self.lens[i] = len;
            self.counts[i] = 1;
            (first, first_is_plain) = (i, plain.is_some());
        }
    }

    /// Keys of all packets, where the exact tier is not used: each is a run of its own.
    #[inline(never)]
    pub(super) fn prepare_keys(&mut self, batch: &Batch, ingress: &Ingress, todo: &mut Todo) {
        for (i, packet) in batch.iter().enumerate() {
            if let Some(ahead) = batch.get(i + AHEAD) {
                prefetch(ahead.data());
            }
            self.extract_one(i, packet, ingress, todo);
            self.lens[i] = packet.len() as u32;
            self.counts[i] = 1;
            // Not to be mistaken for a plain one that still waits for its key.
            self.present[i] = self.keys[i].present();
        }
    }

    #[inline(always)]
    fn extract_one(&mut self, i: usize, packet: &Packet, ingress: &Ingress, todo: &mut Todo) {
        let key = &mut self.keys[i];
        let found = extract(packet.data(), packet.len(), ingress, key);
        self.layers[i] = found.unwrap_or_default();
        mark_depth(key, ingress.depth());
        if found.is_some() {
            self.verdicts[i] = MISS;
            todo.push(i);
        } else {
            self.verdicts[i] = TRUNCATED_VERDICT;
        }
    }

    /// The key of a plain packet, which the exact tier did not know or must judge.
    #[inline(never)]
    pub(super) fn extract_plain(keys: &mut [Key; BURST], i: usize, packet: &Packet, ingress: &Ingress) {
        let found = extract(packet.data(), packet.len(), ingress, &mut keys[i]);
        debug_assert!(found.is_some(), "a plain packet is a whole frame");
        mark_depth(&mut keys[i], ingress.depth());
    }

    /// Where the headers of a packet are. A plain one, of which perhaps the header bytes alone were compared, is walked over by the
    /// first change that is made to it.
    pub(super) fn layers(&self, i: usize) -> Layers {
        if self.present[i] == PLAIN { Layers::UNKNOWN } else { self.layers[i] }
    }

    pub(super) fn exact_key(&self, i: usize) -> ExactKey<'_> {
        ExactKey { words: &self.exact[i], present: self.present[i], key: &self.keys[i] }
    }
}

/// The packets of a burst that are still to be looked up, by their index. Bound: extraction pushes each packet of a batch once,
/// and later stages only take away.
pub(super) struct Todo {
    idx: [u8; BURST],
    len: usize,
}

impl Todo {
    pub(super) fn new() -> Todo {
        Todo { idx: [0; BURST], len: 0 }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        // Masked, so that the compiler sees every index within a burst.
        self.idx[..self.len.min(BURST)].iter().map(|&i| usize::from(i) % BURST)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, i: usize) {
        self.idx[self.len] = i as u8;
        self.len += 1;
    }

    /// Keeps those for which `keep` says so.
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
    // 2. Exact tier, whose buckets are asked for. Returns the packets that it answered.
    #[inline(never)]
    pub(super) fn exact_stage(
        &mut self,
        todo: &mut Todo,
        at: Moment,
        batch: &Batch,
        ingress: &Ingress,
        tuner: &mut Tuner,
    ) -> u64 {
        let Scratch { exact, present, hashes, likely, lens, counts, verdicts, .. } = &mut self.scratch;
        for i in todo.iter() {
            likely[i] = self.cache.exact_prefetch(hashes[i]);
        }
        // Nearly all: the likely entry it is, and no change since touches it. Nothing but the entries is read.
        let sights = Sights::new(&*self.pipeline, &self.reader, at.version);
        let (entries, mut judge) = self.cache.exact_entries(sights);
        let (mut packets, mut alone) = (0, false);
        todo.retain(|i| {
            let Some(e) = entries.get_mut(likely[i] as usize) else { return true };
            if likely[i] == 0 || !e.is_of(&exact[i], present[i]) {
                return true;
            }
            if e.version != at.version.0 && !judge.renew(e) {
                return true;
            }
            packets += u64::from(counts[i]);
            e.hit(counts[i].into(), lens[i].into(), at.now);
            alone |= e.mask == MASK_EXACT;
            verdicts[i] = Verdict { kind: e.kind, port: e.port, body: e.body };
            false
        });
        if alone {
            tuner.alone_hit();
        }
        if todo.is_empty() { packets } else { packets + self.exact_rest(todo, at, batch, ingress, tuner) }
    }

    // 2b. Packets whose likely entry is another's, or that are to be judged in full.
    #[inline(never)]
    fn exact_rest(
        &mut self,
        todo: &mut Todo,
        at: Moment,
        batch: &Batch,
        ingress: &Ingress,
        tuner: &mut Tuner,
    ) -> u64 {
        let Scratch { keys, exact, present, hashes, likely, lens, counts, verdicts, stale_exact, .. } =
            &mut self.scratch;
        let (pipeline, reader, cache, stats) =
            (&*self.pipeline, &self.reader, &mut self.cache, &self.out.stats);
        let mut sights = Sights::new(pipeline, reader, at.version);
        let mut packets = 0;
        todo.retain(|i| {
            let key = ExactKey { words: &exact[i], present: present[i], key: &keys[i] };
            let idx = cache.exact_find_likely(likely[i], hashes[i], &key);
            if idx == 0 {
                return true;
            }
            if cache.entry(Which::Exact, idx).version != at.version.0
                && !cache.renew(Which::Exact, idx, &mut sights)
            {
                if present[i] == PLAIN {
                    Scratch::extract_plain(keys, i, &batch[i], ingress);
                }
                let judged = cache.judge(Which::Exact, idx, &keys[i], at.version, pipeline, reader);
                if let Judged::Stale { is_new } = judged {
                    if is_new {
                        stats.touched.add(1);
                        stale_exact.push(idx);
                    }
                    return true;
                }
            }
            let e = cache.entry(Which::Exact, idx);
            packets += u64::from(counts[i]);
            e.hit(counts[i].into(), lens[i].into(), at.now);
            if e.mask == MASK_EXACT {
                tuner.alone_hit();
            }
            verdicts[i] = Verdict { kind: e.kind, port: e.port, body: e.body };
            false
        });
        packets
    }

    // 3. Megaflow tier. Returns the number of masks searched and of packets that it answered.
    #[inline(never)]
    pub(super) fn megaflow_stage(&mut self, port: PortNo, todo: &mut Todo, at: Moment) -> (usize, u64) {
        let Scratch { keys, hashes, likely, lens, counts, masked, verdicts, promote, stale_mega, .. } =
            &mut self.scratch;
        let (pipeline, reader, cache, stats) =
            (&*self.pipeline, &self.reader, &mut self.cache, &self.out.stats);
        let mut sights = Sights::new(pipeline, reader, at.version);
        let (mut searched, mut packets) = (0, 0);
        for n in 0..cache.port_masks(port) {
            if todo.is_empty() {
                break;
            }
            searched += todo.len();
            let id = cache.port_mask(port, n);
            for i in todo.iter() {
                hashes[i] = cache.mega_probe(id, &keys[i], &mut masked[i]);
            }
            for i in todo.iter() {
                likely[i] = cache.mega_prefetch(hashes[i]);
            }
            let before = todo.len();
            todo.retain(|i| {
                let idx = cache.mega_find_likely(likely[i], id, hashes[i], &keys[i], &masked[i]);
                if idx == 0 {
                    return true;
                }
                if cache.entry(Which::Mega, idx).version != at.version.0
                    && !cache.renew(Which::Mega, idx, &mut sights)
                {
                    let judged = cache.judge(Which::Mega, idx, &keys[i], at.version, pipeline, reader);
                    if let Judged::Stale { is_new } = judged {
                        if is_new {
                            stats.touched.add(1);
                            stale_mega.push(idx);
                        }
                        return true;
                    }
                }
                let e = cache.entry(Which::Mega, idx);
                packets += u64::from(counts[i]);
                e.hit(counts[i].into(), lens[i].into(), at.now);
                verdicts[i] = Verdict { kind: e.kind, port: e.port, body: e.body };
                promote.push((i as u8, idx));
                false
            });
            cache.port_mask_hit(port, n, (before - todo.len()) as u32);
        }
        stats.masks_searched.add(searched as u64);
        (searched, packets)
    }
}

/// Whether a plain key has these words. Addresses and ports first: they differ where anything does.
#[inline(always)]
fn same_words(key: &[u64; 8], w: &PlainWords) -> bool {
    (key[4] ^ w[3]) | (key[5] ^ w[4]) == 0
        && (key[1] ^ w[0]) | (key[2] ^ w[1]) | (key[3] ^ w[2]) | (key[6] ^ w[5]) == 0
}

/// Bits 16 to 23 of the last word of block 0 belong to no field: the exact tier's keys carry the depth there, so that
/// keys of different depths never compare equal. No mask holds them.
#[inline(always)]
pub(super) fn mark_depth(key: &mut Key, depth: Depth) {
    key.block_mut(0).0[7] |= (depth as u64) << 16;
}

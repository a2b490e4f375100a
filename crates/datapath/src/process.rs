//! One burst of packets from one input port, from bytes to outputs.
//!
//! The stages, numbered as in [`Process::burst`]; each runs over the whole burst before the next begins, and asks
//! for the memory that the next one needs:
//!
//! 1. *Extract*: keys from packets, to the depth that the input port's rules ask for.
//! 2. *Exact tier*: hash, bucket, entry. Skipped while the port's [`Tuner`] finds it too dear.
//! 3. *Megaflow tier*, for what is left: mask after mask, the port's most hit first.
//! 4. *Hits leave*: counters, and the action that the entry says. A flow older than the version that this
//!    burst sees is first checked for changes, and treated as a miss where one touches it.
//! 5. *Promotion*: megaflow hits get exact entries; outdated entries go.
//! 6. *Misses*: looked up once more (a packet before it in the burst may have been of the same flow), else translated, installed,
//!    executed.
//!
//! Until stage 5 no entry is added or removed, so that the entry numbers gathered in stages 2 and 3 hold.

use crate::cache::entry::kind;
use crate::cache::sorts::{NO_SORT, Sights};
use crate::cache::{ExactKey, FlowCache, FlowRef, Installed, MASK_EXACT, Moment, PLAIN, PORT_MASKS_MAX};
use crate::execute::{Carried, execute};
use crate::loan::{Lending, Loan};
use crate::output::{Outputs, RECIRCULATED_MAX, Recirculated};
use crate::pipeline::{Pipeline, Translation};
use crate::stamp::Stamp;
use crate::stats::Stage;
use crate::tuner::{ExactTier, Tuner};
use arrayvec::ArrayVec;
use base::clock::tsc;
use base::region::prefetch;
use base::slots::SlotTable;
use base::{DropReason, OfPort, PortNo, Version, rcu};
use flow::extract::{Ingress, PlainWords, extract, extract_keeping_metadata, plain_words};
use flow::{Depth, FieldId, Key};
use packet::batch::Runs;
use packet::wait::Bell;
use packet::{BURST, Batch, Lent, Packet};
use std::sync::Arc;

/// What the lookups decided for one packet of the burst.
#[derive(Clone, Copy)]
struct Verdict {
    kind: u8,
    port: u32,
    body: u32,
}

const TO_MISS: u8 = 100;
const TRUNCATED: u8 = 101;
/// How many packets ahead headers are asked for.
const AHEAD: usize = 4;

/// Where a batch's keys come from.
#[derive(Clone, Copy)]
enum Keys<'a> {
    /// They are to be read from the packets, which came in like this.
    Of(&'a Ingress),
    /// They are in the scratch memory.
    Ready,
}
const MISS: Verdict = Verdict { kind: TO_MISS, port: 0, body: 0 };

impl Scratch {
    /// What the exact tier compares of one packet, whose key is there, whether or not the tier was asked.
    fn exact_key_of(&mut self, i: usize, packet: &Packet) {
        let key = &self.keys[i];
        let (word0, last) = (key.word(0, 0), key.word(0, 7));
        let depth = Depth::ALL[(last >> 16 & 7) as usize % Depth::ALL.len()];
        // A packet that goes round again has metadata beside its bytes.
        let fresh = key.word(0, 0) >> 32 == 0 && !self.carries;
        match plain_words(packet.data(), packet.len(), depth).filter(|_| fresh) {
            Some(w) => {
                let last = 1 << 32 | (depth as u64) << 16;
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
    fn prepare_exact<const DEPTH: usize>(
        &mut self,
        cache: &FlowCache,
        batch: &Batch,
        ingress: &Ingress,
        todo: &mut Todo,
    ) {
        let depth = Depth::ALL[DEPTH];
        let word0 = ingress.word0();
        // Bit 32 marks a plain key; no other key has it there, and none of another depth is equal.
        let last = 1 << 32 | (depth as u64) << 16;
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
    fn prepare_keys(&mut self, batch: &Batch, ingress: &Ingress, todo: &mut Todo) {
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
    fn extract_plain(keys: &mut [Key; BURST], i: usize, packet: &Packet, ingress: &Ingress) {
        let found = extract(packet.data(), packet.len(), ingress, &mut keys[i]);
        debug_assert!(found.is_some(), "a plain packet is a whole frame");
        mark_depth(&mut keys[i], ingress.depth());
    }

    fn exact_key(&self, i: usize) -> ExactKey<'_> {
        ExactKey { words: &self.exact[i], present: self.present[i], key: &self.keys[i] }
    }
}

impl Verdict {
    #[inline(always)]
    fn is_output_to(self, port: u32) -> bool {
        self.kind == kind::OUTPUT && self.port == port
    }
}

/// The packets of a burst that are still to be looked up, by their index. Bound: extraction pushes each packet of a batch once,
/// and later stages only take away.
struct Todo {
    idx: [u8; BURST],
    len: usize,
}

impl Todo {
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
        // Masked, so that the compiler sees every index within a burst.
        self.idx[..self.len.min(BURST)].iter().map(|&i| usize::from(i) % BURST)
    }

    #[inline(always)]
    fn push(&mut self, i: usize) {
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

/// The burst's working memory, kept from burst to burst.
struct Scratch {
    keys: Box<[Key; BURST]>,
    /// What the exact tier compares, and which blocks of the key belong to it or [`PLAIN`].
    exact: Box<[[u64; 8]; BURST]>,
    present: [u16; BURST],
    hashes: [u64; BURST],
    likely: [u32; BURST],
    /// Bytes of the run that begins with this packet.
    lens: [u32; BURST],
    /// Packets of the run that begins with this packet: they have its key and get its verdict. Only the first of a run has
    /// a key, a verdict and a length.
    counts: [u32; BURST],
    masked: Box<[[u64; 8]; BURST]>,
    verdicts: [Verdict; BURST],
    /// (packet, megaflow) to be given exact entries. Bound: a packet is no longer looked up after its first hit.
    promote: ArrayVec<(u8, u32), BURST>,
    /// Exact entries found out of date. Bound: each packet finds at most one.
    stale_exact: ArrayVec<u32, BURST>,
    /// Megaflows found out of date. Bound: each packet finds at most one under each mask of its input port, and an entry
    /// is pushed once, when it becomes stale. A packet that finds one goes on under the next mask.
    stale_mega: ArrayVec<u32, { BURST * PORT_MASKS_MAX }>,
    /// Bound: each packet leaves the batch once.
    missed: ArrayVec<(u8, Packet), BURST>,
    carried: [Carried; BURST],
    /// Something in `carried` is not the default.
    carries: bool,
}

/// Everything that a burst touches.
pub struct Process<P: Pipeline> {
    pipeline: Arc<P>,
    reader: rcu::Reader,
    pub cache: FlowCache,
    pub slots: Arc<SlotTable>,
    pub out: Outputs,
    effects: rtrb::Producer<P::Effect>,
    event_bell: Arc<Bell>,
    translation: Translation<P::Effect>,
    scratch: Scratch,
    loan: Box<Loan>,
    /// Empty, to take turns with the one that packets wait in: neither ever grows.
    recirculated_room: Vec<Recirculated>,
    /// By input port.
    tuners: Vec<Option<Box<Tuner>>>,
    pub exact_tier: ExactTier,
    pub now_ms: u64,
    sample_next: u32,
}

/// One burst in so many is timed stage by stage.
const SAMPLE_EVERY: u32 = 256;

impl<P: Pipeline> Process<P> {
    pub fn new(
        pipeline: Arc<P>,
        reader: rcu::Reader,
        cache: FlowCache,
        slots: Arc<SlotTable>,
        out: Outputs,
        effects: rtrb::Producer<P::Effect>,
        event_bell: Arc<Bell>,
    ) -> Self {
        let keys: Vec<Key> = (0..BURST).map(|_| Key::default()).collect();
        let keys: Box<[Key; BURST]> = keys.try_into().unwrap_or_else(|_| unreachable!("BURST keys"));
        Process {
            pipeline,
            reader,
            cache,
            slots,
            out,
            effects,
            event_bell,
            translation: Translation::default(),
            scratch: Scratch {
                keys,
                exact: Box::new([[0; 8]; BURST]),
                present: [0; BURST],
                hashes: [0; BURST],
                likely: [0; BURST],
                lens: [0; BURST],
                counts: [1; BURST],
                masked: Box::new([[0; 8]; BURST]),
                verdicts: [MISS; BURST],
                promote: ArrayVec::new(),
                stale_exact: ArrayVec::new(),
                stale_mega: ArrayVec::new(),
                missed: ArrayVec::new(),
                carried: [Carried::default(); BURST],
                carries: false,
            },
            loan: Box::new(Loan::new()),
            recirculated_room: Vec::with_capacity(RECIRCULATED_MAX),
            tuners: (0..=u16::MAX).map(|_| None).collect(),
            exact_tier: ExactTier::Auto,
            now_ms: 0,
            sample_next: 0,
        }
    }

    /// The pipeline's reader: the worker is quiescent between bursts.
    pub fn reader_mut(&mut self) -> &mut rcu::Reader {
        &mut self.reader
    }

    /// Processes a burst that came in at `port`; leaves the batch empty, and nothing lent. Returns the cycles that translation
    /// took. Once in the program, though called from two places: it is large.
    #[inline(never)]
    pub fn burst(&mut self, port: PortNo, batch: &mut Batch, lent: Option<&mut Lent<'_>>) -> u64 {
        // The version comes before the depth: what that version needs to see is extracted.
        let version = self.pipeline.version();
        let depth = self.pipeline.depth(port);
        let ingress = Ingress::new(OfPort(self.pipeline.of_port(port)), port, depth);
        let mut clock = StageClock::start(&mut self.sample_next, batch.len());
        for packet in batch.iter().take(AHEAD) {
            prefetch(packet.data());
        }
        if std::mem::take(&mut self.scratch.carries) {
            self.scratch.carried = [Carried::default(); BURST];
        }
        self.out.stats.rx.add(batch.len() as u64);
        let keys = Keys::Of(&ingress);
        let translation_cycles = self.classify_and_run(port, version, batch, keys, lent, &mut clock);
        clock.finish(&self.out.stats);
        let rounds = self.recirculated(version);
        translation_cycles + rounds
    }

    /// Packets that go round again, until none is left.
    fn recirculated(&mut self, version: Version) -> u64 {
        let mut cycles = 0;
        while !self.out.recirculated.is_empty() {
            let mut batch = Batch::new();
            let port = self.out.recirculated[0].packet.in_port;
            let room = std::mem::take(&mut self.recirculated_room);
            let mut rest = std::mem::replace(&mut self.out.recirculated, room);
            for item in rest.drain(..) {
                // In the order in which they came, a burst of one input port at a time.
                if batch.is_full() || item.packet.in_port != port {
                    self.out.recirculated.push(item);
                    continue;
                }
                let i = batch.len();
                self.prepare_round(i, &item);
                batch.push(item.packet);
            }
            self.recirculated_room = rest;
            let mut clock = StageClock::off();
            cycles += self.classify_and_run(port, version, &mut batch, Keys::Ready, None, &mut clock);
        }
        cycles
    }

    fn prepare_round(&mut self, i: usize, item: &Recirculated) {
        let port = item.packet.in_port;
        let ingress = Ingress::new(OfPort(self.pipeline.of_port(port)), port, Depth::Everything);
        let key = &mut self.scratch.keys[i];
        key.clear();
        key.set(FieldId::InPort, self.pipeline.of_port(port).into());
        key.set(FieldId::DpPort, port.0.into());
        key.set(FieldId::RecircId, item.recirc_id.into());
        key.set(FieldId::PktMark, item.pkt_mark.into());
        let found = extract_keeping_metadata(item.packet.data(), item.packet.len(), &ingress, key);
        mark_depth(key, Depth::Everything);
        self.scratch.lens[i] = item.packet.len() as u32;
        self.scratch.verdicts[i] = if found.is_some() { MISS } else { TRUNCATED_VERDICT };
        self.scratch.counts[i] = 1;
        self.scratch.exact[i] = self.scratch.keys[i].common().0;
        self.scratch.present[i] = self.scratch.keys[i].present();
        self.scratch.carries = true;
        self.scratch.carried[i] = Carried { pkt_mark: item.pkt_mark, recirc_depth: item.depth };
    }

    /// Stages 2 to 6 for a batch whose keys are in `scratch`.
    fn classify_and_run(
        &mut self,
        port: PortNo,
        version: Version,
        batch: &mut Batch,
        keys: Keys<'_>,
        lent: Option<&mut Lent<'_>>,
        clock: &mut StageClock,
    ) -> u64 {
        let at = Moment { version, now: Stamp::of(self.now_ms) };
        let exact_tier = self.exact_tier;
        let mut tuner =
            self.tuners[port.0 as usize & 0xffff].take().unwrap_or_else(|| Box::new(Tuner::new(exact_tier)));
        let started = tuner.start();
        let mut todo = Todo { idx: [0; BURST], len: 0 };
        let looked_up = batch.len();
        let use_exact = tuner.use_exact(self.now_ms);
        // 1. Extract.
        match keys {
            Keys::Of(ingress) if use_exact => match ingress.depth() {
                Depth::Metadata => self.scratch.prepare_exact::<0>(&self.cache, batch, ingress, &mut todo),
                Depth::Ethernet => self.scratch.prepare_exact::<1>(&self.cache, batch, ingress, &mut todo),
                Depth::Network => self.scratch.prepare_exact::<2>(&self.cache, batch, ingress, &mut todo),
                Depth::Transport => self.scratch.prepare_exact::<3>(&self.cache, batch, ingress, &mut todo),
                Depth::Everything => self.scratch.prepare_exact::<4>(&self.cache, batch, ingress, &mut todo),
            },
            Keys::Of(ingress) => self.scratch.prepare_keys(batch, ingress, &mut todo),
            Keys::Ready => {
                for i in (0..looked_up).filter(|&i| self.scratch.verdicts[i].kind == TO_MISS) {
                    if use_exact {
                        self.scratch.hashes[i] = self.cache.exact_probe(&self.scratch.exact_key(i));
                    }
                    todo.push(i);
                }
            }
        }
        clock.lap(Stage::Extract);
        let exact_hits = if use_exact { self.exact_stage(&mut todo, at, batch, keys, &mut tuner) } else { 0 };
        if let Keys::Of(ingress) = keys {
            for i in todo.iter().filter(|&i| self.scratch.present[i] == PLAIN) {
                Scratch::extract_plain(&mut self.scratch.keys, i, &batch[i], ingress);
            }
        }
        clock.lap(Stage::Exact);
        let (masks, megaflow_hits) = self.megaflow_stage(port, &mut todo, at);
        clock.lap(Stage::Megaflow);
        match lent {
            None => self.hits_leave(batch),
            Some(lent) => self.lent_leave(batch, lent),
        }
        clock.lap(Stage::Execute);
        self.promote(use_exact, at);
        let missed = self.scratch.missed.len();
        tuner.finish(started, looked_up, missed, masks);
        let cycles = if missed > 0 { self.misses(port, at, &mut tuner) } else { 0 };
        clock.lap(Stage::Miss);
        self.tuners[port.0 as usize & 0xffff] = Some(tuner);
        let stats = &self.out.stats;
        stats.exact_hits.add(exact_hits);
        stats.megaflow_hits.add(megaflow_hits);
        cycles
    }

    // 2. Exact tier, whose buckets are asked for. Returns the packets that it answered.
    #[inline(never)]
    fn exact_stage(
        &mut self,
        todo: &mut Todo,
        at: Moment,
        batch: &Batch,
        how: Keys<'_>,
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
        if todo.is_empty() { packets } else { packets + self.exact_rest(todo, at, batch, how, tuner) }
    }

    // 2b. Packets whose likely entry is another's, or that are to be judged in full.
    #[inline(never)]
    fn exact_rest(
        &mut self,
        todo: &mut Todo,
        at: Moment,
        batch: &Batch,
        how: Keys<'_>,
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
            if cache.exact(idx).version != at.version.0 && !cache.renew_exact(idx, &mut sights) {
                let e = cache.exact(idx);
                let (since, body, was) = (Version(e.version), e.body, e.kind);
                if let (Keys::Of(ingress), PLAIN) = (how, present[i]) {
                    Scratch::extract_plain(keys, i, &batch[i], ingress);
                }
                if was == kind::STALE
                    || pipeline.touched(cache.view(body, &keys[i]), since, at.version, reader)
                {
                    if was != kind::STALE {
                        let e = cache.exact(idx);
                        (e.kind, e.sort) = (kind::STALE, NO_SORT);
                        stats.touched.add(1);
                        stale_exact.push(idx);
                    }
                    return true;
                }
                cache.judged_exact(idx, &keys[i], at.version, pipeline, reader);
            }
            let e = cache.exact(idx);
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
    fn megaflow_stage(&mut self, port: PortNo, todo: &mut Todo, at: Moment) -> (usize, u64) {
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
                if cache.mega(idx).version != at.version.0 && !cache.renew_mega(idx, &mut sights) {
                    let e = cache.mega(idx);
                    let (since, body, was) = (Version(e.version), e.body, e.kind);
                    if was == kind::STALE
                        || pipeline.touched(cache.view(body, &keys[i]), since, at.version, reader)
                    {
                        if was != kind::STALE {
                            let e = cache.mega(idx);
                            (e.kind, e.sort) = (kind::STALE, NO_SORT);
                            stats.touched.add(1);
                            stale_mega.push(idx);
                        }
                        return true;
                    }
                    cache.judged_mega(idx, &keys[i], at.version, pipeline, reader);
                }
                let e = cache.mega(idx);
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

    // 4, for a burst with lent tails. Hits that only go to ports, changed or not, leave first if one of those copies from where the
    // tail is; what becomes anything else is whole before the sender has its buffers back. Only then does anybody see
    // a packet of the burst.
    #[inline(never)]
    fn lent_leave(&mut self, batch: &mut Batch, lent: &mut Lent<'_>) {
        if !self.goes_straight(batch) {
            lent.fetch_all(batch, &mut self.out.cache);
            if !batch.iter().any(Packet::is_lent) {
                self.loan.leave(&mut self.out, lent);
                return self.hits_leave(batch);
            }
        }
        // Bound: each packet leaves the batch once.
        let mut stay: ArrayVec<(usize, Packet), BURST> = ArrayVec::new();
        let mut runs = Runs::new(batch);
        let mut first = 0;
        while runs.left() > 0 {
            let v = self.scratch.verdicts[first];
            let count = self.scratch.counts[first] as usize;
            let Process { cache, out, loan, .. } = self;
            if v.kind == kind::OUTPUT
                && let Some(straight) = loan.bind(v.port, out)
            {
                runs.move_to(count, straight);
            } else if v.kind == kind::LIST && loan.may_take(cache.actions(v.body), count, out) {
                let carried = self.scratch.carried[first];
                for packet in (0..count).map_while(|_| runs.take()) {
                    execute(cache.actions(v.body), packet, carried, &mut Lending { out, lent, loan });
                }
            } else {
                for mut packet in (0..count).map_while(|_| runs.take()) {
                    if lent.fetch(&mut packet, &mut out.cache) {
                        stay.push((first, packet));
                    } else {
                        out.drop(packet, DropReason::PoolExhausted);
                    }
                }
            }
            first += count;
        }
        self.loan.leave(&mut self.out, lent);
        for (first, packet) in stay {
            self.leave(first, packet);
        }
    }

    /// Whether any packet of the burst with a lent tail goes where it is copied straight.
    fn goes_straight(&mut self, batch: &Batch) -> bool {
        let Process { cache, out, loan, scratch, .. } = self;
        let mut first = 0;
        while first < batch.len() {
            let count = scratch.counts[first] as usize;
            let v = scratch.verdicts[first];
            let is_straight = match v.kind {
                kind::OUTPUT => loan.bind(v.port, out).is_some(),
                kind::LIST => loan.may_take(cache.actions(v.body), count, out),
                _ => false,
            };
            if is_straight && batch[first..first + count].iter().any(Packet::is_lent) {
                return true;
            }
            first += count;
        }
        false
    }

    // 4. Hits leave, in the order in which they came, runs with the same destination together; misses wait in
    // `scratch.missed`.
    #[inline(never)]
    fn hits_leave(&mut self, batch: &mut Batch) {
        let len = batch.len();
        let mut runs = Runs::new(batch);
        let mut i = 0;
        while i < len {
            let v = self.scratch.verdicts[i];
            let count = self.scratch.counts[i] as usize;
            let first = i;
            i += count;
            if v.kind == kind::OUTPUT {
                while i < len && self.scratch.verdicts[i].is_output_to(v.port) {
                    i += self.scratch.counts[i] as usize;
                }
                self.out.send_run(v.port, &mut runs, i - first);
                continue;
            }
            for _ in 0..count {
                let Some(packet) = runs.take() else { break };
                self.leave(first, packet);
            }
        }
    }

    /// A packet of the run that begins with packet `first` goes where its verdict says.
    #[inline(always)]
    fn leave(&mut self, first: usize, packet: Packet) {
        let v = self.scratch.verdicts[first];
        match v.kind {
            kind::OUTPUT => self.out.send(v.port, packet),
            kind::DROP => self.out.drop(packet, DropReason::ALL[v.port as usize]),
            kind::LIST => {
                let carried = self.scratch.carried[first];
                execute(self.cache.actions(v.body), packet, carried, &mut self.out);
            }
            TRUNCATED => self.out.drop(packet, DropReason::RxTruncated),
            _ => self.scratch.missed.push((first as u8, packet)),
        }
    }

    // 5. Promotion, and the end of what is out of date.
    fn promote(&mut self, use_exact: bool, at: Moment) {
        let Scratch { keys, exact, present, promote, stale_exact, stale_mega, .. } = &mut self.scratch;
        for idx in stale_exact.drain(..) {
            self.cache.remove_exact(idx, &self.slots);
        }
        if use_exact {
            for (i, idx) in promote.drain(..) {
                let e = self.cache.mega(idx);
                if e.kind == kind::FREE || e.kind == kind::STALE {
                    continue;
                }
                let from = FlowRef {
                    body: e.body,
                    kind: e.kind,
                    port: e.port,
                    mask: e.mask,
                    sort: e.sort,
                    set: e.set,
                    marks: e.marks,
                    at,
                };
                let i = usize::from(i);
                let key = ExactKey { words: &exact[i], present: present[i], key: &keys[i] };
                let hash = self.cache.exact_probe(&key);
                // The same flow may stand in the burst twice.
                if self.cache.exact_find(hash, &key) == 0 {
                    self.cache.insert_exact(&key, hash, &from, &self.slots);
                }
            }
        }
        promote.clear();
        for idx in stale_mega.drain(..) {
            self.cache.remove_mega(idx, &self.slots);
        }
    }

    // 6. Misses. Returns the cycles that they took.
    #[inline(never)]
    fn misses(&mut self, port: PortNo, at: Moment, tuner: &mut Tuner) -> u64 {
        let start = tsc();
        let mut missed = std::mem::take(&mut self.scratch.missed);
        for (i, packet) in missed.drain(..) {
            let i = usize::from(i);
            let idx = self.cache.mega_search(port, &self.scratch.keys[i], at.version);
            if idx != 0 {
                let e = self.cache.mega(idx);
                e.hit(1, packet.len() as u64, at.now);
                let verdict = Verdict { kind: e.kind, port: e.port, body: e.body };
                self.out.stats.megaflow_hits.add(1);
                self.late_hit(verdict, i, packet);
                continue;
            }
            self.scratch.exact_key_of(i, &packet);
            let idx = self.cache.alone_search(&self.scratch.exact_key(i), at.version);
            if idx != 0 {
                let e = self.cache.exact(idx);
                e.hit(1, packet.len() as u64, at.now);
                let verdict = Verdict { kind: e.kind, port: e.port, body: e.body };
                tuner.alone_hit();
                self.out.stats.exact_hits.add(1);
                self.late_hit(verdict, i, packet);
                continue;
            }
            self.miss(i, packet, at, tuner);
        }
        tsc() - start
    }

    /// A packet of a flow that a packet before it in the burst has installed.
    fn late_hit(&mut self, v: Verdict, i: usize, packet: Packet) {
        match v.kind {
            kind::OUTPUT => self.out.send(v.port, packet),
            kind::DROP => self.out.drop(packet, DropReason::ALL[v.port as usize]),
            _ => execute(self.cache.actions(v.body), packet, self.scratch.carried[i], &mut self.out),
        }
    }

    fn miss(&mut self, i: usize, packet: Packet, at: Moment, tuner: &mut Tuner) {
        self.out.stats.misses.add(1);
        let t = &mut self.translation;
        t.clear();
        self.pipeline.translate(at.version, &self.scratch.keys[i], &self.reader, t);
        let mut cacheable = !t.uncacheable;
        if !deep_enough(&self.scratch.keys[i], &t.mask) {
            // The pipeline said a depth that its rules exceed: right the packet, and do not remember it.
            self.out.stats.depth_misses.add(1);
            let port = packet.in_port;
            let of_port = OfPort(self.pipeline.of_port(port));
            let ingress = Ingress::new(of_port, port, Depth::Everything);
            let key = &mut self.scratch.keys[i];
            if extract_keeping_metadata(packet.data(), packet.len(), &ingress, key).is_none() {
                return self.out.drop(packet, DropReason::RxTruncated);
            }
            t.clear();
            self.pipeline.translate(at.version, &self.scratch.keys[i], &self.reader, t);
            cacheable = false;
        }
        let has_effects = !t.effects.is_empty();
        for effect in t.effects.drain(..) {
            if self.effects.push(effect).is_err() {
                self.out.stats.effects_refused.add(1);
                cacheable = false;
            }
        }
        if has_effects {
            self.event_bell.ring();
        }
        let installed =
            if cacheable { self.cache.install(&self.scratch.exact_key(i), t, at, &self.slots) } else { None };
        let bytes = packet.len() as u64;
        let entry = match installed {
            Some(Installed::Megaflow(idx)) => Some(self.cache.mega(idx)),
            Some(Installed::Exact(idx)) => {
                tuner.alone_hit();
                Some(self.cache.exact(idx))
            }
            None => None,
        };
        match entry {
            Some(e) => (e.packets, e.bytes) = (e.packets + 1, e.bytes + bytes),
            None => {
                self.out.stats.not_cached.add(1);
                for &slot in &self.translation.credits {
                    self.slots.credit(slot, 1, bytes, self.now_ms);
                }
            }
        }
        execute(&self.translation.actions, packet, self.scratch.carried[i], &mut self.out);
    }

    /// Executes actions that the control thread gives (packet-out) on its packet.
    pub fn execute_now(&mut self, packet: Packet, actions: &[crate::DpAction]) {
        self.out.stats.rx.add(1);
        execute(actions, packet, Carried::default(), &mut self.out);
        let version = self.pipeline.version();
        self.recirculated(version);
    }
}

/// Whether a plain key has these words. Addresses and ports first: they differ where anything does.
#[inline(always)]
fn same_words(key: &[u64; 8], w: &PlainWords) -> bool {
    (key[4] ^ w[3]) | (key[5] ^ w[4]) == 0
        && (key[1] ^ w[0]) | (key[2] ^ w[1]) | (key[3] ^ w[2]) | (key[6] ^ w[5]) == 0
}

const TRUNCATED_VERDICT: Verdict = Verdict { kind: TRUNCATED, port: 0, body: 0 };

/// Bits 16 to 23 of the last word of block 0 belong to no field: the exact tier's keys carry the depth there, so that
/// keys of different depths never compare equal. No mask holds them.
#[inline(always)]
fn mark_depth(key: &mut Key, depth: Depth) {
    key.block_mut(0).0[7] |= (depth as u64) << 16;
}

/// Whether extraction went as deep as the mask asks. The fields of each depth that extraction skips are known by their bits.
fn deep_enough(key: &Key, mask: &flow::Mask) -> bool {
    let depth = (key.common().0[7] >> 16 & 0xff) as u8;
    if depth == Depth::Everything as u8 {
        return true;
    }
    crate::depths::beyond(depth).intersect_is_empty(mask)
}

/// Times the stages of one burst in [`SAMPLE_EVERY`].
struct StageClock {
    last: u64,
    cycles: [u64; Stage::COUNT],
    packets: usize,
    on: bool,
}

impl StageClock {
    fn start(next: &mut u32, packets: usize) -> StageClock {
        *next = next.wrapping_add(1);
        if !next.is_multiple_of(SAMPLE_EVERY) {
            return StageClock::off();
        }
        StageClock { last: tsc(), cycles: [0; Stage::COUNT], packets, on: true }
    }

    fn off() -> StageClock {
        StageClock { last: 0, cycles: [0; Stage::COUNT], packets: 0, on: false }
    }

    #[inline(always)]
    fn lap(&mut self, stage: Stage) {
        if self.on {
            let now = tsc();
            self.cycles[stage as usize] += now - self.last;
            self.last = now;
        }
    }

    fn finish(&self, stats: &crate::stats::WorkerStats) {
        if self.on {
            for (counter, cycles) in stats.stage_cycles.iter().zip(self.cycles) {
                counter.add(cycles);
            }
            stats.stage_packets.add(self.packets as u64);
        }
    }
}

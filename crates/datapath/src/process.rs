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
//! Stages 1 to 3 are in `classify`, stage 4 in `deliver`, stages 5 and 6 in `miss`.
//!
//! Until stage 5 no entry is added or removed, so that the entry numbers gathered in stages 2 and 3 hold.

mod classify;
mod deliver;
mod miss;

use self::classify::{Todo, mark_depth};
use crate::cache::entry::kind;
use crate::cache::sorts::Sights;
use crate::cache::{
    ExactKey, FlowCache, FlowRef, Installed, Judged, MASK_EXACT, Moment, PLAIN, PORT_MASKS_MAX, Which,
};
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
use wire::Layers;

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
    /// Where the headers of packets are whose keys were extracted at once; not of plain packets.
    layers: [Layers; BURST],
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
                layers: [Layers::UNKNOWN; BURST],
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
        self.scratch.layers[i] = found.unwrap_or_default();
        mark_depth(key, Depth::Everything);
        self.scratch.lens[i] = item.packet.len() as u32;
        self.scratch.verdicts[i] = if found.is_some() { MISS } else { TRUNCATED_VERDICT };
        self.scratch.counts[i] = 1;
        self.scratch.exact[i] = self.scratch.keys[i].common().0;
        self.scratch.present[i] = self.scratch.keys[i].present();
        self.scratch.carries = true;
        self.scratch.carried[i] = Carried { pkt_mark: item.pkt_mark, recirc_depth: item.depth, layers: Layers::UNKNOWN };
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
        let mut todo = Todo::new();
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

    /// Executes actions that the control thread gives (packet-out) on its packet.
    pub fn execute_now(&mut self, packet: Packet, actions: &[crate::DpAction]) {
        self.out.stats.rx.add(1);
        execute(actions, packet, Carried::default(), &mut self.out);
        let version = self.pipeline.version();
        self.recirculated(version);
    }
}

const TRUNCATED_VERDICT: Verdict = Verdict { kind: TRUNCATED, port: 0, body: 0 };

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

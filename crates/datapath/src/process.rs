//! One burst of packets from one input port, from bytes to outputs.
//!
//! The stages, numbered as in [`Process::burst`]; each runs over the whole burst before the next begins, and asks
//! for the memory that the next one needs:
//!
//! 1. *Extract*: keys from packets, to the depth that the input port's rules ask for.
//! 2. *Exact tier*: hash, bucket, entry. Skipped while the port's tuner finds it too dear.
//! 3. *Megaflow tier*, for what is left: mask after mask, the port's most hit first.
//! 4. *Hits leave*: counters, and the action that the entry says. A flow older than the version that this
//!    burst sees is first checked for changes, and treated as a miss where one touches it.
//! 5. *Promotion*: megaflow hits get exact entries; outdated entries go.
//! 6. *Misses*: looked up once more (a packet before it in the burst may have been of the same flow), else translated, installed,
//!    executed.
//!
//! Stages 1 to 3 are in `classify`, stage 4 in `deliver`, stages 5 and 6 in `miss`.
//!
//! Packets that go round again come back as such bursts, after the one that they are of.
//!
//! Until stage 5 no entry is added or removed, so that the entry numbers gathered in stages 2 and 3 hold.

mod classify;
mod deliver;
mod miss;

use self::classify::Todo;
use crate::cache::entry::{Decision, EntryKey, ShortVersion, Verdict};
use crate::cache::sorts::Sights;
use crate::cache::{ExactKey, FlowCache, FlowRef, Installed, Judged, Moment, PORT_MASKS_MAX, Which};
use crate::context::Context;
use crate::execute::{Leaving, Run, execute};
use crate::input::Input;
use crate::loan::{Lending, Loan};
use crate::pipeline::{Pipeline, Translation};
use crate::recirculation::Metadata;
use crate::stamp::Stamp;
use crate::stats::{Stage, WorkerStats};
use crate::transmission::Transmission;
use crate::tuner::{ExactTier, Tuner};
use arrayvec::ArrayVec;
use base::clock::tsc;
use base::region::prefetch;
use base::slots::SlotTable;
use base::{DropReason, OfPort, PortNo, Version, rcu};
use flow::extract::{Ingress, extract, extract_keeping_metadata, plain_key};
use flow::{Depth, Key};
use packet::batch::Runs;
use packet::wait::Bell;
use packet::{BURST, Batch, Lent, Packet};
use std::sync::Arc;
use wire::Layers;

/// How many packets ahead headers are asked for.
const AHEAD: usize = 4;

/// What is the same for all packets of a batch.
#[derive(Clone, Copy)]
struct Arrival {
    /// Where they came in.
    port: PortNo,
    metadata: Metadata,
    /// How deep they are read.
    depth: Depth,
}

/// What is known of one packet of the burst, in a cache line. Consecutive packets that are alike are a run:
/// only the first's line is used.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Row {
    /// What the exact tier compares, of a plain packet.
    exact: EntryKey,
    hash: u64,
    /// What becomes of it. [`Verdict::Unknown`] until a lookup finds it.
    decision: Decision,
    /// The entry that it most likely is.
    likely: u32,
    /// Bytes of the run.
    len: u32,
    /// Packets of the run.
    count: u32,
}

const _: () = assert!(size_of::<Row>() == 64);

impl Row {
    const EMPTY: Row =
        Row { exact: EntryKey::NONE, hash: 0, decision: Decision::UNKNOWN, likely: 0, len: 0, count: 1 };
}

/// The burst's working memory, kept from burst to burst.
struct Scratch {
    keys: Box<[Key; BURST]>,
    rows: Box<[Row; BURST]>,
    masked: Box<[[u64; 8]; BURST]>,
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
    /// What plain packets' keys say of where the burst came from, and how deep it is read.
    origin: u64,
    depth: Depth,
}

/// Everything that a burst touches.
pub struct Process<P: Pipeline> {
    pipeline: Arc<P>,
    reader: rcu::Reader,
    pub cache: FlowCache,
    pub slots: Arc<SlotTable>,
    pub out: Context,
    pub tx: Transmission,
    effects: rtrb::Producer<P::Effect>,
    event_bell: Arc<Bell>,
    translation: Translation<P::Effect>,
    scratch: Scratch,
    loan: Box<Loan>,
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
        out: Context,
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
            tx: Transmission::new(),
            effects,
            event_bell,
            translation: Translation::default(),
            scratch: Scratch {
                keys,
                rows: Box::new([Row::EMPTY; BURST]),
                masked: Box::new([[0; 8]; BURST]),
                promote: ArrayVec::new(),
                stale_exact: ArrayVec::new(),
                stale_mega: ArrayVec::new(),
                missed: ArrayVec::new(),
                layers: [Layers::UNKNOWN; BURST],
                origin: 0,
                depth: Depth::Everything,
            },
            loan: Box::new(Loan::new()),
            exact_tier: ExactTier::Auto,
            now_ms: 0,
            sample_next: 0,
        }
    }

    /// The pipeline's reader: the worker is quiescent between bursts.
    pub fn reader_mut(&mut self) -> &mut rcu::Reader {
        &mut self.reader
    }

    /// Processes a burst that came in at a port; leaves the batch empty, and nothing lent. Returns the cycles
    /// that translation took. Once in the program, though called from two places: it is large.
    #[inline(never)]
    pub fn burst(&mut self, input: &mut Box<Input>, batch: &mut Batch, lent: Option<&mut Lent<'_>>) -> u64 {
        std::mem::swap(&mut self.out.input, input);
        let port = self.out.input.port;
        // The version comes before the depth: what that version needs to see is extracted.
        let version = self.pipeline.version();
        let depth = self.pipeline.depth(port);
        let mut clock = StageClock::start(&mut self.sample_next, batch.len());
        self.out.stats.rx.add(batch.len() as u64);
        let fresh = Arrival { port, metadata: Metadata::default(), depth };
        let cycles = self.round(fresh, version, batch, lent, &mut clock);
        clock.finish(&self.out.stats);
        let cycles = cycles + self.rounds(version);
        std::mem::swap(&mut self.out.input, input);
        cycles
    }

    /// Packets that go round again, until none is left.
    fn rounds(&mut self, version: Version) -> u64 {
        let mut cycles = 0;
        while let Some(mut round) = self.out.recirculation.next() {
            let clock = &mut StageClock::off();
            let again = Arrival { port: round.port, metadata: round.metadata, depth: Depth::Everything };
            cycles += self.round(again, version, &mut round.batch, None, clock);
            self.out.recirculation.done(round);
        }
        cycles
    }

    /// One round of a batch.
    fn round(
        &mut self,
        arrival: Arrival,
        version: Version,
        batch: &mut Batch,
        lent: Option<&mut Lent<'_>>,
        clock: &mut StageClock,
    ) -> u64 {
        let Arrival { port, metadata, depth } = arrival;
        for packet in batch.iter().take(AHEAD) {
            prefetch(packet.data());
        }
        let ingress = Ingress::new(OfPort(self.pipeline.of_port(port)), port, depth)
            .with_metadata(metadata.recirc_id, metadata.pkt_mark);
        let at = Moment { version, now: Stamp::of(self.now_ms) };
        let tuner = &mut self.out.input.tuner;
        let started = tuner.start();
        let mut todo = Todo::new();
        let looked_up = batch.len();
        let use_exact = tuner.use_exact(self.now_ms);
        // 1. Extract.
        self.cache.set_version(version);
        self.scratch.origin = self.cache.plain_origin(&ingress, &self.slots);
        self.scratch.depth = depth;
        if use_exact {
            match depth {
                Depth::Metadata => self.scratch.prepare_exact::<0>(&self.cache, batch, &ingress, &mut todo),
                Depth::Ethernet => self.scratch.prepare_exact::<1>(&self.cache, batch, &ingress, &mut todo),
                Depth::Network => self.scratch.prepare_exact::<2>(&self.cache, batch, &ingress, &mut todo),
                Depth::Transport => self.scratch.prepare_exact::<3>(&self.cache, batch, &ingress, &mut todo),
                Depth::Everything => self.scratch.prepare_exact::<4>(&self.cache, batch, &ingress, &mut todo),
            }
        } else {
            self.scratch.prepare_keys(batch, &ingress, &mut todo);
        }
        clock.lap(Stage::Extract);
        let exact_hits = if use_exact { self.exact_stage(&mut todo, at, batch, &ingress) } else { 0 };
        for i in todo.iter().filter(|&i| self.scratch.rows[i].exact.is_plain()) {
            Scratch::extract_plain(&mut self.scratch.keys[i], &batch[i], &ingress);
        }
        clock.lap(Stage::Exact);
        let (masks, megaflow_hits) = self.megaflow_stage(port, &mut todo, at);
        clock.lap(Stage::Megaflow);
        match lent {
            None => self.hits_leave(batch, metadata),
            Some(lent) => self.lent_leave(batch, metadata, lent),
        }
        clock.lap(Stage::Execute);
        self.promote(use_exact, at);
        let missed = self.scratch.missed.len();
        self.out.input.tuner.finish(started, looked_up, missed, masks);
        let cycles = if missed > 0 { self.misses(metadata, at) } else { 0 };
        clock.lap(Stage::Miss);
        let stats = &self.out.stats;
        stats.exact_hits.add(exact_hits);
        stats.megaflow_hits.add(megaflow_hits);
        cycles
    }

    /// Executes actions that the control thread gives (packet-out) on its packet.
    pub fn execute_now(&mut self, packet: Packet, actions: &[crate::DpAction]) {
        self.out.stats.rx.add(1);
        let counters = self.out.counters_of(packet.in_port).cloned();
        *self.out.input = Input { port: packet.in_port, counters, tuner: Tuner::new(self.exact_tier) };
        let mut run = Run::new(Metadata::default());
        run.push(packet, Layers::UNKNOWN);
        execute(actions, &mut run, &mut Leaving { context: &mut self.out, tx: &mut self.tx });
        self.rounds(self.pipeline.version());
        (self.out.input.port, self.out.input.counters) = (PortNo::NONE, None);
    }
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

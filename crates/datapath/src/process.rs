//! One burst of packets from one input port, from bytes to outputs.
//!
//! The stages, numbered as in [`Process::burst`]. Each runs over the whole burst before the next begins, and
//! prefetches the memory that the next one needs:
//!
//! 1. *Extract*: keys from packets, to the depth that the input port's rules ask for.
//! 2. *Exact tier*: hash, bucket, entry. Skipped where it is switched off.
//! 3. *Megaflow tier*, for the remaining packets: the megaflow that packets like these hit lately; then one
//!    mask after the other, the one with the most hits first.
//! 4. *Hits leave*: counters, and the action in the entry. A flow older than the version that this burst sees
//!    is first checked against changes, and treated as a miss if one affects it.
//! 5. *Promotion*: megaflow hits get exact entries; out-of-date entries are removed.
//! 6. *Misses*: looked up once more (an earlier packet in the burst may have been of the same flow), or else
//!    translated, installed, executed.
//!
//! Stages 1 to 3 are in `burst` (`classify`, which calls `extract`, `exact` and `megaflow`), stage 4 in
//! `deliver` and `tracked`, stages 5 and 6 in `miss`; the states between them, and what holds in each, are in
//! `burst`.
//!
//! Recirculated packets come back as further bursts, directly after the burst that they came from.

mod burst;
mod deliver;
mod miss;
mod tracked;

use self::burst::{Arrival, Classified, Delivered, Memory, Miss, Missed, Received, put_metadata};
use crate::cache::counts::Counts;
use crate::cache::entry::{Decision, Entry, EntryKey, ShortVersion, Verdict, verdict_of};
use crate::cache::origins::Origin;
use crate::cache::sorts::Sights;
use crate::cache::{ExactKey, FlowCache, FlowRef, Installed, Judged, Moment, Probed, Which};
use crate::conntrack::{Tracking, state, tuple::Tuple};
use crate::context::Context;
use crate::execute::{Leaving, execute};
use crate::input::Input;
use crate::loan::{Lending, Loan};
use crate::pipeline::{Pipeline, Translation};
use crate::recirculation::{DEPTH_MAX, Metadata};
use crate::run::Run;
use crate::stamp::Stamp;
use crate::stats::{Stage, WorkerStats};
use crate::transmission::Transmission;
use arrayvec::ArrayVec;
use base::clock::tsc;
use base::region::prefetch;
use base::{DropReason, OfPort, PortNo, Version, rcu};
use flow::extract::{Ingress, extract, extract_keeping_metadata, extract_without_link};
use flow::extract::{PlainKey, may_open_tcp, opens_tcp, plain_key};
use flow::{Depth, Key};
use packet::batch::Runs;
use packet::wait::Bell;
use packet::{BURST, Batch, Lent, Packet};
use std::sync::Arc;
use wire::Layers;

/// How many packets ahead headers are prefetched.
const AHEAD: usize = 4;

/// Everything that a burst touches.
pub struct Process<P: Pipeline> {
    pipeline: Arc<P>,
    reader: rcu::Reader,
    pub cache: FlowCache,
    pub context: Context,
    pub tx: Transmission,
    effects: rtrb::Producer<P::Effect>,
    pub event_bell: Arc<Bell>,
    translation: Translation<P::Effect>,
    /// The key of a packet that creates a megaflow.
    whole: Box<Key>,
    /// Taken out while a round is in progress.
    memory: Option<Box<Memory>>,
    loan: Box<Loan>,
    /// Megaflows of the next round that were found out of date in this one. Bound: each packet finds at most
    /// one in each round that it passes without waiting.
    stale_ahead: ArrayVec<u32, { BURST * DEPTH_MAX as usize }>,
    pub now_ms: u64,
    /// Steps that the present burst's translations may still take.
    steps_left: u32,
    sample_next: u32,
}

/// Steps that all translations of a burst may take, and the last of them beyond that: a few milliseconds, in
/// which other ports wait.
const STEPS_PER_BURST: u32 = 1 << 17;

/// One in this many bursts is timed stage by stage.
const SAMPLE_EVERY: u32 = 256;

impl<P: Pipeline> Process<P> {
    pub fn new(
        pipeline: Arc<P>,
        reader: rcu::Reader,
        cache: FlowCache,
        context: Context,
        effects: rtrb::Producer<P::Effect>,
        event_bell: Arc<Bell>,
    ) -> Self {
        Process {
            pipeline,
            reader,
            cache,
            context,
            tx: Transmission::new(),
            effects,
            event_bell,
            translation: Translation::default(),
            whole: Box::default(),
            memory: Some(Memory::new()),
            loan: Box::new(Loan::new()),
            stale_ahead: ArrayVec::new(),
            now_ms: 0,
            steps_left: 0,
            sample_next: 0,
        }
    }

    /// The pipeline's reader: the worker is quiescent between bursts.
    pub fn reader_mut(&mut self) -> &mut rcu::Reader {
        &mut self.reader
    }

    /// Notes the present version, by which flows are found too old. Each burst does; a worker without packets
    /// does before it sweeps.
    pub fn note_version(&mut self) {
        self.cache.set_version(self.pipeline.version());
    }

    /// Processes a burst that came in at a port. Leaves the batch empty and nothing lent. Returns the cycles
    /// spent on translation. Never inlined: it is large and called from two places.
    #[inline(never)]
    pub fn burst(&mut self, input: &mut Box<Input>, batch: &mut Batch, lent: Option<&mut Lent<'_>>) -> u64 {
        std::mem::swap(&mut self.context.input, input);
        // The version is read before the depth, so that everything the version needs is extracted.
        let version = self.pipeline.version();
        let (of_port, depth) = self.pipeline.ingress(&self.context.input.view);
        self.context.stats.rx.add(batch.len() as u64);
        self.context.input.promotion.begin_burst();
        self.context.share.note(self.context.input.port);
        self.context.recirculation.begin_burst(batch.len());
        self.steps_left = STEPS_PER_BURST;
        let mut clock = StageClock::start(&mut self.sample_next, batch.len());
        let cycles = self.round((of_port, depth), Metadata::default(), version, batch, lent, &mut clock);
        clock.finish(&self.context.stats);
        let cycles = cycles + self.rounds(of_port, version);
        std::mem::swap(&mut self.context.input, input);
        cycles
    }

    /// Processes recirculated packets until none is left.
    fn rounds(&mut self, of_port: OfPort, version: Version) -> u64 {
        let mut cycles = 0;
        while let Some(mut round) = self.context.recirculation.next() {
            if self.context.recirculation.is_spent() {
                self.context.drop_all(round.batch.drain(..), DropReason::RecircQueueFull);
                self.context.recirculation.done(round);
                continue;
            }
            let (metadata, clock) = (round.metadata, &mut StageClock::off());
            if metadata.tracking.state != 0
                && let Some(memory) = &mut self.memory
            {
                memory.originals.clone_from(&round.originals);
            }
            let read = (of_port, Depth::Everything);
            cycles += self.round(read, metadata, version, &mut round.batch, None, clock);
            self.context.recirculation.done(round);
        }
        cycles
    }

    /// One round of a batch whose port has this number in its bridge and is read to this depth.
    fn round(
        &mut self,
        (of_port, depth): (OfPort, Depth),
        metadata: Metadata,
        version: Version,
        batch: &mut Batch,
        lent: Option<&mut Lent<'_>>,
        clock: &mut StageClock,
    ) -> u64 {
        for packet in batch.iter().take(AHEAD) {
            prefetch(packet.data());
        }
        let input = &self.context.input;
        let (port, idx) = (input.port, input.idx);
        debug_assert!(batch.iter().all(|packet| packet.in_port == port));
        let tracks_openings = metadata.tracking.state & state::NEW != 0 || input.tracks_openings(self.now_ms);
        let use_exact = input.use_exact(self.now_ms) && !(tracks_openings && opens_connections(batch));
        self.cache.set_version(version);
        // Packets that do not begin with an Ethernet header are not plain.
        let is_ethernet = metadata.packet_type == 0;
        let origin = match is_ethernet {
            true => self.cache.plain_origin(idx, Origin::new(of_port, metadata), depth),
            false => None,
        };
        if origin.is_none() && is_ethernet {
            self.context.stats.origins_full.add(batch.len() as u64);
        }
        let ingress = Ingress::new(of_port, port, depth)
            .with_metadata(metadata.recirc_id, metadata.pkt_mark)
            .with_packet_type(metadata.packet_type)
            .with_vlan_limit(self.pipeline.vlan_limit());
        let at = Moment { version, now: Stamp::of(self.now_ms) };
        let mut memory = self.memory.take().expect("one round at a time");
        (memory.tracking, memory.dp_hash) = (metadata.tracking, metadata.dp_hash);
        memory.has_more = metadata.tracking.state != 0 || metadata.dp_hash != 0;
        let received =
            Received::new(memory, Arrival { input: idx, of_port, metadata, ingress, origin, use_exact, at });
        // 1 to 3.
        let classified = self.classify(received, batch, clock);
        // 4.
        let delivered = self.deliver(classified, batch, lent);
        clock.lap(Stage::Execute);
        // 5.
        let mut left = self.learn(delivered);
        // 6.
        let cycles = if left.is_empty() { 0 } else { self.misses(&mut left) };
        clock.lap(Stage::Miss);
        self.memory = Some(left.done());
        cycles
    }

    /// Executes actions from the control thread (packet-out) on its packet, which may have been
    /// recirculated before.
    pub fn execute_now(
        &mut self,
        input: &mut Box<Input>,
        (packet, recirc_depth): (Packet, u8),
        tracked: Option<(Tracking, Tuple)>,
        actions: &[crate::DpAction],
    ) {
        self.context.stats.rx.add(1);
        self.context.recirculation.begin_burst(1);
        self.steps_left = STEPS_PER_BURST;
        std::mem::swap(&mut self.context.input, input);
        let mut run = Run::new(Metadata { recirc_depth, ..Metadata::default() });
        run.push(packet, Layers::UNKNOWN);
        if let Some((tracking, original)) = tracked {
            run.metadata.tracking = tracking;
            run.originals.push(original);
        }
        execute(actions, &mut run, &mut Leaving { context: &mut self.context, tx: &mut self.tx });
        let version = self.pipeline.version();
        let (of_port, _) = self.pipeline.ingress(&self.context.input.view);
        self.rounds(of_port, version);
        std::mem::swap(&mut self.context.input, input);
    }
}

/// Whether all packets are TCP opening segments, or look like it. If these are tracked, the exact tier
/// contains none of them (see [`Process::learn`]).
#[inline(always)]
fn opens_connections(batch: &Batch) -> bool {
    batch.iter().all(|packet| may_open_tcp(packet.data()))
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

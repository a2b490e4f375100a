//! The states of a burst, and their shared memory.
//!
//! A burst is [`Received`], [`Classified`], [`Delivered`], [`Missed`], in this order: each stage takes one
//! state and yields the next, which offers what holds from then on. Packets are identified by their position
//! in the batch. What holds:
//!
//! - Consecutive packets that are alike form a run. A run has one row, that of its first packet, whose
//!   `counts` tells where the next run begins. The rows in between are stale, from earlier bursts, and so are
//!   rows after the end of the batch.
//! - If the exact tier is used, a row has its key for a plain packet (for a long one, what the entry has of
//!   it; the rest is in `longs`), and no key for any other. If it is not, only rows that a recent megaflow
//!   decided have one.
//! - A plain packet's key is extracted once neither the exact tier nor a recent megaflow has answered for its
//!   run; the key of any other packet is there from the start. Layers are known for packets whose row has no
//!   exact key.
//! - Rows and lists hold cache entry numbers from stage 2 on, so no entry is added or removed before stage 5:
//!   only [`Delivered`] gives those lists away.
//! - In a classified burst each run has a verdict, or [`Verdict::Unknown`] if it missed.

mod classify;
mod exact;
mod extract;
mod lookup;
mod megaflow;
mod todo;

use crate::cache::counts::Counts;
use crate::cache::entry::{Decision, EntryKey, Verdict};
use crate::cache::{ExactKey, Moment, PORT_MASKS_MAX};
use crate::conntrack::Tracking;
use crate::conntrack::tuple::Tuple;
use crate::ports::InputIdx;
use crate::recirculation::{Metadata, Originals};
use crate::run::Run;
use arrayvec::ArrayVec;
use base::{OfPort, PortNo};
use flow::extract::{Ingress, LongKey, long_key, plain_key};
use flow::{Depth, FieldId, Key};
use packet::batch::Runs;
use packet::{BURST, Packet};
use wire::Layers;

/// What all packets of a round have in common.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    /// The index of their input port in the caches.
    pub input: InputIdx,
    /// The port's number in its bridge.
    pub of_port: OfPort,
    pub metadata: Metadata,
    /// The port's numbers, and how deep packets are read.
    pub ingress: Ingress,
    /// The encoding of all that in the keys of plain packets; `None` if there is no number for it.
    pub origin: Option<u64>,
    /// Whether the exact tier is used.
    pub use_exact: bool,
    pub at: Moment,
}

/// What is known about one run, in a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Row {
    /// For a plain packet, what the exact tier compares.
    exact: EntryKey,
    hash: u64,
    /// Its verdict; [`Verdict::Unknown`] until a lookup finds one.
    decision: Decision,
    /// The run's packets and bytes.
    counts: Counts,
    /// The bucket of its hash; once that was looked at, the most likely entry; and in the end, the exact
    /// entry that decided it, if one did.
    likely: u32,
}

const _: () = assert!(size_of::<Row>() == 64);

impl Row {
    const EMPTY: Row =
        Row { exact: EntryKey::NONE, hash: 0, decision: Decision::UNKNOWN, likely: 0, counts: Counts::NONE };
}

/// See the module documentation. Reused from burst to burst.
pub(super) struct Memory {
    rows: [Row; BURST],
    keys: [Key; BURST],
    layers: [Layers; BURST],
    /// The packed keys of long plain packets.
    longs: [LongKey; BURST],
    /// Block 0 of each key under the current mask.
    masked: [[u64; 8]; BURST],
    /// (packet, megaflow) pairs that will get exact entries. Bound: a packet is not looked up after its first
    /// hit.
    promote: ArrayVec<(u8, u32), BURST>,
    /// Exact entries found out of date. Bound: each packet finds at most one.
    stale_exact: ArrayVec<u32, BURST>,
    /// Megaflows found out of date. Bound: each packet finds at most one under each mask of its input port,
    /// and an entry is pushed once, when it becomes stale. A packet that finds one continues with the next
    /// mask.
    stale_mega: ArrayVec<u32, { BURST * PORT_MASKS_MAX }>,
    /// Bound: each packet leaves the batch once.
    missed: ArrayVec<(u8, Packet), BURST>,
    /// The tracker's result that the batch's packets share, and, if they were tracked, each packet's original
    /// tuple.
    pub(super) tracking: Tracking,
    pub(super) originals: Originals,
    /// The port to which the whole batch goes, if the exact tier has found that.
    to_port: Option<u16>,
    /// The hash of the batch's packets.
    pub(super) dp_hash: u32,
    /// Keys contain more than their packets and [`Ingress`] provide: tracking results or a hash.
    pub(super) has_more: bool,
}

impl Memory {
    pub fn new() -> Box<Memory> {
        Box::new(Memory {
            rows: [Row::EMPTY; BURST],
            keys: std::array::from_fn(|_| Key::default()),
            layers: [Layers::UNKNOWN; BURST],
            longs: [[[0; 4]; 2]; BURST],
            masked: [[0; 8]; BURST],
            promote: ArrayVec::new(),
            stale_exact: ArrayVec::new(),
            stale_mega: ArrayVec::new(),
            missed: ArrayVec::new(),
            tracking: Tracking::default(),
            originals: Originals::new(),
            to_port: None,
            dp_hash: 0,
            has_more: false,
        })
    }

    /// Puts the metadata of packet `i` into its key.
    #[inline(always)]
    pub(super) fn put_metadata(&mut self, i: usize) {
        if self.has_more {
            put_metadata(self.tracking, self.originals.get(i), self.dp_hash, &mut self.keys[i]);
        }
    }

    /// Where the headers of a packet are. For a plain packet, of which perhaps only the header bytes were
    /// compared, the first change walks them.
    fn layers(&self, i: usize) -> Layers {
        if self.rows[i].exact.is_packed() { Layers::UNKNOWN } else { self.layers[i] }
    }

    /// The original tuple of packet `i` in a tracked batch.
    #[inline(always)]
    fn original(&self, i: usize) -> Option<&Tuple> {
        if self.tracking.state == 0 { None } else { self.originals.get(i) }
    }

    fn exact_key(&self, i: usize) -> ExactKey<'_> {
        exact_key(&self.rows[i].exact, &self.longs[i], &self.keys[i])
    }
}

/// The exact tier's key of a row that has this one, of a packet with these.
#[inline(always)]
fn exact_key<'k>(exact: &EntryKey, long: &LongKey, whole: &'k Key) -> ExactKey<'k> {
    match (exact.is_plain(), exact.is_long()) {
        (true, _) => ExactKey::Plain(exact.0),
        (_, true) => ExactKey::Long(*long),
        _ => ExactKey::Whole(whole),
    }
}

/// Puts a packet's metadata into its key.
#[inline(never)]
pub(super) fn put_metadata(tracking: Tracking, original: Option<&Tuple>, dp_hash: u32, key: &mut Key) {
    tracking.put(original, key);
    if dp_hash != 0 {
        key.set(FieldId::DpHash, dp_hash.into());
    }
}

/// Before stage 1: packets of which only the origin is known.
pub(super) struct Received {
    memory: Box<Memory>,
    arrival: Arrival,
}

impl Received {
    #[inline(always)]
    pub fn new(memory: Box<Memory>, arrival: Arrival) -> Received {
        Received { memory, arrival }
    }
}

/// Before stage 4: each run has its verdict. Packets are still in the batch.
pub(super) struct Classified {
    memory: Box<Memory>,
    arrival: Arrival,
}

impl Classified {
    #[inline(always)]
    pub fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// Whether the keys of plain packets are known and include addresses and ports.
    #[inline(always)]
    pub fn has_ports(&self) -> bool {
        self.arrival.ingress.depth() >= Depth::Transport && self.arrival.use_exact
    }

    /// For a run of plain packets, if their keys are known: the exact tier's key, and the entry that decided
    /// it there, 0 if none did.
    #[inline(always)]
    pub fn plain(&self, first: usize) -> Option<(&EntryKey, u32)> {
        let row = &self.memory.rows[first];
        row.exact.is_plain().then_some((&row.exact, row.likely))
    }

    /// The packed key of a run, if it was read and includes ports.
    #[inline(always)]
    pub fn packed(&self, first: usize) -> Option<&EntryKey> {
        let exact = &self.memory.rows[first].exact;
        (exact.is_plain() && self.arrival.ingress.depth() >= Depth::Transport).then_some(exact)
    }

    pub fn metadata(&self) -> Metadata {
        self.arrival.metadata
    }

    /// The port to which the whole batch goes, if that is known.
    #[inline(always)]
    pub fn to_port(&self) -> Option<PortNo> {
        self.memory.to_port.map(|port| PortNo(port.into()))
    }

    /// The verdict of the run that starts with packet `first`, and where the next run starts.
    #[inline(always)]
    pub fn verdict(&self, first: usize) -> (Decision, usize) {
        let Row { decision, counts, .. } = self.memory.rows[first];
        (decision, first + counts.packets() as usize)
    }

    /// The end of the consecutive runs, from `next` on, for which `is_like` returns true.
    #[inline(always)]
    pub fn alike(&self, mut next: usize, len: usize, is_like: impl Fn(Decision) -> bool) -> usize {
        let rows = &self.memory.rows[..len];
        while let Some(row) = rows.get(next)
            && is_like(row.decision)
        {
            next += row.counts.packets() as usize;
        }
        next
    }

    /// Where the headers of the run's packets are, if known.
    #[inline(always)]
    pub fn layers(&self, first: usize) -> Layers {
        self.memory.layers(first)
    }

    /// Takes the packets from run `first` up to `end`, which are next in the batch, into an empty run with
    /// the burst's metadata: one that was returned would be copied, packets and room for packets alike.
    pub fn take_run(&self, first: usize, end: usize, from: &mut Runs<'_>, run: &mut Run) {
        let count = (end - first).min(from.left());
        from.move_to(count, &mut run.packets);
        let mut next = first;
        while next < first + count {
            let (layers, (_, behind)) = (self.layers(next), self.verdict(next));
            (next..behind.min(first + count)).for_each(|_| run.layers.push(layers));
            next = behind;
        }
        if self.memory.tracking.state != 0 {
            let originals = &self.memory.originals;
            let these = originals.get(first..end.min(originals.len())).unwrap_or_default();
            // Bound: no more than packets; the run had none, and has room for a burst.
            let _ = run.originals.try_extend_from_slice(these);
        }
    }

    /// The original tuple of packet `i`, if it was tracked.
    #[inline(always)]
    pub fn original(&self, i: usize) -> Option<&Tuple> {
        self.memory.original(i)
    }

    /// A packet of the run waits for translation.
    #[inline(always)]
    pub fn missed(&mut self, first: usize, packet: Packet) {
        self.memory.missed.push((first as u8, packet));
    }

    /// The batch is empty.
    #[inline(always)]
    pub fn delivered(self) -> Delivered {
        Delivered { memory: self.memory, arrival: self.arrival }
    }
}

/// Before stage 5: hits have left. The caches have yet to learn what the lookups found out.
pub(super) struct Delivered {
    memory: Box<Memory>,
    pub arrival: Arrival,
}

impl Delivered {
    pub fn stale_exact(&mut self) -> impl Iterator<Item = u32> {
        self.memory.stale_exact.drain(..)
    }

    pub fn stale_megaflows(&mut self) -> impl Iterator<Item = u32> {
        self.memory.stale_mega.drain(..)
    }

    /// The next packet that hit a megaflow: its key for the exact tier, and the megaflow.
    pub fn promoted(&mut self) -> Option<(ExactKey<'_>, u32)> {
        let (i, idx) = self.memory.promote.pop()?;
        Some((self.memory.exact_key(usize::from(i)), idx))
    }

    /// The caches have learned everything.
    #[inline(always)]
    pub fn learned(mut self) -> Missed {
        self.memory.promote.clear();
        debug_assert!(self.memory.stale_exact.is_empty() && self.memory.stale_mega.is_empty());
        // They are popped from the end.
        self.memory.missed.reverse();
        Missed { memory: self.memory, arrival: self.arrival }
    }
}

/// Stage 6: what is left are packets of flows in no cache.
pub(super) struct Missed {
    memory: Box<Memory>,
    pub arrival: Arrival,
}

/// One packet of a run that missed.
pub(super) struct Miss<'m> {
    /// Its key, which is complete.
    pub key: &'m mut Key,
    /// For a plain packet, its key for the exact tier, unless that was not read.
    exact: EntryKey,
    long: &'m LongKey,
    /// For a packet whose key was not read: its origin, and how it would be read.
    unread: Option<(u64, Ingress)>,
    /// Where its headers are, if known.
    pub layers: Layers,
    /// Its original tuple, if it was tracked.
    pub original: Option<&'m Tuple>,
}

impl Miss<'_> {
    /// The packet's key for the exact tier.
    pub fn exact_key(&self, packet: &Packet) -> ExactKey<'_> {
        let known = || exact_key(&self.exact, self.long, self.key);
        let Some((origin, ingress)) = self.unread.filter(|_| !self.exact.is_packed()) else { return known() };
        let (head, len, depth) = (packet.data(), packet.len(), ingress.depth());
        let plain = || plain_key(head, len, depth, origin).map(ExactKey::Plain);
        let long = || long_key(head, len, &ingress, origin).map(ExactKey::Long);
        plain().or_else(long).unwrap_or_else(known)
    }
}

impl Missed {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.memory.missed.is_empty()
    }

    /// The keys of all packets.
    pub fn keys(&self) -> impl Iterator<Item = &Key> + Clone {
        self.memory.missed.iter().rev().map(|(i, _)| &self.memory.keys[usize::from(*i)])
    }

    /// The next packet, in order of arrival.
    pub fn next(&mut self) -> Option<(Packet, Miss<'_>)> {
        let (i, packet) = self.memory.missed.pop()?;
        let i = usize::from(i);
        let Memory { rows, keys, longs, layers, tracking, originals, .. } = &mut *self.memory;
        let original = if tracking.state == 0 { None } else { originals.get(i) };
        let Arrival { use_exact, origin, ingress, .. } = self.arrival;
        let exact = rows[i].exact;
        let layers = if exact.is_packed() { Layers::UNKNOWN } else { layers[i] };
        // Without the exact tier, its key was not read.
        let unread = origin.filter(|_| !use_exact).map(|origin| (origin, ingress));
        Some((packet, Miss { key: &mut keys[i], exact, long: &longs[i], unread, layers, original }))
    }

    /// None is left.
    #[inline(always)]
    pub fn done(self) -> Box<Memory> {
        debug_assert!(self.memory.missed.is_empty());
        self.memory
    }
}

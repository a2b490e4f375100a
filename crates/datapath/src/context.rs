//! What a worker keeps for all packets: where they come from and return to, where they are counted, and where
//! packets that are not sent end up.

use crate::action::{DpAction, PacketInSpec};
use crate::conntrack::Tracker;
use crate::conntrack::fragments::WHOLE_BYTES_MAX;
use crate::conntrack::share::Share;
use crate::conntrack::tuple::Tuple;
use crate::input::Input;
use crate::ports::PortTable;
use crate::recirculation::{Metadata, Originals, Recirculation, refusal};
use crate::stats::{PortCounters, WorkerStats};
use base::DropReason;
use flow::{FieldId, Key};
use packet::wait::Bell;
use packet::{Batch, Packet, PoolCache};
use std::sync::Arc;

/// A packet for the control thread.
pub struct PacketIn {
    /// Why it is sent, and what to report. Belongs to the flow.
    pub spec: Arc<PacketInSpec>,
    /// The packet's metadata.
    pub metadata: Metadata,
    /// If it was tracked, the original tuple of its connection.
    pub original: Option<Tuple>,
    /// The packet; the control thread frees it.
    pub packet: Packet,
}

impl PacketIn {
    /// The pipeline's fields as this packet has them.
    pub fn metadata(&self) -> Key {
        let mut metadata = self.spec.metadata.clone();
        metadata.set(FieldId::PktMark, self.metadata.pkt_mark.into());
        metadata.set(FieldId::DpHash, self.metadata.dp_hash.into());
        metadata.set(FieldId::PacketType, self.metadata.packet_type.into());
        if self.spec.is_tracked {
            self.metadata.tracking.put(self.original.as_ref(), &mut metadata);
        }
        metadata
    }
}

/// How often a worker cleans up ended connections.
const EXPIRY_MS: u64 = 16;
/// How late the end of a connection may be noticed without traffic.
const EXPIRY_PAUSE_MS: u64 = 1_000;
/// How many connections it examines each time.
const EXPIRY_BUDGET: u32 = 1024;

/// See the module documentation.
pub struct Context {
    pub cache: PoolCache,
    pub stats: Arc<WorkerStats>,
    pub recirculation: Recirculation,
    /// The input port of the current burst; no port between bursts.
    pub input: Box<Input>,
    /// Behind an `Arc` of the worker's own, so that locking it writes no line that other workers write.
    #[allow(clippy::redundant_allocation)]
    pub tracker: Arc<Arc<Tracker>>,
    pub now_ms: u64,
    /// Which ports use the worker's time for new connections.
    pub share: Share,
    next_expiry_ms: u64,
    /// The last cleanup did not get to all expired connections and fragments.
    has_more_to_expire: bool,
    /// Buffer in which a datagram is reassembled from its fragments.
    pub datagram: Vec<u8>,
    /// This worker's counters for packets that came in at a port and are dropped after their burst.
    pub counters: PortTable<Arc<PortCounters>>,
    packet_ins: rtrb::Producer<PacketIn>,
    event_bell: Arc<Bell>,
    random: u64,
}

impl Context {
    pub fn new(
        cache: PoolCache,
        stats: Arc<WorkerStats>,
        packet_ins: rtrb::Producer<PacketIn>,
        event_bell: Arc<Bell>,
        tracker: Arc<Tracker>,
        random_seed: u64,
    ) -> Context {
        Context {
            tracker: Arc::new(tracker),
            now_ms: 0,
            share: Share::default(),
            next_expiry_ms: 0,
            has_more_to_expire: false,
            datagram: vec![0; WHOLE_BYTES_MAX],
            cache,
            stats,
            recirculation: Recirculation::new(),
            input: Input::none(),
            counters: PortTable::new(),
            packet_ins,
            event_bell,
            // From 0, only 0 would follow.
            random: random_seed | 1,
        }
    }

    /// Drops a packet of the current burst.
    #[inline]
    pub fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.count_drops(reason, 1);
        self.cache.free(packet);
    }

    /// Drops several.
    #[inline]
    pub fn drop_all(&mut self, packets: impl Iterator<Item = Packet>, reason: DropReason) {
        let mut count = 0;
        for packet in packets {
            self.cache.free(packet);
            count += 1;
        }
        self.count_drops(reason, count);
    }

    #[inline]
    fn count_drops(&self, reason: DropReason, count: u64) {
        self.stats.drops.add(reason, count);
        if let Some(c) = &self.input.counters {
            c.drops.add(reason, count);
        }
    }

    /// Drops a packet of an earlier burst.
    pub fn drop_late(&mut self, packet: Packet, reason: DropReason) {
        self.stats.drops.add(reason, 1);
        if let Some(c) = self.counters.get(packet.in_port) {
            c.drops.add(reason, 1);
        }
        self.cache.free(packet);
    }

    /// Ends a packet whose copies have been delivered: nothing is lost, so it is no drop.
    pub fn surplus(&mut self, packet: Packet) {
        self.stats.surplus.add(1);
        self.cache.free(packet);
    }

    /// Runs once a millisecond or later.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.share.begin_interval();
        if now_ms >= self.next_expiry_ms {
            self.next_expiry_ms = now_ms + EXPIRY_MS;
            let mut has_more = false;
            if self.tracker.count() > 0 {
                has_more = self.tracker.expire(now_ms, EXPIRY_BUDGET);
            }
            let tracker = self.tracker.clone();
            let late = DropReason::CtFragmentTimeout;
            has_more |= tracker.fragments().expire(now_ms, |packet| self.drop_late(packet, late));
            self.has_more_to_expire = has_more;
        }
    }

    /// How long a worker without traffic may sleep so that connections and fragments still expire in time.
    /// `None`: there are none.
    pub fn until_expiry_ms(&self) -> Option<u64> {
        if self.has_more_to_expire {
            return Some(self.next_expiry_ms.saturating_sub(self.now_ms).max(1));
        }
        let is_empty = self.tracker.count() == 0 && self.tracker.fragments().held() == 0;
        (!is_empty).then_some(EXPIRY_PAUSE_MS)
    }

    /// Whether the input queue may begin another connection by a packet with this recirculation id.
    pub fn may_begin_connection(&mut self, recirc_id: u32) -> bool {
        self.share.may_begin(&mut self.input.begun, recirc_id, self.now_ms)
    }

    /// Counts tuples that a new connection of the input queue could not have.
    #[inline(always)]
    pub fn tried_tuples(&mut self, tries: u32) {
        if tries > 0 {
            self.share.tried(&mut self.input.begun, tries);
        }
    }

    /// Whether the input queue has tried to begin more connections than it may.
    #[inline(always)]
    pub fn exceeds_share(&self) -> bool {
        self.share.is_exceeded(&self.input.begun)
    }

    /// Whether the input queue's packets of unknown connections are refused if the action list ends thus.
    #[inline(always)]
    pub fn refuses_unknown(&self, rest: &[DpAction]) -> bool {
        matches!(rest, [DpAction::Recirc(id)] if self.share.refuses(&self.input.begun, *id))
    }

    /// Records that a packet with this recirculation id was refused.
    pub fn refused_at(&mut self, recirc_id: u32) {
        self.input.begun.refused_at(recirc_id);
    }

    /// A copy of the packet; `None` (counted as a drop of a copy) if the pool is exhausted.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        self.stats.copies.add(1);
        let copy = packet.copy(&mut self.cache);
        if copy.is_none() {
            self.count_drops(DropReason::PoolExhausted, 1);
        }
        copy
    }

    /// Passes a packet to the control thread, or drops it if that ring is full.
    pub fn packet_in(
        &mut self,
        spec: &Arc<PacketInSpec>,
        packet: Packet,
        metadata: Metadata,
        original: Option<Tuple>,
    ) {
        match self.packet_ins.push(PacketIn { spec: spec.clone(), metadata, original, packet }) {
            Ok(()) => {
                self.stats.packet_ins.add(1);
                self.event_bell.ring();
            }
            Err(rtrb::PushError::Full(back)) => self.drop(back.packet, DropReason::PacketInRingFull),
        }
    }

    /// Queues a packet for another round.
    #[inline]
    pub fn recirculate(&mut self, metadata: Metadata, original: Option<&Tuple>, packet: Packet) {
        match self.recirculation.push(metadata, original, packet) {
            Ok(()) => self.stats.recirculations.add(1),
            Err(packet) => self.drop(packet, refusal(&metadata)),
        }
    }

    /// The same for several packets. `originals` has one tuple per packet if they were tracked, else none.
    /// Both lists are empty afterwards.
    #[inline]
    pub fn recirculate_all(&mut self, metadata: Metadata, packets: &mut Batch, originals: &mut Originals) {
        let count = packets.len();
        self.recirculation.push_all(metadata, packets, originals);
        originals.clear();
        self.stats.recirculations.add((count - packets.len()) as u64);
        for packet in packets.drain(..) {
            self.drop(packet, refusal(&metadata));
        }
    }

    /// A pseudo-random number for sampling (xorshift; statistical, not secret).
    pub fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32
    }

    /// A 64-bit pseudo-random number.
    pub fn random64(&mut self) -> u64 {
        u64::from(self.random()) << 32 | u64::from(self.random())
    }
}

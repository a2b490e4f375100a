//! What a worker has for all packets: where they come from and go back to, where they are counted, and where
//! those end that are not sent.

use crate::input::Input;
use crate::pipeline::PacketInSpec;
use crate::recirculation::{Metadata, Recirculation};
use crate::stats::{PortCounters, WorkerStats};
use crate::tuner::ExactTier;
use base::{DropReason, PortNo};
use flow::{FieldId, Key};
use packet::wait::Bell;
use packet::{Packet, PoolCache};
use std::sync::Arc;

/// A packet for the control thread.
pub struct PacketIn {
    /// Why, and what to tell. It belongs to the flow.
    pub spec: Arc<PacketInSpec>,
    /// The packet's own mark.
    pub pkt_mark: u32,
    /// The packet; the control thread frees it.
    pub packet: Packet,
}

impl PacketIn {
    /// The pipeline's fields as this packet has them.
    pub fn metadata(&self) -> Key {
        let mut metadata = self.spec.metadata.clone();
        metadata.set(FieldId::PktMark, self.pkt_mark.into());
        metadata
    }
}

/// See the module's text.
pub struct Context {
    pub cache: PoolCache,
    pub stats: Arc<WorkerStats>,
    pub recirculation: Recirculation,
    /// The input port whose burst is in hand; between bursts it is none.
    pub input: Box<Input>,
    /// By datapath port number, for packets that do not leave in the burst in which they came.
    inputs: Vec<Option<Arc<PortCounters>>>,
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
    ) -> Context {
        Context {
            cache,
            stats,
            recirculation: Recirculation::new(),
            input: Input::new(PortNo::NONE, None, ExactTier::Auto),
            inputs: (0..=u16::MAX).map(|_| None).collect(),
            packet_ins,
            event_bell,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Where this worker counts packets that come in at the port; `None` where it is not there (any more).
    pub fn counters_of(&self, port: PortNo) -> Option<&Arc<PortCounters>> {
        self.inputs[port.0 as usize & 0xffff].as_ref()
    }

    pub fn set_counters_of(&mut self, port: PortNo, counters: Option<Arc<PortCounters>>) {
        self.inputs[port.0 as usize & 0xffff] = counters;
    }

    /// Drops a packet of the burst in hand.
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

    /// Drops a packet of a burst that was.
    pub fn drop_late(&mut self, packet: Packet, reason: DropReason) {
        self.stats.drops.add(reason, 1);
        if let Some(c) = self.counters_of(packet.in_port) {
            c.drops.add(reason, 1);
        }
        self.cache.free(packet);
    }

    /// Ends a packet of which copies have been delivered already: nothing is lost, and it is no drop.
    pub fn surplus(&mut self, packet: Packet) {
        self.stats.surplus.add(1);
        self.cache.free(packet);
    }

    /// A copy of the packet; `None` (counted as a drop of a copy) when the pool is exhausted.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        self.stats.copies.add(1);
        let copy = packet.copy(&mut self.cache);
        if copy.is_none() {
            self.count_drops(DropReason::PoolExhausted, 1);
        }
        copy
    }

    /// Hands a packet to the control thread, or drops it when its ring is full.
    pub fn packet_in(&mut self, spec: &Arc<PacketInSpec>, packet: Packet, pkt_mark: u32) {
        match self.packet_ins.push(PacketIn { spec: spec.clone(), pkt_mark, packet }) {
            Ok(()) => {
                self.stats.packet_ins.add(1);
                self.event_bell.ring();
            }
            Err(rtrb::PushError::Full(back)) => self.drop(back.packet, DropReason::PacketInRingFull),
        }
    }

    /// Has a packet wait for another round.
    #[inline]
    pub fn recirculate(&mut self, metadata: Metadata, packet: Packet) {
        match self.recirculation.push(metadata, packet) {
            Ok(()) => self.stats.recirculations.add(1),
            Err(packet) => self.drop(packet, DropReason::RecircDepth),
        }
    }

    /// A pseudo-random number for sampling (xorshift; statistical, not secret).
    pub fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32
    }
}

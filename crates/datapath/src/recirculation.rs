//! A packet's metadata, and the packets that recirculate with it.
//!
//! Packets of a burst, which came in at one port, wait in one batch per distinct metadata. So a round is a
//! burst like any other: its packets differ only in their bytes, and plain ones are looked up by these.
//! Packets with the same metadata keep their order.

use crate::conntrack::Tracking;
use crate::conntrack::tuple::Tuple;
use arrayvec::ArrayVec;
use base::DropReason;
use packet::{BURST, Batch, Packet};
use std::collections::VecDeque;

/// What a packet carries besides its bytes, from one round to the next.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Metadata {
    /// The pipeline's number for the rest of its work on the packet; 0 for a packet from a port.
    pub recirc_id: u32,
    /// The packet mark.
    pub pkt_mark: u32,
    /// The packet's hash, as computed by [`crate::DpAction::Hash`]; 0 before.
    pub dp_hash: u32,
    /// What the packet starts with (OpenFlow 1.5's packet type); 0 means an Ethernet header.
    pub packet_type: u32,
    /// Rounds so far.
    pub recirc_depth: u8,
    /// The connection tracker's result.
    pub tracking: Tracking,
}

/// What differs between tracked packets: the tuple of the direction that opened the connection. One per
/// packet, or none if they were not tracked.
pub type Originals = ArrayVec<Tuple, BURST>;

/// Most rounds of one packet.
pub const DEPTH_MAX: u8 = 8;

/// Whether a packet may be recirculated this many times, including the coming round.
#[inline(always)]
pub fn may_go_round(depth: u8) -> bool {
    depth <= DEPTH_MAX
}

/// Why packets with this metadata were not queued for another round.
#[cold]
pub fn refusal(metadata: &Metadata) -> DropReason {
    match may_go_round(metadata.recirc_depth) {
        true => DropReason::RecircQueueFull,
        false => DropReason::RecircDepth,
    }
}

/// Batches that exist from the start. Those beyond are created when they are needed, and kept.
const BATCHES: usize = 2 * BURST;
/// Maximum number of waiting batches: each packet of a burst may have its own metadata, and fork into eight.
const BATCHES_MAX: usize = 8 * BURST;

/// Maximum number of packets that wait in the course of one burst, in all rounds. A bound on those that wait
/// at the same time bounds no work: each round makes room for others.
const PACKETS_MAX: usize = BATCHES_MAX * BURST;
/// Maximum number of actions on what comes back, for each packet of a burst: as many as rules may make wait.
/// A burst has as much as this many packets at least, because it may complete datagrams whose other fragments
/// came earlier.
const ACTIONS_EACH: usize = 16_384;
const PACKETS_LEAST: usize = 8;

/// The packets of the next round's burst.
pub struct Round {
    pub metadata: Metadata,
    pub batch: Batch,
    pub originals: Originals,
}

impl Round {
    #[cold]
    fn empty() -> Box<Round> {
        let (batch, originals) = (Batch::new(), Originals::new());
        Box::new(Round { metadata: Metadata::default(), batch, originals })
    }
}

/// Rounds to come.
pub struct Recirculation {
    /// Bound: [`BATCHES_MAX`].
    waiting: VecDeque<Box<Round>>,
    #[allow(clippy::vec_box)] // They move between the two lists, and are large.
    spare: Vec<Box<Round>>,
    /// How many more packets of this burst may wait.
    room: usize,
    /// How many more actions may be executed on packets of this burst that have come back.
    actions_left: usize,
}

impl Recirculation {
    pub fn new() -> Recirculation {
        Recirculation {
            waiting: VecDeque::with_capacity(BATCHES_MAX),
            spare: (0..BATCHES).map(|_| Round::empty()).collect(),
            room: PACKETS_MAX,
            actions_left: 0,
        }
    }

    /// Before a burst of so many packets.
    #[inline(always)]
    pub fn begin_burst(&mut self, packets: usize) {
        (self.room, self.actions_left) = (PACKETS_MAX, packets.max(PACKETS_LEAST) * ACTIONS_EACH);
    }

    /// Counts an action on so many packets that have come back. False if the burst has had all it may have:
    /// then they go no further.
    #[inline(always)]
    pub fn may_act(&mut self, packets: usize) -> bool {
        let left = self.actions_left.checked_sub(packets);
        self.actions_left = left.unwrap_or(0);
        left.is_some()
    }

    /// Whether what still waits goes no further.
    #[inline(always)]
    pub fn is_spent(&self) -> bool {
        self.actions_left == 0
    }

    /// Queues a packet for the next round. Returns it if it has been recirculated too often, or too many
    /// others are waiting or have waited in this burst (see [`refusal`]).
    #[inline]
    pub fn push(
        &mut self,
        metadata: Metadata,
        original: Option<&Tuple>,
        packet: Packet,
    ) -> Result<(), Packet> {
        let Some(round) = self.round_with_room(metadata) else { return Err(packet) };
        round.batch.push(packet);
        // Bound: no more than packets.
        round.originals.extend(original.copied());
        self.room -= 1;
        Ok(())
    }

    /// The same for several packets, with one original tuple each if they were tracked, else none. Packets
    /// that are refused stay where they are.
    #[inline]
    pub fn push_all(&mut self, metadata: Metadata, packets: &mut Batch, originals: &mut Originals) {
        let mut room = self.room;
        while !packets.is_empty()
            && let Some(round) = self.round_with_room(metadata)
        {
            let count = packets.len().min(round.batch.remaining_capacity()).min(room);
            round.batch.extend(packets.drain(..count));
            round.originals.extend(originals.drain(..count.min(originals.len())));
            room -= count;
            self.room = room;
        }
    }

    /// The newest round of packets with this metadata, if it has room, or a new one.
    #[inline]
    fn round_with_room(&mut self, metadata: Metadata) -> Option<&mut Round> {
        if self.room == 0 {
            return None;
        }
        let newest = self.waiting.iter().rposition(|round| round.metadata == metadata);
        if let Some(newest) = newest.filter(|n| !self.waiting[*n].batch.is_full()) {
            return Some(&mut self.waiting[newest]);
        }
        if !may_go_round(metadata.recirc_depth) || self.waiting.len() >= BATCHES_MAX {
            return None;
        }
        let mut round = self.spare.pop().unwrap_or_else(Round::empty);
        round.metadata = metadata;
        round.originals.clear();
        self.waiting.push_back(round);
        self.waiting.back_mut().map(|round| &mut **round)
    }

    /// Whether no round is left.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next round. Return it with [`Self::done`].
    #[inline(always)]
    pub fn next(&mut self) -> Option<Box<Round>> {
        self.waiting.pop_front()
    }

    /// Returns a round whose batch is empty.
    #[inline(always)]
    pub fn done(&mut self, round: Box<Round>) {
        self.spare.push(round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Pool, PoolConfig};

    #[test]
    fn packets_wait_in_their_order_with_those_that_have_their_metadata() {
        let pool = Pool::new(PoolConfig { chunks: 2048, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let mut waiting = Recirculation::new();
        let metadata = |recirc_id| Metadata { recirc_id, ..Metadata::default() };
        let mut push = |waiting: &mut Recirculation, recirc_id, n: u8| {
            let mut packet = cache.alloc().unwrap();
            packet.fill(&[n]).unwrap();
            waiting.push(metadata(recirc_id), None, packet).map_err(|packet| cache.free(packet))
        };
        for n in 0..80 {
            push(&mut waiting, u32::from(n % 4), n).unwrap();
        }
        let mut seen = Vec::new();
        while let Some(mut round) = waiting.next() {
            let bytes = round.batch.drain(..).map(|packet| {
                let n = packet.data()[0];
                pool.cache().free(packet);
                n
            });
            seen.push((round.metadata.recirc_id, bytes.collect::<Vec<_>>()));
            waiting.done(round);
        }
        assert_eq!(seen.len(), 4);
        for (recirc_id, bytes) in seen {
            assert!(bytes.is_sorted() && bytes.len() == 20, "{recirc_id}: {bytes:?}");
            assert!(bytes.iter().all(|n| u32::from(n % 4) == recirc_id));
        }
        // More than wait at once, and more than fit one batch.
        for recirc_id in 0..BATCHES_MAX as u32 {
            push(&mut waiting, recirc_id, 0).unwrap();
        }
        assert_eq!(push(&mut waiting, BATCHES_MAX as u32, 0), Err(()));
        for _ in 1..packet::BURST {
            push(&mut waiting, 0, 0).unwrap();
        }
        assert_eq!(push(&mut waiting, 0, 0), Err(()));
        while let Some(mut round) = waiting.next() {
            pool.cache().free_all(&mut round.batch);
            waiting.done(round);
        }
        assert_eq!(pool.stats().free, 2048);
        assert_eq!(waiting.spare.len(), BATCHES_MAX, "they are kept");
    }

    #[test]
    fn no_packet_goes_round_more_often_than_the_limit() {
        let pool = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let mut waiting = Recirculation::new();
        let deep = |recirc_depth| Metadata { recirc_depth, ..Metadata::default() };
        assert!(waiting.push(deep(DEPTH_MAX), None, cache.alloc().unwrap()).is_ok());
        let refused = waiting.push(deep(DEPTH_MAX + 1), None, cache.alloc().unwrap());
        cache.free(refused.expect_err("too deep"));
        let mut round = waiting.next().unwrap();
        cache.free_all(&mut round.batch);
    }
}

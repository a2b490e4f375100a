//! Packets in the course of an action list, and where the list sends them.

use crate::conntrack::tuple::Tuple;
use crate::context::Context;
use crate::edit;
use crate::recirculation::{Metadata, Originals};
use arrayvec::ArrayVec;
use base::PortNo;
use packet::{BURST, Batch, Packet};
use wire::Layers;

/// Packets of one flow in the course of its actions.
pub struct Run {
    /// Their common metadata.
    pub metadata: Metadata,
    pub(crate) packets: Batch,
    /// Where the headers of each packet are, if known. Bound: one per packet.
    pub(crate) layers: ArrayVec<Layers, BURST>,
    /// Original tuples of the packets' connections, if they were tracked.
    pub originals: Originals,
}

impl Run {
    /// None yet.
    #[inline(always)]
    pub fn new(metadata: Metadata) -> Run {
        Run { metadata, packets: Batch::new(), layers: ArrayVec::new(), originals: Originals::new() }
    }

    /// Adds a packet. Bound: no run is longer than its burst.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet, layers: Layers) {
        self.packets.push(packet);
        self.layers.push(layers);
    }

    /// Copies of all packets for which the pool has room.
    pub(crate) fn copy(&self, context: &mut Context) -> Run {
        let mut copies = Run::new(self.metadata);
        for (n, (packet, layers)) in self.packets.iter().zip(&self.layers).enumerate() {
            if let Some(copy) = context.copy(packet) {
                copies.push(copy, *layers);
                copies.originals.extend(self.originals.get(n).copied());
            }
        }
        copies
    }

    /// Takes out the packets and their original tuples.
    pub(crate) fn drain_with_originals(&mut self) -> impl Iterator<Item = (Packet, Option<Tuple>)> {
        self.layers.clear();
        let mut originals = std::mem::take(&mut self.originals).into_iter();
        self.packets.drain(..).map(move |packet| (packet, originals.next()))
    }

    /// Takes out the packet at this position.
    pub(crate) fn remove(&mut self, n: usize) -> Packet {
        self.layers.remove(n);
        if n < self.originals.len() {
            self.originals.remove(n);
        }
        self.packets.remove(n)
    }

    /// Takes out the packets at these positions, which ascend, each with what comes along. However many they
    /// are, each packet that stays moves twice.
    pub(crate) fn remove_all<T: Copy>(&mut self, positions: &[(usize, T)], mut taken: impl FnMut(Packet, T)) {
        debug_assert_eq!(self.packets.len(), self.layers.len());
        let mut all = std::mem::replace(self, Run::new(self.metadata));
        let mut rest = positions.iter().peekable();
        let mut originals = all.originals.iter();
        for (n, (packet, layers)) in all.packets.drain(..).zip(all.layers.iter()).enumerate() {
            let original = originals.next();
            match rest.next_if(|(position, _)| *position == n) {
                Some((_, why)) => taken(packet, *why),
                None => {
                    self.push(packet, *layers);
                    self.originals.extend(original.copied());
                }
            }
        }
    }

    /// Takes the first packets out.
    pub(crate) fn split(&mut self, count: usize) -> Run {
        let mut first = Run::new(self.metadata);
        first.packets.extend(self.packets.drain(..count));
        first.layers.extend(self.layers.drain(..count));
        let originals = self.originals.len().min(count);
        first.originals.extend(self.originals.drain(..originals));
        first
    }

    /// Sets the type of the packets, none of which has been read yet.
    #[cold]
    pub(crate) fn set_packet_type(&mut self, packet_type: u32) {
        self.metadata.packet_type = packet_type;
        for (packet, layers) in self.packets.iter().zip(&mut self.layers) {
            *layers = edit::layers_of(packet, packet_type);
        }
    }

    /// Takes all packets out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Packet> {
        self.layers.clear();
        self.originals.clear();
        self.packets.drain(..)
    }
}

/// Where the packets of a list go.
pub trait Ends {
    /// Takes packets that are not sent.
    fn context(&mut self) -> &mut Context;

    /// Sends packets to a port, now or when all of the burst may leave, and leaves the batch empty.
    fn send(&mut self, port: PortNo, packets: &mut Batch);

    /// Turns a packet whose tail is lent into an ordinary one. False if the pool has no room.
    fn make_whole(&mut self, packet: &mut Packet) -> bool;
}

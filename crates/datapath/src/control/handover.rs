//! Packets on which the control thread has workers execute actions: its own, those of controllers, and those
//! that a worker passed to it.
//!
//! The first worker executes them, some in each of its passes. Until then they hold chunks that ports need
//! to receive: an eighth of the pool at most, and those of one bridge no more than are left of that, so a
//! 16th. What exceeds that is dropped and counted ([`DropReason::PacketOutQuota`]), since a controller may
//! send more than a worker can.
//!
//! While workers are exchanged, outputs are in transit. Packets wait until the worker has its own.

use super::*;

/// Chunks that all may hold of a small pool: two of the largest packets.
const CHUNKS_LEAST: u64 = 128;

impl<P: Pipeline> Datapath<P> {
    /// A packet with these bytes. `None` if no buffer is free, which is counted as a drop.
    pub fn packet(&mut self, frame: &[u8]) -> Option<Packet> {
        let packet = self.cache.alloc_frame(frame);
        if packet.is_none() {
            self.dropped_here.add(DropReason::PoolExhausted, 1);
        }
        packet
    }

    /// Executes actions on a packet with these bytes, as if it had come in at `in_port`. It counts as one of
    /// the first bridge's. False if it is dropped, and counted, since no buffer is free or there is no
    /// worker.
    pub fn execute(&mut self, frame: &[u8], in_port: PortNo, actions: Vec<DpAction>) -> bool {
        let Some(mut packet) = self.packet(frame) else { return false };
        packet.in_port = in_port;
        self.execute_tracked(0, packet, None, actions)
    }

    /// The same for an existing packet of a bridge, with the connection tracker's result for it, if any.
    /// False if there is no worker: the packet is dropped and counted. True also if that is so because too
    /// many packets wait already.
    pub fn execute_tracked(
        &mut self,
        bridge: u32,
        packet: Packet,
        tracked: Option<(Tracking, Tuple)>,
        actions: Vec<DpAction>,
    ) -> bool {
        self.execute_again(bridge, (packet, 0), tracked, actions)
    }

    /// The same for a packet that was recirculated before a worker handed it over. Those rounds count: a
    /// packet that is handed over in each round reaches the limit like any other.
    pub fn execute_again(
        &mut self,
        bridge: u32,
        (packet, recirc_depth): (Packet, u8),
        tracked: Option<(Tracking, Tuple)>,
        actions: Vec<DpAction>,
    ) -> bool {
        if self.workers.is_empty() && self.exchange.is_none() {
            self.dropped_here.add(DropReason::WorkerStopped, 1);
            self.cache.free(packet);
            return false;
        }
        let chunks = packet.segments().count() as u64;
        if !self.may_hold(bridge, chunks) {
            self.dropped_here.add(DropReason::PacketOutQuota, 1);
            self.cache.free(packet);
            return true;
        }
        let handover = Handover { bridge, packet, chunks, recirc_depth, tracked, actions };
        if self.is_without_outputs() {
            self.kept_chunks.add(bridge, chunks);
            self.kept.push_back(handover);
        } else {
            self.hand_over(handover);
        }
        true
    }

    fn may_hold(&mut self, bridge: u32, chunks: u64) -> bool {
        let all = self.pool.config().chunks as u64 / 8;
        let (mut held, mut own) = (self.kept_chunks.total, self.kept_chunks.of(bridge));
        if let Some(w) = self.workers.first_mut() {
            w.handed_over.executed(w.shared.executed.get());
            held += w.handed_over.total;
            own += w.handed_over.of(bridge);
        }
        own + chunks <= all.max(CHUNKS_LEAST).saturating_sub(held + chunks)
    }

    fn hand_over(&mut self, handover: Handover) {
        let Handover { bridge, packet, chunks, recirc_depth, tracked, actions } = handover;
        self.workers[0].handed_over.add(bridge, chunks);
        let input = self.input(packet.in_port, 0);
        self.send(0, Command::Execute { input, packet, recirc_depth, tracked, actions });
    }

    /// Whether the first worker gives up its outputs, or has yet to get them back.
    fn is_without_outputs(&self) -> bool {
        self.exchange.is_some() || self.late.is_some_and(|ticket| !self.awaited.have_answered(&[ticket]))
    }

    /// Hands over what waits, once the first worker has its outputs again.
    pub(super) fn hand_over_kept(&mut self) {
        if !self.kept.is_empty() && !self.is_without_outputs() {
            self.kept_chunks = Held::default();
            std::mem::take(&mut self.kept).into_iter().for_each(|handover| self.hand_over(handover));
        }
    }

    /// Drops the packets of commands that a worker has not been sent before its end.
    pub(super) fn drop_unsent(&mut self, backlog: VecDeque<Command>) {
        for command in backlog {
            if let Command::Execute { packet, .. } = command {
                self.dropped_here.add(DropReason::WorkerStopped, 1);
                self.cache.free(packet);
            }
        }
    }

    /// Drops packets that no worker will get.
    pub(super) fn drop_kept(&mut self) {
        for handover in std::mem::take(&mut self.kept) {
            self.dropped_here.add(DropReason::WorkerStopped, 1);
            self.cache.free(handover.packet);
        }
    }
}

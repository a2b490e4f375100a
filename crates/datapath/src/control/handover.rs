//! Packets on which the control thread has workers execute actions: its own, those of controllers, and those
//! that a worker passed to it.
//!
//! The first worker executes them, some in each of its passes. Until then they hold chunks that ports need to
//! receive: a 16th of the pool at most. What exceeds that is dropped and counted
//! ([`DropReason::PacketOutQuota`]), since a controller may send more than a worker can.

use super::*;
use crate::action::DpAction;
use crate::conntrack::{Tracking, tuple::Tuple};

/// Chunks that may always be held: enough for the largest packet.
const CHUNKS_LEAST: usize = 64;

impl<P: Pipeline> Datapath<P> {
    /// Executes actions on a packet with these bytes, as if it had come in at `in_port`. False if no buffer
    /// is free, or there is no worker.
    pub fn execute(&mut self, frame: &[u8], in_port: PortNo, actions: Vec<DpAction>) -> bool {
        let Some(mut packet) = self.cache.alloc_frame(frame) else { return false };
        packet.in_port = in_port;
        self.execute_tracked(packet, None, actions)
    }

    /// The same for an existing packet, with the connection tracker's result for it, if any. False if there
    /// is no worker. True also if too many packets wait already, and this one is dropped and counted.
    pub fn execute_tracked(
        &mut self,
        packet: Packet,
        tracked: Option<(Tracking, Tuple)>,
        actions: Vec<DpAction>,
    ) -> bool {
        self.execute_again(packet, 0, tracked, actions)
    }

    /// The same for a packet that was recirculated before a worker handed it over. Those rounds count: a
    /// packet that is handed over in each round reaches the limit like any other.
    pub fn execute_again(
        &mut self,
        packet: Packet,
        recirc_depth: u8,
        tracked: Option<(Tracking, Tuple)>,
        actions: Vec<DpAction>,
    ) -> bool {
        let Some(worker) = self.workers.first_mut() else {
            self.cache.free(packet);
            return false;
        };
        let chunks = packet.segments().count() as u64;
        let share = (self.pool.config().chunks / 16).max(CHUNKS_LEAST) as u64;
        if worker.handed_over - worker.shared.executed.get() + chunks > share {
            self.drop_here(packet, DropReason::PacketOutQuota);
            return true;
        }
        worker.handed_over += chunks;
        let input = self.input(packet.in_port, 0);
        self.send(0, Command::Execute { input, packet, recirc_depth, tracked, actions });
        true
    }

    /// Drops a packet that no worker got.
    fn drop_here(&mut self, packet: Packet, reason: DropReason) {
        self.dropped_here.add(reason, 1);
        self.cache.free(packet);
    }
}

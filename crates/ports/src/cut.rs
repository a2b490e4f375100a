//! What a segment within a tunnel has become on receipt ([`tunnel`](crate::offload::tunnel)), until a burst
//! has room for it.

use crate::QueueStats;
use packet::{Batch, Packet, PoolCache};

/// Frames of one segment, the last one first, so that the next one is at the end.
#[derive(Default)]
pub(crate) struct CutFrames(Vec<Packet>);

impl CutFrames {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The frames of the next segment, in order, are what `cut` appends. While any are left of the last one,
    /// the batch is full, and nothing more is received.
    #[cold]
    pub fn fill<T>(&mut self, cut: impl FnOnce(&mut Vec<Packet>) -> T) -> T {
        debug_assert!(self.is_empty());
        let outcome = cut(&mut self.0);
        self.0.reverse();
        outcome
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Packet> {
        self.0.iter_mut()
    }

    /// Hands over frames as far as there is room.
    #[cold]
    pub fn hand_over(&mut self, stats: &QueueStats, cache: &PoolCache, batch: &mut Batch) {
        while cache.room(batch) > 0
            && let Some(frame) = self.0.pop()
        {
            stats.passed(1, frame.len() as u64);
            batch.push(frame);
        }
    }

    /// Drops what is left.
    pub fn close(&mut self, stats: &QueueStats, cache: &mut PoolCache) {
        stats.dropped.add(self.0.len() as u64);
        self.0.drain(..).for_each(|frame| cache.free(frame));
    }
}

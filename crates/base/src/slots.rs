//! Counter slots: one worker's packets, bytes and time of last use per rule, table, patch port or MAC entry.
//!
//! The control thread hands out slot numbers; each worker owns one [`SlotTable`] and is its only writer; the
//! control thread reads all of them and adds up. The table grows by chunks that never move, so neither side
//! waits. A number is given out again only after every worker has folded its flows once since it was
//! given up, and [`SlotTable::clear`] is called by the worker's side then.

use crate::Counter;
use crate::slab::Slab;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One worker's share of what a rule (or table, port, MAC entry) has seen.
#[derive(Default, Debug, zerocopy::FromZeros)]
#[repr(C)]
pub struct Slot {
    /// Packets.
    pub packets: Counter,
    /// Bytes of frames.
    pub bytes: Counter,
    /// When it was last used, in milliseconds of the datapath's clock; 0 for never.
    pub last_used_ms: Counter,
}

/// Memory is prepared for this many slots at a time.
const READY_STEP: usize = 4096;

/// All slots of one worker.
#[derive(Default)]
pub struct SlotTable {
    slots: Slab<Slot>,
    /// Slots whose memory is ready.
    ready: AtomicUsize,
}

impl SlotTable {
    /// Makes room for slots below `count`, so that crediting one allocates nothing later and waits for no
    /// page. For the control thread, before it gives numbers out.
    pub fn reserve(&self, count: u32) {
        let ready = self.ready.load(Ordering::Relaxed);
        if count as usize > ready {
            let to = (count as usize).next_multiple_of(READY_STEP);
            self.slots.populate(ready..to);
            self.ready.store(to, Ordering::Relaxed);
        }
    }

    /// The slot. Allocates its chunk if that was not reserved.
    #[inline]
    pub fn get(&self, idx: u32) -> &Slot {
        if let Some(slot) = self.slots.get(idx as usize) {
            return slot;
        }
        self.slots.reserve(idx as usize + 1);
        &self.slots[idx as usize]
    }

    /// The slot, if its chunk is there: for readers.
    pub fn peek(&self, idx: u32) -> Option<&Slot> {
        self.slots.get(idx as usize)
    }

    /// Adds to a slot. Only the owning worker.
    #[inline]
    pub fn credit(&self, idx: u32, packets: u64, bytes: u64, used_ms: u64) {
        let slot = self.get(idx);
        slot.packets.add(packets);
        slot.bytes.add(bytes);
        if used_ms > slot.last_used_ms.get() {
            slot.last_used_ms.set(used_ms);
        }
    }

    /// Back to zero, for a number that is given out again.
    pub fn clear(&self, idx: u32) {
        if let Some(slot) = self.peek(idx) {
            slot.packets.set(0);
            slot.bytes.set(0);
            slot.last_used_ms.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_add_up_and_far_slots_cost_only_their_chunk() {
        let table = SlotTable::default();
        table.credit(5, 2, 120, 7);
        table.credit(5, 1, 60, 3);
        let slot = table.peek(5).unwrap();
        assert_eq!((slot.packets.get(), slot.bytes.get(), slot.last_used_ms.get()), (3, 180, 7));
        assert!(table.peek(1_000_000).is_none());
        table.clear(5);
        assert_eq!(table.get(5).packets.get(), 0);
    }
}

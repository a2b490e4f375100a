//! Counter slots: one worker's packets, bytes and time of last use per rule, table, patch port or MAC entry.
//!
//! The control thread hands out slot numbers; each worker owns one [`SlotTable`] and is its only writer; the
//! control thread reads all of them and adds up. The table grows by chunks that never move, so neither side
//! waits. A number is given out again only after every worker has folded its flows once since it was
//! given up, and [`SlotTable::clear`] is called by the worker's side then.

use crate::Counter;
use crate::slab::Slab;

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

/// All slots of one worker.
#[derive(Default)]
pub struct SlotTable(Slab<Slot>);

impl SlotTable {
    /// Makes room for slots below `count`, so that [`Self::get`] of one allocates nothing later. For the control
    /// thread, when it gives numbers out.
    pub fn reserve(&self, count: u32) {
        self.0.reserve(count as usize);
    }

    /// The slot. Allocates its chunk where nobody reserved it.
    #[inline]
    pub fn get(&self, idx: u32) -> &Slot {
        if let Some(slot) = self.0.get(idx as usize) {
            return slot;
        }
        self.0.reserve(idx as usize + 1);
        &self.0[idx as usize]
    }

    /// The slot, if its chunk is there: for readers.
    pub fn peek(&self, idx: u32) -> Option<&Slot> {
        self.0.get(idx as usize)
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

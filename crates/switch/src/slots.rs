//! Counter slots: the numbers under which workers count packets for rules, tables, patch ports and MAC
//! entries.
//!
//! The switch gives numbers out and takes them back; the counting is the datapath's, in one slab per worker.
//! A number that was given up may still be credited by flows that workers have cached, so it is not given out
//! again before the datapath says that every worker has passed a grace period and folded its flows once: the
//! owner of the control side takes the batch of retired numbers, has them folded and cleared, and hands the
//! batch back.
//!
//! Threads: the control thread only.

/// What was counted under one slot, over all workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// When it was last used, in milliseconds of the clock that [`crate::Control`] is given; 0 for never.
    pub last_used_ms: u64,
}

/// Where the sums come from: the datapath, or a test.
pub trait SlotReader {
    /// The sums of one slot.
    fn read(&self, slot: u32) -> SlotStats;
}

impl<F: Fn(u32) -> SlotStats> SlotReader for F {
    fn read(&self, slot: u32) -> SlotStats {
        self(slot)
    }
}

/// Slots that were given up together, to be cleared and then handed back with
/// [`crate::Control::recycle_slots`].
#[derive(Default, Debug)]
#[must_use = "slots that are not handed back are lost"]
pub struct RetiredSlots(pub(crate) Vec<u32>);

impl RetiredSlots {
    /// The numbers.
    pub fn slots(&self) -> &[u32] {
        &self.0
    }

    /// Takes up to `max` of them away, to be handed back before the others.
    pub fn take(&mut self, max: usize) -> RetiredSlots {
        RetiredSlots(self.0.split_off(self.0.len().saturating_sub(max)))
    }
}

#[derive(Default, Debug)]
pub(crate) struct SlotAllocator {
    next: u32,
    free: Vec<u32>,
    retired: Vec<u32>,
}

impl SlotAllocator {
    pub(crate) fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    pub(crate) fn retire(&mut self, slot: u32) {
        self.retired.push(slot);
    }

    pub(crate) fn take_retired(&mut self) -> RetiredSlots {
        RetiredSlots(std::mem::take(&mut self.retired))
    }

    pub(crate) fn recycle(&mut self, batch: RetiredSlots) {
        self.free.extend(batch.0);
    }

    /// One more than the highest number ever given out.
    pub(crate) fn high_water(&self) -> u32 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_slot_comes_back_only_when_recycled() {
        let mut slots = SlotAllocator::default();
        let (a, b) = (slots.allocate(), slots.allocate());
        assert_ne!(a, b);
        slots.retire(a);
        let batch = slots.take_retired();
        assert_eq!(batch.slots(), [a]);
        assert_ne!(slots.allocate(), a);
        slots.recycle(batch);
        assert_eq!(slots.allocate(), a);
    }
}

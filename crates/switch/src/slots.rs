//! Counter slots: the numbers under which workers count packets for rules, tables, patch ports and MAC
//! entries.
//!
//! The switch allocates and frees numbers; the datapath does the counting, in one slab per worker. Flows that
//! workers have cached may still credit a released number, so it is not reused before the datapath reports
//! that every worker has passed a grace period and folded its flows once: the owner of the control side takes
//! the batch of retired numbers, has them folded and cleared, and returns the batch.
//!
//! A rule with new counters that replaces another still inherits its time of last use. The other's slot is
//! the *predecessor*, and is also read until its counts are final.
//!
//! Threads: the control thread only.

use std::collections::HashMap;

/// Counts of one slot, over all workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// When it was last used, in milliseconds of [`crate::Control`]'s clock; 0 for never.
    pub last_used_ms: u64,
}

/// The source of the totals: the datapath, or a test.
pub trait SlotReader {
    /// The totals of one slot.
    fn read(&self, slot: u32) -> SlotStats;
}

impl<F: Fn(u32) -> SlotStats> SlotReader for F {
    fn read(&self, slot: u32) -> SlotStats {
        self(slot)
    }
}

/// Knows of no use.
pub(crate) fn unused(_slot: u32) -> SlotStats {
    SlotStats::default()
}

/// Slots that were released together; clear them and return them with [`crate::Control::recycle_slots`].
#[derive(Default, Debug)]
#[must_use = "slots that are not handed back are lost"]
pub struct RetiredSlots(pub(crate) Vec<u32>);

impl RetiredSlots {
    /// The numbers, most recently released first.
    pub fn slots(&self) -> &[u32] {
        &self.0
    }

    /// Splits off up to `max` of them, those released first, to be returned before the others.
    pub fn take(&mut self, max: usize) -> RetiredSlots {
        RetiredSlots(self.0.split_off(self.0.len().saturating_sub(max)))
    }
}

#[derive(Default, Debug)]
pub(crate) struct SlotAllocator {
    next: u32,
    free: Vec<u32>,
    retired: Vec<u32>,
    /// By inheriting slot: the slot whose last use it inherits.
    predecessors: HashMap<u32, u32>,
    /// The reverse.
    heirs: HashMap<u32, u32>,
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

    /// Releases a slot whose last use another inherits.
    pub(crate) fn retire_for(&mut self, slot: u32, heir: u32) {
        self.retire(slot);
        self.predecessors.insert(heir, slot);
        self.heirs.insert(slot, heir);
    }

    pub(crate) fn heir(&self, slot: u32) -> Option<u32> {
        self.heirs.get(&slot).copied()
    }

    /// The slots whose last uses this one inherits and that are not final, latest first.
    pub(crate) fn predecessors(&self, slot: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(self.predecessors.get(&slot), |slot| self.predecessors.get(slot)).copied()
    }

    /// When the owner of a slot was last used.
    pub(crate) fn last_used_ms(&self, slot: u32, slots: &dyn SlotReader) -> u64 {
        let all = std::iter::once(slot).chain(self.predecessors(slot));
        all.map(|slot| slots.read(slot).last_used_ms).max().unwrap_or(0)
    }

    pub(crate) fn take_retired(&mut self) -> RetiredSlots {
        self.retired.reverse();
        RetiredSlots(std::mem::take(&mut self.retired))
    }

    pub(crate) fn recycle(&mut self, batch: RetiredSlots) {
        if !self.heirs.is_empty() {
            for slot in &batch.0 {
                if let Some(heir) = self.heirs.remove(slot) {
                    self.predecessors.remove(&heir);
                }
                if let Some(predecessor) = self.predecessors.remove(slot) {
                    self.heirs.remove(&predecessor);
                }
            }
        }
        self.free.extend(batch.0);
    }

    /// Gives out so many at once.
    #[cfg(test)]
    pub(crate) fn allocate_many(&mut self, count: u32) -> RetiredSlots {
        RetiredSlots((0..count).map(|_| self.allocate()).collect())
    }

    /// How many are given out, or wait to be recycled.
    pub(crate) fn in_use(&self) -> u32 {
        self.next - self.free.len() as u32
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
        assert_eq!(slots.in_use(), 3);
        slots.recycle(batch);
        assert_eq!(slots.in_use(), 2);
        assert_eq!(slots.allocate(), a);
        assert_eq!((slots.in_use(), slots.high_water()), (3, 3));
    }

    #[test]
    fn a_slot_inherits_from_those_that_are_not_final() {
        let used = |slot: u32| SlotStats { last_used_ms: 100 - u64::from(slot), ..SlotStats::default() };
        let mut slots = SlotAllocator::default();
        let (a, b, c) = (slots.allocate(), slots.allocate(), slots.allocate());
        slots.retire_for(a, b);
        slots.retire_for(b, c);
        assert_eq!(slots.last_used_ms(c, &used), 100);
        let mut all = slots.take_retired();
        let first = all.take(1);
        assert_eq!((first.slots(), slots.heir(a)), (&[a][..], Some(b)), "the one given up first");
        slots.recycle(first);
        assert_eq!(slots.last_used_ms(c, &used), 99);
        slots.recycle(all);
        assert_eq!(slots.last_used_ms(c, &used), 98);
        assert_eq!((slots.heir(a), slots.heir(b)), (None, None));
    }
}

//! What the keys of plain packets say beside their bytes: their port, [origin](super::origins) and depth.

use super::FlowCache;
use super::entry::{EntryKey, PLAIN_ORIGIN};
use super::origins::{Origin, SLOT_BITS};
use crate::ports::InputIdx;
use flow::Depth;
use flow::extract::origin_of_plain;

/// Number of bits for a depth in a plain key.
const DEPTH_BITS: u32 = 3;

impl FlowCache {
    /// The number in plain packets' keys, which encodes their origin and the depth to which they are read.
    /// `None` if their port has run out of origin numbers: they are then looked up by their whole keys.
    #[inline(always)]
    pub fn plain_origin(&mut self, input: InputIdx, origin: Origin, depth: Depth) -> Option<u64> {
        let slot = self.inputs[input.0 as usize].origins.slot(origin, &self.secret)?;
        let number = u64::from(input.0) << SLOT_BITS | u64::from(slot);
        Some(PLAIN_ORIGIN | number << DEPTH_BITS | depth as u64)
    }

    /// What the key of a plain exact entry encodes about its packets' origin, if it is this one.
    pub fn origin_of(&self, entry: u32, input: InputIdx, origin: &Origin) -> Option<u64> {
        let key = self.exact.entries[entry as usize].key;
        let said = origin_of_plain(&key.0);
        let number = (said & !PLAIN_ORIGIN) >> DEPTH_BITS;
        let is_its = key.is_plain()
            && number >> SLOT_BITS == u64::from(input.0)
            && self.inputs[input.0 as usize].origins.is(number as u8, origin);
        is_its.then_some(said)
    }

    /// The number of entries that have the origin in a plain key.
    pub(super) fn origin_entries(&mut self, key: &EntryKey) -> &mut u32 {
        let number = (origin_of_plain(&key.0) & !PLAIN_ORIGIN) >> DEPTH_BITS;
        self.inputs[(number >> SLOT_BITS) as usize].origins.entries(number as u8)
    }
}

//! What a cache takes in memory, for commands that show it.

use super::entry::Entry;
use super::{FlowCache, StoredBlock};

/// Figures about a cache, for `dpctl/show` and memory reports.
#[derive(Clone, Copy, Default, Debug)]
pub struct CacheSize {
    /// Megaflows.
    pub megaflows: usize,
    /// Exact entries.
    pub exact: usize,
    /// Distinct masks.
    pub masks: usize,
    /// Bytes in use: entries, indexes, bodies, keys.
    pub bytes: usize,
    /// Entries evicted because their buckets were full or the limit was reached.
    pub evictions: u64,
}

impl FlowCache {
    /// Sizes and memory.
    pub fn size(&self) -> CacheSize {
        // If all keys are plain, the exact tier's blocks are not touched.
        let blocks = self.mega.high as usize * size_of::<StoredBlock>();
        let entries = (self.exact.high + self.mega.high) as usize * size_of::<Entry>() + blocks;
        let indexes = self.exact.index.memory_bytes() + self.mega.index.memory_bytes();
        let beside = self.bodies.memory_bytes()
            + self.arena.memory_bytes()
            + self.firsts.memory_bytes()
            + self.trails.memory_bytes();
        CacheSize {
            megaflows: self.mega.live(),
            exact: self.exact.live(),
            masks: self.masks[1..].iter().filter(|m| m.flows > 0).count(),
            bytes: entries + indexes + beside,
            evictions: self.evictions,
        }
    }
}

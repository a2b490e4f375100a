//! Where packets of an exact entry went that were tracked and came round again: their connection, and the
//! exact entry of the next round.
//!
//! Both are most likely the same for the next packet. A trail is a guess and is believed in nothing: whoever
//! follows it compares the connection's generation, the origin and the entry's key.

use crate::conntrack::Found;
use base::region::{Region, prefetch_at};

/// See the module's text. All zeros is none: no connection has that generation.
#[derive(Clone, Copy, PartialEq, Debug, zerocopy::FromZeros)]
#[repr(C, align(32))]
pub struct Trail {
    pub(crate) connection: Found,
    /// What the next round's keys say of where its packets come from, see
    /// [`plain_origin`](super::FlowCache::plain_origin).
    pub origin: u64,
    /// The exact entry of the next round.
    pub next: u32,
}

/// By exact entry, those of plain packets.
pub struct Trails {
    all: Region<Trail>,
    high: u32,
}

impl Trails {
    pub fn new(limit: usize) -> std::io::Result<Trails> {
        Ok(Trails { all: Region::new(limit + 1)?, high: 0 })
    }

    /// Has one fetched.
    #[inline(always)]
    pub fn prefetch(&self, entry: u32) {
        prefetch_at(&self.all, entry as usize);
    }

    #[inline(always)]
    pub fn get(&self, entry: u32) -> Trail {
        self.all[entry as usize]
    }

    /// Packets of an entry went there.
    pub(crate) fn set(&mut self, entry: u32, trail: Trail) {
        self.high = self.high.max(entry);
        self.all[entry as usize] = trail;
    }

    /// The entry is another flow's from now on.
    pub(super) fn forget(&mut self, entry: u32) {
        if entry <= self.high {
            self.all[entry as usize] = zerocopy::FromZeros::new_zeroed();
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.high as usize * size_of::<Trail>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_trails_share_a_line() {
        assert_eq!(size_of::<Trail>(), 32);
    }
}

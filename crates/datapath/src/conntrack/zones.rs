//! How many connections each zone has, and how many it may have.
//!
//! Threads: workers count, the control thread sets limits. Every count and limit is a word of its own.

use base::region::Region;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

const ZONES: usize = 1 << 16;
/// A word with this bit set holds a limit; 0 means no limit.
const LIMITED: u64 = 1 << 32;

/// See the module documentation.
pub(crate) struct Zones {
    counts: Region<AtomicU32>,
    limits: Region<AtomicU64>,
    default_limit: AtomicU64,
    policies: Region<AtomicU32>,
}

fn limit_of(word: &AtomicU64) -> Option<u32> {
    let word = word.load(Relaxed);
    (word & LIMITED != 0).then_some(word as u32)
}

impl Zones {
    pub fn new() -> std::io::Result<Zones> {
        let (counts, limits, policies) =
            (Region::scattered(ZONES)?, Region::scattered(ZONES)?, Region::scattered(ZONES)?);
        Ok(Zones { counts, limits, default_limit: AtomicU64::new(0), policies })
    }

    pub fn count(&self, zone: u16) -> u32 {
        self.counts[usize::from(zone)].load(Relaxed)
    }

    /// Counts one more connection, unless the zone has reached its limit.
    pub fn enter(&self, zone: u16) -> bool {
        let count = &self.counts[usize::from(zone)];
        let before = count.fetch_add(1, Relaxed);
        if self
            .limit(zone)
            .or_else(|| limit_of(&self.default_limit))
            .is_some_and(|limit| limit != 0 && before >= limit)
        {
            count.fetch_sub(1, Relaxed);
            return false;
        }
        true
    }

    pub fn leave(&self, zone: u16) {
        self.counts[usize::from(zone)].fetch_sub(1, Relaxed);
    }

    /// The timeout policy of the zone's new connections.
    pub fn policy(&self, zone: u16) -> u32 {
        self.policies[usize::from(zone)].load(Relaxed)
    }

    pub fn set_policy(&self, zone: u16, policy: u32) {
        self.policies[usize::from(zone)].store(policy, Relaxed);
    }

    /// The zone's own limit.
    pub fn limit(&self, zone: u16) -> Option<u32> {
        limit_of(&self.limits[usize::from(zone)])
    }

    /// The limit of zones that have none of their own.
    pub fn default_limit(&self) -> Option<u32> {
        limit_of(&self.default_limit)
    }

    pub fn set_limit(&self, zone: u16, limit: Option<u32>) {
        self.limits[usize::from(zone)].store(limit.map_or(0, |limit| LIMITED | u64::from(limit)), Relaxed);
    }

    pub fn set_default_limit(&self, limit: Option<u32>) {
        self.default_limit.store(limit.map_or(0, |limit| LIMITED | u64::from(limit)), Relaxed);
    }

    /// The zones that have limits of their own, in order.
    pub fn limited(&self) -> impl Iterator<Item = (u16, u32)> {
        (0..=u16::MAX).filter_map(|zone| Some((zone, self.limit(zone)?)))
    }
}

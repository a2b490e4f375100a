//! How large a worker's caches may become, and how long an idle flow stays.

/// No cache is asked for more flows: their address space must be mapped, some 1.2 kB for each.
pub const FLOW_LIMIT_MAX: usize = 1 << 24;

/// Limits of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Maximum number of megaflows, and half the maximum number of exact entries: a tracked packet has one
    /// entry before tracking and one after. 0: nothing is cached, every packet is translated. Otherwise from
    /// 64 to [`FLOW_LIMIT_MAX`]; others mean the nearest.
    pub flow_limit: usize,
    /// A flow unused for this long is removed.
    pub max_idle_ms: u32,
}

impl CacheConfig {
    /// Whether anything is cached.
    pub(super) fn caches(&self) -> bool {
        self.flow_limit > 0
    }

    /// Most megaflows, if anything is cached.
    pub(super) fn mega_limit(&self) -> usize {
        self.flow_limit.clamp(64, FLOW_LIMIT_MAX)
    }

    /// Most exact entries.
    pub(super) fn exact_limit(&self) -> usize {
        2 * self.mega_limit()
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig { flow_limit: 2_000_000, max_idle_ms: 10_000 }
    }
}

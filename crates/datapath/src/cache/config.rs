//! How large a worker's caches may become, and how long an idle flow stays.

/// Limits of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Maximum number of megaflows, and half the maximum number of exact entries: a tracked packet has one
    /// entry before tracking and one after.
    pub flow_limit: usize,
    /// A flow unused for this long is removed.
    pub max_idle_ms: u32,
}

impl CacheConfig {
    /// Most exact entries.
    pub(super) fn exact_limit(&self) -> usize {
        2 * self.flow_limit.max(64)
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig { flow_limit: 2_000_000, max_idle_ms: 10_000 }
    }
}

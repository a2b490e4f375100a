//! How large a worker's caches may become, and how long an idle flow stays.

/// Limits of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Most megaflows, and most exact entries (each).
    pub flow_limit: usize,
    /// A flow unused for this long is removed.
    pub max_idle_ms: u32,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig { flow_limit: 2_000_000, max_idle_ms: 10_000 }
    }
}

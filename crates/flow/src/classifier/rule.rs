//! The classifier's internal form of a rule.

use base::Version;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the classifier stores of a rule, besides the matched words and the owner's data.
pub(super) struct Rule<R> {
    /// First version that sees it.
    pub appears: Version,
    /// First version that does not see it any more.
    pub vanishes: AtomicU64,
    pub priority: i32,
    pub data: R,
}

impl<R> Rule<R> {
    #[inline(always)]
    pub fn is_visible(&self, version: Version) -> bool {
        // Relaxed: a change of `vanishes` concerns only versions that are published (Release) after it.
        self.appears <= version && version.0 < self.vanishes.load(Ordering::Relaxed)
    }
}

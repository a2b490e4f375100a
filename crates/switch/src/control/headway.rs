//! How far transactions move the version.

/// By how much transactions move the version: together by so much per millisecond, of which so much may be
/// saved; and by a minimum each. However often clients commit, that is far less in a second, in which workers
/// visit their cached flows, than the 2^31 that no flow may be old.
const VERSIONS_PER_MS: u64 = 1 << 14;
const VERSIONS_SAVED_MAX: u64 = 1 << 24;
pub(super) const VERSIONS_AHEAD_MIN: u64 = 1 << 11;

/// How far the next transactions may move the version.
pub(crate) struct Headway {
    left: u64,
    at_ms: u64,
}

impl Headway {
    pub const WHOLE: Headway = Headway { left: VERSIONS_SAVED_MAX, at_ms: 0 };

    /// Takes so many versions at `now_ms`, or fewer.
    pub fn take(&mut self, wanted: u64, now_ms: u64) -> u64 {
        let gained = now_ms.saturating_sub(self.at_ms).saturating_mul(VERSIONS_PER_MS);
        self.left = self.left.saturating_add(gained).min(VERSIONS_SAVED_MAX);
        self.at_ms = self.at_ms.max(now_ms);
        let taken = wanted.min(self.left).max(VERSIONS_AHEAD_MIN);
        self.left = self.left.saturating_sub(taken);
        taken
    }
}

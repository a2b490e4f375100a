//! Flows that are cached in the exact tier alone: those for which there is no mask, or whose mask says more
//! than the packets' header bytes.

use super::{ExactKey, FlowCache, FlowRef, MASK_EXACT, ShortVersion, Which};
use crate::conntrack;
use base::Version;
use flow::Mask;

impl FlowCache {
    /// The exact entry of this version for a packet whose flow is cached in the exact tier alone. Also for
    /// the slow path.
    #[inline(always)]
    pub fn alone_search<'k>(&self, key: impl FnOnce() -> ExactKey<'k>, version: Version) -> u32 {
        if !self.has_alone() {
            return 0;
        }
        let key = key();
        let idx = self.exact_find(self.exact_probe(&key).0, &key);
        if idx != 0 && self.exact.entries[idx as usize].version == ShortVersion::of(version) {
            idx
        } else {
            0
        }
    }

    /// Whether there are such flows.
    #[inline(always)]
    pub fn has_alone(&self) -> bool {
        self.masks[usize::from(MASK_EXACT)].bodies != 0
    }

    /// Caches a flow with this mask in the exact tier alone.
    pub(super) fn install_alone(&mut self, exact: &ExactKey<'_>, mask: &Mask, from: &FlowRef) -> Option<u32> {
        if exact.is_packed() && conntrack::reads_original(mask) {
            return None;
        }
        let (hash, _) = self.exact_probe(exact);
        // An entry that was not looked up in this burst, or was not found to be right.
        let old = self.exact_find(hash, exact);
        if old != 0 {
            self.remove(Which::Exact, old);
        }
        self.insert_exact(exact, hash, from)
    }

    /// Whether flows of a mask differ in something that the header bytes of plain packets do not contain: the
    /// tuple that opened their connection.
    pub fn is_too_narrow_for(&self, mask: u16, key: &ExactKey<'_>) -> bool {
        key.is_packed() && conntrack::reads_original(&self.masks[usize::from(mask)].mask)
    }
}

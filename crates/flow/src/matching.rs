//! A match: a mask, and a key of which only the bits under the mask are meaningful.

use crate::field::FieldId;
use crate::key::{Key, Mask};
use crate::option_match::OptionMatches;

/// What a rule matches. Bits of `key` outside `mask` are zero.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Match {
    /// The bits to match.
    pub key: Key,
    /// Which bits matter.
    pub mask: Mask,
    /// Tunnel options without a place in the key, because no bridge's table is known. Only matches on their
    /// way from or to a message or a text have any; [`Match::matches`] and the like ignore them.
    pub options: OptionMatches,
}

impl Match {
    /// Matches everything.
    pub fn any() -> Match {
        Match::default()
    }

    /// From a key that may have bits set outside the mask.
    pub fn new(key: &Key, mask: Mask) -> Match {
        Match { key: key.masked(&mask), mask, options: OptionMatches::default() }
    }

    /// Adds: the field equals `value`.
    pub fn with(mut self, field: FieldId, value: u128) -> Match {
        self.set_masked(field, value, field.ones());
        self
    }

    /// Adds: the field equals `value` on the bits of `mask`.
    pub fn with_masked(mut self, field: FieldId, value: u128, mask: u128) -> Match {
        self.set_masked(field, value, mask);
        self
    }

    /// Replaces what is matched of the field.
    pub fn set_masked(&mut self, field: FieldId, value: u128, mask: u128) {
        self.key.set(field, value & mask);
        self.mask.set(field, mask);
    }

    /// Whether the key matches.
    pub fn matches(&self, key: &Key) -> bool {
        key.equal_under(&self.key, &self.mask)
    }

    /// Whether every key that matches `self` matches `other` too ("`other` is looser or equal"): what a
    /// non-strict OpenFlow command selects. OpenFlow 1.0 section 4.6.
    pub fn is_within(&self, other: &Match) -> bool {
        self.mask.covers(&other.mask) && self.key.equal_under(&other.key, &other.mask)
    }

    /// Whether some key matches both.
    pub fn overlaps(&self, other: &Match) -> bool {
        let common = self.mask.intersect(&other.mask);
        self.key.equal_under(&other.key, &common)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_and_overlap_follow_the_sets_of_keys() {
        let net = Match::any().with_masked(FieldId::NwSrc, 0x0a00_0000, 0xff00_0000);
        let host = Match::any().with(FieldId::NwSrc, 0x0a00_0001);
        let port = Match::any().with(FieldId::InPort, 3);
        assert!(host.is_within(&net) && !net.is_within(&host));
        assert!(net.overlaps(&port) && net.overlaps(&host));
        assert!(!host.overlaps(&Match::any().with(FieldId::NwSrc, 2)));
        let mut key = Key::default();
        key.set(FieldId::NwSrc, 0x0a00_0001);
        assert!(host.matches(&key) && !port.matches(&key));
    }
}

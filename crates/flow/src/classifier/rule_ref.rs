//! The classifier's public reference to a rule.

use super::rule::Rule;
use super::subtable::{Part, Subtable};
use crate::field::FieldId;
use crate::key::{Key, Mask};
use crate::matching::Match;
use base::Version;
use base::multimap::Entry;
use std::sync::atomic::Ordering;

/// A rule in a classifier, borrowed from it and from the reader's token.
pub struct RuleRef<'g, R: Send + Sync + 'static> {
    pub(super) entry: Entry<'g, Rule<R>>,
    pub(super) subtable: &'g Subtable<R>,
}

impl<R: Send + Sync + 'static> Clone for RuleRef<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R: Send + Sync + 'static> Copy for RuleRef<'_, R> {}

impl<R: Send + Sync + 'static> std::fmt::Debug for RuleRef<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleRef")
            .field("priority", &self.priority())
            .field("appears", &self.appears())
            .field("vanishes", &self.vanishes())
            .field("match", &self.to_match())
            .finish()
    }
}

impl<'g, R: Send + Sync + 'static> RuleRef<'g, R> {
    /// What the owner stored with the rule.
    #[inline(always)]
    pub fn data(&self) -> &'g R {
        &self.entry.value.data
    }

    /// The rule's priority; higher wins.
    #[inline(always)]
    pub fn priority(&self) -> i32 {
        self.entry.value.priority
    }

    /// The first version that sees it.
    pub fn appears(&self) -> Version {
        self.entry.value.appears
    }

    /// The first version that does not see it any more; [`Version::NEVER`] while it is not removed.
    pub fn vanishes(&self) -> Version {
        Version(self.entry.value.vanishes.load(Ordering::Relaxed))
    }

    /// Whether lookups at `version` see it.
    pub fn is_visible(&self, version: Version) -> bool {
        self.entry.value.is_visible(version)
    }

    /// Whether the two are one and the same rule (not merely equal).
    pub fn is(&self, other: &RuleRef<'_, R>) -> bool {
        std::ptr::eq(self.entry.value, other.entry.value)
    }

    /// The rule's mask, as rules with the same mask share it.
    pub fn mask(&self) -> &'g Mask {
        &self.subtable.mask
    }

    /// The rule's match, written out in full.
    pub fn to_match(&self) -> Match {
        let mut key = Key::default();
        for (part, value) in self.subtable.parts.iter().zip(self.entry.words) {
            let word = key.word(part.block(), part.word());
            key.set_word(part.block(), part.word(), word | value);
        }
        // The same as `Match::new` would make: the key has exactly the blocks of the mask.
        Match::new(&key, self.subtable.mask.clone())
    }

    /// Whether every key that matches the rule matches `other` too: what a non-strict command selects.
    pub fn is_within(&self, other: &Match) -> bool {
        self.subtable.covers(other) && self.agrees(other)
    }

    /// Whether some key matches both the rule and `other`.
    pub fn overlaps(&self, other: &Match) -> bool {
        self.agrees(other)
    }

    /// As [`Match::packet_type`].
    fn packet_type(&self) -> (u64, u64) {
        let place = FieldId::PacketType.place();
        let ones = FieldId::PacketType.ones() as u64;
        let is_it = |part: &Part| (part.block(), part.word()) == (place.block.into(), place.word.into());
        let parts = self.subtable.parts.iter().zip(self.entry.words).filter(|(part, _)| is_it(part));
        let matched = parts.fold((0, 0), |all, (part, value)| (all.0 | value, all.1 | part.mask));
        if self.subtable.implies_ethernet { (0, ones) } else { (matched.0 & ones, matched.1 & ones) }
    }

    /// Whether the two have the same value in each bit that both match.
    pub(super) fn agrees(&self, other: &Match) -> bool {
        let ((mine, mask), (others, others_mask)) = (self.packet_type(), other.packet_type());
        (mine ^ others) & mask & others_mask == 0
            && self.subtable.parts.iter().zip(self.entry.words).all(|(part, value)| {
                let (b, w) = (part.block(), part.word());
                (value ^ other.key.word(b, w)) & other.mask.0.word(b, w) & part.mask == 0
            })
    }
}

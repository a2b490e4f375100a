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
            && (key.get64(FieldId::PacketType) == 0 || !self.mask.implies_ethernet())
    }

    /// Value and mask of the packet type, which a match on fields of frames implies to be Ethernet.
    pub fn packet_type(&self) -> (u64, u64) {
        let ones = FieldId::PacketType.ones() as u64;
        let mask =
            if self.mask.implies_ethernet() { ones } else { self.mask.get(FieldId::PacketType) as u64 };
        (self.key.get64(FieldId::PacketType) & mask, mask)
    }

    /// Leaves the packet type out where the rest of the match implies it, so that equal matches are equal.
    pub fn imply_packet_type(&mut self) {
        if self.packet_type() == (0, FieldId::PacketType.ones() as u64) {
            self.mask.set(FieldId::PacketType, 0);
            if !self.mask.implies_ethernet() {
                self.mask.add_exact(FieldId::PacketType);
            }
        }
    }

    /// Whether every key that matches `self` matches `other` too ("`other` is looser or equal"): what a
    /// non-strict OpenFlow command selects. OpenFlow 1.0 section 4.6.
    pub fn is_within(&self, other: &Match) -> bool {
        let ((mine, my_mask), (others, others_mask)) = (self.packet_type(), other.packet_type());
        let mut mask = self.mask.clone();
        mask.add(FieldId::PacketType, my_mask.into());
        mask.covers(&other.mask)
            && self.key.equal_under(&other.key, &other.mask)
            && others_mask & !my_mask == 0
            && (mine ^ others) & others_mask == 0
    }

    /// Whether some key matches both.
    pub fn overlaps(&self, other: &Match) -> bool {
        let common = self.mask.intersect(&other.mask);
        let ((mine, my_mask), (others, others_mask)) = (self.packet_type(), other.packet_type());
        self.key.equal_under(&other.key, &common) && (mine ^ others) & my_mask & others_mask == 0
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

    #[test]
    fn a_match_on_fields_of_frames_is_one_on_frames() {
        let (frame, bare) = (Key::default(), 0x0001_0800);
        let mut bare_key = Key::default();
        bare_key.set(FieldId::PacketType, bare);
        let typed = Match::any().with(FieldId::PacketType, bare);
        for of_frames in [
            Match::any().with(FieldId::EthType, 0),
            Match::any().with(FieldId::VlanTci, 0),
            Match::any().with(FieldId::EthSrc, 0),
            Match::any().with(FieldId::Ipv6Src, 0),
            Match::any().with(FieldId::NshMdtype, 0),
        ] {
            assert!(of_frames.matches(&frame) && !of_frames.matches(&bare_key), "{of_frames:?}");
            assert!(of_frames.is_within(&Match::any().with(FieldId::PacketType, 0)), "{of_frames:?}");
            assert!(!of_frames.is_within(&typed) && !of_frames.overlaps(&typed), "{of_frames:?}");
            let mut explicit = of_frames.clone().with(FieldId::PacketType, 0);
            explicit.imply_packet_type();
            assert_eq!(explicit, of_frames);
        }
        for any in [Match::any(), Match::any().with(FieldId::InPort, 0), Match::any().with(FieldId::Reg0, 0)]
        {
            assert!(any.matches(&frame) && any.matches(&bare_key) && any.overlaps(&typed), "{any:?}");
            let mut explicit = any.clone().with(FieldId::PacketType, 0);
            explicit.imply_packet_type();
            assert_ne!(explicit, any);
        }
        assert!(typed.clone().with(FieldId::NwSrc, 0).matches(&bare_key));
    }
}

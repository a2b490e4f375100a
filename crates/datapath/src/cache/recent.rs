//! Megaflows that bursts hit lately, each with its mask and key as plain packets' packed keys show them.
//!
//! The packets of a burst that do not hit the exact tier often belong to the same wide megaflow: openings of
//! connections, or a flood that a rule drops. A packed key that agrees with that megaflow's under its mask
//! belongs to it; so its packet is neither extracted nor looked up.
//!
//! There is a place for a burst's origin and depth; others with the same hash take turns. What it holds is a
//! hint: before each burst, the cache checks that the entry is still the same megaflow and is up to date.

use super::entry::Decision;
use super::origins::Origin;
use crate::ports::InputIdx;
use flow::Depth;
use flow::extract::PlainKey;

/// Places, a power of two.
const PLACES: usize = 32;

/// What the packets of a burst have in common.
#[derive(Clone, Copy, PartialEq)]
pub struct Shared {
    pub input: InputIdx,
    pub origin: Origin,
    pub depth: Depth,
}

/// A megaflow by which packets of the present burst may leave.
#[derive(Clone, Copy)]
pub struct Recent {
    pub(super) key: PlainKey,
    pub(super) mask: PlainKey,
    pub megaflow: u32,
    pub decision: Decision,
}

impl Recent {
    /// Whether a plain packet of the burst belongs to the megaflow.
    #[inline(always)]
    pub fn has(&self, key: &PlainKey) -> bool {
        (0..4).fold(0, |differing, w| differing | (self.key[w] ^ key[w]) & self.mask[w]) == 0
    }
}

/// What is remembered for packets like these.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// `None`: nothing.
    pub of: Option<Shared>,
    pub key: PlainKey,
    pub mask: PlainKey,
    pub megaflow: u32,
    pub serial: u64,
}

/// See the module documentation.
pub struct Recents([Place; PLACES]);

impl Recents {
    pub fn new() -> Recents {
        Recents([Place { of: None, key: [0; 4], mask: [0; 4], megaflow: 0, serial: 0 }; PLACES])
    }

    #[inline(always)]
    pub(super) fn place(&mut self, of: &Shared) -> &mut Place {
        let n = of.origin.scattered() ^ of.input.0;
        &mut self.0[n as usize % PLACES]
    }
}

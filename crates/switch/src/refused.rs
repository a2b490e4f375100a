//! Rules that `learn` could not add lately: as many as its limit allows are there, or the table is full.
//!
//! Without this list each packet of such a flow would be handed to the control thread, in vain. A flow whose
//! rule is known to be refused is cached like any other, and visits [`REFUSED`]. After [`KEPT_MS`], and when
//! rules are deleted, the control thread forgets the list, and the next packet of each such flow asks again.

#[cfg(doc)]
use crate::changelog::word_table::REFUSED;
use crate::topology::BridgeIdx;

/// How long a refusal holds.
pub(crate) const KEPT_MS: u64 = 1_000;
/// More are not remembered.
const REFUSED_MAX: usize = 256;

/// Which rules: those with a cookie in a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Learned {
    pub bridge: BridgeIdx,
    pub table_id: u8,
    pub cookie: u64,
}

/// What cannot be learned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// With this limit or a lower one: there are that many rules.
    Limit(Learned, u32),
    /// A rule that is new in a table of a bridge.
    Full(BridgeIdx, u8),
}

/// See the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Refused(Vec<Refusal>);

impl Refused {
    /// Whether a rule is refused now that is to be learned with this limit (0: none), and is new or replaces
    /// one with the same match. If so, whether it would be within the limit, which is what `learn` stores as
    /// its result.
    pub fn of(&self, of: Learned, limit: u32, is_new: bool) -> Option<bool> {
        let is_at_limit = |r: &&Refusal| matches!(r, Refusal::Limit(l, max) if *l == of && limit <= *max);
        let is_full = |r: &&Refusal| matches!(r, Refusal::Full(b, t) if (*b, *t) == (of.bridge, of.table_id));
        if limit != 0 && self.0.iter().any(|r| is_at_limit(&r)) {
            return Some(false);
        }
        (is_new && self.0.iter().any(|r| is_full(&r))).then_some(true)
    }

    /// Adds one, unless there are too many. Whether it was added.
    pub fn add(&mut self, refusal: Refusal) -> bool {
        let is_new = self.0.len() < REFUSED_MAX && !self.0.contains(&refusal);
        if is_new {
            self.0.push(refusal);
        }
        is_new
    }

    /// The bridges of which rules are refused.
    pub fn bridges(&self) -> Vec<BridgeIdx> {
        let mut bridges: Vec<BridgeIdx> = self
            .0
            .iter()
            .map(|refusal| match refusal {
                Refusal::Limit(of, _) => of.bridge,
                Refusal::Full(bridge, _) => *bridge,
            })
            .collect();
        bridges.sort_unstable();
        bridges.dedup();
        bridges
    }
}

//! Which tracked connections to remove (NXT_CT_FLUSH).

use flow::CtTuples;

/// Selects connections to which everything given here applies; if nothing is given, all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CtFlush {
    /// The zone; without it, zone 0 if a tuple is given.
    pub zone: Option<u16>,
    /// The protocol, addresses and ports.
    pub tuples: CtTuples,
}

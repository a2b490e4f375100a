//! The number of a bridge.

/// A bridge, by number. Numbers are reused after a bridge has been removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BridgeIdx(pub u32);

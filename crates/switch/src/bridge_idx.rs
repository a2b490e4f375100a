//! The number of a bridge.

/// A bridge, by number. Numbers are given out again after the bridge is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BridgeIdx(pub u32);

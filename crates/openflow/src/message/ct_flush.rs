//! Which tracked connections are to end (NXT_CT_FLUSH).

use flow::CtTuples;

/// Connections for which all that is said here holds; of nothing said, all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CtFlush {
    /// The zone; none names zone 0 where a tuple is said.
    pub zone: Option<u16>,
    /// The protocol, addresses and ports.
    pub tuples: CtTuples,
}

//! Why connections end.

use crate::error::OfError;
use crate::version::VersionSet;

/// Bytes of output above which the connection ends if there is another message that must not be lost: half a
/// million removed rules. The peer then knows that it does not know.
pub const OWED_MAX: usize = 64 << 20;

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// No version is common. The peer's versions.
    NoCommonVersion(VersionSet),
    /// The first message was no hello but this type.
    NoHello(u8),
    /// The peer refused with an error before saying hello.
    RefusedByPeer(OfError),
    /// A header gives a length of less than its own 8 bytes.
    BadLength(u16),
    /// No hello in time, or no answer to a probe.
    Silent,
    /// It does not take what it must be told: more than [`OWED_MAX`] waits.
    Behind,
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CloseReason::NoCommonVersion(theirs) => {
                write!(f, "no version is common: the peer speaks {}", theirs.describe())
            }
            CloseReason::NoHello(kind) => write!(f, "the first message is of type {kind}, not a hello"),
            CloseReason::RefusedByPeer(error) => write!(f, "the peer answered our hello with {error}"),
            CloseReason::BadLength(length) => {
                write!(f, "a message has length {length}, less than its header's 8 bytes")
            }
            CloseReason::Silent => f.write_str("the peer is silent"),
            CloseReason::Behind => {
                write!(f, "the peer is behind: over {} MB wait to be sent", OWED_MAX >> 20)
            }
        }
    }
}

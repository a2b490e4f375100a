//! The one error of this crate: which layer, and what was wrong with it.

use std::fmt;

/// Why bytes are not the header they were taken for, or a representation cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// `layer` takes `need` bytes, and there are `have`.
    Truncated {
        /// Protocol, in lower case: `"ipv4"`.
        layer: &'static str,
        /// Bytes that the header needs, according to the part that could be read.
        need: usize,
        /// Bytes available.
        have: usize,
    },
    /// A field's value is impossible.
    Invalid {
        /// Protocol, in lower case.
        layer: &'static str,
        /// Field, by its name in the standard.
        field: &'static str,
        /// The value found.
        value: u64,
    },
    /// An IPv6 packet has more extension headers than [`crate::ipv6_ext::EXT_HEADERS_MAX`].
    TooManyExtHeaders,
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, WireError>;

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { layer, need, have } => {
                write!(f, "{layer}: needs {need} bytes, there are {have}")
            }
            Self::Invalid { layer, field, value } => {
                write!(f, "{layer}: {field} cannot be {value} ({value:#x})")
            }
            Self::TooManyExtHeaders => write!(f, "ipv6: too many extension headers"),
        }
    }
}

impl std::error::Error for WireError {}

//! The errors that a switch sends, named as `ovs-ofctl` prints them.
//!
//! One table ([`ErrorKind`], in `table.rs`) gives the wire form of each in each version: some are the
//! standard's own from a version on and an extension's before; some do not exist in some versions.

mod table;

pub use table::ErrorKind;

use crate::version::Version;
use std::fmt;

/// Bytes of the request that an error carries: at least 64 in OpenFlow 1.0, up to 64 later. Section 4.4.
pub const ERROR_DATA_MAX: usize = 64;

/// The origin of an error's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ErrorVendor {
    /// The standard: type and code in the message's header.
    Standard = 0,
    /// The Nicira extensions.
    Nicira = 0x0000_2320,
    /// The Open Networking Foundation's extensions to 1.3.
    Onf = 0x4f4e_4600,
}

/// An error's numbers on the wire of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ErrorNumber {
    /// 0 for the standard's, or an experimenter's number.
    pub vendor: u32,
    /// Type.
    pub error_type: u16,
    /// Code; 0 in experimenters' errors of 1.2 and later, which have none.
    pub code: u16,
}

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorCode {
    /// One of the table's.
    Known(ErrorKind),
    /// Received, and not in the table.
    Unknown(ErrorNumber),
}

/// OFPT_ERROR.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfError {
    /// What is wrong.
    pub code: ErrorCode,
    /// The beginning of the message that is wrong, or, in a failed hello, text.
    pub data: Vec<u8>,
}

impl OfError {
    /// The error in answer to a request of these bytes.
    pub fn new(kind: ErrorKind, request: &[u8]) -> OfError {
        OfError { code: ErrorCode::Known(kind), data: request[..request.len().min(ERROR_DATA_MAX)].to_vec() }
    }

    /// The kind, if it is known.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self.code {
            ErrorCode::Known(kind) => Some(kind),
            ErrorCode::Unknown(_) => None,
        }
    }
}

impl fmt::Display for OfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            ErrorCode::Known(kind) => f.write_str(kind.name()),
            ErrorCode::Unknown(n) if n.vendor == 0 => write!(f, "type {}, code {}", n.error_type, n.code),
            ErrorCode::Unknown(n) => {
                write!(f, "experimenter {:#x}, type {}, code {}", n.vendor, n.error_type, n.code)
            }
        }
    }
}

impl std::error::Error for OfError {}

impl ErrorKind {
    /// The numbers in a version; `None` where the version has no such error.
    pub fn number(self, version: Version) -> Option<ErrorNumber> {
        let clauses = self.clauses();
        let clause = clauses.iter().rev().find(|c| c.0 < version as u8)?;
        clause.1.map(|(vendor, error_type, code)| ErrorNumber { vendor: vendor as u32, error_type, code })
    }

    /// The kind with these numbers in a version.
    pub fn from_number(version: Version, number: ErrorNumber) -> Option<ErrorKind> {
        Self::ALL.iter().copied().find(|k| k.number(version) == Some(number))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn numbers_are_unique_in_each_version_but_for_two_pairs_and_are_found_again() {
        let mut doubles = Vec::new();
        for version in Version::ALL {
            let mut seen = HashMap::new();
            for &kind in ErrorKind::ALL {
                if let Some(number) = kind.number(version) {
                    let first = *seen.entry(number).or_insert(kind);
                    assert_eq!(ErrorKind::from_number(version, number), Some(first), "{version} {kind}");
                    if first != kind {
                        doubles.push((version, kind.name()));
                    }
                }
            }
        }
        let expected = [
            (Version::V10, "OFPBRC_IS_SECONDARY"),
            (Version::V11, "OFPBIC_BAD_EXP_TYPE"),
            (Version::V11, "OFPBRC_IS_SECONDARY"),
        ];
        assert_eq!(doubles[..], expected);
    }

    #[test]
    fn the_errors_of_matches_moved_from_extension_to_standard() {
        let of10 = ErrorKind::OFPBMC_BAD_PREREQ.number(Version::V10).unwrap();
        assert_eq!((of10.vendor, of10.error_type, of10.code), (0x2320, 1, 0x104));
        let of13 = ErrorKind::OFPBMC_BAD_PREREQ.number(Version::V13).unwrap();
        assert_eq!((of13.vendor, of13.error_type, of13.code), (0, 4, 9));
    }
}

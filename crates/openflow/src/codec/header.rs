//! What the messages of a connection share: their header, and what was negotiated.

use crate::version::Version;

/// Bytes of the header of any message.
pub const HEADER_LEN: usize = 8;

/// The header of any message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Version, known or not.
    pub version: u8,
    /// Type.
    pub kind: u8,
    /// Length in bytes, header included.
    pub length: u16,
    /// Transaction id.
    pub xid: u32,
}

impl Header {
    /// Parses the first bytes; `None` if there are fewer than 8.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let b = bytes.first_chunk::<HEADER_LEN>()?;
        Some(Header {
            version: b[0],
            kind: b[1],
            length: u16::from_be_bytes([b[2], b[3]]),
            xid: u32::from_be_bytes([b[4], b[5], b[6], b[7]]),
        })
    }
}

/// Encodes and decodes for one version. What a connection agreed on besides the version is in here too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Codec {
    /// The version spoken.
    pub version: Version,
    /// Whether OpenFlow 1.0 flow-mods carry a table (NXT_FLOW_MOD_TABLE_ID).
    pub flow_mod_table_id: bool,
}

impl Codec {
    /// For a version, with nothing else negotiated.
    pub fn new(version: Version) -> Codec {
        Codec { version, flow_mod_table_id: false }
    }

    /// Whether the command of a flow-mod in Nicira's form names a table: from OpenFlow 1.1 on, always.
    pub(super) fn names_tables(&self) -> bool {
        self.flow_mod_table_id || self.version > Version::V10
    }
}

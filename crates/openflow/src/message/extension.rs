//! Bundles and the table of tunnel options.

use super::Message;

bitflags::bitflags! {
    /// OFPBF_*.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct BundleFlags: u16 {
        /// All or nothing.
        const ATOMIC = 1 << 0;
        /// In the order given.
        const ORDERED = 1 << 1;
    }
}

/// OFPBCT_*, with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum BundleControlType {
    OpenRequest = 0,
    OpenReply = 1,
    CloseRequest = 2,
    CloseReply = 3,
    CommitRequest = 4,
    CommitReply = 5,
    DiscardRequest = 6,
    DiscardReply = 7,
}

impl BundleControlType {
    /// From the number on the wire.
    pub fn from_wire(number: u16) -> Option<BundleControlType> {
        use BundleControlType::*;
        [
            OpenRequest,
            OpenReply,
            CloseRequest,
            CloseReply,
            CommitRequest,
            CommitReply,
            DiscardRequest,
            DiscardReply,
        ]
        .get(usize::from(number))
        .copied()
    }

    /// The reply to a request; `None` for replies.
    pub fn reply(self) -> Option<BundleControlType> {
        let number = self as u16;
        if number.is_multiple_of(2) { Self::from_wire(number + 1) } else { None }
    }
}

/// OFPT_BUNDLE_CONTROL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleControl {
    /// Chosen by the controller.
    pub bundle_id: u32,
    /// The command, or its confirmation.
    pub kind: BundleControlType,
    /// How to commit.
    pub flags: BundleFlags,
}

/// OFPT_BUNDLE_ADD_MESSAGE.
#[derive(Clone, PartialEq, Debug)]
pub struct BundleAdd {
    /// The bundle.
    pub bundle_id: u32,
    /// The same as when it was opened.
    pub flags: BundleFlags,
    /// Transaction id of the message within; it must be that of the message around it.
    pub xid: u32,
    /// What to do on commit.
    pub message: Box<Message>,
    /// The bytes of the message within, for the data of an error at commit.
    pub bytes: Vec<u8>,
}

/// One row of the table that maps tunnel options to `tun_metadata` fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct TlvMap {
    pub option_class: u16,
    pub option_type: u8,
    /// Length in bytes, a multiple of 4, at most 124.
    pub option_len: u8,
    /// Index of the `tun_metadata` field.
    pub index: u16,
}

/// NXT_TLV_TABLE_REPLY.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TlvTable {
    /// Bytes that all options together may take.
    pub max_option_space: u32,
    /// Most fields.
    pub max_fields: u16,
    /// The rows.
    pub maps: Vec<TlvMap>,
}

/// The command on rows (NXTTMC_*), with wire numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum TlvTableCommand {
    Add = 0,
    Delete = 1,
    Clear = 2,
}

/// NXT_TLV_TABLE_MOD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlvTableMod {
    /// The command.
    pub command: TlvTableCommand,
    /// The rows.
    pub maps: Vec<TlvMap>,
}

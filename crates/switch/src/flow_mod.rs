//! Flow-mods: changes of rules that a controller or `learn` requests, and why they are refused.

use crate::bridge_idx::BridgeIdx;
use crate::rule::RuleFlags;
use base::OfPort;
use flow::options::PlaceError;
use flow::{Action, Match, Mf};
use openflow::{ErrorKind, Version};

/// "All tables" in a deletion. In OpenFlow 1.0 also in a modification; in an addition it lets the switch
/// choose the table, which is 0.
pub const TABLE_ALL: u8 = 255;
/// The table that is hidden from controllers.
pub const TABLE_HIDDEN: u8 = 254;

/// OFPFC_*.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Adds a rule, or replaces the one with the same match and priority.
    Add,
    /// Changes the actions of all rules within the match.
    Modify,
    /// Changes the actions of the rule with this match and priority.
    ModifyStrict,
    /// Removes all rules within the match.
    Delete,
    /// Removes the rule with this match and priority.
    DeleteStrict,
}

/// One change to rules.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowMod {
    /// What to do.
    pub command: Command,
    /// The table, or [`TABLE_ALL`].
    pub table_id: u8,
    /// 0 to 65,535; the switch's own rules may have higher ones. Loose commands ignore it.
    pub priority: i32,
    /// Which packets.
    pub matching: Match,
    /// Modify and delete only rules with these bits of the cookie ...
    pub cookie: u64,
    /// ... under this mask.
    pub cookie_mask: u64,
    /// Cookie of what is added or modified. `None` in a modification: cookies stay, and if nothing matches,
    /// nothing is added.
    pub new_cookie: Option<u64>,
    /// Seconds; 0 for none.
    pub idle_timeout_s: u16,
    /// Seconds; 0 for none.
    pub hard_timeout_s: u16,
    /// Importance for eviction.
    pub importance: u16,
    /// Delete only rules that output to this port.
    pub out_port: Option<OfPort>,
    /// Delete only rules that use this group.
    pub out_group: Option<u32>,
    /// Flags. `hidden` means that the request comes from the switch itself, which may use any table and
    /// priority.
    pub flags: RuleFlags,
    /// Actions and instructions.
    pub actions: Vec<Action>,
    /// The protocol version of the request. OpenFlow 1.0 has fewer requirements for matches.
    pub version: Version,
}

impl FlowMod {
    /// The table that it adds to.
    pub(crate) fn added_to(&self) -> u8 {
        if self.table_id == TABLE_ALL { 0 } else { self.table_id }
    }

    /// An addition to table 0 with the default priority.
    pub fn add(matching: Match, actions: Vec<Action>) -> FlowMod {
        FlowMod {
            command: Command::Add,
            table_id: 0,
            priority: 0x8000,
            matching,
            cookie: 0,
            cookie_mask: 0,
            new_cookie: Some(0),
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            importance: 0,
            out_port: None,
            out_group: None,
            flags: RuleFlags::default(),
            actions,
            version: Version::V13,
        }
    }

    /// A deletion of everything within a match, in all tables.
    pub fn delete(matching: Match) -> FlowMod {
        let add = FlowMod::add(matching, Vec::new());
        FlowMod { command: Command::Delete, table_id: TABLE_ALL, new_cookie: None, ..add }
    }
}

/// Why a flow-mod was refused. Each is one error of OpenFlow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowModError {
    /// There is no such bridge (no error of OpenFlow: it has one connection per bridge).
    NoBridge(BridgeIdx),
    /// OFPFMFC_TABLE_FULL.
    TableFull,
    /// OFPFMFC_BAD_TABLE_ID, OFPBRC_EPERM for the hidden one.
    BadTableId(u8),
    /// OFPBRC_EPERM: `recirc_id` or `dp_hash` is matched.
    HiddenField,
    /// OFPFMFC_OVERLAP.
    Overlap,
    /// OFPBAC_BAD_OUT_PORT.
    BadOutPort(OfPort),
    /// OFPBAC_BAD_OUT_GROUP: there is no such group.
    BadOutGroup(u32),
    /// OFPMMFC_INVALID_METER: there is no such meter.
    BadMeter(u32),
    /// OFPBAC_BAD_ARGUMENT, with what is wrong.
    BadArgument(&'static str),
    /// OFPBAC_BAD_SET_TYPE: the field cannot be written.
    BadSetType(Mf),
    /// The actions do not fit the match or each other; the OpenFlow error says why.
    Actions(ErrorKind),
    /// A change of groups was refused, with this error of OpenFlow.
    Refused(ErrorKind),
    /// OFPBIC_BAD_TABLE_ID: goto_table must go forward.
    BadGoto(u8),
    /// NXFMFC_INVALID_TLV_FIELD: the bridge's table has no option for a `tun_metadata` field.
    UnmappedOption,
    /// OFPBMC_BAD_LEN: the match of an option is longer than the option.
    LongMatch,
    /// OFPBAC_BAD_SET_LEN: an action reaches beyond the end of an option.
    LongSet,
    /// OFPBAC_BAD_TYPE (or OFPBIC_UNSUP_INST): this is not implemented yet.
    Unsupported(&'static str),
}

impl std::fmt::Display for FlowModError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FlowModError::NoBridge(b) => write!(f, "there is no bridge with number {}", b.0),
            FlowModError::TableFull => write!(f, "the table is full"),
            FlowModError::BadTableId(t) => write!(f, "table {t} cannot be changed"),
            FlowModError::HiddenField => write!(f, "recirc_id and dp_hash are not for rules to match"),
            FlowModError::Overlap => write!(f, "a rule of the same priority overlaps"),
            FlowModError::BadOutPort(p) => write!(f, "port {} cannot be output to", p.0),
            FlowModError::BadOutGroup(g) => write!(f, "there is no group {g}"),
            FlowModError::BadMeter(m) => write!(f, "there is no meter {m}"),
            FlowModError::BadArgument(what) => write!(f, "bad argument: {what}"),
            FlowModError::BadSetType(mf) => write!(f, "{} cannot be written", mf.name()),
            FlowModError::Actions(kind) => write!(f, "the actions do not go with the match: {kind}"),
            FlowModError::Refused(kind) => write!(f, "refused: {kind}"),
            FlowModError::BadGoto(t) => write!(f, "goto_table to {t} does not go forward"),
            FlowModError::UnmappedOption => write!(f, "no tunnel option is mapped to the field"),
            FlowModError::LongMatch => write!(f, "the tunnel option is shorter than what is matched"),
            FlowModError::LongSet => {
                write!(f, "the tunnel option is shorter than what an action wants of it")
            }
            FlowModError::Unsupported(what) => write!(f, "{what} is not supported yet"),
        }
    }
}

impl std::error::Error for FlowModError {}

impl FlowModError {
    pub(crate) fn in_match(error: PlaceError) -> FlowModError {
        match error {
            PlaceError::Unmapped => FlowModError::UnmappedOption,
            PlaceError::TooLong => FlowModError::LongMatch,
        }
    }

    pub(crate) fn in_action(error: PlaceError) -> FlowModError {
        match error {
            PlaceError::Unmapped => FlowModError::UnmappedOption,
            PlaceError::TooLong => FlowModError::LongSet,
        }
    }
}

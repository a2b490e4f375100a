//! Flow-mods: what a controller, or `learn`, asks to have changed among the rules.

use crate::rule::RuleFlags;
use base::OfPort;
use flow::{Action, Match};
use openflow::Version;

/// "All tables" in a deletion. In OpenFlow 1.0 in a modification too, and in an addition the switch's choice,
/// which is table 0.
pub const TABLE_ALL: u8 = 255;
/// The table that controllers do not see.
pub const TABLE_HIDDEN: u8 = 254;

/// OFPFC_*.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Adds, or replaces the rule of the same match and priority.
    Add,
    /// Changes the actions of all rules within the match.
    Modify,
    /// Changes the actions of the rule of this match and priority.
    ModifyStrict,
    /// Removes all rules within the match.
    Delete,
    /// Removes the rule of this match and priority.
    DeleteStrict,
}

/// One change of rules.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowMod {
    /// What to do.
    pub command: Command,
    /// Which table, or [`TABLE_ALL`].
    pub table_id: u8,
    /// 0 to 65,535; the switch's own rules may have higher ones. Loose commands ignore it.
    pub priority: i32,
    /// What packets.
    pub matching: Match,
    /// Modify and delete only rules with these bits of the cookie ...
    pub cookie: u64,
    /// ... under this mask.
    pub cookie_mask: u64,
    /// Cookie of what is added or modified. `None` in a modification: cookies stay, and where nothing matches
    /// nothing is added.
    pub new_cookie: Option<u64>,
    /// Seconds; 0 for none.
    pub idle_timeout_s: u16,
    /// Seconds; 0 for none.
    pub hard_timeout_s: u16,
    /// For eviction.
    pub importance: u16,
    /// Delete only rules that output there.
    pub out_port: Option<OfPort>,
    /// Delete only rules with this group.
    pub out_group: Option<u32>,
    /// Flags. `hidden` says that the switch itself asks: it may use any table and priority.
    pub flags: RuleFlags,
    /// Actions and instructions.
    pub actions: Vec<Action>,
    /// As which version of the protocol has it. OpenFlow 1.0 asks less of matches.
    pub version: Version,
}

impl FlowMod {
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

    /// A deletion of all that is within a match, in all tables.
    pub fn delete(matching: Match) -> FlowMod {
        let add = FlowMod::add(matching, Vec::new());
        FlowMod { command: Command::Delete, table_id: TABLE_ALL, new_cookie: None, ..add }
    }
}

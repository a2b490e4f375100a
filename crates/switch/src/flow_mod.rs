//! Flow-mods: changes of rules that a controller or `learn` requests.

use crate::rule::RuleFlags;
use base::OfPort;
use flow::{Action, Match};
use openflow::Version;

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

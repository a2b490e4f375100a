//! Flow-mods, flow-removed and what flows have in common.

use super::{DEFAULT_PRIORITY, FlowForm, TABLE_ALL};
use base::OfPort;
use flow::{Action, Match};
use std::cell::Cell;

bitflags::bitflags! {
    /// Flags of a flow-mod and of a flow, with the numbers of OpenFlow 1.3.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct FlowFlags: u16 {
        /// Tell when the flow goes (OFPFF_SEND_FLOW_REM).
        const SEND_FLOW_REM = 1 << 0;
        /// Refuse where a flow of the same priority overlaps (OFPFF_CHECK_OVERLAP).
        const CHECK_OVERLAP = 1 << 1;
        /// Set counters to zero (OFPFF_RESET_COUNTS). Decoding 1.0 and 1.1 sets it in every add.
        const RESET_COUNTS = 1 << 2;
        /// Do not count packets (1.3).
        const NO_PACKET_COUNTS = 1 << 3;
        /// Do not count bytes (1.3).
        const NO_BYTE_COUNTS = 1 << 4;
    }
}

/// OFPFC_*.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum FlowModCommand {
    Add = 0,
    Modify = 1,
    ModifyStrict = 2,
    Delete = 3,
    DeleteStrict = 4,
}

impl FlowModCommand {
    /// From the number on the wire.
    pub fn from_wire(number: u8) -> Option<FlowModCommand> {
        use FlowModCommand::*;
        [Add, Modify, ModifyStrict, Delete, DeleteStrict].get(usize::from(number)).copied()
    }

    /// Whether priority and match must equal the flow's.
    pub fn is_strict(self) -> bool {
        matches!(self, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict)
    }

    /// Whether it deletes.
    pub fn is_delete(self) -> bool {
        matches!(self, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
    }
}

/// OFPT_FLOW_MOD and NXT_FLOW_MOD.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowMod {
    /// The encoding.
    pub form: FlowForm,
    /// The command.
    pub command: FlowModCommand,
    /// Table, or [`TABLE_ALL`]: any in a delete or modify, the switch's choice (0) in an add. OpenFlow 1.0
    /// carries one only after NXT_FLOW_MOD_TABLE_ID.
    pub table_id: u8,
    /// Selects among flows to modify or delete: `cookie` under `cookie_mask`.
    pub cookie: u64,
    /// Bits of `cookie` that matter; 0 in an add.
    pub cookie_mask: u64,
    /// The cookie of an added flow and, in OpenFlow 1.0 and 1.1, of modified ones. `None` in a modify:
    /// cookies do not change, and nothing is added if nothing matches. With `Some`, a modify that matches
    /// nothing adds a flow.
    pub new_cookie: Option<u64>,
    /// Seconds, 0 for none.
    pub idle_timeout: u16,
    /// Seconds, 0 for none.
    pub hard_timeout: u16,
    /// 0 to 65,535. Ignored where the command is a loose one.
    pub priority: u16,
    /// A buffered packet to run through the flow.
    pub buffer_id: Option<u32>,
    /// Restricts a delete to flows that output there.
    pub out_port: Option<OfPort>,
    /// Restricts a delete to flows with that group.
    pub out_group: Option<u32>,
    /// Flags.
    pub flags: FlowFlags,
    /// Importance for eviction (1.4).
    pub importance: u16,
    /// Which packets.
    pub matching: Match,
    /// Actions, or instructions, with the apply-actions inline.
    pub actions: Vec<Action>,
}

impl FlowMod {
    /// An add to table 0 of what matches everything and drops.
    pub fn add() -> FlowMod {
        FlowMod {
            form: FlowForm::Standard,
            command: FlowModCommand::Add,
            table_id: TABLE_ALL,
            cookie: 0,
            cookie_mask: 0,
            new_cookie: Some(0),
            idle_timeout: 0,
            hard_timeout: 0,
            priority: DEFAULT_PRIORITY,
            buffer_id: None,
            out_port: None,
            out_group: None,
            flags: FlowFlags::empty(),
            importance: 0,
            matching: Match::any(),
            actions: Vec::new(),
        }
    }
}

thread_local! {
    static SPARE: Cell<Option<Box<FlowMod>>> = const { Cell::new(None) };
}

/// A flow-mod is large and aligned to cache lines. The C library's allocator cannot reuse a freed piece of
/// memory for the next such request (the search wants room to align in), so a million flow-mods with small
/// objects made in between would leave a million holes: 1.5 GB. One spare box per thread avoids that.
impl FlowMod {
    /// Boxes it, reusing a spare box if there is one.
    pub fn boxed(self) -> Box<FlowMod> {
        match SPARE.take() {
            Some(mut spare) => {
                *spare = self;
                spare
            }
            None => Box::new(self),
        }
    }

    /// Keeps the box for the next call of [`Self::boxed`] in this thread.
    pub fn recycle(mut self: Box<Self>) {
        self.actions = Vec::new();
        SPARE.set(Some(self));
    }
}

/// Why a flow went (OFPRR_*), with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum FlowRemovedReason {
    IdleTimeout = 0,
    HardTimeout = 1,
    Delete = 2,
    GroupDelete = 3,
    MeterDelete = 4,
    Eviction = 5,
}

impl FlowRemovedReason {
    /// From the number on the wire.
    pub fn from_wire(number: u8) -> Option<FlowRemovedReason> {
        use FlowRemovedReason::*;
        [IdleTimeout, HardTimeout, Delete, GroupDelete, MeterDelete, Eviction]
            .get(usize::from(number))
            .copied()
    }
}

/// OFPT_FLOW_REMOVED and NXT_FLOW_REMOVED.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowRemoved {
    /// The encoding.
    pub form: FlowForm,
    /// Why.
    pub reason: FlowRemovedReason,
    /// The table; 0 if the encoding does not have it (OpenFlow 1.0's own).
    pub table_id: u8,
    /// Its cookie.
    pub cookie: u64,
    /// Its priority.
    pub priority: u16,
    /// How long it lived, seconds.
    pub duration_s: u32,
    /// And nanoseconds.
    pub duration_ns: u32,
    /// Its idle timeout, seconds.
    pub idle_timeout: u16,
    /// Its hard timeout, seconds (0 where the encoding does not say).
    pub hard_timeout: u16,
    /// Packets, `u64::MAX` where unknown.
    pub packet_count: u64,
    /// Bytes, `u64::MAX` where unknown.
    pub byte_count: u64,
    /// What it matched.
    pub matching: Match,
}

/// A request for flow or aggregate statistics.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowStatsRequest {
    /// The encoding; the reply uses the same.
    pub form: FlowForm,
    /// Flows within this match.
    pub matching: Match,
    /// Table, or [`TABLE_ALL`].
    pub table_id: u8,
    /// Flows that output there.
    pub out_port: Option<OfPort>,
    /// Flows with that group.
    pub out_group: Option<u32>,
    /// Flows with this cookie under `cookie_mask`.
    pub cookie: u64,
    /// Bits of the cookie that matter.
    pub cookie_mask: u64,
}

impl Default for FlowStatsRequest {
    fn default() -> Self {
        FlowStatsRequest {
            form: FlowForm::Standard,
            matching: Match::any(),
            table_id: TABLE_ALL,
            out_port: None,
            out_group: None,
            cookie: 0,
            cookie_mask: 0,
        }
    }
}

/// One flow of a flow statistics reply. [`FlowStats`] owns its match and actions, [`FlowStatsRef`] borrows
/// them from the switch's rule.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowStats {
    /// The numbers.
    pub info: FlowInfo,
    /// What it matches.
    pub matching: Match,
    /// What it does.
    pub actions: Vec<Action>,
}

impl FlowStats {
    /// Borrowed.
    pub fn as_ref(&self) -> FlowStatsRef<'_> {
        FlowStatsRef { info: self.info, matching: &self.matching, actions: &self.actions }
    }
}

/// One flow of a flow statistics reply, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct FlowStatsRef<'a> {
    /// The numbers.
    pub info: FlowInfo,
    /// What it matches.
    pub matching: &'a Match,
    /// What it does.
    pub actions: &'a [Action],
}

/// A flow's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowInfo {
    /// Its table.
    pub table_id: u8,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Age, seconds.
    pub duration_s: u32,
    /// And nanoseconds.
    pub duration_ns: u32,
    /// Seconds, 0 for none.
    pub idle_timeout: u16,
    /// Seconds, 0 for none.
    pub hard_timeout: u16,
    /// Seconds since it was last used; `None` where the encoding does not say. On the wire of the Nicira form
    /// only.
    pub idle_age: Option<u16>,
    /// Seconds since it was last changed; `None` as above.
    pub hard_age: Option<u16>,
    /// Packets, `u64::MAX` where unknown.
    pub packet_count: u64,
    /// Bytes, `u64::MAX` where unknown.
    pub byte_count: u64,
    /// Flags (on the wire from 1.3 on).
    pub flags: FlowFlags,
    /// Importance (1.4).
    pub importance: u16,
}

/// The sums of an aggregate statistics reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AggregateStats {
    /// Packets, `u64::MAX` where unknown.
    pub packet_count: u64,
    /// Bytes, `u64::MAX` where unknown.
    pub byte_count: u64,
    /// Flows.
    pub flow_count: u32,
}

bitflags::bitflags! {
    /// What a flow monitor reports (NXFMF_*).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct FlowMonitorFlags: u16 {
        /// The flows there are, at once.
        const INITIAL = 1 << 0;
        /// Added flows.
        const ADD = 1 << 1;
        /// Deleted flows.
        const DELETE = 1 << 2;
        /// Modified flows.
        const MODIFY = 1 << 3;
        /// Include their actions.
        const ACTIONS = 1 << 4;
        /// The requester's own changes too, in full.
        const OWN = 1 << 5;
    }
}

/// One monitor of a flow monitor request.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowMonitorRequest {
    /// The controller's id for it.
    pub id: u32,
    /// What to report.
    pub flags: FlowMonitorFlags,
    /// Only flows that output there.
    pub out_port: Option<OfPort>,
    /// Only flows with that group (1.4).
    pub out_group: Option<u32>,
    /// Table, or [`TABLE_ALL`].
    pub table_id: u8,
    /// Only flows within.
    pub matching: Match,
    /// Whether the monitor begins, changes or ends (1.4).
    pub command: FlowMonitorCommand,
}

/// OFPFMC_*, with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum FlowMonitorCommand {
    #[default]
    Add = 0,
    Modify = 1,
    Delete = 2,
}

/// What happened to a flow that is monitored (NXFME_*), with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum FlowEvent {
    Added = 0,
    Deleted = 1,
    Modified = 2,
    /// Was there when the monitor was made (OpenFlow 1.4; as added in its extensions).
    Initial = 3,
}

/// One entry of a flow monitor reply.
#[derive(Clone, PartialEq, Debug)]
pub enum FlowUpdate {
    /// A change in full.
    Full(Box<FlowUpdateFull>),
    /// The requester's own change, known to it by the transaction id of its message.
    Abbreviated {
        /// Transaction id of the flow-mod.
        xid: u32,
    },
    /// The controller is too slow: events are skipped from here on (1.4).
    Paused,
    /// Everything skipped has been reported (1.4).
    Resumed,
}

/// A change to a flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowUpdateFull {
    /// What happened.
    pub event: FlowEvent,
    /// Why it was deleted. Meaningless otherwise (0 on the wire).
    pub reason: FlowRemovedReason,
    /// Its priority.
    pub priority: u16,
    /// Seconds.
    pub idle_timeout: u16,
    /// Seconds.
    pub hard_timeout: u16,
    /// Its table.
    pub table_id: u8,
    /// Its cookie.
    pub cookie: u64,
    /// What it matches.
    pub matching: Match,
    /// Its actions, where asked for.
    pub actions: Vec<Action>,
}

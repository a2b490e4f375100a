//! Requests of a connection that continue piece by piece.

use super::bundles::Bundle;
use super::held_rules::{HeldByAll, HeldRules};
use super::monitors::Monitor;
use openflow::connection::RequestHead;
use openflow::message::{
    AggregateStats, BundleControl, FlowForm, FlowStatsRequest, GroupMod, Message, MeterMod,
};
use openflow::{Codec, ReplyWriter};
use std::iter::Peekable;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;
use switch::control::{Cursor, RuleFilter, Translated};

/// A request in progress.
pub(crate) enum Pending {
    /// A barrier waits for the workers to pass.
    Barrier { xid: u32, ticket: u64 },
    /// Flow statistics.
    Dump(Box<Dump>),
    /// Groups or meters.
    Listing(Listing),
    /// Changes of tables that take many turns.
    Change(Box<LongChange>),
    /// The removal of tracked connections, by its number.
    CtFlush(u64),
    /// A request that waits until tables are no longer being changed, or connections removed.
    Held(Box<Held>),
}

/// See [`Pending::Held`].
pub(crate) struct Held {
    pub xid: u32,
    pub head: RequestHead,
    pub message: Message,
}

/// A request whose changes are being made.
pub(crate) struct LongChange {
    pub xid: u32,
    pub head: RequestHead,
    pub what: LongKind,
}

pub(crate) enum LongKind {
    FlowMod(Arc<switch::control::FlowMod>),
    GroupMod { change: Arc<GroupMod>, existed: bool },
    MeterDelete(Arc<MeterMod>),
    Bundle(Box<Commit>),
}

/// A bundle that is being committed.
pub(crate) struct Commit {
    pub control: BundleControl,
    pub bundle: Arc<Bundle>,
    /// Which of its messages have added a group where they could have modified one, once its changes are
    /// visible.
    pub added_groups: Peekable<std::vec::IntoIter<u32>>,
    /// Once its changes are visible: what to do with its packets.
    pub packets: Option<std::vec::IntoIter<Translated>>,
    /// The changes behind it have been followed up.
    pub told: usize,
}

/// A request for groups or meters in progress.
pub(crate) struct Listing {
    pub xid: u32,
    pub what: Listed,
    /// The numbers that are still to be shown.
    pub ids: RangeInclusive<u32>,
    /// For counters: the fold that it waits for, and the time limit.
    pub fold: Option<(u64, Instant)>,
}

/// What to list about groups or meters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    GroupStats,
    GroupDescs,
    MeterStats,
    MeterConfigs,
}

/// A request for flow statistics in progress.
pub(crate) struct Dump {
    pub xid: u32,
    pub filter: RuleFilter,
    /// The fold whose counters it wants, and until when it waits.
    pub fold: u64,
    pub deadline: Option<Instant>,
    pub cursor: Cursor,
    pub output: Output,
    /// Whether any rule that monitors missed was written.
    pub found: bool,
    /// For a dump that shows tables as they are before a transaction or after it. Monitors are notified of
    /// changes instead.
    pub whole: Option<Whole>,
}

/// What a dump has found. It starts again if a transaction begins meanwhile.
pub(crate) struct Whole {
    /// How many transactions had begun when it was asked for, and when this search began.
    pub asked_at: u64,
    pub begun_at: u64,
    /// Flows to write.
    pub rules: HeldRules,
    /// All rules are found.
    pub is_found: bool,
    /// There are more rules than this dump, or all dumps together, may hold: they are written as they are
    /// found, whatever begins meanwhile.
    pub is_too_large: bool,
}

impl Whole {
    /// Whether flows are being written. Before that, a transaction restarts the search.
    pub fn is_written(&self) -> bool {
        self.is_found || self.is_too_large
    }
}

pub(crate) enum Output {
    Flows(ReplyWriter),
    /// The flows that new monitors find.
    Monitors(ReplyWriter, Vec<Monitor>),
    /// What monitors missed while they were paused.
    Missed(ReplyWriter, Missed),
    Aggregate(FlowForm, AggregateStats),
}

/// What paused monitors get when they resume.
pub(crate) struct Missed {
    pub monitors: Vec<Monitor>,
    /// Serial numbers of the rules that were added or modified meanwhile.
    pub serials: RangeInclusive<u64>,
}

impl Dump {
    /// `transactions` have begun until now.
    pub fn new(
        codec: Codec,
        xid: u32,
        request: &FlowStatsRequest,
        aggregate: bool,
        fold: u64,
        transactions: u64,
        held_by_all: &HeldByAll,
    ) -> Dump {
        let filter = RuleFilter {
            table_id: request.table_id,
            matching: request.matching.clone(),
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            out_port: request.out_port,
            out_group: request.out_group,
            hidden: false,
        };
        let output = if aggregate {
            Output::Aggregate(request.form, AggregateStats::default())
        } else {
            Output::Flows(ReplyWriter::new(codec, xid, request.form))
        };
        let (asked_at, begun_at) = (transactions, transactions);
        let rules = HeldRules::new(held_by_all);
        let whole = Some(Whole { asked_at, begun_at, rules, is_found: false, is_too_large: false });
        Dump { filter, fold, whole, ..Dump::uncounted(xid, output) }
    }

    /// For new monitors: existing flows. It does not wait for counters.
    pub fn of_monitors(codec: Codec, xid: u32, monitors: Vec<Monitor>) -> Dump {
        Dump::uncounted(xid, Output::Monitors(ReplyWriter::of_events(codec, xid), monitors))
    }

    /// What monitors missed while they were paused.
    pub fn of_missed(codec: Codec, missed: Missed) -> Dump {
        Dump::uncounted(0, Output::Missed(ReplyWriter::of_events(codec, 0), missed))
    }

    fn uncounted(xid: u32, output: Output) -> Dump {
        Dump {
            xid,
            filter: RuleFilter::default(),
            fold: 0,
            deadline: None,
            cursor: Cursor::default(),
            output,
            found: false,
            whole: None,
        }
    }
}

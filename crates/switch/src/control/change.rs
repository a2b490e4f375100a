//! The types of a transaction: what goes in, what it has done so far, and how far it has got.

use super::events::{RemovedReason, RuleEvents};
use crate::changelog::rule_table;
use crate::effect::Effect;
use crate::flow_mod::{FlowMod, FlowModError};
use crate::group::Group;
use crate::rule::Rule;
use crate::topology::BridgeIdx;
use base::Version;
use datapath::Translation;
use flow::{Action, Key};
use openflow::message::{GroupMod, MeterMod};
use std::sync::Arc;

/// Small steps between two checks whether the turn is over.
const STEPS_BETWEEN: u32 = 16;

/// One change of a bridge's tables.
#[derive(Clone, Copy, Debug)]
pub enum Change<'m> {
    /// To rules.
    Flow(&'m FlowMod),
    /// To groups.
    Group(&'m GroupMod),
    /// Deletion of meters, with the rules that refer to them. It cannot be undone, so it must be the only
    /// change.
    MeterDelete(&'m MeterMod),
    /// No change of tables.
    Nothing,
    /// No change: a packet that goes through the tables as the changes before it have left them.
    Packet(PacketOut<'m>),
}

/// What holds a change, or builds one from a smaller form when its turn comes.
pub trait AsChange {
    /// The change.
    fn as_change(&self) -> Change<'_>;
}

impl AsChange for Change<'_> {
    fn as_change(&self) -> Change<'_> {
        *self
    }
}

/// A change whose turn has come.
#[expect(clippy::large_enum_variant, reason = "it lives for its turn; a million boxes would take longer")]
pub enum Due<'m> {
    /// Stored in this form.
    Kept(Change<'m>),
    /// Built from a smaller form.
    Made(FlowMod),
}

impl AsChange for Due<'_> {
    fn as_change(&self) -> Change<'_> {
        match self {
            Due::Kept(change) => *change,
            Due::Made(fm) => Change::Flow(fm),
        }
    }
}

/// A packet that a controller sends, with its actions.
#[derive(Clone, Copy, Debug)]
pub struct PacketOut<'m> {
    /// The key of the packet, with the input port's numbers.
    pub key: &'m Key,
    /// What to do with it.
    pub actions: &'m [Action],
    /// The protocol version of the actions.
    pub version: openflow::Version,
}

/// The result of changes: the translations of the packets among them, in order; or the index of the change
/// that failed, and the reason.
pub type Outcome = Result<Vec<Translation<Effect>>, (usize, FlowModError)>;

/// The changes of a transaction.
pub trait Changes: Send + Sync {
    /// The change with this index, from 0; `None` after the last. May be called several times for one index.
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)>;
}

/// The state of a transaction after a turn.
#[derive(Debug)]
pub enum Turn {
    /// There is more to do.
    More,
    /// All is in place, and the next turn makes it visible: the last moment for anything that must happen
    /// before.
    Ready,
    /// It is done.
    Done(Outcome),
}

/// What a batch has done so far.
#[derive(Default)]
pub(super) struct Batch {
    /// In order.
    pub steps: Vec<Step>,
    /// Slots that only rules of this batch have.
    pub slots: Vec<u32>,
    /// What happened to watched rules.
    pub events: RuleEvents,
    /// The tables whose rules changed, by their numbers in the change log.
    pub tables: Vec<u32>,
    /// Groups changed too.
    pub has_groups: bool,
    /// Something else has changed too, so a new version is needed.
    pub publishes: bool,
}

/// One completed step.
pub(super) enum Step {
    Added(Arc<Rule>),
    Removed(Gone),
    Group(Replaced),
}

/// A rule that a batch has removed.
pub(super) struct Gone {
    pub rule: Arc<Rule>,
    pub reason: Option<RemovedReason>,
    /// What happens to its slot.
    pub slot: SlotAfter,
    /// The same for the slot that records when it was learned.
    pub learn_slot_lives_on: bool,
}

/// What happens to the slot of a removed rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotAfter {
    /// It is released.
    Retired,
    /// It is released, but the rule that replaces this one, with this slot, inherits the time of last use.
    Inherited(u32),
    /// The replacing rule keeps using it.
    LivesOn,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && !self.publishes
    }

    /// Records a completed step.
    pub fn push(&mut self, step: Step) {
        match &step {
            Step::Added(rule) | Step::Removed(Gone { rule, .. }) => {
                let number = rule_table(rule.bridge.0, rule.table_id);
                // Nearly always the same as before.
                if self.tables.last() != Some(&number) && !self.tables.contains(&number) {
                    self.tables.push(number);
                }
            }
            Step::Group(_) => self.has_groups = true,
        }
        self.steps.push(step);
    }
}

/// A group replaced another; either may be absent.
pub(super) struct Replaced {
    pub before: Option<Arc<Group>>,
    pub after: Option<Arc<Group>>,
}

impl Replaced {
    /// The bridge and number of the group; `None` if both are absent.
    pub fn which(&self) -> Option<(BridgeIdx, u32)> {
        let any = self.after.as_ref().or(self.before.as_ref())?;
        Some((any.bridge, any.desc.group_id))
    }
}

/// A transaction in progress.
pub(super) struct Transaction {
    /// `None` if nothing can happen in between: then it is the next version.
    pub version: Option<Version>,
    pub now_ms: u64,
    /// The index of the current change, and how far it has got.
    pub at: usize,
    pub walk: Walk,
    pub batch: Batch,
    pub packets: Vec<Translation<Effect>>,
    pub phase: Phase,
}

pub(super) enum Phase {
    Changing,
    /// Removing what removed rules had learned, cookie by cookie.
    Orphans(Vec<(BridgeIdx, FlowMod)>),
    Ready,
    Following(Version, std::vec::IntoIter<Step>),
    TakingBack(usize, FlowModError),
    /// Applying what packets wanted to learn meanwhile.
    Learning(Outcome),
}

/// A transaction whose turns are interleaved with other work, and the source of its changes.
pub(super) struct Underway {
    pub transaction: Option<Transaction>,
    pub changes: Arc<dyn Changes>,
    /// Set once it is done.
    pub outcome: Option<Outcome>,
}

impl Transaction {
    pub fn new(version: Option<Version>, now_ms: u64) -> Transaction {
        Transaction {
            version,
            now_ms,
            at: 0,
            walk: Walk::Start,
            batch: Batch::default(),
            packets: Vec::new(),
            phase: Phase::Changing,
        }
    }
}

/// The progress of the current change.
#[derive(Clone, Copy, Default)]
pub(super) enum Walk {
    /// Not begun yet.
    #[default]
    Start,
    /// The next place to visit, and the number of rules found before it.
    Rules { table: u16, idx: usize, found: usize },
    /// The next group or meter to visit; `None` after the last.
    Numbers(Option<u32>),
}

/// Checks now and then whether a turn is over.
pub(super) struct Pace<'a> {
    is_over: Option<&'a mut dyn FnMut() -> bool>,
    steps: u32,
}

impl<'a> Pace<'a> {
    pub fn new(is_over: &'a mut dyn FnMut() -> bool) -> Pace<'a> {
        Pace { is_over: Some(is_over), steps: 0 }
    }

    /// Never over.
    pub fn none() -> Pace<'static> {
        Pace { is_over: None, steps: 0 }
    }

    /// Records a small step. Returns whether the turn is over.
    pub fn is_over(&mut self) -> bool {
        let Some(is_over) = &mut self.is_over else { return false };
        self.steps += 1;
        self.steps.is_multiple_of(STEPS_BETWEEN) && is_over()
    }
}

/// Whether a change was made in this turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Made {
    Whole,
    InPart,
}

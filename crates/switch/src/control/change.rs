//! The types of a transaction: what goes in, what it has done so far, and how far it has got.

use super::events::{RemovedReason, RuleEvents};
use crate::changelog::rule_table;
use crate::effect::{Effect, LearnedRule};
use crate::flow_mod::{FlowMod, FlowModError};
use crate::group::{BUCKETS_MAX, Group};
use crate::refused::Learned;
use crate::rule::Rule;
use crate::topology::BridgeIdx;
use base::Version;
use datapath::{DpAction, Translation};
use flow::{Action, Key};
use openflow::ErrorKind;
use openflow::message::{GroupCommand, GroupMod, MeterMod};
use std::sync::Arc;

/// Small steps between two checks whether the turn is over.
const STEPS_BETWEEN: usize = 16;

/// Steps that a packet counts for.
const PACKET_STEPS: usize = 64;

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

impl Change<'_> {
    /// The maximum number of steps that it takes whatever the tables hold. A packet may pass through
    /// thousands of rules, but mostly passes through a few.
    pub fn steps(&self) -> usize {
        match self {
            Change::Packet(_) => PACKET_STEPS,
            Change::Group(GroupMod {
                command: GroupCommand::InsertBucket | GroupCommand::RemoveBucket,
                ..
            }) => 1 + BUCKETS_MAX,
            Change::Group(gm) => 1 + gm.group.buckets.len(),
            Change::Flow(_) | Change::MeterDelete(_) | Change::Nothing => 1,
        }
    }
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

/// What became of a packet that went through the tables: what it takes to carry that out. A translation also
/// says how it may be cached, and keeps room for the next one.
#[derive(Debug)]
pub struct Translated {
    /// What to do.
    pub actions: Vec<DpAction>,
    credits: Vec<u32>,
    effects: Vec<Effect>,
}

/// Bytes that a transaction may keep until it is done, beside what its changes leave in the tables: packets
/// (a hundred thousand with ten actions take half of it), and rules and groups that its own changes replace.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// Rules at which the loose changes of a transaction, and additions that check for overlap, may look: some
/// seconds. A single change may look at all.
const LOOKED_AT_MAX: usize = 1 << 29;

impl Translated {
    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let effects = self.effects.iter().map(|effect| {
            size_of::<Effect>()
                + match effect {
                    Effect::LearnRule(_) => size_of::<LearnedRule>(),
                    Effect::Failed(_) => size_of::<Key>(),
                    _ => 0,
                }
        });
        size_of::<Translated>()
            + self.actions.capacity() * size_of::<DpAction>()
            + self.credits.capacity() * size_of::<u32>()
            + effects.sum::<usize>()
    }
}

impl From<Translation<Effect>> for Translated {
    fn from(translation: Translation<Effect>) -> Translated {
        let Translation { mut actions, mut credits, mut effects, .. } = translation;
        actions.shrink_to_fit();
        credits.shrink_to_fit();
        effects.shrink_to_fit();
        Translated { actions, credits, effects }
    }
}

impl From<Translated> for Translation<Effect> {
    fn from(Translated { actions, credits, effects }: Translated) -> Translation<Effect> {
        Translation { actions, credits, effects, ..Translation::default() }
    }
}

/// What follows from changes once they are visible.
#[derive(Default, Debug)]
pub struct Consequences {
    /// What became of the packets among them, in order.
    pub packets: Vec<Translated>,
    /// The indices of those that were to add or modify a group and have added it, ascending.
    pub added_groups: Vec<u32>,
}

/// The result of changes; or the index of the change that failed, and the reason.
pub type Outcome = Result<Consequences, (usize, FlowModError)>;

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
    /// A command has deleted rules.
    pub deletes: bool,
    /// Something else has changed too, so a new version is needed.
    pub publishes: bool,
    /// Bytes that count for [`KEPT_BYTES_MAX`].
    kept_bytes: usize,
}

/// One completed step.
pub(super) enum Step {
    Added(Arc<Rule>),
    Removed(Gone),
    Group(Replaced),
}

impl Step {
    /// How many small steps it takes to make it, or to undo it.
    pub fn small_steps(&self) -> usize {
        match self {
            Step::Added(rule) | Step::Removed(Gone { rule, .. }) => rule.actions.steps(),
            Step::Group(Replaced { after, .. }) => {
                1 + after.as_ref().map_or(0, |group| group.buckets().len())
            }
        }
    }
}

/// A rule that a batch has removed.
pub(super) struct Gone {
    pub rule: Arc<Rule>,
    pub reason: Option<RemovedReason>,
    /// What happens to its slot.
    pub slot: SlotAfter,
    /// The same for the slot that records when it was learned.
    pub learn_slot_lives_on: bool,
    /// Some version has shown it. Otherwise the batch itself had added it.
    pub was_seen: bool,
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

    /// Counts what is kept until the batch is done.
    pub fn keep(&mut self, bytes: usize) {
        self.kept_bytes += bytes;
    }

    /// An error if too much is kept.
    pub fn check_kept(&self) -> Result<(), FlowModError> {
        if self.kept_bytes > KEPT_BYTES_MAX {
            return Err(FlowModError::Refused(ErrorKind::OFPBFC_MSG_FAILED));
        }
        Ok(())
    }

    /// How many small steps those from `first` on were.
    pub fn small_steps_from(&self, first: usize) -> usize {
        self.steps[first..].iter().map(Step::small_steps).sum()
    }

    /// Records a completed step.
    pub fn push(&mut self, step: Step) {
        self.deletes |= matches!(step, Step::Removed(Gone { reason: Some(RemovedReason::Delete), .. }));
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
    /// Some version has shown the one before. Otherwise the batch itself had added it.
    pub was_seen: bool,
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
    pub consequences: Consequences,
    /// Rules at which its changes have looked.
    looked_at: usize,
    pub phase: Phase,
}

pub(super) enum Phase {
    Changing,
    /// Removing what removed rules had learned, cookie by cookie.
    Orphans(Vec<Learned>),
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
            consequences: Consequences::default(),
            looked_at: 0,
            phase: Phase::Changing,
        }
    }

    /// Counts rules at which a change looks; an error if they are too many.
    pub fn look_at(&mut self, rules: usize) -> Result<(), FlowModError> {
        self.looked_at += rules;
        if self.at > 0 && self.looked_at > LOOKED_AT_MAX {
            return Err(FlowModError::Refused(ErrorKind::OFPBFC_MSG_FAILED));
        }
        Ok(())
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
    /// The next place to visit for rules that the new one overlaps.
    Overlap(usize),
    /// The next group or meter to visit; `None` after the last.
    Numbers(Option<u32>),
}

/// Checks now and then whether a turn is over.
pub(super) struct Pace<'a> {
    is_over: Option<&'a mut dyn FnMut() -> bool>,
    /// Steps since it was checked.
    steps: usize,
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
        self.is_over_after(1)
    }

    /// The same after some steps at once.
    pub fn is_over_after(&mut self, steps: usize) -> bool {
        let Some(is_over) = &mut self.is_over else { return false };
        self.steps += steps;
        if self.steps < STEPS_BETWEEN {
            return false;
        }
        self.steps = 0;
        is_over()
    }

    /// Records some steps, which the next look at the clock counts.
    pub fn count(&mut self, steps: usize) {
        self.steps += steps;
    }
}

/// Whether a change was made in this turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Made {
    Whole,
    InPart,
}

//! Several changes as one version: of rules, groups and meters, and packets that go through the tables in
//! between. A batch is a log of steps. Undone from its end, it leaves tables as they were, and no worker has
//! seen otherwise; once published, it is traversed again for the consequences of each step.

use super::flow_mod::FlowModError;
use super::groups::Replaced;
use super::{Inner, Removal, RemovedReason, RuleEvent, validate};
use crate::changelog::{rule_table, word_table};
use crate::effect::Effect;
use crate::flow_mod::FlowMod;
use crate::rule::Rule;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use datapath::Translation;
use flow::{Action, Key, Match};
use openflow::ErrorKind;
use openflow::Version;
use openflow::message::{GroupMod, MeterMod};
use std::sync::Arc;

/// Up to this many steps are logged one by one for the flows that they may affect. A larger batch counts as
/// affecting all flows that visited its tables: logging so many changes would have that effect on nearly all
/// of them anyway.
const LOGGED_MAX: usize = 2_000;

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
    pub version: Version,
}

/// What a batch has done so far.
#[derive(Default)]
pub(super) struct Batch {
    /// In order.
    pub steps: Vec<Step>,
    /// Slots that only rules of this batch have.
    pub slots: Vec<u32>,
    /// What happened to watched rules.
    pub events: Vec<RuleEvent>,
    /// The tables whose rules changed, by their numbers in the change log.
    tables: Vec<u32>,
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
    fn is_empty(&self) -> bool {
        self.steps.is_empty() && !self.publishes
    }

    /// Records a completed step.
    pub fn push(&mut self, step: Step) {
        if let Step::Added(rule) | Step::Removed(Gone { rule, .. }) = &step {
            let number = rule_table(rule.bridge.0, rule.table_id);
            // Nearly always the same as before.
            if self.tables.last() != Some(&number) && !self.tables.contains(&number) {
                self.tables.push(number);
            }
        }
        self.steps.push(step);
    }
}

impl Inner {
    /// Publishes what a batch has changed. Returns whether there was anything; if so, call [`Self::follow`]
    /// for each of its steps.
    pub(super) fn publish_batch(&mut self, batch: &mut Batch) -> bool {
        if batch.is_empty() {
            return false;
        }
        self.log_batch(batch);
        self.events.append(std::mem::take(&mut batch.events));
        self.recompute_depths();
        self.publish();
        true
    }

    fn log_batch(&mut self, batch: &Batch) {
        let version = self.coming();
        if batch.steps.len() > LOGGED_MAX {
            batch.tables.iter().for_each(|table| self.log.whole_table(*table, version));
            if batch.steps.iter().any(|step| matches!(step, Step::Group(_))) {
                self.log.everything(version);
            }
            return;
        }
        for step in &batch.steps {
            match step {
                Step::Added(rule) | Step::Removed(Gone { rule, .. }) => {
                    self.log.rule(rule_table(rule.bridge.0, rule.table_id), &rule.matching, version);
                }
                Step::Group(replaced) => {
                    if let Some((bridge, id)) = replaced.which() {
                        self.log.word(word_table::groups(bridge.0), u64::from(id), version);
                    }
                }
            }
        }
    }

    /// Handles the consequences of a step of a batch that was published in `version`, as of `now_ms`.
    pub(super) fn follow(&mut self, step: Step, version: base::Version, now_ms: u64) {
        match step {
            Step::Added(rule) => self.timers.rule(&rule),
            Step::Group(replaced) => self.group_in_force(replaced, version),
            Step::Removed(Gone { rule, reason, slot, learn_slot_lives_on }) => {
                self.depths.vanish(rule.clone(), version);
                if let Some(slot) = rule.learn_slot.filter(|_| !learn_slot_lives_on) {
                    self.slots.retire(slot);
                }
                match (reason, slot) {
                    (Some(reason), _) if rule.flags.send_flow_removed => {
                        self.removals.push(Removal { rule, reason, version, now_ms });
                    }
                    (_, SlotAfter::Retired) => self.slots.retire(rule.slot),
                    (_, SlotAfter::Inherited(heir)) => self.slots.retire_for(rule.slot, heir),
                    (_, SlotAfter::LivesOn) => {}
                }
            }
        }
    }

    /// Undoes the last remaining step of a batch that was not published.
    pub(super) fn undo(&mut self, step: Step, reader: &Reader) {
        match step {
            Step::Added(rule) => {
                self.withdraw(&rule, reader);
                self.table(rule.bridge, rule.table_id).vacate(rule.idx);
                self.learning.removed(&rule);
                self.depths.remove(&rule);
                self.forget_references(&rule);
            }
            Step::Removed(Gone { rule, .. }) => {
                self.restore(&rule, reader);
                self.table(rule.bridge, rule.table_id).put_back(&rule);
                self.refer(&rule);
                self.count_learned(&rule);
            }
            Step::Group(replaced) => self.take_group_back(replaced, reader),
        }
    }

    /// To be called after all steps are undone.
    pub(super) fn forget_batch(&mut self) {
        self.learning.take_orphans();
        self.depths.forget_changes();
    }

    /// Whether a controller may send a packet with these actions.
    pub(super) fn check_packet_out(&self, bridge: BridgeIdx, out: PacketOut<'_>) -> Result<(), FlowModError> {
        let PacketOut { key, actions, version } = out;
        let packet = Match { key: key.clone(), ..Match::any() };
        validate::check(version, &packet, actions, 0, self.known(bridge))
    }

    /// Translates a packet at the coming version, which includes the batch's changes so far.
    pub(super) fn translate_between(
        &self,
        bridge: BridgeIdx,
        out: PacketOut<'_>,
        reader: &Reader,
    ) -> Result<Translation<Effect>, FlowModError> {
        if self.bridges.get(bridge.0 as usize).is_none_or(Option::is_none) {
            return Err(FlowModError::NoBridge(bridge));
        }
        self.check_packet_out(bridge, out)?;
        let PacketOut { key, actions, .. } = out;
        let mut translation = Translation::default();
        let coming = self.coming();
        match self.switch.translate_packet_out(coming, key, bridge, actions, reader, &mut translation) {
            true => Ok(translation),
            false => Err(FlowModError::Refused(ErrorKind::OFPFMFC_UNKNOWN)),
        }
    }
}

//! Several changes as one version: of rules, groups and meters, and packets that go through the tables in
//! between. A batch is a log of steps. Undone from its end, it leaves tables as they were, and no worker has
//! seen otherwise; once published, it is traversed again for the consequences of each step.

use super::change::{Batch, Gone, PacketOut, SlotAfter, Step};
use super::events::Removal;
use super::state::Inner;
use super::validate;
use crate::changelog::{rule_table, word_table};
use crate::effect::Effect;
use crate::flow_mod::FlowModError;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use datapath::Translation;
use flow::Match;
use openflow::ErrorKind;

/// Up to this many steps are logged one by one for the flows that they may affect. A larger batch counts as
/// affecting all flows that visited its tables: logging so many changes would have that effect on nearly all
/// of them anyway.
const LOGGED_MAX: usize = 2_000;

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
            if batch.has_groups {
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
                self.depths.end(version, rule.clone());
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
        if self.bridge(bridge).is_none() {
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

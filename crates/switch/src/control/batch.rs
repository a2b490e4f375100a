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
        if batch.deletes {
            self.forget_refusals();
        }
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
            Step::Removed(Gone { rule, reason, slot, learn_slot_lives_on, was_seen }) => {
                if was_seen {
                    self.depths.end(version, rule.clone());
                }
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
            Step::Removed(gone) => {
                self.restore(&gone, reader);
                let rule = gone.rule;
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

#[cfg(test)]
mod tests {
    use crate::control::{Change, Control, FlowMod, FlowModError};
    use crate::topology::BridgeConfig;
    use base::OfPort;
    use base::hash::HashKey;
    use base::rcu::Domain;
    use flow::{Action, Match};
    use openflow::ErrorKind;
    use openflow::message::{
        BUCKET_ALL, Bucket, GroupCommand, GroupDesc, GroupMod, GroupSelection, GroupType,
    };

    fn output(port: u16) -> Vec<Action> {
        vec![Action::Output { port: OfPort(port), max_len: 0 }]
    }

    fn group_mod(command: GroupCommand, buckets: u32) -> GroupMod {
        let bucket = |id| Bucket {
            id,
            weight: 0,
            watch_port: None,
            watch_group: None,
            actions: output(id as u16 + 1),
        };
        let (kind, selection) = (GroupType::All, GroupSelection::default());
        let group = GroupDesc { group_id: 1, kind, buckets: (0..buckets).map(bucket).collect(), selection };
        GroupMod { command, command_bucket_id: BUCKET_ALL, group }
    }

    #[test]
    fn what_a_batch_adds_and_replaces_itself_does_not_stay_linked() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        control.flow_mod(bridge, &FlowMod::add(Match::any(), output(1)), 0).unwrap();
        control.group_mod(bridge, &group_mod(GroupCommand::Add, 1), 0).unwrap();
        let linked = |control: &Control| {
            let state = &control.inner.bridge(bridge).unwrap().state;
            let rules = state.table(0).unwrap().rules.iter_all(&control.reader);
            let mut outputs: Vec<u16> = rules.map(|rule| port_of(&rule.data().actions.list)).collect();
            outputs.sort_unstable();
            let version = control.inner.published();
            let group = state.groups.lookup(1, version, &control.reader).unwrap();
            (outputs, state.groups.linked(1, &control.reader), group.buckets().len())
        };
        assert_eq!(linked(&control), (vec![1], 1, 1));
        let rules: Vec<_> = (2..100).map(|port| FlowMod::add(Match::any(), output(port))).collect();
        let groups: Vec<_> = (2..100).map(|buckets| group_mod(GroupCommand::Modify, buckets)).collect();
        let changes: Vec<Change<'_>> =
            rules.iter().map(Change::Flow).chain(groups.iter().map(Change::Group)).collect();
        // Taken back, all is as it was.
        let missing = FlowMod::add(Match::any(), vec![Action::Group(7)]);
        let all = changes.iter().copied().chain([Change::Flow(&missing)]);
        let (_, error) = control.change_all(all.map(|change| (bridge, change)), 0).unwrap_err();
        assert_eq!(error, FlowModError::BadOutGroup(7));
        assert_eq!(linked(&control), (vec![1], 1, 1));
        // Workers may still see what there was before, and see the last of each from now on.
        control.change_all(changes.into_iter().map(|change| (bridge, change)), 0).unwrap();
        assert_eq!(linked(&control), (vec![1, 99], 2, 99));
        let vanished = control.inner.bridge(bridge).unwrap().tables[&0].vanishing;
        assert_eq!(vanished, 1);
    }

    fn port_of(list: &[Action]) -> u16 {
        match list {
            [Action::Output { port, .. }] => port.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn groups_that_a_batch_replaces_itself_take_a_bounded_memory() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        control.group_mod(bridge, &group_mod(GroupCommand::Add, 1), 0).unwrap();
        let large = group_mod(GroupCommand::Modify, 2_000);
        let error = control.change_all((0..2_000).map(|_| (bridge, Change::Group(&large))), 0).unwrap_err();
        assert_eq!(error.1, FlowModError::Refused(ErrorKind::OFPBFC_MSG_FAILED));
        assert!((100..1_900).contains(&error.0), "after {} of some 60 kB or more each", error.0);
        assert_eq!(control.group(bridge, 1).unwrap().buckets().len(), 1);
        // One after the other they leave nothing behind.
        for _ in 0..300 {
            control.group_mod(bridge, &large, 0).unwrap();
        }
    }
}

//! Changes of groups: adding, modifying and deleting them, and inserting and removing buckets.
//!
//! A modified group is replaced by a new one in the coming version, with counters that start at 0, as in Open
//! vSwitch; only buckets that a change of others leaves as they were keep theirs. Deleting a group also
//! deletes the rules that refer to it. Groups may refer to groups that do not exist (packets use them once
//! they do), but not to themselves, directly or indirectly.
//!
//! Sources: OpenFlow 1.5 sections 5.10 and 7.3.4.3; EXT-570 for what a change of buckets leaves as it was.

use super::change::{Batch, Change, Made, Pace, Replaced, SlotAfter, Step, Transaction, Walk};
use super::events::RemovedReason;
use super::flow_mod::RULES_MAX;
use super::state::{Control, Inner};
use super::validate;
use crate::flow_mod::FlowModError;
use crate::group::{BUCKETS_MAX, Group, Selection, groups_behind};
use crate::rule::Rule;
use crate::topology::BridgeIdx;
use crate::translate::action_set_order;
use base::Version;
use base::rcu::Reader;
use openflow::ErrorKind;
use openflow::message::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, Bucket, GROUP_ALL, GROUP_MAX, GroupCommand, GroupDesc, GroupMod,
};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Groups that a group may lead to, directly or through others; and how many others these lead to in all.
const CHAINED_MAX: usize = 1_024;
const CHAIN_LINKS_MAX: usize = 16_384;
/// Links of a chain that are followed in a small step.
const LINKS_PER_STEP: usize = 16;

impl Control {
    /// One group-mod, as one version.
    pub fn group_mod(&mut self, bridge: BridgeIdx, gm: &GroupMod, now_ms: u64) -> Result<(), FlowModError> {
        self.change_all([(bridge, Change::Group(gm))], now_ms).map(drop).map_err(|(_, error)| error)
    }

    /// The groups of a bridge, ascending by number.
    pub fn groups(&self, bridge: BridgeIdx) -> impl Iterator<Item = &Arc<Group>> {
        self.groups_in(bridge, 0..=u32::MAX)
    }

    /// The groups of a bridge with these numbers, ascending.
    pub fn groups_in(
        &self,
        bridge: BridgeIdx,
        ids: RangeInclusive<u32>,
    ) -> impl Iterator<Item = &Arc<Group>> {
        let control = self.inner.bridge(bridge);
        control.into_iter().flat_map(move |c| c.groups.by_id.range(ids.clone()).map(|(_, group)| group))
    }

    /// A group of a bridge.
    pub fn group(&self, bridge: BridgeIdx, group_id: u32) -> Option<&Arc<Group>> {
        self.inner.bridge(bridge)?.groups.by_id.get(&group_id)
    }

    /// How many rules refer to a group.
    pub fn group_references(&self, bridge: BridgeIdx, group_id: u32) -> usize {
        let control = self.inner.bridge(bridge);
        control.map_or(0, |c| c.groups.references.count(group_id))
    }
}

fn refused<T>(kind: ErrorKind) -> Result<T, FlowModError> {
    Err(FlowModError::Refused(kind))
}

impl Inner {
    pub(super) fn change_group(
        &mut self,
        bridge: BridgeIdx,
        gm: &GroupMod,
        now_ms: u64,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Made, FlowModError> {
        let Some(control) = self.bridge_mut(bridge) else { return Err(FlowModError::NoBridge(bridge)) };
        let id = gm.group.group_id;
        let old = control.groups.by_id.get(&id).cloned();
        let desc = match (gm.command, &old) {
            (GroupCommand::Delete, _) => {
                return Ok(self.delete_groups(bridge, id, transaction, pace, reader));
            }
            (GroupCommand::Add, Some(_)) => return refused(ErrorKind::OFPGMFC_GROUP_EXISTS),
            (GroupCommand::Add, None)
            | (GroupCommand::Modify, Some(_))
            | (GroupCommand::AddOrModify, None | Some(_)) => gm.group.clone(),
            (GroupCommand::Modify | GroupCommand::InsertBucket | GroupCommand::RemoveBucket, None) => {
                return refused(ErrorKind::OFPGMFC_UNKNOWN_GROUP);
            }
            (GroupCommand::InsertBucket, Some(old)) => GroupDesc {
                buckets: inserted(old.buckets(), &gm.group.buckets, gm.command_bucket_id)?,
                ..old.desc.clone()
            },
            (GroupCommand::RemoveBucket, Some(old)) => {
                GroupDesc { buckets: removed(old.buckets(), gm.command_bucket_id)?, ..old.desc.clone() }
            }
        };
        if id > GROUP_MAX {
            return refused(ErrorKind::OFPGMFC_INVALID_GROUP);
        }
        // A change of buckets sends only the new ones: the others may already fill a message.
        if desc.buckets.len() > BUCKETS_MAX || !desc.fits_a_message() {
            return refused(ErrorKind::OFPGMFC_OUT_OF_BUCKETS);
        }
        for bucket in &desc.buckets {
            validate::check_bucket(&bucket.actions, self.known(bridge))?;
        }
        let behind = groups_behind(&desc);
        pace.count(self.check_chain(bridge, id, &behind)? / LINKS_PER_STEP);
        if self.slots.in_use() >= RULES_MAX {
            return refused(ErrorKind::OFPGMFC_OUT_OF_GROUPS);
        }
        if gm.command == GroupCommand::AddOrModify && old.is_none() {
            transaction.consequences.added_groups.push(transaction.at as u32);
        }
        let created_ms = old.as_ref().map_or(now_ms, |old| old.created_ms);
        let kept = match (gm.command, &old) {
            (GroupCommand::InsertBucket | GroupCommand::RemoveBucket, Some(old)) => old.slots_by_bucket(),
            _ => HashMap::new(),
        };
        let slot_of =
            |bucket: &Bucket| kept.get(&bucket.id).copied().unwrap_or_else(|| self.slots.allocate());
        let bucket_slots = desc.buckets.iter().map(slot_of).collect();
        let group = Group {
            bridge,
            created_ms,
            slot: self.slots.allocate(),
            bucket_slots,
            actions: desc.buckets.iter().map(|b| action_set_order(&b.actions)).collect(),
            behind,
            selection: Selection::of(&desc, &mut |_| {}),
            desc,
        };
        let bytes = old.as_ref().map_or(0, |old| old.memory_bytes());
        if !self.replace_group(old, Some(Arc::new(group)), &mut transaction.batch, reader) {
            transaction.batch.keep(bytes);
        }
        Ok(Made::Whole)
    }

    /// Fails if packets sent to a group, or the check whether it is live, would come back to it, or if it
    /// takes long to find that out. Returns how many links from group to group it followed.
    fn check_chain(&mut self, bridge: BridgeIdx, id: u32, behind: &[u32]) -> Result<usize, FlowModError> {
        let Some(control) = self.bridge_mut(bridge) else { return Ok(0) };
        let (mut seen, mut links) = (HashSet::new(), behind.len());
        let mut todo = behind.to_vec();
        while let Some(next) = todo.pop() {
            if next == id {
                return refused(ErrorKind::OFPGMFC_LOOP);
            }
            if seen.insert(next)
                && let Some(next) = control.groups.by_id.get(&next)
            {
                links += next.behind.len();
                if seen.len() > CHAINED_MAX || links > CHAIN_LINKS_MAX {
                    return refused(ErrorKind::OFPGMFC_CHAINING_UNSUPPORTED);
                }
                todo.extend(&next.behind);
            }
        }
        Ok(links)
    }

    /// Deletes a group, or all, with the rules that refer to them.
    fn delete_groups(
        &mut self,
        bridge: BridgeIdx,
        id: u32,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Made {
        let first = if id == GROUP_ALL { 0 } else { id };
        let mut next = if let Walk::Numbers(next) = transaction.walk { next } else { Some(first) };
        while let Some(from) = next
            && let Some(control) = self.bridge_mut(bridge)
            && let Some((&group_id, group)) = control.groups.by_id.range(from..).next()
            && (id == GROUP_ALL || id == group_id)
        {
            let before = Some(group.clone());
            while let Some(rule) = self.bridge_mut(bridge).and_then(|c| c.groups.references.first(group_id)) {
                let steps = rule.actions.steps();
                self.remove_referring(rule, RemovedReason::GroupDelete, transaction, reader);
                if pace.is_over_after(steps) {
                    transaction.walk = Walk::Numbers(Some(group_id));
                    return Made::InPart;
                }
            }
            self.replace_group(before, None, &mut transaction.batch, reader);
            next = group_id.checked_add(1).filter(|_| id == GROUP_ALL);
            if pace.is_over() {
                transaction.walk = Walk::Numbers(next);
                return Made::InPart;
            }
        }
        Made::Whole
    }

    /// Removes a rule that refers to a group or a meter being deleted.
    pub(super) fn remove_referring(
        &mut self,
        rule: Arc<Rule>,
        reason: RemovedReason,
        transaction: &mut Transaction,
        reader: &Reader,
    ) {
        if !self.remove(rule.clone(), Some(reason), SlotAfter::Retired, &mut transaction.batch, reader) {
            self.forget_references(&rule);
        }
    }

    /// Puts a group in place of another for the coming version. Returns whether the other was ever seen.
    fn replace_group(
        &mut self,
        before: Option<Arc<Group>>,
        after: Option<Arc<Group>>,
        batch: &mut Batch,
        reader: &Reader,
    ) -> bool {
        let version = self.coming();
        let mut replaced = Replaced { before, after, was_seen: true };
        let Some((bridge, id)) = replaced.which() else { return true };
        let control = self.bridge_mut(bridge).expect("its group was looked up");
        if let Some(before) = &replaced.before {
            replaced.was_seen = control.state.groups.end(before, version, reader);
        }
        match &replaced.after {
            Some(after) => {
                control.state.groups.insert(after.clone(), version, reader);
                control.groups.by_id.insert(id, after.clone());
            }
            None => drop(control.groups.by_id.remove(&id)),
        }
        let was_seen = replaced.was_seen;
        batch.push(Step::Group(replaced));
        was_seen
    }

    /// Undoes a replacement that was not published.
    pub(super) fn take_group_back(&mut self, replaced: Replaced, reader: &Reader) {
        let Some((bridge, id)) = replaced.which() else { return };
        let control = self.bridge_mut(bridge).expect("its group was changed");
        if let Some(after) = replaced.after {
            control.state.groups.remove(&after, reader);
            control.groups.by_id.remove(&id);
            self.retire_group(&after, replaced.before.as_deref());
        }
        if let Some(before) = replaced.before {
            let version = self.coming();
            let control = self.bridge_mut(bridge).expect("its group was changed");
            if replaced.was_seen {
                control.state.groups.restore(&before, reader);
            } else {
                control.state.groups.insert(before.clone(), version, reader);
            }
            control.groups.by_id.insert(id, before);
        }
    }

    /// Called when the version with this change has been published.
    pub(super) fn group_in_force(&mut self, replaced: Replaced, version: Version) {
        let Some(before) = replaced.before else { return };
        self.retire_group(&before, replaced.after.as_deref());
        if replaced.was_seen
            && let Some(control) = self.bridge_mut(before.bridge)
        {
            control.groups.ended.push(version, before);
        }
    }

    /// Releases its counters, apart from those that the group in its place still has.
    pub(super) fn retire_group(&mut self, group: &Group, other: Option<&Group>) {
        let kept: HashSet<u32> = other.into_iter().flat_map(|other| &other.bucket_slots).copied().collect();
        self.slots.retire(group.slot);
        for slot in &group.bucket_slots {
            if !kept.contains(slot) {
                self.slots.retire(*slot);
            }
        }
    }
}

/// A list with others inserted at a position.
fn inserted(old: &[Bucket], new: &[Bucket], place: u32) -> Result<Vec<Bucket>, FlowModError> {
    let at = match place {
        // Versions without numbers of buckets say none.
        BUCKET_FIRST | BUCKET_ALL => 0,
        BUCKET_LAST => old.len(),
        id => match old.iter().position(|bucket| bucket.id == id) {
            Some(at) => at + 1,
            None => return refused(ErrorKind::OFPGMFC_UNKNOWN_BUCKET),
        },
    };
    let taken: HashSet<u32> = old.iter().map(|bucket| bucket.id).collect();
    if new.iter().any(|bucket| taken.contains(&bucket.id)) {
        return refused(ErrorKind::OFPGMFC_BUCKET_EXISTS);
    }
    Ok([&old[..at], new, &old[at..]].concat())
}

/// A list without the buckets selected by a command.
fn removed(old: &[Bucket], which: u32) -> Result<Vec<Bucket>, FlowModError> {
    let without = |at: usize| [&old[..at], &old[at + 1..]].concat();
    match which {
        BUCKET_ALL => Ok(Vec::new()),
        BUCKET_FIRST | BUCKET_LAST if old.is_empty() => Ok(Vec::new()),
        BUCKET_FIRST => Ok(without(0)),
        BUCKET_LAST => Ok(without(old.len() - 1)),
        id => match old.iter().position(|bucket| bucket.id == id) {
            Some(at) => Ok(without(at)),
            None => refused(ErrorKind::OFPGMFC_UNKNOWN_BUCKET),
        },
    }
}

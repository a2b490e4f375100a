//! Groups: changes, what other controllers are told of them, and the replies to requests about them.
//!
//! Counters wait for the workers to fold what their flows have counted, as dumps of flows do.

use super::flow_mods;
use super::request::{FOLD_WAIT, Handled, Request, Served};
use crate::ofproto::{Asynchronous, GroupCounters, LongKind, OfConn, Pending};
use crate::plane::ForwardingPlane;
use crate::plane::SHORT_STEPS_MAX;
use crate::state::Vswitch;
use openflow::Version;
use openflow::message::{
    GROUP_ALL, GroupCommand, GroupDesc, GroupFeatures, GroupMod, GroupStats, Message, StatsBody,
};
use openflow::reply::write_reply;
use std::sync::Arc;
use std::time::Instant;
use switch::control::Change;
use switch::{BridgeIdx, Group, selection_log};
use tracing::Level;

impl Vswitch {
    pub(super) fn group_mod(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        change: GroupMod,
    ) -> Handled {
        let existed = self.plane.control.group(bridge, change.group.group_id).is_some();
        let steps = self.plane.control.steps_of(bridge, Change::Group(&change));
        if steps > SHORT_STEPS_MAX {
            let what = LongKind::GroupMod { change: Arc::new(change), existed };
            return self.change_table(bridge, conn, request, what, steps);
        }
        let now_ms = self.plane.now_ms();
        self.plane.control.group_mod(bridge, &change, now_ms).map_err(|error| flow_mods::refusal(&error))?;
        self.plane.dp.reserve_slots(self.plane.control.slot_count());
        self.report_rules(Some((conn, request.xid)));
        self.forward_group_mod(bridge, request.xid, change, existed);
        Ok(())
    }

    /// Tells the other controllers of a change that was made, those that want to know. `existed`: whether the
    /// group was there before.
    pub(super) fn forward_group_mod(
        &mut self,
        bridge: BridgeIdx,
        xid: u32,
        mut change: GroupMod,
        existed: bool,
    ) {
        if change.command == GroupCommand::AddOrModify {
            change.command = if existed { GroupCommand::Modify } else { GroupCommand::Add };
        }
        // What versions without commands on buckets are told.
        let now = self.plane.control.group(bridge, change.group.group_id).map(|group| group.desc.clone());
        if let Some(desc) =
            now.as_ref().filter(|_| tracing::event_enabled!(target: "ofproto_dpif", Level::DEBUG))
        {
            selection_log(desc).iter().for_each(|line| tracing::debug!(target: "ofproto_dpif", "{line}"));
        }
        let Some(record) = self.bridges.get_mut(&bridge) else { return };
        for conn in record.conns.values_mut() {
            let mut change = change.clone();
            let on_buckets =
                matches!(change.command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket);
            if on_buckets && !matches!(conn.version(), Version::V10 | Version::V15) {
                let Some(group) = now.clone() else { continue };
                change = GroupMod { command: GroupCommand::Modify, group, ..change };
            }
            conn.tell(&Asynchronous::GroupMod(xid, Box::new(Message::GroupMod(Box::new(change)))));
        }
    }
}

impl ForwardingPlane {
    fn groups_asked_for(&self, bridge: BridgeIdx, id: Option<u32>) -> impl Iterator<Item = &Group> {
        let is_wanted = move |group: &Group| id.is_none_or(|id| id == GROUP_ALL || id == group.desc.group_id);
        self.control.groups(bridge).map(|group| &**group).filter(move |group| is_wanted(group))
    }

    /// Their descriptions, as a connection's version says them.
    pub(super) fn group_descs(&self, bridge: BridgeIdx, id: Option<u32>) -> Vec<GroupDesc> {
        self.groups_asked_for(bridge, id).map(|group| group.desc.clone()).collect()
    }

    /// Begins with a request for counters.
    pub(super) fn begin_group_stats(
        &mut self,
        conn: &mut OfConn,
        xid: u32,
        group_id: Option<u32>,
        now: Instant,
    ) {
        let fold = self.dp.request_fold();
        let counters = GroupCounters { xid, group_id, fold, deadline: now + FOLD_WAIT };
        conn.pending = Some(Pending::Groups(counters));
    }

    /// Answers it once the counters are there.
    pub(super) fn go_on_with_groups(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        asked: GroupCounters,
        now: Instant,
    ) -> Served {
        if !self.dp.fold_done(asked.fold) && now < asked.deadline {
            conn.pending = Some(Pending::Groups(asked));
            return Served::Waiting;
        }
        let groups = self.groups_asked_for(bridge, asked.group_id);
        let stats = groups.map(|group| self.group_stats(group)).collect();
        let Some(codec) = conn.connection().codec() else { return Served::Quiet };
        let mut bytes = Vec::new();
        match write_reply(codec, asked.xid, StatsBody::Group(stats), &mut bytes) {
            Ok(()) => conn.connection().send_bytes(&bytes),
            Err(error) => tracing::warn!(target: "ofproto", "counters of groups were not sent: {error}"),
        }
        Served::Quiet
    }

    fn group_stats(&self, group: &Group) -> GroupStats {
        let counts = |slot: u32| {
            let counted = self.slot(slot);
            (counted.packets, counted.bytes)
        };
        let (duration_s, duration_ns) = self.since(group.created_ms);
        let references = self.control.group_references(group.bridge, group.desc.group_id);
        GroupStats {
            group_id: group.desc.group_id,
            ref_count: references as u32,
            counts: counts(group.slot),
            duration_s,
            duration_ns,
            buckets: group.bucket_slots.iter().map(|slot| counts(*slot)).collect(),
        }
    }
}

/// What groups can be, which is as in Open vSwitch. Loops are refused, though OFPGFC_CHAINING_CHECKS is not
/// set: that would promise to refuse groups that lead to ones that are not there, too.
pub(super) fn features(version: Version) -> GroupFeatures {
    /// OFPGFC_SELECT_WEIGHT, OFPGFC_SELECT_LIVENESS and OFPGFC_CHAINING.
    const CAPABILITIES: u32 = 0b111;
    let actions = match version {
        Version::V10 => bits(&[0..=11]),
        // Output; fields by actions of their own; labels, tags, queues, groups, time to live.
        Version::V11 => bits(&[0..=10, 15..=24]),
        // Fields are set by set_field.
        Version::V12 | Version::V13 | Version::V14 | Version::V15 => bits(&[0..=0, 15..=25]),
    };
    GroupFeatures {
        types: 0b1111,
        capabilities: CAPABILITIES,
        max_groups: [openflow::message::GROUP_MAX; 4],
        actions: [actions; 4],
    }
}

fn bits(ranges: &[std::ops::RangeInclusive<u32>]) -> u32 {
    ranges.iter().cloned().flatten().fold(0, |bits, bit| bits | 1 << bit)
}

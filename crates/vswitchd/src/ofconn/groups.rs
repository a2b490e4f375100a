//! Groups: changes, notifying other controllers, and counters.

use super::flow_mods;
use super::request::{Handled, Request};
use crate::ofproto::{Asynchronous, LongKind, OfConn};
use crate::plane::ForwardingPlane;
use crate::plane::SHORT_STEPS_MAX;
use crate::state::Vswitch;
use openflow::Version;
use openflow::message::{GroupCommand, GroupFeatures, GroupMod, GroupStats, Message};
use std::sync::Arc;
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
        self.tell_vacancy(bridge);
        self.forward_group_mod(bridge, request.xid, &change, existed);
        Ok(())
    }

    /// Notifies other controllers, if they asked for that, of a change. `existed`: whether the group existed
    /// before.
    pub(super) fn forward_group_mod(
        &mut self,
        bridge: BridgeIdx,
        xid: u32,
        change: &GroupMod,
        existed: bool,
    ) {
        let now = self.plane.control.group(bridge, change.group.group_id).map(|group| &group.desc);
        if let Some(desc) = now.filter(|_| tracing::event_enabled!(target: "ofproto_dpif", Level::DEBUG)) {
            selection_log(desc).iter().for_each(|line| tracing::debug!(target: "ofproto_dpif", "{line}"));
        }
        let Some(record) = self.bridges.get_mut(&bridge) else { return };
        // A group may have thousands of buckets, and most connections want to hear of none.
        for conn in record.conns.values_mut().filter(|conn| conn.wants_group_mods()) {
            let on_buckets =
                matches!(change.command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket);
            let mut forwarded = if on_buckets && !matches!(conn.version(), Version::V10 | Version::V15) {
                // For versions without commands on buckets.
                let Some(group) = now.cloned() else { continue };
                GroupMod { command: GroupCommand::Modify, group, ..change.clone() }
            } else {
                change.clone()
            };
            if change.command == GroupCommand::AddOrModify {
                forwarded.command = if existed { GroupCommand::Modify } else { GroupCommand::Add };
            }
            conn.tell(&Asynchronous::GroupMod(xid, Box::new(Message::GroupMod(Box::new(forwarded)))));
        }
    }
}

impl ForwardingPlane {
    pub(super) fn group_stats(&self, group: &Group) -> GroupStats {
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

/// The supported group features, the same as Open vSwitch's. Loops are refused, although
/// OFPGFC_CHAINING_CHECKS is not set: that would also promise to refuse groups that refer to missing ones.
pub(super) fn features(version: Version) -> GroupFeatures {
    /// OFPGFC_SELECT_WEIGHT, OFPGFC_SELECT_LIVENESS and OFPGFC_CHAINING.
    const CAPABILITIES: u32 = 0b111;
    let actions = match version {
        Version::V10 => bits(&[0..=11]),
        // Output; fields by actions of their own; labels, tags, queues, groups, time to live.
        Version::V11 => bits(&[0..=10, 13..=24]),
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

//! Groups and meters. For groups: which buckets get the packet, and what they do with a copy of it.
//!
//! A bucket is an action set. It works on a copy: actions after the group see the packet as it was before.
//! But tables to which a bucket resubmits write to the packet's own action set and stack, as in Open vSwitch.
//! Whether a bucket is live is looked up in the tables of ports and groups. The flow visits these words, so
//! that it is translated again when a link goes down.
//!
//! Sources: OpenFlow 1.5 sections 5.10 and 6.7; ovs-ofctl(8), "Group Syntax".

use super::bounds::COPY_STEPS;
use super::{BUCKETS_MAX, Dscp, Xlate};
use crate::changelog::word_table;
use crate::group::{DpHashTable, Group, Selection, score};
use crate::topology::Bridge;
use crate::trace::Sink;
use base::DropReason;
use base::hash::HashKey;
use datapath::DpAction;
use datapath::meter::MeterRef;
use flow::action::SubField;
use flow::{FieldId, Mf};
use openflow::message::GroupType;

/// Maximum number of liveness checks in one translation.
const LIVENESS_MAX: u32 = 4096;
/// Maximum length of a chain of groups that watch each other.
const WATCHED_MAX: u32 = 128;

impl<'a, S: Sink> Xlate<'a, S> {
    /// Passes the packet to the buckets of a group.
    #[inline(never)]
    pub(super) fn group(&mut self, group_id: u32) {
        if self.is_exhausted() {
            return;
        }
        let Some(group) = self.find_group(group_id) else {
            self.drop_reason = DropReason::NoLiveBucket;
            self.trace.warn(|| format!("output to nonexistent group {group_id}"));
            self.list_ends = true;
            return;
        };
        let picked = match group.desc.kind {
            GroupType::All | GroupType::Indirect => {
                self.out.credits.push(group.slot);
                for n in 0..group.actions.len() {
                    self.bucket(group, n);
                }
                return;
            }
            GroupType::Select if self.unread => return self.freeze(),
            GroupType::Select => match &group.selection {
                Selection::DpHash(table) => {
                    if !self.is_hashed(table.hash) {
                        return self.freeze_to_hash(table.hash);
                    }
                    self.pick_by_dp_hash(group, table)
                }
                _ => self.pick_by_hash(group),
            },
            GroupType::FastFailover => self.first_live_bucket(group, 0),
        };
        match picked {
            Some(n) => {
                let id = group.buckets()[n].id;
                self.trace.detail(|| format!("using bucket {id}"));
                self.out.credits.push(group.slot);
                self.bucket(group, n);
            }
            None => {
                self.drop_reason = DropReason::NoLiveBucket;
                self.trace.detail(|| "no live bucket".to_string());
            }
        }
    }

    /// Applies a meter to the packets of the flow.
    #[inline(never)]
    pub(super) fn meter(&mut self, meter_id: u32) {
        if let Some(meter) = self.find_meter(meter_id) {
            // What it remarks is the field as the rules have set it.
            let remarks = meter.remarks();
            if remarks {
                self.commit();
            }
            self.out.actions.push(DpAction::Meter(meter));
            if remarks {
                self.dscp = Dscp::Remarked;
            }
            // On a copy, packets over the rate are dropped, but the original continues.
            self.irreversible = true;
        }
    }

    /// A meter of the current bridge.
    pub(super) fn find_meter(&mut self, meter_id: u32) -> Option<MeterRef> {
        let bridge: &'a Bridge = self.bridge;
        self.visit_word(word_table::meters(bridge.idx.0), u64::from(meter_id));
        Some(bridge.state.meters.lookup(meter_id, self.version, self.reader)?.state.clone())
    }

    fn find_group(&mut self, group_id: u32) -> Option<&'a Group> {
        let bridge: &'a Bridge = self.bridge;
        self.visit_word(word_table::groups(bridge.idx.0), u64::from(group_id));
        bridge.state.groups.lookup(group_id, self.version, self.reader)
    }

    /// Executes a bucket on a copy of the packet.
    fn bucket(&mut self, group: &'a Group, n: usize) {
        self.buckets += 1;
        self.out.steps += COPY_STEPS;
        if self.buckets > BUCKETS_MAX {
            self.trace.error(|| format!("over {BUCKETS_MAX} buckets"));
            self.fail(DropReason::ResubmitLimit, "Too many resubmits");
        }
        if self.error.is_some() {
            return;
        }
        self.trace.enter_bucket(group.buckets()[n].id);
        self.out.credits.push(group.bucket_slots[n]);
        let before = (self.exit, self.list_ends, self.in_bucket);
        self.in_bucket = true;
        self.depth += 1;
        if group.actions[n].is_empty() {
            self.trace.nothing_to_do();
        }
        self.with_packet_restored(|x| {
            x.actions(&group.actions[n]);
            if x.freezing.is_some() {
                // It comes back with copies of the packet's action set and stack.
                let (set, stack) = (x.copied_action_set(), x.stack.clone());
                x.finish_freezing();
                (x.action_set, x.stack) = (set, stack);
            }
        });
        // A header that cannot come or go ends the copy alone.
        if let Some(reason @ (DropReason::UnsupportedPacketType | DropReason::MplsLabelLimit)) = self.error {
            self.error = None;
            self.drop_reason = reason;
        }
        self.depth -= 1;
        (self.exit, self.list_ends, self.in_bucket) = before;
        self.trace.leave();
    }

    /// The first live bucket of a group. `depth`: the length of the chain of watching groups so far.
    fn first_live_bucket(&mut self, group: &'a Group, depth: u32) -> Option<usize> {
        for n in 0..group.buckets().len() {
            if self.is_live(group, n, depth) {
                return Some(n);
            }
            self.tell_not_live(group, n);
            if self.has_asked_enough() {
                break;
            }
        }
        None
    }

    /// Whether no further bucket is found live.
    fn has_asked_enough(&self) -> bool {
        self.liveness > LIVENESS_MAX
    }

    fn is_live(&mut self, group: &'a Group, n: usize, depth: u32) -> bool {
        self.liveness += 1;
        self.out.steps += 1;
        if depth >= WATCHED_MAX || self.has_asked_enough() {
            self.trace.error(|| format!("bucket chaining exceeded {WATCHED_MAX} links"));
            return false;
        }
        let bucket = &group.buckets()[n];
        if group.desc.kind == GroupType::Select && bucket.weight == 0 {
            return false;
        }
        if bucket.watch_port.is_none() && bucket.watch_group.is_none() {
            return true;
        }
        if let Some(watched) = bucket.watch_port {
            let bridge: &'a Bridge = self.bridge;
            self.visit_word(word_table::ports(bridge.idx.0), word_table::port(watched.0));
            if bridge.port(watched).is_some_and(|p| p.spec.link_up && !p.spec.config.port_down) {
                return true;
            }
        }
        let watched = bucket.watch_group.and_then(|watched| self.find_group(watched));
        watched.is_some_and(|watched| self.first_live_bucket(watched, depth + 1).is_some())
    }

    fn tell_not_live(&mut self, group: &'a Group, n: usize) {
        let bucket = &group.buckets()[n];
        self.trace.detail(|| {
            let port = bucket.watch_port.map(|port| format!("port {}", port.0));
            let watched = bucket.watch_group.map(|id| format!("group {id}"));
            let watched: Vec<String> = port.into_iter().chain(watched).collect();
            format!("bucket {}: not live due to {}", bucket.id, watched.join(" and "))
        });
    }

    /// The first live bucket, starting at the one that the group's table has for the packet's hash.
    fn pick_by_dp_hash(&mut self, group: &'a Group, table: &DpHashTable) -> Option<usize> {
        let place = FieldId::DpHash.place();
        let mask = table.hash.mask;
        self.need(place.block.into(), place.word.into(), u64::from(mask) << place.shift);
        let hash = self.key.get64(FieldId::DpHash) as u32 & mask;
        let mut values =
            (0..=mask).map(|n| usize::from(table.buckets[(hash.wrapping_add(n) & mask) as usize]));
        let mut asked = None;
        let found = values.find(|&n| {
            // Neighbouring values often have the same bucket.
            asked.replace(n) != Some(n) && (self.is_live(group, n, 0) || self.has_asked_enough())
        });
        found.filter(|_| !self.has_asked_enough())
    }

    /// The live bucket of a select group with the highest score for the packet's hash.
    fn pick_by_hash(&mut self, group: &'a Group) -> Option<usize> {
        let hash = match group.selection {
            Selection::Fields => self.hash_of_fields(group),
            _ => self.hash_symmetric_l4(),
        };
        let mut best = None;
        for (n, bucket) in group.buckets().iter().enumerate() {
            if !self.is_live(group, n, 0) {
                self.tell_not_live(group, n);
                if self.has_asked_enough() {
                    break;
                }
                continue;
            }
            let score = score(bucket.id, bucket.weight, hash);
            self.trace.detail(|| format!("bucket {}: score {score}", bucket.id));
            if best.is_none_or(|(best, _)| score >= best) {
                best = Some((score, n));
            }
        }
        best.map(|(_, n)| n)
    }

    /// A hash of the fields chosen by a group's owner, which become part of the mask. Fields that the packet
    /// does not have are skipped.
    fn hash_of_fields(&mut self, group: &'a Group) -> u64 {
        let key = HashKey::from_seed(group.desc.selection.param);
        let mut hash = 0;
        for (n, &(field, mask)) in group.desc.selection.fields.iter().enumerate() {
            if !self.prerequisites_hold(field) {
                continue;
            }
            let value = if let Mf::TunMetadata(idx) = field {
                let count = self.bridge.options().bits(idx).unwrap_or(0).min(128);
                if count == 0 {
                    continue;
                }
                self.read_sub(&SubField { field, offset: 0, count }) & mask
            } else {
                self.need_mf(field, mask & field.ones());
                self.key.get_mf(field) & mask
            };
            // The field's index is hashed too, so that equal values of different fields have different
            // hashes.
            hash = key.word(key.word(hash, n as u64), (value >> 64) as u64);
            hash = key.word(hash, value as u64);
        }
        hash
    }

    /// A hash of addresses, VLAN, protocol and ports, which become part of the mask. It is the same in both
    /// directions.
    fn hash_symmetric_l4(&mut self) -> u64 {
        use FieldId::*;
        let key = HashKey::from_seed(0);
        let eth_type = self.read(EthType);
        let mut hash = key.word(eth_type, self.read(EthSrc) ^ self.read(EthDst));
        hash = key.word(hash, self.read(VlanTci) & 0xfff | (self.read(VlanTci2) & 0xfff) << 16);
        match eth_type {
            0x0800 => hash = key.word(hash, self.read(NwSrc) ^ self.read(NwDst)),
            0x86dd => {
                self.need_mf(Mf::Ipv6Src, u128::MAX);
                self.need_mf(Mf::Ipv6Dst, u128::MAX);
                let both = self.key.get(Ipv6Src) ^ self.key.get(Ipv6Dst);
                hash = key.word(key.word(hash, (both >> 64) as u64), both as u64);
            }
            _ => return hash,
        }
        let proto = self.read(NwProto);
        hash = key.word(hash, proto);
        if matches!(proto, 6 | 132) && self.read(NwFrag) & 2 == 0 {
            hash = key.word(hash, self.read(TpSrc) ^ self.read(TpDst));
        }
        hash
    }
}

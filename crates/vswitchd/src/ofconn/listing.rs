//! Lists the groups or meters of a bridge: one piece at a time, so that a list of a million delays no other
//! connection.
//!
//! Counters of groups wait for the workers to fold what their flows have counted, like dumps of flows. What
//! is listed in one turn is consistent; in a longer list, each entry is shown as it is at its turn.

use super::request::{FOLD_WAIT, Handled, Served, WAITING_MAX, rests};
use crate::ofproto::{Listed, Listing, OfConn, Pending};
use crate::plane::ForwardingPlane;
use openflow::message::{GROUP_ALL, METER_ALL, Message, StatsBody, StatsReply};
use openflow::{Codec, ErrorKind};
use std::ops::RangeInclusive;
use std::time::Instant;
use switch::{BridgeIdx, Group, Meter};
use transport::clock;

/// Entries per message.
const LISTED_AT_ONCE: usize = 128;
/// Groups are listed together as long as they have no more buckets and actions: a group may have thousands.
const PARTS_AT_ONCE: usize = 1_024;

impl ForwardingPlane {
    /// Begins to list what has this number; without one, all.
    pub(super) fn list(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        xid: u32,
        what: Listed,
        id: Option<u32>,
    ) -> Handled {
        let is_of_meters = matches!(what, Listed::MeterStats | Listed::MeterConfigs);
        let all = if is_of_meters { METER_ALL } else { GROUP_ALL };
        let ids = id.filter(|id| *id != all).map_or(0..=u32::MAX, |id| id..=id);
        if is_of_meters
            && ids != (0..=u32::MAX)
            && self.control.meters_in(bridge, ids.clone()).next().is_none()
        {
            return Err(ErrorKind::OFPMMFC_UNKNOWN_METER);
        }
        let fold = (what == Listed::GroupStats).then(|| (self.dp.request_fold(), clock::now() + FOLD_WAIT));
        conn.pending = Some(Pending::Listing(Listing { xid, what, ids, fold }));
        Ok(())
    }

    /// Does another piece of a list.
    pub(super) fn go_on_listing(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        mut listing: Listing,
        now: Instant,
        until: Instant,
    ) -> Served {
        if listing.fold.is_some_and(|(ticket, deadline)| !self.dp.fold_done(ticket) && now < deadline) {
            conn.pending = Some(Pending::Listing(listing));
            return Served::Waiting;
        }
        if rests(conn) {
            conn.pending = Some(Pending::Listing(listing));
            return Served::Quiet;
        }
        let Some(codec) = conn.connection().codec() else { return Served::Quiet };
        let (mut bytes, mut has_more) = (Vec::new(), true);
        while has_more && Instant::now() < until && bytes.len() <= WAITING_MAX {
            let (body, next) = self.listed(bridge, listing.what, listing.ids.clone());
            has_more = next.is_some();
            if let Some(next) = next {
                listing.ids = next..=*listing.ids.end();
            }
            write_part(codec, listing.xid, body, has_more, &mut bytes);
        }
        conn.connection().send_bytes(&bytes);
        if has_more {
            conn.pending = Some(Pending::Listing(listing));
            return Served::More;
        }
        Served::Quiet
    }

    /// The first of these numbers, in the form for messages, and the number with which to continue.
    fn listed(&self, bridge: BridgeIdx, what: Listed, ids: RangeInclusive<u32>) -> (StatsBody, Option<u32>) {
        let mut groups = self.control.groups_in(bridge, ids.clone()).map(|group| &**group).peekable();
        let mut meters = self.control.meters_in(bridge, ids).map(|meter| &**meter).peekable();
        let body = {
            let mut parts = 0;
            let mut next_group = || {
                // One at least.
                let is_first = parts == 0;
                groups.next_if(|group| {
                    let of_bucket = group.desc.buckets.iter().map(|bucket| 1 + bucket.actions.len());
                    parts += 1 + of_bucket.sum::<usize>();
                    is_first || parts <= PARTS_AT_ONCE
                })
            };
            let groups = std::iter::from_fn(&mut next_group).take(LISTED_AT_ONCE);
            let meters = meters.by_ref().take(LISTED_AT_ONCE);
            match what {
                Listed::GroupStats => StatsBody::Group(groups.map(|group| self.group_stats(group)).collect()),
                Listed::GroupDescs => StatsBody::GroupDesc(groups.map(|group| group.desc.clone()).collect()),
                Listed::MeterStats => StatsBody::Meter(meters.map(|meter| self.meter_stats(meter)).collect()),
                Listed::MeterConfigs => {
                    StatsBody::MeterConfig(meters.map(|meter| meter.config.clone()).collect())
                }
            }
        };
        let next = match what {
            Listed::GroupStats | Listed::GroupDescs => {
                groups.peek().map(|group: &&Group| group.desc.group_id)
            }
            Listed::MeterStats | Listed::MeterConfigs => meters.peek().map(|m: &&Meter| m.config.meter_id),
        };
        (body, next)
    }
}

/// Appends a part of a reply; it takes several messages if it is too long for one.
fn write_part(codec: Codec, xid: u32, body: StatsBody, more: bool, out: &mut Vec<u8>) {
    let before = out.len();
    let reply = Message::StatsReply(StatsReply { more, body });
    let Err(error) = codec.encode_into(xid, &reply, out) else { return };
    out.truncate(before);
    let Message::StatsReply(StatsReply { body, .. }) = reply else { return };
    match halved(body) {
        Ok([first, second]) => {
            write_part(codec, xid, first, true, out);
            write_part(codec, xid, second, more, out);
        }
        Err(empty) => {
            tracing::debug!(target: "ofproto", "a group or meter was left out of a list: {error}");
            let reply = Message::StatsReply(StatsReply { more, body: empty });
            codec.encode_into(xid, &reply, out).expect("an empty list has a form in each version");
        }
    }
}

/// Two lists of half the length; of one that has no two parts, an empty one.
fn halved(body: StatsBody) -> Result<[StatsBody; 2], StatsBody> {
    fn split<T>(mut list: Vec<T>, make: impl Fn(Vec<T>) -> StatsBody) -> Result<[StatsBody; 2], StatsBody> {
        let rest = list.split_off(list.len() / 2);
        if list.is_empty() { Err(make(list)) } else { Ok([make(list), make(rest)]) }
    }
    match body {
        StatsBody::Group(list) => split(list, StatsBody::Group),
        StatsBody::GroupDesc(list) => split(list, StatsBody::GroupDesc),
        StatsBody::Meter(list) => split(list, StatsBody::Meter),
        StatsBody::MeterConfig(list) => split(list, StatsBody::MeterConfig),
        other => unreachable!("{other:?} is not a list of groups or meters"),
    }
}

//! Flow statistics: one piece at a time, so that a dump of a million rules delays no other connection, with
//! counters that are exact when there is no traffic.
//!
//! First the workers fold what their flows have counted; a dump waits for that for a limited time. Then rules
//! are collected, some thousand per turn, and again from the start if a transaction begins meanwhile: the
//! client sees tables as they are before it or after it. Once all requested rules are found, they are written
//! into messages. A dump holds at most 65,536 rules, and all dumps together eight times as many, because
//! clients that do not read their replies may hold theirs indefinitely. A dump that is larger, or finds no
//! room, is written as rules are found, so its rest may show the state after a transaction. While more than
//! [`WAITING_MAX`] bytes wait to be sent, the dump pauses.

use super::flow_mods;
use super::request::{FOLD_WAIT, Served, WAITING_MAX, rests};
use crate::ofproto::{Dump, OfConn, Output, Pending, flags_of};
use crate::plane::ForwardingPlane;
use flow::Match;
use openflow::message::{
    AggregateStats, FlowEvent, FlowInfo, FlowMonitorFlags, FlowStatsRef, Message, StatsBody, StatsReply,
};
use std::time::Instant;
use switch::control::Cursor;
use switch::{BridgeIdx, Rule, SlotStats};

/// Rules looked at for one dump before others get their turn.
const PLACES_PER_TURN: usize = 4_096;
/// Rules looked at before the clock is.
const PLACES_PER_LOOK: usize = 128;

impl ForwardingPlane {
    /// Does another piece of a dump.
    pub(super) fn go_on_dumping(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        mut dump: Box<Dump>,
        now: Instant,
        until: Instant,
    ) -> Served {
        let deadline = *dump.deadline.get_or_insert(now + FOLD_WAIT);
        if !self.dp.fold_done(dump.fold) && now < deadline {
            conn.pending = Some(Pending::Dump(dump));
            return Served::Waiting;
        }
        if rests(conn) {
            conn.pending = Some(Pending::Dump(dump));
            return Served::Quiet;
        }
        self.reserve_for(&dump, now);
        let now_ms = self.now_ms();
        let mut bytes = Vec::new();
        let Dump { filter, cursor, output, found, whole, .. } = &mut *dump;
        let begun = self.control.transactions();
        if let Some(whole) = whole.as_mut().filter(|whole| !whole.is_written() && whole.begun_at != begun) {
            (whole.begun_at, *cursor) = (begun, Cursor::default());
            whole.rules.clear();
            if let Output::Aggregate(_, sums) = output {
                *sums = AggregateStats::default();
            }
        }
        let searches = whole.as_ref().is_none_or(|w| !w.is_found && (!w.is_too_large || w.rules.is_empty()));
        let mut next = Some(*cursor).filter(|_| searches);
        for _ in 0..PLACES_PER_TURN / PLACES_PER_LOOK {
            let waits =
                whole.as_ref().is_some_and(|whole| !whole.rules.is_empty() && whole.rules.is_full_by_all());
            let Some(from) = next.filter(|_| !waits && Instant::now() < until) else { break };
            next = self.control.dump(bridge, filter, from, PLACES_PER_LOOK, |rule| {
                let counted = self.counted(rule.slot);
                match output {
                    Output::Flows(_) => {
                        let learned_ms = rule.learn_slot.map_or(0, |slot| self.slot(slot).last_used_ms);
                        whole.iter_mut().for_each(|w| w.rules.push((rule.clone(), counted, learned_ms)));
                    }
                    Output::Monitors(writer, monitors) => {
                        let flags = flags_of(&*monitors, rule);
                        if !flags.is_empty() {
                            let actions = flags.contains(FlowMonitorFlags::ACTIONS);
                            writer.push_event(&self.update_of(rule, FlowEvent::Initial, actions), &mut bytes);
                        }
                    }
                    Output::Missed(writer, missed) => {
                        let flags = flags_of(&missed.monitors, rule);
                        if missed.serials.contains(&rule.serial()) && !flags.is_empty() {
                            let what = match missed.serials.contains(&rule.first_serial()) {
                                true if flags.contains(FlowMonitorFlags::ADD) => FlowEvent::Added,
                                false if !flags.contains(FlowMonitorFlags::MODIFY) => FlowEvent::Added,
                                _ => FlowEvent::Modified,
                            };
                            let actions = flags.contains(FlowMonitorFlags::ACTIONS);
                            writer.push_event(&self.update_of(rule, what, actions), &mut bytes);
                            *found = true;
                        }
                    }
                    Output::Aggregate(_, sums) => {
                        sums.flow_count = sums.flow_count.saturating_add(1);
                        sums.packet_count += counted.packets;
                        sums.byte_count += counted.bytes;
                    }
                }
            });
        }
        let mut has_more = next.is_some();
        if searches {
            *cursor = next.unwrap_or_default();
        }
        if let (Output::Flows(writer), Some(whole)) = (output, whole) {
            if searches && next.is_none() {
                whole.is_found = true;
                if !whole.is_too_large {
                    whole.rules.put_in_order();
                }
            }
            whole.is_too_large |= whole.rules.is_full();
            for _ in 0..PLACES_PER_TURN / PLACES_PER_LOOK {
                if !whole.is_written() || Instant::now() >= until || bytes.len() > WAITING_MAX {
                    break;
                }
                for (rule, counted, learned_ms) in whole.rules.take(PLACES_PER_LOOK) {
                    let matching = self.match_of(&rule);
                    let info = info(&rule, counted, learned_ms, now_ms);
                    let flow = FlowStatsRef { info, matching: &matching, actions: &rule.actions.list };
                    writer.push(&flow, &mut bytes);
                }
            }
            has_more = !whole.is_found || !whole.rules.is_empty();
        }
        if has_more {
            conn.connection().send_bytes(&bytes);
            conn.pending = Some(Pending::Dump(dump));
            return Served::More;
        }
        match dump.output {
            Output::Monitors(writer, _) => {
                writer.finish(&mut bytes);
                conn.connection().send_bytes(&bytes);
            }
            Output::Missed(writer, ..) => {
                if dump.found {
                    writer.finish(&mut bytes);
                    conn.connection().send_bytes(&bytes);
                }
                self.resumed(conn);
            }
            Output::Flows(writer) => {
                for _ in 0..writer.too_long() {
                    tracing::warn!(
                        target: "ofp_flow",
                        "Flow exceeded the maximum flow statistics reply size and was excluded from the \
                         response set"
                    );
                }
                writer.finish(&mut bytes);
                conn.connection().send_bytes(&bytes);
            }
            Output::Aggregate(form, stats) => {
                let body = StatsBody::Aggregate { form, stats };
                conn.send(dump.xid, &Message::StatsReply(StatsReply { more: false, body }));
            }
        }
        Served::Quiet
    }

    /// A dump that is overtaken again and again has tables to itself.
    pub(super) fn reserve_for(&mut self, dump: &Dump, now: Instant) {
        if let Some(whole) = dump.whole.as_ref().filter(|whole| !whole.is_written()) {
            self.reserve_tables(whole.asked_at, now);
        }
    }

    /// A rule's match in the form for messages.
    pub(crate) fn match_of(&self, rule: &Rule) -> Match {
        let mut matching = rule.matching.to_match();
        if let Some(options) = self.control.options(rule.bridge).filter(|options| !options.is_empty()) {
            options.lift(&mut matching);
        }
        matching
    }
}

/// `learned_ms` is when it was last learned, 0 for never.
fn info(rule: &Rule, counted: SlotStats, learned_ms: u64, now_ms: u64) -> FlowInfo {
    let age_ms = now_ms.saturating_sub(rule.created_ms);
    let seconds_since = |then_ms: u64| (now_ms.saturating_sub(then_ms) / 1000).min(0xffff) as u16;
    FlowInfo {
        table_id: rule.table_id,
        priority: rule.priority.clamp(0, 0xffff) as u16,
        cookie: rule.cookie,
        duration_s: (age_ms / 1000) as u32,
        duration_ns: (age_ms % 1000) as u32 * 1_000_000,
        idle_timeout: rule.timeouts.idle_s(),
        hard_timeout: rule.timeouts.hard_s(),
        idle_age: Some(seconds_since(counted.last_used_ms.max(rule.unused_since_ms))),
        hard_age: Some(seconds_since(rule.modified_ms.max(learned_ms))),
        packet_count: counted.packets,
        byte_count: counted.bytes,
        flags: flow_mods::flags(&rule.flags),
        importance: rule.importance,
    }
}

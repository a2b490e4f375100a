//! Flow monitors: notifies a connection that watches flows of their changes (NXST_FLOW_MONITOR).
//!
//! First come the existing flows, one piece at a time as in a dump, then every change as it happens. A
//! connection gets its own changes in full only if it asks for that (NXFMF_OWN); otherwise an abbreviated
//! event shows where they belong in the sequence.
//!
//! A connection that reads too slowly is paused: when more than [`PAUSE_BYTES`] wait for it, it gets a notice
//! (NXT_FLOW_MONITOR_PAUSED), and from then on only deletions, because those could not be reported later.
//! When it has read everything, it gets the flows that were added or modified meanwhile and still exist, and
//! a notice that it continues (NXT_FLOW_MONITOR_RESUMED). A connection for which deletions alone exceed
//! [`DELETIONS_BYTES_MAX`] is closed.
//!
//! A paused monitor does not get the deletion of a flow that was added since: it never knew about that flow.
//!
//! Source: the Nicira extensions, NXST_FLOW_MONITOR; ovs-ofctl(8), `monitor`.

use super::flow_mods::refusal;
use super::request::{Handled, check_table};
use crate::ofproto::{Dump, Missed, Monitor, OfConn, Own, Pending, Report};
use crate::plane::ForwardingPlane;
use crate::plane::TURN;
use crate::state::Vswitch;
use openflow::message::{
    FlowEvent, FlowMonitorCommand, FlowMonitorFlags, FlowMonitorRequest, FlowRemovedReason, FlowUpdate,
    FlowUpdateFull, Message,
};
use openflow::{ErrorKind, ReplyWriter, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use switch::control::{RemovedReason, RuleEventKind};
use switch::shape::MiniMatch;
use switch::{BridgeIdx, Rule};

/// Connections notified per turn. Each is woken and writes to its socket before other tasks have their turn,
/// which takes longer than finding what to send.
const TOLD_A_TURN: usize = 32;

/// More waits for a connection than this: its monitors pause.
const PAUSE_BYTES: usize = 128 * 1024;
/// More waits for one whose monitors are paused: it is given up.
const DELETIONS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Monitors of one connection.
const MONITORS_MAX: usize = 1024;

impl Vswitch {
    /// A request for monitors. The reply contains the existing flows.
    pub(super) fn watch_flows(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        xid: u32,
        requests: Vec<FlowMonitorRequest>,
    ) -> Handled {
        let Some(codec) = conn.connection().codec() else { return Ok(()) };
        let mut new: BTreeMap<u32, Monitor> = BTreeMap::new();
        let mut cancelled = BTreeSet::new();
        for mut request in requests {
            let known = conn.monitors.by_id.contains_key(&request.id) && !cancelled.contains(&request.id);
            if request.command != FlowMonitorCommand::Add && !known {
                return Err(ErrorKind::OFPMOFC_UNKNOWN_MONITOR);
            }
            if request.command != FlowMonitorCommand::Add {
                cancelled.insert(request.id);
            }
            if request.command == FlowMonitorCommand::Delete {
                continue;
            }
            check_table(request.table_id)?;
            let is_added = request.command == FlowMonitorCommand::Add;
            if (is_added && known) || new.contains_key(&request.id) {
                return Err(ErrorKind::OFPMOFC_MONITOR_EXISTS);
            }
            if conn.monitors.by_id.len() + new.len() >= MONITORS_MAX {
                return Err(ErrorKind::OFPMOFC_UNKNOWN);
            }
            self.plane
                .control
                .place_options(bridge, &mut request.matching)
                .map_err(|error| refusal(&error))?;
            let monitor = Monitor {
                flags: request.flags,
                out_port: request.out_port,
                out_group: request.out_group,
                table_id: request.table_id,
                within: MiniMatch::of(&request.matching),
            };
            new.insert(request.id, monitor);
        }
        let initial = new.values().filter(|m| m.flags.contains(FlowMonitorFlags::INITIAL)).cloned().collect();
        conn.monitors.by_id.retain(|id, _| !cancelled.contains(id));
        conn.monitors.by_id.extend(new);
        self.watch_rules(bridge, !conn.monitors.is_empty());
        // An empty reply, since none of them asks for existing flows.
        conn.pending = Some(Pending::Dump(Box::new(Dump::of_monitors(codec, xid, initial))));
        Ok(())
    }

    pub(super) fn cancel_monitor(&mut self, bridge: BridgeIdx, conn: &mut OfConn, id: u32) -> Handled {
        conn.monitors.by_id.remove(&id).ok_or(ErrorKind::OFPMOFC_UNKNOWN_MONITOR)?;
        self.watch_rules(bridge, !conn.monitors.is_empty());
        Ok(())
    }

    /// Records what happens to a bridge's rules while any connection watches them, including one that is
    /// taken out of its bridge at the moment.
    pub(super) fn watch_rules(&mut self, bridge: BridgeIdx, watched_besides: bool) {
        let Some(record) = self.bridges.get(&bridge) else { return };
        let watched = watched_besides || record.conns.values().any(|c| !c.monitors.is_empty());
        self.plane.control.watch_rules(bridge, watched);
    }

    /// Notifies all watchers of what happened to rules, for as long as a turn lasts; the rest follows in
    /// later turns. `own` is the connection that caused it, which is taken out of its bridge, and the
    /// transaction id of its request.
    pub(crate) fn report_rules(&mut self, own: Option<(&mut OfConn, u32)>) {
        let events = self.plane.control.take_rule_events();
        let (conn, xid) = own.unzip();
        if let Some(first) = events.list.first() {
            let mut watchers = Vec::new();
            if let Some(conn) = conn.as_deref().filter(|conn| !conn.monitors.is_empty()) {
                watchers.push((first.rule.bridge, conn.id));
            }
            for bridge in &events.bridges {
                let Some(record) = self.bridges.get(bridge) else { continue };
                let watching = record.conns.values().filter(|c| !c.monitors.is_empty());
                watchers.extend(watching.map(|conn| (*bridge, conn.id)));
            }
            let own = conn.as_deref().zip(xid);
            let own = own.map(|(conn, xid)| Own { conn: conn.id, xid, is_told: false });
            self.connections.reports.push_back(Report::new(events, watchers, own));
            // What is left is reported between other work. If everybody who is served reported more, those
            // who are told would be served before anybody else.
            if self.go_on_reporting(conn, Instant::now() + TURN) {
                self.urgent.notify_one();
            }
        }
    }

    /// Continues to notify watchers of rules, in a turn that ends soon after `until`. `out` is a connection
    /// that is taken out of its bridge. Returns whether there is more to report.
    pub(crate) fn go_on_reporting(&mut self, mut out: Option<&mut OfConn>, until: Instant) -> bool {
        let mut told = 0;
        while let Some(mut report) = self.connections.reports.pop_front() {
            let mut is_over = false;
            while !is_over && let Some((bridge, id)) = report.next_watcher() {
                match &mut out {
                    Some(conn) if conn.id == id => self.tell_monitors(bridge, conn, &mut report),
                    _ => {
                        let found = self.bridges.get_mut(&bridge).and_then(|b| b.conns.remove(&id));
                        if let Some(mut conn) = found {
                            self.tell_monitors(bridge, &mut conn, &mut report);
                            conn.wake();
                            if let Some(record) = self.bridges.get_mut(&bridge) {
                                record.conns.insert(id, conn);
                            }
                        }
                    }
                }
                told += 1;
                is_over = told == TOLD_A_TURN || Instant::now() >= until;
            }
            if is_over {
                self.connections.reports.push_front(report);
                return true;
            }
        }
        false
    }

    fn tell_monitors(&mut self, bridge: BridgeIdx, conn: &mut OfConn, report: &mut Report) {
        let Some(codec) = conn.connection().codec().filter(|_| !conn.monitors.is_empty() && !conn.closed)
        else {
            return;
        };
        let mut writer = None;
        let mut bytes = Vec::new();
        let Report { now, own, .. } = report;
        let mut own = own.as_mut().filter(|own| own.conn == conn.id);
        for event in now.iter().filter(|e| e.rule.bridge == bridge) {
            let flags = conn.monitors.flags_for(event);
            if flags.is_empty() {
                continue;
            }
            let update = match &mut own {
                Some(own) if !flags.contains(FlowMonitorFlags::OWN) && conn.monitors.paused.is_none() => {
                    if std::mem::replace(&mut own.is_told, true) {
                        continue;
                    }
                    FlowUpdate::Abbreviated { xid: own.xid }
                }
                _ => {
                    let (what, reason) = event_of(event.kind);
                    let mut update =
                        self.plane.update_of(&event.rule, what, flags.contains(FlowMonitorFlags::ACTIONS));
                    if let FlowUpdate::Full(full) = &mut update {
                        full.reason = reason;
                    }
                    update
                }
            };
            let writer = writer.get_or_insert_with(|| ReplyWriter::of_events(codec, 0));
            writer.push_event(&update, &mut bytes);
        }
        let Some(writer) = writer else { return };
        writer.finish(&mut bytes);
        conn.connection().send_bytes(&bytes);
        let waiting = conn.connection().transmit().len();
        if conn.monitors.paused.is_none() && waiting > PAUSE_BYTES {
            // What it does not get while paused, it gets when it resumes.
            let known =
                report.known.or_else(|| self.connections.reports.iter().find_map(|report| report.known));
            conn.monitors.paused = Some(known.unwrap_or_else(|| self.plane.control.last_serial()));
            if !conn.monitors.resumes {
                tell_state(conn, &FlowUpdate::Paused);
            }
        } else if waiting > DELETIONS_BYTES_MAX {
            tracing::debug!(target: "connmgr", "closing a connection with a flow monitor that does not read");
            conn.close_reason = Some("Flow monitor: the controller does not read".into());
            conn.closed = true;
        }
    }
}

impl ForwardingPlane {
    /// A paused connection that has read everything gets what was added and modified meanwhile, and resumes.
    pub(super) fn resume_monitors(&mut self, conn: &mut OfConn) {
        let Some(codec) = conn.connection().codec() else { return };
        let Some(since) = conn.monitors.paused.take() else { return };
        conn.monitors.resumes = true;
        let either = FlowMonitorFlags::ADD | FlowMonitorFlags::MODIFY;
        let told = conn.monitors.by_id.values().filter(|m| m.flags.intersects(either)).cloned().collect();
        let serials = since + 1..=self.control.last_serial();
        let missed = Missed { monitors: told, serials };
        conn.pending = Some(Pending::Dump(Box::new(Dump::of_missed(codec, missed))));
    }

    /// A connection has got what it missed. If that was so much that it is paused again, it resumes later.
    pub(super) fn resumed(&mut self, conn: &mut OfConn) {
        if conn.monitors.paused.is_none() {
            conn.monitors.resumes = false;
            tell_state(conn, &FlowUpdate::Resumed);
        }
    }

    pub(super) fn update_of(&self, rule: &Rule, event: FlowEvent, actions: bool) -> FlowUpdate {
        FlowUpdate::Full(Box::new(FlowUpdateFull {
            event,
            reason: FlowRemovedReason::IdleTimeout,
            priority: rule.priority.clamp(0, 0xffff) as u16,
            idle_timeout: rule.timeouts.idle_s(),
            hard_timeout: rule.timeouts.hard_s(),
            table_id: rule.table_id,
            cookie: rule.cookie,
            matching: self.match_of(rule),
            actions: if actions { rule.actions.list.to_vec() } else { Vec::new() },
        }))
    }
}

/// Tells a connection that its monitors pause or go on: by an update from OpenFlow 1.4 on, before that by a
/// message of its own.
fn tell_state(conn: &mut OfConn, update: &FlowUpdate) {
    let Some(codec) = conn.connection().codec() else { return };
    if codec.version < Version::V14 {
        let is_paused = *update == FlowUpdate::Paused;
        return conn
            .send(0, if is_paused { &Message::FlowMonitorPaused } else { &Message::FlowMonitorResumed });
    }
    let (mut writer, mut bytes) = (ReplyWriter::of_events(codec, 0), Vec::new());
    writer.push_event(update, &mut bytes);
    writer.finish(&mut bytes);
    conn.connection().send_bytes(&bytes);
}

/// The event in the protocol's terms, with the reason for deletions.
fn event_of(kind: RuleEventKind) -> (FlowEvent, FlowRemovedReason) {
    match kind {
        RuleEventKind::Added => (FlowEvent::Added, FlowRemovedReason::IdleTimeout),
        RuleEventKind::Modified => (FlowEvent::Modified, FlowRemovedReason::IdleTimeout),
        RuleEventKind::Removed(RemovedReason::IdleTimeout) => {
            (FlowEvent::Deleted, FlowRemovedReason::IdleTimeout)
        }
        RuleEventKind::Removed(RemovedReason::HardTimeout) => {
            (FlowEvent::Deleted, FlowRemovedReason::HardTimeout)
        }
        RuleEventKind::Removed(RemovedReason::Delete) => (FlowEvent::Deleted, FlowRemovedReason::Delete),
        RuleEventKind::Removed(RemovedReason::MeterDelete) => {
            (FlowEvent::Deleted, FlowRemovedReason::MeterDelete)
        }
        RuleEventKind::Removed(RemovedReason::Eviction) => (FlowEvent::Deleted, FlowRemovedReason::Eviction),
        RuleEventKind::Removed(RemovedReason::GroupDelete) => {
            (FlowEvent::Deleted, FlowRemovedReason::GroupDelete)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::wanted::Bridge;
    use crate::config::{Config, Database, DatapathFlags, Flags};
    use crate::ofproto::{Ofproto, Purpose};
    use flow::Match;
    use host::rundir::RunDir;
    use openflow::message::TABLE_ALL;
    use switch::BridgeConfig;
    use switch::control::FlowMod;

    #[test]
    fn a_change_is_told_to_some_per_turn_whoever_is_served_in_between() {
        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let mut vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        let bridge = vswitch.plane.control.add_bridge(BridgeConfig::new("br0"));
        vswitch.bridges.insert(bridge, Ofproto::new(bridge, [2, 0, 0, 0, 0, 1], &Bridge::new("br0")));
        let now = Instant::now();
        let mut watcher = || {
            let id = vswitch.connected(bridge, Purpose::Service, None, now).unwrap();
            vswitch.conn(bridge, id).unwrap().connection().handle_bytes(now, &[1, 0, 0, 8, 0, 0, 0, 1]);
            vswitch.serve(bridge, id, now, now);
            let conn = vswitch.conn(bridge, id).unwrap();
            let within = MiniMatch::of(&Match::any());
            let flags = FlowMonitorFlags::ADD;
            let all = Monitor { flags, out_port: None, out_group: None, table_id: TABLE_ALL, within };
            conn.monitors.by_id.insert(1, all);
            let sent = conn.connection().transmit().len();
            conn.connection().transmitted(sent);
            id
        };
        let watchers: Vec<u64> = (0..4 * TOLD_A_TURN).map(|_| watcher()).collect();
        vswitch.watch_rules(bridge, false);
        vswitch.plane.control.flow_mod(bridge, &FlowMod::add(Match::any(), Vec::new()), 0).unwrap();
        vswitch.deliver();
        let told = |vswitch: &mut Vswitch| {
            let is_told = |id: &&u64| {
                let conn = vswitch.conn(bridge, **id).unwrap();
                !conn.connection().transmit().is_empty()
            };
            watchers.iter().filter(is_told).count()
        };
        let mut turns = 0;
        while {
            turns += 1;
            for id in &watchers {
                vswitch.serve(bridge, *id, now, now);
            }
            assert!(
                told(&mut vswitch) < turns + TOLD_A_TURN,
                "after {turns} turns, all but one over at once"
            );
            vswitch.go_on_reporting(None, now)
        } {}
        assert_eq!(told(&mut vswitch), watchers.len());
    }
}

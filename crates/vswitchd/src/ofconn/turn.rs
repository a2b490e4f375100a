//! A connection's turn: handles what it has received, and continues what it waits for.

use super::request::{Request, Served};
use crate::ofproto::{LinkOf, OfConn, Pending, Purpose, SILENT, fail_open, journal};
use crate::state::Vswitch;
use openflow::codec::message_name;
use openflow::connection::CloseReason;
use openflow::message::Role;
use openflow::{ErrorKind, Event, Message};
use std::time::Instant;
use switch::BridgeIdx;

/// Messages handled for one connection before others get their turn.
const MESSAGES_PER_TURN: usize = 256;

impl Vswitch {
    /// A connection was made, perhaps for a controller. Its number.
    pub(crate) fn connected(
        &mut self,
        bridge: BridgeIdx,
        purpose: Purpose,
        link: Option<LinkOf>,
        now: Instant,
    ) -> Option<u64> {
        // Bridges' numbers are given out again, those of connections are not: a task finds no other's
        // connection.
        let id = self.connections.next_id();
        self.bridges.get_mut(&bridge)?.connect(id, purpose, link, now).then_some(id)
    }

    /// The connection is gone.
    pub(crate) fn disconnected(&mut self, bridge: BridgeIdx, id: u64) {
        if let Some(pending) = self.conn(bridge, id).and_then(|conn| conn.pending.take()) {
            self.abandon(bridge, pending);
        }
        let Some(ofproto) = self.bridges.get_mut(&bridge) else { return };
        ofproto.disconnect(id, transport::clock::now());
        self.update_misses(bridge);
        self.watch_rules(bridge, false);
    }

    pub(crate) fn conn(&mut self, bridge: BridgeIdx, id: u64) -> Option<&mut OfConn> {
        self.bridges.get_mut(&bridge)?.conns.get_mut(&id)
    }

    /// Handles what a connection has received, and continues what it waits for, until about `until`.
    pub(crate) fn serve(&mut self, bridge: BridgeIdx, id: u64, now: Instant, until: Instant) -> Served {
        let Some(mut conn) = self.bridges.get_mut(&bridge).and_then(|b| b.conns.remove(&id)) else {
            return Served::Closed;
        };
        journal::keep(&conn);
        let served = self.turn(bridge, &mut conn, now, until);
        journal::log(&conn);
        if let Some(ofproto) = self.bridges.get_mut(&bridge) {
            ofproto.give_back(id, conn);
        }
        self.deliver();
        served
    }

    fn turn(&mut self, bridge: BridgeIdx, conn: &mut OfConn, now: Instant, until: Instant) -> Served {
        if conn.can_resume() {
            if self.tables_are_busy() {
                conn.line.answer_echoes();
                return Served::Waiting;
            }
            self.plane.resume_monitors(conn);
        }
        for message in 0..MESSAGES_PER_TURN {
            // A single change may have to be reported to many watchers.
            if message > 0 && Instant::now() >= until {
                return Served::More;
            }
            if (conn.closed || conn.connection().is_closed())
                && let Some(pending) = conn.pending.take()
            {
                // There is no one to answer, and the end may wait for long until all is sent.
                self.abandon(bridge, pending);
            }
            if conn.closed {
                return Served::Closed;
            }
            if let Some(pending) = conn.pending.take() {
                match self.go_on(bridge, conn, pending, now, until) {
                    Served::Quiet if conn.pending.is_none() => continue,
                    served => return served,
                }
            }
            let is_secondary = conn.role == Role::Secondary;
            let mut connection = conn.connection();
            connection.is_secondary = is_secondary;
            let event = connection.next_event(now);
            drop(connection);
            journal::log(conn);
            match event {
                None => return Served::Quiet,
                Some(Event::Up(version)) => {
                    journal::negotiated(conn, version);
                    self.link_up(bridge, conn, now);
                }
                Some(Event::Message { xid, message, head }) => {
                    self.counts.openflow_received += 1;
                    let request = Request { xid, head: &head };
                    if conn.purpose == Purpose::Snoop {
                        continue;
                    }
                    if !conn.has_admitted && fail_open::admits(&message) {
                        conn.has_admitted = true;
                        self.admitted(bridge, conn, now);
                    }
                    if self.waits(&message) {
                        self.hold(conn, &request, message);
                    } else if let Err(error) = self.handle(bridge, conn, &request, message) {
                        self.refuse(bridge, conn, &request, error);
                    }
                }
                Some(Event::Unreadable { error, head, .. }) => {
                    self.counts.openflow_errors += 1;
                    self.tell_refusal(bridge, conn, head.as_bytes(), error);
                }
                Some(Event::Closed(reason)) => {
                    conn.closed = true;
                    conn.is_silent = reason == CloseReason::Silent;
                    let why = match reason {
                        CloseReason::Silent => SILENT,
                        CloseReason::Behind => "Does not read what it must be told",
                        _ => "Protocol error",
                    };
                    conn.close_reason = Some(why.into());
                    tracing::debug!(target: "vconn", "closing a connection: {reason}");
                    journal::closed(conn, &reason);
                }
            }
        }
        Served::More
    }

    /// A version has been negotiated: a controller's connection counts as connected.
    fn link_up(&mut self, bridge: BridgeIdx, conn: &OfConn, now: Instant) {
        let Some(of) = &conn.link else { return };
        let record = self.bridges.get_mut(&bridge);
        if let Some(record) = record {
            record.snoop_again(conn);
            if let Some(link) = record.link_mut(of) {
                link.up(now);
            }
        }
        // The connection itself is not in its bridge at the moment.
        let conn_wants = conn.wants_misses();
        self.set_misses(bridge, conn_wants);
    }

    /// A controller has admitted the switch: a bridge that switched by itself does not do so any more.
    fn admitted(&mut self, bridge: BridgeIdx, conn: &OfConn, now: Instant) {
        let link = conn.link.as_ref().and_then(|of| self.bridges.get_mut(&bridge)?.link_mut(of));
        if let Some(link) = link {
            link.admit();
            self.run_controllers(bridge, now);
        }
    }

    pub(super) fn refuse(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        error: ErrorKind,
    ) {
        self.counts.openflow_errors += 1;
        self.tell_refusal(bridge, conn, request.head.as_bytes(), error);
        conn.connection().reply_error(request.xid, request.head, error);
    }

    /// Logs which message is answered by an error.
    fn tell_refusal(&self, bridge: BridgeIdx, conn: &OfConn, head: &[u8], error: ErrorKind) {
        let Some(record) = self.bridges.get(&bridge) else { return };
        let peer = conn.link.as_ref().map_or(&conn.name, |of| &of.target);
        let name = message_name(head).unwrap_or_else(|_| "invalid".into());
        tracing::info!(
            target: "connmgr",
            "{}<->{peer}: sending {error} error reply to {name} message", record.name
        );
    }

    /// Does another piece of a long request. `Quiet` with nothing pending means that it is done.
    fn go_on(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        pending: Pending,
        now: Instant,
        until: Instant,
    ) -> Served {
        match pending {
            Pending::Barrier { xid, ticket } => {
                let is_told = conn.monitors.is_empty() || self.connections.reports.is_empty();
                if !self.plane.control.passed(ticket) || !is_told {
                    conn.pending = Some(Pending::Barrier { xid, ticket });
                    return Served::Waiting;
                }
                conn.brisk = true;
                conn.send(xid, &Message::BarrierReply);
                Served::Quiet
            }
            Pending::CtFlush(number) => {
                if self.ct_flushes.is_done(number) {
                    return Served::Quiet;
                }
                conn.line.answer_echoes();
                conn.pending = Some(Pending::CtFlush(number));
                Served::Waiting
            }
            // They would see tables half changed.
            Pending::Dump(_) | Pending::Listing(_) if self.tables_are_changing() => {
                if let Pending::Dump(dump) = &pending {
                    self.plane.reserve_for(dump, now);
                }
                conn.line.answer_echoes();
                conn.pending = Some(pending);
                Served::Waiting
            }
            Pending::Dump(dump) => self.plane.go_on_dumping(bridge, conn, dump, now, until),
            Pending::Listing(listing) => self.plane.go_on_listing(bridge, conn, listing, now, until),
            Pending::Change(change) => self.go_on_changing(bridge, conn, change),
            Pending::Held(held) => self.go_on_with_held(bridge, conn, held),
        }
    }

    /// Packets that match no rule go to the control thread only while some connection wants them, or a
    /// controller may connect that does.
    pub(crate) fn update_misses(&mut self, bridge: BridgeIdx) {
        self.set_misses(bridge, false);
    }

    /// The same while a connection is out of its bridge that wants them or not.
    pub(super) fn set_misses(&mut self, bridge: BridgeIdx, wanted_besides: bool) {
        let Some(record) = self.bridges.get(&bridge) else { return };
        let wanted = wanted_besides || record.wants_misses();
        let Some(found) = self.plane.control.topology().bridge(bridge) else { return };
        if found.config.miss_to_controller != wanted {
            let mut config = found.config.clone();
            config.miss_to_controller = wanted;
            config.miss_send_len = u16::MAX;
            self.plane.control.set_bridge(bridge, config).expect("it is there, looked up above");
        }
    }
}

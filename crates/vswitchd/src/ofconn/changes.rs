//! Changes of tables that take long: they are made in turns of [`TURN`], and become visible all at once.
//!
//! The connection that requested them is answered when they are done, and until then its next requests wait,
//! except echo requests. Requests of other connections continue, except those that change or show tables:
//! these wait too ([`Vswitch::waits`]), so that everybody sees the changes whole or not at all. A change in
//! progress is completed even if its connection ends.

use super::bundle;
use super::flow_mods::refusal;
use super::request::{Handled, Request, Served};
use crate::ofproto::{Held, LongChange, LongKind, OfConn, Pending};
use crate::own_changes::OwnChange;
use crate::plane::{SHORT_STEPS_MAX, TURN};
use crate::state::Vswitch;
use flow::Action;
use openflow::ErrorKind;
use openflow::message::{BundleControlType, GroupMod, Message, MeterMod, StatsRequest};
use std::sync::Arc;
use std::time::Instant;
use switch::BridgeIdx;
use switch::control::{Change, Changes, Due, FlowMod, Outcome};

/// A change that is alone.
enum Single {
    Flow(Arc<FlowMod>),
    Group(Arc<GroupMod>),
    MeterDelete(Arc<MeterMod>),
}

struct One(BridgeIdx, Single);

impl Changes for One {
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)> {
        let change = match &self.1 {
            Single::Flow(fm) => Change::Flow(fm),
            Single::Group(gm) => Change::Group(gm),
            Single::MeterDelete(mm) => Change::MeterDelete(mm),
        };
        (at == 0).then_some((self.0, Due::Kept(change)))
    }
}

impl Vswitch {
    /// Whether tables would be shown half changed.
    pub(crate) fn tables_are_changing(&self) -> bool {
        self.plane.control.is_changing() || self.own_changes.is_limiting()
    }

    /// Whether tables are being changed in turns, or not all changes have been reported to those who watch
    /// them.
    pub(crate) fn tables_are_busy(&self) -> bool {
        self.plane.control.is_changing()
            || !self.connections.reports.is_empty()
            || !self.own_changes.is_empty()
    }

    /// Whether a request must wait: because it changes or shows tables while another change is in progress,
    /// or because it changes them and a dump that was restarted too often needs them unchanged; or because
    /// connections are being removed for another one.
    pub(super) fn waits(&self, message: &Message) -> bool {
        let is_reserved = || self.plane.reserved_until.is_some_and(|until| Instant::now() < until);
        if matches!(message, Message::CtFlush(_) | Message::CtFlushZone(_)) {
            return !self.ct_flushes.is_idle();
        }
        match changes_tables(message) {
            true => self.tables_are_busy() || is_reserved(),
            false => self.tables_are_busy() && shows_tables(message),
        }
    }

    /// Keeps a request until tables are no longer being changed.
    pub(super) fn hold(&self, conn: &mut OfConn, request: &Request<'_>, message: Message) {
        let held = Held { xid: request.xid, head: *request.head, message };
        conn.pending = Some(Pending::Held(Box::new(held)));
    }

    /// Handles a request that was kept, if it may be.
    pub(super) fn go_on_with_held(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        held: Box<Held>,
    ) -> Served {
        if self.waits(&held.message) {
            conn.line.answer_echoes();
            conn.pending = Some(Pending::Held(held));
            return Served::Waiting;
        }
        let Held { xid, head, message } = *held;
        let request = Request { xid, head: &head };
        if let Err(error) = self.handle(bridge, conn, &request, message) {
            self.refuse(bridge, conn, &request, error);
        }
        // It may have begun something that takes long.
        if conn.pending.is_some() { Served::More } else { Served::Quiet }
    }

    /// A single change.
    pub(super) fn change_table(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        what: LongKind,
        steps: usize,
    ) -> Handled {
        let single = match &what {
            LongKind::FlowMod(fm) => Single::Flow(fm.clone()),
            LongKind::GroupMod { change, .. } => Single::Group(change.clone()),
            LongKind::MeterDelete(change) => Single::MeterDelete(change.clone()),
            LongKind::Bundle(_) => unreachable!("a bundle is not a single change"),
        };
        self.change_tables(bridge, conn, request, what, Arc::new(One(bridge, single)), steps)
    }

    /// Makes changes at once, or begins them if they take long.
    pub(super) fn change_tables(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        what: LongKind,
        changes: Arc<dyn Changes>,
        steps: usize,
    ) -> Handled {
        let now_ms = self.plane.now_ms();
        let mut change = Box::new(LongChange { xid: request.xid, head: *request.head, what });
        if steps > SHORT_STEPS_MAX {
            self.plane.control.begin(changes, steps, now_ms);
        } else {
            let outcome = self.plane.control.change_at_once(&*changes, now_ms);
            self.after_change(bridge, Some(conn), &mut change, outcome)?;
            if self.follow(bridge, Some(conn), &mut change, Instant::now() + TURN) {
                return Ok(());
            }
        }
        conn.pending = Some(Pending::Change(change));
        Ok(())
    }

    /// Another turn of changes that were begun.
    pub(super) fn go_on_changing(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        mut change: Box<LongChange>,
    ) -> Served {
        if self.turn_of_change(bridge, Some(conn), &mut change, Instant::now() + TURN) {
            return Served::Quiet;
        }
        conn.line.answer_echoes();
        conn.pending = Some(Pending::Change(change));
        Served::More
    }

    /// Its connection is gone: what has begun is finished all the same.
    pub(super) fn abandon(&mut self, bridge: BridgeIdx, pending: Pending) {
        if let Pending::Change(change) = pending {
            self.connections.abandoned.push_back((bridge, change));
            self.urgent.notify_one();
        }
    }

    /// Makes a change by the switch itself: at once, if it is small and no other change is in progress.
    pub(crate) fn change_by_itself(
        &mut self,
        bridge: BridgeIdx,
        changes: impl IntoIterator<Item = OwnChange>,
    ) {
        let is_first = self.own_changes.is_empty();
        changes.into_iter().for_each(|change| self.own_changes.push(bridge, change));
        if !is_first || self.go_on_with_own_changes(Instant::now() + TURN) {
            self.urgent.notify_one();
        }
    }

    /// A turn of the changes that the switch makes by itself. Whether there is more to do.
    pub(crate) fn go_on_with_own_changes(&mut self, until: Instant) -> bool {
        let may_begin = self.connections.reports.is_empty();
        self.own_changes.go_on(&mut self.plane, may_begin, until)
    }

    /// Another turn of changes whose connection is gone. Whether there is more to do.
    pub(crate) fn go_on_with_abandoned(&mut self, until: Instant) -> bool {
        if let Some((bridge, mut change)) = self.connections.abandoned.pop_front() {
            if !self.turn_of_change(bridge, None, &mut change, until) {
                self.connections.abandoned.push_front((bridge, change));
            }
            return !self.connections.abandoned.is_empty();
        }
        let has_change = |conn: &OfConn| matches!(conn.pending, Some(Pending::Change(_)));
        let mut conns = self.bridges.values().flat_map(|bridge| bridge.conns.values());
        if !self.plane.control.is_changing() || self.own_changes.is_emptying() || conns.any(has_change) {
            return false;
        }
        // The bridge went with its connections.
        drop(self.plane.go_on_changing(until));
        self.plane.control.is_changing()
    }

    /// Returns whether everything is done.
    fn turn_of_change(
        &mut self,
        bridge: BridgeIdx,
        mut conn: Option<&mut OfConn>,
        change: &mut LongChange,
        until: Instant,
    ) -> bool {
        let is_changed = matches!(&change.what, LongKind::Bundle(commit) if commit.packets.is_some());
        if !is_changed {
            let Some(outcome) = self.plane.go_on_changing(until) else { return false };
            if let Err(error) = self.after_change(bridge, conn.as_deref_mut(), change, outcome) {
                if let Some(conn) = conn {
                    self.refuse(bridge, conn, &Request { xid: change.xid, head: &change.head }, error);
                }
                return true;
            }
        }
        self.follow(bridge, conn, change, until)
    }

    /// The changes are visible, or refused.
    fn after_change(
        &mut self,
        bridge: BridgeIdx,
        mut conn: Option<&mut OfConn>,
        change: &mut LongChange,
        outcome: Outcome,
    ) -> Handled {
        self.plane.dp.reserve_slots(self.plane.control.slot_count());
        self.hasten_finals();
        self.report_rules(conn.as_deref_mut().map(|conn| (conn, change.xid)));
        self.tell_vacancy(bridge);
        match (outcome, &mut change.what) {
            (Ok(done), LongKind::Bundle(commit)) => {
                commit.packets = Some(done.packets.into_iter());
                commit.added_groups = done.added_groups.into_iter().peekable();
            }
            (Ok(_), _) => {}
            (Err((at, error)), LongKind::Bundle(commit)) => {
                let refused = &commit.bundle.changes[at];
                let Some(conn) = conn else { return Err(ErrorKind::OFPBFC_MSG_FAILED) };
                return bundle::fail(conn, refused, refusal(&error));
            }
            (Err((_, error)), _) => return Err(refusal(&error)),
        }
        Ok(())
    }

    /// Handles the consequences of completed changes. Returns whether everything is done.
    fn follow(
        &mut self,
        bridge: BridgeIdx,
        conn: Option<&mut OfConn>,
        change: &mut LongChange,
        until: Instant,
    ) -> bool {
        match &mut change.what {
            LongKind::FlowMod(fm) => {
                if let Some(conn) = conn {
                    conn.flow_mods.made(fm.command.into(), transport::clock::now());
                }
            }
            LongKind::GroupMod { change: gm, existed } => {
                self.forward_group_mod(bridge, change.xid, gm, *existed);
            }
            LongKind::MeterDelete(mm) => self.forward_meter_mod(bridge, change.xid, (**mm).clone()),
            // Watchers are notified before the connection that made the change is answered.
            LongKind::Bundle(_) if !self.connections.reports.is_empty() => return false,
            LongKind::Bundle(commit) => {
                return self.follow_bundle(bridge, conn, change.xid, commit, until).is_some();
            }
        }
        true
    }
}

fn changes_tables(message: &Message) -> bool {
    match message {
        Message::FlowMod(_)
        | Message::GroupMod(_)
        | Message::MeterMod(_)
        | Message::TableMod(_)
        | Message::TlvTableMod(_) => true,
        Message::BundleControl(control) => control.kind == BundleControlType::CommitRequest,
        _ => false,
    }
}

fn shows_tables(message: &Message) -> bool {
    match message {
        Message::StatsRequest(request) => matches!(
            request,
            StatsRequest::Flow(_)
                | StatsRequest::Aggregate(_)
                | StatsRequest::Table
                | StatsRequest::TableDesc
                | StatsRequest::Group(_)
                | StatsRequest::GroupDesc(_)
                | StatsRequest::Meter(_)
                | StatsRequest::MeterConfig(_)
                | StatsRequest::FlowMonitor(_)
        ),
        // It may refer to a group or a meter.
        Message::PacketOut(out) => out.actions.iter().any(|action| !matches!(action, Action::Output { .. })),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::wanted::Bridge;
    use crate::config::{Config, Database, DatapathFlags, Flags};
    use crate::ofproto::{Ofproto, Purpose};
    use flow::{FieldId, Match};
    use host::rundir::RunDir;
    use openflow::Codec;
    use openflow::connection::RequestHead;
    use openflow::message::{BundleAdd, BundleControl, BundleFlags, FlowFlags, FlowMod as OfFlowMod};
    use switch::BridgeConfig;

    const RULES: u64 = 5_000;

    /// A bridge with flows of port 1, and the number of a connection.
    fn filled() -> (Vswitch, BridgeIdx, u64) {
        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let mut vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        let bridge = vswitch.plane.control.add_bridge(BridgeConfig::new("br0"));
        vswitch.bridges.insert(bridge, Ofproto::new(bridge, [2, 0, 0, 0, 0, 1], &Bridge::new("br0")));
        for address in 1..=RULES {
            let matching = Match::any().with(FieldId::EthDst, address.into()).with(FieldId::InPort, 1);
            vswitch.plane.control.flow_mod(bridge, &FlowMod::add(matching, Vec::new()), 0).unwrap();
        }
        let id = vswitch.connected(bridge, Purpose::Service, None, Instant::now()).unwrap();
        (vswitch, bridge, id)
    }

    #[test]
    fn a_change_goes_on_while_its_connection_is_being_closed() {
        let (mut vswitch, bridge, id) = filled();
        let now = Instant::now();
        let delete = Arc::new(FlowMod::delete(Match::any()));
        let one = Arc::new(One(bridge, Single::Flow(delete.clone())));
        vswitch.plane.control.begin(one, RULES as usize, 0);
        let head = RequestHead::new(&[4, 14, 0, 8, 0, 0, 0, 1]);
        let change = LongChange { xid: 1, head, what: LongKind::FlowMod(delete) };
        let conn = vswitch.conn(bridge, id).unwrap();
        conn.pending = Some(Pending::Change(Box::new(change)));
        conn.closed = true;
        assert_eq!(vswitch.serve(bridge, id, now, now), Served::Closed);
        assert!(vswitch.plane.control.is_changing());
        while vswitch.go_on_with_abandoned(Instant::now()) {}
        assert!(!vswitch.tables_are_changing());
        assert!(vswitch.conn(bridge, id).is_some(), "what it is still to read is not lost");
    }

    #[test]
    fn additions_that_look_at_many_rules_for_overlap_are_made_in_turns() {
        let (mut vswitch, bridge, id) = filled();
        let mut conn = vswitch.bridges.get_mut(&bridge).unwrap().conns.remove(&id).unwrap();
        let head = RequestHead::new(&[1, 14, 0, 8, 0, 0, 0, 1]);
        let request = Request { xid: 1, head: &head };
        let addition = |address: u128| OfFlowMod {
            matching: Match::any().with(FieldId::InPort, 2).with(FieldId::EthSrc, address),
            flags: FlowFlags::CHECK_OVERLAP,
            ..OfFlowMod::add()
        };
        let made_in_turns = |vswitch: &mut Vswitch, conn: &mut OfConn| {
            let change = conn.pending.take().expect("it takes turns");
            assert!(matches!(change, Pending::Change(_)) && vswitch.tables_are_changing());
            vswitch.abandon(bridge, change);
            while vswitch.go_on_with_abandoned(Instant::now()) {}
            vswitch.plane.control.flow_count(bridge, 0) as u64 - RULES
        };
        vswitch.flow_mod(bridge, &mut conn, &request, &mut addition(1)).unwrap();
        assert_eq!(made_in_turns(&mut vswitch, &mut conn), 1);
        let (bundle_id, flags) = (1, BundleFlags::empty());
        let message = Message::FlowMod(Box::new(addition(2)));
        let bytes = Codec::new(conn.version()).encode(1, &message).unwrap();
        let add = BundleAdd { bundle_id, flags, xid: 1, message: Box::new(message), bytes };
        vswitch.bundle_add(bridge, &mut conn, &request, add).unwrap();
        let commit = BundleControl { bundle_id, kind: BundleControlType::CommitRequest, flags };
        vswitch.bundle_control(bridge, &mut conn, &request, commit).unwrap();
        assert_eq!(made_in_turns(&mut vswitch, &mut conn), 2);
    }
}

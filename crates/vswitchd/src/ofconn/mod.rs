//! One OpenFlow connection to a bridge: its settings, and the request that it waits for.
//!
//! Requests of a connection are handled in order. One that takes long (a dump, a barrier) is put into
//! `pending` and goes on piece by piece; the requests behind it wait, other connections do not.
//!
//! Files: `requests` handles messages; `flow_mods` changes of rules, `groups` of groups, `meters` of meters,
//! `bundle` of many at once; `statistics` answers requests for statistics, `dump` the long ones; `options`
//! holds the table of tunnel options; `monitors` tells who watches flows; `resume` goes on with paused
//! packets; `news` is what is told without being asked.

mod bundle;
mod dump;
mod flow_mods;
mod groups;
mod meters;
mod monitors;
mod news;
mod options;
mod requests;
mod resume;
mod statistics;
mod table_features;
mod tables;

pub(crate) use news::Asynchronous;

pub(crate) use dump::Dump;
pub(crate) use tables::TableRecord;

use crate::config::wanted::Controller;
use crate::controllers;
use crate::line::{Guard, Line};
use crate::state::Vswitch;
use openflow::connection::{CloseReason, RequestHead};
use openflow::message::{AsyncConfig, DEFAULT_MISS_SEND_LEN, FlowForm, PacketInForm, Role, TABLE_ALL};
use openflow::{Connection, ConnectionConfig, ErrorKind, Event, Message, Side, Version, VersionSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::BridgeIdx;

/// Messages handled for one connection before others get their turn.
const MESSAGES_PER_TURN: usize = 256;
/// Rules looked at for one dump before others get their turn.
const PLACES_PER_TURN: usize = 4_096;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A client of the management socket, or a controller of that type. It is told nothing that it has not
    /// asked for.
    Service,
    /// A controller in charge. It is told of packets, rules and ports from the start.
    Primary,
    /// A listener that gets a copy of what the other connections of its bridge say.
    Snoop,
}

/// What [`Vswitch::serve`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// Nothing to do until more bytes come, or are sent.
    Quiet,
    /// The turn is over, not the work.
    More,
    /// It waits for workers.
    Waiting,
    /// The connection is to be closed once all is sent.
    Closed,
}

/// The row of table Controller that a connection is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkOf {
    /// Its target, by which it is known in its bridge.
    pub target: String,
    /// Its number, which no other row ever has.
    pub id: u64,
}

/// A request that goes on.
pub(crate) enum Pending {
    /// A barrier waits for the workers to pass.
    Barrier { xid: u32, ticket: u64 },
    /// Flow statistics.
    Dump(Box<Dump>),
    /// Counters of groups.
    Groups(groups::GroupCounters),
}

/// See the module's text.
pub(crate) struct OfConn {
    /// Its bytes, and what they mean.
    pub line: Arc<Line>,
    pub purpose: Purpose,
    pub closed: bool,
    pending: Option<Pending>,
    /// Whether the last turn answered a barrier: the next request is likely to be close.
    pub brisk: bool,

    role: Role,
    /// `None` as long as no controller chose: the defaults, by version.
    async_config: Option<AsyncConfig>,
    miss_send_len: u16,
    invalid_ttl_to_controller: bool,
    packet_in_form: PacketInForm,
    flow_form: FlowForm,
    controller_id: u16,
    bundles: BTreeMap<u32, bundle::Bundle>,
    /// Limits on what it is told of packets.
    packets: news::PacketLimits,
    /// What flows it watches.
    monitors: monitors::Monitors,
    /// Whose it is, if it is a controller's.
    pub link: Option<LinkOf>,
    /// Its peer is silent and takes nothing: what waits to be sent is not waited for.
    pub is_silent: bool,
    /// Why it ended, if its peer did not just close it.
    pub close_reason: Option<String>,
}

/// How long one that was not asked for may be silent before it is asked whether it is there. Open vSwitch's.
const SERVICE_PROBE: Duration = Duration::from_secs(60);

impl OfConn {
    fn new(purpose: Purpose, versions: VersionSet, now: Instant) -> OfConn {
        let probe_interval = (purpose == Purpose::Service).then_some(SERVICE_PROBE);
        let config = ConnectionConfig { side: Side::Switch, versions, probe_interval };
        let miss_send_len = if purpose == Purpose::Primary { DEFAULT_MISS_SEND_LEN } else { 0 };
        OfConn {
            line: Arc::new(Line::new(Connection::new(config, now))),
            purpose,
            closed: false,
            pending: None,
            brisk: false,
            role: Role::Equal,
            async_config: None,
            miss_send_len,
            invalid_ttl_to_controller: false,
            packet_in_form: PacketInForm::Standard,
            flow_form: FlowForm::Standard,
            controller_id: 0,
            bundles: BTreeMap::new(),
            packets: news::PacketLimits::default(),
            monitors: monitors::Monitors::default(),
            link: None,
            is_silent: false,
            close_reason: None,
        }
    }

    /// Its protocol. To be held for one call.
    pub fn connection(&self) -> Guard<'_> {
        self.line.connection()
    }

    /// Its task has something to do.
    pub fn wake(&self) {
        self.line.notify.notify_one();
    }

    /// Its row of table Controller is this now.
    pub fn configure(&mut self, row: &Controller) {
        self.connection().set_probe_interval(controllers::probe_interval(row));
        self.packets.set(controllers::limits(row), row.queue_size);
        // A controller may choose for itself later, so a change of the row concerns the next connection.
        if !row.async_messages && self.connection().version().is_none() {
            self.async_config = Some(AsyncConfig::default());
        }
    }

    /// What it may do.
    pub fn role(&self) -> Role {
        self.role
    }

    fn version(&self) -> Version {
        self.connection().version().unwrap_or(Version::V10)
    }

    fn send(&mut self, xid: u32, message: &Message) {
        let sent = self.connection().send(xid, message);
        if let Err(error) = sent {
            tracing::warn!(target: "connmgr", "{} was not sent: {error}", message.name());
        }
    }

    /// Whether it wants a message to be sent when a switch lacks rules: so do connections of OpenFlow 1.0 to
    /// 1.2.
    fn wants_misses(&self) -> bool {
        let is_told = match self.purpose {
            Purpose::Snoop => false,
            Purpose::Service => self.miss_send_len > 0,
            Purpose::Primary => true,
        };
        is_told && self.version() < Version::V13
    }

    /// Whether bytes of the peer are to be taken now. While a request goes on, those behind it wait in the
    /// socket.
    pub fn wants_input(&self) -> bool {
        self.pending.is_none() && !self.closed && self.connection().wants_input()
    }

    /// Whether its flow monitors are paused, and go on with the next turn because all was sent.
    pub fn can_resume(&self) -> bool {
        self.monitors.is_paused() && self.pending.is_none() && self.connection().transmit().is_empty()
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.connection().poll_timeout(), self.packets.poll_timeout(), self.next_bundle_expiry()];
        due.into_iter().flatten().min()
    }

    /// Wakes up for what the clock says.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.send_queued_packets(now);
        self.expire_bundles(now);
        let is_due = {
            let mut connection = self.connection();
            let is_due = connection.poll_timeout().is_some_and(|due| due <= now);
            if is_due {
                connection.handle_timeout(now);
            }
            is_due
        };
        if is_due {
            self.wake();
        }
    }
}

/// A request as handlers see it.
struct Request<'a> {
    xid: u32,
    head: &'a RequestHead,
}

/// What a handler says: done, or the error to answer.
type Handled = Result<(), ErrorKind>;

impl Vswitch {
    /// A connection was made, perhaps for a controller. Its number.
    pub(crate) fn connected(
        &mut self,
        bridge: BridgeIdx,
        purpose: Purpose,
        link: Option<LinkOf>,
        now: Instant,
    ) -> Option<u64> {
        let bridge = self.bridges.get_mut(&bridge)?;
        // Bridges' numbers are given out again, those of connections are not: a task finds no other's
        // connection.
        let id = self.next_conn;
        self.next_conn += 1;
        // Who snoops hears all versions, in whatever version.
        let versions = if purpose == Purpose::Snoop {
            VersionSet::SUPPORTED
        } else {
            controllers::versions(&bridge.settings)
        };
        let mut conn = OfConn::new(purpose, versions, now);
        if let Some(link) = link {
            let row = bridge.control.links.get(&link.target).filter(|l| l.id() == link.id)?.row().clone();
            conn.configure(&row);
            conn.link = Some(link);
        }
        let snooped = bridge.conns.values().any(|c| c.purpose == Purpose::Snoop);
        if purpose == Purpose::Snoop {
            // Never one snoop to another: what it is told would be told again without end.
            let others = bridge.conns.values_mut().filter(|c| c.purpose != Purpose::Snoop);
            others.for_each(|c| c.connection().start_tap());
        } else if snooped {
            conn.connection().start_tap();
        }
        bridge.conns.insert(id, conn);
        Some(id)
    }

    /// The connection is gone.
    pub(crate) fn disconnected(&mut self, bridge: BridgeIdx, id: u64) {
        let Some(bridge) = self.bridges.get_mut(&bridge) else { return };
        let idx = bridge.idx;
        bridge.conns.remove(&id);
        if !bridge.conns.values().any(|c| c.purpose == Purpose::Snoop) {
            bridge.conns.values_mut().for_each(|c| c.connection().stop_tap());
        }
        self.update_misses(idx);
        self.watch_rules(idx, false);
    }

    pub(crate) fn conn(&mut self, bridge: BridgeIdx, id: u64) -> Option<&mut OfConn> {
        self.bridges.get_mut(&bridge)?.conns.get_mut(&id)
    }

    /// Handles what a connection has received, and goes on with what it waits for.
    pub(crate) fn serve(&mut self, bridge: BridgeIdx, id: u64, now: Instant) -> Served {
        let Some(mut conn) = self.bridges.get_mut(&bridge).and_then(|b| b.conns.remove(&id)) else {
            return Served::Closed;
        };
        let served = self.turn(bridge, &mut conn, now);
        let tapped = conn.connection().take_tap();
        if let Some(bridge) = self.bridges.get_mut(&bridge) {
            bridge.conns.insert(id, conn);
            if !tapped.is_empty() {
                let snoops = bridge.conns.values_mut().filter(|c| c.purpose == Purpose::Snoop);
                let hears = |snoop: &Connection| snoop.version().is_some() && !snoop.is_congested();
                for snoop in snoops.filter(|c| hears(&c.connection())) {
                    snoop.connection().send_bytes(&tapped);
                    snoop.wake();
                }
            }
        }
        self.deliver();
        served
    }

    fn turn(&mut self, bridge: BridgeIdx, conn: &mut OfConn, now: Instant) -> Served {
        conn.brisk = false;
        self.resume_monitors(bridge, conn);
        for _ in 0..MESSAGES_PER_TURN {
            if conn.closed {
                return Served::Closed;
            }
            if conn.connection().is_closed() {
                // Nobody is there to be answered.
                conn.pending = None;
            }
            if let Some(pending) = conn.pending.take() {
                match self.go_on(bridge, conn, pending, now) {
                    Served::Quiet if conn.pending.is_none() => continue,
                    served => return served,
                }
            }
            let event = conn.connection().next_event(now);
            match event {
                None => return Served::Quiet,
                Some(Event::Up(version)) => {
                    tracing::debug!(target: "vconn", "a connection speaks {version}");
                    self.link_up(bridge, conn, now);
                }
                Some(Event::Message { xid, message, head }) => {
                    self.counts.openflow_received += 1;
                    let request = Request { xid, head: &head };
                    if conn.purpose != Purpose::Snoop
                        && let Err(error) = self.handle(bridge, conn, &request, message)
                    {
                        self.refuse(conn, &request, error);
                    }
                }
                Some(Event::Unreadable { error, .. }) => {
                    self.counts.openflow_errors += 1;
                    tracing::debug!(target: "ofproto", "answered a message that cannot be read with {error}");
                }
                Some(Event::Closed(reason)) => {
                    conn.closed = true;
                    conn.is_silent = reason == CloseReason::Silent;
                    let why = if conn.is_silent { "Connection timed out" } else { "Protocol error" };
                    conn.close_reason = Some(why.into());
                    tracing::debug!(target: "vconn", "closing a connection: {reason}");
                }
            }
        }
        Served::More
    }

    /// A version is agreed on: if it is a controller's connection, it stands.
    fn link_up(&mut self, bridge: BridgeIdx, conn: &OfConn, now: Instant) {
        let Some(of) = &conn.link else { return };
        if let Some(bridge) = self.bridges.get_mut(&bridge)
            && let Some(link) = bridge.control.links.get_mut(&of.target)
            && link.id() == of.id
        {
            link.up(now);
        }
        // The connection itself is not in its bridge at the moment.
        let conn_wants = conn.wants_misses();
        self.set_misses(bridge, conn_wants);
        self.run_controllers(bridge, now);
    }

    fn refuse(&mut self, conn: &mut OfConn, request: &Request<'_>, error: ErrorKind) {
        self.counts.openflow_errors += 1;
        tracing::debug!(target: "ofproto", "refused a request with {error}");
        conn.connection().reply_error(request.xid, request.head, error);
    }

    /// Another piece of a request that takes long. `Quiet` with nothing pending means that it is done.
    fn go_on(&mut self, bridge: BridgeIdx, conn: &mut OfConn, pending: Pending, now: Instant) -> Served {
        match pending {
            Pending::Barrier { xid, ticket } => {
                if !self.control.passed(ticket) {
                    conn.pending = Some(Pending::Barrier { xid, ticket });
                    return Served::Waiting;
                }
                conn.brisk = true;
                conn.send(xid, &Message::BarrierReply);
                Served::Quiet
            }
            Pending::Dump(dump) => self.go_on_dumping(bridge, conn, dump, now),
            Pending::Groups(asked) => self.go_on_with_groups(bridge, conn, asked, now),
        }
    }

    /// Packets that match no rule go to the control thread only while someone wants to hear of them, or may
    /// come who does.
    pub(crate) fn update_misses(&mut self, bridge: BridgeIdx) {
        self.set_misses(bridge, false);
    }

    /// The same while a connection is out of its bridge that wants them or not.
    fn set_misses(&mut self, bridge: BridgeIdx, wanted_besides: bool) {
        let Some(record) = self.bridges.get(&bridge) else { return };
        let wanted = wanted_besides
            || record.conns.values().any(OfConn::wants_misses)
            || record.control.awaits_misses(controllers::versions(&record.settings));
        let Some(found) = self.control.topology().bridge(bridge) else { return };
        if found.config.miss_to_controller != wanted {
            let mut config = found.config.clone();
            config.miss_to_controller = wanted;
            config.miss_send_len = u16::MAX;
            self.control.set_bridge(bridge, config).expect("it is there, looked up above");
        }
    }
}

/// Tables that a client may name: 0 to 253 and "all".
fn check_table(table_id: u8) -> Handled {
    if table_id == TABLE_ALL || table_id < 254 { Ok(()) } else { Err(ErrorKind::OFPBRC_BAD_TABLE_ID) }
}

/// How long a dump waits for the workers' counters.
const FOLD_WAIT: Duration = Duration::from_millis(3_000);

//! An active row of table Controller: where to connect or listen, when to retry, and what to report.

use super::conn::OfConn;
use super::settings::{named_interval, probe_interval};
use crate::config::wanted;
use openflow::message::Role;
use std::net::{IpAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use transport::reconnect::{Options, Reconnect, State, Wait};
use transport::{ActiveTarget, CLOSED, Host, OPENFLOW_PORT, PassiveTarget, Target};

/// Longest wait between two attempts, where the row says nothing.
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// A controller that still talks to the switch so long after it was connected has admitted it. Open
/// vSwitch's.
const ADMITTED_AFTER: Duration = Duration::from_secs(30);
/// Why a connection ended whose peer did not answer a probe, as `status:last_error` has it.
pub(crate) const SILENT: &str = "Connection timed out";
/// The reason if the operator asked for a new connection.
pub(super) const ASKED: &str = "asked to reconnect";

/// The columns `is_connected`, `role` and `status`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerStatus {
    /// Whether the connection is up and a version has been negotiated.
    pub is_connected: bool,
    /// `other`, `master` or `slave` while connected.
    pub role: Option<&'static str>,
    /// `status:state`; `None` for those that are waited for.
    pub state: Option<LinkState>,
    /// `status:sec_since_connect`.
    pub sec_since_connect: Option<u64>,
    /// `status:sec_since_disconnect`.
    pub sec_since_disconnect: Option<u64>,
    /// `status:last_error`.
    pub last_error: Option<String>,
    /// Counters of the packet limit, if there is one: the keys `packet-in-TYPE-...` of `status`.
    pub packet_ins: Vec<(String, u64)>,
}

/// `status:state`.
pub type LinkState = State;

/// The state of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Connects there.
    Active(ActiveTarget),
    /// Listens there.
    Passive(PassiveTarget),
    /// The target makes no sense; why.
    Bad(String),
}

/// See the module documentation.
pub(crate) struct Link {
    id: u64,
    /// The bridge's name and the target, for logs.
    name: String,
    kind: Kind,
    row: wanted::Controller,
    pub reconnect: Reconnect,
    /// Whether the controller has admitted the switch ([`Self::admit`]) since it has been connected.
    is_admitted: bool,
    /// When a controller that had admitted the switch was last heard; at first, when it was first called, or
    /// could have been.
    pub last_admitted: Instant,
    /// The address that a name turned out to have.
    pub resolved: Option<SocketAddrV4>,
    /// Wakes its task when the row changes.
    pub notify: Rc<Notify>,
}

impl Link {
    pub fn new(id: u64, bridge: &str, row: &wanted::Controller, now: Instant) -> Link {
        let kind = match Target::parse(&row.target, OPENFLOW_PORT) {
            Ok(Target::Active(target)) => Kind::Active(target),
            Ok(Target::Passive(target)) => Kind::Passive(target),
            Err(why) => Kind::Bad(why),
        };
        let mut reconnect = Reconnect::new(options(row), now);
        match &kind {
            Kind::Active(_) => reconnect.enable(now),
            Kind::Passive(_) => {}
            Kind::Bad(why) => {
                tracing::error!(target: "connmgr", "bridge {bridge}: controller {why}");
                reconnect.failed(now, why);
                reconnect.disable(now);
            }
        }
        Link {
            id,
            name: format!("{bridge}<->{}", row.target),
            kind,
            row: row.clone(),
            reconnect,
            is_admitted: false,
            last_admitted: now,
            resolved: None,
            notify: Rc::new(Notify::new()),
        }
    }

    /// A number that no other link ever has.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    pub fn row(&self) -> &wanted::Controller {
        &self.row
    }

    /// Whether it may continue with a changed row. (Another kind of controller needs another connection.)
    pub fn accepts(&self, row: &wanted::Controller) -> bool {
        self.row.target == row.target && self.row.is_service == row.is_service
    }

    /// The row has changed.
    pub fn set(&mut self, row: &wanted::Controller) {
        if self.row != *row {
            self.row = row.clone();
            self.reconnect.set_options(options(row));
            self.notify.notify_one();
        }
    }

    /// Whether it is a primary controller. As in Open vSwitch, one whose target does not begin with a known
    /// way to connect is no controller, and one whose address makes no sense is a controller out of reach.
    pub fn is_primary(&self) -> bool {
        let connects = || ["tcp:", "ssl:", "unix:"].iter().any(|way| self.row.target.starts_with(way));
        !self.row.is_service && (!matches!(self.kind, Kind::Bad(_)) || connects())
    }

    pub fn is_connected(&self) -> bool {
        self.reconnect.is_connected()
    }

    /// A version has been agreed on.
    pub fn up(&mut self, now: Instant) {
        if !self.is_connected() {
            self.reconnect.connected(now);
            tracing::info!(target: "rconn", "{}: connected", self.name);
        }
    }

    /// The controller shows that it has admitted the switch, and does not merely talk to it.
    pub fn admit(&mut self) {
        self.is_admitted = self.is_connected();
    }

    /// The controller was last heard then. One that still talks to the switch after so long must have
    /// admitted it.
    pub fn heard(&mut self, at: Instant) {
        self.reconnect.heard(at);
        let connected_at = self.reconnect.connected_at().filter(|_| self.is_connected());
        self.is_admitted |= connected_at.is_some_and(|since| at >= since + ADMITTED_AFTER);
        if self.is_admitted {
            self.last_admitted = self.last_admitted.max(at);
        }
    }

    /// An attempt begins.
    pub fn connecting(&self) {
        if self.reconnect.is_told() {
            tracing::info!(target: "rconn", "{}: connecting...", self.name);
        }
    }

    /// The attempt failed, or the connection ended.
    pub fn down(&mut self, now: Instant, why: &str) {
        // The silence of a controller that is hardly probed says nothing. The named one is in whole seconds.
        let intervals = self.named_interval().zip(self.probe_interval());
        let is_probed = intervals.is_some_and(|(named, is)| is <= named + Duration::from_secs(1));
        if self.is_admitted && !is_probed {
            self.last_admitted = now;
        }
        self.is_admitted = false;
        if self.is_connected() {
            match why {
                CLOSED => tracing::info!(target: "rconn", "{}: connection closed by peer", self.name),
                ASKED => tracing::info!(target: "rconn", "{}: disconnecting", self.name),
                SILENT => tracing::error!(
                    target: "rconn",
                    "{}: no response to inactivity probe after {} seconds, disconnecting",
                    self.name, self.probe_interval().unwrap_or_default().as_secs()
                ),
                why => tracing::warn!(target: "rconn", "{}: connection dropped ({why})", self.name),
            }
            self.reconnect.disconnected(now, Some(why));
        } else {
            if self.reconnect.is_told() {
                tracing::warn!(target: "rconn", "{}: connection failed ({why})", self.name);
            }
            self.reconnect.failed(now, why);
        }
        match self.reconnect.wait() {
            None => {}
            Some(Wait::First(wait) | Wait::Longer(wait)) => tracing::info!(
                target: "rconn",
                "{}: waiting {} seconds before reconnect", self.name, wait.as_secs()
            ),
            Some(Wait::Longest) => tracing::info!(
                target: "rconn",
                "{}: continuing to retry connections in the background but suppressing further logging",
                self.name
            ),
        }
    }

    /// The last connection of one that listens has ended.
    pub fn left(&mut self, now: Instant) {
        self.is_admitted = false;
        self.reconnect.disconnected(now, None);
        // Nothing is tried: others connect.
        self.reconnect.disable(now);
    }

    /// The next attempt need not wait.
    pub fn retry(&mut self, now: Instant) {
        if matches!(self.kind, Kind::Active(_)) && self.reconnect.state() == State::Backoff {
            self.reconnect.force(now);
            self.notify.notify_one();
        }
    }

    /// How long no controller that has admitted the switch has been heard; zero while one is connected.
    pub fn failing_for(&self, now: Instant) -> Duration {
        if self.is_admitted {
            return Duration::ZERO;
        }
        now.saturating_duration_since(self.last_admitted)
    }

    /// Silence after which the peer is probed; `None`: never.
    pub fn probe_interval(&self) -> Option<Duration> {
        probe_interval(&self.row)
    }

    /// The interval that its row names: [`named_interval`].
    pub fn named_interval(&self) -> Option<Duration> {
        named_interval(&self.row)
    }

    /// Address and port, if the controller is reached through the bridge.
    pub fn in_band_remote(&self) -> Option<SocketAddrV4> {
        let Kind::Active(ActiveTarget::Tcp(host, port) | ActiveTarget::Ssl(host, port)) = &self.kind else {
            return None;
        };
        if self.row.out_of_band || self.row.is_service {
            return None;
        }
        match host {
            Host::Address(IpAddr::V4(ip), _) => Some(SocketAddrV4::new(*ip, *port)),
            Host::Address(IpAddr::V6(_), _) => None,
            Host::Name(_) => self.resolved,
        }
    }

    /// The status to report. `conn` is the connection, if there is one.
    pub fn status(&self, conn: Option<&OfConn>, now: Instant) -> ControllerStatus {
        let seconds = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at).as_secs());
        let role = conn.map(|c| match c.role() {
            Role::Primary => "master",
            Role::Secondary => "slave",
            Role::Equal | Role::NoChange => "other",
        });
        let state = match self.reconnect.state() {
            State::Active if conn.is_some_and(|c| c.connection().is_probing()) => State::Idle,
            state => state,
        };
        ControllerStatus {
            is_connected: conn.is_some(),
            role,
            state: (!matches!(self.kind, Kind::Passive(_))).then_some(state),
            sec_since_connect: seconds(self.reconnect.connected_at()),
            sec_since_disconnect: seconds(self.reconnect.disconnected_at()),
            last_error: self.reconnect.last_error().map(str::to_string),
            packet_ins: conn.map(OfConn::packet_in_counts).unwrap_or_default(),
        }
    }
}

fn options(row: &wanted::Controller) -> Options {
    Options {
        backoff_max: row.max_backoff_ms.map_or(BACKOFF_MAX, |ms| Duration::from_millis(ms.max(1_000))),
        // The OpenFlow connection probes by itself.
        probe_interval: None,
        ..Options::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_probes_time_counts_from_the_loss_and_not_from_the_last_message() {
        let (start, s) = (Instant::now(), Duration::from_secs);
        let away = |inactivity_probe_ms: Option<u64>| {
            let target = "tcp:127.0.0.1:6653";
            let row = wanted::Controller { inactivity_probe_ms, ..wanted::Controller::new(target) };
            let mut link = Link::new(1, "br0", &row, start);
            link.up(start);
            link.admit();
            link.heard(start + s(1));
            link.down(start + s(100), CLOSED);
            link.failing_for(start + s(101)).as_secs()
        };
        assert_eq!([Some(0), Some(1_500), Some(7_500), None].map(away), [1, 1, 100, 100]);
    }
}

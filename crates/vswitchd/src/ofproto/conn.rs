//! One OpenFlow connection to a bridge: its settings, and the request in progress.
//!
//! Requests of a connection are handled in order. One that takes long (a dump, a barrier) is stored in
//! `pending` and continues piece by piece; later requests of the connection wait, other connections do not.

use super::bundles::Bundle;
use super::flow_mod_log::FlowModLog;
use super::monitors::Monitors;
use super::packets::PacketLimits;
use super::pending::Pending;
use super::settings;
use crate::config::wanted::Controller;
use crate::line::{Guard, Line};
use openflow::message::{
    AsyncConfig, DEFAULT_MISS_SEND_LEN, FlowForm, Message, PacketInForm, Role, RoleReason, RoleStatus,
};
use openflow::{Connection, ConnectionConfig, ErrorKind, Side, Version, VersionSet};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A client of the management socket, or a controller of type service. It gets only what it has asked
    /// for.
    Service,
    /// A primary controller. It gets messages about packets, rules and ports from the start.
    Primary,
    /// A listener that gets a copy of what the switch and a controller to which it connects say.
    Snoop,
}

/// The row of table Controller that a connection is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkOf {
    /// Its target, which identifies it in its bridge.
    pub target: String,
    /// Its number, which no other row ever has.
    pub id: u64,
}

/// See the module documentation.
pub(crate) struct OfConn {
    /// Its number, which no other connection ever has.
    pub id: u64,
    /// Its bytes, and what they mean.
    pub line: Arc<Line>,
    pub purpose: Purpose,
    /// Whether it has said something by which a controller [admits](super::fail_open::admits) the switch.
    pub has_admitted: bool,
    pub closed: bool,
    pub pending: Option<Pending>,
    /// Whether requests have followed closely since the last barrier was answered, so that the next one
    /// probably will too.
    pub brisk: bool,

    pub role: Role,
    /// `None` as long as no controller chose: the defaults, by version.
    pub async_config: Option<AsyncConfig>,
    /// Without an explicit choice it gets no asynchronous messages (`enable_async_messages=false`).
    is_deaf: bool,
    pub miss_send_len: u16,
    pub wanted_before: VecDeque<WantedBefore>,
    pub invalid_ttl_to_controller: bool,
    pub packet_in_form: PacketInForm,
    pub flow_form: FlowForm,
    pub controller_id: u16,
    pub bundles: BTreeMap<u32, Bundle>,
    /// What the log reports about its changes.
    pub flow_mods: FlowModLog,
    /// Limits on its packet-ins.
    pub packets: PacketLimits,
    /// The flows that it watches.
    pub monitors: Monitors,
    /// Whose it is, if it is a controller's.
    pub link: Option<LinkOf>,
    /// Whose connection a snooper listens to, while there is one.
    pub snoops: Option<LinkOf>,
    /// Its peer is silent and takes nothing: what waits to be sent is not waited for.
    pub is_silent: bool,
    /// Why it ended, if its peer did not just close it.
    pub close_reason: Option<String>,
    /// Its name in the log.
    pub name: String,
    /// The name of its bridge, for the log.
    pub(super) bridge: String,
}

/// Which removed rules a connection wanted to be notified of, before that changed.
pub(crate) struct WantedBefore {
    /// The last version of the tables for which that was so.
    pub until: base::Version,
    /// A bit for each reason.
    pub removals: u32,
}

/// How many changes are remembered, each with a version of its own. Counters are final within half a second,
/// and no controller changes its wishes that often in this time.
pub(super) const WANTED_BEFORE_MAX: usize = 16;

/// The bit of an invalid TTL among the reasons for packets to a controller (OFPR_INVALID_TTL).
pub(crate) const INVALID_TTL: u32 = 1 << 2;

/// How long an unsolicited connection may be silent before it is probed. Open vSwitch's.
const SERVICE_PROBE: Duration = Duration::from_secs(60);

impl OfConn {
    pub fn new(id: u64, bridge: &str, purpose: Purpose, versions: VersionSet, now: Instant) -> OfConn {
        let probe_interval = (purpose == Purpose::Service).then_some(SERVICE_PROBE);
        let config = ConnectionConfig { side: Side::Switch, versions, probe_interval };
        let miss_send_len = if purpose == Purpose::Primary { DEFAULT_MISS_SEND_LEN } else { 0 };
        OfConn {
            id,
            line: Arc::new(Line::new(Connection::new(config, now))),
            purpose,
            has_admitted: false,
            closed: false,
            pending: None,
            brisk: false,
            role: Role::Equal,
            async_config: None,
            is_deaf: false,
            miss_send_len,
            wanted_before: VecDeque::new(),
            invalid_ttl_to_controller: false,
            packet_in_form: PacketInForm::Standard,
            flow_form: FlowForm::Standard,
            controller_id: 0,
            bundles: BTreeMap::new(),
            flow_mods: FlowModLog::default(),
            packets: PacketLimits::default(),
            monitors: Monitors::default(),
            link: None,
            snoops: None,
            is_silent: false,
            close_reason: None,
            name: format!("unix#{id}"),
            bridge: bridge.to_owned(),
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
        self.connection().set_probe_interval(settings::probe_interval(row));
        self.packets.set(settings::limits(row), row.queue_size);
        self.is_deaf = !row.async_messages;
        self.line.set_dscp(row.dscp);
    }

    /// Its permissions.
    pub fn role(&self) -> Role {
        self.role
    }

    pub fn version(&self) -> Version {
        self.connection().version().unwrap_or(Version::V10)
    }

    pub fn send(&mut self, xid: u32, message: &Message) {
        let sent = self.connection().send(xid, message);
        if let Err(error) = sent {
            tracing::debug!(target: "connmgr", "{} was not sent: {error}", message.name());
        }
    }

    /// Whether it wants packets for which the switch lacks rules: connections of OpenFlow 1.0 to 1.2 do.
    pub fn wants_misses(&self) -> bool {
        let is_told = match self.purpose {
            Purpose::Snoop => false,
            Purpose::Service => self.miss_send_len > 0,
            Purpose::Primary => true,
        };
        is_told && self.version() < Version::V13
    }

    /// Whether it has a request that takes many turns.
    pub fn is_at_long_work(&self) -> bool {
        matches!(self.pending, Some(Pending::Dump(_) | Pending::Listing(_) | Pending::Change(_)))
    }

    /// Whether to read from the peer now. While a request is in progress, later ones wait in the socket.
    pub fn wants_input(&self) -> bool {
        self.pending.is_none() && !self.closed && self.connection().wants_input()
    }

    /// Whether its flow monitors are paused and will resume with the next turn, because everything was sent.
    pub fn can_resume(&self) -> bool {
        self.monitors.is_paused() && self.pending.is_none() && self.connection().transmit().is_empty()
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = [self.packets.poll_timeout(), self.next_bundle_expiry(), self.flow_mods.due()];
        let due = own.into_iter().chain([self.connection().poll_timeout()]);
        due.flatten().min()
    }

    /// Wakes up for what the clock says.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.send_queued_packets(now);
        self.expire_bundles(now);
        if self.flow_mods.due().is_some_and(|due| due <= now) {
            self.tell_flow_mods(now);
        }
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

    /// Logs how many rules it has changed.
    pub fn tell_flow_mods(&mut self, now: Instant) {
        if let Some(text) = self.flow_mods.take(now) {
            tracing::info!(target: "connmgr", "{}<->{}: {text}", self.bridge, self.name);
        }
    }

    /// When the first of its bundles is forgotten.
    pub fn next_bundle_expiry(&self) -> Option<Instant> {
        if matches!(self.pending, Some(Pending::Held(_) | Pending::Change(_))) {
            // It waits for others, and cannot use them meanwhile. What is held may be the commit of one.
            return None;
        }
        self.bundles.values().map(|bundle| bundle.expires).min()
    }

    /// Forgets those that are idle for too long.
    pub fn expire_bundles(&mut self, now: Instant) {
        if self.next_bundle_expiry().is_none_or(|due| now < due) {
            return;
        }
        let expired: Vec<u32> =
            self.bundles.iter().filter(|(_, bundle)| bundle.expires <= now).map(|(id, _)| *id).collect();
        for id in expired {
            let Some(Bundle { opened_by: (xid, head), .. }) = self.bundles.remove(&id) else { continue };
            self.connection().reply_error(xid, &head, ErrorKind::OFPBFC_TIMEOUT);
            self.wake();
        }
    }

    /// Another connection is the primary from now on, the newest version of the tables being `until`.
    /// OpenFlow 1.0 has no way to say so.
    pub fn lose_role(&mut self, generation_id: Option<u64>, until: base::Version) {
        self.keep_wanted(until);
        self.role = Role::Secondary;
        if self.version() >= Version::V13 {
            let reason = RoleReason::PrimaryRequest;
            let status = RoleStatus { role: self.role, reason, generation_id };
            self.send(0, &Message::RoleStatus(status));
            self.wake();
        }
    }

    /// Its asynchronous messages, as chosen or by default: for primaries and equals everything that its
    /// version has except invalid TTLs; for secondaries only ports.
    pub fn async_config(&self) -> AsyncConfig {
        // OpenFlow 1.4 tells apart where an action stood: in a list, in the action set, in a group, in a
        // packet-out.
        let packets: u32 = if self.version() >= Version::V14 { 0b11_1011 } else { 0b11 };
        let invalid_ttl = u32::from(self.invalid_ttl_to_controller) * INVALID_TTL;
        // Timeouts and deletion; by a group; by a meter, and eviction.
        let removed = match self.version() {
            Version::V10 | Version::V11 | Version::V12 => 0b111,
            Version::V13 => 0b1111,
            Version::V14 | Version::V15 => 0b11_1111,
        };
        let all = AsyncConfig {
            packet_in: [packets | invalid_ttl, 0],
            port_status: [7, 7],
            flow_removed: [removed, 0],
            ..AsyncConfig::default()
        };
        self.async_config.unwrap_or(if self.is_deaf { AsyncConfig::default() } else { all })
    }
}

#[cfg(test)]
mod tests {
    use super::super::bundles::Charge;
    use super::super::flow_mod_log::FlowModCounts;
    use super::super::pending::Held;
    use super::*;
    use openflow::connection::RequestHead;
    use openflow::message::BundleFlags;

    #[test]
    fn a_bundle_does_not_expire_while_its_connection_waits_for_others() {
        let now = Instant::now();
        let mut conn = OfConn::new(1, "br0", Purpose::Primary, VersionSet::SUPPORTED, now);
        let head = RequestHead::new(&[5, 33, 0, 8, 0, 0, 0, 1]);
        let bundle = Bundle {
            flags: BundleFlags::empty(),
            closed: true,
            changes: Vec::new(),
            others: Vec::new(),
            ports: Vec::new(),
            loose: Vec::new(),
            flow_mods: FlowModCounts::default(),
            steps: 0,
            bytes: Charge::default(),
            opened_by: (1, head),
            expires: now + Duration::from_secs(1),
        };
        conn.bundles.insert(1, bundle);
        conn.pending = Some(Pending::Held(Box::new(Held { xid: 1, head, message: Message::BarrierRequest })));
        conn.expire_bundles(now + Duration::from_secs(2));
        assert_eq!((conn.bundles.len(), conn.next_bundle_expiry()), (1, None));
        conn.pending = None;
        conn.expire_bundles(now + Duration::from_secs(2));
        assert!(conn.bundles.is_empty());
    }
}

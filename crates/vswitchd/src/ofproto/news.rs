//! Messages that connections get without a request at that moment: packets, ports, removed rules.
//!
//! A connection to the management socket gets none until it sets a miss-send length (so that `ovs-ofctl` is
//! not disturbed, and `ovs-ofctl monitor` gets everything); a primary controller gets them from the start.
//! Its asynchronous configuration selects among them. Packets are sent whole: none is buffered so that the
//! rest could be requested.
//!
//! Packets are lost if the connection's queue is full. Nothing else is: a controller that missed a removed
//! rule would count on it for ever. So reports of removed rules wait for a primary controller that reads
//! slowly. At [`OWED_MAX`](openflow::connection::OWED_MAX) the connection ends.

use super::conn::{OfConn, Purpose, WANTED_BEFORE_MAX, WantedBefore};
use super::continuation::continuation;
use super::packets::PacketNews;
use crate::line::Line;
use flow::action::PacketInReason;
use flow::options::OptionTable;
use flow::{FieldId, Match};
use openflow::Version;
use openflow::connection::SendError;
use openflow::message::{
    AsyncConfig, FlowForm, FlowRemoved, Message, PacketIn, PacketInForm, PortDesc, PortReason, PortStatus,
    Role, TableStatus,
};
use std::sync::Arc;
use std::time::Instant;
use transport::clock;

/// The bit of OFPRFR_GROUP_MOD.
const FORWARDS_GROUP_MODS: u32 = 1;

/// Something that happened.
pub(crate) enum Asynchronous {
    /// A packet for controllers.
    Packet(Box<PacketNews>),
    /// A port was added, changed or removed.
    Port(PortStatus),
    /// A controller has changed a port's settings.
    PortSet(Box<PortSet>),
    /// A new port is live, which OpenFlow 1.0 cannot say.
    PortLive(PortStatus),
    /// A rule is gone since this version of the tables, and its counters are final.
    Removed(base::Version, Box<FlowRemoved>),
    /// Another controller has changed groups, by a message of this transaction.
    GroupMod(u32, Box<Message>),
    /// The same for meters.
    MeterMod(u32, Box<Message>),
    /// A table has got fuller or emptier than a controller wanted to know of.
    Table(TableStatus),
}

/// The connection that asked for a change.
pub(crate) type Source = Arc<Line>;

/// A change of a port by OFPT_PORT_MOD, or its result. Connections whose OpenFlow version cannot show it get
/// no message.
pub(crate) struct PortSet {
    pub before: PortDesc,
    pub after: PortDesc,
    /// The connection that made the change. Before OpenFlow 1.5 it gets no message about it.
    pub source: Option<Source>,
}

impl PacketNews {
    /// Builds it from what a worker sent, without the bytes: a packet may be many frames.
    pub fn of(packet_in: &datapath::PacketIn, datapath_id: u64, options: Option<&OptionTable>) -> PacketNews {
        let spec = &packet_in.spec;
        let key = packet_in.metadata();
        let mut metadata = Match::any();
        for &field in FieldId::ALL.iter().filter(|f| is_pipeline(**f)) {
            let value = key.get(field);
            if value != 0 || field == FieldId::InPort {
                metadata.set_masked(field, value, field.ones());
            }
        }
        if key.get(FieldId::CtState) != 0 {
            // Gives the connection's addresses their meaning.
            metadata.set_masked(FieldId::EthType, key.get(FieldId::EthType), 0xffff);
        }
        if let Some(options) = options {
            metadata.options = options.of_packet(&key);
        }
        let message = PacketIn {
            form: PacketInForm::Standard,
            buffer_id: None,
            total_len: 0,
            reason: spec.reason,
            table_id: spec.table_id,
            cookie: spec.cookie,
            metadata,
            data: Vec::new(),
            userdata: spec.userdata.clone(),
            continuation: spec
                .continuation
                .as_deref()
                .map_or_else(Vec::new, |rest| continuation(datapath_id, rest)),
        };
        PacketNews {
            controller_id: spec.controller_id,
            is_table_miss: spec.is_table_miss,
            is_without_rule: spec.is_without_rule,
            message,
        }
    }
}

impl Asynchronous {
    fn bit(&self, version: Version) -> u32 {
        match self {
            Asynchronous::Packet(p) => 1 << p.reason(version) as u32,
            Asynchronous::Port(p) | Asynchronous::PortLive(p) => 1 << p.reason as u32,
            Asynchronous::PortSet(_) => 1 << PortReason::Modify as u32,
            Asynchronous::Removed(_, r) => 1 << r.reason as u32,
            Asynchronous::GroupMod(..) => FORWARDS_GROUP_MODS,
            // OFPRFR_METER_MOD.
            Asynchronous::MeterMod(..) => 2,
            Asynchronous::Table(status) => 1 << status.reason,
        }
    }
}

/// The fields in a packet-in's metadata: those that are neither in the packet itself nor internal to the
/// datapath.
fn is_pipeline(field: FieldId) -> bool {
    use FieldId::*;
    let is_register = (Reg0 as u8..=Reg15 as u8).contains(&(field as u8));
    let is_tunnel = (TunId as u8..=TunGtpuMsgtype as u8).contains(&(field as u8));
    let of_original =
        matches!(field, CtNwSrc | CtNwDst | CtIpv6Src | CtIpv6Dst | CtNwProto | CtTpSrc | CtTpDst);
    let is_tracked = of_original || matches!(field, CtState | CtZone | CtMark | CtLabel);
    is_register || is_tunnel || is_tracked || matches!(field, InPort | Metadata | PktMark | PacketType)
}

impl OfConn {
    fn wants(&self, news: &Asynchronous) -> bool {
        if let Asynchronous::Removed(version, _) = news {
            return self.removals_wanted_at(*version) & news.bit(self.version()) != 0;
        }
        let config = self.async_config_in_force();
        let bits = match news {
            Asynchronous::Packet(_) => config.packet_in,
            Asynchronous::Port(_) | Asynchronous::PortLive(_) | Asynchronous::PortSet(_) => {
                config.port_status
            }
            Asynchronous::Removed(..) => config.flow_removed,
            Asynchronous::GroupMod(..) | Asynchronous::MeterMod(..) => config.request_forward,
            Asynchronous::Table(_) => config.table_status,
        };
        let is_for_me = match news {
            Asynchronous::Packet(p) => p.controller_id == self.controller_id && p.is_told_by(self.version()),
            _ => true,
        };
        is_for_me && bits[usize::from(self.role == Role::Secondary)] & news.bit(self.version()) != 0
    }

    /// How many frames of a packet may wait to be sent to it. `None`: it does not want the packet.
    pub fn room_for(&mut self, packet: &Asynchronous) -> Option<usize> {
        if !self.wants(packet) {
            return None;
        }
        if self.packets.scheds.is_some() {
            // Which of them are lost, its limits decide and count.
            return Some(usize::MAX);
        }
        let (sent_bytes, is_full) = {
            let connection = self.connection();
            (connection.sent_bytes(), connection.is_full())
        };
        Some(if is_full { 0 } else { self.packets.room(sent_bytes) })
    }

    /// Whether it wants to hear of changes of groups that others make.
    pub fn wants_group_mods(&self) -> bool {
        let wanted = self.async_config_in_force().request_forward;
        wanted[usize::from(self.role == Role::Secondary)] & FORWARDS_GROUP_MODS != 0
    }

    /// What it gets at the moment.
    fn async_config_in_force(&self) -> AsyncConfig {
        let is_deaf = match self.purpose {
            Purpose::Snoop => true,
            // A service connection asks for what others get by setting this.
            Purpose::Service => self.miss_send_len == 0,
            Purpose::Primary => false,
        };
        if is_deaf || self.connection().version().is_none() {
            return AsyncConfig::default();
        }
        self.async_config()
    }

    fn removals_wanted(&self) -> u32 {
        self.async_config_in_force().flow_removed[usize::from(self.role == Role::Secondary)]
    }

    /// Whether it is a primary controller that must be told of removed rules, and is slow to read of those
    /// before. Anyone may be a client, so clients hold up nobody.
    pub fn is_behind(&self, now: Instant) -> bool {
        self.purpose == Purpose::Primary && self.line.is_behind(now) && self.removals_wanted() != 0
    }

    /// Which removed rules it wanted in this version of the tables.
    fn removals_wanted_at(&self, version: base::Version) -> u32 {
        let then = self.wanted_before.iter().find(|before| before.until >= version);
        then.map_or_else(|| self.removals_wanted(), |before| before.removals)
    }

    /// Called before its wishes change. Rules that are gone, but whose counters are not final, are reported
    /// according to the present wishes. `until`: the newest version of the tables.
    pub fn keep_wanted(&mut self, until: base::Version) {
        let is_known = self.wanted_before.back().is_some_and(|before| before.until == until);
        if !is_known {
            let removals = self.removals_wanted();
            self.wanted_before.push_back(WantedBefore { until, removals });
        }
        if self.wanted_before.len() > WANTED_BEFORE_MAX {
            self.wanted_before.pop_front();
        }
    }

    /// Sends the message if the connection wants it. False if it does but the packet is lost.
    pub fn tell(&mut self, news: &Asynchronous) -> bool {
        if !self.wants(news) {
            return true;
        }
        let message = match news {
            Asynchronous::PortLive(_) if self.version() == Version::V10 => return true,
            Asynchronous::Port(status) | Asynchronous::PortLive(status) => {
                Message::PortStatus(status.clone())
            }
            Asynchronous::PortSet(change) => match self.port_set(change) {
                Some(message) => message,
                None => return true,
            },
            Asynchronous::Removed(_, removed) => {
                // A match that OpenFlow 1.0 cannot say goes in the extension's form, if the peer has asked
                // for that.
                let form = if self.version() == Version::V10 { self.flow_form } else { FlowForm::Standard };
                Message::FlowRemoved(Box::new(FlowRemoved { form, ..(**removed).clone() }))
            }
            Asynchronous::GroupMod(xid, change) | Asynchronous::MeterMod(xid, change) => {
                Message::RequestForward(*xid, change.clone())
            }
            // Earlier versions have no such message.
            Asynchronous::Table(_) if self.version() < Version::V14 => return true,
            Asynchronous::Table(status) => Message::TableStatus(*status),
            Asynchronous::Packet(packet) => return self.tell_packet(packet),
        };
        let sent = self.connection().send_owed(&message);
        self.told(&message, sent.map(|()| true))
    }

    /// Its message about a change of a port's settings, if any.
    fn port_set(&self, change: &PortSet) -> Option<Message> {
        let is_own = change.source.as_ref().is_some_and(|source| Arc::ptr_eq(source, &self.line));
        if is_own && self.version() < Version::V15 {
            return None;
        }
        let status = |desc: &PortDesc| {
            Message::PortStatus(PortStatus { reason: PortReason::Modify, desc: desc.clone() })
        };
        let (before, after) = (status(&change.before), status(&change.after));
        let codec = self.connection().codec()?;
        (codec.encode(0, &before).ok() != codec.encode(0, &after).ok()).then_some(after)
    }

    /// Sends it a packet, now or when its limits allow. False if the packet is lost.
    fn tell_packet(&mut self, packet: &PacketNews) -> bool {
        let version = self.version();
        let Some(scheds) = &mut self.packets.scheds else { return self.send_packet(packet.clone()) };
        let by_rule = packet.reason(version) != PacketInReason::NoMatch;
        let port = packet.message.metadata.key.get64(FieldId::InPort) as u16;
        match scheds[usize::from(by_rule)].submit(clock::now(), port, packet.clone(), packet.bytes()) {
            Some(packet) => self.send_packet(packet),
            None => {
                // Its task must wake up in time.
                self.wake();
                true
            }
        }
    }

    /// Sends packets whose time has come.
    pub fn send_queued_packets(&mut self, now: Instant) {
        for kind in 0..2 {
            while let Some(packet) = self.packets.scheds.as_mut().and_then(|s| s[kind].poll(now)) {
                self.send_packet(packet);
            }
        }
    }

    fn send_packet(&mut self, packet: PacketNews) -> bool {
        let sent_bytes = self.connection().sent_bytes();
        if self.packets.room(sent_bytes) == 0 {
            return false;
        }
        let reason = packet.reason(self.version());
        let message = PacketIn { form: self.packet_in_form, reason, ..packet.message };
        let message = Message::PacketIn(Box::new(message));
        let sent = self.connection().send_unasked(&message);
        let sent = self.told(&message, sent);
        let end = self.connection().queued_bytes();
        self.packets.unsent.push_back(end);
        sent
    }

    /// What its limits did, by keys of the column `status`.
    pub fn packet_in_counts(&self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for (kind, sched) in ["miss", "action"].iter().zip(self.packets.scheds.iter().flat_map(|s| s.iter()))
        {
            let c = sched.counts;
            let counts = [
                ("bypassed", c.bypassed),
                ("queued", c.queued),
                ("dropped", c.dropped),
                ("backlog", sched.backlog() as u64),
            ];
            all.extend(counts.map(|(name, n)| (format!("packet-in-{kind}-{name}"), n)));
        }
        all
    }

    /// Has a message on its way. False if it is a packet that is lost.
    fn told(&mut self, message: &Message, sent: Result<bool, SendError>) -> bool {
        match sent {
            Ok(sent) => {
                self.wake();
                sent
            }
            Err(error) => {
                tracing::debug!(target: "connmgr", "{} was not sent: {error}", message.name());
                !matches!(message, Message::PacketIn(_))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::VersionSet;
    use openflow::message::{DEFAULT_MISS_SEND_LEN, FlowRemovedReason};

    fn removed(at: u64) -> Asynchronous {
        let removed = FlowRemoved {
            form: FlowForm::Standard,
            reason: FlowRemovedReason::Delete,
            table_id: 0,
            cookie: 0,
            priority: 1,
            duration_s: 0,
            duration_ns: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            packet_count: 0,
            byte_count: 0,
            matching: Match::any(),
        };
        Asynchronous::Removed(base::Version(at), Box::new(removed))
    }

    /// A connection of OpenFlow 1.3.
    fn connected(now: Instant) -> OfConn {
        let conn = OfConn::new(1, "br0", Purpose::Service, VersionSet::SUPPORTED, now);
        conn.connection().handle_bytes(now, &[4, 0, 0, 8, 0, 0, 0, 1]);
        while conn.connection().next_event(now).is_some() {}
        assert_eq!(conn.version(), Version::V13);
        conn
    }

    #[test]
    fn a_packet_with_more_userdata_and_work_than_a_message_holds_is_counted_as_lost() {
        let mut conn = connected(Instant::now());
        conn.packet_in_form = PacketInForm::Nxt2;
        let mut news = PacketNews {
            controller_id: 0,
            is_table_miss: false,
            is_without_rule: false,
            message: PacketIn {
                form: PacketInForm::Nxt2,
                buffer_id: None,
                total_len: 60,
                reason: PacketInReason::Action,
                table_id: 0,
                cookie: 0,
                metadata: Match::any(),
                data: vec![0; 60],
                userdata: vec![1; 33_000],
                continuation: vec![2; 30_000],
            },
        };
        assert!(conn.send_packet(news.clone()));
        news.message.continuation = vec![2; 33_000];
        assert!(!conn.send_packet(news));
    }

    #[test]
    fn a_removed_rule_is_told_of_by_what_was_wanted_when_it_went() {
        let mut conn = connected(Instant::now());
        conn.keep_wanted(base::Version(10));
        conn.miss_send_len = DEFAULT_MISS_SEND_LEN;
        conn.keep_wanted(base::Version(20));
        conn.role = Role::Secondary;
        // Once more in the same version: what was wanted until then stays known.
        conn.keep_wanted(base::Version(20));
        conn.role = Role::Equal;
        conn.lose_role(None, base::Version(30));
        let wanted: Vec<u64> = (5..=35).step_by(5).filter(|at| conn.wants(&removed(*at))).collect();
        assert_eq!(wanted, [15, 20, 25, 30]);

        for until in 31..1_000 {
            conn.keep_wanted(base::Version(until));
        }
        assert_eq!(conn.wanted_before.len(), WANTED_BEFORE_MAX);
        conn.role = Role::Equal;
        assert!(conn.wants(&removed(1_000)) && !conn.wants(&removed(999)));
    }

    #[test]
    fn who_reads_slowly_is_behind_and_who_reads_nothing_is_not_waited_for() {
        let now = clock::now();
        let mut conn = OfConn::new(1, "br0", Purpose::Primary, VersionSet::SUPPORTED, now);
        conn.connection().handle_bytes(now, &[4, 0, 0, 8, 0, 0, 0, 1]);
        while conn.connection().next_event(now).is_some() {}
        let mut told = 0_usize;
        while !conn.is_behind(now) {
            assert!(conn.tell(&removed(1)));
            told += 1;
        }
        assert!((50_000..500_000).contains(&told) && !conn.connection().is_closed(), "{told} messages");
        assert!(
            !conn.is_behind(now + std::time::Duration::from_secs(60)),
            "it has taken nothing for a minute"
        );
        conn.role = Role::Secondary;
        assert!(!conn.is_behind(now), "a secondary is not told of removed rules");
        conn.role = Role::Equal;
        assert!(conn.is_behind(now));
        (conn.purpose, conn.miss_send_len) = (Purpose::Service, 128);
        assert!(!conn.is_behind(now), "a client holds up nobody");
    }
}

//! One bridge as OpenFlow sees it: its settings, its connections, and its connected and expected controllers.
//!
//! A state machine without I/O: tasks carry the bytes of its connections, and callers pass the time.

use super::conn::{LinkOf, OfConn, Purpose};
use super::fail_open::FailOpen;
use super::in_band::InBand;
use super::journal;
use super::link::{ASKED, ControllerStatus, Kind, Link};
use super::news::Asynchronous;
use super::packets::PacketNews;
use super::settings;
use super::tables::TableRecord;
use crate::config::wanted::{Bridge, BridgeSettings, Controller};
use openflow::message::Role;
use openflow::{Connection, VersionSet};
use std::collections::BTreeMap;
use std::time::Instant;
use switch::BridgeIdx;

/// How many may snoop on a controller at once. Open vSwitch's.
const SNOOPERS_MAX: usize = 8;

/// See the module documentation.
pub(crate) struct Ofproto {
    pub idx: BridgeIdx,
    pub name: String,
    pub datapath_id: u64,
    /// The version of the tables with which it began. What went by then was another bridge's, which had its
    /// number.
    pub born: base::Version,
    /// The value that was last logged.
    pub told_datapath_id: Option<u64>,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// As configured.
    pub settings: BridgeSettings,
    /// As configured.
    pub controllers: BTreeMap<String, Controller>,
    /// The state of the controllers.
    pub control: BridgeControllers,
    pub conns: BTreeMap<u64, OfConn>,
    /// The last OpenFlow port number that was given out unasked.
    pub last_of_port: u16,
    /// The newest that a controller has named when it took a role.
    pub generation_id: Option<u64>,
    /// What controllers have configured for its tables.
    pub tables: BTreeMap<u8, TableRecord>,
}

/// A bridge's state for its controllers.
#[derive(Default)]
pub(crate) struct BridgeControllers {
    /// By target.
    pub links: BTreeMap<String, Link>,
    pub fail_open: FailOpen,
    pub in_band: InBand,
}

impl BridgeControllers {
    /// Whether it has a primary controller, connected or not.
    pub fn has_primary(&self) -> bool {
        self.links.values().any(Link::is_primary)
    }

    /// Whether packets that match no rule are for a controller that may still connect, and that may speak a
    /// version in which they are not dropped.
    pub fn awaits_misses(&self, protocols: VersionSet) -> bool {
        let old = protocols.greatest().is_some_and(|v| v < openflow::Version::V13);
        old && self.links.values().any(|l| l.is_primary() && !l.is_connected())
    }
}

impl Ofproto {
    /// A new bridge, without connections and links.
    pub fn new(idx: BridgeIdx, mac: [u8; 6], wanted: &Bridge) -> Ofproto {
        Ofproto {
            idx,
            name: wanted.name.clone(),
            datapath_id: 0,
            born: base::Version(0),
            told_datapath_id: None,
            mac,
            settings: wanted.settings.clone(),
            controllers: wanted.controllers.clone(),
            control: BridgeControllers::default(),
            conns: BTreeMap::new(),
            generation_id: None,
            tables: BTreeMap::new(),
            last_of_port: 0,
        }
    }

    /// Whom a snooper is to listen to, as in Open vSwitch: of the controllers to which the switch connects
    /// one that is up, rather one that is in charge; or one that may come up. Clients of the management
    /// socket and those that connect to the switch are not listened to.
    fn to_snoop(&self) -> Option<LinkOf> {
        let preference = |link: &Link| {
            let mut conns =
                self.conns.values().filter(|c| c.link.as_ref().is_some_and(|of| of.id == link.id()));
            let up = conns.find(|conn| conn.connection().version().is_some());
            up.map_or(0, |conn| match conn.role() {
                Role::Primary => 3,
                Role::Equal | Role::NoChange => 2,
                Role::Secondary => 1,
            })
        };
        let active = self.control.links.iter().filter(|(_, link)| matches!(link.kind(), Kind::Active(_)));
        // The first of several.
        let (target, link) = active.min_by_key(|(_, link)| -preference(link))?;
        Some(LinkOf { target: target.clone(), id: link.id() })
    }

    /// How many snoopers listen to a controller.
    fn snoopers(&self, of: &LinkOf) -> usize {
        self.conns.values().filter(|conn| conn.snoops.as_ref() == Some(of)).count()
    }

    /// A controller's connection is up. Those that listen to the controller listen to it.
    pub fn snoop_again(&mut self, conn: &OfConn) {
        if conn.link.as_ref().is_some_and(|of| self.snoopers(of) > 0) {
            conn.connection().start_tap();
        }
    }

    /// A snooper has somebody to listen to.
    fn snoop(&mut self, snoop: &mut OfConn) -> Result<(), &'static str> {
        let of = self.to_snoop().ok_or("no controller connection to snoop")?;
        if self.snoopers(&of) >= SNOOPERS_MAX {
            return Err("too many snoop on a controller");
        }
        for conn in self.conns.values().filter(|conn| conn.link.as_ref() == Some(&of)) {
            conn.connection().start_tap();
        }
        snoop.snoops = Some(of);
        Ok(())
    }

    /// A connection was made, perhaps for a controller. False if that one's row is gone, or a snooper has
    /// nobody to listen to.
    pub fn connect(&mut self, id: u64, purpose: Purpose, link: Option<LinkOf>, now: Instant) -> bool {
        // A snooper gets all versions, in whatever version.
        let is_snoop = purpose == Purpose::Snoop;
        let versions = if is_snoop { VersionSet::SUPPORTED } else { settings::versions(&self.settings) };
        let mut conn = OfConn::new(id, &self.name, purpose, versions, now);
        if let Some(of) = link {
            let Some(row) = self.link_mut(&of).map(|link| link.row().clone()) else { return false };
            conn.configure(&row);
            conn.name.clone_from(&of.target);
            conn.link = Some(of);
        }
        if is_snoop && let Err(why) = self.snoop(&mut conn) {
            tracing::info!(target: "connmgr", "{why}");
            return false;
        }
        journal::keep(&conn);
        self.conns.insert(id, conn);
        true
    }

    /// A connection is gone.
    pub fn disconnect(&mut self, id: u64, now: Instant) {
        if let Some(mut conn) = self.conns.remove(&id) {
            conn.tell_flow_mods(now);
            journal::log(&conn);
            self.link_left(conn.link.as_ref(), now);
        }
        let heard: Vec<LinkOf> = self.conns.values().filter_map(|c| c.snoops.clone()).collect();
        for conn in self.conns.values().filter(|c| c.link.as_ref().is_none_or(|of| !heard.contains(of))) {
            conn.connection().stop_tap();
        }
    }

    /// A controller's connection is gone. Of one that connects its own task knows.
    fn link_left(&mut self, of: Option<&LinkOf>, now: Instant) {
        let Some(of) = of else { return };
        let is_up = |conn: &OfConn| conn.link.as_ref() == Some(of) && conn.connection().version().is_some();
        if !self.conns.values().any(is_up)
            && let Some(link) = self.link_mut(of)
            && matches!(link.kind(), Kind::Passive(_))
            && link.is_connected()
        {
            link.left(now);
        }
    }

    /// A connection's turn is over. Snoopers get what it sent.
    pub fn give_back(&mut self, id: u64, conn: OfConn) {
        let (tapped, link) = (conn.connection().take_tap(), conn.link.clone());
        self.conns.insert(id, conn);
        if tapped.is_empty() || link.is_none() {
            return;
        }
        let hears = |snoop: &Connection| snoop.version().is_some() && !snoop.is_full();
        let snoops = self.conns.values_mut().filter(|c| c.snoops == link);
        for snoop in snoops.filter(|c| hears(&c.connection())) {
            snoop.connection().send_bytes(&tapped);
            snoop.wake();
        }
    }

    /// Tells connections what happened, and says how many of them had no room for a packet.
    pub fn tell(&mut self, news: &Asynchronous) -> u64 {
        if matches!(news, Asynchronous::Removed(version, _) if *version <= self.born) {
            return 0;
        }
        self.conns.values_mut().map(|conn| u64::from(!conn.tell(news))).sum()
    }

    /// Tells connections of a packet of `count` frames. `cut` makes the first of them, as many as any
    /// connection has room for, which is not called if there are none. Returns how many were lost, for each
    /// connection that wanted them.
    pub fn tell_packet(
        &mut self,
        packet: PacketNews,
        count: usize,
        cut: impl FnOnce(usize) -> Vec<Vec<u8>>,
    ) -> u64 {
        let mut news = Asynchronous::Packet(Box::new(packet));
        let rooms: Vec<usize> = self.conns.values_mut().filter_map(|conn| conn.room_for(&news)).collect();
        let told = rooms.iter().copied().max().unwrap_or(0).min(count);
        let mut lost = (rooms.len() * (count - told)) as u64;
        let frames = if told > 0 { cut(told) } else { Vec::new() };
        for frame in frames {
            if let Asynchronous::Packet(packet) = &mut news {
                packet.message.total_len = frame.len() as u32;
                packet.message.data = frame;
            }
            lost += self.tell(&news);
        }
        lost
    }

    /// Whether a primary controller is slow to read what it must be told of removed rules.
    pub fn is_behind(&self, now: Instant) -> bool {
        self.conns.values().any(|conn| conn.is_behind(now))
    }

    /// Whether any connection wants packets that match no rule, or may want them later.
    pub fn wants_misses(&self) -> bool {
        self.conns.values().any(OfConn::wants_misses)
            || self.control.awaits_misses(settings::versions(&self.settings))
    }

    /// The row of table Controller that a connection is of, while it is there.
    pub fn link_mut(&mut self, of: &LinkOf) -> Option<&mut Link> {
        self.control.links.get_mut(&of.target).filter(|link| link.id() == of.id)
    }

    /// Looks when each controller was last heard.
    pub fn note_heard(&mut self) {
        for conn in self.conns.values() {
            let Some(of) = &conn.link else { continue };
            if let Some(link) = self.control.links.get_mut(&of.target).filter(|link| link.id() == of.id) {
                link.heard(conn.connection().last_rx());
            }
        }
    }

    /// Its controllers are these now. What stays is not disturbed, unless all are to begin `anew`, with
    /// other versions. The connections that are not wanted any more.
    pub fn set_links(
        &mut self,
        wanted: &BTreeMap<String, Controller>,
        anew: bool,
        now: Instant,
        mut next_id: impl FnMut() -> u64,
    ) -> Vec<u64> {
        let links = &mut self.control.links;
        let told = |what: &str, link: &Link, target: &str| {
            let kind = if link.is_primary() { "primary" } else { "service" };
            tracing::info!(target: "connmgr", "{}: {what} {kind} controller \"{target}\"", self.name);
        };
        for (target, row) in wanted {
            match links.get_mut(target) {
                Some(link) if link.accepts(row) && !anew => link.set(row),
                found => {
                    let link = Link::new(next_id(), &self.name, row, now);
                    if !matches!(link.kind(), Kind::Bad(_)) {
                        if found.is_some() && anew {
                            tell_of_new_versions(&self.name, target);
                        }
                        told("added", &link, target);
                    }
                    links.insert(target.clone(), link);
                }
            }
        }
        for (target, link) in links.extract_if(.., |target, _| !wanted.contains_key(target)) {
            if !matches!(link.kind(), Kind::Bad(_)) {
                told("removed", &link, &target);
            }
        }
        for conn in self.conns.values_mut() {
            if let Some(row) = conn.link.as_ref().and_then(|of| wanted.get(&of.target)) {
                conn.configure(row);
            }
        }
        let is_gone = |of: &LinkOf| links.get(&of.target).map(Link::id) != Some(of.id);
        let is_over = |c: &OfConn| [&c.link, &c.snoops].into_iter().flatten().any(is_gone);
        self.conns.iter().filter(|(_, conn)| is_over(conn)).map(|(id, _)| *id).collect()
    }

    /// Ends the connections that speak a version which the bridge no longer does.
    pub fn close_other_versions(&mut self) {
        let versions = settings::versions(&self.settings);
        for conn in self.conns.values_mut().filter(|c| c.purpose != Purpose::Snoop) {
            if conn.connection().version().is_some_and(|v| !versions.contains(v)) {
                conn.closed = true;
                conn.wake();
            }
        }
    }

    /// Ends the connections of controllers. Those that are connected to come back after their backoff.
    pub fn reconnect_controllers(&mut self, now: Instant) {
        for conn in self.conns.values_mut().filter(|c| c.link.is_some()) {
            conn.closed = true;
            conn.close_reason = Some(ASKED.into());
            conn.wake();
        }
        // Links that wait for their next attempt are left alone.
        for link in self.control.links.values_mut().filter(|l| !l.is_connected()) {
            link.retry(now);
        }
    }

    /// The columns `is_connected`, `role` and `status` of its controllers, by target.
    pub fn controller_status(&self, now: Instant) -> BTreeMap<String, ControllerStatus> {
        let status = |(target, link): (&String, &Link)| {
            let mut of_link = self.conns.values().filter(|c| {
                c.link.as_ref().is_some_and(|l| l.id == link.id()) && c.connection().version().is_some()
            });
            (target.clone(), link.status(of_link.next(), now))
        };
        self.control.links.iter().map(status).collect()
    }
}

/// A controller begins anew, since the bridge speaks other versions.
pub(crate) fn tell_of_new_versions(bridge: &str, target: &str) {
    tracing::info!(
        target: "connmgr",
        "{bridge}: Changes to controller \"{target}\" expects re-initialization: Re-initializing now."
    );
}

#[cfg(test)]
mod tests {
    use super::super::fail_open::Change;
    use super::*;
    use base::OfPort;
    use flow::Match;
    use flow::action::PacketInReason;
    use openflow::message::{
        Message, PacketIn, PacketInForm, PortConfig, PortDesc, PortFeatures, PortReason, PortState,
        PortStatus,
    };
    use openflow::{ConnectionConfig, Event, Side, Version};
    use std::time::Duration;

    const TARGET: &str = "tcp:192.0.2.1:6653";

    /// A peer that has agreed with a connection of the bridge on a version.
    fn peer(ofproto: &Ofproto, id: u64, now: Instant) -> Connection {
        let versions = VersionSet::SUPPORTED;
        let config = ConnectionConfig { side: Side::Controller, versions, probe_interval: None };
        let mut peer = Connection::new(config, now);
        let hello = peer.transmit().to_vec();
        ofproto.conns[&id].connection().handle_bytes(now, &hello);
        assert!(matches!(ofproto.conns[&id].connection().next_event(now), Some(Event::Up(_))));
        heard(ofproto, id, &mut peer, now);
        peer
    }

    /// How many messages of a connection its peer hears.
    fn heard(ofproto: &Ofproto, id: u64, peer: &mut Connection, now: Instant) -> usize {
        let mut connection = ofproto.conns[&id].connection();
        let bytes = connection.transmit().to_vec();
        connection.transmitted(bytes.len());
        peer.handle_bytes(now, &bytes);
        let events = std::iter::from_fn(|| peer.next_event(now));
        events.filter(|event| matches!(event, Event::Message { .. })).count()
    }

    fn news() -> Asynchronous {
        let desc = PortDesc {
            port: OfPort(1),
            hw_addr: [2, 0, 0, 0, 0, 2],
            name: "p1".into(),
            config: PortConfig::empty(),
            state: PortState::LIVE,
            current: PortFeatures::empty(),
            advertised: PortFeatures::empty(),
            supported: PortFeatures::empty(),
            peer: PortFeatures::empty(),
            current_speed_kbps: 0,
            max_speed_kbps: 0,
        };
        Asynchronous::Port(PortStatus { reason: PortReason::Add, desc })
    }

    #[test]
    fn a_controller_in_charge_is_told_and_goes_with_its_row_and_a_client_is_left_alone() {
        let now = Instant::now();
        let mut wanted = Bridge::new("br0");
        wanted.controllers.insert(TARGET.into(), Controller::new(TARGET));
        let mut ofproto = Ofproto::new(BridgeIdx(0), [2, 0, 0, 0, 0, 1], &wanted);
        assert_eq!(ofproto.set_links(&wanted.controllers, false, now, || 7), [0u64; 0]);
        assert!(ofproto.control.has_primary());
        let of = |id| Some(LinkOf { target: TARGET.into(), id });
        assert!(!ofproto.connect(1, Purpose::Primary, of(6), now), "a row that is gone");
        assert!(ofproto.connect(1, Purpose::Primary, of(7), now));
        assert!(ofproto.connect(2, Purpose::Service, None, now));
        let (mut controller, mut client) = (peer(&ofproto, 1, now), peer(&ofproto, 2, now));
        assert_eq!(controller.version(), Some(Version::V15));
        assert_eq!(ofproto.tell(&news()), 0);
        assert_eq!(heard(&ofproto, 1, &mut controller, now), 1);
        assert_eq!(heard(&ofproto, 2, &mut client, now), 0);
        assert_eq!(ofproto.set_links(&wanted.controllers, false, now, || 8), [0u64; 0], "the same row");
        assert_eq!(ofproto.set_links(&wanted.controllers, true, now, || 9), [1], "with other versions");
        assert_eq!(ofproto.set_links(&BTreeMap::new(), false, now, || 10), [1]);
        assert!(!ofproto.control.has_primary());
    }

    #[test]
    fn a_packet_is_cut_for_who_has_room_and_for_nobody_else() {
        let now = Instant::now();
        let mut ofproto = Ofproto::new(BridgeIdx(0), [2, 0, 0, 0, 0, 1], &Bridge::new("br0"));
        let packet = PacketNews {
            controller_id: 0,
            is_table_miss: false,
            is_without_rule: false,
            message: PacketIn {
                form: PacketInForm::Standard,
                buffer_id: None,
                total_len: 0,
                reason: PacketInReason::Action,
                table_id: 0,
                cookie: 0,
                metadata: Match::any(),
                data: Vec::new(),
                userdata: Vec::new(),
                continuation: Vec::new(),
            },
        };
        assert!(ofproto.connect(1, Purpose::Service, None, now));
        let _client = peer(&ofproto, 1, now);
        assert_eq!(ofproto.tell_packet(packet.clone(), 256, |_| unreachable!("nobody wants it")), 0);
        assert!(ofproto.connect(2, Purpose::Primary, None, now));
        let mut controller = peer(&ofproto, 2, now);
        let mut cut = 0;
        let lost = ofproto.tell_packet(packet.clone(), 256, |most| {
            cut = most;
            vec![vec![0; 60]; most]
        });
        assert_eq!((cut, lost), (100, 156));
        assert_eq!(ofproto.tell_packet(packet, 256, |_| unreachable!("nobody has room")), 256);
        assert_eq!(heard(&ofproto, 2, &mut controller, now), 100);
    }

    #[test]
    fn who_connects_and_bad_targets_do_not_make_a_bridge_fail_open() {
        let (now, wait) = (Instant::now(), Duration::from_secs(20));
        let mut wanted = Bridge::new("br0");
        let passive = Controller { is_service: false, ..Controller::new("ptcp:6653") };
        wanted.controllers.insert(passive.target.clone(), passive.clone());
        let mut ofproto = Ofproto::new(BridgeIdx(0), [2, 0, 0, 0, 0, 1], &wanted);
        ofproto.set_links(&wanted.controllers, false, now, || 6);
        let run = |ofproto: &mut Ofproto, now: Instant| {
            let BridgeControllers { fail_open, links, .. } = &mut ofproto.control;
            fail_open.run(true, links.values(), now)
        };
        assert_eq!(run(&mut ofproto, now + wait), Change::None);
        let of = || LinkOf { target: passive.target.clone(), id: 6 };
        for id in [1, 2] {
            assert!(ofproto.connect(id, Purpose::Primary, Some(of()), now));
            let _peer = peer(&ofproto, id, now);
            ofproto.link_mut(&of()).unwrap().up(now);
        }
        ofproto.disconnect(1, now);
        assert!(ofproto.link_mut(&of()).unwrap().is_connected(), "there is another");
        wanted.controllers.insert(TARGET.into(), Controller::new(TARGET));
        ofproto.set_links(&wanted.controllers, false, now, || 7);
        assert_eq!(run(&mut ofproto, now + wait), Change::Entered, "whoever connects");
        ofproto.disconnect(2, now);
        assert!(!ofproto.link_mut(&of()).unwrap().is_connected());

        // The second is a controller that nobody can reach.
        for (target, is_controller) in [("tpc:10.0.0.1", false), ("tcp:<invalid>:6653", true)] {
            let bad = Controller { is_service: false, ..Controller::new(target) };
            let bad = BTreeMap::from([(bad.target.clone(), bad)]);
            let mut ofproto = Ofproto::new(BridgeIdx(0), [2, 0, 0, 0, 0, 1], &wanted);
            ofproto.set_links(&bad, false, now, || 8);
            assert_eq!(ofproto.control.has_primary(), is_controller);
            let change = if is_controller { Change::Entered } else { Change::None };
            assert_eq!(run(&mut ofproto, now + wait), change);
        }
    }

    #[test]
    fn a_bridge_switches_by_itself_until_a_controller_has_admitted_it() {
        let (start, s) = (Instant::now(), Duration::from_secs);
        let mut wanted = Bridge::new("br0");
        wanted.controllers.insert(TARGET.into(), Controller::new(TARGET));
        let mut ofproto = Ofproto::new(BridgeIdx(0), [2, 0, 0, 0, 0, 1], &wanted);
        ofproto.set_links(&wanted.controllers, false, start, || 7);
        let of = || LinkOf { target: TARGET.into(), id: 7 };
        let run = |ofproto: &mut Ofproto, at: u64| {
            ofproto.note_heard();
            let BridgeControllers { fail_open, links, .. } = &mut ofproto.control;
            fail_open.run(true, links.values(), start + s(at))
        };
        let up = |ofproto: &mut Ofproto, id: u64, at: u64| {
            assert!(ofproto.connect(id, Purpose::Primary, Some(of()), start + s(at)));
            let peer = peer(ofproto, id, start + s(at));
            ofproto.link_mut(&of()).unwrap().up(start + s(at));
            peer
        };
        let down = |ofproto: &mut Ofproto, id: u64, at: u64| {
            let heard = ofproto.conns[&id].connection().last_rx();
            ofproto.disconnect(id, start + s(at));
            let link = ofproto.link_mut(&of()).unwrap();
            link.heard(heard);
            link.down(start + s(at), transport::CLOSED);
        };
        // One that comes and goes does not keep it from doing so.
        let _peer = up(&mut ofproto, 1, 8);
        assert_eq!(run(&mut ofproto, 14), Change::None);
        down(&mut ofproto, 1, 14);
        assert_eq!(run(&mut ofproto, 15), Change::Entered);
        let mut controller = up(&mut ofproto, 2, 16);
        assert_eq!([16, 17].map(|at| run(&mut ofproto, at)), [Change::None; 2]);
        assert_eq!(
            [18, 19, 20].map(|at| run(&mut ofproto, at)),
            [Change::SendsPacket, Change::None, Change::SendsPacket]
        );
        let (packet, frame) = super::super::fail_open::packet(ofproto.mac);
        assert_eq!(ofproto.tell_packet(packet, 1, |_| vec![frame]), 0);
        assert_eq!(heard(&ofproto, 2, &mut controller, start + s(20)), 1);
        // It admits the switch, is heard once more, and goes: time counts from then.
        ofproto.link_mut(&of()).unwrap().admit();
        assert_eq!(run(&mut ofproto, 21), Change::Left);
        ofproto.conns[&2].connection().handle_bytes(start + s(25), &[4, 2, 0, 8, 0, 0, 0, 1]);
        down(&mut ofproto, 2, 35);
        assert_eq!([39, 40].map(|at| run(&mut ofproto, at)), [Change::None, Change::Entered]);
        // One that only answers probes has admitted it after half a minute.
        let _peer = up(&mut ofproto, 3, 50);
        for (at, change) in [(79, Change::SendsPacket), (80, Change::Left)] {
            run(&mut ofproto, at - 3);
            ofproto.conns[&3].connection().handle_bytes(start + s(at), &[4, 3, 0, 8, 0, 0, 0, 1]);
            assert_eq!(run(&mut ofproto, at), change, "{at}");
        }
    }

    #[test]
    fn who_snoops_hears_a_controller_until_its_row_or_the_snooper_is_gone() {
        let now = Instant::now();
        let mut wanted = Bridge::new("br0");
        let passive = Controller::new("ptcp:6653");
        wanted.controllers.insert(passive.target.clone(), passive.clone());
        let mut ofproto = Ofproto::new(BridgeIdx(0), [2, 0, 0, 0, 0, 1], &wanted);
        ofproto.set_links(&wanted.controllers, false, now, || 6);
        assert!(ofproto.connect(1, Purpose::Service, None, now));
        assert!(ofproto.connect(2, Purpose::Primary, Some(LinkOf { target: passive.target, id: 6 }), now));
        let _others = [peer(&ofproto, 1, now), peer(&ofproto, 2, now)];
        assert!(!ofproto.connect(4, Purpose::Snoop, None, now), "those that connect are not listened to");
        wanted.controllers.insert(TARGET.into(), Controller::new(TARGET));
        ofproto.set_links(&wanted.controllers, false, now, || 7);
        let of = || Some(LinkOf { target: TARGET.into(), id: 7 });
        // Before the controller is up.
        assert!(ofproto.connect(5, Purpose::Snoop, None, now));
        assert!(ofproto.connect(3, Purpose::Primary, of(), now));
        let _controller = peer(&ofproto, 3, now);
        let conn = ofproto.conns.remove(&3).unwrap();
        ofproto.snoop_again(&conn);
        ofproto.give_back(3, conn);
        let mut snoop = peer(&ofproto, 5, now);
        let say = |ofproto: &mut Ofproto, id: u64| {
            let mut conn = ofproto.conns.remove(&id).unwrap();
            conn.send(9, &Message::BarrierReply);
            ofproto.give_back(id, conn);
        };
        say(&mut ofproto, 1);
        assert_eq!(heard(&ofproto, 5, &mut snoop, now), 0);
        say(&mut ofproto, 3);
        assert!(heard(&ofproto, 5, &mut snoop, now) > 0);
        // The controller comes back.
        ofproto.disconnect(3, now);
        assert!(ofproto.connect(6, Purpose::Primary, of(), now));
        let _controller = peer(&ofproto, 6, now);
        let conn = ofproto.conns.remove(&6).unwrap();
        ofproto.snoop_again(&conn);
        ofproto.give_back(6, conn);
        say(&mut ofproto, 6);
        assert!(heard(&ofproto, 5, &mut snoop, now) > 0);
        assert_eq!(ofproto.set_links(&BTreeMap::new(), false, now, || 10), [2, 5, 6]);
        ofproto.disconnect(5, now);
        say(&mut ofproto, 6);
        assert!(ofproto.conns[&6].connection().take_tap().is_empty());
    }

    #[test]
    fn few_snoop_at_once_and_rather_on_a_controller_that_is_up_and_in_charge() {
        let now = Instant::now();
        let mut wanted = Bridge::new("br0");
        let targets = [1, 2, 3].map(|n| format!("tcp:192.0.2.{n}:6653"));
        for target in &targets {
            let row = Controller { is_service: *target == targets[1], ..Controller::new(target) };
            wanted.controllers.insert(target.clone(), row);
        }
        let mut ofproto = Ofproto::new(BridgeIdx(0), [2, 0, 0, 0, 0, 1], &wanted);
        let mut ids = 6..;
        ofproto.set_links(&wanted.controllers, false, now, || ids.next().unwrap());
        let of = |n: usize| LinkOf { target: targets[n].clone(), id: 6 + n as u64 };
        assert_eq!(ofproto.to_snoop(), Some(of(0)), "none is up");
        assert!(ofproto.connect(1, Purpose::Service, Some(of(1)), now));
        assert_eq!(ofproto.to_snoop(), Some(of(0)), "it has not said which version it speaks");
        let _service = peer(&ofproto, 1, now);
        assert_eq!(ofproto.to_snoop(), Some(of(1)));
        assert!(ofproto.connect(2, Purpose::Primary, Some(of(2)), now));
        let _primary = peer(&ofproto, 2, now);
        ofproto.conns.get_mut(&2).unwrap().role = Role::Primary;
        assert_eq!(ofproto.to_snoop(), Some(of(2)));
        let snoopers: Vec<u64> =
            (10..20).filter(|&id| ofproto.connect(id, Purpose::Snoop, None, now)).collect();
        assert_eq!(snoopers, (10..18).collect::<Vec<u64>>());
        ofproto.disconnect(10, now);
        assert!(ofproto.connect(20, Purpose::Snoop, None, now));
    }
}

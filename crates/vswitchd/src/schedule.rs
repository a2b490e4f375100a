//! The control thread's periodic work: it applies effects, forgets addresses, reports removed rules once
//! [their counters are final](crate::finals), and watches ports.

use crate::finals::Gone;
use crate::ofproto::{Asynchronous, PacketNews, free_some};
use crate::plane::{ForwardingPlane, TURN};
use crate::slow_path::wire_frame_count;
use crate::state::Vswitch;
use base::DropReason;
use datapath::{DpAction, Event, PacketIn};
use std::time::Instant;
use switch::control::Left;
use switch::{BridgeIdx, Effect};

/// How often to call [`Vswitch::tick`].
pub const TICK_MS: u64 = 100;
/// Events taken at once from the rings. Those that a turn does not get to are handled in the next one.
const EVENTS_MAX: usize = 256;

impl Vswitch {
    /// The periodic work. Returns whether there is more to do right away; cleanup is left to [`Self::clean`].
    pub fn tick(&mut self) -> bool {
        self.keepalive.beat();
        let now_ms = self.plane.now_ms();
        let more = self.handle_events();
        self.clean();
        self.plane.control.tick(now_ms);
        self.workers.finish(&mut self.plane, &self.devices.ports);
        // Packets teach rules, and rules expire. What is being changed in turns is told of at its end.
        if !self.tables_are_changing() {
            let bridges: Vec<BridgeIdx> = self.bridges.keys().copied().collect();
            bridges.into_iter().for_each(|bridge| self.tell_vacancy(bridge));
        }
        self.ask_for_failures(now_ms);
        let events = self.devices.watch_some(&mut self.plane);
        self.follow_devices(events);
        self.tick_controllers(transport::clock::now());
        self.workers.look_after_queues(&mut self.plane, &self.devices.ports);
        self.sample_coverage(now_ms);
        self.plane.tell_overdue();
        self.deliver();
        more
    }

    /// A turn of the work between two ticks, about a millisecond at a time: expires rules, reports removals,
    /// and frees what they used. Returns whether there is more to do right away, or once workers or the
    /// changes of others have got further.
    pub fn clean(&mut self) -> Left {
        // Each does something, and together they last for one turn.
        let until = Instant::now() + TURN;
        let mut has_more = self.go_on_reporting(None, until);
        let has_own_changes = self.go_on_with_own_changes(until);
        let must_wait = has_own_changes && self.own_changes.must_wait(&self.plane);
        has_more |= has_own_changes && !must_wait;
        has_more |= self.go_on_with_abandoned(until) | free_some();
        has_more |= self.ct_flushes.go_on(&self.plane, until) | self.follow_mtus(until);
        if self.schedule.wants_expiry() && !self.tables_are_busy() {
            has_more |= self.schedule.expire(&mut self.plane);
        }
        let now_ms = self.plane.now_ms();
        self.schedule.advance(&mut self.plane, now_ms);
        let (bridges, now) = (&self.bridges, transport::clock::now());
        let is_behind = |bridge| bridges.get(&bridge).is_some_and(|bridge| bridge.is_behind(now));
        for Gone { bridge, version, news } in self.schedule.finish_some(&mut self.plane, is_behind) {
            self.counts.flows_removed += 1;
            self.connections.news.push((bridge, Asynchronous::Removed(version, Box::new(news))));
        }
        has_more |= self.has_finals();
        let left = self.plane.control.collect();
        self.deliver();
        let waits_for_workers = self.schedule.waits_for_workers() && self.plane.dp.workers() > 0;
        match has_more || left == Left::More {
            true => Left::More,
            false if must_wait || waits_for_workers => Left::Waiting,
            false => Left::Nothing,
        }
    }

    /// Whether counters that some work depends on are final.
    fn has_finals(&self) -> bool {
        self.schedule.has_finished() || self.schedule.wants_expiry() && !self.tables_are_busy()
    }

    /// Rules may have vanished that must be reported as soon as their counters are final.
    pub(crate) fn hasten_finals(&self) {
        if self.plane.control.has_removals() {
            self.urgent.notify_one();
        }
    }

    /// Processes what workers have sent, for about a turn, and how far they have got with counters. Returns
    /// whether there may be more.
    pub fn handle_events(&mut self) -> bool {
        let until = Instant::now() + TURN;
        loop {
            if self.events.is_empty() {
                self.events.extend(self.plane.dp.events(EVENTS_MAX));
            }
            // A packet may take long: it is cut into hundreds of frames, or teaches rules.
            let mut effects: Vec<Effect> = Vec::new();
            while let Some(event) = self.events.pop_front() {
                match event {
                    Event::Effect(Effect::Failed(key)) => self.tell_failed(&key),
                    Event::Effect(effect) => effects.push(effect),
                    Event::PacketIn(packet_in) if packet_in.spec.slow_path => {
                        self.counts.slow_path += 1;
                        self.plane.slow_path(packet_in);
                    }
                    Event::PacketIn(packet_in) => self.tell_packet_in(packet_in),
                    Event::PortGone(port) => {
                        let gone = self.devices.port_gone(&mut self.plane, port);
                        self.follow_devices(gone);
                    }
                }
                if Instant::now() >= until {
                    break;
                }
            }
            if !effects.is_empty() {
                self.counts.effects += effects.len() as u64;
                self.plane.apply(&effects);
                self.hasten_finals();
            }
            if !self.has_events() || Instant::now() >= until {
                break;
            }
        }
        let now_ms = self.plane.now_ms();
        self.schedule.advance(&mut self.plane, now_ms);
        if self.has_finals() {
            self.urgent.notify_one();
        }
        self.deliver();
        self.has_events()
    }

    /// What workers have sent on behalf of a bridge that is gone is not for the one that has its number now.
    pub(crate) fn forget_events_of(&mut self, bridge: BridgeIdx) {
        self.events.extend(self.plane.dp.events(usize::MAX));
        for event in std::mem::take(&mut self.events) {
            match event {
                // The packet itself, and not a copy for controllers.
                Event::PacketIn(PacketIn { spec, packet, .. })
                    if spec.bridge == bridge.0 && spec.slow_path =>
                {
                    let drop = vec![DpAction::Drop(DropReason::RxNoBridge)];
                    self.plane.dp.execute_tracked(spec.bridge, packet, None, drop);
                }
                Event::PacketIn(packet_in) if packet_in.spec.bridge == bridge.0 => {
                    self.counts.packet_ins_lost += 1;
                    self.plane.dp.free(packet_in.packet);
                }
                Event::Effect(Effect::Learn { bridge: of, .. }) if of == bridge => {}
                Event::Effect(Effect::LearnRule(rule)) if rule.bridge == bridge => {}
                other => self.events.push_back(other),
            }
        }
        if !self.events.is_empty() {
            // To take them has silenced the bell.
            self.plane.dp.event_bell().ring();
        }
    }

    fn has_events(&self) -> bool {
        !self.events.is_empty() || self.plane.dp.has_events()
    }

    /// Tells connections of a packet, in as many frames as they have room for.
    fn tell_packet_in(&mut self, mut packet_in: PacketIn) {
        let idx = BridgeIdx(packet_in.spec.bridge);
        let count = wire_frame_count(&packet_in.packet);
        self.counts.packet_ins += count as u64;
        // What happened before is told before.
        self.deliver();
        let Vswitch { bridges, plane, counts, .. } = self;
        if let Some(bridge) = bridges.get_mut(&idx).filter(|bridge| !bridge.conns.is_empty()) {
            let news = PacketNews::of(&packet_in, bridge.datapath_id, plane.control.options(idx));
            let cut = |most| plane.wire_frames(&mut packet_in.packet, most);
            counts.packet_ins_lost += bridge.tell_packet(news, count, cut);
        }
        plane.dp.free(packet_in.packet);
    }
}

impl ForwardingPlane {
    /// Tells of workers that do not answer.
    fn tell_overdue(&mut self) {
        for late in self.dp.overdue(Instant::now()) {
            let (name, seconds) = (datapath::worker_name(late.worker), late.waited.as_secs_f64());
            tracing::warn!(
                target: "dpif_netdev",
                "{name}: was asked for {} {seconds:.1} s ago and has not answered", late.what
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::wanted::{Bridge, FlowTable};
    use crate::config::{Config, Database, DatapathFlags, Flags};
    use crate::ofproto::{Ofproto, Purpose, VacancyWatch};
    use datapath::PacketInSpec;
    use flow::action::PacketInReason;
    use flow::{FieldId, Match};
    use host::rundir::RunDir;
    use openflow::message::AsyncConfig;
    use packet::{Packet, PacketFlags};
    use std::sync::Arc;
    use switch::BridgeConfig;
    use switch::control::FlowMod;

    /// Frames that each packet is on a wire, and packets.
    const FRAMES: u64 = 256;
    const PACKETS: u64 = 64;

    /// A UDP packet that its sender left to segmentation, with a byte for each segment.
    fn large(vswitch: &mut Vswitch) -> Packet {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([0x45, 0, 1, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 1, 0, 2, 1, 8, 0, 0]);
        frame.resize(frame.len() + FRAMES as usize, 7);
        let mut packet = vswitch.plane.dp.cache().alloc_frame(&frame).unwrap();
        (packet.csum_start, packet.csum_offset, packet.gso_size) = (34, 6, 1);
        packet.flags.set(PacketFlags::CSUM_PARTIAL);
        packet.flags.set(PacketFlags::GSO_UDP);
        packet
    }

    fn push(vswitch: &mut Vswitch, bridge: BridgeIdx) {
        let spec = Arc::new(PacketInSpec {
            bridge: bridge.0,
            table_id: 0,
            cookie: 0,
            reason: PacketInReason::Action,
            is_table_miss: false,
            is_without_rule: false,
            max_len: 0,
            controller_id: 0,
            userdata: Vec::new(),
            continuation: None,
            slow_path: false,
            is_tracked: false,
            state_id: 0,
            metadata: flow::Key::default(),
        });
        for _ in 0..PACKETS {
            let packet = large(vswitch);
            let spec = spec.clone();
            let packet_in = PacketIn { spec, metadata: Default::default(), original: None, packet };
            vswitch.events.push_back(Event::PacketIn(packet_in));
        }
    }

    /// The frames of packet-ins among messages of OpenFlow 1.0.
    fn packet_ins(mut messages: &[u8]) -> Vec<usize> {
        let mut found = Vec::new();
        while let [_, kind, high, low, ..] = messages {
            let (message, rest) = messages.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            if *kind == 10 {
                found.push(message.len() - 18);
            }
            messages = rest;
        }
        found
    }

    #[test]
    fn large_packets_are_cut_into_as_many_frames_as_somebody_has_room_for() {
        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let mut vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        let bridge = vswitch.plane.control.add_bridge(BridgeConfig::new("br0"));
        vswitch.bridges.insert(bridge, Ofproto::new(bridge, [2, 0, 0, 0, 0, 1], &Bridge::new("br0")));
        push(&mut vswitch, bridge);
        while vswitch.handle_events() {
            assert!(vswitch.connections.news.is_empty());
        }
        let counts = |vswitch: &Vswitch| (vswitch.counts.packet_ins, vswitch.counts.packet_ins_lost);
        assert_eq!(counts(&vswitch), (PACKETS * FRAMES, 0), "nobody wants them");

        let now = Instant::now();
        let id = vswitch.connected(bridge, Purpose::Primary, None, now).unwrap();
        vswitch.conn(bridge, id).unwrap().connection().handle_bytes(now, &[1, 0, 0, 8, 0, 0, 0, 1]);
        vswitch.serve(bridge, id, now, now);
        push(&mut vswitch, bridge);
        while vswitch.handle_events() {
            assert!(vswitch.connections.news.is_empty());
        }
        let room = 100;
        assert_eq!(counts(&vswitch), (2 * PACKETS * FRAMES, PACKETS * FRAMES - room));
        let told = packet_ins(vswitch.conn(bridge, id).unwrap().connection().transmit());
        assert_eq!(told, vec![14 + 20 + 8 + 1; room as usize]);

        push(&mut vswitch, bridge);
        vswitch.forget_events_of(BridgeIdx(bridge.0 + 1));
        assert_eq!(vswitch.events.len() as u64, PACKETS);
        let lost = counts(&vswitch).1;
        vswitch.forget_events_of(bridge);
        assert!(!vswitch.has_events());
        assert_eq!(counts(&vswitch).1, lost + PACKETS);
    }

    #[test]
    fn a_table_that_packets_fill_is_told_of_without_any_request() {
        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let mut vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        let bridge = vswitch.plane.control.add_bridge(BridgeConfig::new("br0"));
        let mut wanted = Bridge::new("br0");
        wanted.settings.flow_tables.insert(0, FlowTable { flow_limit: Some(10), ..FlowTable::default() });
        let mut ofproto = Ofproto::new(bridge, [2, 0, 0, 0, 0, 1], &wanted);
        let vacancy = Some(VacancyWatch { down: 20, up: 80, awaits_less: true });
        ofproto.tables.entry(0).or_default().vacancy = vacancy;
        vswitch.bridges.insert(bridge, ofproto);
        let now = Instant::now();
        let id = vswitch.connected(bridge, Purpose::Primary, None, now).unwrap();
        let conn = vswitch.conn(bridge, id).unwrap();
        conn.connection().handle_bytes(now, &[5, 0, 0, 8, 0, 0, 0, 1]);
        conn.async_config = Some(AsyncConfig { table_status: [u32::MAX; 2], ..AsyncConfig::default() });
        vswitch.serve(bridge, id, now, now);
        let told = |vswitch: &mut Vswitch| {
            vswitch.tick();
            let mut connection = vswitch.conn(bridge, id).unwrap().connection();
            let sent = connection.transmit().to_vec();
            connection.transmitted(sent.len());
            // OFPT_TABLE_STATUS.
            sent.windows(2).any(|head| head == [5, 31])
        };
        let add = |vswitch: &mut Vswitch, port: u128| {
            let rule = FlowMod::add(Match::any().with(FieldId::InPort, port), Vec::new());
            vswitch.plane.control.flow_mod(bridge, &rule, 0).unwrap();
        };
        (1..=8).for_each(|port| add(&mut vswitch, port));
        assert!(!told(&mut vswitch), "a fifth of it is free");
        add(&mut vswitch, 9);
        assert!(told(&mut vswitch));
    }
}

//! The control thread's periodic work: it applies effects, forgets addresses, reports removed rules once
//! [their counters are final](crate::finals), and watches ports.

use crate::finals::Gone;
use crate::ofproto::{Asynchronous, free_some};
use crate::plane::{ForwardingPlane, TURN};
use crate::state::Vswitch;
use datapath::Event;
use std::time::Instant;
use switch::control::Left;
use switch::{BridgeIdx, Effect};

/// How often to call [`Vswitch::tick`].
pub const TICK_MS: u64 = 100;
/// Events taken at once.
const EVENTS_MAX: usize = 4_096;

impl Vswitch {
    /// The periodic work. Returns whether there is more to do right away; cleanup is left to [`Self::clean`].
    pub fn tick(&mut self) -> bool {
        self.keepalive.beat();
        let now_ms = self.plane.now_ms();
        let more = self.handle_events();
        self.clean();
        self.plane.control.tick(now_ms);
        self.workers.finish(&mut self.plane, &self.devices.ports);
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
    /// and frees what they used. Returns whether there is more to do right away.
    pub fn clean(&mut self) -> bool {
        // Each does something, and together they last for one turn.
        let until = Instant::now() + TURN;
        let mut has_more = self.go_on_reporting(None, until) | self.go_on_with_own_changes(until);
        has_more |= self.go_on_with_abandoned(until) | free_some();
        has_more |= self.ct_flushes.go_on(&self.plane, until);
        if self.schedule.wants_expiry() && !self.tables_are_busy() {
            has_more |= self.schedule.expire(&mut self.plane);
            let bridges: Vec<BridgeIdx> = self.bridges.keys().copied().collect();
            bridges.into_iter().for_each(|bridge| self.tell_vacancy(bridge));
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
        has_more || left == Left::More || self.schedule.waits_for_workers() && self.plane.dp.workers() > 0
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

    /// Processes what workers have sent, and how far they have got with counters. Returns whether there may
    /// be more.
    pub fn handle_events(&mut self) -> bool {
        let events = self.plane.dp.events(EVENTS_MAX);
        let more = self.plane.dp.has_events();
        let mut effects: Vec<Effect> = Vec::new();
        for event in events {
            match event {
                Event::Effect(Effect::Failed(key)) => self.tell_failed(&key),
                Event::Effect(effect) => effects.push(effect),
                Event::PacketIn(packet_in) if packet_in.spec.slow_path => {
                    self.counts.slow_path += 1;
                    self.plane.slow_path(packet_in);
                }
                Event::PacketIn(mut packet_in) => {
                    let bridge = switch::BridgeIdx(packet_in.spec.bridge);
                    let datapath_id = self.bridges.get(&bridge).map_or(0, |bridge| bridge.datapath_id);
                    for data in self.plane.wire_frames(&mut packet_in.packet) {
                        self.counts.packet_ins += 1;
                        let options = self.plane.control.options(bridge);
                        let news = Asynchronous::packet_in(&packet_in, data, datapath_id, options);
                        self.connections.news.push((bridge, news));
                    }
                    self.plane.dp.free(packet_in.packet);
                }
                Event::PortGone(port) => {
                    let gone = self.devices.port_gone(&mut self.plane, port);
                    self.follow_devices(gone);
                }
            }
        }
        if !effects.is_empty() {
            self.counts.effects += effects.len() as u64;
            let now_ms = self.plane.now_ms();
            self.plane.control.apply(&effects, now_ms);
            self.plane.dp.reserve_slots(self.plane.control.slot_count());
            self.hasten_finals();
        }
        let now_ms = self.plane.now_ms();
        self.schedule.advance(&mut self.plane, now_ms);
        if self.has_finals() {
            self.urgent.notify_one();
        }
        self.deliver();
        more
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

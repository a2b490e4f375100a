//! What the control thread does by itself: it applies effects, expires rules, forgets addresses, tells of
//! removed rules once their counters are final, gives counter slots back, and watches ports.
//!
//! Counters are final in three steps. A rule vanishes with a version; when every worker has passed a
//! quiescent point, none credits the rule any more; a fold that begins after that gathers what flows still
//! hold. Deadlines are judged on counters too: a rule is expired as of the moment at which a fold that is
//! done was asked for.
//!
//! Folding costs the workers time, so folds are spaced out: a fifth of a second apart, half a second where a
//! worker caches many flows.

use crate::finals::Finals;
use crate::ofproto::{Asynchronous, free_some};
use crate::plane::ForwardingPlane;
use crate::state::Vswitch;
use base::PortNo;
use datapath::Event;
use openflow::message::{FlowForm, FlowRemoved, FlowRemovedReason};
use packet::LinkState;
use switch::control::{Left, Removal, RemovedReason};
use switch::{BridgeIdx, Effect, SlotStats};

/// How often [`Vswitch::tick`] is to be called.
pub const TICK_MS: u64 = 100;
/// Between two folds.
const FOLD_INTERVAL_MS: u64 = 200;
/// Between two folds where a worker has this many flows.
const FOLD_INTERVAL_MANY_MS: u64 = 500;
const MANY_FLOWS: u64 = 100_000;
/// Each port is looked at once in this time.
const WATCH_INTERVAL_MS: u64 = 1_000;
/// Events taken at once.
const EVENTS_MAX: usize = 4_096;

impl Vswitch {
    /// The periodic work. Returns whether there is more to do right away; what there is to clean besides is
    /// left to [`Self::clean`].
    pub fn tick(&mut self) -> bool {
        self.keepalive.beat();
        let now_ms = self.plane.now_ms();
        let more = self.handle_events();
        self.advance_finals();
        self.fold_on_schedule(now_ms);
        self.clean();
        self.plane.control.tick(now_ms);
        self.finish_workers();
        self.ask_for_failures(now_ms);
        self.watch_ports();
        self.tick_controllers(transport::clock::now());
        self.look_after_queues(now_ms);
        self.sample_coverage(now_ms);
        self.plane.tell_overdue();
        self.deliver();
        more
    }

    /// A turn of what is done between two ticks, a millisecond or so at a time: expires rules, tells of what
    /// is gone, gives back what it had. Returns whether there is more to do right away.
    pub fn clean(&mut self) -> bool {
        let mut has_more = self.go_on_reporting(None) | self.go_on_with_abandoned() | free_some();
        if let Some(as_of_ms) = self.schedule.expiring.filter(|_| !self.tables_are_busy()) {
            if self.control_expire(as_of_ms) {
                has_more = true;
            } else {
                self.schedule.expiring = None;
            }
        }
        if !self.schedule.finished.is_empty() {
            let finals = self.schedule.finished.take_some();
            self.finish(finals);
            has_more |= !self.schedule.finished.is_empty();
        }
        let left = self.plane.control.collect();
        self.deliver();
        let waits_for_workers = left == Left::Waiting && self.schedule.passing.is_some();
        has_more || left == Left::More || waits_for_workers && self.plane.dp.workers() > 0
    }

    /// Takes what workers have sent. Returns whether there may be more.
    pub fn handle_events(&mut self) -> bool {
        let events = self.plane.dp.events(EVENTS_MAX);
        let more = events.len() >= EVENTS_MAX;
        let mut effects: Vec<Effect> = Vec::new();
        for event in events {
            match event {
                Event::Effect(Effect::Failed(key)) => self.tell_failed(&key),
                Event::Effect(effect) => effects.push(effect),
                Event::PacketIn(packet_in) if packet_in.spec.slow_path => {
                    self.counts.slow_path += 1;
                    self.plane.slow_path(packet_in);
                }
                Event::PacketIn(packet_in) => {
                    self.counts.packet_ins += 1;
                    let bridge = switch::BridgeIdx(packet_in.spec.bridge);
                    let options = self.plane.control.options(bridge);
                    let datapath_id = self.bridges.get(&bridge).map_or(0, |bridge| bridge.datapath_id);
                    let news = Asynchronous::packet_in(&packet_in, datapath_id, options);
                    self.plane.dp.free(packet_in.packet);
                    self.news.push((bridge, news));
                }
                Event::PortGone(port) => self.port_gone(port),
            }
        }
        if !effects.is_empty() {
            self.counts.effects += effects.len() as u64;
            let now_ms = self.plane.now_ms();
            self.plane.control.apply(&effects, now_ms);
            self.plane.dp.reserve_slots(self.plane.control.slot_count());
        }
        self.deliver();
        more
    }

    /// A port's device is gone.
    pub(crate) fn port_gone(&mut self, port: PortNo) {
        let Some(record) = self.ports.get_mut(&port) else { return };
        if record.gone {
            return;
        }
        record.gone = true;
        self.devices.note_lost(&record.interface);
        record.status.link = LinkState::Down;
        tracing::warn!(target: "netdev", "{}: the device is gone", record.name);
        self.plane.update_port(port, |spec| spec.link_up = false);
        self.tell_port(port, openflow::message::PortReason::Modify);
    }

    /// Moves what has vanished towards final counters.
    fn advance_finals(&mut self) {
        if let Some((ticket, asked_ms, finals)) = self.schedule.fold.take() {
            if self.plane.dp.fold_done(ticket) {
                self.schedule.expiring = Some(asked_ms);
                self.schedule.finished.append(finals);
            } else {
                self.schedule.fold = Some((ticket, asked_ms, finals));
            }
        }
        if let Some((ticket, finals)) = self.schedule.passing.take() {
            if self.plane.control.passed(ticket) {
                self.schedule.passed.append(finals);
            } else {
                self.schedule.passing = Some((ticket, finals));
            }
        }
        if self.schedule.passing.is_none() {
            let slots = self.plane.control.take_retired_slots();
            let slots = Some(slots).filter(|slots| !slots.slots().is_empty());
            let removals = self.plane.control.take_removals().into();
            let finals = Finals { removals, slots: slots.into_iter().collect() };
            if !finals.is_empty() {
                self.schedule.passing = Some((self.plane.control.ticket(), finals));
            }
        }
    }

    fn fold_on_schedule(&mut self, now_ms: u64) {
        if self.schedule.fold.is_some() {
            return;
        }
        let due = self.plane.control.next_deadline_ms().is_some_and(|at| at <= now_ms);
        if !due && self.schedule.passed.is_empty() {
            return;
        }
        let flows = |n: usize| {
            let stats = self.plane.dp.worker_stats(n);
            stats.megaflows.get() + stats.exact_entries.get()
        };
        let many = (0..self.plane.dp.workers()).any(|n| flows(n) >= MANY_FLOWS);
        let interval_ms = if many { FOLD_INTERVAL_MANY_MS } else { FOLD_INTERVAL_MS };
        if now_ms < self.schedule.last_fold_ms + interval_ms {
            return;
        }
        let finals = std::mem::take(&mut self.schedule.passed);
        self.schedule.last_fold_ms = now_ms;
        self.schedule.fold = Some((self.plane.dp.request_fold(), now_ms, finals));
    }

    /// Whether there is more to expire.
    fn control_expire(&mut self, as_of_ms: u64) -> bool {
        let (dp, own) = (&self.plane.dp, &self.plane.own_credits);
        let read = |slot: u32| {
            let own = own.get(&slot).copied().unwrap_or_default();
            let totals = dp.slot(slot);
            SlotStats {
                packets: totals.packets + own.packets,
                bytes: totals.bytes + own.bytes,
                last_used_ms: totals.last_used_ms.max(own.last_used_ms),
            }
        };
        let has_more = self.plane.control.expire(as_of_ms, &read);
        let bridges: Vec<BridgeIdx> = self.bridges.keys().copied().collect();
        bridges.into_iter().for_each(|bridge| self.tell_vacancy(bridge));
        has_more
    }

    /// Counters are final: tells of removed rules, and gives slots back.
    fn finish(&mut self, finals: Finals) {
        for removal in finals.removals {
            let news = self.plane.flow_removed(&removal);
            self.counts.flows_removed += 1;
            let news = Asynchronous::Removed(removal.version, Box::new(news));
            self.news.push((removal.rule.bridge, news));
            self.plane.control.removal_done(removal);
        }
        for slots in finals.slots {
            for &slot in slots.slots().iter().rev() {
                self.plane.bequeath(slot);
                self.plane.dp.clear_slot(slot);
                if !self.plane.own_credits.is_empty() {
                    self.plane.own_credits.remove(&slot);
                }
            }
            self.plane.control.recycle_slots(slots);
        }
    }

    /// Looks at a share of the ports, so that a thousand of them do not hold up the rest.
    fn watch_ports(&mut self) {
        let share = self.ports.len().div_ceil((WATCH_INTERVAL_MS / TICK_MS) as usize);
        for _ in 0..share {
            let after = (std::ops::Bound::Excluded(self.schedule.watched), std::ops::Bound::Unbounded);
            let next = self.ports.range(after).next().or_else(|| self.ports.iter().next());
            let Some((&port, _)) = next else { return };
            self.schedule.watched = port;
            self.watch_port(port);
        }
    }
}

impl ForwardingPlane {
    /// A rule's counters are final: the rule in its place inherits when it was last used.
    fn bequeath(&mut self, slot: u32) {
        let Some(heir) = self.control.heir(slot) else { return };
        let last_used_ms = self.slot(slot).last_used_ms;
        if last_used_ms > 0 {
            let own = self.own_credits.entry(heir).or_default();
            own.last_used_ms = own.last_used_ms.max(last_used_ms);
        }
    }

    fn flow_removed(&self, removal: &Removal) -> FlowRemoved {
        let rule = &removal.rule;
        let counted = self.slot(rule.slot);
        let lived_ms = removal.now_ms.saturating_sub(rule.created_ms);
        FlowRemoved {
            form: FlowForm::Standard,
            reason: match removal.reason {
                RemovedReason::IdleTimeout => FlowRemovedReason::IdleTimeout,
                RemovedReason::HardTimeout => FlowRemovedReason::HardTimeout,
                RemovedReason::Delete => FlowRemovedReason::Delete,
                RemovedReason::MeterDelete => FlowRemovedReason::MeterDelete,
                RemovedReason::Eviction => FlowRemovedReason::Eviction,
                RemovedReason::GroupDelete => FlowRemovedReason::GroupDelete,
            },
            table_id: rule.table_id,
            cookie: rule.cookie,
            priority: rule.priority.clamp(0, 0xffff) as u16,
            duration_s: (lived_ms / 1000) as u32,
            duration_ns: (lived_ms % 1000) as u32 * 1_000_000,
            idle_timeout: rule.timeouts.idle_s(),
            hard_timeout: rule.timeouts.hard_s(),
            packet_count: counted.packets,
            byte_count: counted.bytes,
            matching: self.match_of(rule),
        }
    }

    /// Tells of workers that do not answer.
    fn tell_overdue(&mut self) {
        for late in self.dp.overdue(std::time::Instant::now()) {
            let (name, seconds) = (datapath::worker_name(late.worker), late.waited.as_secs_f64());
            tracing::warn!(
                target: "dpif_netdev",
                "{name}: was asked for {} {seconds:.1} s ago and has not answered", late.what
            );
        }
    }
}

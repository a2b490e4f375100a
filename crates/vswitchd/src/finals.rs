//! Removed rules that wait for their final counters, and expiry.
//!
//! Counters become final in three steps. A rule vanishes with a version; when every worker has passed a
//! quiescent point, none credits the rule any more; a fold that begins after that collects what flows still
//! hold. Deadlines are also judged by counters: a rule expires as of the moment at which a completed fold was
//! requested.
//!
//! Folding costs workers time. If removed rules must be reported, folds follow each other directly, and rules
//! that vanish during one share the next. Otherwise folds are a fifth of a second apart, or half a second if
//! a worker caches many flows.
//!
//! Reports of a bridge wait while a primary controller is behind with reading them: a million removed rules
//! are far more than a connection may hold.

use crate::plane::{Crediting, ForwardingPlane};
use base::Version;
use openflow::message::{FlowForm, FlowRemoved, FlowRemovedReason};
use std::collections::{BTreeMap, VecDeque};
use switch::control::{Removal, RemovedReason};
use switch::{BridgeIdx, RetiredSlots};

/// Time between two folds that nothing waits for.
const FOLD_INTERVAL_MS: u64 = 200;
/// Between two folds where a worker has this many flows.
const FOLD_INTERVAL_MANY_MS: u64 = 500;
const MANY_FLOWS: u64 = 100_000;
/// Removed rules reported per turn.
const REMOVALS_AT_ONCE: usize = 256;
/// Removed rules whose reports wait for controllers, of all bridges. Beyond that they are reported all the
/// same, and the controller that is behind may lose its connection.
const HELD_BACK_MAX: usize = 1 << 20;
/// Slots that are cleared in one turn.
const SLOTS_AT_ONCE: usize = 4_096;

/// What is in progress.
#[derive(Default)]
pub(crate) struct Schedule {
    /// Vanished, and waiting for workers to pass: ticket.
    passing: Option<(u64, Finals)>,
    /// Passed, and waiting for a fold to be asked for.
    passed: Finals,
    /// A fold that was asked for: ticket, when, and whose counters it makes final.
    fold: Option<(u64, u64, Finals)>,
    /// What is final, and waits to be reported and freed.
    finished: Finals,
    /// What is to be reported next.
    reports: Reports,
    /// Expire rules as of this time, by counters that have been folded.
    expiring: Option<u64>,
    last_fold_ms: u64,
}

/// A rule that is gone, with what it has counted.
#[derive(Debug)]
pub(crate) struct Gone {
    pub bridge: BridgeIdx,
    /// The first version without it.
    pub version: Version,
    pub news: FlowRemoved,
}

impl Schedule {
    /// Moves what has vanished towards final counters as far as workers allow, and requests a fold if one is
    /// due.
    pub fn advance(&mut self, plane: &mut ForwardingPlane, now_ms: u64) {
        while self.step(plane, now_ms) {}
    }

    /// Returns whether anything has advanced, and more may.
    fn step(&mut self, plane: &mut ForwardingPlane, now_ms: u64) -> bool {
        let mut has_moved = false;
        if let Some((_, asked_ms, finals)) = self.fold.take_if(|(ticket, ..)| plane.dp.fold_done(*ticket)) {
            self.expiring = Some(asked_ms);
            self.finished.append(finals);
            has_moved = true;
        }
        if let Some((_, finals)) = self.passing.take_if(|(ticket, _)| plane.control.passed(*ticket)) {
            self.passed.append(finals);
            has_moved = true;
        }
        if self.passing.is_none() {
            let slots = Some(plane.control.take_retired_slots()).filter(|slots| !slots.slots().is_empty());
            let removals = plane.control.take_removals().into();
            let of_bundle = || plane.crediting.clone();
            let slots = slots.map(|slots| Slots { slots, of_bundle: of_bundle() });
            let finals = Finals { removals, slots: slots.into_iter().collect() };
            if !finals.is_empty() {
                self.passing = Some((plane.control.ticket(), finals));
                has_moved = true;
            }
        }
        if self.wants_fold(plane, now_ms) {
            self.last_fold_ms = now_ms;
            self.fold = Some((plane.dp.request_fold(), now_ms, std::mem::take(&mut self.passed)));
            has_moved = true;
        }
        has_moved
    }

    fn wants_fold(&self, plane: &ForwardingPlane, now_ms: u64) -> bool {
        let has_flows = |n| {
            let stats = plane.dp.worker_stats(n);
            stats.megaflows.get() + stats.exact_entries.get() >= MANY_FLOWS
        };
        let is_due = || plane.control.next_deadline_ms().is_some_and(|at| at <= now_ms);
        let interval_ms = || match (0..plane.dp.workers()).any(has_flows) {
            true => FOLD_INTERVAL_MANY_MS,
            false => FOLD_INTERVAL_MS,
        };
        let has_interval_passed = || now_ms >= self.last_fold_ms + interval_ms();
        let is_awaited = !self.passed.removals.is_empty();
        self.fold.is_none() && (is_awaited || (is_due() || !self.passed.is_empty()) && has_interval_passed())
    }

    /// Whether something has vanished that workers may still see.
    pub fn waits_for_workers(&self) -> bool {
        self.passing.is_some()
    }

    /// Whether rules may have expired.
    pub fn wants_expiry(&self) -> bool {
        self.expiring.is_some()
    }

    /// A turn of expiring rules. Whether there is more to do.
    pub fn expire(&mut self, plane: &mut ForwardingPlane) -> bool {
        self.expiring = self.expiring.filter(|as_of_ms| plane.expire(*as_of_ms));
        self.wants_expiry()
    }

    /// Frees some of what is final, in less than a millisecond. Returns the rules that must be reported,
    /// except those of bridges whose controllers are behind.
    pub fn finish_some(
        &mut self,
        plane: &mut ForwardingPlane,
        is_behind: impl Fn(BridgeIdx) -> bool,
    ) -> Vec<Gone> {
        let finals = self.finished.take_some();
        self.reports.add(finals.removals);
        let tell = |removal: Removal| {
            let (bridge, version) = (removal.rule.bridge, removal.version);
            let news = plane.flow_removed(&removal);
            plane.control.removal_done(removal);
            Gone { bridge, version, news }
        };
        let gone = self.reports.take_some(HELD_BACK_MAX, is_behind).into_iter().map(tell).collect();
        for Slots { slots, .. } in finals.slots {
            for &slot in slots.slots().iter().rev() {
                plane.bequeath(slot);
                plane.dp.clear_slot(slot);
                plane.own_credits.remove(&slot);
            }
            plane.control.recycle_slots(slots);
        }
        gone
    }

    /// Whether more is final, and nobody is behind who must be told of it.
    pub fn has_finished(&self) -> bool {
        !self.finished.removals.is_empty() || self.finished.has_free_slots() || self.reports.has_more
    }
}

/// Rules whose counters are final, in the order in which they went from their bridge.
#[derive(Default)]
struct Reports {
    by_bridge: BTreeMap<BridgeIdx, VecDeque<Removal>>,
    /// The last turn left some that it might have taken.
    has_more: bool,
}

impl Reports {
    fn add(&mut self, removals: VecDeque<Removal>) {
        for removal in removals {
            self.by_bridge.entry(removal.rule.bridge).or_default().push_back(removal);
        }
    }

    /// What may be reported now, in one turn. Only so many are held back.
    fn take_some(&mut self, held_back_max: usize, is_behind: impl Fn(BridgeIdx) -> bool) -> Vec<Removal> {
        let is_full = self.by_bridge.values().map(VecDeque::len).sum::<usize>() > held_back_max;
        let mut taken = Vec::new();
        for (bridge, removals) in &mut self.by_bridge {
            let room = REMOVALS_AT_ONCE - taken.len();
            if room > 0 && (is_full || !is_behind(*bridge)) {
                taken.extend(removals.drain(..removals.len().min(room)));
            }
        }
        self.by_bridge.retain(|_, removals| !removals.is_empty());
        self.has_more = taken.len() == REMOVALS_AT_ONCE;
        taken
    }
}

/// What becomes final together.
#[derive(Default)]
struct Finals {
    removals: VecDeque<Removal>,
    /// Those released first come first: others may inherit from them.
    slots: VecDeque<Slots>,
}

/// Slots of rules and others that are gone.
struct Slots {
    slots: RetiredSlots,
    /// The bundle that was being carried out when they went. Nobody else uses them before that has ended.
    of_bundle: Crediting,
}

impl Finals {
    fn is_empty(&self) -> bool {
        self.removals.is_empty() && self.slots.is_empty()
    }

    /// Whether slots can be used again.
    fn has_free_slots(&self) -> bool {
        let bundle = |slots: &Slots| slots.of_bundle.as_ref().is_some_and(|bundle| bundle.strong_count() > 0);
        self.slots.front().is_some_and(|slots| !bundle(slots))
    }

    /// Takes a part that can be handled in less than a millisecond.
    fn take_some(&mut self) -> Finals {
        let removals = self.removals.drain(..self.removals.len().min(REMOVALS_AT_ONCE)).collect();
        let is_free = self.has_free_slots();
        let front = self.slots.front_mut().filter(|_| is_free);
        let slots = front.map(|front| Slots { slots: front.slots.take(SLOTS_AT_ONCE), of_bundle: None });
        if self.slots.front().is_some_and(|front| front.slots.slots().is_empty()) {
            self.slots.pop_front();
        }
        Finals { removals, slots: slots.into_iter().collect() }
    }

    fn append(&mut self, mut other: Finals) {
        // Avoids copying a million entries if there are no removals.
        if self.removals.is_empty() {
            self.removals = std::mem::take(&mut other.removals);
        }
        self.removals.append(&mut other.removals);
        self.slots.append(&mut other.slots);
    }
}

impl ForwardingPlane {
    /// A rule's counters are final: its successor inherits the time of last use.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DatapathFlags;
    use datapath::CacheConfig;
    use flow::Match;
    use std::any::Any;
    use std::sync::Arc;
    use switch::control::{FlowMod, RuleFilter};
    use switch::{BridgeConfig, RuleFlags, SlotStats};

    const TICK_MS: u64 = 100;

    /// A plane with a bridge, without workers.
    fn plane() -> (ForwardingPlane, BridgeIdx) {
        let flags = DatapathFlags { pool_packets: 64, ..DatapathFlags::default() };
        let mut plane = ForwardingPlane::new(&flags, CacheConfig::default()).unwrap();
        let bridge = plane.control.add_bridge(BridgeConfig::new("br0"));
        (plane, bridge)
    }

    fn tick(schedule: &mut Schedule, plane: &mut ForwardingPlane, now_ms: u64) -> Vec<Gone> {
        schedule.advance(plane, now_ms);
        while schedule.expire(plane) {}
        schedule.finish_some(plane, |_| false)
    }

    /// Its slot.
    fn add(plane: &mut ForwardingPlane, bridge: BridgeIdx, hard_timeout_s: u16) -> u32 {
        let flags = RuleFlags { send_flow_removed: true, ..RuleFlags::default() };
        let rule = FlowMod { flags, hard_timeout_s, ..FlowMod::add(Match::any(), Vec::new()) };
        plane.control.flow_mod(bridge, &rule, 0).unwrap();
        plane.control.rules(bridge, &RuleFilter::default())[0].slot
    }

    #[test]
    fn a_rule_that_expires_is_told_of_once_with_all_that_it_counted() {
        let (mut plane, bridge) = plane();
        let mut schedule = Schedule::default();
        let slot = add(&mut plane, bridge, 1);
        let mut gone = Vec::new();
        for now_ms in (0..3_000).step_by(TICK_MS as usize) {
            // What is counted before the last fold belongs to it, also when the rule has vanished.
            if gone.is_empty() {
                plane.own_credits.entry(slot).or_default().packets += 1;
            }
            let counted = plane.slot(slot).packets;
            let told = tick(&mut schedule, &mut plane, now_ms);
            assert!(told.is_empty() || now_ms >= 1_000, "{now_ms} ms");
            gone.extend(told.into_iter().map(|gone| (gone, counted)));
        }
        let [(Gone { bridge: of, news, .. }, counted)] = &gone[..] else { panic!("{gone:?}") };
        assert_eq!((*of, news.reason), (bridge, FlowRemovedReason::HardTimeout));
        assert!(news.packet_count == *counted && *counted > 10, "{news:?}, {counted} counted");
        assert_eq!(plane.slot(slot), SlotStats::default(), "the slot's next owner begins at 0");
    }

    #[test]
    fn a_slot_that_packets_of_a_bundle_are_credited_to_goes_to_nobody_else_before_the_bundle_has_ended() {
        let (mut plane, bridge) = plane();
        let mut schedule = Schedule::default();
        let slot = add(&mut plane, bridge, 0);
        let bundle: Arc<dyn Any + Send + Sync> = Arc::new(());
        plane.crediting = Some(Arc::downgrade(&bundle));
        plane.control.flow_mod(bridge, &FlowMod::delete(Match::any()), 0).unwrap();
        let gone: Vec<_> =
            (0..2_000).step_by(100).flat_map(|ms| tick(&mut schedule, &mut plane, ms)).collect();
        assert!(gone.len() == 1 && !schedule.has_finished());
        plane.own_credits.entry(slot).or_default().packets += 1;
        assert_ne!(add(&mut plane, bridge, 0), slot);
        drop(bundle);
        (2_000..4_000).step_by(100).for_each(|ms| _ = tick(&mut schedule, &mut plane, ms));
        assert_eq!(plane.slot(slot), SlotStats::default());
        plane.control.flow_mod(bridge, &FlowMod::delete(Match::any()), 0).unwrap();
        assert_eq!(add(&mut plane, bridge, 0), slot);
    }

    #[test]
    fn what_a_worker_may_still_credit_is_not_final() {
        let (mut plane, bridge) = plane();
        let mut schedule = Schedule::default();
        let slot = add(&mut plane, bridge, 0);
        let reader = plane.domain.register();
        plane.control.flow_mod(bridge, &FlowMod::delete(Match::any()), 0).unwrap();
        plane.own_credits.entry(slot).or_default().packets = 7;
        for now_ms in (0..2_000).step_by(TICK_MS as usize) {
            assert!(tick(&mut schedule, &mut plane, now_ms).is_empty() && schedule.waits_for_workers());
        }
        drop(reader);
        let mut later = (2_000..4_000).step_by(TICK_MS as usize);
        let gone = later.find_map(|now_ms| tick(&mut schedule, &mut plane, now_ms).pop()).unwrap();
        assert_eq!((gone.news.reason, gone.news.packet_count), (FlowRemovedReason::Delete, 7));
        assert!(!schedule.waits_for_workers() && !schedule.has_finished());
    }

    #[test]
    fn reports_wait_for_a_controller_that_is_behind_and_hold_up_no_other_bridge() {
        let (mut plane, slow) = plane();
        let fast = plane.control.add_bridge(BridgeConfig::new("br1"));
        let mut schedule = Schedule::default();
        for (cookie, bridge) in [(1, slow), (2, fast), (3, slow)] {
            add(&mut plane, bridge, 0);
            plane.control.flow_mod(bridge, &FlowMod::delete(Match::any()), 0).unwrap();
            schedule.advance(&mut plane, cookie * TICK_MS);
        }
        let turn = |schedule: &mut Schedule, plane: &mut ForwardingPlane, is_behind: bool| {
            schedule.advance(plane, 10 * TICK_MS);
            let gone = schedule.finish_some(plane, |bridge| is_behind && bridge == slow);
            gone.into_iter().map(|gone| gone.bridge).collect::<Vec<_>>()
        };
        assert_eq!(turn(&mut schedule, &mut plane, true), [fast]);
        assert!(turn(&mut schedule, &mut plane, true).is_empty() && !schedule.has_finished());
        assert_eq!(turn(&mut schedule, &mut plane, false), [slow, slow]);

        // What is held back has a bound.
        for n in 0..3 {
            add(&mut plane, slow, 0);
            plane.control.flow_mod(slow, &FlowMod::delete(Match::any()), n).unwrap();
        }
        let mut reports = Reports::default();
        reports.add(plane.control.take_removals().into());
        assert_eq!(reports.take_some(3, |_| true).len(), 0);
        assert_eq!(reports.take_some(2, |_| true).len(), 3);
    }
}

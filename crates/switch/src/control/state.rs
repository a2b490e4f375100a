//! The state of the control side, and its versions: publishing one, and freeing what no version shows.

use super::action_lists::ActionLists;
use super::change::Underway;
use super::depth::Depths;
use super::ended::{Left, RETIRED_AT_ONCE};
use super::events::{Events, Removal, RuleEvents};
use super::headway::Headway;
use super::learning::Learning;
use super::mac_records::{Doomed, MacControl};
use super::numbered::{MeterNumbers, NumberedControl};
use super::store::RuleStore;
use super::timers::Timers;
use crate::by_hand::ByHand;
use crate::changelog::{ChangeLogWriter, word_table};
use crate::effect::Effect;
use crate::frozen::Generation;
use crate::group::Group;
use crate::meter::Meter;
use crate::shape::Shapes;
use crate::slots::{RetiredSlots, SlotAllocator};
use crate::switch::Switch;
use crate::topology::{BridgeIdx, BridgeState, Topology};
use base::hash::HashKey;
use base::rcu::{Domain, Reader, Reclaimed};
use base::{PortNo, Version};
use flow::classifier::Retired;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the documentation of [the module](crate::control).
pub struct Control {
    pub(super) reader: Reader,
    pub(super) inner: Inner,
    pub(super) underway: Option<Underway>,
    /// Number of transactions begun.
    pub(super) transactions: u64,
    pub(super) headway: Headway,
}

/// Everything except the reader, so that borrows through the reader can coexist with changes of the rest.
pub(crate) struct Inner {
    pub switch: Arc<Switch>,
    pub log: ChangeLogWriter,
    pub slots: SlotAllocator,
    pub shapes: Shapes,
    pub actions: ActionLists,
    pub bridges: Vec<Option<BridgeControl>>,
    pub topology: Topology,
    /// Whether to publish `topology` with the next version.
    pub topology_changed: bool,
    pub timers: Timers,
    pub removals: Vec<Removal>,
    /// A table has been created since the last version.
    pub has_new_table: bool,
    pub events: Events,
    pub learning: Learning,
    pub depths: Depths,
    /// Addresses that are to be forgotten, the next ones first.
    pub doomed: VecDeque<Doomed>,
    pub by_hand: ByHand,
    /// Ticket and version of a grace period in progress.
    pub grace: Option<(u64, Version)>,
    /// What vanished up to this version has been freed.
    pub collected: Version,
    pub history_len: usize,
    pub next_serial: u64,
    pub meter_numbers: MeterNumbers,
    /// The version being prepared, if it is not the next one.
    pub staging: Option<Version>,
    /// What packets want to learn once the current transaction is done.
    pub deferred: VecDeque<Effect>,
    /// Generations of frozen states that no packet comes back to, until they are freed.
    discarded: VecDeque<Arc<Generation>>,
    /// Whether actions for tests are accepted.
    pub debugs: bool,
}

impl Control {
    /// An empty switch. `secret` keys its hashes.
    pub fn new(domain: Arc<Domain>, secret: HashKey) -> (Arc<Switch>, Control) {
        let switch = Arc::new(Switch::new(domain.clone(), secret));
        let inner = Inner {
            log: ChangeLogWriter::new(domain.clone(), switch.log.clone()),
            switch: switch.clone(),
            slots: SlotAllocator::default(),
            shapes: Shapes::default(),
            actions: Default::default(),
            bridges: Vec::new(),
            topology: Topology::default(),
            topology_changed: false,
            timers: Default::default(),
            removals: Vec::new(),
            has_new_table: false,
            events: Default::default(),
            learning: Default::default(),
            depths: Default::default(),
            doomed: VecDeque::new(),
            by_hand: ByHand::default(),
            grace: None,
            collected: Version(0),
            history_len: 1,
            next_serial: 0,
            meter_numbers: Default::default(),
            staging: None,
            deferred: VecDeque::new(),
            discarded: VecDeque::new(),
            debugs: false,
        };
        let (reader, headway) = (domain.register(), Headway::WHOLE);
        (switch, Control { reader, inner, underway: None, transactions: 0, headway })
    }

    /// Makes it accept `debug_recirc` and `debug_slow`.
    pub fn accept_debug_actions(&mut self) {
        self.inner.debugs = true;
    }

    /// The half shared with workers.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.inner.switch
    }

    /// Bridges and ports as they are now.
    pub fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    /// The newest version.
    pub fn version(&self) -> Version {
        self.inner.published()
    }

    /// Frees some of what no worker sees any more, and narrows extraction depths that have not been needed
    /// for 10 s.
    pub fn tick(&mut self, now_ms: u64) -> Left {
        let left = self.collect();
        self.inner.narrow(now_ms);
        self.inner.renew_frozen(&self.reader);
        self.inner.retry_learning(now_ms);
        self.inner.shapes.sweep();
        self.inner.actions.sweep();
        if self.underway.is_none() {
            self.inner.sort_out_timers();
        }
        self.reader.quiescent();
        left
    }

    /// Frees some of what no worker sees any more, and forgets some of the addresses that must be.
    pub fn collect(&mut self) -> Left {
        let has_doomed = self.go_on_forgetting();
        self.reader.quiescent();
        let left = self.inner.collect(&self.reader);
        self.reader.quiescent();
        if has_doomed { Left::More } else { left }
    }

    /// A ticket for [`Self::passed`]. Once `passed` returns true, every worker sees the changes made before
    /// the ticket.
    pub fn ticket(&mut self) -> u64 {
        let ticket = self.inner.switch.domain.ticket();
        self.reader.quiescent();
        ticket
    }

    /// Whether every worker has passed a quiescent point since the ticket was taken.
    pub fn passed(&mut self, ticket: u64) -> bool {
        self.reader.quiescent();
        self.inner.switch.domain.passed(ticket)
    }

    /// When [`Self::expire`] next has something to check, in milliseconds, to a tenth of a second. Traffic
    /// may have postponed that deadline.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        [self.inner.timers.next_ms(), self.inner.next_mac_deadline_ms()].into_iter().flatten().min()
    }

    /// The manual overrides.
    pub fn by_hand(&self) -> &ByHand {
        &self.inner.by_hand
    }

    /// Sets manual overrides of the tables. The caller must flush cached flows afterwards.
    pub fn set_by_hand(&mut self, by_hand: ByHand) {
        self.enter();
        self.inner.by_hand = by_hand.clone();
        self.inner.depths.forget_changes();
        self.inner.recompute_depths();
        self.inner.switch.by_hand.publish(by_hand);
        self.inner.publish();
    }

    /// Starts or stops recording what happens to a bridge's rules.
    pub fn watch_rules(&mut self, bridge: BridgeIdx, watch: bool) {
        let events = &mut self.inner.events;
        if watch {
            events.watched.insert(bridge);
        } else if events.watched.remove(&bridge) {
            events.waiting.list.retain(|e| e.rule.bridge != bridge);
        }
    }

    /// Takes what was recorded since the last call.
    pub fn take_rule_events(&mut self) -> RuleEvents {
        std::mem::take(&mut self.inner.events.waiting)
    }

    /// Rules that are added or modified from now on have greater serial numbers.
    pub fn last_serial(&self) -> u64 {
        self.inner.next_serial
    }

    /// Takes the removed rules that must be reported.
    pub fn take_removals(&mut self) -> Vec<Removal> {
        std::mem::take(&mut self.inner.removals)
    }

    /// Whether [`Self::take_removals`] has any.
    pub fn has_removals(&self) -> bool {
        !self.inner.removals.is_empty()
    }

    /// The flow-removed was sent: the rule's slot is no longer needed.
    pub fn removal_done(&mut self, removal: Removal) {
        self.inner.slots.retire(removal.rule.slot);
    }

    /// Takes the slots released since the last call.
    pub fn take_retired_slots(&mut self) -> RetiredSlots {
        self.inner.slots.take_retired()
    }

    /// Returns slots that no worker credits any more and whose counters are zero.
    pub fn recycle_slots(&mut self, slots: RetiredSlots) {
        self.inner.slots.recycle(slots);
    }

    /// The slots besides its own from which the owner of this one inherits its time of last use: those of
    /// rules that it has replaced, and whose counters are not final.
    pub fn predecessors(&self, slot: u32) -> impl Iterator<Item = u32> {
        self.inner.slots.predecessors(slot)
    }

    /// The slot that inherits a retired slot's time of last use.
    pub fn heir(&self, slot: u32) -> Option<u32> {
        self.inner.slots.heir(slot)
    }

    /// One more than the highest slot number allocated so far.
    pub fn slot_count(&self) -> u32 {
        self.inner.slots.high_water()
    }
}

impl Inner {
    pub fn published(&self) -> Version {
        Version(self.switch.version.load(Ordering::Relaxed))
    }

    /// The version being prepared.
    pub fn coming(&self) -> Version {
        self.staging.unwrap_or_else(|| self.published().next())
    }

    /// Makes the coming version the newest.
    pub fn publish(&mut self) {
        let version = self.coming();
        if std::mem::take(&mut self.topology_changed) {
            let snapshot = Arc::new(self.topology.clone());
            self.switch.history.update(|old| {
                let mut new = Vec::with_capacity(old.len() + 1);
                new.push((version, snapshot));
                new.extend(old.iter().cloned());
                new
            });
            self.history_len += 1;
        }
        self.has_new_table = false;
        self.depths.widen(&self.topology, &self.switch);
        // Release: a reader of the version sees everything done before it.
        self.switch.version.store(version.0, Ordering::Release);
    }

    /// Frees some of what vanished before the oldest version that a worker may still use.
    fn collect(&mut self, reader: &Reader) -> Left {
        let domain = self.switch.domain.clone();
        let mut left = Left::Nothing;
        match self.grace {
            Some((ticket, version)) if domain.passed(ticket) => {
                left = self.collect_up_to(version, reader);
                if left != Left::More {
                    self.collected = version;
                    self.grace = None;
                }
            }
            Some(_) => left = Left::Waiting,
            None => {}
        }
        if self.grace.is_none() && self.collected < self.published() {
            self.grace = Some((domain.ticket(), self.published()));
            left = left.max(Left::Waiting);
        }
        left = left.max(self.depths.unlink(self.collected, RETIRED_AT_ONCE));
        left.max(match domain.reclaim_some() {
            Reclaimed { has_more: true, .. } => Left::More,
            Reclaimed { left: 0, .. } => Left::Nothing,
            Reclaimed { .. } => Left::Waiting,
        })
    }

    fn collect_up_to(&mut self, version: Version, reader: &Reader) -> Left {
        let mut left = Left::Nothing;
        for bridge in self.bridges.iter_mut().flatten() {
            left = left.max(bridge.collect(version, RETIRED_AT_ONCE, reader));
        }
        if self.history_len > 1 {
            self.switch.history.update(|old| {
                let current = old.iter().position(|(since, _)| *since <= version).unwrap_or(old.len() - 1);
                old[..=current].to_vec()
            });
            self.history_len = self.switch.history.read(reader).len();
        }
        left
    }

    /// Determines again how deep extraction must read, if something that matters has changed.
    pub fn recompute_depths(&mut self) {
        self.depths.recompute(&self.topology, self.topology_changed, &self.by_hand);
    }

    /// Reduces the depth if the extra depth has not been needed for long.
    fn narrow(&mut self, now_ms: u64) {
        self.recompute_depths();
        self.depths.narrow(now_ms, &self.topology, &self.switch);
    }

    /// Has states that no worker sees any more freed in turns.
    pub fn discard_frozen(&mut self, of: impl IntoIterator<Item = Arc<Generation>>) {
        self.discarded.extend(of);
    }

    fn renew_frozen(&mut self, reader: &Reader) {
        if let Some(oldest) = self.discarded.front_mut().and_then(Arc::get_mut)
            && oldest.free_some()
        {
            self.discarded.pop_front();
        }
        // A bridge that fills generations faster than they are freed waits, so that memory stays flat.
        let is_behind = |bridge: &BridgeIdx| self.discarded.iter().any(|g| g.bridge == *bridge);
        let full: Vec<BridgeIdx> =
            self.switch.frozen.read(reader).nearly_full().filter(|bridge| !is_behind(bridge)).collect();
        for &bridge in &full {
            let mut generations = self.switch.frozen.read(reader).of(bridge);
            generations.pop();
            self.discard_frozen(generations);
            self.switch.frozen.update(|old| old.renewed(bridge));
            // Flows that lead to the old numbers are translated again, and get new numbers.
            let version = self.coming();
            self.log.word(word_table::ports(bridge.0), word_table::FROZEN, version);
        }
        if !full.is_empty() {
            self.publish();
        }
    }

    pub fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    pub fn bridge(&self, idx: BridgeIdx) -> Option<&BridgeControl> {
        self.bridges.get(idx.0 as usize)?.as_ref()
    }

    pub fn bridge_mut(&mut self, idx: BridgeIdx) -> Option<&mut BridgeControl> {
        self.bridges.get_mut(idx.0 as usize)?.as_mut()
    }

    pub fn port_bridge(&self, port: PortNo) -> Option<BridgeIdx> {
        Some(self.topology.port(port)?.bridge)
    }
}

/// What the control side stores for a bridge.
pub(super) struct BridgeControl {
    pub state: Arc<BridgeState>,
    /// The tables that have ever contained a rule.
    pub tables: BTreeMap<u8, RuleStore>,
    pub macs: MacControl,
    pub groups: NumberedControl<Group>,
    pub meters: NumberedControl<Meter>,
    /// Tables that know the rules of each cookie, or will once they contain one.
    pub by_cookie: BTreeSet<u8>,
}

impl BridgeControl {
    /// Unlinks what no version from `oldest` on shows, at most `max` rules per table.
    pub fn collect(&mut self, oldest: Version, max: usize, reader: &Reader) -> Left {
        let mut left = Left::Nothing;
        for (id, store) in &mut self.tables {
            if store.vanishing > 0 {
                let table = self.state.table(*id).expect("a table with a store was made");
                let retired = table.rules.retire(oldest, max, reader);
                store.vanishing = retired.left;
                left = left.max(match retired {
                    Retired { has_more: true, .. } => Left::More,
                    Retired { left: 0, .. } => Left::Nothing,
                    Retired { .. } => Left::Waiting,
                });
            }
        }
        left = left.max(self.macs.collect(&self.state.macs, oldest, max, reader));
        left = left.max(self.groups.collect(&self.state.groups, oldest, max, reader));
        left.max(self.meters.collect(&self.state.meters, oldest, max, reader))
    }
}

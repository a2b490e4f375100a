//! The writer's half of the switch: everything that changes what workers see.
//!
//! There is one [`Control`] per switch, owned by one thread. Its methods have taken effect when they return:
//! the new version is published, and every burst that a worker begins from then on sees it. A method that
//! changes several things (a flow-mod that deletes a thousand rules, a batch) publishes one version. Long
//! changes can be made in turns instead ([`Control::begin`]), and also take effect as one version.
//!
//! The owner's duties, each with its method:
//! - call [`Control::tick`] about ten times a second: it frees what no worker sees any more, narrows
//!   extraction, and begins new generations of recirculation ids;
//! - call [`Control::expire`] about ten times a second, with the counters;
//! - take [`Control::take_removals`]; when the counters of the removed rule are final (all workers have
//!   folded the flows that used it), send the flow-removed and return the rule with
//!   [`Control::removal_done`];
//! - take [`Control::take_retired_slots`]; when no worker can credit them any more, clear them and return
//!   them with [`Control::recycle_slots`];
//! - pass in the effects of translations ([`Control::apply`]).
//!
//! Files: this one has versions, garbage and the counters' slots; `ports` has bridges and ports; `batch`
//! makes changes of all kinds at once, `transaction` in many turns; `flow_mod` changes rules, `walk` finds
//! the rules that loose commands select; `groups` changes groups, `meters` meters; `validate` checks their
//! contents; `store` has the rules of a table and `eviction` limits their number; `options` has tables of
//! tunnel options; `macs` does learning, `mac_records` has its table; `learning` has rules that packets
//! create; `timers` does expiry; `depth` determines how deep extraction must read; `dump` collects
//! statistics; `events` tells flow monitors what happens to rules.

mod action_lists;
mod batch;
mod depth;
mod dump;
mod events;
mod eviction;
mod flow_mod;
mod groups;
mod learning;
mod mac_records;
mod macs;
mod meters;
mod options;
mod ports;
mod store;
mod timers;
mod transaction;
mod validate;
mod walk;

pub use crate::flow_mod::{Command, FlowMod, TABLE_ALL, TABLE_HIDDEN};
pub use batch::{AsChange, Change, Due, PacketOut};
pub use dump::{Cursor, RuleFilter, TableStats};
pub use events::{RuleEvent, RuleEventKind};
pub use eviction::TableLimits;
pub use flow_mod::FlowModError;
pub use macs::{FdbEntry, FdbStats, NoSuchPort, Replaced};
pub use meters::{BANDS_MAX, METERS_MAX};
pub use options::OptionError;
pub use ports::PortError;
pub use transaction::{Changes, Outcome, Turn};

use crate::by_hand::ByHand;
use crate::changelog::{ChangeLogWriter, word_table};
use crate::effect::Effect;
use crate::rule::Rule;
use crate::shape::Shapes;
use crate::slots::{RetiredSlots, SlotAllocator};
use crate::switch::Switch;
use crate::topology::{BridgeIdx, Topology};
use base::hash::HashKey;
use base::rcu::{Domain, Reader, Reclaimed};
use base::{PortNo, Version};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of rules unlinked and freed at once, so that a turn stays below a millisecond.
const RETIRED_AT_ONCE: usize = 1_000;

/// Why a rule was removed (OFPRR_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RemovedReason {
    /// It saw no packet for its idle timeout.
    IdleTimeout = 0,
    /// Its hard timeout has passed.
    HardTimeout = 1,
    /// A flow-mod deleted it, or its bridge was removed.
    Delete = 2,
    /// A group that it referred to was deleted.
    GroupDelete = 3,
    /// A meter that it referred to was deleted.
    MeterDelete = 4,
    /// Its table was full, and another rule needed the room.
    Eviction = 5,
}

/// A removed rule with the flag "send flow removed". Its slot keeps counting what workers have not folded
/// yet.
#[derive(Debug)]
#[must_use = "a removal is given back with `Control::removal_done`"]
pub struct Removal {
    /// The rule.
    pub rule: Arc<Rule>,
    /// Why.
    pub reason: RemovedReason,
    /// The first version without it.
    pub version: Version,
    /// When it was removed.
    pub now_ms: u64,
}

/// What is left to free.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Only what workers may still see.
    Waiting,
    /// Something that can be freed right away: call [`Control::collect`] again.
    More,
}

/// Unlinks at most `max` of those that ended in a version that nothing from `oldest` on shows.
fn unlink_ended<T>(
    ended: &mut VecDeque<(Version, T)>,
    oldest: Version,
    max: usize,
    mut unlink: impl FnMut(T),
) -> Left {
    for _ in 0..max {
        match ended.pop_front_if(|(version, _)| *version <= oldest) {
            Some((_, gone)) => unlink(gone),
            None => return Left::Nothing,
        }
    }
    Left::More
}

/// See the module documentation.
pub struct Control {
    reader: Reader,
    inner: Inner,
    underway: Option<transaction::Underway>,
    /// Number of transactions begun.
    transactions: u64,
}

/// Everything except the reader, so that borrows through the reader can coexist with changes of the rest.
pub(crate) struct Inner {
    switch: Arc<Switch>,
    log: ChangeLogWriter,
    slots: SlotAllocator,
    shapes: Shapes,
    actions: flow_mod::ActionLists,
    bridges: Vec<Option<ports::BridgeControl>>,
    topology: Topology,
    /// Whether to publish `topology` with the next version.
    topology_changed: bool,
    timers: timers::Timers,
    removals: Vec<Removal>,
    /// A table has been created since the last version.
    has_new_table: bool,
    events: events::Events,
    learning: learning::Learning,
    depths: depth::Depths,
    /// Addresses that are to be forgotten, the next ones first.
    doomed: VecDeque<macs::Doomed>,
    by_hand: ByHand,
    /// Ticket and version of a grace period in progress.
    grace: Option<(u64, Version)>,
    /// What vanished up to this version has been freed.
    collected: Version,
    history_len: usize,
    next_serial: u64,
    meter_numbers: meters::MeterNumbers,
    /// The version being prepared, if it is not the next one.
    staging: Option<Version>,
    /// What packets want to learn once the current transaction is done.
    deferred: VecDeque<Effect>,
    /// Whether actions for tests are accepted.
    debugs: bool,
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
            debugs: false,
        };
        (switch, Control { reader: domain.register(), inner, underway: None, transactions: 0 })
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
    fn published(&self) -> Version {
        Version(self.switch.version.load(Ordering::Relaxed))
    }

    /// The version being prepared.
    fn coming(&self) -> Version {
        self.staging.unwrap_or_else(|| self.published().next())
    }

    /// Makes the coming version the newest.
    fn publish(&mut self) {
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
        self.widen();
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
        left = left.max(self.depths.unlinked(self.collected, RETIRED_AT_ONCE));
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

    fn renew_frozen(&mut self, reader: &Reader) {
        let full: Vec<BridgeIdx> = self.switch.frozen.read(reader).nearly_full().collect();
        for &bridge in &full {
            self.switch.frozen.update(|old| old.renewed(bridge));
            // Flows that lead to the old numbers are translated again, and get new numbers.
            let version = self.coming();
            self.log.word(word_table::ports(bridge.0), word_table::FROZEN, version);
        }
        if !full.is_empty() {
            self.publish();
        }
    }

    fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    fn bridge(&mut self, idx: BridgeIdx) -> Option<&mut ports::BridgeControl> {
        self.bridges.get_mut(idx.0 as usize)?.as_mut()
    }

    fn port_bridge(&self, port: PortNo) -> Option<BridgeIdx> {
        Some(self.topology.port(port)?.bridge)
    }
}

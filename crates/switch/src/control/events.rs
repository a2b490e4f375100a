//! What happens to the rules of a bridge, for those who watch them (flow monitors).
//!
//! Nothing is recorded for bridges that are not watched. Records wait until they are taken, so the owner
//! takes them after each piece of work.

use crate::rule::{Actions, Rule};
use crate::topology::BridgeIdx;
use base::Version;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

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

/// What happened to a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleEventKind {
    /// It was added, possibly replacing another rule.
    Added,
    /// Its actions or cookie were modified.
    Modified,
    /// It was removed.
    Removed(RemovedReason),
}

/// An event about a rule.
#[derive(Clone, Debug)]
pub struct RuleEvent {
    /// What happened.
    pub kind: RuleEventKind,
    /// The rule as it is now, or as it was at the end.
    pub rule: Arc<Rule>,
    /// Its previous actions, if they were different.
    pub old_actions: Option<Arc<Actions>>,
}

/// Events, and what would take long to find out by looking at a million.
#[derive(Default, Debug)]
pub struct RuleEvents {
    /// In order of occurrence.
    pub list: Vec<RuleEvent>,
    /// The bridges of their rules.
    pub bridges: BTreeSet<BridgeIdx>,
    /// The serial number of the first rule among them that was added or modified. Later ones have greater
    /// numbers.
    pub first_added: Option<u64>,
}

impl RuleEvents {
    pub(super) fn push(&mut self, event: RuleEvent) {
        self.bridges.insert(event.rule.bridge);
        if !matches!(event.kind, RuleEventKind::Removed(_)) {
            self.first_added.get_or_insert(event.rule.serial());
        }
        self.list.push(event);
    }

    fn append(&mut self, mut later: RuleEvents) {
        if self.list.is_empty() {
            *self = later;
            return;
        }
        self.bridges.append(&mut later.bridges);
        self.first_added = self.first_added.or(later.first_added);
        self.list.append(&mut later.list);
    }
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Events {
    pub watched: HashSet<BridgeIdx>,
    pub waiting: RuleEvents,
}

impl Events {
    pub fn is_watched(&self, bridge: BridgeIdx) -> bool {
        !self.watched.is_empty() && self.watched.contains(&bridge)
    }

    pub fn append(&mut self, events: RuleEvents) {
        self.waiting.append(events);
    }
}

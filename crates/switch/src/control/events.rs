//! What happens to the rules of a bridge, for those who watch them (flow monitors).
//!
//! Nothing is recorded for bridges that are not watched. Records wait until they are taken, so the owner
//! takes them after each piece of work.

use super::{Control, RemovedReason};
use crate::rule::{Actions, Rule};
use crate::topology::BridgeIdx;
use std::collections::HashSet;
use std::sync::Arc;

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
    /// The serial number of the rule that it replaced.
    pub old_serial: Option<u64>,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Events {
    watched: HashSet<BridgeIdx>,
    /// In order of occurrence.
    waiting: Vec<RuleEvent>,
}

impl Events {
    pub fn is_watched(&self, bridge: BridgeIdx) -> bool {
        !self.watched.is_empty() && self.watched.contains(&bridge)
    }

    pub fn append(&mut self, events: Vec<RuleEvent>) {
        if self.waiting.is_empty() {
            self.waiting = events;
        } else {
            self.waiting.extend(events);
        }
    }
}

impl Control {
    /// Starts or stops recording what happens to a bridge's rules.
    pub fn watch_rules(&mut self, bridge: BridgeIdx, watch: bool) {
        let events = &mut self.inner.events;
        if watch {
            events.watched.insert(bridge);
        } else if events.watched.remove(&bridge) {
            events.waiting.retain(|e| e.rule.bridge != bridge);
        }
    }

    /// Takes what was recorded since the last call.
    pub fn take_rule_events(&mut self) -> Vec<RuleEvent> {
        std::mem::take(&mut self.inner.events.waiting)
    }

    /// Rules that are added or modified from now on have greater serial numbers.
    pub fn last_serial(&self) -> u64 {
        self.inner.next_serial
    }
}

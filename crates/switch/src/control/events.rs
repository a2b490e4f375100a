//! What becomes of the rules of a bridge, for who watches them (flow monitors).
//!
//! Nothing is noted of bridges that nobody watches. What is noted waits until it is taken, so the owner takes
//! it after each piece of work.

use super::{Control, RemovedReason};
use crate::rule::{Actions, Rule};
use crate::topology::BridgeIdx;
use std::collections::HashSet;
use std::sync::Arc;

/// What became of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleEventKind {
    /// An addition, also one that replaced a rule.
    Added,
    /// A modification of actions or cookie.
    Modified,
    /// It is gone.
    Removed(RemovedReason),
}

/// Something became of a rule.
#[derive(Clone, Debug)]
pub struct RuleEvent {
    /// What.
    pub kind: RuleEventKind,
    /// The rule as it is now, or was last.
    pub rule: Arc<Rule>,
    /// The actions that it had before, where they were others.
    pub old_actions: Option<Arc<Actions>>,
    /// The serial number of the rule in whose place it came.
    pub old_serial: Option<u64>,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Events {
    watched: HashSet<BridgeIdx>,
    /// In the order in which they happened.
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
    /// From now on what becomes of a bridge's rules is noted, or not any more.
    pub fn watch_rules(&mut self, bridge: BridgeIdx, watch: bool) {
        let events = &mut self.inner.events;
        if watch {
            events.watched.insert(bridge);
        } else if events.watched.remove(&bridge) {
            events.waiting.retain(|e| e.rule.bridge != bridge);
        }
    }

    /// Takes what was noted since the last call.
    pub fn take_rule_events(&mut self) -> Vec<RuleEvent> {
        std::mem::take(&mut self.inner.events.waiting)
    }

    /// Rules that are added or modified from now on have greater serial numbers.
    pub fn last_serial(&self) -> u64 {
        self.inner.next_serial
    }
}

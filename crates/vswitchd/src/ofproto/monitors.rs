//! Flow monitors of a connection: which flows they watch, which events they want, and which they have not
//! received yet.

use base::OfPort;
use openflow::message::{FlowMonitorFlags, TABLE_ALL};
use std::collections::{BTreeMap, HashSet};
use switch::control::{RuleEvent, RuleEventKind};
use switch::shape::MiniMatch;
use switch::{BridgeIdx, Rule};

#[derive(Clone)]
pub(crate) struct Monitor {
    pub flags: FlowMonitorFlags,
    pub out_port: Option<OfPort>,
    pub out_group: Option<u32>,
    pub table_id: u8,
    pub within: MiniMatch,
}

/// The monitors of one connection.
#[derive(Default)]
pub(crate) struct Monitors {
    pub by_id: BTreeMap<u32, Monitor>,
    /// While they are paused: the serial number of the last rule before.
    pub paused: Option<u64>,
    /// Since then: the serial numbers of rules that were added and that they have not heard of. At most as
    /// many as tables have rules.
    pub unheard: HashSet<u64>,
    /// They are about to get what they missed, and then the notice that they continue.
    pub resumes: bool,
}

/// Changes of rules being reported to watchers: a few changes to everybody, then the next ones.
pub(crate) struct Report {
    /// The changes being reported.
    pub now: Vec<RuleEvent>,
    /// The changes after those.
    later: std::vec::IntoIter<RuleEvent>,
    watchers: Vec<(BridgeIdx, u64)>,
    /// The next of them.
    next: usize,
    pub own: Option<Own>,
}

/// The connection that made changes; it gets an abbreviated event unless it asks for more.
pub(crate) struct Own {
    pub conn: u64,
    pub xid: u32,
    /// It has got the abbreviated event.
    pub is_told: bool,
}

/// Changes reported to one connection at once.
const EVENTS_AT_ONCE: usize = 64;

impl Report {
    /// `watchers`: the connections that watch rules, with their bridges.
    pub fn new(events: Vec<RuleEvent>, watchers: Vec<(BridgeIdx, u64)>, own: Option<Own>) -> Report {
        let next = watchers.len();
        Report { now: Vec::new(), later: events.into_iter(), watchers, next, own }
    }

    /// The next connection to notify of the changes in `now`; `None` when everything is reported.
    pub fn next_watcher(&mut self) -> Option<(BridgeIdx, u64)> {
        if self.next == self.watchers.len() {
            self.now = self.later.by_ref().take(EVENTS_AT_ONCE).collect();
            self.next = 0;
            if self.now.is_empty() {
                return None;
            }
        }
        let watcher = self.watchers.get(self.next).copied();
        self.next += 1;
        watcher
    }

    /// The serial number of the first rule behind the changes `now` that was added or modified.
    pub fn first_later(&self) -> Option<u64> {
        let is_there = |event: &&RuleEvent| !matches!(event.kind, RuleEventKind::Removed(_));
        self.later.as_slice().iter().find(is_there).map(|event| event.rule.serial())
    }
}

impl Monitor {
    pub fn watches(&self, rule: &Rule) -> bool {
        (self.table_id == TABLE_ALL || self.table_id == rule.table_id)
            && rule.matching.is_within(&self.within)
    }

    /// Whether it wants an existing rule.
    pub fn finds(&self, rule: &Rule) -> bool {
        self.watches(rule)
            && self.out_port.is_none_or(|port| rule.actions.outputs_to(port))
            && self.out_group.is_none_or(|group| rule.actions.uses_group(group))
    }

    /// Whether it wants an event.
    pub fn wants(&self, event: &RuleEvent) -> bool {
        let flag = match event.kind {
            RuleEventKind::Added => FlowMonitorFlags::ADD,
            RuleEventKind::Modified => FlowMonitorFlags::MODIFY,
            RuleEventKind::Removed(_) => FlowMonitorFlags::DELETE,
        };
        let outputs = |port| {
            let before = event.old_actions.as_ref();
            event.rule.actions.outputs_to(port) || before.is_some_and(|actions| actions.outputs_to(port))
        };
        // Other than for a port, Open vSwitch does not tell that a rule has ceased to use a group.
        let uses = |group| event.rule.actions.uses_group(group);
        self.flags.contains(flag)
            && self.watches(&event.rule)
            && self.out_port.is_none_or(outputs)
            && self.out_group.is_none_or(uses)
    }
}

/// The flags of those monitors that want an existing rule.
pub(crate) fn flags_of<'m>(monitors: impl IntoIterator<Item = &'m Monitor>, rule: &Rule) -> FlowMonitorFlags {
    let finding = monitors.into_iter().filter(|m| m.finds(rule));
    finding.fold(FlowMonitorFlags::empty(), |flags, m| flags | m.flags)
}

impl Monitors {
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Whether to report an event at once although they are paused: the deletion of a rule that they know
    /// about.
    fn is_due(&mut self, event: &RuleEvent) -> bool {
        let serial = event.rule.serial();
        match (event.kind, event.old_serial) {
            (RuleEventKind::Removed(_), _) => return !self.unheard.remove(&serial),
            (_, Some(old)) if !self.unheard.remove(&old) => {}
            _ => {
                self.unheard.insert(serial);
            }
        }
        false
    }

    /// The flags of all monitors that want an event; empty if none does.
    pub fn flags_for(&mut self, event: &RuleEvent) -> FlowMonitorFlags {
        if self.paused.is_some() && !self.is_due(event) {
            return FlowMonitorFlags::empty();
        }
        let wanting = self.by_id.values().filter(|m| m.wants(event));
        wanting.fold(FlowMonitorFlags::empty(), |flags, m| flags | m.flags)
    }
}

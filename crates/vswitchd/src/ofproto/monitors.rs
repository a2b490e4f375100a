//! Flow monitors of a connection: which flows they watch, which events they want, and which they have not
//! received yet.

use base::OfPort;
use openflow::message::{FlowMonitorFlags, TABLE_ALL};
use std::collections::BTreeMap;
use switch::control::{RuleEvent, RuleEventKind, RuleEvents};
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
    /// Who has been told of the changes up to `now` knows all rules up to this serial number. `None`: none of
    /// the changes adds or modifies a rule.
    pub known: Option<u64>,
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
    pub fn new(events: RuleEvents, watchers: Vec<(BridgeIdx, u64)>, own: Option<Own>) -> Report {
        let (next, known) = (watchers.len(), events.first_added.map(|serial| serial - 1));
        Report { now: Vec::new(), later: events.list.into_iter(), watchers, next, known, own }
    }

    /// The next connection to notify of the changes in `now`; `None` when everything is reported.
    pub fn next_watcher(&mut self) -> Option<(BridgeIdx, u64)> {
        if self.next == self.watchers.len() {
            self.now = self.later.by_ref().take(EVENTS_AT_ONCE).collect();
            self.next = 0;
            let added = self.now.iter().rfind(|event| !matches!(event.kind, RuleEventKind::Removed(_)));
            self.known = added.map(|event| event.rule.serial()).or(self.known);
            if self.now.is_empty() {
                return None;
            }
        }
        let watcher = self.watchers.get(self.next).copied();
        self.next += 1;
        watcher
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
    fn is_due(&self, event: &RuleEvent) -> bool {
        let is_known = |since| event.rule.first_serial() <= since;
        matches!(event.kind, RuleEventKind::Removed(_)) && self.paused.is_none_or(is_known)
    }

    /// The flags of all monitors that want an event; empty if none does.
    pub fn flags_for(&self, event: &RuleEvent) -> FlowMonitorFlags {
        if self.paused.is_some() && !self.is_due(event) {
            return FlowMonitorFlags::empty();
        }
        let wanting = self.by_id.values().filter(|m| m.wants(event));
        wanting.fold(FlowMonitorFlags::empty(), |flags, m| flags | m.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::hash::HashKey;
    use base::rcu::Domain;
    use flow::{Action, FieldId, Match};
    use switch::control::{Command, Control, FlowMod};
    use switch::{BridgeConfig, BridgeIdx};

    fn control() -> (Control, BridgeIdx) {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        control.watch_rules(bridge, true);
        (control, bridge)
    }

    fn add(n: u64) -> FlowMod {
        FlowMod::add(Match::any().with(FieldId::EthDst, n.into()), Vec::new())
    }

    #[test]
    fn paused_monitors_hear_of_the_end_of_rules_that_they_know_and_of_nothing_else() {
        let (mut control, bridge) = control();
        control.flow_mod(bridge, &add(1), 0).unwrap();
        let within = MiniMatch::of(&Match::any());
        let flags = FlowMonitorFlags::ADD | FlowMonitorFlags::MODIFY | FlowMonitorFlags::DELETE;
        let all = Monitor { flags, out_port: None, out_group: None, table_id: TABLE_ALL, within };
        let monitors = Monitors { paused: Some(control.last_serial()), ..Monitors::default() };
        let monitors = Monitors { by_id: [(1, all)].into(), ..monitors };
        control.take_rule_events();
        let drops = vec![Action::Output { port: OfPort(1), max_len: 0 }];
        let known = [FlowMod { actions: drops, command: Command::Modify, ..add(1) }, add(1)];
        // Nothing is recorded of a change that leaves a rule as it was, and yet it makes a new one.
        let unknown = [add(2), FlowMod { command: Command::Modify, ..add(2) }];
        let end = |n| FlowMod { command: Command::DeleteStrict, ..add(n) };
        for change in known.into_iter().chain(unknown).chain([end(1), end(2), add(1), end(1)]) {
            control.flow_mod(bridge, &change, 0).unwrap();
        }
        let events = control.take_rule_events().list;
        let told = events.iter().map(|event| !monitors.flags_for(event).is_empty());
        let expected = [false, false, false, true, false, false, false];
        assert_eq!(told.collect::<Vec<_>>(), expected, "the end of rule 1, which they knew");
    }

    #[test]
    fn how_far_watchers_have_been_told_is_known_without_a_look_at_what_comes_later() {
        let (mut control, bridge) = control();
        (1..=100).for_each(|n| control.flow_mod(bridge, &add(n), 0).map(drop).unwrap());
        let (before, first) = (control.last_serial(), control.take_rule_events());
        assert_eq!((first.bridges.len(), first.first_added), (1, Some(before - 99)));
        control.flow_mod(bridge, &FlowMod::delete(Match::any()), 0).unwrap();
        (1..=100).for_each(|n| control.flow_mod(bridge, &add(n), 0).map(drop).unwrap());
        let mut report = Report::new(control.take_rule_events(), vec![(bridge, 1)], None);
        let mut known = Vec::new();
        while report.next_watcher().is_some() {
            known.push(report.known.unwrap() - before);
        }
        // 64 changes at once: the first 100 are ends.
        assert_eq!(known, [0, 28, 92, 100]);
    }
}

//! Changes of tables that the switch makes by itself: one after the other, and after those that others are
//! making. Large ones are made in turns, like the changes of connections; requests that change or show tables
//! wait meanwhile.

use crate::plane::{ForwardingPlane, SHORT_STEPS_MAX};
use flow::Match;
use openflow::message::{
    BUCKET_ALL, GROUP_ALL, GroupCommand, GroupDesc, GroupMod, METER_ALL, MeterCommand, MeterConfig, MeterMod,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::BridgeIdx;
use switch::control::{Change, Changes, Due, FlowMod, TableLimits};

/// How long the removal of a bridge waits until workers no longer use its rules.
const DRAINING_MAX: Duration = Duration::from_secs(3);

/// A change to a bridge's tables.
pub(crate) enum OwnChange {
    /// Remove all rules, groups and meters except the switch's own rules; then add this rule.
    Flush(Option<FlowMod>),
    Rule(FlowMod),
    /// Limit the number of rules in a table.
    Limit(u8, TableLimits),
    /// The bridge goes, which has neither ports nor connections any more.
    Remove,
}

/// Changes that are still to be made, in order.
#[derive(Default)]
pub(crate) struct OwnChanges {
    queue: VecDeque<(BridgeIdx, OwnChange)>,
    /// How far the first is.
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Waiting,
    /// Setting a table's limit: some of the surplus rules may already be gone, in versions of their own.
    Limiting,
    Emptying,
    /// Until this time at most, workers may still see the removed rules and addresses.
    Draining(Instant),
}

impl Phase {
    fn draining() -> Phase {
        Phase::Draining(Instant::now() + DRAINING_MAX)
    }
}

impl OwnChanges {
    pub fn push(&mut self, bridge: BridgeIdx, change: OwnChange) {
        self.queue.push_back((bridge, change));
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a table's limit is being set: a reader would see some of the surplus rules, and not others.
    pub fn is_limiting(&self) -> bool {
        self.phase == Phase::Limiting
    }

    /// Whether the current transaction is one of these.
    pub fn is_emptying(&self) -> bool {
        self.phase == Phase::Emptying
    }

    /// Whether the first of these can only wait: for workers, or for the changes of others.
    pub fn must_wait(&self, plane: &ForwardingPlane) -> bool {
        let forgets = |(bridge, _): &(BridgeIdx, OwnChange)| plane.control.is_forgetting(*bridge);
        match self.phase {
            Phase::Waiting | Phase::Limiting => plane.control.is_changing(),
            Phase::Emptying => false,
            Phase::Draining(_) => !self.queue.front().is_some_and(forgets),
        }
    }

    /// Does a turn, which ends soon after `until`. `may_begin`: watchers of rules have been told about all
    /// earlier changes. Returns whether there is more to do.
    pub fn go_on(&mut self, plane: &mut ForwardingPlane, may_begin: bool, until: Instant) -> bool {
        while let Some((bridge, change)) = self.queue.front() {
            // Evictions in one turn of a limit are reported before the next turn.
            let is_begun = !matches!(self.phase, Phase::Waiting | Phase::Limiting);
            if !is_begun && (plane.control.is_changing() || !may_begin) {
                return true;
            }
            let is_there = plane.control.topology().bridge(*bridge).is_some();
            if is_there && !turn(&mut self.phase, *bridge, change, plane, until) {
                return true;
            }
            self.phase = Phase::Waiting;
            self.queue.pop_front();
            if Instant::now() >= until {
                break;
            }
        }
        !self.queue.is_empty()
    }
}

/// Returns whether the change is complete.
fn turn(
    phase: &mut Phase,
    bridge: BridgeIdx,
    change: &OwnChange,
    plane: &mut ForwardingPlane,
    until: Instant,
) -> bool {
    let is_flush = match change {
        OwnChange::Rule(rule) => {
            plane.set_own_rule(bridge, rule);
            return true;
        }
        OwnChange::Limit(table_id, limits) => {
            *phase = Phase::Limiting;
            return plane.limit_table(bridge, *table_id, limits, until);
        }
        OwnChange::Flush(_) => true,
        OwnChange::Remove => false,
    };
    if *phase == Phase::Waiting {
        let all = Everything::of(bridge);
        let steps = (0..).map_while(|at| all.get(at)).map(|one| plane.control.steps_of(bridge, one)).sum();
        let now_ms = plane.now_ms();
        if steps > SHORT_STEPS_MAX {
            plane.control.begin(Arc::new(all), steps, now_ms);
            *phase = Phase::Emptying;
        } else if is_flush {
            let made = plane.control.change_at_once(&all, now_ms);
            made.expect("to delete everything is always valid");
        }
        if !is_flush {
            plane.control.fdb_flush(bridge);
            if *phase == Phase::Waiting && plane.control.is_forgetting(bridge) {
                *phase = Phase::draining();
            }
        }
    }
    if *phase == Phase::Emptying {
        let Some(outcome) = plane.go_on_changing(until) else { return false };
        outcome.expect("to delete everything is always valid");
        *phase = Phase::draining();
    }
    match (change, *phase) {
        (OwnChange::Flush(rule), _) => rule.iter().for_each(|rule| plane.set_own_rule(bridge, rule)),
        (_, Phase::Draining(_)) if plane.control.is_forgetting(bridge) => {
            plane.control.collect();
            *phase = Phase::draining();
            return false;
        }
        (_, Phase::Draining(end)) if !plane.control.is_drained(bridge) && Instant::now() < end => {
            plane.control.collect();
            return false;
        }
        _ => {
            let now_ms = plane.now_ms();
            plane.control.remove_bridge(bridge, now_ms).expect("it is there, looked up by the caller");
        }
    }
    true
}

impl ForwardingPlane {
    fn set_own_rule(&mut self, bridge: BridgeIdx, rule: &FlowMod) {
        let now_ms = self.now_ms();
        if let Err(error) = self.control.flow_mod(bridge, rule, now_ms) {
            tracing::warn!(target: "connmgr", "a rule of the switch's own could not be set: {error}");
        }
        self.dp.reserve_slots(self.control.slot_count());
    }
}

/// Everything in a bridge's tables except the switch's own rules.
struct Everything {
    bridge: BridgeIdx,
    flows: FlowMod,
    groups: GroupMod,
    meters: MeterMod,
}

impl Everything {
    fn of(bridge: BridgeIdx) -> Everything {
        let group = GroupDesc { group_id: GROUP_ALL, ..GroupDesc::default() };
        let meter = MeterConfig { meter_id: METER_ALL, ..MeterConfig::default() };
        Everything {
            bridge,
            flows: FlowMod::delete(Match::any()),
            groups: GroupMod { command: GroupCommand::Delete, command_bucket_id: BUCKET_ALL, group },
            meters: MeterMod { command: MeterCommand::Delete, meter },
        }
    }

    fn get(&self, at: usize) -> Option<Change<'_>> {
        match at {
            0 => Some(Change::Flow(&self.flows)),
            1 => Some(Change::Group(&self.groups)),
            // It cannot be undone, but none of these changes fails.
            2 => Some(Change::MeterDelete(&self.meters)),
            _ => None,
        }
    }
}

impl Changes for Everything {
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)> {
        self.get(at).map(|change| (self.bridge, Due::Kept(change)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DatapathFlags;
    use base::{OfPort, PortNo};
    use datapath::{CacheConfig, Pipeline};
    use flow::FieldId;
    use std::collections::BTreeSet;
    use switch::control::RuleFilter;
    use switch::{BridgeConfig, Effect, PortSpec, RuleFlags};

    const RULES: u64 = 5_000;

    /// A plane without workers, with a bridge of so many rules and one of the switch's own.
    fn plane() -> (ForwardingPlane, BridgeIdx) {
        let flags = DatapathFlags { pool_packets: 64, ..DatapathFlags::default() };
        let mut plane = ForwardingPlane::new(&flags, CacheConfig::default()).unwrap();
        let bridge = plane.control.add_bridge(BridgeConfig::new("br0"));
        for address in 1..=RULES {
            let matching = Match::any().with(FieldId::EthDst, address.into());
            plane.control.flow_mod(bridge, &FlowMod::add(matching, Vec::new()), 0).unwrap();
        }
        let flags = RuleFlags { hidden: true, ..RuleFlags::default() };
        let hidden = FlowMod { flags, priority: 70_000, ..FlowMod::add(Match::any(), Vec::new()) };
        plane.control.flow_mod(bridge, &hidden, 0).unwrap();
        (plane, bridge)
    }

    fn count(plane: &ForwardingPlane, bridge: BridgeIdx) -> u64 {
        let all = RuleFilter { hidden: true, ..RuleFilter::default() };
        plane.control.rules(bridge, &all).len() as u64
    }

    /// A turn that is over at once.
    fn turn(changes: &mut OwnChanges, plane: &mut ForwardingPlane) -> bool {
        changes.go_on(plane, true, Instant::now())
    }

    #[test]
    fn tables_are_flushed_in_turns_and_packets_see_none_of_it_before_all_is_done() {
        let (mut plane, bridge) = plane();
        let mut changes = OwnChanges::default();
        let standalone = FlowMod { priority: 0, ..FlowMod::add(Match::any(), Vec::new()) };
        changes.push(bridge, OwnChange::Flush(None));
        changes.push(bridge, OwnChange::Rule(standalone));
        assert!(changes.go_on(&mut plane, false, Instant::now()), "who watches rules is told first");
        assert!(!plane.control.is_changing());
        let (mut turns, mut versions) = (0, BTreeSet::from([plane.switch.version()]));
        while turn(&mut changes, &mut plane) && changes.is_emptying() {
            turns += 1;
            versions.insert(plane.switch.version());
        }
        assert!(turns > 10 && versions.len() == 2, "{turns} turns, {versions:?}");
        while turn(&mut changes, &mut plane) {}
        assert_eq!(count(&plane, bridge), 2, "the switch's own rule and the new one");
    }

    #[test]
    fn a_table_is_limited_in_turns_and_before_what_comes_after() {
        let (mut plane, bridge) = plane();
        let ending = |n: u64| FlowMod {
            hard_timeout_s: n as u16,
            ..FlowMod::add(Match::any().with(FieldId::EthDst, n.into()), Vec::new())
        };
        (1..=RULES).for_each(|n| plane.set_own_rule(bridge, &ending(n)));
        let mut changes = OwnChanges::default();
        let limits = TableLimits { rules_max: Some(3), evicts: true, ..TableLimits::default() };
        changes.push(bridge, OwnChange::Limit(0, limits));
        changes.push(bridge, OwnChange::Rule(FlowMod { importance: 1, ..ending(1) }));
        let mut counts = BTreeSet::from([count(&plane, bridge)]);
        assert!(!changes.is_limiting());
        while turn(&mut changes, &mut plane) {
            counts.insert(count(&plane, bridge));
            let is_part = count(&plane, bridge) > 3 + 1;
            assert!(changes.is_limiting() || !is_part, "whoever looks waits");
        }
        assert!(counts.len() > 10 && !changes.is_limiting(), "{counts:?}");
        assert_eq!(count(&plane, bridge), 3 + 1, "those of the limit, and the switch's own rule");
    }

    #[test]
    fn a_bridge_goes_after_what_others_change_and_when_workers_have_left_its_rules() {
        let (mut plane, bridge) = plane();
        let mut changes = OwnChanges::default();
        plane.control.begin(Arc::new(Everything::of(bridge)), RULES as usize, 0);
        changes.push(bridge, OwnChange::Remove);
        assert!(turn(&mut changes, &mut plane) && !changes.is_emptying());
        while plane.go_on_changing(Instant::now()).is_none() {
            assert!(turn(&mut changes, &mut plane) && !changes.is_emptying());
        }
        while turn(&mut changes, &mut plane) {}
        assert!(plane.control.topology().bridge(bridge).is_none());

        let (mut plane, bridge) = self::plane();
        let worker = plane.domain.register();
        changes.push(bridge, OwnChange::Remove);
        changes.push(bridge, OwnChange::Flush(None));
        while turn(&mut changes, &mut plane) && changes.is_emptying() {}
        for _ in 0..100 {
            assert!(turn(&mut changes, &mut plane), "a worker may see its rules");
        }
        assert!(plane.control.topology().bridge(bridge).is_some());
        drop(worker);
        while turn(&mut changes, &mut plane) {}
        assert!(plane.control.topology().bridge(bridge).is_none());

        let bridge = plane.control.add_bridge(BridgeConfig::new("br1"));
        plane.control.add_port(bridge, PortSpec::new(PortNo(1), OfPort(1), "p1")).unwrap();
        let learn = |mac| Effect::Learn { bridge, vlan: 0, mac, port: PortNo(1) };
        plane.control.apply(&(0..5_000).map(learn).collect::<Vec<_>>(), 0);
        changes.push(bridge, OwnChange::Remove);
        let mut counts = BTreeSet::new();
        while turn(&mut changes, &mut plane) {
            counts.insert(plane.control.fdb_stats(bridge).current);
        }
        assert!(counts.len() > 3, "addresses are forgotten in turns: {counts:?}");
        assert!(plane.control.topology().bridge(bridge).is_none());
    }
}

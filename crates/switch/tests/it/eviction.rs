//! Tables that may hold only so many rules.

use base::hash::HashKey;
use base::rcu::Domain;
use flow::action::SubField;
use flow::{Action, FieldId, Match, Mf};
use switch::control::{FlowMod, FlowModError, RuleFilter, TableLimits};
use switch::{BridgeConfig, BridgeIdx, Control, SlotReader, SlotStats};

struct Rig {
    control: Control,
    br: BridgeIdx,
}

fn rig(limits: TableLimits) -> Rig {
    let (_, mut control) = Control::new(Domain::new(), HashKey::from_seed(5));
    let br = control.add_bridge(BridgeConfig::new("br0"));
    let mut rig = Rig { control, br };
    rig.limit(&limits, 0, &unused);
    rig
}

fn evicting(rules_max: u32) -> TableLimits {
    TableLimits { rules_max: Some(rules_max), evicts: true, groups: Vec::new() }
}

/// Matches an input port and a source address; ends after so many seconds.
fn flow(port: u16, source: u128, idle_s: u16, hard_s: u16) -> FlowMod {
    let mut matching = Match::any();
    matching.set_masked(FieldId::InPort, port.into(), 0xffff);
    matching.set_masked(FieldId::EthSrc, source, (1 << 48) - 1);
    let add = FlowMod::add(matching, Vec::<Action>::new());
    FlowMod { idle_timeout_s: idle_s, hard_timeout_s: hard_s, ..add }
}

/// What no packet has used.
fn unused(_: u32) -> SlotStats {
    SlotStats::default()
}

impl Rig {
    /// Limits the table, in turns that are over at once: how many there were.
    fn limit(&mut self, limits: &TableLimits, now_ms: u64, slots: &dyn SlotReader) -> usize {
        let mut turn = || !self.control.set_table_limits(self.br, 0, limits, now_ms, slots, &mut || true);
        1 + std::iter::repeat_with(&mut turn).take_while(|has_more| *has_more).count()
    }

    fn add(&mut self, flow: &FlowMod, now_ms: u64) -> Result<(), FlowModError> {
        self.control.flow_mod(self.br, flow, now_ms)
    }

    /// Counters that say of the rule of a source address when it was last used.
    fn used(&self, source: u128, last_used_ms: u64) -> impl Fn(u32) -> SlotStats + use<> {
        let rules = self.control.rules(self.br, &RuleFilter::default());
        let is_it =
            |rule: &&std::sync::Arc<switch::Rule>| rule.matching.to_match().get_mf(Mf::EthSrc).0 == source;
        let slot = rules.iter().find(is_it).expect("it was added").slot;
        move |of| SlotStats {
            last_used_ms: if of == slot { last_used_ms } else { 0 },
            ..SlotStats::default()
        }
    }

    /// The source addresses of the rules that are there.
    fn sources(&self) -> Vec<u128> {
        let rules = self.control.rules(self.br, &RuleFilter::default());
        let mut all: Vec<u128> =
            rules.iter().map(|rule| rule.matching.to_match().get_mf(Mf::EthSrc).0).collect();
        all.sort_unstable();
        all
    }
}

#[test]
fn a_full_table_refuses_rules_but_not_changes_of_those_it_has() {
    let mut rig = rig(TableLimits { rules_max: Some(2), ..TableLimits::default() });
    rig.add(&flow(1, 1, 0, 0), 0).unwrap();
    rig.add(&flow(1, 2, 5, 0), 0).unwrap();
    assert!(matches!(rig.add(&flow(1, 3, 0, 0), 0), Err(FlowModError::TableFull)));
    rig.add(&flow(1, 2, 9, 0), 0).unwrap();
    assert_eq!(rig.sources(), [1, 2]);
}

#[test]
fn the_least_important_rule_goes_first_and_then_the_one_that_ends_soonest() {
    let mut rig = rig(evicting(3));
    rig.add(&FlowMod { importance: 7, ..flow(1, 1, 0, 1) }, 0).unwrap();
    rig.add(&flow(1, 2, 0, 90), 0).unwrap();
    rig.add(&flow(1, 3, 60, 0), 0).unwrap();
    rig.add(&flow(1, 4, 0, 0), 0).unwrap();
    assert_eq!(rig.sources(), [1, 2, 4], "of those without importance the third ends first");
    rig.add(&flow(1, 5, 0, 0), 0).unwrap();
    rig.add(&flow(1, 6, 0, 0), 0).unwrap();
    assert_eq!(rig.sources(), [4, 5, 6]);
    let refused = rig.add(&flow(1, 7, 1, 1), 0);
    assert!(matches!(refused, Err(FlowModError::TableFull)), "rules that never end stay: {refused:?}");
}

#[test]
fn the_largest_group_loses_a_rule() {
    let by_port = SubField { field: Mf::InPort, offset: 0, count: 16 };
    let mut rig = rig(TableLimits { groups: vec![by_port], ..evicting(4) });
    rig.add(&flow(2, 1, 10, 0), 0).unwrap();
    for source in 2..=4 {
        rig.add(&flow(1, source, 10 * source as u16, 0), 0).unwrap();
    }
    rig.add(&flow(2, 5, 5, 0), 0).unwrap();
    assert_eq!(rig.sources(), [1, 3, 4, 5], "port 1 had three rules");
}

#[test]
fn a_rule_that_was_used_ends_later() {
    let mut rig = rig(evicting(2));
    rig.add(&flow(1, 1, 10, 0), 0).unwrap();
    rig.add(&flow(1, 2, 20, 0), 0).unwrap();
    let last_used = rig.used(1, 15_000);
    rig.control.note_use(rig.br, 1, &last_used);
    rig.add(&flow(1, 3, 0, 0), 16_000).unwrap();
    assert_eq!(rig.sources(), [1, 3]);
}

#[test]
fn a_bundle_that_fills_a_table_evicts_none_that_is_in_use() {
    let mut rig = rig(evicting(3));
    rig.add(&flow(1, 1, 10, 0), 0).unwrap();
    rig.add(&flow(1, 2, 20, 0), 0).unwrap();
    let last_used = rig.used(1, 15_000);
    let bundle = [flow(1, 3, 60, 0), flow(1, 4, 60, 0)];
    rig.control.note_use(rig.br, bundle.len(), &last_used);
    let all = bundle.iter().map(|change| (rig.br, switch::control::Change::Flow(change)));
    rig.control.change_all(all, 16_000).unwrap();
    assert_eq!(rig.sources(), [1, 3, 4]);
}

#[test]
fn a_lower_limit_evicts_what_is_too_much_and_a_refused_batch_evicts_nothing() {
    let mut rig = rig(evicting(4));
    for source in 1..=4 {
        rig.add(&flow(1, source, source as u16, 0), 0).unwrap();
    }
    let bad = FlowMod { table_id: 254, ..flow(1, 6, 0, 0) };
    let batch = [flow(1, 5, 0, 0), bad];
    let all = batch.iter().map(|change| (rig.br, switch::control::Change::Flow(change)));
    rig.control.change_all(all, 0).unwrap_err();
    assert_eq!(rig.sources(), [1, 2, 3, 4]);
    rig.limit(&evicting(2), 0, &unused);
    assert_eq!(rig.sources(), [3, 4]);
}

#[test]
fn a_lower_limit_evicts_in_turns_what_came_meanwhile_too() {
    const RULES: u16 = 5_000;
    let mut rig = rig(TableLimits::default());
    for source in 1..=RULES {
        rig.add(&flow(1, source.into(), source, 0), 0).unwrap();
    }
    let [limits, other] = [evicting(10), evicting(20)];
    let turn =
        |rig: &mut Rig, limits| rig.control.set_table_limits(rig.br, 0, limits, 0, &unused, &mut || true);
    assert!(!turn(&mut rig, &other), "another limit replaces it");
    assert!(!turn(&mut rig, &limits));
    // None goes before all are in order.
    for (source, idle_s) in [(RULES + 1, 1), (RULES + 2, RULES + 1)] {
        rig.add(&flow(1, source.into(), idle_s, 0), 0).unwrap();
    }
    assert_eq!(rig.sources().len(), usize::from(RULES) + 2);
    let mut sizes = Vec::new();
    while !turn(&mut rig, &limits) {
        sizes.push(rig.sources().len());
    }
    assert!(sizes.len() > 20 && sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let last = (RULES - 8..=RULES).chain([RULES + 2]).map(u128::from);
    assert_eq!(rig.sources(), last.collect::<Vec<_>>(), "those that end last");
    assert_eq!(rig.limit(&limits, 0, &unused), 1, "it is in force");
    rig.add(&flow(1, 1, 0, 0), 0).unwrap();
    assert_eq!(rig.sources().len(), 10);
}

#[test]
fn an_order_that_is_given_up_is_freed_in_turns_and_what_is_read_in_pieces_begins_anew() {
    const RULES: u16 = 5_000;
    let by_source = SubField { field: Mf::EthSrc, offset: 0, count: 12 };
    for groups in [Vec::new(), vec![by_source]] {
        let mut rig = rig(TableLimits { groups, ..evicting(u32::from(RULES)) });
        for source in 1..=RULES {
            rig.add(&flow(1, source.into(), source, 0), 0).unwrap();
        }
        let before = rig.control.transactions();
        let turns = rig.limit(&TableLimits::default(), 0, &unused);
        // Each rule has a place in its group and one by its number, and 256 go in a turn.
        assert!(turns >= 2 * usize::from(RULES) / 256, "{turns} turns");
        assert_eq!(rig.control.transactions(), before + 1);
        assert_eq!(rig.limit(&TableLimits::default(), 0, &unused), 1, "it is in force");
        assert_eq!(rig.control.transactions(), before + 1);
        rig.limit(&evicting(7), 0, &unused);
        assert_eq!(rig.sources(), (RULES - 6..=RULES).map(u128::from).collect::<Vec<_>>());
    }
}

#[test]
fn a_lower_limit_keeps_the_rules_that_are_used() {
    let mut rig = rig(evicting(3));
    for source in 1..=3 {
        rig.add(&flow(1, source, 10 + source as u16, 0), 0).unwrap();
    }
    let last_used = rig.used(1, 9_000);
    rig.limit(&evicting(1), 10_000, &last_used);
    assert_eq!(rig.sources(), [1]);
}

#[test]
fn room_in_a_large_table_is_made_without_a_look_at_all_its_rules() {
    const RULES: u32 = 20_000;
    let mut rig = rig(evicting(RULES));
    for source in 0..RULES {
        rig.add(&flow(1, source.into(), 60, 0), 0).unwrap();
    }
    // All are used all the time: the worst there is for an order by their ends.
    let looks = std::cell::Cell::new(0);
    for n in 0..100 {
        let now_ms = 30_000 + 10 * n;
        let used = |_| {
            looks.set(looks.get() + 1);
            SlotStats { last_used_ms: now_ms, ..SlotStats::default() }
        };
        rig.control.note_use(rig.br, 1, &used);
        rig.add(&flow(1, u128::from(RULES) + u128::from(n), 60, 0), now_ms).unwrap();
    }
    assert_eq!(rig.control.rules(rig.br, &RuleFilter::default()).len(), RULES as usize);
    assert!(looks.get() <= 100 * 1_000, "{} looks", looks.get());
}

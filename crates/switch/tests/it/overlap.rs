//! Additions that are refused if they overlap a rule of their priority (OFPFF_CHECK_OVERLAP).

use crate::rig::*;
use crate::transactions::{FlowMods, run};
use switch::control::{Change, Changes};

const RULES: u128 = 40_000;
const PRIORITY: i32 = 7;

fn checked(matching: Match) -> FlowMod {
    let flags = RuleFlags { check_overlap: true, ..RuleFlags::default() };
    FlowMod { priority: PRIORITY, flags, ..FlowMod::add(matching, vec![output(2)]) }
}

fn of_port(port: u128) -> Match {
    Match::any().with(FieldId::InPort, port)
}

/// A switch with many rules of one priority, all for input port 1, and a few others.
fn filled() -> Rig {
    filled_with(RULES)
}

fn filled_with(rules: u128) -> Rig {
    let mut r = rig();
    let add = |n| FlowMod { priority: PRIORITY, ..FlowMod::add(of_port(1).with(FieldId::EthSrc, n), vec![]) };
    let all: Vec<FlowMod> = (1..=rules).map(add).collect();
    r.control.change_at_once(&FlowMods(r.br, all), 0).unwrap();
    r.add(0, PRIORITY, of_port(4).with(FieldId::EthType, 0x0800), vec![]);
    r.add(0, PRIORITY - 1, of_port(3), vec![]);
    r
}

fn steps(r: &Rig, fm: &FlowMod) -> usize {
    r.control.steps_of(r.br, Change::Flow(fm))
}

fn begin(r: &mut Rig, all: Vec<FlowMod>) {
    let changes = FlowMods(r.br, all);
    let steps = (0..).map_while(|at| changes.change(at)).count();
    r.control.begin(Arc::new(changes), steps, 0);
}

/// A turn was not over before a million rules were looked at for each of 16 additions.
#[test]
fn additions_that_check_for_overlap_look_at_many_rules_in_turns() {
    // A few thousand are looked at without a pause, but a turn ends soon afterwards.
    for (rules, turns_each) in [(8_000, 1), (RULES, RULES as usize / 4_096)] {
        let mut r = filled_with(rules);
        // None of the rules has a mask that lies in theirs, so that it must be looked at.
        let all: Vec<FlowMod> = (1..=20).map(|n| checked(of_port(2).with(FieldId::EthDst, n))).collect();
        assert!(steps(&r, &all[0]) > rules as usize, "it is made in turns even if it is alone");
        begin(&mut r, all);
        let (turns, outcome) = run(&mut r, |_, _| ());
        outcome.unwrap();
        assert!(turns > 20 * turns_each, "{turns} turns");
        assert_eq!(r.control.flow_count(r.br, 0), rules as usize + 2 + 20);
        // So is what adds because it finds nothing to modify.
        for command in [Command::Modify, Command::ModifyStrict] {
            let add = checked(of_port(2).with(FieldId::EthDst, 100));
            let fm = FlowMod { command, new_cookie: Some(1), ..add };
            assert!(steps(&r, &fm) > rules as usize);
            begin(&mut r, vec![fm.clone()]);
            let (turns, outcome) = run(&mut r, |_, _| ());
            outcome.unwrap();
            assert!(turns > turns_each, "{turns} turns");
            let gone = FlowMod { command: Command::DeleteStrict, ..fm };
            r.control.flow_mod(r.br, &gone, 0).unwrap();
            assert_eq!(r.control.flow_count(r.br, 0), rules as usize + 2 + 20);
        }
    }
}

#[test]
fn what_overlaps_is_found_wherever_it_is_and_takes_all_before_it_back() {
    let mut r = filled();
    // The last rule of the many, and one that the same transaction has added.
    let last = checked(of_port(1).with(FieldId::EthDst, 5).with_masked(FieldId::EthSrc, RULES, 0xffff));
    let own = checked(of_port(2).with(FieldId::EthType, 0x0800));
    let fitting = |n| checked(of_port(2).with(FieldId::EthDst, n));
    for all in [vec![fitting(1), last.clone()], vec![fitting(1), own], vec![fitting(1), fitting(2), last]] {
        let count = all.len();
        begin(&mut r, all);
        let (_, outcome) = run(&mut r, |_, _| ());
        let (at, error) = outcome.map(drop).unwrap_err();
        assert_eq!((at, error), (count - 1, FlowModError::Overlap));
        assert_eq!(r.control.flow_count(r.br, 0), RULES as usize + 2);
    }
    // Another priority does not matter, nor does what is removed before.
    let other = FlowMod { priority: PRIORITY + 1, ..checked(Match::any()) };
    r.control.flow_mod(r.br, &other, 0).unwrap();
    let all = vec![FlowMod::delete(of_port(1)), checked(of_port(1).with(FieldId::EthDst, 5))];
    begin(&mut r, all);
    run(&mut r, |_, _| ()).1.unwrap();
    assert_eq!(r.control.flow_count(r.br, 0), 4);
}

#[test]
fn rules_that_match_no_other_bits_than_the_new_one_are_not_looked_at_one_by_one() {
    let mut r = filled();
    for (matching, overlaps) in [
        (of_port(1).with(FieldId::EthSrc, RULES + 1), false),
        (of_port(2).with(FieldId::EthSrc, RULES).with(FieldId::EthDst, 1), false),
        (of_port(1).with(FieldId::EthSrc, RULES).with(FieldId::EthDst, 1), true),
        (of_port(4).with(FieldId::EthSrc, 1).with(FieldId::EthType, 0x0800), true),
        (of_port(4).with(FieldId::EthSrc, 1).with(FieldId::EthType, 0x0806), false),
    ] {
        let fm = checked(matching);
        assert!(steps(&r, &fm) < 100, "{} steps", steps(&r, &fm));
        let expected = if overlaps { Err(FlowModError::Overlap) } else { Ok(()) };
        assert_eq!(r.control.flow_mod(r.br, &fm, 0), expected);
    }
}

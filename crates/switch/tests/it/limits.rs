//! What ends a translation that would take too long, too much memory or too much stack.

use crate::rig::*;

#[test]
fn a_loop_of_resubmits_ends_with_its_own_drop_reason() {
    let mut r = rig();
    let again = |table| Action::Resubmit { in_port: None, table: Some(table), ct: false };
    r.add(0, 1, Match::any(), vec![output(2), again(0)]);
    let t = r.translate(&packet(101));
    assert_eq!(t.actions, [DpAction::Drop(DropReason::ResubmitDepth)]);
    assert_eq!(t.effects, [Effect::Failed(Box::new(packet(101)))], "the operator is told of the packet");
    assert_eq!(r.translate(&packet(101)).effects, [], "and of no other until the control thread asks");
    // Exponentially many, none deep.
    for table in 1..20 {
        r.add(table, 1, Match::any(), vec![again(table + 1), again(table + 1)]);
    }
    r.add(0, 1, Match::any(), vec![again(1), output(2)]);
    assert_eq!(r.actions(&packet(101)), [DpAction::Drop(DropReason::ResubmitLimit)]);
    // 4096 nested ones, on a small stack.
    for table in 0..253 {
        r.add(table, 1, Match::any(), vec![again(table + 1)]);
    }
    r.add(253, 1, Match::any(), vec![again(0)]);
    assert_eq!(on_half_a_workers_stack(r), [DpAction::Drop(DropReason::ResubmitLimit)]);
}

/// What becomes of a packet on a thread with half as much stack as a worker has.
fn on_half_a_workers_stack(r: Rig) -> Vec<DpAction> {
    let Rig { switch, .. } = r;
    let worker = move || {
        let reader = switch.domain().register();
        let mut out = Translation::default();
        switch.translate(switch.version(), &packet(101), &reader, &mut out);
        out.actions
    };
    let small = std::thread::Builder::new().stack_size(datapath::WORKER_STACK_BYTES / 2);
    small.spawn(worker).unwrap().join().unwrap()
}

#[test]
fn clones_nest_1024_deep_over_all_lists_and_no_deeper() {
    let again = |table| Action::Resubmit { in_port: None, table: Some(table), ct: false };
    let cloned = |times, action| (0..times).fold(action, |inner, _| Action::Clone(vec![inner]));
    // 64 lists, which lead to each other, nest 16 each.
    let mut r = rig();
    let reg0 = |n: u128| Match::any().with(FieldId::Reg0, n);
    for n in 0..64 {
        let next = Action::Load { target: reg(0), value: n + 1, as_set_field: false };
        r.add(0, 1, reg0(n.into()), vec![next, cloned(16, again(0))]);
    }
    r.add(0, 1, reg0(64), vec![output(2)]);
    assert_eq!(on_half_a_workers_stack(r), [out(2)]);
    // 16 more, and as many resubmits as there may be.
    let mut r = rig();
    for table in 0..253 {
        r.add(table, 1, Match::any(), vec![cloned(if table < 16 { 0 } else { 16 }, again(table + 1))]);
    }
    r.add(253, 1, Match::any(), vec![again(0)]);
    assert_eq!(on_half_a_workers_stack(r), [DpAction::Drop(DropReason::ResubmitDepth)]);
    // As many of both as there may be.
    let mut r = rig();
    for table in 0..253 {
        r.add(table, 1, reg0(0), vec![cloned(4, again(table + 1))]);
        r.add(table, 1, reg0(1), vec![again(table + 1)]);
    }
    let next = Action::Load { target: reg(0), value: 1, as_set_field: false };
    r.add(253, 1, Match::any(), vec![next, again(0)]);
    assert_eq!(on_half_a_workers_stack(r), [DpAction::Drop(DropReason::ResubmitLimit)]);
}

#[test]
fn clones_that_execute_action_sets_within_each_other_have_the_same_limits() {
    let again = |table| Action::Resubmit { in_port: None, table: Some(table), ct: false };
    let next = |n: u64| Action::Load { target: reg(0), value: n, as_set_field: false };
    let reg0 = |n: u64| Match::any().with(FieldId::Reg0, n.into());
    // Rounds of 253 tables each, in which a table leads to the next by the set that a clone executes.
    let rounds = |rounds: u64| {
        let mut r = rig();
        for n in 0..rounds {
            for table in 0..253 {
                let set = Action::WriteActions(vec![again(table + 1)]);
                r.add(table, 1, reg0(n), vec![set, Action::Clone(vec![output(2)])]);
            }
            r.add(253, 1, reg0(n), vec![next(n + 1), again(0)]);
        }
        (0..253).for_each(|table| r.add(table, 0, Match::any(), vec![again(table + 1)]));
        r.add(253, 0, Match::any(), vec![again(0)]);
        on_half_a_workers_stack(r)
    };
    assert_eq!(rounds(4), [DpAction::Drop(DropReason::ResubmitLimit)]);
    assert_eq!(rounds(5), [DpAction::Drop(DropReason::ResubmitDepth)]);
}

#[test]
fn copies_of_the_action_set_are_bounded_over_all_tables() {
    let fate = |clones: usize| {
        let mut r = rig();
        let mut set = vec![Action::SetNwTtl(5); 4095];
        set.push(output(3));
        let list = [vec![Action::WriteActions(set)], vec![Action::Clone(vec![]); clones]].concat();
        r.add(0, 1, Match::any(), list);
        r.actions(&packet(101))
    };
    assert_eq!(fate(256).iter().filter(|action| **action == out(3)).count(), 257);
    assert_eq!(fate(257), [DpAction::Drop(DropReason::TranslationError)]);
}

#[test]
fn tags_and_the_action_set_are_bounded_over_all_tables() {
    let failed = [DpAction::Drop(DropReason::TranslationError)];
    let again = || Action::Resubmit { in_port: None, table: Some(1), ct: false };
    let times = |n: usize, action: Action| {
        let mut r = rig();
        let mut list = vec![again(); n];
        list.push(output(2));
        r.add(0, 1, Match::any(), list);
        r.add(1, 1, Match::any(), vec![action]);
        r.actions(&packet(101))
    };
    let tags = |n| times(n, Action::PushVlan(0x8100));
    assert_eq!(tags(66).len(), 67, "{:?}", tags(66));
    assert_eq!(tags(67), failed);
    let set = || Action::WriteActions(vec![output(3); 4096]);
    assert_eq!(times(2, set()), [out(2), out(3)]);
    assert_eq!(times(3, set()), failed);
}

#[test]
fn more_actions_than_a_translation_may_have_are_done_as_far_as_they_go() {
    let mut r = rig();
    let again = |table| Action::Resubmit { in_port: None, table: Some(table), ct: false };
    for table in 0..12 {
        r.add(table, 1, Match::any(), vec![again(table + 1), again(table + 1)]);
    }
    r.add(12, 1, Match::any(), vec![output(2); 8]);
    let t = r.translate(&packet(101));
    assert_eq!((t.actions.len(), t.uncacheable), (8192, true));
    assert!(t.actions.iter().all(|action| *action == out(2)));
}

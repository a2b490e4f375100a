//! Rules: how commands select them, when they end, and what is told of them.

use crate::rig::*;

#[test]
fn strict_and_loose_commands_select_as_openflow_says() {
    let mut r = rig();
    let net =
        || Match::any().with(FieldId::EthType, 0x800).with_masked(FieldId::NwSrc, 0x0a00_0000, 0xff00_0000);
    let host = || Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwSrc, 0x0a00_0001);
    r.add(0, 1, net(), vec![output(2)]);
    r.add(0, 2, host(), vec![output(3)]);
    r.add(5, 2, host(), vec![output(3)]);
    let count = |r: &Rig| r.control.rules(r.br, &RuleFilter::default()).len();
    assert_eq!(count(&r), 3);
    let strict = FlowMod { command: Command::DeleteStrict, priority: 1, ..FlowMod::delete(host()) };
    r.control.flow_mod(r.br, &strict, 0).unwrap();
    assert_eq!(count(&r), 3, "another priority");
    let by_port = FlowMod { out_port: Some(OfPort(2)), ..FlowMod::delete(Match::any()) };
    r.control.flow_mod(r.br, &by_port, 0).unwrap();
    assert_eq!(count(&r), 2);
    let modify =
        FlowMod { command: Command::Modify, new_cookie: None, ..FlowMod::add(net(), vec![output(4)]) };
    r.control.flow_mod(r.br, &modify, 0).unwrap();
    assert_eq!(r.actions(&packet(101)), [out(4)]);
    r.control.flow_mod(r.br, &FlowMod::delete(net()), 0).unwrap();
    assert_eq!(count(&r), 0);
    assert_eq!(r.actions(&packet(101)), [DpAction::Drop(DropReason::TableMiss)]);
}

#[test]
fn a_batch_is_one_version_or_nothing() {
    let mut r = rig();
    r.add(0, 1, Match::any(), vec![output(2)]);
    let version = r.switch.version();
    let delete = FlowMod::delete(Match::any());
    let add = FlowMod::add(Match::any().with(FieldId::InPort, 1), vec![output(3)]);
    let bad = FlowMod::add(Match::any(), vec![Action::Group(1)]);
    let error = r.control.flow_mods([(r.br, &add), (r.br, &delete), (r.br, &add), (r.br, &bad)], 0);
    assert_eq!(error, Err((3, FlowModError::BadOutGroup(1))));
    assert_eq!(r.switch.version(), version);
    assert_eq!(r.actions(&packet(101)), [out(2)]);
    assert_eq!(r.control.rules(r.br, &RuleFilter::default()).len(), 1);
    r.control.flow_mods([(r.br, &add), (r.br, &delete), (r.br, &add)], 0).unwrap();
    assert_eq!(r.switch.version(), version.next());
    assert_eq!(r.actions(&packet(101)), [out(3)]);
    assert_eq!(r.actions(&packet(102)), [DpAction::Drop(DropReason::TableMiss)]);
}

#[test]
fn the_end_of_a_connection_lowers_the_timeouts_of_its_rule() {
    const FIN: u128 = 1;
    const RST: u128 = 4;
    let ip = || Match::any().with(FieldId::EthType, 0x800);
    let fin = |idle, hard| Action::FinTimeout { idle_timeout_s: idle, hard_timeout_s: hard };
    let tcp = |flags: u128| {
        let mut key = packet(101);
        key.set(FieldId::NwProto, 6);
        key.set(FieldId::TcpFlags, flags);
        key
    };
    for (idle, hard, ends) in [(5, 0, FIN), (0, 5, RST), (5, 9, FIN | RST | 0x10), (100, 5, FIN)] {
        let mut r = rig();
        let actions = vec![fin(idle, hard), output(2)];
        let fm = FlowMod { version: Version::V10, idle_timeout_s: 60, ..FlowMod::add(ip(), actions) };
        r.control.flow_mod(r.br, &fm, 1000).unwrap();
        // Nothing comes of what is no end of a connection, and it is another flow.
        let mut later = tcp(FIN);
        later.set(FieldId::NwFrag, 3);
        for key in [packet(101), tcp(0), tcp(0x12), later] {
            let t = r.translate(&key);
            assert_eq!((&t.actions[..], &t.effects[..]), (&[out(2)][..], &[][..]), "{key:?}");
        }
        assert_eq!(r.translate(&tcp(0)).mask.get(FieldId::TcpFlags), FIN | RST);
        assert_eq!(r.translate(&packet(101)).mask.get(FieldId::TcpFlags), 0);
        let t = r.translate(&tcp(ends));
        assert_eq!((&t.actions[..], t.mask.get(FieldId::TcpFlags)), (&[out(2)][..], FIN | RST));
        assert_eq!(t.effects.len(), 1);
        // Twice is as once. No flow is touched by it.
        let version = r.switch.version();
        r.control.apply(&t.effects, 2000);
        r.control.apply(&t.effects, 2000);
        assert_eq!(r.switch.version(), version);
        let rules = r.control.rules(r.br, &RuleFilter::default());
        let timeouts = &rules[0].timeouts;
        assert_eq!(timeouts.idle_s(), if idle == 5 { 5 } else { 60 }, "a longer one lowers nothing");
        assert_eq!(timeouts.hard_s(), hard, "one where there was none is lower");
        drop(rules);
        // The one that is due first, five seconds after the rule was added, or last used, at the same time.
        let used = |_| SlotStats { packets: 1, bytes: 60, last_used_ms: 1000 };
        r.control.expire(5_900, &used);
        assert_eq!(r.control.rules(r.br, &RuleFilter::default()).len(), 1, "{idle} {hard}");
        r.control.expire(6_000, &used);
        assert_eq!(r.control.rules(r.br, &RuleFilter::default()).len(), 0, "{idle} {hard}");
        // What comes late finds no rule.
        r.control.apply(&t.effects, 7000);
    }
    // A rule that is modified keeps what it has left; one that is added anew has its own, and another end
    // lowers them again.
    let mut r = rig();
    let actions = vec![fin(5, 0), output(2)];
    let fm = FlowMod { version: Version::V10, idle_timeout_s: 60, ..FlowMod::add(ip(), actions) };
    let idle = |r: &Rig| r.control.rules(r.br, &RuleFilter::default())[0].timeouts.idle_s();
    for again in [false, true] {
        r.control.flow_mod(r.br, &fm, 1000).unwrap();
        assert_eq!(idle(&r), 60, "{again}");
        let t = r.translate(&tcp(FIN));
        r.control.apply(&t.effects, 2000);
        assert_eq!(idle(&r), 5, "{again}");
        let version = r.switch.version();
        let modified = FlowMod {
            command: Command::Modify,
            idle_timeout_s: 70,
            actions: vec![fin(4, 0), output(3)],
            ..fm.clone()
        };
        r.control.flow_mod(r.br, &modified, 2500).unwrap();
        assert_eq!(idle(&r), 5, "{again}");
        let key = tcp(FIN);
        let view = FlowView { key: &key, mask: &t.mask, visits: &t.visits, rewrites: &t.rewrites };
        assert!(r.switch.touched(view, version, r.switch.version(), &r.reader));
        let t = r.translate(&key);
        r.control.apply(&t.effects, 3000);
        assert_eq!(idle(&r), 4, "{again}");
        let version = r.switch.version();
        r.control.flow_mod(r.br, &modified, 3500).unwrap();
        let view = FlowView { key: &key, mask: &t.mask, visits: &t.visits, rewrites: &t.rewrites };
        assert!(
            r.switch.touched(view, version, r.switch.version(), &r.reader),
            "the new rule wants to know too"
        );
    }
}

#[test]
fn timeouts_are_exact_and_their_slots_come_back_only_when_released() {
    let mut r = rig();
    let m = |port| Match::any().with(FieldId::InPort, port);
    let mut fm = FlowMod { hard_timeout_s: 10, ..FlowMod::add(m(1), vec![output(2)]) };
    fm.flags.send_flow_removed = true;
    r.control.flow_mod(r.br, &fm, 1000).unwrap();
    let idle = FlowMod { idle_timeout_s: 5, ..FlowMod::add(m(2), vec![output(2)]) };
    r.control.flow_mod(r.br, &idle, 1000).unwrap();
    let count = |r: &Rig| r.control.rules(r.br, &RuleFilter::default()).len();
    let used = |_| SlotStats { packets: 1, bytes: 60, last_used_ms: 4000 };
    r.control.expire(6_100, &used);
    assert_eq!(count(&r), 2, "it was used at 4,000");
    r.control.expire(8_900, &used);
    assert_eq!(count(&r), 2);
    r.control.expire(9_000, &used);
    assert_eq!(count(&r), 1);
    r.control.expire(10_900, &used);
    assert!(r.control.take_removals().is_empty());
    r.control.expire(11_000, &used);
    let removals = r.control.take_removals();
    assert_eq!(removals.len(), 1);
    let slot = removals[0].rule.slot;
    assert_eq!(r.control.take_retired_slots().slots().len(), 1, "the idle one's");
    for removal in removals {
        r.control.removal_done(removal);
    }
    let retired = r.control.take_retired_slots();
    assert_eq!(retired.slots(), [slot]);
}

#[test]
fn a_rule_in_the_place_of_another_counts_anew_and_inherits_when_that_was_last_used() {
    for resets in [false, true] {
        let mut r = rig();
        let matching = Match::any().with(FieldId::InPort, 1);
        let mut fm = FlowMod { idle_timeout_s: 5, ..FlowMod::add(matching, vec![output(2)]) };
        r.control.flow_mod(r.br, &fm, 1000).unwrap();
        let slot = |r: &Rig| r.control.rules(r.br, &RuleFilter::default())[0].slot;
        let count = |r: &Rig| r.control.rules(r.br, &RuleFilter::default()).len();
        let first = slot(&r);
        fm.flags.reset_counts = resets;
        // Twice, and the counters of neither are final.
        r.control.flow_mod(r.br, &fm, 5000).unwrap();
        r.control.flow_mod(r.br, &fm, 5500).unwrap();
        assert_eq!(slot(&r) != first, resets, "other counters");
        assert_eq!(r.control.predecessors(slot(&r)).last(), resets.then_some(first));
        let used =
            |slot| SlotStats { last_used_ms: if slot == first { 4000 } else { 0 }, ..SlotStats::default() };
        r.control.expire(8_900, &used);
        assert_eq!(count(&r), 1, "{resets}: it was used at 4,000");
        r.control.expire(9_000, &used);
        assert_eq!(count(&r), 0, "{resets}: being added again must not count as use");
        let retired = r.control.take_retired_slots();
        assert_eq!(retired.slots().last(), Some(&first), "given up first, and final first");
        r.control.recycle_slots(retired);
        assert_eq!(r.control.heir(first), None);
    }
}

#[test]
fn what_is_removed_is_freed_once_no_worker_sees_it() {
    let mut r = rig();
    for i in 0..1000u128 {
        r.add(0, 1, Match::any().with(FieldId::EthSrc, i), vec![output(2)]);
    }
    r.control.flow_mod(r.br, &FlowMod::delete(Match::any()), 0).unwrap();
    for now in 0..10 {
        r.control.tick(now);
        r.reader.quiescent();
    }
    assert_eq!(r.control.tick(11), Left::Nothing, "nothing is left to free");
}

#[test]
fn packets_are_read_as_deeply_as_removed_rules_ask_until_these_are_unlinked() {
    let mut r = rig();
    r.add(0, 1, Match::any().with(FieldId::InPort, 1), vec![output(2)]);
    let deep = Match::any().with(FieldId::EthType, 0x0800).with(FieldId::NwProto, 17).with(FieldId::TpDst, 1);
    r.add(0, 9, deep.clone(), vec![output(3)]);
    r.control.flow_mod(r.br, &FlowMod::delete(deep), 0).unwrap();
    let held_depth = |r: &Rig| switch::shape::depth_of(&r.translate(&packet(101)).mask);
    for now_ms in [0, 11_000, 22_000, 33_000] {
        // The reader is not quiescent, so the rule stays linked.
        r.control.tick(now_ms);
        assert!(held_depth(&r) <= r.switch.port_view(PortNo(101)).get().1, "after {now_ms} ms");
    }
    for now_ms in (34_000..46_000).step_by(100) {
        r.reader.quiescent();
        r.control.tick(now_ms);
    }
    assert_eq!(held_depth(&r), r.switch.port_view(PortNo(101)).get().1);
    assert!(r.switch.port_view(PortNo(101)).get().1 < Depth::Transport);
}

#[test]
fn what_becomes_of_watched_rules_is_noted() {
    let mut rig = rig();
    rig.add(0, 1, Match::any(), vec![output(1)]);
    assert!(rig.control.take_rule_events().list.is_empty(), "nobody watches");
    rig.control.watch_rules(rig.br, true);
    let mut noted = |fm: FlowMod| {
        let _ = rig.control.flow_mod(rig.br, &fm, 0);
        let events = rig.control.take_rule_events().list;
        events.iter().map(|e| (e.kind, e.rule.priority, e.old_actions.is_some())).collect::<Vec<_>>()
    };
    let add = |priority, port| FlowMod { priority, ..FlowMod::add(Match::any(), vec![output(port)]) };
    let modify = |port| FlowMod { command: Command::Modify, new_cookie: None, ..add(0, port) };
    use RuleEventKind::{Added, Modified, Removed};
    assert_eq!(noted(add(2, 1)), [(Added, 2, false)]);
    assert_eq!(noted(add(2, 1)), [(Added, 2, false)], "a replacement is an addition");
    assert_eq!(noted(add(2, 3)), [(Added, 2, true)]);
    let mut both = noted(modify(2));
    both.sort_by_key(|e| e.1);
    assert_eq!(both, [(Modified, 1, true), (Modified, 2, true)]);
    assert_eq!(noted(modify(2)), [], "nothing changes");
    let hidden = RuleFlags { hidden: true, ..RuleFlags::default() };
    assert_eq!(noted(FlowMod { priority: 70_000, flags: hidden, ..add(0, 1) }), []);
    assert_eq!(noted(FlowMod { table_id: 254, ..add(3, 1) }), [], "refused");
    assert_eq!(noted(FlowMod::delete(Match::any())).len(), 2);
    assert_eq!(noted(FlowMod { idle_timeout_s: 1, ..add(9, 1) }), [(Added, 9, false)]);
    rig.control.expire(5_000, &|_: u32| SlotStats::default());
    let events = rig.control.take_rule_events().list;
    assert_eq!(events[0].kind, Removed(RemovedReason::IdleTimeout));
    rig.control.watch_rules(rig.br, false);
    rig.add(0, 1, Match::any(), vec![output(1)]);
    assert!(rig.control.take_rule_events().list.is_empty());
}

//! `learn`, `multipath` and `bundle` through the switch's public interfaces. A worker hands packets that
//! teach something to the control thread, which these tests play.

use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use base::{OfPort, PortNo};
use datapath::pipeline::FlowView;
use datapath::{DpAction, Pipeline, Translation};
use flow::{FieldId, Key, Match};
use openflow::text::{ActionsIn, PortNames, parse_actions};
use std::collections::HashSet;
use std::sync::Arc;
use switch::control::{Command, FlowMod, RuleFilter, TableLimits, Turn};
use switch::{BridgeConfig, BridgeIdx, Control, Effect, PortSpec, SlotStats, Switch};

struct Rig {
    control: Control,
    switch: Arc<Switch>,
    reader: Reader,
    br: BridgeIdx,
}

fn rig() -> Rig {
    let domain = Domain::new();
    let (switch, mut control) = Control::new(domain.clone(), HashKey::from_seed(5));
    let br = control.add_bridge(BridgeConfig::new("br0"));
    for n in 1..=4u16 {
        control.add_port(br, PortSpec::new(PortNo(100 + u32::from(n)), OfPort(n), &format!("p{n}"))).unwrap();
    }
    Rig { control, switch, reader: domain.register(), br }
}

fn packet(port: u16, src: u64, dst: u64) -> Key {
    let mut key = Key::default();
    key.set(FieldId::DpPort, 100 + u128::from(port));
    key.set(FieldId::InPort, port.into());
    key.set(FieldId::EthType, 0x0800);
    key.set(FieldId::EthSrc, src.into());
    key.set(FieldId::EthDst, dst.into());
    key.set(FieldId::NwProto, 17);
    key.set(FieldId::NwTtl, 64);
    key.set(FieldId::NwSrc, 0x0a00_0000 + u128::from(src));
    key.set(FieldId::NwDst, 0x0a00_0000 + u128::from(dst));
    key.set(FieldId::TpSrc, 1000);
    key.set(FieldId::TpDst, 2000);
    key
}

fn out(port: u32) -> DpAction {
    DpAction::Output(PortNo(100 + port))
}

impl Rig {
    fn add(&mut self, table_id: u8, actions: &str) {
        self.add_matching(table_id, Match::any(), actions);
    }

    fn add_matching(&mut self, table_id: u8, matching: Match, actions: &str) {
        let actions = parse_actions(actions, ActionsIn::Flow, PortNames::none()).unwrap();
        let fm = FlowMod { table_id, priority: 1, ..FlowMod::add(matching, actions) };
        self.control.flow_mod(self.br, &fm, 0).unwrap();
    }

    fn worker(&self, key: &Key) -> Translation<Effect> {
        let mut out = Translation::default();
        self.switch.translate(self.switch.version(), key, &self.reader, &mut out);
        out
    }

    /// What becomes of a packet, at a time: by the worker, or by the control thread where it is handed over.
    fn packet(&mut self, key: &Key, now_ms: u64) -> Vec<DpAction> {
        let by_worker = self.worker(key);
        let [DpAction::PacketIn(spec)] = &by_worker.actions[..] else { return by_worker.actions };
        assert!(spec.slow_path && by_worker.uncacheable && by_worker.effects.is_empty());
        let mut out = Translation::default();
        let control = &self.control;
        let learned = |bridge, table_id, cookie| control.learned_count(bridge, table_id, cookie);
        let version = self.switch.version();
        self.switch.translate_for_control(version, &spec.metadata, &self.reader, &learned, &mut out);
        self.control.apply(&out.effects, now_ms);
        out.actions
    }

    fn rules(&self, table_id: u8) -> Vec<String> {
        let filter = RuleFilter { table_id, ..RuleFilter::default() };
        let mut all: Vec<String> = self
            .control
            .rules(self.br, &filter)
            .iter()
            .map(|rule| {
                let m = openflow::text::match_text(&rule.matching.to_match(), PortNames::none());
                let actions = openflow::text::actions_text(
                    &rule.actions.list,
                    openflow::Version::V10,
                    PortNames::none(),
                );
                format!("{m} actions={actions}")
            })
            .collect();
        all.sort();
        all
    }

    fn delete(&mut self, table_id: u8) {
        let fm = FlowMod { table_id, command: Command::Delete, ..FlowMod::delete(Match::any()) };
        self.control.flow_mod(self.br, &fm, 0).unwrap();
    }
}

const SWITCH: &str = "learn(table=1,hard_timeout=10,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
                      output:NXM_OF_IN_PORT[]),resubmit(,1)";

#[test]
fn a_learned_rule_is_in_force_for_the_next_packet_and_then_flows_are_cached() {
    let mut r = rig();
    r.add(0, SWITCH);
    r.add(1, "flood");
    assert_eq!(r.packet(&packet(1, 0xa, 0xb), 0), [out(2), out(3), out(4)]);
    assert_eq!(
        r.rules(1),
        [" actions=FLOOD", "vlan_tci=0x0000/0x0fff,dl_dst=00:00:00:00:00:0a actions=output:1"]
    );
    // The lookups of the translation that learns do not see what it learns.
    assert_eq!(r.packet(&packet(2, 0xb, 0xb), 0), [out(1), out(3), out(4)]);
    assert_eq!(r.packet(&packet(2, 0xb, 0xa), 0), [out(1)]);
    let known = r.worker(&packet(2, 0xb, 0xa));
    assert!(!known.uncacheable && known.effects.is_empty());
    // When the learned rule goes, the flow that would learn it is translated anew.
    let before = r.switch.version();
    let key = packet(2, 0xb, 0xa);
    let view = FlowView { key: &key, mask: &known.mask, visits: &known.visits, rewrites: &known.rewrites };
    assert!(!r.switch.touched(view, before, r.switch.version(), &r.reader));
    let m = Match::any().with(FieldId::EthDst, 0xb);
    let gone = FlowMod { table_id: 1, ..FlowMod::delete(m) };
    r.control.flow_mod(r.br, &gone, 0).unwrap();
    assert!(r.switch.touched(view, before, r.switch.version(), &r.reader));
    assert!(r.worker(&key).uncacheable);
    // An address that moves is learned anew.
    assert_eq!(r.packet(&packet(3, 0xa, 0xa), 0), [out(1)]);
    assert_eq!(r.packet(&packet(4, 0xc, 0xa), 0), [out(3)]);
}

#[test]
fn a_learned_rule_matches_all_parts_of_a_field_that_its_action_names() {
    let mut r = rig();
    r.add(
        0,
        "learn(table=1,NXM_OF_ETH_DST[0..15]=NXM_OF_ETH_SRC[0..15],NXM_OF_ETH_DST[16..47]=NXM_OF_ETH_SRC[16..47],\
         NXM_OF_VLAN_TCI[0..11],NXM_OF_VLAN_TCI[12]=0)",
    );
    r.packet(&packet(1, 0x0a0b_0c0d_0e0f, 0xb), 0);
    assert_eq!(r.rules(1), ["vlan_tci=0x0000/0x1fff,dl_dst=0a:0b:0c:0d:0e:0f actions=drop"]);
}

#[test]
fn hard_timeouts_run_from_when_a_rule_was_last_learned() {
    let mut r = rig();
    r.add(0, SWITCH);
    r.packet(&packet(1, 0xa, 0xb), 0);
    let credits = r.worker(&packet(1, 0xa, 0xb)).credits;
    let used = |now_ms| SlotStats { last_used_ms: now_ms, ..SlotStats::default() };
    // The packet of 6 s learns it again.
    let slots = |slot: u32| if credits.contains(&slot) { used(6_000) } else { SlotStats::default() };
    r.control.expire(11_000, &slots);
    assert_eq!(r.rules(1).len(), 1);
    r.control.expire(15_900, &slots);
    assert_eq!(r.rules(1).len(), 1);
    r.control.expire(16_100, &slots);
    assert!(r.rules(1).is_empty());
}

#[test]
fn limits_hold_and_the_result_says_so() {
    let mut r = rig();
    r.add(
        0,
        "learn(table=1,cookie=7,limit=2,eth_type=0x800,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],result_dst=reg0[0],\
              load:1->NXM_NX_REG1[]),output:NXM_NX_REG0[0..15]",
    );
    assert_eq!(r.packet(&packet(2, 0xa, 1), 0), [out(1)]);
    assert_eq!(r.packet(&packet(2, 0xb, 1), 0), [out(1)]);
    assert_ne!(r.packet(&packet(2, 0xc, 1), 0), [out(1)]);
    assert_eq!(r.rules(1).len(), 2);
    assert_eq!(r.packet(&packet(2, 0xa, 1), 0), [out(1)], "one that is there is not new");
    r.delete(1);
    assert_eq!(r.packet(&packet(2, 0xc, 1), 0), [out(1)]);
}

#[test]
fn what_cannot_be_learned_is_asked_for_once_a_second_and_not_by_each_packet() {
    const LEARN: &str = "learn(table=1,cookie=7,LIMIT,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
                         result_dst=NXM_NX_REG0[0]),output:NXM_NX_REG0[0..15]";
    for (limit, result, is_full) in [("limit=1", 0, false), ("limit=0", 1, true)] {
        let mut r = rig();
        r.add(0, &LEARN.replace("LIMIT", limit));
        if is_full {
            let limits = TableLimits { rules_max: Some(1), ..TableLimits::default() };
            let slots = |_: u32| SlotStats::default();
            assert!(r.control.set_table_limits(r.br, 1, &limits, 0, &slots, &mut || false));
        }
        r.packet(&packet(2, 0xa, 1), 0);
        assert!(r.worker(&packet(2, 0xc, 1)).uncacheable, "{limit}: nothing was refused yet");
        r.packet(&packet(2, 0xb, 1), 0);
        let key = packet(2, 0xc, 1);
        let refused = r.worker(&key);
        assert!(!refused.uncacheable && refused.effects.is_empty(), "{limit}");
        let expected = if result == 1 { vec![out(1)] } else { vec![] };
        assert_eq!(refused.actions.iter().filter(|a| **a == out(1)).cloned().collect::<Vec<_>>(), expected);
        // Its rule makes it another flow, and so does the next attempt.
        let view =
            FlowView { key: &key, mask: &refused.mask, visits: &refused.visits, rewrites: &refused.rewrites };
        let touched = |r: &Rig, since| r.switch.touched(view, since, r.switch.version(), &r.reader);
        let before = r.switch.version();
        r.control.tick(999);
        assert!(!touched(&r, before), "{limit}");
        r.control.tick(1_000);
        assert!(touched(&r, before) && r.worker(&key).uncacheable, "{limit}");
        r.packet(&key, 1_000);
        assert!(!r.worker(&key).uncacheable, "{limit}: it was refused again");
        if !is_full {
            let before = r.switch.version();
            r.add_matching(1, Match::any().with(FieldId::EthDst, 0xc), "drop");
            assert!(touched(&r, before), "{limit}");
        }
        let before = r.switch.version();
        r.delete(1);
        assert!(touched(&r, before), "{limit}");
        r.packet(&key, 1_000);
        assert_eq!(r.rules(1).len(), 1, "{limit}");
    }
}

#[test]
fn what_is_refused_keeps_nothing_else_from_being_learned() {
    let learn = |limit: u32| {
        format!(
            "learn(table=1,cookie=7,limit={limit},NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])"
        )
    };
    // Another action may learn more with the cookie, or as much as it likes.
    for (limit, learned) in [(1, 1), (2, 2), (0, 2)] {
        let mut r = rig();
        r.add_matching(0, Match::any().with(FieldId::InPort, 1), &learn(1));
        r.add_matching(0, Match::any().with(FieldId::InPort, 2), &learn(limit));
        r.packet(&packet(1, 0xa, 1), 0);
        r.packet(&packet(1, 0xb, 1), 0);
        assert!(!r.worker(&packet(1, 0xb, 1)).uncacheable, "refused");
        r.packet(&packet(2, 0xc, 1), 0);
        assert_eq!(r.rules(1).len(), learned, "{limit}");
    }
    // A full table has no place for a new rule, and a learned one still follows its host.
    let mut r = rig();
    r.add(0, &learn(0));
    let limits = TableLimits { rules_max: Some(1), ..TableLimits::default() };
    assert!(r.control.set_table_limits(r.br, 1, &limits, 0, &|_: u32| SlotStats::default(), &mut || false));
    r.packet(&packet(1, 0xa, 1), 0);
    r.packet(&packet(1, 0xb, 1), 0);
    assert!(!r.worker(&packet(1, 0xb, 1)).uncacheable, "refused");
    r.packet(&packet(3, 0xa, 1), 0);
    assert_eq!(r.rules(1), ["dl_dst=00:00:00:00:00:0a actions=output:3"]);
}

#[test]
fn an_age_that_a_fin_sets_runs_from_when_the_rule_was_last_learned() {
    let mut r = rig();
    r.add(
        0,
        "learn(table=1,idle_timeout=60,fin_hard_timeout=10,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
         output:NXM_OF_IN_PORT[]),resubmit(,1)",
    );
    let mut key = packet(1, 0xa, 0xa);
    key.set(FieldId::NwProto, 6);
    r.packet(&key, 0);
    // It was used all the time.
    let slots = |_: u32| SlotStats { last_used_ms: 300_000, ..SlotStats::default() };
    key.set(FieldId::TcpFlags, 1);
    let fin = r.worker(&key).effects;
    assert!(matches!(fin[..], [Effect::FinTimeout(_)]), "{fin:?}");
    r.control.apply(&fin, 300_000);
    r.control.expire(309_900, &slots);
    assert_eq!(r.rules(1).len(), 1);
    r.control.expire(310_100, &slots);
    assert!(r.rules(1).is_empty());
}

#[test]
fn a_rule_that_was_learned_without_a_flag_is_known_to_a_learn_with_it() {
    let mut r = rig();
    r.add(0, "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])");
    r.packet(&packet(1, 0xa, 0xb), 0);
    r.add(0, "learn(table=1,send_flow_rem,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])");
    assert!(!r.worker(&packet(1, 0xa, 0xb)).uncacheable, "learning would change nothing");
}

#[test]
fn a_field_names_reserved_ports_by_their_numbers_of_16_bits() {
    let mut r = rig();
    let sent = |r: &mut Rig, port: u32| {
        r.add(0, &format!("load:{port:#x}->NXM_NX_REG1[],output:NXM_NX_REG1[]"));
        r.packet(&packet(1, 0xa, 0xb), 0)
    };
    assert_eq!(sent(&mut r, 0xfffb), [out(2), out(3), out(4)], "FLOOD");
    assert_eq!(sent(&mut r, 0xfff8), [out(1)], "IN_PORT");
    assert_eq!(sent(&mut r, 4), [out(4)]);
    for out_of_range in [0x1_0004, 0xffff_fffb] {
        assert!(!sent(&mut r, out_of_range).iter().any(|a| matches!(a, DpAction::Output(_))));
    }
}

#[test]
fn learned_rules_go_with_the_last_rule_that_learns_them() {
    let mut r = rig();
    let learn =
        "learn(table=1,cookie=7,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    r.add(0, learn);
    r.add(3, learn);
    r.add(1, "flood");
    r.packet(&packet(1, 0xa, 1), 0);
    assert_eq!(r.rules(1).len(), 2);
    r.delete(0);
    assert_eq!(r.rules(1).len(), 2, "another rule learns with the cookie");
    r.delete(3);
    assert_eq!(r.rules(1), [" actions=FLOOD"]);
}

#[test]
fn what_packets_want_learned_while_tables_are_changed_is_learned_afterwards() {
    let mut r = rig();
    r.add(0, "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])");
    let other =
        |n: u128| FlowMod { table_id: 2, ..FlowMod::add(Match::any().with(FieldId::EthSrc, n), vec![]) };
    let changes = crate::transactions::FlowMods(r.br, (1..2_000).map(other).collect());
    r.control.begin(Arc::new(changes), 2_000, 0);
    assert!(matches!(r.control.go_on(&mut || true), Turn::More));
    r.packet(&packet(1, 0xa, 1), 0);
    assert_eq!(r.rules(1).len(), 0);
    while !matches!(r.control.go_on(&mut || true), Turn::Done(_)) {}
    assert_eq!(r.rules(1).len(), 1);
    assert_eq!(r.rules(2).len(), 1_999);
}

#[test]
fn learned_rules_have_what_the_action_says() {
    let mut r = rig();
    let udp = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwProto, 17);
    r.add_matching(0, udp, "learn(table=2,fin_idle_timeout=3,eth_type=0x800,nw_proto=17,NXM_OF_UDP_DST[]=NXM_OF_UDP_SRC[],\
              NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],load:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],load:5->NXM_NX_REG0[1..4],\
              output:NXM_OF_IN_PORT[])");
    r.packet(&packet(3, 0xa, 0xb), 0);
    assert_eq!(
        r.rules(2),
        ["udp,nw_dst=10.0.0.10,tp_dst=1000 actions=fin_timeout(idle_timeout=3),load:0xa->NXM_OF_ETH_DST[],\
          load:0x5->NXM_NX_REG0[1..4],output:3"]
    );
}

#[test]
fn links_are_chosen_by_the_fields_named_and_both_directions_alike() {
    let mut r = rig();
    for algorithm in ["modulo_n", "hash_threshold", "hrw", "iter_hash"] {
        r.add(0, &format!("multipath(symmetric_l4,9,{algorithm},3,4,reg0[0..7]),output:NXM_NX_REG0[0..7]"));
        let mut seen = HashSet::new();
        for n in 0..64 {
            let (there, mut back) = (packet(4, 0x100 + n, 7), packet(4, 7, 0x100 + n));
            back.set(FieldId::TpSrc, 2000);
            back.set(FieldId::TpDst, 1000);
            let chosen = r.packet(&there, 0);
            assert_eq!(chosen, r.packet(&back, 0), "{algorithm}");
            seen.insert(format!("{chosen:?}"));
        }
        assert_eq!(seen.len(), 3, "{algorithm}: {seen:?}");
    }
    r.add(0, "multipath(eth_src,9,modulo_n,3,0,reg0[0..7]),output:NXM_NX_REG0[0..7]");
    let t = r.worker(&packet(1, 5, 6));
    assert_eq!(t.mask.get(FieldId::EthSrc), FieldId::EthSrc.ones());
    assert_eq!((t.mask.get(FieldId::EthDst), t.mask.get(FieldId::TpDst)), (0, 0));
}

#[test]
fn of_udp_the_ports_are_hashed_only_where_the_fields_say_so() {
    use FieldId::*;
    let all = [EthSrc, EthDst, VlanTci, VlanTci2, NwSrc, NwDst, NwProto, TpSrc, TpDst];
    let (frame, addresses) = (&all[..4], &[NwSrc, NwDst][..]);
    for (fields, decides, of_tcp, of_udp) in [
        ("eth_src", vec![EthSrc], false, false),
        ("nw_src", vec![NwSrc], false, false),
        ("nw_dst", vec![NwDst], false, false),
        ("symmetric_l3", addresses.to_vec(), false, false),
        ("symmetric_l4", [frame, addresses, &[NwProto]].concat(), true, false),
        ("symmetric_l3l4", [addresses, &[NwProto]].concat(), true, false),
        ("symmetric_l3l4+udp", [addresses, &[NwProto]].concat(), true, true),
    ] {
        for action in [
            format!("multipath({fields},0,modulo_n,4,0,reg0[0..7]),output:1"),
            format!("bundle_load({fields},0,hrw,ofport,reg0[0..15],members:2,3),output:1"),
        ] {
            let mut r = rig();
            r.add(0, &action);
            for (proto, with_ports) in [(6, of_tcp), (17, of_udp)] {
                let mut key = packet(2, 5, 6);
                key.set(NwProto, proto);
                let mask = r.worker(&key).mask;
                let decided: Vec<FieldId> = all.into_iter().filter(|f| mask.get(*f) != 0).collect();
                let ports = if with_ports { &[TpSrc, TpDst][..] } else { &[] };
                assert_eq!(decided, [&decides, ports].concat(), "{action} of protocol {proto}");
            }
        }
    }
}

#[test]
fn one_link_more_moves_few_packets_by_weight_or_iterated_hashing() {
    let mut r = rig();
    // The share of packets that go elsewhere once there are 5 links in place of 4.
    let mut moved = |algorithm: &str, arg: u16| {
        let mut chosen = |links: u16| -> Vec<String> {
            r.add(0, &format!("multipath(eth_src,3,{algorithm},{links},{arg},reg0[]),controller"));
            let link = |n| match &r.worker(&packet(1, n, 6)).actions[..] {
                [DpAction::PacketIn(told)] => told.metadata.get(FieldId::Reg0).to_string(),
                other => panic!("{other:?}"),
            };
            (0..1000).map(link).collect()
        };
        let (before, after) = (chosen(4), chosen(5));
        assert_eq!(HashSet::<&String>::from_iter(&after).len(), 5, "{algorithm}");
        before.iter().zip(&after).filter(|(a, b)| a != b).count()
    };
    assert!((100..300).contains(&moved("hrw", 0)), "one fifth");
    assert!((100..300).contains(&moved("iter_hash", 8)), "one fifth");
    assert!((250..600).contains(&moved("hash_threshold", 0)), "a quarter to a half");
    assert!((600..950).contains(&moved("modulo_n", 0)), "nearly all");
}

#[test]
fn bundles_choose_members_that_are_up() {
    let mut r = rig();
    r.add(0, "bundle(eth_src,0,active_backup,ofport,members:2,3)");
    let before = r.worker(&packet(1, 5, 6));
    assert_eq!(before.actions, [out(2)]);
    let version = r.switch.version();
    let spec = PortSpec { link_up: false, ..PortSpec::new(PortNo(102), OfPort(2), "p2") };
    r.control.modify_port(spec).unwrap();
    let key = packet(1, 5, 6);
    let view = FlowView { key: &key, mask: &before.mask, visits: &before.visits, rewrites: &before.rewrites };
    assert!(r.switch.touched(view, version, r.switch.version(), &r.reader));
    assert_eq!(r.packet(&key, 0), [out(3)]);
    r.add(0, "bundle(eth_src,0,hrw,ofport,members:2,3,4)");
    let seen: HashSet<String> = (0..64).map(|n| format!("{:?}", r.packet(&packet(1, n, 6), 0))).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    r.add(
        0,
        "bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG0[0..15],members:2),output:NXM_NX_REG0[0..15]",
    );
    assert_ne!(r.packet(&key, 0), [out(2)], "none is up");
}

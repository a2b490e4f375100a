//! What a switch does to packets, example by example, through its public interfaces.

use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use base::{DropReason, OfPort, PortNo};
use datapath::pipeline::FlowView;
use datapath::{DpAction, Pipeline, Translation};
use flow::action::SubField;
use flow::options::{Mapping, MappingError, OptionMatch, Wide};
use flow::{Action, Depth, FieldId, Key, Match, Mf};
use openflow::Version;
use std::sync::Arc;
use switch::control::{
    Command, FlowMod, FlowModError, OptionError, RemovedReason, RuleEventKind, RuleFilter,
};
use switch::{
    BridgeConfig, BridgeIdx, Control, Effect, PortKind, PortSpec, Replaced, RuleFlags, SlotStats, Switch,
    VlanConfig, VlanMode,
};

/// A switch with one bridge and four ports, whose numbers are 101 to 104 in the datapath and 1 to 4 in
/// OpenFlow.
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

fn output(port: u16) -> Action {
    Action::Output { port: OfPort(port), max_len: 0 }
}

fn packet(port: u32) -> Key {
    let mut key = Key::default();
    key.set(FieldId::DpPort, u128::from(port));
    key.set(FieldId::InPort, u128::from(port - 100));
    key.set(FieldId::EthType, 0x0800);
    key.set(FieldId::EthSrc, 0x0000_0000_0a00 + u128::from(port));
    key.set(FieldId::EthDst, 0x0000_0000_0b00);
    key.set(FieldId::NwSrc, 0x0a00_0001);
    key.set(FieldId::NwDst, 0x0a00_0002);
    key.set(FieldId::NwProto, 17);
    key.set(FieldId::NwTtl, 64);
    key.set(FieldId::TpSrc, 1000);
    key.set(FieldId::TpDst, 2000);
    key
}

impl Rig {
    fn add(&mut self, table: u8, priority: i32, m: Match, actions: Vec<Action>) {
        let fm = FlowMod { table_id: table, priority, ..FlowMod::add(m, actions) };
        self.control.flow_mod(self.br, &fm, 0).unwrap();
    }

    fn translate(&self, key: &Key) -> Translation<Effect> {
        let mut out = Translation::default();
        self.switch.translate(self.switch.version(), key, &self.reader, &mut out);
        out
    }

    fn actions(&self, key: &Key) -> Vec<DpAction> {
        self.translate(key).actions
    }
}

fn out(port: u32) -> DpAction {
    DpAction::Output(PortNo(100 + port))
}

#[test]
fn a_rule_forwards_from_the_moment_it_is_added() {
    let mut r = rig();
    assert_eq!(r.actions(&packet(101)), [DpAction::Drop(DropReason::TableMiss)]);
    let before = r.switch.version();
    let miss = r.translate(&packet(101));
    r.add(0, 1, Match::any().with(FieldId::InPort, 1), vec![output(2)]);
    assert_eq!(r.actions(&packet(101)), [out(2)]);
    assert_eq!(r.actions(&packet(102)), [DpAction::Drop(DropReason::TableMiss)]);
    let view =
        FlowView { key: &packet(101), mask: &miss.mask, visits: &miss.visits, rewrites: &miss.rewrites };
    assert!(r.switch.touched(view, before, r.switch.version(), &r.reader));
    let view = FlowView { key: &packet(102), ..view };
    assert!(!r.switch.touched(view, before, r.switch.version(), &r.reader));
    assert_eq!(r.switch.port_view(PortNo(101)).get().1, Depth::Metadata);
    r.add(0, 1, Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwSrc, 1), vec![]);
    assert_eq!(r.switch.port_view(PortNo(101)).get().1, Depth::Network);
}

#[test]
fn resubmit_goto_and_the_action_set_go_through_tables() {
    let mut r = rig();
    let resubmit = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    r.add(0, 1, Match::any(), vec![output(2), resubmit, output(3)]);
    r.add(1, 1, Match::any(), vec![Action::WriteActions(vec![output(4)]), Action::GotoTable(2)]);
    r.add(2, 1, Match::any(), vec![Action::Load { target: reg(0), value: 7 }]);
    assert_eq!(r.actions(&packet(101)), [out(2), out(3), out(4)]);
    r.add(2, 2, Match::any(), vec![Action::ClearActions]);
    assert_eq!(r.actions(&packet(101)), [out(2), out(3)]);
    let credits = r.translate(&packet(101)).credits;
    assert_eq!(credits.len(), 6, "three tables and three rules");
}

fn reg(n: u8) -> SubField {
    SubField { field: Mf::Reg(n), offset: 0, count: 32 }
}

#[test]
fn a_loop_of_resubmits_ends_with_its_own_drop_reason() {
    let mut r = rig();
    let again = |table| Action::Resubmit { in_port: None, table: Some(table), ct: false };
    r.add(0, 1, Match::any(), vec![output(2), again(0)]);
    let t = r.translate(&packet(101));
    assert_eq!(t.actions, [DpAction::Drop(DropReason::ResubmitDepth)]);
    assert_eq!(t.effects, [Effect::Failed(Box::new(packet(101)))], "the operator is told of the packet");
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
    let Rig { switch, .. } = r;
    let worker = move || {
        let reader = switch.domain().register();
        let mut out = Translation::default();
        switch.translate(switch.version(), &packet(101), &reader, &mut out);
        out.actions
    };
    let small = std::thread::Builder::new().stack_size(2 << 20);
    let actions = small.spawn(worker).unwrap().join().unwrap();
    assert_eq!(actions, [DpAction::Drop(DropReason::ResubmitLimit)]);
}

#[test]
fn fields_are_set_when_an_output_comes_and_only_where_they_may_differ() {
    let mut r = rig();
    let udp = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwProto, 17);
    let set = |field, value| Action::SetField { field, value, mask: field.ones() };
    r.add(
        0,
        1,
        udp.with(FieldId::NwDst, 0x0a00_0002),
        vec![set(Mf::NwDst, 0x0a00_0002), set(Mf::UdpDst, 53), output(2), set(Mf::NwDst, 9), output(3)],
    );
    let t = r.translate(&packet(101));
    let set = |field, value, mask| DpAction::Set { field, value, mask };
    assert_eq!(
        t.actions,
        [set(FieldId::TpDst, 53, 0xffff), out(2), set(FieldId::NwDst, 9, 0xffff_ffff), out(3)]
    );
    assert_eq!(t.mask.get(FieldId::TpDst), 0, "the old port is overwritten whatever it was");
    assert_eq!(t.mask.get(FieldId::NwDst), 0xffff_ffff);
}

#[test]
fn a_time_to_live_of_one_is_told_to_the_controllers() {
    let mut r = rig();
    r.add(0, 1, Match::any().with(FieldId::EthType, 0x800), vec![Action::DecTtl(vec![]), output(2)]);
    let set = DpAction::Set { field: FieldId::NwTtl, value: 63, mask: 0xff };
    assert_eq!(r.actions(&packet(101)), [set, out(2)]);
    let mut key = packet(101);
    key.set(FieldId::NwTtl, 1);
    let actions = r.actions(&key);
    assert!(matches!(&actions[..], [DpAction::PacketIn(spec)]
        if spec.reason == flow::action::PacketInReason::InvalidTtl));
}

#[test]
fn normal_learns_floods_and_forwards() {
    let mut r = rig();
    r.add(0, 0, Match::any(), vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }]);
    let mut there = packet(101);
    there.set(FieldId::EthSrc, 0xaa);
    there.set(FieldId::EthDst, 0xbb);
    let t = r.translate(&there);
    assert_eq!(t.actions, [out(2), out(3), out(4)]);
    assert_eq!(t.effects, [Effect::Learn { bridge: r.br, vlan: 0, mac: 0xaa, port: PortNo(101) }]);
    let seen = r.switch.version();
    r.control.apply(&t.effects, 0);
    let mut back = packet(103);
    back.set(FieldId::EthSrc, 0xbb);
    back.set(FieldId::EthDst, 0xaa);
    let u = r.translate(&back);
    assert_eq!(u.actions, [out(1)]);
    r.control.apply(&u.effects, 0);
    // The flooding flow looked for an address that is known now.
    let view = FlowView { key: &there, mask: &t.mask, visits: &t.visits, rewrites: &t.rewrites };
    assert!(r.switch.touched(view, seen, r.switch.version(), &r.reader));
    assert_eq!(r.actions(&there), [out(3)]);
    assert!(r.translate(&there).effects.is_empty());
    // It moves.
    let mut moved = back.clone();
    moved.set(FieldId::DpPort, 104);
    let t = r.translate(&moved);
    r.control.apply(&t.effects, 0);
    assert_eq!(r.actions(&there), [out(4)]);
    assert_eq!(r.control.fdb_stats(r.br).moved, 1);
    // It ages.
    r.control.expire(299_900, &|_| SlotStats::default());
    assert_eq!(r.actions(&there), [out(4)]);
    r.control.expire(300_100, &|_| SlotStats::default());
    assert_eq!(r.actions(&there), [out(2), out(3), out(4)]);
}

#[test]
fn an_address_that_was_given_to_a_port_stays_there_until_it_is_taken_back() {
    let mut r = rig();
    r.add(0, 0, Match::any(), vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }]);
    let mut there = packet(101);
    there.set(FieldId::EthSrc, 0xaa);
    there.set(FieldId::EthDst, 0xbb);
    let t = r.translate(&there);
    let (seen, none) = (r.switch.version(), |_: u32| SlotStats::default());
    assert_eq!(r.control.fdb_add(r.br, 0, 0xbb, PortNo(103), 0), Ok(None));
    let view = FlowView { key: &there, mask: &t.mask, visits: &t.visits, rewrites: &t.rewrites };
    assert!(r.switch.touched(view, seen, r.switch.version(), &r.reader), "a cached flow floods");
    assert_eq!(r.actions(&there), [out(3)]);
    // Seen elsewhere, long unseen, or one too many: it stays.
    let learn = |mac, port| Effect::Learn { bridge: r.br, vlan: 0, mac, port: PortNo(port) };
    let (moved, one, two) = (learn(0xbb, 104), learn(0xcc, 101), learn(0xdd, 102));
    let again = learn(0xdd, 102);
    r.control.apply(&[moved], 0);
    r.control.expire(1_000_000, &none);
    r.control.fdb_flush(r.br);
    let mut config = r.control.topology().bridge(r.br).unwrap().config.clone();
    config.mac_table_size = 2;
    r.control.set_bridge(r.br, config).unwrap();
    r.control.apply(&[one, two], 0);
    assert_eq!(r.actions(&there), [out(3)]);
    let stats = r.control.fdb_stats(r.br);
    assert_eq!((stats.current, stats.statics, stats.moved, stats.evicted), (2, 1, 0, 1));
    assert_eq!(stats.moves_refused, 1);
    let shown = r.control.fdb_show(r.br, 5_000, &none);
    assert_eq!(
        shown.iter().map(|e| (e.mac, e.age_ms)).collect::<Vec<_>>(),
        [(0xbb, None), (0xdd, Some(5_000))]
    );
    // The operator moves it, and takes it back.
    let replaced = |port, is_static| Ok(Some(Replaced { port: PortNo(port), is_static }));
    assert_eq!(r.control.fdb_add(r.br, 0, 0xbb, PortNo(104), 0), replaced(103, true));
    assert_eq!(r.control.fdb_add(r.br, 0, 0xbb, PortNo(104), 0), Ok(None), "nothing changes");
    assert_eq!(r.control.fdb_add(r.br, 0, 0xdd, PortNo(104), 0), replaced(102, false), "it was learned");
    assert!(r.control.fdb_del(r.br, 0, 0xdd));
    r.control.apply(&[again], 0);
    assert_eq!(r.actions(&there), [out(4)]);
    assert!(r.control.fdb_add(r.br, 0, 0xbb, PortNo(999), 0).is_err());
    assert!(!r.control.fdb_del(r.br, 0, 0xdd), "that one was learned");
    assert!(r.control.fdb_del(r.br, 0, 0xbb));
    assert_eq!(r.actions(&there), [out(2), out(3), out(4)]);
    r.control.fdb_clear_stats(r.br);
    assert_eq!(r.control.fdb_stats(r.br).learned, 0);
}

#[test]
fn new_ageing_times_and_table_sizes_hold_at_once() {
    let mut r = rig();
    let none = |_: u32| SlotStats::default();
    let bridge = r.br;
    let learn = |mac: u64| Effect::Learn { bridge, vlan: 0, mac, port: PortNo(101 + (mac % 4) as u32) };
    let effects: Vec<Effect> = (0..100).map(learn).collect();
    r.control.apply(&effects, 10_000);
    let set = |r: &mut Rig, aging_s: u32, size: usize| {
        let mut config = r.control.topology().bridge(r.br).unwrap().config.clone();
        (config.mac_aging_s, config.mac_table_size) = (aging_s, size);
        r.control.set_bridge(r.br, config).unwrap();
    };
    assert_eq!(r.control.next_deadline_ms(), Some(310_000));
    set(&mut r, 300, 10);
    let stats = r.control.fdb_stats(r.br);
    assert_eq!((stats.current, stats.evicted), (10, 90));
    r.control.apply(&[learn(1_000)], 20_000);
    let known = |r: &Rig| r.control.fdb_show(r.br, 20_000, &none).iter().map(|e| e.mac).collect::<Vec<_>>();
    assert_eq!(known(&r).len(), 10);
    assert!(known(&r).contains(&1_000), "the newcomer has a place");
    set(&mut r, 15, 10);
    assert_eq!(r.control.next_deadline_ms(), Some(25_000));
    r.control.expire(24_999, &none);
    assert_eq!(known(&r).len(), 10);
    r.control.expire(25_000, &none);
    assert_eq!(known(&r), [1_000]);
    // Longer again, before the last one's time has come.
    set(&mut r, 60, 10);
    r.control.expire(79_999, &none);
    assert_eq!(known(&r), [1_000]);
    let seen = |_: u32| SlotStats { last_used_ms: 70_000, ..SlotStats::default() };
    r.control.expire(80_000, &seen);
    assert_eq!(r.control.next_deadline_ms(), Some(130_000));
    r.control.expire(130_000, &none);
    assert_eq!(known(&r), [0; 0], "nobody has said since that it was used");
}

#[test]
fn vlan_modes_tag_and_untag() {
    let mut r = rig();
    r.add(0, 0, Match::any(), vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }]);
    let spec = |n: u16, mode, tag| PortSpec {
        vlan: VlanConfig { mode, tag, ..VlanConfig::default() },
        ..PortSpec::new(PortNo(100 + u32::from(n)), OfPort(n), &format!("p{n}"))
    };
    r.control.modify_port(spec(1, VlanMode::Access, 10)).unwrap();
    r.control.modify_port(spec(3, VlanMode::NativeUntagged, 10)).unwrap();
    r.control.modify_port(spec(4, VlanMode::Access, 20)).unwrap();
    let push = DpAction::PushVlan { tpid: 0x8100, tci: 0x100a };
    assert_eq!(r.actions(&packet(101)), [push, out(2), DpAction::PopVlan, out(3)]);
    // From the trunk, tagged 10.
    let mut tagged = packet(102);
    tagged.set(FieldId::VlanTci, 0x100a);
    tagged.set(FieldId::VlanTpid, 0x8100);
    assert_eq!(r.actions(&tagged), [DpAction::PopVlan, out(1), out(3)]);
    // An access port takes no tag.
    tagged.set(FieldId::DpPort, 101);
    assert_eq!(r.actions(&tagged), [DpAction::Drop(DropReason::VlanViolation)]);
    // A tunnel puts its own tag around.
    r.control.modify_port(spec(1, VlanMode::Dot1qTunnel, 30)).unwrap();
    let actions = r.actions(&tagged);
    assert_eq!(actions[..2], [DpAction::PushVlan { tpid: 0x88a8, tci: 0x101e }, out(2)]);
}

#[test]
fn a_patch_cable_leads_to_the_other_bridge_and_back_again() {
    let mut r = rig();
    let other = r.control.add_bridge(BridgeConfig::new("br1"));
    let patch = |no, of, name, peer| PortSpec {
        kind: PortKind::Patch { peer: Some(PortNo(peer)) },
        ..PortSpec::new(PortNo(no), OfPort(of), name)
    };
    r.control.add_port(r.br, patch(110, 10, "to1", 111)).unwrap();
    r.control.add_port(other, patch(111, 11, "to0", 110)).unwrap();
    r.control.add_port(other, PortSpec::new(PortNo(105), OfPort(5), "p5")).unwrap();
    let set = Action::SetField { field: Mf::EthDst, value: 5, mask: Mf::EthDst.ones() };
    r.add(0, 1, Match::any().with(FieldId::InPort, 1), vec![output(10), output(2)]);
    let fm = FlowMod::add(Match::any().with(FieldId::InPort, 11), vec![set, output(5)]);
    r.control.flow_mod(other, &fm, 0).unwrap();
    let t = r.translate(&packet(101));
    let set = |value| DpAction::Set { field: FieldId::EthDst, value, mask: (1 << 48) - 1 };
    assert_eq!(t.actions, [set(5), DpAction::Output(PortNo(105)), set(0xb00), out(2)]);
    assert_eq!(t.mask.get(FieldId::EthDst), (1 << 48) - 1, "what is put back must be known");
    r.control.remove_port(PortNo(111)).unwrap();
    assert_eq!(r.actions(&packet(101)), [out(2)]);
    r.control.remove_bridge(r.br, 0).unwrap();
    assert_eq!(r.actions(&packet(101)), [DpAction::Drop(DropReason::RxNoBridge)]);
}

#[test]
fn what_lies_behind_a_popped_label_is_read_again() {
    let mut r = rig();
    let mpls = Match::any().with(FieldId::EthType, 0x8847);
    let resubmit = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    r.add(
        0,
        1,
        mpls,
        vec![Action::Load { target: reg(3), value: 9 }, Action::PopMpls(0x800), resubmit, output(3)],
    );
    r.add(
        1,
        1,
        Match::any().with(FieldId::Reg3, 9).with(FieldId::NwDst, 0x0a00_0002).with(FieldId::EthType, 0x800),
        vec![output(2)],
    );
    let mut key = Key::default();
    for (f, v) in [
        (FieldId::DpPort, 101),
        (FieldId::InPort, 1),
        (FieldId::EthType, 0x8847),
        (FieldId::Mpls0, 0x0001_0140),
    ] {
        key.set(f, v);
    }
    let actions = r.actions(&key);
    let [DpAction::PopMpls { eth_type: 0x800 }, DpAction::Recirc(id)] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(r.actions(&key), actions, "equal states have one number");
    let mut again = packet(101);
    again.set(FieldId::RecircId, u128::from(id));
    assert_eq!(r.actions(&again), [out(2), out(3)]);
    again.set(FieldId::NwDst, 1);
    assert_eq!(r.actions(&again), [out(3)]);
    again.set(FieldId::RecircId, 77);
    assert_eq!(r.actions(&again), [DpAction::Drop(DropReason::RecircUnknown)]);
}

#[test]
fn labels_are_pushed_with_their_final_bits_and_popped_by_the_bottom_of_the_stack() {
    let mut r = rig();
    let labelled = |bits: u128, mask: u128| {
        let of_type = Match::any().with(FieldId::EthType, 0x8847);
        of_type.with_masked(FieldId::Mpls0, bits, mask)
    };
    let push = || Action::PushMpls(0x8847);
    let ip = Match::any().with(FieldId::EthType, 0x800);
    let copy = Action::Clone(vec![Action::SetMplsLabel(30), push(), Action::SetMplsLabel(40), output(3)]);
    let list = vec![push(), Action::SetMplsLabel(10), push(), Action::SetMplsLabel(20), output(2), copy];
    r.add(0, 1, ip, [list, vec![output(4)]].concat());
    let mut there = packet(101);
    there.set(FieldId::NwTtl, 64);
    let pushed = |label: u32, rest| DpAction::PushMpls { eth_type: 0x8847, lse: label << 12 | rest };
    let actions = r.actions(&there);
    assert_eq!(actions[..3], [pushed(10, 0x140), pushed(20, 0x40), out(2)]);
    let [_, _, _, DpAction::Clone(copied), last] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(*last, out(4), "the packet is as it was before the copy");
    // A label that is not the copy's own is set, and not changed in what was done before.
    let DpAction::Set { field: FieldId::Mpls0, value, .. } = copied[0] else { panic!("{copied:?}") };
    assert_eq!(value >> 12, 30);
    assert_eq!(copied[1..], [pushed(40, 0x40), out(3)]);

    let bottom = 0x100;
    r.add(0, 1, labelled(bottom, bottom), vec![Action::PopMpls(0x800), output(2)]);
    r.add(0, 1, labelled(0, bottom), vec![Action::PopMpls(0x8847), Action::DecMplsTtl, output(2)]);
    let mut one = Key::default();
    for (f, v) in [(FieldId::DpPort, 101), (FieldId::InPort, 1), (FieldId::EthType, 0x8847)] {
        one.set(f, v);
    }
    one.set(FieldId::Mpls0, 0x0001_0140);
    let t = r.translate(&one);
    assert_eq!(t.actions, [DpAction::PopMpls { eth_type: 0x800 }, out(2)]);
    let masks =
        |t: &Translation<Effect>| [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2].map(|f| t.mask.get(f));
    assert_eq!(masks(&t), [bottom, 0, 0], "one flow for all labels");
    // Two labels: what lies behind the second, which is the last, decides nothing, nor is it read again.
    let mut two = one.clone();
    two.set(FieldId::Mpls0, 0x0001_0040);
    two.set(FieldId::Mpls1, 0x0002_0140);
    let t = r.translate(&two);
    assert_eq!(masks(&t), [bottom, u32::MAX.into(), 0]);
    let [DpAction::PopMpls { .. }, DpAction::Set { field: FieldId::Mpls0, .. }, last] = &t.actions[..] else {
        panic!("{:?}", t.actions)
    };
    assert_eq!(*last, out(2));
    // A third that is not the bottom hides a fourth, so the packet is read again.
    let mut four = two.clone();
    four.set(FieldId::Mpls1, 0x0002_0040);
    four.set(FieldId::Mpls2, 0x0003_0040);
    assert!(matches!(r.actions(&four)[..], [DpAction::PopMpls { .. }, DpAction::Recirc(_)]));
    // Nothing is pushed onto three.
    r.add(0, 2, labelled(0, bottom), vec![push(), output(2)]);
    assert_eq!(r.actions(&four), [DpAction::Drop(DropReason::MplsLabelLimit)]);
    assert_eq!(r.actions(&two).last(), Some(&out(2)), "there is room for a third");
}

#[test]
fn who_fills_the_states_of_a_bridge_harms_no_other() {
    let mut r = rig();
    let other = r.control.add_bridge(BridgeConfig::new("br1"));
    r.control.add_port(other, PortSpec::new(PortNo(105), OfPort(5), "p5")).unwrap();
    // What the tenant chooses becomes part of the state.
    let label = |mf: Mf| SubField { field: mf, offset: 0, count: 20 };
    let rest = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    let actions = vec![
        Action::Move { source: label(Mf::MplsLabel), target: label(Mf::Reg(0)) },
        Action::PopMpls(0x800),
        rest,
    ];
    let mpls = || Match::any().with(FieldId::EthType, 0x8847);
    for bridge in [r.br, other] {
        r.control.flow_mod(bridge, &FlowMod::add(mpls(), actions.clone()), 0).unwrap();
        let inner = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwDst, 0x0a00_0002);
        let fm = FlowMod { table_id: 1, ..FlowMod::add(inner, vec![output(2), output(5)]) };
        r.control.flow_mod(bridge, &fm, 0).unwrap();
    }
    let key = |port: u16, label: u64| {
        let mut key = Key::default();
        key.set(FieldId::DpPort, 100 + u128::from(port));
        key.set(FieldId::InPort, port.into());
        key.set(FieldId::EthType, 0x8847);
        key.set(FieldId::Mpls0, u128::from(label) << 12 | 0x140);
        key
    };
    let id = |actions: &[DpAction]| match actions {
        [DpAction::PopMpls { .. }, DpAction::Recirc(id)] => Some(*id),
        _ => None,
    };
    let neighbours = r.translate(&key(5, 7));
    let (number, seen) = (id(&neighbours.actions).unwrap(), r.switch.version());
    let (mut full, mut own) = (0, r.translate(&key(1, 1)));
    let mut own_seen = seen;
    for label in 0..40_000 {
        full += u32::from(id(&r.actions(&key(1, label))).is_none());
        if label == 20_000 {
            // Ten times a second.
            r.control.tick(100);
            let view =
                FlowView { key: &key(1, 1), mask: &own.mask, visits: &own.visits, rewrites: &own.rewrites };
            assert!(r.switch.touched(view, own_seen, r.switch.version(), &r.reader));
            (own, own_seen) = (r.translate(&key(1, 1)), r.switch.version());
            assert!(id(&own.actions).is_some(), "there is room again");
        }
    }
    assert!(full > 0, "the tenant's own packets are refused when all states are used");
    let neighbour = key(5, 7);
    let view = FlowView {
        key: &neighbour,
        mask: &neighbours.mask,
        visits: &neighbours.visits,
        rewrites: &neighbours.rewrites,
    };
    assert!(!r.switch.touched(view, seen, r.switch.version(), &r.reader), "the neighbour's flow stays");
    assert_eq!(id(&r.actions(&neighbour)), Some(number));
    for label in 100_000..101_000 {
        assert!(id(&r.actions(&key(5, label))).is_some(), "the neighbour has room");
    }
    let mut again = packet(105);
    again.set(FieldId::RecircId, number.into());
    assert_ne!(r.actions(&again), [DpAction::Drop(DropReason::RecircUnknown)]);
}

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
    assert!(!r.control.tick(11), "nothing is left to free");
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
fn port_configuration_holds_in_both_directions() {
    let mut r = rig();
    r.add(0, 1, Match::any(), vec![Action::Output { port: OfPort::FLOOD, max_len: 0 }]);
    let mut spec = PortSpec::new(PortNo(102), OfPort(2), "p2");
    spec.config.no_flood = true;
    r.control.modify_port(spec.clone()).unwrap();
    assert_eq!(r.actions(&packet(101)), [out(3), out(4)]);
    spec.config.no_recv = true;
    r.control.modify_port(spec.clone()).unwrap();
    assert_eq!(r.actions(&packet(102)), [DpAction::Drop(DropReason::RxPortConfig)]);
    spec.config = Default::default();
    spec.config.no_fwd = true;
    r.control.modify_port(spec).unwrap();
    r.add(0, 1, Match::any(), vec![output(2)]);
    assert_eq!(r.actions(&packet(101)), [DpAction::Drop(DropReason::TxPortDown)]);
}

#[test]
fn a_trace_tells_the_way_of_a_packet() {
    let mut r = rig();
    let resubmit = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    r.add(0, 7, Match::any().with(FieldId::InPort, 1), vec![resubmit, output(3)]);
    r.add(1, 9, Match::any().with(FieldId::EthType, 0x800), vec![output(1), output(2)]);
    let names = openflow::text::PortNames::default();
    let start =
        switch::trace::Start { version: r.switch.version(), key: &packet(101), bridge: None, actions: None };
    let outputs = |actions: &[DpAction], _: &Key| format!("{actions:?}");
    let texts = switch::trace::Texts { ports: &names, actions: &outputs };
    let (text, t) = switch::trace::trace(&r.switch, start, &[], texts, &r.reader);
    let (flow, rest) = text.split_once('\n').unwrap();
    assert!(flow.starts_with("Flow: udp,"), "{flow}");
    assert!(flow.contains("in_port=1"), "{flow}");
    let (steps, end) = rest.split_once("\n\nFinal flow: ").unwrap();
    assert_eq!(
        steps,
        "
bridge(\"br0\")
-------------
 0. in_port=1, priority 7
    resubmit(,1)
     1. ip, priority 9
            output:1
             -> skipping output to input port
            output:2
    output:3"
    );
    assert!(end.starts_with("unchanged\nMegaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no\n"), "{end}");
    assert!(end.ends_with(&format!("Datapath actions: {:?}\n", t.actions)), "{end}");
    assert_eq!(t.actions, r.actions(&packet(101)));
}

/// A packet as a tunnel would hand it in, with these options.
fn with_options(rig: &Rig, options: &[(u8, u128)]) -> Key {
    let table = rig.control.options(rig.br).unwrap();
    let mut key = packet(101);
    for &(idx, value) in options {
        for (block, word, _, value) in table.words(idx, &Wide::from(value), &Wide::ONES) {
            key.set_word(block, word, key.word(block, word) | value);
        }
        key.set_masked(FieldId::TunMetadataPresent, 1 << idx, 1 << idx);
    }
    key
}

fn matching_option(idx: u8, value: u128, mask: Wide) -> Match {
    let mut m = Match::any();
    m.options.set(OptionMatch { idx, value: Wide::from(value), mask, bytes: None });
    m
}

fn set_option(idx: u8, value: u128, mask: Wide) -> Action {
    Action::SetOption { idx, value: Box::new(Wide::from(value)), mask: Box::new(mask) }
}

#[test]
fn tunnel_options_are_matched_set_moved_and_deleted() {
    let mut rig = rig();
    let row = |idx, bytes| Mapping { class: 0xffff, kind: idx, bytes, idx };
    rig.control.map_options(rig.br, &[row(0, 4), row(1, 124), row(2, 8)]).unwrap();
    let sub = |idx, offset, count| SubField { field: Mf::TunMetadata(idx), offset, count };
    let resubmit = |table| Action::Resubmit { in_port: None, table: Some(table), ct: false };
    let to_reg = SubField { field: Mf::Reg(0), offset: 0, count: 16 };
    rig.add(0, 5, matching_option(0, 0x1234, Wide::ONES), vec![output(2)]);
    rig.add(0, 4, matching_option(0, 0x0034, Wide::from(0xffu128)), vec![output(3)]);
    rig.add(0, 3, matching_option(0, 0, Wide::ZERO), vec![output(4)]);
    // The value goes from option 2 over option 1, far beyond what a number holds, to a register and a port.
    let moves = vec![
        Action::Move { source: sub(2, 0, 16), target: sub(1, 900, 16) },
        Action::Move { source: sub(1, 900, 16), target: to_reg },
        set_option(2, 0, Wide::ONES),
        resubmit(1),
    ];
    rig.add(0, 2, matching_option(2, 0, Wide::ZERO), moves);
    rig.add(1, 1, Match::any(), vec![Action::OutputReg { source: to_reg, max_len: 0 }]);
    // Set, matched, deleted, matched no more.
    let set = vec![
        set_option(0, 0x1200, Wide::from(0xff00u128)),
        resubmit(2),
        Action::DeleteField(Mf::TunMetadata(0)),
        resubmit(2),
    ];
    rig.add(0, 1, Match::any(), set);
    rig.add(2, 2, matching_option(0, 0x1200, Wide::ONES), vec![output(3)]);
    rig.add(2, 1, Match::any(), vec![output(4)]);
    assert_eq!(rig.actions(&with_options(&rig, &[(0, 0x1234)])), [out(2)]);
    assert_eq!(rig.actions(&with_options(&rig, &[(0, 0x9934)])), [out(3)]);
    assert_eq!(rig.actions(&with_options(&rig, &[(0, 0)])), [out(4)]);
    assert_eq!(rig.actions(&with_options(&rig, &[(2, 3)])), [out(3)]);
    assert_eq!(rig.actions(&packet(101)), [out(3), out(4)]);
    // A packet without options is told from one whose option is 0.
    let translated = rig.translate(&packet(101));
    assert_ne!(translated.mask.get(FieldId::TunMetadataPresent), 0);
}

#[test]
fn a_mapping_that_a_rule_uses_stays_and_what_is_not_mapped_is_refused() {
    let mut rig = rig();
    let row = |idx, bytes| Mapping { class: 0xffff, kind: idx, bytes, idx };
    let add = |rig: &mut Rig, m: Match, actions: Vec<Action>| {
        rig.control.flow_mod(rig.br, &FlowMod::add(m, actions), 0)
    };
    let refused = |rig: &mut Rig, m: Match, actions: Vec<Action>| add(rig, m, actions).unwrap_err();
    let present = |idx| matching_option(idx, 0, Wide::ZERO);
    assert_eq!(refused(&mut rig, present(0), vec![]), FlowModError::UnmappedOption);
    rig.control.map_options(rig.br, &[row(0, 4), row(1, 4)]).unwrap();
    assert_eq!(
        rig.control.map_options(rig.br, &[row(2, 4), row(0, 4)]),
        Err(OptionError::Row(MappingError::Mapped))
    );
    assert_eq!(rig.control.options(rig.br).unwrap().mappings().count(), 2, "all or none");
    let long = matching_option(0, 1 << 32, Wide::ONES);
    assert_eq!(refused(&mut rig, long, vec![]), FlowModError::LongMatch);
    let sub = SubField { field: Mf::TunMetadata(0), offset: 31, count: 2 };
    assert_eq!(refused(&mut rig, Match::any(), vec![Action::StackPush(sub)]), FlowModError::LongSet);
    let unmapped = vec![Action::Clone(vec![set_option(3, 1, Wide::ONES)])];
    assert_eq!(refused(&mut rig, Match::any(), unmapped), FlowModError::UnmappedOption);
    add(&mut rig, present(0), vec![]).unwrap();
    add(&mut rig, Match::any(), vec![Action::Clone(vec![set_option(1, 1, Wide::ONES)])]).unwrap();
    assert_eq!(rig.control.unmap_options(rig.br, Some(&[0])), Err(OptionError::InUse(0)));
    assert_eq!(rig.control.unmap_options(rig.br, Some(&[1])), Err(OptionError::InUse(1)));
    assert_eq!(rig.control.unmap_options(rig.br, Some(&[7])), Ok(()), "what is not mapped is not minded");
    rig.control.flow_mod(rig.br, &FlowMod::delete(present(0)), 0).unwrap();
    assert_eq!(rig.control.unmap_options(rig.br, Some(&[0])), Ok(()));
    assert_eq!(rig.control.unmap_options(rig.br, None), Err(OptionError::InUse(1)));
    rig.control.flow_mod(rig.br, &FlowMod::delete(Match::any()), 0).unwrap();
    assert_eq!(rig.control.unmap_options(rig.br, None), Ok(()));
}

#[test]
fn what_becomes_of_watched_rules_is_noted() {
    let mut rig = rig();
    rig.add(0, 1, Match::any(), vec![output(1)]);
    assert!(rig.control.take_rule_events().is_empty(), "nobody watches");
    rig.control.watch_rules(rig.br, true);
    let mut noted = |fm: FlowMod| {
        let _ = rig.control.flow_mod(rig.br, &fm, 0);
        let events = rig.control.take_rule_events();
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
    let events = rig.control.take_rule_events();
    assert_eq!(events[0].kind, Removed(RemovedReason::IdleTimeout));
    rig.control.watch_rules(rig.br, false);
    rig.add(0, 1, Match::any(), vec![output(1)]);
    assert!(rig.control.take_rule_events().is_empty());
}

fn resubmit(in_port: Option<u16>, table: Option<u8>) -> Action {
    Action::Resubmit { in_port: in_port.map(OfPort), table, ct: false }
}

#[test]
fn a_resubmit_from_another_port_is_a_lookup_as_from_there_and_no_more() {
    let mut r = rig();
    let from = |port: u16| Match::any().with(FieldId::InPort, port.into());
    r.add(0, 1, from(1), vec![resubmit(Some(3), None), output(4)]);
    r.add(0, 1, from(3), vec![output(3), output(1), resubmit(None, Some(2))]);
    r.add(2, 1, from(1), vec![output(2)]);
    r.add(2, 1, from(3), vec![output(4), output(4)]);
    // The rule of port 3 acts on a packet of port 1, to which nothing is sent back.
    assert_eq!(r.actions(&packet(101)), [out(3), out(2), out(4)]);
}

#[test]
fn an_expired_time_to_live_ends_its_own_list_and_not_those_that_led_to_it() {
    let mut r = rig();
    r.add(0, 1, Match::any(), vec![output(2), resubmit(None, Some(1)), output(3)]);
    r.add(1, 1, Match::any().with(FieldId::EthType, 0x0800), vec![Action::DecTtl(vec![]), output(4)]);
    let mut key = packet(101);
    key.set(FieldId::NwTtl, 1);
    let actions = r.actions(&key);
    assert!(
        matches!(&actions[..], [a, DpAction::PacketIn(_), b] if (a, b) == (&out(2), &out(3))),
        "{actions:?}"
    );
}

#[test]
fn a_packet_that_was_paused_in_a_table_goes_on_behind_the_pause() {
    let mut r = rig();
    let pause = Action::Controller {
        max_len: u16::MAX,
        reason: flow::action::PacketInReason::Action,
        id: 0,
        userdata: vec![],
        pause: true,
        meter_id: None,
    };
    for leads in [resubmit(None, Some(1)), Action::GotoTable(1)] {
        r.add(0, 1, Match::any(), vec![output(2), leads]);
        r.add(1, 1, Match::any(), vec![pause.clone(), output(3)]);
        let paused = r.actions(&packet(101));
        let [first, DpAction::PacketIn(told)] = &paused[..] else { panic!("{paused:?}") };
        assert_eq!(first, &out(2));
        let mut resumed = Translation::default();
        let rest = switch::read_continuation(told.continuation.as_deref().expect("the rest waits"));
        let version = r.switch.version();
        assert!(r.switch.translate_resumed(
            version,
            &packet(101),
            r.br,
            &rest.unwrap(),
            &r.reader,
            &mut resumed
        ));
        assert_eq!(resumed.actions, [out(3)], "no second packet-in");
    }
}

#[test]
fn a_packet_in_says_where_its_action_stood() {
    use flow::action::PacketInReason;
    let mut r = rig();
    let told = Action::Output { port: OfPort::CONTROLLER, max_len: 64 };
    r.add(0, 1, Match::any(), vec![told.clone(), Action::WriteActions(vec![told.clone()])]);
    let reasons = |actions: &[DpAction]| -> Vec<PacketInReason> {
        let of = |action: &DpAction| match action {
            DpAction::PacketIn(spec) => Some(spec.reason),
            _ => None,
        };
        actions.iter().filter_map(of).collect()
    };
    assert_eq!(reasons(&r.actions(&packet(101))), [PacketInReason::Action, PacketInReason::ActionSet]);
    let mut out = Translation::default();
    r.switch.translate_packet_out(r.switch.version(), &packet(101), r.br, &[told], &r.reader, &mut out);
    assert_eq!(reasons(&out.actions), [PacketInReason::PacketOut]);
}

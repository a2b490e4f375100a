//! What a switch does to packets, example by example, through its public interfaces.

use crate::rig::*;
use flow::action::{Ct, CtZone};

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
    r.add(2, 1, Match::any(), vec![Action::Load { target: reg(0), value: 7, as_set_field: false }]);
    assert_eq!(r.actions(&packet(101)), [out(2), out(3), out(4)]);
    r.add(2, 2, Match::any(), vec![Action::ClearActions]);
    assert_eq!(r.actions(&packet(101)), [out(2), out(3)]);
    let credits = r.translate(&packet(101)).credits;
    assert_eq!(credits.len(), 6, "three tables and three rules");
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
fn packets_leave_with_the_dscp_of_their_queue_and_have_their_own_elsewhere() {
    let mut r = rig();
    let queue_dscp = [(1, 1), (2, 63)].into();
    r.control.modify_port(PortSpec { queue_dscp, ..PortSpec::new(PortNo(102), OfPort(2), "p2") }).unwrap();
    let enqueue = |queue| Action::Enqueue { port: OfPort(2), queue };
    r.add(0, 1, Match::any(), vec![enqueue(1), output(3), enqueue(2), enqueue(9), output(2)]);
    let mut key = packet(101);
    key.set(FieldId::NwTos, 0x2b);
    let t = r.translate(&key);
    let dscp = |dscp: u128| DpAction::Set { field: FieldId::NwTos, value: dscp << 2, mask: 0xfc };
    let queue = |value| DpAction::Set { field: FieldId::SkbPriority, value, mask: 0xffff_ffff };
    assert_eq!(
        t.actions,
        [
            // Its own again at a port whose queues have none.
            dscp(1),
            queue(1),
            out(2),
            dscp(0xa),
            queue(0),
            out(3),
            dscp(63),
            queue(2),
            out(2),
            // Queue 9 has none, and neither has a packet without one.
            dscp(0xa),
            queue(9),
            out(2),
            queue(0),
            out(2),
        ]
    );
    assert_eq!((t.mask.get(FieldId::NwTos), t.mask.get(FieldId::SkbPriority)), (0xfc, 0xffff_ffff));
    assert_eq!(r.switch.port_view(PortNo(101)).get().1, Depth::Network, "its own must have been read");
    key.set(FieldId::EthType, 0x0806);
    assert_eq!(
        r.actions(&key),
        [queue(1), out(2), queue(0), out(3), queue(2), out(2), queue(9), out(2), queue(0), out(2)],
        "only IP has one"
    );
    r.control.modify_port(PortSpec::new(PortNo(102), OfPort(2), "p2")).unwrap();
    assert_eq!(r.actions(&packet(101))[..2], [queue(1), out(2)]);
}

#[test]
fn a_time_to_live_of_one_is_told_to_the_controllers() {
    let mut r = rig();
    r.add(0, 1, Match::any().with(FieldId::EthType, 0x800), vec![Action::DecTtl(None), output(2)]);
    let set = DpAction::Set { field: FieldId::NwTtl, value: 63, mask: 0xff };
    assert_eq!(r.actions(&packet(101)), [set, out(2)]);
    let mut key = packet(101);
    key.set(FieldId::NwTtl, 1);
    let actions = r.actions(&key);
    assert!(matches!(&actions[..], [DpAction::PacketIn(spec)]
        if spec.reason == flow::action::PacketInReason::InvalidTtl));

    // OVN's rules name none.
    r.add(0, 2, Match::any().with(FieldId::EthType, 0x800), vec![Action::DecTtl(Some(vec![])), output(2)]);
    assert_eq!(r.actions(&key), [DpAction::Drop(DropReason::TtlExpired)]);
}

#[test]
fn a_flow_counts_in_a_table_that_a_refused_bundle_has_made() {
    use switch::control::Change;
    let mut r = rig();
    r.add(0, 1, Match::any(), vec![Action::GotoTable(3)]);
    let key = packet(101);
    let (flow, before) = (r.translate(&key), r.switch.version());
    let added = FlowMod { table_id: 3, ..FlowMod::add(Match::any(), vec![]) };
    let refused = FlowMod::add(Match::any(), vec![Action::Meter(9)]);
    let bundle = [(r.br, Change::Flow(&added)), (r.br, Change::Flow(&refused))];
    assert!(r.control.change_all(bundle, 0).is_err());
    assert_ne!(r.translate(&key).credits, flow.credits, "misses of the table count");
    let view = FlowView { key: &key, mask: &flow.mask, visits: &flow.visits, rewrites: &flow.rewrites };
    assert!(r.switch.touched(view, before, r.switch.version(), &r.reader));
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
        vec![
            Action::Load { target: reg(3), value: 9, as_set_field: false },
            Action::PopMpls(0x800),
            resubmit,
            output(3),
        ],
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
fn actions_for_tests_are_refused_until_they_are_asked_for() {
    let mut r = rig();
    let [recirc, slow] = [vec![Action::DebugRecirc, output(2)], vec![output(2), Action::DebugSlow]]
        .map(|actions| FlowMod { priority: 1, ..FlowMod::add(Match::any(), actions) });
    for fm in [&recirc, &slow] {
        let refused = r.control.flow_mod(r.br, fm, 0).unwrap_err();
        assert!(matches!(refused, FlowModError::Refused(ErrorKind::OFPBAC_BAD_VENDOR_TYPE)), "{refused}");
    }
    r.control.accept_debug_actions();
    r.control.flow_mod(r.br, &recirc, 0).unwrap();
    let [DpAction::Recirc(id)] = r.actions(&packet(101))[..] else { panic!("no recirculation") };
    let mut again = packet(101);
    again.set(FieldId::RecircId, u128::from(id));
    assert!(r.switch.is_frozen(id, &r.reader) && !r.switch.is_frozen(id + 1, &r.reader));
    assert_eq!(r.actions(&again), [out(2)]);
    r.control.flow_mod(r.br, &slow, 0).unwrap();
    let t = r.translate(&packet(101));
    assert!(t.uncacheable && t.actions == [out(2)], "{t:?}");
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
    let label_of = |action: &DpAction| match action {
        DpAction::Set { field: FieldId::Mpls0, value, .. } => value >> 12,
        other => panic!("{other:?}"),
    };
    // A label that is not the copy's own is set, and not changed in what was done before. What the copy
    // pushed is popped, and the packet is as it was before.
    assert_eq!(label_of(&actions[3]), 30);
    assert_eq!(actions[4..7], [pushed(40, 0x40), out(3), DpAction::PopMpls { eth_type: 0x8847 }]);
    assert_eq!((label_of(&actions[7]), &actions[8..]), (20, &[out(4)][..]));

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
    let copy = |source, target| Action::Move { source: label(source), target: label(target) };
    // Long lists wait, so that few states fill the memory that a bridge has for them.
    let actions = |waiting: usize| {
        let mut all = vec![copy(Mf::MplsLabel, Mf::Reg(0)), Action::PopMpls(0x800)];
        all.extend(vec![copy(Mf::Reg(1), Mf::Reg(2)); waiting]);
        all.push(Action::Resubmit { in_port: None, table: Some(1), ct: false });
        all
    };
    let mpls = || Match::any().with(FieldId::EthType, 0x8847);
    for (bridge, waiting) in [(r.br, 2_000), (other, 0)] {
        r.control.flow_mod(bridge, &FlowMod::add(mpls(), actions(waiting)), 0).unwrap();
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
    for label in 0..2_000 {
        full += u32::from(id(&r.actions(&key(1, label))).is_none());
        if label == 1_500 {
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
    let start = switch::trace::Start {
        version: r.switch.version(),
        key: &packet(101),
        bridge: None,
        actions: None,
        learned: Some(&|_, _, _| 0),
    };
    let outputs = |actions: &[DpAction], _: &Key| format!("{actions:?}");
    let texts = switch::trace::Texts { ports: &names, actions: &outputs };
    let traced = switch::trace::trace(&r.switch, start, &[], texts, &r.reader);
    let (text, t) = (traced.text, traced.first);
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
             >> skipping output to input port
            output:2
    output:3"
    );
    assert!(end.starts_with("unchanged\nMegaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no\n"), "{end}");
    assert!(end.ends_with(&format!("Datapath actions: {:?}\n", t.actions)), "{end}");
    assert_eq!(t.actions, r.actions(&packet(101)));
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
    r.add(1, 1, Match::any().with(FieldId::EthType, 0x0800), vec![Action::DecTtl(None), output(4)]);
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

#[test]
fn below_a_label_that_was_pushed_for_a_copy_the_packet_is_what_it_was() {
    let mut r = rig();
    let copy = Action::Clone(vec![Action::DecTtl(None), Action::PushMpls(0x8847), output(3)]);
    let list = vec![copy, output(1), output(2)];
    r.add(0, 1, Match::any().with(FieldId::EthType, 0x800), list);
    let ttl = |value| DpAction::Set { field: FieldId::NwTtl, value, mask: 0xff };
    let (push, pop) =
        (DpAction::PushMpls { eth_type: 0x8847, lse: 0x100 | 63 }, DpAction::PopMpls { eth_type: 0x800 });
    let expected = [ttl(63), push, out(3), pop, ttl(64), out(1), out(2)];
    // Port 1 is where the packet came from, so it comes from port 4.
    assert_eq!(r.actions(&packet(104)), expected);
    // What cannot be undone is still done to a copy, labels and all.
    let popped = Action::Clone(vec![Action::PushMpls(0x8847), Action::PopMpls(0x800), output(3)]);
    r.add(0, 2, Match::any().with(FieldId::EthType, 0x800), vec![popped, output(2)]);
    let actions = r.actions(&packet(104));
    assert!(matches!(actions[..], [DpAction::Clone(_), DpAction::Output(PortNo(102))]), "{actions:?}");
}

#[test]
fn what_a_copy_and_the_packet_are_both_set_to_is_set_once() {
    let mut r = rig();
    let set = |value| Action::SetField { field: Mf::NwDst, value, mask: 0xffff_ffff };
    let ip = Match::any().with(FieldId::EthType, 0x800);
    let to = |value| DpAction::Set { field: FieldId::NwDst, value, mask: 0xffff_ffff };
    let committed = || {
        let (zone, actions) = (CtZone::Is(0), vec![]);
        Action::Ct(Ct { commit: true, force: false, zone, table: None, alg: 0, actions }.into())
    };
    // The first copy changes the address; the second one cannot be undone, and has it as the packet does.
    let copies = [vec![set(5), output(2)], vec![committed(), output(3)]].map(Action::Clone);
    r.add(0, 1, ip.clone(), [copies.to_vec(), vec![output(1)]].concat());
    let actions = r.actions(&packet(104));
    let [first, DpAction::Output(_), second, DpAction::Clone(list), DpAction::Output(_)] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!([first, second], [&to(5), &to(0x0a00_0002)]);
    assert!(matches!(list[..], [DpAction::Ct(_), DpAction::Output(PortNo(103))]), "{actions:?}");
    // What the packet has by chance, others of its flow may not have.
    let copy = Action::Clone(vec![set(0x0a00_0002), committed(), output(3)]);
    r.add(0, 2, ip, vec![copy, output(1)]);
    let actions = r.actions(&packet(104));
    assert!(matches!(actions[..], [DpAction::Clone(_), DpAction::Output(PortNo(101))]), "{actions:?}");
}

#[test]
fn translation_does_without_clones_and_comparisons_of_length() {
    use switch::features::{FEATURES, Value};
    let mut r = rig();
    let feature = |name| FEATURES.iter().find(|feature| feature.name == name).unwrap();
    let copy = Action::Clone(vec![Action::PushMpls(0x8847), Action::PopMpls(0x800), output(3)]);
    r.add(0, 1, Match::any(), vec![copy, output(2)]);
    let of_clone = r.actions(&packet(101));
    let DpAction::Clone(list) = &of_clone[0] else { panic!("{of_clone:?}") };
    assert!(r.switch.in_use.set(feature("clone"), Value::Is(false)));
    let sample = DpAction::Sample { probability: u32::MAX, actions: list.clone() };
    assert_eq!(r.actions(&packet(101)), [sample, out(2)]);
    assert!(r.switch.in_use.set(feature("sample_nesting"), Value::UpTo(3)));
    assert_eq!(r.actions(&packet(101)), [out(2)], "nothing can do a clone's work");
    assert!(!r.switch.in_use.set(feature("recirc"), Value::Is(false)), "nothing can do without it");

    let larger = Action::CheckPktLarger { length: 100, target: reg(1) };
    let resubmit = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    r.add(0, 2, Match::any(), vec![larger, resubmit, output(4)]);
    r.add(1, 1, Match::any().with(FieldId::Reg1, 1), vec![output(3)]);
    r.add(1, 0, Match::any(), vec![output(2)]);
    let checked = r.translate(&packet(101));
    assert!(matches!(checked.actions[..], [DpAction::CheckPktLen { .. }]) && !checked.uncacheable);
    assert!(r.switch.in_use.set(feature("check_pkt_len"), Value::Is(false)));
    for (packet_len, first) in [(None, 2), (Some(100), 2), (Some(101), 3)] {
        let mut t = Translation { packet_len, ..Translation::default() };
        r.switch.translate(r.switch.version(), &packet(101), &r.reader, &mut t);
        assert!(t.uncacheable && t.actions == [out(first), out(4)], "{packet_len:?}: {t:?}");
    }
}

/// As in Open vSwitch: what is written to the tag of a packet without one is in the tag that comes.
#[test]
fn bits_that_are_set_without_a_tag_are_those_of_the_tag_that_is_pushed() {
    let tci = |offset, count, value| Action::Load {
        target: SubField { field: Mf::VlanTci, offset, count },
        value,
        as_set_field: false,
    };
    let vid = Action::SetVlanVid { vid: 5, push_vlan_if_needed: true };
    for (actions, tag) in [
        (vec![tci(13, 3, 1), vid.clone(), output(2)], 0x3005),
        (vec![tci(0, 12, 7), Action::SetVlanPcp { pcp: 2, push_vlan_if_needed: true }, output(2)], 0x5007),
        (vec![tci(13, 3, 1), tci(12, 1, 1), output(2)], 0x3000),
        (vec![tci(13, 3, 1), Action::PushVlan(0x8100), output(2)], 0x1000),
    ] {
        let mut r = rig();
        r.add(0, 1, Match::any(), actions.clone());
        let pushed = DpAction::PushVlan { tpid: 0x8100, tci: tag };
        assert_eq!(r.actions(&packet(101)), [pushed, out(2)], "{actions:?}");
    }
    let mut r = rig();
    r.add(0, 1, Match::any(), vec![tci(13, 3, 1), output(2)]);
    assert_eq!(r.actions(&packet(101)), [out(2)], "no tag, no bits of one");
}

//! Packets that cross from bridge to bridge, and what each side sees of the other.

use crate::rig::*;

#[test]
fn a_patch_cable_leads_to_the_other_bridge_and_back_again() {
    let mut r = rig();
    let other = second_bridge(&mut r);
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

/// A bridge br1 with a port 5, joined to br0 by its port 11, which is port 10 there.
fn second_bridge(r: &mut Rig) -> BridgeIdx {
    let other = r.control.add_bridge(BridgeConfig::new("br1"));
    let patch = |no, of, name, peer| PortSpec {
        kind: PortKind::Patch { peer: Some(PortNo(peer)) },
        ..PortSpec::new(PortNo(no), OfPort(of), name)
    };
    r.control.add_port(r.br, patch(110, 10, "to1", 111)).unwrap();
    r.control.add_port(other, patch(111, 11, "to0", 110)).unwrap();
    r.control.add_port(other, PortSpec::new(PortNo(105), OfPort(5), "p5")).unwrap();
    other
}

#[test]
fn both_ends_of_a_cable_are_plugged_and_pulled_in_one_version() {
    let mut r = rig();
    let other = second_bridge(&mut r);
    r.add(0, 1, Match::any(), vec![output(10)]);
    r.control.flow_mod(other, &FlowMod::add(Match::any(), vec![output(5)]), 0).unwrap();
    let with_peers = |r: &Rig, peers: [Option<u32>; 2]| -> Vec<PortSpec> {
        let spec = |no| r.control.topology().port(PortNo(no)).unwrap().spec.clone();
        let kind = |peer: Option<u32>| PortKind::Patch { peer: peer.map(PortNo) };
        [110, 111]
            .into_iter()
            .zip(peers)
            .map(|(no, peer)| PortSpec { kind: kind(peer), ..spec(no) })
            .collect()
    };
    let key = packet(101);
    let there = [DpAction::Output(PortNo(105))];
    for (peers, arrives) in [([None, None], false), ([Some(111), Some(110)], true)] {
        let (before, version) = (r.translate(&key), r.switch.version());
        let specs = with_peers(&r, peers);
        r.control.modify_ports(specs.clone()).unwrap();
        assert_eq!(r.switch.version().0, version.0 + 1);
        let view =
            FlowView { key: &key, mask: &before.mask, visits: &before.visits, rewrites: &before.rewrites };
        assert!(r.switch.touched(view, version, r.switch.version(), &r.reader));
        assert_eq!(r.actions(&key) == there, arrives);
        // What is so already makes no version, and one that cannot be changes nothing.
        r.control.modify_ports(specs).unwrap();
        let mut specs = with_peers(&r, [None, None]);
        specs[1].of_port = OfPort(99);
        assert!(r.control.modify_ports(specs).is_err());
        assert_eq!(r.switch.version().0, version.0 + 1);
    }
}

#[test]
fn behind_a_patch_cable_a_packet_without_its_label_is_read_before_table_0() {
    let mut r = rig();
    let other = second_bridge(&mut r);
    let mpls = Match::any().with(FieldId::EthType, 0x8847);
    r.add(0, 1, mpls, vec![Action::PopMpls(0x800), output(10), output(2)]);
    let to = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwDst, 0x0a00_0002);
    r.control.flow_mod(other, &FlowMod::add(to, vec![output(5)]), 0).unwrap();
    let mut key = Key::default();
    for (f, v) in [(FieldId::DpPort, 101), (FieldId::InPort, 1), (FieldId::EthType, 0x8847)] {
        key.set(f, v);
    }
    key.set(FieldId::Mpls0, 0x0001_0140);
    let actions = r.actions(&key);
    let [DpAction::PopMpls { eth_type: 0x800 }, DpAction::Clone(apart), DpAction::Output(PortNo(102))] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    let [DpAction::Recirc(id)] = apart[..] else { panic!("{actions:?}") };
    let mut again = packet(101);
    again.set(FieldId::RecircId, u128::from(id));
    assert_eq!(r.actions(&again), [DpAction::Output(PortNo(105))]);
    again.set(FieldId::NwDst, 1);
    assert_eq!(r.actions(&again), [DpAction::Drop(DropReason::TableMiss)]);
}

#[test]
fn what_fails_behind_a_patch_cable_fails_there_alone() {
    let mut r = rig();
    let other = second_bridge(&mut r);
    r.add(0, 1, Match::any(), vec![output(10), output(2)]);
    let resubmit = Action::Resubmit { in_port: None, table: Some(0), ct: false };
    r.control.flow_mod(other, &FlowMod::add(Match::any(), vec![resubmit]), 0).unwrap();
    assert_eq!(r.actions(&packet(101)), [out(2)]);
    r.add(0, 1, Match::any(), vec![output(10)]);
    assert_eq!(r.actions(&packet(101)), [DpAction::Drop(DropReason::ResubmitDepth)]);
}

/// The other bridge sees no tracking result, and what it does with the tracker this bridge does not see.
#[test]
fn tracking_results_stay_on_their_side_of_a_patch_cable() {
    let mut r = rig();
    r.control.accept_debug_actions();
    let other = second_bridge(&mut r);
    let ct = |table| {
        Action::Ct(Box::new(flow::action::Ct {
            commit: false,
            force: false,
            zone: flow::action::CtZone::Is(0),
            table: Some(table),
            alg: 0,
            actions: vec![],
        }))
    };
    let resubmit = |table| Action::Resubmit { in_port: None, table: Some(table), ct: false };
    r.add(0, 1, Match::any().with(FieldId::EthType, 0x800), vec![ct(1)]);
    r.add(1, 1, Match::any(), vec![output(10), Action::DebugRecirc, resubmit(2)]);
    let tracked = Match::any().with_masked(FieldId::CtState, 0x20, 0x20);
    r.add(2, 2, tracked, vec![output(2)]);
    let there = |table_id, priority, matching, actions| FlowMod {
        table_id,
        priority,
        ..FlowMod::add(matching, actions)
    };
    let tracked = Match::any().with_masked(FieldId::CtState, 0x20, 0x20);
    for fm in [
        there(0, 1, Match::any(), vec![Action::DebugRecirc, resubmit(1)]),
        there(1, 1, Match::any(), vec![output(5)]),
        there(1, 2, tracked, vec![]),
    ] {
        r.control.flow_mod(other, &fm, 0).unwrap();
    }
    let first = r.actions(&packet(101));
    let [DpAction::Ct(_), DpAction::Recirc(id)] = first[..] else { panic!("{first:?}") };
    let mut key = packet(101);
    key.set(FieldId::RecircId, u128::from(id));
    key.set(FieldId::CtState, 0x22);
    let second = r.actions(&key);
    let [DpAction::Clone(apart), DpAction::Recirc(here)] = &second[..] else { panic!("{second:?}") };
    let [DpAction::CtClear, DpAction::Recirc(beyond)] = apart[..] else { panic!("{second:?}") };
    key.set(FieldId::RecircId, u128::from(*here));
    assert_eq!(r.actions(&key), [out(2)]);
    key.set(FieldId::RecircId, u128::from(beyond));
    key.set(FieldId::CtState, 0);
    assert_eq!(r.actions(&key), [DpAction::Output(PortNo(105))]);
}

#[test]
fn an_action_set_behind_a_patch_cable_is_not_the_reason_of_later_packet_ins() {
    use flow::action::PacketInReason::Action as ByAction;
    let mut r = rig();
    let other = second_bridge(&mut r);
    let to_controller = Action::Output { port: OfPort::CONTROLLER, max_len: 0 };
    r.add(0, 1, Match::any(), vec![output(10), to_controller]);
    let fm = FlowMod::add(Match::any(), vec![Action::WriteActions(vec![output(5)])]);
    r.control.flow_mod(other, &fm, 0).unwrap();
    let actions = r.actions(&packet(101));
    let [DpAction::Output(PortNo(105)), DpAction::PacketIn(spec)] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(spec.reason, ByAction);
}

#[test]
fn what_is_metered_and_dropped_behind_a_patch_cable_is_metered_all_the_same() {
    use openflow::message::{Band, BandType, MeterCommand, MeterConfig, MeterFlags, MeterMod};
    let mut r = rig();
    let other = second_bridge(&mut r);
    let band = Band { kind: BandType::Drop, rate: 1, burst_size: 1 };
    let meter = MeterConfig { meter_id: 7, flags: MeterFlags::KBPS, bands: vec![band] };
    r.control.meter_mod(other, &MeterMod { command: MeterCommand::Add, meter }, 0).unwrap();
    r.control.flow_mod(other, &FlowMod::add(Match::any(), vec![Action::Meter(7)]), 0).unwrap();
    r.add(0, 1, Match::any(), vec![output(10)]);
    let actions = r.actions(&packet(101));
    assert!(matches!(actions[..], [DpAction::Meter(_), DpAction::Drop(_)]), "{actions:?}");
}

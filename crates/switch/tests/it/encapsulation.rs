//! `encap` and `decap`: what the datapath is told to do to packets whose type changes.

use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use base::{DropReason, OfPort, PortNo};
use datapath::{DpAction, Pipeline, Translation};
use flow::action::NshProperty;
use flow::{Action, FieldId, Key, Match, Mf};
use std::sync::Arc;
use switch::control::FlowMod;
use switch::{BridgeConfig, BridgeIdx, Control, PortSpec, Switch};

const ETHERNET: u32 = 0;
const IPV4: u32 = 0x1_0800;
const NSH: u32 = 0x1_894f;
const MPLS: u32 = 0x1_8847;

struct Rig {
    control: Control,
    switch: Arc<Switch>,
    reader: Reader,
    br: BridgeIdx,
    rules: i32,
}

/// A bridge with ports 1 and 2, whose only rule has these actions.
fn rig(actions: Vec<Action>) -> Rig {
    let domain = Domain::new();
    let (switch, mut control) = Control::new(domain.clone(), HashKey::from_seed(5));
    let br = control.add_bridge(BridgeConfig::new("br0"));
    for n in 1..=2u16 {
        control.add_port(br, PortSpec::new(PortNo(100 + u32::from(n)), OfPort(n), &format!("p{n}"))).unwrap();
    }
    let mut rig = Rig { control, switch, reader: domain.register(), br, rules: 0 };
    rig.add(0, Match::any(), actions);
    rig
}

impl Rig {
    fn add(&mut self, table_id: u8, matching: Match, actions: Vec<Action>) {
        self.rules += 1;
        let flow_mod = FlowMod { table_id, priority: self.rules, ..FlowMod::add(matching, actions) };
        self.control.flow_mod(self.br, &flow_mod, 0).expect("a good rule");
    }

    fn actions(&self, key: &Key) -> Vec<DpAction> {
        let mut out = Translation::default();
        self.switch.translate(self.switch.version(), key, &self.reader, &mut out);
        out.actions
    }
}

fn encap(packet_type: u32) -> Action {
    Action::Encap { packet_type, header_size: 0, properties: vec![] }
}

fn decap() -> Action {
    Action::Decap { packet_type: Action::USE_NEXT_PROTO }
}

fn output(port: u16) -> Action {
    Action::Output { port: OfPort(port), max_len: 0 }
}

fn set(field: Mf, value: u128) -> Action {
    Action::SetField { field, value, mask: field.ones() }
}

fn packet() -> Key {
    let mut key = Key::default();
    for (field, value) in [
        (FieldId::DpPort, 101),
        (FieldId::InPort, 1),
        (FieldId::EthType, 0x0800),
        (FieldId::EthSrc, 0x0a01),
        (FieldId::EthDst, 0x0b00),
        (FieldId::NwSrc, 0x0a00_0001),
        (FieldId::NwProto, 17),
        (FieldId::NwTtl, 64),
    ] {
        key.set(field, value);
    }
    key
}

/// A packet that comes back without Ethernet header.
fn bare(packet_type: u32, recirc_id: u32) -> Key {
    let mut key = Key::default();
    for (field, value) in [
        (FieldId::DpPort, 101),
        (FieldId::InPort, 1),
        (FieldId::RecircId, recirc_id),
        (FieldId::PacketType, packet_type),
        (FieldId::EthType, packet_type & 0xffff),
    ] {
        key.set(field, value.into());
    }
    key
}

#[test]
fn fields_that_are_set_before_the_header_is_pushed_are_pushed_with_it() {
    let r = rig(vec![
        set(Mf::EthSrc, 7),
        encap(NSH),
        set(Mf::NshSpi, 0x1234),
        set(Mf::NshC1, 0x1122_3344),
        encap(ETHERNET),
        set(Mf::EthDst, 9),
        output(2),
    ]);
    let mut header = vec![0x0f, 0xc6, 1, 3, 0, 0x12, 0x34, 0xff, 0x11, 0x22, 0x33, 0x44];
    header.resize(24, 0);
    let expected = [
        // Of the packet within, what was set before.
        DpAction::Set { field: FieldId::EthSrc, value: 7, mask: 0xffff_ffff_ffff },
        DpAction::PushNsh(header.into()),
        DpAction::PushEth { src: 0, dst: 9, eth_type: 0x894f },
        DpAction::Output(PortNo(102)),
    ];
    assert_eq!(r.actions(&packet()), expected);
}

#[test]
fn context_headers_of_variable_length_are_padded_to_words() {
    let tlv = |class, kind, value: &[u8]| NshProperty::Tlv { class, kind, value: value.to_vec() };
    let properties = vec![NshProperty::MdType(2), tlv(0x1000, 10, &[1, 2, 3, 4]), tlv(0x2000, 20, &[5])];
    let with = |properties| Action::Encap { packet_type: NSH, header_size: 0, properties };
    let header_of = |properties| {
        let r = rig(vec![with(properties), encap(ETHERNET), output(2)]);
        match r.actions(&packet()).first() {
            Some(DpAction::PushNsh(header)) => header.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    let expected = [0x0f, 0xc6, 2, 3, 0, 0, 0, 0xff, 0x10, 0, 10, 4, 1, 2, 3, 4, 0x20, 0, 20, 1, 5, 0, 0, 0];
    assert_eq!(header_of(properties), expected);
    // More than a header has room for.
    let many = (0..3).map(|n| tlv(1, n, &[0; 100]));
    let many = [NshProperty::MdType(2)].into_iter().chain(many).collect();
    assert_eq!(header_of(many), [0x0f, 0xc2, 2, 3, 0, 0, 0, 0xff]);
}

#[test]
fn a_metadata_type_that_does_not_exist_makes_a_header_without_metadata() {
    for kind in [0, 3, 15, 16, 255] {
        let tlv = NshProperty::Tlv { class: 1, kind: 1, value: vec![1] };
        let properties = vec![NshProperty::MdType(kind), tlv];
        let encap_nsh = Action::Encap { packet_type: NSH, header_size: 0, properties };
        let actions = rig(vec![encap_nsh, encap(ETHERNET), output(2)]).actions(&packet());
        let Some(DpAction::PushNsh(header)) = actions.first() else { panic!("{kind}: {actions:?}") };
        assert_eq!(header[..], [0x0f, 0xc2, 0, 3, 0, 0, 0, 0xff], "{kind}");
    }
}

#[test]
fn an_ethernet_header_that_goes_hides_the_packet_from_ports_until_another_comes() {
    let r = rig(vec![decap(), output(2)]);
    assert_eq!(r.actions(&packet()), [DpAction::Drop(DropReason::UnsupportedPacketType)]);
    let mut r = rig(vec![]);
    let ip = Match::any().with(FieldId::EthType, 0x800);
    r.add(0, ip, vec![decap(), set(Mf::NwSrc, 1), encap(ETHERNET), set(Mf::EthSrc, 3), output(2)]);
    let expected = [
        DpAction::PopEth { eth_type: 0x800 },
        DpAction::Set { field: FieldId::NwSrc, value: 1, mask: 0xffff_ffff },
        DpAction::PushEth { src: 3, dst: 0, eth_type: 0x800 },
        DpAction::Output(PortNo(102)),
    ];
    assert_eq!(r.actions(&packet()), expected);
}

#[test]
fn what_lies_behind_a_service_header_is_read_before_it_is_looked_up() {
    let mut r = rig(vec![decap(), decap(), Action::GotoTable(1)]);
    r.add(1, Match::any().with(FieldId::EthType, 0x800), vec![output(2)]);
    let mut nsh = packet();
    nsh.set(FieldId::EthType, 0x894f);
    for (protocol, packet_type) in [(1, IPV4), (2, 0x1_86dd), (3, ETHERNET), (4, NSH)] {
        nsh.set(FieldId::NshNp, protocol);
        let actions = r.actions(&nsh);
        let [DpAction::PopEth { eth_type: 0x894f }, DpAction::PopNsh { packet_type: found }, recirc] =
            &actions[..]
        else {
            panic!("{actions:?}")
        };
        assert_eq!(*found, packet_type);
        let DpAction::Recirc(id) = recirc else { panic!("{actions:?}") };
        // Back as a frame, it matches what frames match.
        let mut frame = packet();
        frame.set(FieldId::RecircId, u128::from(*id));
        assert_eq!(r.actions(&frame), [DpAction::Output(PortNo(102))]);
    }
    nsh.set(FieldId::NshNp, 9);
    assert_eq!(r.actions(&nsh), [DpAction::Drop(DropReason::UnsupportedPacketType)]);
}

#[test]
fn a_label_around_a_frame_is_told_from_one_within() {
    let r = rig(vec![encap(MPLS), set(Mf::MplsLabel, 5), encap(ETHERNET), output(2)]);
    let expected = [
        DpAction::AddMpls { eth_type: 0x8847, lse: 5 << 12 | 0x100 | 64 },
        DpAction::PushEth { src: 0, dst: 0, eth_type: 0x8847 },
        DpAction::Output(PortNo(102)),
    ];
    let mut labelled = packet();
    labelled.set(FieldId::EthType, 0x8847);
    labelled.set(FieldId::Mpls0, 0x0001_0140);
    assert_eq!(r.actions(&packet()), expected);
    assert_eq!(r.actions(&labelled), expected);

    let r = rig(vec![decap(), Action::Decap { packet_type: ETHERNET }, output(2)]);
    let actions = r.actions(&labelled);
    let [DpAction::PopEth { .. }, DpAction::PopMpls { eth_type: 0x6558 }, DpAction::Recirc(_)] = actions[..]
    else {
        panic!("{actions:?}")
    };
    // No label says what is in front of the bottom of the stack.
    let r = rig(vec![decap(), decap(), output(2)]);
    assert_eq!(r.actions(&labelled), [DpAction::Drop(DropReason::UnsupportedPacketType)]);
    labelled.set(FieldId::Mpls0, 0x0001_0040);
    labelled.set(FieldId::Mpls1, 0x0001_0040);
    labelled.set(FieldId::Mpls2, 0x0001_0040);
    assert_eq!(r.actions(&labelled), [DpAction::Drop(DropReason::MplsLabelLimit)]);
}

#[test]
fn a_pop_to_what_is_no_label_takes_all_labels() {
    let labelled = |labels: &[u128]| {
        let mut key = packet();
        key.set(FieldId::EthType, 0x8847);
        for (field, &label) in [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2].into_iter().zip(labels) {
            key.set(field, label);
        }
        key
    };
    let (label, bottom) = (0x0001_0040, 0x0001_0140);
    let pop = |eth_type| DpAction::PopMpls { eth_type };
    let out = DpAction::Output(PortNo(102));
    let pops = |eth_type| {
        let mut r = rig(vec![]);
        r.add(0, Match::any().with(FieldId::EthType, 0x8847), vec![Action::PopMpls(eth_type), output(2)]);
        r
    };
    let r = pops(0x800);
    assert_eq!(r.actions(&labelled(&[bottom])), [pop(0x800), out.clone()]);
    assert_eq!(r.actions(&labelled(&[label, bottom])), [pop(0x8847), pop(0x800), out.clone()]);
    let three = labelled(&[label, label, bottom]);
    assert_eq!(r.actions(&three), [pop(0x8847), pop(0x8847), pop(0x800), out.clone()]);
    // Nothing says how many follow the third.
    let four = labelled(&[label, label, label]);
    assert_eq!(r.actions(&four), [DpAction::Drop(DropReason::MplsLabelLimit)]);
    assert_eq!(pops(0x8848).actions(&four), [pop(0x8848), out]);
}

#[test]
fn headers_that_do_not_fit_the_packet_drop_it() {
    let dropped = [DpAction::Drop(DropReason::UnsupportedPacketType)];
    let r = rig(vec![encap(ETHERNET), output(2)]);
    assert_eq!(r.actions(&packet()), dropped);
    let r = rig(vec![Action::PushVlan(0x8100), decap(), encap(ETHERNET), output(2)]);
    assert_eq!(r.actions(&packet()), dropped);
    let r = rig(vec![decap(), decap(), output(2)]);
    assert_eq!(r.actions(&packet()), dropped, "behind IPv4 is nothing that begins a packet");
}

#[test]
fn a_packet_without_a_link_layer_teaches_the_learning_switch_nothing() {
    let normal = || Action::Output { port: OfPort::NORMAL, max_len: 0 };
    let effects = |actions| {
        let (r, mut out) = (rig(actions), Translation::default());
        r.switch.translate(r.switch.version(), &packet(), &r.reader, &mut out);
        (out.effects.len(), out.actions.last().cloned())
    };
    assert_eq!(effects(vec![normal()]), (1, Some(DpAction::Output(PortNo(102)))));
    let dropped = DpAction::Drop(DropReason::UnsupportedPacketType);
    assert_eq!(effects(vec![decap(), normal()]), (0, Some(dropped)));
}

#[test]
fn what_is_done_in_another_bucket_or_clone_does_not_reach_the_packet() {
    let r =
        rig(vec![Action::Clone(vec![encap(NSH), encap(ETHERNET), output(2)]), set(Mf::EthDst, 5), output(2)]);
    let actions = r.actions(&packet());
    let [DpAction::Clone(inner), DpAction::Set { field: FieldId::EthDst, value: 5, .. }, DpAction::Output(_)] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    let [DpAction::PushNsh(_), DpAction::PushEth { .. }, DpAction::Output(_)] = inner[..] else {
        panic!("{inner:?}")
    };
}

#[test]
fn rules_match_the_packet_type_that_they_name() {
    let mut r = rig(vec![encap(NSH), encap(NSH), encap(ETHERNET), decap(), decap(), Action::GotoTable(1)]);
    r.add(1, Match::any().with(FieldId::PacketType, NSH.into()), vec![encap(ETHERNET), output(2)]);
    let actions = r.actions(&packet());
    let Some(DpAction::Recirc(id)) = actions.last() else { panic!("{actions:?}") };
    let expected = [DpAction::PushEth { src: 0, dst: 0, eth_type: 0x894f }, DpAction::Output(PortNo(102))];
    assert_eq!(r.actions(&bare(NSH, *id)), expected);
    let mut frame = packet();
    frame.set(FieldId::RecircId, u128::from(*id));
    assert_eq!(r.actions(&frame), [DpAction::Drop(DropReason::TableMiss)]);
}

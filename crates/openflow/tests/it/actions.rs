//! The table of actions, and what its rows promise.

use flow::action::SubField;
use flow::{Action, Mf};
use openflow::message::{FlowForm, FlowInfo, FlowMod, FlowStats, StatsBody, StatsReply};
use openflow::text::{ActionsIn, PortNames, actions_text, parse_actions};
use openflow::{Codec, ErrorKind, Message, Version};

#[test]
fn a_load_is_a_masked_set_field_in_openflow_15() {
    let target = SubField { field: Mf::Reg(1), offset: 4, count: 16 };
    let load = Action::Load { target, value: 5, as_set_field: false };
    for version in Version::ALL {
        let codec = Codec::new(version);
        let expected = match version {
            Version::V15 => Action::SetField { field: Mf::Reg(1), value: 0x50, mask: 0xf_fff0 },
            _ => load.clone(),
        };
        assert_eq!(
            codec.decode_actions(&codec.encode_actions(std::slice::from_ref(&load))),
            Ok(vec![expected])
        );
    }
}

#[test]
fn a_meter_is_an_instruction_that_is_read_before_13_and_not_written() {
    let meter = [0, 6, 0, 8, 0, 0, 0, 9];
    let longer = [0, 6, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
    for version in [Version::V11, Version::V12, Version::V13, Version::V14] {
        let codec = Codec::new(version);
        assert_eq!(codec.decode_instructions(&meter), Ok(vec![Action::Meter(9)]), "{version:?}");
        assert_eq!(codec.decode_instructions(&longer), Err(ErrorKind::OFPBIC_BAD_LEN), "{version:?}");
        let written = codec.encode_instructions(&[Action::Meter(9)]);
        assert_eq!(written == meter, version >= Version::V13, "{version:?}");
    }
}

#[test]
fn dec_ttl_that_tells_nobody_is_told_from_one_that_tells_controller_0() {
    let codec = Codec::new(Version::V15);
    let mut bytes = vec![0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 21];
    bytes.resize(16, 0);
    let nobody = Action::DecTtl(Some(Vec::new()));
    assert_eq!(codec.decode_actions(&bytes), Ok(vec![nobody.clone()]));
    assert_eq!(actions_text(&[nobody], Version::V15, PortNames::none()), "dec_ttl()");
}

#[test]
fn no_nat_range_begins_with_zero() {
    let parse = |range: &str| {
        let text = format!("ct(commit,nat(src={range}))");
        let actions = parse_actions(&text, ActionsIn::List, PortNames::none())?;
        let codec = Codec::new(Version::V13);
        let sent = codec.decode_actions(&codec.encode_actions(&actions)).unwrap();
        Ok::<_, openflow::text::TextError>(actions_text(&sent, Version::V13, PortNames::none()))
    };
    let refused = [
        "1.2.3.4:0-5",
        "0.0.0.0-1.1.1.1",
        "0.0.0.0:5",
        "0.0.0.0:80-90",
        "::-::5",
        "[::]:80",
        "[::]-[::5]:80",
    ];
    for range in refused {
        assert_eq!(parse(range).unwrap_err().message, format!("invalid nat range \"{range}\""));
    }
    for (range, sent) in [("1.2.3.4:0", "src=1.2.3.4"), ("1.2.3.4:0-0", "src=1.2.3.4"), ("0.0.0.0", "src")] {
        assert_eq!(parse(range).unwrap(), format!("ct(commit,nat({sent}))"));
    }
}

#[test]
fn every_reason_of_a_packet_in_is_read_back_as_printed() {
    let mut said = Vec::new();
    for number in 0..6 {
        let bytes = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 20, 0xff, 0xff, 0, 7, number, 0];
        let read = Codec::new(Version::V13).decode_actions(&bytes).unwrap();
        let text = actions_text(&read, Version::V13, PortNames::none());
        assert_eq!(parse_actions(&text, ActionsIn::List, PortNames::none()).ok(), Some(read), "{text}");
        said.push(text);
    }
    assert_eq!(said[4], "controller(reason=group,id=7)");
    assert!(parse_actions("controller(reason=none,id=7)", ActionsIn::List, PortNames::none()).is_err());
}

/// Open vSwitch takes as much of a constant as it needs, and its client writes `vlan_vid=0x1005` so.
#[test]
fn bits_of_a_learned_constant_that_do_not_count_are_left_out() {
    let codec = Codec::new(Version::V10);
    let learn = |spec: &[u8]| {
        let mut bytes = vec![0xff, 0xff, 0, 48, 0, 0, 0x23, 0x20, 0, 16, 0, 0, 0, 0, 0x80, 0];
        bytes.resize(26, 0);
        bytes.extend([1, 0, 0, 0, 0, 0]);
        bytes.extend(spec);
        bytes.resize(48, 0);
        let read = codec.decode_actions(&bytes).unwrap();
        actions_text(&read, Version::V10, PortNames::none())
    };
    let vid = learn(&[0x20, 12, 0x10, 5, 0x80, 0, 12, 2, 0, 0]);
    assert_eq!(vid, "learn(table=1,vlan_vid=5)");
    assert_eq!(learn(&[0x20, 4, 0, 0xff, 0, 1, 0, 4, 0, 0]), "learn(table=1,NXM_NX_REG0[0..3]=0xf)");
    let read = |text: &str| parse_actions(text, ActionsIn::List, PortNames::none()).ok();
    assert_eq!(read("learn(table=1,vlan_vid=0x1005)"), read(&vid));
    assert!(read(&vid).is_some());
    for refused in ["learn(table=1,vlan_vid=0x2005)", "learn(table=1,OXM_OF_VLAN_VID[0..10]=0x1005)"] {
        assert_eq!(read(refused), None, "{refused}");
    }
}

/// A rule of OpenFlow 1.0 as other versions show it.
#[test]
fn a_tag_is_pushed_once_also_where_an_action_is_within_another() {
    let any = openflow::text::parse_match("", PortNames::none()).unwrap();
    let tagged = openflow::text::parse_match("dl_vlan=3", PortNames::none()).unwrap();
    let tcp = openflow::text::parse_match("tcp", PortNames::none()).unwrap();
    let vid = |vid| Action::SetVlanVid { vid, push_vlan_if_needed: true };
    let set = |vid: u128| Action::SetField { field: Mf::VlanVid, value: 0x1000 | vid, mask: 0x1fff };
    let push = || Action::PushVlan(0x8100);
    let load = |value| {
        let target = SubField { field: Mf::VlanTci, offset: 0, count: 16 };
        Action::Load { target, value, as_set_field: false }
    };
    let port = Action::SetField { field: Mf::TcpDst, value: 80, mask: 0xffff };
    for (matching, actions, expected) in [
        (&any, vec![Action::Clone(vec![vid(6)])], vec![Action::Clone(vec![push(), set(6)])]),
        (&any, vec![vid(5), Action::Clone(vec![vid(6)])], vec![push(), set(5), Action::Clone(vec![set(6)])]),
        (
            &any,
            vec![Action::Clone(vec![vid(6)]), vid(5)],
            vec![Action::Clone(vec![push(), set(6)]), push(), set(5)],
        ),
        (&tagged, vec![Action::Clone(vec![vid(6)])], vec![Action::Clone(vec![set(6)])]),
        (&any, vec![load(0x1005), vid(6)], vec![load(0x1005), set(6)]),
        (&tagged, vec![load(0), vid(6)], vec![load(0), push(), set(6)]),
        (&tcp, vec![Action::Clone(vec![Action::SetTpDst(80)])], vec![Action::Clone(vec![port])]),
    ] {
        let (info, matching) = (FlowInfo::default(), matching.clone());
        let flow = FlowStats { info, matching, actions: actions.clone() };
        let body = StatsBody::Flow { flows: vec![flow], form: FlowForm::Standard };
        let codec = Codec::new(Version::V13);
        let bytes = codec.encode(1, &Message::StatsReply(StatsReply { more: false, body })).unwrap();
        let Ok((_, Message::StatsReply(StatsReply { body: StatsBody::Flow { flows, .. }, .. }))) =
            codec.decode(&bytes)
        else {
            panic!("{bytes:02x?}")
        };
        assert_eq!(flows[0].actions, expected, "{actions:?}");
    }
}

#[test]
fn what_a_version_leaves_out_is_named_wherever_it_is() {
    let push = || Action::PushVlan(0x8100);
    for (version, actions, expected) in [
        (Version::V10, vec![push()], Some("push_vlan")),
        (Version::V10, vec![Action::Clone(vec![Action::Clone(vec![push()])])], Some("push_vlan")),
        (Version::V11, vec![Action::Clone(vec![push()])], None),
        (Version::V10, vec![Action::WriteActions(vec![Action::CtClear])], Some("write_actions")),
        (Version::V11, vec![Action::WriteActions(vec![push()])], None),
        (Version::V12, vec![Action::Meter(1)], Some("meter")),
        (Version::V13, vec![Action::Meter(1)], None),
        (Version::V15, vec![Action::Meter(1)], None),
    ] {
        assert_eq!(openflow::left_out(version, &actions), expected, "{version} {actions:?}");
    }
}

/// The stock client and switch say so too, and whoever reads it refuses it.
#[test]
fn an_action_of_later_versions_alone_is_written_rather_than_left_out() {
    for action in [
        Action::DecNshTtl,
        Action::Decap { packet_type: 1 },
        Action::Encap { packet_type: 0x1_8847, header_size: 0, properties: Vec::new() },
    ] {
        for version in Version::ALL {
            let codec = Codec::new(version);
            let bytes = codec.encode_actions(std::slice::from_ref(&action));
            assert_eq!(bytes, Codec::new(Version::V13).encode_actions(std::slice::from_ref(&action)));
            let read = codec.decode_actions(&bytes);
            let expected = match version {
                Version::V10 | Version::V11 | Version::V12 => Err(ErrorKind::OFPBAC_BAD_VENDOR_TYPE),
                _ => Ok(vec![action.clone()]),
            };
            assert_eq!(read, expected, "{version}");
        }
    }
}

/// The match of OpenFlow 1.1 knows IPv6 by its Ethernet type alone: what is in it goes in another form.
#[test]
fn ports_over_ipv6_are_read_back_in_openflow_11() {
    let codec = Codec::new(Version::V11);
    let known = |text: &str| openflow::text::parse_match(text, PortNames::none()).unwrap();
    for (text, kind) in [("ipv6", 0), ("ipv6,nw_tos=16", 1), ("udp6,udp_dst=5", 1), ("udp,udp_dst=5", 0)] {
        let mut flow_mod = FlowMod::add();
        (flow_mod.table_id, flow_mod.matching) = (0, known(text));
        let bytes = codec.encode(1, &Message::FlowMod(Box::new(flow_mod.clone()))).unwrap();
        assert_eq!(bytes[48..50], [0, kind], "{text}: OFPMT_STANDARD or OFPMT_OXM");
        let Ok((_, Message::FlowMod(read))) = codec.decode(&bytes) else { panic!("{text}") };
        assert_eq!(read.matching, flow_mod.matching, "{text}");
    }
}

#[test]
fn the_document_has_the_tables_of_messages_statistics_fields_actions_and_errors() {
    let path = testkit::root().join("docs/openflow.md");
    let mut document = std::fs::read_to_string(&path).unwrap();
    let tables = [
        ("messages", openflow::codec::messages_table()),
        ("statistics", openflow::codec::statistics_table()),
        ("fields", openflow::codec::fields_table()),
        ("actions", openflow::actions_table()),
        ("errors", openflow::codec::errors_table()),
    ];
    for (name, table) in tables {
        let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
        let from = document.find(&begin).expect("a marker where the table begins") + begin.len();
        let to = document.find(&end).expect("a marker where the table ends");
        let table = format!("\n{table}\n");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            document.replace_range(from..to, &table);
            continue;
        }
        assert_eq!(document[from..to], table, "run this test with UPDATE_DOCS=1 to renew docs/openflow.md");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, document).unwrap();
    }
}

//! Messages that no client sends, and requests in several parts: both switches answer alike.

use crate::actions_beside_stock::Both;
use flow::action::SubField;
use flow::{Action, Mf};
use openflow::message::FlowMod;
use openflow::{Codec, Message, Version};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

#[test]
fn messages_that_no_client_sends_are_answered_as_by_the_stock_switch() {
    let both = Both::start();
    let flow_mod = |command: u8| {
        let mut message = vec![4, 14, 0, 56, 0, 0, 0, 9];
        message.extend([0; 16]);
        message.extend([255, command, 0, 0, 0, 0, 0, 5]);
        message.extend([0xff; 12]);
        message.extend([0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
        message
    };
    let pop_vlan = {
        let mut message = vec![4, 14, 0, 80, 0, 0, 0, 9];
        message.extend([0; 16]);
        message.extend([0, 0, 0, 0, 0, 0, 0, 5]);
        message.extend([0xff; 12]);
        message.extend([0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
        message.extend([0, 4, 0, 24, 0, 0, 0, 0, 0, 18, 0, 8, 0, 0, 0, 0, 0, 17, 0, 8, 0x81, 0, 0, 0]);
        message
    };
    // NXT_FLOW_MOD, whose command names a table in its upper half.
    let nicira_flow_mod = |command: u8| {
        let mut message = vec![4, 4, 0, 48, 0, 0, 0, 9, 0, 0, 0x23, 0x20, 0, 0, 0, 13];
        message.extend([0; 8]);
        message.extend([7, command, 0, 0, 0, 0, 0, 5]);
        message.extend([0xff; 6]);
        message.extend([0; 10]);
        message
    };
    let applied = |actions: &[Action]| {
        let flow_mod = FlowMod { table_id: 0, actions: actions.to_vec(), ..FlowMod::add() };
        Codec::new(Version::V13).encode(9, &Message::FlowMod(Box::new(flow_mod))).unwrap()
    };
    let whole = |field: Mf| SubField { field, offset: 0, count: field.row().subfield_bits };
    let load = |field: Mf| applied(&[Action::Load { target: whole(field), value: 1, as_set_field: false }]);
    let set = |field: Mf| applied(&[Action::SetField { field, value: 1, mask: field.ones() }]);
    let moved = Action::Move { source: whole(Mf::Reg(0)), target: whole(Mf::CtMark) };
    let push = || Action::PushVlan(0x8100);
    let bad_set = vec![(2, 15)];
    let table_mod = |table: u8| vec![4, 17, 0, 16, 0, 0, 0, 9, table, 0, 0, 0, 0, 0, 0, 3];
    let bad_table = vec![(5, 2)];
    for (what, message, expected) in [
        ("ADD to all tables", flow_mod(0), &bad_table),
        ("MODIFY in all tables", flow_mod(1), &bad_table),
        ("MODIFY_STRICT in all tables", flow_mod(2), &bad_table),
        ("DELETE in all tables", flow_mod(3), &vec![]),
        ("DELETE_STRICT in all tables", flow_mod(4), &vec![]),
        ("ADD to table 7 in Nicira's form", nicira_flow_mod(0), &vec![]),
        ("an unknown command in Nicira's form", nicira_flow_mod(9), &vec![(5, 6)]),
        ("pop_vlan without a tag", pop_vlan, &vec![(2, 10)]),
        ("ct_mark set", set(Mf::CtMark), &bad_set),
        ("ct_label set", set(Mf::CtLabel), &bad_set),
        ("ct_mark loaded", load(Mf::CtMark), &bad_set),
        ("ct_mark moved to", applied(&[moved]), &bad_set),
        ("ct_mark popped", applied(&[Action::StackPop(whole(Mf::CtMark))]), &vec![]),
        ("two tags", applied(&[push(), push()]), &vec![]),
        ("three tags", applied(&[push(), push(), push()]), &vec![(2, 12)]),
        ("a third for one that went", applied(&[push(), push(), Action::PopVlan, push()]), &vec![]),
        (
            "three tags in the set",
            applied(&[Action::WriteActions(vec![push(), push(), push()])]),
            &vec![(2, 12)],
        ),
        ("TABLE_MOD of table 253", table_mod(253), &vec![]),
        ("TABLE_MOD of table 254", table_mod(254), &vec![(8, 2)]),
        ("TABLE_MOD of all tables", table_mod(255), &vec![]),
    ] {
        let answers = both.directories().map(|dir| errors(dir, &message));
        assert_eq!(answers, [expected.clone(), expected.clone()], "{what}");
    }
}

#[test]
fn requests_in_several_parts_are_answered_as_by_the_stock_switch() {
    let both = Both::start();
    let part = |xid: u8, kind: u8, more: u8| vec![4, 18, 0, 16, 0, 0, 0, xid, 0, kind, 0, more, 0, 0, 0, 0];
    // OFPMP_DESC is 0, OFPMP_TABLE 3.
    for (what, parts, expected) in [
        ("a part alone", vec![part(7, 0, 1)], vec![]),
        ("two parts", vec![part(7, 0, 1), part(7, 0, 0)], vec![(19, 7)]),
        ("three parts", vec![part(7, 0, 1), part(7, 0, 1), part(7, 0, 0)], vec![(19, 7)]),
        ("another between", vec![part(7, 0, 1), part(8, 0, 0), part(7, 0, 0)], vec![(19, 8), (19, 7)]),
        ("parts of two kinds", vec![part(7, 0, 1), part(7, 3, 0)], vec![(1, 7)]),
        ("an unknown kind", vec![part(7, 99, 1)], vec![(1, 7)]),
        ("another flag", vec![part(7, 0, 2)], vec![(19, 7)]),
    ] {
        let message = parts.concat();
        for dir in both.directories() {
            let answers: Vec<_> =
                answers(dir, &message).into_iter().map(|(kind, xid, _)| (kind, xid)).collect();
            assert_eq!(answers, expected, "{what}, {}", dir.display());
        }
    }
    // The error of OpenFlow 1.3 for parts that do not come is an experimenter's.
    for dir in both.directories() {
        let mut stream = UnixStream::connect(dir.join("br0.mgmt")).unwrap();
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        stream.write_all(&[&[4, 0, 0, 8, 0, 0, 0, 1], &part(7, 0, 1)[..]].concat()).unwrap();
        let (_, body) =
            std::iter::repeat_with(|| read_message(&mut stream)).find(|(h, _)| h[1] == 1).unwrap();
        assert_eq!(body[..8], [0xff, 0xff, 0x0a, 0x50, 0x4f, 0x4e, 0x46, 0], "{}", dir.display());
    }
}

fn read_message(stream: &mut UnixStream) -> ([u8; 8], Vec<u8>) {
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - 8];
    stream.read_exact(&mut body).unwrap();
    (header, body)
}

/// Type and code of the errors that a switch answers a message of OpenFlow 1.3 with.
fn errors(dir: &Path, message: &[u8]) -> Vec<(u16, u16)> {
    let errors = answers(dir, message).into_iter().filter(|(kind, _, _)| *kind == 1);
    errors.map(|(_, _, b)| (u16::from_be_bytes([b[0], b[1]]), u16::from_be_bytes([b[2], b[3]]))).collect()
}

/// Type, last byte of the transaction id, and body of what a switch answers messages of OpenFlow 1.3 with.
fn answers(dir: &Path, messages: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let mut stream = UnixStream::connect(dir.join("br0.mgmt")).unwrap();
    stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
    stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    stream.write_all(messages).unwrap();
    // When the echo comes back, all else has.
    stream.write_all(&[4, 2, 0, 8, 0, 0, 0, 0xee]).unwrap();
    let mut answers = vec![];
    loop {
        let (header, body) = read_message(&mut stream);
        match header[1] {
            3 => return answers,
            // Hellos and what the switch asks by itself.
            0 | 2 => {}
            kind => answers.push((kind, header[7], body)),
        }
    }
}

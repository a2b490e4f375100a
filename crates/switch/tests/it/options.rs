//! Tunnel options: matches, actions, and the table that maps them.

use crate::rig::*;
use flow::action::{Ct, CtZone};

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

/// Half of an option goes to the end of a longer one.
#[test]
fn options_of_any_length_are_pushed_and_popped_whole() {
    let mut rig = rig();
    let row = |idx, bytes| Mapping { class: 0xffff, kind: idx, bytes, idx };
    rig.control.map_options(rig.br, &[row(0, 64), row(1, 124)]).unwrap();
    let sub = |idx, offset, count| SubField { field: Mf::TunMetadata(idx), offset, count };
    let to_reg = |n, count| SubField { field: Mf::Reg(n), offset: 0, count };
    let mut value = [0; 64];
    (value[1], value[63]) = (3, 2);
    let value = Box::new(Wide::from_be_bytes(&value).unwrap());
    let moves = vec![
        Action::SetOption { idx: 0, value, mask: Box::new(Wide::ONES) },
        Action::StackPush(sub(0, 0, 512)),
        Action::StackPush(sub(0, 0, 16)),
        Action::StackPop(to_reg(1, 16)),
        Action::StackPop(sub(1, 480, 512)),
        Action::Move { source: sub(1, 976, 12), target: to_reg(0, 12) },
        Action::OutputReg { source: to_reg(0, 16), max_len: 0 },
        Action::Move { source: sub(1, 480, 12), target: to_reg(0, 12) },
        Action::OutputReg { source: to_reg(0, 16), max_len: 0 },
        Action::Move { source: to_reg(1, 16), target: to_reg(0, 16) },
        Action::OutputReg { source: to_reg(0, 16), max_len: 0 },
    ];
    rig.add(0, 1, Match::any(), moves);
    assert_eq!(rig.actions(&packet(101)), [out(3), out(2), out(2)]);
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
fn a_mapping_stays_while_tracking_takes_its_zone_or_its_mark_from_it() {
    let sub = |field, count| SubField { field, offset: 0, count };
    let option = |count| sub(Mf::TunMetadata(0), count);
    let track = |zone, actions| {
        Action::Ct(Box::new(Ct { commit: true, force: false, zone, table: Some(1), alg: 0, actions }))
    };
    let mark = Action::Move { source: option(32), target: sub(Mf::CtMark, 32) };
    for actions in [track(CtZone::In(option(16)), vec![]), track(CtZone::Is(0), vec![mark])] {
        let mut rig = rig();
        rig.control.map_options(rig.br, &[Mapping { class: 0xffff, kind: 0, bytes: 4, idx: 0 }]).unwrap();
        rig.add(0, 1, Match::any().with(FieldId::EthType, 0x800), vec![actions]);
        assert_eq!(rig.control.unmap_options(rig.br, None), Err(OptionError::InUse(0)));
    }
}

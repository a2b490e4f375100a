//! Random rules and groups of worlds: matches near packets that come, and actions that these can bear.

use super::chance::Chance;
use super::model::{ModelBridge, ModelRule};
use super::packets::{MACS, PORTS, random_packet};
use base::OfPort;
use flow::action::SubField;
use flow::{Action, FieldId, Match, Mf};
use openflow::message::{Bucket, GroupDesc, GroupSelection, GroupType};
use switch::control::FlowMod;

pub const TABLES: u64 = 4;

pub(super) fn random_rule(of_bridge: &ModelBridge, chance: &mut Chance, bridge: usize) -> (u8, ModelRule) {
    let table = if chance.one_in(2) { 0 } else { chance.below(TABLES) as u8 };
    let old = of_bridge.tables.get(&table).and_then(|t| t.first().cloned());
    let matching = match old {
        Some(old) if chance.one_in(8) => old.matching,
        _ => random_match(chance, bridge),
    };
    let actions = random_actions(chance, table, &matching);
    let priority = if is_clause(&actions) { 4 + chance.below(3) as i32 } else { chance.below(8) as i32 };
    (table, ModelRule { priority, matching, actions })
}

/// What asks for a rule.
pub(super) fn addition(table_id: u8, rule: &ModelRule) -> FlowMod {
    let ModelRule { priority, matching, actions } = rule.clone();
    let mut fm = FlowMod { table_id, priority, ..FlowMod::add(matching, actions) };
    // Which of two overlapping rules of one priority wins is open, so there are none.
    // But rules that are clauses must overlap, and a plain one of their priority goes before them.
    fm.flags.check_overlap = !is_clause(&rule.actions);
    fm.version = openflow::Version::V10;
    fm
}

fn random_match(chance: &mut Chance, bridge: usize) -> Match {
    let like = random_packet(chance, bridge);
    let mut m = Match::any();
    let mut take = |f: FieldId, mask: u128| m.set_masked(f, like.get(f), mask & f.ones());
    let prefix = |chance: &mut Chance| u128::from(u32::MAX << chance.below(25));
    if chance.one_in(2) {
        take(FieldId::EthType, 0xffff);
        if like.get64(FieldId::EthType) == 0x86dd {
            if chance.one_in(2) {
                take(FieldId::Ipv6ExtHdr, *chance.pick(&[1, 1 << 3, 1 << 6, 0x140, 0x1ff]));
            }
            if chance.one_in(4) {
                take(FieldId::NwProto, 0xff);
            }
            if chance.one_in(4) {
                take(FieldId::Ipv6Dst, *chance.pick(&[u128::MAX, u128::MAX << 1]));
            }
            if chance.one_in(6) {
                take(FieldId::NwTtl, 0xff);
            }
        }
        if like.get64(FieldId::EthType) == 0x800 {
            let exact = chance.one_in(2);
            for f in [FieldId::NwSrc, FieldId::NwDst] {
                if chance.one_in(2) {
                    let mask = if exact { u128::MAX } else { prefix(chance) };
                    take(f, mask);
                }
            }
            if chance.one_in(4) {
                take(FieldId::NwFrag, *chance.pick(&[1, 2, 3]));
            }
            if chance.one_in(6) {
                take(FieldId::NwTtl, 0xff);
            }
            if chance.one_in(3) {
                take(FieldId::NwProto, 0xff);
                if like.get64(FieldId::NwProto) != 1 {
                    if chance.one_in(2) {
                        let mask = *chance.pick(&[0xffff, 0xfff0]);
                        take(FieldId::TpDst, mask);
                    }
                    if chance.one_in(3) {
                        take(FieldId::TpSrc, 0xffff);
                    }
                }
            }
        }
    }
    if chance.one_in(4) {
        take(FieldId::EthDst, *chance.pick(&[u128::MAX, 0x0100_0000_0000]));
    }
    if chance.one_in(6) {
        take(FieldId::EthSrc, u128::MAX);
    }
    if chance.one_in(5) {
        take(FieldId::VlanTci, *chance.pick(&[0x1fff, 0x1000, 0xffff, 0xf000]));
    }
    if chance.one_in(3) {
        m.set_masked(FieldId::InPort, *chance.pick(&[1, 2, 3, 4, 9]), 0xffff);
    }
    if chance.one_in(4) {
        m.set_masked(FieldId::Reg0, chance.below(3).into(), *chance.pick(&[1, 3, 0xffff_ffff]));
    }
    if chance.one_in(8) {
        m.set_masked(FieldId::Metadata, chance.below(3).into(), *chance.pick(&[1, 3]));
    }
    if chance.one_in(8) {
        m.set_masked(FieldId::CtMark, chance.below(3).into(), 3);
    }
    if chance.one_in(8) {
        // With little else, so that what meets the clauses meets this.
        m = Match::any();
        m.set_masked(FieldId::ConjId, chance.below(CONJUNCTIONS).into(), u32::MAX.into());
        if chance.one_in(4) {
            m.set_masked(FieldId::InPort, *chance.pick(&[1, 2, 3, 4, 9]), 0xffff);
        }
    }
    m
}

fn output(port: OfPort) -> Action {
    Action::Output { port, max_len: 0 }
}

pub(super) fn is_clause(actions: &[Action]) -> bool {
    actions.iter().any(|a| matches!(a, Action::Conjunction { .. }))
}

/// Few ids, so that clauses meet.
const CONJUNCTIONS: u64 = 2;

pub(super) fn random_clauses(chance: &mut Chance) -> Vec<Action> {
    let clause = |chance: &mut Chance| Action::Conjunction {
        id: chance.below(CONJUNCTIONS) as u32,
        clause: chance.below(2) as u8,
        n_clauses: 2,
    };
    (0..chance.below(2) + 1).map(|_| clause(chance)).collect()
}

fn random_actions(chance: &mut Chance, table: u8, m: &Match) -> Vec<Action> {
    let asks_for_conjunction = m.mask.get(FieldId::ConjId) != 0;
    if !asks_for_conjunction && chance.one_in(4) {
        return random_clauses(chance);
    }
    random_plain_actions(chance, table, m)
}

pub(super) fn random_plain_actions(chance: &mut Chance, table: u8, m: &Match) -> Vec<Action> {
    let mut list: Vec<Action> = (0..chance.below(5)).map(|_| random_action(chance, table, true)).collect();
    if chance.one_in(6) {
        list.insert(0, Action::Meter(chance.below(METERS) as u32 + 1));
    }
    if chance.one_in(3) && u64::from(table) + 1 < TABLES {
        list.push(Action::GotoTable(table + 1 + chance.below(TABLES - u64::from(table) - 1) as u8));
    }
    // Some do not fit the match, which the switch refuses: then the rest.
    list.retain(|a| fits(a, m));
    list
}

fn fits(action: &Action, m: &Match) -> bool {
    let sub_ok = |s: &SubField| m.has_prereq(s.field);
    match action {
        // Of OpenFlow 1.0's own actions, nothing is asked.
        Action::SetField { field: Mf::NwSrc | Mf::NwDst, .. } => true,
        Action::SetField { field, .. } => m.has_prereq(*field),
        Action::Load { target, .. } | Action::StackPop(target) => sub_ok(target),
        Action::Move { source, target } => sub_ok(source) && sub_ok(target),
        Action::StackPush(s) => sub_ok(s),
        Action::WriteActions(list) | Action::Clone(list) => list.iter().all(|a| fits(a, m)),
        _ => true,
    }
}

fn sub(field: Mf, offset: u16, count: u16) -> SubField {
    SubField { field, offset, count }
}

fn random_set(chance: &mut Chance) -> Action {
    let set = |field: Mf, value: u64, mask: u128| Action::SetField {
        field,
        value: u128::from(value) & mask,
        mask: mask & field.ones(),
    };
    match chance.below(20) {
        11 => Action::SetTpSrc(*chance.pick(&[53, 80])),
        12 => Action::SetTpDst(*chance.pick(&[53, 80])),
        13 => Action::SetNwTtl(*chance.pick(&[1, 9])),
        14 => Action::CtClear,
        15 => set(Mf::CtMark, chance.below(3), u128::MAX),
        0 => set(Mf::EthDst, *chance.pick(MACS), u128::MAX),
        1 => set(Mf::EthSrc, *chance.pick(MACS), u128::MAX),
        2 => set(Mf::NwDst, 0x0a00_0000 + chance.below(8), u128::MAX),
        3 => set(Mf::NwSrc, 0x0a01_0000, 0xffff_0000),
        4 => set(Mf::UdpDst, *chance.pick(&[53, 80]), u128::MAX),
        5 => set(Mf::TcpDst, *chance.pick(&[53, 80]), u128::MAX),
        6 => set(Mf::Reg(0), chance.below(4), u128::MAX),
        7 => set(Mf::PktMark, chance.below(3), u128::MAX),
        8 => set(Mf::VlanTci, *chance.pick(&[0, 0x100a, 0x1014]), u128::MAX),
        9 => set(Mf::VlanVid, *chance.pick(&[0x100a, 0x1014]), 0x1fff),
        10 => set(Mf::IpDscp, 12, u128::MAX),
        _ => Action::Load { target: sub(Mf::Reg(0), 0, 1), value: chance.below(2), as_set_field: false },
    }
}

/// Actions that are rarer in rules.
/// Groups refer to such of greater numbers only, so that there are no loops.
pub(super) const GROUPS: u64 = 4;

pub const METERS: u64 = 2;

pub(super) fn random_group(chance: &mut Chance) -> GroupDesc {
    let group_id = chance.below(GROUPS) as u32 + 1;
    let kind = GroupType::ALL[chance.below(4) as usize].0;
    let count = if kind == GroupType::Indirect { 1 } else { chance.below(4) };
    let mut buckets: Vec<Bucket> = (0..count).map(|n| random_bucket(chance, n as u32, group_id)).collect();
    let mut selection = GroupSelection::default();
    match kind {
        GroupType::Select => {
            let actions = buckets.first().map(|b| b.actions.clone()).unwrap_or_default();
            buckets.iter_mut().for_each(|b| b.actions.clone_from(&actions));
            // Not by the datapath's hash: there is no second round here.
            selection.method = "hash".to_string();
            if chance.one_in(2) {
                let fields = [
                    (Mf::EthSrc, Mf::EthSrc.ones()),
                    (Mf::NwDst, 0xff),
                    (Mf::TcpSrc, 0xffff),
                    (Mf::Reg(0), 3),
                ];
                selection.fields = fields.into_iter().filter(|_| chance.one_in(2)).collect();
            }
        }
        GroupType::FastFailover => {
            let watch = |b: &mut Bucket| b.watch_port = b.watch_port.or(Some(OfPort(1 + b.id as u16)));
            buckets.iter_mut().for_each(watch);
        }
        GroupType::All | GroupType::Indirect => {}
    }
    GroupDesc { group_id, kind, buckets, selection }
}

fn random_bucket(chance: &mut Chance, id: u32, group_id: u32) -> Bucket {
    let watched = |chance: &mut Chance| group_id + 1 + chance.below(2) as u32;
    let mut actions: Vec<Action> = (0..chance.below(3)).map(|_| random_set(chance)).collect();
    actions.push(match chance.below(8) {
        0 => Action::Group(group_id + 1),
        1 => Action::Resubmit { in_port: None, table: Some(GROUP_TABLES + chance.below(2) as u8), ct: false },
        2 => output(*chance.pick(&[OfPort::CONTROLLER, OfPort::IN_PORT, OfPort::NORMAL])),
        3 => Action::PopVlan,
        _ => output(OfPort(*chance.pick(&[1, 2, 3, 4, 9]))),
    });
    if chance.one_in(3) {
        actions.insert(0, output(OfPort(3)));
    }
    Bucket {
        id,
        weight: *chance.pick(&[1, 1, 0, 7]),
        watch_port: chance.one_in(3).then(|| OfPort(chance.below(PORTS) as u16 + 1)),
        watch_group: chance.one_in(6).then(|| watched(chance)),
        actions,
    }
}

/// Rules of the tables before this one refer to groups, whose buckets resubmit to it and those behind it.
const GROUP_TABLES: u8 = 2;

fn rare_action(chance: &mut Chance) -> Action {
    let port = OfPort(chance.below(5) as u16);
    match chance.below(8) {
        0 => Action::OutputReg { source: sub(Mf::Reg(0), 0, 16), max_len: 0 },
        1 => Action::OutputTrunc { port, max_len: 0xffff },
        2 => Action::Controller {
            max_len: 0xffff,
            reason: flow::action::PacketInReason::Action,
            id: 0,
            userdata: vec![],
            meter_id: None,
            pause: false,
        },
        3 => Action::Enqueue { port, queue: chance.below(3) as u32 },
        4 => Action::PopQueue,
        5 => Action::SetTunnel { id: chance.below(3), wide: true },
        6 => Action::Sample {
            probability: 0xffff,
            collector_set_id: 1,
            obs_domain_id: 2,
            obs_point_id: 3,
            sampling_port: OfPort::NONE,
            direction: flow::action::SampleDirection::Default,
        },
        _ => Action::Note(vec![1, 2]),
    }
}

fn random_action(chance: &mut Chance, table: u8, nest: bool) -> Action {
    match chance.below(34) {
        32..=33 if table < GROUP_TABLES => {
            let group = Action::Group(chance.below(GROUPS) as u32 + 1);
            if nest && chance.one_in(3) { Action::WriteActions(vec![group]) } else { group }
        }
        30..=31 => rare_action(chance),
        0..=8 => output(OfPort(*chance.pick(&[1, 2, 3, 4, 5, 9, 9]))),
        9 => output(*chance.pick(&[OfPort::FLOOD, OfPort::ALL, OfPort::IN_PORT, OfPort::CONTROLLER])),
        10..=11 => output(OfPort::NORMAL),
        12..=16 => random_set(chance),
        17 => Action::Move { source: sub(Mf::NwSrc, 0, 2), target: sub(Mf::Reg(0), 0, 2) },
        18 => Action::Move { source: sub(Mf::EthSrc, 0, 48), target: sub(Mf::EthDst, 0, 48) },
        19 => Action::Move { source: sub(Mf::InPort, 0, 16), target: sub(Mf::Reg(0), 0, 16) },
        20 => Action::StackPush(sub(Mf::EthDst, 0, 3)),
        21 => Action::StackPop(sub(Mf::Reg(0), 0, 3)),
        22 => Action::PushVlan(*chance.pick(&[0x8100, 0x88a8])),
        23 => Action::PopVlan,
        24 => match chance.below(3) {
            0 => Action::SetVlanVid { vid: *chance.pick(&[0, 10, 20]), push_vlan_if_needed: true },
            1 => Action::SetVlanPcp { pcp: chance.below(8) as u8, push_vlan_if_needed: true },
            _ => Action::SetQueue(chance.below(3) as u32),
        },
        25 => Action::DecTtl(None),
        26 if nest => {
            let list = (0..2).map(|_| random_action(chance, table, false));
            Action::Clone(list.filter(|a| !matches!(a, Action::Group(_))).collect())
        }
        27 if nest => {
            let ordinary = [output(OfPort(*chance.pick(&[1, 2, 3]))), random_set(chance), Action::PopVlan];
            Action::WriteActions(vec![chance.pick(&ordinary).clone()])
        }
        29 if nest => Action::CheckPktLarger {
            length: *chance.pick(&[99, 149, 150, 200]),
            target: sub(Mf::Reg(0), *chance.pick(&[0, 0, 1]), 1),
        },
        28 => Action::WriteMetadata { value: chance.below(4), mask: 3 },
        _ if u64::from(table) + 1 < TABLES => {
            let to = table + 1 + chance.below(TABLES - u64::from(table) - 1) as u8;
            let in_port = chance.one_in(4).then(|| OfPort(chance.below(4) as u16 + 1));
            Action::Resubmit { in_port, table: Some(to), ct: false }
        }
        _ => Action::Exit,
    }
}

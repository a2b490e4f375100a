//! Groups, example by example: what is refused, what goes with a group, and which bucket gets a packet.

use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use base::{DropReason, OfPort, PortNo};
use datapath::pipeline::FlowView;
use datapath::{DpAction, Pipeline, Translation};
use flow::action::PacketInReason;
use flow::{Action, Depth, FieldId, Key, Match, Mf};
use openflow::ErrorKind::{self, *};
use openflow::message::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, Bucket, GROUP_ALL, GROUP_MAX, GroupCommand, GroupDesc, GroupMod,
    GroupSelection, GroupType, Message, StatsBody, StatsReply,
};
use openflow::message::{
    Band, BandType, METER_ALL, METER_CONTROLLER, MeterCommand, MeterConfig, MeterFlags, MeterMod,
};
use openflow::text::{ActionsIn, PortNames, parse_actions};
use openflow::{Codec, Version};
use std::sync::Arc;
use switch::control::{Change, FlowMod, FlowModError, PacketOut, RemovedReason, RuleFilter};
use switch::{BridgeConfig, BridgeIdx, Control, Effect, PortSpec, RuleFlags, Switch};

struct Rig {
    control: Control,
    switch: Arc<Switch>,
    reader: Reader,
    br: BridgeIdx,
}

/// A bridge with ports 1 to 4, whose numbers in the datapath are 101 to 104.
fn rig() -> Rig {
    let domain = Domain::new();
    let (switch, mut control) = Control::new(domain.clone(), HashKey::from_seed(5));
    let br = control.add_bridge(BridgeConfig::new("br0"));
    (1..=4).for_each(|n| control.add_port(br, port(n)).unwrap());
    Rig { control, switch, reader: domain.register(), br }
}

fn port(n: u16) -> PortSpec {
    PortSpec::new(PortNo(100 + u32::from(n)), OfPort(n), &format!("p{n}"))
}

fn output(port: u16) -> Action {
    Action::Output { port: OfPort(port), max_len: 0 }
}

fn out(port: u32) -> DpAction {
    DpAction::Output(PortNo(100 + port))
}

/// A bucket for each list of actions.
fn group(id: u32, kind: GroupType, buckets: &[&[Action]]) -> GroupDesc {
    let bucket = |(id, actions): (usize, &&[Action])| Bucket {
        id: id as u32,
        weight: u16::from(kind == GroupType::Select),
        watch_port: (kind == GroupType::FastFailover).then(|| OfPort(id as u16 + 1)),
        watch_group: None,
        actions: actions.to_vec(),
    };
    let buckets = buckets.iter().enumerate().map(bucket).collect();
    GroupDesc { group_id: id, kind, buckets, selection: GroupSelection::default() }
}

fn packet(source: u64) -> Key {
    let mut key = Key::default();
    let fields = [
        (FieldId::DpPort, 104),
        (FieldId::InPort, 4),
        (FieldId::EthType, 0x800),
        (FieldId::NwProto, 17),
        (FieldId::NwSrc, 0x0a00_0000 + source),
        (FieldId::NwDst, 0x0a01_0000),
        (FieldId::TpSrc, 1000),
        (FieldId::TpDst, 2000),
    ];
    fields.iter().for_each(|(field, value)| key.set(*field, u128::from(*value)));
    key
}

impl Rig {
    fn change(&mut self, command: GroupCommand, at: u32, group: GroupDesc) -> Result<(), ErrorKind> {
        let change = GroupMod { command, command_bucket_id: at, group };
        self.control.group_mod(self.br, &change, 0).map_err(|error| match error {
            FlowModError::Refused(kind) => kind,
            other => panic!("{other:?}"),
        })
    }

    fn add(&mut self, group: GroupDesc) {
        self.change(GroupCommand::Add, BUCKET_ALL, group).unwrap();
    }

    fn delete(&mut self, id: u32) {
        let group = GroupDesc { group_id: id, ..GroupDesc::default() };
        self.change(GroupCommand::Delete, BUCKET_ALL, group).unwrap();
    }

    fn rule(&mut self, actions: Vec<Action>) {
        self.control.flow_mod(self.br, &FlowMod::add(Match::any(), actions), 0).unwrap();
    }

    fn translate(&self, key: &Key) -> Translation<Effect> {
        let mut out = Translation::default();
        self.switch.translate(self.switch.version(), key, &self.reader, &mut out);
        out
    }

    fn buckets(&self, id: u32) -> Vec<u32> {
        self.control.group(self.br, id).unwrap().buckets().iter().map(|b| b.id).collect()
    }
}

#[test]
fn changes_are_refused_with_the_errors_of_the_standard() {
    let mut r = rig();
    let all = |id| group(id, GroupType::All, &[&[output(1)]]);
    assert_eq!(r.change(GroupCommand::Modify, BUCKET_ALL, all(1)), Err(OFPGMFC_UNKNOWN_GROUP));
    assert_eq!(r.change(GroupCommand::Add, BUCKET_ALL, all(GROUP_MAX + 1)), Err(OFPGMFC_INVALID_GROUP));
    r.add(all(1));
    assert_eq!(r.change(GroupCommand::Add, BUCKET_ALL, all(1)), Err(OFPGMFC_GROUP_EXISTS));
    assert_eq!(r.change(GroupCommand::AddOrModify, BUCKET_ALL, all(1)), Ok(()));
    assert_eq!(r.change(GroupCommand::InsertBucket, BUCKET_LAST, all(1)), Err(OFPGMFC_BUCKET_EXISTS));
    assert_eq!(r.change(GroupCommand::InsertBucket, 7, all(1)), Err(OFPGMFC_UNKNOWN_BUCKET));
    assert_eq!(r.change(GroupCommand::RemoveBucket, 7, all(1)), Err(OFPGMFC_UNKNOWN_BUCKET));
    assert_eq!(r.change(GroupCommand::RemoveBucket, 0, all(2)), Err(OFPGMFC_UNKNOWN_GROUP));
    // Into a circle: by actions, and by what a bucket watches.
    r.add(group(2, GroupType::All, &[&[Action::Group(3)]]));
    assert_eq!(
        r.change(GroupCommand::Add, BUCKET_ALL, group(3, GroupType::All, &[&[Action::Group(2)]])),
        Err(OFPGMFC_LOOP)
    );
    let mut watching = group(3, GroupType::FastFailover, &[&[output(1)]]);
    watching.buckets[0].watch_group = Some(2);
    assert_eq!(r.change(GroupCommand::Add, BUCKET_ALL, watching), Err(OFPGMFC_LOOP));
    assert_eq!(
        r.change(GroupCommand::Modify, BUCKET_ALL, group(2, GroupType::All, &[&[Action::Group(2)]])),
        Err(OFPGMFC_LOOP)
    );
}

#[test]
fn a_group_has_no_more_buckets_than_a_message_can_list() {
    let mut r = rig();
    let with = |ids: std::ops::Range<u32>| {
        let buckets = ids.map(|id| Bucket { id, ..Bucket::default() }).collect();
        GroupDesc { buckets, ..group(1, GroupType::All, &[]) }
    };
    assert_eq!(r.change(GroupCommand::Add, BUCKET_ALL, with(0..4092)), Err(OFPGMFC_OUT_OF_BUCKETS));
    r.add(with(0..2000));
    r.change(GroupCommand::InsertBucket, BUCKET_LAST, with(2000..4091)).unwrap();
    for place in [BUCKET_FIRST, BUCKET_LAST, 7] {
        assert_eq!(
            r.change(GroupCommand::InsertBucket, place, with(5000..5001)),
            Err(OFPGMFC_OUT_OF_BUCKETS)
        );
    }
    assert_eq!(r.buckets(1), (0..4091).collect::<Vec<_>>());
    // One that goes makes room for another.
    r.change(GroupCommand::RemoveBucket, BUCKET_FIRST, with(0..0)).unwrap();
    r.change(GroupCommand::InsertBucket, BUCKET_LAST, with(5000..5001)).unwrap();
}

#[test]
fn buckets_are_inserted_only_while_a_message_of_every_version_can_list_them() {
    let mut r = rig();
    let ends = vec![output(1); 100];
    let with = |ids: std::ops::Range<u32>| {
        let buckets = ids.map(|id| Bucket { id, actions: ends.clone(), ..Bucket::default() }).collect();
        GroupDesc { buckets, ..group(1, GroupType::All, &[]) }
    };
    let fits = |r: &Rig| {
        let desc = r.control.group(r.br, 1).unwrap().desc.clone();
        Version::ALL.into_iter().all(|version| {
            let body = StatsBody::GroupDesc(vec![desc.clone()]);
            Codec::new(version).encode(1, &Message::StatsReply(StatsReply { more: false, body })).is_ok()
        })
    };
    r.add(with(0..1));
    let refusal = (1..100).find_map(|id| {
        let refusal = r.change(GroupCommand::InsertBucket, BUCKET_LAST, with(id..id + 1)).err();
        assert!(fits(&r), "{id} buckets cannot be listed");
        refusal
    });
    assert_eq!(refusal, Some(OFPGMFC_OUT_OF_BUCKETS));
    // 16 bytes an action by 1.1 and later: the bound is that of the message, not a rough one.
    assert_eq!(r.buckets(1).len(), (65_535 - 16 - 8) / (100 * 16 + 16));
    // One that is refused leaves the group as it was, and one that goes makes room.
    r.change(GroupCommand::RemoveBucket, BUCKET_FIRST, with(0..0)).unwrap();
    r.change(GroupCommand::InsertBucket, BUCKET_LAST, with(200..201)).unwrap();
    assert!(fits(&r));
}

#[test]
fn buckets_are_inserted_and_removed_where_the_command_says() {
    let mut r = rig();
    let with = |ids: &[u32]| {
        let mut desc = group(1, GroupType::All, &[]);
        desc.buckets = ids.iter().map(|id| Bucket { id: *id, ..Bucket::default() }).collect();
        desc
    };
    r.add(with(&[]));
    for (place, ids, expected) in [
        (BUCKET_LAST, &[10, 11][..], &[10, 11][..]),
        (BUCKET_FIRST, &[1, 2], &[1, 2, 10, 11]),
        (2, &[5, 6], &[1, 2, 5, 6, 10, 11]),
        (11, &[12], &[1, 2, 5, 6, 10, 11, 12]),
    ] {
        r.change(GroupCommand::InsertBucket, place, with(ids)).unwrap();
        assert_eq!(r.buckets(1), expected);
    }
    for (which, expected) in [
        (BUCKET_FIRST, &[2, 5, 6, 10, 11, 12][..]),
        (BUCKET_LAST, &[2, 5, 6, 10, 11]),
        (6, &[2, 5, 10, 11]),
        (BUCKET_ALL, &[]),
        (BUCKET_FIRST, &[]),
    ] {
        r.change(GroupCommand::RemoveBucket, which, with(&[])).unwrap();
        assert_eq!(r.buckets(1), expected);
    }
}

#[test]
fn buckets_that_stay_keep_their_counters_and_nobody_else_gets_them() {
    let mut r = rig();
    r.add(group(1, GroupType::All, &[&[output(1)], &[output(2)]]));
    let slots = |r: &Rig, id| r.control.group(r.br, id).unwrap().bucket_slots.to_vec();
    let first = slots(&r, 1);
    let more =
        GroupDesc { buckets: vec![Bucket { id: 9, ..Bucket::default() }], ..group(1, GroupType::All, &[]) };
    // What is undone keeps them too.
    let command = GroupCommand::InsertBucket;
    let insert = GroupMod { command, command_bucket_id: BUCKET_LAST, group: more.clone() };
    let bad = FlowMod::add(Match::any(), vec![Action::Group(7)]);
    let all = [(r.br, Change::Group(&insert)), (r.br, Change::Flow(&bad))];
    r.control.change_all(all, 0).map(drop).unwrap_err();
    r.change(GroupCommand::InsertBucket, BUCKET_LAST, more).unwrap();
    assert_eq!(slots(&r, 1)[..2], first);
    r.change(GroupCommand::RemoveBucket, BUCKET_FIRST, group(1, GroupType::All, &[])).unwrap();
    let kept = slots(&r, 1);
    assert_eq!(kept[0], first[1]);
    let ended = r.control.take_retired_slots();
    r.control.recycle_slots(ended);
    r.add(group(2, GroupType::All, &[&[output(1)][..]; 8]));
    let others = slots(&r, 2);
    assert!(others.contains(&first[0]), "the slot of the bucket that went is free: {others:?}");
    assert!(others.iter().all(|slot| !kept.contains(slot)), "{others:?}, {kept:?}");
    // Each slot is free once.
    assert_eq!(others.iter().collect::<std::collections::HashSet<_>>().len(), others.len());
}

#[test]
fn a_deleted_group_takes_its_rules_with_it() {
    let mut r = rig();
    for id in 1..=3 {
        r.add(group(id, GroupType::Indirect, &[&[output(1)]]));
    }
    let matching = |n: u128| Match::any().with(FieldId::InPort, n);
    let mut add = |n, actions| {
        let flags = RuleFlags { send_flow_removed: true, ..RuleFlags::default() };
        let fm = FlowMod { flags, ..FlowMod::add(matching(n), actions) };
        r.control.flow_mod(r.br, &fm, 0).unwrap();
    };
    add(1, vec![Action::Group(1)]);
    add(2, vec![Action::WriteActions(vec![Action::Group(1)])]);
    add(3, vec![Action::Group(1), Action::Group(2)]);
    add(4, vec![Action::Group(3)]);
    assert_eq!([1, 2, 3].map(|id| r.control.group_references(r.br, id)), [3, 1, 1]);
    r.delete(1);
    assert_eq!([1, 2, 3].map(|id| r.control.group_references(r.br, id)), [0, 0, 1]);
    let removals = r.control.take_removals();
    assert_eq!(removals.iter().map(|gone| gone.reason).collect::<Vec<_>>(), [RemovedReason::GroupDelete; 3]);
    removals.into_iter().for_each(|gone| r.control.removal_done(gone));
    r.delete(GROUP_ALL);
    assert_eq!(r.control.groups(r.br).count(), 0);
    assert!(r.control.rules(r.br, &RuleFilter::default()).is_empty());
}

#[test]
fn a_batch_with_an_error_leaves_groups_rules_and_references_as_they_were() {
    let mut r = rig();
    r.add(group(1, GroupType::Indirect, &[&[output(1)]]));
    r.rule(vec![Action::Group(1)]);
    let version = r.switch.version();
    let change = |command, group| GroupMod { command, command_bucket_id: BUCKET_ALL, group };
    let modify = change(GroupCommand::Modify, group(1, GroupType::Indirect, &[&[output(2)]]));
    let delete = change(GroupCommand::Delete, group(1, GroupType::All, &[]));
    let add = change(GroupCommand::Add, group(2, GroupType::Indirect, &[&[output(3)]]));
    let rule = FlowMod::add(Match::any().with(FieldId::InPort, 4), vec![Action::Group(2)]);
    let bad = FlowMod::add(Match::any(), vec![Action::Group(1)]);
    let (modify, delete, add) = (Change::Group(&modify), Change::Group(&delete), Change::Group(&add));
    let all = [modify, add, Change::Flow(&rule), delete, Change::Flow(&bad)];
    let error = r.control.change_all(all.map(|change| (r.br, change)), 0).map(drop);
    assert_eq!(error, Err((4, FlowModError::BadOutGroup(1))));
    assert_eq!(r.switch.version(), version);
    assert_eq!(r.translate(&packet(0)).actions, [out(1)]);
    assert_eq!([1, 2].map(|id| r.control.group_references(r.br, id)), [1, 0]);
    assert!(r.control.group(r.br, 2).is_none());
    // A packet among the changes sees those before it, and nobody else sees them yet.
    let key = packet(0);
    let actions = [Action::Group(1)];
    let out_of = Change::Packet(PacketOut { key: &key, actions: &actions, version: Version::V13 });
    let again = [out_of, modify, out_of, delete];
    let packets = r.control.change_all(again.map(|change| (r.br, change)), 0).unwrap().packets;
    assert_eq!(packets.iter().map(|t| &t.actions[..]).collect::<Vec<_>>(), [[out(1)], [out(2)]]);
    assert_eq!(r.switch.version(), version.next());
    assert_eq!(r.translate(&packet(0)).actions, [DpAction::Drop(DropReason::TableMiss)]);
}

#[test]
fn a_bucket_is_an_action_set_on_a_copy() {
    let mut r = rig();
    let to = |nw_dst: u128| Action::SetField { field: Mf::NwDst, value: nw_dst, mask: 0xffff_ffff };
    let set = |value| DpAction::Set { field: FieldId::NwDst, value, mask: 0xffff_ffff };
    r.add(group(1, GroupType::All, &[&[output(1), to(7), output(2)], &[to(8)], &[output(3)]]));
    let ip = Match::any().with(FieldId::EthType, 0x800);
    let fm = FlowMod::add(ip, vec![Action::Group(1), output(1)]);
    r.control.flow_mod(r.br, &fm, 0).unwrap();
    let t = r.translate(&packet(0));
    // Only the last output of a bucket counts, behind what it sets; a bucket without one does nothing.
    assert_eq!(t.actions, [set(7), out(2), set(0x0a01_0000), out(3), out(1)]);
    let desc = r.control.group(r.br, 1).unwrap();
    let credited = |slot: &u32| t.credits.contains(slot);
    assert!(credited(&desc.slot) && desc.bucket_slots.iter().all(credited));
    assert_eq!(r.switch.port_view(PortNo(104)).get().1, Depth::Everything);
}

#[test]
fn a_packet_that_a_bucket_has_tracked_comes_back_with_the_action_set() {
    let mut r = rig();
    let ct = parse_actions("ct(table=5,zone=1)", ActionsIn::Flow, PortNames::none()).unwrap();
    r.add(group(1, GroupType::All, &[&ct]));
    let ip = Match::any().with(FieldId::EthType, 0x800);
    let list = vec![Action::WriteActions(vec![output(2)]), Action::Group(1)];
    r.control.flow_mod(r.br, &FlowMod::add(ip.clone(), list), 0).unwrap();
    let after = FlowMod { table_id: 5, ..FlowMod::add(ip, vec![output(3)]) };
    r.control.flow_mod(r.br, &after, 0).unwrap();
    let actions = r.translate(&packet(0)).actions;
    let [DpAction::Clone(copy), DpAction::Output(PortNo(102))] = &actions[..] else { panic!("{actions:?}") };
    let [DpAction::Ct(_), DpAction::Recirc(id)] = copy[..] else { panic!("{actions:?}") };
    let mut key = packet(0);
    key.set(FieldId::RecircId, id.into());
    assert_eq!(r.translate(&key).actions, [out(3), out(2)]);
}

/// The translation of the round in which a packet comes back with its hash.
fn hashed(r: &Rig, key: &Key) -> Translation<Effect> {
    let first = r.translate(key);
    let [DpAction::Hash(hash), DpAction::Recirc(id)] = first.actions[..] else {
        panic!("{:?}", first.actions)
    };
    let mut key = key.clone();
    key.set(FieldId::RecircId, id.into());
    key.set(FieldId::DpHash, hash.of_key(&key).into());
    r.translate(&key)
}

#[test]
fn packets_of_a_bucket_that_is_not_live_go_to_the_others() {
    let mut r = rig();
    let mut select = group(1, GroupType::Select, &[&[output(1)], &[output(2)], &[output(3)]]);
    select.buckets[0].watch_port = Some(OfPort(1));
    r.add(select);
    r.rule(vec![Action::Group(1), Action::Output { port: OfPort::IN_PORT, max_len: 0 }]);
    let of_first = |r: &Rig| (0..200).filter(|n| hashed(r, &packet(*n)).actions[0] == out(1)).count();
    assert!(of_first(&r) > 0);
    // What stands behind the group is done after it, once.
    assert_eq!(hashed(&r, &packet(0)).actions[1..], [out(4)]);
    r.control.modify_port(PortSpec { link_up: false, ..port(1) }).unwrap();
    assert_eq!(of_first(&r), 0);
    assert!((0..200).all(|n| matches!(hashed(&r, &packet(n)).actions[0], DpAction::Output(_))));
}

#[test]
fn a_group_behind_a_fork_for_tracking_chooses_by_the_same_hash() {
    let mut r = rig();
    r.add(group(1, GroupType::Select, &[&[output(1)], &[output(2)], &[output(3)]]));
    let actions = parse_actions("group:1,ct(commit,table=3),group:1", ActionsIn::Flow, PortNames::none());
    let tracked = Match::any().with(FieldId::EthType, 0x800);
    r.control.flow_mod(r.br, &FlowMod::add(tracked, actions.unwrap()), 0).unwrap();
    for source in 0..100 {
        let actions = hashed(&r, &packet(source)).actions;
        let outputs: Vec<_> = actions.iter().filter(|a| matches!(a, DpAction::Output(_))).collect();
        assert!(outputs.len() == 2 && outputs[0] == outputs[1], "{actions:?}");
    }
}

#[test]
fn a_select_group_spreads_flows_evenly_and_only_what_it_hashes_is_in_their_masks() {
    let mut r = rig();
    r.add(group(1, GroupType::Select, &[&[output(1)], &[output(2)], &[output(3)]]));
    r.rule(vec![Action::Group(1)]);
    let mut counts = [0u32; 3];
    for source in 0..3_000 {
        match &hashed(&r, &packet(source)).actions[..] {
            [DpAction::Output(PortNo(port))] => counts[*port as usize - 101] += 1,
            other => panic!("{other:?}"),
        }
    }
    // Of 16 values, one bucket has 6 and the others 5: within six standard deviations.
    assert!(
        counts[0].abs_diff(1125) < 160 && counts[1..].iter().all(|n| n.abs_diff(937) < 150),
        "{counts:?}"
    );
    let (first, second) = (r.translate(&packet(1)).mask, hashed(&r, &packet(1)).mask);
    assert_eq!([FieldId::NwSrc, FieldId::NwProto, FieldId::DpHash].map(|f| first.get(f)), [0; 3]);
    assert_eq!([FieldId::NwSrc, FieldId::NwProto, FieldId::DpHash].map(|f| second.get(f)), [0, 0, 0xf]);
    // Both directions of a connection take the same way.
    for source in 0..100 {
        let there = packet(source);
        let mut back = there.clone();
        [(FieldId::NwSrc, FieldId::NwDst), (FieldId::TpSrc, FieldId::TpDst)].into_iter().for_each(
            |(a, b)| {
                back.set(a, there.get(b));
                back.set(b, there.get(a));
            },
        );
        assert_eq!(hashed(&r, &there).actions, hashed(&r, &back).actions);
    }
    let mut by_source = group(1, GroupType::Select, &[&[output(1)], &[output(2)], &[output(3)]]);
    by_source.selection.method = "hash".into();
    by_source.selection.fields = vec![(Mf::NwSrc, 0xff), (Mf::TcpDst, 0xffff)];
    r.change(GroupCommand::Modify, BUCKET_ALL, by_source).unwrap();
    let mask = r.translate(&packet(1)).mask;
    assert_eq!(mask.get(FieldId::NwSrc), 0xff);
    assert_eq!([FieldId::NwDst, FieldId::TpDst, FieldId::EthSrc].map(|f| mask.get(f)), [0; 3]);
    assert_eq!(mask.get(FieldId::NwProto), 0xff, "which says that there is no tcp_dst");
}

#[test]
fn a_fast_failover_group_uses_the_first_bucket_whose_port_or_group_is_up() {
    let mut r = rig();
    let mut failover = group(1, GroupType::FastFailover, &[&[output(1)], &[output(2)], &[output(3)]]);
    failover.buckets[1].watch_port = None;
    failover.buckets[1].watch_group = Some(2);
    r.add(failover);
    r.rule(vec![Action::Group(1)]);
    let flow = r.translate(&packet(0));
    assert_eq!(flow.actions, [out(1)]);
    let (before, key) = (r.switch.version(), packet(0));
    let view = FlowView { key: &key, mask: &flow.mask, visits: &flow.visits, rewrites: &flow.rewrites };
    let down = |n| PortSpec { link_up: false, ..port(n) };
    r.control.modify_port(down(4)).unwrap();
    let up = r.switch.version();
    r.control.modify_port(down(1)).unwrap();
    assert!(r.switch.touched(view, up, r.switch.version(), &r.reader), "the link of port 1");
    // The group that bucket 1 watches is not there.
    assert_eq!(r.translate(&packet(0)).actions, [out(3)]);
    r.add(group(2, GroupType::FastFailover, &[&[], &[output(4)]]));
    assert!(r.switch.version() > before);
    assert_eq!(r.translate(&packet(0)).actions, [out(2)]);
    r.control.modify_port(down(2)).unwrap();
    r.control.modify_port(down(3)).unwrap();
    assert_eq!(r.translate(&packet(0)).actions, [DpAction::Drop(DropReason::NoLiveBucket)]);
}

#[test]
fn groups_that_watch_or_use_one_another_without_end_cost_a_bounded_time() {
    let mut r = rig();
    // Each watches the next twice, and the last is not there: 2^40 ways.
    for id in 1..=40 {
        let mut watching = group(id, GroupType::FastFailover, &[&[output(1)], &[output(2)]]);
        watching.buckets.iter_mut().for_each(|b| (b.watch_port, b.watch_group) = (None, Some(id + 1)));
        r.add(watching);
    }
    r.rule(vec![Action::Group(1)]);
    assert_eq!(r.translate(&packet(0)).actions, [DpAction::Drop(DropReason::NoLiveBucket)]);
    for id in 101..=140 {
        r.add(group(id, GroupType::All, &[&[Action::Group(id + 1)], &[Action::Group(id + 1)]]));
    }
    r.rule(vec![Action::Group(101)]);
    assert_eq!(r.translate(&packet(0)).actions, [DpAction::Drop(DropReason::ResubmitLimit)]);
}

#[test]
fn a_large_group_that_many_actions_use_costs_a_bounded_time() {
    let mut r = rig();
    r.add(group(1, GroupType::Select, &[&[] as &[Action]; 4_000]));
    let table = |r: &mut Rig, table_id: u8, actions: Vec<Action>| {
        let rule = FlowMod { table_id, ..FlowMod::add(Match::any(), actions) };
        r.control.flow_mod(r.br, &rule, 0).unwrap();
    };
    let again = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    table(&mut r, 0, vec![again; 4]);
    table(&mut r, 1, vec![Action::Group(1); 8_000]);
    let out = r.translate(&packet(0));
    assert_eq!(out.actions, [DpAction::Drop(DropReason::NoLiveBucket)]);
    assert!(out.steps < 100_000, "{} steps", out.steps);
}

fn meter_mod(r: &mut Rig, command: MeterCommand, id: u32, rate: u32) -> Result<(), FlowModError> {
    let band = Band { kind: BandType::Drop, rate, burst_size: 1 };
    let flags = MeterFlags::PKTPS | MeterFlags::BURST;
    let meter = MeterConfig { meter_id: id, flags, bands: vec![band] };
    r.control.meter_mod(r.br, &MeterMod { command, meter }, 0)
}

#[test]
fn a_meter_remarks_the_field_as_the_rules_have_set_it() {
    let mut r = rig();
    let set = Action::SetField { field: Mf::IpDscp, value: 10, mask: 0x3f };
    let list = |r: &mut Rig, id: u32, kind: BandType| {
        let bands = vec![Band { kind, rate: 5, burst_size: 1 }];
        let meter = MeterConfig { meter_id: id, flags: MeterFlags::PKTPS, bands };
        r.control.meter_mod(r.br, &MeterMod { command: MeterCommand::Add, meter }, 0).unwrap();
        let ip = Match::any().with(FieldId::EthType, 0x800);
        let rule = FlowMod::add(ip, vec![set.clone(), Action::Meter(id), output(1)]);
        r.control.flow_mod(r.br, &rule, 0).unwrap();
        r.translate(&packet(0)).actions
    };
    let remarked = list(&mut r, 1, BandType::DscpRemark { prec_level: 1 });
    assert!(
        matches!(remarked[..], [DpAction::Set { .. }, DpAction::Meter(_), DpAction::Output(_)]),
        "{remarked:?}"
    );
    // One that drops leaves what is set to the output, as in Open vSwitch.
    let dropped = list(&mut r, 2, BandType::Drop);
    assert!(
        matches!(dropped[..], [DpAction::Meter(_), DpAction::Set { .. }, DpAction::Output(_)]),
        "{dropped:?}"
    );
}

#[test]
fn what_a_rule_sets_after_a_meter_is_set_whatever_it_was_before() {
    let mut r = rig();
    let bands = vec![Band { kind: BandType::DscpRemark { prec_level: 1 }, rate: 5, burst_size: 1 }];
    let meter = MeterConfig { meter_id: 1, flags: MeterFlags::PKTPS, bands };
    r.control.meter_mod(r.br, &MeterMod { command: MeterCommand::Add, meter }, 0).unwrap();
    let queue_dscp = [(1, 1)].into();
    r.control.modify_port(PortSpec { queue_dscp, ..port(2) }).unwrap();
    let dscp = |value| Action::SetField { field: Mf::IpDscp, value, mask: 0x3f };
    let set = |value: u128| DpAction::Set { field: FieldId::NwTos, value: value << 2, mask: 0xfc };
    let (out, meter) = (out(1), Action::Meter(1));
    let mut list = |actions: &[Action]| {
        // The flow matches the field, so that its value is known for all of its packets.
        let ip = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwTos, 0);
        r.control.flow_mod(r.br, &FlowMod::add(ip, actions.to_vec()), 0).unwrap();
        let metered = r.translate(&packet(0)).actions;
        let mut metered = metered.into_iter().skip_while(|action| !matches!(action, DpAction::Meter(_)));
        assert!(metered.next().is_some());
        metered.collect::<Vec<_>>()
    };
    // The same value again, the flow's own, and another one.
    assert_eq!(list(&[dscp(10), meter.clone(), dscp(10), output(1)]), [set(10), out.clone()]);
    assert_eq!(list(&[meter.clone(), dscp(0), output(1)]), [set(0), out.clone()]);
    assert_eq!(list(&[dscp(10), meter.clone(), dscp(12), output(1)]), [set(12), out.clone()]);
    // What is not set again stays as the meter left it, at every output.
    assert_eq!(list(&[dscp(10), meter.clone(), output(1), output(1)]), [out.clone(), out.clone()]);
    assert_eq!(list(&[meter.clone(), dscp(0), output(1), output(1)]), [set(0), out.clone(), out.clone()]);
    // A copy sets it for itself.
    let copy = Action::Clone(vec![dscp(10), output(1)]);
    let copied = list(&[dscp(10), meter.clone(), copy, output(1)]);
    assert_eq!(copied, [DpAction::Clone(vec![set(10), out.clone()]), out.clone()]);
    // Of the field's bits, those alone that are set again.
    let one_bit = Action::SetField { field: Mf::IpDscp, value: 1, mask: 1 };
    let bit_set = DpAction::Set { field: FieldId::NwTos, value: 4, mask: 4 };
    let bit_then = list(&[dscp(10), meter.clone(), one_bit.clone(), output(1), dscp(11), output(1)]);
    assert_eq!(bit_then, [bit_set.clone(), out.clone(), set(11), out.clone()]);
    // A label hides the field, and does not set it.
    let (push, pop) = (Action::PushMpls(0x8847), Action::PopMpls(0x800));
    let labelled = list(&[meter.clone(), push, pop, output(1)]);
    let is_set = |action: &DpAction| matches!(action, DpAction::Set { field: FieldId::NwTos, .. });
    assert!(labelled.len() == 3 && !labelled.iter().any(is_set), "{labelled:?}");
    // A queue's own DSCP goes to its port alone.
    let enqueue = Action::Enqueue { port: OfPort(2), queue: 1 };
    let queued = list(&[meter.clone(), enqueue.clone(), output(1)]);
    let [DpAction::Clone(copy), rest @ ..] = &queued[..] else { panic!("{queued:?}") };
    assert!(copy.contains(&set(1)) && copy.contains(&DpAction::Output(PortNo(102))), "{copy:?}");
    assert!(rest.contains(&out) && !rest.iter().any(is_set), "{rest:?}");
    let queued = list(&[meter, one_bit, enqueue, output(1)]);
    let [DpAction::Clone(copy), rest @ ..] = &queued[..] else { panic!("{queued:?}") };
    assert!(copy.contains(&set(1)) && copy.contains(&DpAction::Output(PortNo(102))), "{copy:?}");
    let sets: Vec<_> = rest.iter().filter(|action| is_set(action)).collect();
    assert_eq!(sets, [&bit_set]);
}

#[test]
fn what_a_translation_remembers_is_bounded() {
    let mut r = rig();
    let table = |r: &mut Rig, table_id: u8, actions: Vec<Action>| {
        let rule = FlowMod { table_id, ..FlowMod::add(Match::any(), actions) };
        r.control.flow_mod(r.br, &rule, 0).unwrap();
    };
    let again = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    table(&mut r, 0, vec![again; 4_000]);
    // Each output to a port that is not there is a visit, and nothing else.
    table(&mut r, 1, vec![output(99); 4_000]);
    let out = r.translate(&packet(0));
    assert_eq!(out.actions, [DpAction::Drop(DropReason::ResubmitLimit)]);
    assert!(out.uncacheable && out.visits.len() < 50_000, "{}", out.visits.len());
}

#[test]
fn a_changed_meter_holds_with_the_next_packet_and_a_deleted_one_takes_its_rules_with_it() {
    let mut r = rig();
    let meter = |r: &Rig| match &r.translate(&packet(0)).actions[..] {
        [DpAction::Meter(meter), DpAction::Output(PortNo(101))] => meter.clone(),
        other => panic!("{other:?}"),
    };
    let refused = |kind| Err(FlowModError::Refused(kind));
    assert_eq!(meter_mod(&mut r, MeterCommand::Modify, 1, 5), refused(OFPMMFC_UNKNOWN_METER));
    let rule = FlowMod::add(Match::any(), vec![Action::Meter(1), output(1)]);
    assert_eq!(r.control.flow_mod(r.br, &rule, 0), Err(FlowModError::BadMeter(1)));
    meter_mod(&mut r, MeterCommand::Add, 1, 5).unwrap();
    assert_eq!(meter_mod(&mut r, MeterCommand::Add, 1, 5), refused(OFPMMFC_METER_EXISTS));
    r.control.flow_mod(r.br, &rule, 0).unwrap();
    assert_eq!(r.control.meter_references(r.br, 1), 1);
    let (flow, before, old) = (r.translate(&packet(0)), r.switch.version(), meter(&r));
    meter_mod(&mut r, MeterCommand::Modify, 1, 6).unwrap();
    let key = packet(0);
    let view = FlowView { key: &key, mask: &flow.mask, visits: &flow.visits, rewrites: &flow.rewrites };
    assert!(r.switch.touched(view, before, r.switch.version(), &r.reader));
    assert!(meter(&r) != old && meter(&r).number == old.number);
    // What is dropped is metered too.
    r.rule(vec![Action::Meter(1)]);
    assert!(matches!(r.translate(&packet(0)).actions[..], [DpAction::Meter(_), DpAction::Drop(_)]));
    meter_mod(&mut r, MeterCommand::Delete, METER_ALL, 0).unwrap();
    assert_eq!(r.control.meters(r.br).count(), 0);
    assert!(r.control.rules(r.br, &RuleFilter::default()).is_empty());
}

#[test]
fn packets_for_controllers_go_by_the_meter_of_all_of_them() {
    let mut r = rig();
    r.rule(vec![Action::Output { port: OfPort::CONTROLLER, max_len: 64 }]);
    assert!(matches!(r.translate(&packet(0)).actions[..], [DpAction::PacketIn(_)]));
    meter_mod(&mut r, MeterCommand::Add, METER_CONTROLLER, 5).unwrap();
    match &r.translate(&packet(0)).actions[..] {
        [DpAction::Sample { probability: u32::MAX, actions: list }] => {
            assert!(matches!(list[..], [DpAction::Meter(_), DpAction::PacketIn(_)]))
        }
        other => panic!("{other:?}"),
    }
}

/// As in Open vSwitch: a rule may name it before it is there, and outlives it.
#[test]
fn packets_for_controllers_go_by_the_meter_that_their_action_names_while_there_is_one() {
    let mut r = rig();
    r.rule(vec![Action::Controller {
        max_len: 64,
        reason: PacketInReason::Action,
        id: 0,
        userdata: vec![],
        meter_id: Some(3),
        pause: false,
    }]);
    let is_metered = |r: &Rig| match &r.translate(&packet(0)).actions[..] {
        [DpAction::PacketIn(_)] => false,
        [DpAction::Sample { actions: list, .. }] => {
            matches!(list[..], [DpAction::Meter(_), DpAction::PacketIn(_)])
        }
        other => panic!("{other:?}"),
    };
    assert!(!is_metered(&r));
    meter_mod(&mut r, MeterCommand::Add, 3, 5).unwrap();
    assert!(is_metered(&r));
    meter_mod(&mut r, MeterCommand::Delete, 3, 5).unwrap();
    assert!(!is_metered(&r));
}

/// Each change walked through all groups behind the changed one, however many.
#[test]
fn a_group_may_lead_to_so_many_others() {
    let mut r = rig();
    let mut add = |id, buckets: &[&[Action]]| {
        let group = group(id, GroupType::All, buckets);
        let add = GroupMod { command: GroupCommand::Add, command_bucket_id: BUCKET_ALL, group };
        r.control.group_mod(r.br, &add, 0)
    };
    add(1, &[&[output(1)]]).unwrap();
    let refused = Err(FlowModError::Refused(ErrorKind::OFPGMFC_CHAINING_UNSUPPORTED));
    let longest = (2..2_000).find(|id| {
        let added = add(*id, &[&[Action::Group(id - 1)]]);
        assert!(added.is_ok() || added == refused, "{added:?}");
        added.is_err()
    });
    assert_eq!(longest, Some(1_026));
    // Seventeen groups that may use a thousand others each, which need not be there.
    let others: Vec<Action> = (5_001..=6_000).map(Action::Group).collect();
    (3_001..=3_017).for_each(|id| add(id, &[&others]).unwrap());
    let lead_to: Vec<Action> = (3_001..=3_017).map(Action::Group).collect();
    add(4_001, &[&lead_to[..16]]).unwrap();
    assert_eq!(add(4_002, &[&[Action::Clone(lead_to)]]), refused);
}

//! Changes that take many turns: seen whole or not at all, whatever others do meanwhile.

use crate::rig::*;
use openflow::message::{BUCKET_ALL, Bucket, GroupCommand, GroupDesc, GroupMod, GroupSelection, GroupType};
use switch::control::{AsChange, Change, Changes, Cursor, Due, Outcome, PacketOut, Turn};

const RULES: u128 = 3_000;

/// Flow-mods of one bridge.
pub struct FlowMods(pub BridgeIdx, pub Vec<FlowMod>);

impl Changes for FlowMods {
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)> {
        Some((self.0, Due::Kept(Change::Flow(self.1.get(at)?))))
    }
}

fn source(n: u128) -> Match {
    Match::any().with(FieldId::EthSrc, n)
}

/// Additions of rules for addresses from 1 on.
fn additions(port: u16) -> Vec<FlowMod> {
    (1..=RULES).map(|n| FlowMod::add(source(n), vec![output(port)])).collect()
}

fn begin(r: &mut Rig, all: Vec<FlowMod>) {
    let steps = all.len();
    r.control.begin(Arc::new(FlowMods(r.br, all)), steps, 0);
}

/// Turns of the smallest size, with something else after each. How many turns it took, and what came of it.
pub fn run(r: &mut Rig, mut between: impl FnMut(&mut Rig, usize)) -> (usize, Outcome) {
    for turns in 1.. {
        if let Turn::Done(outcome) = r.control.go_on(&mut || true) {
            return (turns, outcome);
        }
        r.reader.quiescent();
        between(r, turns);
    }
    unreachable!("it ends")
}

/// Of addresses from all over, those whose packets are sent to each port.
fn ports_seen(r: &Rig) -> Vec<Vec<DpAction>> {
    let packets = (1..=RULES).step_by(97).map(|n| {
        let mut key = packet(101);
        key.set(FieldId::EthSrc, n);
        key
    });
    let mut seen: Vec<_> = packets.map(|key| r.translate(&key).actions.to_vec()).collect();
    seen.dedup();
    seen
}

fn rules(r: &Rig) -> usize {
    let mut count = 0;
    r.control.dump(r.br, &RuleFilter::default(), Cursor::default(), usize::MAX, |_| count += 1);
    count
}

#[test]
fn packets_see_all_changes_or_none_while_ports_and_addresses_change_meanwhile() {
    let mut r = rig();
    let nothing = ports_seen(&r);
    begin(&mut r, additions(2));
    let (turns, outcome) = run(&mut r, |r, turn| {
        // Half of the turns come before all is visible, and no packet sees some of it.
        assert_eq!(ports_seen(r).len(), 1, "in turn {turn}");
        let version = r.control.version();
        r.control.fdb_add(r.br, 0, turn as u64, PortNo(101), 0).unwrap();
        assert!(r.control.version() > version, "others have versions of their own");
        r.control.tick(turn as u64);
    });
    outcome.unwrap();
    assert!(turns > 100, "{turns} turns");
    assert!(!r.control.is_changing());
    assert_eq!(rules(&r), RULES as usize);
    let added = ports_seen(&r);
    assert_ne!(added, nothing);

    // A loose deletion, and then a loose modification of what is left: nothing of what vanishes stays linked.
    let modify = FlowMod { command: Command::Modify, ..FlowMod::add(Match::any(), vec![output(3)]) };
    begin(&mut r, vec![modify]);
    let (turns, outcome) = run(&mut r, |r, _| assert_eq!(ports_seen(r).len(), 1));
    outcome.unwrap();
    assert!(turns > 100, "{turns} turns");
    assert_ne!(ports_seen(&r), added);
    begin(&mut r, vec![FlowMod::delete(Match::any())]);
    let (_, outcome) = run(&mut r, |r, _| assert_eq!(ports_seen(r).len(), 1));
    outcome.unwrap();
    assert_eq!((rules(&r), ports_seen(&r)), (0, nothing));
    for now in 0..100 {
        r.reader.quiescent();
        r.control.tick(now);
    }
    assert_eq!(r.control.tick(101), Left::Nothing);
}

#[test]
fn a_refused_change_takes_all_before_it_back_however_many() {
    let mut r = rig();
    begin(&mut r, additions(2));
    run(&mut r, |_, _| ()).1.unwrap();
    let (before, serials) = (ports_seen(&r), |r: &Rig| {
        let all = r.control.rules(r.br, &RuleFilter::default());
        all.iter().map(|rule| rule.serial()).collect::<Vec<_>>()
    });
    let rules_before = serials(&r);
    // It deletes, adds, replaces its own rules and those of others, and ends with a table that is not there.
    let mut all = vec![FlowMod::delete(source(7))];
    all.extend(additions(3));
    all.extend((1..=RULES).map(|n| FlowMod::add(source(n + RULES / 2), vec![output(4)])));
    all.push(FlowMod::delete(Match::any()));
    all.extend(additions(4));
    all.push(FlowMod { table_id: 254, ..FlowMod::add(source(1), vec![]) });
    let last = all.len() - 1;
    begin(&mut r, all);
    let (_, outcome) = run(&mut r, |r, turn| assert_eq!(ports_seen(r), before, "in turn {turn}"));
    assert_eq!(outcome.unwrap_err().0, last);
    assert_eq!(ports_seen(&r), before);
    assert_eq!(serials(&r), rules_before, "the same rules at the same places");
    // The places that are free again are given out again, and all else goes on.
    begin(&mut r, vec![FlowMod::delete(Match::any())]);
    run(&mut r, |_, _| ()).1.unwrap();
    begin(&mut r, additions(3));
    run(&mut r, |_, _| ()).1.unwrap();
    assert_eq!(rules(&r), RULES as usize);
}

#[test]
fn who_changes_tables_meanwhile_finds_the_changes_made_and_their_outcome_waits() {
    let mut r = rig();
    begin(&mut r, additions(2));
    assert!(matches!(r.control.go_on(&mut || true), Turn::More));
    assert!(rules(&r) < RULES as usize);
    r.control.flow_mod(r.br, &FlowMod::delete(source(5)), 0).unwrap();
    assert_eq!(rules(&r), RULES as usize - 1, "what was deleted had been added before");
    assert!(r.control.is_changing(), "nobody has asked for the outcome");
    assert!(matches!(r.control.go_on(&mut || true), Turn::Done(Ok(_))));
    assert!(!r.control.is_changing());
}

#[test]
fn a_group_and_a_meter_with_many_rules_go_with_them_in_turns() {
    use openflow::message::{
        GroupCommand, GroupDesc, GroupMod, MeterCommand, MeterConfig, MeterFlags, MeterMod,
    };
    struct One(BridgeIdx, GroupMod, MeterMod, bool);
    impl Changes for One {
        fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)> {
            let change = if self.3 { Change::Group(&self.1) } else { Change::MeterDelete(&self.2) };
            (at == 0).then_some((self.0, Due::Kept(change)))
        }
    }
    let group = |command| {
        let group = GroupDesc { group_id: 1, ..GroupDesc::default() };
        GroupMod { command, command_bucket_id: openflow::message::BUCKET_ALL, group }
    };
    let meter = |command| {
        let band =
            openflow::message::Band { kind: openflow::message::BandType::Drop, rate: 1, burst_size: 0 };
        MeterMod { command, meter: MeterConfig { meter_id: 1, flags: MeterFlags::KBPS, bands: vec![band] } }
    };
    for is_group in [true, false] {
        let mut r = rig();
        r.control.group_mod(r.br, &group(GroupCommand::Add), 0).unwrap();
        r.control.meter_mod(r.br, &meter(MeterCommand::Add), 0).unwrap();
        let action = if is_group { Action::Group(1) } else { Action::Meter(1) };
        let actions = || vec![action.clone(), output(2)];
        begin(&mut r, (1..=RULES).map(|n| FlowMod::add(source(n), actions())).collect());
        run(&mut r, |_, _| ()).1.unwrap();
        let one = One(r.br, group(GroupCommand::Delete), meter(MeterCommand::Delete), is_group);
        let steps = r.control.steps_of(r.br, one.change(0).unwrap().1.as_change());
        assert_eq!(steps, 1 + RULES as usize);
        r.control.begin(Arc::new(one), steps, 0);
        let (turns, outcome) = run(&mut r, |r, _| assert_eq!(ports_seen(r).len(), 1));
        outcome.unwrap();
        assert!(turns > 100, "{turns} turns");
        assert_eq!(rules(&r), 0);
        let left = (r.control.groups(r.br).count(), r.control.meters(r.br).count());
        assert_eq!(left, if is_group { (0, 1) } else { (1, 0) });
    }
}

/// The same packet again and again, to table 1.
struct Packets(BridgeIdx, Key, Vec<Action>, usize);

impl Changes for Packets {
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)> {
        let out = PacketOut { key: &self.1, actions: &self.2, version: Version::V13 };
        (at < self.3).then_some((self.0, Due::Kept(Change::Packet(out))))
    }
}

fn packets(r: &Rig, count: usize) -> Packets {
    let actions = vec![Action::Resubmit { in_port: None, table: Some(1), ct: false }];
    Packets(r.br, packet(101), actions, count)
}

#[test]
fn packets_of_a_transaction_may_take_so_much_memory_until_they_are_carried_out() {
    let mut r = rig();
    let outputs: Vec<Action> = (0..4_000).map(|n| output(2 + n % 3)).collect();
    r.add(1, 1, Match::any(), outputs);
    let bytes_each = 4_000 * size_of::<DpAction>();
    let fitting = (256 << 20) / bytes_each;
    let kept = r.control.change_at_once(&packets(&r, fitting - 10), 0).unwrap().packets;
    assert_eq!(kept.len(), fitting - 10);
    assert!(kept.iter().all(|packet| packet.actions.len() == 4_000 && packet.actions.capacity() < 4_100));
    drop(kept);
    let refused = r.control.change_at_once(&packets(&r, 2 * fitting), 0).map(|kept| kept.packets.len());
    let (at, error) = refused.unwrap_err();
    assert!((fitting - 10..=fitting).contains(&at), "{at} instead of {fitting}");
    assert_eq!(error, FlowModError::Refused(ErrorKind::OFPBFC_MSG_FAILED));
}

#[test]
fn however_often_large_changes_are_made_or_fail_the_version_does_not_get_far() {
    let mut r = rig();
    let first = r.control.version();
    for n in 0..1_024 {
        let command = if n % 2 == 0 { GroupCommand::InsertBucket } else { GroupCommand::Add };
        let one = group(1 + n, command, 1);
        r.control.begin(Arc::new(Groups(r.br, vec![one])), 1 << 20, u64::from(n));
        let outcome = run(&mut r, |_, _| ()).1;
        assert_eq!(outcome.is_ok(), command == GroupCommand::Add, "{n}: {outcome:?}");
    }
    let moved = r.control.version().0 - first.0;
    assert!(moved < 1 << 27, "by {moved} in a second");
}

fn group(group_id: u32, command: GroupCommand, buckets: u32) -> GroupMod {
    let bucket = |id| Bucket { id, weight: 0, watch_port: None, watch_group: None, actions: vec![output(2)] };
    let (kind, selection) = (GroupType::All, GroupSelection::default());
    let group = GroupDesc { group_id, kind, buckets: (0..buckets).map(bucket).collect(), selection };
    GroupMod { command, command_bucket_id: BUCKET_ALL, group }
}

struct Groups(BridgeIdx, Vec<GroupMod>);

impl Changes for Groups {
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)> {
        Some((self.0, Due::Kept(Change::Group(self.1.get(at)?))))
    }
}

#[test]
fn a_turn_ends_soon_after_a_packet_or_a_group_with_many_buckets() {
    let mut r = rig();
    r.add(1, 1, Match::any(), vec![output(2)]);
    r.control.begin(Arc::new(packets(&r, 20)), 20, 0);
    let (turns, outcome) = run(&mut r, |_, _| ());
    assert_eq!(outcome.unwrap().packets.len(), 20);
    assert!(turns >= 20, "{turns} turns");

    r.control.begin(
        Arc::new(Groups(r.br, (1..=20).map(|id| group(id, GroupCommand::Add, 100)).collect())),
        20,
        0,
    );
    let (turns, outcome) = run(&mut r, |_, _| ());
    outcome.unwrap();
    assert!(turns >= 20, "{turns} turns");
}

#[test]
fn the_outcome_names_the_changes_that_added_a_group_where_they_could_have_modified_one() {
    let mut r = rig();
    use GroupCommand::{Add, AddOrModify, Delete};
    let all = [(1, Add), (1, AddOrModify), (2, AddOrModify), (2, AddOrModify), (2, Delete), (2, AddOrModify)];
    let all = all.map(|(id, command)| group(id, command, 1)).to_vec();
    let done = r.control.change_at_once(&Groups(r.br, all), 0).unwrap();
    assert_eq!(done.added_groups, [2, 5]);
}

/// Each made a copy of every rule, and nobody counted them.
#[test]
fn loose_changes_of_a_transaction_may_replace_so_many_rules_again() {
    let mut r = rig();
    begin(&mut r, additions(2));
    run(&mut r, |_, _| ()).1.unwrap();
    let before = ports_seen(&r);
    let modify = |n: usize| FlowMod {
        command: Command::Modify,
        flags: RuleFlags { reset_counts: n % 2 == 1, ..RuleFlags::default() },
        ..FlowMod::add(Match::any(), vec![output(3 + n as u16 % 2)])
    };
    let all: Vec<FlowMod> = (0..1_000).map(modify).collect();
    let (at, error) = r.control.change_at_once(&FlowMods(r.br, all), 0).map(drop).unwrap_err();
    assert_eq!(error, FlowModError::Refused(ErrorKind::OFPBFC_MSG_FAILED));
    assert!((200..900).contains(&at), "after {at}");
    assert_eq!(ports_seen(&r), before);
    assert_eq!(rules(&r), RULES as usize);
}

/// Messages of a hundred kilobytes made everybody wait for minutes.
#[test]
fn loose_changes_of_a_transaction_may_look_at_so_many_rules() {
    let mut r = rig();
    begin(&mut r, additions(2));
    run(&mut r, |_, _| ()).1.unwrap();
    let nothing = FlowMod { cookie: 7, cookie_mask: u64::MAX, ..FlowMod::delete(Match::any()) };
    let many = 200_000;
    let (at, error) = r.control.change_at_once(&Repeated(r.br, nothing, many), 0).map(drop).unwrap_err();
    assert_eq!(error, FlowModError::Refused(ErrorKind::OFPBFC_MSG_FAILED));
    let looked_at = at * RULES as usize;
    assert!((1 << 28..1 << 30).contains(&looked_at), "{looked_at}");
}

/// One flow-mod many times.
struct Repeated(BridgeIdx, FlowMod, usize);

impl Changes for Repeated {
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)> {
        (at < self.2).then_some((self.0, Due::Kept(Change::Flow(&self.1))))
    }
}

//! The classifier against a linear search, and its masks against all other keys that agree on them, while
//! rules come and go and lookups run at the newest and at older versions.

use base::Version;
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use flow::{Classifier, FieldId, Key, Mask, Match};
use proptest::prelude::*;

/// A little generator, so that one number of a failing case stands for a whole rule or key.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Fields that rules of the test match, with the lengths of prefixes that they use; values come from
/// [`value`].
const FIELDS: &[(FieldId, &[u32])] = &[
    (FieldId::InPort, &[16]),
    (FieldId::EthType, &[16]),
    (FieldId::EthDst, &[48, 48, 8]),
    (FieldId::VlanTci, &[16, 4]),
    (FieldId::NwSrc, &[8, 12, 16, 20, 24, 31, 32, 32]),
    (FieldId::NwDst, &[1, 8, 16, 17, 24, 30, 32, 32]),
    (FieldId::NwProto, &[8]),
    (FieldId::NwTos, &[6]),
    (FieldId::TpSrc, &[16, 16, 12, 3]),
    (FieldId::TpDst, &[16, 16, 8, 15]),
    (FieldId::TcpFlags, &[16]),
    (FieldId::Ipv6Src, &[32, 64, 65, 128]),
    (FieldId::Ipv6Dst, &[16, 64, 100, 128]),
    (FieldId::NdTarget, &[128]),
    (FieldId::ArpSha, &[48]),
    (FieldId::Reg0, &[32, 8]),
    (FieldId::Metadata, &[64]),
    (FieldId::CtState, &[32]),
    (FieldId::CtLabel, &[128, 70]),
    (FieldId::TunId, &[64]),
];

/// A value of the field from a small set, in which values share prefixes of every length.
fn value(field: FieldId, dice: &mut Dice) -> u128 {
    let bits = u32::from(field.place().bits);
    let base = (0x0a01_6433_0000_c0de_5aa5_0808_1700_3311u128 >> (dice.below(3) * 8)) & field.ones();
    match dice.below(4) {
        0 => base,
        1 => base ^ 1 << dice.below(u64::from(bits)),
        2 => base ^ u128::from(dice.below(4)),
        _ => base ^ (u128::from(dice.below(4)) << (bits / 2)) & field.ones(),
    }
}

/// Ethernet, and IPv4 without it.
const PACKET_TYPES: &[u128] = &[0, 0x0001_0800];

fn prefix(field: FieldId, len: u32) -> u128 {
    field.ones() & !(field.ones() >> len.min(127) >> u32::from(len == 128))
}

fn random_match(dice: &mut Dice) -> Match {
    let mut m = Match::any();
    // Few fields make overlaps; tables in practice have them in few combinations.
    let from = if dice.one_in(3) { FIELDS } else { &FIELDS[..11] };
    for _ in 0..dice.below(5) {
        let (field, lens) = dice.pick(from);
        let mask = if dice.one_in(12) { value(field, dice) } else { prefix(field, dice.pick(lens)) };
        m.set_masked(field, value(field, dice), mask);
    }
    if dice.one_in(6) {
        m.set_masked(FieldId::PacketType, dice.pick(PACKET_TYPES), FieldId::PacketType.ones());
    }
    m
}

fn random_key(rules: &[Modelled], dice: &mut Dice) -> Key {
    let mut key = Key::default();
    for &(field, _) in FIELDS {
        if !dice.one_in(4) {
            key.set(field, value(field, dice));
        }
    }
    if dice.one_in(3) {
        key.set(FieldId::PacketType, dice.pick(PACKET_TYPES));
    }
    // Near a rule, and possibly one bit off it.
    if !rules.is_empty() && !dice.one_in(4) {
        let near = &rules[dice.below(rules.len() as u64) as usize].matching;
        for b in near.mask.0.present_blocks() {
            for w in 0..8 {
                let mask = near.mask.0.word(b, w);
                key.set_word(b, w, key.word(b, w) & !mask | near.key.word(b, w));
            }
        }
        if dice.one_in(2) {
            let (field, _) = dice.pick(FIELDS);
            let bit = 1 << dice.below(u64::from(field.place().bits));
            key.set(field, key.get(field) ^ bit);
        }
    }
    key
}

#[derive(Clone)]
struct Modelled {
    id: usize,
    matching: Match,
    priority: i32,
    appears: u64,
    vanishes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64),
    Remove(u64),
    Restore(u64),
    Publish,
    Retire(u64),
    Lookup(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => any::<u64>().prop_map(Op::Insert),
        3 => any::<u64>().prop_map(Op::Remove),
        1 => any::<u64>().prop_map(Op::Restore),
        3 => Just(Op::Publish),
        1 => any::<u64>().prop_map(Op::Retire),
        8 => any::<u64>().prop_map(Op::Lookup),
    ];
    proptest::collection::vec(op, 1..120)
}

/// What a mutant does to a lookup: to the version that it looks up, and to the mask that it gets.
#[derive(Clone, Copy)]
struct Mutant {
    version: fn(u64) -> u64,
    mask: MaskMutation,
}

type MaskMutation = fn(&mut Mask);

const FAITHFUL: Mutant = Mutant { version: |v| v, mask: |_| () };

struct World {
    classifier: Classifier<usize>,
    rules: Vec<Modelled>,
    /// Published.
    now: u64,
    /// Lookups are no older.
    oldest: u64,
    ids: usize,
    mutant: Mutant,
}

type Verdict = Result<(), String>;

impl World {
    fn new(mutant: Mutant) -> (World, Reader) {
        let domain = Domain::new();
        let reader = domain.register();
        let classifier = Classifier::new(domain, HashKey::from_seed(1));
        (World { classifier, rules: Vec::new(), now: 1, oldest: 1, ids: 0, mutant }, reader)
    }

    fn lookup(&self, version: u64, key: &Key, reader: &Reader) -> (Option<usize>, Mask) {
        let mut wc = Mask::wild();
        let version = Version((self.mutant.version)(version));
        let found = self.classifier.lookup(version, key, &mut wc, reader, &mut 0).map(|r| *r.data());
        (self.mutant.mask)(&mut wc);
        (found, wc)
    }

    fn apply(&mut self, op: Op, reader: &Reader) -> Verdict {
        let next = Version(self.now + 1);
        match op {
            Op::Insert(seed) => self.insert(&mut Dice(seed), reader),
            Op::Remove(seed) => {
                let Some(at) = self.pick_rule(seed) else { return Ok(()) };
                let rule = &mut self.rules[at];
                let id = rule.id;
                let found = self.classifier.iter_all(reader).find(|r| *r.data() == id);
                let found = found.ok_or(format!("rule {id} is not among all"))?;
                let removed = self.classifier.remove(found, next);
                check(removed == (rule.vanishes == u64::MAX), || format!("removed {removed}"))?;
                rule.vanishes = rule.vanishes.min(next.0);
                Ok(())
            }
            Op::Restore(seed) => {
                let Some(at) = self.pick_rule(seed) else { return Ok(()) };
                // As a batch that is taken back restores: what had taken the rule's place is gone again by
                // then.
                let (place, priority) = (self.rules[at].matching.clone(), self.rules[at].priority);
                let taken = self.rules.iter().any(|r| {
                    r.matching == place
                        && r.priority == priority
                        && r.appears <= next.0
                        && next.0 < r.vanishes
                });
                let rule = &mut self.rules[at];
                let id = rule.id;
                if rule.vanishes == next.0 && !taken {
                    let found = self.classifier.iter_all(reader).find(|r| *r.data() == id);
                    check(self.classifier.restore(found.ok_or("restored is gone")?), || {
                        "not restored".into()
                    })?;
                    rule.vanishes = u64::MAX;
                }
                Ok(())
            }
            Op::Publish => {
                self.now += 1;
                Ok(())
            }
            Op::Retire(seed) => {
                self.oldest += Dice(seed).below(self.now - self.oldest + 1);
                let oldest = self.oldest;
                let left = self.classifier.retire(Version(oldest), usize::MAX, reader).left;
                self.rules.retain(|r| r.vanishes > oldest);
                let expected = self.rules.iter().filter(|r| r.vanishes != u64::MAX).count();
                check(left == expected, || format!("{left} left of {expected}"))?;
                let all = self.classifier.iter_all(reader).count();
                check(all == self.rules.len(), || format!("{all} linked of {}", self.rules.len()))
            }
            Op::Lookup(seed) => self.look(&mut Dice(seed), reader),
        }
    }

    fn pick_rule(&self, seed: u64) -> Option<usize> {
        (!self.rules.is_empty()).then(|| Dice(seed).below(self.rules.len() as u64) as usize)
    }

    fn insert(&mut self, dice: &mut Dice, reader: &Reader) -> Verdict {
        // Often the mask of another rule, so that subtables fill.
        let mut matching = random_match(dice);
        if !self.rules.is_empty() && dice.one_in(2) {
            let other = &self.rules[dice.below(self.rules.len() as u64) as usize].matching;
            let mut key = Key::default();
            for &(field, _) in FIELDS {
                key.set(field, value(field, dice));
            }
            matching = Match::new(&key, other.mask.clone());
        }
        let priority = dice.below(6) as i32 * 10;
        let next = self.now + 1;
        let same = |r: &&Modelled| {
            r.matching == matching && r.priority == priority && r.appears <= next && next < r.vanishes
        };
        let expected = self.rules.iter().find(same).map(|r| r.id);
        let found = self.classifier.find_exact(&matching, priority, Version(next), reader);
        check(found.map(|r| *r.data()) == expected, || format!("exact: {found:?}, not {expected:?}"))?;
        if expected.is_some() {
            return Ok(());
        }
        self.ids += 1;
        let rule = self.classifier.insert(&matching, priority, Version(next), self.ids, reader);
        check(rule.to_match() == matching, || format!("{:?} is not {matching:?}", rule.to_match()))?;
        self.rules.push(Modelled { id: self.ids, matching, priority, appears: next, vanishes: u64::MAX });
        Ok(())
    }

    fn look(&self, dice: &mut Dice, reader: &Reader) -> Verdict {
        let version = self.oldest + dice.below(self.now - self.oldest + 1);
        let visible: Vec<_> =
            self.rules.iter().filter(|r| r.appears <= version && version < r.vanishes).collect();
        let key = random_key(&self.rules, dice);
        let (found, wc) = self.lookup(version, &key, reader);
        let best = visible.iter().filter(|r| r.matching.matches(&key)).map(|r| r.priority).max();
        let of_found = found
            .map(|id| visible.iter().find(|r| r.id == id).map(|r| (r.priority, r.matching.matches(&key))));
        check(of_found == best.map(|p| Some((p, true))), || format!("found {of_found:?}, best is {best:?}"))?;

        self.mask_is_not_too_wide(version, &key, found, &wc, dice, reader)?;

        let within = random_match(dice);
        let mut got: Vec<_> =
            self.classifier.iter_within(&within, Version(version), reader).map(|r| *r.data()).collect();
        let mut expected: Vec<_> =
            visible.iter().filter(|r| r.matching.is_within(&within)).map(|r| r.id).collect();
        got.sort();
        expected.sort();
        check(got == expected, || format!("within {within:?}: {got:?}, not {expected:?}"))?;
        let overlap = self.classifier.find_overlap(&within, 20, Version(version), reader);
        let expected = visible.iter().any(|r| r.priority == 20 && r.matching.overlaps(&within));
        check(overlap.is_some() == expected, || format!("overlap {overlap:?}, not {expected}"))
    }

    /// Looks up other keys that agree with `key` on `wc`.
    fn mask_is_not_too_wide(
        &self,
        version: u64,
        key: &Key,
        found: Option<usize>,
        wc: &Mask,
        dice: &mut Dice,
        reader: &Reader,
    ) -> Verdict {
        let same = |other: &Key| {
            let (again, _) = self.lookup(version, other, reader);
            check(again == found, || {
                format!("mask too wide: {found:?} and {again:?} under {wc:?}\n{key:?}\n{other:?}")
            })
        };
        let mut matter = Mask::wild();
        for rule in &self.rules {
            matter.unite(&rule.matching.mask);
        }
        for b in matter.0.present_blocks() {
            for w in 0..8 {
                let mut free = matter.0.word(b, w) & !wc.0.word(b, w);
                while free != 0 {
                    let mut other = key.clone();
                    other.set_word(b, w, key.word(b, w) ^ (free & free.wrapping_neg()));
                    same(&other)?;
                    free &= free - 1;
                }
            }
        }
        for _ in 0..8 {
            let mut other = random_key(&self.rules, dice);
            for b in wc.0.present_blocks() {
                for w in 0..8 {
                    let mask = wc.0.word(b, w);
                    other.set_word(b, w, other.word(b, w) & !mask | key.word(b, w) & mask);
                }
            }
            same(&other)?;
        }
        Ok(())
    }
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn run(ops: &[Op], mutant: Mutant) -> Verdict {
    let (mut world, mut reader) = World::new(mutant);
    for &op in ops {
        world.apply(op, &reader)?;
        reader.quiescent();
        reader.domain().reclaim();
    }
    let live = world.rules.iter().filter(|r| r.vanishes == u64::MAX).count();
    check(world.classifier.len() == live, || format!("len {} of {live}", world.classifier.len()))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: testkit::cases("flow::classifier_agrees_with_a_linear_search", 400),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn classifier_agrees_with_a_linear_search_and_its_masks_are_not_too_wide(ops in ops()) {
        if let Err(error) = run(&ops, FAITHFUL) {
            return Err(TestCaseError::fail(error));
        }
    }
}

/// Runs the oracle on random cases until it refuses the mutant; how many cases that took.
fn cases_until_refused(mutant: Mutant) -> Option<usize> {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    (1..=200).find(|_| {
        let case = ops().new_tree(&mut runner).expect("the strategy rejects nothing").current();
        run(&case, mutant).is_err()
    })
}

fn lose(mask: &mut Mask, field: FieldId, bits: u128) {
    let left = mask.get(field) & !bits;
    mask.set(field, left);
}

#[test]
fn the_oracle_refuses_a_lost_mask_bit() {
    let mutants: [(&str, MaskMutation); 4] = [
        ("highest bit of nw_dst", |m| lose(m, FieldId::NwDst, 1 << 31)),
        ("a low bit of nw_src", |m| lose(m, FieldId::NwSrc, 1)),
        ("in_port", |m| lose(m, FieldId::InPort, u128::MAX)),
        ("a bit of tp_dst", |m| lose(m, FieldId::TpDst, 1 << 4)),
    ];
    for (what, mask) in mutants {
        let cases = cases_until_refused(Mutant { mask, ..FAITHFUL });
        assert!(cases.is_some(), "the oracle does not notice a mask without {what}");
    }
}

#[test]
fn the_oracle_refuses_a_wrong_version() {
    assert!(cases_until_refused(Mutant { version: |v| v - 1, ..FAITHFUL }).is_some());
    assert!(cases_until_refused(Mutant { version: |v| v + 1, ..FAITHFUL }).is_some());
}

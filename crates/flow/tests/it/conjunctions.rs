//! Conjunctive matches against a linear model, with masks that must not be too wide, in tables where rules
//! hide one another, conjunctions share clauses, and some are asked for by no rule.

use crate::classifier_oracle::Dice;
use base::Version;
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use flow::classifier::{Clause, forget_conj_id};
use flow::{Classifier, FieldId, Key, Mask, Match};

const FIELDS: [FieldId; 4] = [FieldId::NwSrc, FieldId::NwDst, FieldId::TpDst, FieldId::InPort];
const NOW: Version = Version(2);

#[derive(Clone)]
struct Rule {
    matching: Match,
    priority: i32,
    clauses: Vec<Clause>,
}

/// A mistake: in the mask, or in the clauses that a lookup is told of.
#[derive(Clone, Copy)]
struct Mutant {
    mask: fn(&mut Mask),
    clauses: fn(&[Clause]) -> &[Clause],
}

const FAITHFUL: Mutant = Mutant { mask: |_| (), clauses: |all| all };

struct World {
    classifier: Classifier<usize>,
    rules: Vec<Rule>,
    mutant: Mutant,
}

fn value(field: FieldId, dice: &mut Dice) -> u128 {
    let high = u128::from(dice.below(2)) << (field.place().bits - 1);
    high | u128::from(dice.below(3))
}

fn random_match(dice: &mut Dice) -> Match {
    let mut m = Match::any();
    for field in FIELDS {
        if dice.one_in(3) {
            let mask = dice.pick(&[field.ones(), field.ones(), field.ones() << 1 & field.ones(), 3]);
            m.set_masked(field, value(field, dice), mask);
        }
    }
    m
}

impl World {
    fn random(dice: &mut Dice, mutant: Mutant) -> (World, Reader) {
        let domain = Domain::new();
        let reader = domain.register();
        let classifier = Classifier::new(domain, HashKey::from_seed(1));
        let mut rules: Vec<Rule> = Vec::new();
        for n in 0..dice.below(40) as i32 + 4 {
            let mut matching = random_match(dice);
            if !rules.is_empty() && dice.one_in(3) {
                matching = rules[dice.below(rules.len() as u64) as usize].matching.clone();
            }
            let is_clause = dice.below(5) < 3;
            if !is_clause && dice.one_in(2) {
                matching.set_masked(FieldId::ConjId, dice.below(4).into(), u32::MAX.into());
            }
            // No two plain rules have the same priority, lest it be open which of them is found.
            let level = dice.below(4) as i32 * 100;
            let priority = if is_clause || dice.one_in(8) { level } else { level + n };
            let clash = |r: &&Rule| {
                r.priority == priority && (r.matching == matching || r.clauses.is_empty() && !is_clause)
            };
            if rules.iter().find(clash).is_some() {
                continue;
            }
            let mut clauses = Vec::new();
            for _ in 0..if is_clause { dice.below(3) + 1 } else { 0 } {
                let id = dice.below(4) as u32;
                // Now and then one that disagrees on how many there are.
                let count = if dice.one_in(10) { 2 } else { 2 + (id % 2) as u8 };
                clauses.push(Clause { id, count, number: dice.below(count.into()) as u8 });
            }
            classifier.insert(&matching, priority, NOW, rules.len(), &reader);
            rules.push(Rule { matching, priority, clauses });
        }
        (World { classifier, rules, mutant }, reader)
    }

    fn lookup(&self, key: &Key, reader: &Reader) -> (Option<usize>, Mask) {
        let mut wc = Mask::wild();
        let clauses = |n: &usize| (self.mutant.clauses)(&self.rules[*n].clauses);
        let found = self.classifier.lookup_conjunctive(NOW, key, &mut wc, reader, &mut 0, clauses);
        let found = found.map(|r| *r.data());
        forget_conj_id(&mut wc);
        (self.mutant.mask)(&mut wc);
        (found, wc)
    }

    /// The same, by looking at every rule.
    fn expected(&self, key: &Key) -> Option<usize> {
        let matching = |n: &usize| self.rules[*n].matching.matches(key);
        let mut candidates: Vec<usize> = (0..self.rules.len()).filter(matching).collect();
        candidates.sort_by_key(|n| -self.rules[*n].priority);
        // Of each match, the rule of highest priority.
        let mut shown: Vec<usize> = Vec::new();
        for &n in &candidates {
            if !shown.iter().any(|s| self.rules[*s].matching == self.rules[n].matching) {
                shown.push(n);
            }
        }
        loop {
            let is_plain = |n: &&usize| self.rules[**n].clauses.is_empty();
            let best = |plain: bool| {
                let of_kind = shown.iter().filter(|n| is_plain(n) == plain);
                of_kind.map(|n| self.rules[*n].priority).max()
            };
            let (plain, soft) = (best(true), best(false));
            let plain_rule =
                || shown.iter().copied().find(|n| is_plain(&n) && Some(self.rules[*n].priority) == plain);
            if soft.is_none() || plain >= soft {
                return plain_rule();
            }
            let top: Vec<usize> = shown
                .iter()
                .copied()
                .filter(|n| !is_plain(&n) && Some(self.rules[*n].priority) == soft)
                .collect();
            let mut any_met = false;
            for id in 0..4 {
                let met = (2..=3u8).any(|count| {
                    (0..count).all(|number| {
                        let clause = Clause { id, count, number };
                        top.iter().any(|n| self.rules[*n].clauses.contains(&clause))
                    })
                });
                if !met {
                    continue;
                }
                any_met = true;
                let mut key = key.clone();
                key.set(FieldId::ConjId, id.into());
                let asks = |n: &usize| {
                    let rule = &self.rules[*n];
                    rule.clauses.is_empty()
                        && rule.matching.mask.get(FieldId::ConjId) != 0
                        && rule.matching.matches(&key)
                };
                let asking = (0..self.rules.len()).filter(asks).max_by_key(|n| self.rules[*n].priority);
                if let Some(rule) = asking {
                    let wins = plain.is_none_or(|plain| self.rules[rule].priority >= plain);
                    return if wins { Some(rule) } else { plain_rule() };
                }
            }
            if any_met && plain.is_some() {
                return plain_rule();
            }
            for n in top {
                let same = |o: &&usize| {
                    self.rules[**o].matching == self.rules[n].matching
                        && self.rules[**o].priority < self.rules[n].priority
                };
                let next = candidates.iter().find(same).copied();
                shown.retain(|s| *s != n);
                shown.extend(next);
            }
        }
    }

    fn key(&self, dice: &mut Dice) -> Key {
        let mut key = Key::default();
        for field in FIELDS {
            key.set(field, value(field, dice));
        }
        // What several rules ask for together.
        for _ in 0..dice.below(4) {
            let near = &self.rules[dice.below(self.rules.len() as u64) as usize].matching;
            for field in FIELDS {
                key.set_masked(field, near.key.get(field), near.mask.get(field));
            }
        }
        key
    }
}

/// One table, some packets. How many of them matched a conjunction.
fn check(seed: u64, mutant: Mutant) -> Result<usize, String> {
    let dice = &mut Dice(seed);
    let (world, reader) = World::random(dice, mutant);
    let mut conjunctions = 0;
    for _ in 0..20 {
        let key = world.key(dice);
        let (found, wc) = world.lookup(&key, &reader);
        let expected = world.expected(&key);
        if found != expected {
            return Err(format!("seed {seed}: {found:?}, not {expected:?}"));
        }
        let asks = |n: usize| world.rules[n].matching.mask.get(FieldId::ConjId) != 0;
        conjunctions += usize::from(found.is_some_and(|n| asks(n) && !world.rules[n].matching.matches(&key)));
        for round in 0..24 {
            let mut other = if round < 12 { world.key(dice) } else { key.clone() };
            if round >= 12 {
                let field = dice.pick(&FIELDS);
                other.set(field, other.get(field) ^ 1 << dice.below(field.place().bits.into()));
            }
            for field in FIELDS {
                other.set_masked(field, key.get(field), wc.get(field));
            }
            let (again, _) = world.lookup(&other, &reader);
            if again != found {
                return Err(format!("seed {seed}: {found:?} and {again:?} under {wc:?}"));
            }
        }
    }
    Ok(conjunctions)
}

#[test]
fn conjunctions_are_matched_as_the_model_does_and_masks_are_not_too_wide() {
    let seeds = u64::from(testkit::cases("flow::conjunctions", 1500));
    let matched: usize = (0..seeds).map(|seed| check(seed, FAITHFUL).unwrap()).sum();
    assert!(matched as u64 > seeds / 4, "only {matched} packets in {seeds} tables matched a conjunction");
}

#[test]
fn a_mask_that_forgets_how_a_clause_was_met_is_found() {
    let lose = |mask: &mut Mask| {
        let left = mask.get(FieldId::NwSrc) & !3;
        mask.set(FieldId::NwSrc, left);
    };
    assert!((0..200).any(|seed| check(seed, Mutant { mask: lose, ..FAITHFUL }).is_err()));
}

#[test]
fn a_clause_that_is_not_counted_is_found() {
    let clauses: fn(&[Clause]) -> &[Clause] = |all| if all.len() > 1 { &all[1..] } else { all };
    assert!((0..200).any(|seed| check(seed, Mutant { clauses, ..FAITHFUL }).is_err()));
}

#[test]
fn ten_thousand_clauses_are_ten_thousand_rules_of_two_masks() {
    let domain = Domain::new();
    let reader = domain.register();
    let table: Classifier<Vec<Clause>> = Classifier::new(domain, HashKey::from_seed(1));
    let exact = |field: FieldId, value: u32| {
        let mut m = Match::any();
        m.set_masked(field, value.into(), field.ones());
        m
    };
    for n in 0..5_000 {
        let clause = |number| vec![Clause { id: 7, count: 2, number }];
        table.insert(&exact(FieldId::NwSrc, n), 10, NOW, clause(0), &reader);
        table.insert(&exact(FieldId::NwDst, n), 10, NOW, clause(1), &reader);
    }
    table.insert(&exact(FieldId::ConjId, 7), 1, NOW, vec![], &reader);
    assert_eq!((table.len(), table.masks(&reader).count()), (10_001, 3));
    let found = |src: u32, dst: u32| {
        let mut key = Key::default();
        key.set(FieldId::NwSrc, src.into());
        key.set(FieldId::NwDst, dst.into());
        table.lookup_conjunctive(NOW, &key, &mut Mask::wild(), &reader, &mut 0, |c| c).is_some()
    };
    // Each of the 25 million pairs, in samples.
    assert!((0..5_000).all(|n| found(n, n * 7 % 5_000)));
    assert!((0..5_000).all(|n| !found(n, 5_000 + n) && !found(5_000 + n, n)));
}

#[test]
fn clauses_of_one_match_at_many_priorities_cost_no_more_than_in_proportion() {
    use base::clock::thread_cpu_ns;
    let took = |rules: i32| {
        let domain = Domain::new();
        let reader = domain.register();
        let table: Classifier<Vec<Clause>> = Classifier::new(domain, HashKey::from_seed(1));
        for n in 0..rules {
            let clause = Clause { id: n as u32, count: 2, number: 0 };
            table.insert(&Match::any(), 1 + n, NOW, vec![clause], &reader);
        }
        table.insert(&Match::any(), 0, NOW, vec![], &reader);
        let lookup = || {
            let start = thread_cpu_ns();
            let found =
                table.lookup_conjunctive(NOW, &Key::default(), &mut Mask::wild(), &reader, &mut 0, |c| c);
            assert_eq!(found.map(|rule| rule.priority()), Some(0), "the rule below all clauses");
            thread_cpu_ns() - start
        };
        (0..5).map(|_| lookup()).min().unwrap_or(u64::MAX)
    };
    // Eight times the rules took 64 times as long when each rule was looked for anew.
    let (few, many) = (took(1_000), took(8_000));
    assert!(many < few * 30, "{few} and {many} ns");
}

//! Conjunctive matches: rules that represent a product of alternatives without one rule for each combination.
//!
//! A rule whose data is "clause k of n of conjunction id" decides nothing by itself (it is a *soft* match).
//! If rules of one priority satisfy all clauses of an id, the packet matches whatever matches `conj_id=id`.
//! If no id is satisfied at that priority, each soft match is replaced by the next rule with the same match
//! and a lower priority, plain or not, and the search continues from there. A plain rule of at least the
//! priority of all soft matches ends it. Source: ovs-fields(7), "Conjunctive Match Fields"; where that is
//! ambiguous, Open vSwitch's choice applies.
//!
//! Cost: a key matches at most one rule of each mask and priority, so a lookup collects few rules, however
//! many there are; it counts their clauses, whose number is a sum over those rules, never a product.
//!
//! The mask: the bits that the lookups add to it determine the soft matches, and those determine the id, so
//! the lookup of the id adds no bits of `conj_id`: it is 0 in every packet.
//!
//! Threads: like [`Classifier::lookup`]; it allocates while there are soft matches.

use super::{Classifier, Ranked, RuleRef, is_frame};
use crate::field::FieldId;
use crate::key::{Key, Mask};
use base::Version;
use base::hash::HashKey;
use base::rcu::Reader;
use hashbrown::HashTable;
use std::sync::atomic::Ordering;

/// One way to satisfy one clause of a conjunction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Clause {
    /// The conjunction. Clauses of the same id belong together only if they agree on how many there are.
    pub id: u32,
    /// The number of its clauses, at most 64.
    pub count: u8,
    /// The index of this clause, from 0.
    pub number: u8,
}

impl<R: Send + Sync + 'static> Classifier<R> {
    /// Like [`Self::lookup`], for a table with rules that are clauses of conjunctions; `clauses` returns
    /// those in a rule's data. Never returns such a rule.
    pub fn lookup_conjunctive<'g>(
        &'g self,
        version: Version,
        key: &Key,
        wc: &mut Mask,
        reader: &'g Reader,
        steps: &mut u32,
        clauses: impl Fn(&'g R) -> &'g [Clause],
    ) -> Option<RuleRef<'g, R>> {
        let mut plain: Option<RuleRef<'g, R>> = None;
        let mut soft: Vec<Soft<'g, R>> = Vec::new();
        let is_frame = is_frame(key, wc);
        for ranked in self.ranking.read(reader) {
            let floor = plain.map(|plain| plain.priority());
            if floor.is_some_and(|floor| floor >= ranked.priority_max.load(Ordering::Relaxed)) {
                break;
            }
            *steps += 1;
            let subtable = &*ranked.subtable;
            if !is_frame && subtable.implies_ethernet {
                continue;
            }
            if let Some(entry) = subtable.find(version, key, floor, wc, (&self.shared, reader)) {
                let found = RuleRef { entry, subtable };
                match clauses(found.data()) {
                    [] => plain = Some(found),
                    _ => soft.push(Soft { rule: found, hidden: None }),
                }
            }
        }
        let mut tally = Tally::new(&self.shared.secret);
        let mut asking: Option<Vec<&Ranked<R>>> = None;
        loop {
            let floor = plain.map(|plain| plain.priority());
            soft.retain(|soft| floor.is_none_or(|floor| soft.rule.priority() > floor));
            *steps += soft.len() as u32;
            let Some(highest) = soft.iter().map(|soft| soft.rule.priority()).max() else { return plain };
            let of_highest = soft.iter().map(|soft| soft.rule).filter(|rule| rule.priority() == highest);
            let met = tally.met(of_highest.flat_map(|rule| clauses(rule.data())).copied());
            if !met.is_empty() {
                let asking = asking.get_or_insert_with(|| self.asking(is_frame, reader));
                let mut key = key.clone();
                for &id in met {
                    key.set(FieldId::ConjId, id.into());
                    if let Some(rule) = self.lookup_conj_id(version, &key, wc, (asking, reader), &clauses) {
                        let is_better = |plain: &RuleRef<'_, R>| plain.priority() > rule.priority();
                        return Some(plain.filter(is_better).unwrap_or(rule));
                    }
                }
                // The packet matches a conjunction that no rule asks for.
                if plain.is_some() {
                    return plain;
                }
            }
            // Each of them gives way to what it hid.
            for mut each in std::mem::take(&mut soft) {
                if each.rule.priority() < highest {
                    soft.push(each);
                    continue;
                }
                let hidden = each.hidden.get_or_insert_with(|| each.rule.hidden(version, reader));
                let Some(next) = hidden.pop() else { continue };
                if !clauses(next.data()).is_empty() {
                    soft.push(Soft { rule: next, ..each });
                } else if plain.is_none_or(|plain| plain.priority() < next.priority()) {
                    plain = Some(next);
                }
            }
        }
    }

    /// The subtables of rules that match on `conj_id`: all that lookups under an id need to see, and few.
    fn asking<'g>(&'g self, is_frame: bool, reader: &'g Reader) -> Vec<&'g Ranked<R>> {
        let asks = |ranked: &&Ranked<R>| {
            ranked.subtable.mask.get(FieldId::ConjId) != 0 && (is_frame || !ranked.subtable.implies_ethernet)
        };
        self.ranking.read(reader).iter().filter(asks).collect()
    }

    /// The best plain rule among those that match on `conj_id`, in the subtables that have some.
    fn lookup_conj_id<'g>(
        &'g self,
        version: Version,
        key: &Key,
        wc: &mut Mask,
        (asking, reader): (&[&'g Ranked<R>], &'g Reader),
        clauses: &impl Fn(&'g R) -> &'g [Clause],
    ) -> Option<RuleRef<'g, R>> {
        let mut best: Option<RuleRef<'g, R>> = None;
        for ranked in asking {
            let floor = best.map(|best| best.priority());
            if floor.is_some_and(|floor| floor >= ranked.priority_max.load(Ordering::Relaxed)) {
                break;
            }
            let subtable = &*ranked.subtable;
            if let Some(entry) = subtable.find(version, key, floor, wc, (&self.shared, reader)) {
                let first = RuleRef { entry, subtable };
                let is_plain = |rule: &RuleRef<'g, R>| clauses(rule.data()).is_empty();
                let found = match is_plain(&first) {
                    true => Some(first),
                    false => first.hidden(version, reader).into_iter().rev().find(is_plain),
                };
                best = found.filter(|found| floor.is_none_or(|floor| found.priority() > floor)).or(best);
            }
        }
        best
    }
}

/// A rule that decides nothing by itself, and the rules that it hides, once they have been requested: all at
/// once, since there may be many rules with one match.
struct Soft<'g, R: Send + Sync + 'static> {
    rule: RuleRef<'g, R>,
    hidden: Option<Vec<RuleRef<'g, R>>>,
}

impl<'g, R: Send + Sync + 'static> RuleRef<'g, R> {
    /// The rules of the same match and lower priority that `version` sees, by rising priority.
    fn hidden(self, version: Version, reader: &'g Reader) -> Vec<RuleRef<'g, R>> {
        let same = self.subtable.rules.find(self.entry.hash, reader).filter(|entry| {
            entry.value.priority < self.priority()
                && entry.value.is_visible(version)
                && *entry.words == *self.entry.words
        });
        let mut all: Vec<_> = same.map(|entry| RuleRef { entry, subtable: self.subtable }).collect();
        all.sort_unstable_by_key(RuleRef::priority);
        all
    }
}

/// The clauses that a key meets, by conjunction.
struct Tally<'a> {
    secret: &'a HashKey,
    conjunctions: HashTable<Tallied>,
    /// The ids whose clauses are all satisfied.
    met: Vec<u32>,
}

struct Tallied {
    id: u32,
    count: u8,
    /// Bit n: clause n is met.
    numbers: u64,
}

impl Tally<'_> {
    fn new(secret: &HashKey) -> Tally<'_> {
        Tally { secret, conjunctions: HashTable::new(), met: Vec::new() }
    }

    /// The ids all of whose clauses these satisfy, ascending.
    fn met(&mut self, clauses: impl Iterator<Item = Clause>) -> &[u32] {
        self.conjunctions.clear();
        self.met.clear();
        let hash = |id: u32, count: u8| self.secret.word(0xc0, u64::from(id) << 8 | u64::from(count));
        for Clause { id, count, number } in clauses {
            let is_it = |tallied: &Tallied| (tallied.id, tallied.count) == (id, count);
            let rehash = |tallied: &Tallied| hash(tallied.id, tallied.count);
            let new = || Tallied { id, count, numbers: 0 };
            let mut of_one = self.conjunctions.entry(hash(id, count), is_it, rehash).or_insert_with(new);
            let numbers = &mut of_one.get_mut().numbers;
            let all = u64::MAX >> (64 - u32::from(count.clamp(1, 64)));
            let before = std::mem::replace(numbers, *numbers | 1 << (number & 63));
            if before != all && *numbers == all {
                self.met.push(id);
            }
        }
        self.met.sort_unstable();
        self.met.dedup();
        &self.met
    }
}

/// Removes `conj_id` from a mask: it is 0 in every packet, and rules that match on it must not appear to be
/// irrelevant to a flow.
pub fn forget_conj_id(wc: &mut Mask) {
    let place = FieldId::ConjId.place();
    let block = usize::from(place.block);
    if wc.0.has(block) && wc.get(FieldId::ConjId) != 0 {
        wc.set(FieldId::ConjId, 0);
        if wc.0.block(block).0 == [0; 8] {
            wc.0.set_present(wc.0.present() & !(1 << block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clause(id: u32, count: u8, number: u8) -> Clause {
        Clause { id, count, number }
    }

    fn met(clauses: &[Clause]) -> Vec<u32> {
        Tally::new(&HashKey::from_seed(1)).met(clauses.iter().copied()).to_vec()
    }

    #[test]
    fn a_conjunction_is_met_by_all_its_clauses_and_by_no_others() {
        assert_eq!(met(&[clause(7, 2, 0), clause(7, 2, 1)]), [7]);
        assert_eq!(met(&[clause(7, 2, 0), clause(7, 2, 0)]), [0; 0]);
        assert_eq!(met(&[clause(7, 2, 0), clause(8, 2, 1)]), [0; 0]);
        assert_eq!(met(&[clause(7, 3, 0), clause(7, 2, 1), clause(7, 2, 0)]), [7]);
        assert_eq!(met(&[clause(9, 2, 1), clause(7, 2, 0), clause(9, 2, 0), clause(7, 2, 1)]), [7, 9]);
        let most: Vec<Clause> = (0..64).map(|number| clause(1, 64, number)).collect();
        assert_eq!(met(&most), [1]);
        assert_eq!(met(&most[1..]), [0; 0]);
    }

    #[test]
    fn a_mask_without_conj_id_is_as_if_it_had_never_been_there() {
        let mut mask = Mask::wild();
        mask.add_exact(FieldId::EthType);
        let before = mask.clone();
        mask.add_exact(FieldId::ConjId);
        forget_conj_id(&mut mask);
        assert_eq!(mask, before);
        mask.add_exact(FieldId::Metadata);
        let before = mask.clone();
        mask.add_exact(FieldId::ConjId);
        forget_conj_id(&mut mask);
        assert_eq!(mask, before);
    }
}

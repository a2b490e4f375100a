//! How many rules a table may contain, and which rule is evicted when it is full.
//!
//! Rules without timeouts are never evicted. The others form groups by the values of some fields that they
//! match (`Flow_Table`'s `groups`; without any, all are in one group). The largest group loses a rule first,
//! so that one owner's rules cannot evict those of others. Within a group, the least important rule goes
//! first, and among those the one that would expire soonest.
//!
//! When a rule expires depends on its use, which can only postpone the expiry. So the order stores each
//! rule's expiry as of the last time it was checked, and the first candidates are checked again before one is
//! evicted ([`Evictable::note_use`]). No sweep over a large table is needed.
//!
//! Source: ovs-vswitchd.conf.db(5), Flow_Table.

use crate::rule::Rule;
use crate::slots::SlotReader;
use flow::action::SubField;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// Maximum number of rules checked again at a time; beyond that, the stored expiry decides.
const LOOKS_MAX: usize = 1_000;

/// Configuration of a table.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TableLimits {
    /// Maximum number of rules.
    pub rules_max: Option<u32>,
    /// At the limit, whether to evict a rule to make room for a new one, or to refuse the new one.
    pub evicts: bool,
    /// The fields by which rules are grouped.
    pub groups: Vec<SubField>,
}

/// Lowest first: importance, expiry, then the order in which rules were added.
type Rank = (u16, u64, u64, u32);

/// The order of a table's evictable rules. Empty if nothing is evicted. It consists of trees: a hash table of
/// a million entries grows, and is freed, in one long pause.
#[derive(Default)]
pub(super) struct Evictable {
    groups: BTreeMap<Vec<u128>, BTreeSet<Rank>>,
    /// Groups by their size.
    sizes: BTreeSet<(usize, Vec<u128>)>,
    /// Each rule's position, by serial number.
    ranks: BTreeMap<u64, (Vec<u128>, Rank)>,
}

/// The rest of a discarded order: each step frees one entry.
pub(super) type GivenUp = Box<dyn Iterator<Item = ()> + Send>;

/// When a rule was last used, and last learned; 0 for never.
#[derive(Clone, Copy, Default)]
struct Uses {
    used_ms: u64,
    learned_ms: u64,
}

impl Uses {
    fn of(rule: &Rule, slots: &dyn SlotReader) -> Uses {
        Uses {
            used_ms: slots.read(rule.slot).last_used_ms,
            learned_ms: rule.learn_slot.map_or(0, |slot| slots.read(slot).last_used_ms),
        }
    }
}

/// When a rule expires if it is not used again, in milliseconds.
fn ends_ms(rule: &Rule, uses: Uses) -> Option<u64> {
    let (idle_s, hard_s) = (u64::from(rule.timeouts.idle_s()), u64::from(rule.timeouts.hard_s()));
    let hard = (hard_s > 0).then(|| rule.modified_ms.max(uses.learned_ms) + hard_s * 1000);
    let idle = (idle_s > 0).then(|| uses.used_ms.max(rule.unused_since_ms) + idle_s * 1000);
    hard.into_iter().chain(idle).min()
}

fn rank_of(rule: &Rule, uses: Uses) -> Option<Rank> {
    Some((rule.importance, ends_ms(rule, uses)?, rule.serial, rule.idx))
}

fn group_of(rule: &Rule, fields: &[SubField]) -> Vec<u128> {
    if fields.is_empty() {
        return Vec::new();
    }
    let matching = rule.matching.to_match();
    let bits = |sub: &SubField| {
        let ones = if sub.count >= 128 { u128::MAX } else { (1 << sub.count) - 1 };
        matching.get_mf(sub.field).0 >> sub.offset & ones
    };
    fields.iter().map(bits).collect()
}

impl Evictable {
    fn change(&mut self, group: &[u128], change: impl FnOnce(&mut BTreeSet<Rank>)) {
        let ranks = self.groups.entry(group.to_vec()).or_default();
        let before = ranks.len();
        change(ranks);
        let after = ranks.len();
        self.sizes.remove(&(before, group.to_vec()));
        if after == 0 {
            self.groups.remove(group);
        } else {
            self.sizes.insert((after, group.to_vec()));
        }
    }

    /// Adds a new rule.
    pub fn add(&mut self, rule: &Rule, limits: &TableLimits) {
        self.add_used(rule, limits, Uses::default());
    }

    fn add_used(&mut self, rule: &Rule, limits: &TableLimits, uses: Uses) {
        let Some(rank) = rank_of(rule, uses).filter(|_| limits.evicts) else { return };
        // A rule that was added while the table was being ordered is already there.
        if self.ranks.contains_key(&rule.serial) {
            return;
        }
        let group = group_of(rule, &limits.groups);
        self.change(&group, |ranks| {
            ranks.insert(rank);
        });
        self.ranks.insert(rule.serial, (group, rank));
    }

    pub fn remove(&mut self, serial: u64) {
        if let Some((group, rank)) = self.ranks.remove(&serial) {
            self.change(&group, |ranks| {
                ranks.remove(&rank);
            });
        }
    }

    /// Adds rules of a table that are not in the order yet.
    pub fn order(&mut self, rules: &[Option<Arc<Rule>>], limits: &TableLimits, slots: &dyn SlotReader) {
        for rule in rules.iter().flatten().filter(|rule| !rule.flags.hidden) {
            self.add_used(rule, limits, Uses::of(rule, slots));
        }
    }

    /// Checks the first candidates again, so that `wanted` of them can be evicted.
    pub fn note_use(&mut self, wanted: usize, rules: &[Option<Arc<Rule>>], slots: &dyn SlotReader) {
        let mut looks = 0;
        let groups: Vec<_> = self.sizes.iter().rev().take(wanted).map(|(_, group)| group.clone()).collect();
        for group in groups {
            let Some(ranks) = self.groups.get_mut(&group) else { continue };
            // Ranks up to this one are up to date.
            let (mut last, mut known) = (None, 0);
            while known < wanted && looks < LOOKS_MAX {
                looks += 1;
                let Some(&rank) = ranks.range((last.map_or(Unbounded, Excluded), Unbounded)).next() else {
                    break;
                };
                let rule = rules.get(rank.3 as usize).and_then(Option::as_ref);
                let now = rule.and_then(|rule| rank_of(rule, Uses::of(rule, slots)));
                match now.filter(|now| *now > rank) {
                    Some(later) => {
                        ranks.remove(&rank);
                        ranks.insert(later);
                        self.ranks.insert(rank.2, (group.clone(), later));
                    }
                    None => (last, known) = (Some(rank), known + 1),
                }
            }
        }
    }

    /// Discards the order, which is empty afterwards. Its contents are freed entry by entry.
    pub fn give_up(&mut self) -> GivenUp {
        let Evictable { groups, sizes, ranks } = std::mem::take(self);
        let groups = groups.into_values().flatten().map(drop);
        Box::new(groups.chain(sizes.into_iter().map(drop)).chain(ranks.into_iter().map(drop)))
    }

    /// The place and serial number of the first rule to evict.
    pub fn first(&self) -> Option<(u32, u64)> {
        let (_, group) = self.sizes.last()?;
        self.groups[group].first().map(|&(_, _, serial, idx)| (idx, serial))
    }
}

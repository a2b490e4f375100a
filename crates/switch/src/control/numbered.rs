//! The control side of what controllers number: the groups and meters of a bridge.

use super::ended::{Ended, Left};
use crate::numbered::{Numbered, NumberedTable};
use crate::rule::Rule;
use base::Version;
use base::rcu::Reader;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The rules that refer to a group or a meter, by its number and then by serial number.
#[derive(Default)]
pub(super) struct References(HashMap<u32, BTreeMap<u64, Arc<Rule>>>);

impl References {
    /// Adds a rule that refers to these.
    pub fn add(&mut self, rule: &Arc<Rule>, numbers: &[u32]) {
        for number in numbers {
            self.0.entry(*number).or_default().insert(rule.serial(), rule.clone());
        }
    }

    /// Removes a rule that referred to these.
    pub fn remove(&mut self, rule: &Rule, numbers: &[u32]) {
        for number in numbers {
            if let Some(rules) = self.0.get_mut(number) {
                rules.remove(&rule.serial());
                if rules.is_empty() {
                    self.0.remove(number);
                }
            }
        }
    }

    /// The rule that has referred to it longest.
    pub fn first(&self, number: u32) -> Option<Arc<Rule>> {
        self.0.get(&number)?.first_key_value().map(|(_, rule)| rule.clone())
    }

    /// How many rules refer to this one, or to any.
    pub fn count_of(&self, number: Option<u32>) -> usize {
        match number {
            Some(number) => self.count(number),
            None => self.0.values().map(BTreeMap::len).sum(),
        }
    }

    pub fn count(&self, number: u32) -> usize {
        self.0.get(&number).map_or(0, BTreeMap::len)
    }
}

/// The control side of one bridge's groups, or meters.
pub(super) struct NumberedControl<T> {
    pub by_id: BTreeMap<u32, Arc<T>>,
    pub references: References,
    /// Removed ones that are still to be unlinked.
    pub ended: Ended<Arc<T>>,
}

impl<T> Default for NumberedControl<T> {
    fn default() -> NumberedControl<T> {
        NumberedControl { by_id: BTreeMap::new(), references: References::default(), ended: Ended::default() }
    }
}

impl<T: Numbered> NumberedControl<T> {
    /// Unlinks what no version from `oldest` on shows.
    pub fn collect(
        &mut self,
        table: &NumberedTable<T>,
        oldest: Version,
        max: usize,
        reader: &Reader,
    ) -> Left {
        self.ended.unlink(oldest, max, |gone| table.remove(&gone, reader))
    }
}

/// Numbers of meters in the datapath, lowest free number first.
#[derive(Default)]
pub(super) struct MeterNumbers {
    next: u32,
    pub free: BTreeSet<u32>,
}

impl MeterNumbers {
    pub fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

//! Unique indexes: rows by the values of some columns.
//!
//! Within a transaction several rows may agree in an index (two rows may swap their names, one by one); only
//! the commit requires that none do. So an index stores rows under the hash of their values, and compares the
//! rows themselves. A client may insert as many rows with the same values as fit into a request, and abort:
//! finding one of those rows takes as long as finding any other.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::hash_table::Entry::{Occupied, Vacant};
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};

use crate::datum::Datum;
use crate::row::{Row, RowMap};
use crate::schema::ColumnIdx;
use crate::uuid::Uuid;

/// The rows of a table by the values of some columns.
#[derive(Debug)]
pub struct UniqueIndex {
    columns: Box<[ColumnIdx]>,
    /// Randomly keyed, so that clients cannot choose values that collide.
    hasher: DefaultHashBuilder,
    /// Each row once.
    rows: HashTable<SameHash>,
}

/// Rows whose values have the same hash: except by coincidence, those with the same values.
#[derive(Debug)]
struct SameHash {
    hash: u64,
    first: Uuid,
    /// Only in a transaction. Never empty.
    others: Option<Box<HashSet<Uuid>>>,
}

impl SameHash {
    fn add(&mut self, uuid: Uuid) {
        self.others.get_or_insert_default().insert(uuid);
    }

    /// Takes a row out. False: there was no other.
    fn take_out(&mut self, uuid: Uuid) -> bool {
        let Some(others) = &mut self.others else { return self.first != uuid };
        if self.first == uuid {
            self.first = *others.iter().next().expect("never empty");
            others.remove(&self.first);
        } else {
            others.remove(&uuid);
        }
        if others.is_empty() {
            self.others = None;
        }
        true
    }

    fn uuids(&self) -> impl Iterator<Item = Uuid> {
        [self.first].into_iter().chain(self.others.iter().flat_map(|others| others.iter().copied()))
    }
}

impl UniqueIndex {
    /// An index on `columns`, of no rows yet.
    pub fn new(columns: &[ColumnIdx]) -> UniqueIndex {
        UniqueIndex { columns: columns.into(), hasher: DefaultHashBuilder::default(), rows: HashTable::new() }
    }

    /// The columns that it is on.
    pub fn columns(&self) -> &[ColumnIdx] {
        &self.columns
    }

    /// Follows the change of row `uuid` from `old` to `new`.
    pub fn update(&mut self, uuid: Uuid, old: Option<&Row>, new: Option<&Row>) {
        if let (Some(old), Some(new)) = (old, new)
            && self.agree(old, new)
        {
            return;
        }
        if let Some(old) = old {
            let hash = self.hash_of(self.values(old));
            if let Ok(mut same) = self.rows.find_entry(hash, |same| same.hash == hash)
                && !same.get_mut().take_out(uuid)
            {
                same.remove();
            }
        }
        if let Some(new) = new {
            let hash = self.hash_of(self.values(new));
            match self.rows.entry(hash, |same| same.hash == hash, |same| same.hash) {
                Occupied(mut same) => same.get_mut().add(uuid),
                Vacant(place) => drop(place.insert(SameHash { hash, first: uuid, others: None })),
            }
        }
    }

    /// Whether two rows have the same values.
    pub fn agree(&self, a: &Row, b: &Row) -> bool {
        self.columns.iter().all(|column| a.get(*column) == b.get(*column))
    }

    /// The values of its columns from `values`; `None` if one is missing.
    pub fn key_from<'v>(&self, values: &[(ColumnIdx, &'v Datum)]) -> Option<Vec<&'v Datum>> {
        let value_of = |column: &ColumnIdx| values.iter().find(|(c, _)| c == column).map(|(_, datum)| *datum);
        self.columns.iter().map(value_of).collect()
    }

    /// The rows among `rows`, the table's, that have the values `key`.
    pub fn find<'a>(&'a self, rows: &'a RowMap, key: &[&Datum]) -> Vec<&'a Row> {
        let hash = self.hash_of(key.iter().copied());
        let candidates = self.with_hash(hash).filter_map(|uuid| rows.get(uuid));
        candidates.filter(|row| self.values(row).eq(key.iter().copied())).collect()
    }

    /// Another row than `row` with its values.
    pub fn find_other<'a>(&'a self, rows: &'a RowMap, row: &'a Row) -> Option<&'a Row> {
        let uuid = row.uuid();
        let hash = self.hash_of(self.values(row));
        let others = self.with_hash(hash).filter(|other| *other != uuid);
        others.filter_map(|other| rows.get(other)).find(|other| self.agree(row, other))
    }

    fn with_hash(&self, hash: u64) -> impl Iterator<Item = Uuid> {
        self.rows.find(hash, |same| same.hash == hash).into_iter().flat_map(SameHash::uuids)
    }

    fn values<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = &'a Datum> {
        self.columns.iter().map(|column| row.get(*column))
    }

    fn hash_of<'a>(&self, values: impl Iterator<Item = &'a Datum>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        values.for_each(|value| value.hash(&mut hasher));
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_hash_are_taken_out_in_any_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let uuids = [1, 2, 3].map(|n| Uuid([n; 16]));
            let mut same = SameHash { hash: 0, first: uuids[0], others: None };
            uuids[1..].iter().for_each(|uuid| same.add(*uuid));
            for (taken, n) in order.into_iter().enumerate() {
                assert_eq!(same.uuids().count(), 3 - taken);
                assert_eq!(same.take_out(uuids[n]), taken < 2);
                assert!(taken == 2 || same.uuids().all(|uuid| uuid != uuids[n]));
            }
        }
    }
}

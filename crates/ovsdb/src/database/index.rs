//! Unique indexes: rows by the values of some columns.
//!
//! Within a transaction several rows may agree in an index (two rows may swap their names, one by one); only
//! the commit asks that none do. So an index holds rows, each under the hash of its values, and compares the
//! rows themselves.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::datum::Datum;
use crate::row::{Row, RowMap};
use crate::schema::ColumnIdx;
use crate::uuid::Uuid;

/// The rows of a table by the values of some columns.
#[derive(Debug)]
pub struct UniqueIndex {
    columns: Box<[ColumnIdx]>,
    /// Keyed at random, so that nobody can choose values that collide.
    hasher: DefaultHashBuilder,
    /// Each row once.
    rows: HashTable<Entry>,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    uuid: Uuid,
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
            if let Ok(entry) = self.rows.find_entry(hash, |entry| entry.uuid == uuid) {
                entry.remove();
            }
        }
        if let Some(new) = new {
            let hash = self.hash_of(self.values(new));
            self.rows.insert_unique(hash, Entry { hash, uuid }, |entry| entry.hash);
        }
    }

    /// Whether two rows have the same values.
    pub fn agree(&self, a: &Row, b: &Row) -> bool {
        self.columns.iter().all(|column| a.get(*column) == b.get(*column))
    }

    /// The values of its columns out of `values`; `None` where one is not there.
    pub fn key_from<'v>(&self, values: &[(ColumnIdx, &'v Datum)]) -> Option<Vec<&'v Datum>> {
        let value_of = |column: &ColumnIdx| values.iter().find(|(c, _)| c == column).map(|(_, datum)| *datum);
        self.columns.iter().map(value_of).collect()
    }

    /// The rows among `rows`, the table's, that have the values `key`.
    pub fn find<'a>(&'a self, rows: &'a RowMap, key: &[&Datum]) -> Vec<&'a Row> {
        let hash = self.hash_of(key.iter().copied());
        let candidates = self.rows.iter_hash(hash).filter(|entry| entry.hash == hash);
        let candidates = candidates.filter_map(|entry| rows.get(entry.uuid));
        candidates.filter(|row| self.values(row).eq(key.iter().copied())).collect()
    }

    /// Another row than `row` with its values.
    pub fn find_other<'a>(&'a self, rows: &'a RowMap, row: &'a Row) -> Option<&'a Row> {
        let uuid = row.uuid();
        let hash = self.hash_of(self.values(row));
        let others = self.rows.iter_hash(hash).filter(|entry| entry.hash == hash && entry.uuid != uuid);
        others.filter_map(|entry| rows.get(entry.uuid)).find(|other| self.agree(row, other))
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

//! Rows, and the map of a table's rows, which can be copied cheaply while it keeps changing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::datum::Datum;
use crate::schema::{ColumnIdx, TableSchema};
use crate::uuid::Uuid;

/// A row: one datum for each column of its table. A copy shares everything until it is changed.
#[derive(Clone, PartialEq)]
pub struct Row(Arc<[Datum]>);

impl Row {
    /// A row of `table` in which every column has its default; its version is zero.
    pub fn new(table: &TableSchema, uuid: Uuid) -> Row {
        let columns = table.columns().iter().enumerate().map(|(index, column)| {
            if index == ColumnIdx::UUID.index() { Datum::scalar(uuid) } else { column.default.clone() }
        });
        Row(columns.collect())
    }

    /// Its name.
    pub fn uuid(&self) -> Uuid {
        self.get(ColumnIdx::UUID).as_uuid().unwrap_or_default()
    }

    /// Changes with every change of the row.
    pub fn version(&self) -> Uuid {
        self.get(ColumnIdx::VERSION).as_uuid().unwrap_or_default()
    }

    /// The value of `column`. Panics if `column` is not one of the row's table.
    pub fn get(&self, column: ColumnIdx) -> &Datum {
        &self.0[column.index()]
    }

    /// Changes `column` in this copy of the row. Panics where `column` is not one of the row's table.
    pub fn set(&mut self, column: ColumnIdx, datum: Datum) {
        Arc::make_mut(&mut self.0)[column.index()] = datum;
    }

    /// All columns, in the order of [`TableSchema::columns`].
    pub fn columns(&self) -> &[Datum] {
        &self.0
    }

    /// Whether both share memory.
    pub fn is_same(&self, other: &Row) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The columns, `_uuid` and `_version` excepted, in which two versions of a row differ.
    pub fn changed_columns<'a>(&'a self, new: &'a Row) -> impl Iterator<Item = ColumnIdx> + 'a {
        let first = ColumnIdx::FIRST.index();
        (first..self.0.len())
            .filter(|&index| self.0[index] != new.0[index])
            .map(|index| ColumnIdx(index as u16))
    }

    /// The memory that it takes, in bytes; what is shared counts whole.
    pub fn heap_bytes(&self) -> usize {
        16 + size_of_val(&self.0[..]) + self.0.iter().map(Datum::heap_bytes).sum::<usize>()
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

/// The rows of a table, sorted by UUID. A copy costs a pointer per shard; a later change costs one copy of
/// the shard that it falls into.
///
/// Shards are ranges of the UUID's first bits. UUIDs are random, so shards are of similar size; if a client
/// chooses UUIDs otherwise, only the copies cost more.
#[derive(Clone, Debug)]
pub struct RowMap {
    /// A power of two of them.
    shards: Vec<Arc<BTreeMap<Uuid, Row>>>,
    len: usize,
}

/// So many rows a shard on average before there are four times as many shards; a sixteenth of that, and there
/// are a quarter as many.
const SHARD_ROWS: usize = 256;

impl Default for RowMap {
    fn default() -> RowMap {
        RowMap { shards: vec![Arc::default()], len: 0 }
    }
}

impl RowMap {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The row called `uuid`.
    pub fn get(&self, uuid: Uuid) -> Option<&Row> {
        self.shards[self.shard_of(uuid)].get(&uuid)
    }

    /// The row called `uuid`, to be changed in place; not its name.
    pub(crate) fn get_mut(&mut self, uuid: Uuid) -> Option<&mut Row> {
        let shard = self.shard_of(uuid);
        Arc::make_mut(&mut self.shards[shard]).get_mut(&uuid)
    }

    /// All rows, by UUID.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.shards.iter().flat_map(|shard| shard.values())
    }

    /// Inserts `row`, and returns the one with the same name that it replaces.
    pub fn insert(&mut self, row: Row) -> Option<Row> {
        let uuid = row.uuid();
        let shard = self.shard_of(uuid);
        let old = Arc::make_mut(&mut self.shards[shard]).insert(uuid, row);
        if old.is_none() {
            self.len += 1;
            if self.len > SHARD_ROWS * self.shards.len() {
                self.spread(self.shards.len() * 4);
            }
        }
        old
    }

    /// Takes the row called `uuid` out.
    pub fn remove(&mut self, uuid: Uuid) -> Option<Row> {
        let shard = self.shard_of(uuid);
        let old = Arc::make_mut(&mut self.shards[shard]).remove(&uuid);
        self.len -= usize::from(old.is_some());
        // Empty shards would cost time whenever all rows are looked at.
        if self.shards.len() > 1 && self.len < SHARD_ROWS / 16 * self.shards.len() {
            self.spread(self.shards.len() / 4);
        }
        old
    }

    fn shard_of(&self, uuid: Uuid) -> usize {
        // The first log2(shards) bits; of a single shard none.
        ((u64::from(uuid.head()) * self.shards.len() as u64) >> 32) as usize
    }

    /// Spreads the rows over so many shards.
    fn spread(&mut self, count: usize) {
        let rows: Vec<Row> = self.iter().cloned().collect();
        let mut shards: Vec<BTreeMap<Uuid, Row>> = vec![BTreeMap::new(); count];
        self.shards = vec![Arc::default(); count];
        for row in rows {
            shards[self.shard_of(row.uuid())].insert(row.uuid(), row);
        }
        self.shards = shards.into_iter().map(Arc::new).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ColumnSchema, TableSchema};
    use crate::types::ColumnType;
    use crate::uuid::UuidGenerator;
    use crate::{AtomType, Datum};

    fn table() -> TableSchema {
        let column = ColumnSchema::new("i", ColumnType::scalar(AtomType::Integer));
        TableSchema::new("T", true, vec![column], &[]).unwrap()
    }

    #[test]
    fn a_map_of_rows_agrees_with_a_plain_one_and_copies_keep_what_they_held() {
        let table = table();
        let mut generator = UuidGenerator::from_seed(3);
        let mut map = RowMap::default();
        let mut model = BTreeMap::new();
        let mut copies = Vec::new();
        for step in 0..3000 {
            let mut row = Row::new(&table, generator.next_uuid());
            row.set(ColumnIdx::FIRST, Datum::scalar(step));
            assert_eq!(map.insert(row.clone()), None);
            model.insert(row.uuid(), row);
            if step % 3 == 0 {
                let victim = *model.keys().nth(model.len() / 2).unwrap();
                assert_eq!(map.remove(victim), model.remove(&victim));
                assert_eq!(map.remove(victim), None);
            }
            if step % 500 == 0 {
                copies.push((map.clone(), model.clone()));
            }
        }
        copies.push((map, model));
        for (map, model) in copies {
            assert_eq!(map.len(), model.len());
            assert!(map.iter().eq(model.values()));
            assert!(model.keys().all(|uuid| map.get(*uuid).is_some()));
        }
    }

    #[test]
    fn a_map_that_was_large_is_as_cheap_as_one_that_never_was() {
        let table = table();
        let mut generator = UuidGenerator::from_seed(3);
        let uuids: Vec<Uuid> = (0..20_000).map(|_| generator.next_uuid()).collect();
        let mut map = RowMap::default();
        uuids.iter().for_each(|uuid| drop(map.insert(Row::new(&table, *uuid))));
        assert!(map.shards.len() > 50);
        uuids[10..].iter().for_each(|uuid| assert!(map.remove(*uuid).is_some()));
        assert_eq!(map.shards.len(), 1);
        assert!(uuids[..10].iter().all(|uuid| map.get(*uuid).is_some()) && map.len() == 10);
    }

    #[test]
    fn a_copy_of_a_row_is_its_own() {
        let original = Row::new(&table(), Uuid::ZERO);
        let mut copy = original.clone();
        assert!(copy.is_same(&original));
        copy.set(ColumnIdx::FIRST, Datum::scalar(5));
        assert_eq!(original.get(ColumnIdx::FIRST).as_integer(), Some(0));
        assert_eq!(original.changed_columns(&copy).collect::<Vec<_>>(), [ColumnIdx::FIRST]);
    }
}

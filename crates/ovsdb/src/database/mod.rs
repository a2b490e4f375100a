//! The rows of a database, and the transactions that change them.
//!
//! A transaction changes rows in place and keeps their old versions, so that its own reads need no second
//! lookup; dropping it restores them. Its commit ([`commit`]) then enforces the schema: references are
//! counted, rows without references are removed, weak references to removed rows are removed, and constraints
//! that concern more than one row are checked. The cost of all this is proportional to what changed, thanks
//! to the unique [`index`]es and the counts of [`references`] that each table keeps.
//!
//! Invariants between transactions: every row's strong references lead to rows; every row outside the root
//! set is referred to; weak references lead to rows; no two rows of a table agree in a unique index; no table
//! has more rows than its schema allows.

mod commit;
mod index;
mod references;
mod transaction;

use std::sync::Arc;

use index::UniqueIndex;
use references::{Incoming, References, each_change, of};
pub use transaction::Transaction;

use crate::changes::Changes;
use crate::datum::Datum;
use crate::row::{Row, RowMap};
use crate::schema::{ColumnIdx, Schema, TableIdx, TableSchema};
use crate::uuid::Uuid;

/// A database in memory: for each table of its schema the rows. One thread changes it; snapshots may be read
/// by others.
#[derive(Debug)]
pub struct Database {
    schema: Arc<Schema>,
    tables: Vec<Table>,
}

/// A table's rows, with the data that spares commits a search.
#[derive(Debug)]
struct Table {
    rows: RowMap,
    /// One for each of the schema's `indexes`, in their order.
    indexes: Vec<UniqueIndex>,
    /// Which columns refer to rows.
    references: References,
    /// What refers to the rows of this table.
    incoming: Incoming,
}

/// The database at one moment. Copying costs a few pointers; rows that change later are copied when they
/// change, in small pieces.
#[derive(Clone, Debug)]
pub struct Snapshot {
    schema: Arc<Schema>,
    tables: Vec<RowMap>,
}

impl Database {
    /// An empty database.
    pub fn new(schema: impl Into<Arc<Schema>>) -> Database {
        let schema = schema.into();
        let tables = schema.tables().iter().map(Table::new).collect();
        Database { schema, tables }
    }

    /// Its schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The rows of `table`, by UUID.
    pub fn rows(&self, table: TableIdx) -> impl Iterator<Item = &Row> {
        self.tables[table.index()].rows.iter()
    }

    /// The number of rows of `table`.
    pub fn row_count(&self, table: TableIdx) -> usize {
        self.tables[table.index()].rows.len()
    }

    /// The row of `table` that is called `uuid`.
    pub fn row(&self, table: TableIdx, uuid: Uuid) -> Option<&Row> {
        self.tables[table.index()].rows.get(uuid)
    }

    /// The rows of `table` whose columns have these values, found by a unique index on exactly those columns
    /// or some of them; `None` if there is no such index. During a transaction there may be more than one
    /// row.
    pub fn find_by_index(&self, table: TableIdx, values: &[(ColumnIdx, &Datum)]) -> Option<Vec<&Row>> {
        let table = &self.tables[table.index()];
        table.indexes.iter().find_map(|index| {
            let key = index.key_from(values)?;
            Some(index.find(&table.rows, &key))
        })
    }

    /// All contents, as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let tables = self.tables.iter().map(|table| table.rows.clone()).collect();
        Snapshot { schema: Arc::clone(&self.schema), tables }
    }

    /// Starts a transaction. Its own reads see its changes at once; they are undone if it is dropped without
    /// a commit.
    pub fn begin(&mut self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// Takes back what a transaction did: `changes` are those of the last commit that was not yet taken back.
    /// For a log that could not be written.
    pub fn revert(&mut self, changes: &Changes) {
        for change in changes {
            self.put(change.table, change.uuid, change.old.clone());
            self.count_references(change.table, change.uuid, change.new.as_ref(), change.old.as_ref());
        }
    }

    /// Replaces a row by the version in a log, or removes it. Nothing is checked: that was done when it was
    /// committed.
    pub(crate) fn load(&mut self, table: TableIdx, uuid: Uuid, row: Option<Row>) {
        let old = self.put(table, uuid, row.clone());
        self.count_references(table, uuid, old.as_ref(), row.as_ref());
    }

    /// Replaces a row's version by another, or by nothing. Returns the old one.
    fn put(&mut self, table: TableIdx, uuid: Uuid, row: Option<Row>) -> Option<Row> {
        let table = &mut self.tables[table.index()];
        let old = match &row {
            Some(row) => table.rows.insert(row.clone()),
            None => table.rows.remove(uuid),
        };
        for index in &mut table.indexes {
            index.update(uuid, old.as_ref(), row.as_ref());
        }
        old
    }

    /// The memory that rows take, in bytes, what they share counted for each.
    pub fn heap_bytes(&self) -> usize {
        self.tables.iter().flat_map(|table| table.rows.iter()).map(Row::heap_bytes).sum()
    }

    /// Follows the change of a row from `old` to `new` in the counts of its targets.
    fn count_references(&mut self, table: TableIdx, uuid: Uuid, old: Option<&Row>, new: Option<&Row>) {
        // The counts are those of other tables, or of this one too.
        let references = std::mem::take(&mut self.tables[table.index()].references);
        for (column, reference) in &references.strong {
            let target = &mut self.tables[reference.table.index()].incoming;
            each_change(of(old, *column), of(new, *column), reference.in_values, |row, change| {
                if (reference.table, row) != (table, uuid) {
                    target.count_strong(row, change);
                }
            });
        }
        for (column, reference) in &references.weak {
            let target = &mut self.tables[reference.table.index()].incoming;
            each_change(of(old, *column), of(new, *column), reference.in_values, |row, change| {
                target.count_weak(row, (table, uuid), change);
            });
        }
        self.tables[table.index()].references = references;
    }
}

impl Table {
    fn new(schema: &TableSchema) -> Table {
        Table {
            rows: RowMap::default(),
            indexes: schema.indexes.iter().map(|columns| UniqueIndex::new(columns)).collect(),
            references: References::of(schema),
            incoming: Incoming::default(),
        }
    }
}

impl Snapshot {
    /// The schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The rows of `table`, by UUID.
    pub fn rows(&self, table: TableIdx) -> impl Iterator<Item = &Row> {
        self.tables[table.index()].iter()
    }

    /// The number of rows of `table`.
    pub fn row_count(&self, table: TableIdx) -> usize {
        self.tables[table.index()].len()
    }

    /// The row of `table` that is called `uuid`.
    pub fn row(&self, table: TableIdx, uuid: Uuid) -> Option<&Row> {
        self.tables[table.index()].get(uuid)
    }
}

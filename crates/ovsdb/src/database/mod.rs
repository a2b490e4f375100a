//! The rows of a database, and the transactions that change them.

mod transaction;

use std::sync::Arc;

pub use transaction::Transaction;

use crate::changes::Changes;
use crate::row::{Row, RowMap};
use crate::schema::{Schema, TableIdx};
use crate::uuid::Uuid;

/// A database in memory: for each table of its schema the rows. One thread changes it; snapshots may be read by others.
#[derive(Debug)]
pub struct Database {
    schema: Arc<Schema>,
    tables: Vec<Table>,
}

/// A table's rows.
#[derive(Debug, Default)]
struct Table {
    rows: RowMap,
}

/// The database as it was at one moment. Copied from it at the cost of some pointers; what changes later is copied on
/// its change, in small pieces.
#[derive(Clone, Debug)]
pub struct Snapshot {
    schema: Arc<Schema>,
    tables: Vec<RowMap>,
}

impl Database {
    /// An empty database.
    pub fn new(schema: impl Into<Arc<Schema>>) -> Database {
        let schema = schema.into();
        let tables = schema.tables().iter().map(|_| Table::default()).collect();
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

    /// All that it holds, as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let tables = self.tables.iter().map(|table| table.rows.clone()).collect();
        Snapshot { schema: Arc::clone(&self.schema), tables }
    }

    /// Starts a transaction. What it does is seen by its own reads at once, and undone where it is dropped without a commit.
    pub fn begin(&mut self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// Takes back what a transaction did: `changes` are those of the last commit that was not yet taken back. For a log that could
    /// not be written.
    pub fn revert(&mut self, changes: &Changes) {
        for change in changes {
            self.put(change.table, change.uuid, change.old.clone());
        }
    }

    /// Puts a row that a log holds in the place of its older version, or takes it out. Nothing is checked: it was when it was
    /// committed.
    pub(crate) fn load(&mut self, table: TableIdx, uuid: Uuid, row: Option<Row>) {
        self.put(table, uuid, row);
    }

    /// Puts a version of a row, or nothing, in the place of another. The old one is returned.
    fn put(&mut self, table: TableIdx, uuid: Uuid, row: Option<Row>) -> Option<Row> {
        let table = &mut self.tables[table.index()];
        match row {
            Some(row) => table.rows.insert(row),
            None => table.rows.remove(uuid),
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

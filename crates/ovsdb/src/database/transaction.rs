//! Changes to a database, all or nothing.

use std::collections::BTreeMap;

use crate::database::Database;
use crate::error::Error;
use crate::row::Row;
use crate::schema::TableIdx;
use crate::uuid::Uuid;

/// Changes to a database that take effect together or not at all. Its reads see its own changes. If it is
/// dropped without [`Transaction::commit`], the database is unchanged.
#[derive(Debug)]
pub struct Transaction<'db> {
    pub(super) database: &'db mut Database,
    /// The old version of each row that it touched.
    pub(super) before: BTreeMap<(TableIdx, Uuid), Option<Row>>,
}

impl<'db> Transaction<'db> {
    pub(super) fn new(database: &'db mut Database) -> Transaction<'db> {
        Transaction { database, before: BTreeMap::new() }
    }

    /// The database as this transaction has changed it so far.
    pub fn database(&self) -> &Database {
        self.database
    }

    /// A row of `table` with defaults, which is not there yet.
    pub fn new_row(&self, table: TableIdx, uuid: Uuid) -> Row {
        Row::new(self.database.schema.table(table), uuid)
    }

    /// Adds a row. `Err` "duplicate uuid" if one with its name exists, or existed before this transaction.
    pub fn insert(&mut self, table: TableIdx, row: Row) -> Result<(), Error> {
        self.check_name(table, row.uuid())?;
        self.put(table, row.uuid(), Some(row));
        Ok(())
    }

    /// `Err` "duplicate uuid" where a row of `table` could not be inserted under that name.
    pub fn check_name(&self, table: TableIdx, uuid: Uuid) -> Result<(), Error> {
        if self.database.row(table, uuid).is_none() && !self.before.contains_key(&(table, uuid)) {
            return Ok(());
        }
        Err(Error::new(
            "duplicate uuid",
            "This UUID would duplicate a UUID already present within the table or deleted within the same transaction.",
        ))
    }

    /// Replaces a row, which must exist, by a new version. Does not check whether its columns may change.
    pub fn replace(&mut self, table: TableIdx, row: Row) {
        debug_assert!(self.database.row(table, row.uuid()).is_some());
        self.put(table, row.uuid(), Some(row));
    }

    /// Removes a row; false if there is none with that name.
    pub fn delete(&mut self, table: TableIdx, uuid: Uuid) -> bool {
        if self.database.row(table, uuid).is_none() {
            return false;
        }
        self.put(table, uuid, None);
        true
    }

    /// The version of a row from before this transaction: `Some(None)` if there was none, and `None` if the
    /// transaction has not touched it.
    pub(crate) fn first_version(&self, table: TableIdx, uuid: Uuid) -> Option<Option<&Row>> {
        self.before.get(&(table, uuid)).map(Option::as_ref)
    }

    pub(super) fn put(&mut self, table: TableIdx, uuid: Uuid, row: Option<Row>) {
        let old = self.database.put(table, uuid, row);
        self.before.entry((table, uuid)).or_insert(old);
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        for ((table, uuid), old) in std::mem::take(&mut self.before) {
            self.database.put(table, uuid, old);
        }
    }
}

//! What a transaction changed: the only input of monitors, the log and followers of the database.

use crate::row::Row;
use crate::schema::TableIdx;
use crate::uuid::Uuid;

/// The rows that a committed transaction changed, what followed from it included (rows that nothing refers to
/// any more, weak references to them). Each row is there once; its old and new versions differ in a column
/// besides `_version`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Sorted by table, and within a table by UUID.
    pub(crate) rows: Vec<RowChange>,
}

/// What happened to one row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowChange {
    /// Its table.
    pub table: TableIdx,
    /// Its name.
    pub uuid: Uuid,
    /// The row before; `None` if it is new.
    pub old: Option<Row>,
    /// The row now; `None` if it is gone.
    pub new: Option<Row>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The number of rows that changed.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// All rows that changed, sorted by table and UUID.
    pub fn iter(&self) -> std::slice::Iter<'_, RowChange> {
        self.rows.iter()
    }

    /// The changes table by table, in the order of the schema's tables.
    pub fn by_table(&self) -> impl Iterator<Item = (TableIdx, &[RowChange])> {
        self.rows.chunk_by(|a, b| a.table == b.table).map(|rows| (rows[0].table, rows))
    }
}

impl<'a> IntoIterator for &'a Changes {
    type Item = &'a RowChange;
    type IntoIter = std::slice::Iter<'a, RowChange>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

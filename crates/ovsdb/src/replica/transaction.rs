//! Changes that a client intends, over the rows that its replica has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Atom, ColumnIdx, Datum, Row, RowMap, Schema, TableIdx, Uuid};

/// Intended changes. Reads see them at once, the database only after [`Replica::commit`].
///
/// It works on a copy of the replica's rows as they were when it began, which costs next to nothing; what the
/// replica learns later it does not see. Nothing is checked here but that rows exist: constraints are the
/// server's business. Methods that change a row panic where the row is not there.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub(super) schema: Arc<Schema>,
    pub(super) base: Vec<RowMap>,
    view: Vec<RowMap>,
    pub(super) edits: BTreeMap<(TableIdx, Uuid), Edit>,
    pub(super) verified: BTreeSet<(TableIdx, Uuid, ColumnIdx)>,
    pub(super) comments: Vec<String>,
    pub(super) increment: Option<(TableIdx, Uuid, ColumnIdx)>,
    pub(super) is_dry_run: bool,
}

/// The intended change of a row.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub(super) kind: EditKind,
    pub(super) columns: BTreeMap<ColumnIdx, Write>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EditKind {
    /// `is_named`: the server chooses the UUID.
    Insert {
        is_named: bool,
    },
    Change,
    Delete,
}

/// The intended change of a column.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// The value in the view.
    Whole,
    /// Elements or pairs are deleted (from a map also by key alone), then others are inserted; the server
    /// leaves everything else in the column as it is.
    Part { delete: Vec<Datum>, insert: Datum },
}

/// Several deletions as few: sets of elements or keys as one, pairs one by one.
fn merge_deletes(deletes: Vec<Datum>) -> Vec<Datum> {
    let (pairs, sets): (Vec<Datum>, Vec<Datum>) =
        deletes.into_iter().partition(|delete| !delete.as_map().is_empty());
    let set = sets.into_iter().reduce(|all, more| all.union(&more));
    set.into_iter().chain(pairs).collect()
}

impl Transaction {
    /// One that changes nothing yet.
    pub(super) fn new(schema: Arc<Schema>, tables: Vec<RowMap>) -> Transaction {
        Transaction {
            schema,
            base: tables.clone(),
            view: tables,
            edits: BTreeMap::new(),
            verified: BTreeSet::new(),
            comments: Vec::new(),
            increment: None,
            is_dry_run: false,
        }
    }

    /// The schema of the database.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The rows of `table` with the changes so far.
    pub fn table(&self, table: TableIdx) -> &RowMap {
        &self.view[table.index()]
    }

    /// A row with the changes so far.
    pub fn row(&self, table: TableIdx, uuid: Uuid) -> Option<&Row> {
        self.view[table.index()].get(uuid)
    }

    /// The value of a row's `column`. Empty if there is no such row.
    pub fn get(&self, table: TableIdx, uuid: Uuid, column: ColumnIdx) -> &Datum {
        static NOTHING: Datum = Datum::EMPTY;
        self.row(table, uuid).map_or(&NOTHING, |row| row.get(column))
    }

    /// Whether the row is one that this transaction inserts.
    pub fn is_new(&self, table: TableIdx, uuid: Uuid) -> bool {
        self.edits.get(&(table, uuid)).is_some_and(|edit| matches!(edit.kind, EditKind::Insert { .. }))
    }

    /// A new row with defaults. It is called `uuid` within this transaction; the server will choose another
    /// name, which [`super::Committed::uuid_of`] tells.
    pub fn insert(&mut self, table: TableIdx, uuid: Uuid) {
        self.insert_as(table, uuid, true);
    }

    /// A new row with defaults, whose UUID in the database must also be `uuid`. Servers older than 2.17
    /// refuse that.
    pub fn insert_with_uuid(&mut self, table: TableIdx, uuid: Uuid) {
        self.insert_as(table, uuid, false);
    }

    fn insert_as(&mut self, table: TableIdx, uuid: Uuid, is_named: bool) {
        let row = Row::new(self.schema.table(table), uuid);
        self.view[table.index()].insert(row);
        let edit = Edit { kind: EditKind::Insert { is_named }, columns: BTreeMap::new() };
        self.edits.insert((table, uuid), edit);
    }

    /// Deletes a row. One that is not there stays so. Of a table that is not a root, a row is in fact deleted
    /// when nothing refers to it any more, and not otherwise.
    pub fn delete(&mut self, table: TableIdx, uuid: Uuid) {
        if self.view[table.index()].remove(uuid).is_none() {
            return;
        }
        if self.is_new(table, uuid) {
            self.edits.remove(&(table, uuid));
            return;
        }
        let edit = Edit { kind: EditKind::Delete, columns: BTreeMap::new() };
        self.edits.insert((table, uuid), edit);
    }

    /// Sets a column, unless it holds `datum` already.
    pub fn set(&mut self, table: TableIdx, uuid: Uuid, column: ColumnIdx, datum: Datum) {
        if *self.get(table, uuid, column) != datum || self.row(table, uuid).is_none() {
            self.write(table, uuid, column, datum);
        }
    }

    /// Sets a column even if it has the value `datum` already: it is sent to the server, and the transaction
    /// counts as a change.
    pub fn write(&mut self, table: TableIdx, uuid: Uuid, column: ColumnIdx, datum: Datum) {
        self.put(table, uuid, column, datum);
        self.edit(table, uuid).columns.insert(column, Write::Whole);
    }

    /// Adds the elements or pairs of `datum`; a pair whose key is there already is not added. What others add
    /// meanwhile stays.
    pub fn add(&mut self, table: TableIdx, uuid: Uuid, column: ColumnIdx, datum: Datum) {
        let new = self.get(table, uuid, column).union(&datum);
        self.part(table, uuid, column, new, Datum::EMPTY, datum);
    }

    /// Sets pairs of a map, whether or not their keys exist. Concurrent changes to other keys are kept.
    pub fn set_pairs(&mut self, table: TableIdx, uuid: Uuid, column: ColumnIdx, pairs: Datum) {
        let new = pairs.union(self.get(table, uuid, column));
        let keys = Datum::set(pairs.keys().cloned());
        self.part(table, uuid, column, new, keys, pairs);
    }

    /// Removes elements or pairs; a set removes the pairs of a map with these keys.
    pub fn remove(&mut self, table: TableIdx, uuid: Uuid, column: ColumnIdx, datum: Datum) {
        let old = self.get(table, uuid, column);
        let new = if datum.as_map().is_empty() {
            old.difference(&datum)
        } else {
            old.filter(|key, value| datum.value_of(key) != value)
        };
        self.part(table, uuid, column, new, datum, Datum::EMPTY);
    }

    fn part(
        &mut self,
        table: TableIdx,
        uuid: Uuid,
        column: ColumnIdx,
        new: Datum,
        delete: Datum,
        insert: Datum,
    ) {
        self.put(table, uuid, column, new);
        let edit = self.edit(table, uuid);
        let is_new = matches!(edit.kind, EditKind::Insert { .. });
        let delete = Some(delete).filter(|delete| !delete.is_empty());
        let write = match edit.columns.remove(&column) {
            None if !is_new => Write::Part { delete: delete.into_iter().collect(), insert },
            Some(Write::Part { delete: mut deleted, insert: inserted }) => {
                // An insertion followed by a deletion cancels out; of two insertions with one key, the pair
                // in the view applies.
                let mut coming = insert.union(&inserted);
                if let Some(gone) = &delete {
                    let stays = |key: &Atom, value: Option<&Atom>| {
                        insert.contains(key)
                            || !(gone.contains(key) && gone.value_of(key).is_none_or(|v| Some(v) == value))
                    };
                    coming = coming.filter(stays);
                } else {
                    coming = inserted.union(&insert);
                }
                deleted.extend(delete);
                Write::Part { delete: merge_deletes(deleted), insert: coming }
            }
            _ => Write::Whole,
        };
        edit.columns.insert(column, write);
    }

    fn put(&mut self, table: TableIdx, uuid: Uuid, column: ColumnIdx, datum: Datum) {
        let rows = &mut self.view[table.index()];
        let mut row = rows.get(uuid).expect("the row is there").clone();
        row.set(column, datum);
        rows.insert(row);
    }

    fn edit(&mut self, table: TableIdx, uuid: Uuid) -> &mut Edit {
        self.edits
            .entry((table, uuid))
            .or_insert_with(|| Edit { kind: EditKind::Change, columns: BTreeMap::new() })
    }

    /// The transaction relies on the value of `column` of a row: it has no effect
    /// ([`super::Outcome::TryAgain`]) if the server's row has another value by then. Rows that this
    /// transaction inserts need no verification.
    pub fn verify(&mut self, table: TableIdx, uuid: Uuid, column: ColumnIdx) {
        if self.base[table.index()].get(uuid).is_some() {
            self.verified.insert((table, uuid, column));
        }
    }

    /// Adds a line to the server's log comment about this transaction.
    pub fn comment(&mut self, text: &str) {
        self.comments.push(text.to_owned());
    }

    /// If anything changes, adds one to an integer column of a row as well; [`super::Committed::incremented`]
    /// returns its new value. A transaction has one such column: the last one named.
    pub fn increment(&mut self, table: TableIdx, uuid: Uuid, column: ColumnIdx) {
        self.increment = Some((table, uuid, column));
    }

    /// Lets the server check everything and then change nothing.
    pub fn set_dry_run(&mut self) {
        self.is_dry_run = true;
    }

    /// Whether there is nothing to change.
    pub fn is_unchanged(&self) -> bool {
        self.edits.iter().all(|((table, _), edit)| match edit.kind {
            EditKind::Insert { .. } => false,
            EditKind::Change => edit.columns.is_empty(),
            EditKind::Delete => !self.schema.table(*table).is_root,
        })
    }

    /// The tables and rows that refer to the row `uuid` of `table`, strongly or weakly: whether any does.
    pub fn is_referenced(&self, table: TableIdx, uuid: Uuid, kind: crate::RefKind) -> bool {
        let atom = Atom::Uuid(uuid);
        self.schema.tables_with_idx().any(|(from, schema)| {
            schema.columns_with_idx().any(|(column, column_schema)| {
                let mut references = column_schema.references.iter();
                references.any(|reference| {
                    reference.table == table
                        && reference.kind == kind
                        && self.view[from.index()].iter().any(|row| {
                            let datum = row.get(column);
                            match reference.in_values {
                                true => datum.values().any(|value| *value == atom),
                                false => datum.contains(&atom),
                            }
                        })
                })
            })
        })
    }
}

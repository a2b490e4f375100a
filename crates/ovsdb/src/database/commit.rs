//! What the schema requires of a transaction as a whole (RFC 7047 section 3.1 and 4.1.3), in this order:
//!
//! 1. Rows that are unchanged drop out.
//! 2. Strong references are counted: each must refer to a row that exists, and no row is removed that is
//!    still referred to.
//! 3. Rows outside the root set without references are removed, then the rows that only they referred to, and
//!    so on.
//! 4. Weak references to rows that do not exist are removed; that must not leave a column with fewer elements
//!    than its type requires.
//! 5. No table exceeds its maximum number of rows, and unique indexes are unique.
//! 6. The counts are updated, and each row that changed gets a new version.
//!
//! Until step 6 only rows have changed, which the transaction can restore.

use std::collections::{BTreeMap, BTreeSet};

use crate::changes::{Changes, RowChange};
use crate::database::references::{Change, each_change, of};
use crate::database::{Database, Transaction};
use crate::datum::Datum;
use crate::error::Error;
use crate::row::Row;
use crate::schema::{ColumnIdx, ColumnReference, TableIdx};
use crate::text::Printed;
use crate::uuid::{Uuid, UuidGenerator};

type RowId = (TableIdx, Uuid);

impl Transaction<'_> {
    /// Makes the changes last. `ids` gives each changed row its new version. On `Err` nothing has changed.
    pub fn commit(mut self, ids: &mut UuidGenerator) -> Result<Changes, Error> {
        self.drop_unchanged();
        if self.before.is_empty() {
            return Ok(Changes::default());
        }
        let mut counts = StrongCounts::default();
        self.count_strong(&mut counts)?;
        let mut follows = self.collect_garbage(&mut counts);
        while self.prune_weak(&mut counts, &mut follows)? {
            // A row that a pruned pair of a map strongly referred to may be garbage now, and have weak
            // references itself.
            self.collect_garbage(&mut counts);
        }
        if follows {
            // A new row that is garbage, or a row whose new weak references were all removed, is unchanged
            // after all.
            self.drop_unchanged();
        }
        self.check_max_rows()?;
        self.check_unique()?;
        Ok(self.finish(ids))
    }

    /// Forgets rows that are what they were before.
    fn drop_unchanged(&mut self) {
        let database = &mut *self.database;
        self.before.retain(|(table, uuid), old| match (old, database.row(*table, *uuid)) {
            (None, None) => false,
            (Some(old), Some(new)) => {
                let changed = old.changed_columns(new).next().is_some();
                if !changed && !old.is_same(new) {
                    database.put(*table, *uuid, Some(old.clone()));
                }
                changed
            }
            _ => true,
        });
    }

    fn count_strong(&self, counts: &mut StrongCounts) -> Result<(), Error> {
        for ((table, uuid), old) in &self.before {
            let new = self.database.row(*table, *uuid);
            for (column, reference) in &self.database.tables[table.index()].references.strong {
                let mut missing = None;
                let (old, new) = (of(old.as_ref(), *column), of(new, *column));
                each_change(old, new, reference.in_values, |target, change| {
                    if (reference.table, target) == (*table, *uuid) {
                        return;
                    }
                    counts.count((reference.table, target), change);
                    // A target that this transaction took out is reported by its own name below.
                    let is_known = || {
                        self.database.row(reference.table, target).is_some()
                            || self.before.contains_key(&(reference.table, target))
                    };
                    if change == Change::Comes && missing.is_none() && !is_known() {
                        missing = Some(target);
                    }
                });
                if let Some(target) = missing {
                    return Err(self.dangling(*table, *uuid, *column, reference, target));
                }
            }
        }
        for (table, uuid) in self.before.keys() {
            let count = counts.of(self.database, (*table, *uuid));
            if count > 0 && self.database.row(*table, *uuid).is_none() {
                return Err(Error::referential(format!(
                    "cannot delete {} row {uuid} because of {count} remaining reference(s)",
                    self.table_name(*table)
                )));
            }
        }
        Ok(())
    }

    fn dangling(
        &self,
        table: TableIdx,
        uuid: Uuid,
        column: ColumnIdx,
        reference: &ColumnReference,
        target: Uuid,
    ) -> Error {
        let schema = self.database.schema.table(table);
        Error::referential(format!(
            "Table {} column {} row {uuid} references nonexistent row {target} in table {}.",
            schema.name,
            schema.column(column).name,
            self.table_name(reference.table)
        ))
    }

    /// Removes rows outside the root set that have no strong reference, among those whose count this
    /// transaction touched. True if there were any.
    fn collect_garbage(&mut self, counts: &mut StrongCounts) -> bool {
        let mut any = false;
        let touched = self.before.keys().copied();
        let mut suspects: Vec<RowId> = touched.chain(std::mem::take(&mut counts.lost)).collect();
        while let Some((table, uuid)) = suspects.pop() {
            if self.database.schema.table(table).is_root || counts.of(self.database, (table, uuid)) > 0 {
                continue;
            }
            let Some(row) = self.database.row(table, uuid).cloned() else { continue };
            for (column, reference) in &self.database.tables[table.index()].references.strong {
                each_change(row.get(*column), &Datum::EMPTY, reference.in_values, |target, change| {
                    if (reference.table, target) != (table, uuid) {
                        counts.count((reference.table, target), change);
                    }
                });
            }
            self.put(table, uuid, None);
            any = true;
            suspects.append(&mut counts.lost);
        }
        any
    }

    /// Removes weak references to missing rows, and sets `any` if there were some. True if that also removed
    /// strong ones, from maps that have both.
    fn prune_weak(&mut self, counts: &mut StrongCounts, any: &mut bool) -> Result<bool, Error> {
        let mut holders = BTreeSet::new();
        for (table, uuid) in self.before.keys() {
            let table_of = &self.database.tables[table.index()];
            if self.database.row(*table, *uuid).is_none() {
                holders.extend(table_of.incoming.weak(*uuid));
            } else if !table_of.references.weak.is_empty() {
                holders.insert((*table, *uuid));
            }
        }
        for (table, uuid) in holders {
            let Some(row) = self.database.row(table, uuid) else { continue };
            let Some(pruned) = self.without_dead_references(table, row)? else { continue };
            for (column, reference) in &self.database.tables[table.index()].references.strong {
                each_change(row.get(*column), pruned.get(*column), reference.in_values, |target, change| {
                    if (reference.table, target) != (table, uuid) {
                        counts.count((reference.table, target), change);
                    }
                });
            }
            self.put(table, uuid, Some(pruned));
            *any = true;
        }
        Ok(!counts.lost.is_empty())
    }

    fn without_dead_references(&self, table: TableIdx, row: &Row) -> Result<Option<Row>, Error> {
        let mut pruned: Option<Row> = None;
        for (column, reference) in &self.database.tables[table.index()].references.weak {
            let datum = pruned.as_ref().unwrap_or(row).get(*column);
            let is_alive = |atom: &crate::Atom| {
                atom.as_uuid().is_none_or(|target| self.database.row(reference.table, target).is_some())
            };
            let all_alive =
                if reference.in_values { datum.values().all(is_alive) } else { datum.keys().all(is_alive) };
            if all_alive {
                continue;
            }
            let total = datum.len();
            let kept = datum
                .filter(|key, value| is_alive(if reference.in_values { value.unwrap_or(key) } else { key }));
            let schema = self.database.schema.table(table);
            if kept.len() < schema.column(*column).kind.min as usize {
                let is_new = matches!(self.before.get(&(table, row.uuid())), Some(None));
                if is_new && datum.keys().any(|atom| atom.as_uuid() == Some(Uuid::ZERO)) {
                    // The misspelt word is the stock server's.
                    return Err(Error::constraint(format!(
                        "Weak reference column \"{}\" in \"{}\" row {} (inserted within this transaction) contained all-zeros UUID \
                         (probably as the default value for this column) but deleting this value caused a constraint volation because \
                         this column is not allowed to be empty.",
                        schema.column(*column).name,
                        schema.name,
                        row.uuid()
                    )));
                }
                return Err(Error::constraint(format!(
                    "Deletion of {} weak reference(s) to deleted (or never-existing) rows from column \"{}\" in \"{}\" \
                     row {} {}caused this column to become empty, but constraints on this column disallow an empty column.",
                    total - kept.len(),
                    schema.column(*column).name,
                    schema.name,
                    row.uuid(),
                    if is_new { "(inserted within this transaction) " } else { "" }
                )));
            }
            pruned.get_or_insert_with(|| row.clone()).set(*column, kept);
        }
        Ok(pruned)
    }

    fn check_max_rows(&self) -> Result<(), Error> {
        for table in self.touched_tables() {
            let (schema, count) = (self.database.schema.table(table), self.database.row_count(table));
            if count > schema.max_rows as usize {
                return Err(Error::constraint(format!(
                    "transaction causes \"{}\" table to contain {count} rows, greater than the schema-defined limit of {} row(s)",
                    schema.name, schema.max_rows
                )));
            }
        }
        Ok(())
    }

    /// Each once: keys are in the order of tables.
    fn touched_tables(&self) -> impl Iterator<Item = TableIdx> {
        let mut last = None;
        self.before.keys().map(|(table, _)| *table).filter(move |table| last.replace(*table) != Some(*table))
    }

    fn check_unique(&self) -> Result<(), Error> {
        for ((table, uuid), old) in &self.before {
            let Some(new) = self.database.row(*table, *uuid) else { continue };
            let rows = &self.database.tables[table.index()];
            for index in &rows.indexes {
                // If the row kept its values, the row that took the same ones is in this transaction too.
                if old.as_ref().is_some_and(|old| index.agree(old, new)) {
                    continue;
                }
                if let Some(other) = index.find_other(&rows.rows, new) {
                    return Err(self.duplicate(*table, index.columns(), other, new));
                }
            }
        }
        Ok(())
    }

    fn duplicate(&self, table: TableIdx, columns: &[ColumnIdx], a: &Row, b: &Row) -> Error {
        let schema = self.database.schema.table(table);
        // In an order that does not depend on UUIDs if anything else distinguishes the rows.
        let named = |row: &Row| row.columns()[ColumnIdx::FIRST.index()..].to_vec();
        let (a, b) = if (named(a), a.uuid()) < (named(b), b.uuid()) { (b, a) } else { (a, b) };
        let values_of = |row: &Row| -> String {
            listed(columns.iter().map(|c| Printed(row.get(*c), &schema.column(*c).kind).to_string()))
        };
        let values = values_of(a);
        let names = listed(columns.iter().map(|c| format!("\"{}\"", schema.column(*c).name)));
        let history = |row: &Row| {
            match self.before.get(&(table, row.uuid())) {
            None => "existed in the database before this transaction and was not modified by the transaction".to_owned(),
            Some(None) => "was inserted by this transaction".to_owned(),
            Some(Some(old)) if columns.iter().all(|c| old.get(*c) == row.get(*c)) => {
                "existed in the database before this transaction, which modified some of the row's columns but not any columns in this index"
                    .to_owned()
            }
            Some(Some(old)) => format!("had the following index values before the transaction: {}", values_of(old)),
        }
        };
        Error::constraint(format!(
            "Transaction causes multiple rows in \"{}\" table to have identical values ({values}) for index on column{} {names}.  \
             First row, with UUID {}, {}.  Second row, with UUID {}, {}.",
            schema.name,
            if columns.len() > 1 { "s" } else { "" },
            a.uuid(),
            history(a),
            b.uuid(),
            history(b)
        ))
    }

    fn finish(mut self, ids: &mut UuidGenerator) -> Changes {
        let before = std::mem::take(&mut self.before);
        let database = &mut *self.database;
        let mut rows = Vec::with_capacity(before.len());
        for ((table, uuid), old) in before {
            // This version of the row has no other user yet, so this copies nothing; no index refers to it.
            let new = database.tables[table.index()].rows.get_mut(uuid).map(|row| {
                row.set(ColumnIdx::VERSION, Datum::scalar(ids.next_uuid()));
                row.clone()
            });
            database.count_references(table, uuid, old.as_ref(), new.as_ref());
            rows.push(RowChange { table, uuid, old, new });
        }
        Changes { rows }
    }

    fn table_name(&self, table: TableIdx) -> &str {
        &self.database.schema.table(table).name
    }
}

/// "a", "a and b", "a, b, and c".
fn listed(words: impl ExactSizeIterator<Item = String>) -> String {
    let count = words.len();
    let mut text = String::new();
    for (index, word) in words.enumerate() {
        text += match index {
            0 => "",
            1 if count == 2 => " and ",
            _ if index + 1 == count => ", and ",
            _ => ", ",
        };
        text += &word;
    }
    text
}

/// How this transaction changes the numbers of strong references, relative to those in the tables.
#[derive(Debug, Default)]
struct StrongCounts {
    changes: BTreeMap<RowId, i64>,
    /// Rows that lost a reference.
    lost: Vec<RowId>,
}

impl StrongCounts {
    fn count(&mut self, row: RowId, change: Change) {
        let count = self.changes.entry(row).or_insert(0);
        match change {
            Change::Comes => *count += 1,
            Change::Goes => {
                *count -= 1;
                self.lost.push(row);
            }
        }
    }

    /// The number of strong references that `row` has now.
    fn of(&self, database: &Database, row: RowId) -> i64 {
        let change = self.changes.get(&row).copied().unwrap_or(0);
        i64::from(database.tables[row.0.index()].incoming.strong(row.1)) + change
    }
}

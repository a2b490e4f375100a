//! Which rows refer to which, recorded so that a commit need not search.
//!
//! For strong references the count suffices: a row must not be removed while there are any, and is collected
//! when there are none. A row's references to itself do not count (RFC 7047 section 3.2: "from a different
//! row"). For weak references the referring rows are needed, so that references can be removed when their
//! target goes.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::atom::Atom;
use crate::datum::Datum;
use crate::row::Row;
use crate::schema::{ColumnIdx, ColumnReference, TableIdx, TableSchema};
use crate::types::RefKind;
use crate::uuid::Uuid;

/// The columns of a table that refer to rows.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// The strong ones.
    pub strong: Vec<(ColumnIdx, ColumnReference)>,
    /// The weak ones.
    pub weak: Vec<(ColumnIdx, ColumnReference)>,
}

impl References {
    /// The references of `table`.
    pub fn of(table: &TableSchema) -> References {
        let mut references = References::default();
        for (column, schema) in table.columns_with_idx() {
            for reference in &schema.references {
                match reference.kind {
                    RefKind::Strong => references.strong.push((column, *reference)),
                    RefKind::Weak => references.weak.push((column, *reference)),
                }
            }
        }
        references
    }
}

/// What refers to the rows of one table.
#[derive(Debug, Default)]
pub struct Incoming {
    /// The number of strong references to a row; no entry means zero.
    strong: HashMap<Uuid, u32>,
    /// Which rows hold weak references to a row, and how many each.
    weak: HashMap<Uuid, BTreeMap<(TableIdx, Uuid), u32>>,
}

impl Incoming {
    /// The number of strong references to `row`.
    pub fn strong(&self, row: Uuid) -> u32 {
        self.strong.get(&row).copied().unwrap_or(0)
    }

    /// The rows that refer to `row` weakly.
    pub fn weak(&self, row: Uuid) -> impl Iterator<Item = (TableIdx, Uuid)> {
        self.weak.get(&row).into_iter().flat_map(|sources| sources.keys().copied())
    }

    pub fn count_strong(&mut self, row: Uuid, change: Change) {
        let count = self.strong.entry(row).or_insert(0);
        match change {
            Change::Comes => *count += 1,
            Change::Goes => *count = count.saturating_sub(1),
        }
        if *count == 0 {
            self.strong.remove(&row);
        }
    }

    pub fn count_weak(&mut self, row: Uuid, source: (TableIdx, Uuid), change: Change) {
        let sources = self.weak.entry(row).or_default();
        let count = sources.entry(source).or_insert(0);
        match change {
            Change::Comes => *count += 1,
            Change::Goes => *count = count.saturating_sub(1),
        }
        if *count == 0 {
            sources.remove(&source);
        }
        if sources.is_empty() {
            self.weak.remove(&row);
        }
    }
}

/// What happens to a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Comes,
    /// It is gone.
    Goes,
}

/// Calls `tell` with each UUID that a column's references lose or gain between two versions. One pass over
/// both; none if they share memory.
pub fn each_change(old: &Datum, new: &Datum, in_values: bool, mut tell: impl FnMut(Uuid, Change)) {
    if old.is_same(new) {
        return;
    }
    if old.as_map().is_empty() && new.as_map().is_empty() {
        merge(old.as_set(), new.as_set(), Ord::cmp, |atom, change| tell_uuid(atom, change, &mut tell));
        return;
    }
    // A pair whose value changed goes and comes.
    merge(old.as_map(), new.as_map(), Ord::cmp, |(key, value), change| {
        tell_uuid(if in_values { value } else { key }, change, &mut tell);
    });
}

fn tell_uuid(atom: &Atom, change: Change, tell: &mut impl FnMut(Uuid, Change)) {
    if let Atom::Uuid(uuid) = atom {
        tell(*uuid, change);
    }
}

fn merge<T: PartialEq>(
    old: &[T],
    new: &[T],
    compare: impl Fn(&T, &T) -> Ordering,
    mut tell: impl FnMut(&T, Change),
) {
    // Little changes of much: what is equal at both ends is passed over.
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[same..], &new[same..]);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (mut old, mut new) = (&old[..old.len() - same], &new[..new.len() - same]);
    loop {
        let order = match (old.first(), new.first()) {
            (Some(a), Some(b)) => compare(a, b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        if order != Ordering::Greater
            && let Some((gone, rest)) = old.split_first()
        {
            old = rest;
            if order == Ordering::Less {
                tell(gone, Change::Goes);
            }
        }
        if order != Ordering::Less
            && let Some((come, rest)) = new.split_first()
        {
            new = rest;
            if order == Ordering::Greater {
                tell(come, Change::Comes);
            }
        }
    }
}

/// What `column` holds in a version of a row, nothing where the row is not there.
pub fn of(row: Option<&Row>, column: ColumnIdx) -> &Datum {
    row.map_or(&Datum::EMPTY, |row| row.get(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(old: &Datum, new: &Datum, in_values: bool) -> Vec<(u8, Change)> {
        let mut told = Vec::new();
        each_change(old, new, in_values, |uuid, change| told.push((uuid.0[15], change)));
        told
    }

    fn uuid(n: u8) -> Uuid {
        let mut bytes = [0; 16];
        bytes[15] = n;
        Uuid(bytes)
    }

    #[test]
    fn what_comes_and_goes_is_told_and_what_stays_is_not() {
        use Change::{Comes, Goes};
        let set = |numbers: &[u8]| Datum::set(numbers.iter().map(|n| uuid(*n)));
        assert_eq!(changes(&set(&[1, 2, 4]), &set(&[2, 3]), false), [(1, Goes), (3, Comes), (4, Goes)]);
        assert_eq!(changes(&Datum::EMPTY, &set(&[7]), false), [(7, Comes)]);
        let map = |pairs: &[(&str, u8)]| Datum::map(pairs.iter().map(|(k, n)| (*k, uuid(*n))));
        let (old, new) = (map(&[("a", 1), ("b", 2), ("c", 3)]), map(&[("a", 1), ("b", 3), ("d", 3)]));
        let mut told = changes(&old, &new, true);
        told.sort_by_key(|(n, change)| (*n, *change == Goes));
        assert_eq!(told, [(2, Goes), (3, Comes), (3, Comes), (3, Goes)]);
        assert_eq!(changes(&map(&[("a", 1)]), &Datum::EMPTY, true), [(1, Goes)]);
    }
}

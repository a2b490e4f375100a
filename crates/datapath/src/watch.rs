//! Judges changes for many flows at once.
//!
//! Under constant change every hit is a first hit in its version, and
//! [`Pipeline::touched`](crate::Pipeline::touched) needs the flow's visits and the packet's key, which are
//! outside the lines that a hit reads. But there are few *sorts* of flows: those of one sort have the same
//! mask and looked into the same tables. How the changes of one kind (the rules of one mask in one table)
//! affect a sort is determined once per version. What remains to check per flow is one small number for each
//! kind, its *mark*: the hash of its values under the changes' mask. The pipeline keeps an array of versions
//! by mark; a flow whose places in the arrays are no newer than the flow itself is unaffected.
//!
//! A mark is computed when a flow has been judged in full, and stays with its cache entry. Marks belong to a
//! *set* of kinds; when the pipeline watches other kinds for a sort, the set's number changes, and each flow
//! is judged in full once more.
//!
//! Everything here is a shortcut to "not affected": whatever does not fit is judged flow by flow.

use arrayvec::ArrayVec;
use base::Version;
use flow::Mask;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of kinds of changes watched for a sort.
pub const KINDS_MAX: usize = 2;
/// Maximum number of distinct tables of a sort; flows that visited more belong to no sort.
pub const TABLES_MAX: usize = 6;

/// A table that a translation looked into, for judging later changes. `table` is the pipeline's own number
/// for a table (OpenFlow tables of each bridge, MAC tables, port sets); for some, it may use the other two
/// numbers as it likes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, zerocopy::FromZeros)]
#[repr(C)]
pub struct Visit {
    /// The pipeline's number of the table.
    pub table: u32,
    /// First of the rewritten words in [`Translation::rewrites`](crate::Translation::rewrites).
    pub rewrites_start: u16,
    /// Number of rewritten words: what earlier actions had changed when the table was looked into.
    pub rewrites_len: u16,
}

/// A flow's positions in the arrays of the kinds that are watched for its sort.
pub type Marks = [u16; KINDS_MAX];

/// A table that the flows of a sort looked into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortTable {
    /// The pipeline's number for it.
    pub table: u32,
    /// Something had been rewritten before (or, by the pipeline's own rules, the visit contains more): flows
    /// of the sort differ in more than their keys.
    pub is_rewritten: bool,
}

/// Distinct tables, in the order of the first visits.
pub type SortTables = ArrayVec<SortTable, TABLES_MAX>;

/// The tables of a flow with these visits. `None` if there are too many.
pub fn tables_of(visits: &[Visit]) -> Option<SortTables> {
    let mut tables = SortTables::new();
    for v in visits {
        let is_rewritten = v.rewrites_len > 0;
        match tables.iter_mut().find(|t| t.table == v.table) {
            Some(known) => known.is_rewritten |= is_rewritten,
            None => tables.try_push(SortTable { table: v.table, is_rewritten }).ok()?,
        }
    }
    Some(tables)
}

/// All flows of one mask that looked into the same tables.
#[derive(Clone, Copy)]
pub struct Sort<'a> {
    /// Their mask.
    pub mask: &'a Mask,
    /// The tables.
    pub tables: &'a [SortTable],
}

/// A kind of changes being watched.
#[derive(Clone, Copy, Default, Debug)]
pub struct Kind {
    /// The pipeline's unique number for the kind, never reused; 0 for none.
    pub id: u64,
    /// The table that is changed.
    pub table: u32,
    /// Where the pipeline last found it.
    pub place: u32,
    /// The version of its last change when last checked.
    pub last: u64,
}

/// What each worker remembers for one sort. Filled by the pipeline.
#[derive(Clone, Copy, Default, Debug)]
pub struct Watch {
    /// The version that the rest was last brought up to.
    pub renewed: Version,
    /// Flows older than this may have been touched by a change that is not watched.
    pub floor: u64,
    /// Number of the set of kinds; marks of any other set are meaningless. 0 until something is watched.
    pub set: u8,
    /// The kinds.
    pub kinds: [Kind; KINDS_MAX],
}

/// The changes watched for one sort, as of one version.
#[derive(Clone, Copy)]
pub struct Sight<'g> {
    floor: u64,
    set: u8,
    arrays: [&'g [AtomicU64]; KINDS_MAX],
    len: usize,
}

impl<'g> Sight<'g> {
    /// Nothing is watched: each flow must be judged individually.
    pub const NONE: Sight<'static> = Sight { floor: u64::MAX, set: 0, arrays: [&[]; KINDS_MAX], len: 0 };

    /// What is watched, with no arrays yet.
    pub fn new(watch: &Watch) -> Sight<'g> {
        Sight { floor: watch.floor, set: watch.set, arrays: [&[]; KINDS_MAX], len: 0 }
    }

    /// Adds the versions of changes, by mark, of the next of at most [`KINDS_MAX`] kinds; the length is a
    /// power of two up to 2^16. An empty slice stands for a kind whose changes are all below the floor.
    pub fn push(&mut self, versions: &'g [AtomicU64]) {
        self.arrays[self.len] = versions;
        self.len += 1;
    }

    /// Whether no later change affects a flow of the sort with these marks. False may be wrong; true is
    /// right.
    #[inline(always)]
    pub fn is_untouched(&self, since: Version, set: u8, marks: &Marks) -> bool {
        if since.0 < self.floor || set != self.set {
            return false;
        }
        let arrays = &self.arrays[..self.len.min(KINDS_MAX)];
        arrays.iter().zip(marks).all(|(versions, mark)| {
            let at = usize::from(*mark) & versions.len().wrapping_sub(1);
            versions.get(at).is_none_or(|v| v.load(Ordering::Relaxed) <= since.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_distinct_and_one_rewritten_visit_marks_the_table() {
        let visit = |table, rewrites_len| Visit { table, rewrites_start: 0, rewrites_len };
        let tables = tables_of(&[visit(3, 0), visit(1, 0), visit(3, 2)]).unwrap();
        let plain = |table, is_rewritten| SortTable { table, is_rewritten };
        assert_eq!(tables[..], [plain(3, true), plain(1, false)]);
        let many: Vec<Visit> = (0..TABLES_MAX as u32 + 1).map(|t| visit(t, 0)).collect();
        assert!(tables_of(&many).is_none());
    }

    #[test]
    fn a_flow_is_untouched_only_above_the_floor_in_its_set_and_no_older_than_its_places() {
        let versions: Vec<AtomicU64> = [0, 7, 0, 0].map(AtomicU64::new).into();
        let watch = Watch { floor: 5, set: 1, ..Watch::default() };
        let mut sight = Sight::new(&watch);
        assert!(sight.is_untouched(Version(5), 1, &[1, 0]));
        sight.push(&versions);
        sight.push(&[]);
        assert!(!sight.is_untouched(Version(6), 1, &[1, 0]));
        assert!(!sight.is_untouched(Version(6), 1, &[5, 0]), "marks wrap around");
        assert!(sight.is_untouched(Version(7), 1, &[1, 0]));
        assert!(sight.is_untouched(Version(6), 1, &[2, 9]));
        assert!(!sight.is_untouched(Version(6), 2, &[2, 0]));
        assert!(!sight.is_untouched(Version(4), 1, &[2, 0]));
        assert!(!Sight::NONE.is_untouched(Version(u64::MAX - 1), 0, &[0; 2]));
    }
}

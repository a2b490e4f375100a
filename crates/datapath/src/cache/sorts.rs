//! The sorts of the flows in a worker's cache, and what is watched for each; see [`crate::watch`].
//!
//! A sort lives as long as a body refers to it, so its mask's number keeps its meaning. Sorts of one mask are
//! chained. Their number is bounded; further flows belong to sort 0, whose flows are judged one by one.

use super::entry::{Entry, ShortVersion};
use super::masks::{MaskEntry, NO_SORT};
use crate::pipeline::Pipeline;
use crate::watch::Visit;
use crate::watch::{Sight, Sort, SortTables, TABLES_MAX, Watch, tables_of};
use base::Version;
use base::rcu::Reader;

/// Maximum number of sorts per worker.
const SORTS_MAX: usize = 1024;

struct SortEntry {
    mask: u16,
    /// The next sort of the same mask, 0 for none.
    next: u16,
    /// Bodies that refer to it.
    bodies: u32,
    tables: SortTables,
    watch: Watch,
}

/// All sorts of one worker.
pub struct Sorts {
    /// By number; the first stands for [`NO_SORT`].
    all: Vec<SortEntry>,
    free: Vec<u16>,
}

impl Sorts {
    pub fn new() -> Sorts {
        let mut all = Vec::with_capacity(SORTS_MAX + 1);
        all.push(SortEntry {
            mask: 0,
            next: 0,
            bodies: 0,
            tables: SortTables::new(),
            watch: Watch::default(),
        });
        Sorts { all, free: Vec::with_capacity(SORTS_MAX) }
    }

    /// The sort of a new body's flow; counts the body.
    pub fn take(&mut self, mask: u16, masks: &mut [MaskEntry], visits: &[Visit]) -> u16 {
        let first = masks[usize::from(mask)].first_sort;
        // The common case: the sort of its mask's newest flows.
        let sort = &mut self.all[usize::from(first)];
        if first != NO_SORT && are_visits_to(&sort.tables, visits) {
            sort.bodies += 1;
            return first;
        }
        let Some(tables) = tables_of(visits) else { return NO_SORT };
        let mut at = first;
        while at != NO_SORT {
            let sort = &mut self.all[usize::from(at)];
            if sort.tables == tables {
                sort.bodies += 1;
                return at;
            }
            at = sort.next;
        }
        let new = SortEntry { mask, next: first, bodies: 1, tables, watch: Watch::default() };
        let number = if let Some(number) = self.free.pop() {
            self.all[usize::from(number)] = new;
            number
        } else if self.all.len() <= SORTS_MAX {
            self.all.push(new);
            (self.all.len() - 1) as u16
        } else {
            return NO_SORT;
        };
        masks[usize::from(mask)].first_sort = number;
        number
    }

    /// Records that a body of the sort is gone.
    pub fn release(&mut self, number: u16, masks: &mut [MaskEntry]) {
        if number == NO_SORT {
            return;
        }
        let sort = &mut self.all[usize::from(number)];
        sort.bodies -= 1;
        if sort.bodies > 0 {
            return;
        }
        let (mask, next) = (usize::from(sort.mask), sort.next);
        if masks[mask].first_sort == number {
            masks[mask].first_sort = next;
        } else {
            let mut at = masks[mask].first_sort;
            while self.all[usize::from(at)].next != number {
                at = self.all[usize::from(at)].next;
            }
            self.all[usize::from(at)].next = next;
        }
        self.free.push(number);
    }

    /// What is watched for a sort.
    pub fn watch(&self, number: u16) -> &Watch {
        &self.all[usize::from(number)].watch
    }
}

/// Whether the visits' [tables](tables_of) are these.
fn are_visits_to(tables: &SortTables, visits: &[Visit]) -> bool {
    let (mut met, mut rewritten) = (0, 0u8);
    for visit in visits {
        let known = tables[..met].iter().position(|t| t.table == visit.table);
        let Some(at) = known.or_else(|| (tables.get(met)?.table == visit.table).then_some(met)) else {
            return false;
        };
        met = met.max(at + 1);
        rewritten |= u8::from(visit.rewrites_len > 0) << at;
    }
    met == tables.len() && tables.iter().enumerate().all(|(n, t)| t.is_rewritten == (rewritten >> n & 1 != 0))
}

const _: () = assert!(TABLES_MAX <= 8, "one bit for each table");

/// What one stage of a burst knows about changes: the sort that it met last.
pub struct Sights<'g, P: Pipeline> {
    pipeline: &'g P,
    reader: &'g Reader,
    now: Version,
    number: u16,
    sight: Sight<'g>,
}

impl<'g, P: Pipeline> Sights<'g, P> {
    pub fn new(pipeline: &'g P, reader: &'g Reader, now: Version) -> Sights<'g, P> {
        Sights { pipeline, reader, now, number: NO_SORT, sight: Sight::NONE }
    }

    /// Whether what is watched proves that no later change touches the entry's flow: then it is right at this
    /// version.
    #[inline(always)]
    pub fn renew(&mut self, sorts: &mut Sorts, masks: &[MaskEntry], e: &mut Entry) -> bool {
        if e.sort != self.number {
            self.look(sorts, masks, e.sort);
        }
        if !self.sight.is_untouched(e.version.whole(self.now), e.set, &e.marks) {
            return false;
        }
        e.version = ShortVersion::of(self.now);
        true
    }

    #[inline(never)]
    fn look(&mut self, sorts: &mut Sorts, masks: &[MaskEntry], number: u16) {
        let entry = &mut sorts.all[usize::from(number)];
        self.number = number;
        self.sight = if number == NO_SORT {
            Sight::NONE
        } else {
            let sort = Sort { mask: &masks[usize::from(entry.mask)].mask, tables: &entry.tables };
            self.pipeline.sight(sort, &mut entry.watch, self.now, self.reader)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_are_to_the_tables_that_they_have_and_to_no_others() {
        // All runs of up to four visits to three tables, of either kind.
        let visit = |n: u32| Visit { table: n % 3, rewrites_start: 0, rewrites_len: (n / 3) as u16 };
        let digits = |code: u32, len: u32| -> Vec<Visit> {
            (0..len).map(|at| visit(code / 6u32.pow(at) % 6)).collect()
        };
        let all: Vec<Vec<Visit>> = (0..=4)
            .flat_map(|len| (0..6u32.pow(len)).map(move |code| (code, len)))
            .map(|(code, len)| digits(code, len))
            .collect();
        let mut kinds: Vec<SortTables> = vec![];
        for visits in &all {
            let tables = tables_of(visits).expect("few");
            if !kinds.contains(&tables) {
                kinds.push(tables);
            }
        }
        assert!(kinds.len() > 50);
        for visits in &all {
            let tables = tables_of(visits).expect("few");
            assert!(kinds.iter().all(|kind| are_visits_to(kind, visits) == (*kind == tables)), "{visits:?}");
        }
    }
}

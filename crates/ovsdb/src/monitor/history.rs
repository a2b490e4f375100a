//! The last commits of a database, and what changed between a position and now.
//!
//! A position is the number of the last commit reported to a monitor. The last commits are kept one by one,
//! up to a bound, so that a client that lost its connection can continue where it was. Clients that fall
//! behind that bound cost little: older commits are folded into *segments*, one between two occupied
//! positions, and each has a row once, however often it changed. If no client is behind, there are no
//! segments; and as long as no client has learnt the name of a state, no commits either.
//!
//! Both are bounded in rows and in bytes. What counts are old versions: the new one is in the database, or is
//! the old one of a later change.
//!
//! Invariant: segments and then commits are contiguous from `oldest` to `now`; every occupied position is
//! `oldest`, the end of a segment, or the number of a commit.

use crate::{Changes, Row, TableIdx, Uuid};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The number of a commit, from 1; 0 is the state that the history began with.
pub type Position = u64;

/// Commits kept one by one at most.
const COMMITS_MAX: usize = 1_000;
/// Changed rows in them at most; the last commit is kept in full.
const COMMITTED_ROWS_MAX: usize = 100_000;
/// Bytes of them at most, the last commit excepted.
pub const COMMITTED_BYTES_MAX: usize = 64 << 20;
/// Rows in segments beyond which the clients furthest behind are given up.
const FOLDED_ROWS_MAX: usize = 2_000_000;
/// Bytes in segments beyond which they are.
pub const FOLDED_BYTES_MAX: usize = 256 << 20;
/// Memory for a change besides its row.
const CHANGE_BYTES: usize = 128;

/// See the [module](self).
#[derive(Debug)]
pub struct History {
    /// Position that the first segment, or else the first commit, begins at.
    oldest: Position,
    segments: VecDeque<Segment>,
    commits: VecDeque<Commit>,
    committed_rows: usize,
    committed_bytes: usize,
    /// A client may come back and name a state that is past.
    is_asked_for: bool,
    now: Position,
    /// The UUID of the commit `now`, which clients name when they reconnect.
    last_txn: Uuid,
    first_txn: Uuid,
    /// How many monitors are at each position.
    positions: BTreeMap<Position, usize>,
}

#[derive(Debug)]
struct Commit {
    number: Position,
    txn: Uuid,
    changes: Arc<Changes>,
    bytes: usize,
}

/// A row before and after.
type Versions = (Option<Row>, Option<Row>);

/// Several commits in one.
#[derive(Debug)]
struct Segment {
    end: Position,
    rows: HashMap<(TableIdx, Uuid), Versions>,
    bytes: usize,
}

/// What changed over one or several commits.
#[derive(Clone, Debug)]
pub enum Net {
    /// One commit.
    One(Arc<Changes>),
    /// Several: by table and UUID, each row with its first old and its last new version, which differ.
    Many(BTreeMap<(TableIdx, Uuid), Versions>),
}

impl History {
    /// For a database whose present state is called `txn`.
    pub fn new(txn: Uuid) -> History {
        History {
            oldest: 0,
            segments: VecDeque::new(),
            commits: VecDeque::new(),
            committed_rows: 0,
            committed_bytes: 0,
            is_asked_for: false,
            now: 0,
            last_txn: txn,
            first_txn: txn,
            positions: BTreeMap::new(),
        }
    }

    /// The number of the last commit.
    pub fn now(&self) -> Position {
        self.now
    }

    /// Its name.
    pub fn last_txn(&self) -> Uuid {
        self.last_txn
    }

    /// Records a commit.
    pub fn commit(&mut self, txn: Uuid, changes: Arc<Changes>) {
        self.now += 1;
        self.last_txn = txn;
        let bytes = changes.iter().map(|c| bytes_of(&c.old, &c.new)).sum();
        self.committed_rows += changes.len();
        self.committed_bytes += bytes;
        self.commits.push_back(Commit { number: self.now, txn, changes, bytes });
        self.trim();
    }

    /// From now on, clients may come back and name a state that is past.
    pub fn keep(&mut self) {
        self.is_asked_for = true;
    }

    /// Folds the commits that are too many, and those that nobody needs.
    fn trim(&mut self) {
        let first = self.positions.keys().next().copied().unwrap_or(self.now);
        while let Some(oldest) = self.commits.front() {
            let is_needed = self.is_asked_for || oldest.number > first;
            let is_much =
                self.committed_rows > COMMITTED_ROWS_MAX || self.committed_bytes > COMMITTED_BYTES_MAX;
            if is_needed && self.commits.len() <= COMMITS_MAX && !(is_much && self.commits.len() > 1) {
                return;
            }
            let commit = self.commits.pop_front().expect("just looked at");
            self.committed_rows -= commit.changes.len();
            self.committed_bytes -= commit.bytes;
            self.fold(commit);
        }
    }

    /// The position of the state that is called `txn`, if all since is known one by one.
    pub fn find(&self, txn: Uuid) -> Option<Position> {
        if txn == self.last_txn {
            return Some(self.now);
        }
        if txn == self.first_txn && self.oldest == 0 && self.segments.is_empty() {
            return Some(0);
        }
        self.commits.iter().rev().find(|c| c.txn == txn).map(|c| c.number)
    }

    /// What changed since `position`, which must be occupied or have just been returned by [`Self::find`].
    pub fn since(&self, position: Position) -> Net {
        debug_assert!(position >= self.oldest && position <= self.now);
        if position + 1 == self.now
            && let Some(commit) = self.commits.back()
        {
            return Net::One(commit.changes.clone());
        }
        let mut net = BTreeMap::new();
        for segment in self.segments.iter().filter(|s| s.end > position) {
            for (key, (old, new)) in &segment.rows {
                merge(&mut net, *key, old, new);
            }
        }
        for commit in self.commits.iter().filter(|c| c.number > position) {
            for change in commit.changes.iter() {
                merge(&mut net, (change.table, change.uuid), &change.old, &change.new);
            }
        }
        net.retain(|_, (old, new)| old != new);
        Net::Many(net)
    }

    /// Marks `position` as occupied by one more monitor.
    pub fn enter(&mut self, position: Position) {
        *self.positions.entry(position).or_default() += 1;
    }

    /// Marks it as occupied by one less.
    pub fn leave(&mut self, position: Position) {
        let Some(count) = self.positions.get_mut(&position) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.positions.remove(&position);
        self.join_segments(position);
        self.trim();
    }

    /// The position of the clients furthest behind, if keeping what they miss costs too much.
    pub fn too_far_behind(&self) -> Option<Position> {
        let rows: usize = self.segments.iter().map(|s| s.rows.len()).sum();
        let bytes: usize = self.segments.iter().map(|s| s.bytes).sum();
        let is_much = rows > FOLDED_ROWS_MAX || bytes > FOLDED_BYTES_MAX;
        is_much.then(|| self.positions.keys().next().copied()).flatten()
    }

    fn fold(&mut self, commit: Commit) {
        let end = commit.number;
        if self.positions.keys().next().is_none_or(|&first| first >= end) {
            self.segments.clear();
            self.oldest = end;
            return;
        }
        let begin = self.segments.back().map_or(self.oldest, |s| s.end);
        if self.segments.is_empty() || self.positions.contains_key(&begin) {
            self.segments.push_back(Segment { end, rows: HashMap::new(), bytes: 0 });
        }
        let segment = self.segments.back_mut().expect("just looked at");
        segment.end = end;
        for change in commit.changes.iter() {
            segment.add((change.table, change.uuid), &change.old, &change.new);
        }
    }

    /// `position` is no longer occupied: joins the segments before and after it, and drops what precedes all
    /// occupied positions.
    fn join_segments(&mut self, position: Position) {
        let first = self.positions.keys().next().copied().unwrap_or(self.now);
        while self.segments.front().is_some_and(|s| s.end <= first) {
            self.oldest = self.segments.pop_front().expect("just looked at").end;
        }
        let Some(at) = self.segments.iter().position(|s| s.end == position) else { return };
        if at + 1 == self.segments.len() {
            return;
        }
        let after = self.segments.remove(at + 1).expect("it is not the last");
        let before = &mut self.segments[at];
        before.end = after.end;
        for (key, (old, new)) in after.rows {
            before.add(key, &old, &new);
        }
    }
}

impl Segment {
    /// A row changed once more.
    fn add(&mut self, key: (TableIdx, Uuid), old: &Option<Row>, new: &Option<Row>) {
        let before = self.rows.remove(&key);
        if let Some((old, new)) = &before {
            self.bytes -= bytes_of(old, new);
        }
        let versions = (before.map_or_else(|| old.clone(), |(old, _)| old), new.clone());
        // What came and went meanwhile need not be told.
        if versions != (None, None) {
            self.bytes += bytes_of(&versions.0, &versions.1);
            self.rows.insert(key, versions);
        }
    }
}

/// The memory that is kept for a change alone.
fn bytes_of(old: &Option<Row>, new: &Option<Row>) -> usize {
    let kept = match (old, new) {
        (None, _) => 0,
        (Some(old), None) => old.heap_bytes(),
        (Some(old), Some(new)) => {
            let columns = old.changed_columns(new).map(|column| old.get(column).heap_bytes());
            size_of_val(old.columns()) + columns.sum::<usize>()
        }
    };
    CHANGE_BYTES + kept
}

fn merge(
    net: &mut BTreeMap<(TableIdx, Uuid), Versions>,
    key: (TableIdx, Uuid),
    old: &Option<Row>,
    new: &Option<Row>,
) {
    net.entry(key).or_insert_with(|| (old.clone(), None)).1 = new.clone();
}

impl Net {
    /// How many rows it may be about.
    pub fn row_count(&self) -> usize {
        match self {
            Net::One(changes) => changes.len(),
            Net::Many(rows) => rows.len(),
        }
    }

    /// Calls `f` for each row that changed, by table and UUID, with its old and its new version.
    pub fn for_each(&self, mut f: impl FnMut(TableIdx, Uuid, Option<&Row>, Option<&Row>)) {
        match self {
            Net::One(changes) => {
                changes.iter().for_each(|c| f(c.table, c.uuid, c.old.as_ref(), c.new.as_ref()));
            }
            Net::Many(rows) => {
                rows.iter()
                    .for_each(|((table, uuid), (old, new))| f(*table, *uuid, old.as_ref(), new.as_ref()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnIdx, Database, Datum, Schema, UuidGenerator};
    use serde_json::json;

    struct Rig {
        database: Database,
        ids: UuidGenerator,
        history: History,
        /// The state at each position.
        states: Vec<BTreeMap<Uuid, Row>>,
        txns: Vec<Uuid>,
    }

    const TABLE: TableIdx = TableIdx(0);

    impl Rig {
        fn new() -> Rig {
            let schema = json!({"name": "D", "version": "1.0.0",
                "tables": {"T": {"columns": {"i": {"type": "integer"}, "s": {"type": "string"}}}}});
            let database = Database::new(Schema::from_json(&schema).unwrap());
            let mut ids = UuidGenerator::from_seed(7);
            let first = ids.next_uuid();
            let mut history = History::new(first);
            history.keep();
            Rig { database, ids, history, states: vec![BTreeMap::new()], txns: vec![first] }
        }

        /// A commit that inserts, changes or deletes one row.
        fn step(&mut self) {
            let rows: Vec<Row> = self.database.rows(TABLE).cloned().collect();
            let choice = self.ids.next_u64() as usize;
            let mut transaction = self.database.begin();
            if rows.len() < 5 || choice.is_multiple_of(3) {
                let row = transaction.new_row(TABLE, self.ids.next_uuid());
                transaction.insert(TABLE, row).unwrap();
            } else {
                let mut row = rows[choice % rows.len()].clone();
                if choice % 3 == 1 {
                    transaction.delete(TABLE, row.uuid());
                } else {
                    let old = row.get(ColumnIdx::FIRST).as_integer().unwrap();
                    row.set(ColumnIdx::FIRST, Datum::scalar(old + 1));
                    transaction.replace(TABLE, row);
                }
            }
            let changes = transaction.commit(&mut self.ids).unwrap();
            let txn = self.ids.next_uuid();
            self.history.commit(txn, Arc::new(changes));
            self.txns.push(txn);
            self.states.push(self.database.rows(TABLE).map(|r| (r.uuid(), r.clone())).collect());
        }

        #[track_caller]
        fn check(&self, position: Position) {
            let mut state = self.states[position as usize].clone();
            self.history.since(position).for_each(|_, uuid, old, new| {
                assert_eq!(state.get(&uuid), old);
                match new {
                    Some(row) => state.insert(uuid, row.clone()),
                    None => state.remove(&uuid),
                };
            });
            assert!(&state == self.states.last().unwrap(), "from {position} to {}", self.history.now());
        }
    }

    #[test]
    fn what_changed_since_any_position_leads_to_now() {
        let mut rig = Rig::new();
        let mut standing = vec![0, 0];
        rig.history.enter(0);
        rig.history.enter(0);
        for step in 0..4_000_u64 {
            rig.step();
            let now = rig.history.now();
            match step % 97 {
                0 => {
                    standing.push(now);
                    rig.history.enter(now);
                }
                1 | 2 => {
                    let at = rig.ids.next_u64() as usize % standing.len();
                    let position = standing.swap_remove(at);
                    rig.check(position);
                    rig.history.leave(position);
                    standing.push(now);
                    rig.history.enter(now);
                }
                _ => {}
            }
            if step % 500 == 0 {
                standing.iter().for_each(|&position| rig.check(position));
            }
        }
        assert!(!rig.history.segments.is_empty());
        standing.iter().for_each(|&position| rig.check(position));
        for position in standing {
            rig.history.leave(position);
        }
        assert!(rig.history.segments.is_empty(), "nobody is behind");
    }

    #[test]
    fn a_client_comes_back_to_what_it_had_as_long_as_that_is_known() {
        let mut rig = Rig::new();
        (0..10).for_each(|_| rig.step());
        for (position, txn) in rig.txns.iter().enumerate() {
            assert_eq!(rig.history.find(*txn), Some(position as Position));
            rig.check(position as Position);
        }
        (0..COMMITS_MAX).for_each(|_| rig.step());
        assert_eq!(rig.history.find(rig.txns[0]), None);
        assert_eq!(rig.history.find(rig.txns[9]), None);
        assert_eq!(rig.history.find(rig.txns[11]), Some(11));
        assert_eq!(rig.history.find(Uuid::ZERO), None);
    }

    /// A row with this text, in place of what the table had.
    fn put(rig: &mut Rig, text: &str) {
        let rows: Vec<Uuid> = rig.database.rows(TABLE).map(Row::uuid).collect();
        let mut transaction = rig.database.begin();
        rows.into_iter().for_each(|row| assert!(transaction.delete(TABLE, row)));
        let mut row = transaction.new_row(TABLE, rig.ids.next_uuid());
        let column = transaction.database().schema().table(TABLE).find("s").unwrap();
        row.set(column, Datum::scalar(text));
        transaction.insert(TABLE, row).unwrap();
        let changes = transaction.commit(&mut rig.ids).unwrap();
        rig.history.commit(rig.ids.next_uuid(), Arc::new(changes));
    }

    #[test]
    fn long_values_are_kept_up_to_a_bound() {
        let mut rig = Rig::new();
        let text = "x".repeat(1 << 20);
        (0..200).for_each(|_| put(&mut rig, &text));
        let kept = rig.history.commits.len();
        assert!((2..64).contains(&kept), "{kept}");
        // A client that is behind costs the first version of what it knows, and another one as much again.
        rig.history.enter(200);
        (0..200).for_each(|_| put(&mut rig, &text));
        let segments = &rig.history.segments;
        assert!(segments.iter().all(|s| s.rows.len() <= 2), "what came and went is forgotten");
        assert_eq!(rig.history.too_far_behind(), None);
        for position in 400..800 {
            rig.history.enter(position);
            put(&mut rig, &text);
        }
        assert_eq!(rig.history.too_far_behind(), Some(200));
        (400..800).for_each(|position| rig.history.leave(position));
        rig.history.leave(200);
        assert!(rig.history.segments.is_empty());
    }

    #[test]
    fn commits_are_not_kept_that_nobody_may_ask_for() {
        let mut rig = Rig::new();
        rig.history = History::new(rig.txns[0]);
        (0..10).for_each(|_| rig.step());
        assert!(rig.history.commits.is_empty());
        assert_eq!(rig.history.find(rig.txns[10]), Some(10), "the present state is known");
        rig.history.enter(10);
        (0..5).for_each(|_| rig.step());
        rig.check(10);
        rig.history.enter(15);
        rig.history.leave(10);
        assert!(rig.history.commits.is_empty());
        rig.history.keep();
        (0..5).for_each(|_| rig.step());
        rig.history.leave(15);
        rig.check(16);
        assert_eq!(rig.history.find(rig.txns[16]), Some(16));
        assert_eq!(rig.history.find(rig.txns[0]), None);
    }
}

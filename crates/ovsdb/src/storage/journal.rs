//! Tracks which commits are in the file and which of them survive a power cut, and replaces the file by a
//! smaller one while commits continue. Here a commit is just a number and bytes.
//!
//! What takes long (a sync, a snapshot) is a [`Job`] that runs elsewhere; everything else happens at once. At
//! most two jobs are running: a sync, and a step of a replacement. The rules that make it correct:
//!
//! 1. A commit is in the file when `append` returns, completely or not at all
//!    ([`Writer`](crate::log::Writer)).
//! 2. A commit is durable when a sync of a file that contains it, started after it was written, has
//!    succeeded, and that file has the database's name for certain (its directory was synced after the
//!    replacement).
//! 3. A replacement takes over only when its file, synced, contains every commit that is durable already;
//!    what was committed since its snapshot is kept aside and appended to it. So that this ends, no sync of
//!    the old file starts during the last step, and commits of that time cannot become durable there.
//! 4. After a sync has failed, later syncs of the old file prove nothing (Linux reports a lost page once).
//!    Only a replacement, written from memory, makes commits durable again: it is started at once, and those
//!    who wait for durability learn of the failure only if that fails too. A file written by another process
//!    is treated the same way, since its syncs may have failed: the first commit that must be durable has it
//!    replaced.
//! 5. A commit that failed is not in the file after a power cut either: the writer syncs its cut. If it
//!    cannot, the file is replaced, whether or not a client waits for durability.

use crate::log::{LogDirectory, LogFile, Temporary, Writer, frame};
use std::collections::VecDeque;
use std::sync::Arc;
use std::{fmt, io};

/// When a file is replaced by a compacted one, as ovsdb-server(1) says under `ovsdb-server/compact`, and a
/// bound.
const COMPACT_BYTES_MIN: u64 = 10 << 20;
const COMPACT_GROWTH: u64 = 2;
const COMPACT_COMMITS_MIN: u64 = 100;
const COMPACT_INTERVAL_MIN_MS: u64 = 10 * 60 * 1000;
const COMPACT_INTERVAL_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// A file that grew to this, and tenfold, does not wait for [`COMPACT_INTERVAL_MIN_MS`].
const COMPACT_BYTES_URGENT: u64 = 256 << 20;

/// Commits during a replacement wait in memory; if they exceed this, the replacement is given up and tried
/// again later.
const TAIL_BYTES_MAX: usize = 256 << 20;
/// So much may be left to write when a replacement takes over, which the control thread does itself.
const TAIL_BYTES_SMALL: usize = 256 << 10;
/// After this many steps it takes over whatever is left.
const CATCH_UPS_MAX: u32 = 4;
/// How long the next automatic replacement waits after a failed one.
const RETRY_INTERVAL_MS: u64 = 60 * 1000;

/// The same after another commit has failed: it shows that somebody needs the file.
const RETRY_FAILED_MS: u64 = 1_000;

/// The bodies of a compacted file, one call of the argument for each. Runs on another thread.
pub type Snapshot = Box<dyn FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> + Send>;

/// The number of a commit. What the file held when it was opened counts as commit 1, which was read and need
/// not be on the disk: the process that wrote it may have ended before a sync. The next one is 2; 0 is none.
pub type CommitNo = u64;

/// What a file's size is compared with to decide whether it has grown too much.
#[derive(Clone, Copy, Debug, Default)]
pub struct Base {
    /// Its size when it was compacted last.
    pub bytes: u64,
    /// Commits since.
    pub commits: u64,
}

/// An event of a journal, for those who wait for it.
#[derive(Debug)]
pub enum Event {
    /// Every commit up to this survives a power cut.
    Durable(CommitNo),
    /// These commits, up to this one and unless they are durable already, cannot be made durable. They are in
    /// the file and in force.
    NotDurable {
        /// The last of them.
        upto: CommitNo,
        /// Why.
        error: io::Error,
    },
    /// The file was replaced.
    Compacted {
        /// Its size before, in bytes.
        before: u64,
        /// Its size now.
        after: u64,
    },
    /// The file could not be replaced, and is unchanged.
    NotCompacted {
        /// Why.
        error: io::Error,
    },
}

/// See the [module](self).
pub struct Journal {
    directory: Arc<dyn LogDirectory>,
    writer: Writer,
    committed: CommitNo,
    durable: CommitNo,
    /// The highest commit for which durability is requested.
    wanted: CommitNo,
    /// A sync is out that covers commits up to here.
    syncing: Option<CommitNo>,
    /// The file has the database's name, but the directory was not synced since.
    directory_dirty: bool,
    /// A sync of this file failed, or may have in the life of another process.
    distrusted: bool,
    /// Whether a power cut may bring failed commits back: rule 5.
    failed: Failed,
    /// A commit has failed since the last attempt to replace the file.
    failed_again: bool,
    /// The current replacement, or the last one until it is durable, was started for requests for durability.
    heals: bool,
    /// The next step of the replacement.
    step: Option<Work>,
    /// Jobs of an earlier epoch mean nothing any more.
    epoch: u64,
    compaction: Compaction,
    compact_asked: bool,
    policy: Policy,
    events: VecDeque<Event>,
    /// Replaced files: freeing a large one takes time, so a job does it.
    retired: Vec<Arc<dyn LogFile>>,
}

/// What a power cut does to commits that were reported as failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// They are gone.
    Gone,
    /// They are gone if the next sync that returns was successful.
    GoneIfSynced,
    /// They may come back: the file must be replaced.
    MayComeBack,
}

enum Compaction {
    Idle,
    /// A job writes the snapshot into a new file.
    Writing {
        tail: Vec<u8>,
    },
    /// A job writes what was committed meanwhile behind it.
    CatchingUp {
        tail: Vec<u8>,
        rounds: u32,
    },
    /// The new file, synced to `file.size`, waits for a sync of the old one to come back.
    Ready {
        file: NewFile,
        tail: Vec<u8>,
    },
}

/// When to compact by itself.
struct Policy {
    /// Size of the file when it was opened or compacted last.
    base_bytes: u64,
    commits: u64,
    since_ms: u64,
    retry_after_ms: u64,
    /// The same if a commit has failed since.
    retry_failed_after_ms: u64,
}

/// A file that will replace the database's.
struct NewFile {
    temporary: Box<dyn Temporary>,
    size: u64,
}

/// Work that may take long. Run it on any thread, and hand the result to [`Journal::handle_done`].
pub struct Job {
    epoch: u64,
    work: Work,
}

enum Work {
    Sync { file: Arc<dyn LogFile>, directory: Option<Arc<dyn LogDirectory>>, retired: Vec<Arc<dyn LogFile>> },
    Write { directory: Arc<dyn LogDirectory>, snapshot: Snapshot },
    CatchUp { file: NewFile, tail: Vec<u8> },
}

/// The result of a [`Job`].
pub struct Done {
    epoch: u64,
    outcome: Outcome,
}

enum Outcome {
    Synced(io::Result<()>),
    Written(io::Result<NewFile>),
}

impl Job {
    /// Does it. Blocks as long as the disk takes.
    pub fn run(self) -> Done {
        let outcome = match self.work {
            Work::Sync { file, directory, retired } => {
                drop(retired);
                let synced = file.sync();
                Outcome::Synced(synced.and_then(|()| directory.map_or(Ok(()), |directory| directory.sync())))
            }
            Work::Write { directory, snapshot } => Outcome::Written(write_snapshot(&*directory, snapshot)),
            Work::CatchUp { mut file, tail } => Outcome::Written(file.append_synced(&tail).map(|()| file)),
        };
        Done { epoch: self.epoch, outcome }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.work {
            Work::Sync { .. } => "Sync",
            Work::Write { .. } => "Write",
            Work::CatchUp { .. } => "CatchUp",
        })
    }
}

fn write_snapshot(directory: &dyn LogDirectory, snapshot: Snapshot) -> io::Result<NewFile> {
    let mut new = NewFile { temporary: directory.create_temporary()?, size: 0 };
    snapshot(&mut |body| {
        // Two writes, so that a body as large as the database is not copied.
        new.append(frame::Header::of(frame::Magic::Standalone, body).as_bytes())?;
        new.append(body)
    })?;
    new.temporary.file().sync()?;
    Ok(new)
}

impl NewFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        crate::log::write_all(&**self.temporary.file(), self.size, bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    fn replace(self) -> io::Result<Writer> {
        let file = Arc::clone(self.temporary.file());
        self.temporary.replace()?;
        Ok(Writer::new(file, self.size, false))
    }

    fn append_synced(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.append(bytes)?;
        self.temporary.file().sync()
    }
}

impl Policy {
    fn new(base_bytes: u64, since_ms: u64) -> Policy {
        Policy { base_bytes, commits: 0, since_ms, retry_after_ms: 0, retry_failed_after_ms: 0 }
    }
}

impl Journal {
    /// For a file that was read up to `writer`'s end, at `now_ms` on any monotonic clock. `base` is the
    /// estimated size after a compaction: that of its schema and its first record.
    pub fn new(directory: Arc<dyn LogDirectory>, writer: Writer, base: Base, now_ms: u64) -> Journal {
        let Base { bytes: base_bytes, commits } = base;
        Journal {
            directory,
            writer,
            committed: 1,
            durable: 0,
            wanted: 0,
            syncing: None,
            directory_dirty: true,
            distrusted: true,
            failed: Failed::Gone,
            failed_again: false,
            heals: false,
            step: None,
            epoch: 0,
            compaction: Compaction::Idle,
            compact_asked: false,
            policy: Policy { commits, ..Policy::new(base_bytes, now_ms) },
            events: VecDeque::new(),
            retired: Vec::new(),
        }
    }

    /// Appends a commit: `body` is JSON with its newline. It survives the process when this returns.
    ///
    /// # Errors
    /// Those of the system. The commit is not in the file, and the next one may succeed.
    pub fn append(&mut self, body: &[u8]) -> io::Result<CommitNo> {
        self.append_framed(&frame::record(frame::Magic::Standalone, body), 1)
    }

    /// Appends `count` commits, whose records these are, by one write; the number of the last one.
    ///
    /// # Errors
    /// Those of the system. None of them is in the file, and the next one may succeed.
    pub fn append_framed(&mut self, records: &[u8], count: u64) -> io::Result<CommitNo> {
        if let Err(error) = self.writer.append_framed(records) {
            self.handle_failed_commit();
            return Err(error);
        }
        self.committed += count;
        self.policy.commits += count;
        if let Compaction::Writing { tail }
        | Compaction::CatchingUp { tail, .. }
        | Compaction::Ready { tail, .. } = &mut self.compaction
        {
            tail.extend_from_slice(records);
        }
        Ok(self.committed)
    }

    fn handle_failed_commit(&mut self) {
        if self.writer.may_come_back() {
            // The running sync may make durable what could not be cut off, and the writer's own sync may have
            // received the error intended for it, which is reported only once.
            self.failed = Failed::MayComeBack;
            self.failed_again = true;
            self.distrusted = true;
        } else if self.syncing.is_some() && self.failed == Failed::Gone {
            // The other way round.
            self.failed = Failed::GoneIfSynced;
        }
    }

    /// Requests that commits up to `number` be made durable. An [`Event`] reports success or failure; none
    /// comes if [`durable`](Self::durable) has reached `number` already.
    pub fn want_durable(&mut self, number: CommitNo) {
        self.wanted = self.wanted.max(number.min(self.committed));
    }

    /// Every commit up to this survives a power cut.
    pub fn durable(&self) -> CommitNo {
        self.durable
    }

    /// The number of the last commit.
    pub fn committed(&self) -> CommitNo {
        self.committed
    }

    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.writer.size()
    }

    /// Requests a compaction. One in progress already counts.
    pub fn compact(&mut self) {
        self.compact_asked = true;
    }

    /// Whether a compaction is in progress or requested.
    pub fn is_compacting(&self) -> bool {
        self.compact_asked || !matches!(self.compaction, Compaction::Idle)
    }

    /// Whether the next [`poll_job`](Self::poll_job) would take a snapshot because failed commits may come
    /// back.
    fn is_doubtful(&self, now_ms: u64) -> bool {
        let Policy { retry_after_ms, retry_failed_after_ms, .. } = self.policy;
        let after_ms = if self.failed_again { retry_failed_after_ms } else { retry_after_ms };
        self.failed == Failed::MayComeBack && now_ms >= after_ms
    }

    /// Whether the next [`poll_job`](Self::poll_job) would take a snapshot because the file has grown enough.
    fn is_overgrown(&self, now_ms: u64) -> bool {
        let policy = &self.policy;
        let size = self.writer.size();
        let elapsed_ms = now_ms.saturating_sub(policy.since_ms);
        if policy.commits < COMPACT_COMMITS_MIN || now_ms < policy.retry_after_ms {
            return false;
        }
        let grew = |factor: u64| size / factor > policy.base_bytes;
        if elapsed_ms < COMPACT_INTERVAL_MIN_MS {
            return size > COMPACT_BYTES_URGENT && grew(10);
        }
        elapsed_ms >= COMPACT_INTERVAL_MAX_MS || (size > COMPACT_BYTES_MIN && grew(COMPACT_GROWTH))
    }

    /// The next job, if there is one. `snapshot` is called when a compaction starts, and must contain exactly
    /// the commits so far.
    pub fn poll_job(&mut self, now_ms: u64, snapshot: impl FnOnce() -> Snapshot) -> Option<Job> {
        if let Some(work) = self.step.take().or_else(|| self.sync_work()) {
            return Some(Job { epoch: self.epoch, work });
        }
        if !matches!(self.compaction, Compaction::Idle) {
            return None;
        }
        let heals = self.distrusted && self.wanted > self.durable;
        if !heals && !self.compact_asked && !self.is_doubtful(now_ms) && !self.is_overgrown(now_ms) {
            return None;
        }
        self.compact_asked = false;
        self.heals |= heals;
        self.compaction = Compaction::Writing { tail: Vec::new() };
        let work = Work::Write { directory: Arc::clone(&self.directory), snapshot: snapshot() };
        Some(Job { epoch: self.epoch, work })
    }

    fn sync_work(&mut self) -> Option<Work> {
        // During the last step of a replacement: rule 3. For a distrusted file: rule 4.
        let held = matches!(self.compaction, Compaction::CatchingUp { .. } | Compaction::Ready { .. });
        if held || self.distrusted || self.syncing.is_some() {
            return None;
        }
        if self.wanted <= self.durable && self.retired.is_empty() {
            return None;
        }
        self.syncing = Some(self.committed);
        Some(Work::Sync {
            file: Arc::clone(self.writer.file()),
            directory: self.directory_dirty.then(|| Arc::clone(&self.directory)),
            retired: std::mem::take(&mut self.retired),
        })
    }

    /// Takes the result of a job. May produce [events](Self::poll_event) and another job.
    pub fn handle_done(&mut self, now_ms: u64, done: Done) {
        if done.epoch != self.epoch {
            return;
        }
        match done.outcome {
            Outcome::Synced(result) => {
                self.handle_synced(now_ms, result);
                self.take_over_if_ready(now_ms);
            }
            Outcome::Written(Ok(file)) => self.handle_written(now_ms, file),
            Outcome::Written(Err(error)) => self.give_up(now_ms, error),
        }
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn handle_synced(&mut self, now_ms: u64, result: io::Result<()>) {
        let upto = self.syncing.take().expect("a sync was out");
        // Distrusted since it started: a commit failed.
        let result = match result {
            Ok(()) if self.distrusted => Err(io::Error::other("cannot truncate the rest of a failed write")),
            result => result,
        };
        match result {
            Ok(()) => {
                self.failed = Failed::Gone;
                self.directory_dirty = false;
                self.heals = false;
                self.durable = self.durable.max(upto);
                self.events.push_back(Event::Durable(self.durable));
            }
            Err(error) => {
                self.distrust(now_ms);
                // The next poll starts a replacement, unless one is in progress. But if this was the sync of
                // one started for that purpose, the disk has failed for good.
                if self.heals && matches!(self.compaction, Compaction::Idle) {
                    self.fail_waiting(error);
                }
            }
        }
    }

    /// A step of the replacement is done: another one, or the end.
    fn handle_written(&mut self, now_ms: u64, file: NewFile) {
        let (tail, rounds) = match std::mem::replace(&mut self.compaction, Compaction::Idle) {
            Compaction::Writing { tail } => (tail, 0),
            Compaction::CatchingUp { tail, rounds } => (tail, rounds),
            Compaction::Idle | Compaction::Ready { .. } => unreachable!("a step of a replacement was out"),
        };
        if tail.len() > TAIL_BYTES_MAX {
            let error = io::Error::other("too much was committed while it was written");
            self.give_up(now_ms, error);
            return;
        }
        // At least one round, so that nothing of what became durable during the snapshot is missing.
        if rounds == 0 || (tail.len() > TAIL_BYTES_SMALL && rounds < CATCH_UPS_MAX) {
            self.compaction = Compaction::CatchingUp { tail: Vec::new(), rounds: rounds + 1 };
            self.step = Some(Work::CatchUp { file, tail });
            return;
        }
        self.compaction = Compaction::Ready { file, tail };
        self.take_over_if_ready(now_ms);
    }

    /// Makes the new file the database's, unless a sync of the old one is out, after which this is called
    /// again.
    fn take_over_if_ready(&mut self, now_ms: u64) {
        if self.syncing.is_some() || !matches!(self.compaction, Compaction::Ready { .. }) {
            return;
        }
        let Compaction::Ready { mut file, tail } = std::mem::replace(&mut self.compaction, Compaction::Idle)
        else {
            unreachable!("looked at just above");
        };
        match file.append(&tail).and_then(|()| file.replace()) {
            Ok(writer) => self.take_over(now_ms, writer),
            Err(error) => self.give_up(now_ms, error),
        }
    }

    /// The file is now the one of `writer`.
    fn take_over(&mut self, now_ms: u64, writer: Writer) {
        let before = self.writer.size();
        let after = writer.size();
        let old = std::mem::replace(&mut self.writer, writer);
        self.retired.push(Arc::clone(old.file()));
        self.directory_dirty = true;
        self.distrusted = false;
        if self.failed == Failed::MayComeBack {
            // A power cut may bring back the old file until the directory is synced.
            self.failed = Failed::GoneIfSynced;
        }
        self.policy = Policy::new(after, now_ms);
        self.events.push_back(Event::Compacted { before, after });
    }

    /// Replaces the file by `snapshot`, possibly with another schema, before it returns. Blocks as long as
    /// the disk takes; running jobs continue, and their results are ignored. Afterwards all commits are
    /// durable, unless the last step fails, the sync of the directory.
    ///
    /// # Errors
    /// Those of the system; the file is unchanged.
    pub fn rewrite(&mut self, now_ms: u64, snapshot: Snapshot) -> io::Result<()> {
        let writer = write_snapshot(&*self.directory, snapshot)?.replace()?;
        self.epoch += 1;
        self.step = None;
        self.syncing = None;
        self.compaction = Compaction::Idle;
        self.take_over(now_ms, writer);
        match self.directory.sync() {
            Ok(()) => {
                self.failed = Failed::Gone;
                self.directory_dirty = false;
                self.durable = self.committed;
                self.events.push_back(Event::Durable(self.durable));
            }
            Err(_) => self.distrust(now_ms),
        }
        Ok(())
    }

    /// A sync of the file or of its directory failed.
    fn distrust(&mut self, now_ms: u64) {
        self.distrusted = true;
        if self.failed == Failed::GoneIfSynced {
            self.failed = Failed::MayComeBack;
            // If replacing does not help, it is not retried at once.
            self.retry_later(now_ms);
        }
    }

    fn retry_later(&mut self, now_ms: u64) {
        self.policy.retry_after_ms = now_ms + RETRY_INTERVAL_MS;
        self.policy.retry_failed_after_ms = now_ms + RETRY_FAILED_MS;
        self.failed_again = false;
    }

    /// The replacement failed: the file stays.
    fn give_up(&mut self, now_ms: u64, error: io::Error) {
        self.compaction = Compaction::Idle;
        self.retry_later(now_ms);
        if self.distrusted {
            self.fail_waiting(io::Error::new(error.kind(), error.to_string()));
        }
        self.events.push_back(Event::NotCompacted { error });
    }

    /// Requests for durability have failed.
    fn fail_waiting(&mut self, error: io::Error) {
        if self.wanted > self.durable {
            self.events.push_back(Event::NotDurable { upto: self.wanted, error });
        }
        self.wanted = self.durable;
        self.heals = false;
    }
}

//! A database in a file, which is read when it is opened; every transaction is appended before it is
//! answered.
//!
//! What an embedding server does, in order:
//!
//! 1. [`Storage::open`] reads the file and returns the [`Database`].
//! 2. For each transaction: [`Database::execute`], then [`Storage::commit`] with its changes. If that fails,
//!    nothing is in the file, and [`Database::revert`] undoes the changes: the client gets the [`io_error`].
//!    Otherwise the transaction survives the process, and the client is answered; or, if it asked for
//!    `durable`, [`Storage::want_durable`], and the answer waits for an [`Event`] that covers its number.
//! 3. After each round of requests: [`Storage::poll_job`] until there is none. A [`Job`] blocks, so it runs
//!    on another thread; its result goes to [`Storage::handle_done`]. Then [`Storage::poll_event`].
//!
//! Nothing else blocks for longer than a write into the system's cache takes. Many transactions share a sync:
//! those that arrive during one wait for the next. Compaction, requested by [`Storage::compact`] or due
//! because the file has grown, also consists of jobs.
//!
//! The [`LogDirectory`]'s implementation must lock the file against other processes.

pub mod journal;

pub use journal::{CommitNo, Done, Event, Job};

use crate::changes::Changes;
use crate::database::{Database, Snapshot};
use crate::error::Error;
use crate::log::frame;
use crate::log::transaction::{self, Note, Values};
use crate::log::{Damage, Found, LogDirectory, Magic, ReadAt, ReadError, Reader, Writer};
use crate::schema::Schema;
use crate::uuid::UuidGenerator;
use base::os_text;
use journal::{Base, Journal};
use std::sync::Arc;
use std::{fmt, io};

/// The `_comment` of the record that a compaction by a server writes.
const COMPACTION_COMMENT: &str = "compacting database online";
/// And of one that a conversion writes.
const CONVERSION_COMMENT: &str = "converted by ovsdb-server";

/// The file of a database that is being served. See the [module](self).
pub struct Storage {
    schema: Arc<Schema>,
    journal: Journal,
    /// The records of a commit. Kept between commits for its memory.
    records: Vec<u8>,
    values: Values,
}

/// A buffer that grew beyond this is given back.
const BUFFER_BYTES_KEPT: usize = 64 << 10;

/// The result of [`Storage::open`].
pub struct Opened {
    /// The file.
    pub storage: Storage,
    /// The contents of the file.
    pub database: Database,
    /// The torn end that was cut off, for a warning.
    pub cut: Option<Cut>,
}

/// The torn end of a file: a write that was interrupted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The damage, and where it starts.
    pub damage: Damage,
    /// Bytes from there to the end of the file.
    pub bytes: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; the last {} bytes, from offset {} on, are an interrupted write and were cut off",
            self.damage, self.bytes, self.damage.offset
        )
    }
}

/// The result of [`read`].
pub struct Contents {
    /// The contents of the file.
    pub database: Database,
    /// Bytes of good records.
    pub size: u64,
    /// The torn end behind the records.
    pub cut: Option<Cut>,
    base: Base,
}

/// Why a file cannot be opened as a database. Its `Display` does not name the file: the stock programs write
/// `KIND: FILE: TEXT`, with [`kind`](OpenError::kind).
#[derive(Debug)]
pub enum OpenError {
    /// The system says no.
    Io {
        /// The operation: "open failed", "error reading at offset 17".
        what: String,
        /// Why not.
        error: io::Error,
    },
    /// It is empty.
    Empty,
    /// It does not start like a database.
    NotOvsdb,
    /// It belongs to a cluster.
    Clustered,
    /// A record is damaged, and there are whole ones behind it.
    Corrupt {
        /// What is wrong, and where.
        damage: Damage,
        /// The presumed position of the next complete record.
        next: u64,
    },
    /// A record is whole and makes no sense.
    Record {
        /// Its position.
        offset: u64,
        /// Which record; 0 is the schema.
        index: u64,
        /// Why.
        error: Error,
    },
}

impl OpenError {
    /// The prefix of the file's name in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            OpenError::Io { .. } => "I/O error",
            OpenError::Empty | OpenError::NotOvsdb | OpenError::Clustered => "ovsdb error",
            OpenError::Corrupt { .. } | OpenError::Record { .. } => "syntax error",
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io { what, error } => write!(f, "{what} ({})", os_text(error)),
            OpenError::Empty => f.write_str("cannot identify file type"),
            OpenError::NotOvsdb => f.write_str("unexpected file format"),
            OpenError::Clustered => f.write_str(
                "cannot apply this operation to clustered database file (clusters are not supported)",
            ),
            OpenError::Corrupt { damage, next } => write!(
                f,
                "{damage}; a whole record follows at offset {next}, so this is not an interrupted write: restore a \
                 backup, or cut a copy of the file off at offset {} and lose what follows",
                damage.offset
            ),
            OpenError::Record { offset, index, error } => {
                write!(f, "record {index} at offset {offset}: {error}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// The error for a client whose transaction could not be written, or made durable.
pub fn io_error(error: &io::Error) -> Error {
    Error::new("I/O error", os_text(error))
}

/// Reads a database without changing the file, which another process may be writing.
///
/// # Errors
/// What makes it unreadable; a torn end does not.
pub fn read(file: &dyn ReadAt, ids: &mut UuidGenerator) -> Result<Contents, OpenError> {
    let mut reader = open_reader(file)?;
    let mut database = Database::new(first_record(&mut reader)?);
    let mut records = 0;
    let mut base = Base { bytes: reader.offset(), commits: 0 };
    let cut =
        loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    let offset = record.offset;
                    transaction::apply(&mut database, record.body, ids)
                        .map_err(|error| OpenError::Record { offset, index: records + 1, error })?;
                }
                Ok(None) => break None,
                Err(ReadError::Io { offset, error }) => return Err(reading(offset, error)),
                Err(ReadError::Damaged(damage)) => break Some(torn(&mut reader, damage)?),
            }
            records += 1;
            if records == 1 {
                base.bytes = reader.offset();
            }
            base.commits = records - 1;
        };
    Ok(Contents { database, size: reader.offset(), cut, base })
}

/// Reads the schema of a database, which is its first record.
///
/// # Errors
/// Those of [`read`]; what follows the first record is not examined.
pub fn read_schema(file: &dyn ReadAt) -> Result<Schema, OpenError> {
    let mut reader = open_reader(file)?;
    first_record(&mut reader)
}

fn open_reader(file: &dyn ReadAt) -> Result<Reader<'_>, OpenError> {
    let reader =
        Reader::new(file).map_err(|error| OpenError::Io { what: "open failed".to_owned(), error })?;
    if reader.size() == 0 { Err(OpenError::Empty) } else { Ok(reader) }
}

fn first_record(reader: &mut Reader<'_>) -> Result<Schema, OpenError> {
    let record = match reader.next_record() {
        Ok(Some(record)) => record,
        Ok(None) => return Err(OpenError::Empty),
        Err(error) => return Err(first_record_error(error)),
    };
    if record.magic == Magic::Clustered {
        return Err(OpenError::Clustered);
    }
    let wrong = |error| OpenError::Record { offset: 0, index: 0, error };
    let json = serde_json::from_slice(record.body)
        .map_err(|error| wrong(Error::new("syntax error", error.to_string())))?;
    Schema::from_json(&json).map_err(wrong)
}

/// Without a first record a file is no database, torn or not.
fn first_record_error(error: ReadError) -> OpenError {
    match error {
        ReadError::Damaged(Damage { kind: crate::log::DamageKind::Header { .. }, .. }) => OpenError::NotOvsdb,
        ReadError::Damaged(damage) => {
            OpenError::Record { offset: 0, index: 0, error: Error::new("syntax error", damage.to_string()) }
        }
        ReadError::Io { offset, error } => reading(offset, error),
    }
}

fn reading(offset: u64, error: io::Error) -> OpenError {
    OpenError::Io { what: format!("error reading at offset {offset}"), error }
}

/// A damaged record as the end of the file, if it is.
fn torn(reader: &mut Reader<'_>, damage: Damage) -> Result<Cut, OpenError> {
    match reader.record_behind().map_err(|error| reading(damage.offset, error))? {
        Found::Nothing => Ok(Cut { bytes: reader.size() - damage.offset, damage }),
        Found::Record(next) | Found::Confusion(next) => Err(OpenError::Corrupt { damage, next }),
    }
}

/// The bodies of the records of a new file: the schema, and the contents of `snapshot` if it has that schema
/// and is not empty.
pub fn bodies(snapshot: &Snapshot, note: Note<'_>) -> [Vec<u8>; 2] {
    [transaction::encode_schema(snapshot.schema()), transaction::encode_snapshot(snapshot, note)]
}

impl Storage {
    /// Reads the file and cuts a torn end off. `now_ms` is on any clock that does not go back.
    ///
    /// # Errors
    /// See [`OpenError`]; the file is unchanged.
    pub fn open(
        directory: Arc<dyn LogDirectory>,
        ids: &mut UuidGenerator,
        now_ms: u64,
    ) -> Result<Opened, OpenError> {
        let io = |what: &str| {
            let what = what.to_owned();
            move |error| OpenError::Io { what, error }
        };
        let file = directory.open().map_err(io("open failed"))?;
        let reading = Arc::clone(&file);
        let Contents { database, size, cut, base } = read(&*reading, ids)?;
        let mut writer = Writer::new(file, size, cut.is_some());
        writer.mend().map_err(io("cutting off an interrupted write failed"))?;
        let schema = Arc::clone(database.schema());
        let journal = Journal::new(directory, writer, base, now_ms);
        let storage = Storage { schema, journal, records: Vec::new(), values: Values::default() };
        Ok(Opened { storage, database, cut })
    }

    /// From now on, rows that change are written with whole values: a file that is compacted first can then
    /// be read by Open vSwitch before 2.16.
    pub fn write_whole_values(&mut self) {
        self.values = Values::Whole;
    }

    /// Appends a transaction. It survives the process when this returns. One that changed nothing that is
    /// kept gets the number of the last one.
    ///
    /// # Errors
    /// Those of the system. The transaction is not in the file: [`Database::revert`] it, and tell the client
    /// the [`io_error`]. The next one may succeed.
    pub fn commit(&mut self, changes: &Changes, note: Note<'_>) -> io::Result<CommitNo> {
        self.commit_all([(changes, note)])
    }

    /// Appends transactions in their order by one write: all or none. Returns the number of the last one.
    ///
    /// # Errors
    /// As for [`Storage::commit`], for all of them.
    pub fn commit_all<'a>(
        &mut self,
        transactions: impl IntoIterator<Item = (&'a Changes, Note<'a>)>,
    ) -> io::Result<CommitNo> {
        self.records.clear();
        let mut count = 0;
        for (changes, note) in transactions {
            let is_written = frame::write_record(&mut self.records, Magic::Standalone, |out| {
                transaction::encode(out, &self.schema, changes, note, self.values)
            });
            count += u64::from(is_written);
        }
        let committed = match count {
            0 => Ok(self.journal.committed()),
            _ => self.journal.append_framed(&self.records, count),
        };
        if self.records.capacity() > BUFFER_BYTES_KEPT {
            self.records = Vec::new();
        }
        committed
    }

    /// Requests that transactions up to `number` survive a power cut. If they do not [yet](Self::durable), an
    /// [`Event`] will follow.
    pub fn want_durable(&mut self, number: CommitNo) {
        self.journal.want_durable(number);
    }

    /// The number of the last transaction.
    pub fn committed(&self) -> CommitNo {
        self.journal.committed()
    }

    /// Every transaction up to this survives a power cut.
    pub fn durable(&self) -> CommitNo {
        self.journal.durable()
    }

    /// Asks for a compaction, which jobs do. An [`Event`] tells its end.
    pub fn compact(&mut self) {
        self.journal.compact();
    }

    /// Whether a compaction is in progress.
    pub fn is_compacting(&self) -> bool {
        self.journal.is_compacting()
    }

    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.journal.size()
    }

    /// The next job, if there is one. `database` must hold exactly the transactions committed so far.
    /// `date_ms` is the time of day, in milliseconds since 1970, for the record that a compaction writes.
    pub fn poll_job(&mut self, now_ms: u64, date_ms: u64, database: &Database) -> Option<Job> {
        self.journal.poll_job(now_ms, || writing(database, date_ms, COMPACTION_COMMENT))
    }

    /// Takes the result of a job.
    pub fn handle_done(&mut self, now_ms: u64, done: Done) {
        self.journal.handle_done(now_ms, done);
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.journal.poll_event()
    }

    /// Replaces the file's contents by `database`, which may have another schema, before it returns: for
    /// conversions. Blocks.
    ///
    /// # Errors
    /// Those of the system; the file and the schema of later transactions are unchanged.
    pub fn convert(&mut self, now_ms: u64, date_ms: u64, database: &Database) -> io::Result<()> {
        self.journal.rewrite(now_ms, writing(database, date_ms, CONVERSION_COMMENT))?;
        self.schema = Arc::clone(database.schema());
        Ok(())
    }
}

fn writing(database: &Database, date_ms: u64, comment: &'static str) -> journal::Snapshot {
    let snapshot = database.snapshot();
    Box::new(move |write| {
        let note = Note { date_ms, comment: Some(comment) };
        bodies(&snapshot, note).iter().try_for_each(|body| write(body))
    })
}

//! Database files in a file system: implements the crate `ovsdb`'s [`LogDirectory`] and [`LogFile`].
//!
//! [`DatabaseFile`] is one database's file, locked as long as it lives: like the stock programs, by a record
//! lock on `.NAME.~lock~` beside the file, so that they and we exclude each other. A symbolic link is
//! followed first; its target is what counts. A replacement is written to `.NAME.~tmp~-PID-N`, synced, and
//! renamed; leftovers of an interrupted one are removed when the file is opened.
//!
//! Threads: any; the calls block as long as the disk takes.

use ovsdb::UuidGenerator;
use ovsdb::log::{LogDirectory, LogFile, Magic, ReadAt, Temporary, frame};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use unix_socket::{FileId, file_id};

/// Permissions of a new database: its group may read it, as with the stock programs.
const MODE: u32 = 0o640;
/// Links to follow before giving up, as Linux does.
const LINKS_MAX: u32 = 40;

/// One database's file, locked against other processes and other users in this one.
#[derive(Debug)]
pub struct DatabaseFile {
    path: PathBuf,
    directory: File,
    _lock: Lock,
}

impl DatabaseFile {
    /// Locks the database at `path`, which need not exist yet, and removes leftovers of interrupted
    /// replacements.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` where it is locked, by whom is logged; and the system's.
    pub fn lock(path: &Path) -> io::Result<Arc<DatabaseFile>> {
        let path = follow_links(path)?;
        let lock = Lock::take(&beside(&path, ".~lock~"))?;
        let directory = File::open(parent(&path))?;
        let file = DatabaseFile { path, directory, _lock: lock };
        file.remove_leftovers();
        Ok(Arc::new(file))
    }

    /// Creates the database with these records, each JSON with its newline; all or none.
    ///
    /// # Errors
    /// `ErrorKind::AlreadyExists` if the file exists, and the system's others.
    pub fn create(&self, bodies: &[Vec<u8>]) -> io::Result<()> {
        let temporary = self.temporary(None)?;
        temporary.fill(bodies)?;
        // Unlike a rename a link does not replace what is there.
        fs::hard_link(&temporary.path, &self.path)?;
        drop(temporary);
        self.directory.sync_all()
    }

    /// Replaces the database by one with these records, atomically.
    ///
    /// # Errors
    /// The system's; the database is unchanged, except that the replacement stays in place if only the last
    /// step fails.
    pub fn replace(&self, bodies: &[Vec<u8>]) -> io::Result<()> {
        let temporary = self.temporary(Some(&fs::metadata(&self.path)?))?;
        temporary.fill(bodies)?;
        Box::new(temporary).replace()?;
        self.directory.sync_all()
    }

    /// The file's path, links followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new file, with the owner and permissions of `like`.
    fn temporary(&self, like: Option<&fs::Metadata>) -> io::Result<TemporaryFile> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let suffix = format!(".~tmp~-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = beside(&self.path, &suffix);
        let mode = like.map_or(MODE, |like| like.mode() & 0o777);
        let mut options = OpenOptions::new();
        let raw = options.read(true).write(true).create_new(true).mode(mode).open(&path)?;
        if let Some(like) = like {
            // Only root may change the owner; for any other user it is right already.
            let _ = fchown(&raw, Some(like.uid()), Some(like.gid()));
            // The file was made with what the umask leaves of them.
            raw.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        let file: Arc<dyn LogFile> = Arc::new(RealFile(raw.try_clone()?));
        Ok(TemporaryFile { path, target: self.path.clone(), file, raw, replaced: false })
    }

    fn remove_leftovers(&self) {
        let prefix = beside(&self.path, ".~tmp~-");
        let Some(prefix) = prefix.file_name().and_then(OsStr::to_str) else { return };
        let entries = fs::read_dir(parent(&self.path)).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl LogDirectory for DatabaseFile {
    fn open(&self) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create_temporary(&self) -> io::Result<Box<dyn Temporary>> {
        // If somebody has deleted it, it is made anew, as a new one.
        let old = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            old => Some(old?),
        };
        Ok(Box::new(self.temporary(old.as_ref())?))
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

/// Names of rows that nobody can foresee.
pub fn ids() -> UuidGenerator {
    UuidGenerator::new(std::array::from_fn(|_| RandomState::new().build_hasher().finish()))
}

/// The date, as records of databases have it: milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Opens a database to read it only. Without a lock: whoever writes it only ever appends to it or replaces
/// it.
///
/// # Errors
/// Those of the system.
pub fn open_to_read(path: &Path) -> io::Result<impl ReadAt + use<>> {
    File::open(path).map(RealFile)
}

struct RealFile(File);

impl ReadAt for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl LogFile for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }
}

struct TemporaryFile {
    path: PathBuf,
    target: PathBuf,
    file: Arc<dyn LogFile>,
    raw: File,
    replaced: bool,
}

impl TemporaryFile {
    fn fill(&self, bodies: &[Vec<u8>]) -> io::Result<()> {
        for body in bodies {
            (&self.raw).write_all(frame::Header::of(Magic::Standalone, body).as_bytes())?;
            (&self.raw).write_all(body)?;
        }
        self.raw.sync_all()
    }
}

impl Temporary for TemporaryFile {
    fn file(&self) -> &Arc<dyn LogFile> {
        &self.file
    }

    fn replace(mut self: Box<Self>) -> io::Result<()> {
        fs::rename(&self.path, &self.target)?;
        self.replaced = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.replaced {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A lock on a file of its own, by `fcntl`.
#[derive(Debug)]
struct Lock {
    identity: FileId,
    // Closing any descriptor of the file would give the lock up, so there is never a second one.
    _file: File,
}

/// Device and inode of the locks of this process, which the system does not keep from taking them twice.
static HELD: Mutex<Vec<FileId>> = Mutex::new(Vec::new());

impl Lock {
    fn take(path: &Path) -> io::Result<Lock> {
        let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let refused = |why: &str| {
            tracing::warn!(target: "lockfile", "{}: cannot lock file because {why}", path.display());
            Err(io::Error::from(rustix::io::Errno::AGAIN))
        };
        if let Ok(existing) = fs::metadata(path)
            && held.contains(&file_id(&existing))
        {
            return refused("this process has already locked it");
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        if let Err(errno) = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            let error = io::Error::from(errno);
            if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::PermissionDenied) {
                return Err(error);
            }
            let lock = Flock::from(FlockType::WriteLock);
            let holder = fcntl_getlk(&file, &lock).ok().flatten().and_then(|lock| lock.pid);
            // The holder may have released it in between; then no process is named.
            let pid = holder.map_or(0, |pid| pid.as_raw_nonzero().get());
            return refused(&format!("it is already locked by pid {pid}"));
        }
        let identity = file_id(&file.metadata()?);
        held.push(identity);
        Ok(Lock { identity, _file: file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        held.retain(|identity| *identity != self.identity);
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// `.NAME` and a suffix, in the directory of `path`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(suffix);
    path.with_file_name(name)
}

/// The target of a path, with links at its end resolved; it need not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = parent(&path).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::storage::{Opened, Storage};
    use ovsdb::{Datum, Schema, UuidGenerator};

    fn schema() -> Schema {
        let text =
            r#"{"name":"Zoo","version":"1.0.0","tables":{"Animal":{"columns":{"legs":{"type":"integer"}}}}}"#;
        Schema::from_json(&serde_json::from_str(text).unwrap()).unwrap()
    }

    fn create(path: &Path) -> Arc<DatabaseFile> {
        let file = DatabaseFile::lock(path).unwrap();
        file.create(&[ovsdb::log::transaction::encode_schema(&schema())]).unwrap();
        file
    }

    fn open(file: &Arc<DatabaseFile>) -> Opened {
        Storage::open(Arc::clone(file) as Arc<dyn LogDirectory>, &mut UuidGenerator::from_seed(1), 0).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_database_is_created_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.db");
        let file = create(&path);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let error = file.create(&[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(dir.path()), [".conf.db.~lock~", "conf.db"]);
        assert_eq!(**open(&file).database.schema(), schema());
    }

    #[test]
    fn a_file_is_locked_once_also_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.db");
        let link = dir.path().join("link.db");
        std::os::unix::fs::symlink("conf.db", &link).unwrap();
        let file = create(&link);
        assert_eq!(file.path(), dir.path().join("conf.db"));
        let error = DatabaseFile::lock(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(file);
        DatabaseFile::lock(&path).unwrap();
    }

    #[test]
    fn a_compaction_keeps_the_owner_the_permissions_and_every_row_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.db");
        fs::write(dir.path().join(".conf.db.~tmp~-1-1"), "left over").unwrap();
        let file = create(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o606)).unwrap();
        let mut ids = UuidGenerator::from_seed(2);
        let Opened { mut storage, mut database, .. } = open(&file);
        let table = database.schema().find("Animal").unwrap();
        let legs = database.schema().table(table).find("legs").unwrap();
        let uuid = ids.next_uuid();
        for n in 1..=200 {
            let mut transaction = database.begin();
            let mut row = match transaction.database().row(table, uuid) {
                Some(row) => row.clone(),
                None => {
                    let row = transaction.new_row(table, uuid);
                    transaction.insert(table, row.clone()).unwrap();
                    row
                }
            };
            row.set(legs, Datum::scalar(n));
            transaction.replace(table, row);
            let changes = transaction.commit(&mut ids).unwrap();
            storage.commit(&changes, ovsdb::log::transaction::Note::default()).unwrap();
        }
        let before = storage.size();
        storage.compact();
        while let Some(job) = storage.poll_job(0, 0, &database) {
            storage.handle_done(0, job.run());
        }
        assert!(storage.size() < before / 10, "{} of {before}", storage.size());
        assert_eq!(storage.size(), fs::metadata(&path).unwrap().len());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o606);
        assert_eq!(names(dir.path()), [".conf.db.~lock~", "conf.db"]);
        drop((storage, database));
        let again = open(&file);
        assert_eq!(again.database.row(table, uuid).unwrap().get(legs).as_integer(), Some(200));
        assert_eq!(again.cut, None);
    }
}

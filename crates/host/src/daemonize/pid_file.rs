//! Pid files: locked as long as their process lives, which is how `ovs-appctl` and a second start tell a live
//! daemon from a stale file.
//!
//! The locks are POSIX locks, the only ones that reveal their holder. A process loses its lock on a file as
//! soon as it closes any descriptor of that file, so a process never reopens its own pid files: it knows
//! their contents.

use crate::log::os_text;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unix_socket::{FileId, file_id, remove};

/// The pid files that this process holds.
static OWN: Mutex<Vec<(PathBuf, FileId)>> = Mutex::new(Vec::new());

fn own() -> MutexGuard<'static, Vec<(PathBuf, FileId)>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process holds that pid file.
fn is_own(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| own().iter().any(|(_, id)| *id == file_id(&metadata)))
}

/// Removes those that this process holds: a signal ends it.
pub fn remove_own_pid_files() {
    own().drain(..).for_each(|(path, id)| remove_ours(&path, id));
}

fn remove_ours(path: &Path, id: FileId) {
    // With --overwrite-pidfile it may belong to another process by now.
    let _alone = lock_directory(path);
    let _removed = remove(path, id);
}

/// Why there is no pid file. The texts are Open vSwitch's.
#[derive(Debug)]
pub enum PidFileError {
    /// A live process holds it: this one, where the system says which.
    Running(PathBuf, Option<i32>),
    /// It cannot be read.
    Check(PathBuf, io::Error),
    /// It cannot be written: the failed operation, and why.
    Create(PathBuf, &'static str, io::Error),
}

impl std::fmt::Display for PidFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PidFileError::Running(path, Some(pid)) => {
                write!(f, "{}: already running as pid {pid}, aborting", path.display())
            }
            PidFileError::Running(path, None) => write!(f, "{}: already running, aborting", path.display()),
            PidFileError::Check(path, e) => {
                write!(f, "{}: pidfile check failed ({}), aborting", path.display(), os_text(e))
            }
            PidFileError::Create(path, call, e) => {
                write!(f, "{}: {call} failed ({})", path.display(), os_text(e))
            }
        }
    }
}

impl std::error::Error for PidFileError {}

/// A pid file, locked as long as this lives and removed with it.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    id: FileId,
    _file: File,
}

impl PidFile {
    /// Writes the process's number to `path`. Refused where a live process holds the file, unless
    /// `overwrite`.
    pub fn create(path: &Path, overwrite: bool) -> Result<PidFile, PidFileError> {
        let failed = |call: &'static str| {
            let path = path.to_owned();
            move |e: io::Error| PidFileError::Create(path, call, e)
        };
        // Checking and then replacing the file requires exclusive access.
        let _alone = lock_directory(path);
        if !overwrite {
            match holder(path) {
                Ok(None) => {}
                Ok(Some(pid)) => return Err(PidFileError::Running(path.to_owned(), pid)),
                Err(e) => return Err(PidFileError::Check(path.to_owned(), e)),
            }
        }
        // Created under another name, locked and filled, then renamed: a reader always sees the complete
        // file.
        let mut making = path.as_os_str().to_owned();
        making.push(format!(".tmp{}", std::process::id()));
        let making = PathBuf::from(making);
        // Where others may write too, the name may lead to a file that is not ours to fill.
        let _left = fs::remove_file(&making);
        let mut file = File::create_new(&making).map_err(failed("create"))?;
        let made = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| failed("fcntl(F_SETLK)")(e.into()))
            .and_then(|()| writeln!(file, "{}", std::process::id()).map_err(failed("write")))
            .and_then(|()| file.metadata().map(|m| file_id(&m)).map_err(failed("fstat")))
            .and_then(|id| fs::rename(&making, path).map(|()| id).map_err(failed("rename")));
        match made {
            Ok(id) => {
                own().push((path.to_owned(), id));
                Ok(PidFile { path: path.to_owned(), id, _file: file })
            }
            Err(e) => {
                let _ = fs::remove_file(&making);
                Err(e)
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        remove_ours(&self.path, self.id);
        own().retain(|(_, id)| *id != self.id);
    }
}

/// How long to wait for a lock that others hold for a moment, each in its turn.
const LOCK_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5_000 });

/// Locks the directory of a pid file against other processes that create or remove one there, until the
/// result is dropped. Anybody who may read the directory may lock it, and must not keep daemons from
/// starting: after a while this goes on without the lock, as if nobody else created one now.
fn lock_directory(path: &Path) -> Option<File> {
    let name = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let name = name.unwrap_or(Path::new("."));
    // What is wrong with the directory is told when the file is made.
    let directory = File::open(name).ok()?;
    let since = Instant::now();
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(rustix::io::Errno::WOULDBLOCK) if since.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => {
                let why = match error {
                    rustix::io::Errno::WOULDBLOCK => "another process keeps it locked (flock)".into(),
                    error => format!("it cannot be locked ({})", os_text(&io::Error::from(error))),
                };
                tracing::warn!(target: "daemon_unix", "{}: {why}; going on", name.display());
                return None;
            }
        }
    }
}

/// The process that holds the file's lock, if one does: its number, where the system tells.
fn holder(path: &Path) -> io::Result<Option<Option<i32>>> {
    if is_own(path) {
        return Ok(Some(i32::try_from(std::process::id()).ok()));
    }
    let file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    locked_by(&file)
}

/// The process that holds a lock on the file, as [`holder`] tells it.
fn locked_by(file: &File) -> io::Result<Option<Option<i32>>> {
    let lock = fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?;
    // Who may only read the file can lock it for reading: that is no daemon.
    let held = lock.filter(|l| matches!(l.typ, FlockType::WriteLock));
    Ok(held.map(|l| l.pid.map(|pid| pid.as_raw_nonzero().get())))
}

/// The process that a pid file names, which must be alive: it holds the file.
pub fn pid_of_running(path: &Path) -> io::Result<u32> {
    if is_own(path) {
        return Ok(std::process::id());
    }
    let file = File::options().read(true).write(true).open(path)?;
    match locked_by(&file)? {
        Some(_) => number(&io::read_to_string(&file)?),
        None => Err(rustix::io::Errno::SRCH.into()),
    }
}

fn number(text: &str) -> io::Result<u32> {
    text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a process number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_pid_file_of_a_process_that_is_gone_is_taken_over_and_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ovs-vswitchd.pid");
        fs::write(&path, "999999\n").unwrap();
        let pid_file = PidFile::create(&path, false).unwrap();
        assert_eq!(pid_of_running(&path).unwrap(), std::process::id());
        drop(pid_file);
        assert!(!path.exists());
        fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert!(pid_of_running(&path).is_err(), "a process that does not hold it is another one");
    }

    #[test]
    fn at_the_end_a_pid_file_that_another_process_has_made_meanwhile_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a.pid", "b.pid"].map(|name| dir.path().join(name));
        let files = paths.each_ref().map(|path| PidFile::create(path, false).unwrap());
        // As --overwrite-pidfile does it.
        fs::write(dir.path().join("new"), "1\n").unwrap();
        fs::rename(dir.path().join("new"), &paths[0]).unwrap();
        for (path, id) in files.each_ref().map(|file| (&file.path, file.id)) {
            remove_ours(path, id);
        }
        assert!(paths[0].exists() && !paths[1].exists());
    }

    #[test]
    fn a_process_that_reads_its_own_pid_file_keeps_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ovs-vswitchd.pid");
        let pid_file = PidFile::create(&path, false).unwrap();
        let lock = format!(":{} ", fs::metadata(&path).unwrap().ino());
        let is_locked = || fs::read_to_string("/proc/locks").unwrap().contains(&lock);
        assert!(is_locked());
        assert_eq!(pid_of_running(&path).unwrap(), std::process::id());
        let second = PidFile::create(&path, false).unwrap_err();
        assert!(matches!(second, PidFileError::Running(_, Some(_))), "{second}");
        assert!(is_locked());
        drop(pid_file);
        assert!(!is_locked());
    }

    #[test]
    fn neither_a_readers_lock_nor_a_link_of_anothers_keeps_a_daemon_from_its_pid_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ovs-vswitchd.pid");
        fs::write(&path, "1\n").unwrap();
        let script = "import fcntl, sys; f = open(sys.argv[1]); fcntl.lockf(f, fcntl.LOCK_SH); print(flush=True); \
                      sys.stdin.read()";
        let mut reader = std::process::Command::new("python3");
        reader.args(["-c", script]).arg(&path);
        let piped = std::process::Stdio::piped;
        let mut reader = reader.stdin(piped()).stdout(piped()).spawn().unwrap();
        io::Read::read_exact(reader.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        assert!(pid_of_running(&path).is_err());
        let theirs = dir.path().join("theirs");
        fs::write(&theirs, "precious").unwrap();
        let making = format!("{}.tmp{}", path.display(), std::process::id());
        std::os::unix::fs::symlink(&theirs, making).unwrap();
        let pid_file = PidFile::create(&path, false).unwrap();
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "precious");
        assert!(fs::symlink_metadata(&pid_file.path).unwrap().is_file());
        drop(reader.stdin.take());
        reader.wait().unwrap();
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = PidFile::create(Path::new("/nonexistent/x.pid"), false).unwrap_err().to_string();
        assert_eq!(error, "/nonexistent/x.pid: create failed (No such file or directory)");
    }

    #[test]
    fn whoever_keeps_the_directory_locked_keeps_no_daemon_from_its_pid_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pid");
        let theirs = File::open(dir.path()).unwrap();
        rustix::fs::flock(&theirs, FlockOperation::LockExclusive).unwrap();
        let made = PidFile::create(&path, false).unwrap();
        assert!(path.exists());
        drop(made);
        assert!(!path.exists());
    }
}

//! The run directory: where sockets are, and how to take such a name over from a process that is gone without
//! taking it from one that lives.

use base::SOCKET_PATH_BYTES_MAX;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `$OVS_RUNDIR`, or its default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// From the environment; `/var/run/openvswitch` by default.
    pub fn from_env() -> RunDir {
        RunDir(crate::program::directory("OVS_RUNDIR", "/var/run/openvswitch"))
    }

    /// A given directory.
    pub fn new(path: impl Into<PathBuf>) -> RunDir {
        RunDir(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates it if it does not exist.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
    }
}

/// The sockets that this process listens at.
static OWN: Mutex<Vec<(PathBuf, FileId)>> = Mutex::new(Vec::new());

fn own() -> MutexGuard<'static, Vec<(PathBuf, FileId)>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the sockets that this process listens at: a signal ends it.
pub fn remove_own_sockets() {
    for (path, id) in own().drain(..) {
        let _removed = remove(&path, id);
    }
}

/// A listening socket that is removed from the file system when this is dropped, unless another process has
/// replaced it. Drop it before its listener: a successor takes a socket without listener for a stale one.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    id: FileId,
    /// Keeps the number from being another file's.
    _file: File,
}

impl Socket {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Listens at `path` with a non-blocking socket, accessible only to owner and group. A socket that
    /// refuses connections has no listener any more, and is replaced; `ErrorKind::AddrInUse` if there is a
    /// listener, however busy, `AlreadyExists` if it is another kind of file.
    pub fn listen(path: &Path) -> io::Result<(Socket, UnixListener)> {
        match hold(path) {
            Ok(found) if !found.metadata()?.file_type().is_socket() => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket"));
            }
            Ok(found) => match try_connect(path) {
                Ok(()) => {
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    remove(path, file_id(&found.metadata()?))?
                }
                // Its owner has just removed it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let listener = with_short_path(path, |short| UnixListener::bind(short))?;
        let file = hold(path)?;
        let socket = Socket { path: path.to_owned(), id: file_id(&file.metadata()?), _file: file };
        own().push((path.to_owned(), socket.id));
        fs::set_permissions(path, Permissions::from_mode(0o770))?;
        listener.set_nonblocking(true)?;
        Ok((socket, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _removed = remove(&self.path, self.id);
        own().retain(|(_, id)| *id != self.id);
    }
}

/// Removes control sockets that killed processes have left beside `path`: those named `PROGRAM.PID.ctl` with
/// the same program, whose process is gone and which do not answer. Sockets that cannot be removed are left.
pub fn remove_stale_control_sockets(path: &Path) {
    let parts = |name: &OsStr| {
        let (program, pid) = name.to_str()?.strip_suffix(".ctl")?.rsplit_once('.')?;
        Some((program.to_owned(), pid.parse::<u32>().ok()?))
    };
    let Some((program, _)) = path.file_name().and_then(parts) else { return };
    let Some(Ok(entries)) = path.parent().map(fs::read_dir) else { return };
    for entry in entries.flatten() {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let Some((_, pid)) = parts(&entry.file_name()).filter(|(of, _)| *of == program) else { continue };
        if !is_socket || Path::new("/proc").join(pid.to_string()).exists() {
            continue;
        }
        let stale = try_connect(&entry.path()).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
        if stale && let Err(e) = fs::remove_file(entry.path()) {
            tracing::debug!(target: "daemon", "{}: could not be removed: {e}", entry.path().display());
        }
    }
}

/// Whether there is a listener at the socket at `path`. Does not wait for one that accepts no connections:
/// its backlog is then full.
fn try_connect(path: &Path) -> io::Result<()> {
    for kind in [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM] {
        match connect_as(kind, path) {
            Err(e) if is(&e, Errno::PROTOTYPE) => {}
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Whether an error of the system is this one.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// A non-blocking stream to the socket at `path`, which is made at once or, its backlog full, not at all.
pub fn connect_now(path: &Path) -> io::Result<UnixStream> {
    connect_as(SocketType::STREAM, path).map(UnixStream::from)
}

fn connect_as(kind: SocketType, path: &Path) -> io::Result<OwnedFd> {
    with_short_path(path, |short| {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(short)?)?;
        Ok(socket)
    })
}

/// A file itself, whatever it is. As long as this is open, no other file gets its number.
fn hold(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Device and number of a file.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Removes a file, which may be gone already or be another one by now.
pub(crate) fn remove(path: &Path, id: FileId) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if file_id(&found) == id => match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Connects to the socket at `path`, whatever its length.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short_path(path, |short| UnixStream::connect(short))
}

/// A path that is too long for the address of a Unix socket ([`SOCKET_PATH_BYTES_MAX`]) is reached through
/// its directory's descriptor.
pub fn with_short_path<T>(path: &Path, f: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return f(path);
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return f(path) };
    let dir = File::open(dir)?;
    f(&Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_may_connect_and_others_may_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("br0.mgmt");
        let _socket = Socket::listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o770);
    }

    #[test]
    fn a_socket_whose_owner_is_too_busy_to_accept_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("br0.mgmt");
        let owner =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
        let owner = owner.unwrap();
        rustix::net::bind(&owner, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&owner, 0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(socket) = UnixStream::connect(&path) {
            waiting.push(socket);
            if waiting.len() == 1 {
                // With no backlog, the next one would wait.
                break;
            }
        }
        let error = Socket::listen(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        // Of another kind, it is somebody's too.
        let log = dir.path().join("log");
        let _log = std::os::unix::net::UnixDatagram::bind(&log).unwrap();
        assert_eq!(Socket::listen(&log).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("br0.mgmt");
        let (socket, listener) = Socket::listen(&path).unwrap();
        assert_eq!(Socket::listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        std::mem::forget(socket); // As a killed process leaves it.
        let (socket, _listener) = Socket::listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o770);
        drop(socket);
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        assert_eq!(Socket::listen(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_socket_that_a_successor_has_made_is_left_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("br0.mgmt");
        let (socket, listener) = Socket::listen(&path).unwrap();
        // Nobody listens any more while the owner is about to go.
        drop(listener);
        let (successor, _listener) = Socket::listen(&path).unwrap();
        drop(socket);
        connect(&path).unwrap();
        drop(successor);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_longer_than_an_address_works() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("br0.mgmt");
        let (_socket, _listener) = Socket::listen(&path).unwrap();
        connect(&path).unwrap();
    }
}

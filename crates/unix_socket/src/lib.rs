//! Unix sockets in the file system: how to listen at a path that a dead process has left a socket at, without
//! taking it from a live one, and how to connect without waiting.
//!
//! A socket is stale if connecting to it is refused, and only then. Any other error (no descriptor is free,
//! no permission, a socket of another type) says nothing about its owner, so the socket stays.
//!
//! Threads: any. The sockets of the process are in one list, so that a signal can remove them.

mod file;

pub use file::{FileId, file_id, remove};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The longest address of a Unix socket in bytes: `sun_path` has 108, and ends with a zero.
const ADDRESS_BYTES_MAX: usize = 107;

/// Only owner and group may connect.
const MODE: u32 = 0o770;

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

    /// Listens at `path` with a non-blocking stream socket, accessible only to owner and group. A stale
    /// socket is replaced; `ErrorKind::AddrInUse` if there is a listener, however busy, `AlreadyExists` if it
    /// is another kind of file.
    pub fn listen(path: &Path) -> io::Result<(Socket, UnixListener)> {
        Socket::listen_as(path, Some(MODE))
    }

    /// The same for those whom the umask allows: a guest's hypervisor may run as another user.
    pub fn listen_by_umask(path: &Path) -> io::Result<(Socket, UnixListener)> {
        Socket::listen_as(path, None)
    }

    fn listen_as(path: &Path, mode: Option<u32>) -> io::Result<(Socket, UnixListener)> {
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
        let listener = bind(path, mode)?;
        let file = hold(path)?;
        let socket = Socket { path: path.to_owned(), id: file_id(&file.metadata()?), _file: file };
        own().push((path.to_owned(), socket.id));
        if let Some(mode) = mode {
            // The umask may have taken permissions from the group.
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        Ok((socket, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _removed = remove(&self.path, self.id);
        own().retain(|(_, id)| *id != self.id);
    }
}

/// Listens at `path`. The file has no more permissions than `mode` from the start, whatever the umask: others
/// could connect in between.
fn bind(path: &Path, mode: Option<u32>) -> io::Result<UnixListener> {
    with_short_path(path, |short| {
        let socket = new_socket(SocketType::STREAM)?;
        if let Some(mode) = mode {
            rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
        }
        rustix::net::bind(&socket, &SocketAddrUnix::new(short)?)?;
        // As long a queue as the system allows.
        rustix::net::listen(&socket, -1)?;
        Ok(socket.into())
    })
}

fn new_socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

/// Whether the socket at `path` has no listener any more.
pub fn is_stale(path: &Path) -> bool {
    try_connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether there is a listener at the socket at `path`. Does not wait for one that accepts no connections:
/// its backlog is then full.
fn try_connect(path: &Path) -> io::Result<()> {
    for kind in [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM] {
        match connect_as(kind, path) {
            Err(e) if is_of_another_type(&e) => {}
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Whether connecting failed because the socket is of another type: one for datagrams, say, and not a stream.
pub fn is_of_another_type(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error())
}

/// A non-blocking stream to the socket at `path`, which is made at once or, its backlog full, not at all:
/// connect(2) would otherwise block for as long as the listener's owner likes.
///
/// Errors: among others `WouldBlock` in that case.
pub fn connect_now(path: &Path) -> io::Result<UnixStream> {
    connect_as(SocketType::STREAM, path).map(UnixStream::from)
}

fn connect_as(kind: SocketType, path: &Path) -> io::Result<OwnedFd> {
    with_short_path(path, |short| {
        let socket = new_socket(kind)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(short)?)?;
        Ok(socket)
    })
}

/// A file itself, whatever it is. As long as this is open, no other file gets its number.
fn hold(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Connects to the socket at `path`, whatever its length.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short_path(path, |short| UnixStream::connect(short))
}

/// A path that is too long for the address of a Unix socket is reached through its directory's descriptor.
fn with_short_path<T>(path: &Path, f: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= ADDRESS_BYTES_MAX {
        return f(path);
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return f(path) };
    let dir = File::open(dir)?;
    f(&Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_group_may_connect_and_others_may_not_from_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("br0.mgmt");
        let bound = bind(&path, Some(MODE)).unwrap();
        assert_eq!(mode(&path) & 0o007, 0);
        drop(bound);
        let _socket = Socket::listen(&path).unwrap();
        assert_eq!(mode(&path), 0o770);
        // Where others decide who may.
        let (by_umask, plain) = (dir.path().join("vhost"), dir.path().join("plain"));
        let _socket = Socket::listen_by_umask(&by_umask).unwrap();
        let _plain = UnixListener::bind(&plain).unwrap();
        assert_eq!(mode(&by_umask), mode(&plain));
    }

    #[test]
    fn a_socket_whose_owner_is_too_busy_to_accept_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("br0.mgmt");
        let owner = bind(&path, Some(MODE)).unwrap();
        rustix::net::listen(&owner, 0).unwrap();
        // With no backlog, the next one would wait.
        let _waiting = UnixStream::connect(&path).unwrap();
        assert_eq!(Socket::listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
    }

    #[test]
    fn a_socket_for_datagrams_is_somebodys_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert_eq!(Socket::listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        drop(log);
        Socket::listen(&path).unwrap();
    }

    /// The limit is the process's, so the test is run once more, in a process of its own.
    #[test]
    fn without_a_free_descriptor_a_live_socket_is_left_alone() {
        const OF: &str = "LEFT_ALONE_AT";
        if let Some(path) = std::env::var_os(OF) {
            let limit = getrlimit(Resource::Nofile);
            let free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
            // None; one, which holds the file; and so on.
            for more in 0..3 {
                setrlimit(Resource::Nofile, Rlimit { current: Some(free + more), ..limit }).unwrap();
                let result = Socket::listen(Path::new(&path)).map(drop);
                setrlimit(Resource::Nofile, limit).unwrap();
                let error = result.unwrap_err();
                let is_known = error.kind() == io::ErrorKind::AddrInUse
                    || error.raw_os_error() == Some(Errno::MFILE.raw_os_error());
                assert!(is_known, "{error}");
            }
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.sock");
        let (_socket, _listener) = Socket::listen(&path).unwrap();
        let name = "tests::without_a_free_descriptor_a_live_socket_is_left_alone";
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(OF, &path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
        connect(&path).unwrap();
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("br0.mgmt");
        let (socket, listener) = Socket::listen(&path).unwrap();
        assert_eq!(Socket::listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(!is_stale(&path));
        drop(listener);
        std::mem::forget(socket); // As a killed process leaves it.
        assert!(is_stale(&path));
        let (socket, _listener) = Socket::listen(&path).unwrap();
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
        connect_now(&path).unwrap();
        let name = dir.path().join("d".repeat(120));
        assert_eq!(connect_now(&name).unwrap_err().kind(), io::ErrorKind::InvalidFilename);
    }
}

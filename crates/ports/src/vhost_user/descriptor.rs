//! Descriptors from a guest's monitor, before their kind is known.
//!
//! If one belongs to a file on a file system that the monitor itself serves (FUSE), or that is remote, any
//! access may block for ever: reading it, mapping it and touching a page, querying its size, even closing it.
//! So it is examined only in ways that ask no file system ([`Given::memory`], [`Given::eventfd`],
//! [`Given::unix_socket`]), and if it is none of these, a separate thread closes it. Until that thread is
//! done, the port reads no further message: a monitor can block one thread and its own port.
//!
//! Source: fcntl(2) on F_GET_SEALS, socket(7) on SO_DOMAIN.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Closes a port's descriptors of unknown kind.
#[derive(Clone, Default)]
pub(crate) struct Closer {
    pending: Arc<AtomicUsize>,
}

impl Closer {
    /// Whether a descriptor is still being closed.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    fn close(&self, fd: OwnedFd) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        let pending = self.pending.clone();
        let close = move || {
            drop(fd);
            pending.fetch_sub(1, Ordering::AcqRel);
        };
        let thread = std::thread::Builder::new().name("vhost close".into()).spawn(close);
        // If no thread can be started, the closure is dropped, which closes the descriptor here.
        if thread.is_err() {
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// See the module documentation.
pub(crate) struct Given {
    /// `None` only once it was taken out.
    fd: Option<OwnedFd>,
    closer: Closer,
}

impl Given {
    pub(crate) fn new(fd: OwnedFd, closer: &Closer) -> Given {
        Given { fd: Some(fd), closer: closer.clone() }
    }

    /// As memory that the kernel itself backs: tmpfs (including memfd) or hugetlbfs. A page of such a file
    /// depends only on the kernel.
    pub(crate) fn memory(self) -> Option<OwnedFd> {
        self.only_if(is_memory)
    }

    /// As an eventfd.
    pub(crate) fn eventfd(self) -> Option<OwnedFd> {
        self.only_if(is_eventfd)
    }

    /// As a Unix socket.
    pub(crate) fn unix_socket(self) -> Option<OwnedFd> {
        self.only_if(is_unix_socket)
    }

    fn only_if(mut self, is_it: fn(&OwnedFd) -> bool) -> Option<OwnedFd> {
        self.fd.take_if(|fd| is_it(fd))
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        if !is_memory(&fd) && !is_eventfd(&fd) && !is_unix_socket(&fd) {
            self.closer.close(fd);
        }
    }
}

/// The kernel tells the seals of files on tmpfs and hugetlbfs, sealed or not, and those of no others; it asks
/// no file system for that, as fstatfs(2) would.
fn is_memory(fd: &OwnedFd) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok()
}

/// A file's name begins with a slash.
fn is_eventfd(fd: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

fn is_unix_socket(fd: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_domain(fd) == Ok(rustix::net::AddressFamily::UNIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::{Duration, Instant};

    #[test]
    fn only_what_the_kernel_backs_is_memory_and_the_rest_is_closed_aside() {
        let closer = Closer::default();
        let given = |fd: OwnedFd| Given::new(fd, &closer);
        let memfd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(given(memfd.try_clone().unwrap()).eventfd().is_none());
        assert!(given(memfd).memory().is_some());
        let (socket, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(given(socket.into()).memory().is_none());
        assert!(given(peer.into()).unix_socket().is_some());
        let disk = || OwnedFd::from(File::open(std::env::current_exe().unwrap()).unwrap());
        assert!(given(disk()).memory().is_none());
        assert!(given(disk()).eventfd().is_none());
        assert!(given(File::open("/proc/self/status").unwrap().into()).memory().is_none());
        let start = Instant::now();
        while closer.is_busy() {
            assert!(start.elapsed() < Duration::from_secs(10), "they are closed in the end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

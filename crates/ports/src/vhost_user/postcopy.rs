//! Post-copy migration: a machine runs on its new host before its memory is there, and whoever touches a page that is not
//! waits until the page has come from the old one.
//!
//! The front end learns of the touches from a descriptor of userfaultfd(2) that we make and hand to it. Memory that it names while it
//! listens is registered with that descriptor, once it has heard where we have mapped it, and before a ring is used:
//!
//! ```text
//! ADVISE -> descriptor | LISTEN | ADD_MEM_REG (or SET_MEM_TABLE) -> our addresses | its word that it knows them | ... | END
//! ```
//!
//! A worker that touches a page waits like everybody else, and all that it polls waits with it: so this is offered only where the
//! operator asks for it. When the front end dies every waiting thread goes on, since our own descriptor is closed before anything
//! waits for a worker.
//!
//! Source: userfaultfd(2), ioctl_userfaultfd(2); QEMU's docs/interop/vhost-user.rst, "Migrating backend state" and POSTCOPY_*.

use crate::PortError;
use crate::wait::owned;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

const UFFD_API: u64 = 0xaa;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
/// `_IOWR(0xaa, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
/// Faults on pages that the file does not have.
const REGISTER_MODE_MISSING: u64 = 1;
/// Only touches by the program count, not by the kernel for it: that needs no privilege, and we make no system call on a
/// guest's memory.
const USER_MODE_ONLY: libc::c_int = 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// Where a migration with post-copy stands, from ADVISE to END.
pub(super) struct Postcopy {
    fd: OwnedFd,
    /// LISTEN has come: memory from now on is registered.
    pub(super) listens: bool,
    /// Memory has come whose place the front end does not know yet: no ring may be used.
    pub(super) awaits: bool,
}

impl Postcopy {
    /// Makes the descriptor. Errors: the machine has no userfaultfd, or does not let us use it.
    pub(super) fn new() -> Result<Postcopy, PortError> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes no pointer.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = owned(fd as i32, "make a userfaultfd")?;
        let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
        // SAFETY: the structure is the one that the request is for, and outlives the call.
        if unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) } != 0 {
            return Err(PortError::last_os("agree on userfaultfd's version"));
        }
        Ok(Postcopy { fd, listens: false, awaits: false })
    }

    /// The descriptor for the front end.
    pub(super) fn share(&self) -> Result<OwnedFd, PortError> {
        self.fd.try_clone().map_err(|e| PortError::os("copy a userfaultfd", &e))
    }

    /// Has touches of missing pages in a mapped range told to the front end. `page` is the size of the file's pages.
    pub(super) fn register(&self, at: NonNull<u8>, len: u64, page: usize) -> Result<(), PortError> {
        let page = page as u64;
        let start = at.as_ptr() as u64 / page * page;
        let end = (at.as_ptr() as u64 + len).next_multiple_of(page);
        let (range, bytes) = (start as *mut libc::c_void, (end - start) as usize);
        // A huge page would be made of neighbours that have not come yet.
        // SAFETY: the range is mapped, and shared: nothing is lost.
        unsafe { libc::madvise(range, bytes, libc::MADV_NOHUGEPAGE) };
        let mut register = Register { start, len: end - start, mode: REGISTER_MODE_MISSING, ioctls: 0 };
        // SAFETY: the structure is the one that the request is for, and outlives the call.
        if unsafe { libc::ioctl(self.fd.as_raw_fd(), UFFDIO_REGISTER, &raw mut register) } != 0 {
            return Err(PortError::last_os("register a guest's memory with userfaultfd"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost_user::memory::Mapped;
    use crate::vhost_user::message::Region;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    /// A touch waits until the page is there, or until nobody is left to bring it.
    #[test]
    fn who_touches_a_missing_page_waits_and_goes_on_when_the_descriptor_is_closed() {
        // SAFETY: the name is a literal with a terminating zero.
        let file = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
        let file = owned(file, "make memory").unwrap();
        // SAFETY: the descriptor is ours; the call takes no pointer.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 64 << 10) }, 0);
        let region = Region { guest: 0, len: 32 << 10, user: 0, offset: 16 << 10 };
        let mapped = Mapped::new(region, &file, &Arc::new(AtomicBool::new(false))).unwrap();
        let postcopy = Postcopy::new().unwrap();
        let shared = postcopy.share().unwrap();
        mapped.register(&postcopy).unwrap();
        let word = mapped.host().as_ptr() as usize + 8192;
        // SAFETY: the word lies in the mapping, which outlives the thread.
        let touch = std::thread::spawn(move || unsafe { (word as *const u64).read_volatile() });
        let mut poll = libc::pollfd { fd: shared.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 20_000) }, 1);
        let mut message = [0u64; 4];
        // SAFETY: the buffer has as many bytes as said.
        let n = unsafe { libc::read(shared.as_raw_fd(), message.as_mut_ptr().cast(), 32) };
        assert_eq!((n, message[0] & 0xff, message[2]), (32, 0x12, word as u64), "a page fault at the word");
        std::thread::sleep(Duration::from_millis(50));
        assert!(!touch.is_finished(), "nobody has brought the page");
        drop((postcopy, shared));
        assert_eq!(touch.join().unwrap(), 0);
    }
}

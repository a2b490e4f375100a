//! Notifies a guest without ever waiting for it.
//!
//! A guest is notified through an eventfd that it shares with us. A write to an eventfd blocks while its
//! counter is full, unless the file is non-blocking; and since the guest can change both the counter and that
//! flag at any moment, checking before writing does not help: a worker that writes could be blocked for as
//! long as the guest likes. No write is non-blocking by itself (pwritev2's RWF_NOWAIT is refused for
//! eventfds). But the kernel's own notifications do not wait: an asynchronous operation signals an eventfd
//! when it completes, and a full counter stays full. So the doorbell is an asynchronous read of nothing from
//! a file of our own, which is complete when the call returns.
//!
//! Cost: 0.31 µs, compared with 0.13 µs for a write. Each thread has a context of its own; completions are
//! removed from it now and then.
//!
//! If the kernel has no asynchronous I/O, or its limit (`fs.aio-max-nr`) is reached, the eventfd is written
//! to.
//!
//! Source: io_submit(2), io_getevents(2), eventfd(2), linux/aio_abi.h.

use crate::PortError;
use crate::wait::refused;
use rustix::fs::{MemfdFlags, memfd_create};
use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd};

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;
/// Operations that a context has room for; the kernel may give more.
const EVENTS_MAX: usize = 64;
/// Completions are removed after this many operations.
const TAKE_EVERY: u32 = 32;

thread_local! {
    static DOORBELL: RefCell<Option<Doorbell>> = RefCell::new(Doorbell::new().ok());
}

/// Makes an eventfd readable. Never waits, whatever the eventfd's other owner does.
#[cold]
pub(super) fn ring(eventfd: &OwnedFd) {
    let is_rung = DOORBELL
        .try_with(|bell| bell.borrow_mut().as_mut().is_some_and(|bell| bell.ring(eventfd)))
        .unwrap_or(false);
    if !is_rung {
        // A full counter means that it is readable, which is all that is wanted.
        let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
    }
}

/// `struct iocb`.
#[repr(C)]
#[derive(Default)]
struct Operation {
    data: u64,
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Completion {
    data: u64,
    operation: u64,
    results: [i64; 2],
}

/// A context of asynchronous I/O, and an empty file to read from.
struct Doorbell {
    context: libc::c_ulong,
    empty: OwnedFd,
    /// Operations since completions were taken.
    done: u32,
}

impl Doorbell {
    fn new() -> Result<Doorbell, PortError> {
        let empty = memfd_create("doorbell", MemfdFlags::CLOEXEC).map_err(refused("make an empty file"))?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's handle, which outlives the call.
        if unsafe { libc::syscall(libc::SYS_io_setup, EVENTS_MAX, &raw mut context) } != 0 {
            return Err(PortError::last_os("set up asynchronous I/O"));
        }
        Ok(Doorbell { context, empty, done: 0 })
    }

    /// Returns whether the kernel has accepted it.
    fn ring(&mut self, eventfd: &OwnedFd) -> bool {
        if self.done >= TAKE_EVERY {
            self.take_completions();
        }
        self.submit(eventfd) || {
            self.take_completions();
            self.submit(eventfd)
        }
    }

    fn submit(&mut self, eventfd: &OwnedFd) -> bool {
        let mut operation = Operation {
            opcode: IOCB_CMD_PREAD,
            file: self.empty.as_raw_fd() as u32,
            flags: IOCB_FLAG_RESFD,
            eventfd: eventfd.as_raw_fd() as u32,
            ..Operation::default()
        };
        let list = [&raw mut operation];
        // SAFETY: the list and the operation outlive the call; a read of no bytes touches no buffer, and is
        // complete when the call returns.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1usize, list.as_ptr()) };
        self.done += 1;
        taken == 1
    }

    fn take_completions(&mut self) {
        let mut completions = [Completion::default(); EVENTS_MAX];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (events, timeout) = (completions.as_mut_ptr(), &raw const now);
        // SAFETY: there is room for as many completions as the call is told, and a time of zero says not to
        // wait.
        unsafe { libc::syscall(libc::SYS_io_getevents, self.context, 0usize, EVENTS_MAX, events, timeout) };
        self.done = 0;
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and no operation is under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn eventfd(count: u64) -> OwnedFd {
        let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert_eq!(rustix::io::write(&fd, &count.to_ne_bytes()), Ok(8));
        fd
    }

    fn count(fd: &OwnedFd) -> u64 {
        let mut bytes = [0u8; 8];
        assert_eq!(rustix::io::read(fd, &mut bytes), Ok(8));
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn a_guest_with_a_full_counter_that_blocks_holds_nobody() {
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let full = eventfd(u64::MAX - 1);
            let other = eventfd(5);
            // More often than a context has room for.
            (0..10 * EVENTS_MAX).for_each(|_| ring(&full));
            (0..10 * EVENTS_MAX as u64).for_each(|_| ring(&other));
            done.send((count(&full), count(&other))).unwrap();
        });
        let (full, other) = wait.recv_timeout(Duration::from_secs(30)).expect("the thread is held");
        assert!(full >= u64::MAX - 1);
        assert_eq!(other, 5 + 10 * EVENTS_MAX as u64);
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!((size_of::<Operation>(), size_of::<Completion>()), (64, 32));
        assert_eq!(std::mem::offset_of!(Operation, eventfd), 60);
    }
}

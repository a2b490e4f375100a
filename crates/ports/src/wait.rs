//! File descriptors that a sleeping worker waits on, for ports that have none of the kernel's: an eventfd
//! that another thread signals, and a timer.

use crate::PortError;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An eventfd.
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> Result<Event, PortError> {
        // SAFETY: the call touches no memory of ours.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        Ok(Event(owned(fd, "make an eventfd")?))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // The one error that can happen, a full counter, means that it is readable.
        // SAFETY: the buffer is 8 bytes long and outlives the call.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        drain(self.fd());
    }
}

/// A timerfd on the monotonic clock.
pub(crate) struct Timer(OwnedFd);

impl Timer {
    pub(crate) fn new() -> Result<Timer, PortError> {
        // SAFETY: the call touches no memory of ours.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        Ok(Timer(owned(fd, "make a timerfd")?))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Becomes readable `ns` nanoseconds from now (at least one).
    pub(crate) fn set_after(&self, ns: u64) {
        self.set(ns.max(1));
    }

    /// Never becomes readable, and is not now.
    pub(crate) fn clear(&self) {
        self.set(0);
    }

    fn set(&self, ns: u64) {
        let at = libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        };
        let spec = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        // SAFETY: `spec` is initialised and outlives the call; the old value is not asked for.
        unsafe { libc::timerfd_settime(self.fd(), 0, &spec, std::ptr::null_mut()) };
    }
}

fn drain(fd: RawFd) {
    let mut count = [0u8; 8];
    // SAFETY: the buffer is 8 bytes long and outlives the call; the descriptor does not block.
    unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
}

pub(crate) fn owned(fd: RawFd, call: &str) -> Result<OwnedFd, PortError> {
    if fd < 0 {
        return Err(PortError::last_os(call));
    }
    // SAFETY: the system call just returned this descriptor, nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

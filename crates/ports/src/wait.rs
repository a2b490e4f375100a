//! File descriptors for a sleeping worker to wait on, for ports without kernel descriptors: an eventfd that
//! another thread signals, and a timer.

use crate::PortError;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use rustix::time::{timerfd_create, timerfd_settime};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An eventfd.
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> Result<Event, PortError> {
        let made = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        made.map(Event).map_err(refused("make an eventfd"))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The descriptor, to wait on.
    pub(crate) fn source(&self) -> &OwnedFd {
        &self.0
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        // The one error that can happen, a full counter, means that it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        // The one error that can happen means that it is so.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

/// A timerfd on the monotonic clock.
pub(crate) struct Timer(OwnedFd);

impl Timer {
    pub(crate) fn new() -> Result<Timer, PortError> {
        let made = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        made.map(Timer).map_err(refused("make a timerfd"))
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
        let it_value = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        let time = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // The only possible error is 10^9 nanoseconds or more, which cannot occur.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &time);
    }
}

/// Makes an error of a system call, named by what it was to do.
pub(crate) fn refused(call: &str) -> impl Fn(Errno) -> PortError + '_ {
    move |errno| PortError::os(call, &errno.into())
}

pub(crate) fn owned(fd: RawFd, call: &str) -> Result<OwnedFd, PortError> {
    if fd < 0 {
        return Err(PortError::last_os(call));
    }
    // SAFETY: the system call just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

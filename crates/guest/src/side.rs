//! A ring as the guest has it, with what it and the switch wake each other by.

use crate::ring::DriverRing;
use ports::PortError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A ring with its two descriptors for notifications.
pub struct Side {
    pub ring: DriverRing,
    /// We notify the switch.
    pub kick: OwnedFd,
    /// The switch notifies us.
    pub call: OwnedFd,
    /// By number: the buffers offered.
    pub offered: Vec<Vec<usize>>,
}

impl Side {
    pub fn new(ring: DriverRing, size: u16) -> Result<Side, PortError> {
        let offered = vec![Vec::new(); usize::from(size)];
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let os = |e: rustix::io::Errno| PortError::os("make an eventfd", &e.into());
        Ok(Side { ring, kick: event().map_err(os)?, call: event().map_err(os)?, offered })
    }

    /// Shows the switch the offered buffers. True if it had asked for a notification, and was notified.
    pub fn show(&mut self) -> bool {
        let is_kicked = self.ring.show();
        if is_kicked {
            // A full counter, the one error that can happen, means that it is readable.
            let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
        }
        is_kicked
    }
}

/// Waits until the descriptor is readable, or the time is over; true if it is readable.
pub fn poll_for(fd: &impl AsFd, time: Duration) -> bool {
    let time = Timespec::try_from(time).ok();
    poll(&mut [PollFd::new(fd, PollFlags::IN)], time.as_ref()) == Ok(1)
}

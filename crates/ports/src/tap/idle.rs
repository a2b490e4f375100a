//! When to poll an idle queue of a tap again: each poll is a system call.

use base::clock;

/// An idle queue is polled at least this often while its worker polls.
pub(super) const IDLE_MAX_US: u64 = 20;

/// When to ask an idle queue again.
pub(super) struct IdleBackoff {
    empty_polls: u32,
    next_tsc: u64,
    tsc_per_us: u64,
}

impl IdleBackoff {
    pub fn new() -> IdleBackoff {
        // Here, since the first call measures for 20 ms.
        IdleBackoff { empty_polls: 0, next_tsc: 0, tsc_per_us: clock::tsc_hz() / 1_000_000 }
    }

    #[inline]
    pub fn reset(&mut self) {
        self.empty_polls = 0;
        self.next_tsc = 0;
    }

    #[inline]
    pub fn is_time(&self) -> bool {
        self.next_tsc == 0 || clock::tsc() >= self.next_tsc
    }

    #[inline]
    pub fn saw(&mut self, something: bool) {
        if something {
            self.reset();
            return;
        }
        self.empty_polls += 1;
        let wait_us = (1 << self.empty_polls.min(8)) / 8;
        self.next_tsc = match wait_us.min(IDLE_MAX_US) {
            0 => 0,
            us => clock::tsc() + us * self.tsc_per_us,
        };
    }
}

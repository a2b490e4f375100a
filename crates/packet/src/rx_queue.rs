//! A receive queue, as the worker that polls it sees it; [`port`](crate::port) says what drivers owe.

use crate::tails::Tails;
use crate::{Batch, PoolCache};
use std::os::fd::RawFd;

/// What a poll of a receive queue found besides packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RxOutcome {
    /// The queue works.
    Ok,
    /// It works, and all that came was refused: the worker's time has been taken.
    Refused,
    /// The device behind it is gone for good: stop polling it, tell the control thread.
    Gone,
}

/// One receive queue, owned by the worker that polls it.
pub trait RxQueue: Send {
    /// Appends received packets to `batch`, at most [`PoolCache::room`] of them. Sets each packet's `in_port`
    /// and what is known about its checksums.
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome;

    /// Whether packets' tails may stay in their sender's memory after `rx_begin`.
    fn lends(&self) -> bool {
        false
    }

    /// Receives a burst as `rx_burst` does. The tails of some packets may be lent (see [`crate::lent`]): then
    /// `tails` shows them, and the sender's buffers are held, until `rx_end`, which the worker owes soon.
    #[inline]
    fn rx_begin(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        self.rx_burst(cache, batch)
    }

    /// The lent tails; `None` if there are none.
    fn tails(&mut self) -> Option<&mut Tails> {
        None
    }

    /// Returns the sender's buffers. Does nothing if none are held.
    fn rx_end(&mut self) {}

    /// A descriptor that is readable when packets wait, for a worker that wants to sleep; `None` if there is
    /// none and the queue must be polled.
    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    /// Before sleeping: asks for a wake-up. Returns false where packets wait already, and the worker
    /// must poll again in place of sleeping.
    fn arm(&mut self) -> bool {
        true
    }

    /// Called after sleeping, or instead of it: no wake-ups are needed any more.
    fn disarm(&mut self) {}

    /// The worker gives the queue up (it is removed or moves): the driver takes back buffers that it holds.
    /// Those of a device come back with the port's end: the kernel may take long for that, and the worker has
    /// other ports.
    fn close(&mut self, _cache: &mut PoolCache) {}
}

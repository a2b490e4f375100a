//! When a receive queue whose bursts are short is left alone for a moment.
//!
//! A guest's ring is in memory that the guest writes. Each look at it takes its cache lines away from the
//! guest's processor, and a burst of one packet costs both sides several times as much as a packet of a long
//! burst. A worker with time to spare would look all the time and receive every packet alone. The guest,
//! which pays for that too, then sends less, and the worker is kept busy.
//!
//! So a queue is left alone for `COALESCE_US` after a burst of fewer than `SHORT_BURST` packets, and the
//! packets of that time arrive together, as they do when a network card coalesces interrupts. For a sender
//! that waits for an answer to each packet, or sends rarely, this delay would be useless. A wait that yielded
//! no more than a packet or two was in vain, and the more were in vain, the rarer the waits become. A queue
//! with full bursts never waits.

use super::policy::{COALESCE_SKIP_MAX, COALESCE_US, GATHERED_MIN, SHORT_BURST};

/// One receive queue's state.
#[derive(Default)]
pub(crate) struct Coalescing {
    /// Until when it is left alone, by the time stamp counter. A time in the past means that the next burst
    /// is the result of the wait.
    until: u64,
    /// How many short bursts to receive without a wait.
    skip: u32,
    /// How many that were after the last wait in vain.
    last_skip: u32,
}

impl Coalescing {
    /// Whether to leave the queue alone at `now`. False if `now` is 0, which means unknown: a queue that was
    /// found idle has been polled without success since its last wait.
    #[inline(always)]
    pub(crate) fn is_on(&self, now: u64) -> bool {
        now != 0 && now < self.until
    }

    /// A burst of `packets` packets has been processed at `now`.
    #[inline(always)]
    pub(crate) fn received(&mut self, packets: u64, now: u64, cycles_per_us: u64) {
        if packets < SHORT_BURST || self.until != 0 {
            self.judge(packets, now, cycles_per_us);
        }
    }

    #[inline(never)]
    fn judge(&mut self, packets: u64, now: u64, cycles_per_us: u64) {
        if std::mem::take(&mut self.until) != 0 {
            let is_in_vain = packets < GATHERED_MIN;
            self.last_skip = if is_in_vain { (2 * self.last_skip).clamp(8, COALESCE_SKIP_MAX) } else { 0 };
            self.skip = self.last_skip;
        }
        if packets >= SHORT_BURST {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
        } else {
            self.until = now + cycles_per_us * COALESCE_US;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 2_600;

    /// Bursts of so many packets, 10 us after each other or when the wait is over. How many waits there were.
    fn waits(of: &mut Coalescing, bursts: u64, packets: u64) -> u64 {
        let (mut now, mut waits) = (US, 0);
        for _ in 0..bursts {
            of.received(packets, now, US);
            waits += u64::from(of.is_on(now + 1));
            now += 10 * US;
        }
        waits
    }

    #[test]
    fn a_wait_lasts_as_long_as_it_should() {
        let mut queue = Coalescing::default();
        assert!(!queue.is_on(0));
        queue.received(SHORT_BURST - 1, 1_000, US);
        assert!(!queue.is_on(0));
        assert!(
            queue.is_on(1_000)
                && queue.is_on(999 + COALESCE_US * US)
                && !queue.is_on(1_000 + COALESCE_US * US)
        );
    }

    #[test]
    fn waits_that_gather_packets_go_on() {
        assert_eq!(waits(&mut Coalescing::default(), 1_000, GATHERED_MIN), 1_000);
        assert_eq!(waits(&mut Coalescing::default(), 1_000, SHORT_BURST - 1), 1_000);
    }

    #[test]
    fn long_bursts_are_not_waited_after() {
        assert_eq!(waits(&mut Coalescing::default(), 1_000, SHORT_BURST), 0);
    }

    #[test]
    fn who_sends_single_packets_seldom_waits() {
        let mut queue = Coalescing::default();
        assert!(waits(&mut queue, 10_000, 1) < 20);
        // And when more come again, waits do.
        let came_back = waits(&mut queue, 2 * u64::from(COALESCE_SKIP_MAX), GATHERED_MIN);
        assert!(came_back > u64::from(COALESCE_SKIP_MAX), "{came_back}");
    }
}

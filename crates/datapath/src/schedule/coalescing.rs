//! When a receive queue whose bursts are short is left alone for a moment.
//!
//! A guest's ring lies in memory that the guest writes. Each look at it takes its lines away from the guest's
//! processor, and a burst of one packet costs both sides several times what a packet of a long burst costs. A
//! worker with time to spare looks all the time and so meets every packet alone: the guest, which pays for it
//! too, sends less, and the worker is busy with it.
//!
//! So a queue is left alone for `REST_US` after a burst of fewer than `SHORT_BURST` packets: the packets of
//! that time come together. Who sends one packet and waits for its answer, or sends rarely, would wait for
//! nothing: a rest after which no more than a packet or two have come was in vain, and the more rests were in
//! vain, the rarer is the next. A full queue never rests.

use super::policy::{GATHERED_MIN, REST_SKIP_MAX, REST_US, SHORT_BURST};

/// One receive queue's state.
#[derive(Default)]
pub(crate) struct Rest {
    /// Until when it is left alone, by the time stamp counter. A past one tells that the next burst is the
    /// rest's result.
    until: u64,
    /// Short bursts still to come without a rest.
    skip: u32,
    /// How many there were after the last rest in vain.
    last_skip: u32,
}

impl Rest {
    /// Whether the queue is to be left alone at `now`. False where `now` is 0, which is no time: a queue that
    /// was found idle has been looked at in vain since its last rest.
    #[inline(always)]
    pub(crate) fn is_on(&self, now: u64) -> bool {
        now != 0 && now < self.until
    }

    /// A burst of so many packets has been processed at `now`.
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
            self.last_skip = if is_in_vain { (2 * self.last_skip).clamp(8, REST_SKIP_MAX) } else { 0 };
            self.skip = self.last_skip;
        }
        if packets >= SHORT_BURST {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
        } else {
            self.until = now + cycles_per_us * REST_US;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 2_600;

    /// Bursts of so many packets, 10 us after each other or when the rest is over. How many rests there were.
    fn rests(rest: &mut Rest, bursts: u64, packets: u64) -> u64 {
        let (mut now, mut rests) = (US, 0);
        for _ in 0..bursts {
            rest.received(packets, now, US);
            rests += u64::from(rest.is_on(now + 1));
            now += 10 * US;
        }
        rests
    }

    #[test]
    fn a_rest_lasts_as_long_as_it_should() {
        let mut rest = Rest::default();
        assert!(!rest.is_on(0));
        rest.received(SHORT_BURST - 1, 1_000, US);
        assert!(!rest.is_on(0));
        assert!(rest.is_on(1_000) && rest.is_on(999 + REST_US * US) && !rest.is_on(1_000 + REST_US * US));
    }

    #[test]
    fn rests_that_gather_packets_go_on() {
        assert_eq!(rests(&mut Rest::default(), 1_000, GATHERED_MIN), 1_000);
        assert_eq!(rests(&mut Rest::default(), 1_000, SHORT_BURST - 1), 1_000);
    }

    #[test]
    fn long_bursts_are_not_rested_after() {
        assert_eq!(rests(&mut Rest::default(), 1_000, SHORT_BURST), 0);
    }

    #[test]
    fn who_sends_single_packets_seldom_waits() {
        let mut rest = Rest::default();
        assert!(rests(&mut rest, 10_000, 1) < 20);
        // And when more come again, rests do.
        let came_back = rests(&mut rest, 2 * u64::from(REST_SKIP_MAX), GATHERED_MIN);
        assert!(came_back > u64::from(REST_SKIP_MAX), "{came_back}");
    }
}

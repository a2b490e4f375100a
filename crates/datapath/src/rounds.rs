//! When the worker sweeps its caches, and how far, in rounds over all entries.
//!
//! A round folds every entry's counters into their slots and removes idle entries. One begins every second,
//! and one for each request for exact counters. A round always runs to its end: requests that arrive
//! meanwhile are served together by the next one. So each round ends however often counters are requested,
//! rules expire in time, and the first request is served as soon as if it were the only one.
//!
//! Pure: time, the number of entries and the requests are arguments. Times are milliseconds of the worker's
//! clock.

/// A round begins every second, so flows expire at most this late, unless there are very many.
const ROUND_MS: u64 = 1_000;
/// Entries per millisecond during a requested round, within the bounds: 100,000 flows are folded in a tenth
/// of a second, 100 in about a millisecond.
const REQUESTED_PER_MS: u64 = 1_000;
const REQUESTED_MS: std::ops::RangeInclusive<u64> = 1..=800;
/// Minimum and maximum number of entries swept per pass while there is traffic.
const SWEEP_MIN: u64 = 32;
const SWEEP_MAX: u64 = 1_024;
/// Idle flows removed per millisecond while there is traffic and room for new flows. Each removal touches
/// four or five lines that are in no processor cache. A million flows that become idle at once are removed
/// within seconds, without slowing traffic.
const REMOVALS_PER_MS: u32 = 250;

/// Places that a pass without packets flushes, and a command at once, so that nothing of a small cache is
/// left.
pub(crate) const FLUSHED_AT_ONCE: u32 = 1_024;
/// Places that a pass with packets flushes: 30 microseconds' worth.
pub(crate) const FLUSHED_BESIDE_PACKETS: u32 = 64;

/// What the worker knows when it asks what to sweep.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub now_ms: u64,
    /// Packets that the worker has received so far.
    pub received: u64,
    /// The newest request, and the newest that was served: both count up.
    pub wanted: u64,
    pub served: u64,
    /// No packet has come for a while.
    pub is_idle: bool,
}

/// What to do in this pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sweep {
    /// Nothing before the next round: everything is folded, and no packet has come since.
    Done,
    /// Nothing in this pass.
    Later,
    /// Sweep this many entries; `begins` if they include the first of a round.
    Go { count: u32, begins: bool },
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Rounds {
    is_open: bool,
    /// None of its entries has been swept yet.
    is_new: bool,
    /// The newest request that the open round serves.
    request: Option<u64>,
    next_ms: u64,
    /// Packets received when the last round began; if it still equals that now, everything is folded.
    received: u64,
    /// Entries to sweep according to the round's pace.
    due: u64,
    /// Idle flows that may be removed now.
    pub removals_due: u32,
}

impl Rounds {
    /// Advances time. `passed_ms` is more than 1 if the worker shares its core, and it then catches up.
    /// `len`: entries in a round; `is_asked`: a request is waiting.
    pub fn tick(&mut self, passed_ms: u64, len: u64, is_asked: bool) {
        let bounds = REQUESTED_MS;
        let requested_ms = || (len / REQUESTED_PER_MS).clamp(*bounds.start(), *bounds.end());
        // Also speeds up an unrequested round whose end a request is waiting for.
        let period_ms = if is_asked { requested_ms() } else { ROUND_MS };
        let passed = passed_ms.saturating_mul(len).div_ceil(period_ms);
        // One round's worth suffices, however long the pause was.
        self.due = self.due.saturating_add(passed).min(len.max(SWEEP_MIN));
        self.removals_due = (self.removals_due + REMOVALS_PER_MS).min(4 * REMOVALS_PER_MS);
    }

    /// What to sweep in this pass.
    pub fn next(&mut self, now: Now) -> Sweep {
        if !self.is_open {
            let request = (now.wanted != now.served).then_some(now.wanted);
            let unfolded = self.received != now.received;
            if request.is_none() && now.now_ms < self.next_ms && !(now.is_idle && unfolded) {
                return if unfolded { Sweep::Later } else { Sweep::Done };
            }
            // The request covers what the caches contain from here on.
            self.is_open = true;
            self.request = request;
            self.received = now.received;
            self.next_ms = now.now_ms + ROUND_MS;
            self.is_new = true;
        }
        let count = if now.is_idle { SWEEP_MAX } else { self.due.min(SWEEP_MAX) };
        if count < SWEEP_MIN && !now.is_idle {
            return Sweep::Later;
        }
        self.due = self.due.saturating_sub(count);
        Sweep::Go { count: count as u32, begins: std::mem::take(&mut self.is_new) }
    }

    /// The caches have reached the end of the round. Returns the request that it served.
    pub fn ended(&mut self) -> Option<u64> {
        self.is_open = false;
        self.request.take()
    }

    /// How long there is nothing to do if there is no traffic and no request.
    pub fn free_ms(&self, now_ms: u64) -> u64 {
        self.next_ms.saturating_sub(now_ms).clamp(1, ROUND_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A saturated worker with `len` entries, which passes `passes` times a millisecond, with a request each
    /// millisecond: after how many milliseconds each request that was served was served, and how many rounds
    /// ended.
    fn asked_each_millisecond(len: u64, passes: u64, total_ms: u64) -> (Vec<u64>, u32) {
        let (mut rounds, mut at, mut ended) = (Rounds::default(), 0, 0);
        let (mut served, mut waits) = (0, Vec::new());
        for now_ms in 1..=total_ms {
            rounds.tick(1, len, now_ms != served);
            for pass in 0..passes {
                let received = now_ms * passes + pass;
                let now = Now { now_ms, received, wanted: now_ms, served, is_idle: false };
                let Sweep::Go { count, begins } = rounds.next(now) else { continue };
                at = if begins { 0 } else { at } + u64::from(count);
                if at >= len {
                    ended += 1;
                    if let Some(request) = rounds.ended() {
                        waits.extend((served + 1..=request).map(|asked| now_ms - asked));
                        served = request;
                    }
                }
            }
        }
        (waits, ended)
    }

    #[test]
    fn each_of_a_thousand_requests_a_second_is_served_and_rounds_end() {
        for (len, wait_ms) in [(10, 10), (1_000, 10), (100_000, 410), (1_000_000, 1_700)] {
            let (waits, ended) = asked_each_millisecond(len, 20, 10_000);
            let longest = waits.iter().max().copied().unwrap_or(u64::MAX);
            assert!(longest <= wait_ms, "{len} entries: a request waited {longest} ms");
            assert!(ended >= 10, "{len} entries: {ended} rounds in 10 s");
            assert!(10_000 - waits.len() as u64 <= wait_ms, "{len} entries: {} were served", waits.len());
        }
    }

    #[test]
    fn however_far_the_clock_is_warped_no_more_than_a_round_is_due() {
        let mut rounds = Rounds::default();
        rounds.tick(u64::MAX, 100_000, false);
        rounds.tick(u64::MAX, 100_000, true);
        assert_eq!(rounds.due, 100_000);
    }

    #[test]
    fn without_requests_a_round_a_second_is_begun_and_paced() {
        let (mut rounds, mut begun, mut at) = (Rounds::default(), Vec::new(), 0);
        for now_ms in 1..=5_000 {
            rounds.tick(1, 100_000, false);
            let now = Now { now_ms, received: now_ms, wanted: 0, served: 0, is_idle: false };
            if let Sweep::Go { count, begins } = rounds.next(now) {
                assert!(count <= 1_024);
                if begins {
                    begun.push(now_ms);
                    at = 0;
                }
                at += count;
                if at >= 100_000 {
                    assert_eq!(rounds.ended(), None);
                }
            }
        }
        assert!(begun.len() >= 4, "{begun:?}");
        assert!(begun.windows(2).all(|w| (1_000..1_100).contains(&(w[1] - w[0]))), "{begun:?}");
    }

    #[test]
    fn an_idle_worker_folds_at_once_and_rests() {
        let mut rounds = Rounds::default();
        let now = Now { now_ms: 5_000, received: 7, wanted: 0, served: 0, is_idle: true };
        assert_eq!(rounds.next(now), Sweep::Go { count: 1_024, begins: true });
        assert_eq!(rounds.ended(), None);
        assert_eq!(rounds.next(now), Sweep::Done);
        assert_eq!(rounds.free_ms(5_000), 1_000);
        assert_eq!(rounds.next(Now { received: 8, is_idle: false, ..now }), Sweep::Later);
        assert_eq!(rounds.next(Now { wanted: 1, ..now }), Sweep::Go { count: 1_024, begins: true });
        assert_eq!(rounds.ended(), Some(1));
    }
}

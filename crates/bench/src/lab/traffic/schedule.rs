//! When the frames of a load are sent.

use super::Load;
use std::time::Duration;

/// Which frames are to be sent, by the time since the start.
pub struct Schedule {
    /// Frames per second over all sources; at full speed if not given.
    rate: Option<u64>,
    /// The intended load, known before the first frame, if it is one.
    intended: Option<u64>,
    length: Duration,
    burst: u64,
    sources: u64,
    /// Frames that are done.
    next: u64,
}

/// Frames of one source.
pub struct Turn {
    /// Which one.
    pub source: usize,
    /// The first one, among those of the source.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The first one, among all.
    pub n: u64,
}

impl Schedule {
    /// Of a load, in bursts of so many frames at most.
    pub fn of(load: &Load, burst: u64, sources: u64) -> Schedule {
        let rate = load.rate.filter(|_| load.burst.is_none());
        let intended = load.burst.or(rate.map(|rate| (rate as f64 * load.seconds).round() as u64));
        Schedule { rate, intended, length: Duration::from_secs_f64(load.seconds), burst, sources, next: 0 }
    }

    /// Frames of the load: the intended ones, or those that were sent.
    pub fn offered(&self) -> u64 {
        self.intended.unwrap_or(self.next)
    }

    /// Whether all were sent, or the time is over.
    pub fn is_over(&self, elapsed: Duration) -> bool {
        elapsed >= self.length || self.intended.is_some_and(|all| self.next >= all)
    }

    /// The next frames, if some are due: bursts from a source at full speed, single frames at a given rate.
    /// Sources take turns.
    pub fn turn(&mut self, elapsed: Duration) -> Option<Turn> {
        let Schedule { burst, sources, next: n, .. } = *self;
        let due = match self.rate {
            Some(rate) => (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64 + 1,
            None => u64::MAX,
        };
        let most = if self.rate.is_some() && sources > 1 { 1 } else { burst };
        let count = due.min(self.intended.unwrap_or(u64::MAX)).saturating_sub(n).min(most);
        let (source, first) = match self.rate {
            Some(_) => (n % sources, n / sources),
            None => (n / burst % sources, n / (burst * sources) * burst),
        };
        self.next += count;
        (count > 0).then_some(Turn { source: source as usize, first, count, n })
    }

    /// When the `n`-th frame was due, in nanoseconds from the start.
    pub fn due_ns(&self, n: u64, elapsed: Duration) -> u64 {
        match self.rate {
            Some(rate) => (u128::from(n) * 1_000_000_000 / u128::from(rate)) as u64,
            None => elapsed.as_nanos() as u64,
        }
    }
}

/// Frames per second from the first to the last.
pub fn pace(frames: u64, first_to_last: Duration) -> f64 {
    let seconds = first_to_last.as_secs_f64();
    if seconds > 0.0 { frames.saturating_sub(1) as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::traffic::pattern::Pattern;

    #[test]
    fn frames_go_at_the_rate_within_a_thousandth_and_none_before_its_time() {
        for (rate, sources) in [(1_000, 1), (20_000, 1), (20_000, 2), (333_333, 1), (900_000, 1)] {
            let pattern = Pattern::default();
            let load = Load { size: 64, flows: 1, rate: Some(rate), seconds: 2.0, burst: None, pattern };
            let mut schedule = Schedule::of(&load, 32, sources);
            // A clock that is looked at every few microseconds, and not for a millisecond now and then.
            let (mut elapsed, mut looks) = (Duration::ZERO, 0u64);
            let (mut first, mut last, mut went) = (None, Duration::ZERO, 0);
            while !schedule.is_over(elapsed) {
                if let Some(turn) = schedule.turn(elapsed) {
                    let newest = schedule.due_ns(turn.n + turn.count - 1, elapsed);
                    assert!(newest <= elapsed.as_nanos() as u64, "{rate}: too early at {elapsed:?}");
                    assert_eq!((turn.n, turn.source as u64), (went, went % sources));
                    went += turn.count;
                    first.get_or_insert(elapsed);
                    last = elapsed;
                }
                looks += 1;
                elapsed +=
                    Duration::from_nanos(if looks % 1_000 == 0 { 1_000_000 } else { 700 + looks % 7 * 300 });
            }
            let found = pace(went, last - first.unwrap()) / rate as f64;
            assert!((found - 1.0).abs() < 0.001, "{found} of {rate}");
            // What was due since the last look is not sent.
            assert!(went + rate / 1_000 + 2 >= 2 * rate, "{went} of {}", 2 * rate);
        }
        assert_eq!(pace(21, Duration::from_millis(1)), 20_000.0);
        assert_eq!((pace(1, Duration::ZERO), pace(0, Duration::from_secs(1))), (0.0, 0.0));
    }
}

//! When frames are due that are replayed with their capture's timing.

use std::time::Instant;

/// The time of each frame of a queue, relative to the first frame of the whole file.
#[derive(Default)]
pub(super) struct Schedule {
    times_ns: Vec<u64>,
    /// Length of one round; `None` to end after the first.
    period_ns: Option<u64>,
    next: Turn,
    start: Option<Instant>,
}

/// A frame, and when its round began.
#[derive(Clone, Copy, Default)]
struct Turn {
    frame: usize,
    round_ns: u64,
}

impl Schedule {
    /// For frames in the order of their times. A round is [`round_ns`].
    pub(super) fn new(times_ns: Vec<u64>, period_ns: Option<u64>) -> Schedule {
        Schedule { times_ns, period_ns, ..Schedule::default() }
    }

    fn now_ns(&mut self, now: Instant) -> u64 {
        now.duration_since(*self.start.get_or_insert(now)).as_nanos() as u64
    }

    /// When a frame is due. `None` after the last one.
    fn time_of(&self, turn: Turn) -> Option<u64> {
        Some(turn.round_ns + self.times_ns.get(turn.frame)?)
    }

    fn after(&self, turn: Turn) -> Turn {
        match self.period_ns {
            Some(period_ns) if turn.frame + 1 == self.times_ns.len() => {
                Turn { frame: 0, round_ns: turn.round_ns + period_ns }
            }
            _ => Turn { frame: turn.frame + 1, ..turn },
        }
    }

    /// How many frames are due, up to `max`.
    pub(super) fn due(&mut self, now: Instant, max: usize) -> usize {
        let now_ns = self.now_ns(now);
        let turns = std::iter::successors(Some(self.next), |turn| Some(self.after(*turn)));
        turns.take(max).take_while(|turn| self.time_of(*turn).is_some_and(|ns| ns <= now_ns)).count()
    }

    pub(super) fn advance(&mut self, frames: u64) {
        for _ in 0..frames {
            self.next = self.after(self.next);
        }
    }

    /// Nanoseconds until the next frame is due, 0 if it is due, `None` if there is none.
    pub(super) fn due_in(&mut self, now: Instant) -> Option<u64> {
        let now_ns = self.now_ns(now);
        Some(self.time_of(self.next)?.saturating_sub(now_ns))
    }
}

/// How long a capture of so many frames takes until its first frame comes again: its last is `span_ns` after
/// its first, and then the mean interval passes.
pub(super) fn round_ns(frames: usize, span_ns: u64) -> u64 {
    let gap_ns = if frames > 1 { span_ns / (frames as u64 - 1) } else { 1_000_000_000 };
    (span_ns + gap_ns).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timed_frames_come_in_their_time_and_again_in_the_next_round() {
        let times = vec![0, 1000, 2000];
        let mut schedule = Schedule::new(times.clone(), Some(round_ns(3, 2000)));
        let start = Instant::now();
        let mut seen = Vec::new();
        for ns in 0..6001 {
            while schedule.due_in(start + Duration::from_nanos(ns)) == Some(0) {
                seen.push(ns);
                schedule.advance(1);
            }
        }
        assert_eq!(seen, [0, 1000, 2000, 3000, 4000, 5000, 6000]);
        let late = start + Duration::from_nanos(9_500);
        assert_eq!((schedule.due(late, 2), schedule.due(late, 9)), (2, 3), "two rounds at once");
        let mut once = Schedule::new(times, None);
        assert_eq!(once.due_in(start), Some(0));
        assert_eq!(once.due(late, 9), 3);
        once.advance(3);
        assert_eq!((once.due_in(late), once.due(late, 9)), (None, 0));
    }
}

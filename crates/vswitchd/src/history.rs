//! How fast counters rise: the rates of the last five seconds, minute and hour.
//!
//! Pure: counters and time are arguments.

use std::collections::VecDeque;

/// Between two looks at the counters.
const STEP_MS: u64 = 5_000;
/// Looks in a minute, and minutes in an hour.
const STEPS: usize = 12;
const MINUTES: usize = 60;

/// The increase of counters in the last hour, in the order in which they are passed.
#[derive(Default)]
pub(crate) struct History {
    next_ms: u64,
    last: Vec<u64>,
    /// The newest last.
    steps: VecDeque<Vec<u64>>,
    minutes: VecDeque<Vec<u64>>,
    steps_in_minute: usize,
}

impl History {
    /// Whether it is time for [`Self::sample`].
    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.next_ms
    }

    /// Records the current counters.
    pub fn sample(&mut self, now_ms: u64, counts: Vec<u64>) {
        self.next_ms = now_ms + STEP_MS;
        let was = |i: usize| self.last.get(i).copied().unwrap_or(0);
        // Workers that ended have taken some counts along.
        let rise = counts.iter().enumerate().map(|(i, now)| now.saturating_sub(was(i))).collect();
        self.last = counts;
        self.steps.push_back(rise);
        if self.steps.len() > STEPS {
            self.steps.pop_front();
        }
        self.steps_in_minute += 1;
        if self.steps_in_minute == STEPS {
            self.steps_in_minute = 0;
            let sum = |i: usize| self.steps.iter().map(|step| step[i]).sum();
            self.minutes.push_back((0..self.last.len()).map(sum).collect());
            if self.minutes.len() > MINUTES {
                self.minutes.pop_front();
            }
        }
    }

    /// Per second over the last five seconds, minute and hour.
    pub fn rates(&self, counter: usize) -> [f64; 3] {
        let rises = |steps: &VecDeque<Vec<u64>>, newest: usize| -> u64 {
            steps.iter().rev().take(newest).map(|step| step[counter]).sum()
        };
        let hour = rises(&self.minutes, MINUTES) + rises(&self.steps, self.steps_in_minute);
        [rises(&self.steps, 1) as f64 / 5.0, rises(&self.steps, STEPS) as f64 / 60.0, hour as f64 / 3_600.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_five_seconds_minute_and_hour() {
        let mut history = History::default();
        // 50 a step for two minutes, then nothing for five seconds.
        for step in 1..=24 {
            history.sample(0, vec![step * 50]);
        }
        assert_eq!(history.rates(0), [10.0, 10.0, 1_200.0 / 3_600.0]);
        history.sample(0, vec![1_200]);
        assert_eq!(history.rates(0), [0.0, 550.0 / 60.0, 1_200.0 / 3_600.0]);
        for _ in 0..60 * 12 {
            history.sample(0, vec![1_200]);
        }
        assert_eq!(history.rates(0), [0.0; 3]);
    }
}

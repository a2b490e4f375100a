//! How often one place in the code may log: bursts pass, floods do not.

use std::fmt;

/// Events that may come at once.
const BURST: u64 = 60;
/// One more token per this many milliseconds.
const REFILL_MS: u64 = 200;

/// A call site's allowance.
#[derive(Debug)]
pub struct Bucket {
    tokens: u64,
    filled_ms: u64,
    held_back: Option<HeldBack>,
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket { tokens: BURST, filled_ms: 0, held_back: None }
    }
}

/// What happens to an event.
#[derive(PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is logged.
    Pass,
    /// It is logged, after a line about suppressed ones.
    PassAfter(HeldBack),
    /// It is not logged.
    Drop,
}

/// Events that were not logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldBack {
    events: u64,
    first_ms: u64,
    last_ms: u64,
    now_ms: u64,
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |since_ms: u64| (self.now_ms - since_ms) / 1_000;
        write!(
            f,
            "Dropped {} log messages in last {} seconds (most recently, {} seconds ago) due to excessive rate",
            self.events,
            seconds(self.first_ms),
            seconds(self.last_ms)
        )
    }
}

impl Bucket {
    /// An event at `now_ms`, which never goes backwards.
    pub fn event(&mut self, now_ms: u64) -> Verdict {
        let refills = (now_ms - self.filled_ms) / REFILL_MS;
        self.filled_ms += refills * REFILL_MS;
        self.tokens = (self.tokens + refills).min(BURST);
        if self.tokens == 0 {
            let first_ms = self.held_back.map_or(now_ms, |h| h.first_ms);
            let events = self.held_back.map_or(0, |h| h.events) + 1;
            self.held_back = Some(HeldBack { events, first_ms, last_ms: now_ms, now_ms });
            return Verdict::Drop;
        }
        self.tokens -= 1;
        match self.held_back.take() {
            Some(held_back) => Verdict::PassAfter(HeldBack { now_ms, ..held_back }),
            None => Verdict::Pass,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_a_flood_does_not_and_is_accounted_for() {
        let mut bucket = Bucket::default();
        assert!((0..BURST).all(|_| bucket.event(5) == Verdict::Pass));
        assert_eq!(bucket.event(6), Verdict::Drop);
        assert_eq!(bucket.event(7), Verdict::Drop);
        let Verdict::PassAfter(held_back) = bucket.event(3_006) else { panic!("held back") };
        let text = held_back.to_string();
        assert!(text.starts_with("Dropped 2 log messages in last 3 seconds (most recently, 2"), "{text}");
        assert_eq!(bucket.event(3_007), Verdict::Pass);
    }
}

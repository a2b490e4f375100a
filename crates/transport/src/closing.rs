//! How long a connection that our own side ends may take to send what waits: the one deadline of all
//! connections.

use std::time::{Duration, Instant};

/// A peer that takes nothing for so long is cut,
const QUIET: Duration = Duration::from_secs(1);
/// and after so long one that still takes a little now and then.
const AT_MOST: Duration = Duration::from_secs(60);

/// A connection that is being ended. Progress is a sign of life: a slow reader gets its answer.
#[derive(Debug)]
pub struct Closing {
    since: Instant,
    /// How many bytes it had been sent when some were sent last, and when.
    sent: (u64, Instant),
}

impl Closing {
    /// The end begins now, when the peer has taken so many bytes.
    pub fn new(now: Instant, sent: u64) -> Closing {
        Closing { since: now, sent: (sent, now) }
    }

    /// When to cut it, now that it has taken so many bytes.
    pub fn deadline(&mut self, now: Instant, sent: u64) -> Instant {
        if self.sent.0 != sent {
            self.sent = (sent, now);
        }
        (self.sent.1 + QUIET).min(self.since + AT_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_something_has_longer_but_not_for_ever() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut closing = Closing::new(start, 7);
        assert_eq!(closing.deadline(at(0), 7), at(1_000));
        assert_eq!(closing.deadline(at(900), 7), at(1_000), "nothing was taken");
        assert_eq!(closing.deadline(at(900), 8), at(1_900));
        assert_eq!(closing.deadline(at(1_500), 8), at(1_900));
        assert_eq!(closing.deadline(at(59_500), 9), at(60_000));
        assert_eq!(closing.deadline(at(60_000), 10), at(60_000));
    }
}

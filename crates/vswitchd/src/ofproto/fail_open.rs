//! What a bridge in fail mode `standalone` does when its controllers cannot be reached: after three times the
//! longest probe interval without any of those to which it connects, it discards their rules and switches by
//! itself until one is back.
//!
//! Source: ovs-vswitchd.conf.db(5), `fail_mode`.

use super::link::{Kind, Link};
use super::own_rule::OwnRule;
use flow::Match;
use std::time::{Duration, Instant};

/// Priority of the rule, above those for in-band control, as Open vSwitch has it.
const PRIORITY: i32 = 0xf0f0f0;
/// The interval that is assumed if every row switches its probes off.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Time between two log lines while it lasts.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    None,
    /// It takes over: rules are removed, and its own is added.
    Entered,
    /// A controller is back, or the mode changed: its rule goes.
    Left,
}

/// Whether it has taken over.
#[derive(Default)]
pub(crate) struct FailOpen {
    is_open: bool,
    /// How long controllers had been away at the last log line.
    told: Duration,
}

/// The rule with which it switches.
pub(crate) fn rule() -> OwnRule {
    OwnRule { priority: PRIORITY, matching: Match::any(), queue_id: None }
}

impl FailOpen {
    pub fn run<'a>(
        &mut self,
        standalone: bool,
        links: impl Iterator<Item = &'a Link>,
        now: Instant,
    ) -> Change {
        // As in Open vSwitch, of those that connect to the switch nobody knows whether they fail.
        let active = links.filter(|l| l.is_primary() && !matches!(l.kind(), Kind::Passive(_)));
        let primaries: Vec<(Duration, Option<Duration>)> =
            active.map(|l| (l.failing_for(now), l.named_interval())).collect();
        self.judge(standalone, &primaries)
    }

    /// `primaries`: for how long each has been away, and its probe interval.
    fn judge(&mut self, standalone: bool, primaries: &[(Duration, Option<Duration>)]) -> Change {
        let away = primaries.iter().map(|p| p.0).min();
        let patience = 3 * primaries.iter().filter_map(|p| p.1).max().unwrap_or(PROBE_INTERVAL);
        let wants = standalone
            && match away {
                None | Some(Duration::ZERO) => false,
                Some(away) => self.is_open || away >= patience,
            };
        match (self.is_open, wants) {
            (false, true) => {
                let seconds = away.unwrap_or_default().as_secs();
                tracing::warn!(
                    target: "fail_open",
                    "Could not connect to controller (or switch failed controller's post-connection admission \
                     control policy) for {seconds} seconds, failing open"
                );
                self.is_open = true;
                self.told = away.unwrap_or_default();
                Change::Entered
            }
            (true, false) => {
                tracing::warn!(target: "fail_open", "No longer in fail-open mode");
                self.is_open = false;
                Change::Left
            }
            (true, true) => {
                let away = away.unwrap_or_default();
                if away > self.told + TOLD_EVERY {
                    self.told = away;
                    tracing::info!(
                        target: "fail_open",
                        "Still in fail-open mode after {} seconds disconnected from controller", away.as_secs()
                    );
                }
                Change::None
            }
            (false, false) => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_over_after_three_probe_intervals_and_until_one_is_back() {
        let s = Duration::from_secs;
        let mut f = FailOpen::default();
        let away = |n, m| [(s(n), Some(s(5))), (s(m), Some(s(7)))];
        assert_eq!(f.judge(true, &away(20, 30)), Change::None, "21 seconds are three times the longest");
        assert_eq!(f.judge(true, &away(21, 31)), Change::Entered);
        assert_eq!(f.judge(true, &away(22, 32)), Change::None);
        assert_eq!(f.judge(true, &away(0, 33)), Change::Left);
        assert_eq!(f.judge(true, &away(0, 99)), Change::None, "one is enough");
        assert_eq!(f.judge(true, &away(21, 99)), Change::Entered);
        assert_eq!(f.judge(false, &away(23, 99)), Change::Left, "secure");
        assert_eq!(f.judge(false, &away(99, 99)), Change::None);
        assert_eq!(f.judge(true, &[]), Change::None, "no controller: the visible rule does it");
        assert_eq!(f.judge(true, &[(s(15), None)]), Change::Entered, "without probes");
        assert_eq!(f.judge(true, &[]), Change::Left);
    }
}

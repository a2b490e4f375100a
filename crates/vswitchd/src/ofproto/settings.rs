//! Interprets configuration rows for connections: versions, probes and limits.

use super::sched::Limits;
use crate::config::wanted::{self, BridgeSettings};
use openflow::VersionSet;
use std::time::Duration;

/// Silence after which the peer is probed, if the row sets none.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest probe interval.
const PROBE_INTERVAL_MIN: Duration = Duration::from_secs(5);

/// OpenFlow versions for a bridge. The configuration leaves out versions that we do not implement, unless
/// there are no others: then every connection ends with its hello.
pub(crate) fn versions(settings: &BridgeSettings) -> VersionSet {
    settings.protocols.unwrap_or(VersionSet::SUPPORTED)
}

/// How long a peer may be silent before it is probed; `None`: never.
pub(crate) fn probe_interval(row: &wanted::Controller) -> Option<Duration> {
    match row.inactivity_probe_ms {
        Some(0) => None,
        Some(ms) => Some(Duration::from_millis(ms).max(PROBE_INTERVAL_MIN)),
        None => Some(PROBE_INTERVAL),
    }
}

/// The interval that the row names, in whole seconds: what fail-open counts by, as in Open vSwitch, but at
/// least one second. `None`: never; there, both are no time at all, and a bridge fails open at once.
pub(crate) fn named_interval(row: &wanted::Controller) -> Option<Duration> {
    match row.inactivity_probe_ms {
        Some(0) => None,
        Some(ms) => Some(Duration::from_secs((ms / 1_000).max(1))),
        None => Some(PROBE_INTERVAL),
    }
}

/// A row's limits on packets.
pub(crate) fn limits(row: &wanted::Controller) -> Option<Limits> {
    Some(Limits::new(row.rate_limit?, row.burst_limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_probed_every_five_seconds_at_most_but_fail_open_counts_by_what_is_configured() {
        for (inactivity_probe_ms, probed, counted) in [
            (None, Some(5_000), Some(5)),
            (Some(0), None, None),
            (Some(500), Some(5_000), Some(1)),
            (Some(1_999), Some(5_000), Some(1)),
            (Some(9_500), Some(9_500), Some(9)),
        ] {
            let row = wanted::Controller { inactivity_probe_ms, ..wanted::Controller::new("tcp:127.0.0.1") };
            assert_eq!(probe_interval(&row), probed.map(Duration::from_millis), "{inactivity_probe_ms:?}");
            assert_eq!(named_interval(&row), counted.map(Duration::from_secs), "{inactivity_probe_ms:?}");
        }
    }
}

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

/// A row's limits on packets.
pub(crate) fn limits(row: &wanted::Controller) -> Option<Limits> {
    Some(Limits::new(row.rate_limit?, row.burst_limit))
}

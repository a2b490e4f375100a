//! What rows of the configuration mean for connections: versions, probes and limits.

use super::sched::Limits;
use crate::config::wanted::{self, BridgeSettings};
use openflow::VersionSet;
use std::time::Duration;

/// Silence after which the peer is asked whether it lives, where the row says nothing.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest probe interval.
const PROBE_INTERVAL_MIN: Duration = Duration::from_secs(5);

/// Versions of OpenFlow that a bridge is to speak. The configuration leaves out what we do not speak, unless
/// there is nothing else: then every connection ends with its hello.
pub(crate) fn versions(settings: &BridgeSettings) -> VersionSet {
    settings.protocols.unwrap_or(VersionSet::SUPPORTED)
}

/// Silence after which the peer of a row is probed; `None`: never.
pub(crate) fn probe_interval(row: &wanted::Controller) -> Option<Duration> {
    match row.inactivity_probe_ms {
        Some(0) => None,
        Some(ms) => Some(Duration::from_millis(ms).max(PROBE_INTERVAL_MIN)),
        None => Some(PROBE_INTERVAL),
    }
}

/// The limits on packets of a row.
pub(crate) fn limits(row: &wanted::Controller) -> Option<Limits> {
    Some(Limits::new(row.rate_limit?, row.burst_limit))
}

//! Log lines about memory: the peak usage of the process after ten seconds, and again whenever that has grown
//! by half, with a breakdown. Texts and times are Open vSwitch's.

use std::time::{Duration, Instant};
use transport::clock;

/// Time between two checks.
const INTERVAL: Duration = Duration::from_secs(10);

/// Looks again and again. `usage` tells what memory is used for.
pub(crate) async fn watch_memory(mut usage: impl FnMut() -> String) {
    let started = clock::now();
    let mut told = None;
    loop {
        clock::sleep_until(clock::now() + INTERVAL).await;
        let Some(peak_kb) = host::sysstats::peak_resident_kb() else { return };
        let now = clock::now();
        if let Some(text) = news(told, peak_kb, now, started) {
            told = Some((now, peak_kb));
            tracing::info!(target: "memory", "{text}");
            tracing::info!(target: "memory", "{}", usage().trim_end());
        }
    }
}

/// What to report, if anything. `told`: when it was last reported, and the usage at that time.
fn news(told: Option<(Instant, u64)>, peak_kb: u64, now: Instant, started: Instant) -> Option<String> {
    let since = |then| now.saturating_duration_since(then).as_secs_f64();
    match told {
        None => Some(format!("{peak_kb} kB peak resident set size after {:.1} seconds", since(started))),
        Some((_, before_kb)) if 2 * peak_kb < 3 * before_kb => None,
        Some((then, before_kb)) => Some(format!(
            "peak resident set size grew {:.0}% in last {:.1} seconds, from {before_kb} kB to {peak_kb} kB",
            (peak_kb as f64 / before_kb as f64 - 1.0) * 100.0,
            since(then)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_first_and_when_it_has_grown_by_half() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let first = news(None, 20_000, at(10), start).unwrap();
        assert_eq!(first, "20000 kB peak resident set size after 10.0 seconds");
        assert_eq!(news(Some((at(10), 20_000)), 29_999, at(30), start), None);
        let grown = news(Some((at(10), 20_000)), 30_000, at(30), start).unwrap();
        assert_eq!(grown, "peak resident set size grew 50% in last 20.0 seconds, from 20000 kB to 30000 kB");
    }
}

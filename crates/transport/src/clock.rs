//! Waiting for deadlines on a clock that `time/stop` and `time/warp` bend.

use std::time::{Duration, Instant};
use tokio::sync::Notify;

pub use base::clock::now;

/// Rung when time was bent.
static BENT: Notify = Notify::const_new();

/// Stops time. It moves by [`warp`] alone from now on.
pub fn stop() {
    base::clock::stop();
    BENT.notify_waiters();
}

/// Moves time forward, and wakes tasks whose deadline has passed.
pub fn warp(ms: u64) {
    base::clock::warp(ms);
    BENT.notify_waiters();
}

/// Waits until [`now`] is `deadline` or later; without a deadline for ever.
pub async fn sleep_until(deadline: impl Into<Option<Instant>>) {
    let Some(deadline) = deadline.into() else { return std::future::pending().await };
    loop {
        // Registered before the clock is read, so that no bend is missed.
        let bent = BENT.notified();
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            // Lets sockets have their turn: a loop that waits for a past moment would otherwise keep the
            // thread for ever.
            return tokio::task::yield_now().await;
        }
        // While time is stopped, only a warp can end this wait; the clock is checked now and then all the
        // same.
        let standing = base::clock::stopped_tsc() != u64::MAX;
        let nap = if standing { left.max(Duration::from_secs(1)) } else { left };
        tokio::select! {
            () = bent => {}
            () = tokio::time::sleep(nap) => {}
        }
    }
}

//! What commands wait for: workers, and changes of tables, in steps of about a millisecond, between which the
//! control thread serves everybody else.

use crate::state::Shared;
use std::time::{Duration, Instant};

/// How long a command waits for the workers' counters. A worker that is saturated and caches a million flows
/// ends the round that is open and then another, in less than a second each.
const FOLD_WAIT: Duration = Duration::from_secs(3);
/// How long to wait for workers by yielding before sleeping in between.
const YIELDING: Duration = Duration::from_micros(500);

/// Waits until something is there, or the time has run out.
pub(super) async fn wait_for<T>(most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        match since.elapsed() {
            waited if waited > most => return None,
            waited if waited < YIELDING => tokio::task::yield_now().await,
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Makes all workers fold their counters, and waits for that for a limited time.
pub(super) async fn counters(shared: &Shared) {
    let ticket = shared.borrow_mut().plane.dp.request_fold();
    wait_for(FOLD_WAIT, || shared.borrow().plane.dp.fold_done(ticket).then_some(())).await;
}

/// Waits while tables are being changed in turns: what shows them would show them half changed.
pub(super) async fn tables(shared: &Shared) {
    until(|| !shared.borrow().tables_are_changing()).await;
}

/// Waits until work that goes on in turns is done.
pub(super) async fn until(is_done: impl Fn() -> bool) {
    while !is_done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

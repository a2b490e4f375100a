//! Commands that take long or wait for workers: begun at once, and gone on with in slices of a millisecond or
//! so, between which the control thread serves everybody else.

use super::datapath::FlowDump;
use super::dummy::Frames;
use super::switching::RuleDump;
use super::time::Warp;
use crate::service::Shared;
use std::time::{Duration, Instant};

/// How long a command waits for the workers' counters. A worker that is saturated and caches a million flows
/// ends the round that is open and then another, in less than a second each.
const FOLD_WAIT: Duration = Duration::from_secs(3);
/// How long to wait for workers by yielding before sleeping in between.
const YIELDING: Duration = Duration::from_micros(500);

/// What a command has begun.
pub(crate) enum Begun {
    /// Time is moved by hand.
    Warp(Warp),
    /// Frames are received by a dummy.
    Frames(Frames),
    /// Cached flows are dumped.
    Flows(Box<FlowDump>),
    /// A bridge's rules are dumped.
    Rules(Box<RuleDump>),
}

impl Begun {
    /// Goes on until it is done. `result` is what the command has said.
    pub async fn run(self, shared: &Shared, result: Result<String, String>) -> Result<String, String> {
        match self {
            Begun::Warp(warp) => {
                warp.run(shared).await;
                result
            }
            Begun::Frames(frames) => frames.run(shared).await.and(result),
            Begun::Flows(dump) => dump.run(shared).await,
            Begun::Rules(dump) => Ok(dump.run(shared).await),
        }
    }
}

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

/// Has all workers fold their counters, and waits for that, but not for ever.
pub(super) async fn counters(shared: &Shared) {
    let ticket = shared.borrow_mut().dp.request_fold();
    wait_for(FOLD_WAIT, || shared.borrow().dp.fold_done(ticket).then_some(())).await;
}

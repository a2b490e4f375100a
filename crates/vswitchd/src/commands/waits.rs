//! What commands wait for: workers, and changes of tables, in steps of about a millisecond, between which the
//! control thread serves everybody else.

use crate::state::{Shared, Vswitch};
use datapath::DumpedFlow;
use std::time::{Duration, Instant};

/// How long a command waits for the workers' counters. A worker that is saturated and caches a million flows
/// ends the round that is open and then another, in less than a second each.
const FOLD_WAIT: Duration = Duration::from_secs(3);
/// How long a dump waits for each piece of a worker's flows.
const FLOWS_WAIT: Duration = Duration::from_secs(10);
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

/// Flows that a worker was asked for. Dropped before they have come, for want of time or since the client is
/// gone, they are forgotten when they come.
struct Piece<'a> {
    shared: &'a Shared,
    ticket: u64,
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.shared.borrow_mut().plane.dp.forget_flows(self.ticket);
    }
}

/// Calls `see` for each worker's flows, a piece at a time.
pub(super) async fn for_all_flows(
    shared: &Shared,
    mut see: impl FnMut(&Vswitch, usize, &[DumpedFlow]),
) -> Result<(), String> {
    let workers = shared.borrow().plane.dp.workers();
    for worker in 0..workers {
        let mut from = Some(0);
        while let Some(at) = from {
            // Workers may be exchanged meanwhile.
            let Some(ticket) = shared.borrow_mut().plane.dp.request_flows(worker, at) else { break };
            let piece = Piece { shared, ticket };
            let take = || shared.borrow_mut().plane.dp.take_flows(piece.ticket);
            let Some((flows, next)) = wait_for(FLOWS_WAIT, take).await else {
                return Err(format!("{} did not answer", shared.borrow().workers.thread_name(worker)));
            };
            see(&shared.borrow(), worker, &flows);
            from = next;
        }
    }
    Ok(())
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

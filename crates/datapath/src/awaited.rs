//! Commands that workers have not answered yet.
//!
//! Each command that expects an answer has a unique ticket, which the answer carries, so a late answer is
//! never mistaken for the answer to a later command. A worker that takes longer than [`PATIENCE`] is reported
//! once per command.
//!
//! Pure: the time is an argument. Thread: the control thread.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a worker may take to answer before it is reported. Workers look for commands in every pass;
/// packets of the control thread that were sent before take their turn first.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A worker that does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overdue {
    /// The worker's number.
    pub worker: usize,
    /// What the command asked for.
    pub what: &'static str,
    /// How long ago.
    pub waited: Duration,
}

struct Asked {
    worker: usize,
    what: &'static str,
    since: Instant,
    is_told: bool,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Awaited {
    last: u64,
    asked: BTreeMap<u64, Asked>,
}

impl Awaited {
    /// Records a command to a worker and returns its ticket.
    pub fn ask(&mut self, worker: usize, what: &'static str, now: Instant) -> u64 {
        self.last += 1;
        self.asked.insert(self.last, Asked { worker, what, since: now, is_told: false });
        self.last
    }

    /// Records that the answer has arrived.
    pub fn answered(&mut self, ticket: u64) {
        self.asked.remove(&ticket);
    }

    /// Whether all of these commands have been answered.
    pub fn have_answered(&self, tickets: &[u64]) -> bool {
        tickets.iter().all(|ticket| !self.asked.contains_key(ticket))
    }

    /// The workers that have not yet answered some of these commands.
    pub fn who_is_to_answer(&self, tickets: &[u64]) -> Vec<usize> {
        let mut workers: Vec<usize> =
            tickets.iter().filter_map(|ticket| Some(self.asked.get(ticket)?.worker)).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }

    /// The worker has ended and will answer nothing more.
    pub fn ended(&mut self, worker: usize) {
        self.asked.retain(|_, asked| asked.worker != worker);
    }

    /// The workers that are overdue, each command reported once.
    pub fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for asked in self.asked.values_mut() {
            let waited = now.saturating_duration_since(asked.since);
            if waited >= PATIENCE && !std::mem::replace(&mut asked.is_told, true) {
                overdue.push(Overdue { worker: asked.worker, what: asked.what, waited });
            }
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_within_a_second_is_reported_once() {
        let start = Instant::now();
        let mut awaited = Awaited::default();
        let (one, other) = (awaited.ask(0, "a port's queues", start), awaited.ask(3, "flows", start));
        assert!(!awaited.have_answered(&[one, other]));
        assert_eq!(awaited.overdue(start + Duration::from_millis(999)), []);
        awaited.answered(one);
        let waited = Duration::from_secs(2);
        assert_eq!(awaited.overdue(start + waited), [Overdue { worker: 3, what: "flows", waited }]);
        assert_eq!(awaited.overdue(start + 2 * waited), []);
        assert!(awaited.have_answered(&[one]) && !awaited.have_answered(&[other]));
        let late = awaited.ask(3, "flows", start);
        assert_ne!(late, other);
        awaited.ended(3);
        assert!(awaited.have_answered(&[other, late]));
    }
}

//! What has vanished, on its way to final counters.

use base::PortNo;
use std::collections::VecDeque;
use switch::RetiredSlots;
use switch::control::Removal;

/// What is under way.
#[derive(Default)]
pub(crate) struct Schedule {
    /// Vanished, and waiting for workers to pass: ticket.
    pub passing: Option<(u64, Finals)>,
    /// Passed, and waiting for a fold to be asked for.
    pub passed: Finals,
    /// A fold that was asked for: ticket, when, and whose counters it makes final.
    pub fold: Option<(u64, u64, Finals)>,
    /// What is final, and waits to be told and given back.
    pub finished: Finals,
    /// Rules are to be expired as of then, on counters that are folded.
    pub expiring: Option<u64>,
    pub last_fold_ms: u64,
    /// The next port to look at.
    pub watched: PortNo,
    /// When the operator was last told of a translation that failed.
    pub failure_told_ms: Option<u64>,
}

/// Removed rules that are told of in one turn.
const REMOVALS_AT_ONCE: usize = 256;
/// Slots that are cleared in one turn.
const SLOTS_AT_ONCE: usize = 4_096;

/// What becomes final together.
#[derive(Default)]
pub(crate) struct Finals {
    pub removals: VecDeque<Removal>,
    /// Those given up first come first: another may inherit from them.
    pub slots: VecDeque<RetiredSlots>,
}

impl Finals {
    pub fn is_empty(&self) -> bool {
        self.removals.is_empty() && self.slots.is_empty()
    }

    /// Takes some of it: a piece that is dealt with in less than a millisecond.
    pub fn take_some(&mut self) -> Finals {
        let removals = self.removals.drain(..self.removals.len().min(REMOVALS_AT_ONCE)).collect();
        let slots = self.slots.front_mut().map(|slots| slots.take(SLOTS_AT_ONCE));
        if self.slots.front().is_some_and(|slots| slots.slots().is_empty()) {
            self.slots.pop_front();
        }
        Finals { removals, slots: slots.into_iter().collect() }
    }

    pub fn append(&mut self, mut other: Finals) {
        // A million are not copied where there are none.
        if self.removals.is_empty() {
            self.removals = std::mem::take(&mut other.removals);
        }
        self.removals.append(&mut other.removals);
        self.slots.append(&mut other.slots);
    }
}

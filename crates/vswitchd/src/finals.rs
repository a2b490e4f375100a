//! What has vanished, on its way to final counters.

use base::PortNo;
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
    pub last_fold_ms: u64,
    /// The next port to look at.
    pub watched: PortNo,
    /// When the operator was last told of a translation that failed.
    pub failure_told_ms: Option<u64>,
}

/// What becomes final together.
#[derive(Default)]
pub(crate) struct Finals {
    pub removals: Vec<Removal>,
    pub slots: Vec<RetiredSlots>,
}

impl Finals {
    pub fn is_empty(&self) -> bool {
        self.removals.is_empty() && self.slots.is_empty()
    }

    pub fn append(&mut self, mut other: Finals) {
        self.removals.append(&mut other.removals);
        self.slots.append(&mut other.slots);
    }
}

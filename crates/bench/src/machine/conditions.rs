//! What this measurement's switches were given, for its rows: switches are compared where it is equal.

use crate::machine::huge_pages::taken_by;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The batch of every switch in which it can be set: Open vSwitch's build fixes it (NETDEV_MAX_BURST).
pub const BURST: usize = 32;

/// By switch.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Conditions {
    /// Sizes of huge pages that it has taken.
    pub huge_pages: BTreeMap<&'static str, String>,
    /// The most packets that it receives at once.
    pub batch: BTreeMap<&'static str, usize>,
}

static NOTED: Mutex<Conditions> =
    Mutex::new(Conditions { huge_pages: BTreeMap::new(), batch: BTreeMap::new() });

/// Notes what the process of a switch has.
pub fn note(switch: &'static str, pid: u32, batch: usize) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.huge_pages.insert(switch, taken_by(pid));
    noted.batch.insert(switch, batch);
}

/// What was noted.
pub fn noted() -> Conditions {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

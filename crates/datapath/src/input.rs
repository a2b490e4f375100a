//! An input port, as each of its receive queues has it: what the packet path needs of the port, so that
//! nothing is looked up by its number.

use crate::stats::PortCounters;
use crate::tuner::{ExactTier, Tuner};
use base::PortNo;
use std::sync::Arc;

/// See the module's text.
pub struct Input {
    /// Which port.
    pub port: PortNo,
    /// This worker's counters of packets that come in there; `None` as long as nobody has given it any.
    pub counters: Option<Arc<PortCounters>>,
    /// Which tier of the caches is asked first.
    pub tuner: Tuner,
}

impl Input {
    pub fn new(port: PortNo, counters: Option<Arc<PortCounters>>, exact_tier: ExactTier) -> Box<Input> {
        Box::new(Input { port, counters, tuner: Tuner::new(exact_tier) })
    }
}

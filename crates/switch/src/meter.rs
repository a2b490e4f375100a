//! The meters of a bridge. The datapath applies them to packets.

use crate::numbered::{Numbered, NumberedTable};
use crate::topology::BridgeIdx;
use datapath::meter::MeterRef;
use openflow::message::MeterConfig;

/// A meter in force. A modification creates a new one, with full buckets and counters of 0.
#[derive(Debug)]
pub struct Meter {
    /// Its bridge.
    pub bridge: BridgeIdx,
    /// As its owner defined it.
    pub config: MeterConfig,
    /// When it was added. A modification does not change that.
    pub created_ms: u64,
    /// Its buckets and counters.
    pub state: MeterRef,
}

impl Numbered for Meter {
    fn number(&self) -> u32 {
        self.config.meter_id
    }
}

/// The shared meters of one bridge.
pub(crate) type MeterTable = NumberedTable<Meter>;

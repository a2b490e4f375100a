//! What commands remember from one call to the next, and nobody else asks for.

use crate::hand_datapath::HandDatapath;
use crate::history::History;
use std::collections::{BTreeMap, HashMap};

/// See the module's text.
pub(crate) struct CommandState {
    /// What `coverage/show` says of the past.
    pub coverage: History,
    /// Datapaths that tests have made beside that of the bridges.
    pub hand_datapaths: BTreeMap<String, HandDatapath>,
    /// Whether flows may be put in that contradict the tables, as tests do.
    pub is_revalidation_paused: bool,
    /// What `dpif-netdev/subtable-lookup-prio-set` gave the one way in which masks are searched.
    pub lookup_priority: u8,
    /// Actions of the flows that the log has seen, by their unique ids, while new ones are logged.
    pub logged_flows: Option<HashMap<String, String>>,
    /// When the operator was last told of a translation that failed.
    pub failure_told_ms: Option<u64>,
}

impl Default for CommandState {
    fn default() -> CommandState {
        CommandState {
            coverage: History::default(),
            hand_datapaths: BTreeMap::new(),
            is_revalidation_paused: false,
            lookup_priority: 1,
            logged_flows: None,
            failure_told_ms: None,
        }
    }
}

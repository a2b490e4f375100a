//! State that only commands need, from one call to the next.

use crate::hand_datapath::HandDatapath;
use crate::history::History;
use crate::janitor::Fate;
use crate::logged_flows::LoggedFlows;
use std::collections::BTreeMap;

/// See the module documentation.
pub(crate) struct CommandState {
    /// The history for `coverage/show`.
    pub coverage: History,
    /// Datapaths that tests have added to that of the bridges.
    pub hand_datapaths: BTreeMap<String, HandDatapath>,
    /// Whether flows that contradict the tables may be added manually, as tests do.
    pub is_revalidation_paused: bool,
    /// The priority that `dpif-netdev/subtable-lookup-prio-set` gave the only way in which masks are
    /// searched.
    pub lookup_priority: u8,
    /// The flows that the log has seen, while new ones are logged.
    pub logged_flows: LoggedFlows,
    /// When a failed translation was last reported to the operator.
    pub failure_told_ms: Option<u64>,
    /// Set by `exit`: what becomes of devices that the switch has made.
    pub ending: Option<Fate>,
}

impl Default for CommandState {
    fn default() -> CommandState {
        CommandState {
            coverage: History::default(),
            hand_datapaths: BTreeMap::new(),
            is_revalidation_paused: false,
            lookup_priority: 1,
            logged_flows: LoggedFlows::default(),
            failure_told_ms: None,
            ending: None,
        }
    }
}

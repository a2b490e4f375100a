//! What translations request from the control side.

use crate::flow_mod::FlowMod;
use crate::topology::BridgeIdx;
use base::PortNo;
use flow::Key;

/// A request by a translation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// An address was seen at a port where it was not known.
    Learn {
        /// The bridge.
        bridge: BridgeIdx,
        /// The VLAN.
        vlan: u16,
        /// The address, in the low 48 bits.
        mac: u64,
        /// The port.
        port: PortNo,
    },
    /// Lower a rule's timeouts.
    FinTimeout(FinTimeout),
    /// Add or modify a rule before the packet continues.
    LearnRule(Box<LearnedRule>),
    /// Replaces `LearnRule` in translations by workers: the packet goes to the control thread, which learns
    /// the bridge's rule. Workers do not pass this effect on.
    ToLearn(BridgeIdx),
    /// No rule is added, since there are as many with the cookie in the table as `learn` allows. Only in
    /// translations for the control thread.
    LimitReached {
        /// The bridge.
        bridge: BridgeIdx,
        /// The table.
        table_id: u8,
        /// The cookie.
        cookie: u64,
        /// How many.
        limit: u32,
    },
    /// A rule was learned again; the effect names the slot that records this. Only in translations for the
    /// control thread, because workers credit the slot directly.
    LearnedAgain(u32),
    /// The translation of this packet failed, and the operator must be told.
    Failed(Box<Key>),
}

/// The rule that `learn` derives from a packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LearnedRule {
    /// The bridge.
    pub bridge: BridgeIdx,
    /// The change.
    pub flow_mod: FlowMod,
    /// Maximum number of rules with its cookie in its table; 0 for no limit.
    pub limit: u32,
}

/// A packet with FIN or RST has matched a rule with `fin_timeout`: which rule, and the timeouts in seconds, 0
/// for no change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct FinTimeout {
    pub bridge: BridgeIdx,
    pub table_id: u8,
    pub idx: u32,
    pub serial: u64,
    pub idle_s: u16,
    pub hard_s: u16,
}

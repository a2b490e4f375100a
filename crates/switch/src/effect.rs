//! What translations ask the control side to do.

use crate::flow_mod::FlowMod;
use crate::topology::BridgeIdx;
use base::PortNo;
use flow::Key;

/// What a translation wants written down.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// An address was seen at a port where it was not known to be.
    Learn {
        /// Of which bridge.
        bridge: BridgeIdx,
        /// In which VLAN.
        vlan: u16,
        /// The address, in the low 48 bits.
        mac: u64,
        /// Where.
        port: PortNo,
    },
    /// A rule's timeouts are to be lowered.
    FinTimeout(FinTimeout),
    /// A rule is to be added or modified, before the packet goes on.
    LearnRule(Box<LearnedRule>),
    /// In its place in translations by workers: the packet goes to the control thread, which learns the
    /// bridge's rule. No worker hands it on.
    ToLearn(BridgeIdx),
    /// A rule was learned once more, which the slot says that it has for that. Only in translations for the
    /// control thread: workers credit the slot.
    LearnedAgain(u32),
    /// The translation of this packet failed, and the operator is to be told.
    Failed(Box<Key>),
}

/// What `learn` makes of a packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LearnedRule {
    /// Of which bridge.
    pub bridge: BridgeIdx,
    /// The change.
    pub flow_mod: FlowMod,
    /// Most rules with its cookie in its table; 0 for no limit.
    pub limit: u32,
}

/// A packet with FIN or RST has passed a rule with `fin_timeout`: which rule, and to how many seconds, 0 for
/// as it is.
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

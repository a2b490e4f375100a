//! What the datapath does to a packet: the flat list that a translation yields, with all tables, registers
//! and decisions resolved.

use crate::conntrack::Request;
use crate::hash::PacketHash;
use crate::packet_type;
use base::{DropReason, PortNo};
use flow::action::PacketInReason;
use flow::{FieldId, Key};
use std::sync::Arc;

use crate::meter::MeterRef;

/// One step. A list that ends without an output drops the packet; the translator says why with a last
/// [`DpAction::Drop`].
#[derive(Clone, PartialEq, Debug)]
pub enum DpAction {
    /// Send to a port. All but the last output of a list copy the packet.
    Output(PortNo),
    /// Send at most `max_bytes` of the packet to a port.
    OutputTrunc {
        /// Where to.
        port: PortNo,
        /// Longest frame, in bytes, at least 14.
        max_bytes: u32,
    },
    /// Set the bits of `mask` of a header field (checksums follow) or of `PktMark`, `SkbPriority`, `DpHash`,
    /// `PacketType`. A packet that lacks the header stays as it is.
    Set {
        /// A field of the packet's headers; VLAN fields change the outer tag.
        field: FieldId,
        /// New bits.
        value: u128,
        /// Which bits.
        mask: u128,
    },
    /// Push a VLAN tag in front of any existing ones.
    PushVlan {
        /// 0x8100 or 0x88a8.
        tpid: u16,
        /// Tag control information; bit 0x1000 (present) is not sent.
        tci: u16,
    },
    /// Remove the outer VLAN tag, if any.
    PopVlan,
    /// Push an MPLS label stack entry behind Ethernet and VLAN tags.
    PushMpls {
        /// New Ethernet type, 0x8847 or 0x8848.
        eth_type: u16,
        /// Label (20 bits), traffic class (3), bottom of stack (1), time to live (8).
        lse: u32,
    },
    /// Remove the first label stack entry; the Ethernet type becomes this one.
    PopMpls {
        /// Type of what lies behind.
        eth_type: u16,
    },
    /// Push an MPLS label stack entry in front of all headers. From here on the packet is an MPLS packet.
    AddMpls {
        /// 0x8847 or 0x8848.
        eth_type: u16,
        /// As in [`DpAction::PushMpls`].
        lse: u32,
    },
    /// Push an Ethernet header in front of a packet that has none.
    PushEth {
        /// Source address.
        src: u64,
        /// Destination address.
        dst: u64,
        /// Ethernet type of the packet's first header.
        eth_type: u16,
    },
    /// Remove the Ethernet header.
    PopEth {
        /// The Ethernet type that the removed header must name.
        eth_type: u16,
    },
    /// Push this network service header in front of all headers.
    PushNsh(Arc<[u8]>),
    /// Remove the network service header that the packet begins with.
    PopNsh {
        /// The packet type of what follows the header.
        packet_type: u32,
    },
    /// Drop the packets that exceed a rate, or raise their drop precedence.
    Meter(MeterRef),
    /// Compute the packet's hash, masked, and keep it with the packet.
    Hash(PacketHash),
    /// Recirculate: extract and look up again under this recirculation id. The following actions work on a
    /// copy.
    Recirc(u32),
    /// Track the packet's connection. The packet carries the tracker's result from here on.
    Ct(Arc<Request>),
    /// Forget the tracker's result.
    CtClear,
    /// Execute `actions` on a copy, with a probability of `probability` in 2^32.
    Sample {
        /// Out of 2^32; `u32::MAX` means always.
        probability: u32,
        /// What to do with the copy.
        actions: Vec<DpAction>,
    },
    /// Execute on a copy; changes do not carry over.
    Clone(Vec<DpAction>),
    /// Execute one of two lists on a copy, depending on its length.
    CheckPktLen {
        /// In bytes, from the Ethernet header on, without padding.
        length: u16,
        /// For packets that are longer.
        greater: Vec<DpAction>,
        /// For all others.
        others: Vec<DpAction>,
    },
    /// Send (a copy of) the packet to the control thread.
    PacketIn(Arc<PacketInSpec>),
    /// Drop the packet, for this reason. Ends the list.
    Drop(DropReason),
}

/// What the control thread needs to turn a packet into a packet-in.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketInSpec {
    /// The bridge, by the pipeline's number.
    pub bridge: u32,
    /// Table of the rule.
    pub table_id: u8,
    /// Cookie of the rule, all ones if it has none.
    pub cookie: u64,
    /// Why.
    pub reason: PacketInReason,
    /// The rule is its table's table-miss entry: it matches everything, at priority 0.
    pub is_table_miss: bool,
    /// There is no rule: the packet matched none.
    pub is_without_rule: bool,
    /// Maximum number of bytes to send.
    pub max_len: u16,
    /// Which controllers (Nicira's controller id), 0 by default.
    pub controller_id: u16,
    /// Bytes to pass along.
    pub userdata: Vec<u8>,
    /// The rest of the pipeline's work on the packet, if that waits for the controller.
    pub continuation: Option<Vec<u8>>,
    /// The packet is not for a controller: the control thread translates it, with `metadata` as its whole
    /// key, and executes the result.
    pub slow_path: bool,
    /// Whether to report the connection tracker's result.
    pub is_tracked: bool,
    /// The number under which an operator sees the metadata; 0 if it has none.
    pub state_id: u32,
    /// The pipeline's fields that are the same for every packet of the flow (input port, registers,
    /// metadata). Fields that differ between packets are in [`crate::PacketIn`].
    pub metadata: Key,
}

impl DpAction {
    /// The memory that it takes, in bytes, with what it refers to.
    pub(crate) fn bytes(&self) -> usize {
        let of_list = |list: &[DpAction]| -> usize { list.iter().map(DpAction::bytes).sum() };
        let beside = match self {
            DpAction::Sample { actions, .. } | DpAction::Clone(actions) => of_list(actions),
            DpAction::CheckPktLen { greater, others, .. } => of_list(greater) + of_list(others),
            DpAction::PacketIn(spec) => {
                let continuation = spec.continuation.as_ref().map_or(0, Vec::len);
                size_of::<PacketInSpec>() + spec.userdata.len() + continuation
            }
            DpAction::PushNsh(header) => header.len(),
            DpAction::Ct(request) => size_of_val(&**request),
            _ => 0,
        };
        size_of::<DpAction>() + beside
    }

    /// Whether it changes headers, and does nothing else.
    #[inline]
    pub fn is_edit(&self) -> bool {
        matches!(
            self,
            DpAction::Set { .. }
                | DpAction::PushVlan { .. }
                | DpAction::PopVlan
                | DpAction::PushMpls { .. }
                | DpAction::PopMpls { .. }
                | DpAction::AddMpls { .. }
                | DpAction::PushEth { .. }
                | DpAction::PopEth { .. }
                | DpAction::PushNsh(_)
                | DpAction::PopNsh { .. }
        )
    }

    /// The packet type after the action, if it was `before`.
    pub fn packet_type_after(&self, before: u32) -> u32 {
        match *self {
            DpAction::PushEth { .. } => packet_type::ETHERNET,
            DpAction::PopEth { eth_type } => packet_type::of_eth_type(eth_type),
            DpAction::PushNsh(_) => packet_type::of_eth_type(0x894f),
            DpAction::PopNsh { packet_type } => packet_type,
            DpAction::AddMpls { eth_type, .. } => packet_type::of_eth_type(eth_type),
            DpAction::PopMpls { .. } | DpAction::PushMpls { .. } if before == packet_type::ETHERNET => before,
            DpAction::PopMpls { eth_type } => packet_type::behind_label(eth_type),
            DpAction::PushMpls { eth_type, .. } => packet_type::of_eth_type(eth_type),
            _ => before,
        }
    }
}

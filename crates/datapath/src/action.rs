//! What the datapath does to a packet: the flat list that a translation yields, with no table, no
//! register and no decision left in it.

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
    /// Set the bits of `mask` of a header field (checksums follow) or of `PktMark`, `SkbPriority`,
    /// `PacketType`. A packet that lacks the header stays as it is.
    Set {
        /// A field of the packet's headers; VLAN fields change the outer tag.
        field: FieldId,
        /// New bits.
        value: u128,
        /// Which bits.
        mask: u128,
    },
    /// Push a VLAN tag in front of those that are there.
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
    /// Push an MPLS label stack entry in front of all headers. The packet is one of MPLS from here on.
    AddMpls {
        /// 0x8847 or 0x8848.
        eth_type: u16,
        /// As of [`DpAction::PushMpls`].
        lse: u32,
    },
    /// Push an Ethernet header in front of a packet that has none.
    PushEth {
        /// Source address.
        src: u64,
        /// Destination address.
        dst: u64,
        /// Type of what the packet begins with.
        eth_type: u16,
    },
    /// Remove the Ethernet header.
    PopEth {
        /// The type that it names.
        eth_type: u16,
    },
    /// Push this network service header in front of all headers.
    PushNsh(Arc<[u8]>),
    /// Remove the network service header that the packet begins with.
    PopNsh {
        /// The packet type of what lies behind.
        packet_type: u32,
    },
    /// Drop the packets, or raise the drop precedence of those, that are over a rate.
    Meter(MeterRef),
    /// Have the packet's hash, of which the bits of the mask are kept, go with it.
    Hash(PacketHash),
    /// Start again with extraction and lookup under this recirculation id. What follows is done with a copy.
    Recirc(u32),
    /// Track the packet's connection; what the tracker says of it goes with the packet from here on.
    Ct(Arc<Request>),
    /// Forget what the tracker has said of the packet.
    CtClear,
    /// Execute `actions` on a copy, for `probability` of 2^32 packets.
    Sample {
        /// Out of 2^32; `u32::MAX` is always.
        probability: u32,
        /// On the copy.
        actions: Vec<DpAction>,
    },
    /// Execute on a copy; changes do not carry over.
    Clone(Vec<DpAction>),
    /// Execute one list or the other on a copy, by its length.
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

/// What the control thread needs to make a packet-in of a packet that an action sent to it.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketInSpec {
    /// The bridge, by the pipeline's number.
    pub bridge: u32,
    /// Table of the rule.
    pub table_id: u8,
    /// Cookie of the rule, all ones for none.
    pub cookie: u64,
    /// Why.
    pub reason: PacketInReason,
    /// The rule that says so is its table's last resort: it matches everything, at priority 0.
    pub is_table_miss: bool,
    /// Bytes to send at most.
    pub max_len: u16,
    /// Which controllers (Nicira's controller id), 0 by default.
    pub controller_id: u16,
    /// Bytes to pass along.
    pub userdata: Vec<u8>,
    /// The rest of the pipeline's work on the packet, where that waits for the controller.
    pub continuation: Option<Vec<u8>>,
    /// It is for no controller: the control thread translates the packet, whose metadata is all of its key,
    /// and carries out what comes of it.
    pub slow_path: bool,
    /// Whether what the connection tracker has said of the packet is told.
    pub is_tracked: bool,
    /// The number by which an operator is shown the metadata; 0 where it has none.
    pub state_id: u32,
    /// The pipeline's fields as they are in every packet of the flow (input port, registers, metadata). Those
    /// that differ from packet to packet are in [`crate::PacketIn`].
    pub metadata: Key,
}

impl DpAction {
    /// The type of a packet after the action, which was of this type before.
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

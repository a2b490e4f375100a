//! Packet types (OpenFlow 1.5 section 7.2.3.11): which header a packet starts with, as a namespace in the
//! high half of a number and a type within the namespace in the low half.

/// A packet that starts with an Ethernet header.
pub const ETHERNET: u32 = 0;
/// Ethernet type for an Ethernet frame after MPLS labels.
pub const ETH_TYPE_TEB: u16 = 0x6558;

/// The type of a packet that starts with the header that an Ethernet type names.
pub const fn of_eth_type(eth_type: u16) -> u32 {
    1 << 16 | eth_type as u32
}

/// The type of what follows a label that was the packet's first header and has this Ethernet type.
pub const fn behind_label(eth_type: u16) -> u32 {
    if eth_type == ETH_TYPE_TEB { ETHERNET } else { of_eth_type(eth_type) }
}

//! Packet types (OpenFlow 1.5 section 7.2.3.11): what a packet begins with, as a namespace in the high half
//! of a number, and a type of the namespace in the low one.

/// Of a packet that begins with an Ethernet header.
pub const ETHERNET: u32 = 0;
/// Ethernet type that stands for an Ethernet frame behind MPLS labels.
pub const ETH_TYPE_TEB: u16 = 0x6558;

/// Of a packet that begins with the header that an Ethernet type names.
pub const fn of_eth_type(eth_type: u16) -> u32 {
    1 << 16 | eth_type as u32
}

/// Of what is behind a label that was the packet's first header, and is of this Ethernet type.
pub const fn behind_label(eth_type: u16) -> u32 {
    if eth_type == ETH_TYPE_TEB { ETHERNET } else { of_eth_type(eth_type) }
}

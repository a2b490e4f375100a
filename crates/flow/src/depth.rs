//! How deep extraction reads into a packet.

/// The five levels of extraction, each containing those before it.
///
/// Rules that look at the input port alone need no IPv4 header. Whatever the depth, the Ethernet type (behind
/// all VLAN tags, as Open vSwitch has it) and the IP fragment bits are extracted, because every megaflow
/// matches them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Depth {
    /// Input port, recirculation id, Ethernet type, fragment bits.
    Metadata = 0,
    /// And Ethernet addresses and VLAN tags.
    Ethernet = 1,
    /// And the network layer's header: IPv4, IPv6, ARP, MPLS, NSH.
    Network = 2,
    /// And the transport layer's: ports, flags, ICMP type and code.
    Transport = 3,
    /// And the rest: neighbour discovery, IGMP, IPv6 extension header bits, hardware addresses in ARP (which
    /// share their place with those of neighbour discovery).
    Everything = 4,
}

impl Depth {
    /// All, in ascending order.
    pub const ALL: [Depth; 5] =
        [Depth::Metadata, Depth::Ethernet, Depth::Network, Depth::Transport, Depth::Everything];
}

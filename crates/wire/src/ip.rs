//! What IPv4 and IPv6 share: protocol numbers (IANA "Assigned Internet Protocol Numbers").

use std::fmt;

/// An IP protocol number, in IPv6 also a "next header".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct IpProtocol(pub u8);

#[allow(missing_docs)] // Each constant is the protocol it names.
impl IpProtocol {
    pub const HOP_BY_HOP: Self = Self(0);
    pub const ICMP: Self = Self(1);
    pub const IGMP: Self = Self(2);
    pub const IPV4: Self = Self(4);
    pub const TCP: Self = Self(6);
    pub const UDP: Self = Self(17);
    pub const IPV6: Self = Self(41);
    pub const ROUTING: Self = Self(43);
    pub const FRAGMENT: Self = Self(44);
    pub const GRE: Self = Self(47);
    pub const ESP: Self = Self(50);
    pub const AUTH: Self = Self(51);
    pub const ICMPV6: Self = Self(58);
    pub const NO_NEXT: Self = Self(59);
    pub const DEST_OPTS: Self = Self(60);
    pub const SCTP: Self = Self(132);
    pub const UDPLITE: Self = Self(136);

    /// An extension header of IPv6 that [`crate::ipv6_ext`] walks over.
    pub fn is_ipv6_ext(self) -> bool {
        matches!(self, Self::HOP_BY_HOP | Self::ROUTING | Self::FRAGMENT | Self::AUTH | Self::DEST_OPTS)
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

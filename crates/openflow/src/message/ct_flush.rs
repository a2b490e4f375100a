//! Which tracked connections are to end (NXT_CT_FLUSH).

/// Connections for which all that is said here holds; of nothing said, all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CtFlush {
    /// The zone; none names zone 0 where a tuple is said.
    pub zone: Option<u16>,
    /// The number of the protocol over IP.
    pub protocol: Option<u8>,
    /// Whether addresses are those of IPv6, where one is said.
    pub is_ipv6: Option<bool>,
    /// Of the direction that opened the connection.
    pub original: CtTuple,
    /// Of the other direction.
    pub reply: CtTuple,
}

/// What is said of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CtTuple {
    /// Source address; of IPv4 the low 32 bits.
    pub src: Option<u128>,
    /// Destination address.
    pub dst: Option<u128>,
    /// Source port.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
    /// Identifier of ICMP.
    pub icmp_id: Option<u16>,
    /// Type of ICMP.
    pub icmp_type: Option<u8>,
    /// Code of ICMP.
    pub icmp_code: Option<u8>,
}

impl CtFlush {
    /// Whether the protocol is ICMP or ICMPv6.
    pub fn is_icmp(&self) -> bool {
        matches!(self.protocol, Some(1 | 58))
    }
}

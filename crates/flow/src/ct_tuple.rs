//! Criteria for selecting tracked connections.

/// Criteria for both directions of a connection; without any, they select all connections.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CtTuples {
    /// Whether addresses are IPv6, if any are given.
    pub is_ipv6: Option<bool>,
    /// The number of the protocol over IP.
    pub protocol: Option<u8>,
    /// The direction that opened the connection.
    pub original: CtTuple,
    /// The other direction.
    pub reply: CtTuple,
}

/// Criteria for one direction.
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

impl CtTuples {
    /// Whether the protocol is ICMP or ICMPv6.
    pub fn is_icmp(&self) -> bool {
        matches!(self.protocol, Some(1 | 58))
    }

    /// Whether it contains a complete original tuple and nothing else.
    pub fn whole_original(&self) -> bool {
        let CtTuple { src, dst, src_port, dst_port, icmp_id, icmp_type, .. } = self.original;
        let has_rest = match self.is_icmp() {
            true => icmp_id.is_some() && icmp_type.is_some(),
            false => src_port.is_some() && dst_port.is_some(),
        };
        self.protocol.is_some()
            && src.is_some()
            && dst.is_some()
            && has_rest
            && self.reply == CtTuple::default()
    }
}

//! What is said of tracked connections to choose some of them.

/// What is said of both directions of a connection; of nothing said, all connections.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CtTuples {
    /// Whether addresses are those of IPv6, where one is said.
    pub is_ipv6: Option<bool>,
    /// The number of the protocol over IP.
    pub protocol: Option<u8>,
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

impl CtTuples {
    /// Whether the protocol is ICMP or ICMPv6.
    pub fn is_icmp(&self) -> bool {
        matches!(self.protocol, Some(1 | 58))
    }

    /// Whether it says all of one original tuple and nothing else.
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

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

    /// If it contains a complete original tuple and nothing else, the one connection that it names. Of ICMP
    /// the addresses are complete, as in Open vSwitch: identifier, type and code are 0 where not given.
    pub fn of_one(&self) -> Option<CtTuples> {
        let mut one = *self;
        let CtTuples { original, reply, .. } = &mut one;
        if self.is_icmp() {
            original.icmp_id.get_or_insert_default();
            original.icmp_type.get_or_insert_default();
            original.icmp_code.get_or_insert_default();
            (reply.icmp_id, reply.icmp_type, reply.icmp_code) = (None, None, None);
        } else if original.src_port.is_none() || original.dst_port.is_none() {
            return None;
        }
        let has_addresses = original.src.is_some() && original.dst.is_some();
        (self.protocol.is_some() && has_addresses && *reply == CtTuple::default()).then_some(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_one_connection_of_icmp_and_ports_too_one_of_others() {
        let original = CtTuple { src: Some(1), dst: Some(2), ..CtTuple::default() };
        let icmp = CtTuples { protocol: Some(1), original, ..CtTuples::default() };
        let rest = CtTuple { icmp_id: Some(0), icmp_type: Some(0), icmp_code: Some(0), ..original };
        assert_eq!(icmp.of_one(), Some(CtTuples { original: rest, ..icmp }));
        let ping = CtTuple { icmp_id: Some(7), icmp_type: Some(8), ..original };
        let one = CtTuple { icmp_code: Some(0), ..ping };
        let reply = CtTuple { icmp_id: Some(7), ..CtTuple::default() };
        assert_eq!(
            CtTuples { original: ping, reply, ..icmp }.of_one(),
            Some(CtTuples { original: one, ..icmp })
        );
        let udp = CtTuples { protocol: Some(17), ..icmp };
        let with_ports = CtTuple { src_port: Some(3), dst_port: Some(4), ..original };
        assert_eq!(udp.of_one(), None);
        assert_eq!(
            CtTuples { original: with_ports, ..udp }.of_one(),
            Some(CtTuples { original: with_ports, ..udp })
        );
        let reply = CtTuple { src: Some(2), ..CtTuple::default() };
        assert_eq!(CtTuples { reply, ..icmp }.of_one(), None, "a reply, too");
        assert_eq!(CtTuples { protocol: None, original: with_ports, ..udp }.of_one(), None);
        let half = CtTuple { dst: None, ..original };
        assert_eq!(CtTuples { original: half, ..icmp }.of_one(), None);
    }
}

//! What identifies a connection: addresses, ports and protocol of one direction.
//!
//! A connection is looked up by a packet's tuple, in either direction. So a tuple and its reverse have the
//! same hash, and a connection without address translation needs one place in the index. The hash is keyed,
//! so that a sender cannot choose packets that collide.
//!
//! ICMP has no ports: the identifier stands for the source port, type and code for the destination port, and
//! the reverse of an echo request is an echo reply. Pure.

use base::hash::HashKey;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// One direction of a connection. IPv4 addresses are the low 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tuple {
    pub src: u128,
    pub dst: u128,
    /// Source port; identifier of ICMP.
    pub src_port: u16,
    /// Destination port; type (high byte) and code of ICMP.
    pub dst_port: u16,
    pub protocol: u8,
    pub is_ipv6: bool,
}

/// A tuple in a zone, as entries hold it and lookups compare it.
pub(crate) type Packed = [u64; 5];

/// The same, in the other direction.
#[inline(always)]
pub(crate) fn reversed(&[a, b, c, d, rest]: &Packed) -> Packed {
    let is_icmp = rest >> 8 & 0xff == if rest & 1 != 0 { ICMPV6 } else { ICMP }.into();
    if is_icmp {
        let (tuple, zone) = Tuple::unpacked(&[a, b, c, d, rest]);
        return tuple.reversed().packed(zone);
    }
    let ports = ((rest >> 32) as u32).rotate_left(16);
    [c, d, a, b, u64::from(ports) << 32 | rest & 0xffff_ffff]
}

/// The zone in the last word of a packed tuple.
#[inline(always)]
pub(crate) fn zone_in(rest: u64) -> u16 {
    (rest >> 16) as u16
}

/// The type of the ICMP message that answers this one; the same type if it is no query.
fn answer(protocol: u8, kind: u8) -> u8 {
    match (protocol, kind) {
        (ICMP, 8) => 0,
        (ICMP, 0) => 8,
        (ICMP, 13) => 14,
        (ICMP, 14) => 13,
        (ICMP, 15) => 16,
        (ICMP, 16) => 15,
        (ICMPV6, 128) => 129,
        (ICMPV6, 129) => 128,
        _ => kind,
    }
}

impl Tuple {
    /// Addresses and ports in wire order, as in an IPv4 packet without options.
    pub(crate) fn plain(&self) -> [u8; 12] {
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        let all = (self.src << 32 | self.dst & 0xffff_ffff) << 32 | u128::from(ports);
        *all.to_be_bytes().last_chunk().expect("of 16")
    }

    /// The tuple of the other direction.
    pub fn reversed(&self) -> Tuple {
        let (src, dst) = (self.dst, self.src);
        let (src_port, dst_port) = if self.is_icmp() {
            let [kind, code] = self.dst_port.to_be_bytes();
            (self.src_port, u16::from_be_bytes([answer(self.protocol, kind), code]))
        } else {
            (self.dst_port, self.src_port)
        };
        Tuple { src, dst, src_port, dst_port, ..*self }
    }

    /// Whether the port fields hold identifier, type and code.
    pub fn is_icmp(&self) -> bool {
        self.protocol == if self.is_ipv6 { ICMPV6 } else { ICMP }
    }

    /// Whether it has ports that address translation may change.
    pub(crate) fn has_ports(&self) -> bool {
        matches!(self.protocol, TCP | UDP)
    }

    /// Source and destination as OpenFlow matches them: ports, or ICMP's type and code.
    pub fn of_ports(&self) -> (u16, u16) {
        if self.is_icmp() {
            return (self.dst_port >> 8, self.dst_port & 0xff);
        }
        (self.src_port, self.dst_port)
    }

    /// The tuple with these [`Self::of_ports`]; the ICMP identifier is then unknown.
    pub(crate) fn of_fields(
        (src, dst): (u128, u128),
        (src_port, dst_port): (u16, u16),
        protocol: u8,
        is_ipv6: bool,
    ) -> Tuple {
        let tuple = Tuple { src, dst, src_port, dst_port, protocol, is_ipv6 };
        if tuple.is_icmp() {
            return Tuple { src_port: 0, dst_port: src_port << 8 | dst_port & 0xff, ..tuple };
        }
        tuple
    }

    pub(crate) fn packed(&self, zone: u16) -> Packed {
        let halves = |address: u128| [(address >> 64) as u64, address as u64];
        let ([a, b], [c, d]) = (halves(self.src), halves(self.dst));
        let ports = u64::from(self.src_port) << 16 | u64::from(self.dst_port);
        let rest = u64::from(zone) << 16 | u64::from(self.protocol) << 8 | u64::from(self.is_ipv6);
        [a, b, c, d, ports << 32 | rest]
    }

    /// The tuple and its zone.
    pub(crate) fn unpacked(packed: &Packed) -> (Tuple, u16) {
        let [a, b, c, d, rest] = *packed;
        let whole = |high, low| u128::from(high) << 64 | u128::from(low);
        let tuple = Tuple {
            src: whole(a, b),
            dst: whole(c, d),
            src_port: (rest >> 48) as u16,
            dst_port: (rest >> 32) as u16,
            protocol: (rest >> 8) as u8,
            is_ipv6: rest & 1 != 0,
        };
        (tuple, zone_in(rest))
    }

    /// The same for both directions: the sum of the keyed hashes of both ends.
    #[inline(always)]
    pub(crate) fn hash(&self, zone: u16, secret: &HashKey) -> u64 {
        let (of_src, of_dst, query) = if self.is_icmp() {
            let [kind, code] = self.dst_port.to_be_bytes();
            let of_both = kind.min(answer(self.protocol, kind));
            (self.src_port, self.src_port, u16::from_be_bytes([of_both, code]))
        } else {
            (self.src_port, self.dst_port, 0)
        };
        let rest = u64::from(query) << 32
            | u64::from(zone) << 16
            | u64::from(self.protocol) << 8
            | u64::from(self.is_ipv6);
        let end = |address: u128, port: u16| {
            secret.quad(&[(address >> 64) as u64, address as u64, port.into(), rest])
        };
        end(self.src, of_src).wrapping_add(end(self.dst, of_dst))
    }

    /// Whether both identify the same connection, in either direction.
    pub(crate) fn is_same_either_way(&self, other: &Tuple) -> bool {
        self == other || *self == other.reversed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn any_tuple()(src: u128, dst: u128, src_port: u16, dst_port: u16, kind in 0u8..6, is_ipv6: bool) -> Tuple {
            let protocol = [TCP, UDP, ICMP, ICMPV6, 132, 47][usize::from(kind)];
            let mask = if is_ipv6 { u128::MAX } else { u32::MAX.into() };
            Tuple { src: src & mask, dst: dst & mask, src_port, dst_port, protocol, is_ipv6 }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::cases("datapath::tuples", 2_000)))]
        #[test]
        fn both_directions_have_one_hash_and_unpack_to_what_was_packed(tuple in any_tuple(), zone: u16) {
            let secret = HashKey::from_seed(5);
            let other = tuple.reversed();
            prop_assert_eq!(other.reversed(), tuple);
            prop_assert_eq!(tuple.hash(zone, &secret), other.hash(zone, &secret));
            prop_assert_ne!(tuple.hash(zone, &secret), tuple.hash(zone ^ 1, &secret));
            let ports_swapped = Tuple { src_port: tuple.dst_port, dst_port: tuple.src_port, ..tuple };
            if !tuple.is_icmp() && tuple.src_port != tuple.dst_port && tuple.src != tuple.dst {
                prop_assert_ne!(tuple.hash(zone, &secret), ports_swapped.hash(zone, &secret));
            }
            prop_assert_eq!(Tuple::unpacked(&tuple.packed(zone)), (tuple, zone));
            prop_assert_eq!(reversed(&tuple.packed(zone)), other.packed(zone));
            prop_assert!(tuple.is_same_either_way(&other));
        }
    }

    #[test]
    fn the_reverse_of_an_echo_request_is_its_reply() {
        let request =
            Tuple { src: 1, dst: 2, src_port: 77, dst_port: 0x0800, protocol: ICMP, is_ipv6: false };
        let reply = Tuple { src: 2, dst: 1, dst_port: 0, ..request };
        assert_eq!(request.reversed(), reply);
        assert_eq!(request.of_ports(), (8, 0));
    }
}

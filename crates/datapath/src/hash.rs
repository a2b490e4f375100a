//! The packet hash by which a select group spreads packets: computed in one round, looked up in the next.
//!
//! With it a few megaflows serve many connections: one for each value that the group distinguishes.

use base::hash::{HashKey, mixed};
use base::{OfPort, PortNo};
use flow::{Depth, FieldId, Ingress, Key, extract, extract_without_link};
use packet::Packet;

/// What is hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashAlgorithm {
    /// Addresses, protocol and ports of IP.
    L4,
    /// IP addresses, protocol, and TCP or SCTP ports; for anything else, Ethernet addresses and VLANs. Both
    /// directions of a connection have the same hash, whichever routers they cross.
    SymmetricL4,
}

/// A masked hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PacketHash {
    /// What is hashed.
    pub algorithm: HashAlgorithm,
    /// Initial value.
    pub basis: u32,
    /// The bits that are kept: the lowest ones.
    pub mask: u32,
}

impl PacketHash {
    /// The hash of a packet of this type.
    pub fn of(self, packet: &Packet, packet_type: u32) -> u32 {
        let mut key = Key::default();
        let ingress = Ingress::new(OfPort(0), PortNo(0), Depth::Transport).with_packet_type(packet_type);
        if packet_type != 0 {
            extract_without_link(packet.data(), packet.len(), &ingress, &mut key);
        } else if extract(packet.data(), packet.len(), &ingress, &mut key).is_none() {
            return 0;
        }
        self.of_key(&key)
    }

    /// The hash of a packet with this key.
    pub fn of_key(self, key: &Key) -> u32 {
        use FieldId::*;
        let seed = HashKey::from_seed(self.basis.into());
        let eth_type = key.get64(EthType);
        let proto = key.get64(NwProto);
        let is_later = key.get64(NwFrag) & 2 != 0;
        let mut hash = eth_type;
        let mut add = |value: u64| hash = mixed(seed.word(hash, value));
        let wide = |value: u128| ((value >> 64) as u64) ^ mixed(value as u64);
        match self.algorithm {
            HashAlgorithm::SymmetricL4 => {
                match eth_type {
                    0x0800 => add(key.get64(NwSrc) ^ key.get64(NwDst)),
                    0x86dd => add(wide(key.get(Ipv6Src) ^ key.get(Ipv6Dst))),
                    _ => {
                        add(key.get64(EthSrc) ^ key.get64(EthDst));
                        add((key.get64(VlanTci) ^ key.get64(VlanTci2)) & 0xfff);
                    }
                }
                if matches!(eth_type, 0x0800 | 0x86dd) {
                    add(proto);
                    if matches!(proto, 6 | 132) && !is_later {
                        add(key.get64(TpSrc) ^ key.get64(TpDst));
                    }
                }
            }
            HashAlgorithm::L4 => {
                match eth_type {
                    0x0800 => add(key.get64(NwSrc) << 32 | key.get64(NwDst)),
                    0x86dd => {
                        add(wide(key.get(Ipv6Src)));
                        add(wide(key.get(Ipv6Dst)));
                    }
                    _ => {}
                }
                if matches!(eth_type, 0x0800 | 0x86dd) {
                    add(proto);
                    if matches!(proto, 6 | 17 | 132) && !is_later {
                        add(key.get64(TpSrc) << 16 | key.get64(TpDst));
                    }
                }
            }
        }
        // Packets may be very regular.
        mixed(hash) as u32 & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(src: u32, dst: u32, ports: (u16, u16)) -> Key {
        let mut key = Key::default();
        key.set(FieldId::EthType, 0x0800);
        key.set(FieldId::NwProto, 6);
        key.set(FieldId::NwSrc, src.into());
        key.set(FieldId::NwDst, dst.into());
        key.set(FieldId::TpSrc, ports.0.into());
        key.set(FieldId::TpDst, ports.1.into());
        key
    }

    const HASH: PacketHash = PacketHash { algorithm: HashAlgorithm::SymmetricL4, basis: 0, mask: 0xf };

    #[test]
    fn both_directions_have_one_hash_where_it_is_symmetric() {
        let (there, back) = (key(1, 2, (3, 4)), key(2, 1, (4, 3)));
        let whole = |algorithm| PacketHash { algorithm, mask: u32::MAX, ..HASH };
        let symmetric = whole(HashAlgorithm::SymmetricL4);
        assert_eq!(symmetric.of_key(&there), symmetric.of_key(&back));
        let mut by_another_router = there.clone();
        by_another_router.set(FieldId::EthSrc, 5);
        assert_eq!(symmetric.of_key(&there), symmetric.of_key(&by_another_router));
        let other = whole(HashAlgorithm::L4);
        assert_ne!(other.of_key(&there), other.of_key(&back));
        assert_ne!(PacketHash { basis: 1, ..other }.of_key(&there), other.of_key(&there));
    }

    #[test]
    fn regular_packets_are_spread_evenly() {
        for algorithm in [HashAlgorithm::SymmetricL4, HashAlgorithm::L4] {
            let mut counts = [0u32; 16];
            for n in 0..16_000 {
                let key = key(0x0a00_0001, 0x0a00_0100 + n % 250, (1024 + (n / 250) as u16, 80));
                counts[PacketHash { algorithm, ..HASH }.of_key(&key) as usize] += 1;
            }
            // Five standard deviations.
            assert!(counts.iter().all(|n| n.abs_diff(1000) < 160), "{counts:?}");
        }
    }
}

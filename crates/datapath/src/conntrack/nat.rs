//! Address translation: which tuple a new connection gets, and the headers of its packets.
//!
//! The addresses of a range are chosen by a keyed hash of the connection. So they are spread evenly, and the
//! same connection gets the same address again, whether or not that was asked for (`persistent`, `hash`);
//! with `random`, a port is chosen at random. If a port is taken, the next one of its range is tried. Without
//! a range of ports, a source keeps its port or gets another of the same class (below 512, below 1024,
//! ephemeral).
//!
//! In an ICMP error, the quoted packet's header is translated too, in the opposite direction. Checksums are
//! updated incrementally.
//!
//! Pure except for the packet. Source: RFC 3022, RFC 5508; ovs-actions(7).

pub use super::request::{Range, Side};
use super::seen::quoted_l4;
use super::tuple::{ICMPV6, TCP, Tuple, UDP};
use crate::action::DpAction;
use crate::edit;
use base::DropReason;
use base::hash::HashKey;
use flow::FieldId;
use packet::Packet;
use wire::Layers;
use wire::checksum::{nonzero, update16, update128};

/// How many ports are tried from one start, and how many starts.
const PORTS_TRIED: u32 = 128;
const PORTS_TRIED_LEAST: u32 = 16;
const EPHEMERAL: (u16, u16) = (1024, u16::MAX);

/// The reverse tuples that a connection may get.
pub(crate) struct Candidates {
    /// The first to try. Nearly always it is free.
    pub best: Tuple,
    /// The port to try first, and its range: for the destination if that has a range, and for the source.
    /// `None` if there are no ports.
    ports: Option<(Option<Start>, Start)>,
    random: u64,
}

/// The first port to try, and the range's lowest and highest port.
type Start = (u16, (u16, u16));

impl Candidates {
    /// The candidates for a connection with this forward tuple.
    #[inline]
    pub fn new(range: Range, forward: &Tuple, zone: u16, secret: &HashKey, random: u64) -> Candidates {
        let (low, high) = range.addresses.unwrap_or_default();
        let hash = || {
            let [a, b, c, d, e] = forward.packed(zone);
            let folded = |address: u128| address as u64 ^ (address >> 64) as u64;
            secret.block(&[a, b, c, d, e, folded(low), folded(high), 1])
        };
        let mut best = forward.reversed();
        if low != 0 {
            let address = match u64::try_from(high.saturating_sub(low)) {
                Ok(0) => low,
                Ok(span @ 1..u64::MAX) => low + u128::from(hash() % (span + 1)),
                Ok(u64::MAX) | Err(_) => low + u128::from(hash()),
            };
            match range.side {
                Side::Src => best.dst = address,
                Side::Dst => best.src = address,
            }
        }
        let start = |ports: (u16, u16)| {
            let choice = (if range.is_random { random } else { hash() >> 16 }) as u32;
            let (low, high) = ports;
            (low + (choice % (u32::from(high.saturating_sub(low)) + 1)) as u16, ports)
        };
        let source = match (range.side, range.ports) {
            (Side::Src, Some(ports)) => start(ports),
            _ => (forward.src_port, class_of(forward.src_port)),
        };
        let destination = range.ports.filter(|_| range.side == Side::Dst).map(start);
        let has_ports = forward.has_ports();
        if has_ports {
            best.dst_port = source.0;
            best.src_port = destination.map_or(forward.dst_port, |(port, _)| port);
        }
        Candidates { best, ports: has_ports.then_some((destination, source)), random }
    }

    /// Candidates to try, in order, if the best one is taken. The iterator is bounded.
    pub fn others(self) -> impl Iterator<Item = Tuple> {
        let Candidates { best, ports, random } = self;
        let with_destination = move |port| Tuple { src_port: port, ..best };
        let with_source = move |port| Tuple { dst_port: port, ..best };
        let (destination, source) = ports.unzip();
        let destinations = destination.flatten().map(|start| tried(start, random).map(with_destination));
        let sources = source.map(|start| tried(start, random).map(with_source));
        destinations.into_iter().flatten().chain(sources.into_iter().flatten()).skip(1)
    }
}

/// The class of ports from which a source port's replacement may come.
fn class_of(port: u16) -> (u16, u16) {
    match port {
        0..512 => (1, 511),
        512..1024 => (600, 1023),
        _ => EPHEMERAL,
    }
}

/// Ports of a range, from one on in turn, then some from other starts.
fn tried((first, (low, high)): Start, mut random: u64) -> impl Iterator<Item = u16> {
    let count = u32::from(high.saturating_sub(low)) + 1;
    let mut from = u32::from(first).saturating_sub(low.into()) % count;
    // A first port outside the range is tried as well.
    let own = (first < low || first > high).then_some(first);
    let mut tries = PORTS_TRIED.min(count);
    let mut n = 0;
    let in_range = std::iter::from_fn(move || {
        if n == tries {
            tries /= 2;
            if count <= PORTS_TRIED || tries < PORTS_TRIED_LEAST / 2 {
                return None;
            }
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (from, n) = ((random >> 33) as u32 % count, 0);
        }
        n += 1;
        Some(low + ((from + n - 1) % count) as u16)
    });
    own.into_iter().chain(in_range)
}

/// A protocol number that is reserved.
const RESERVED_PROTOCOL: u8 = 255;

/// Rewrites a packet to tuple `to`, which differs in `side`; in an ICMP error, the quoted packet too.
pub fn translate(
    packet: &mut Packet,
    layers: &mut Layers,
    to: &Tuple,
    side: Side,
    is_error: bool,
) -> Result<(), DropReason> {
    let is_later = layers.is_later_fragment();
    if is_error && !is_later {
        quote(packet, layers, &to.reversed(), side);
    }
    let (src, dst) =
        if to.is_ipv6 { (FieldId::Ipv6Src, FieldId::Ipv6Dst) } else { (FieldId::NwSrc, FieldId::NwDst) };
    let (address, value) = match side {
        Side::Src => (src, to.src),
        Side::Dst => (dst, to.dst),
    };
    // An edit takes IPv4 with protocol 0 for a header that was not read, as Open vSwitch does.
    let has_none = layers.is_ip() && layers.protocol == 0;
    if has_none {
        layers.protocol = RESERVED_PROTOCOL;
    }
    let mut set = |field, value, mask| edit::apply(packet, layers, &DpAction::Set { field, value, mask });
    let translated = set(address, value, if to.is_ipv6 { u128::MAX } else { u32::MAX.into() });
    if has_none {
        layers.protocol = 0;
    }
    translated?;
    let mut set = |field, value, mask| edit::apply(packet, layers, &DpAction::Set { field, value, mask });
    if !is_error && !is_later && to.has_ports() {
        set(FieldId::TpSrc, to.src_port.into(), 0xffff)?;
        set(FieldId::TpDst, to.dst_port.into(), 0xffff)?;
    }
    Ok(())
}

/// Like [`translate`], for a packet that was read as a [plain one](super::seen::read_plain), whose headers
/// have fixed positions, and which is no ICMP error: changes addresses and ports together, and each checksum
/// once.
#[inline]
pub(crate) fn translate_plain(packet: &mut Packet, addresses_and_ports: [u8; 12]) {
    const PROTOCOL: usize = 23;
    const HEADER_SUM: usize = 24;
    const ADDRESSES: usize = 26;
    const PORTS: usize = 34;
    let unfinished = packet.unfinished_checksum();
    let Some(head) = packet.data_mut().first_chunk_mut::<54>() else { return };
    let number = |bytes: [u8; 12]| {
        let [addresses @ .., a, b, c, d] = bytes;
        u128::from(u64::from_be_bytes(addresses)) << 32 | u128::from(u32::from_be_bytes([a, b, c, d]))
    };
    let place = head[ADDRESSES..].first_chunk_mut::<12>().expect("within 54 bytes");
    let (old, new) = (number(*place), number(addresses_and_ports));
    *place = addresses_and_ports;
    let protocol = head[PROTOCOL];
    let of_addresses = |sum| update128(sum, old >> 32, new >> 32);
    let of_all = |sum| update128(sum, old, new);
    let mut put_sum = |at: usize, change: &dyn Fn(u16) -> u16| {
        let sum = change(u16::from_be_bytes([head[at], head[at + 1]]));
        head[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    };
    put_sum(HEADER_SUM, &of_addresses);
    let at = if protocol == TCP { PORTS + 16 } else { PORTS + 6 };
    match protocol {
        // Unfinished: the field holds the pseudo-header's sum itself. Finishing it will add the ports as they
        // are then.
        _ if unfinished == Some(at) => put_sum(at, &|sum| !of_addresses(!sum)),
        TCP => put_sum(at, &of_all),
        // 0 means that no checksum was computed.
        _ => put_sum(at, &|sum| if sum == 0 { 0 } else { nonzero(of_all(sum)) }),
    }
}

/// Rewrites the packet that an ICMP error quotes to tuple `to`. Of its addresses, it changes the one at the
/// opposite end of the error's own `side`. What is cut off is skipped.
fn quote(packet: &mut Packet, layers: &Layers, to: &Tuple, side: Side) -> Option<()> {
    let icmp = usize::from(layers.l4);
    let end = layers.end(packet.data()).min(packet.data().len());
    let is_finished = packet.unfinished_checksum() != Some(icmp + 2);
    let mut error = Quoting { bytes: packet.data_mut().get_mut(icmp..end)?, is_finished };
    let (protocol, l4) = quoted_l4(error.bytes.get(8..)?, to.is_ipv6)?;
    let (ip, l4) = (8, 8 + l4);
    // The error goes to `dst`, the sender of the quoted packet.
    let is_src = side == Side::Dst;
    let sum = match protocol {
        TCP => Some((l4 + 16, false)),
        UDP if error.word(l4 + 6) != Some(0) => Some((l4 + 6, true)),
        ICMPV6 if to.is_ipv6 => Some((l4 + 2, false)),
        _ => None,
    };
    let address = if is_src { to.src } else { to.dst };
    let (at, len) = match (to.is_ipv6, is_src) {
        (false, true) => (ip + 12, 4),
        (false, false) => (ip + 16, 4),
        (true, true) => (ip + 8, 16),
        (true, false) => (ip + 24, 16),
    };
    let header_sum = (!to.is_ipv6).then_some((ip + 10, false));
    error.put(at, &address.to_be_bytes()[16 - len..], [header_sum, sum]);
    if to.has_ports() {
        error.put(l4, &to.src_port.to_be_bytes(), [sum, None]);
        error.put(l4 + 2, &to.dst_port.to_be_bytes(), [sum, None]);
    }
    Some(())
}

/// An ICMP error's bytes. The error's own checksum covers everything that changes.
struct Quoting<'a> {
    bytes: &'a mut [u8],
    /// Whether that checksum is finished. If not, finishing it will sum the bytes as they are then.
    is_finished: bool,
}

impl Quoting<'_> {
    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// Changes bytes, and the checksums of the quoted packet that cover them: each with a flag whether 0
    /// means that there is none.
    fn put(&mut self, at: usize, new: &[u8], sums: [Option<(usize, bool)>; 2]) {
        let Some(place) = self.bytes.get_mut(at..at + new.len()) else { return };
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
        let (old, now) = (number(place), number(new));
        place.copy_from_slice(new);
        self.follow(|sum| update128(sum, old, now));
        for (at, is_optional) in sums.into_iter().flatten() {
            let Some(before) = self.word(at) else { continue };
            let after = update128(before, old, now);
            let after = if is_optional { nonzero(after) } else { after };
            self.bytes[at..at + 2].copy_from_slice(&after.to_be_bytes());
            self.follow(|sum| update16(sum, before, after));
        }
    }

    fn follow(&mut self, change: impl FnOnce(u16) -> u16) {
        if let Some(sum) = self.word(2).filter(|_| self.is_finished) {
            self.bytes[2..4].copy_from_slice(&change(sum).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{PacketFlags, Pool, PoolConfig};
    use proptest::prelude::*;
    use wire::compose::Compose;
    use wire::ethernet::EthAddr;

    fn client() -> Tuple {
        Tuple {
            src: 0x0a00_0001,
            dst: 0x0a00_0002,
            src_port: 40_000,
            dst_port: 80,
            protocol: TCP,
            is_ipv6: false,
        }
    }

    fn range(side: Side, addresses: (u128, u128), ports: Option<(u16, u16)>) -> Range {
        let addresses = Some(addresses);
        Range {
            side,
            addresses,
            is_ipv6: false,
            ports,
            is_persistent: false,
            is_hash: false,
            is_random: false,
        }
    }

    fn all(range: Range) -> Vec<Tuple> {
        let all = Candidates::new(range, &client(), 0, &HashKey::from_seed(1), 7);
        std::iter::once(all.best).chain(all.others()).collect()
    }

    #[test]
    fn a_source_keeps_its_port_as_long_as_that_is_free_and_tries_others() {
        let tried = all(range(Side::Src, (0xc0a8_0001, 0xc0a8_0001), None));
        assert_eq!(tried[0], Tuple { dst: 0xc0a8_0001, ..client().reversed() });
        assert!(tried.len() > 128 && tried.len() < 400, "{}", tried.len());
        assert_eq!(tried[1].dst_port, 40_001);
        assert!(tried.iter().all(|t| t.src_port == 80 && t.dst == 0xc0a8_0001));
    }

    #[test]
    fn ranges_are_kept_and_addresses_spread() {
        let ports = (500, 503);
        let tried = all(range(Side::Dst, (0xc0a8_0001, 0xc0a8_0004), Some(ports)));
        let destinations = &tried[..4];
        assert!(destinations.iter().all(|t| (500..=503).contains(&t.src_port) && t.dst_port == 40_000));
        let mut seen: Vec<_> = destinations.iter().map(|t| t.src_port).collect();
        seen.sort_unstable();
        assert_eq!(seen, [500, 501, 502, 503]);
        let mut count = [0; 4];
        for port in 1..1000 {
            let forward = Tuple { src_port: port, ..client() };
            let to = range(Side::Src, (0xc0a8_0001, 0xc0a8_0004), None);
            let first = Candidates::new(to, &forward, 0, &HashKey::from_seed(1), 7).best;
            count[(first.dst - 0xc0a8_0001) as usize] += 1;
        }
        assert!(count.iter().all(|n| (150..350).contains(n)), "{count:?}");
    }

    #[test]
    fn ipv4_without_a_protocol_is_translated_too() {
        let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]))
            .ipv4(0x0a00_0001.into(), 0x0a00_0002.into());
        let mut frame = compose.udp(1, 2).payload(b"twelve bytes").build().unwrap();
        frame[23] = 0;
        let pool = PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false };
        let mut cache = Pool::new(pool).unwrap().cache();
        let mut packet = cache.alloc_frame(&frame).unwrap();
        let mut layers = Layers::of(packet.data(), frame.len(), 2).unwrap();
        let to = Tuple {
            src: 0x0a09_0909,
            dst: 0x0a00_0002,
            src_port: 0,
            dst_port: 0,
            protocol: 0,
            is_ipv6: false,
        };
        translate(&mut packet, &mut layers, &to, Side::Src, false).unwrap();
        assert_eq!((&packet.data()[26..30], layers.protocol), (&[10, 9, 9, 9][..], 0));
        cache.free(packet);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::cases("datapath::translate_plain", 500)))]
        /// A checksum is right, wrong, missing, or not finished yet.
        #[test]
        fn a_plain_packet_becomes_what_single_changes_make_of_it(
            ends: (u32, u32, u16, u16),
            other: (u32, u16, u16),
            is_tcp: bool,
            is_src: bool,
            is_partial: Option<bool>,
            sum in proptest::option::of(any::<u16>()),
        ) {
            let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]))
                .ipv4(ends.0.into(), ends.1.into());
            let compose = if is_tcp { compose.tcp(ends.2, ends.3) } else { compose.udp(ends.2, ends.3) };
            let mut frame = compose.payload(b"twelve bytes").build().unwrap();
            if let Some(sum) = sum {
                let at = if is_tcp { 50 } else { 40 };
                frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
            let pool = PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false };
            let mut cache = Pool::new(pool).unwrap().cache();
            let [mut at_once, mut singly] = [(); 2].map(|()| {
                let mut packet = cache.alloc_frame(&frame).unwrap();
                if let Some(is_within_tunnel) = is_partial {
                    packet.flags.set(PacketFlags::CSUM_PARTIAL);
                    packet.csum_start = if is_within_tunnel { 84 } else { 34 };
                    packet.csum_offset = if is_tcp { 16 } else { 6 };
                }
                packet
            });
            let side = if is_src { Side::Src } else { Side::Dst };
            let (src, dst) = if is_src { (other.0, ends.1) } else { (ends.0, other.0) };
            let to = Tuple {
                src: src.into(),
                dst: dst.into(),
                src_port: other.1,
                dst_port: other.2,
                protocol: if is_tcp { TCP } else { UDP },
                is_ipv6: false,
            };
            translate_plain(&mut at_once, to.plain());
            translate(&mut singly, &mut { Layers::UNKNOWN }, &to, side, false).unwrap();
            prop_assert_eq!(at_once.data(), singly.data());
            cache.free(at_once);
            cache.free(singly);
        }
    }

    #[test]
    fn all_zero_addresses_are_the_packets_own() {
        assert_eq!(all(range(Side::Src, (0, 0), None))[0], client().reversed());
    }

    /// An ICMPv6 error about an echo request, whose checksum covers the addresses.
    #[test]
    fn the_checksum_of_a_quoted_echo_follows_its_addresses() {
        let compose = || Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
        let address = |n: u16| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n);
        let (outside, inside, remote) = (address(1), address(2), address(99));
        let is_right = |ip: &[u8]| {
            let pseudo = wire::checksum::Sum::new().bytes(&ip[8..40]).u32(ip.len() as u32 - 40).u32(58);
            pseudo.bytes(&ip[40..]).is_valid()
        };
        let finish = |frame: &mut Vec<u8>| {
            let ip = &frame[14..];
            let pseudo = wire::checksum::Sum::new().bytes(&ip[8..40]).u32(ip.len() as u32 - 40).u32(58);
            let sum = !pseudo.bytes(&ip[40..]).fold();
            frame[56..58].copy_from_slice(&sum.to_be_bytes());
        };
        let frame = |from, to, icmp: &[u8]| {
            let frame = compose().ipv6(from, to).protocol(wire::ip::IpProtocol(58)).payload(icmp);
            let mut frame = frame.build().unwrap();
            finish(&mut frame);
            frame
        };
        let quoted = frame(outside, remote, &[128, 0, 0, 0, 0, 7, 0, 1, 9, 9, 9, 9]);
        let error = [&[1, 4, 0, 0, 0, 0, 0, 0], &quoted[14..]].concat();
        let frame = frame(remote, outside, &error);
        let to = Tuple {
            src: remote.to_bits(),
            dst: inside.to_bits(),
            src_port: 7,
            dst_port: 128 << 8,
            protocol: ICMPV6,
            is_ipv6: true,
        };
        let pool = PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false };
        let mut cache = Pool::new(pool).unwrap().cache();
        let mut packet = cache.alloc_frame(&frame).unwrap();
        let mut layers = Layers::of(packet.data(), packet.len(), 0).unwrap();
        translate(&mut packet, &mut layers, &to, Side::Dst, true).unwrap();
        let ip = &packet.data()[14..];
        assert_eq!((&ip[24..40], &ip[48 + 8..48 + 24]), (&inside.octets()[..], &inside.octets()[..]));
        assert!(is_right(ip) && is_right(&ip[48..]));
        cache.free(packet);
    }

    /// An ICMP error about a UDP packet whose checksum becomes 0, which would say that it has none.
    #[test]
    fn a_quoted_checksum_never_becomes_none_and_that_of_the_error_follows_if_it_is_finished() {
        let compose = || Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
        let (outside, inside, remote) = ([192, 0, 2, 1], [10, 0, 0, 1], [192, 0, 2, 99]);
        let mut quoted = compose().ipv4(outside.into(), remote.into()).udp(7000, 53).build().unwrap();
        quoted.drain(..14);
        // What 192.0.2.1:7000 adds, and 10.0.0.1:5000 does not.
        let mut sum = wire::checksum::Sum::new().bytes(&outside).u16(7000);
        sum = sum.u16(!wire::checksum::Sum::new().bytes(&inside).u16(5000).fold());
        quoted[26..28].copy_from_slice(&(!sum.fold()).to_be_bytes());
        let mut icmp = vec![3, 3, 0, 0, 0, 0, 0, 0];
        icmp.extend_from_slice(&quoted);
        let own = wire::checksum::checksum(&icmp);
        let to = Tuple {
            src: u32::from_be_bytes(remote).into(),
            dst: u32::from_be_bytes(inside).into(),
            src_port: 53,
            dst_port: 5000,
            protocol: UDP,
            is_ipv6: false,
        };
        let pool = PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false };
        let mut cache = Pool::new(pool).unwrap().cache();
        for is_finished in [true, false] {
            icmp[2..4].copy_from_slice(&if is_finished { own } else { 0 }.to_be_bytes());
            let frame = compose().ipv4(remote.into(), outside.into()).protocol(wire::ip::IpProtocol(1));
            let mut packet = cache.alloc_frame(&frame.payload(&icmp).build().unwrap()).unwrap();
            if !is_finished {
                packet.flags.set(PacketFlags::CSUM_PARTIAL);
                (packet.csum_start, packet.csum_offset) = (34, 2);
            }
            let mut layers = Layers::of(packet.data(), packet.len(), 0).unwrap();
            translate(&mut packet, &mut layers, &to, Side::Dst, true).unwrap();
            let icmp = &packet.data()[34..];
            assert_eq!((&icmp[20..24], &icmp[28..30]), (&inside[..], &5000u16.to_be_bytes()[..]));
            assert_eq!(icmp[34..36], [0xff, 0xff]);
            assert!(
                wire::checksum::is_valid(&icmp[8..28]) && wire::checksum::is_valid(&packet.data()[14..34])
            );
            assert!(if is_finished { wire::checksum::is_valid(icmp) } else { icmp[2..4] == [0, 0] });
            cache.free(packet);
        }
    }
}

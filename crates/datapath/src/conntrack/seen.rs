//! What the tracker reads of a packet: its tuple, and what TCP's state machine needs.
//!
//! A packet that cannot be tracked is *invalid*: a header that is cut off or contradicts itself, a wrong
//! checksum, a fragment, port 0, an ICMP message that is neither request, reply nor error. An ICMP error
//! belongs to the connection of the packet that it quotes, and its tuple is the reverse of that packet's.
//! Checksums that a driver vouches for, or that are not finished yet, are not verified; nor are those of
//! frames that span several chunks.
//!
//! Pure; nothing here panics, whatever the bytes. Source: RFC 791, 792, 4443, 8200, 9293; Open vSwitch's
//! conntrack for what counts as invalid.

use super::tuple::{ICMP, ICMPV6, TCP, Tuple, UDP};
use flow::Depth;
use flow::extract::plain_key;
use packet::{Packet, PacketFlags};
use wire::Layers;
use wire::checksum::{self, Sum};
use wire::tcp::TcpFlags;

/// What a packet says about its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub tuple: Tuple,
    /// An ICMP error about a packet of the connection.
    pub is_error: bool,
    /// It was read as a [plain packet](read_if_plain), where every header has its place.
    pub is_plain: bool,
    pub tcp: Segment,
}

/// What TCP's state machine needs of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Segment {
    pub seq: u32,
    pub ack: u32,
    pub flags: u16,
    pub window: u16,
    /// Bytes of payload.
    pub len: u32,
    /// The window scale option of a segment with SYN, if it has one.
    pub scale: Option<u8>,
}

const SYN: u16 = TcpFlags::SYN.bits();

/// ICMP errors quote the IP header and this many bytes after it.
const QUOTED_L4: usize = 8;

/// Reads a packet with these layers. `None` if it is invalid. `was_valid`: it was read before, and every
/// change since has kept its checksums right.
#[inline]
pub fn read(packet: &Packet, layers: &Layers, was_valid: bool) -> Option<Seen> {
    let is_vouched = was_valid || packet.is_chained() || is_vouched(packet);
    read_sums(packet.data(), layers, !was_valid, !is_vouched)
}

/// Whether its transport checksum need not be verified.
#[inline(always)]
fn is_vouched(packet: &Packet) -> bool {
    packet.flags.has(PacketFlags::CSUM_VALID) || packet.flags.has(PacketFlags::CSUM_PARTIAL)
}

/// Like [`read`], for a frame's bytes, whose checksums no driver vouches for.
pub fn read_bytes(frame: &[u8], layers: &Layers) -> Option<Seen> {
    read_sums(frame, layers, true, true)
}

/// The same, with flags for verifying the checksums of the IPv4 header and of the transport layer.
fn read_sums(frame: &[u8], layers: &Layers, sums_header: bool, sums_transport: bool) -> Option<Seen> {
    if !layers.is_ip() || layers.is_cut() || layers.is_fragment() || layers.l4 == 0 {
        return None;
    }
    let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
    let end = layers.end(frame).min(frame.len());
    let there = frame.get(l4..end)?;
    let (src, dst) = addresses(frame.get(l3..)?, layers.is_ipv6())?;
    if sums_header && !layers.is_ipv6() && !checksum::is_valid(frame.get(l3..l4)?) {
        return None;
    }
    let tuple = Tuple { src, dst, protocol: layers.protocol, is_ipv6: layers.is_ipv6(), ..Tuple::default() };
    if sums_transport && !is_sum_right(&tuple, frame.get(l3..)?, there, layers.is_routed()) {
        return None;
    }
    let mut seen = Seen { tuple, is_error: false, is_plain: false, tcp: Segment::default() };
    if tuple.is_icmp() {
        return icmp(seen, there);
    }
    match tuple.protocol {
        TCP => {
            let payload = usize::from(layers.payload).checked_sub(l4)?;
            // If the frame spans chunks, only its head is here; its length is what the IP header says.
            let len = layers.end(frame).checked_sub(l4 + payload)? as u32;
            seen.tcp = segment(there, payload, len)?;
            (seen.tuple.src_port, seen.tuple.dst_port) = ports(there)?;
        }
        UDP => {
            let udp_len = usize::from(be16(there, 4)?);
            if udp_len < 8 || udp_len > layers.end(frame) - l4 {
                return None;
            }
            (seen.tuple.src_port, seen.tuple.dst_port) = ports(there)?;
        }
        // All packets of any other protocol between two hosts form one connection.
        _ => {}
    }
    Some(seen)
}

/// Where the transport header of a plain packet starts.
const PLAIN_L4: usize = 34;

/// What a plain packet says about its connection: IPv4 without options, no fragment, TCP or UDP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainSeen {
    /// Addresses and ports, in wire order.
    addresses_and_ports: [u8; 12],
    /// `None` for UDP.
    pub tcp: Option<Segment>,
}

impl PlainSeen {
    /// Its tuple.
    pub fn tuple(&self) -> Tuple {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.addresses_and_ports;
        let address = |bytes| u128::from(u32::from_be_bytes(bytes));
        Tuple {
            src: address([a, b, c, d]),
            dst: address([e, f, g, h]),
            src_port: u16::from_be_bytes([i, j]),
            dst_port: u16::from_be_bytes([k, l]),
            protocol: if self.tcp.is_some() { TCP } else { UDP },
            is_ipv6: false,
        }
    }
}

/// Like [`read`], for an unchained packet that has a [plain key](flow::extract::plain_key) at the depth of
/// ports, whose headers have fixed positions. TCP options, which matter only while a connection opens, are
/// not read.
#[inline(always)]
pub(crate) fn read_plain(packet: &Packet, was_valid: bool) -> Option<PlainSeen> {
    const L3: usize = PLAIN_L4 - 20;
    const ADDRESSES: usize = L3 + 12;
    const L4: usize = PLAIN_L4;
    let frame = packet.data();
    let head: &[u8; 54] = frame.first_chunk()?;
    let end = L3 + usize::from(u16::from_be_bytes([head[16], head[17]]));
    let l4_len = end.checked_sub(L4)?;
    let protocol = head[23];
    let header: &[u8; L4 - L3] = head[L3..].first_chunk()?;
    // Summed in any case, because a branch around it costs more.
    if !(was_valid | Sum::new().array(header).is_valid()) {
        return None;
    }
    let has_sum = protocol == TCP || head[L4 + 6] | head[L4 + 7] != 0;
    if has_sum && !was_valid && !is_vouched(packet) {
        // The pseudo-header's addresses stand in front of the ports.
        let pseudo = Sum::new().u16(protocol.into()).u16(l4_len as u16);
        let there = frame.get(ADDRESSES..end)?;
        // Nearly always there is a TCP header at least: no loop over that and the addresses.
        let sum = pseudo.head_first::<28>(there).unwrap_or_else(|| pseudo.bytes(there));
        if !sum.is_valid() {
            return None;
        }
    }
    ports(&head[L4..])?;
    let tcp = if protocol == TCP {
        let flags = u16::from_be_bytes([head[L4 + 12], head[L4 + 13]]) & 0xfff;
        let len = l4_len.checked_sub(usize::from(head[L4 + 12] >> 4) * 4)? as u32;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let window = u16::from_be_bytes([head[L4 + 14], head[L4 + 15]]);
        Some(Segment { seq: word(L4 + 4), ack: word(L4 + 8), flags, window, len, scale: None })
    } else {
        let udp_len = usize::from(u16::from_be_bytes([head[L4 + 4], head[L4 + 5]]));
        if udp_len < 8 || udp_len > l4_len {
            return None;
        }
        None
    };
    let mut addresses_and_ports = [0; 12];
    addresses_and_ports.copy_from_slice(&head[ADDRESSES..ADDRESSES + 12]);
    Some(PlainSeen { addresses_and_ports, tcp })
}

/// Like [`read`], for a packet with an Ethernet header that turns out to be plain; its layers need not be
/// known. `None` if it is not plain or is invalid.
#[inline(always)]
pub(super) fn read_if_plain(packet: &Packet, was_valid: bool) -> Option<Seen> {
    let frame = packet.data();
    if packet.is_chained() {
        return None;
    }
    plain_key(frame, packet.len(), Depth::Transport, 0)?;
    let plain = read_plain(packet, was_valid)?;
    let mut tcp = plain.tcp.unwrap_or_default();
    if tcp.flags & SYN != 0 {
        let tcp_len = usize::from(frame[PLAIN_L4 + 12] >> 4) * 4;
        tcp.scale = window_scale(frame.get(PLAIN_L4 + 20..PLAIN_L4 + tcp_len)?);
    }
    Some(Seen { tuple: plain.tuple(), is_error: false, is_plain: true, tcp })
}

/// Addresses and ports of a packet that was read as a plain one.
pub(crate) fn addresses_and_ports(packet: &Packet) -> [u8; 12] {
    packet.data().get(26..).and_then(|there| there.first_chunk()).copied().unwrap_or_default()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn addresses(l3: &[u8], is_ipv6: bool) -> Option<(u128, u128)> {
    if is_ipv6 {
        let at = |at: usize| Some(u128::from_be_bytes(*l3.get(at..)?.first_chunk()?));
        return Some((at(8)?, at(24)?));
    }
    Some((be32(l3, 12)?.into(), be32(l3, 16)?.into()))
}

/// Port 0 is invalid.
fn ports(l4: &[u8]) -> Option<(u16, u16)> {
    let (src, dst) = (be16(l4, 0)?, be16(l4, 2)?);
    (src != 0 && dst != 0).then_some((src, dst))
}

/// Whether the transport checksum is right or absent. If a routing header hides the final destination, the
/// checksum cannot be verified.
fn is_sum_right(tuple: &Tuple, l3: &[u8], there: &[u8], is_routed: bool) -> bool {
    let has_pseudo_header = match tuple.protocol {
        TCP | UDP => true,
        ICMPV6 if tuple.is_ipv6 => true,
        ICMP if !tuple.is_ipv6 => false,
        _ => return true,
    };
    if tuple.protocol == UDP && !tuple.is_ipv6 && be16(there, 6) == Some(0) || is_routed && has_pseudo_header
    {
        return true;
    }
    if !has_pseudo_header {
        return checksum::is_valid(there);
    }
    // Both addresses are adjacent, in the header and in the pseudo-header.
    let addresses = if tuple.is_ipv6 { l3.get(8..40) } else { l3.get(12..20) };
    let Some(addresses) = addresses else { return false };
    let pseudo = Sum::new().bytes(addresses).u32(there.len() as u32).u32(tuple.protocol.into());
    pseudo.bytes(there).is_valid()
}

fn icmp(mut seen: Seen, there: &[u8]) -> Option<Seen> {
    let (kind, code) = (*there.first()?, *there.get(1)?);
    // The identifier, or what is unused in an error.
    let id = be16(there, 4)?;
    there.get(..8)?;
    let is_v6 = seen.tuple.is_ipv6;
    match (is_v6, kind) {
        (false, 0 | 8 | 13 | 14 | 15 | 16) | (true, 128 | 129) => {
            if code != 0 {
                return None;
            }
            (seen.tuple.src_port, seen.tuple.dst_port) = (id, u16::from_be_bytes([kind, code]));
            Some(seen)
        }
        (false, 3 | 4 | 5 | 11 | 12) | (true, 1..=4) => {
            let quoted = quoted(&there[8..], is_v6)?;
            // The error is sent to the sender of the quoted packet.
            if quoted.src != seen.tuple.dst {
                return None;
            }
            (seen.tuple, seen.is_error) = (quoted.reversed(), true);
            Some(seen)
        }
        _ => None,
    }
}

/// The tuple of the packet that an ICMP error quotes.
fn quoted(inner: &[u8], is_ipv6: bool) -> Option<Tuple> {
    let (src, dst) = addresses(inner, is_ipv6)?;
    let (protocol, l4) = quoted_l4(inner, is_ipv6)?;
    let mut tuple = Tuple { src, dst, protocol, is_ipv6, ..Tuple::default() };
    let there = inner.get(l4..)?;
    if tuple.is_icmp() {
        let (kind, code) = (*there.first()?, *there.get(1)?);
        if there.len() < QUOTED_L4
            || code != 0
            || !matches!((is_ipv6, kind), (false, 0 | 8 | 13..=16) | (true, 128 | 129))
        {
            return None;
        }
        (tuple.src_port, tuple.dst_port) = (be16(there, 4)?, u16::from_be_bytes([kind, code]));
    } else if tuple.has_ports() {
        there.get(..QUOTED_L4)?;
        (tuple.src_port, tuple.dst_port) = ports(there)?;
    }
    Some(tuple)
}

/// Protocol and start of the transport header of a quoted packet that is no fragment.
pub(crate) fn quoted_l4(inner: &[u8], is_ipv6: bool) -> Option<(u8, usize)> {
    if !is_ipv6 {
        let header_len = usize::from(inner.first()? & 0xf) * 4;
        let is_fragment = be16(inner, 6)? & 0x3fff != 0;
        return (header_len >= 20 && !is_fragment).then_some((*inner.get(9)?, header_len));
    }
    let (mut protocol, mut at) = (*inner.get(6)?, 40);
    // Bound: each header takes at least 8 bytes of the quoted packet.
    while matches!(protocol, 0 | 43 | 44 | 51 | 60) {
        let head: &[u8; 4] = inner.get(at..)?.first_chunk()?;
        at += match protocol {
            44 if u16::from_be_bytes([head[2], head[3]]) & 0xfff9 != 0 => return None,
            44 => 8,
            51 => (usize::from(head[1]) + 2) * 4,
            _ => (usize::from(head[1]) + 1) * 8,
        };
        protocol = head[0];
    }
    Some((protocol, at))
}

fn segment(l4: &[u8], payload: usize, len: u32) -> Option<Segment> {
    let flags = be16(l4, 12)? & 0xfff;
    let options = l4.get(20..payload)?;
    let scale = if flags & SYN != 0 { window_scale(options) } else { None };
    Some(Segment { seq: be32(l4, 4)?, ack: be32(l4, 8)?, flags, window: be16(l4, 14)?, len, scale })
}

/// The shift of the window scale option, of at most 14 (RFC 7323 section 2.3).
fn window_scale(mut options: &[u8]) -> Option<u8> {
    let mut scale = None;
    // An option of less than three bytes at the end cannot be the window scale.
    while let [kind, rest @ ..] = options
        && rest.len() >= 2
    {
        match kind {
            0 => break,
            1 => options = rest,
            _ => {
                if *kind == 3 {
                    scale = Some(rest[1].min(14));
                }
                options = options.get(usize::from(rest[0]).max(2)..).unwrap_or_default();
            }
        }
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Pool, PoolConfig};
    use proptest::prelude::*;
    use wire::EthAddr;
    use wire::OptionBytes;
    use wire::compose::Compose;
    use wire::tcp::TcpRepr;

    fn frame(is_tcp: bool, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]))
            .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let (flags, options) = (TcpFlags::from_bits(flags.into()), OptionBytes::new(options).unwrap());
        let segment = TcpRepr { flags, options, seq: 7, ack: 9, ..TcpRepr::new(1000, 80) };
        let compose = if is_tcp { compose.tcp_repr(segment) } else { compose.udp(1000, 80) };
        compose.payload(payload).build().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::cases("datapath::read_if_plain", 5_000)))]
        /// Whole packets, and such with a few bytes of their headers changed or their end cut off.
        #[test]
        fn what_is_read_of_a_plain_packet_is_what_its_layers_say(
            is_tcp: bool,
            flags: u8,
            options in prop::collection::vec(prop_oneof![Just(1u8), Just(3), any::<u8>()], 0..10),
            payload in prop::collection::vec(any::<u8>(), 0..40),
            changes in prop::collection::vec((12usize..74, any::<u8>()), 0..3),
            cut in prop_oneof![Just(0usize), 0usize..60],
            was_valid: bool,
        ) {
            let mut bytes = frame(is_tcp, flags, &options, &payload);
            for (at, byte) in &changes {
                if let Some(there) = bytes.get_mut(*at) {
                    *there = *byte;
                }
            }
            bytes.truncate(bytes.len().saturating_sub(cut).max(14));
            let pool = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
            let mut cache = pool.cache();
            let packet = cache.alloc_frame(&bytes).unwrap();
            let layers = Layers::of(packet.data(), packet.len(), 2).unwrap();
            let by_layers = read(&packet, &layers, was_valid);
            let quickly = read_if_plain(&packet, was_valid);
            cache.free(packet);
            match quickly {
                Some(seen) => prop_assert_eq!(Some(Seen { is_plain: false, ..seen }), by_layers),
                // Of what is whole and as it was sent, all of 54 bytes or more is plain.
                None => prop_assert!(!changes.is_empty() || cut > 0 || bytes.len() < 54),
            }
        }
    }
}

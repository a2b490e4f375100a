//! The bytes that determine the key of a long plain packet, packed: IPv4 behind one VLAN tag, without
//! options, not a fragment; and IPv6, behind at most one tag, directly followed by a whole header of TCP or
//! UDP.
//!
//! Like [the packed keys](super::plain) of other plain packets, but of eight words.

use super::bytes::be16;
use super::plain::piece;
use super::{ETH_TYPE_IPV4, ETH_TYPE_IPV6, Ingress, TAG_LEN, l4};
use crate::depth::Depth;
use base::wide::{Baseline, Lanes};

/// Stands for a long plain packet's key, in a cache line, in four pieces of the packet: the start of the IP
/// header; the start of the frame; for IPv4, the destination address and the ports; for IPv6, the second half
/// of the header, and the ports. What lies between these fields is replaced: two bytes of the IP header by
/// TCP's flags, the first tag's TPID (or IPv6's type) by [`IS_IPV6`] and [`IS_TAGGED`], what follows the
/// ports by the caller's number. Words are little-endian.
pub type LongKey = [[u64; 4]; 2];

/// Where TCP's flags are in the first word: in place of IPv4's identification or IPv6's payload length.
const FLAGS_SHIFT: u32 = 32;
/// Bits of the first half's last word.
const IS_IPV6: u64 = 1 << 32;
const IS_TAGGED: u64 = 1 << 33;
/// Where the caller's number is in the last word.
const ORIGIN_SHIFT: u32 = 32;

const ETHERNET: usize = 14;
const TAGGED: usize = ETHERNET + TAG_LEN;
const TPID: u64 = 0x8100;

/// From the TPID on, these bytes of a tagged IPv4 packet are known: TPID, Ethernet type, version and length
/// of a header without options, and no fragment bits.
const KNOWN_FROM: usize = 12;
const KNOWN: [u8; 16] = [0x81, 0, 0, 0, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const KNOWN_BITS: [u8; 16] = [0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0x3f, 0xff, 0, 0];

/// The three kinds of long plain packets, as numbers.
const TAGGED_IPV4: usize = 0;
const IPV6: usize = 1;
const TAGGED_IPV6: usize = 2;

/// What the depth takes of the four pieces, for each kind. Of a tag, it takes all but the bit that says in
/// keys that there is one.
const fn masks(depth: Depth) -> [LongKey; 3] {
    const MACS: [u64; 2] = [u64::MAX, 0xffff_ffff];
    const TAG: u64 = 0xffef << 48;
    const PORTS: u64 = 0xffff_ffff;
    // Type of service; TTL and protocol, and behind the checksum the source address; the destination.
    const IPV4: [u64; 3] = [0xff00, 0xffff_ffff_0000_ffff, 0xffff_ffff];
    // Class and label, and behind the payload length the next header and the hop limit. Addresses follow.
    const IPV6: u64 = 0xffff_0000_ffff_ff0f;
    const MAX: u64 = u64::MAX;
    let [m, n, tag] = match depth {
        Depth::Metadata => [0; 3],
        _ => [MACS[0], MACS[1], TAG],
    };
    if (depth as u8) < Depth::Network as u8 {
        return [[[0, 0, m, n | tag], [0; 4]], [[0, 0, m, n], [0; 4]], [[0, 0, m, n | tag], [0; 4]]];
    }
    let ports = if depth as u8 >= Depth::Transport as u8 { PORTS } else { 0 };
    let ipv6 = [MAX, MAX, MAX, ports];
    [
        [[IPV4[0], IPV4[1], m, n | tag], [IPV4[2] | ports << 32, 0, 0, 0]],
        [[IPV6, MAX, m, n], ipv6],
        [[IPV6, MAX, m, n | tag], ipv6],
    ]
}

static MASKS: [[LongKey; 3]; 5] = [
    masks(Depth::Metadata),
    masks(Depth::Ethernet),
    masks(Depth::Network),
    masks(Depth::Transport),
    masks(Depth::Everything),
];

/// The packed key of a long plain packet at the ingress's depth, with the caller's number `origin` of
/// [`PLAIN_ORIGIN_BITS`](super::PLAIN_ORIGIN_BITS). Two such packets have equal packed keys if and only if
/// they have equal keys at that depth (and the same number). `None` for any other packet.
#[inline(never)]
pub fn long_key(head: &[u8], frame_len: usize, ingress: &Ingress, origin: u64) -> Option<LongKey> {
    LongReader::new(ingress, origin).read(Baseline, head, frame_len)
}

/// The caller's number in a key.
#[inline(always)]
pub fn origin_of_long(key: &LongKey) -> u64 {
    key[1][3] >> ORIGIN_SHIFT
}

/// Reads the packed keys of packets that have the same ingress and the same number.
pub struct LongReader {
    depth: Depth,
    vlan_limit: u8,
    /// By kind, which bits of the pieces a key has, and what it has beside.
    kinds: [(LongKey, LongKey); 3],
}

/// A kind, TCP's flags, and the four pieces, of which those of the second half may be the same.
type Found<'h> = Option<(usize, u64, [&'h [u8; 16]; 4])>;

impl LongReader {
    /// See [`long_key`].
    #[inline(always)]
    pub fn new(ingress: &Ingress, origin: u64) -> LongReader {
        let Ingress { depth, vlan_limit, .. } = *ingress;
        let tagged = if depth >= Depth::Ethernet { IS_TAGGED } else { 0 };
        let beside = |bits| [[0, 0, 0, bits], [0, 0, 0, origin << ORIGIN_SHIFT]];
        let [a, b, c] = MASKS[depth as usize];
        let kinds = [(a, beside(tagged)), (b, beside(IS_IPV6)), (c, beside(tagged | IS_IPV6))];
        LongReader { depth, vlan_limit, kinds }
    }

    /// See [`long_key`]: that of one packet, by these instructions.
    #[inline(always)]
    pub fn read<L: Lanes>(&self, lanes: L, head: &[u8], frame_len: usize) -> Option<LongKey> {
        let h = head.first_chunk::<TAGGED>()?;
        let (kind, flags, [a, b, c, d]) = match (be16::<12, TAGGED>(h), be16::<16, TAGGED>(h)) {
            (ETH_TYPE_IPV6, _) => self.ipv6::<ETHERNET>(head, frame_len)?,
            (TPID, ETH_TYPE_IPV4) if self.vlan_limit > 0 => self.tagged_ipv4(lanes, head, frame_len)?,
            (TPID, ETH_TYPE_IPV6) if self.vlan_limit > 0 => self.ipv6::<TAGGED>(head, frame_len)?,
            _ => return None,
        };
        let (mask, beside) = &self.kinds[kind];
        Some([lanes.join([a, b], &mask[0], &beside[0], flags), lanes.join([c, d], &mask[1], &beside[1], 0)])
    }

    #[inline(always)]
    fn tagged_ipv4<'h, L: Lanes>(&self, lanes: L, head: &'h [u8], frame_len: usize) -> Found<'h> {
        // Up to the end of a TCP header without options; Ethernet pads to 60 bytes.
        let h = head.first_chunk::<58>()?;
        let total_len = be16::<20, 58>(h) as usize;
        let room = frame_len.wrapping_sub(TAGGED);
        let is_known = lanes.matches(piece::<KNOWN_FROM, 58>(h), &KNOWN, &KNOWN_BITS);
        if !is_known || total_len > room || room > 0xffff {
            return None;
        }
        let (mut least, mut flags) = (20, 0);
        if self.depth >= Depth::Transport {
            let w50 = be16::<50, 58>(h);
            least = match u64::from(h[27]) {
                l4::UDP => 28,
                l4::TCP if w50 >= 5 << 12 => {
                    flags = (w50 & 0xfff) << FLAGS_SHIFT;
                    20 + (w50 >> 12) as usize * 4
                }
                _ => return None,
            };
        }
        if total_len < least {
            return None;
        }
        let behind = piece::<34, 58>(h);
        Some((TAGGED_IPV4, flags, [piece::<TAGGED, 58>(h), piece::<0, 58>(h), behind, behind]))
    }

    #[inline(always)]
    fn ipv6<'h, const L3: usize>(&self, head: &'h [u8], frame_len: usize) -> Found<'h> {
        const HEADER: usize = 40;
        // Up to the end of a UDP header.
        let frame = head.first_chunk::<{ ETHERNET + HEADER + 8 }>()?;
        let h = head.get(L3..)?.first_chunk::<{ HEADER + 8 }>()?;
        let payload_len = be16::<4, 48>(h) as usize;
        let room = frame_len.wrapping_sub(L3 + HEADER);
        if h[0] >> 4 != 6 || payload_len > room || room > 0xffff {
            return None;
        }
        let (least, mut flags) = match u64::from(h[6]) {
            l4::UDP => (8, 0),
            l4::TCP => {
                let w12 = be16::<12, 20>(head.get(L3 + HEADER..)?.first_chunk()?);
                if w12 < 5 << 12 {
                    return None;
                }
                ((w12 >> 12) as usize * 4, (w12 & 0xfff) << FLAGS_SHIFT)
            }
            _ => return None,
        };
        if payload_len < least {
            return None;
        }
        if self.depth < Depth::Transport {
            flags = 0;
        }
        let kind = if L3 == TAGGED { TAGGED_IPV6 } else { IPV6 };
        Some((
            kind,
            flags,
            [piece::<0, 48>(h), piece::<0, 62>(frame), piece::<16, 48>(h), piece::<32, 48>(h)],
        ))
    }
}

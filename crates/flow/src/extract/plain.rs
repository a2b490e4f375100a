//! The bytes that determine the key of a plain packet, packed: untagged IPv4, without options, not a
//! fragment.
//!
//! A cache may compare these four words, and extract only packets that it does not know.

use super::bytes::be16;
use super::l4;
use crate::depth::Depth;
use crate::field::FieldId;
use crate::key::Mask;
use base::wide::{Baseline, Lanes};

/// Stands for a plain packet's key, in half a cache line, in two pieces of the packet: from the TTL on, with
/// protocol, IPv4 addresses and ports, and from the start, with Ethernet addresses and type of service. What
/// lies between these fields is replaced: the checksum by TCP's flags and the lowest bits of the caller's
/// number, the Ethernet type by the rest of that. Words are little-endian.
pub type PlainKey = [u64; 4];

/// From where on these bytes of a plain packet are known: the Ethernet type of IPv4, version and length of a
/// header without options, and no fragment bits.
const KNOWN_FROM: usize = 8;
const KNOWN: [u8; 16] = [0, 0, 0, 0, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const KNOWN_BITS: [u8; 16] = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0x3f, 0xff, 0, 0];

/// Where the two pieces start.
const TTL: usize = 22;
const START: usize = 0;

/// Where TCP's flags are in the first word.
const FLAGS_SHIFT: u32 = 16;

/// How many bits the caller's number has, and how many of them are in the first word.
pub const PLAIN_ORIGIN_BITS: u32 = 28;
const ORIGIN_LOW_BITS: u32 = 4;
const ORIGIN_LOW: u64 = (1 << ORIGIN_LOW_BITS) - 1;
const ORIGIN_LOW_SHIFT: u32 = 28;
const ORIGIN_HIGH_SHIFT: u32 = 32;

/// A key with nothing but the caller's number.
#[inline(always)]
pub const fn plain_with_origin(origin: u64) -> PlainKey {
    [(origin & ORIGIN_LOW) << ORIGIN_LOW_SHIFT, 0, 0, origin >> ORIGIN_LOW_BITS << ORIGIN_HIGH_SHIFT]
}

/// The caller's number in a key.
pub fn origin_of_plain(key: &PlainKey) -> u64 {
    const HIGH: u64 = (1 << (PLAIN_ORIGIN_BITS - ORIGIN_LOW_BITS)) - 1;
    (key[3] >> ORIGIN_HIGH_SHIFT & HIGH) << ORIGIN_LOW_BITS | key[0] >> ORIGIN_LOW_SHIFT & ORIGIN_LOW
}

/// What each depth takes of the two pieces.
const fn mask(depth: Depth) -> [u64; 4] {
    const MACS: [u64; 2] = [u64::MAX, 0xffff_ffff];
    const TOS: u64 = 0xff << 56;
    // TTL, protocol, and behind the checksum the source address; the destination address.
    const NETWORK: [u64; 2] = [0xffff_ffff_0000_ffff, 0xffff_ffff];
    match depth {
        Depth::Metadata => [0; 4],
        Depth::Ethernet => [0, 0, MACS[0], MACS[1]],
        Depth::Network => [NETWORK[0], NETWORK[1], MACS[0], MACS[1] | TOS],
        Depth::Transport | Depth::Everything => [NETWORK[0], u64::MAX, MACS[0], MACS[1] | TOS],
    }
}

/// The packed key of a plain packet at a depth, with the caller's number `origin`. Two plain packets have
/// equal packed keys if and only if they have equal keys at that depth (and the same number). `None` for any
/// other packet, and if the depth includes ports and there is no complete header of TCP or UDP.
#[inline(always)]
pub fn plain_key(head: &[u8], frame_len: usize, depth: Depth, origin: u64) -> Option<PlainKey> {
    plain_key_by(Baseline, head, frame_len, depth, origin)
}

/// The same by these instructions.
#[inline(always)]
pub fn plain_key_by<L: Lanes>(
    lanes: L,
    head: &[u8],
    frame_len: usize,
    depth: Depth,
    origin: u64,
) -> Option<PlainKey> {
    const L3: usize = 14;
    let h = head.first_chunk::<54>()?;
    let total_len = be16::<16, 54>(h) as usize;
    // Behind the IPv4 packet. Wraps if that is longer than the frame.
    let padding = frame_len.wrapping_sub(L3 + total_len);
    if padding > 0xffff || !lanes.matches(piece::<KNOWN_FROM, 54>(h), &KNOWN, &KNOWN_BITS) {
        return None;
    }
    let (mut least, mut flags) = (20, 0);
    if depth >= Depth::Transport {
        let w46 = be16::<46, 54>(h);
        least = match u64::from(h[23]) {
            l4::UDP => 28,
            l4::TCP if w46 >= 5 << 12 => {
                flags = (w46 & 0xfff) << FLAGS_SHIFT;
                20 + (w46 >> 12) as usize * 4
            }
            _ => return None,
        };
    }
    if total_len < least {
        return None;
    }
    let pieces = [piece::<TTL, 54>(h), piece::<START, 54>(h)];
    Some(lanes.join(pieces, &mask(depth), &plain_with_origin(origin), flags))
}

/// Whether a key at the depth of ports belongs to a TCP segment with SYN. A connection sends no other segment
/// like its opening one.
#[inline(always)]
pub fn opens_tcp(key: &PlainKey) -> bool {
    key[0] >> FLAGS_SHIFT & SYN != 0
}

/// The same, but not the answer to an opening segment.
#[inline(always)]
pub fn begins_tcp(key: &PlainKey) -> bool {
    key[0] >> FLAGS_SHIFT & (SYN | ACK) == SYN
}

/// Whether a frame may have a plain key that [opens TCP](opens_tcp), by a few of its bytes: true for all that
/// have, and for few others.
#[inline(always)]
pub fn may_open_tcp(head: &[u8]) -> bool {
    let Some(h) = head.first_chunk::<54>() else { return false };
    let is_known = Baseline.matches(piece::<KNOWN_FROM, 54>(h), &KNOWN, &KNOWN_BITS);
    is_known && u64::from(h[23]) == l4::TCP && u64::from(h[47]) & SYN != 0
}

/// The bits of packed keys that stand for the mask's: two plain packets from one origin agree under the mask
/// if and only if their packed keys agree under the result. The mask has no bits of the tuple that opened a
/// packet's connection: neither bytes nor origin tell that.
pub fn plain_mask(mask: &Mask) -> PlainKey {
    // A frame with the mask's bits where plain packets have the fields. All others are the same in all plain
    // packets.
    let mut h = [0; 54];
    let places = [
        (0..6, FieldId::EthDst),
        (6..12, FieldId::EthSrc),
        (15..16, FieldId::NwTos),
        (22..23, FieldId::NwTtl),
        (23..24, FieldId::NwProto),
        (26..30, FieldId::NwSrc),
        (30..34, FieldId::NwDst),
        (34..36, FieldId::TpSrc),
        (36..38, FieldId::TpDst),
    ];
    for (place, field) in places {
        let bits = mask.get(field).to_be_bytes();
        let first = bits.len() - place.len();
        h[place].copy_from_slice(&bits[first..]);
    }
    let flags = (mask.get(FieldId::TcpFlags) as u64 & 0xfff) << FLAGS_SHIFT;
    Baseline.join([piece::<TTL, 54>(&h), piece::<START, 54>(&h)], &[u64::MAX; 4], &[0; 4], flags)
}

/// Flags of TCP.
const SYN: u64 = 0x02;
const ACK: u64 = 0x10;

#[inline(always)]
pub(super) fn piece<const AT: usize, const N: usize>(bytes: &[u8; N]) -> &[u8; 16] {
    const { assert!(AT + 16 <= N) };
    bytes[AT..].first_chunk().expect("there are 16 bytes from AT on")
}

//! The bytes that determine the key of a plain packet, packed: untagged IPv4, without options, not a
//! fragment.
//!
//! A cache may compare these four words, and extract only packets that it does not know.

use super::bytes::{be16, be64};
use super::{ETH_TYPE_IPV4, l4};
use crate::depth::Depth;

/// Stands for a plain packet's key, in half a cache line: Ethernet addresses and ports in the first two
/// words, IPv4 addresses in the third, and in the fourth type of service, TTL, protocol, TCP flags, and from
/// [`PLAIN_ORIGIN_SHIFT`] on the caller's bits.
pub type PlainKey = [u64; 4];

/// Bits of the last word from here on are the caller's.
pub const PLAIN_ORIGIN_SHIFT: u32 = 36;

/// The packed key of a plain packet at a depth, with `origin` in the caller's bits. Two plain packets have
/// equal packed keys if and only if they have equal keys at that depth (and the same origin). `None` for any
/// other packet, and if the depth includes ports and there is no complete header of TCP or UDP.
#[inline(always)]
pub fn plain_key(head: &[u8], frame_len: usize, depth: Depth, origin: u64) -> Option<PlainKey> {
    const L3: usize = 14;
    let h = head.first_chunk::<54>()?;
    // Ethernet type, version and header length, type of service, total length, identification.
    let w12 = be64::<12, 54>(h);
    // Fragment bits, time to live, protocol, checksum, half an address.
    let w20 = be64::<20, 54>(h);
    let total_len = (w12 >> 16 & 0xffff) as usize;
    let room = frame_len.wrapping_sub(L3);
    if w12 >> 40 != ETH_TYPE_IPV4 << 8 | 0x45 || w20 >> 48 & 0x3fff != 0 || total_len > room || room > 0xffff
    {
        return None;
    }
    let mut key = [0, 0, 0, origin];
    let mut least = 20;
    if depth >= Depth::Ethernet {
        key[0] = ne64::<0>(h);
        key[1] = ne32::<8>(h);
    }
    if depth >= Depth::Network {
        key[2] = ne64::<26>(h);
        key[3] |= w20 >> 32 & 0xffff | w12 >> 16 & 0xff_0000;
    }
    if depth >= Depth::Transport {
        let w46 = be16::<46, 54>(h);
        least = match w20 >> 32 & 0xff {
            l4::UDP => 28,
            l4::TCP if w46 >= 5 << 12 => {
                key[3] |= (w46 & 0xfff) << 24;
                20 + (w46 >> 12) as usize * 4
            }
            _ => return None,
        };
        key[1] |= ne32::<34>(h) << 32;
    }
    (total_len >= least).then_some(key)
}

/// Whether a key at the depth of ports belongs to a TCP segment with SYN. A connection sends no other segment
/// like its opening one.
#[inline(always)]
pub fn opens_tcp(key: &PlainKey) -> bool {
    key[3] >> 24 & SYN != 0
}

/// The same, but not the answer to an opening segment.
#[inline(always)]
pub fn begins_tcp(key: &PlainKey) -> bool {
    key[3] >> 24 & (SYN | ACK) == SYN
}

/// Flags of TCP.
const SYN: u64 = 0x02;
const ACK: u64 = 0x10;

#[inline(always)]
fn ne64<const AT: usize>(bytes: &[u8; 54]) -> u64 {
    let word: &[u8; 8] = bytes[AT..].first_chunk().expect("AT is at most 46");
    u64::from_ne_bytes(*word)
}

#[inline(always)]
fn ne32<const AT: usize>(bytes: &[u8; 54]) -> u64 {
    let word: &[u8; 4] = bytes[AT..].first_chunk().expect("AT is at most 50");
    u32::from_ne_bytes(*word).into()
}

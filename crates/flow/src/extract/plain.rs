//! The bytes that determine the key of a plain packet, packed: untagged IPv4, without options, not a
//! fragment.
//!
//! A cache may compare these four words, and extract only packets that it does not know.

use super::bytes::be16;
use super::l4;
use crate::depth::Depth;

/// Stands for a plain packet's key, in half a cache line: Ethernet addresses and ports in the first two
/// words, IPv4 addresses in the third, and in the fourth type of service, TTL, protocol, TCP flags, and from
/// [`PLAIN_ORIGIN_SHIFT`] on the caller's bits.
pub type PlainKey = [u64; 4];

/// Bits of the last word from here on are the caller's.
pub const PLAIN_ORIGIN_SHIFT: u32 = 36;

/// The Ethernet type of IPv4, and version and length of its header.
const IPV4_WITHOUT_OPTIONS: u64 = 0x45_0008;

/// The packed key of a plain packet at a depth, with `origin` in the caller's bits. Two plain packets have
/// equal packed keys if and only if they have equal keys at that depth (and the same origin). `None` for any
/// other packet, and if the depth includes ports and there is no complete header of TCP or UDP.
#[inline(always)]
pub fn plain_key(head: &[u8], frame_len: usize, depth: Depth, origin: u64) -> Option<PlainKey> {
    const L3: usize = 14;
    let h = head.first_chunk::<54>()?;
    // Ethernet type, version and header length, type of service.
    let w12 = le32::<12>(h);
    // Fragment bits, time to live, protocol.
    let w20 = le32::<20>(h);
    let is_ipv4 = w12 & 0xff_ffff == IPV4_WITHOUT_OPTIONS;
    let is_fragment = w20 & 0xff3f != 0;
    let total_len = be16::<16, 54>(h) as usize;
    let room = frame_len.wrapping_sub(L3);
    if !is_ipv4 || is_fragment || total_len > room || room > 0xffff {
        return None;
    }
    let mut key = [0, 0, 0, origin];
    // What may refuse the packet comes first: until then little is in registers.
    let mut least = 20;
    if depth >= Depth::Transport {
        let w46 = be16::<46, 54>(h);
        least = match w20 >> 24 {
            l4::UDP => 28,
            l4::TCP if w46 >= 5 << 12 => {
                key[3] |= (w46 & 0xfff) << 24;
                20 + (w46 >> 12) as usize * 4
            }
            _ => return None,
        };
    }
    if total_len < least {
        return None;
    }
    if depth >= Depth::Ethernet {
        key[0] = ne64::<0>(h);
        key[1] = ne32::<8>(h);
    }
    if depth >= Depth::Network {
        key[2] = ne64::<26>(h);
        key[3] |= w20 >> 16 | w12 >> 8 & 0xff_0000;
    }
    if depth >= Depth::Transport {
        key[1] |= ne32::<34>(h) << 32;
    }
    Some(key)
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
fn le32<const AT: usize>(bytes: &[u8; 54]) -> u64 {
    let word: &[u8; 4] = bytes[AT..].first_chunk().expect("AT is at most 50");
    u32::from_le_bytes(*word).into()
}

#[inline(always)]
fn ne32<const AT: usize>(bytes: &[u8; 54]) -> u64 {
    let word: &[u8; 4] = bytes[AT..].first_chunk().expect("AT is at most 50");
    u32::from_ne_bytes(*word).into()
}

//! How much of a frame extraction needs.

use super::l2::is_vlan;

/// The longest header of IPv4, and of TCP.
const HEADER_MAX: usize = 60;
const IPV6_HEADER: usize = 40;

/// Whether extraction finds in `head`, the first bytes of a longer frame, all that it finds in the whole.
/// True for IPv4, and IPv6 with TCP or UDP right behind it, under two tags at most, where the longest headers
/// have room; false also where it merely cannot tell.
pub fn head_is_enough(head: &[u8]) -> bool {
    let word = |at: usize| {
        let bytes = head.get(at..at + 2).and_then(|bytes| <[u8; 2]>::try_from(bytes).ok());
        bytes.map_or(0, |bytes| u64::from(u16::from_be_bytes(bytes)))
    };
    let mut at = 12;
    for _ in 0..2 {
        if is_vlan(word(at)) {
            at += 4;
        }
    }
    let l3 = at + 2;
    match word(at) {
        0x0800 => l3 + 2 * HEADER_MAX <= head.len(),
        0x86dd => matches!(head.get(l3 + 6), Some(6 | 17)) && l3 + IPV6_HEADER + HEADER_MAX <= head.len(),
        _ => false,
    }
}

//! How much of a frame extraction needs.

use wire::Layers;

/// The longest header of IPv4, and of TCP.
const HEADER_MAX: usize = 60;
const IPV6_HEADER: usize = 40;

/// Whether extraction finds everything in `head`, the first bytes of a longer frame, that it finds in the
/// whole. True for IPv4, and for IPv6 directly followed by TCP or UDP, with at most two tags, provided that
/// there is room for the longest headers; also false if it merely cannot tell.
pub fn head_is_enough(head: &[u8]) -> bool {
    let Some(link) = Layers::of_link(head, 2) else { return false };
    let l3 = usize::from(link.l2_5);
    match link.eth_type {
        0x0800 => l3 + 2 * HEADER_MAX <= head.len(),
        0x86dd => matches!(head.get(l3 + 6), Some(6 | 17)) && l3 + IPV6_HEADER + HEADER_MAX <= head.len(),
        _ => false,
    }
}

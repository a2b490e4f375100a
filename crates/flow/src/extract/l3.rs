//! Network layers that are not IP: ARP and RARP (RFC 826, 903), MPLS (RFC 3032), NSH (RFC 8300). A malformed
//! header yields `None`: its fields are zero, as in Open vSwitch.

use super::bytes::{be16, be32, be48, be64};

/// An ARP or RARP packet for Ethernet and IPv4.
pub(super) struct Arp {
    /// Opcode; 0 if it does not fit into 8 bits.
    pub opcode: u64,
    /// Word 3: sender's and target's protocol address.
    pub addresses: u64,
    /// Sender's hardware address.
    pub sha: u64,
    /// Target's hardware address.
    pub tha: u64,
}

/// Reads the packet at `l3`.
#[inline(never)]
pub(super) fn arp(head: &[u8], l3: usize) -> Option<Arp> {
    let h = head.get(l3..)?.first_chunk::<28>()?;
    // Hardware type Ethernet, protocol IPv4, address lengths 6 and 4.
    if be64::<0, 28>(h) >> 16 != 0x0001_0800_0604 {
        return None;
    }
    let opcode = be16::<6, 28>(h);
    Some(Arp {
        opcode: if opcode <= 0xff { opcode } else { 0 },
        addresses: be32::<14, 28>(h) << 32 | be32::<24, 28>(h),
        sha: be48::<8, 28>(h),
        tha: be48::<18, 28>(h),
    })
}

/// The first three label stack entries at `l3`, up to the bottom of the stack; zero for missing ones.
#[inline(never)]
pub(super) fn mpls(head: &[u8], l3: usize) -> [u64; 3] {
    let mut entries = [0; 3];
    let (whole, _) = head.get(l3..).unwrap_or_default().as_chunks::<4>();
    for (entry, bytes) in entries.iter_mut().zip(whole) {
        *entry = be32::<0, 4>(bytes);
        if *entry & 0x100 != 0 {
            break;
        }
    }
    entries
}

/// Words 4 to 6 of the block of rare fields: base and path header, and the four context headers of type 1.
#[inline(never)]
pub(super) fn nsh(head: &[u8], l3: usize, frame_len: usize) -> Option<[u64; 3]> {
    let h = head.get(l3..)?.first_chunk::<8>()?;
    // Version 2 bits, flags 2, time to live 6, length in words 6; then type 8, next protocol 8.
    let base = be16::<0, 8>(h);
    let header_len = (base & 0x3f) as usize * 4;
    let mdtype = u64::from(h[2]);
    if base >> 14 != 0 || header_len > frame_len.checked_sub(l3)? {
        return None;
    }
    let context = match mdtype {
        1 if header_len != 24 => return None,
        1 => {
            let context = head.get(l3 + 8..)?.first_chunk::<16>()?;
            [be64::<0, 16>(context), be64::<8, 16>(context)]
        }
        2 if header_len < 8 => return None,
        _ => [0; 2],
    };
    let first = (base >> 12 & 3) << 56 | (base >> 6 & 0x3f) << 48 | mdtype << 40 | u64::from(h[3]) << 32;
    Some([first | be32::<4, 8>(h), context[0], context[1]])
}

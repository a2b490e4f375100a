//! The network layer: IPv4 (RFC 791), IPv6 and its extension headers (RFC 8200, 4302), ARP and RARP (RFC 826,
//! 903), MPLS (RFC 3032), NSH (RFC 8300). A malformed header yields `None`: its fields are zero, as in Open
//! vSwitch.

use super::bytes::{be16, be32, be48, be64};
use super::{FRAG_ANY, FRAG_LATER, PROTO_FRAGMENT};

/// What IPv4 and IPv6 have in common.
pub(super) struct Ip {
    /// Fragment bits, as in the key.
    pub frag: u64,
    /// Protocol: IPv6's last next header; 44 for a later fragment of IPv6.
    pub proto: u64,
    /// The low 16 bits of word 5: type of service, and above it time to live.
    pub tos_ttl: u64,
    /// Start of the payload (behind all extension headers), from the start of the frame.
    pub l4: usize,
    /// End of the payload, from the start of the frame: without the link layer's padding.
    pub end: usize,
    /// OpenFlow 1.3's bits of extension headers.
    pub exthdr: u64,
}

/// Reads the header at `l3`; addresses are word 3 of block 0.
#[inline(always)]
pub(super) fn ipv4(head: &[u8], l3: usize, frame_len: usize) -> Option<(u64, Ip)> {
    let h = head.get(l3..)?.first_chunk::<20>()?;
    let header_len = usize::from(h[0] & 0xf) * 4;
    let total_len = be16::<2, 20>(h) as usize;
    let room = frame_len.checked_sub(l3)?;
    if header_len < 20 || header_len > total_len || total_len > room || room - total_len > 0xffff {
        return None;
    }
    let frag = match be16::<6, 20>(h) {
        bits if bits & 0x1fff != 0 => FRAG_ANY | FRAG_LATER,
        bits if bits & 0x2000 != 0 => FRAG_ANY,
        _ => 0,
    };
    let ip = Ip {
        frag,
        proto: u64::from(h[9]),
        tos_ttl: u64::from(h[1]) | u64::from(h[8]) << 8,
        l4: l3 + header_len,
        end: l3 + total_len,
        exthdr: 0,
    };
    Some((be64::<12, 20>(h), ip))
}

/// IPv6's fixed header.
pub(super) struct Ipv6 {
    /// Words 0 to 3 of the block: source and destination.
    pub addresses: [u64; 4],
    /// Flow label.
    pub label: u64,
    /// What it has in common with IPv4, as if no extension headers followed.
    pub plain: Ip,
}

/// Reads the header at `l3`.
#[inline(always)]
pub(super) fn ipv6(head: &[u8], l3: usize, frame_len: usize) -> Option<Ipv6> {
    let h = head.get(l3..)?.first_chunk::<40>()?;
    // Version 4 bits, class 8, label 20, payload length 16, next header 8, hop limit 8.
    let first = be64::<0, 40>(h);
    let payload_len = (first >> 16 & 0xffff) as usize;
    let room = frame_len.checked_sub(l3 + 40)?;
    if payload_len > room || room - payload_len > 0xffff {
        return None;
    }
    let plain = Ip {
        frag: 0,
        proto: first >> 8 & 0xff,
        tos_ttl: first >> 52 & 0xff | (first & 0xff) << 8,
        l4: l3 + 40,
        end: l3 + 40 + payload_len,
        exthdr: 0,
    };
    let addresses = [be64::<8, 40>(h), be64::<16, 40>(h), be64::<24, 40>(h), be64::<32, 40>(h)];
    Some(Ipv6 { addresses, label: first >> 32 & 0xf_ffff, plain })
}

/// Follows the extension headers behind `ip`. `None` where one is cut off by the end of the payload (or of
/// the first segment): then only the addresses are known.
#[inline(always)]
pub(super) fn extensions(head: &[u8], ip: Ip) -> Option<Ip> {
    if !(is_extension(ip.proto) || ip.proto == NO_NEXT || ip.proto == ESP) {
        return Some(ip);
    }
    // By numbers, not by the structure, which would then live in memory on the common path too.
    let behind = walk_extensions(head, ip.l4, ip.end, ip.proto)?;
    Some(Ip { tos_ttl: ip.tos_ttl, ..behind })
}

const HOP_BY_HOP: u64 = 0;
const ROUTING: u64 = 43;
const ESP: u64 = 50;
const AUTH: u64 = 51;
const NO_NEXT: u64 = 59;
const DESTINATION: u64 = 60;

/// The headers that are walked over. ESP and "no next header" end the walk like a transport protocol.
#[inline(always)]
fn is_extension(proto: u64) -> bool {
    const SET: u64 = 1 << HOP_BY_HOP | 1 << ROUTING | 1 << PROTO_FRAGMENT | 1 << AUTH | 1 << DESTINATION;
    proto < 64 && SET >> proto & 1 != 0
}

#[inline(never)]
fn walk_extensions(head: &[u8], l4: usize, end: usize, proto: u64) -> Option<Ip> {
    let mut ip = Ip { frag: 0, proto, tos_ttl: 0, l4, end, exthdr: 0 };
    let mut seen = ExtensionBits::default();
    loop {
        seen.note(ip.proto);
        if !is_extension(ip.proto) {
            break;
        }
        let left = head.get(ip.l4..ip.end.min(head.len()))?;
        let h = left.first_chunk::<8>()?;
        let header_len = match ip.proto {
            PROTO_FRAGMENT => 8,
            AUTH => (usize::from(h[1]) + 2) * 4,
            _ => (usize::from(h[1]) + 1) * 8,
        };
        if header_len > ip.end - ip.l4 {
            return None;
        }
        ip.l4 += header_len;
        if ip.proto == PROTO_FRAGMENT && be16::<2, 8>(h) != 0 {
            // Offset 13 bits, reserved 2, more fragments 1. All zero ("atomic", RFC 6946) is no fragment.
            ip.frag = FRAG_ANY;
            if be16::<2, 8>(h) & 0xfff8 != 0 {
                ip.frag |= FRAG_LATER;
                break;
            }
        }
        ip.proto = u64::from(h[0]);
    }
    ip.exthdr = seen.bits;
    Some(ip)
}

/// The bits of OpenFlow 1.3's `ipv6_exthdr` (1.3.5, section 7.2.3.8), and what is needed to judge repeats and
/// order.
#[derive(Default)]
struct ExtensionBits {
    bits: u64,
    /// The kinds of header that came, by their bits.
    kinds: u64,
    last_rank: u8,
    destinations: u8,
}

impl ExtensionBits {
    const UNEXPECTED_REPEAT: u64 = 1 << 7;
    const UNEXPECTED_ORDER: u64 = 1 << 8;

    fn note(&mut self, proto: u64) {
        // The bit, and the place in the order that RFC 8200 section 4.1 recommends.
        let (bit, rank) = match proto {
            HOP_BY_HOP => (1 << 6, 0),
            ROUTING => (1 << 5, 2),
            PROTO_FRAGMENT => (1 << 4, 3),
            AUTH => (1 << 2, 4),
            ESP => (1 << 1, 5),
            // Before a routing header or last: the one header that may come twice.
            DESTINATION => (1 << 3, if self.destinations == 0 && self.last_rank <= 1 { 1 } else { 6 }),
            NO_NEXT => (1, 7),
            _ => return,
        };
        self.destinations += u8::from(proto == DESTINATION && self.destinations < 3);
        let repeated = if proto == DESTINATION { self.destinations > 2 } else { self.kinds & bit != 0 };
        // Hop-by-hop options count where they come first, and are out of order anywhere else.
        let misplaced = proto == HOP_BY_HOP && self.kinds != 0;
        if repeated {
            self.bits |= Self::UNEXPECTED_REPEAT;
        }
        if rank < self.last_rank || misplaced {
            self.bits |= Self::UNEXPECTED_ORDER;
        }
        if !misplaced {
            self.bits |= bit;
        }
        self.kinds |= bit;
        self.last_rank = self.last_rank.max(rank);
    }
}

/// An ARP or RARP packet for Ethernet and IPv4.
pub(super) struct Arp {
    /// Opcode; 0 where it does not fit 8 bits.
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

/// The first three label stack entries at `l3`, up to the bottom of the stack; zero where there is none.
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

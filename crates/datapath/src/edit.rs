//! Changes to a packet's headers, checksums kept right.
//!
//! Headers are found anew for each change: a packet may have been pushed, popped and set before, and only flows that change
//! packets pay. Checksums are updated incrementally (RFC 1624), so a wrong one stays wrong; SCTP's CRC likewise, by the
//! difference that a right one makes. Where a checksum is still unfinished (`CSUM_PARTIAL`), the field holds
//! the pseudo-header's sum and is kept as that.
//!
//! A field that the packet has not (a TCP port of what is no TCP, an address in a header that contradicts itself) is left
//! alone: what extraction does not read is not set, as in Open vSwitch. What extraction reads is found here too, behind however
//! many tags and extension headers. A change that cannot be made (a tag or a label that cannot be pushed or popped, a field that
//! no bytes stand for) is refused with [`DropReason::ActionNotApplicable`]; the packet is then untouched. Nothing here panics,
//! whatever the bytes.

use crate::action::DpAction;
use base::DropReason;
use flow::FieldId;
use packet::{Packet, PacketFlags, PoolCache};
use std::ops::Range;
use wire::checksum::{nonzero, update16, update32, update128};
use wire::crc32c::crc32c;

const MAC_LEN: usize = 6;
const TAG_LEN: usize = 4;
const LSE_LEN: usize = 4;
/// Bit of a TCI that the key uses for "present"; on the wire it is the drop eligible indicator, which is left alone.
const TCI_PRESENT: u16 = 0x1000;

type Edit = Result<(), DropReason>;
const DOES_NOT_FIT: DropReason = DropReason::ActionNotApplicable;

/// Applies one changing action.
pub fn apply(packet: &mut Packet, action: &DpAction) -> Edit {
    match *action {
        DpAction::Set { field, value, mask } => set(packet, field, value & mask, mask),
        DpAction::PushVlan { tpid, tci } => push_vlan(packet, tpid, tci),
        DpAction::PopVlan => pop_vlan(packet),
        DpAction::PushMpls { eth_type, lse } => push_mpls(packet, eth_type, lse),
        DpAction::PopMpls { eth_type } => pop_mpls(packet, eth_type),
        _ => Err(DOES_NOT_FIT),
    }
}

/// Whether the action looks at more of the packet than its headers.
pub fn reads_payload(packet: &Packet, action: &DpAction) -> bool {
    matches!(action, DpAction::Set { field: FieldId::TpSrc | FieldId::TpDst, .. }) && is_sctp(packet)
}

/// SCTP's CRC covers the whole chunk stream.
fn is_sctp(packet: &Packet) -> bool {
    Ip::of(packet).is_some_and(|ip| ip.protocol == 132 && ip.l4.is_some())
}

/// Cuts the frame to at most `max_bytes`, but never below an Ethernet header.
pub fn truncate(packet: Packet, max_bytes: usize, cache: &mut PoolCache) -> Packet {
    let max_bytes = max_bytes.max(14);
    if packet.len() <= max_bytes {
        return packet;
    }
    let (mut kept, mut rest) = packet.split_next();
    let mut room = max_bytes.saturating_sub(kept.len());
    // A frame that is cut has no segments to make and no checksum to finish any more.
    (kept.flags, kept.gso_size) = (PacketFlags::default(), 0);
    while let Some(segment) = rest.take() {
        if room == 0 {
            cache.free(segment);
            break;
        }
        let (mut head, tail) = segment.split_next();
        let len = head.len().min(room);
        head.set_len(len).expect("shorter than it is, and a single segment");
        room -= len;
        kept.append(head);
        rest = tail;
    }
    if !kept.is_chained() {
        let len = kept.len().min(max_bytes);
        kept.set_len(len).expect("shorter than it is, and a single segment");
    }
    kept
}

// ---- where the headers are

/// The network layer and what lies behind it.
#[derive(Clone, Copy)]
struct Layout {
    l3: usize,
    eth_type: u16,
}

#[derive(Clone, Copy)]
struct Ip {
    v6: bool,
    l3: usize,
    protocol: u8,
    /// Start of the transport header; `None` in a later fragment, or where it is cut off.
    l4: Option<usize>,
    /// End of the packet in the frame: behind it is padding.
    end: usize,
    /// A routing header names the real destination, so the one in the IPv6 header is not in the checksum.
    routed: bool,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be128(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_be_bytes(bytes.get(at..at + 16)?.try_into().ok()?))
}

fn byte_at(packet: &Packet, at: usize) -> Option<u8> {
    packet.data().get(at).copied()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(at..at + value.len())?.copy_from_slice(value);
    Some(())
}

fn is_tag(eth_type: u16) -> bool {
    matches!(eth_type, 0x8100 | 0x88a8)
}

impl Layout {
    /// Behind all VLAN tags. Extraction sees two; what it had seen behind them may lie behind tags that
    /// were pushed since, and a change of what it never saw is not asked for.
    fn of(bytes: &[u8]) -> Option<Layout> {
        let mut at = 2 * MAC_LEN;
        while is_tag(be16(bytes, at)?) {
            at += TAG_LEN;
        }
        let eth_type = be16(bytes, at)?;
        // LLC and SNAP: the type is five bytes further on.
        if eth_type < 0x600 && bytes.get(at + 2..at + 8) == Some(&[0xaa, 0xaa, 3, 0, 0, 0]) {
            return Some(Layout { l3: at + 10, eth_type: be16(bytes, at + 8)? });
        }
        Some(Layout { l3: at + 2, eth_type })
    }
}

impl Ip {
    /// The header, where extraction would read it too.
    fn of(packet: &Packet) -> Option<Ip> {
        let bytes = packet.data();
        let Layout { l3, eth_type } = Layout::of(bytes)?;
        match eth_type {
            0x0800 => Ip::v4(bytes, l3, packet.len()),
            0x86dd => Ip::v6(bytes, l3, packet.len()),
            _ => None,
        }
    }

    fn v4(bytes: &[u8], l3: usize, frame_len: usize) -> Option<Ip> {
        let header_len = usize::from(bytes.get(l3)? & 0xf) * 4;
        let total_len = usize::from(be16(bytes, l3 + 2)?);
        let room = frame_len.checked_sub(l3)?;
        if header_len < 20 || header_len > total_len || total_len > room || room - total_len > 0xffff {
            return None;
        }
        let protocol = *bytes.get(l3 + 9)?;
        bytes.get(l3..l3 + header_len)?;
        // To Open vSwitch, protocol 0 says that no header was read.
        if protocol == 0 {
            return None;
        }
        let later = be16(bytes, l3 + 6)? & 0x1fff != 0;
        let l4 = (!later).then_some(l3 + header_len);
        Some(Ip { v6: false, l3, protocol, l4, end: l3 + total_len, routed: false })
    }

    fn v6(bytes: &[u8], l3: usize, frame_len: usize) -> Option<Ip> {
        bytes.get(l3..l3 + 40)?;
        let payload_len = usize::from(be16(bytes, l3 + 4)?);
        let room = frame_len.checked_sub(l3 + 40)?;
        if payload_len > room || room - payload_len > 0xffff {
            return None;
        }
        let end = l3 + 40 + payload_len;
        let mut ip = Ip { v6: true, l3, protocol: bytes[l3 + 6], l4: Some(l3 + 40), end, routed: false };
        // As far as extraction walks: to the end of the bytes. Each header is eight of them at least.
        loop {
            let at = ip.l4?;
            if !matches!(ip.protocol, 0 | 43 | 44 | 51 | 60) {
                return Some(ip);
            }
            let header = bytes.get(at..at + 8).filter(|_| at + 8 <= end)?;
            let (next, len) = (header[0], usize::from(header[1]));
            let len = match ip.protocol {
                51 => (len + 2) * 4,
                44 => {
                    if be16(header, 2)? & 0xfff8 != 0 {
                        ip.l4 = None;
                        return Some(ip);
                    }
                    8
                }
                kind => {
                    ip.routed |= kind == 43 && header[3] > 0;
                    (len + 1) * 8
                }
            };
            if at + len > end {
                return None;
            }
            ip.protocol = next;
            ip.l4 = Some(at + len);
        }
    }

    /// Where the transport checksum that covers the addresses is.
    fn pseudo_checksum_at(&self) -> Option<usize> {
        let l4 = self.l4?;
        // Of a header that is not whole, nothing is touched.
        let there = self.end.checked_sub(l4)?;
        match (self.protocol, self.v6) {
            (6, _) if there >= 20 => Some(l4 + 16),
            (17, _) if there >= 8 => Some(l4 + 6),
            (58, true) if there >= 4 => Some(l4 + 2),
            _ => None,
        }
    }
}

// ---- checksums

/// Applies `update` to the transport checksum for a change of the pseudo-header.
fn fix_pseudo(packet: &mut Packet, ip: &Ip, update: impl Fn(u16) -> u16) {
    let partial = packet.flags.has(PacketFlags::CSUM_PARTIAL);
    let Some(at) = ip.pseudo_checksum_at() else { return };
    let bytes = packet.data_mut();
    let Some(old) = be16(bytes, at) else { return };
    let new = if partial {
        // The field is the sum itself, not its complement.
        !update(!old)
    } else if ip.protocol == 17 {
        if old == 0 { 0 } else { nonzero(update(old)) }
    } else {
        update(old)
    };
    put(bytes, at, &new.to_be_bytes());
}

/// Applies `update` to the transport checksum for a change in the transport header itself.
fn fix_transport(packet: &mut Packet, ip: &Ip, at: usize, update: impl Fn(u16) -> u16) {
    if packet.flags.has(PacketFlags::CSUM_PARTIAL) {
        return; // Whoever finishes it sums what is there then.
    }
    let bytes = packet.data_mut();
    let Some(old) = be16(bytes, at) else { return };
    let new = match ip.protocol {
        17 if old == 0 => 0,
        17 => nonzero(update(old)),
        _ => update(old),
    };
    put(bytes, at, &new.to_be_bytes());
}

fn fix_ipv4_header(bytes: &mut [u8], l3: usize, update: impl Fn(u16) -> u16) {
    if let Some(old) = be16(bytes, l3 + 10) {
        put(bytes, l3 + 10, &update(old).to_be_bytes());
    }
}

// ---- setting fields

fn set(packet: &mut Packet, field: FieldId, value: u128, mask: u128) -> Edit {
    use FieldId::*;
    // Of the stream that SCTP's CRC covers only the first part is at hand.
    if matches!(field, TpSrc | TpDst) && packet.is_chained() && is_sctp(packet) {
        return Err(DOES_NOT_FIT);
    }
    // `None` says that the packet has no such field.
    let _found = match field {
        EthDst => set_mac(packet.data_mut(), 0, value, mask),
        EthSrc => set_mac(packet.data_mut(), MAC_LEN, value, mask),
        VlanTci => set_tci(packet.data_mut(), value as u16, mask as u16),
        NwSrc | NwDst | NwProto | NwTos | NwTtl => set_network(packet, field, value, mask),
        Ipv6Src | Ipv6Dst => set_ipv6_address(packet, field == Ipv6Src, value, mask),
        Ipv6Label => set_ipv6_word(packet, value as u32 & 0xf_ffff, mask as u32 & 0xf_ffff),
        TpSrc | TpDst => set_ports(packet, field == TpSrc, value as u16, mask as u16),
        ArpSha | ArpTha => set_link_address(packet, field == ArpSha, value, mask),
        NdTarget => set_nd_target(packet, value, mask),
        NdReserved => set_nd_reserved(packet, value as u32, mask as u32),
        NdOptionsType => set_nd_options_type(packet, value as u8, mask as u8),
        Mpls0 | Mpls1 | Mpls2 => set_mpls(packet.data_mut(), field, value as u32, mask as u32),
        NshFlags | NshTtl | NshMdtype | NshNp | NshSpi | NshSi | NshC1 | NshC2 | NshC3 | NshC4 => {
            set_nsh(packet.data_mut(), field, value as u32, mask as u32)
        }
        // No bytes stand for it, so the change cannot be made in any packet.
        _ => return Err(DOES_NOT_FIT),
    };
    Ok(())
}

fn set_mac(bytes: &mut [u8], at: usize, value: u128, mask: u128) -> Option<()> {
    let (value, mask) = (&value.to_be_bytes()[10..], &mask.to_be_bytes()[10..]);
    let old = bytes.get_mut(at..at + MAC_LEN)?;
    for ((b, v), m) in old.iter_mut().zip(value).zip(mask) {
        *b = *b & !m | v;
    }
    Some(())
}

fn set_tci(bytes: &mut [u8], value: u16, mask: u16) -> Option<()> {
    let at = 2 * MAC_LEN;
    if !is_tag(be16(bytes, at)?) {
        return None;
    }
    let mask = mask & !TCI_PRESENT;
    let new = be16(bytes, at + 2)? & !mask | value & mask;
    put(bytes, at + 2, &new.to_be_bytes())
}

/// Fields that IPv4, IPv6 and ARP share.
fn set_network(packet: &mut Packet, field: FieldId, value: u128, mask: u128) -> Option<()> {
    let Layout { l3, eth_type } = Layout::of(packet.data())?;
    match eth_type {
        0x0800 => set_ipv4(packet, field, value as u32, mask as u32),
        0x86dd => {
            Ip::of(packet)?;
            match field {
                // The traffic class lies across the first three bytes.
                FieldId::NwTos => set_ipv6_word(packet, (value as u32) << 20, (mask as u32) << 20),
                FieldId::NwTtl => {
                    let bytes = packet.data_mut();
                    bytes[l3 + 7] = bytes[l3 + 7] & !(mask as u8) | value as u8;
                    Some(())
                }
                _ => None,
            }
        }
        0x0806 | 0x8035 => set_arp(packet.data_mut(), l3, field, value, mask),
        _ => None,
    }
}

fn set_ipv4(packet: &mut Packet, field: FieldId, value: u32, mask: u32) -> Option<()> {
    let ip = Ip::of(packet)?;
    let bytes = packet.data_mut();
    let at = match field {
        FieldId::NwSrc => ip.l3 + 12,
        FieldId::NwDst => ip.l3 + 16,
        FieldId::NwTos => {
            let old = be16(bytes, ip.l3)?;
            let new = old & !(mask as u16 & 0xff) | value as u16 & 0xff;
            put(bytes, ip.l3, &new.to_be_bytes())?;
            fix_ipv4_header(bytes, ip.l3, |sum| update16(sum, old, new));
            return Some(());
        }
        FieldId::NwTtl => {
            let old = be16(bytes, ip.l3 + 8)?;
            let new = old & !((mask as u16) << 8) | (value as u16) << 8;
            put(bytes, ip.l3 + 8, &new.to_be_bytes())?;
            fix_ipv4_header(bytes, ip.l3, |sum| update16(sum, old, new));
            return Some(());
        }
        _ => return None,
    };
    let old = be32(bytes, at)?;
    let new = old & !mask | value;
    put(bytes, at, &new.to_be_bytes())?;
    fix_ipv4_header(bytes, ip.l3, |sum| update32(sum, old, new));
    fix_pseudo(packet, &ip, |sum| update32(sum, old, new));
    Some(())
}

fn set_ipv6_word(packet: &mut Packet, value: u32, mask: u32) -> Option<()> {
    let Ip { l3, .. } = Ip::of(packet).filter(|ip| ip.v6)?;
    let bytes = packet.data_mut();
    let new = be32(bytes, l3)? & !mask | value & mask;
    put(bytes, l3, &new.to_be_bytes())
}

fn set_ipv6_address(packet: &mut Packet, src: bool, value: u128, mask: u128) -> Option<()> {
    let ip = Ip::of(packet).filter(|ip| ip.v6)?;
    let at = ip.l3 + if src { 8 } else { 24 };
    let bytes = packet.data_mut();
    let old = be128(bytes, at)?;
    let new = old & !mask | value;
    put(bytes, at, &new.to_be_bytes())?;
    if src || !ip.routed {
        fix_pseudo(packet, &ip, |sum| update128(sum, old, new));
    }
    Some(())
}

fn set_arp(bytes: &mut [u8], l3: usize, field: FieldId, value: u128, mask: u128) -> Option<()> {
    bytes.get(l3..l3 + 28)?;
    // Of Ethernet and IPv4, with an opcode that the key can hold; but an opcode can be given to any.
    let is_read = bytes[l3..l3 + 6] == [0, 1, 8, 0, 6, 4] && matches!(be16(bytes, l3 + 6)?, 1..=0xff);
    match field {
        _ if !is_read && field != FieldId::NwProto => None,
        FieldId::NwProto => {
            let new = be16(bytes, l3 + 6)? & !(mask as u16) | value as u16;
            put(bytes, l3 + 6, &new.to_be_bytes())
        }
        FieldId::NwSrc | FieldId::NwDst => {
            let at = l3 + if field == FieldId::NwSrc { 14 } else { 24 };
            let new = be32(bytes, at)? & !(mask as u32) | value as u32;
            put(bytes, at, &new.to_be_bytes())
        }
        FieldId::ArpSha => set_mac(bytes, l3 + 8, value, mask),
        FieldId::ArpTha => set_mac(bytes, l3 + 18, value, mask),
        _ => None,
    }
}

/// Transport ports; type and code of ICMP.
fn set_ports(packet: &mut Packet, src: bool, value: u16, mask: u16) -> Option<()> {
    let ip = Ip::of(packet)?;
    let l4 = ip.l4?;
    let there = ip.end.checked_sub(l4)?;
    let least = match ip.protocol {
        6 => (usize::from(byte_at(packet, l4 + 12)? >> 4) * 4).max(20),
        132 => 12,
        _ => 8,
    };
    if there < least {
        return None;
    }
    match ip.protocol {
        6 | 17 => {
            let checksum_at = l4 + if ip.protocol == 6 { 16 } else { 6 };
            let at = l4 + if src { 0 } else { 2 };
            let bytes = packet.data_mut();
            be16(bytes, checksum_at)?;
            let old = be16(bytes, at)?;
            let new = old & !mask | value;
            put(bytes, at, &new.to_be_bytes())?;
            fix_transport(packet, &ip, checksum_at, |sum| update16(sum, old, new));
            Some(())
        }
        132 => set_sctp_port(packet, l4..ip.end, src, value, mask),
        1 | 58 => {
            let shift = if src { 8 } else { 0 };
            let bytes = packet.data_mut();
            be16(bytes, l4 + 2)?;
            let old = be16(bytes, l4)?;
            let new = old & !((mask & 0xff) << shift) | (value & 0xff) << shift;
            put(bytes, l4, &new.to_be_bytes())?;
            fix_transport(packet, &ip, l4 + 2, |sum| update16(sum, old, new));
            Some(())
        }
        _ => None,
    }
}

fn set_sctp_port(packet: &mut Packet, sctp: Range<usize>, src: bool, value: u16, mask: u16) -> Option<()> {
    let bytes = packet.data_mut().get_mut(sctp)?;
    let stored = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
    let at = if src { 0 } else { 2 };
    let old = be16(bytes, at)?;
    put(bytes, 8, &[0; 4])?;
    let before = crc32c(bytes);
    put(bytes, at, &(old & !mask | value).to_be_bytes())?;
    let after = crc32c(bytes);
    // Right stays right, wrong stays wrong.
    put(bytes, 8, &(stored ^ before ^ after).to_le_bytes())
}

/// ARP's hardware addresses; the link-layer address options of neighbour discovery.
fn set_link_address(packet: &mut Packet, source: bool, value: u128, mask: u128) -> Option<()> {
    let Layout { l3, eth_type } = Layout::of(packet.data())?;
    if matches!(eth_type, 0x0806 | 0x8035) {
        let field = if source { FieldId::ArpSha } else { FieldId::ArpTha };
        return set_arp(packet.data_mut(), l3, field, value, mask);
    }
    let (ip, l4) = nd_message(packet)?;
    let wanted = if source { 1 } else { 2 };
    let mut at = l4 + 24;
    let bytes = packet.data_mut();
    let at = loop {
        let (kind, len) = (*bytes.get(at)?, usize::from(*bytes.get(at + 1)?) * 8);
        if len == 0 {
            return None;
        }
        if kind == wanted && len >= 8 {
            break at + 2;
        }
        at += len;
    };
    let old = bytes.get(at..at + MAC_LEN)?.iter().fold(0u128, |v, &b| v << 8 | u128::from(b));
    let new = old & !mask | value;
    set_mac(bytes, at, value, mask)?;
    fix_transport(packet, &ip, l4 + 2, |sum| update128(sum, old, new));
    Some(())
}

/// A neighbour solicitation or advertisement with its target.
fn nd_message(packet: &Packet) -> Option<(Ip, usize)> {
    let ip = Ip::of(packet)?;
    let l4 = ip.l4.filter(|_| ip.v6 && ip.protocol == 58)?;
    let bytes = packet.data();
    let kind = *bytes.get(l4)?;
    bytes.get(l4..l4 + 24)?;
    matches!(kind, 135 | 136).then_some((ip, l4))
}

fn set_nd_target(packet: &mut Packet, value: u128, mask: u128) -> Option<()> {
    let (ip, l4) = nd_message(packet)?;
    let bytes = packet.data_mut();
    let old = be128(bytes, l4 + 8)?;
    let new = old & !mask | value;
    put(bytes, l4 + 8, &new.to_be_bytes())?;
    fix_transport(packet, &ip, l4 + 2, |sum| update128(sum, old, new));
    Some(())
}

fn set_nd_reserved(packet: &mut Packet, value: u32, mask: u32) -> Option<()> {
    let (ip, l4) = nd_message(packet)?;
    let bytes = packet.data_mut();
    let old = be32(bytes, l4 + 4)?;
    let new = old & !mask | value;
    put(bytes, l4 + 4, &new.to_be_bytes())?;
    fix_transport(packet, &ip, l4 + 2, |sum| update32(sum, old, new));
    Some(())
}

/// The type of the first link-layer address option.
fn set_nd_options_type(packet: &mut Packet, value: u8, mask: u8) -> Option<()> {
    let (ip, l4) = nd_message(packet)?;
    let bytes = packet.data_mut();
    let mut at = l4 + 24;
    while !matches!(bytes.get(at..at + 2)?, [1 | 2, 1]) {
        at += match bytes[at + 1] {
            0 => return None,
            len => usize::from(len) * 8,
        };
    }
    let old = be16(bytes, at)?;
    let new = old & !(u16::from(mask) << 8) | u16::from(value) << 8;
    put(bytes, at, &new.to_be_bytes())?;
    fix_transport(packet, &ip, l4 + 2, |sum| update16(sum, old, new));
    Some(())
}

fn set_mpls(bytes: &mut [u8], field: FieldId, value: u32, mask: u32) -> Option<()> {
    let Layout { l3, eth_type } = Layout::of(bytes)?;
    if !matches!(eth_type, 0x8847 | 0x8848) {
        return None;
    }
    let depth = match field {
        FieldId::Mpls0 => 0,
        FieldId::Mpls1 => 1,
        _ => 2,
    };
    // No entry lies behind the bottom of the stack.
    for above in 0..depth {
        if be32(bytes, l3 + above * LSE_LEN)? & 0x100 != 0 {
            return None;
        }
    }
    let at = l3 + depth * LSE_LEN;
    let new = be32(bytes, at)? & !mask | value;
    put(bytes, at, &new.to_be_bytes())
}

fn set_nsh(bytes: &mut [u8], field: FieldId, value: u32, mask: u32) -> Option<()> {
    let Layout { l3, eth_type } = Layout::of(bytes)?;
    if eth_type != 0x894f {
        return None;
    }
    // RFC 8300 section 2.2: version 2, O, U, TTL 6, length 6, unassigned 4, MD type 4, next protocol 8.
    let (at, shift, width) = match field {
        FieldId::NshFlags => (0, 28, 2),
        FieldId::NshTtl => (0, 22, 6),
        FieldId::NshMdtype => (0, 8, 4),
        FieldId::NshNp => (0, 0, 8),
        FieldId::NshSpi => (4, 8, 24),
        FieldId::NshSi => (4, 0, 8),
        FieldId::NshC1 => (8, 0, 32),
        FieldId::NshC2 => (12, 0, 32),
        FieldId::NshC3 => (16, 0, 32),
        _ => (20, 0, 32),
    };
    // Context headers are there with MD type 1 only.
    if at >= 8 && be32(bytes, l3)? >> 8 & 0xf != 1 {
        return None;
    }
    let ones = u32::MAX >> (32 - width);
    let mask = (mask & ones) << shift;
    let new = be32(bytes, l3 + at)? & !mask | (value << shift) & mask;
    put(bytes, l3 + at, &new.to_be_bytes())
}

// ---- tags and labels

/// Makes room for `len` bytes in front of byte `at` of the frame.
fn insert(packet: &mut Packet, at: usize, len: usize) -> Edit {
    if packet.data().len() < at {
        return Err(DOES_NOT_FIT);
    }
    packet.push_front(len).ok_or(DropReason::NoHeadroom)?;
    packet.data_mut().copy_within(len..len + at, 0);
    packet.csum_start = packet.csum_start.wrapping_add(len as u16);
    Ok(())
}

/// Takes the `len` bytes from byte `at` on out of the frame.
fn remove(packet: &mut Packet, at: usize, len: usize) -> Edit {
    if packet.data().len() < at + len {
        return Err(DOES_NOT_FIT);
    }
    packet.data_mut().copy_within(0..at, len);
    packet.pull_front(len).ok_or(DOES_NOT_FIT)?;
    packet.csum_start = packet.csum_start.wrapping_sub(len as u16);
    Ok(())
}

fn push_vlan(packet: &mut Packet, tpid: u16, tci: u16) -> Edit {
    insert(packet, 2 * MAC_LEN, TAG_LEN)?;
    let bytes = packet.data_mut();
    put(bytes, 2 * MAC_LEN, &tpid.to_be_bytes());
    put(bytes, 2 * MAC_LEN + 2, &(tci & !TCI_PRESENT).to_be_bytes());
    Ok(())
}

fn pop_vlan(packet: &mut Packet) -> Edit {
    match be16(packet.data(), 2 * MAC_LEN) {
        Some(tpid) if is_tag(tpid) => remove(packet, 2 * MAC_LEN, TAG_LEN),
        // Nothing to pop is nothing to do.
        Some(_) => Ok(()),
        None => Err(DOES_NOT_FIT),
    }
}

fn push_mpls(packet: &mut Packet, eth_type: u16, lse: u32) -> Edit {
    let l3 = Layout::of(packet.data()).ok_or(DOES_NOT_FIT)?.l3;
    insert(packet, l3, LSE_LEN)?;
    let bytes = packet.data_mut();
    put(bytes, l3 - 2, &eth_type.to_be_bytes());
    put(bytes, l3, &lse.to_be_bytes());
    Ok(())
}

fn pop_mpls(packet: &mut Packet, eth_type: u16) -> Edit {
    let layout = Layout::of(packet.data()).ok_or(DOES_NOT_FIT)?;
    if !matches!(layout.eth_type, 0x8847 | 0x8848) {
        return Err(DOES_NOT_FIT);
    }
    put(packet.data_mut(), layout.l3 - 2, &eth_type.to_be_bytes());
    remove(packet, layout.l3, LSE_LEN)
}

#[cfg(test)]
mod tests;

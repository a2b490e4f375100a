//! Changes to a packet's headers, checksums kept right.
//!
//! Where the headers are is what the packet's [`Layers`] say, which travel with it and follow what is pushed
//! and popped; where nobody knows them yet, the first change has them walked over, once. Checksums are
//! updated incrementally (RFC 1624), so a wrong one stays wrong; SCTP's CRC likewise, by the difference that
//! a right one makes. Where a checksum is still unfinished (`CSUM_PARTIAL`), the field holds the
//! pseudo-header's sum and is kept as that.
//!
//! A field that the packet has not (a TCP port of what is no TCP, an address in a header that contradicts
//! itself) is left alone: what extraction does not read is not set, as in Open vSwitch. A change that cannot
//! be made (a tag or a label that cannot be pushed or popped, a field that no bytes stand for) is refused
//! with [`DropReason::ActionNotApplicable`]; the packet is then untouched. Nothing here panics, whatever the
//! bytes.

use crate::action::DpAction;
use base::DropReason;
use flow::FieldId;
use packet::{Packet, PacketFlags, PoolCache};
use std::ops::Range;
use wire::Layers;
use wire::checksum::{nonzero, update16, update32, update128};
use wire::crc32c::crc32c;
use wire::layers::{TAG_LEN, is_tag};

const MAC_LEN: usize = 6;
const LSE_LEN: usize = 4;
/// Bit of a TCI that the key uses for "present"; on the wire it is the drop eligible indicator, which is left
/// alone.
const TCI_PRESENT: u16 = 0x1000;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

type Edit = Result<(), DropReason>;
const DOES_NOT_FIT: DropReason = DropReason::ActionNotApplicable;

/// VLAN tags that extraction looks behind, and so changes do.
const TAGS_MAX: u8 = 2;

/// Applies one changing action to a packet with these layers, which are walked over if they are not known.
pub fn apply(packet: &mut Packet, layers: &mut Layers, action: &DpAction) -> Edit {
    know(packet, layers);
    match *action {
        DpAction::Set { field, value, mask } => set(packet, layers, field, value & mask, mask),
        DpAction::PushVlan { tpid, tci } => push_vlan(packet, layers, tpid, tci),
        DpAction::PopVlan => pop_vlan(packet, layers),
        DpAction::PushMpls { eth_type, lse } => push_mpls(packet, layers, eth_type, lse),
        DpAction::PopMpls { eth_type } => pop_mpls(packet, layers, eth_type),
        _ => Err(DOES_NOT_FIT),
    }
}

#[inline(always)]
fn know(packet: &Packet, layers: &mut Layers) {
    if !layers.are_known() {
        *layers = Layers::of(packet.data(), packet.len(), TAGS_MAX).unwrap_or_default();
    }
}

/// Whether the action looks at more of the packet than its headers.
pub fn reads_payload(packet: &Packet, layers: &mut Layers, action: &DpAction) -> bool {
    if !matches!(action, DpAction::Set { field: FieldId::TpSrc | FieldId::TpDst, .. }) {
        return false;
    }
    know(packet, layers);
    is_sctp(layers)
}

/// SCTP's CRC covers the whole chunk stream.
fn is_sctp(layers: &Layers) -> bool {
    layers.protocol == SCTP && layers.payload != 0
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

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be128(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_be_bytes(bytes.get(at..at + 16)?.try_into().ok()?))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(at..at + value.len())?.copy_from_slice(value);
    Some(())
}

/// The header of IPv4 or IPv6, if all of its fields were read.
fn ip(layers: &Layers) -> Option<usize> {
    // To Open vSwitch, protocol 0 says of IPv4 that no header was read.
    let is_read = layers.is_ip() && !layers.is_cut() && (layers.protocol != 0 || layers.is_ipv6());
    is_read.then_some(layers.l3.into())
}

/// The transport header, if it is whole.
fn transport(layers: &Layers) -> Option<usize> {
    (ip(layers).is_some() && layers.payload != 0).then_some(layers.l4.into())
}

/// Where the transport checksum that covers the addresses is; of a header that is not whole, nothing is
/// touched.
fn pseudo_checksum_at(layers: &Layers) -> Option<usize> {
    let l4 = transport(layers)?;
    match layers.protocol {
        TCP => Some(l4 + 16),
        UDP => Some(l4 + 6),
        ICMPV6 if layers.is_ipv6() => Some(l4 + 2),
        _ => None,
    }
}

// ---- checksums

/// Applies `update` to the transport checksum for a change of the pseudo-header.
fn fix_pseudo(packet: &mut Packet, layers: &Layers, update: impl Fn(u16) -> u16) {
    let partial = packet.flags.has(PacketFlags::CSUM_PARTIAL);
    let Some(at) = pseudo_checksum_at(layers) else { return };
    let bytes = packet.data_mut();
    let Some(old) = be16(bytes, at) else { return };
    let new = if partial {
        // The field is the sum itself, not its complement.
        !update(!old)
    } else if layers.protocol == UDP {
        if old == 0 { 0 } else { nonzero(update(old)) }
    } else {
        update(old)
    };
    put(bytes, at, &new.to_be_bytes());
}

/// Applies `update` to the transport checksum for a change in the transport header itself.
fn fix_transport(packet: &mut Packet, layers: &Layers, at: usize, update: impl Fn(u16) -> u16) {
    if packet.flags.has(PacketFlags::CSUM_PARTIAL) {
        return; // Whoever finishes it sums what is there then.
    }
    let bytes = packet.data_mut();
    let Some(old) = be16(bytes, at) else { return };
    let new = match layers.protocol {
        UDP if old == 0 => 0,
        UDP => nonzero(update(old)),
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

fn set(packet: &mut Packet, layers: &Layers, field: FieldId, value: u128, mask: u128) -> Edit {
    use FieldId::*;
    // Of the stream that SCTP's CRC covers only the first part is at hand.
    if matches!(field, TpSrc | TpDst) && packet.is_chained() && is_sctp(layers) {
        return Err(DOES_NOT_FIT);
    }
    // `None` says that the packet has no such field.
    let _found = match field {
        EthDst => set_mac(packet.data_mut(), 0, value, mask),
        EthSrc => set_mac(packet.data_mut(), MAC_LEN, value, mask),
        VlanTci => set_tci(packet.data_mut(), value as u16, mask as u16),
        NwSrc | NwDst | NwProto | NwTos | NwTtl => set_network(packet, layers, field, value, mask),
        Ipv6Src | Ipv6Dst => set_ipv6_address(packet, layers, field == Ipv6Src, value, mask),
        Ipv6Label => set_ipv6_word(packet, layers, value as u32 & 0xf_ffff, mask as u32 & 0xf_ffff),
        TpSrc | TpDst => set_ports(packet, layers, field == TpSrc, value as u16, mask as u16),
        ArpSha | ArpTha => set_link_address(packet, layers, field == ArpSha, value, mask),
        NdTarget => set_nd_target(packet, layers, value, mask),
        NdReserved => set_nd_reserved(packet, layers, value as u32, mask as u32),
        NdOptionsType => set_nd_options_type(packet, layers, value as u8, mask as u8),
        Mpls0 | Mpls1 | Mpls2 => set_mpls(packet.data_mut(), layers, field, value as u32, mask as u32),
        NshFlags | NshTtl | NshMdtype | NshNp | NshSpi | NshSi | NshC1 | NshC2 | NshC3 | NshC4 => {
            set_nsh(packet.data_mut(), layers, field, value as u32, mask as u32)
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
fn set_network(packet: &mut Packet, layers: &Layers, field: FieldId, value: u128, mask: u128) -> Option<()> {
    match layers.eth_type {
        0x0800 => set_ipv4(packet, layers, field, value as u32, mask as u32),
        0x86dd => match field {
            // The traffic class lies across the first three bytes.
            FieldId::NwTos => set_ipv6_word(packet, layers, (value as u32) << 20, (mask as u32) << 20),
            FieldId::NwTtl => {
                let ttl = packet.data_mut().get_mut(ip(layers)? + 7)?;
                *ttl = *ttl & !(mask as u8) | value as u8;
                Some(())
            }
            _ => None,
        },
        0x0806 | 0x8035 => set_arp(packet.data_mut(), layers, field, value, mask),
        _ => None,
    }
}

fn set_ipv4(packet: &mut Packet, layers: &Layers, field: FieldId, value: u32, mask: u32) -> Option<()> {
    let l3 = ip(layers)?;
    let bytes = packet.data_mut();
    let at = match field {
        FieldId::NwSrc => l3 + 12,
        FieldId::NwDst => l3 + 16,
        FieldId::NwTos => {
            let old = be16(bytes, l3)?;
            let new = old & !(mask as u16 & 0xff) | value as u16 & 0xff;
            put(bytes, l3, &new.to_be_bytes())?;
            fix_ipv4_header(bytes, l3, |sum| update16(sum, old, new));
            return Some(());
        }
        FieldId::NwTtl => {
            let old = be16(bytes, l3 + 8)?;
            let new = old & !((mask as u16) << 8) | (value as u16) << 8;
            put(bytes, l3 + 8, &new.to_be_bytes())?;
            fix_ipv4_header(bytes, l3, |sum| update16(sum, old, new));
            return Some(());
        }
        _ => return None,
    };
    let old = be32(bytes, at)?;
    let new = old & !mask | value;
    put(bytes, at, &new.to_be_bytes())?;
    fix_ipv4_header(bytes, l3, |sum| update32(sum, old, new));
    fix_pseudo(packet, layers, |sum| update32(sum, old, new));
    Some(())
}

fn set_ipv6_word(packet: &mut Packet, layers: &Layers, value: u32, mask: u32) -> Option<()> {
    let l3 = ip(layers).filter(|_| layers.is_ipv6())?;
    let bytes = packet.data_mut();
    let new = be32(bytes, l3)? & !mask | value & mask;
    put(bytes, l3, &new.to_be_bytes())
}

fn set_ipv6_address(packet: &mut Packet, layers: &Layers, src: bool, value: u128, mask: u128) -> Option<()> {
    let l3 = ip(layers).filter(|_| layers.is_ipv6())?;
    let at = l3 + if src { 8 } else { 24 };
    let bytes = packet.data_mut();
    let old = be128(bytes, at)?;
    let new = old & !mask | value;
    put(bytes, at, &new.to_be_bytes())?;
    if src || !layers.is_routed() {
        fix_pseudo(packet, layers, |sum| update128(sum, old, new));
    }
    Some(())
}

fn set_arp(bytes: &mut [u8], layers: &Layers, field: FieldId, value: u128, mask: u128) -> Option<()> {
    let l3 = usize::from(layers.l2_5);
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
fn set_ports(packet: &mut Packet, layers: &Layers, src: bool, value: u16, mask: u16) -> Option<()> {
    let l4 = transport(layers)?;
    match layers.protocol {
        TCP | UDP => {
            let checksum_at = l4 + if layers.protocol == TCP { 16 } else { 6 };
            let at = l4 + if src { 0 } else { 2 };
            let bytes = packet.data_mut();
            be16(bytes, checksum_at)?;
            let old = be16(bytes, at)?;
            let new = old & !mask | value;
            put(bytes, at, &new.to_be_bytes())?;
            fix_transport(packet, layers, checksum_at, |sum| update16(sum, old, new));
            Some(())
        }
        SCTP => {
            let end = layers.end(packet.data());
            set_sctp_port(packet, l4..end, src, value, mask)
        }
        1 | ICMPV6 => {
            let shift = if src { 8 } else { 0 };
            let bytes = packet.data_mut();
            be16(bytes, l4 + 2)?;
            let old = be16(bytes, l4)?;
            let new = old & !((mask & 0xff) << shift) | (value & 0xff) << shift;
            put(bytes, l4, &new.to_be_bytes())?;
            fix_transport(packet, layers, l4 + 2, |sum| update16(sum, old, new));
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
fn set_link_address(
    packet: &mut Packet,
    layers: &Layers,
    source: bool,
    value: u128,
    mask: u128,
) -> Option<()> {
    if matches!(layers.eth_type, 0x0806 | 0x8035) {
        let field = if source { FieldId::ArpSha } else { FieldId::ArpTha };
        return set_arp(packet.data_mut(), layers, field, value, mask);
    }
    let l4 = nd_message(packet, layers)?;
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
    fix_transport(packet, layers, l4 + 2, |sum| update128(sum, old, new));
    Some(())
}

/// A neighbour solicitation or advertisement with its target.
fn nd_message(packet: &Packet, layers: &Layers) -> Option<usize> {
    let l4 = transport(layers).filter(|_| layers.is_ipv6() && layers.protocol == ICMPV6)?;
    let message = packet.data().get(l4..l4 + 24)?;
    matches!(message[0], 135 | 136).then_some(l4)
}

fn set_nd_target(packet: &mut Packet, layers: &Layers, value: u128, mask: u128) -> Option<()> {
    let l4 = nd_message(packet, layers)?;
    let bytes = packet.data_mut();
    let old = be128(bytes, l4 + 8)?;
    let new = old & !mask | value;
    put(bytes, l4 + 8, &new.to_be_bytes())?;
    fix_transport(packet, layers, l4 + 2, |sum| update128(sum, old, new));
    Some(())
}

fn set_nd_reserved(packet: &mut Packet, layers: &Layers, value: u32, mask: u32) -> Option<()> {
    let l4 = nd_message(packet, layers)?;
    let bytes = packet.data_mut();
    let old = be32(bytes, l4 + 4)?;
    let new = old & !mask | value;
    put(bytes, l4 + 4, &new.to_be_bytes())?;
    fix_transport(packet, layers, l4 + 2, |sum| update32(sum, old, new));
    Some(())
}

/// The type of the first link-layer address option.
fn set_nd_options_type(packet: &mut Packet, layers: &Layers, value: u8, mask: u8) -> Option<()> {
    let l4 = nd_message(packet, layers)?;
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
    fix_transport(packet, layers, l4 + 2, |sum| update16(sum, old, new));
    Some(())
}

fn set_mpls(bytes: &mut [u8], layers: &Layers, field: FieldId, value: u32, mask: u32) -> Option<()> {
    if !is_mpls(layers.eth_type) {
        return None;
    }
    let labels = usize::from(layers.l2_5);
    let depth = match field {
        FieldId::Mpls0 => 0,
        FieldId::Mpls1 => 1,
        _ => 2,
    };
    // No entry lies behind the bottom of the stack.
    for above in 0..depth {
        if be32(bytes, labels + above * LSE_LEN)? & 0x100 != 0 {
            return None;
        }
    }
    let at = labels + depth * LSE_LEN;
    let new = be32(bytes, at)? & !mask | value;
    put(bytes, at, &new.to_be_bytes())
}

fn set_nsh(bytes: &mut [u8], layers: &Layers, field: FieldId, value: u32, mask: u32) -> Option<()> {
    if layers.eth_type != 0x894f {
        return None;
    }
    let l3 = usize::from(layers.l2_5);
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

fn push_vlan(packet: &mut Packet, layers: &mut Layers, tpid: u16, tci: u16) -> Edit {
    insert(packet, 2 * MAC_LEN, TAG_LEN)?;
    let bytes = packet.data_mut();
    put(bytes, 2 * MAC_LEN, &tpid.to_be_bytes());
    put(bytes, 2 * MAC_LEN + 2, &(tci & !TCI_PRESENT).to_be_bytes());
    *layers = layers.with_tags(1);
    Ok(())
}

fn pop_vlan(packet: &mut Packet, layers: &mut Layers) -> Edit {
    match be16(packet.data(), 2 * MAC_LEN) {
        Some(tpid) if is_tag(tpid) => remove(packet, 2 * MAC_LEN, TAG_LEN)?,
        // Nothing to pop is nothing to do.
        Some(_) => return Ok(()),
        None => return Err(DOES_NOT_FIT),
    }
    // Behind a tag that was not looked behind may be anything.
    *layers = if layers.tags > 0 { layers.with_tags(-1) } else { Layers::UNKNOWN };
    Ok(())
}

fn is_mpls(eth_type: u16) -> bool {
    matches!(eth_type, 0x8847 | 0x8848)
}

fn push_mpls(packet: &mut Packet, layers: &mut Layers, eth_type: u16, lse: u32) -> Edit {
    let at = usize::from(layers.l2_5);
    if at < 2 * MAC_LEN + 2 {
        return Err(DOES_NOT_FIT);
    }
    insert(packet, at, LSE_LEN)?;
    let bytes = packet.data_mut();
    put(bytes, at - 2, &eth_type.to_be_bytes());
    put(bytes, at, &lse.to_be_bytes());
    *layers = layers.retyped(packet.data(), packet.len(), eth_type);
    Ok(())
}

fn pop_mpls(packet: &mut Packet, layers: &mut Layers, eth_type: u16) -> Edit {
    if !is_mpls(layers.eth_type) {
        return Err(DOES_NOT_FIT);
    }
    let at = usize::from(layers.l2_5);
    remove(packet, at, LSE_LEN)?;
    put(packet.data_mut(), at - 2, &eth_type.to_be_bytes());
    *layers = layers.retyped(packet.data(), packet.len(), eth_type);
    Ok(())
}

#[cfg(test)]
mod tests;
